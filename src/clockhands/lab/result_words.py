"""How the lab writes numbers, intervals and names, on a terminal and in its report."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clockhands.lab.results import CHANCE, GateResult, Results, bracket, effect_of
from clockhands.lab.store import Key
from clockhands.lab.study import AS_TRAINED
from clockhands.lab.tasks import Language
from clockhands.measures.claims import SEEDS, Estimate, coverage


class Line(NamedTuple):
    """An arm as it was trained, or with one change at test time."""

    arm: str
    variant: str = AS_TRAINED

    def __str__(self) -> str:
        return f"{self.arm} + {self.variant}" if self.variant else self.arm


MEASURES = {
    "loss": "loss (nats per token)",
    "accuracy": "accuracy",
    "loss_ratio": "loss / loss at the trained length",
    "spike": "rise of the loss at the drop (nats per token)",
    "won_back": "share of the rise at the drop that is recovered by the end of training",
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
    """What stands in brackets after a mean (`bracket`); nothing where there is none.

    >>> interval_of(Estimate(0.5, 0.4, 0.61, {})), interval_of(None)
    ('[0.400, 0.610]', '')
    """
    ends = None if value is None else bracket(value)
    return "" if ends is None else f"[{', '.join(value_of(end, measure) for end in ends)}]"


def in_full(value: Estimate | None, measure: str = "loss") -> str:
    """A mean with its interval."""
    return f"{value_of(None if value is None else value.mean, measure)} {interval_of(value, measure)}".strip()


def measure_of(results: Results, task: str) -> str:
    """By what a task is judged: the loss of a language model, else the accuracy."""
    return "loss" if isinstance(results.study.tasks[task].task, Language) else "accuracy"


def lengths_of(results: Results, task: str) -> list[int]:
    """Every length that an arm of a task is evaluated at, in order."""
    arms = results.study.tasks[task].arms
    return sorted({length for arm in arms for length in results.study.lengths_of(Key(task, arm, 0))})


def at_length(results: Results, task: str, length: int) -> str:
    """A length at the beginning of a sentence, and how often the trained one it is."""
    trained = results.study.tasks[task].training.length
    ratio = "the trained length" if length == trained else f"{length / trained:.3g} × the trained length"
    return f"At {length:,} tokens ({ratio})"


def under(results: Results, task: str, protocol: str) -> str:
    """The protocol in a sentence, where a task has more than one."""
    return f" under `{protocol}`" if len(results.study.tasks[task].evaluation.protocols) > 1 else ""


def of_range(seeds: int) -> str:
    """What the range of so many seeds says.

    >>> of_range(1)
    'One seed has no range.'
    >>> of_range(3)
    'The range of 3 seeds holds the median of such models in 75 % of cases: it is no 95 % interval.'
    >>> of_range(8)
    "With 8 seeds the brackets hold the 95 % interval of the mean by Student's t, with the seeds taken as normal."
    """
    if seeds == 1:
        return "One seed has no range."
    if seeds >= SEEDS:
        return (
            f"With {seeds} seeds the brackets hold the 95 % interval of the mean by Student's t, with the seeds taken "
            "as normal."
        )
    covered = 100 * coverage(seeds)
    less = ": it is no 95 % interval" if covered < 95 else ""
    return f"The range of {seeds} seeds holds the median of such models in {covered:.3g} % of cases{less}."


def brackets(results: Results, shown: str = "brackets") -> str:
    """What stands in brackets after the means of a study, or in what else shows it."""
    few = {len(plan.seeds) < SEEDS for plan in results.study.tasks.values()}
    says = {True: "the range of the seeds", False: "the 95 % interval of the mean"}
    return f"the {shown} hold {' or '.join(words for some, words in says.items() if some in few)}"


def range_note(results: Results) -> str:
    """`of_range` for the numbers of seeds of a study's tasks."""
    return " ".join(map(of_range, sorted({len(plan.seeds) for plan in results.study.tasks.values()})))


def some_seeds(value: Estimate | None, seeds: int) -> str:
    """How many seeds were measured, where it is some and not all.

    >>> some_seeds(Estimate(0.5, 0.4, 0.6, {0: 0.4, 2: 0.6}), 3), some_seeds(None, 3)
    ('2 of 3 seeds', '')
    """
    return f"{len(value.seeds)} of {seeds} seeds" if value is not None and len(value.seeds) < seeds else ""


