"""Tunes the learning rates of a study: one small grid for every arm, on seeds that the study itself does not use.

Where the best rate of an arm is at the end of the grid, the grid is extended (`extension`).
"""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from clockhands.lab.results import Results
from clockhands.lab.study import Study, at_rate, parse

Rates = Mapping[str, Mapping[str, list[float]]]
"""Learning rates by task and arm."""

_FACTOR = 3.0
"""Between two rates of a grid that has one alone."""


class Tuned(NamedTuple):
    """The learning rates that were tried for an arm on a task.

    Attributes:
        task, arm: Which.
        losses: The held-out loss at the training length by learning rate, averaged over the tuning seeds; NaN where
            the training failed.
        best: The rate with the lowest loss; None where all failed.
        current: The rate that the study has now.
        at_end: Whether the best is the smallest or the largest of the grid, so that a wider one may have a better.
    """

    task: str
    arm: str
    losses: Mapping[float, float]
    best: float | None
    current: float
    at_end: bool


def tuning_study(study: Study, only: Rates | None = None) -> Study:
    """The study with every arm at every learning rate of its section ``tuning``, evaluated at the training length.

    Args:
        study: The study.
        only: Other rates, by task and arm; then nothing else is trained.
    """
    words = ["[grid.tuning]" if only or len(study.tasks) > len(study.own_tasks) else "[grid]"]
    for task, rates in (only or {}).items():
        words += [f"[grid.tuning.{json.dumps(task)}]", *(f"{json.dumps(arm)} = {own}" for arm, own in rates.items())]
    return parse("\n".join((study.text, *words, "")), f"{study.name} (tuning)")


def best(study: Study, *results: Results) -> list[Tuned]:
    """The best learning rate of every arm for every task, from the results of all `tuning_study` of a study."""
    found = []
    for key in dict.fromkeys(key._replace(seed=0) for key in study.trial_keys()):
        losses: dict[float, float] = {}
        for each in results:
            for rate in _rates(each.study, key.task, key.arm):
                seeds = each.by_seed(key.task, at_rate(key.arm, rate), "loss")
                complete = set(seeds) == set(study.tuning.seeds)
                losses[rate] = math.fsum(seeds.values()) / len(seeds) if complete else math.nan
        known = {rate: loss for rate, loss in losses.items() if not math.isnan(loss)}
        rate = min(known, key=known.__getitem__) if known else None
        at_end = rate in (min(losses), max(losses))
        found.append(Tuned(key.task, key.arm, losses, rate, study.training_of(key).learning_rate, at_end))
    return found


def _rates(tuned: Study, task: str, arm: str) -> list[float]:
    """The learning rates of an arm in a study of rates."""
    arms = tuned.tasks[task].arms if task in tuned.tasks else ()
    rates = {name: float(tuned.arms[name].learning_rate) for name in arms}
    return [rate for name, rate in rates.items() if name == at_rate(arm, rate)]


def extension(found: Iterable[Tuned]) -> Rates:
    """The next rate of every arm whose best is at the end of its grid, in the steps of the grid there."""
    wider: dict[str, dict[str, list[float]]] = {}
    for each in found:
        if not each.at_end or each.best is None:
            continue
        rates = sorted(each.losses)
        steps = [high / low for low, high in pairwise(rates)] or [_FACTOR]
        up = each.best == rates[-1]
        rate = each.best * steps[-1] if up else each.best / steps[0]
        wider.setdefault(each.task, {})[each.arm] = [float(f"{rate:.2g}")]
    return wider
