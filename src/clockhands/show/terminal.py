"""An audit as text on a terminal or in a pipe: the verdict, the problems with their fixes, then what was read.

The report is short: a line for each part of the model, and one for all notes that every correct model of the type has.
``verbose`` adds every value with its source, the properties, what each runtime computes, and the notes. A source is
never broken, so that it can be searched for. Nothing depends on colour.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clockhands.arguments import listed
from clockhands.auditing import CODES, Audit, Finding
from clockhands.auditing.extending import LABELS, SHAPES, Extension, Way
from clockhands.auditing.findings import in_a_file, price_in_words, spoken
from clockhands.auditing.findings.weights import LIMITS, Pairing
from clockhands.auditing.fixes import file_of, lines_of_edit
from clockhands.auditing.main_properties import MainProperties
from clockhands.configs.resolved import COMPUTED, Code
from clockhands.encodings.layouts import LAYOUTS
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scores import score_scale
from clockhands.errors import ClockhandsError
from clockhands.measures import SHORT
from clockhands.runtimes import TEXT, Reading
from clockhands.runtimes.telling import part_in_words, parted_in_words, release
from clockhands.show._page import LABEL, SEVERITY_STYLES, Page, broken, console_on, safe
from clockhands.show.findings import what_is_wrong, what_mends_it, worst_first

_PLURAL = {"sin": "sines", "cos": "cosines", "-sin": "sines with a minus", "-cos": "cosines with a minus"}
_LIBRARY = re.compile(r"(?<=\w) \((\w+ \d[\w.]*)\)")  # ` (transformers 5.23.0)` after a class or an architecture
_BETWEEN = re.compile(r", | [+/x] ")
_FILE = re.compile(r"^\(?(?P<file>.*?\.(?P<suffix>[A-Za-z]+)):")

_SENTENCE = re.compile(r"(?<=[.?]) (?=[A-Z0-9])")  # where one ends and the next begins

_PORT = "an implementation without RoPE scaling"

_NAMES = 32  # width of the column of their names


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


def verdict_style(audit: Audit) -> str:
    """The style in which the verdict is printed."""
    if audit.problems:
        return SEVERITY_STYLES[audit.problems[0].severity]
    return "bold green" if audit.correct else "bold"


class _AuditPage(Page):
    """One report: the audit and the short names of its files."""

    def __init__(self, console: Console, audit: Audit) -> None:
        super().__init__(console)
        self.audit = audit
        self.files = _short_names(audit)
        self.libraries = list(dict.fromkeys(found for source in _sources(audit) for found in _LIBRARY.findall(source)))

    def print(self, *, verbose: bool, quiet: bool) -> None:
        self.line(Text(safe(self.audit.target), style="bold"))
        self.paragraph(self.audit.verdict, style=verdict_style(self.audit))
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
                self.paragraph(f"fix: {self.shortened(what_mends_it(finding) or finding.hint)}", indent=2)

    def problem(self, finding: Finding) -> None:
        """What is wrong, the fix, and the evidence."""
        self.head(finding)
        self.paragraph(self.shortened(what_is_wrong(finding)), indent=2)
        lines = list(changed_lines(self.audit, finding))
        if lines:
            self.paragraph(f"fix: {self.shortened(what_mends_it(finding))}", indent=2)
        for line in lines:
            self.line(Text(f"    {safe(line)}", style="green" if line.startswith("+") else "red"))
        if not lines:
            fix = what_mends_it(finding) or finding.hint
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
        labels = [_where(code) for code in shown]
        column = min(max([len(label) for label in labels] + [LABEL - 4]) + 4, self.width // 2)
        for label, code in zip(labels, shown, strict=True):
            self.beside(in_short(code), f"  {safe(label)}".ljust(column), ())
        self.remarks()
        if len(audit.layers) > len(shown):
            self.row("", f"and {len(audit.layers) - len(shown)} more (--verbose)", None)
        if words := _runtimes_in_short(audit.readings):
            self.row("runtimes", words, None)

    def notes(self) -> None:
        """Notes worth reading, one line each; those that correct models of the type have, together in one line."""
        notes = [finding for finding in self.audit.findings if finding.severity == "note"]
        news = [finding for finding in notes if CODES[finding.code].news]
        if notes:
            self.line()
        for finding in news:
            text = f"note {finding.code}: {self.shortened(finding.message)}"
            self.paragraph(text)
        if expected := list(dict.fromkeys(finding.code for finding in notes if finding not in news)):
            number = f"{len(expected)} note{'s' if len(expected) > 1 else ''}"
            self.paragraph(f"{number}, expected for this model (--verbose): {', '.join(expected)}", style="dim")

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
        rows = list(rows_of_readers(self.audit.readings, self.audit.reach))
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
                self.paragraph(self.shortened(what_is_wrong(finding)), indent=2)
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

    def code(self, code: Code) -> None:
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


def _where(code: Code) -> str:
    """Part and layers, short enough for a column."""
    part = "" if code.part in ("text", "other") else part_in_words(code.part)
    where = "input" if code.layers == "input" else code.layers and layers_in_words(code.layers, most=16)
    return " ".join(filter(None, (part, where))) or "encoding"


def in_short(code: Code) -> str:
    """One encoding in a line.

    >>> in_short(Code("text", "0-3", "rotary", layout="halves", width=4, rotated=4, base=1e4, rates=(1.0, 0.01)))
    'RoPE, half-split, 4 of 4 dimensions, base 10,000'
    """
    if code.kind == "rotary":
        words = ["RoPE", LAYOUTS.get(code.layout or "", "layout not known")]
        words += [f"{spoken(code.rotated)} of {spoken(code.width)} dimensions"] if code.rotated and code.width else []
        words += [] if code.sections is None else [f"sections {sections_in_words(code)}"]
        words += [] if code.base is None else [f"base {spoken(code.base)}"]
        words += [] if code.rates else ["frequencies cannot be computed"]
        words += [scaling_in_words(code.scaling)] if code.scaling else []
    else:
        words = [title_of(code).rpartition(": ")[2]]
        words += [f"width {spoken(code.width)}"] if code.width is not None and code.kind != "none" else []
        words += [] if code.rows is None else [f"{spoken(code.rows)} rows"]
        if code.rows is not None and code.usable_length not in (None, code.rows):
            words.append(f"{spoken(code.usable_length)} usable positions")
    if code.window is not None:
        words.append(f"sliding window, {code.seen}" if code.two_sided else f"sliding window {spoken(code.window)}")
    words += [] if code.chunk is None else [f"chunks of {spoken(code.chunk)}"]
    words += [] if code.score_scale is None else [f"scores {code.score_scale.words}"]
    return ", ".join(words)


def _runtimes_in_short(readings: Iterable[Reading]) -> str:
    """How many runtimes compute the same, and which do not; empty if none can be compared."""
    held = [each for each in readings if each.of_program]
    words = []
    reasons = {each.because for each in held if each.verdict == "unknown"}
    if all(each.verdict == "unknown" for each in held):
        return ""
    same = [release(each) for each in held if each.verdict == "same"]
    if same:
        every = "all " if len(same) == len(held) else ""
        known = f"{every}{len(same)} runtimes whose code was read compute these values"
        left = dict.fromkeys(name for each in held if each.verdict == "same" for name in each.not_compared)
        but = f" ({listed(left)} not compared)" if left else ""
        words.append(f"{known if len(same) > 3 else f'{listed(same)}: these values'}{but}")
    words += [f"{release(each)} differs" for each in held if each.verdict == "differs"]
    words += [f"{release(each)} refuses it" for each in held if each.verdict == "refuses" and each.has_type]
    # A runtime without the type refuses every file of it, which says nothing about this one.
    if without := [release(each) for each in held if each.verdict == "refuses" and not each.has_type]:
        words.append(f"without this model type: {listed(without)}")
    if unknown := [release(each) for each in held if each.verdict == "unknown"]:
        alone = len(reasons) == 1 and len(unknown) == len(held) - 1
        words.append("others not compared" if alone else f"not compared (--verbose says why): {listed(unknown)}")
    return "; ".join(words)


# Longer lines of a file are not printed to show a change in them.
_LONGEST_LINE = 200


def changed_lines(audit: Audit, finding: Finding) -> Iterator[str]:
    """The lines of the file that the fix of a finding removes and adds, with ``-`` and ``+`` before them."""
    if audit.path is None or finding.edit is None or not finding.edit.patch or finding.edit.file is None:
        return
    try:
        lines = list(lines_of_edit(file_of(audit.path, finding.edit.file), finding.edit))
    except (ClockhandsError, OSError, ValueError):  # the file is gone or was changed meanwhile: the sentence remains
        return
    if all(len(line) <= _LONGEST_LINE for line in lines):  # a config in one line would be printed twice completely
        yield from lines


def evidence_to_show(finding: Finding) -> Iterator[tuple[str, str]]:
    """The evidence with its sources, and numbers that the message does not contain."""
    for name, value in finding.evidence.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in finding.evidence.get("mistakes", ()):
            yield name, str(value)
        elif in_a_file(name) or (number and spoken(value) not in finding.message):
            yield name, spoken(value)


def places_of(code: Code, *fields: str) -> list[str]:
    """The sources of some fields of a code, without repetitions."""
    # What is computed from the lines above has its sources there.
    told = (code.source.get(field, "") for field in fields)
    places = list(dict.fromkeys(source for source in told if source and not source.startswith(COMPUTED)))
    return [place for place in places if not any(place in other for other in places if other != place)]


def together(source: str) -> str:
    """Join several keys of one object of one file.

    >>> together("config.json:rope_scaling.type, config.json:rope_scaling.factor")
    'config.json:rope_scaling.{type, factor}'
    >>> together("config.json:head_dim, class default of llama")
    'config.json:head_dim, class default of llama'
    """
    parts = [part.rpartition(".") for part in source.split(", ")]
    place = parts[0][0]
    if len(parts) < 2 or ":" not in place or any(part[0] != place or " " in part[2] for part in parts):
        return source
    return f"{place}.{{{', '.join(part[2] for part in parts)}}}"


_KINDS = {"rotary": "RoPE", "none": "no position encoding", "": "an encoding that is not recognised"}


def title_of(code: Code, most: int | None = None) -> str:
    """The layers and their encoding: `layers 0-29: RoPE`; with ``most``, as `layers_in_words` shortens a long list."""
    part = "" if code.part in ("text", "other") else part_in_words(code.part)
    where = "added to the input" if code.layers == "input" else code.layers and layers_in_words(code.layers, most)
    kind = code.kind or ("" if code.spec is None else type(code.spec).__name__)
    kind = _KINDS.get(kind, kind)
    place = ", ".join(filter(None, (part, where)))
    return f"{place}: {kind}" if place else kind


def rows_of(code: Code) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The lines of one code: name, value and the fields whose sources are shown with it."""
    if code.kind == "none":
        yield from _window(code)
        return
    if code.layout is not None:
        yield "layout", layout_in_words(code), ("layout",)
    elif code.kind == "rotary":
        yield "layout", "not known: only the model's code says it", ()
    if code.kind == "rotary":
        turned = f"{code.rotated} of {code.width} per head" if code.rotated and code.width else "not known"
        yield "RoPE dims", turned, ("rotated", "width")
        if code.sections is not None:
            yield "sections", sections_in_words(code), ("axes",)
    elif code.width is not None:
        yield "width", spoken(code.width), ("width",)
    if code.base is not None:
        yield "base", spoken(code.base), ("base",)
    if code.rates:
        yield "frequencies", rates_in_words(code.rates), ("rates",)
        yield "wavelengths", wavelengths_in_words(code.rates), ()
    elif code.kind == "rotary":
        yield "frequencies", "cannot be computed", ()
    if code.kind == "rotary":
        yield "scaling", scaling_in_words(code.scaling), ("scaling",)
        if code.attention_factor is not None:
            yield "attention", f"factor {spoken(code.attention_factor)} on cos and sin", ("attention_factor",)
    if code.rows is not None:
        yield "rows", spoken(code.rows), ("rows",)
    if code.offset is not None:
        yield "offset", f"position 0 is row {spoken(code.offset)}", ("offset",)
    if code.rows is not None and code.usable_length not in (None, code.rows):
        yield "usable", f"{spoken(code.usable_length)} positions", ()
    yield from _window(code)


