"""Computes the errors of angles that code computes in a dtype, compared with the exact angles.

The angle of a pair is position x frequency, a real number. Code computes it in steps, and each step rounds. `WAYS` are
the usual ways of computing it; each is emulated exactly, with every step rounded to nearest, and its angles are
compared with the exact ones. Angles are not reduced modulo ``2 pi``: an error of ``2 pi`` is one full rotation too
many.

The error depends on the precision of the dtype. A rounding changes a number by up to a share ``u`` of it: ``2**-24`` in
float32, ``2**-11`` in float16, ``2**-8`` in bfloat16. Each rounding of a frequency, a position or a product changes an
angle by up to ``u position rate`` rad, so the error grows with the position and is largest for the fast pairs; a pair
of frequency 1 rad/token is exact as long as positions are. The growth is not even: every dtype holds powers of two
exactly, and the errors at neighbouring positions may be far larger.

How an error is computed: a frequency is stored as a sum of two float64, with a relative error of ``2**-106``. Its
product with a position is such a sum, too: the product rounded to float64, and the rounding error (Dekker's product).
The emulated angle is a float64 close to the first part, so their difference is exact; then the second part is
subtracted.

Accuracy: an error is within a relative ``2**-51`` of the real one, and within ``position rate 2**-102`` rad. Powers and
exponentials are those of float64, rounded: the rounding of a step is correct unless the real number lies within a
relative ``2**-50`` of a midpoint. Libraries are less accurate: NumPy's and PyTorch's float32 results differ from these
in the last bit of some rates.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, one_of, positive
from clockhands.encodings.dtypes import before_rounding, limits, output_dtype
from clockhands.encodings.ladders import Ladder, working
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

WAYS: Mapping[str, str] = MappingProxyType(
    {
        "positions": "positions rounded to the dtype, everything else exact",
        "rates": "frequencies rounded to the dtype, everything else exact",
        "phases": "the exact angle, rounded to the dtype",
        "throughout": "exact frequencies rounded to the dtype, positions too, and their product",
        "power": "frequencies as 1 / base**(2i/d), all in the dtype",
        "exponential": "frequencies as exp(2i (-log(base)/d)), all in the dtype",
    }
)
"""Ways of computing angles, by name."""

FROM_A_BASE = ("power", "exponential")
"""The ways that need a base: the ladder is a geometric progression."""
DTYPES = ("float32", "bfloat16", "float16")
LARGEST = 2**53
"""The largest position whose angles are looked at."""
# The first whole number that overflows a dtype whose range a position can exceed.
_INFINITE = {"float16": 65_520.0}
_BLOCK = 1 << 16  # angles at once where positions are searched one by one
_MOST_ANGLES = 1 << 27  # angles after which a search stops


@dataclass(frozen=True, eq=False)
class _Way:
    """One way of computing angles in a dtype: the frequencies that it uses, and what it rounds.

    Attributes:
        high, low: Each exact frequency as a sum of two float64, with a relative error of 2**-106.
        rates: The frequencies that are used, float64; ``high`` where they are exact.
        exact_rates: Whether exact frequencies are used, so that ``low`` counts.
        rounds_positions, rounds_products: Whether positions and products are rounded, too.
        dtype: The dtype to which they are rounded.
    """

    high: NDArray[np.float64]
    low: NDArray[np.float64]
    rates: NDArray[np.float64]
    exact_rates: bool
    rounds_positions: bool
    rounds_products: bool
    dtype: np.dtype

    def errors(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computed angle minus exact angle in radians, [positions, pairs]; infinite or NaN where it overflows."""
        at = positions[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            used = rounded(at, self.dtype) if self.rounds_positions else at
            if not self.rounds_products:
                # No product is rounded: only differences count, and they are exact or accurate enough.
                if self.exact_rates:
                    return (used - at) * self.high
                return at * ((self.rates - self.high) - self.low) + (used - at) * self.rates
            head, tail = _product(at, self.high)
            tail = tail + at * self.low
            exact = self.exact_rates
            angles = _rounded_sum(head, tail, self.dtype) if exact else rounded(used * self.rates, self.dtype)
            return (angles - head) - tail

    def slope(self) -> NDArray[np.float64]:
        """The largest possible error for each token of a position, in rad/token, one for each pair."""
        off = 0.0 if self.exact_rates else np.abs((self.rates - self.high) - self.low)
        steps = self.rounds_positions + self.rounds_products
        unit = 2.0 ** -limits(self.dtype)[0]  # half a unit in the last place of 1: the largest relative rounding error
        return off + 1.01 * steps * unit * np.maximum(self.rates, self.high)

    def of(self, pairs: NDArray[np.intp]) -> "_Way":
        """The same for some pairs."""
        return replace(self, high=self.high[pairs], low=self.low[pairs], rates=self.rates[pairs])


def rounded(numbers: NDArray[np.float64], dtype: np.dtype) -> NDArray[np.float64]:
    """Numbers rounded once to a dtype, to nearest and ties to even, as float64; infinite beyond its range."""
    if dtype == np.float64:
        return numbers
    with np.errstate(over="ignore"):
        return before_rounding(numbers, dtype).astype(dtype).astype(np.float64)


def _rounded_sum(head: NDArray[np.float64], tail: NDArray[np.float64], dtype: np.dtype) -> NDArray[np.float64]:
    """``head + tail`` (not negative, a sum of two float64) rounded once to a dtype."""
    total = head + tail
    if dtype == np.float64:
        return total
    lost = tail - (total - head)
    # Round to odd: of the two float64 next to the sum, the odd one is not a midpoint of a shorter dtype.
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    bits += (even & (lost > 0)).astype(np.int64) - (even & (lost < 0)).astype(np.int64)
    return rounded(total, dtype)


def _product(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rounded product ``a b`` and its exact rounding error (Dekker 1971)."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(a: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


@lru_cache(maxsize=64)
def _exact(ladder: Ladder) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The frequencies as sums of two float64."""
    high = np.array(ladder.rates)
    with localcontext(working()):
        rests = (rate - Decimal(near) for rate, near in zip(ladder.exact, ladder.rates, strict=True))
        return high, np.array([float(rest) for rest in rests])


def _way(ladder: Ladder, dtype: object, way: str, base: float | None) -> _Way:
    """The `_Way` with this name, after checking the arguments."""
    one_of("way", way, WAYS, "It selects the steps that are rounded.")
    kind = output_dtype(dtype)
    return _cached_arithmetic(ladder, ladder.ratio, kind, way, None if base is None else positive("base", base))


@lru_cache(maxsize=256)
def _cached_arithmetic(ladder: Ladder, ratio: Decimal | None, dtype: np.dtype, way: str, base: float | None) -> _Way:
    """The same, cached; the ratio is part of the key, since ladders that differ only in the ratio compare equal."""
    high, low = _exact(ladder)
    if way in FROM_A_BASE:
        rates = _from_a_base(ladder, ratio, dtype, way, base)
    elif way in ("rates", "throughout"):
        rates = _rounded_sum(high, low, dtype)
    else:
        rates = high
    positions, products = way not in ("rates", "phases"), way not in ("rates", "positions")
    return _Way(high, low, rates, way in ("positions", "phases"), positions, products, dtype)


def _from_a_base(
    ladder: Ladder, ratio: Decimal | None, dtype: np.dtype, way: str, base: float | None
) -> NDArray[np.float64]:
    """The frequencies of a geometric ladder as code computes them in a dtype, each step rounded.

    The base of a power is rounded to the dtype. The factor of the exponent is computed in double precision and rounded
    to float32 or better: PyTorch 2.13 does both with Python numbers.
    """
    if ratio is None:
        raise InvalidValue(
            "Frequencies can be computed from a base only if they are a geometric progression; these are "
            f"{ladder.origin}.",
            'Use way="throughout", which takes the frequencies as given.',
        )
    with localcontext(working()):
        spans = ratio**-ladder.pairs if base is None else Decimal(base)
        channels = np.array(float(-2 * spans.ln() / ratio.ln()))
    whole = np.array(float(spans))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        index = rounded(np.arange(ladder.pairs, dtype=np.float64) * 2, dtype)
        if way == "power":
            exponents = rounded(index / rounded(channels, dtype), dtype)
            rates = rounded(1 / rounded(np.power(rounded(whole, dtype), exponents), dtype), dtype)
        else:
            kind = np.dtype(np.float64 if dtype == np.float64 else np.float32)
            factor = rounded(np.array(-math.log(float(spans)) / float(channels)), kind)
            rates = rounded(np.exp(rounded(index * factor, dtype)), dtype)
        first = rounded(np.array(ladder.rates[0]), dtype)
        return rates if first == 1 else rounded(rates * first, dtype)


def phase_errors(
    ladder: Ladder, positions: Iterable[int], dtype: object, way: str, *, base: float | None = None
) -> NDArray[np.float64]:
    """Computed angles minus exact angles, in radians, float64 [positions, pairs].

    Args:
        ladder: The frequencies.
        positions: Whole numbers from 0 to 2**53.
        dtype: float64, float32, float16 or bfloat16: what each step is rounded to.
        way: One of `WAYS`.
        base: For the ways ``power`` and ``exponential``: the base. By default the one for which the last frequency is
            one step before ``1 / base`` (as in the paper).

    Returns:
        The errors, not reduced modulo ``2 pi``; infinite or NaN where a number overflows the dtype.

    Accuracy: see the module.

    Raises:
        InvalidValue, InvalidType: An argument is invalid, or the way computes frequencies from a base and the ladder
            has none.

    >>> from clockhands.encodings.ladders import explicit
    >>> phase_errors(explicit([1.0, 0.5]), [257, 258], "bfloat16", "throughout").tolist()
    [[-1.0, -0.5], [0.0, 0.0]]
    """
    found = _way(ladder, dtype, way, base)
    at = [count("positions", position, 0) for position in positions]
    if at and max(at) > LARGEST:
        raise InvalidValue(f"`positions` must be at most 2**53, got {shown(max(at))}.", "Use smaller positions.")
    return found.errors(np.array(at, np.float64))


def phase_error(ladder: Ladder, position: int, dtype: object, way: str, *, base: float | None = None) -> float:
    """The largest angle error of any pair at a position, in radians; infinite where a number overflows the dtype.

    Arguments as for `phase_errors`.

    >>> from clockhands.encodings.ladders import geometric
    >>> f"{phase_error(geometric(256), 131_072, 'float32', 'power'):.1e}"
    '5.6e-03'
    """
    return _largest(phase_errors(ladder, [position], dtype, way, base=base))[0]


def _largest(errors: NDArray[np.float64]) -> list[float]:
    sizes = np.abs(errors).max(axis=1)
    return np.where(np.isfinite(sizes), sizes, np.inf).tolist()


def first_position_off(
    ladder: Ladder, limit: int, dtype: object, way: str, radians: float, *, base: float | None = None
) -> int | None:
    """The first position below a limit at which a pair's angle is off by more than ``radians``; None if there is none.

    A position that overflows the dtype counts as off. Positions at which errors cannot be so large are skipped: an
    error is at most the position times (the error of the frequency, and ``u`` for each other rounding). From there on
    every position is checked, for the pairs that can be off.

    Raises:
        InvalidValue, InvalidType: As for `phase_errors`.

    >>> from clockhands.encodings.ladders import geometric
    >>> first_position_off(geometric(64), 4096, "bfloat16", "positions", 0.5)
    257
    """
    found = _way(ladder, dtype, way, base)
    limit, radians = min(count("limit", limit, 0), LARGEST + 1), positive("radians", radians)
    with np.errstate(divide="ignore", over="ignore"):
        possible = radians / found.slope()
    possible = np.minimum(possible, _INFINITE.get(found.dtype.name, np.inf) / np.maximum(found.rates, 1))
    begin, looked = int(min(max(float(possible.min()), 1), limit)), 0
    while begin < limit:
        pairs = np.flatnonzero(possible <= 2 * begin)
        end = min(begin + max(1, _BLOCK // len(pairs)), limit, 2 * begin + 1)
        errors = np.abs(found.of(pairs).errors(np.arange(begin, end, dtype=np.float64)))
        off = np.flatnonzero(~(errors <= radians).all(axis=1))
        if off.size:
            return begin + int(off[0])
        begin, looked = end, looked + errors.size
        if looked > _MOST_ANGLES:
            raise InvalidValue(
                f"The search stopped at position {begin:,}: no angle error before it exceeds {radians:g} rad.",
                f"Use `limit` of at most {begin:,}, or a larger `radians`.",
            )
    return None


def precision_table(
    ladder: Ladder,
    positions: Sequence[int],
    dtypes: Sequence[object] = DTYPES,
    ways: Sequence[str] = tuple(WAYS),
    *,
    base: float | None = None,
) -> dict[str, dict[str, list[float | None]]]:
    """The largest angle error of any pair in radians, by dtype and way, one for each position.

    None means that a number overflows the dtype. Arguments as for `phase_errors`.

    >>> from clockhands.encodings.ladders import geometric
    >>> precision_table(geometric(64), [256, 257], ["bfloat16"], ["positions"])
    {'bfloat16': {'positions': [0.0, 1.0]}}
    """
    return {
        output_dtype(dtype).name: {
            way: [_finite(error) for error in _largest(phase_errors(ladder, positions, dtype, way, base=base))]
            for way in ways
        }
        for dtype in dtypes
    }


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
