"""Writes sentences on the effect of removing a position encoding during training, from a study's numbers."""

import math
from collections.abc import Callable, Sequence

from clockhands.lab.arms import NONE
from clockhands.lab.result_words import (
    Line,
    at_length,
    in_full,
    lengths_of,
    measure_of,
    under,
    value_of,
)
from clockhands.lab.results import Results
from clockhands.lab.sections import Arm
from clockhands.lab.store import Key
from clockhands.measures.claims import Estimate
from clockhands.phrases import listed

_SCALINGS = 3  # the most comparisons in sentences; the tables have all
_RISE = 0.01  # nats per token; a smaller rise at a drop is not called a rise

Reference = tuple[str, dict[str, Line]]
"""What dropped arms are compared with, in words, and the line that each of them is compared with."""


def drop_step(results: Results, task: str, arm: str) -> int | None:
    """The step at which the encoding of an arm is removed; None if it is kept."""
    drop = results.study.arms[arm].drop
    return None if drop is None else results.study.training_of(Key(task, arm, 0)).in_steps(drop.at)


def dropped_arms(results: Results, task: str) -> list[str]:
    """The arms of a task whose encoding is removed, as far as that was measured."""
    arms = results.study.tasks[task].arms
    dropped = [arm for arm in arms if results.study.arms[arm].drop is not None]
    return [arm for arm in dropped if results.value(task, arm, "spike") is not None]


def from_checkpoint(results: Results, task: str, arm: str) -> bool:
    """Whether an arm starts from a checkpoint, which was trained on another text."""
    return bool(results.study.model_of(Key(task, arm, 0)).start)


def is_one_number(results: Results, task: str, arm: str) -> bool:
    """Whether the rise at a drop is measured on one checkpoint before training, and so is equal for all seeds."""
    value = results.value(task, arm, "spike")
    at_start = from_checkpoint(results, task, arm) and drop_step(results, task, arm) == 0
    return value is not None and at_start and len(set(value.seeds.values())) == 1


def rise_of(results: Results, task: str, arm: str) -> str:
    """The rise at a drop with its interval, or as one number."""
    value = results.value(task, arm, "spike")
    if value is not None and is_one_number(results, task, arm):
        return f"{value_of(value.mean)} (the same for every seed)"
    return in_full(value)


def recovered(results: Results, task: str, arm: str) -> Estimate | None:
    """The share of the rise that is recovered, if meaningful: not if the text changed as well."""
    value = None if from_checkpoint(results, task, arm) else results.value(task, arm, "won_back")
    return value if value is not None and math.isfinite(value.mean) else None


_OTHER_TEXT = "The recovered share is not given for an arm that starts from a checkpoint: it learns a new text as well."


def of_drop(results: Results, task: str, arm: str) -> str:
    """The effect of removing the encoding of one arm on the loss, and the recovery; empty without a drop."""
    spike = results.value(task, arm, "spike")
    if spike is None:
        return ""
    at, steps = drop_step(results, task, arm) or 0, results.study.training_of(Key(task, arm, 0)).steps
    removed, rise = f"{arm}: removing the position encoding at step {at:,}", rise_of(results, task, arm)
    if not _is_rise(spike):
        return f"{removed} does not clearly raise the held-out loss: it changes by {rise} nats per token."
    said = f"{removed} raises the held-out loss by {rise} nats per token."
    if from_checkpoint(results, task, arm):
        return f"{said} {_OTHER_TEXT}"
    back = recovered(results, task, arm)
    if back is None:
        return said
    end = "; the loss is higher than after the drop" if back.mean < 0 else ""
    return f"{said} Recovered by the end of training (step {steps:,}): {in_full(back)} of that rise{end}."


def _is_rise(spike: Estimate) -> bool:
    """Whether the loss clearly rises: without a rise there is nothing to recover."""
    return spike.mean >= _RISE and (spike.low is None or spike.low > 0)


def drop_answers(results: Results, task: str) -> list[str]:
    """The main results of a study of drops: the rise, the recovery, and dropped arms compared with others."""
    arms = dropped_arms(results, task)
    if not arms:
        return []
    said = [of_drop(results, task, arms[0]) if len(arms) == 1 else _rises(results, task, arms)]
    lengths, trained = lengths_of(results, task), results.study.tasks[task].training.length
    for length in dict.fromkeys((trained, lengths[-1])):
        references = references_of(results, task, arms, scaled=length != trained)
        said += [sentence for each in references if (sentence := _against(results, task, each, length))]
    return said


def _rises(results: Results, task: str, arms: Sequence[str]) -> str:
    spikes = {arm: value for arm in arms if (value := results.value(task, arm, "spike")) is not None}
    least = min(each.mean for each in spikes.values())
    verb = "raises" if least >= _RISE else "changes"
    same = ", the same for every seed" if all(is_one_number(results, task, arm) for arm in arms) else ""
    said = f"Removing the position encoding {verb} the held-out loss by {_range(spikes)} nats per token{same}."
    backs = {
        arm: value
        for arm, spike in spikes.items()
        if _is_rise(spike) and (value := recovered(results, task, arm)) is not None
    }
    if backs:
        said += f" Recovered by the end of training: {_range(backs)} of that rise."
    return f"{said} {_OTHER_TEXT}" if any(from_checkpoint(results, task, arm) for arm in arms) else said


def _range(values: dict[str, Estimate], of: Callable[[float], float] = float) -> str:
    """The smallest and the largest of some means with their arms.

    >>> _range({"a": Estimate(0.5, None, None, {}), "b": Estimate(0.25, None, None, {})})
    '0.250 (b) to 0.500 (a)'
    """
    order = sorted(values, key=lambda arm: of(values[arm].mean))
    first, last = (value_of(of(values[arm].mean)) for arm in (order[0], order[-1]))
    if len(order) > 1 and first == last:
        return first
    return f"{first} ({order[0]})" + (f" to {last} ({order[-1]})" if len(order) > 1 else "")