def _window(code: Code) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if code.window is not None:
        yield "window", code.seen, ("window",)
    if code.chunk is not None:
        yield "chunk", code.seen, ("chunk",)
    if code.score_scale is not None:
        yield "scores", score_scale_in_words(code), ("score_scale",)


def score_scale_in_words(code: Code) -> str:
    """The factor on scores at position ``p``, and its value at the last position.

    >>> from clockhands.encodings.scores import FloorLogScale
    >>> score_scale_in_words(Code("text", "3", "none", score_scale=FloorLogScale(8192), usable_length=32768))
    'multiplied by 1 + 0.1 ln(1 + floor(p / 8,192)) at position p: grows from position 8,192, 1.13863 at 32,767'
    """
    scale = code.score_scale
    if scale is None:
        return "not scaled"
    if scale.grows_from is None:
        return scale.words
    last = None if code.usable_length is None else code.usable_length - 1
    end = (
        ""
        if last is None or last < scale.grows_from
        else f", {spoken(float(score_scale(scale, [last])[0]))} at {last:,}"
    )
    return f"{scale.words}: grows from position {scale.grows_from:,}{end}"


def layout_in_words(code: Code) -> str:
    """Which channels form a pair, as text.

    >>> layout_in_words(Code("text", "0-3", "rotary", layout="halves", rotated=64))
    'half-split: pairs (i, i+32)'
    >>> from clockhands.encodings.presets import preset
    >>> layout_in_words(Code("other", "input", "sinusoidal", spec=preset("edm2"), layout="halves"))
    'all cosines'
    """
    first, second = _waves(code.order or "sin-cos")
    match code.kind, code.layout:
        case "rotary", "interleaved":
            return "interleaved: pairs (2i, 2i+1)"
        case "rotary", "halves":
            return f"half-split: pairs (i, i+{_partner(code)})"
        case "sinusoidal", _ if not second:  # one wave for each channel, each with its own phase
            return f"all {_PLURAL[first]}"
        case "sinusoidal", "interleaved":
            return f"interleaved: {first}, {second}, {first}, ..."
        case "sinusoidal", "halves":
            return f"half-split: all {_PLURAL[first]}, all {_PLURAL[second]}"
        case _:
            return str(code.layout)


