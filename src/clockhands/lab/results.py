"""Evaluates the stored results of a study: means and intervals, paired differences, and the verdict of every gate.

A number is measured once for each seed. Beside the mean of `SEEDS` and more stands its 95 % interval by Student's t;
beside that of fewer the range of the seeds, which with 3 of them holds the median of such models in 75 % of cases
(`clockhands.claims.coverage`): it says whether all seeds agree, not more. A difference of two arms is taken seed by
seed. What may be chance is tested by Student's t, corrected for the number of tests of the study (Holm).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from clockhands.encodings.specs import WRITTEN, describe
from clockhands.errors import ClockhandsError
from clockhands.lab import study as studies
from clockhands.lab.along_training import in_order
from clockhands.lab.arms import sizes_of, spec_of
from clockhands.lab.store import KEPT_MODEL, Key, Store, StoredRow, StoredStudy, Trial
from clockhands.lab.study import AS_TRAINED, Gate, Study
from clockhands.measures.claims.studies import LEVEL, OF_TRAINING, SEEDS, Estimate, estimated

CHANCE = 0.05
"""A statement is known where chance makes it look true with at most this probability, after Holm's correction."""

_SAME = 1e-9
"""Numbers whose range is at most this share of the largest are the same, but for rounding."""


def _standard_error(numbers: np.ndarray) -> float | None:
    """``s / sqrt(n)``; None where a number is not finite, there is one, or all are the same."""
    if len(numbers) < 2 or not np.isfinite(numbers).all() or np.ptp(numbers) <= _SAME * np.abs(numbers).max():
        return None
    return float(numbers.std(ddof=1) / math.sqrt(len(numbers)))


