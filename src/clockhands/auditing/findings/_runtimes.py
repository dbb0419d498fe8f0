"""Findings on how runtimes read this file: the runtime that the caller named, and common mistakes of others."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.auditing._edits import Edit, applied, placed
from clockhands.auditing.findings._parts import AuditSubject, check, declared
from clockhands.auditing.findings._readers import in_both_shapes, in_the_old_shape, instead_of, worst_of
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.phrases import listed, spoken
from clockhands.runtimes import (
    FileReadings,
    LayerDifference,
    Reading,
    Statement,
    compared,
    release_order,
)
from clockhands.runtimes.drafts import is_draft
from clockhands.runtimes.telling import reach_of, release


class MisreadByRuntime(Case, code="misread-by-runtime"):
    instead: Sequence[str]
    in_the_old_shape: Mapping[str, str] | None = None

    def uses(self) -> str:
        """What it uses instead, as text."""
        return "; ".join(self.instead)

    def edit(self) -> Edit | None:
        """Write the same values in the old shape as well, if the runtime then computes what the file declares."""
        return None if not self.in_the_old_shape else in_both_shapes(self.in_the_old_shape)


class OverrideReplacesBlock(Case, code="override-replaces-block"):
    lost: Mapping[str, Any]

    def severity(self) -> str:
        """An error if a block of the file had the value; beside the block, older runtimes still find it."""
        return "error" if any("rope_" in place.rpartition(".")[0] for place in self.lost) else "warning"

    def hint(self) -> str:
        if not self.evidence:
            return "Copy all keys of the file's RoPE block into the override."
        keys = {place.rpartition(".")[2]: value for place, value in self.lost.items()}
        return f"Add these keys to the override: {json.dumps(keys)[1:-1]}."

    def lost_values(self) -> str:
        """The values that the override lacks, as text."""
        return listed([f"{place} ({spoken(value)})" for place, value in self.lost.items()])


class RefusedByRuntime(Case, code="refused-by-runtime"):
    because: str

    def reason(self) -> str:
        """Why, without a full stop."""
        return self.because.rstrip(".")


class OftenMisread(Case, code="often-misread"):
    mistakes: Sequence[str]

    def count(self) -> int:
        """The number of mistakes."""
        return len(self.mistakes)

    def list(self) -> str:
        """The mistakes, as text."""
        return "; ".join(self.mistakes)


# Every file with RoPE can be misread like this: it is reported if a runtime is known to do it.
_INVITED_BY_NOTHING = ("other-layout",)


@check
def often_misread(subject: AuditSubject) -> Iterator[Case]:
    """The patterns of misreading that change this file, with the runtimes that are known to follow them."""
    known: dict[str, str] = {}
    others: dict[str, str] = {}
    for reading in subject.runtimes.misreadings():
        about = (each for each in subject.runtimes.statements if each.pattern == reading.reader)
        who = [f"{each.releases} ({each.thread})" for each in about]
        if reading.reader in _INVITED_BY_NOTHING and not who:
            continue
        worst = worst_of(reading.parted)
        far = None if worst.ladder is None else worst.ladder.reaches(1.0)
        off = f"off by 1 radian from distance {spoken(far)} on" if far is not None else "; ".join(instead_of(worst))
        (known if who else others)[reading.title] = off + (f"; made by {listed(who)}" if who else "")
    if known or others:
        evidence: dict[str, Any] = {"mistakes": [*known, *others], "known": len(known)}
        yield case_of("often-misread", evidence | known | others)


@check
def named_runtime(subject: AuditSubject) -> Iterator[Case]:
    """How the runtime that the caller named reads this file."""
    runtime = subject.runtime
    if runtime is None:
        return
    held = readings_of(subject)
    known = [each for each in held if each.verdict != "unknown"]
    stated = {} if runtime.exact and known else dict(_stated(subject))
    # A statement about this very release is more precise than the code of another one.
    shown = [each for each in held if not any(_alike(each, stated_so) for stated_so in stated.values())]
    answers = [*_of_its_code(subject, shown), *_of_statements(subject, stated)]
    if not answers and not (known and runtime.exact):
        reported = [*_reported(subject)]
        unread = _unread(subject, reported=bool(reported))
        reasons = [subject.runtimes.incomparable, *(each.because for each in held), unread]
        yield case_of(
            "runtime-not-known",
            {"runtime": str(runtime), "because": " ".join([next(filter(None, reasons)), *reported])},
        )
    yield from answers


def _reported(subject: AuditSubject) -> Iterator[str]:
    """What is known of some release of the named runtime, if it changes what the file declares."""
    runtime = subject.runtime
    assert runtime is not None
    held = {each.pattern: each for each in runtime.reported(subject.runtimes.statements)}
    for reading in map(subject.runtimes.reading, held):
        if reading.verdict == "differs":
            said = held[reading.reader]
            fixed = "" if said.mended is None else f", fixed by {said.mended}"
            known = f"A mistake of some release is known from {said.thread}{fixed} (no line of its code is known)"
            yield f"{known}: {said.says}"


def _unread(subject: AuditSubject, *, reported: bool) -> str:
    """That the code of the named release was not read, and which releases read the file correctly.

    Args:
        subject: The audited target, with a named runtime.
        reported: Whether a mistake of some release is reported for such files.
    """
    runtime = subject.runtime
    assert runtime is not None
    if not runtime.readers:
        known = "" if reported else ", and no known mistake of this runtime is about such a file"
        return f"The code of this runtime was not read{known}."
    # A reading that was compared only in part is not called correct.
    right = [release(each) for each in readings_of(subject) if each.verdict == "same" and not each.not_compared]
    reads = f" {listed(right)} {'read' if len(right) > 1 else 'reads'} the file right." if right else ""
    fixed = [each.until for each in runtime.fixed_before(subject.runtimes.statements) if each.until is not None]
    since = f" Older releases misread such files, which is fixed in {max(fixed, key=release_order)}." if fixed else ""
    return f"The code of release {runtime.release} was not read as a whole.{reads}{since}"


def readings_of(subject: AuditSubject) -> tuple[Reading, ...]:
    """The readings used for the runtime that the caller named.

    An older release is not used for a release that fixed the very point in which it differs.
    """
    runtime = subject.runtime
    assert runtime is not None
    held = tuple(each for each in subject.readings if each.reader in runtime.readers)
    if runtime.exact:
        return held
    mended = [*map(subject.runtimes.reading, runtime.right_again(subject.runtimes.statements))]
    return tuple(each for each in held if not any(_alike(each, pattern) for pattern in mended))


def _of_its_code(subject: AuditSubject, held: Sequence[Reading]) -> Iterator[Case]:
    """How the releases whose code was read compute this file."""
    runtime = subject.runtime
    assert runtime is not None
    for reading in held:
        evidence: dict[str, Any] = {"runtime": release(reading), "certain": runtime.exact}
        evidence |= {} if runtime.exact else {"not read": _unread(subject, reported=False)}
        if reading.verdict == "refuses":
            yield case_of("refused-by-runtime", evidence | {"because": reading.because})
        elif reading.verdict == "differs":
            worst = worst_of(reading.parted)

            def same(opened: Opened, reader: str = reading.reader) -> bool:
                resolved = resolve(opened, subject.resolved.asked).with_lengths()
                return FileReadings(opened, resolved, resolved.length).reading(reader).verdict == "same"

            evidence |= _differs(subject, reading.parted) | _written_for(subject, reading.parted, same)
            yield case_of("misread-by-runtime", evidence, worst.layers if len(reading.parted) > 1 else None)


def _stated(subject: AuditSubject) -> Iterator[tuple[Statement, Reading]]:
    """A statement about the named release, with what the pattern computes from the file if that differs."""
    runtime = subject.runtime
    assert runtime is not None
    held = {each.pattern: each for each in runtime.statements(subject.runtimes.statements)}
    for reading in map(subject.runtimes.reading, held):
        if reading.verdict == "differs":
            yield held[reading.reader], reading


def _of_statements(subject: AuditSubject, stated: Mapping[Statement, Reading]) -> Iterator[Case]:
    """What the named release computes from the file, by the statements."""
    runtime = subject.runtime
    assert runtime is not None
    for said, reading in stated.items():
        evidence = {"runtime": str(runtime), "certain": said.certain(runtime.release)}
        evidence |= {"does": said.says, "source": said.evidence(subject.resolved.model_type, runtime.release)}
        evidence["holds"] = f"This is known of {said.releases}, and of no other release."
        if said.only_if is not None:
            evidence["not read"] = f"The runtime makes this mistake only if {said.only_if}."

        def left(opened: Opened, said: Statement = said) -> bool:
            return said not in runtime.statements(FileReadings(opened, subject.resolved, None).statements)

        evidence |= _differs(subject, reading.parted) | _written_for(subject, reading.parted, left)
        yield case_of(
            "misread-by-runtime", evidence, worst_of(reading.parted).layers if len(reading.parted) > 1 else None
        )


def _alike(first: Reading, second: Reading) -> bool:
    """Whether two readings compute the same, and differ from the audit."""
    differ = first.verdict == second.verdict == "differs"
    return differ and all(group.same for group in compared(first.codes, second.codes))


def _differs(subject: AuditSubject, parted: Sequence[LayerDifference]) -> dict[str, Any]:
    """The differences in the worst group of layers, as evidence."""
    worst = worst_of(parted)
    resolved = subject.resolved
    reach = reach_of(resolved.codes, resolved.context, resolved.length)
    far = None if worst.ladder is None else worst.ladder.reaches(1.0)
    lost = worst.ladder is None or (far is not None and (reach is None or far < reach))
    evidence: dict[str, Any] = {"instead": instead_of(worst), "lost": lost}
    evidence |= {"other layers": len(parted) - 1} if len(parted) > 1 else {}
    return evidence | ({} if far is None else {"off by a radian from": far})


def _written_for(
    subject: AuditSubject, parted: Sequence[LayerDifference], mends: Callable[[Opened], bool]
) -> dict[str, Any]:
    """The change that writes the values in the old shape as well, if that fixes what the runtime reads."""
    code = worst_of(parted).ours
    held = {} if code is None else in_the_old_shape(subject, code)
    if not held or not isinstance(subject.opened.config, dict):
        return {}
    edit = placed(in_both_shapes(held["in the old shape"]), {subject.opened.config_name or "": subject.opened.config})
    if edit is None or not edit.patch:
        return {}
    config = subject.opened.config
    for step in edit.patch:
        config = applied(step, config)
    return held if mends(replace(subject.opened, config=config)) else {}


@check
def draft_window(subject: AuditSubject) -> Iterator[Case]:
    """Sliding windows of an EAGLE draft, which a runtime is reported to take from the target."""
    config = subject.opened.config or {}
    named = str([config.get("architectures"), config.get("speculators_model_type")]).lower()
    if is_draft(config) and "eagle" in named:
        for code in subject.resolved.codes:
            if code.part == "text" and code.window is not None:
                yield case_of("draft-window", {"window": code.window} | declared(code, "window"), code.layers)


_TAKE_OVERRIDES = ("transformers", "vllm", "sglang")


@check
def override_replaces_block(subject: AuditSubject) -> Iterator[Case]:
    """A whole block set by the caller, without the base or another value that the file has."""
    if subject.runtime is not None and subject.runtime.name not in _TAKE_OVERRIDES:
        return
    for override in subject.opened.overridden:
        path, dot, last = override.rpartition(".")
        lost = {
            where.rpartition(":")[2]: value
            for where, value in subject.opened.lost.items()
            if where.rpartition(":")[2].startswith(f"{path}{dot}")
        }
        if last in (OLD, NEW) and lost:
            yield case_of("override-replaces-block", {"block": override, "lost": lost})
            return
