"""A clock: a ladder, and the channels that its hands are written into.

What tables, rotations, shifts and kernels share. A clock's hands are pairs of a first and a second
channel; a shift of the position turns each by its own angle, the same wherever it stood.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from clockhands.arguments import shown
from clockhands.dtypes import before_rounding
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import Ladder
from clockhands.layouts import Layout, pair_channels, place
from clockhands.memory import refuse_larger
from clockhands.phases import fill, units
from clockhands.positions import Positions, positions_of

_CHUNK = 1 << 20  # phases at once in a kernel: 16 MB

Order = Literal["sin-cos", "cos-sin"]


def order_of(name: object) -> Order:
    """The order of sine and cosine of this name.

    Raises:
        InvalidValue: There is none.
    """
    if name not in ("sin-cos", "cos-sin"):
        raise InvalidValue(
            f'`order` must be "sin-cos" or "cos-sin", got {shown(name)}.', "It says which of the two stands first."
        )
    return name  # type: ignore[return-value]


@dataclass(frozen=True)
class Clock:
    """A ladder and how its hands are written into channels.

    Attributes:
        ladder: The rates of the hands.
        layout: Which two channels belong to a hand.
        order: Whether sine or cosine stands first.
        width: Channels that are written, ``2 * pairs``, or one less where the last hand has no second.
        channels: The two channels of each hand, int64 [pairs, 2], where they are not those of the layout.
    """

    ladder: Ladder
    layout: Layout
    order: Order
    width: int
    channels: np.ndarray | None = field(default=None, compare=False)

    def write(self, out: np.ndarray, positions: Positions, threads: int | None) -> None:
        """Write the hands at these (flattened) positions into ``out`` [rows, width]."""

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            place(out[rows, : self.width], before_rounding(block, out.dtype), pairs, self.layout)

        fine = out.dtype == np.float64
        fill(write, self.ladder, positions, swapped=self.order == "sin-cos", fine=fine, threads=threads)

    def shift(self, distance: int | float, width: int) -> np.ndarray:
        """The rotation of all hands by ``distance`` tokens, float64 [width, width]; other channels stay as they are."""
        turn = units(self.ladder, positions_of([distance], "k"))[0]
        channels = pair_channels(self.ladder.pairs, self.layout) if self.channels is None else self.channels
        first, second = channels.T
        # (sin, cos) turns against (cos, sin).
        sine = turn.imag if self.order == "sin-cos" else -turn.imag
        matrix = np.eye(width)
        matrix[first, first] = matrix[second, second] = turn.real
        matrix[first, second], matrix[second, first] = sine, -sine
        return matrix


@runtime_checkable
class HasClock(Protocol):
    """A spec with a clock behind it."""

    def clock(self) -> Clock:
        """The clock; InvalidValue where there is none, with the reason."""
        ...


def shift(spec: Any, k: int | float) -> np.ndarray:
    """The matrix ``R_k`` that moves a code by ``k`` tokens: ``table(t + k) = table(t) @ R_k.T``.

    A rotation of every pair by ``k rate_i``, the same wherever one stands; float64 [width, width],
    orthogonal, and ``R_j R_k = R_(j + k)``. For a rotary code it is what turns a query or key.

    Accuracy: each entry within 0.78 ulp of 1; see `clockhands.phases`.

    Raises:
        InvalidValue: The code has no shift matrix; the message says why. Or ``k`` is not finite or above 2**63.
        InvalidType: ``spec`` is not a position code.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5 ("a linear function").

    >>> from clockhands.additive import Sinusoidal
    >>> shift(Sinusoidal(width=2), 1).round(4).tolist()
    [[0.5403, 0.8415], [-0.8415, 0.5403]]
    """
    _check_distance(k)
    clock = _clock_of(spec, "shift")
    return clock.shift(k, getattr(spec, "width", None) or spec.head_width)


def kernel(spec: Any, distances: Any) -> np.ndarray:
    """``sum_i cos(rate_i distance)``: the dot product of two positions' codes, float64 in the distances' shape.

    Accuracy: within ``pairs`` times 0.78 ulp of 1, and the rounding of the sum.

    Raises:
        InvalidValue: The code has no kernel; the message says why. Or a distance cannot be used.
        InvalidType: ``spec`` is not a position code.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    >>> from clockhands.additive import Sinusoidal
    >>> kernel(Sinusoidal(width=512), [0, 10]).round(3).tolist()
    [256.0, 173.79]
    """
    ladder = _clock_of(spec, "kernel").ladder
    at = positions_of(distances, "distances")
    refuse_larger((at.size,), 8, "A kernel")
    out = np.empty(at.size)
    step = max(1, _CHUNK // ladder.pairs)
    for begin in range(0, at.size, step):
        end = min(begin + step, at.size)
        sizes = at.sizes(begin, end)
        out[begin:end] = units(ladder, Positions((end - begin,), sizes.whole, sizes.part)).real.sum(axis=-1)
    return out.reshape(at.shape)


def _clock_of(spec: object, call: str) -> Clock:
    if isinstance(spec, type) or not isinstance(spec, HasClock):
        raise InvalidType(
            f"`{call}` takes a position code, got {type(spec).__name__} {shown(spec)}.",
            "Make one with clockhands.preset(name), or build a spec such as Sinusoidal(width=512).",
        )
    return spec.clock()


def _check_distance(k: object) -> None:
    if isinstance(k, Sequence | np.ndarray) or k is None:
        raise InvalidType(f"`k` must be one number of tokens, got {shown(k)}.", "Call shift once for each distance.")
