"""Prints the result of a check, and the explanation of a kind of finding or a fault, on a terminal."""

from collections.abc import Iterable, Mapping
from typing import IO

from rich.text import Text

from clockhands.auditing.findings import Rule
from clockhands.recognition.faults import Fault, fault_in_words, fault_of, subject_of
from clockhands.recognition.symptoms import Symptom
from clockhands.show._page import PROSE, SEVERITY_STYLES, Page, console_on, safe
from clockhands.testing import Report

_BLAMED = {
    "file": "the file: it is wrong",
    "reader": "runtimes: the file is right, but some misread it",
    "ambiguous": "unclear: the file can be read in two ways",
    "module": "the loaded module: it is wrong, whatever its files say",
}

_LINE_STYLES = {"sound": "bold green", "failed": "bold red", "explanation": "bold", "heading": "bold", "rest": "dim"}


def print_report(
    report: Report, *, verbose: bool = False, file: IO[str] | None = None, width: int | None = None
) -> None:
    """Print what a check found.

    Args:
        report: What to show.
        verbose: All evidence, and why each experiment was left out.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    for line in report.lines(verbose=verbose):
        for text in line.wrapped(min(page.width, PROSE)).splitlines() or [""]:
            page.line(Text(safe(text), style=_LINE_STYLES.get(line.style, "")))


def print_symptoms(symptoms: Iterable[Symptom], file: IO[str] | None = None, width: int | None = None) -> None:
    """Print each symptom with its usual causes and the commands that tell which it is."""
    page = Page(console_on(file, width))
    for symptom in symptoms:
        page.line(Text(symptom.sees[0].upper() + symptom.sees[1:], style="bold"))
        page.row("often", symptom.often)
        page.rows("run", symptom.commands)
        page.row("codes", ", ".join(symptom.codes))
        page.rows("seen in", symptom.reported)
        page.line()


def print_codes(codes: Mapping[str, Rule], file: IO[str] | None = None, width: int | None = None) -> None:
    """Print every code with its severity and its title, one on a line."""
    page = Page(console_on(file, width))
    longest = max(map(len, codes))
    for code, rule in codes.items():
        severity = Text(rule.severity.ljust(13), style=SEVERITY_STYLES.get(rule.severity, ""))
        line = Text(code.ljust(longest + 2)) + severity
        line.append(rule.title)
        page.line(line)


def print_explanation(code: str, rule: Rule, file: IO[str] | None = None, width: int | None = None) -> None:
    """Print what one code means.

    Args:
        code: The code.
        rule: Its row.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    severity = Text(f"  {rule.severity}", style=SEVERITY_STYLES.get(rule.severity, ""))
    page.line(Text(code, style="bold") + severity)
    page.paragraph(rule.title)
    page.line()
    page.paragraph(rule.means)
    page.line()
    if rule.blames in _BLAMED:
        page.row("blames", _BLAMED[rule.blames])
    page.row("fix", rule.advice)
    if not rule.has_edit and rule.unmended:
        page.row("no patch", rule.unmended)
    page.rows("seen in", rule.cases)


def print_faults(faults: Mapping[str, Fault], file: IO[str] | None = None, width: int | None = None) -> None:
    """Print every fault with its symptom."""
    page = Page(console_on(file, width))
    longest = max(map(len, faults))
    for code, fault in faults.items():
        page.hanging(code.ljust(longest + 2), fault_in_words(fault))


def print_fault(
    fault: Fault,
    asks: Mapping[str, str],
    file: IO[str] | None = None,
    width: int | None = None,
    *,
    above: Rule | None = None,
) -> None:
    """Print the symptom of one fault, and what to do about it.

    Args:
        fault: Its row.
        asks: The question of each experiment, by its name.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
        above: The finding of the same code, if it was printed before with its advice and cases.
    """
    page = Page(console_on(file, width))
    if above is None:
        page.line(Text(fault.code, style="bold") + Text(f"  a fault of {fault_of(fault)}"))
        page.paragraph(f"{subject_of(fault)} {fault_in_words(fault)}.")
        page.line()
        page.row("fix", fault.hint)
    else:
        page.row("a check says", f"{subject_of(fault)} {fault_in_words(fault)}.")
    if fault.shown_by:
        asked = asks.get(fault.shown_by)
        page.row("shown by", f"{fault.shown_by}: {asked}" if asked else fault.shown_by)
    told = " ".join(above.cases) if above else ""
    page.rows("seen in", (case for case in fault.cases if case not in told))