def _partner(code: Code) -> int | str:
    """How far a dimension is from its partner: half of what its ladder is laid over, of which a part may not rotate.

    >>> from clockhands.encodings.rotary import Rotary
    >>> from clockhands.encodings.scaling import Proportional
    >>> _partner(Code("text", "5", "rotary", Rotary(512, scaling=Proportional(0.25)), layout="halves", rotated=128))
    256
    """
    if isinstance(code.spec, Rotary) and not code.spec.blocks:
        return code.spec.rotated // 2
    return code.rotated // 2 if code.rotated else "half"


def _waves(order: str) -> tuple[str, str]:
    """The two functions of a pair, from the name of their order.

    >>> _waves("cos-sin"), _waves("-sin-cos"), _waves("cos--sin")
    (('cos', 'sin'), ('-sin', 'cos'), ('cos', '-sin'))
    """
    sign = "-" if order.startswith("-") else ""
    first, _, second = order.removeprefix("-").partition("-")
    return sign + first, second


def sections_in_words(code: Code) -> str:
    """How many pairs each axis has, as text; empty for one axis.

    >>> from clockhands.encodings.rotary import Rotary, chunked
    >>> sections_in_words(Code("text", "0-3", "rotary", Rotary(128, axes=chunked([16, 24, 24]))))
    'temporal 16, height 24, width 24 pairs, consecutive'
    """
    found = code.sections
    if found is None:
        return ""
    each = ", ".join(f"{axis} {pairs}" for axis, pairs in zip(found["axes"], found["pairs"], strict=True))
    return f"{each} pairs, {found['order']}"


