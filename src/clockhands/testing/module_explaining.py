"""What a module's failures look like in words: which treatment, which of its tensors, the first wrong position.

A tensor is to blame where putting back what it held makes the answer right again; nothing is guessed from its name.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clockhands.errors import ClockhandsError
from clockhands.faults import FAULTS
from clockhands.testing.calling import Refused
from clockhands.testing.experiments import shares
from clockhands.testing.module_asking import Heard
from clockhands.testing.module_bounds import allowed
from clockhands.testing.module_tensors import Changed, changed, held, put, spoiled
from clockhands.testing.module_treatments import Subject, Treated, Treatment
from clockhands.testing.reports import Explanation, Failure


@dataclass(frozen=True)
class Outcome:
    """A treatment that failed.

    Attributes:
        treatment: Which.
        failure: What is told of it.
        treated: The module after it, or None where the treatment itself fails.
        heard: What it answered, or None where it refused.
    """

    treatment: Treatment
    failure: Failure
    treated: Treated | None
    heard: Heard | None

    @property
    def what(self) -> str:
        """What was done, in words."""
        return self.treatment.name if self.treated is None else self.treated.what

    @property
    def size(self) -> str:
        """Where it is first wrong, and by how much."""
        if self.treated is None or self.heard is None:
            return self.failure.message.removesuffix(".")
        evidence = self.failure.evidence
        if "first wrong position" not in evidence:
            return self.failure.message.removesuffix(".")
        most = evidence.get("largest error")
        off = "by what is no number" if most is None else f"by up to {most:.2g}"
        return f"the first wrong position is {evidence['first wrong position']:,}, numbers are off {off}"


def explained(subject: Subject, outcomes: Sequence[Outcome], function_sound: bool, fastest: float) -> list[Explanation]:
    """What the failures look like, one explanation for all that have one cause.

    Args:
        subject: The module.
        outcomes: What failed.
        function_sound: Whether the module is what it should be, before any treatment.
        fastest: The largest rate, as for `allowed`.
    """
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.treatment.group, []).append(outcome)
    found: list[Explanation] = []
    for group, failed in groups.items():
        if group in ("cast", "default dtype"):
            coarse = {one.failure.evidence.get("dtype") for one in groups.get("coarse", ())}
            found += _casts(subject, failed, bool(coarse), fastest)
        elif group == "coarse":
            if function_sound:  # else the function's own explanation tells more
                found.append(_told("coarse-path-differs", failed, {"dtype": "bfloat16"}))
        elif group == "empty":
            found += _emptied(subject, failed)
        elif group in ("again", "several"):
            found.append(_repeated(subject, failed))
        elif group == "longer":
            found.append(_told("remembers-longest", failed, {}))
        elif group == "after coarse":
            found.append(_told("cache-keeps-first-dtype", failed, {"dtype": "bfloat16"}))
        else:
            found.append(_told(_CODES[group], failed, {"what": failed[0].what, "told": failed[0].size}))
    return list(_once(found))


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


def _once(found: Iterable[Explanation]) -> Iterable[Explanation]:
    seen = set()
    for one in found:
        if (one.codes, one.where) not in seen:
            seen.add((one.codes, one.where))
            yield one


def told(
    code: str | tuple[str, ...],
    parameters: Mapping[str, Any],
    where: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Explanation:
    """An explanation by a row of the faults, the first of its codes."""
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


def _told(code: str, failed: Sequence[Outcome], parameters: Mapping[str, Any]) -> Explanation:
    return told(code, parameters, None, _evidence(failed))


def _evidence(failed: Sequence[Outcome]) -> dict[str, Any]:
    first = failed[0].failure.evidence
    kept = {name: first[name] for name in ("first wrong position", "largest error") if name in first}
    return kept | {"treatments": [one.treatment.name for one in failed]}


def sound(subject: Subject, module: torch.nn.Module, treated: Treated, fastest: float) -> bool:
    """Whether a module answers as it has to after a treatment."""
    wanted = treated.wanted or subject.before
    try:
        heard = subject.asking.hear(module, dtype=treated.dtype, around=treated.around, positions=wanted_at(treated))
    except Refused:
        return False
    return right(subject, heard, wanted, treated.another, fastest)


def wanted_at(treated: Treated) -> np.ndarray | None:
    """The positions that a treated module is asked for, if not the usual ones."""
    return None if treated.wanted is None or treated.heard is None else treated.wanted.positions


def right(subject: Subject, heard: Heard, wanted: Heard, another: bool, fastest: float) -> bool:
    """Whether an answer is another, to rounding."""
    if heard.rows.shape != wanted.rows.shape:
        return False
    room = allowed(subject.asking, wanted, heard.dtype, another, fastest)
    return bool((shares(heard.rows, wanted.rows, room) <= 1).all())


def _blamed(subject: Subject, outcome: Outcome, fastest: float) -> list[Changed]:
    """The tensors that a treatment changed and that, put back, make its answer right."""
    treated = outcome.treated
    assert treated is not None
    candidates = [one for one in changed(subject.original, treated.module) if one.kind != "parameter"]
    original = held(subject.original)
    for some in [[one] for one in candidates] + ([candidates] if len(candidates) > 1 else []):
        try:
            mended = copy.deepcopy(treated.module)
        except Exception:  # noqa: BLE001 - what cannot be copied is not tried
            return []
        for one in some:
            tensor = original[one.path].tensor.detach().clone()
            if treated.dtype == "float64" and tensor.is_floating_point():
                tensor = tensor.double()
            put(mended, one.path, tensor)
        if sound(subject, mended, treated, fastest):
            return some
    return []


def _casts(subject: Subject, failed: Sequence[Outcome], coarse: bool, fastest: float) -> list[Explanation]:
    by_tensor: dict[str, tuple[list[Outcome], Changed]] = {}
    rest: list[Outcome] = []
    for outcome in failed:
        blamed = _blamed(subject, outcome, fastest) if outcome.treated is not None else []
        for one in blamed:
            by_tensor.setdefault(one.path, ([], one))[0].append(outcome)
        if not blamed:
            rest.append(outcome)
    found = []
    for path, (outcomes, one) in by_tensor.items():
        what = joined([outcome.what for outcome in outcomes])
        size = one.told
        evidence = _evidence(outcomes) | {"dtype before": one.before, "dtype after": one.after}
        if one.ids:
            parameters = {"path": path, "what": "a cast", "told": f"{size}; {outcomes[0].size}"}
            found.append(told("ids-of-floats", parameters, path, evidence))
        elif all(outcome.treatment.group == "default dtype" for outcome in outcomes):
            parameters = {"dtype": one.after, "told": f"when it {what}, {size}; {outcomes[0].size}"}
            found.append(told("buffer-rounded", parameters, path, evidence))
        else:
            parameters = {"what": what, "told": f"the cast rounds {size}; {outcomes[0].size}"}
            found.append(told("cast-changes-numbers", parameters, path, evidence))
    if rest and not coarse:
        parameters = {"what": joined([outcome.what for outcome in rest]), "told": rest[0].size}
        codes: tuple[str, ...] = ("cast-changes-numbers",)
        if all(outcome.treatment.group == "default dtype" for outcome in rest):
            codes = ("buffer-rounded",)
            parameters = {"dtype": "bfloat16", "told": f"when it {rest[0].what}, {rest[0].size}"}
        found.append(told(codes, parameters, None, _evidence(rest)))
    return found


def _emptied(subject: Subject, failed: Sequence[Outcome]) -> list[Explanation]:
    """The tensors that nobody filled after `to_empty`, or filled with other numbers."""
    paths: dict[str, tuple[list[Outcome], str, str]] = {}
    rest: list[Outcome] = []
    for outcome in failed:
        if outcome.treated is None:
            rest.append(outcome)
            continue
        module, blamed = outcome.treated.module, False
        for path, one in held(module).items():
            kind = "buffer" if one.kind == "buffer" else one.kind
            if one.tensor.is_meta:
                why, code = f"its {kind} `{path}` is still on the meta device, without numbers", "lost-by-to-empty"
            elif spoiled(one.tensor):
                why = f"its {kind} `{path}` is not filled by anybody, so it holds whatever the memory held"
                code = "lost-by-to-empty"
            else:
                continue
            paths.setdefault(path, ([], why, code))[0].append(outcome)
            blamed = True
        if not blamed:
            for one in changed(subject.original, module):
                if one.kind == "parameter" or not one.wrong:
                    continue
                why, code = f"{one.told.removesuffix(')')}: what fills it anew is not what made it)", "lost-by-to-empty"
                paths.setdefault(one.path, ([], why, _refilled(subject, module, one.path) or code))[0].append(outcome)
                blamed = True
        if not blamed:
            rest.append(outcome)
    found = []
    for path, (outcomes, why, code) in paths.items():
        what = joined([outcome.what for outcome in outcomes])
        codes = ("lost-by-to-empty",) if code == "lost-by-to-empty" else (code, "lost-by-to-empty")
        if len(codes) > 1:
            scaling = _scaling_words(subject.spec)
            parameters = {"told": f"when it {what}, {why}", "scaling": scaling, "dtype": "", "base": 0, "declared": 0}
        else:
            parameters = {"what": what, "told": why}
        found.append(told(codes, parameters, path, _evidence(outcomes)))
    if rest and not found:
        parameters = {"what": joined([outcome.what for outcome in rest]), "told": rest[0].size}
        found.append(told("lost-by-to-empty", parameters, None, _evidence(rest)))
    return found


def _scaling_words(spec: Any) -> str:
    from clockhands.faults.rotary_specs import named

    scaling = getattr(spec, "scaling", None)
    return "none" if scaling is None else named(scaling)


def _refilled(subject: Subject, module: torch.nn.Module, path: str) -> str | None:
    """What numbers that were computed anew are, where the code is known: those without the scaling, or zeros."""
    if subject.spec is None:
        return None
    from clockhands.testing.module_ladders import wrong_tensors

    with suppress(ClockhandsError):
        for wrong in wrong_tensors(module, subject.spec):
            if wrong.held.path == path and wrong.code in ("buffer-unscaled", "buffer-zero", "buffer-scaled-twice"):
                return wrong.code
    return None


def _repeated(subject: Subject, failed: Sequence[Outcome]) -> Explanation:
    """One that is asked, or built, several times: whether fewer channels turn each time."""
    outcome = failed[0]
    count = _turning(subject.before)
    if outcome.heard is not None and subject.asking.kind == "tokens":
        now = _turning(outcome.heard)
        if now < count:
            size = f"{now} of its channels turn, where {count} turned before; {outcome.size}"
            return told(
                "shared-object-mutated",
                {"what": f"turns fewer channels when it {outcome.what}", "told": size},
                None,
                _evidence(failed) | {"channels before": count, "channels after": now},
            )
    if outcome.treatment.group == "several":
        parameters = {"what": f"is another code when it {outcome.what}", "told": outcome.size}
        return told("shared-object-mutated", parameters, None, _evidence(failed))
    return told("changes-with-each-call", {"what": outcome.what, "told": outcome.size}, None, _evidence(failed))


def _turning(heard: Heard) -> int:
    """How many channels depend on the position: tokens are +1 and -1, and channels left alone come through."""
    with np.errstate(invalid="ignore"):
        return int((np.abs(np.abs(heard.rows) - 1) > 1e-3).any(axis=0).sum())


def joined(words: Sequence[str]) -> str:
    """What was done, told once: ``is cast to bfloat16, float16, or ...``."""
    some = list(dict.fromkeys(words))
    if len(some) > 1 and all(one.startswith("is cast to ") for one in some):
        some = [some[0], *(one.removeprefix("is cast to ") for one in some[1:])]
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} or {some[-1]}"


Checked = Callable[[torch.nn.Module], bool]


def by_tensors(subject: Subject, passes: Checked) -> tuple[list[Explanation], bool]:
    """What the module holds that is not what the code says, and whether that is all that is wrong with it.

    Args:
        subject: A module that is not its code.
        passes: Whether another module is the code.
    """
    from clockhands.testing.module_ladders import wrong_tensors

    found = wrong_tensors(subject.original, subject.spec)
    rates = [one for one in found if one.right is not None] or found
    if not rates:
        return [], False
    mended, whole = subject.copied(), False
    if all(one.right is not None for one in rates):
        for one in rates:
            assert one.right is not None
            right = torch.from_numpy(one.right.astype(np.float32)).reshape(one.held.tensor.shape)
            put(mended, one.held.path, right)
        whole = passes(mended)
    explanations = []
    for one in rates:
        codes: tuple[str, ...] = (one.code,)
        if one.code == "buffer-unscaled":
            codes = _unscaled(subject)
        dtype = str(one.held.tensor.dtype).removeprefix("torch.")
        explanations.append(
            told(codes, {"scaling": _scaling_words(subject.spec), **one.parameters}, one.held.path, {"held in": dtype})
        )
    return explanations, whole


def _unscaled(subject: Subject) -> tuple[str, ...]:
    """Whether the module lost its scaling, or never had it."""
    said = getattr(subject.original, "rope_type", None)
    if isinstance(said, str):
        return ("scaling-inert",) if said == "default" else ("buffer-unscaled",)
    if subject.build is not None or subject.make is not None:
        from clockhands.testing.module_ladders import wrong_tensors

        with suppress(Exception):
            fresh = subject.build(subject.spec) if subject.build is not None else subject.make()  # type: ignore[misc]
            still = any(one.code == "buffer-unscaled" for one in wrong_tensors(fresh, subject.spec))
            return ("scaling-inert",) if still else ("buffer-unscaled",)
    return ("buffer-unscaled", "scaling-inert")
