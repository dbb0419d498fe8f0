"""Prints how attention treats two orders of the same words, on a terminal."""

from collections.abc import Iterable
from typing import IO

from rich.console import Console
from rich.text import Text

from clockhands.encodings.additive import AdditiveCode
from clockhands.measures.adding.drawn_tokens import AddingFigures
from clockhands.measures.order.permuting import HEADS, LAYERS, PERMUTED, WIDTH, CodeOrder, Difference, OrderMatters
from clockhands.packaged import packaged
from clockhands.show._page import Page, console_on, safe

_TITLES = ("", "sentences", "third order", "masked", "one word")
_COLUMNS = (25, 24, 13, 8, 8)


def print_order(
    found: OrderMatters, added: AddingFigures, file: IO[str] | None = None, width: int | None = None
) -> None:
    """Print the report.

    Args:
        found: What attention distinguishes.
        added: The effect of adding a code to the token.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    _OrderPage(console_on(file, width), found, added).print()


class _OrderPage(Page):
    """One report."""

    def __init__(self, console: Console, found: OrderMatters, added: AddingFigures) -> None:
        super().__init__(console)
        self.found, self.added = found, added

    def print(self) -> None:
        found = self.found
        self.line(Text(safe(f"{' '.join(found.words)} / {' '.join(found.other)}"), style="bold"))
        self.paragraph(found.verdict, style="bold green")
        self.line()
        page = packaged(__file__, "order.toml")
        self.text(page["how"])
        for mask in page["masks"]:
            self.heading(mask["heading"])
            for what, name, depth in mask["figures"]:
                self.line(f"  {self.written(what):38}{self.written(depth):9}{found.without[name]}")
            self.text(mask["shows"])
        self.heading("with a position encoding")
        self.codes()
        self.heading("what adding a position does to the token")
        for number, sentence in enumerate(self.added.sentences()):
            if number:
                self.line()
            self.paragraph(sentence)

    def heading(self, text: str) -> None:
        self.line()
        self.line(Text(text, style="bold"))

    def text(self, template: str) -> None:
        """A paragraph of `order.toml`."""
        self.paragraph(" ".join(self.written(template).split()))

    def written(self, template: str) -> str:
        """A text of `order.toml` with the sizes of the networks in it."""
        return template.format(
            networks=self.found.networks, seed=self.found.seed, layers=LAYERS, heads=HEADS, width=WIDTH,
            permuted=PERMUTED, rounding=_number(self.most_rounding()),
        )  # fmt: skip

    def most_rounding(self) -> float:
        figures = [*self.found.without.values(), *(figure for code in self.found.codes for figure in _figures(code))]
        return max(figure.rounding for figure in figures if figure.apart is not None)

    def codes(self) -> None:
        found = self.found
        deep = f"{LAYERS} layers, no mask"
        self.row("sentences", f"the mean of the outputs of the second, compared with the first; {deep}")
        if found.another:
            self.row("third order", f"the same for {' '.join(found.another)!r}")
        self.row("masked", "the output of a full stop after each of the two; 1 layer, causal mask")
        self.row("one word", f"the same word {PERMUTED} times, each output compared with the first; {deep}")
        self.line()
        titles = ("", "sentences", *(["third order"] if found.another else []), "masked", "one word")
        widths = [width for width, title in zip(_COLUMNS, _TITLES, strict=True) if title in titles]
        self.line(Text(_row(titles, widths), style="dim"))
        for code in found.codes:
            figures = [figure for figure in (code.another, code.causal_last, code.alike) if figure is not None]
            cells = (code.member.name, _cell(code.swapped, spread=True), *map(_cell, figures))
            self.line(_row(cells, widths))
        self.line()
        self.paragraph(
            "The size of a difference depends on the random weights and on the size of the encoding relative to the "
            "words: it is not a ranking. Whether there is a difference does not depend on them."
        )
        if all((code.alike.apart is True) == isinstance(code.member.spec, AdditiveCode) for code in found.codes[1:]):
            self.line()
            self.paragraph(
                "Only additive encodings distinguish the positions of one repeated word. RoPE and biases change "
                "only the weights, and every weighted average of one word is that word."
            )
        for tells, names in _by_what_they_tell(found.codes):
            self.line()
            self.paragraph(tells)
            self.paragraph(f"({names})", style="dim", indent=2)


def _cell(figure: Difference, spread: bool = False) -> str:
    if figure.apart is False:
        return "same"
    if figure.apart is None:
        return "unclear"
    range_of = f" ({_number(figure.smallest)}-{_number(figure.largest)})" if spread else ""
    return f"{_number(figure.median)}{range_of}"


def _row(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  " + "".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _number(value: float) -> str:
    return f"{value:.2g}"


def _figures(code: CodeOrder) -> Iterable[Difference]:
    return (figure for figure in (code.swapped, code.another, code.causal_last, code.alike) if figure is not None)


def _by_what_they_tell(codes: Iterable[CodeOrder]) -> Iterable[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for code in codes:
        if code.member.name != "none":
            groups.setdefault(code.member.tells, []).append(code.member.name)
    return ((tells, ", ".join(names)) for tells, names in groups.items())
