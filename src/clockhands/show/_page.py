"""Lays out a report in a terminal: names, values and sources, with line breaks between words only.

Every line of a report goes through `Page.line`, which lets nothing from a file act on the terminal.
"""

import textwrap
from collections.abc import Iterable
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clockhands.phrases import safe

LABEL = 15  # width of the column of names, its margin included
PLACE = 48  # the column in which sources start, where they fit
SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
PROSE = 88  # words are set no wider than this


class Page:
    """Where a report is written, line by line.

    Attributes:
        console: The console that it is printed on.
        width: Columns that are used.
    """

    def __init__(self, console: Console) -> None:
        """Use no more columns than can be read at a glance."""
        self.console: Console = console
        self.width: int = max(40, min(console.width, 120))

    def line(self, text: Text | str = "") -> None:
        """One line, not broken however long it is; what is not text in it is made visible."""
        plain = text if isinstance(text, str) else text.plain
        if not plain.isprintable():
            text = Text(safe(plain), style="" if isinstance(text, str) else text.style)
        self.console.print(text, soft_wrap=True)

    def paragraph(self, text: str, style: str = "", indent: int = 0) -> None:
        """Words, wrapped between words; a word that is longer than the line stays whole."""
        self.hanging(" " * indent, text, style, PROSE)

    def hanging(self, label: Text | str, text: str, style: str = "", most: int = 120) -> None:
        """Words after a label, wrapped between words, in at most so many columns; no line begins below the label."""
        start = cell_len(label if isinstance(label, str) else label.plain)
        for number, line in enumerate(broken(text, min(self.width, most) - start)):
            self.line(Text.assemble(label if number == 0 else " " * start, (line, style)))

    def row(self, label: str, value: str, *sources: str | None) -> None:
        """A name, a value, and in a quiet colour its source."""
        self.beside(value, f"  {label}".ljust(LABEL), [source for source in sources if source])

    def rows(self, label: str, sentences: Iterable[str]) -> None:
        """Several sentences under one name."""
        for number, sentence in enumerate(sentences):
            self.row("" if number else label, sentence)

    def beside(self, value: str, label: str, sources: Iterable[str], style: str = "") -> None:
        """A value with its sources: the first at the end of the line if it fits, the others below."""
        places = [self.place(source) for source in sources]
        start = cell_len(label)
        lines = broken(value, self.width - start)
        for number, line in enumerate(lines):
            text = Text(label if number == 0 else " " * start) + Text(line, style=style)
            used = cell_len(text.plain)
            if number == len(lines) - 1 and places and max(PLACE, used + 2) + cell_len(places[0]) <= self.width:
                text.append(" " * (max(PLACE, used + 2) - used))
                text.append(places.pop(0), style="dim")
            self.line(text)
        for place in places:
            at_place = PLACE + cell_len(place) <= self.width
            for line in [place] if at_place else broken(f"from {place}", self.width - LABEL):
                self.line(Text(" " * (PLACE if at_place else LABEL)) + Text(line, style="dim"))

    def pair(self, name: str, value: str) -> None:
        """A piece of evidence: its source and value, on one line if they fit."""
        text = f"    {name} = {value}"
        if cell_len(text) <= self.width:
            self.line(Text(text, style="dim"))
            return
        self.line(Text(f"    {name} =", style="dim"))
        for line in broken(value, self.width - 6):
            self.line(Text(f"      {line}", style="dim"))

    def place(self, source: str) -> str:
        """A source as this report writes it."""
        return safe(source)


def console_on(file: IO[str] | None, width: int | None) -> Console:
    """The console for a report: a file, else standard output; with the given width, the terminal's, or 80 columns."""
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def broken(text: str, room: int) -> list[str]:
    """The lines of a text, broken between words only, so that a path or a key can be copied.

    >>> broken("see config.json:rope_theta", 12)
    ['see', 'config.json:rope_theta']
    """
    return textwrap.wrap(safe(text), room, break_long_words=False, break_on_hyphens=False) or [""]