def verdict_of(results: Results, each: GateResult) -> str:
    """The verdict of a gate in two or three words; why there is none, where it cannot be judged."""
    if each.cells and each.holds is None:
        said = [cell.holds for cell in each.cells.values() if cell.said]
        return f"{len(said) - said.count(None)} of {len(said)} cells"
    if each.value is not None and each.holds is not None:
        return gate_word(each.holds, each.chance, len(each.value.seeds))
    seeds = len(results.study.tasks[each.gate.task].seeds)
    return some_seeds(each.value, seeds) or ("not measured" if each.value is None else "not a number")


def order_word(results: Results, cell: GateResult) -> str:
    """Whether the order that a gate says holds in a cell of the grid."""
    if cell.value is None:
        return "not run"
    says = verdict_of(results, cell)
    return {"holds": "yes", "fails": "no"}.get(says, says)


def order_by_cell(results: Results, each: GateResult) -> str:
    """In which cells of the grid the order holds, in which it does not, and which were not run, in one line."""
    words = {cell: order_word(results, own) for cell, own in each.cells.items()}
    by_word: dict[str, list[str]] = {}
    for cell, word in words.items():
        at, own = results.study.tasks[cell].at, each.cells[cell]
        unsaid = "" if own.said or own.value is None else " (not said of it)"
        by_word.setdefault(word, []).append(
            (" + ".join(f"{axis} {value}" for axis, value in at.items()) or "own size") + unsaid
        )
    return "; ".join(f"{word}: {', '.join(cells)}" for word, cells in by_word.items())


def gate_word(holds: bool, chance: float | None, seeds: int) -> str:
    """The verdict of a gate that was measured.

    >>> gate_word(True, 0.01, 3), gate_word(True, 0.2, 3), gate_word(True, None, 1), gate_word(False, 0.9, 3)
    ('holds', 'may be chance', 'one seed', 'fails')
    """
    if not holds or (chance is not None and chance <= CHANCE):
        return "holds" if holds else "fails"
    return "may be chance" if chance is not None else "one seed" if seeds == 1 else "seeds alike"


def in_short(words: Iterable[str]) -> str:
    """How many gates have which verdict.

    >>> in_short(["holds", "one seed", "fails", "holds"]), in_short([])
    ('2 of 4 gates hold, 1 fails, 1 is met by its only seed.', 'The study has no gates.')
    """
    found = list(words)
    if not found:
        return "The study has no gates."
    counts = {word: found.count(word) for word in ("fails", "may be chance", "one seed", "seeds alike")}
    says = {
        "fails": ("fails", "fail"),
        "may be chance": ("is met, and may be chance", "are met, and may be chance"),
        "one seed": ("is met by its only seed", "are met by their only seed"),
        "seeds alike": ("is met by seeds that are all alike", "are met by seeds that are all alike"),
    }
    held = found.count("holds")
    parts = [f"{held} of {len(found)} gates {'holds' if held == 1 else 'hold'}"]
    parts += [f"{number} {says[word][number > 1]}" for word, number in counts.items() if number]
    unknown = len(found) - held - sum(counts.values())
    return f"{', '.join([*parts, *([f'{unknown} cannot be judged'] if unknown else [])])}."


def verdict(results: Results) -> str:
    """How many gates hold, by the verdicts of `Results.gates`."""
    return in_short(verdict_of(results, each) for each in results.gates())


TESTED = (
    "A gate holds if its bound is met and chance alone would meet it with a probability of at most 5 %, by Student's t "
    "over the seeds (taken as normal), corrected for the number of gates of the study (Holm)."
)


def bounds_in_words(bounds: Mapping[str, float]) -> str:
    """What a gate requires. Its ``interval`` is the range of the seeds, also where brackets hold a 95 % interval.

    >>> bounds_in_words({"at_least": 0.5, "interval_above": 0.0})
    'at least 0.5, range of the seeds above 0'
    """
    return ", ".join(
        f"{name.replace('interval', 'range of the seeds').replace('_', ' ')} {bound:g}"
        for name, bound in bounds.items()
    )


EFFECT = "The effect is the distance from the required bound in standard deviations of the seeds."


def effect_in_words(each: GateResult) -> str:
    """The effect of a gate with one decimal; a dash where the spread of its seeds is not known."""
    effect = effect_of(each.gate.bounds, each.value)
    return "–" if effect is None else f"{effect:.1f}"
