"""What is known about a position code of a target: its spec, else its frequencies, and learned numbers from the file.

A config describes the shape of a learned table and not its values; the weights hold those. Values in quantised GGUF
blocks are read by the format's own library, if it is installed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands import formats
from clockhands.configs.opened import Opened
from clockhands.configs.position_tables import is_table, rows_of
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.weights import BUCKETS, part_in, rows_and_width
from clockhands.encodings.additive import Learned, Sinusoidal
from clockhands.encodings.biases.codes import BiasCode, TableCode
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import LongRope
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.files import file_and_key
from clockhands.recognition import LOW_PRECISION, Match, identify

_ABSENT = "Its trained numbers are not in what was read: name the weights to have them measured."


@dataclass(frozen=True, eq=False)
class HeldCode:
    """A code as far as a target determines it.

    Attributes:
        spec: The code; None if too little is known.
        values: Its learned numbers; None if it has none, or the target does not hold them.
        notes: What was assumed, and which numbers are missing, in sentences.
        why: Why there is no spec.
        length: Rows of a bare array, or of its longest axis; None for other targets.
    """

    spec: Any = None
    values: Any = None
    notes: tuple[str, ...] = ()
    why: str | None = None
    length: int | None = None


def spec_of(code: LayerEncoding) -> Any:
    """The spec of a code: its own, else one made from its frequencies (no property depends on the layout)."""
    spec = code.spec
    if spec is None and code.kind == "rotary" and code.rates:
        try:
            return _of_rates(code)
        except ClockhandsError:
            return None
    if isinstance(spec, Rotary) and spec.scaling is None and spec.length is not None:
        return replace(spec, length=None)  # nothing in it depends on a length, so the known length is kept
    return spec


def in_step(code: LayerEncoding, spec: Any) -> Any:
    """The spec of a code for text: all coordinates of a text token are equal, so all sections advance together.

    The pairs of all axes then form one ladder, in the order of the channels. With one axis it is the spec itself.
    """
    return spec if code.sections is None or code.counts_apart else replace(spec, axes=None)


def held_by(opened: Opened, code: LayerEncoding) -> HeldCode:
    """What a target determines about one of its codes."""
    spec = spec_of(code)
    if spec is None:
        return HeldCode(why=_why_unknown(code))
    if isinstance(spec, Learned):
        return _learned(opened, code, spec)
    if isinstance(spec, TableCode) and spec.learned:
        return _looked_up(opened, code, spec)
    if getattr(spec, "learned", False):
        return HeldCode(spec, None, (_ABSENT,))
    paired = code.kind != "rotary" or code.layout is not None or code.spec is not None
    return HeldCode(spec, None, () if paired else ("The layout is unknown; no figure here depends on it.",))


def held_array(info: TensorInfo) -> HeldCode:
    """The code of a bare array: a computed code if it is recognised, else learned rows.

    Raises:
        Unreadable: It is not a table of numbers, or cannot be read.
    """
    where = f"{info.name} in {info.file}" if info.name != info.file.name else str(info.file)
    if not is_table(info):
        raise Unreadable(
            f"{where} is not a table of positions: its shape is {list(info.shape)} and its dtype {info.dtype}.",
            "Name an array of real numbers with one row for each position, [rows, width].",
        )
    rows = rows_of(info)
    unfit = _not_finite(rows)
    if unfit is not None:
        raise Unreadable(
            f"{where} cannot be measured: {unfit}", "`clockhands audit` says which rows of this tensor are wrong."
        )
    match = next(iter(identify(rows)), None)
    count, width = rows.shape
    if match is not None and (found := _exact_spec(match)) is not None:
        return HeldCode(found[0], match.values, (_recognised(match),), length=found[1])
    seen = "" if match is None or match.name is None else f" (they are close to {match.name}, but differ)"
    note = f"The numbers match no known encoding{seen}: they are measured as stored."
    return HeldCode(Learned(width, count), np.asarray(rows), (note,), length=count)


def _exact_spec(match: Match) -> tuple[Any, int] | None:
    """The spec that gives exactly these rows from its first position on, and the number of rows along an axis."""
    if not match.computed or match.residual is not None or match.computed_in in LOW_PRECISION:
        return None
    at = match.positions
    if isinstance(at, Grid):
        return (match.spec, max(at.sizes)) if set(at.start) == {0} and set(at.step) == {1} else None
    if not isinstance(at, range) or at.step != 1:
        return None
    if at.start == getattr(match.spec, "first", 0):
        return match.spec, len(at)
    return (replace(match.spec, first=at.start), len(at)) if isinstance(match.spec, Sinusoidal) else None


def _recognised(match: Match) -> str:
    name = match.name or "a computed code"
    return f"The array is recognised as {name}, off by at most {match.error:.2g}; the code is measured."


def _of_rates(code: LayerEncoding) -> Rotary:
    """A rotary code with these frequencies, in an arbitrary layout (no property depends on it)."""
    assert code.rates is not None
    rotated = code.rotated or 2 * len(code.rates)
    factor = code.attention_factor
    ones = (1.0,) * len(code.rates)
    scaling = None if factor in (None, 1.0) else LongRope(ones, ones, 2, 1.0, attention_factor=factor)
    width = code.width if code.width is not None and code.width >= rotated else rotated
    return Rotary(width, "halves", spacing=Explicit(code.rates), rotated=rotated, scaling=scaling)


def _why_unknown(code: LayerEncoding) -> str:
    if code.kind == "none":
        return "These layers have no position encoding, so there are no properties."
    if code.kind is None:
        return "The position encoding was not recognised."
    if code.kind == "rotary":
        return "Its RoPE frequencies cannot be computed from the files."
    missing = [name for name in ("width", "rows", "offset") if getattr(code, name) is None]
    if code.kind == "learned" and missing:
        verb = "is" if len(missing) == 1 else "are"
        return f"The files do not say all of the table: its {' and '.join(missing)} {verb} not known."
    return f"The files do not say all of its numbers, so that this {code.kind} code cannot be made."


# Learned numbers


def _learned(opened: Opened, code: LayerEncoding, spec: Learned) -> HeldCode:
    name = file_and_key(code.source.get("rows", ""))[1]
    if name not in opened.tensors:
        return HeldCode(spec, None, (_ABSENT,))
    return _with(spec, opened.tensors[name], spec.values_shape)


def _looked_up(opened: Opened, code: LayerEncoding, spec: TableCode) -> HeldCode:
    """A bias whose table is stored once, in the first layer, for all layers."""
    shape = next(iter(spec.shapes.values()))
    found = [info for name, info in opened.tensors.items() if BUCKETS.search(name) and code.part == part_in(name)]
    fits = [info for info in found if info.shape == shape]
    if not fits:
        return HeldCode(spec, None, (_ABSENT,))
    return _with(spec, fits[0], shape)


def _with(spec: Learned | BiasCode, info: TensorInfo, shape: Sequence[int]) -> HeldCode:
    """The spec with its values from one tensor, or without them and the reason."""
    try:
        values = numbers_of(info)
    except ClockhandsError as error:
        return HeldCode(spec, None, (f"Its numbers cannot be read: {error.message}",))
    if values.shape != tuple(shape):
        return HeldCode(spec, None, (f"{info.name} is of shape {list(info.shape)} and not {list(shape)}.",))
    unfit = _not_finite(values)
    if unfit is not None:
        return HeldCode(spec, None, (f"Its numbers are left out: {unfit}",))
    return HeldCode(spec, values)


def numbers_of(info: TensorInfo) -> np.ndarray:
    """A table [rows, width] in memory; one in blocks of a GGUF type as float32.

    Raises:
        Unreadable: It cannot be read, or the library for its type is not installed.
        TooLarge: It takes more than 4 GiB.
    """
    if not formats.gguf.is_quantised(info):
        return np.asarray(rows_of(info))
    found = rows_and_width(info.shape)
    rows = info.elements // info.shape[-1] if found is None else found[0]
    return formats.gguf.quantised_rows(info, np.arange(rows))


def _not_finite(rows: np.ndarray) -> str | None:
    """A sentence naming the first row with a NaN or an infinity; None if all values are finite."""
    step = max(1, 2**20 // max(1, rows.shape[-1]))
    for begin in range(0, len(rows), step):
        bad = np.flatnonzero(~np.isfinite(np.asarray(rows[begin : begin + step])).all(axis=-1))
        if len(bad):
            return f"row {begin + int(bad[0])} holds NaN or infinite numbers."
    return None
