"""A frequency ladder and the channels of its pairs: exact cosines and sines at any positions.

Used by tables, rotations, shifts and kernels. Each dimension pair of a clock occupies two channels. Shifting the
position by ``k`` rotates pair ``i`` by ``k rate_i``, at every position.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.dtypes import before_rounding
from clockhands.encodings.ladders import Ladder
from clockhands.encodings.layouts import Layout, pair_channels, place
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.phases import fill, units
from clockhands.encodings.positions import Positions, positions_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_CHUNK = 1 << 20  # phases at once in a kernel: 16 MB

Order = Literal["sin-cos", "cos-sin"]


def order_of(name: object) -> Order:
    """The order of sine and cosine with this name.

    Raises:
        InvalidValue: The name is unknown.
    """
    if name not in ("sin-cos", "cos-sin"):
        raise InvalidValue(
            f'`order` must be "sin-cos" or "cos-sin", got {shown(name)}.',
            "It selects whether the sine or the cosine of a pair comes first.",
        )
    return name  # type: ignore[return-value]


@dataclass(frozen=True)
class Clock:
    """A frequency ladder and the channels into which the cosines and sines of its pairs are written.

    Attributes:
        ladder: The frequencies of the pairs.
        layout: Which two channels form a pair.
        order: Whether sine or cosine comes first in a pair.
        width: Channels written: ``2 * pairs``, or one less where the last pair has no second channel.
        channels: The two channels of each pair, int64 [pairs, 2], where they differ from those of the layout.
        axes: For positions of several coordinates, the ladder and the pairs of each axis. The pairs of the first axis
            come first, then those of the next, in the order of ``ladder`` and ``channels``. Empty for one axis.
    """

    ladder: Ladder
    layout: Layout
    order: Order
    width: int
    channels: np.ndarray | None = field(default=None, compare=False)
    axes: tuple[Ladder, ...] = ()

    @property
    def number_of_axes(self) -> int:
        """Number of coordinates of a position."""
        return max(1, len(self.axes))

    def units(self, positions: Positions) -> NDArray[np.complex128]:
        """``cos + i sin`` of every pair, complex128 [*positions, pairs]; several axes take positions [..., axes]."""
        if not self.axes:
            return units(self.ladder, positions)
        parts = [units(ladder, positions.coordinate(axis)) for axis, ladder in enumerate(self.axes)]
        return np.concatenate(parts, axis=-1)

    def write(self, out: np.ndarray, positions: Positions, threads: int | None) -> None:
        """Write the sines and cosines of all pairs at these (flattened) positions into ``out`` [rows, width]."""

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            place(out[rows, : self.width], before_rounding(block, out.dtype), pairs, self.layout)

        fine = out.dtype == np.float64
        fill(write, self.ladder, positions, swapped=self.order == "sin-cos", fine=fine, threads=threads)

    def shift(self, distance: Any, width: int) -> np.ndarray:
        """The matrix that rotates all pairs by ``distance`` tokens, float64 [width, width]; identity elsewhere."""
        turn = self.units(positions_of([distance], "k"))[0]
        channels = pair_channels(self.ladder.pairs, self.layout) if self.channels is None else self.channels
        first, second = channels.T
        # (sin, cos) rotates in the opposite direction to (cos, sin).
        sine = turn.imag if self.order == "sin-cos" else -turn.imag
        matrix = np.eye(width)
        matrix[first, first] = matrix[second, second] = turn.real
        matrix[first, second], matrix[second, first] = sine, -sine
        return matrix


@runtime_checkable
class HasClock(Protocol):
    """A spec that is defined by a clock."""

    def clock(self) -> Clock:
        """The clock; raises InvalidValue, with the reason, where the spec has none."""
        ...


def shift(spec: Any, k: Any) -> np.ndarray:
    """The matrix ``R_k`` that shifts a code by ``k`` tokens: ``table(t + k) = table(t) @ R_k.T``.

    It rotates pair ``i`` by ``k rate_i`` and is the same at every position: float64 [width, width], orthogonal, with
    ``R_j R_k = R_(j + k)``. For a rotary code it is the matrix that rotates a query or key. For a code of several axes
    ``k`` is a distance along each of them.

    Accuracy: each entry within 0.78 ulp of 1; see `clockhands.encodings.phases`.

    Raises:
        InvalidValue: The code has no shift matrix; the message says why. Or ``k`` is not finite or above 2**63.
        InvalidType: ``spec`` is not a position code.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5 ("a linear function").

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> shift(Sinusoidal(width=2), 1).round(4).tolist()
    [[0.5403, 0.8415], [-0.8415, 0.5403]]
    """
    clock = _clock_of(spec, "shift")
    _check_distance(k, clock.number_of_axes)
    return clock.shift(k, getattr(spec, "width", None) or spec.head_width)


def kernel(spec: Any, distances: Any) -> np.ndarray:
    """``sum_i cos(rate_i distance)``: the dot product of two positions' codes, float64 in the distances' shape.

    For a code of several axes the distances are [..., axes], and the last axis is summed over.

    Accuracy: within ``pairs`` times 0.78 ulp of 1, and the rounding of the sum.

    Raises:
        InvalidValue: The code has no kernel; the message says why. Or a distance cannot be used.
        InvalidType: ``spec`` is not a position code.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> kernel(Sinusoidal(width=512), [0, 10]).round(3).tolist()
    [256.0, 173.79]
    """
    clock = _clock_of(spec, "kernel")
    at, axes = positions_of(distances, "distances"), clock.number_of_axes
    if axes > 1 and at.shape[-1:] != (axes,):
        raise InvalidValue(
            f"`distances` must be of shape [..., {axes}] for a code of {axes} axes, got {list(at.shape)}.",
            "Give one distance for each axis, in the order of the code's axes.",
        )
    shape = at.shape if axes == 1 else at.shape[:-1]
    refuse_larger(shape, 8, "A kernel")
    out = np.empty(math.prod(shape))
    step = max(1, _CHUNK // clock.ladder.pairs)
    for begin in range(0, len(out), step):
        end = min(begin + step, len(out))
        sizes = at.sizes(begin * axes, end * axes)
        piece = (end - begin,) if axes == 1 else (end - begin, axes)
        whole, part = (None if limb is None else limb.reshape(piece) for limb in sizes[:2])
        out[begin:end] = clock.units(Positions(piece, whole, part)).real.sum(axis=-1)
    return out.reshape(shape)


def _clock_of(spec: object, call: str) -> Clock:
    if isinstance(spec, type) or not isinstance(spec, HasClock):
        raise InvalidType(
            f"`{call}` takes a position encoding, got {type(spec).__name__} {shown(spec)}.",
            "Make one with clockhands.preset(name), or build a spec such as Sinusoidal(width=512).",
        )
    return spec.clock()


def _check_distance(k: Any, axes: int) -> None:
    if axes > 1:
        if not isinstance(k, Sequence | np.ndarray) or isinstance(k, str | bytes) or np.shape(k) != (axes,):
            raise InvalidValue(
                f"`k` must be one distance for each of {axes} axes, got {shown(k)}.",
                "Give the distances in the order of the encoding's axes.",
            )
        return
    if isinstance(k, Sequence | np.ndarray) or k is None:
        raise InvalidType(f"`k` must be one number of tokens, got {shown(k)}.", "Call shift once for each distance.")
