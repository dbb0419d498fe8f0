"""The lab on a terminal: progress while a study runs, then the answers, the gates and the numbers."""

import re
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from clockhands.encodings.memory import readable
from clockhands.errors import ClockhandsError
from clockhands.lab.along_training import split_measure
from clockhands.lab.drops import drop_answers
from clockhands.lab.result_words import (
    TESTED,
    brackets,
    order_by_cell,
    order_word,
    range_note,
    some_seeds,
    verdict,
    verdict_of,
)
from clockhands.lab.results import GateResult, Results
from clockhands.lab.store import Key, StoredStudy, Trial
from clockhands.lab.study import AS_TRAINED, Study
from clockhands.lab.study_words import duration, gate_in_numbers, number
from clockhands.lab.tuning import Tuned
from clockhands.phrases import number_of
from clockhands.show._page import Page, console_on, safe

if TYPE_CHECKING:
    from clockhands.lab.forecast import Forecast

_EVERY = 15.0  # seconds between two lines where there is no terminal


class ProgressView:
    """The progress of a study with the time left, on stderr: a bar on a terminal, else an occasional line."""

    def __init__(self, trials: int) -> None:
        self.trials: int = trials
        self.ended: int = 0
        self.began: float = time.monotonic()
        self.told: float = self.began
        self.console: Console = Console(stderr=True, highlight=False, markup=False)
        self.bar: Bar | None = (
            Bar(TextColumn("{task.description}"), BarColumn(), console=self.console)
            if self.console.is_terminal
            else None
        )
        self.task: TaskID | None = self.bar.add_task(self._line(0.0), total=1.0) if self.bar is not None else None

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        else:
            self.say(self._line(0.0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, share: float) -> None:
        """Show how much is done, 0 to 1."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=share, description=self._line(share))
        elif time.monotonic() - self.told > _EVERY:
            self.told = time.monotonic()
            self.say(self._line(share))

    def trial_ended(self, name: str, share: float) -> None:
        """One more trial has ended."""
        self.ended += 1
        if self.bar is None:
            self.told = time.monotonic()
            self.say(f"{self._line(share)}; ended: {name}")
        else:
            self.update(share)

    def say(self, line: str) -> None:
        """One line above the bar."""
        (self.console if self.bar is None else self.bar.console).print(safe(line), soft_wrap=True)

    def _line(self, share: float) -> str:
        spent = time.monotonic() - self.began
        left = f", {duration(spent / share - spent)} left" if share > 0.02 else ""
        return f"{self.ended} of {self.trials} trials, {share:.0%} of the training{left}"


def print_results(results: Results, file: IO[str] | None = None, width: int | None = None) -> None:
    """The question, the gates, then loss and accuracy by length for each task."""
    page = Page(console_on(file, width))
    study = results.study
    page.paragraph(study.question, style="bold")
    states = results.states
    missing = f", {states['waiting']} not run yet" if states["waiting"] else ""
    failed = f", {states['failed']} failed" if states["failed"] else ""
    page.paragraph(
        f"{states['finished']} trials{missing}{failed}; {duration(results.seconds)} of training and evaluation."
    )
    for each in results.trials:
        if each.state == "failed":
            page.paragraph(f"failed: {each.key}: {safe(each.message)}", style="bold red", indent=2)
    gates = results.gates()
    if gates:
        known = [each.known for each in gates]
        page.line()
        style = "bold green" if all(known) else "bold red" if False in known else "bold yellow"
        page.paragraph(verdict(results), style=style)
        for each in gates:
            _print_gate(page, results, each)
    for task in study.own_tasks:
        _print_drops(page, results, task)
        _print_kept_models(page, results, task)
    for task in study.own_tasks:
        for measure in ("accuracy", "loss", "loss_ratio"):
            _print_table(page, results, task, measure)
    page.line()
    if any(len(plan.seeds) > 1 for plan in study.tasks.values()):
        page.paragraph(f"A number is a mean over seeds; {brackets(results)}.")
    page.paragraph(range_note(results))
    if gates:
        page.paragraph(TESTED)
    if study.scope:
        page.paragraph(f"Scope: {study.scope}")
    for each in study.history:
        page.paragraph(f"Before: {each}")
    stored = results.stored
    page.paragraph(
        f"Study {study.hash[:12]}, commit {stored.commit_id or 'unknown'}, clockhands {stored.version}, "
        f"torch {stored.versions.get('torch', '?')}, threads per trial: {stored.machine.get('threads', '?')}."
    )


_STYLES = {True: "green", False: "bold red", None: "yellow"}


def _print_gate(page: Page, results: Results, each: GateResult) -> None:
    word, style = verdict_of(results, each), _STYLES[each.known]
    page.line(Text(f"  {word:<13} ", style=style) + Text(f"{safe(each.gate.says)}"))
    page.line(Text(f"                {safe(gate_in_numbers(results, each))}", style="dim"))
    if each.cells:
        page.line(Text(f"                does the order hold? {safe(order_by_cell(results, each))}", style="dim"))
        for cell, own in each.cells.items():
            if own.value is None:
                continue
            page.line(
                Text(f"                  {safe(cell)}: {order_word(results, own)}, {number(own.value)}", style="dim")
            )


_TITLES = {
    "accuracy": "Accuracy (share of answers that are right)",
    "loss": "Loss (nats per token)",
    "loss_ratio": "Loss / loss at the training length",
}


def _print_table(page: Page, results: Results, task: str, measure: str) -> None:
    plan = results.study.tasks[task]
    if measure == "accuracy" and "sliding" in plan.evaluation.protocols:
        return  # of a language model the loss says more
    if measure == "loss_ratio" and (len(plan.evaluation.lengths) < 2 or "sliding" not in plan.evaluation.protocols):
        return
    for protocol in plan.evaluation.protocols:
        lengths = sorted({length for arm in plan.arms for length in results.study.lengths_of(Key(task, arm, 0))})
        drawn = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
        drawn.add_column("", no_wrap=True)
        for length in lengths:
            drawn.add_column(f"{length:,}", justify="right", no_wrap=True)
        for arm in plan.arms:
            for variant in (AS_TRAINED, *results.study.arms[arm].at_test):
                found = [
                    results.value(task, arm, measure, length=length, variant=variant, protocol=protocol)
                    for length in lengths
                ]
                few = (some_seeds(value, len(plan.seeds)) for value in found)
                cells = [
                    f"{number(value)}{f' ({note})' if note else ''}" for value, note in zip(found, few, strict=True)
                ]
                if any(cell != "-" for cell in cells):
                    drawn.add_row(safe(f"{arm}{f', {variant}' if variant else ''}"), *cells)
        if drawn.row_count:
            page.line()
            cut = {"whole": "", "sliding": ", sliding window"}[protocol] if len(plan.evaluation.protocols) > 1 else ""
            page.line(Text(f"{task}: {_TITLES[measure]}{cut}, by length in tokens", style="bold underline"))
            _print_whole(page, drawn)


def _print_whole(page: Page, drawn: Table) -> None:
    """Print a table as wide as it needs to be: numbers are not broken over lines, even in a narrow terminal."""
    wide = page.console.options.update(max_width=10_000, width=10_000)
    width = max(page.width, page.console.measure(drawn, options=wide).maximum)
    Console(file=page.console.file, width=width, highlight=False, markup=False).print(drawn)


def _print_drops(page: Page, results: Results, task: str) -> None:
    said = drop_answers(results, task)
    if said:
        page.line()
        page.line(Text(f"{task}: what dropping the position encoding does", style="bold underline"))
        for each in said:
            page.hanging("  - ", each)


_FAULTS_SHOWN = 3  # of an arm, by what the last of its models loses


def _print_kept_models(page: Page, results: Results, task: str) -> None:
    """What was measured of the kept models of each arm, a column for each step."""
    for arm in results.study.tasks[task].arms:
        measured = results.kept_models(task, arm)
        if not measured:
            continue
        faults = [each for each in measured if "fault" in split_measure(each)[0]]
        least = sorted(faults, key=lambda each: -measured[each][max(measured[each])].mean)[_FAULTS_SHOWN:]
        steps = sorted({step for each in measured.values() for step in each})
        drawn = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
        drawn.add_column("", no_wrap=True)
        for step in steps:
            drawn.add_column(f"{step:,}", justify="right", no_wrap=True)
        for measure, by_step in measured.items():
            if measure not in least:
                drawn.add_row(safe(measure), *(number(by_step.get(step)) for step in steps))
        page.line()
        page.line(Text(f"{task}: {safe(arm)}, kept models by training step", style="bold underline"))
        _print_whole(page, drawn)
        if least:
            page.paragraph(f"{number_of(len(least), 'fault')} with a smaller rise at the end: see the page or a table.")


def print_shipped(studies: Mapping[str, Study | ClockhandsError]) -> None:
    """The studies that come with the library, one line each; for an unreadable one, what it needs."""
    rows = []
    for name, each in studies.items():
        known = not isinstance(each, ClockhandsError)
        rows.append(
            (name, f"{each.question} ({len(each.trial_keys())} trials)" if known else f"{each.message} {each.hint}")
        )
    _print_rows(rows)


def print_stored(found: Sequence[tuple[StoredStudy, Sequence[Trial]]]) -> None:
    """The studies of a store, a line each."""
    rows = []
    for each, trials in found:
        states = {state: sum(t.state == state for t in trials) for state in ("finished", "failed", "waiting")}
        counts = ", ".join(f"{count} {state}" for state, count in states.items() if count)
        rows.append((each.name, f"{counts}; {each.hash[:12]}, first run {each.created}"))
    _print_rows(rows)


_LONGEST = 30  # letters of a name next to which there is still room for text


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Names, and words beside them in one column; a name that is too long for that has a line of its own."""
    page = Page(console_on(None, None))
    width = max((cell_len(safe(name)) for name, _ in rows if cell_len(safe(name)) <= _LONGEST), default=0) + 4
    for name, words in rows:
        label = f"  {safe(name)}"
        if cell_len(label) + 2 > width:
            page.line(label)
            label = ""
        page.hanging(label + " " * (width - cell_len(label)), words)


def print_forecast(found: "Forecast", file: IO[str] | None = None) -> None:
    """What a study would cost."""
    page = Page(console_on(file, None))
    page.paragraph(f"{found.study.name}: {sum(each.trials for each in found.arms)} trials. Nothing was stored.")
    drawn = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(("task", "arm", "trials", "parameters", "training of one", "evaluation of one")):
        drawn.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    for each in found.arms:
        times = duration(each.training), duration(each.evaluation)
        drawn.add_row(safe(each.task), safe(each.arm), f"{each.trials}", f"{each.parameters:,}", *times)
    page.line()
    _print_whole(page, drawn)
    page.line()
    if found.peak is not None:
        page.paragraph(
            f"Memory: {readable(found.peak)} at most for the process that measured; {found.at_once} such processes run "
            "at a time."
        )
    page.paragraph(
        f"Time: {duration(found.seconds)} of trials, about {duration(found.seconds / found.at_once)} with "
        f"{found.at_once} at a time, where nothing else runs."
    )


def print_tuned(found: Sequence[Tuned], file: IO[str] | None = None) -> None:
    """The best learning rates as TOML for the study file, with the losses that each was chosen by as comments."""
    page = Page(console_on(file, None))
    page.line("# For the study file: each line belongs to the arm of that name.")
    for arm in dict.fromkeys(each.arm for each in found):
        page.line()
        page.line(f"[arms.{_toml_key(arm)}]")
        mine = [each for each in found if each.arm == arm]
        for each in mine:
            tried = ", ".join(f"{rate!r}: {loss:.4f}" for rate, loss in each.losses.items())
            end = "; the best is at the end of the grid" if each.at_end else ""
            end = "; every rate failed or is not finished" if each.best is None else end
            page.line(f"# {each.task}: losses {tried}{end}")
        if rates := [f"{_toml_key(each.task)} = {each.best!r}" for each in mine if each.best is not None]:
            page.line(f"learning_rate = {{ {', '.join(rates)} }}")


def _toml_key(name: str) -> str:
    # The other characters allowed in the name of a study need no escape.
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else f'"{name}"'
