"""An audit as text on a terminal or in a pipe: the verdict, the problems with their fixes, then what was read.

The report is short: a line for each part of the model, and one for all notes that every correct model of the type has.
``verbose`` adds every value with its source, the properties, what each runtime computes, and the notes. A source is
never broken, so that it can be searched for. Nothing depends on colour.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clockhands.auditing import CODES, Audit, Finding
from clockhands.auditing.extending import LABELS, SHAPES, Extension, Way
from clockhands.auditing.findings import price_in_words
from clockhands.auditing.findings.weights import LIMITS, Pairing
from clockhands.auditing.fixes import changed_lines
from clockhands.auditing.layer_words import in_short, label_of, places_of, rows_of, title_of, together, where_of
from clockhands.auditing.length_answers import OPTIONS, LengthAnswer, lines_of_change
from clockhands.auditing.main_properties import MainProperties
from clockhands.configs.resolved import COMPUTED, LayerEncoding
from clockhands.measures import SHORT
from clockhands.phrases import listed, spoken
from clockhands.runtimes.telling import layers_in_words, runtime_rows, runtimes_in_short
from clockhands.show._page import LABEL, SEVERITY_STYLES, Page, console_on, safe
from clockhands.show.findings import evidence_to_show, grade_of, worst_first

_LIBRARY = re.compile(r"(?<=\w) \((\w+ \d[\w.]*)\)")  # ` (transformers 5.23.0)` after a class or an architecture
_BETWEEN = re.compile(r", | [+/x] ")
_FILE = re.compile(r"^\(?(?P<file>.*?\.(?P<suffix>[A-Za-z]+)):")

_SENTENCE = re.compile(r"(?<=[.?]) (?=[A-Z0-9])")  # where one ends and the next begins

_NAMES = 32  # width of the column of the names of properties
_VERDICT_STYLES = SEVERITY_STYLES | {"sound": "bold green", "note": "bold"}


def print_audit(
    audit: Audit, file: IO[str] | None = None, width: int | None = None, *, verbose: bool = False, quiet: bool = False
) -> None:
    """Print the report of one audit.

    Args:
        audit: What to show.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
        verbose: Whether everything is shown.
        quiet: Whether only problems are shown; without any, nothing is printed.
    """
    if not quiet or audit.problems:
        _AuditPage(console_on(file, width), audit).print(verbose=verbose, quiet=quiet)


def print_audits(
    audits: Sequence[Audit],
    failures: Sequence[Mapping[str, str]] = (),
    file: IO[str] | None = None,
    width: int | None = None,
    *,
    verbose: bool = False,
    quiet: bool = False,
) -> None:
    """Print the report of several audits: a line for each target, the worst first, then the problems of each.

    Args:
        audits: What to show.
        failures: Targets that could not be read: ``target``, ``message`` and ``hint`` of each.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
        verbose: Whether each target has its whole report.
        quiet: Whether only problems are shown.
    """
    if len(audits) < 2:
        for audit in audits:
            print_audit(audit, file, width, verbose=verbose, quiet=quiet)
        return
    page = Page(console_on(file, width))
    ordered = sorted(audits, key=worst_first)
    if not quiet:
        _print_table(page, ordered, failures)
    if not verbose and not quiet and any(audit.problems for audit in ordered):
        page.line()
    for audit in ordered:
        if verbose:
            page.line()
            print_audit(audit, file, width, verbose=True)
        elif audit.problems:
            _AuditPage(page.console, audit).problems()


def _print_table(page: Page, ordered: Sequence[Audit], failures: Sequence[Mapping[str, str]]) -> None:
    """A line for each target with a problem, then one for the unknown ones together, and one for the correct ones."""
    wrong = [audit for audit in ordered if audit.problems]
    others = [audit for audit in ordered if not audit.problems]
    names = max(
        (cell_len(safe(each)) for each in [*(a.target for a in wrong), *(f["target"] for f in failures)]), default=0
    )
    names = min(names, max(20, page.width - 42)) + 2
    for failure in failures:
        page.line(Text.assemble(_column(failure["target"], names), ("unreadable", "bold red")))
    for audit in wrong:
        worst = audit.problems[0]
        tally = f"{len(audit.problems)} problem{'s' if len(audit.problems) > 1 else ' '}"
        style = SEVERITY_STYLES[worst.severity]
        page.line(Text.assemble(_column(audit.target, names), f"{tally}  ", (worst.severity, style), f" {worst.code}"))
    kinds = (
        ("with no problems but those known or ignored", "bold", None),
        ("with no encoding that was recognised", "bold", (False, False)),
        ("with no problem found, but something that is not known", "bold", (True, False)),
        ("correct", "green", (True, True)),
    )
    for words, style, known in kinds:
        held = [safe(audit.target) for audit in others if _standing(audit) == known]
        names_of = ", ".join(held)
        named = f": {names_of}" if len(names_of) <= _CORRECT_LINES * page.width else " (--verbose shows each of them)"
        if held:
            page.paragraph(f"{len(held)} {words}{named}", style=style)


def _standing(audit: Audit) -> tuple[bool, bool] | None:
    """Whether an audit without a problem recognised an encoding, and is correct; None if problems were taken out."""
    taken_out = any(each.severity != "note" for each in (*audit.known, *audit.left_out))
    return None if taken_out else (audit.recognised, audit.correct)


# The most lines of names of correct targets.
_CORRECT_LINES = 6


def _column(target: str, width: int) -> str:
    """A target in a column; one that is wider keeps two blanks behind it."""
    return safe(target).ljust(width - 2) + "  "


class _AuditPage(Page):
    """One report: the audit and the short names of its files."""

    def __init__(self, console: Console, audit: Audit) -> None:
        super().__init__(console)
        self.audit = audit
        self.files = _short_names(audit)
        self.libraries = list(dict.fromkeys(found for source in _sources(audit) for found in _LIBRARY.findall(source)))

    def print(self, *, verbose: bool, quiet: bool) -> None:
        self.line(Text(safe(self.audit.target), style="bold"))
        self.paragraph(self.audit.verdict, style=_VERDICT_STYLES[grade_of(self.audit)])
        if not quiet:
            self.answer()
        for finding in self.audit.problems:
            if not verbose and self.audit.fixed_with(finding) is not None:
                self.head(finding)
                self.paragraph("This is about a value that the fix above sets.", indent=2)
                continue
            self.line()
            self.problem(finding)
        if quiet:
            return
        if verbose:
            self.details()
            return
        self.line()
        self.summary()
        if self.audit.weights is not None and self.audit.weights.examined:
            self.weights(self.audit.weights)
        if self.audit.extension is not None:
            self.line()
            print_extension(self, self.audit.extension)
        self.notes()

    def problems(self) -> None:
        """The problems only, after the name of the target: the first sentence of each, and its fix as text."""
        for finding in self.audit.problems:
            if self.audit.fixed_with(finding) is None:
                self.head(finding, Text(f"{safe(self.audit.target)}: ", style="bold"))
                self.paragraph(self.shortened(_SENTENCE.split(finding.message, maxsplit=1)[0]), indent=2)
                self.paragraph(f"fix: {self.shortened(finding.change or finding.hint)}", indent=2)

    def problem(self, finding: Finding) -> None:
        """What is wrong, the fix, and the evidence."""
        self.head(finding)
        self.paragraph(self.shortened(finding.problem), indent=2)
        lines = list(changed_lines(self.audit, finding))
        if lines:
            self.paragraph(f"fix: {self.shortened(finding.change)}", indent=2)
        for line in lines:
            self.line(Text(f"    {safe(line)}", style="green" if line.startswith("+") else "red"))
        if not lines:
            fix = finding.change or finding.hint
            self.paragraph(f"fix: {self.shortened(fix)}", indent=2)
        if finding.price is not None:
            self.paragraph(f"price: {price_in_words(finding.price)}", indent=2)
        self.evidence(finding)

    def head(self, finding: Finding, before: Text | str = "") -> None:
        """Severity, code and layers, in one line."""
        head = f" {finding.code}"
        if finding.layers:
            room = self.width - cell_len(str(before)) - len(finding.severity + head) - len(", layers ")
            head += f", {layers_in_words(finding.layers, most=room)}"
        self.line(Text.assemble(before, (finding.severity, SEVERITY_STYLES[finding.severity]), safe(head)))

    def evidence(self, finding: Finding) -> None:
        """The values that the message does not contain, and the sources of all."""
        shown = dict(evidence_to_show(finding))
        said = [name for name, value in shown.items() if value in finding.message]
        if said:
            self.paragraph(f"source: {self.place(', '.join(said))}", style="dim", indent=2)
        for name, value in shown.items():
            if name not in said:
                self.pair(self.shortened(safe(name)), safe(value))

    def summary(self) -> None:
        """A line for each part of the model."""
        audit = self.audit
        if audit.model_type is not None or audit.context is not None:
            context = f"context length {spoken(audit.context)}" if audit.context else "no context length declared"
            self.row("model", f"{audit.model_type or 'type not named'}, {context}", None)
        self.length()
        if unread := self.unread():
            self.row("not read", self.place(", ".join(unread)), None)
        shown = audit.layers[:_LAYERS_SHOWN]
        labels = [label_of(code) for code in shown]
        column = min(max([len(label) for label in labels] + [LABEL - 4]) + 4, self.width // 2)
        for label, code in zip(labels, shown, strict=True):
            name = f"  {safe(label)}"
            if len(name) + 2 > column:  # a line of its own
                self.line(name)
                name = ""
            self.hanging(name.ljust(column), in_short(code))
        if len(audit.layers) > len(shown):
            self.row("", f"and {len(audit.layers) - len(shown)} more (--verbose)", None)
        self.remarks()
        if words := runtimes_in_short(audit.readings):
            self.row("runtimes", words, None)
        self.of_class()

    def of_class(self) -> None:
        """What the class of the model computes, or how to ask it where its type is not known."""
        unknown = (each.evidence for each in self.audit.findings if each.code == "unknown-model-type")
        if self.audit.of_class is not None:
            self.row("class", safe(self.audit.of_class.says), None)
        elif any(place.endswith("model_type") and value for held in unknown for place, value in held.items()):
            self.row("class", "not known; --with transformers reads it, if the installed Transformers has it", None)

    def answer(self) -> None:
        """What to set for the length that was asked for, what is known of it, and the memory that it takes."""
        extension, cache = self.audit.extension, self.audit.cache
        if extension is not None:
            self.line()
            answer = extension.answer
            found = "no setting" if answer is None else answer.scaling
            self.line(Text(f"for {extension.length:,} positions: {found}", style="bold"))
            if answer is None:
                self.rows("why", extension.without or extension.sound[:1])
            else:
                self.setting(answer)
        if cache is not None:
            self.line()
            self.row("KV cache", " ".join((cache.says, *cache.assumes)), None)

    def setting(self, answer: LengthAnswer) -> None:
        """The scaling to begin with: why, how each runtime takes it, and what is known of its quality."""
        self.row("why", answer.why, None)
        faults = [each.code for each in self.audit.problems if each.blames == "file"]
        if faults:
            words = f"fix {listed(list(dict.fromkeys(faults)))}: the settings are for the files as they are."
            self.row("first", words, None)
        for setting in answer.settings:
            self.line(Text(f"  {OPTIONS[setting.runtime]}:"))
            for line in setting.lines:
                self.line(Text(f"    {safe(line)}"))  # what is copied must not be broken
        self.row("untrained", answer.untrained, None)
        self.rows("published", answer.published)

    def notes(self) -> None:
        """Notes worth reading, one line each; those that correct models of the type have, together in one line."""
        notes = [finding for finding in self.audit.findings if finding.severity == "note"]
        news = [finding for finding in notes if CODES[finding.code].news]
        if notes:
            self.line()
        for finding in news:
            text = f"note {finding.code}: {self.shortened(finding.message)}"
            self.paragraph(text)
        expected = {finding.code for finding in notes if finding not in news}
        if len(expected) == 1:
            self.paragraph("1 note needs no action; --verbose shows it.", style="dim")
        elif expected:
            self.paragraph(f"{len(expected)} notes need no action; --verbose shows them.", style="dim")

    def details(self) -> None:
        """Every value with its source, the properties, what each runtime computes, and the notes."""
        known = any(value is not None for value in (self.audit.model_type, self.audit.context, self.audit.length))
        if known or self.unread():
            self.heading()
        for code in self.audit.layers:
            self.line()
            self.code(code)
        if self.audit.weights is not None:
            self.line()
            self.weights(self.audit.weights)
        if self.audit.properties:
            self.line()
            print_main_properties(self, self.audit.properties)
        rows = list(runtime_rows(self.audit.readings, self.audit.reach))
        self.of_class()
        if rows:
            self.line()
            self.line(Text("runtimes", style="bold"))
        for label, text in rows:
            self.row(label, self.shortened(safe(text)), None)
        if self.audit.extension is not None:
            self.line()
            print_extension(self, self.audit.extension)
        for finding in self.audit.findings:
            if finding.severity == "note":
                self.line()
                self.head(finding)
                self.paragraph(self.shortened(finding.problem), indent=2)
                self.evidence(finding)
                self.paragraph(self.shortened(finding.hint), indent=2)

    def heading(self) -> None:
        self.line()
        sources = self.audit.source
        if self.audit.model_type is not None or self.audit.context is not None:
            self.row("model type", self.audit.model_type or "not named", sources.get("model_type"))
            context = f"length {spoken(self.audit.context)}" if self.audit.context else "not declared"
            self.row("context", context, sources.get("context"))
        self.length()
        if self.libraries:
            self.row("defaults", f"from {' and '.join(self.libraries)}")
        if unread := self.unread():
            self.row("not read", self.place(", ".join(unread)), None)
        self.remarks()
        for name, short in self.files.items():
            self.row("sources", f"{short}: is {safe(Path(name).name)}", None)

    def remarks(self) -> None:
        """What the types do with positions besides the layers."""
        for part, says in self.audit.remarks:
            self.row("besides", f"{part}: {says}", None)

    def unread(self) -> list[str]:
        """Keys that were not read; those that a finding names already are left out."""
        told = {name for finding in self.audit.findings for name in finding.evidence}
        return [place for place in self.audit.ignored if place not in told]

    def length(self) -> None:
        """The requested length, or the one for which the frequencies are computed, if they depend on it."""
        length = self.audit.length
        if length is None or length == self.audit.context:
            return
        scalings = [code.scaling or {} for code in self.audit.layers]
        bent = any(code.by_length and code.rates for code in self.audit.layers)
        if not bent and length in [scaling.get("original") for scaling in scalings]:
            return  # it is shown with the scaling, and is not the length for these frequencies
        hold = ", for which the frequencies are computed" if bent else ""
        self.row("length", f"{spoken(length)}{hold}", self.audit.source.get("length"))

    def code(self, code: LayerEncoding) -> None:
        self.beside(title_of(code), "", places_of(code, "layers"), style="bold")
        for label, value, fields in rows_of(code):
            self.row(label, value, *places_of(code, *fields))

    def weights(self, found: Pairing) -> None:
        self.paragraph(f"weights: {safe(found.says)}")
        if found.examined:
            self.paragraph(LIMITS, indent=2)

    def place(self, source: str) -> str:
        """A source with its keys joined, and without what the heading already says."""
        return self.shortened(together(safe(source)))

    def shortened(self, text: str) -> str:
        """The text without what the heading already says: libraries, and long file names replaced by short ones."""
        text = _LIBRARY.sub("", text)
        for name, short in self.files.items():
            text = text.replace(f"{safe(name)}:", f"{short}:")
        return text


_LAYERS_SHOWN = 7


def _sources(audit: Audit) -> Iterator[str]:
    for holder in (audit, *audit.layers):
        yield from holder.source.values()


def _short_names(audit: Audit) -> dict[str, str]:
    """A short name for each long file name, so that sources fit next to their values: `gguf` for a long `….gguf`."""
    names: dict[str, str] = {}
    # What is computed from several sources has words before the files, and commas or signs between them.
    terms = (term for source in _sources(audit) for term in _BETWEEN.split(source.removeprefix(COMPUTED)))
    for found in filter(None, map(_FILE.match, terms)):
        long = len(found["file"]) > len("model.safetensors") and found["suffix"] != "py"
        if long and found["suffix"] not in names.values():
            names.setdefault(found["file"], found["suffix"])
    return names


# What other readers compute


# What the codes can and cannot do


def print_main_properties(page: Page, found: tuple[MainProperties, ...]) -> None:
    """Print the main properties of each group of layers, those that have the same ones together.

    Args:
        page: Where to print.
        found: What was measured.
    """
    page.paragraph("properties (all: clockhands properties)", style="bold")
    beside = page.width >= 2 * _NAMES
    for (over, lines), group in groupby(found, key=lambda one: (one.over, _briefs(one))):
        where = "; ".join(filter(None, (where_of(one) for one in group)))
        page.paragraph(f"{where}, {over}" if where else over, indent=2)
        for label, value in lines:
            if not beside:
                page.paragraph(f"{label}: {value}", indent=4)
                continue
            page.hanging(f"    {label}".ljust(_NAMES), value)


def _briefs(one: MainProperties) -> tuple[tuple[str, str], ...]:
    """A name and a value for each property."""
    return tuple((SHORT[name], each.brief) for name, each in one.properties.items())


# What a model is served with past its context


def print_extension(page: Page, extension: Extension) -> None:
    """Print what is sound at the length, each way with its change and its price, and what cannot be promised."""
    page.line(Text(f"at {extension.length:,} positions, past the context of {extension.context:,}", style="bold"))
    for sentence in extension.sound:
        page.paragraph(sentence, indent=2)
    for way in extension.ways:
        page.line()
        _print_way(page, way, extension)
    labels = dict.fromkeys(cost.label for way in extension.ways for cost in way.costs if cost.source)
    how = [f"{label}: {LABELS[label]}." for label in labels]
    for label, sentences in (("figures", how), ("no block", extension.without), ("no promise", extension.cannot)):
        if sentences:
            page.line()
        page.rows(label, sentences)


def _print_way(page: Page, way: Way, extension: Extension) -> None:
    page.line(Text(f"  {way.scaling}", style="bold"))
    for sentence in way.says:
        page.paragraph(sentence, indent=4)
    for shape, values in way.values.items():
        page.paragraph(f"{SHAPES[shape]}:", indent=4)
        for line in lines_of_change(shape, values):
            # A line that is copied must not be broken.
            page.line(Text(f"      {safe(line)}"))
        if way.warns.get(shape):
            page.paragraph(f"the audit then still says {', '.join(way.warns[shape])}", indent=6)
    answer = extension.answer
    for cost in () if answer is not None and answer.scaling == way.scaling else way.costs:  # the answer has its own
        page.paragraph(f"known: {cost.in_words}", indent=4)
