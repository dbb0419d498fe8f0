"""An audit as text on a terminal or in a pipe.

First what was audited and the verdict in a sentence, then what the model is told about position, then the findings.
Every value has its source beside it, or under it where the line is too short; a source is never broken, so that it
can be searched for. Nothing depends on colour: it only makes sources quiet and severities loud.
"""

import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clockhands.auditing import Audit, Finding
from clockhands.auditing.findings import spoken
from clockhands.sources.resolved import Code

_LABEL = 15  # width of the column of names, its margin included
_PLACE = 48  # the column in which sources start, where they fit
_PROSE = 88  # words are set no wider than this
_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_FILE = re.compile(r"^(?P<file>[^:]*\.(?P<suffix>[A-Za-z]+)):")


def print_audit(audit: Audit, file: IO[str] | None = None, width: int | None = None) -> None:
    """Print the report of one audit.

    Args:
        audit: What to show.
        file: Where to; None is standard output.
        width: Columns to use; None takes the terminal's, or 80 where there is none.
    """
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    _Report(console, audit).print()


def verdict_style(audit: Audit) -> str:
    """The style in which the verdict is printed."""
    return next((_STYLES[severity] for severity in ("error", "warning") if _any(audit, severity)), "bold green")


def _any(audit: Audit, severity: str) -> bool:
    return any(finding.severity == severity for finding in audit.findings)


class _Report:
    """One report: the console it goes to and the short names of the files it speaks of."""

    def __init__(self, console: Console, audit: Audit) -> None:
        self.console = console
        self.audit = audit
        self.width = max(40, min(console.width, 120))
        self.files = _short_names(audit)

    def print(self) -> None:
        self.line(Text(safe(self.audit.target), style="bold"))
        self.paragraph(self.audit.verdict, style=verdict_style(self.audit))
        self.line()
        self.heading()
        for code in self.audit.layers:
            self.line()
            self.code(code)
        for finding in self.audit.findings:
            self.line()
            self.finding(finding)

    def heading(self) -> None:
        sources = self.audit.source
        self.row("model type", self.audit.model_type or "not named", sources.get("model_type"))
        context = f"{spoken(self.audit.context)} positions" if self.audit.context else "not declared"
        self.row("context", context, sources.get("context"))
        if self.audit.length is not None and self.audit.length != self.audit.context:
            self.row("length", f"{spoken(self.audit.length)}, at which the rates hold", sources.get("length"))
        for name, short in self.files.items():
            self.row("sources", f"{short}: is {safe(Path(name).name)}", None)

    def code(self, code: Code) -> None:
        self.paragraph(title_of(code), style="bold")
        for label, value, fields in rows_of(code):
            told = (code.source.get(field, "") for field in fields)
            self.row(label, value, *dict.fromkeys(place for source in told for place in source.split(", ") if place))

    def finding(self, finding: Finding) -> None:
        where = f", {_layers(finding.layers)}" if finding.layers else ""
        self.line(Text.assemble((finding.severity, _STYLES[finding.severity]), f" {finding.code}{safe(where)}"))
        self.paragraph(self.shortened(finding.message), indent=2)
        for name, value in evidence_to_show(finding):
            self.pair(self.shortened(safe(name)), safe(value))
        self.paragraph(f"hint: {self.shortened(finding.hint)}", indent=2)

    # How a line is laid out

    def line(self, text: Text | str = "") -> None:
        """One line exactly as it is, however long: what must not be broken."""
        self.console.print(text, soft_wrap=True)

    def paragraph(self, text: str, style: str = "", indent: int = 0) -> None:
        """Words, wrapped between words; a word that is longer than the line stays whole."""
        for line in broken(text, min(self.width, _PROSE) - indent):
            self.line(Text(" " * indent + line, style=style))

    def row(self, label: str, value: str, *sources: str | None) -> None:
        """A name, a value, and quietly where the value stands."""
        places = [self.shortened(safe(source)) for source in sources if source]
        start = Text(f"  {label}".ljust(_LABEL))
        lines = broken(value, self.width - _LABEL)
        for number, line in enumerate(lines):
            text = (start if number == 0 else Text(" " * _LABEL)) + line
            if number == len(lines) - 1 and places:
                column = max(_PLACE, cell_len(text.plain) + 2)
                if column + cell_len(places[0]) <= self.width:
                    text.append(" " * (column - cell_len(text.plain)))
                    text.append(places.pop(0), style="dim")
            self.line(text)
        for place in places:
            fits = _PLACE + cell_len(place) <= self.width
            self.line(Text(" " * (_PLACE if fits else _LABEL)) + Text(place if fits else f"from {place}", style="dim"))

    def pair(self, name: str, value: str) -> None:
        """A piece of evidence: where it stands and what stands there, on one line where it fits."""
        text = f"    {name} = {value}"
        if cell_len(text) <= self.width:
            self.line(Text(text, style="dim"))
            return
        self.line(Text(f"    {name} =", style="dim"))
        for line in broken(value, self.width - 6):
            self.line(Text(f"      {line}", style="dim"))

    def shortened(self, text: str) -> str:
        """The text with long file names replaced by the short ones that the heading explains."""
        for name, short in self.files.items():
            text = text.replace(f"{safe(name)}:", f"{short}:")
        return text


