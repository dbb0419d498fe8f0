"""What a study of the lab found, in sentences made from its numbers; two arms that cannot be told apart are a tie.

Two lines are told apart where the interval of their difference, paired by seed, does not include zero.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from clockhands.lab.results import Estimate, Results
from clockhands.lab.store import Key
from clockhands.lab.study import AS_TRAINED
from clockhands.lab.tasks import Language

_NAMED = 4  # names of a tie that are listed one by one
_RISE = 0.01  # nats per token; a rise at a drop that is smaller is not called one
_FLAT = 0.01  # a loss that changes by less, as a share, is called flat


class Line(NamedTuple):
    """An arm as it was trained, or with one change at test time."""

    arm: str
    variant: str = AS_TRAINED

    def __str__(self) -> str:
        return f"{self.arm} + {self.variant}" if self.variant else self.arm


MEASURES = {
    "loss": "loss (nats per token)",
    "accuracy": "accuracy",
    "loss_ratio": "loss over the loss at the trained length",
    "spike": "rise of the loss at the drop (nats per token)",
    "won_back": "part of that rise that is gone at the end of training",
    "steps_to_threshold": "steps until the task is learnt",
    "sink_share": "share of attention on the first token",
    "gradient_norm": "gradient norm at the end of training",
    "gradient_norm_start": "gradient norm of the first step",
}


def value_of(number: float | None, measure: str = "loss") -> str:
    """A number with three decimals, or four digits where it is greater.

    >>> value_of(1.73642), value_of(24.0204), value_of(20431.2), value_of(420.0, "steps_to_threshold")
    ('1.736', '24.02', '20,431', '420')
    >>> value_of(0.00004), value_of(0.0), value_of(math.nan), value_of(math.inf, "steps_to_threshold")
    ('0.00004', '0', 'not a number', 'never')
    """
    if number is None:
        return "not measured"
    if not math.isfinite(number):
        never = measure == "steps_to_threshold" and number > 0
        return "not a number" if math.isnan(number) else "never" if never else "infinite"
    if measure == "steps_to_threshold" or abs(number) >= 1000:
        return f"{number:,.0f}"
    if abs(number) < 0.0005:
        return f"{number:.5f}" if abs(number) >= 0.000005 and measure != "accuracy" else "0"
    return f"{number:.{min(3, 3 - math.floor(math.log10(abs(number))))}f}"


def interval_of(value: Estimate | None, measure: str = "loss") -> str:
    """The interval in brackets; nothing where there is none.

    >>> interval_of(Estimate(0.5, 0.4, 0.61, {})), interval_of(None)
    ('[0.400, 0.610]', '')
    """
    if value is None or value.low is None or value.high is None:
        return ""
    return f"[{value_of(value.low, measure)}, {value_of(value.high, measure)}]"


def in_full(value: Estimate | None, measure: str = "loss") -> str:
    """A mean with its interval."""
    return f"{value_of(None if value is None else value.mean, measure)} {interval_of(value, measure)}".strip()


def listed(names: Iterable[object]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed("abc")
    ('a', 'a and b', 'a, b and c')
    """
    every = [str(each) for each in names]
    return " and ".join(filter(None, (", ".join(every[:-1]), every[-1]))) if every else "none"


def measure_of(results: Results, task: str) -> str:
    """By what a task is judged: the loss of a language model, else the accuracy."""
    return "loss" if isinstance(results.study.tasks[task].task, Language) else "accuracy"


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