def interval(seeds: Iterable[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of all such models by Student's t, ``mean ± t s / sqrt(n)``, ``n - 1`` degrees.

    It takes the numbers of seeds as normal. With the spreads of the shipped studies it covers 95 % of normal numbers.

    Returns:
        None for fewer than `SEEDS` numbers, and where their spread is not known.

    >>> interval([0.1, 0.2, 0.3]), [round(end, 3) for end in interval(range(8))]
    (None, [1.452, 5.548])
    """
    numbers = np.array(list(seeds), dtype=float)
    error = _standard_error(numbers)
    if error is None or len(numbers) < SEEDS:
        return None
    from scipy.special import stdtrit

    half = float(stdtrit(len(numbers) - 1, (1 + LEVEL) / 2)) * error
    return float(numbers.mean()) - half, float(numbers.mean()) + half


def bracket(value: Estimate) -> tuple[float, float] | None:
    """What stands in brackets after a mean: its `interval`, else the range of the seeds; None for a single seed."""
    if found := interval(value.seeds.values()):
        return found
    return None if value.low is None or value.high is None else (value.low, value.high)


def stated(value: Estimate) -> dict[str, Any]:
    """An estimate as JSON values, with its `interval` beside its range."""
    found = interval(value.seeds.values())
    return value.to_dict() | {"interval": None if found is None else list(found)}


def effect_of(bounds: Mapping[str, float], value: Estimate | None) -> float | None:
    """How far a mean is on the right side of the nearest bound of a gate, in standard deviations of the seeds.

    Of a difference of two arms and the bound 0 it is the standardised effect of paired numbers, ``mean / s``.

    >>> effect_of({"at_least": 1.0}, estimated({0: 2.0, 1: 3.0, 2: 4.0}))
    2.0
    """
    numbers = np.array([] if value is None else list(value.seeds.values()), dtype=float)
    error = _standard_error(numbers)
    if error is None:
        return None
    spread = error * math.sqrt(len(numbers))
    sides = {name: 1 if name in ("at_least", "interval_above") else -1 for name in bounds}
    return min(sides[name] * float(numbers.mean() - bound) / spread for name, bound in bounds.items())


def chance_above(seeds: Iterable[float], bound: float) -> float | None:
    """How probable so large a mean is if the mean of all such models is the bound: one-sided, by Student's t.

    ``t = (mean - bound) / (s / sqrt(n))`` with ``n - 1`` degrees of freedom. It takes the numbers of seeds as normal,
    which 3 of them cannot show.

    Returns:
        None where a number is not finite, or there is one, or all are the same: their spread is then not known.

    >>> round(chance_above([0.1, 0.2, 0.3], 0.0), 4), chance_above([0.2, 0.2], 0.0)
    (0.0371, None)
    """
    numbers = np.array(list(seeds), dtype=float)
    error = _standard_error(numbers)
    if error is None:
        return None
    from scipy.special import stdtr

    return float(stdtr(len(numbers) - 1, (bound - numbers.mean()) / error))


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """Probabilities corrected for the number of tests: the smallest times ``m``, the next times ``m - 1``, and so on.

    At most `CHANCE` of such sets of tests then settle anything that is not so. None is no test, and is not counted.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65-70.

    >>> holm([0.04, None, 0.01])
    [0.04, None, 0.02]
    """
    tests = sorted((each, place) for place, each in enumerate(chances) if each is not None)
    found: list[float | None] = [None] * len(chances)
    largest = 0.0
    for rank, (each, place) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - rank) * each))
        found[place] = largest
    return found


@dataclass(frozen=True)
class GateResult:
    """A gate with its measured value.

    Attributes:
        gate: The gate as written before the run.
        value: The estimate from the seeds that were measured; None where there is none.
        holds: Whether the measured numbers meet it; None where the number of a seed is missing or is NaN.
        chance: How probable such numbers are if it is not so (`chance_above`), corrected for the number of gates of the
            study that can be tested (`holm`); None where it cannot be tested.
        said: Of a cell of the grid, whether the gate is said of it, in the form in which the study was run.
        cells: Of a gate with a grid, the result in its own task and in each cell. It holds if it holds in all cells of
            which it is said, and its chance is the largest of them; the value is that of its own task.
    """

    gate: Gate
    value: Estimate | None
    holds: bool | None
    chance: float | None = None
    said: bool = True
    cells: Mapping[str, "GateResult"] = field(default_factory=dict)

    @property
    def known(self) -> bool | None:
        """True where it holds and chance is no likely reason, False where it fails, None where neither is known."""
        settled = self.chance is not None and self.chance <= CHANCE
        return self.holds if settled or not self.holds else None


def _over_the_grid(cells: Mapping[str, GateResult]) -> GateResult:
    """A gate from its results in its own task, the first, and in the cells of the grid."""
    own, *others = cells.values()
    if not others:
        return own
    holds = [each.holds for each in cells.values() if each.said]
    chances = [each.chance for each in cells.values() if each.said]
    known = [each for each in chances if each is not None]
    return replace(
        own,
        holds=False if False in holds else None if None in holds else True,
        chance=max(known) if len(known) == len(chances) else None,
        cells=cells,
    )


def chance_of(bounds: Mapping[str, float], seeds: Iterable[float]) -> float | None:
    """The probability of the numbers of a gate with these bounds if what it says is not so: of several the largest."""
    numbers = list(seeds)
    found = [
        chance_above(numbers, bound)
        if name in ("at_least", "interval_above")
        else chance_above([-each for each in numbers], -bound)
        for name, bound in bounds.items()
    ]
    return max((each for each in found if each is not None), default=None)


class Results:
    """All measurements of one study.

    Args:
        study: The study.
        stored: How it was run, from the store.
        trials: Its trials.
        rows: Its rows.
        of_training: Measures of the training by task, arm and measure, where there are no rows of each step.
        seconds: Of all trials together; None is the sum of theirs.
    """

    def __init__(
        self,
        study: Study,
        stored: StoredStudy,
        trials: Iterable[Trial],
        rows: Iterable[StoredRow],
        *,
        of_training: Mapping[tuple[str, str, str], Mapping[int, float]] | None = None,
        seconds: float | None = None,
    ) -> None:
        self.study: Study = study
        self.stored: StoredStudy = stored
        self.trials: tuple[Trial, ...] = tuple(trials)
        self._of_training, self._seconds = of_training or {}, seconds
        self._rows: dict[tuple, dict[int, float]] = {}
        self._places: dict[tuple, dict[int, dict[int, float]]] = {}
        self._steps: dict[tuple, dict[int, dict[int, float]]] = {}
        for row in rows:
            if row.kind == "evaluation":
                key = (row.task, row.arm, row.variant, row.protocol, row.length, row.measure)
                if row.place is None:
                    self._rows.setdefault(key, {})[row.seed] = row.value
                else:
                    self._places.setdefault(key, {}).setdefault(row.seed, {})[row.place] = row.value
            else:
                key = (row.task, row.arm, row.kind, row.variant, row.measure)
                self._steps.setdefault(key, {}).setdefault(row.seed, {})[row.step] = row.value

    @staticmethod
    def load(store: Store, stored: StoredStudy) -> "Results":
        """The results of a study in a store."""
        study = studies.parse(stored.text, stored.name)
        return Results(study, stored, store.trials(stored.hash), store.rows(stored.hash))

    @cached_property
    def states(self) -> dict[str, int]:
        """How many trials are finished, failed and waiting."""
        return {state: sum(each.state == state for each in self.trials) for state in ("finished", "failed", "waiting")}

    @property
    def seconds(self) -> float:
        """Seconds of all trials together."""
        return self._seconds if self._seconds is not None else math.fsum(each.seconds or 0.0 for each in self.trials)

    def by_seed(
        self, task: str, arm: str, measure: str, length: int = 0, *, variant: str = AS_TRAINED, protocol: str = "whole"
    ) -> dict[int, float]:
        """A measure for each seed; empty where it was not measured. Length 0 is the training length.

        Derived measures: ``loss_ratio`` is the loss over that at the training length; ``spike`` the loss right after a
        drop less that right before; ``won_back`` the part of the spike that is recovered at the end of training, if
        there is training after the drop; ``steps_to_threshold`` the first step of the curve with the task's threshold
        accuracy, or infinity; ``gradient_norm_start`` the norm of the first step's gradient.
        """
        if (task, arm, measure) in self._of_training:
            return dict(self._of_training[task, arm, measure])
        trained = self.study.training_of(Key(task, arm, 0)).length
        length = length or trained
        if measure == "loss_ratio":
            own, at_training = (
                self._rows.get((task, arm, variant, protocol, each, "loss"), {}) for each in (length, trained)
            )
            return {seed: own[seed] / at_training[seed] for seed in own if seed in at_training}
        if measure in ("spike", "won_back"):
            return self._of_drop(task, arm, measure)
        if measure == "steps_to_threshold":
            least = self.study.tasks[task].evaluation.threshold
            curves = self._steps.get((task, arm, "curve", AS_TRAINED, "accuracy"), {})
            return {
                seed: min((float(step) for step, value in curve.items() if value >= least), default=math.inf)
                for seed, curve in curves.items()
            }
        if measure in ("gradient_norm", "gradient_norm_start"):
            curves = self._steps.get((task, arm, "training", AS_TRAINED, "gradient_norm"), {})
            pick = min if measure == "gradient_norm_start" else max
            return {seed: curve[pick(curve)] for seed, curve in curves.items() if curve}
        return dict(sorted(self._rows.get((task, arm, variant, protocol, length, measure), {}).items()))

    def _of_drop(self, task: str, arm: str, measure: str) -> dict[int, float]:
        found = {}
        curves = {name: self._steps.get((task, arm, "curve", name, "loss"), {}) for name in ("before drop", "dropped")}
        ends = self._steps.get((task, arm, "curve", AS_TRAINED, "loss"), {})
        for seed, after in curves["dropped"].items():
            ((step, high),), (low,) = after.items(), curves["before drop"][seed].values()
            end = max(ends.get(seed, {}), default=0)
            if measure == "spike":
                found[seed] = high - low
            elif end > step:
                found[seed] = (high - ends[seed][end]) / (high - low) if high > low else math.nan
        return found

    def value(self, task: str, arm: str, measure: str, **where: Any) -> Estimate | None:
        """The estimate of a measure; None where it was not measured."""
        seeds = self.by_seed(task, arm, measure, **where)
        return estimated(seeds) if seeds else None

    def difference(
        self,
        task: str,
        arm: str,
        minus: str,
        measure: str,
        *,
        minus_variant: str = AS_TRAINED,
        variant: str = AS_TRAINED,
        **where: Any,
    ) -> Estimate | None:
        """``arm`` minus ``minus``, paired by seed; None if they share no seed."""
        own = self.by_seed(task, arm, measure, variant=variant, **where)
        other = self.by_seed(task, minus, measure, variant=minus_variant, **where)
        pairs = {seed: own[seed] - other[seed] for seed in own if seed in other}
        return estimated(pairs) if pairs else None

    def places(  # noqa: PLR0917 - the order of a row
        self, task: str, arm: str, measure: str, length: int, variant: str = AS_TRAINED, protocol: str = "whole"
    ) -> dict[int, Estimate]:
        """A measure by position, or depth."""
        seeds = self._places.get((task, arm, variant, protocol, length, measure), {})
        where = sorted({place for each in seeds.values() for place in each})
        return {
            place: estimated({seed: each[place] for seed, each in seeds.items() if place in each}) for place in where
        }

    def curve(self, task: str, arm: str, measure: str, kind: str = "training") -> dict[int, Estimate]:
        """A measure by training step; in a curve the loss right after a drop replaces that right before."""
        seeds = {seed: dict(each) for seed, each in self._steps.get((task, arm, kind, AS_TRAINED, measure), {}).items()}
        if kind == "curve":
            for name in ("before drop", "dropped"):
                for seed, each in self._steps.get((task, arm, kind, name, measure), {}).items():
                    seeds.setdefault(seed, {}).update(each)
        return _by_step(seeds)

    def kept_models(self, task: str, arm: str) -> dict[str, dict[int, Estimate]]:
        """What `clockhands lab probe` measured of the kept models of an arm: each measure by training step."""
        found = {key[-1]: seeds for key, seeds in self._steps.items() if key[:4] == (task, arm, "curve", KEPT_MODEL)}
        return {measure: _by_step(found[measure]) for measure in in_order(found)}

    def probed(self, task: str) -> dict[str, dict[str, Any]]:
        """How the kept models of each arm were measured: the windows, their length and the version."""
        return {each.arm: each.facts["probed"] for each in self.trials if each.task == task and "probed" in each.facts}

    def bounds(self, task: str) -> dict[str, Mapping[str, float]]:
        """The derived bounds of the scores of a task, by length, as stored when the study was run.

        Empty for a store without them whose text is not on this machine.
        """
        if kept := self.stored.bounds.get(task):
            return dict(kept)
        plan = self.study.tasks[task]
        try:
            return {str(length): plan.task.bounds(length) for length in plan.evaluation.lengths}
        except ClockhandsError:
            return {}

    def gates(self) -> list[GateResult]:
        """Every gate, judged in each cell of the grid; the chances are corrected for the number of all.

        A gate is said of cells of the full form only where these were begun.
        """
        begun = {name for name, plan in self.study.tasks.items() if not plan.full} | {each.task for each in self.trials}
        found = [
            replace(self._judged(each), said=cell in begun and self.study.is_said_of(gate, cell))
            for gate in self.study.gates
            for cell, each in self.study.gates_over_the_grid(gate).items()
        ]
        chances = holm(
            [chance_of(each.gate.bounds, each.value.seeds.values()) if each.value else None for each in found]
        )
        judged = iter(replace(each, chance=chance) for each, chance in zip(found, chances, strict=True))
        return [
            _over_the_grid({cell: next(judged) for cell in self.study.gates_over_the_grid(gate)})
            for gate in self.study.gates
        ]

    def _judged(self, gate: Gate) -> GateResult:
        where = {"length": gate.length, "protocol": gate.protocol}
        if gate.minus:
            value = self.difference(
                gate.task,
                gate.arm,
                gate.minus,
                gate.measure,
                variant=gate.variant,
                minus_variant=gate.minus_variant,
                **where,
            )
        else:
            value = self.value(gate.task, gate.arm, gate.measure, variant=gate.variant, **where)
        if value is None or math.isnan(value.mean) or set(value.seeds) != set(self.study.tasks[gate.task].seeds):
            return GateResult(gate, value, None)
        low, high = value.low, value.high  # None with a single seed, for which a study has no such bounds
        holds = all(
            (
                gate.at_least is None or value.mean >= gate.at_least,
                gate.at_most is None or value.mean <= gate.at_most,
                gate.interval_above is None or (low is not None and low > gate.interval_above),
                gate.interval_below is None or (high is not None and high < gate.interval_below),
            )
        )
        return GateResult(gate, value, holds)

    def facts(self, arm: str) -> dict[str, Any]:
        """By task, the facts of an arm's trials: the model's parameters, and the median of tokens per second."""
        found = {}
        for task in self.study.tasks:
            facts = [each.facts for each in self.trials if (each.task, each.arm, each.state) == (task, arm, "finished")]
            if facts:
                found[task] = {name: facts[0][name] for name in ("parameters", "code_parameters")}
                found[task]["tokens_per_second"] = float(np.median([each["tokens_per_second"] for each in facts]))
        return found

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values: what ``clockhands lab report --json`` prints."""
        study, stored = self.study, self.stored
        return {
            "study": {
                "name": study.name, "hash": study.hash, "question": study.question, "scope": study.scope,
                "published": list(study.published), "history": list(study.history),
            },
            "provenance": {
                "command": stored.command, "version": stored.version, "commit": stored.commit_id,
                "created": stored.created, "versions": stored.versions, "machine": stored.machine,
                "trial_seconds": self.seconds,
            },
            "trials": self.states,
            "failures": [
                {"task": each.task, "arm": each.arm, "seed": each.seed, "message": each.message}
                for each in self.trials
                if each.state == "failed"
            ],
            "arms": {name: self._arm(name) for name in study.arms},
            "tasks": {name: self._task(name) for name in study.tasks},
            "gates": [
                {
                    "says": each.gate.says, "holds": each.holds, "chance": each.chance,
                    "task": each.gate.task, "arm": each.gate.arm,
                    "minus": each.gate.minus, "measure": each.gate.measure, "length": each.gate.length,
                    "variant": each.gate.variant, "value": stated(each.value) if each.value else None,
                    "bounds": each.gate.bounds, "effect": effect_of(each.gate.bounds, each.value),
                    "cells": [
                        {
                            "task": cell, "at": dict(study.tasks[cell].at), "said": own.said, "holds": own.holds,
                            "chance": own.chance, "length": own.gate.length,
                            "value": stated(own.value) if own.value else None,
                            "effect": effect_of(own.gate.bounds, own.value),
                        }
                        for cell, own in each.cells.items()
                    ],
                }
                for each in self.gates()
            ],
        }  # fmt: skip

    def to_columns(self) -> dict[str, list[Any]]:
        """Every number of every seed, a column for each of ``task`` … ``value``, as `to_frame` has them."""
        rows = [
            (task, arm, variant, protocol, length, measure, seed, value)
            for (task, arm, variant, protocol, length, measure), seeds in self._rows.items()
            for seed, value in sorted(seeds.items())
        ]
        rows += [
            (task, arm, AS_TRAINED, "", self.study.training_of(Key(task, arm, 0)).length, measure, seed, value)
            for task, plan in self.study.tasks.items()
            for arm in plan.arms
            for measure in OF_TRAINING
            for seed, value in self.by_seed(task, arm, measure).items()
        ]
        names = ("task", "arm", "variant", "protocol", "length", "measure", "seed", "value")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def to_frame(self) -> Any:
        """Every number of every seed as a pandas data frame; without pandas, as a dict of columns (`to_columns`).

        One row is one measure of one trained model: ``task`` (or a cell of the grid), ``arm``, ``variant`` (a change
        at test time, "" as trained), ``protocol``, ``length`` in tokens, ``measure``, ``seed`` and ``value``. Measures
        of the training have no protocol and stand at the trained length.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            return self.to_columns()
        return DataFrame(self.to_columns())

    def origins(self, task: str) -> list[dict[str, Any]]:
        """Where the numbers of a task, or of a cell of the grid, are from: devices, versions and trials."""
        names = ("device", "torch", "clockhands", "commit")
        found: dict[tuple[str, ...], int] = {}
        for each in self.trials:
            if each.task == task and each.state == "finished":
                own = tuple(str(each.facts.get(name, "")) for name in names)
                found[own] = found.get(own, 0) + 1
        return [{**dict(zip(names, own, strict=True)), "trials": number} for own, number in found.items()]

    def _arm(self, name: str) -> dict[str, Any]:
        arm, code = self.study.arms[name], ""
        task = next((task for task, plan in self.study.tasks.items() if name in plan.arms), None)
        if task is not None:
            key = Key(task, name, 0)
            model = self.study.model_of(key)
            with suppress(ClockhandsError):  # its checkpoint may be on another machine
                model = sizes_of(self.study, key)
            causal = self.study.tasks[task].task.causal
            spec = spec_of(arm.code, model, self.study.training_of(key).length, arm.channels, causal=causal)
            code = (
                "no position encoding" if spec is None else describe(spec) if isinstance(spec, WRITTEN) else str(spec)
            )
        return {"says": arm.says, "code": code, "tasks": self.facts(name)}

    def _task(self, name: str) -> dict[str, Any]:
        plan = self.study.tasks[name]
        cells = []
        for arm in plan.arms:
            lengths = self.study.lengths_of(Key(name, arm, 0))
            for variant in (AS_TRAINED, *self.study.arms[arm].at_test):
                for protocol in plan.evaluation.protocols:
                    for length in lengths:
                        for measure in ("loss", "accuracy", "loss_ratio", "sink_share"):
                            where = {"length": length, "variant": variant, "protocol": protocol}
                            value = self.value(name, arm, measure, **where)
                            if value is not None:
                                cells.append({"arm": arm, **where, "measure": measure, **stated(value)})
        drops = {}
        for arm in plan.arms:
            found = {measure: self.value(name, arm, measure) for measure in ("spike", "won_back")}
            if found["spike"] is not None:
                drops[arm] = {measure: stated(each) for measure, each in found.items() if each is not None}
        training = plan.training
        return {
            "kind": type(plan.task).__name__,
            "training": {"length": training.length, "sequences": training.sequences, "steps": training.steps},
            "seeds": list(plan.seeds),
            "arms": list(plan.arms),
            "bounds": self.bounds(name),
            "cells": cells,
            "drops": drops,
            "kept_models": [
                {"arm": arm, "length": how["length"], "measure": measure, "step": step, **stated(value)}
                for arm, how in self.probed(name).items()
                for measure, by_step in self.kept_models(name, arm).items()
                for step, value in by_step.items()
            ],
            "probed": self.probed(name),
            "at": dict(plan.at),
            "task": plan.base or name,
            "origins": self.origins(name),
        }


def _by_step(seeds: Mapping[int, Mapping[int, float]]) -> dict[int, Estimate]:
    """The estimate at each step from the curves of the seeds."""
    steps = sorted({step for each in seeds.values() for step in each})
    return {step: estimated({seed: each[step] for seed, each in seeds.items() if step in each}) for step in steps}