def rates_in_words(rates: tuple[float, ...]) -> str:
    """The first and the last frequency, as text.

    >>> rates_in_words((1.0, 0.1, 0.01))
    '1 to 0.01 rad/token, 3 pairs'
    """
    return f"{spoken(rates[0])} to {spoken(rates[-1])} rad/token, {len(rates)} pair{'s' if len(rates) > 1 else ''}"


def wavelengths_in_words(rates: tuple[float, ...]) -> str:
    """The wavelengths of the fastest and the slowest pair.

    >>> wavelengths_in_words((1.0, 0.01)), wavelengths_in_words((1.0, 0.0))
    ('6.28319 to 628.319 tokens', '6.28319 tokens; the last pair does not rotate')
    """
    first = spoken(2 * math.pi / rates[0]) if rates[0] else "infinite"
    if not rates[-1]:
        return f"{first} tokens; the last pair does not rotate"
    return f"{first} to {spoken(2 * math.pi / rates[-1])} tokens"


def scaling_in_words(scaling: Mapping[str, Any] | None) -> str:
    """The scaling, its factor and its original length, as text.

    >>> scaling_in_words({"type": "yarn", "factor": 4.0, "original": 32768}), scaling_in_words(None)
    ('yarn, factor 4, original length 32,768', 'none')
    """
    if not scaling:
        return "none"
    words = [str(scaling.get("type"))]
    if scaling.get("factor") is not None:
        words.append(f"factor {spoken(scaling['factor'])}")
    if scaling.get("original") is not None:
        words.append(f"original length {spoken(scaling['original'])}")
    return ", ".join(words)


