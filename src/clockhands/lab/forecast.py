"""What a study costs before it is run: its trials, parameters, memory and time, from a few steps of each arm."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from clockhands.jobs.engines import available_cores, shares
from clockhands.lab._training import timed
from clockhands.lab.running import Options
from clockhands.lab.study import Study


@dataclass(frozen=True)
class ArmCost:
    """What the trials of an arm on a task cost.

    Attributes:
        task, arm: Their names.
        trials: One for each seed.
        parameters: Learned numbers of a model.
        training, evaluation: Seconds of one trial where nothing else runs.
    """

    task: str
    arm: str
    trials: int
    parameters: int
    training: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """Of all its trials, one after another."""
        return self.trials * (self.training + self.evaluation)


@dataclass(frozen=True)
class Forecast:
    """What a study costs.

    Attributes:
        study: The study.
        arms: What each arm costs on each task.
        at_once: Trials at the same time.
        peak: Bytes that this process, which measured one trial after another, took at most; None where that is unknown.
    """

    study: Study
    arms: tuple[ArmCost, ...]
    at_once: int
    peak: int | None

    @property
    def seconds(self) -> float:
        """Of all trials, one after another."""
        return sum(each.seconds for each in self.arms)


def forecast(study: Study, options: Options, tell: Callable[[str], None]) -> Forecast:
    """Measure each arm of a study that was checked; nothing is stored.

    Args:
        study: The study.
        options: How it would be run; threads and device count.
        tell: Takes the name of each arm before it is measured.
    """
    trials: dict[tuple[str, str], int] = {}
    for key in study.trial_keys():
        trials[key.task, key.arm] = trials.get((key.task, key.arm), 0) + 1
    found = []
    for key in study.trial_keys():
        if number := trials.pop((key.task, key.arm), 0):
            tell(f"{key.task}, {key.arm}")
            found.append(ArmCost(key.task, key.arm, number, *timed(study, key, options.threads, options.device)))
    return Forecast(study, tuple(found), _at_once(options), _peak(options.device))


def _at_once(options: Options) -> int:
    return shares(available_cores(), options.at_once, options.threads)[0]


def _peak(device: str) -> int | None:
    if device != "cpu":
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
