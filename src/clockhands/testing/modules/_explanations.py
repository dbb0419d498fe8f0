"""Explanation of a module's failures: the treatment, the responsible tensors, the first wrong position.

A tensor is responsible if restoring its old values makes the output right again; nothing is guessed from its name.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from clockhands.errors import ClockhandsError
from clockhands.phrases import listed
from clockhands.recognition.calling import Refused
from clockhands.recognition.diagnosis import hint_of
from clockhands.recognition.faults import FAULTS
from clockhands.recognition.suspects import scaling_name
from clockhands.testing.modules._module_calls import ModuleOutput, ModuleSubject, Treated, Treatment
from clockhands.testing.modules._module_tensors import (
    Changed,
    Wrong,
    changed,
    held,
    numbers,
    put,
    spoiled,
    wrong_tensors,
)
from clockhands.testing.reports import Explanation, Failure


@dataclass(frozen=True)
class Outcome:
    """A treatment that failed.

    Attributes:
        treatment: The treatment.
        failure: Its failure in the report.
        treated: The module after it, or None if the treatment itself fails.
        heard: The output, or None if the module raised an error.
    """

    treatment: Treatment
    failure: Failure
    treated: Treated | None
    heard: ModuleOutput | None

    @property
    def action(self) -> str:
        """What was done, as a phrase."""
        return self.treatment.name if self.treated is None else self.treated.what

    @property
    def size(self) -> str:
        """The first wrong position and the largest error, as a phrase."""
        if self.treated is None or self.heard is None:
            return self.failure.message.removesuffix(".")
        evidence = self.failure.evidence
        if "first wrong position" not in evidence:
            return self.failure.message.removesuffix(".")
        most = evidence.get("largest error")
        off = "by NaN" if most is None else f"by up to {most:.2g}"
        first = evidence["first wrong position"]
        return f"the first wrong position of those checked is {first:,}, and numbers are off {off}"


def explained(subject: ModuleSubject, outcomes: Sequence[Outcome], explained_before: bool) -> list[Explanation]:
    """The explanations: one for all failures with the same cause."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.treatment.group, []).append(outcome)
    found: list[Explanation] = []
    changes_itself = "again" in groups
    for group, failed in groups.items():
        if changes_itself and group in ("longer", "after coarse", "positions"):
            continue  # it differs at each call, whatever calls came before
        if group == "positions" and explained_before:
            continue
        if group in ("cast", "default dtype"):
            coarse = {one.failure.evidence.get("dtype") for one in groups.get("coarse", ())}
            found += _casts(subject, failed, bool(coarse))
        elif group == "coarse":
            if not explained_before:
                found.append(_explanation_of("coarse-path-differs", failed, {"dtype": "bfloat16"}))
        elif group == "numbers":
            found += [] if explained_before else _no_numbers(subject)
        elif group == "empty":
            found += _emptied(subject, failed)
        elif group in ("again", "several"):
            found.append(_repeated(subject, failed))
        elif group == "longer":
            found.append(_explanation_of("remembers-longest", failed, {}))
        elif group == "after coarse":
            found.append(_explanation_of("cache-keeps-first-dtype", failed, {"dtype": "bfloat16"}))
        else:
            found.append(_by_group(group, failed))
    return found


_CODES = {
    "deepcopy": "lost-by-deepcopy",
    "pickle": "lost-by-pickle",
    "state dict": "lost-by-state-dict",
    "mode": "mode-changes-numbers",
    "autocast": "autocast-changes-numbers",
    "shared": "shared-table",
    "moved": "left-behind-by-move",
    "compile": "compile-changes-numbers",
    "positions": "position-argument-ignored",
}


def once(found: Iterable[Explanation]) -> tuple[Explanation, ...]:
    """Each cause once: without explanations whose codes an earlier one has for the same tensor or module."""
    seen: set[tuple[str, str | None]] = set()
    kept = []
    for one in found:
        codes = {(code, one.where) for code in one.codes if code != "lost-by-to-empty" or len(one.codes) == 1}
        if not codes <= seen:
            kept.append(one)
        seen |= {(code, one.where) for code in one.codes}
    return tuple(kept)


