"""Prints what was recognised: the encoding, the positions of its rows, the error and the confidence."""

from collections.abc import Iterable
from typing import IO

from rich.text import Text

from clockhands.phrases import spoken
from clockhands.recognition import Matches
from clockhands.recognition.match_words import rows_of, title_of
from clockhands.show._page import LABEL, Page, console_on, safe


def print_matches(
    what: str,
    matches: Matches,
    *,
    shape: Iterable[int] | None = None,
    dtype: str | None = None,
    commands: Iterable[str | None] = (),
    asked: str | None = None,
    file: IO[str] | None = None,
    width: int | None = None,
) -> None:
    """Print what one array or function was recognised as.

    Args:
        what: The name of the array or function.
        matches: What was found.
        shape: The array's shape.
        dtype: Its type.
        commands: For each match the command that makes its table again, if there is one.
        asked: The command that prints this; if no other command makes the table again, its JSON does.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    heading = (
        safe(what) if shape is None else f"{safe(what)}: {' x '.join(map(spoken, shape)) or 'one number'}, {dtype}"
    )
    page.line(Text(heading, style="bold"))
    again = list(commands)
    for number, match in enumerate(matches):
        if number:
            page.line()
        page.paragraph(title_of(match), style="bold green" if match.residual is None else "bold yellow", indent=2)
        for label, value in rows_of(match):
            page.row(label, value, None)
        if number < len(again) and again[number] is not None:
            page.line(Text("  again".ljust(LABEL) + str(again[number])))  # whole, to be copied
        elif match.positions is not None and match.computed:
            if asked is not None:
                page.line(Text("  again".ljust(LABEL) + f"{asked} --json > found.json"))
            page.line(Text(("" if asked else "  again").ljust(LABEL) + "clockhands table found.json"))
    if matches:
        page.line()
    page.paragraph(matches.reason, style="" if matches else "bold yellow", indent=2)
