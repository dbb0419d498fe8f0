"""A position code as the measures see it: its hands, and the numbers of each of its tokens in a dtype."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from clockhands.additive import AdditiveCode, Learned, NoPosition, WarpedPosition, table
from clockhands.arguments import count, shown
from clockhands.biases import BiasCode
from clockhands.biases.values import values_of
from clockhands.clocks import Clock
from clockhands.dtypes import output_dtype
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import Ladder
from clockhands.positions import numpy_of, positions_of
from clockhands.rotary import Rotary
from clockhands.rotary.rotating import cosine_sine
from clockhands.specs import SPECS

Code = AdditiveCode | Rotary | BiasCode


@dataclass(frozen=True, eq=False)
class Subject:
    """A code, the tokens and the dtype that it is measured in.

    Attributes:
        spec: One code.
        length: Tokens, from the first on; along each axis where positions have several coordinates.
        dtype: What the numbers are rounded to.
        values: Learned numbers, or None where they are not known.
    """

    spec: Code
    length: int
    dtype: np.dtype
    values: Any = None

    @property
    def kind(self) -> Literal["additive", "rotary", "bias", "none"]:
        """How the code reaches the scores; ``"none"`` for a model without one."""
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
        """Position of the first token: 1 where the code has no numbers for 0."""
        if isinstance(self.spec, WarpedPosition):
            return 0 if self.spec.warp == "square" else 1
        return getattr(self.spec, "first", 0)

    @cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The rates of the hands, one ladder for each axis; empty where the code has none or they are learned."""
        several = getattr(self.spec, "ladders", None)
        one = getattr(self.spec, "ladder", None)
        return tuple(several) if several is not None else () if one is None else (one,)

    @cached_property
    def clock(self) -> Clock | None:
        """The clock behind the code, None where no rotation shifts it; `why_no_clock` says why."""
        try:
            return None if isinstance(self.spec, BiasCode) else self.spec.clock()
        except InvalidValue:
            return None

    @cached_property
    def missing(self) -> str | None:
        """Why the numbers of a token cannot be made; None where they can."""
        if isinstance(self.spec, BiasCode):
            return "A bias gives numbers to pairs of tokens, not to a token."
        if self.spec_is_learned and self.values is None:
            return f"The numbers of {type(self.spec).__name__} are learned: pass them as values=."
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

        Of an additive code its channels; of a rotary one the cosines of all pairs, then their sines, as queries are
        turned by them. Along one axis; the other coordinates stand at the first position.

        Raises:
            InvalidValue: `missing` says why there are none.
        """
        if self.missing is not None:
            raise InvalidValue(self.missing, "Give the learned numbers, or ask for what follows from the spec alone.")
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


def subject_of(spec: object, length: object, dtype: object, values: Any) -> Subject:
    """The subject of these arguments.

    Raises:
        InvalidType: It is no position code, or the length is no whole number.
        InvalidValue: The length is below 1 or beyond a learned table, the dtype does not exist, or the learned
            numbers are of another shape, NaN or infinite.
    """
    if not isinstance(spec, SPECS):
        hint = (
            f"Write clockhands.preset({shown(spec)})." if isinstance(spec, str) else "Make one with clockhands.preset."
        )
        raise InvalidType(f"`properties` takes a position code, got {type(spec).__name__} {shown(spec)}.", hint)
    number = count("length", length)
    if isinstance(spec, Learned) and number > spec.usable:
        raise InvalidValue(
            f"`length` must be at most the {spec.usable} positions that have a row, got {number}.",
            "Past its last row a learned table has nothing to measure.",
        )
    if isinstance(spec, AdditiveCode) and values is not None:
        spec.check_values(np.shape(values))
        _refuse_what_is_not_finite("values", numpy_of(values, "values"))
    if isinstance(spec, BiasCode) and values is not None:
        values = _numbers_of_bias(spec, values)
    return Subject(spec, number, output_dtype(dtype), values)  # type: ignore[arg-type]


def _refuse_what_is_not_finite(name: str, numbers: np.ndarray) -> None:
    """One NaN would make every figure that numbers are compared for NaN, or its answer wrong."""
    if numbers.dtype.kind not in "fV":
        return  # whole numbers are finite, and what is no number is refused where it is used
    wrong = np.argwhere(~np.isfinite(numbers.astype(np.float64)))
    if len(wrong):
        first = wrong[0].tolist()
        raise InvalidValue(
            f"`{name}` must be finite, got {numbers[tuple(first)]} at {first}, the first of {len(wrong):,}.",
            "Repair or leave out these numbers: nothing can be measured of them.",
        )


def _numbers_of_bias(spec: BiasCode, values: Any) -> dict[str, np.ndarray]:
    """The learned numbers of a bias, checked, by name, float64."""
    given = values_of(type(spec).__name__, values, spec.shapes).arrays
    arrays = {name: numpy_of(array, name).astype(np.float64) for name, array in given.items()}
    for name, array in arrays.items():
        _refuse_what_is_not_finite(name, array)
    wrong = spec.refuse(arrays)
    if wrong:
        raise InvalidValue(wrong, "The codes that train such numbers clamp them before each use: do so first.")
    return arrays
