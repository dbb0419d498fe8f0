"""What a model is served with past its context, as a part of a report."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from clockhands.auditing.changes import SHAPES
from clockhands.auditing.extending import Extension, Way
from clockhands.auditing.published_costs import LABELS
from clockhands.show.page import Page, safe


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
