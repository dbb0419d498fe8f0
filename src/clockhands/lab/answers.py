"""Writes the results of a lab study as sentences with its numbers.

Two arms are distinguishable if chance alone would make them differ so much, seed by seed, with a probability of at most
5 %, corrected for the number of pairs of the study that a report compares (Holm). Arms are named beside the best one
only; two arms that are not distinguishable from the best are not compared.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

from clockhands.lab.drops import drop_answers
from clockhands.lab.result_words import Line, at_length, in_full, lengths_of, measure_of, under, value_of
from clockhands.lab.results import CHANCE, Results, chance_above, holm
from clockhands.lab.study import AS_TRAINED
from clockhands.measures.claims import Estimate
from clockhands.phrases import listed

_NAMED = 4  # the most arms named with their numbers in a sentence
_FLAT = 0.01  # a loss that changes by less than this share is called flat


def lines_of(results: Results, task: str) -> list[Line]:
    """Every line of a task, the arms best first by their mean at the trained length, each with its changes."""
    plan, measure = results.study.tasks[task], measure_of(results, task)

    def place(arm: str) -> float:
        value = results.value(task, arm, measure)
        mean = math.nan if value is None else value.mean
        return math.inf if math.isnan(mean) else -mean if measure == "accuracy" else mean

    return [
        Line(arm, variant)
        for arm in sorted(plan.arms, key=place)
        for variant in (AS_TRAINED, *results.study.arms[arm].at_test)
    ]


@dataclass(frozen=True)
class Ranking:
    """The lines of a task at one length, compared seed by seed.

    Attributes:
        results: The study.
        task, length, protocol: Where they are compared.
        lines: Which ones.
    """

    results: Results
    task: str
    length: int
    protocol: str
    lines: Sequence[Line]

    @cached_property
    def measure(self) -> str:
        """The measure that is compared."""
        return measure_of(self.results, self.task)

    @cached_property
    def measured(self) -> dict[Line, Estimate]:
        """The estimate of every line that has one here."""
        where = {"length": self.length, "protocol": self.protocol}
        found = ((line, self.results.value(self.task, line.arm, self.measure, variant=line.variant, **where))
                 for line in self.lines)  # fmt: skip
        return {line: value for line, value in found if value is not None}

    @cached_property
    def unlearnt(self) -> list[Line]:
        """The lines of arms whose accuracy, as trained, at the trained length is below the task's threshold."""
        threshold, found = self.results.study.tasks[self.task].evaluation.threshold, []
        for line in self.measured if self.measure == "accuracy" else ():
            value = self.results.value(self.task, line.arm, "accuracy")
            if value is not None and value.mean < threshold:
                found.append(line)
        return found

    @cached_property
    def values(self) -> dict[Line, Estimate]:
        """The compared values, best mean first: finite, of arms that learnt, of two seeds if any line has two."""
        learnt = {line: value for line, value in self.measured.items() if line not in self.unlearnt}
        finite = [line for line, value in learnt.items() if math.isfinite(value.mean)]
        several = [line for line in finite if self.measured[line].low is not None]
        sign = -1 if self.measure == "accuracy" else 1
        order = sorted(several or finite, key=lambda line: sign * self.measured[line].mean)
        return {line: self.measured[line] for line in order}

    @cached_property
    def has_intervals(self) -> bool:
        """Whether more than one seed was measured."""
        return any(value.low is not None for value in self.values.values())

    @cached_property
    def differences(self) -> dict[tuple[Line, Line], Estimate]:
        """The difference of each two lines, seed by seed, the one with the better mean first."""
        where = {"length": self.length, "protocol": self.protocol}
        found = {
            (one, other): self.results.difference(
                self.task, one.arm, other.arm, self.measure, variant=one.variant, minus_variant=other.variant, **where
            )
            for one, other in combinations(self.values, 2)
        }
        return {pair: value for pair, value in found.items() if value is not None}

    def better(self, one: Line, other: Line) -> bool:
        """Whether one line is better than another, and the two are distinguishable."""
        chance = _corrected(self.results).get((self.task, self.length, self.protocol, one, other))
        if chance is None or chance > CHANCE:
            return False
        return (self.differences[one, other].mean > 0) == (self.measure == "accuracy")

    @cached_property
    def ranks(self) -> dict[Line, int]:
        """For every line 1 and the number of lines that are distinguishably better; empty without intervals."""
        if not self.has_intervals:
            return {}
        return {line: 1 + sum(self.better(other, line) for other in self.values) for line in self.values}

    @cached_property
    def best(self) -> list[Line]:
        """The line with the best mean, and those that are not distinguishable from it."""
        if not self.values:
            return []
        first, *others = self.values
        return [first, *(each for each in others if self.has_intervals and not self.better(first, each))]

    @property
    def sentence(self) -> str:
        """Which line is best here, which are not distinguishable from it, and which cannot be compared."""
        return " ".join(filter(None, (self._first, self._next, self._without)))

    @property
    def _first(self) -> str:
        best, values, one = self.best, self.values, self.measure == "accuracy"
        if not best:
            return f"{self.where} no arm {'can be ranked' if self.unlearnt else f'has a finite {self.measure}'}."
        if len(values) == 1:
            return f"{self.where} {best[0]} has {'an accuracy' if one else 'a loss'} of {in_full(values[best[0]])}."
        of = "the highest accuracy" if one else "the lowest loss"
        alone = f"{self.where} {best[0]} has {of}: {in_full(values[best[0]])}"
        alike = best[1:]
        if not alike:
            return f"{alone}."
        if len(alike) <= _NAMED:
            means = listed(f"{line} ({value_of(values[line].mean)})" for line in alike)
            return f"{alone}; not distinguishable from it: {means}."
        means = f"{value_of(values[alike[0]].mean)} to {value_of(values[alike[-1]].mean)}"
        count = f"all {len(alike)} others" if len(best) == len(values) else f"{len(alike)} arms"
        return f"{alone}; not distinguishable from it: {count} ({listed(map(str, alike))}), {means}."

    @property
    def _next(self) -> str:
        rest = [line for line in self.values if line not in self.best]
        if not rest:
            return ""
        first, last = (value_of(self.values[line].mean) for line in (rest[0], rest[-1]))
        if len(rest) == 1:
            return f"The other is {rest[0]}, {first}." if len(self.values) == 2 else f"Worse: {rest[0]}, {first}."
        if first == last:
            return f"The {len(rest)} others have {first}."
        return f"The best of the other {len(rest)} is {rest[0]}, {first}; the worst is {rest[-1]}, {last}."

    @property
    def _without(self) -> str:
        lost = [line for line, value in self.measured.items() if not math.isfinite(value.mean)]
        few = [line for line in self.measured if line not in {*self.values, *lost, *self.unlearnt}]
        never = [line for line in self.lines if line not in self.measured]
        threshold = self.results.study.tasks[self.task].evaluation.threshold
        below = f"Accuracy below {threshold:g} at the trained length, so not ranked"
        says = (
            ("Not a number", lost),
            (below, self.unlearnt),
            ("Measured with one seed, so not compared", few),
            ("No result", never),
        )
        return " ".join(f"{why}: {listed(map(str, lines))}." for why, lines in says if lines)

    @property
    def where(self) -> str:
        """The length, how often the trained one it is, and the protocol where there are two."""
        return f"{at_length(self.results, self.task, self.length)}{under(self.results, self.task, self.protocol)},"


