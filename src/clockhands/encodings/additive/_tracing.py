"""Additive codes at traced positions: inside ``jit``, ``vmap`` and ``compile``.

Sinusoids are computed by `clockhands.encodings.traces`, within 2**-22; rows of a learned table are gathered. Traced
values cannot be checked, so a position without a row gets NaN, which stays visible in every later sum, instead of a
wrong row.
"""

from typing import Any

import numpy as np

from clockhands.encodings import traces
from clockhands.encodings.additive._fourier import FourierFeatures
from clockhands.encodings.additive._learned import Learned, NoPosition
from clockhands.encodings.additive._naive import EvenlySpaced, SineOnly, SingleFrequency
from clockhands.encodings.additive.axial import AxialSinusoidal
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.additive.sinusoidal import Sinusoidal
from clockhands.encodings.additive.waves import both_waves
from clockhands.errors import InvalidType


def traced_rows(spec: AdditiveCode, positions: Any, values: Any, work: Any) -> Any:
    """The numbers of the code at traced positions, [*positions, width] (without their axis of coordinates) of ``work``.

    Args:
        spec: An additive code.
        positions: Integers of PyTorch or JAX.
        values: Learned numbers in the same library, where the code has some.
        work: Float32 or float64 of that library.

    Raises:
        InvalidType: The positions are not integers, or the code has no form inside a trace.
    """
    traces.prepare(spec)
    xp = traces.library(positions)
    if isinstance(spec, Learned):
        return _taken(spec, positions, values, xp, work)
    if isinstance(spec, Sinusoidal):
        width = min(spec.width, 2 * spec.ladder.pairs)
        rows = _sines_and_cosines(spec, width, positions, xp)
        mean, factor = traces.known_numbers(spec, "affine")
        rows = (rows - mean) * factor if (mean, factor) != (0, 1) else rows
        if width < spec.width:
            rows = xp.concat([rows, xp.zeros_like(rows[..., : spec.width - width])], axis=-1)
        for row in spec.zero_rows:
            rows = xp.where((positions == row)[..., None], xp.zeros_like(rows), rows)
        rows = xp.astype(rows, work)
        return rows * xp.astype(xp.reshape(values, ()), work) if spec.scaled else rows
    if isinstance(spec, AxialSinusoidal):
        return xp.astype(_axial(spec, positions, xp), work)
    if isinstance(spec, FourierFeatures):
        places = xp.astype(xp.reshape(positions, (-1, spec.axes)), work)
        rows = spec.inside_trace(values, places, xp, work)
        return xp.reshape(rows, (*(positions.shape if spec.axes == 1 else positions.shape[:-1]), spec.width))
    if isinstance(spec, (EvenlySpaced, SingleFrequency)):
        rows = _sines_and_cosines(spec, spec.width, positions, xp)
    elif isinstance(spec, SineOnly):
        rows = traces.cosine_sine(spec.ladder, positions, xp)[1]
    elif isinstance(spec, NoPosition):
        rows = xp.zeros((*positions.shape, spec.width), dtype=work, device=traces.device_of(positions))
    else:
        raise InvalidType(
            f"{type(spec).__name__} cannot be computed for positions that exist only inside a trace.",
            "Give positions as NumPy values or Python numbers, outside of jit, vmap and compile.",
        )
    return xp.astype(rows, work)


def _sines_and_cosines(spec: Sinusoidal | EvenlySpaced | SingleFrequency, width: int, positions: Any, xp: Any) -> Any:
    """Sines and cosines in their channels; with a width of one less than they need, the last channel is missing."""
    cosine, sine = traces.cosine_sine(spec.ladder, positions, xp)
    first, second = both_waves(cosine, sine, spec.order)
    if spec.layout == "halves":
        return xp.concat([first, second[..., : width - spec.ladder.pairs]], axis=-1)
    both = xp.stack([first, second], axis=-1)
    return xp.reshape(both, (*positions.shape, 2 * spec.ladder.pairs))[..., :width]


def _axial(spec: AxialSinusoidal, positions: Any, xp: Any) -> Any:
    """The sinusoids of each axis and the raw coordinates, in their channels."""
    parts = []
    for axis, ladder in enumerate(spec.ladders):
        at = positions if spec.number_of_axes == 1 else positions[..., axis]
        parts += both_waves(*traces.cosine_sine(ladder, at, xp), spec.order)
        if spec.raw is not None:
            parts.append(xp.astype(at, xp.float32)[..., None])
    parts.append(xp.zeros_like(parts[0][..., :1]))
    # PyTorch's compiler cannot trace the array API's way to get the device.
    where = {"device": positions.device} if "torch" in xp.__name__ else {}
    index = xp.asarray(traces.known_numbers(spec, "sources"), dtype=xp.int32, **where)
    rows = xp.take(xp.concat(parts, axis=-1), index, axis=-1)
    return rows * spec.scale if spec.scale != 1 else rows


def _taken(spec: Learned, positions: Any, values: Any, xp: Any, work: Any) -> Any:
    """The rows of a learned table, NaN for positions without one."""
    known = (positions >= 0) & (positions < spec.usable)
    # Clipped before the offset is added: a narrow integer would overflow.
    index = xp.where(known, positions, xp.zeros_like(positions))
    if "torch" in xp.__name__:
        index = xp.astype(index, xp.int64)
    index = index + spec.offset
    padding = spec.padding_position
    if padding is not None:
        stands = positions == padding
        known, index = known | stands, xp.where(stands, xp.full_like(index, padding + spec.offset), index)
    rows = xp.astype(values[index], work)
    return xp.where(known[..., None], rows, xp.full_like(rows, np.nan))