def references_of(results: Results, task: str, arms: Sequence[str], *, scaled: bool) -> list[Reference]:
    """The arms to compare dropped arms with: the same one with its encoding, with a scaling, one without encoding.

    Args:
        results: The study.
        task: The task.
        arms: Its dropped arms.
        scaled: Whether to compare with scalings at test time too, which change nothing at the trained length.
    """
    study = results.study
    others = [arm for arm in study.tasks[task].arms if study.arms[arm].drop is None]
    kept: dict[str, Line] = {}
    without: dict[str, Line] = {}
    by_scaling: dict[str, dict[str, Line]] = {}
    for arm in arms:
        own, steps = study.arms[arm], study.training_of(Key(task, arm, 0)).steps
        # Of several, the one that was trained for the same number of steps.
        nearest = sorted(others, key=lambda other: study.training_of(Key(task, other, 0)).steps != steps)
        for other in nearest:
            that = study.arms[other]
            if _surroundings(that) != _surroundings(own):
                continue
            if _encoding(that) == _encoding(own):
                kept.setdefault(arm, Line(other))
            elif that.code == NONE:
                without.setdefault(arm, Line(other))
        for name, change in study.arms[kept[arm].arm].at_test.items() if scaled and arm in kept else ():
            if change.scaling is not None:
                by_scaling.setdefault(name, {})[arm] = Line(kept[arm].arm, name)
    found = [("the same model with its encoding kept ({})", kept)]
    scalings = "the same model with its encoding kept and scaled at test time ({})"
    found += [(scalings, lines) for lines in list(by_scaling.values())[:_SCALINGS]]
    found += [("the same model without an encoding from the start ({})", without)]
    return [
        (words.format(_either(lines) + _other_steps(results, task, lines)), lines) for words, lines in found if lines
    ]


def _surroundings(arm: Arm) -> tuple[object, ...]:
    """What stays when the encoding is dropped."""
    return arm.model, arm.window, arm.chunk, arm.scores


def _encoding(arm: Arm) -> tuple[object, ...]:
    return arm.code, arm.channels, arm.times, arm.slopes, arm.frequencies, arm.fault, arm.positions


def _other_steps(results: Results, task: str, lines: dict[str, Line]) -> str:
    """Where an arm is compared with one that was trained for another number of steps: both numbers."""

    def steps(arm: str) -> int:
        return results.study.training_of(Key(task, arm, 0)).steps

    told = [
        f"{arm} trained for {steps(arm):,} steps, {line.arm} for {steps(line.arm):,}"
        for arm, line in lines.items()
        if steps(arm) != steps(line.arm)
    ]
    return "".join(f"; {each}" for each in told)


def _either(lines: dict[str, Line]) -> str:
    names = list(dict.fromkeys(map(str, lines.values())))
    return listed(names).replace(" and ", " or ")


def compared(results: Results, task: str, reference: Reference, length: int) -> dict[str, Estimate]:
    """The difference of each dropped arm and its reference, paired by seed, under the first protocol."""
    protocol, measure = results.study.tasks[task].evaluation.protocols[0], measure_of(results, task)
    found = {
        arm: results.difference(
            task, arm, line.arm, measure, minus_variant=line.variant, length=length, protocol=protocol
        )
        for arm, line in reference[1].items()
    }
    return {arm: value for arm, value in found.items() if value is not None and math.isfinite(value.mean)}


def _against(results: Results, task: str, reference: Reference, length: int) -> str:
    found = compared(results, task, reference, length)
    if not found:
        return ""
    protocol = results.study.tasks[task].evaluation.protocols[0]
    what, where = measure_of(results, task), at_length(results, task, length) + under(results, task, protocol)
    groups: dict[str, dict[str, Estimate]] = {"higher": {}, "lower": {}, "equal": {}, "": {}}
    for arm, value in found.items():
        side = value.verdict if value.low is not None else "above" if value.mean > 0 else "below"
        equal = not any(value.seeds.values())
        groups["equal" if equal else {"above": "higher", "below": "lower"}.get(side, "")][arm] = value
    if len(found) == 1:
        ((arm, value),) = found.items()
        side = next(name for name, group in groups.items() if group)
        if side == "equal":
            return f"{where}, the {what} of {arm} is equal to that of {reference[0]}."
        if side:
            return f"{where}, the {what} of {arm} is {side} than that of {reference[0]} by {in_full(_absolute(value))}."
        return (
            f"{where}, the {what} of {arm} is not distinguishable from that of {reference[0]}: the difference is "
            f"{in_full(value)}."
        )
    parts = []
    for side, group in groups.items():
        if group:
            every = "both dropped arms" if len(found) == 2 else f"all {len(found)} dropped arms"
            every = every if len(group) == len(found) else f"{len(group)} of {len(found)}"
            some = f" ({listed(group)})" if len(group) < len(found) else ""
            by = f", by {_range(group, abs)}" if side in ("higher", "lower") else some
            parts.append(f"{side or 'not distinguishable'} for {every}{by}")
    return f"{where}, against {reference[0]}, the {what} is {'; '.join(parts)}."


def _absolute(value: Estimate) -> Estimate:
    """The absolute value of a difference."""
    if value.mean >= 0:
        return value
    low, high = (None if end is None else -end for end in (value.high, value.low))
    return Estimate(-value.mean, low, high, {seed: -number for seed, number in value.seeds.items()})
