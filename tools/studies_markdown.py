"""Markdown of the pages of studies: estimates, tables and paragraphs. Used by studies_document.py."""

import math
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from clockhands.lab.results import bracket
from clockhands.measures.claims import Estimate, estimate_of


def number_of(row: list[Any] | None, seeds: list[int], *, interval: bool = True) -> str:
    """A stored estimate as it is read."""
    return "–" if row is None else in_numbers(estimate_of(row, seeds), interval=interval)


def in_numbers(value: Estimate | None, *, interval: bool = True) -> str:
    """A mean, with what is in brackets where there is something (`bracket`)."""
    if value is None:
        return "–"
    if math.isinf(value.mean):
        reached = sum(math.isfinite(each) for each in value.seeds.values())
        return f"reached with {reached} of {len(value.seeds)} seeds" if reached else "never"
    digits = 3 if abs(value.mean) < 100 else 0
    ends = bracket(value) if interval else None
    mean, *shown = (f"{round(n, digits) + 0.0:.{digits}f}" for n in (value.mean, *(ends or ())))
    return f"{mean} [{', '.join(shown)}]" if shown else mean


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], right: int = 1) -> str:
    """A table; columns from ``right`` on are numbers."""
    heads = [escaped(head) for head in heads]
    line = "|".join("---" if at < right else "---:" for at in range(len(heads)))
    body = "".join(f"| {' | '.join(cell_text(each) for each in row)} |\n" for row in rows)
    return f"| {' | '.join(heads)} |\n|{line}|\n{body}"


def cell_text(text: str) -> str:
    """Text in a table; links and bold verdicts are meant."""
    return text if text.startswith(("[", "**")) else escaped(text)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines that are no longer than those of the other documents."""
    lines = textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    for mark in ("*", "|", "<"):
        text = text.replace(mark, f"\\{mark}")
    return re.sub(r"\b_|_\b", r"\_", text)  # inside a word it is none
