"""Tunes the learning rates of a study: one small grid for every arm, on seeds that the study itself does not use."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from clockhands.lab.results import Results
from clockhands.lab.study import Study, at_rate, parse


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


def tuning_study(study: Study) -> Study:
    """The study with every arm at every learning rate of its section ``tuning``, evaluated at the training length."""
    return parse(f"{study.text}\n[grid]\n", f"{study.name} (tuning)")


def best(study: Study, results: Results) -> list[Tuned]:
    """The best learning rate of every arm for every task, from the results of `tuning_study`."""
    found = []
    for key in dict.fromkeys(key._replace(seed=0) for key in study.trial_keys()):
        losses: dict[float, Any] = {}
        for rate in study.tuning.learning_rates:
            seeds = results.by_seed(key.task, at_rate(key.arm, rate), "loss")
            complete = set(seeds) == set(study.tuning.seeds)
            losses[rate] = math.fsum(seeds.values()) / len(seeds) if complete else math.nan
        known = {rate: loss for rate, loss in losses.items() if not math.isnan(loss)}
        rate = min(known, key=known.__getitem__) if known else None
        at_end = rate in (min(losses), max(losses))
        found.append(Tuned(key.task, key.arm, losses, rate, study.training_of(key).learning_rate, at_end))
    return found
