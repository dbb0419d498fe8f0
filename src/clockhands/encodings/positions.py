"""Token positions as exact numbers, from counts, ranges, lists, and arrays of any library.

A position is an integer or a real number of at most 2**63 in size. It is stored as ``sign x (whole + part)`` with
``whole`` a 64-bit integer and ``part`` a float64 in [0, 1), so that no input is rounded. Lists are read element by
element, because ``np.asarray([-1, 2**63])`` would already be float64.

Positions that were rounded before they arrived are refused, because the true ones cannot be known: those in float16
and bfloat16 always, and whole numbers in float32 from 2**24 on, where ``p`` and ``p + 1`` are the same number.
"""

import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.constants import Source
from clockhands.encodings.dtypes import UNIT_ROUNDOFF, name_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

LARGEST = 2**63

HINT_RANGE = "Use positions from -2**63 to 2**63; nothing is wrapped or clamped."
# A tuple: PyTorch's compiler does not follow a union of types.
_NUMBERS = (int, float, np.number)

_HINT_ROUNDED = "Give integers, or float64 for real positions, and make them so before any cast."

_HINT_KIND = "Give a range, a list of ints and floats, or an array of integers or floats."


class Sizes(NamedTuple):
    """Some positions, flattened: their sizes ``whole + part``, and which are below 0.

    ``whole`` is uint64, ``part`` float64 in [0, 1) or None for integers, ``negative`` bool or None.
    """

    whole: np.ndarray
    part: np.ndarray | None
    negative: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Positions(Source):
    """Exact positions of any shape.

    Attributes:
        shape: Shape of the positions.
        whole: Whole part of each size, uint64; None for a progression.
        part: Fractional part of each size in [0, 1), float64; None where all positions are integers.
        negative: Which positions are below 0, bool; None where none is.
        start, step: The progression ``start + step * i`` of integers, if the positions are one.
        grid: The `clockhands.grids.Grid` whose cells these are, or None.
    """

    shape: tuple[int, ...]
    whole: np.ndarray | None = None
    part: np.ndarray | None = None
    negative: np.ndarray | None = None
    start: int = 0
    step: int = 1
    grid: Any = None

    @property
    def progression(self) -> bool:
        """Whether these are stored as equally spaced integers, ``start + step * i``."""
        return self.whole is None

    @property
    def size(self) -> int:
        """Number of positions."""
        return math.prod(self.shape)

    @property
    def limbs(self) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """Whole part, fractional part and sign; None for what is not stored."""
        return self.whole, self.part, self.negative

    def sizes(self, begin: int, end: int) -> Sizes:
        """The positions of the flat indices ``begin`` to ``end - 1``."""
        if self.whole is not None:
            part, negative = (
                limb if limb is None else limb.reshape(-1)[begin:end] for limb in (self.part, self.negative)
            )
            return Sizes(self.whole.reshape(-1)[begin:end], part, negative)
        # Modulo 2**64 first: start + step * i itself may be 2**63, which no int64 holds.
        index = np.arange(begin, end, dtype=np.uint64)
        value = np.uint64(self.start % 2**64) + np.uint64(self.step % 2**64) * index
        if min(self.start, self.start + self.step * (self.size - 1)) >= 0:
            return Sizes(value, None, None)
        crossing = -(self.start // self.step)  # the first index at which the sign differs
        negative = np.array([index < crossing if self.step > 0 else index > self.start // -self.step]).reshape(-1)
        return Sizes(np.where(negative, np.uint64(0) - value, value), None, negative)

    def as_float64(self) -> np.ndarray:
        """The float64 nearest to each position, flattened."""
        sizes = self.sizes(0, self.size)
        size = sizes.whole.astype(np.float64)
        if sizes.part is not None:
            size += sizes.part
        return size if sizes.negative is None else np.where(sizes.negative, -size, size)

    def as_positions(self, name: str = "positions") -> "Positions":
        """The same object."""
        return self

    def taken(self, *rows: slice) -> "Positions":
        """The positions in a slice of each leading axis; each slice has a start and a stop inside the shape."""
        if self.whole is None:
            (row,) = rows
            return Positions((row.stop - row.start,), start=self.start + self.step * row.start, step=self.step)
        part, negative = (limb if limb is None else limb[rows] for limb in (self.part, self.negative))
        whole = self.whole[rows]
        return Positions(whole.shape, whole, part, negative)

    def coordinate(self, axis: int) -> "Positions":
        """One coordinate of positions that have several, [..., axes]."""
        if self.whole is None:
            raise AssertionError("a progression has one coordinate")
        part, negative = (limb if limb is None else limb[..., axis] for limb in (self.part, self.negative))
        return Positions(self.shape[:-1], self.whole[..., axis], part, negative)

    def where(self, position: int) -> np.ndarray:
        """The flat indices of the elements equal to ``position``, an integer of at least 0."""
        if self.whole is None:
            index, rest = divmod(position - self.start, self.step)
            return np.array([index] if not rest and 0 <= index < self.size else [], np.int64)
        found = self.whole.reshape(-1) == np.uint64(position)
        if self.part is not None:
            found &= self.part.reshape(-1) == 0
        if self.negative is not None and position:
            found &= ~self.negative.reshape(-1)
        return np.flatnonzero(found)

    def element(self, index: int) -> int | float:
        """The position at a flat index, as a Python number."""
        if self.whole is None:
            return self.start + self.step * index
        size = int(self.whole.reshape(-1)[index])
        part = float(self.part.reshape(-1)[index]) if self.part is not None else 0.0
        value = size + part if part else size
        return -value if self.negative is not None and self.negative.reshape(-1)[index] else value


@runtime_checkable
class HasPositions(Protocol):
    """A description of positions, such as a grid."""

    def as_positions(self, name: str) -> Positions:
        """The positions described; ``name`` is the argument's name in error messages."""
        ...


def positions_of(given: Any, name: str = "positions") -> Positions:
    """The exact positions that an argument describes.

    An integer n means the positions 0 to n - 1, and a ``range`` its elements. Lists, tuples and arrays of integers or
    floats are positions one by one and keep their shape. A `clockhands.grids.Grid` is the positions of its cells,
    [cells], or [cells, axes] with several axes. A float means the exact real number that it represents.

    Raises:
        InvalidValue: A count is negative; a position is NaN, infinite or above 2**63 in size; whole numbers in float32
            reach 2**24; a nested list is ragged.
        InvalidType: Something that is not a number, a range, a list or an array of numbers, or numbers in float16,
            bfloat16 or narrower.
    """
    if isinstance(given, range):
        return _from_range(given, name)
    if isinstance(given, list | tuple):
        return _from_list(given, name)
    refuse_not_dense(given, name)
    # Not `isinstance(given, HasPositions)`, which takes as long as rotating a token.
    if hasattr(given, "as_positions"):
        return given.as_positions(name)
    if isinstance(given, bool | np.bool_):
        raise InvalidType(f"`{name}` must be numbers, got the boolean {given}.", _HINT_KIND)
    if isinstance(given, float) or (getattr(given, "shape", None) == () and "float" in str(given.dtype)):
        raise InvalidType(
            f"`{name}` must be a whole number when it is a count, got {shown(float(given))}.",
            f"Write [{float(given):g}] for the single position {float(given):g}.",
        )
    if hasattr(given, "__index__") and not getattr(given, "shape", ()):
        return _from_range(range(count(name, given, least=0)), name)
    if isinstance(given, str | bytes) or not (hasattr(given, "__array__") or hasattr(given, "__dlpack__")):
        if isinstance(given, Sequence) and not isinstance(given, str | bytes):
            return _from_list(list(given), name)
        raise InvalidType(f"`{name}` must be numbers, got {type(given).__name__} {shown(given)}.", _HINT_KIND)
    array = numpy_of(given, name)
    if array.dtype.kind not in "iu" and (array is not given or array.itemsize < 4):
        refuse_narrow(given, name, array)
    return _from_array(array, name)


def refuse_narrow(given: Any, name: str = "positions", numbers: np.ndarray | None = None) -> None:
    """Refuse an array of positions in a dtype in which a sequence loses some: float16, bfloat16 and narrower floats.

    Args:
        given: An array of any library.
        name: The argument's name in error messages.
        numbers: The same numbers in NumPy, where they are known: the first one that is lost is named.

    Raises:
        InvalidType: The dtype is one of these.
    """
    dtype = name_of(given)
    if dtype in ("float16", "bfloat16") or dtype.startswith("float8"):
        says = (
            "" if dtype not in UNIT_ROUNDOFF else f", {_first_lost(numbers, dtype) or _lost(2 ** _bits(dtype), dtype)}"
        )
        raise InvalidType(f"`{name}` must not be {dtype}{says}.", _HINT_ROUNDED)


def _first_lost(numbers: np.ndarray | None, dtype: str) -> str:
    """In words, the first of these numbers that is too large for the dtype to tell it from the next whole number."""
    if numbers is None:
        return ""
    sizes = np.abs(numbers.astype(np.float64)).reshape(-1)
    large = np.flatnonzero((sizes >= 2.0 ** _bits(dtype)) & np.isfinite(sizes))
    if not large.size:
        return ""
    place = [int(axis) for axis in np.unravel_index(large[0], numbers.shape)]
    where = f" at index {place[0] if len(place) == 1 else place}" if place else ""
    first = int(numbers.reshape(-1)[large[0]])
    return f"{_lost(abs(first), dtype)}; the first position so large is {first}{where}"


def _lost(size: int, dtype: str) -> str:
    """In words, what the whole number after this one is in the dtype, which has too few bits for it."""
    # A tie is rounded to an even last bit, so with a step of 2 the next one may be rounded up.
    step = 2 ** (size.bit_length() - _bits(dtype))
    after = size + 2 if step == 2 and size // step % 2 else size
    return f"in which {size + 1} is {after}"


def _bits(dtype: str) -> int:
    """Significant bits: whole numbers are told apart up to ``2 ** bits``."""
    return round(-math.log2(UNIT_ROUNDOFF[dtype]))


def refuse_single(given: Any, name: str = "positions") -> None:
    """Refuse a single number where one position per token is expected: it could also mean a count.

    Raises:
        InvalidType: ``given`` is a single number or an array without axes, or not dense.
    """
    refuse_not_dense(given, name)  # a nested tensor has no shape
    if isinstance(given, bool) or not (isinstance(given, _NUMBERS) or getattr(given, "shape", None) == ()):
        return
    number = f"the number {shown(given)}" if isinstance(given, _NUMBERS) else "an array of no axes"
    raise InvalidType(
        f"`{name}` must be a position for each token, got {number}.",
        "Write [p] for one token at position p, p[None] if it is an array; a count is not accepted here.",
    )


def refuse_not_dense(array: Any, name: str) -> None:
    """Refuse an array that does not hold one number for each place: masked, sparse or nested.

    Raises:
        InvalidType: ``array`` is one of these.
    """
    nested = getattr(array, "is_nested", None)
    if nested is not None:  # PyTorch's
        if nested is True:
            raise InvalidType(
                f"`{name}` must not be a nested tensor.", "Pad it, or call the function for each of its sequences."
            )
        # PyTorch's compiler does not follow the name of a layout.
        if not sys.modules["torch"].compiler.is_compiling() and "sparse" in str(array.layout):
            raise InvalidType(
                f"`{name}` must be a dense tensor, got one of {array.layout}.", f"Write {name}.to_dense()."
            )
        return
    # Not `hasattr`, which PyTorch 2.5 cannot compile.
    if getattr(array, "todense", None) is not None:  # of SciPy and JAX
        raise InvalidType(
            f"`{name}` must be a dense array, got {type(array).__module__}.{type(array).__name__}.",
            f"Write {name}.todense().",
        )
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidType(
            f"`{name}` must be an array without a mask, got a masked one.", f"Write {name}.filled(…), or {name}.data."
        )


def refuse_no_array(given: Any, name: str, hint: str = "Give a NumPy, PyTorch or JAX array.") -> None:
    """Refuse what is not a dense array.

    Raises:
        InvalidType: It is sparse, nested or masked, or no array at all.
    """
    refuse_not_dense(given, name)
    if not hasattr(given, "shape") or not hasattr(given, "dtype"):
        raise InvalidType(f"`{name}` must be an array, got {type(given).__name__}.", hint)


def numpy_of(array: Any, name: str) -> np.ndarray:
    """An array of any library as a NumPy array that holds the same numbers."""
    refuse_not_dense(array, name)
    try:
        return _from_torch(array) if hasattr(array, "detach") else np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        # JAX raises its own exceptions for traced values, and torch for tensors on "meta".
        raise InvalidType(
            f"`{name}` must be concrete numbers, got {type(array).__name__} ({type(error).__name__}).",
            f"Give `{name}` as NumPy values or Python numbers, outside of jit, vmap and compile.",
        ) from None


def _from_torch(tensor: Any) -> np.ndarray:
    """The numbers of a tensor; those that NumPy lacks, such as bfloat16, become float64, which holds them exactly."""
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    try:
        here = tensor.detach().cpu()
        return np.asarray(here.double() if narrow else here)
    except RuntimeError:
        # Inside torch.func.grad, vjp and jvp every operation wraps a tensor from outside, whose memory is reached only
        # outside of them. Where there is none, as on "meta", this is refused as well.
        from clockhands.encodings.compiling import untransformed

        with untransformed():
            here = tensor.detach().cpu()
            return np.asarray(here.double() if narrow else here)


def _from_range(given: range, name: str) -> Positions:
    ends = (given[0], given[-1]) if given else ()
    for end in ends:
        _check_integer(end, name)
    # len() is refused above sys.maxsize, the quotient is not.
    number = max(0, -((given.start - given.stop) // given.step)) if given.step else 0
    return Positions((number,), start=given.start if given else 0, step=given.step)


def _check_integer(value: int, name: str) -> None:
    if abs(value) > LARGEST:
        raise InvalidValue(f"`{name}` must be from -2**63 to 2**63, got {shown(value)}.", HINT_RANGE)


def _from_list(given: Sequence[Any], name: str) -> Positions:
    shape, leaves = _flatten(given, name)
    at = from_exact([_exact(leaf, name) for leaf in leaves], shape)
    if at.part is None and at.size and int(at.sizes(0, at.size).whole.max()) >= 2**24:
        # Only then it matters whether some of them were float32.
        for leaf in leaves:
            if str(getattr(leaf, "dtype", "")).endswith("float32"):
                _refuse_rounded(numpy_of(leaf, name), name)
    return at


def from_exact(numbers: list[tuple[int, float, bool]], shape: tuple[int, ...]) -> Positions:
    """Positions from (whole, part, negative) of each."""
    wholes, parts, negatives = zip(*numbers, strict=True) if numbers else ((), (), ())
    return Positions(
        shape,
        np.array(wholes, np.uint64).reshape(shape),
        np.array(parts, np.float64).reshape(shape) if any(parts) else None,
        np.array(negatives, bool).reshape(shape) if any(negatives) else None,
    )


def _flatten(given: Sequence[Any], name: str) -> tuple[tuple[int, ...], list[Any]]:
    shape: list[int] = []
    level: list[Any] = [given]
    while True:
        nested = [isinstance(item, list | tuple | range) or bool(getattr(item, "shape", ())) for item in level]
        if not any(nested):
            return tuple(shape), level
        lengths = {len(item) if inside else -1 for item, inside in zip(level, nested, strict=True)}
        if len(lengths) > 1:
            raise InvalidValue(f"`{name}` must be a regular grid, got a ragged list.", "Make all rows equally long.")
        shape.append(lengths.pop())
        level = [leaf for item in level for leaf in item]
        if len(shape) > 8:
            raise InvalidValue(f"`{name}` is a list nested more than 8 deep.", _HINT_KIND)
        if not level:
            return tuple(shape), []


def _exact(leaf: Any, name: str) -> tuple[int, float, bool]:
    """One number as the triple (whole, part, negative)."""
    if isinstance(leaf, float):  # np.float64 is one
        return _exact_float(leaf, name)
    dtype = str(getattr(leaf, "dtype", ""))
    known = "float" in dtype or (hasattr(leaf, "__index__") and (not dtype or "int" in dtype))
    if not known or isinstance(leaf, bool):
        raise InvalidType(f"`{name}` must be ints and floats, got {type(leaf).__name__} {shown(leaf)}.", _HINT_KIND)
    if "float" in dtype:
        refuse_narrow(leaf, name)
        if leaf.dtype.itemsize > 8:
            raise InvalidType(f"`{name}` must be at most float64, got {dtype}.", _HINT_KIND)
        return _exact_float(float(leaf), name)
    value = operator.index(leaf)
    _check_integer(value, name)
    return abs(value), 0.0, value < 0


def _exact_float(number: float, name: str) -> tuple[int, float, bool]:
    if not math.isfinite(number):
        raise InvalidValue(f"`{name}` must be finite, got {number}.", "Remove NaN and infinite positions.")
    if abs(number) > LARGEST:
        raise InvalidValue(f"`{name}` must be from -2**63 to 2**63, got {shown(number)}.", HINT_RANGE)
    part, whole = math.modf(abs(number))
    return int(whole), part, number < 0


def _from_array(array: np.ndarray, name: str) -> Positions:
    kind = array.dtype.kind
    if kind == "O":
        return _from_list(array.tolist(), name) if array.ndim else _from_list([array.item()], name)
    if kind in "iu":
        return _from_integers(array, name)
    if kind == "f":
        return _from_reals(array, name)
    raise InvalidType(f"`{name}` must be integers or floats, got an array of {array.dtype}.", _HINT_KIND)


def _from_integers(array: np.ndarray, name: str) -> Positions:
    if array.dtype.kind == "u":
        whole = array.astype(np.uint64)
        if whole.size and int(whole.max()) > LARGEST:
            raise InvalidValue(f"`{name}` must be from -2**63 to 2**63, got {int(whole.max())}.", HINT_RANGE)
        return _progression(array) or Positions(array.shape, whole)
    found = _progression(array)
    if found is not None:
        return found
    negative = array < 0
    # In two's complement 0 - x of uint64 is the size of a negative x, -2**63 included.
    size = array.astype(np.int64).view(np.uint64)
    if not negative.any():
        return Positions(array.shape, size)
    return Positions(array.shape, np.where(negative, np.uint64(0) - size, size), None, negative)


def _progression(array: np.ndarray) -> Positions | None:
    """The positions as a progression if they are equally spaced, else None."""
    if array.ndim != 1 or array.size < 3:
        return None
    start, step = int(array[0]), int(array[1]) - int(array[0])
    last = start + step * (array.size - 1)
    if step == 0 or int(array[-1]) != last:
        return None
    limits = np.iinfo(array.dtype)
    if not limits.min <= step <= limits.max or not np.array_equal(
        array, start + step * np.arange(array.size, dtype=np.int64) if abs(last) < 2**62 and abs(start) < 2**62 else ()
    ):
        return None
    return Positions(array.shape, start=start, step=step)


def _refuse_rounded(whole: np.ndarray, name: str) -> None:
    """Refuse whole numbers in float32 from 2**24 on, where neighbours are the same number."""
    if whole.dtype != np.float32:
        return
    found = _first_lost(whole, "float32")
    if found:
        raise InvalidValue(f"`{name}` are whole numbers in float32, {found}.", _HINT_ROUNDED)


def _from_reals(array: np.ndarray, name: str) -> Positions:
    if array.dtype.itemsize > 8:
        raise InvalidType(f"`{name}` must be at most float64, got {array.dtype}.", _HINT_KIND)
    reals = array.astype(np.float64)
    if not np.isfinite(reals).all():
        bad = float(reals[~np.isfinite(reals)].reshape(-1)[0])
        raise InvalidValue(f"`{name}` must be finite, got {bad}.", "Remove NaN and infinite positions.")
    size = np.abs(reals)
    if size.size and size.max() > LARGEST:
        raise InvalidValue(f"`{name}` must be from -2**63 to 2**63, got {shown(float(size.max()))}.", HINT_RANGE)
    part, whole = np.modf(size)
    if not part.any():
        _refuse_rounded(array, name)
    negative = reals < 0
    return Positions(
        array.shape,
        whole.astype(np.uint64),
        part if part.any() else None,
        negative if negative.any() else None,
    )
