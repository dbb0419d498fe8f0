"""Findings on tables of positions: what they are, and whether all rows are finite, non-zero and different.

A bare array (a `.npy`, or one member of a container) is identified, and so are tables in a model that have a position
name or that a graph adds. The result is compared with what is declared. Every row is read, a block at a time, and no
other tensor is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.auditing._edits import Edit, replaced
from clockhands.auditing.findings._finding import json_value
from clockhands.auditing.findings._parts import AuditSubject, check, declared
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.model_types import learned_tensors
from clockhands.configs.position_tables import is_table, position_tables, rows_of
from clockhands.configs.resolve import code_of
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved
from clockhands.configs.targets import Opened
from clockhands.encodings.additive import AdditiveCode, Sinusoidal
from clockhands.encodings.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.encodings.grids import Grid
from clockhands.encodings.specs import SPECS, describe
from clockhands.errors import ClockhandsError
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.files import file_and_key
from clockhands.phrases import listed, spoken
from clockhands.recognition import LOW_PRECISION, Match, Matches, Residual, identify

_TENSOR = "The tensor must be computed or loaded again."


class ShortTable(Case, code="short-table"):
    def edit(self) -> Edit | None:
        """Set the declared length to that of the table, if the length is in a file."""
        usable = self.usable
        place = next((name for name, value in self.stated if value == self.context), None)
        if place is None or not isinstance(usable, int) or usable < 1:
            return None
        return replaced(place, usable, f"Set the length to the {spoken(usable)} positions of the table.")


class LowPrecisionTable(Case, code="low-precision"):
    rounded = ()

    def parts(self) -> str:
        """What is rounded, as text."""
        return listed(list(self.rounded)) or "numbers"


class TableSize(Case, code="table-size"):
    def defaults(self) -> str:
        """The sizes that the model's class has if the file has none, as text."""
        held = {name: value for name, value in self.evidence.items() if name.startswith("class default")}
        return listed([f"the {name} is {spoken(value)}" for name, value in held.items()])


# Tables of a model that are examined although nothing is declared about them.
_MOST_TABLES = 16
_BLOCK = 2**20  # numbers that are examined together


@check
def short_table(subject: AuditSubject) -> Iterator[Case]:
    """Learned tables that are shorter than the context that the file declares."""
    resolved = subject.resolved
    for code in resolved.codes:
        if code.kind != "learned" or code.rows is None or resolved.context is None or code.part not in TEXT:
            continue
        if code.source.get("context") not in (None, resolved.source.get("context")):
            continue  # a part of the model whose length is declared by a separate key
        if code.source.get("context", "").startswith("class default of"):
            continue  # the class has this table beside that context
        offset = code.offset or 0
        if code.rows - offset < resolved.context:
            evidence = {"rows": code.rows, "offset": offset, "usable": code.rows - offset, "context": resolved.context}
            yield case_of("short-table", evidence | declared(code, "rows") | declared(resolved, "context"), code.layers)


@dataclass(frozen=True)
class RowFlags:
    """Rows of a table that are not finite, zero, or repeated.

    Attributes:
        count: Number of rows of the table.
        nonfinite: Rows with a NaN or an infinity.
        zero: Rows of zeros.
        repeated: Rows equal to the row before, except zeros.
    """

    count: int
    nonfinite: np.ndarray
    zero: np.ndarray
    repeated: np.ndarray


@dataclass(frozen=True)
class ExaminedTable:
    """One table that was examined.

    Attributes:
        place: Where it is: the file and the name.
        info: The tensor.
        rows: Its rows.
        matches: What it was recognised as.
        code: The declared code, or None.
        rounded: The dtype to which its positions were rounded, if its rows repeat exactly where that dtype skips
            numbers.
    """

    place: str
    info: TensorInfo
    rows: RowFlags
    matches: Matches
    code: LayerEncoding | None = None
    rounded: str | None = None

    @property
    def match(self) -> Match | None:
        """The best match."""
        return self.matches[0] if self.matches else None

    @property
    def layers(self) -> str | None:
        """The layers that it is declared for."""
        return None if self.code is None else self.code.layers

    @property
    def shape(self) -> dict[str, Any]:
        """Its shape, as evidence."""
        return {self.place: list(self.info.shape)}

    @property
    def kind(self) -> str | None:
        """What it is declared to be, else what it was recognised as."""
        if self.code is not None and self.code.kind is not None:
            return self.code.kind
        return None if self.match is None else code_of(self.match.spec, None, None).kind


