"""Heads in the weights beside heads in what is declared."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing.checks.subject import Case, Subject, in_a_file
from clockhands.sources.projections import other_widths


def head_width(subject: Subject) -> Iterator[Case]:
    """Heads of another width than the rows of the query projection have room for."""
    for other in other_widths(subject.opened, subject.resolved) if subject.opened.tensors else ():
        evidence: dict[str, Any] = {
            "tensor": other.info.name,
            "rows": other.rows,
            "heads": other.heads,
            "width": other.width,
            "width in the weights": other.found,
        }
        if in_a_file(other.source):
            evidence[other.source] = other.width
        elif other.source:
            evidence["width from"] = other.source
        yield "head-width", evidence, other.layers