def lengths_of(results: Results, task: str) -> list[int]:
    """Every length that an arm of a task is evaluated at, in order."""
    arms = results.study.tasks[task].arms
    return sorted({length for arm in arms for length in results.study.lengths_of(Key(task, arm, 0))})


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
        """By what they are compared."""
        return measure_of(self.results, self.task)

    @cached_property
    def measured(self) -> dict[Line, Estimate]:
        """The estimate of every line that has one here."""
        where = {"length": self.length, "protocol": self.protocol}
        found = ((line, self.results.value(self.task, line.arm, self.measure, variant=line.variant, **where))
                 for line in self.lines)  # fmt: skip
        return {line: value for line, value in found if value is not None}

    @cached_property
    def values(self) -> dict[Line, Estimate]:
        """What is compared, best mean first: finite numbers, of at least two seeds where any line has two."""
        finite = [line for line, value in self.measured.items() if math.isfinite(value.mean)]
        several = [line for line in finite if self.measured[line].low is not None]
        sign = -1 if self.measure == "accuracy" else 1
        order = sorted(several or finite, key=lambda line: sign * self.measured[line].mean)
        return {line: self.measured[line] for line in order}

    @cached_property
    def has_intervals(self) -> bool:
        """Whether more than one seed was measured."""
        return any(value.low is not None for value in self.values.values())

    @cached_property
    def _verdicts(self) -> dict[tuple[Line, Line], str]:
        where = {"length": self.length, "protocol": self.protocol}
        found = {}
        for one, other in combinations(self.values, 2):
            value = self.results.difference(
                self.task, one.arm, other.arm, self.measure, variant=one.variant, minus_variant=other.variant, **where
            )
            found[one, other] = "tie" if value is None else value.verdict
        return found

    def better(self, one: Line, other: Line) -> bool:
        """Whether one is better than another, and they do not tie."""
        verdict, opposite = ("above", "below") if self.measure == "accuracy" else ("below", "above")
        return self._verdicts.get((one, other)) == verdict or self._verdicts.get((other, one)) == opposite

    @cached_property
    def ranks(self) -> dict[Line, int]:
        """For every line 1 and the number of lines that are better; empty without intervals."""
        if not self.has_intervals:
            return {}
        return {line: 1 + sum(self.better(other, line) for other in self.values) for line in self.values}

    @cached_property
    def best(self) -> list[Line]:
        """The line with the best mean, and those that tie with it."""
        if not self.values:
            return []
        first, *others = self.values
        return [first, *(each for each in others if self.has_intervals and not self.better(first, each))]

    @property
    def sentence(self) -> str:
        """Which lines are best here, which is next and which last, and which cannot be compared."""
        return " ".join(filter(None, (self._first, self._next, self._without)))

    @property
    def _first(self) -> str:
        best, values, one = self.best, self.values, self.measure == "accuracy"
        if not best:
            return f"{self.where} no line has a finite {self.measure}."
        if len(values) == 1:
            return f"{self.where} {best[0]} has {'an accuracy' if one else 'a loss'} of {in_full(values[best[0]])}."
        of = "the highest accuracy" if one else "the lowest loss"
        alone = f"{self.where} {best[0]} has {of}: {in_full(values[best[0]])}"
        if len(best) == 1:
            return f"{alone}."
        means = [value_of(values[line].mean) for line in best]
        if len(best) <= _NAMED:
            return f"{self.where} {listed(best)} tie for {of}: {listed(means)}."
        if len(best) == len(values):
            return f"{self.where} all {len(best)} tie: {'accuracy' if one else 'loss'} {means[0]} to {means[-1]}."
        return f"{alone}; {len(best) - 1} others tie with it, down to {best[-1]}, {means[-1]}."

    @property
    def _next(self) -> str:
        rest = [line for line in self.values if line not in self.best]
        if not rest:
            return ""
        first, last = (value_of(self.values[line].mean) for line in (rest[0], rest[-1]))
        if len(rest) > 1 and first == last:
            return f"The {len(rest)} others have {first}."
        return f"The next is {rest[0]}, {first}{f'; the last is {rest[-1]}, {last}' if len(rest) > 1 else ''}."

    @property
    def _without(self) -> str:
        lost = [line for line, value in self.measured.items() if not math.isfinite(value.mean)]
        few = [line for line in self.measured if line not in self.values and line not in lost]
        never = [line for line in self.lines if line not in self.measured]
        says = (("Not a number", lost), ("Measured with one seed only, so not compared", few), ("No result", never))
        return " ".join(f"{why}: {listed(lines)}." for why, lines in says if lines)

    @property
    def where(self) -> str:
        """The length, how often the trained one it is, and the protocol where there are two."""
        trained = self.results.study.tasks[self.task].training.length
        ratio = "the trained length" if self.length == trained else f"{self.length / trained:.3g} × the trained length"
        return f"At {self.length:,} tokens ({ratio}){_under(self.results, self.task, self.protocol)},"


def _under(results: Results, task: str, protocol: str) -> str:
    return f" under `{protocol}`" if len(results.study.tasks[task].evaluation.protocols) > 1 else ""


def rankings(results: Results, task: str, protocol: str, lines: Sequence[Line]) -> list[Ranking]:
    """The rankings at the trained length, of the arms as trained, and at the longest length."""
    trained, longest = results.study.tasks[task].training.length, max(lengths_of(results, task))
    found = [Ranking(results, task, trained, protocol, [line for line in lines if line.variant == AS_TRAINED])]
    if longest != trained:
        found.append(Ranking(results, task, longest, protocol, lines))
    return [each for each in found if each.measured]