@lru_cache(maxsize=4)
def _corrected(results: Results) -> dict[tuple[str, int, str, Line, Line], float | None]:
    """How probable the difference of each pair of lines is by chance, corrected for all pairs of the study."""
    found = {
        (each.task, each.length, each.protocol, *pair): _chance(value.seeds.values())
        for task, plan in results.study.own_tasks.items()
        for protocol in plan.evaluation.protocols
        for each in rankings(results, task, protocol, lines_of(results, task))
        for pair, value in each.differences.items()
    }
    return dict(zip(found, holm(list(found.values())), strict=True))


def _chance(differences: Iterable[float]) -> float | None:
    """Of a difference in either direction."""
    chance = chance_above(differences, 0.0)
    return None if chance is None else 2 * min(chance, 1 - chance)


def rankings(results: Results, task: str, protocol: str, lines: Sequence[Line]) -> list[Ranking]:
    """The rankings at the trained length, of the arms as trained, and at the longest length."""
    trained, longest = results.study.tasks[task].training.length, max(lengths_of(results, task))
    found = [Ranking(results, task, trained, protocol, [line for line in lines if line.variant == AS_TRAINED])]
    if longest != trained:
        found.append(Ranking(results, task, longest, protocol, lines))
    return [each for each in found if each.measured]