LISTED = 40
"""How many characters of a list of layers a heading has, where the whole list stands elsewhere."""


def layers_in_words(layers: str | None, most: int | None = None) -> str:
    """Which layers, in a sentence; with ``most``, a long list is shortened to about so many characters.

    >>> layers_in_words("5"), layers_in_words("0-4,6"), layers_in_words("0,2,4,6,8,10", most=15)
    ('layer 5', 'layers 0-4, 6', 'layers 0, 2, ..., 10')
    """
    if layers is None:
        return "some layers"
    if layers == "input":
        return "input"
    spans = layers.split(",")
    words, kept = ", ".join(spans), len(spans)
    while most is not None and kept > 2 and len(words) > most:
        kept -= 1
        words = ", ".join([*spans[: kept - 1], "...", spans[-1]])
    return f"layer{'s' if len(spans) > 1 or '-' in layers else ''} {words}"


def _sources(audit: Audit) -> Iterator[str]:
    for holder in (audit, *audit.layers):
        yield from holder.source.values()


def _short_names(audit: Audit) -> dict[str, str]:
    """A short name for each long file name, so that sources fit next to their values: `gguf` for a long `….gguf`."""
    names: dict[str, str] = {}
    # What is computed from several sources has words before the files, and commas or signs between them.
    terms = (term for source in _sources(audit) for term in _BETWEEN.split(source.removeprefix(COMPUTED)))
    for found in filter(None, map(_FILE.match, terms)):
        if len(found["file"]) > len("model.safetensors") and found["suffix"] not in names.values():
            names.setdefault(found["file"], found["suffix"])
    return names


# What other readers compute


def rows_of_readers(readings: Iterable[Reading], context: int | None) -> Iterator[tuple[str, str]]:
    """Label and text of each line: runtimes that compute the same, that differ and by how much, that refuse the file.

    The last lines are the runtimes that cannot be compared, with the reason.
    """
    held = list(readings)
    if held and all(each.verdict == "unknown" for each in held) and len({each.because for each in held}) == 1:
        yield "not compared", str(held[0].because)
        return
    programs = [each for each in held if each.of_program]
    same = [release(each) for each in programs if each.verdict == "same"]
    if same:
        yield "same", listed(same)
    differing: dict[str, list[str]] = {}
    for each in held:
        if each.verdict == "differs":
            for text in _readings_that_differ(each, context):
                differing.setdefault(text, []).append(_who(each))
    # A pattern that no named runtime follows comes last, unless another reading differs in the same way.
    for text, names in sorted(differing.items(), key=lambda entry: entry[1] == [_PORT]):
        yield "differs", f"{listed(name for name in names if names == [_PORT] or name != _PORT)}: {text}"
    for verdict, label in (("refuses", "refuses"), ("unknown", "not compared")):
        reasons: dict[str | None, list[str]] = {}
        for each in programs:
            if each.verdict == verdict:
                reasons.setdefault(each.because, []).append(release(each))
        for because, names in reasons.items():
            yield label, f"{listed(names)} ({because})" if verdict == "unknown" else f"{listed(names)}: {because}"
    for what in dict.fromkeys(what for each in programs for what in each.not_compared):
        who = [release(each) for each in programs if what in each.not_compared and each.verdict in ("same", "differs")]
        if who:
            yield (
                "not compared",
                f"{what} of {listed(who)} (what it does with those of such a file is not known to clockhands)",
            )
    for each in programs:
        if each.longest is not None and each.verdict != "refuses":
            yield "longest", f"{release(each)} serves up to {each.longest:,} positions"


