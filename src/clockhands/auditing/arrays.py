"""Arrays: are all their numbers numbers?

For a bare array (a `.npy`, or one member of a container) that is all there is to say: which position code it holds is
not recognised yet. A learned table inside a model is looked at in the same way.
"""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing.checks import Case
from clockhands.errors import ClockhandsError
from clockhands.sources.resolved import Code, Resolved
from clockhands.sources.targets import Opened


def resolve_array(opened: Opened) -> Resolved:
    """What a bare array says of itself: how many rows of how many channels."""
    return Resolved(None, None, None, tuple(_bare(opened, name) for name in opened.tensors), ())


def array_cases(opened: Opened) -> Iterator[Case]:
    """What a bare array is not known to be, and rows of it that hold no numbers."""
    for name in opened.tensors:
        found = opened.summary(name)
        yield "not-recognised", {"shape": list(found.shape), "dtype": found.dtype}, None
        yield from _broken_rows(opened, name, None)


def table_cases(opened: Opened, resolved: Resolved) -> Iterator[Case]:
    """Rows of learned tables that hold no numbers; a table that cannot be read (it may be quantised) is let be."""
    for code in resolved.codes:
        name = code.source.get("rows", "").partition(":")[2]
        if code.kind == "learned" and name in opened.tensors:
            try:
                yield from _broken_rows(opened, name, code.layers)
            except ClockhandsError:
                continue


def _broken_rows(opened: Opened, name: str, layers: str | None) -> Iterator[Case]:
    found = opened.summary(name)
    if found.nonfinite_rows:
        evidence: dict[str, Any] = {
            "rows with NaN or infinity": found.nonfinite_rows,
            "rows": found.shape[0] if found.shape else 1,
            "first such row": found.first_nonfinite[0],
            _place(opened, name): list(found.shape),
        }
        yield "non-finite-rows", evidence, layers


def _bare(opened: Opened, name: str) -> Code:
    shape = opened.tensors[name].shape
    width, rows = shape[-1] if shape else None, shape[-2] if len(shape) > 1 else None
    found = {"width": width, "rows": rows}
    source = {field: _place(opened, name) for field, value in found.items() if value is not None}
    return Code("other", None, None, width=width, rows=rows, source=source)


def _place(opened: Opened, name: str) -> str:
    file = opened.tensors[name].file
    return f"{file.name}:{'shape' if file.suffix == '.npy' else name}"
