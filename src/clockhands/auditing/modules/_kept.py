"""Checks what a loaded module holds besides frequencies and their cosines: position numbers, rows, leftovers."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.findings._stored import numbered
from clockhands.auditing.modules._computed import WAVES
from clockhands.auditing.modules._held import Walked, numbers_of
from clockhands.auditing.modules._serving import DeclaredCodes, joined
from clockhands.encodings.dtypes import NAMES

# The values of one row, random or trained, are mostly within a few factors of two of each other: for a normal
# distribution, the logarithm to base 2 has a standard deviation of 1.6. For random bits it is 9 (float16) or 73.
_SPREAD = 5.0
_MOST_ROWS = 4096

# No rounding, merging or offset makes a position this many times larger than the number of positions.
_FURTHEST = 16


def number_cases(walked: Walked) -> Iterator[Case]:
    """Position numbers stored as floats, or that are not consecutive whole numbers."""
    for held in walked.of("numbers"):
        shape = tuple(held.tensor.shape)
        count = math.prod(shape)
        if held.on_meta or count != max(shape, default=0) or not count or (numbers := held.numbers()) is None:
            continue
        numbers = numbers.ravel()
        first = numbers[0] if np.isfinite(numbers[0]) and 0 <= numbers[0] <= 16 and numbers[0] % 1 == 0 else 0
        never = ~np.isfinite(numbers) | (np.abs(numbers) > _FURTHEST * count)
        evidence = numbered(held.place, shape, held.dtype, numbers, first)
        if never.any():
            told: dict[str, Any] = {held.place: list(shape), "what": "numbers of positions", "of": "numbers"}
            yield case_of("buffer-uninitialised", {**told, "wrong": int(never.sum()), "pairs": count}, held.in_layers)
        elif evidence is not None:
            yield case_of("ids-of-floats", evidence, held.in_layers)


def row_cases(walked: Walked, told: frozenset[str], cases: Iterable[Case]) -> Iterator[Case]:
    """Uninitialised tables of rows and distance biases, in addition to what was found about tables by their names.

    ``told`` are declared tables of text positions: they are initialised with random rows. Tables for images are
    initialised with zeros, so zeros in a trainable table may be correct there.
    """
    begun = {held.full_name for held in walked.of("rows") if held.learned and held.full_name not in told}
    known: set[str] = set()
    for case in cases:
        name = next((name.removeprefix("model:") for name in case.evidence if name.startswith("model:")), "")
        known |= {name} if case.code == "zero-table" else set()
        begins = case.code == "zero-table" and name in begun
        yield case_of("table-zero", case.evidence, case.layers) if begins else case
    for held in (*walked.of("rows"), *walked.of("biases")):
        if held.on_meta or held.dtype not in NAMES or held.tensor.ndim < 2 or not held.tensor.numel():
            continue
        rows = held.tensor.detach().reshape(-1, held.tensor.shape[-1])
        if held.kind == "rows" and not bool(rows.any()):
            code = "table-zero" if held.full_name in begun else "zero-table"
            place = {"rows": len(rows), "width": rows.shape[1], held.place: list(held.tensor.shape)}
            if held.full_name not in known:
                yield case_of(code, place, "input")
            continue
        rows = numbers_of(rows[:: max(1, len(rows) // _MOST_ROWS)])
        if rows is None:
            continue
        size = np.abs(rows[np.isfinite(rows).all(axis=1) & (rows != 0).all(axis=1)])
        if not size.size or size.shape[1] < 4:
            continue
        if float(np.median(np.log2(size).std(axis=1))) > _SPREAD:
            evidence = {held.place: list(held.tensor.shape), "least": float(size.min()), "most": float(size.max())}
            yield case_of("table-uninitialised", evidence, held.in_layers or "input")


def kept_cases(walked: Walked, declared: DeclaredCodes, wrong: frozenset[str]) -> Iterator[Case]:
    """Computed tensors that are saved with the weights, and tensors without values in a model that has some."""
    computed = (*walked.of("rates"), *walked.of("waves"))
    written = [held for held in computed if held.persistent and not held.learned and held.full_name not in wrong]
    if written:
        place = {written[0].place: f"{list(written[0].tensor.shape)} in {written[0].dtype}", "tensors": len(written)}
        what = "rates" if written[0].kind == "rates" else WAVES
        yield case_of(
            "buffer-persistent", {**place, "what": what}, joined(declared.layers_of(held) for held in written)
        )
    empty = [
        held for held in (*computed, *walked.of("numbers")) if held.on_meta and not hasattr(held.owner, "_hf_hook")
    ]
    if empty and not walked.only_meta:
        what = {"rates": "rates", "waves": WAVES}.get(empty[0].kind, "numbers of positions")
        place = {empty[0].place: list(empty[0].tensor.shape), "tensors": len(empty), "what": what}
        yield case_of("buffer-on-meta", place, joined(declared.layers_of(held) for held in empty))