def _who(reading: Reading) -> str:
    return release(reading) if reading.of_program else _PORT


def _readings_that_differ(reading: Reading, context: int | None) -> Iterator[str]:
    """One text for each kind of difference, with its layers if they do not all differ in the same way."""
    texts: dict[str, list[str | None]] = {}
    for group in reading.parted:
        texts.setdefault(parted_in_words(group, context), []).append(group.layers)
    turned = [code for code in reading.codes if code.kind == "rotary" and code.part in TEXT]
    everywhere = len(texts) == 1 and len(reading.parted) >= len(turned)
    for text, layers in texts.items():
        known = [each for each in layers if each is not None]
        yield f"layers {','.join(known)}: {text}" if known and not everywhere else text


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
            for number, line in enumerate(broken(value, page.width - _NAMES)):
                page.line((f"    {label}" if number == 0 else "").ljust(_NAMES) + line)


def _briefs(one: MainProperties) -> tuple[tuple[str, str], ...]:
    """A name and a value for each property."""
    return tuple((SHORT[name], each.brief) for name, each in one.properties.items())


def where_of(one: MainProperties, most: int | None = None) -> str:
    """The layers as text, as in `layers_in_words`; empty if they are all layers."""
    part = "" if one.part in ("text", "other") else part_in_words(one.part)
    layers = "" if one.layers in (None, "input") else layers_in_words(one.layers, most)
    return ", ".join(filter(None, (part, layers)))


# What a model is served with past its context


def print_extension(page: Page, extension: Extension) -> None:
    """Print what is sound at the length, each way with its change and its price, and what cannot be promised."""
    page.line(Text(f"at {extension.length:,} positions, past the context of {extension.context:,}", style="bold"))
    for sentence in extension.sound:
        page.paragraph(sentence, indent=2)
    for way in extension.ways:
        page.line()
        _print_way(page, way)
    labels = dict.fromkeys(cost.label for way in extension.ways for cost in way.costs if cost.source)
    how = [f"{label}: {LABELS[label]}." for label in labels]
    for label, sentences in (("figures", how), ("no block", extension.without), ("no promise", extension.cannot)):
        if sentences:
            page.line()
        for number, sentence in enumerate(sentences):
            page.row("" if number else label, sentence, None)


def _print_way(page: Page, way: Way) -> None:
    page.line(Text(f"  {way.scaling}", style="bold"))
    for sentence in way.says:
        page.paragraph(sentence, indent=4)
    for shape, values in way.values.items():
        page.paragraph(f"{SHAPES[shape]}:", indent=4)
        for line in lines_of(values):
            # A line that is copied must not be broken.
            page.line(Text(f"      {safe(line)}"))
        if way.warns.get(shape):
            page.paragraph(f"the audit then still says {', '.join(way.warns[shape])}", indent=6)
    for cost in way.costs:
        page.paragraph(f"known: {cost.says}{f' ({cost.source}; {cost.label})' if cost.source else ''}", indent=4)


def lines_of(values: Mapping[str, Any]) -> Iterator[str]:
    """A change, one key a line, as JSON; a key to take away is said to be so.

    >>> list(lines_of({"max_position_embeddings": 8192, "rope_parameters": None}))
    ['"max_position_embeddings": 8192', 'without "rope_parameters"']
    """
    for key, value in values.items():
        yield f"without {json.dumps(key)}" if value is None else f"{json.dumps(key)}: {json.dumps(value)}"