def answers(results: Results, task: str) -> list[str]:
    """What a reader should know first: the best at the trained and the longest length, what length and drops do."""
    lines, plan, said = lines_of(results, task), results.study.tasks[task], []
    for place, protocol in enumerate(plan.evaluation.protocols):
        made = rankings(results, task, protocol, lines)
        said += [each.sentence for each in made if not place or each.length != plan.training.length]
        said += with_length(results, task, protocol)
    said += [sentence for arm in plan.arms if (sentence := of_drop(results, task, arm))]
    if not said:
        return ["Nothing was measured yet."]
    return [*said, *one_seed(results, task)]


def one_seed(results: Results, task: str) -> list[str]:
    """What one seed cannot show."""
    plan = results.study.tasks[task]
    if len(plan.seeds) > 1:
        return []
    order = ", and the order of the arms may be chance" if len(plan.arms) > 1 else ""
    return [f"There is one seed, so there are no intervals{order}."]


def with_length(results: Results, task: str, protocol: str) -> list[str]:
    """By how much the loss of a language model changes from the trained to the longest length."""
    trained, longest = results.study.tasks[task].training.length, max(lengths_of(results, task))
    found = ratios(results, task, protocol, lines_of(results, task), longest)
    if longest == trained or len(found) < 2 or measure_of(results, task) != "loss":
        return []
    order = sorted(found, key=lambda line: found[line].mean)
    return [
        f"From {trained:,} to {longest:,} tokens{_under(results, task, protocol)} the loss is multiplied by "
        f"{in_full(found[order[0]])} for {order[0]}, the least, and by {in_full(found[order[-1]])} for {order[-1]}, "
        "the most."
    ]


def ratios(results: Results, task: str, protocol: str, lines: Sequence[Line], length: int) -> dict[Line, Estimate]:
    """The loss at a length over that at the trained length, of every line that has both."""
    found = {
        line: results.value(task, line.arm, "loss_ratio", length=length, variant=line.variant, protocol=protocol)
        for line in lines
    }
    return {line: value for line, value in found.items() if value is not None and math.isfinite(value.mean)}


def drop_step(results: Results, task: str, arm: str) -> int | None:
    """The step at which an arm's code is dropped; None where it is kept."""
    drop = results.study.arms[arm].drop
    return None if drop is None else results.study.training_of(Key(task, arm, 0)).in_steps(drop.at)


def of_drop(results: Results, task: str, arm: str) -> str:
    """What removing the code of an arm does to the loss, and how much of that is won back; empty without a drop."""
    spike, back = (results.value(task, arm, measure) for measure in ("spike", "won_back"))
    if spike is None:
        return ""
    at, steps = drop_step(results, task, arm) or 0, results.study.training_of(Key(task, arm, 0)).steps
    removed = f"{arm}: removing the code at step {at:,}"
    if not spike.mean >= _RISE or (spike.low is not None and spike.low <= 0):
        return f"{removed} does not clearly raise the held-out loss: it changes by {in_full(spike)} nats per token."
    end = ""
    if back is not None and math.isfinite(back.mean):
        end = f" At step {steps:,}, the end of training, {in_full(back)} of that rise is gone"
        end += (
            ", so the loss is higher still."
            if back.mean < 0
            else "."
            if back.mean <= 1
            else ", and more than all of it."
        )
    return f"{removed} raises the held-out loss by {in_full(spike)} nats per token.{end}"


def early_tokens(results: Results, task: str) -> list[str]:
    """What both protocols say together: which gains are from fewer early tokens, and which lines are flat."""
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
            f"At {longest:,} tokens more than half of the fall of the loss under `whole` is absent under `sliding` for "
            f"{shown}: that part comes from fewer early tokens, not from longer context."
        )
    flat = [line for line, value in sliding.items() if abs(value.mean - 1) <= _FLAT]
    if flat:
        shown = listed(f"{line} (× {value_of(sliding[line].mean)})" for line in flat)
        said.append(
            f"Flat under `sliding` (within 1 % of the loss at the trained length): {shown}. Length does no harm there, "
            "and the further context does not help either."
        )
    return said


def verdict(results: Results) -> str:
    """How many gates hold.

    The verdicts themselves are those of `Results.gates`.
    """
    found = [each.holds for each in results.gates()]
    if not found:
        return "The study has no gates."
    parts = [f"{found.count(True)} of {len(found)} gates {'holds' if found.count(True) == 1 else 'hold'}"]
    if found.count(False):
        parts.append(f"{found.count(False)} fail{'s' if found.count(False) == 1 else ''}")
    if found.count(None):
        parts.append(f"{found.count(None)} {'is' if found.count(None) == 1 else 'are'} not measured")
    return f"{', '.join(parts)}."
