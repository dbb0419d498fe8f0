"""The part of the lab's report about one task: numbers by length and by position, training curves, and drops.

Each chart answers the question that is its heading; the sentence below the heading is made from the same numbers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from clockhands.lab.along_training import GROUPS, charts_of_arm, in_order, split_measure
from clockhands.lab.answers import (
    Ranking,
    early_tokens,
    lines_of,
    one_seed,
    rankings,
    ratios,
    with_length,
)
from clockhands.lab.drops import (
    compared,
    drop_step,
    dropped_arms,
    is_one_number,
    of_drop,
    recovered,
    references_of,
)
from clockhands.lab.result_words import MEASURES, Line, lengths_of, measure_of, value_of
from clockhands.lab.results import Results, bracket
from clockhands.lab.study import AS_TRAINED, TaskPlan
from clockhands.lab.tasks import NAMES
from clockhands.measures.claims import Estimate, estimated
from clockhands.phrases import listed, number_of
from clockhands.show import _lab_charts as charts
from clockhands.show._html import NONE, numbers_table, panels, paragraphs
from clockhands.show._lab_charts import LOOKS, Chart, DotChart, Point, Series
from clockhands.show._lab_tables import number, with_look, with_note
from clockhands.show._markup import Markup, element
from clockhands.show._svg import Axis

_LABEL = 24  # letters of a label in a chart
_BEST = 6  # lines that stand out where there are more than `LOOKS`
_BINS = 32  # points of a chart by position, at most

_PROTOCOLS = {
    "whole": "`whole`: the text is cut into sequences that do not overlap, and every token is scored. The first tokens "
    "of a sequence have little context, and they are a smaller share of a longer sequence, so the loss falls with "
    "length for that reason alone (early-token curse, Press et al. 2022).",
    "sliding": "`sliding`: a window of the given length moves over the text, and its last tokens are scored. Every "
    "scored token has a nearly full context, so a change of the loss with length comes from longer context.",
}
_BOUNDS = {
    "chance": "chance",
    "bag": "best without the order of the tokens (bag of words)",
    "unigram": "token frequencies only (unigram)",
    "best": "best possible",
}


def looks(results: Results) -> dict[Line, int]:
    """Which lines stand out, with the look of each, the same in all charts of a study.

    All lines if there are few enough; else all arms as trained; else, where encodings are dropped, the dropped arms and
    the arm that they are compared with; else one without an encoding, and then the best of each task, at its longest
    and at its trained length in turn.
    """
    every = list(dict.fromkeys(line for task in results.study.own_tasks for line in lines_of(results, task)))
    trained = [line for line in every if line.variant == AS_TRAINED]
    if len(every) <= LOOKS:
        return {line: look for look, line in enumerate(every)}
    orders = []
    for task, plan in results.study.own_tasks.items():
        made = rankings(results, task, plan.evaluation.protocols[0], lines_of(results, task))
        orders += [list(each.values) for each in reversed(made)]
    best = [line for place in range(len(every)) for order in orders for line in order[place : place + 1]]
    if len(trained) <= LOOKS:
        chosen = dict.fromkeys([*trained, *best])
        return {line: look for look, line in enumerate(list(chosen)[:LOOKS])}
    if any(dropped_arms(results, task) for task in results.study.own_tasks):
        return _looks_of_drops(results)
    without = [line for line in trained if results.study.arms[line.arm].code == "none"]
    chosen = dict.fromkeys([*without[:1], *best, *trained])
    return {line: look for look, line in enumerate(list(chosen)[:_BEST])}


def _looks_of_drops(results: Results) -> dict[Line, int]:
    """The looks where encodings are dropped: in each task the arm that is kept, then the dropped arms.

    Those that are in several tasks come first. Two lines have the same look only if no task has both.
    """
    tasks, found = results.study.own_tasks, dict[Line, int]()
    for task, plan in tasks.items():
        arms = sorted(dropped_arms(results, task), key=lambda arm: -sum(arm in each.arms for each in tasks.values()))
        kept = [line for _, lines in references_of(results, task, arms, scaled=False)[:1] for line in lines.values()]
        chosen = [*kept[:1], *map(Line, arms), *kept]
        if not arms:
            chosen = [line for each in rankings(results, task, plan.evaluation.protocols[0], lines_of(results, task))
                      for line in each.values][:_BEST]  # fmt: skip
        for line in dict.fromkeys(chosen):
            taken = {look for each, look in found.items() if each.arm in plan.arms}
            if line not in found and len(taken) < LOOKS:
                found[line] = next(look for look in range(LOOKS) if look not in taken)
    return found


def title_of(results: Results, task: str) -> str:
    """The heading of a task: its name, and its kind where that is another word."""
    kind = NAMES[type(results.study.tasks[task].task)]
    return f"Task {task}" if kind == task else f"Task {task} ({kind})"


def task_parts(
    results: Results, task: str, stated: Mapping[str, Any], looks: Mapping[Line, int], heading: Callable[[str], Markup]
) -> Iterator[Markup]:
    """All that a report says about a task, below its heading.

    Args:
        results: The study.
        task: The task.
        stated: The task in the results as JSON values.
        looks: The look of each line that stands out.
        heading: Makes a heading of a question.
    """
    part = _Task(results, task, stated, looks, heading)
    yield from paragraphs(part.setting(), kind="note")
    for each in (part.by_length, part.changes, part.by_place, part.training, part.drops, part.kept_models, part.others):
        yield from each()


def charts_of(results: Results, task: str, looks: Mapping[Line, int]) -> list[Chart | DotChart]:
    """The charts of a task: by length, what each change at test time does, along the training, and of kept models."""
    part = _Task(results, task, {"bounds": results.bounds(task)}, looks, lambda says: element("h3", says))
    of_arms = (each for arm in part.kept for each in part.charts_of_arm(arm, f"{arm}: "))
    of_kept_models = [*part.charts_of_kept_models(), *of_arms]
    return [*part.charts_by_length(), *part.charts_of_changes(), *part.charts_of_training(), *of_kept_models]


@dataclass(frozen=True)
class _Task:
    """The arguments of `task_parts`, and the parts of the report made from them."""

    results: Results
    name: str
    stated: Mapping[str, Any]
    looks: Mapping[Line, int]
    heading: Callable[[str], Markup]

    @property
    def plan(self) -> TaskPlan:
        return self.results.study.tasks[self.name]

    @cached_property
    def measure(self) -> str:
        return measure_of(self.results, self.name)

    @cached_property
    def lines(self) -> list[Line]:
        return lines_of(self.results, self.name)

    @property
    def arms(self) -> list[str]:
        return [line.arm for line in self.lines if line.variant == AS_TRAINED]

    @cached_property
    def lengths(self) -> list[int]:
        return lengths_of(self.results, self.name)

    @property
    def trained(self) -> int:
        return self.plan.training.length

    @property
    def protocols(self) -> tuple[str, ...]:
        return self.plan.evaluation.protocols

    @cached_property
    def rankings(self) -> dict[str, list[Ranking]]:
        return {each: rankings(self.results, self.name, each, self.lines) for each in self.protocols}

    def value(self, line: Line, measure: str, length: int, protocol: str) -> Estimate | None:
        where = {"length": length, "variant": line.variant, "protocol": protocol}
        return self.results.value(self.name, line.arm, measure, **where)

    def number(self, value: Estimate | None, measure: str) -> Markup | str:
        return number(value, measure, len(self.plan.seeds))

    def setting(self) -> str:
        model, training, arms, seeds = self.plan.model, self.plan.training, len(self.plan.arms), len(self.plan.seeds)
        size = f"{number_of(model.layers, 'layer')} of width {model.width}, {model.heads} heads"
        steps = f"{'at most ' if training.plateau else ''}{training.steps:,} steps"
        return (
            f"{number_of(arms, 'arm')}, {number_of(seeds, 'seed')}. "
            f"Model: {f'starts from {model.start}' if model.start else size}. "
            f"Training: {steps} of {training.sequences:,} sequences of {training.length:,} tokens. "
            f"Evaluation: {listed(self.protocols)} at {listed(f'{each:,}' for each in self.lengths)} tokens."
        )

    # By length

    def by_length(self) -> Iterator[Markup]:
        several = len(self.lengths) > 1
        yield self.heading("Which arms still work past the trained length?" if several else "Which arms work best?")
        for protocol, made in self.rankings.items():
            yield from paragraphs(*(each.sentence for each in made), *with_length(self.results, self.name, protocol))
        yield from paragraphs(*one_seed(self.results, self.name))
        if len(self.protocols) > 1:
            yield from paragraphs(*(_PROTOCOLS[each] for each in self.protocols), kind="note")
            yield from paragraphs(*early_tokens(self.results, self.name))
        yield from self.figure(self.charts_by_length())
        if len(self.lines) > len(self.arms):
            yield from paragraphs("`arm + change` is the trained arm with one change at test time.", kind="note")
        yield from (self.table(self.measure, protocol) for protocol in self.protocols)
        yield from self.tables_of("loss" if self.measure == "accuracy" else "accuracy")
        yield from self.bounds()

    def titled(self, measure: str, protocol: str) -> str:
        return f"{MEASURES[measure]}{f', {protocol}' if len(self.protocols) > 1 else ''}"

    def charts_by_length(self) -> list[Chart | DotChart]:
        """By protocol; of a task with one protocol accuracy and loss. Many lines, or one length, are rows of dots."""
        rows = len(self.lines) > LOOKS or len(self.lengths) == 1
        measures = (self.measure,) if len(self.protocols) > 1 else dict.fromkeys((self.measure, "loss", "accuracy"))
        draw = self.dots_by_length if rows else self.lines_by_length
        return [draw(measure, protocol) for measure in measures for protocol in self.protocols]

    def lines_by_length(self, measure: str, protocol: str) -> Chart:
        series = [
            self.series(line, [(length, self.value(line, measure, length, protocol)) for length in self.lengths])
            for line in self.lines
        ]
        title = self.titled(measure, protocol)
        x = Axis("length (tokens), log", log=True, ticks=tuple(map(float, self.lengths)))
        with_bounds = (*series, *self.bound_lines(measure, series))
        return Chart(x, _axis(title, measure, series), with_bounds, self.trained_mark, f"{title} by length")

    def dots_by_length(self, measure: str, protocol: str) -> DotChart:
        past = [length for length in self.lengths if length > self.trained]
        lengths = list(dict.fromkeys([self.trained, *past[:2], *past[-1:]]))
        values = {line: [self.value(line, measure, length, protocol) for length in lengths] for line in self.lines}
        title = self.titled(measure, protocol)
        rows = self.dots(values)
        points = [Series("", tuple(Point(0.0, dot.x) for dot in row.dots if dot is not None)) for row in rows]
        says = f"{title} by arm and length; numbers in the table"
        return DotChart(_axis(title, measure, points), rows, self.in_tokens(lengths), says)

    def dots(self, values: Mapping[Line, Sequence[Estimate | None]]) -> tuple[charts.DotRow, ...]:
        """A row for each line of which something was measured."""
        made = {
            line: tuple(
                None if value is None else Point(value.mean, 0.0, *(bracket(value) or (None, None))) for value in found
            )
            for line, found in values.items()
        }
        return tuple(charts.DotRow(str(line), dots, self.looks.get(line)) for line, dots in made.items() if any(dots))

    def in_tokens(self, lengths: Iterable[int]) -> tuple[str, ...]:
        return tuple(f"{each:,} tokens{' (trained)' if each == self.trained else ''}" for each in lengths)

    @property
    def trained_mark(self) -> tuple[tuple[float, str], ...]:
        return ((float(self.trained), f"trained {self.trained:,}"),)

    def series(self, line: Line, values: Iterable[tuple[float, Estimate | None]]) -> Series:
        return _series(str(line), self.looks.get(line), values)

    def bound_lines(self, measure: str, series: Sequence[Series]) -> Iterator[Series]:
        """The bounds of the task that are among what was measured."""
        values = [point.y for each in series for point in each.shown]
        low, high = (0.0, 1.0) if measure == "accuracy" else (min(values, default=0.0), max(values, default=0.0))
        for name in ("chance", "bag", "unigram"):
            found = [(length, self.bound(f"{name}_{measure}", length)) for length in self.lengths]
            points = tuple(Point(x, y) for x, y in found if y is not None and low <= y <= high)
            if points:
                yield Series(name, points, bound=True)

    def bound(self, name: str, length: int) -> float | None:
        return self.stated["bounds"].get(str(length), {}).get(name)

    def figure(self, made: Sequence[Chart | DotChart], height: int = 250) -> Iterator[Markup]:
        """Charts beside each other, and a key of what has no label in them."""
        lines = [each for each in made if isinstance(each, Chart)]
        dots = [each for each in made if isinstance(each, DotChart) and each.rows]
        if conditions := {says: place for each in dots for place, says in enumerate(each.conditions)}:
            key = [element("span", charts.dot_swatch(place), f" {says}") for says, place in conditions.items()]
            yield element("p", key, class_="note report-key")
        if dots:
            yield panels([lambda width, each=each: charts.dot_rows(each, width) for each in dots])
        if lines or not dots:
            yield from self.figure_of_lines(lines, height)

    def figure_of_lines(self, made: Sequence[Chart], height: int) -> Iterator[Markup]:
        made = [each for each in made if any(series.shown for series in each.series)]
        if not made:
            yield from paragraphs("Nothing was measured yet.", kind="note")
            return
        yield panels([lambda width, each=each: charts.line_chart(each, width, height) for each in made])
        key: dict[str, Markup] = {}
        unit = "steps" if "step" in made[0].x.name else "tokens" if "token" in made[0].x.name else ""
        every = [(each, series) for each in made for series in each.series]
        for each, series in every:
            if series.look is not None and series.shown and not each.labelled(series):
                words = f" {series.name}, to {series.shown[-1].x:,.0f} {unit} only"
                key.setdefault(series.name, element("span", charts.swatch(series.look), words))
        others = {series.name for _, series in every if series.look is None and series.shown and not series.bound}
        if others:
            words = f" {number_of(len(others), 'other')}, named in the tables"
            key[""] = element("span", charts.swatch(None), words)
        if key:
            yield element("p", key.values(), class_="note report-key")
        lost = sorted({series.name for _, series in every if series.points and not series.shown})
        yield from paragraphs(f"Not a number, so not in the chart: {listed(lost)}." if lost else "", kind="note")

    def tables_of(self, measure: str) -> Iterator[Markup]:
        made = [self.table(measure, protocol) for protocol in self.protocols]
        if measure == "loss":
            yield from made
        else:  # of a language model the loss says more
            yield element("details", element("summary", "Accuracy as numbers"), made, class_="lab-file")

    def table(self, measure: str, protocol: str) -> Markup:
        """The numbers of one measure, with ranks where the task is judged by it, and ratios of losses."""
        ranked = [each for each in self.rankings[protocol] if measure == self.measure and each.ranks]
        further = [each for each in (2 * self.trained, 4 * self.trained) if each in self.lengths] or self.lengths[-1:]
        further = [each for each in further if measure == "loss" and each != self.trained]
        found = {each: ratios(self.results, self.name, protocol, self.lines, each) for each in further}
        heads = ["arm", *(f"at {each:,}" for each in self.lengths)]
        heads += [f"{each:,} / {self.trained:,}" for each in further] + [f"rank at {each.length:,}" for each in ranked]
        rows = []
        for line in self.lines:
            values = [self.value(line, measure, length, protocol) for length in self.lengths]
            cells: list[Markup | str] = [self.number(each, measure) for each in values]
            cells += [self.number(found[each].get(line), "loss_ratio") for each in further]
            cells += [str(each.ranks.get(line, NONE)) for each in ranked]
            if any(values):
                rows.append([with_look(str(line), self.looks.get(line)), *cells])
        ratio = (
            f"; {further[0]:,} / {self.trained:,} is the loss at {further[0]:,} over that at {self.trained:,}"
            if further
            else ""
        )
        return numbers_table(f"{self.titled(measure, protocol)}, by length in tokens{ratio}", heads, rows)

    def bounds(self) -> Iterator[Markup]:
        held = self.stated["bounds"]
        names = list(dict.fromkeys(name for each in held.values() for name in each))
        rows = []
        for name in names:
            kind, _, measure = name.rpartition("_")
            cells = (value_of(each[name]) if name in each else NONE for each in held.values())
            rows.append([f"{_BOUNDS.get(kind, kind)}, {measure}", *cells])
        if rows:
            heads = ["bound", *(f"at {int(length):,}" for length in held)]
            yield numbers_table("Bounds that follow from the task alone, by length in tokens", heads, rows)

    # Changes at test time

    def changes(self) -> Iterator[Markup]:
        if made := self.charts_of_changes():
            yield self.heading("What does each change at test time do?")
            yield from paragraphs("The number with the change, less that of the same models as trained.", kind="note")
            yield from self.figure(made)

    def charts_of_changes(self) -> list[DotChart]:
        """The measure with each change less that of the same trained models, seed by seed, by protocol."""
        lengths = list(dict.fromkeys((self.trained, self.lengths[-1])))
        made = []
        for protocol in self.protocols:
            values = {
                line: [self.change(line, length, protocol) for length in lengths]
                for line in self.lines
                if line.variant != AS_TRAINED
            }
            title = f"change: {self.titled(self.measure, protocol)}"
            says = f"{title}; numbers in the table"
            made.append(DotChart(Axis(title, holds=(0.0,)), self.dots(values), self.in_tokens(lengths), says))
        return [each for each in made if each.rows]

    def change(self, line: Line, length: int, protocol: str) -> Estimate | None:
        where = {"length": length, "protocol": protocol}
        return self.results.difference(self.name, line.arm, line.arm, self.measure, variant=line.variant, **where)

    # By position

    def by_place(self) -> Iterator[Markup]:
        longest, place = max(self.lengths), self.plan.task.place
        what, by_position = place.partition(" ")[0], place.startswith("position")
        measures = ("loss",) if self.measure == "loss" else ("accuracy", "loss")
        made = []
        for measure in measures:
            found = {
                line: self.results.places(self.name, line.arm, measure, longest, line.variant, self.protocols[0])
                for line in self.lines
            }
            if max(map(len, found.values())) < 2:
                return
            if not made:
                yield self.heading(f"At {longest:,} tokens, how does the {measure} depend on the {what}?")
                yield from paragraphs(*(self.past_training(found) if by_position else ()))
            series = [self.series(line, _binned(each, middle=by_position)) for line, each in found.items()]
            marks = self.trained_mark if "token" in place and longest > self.trained else ()
            y = _axis(self.titled(measure, self.protocols[0]), measure, series)
            made.append(Chart(Axis(place, holds=(0.0,)), y, tuple(series), marks, f"{MEASURES[measure]} by {what}"))
        yield from self.figure(made)

    def past_training(self, found: Mapping[Line, Mapping[int, Estimate]]) -> list[str]:
        """Which line loses most, and which least, past the trained length."""
        rises = {}
        for line, places in found.items():
            finite = {place: value.mean for place, value in places.items() if math.isfinite(value.mean)}
            before = [value for place, value in finite.items() if place < self.trained]
            after = [value for place, value in finite.items() if place >= self.trained]
            if before and after:
                rises[line] = (fmean(before), fmean(after))
        if len(rises) < 2:
            return []
        sign = 1 if self.measure == "loss" else -1
        order = sorted(rises, key=lambda line: sign * (rises[line][1] - rises[line][0]))
        least, most = (
            f"{line}, from {value_of(rises[line][0])} to {value_of(rises[line][1])}" for line in (order[0], order[-1])
        )
        return [
            f"From the positions below {self.trained:,} to those from {self.trained:,} on, the mean {self.measure} "
            f"worsens most for {most}, and least for {least}."
        ]

    # Training

    def training(self) -> Iterator[Markup]:
        if made := self.charts_of_training():
            yield self.heading("How does the loss fall during training?")
            yield from paragraphs(*self.learnt())
            yield from self.figure(made, 230)

    def charts_of_training(self) -> list[Chart]:
        made = []
        for title, measure, kind in (
            ("held-out loss (nats per token)", "loss", "curve"),
            ("training loss (nats per token)", "loss", "training"),
            ("gradient norm", "gradient_norm", "training"),
        ):
            series = [self.curve(arm, measure, kind) for arm in self.arms]
            if any(each.shown for each in series):
                y = _axis(title, measure, series)
                made.append(Chart(Axis("training step", holds=(0.0,)), y, tuple(series), self.drop_marks, title))
        return made

    def curve(self, arm: str, measure: str, kind: str) -> Series:
        points: list[tuple[float, Estimate | None]] = []
        spike, at = self.results.value(self.name, arm, "spike"), drop_step(self.results, self.name, arm)
        for step, value in self.results.curve(self.name, arm, measure, kind).items():
            if kind == "curve" and step == at and spike is not None:
                before = {seed: value.seeds[seed] - rise for seed, rise in spike.seeds.items() if seed in value.seeds}
                points.append((step, estimated(before)))
            points.append((step, value))
        return self.series(Line(arm), points)

    @property
    def drop_marks(self) -> tuple[tuple[float, str], ...]:
        found = {step for arm in self.plan.arms if (step := drop_step(self.results, self.name, arm)) is not None}
        return tuple((float(step), f"drop {step:,}") for step in sorted(found))

    def learnt(self) -> list[str]:
        """Where the curves end."""
        kind = "curve" if any(self.results.curve(self.name, arm, "loss", "curve") for arm in self.arms) else "training"
        curves = {arm: self.results.curve(self.name, arm, "loss", kind) for arm in self.arms}
        ends = {arm: (max(each), each[max(each)].mean) for arm, each in curves.items() if each}
        order = sorted((arm for arm in ends if math.isfinite(ends[arm][1])), key=lambda arm: ends[arm][1])
        if not order:
            return []
        which = "held-out" if kind == "curve" else "training"
        first, last = (f"{arm}, {value_of(ends[arm][1])} at step {ends[arm][0]:,}" for arm in (order[0], order[-1]))
        if len(order) == 1:
            return [f"The last {which} loss is that of {first}."]
        return [f"The last {which} loss is lowest for {first}, and highest for {last}."]

    def drops(self) -> Iterator[Markup]:
        arms = dropped_arms(self.results, self.name)
        if not arms:
            return
        yield self.heading("What does dropping the position encoding do, and how much of it is recovered?")
        yield from paragraphs(*(of_drop(self.results, self.name, arm) for arm in arms))
        heads = ("arm", "dropped at step", "right before", "right after", "rise", "at the end", "recovered share",
                 "steps to half")  # fmt: skip
        caption = (
            "Held-out loss (nats per token) around the drop; the steps are those after the drop until half of the rise "
            "is recovered"
        )
        yield numbers_table(caption, heads, map(self.drop, arms))
        yield from self.against(arms)

    def drop(self, arm: str) -> list[Markup | str]:
        spike, back = self.results.value(self.name, arm, "spike"), recovered(self.results, self.name, arm)
        found = self.results.curve(self.name, arm, "loss", "curve")
        at = drop_step(self.results, self.name, arm) or 0
        high = found[at].mean if at in found else math.nan
        low = high - spike.mean if spike is not None else math.nan
        half = [step - at for step, value in found.items() if step > at and value.mean <= (low + high) / 2]
        if is_one_number(self.results, self.name, arm) and spike is not None:
            rise = with_note(value_of(spike.mean), "the same for every seed")
        else:
            rise = self.number(spike, "spike")
        losses = [value_of(low), value_of(high), rise, value_of(found[max(found)].mean)]
        after = NONE if back is None else f"{half[0]:,}" if half else "never"
        return [with_look(arm, self.looks.get(Line(arm))), f"{at:,}", *losses, self.number(back, "won_back"), after]

    def against(self, arms: Sequence[str]) -> Iterator[Markup]:
        """The differences of dropped arms and those that they are compared with, at two lengths."""
        columns = [
            (reference, length, compared(self.results, self.name, reference, length))
            for length in dict.fromkeys((self.trained, self.lengths[-1]))
            for reference in references_of(self.results, self.name, arms, scaled=length != self.trained)
        ]
        columns = [each for each in columns if each[2]]
        if not columns:
            return
        heads = ["arm"]
        for (_, lines), length, _ in columns:
            names = list(dict.fromkeys(map(str, lines.values())))
            heads.append(f"at {length:,}, minus {' / '.join(names)}")
        rows = []
        for arm in arms:
            cells = [self.number(found.get(arm), self.measure) for _, _, found in columns]
            rows.append([with_look(arm, self.looks.get(Line(arm))), *cells])
        unit = " (nats per token)" if self.measure == "loss" else ""
        caption = f"Difference of {self.measure}{unit}, paired by seed, by length in tokens"
        yield numbers_table(caption, heads, rows)

    # Kept models

    @cached_property
    def kept(self) -> dict[str, dict[str, dict[int, Estimate]]]:
        """What was measured of the kept models, by arm, measure and step."""
        found = {arm: self.results.kept_models(self.name, arm) for arm in self.arms}
        return {arm: measured for arm, measured in found.items() if measured}

    def kept_models(self) -> Iterator[Markup]:
        if not self.kept:
            return
        yield self.heading("What do the kept models do with their positions along the training?")
        ways = (f"{each['windows']:,} of {each['length']:,} tokens" for each in self.stated["probed"].values())
        says = (
            f"Measured by `clockhands lab probe` at each kept step, on held-out windows: {listed(dict.fromkeys(ways))}."
        )
        yield from paragraphs(
            f"{says} The rise of a loss, in nats per answer, is what a change of the encoding costs. In the charts of "
            "an arm, `at 0` is with all tokens at position 0, and `best` is the best matrix.",
            kind="note",
        )
        yield from self.figure(self.charts_of_kept_models(), 230)
        for arm, measured in self.kept.items():
            steps = sorted({step for by_step in measured.values() for step in by_step})
            rows = (
                [measure, *(self.number(by_step.get(step), measure) for step in steps)]
                for measure, by_step in measured.items()
            )
            table = numbers_table(f"{arm}, by training step", ["measure", *(f"{step:,}" for step in steps)], rows)
            yield element("p", f"{arm}, by fault and by layer", class_="report-code")
            yield from self.figure(self.charts_of_arm(arm), 230)
            yield element("details", element("summary", f"{arm} as numbers"), table, class_="lab-file")

    def charts_of_kept_models(self) -> list[Chart]:
        """What one number says of an arm: the loss, its rise without the encoding, and heads that look back."""
        made = []
        for measure in in_order({each for measured in self.kept.values() for each in measured}):
            group, name = split_measure(measure)
            if not GROUPS[group].chart:
                series = (self.series(Line(arm), of.get(measure, {}).items()) for arm, of in self.kept.items())
                made.append(self.along_training(f"{group}, {name} ({GROUPS[group].short_unit})", tuple(series)))
        return made

    def charts_of_arm(self, arm: str, prefix: str = "") -> list[Chart]:
        """What has many numbers for each arm: faults and layers. Those that end highest stand out."""
        made, measured = [], self.kept.get(arm, {})
        for title, lines in charts_of_arm(measured):
            curves = {label: measured[measure] for measure, label in lines}
            ends = sorted(curves, key=lambda label: -curves[label][max(curves[label])].mean)[:LOOKS]
            found = (_series(label, ends.index(label) if label in ends else None, by_step.items())
                     for label, by_step in curves.items())  # fmt: skip
            made.append(self.along_training(f"{prefix}{title}", tuple(found)))
        return made

    def along_training(self, title: str, series: tuple[Series, ...]) -> Chart:
        return Chart(Axis("training step", holds=(0.0,)), Axis(title, holds=(0.0,)), series, self.drop_marks, title)

    def others(self) -> Iterator[Markup]:
        """What else was measured, a row for each arm."""
        columns = [
            ("gradient_norm_start", MEASURES["gradient_norm_start"]),
            ("gradient_norm", MEASURES["gradient_norm"]),
        ]
        columns += [("sink_share", MEASURES["sink_share"]), ("even_share", "that share with uniform attention")]
        if self.plan.evaluation.threshold:
            columns.append(("steps_to_threshold", f"steps to accuracy {self.plan.evaluation.threshold:g}"))
        found = [
            (measure, says, {arm: self.results.value(self.name, arm, measure) for arm in self.arms})
            for measure, says in columns
        ]
        found = [each for each in found if any(each[2].values())]
        rows = [
            [
                with_look(arm, self.looks.get(Line(arm))),
                *(self.number(values[arm], measure) for measure, _, values in found),
            ]
            for arm in self.arms
            if any(values[arm] for _, _, values in found)
        ]
        if rows:
            yield numbers_table("Also measured", ["arm", *(says for _, says, _ in found)], rows)


def _series(name: str, look: int | None, values: Iterable[tuple[float, Estimate | None]]) -> Series:
    points = tuple(Point(x, value.mean, *(bracket(value) or (None, None))) for x, value in values if value is not None)
    return Series(charts.shortened(name, _LABEL), points, look)


def _axis(title: str, measure: str, series: Iterable[Series]) -> Axis:
    """Accuracy from 0 to 1; a logarithmic axis where a few large values would hide all others."""
    if measure == "accuracy":
        return Axis(title, holds=(0.0, 1.0))
    values = sorted(point.y for each in series for point in each.shown)
    if not values or values[0] <= 0:
        return Axis(title)
    wide = values[-1] > 20 and values[-1] > 20 * values[len(values) // 2]
    wide = wide or (measure == "gradient_norm" and values[-1] > 10 * values[0])
    return Axis(f"{title}, log" if wide else title, log=wide)


def _binned(places: Mapping[int, Estimate], *, middle: bool) -> list[tuple[float, Estimate]]:
    """Numbers by place, joined into at most `_BINS` bins; those of a bucket of positions are put at its middle."""
    every = sorted(places)
    size = max(1, math.ceil(len(every) / _BINS))
    gap = min((after - before for before, after in pairwise(every)), default=1) if middle else 1
    found = []
    for start in range(0, len(every), size):
        some = every[start : start + size]
        if size == 1:
            value = places[some[0]]
        else:
            seeds = sorted({seed for place in some for seed in places[place].seeds})
            value = estimated(
                {seed: fmean(places[at].seeds[seed] for at in some if seed in places[at].seeds) for seed in seeds}
            )
        found.append((fmean(some) + (gap - 1) / 2, value))
    return found
