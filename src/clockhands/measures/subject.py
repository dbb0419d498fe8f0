"""A position code as the input of the measures: its dimension pairs, and the numbers of each token in a dtype.

If a code consists of cosine-sine pairs (here called a *clock*, and a pair a *hand*), it looks the same from every
position, so most of its properties follow from its frequencies. This module decides which codes are clocks: sinusoids
of one or several axes, and rotations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.additive import AdditiveCode, Learned, NoPosition, WarpedPosition, table
from clockhands.encodings.additive.waves import check_fits
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.biases.values import values_of
from clockhands.encodings.clocks import Clock
from clockhands.encodings.dtypes import before_rounding, limits, output_dtype
from clockhands.encodings.ladders import Ladder
from clockhands.encodings.phases import fill
from clockhands.encodings.positions import numpy_of, positions_of
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.rotating import cosine_sine
from clockhands.encodings.specs import SPECS, is_own
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Code = AdditiveCode | Rotary | BiasCode
MakeRows = Callable[[int, int], np.ndarray]

_THREADED = 1 << 22  # number of pairs from which a second thread saves time on a busy machine


@dataclass(frozen=True, eq=False)
class MeasuredCode:
    """A code, with the number of tokens and the dtype for which it is measured.

    Attributes:
        spec: One code.
        length: Number of tokens, from the first on; along each axis if positions have several coordinates.
        dtype: The dtype to which the numbers are rounded.
        values: Learned numbers, or None if they are not known.
    """

    spec: Code
    length: int
    dtype: np.dtype
    values: Any = None

    @property
    def kind(self) -> Literal["additive", "rotary", "bias", "none"]:
        """How the code enters the attention scores; ``"none"`` for a model without one."""
        if isinstance(self.spec, NoPosition):
            return "none"
        if isinstance(self.spec, AdditiveCode):
            return "additive"
        return "rotary" if isinstance(self.spec, Rotary) else "bias"

    @property
    def axes(self) -> int:
        """Coordinates of a position; 1 for a bias."""
        return 1 if isinstance(self.spec, BiasCode) else self.spec.number_of_axes

    @property
    def first(self) -> int:
        """Position of the first token: 1 if the code is not defined at 0."""
        if isinstance(self.spec, WarpedPosition):
            return 0 if self.spec.warp == "square" else 1
        return getattr(self.spec, "first", 0)

    @property
    def last(self) -> int:
        """Position of the last token."""
        return self.first + self.length - 1

    @cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The frequencies of the pairs, one ladder for each axis; empty if the code has none or they are learned."""
        several = getattr(self.spec, "ladders", None)
        one = getattr(self.spec, "ladder", None)
        return tuple(several) if several is not None else () if one is None else (one,)

    @cached_property
    def clock(self) -> Clock | None:
        """The clock of the code; None if a shift is not a rotation of it, see `why_no_clock`."""
        try:
            return None if isinstance(self.spec, BiasCode) else self.spec.clock()
        except InvalidValue:
            return None

    @property
    def clock_ladders(self) -> tuple[Ladder, ...]:
        """The ladder of each axis of the clock; empty without a clock."""
        return () if self.clock is None else self.clock.axes or (self.clock.ladder,)

    @property
    def trained_scale(self) -> float:
        """The trained number that multiplies a code; 1 if there is none, or it is not known."""
        if not getattr(self.spec, "scaled", False) or self.values is None:
            return 1.0
        return float(numpy_of(self.values, "values").reshape(()))

    @property
    def scale(self) -> float:
        """The factor that multiplies the pairs of a clock."""
        return getattr(self.spec, "scale", 1.0) * self.trained_scale

    @cached_property
    def missing(self) -> str | None:
        """Why the numbers of a token cannot be computed; None if they can."""
        if isinstance(self.spec, BiasCode):
            return "A score bias has one value for each pair of tokens, not for each position."
        if self.spec_is_learned and self.values is None:
            return (
                f"The {type(self.spec).__name__} encoding has trained values: pass them to clockhands.properties "
                "as values=."
            )
        return None

    @property
    def spec_is_learned(self) -> bool:
        """Whether numbers of the code are trained."""
        return bool(getattr(self.spec, "learned", False))

    def rows(self, start: int, stop: int, axis: int = 0, dtype: object = None) -> np.ndarray:
        """The numbers of the tokens ``start`` to ``stop - 1``, as `rows_at` gives them."""
        return self.rows_at(range(start, stop), axis, dtype)

    def rows_at(self, tokens: range | np.ndarray, axis: int = 0, dtype: object = None) -> np.ndarray:
        """The numbers of these tokens, counted from the first, [tokens, channels].

        For an additive code its channels; for a rotary code the cosines of all pairs, then their sines. Positions vary
        along one axis; the other coordinates are at the first position.

        Raises:
            InvalidValue: `missing` says why there are none.
        """
        if self.missing is not None:
            raise InvalidValue(self.missing, "Pass the learned values, or measure only what follows from the spec.")
        places: Any = (
            range(self.first + tokens.start, self.first + tokens.stop, tokens.step)
            if isinstance(tokens, range)
            else self.first + np.asarray(tokens, np.int64)
        )
        if self.axes > 1:
            along = np.full((len(tokens), self.axes), self.first, np.int64)
            along[:, axis] = places
            places = along
        kind = self.dtype if dtype is None else output_dtype(dtype)
        if isinstance(self.spec, Rotary):
            role = None if self.spec.xpos is None else "query"
            fine = np.dtype(np.float64) if kind.kind == "V" or kind == np.float16 else kind
            return np.concatenate(cosine_sine(self.spec, positions_of(places), fine, role), axis=-1).astype(kind)
        assert isinstance(self.spec, AdditiveCode)
        return table(self.spec, places, kind, values=self.values)


