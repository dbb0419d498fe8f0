"""The measured results of the lab's studies, read from the files that come with the package: `results/STUDY.json`.

`tools/studies_document.py` writes the files from the lab's stores; nothing here needs the lab, PyTorch or SciPy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.packaged import packaged

AS_TRAINED = "as trained"
"""The name of the evaluation without a change at test time."""

OF_TRAINING = (
    "spike",
    "won_back",
    "steps_to_threshold",
    "gradient_norm",
    "gradient_norm_start",
    "gradient_norm_largest",
)
"""Measures that have no length: they are of the training."""

SEEDS = 8
"""So many seeds and more have a 95 % interval; of fewer the range is shown."""

LEVEL = 0.95
"""The share of cases in which an interval is to hold the median, where there are seeds enough."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the range of the seeds (`range_of`).

    Attributes:
        mean: The mean.
        low, high: The ends of the range; None for a single seed.
        seeds: The number of each seed.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: Mapping[int, float]

    @property
    def least(self) -> float:
        """The low end of the range; the mean where there is a single seed."""
        return self.mean if self.low is None else self.low

    @property
    def most(self) -> float:
        """The high end of the range; the mean where there is a single seed."""
        return self.mean if self.high is None else self.high

    @property
    def verdict(self) -> str:
        """``above`` or ``below`` zero with the whole range, else ``tie``."""
        if self.low is not None and self.low > 0:
            return "above"
        return "below" if self.high is not None and self.high < 0 else "tie"

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON values; a number that is not finite is null. ``coverage`` is that of the range."""
        values = {"mean": self.mean, "low": self.low, "high": self.high}
        return {name: _json(value) for name, value in values.items()} | {
            "coverage": None if self.low is None else coverage(len(self.seeds)),
            "seeds": {str(seed): _json(value) for seed, value in self.seeds.items()},
        }


def _json(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def coverage(seeds: int) -> float:
    """The probability that the range of so many models (`range_of`) holds the median of all such models.

    A model lies above the median with probability 1/2. The range misses the median where at most ``c`` of ``n`` models
    lie above it, or at most ``c`` below: ``1 - 2 sum_(j <= c) binomial(n, j) / 2**n``, with ``c`` models left out at
    each end. It needs no distribution, and no number of seeds below 6 gives 95 %.

    >>> [coverage(seeds) for seeds in (2, 3, 4, 5, 6)]
    [0.5, 0.75, 0.875, 0.9375, 0.96875]
    """
    return _covers(seeds, _left_out(seeds))


def _covers(seeds: int, left_out: int) -> float:
    return 1 - 2 * sum(math.comb(seeds, each) for each in range(left_out + 1)) / 2**seeds


def _left_out(seeds: int) -> int:
    """How many numbers a range leaves out at each end: as many as it can, and none where it does not cover `LEVEL`."""
    return max((each for each in range(1, (seeds - 1) // 2 + 1) if _covers(seeds, each) >= LEVEL), default=0)


def range_of(numbers: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest number; of 9 and more as many are left out as leave a `coverage` of 95 %.

    >>> range_of([1.0, 2.0, 6.0]), range_of(range(9))
    ((1.0, 6.0), (1, 7))
    """
    left_out = _left_out(len(numbers))
    ordered = sorted(numbers)
    return ordered[left_out], ordered[-1 - left_out]