def explanation_of_codes(
    code: str | tuple[str, ...],
    parameters: Mapping[str, Any],
    where: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Explanation:
    """An explanation with the sentence and the hint of the first code, and the cases of all codes."""
    codes = (code,) if isinstance(code, str) else code
    fault = FAULTS[codes[0]]
    return Explanation(
        codes,
        f"{fault.sentence.format(**parameters)}.",
        fault.hint,
        tuple(dict.fromkeys(case for each in codes for case in FAULTS[each].cases)),
        dict(evidence or {}) | dict(parameters),
        where,
    )


def _by_group(group: str, failed: Sequence[Outcome]) -> Explanation:
    """The explanation of a group whose fault follows from the treatment."""
    code, first = _CODES[group], failed[0]
    size = f"when it {first.action}, {first.size}" if group == "shared" else first.size
    explanation = _explanation_of(code, failed, {"what": first.action, "told": size})
    if first.treated is None:
        return replace(explanation, message=f"{first.failure.message.removeprefix('it ').rstrip('.')}.")
    return explanation


def _explanation_of(code: str, failed: Sequence[Outcome], parameters: Mapping[str, Any]) -> Explanation:
    return explanation_of_codes(code, parameters, None, _evidence(failed))


def _evidence(failed: Sequence[Outcome]) -> dict[str, Any]:
    first = failed[0].failure.evidence
    kept = {name: first[name] for name in ("first wrong position", "largest error") if name in first}
    return kept | {"treatments": [one.treatment.name for one in failed]}


def _explains(subject: ModuleSubject, module: torch.nn.Module, treated: Treated) -> bool:
    """Whether a module gives the expected output after a treatment."""
    wanted = treated.wanted or subject.before
    # The same positions as in the treatment.
    at = None if treated.wanted is None or treated.heard is None else treated.wanted.positions
    try:
        heard = subject.asking.hear(module, dtype=treated.dtype, around=treated.around, positions=at)
    except Refused:
        return False
    return not subject.differs(heard, wanted, treated)


def _blamed(subject: ModuleSubject, outcome: Outcome) -> list[Changed]:
    """The tensors that a treatment changed and whose old values make the output right again; empty if none."""
    treated = outcome.treated
    assert treated is not None
    candidates = [one for one in changed(subject.original, treated.module) if one.kind != "parameter"]
    original = held(subject.original)
    for some in [[one] for one in candidates] + ([candidates] if len(candidates) > 1 else []):
        try:
            mended = copy.deepcopy(treated.module)
        except Exception:  # noqa: BLE001 - without a copy no tensor can be restored
            return []
        for one in some:
            tensor = original[one.path].tensor.detach().clone()
            if treated.dtype == "float64" and tensor.is_floating_point():
                tensor = tensor.double()
            put(mended, one.path, tensor)
        if _explains(subject, mended, treated):
            return some
    return []


def _casts(subject: ModuleSubject, failed: Sequence[Outcome], coarse: bool) -> list[Explanation]:
    by_tensor: dict[str, tuple[list[Outcome], Changed]] = {}
    rest: list[Outcome] = []
    for outcome in failed:
        blamed = _blamed(subject, outcome) if outcome.treated is not None else []
        for one in blamed:
            by_tensor.setdefault(one.path, ([], one))[0].append(outcome)
        if not blamed:
            rest.append(outcome)
    found = []
    for path, (outcomes, one) in by_tensor.items():
        what = joined([outcome.action for outcome in outcomes])
        size = one.change_in_words
        evidence = _evidence(outcomes) | {"dtype before": one.before, "dtype after": one.after}
        if one.ids:
            parameters = {"path": path, "what": "a cast", "told": f"{size}; {outcomes[0].size}"}
            found.append(explanation_of_codes("ids-of-floats", parameters, path, evidence))
        elif all(outcome.treatment.group == "default dtype" for outcome in outcomes):
            parameters = {"dtype": one.after, "told": f"when it {what}, {size}; {outcomes[0].size}"}
            found.append(explanation_of_codes("buffer-rounded", parameters, path, evidence))
        else:
            parameters = {"what": what, "told": f"the cast rounds {size}; {outcomes[0].size}"}
            found.append(explanation_of_codes("cast-changes-numbers", parameters, path, evidence))
    if rest and not coarse:
        parameters = {"what": joined([outcome.action for outcome in rest]), "told": rest[0].size}
        codes: tuple[str, ...] = ("cast-changes-numbers",)
        if all(outcome.treatment.group == "default dtype" for outcome in rest):
            codes = ("buffer-rounded",)
            parameters = {"dtype": "bfloat16", "told": f"when it {rest[0].action}, {rest[0].size}"}
        found.append(explanation_of_codes(codes, parameters, None, _evidence(rest)))
    return found


def _emptied(subject: ModuleSubject, failed: Sequence[Outcome]) -> list[Explanation]:
    """The explanations of failures after `to_empty`: tensors that are not filled, or filled with other numbers."""
    unfilled: dict[str, str] = {}
    refilled: dict[str, tuple[str, str]] = {}
    rest: list[Outcome] = []
    for outcome in failed:
        if outcome.treated is None:
            rest.append(outcome)
            continue
        module = outcome.treated.module
        empty = {path: one.kind for path, one in held(module).items() if one.tensor.is_meta or spoiled(one.tensor)}
        other = {} if empty else {one.path: one for one in changed(subject.original, module) if one.wrong}
        unfilled |= empty
        for path, one in other.items():
            if one.kind != "parameter":
                why = (
                    f"{one.change_in_words.removesuffix(')')}: it is refilled with other values than it was made with)"
                )
                refilled[path] = (why, _refilled(subject, module, path) or "lost-by-to-empty")
        if not empty and not other:
            rest.append(outcome)
    what, evidence = joined([outcome.action for outcome in failed]), _evidence(failed)
    found = []
    if unfilled:
        named = [f"`{path}`" for path in unfilled]
        kind = next(iter(unfilled.values()))
        several = (
            f"its {kind}s {', '.join(named[:-1])} and {named[-1]} are" if named[1:] else f"its {kind} {named[0]} is"
        )
        parameters = {"what": what, "told": f"{several} not filled: the memory is uninitialised"}
        found.append(
            explanation_of_codes(
                "lost-by-to-empty", parameters, next(iter(unfilled)), evidence | {"tensors": list(unfilled)}
            )
        )
    for path, (why, code) in refilled.items():
        codes = ("lost-by-to-empty",) if code == "lost-by-to-empty" else (code, "lost-by-to-empty")
        parameters = {"what": what, "told": why}
        if len(codes) > 1:
            parameters = {"told": f"when it {what}, {why}", "scaling": _scaling_words(subject.spec)}
        found.append(explanation_of_codes(codes, parameters, path, evidence))
    if rest and not found:
        found.append(explanation_of_codes("lost-by-to-empty", {"what": what, "told": rest[0].size}, None, evidence))
    return found


def _no_numbers(subject: ModuleSubject) -> list[Explanation]:
    """The explanations of tensors that hold NaN."""
    found = []
    for path, one in held(subject.original).items():
        values = np.empty(0) if one.tensor.is_meta else numbers(one.tensor)
        missing = int(np.isnan(values).sum())
        if missing:
            size = f"{missing:,} of {values.size:,} numbers of its {one.kind} `{path}` are NaN"
            found.append(explanation_of_codes("buffer-uninitialised", {"told": size}, path))
    return found


def _scaling_words(spec: Any) -> str:
    scaling = getattr(spec, "scaling", None)
    return "none" if scaling is None else scaling_name(scaling)


def _refilled(subject: ModuleSubject, module: torch.nn.Module, path: str) -> str | None:
    """The fault of numbers that were computed again: unscaled, scaled twice or zero; None if none or without spec."""
    if subject.spec is None:
        return None
    with suppress(ClockhandsError):
        for wrong in wrong_tensors(module, subject.spec):
            if wrong.held.path == path and wrong.code in ("buffer-unscaled", "buffer-zero", "buffer-scaled-twice"):
                return wrong.code
    return None


def _repeated(subject: ModuleSubject, failed: Sequence[Outcome]) -> Explanation:
    """The explanation of a module that is called or built several times: whether fewer dimensions rotate each time."""
    outcome = failed[0]
    count = _changed_dimensions(subject.before)
    if outcome.heard is not None and subject.asking.kind == "tokens":
        now = _changed_dimensions(outcome.heard)
        if not now and outcome.treatment.group == "several":
            size = f"when it {outcome.action}, it returns its tokens unchanged"
            return explanation_of_codes("shared-table", {"told": size}, None, _evidence(failed))
        if now < count:
            size = f"{now} of its dimensions rotate, {count} rotated before; {outcome.size}"
            return explanation_of_codes(
                "shared-object-mutated",
                {"what": f"rotates fewer dimensions when it {outcome.action}", "told": size},
                None,
                _evidence(failed) | {"channels before": count, "channels after": now},
            )
    if outcome.treatment.group == "several":
        parameters = {"what": f"computes a different encoding when it {outcome.action}", "told": outcome.size}
        return explanation_of_codes("shared-object-mutated", parameters, None, _evidence(failed))
    return explanation_of_codes(
        "changes-with-each-call", {"what": outcome.action, "told": outcome.size}, None, _evidence(failed)
    )


def _changed_dimensions(heard: ModuleOutput) -> int:
    """The number of dimensions that are changed: tokens are +1 and -1, so other absolute values are rotated."""
    with np.errstate(invalid="ignore"):
        return int((np.abs(np.abs(heard.rows) - 1) > 1e-3).any(axis=0).sum())


def joined(words: Sequence[str]) -> str:
    """What was done, as one phrase: ``is cast to bfloat16, float16 or ...``."""
    some = list(dict.fromkeys(words))
    if len(some) > 1 and all(one.startswith("is cast to ") for one in some):
        some = [some[0], *(one.removeprefix("is cast to ") for one in some[1:])]
    return listed(some, "or")


def by_tensors(subject: ModuleSubject) -> tuple[list[Explanation], torch.nn.Module | None]:
    """The explanations of wrong tensors, and a copy with corrected ones if all right numbers are known, else None."""
    found = wrong_tensors(subject.original, subject.spec)
    if any(one.what != "rates" for one in found):  # the first call may fill a table
        used = subject.copied()
        with suppress(Refused):
            subject.asking.hear(used)
        still = {one.held.path for one in wrong_tensors(used, subject.spec)}
        found = [one for one in found if one.what == "rates" or one.held.path in still]
    if not found:
        return [], None
    mended = subject.copied() if all(one.right is not None for one in found) else None
    if mended is not None:
        for one in found:
            put(mended, one.held.path, _right(one))
    # A table that is computed from wrong frequencies has the same fault, so it is not reported.
    rates = [one for one in found if one.what == "rates"] or found
    return [_explanation_of_tensor(one, subject) for one in rates], mended


def _right(one: Wrong) -> torch.Tensor:
    """The correct numbers of a tensor, as float32 or complex64, of its shape."""
    assert one.right is not None
    complex_numbers = np.iscomplexobj(one.right)
    right = torch.from_numpy(one.right.astype(np.complex64 if complex_numbers else np.float32))
    return right.reshape(one.held.tensor.shape)


def _explanation_of_tensor(one: Wrong, subject: ModuleSubject) -> Explanation:
    """The explanation of a wrong tensor; the sentences of the faults are about frequencies and are adapted."""
    code = one.code if one.code in FAULTS else "buffer-differs"  # a fault of slopes or cosines only
    codes = _unscaled(subject) if code == "buffer-unscaled" else (code,)
    dtype = str(one.held.tensor.dtype).removeprefix("torch.")
    parameters = {"scaling": _scaling_words(subject.spec), **one.parameters}
    explanation = explanation_of_codes(codes, parameters, one.held.path, {"held in": dtype})
    if one.what == "rates":
        return explanation
    message = explanation.message.replace("frequencies", one.what).replace(": nothing is rotated", "")
    return replace(explanation, message=message, hint=explanation.hint if code == one.code else hint_of(one.code))


def _unscaled(subject: ModuleSubject) -> tuple[str, ...]:
    """The codes for a module that lost its scaling, never had it, or either.

    Its attribute ``rope_type`` decides, or a new module that is unscaled too. A new module that is scaled does not
    decide: the config may have been changed after the first was built.
    """
    said = getattr(subject.original, "rope_type", None)
    if isinstance(said, str):
        return ("scaling-inert",) if said == "default" else ("buffer-unscaled",)
    if subject.build is not None or subject.make is not None:
        with suppress(Exception):
            fresh = subject.build(subject.spec) if subject.build is not None else subject.make()  # type: ignore[misc]
            still = any(one.code == "buffer-unscaled" for one in wrong_tensors(fresh, subject.spec))
            if still:
                return ("scaling-inert",)
    return ("buffer-unscaled", "scaling-inert")