def subject_of(spec: object, length: object, dtype: object, values: Any) -> MeasuredCode:
    """Check the arguments, and make the subject of a measure.

    Raises:
        InvalidType: The spec is not a position code, or the length is not a whole number.
        InvalidValue: The length is below 1 or beyond a learned table, the dtype does not exist, or the learned
            numbers are of another shape, NaN or infinite.
    """
    if not isinstance(spec, SPECS):
        hint = (
            f"Write clockhands.preset({shown(spec)})." if isinstance(spec, str) else "Make one with clockhands.preset."
        )
        if is_own(spec):
            hint = "Name it by its file: `clockhands properties path/file.py:NAME` samples an encoding of your own."
        raise InvalidType(f"`properties` takes a position encoding, got {type(spec).__name__} {shown(spec)}.", hint)
    number = count("length", length)
    if isinstance(spec, Learned) and number > spec.usable:
        raise InvalidValue(
            f"`length` must be at most {spec.usable}, the number of positions that have a row, got {number}.",
            "A learned table has no values after its last row.",
        )
    if isinstance(spec, AdditiveCode) and values is not None:
        spec.check_values(np.shape(values))
        _refuse_what_is_not_finite("values", numpy_of(values, "values"))
    if isinstance(spec, BiasCode) and values is not None:
        values = _numbers_of_bias(spec, values)
    return MeasuredCode(spec, number, output_dtype(dtype), values)  # type: ignore[arg-type]