def answers(results: Results, task: str) -> list[str]:
    """The first sentences of a report: the effect of drops if there are any, else the best arms at two lengths."""
    said = drop_answers(results, task) or general_answers(results, task)
    return [*said, *one_seed(results, task)] if said else ["Nothing was measured yet."]


def general_answers(results: Results, task: str) -> list[str]:
    """The best arms at the trained and at the longest length, and what length does to the loss."""
    lines, plan, said = lines_of(results, task), results.study.tasks[task], []
    for place, protocol in enumerate(plan.evaluation.protocols):
        made = rankings(results, task, protocol, lines)
        said += [each.sentence for each in made if not place or each.length != plan.training.length]
        said += with_length(results, task, protocol)
    return said


def one_seed(results: Results, task: str) -> list[str]:
    """What one seed cannot show."""
    plan = results.study.tasks[task]
    if len(plan.seeds) > 1:
        return []
    order = " The order of the arms may be chance." if len(plan.arms) > 1 else ""
    return [f"One seed, no interval.{order}"]


def with_length(results: Results, task: str, protocol: str) -> list[str]:
    """How much the loss of a language model changes from the trained to the longest length."""
    trained, longest = results.study.tasks[task].training.length, max(lengths_of(results, task))
    found = ratios(results, task, protocol, lines_of(results, task), longest)
    if longest == trained or len(found) < 2 or measure_of(results, task) != "loss":
        return []
    order = sorted(found, key=lambda line: found[line].mean)
    return [
        f"From {trained:,} to {longest:,} tokens{under(results, task, protocol)} the loss changes by a factor of "
        f"{in_full(found[order[0]])} for {order[0]} (lowest) to {in_full(found[order[-1]])} for {order[-1]} (highest)."
    ]


def ratios(results: Results, task: str, protocol: str, lines: Sequence[Line], length: int) -> dict[Line, Estimate]:
    """The loss at a length over that at the trained length, of every line that has both."""
    found = {
        line: results.value(task, line.arm, "loss_ratio", length=length, variant=line.variant, protocol=protocol)
        for line in lines
    }
    return {line: value for line, value in found.items() if value is not None and math.isfinite(value.mean)}


def early_tokens(results: Results, task: str) -> list[str]:
    """What both protocols show together: which gains come from fewer early tokens, and which lines are flat."""
    longest, lines = max(lengths_of(results, task)), lines_of(results, task)
    whole, sliding = (ratios(results, task, protocol, lines, longest) for protocol in ("whole", "sliding"))
    if longest == results.study.tasks[task].training.length:
        return []
    said = []
    falls = [line for line in whole if line in sliding and whole[line].mean < 1 - _FLAT]
    early = [line for line in falls if 1 - sliding[line].mean < (1 - whole[line].mean) / 2]
    if early:
        shown = listed(
            f"{line} (× {value_of(whole[line].mean)} and × {value_of(sliding[line].mean)})" for line in early
        )
        said.append(
            f"At {longest:,} tokens the loss under `whole` is lower than at the trained length, and more than half of "
            f"that fall is absent under `sliding`, for {shown}: it comes from the smaller share of early tokens, not "
            "from longer context."
        )
    flat = [line for line, value in sliding.items() if abs(value.mean - 1) <= _FLAT]
    if flat:
        shown = listed(f"{line} (× {value_of(sliding[line].mean)})" for line in flat)
        said.append(
            f"The loss under `sliding` stays within 1 % of that at the trained length for {shown}: longer context "
            "neither raises nor lowers it."
        )
    return said