def audit_array(opened: Opened) -> tuple[Resolved, list[Case]]:
    """What a bare array is, and the findings on it."""
    codes, cases = [], []
    for name in opened.tensors:
        looked = _looked(opened, name, None)
        codes.append(_recognised_code(looked))
        cases += _noticed(looked, bare=True)
    return Resolved(None, None, None, tuple(codes), ()), cases


def audit_tables(opened: Opened, resolved: Resolved) -> tuple[Resolved, list[Case]]:
    """What the tables inside a model are, compared with what is declared; quantised tables only if they can be read."""
    codes, cases = list(resolved.codes), []
    seen = set()
    for place, code in enumerate(resolved.codes):
        name = file_and_key(code.source.get("rows", ""))[1]
        if code.kind not in ("learned", "sinusoidal", None) or name not in opened.tensors:
            continue
        seen.add(name)
        looked = _try(opened, name, code)
        if looked is None:
            continue
        cases += _noticed(looked, bare=False)
        cases += _of_declaration(looked)
        found = _recognised_code(looked)
        if code.kind is None and found.kind is not None:
            codes[place] = found
    unnamed = opened.form == "onnx" and opened.config is None
    for name in position_tables(opened)[:_MOST_TABLES] if opened.tensors else ():
        if name in seen or not (unnamed or opened.config is not None):
            continue
        looked = _try(opened, name, None)
        # Without a name or declaration, a matrix that a graph adds may be anything but a sinusoid.
        if looked is None or looked.match is None or not isinstance(looked.match.spec, AdditiveCode):
            continue
        if looked.match.spec.learned and not looked.match.computed:
            continue
        cases += _noticed(looked, bare=False)
        if unnamed:
            codes = [code for code in codes if (code.part, code.kind) != ("other", None)]
            codes.append(_recognised_code(looked))
    facts = resolved.facts
    if len(codes) > len(resolved.codes) or any(code.kind for code in codes):
        facts = tuple(fact for fact in facts if fact.code != "nothing-declared")
    return replace(resolved, codes=tuple(codes), facts=facts), cases


def _try(opened: Opened, name: str, code: LayerEncoding | None) -> ExaminedTable | None:
    try:
        return _looked(opened, name, code) if is_table(opened.tensor(name)) else None
    except ClockhandsError:
        return None


def _looked(opened: Opened, name: str, code: LayerEncoding | None) -> ExaminedTable:
    info = opened.tensor(name)
    array = rows_of(info)
    rows = _rows(array)
    if len(rows.zero) == rows.count and rows.count:
        matches = Matches([], "All its numbers are zero.")
    elif len(rows.nonfinite):
        matches = Matches([], f"Row {rows.nonfinite[0]} holds NaN or infinite numbers.")
    else:
        matches = identify(array)
    rounded = _rounded(rows) if is_table(info) else None
    if rounded is not None and not any(_exact(match) or match.computed_in == rounded for match in matches[:1]):
        # Equal rows are those of rounded positions, or of none.
        matches = _at_rounded_positions(array, rounded) or Matches([], matches.reason)
    return ExaminedTable(_place(info), info, rows, matches, code, rounded)


def _exact(match: Match) -> bool:
    return match.residual is None and match.computed


def _at_rounded_positions(array: np.ndarray, rounded: str) -> Matches | None:
    """Any code, computed exactly at rounded positions; its error is the effect of that rounding."""
    count = len(array)
    again = identify(array, positions=_positions_in(rounded, count))
    if not again or not _exact(again[0]):
        return None
    match = replace(again[0], computed_in=rounded, evidence=(("rounded", ["positions"]),))
    if isinstance(match.spec, Sinusoidal) and match.values is None:
        match = replace(match, positions=range(count), error=Residual.between(array, match.spec).largest)
    return Matches([match], again.reason)


def _rounded(rows: RowFlags) -> str | None:
    """The dtype that skips exactly those whole numbers at which rows repeat the one before.

    >>> nothing = np.empty(0, np.int64)
    >>> _rounded(RowFlags(261, nothing, nothing, np.array([257, 260])))
    'bfloat16'
    >>> _rounded(RowFlags(261, nothing, nothing, nothing))
    """
    if not len(rows.repeated):
        return None
    for name in LOW_PRECISION:
        at = _positions_in(name, rows.count)
        if np.array_equal(np.flatnonzero(at[1:] == at[:-1]) + 1, rows.repeated):
            return name
    return None


def _positions_in(dtype: str, count: int) -> np.ndarray:
    """The positions 0 to ``count - 1``, rounded to a dtype."""
    with np.errstate(over="ignore"):
        return np.arange(count).astype(output_dtype(dtype)).astype(np.float64)


