"""Sinusoids of several axes (images, video, boxes): each coordinate has separate pairs and channels."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, one_of, positive, set_fields
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.additive.waves import Waves, check_fits, clock_order, into_waves, sine_first, waves_of
from clockhands.encodings.clocks import Clock
from clockhands.encodings.dtypes import before_rounding
from clockhands.encodings.ladders import Ladder, Spacing, spacing_of
from clockhands.encodings.phases import fill
from clockhands.encodings.positions import Positions
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Channels = Literal[
    "axis-wave-rate", "axis-rate-wave", "wave-axis-rate", "wave-rate-axis", "rate-axis-wave", "rate-wave-axis"
]
Uneven = Literal["refuse", "zero", "cut"]
Raw = Literal["before", "after", "before-each", "after-each"]

# A function that spreads rows [distinct values, numbers] of one coordinate to all positions.
Spread = Callable[[np.ndarray], np.ndarray]
_FEW = 64  # number of positions below which a search for equal coordinates does not pay


@dataclass(frozen=True, init=False)
class AxialSinusoidal(AdditiveCode):
    """Sine and cosine of each coordinate x rate: ``sin(p_a rate_k)`` and ``cos(p_a rate_k)``, axis ``a``, rate ``k``.

    Images, video, boxes and points. Positions are [seq, axes], their coordinates in the order of the code's axes;
    `clockhands.grids.Grid` gives those of a grid. Published codes differ in which axis comes first (x or y), in the
    order of the channels, and in the positions of the grid's cells:

    ====================  ===============  ==========================================================
    family                axes             ``channels``
    ====================  ===============  ==========================================================
    MAE, DiT, MoCo v3     x, y             ``axis-wave-rate``: sines, then cosines of x; the same of y
    DETR                  y, x             ``axis-rate-wave``: sine, cosine, sine, …
    timm                  y, x             ``wave-axis-rate``: sines of y, of x; cosines of y, of x
    NeRF                  x, y, z          ``rate-wave-axis``: for each octave sin(x, y, z), cos(x, y, z)
    ====================  ===============  ==========================================================

    Attributes:
        width: Channels of a token.
        shares: The relative number of channels of each axis: ``(1, 1)`` for two equal axes, ``(2, 3, 3)`` for
            CogVideoX (a quarter for time, three eighths each for height and width). Channel counts work too.
        spacing: The spacing of the rates, one for all axes or a tuple with one per axis; it spans the channels of its
            axis. ``base`` is short for ``Geometric(base)``, 10,000 by default.
        channels: The order of the channels: axis, rate and wave (sine or cosine) from slowest to fastest.
        order: Whether sine or cosine comes first, ``"sin-cos"`` or ``"cos-sin"``; see `Sinusoidal`.
        uneven: The treatment of a width that the shares do not divide: ``"refuse"``; ``"zero"``, as many pairs as fit,
            then columns of zeros (tensor2tensor); ``"cut"``, the next wider code without its last channels
            (positional-encodings).
        raw: Where the coordinates themselves are: ``"before"`` or ``"after"`` all sinusoids (NeRF, Perceiver), before
            or after those of each axis (``"before-each"``, ``"after-each"``: perceiver-pytorch); None for not at all.
            They count in the width.
        scale: A factor on all numbers.

    Shapes: a table is [positions, width], at positions [positions, axes]; with a single axis they are [positions].
    Accuracy: see `clockhands.encodings.phases`, times the scale; raw coordinates are rounded once.

    Raises:
        InvalidValue: The width is not positive, or with ``uneven="refuse"`` the shares do not divide it; a value is not
            allowed; a ladder does not exist for the channels of its axis.

    Source: He et al. 2021, MAE, arXiv:2111.06377 (facebookresearch/mae, ``util/pos_embed.py``); Carion et al. 2020,
    DETR, arXiv:2005.12872; Mildenhall et al. 2020, NeRF, arXiv:2003.08934, section 5.1.

    >>> code = AxialSinusoidal(width=8, shares=(1, 1))
    >>> code.pairs, code.rates
    ((2, 2), ((1.0, 0.01), (1.0, 0.01)))
    """

    width: int
    shares: tuple[int, ...]
    spacing: Spacing | tuple[Spacing, ...]
    channels: Channels
    order: Waves
    uneven: Uneven
    raw: Raw | None
    scale: float

    def __init__(
        self,
        width: int,
        shares: tuple[int, ...] = (1, 1),
        base: float | None = None,
        *,
        spacing: Spacing | tuple[Spacing, ...] | None = None,
        channels: Channels = "axis-wave-rate",
        order: Waves = "sin-cos",
        uneven: Uneven = "refuse",
        raw: Raw | None = None,
        scale: float = 1.0,
    ) -> None:
        """Check the values and make the ladders once, so that an invalid one is refused here."""
        parts = _shares(shares)
        set_fields(
            self,
            width=count("width", width),
            shares=parts,
            spacing=_spacings(base, spacing, len(parts)),
            channels=one_of("channels", channels, get_args(Channels), "They run from the slowest to the fastest."),
            order=waves_of(order),
            uneven=one_of("uneven", uneven, get_args(Uneven), "It is the rule for widths that the axes do not divide."),
            raw=raw if raw is None else one_of("raw", raw, get_args(Raw), "Leave it out for sines and cosines only."),
            scale=positive("scale", scale),
        )
        if self.raw is not None and self.uneven == "cut":
            raise InvalidValue(
                "`raw` cannot be used with uneven='cut': cutting the width could remove the raw coordinates.",
                'Use uneven="zero" or "refuse", or leave out `raw`.',
            )
        if self.raw in ("before-each", "after-each") and not self.channels.startswith("axis"):
            raise InvalidValue(
                f"raw={shown(self.raw)} puts coordinates next to the dimensions of their axis, but with "
                f"channels={shown(self.channels)} the dimensions of an axis are not in one block.",
                'Use raw="before" or "after", or channels that begin with "axis".',
            )
        _ = self.ladders

    @property
    def number_of_axes(self) -> int:
        """Number of coordinates of a position."""
        return len(self.shares)

    @property
    def _coordinates(self) -> int:
        return self.number_of_axes if self.raw is not None else 0

    @cached_property
    def pairs(self) -> tuple[int, ...]:
        """Number of pairs of each axis, before a width is cut."""
        each = 2 * sum(self.shares)
        unit, rest = divmod(self.width - self._coordinates, each)
        beside = f", plus {self._coordinates} for the raw coordinates" if self._coordinates else ""
        if rest and self.uneven == "refuse":
            raise InvalidValue(
                f"`width` must be a multiple of {each}{beside}, got {self.width}.",
                'Use such a width, or set uneven="zero" or "cut".',
            )
        unit += bool(rest) and self.uneven == "cut"
        if unit < 1:
            raise InvalidValue(
                f"`width` must be at least {each}{beside}, got {self.width}.",
                "Each axis needs a sine and a cosine.",
            )
        return tuple(unit * share for share in self.shares)

    @cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The ladder of each axis."""
        each = self.spacing if isinstance(self.spacing, tuple) else (self.spacing,) * self.number_of_axes
        made = {
            (spacing, pairs): spacing.ladder(pairs, 2 * pairs) for spacing, pairs in zip(each, self.pairs, strict=True)
        }
        return tuple(made[key] for key in zip(each, self.pairs, strict=True))

    @property
    def rates(self) -> tuple[tuple[float, ...], ...]:
        """The rate of each pair of each axis in radians per token, nearest float64."""
        return tuple(ladder.rates for ladder in self.ladders)

    @cached_property
    def places(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """The channels of the pairs, int64 [pairs, 2] for each axis, and those of the raw coordinates, [axes].

        If the width is cut, channels from ``width`` on do not exist.
        """
        # The content of each channel, (axis, rate, wave), and its sort key; a raw coordinate has wave 2.
        slots: list[tuple[tuple[float, ...], tuple[int, int, int]]] = []
        names = self.channels.split("-")
        for axis, pairs in enumerate(self.pairs):
            for rate in range(pairs):
                for wave in range(2):
                    at = {"axis": axis, "rate": rate, "wave": wave}
                    slots.append((tuple(at[name] for name in names), (axis, rate, wave)))
            side = {"before": -math.inf, "after": math.inf}.get((self.raw or "").partition("-")[0])
            if side is not None:
                key = (axis, side) if "each" in str(self.raw) else (side, axis)
                slots.append((key, (axis, 0, 2)))
        hands = tuple(np.empty((pairs, 2), np.int64) for pairs in self.pairs)
        coordinates = np.empty(self._coordinates, np.int64)
        for channel, (_, (axis, rate, wave)) in enumerate(sorted(slots)):
            if wave == 2:
                coordinates[axis] = channel
            else:
                hands[axis][rate, wave] = channel
        return hands, coordinates

    @cached_property
    def sources(self) -> list[int]:
        """The source of each channel, numbered axis by axis: first waves, second waves, raw coordinate.

        The last number is a source of zeros.
        """
        hands, coordinates = self.places
        numbered: list[int] = []
        for axis, channels in enumerate(hands):
            numbered += channels.T.reshape(-1).tolist()
            numbered += [int(coordinates[axis])] if self.raw is not None else []
        found = dict(zip(numbered, range(len(numbered)), strict=True))
        return [found.get(channel, len(numbered)) for channel in range(self.width)]

    @property
    def limit(self) -> float | None:
        """The scale bounds each sinusoid; None where raw coordinates, which are not bounded, are among the channels."""
        return self.scale if self.raw is None else None

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the numbers at these positions, [rows, axes] as `_tables` has checked, into ``out`` [rows, width]."""
        hands, coordinates = self.places
        out[:, 2 * sum(self.pairs) + len(coordinates) :] = 0
        check_fits(self.scale, out.dtype)
        grid = positions.grid if self.number_of_axes > 1 else None
        target = out if grid is None else out.reshape(*(grid.sizes[axis] for axis in grid.order), self.width)
        for axis, (ladder, channels) in enumerate(zip(self.ladders, hands, strict=True)):
            at, spread = _each_once(positions, axis, self.number_of_axes)
            if spread is None:
                self._write_axis(out, at, ladder, channels, threads)
            else:
                once = np.empty((at.size, 2 * ladder.pairs), out.dtype)
                apart = np.arange(2 * ladder.pairs).reshape(2, -1).T
                self._write_axis(once, at, ladder, apart, threads)
                for wave in range(2):
                    kept = channels[:, wave] < self.width
                    target[..., _run(channels[kept, wave])] = spread(once[:, _run(apart[kept, wave])])
            if self.raw is not None:
                numbers = self.scale * at.as_float64()
                check_fits(float(np.abs(numbers).max(initial=0)), out.dtype)
                numbers = before_rounding(numbers, out.dtype)
                target[..., coordinates[axis]] = numbers if spread is None else spread(numbers[:, None])[..., 0]

    def _write_axis(
        self, out: np.ndarray, at: Positions, ladder: Ladder, channels: np.ndarray, threads: int | None
    ) -> None:
        def write(rows: slice, pairs: slice, block: NDArray[np.complexfloating]) -> None:
            into_waves(block, self.order)
            if self.scale != 1:
                block *= self.scale
            rounding: NDArray[np.complexfloating] = before_rounding(block, out.dtype)
            for wave, numbers in enumerate((rounding.real, rounding.imag)):
                places = channels[pairs, wave]
                kept = places < out.shape[1]
                out[rows, _run(places[kept])] = numbers if kept.all() else numbers[:, kept]

        fine = out.dtype == np.float64
        fill(write, ladder, at, swapped=sine_first(self.order), fine=fine, threads=threads)

    def clock(self) -> Clock:
        """The clock that defines the code: a shift is a distance along each axis.

        Raises:
            InvalidValue: A pair lacks a channel, an axis has no pairs, the two waves of a pair are the same, or there
                are raw coordinates.
        """
        order = clock_order(self.order)
        hands = np.concatenate(self.places[0])
        kept = hands < self.width
        whole = [np.all(channels < self.width, axis=1).tolist() for channels in self.places[0]]
        torn = (kept[:, 0] != kept[:, 1]).any() or not all(map(any, whole))
        if order is None or self.raw is not None or torn:
            return super().clock()
        ladders = tuple(
            Ladder(tuple(rate for rate, there in zip(ladder.exact, here, strict=True) if there), origin=ladder.origin)
            for ladder, here in zip(self.ladders, whole, strict=True)
        )
        joined = Ladder(tuple(rate for ladder in ladders for rate in ladder.exact), origin="the axes' frequencies")
        axes = ladders if self.number_of_axes > 1 else ()
        return Clock(joined, "halves", order, self.width, hands[kept[:, 0]], axes)

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        if self.raw is not None:
            return "a step adds to the raw coordinates, and no matrix adds a constant"
        if clock_order(self.order) is None:
            return "both dimensions of a pair hold the same function, but a shift needs the sine and the cosine"
        return "the cut width removes one dimension of a pair, or all pairs of an axis"

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling and copying: the fields without the values cached from them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _each_once(positions: Positions, axis: int, axes: int) -> tuple[Positions, Spread | None]:
    """One coordinate of the positions, flattened; with few distinct values, these and a function that spreads rows.

    The cells of an image have few distinct coordinates, each many times: each sinusoid is computed only once.
    """
    if axes == 1:
        return (positions if positions.progression else replace(positions, shape=(positions.size,))), None
    if positions.grid is not None:
        grid, along = positions.grid, [1] * axes
        along[grid.order.index(axis)] = grid.sizes[axis]
        return grid.line(axis), lambda rows: rows.reshape(*along, rows.shape[1])
    at = positions.coordinate(axis)
    at = replace(at, shape=(at.size,))
    sizes = at.sizes(0, at.size)
    if sizes.part is not None or at.size < _FEW:
        return at, None
    # Sign and size in one number for `unique`: at 2**63 it would overflow.
    key = sizes.whole << np.uint64(1)
    if sizes.negative is not None:
        key |= sizes.negative.astype(np.uint64)
    values, inverse = np.unique(key, return_inverse=True)
    if 4 * len(values) > at.size or (sizes.whole >> np.uint64(63)).any():
        return at, None
    negative = (values & np.uint64(1)).astype(bool)
    once = Positions(values.shape, values >> np.uint64(1), None, negative if negative.any() else None)
    return once, lambda rows: rows[inverse]


def _run(channels: np.ndarray) -> Any:
    """Equally spaced channels as a slice, to which NumPy writes several times faster; others unchanged."""
    if len(channels) < 2:
        return channels
    step = int(channels[1] - channels[0])
    if step <= 0 or (np.diff(channels) != step).any():
        return channels
    return slice(int(channels[0]), int(channels[-1]) + 1, step)


def _shares(shares: object) -> tuple[int, ...]:
    if isinstance(shares, str | bytes) or not isinstance(shares, Iterable):
        raise InvalidType(
            f"`shares` must be a list of one share of the width for each axis, got {shown(shares)}.",
            "Write (1, 1) for two equal axes.",
        )
    numbers = tuple(count("shares", share) for share in shares)
    if not numbers:
        raise InvalidValue("`shares` must hold at least one axis, got none.", "Write (1, 1) for two equal axes.")
    common = math.gcd(*numbers)
    return tuple(number // common for number in numbers)


def _spacings(base: float | None, spacing: object, axes: int) -> Spacing | tuple[Spacing, ...]:
    if not isinstance(spacing, tuple | list):
        return spacing_of(base, spacing)  # type: ignore[arg-type]
    if len(spacing) != axes:
        raise InvalidValue(
            f"`spacing` must be one spacing, or one for each of {axes} axes, got {len(spacing)}.",
            "Give them in the order of the axes.",
        )
    each = tuple(spacing_of(base, one) for one in spacing)
    return each[0] if len(set(each)) == 1 else each
