"""Fourier features: sines and cosines of linear combinations of the coordinates, with random or trained rates."""

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, one_of, positive, set_fields, truth
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.additive.waves import Waves, both_waves, waves_of
from clockhands.encodings.ladders import Ladder, working
from clockhands.encodings.layouts import Layout, layout_of
from clockhands.encodings.phases import units_of_sums
from clockhands.encodings.positions import Positions, numpy_of, positions_of
from clockhands.encodings.traces import device_of, is_traced
from clockhands.errors import InvalidType, InvalidValue

Raw = Literal["before", "after"]
Single = Literal["sin", "cos"]
_SINGLE = get_args(Single)  # once: PyTorch 2.5 cannot compile the call


@dataclass(frozen=True)
class FourierFeatures(AdditiveCode):
    """Sine and cosine of ``multiplier sum_a p_a B[a, k]``, with rates ``B`` that are drawn once or trained.

    The rates are passed as ``values``: [axes, pairs], or [pairs] for a single axis. They can be negative; each means
    the exact value of its float. Phase offsets, if any, are one further row. A position has one number per axis: a
    timestep, its logarithm, a point between -1 and 1.

    Attributes:
        width: Channels of a token.
        axes: Number of coordinates of a position.
        multiplier: A factor on the rates, 2 pi by default: then rates are in full rotations per unit of position.
        layout: ``"halves"`` (all sines, then all cosines) or ``"interleaved"``.
        order: Whether sine or cosine comes first; see `Sinusoidal`. ``"sin"`` or ``"cos"`` alone is one channel per
            rate.
        offsets: Whether the last row of ``values`` holds phase offsets, in the unit of the rates; the shape is then
            [axes + 1, pairs] (EDM2, AlphaFold 3).
        raw: Whether the coordinates themselves come ``"before"`` or ``"after"`` the sinusoids; they count in the width.
        scale: A factor on all numbers.

    Shapes: a table is [positions, width], at positions [positions, axes]; with a single axis they are [positions].
    Accuracy: phases are exact, as for codes of known rates: float32 within 2**-25 x 1.01. Gradients reach the values of
    a PyTorch tensor. Where the values or the positions exist only inside a trace, phases are computed in the dtype of
    the numbers: in float32 their error is up to ``|phase| x axes x 2**-22``.

    Raises:
        InvalidValue: The width is not positive, or odd after its coordinates are subtracted; a value is not allowed.

    Source: Tancik et al. 2020, arXiv:2006.10739, section 6; segment-anything 1.0, ``PositionEmbeddingRandom``;
    Song et al. 2020, arXiv:2011.13456 (score_sde, ``GaussianFourierProjection``); Karras et al. 2023, EDM2,
    arXiv:2312.02696 (``MPFourier``).

    >>> import clockhands as ch
    >>> ch.table(FourierFeatures(width=4, axes=1), [0.25], values=np.array([1.0, 2.0])).round(4).tolist()
    [[1.0, 0.0, 0.0, -1.0]]
    """

    width: int
    axes: int = 2
    multiplier: float = 2 * math.pi
    layout: Layout = dataclasses.field(default="halves", kw_only=True)
    order: Waves | Single = dataclasses.field(default="sin-cos", kw_only=True)
    offsets: bool = dataclasses.field(default=False, kw_only=True)
    raw: Raw | None = dataclasses.field(default=None, kw_only=True)
    scale: float = dataclasses.field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            width=count("width", self.width),
            axes=count("axes", self.axes),
            multiplier=positive("multiplier", self.multiplier),
            layout=layout_of(self.layout),
            order=self.order if self.order in _SINGLE else waves_of(self.order),
            scale=positive("scale", self.scale),
        )
        if self.raw is not None:
            one_of("raw", self.raw, get_args(Raw), "Leave it out for sines and cosines only.")
        truth("offsets", self.offsets, "True means that the last row of values= holds phases.")
        waves = self.width - self._coordinates
        if waves < self._each or waves % self._each:
            beside = f" minus {self.axes} for the raw coordinates" if self._coordinates else ""
            least = "even and at least 2" if self._each == 2 else "at least 1"
            raise InvalidValue(
                f"`width`{beside} must be {least}, because each frequency has "
                f"{'a sine and a cosine' if self._each == 2 else 'one sine or cosine'}; got width {self.width}.",
                "Use another width.",
            )

    @property
    def number_of_axes(self) -> int:
        """Number of coordinates of a position."""
        return self.axes

    @property
    def _coordinates(self) -> int:
        return self.axes if self.raw is not None else 0

    @property
    def _each(self) -> int:
        """Number of channels for each rate."""
        return 1 if self.order in _SINGLE else 2

    @property
    def _rows(self) -> int:
        """Number of rows of the values."""
        return self.axes + self.offsets

    @property
    def pairs(self) -> int:
        """Number of rates of each axis."""
        return (self.width - self._coordinates) // self._each

    @property
    def values_shape(self) -> tuple[int, ...]:
        """Shape of the rates: [axes, pairs], one more row with phase offsets; [pairs] where that is a single row."""
        return (self.pairs,) if self._rows == 1 else (self._rows, self.pairs)

    def check_values(self, shape: tuple[int, ...] | None) -> None:
        """Raise InvalidValue unless the values have the shape of the rates."""
        if shape is None:
            raise InvalidValue(
                "FourierFeatures has random or trained frequencies, but they were not given.",
                f"Pass them as values=, of shape {list(self.values_shape)}.",
            )
        if shape != self.values_shape:
            raise InvalidValue(
                f"`values` must be of shape {list(self.values_shape)}, got {list(shape)}.",
                f"They are the frequencies: one row for each axis{' and one of phases' if self.offsets else ''}, "
                f"one number for each {'dimension pair' if self._each == 2 else 'dimension'}.",
            )

    def from_values(self, values: Any, positions: Positions, xp: Any, work: Any) -> Any:
        """The table of these rates, [*positions, width]."""
        shape = positions.shape if self.axes == 1 else positions.shape[:-1]
        where, flat = device_of(values), positions.as_float64().reshape(-1, self.axes)
        coordinates = xp.asarray(flat, dtype=work, device=where)
        numbers = _known(values)
        if numbers is None:
            rows = self.inside_trace(values, coordinates, xp, work)
            return xp.reshape(rows, (*shape, self.width))
        unit = self._units(numbers, positions)
        cosine, sine = (xp.asarray(part, dtype=work, device=where) for part in (unit.real.copy(), unit.imag.copy()))
        if hasattr(values, "detach"):
            # A difference of value 0 with the derivative of the phase: exact numbers and correct gradients.
            still = self._phases(xp.astype(values - values.detach(), work), coordinates, xp)
            along, up = xp.cos(still), xp.sin(still)
            cosine, sine = cosine * along - sine * up, sine * along + cosine * up
        return xp.reshape(self._assembled(cosine, sine, coordinates, xp), (*shape, self.width))

    def inside_trace(self, values: Any, coordinates: Any, xp: Any, work: Any) -> Any:
        """The rows at coordinates [rows, axes], computed in their dtype, where some values are only traced."""
        phases = self._phases(xp.astype(values, work), coordinates, xp)
        return self._assembled(xp.cos(phases), xp.sin(phases), coordinates, xp)

    def _phases(self, values: Any, coordinates: Any, xp: Any) -> Any:
        """``multiplier sum_a p_a B[a, k]``, minus whole rotations."""
        rates = xp.reshape(values, (self._rows, self.pairs)) * (self.multiplier / (2 * math.pi))
        # Not a matrix product, which accelerators compute with fewer bits.
        turns = xp.sum(coordinates[:, :, None] * rates[None, : self.axes, :], axis=1)
        if self.offsets:
            turns = turns + rates[self.axes :, :]
        return (turns - xp.round(turns)) * (2 * math.pi)

    def _units(self, values: np.ndarray, positions: Positions) -> NDArray[np.complex128]:
        rates = values.astype(np.float64).reshape(self._rows, self.pairs)
        if not np.isfinite(rates).all():
            raise InvalidValue("`values` must be finite: they are frequencies.", "Remove NaN and infinite numbers.")
        with localcontext(working()):
            multiplier = Decimal(self.multiplier)
            ladders = [Ladder(tuple(abs(Decimal(rate)) * multiplier for rate in row.tolist())) for row in rates]
        along = [positions] if self.axes == 1 else [positions.coordinate(axis) for axis in range(self.axes)]
        flat = [at if at.progression else dataclasses.replace(at, shape=(at.size,)) for at in along]
        if self.offsets:  # the rate of a coordinate that is always 1
            flat.append(positions_of(np.ones(flat[0].size, np.int64)))
        return units_of_sums(ladders, list(rates < 0), flat)

    def _assembled(self, cosine: Any, sine: Any, coordinates: Any, xp: Any) -> Any:
        """Sinusoids and coordinates in their channels, [rows, width]."""
        if self.order == "sin":
            rows = sine
        elif self.order == "cos":
            rows = cosine
        else:
            waves = list(both_waves(cosine, sine, self.order))
            if self.layout == "halves":
                rows = xp.concat(waves, axis=-1)
            else:
                rows = xp.reshape(xp.stack(waves, axis=-1), (*cosine.shape[:-1], 2 * self.pairs))
        if self.raw is not None:
            rows = xp.concat([coordinates, rows] if self.raw == "before" else [rows, coordinates], axis=-1)
        return rows * self.scale if self.scale != 1 else rows

    @property
    def limit(self) -> float | None:
        """The scale bounds each sinusoid; None where raw coordinates, which are not bounded, are among the channels."""
        return self.scale if self.raw is None else None

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Not used: the table is computed from ``values`` in `from_values`."""
        raise AssertionError("an encoding with given frequencies is written from its values")

    def why_no_shift(self) -> str:
        """Why the spec alone defines no shift matrix."""
        return "its frequencies are values that the spec does not contain"


def _known(values: Any) -> np.ndarray | None:
    """The numbers of an array, or None where they are traced."""
    if is_traced(values):
        return None
    try:
        return numpy_of(values, "values")
    except InvalidType:  # inside `torch.func`'s transforms every tensor is traced, without any mark of it
        return None
