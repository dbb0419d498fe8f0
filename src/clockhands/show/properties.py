"""Prints the properties of position codes, each as a question with its answer."""

from dataclasses import replace
from typing import IO

from rich.text import Text

from clockhands.auditing.layer_words import title_of
from clockhands.auditing.target_properties import CodeProperties, TargetProperties
from clockhands.measures import QUESTIONS, Property
from clockhands.show._page import PROSE, Page, broken, console_on, safe

_MARKS = {True: "yes", False: "no", None: "-"}
_STYLES = {"yes": "bold green", "no": "bold yellow", "-": "bold cyan", "?": "dim"}
_INDENT = 5


def print_properties(report: TargetProperties, file: IO[str] | None = None, width: int | None = None) -> None:
    """Print the properties of the codes of one target.

    Args:
        report: What to show.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    page.line(Text(safe(report.target), style="bold"))
    for code in report.codes:
        page.line()
        _print_code(page, code)


def _print_code(page: Page, one: CodeProperties) -> None:
    page.line(Text(title_of(replace(one.code, spec=one.spec)), style="bold"))
    if one.spec is not None:
        page.paragraph(one.says, indent=2)
    if one.length is not None:
        tokens = f"{one.length:,} token{'' if one.length == 1 else 's'}"
        measured = None if one.properties is None else one.properties.spec
        each = ", along each axis" if getattr(measured, "number_of_axes", 1) > 1 else ""
        page.paragraph(f"over {tokens} in {one.dtype}{each}", indent=2)
    for note in one.notes:
        page.paragraph(note, style="dim", indent=2)
    if one.why is not None:
        page.paragraph(one.why, indent=2)
    if one.properties is None:
        return
    missing = _together([(name, each) for name, each in one.properties if each.state == "not computed"])
    for name, each in one.properties:
        if each.state == "measured" or len(missing.get(each.says, ())) == 1:
            page.line()
            _print_property(page, name, each)
    for why, names in missing.items():
        if len(names) > 1:
            page.line()
            page.line(Text.assemble(("?".ljust(_INDENT), _STYLES["?"]), ("not computed", "bold")))
            page.paragraph(f"{', '.join(names)}: {why}", indent=_INDENT)
    senseless = [(name, each) for name, each in one.properties if each.state == "not applicable"]
    if senseless:
        page.line()
        page.paragraph("Not applicable to this encoding", indent=2)
    for why, names in _together(senseless).items():
        page.paragraph(f"{', '.join(names)}: {why}", style="dim", indent=_INDENT)


def _print_property(page: Page, name: str, found: Property) -> None:
    mark = "?" if found.state == "not computed" else _MARKS[found.holds]
    lines = broken(f"{name}: {QUESTIONS[name]}", min(page.width, PROSE) - _INDENT)
    for number, line in enumerate(lines):
        start, rest = (len(name), line[len(name) :]) if number == 0 else (0, line)
        before = (mark.ljust(_INDENT), _STYLES[mark]) if number == 0 else " " * _INDENT
        page.line(Text.assemble(before, (line[:start], "bold"), rest))
    page.paragraph(found.says, indent=_INDENT)


def _together(found: list[tuple[str, Property]]) -> dict[str, list[str]]:
    """Names of properties, grouped by the reason why they do not apply."""
    reasons: dict[str, list[str]] = {}
    for name, each in found:
        reasons.setdefault(each.says, []).append(name)
    return reasons