@dataclass(frozen=True)
class MeasuredStudy:
    """The stored results of one study.

    Attributes:
        name: The study's name.
        data: What its file holds.
    """

    name: str
    data: Mapping[str, Any]

    @property
    def command(self) -> str:
        """The command that repeats the measurement."""
        return f"clockhands lab run {self.name}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds that some task used."""
        return tuple(sorted({seed for task in self.data["tasks"].values() for seed in task["seeds"]}))

    @property
    def settings(self) -> tuple[str, ...]:
        """The sizes and trained lengths of its models, in words; each cell of a grid that was run has its own."""
        return tuple(dict.fromkeys(map(_setting, self.data["tasks"].values())))

    @property
    def tests(self) -> int:
        """How many chances are corrected together: those of its gates, each in every cell of the grid."""
        judged = [own for gate in self.data["gates"] for own in gate.get("cells", {"": gate}).values()]
        return sum(each["chance"] is not None for each in judged)

    def to_dict(self) -> dict[str, Any]:
        """Where the numbers come from, as JSON values."""
        run = self.data["run"]
        return {
            "study": self.name,
            "command": self.command,
            "commit": run["commit"],
            "created": run["created"],
            "seconds": run["wall_seconds"],
            "changed": self.data.get("changed", ""),
            "seeds": list(self.seeds),
            "settings": list(self.settings),
            "tests": self.tests,
        }

    def value(
        self,
        task: str,
        arm: str,
        measure: str = "loss",
        *,
        length: int = 0,
        variant: str = AS_TRAINED,
        protocol: str = "whole",
    ) -> Estimate:
        """A measure over all seeds. Length 0 is the training length.

        ``loss_ratio`` is not stored: it is the loss over the same model's loss at the training length, seed by seed.

        Raises:
            InvalidValue: It was not measured.
        """
        where = {"variant": variant, "protocol": protocol}
        if measure == "loss_ratio":
            own, trained = (self.value(task, arm, length=each, **where).seeds for each in (length, 0))
            return estimated({seed: own[seed] / trained[seed] for seed in own})
        path = ("training", arm, measure)
        if measure not in OF_TRAINING:
            path = ("cells", arm, variant, protocol, measure, str(length or self._task(task)["length"]))
        found: Any = self._task(task)
        for step in path:
            if step not in found:
                raise InvalidValue(
                    f"The stored study {self.name!r} has no {measure} for the arm {arm} in the task {task}: "
                    f"{step!r} is missing in {' / '.join(path)}.",
                    f"In place of {step!r}, there is: {', '.join(map(str, found))}.",
                )
            found = found[step]
        return estimate_of(found, self._task(task)["seeds"])

    def difference(
        self,
        task: str,
        arm: str,
        minus: str,
        measure: str = "loss",
        *,
        length: int = 0,
        variant: str = AS_TRAINED,
        minus_variant: str = AS_TRAINED,
        protocol: str = "whole",
    ) -> Estimate:
        """A measure of one arm minus that of another, seed by seed.

        Raises:
            InvalidValue: One of them was not measured, or they share no seed.
        """
        own = self.value(task, arm, measure, length=length, variant=variant, protocol=protocol).seeds
        other = self.value(task, minus, measure, length=length, variant=minus_variant, protocol=protocol).seeds
        pairs = {seed: own[seed] - other[seed] for seed in own if seed in other}
        if not pairs:
            raise InvalidValue(
                f"The arms {arm} and {minus} have no seed in common in the study {self.name!r}.", "Compare other arms."
            )
        return estimated(pairs)

    def places(self, task: str, arm: str) -> dict[str, Estimate]:
        """The task's measure by position, depth or distance, as trained, at the longest length.

        Raises:
            InvalidValue: It was not stored.
        """
        data = self._task(task)
        if arm not in data["places"].get("arms", {}):
            raise InvalidValue(
                f"The stored study {self.name!r} has no results by position, depth or distance for the arm {arm} in "
                f"the task {task}.",
                "Choose another arm or task.",
            )
        rows = data["places"]["arms"][arm]
        return {
            place: estimate_of(row, data["seeds"]) for place, row in zip(data["places"]["names"], rows, strict=True)
        }

    def _task(self, task: str) -> Mapping[str, Any]:
        if task not in self.data["tasks"]:
            raise InvalidValue(
                f"The stored study {self.name!r} has no task {task!r}.",
                f"Its tasks are: {', '.join(self.data['tasks'])}.",
            )
        return self.data["tasks"][task]


def _setting(task: Mapping[str, Any]) -> str:
    model = task["model"]
    own = f"{model['layers']} layers of width {model['width']}"
    size = f"the weights of {model['start']}" if model["start"] else own
    return f"{size} trained at {task['length']} tokens"


def estimate_of(row: list[Any], seeds: list[int]) -> Estimate:
    """An estimate as it is stored: mean, low, high, then the number of each seed, null where there is none.

    >>> estimate_of([2.0, 1.0, 3.0, 1.0, None, 3.0], [0, 1, 2])
    Estimate(mean=2.0, low=1.0, high=3.0, seeds={0: 1.0, 2: 3.0})
    """
    mean, low, high, *numbers = (None if each is None else float(each) for each in row)
    assert mean is not None, "an estimate has a mean"
    of_seeds = {seed: each for seed, each in zip(seeds, numbers, strict=True) if each is not None}
    return Estimate(mean, low, high, of_seeds)