def _rows(array: np.ndarray) -> RowFlags:
    """Every row, block by block."""
    if array.dtype.kind in "biu":
        count = array.shape[0] if array.ndim else 1
        return RowFlags(count, *(np.empty(0, np.int64) for _ in range(3)))
    rows = array.reshape(array.shape[0] if array.ndim else 1, -1) if array.size else np.empty((0, 1))
    step = max(1, _BLOCK // rows.shape[1])
    found: tuple[list[np.ndarray], ...] = ([], [], [])
    before = None
    for begin in range(0, len(rows), step):
        block = np.asarray(rows[begin : begin + step])
        finite = np.isfinite(block).all(axis=1)
        same = np.zeros(len(block), bool)
        with np.errstate(invalid="ignore"):  # a signalling NaN says so when it is compared
            zero = (block == 0).all(axis=1)
            same[1:] = (block[1:] == block[:-1]).all(axis=1)
            same[:1] = before is not None and bool((block[0] == before).all())
        for places, flags in zip(found, (~finite, zero, same & ~zero), strict=True):
            places.append(np.flatnonzero(flags) + begin)
        before = block[-1]
    nonfinite, zero, repeated = (np.concatenate(places or [np.empty(0, np.int64)]) for places in found)
    return RowFlags(len(rows), nonfinite, zero, repeated)


# What becomes a position code


def _recognised_code(looked: ExaminedTable) -> LayerEncoding:
    """The position code of a table; for an unrecognised one, its shape."""
    declared, match, shape = looked.code, looked.match, looked.info.shape
    part, layers = ("other", None) if declared is None else (declared.part, declared.layers)
    width, rows = shape[-1] if shape else None, shape[-2] if len(shape) > 1 else None
    if is_table(looked.info):
        rows = looked.rows.count
    known = {field: looked.place for field, value in (("width", width), ("rows", rows)) if value is not None}
    if match is None:
        name = file_and_key(looked.place)[1]
        learned = any(name == end or name.endswith(f".{end}") for end in learned_tensors())
        source = known | ({"kind": f"name of {looked.place}"} if learned else {})
        return LayerEncoding(part, layers, "learned" if learned else None, width=width, rows=rows, source=source)
    code = code_of(match.spec, None, None)
    found = f"{looked.place} (recognised)"
    offset = _offset(match)
    code = replace(code, part=part, layers=layers, width=width, rows=rows, offset=offset)
    fields = ("kind", "layout", "base", "rates", "offset")
    source = dict.fromkeys((field for field in fields if getattr(code, field) is not None), found)
    return replace(code, source=source | known | ({"layers": looked.place} if layers else {}))


def _offset(match: Match) -> int | None:
    """The row of position 0, if the rows are at consecutive whole positions."""
    positions = match.positions
    if isinstance(positions, range) and positions.step == 1 and 0 <= -positions.start < len(positions):
        return -positions.start
    return None


# What there is to say


def _noticed(looked: ExaminedTable, *, bare: bool) -> Iterator[Case]:
    """What is noticed about a table; a bare one is of no model."""
    for code, evidence in (*_of_rows(looked, bare=bare), *_of_recognition(looked, bare=bare)):
        # That nothing was recognised says the shape by itself.
        yield case_of(code, evidence | ({} if "shape" in evidence else looked.shape), looked.layers)


Noticed = Iterator[tuple[str, dict[str, Any]]]
"""Findings with their evidence but for the shape of the table."""


def _of_rows(looked: ExaminedTable, *, bare: bool) -> Noticed:
    rows = looked.rows
    if len(rows.nonfinite):
        yield "non-finite-rows", _counted("rows with NaN or infinity", rows.nonfinite, rows)
    if not is_table(looked.info):
        return
    if len(rows.zero) == rows.count:
        yield "zero-table", {"rows": rows.count, "width": looked.info.shape[-1]}
        return
    if bare and looked.kind is None and looked.rounded is None:
        return  # it may be anything, and need not have a row for each position
    if len(rows.repeated):
        more = {"kind": looked.kind, "positions rounded to": looked.rounded}
        yield "repeated-rows", _counted("rows like the one before", rows.repeated, rows) | more
    zeros = _unexpected_zeros(looked)
    if len(zeros):
        yield "zero-rows", _counted("rows of zeros", zeros, rows)


def _counted(what: str, found: np.ndarray, rows: RowFlags) -> dict[str, Any]:
    return {what: len(found), "rows": rows.count, "first such row": int(found[0])}


def _unexpected_zeros(looked: ExaminedTable) -> np.ndarray:
    """Rows of zeros that are neither before the first position nor the code's padding row."""
    match, zero = looked.match, looked.rows.zero
    told = set()
    if match is not None:
        # One row of zeros is the padding row.
        told = {*range(match.rows.prepended), *(match.rows.zeroed if len(match.rows.zeroed) == 1 else ())}
    offset = (looked.code.offset if looked.code is not None else None) or 0
    return np.array([row for row in zero if row not in told and row >= max(offset, 1)], np.int64)


def _of_recognition(looked: ExaminedTable, *, bare: bool) -> Noticed:
    match = looked.match
    if match is None:
        if bare and looked.rounded is None:
            evidence: dict[str, Any] = {"shape": list(looked.info.shape), "dtype": looked.info.dtype}
            yield "not-recognised", evidence | {"reason": looked.matches.reason}
    elif match.computed_in in LOW_PRECISION:
        yield "low-precision", _recognised(match) | {"rounded": dict(match.evidence).get("rounded", [])}
    elif match.residual is not None:
        yield _moved(match)
    elif bare or ((looked.code is None or looked.code.kind != "sinusoidal") and match.computed):
        yield "recognised", _recognised(match)


def _moved(match: Match) -> tuple[str, dict[str, Any]]:
    residual = match.residual
    assert residual is not None
    wrong = dict(match.evidence).get("wrong_rows")
    evidence: dict[str, Any] = {
        "code": describe(match.spec),
        "largest difference": json_value(residual.largest),
        "share": json_value(residual.share),
        "furthest row": residual.rows[0] if residual.rows else None,
    }
    # Identification lists the first ten rows that differ: fewer than ten are all of them.
    if isinstance(wrong, list | tuple) and 0 < len(wrong) < 10:
        return "wrong-rows", evidence | {"rows that differ": [int(row) for row in wrong]}
    return "moved-table", evidence


def _recognised(match: Match) -> dict[str, Any]:
    others = [describe(other) if isinstance(other, SPECS) else str(other) for other in match.equivalents]
    return {
        "code": describe(match.spec),
        "name": match.name,
        "positions": _positions(match),
        "error": json_value(match.error),
        "confidence": json_value(match.confidence),
        "computed in": match.computed_in,
        "also": others,
        "computed": match.computed,
    }


def _positions(match: Match) -> str | None:
    """The positions of the rows, as text: `positions 0 to 511`."""
    positions = match.positions
    if isinstance(positions, Grid):
        before = (
            f", {positions.prefix} row{'s' if positions.prefix > 1 else ''} before them" if positions.prefix else ""
        )
        return f"the cells of a grid of {' x '.join(map(str, positions.sizes))}{before}"
    if isinstance(positions, range):
        steps = "" if positions.step == 1 else f" in steps of {positions.step}"
        return f"positions {positions[0]:,} to {positions[-1]:,}{steps}"
    if positions is None:
        return None
    each = np.asarray(positions)
    if each.ndim != 1 or each.size < 2:
        return f"{len(each):,} positions" if each.ndim else f"positions 0 to {int(each) - 1:,}"
    steps = np.diff(each)
    even = f" in steps of {steps[0]:.6g}" if np.allclose(steps, steps[0], rtol=1e-6, atol=0) else ""
    return f"positions {each[0]:.6g} to {each[-1]:.6g}{even}"


def _of_declaration(looked: ExaminedTable) -> Iterator[Case]:
    """A table that is declared to be a sinusoid, compared with it."""
    code = looked.code
    if code is None or code.kind != "sinusoidal" or not isinstance(code.spec, Sinusoidal):
        return
    if len(looked.rows.nonfinite) or len(looked.rows.zero) == looked.rows.count:
        return  # said already
    width = looked.info.shape[-1]
    if width != code.spec.width:
        return  # different sizes are a separate finding
    residual = Residual.between(rows_of(looked.info), code.spec)
    # Tables are usually computed in float32: a frequency is within an ulp or two, and so is the phase.
    allowed = UNIT_ROUNDOFF[looked.info.dtype] / 2 + 2.0**-24 + looked.rows.count * max(code.spec.rates) * 2.0**-22
    if residual.largest <= allowed:
        return
    match = looked.match
    evidence = {
        "declared": describe(code.spec),
        "largest difference": json_value(residual.largest),
        "furthest row": residual.rows[0],
        "table": None if match is None else (match.name or describe(match.spec)),
        "reason": looked.matches.reason,
        "positions": None if match is None else _positions(match),
    }
    yield case_of("table-differs", evidence | looked.shape, code.layers)


def _place(info: TensorInfo) -> str:
    return f"{info.declared_in.name}:{'shape' if info.file.suffix == '.npy' else info.name}"
