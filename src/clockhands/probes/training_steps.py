"""Measures a model that the lab kept at each kept step of its training: what changes while it learns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from clockhands.errors import InvalidValue
from clockhands.lab.along_training import GROUPS, measure_name
from clockhands.lab.kept_models import KeptModel, kept_model
from clockhands.models.running_models import RunningModel
from clockhands.probes._paired_differences import difference
from clockhands.probes._state_shifts import SHIFTS
from clockhands.probes.mechanism import measure_mechanism
from clockhands.probes.pricing import UNSEEN, kept_faults
from clockhands.probes.results import Curve, GatheredResult, ProbeResult, Progress, Stopped

_OF_A_FAULT = "rise of the loss with a fault"


def measure_steps(model: RunningModel, ids: Tensor, progress: Progress) -> ProbeResult:
    """Measure every kept step of the training of a model on the same sequences.

    Raises:
        InvalidValue: The lab did not keep the model.
        Stopped: An interrupt; it holds the steps until then.
    """
    check_steps(model)
    assert isinstance(model, KeptModel)
    files = sorted(model.path.parent.glob("*.safetensors"))
    by_step: dict[int, dict[tuple[str, str], float]] = {}
    try:
        for number, path in enumerate(files):
            each = kept_model(str(path))
            assert each is not None, "its folder holds kept models alone"
            progress(f"step {each.facts['step']:,}", number / len(files))
            by_step[each.facts["step"]] = dict(_numbers(each, ids))
    except KeyboardInterrupt:
        raise Stopped(_gathered(by_step)) from None
    return _gathered(by_step)


def check_steps(model: RunningModel) -> None:
    """Refuse a model that the lab did not keep."""
    if not isinstance(model, KeptModel):
        raise InvalidValue(
            "The steps of the training of this model are not known: only the lab keeps them.",
            "Train with `clockhands lab run STUDY --keep`, and probe STORE:ARM:SEED.",
        )


def _numbers(model: KeptModel, ids: Tensor) -> Iterator[tuple[tuple[str, str], float]]:
    at: Any = None  # a fault of a kept model needs no place
    sound = model.losses(ids)
    yield ("loss", "of the task"), float(sound.mean())
    for fault in () if model.code.spec is None else kept_faults(model, ids.shape[1]):
        with fault.change(at):
            changed = model.losses(ids)
        rise = difference(changed, sound).mean
        if fault.code is None:
            yield ("rise of the loss", fault.name), rise
        else:
            yield (_OF_A_FAULT, fault.name), rise if np.abs(changed - sound).max() > UNSEEN else 0.0
    found = measure_mechanism(model, ids, lambda _what, _share: None).numbers
    terms = found.get("score_terms") or {}
    for name, share in (terms.get("shares") or {}).items():
        yield ("terms of the scores of layer 0", name.replace("_", "-")), share
    for name, share in _parts_of_the_distance(terms.get("distance_explains")):
        yield ("part of the distance in the position-position term", name), share
    read = found.get("position_r2") or {}
    for run, group in (
        ("own", "position read after layer"),
        ("frozen", "position read with all tokens at position 0, after layer"),
    ):
        for layer, share in read.get(run, {}).items():
            yield (group, layer), share
    for layer, each in found.get("state_shifts", {}).items():
        for matrix, name in (("own", "R_k"), ("best", "the best matrix")):
            if each[matrix] is not None:
                yield (f"position part left by {name} after layer", layer), each[matrix][SHIFTS[0]]
    if "heads" in found:
        yield ("heads at one distance", "at least half of the attention"), float(len(found["heads"]["fixed"]))


def _parts_of_the_distance(explained: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    if explained is not None:
        of_heads = explained["trained"]
        yield "without projections", explained["before"]
        yield "random projections, mean", explained["random"]
        yield "heads of layer 0, mean", sum(of_heads) / len(of_heads)
        yield "heads of layer 0, smallest", min(of_heads)
        yield "heads of layer 0, largest", max(of_heads)


def _gathered(by_step: Mapping[int, Mapping[tuple[str, str], float]]) -> ProbeResult:
    found = GatheredResult()
    # Some faults are of other calls than whole sequences, which begin at position 0, and change nothing at any step.
    measured = [
        key
        for key in dict.fromkeys(key for each in by_step.values() for key in each)
        if key[0] != _OF_A_FAULT or any(each.get(key) for each in by_step.values())
    ]
    found.numbers["steps"] = {
        str(step): {measure_name(*key): each[key] for key in measured if key in each} for step, each in by_step.items()
    }
    for group, (unit, *_) in GROUPS.items():
        names = [name for of, name in measured if of == group]
        if not names:
            continue
        rows = ((step, *(each.get((group, name)) for name in names)) for step, each in by_step.items())
        title = f"{group[0].upper()}{group[1:]}, {unit}, by training step"
        found.table(title, ("step", *names), rows)
        found.figure(title, "training step", unit, *map(_curve_of(by_step, group), names))
    if by_step:
        found.answers.append(f"Measured at {len(by_step)} steps of the training, {min(by_step):,} to {max(by_step):,}.")
    return found.result("steps")


def _curve_of(by_step: Mapping[int, Mapping[tuple[str, str], float]], group: str) -> Callable[[str], Curve]:
    def curve(name: str) -> Curve:
        known = {step: each[group, name] for step, each in by_step.items() if (group, name) in each}
        return Curve(name, tuple(map(float, known)), tuple(known.values()))

    return curve