def estimated(seeds: Mapping[int, float]) -> Estimate:
    """The mean over seeds, and the range of the seeds.

    >>> estimated({0: 1.0, 1: 2.0, 2: 6.0})
    Estimate(mean=3.0, low=1.0, high=6.0, seeds={0: 1.0, 1: 2.0, 2: 6.0})
    >>> estimated({0: 2.0}).low is None
    True
    """
    numbers = tuple(seeds.values())
    if not all(map(math.isfinite, numbers)):
        return Estimate(float(np.mean(numbers)), None, None, dict(seeds))
    low, high = range_of(numbers) if len(numbers) > 1 else (None, None)
    return Estimate(math.fsum(numbers) / len(numbers), low, high, dict(seeds))


def stored() -> list[str]:
    """The names of the studies whose results come with the package."""
    return list(_studies())


@cache
def _studies() -> Mapping[str, MeasuredStudy]:
    names = sorted(path.stem for path in Path(__file__).with_name("results").glob("*.json"))
    return MappingProxyType({name: MeasuredStudy(name, packaged(__file__, f"results/{name}.json")) for name in names})


def real_model(name: str) -> Mapping[str, Any]:
    """What `tools/real_models.py` measured on a packaged model or on one that the lab trained.

    >>> real_model("minilm")["command"]
    'tools/real_models.py minilm'
    """
    return packaged(__file__, "real_models.json")[name]


def measured(name: str) -> MeasuredStudy:
    """The stored results of a study.

    Raises:
        InvalidValue: No results of that name come with the package.
    """
    if name not in _studies():
        raise InvalidValue(
            f"The package has no results of the study {name!r}.",
            f"It has results of {', '.join(_studies()) or 'no study'}. For others, run `clockhands lab run {name}`, "
            f"then tools/studies_document.py with the results file.",
        )
    return _studies()[name]


def of_results(*, figure: str = "mean", reaching: float | None = None, **where: Any) -> float:
    """A number of the stored results, as the file of a claim refers to it.

    Args:
        figure: ``"mean"``, ``"least"`` or ``"most"`` of the estimate; of the results of all models the ``"smallest"``,
            the ``"largest"``, or the one ``"farthest"`` from 0.
        reaching: Instead of a figure: how many models have a result of at least this.
        where: ``study`` and the arguments of `MeasuredStudy.value`; with ``minus``, those of
            `MeasuredStudy.difference`, where ``"itself"`` is the same arm; with ``place``, those of
            `MeasuredStudy.places`. Several arms, or tasks such as cells of a grid, are a list; the task ``"*"`` is all
            that were run. ``times`` in place of ``length`` counts in trained lengths. Or ``model``, the name of a
            `real_model`, and ``at``, the keys that lead to a number, or to a list of the numbers of several models.

    >>> of_results(study="quick", task="copy", arm="sinusoidal", measure="accuracy", reaching=0.9)
    3
    """
    if "model" in where:
        found: Any = real_model(where["model"])
        for key in where["at"]:
            found = found[key]
        if not isinstance(found, list):
            return found
        of_arms = [estimated(dict(enumerate(found)))]
    else:
        of_arms = _of_study(**where)
    numbers = [number for each in of_arms for number in each.seeds.values()]
    if reaching is not None:
        return sum(number >= reaching for number in numbers)
    if figure in ("smallest", "largest", "farthest"):
        return {"smallest": min(numbers), "largest": max(numbers), "farthest": max(map(abs, numbers))}[figure]
    (estimate,) = of_arms
    return getattr(estimate, figure)


def _of_study(
    study: str,
    task: str | list[str],
    arm: str | list[str],
    *,
    minus: str = "",
    place: str = "",
    times: int = 0,
    **more: Any,
) -> list[Estimate]:
    """The estimate of each arm in each task, or of its difference from another."""
    own, arms = measured(study), [arm] if isinstance(arm, str) else arm
    tasks = list(own.data["tasks"]) if task == "*" else [task] if isinstance(task, str) else task
    found = []
    for name, each in product(tasks, arms):
        where = more | ({"length": times * own.data["tasks"][name]["length"]} if times else {})
        if place:
            found.append(own.places(name, each)[place])
        elif minus:
            found.append(own.difference(name, each, each if minus == "itself" else minus, **where))
        else:
            found.append(own.value(name, each, **where))
    return found