def evidence_to_show(finding: Finding) -> Iterator[tuple[str, str]]:
    """The evidence that the message has not said already: what stands in a file, and numbers that it left out."""
    for name, value in finding.evidence.items():
        text = value if isinstance(value, str) and ":" not in name else spoken(value)
        if ":" in name or text not in finding.message:
            yield name, text


def broken(text: str, room: int) -> list[str]:
    """The lines of a text, broken between words only, so that a path or a key can be copied.

    >>> broken("see config.json:rope_theta", 12)
    ['see', 'config.json:rope_theta']
    """
    return textwrap.wrap(safe(text), room, break_long_words=False, break_on_hyphens=False) or [""]


def title_of(code: Code) -> str:
    """What is told and to whom: `layers 0-29: rotary`."""
    where = "added to the input" if code.layers == "input" else _layers(code.layers)
    part = "" if code.part in ("text", "other") else f"{code.part}, "
    kind = "no position code" if code.kind == "none" else code.kind or "a code that is not recognised"
    return f"{part}{where}: {kind}"


def rows_of(code: Code) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The lines of one code: name, value and the fields whose sources stand beside it."""
    if code.kind == "none":
        yield from _window(code)
        return
    if code.layout is not None:
        yield "layout", _LAYOUTS.get((code.kind, code.layout), code.layout), ("layout",)
    elif code.kind == "rotary":
        yield "layout", "not known: only the model's code says it", ()
    if code.kind == "rotary":
        turned = f"{code.rotated} of {code.width} channels of a head" if code.rotated and code.width else "not known"
        yield "turned", turned, ("rotated", "width")
    elif code.width is not None:
        yield "width", f"{spoken(code.width)} channels", ("width",)
    if code.base is not None:
        yield "base", spoken(code.base), ("base",)
    if code.rates:
        yield "rates", rates_in_words(code.rates), ("rates",)
        yield "wavelengths", wavelengths_in_words(code.rates), ()
    elif code.kind == "rotary":
        yield "rates", "cannot be computed", ()
    if code.kind == "rotary":
        yield "scaling", scaling_in_words(code.scaling), ("scaling",)
        if code.attention_factor is not None:
            yield "factor", f"{spoken(code.attention_factor)}, multiplies cos and sin", ("attention_factor",)
    if code.rows is not None:
        yield "rows", spoken(code.rows), ("rows",)
    if code.offset is not None:
        yield "offset", f"position 0 is row {spoken(code.offset)}", ("offset",)
    yield from _window(code)


def _window(code: Code) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if code.window is not None:
        yield "window", f"the last {spoken(code.window)} positions", ("window",)


_LAYOUTS = {
    ("rotary", "interleaved"): "interleaved: 2i and 2i+1",
    ("rotary", "halves"): "halves: i and i + half",
    ("sinusoidal", "interleaved"): "interleaved: sin, cos, sin, ...",
    ("sinusoidal", "halves"): "halves: all sines, all cosines",
}


def rates_in_words(rates: tuple[float, ...]) -> str:
    """First and last rate.

    >>> rates_in_words((1.0, 0.1, 0.01))
    '1 to 0.01 rad/token, 3 pairs'
    """
    return f"{spoken(rates[0])} to {spoken(rates[-1])} rad/token, {len(rates)} pair{'s' if len(rates) > 1 else ''}"


def wavelengths_in_words(rates: tuple[float, ...]) -> str:
    """The tokens that the fastest and the slowest pair take for a turn.

    >>> wavelengths_in_words((1.0, 0.01)), wavelengths_in_words((1.0, 0.0))
    ('6.28319 to 628.319 tokens a turn', '6.28319 tokens a turn to never')
    """
    first, last = (spoken(2 * math.pi / rate) if rate else "never" for rate in (rates[0], rates[-1]))
    if "never" in (first, last):
        return f"{first}{' tokens a turn' if first != 'never' else ''} to {last}"
    return f"{first} to {last} tokens a turn"


def scaling_in_words(scaling: Mapping[str, Any] | None) -> str:
    """The scaling, its factor and the length it starts from.

    >>> scaling_in_words({"type": "yarn", "factor": 4.0, "original": 32768}), scaling_in_words(None)
    ('yarn, factor 4, from 32,768 positions', 'none')
    """
    if not scaling:
        return "none"
    words = [str(scaling.get("type"))]
    if scaling.get("factor") is not None:
        words.append(f"factor {spoken(scaling['factor'])}")
    if scaling.get("original") is not None:
        words.append(f"from {spoken(scaling['original'])} positions")
    return ", ".join(words)


def safe(text: object) -> str:
    """Text from a file, with everything that could move a terminal's cursor or break a line made visible.

    >>> safe("yarn" + chr(27) + "[2J") == "yarn" + chr(92) + "x1b[2J"
    True
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text))


def _layers(layers: str | None) -> str:
    if layers is None:
        return "some layers"
    if layers == "input":
        return "input"
    return f"layers {layers}" if re.search(r"[-,]", layers) else f"layer {layers}"


def _short_names(audit: Audit) -> dict[str, str]:
    """A short name for each long file name, so that sources fit beside their values: `gguf` for a long `….gguf`."""
    names: dict[str, str] = {}
    for source in (source for holder in (audit, *audit.layers) for source in holder.source.values()):
        found = _FILE.match(source)
        if found and len(found["file"]) > len("model.safetensors") and found["suffix"] not in names.values():
            names.setdefault(found["file"], found["suffix"])
    return names