def _refuse_what_is_not_finite(name: str, numbers: np.ndarray) -> None:
    """Refuse NaN and infinity: one NaN would make every figure that compares numbers NaN or wrong.

    The numbers are read in blocks: a table of float16 as float64 takes four times its size.
    """
    if numbers.dtype.kind not in "fV":
        return  # whole numbers are finite, and non-numbers are refused where they are used
    lines = np.atleast_1d(numbers)
    height = max(1, _BLOCK * len(lines) // max(1, lines.size))
    count, first, largest = 0, [], 0.0
    for start in range(0, len(lines), height):
        sizes = np.abs(lines[start : start + height].astype(np.float64))
        wrong = np.argwhere(~np.isfinite(sizes))
        if len(wrong) and not count:
            first = [start + int(wrong[0][0]), *wrong[0][1:].tolist()][: numbers.ndim]
        count += len(wrong)
        largest = max(largest, float(sizes.max(initial=0)))
    if count:
        raise InvalidValue(
            f"`{name}` must be finite, got {numbers[tuple(first)]} at {first}, the first of {count:,} such values.",
            "Correct or remove these values: they cannot be measured.",
        )
    if largest > _LARGEST:
        raise InvalidValue(
            f"`{name}` must be from {-_LARGEST:g} to {_LARGEST:g}, got the absolute value {largest:g}: sums of squares "
            "would exceed float64.",
            "Divide all values by one constant: this changes only the lengths of rows.",
        )


_BLOCK = 2**20  # numbers
_LARGEST = 1e150


def _numbers_of_bias(spec: BiasCode, values: Any) -> dict[str, np.ndarray]:
    """The learned numbers of a bias, checked, by name, float64."""
    given = values_of(type(spec).__name__, values, spec.shapes).arrays
    arrays = {name: numpy_of(array, name).astype(np.float64) for name, array in given.items()}
    for name, array in arrays.items():
        _refuse_what_is_not_finite(name, array)
    wrong = spec.refuse(arrays)
    if wrong:
        raise InvalidValue(
            wrong, "Clamp the learned values before you pass them; implementations clamp them before each use."
        )
    return arrays


@dataclass(frozen=True)
class PairLadders:
    """The ladders that determine all distances between the tokens of a code.

    Attributes:
        ladders: The frequencies in radians per token, one ladder for each axis.
        factor: The factor of every cosine and sine.
    """

    ladders: tuple[Ladder, ...]
    factor: float

    @property
    def norm(self) -> float:
        """Euclidean norm of a token's numbers, the same for all tokens: ``factor sqrt(pairs)``."""
        return self.factor * sum(ladder.pairs for ladder in self.ladders) ** 0.5


def channel_pairs(subject: MeasuredCode) -> PairLadders | None:
    """The dimension pairs of a code; None if its tokens are not those of a clock.

    They are not if a pair lacks a channel or holds one wave twice, if raw coordinates are added as channels, if xPos
    makes them grow, if a measured token has a row of zeros (padding), or if a learned scale is not known.
    """
    spec = subject.spec
    if isinstance(spec, Rotary):
        return None if spec.xpos is not None else PairLadders(subject.ladders, spec.attention_factor)
    if not subject.clock_ladders or zero_tokens(subject) or subject.missing is not None:
        return None
    factor = abs(subject.scale)
    return PairLadders(subject.clock_ladders, factor) if factor else None


def zero_tokens(subject: MeasuredCode) -> list[int]:
    """The measured positions whose row is zero by definition of the code."""
    return [row for row in getattr(subject.spec, "zero_rows", ()) if subject.first <= row <= subject.last]


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norm of each row."""
    return np.sqrt(np.einsum("rc,rc->r", rows, rows))


def rows_within(work: float, length: int, width: int, most: int) -> int:
    """How many of the first rows are used, so that ``rows width min(rows, width)`` is at most ``work``."""
    rows = min(length, most)
    if rows * width * min(rows, width) <= work:
        return rows
    return max(2, int(min(work / width**2, (work / width) ** 0.5)))


def different_axes(subject: MeasuredCode) -> list[int]:
    """The axes to measure: the first of those with equal ladders, since their channels hold the same numbers."""
    if len(subject.ladders) != subject.axes:
        return list(range(subject.axes))
    first = {ladder: axis for axis, ladder in reversed(list(enumerate(subject.ladders)))}
    return sorted(first.values())


def rows_of(subject: MeasuredCode, axis: int = 0, dtype: object = None) -> MakeRows:
    """A function of ``(start, stop)`` that returns the numbers of these tokens, counted from the first.

    For a clock, only the pairs of the axis are computed, cosines beside sines, ``[tokens, 2 pairs]``: the channels of
    other axes do not change along this one, and the order of channels changes no distance. For other codes the rows are
    `MeasuredCode.rows`.

    Accuracy: that of `clockhands.encodings.phases`, rounded once to the dtype.

    Raises:
        InvalidValue: The numbers overflow the dtype.
    """
    kind = subject.dtype if dtype is None else output_dtype(dtype)
    hands = channel_pairs(subject)
    if hands is None:
        return lambda start, stop: subject.rows(start, stop, axis, kind)
    ladder, factor = hands.ladders[axis], hands.factor
    check_fits(factor, kind)
    threads = 1 if subject.length * ladder.pairs < _THREADED else None

    def make(start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, ladder.pairs, 2), kind)

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            if factor != 1:
                block = block * factor
            rounding = np.ascontiguousarray(before_rounding(block, kind))
            part = np.float32 if rounding.dtype == np.complex64 else np.float64
            out[rows, pairs] = rounding.view(part).reshape(*rounding.shape, 2)

        at = positions_of(range(subject.first + start, subject.first + stop))
        fill(write, ladder, at, swapped=False, fine=kind == np.float64, threads=threads)
        return out.reshape(stop - start, -1)

    return make


def rounding_distance(subject: MeasuredCode, hands: PairLadders, axis: int = 0) -> float:
    """The largest change of the distance of two tokens by rounding to the dtype.

    Each of the ``2 pairs`` numbers of either token is off by at most ``e``, so their distance is off by at most ``2 e
    sqrt(2 pairs)``. For numbers up to ``f``, ``e`` is half of the dtype's spacing just below ``f``, plus 1 % for the
    arithmetic before it; for float64 it is the 4 ulp of `clockhands.additive.table`.
    """
    eps = 2.0 ** (1 - limits(subject.dtype)[0])
    share, power = math.frexp(hands.factor)  # factor = share 2**power; share 1/2: a power of two
    spacing = eps * 2.0 ** (power - 1 - (share == 0.5))
    error = 4 * eps * hands.factor if subject.dtype == np.float64 else 1.01 * spacing / 2
    return 2 * error * (2 * hands.ladders[axis].pairs) ** 0.5
