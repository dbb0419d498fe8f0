"""Learned relative biases by buckets of the distance (T5, DeBERTa): one bucket per small distance, then logarithmic.

The boundaries of the buckets are computed exactly, in integers: ``d`` is above the real number
``first (last / first) ** (k / m)`` if ``d ** m`` exceeds ``last ** k first ** (m - k)``. Published code computes the
logarithm in floating point and rounds it down (T5) or up (DeBERTa), which sometimes puts a distance at or next to a
boundary into the wrong bucket.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np

from clockhands.arguments import count, not_negative, positive, set_fields, truth
from clockhands.encodings.biases.codes import After, LogBuckets, TableCode
from clockhands.encodings.biases.distances import QueryKeyPairs
from clockhands.encodings.biases.values import Values
from clockhands.encodings.ladders import working
from clockhands.errors import InvalidValue

# Boundaries above the largest distance, 2**64, have no effect.
_BEYOND = 2**64


@dataclass(frozen=True)
class Buckets(TableCode):
    """T5's relative biases: the bias of a query and a key is ``values[bucket, head]`` for the bucket of their distance.

    With ``n`` buckets per direction and ``e = n // 2``, each distance ``d`` below ``e`` has a separate bucket. A larger
    one is in bucket ``floor(e + ln(d / e) / ln(max_distance / e) (n - e))``, at most ``n - 1``. In an encoder the
    lower half of the buckets is for keys at or before the query, the upper half for keys after it. In a decoder all
    buckets are for keys before the query, and keys after it are in bucket 0.

    Attributes:
        heads: Number of heads.
        buckets: Rows of the table (``relative_attention_num_buckets``).
        max_distance: All distances from this one on share the last bucket (``relative_attention_max_distance``).
        bidirectional: Whether keys after the query have separate buckets, as in encoders.
        epsilon: Added to ``d / e`` inside the logarithm, so that in float32 a distance on a boundary does not fall
            below it (mesh-transformer-jax: 2**-23). The boundaries with it are exact here too.
        scale: A factor on the numbers of the table (x-transformers: the square root of the head width).

    Values: ``table`` [buckets, heads].

    Accuracy: every integer distance is in the bucket that the formula gives in real numbers; the numbers are those of
    the table, rounded once.

    Raises:
        InvalidValue, InvalidType: A number is not allowed, or a direction has no bucket.

    Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1; transformers 5.23.0, models/t5/modeling_t5.py,
    T5Attention._relative_position_bucket; kingoflolz/mesh-transformer-jax at f8315e3, RelativePositionEmbs.

    >>> Buckets(heads=8, bidirectional=False).boundaries[15:18]
    (16, 19, 21)
    """

    heads: int
    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True
    epsilon: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        truth("bidirectional", self.bidirectional, "It selects whether keys after the query have separate buckets.")
        least = 4 if self.bidirectional else 2
        set_fields(
            self,
            heads=count("heads", self.heads),
            buckets=count("buckets", self.buckets, least),
            max_distance=count("max_distance", self.max_distance),
            epsilon=not_negative("epsilon", self.epsilon),
            scale=positive("scale", self.scale),
        )
        if self.bidirectional and self.buckets % 2:
            raise InvalidValue(
                f"`buckets` must be even, because half of them are for each direction, got {self.buckets}.",
                "Use an even number.",
            )
        if self.max_distance <= self.one_way // 2:
            raise InvalidValue(
                f"`max_distance` must be above {self.one_way // 2}, the number of distances with a bucket each, got "
                f"{self.max_distance}.",
                "Use fewer buckets or a larger distance.",
            )

    @property
    def keys_after(self) -> After:
        """The bias of keys after the query; see `After`."""
        return "own" if self.bidirectional else "as itself"

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self.buckets

    @property
    def one_way(self) -> int:
        """Number of buckets per direction."""
        return self.buckets // 2 if self.bidirectional else self.buckets

    @property
    def log_buckets(self) -> LogBuckets:
        """The upper half of a direction's buckets."""
        first = self.one_way // 2
        return LogBuckets(first, self.max_distance, self.one_way - first, self.epsilon)

    @cached_property
    def boundaries(self) -> tuple[int, ...]:
        """The smallest distance of every bucket of one direction but the first."""
        return _boundaries(self.log_buckets)

    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The bucket of each pair."""
        rows, negative, where = pairs.steps(self), pairs.distances.negative, pairs.xp.where
        return where(negative, rows + self.one_way if self.bidirectional else 0 * rows, rows)

    def table(self, values: Values) -> Any:
        """The table, scaled."""
        return values.arrays[self.name] * self.scale


@dataclass(frozen=True)
class CeilingBuckets(TableCode):
    """DeBERTa-v2's buckets: logarithmic like T5's, but rounded up, and signed.

    With ``m = span // 2``, a distance ``r = q - k`` with ``|r| <= m`` is kept, and a larger one becomes
    ``sign(r) (m + ceil(ln(|r| / m) / ln((max_distance - 1) / m) (m - 1)))``, clipped to ``-span`` to ``span - 1``. The
    row is that plus ``span``. The model looks up vectors in these rows, for content-to-position terms: `row_numbers`
    gives the rows, and `bias` has a number instead of each vector.

    Attributes:
        heads: Number of heads.
        span: Half of the rows (``position_buckets``), at least 4. An odd span has two buckets for distances from
            ``max_distance`` on, an even one has one.
        max_distance: All distances from this one on share the last bucket (``max_relative_positions``), if ``span`` is
            even.

    Values: ``table`` [2 span, heads].

    Accuracy: as `Buckets`.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: He et al. 2021, arXiv:2006.03654; transformers 5.23.0, models/deberta_v2/modeling_deberta_v2.py,
    make_log_bucket_position.
    """

    heads: int
    span: int = 256
    max_distance: int = 512

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            heads=count("heads", self.heads),
            span=count("span", self.span, least=4),
            max_distance=count("max_distance", self.max_distance),
        )
        if self.max_distance - 1 <= self.span // 2:
            raise InvalidValue(
                f"`max_distance` must be above {self.span // 2 + 1}, got {self.max_distance}.",
                "Use a smaller `span` or a larger `max_distance`: half of `span` is for distances with a bucket each.",
            )

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return 2 * self.span

    @property
    def log_buckets(self) -> LogBuckets:
        """The upper half of a direction's buckets."""
        return LogBuckets(self.span // 2, self.max_distance - 1, self.span // 2 - 1, up=True, beyond=self.span % 2)

    @cached_property
    def boundaries(self) -> tuple[int, ...]:
        """The smallest distance of every bucket of one direction but the first."""
        return _boundaries(self.log_buckets)

    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row of each pair."""
        return _signed(self.span, pairs.steps(self), pairs)


@dataclass(frozen=True)
class Clipped(TableCode):
    """One row per distance up to the span, the last for all larger ones: ``clip(q - k, -span, span - 1) + span``.

    This is DeBERTa without buckets, which looks up vectors in these rows; see `CeilingBuckets`.

    Attributes:
        heads: Number of heads.
        span: Half of the rows (``max_relative_positions``).

    Values: ``table`` [2 span, heads].

    Accuracy: the rows are exact; the numbers are those of the table, rounded once.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Shaw et al. 2018, arXiv:1803.02155, section 3.2 (clipping); He et al. 2021, arXiv:2006.03654, section 3.1.
    """

    heads: int
    span: int = 512

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, heads=count("heads", self.heads), span=count("span", self.span))

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return 2 * self.span

    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row of each pair."""
        return _signed(self.span, pairs.clipped(self.span, self), pairs)


def _signed(span: int, steps: Any, pairs: QueryKeyPairs) -> Any:
    """The row, of ``2 span`` rows, for a number of steps before or after the query."""
    where = pairs.xp.where
    row = span + where(pairs.distances.negative, -steps, steps)
    return where(row >= 2 * span, 0 * row + (2 * span - 1), row)


def _boundaries(log: LogBuckets) -> tuple[int, ...]:
    # Rounded up, the bucket after the boundary t, a real number, starts at the next integer above t.
    which = range(log.steps + 1 + log.beyond) if log.up else range(1, log.steps)
    beyond = takewhile(lambda boundary: boundary < _BEYOND, (_boundary(log, k) for k in which))
    return (*range(1, log.first + 1), *beyond)


def _boundary(log: LogBuckets, k: int) -> int:
    """The smallest integer ``d`` whose ``y`` is at least ``k``, or above ``k`` where ``y`` is rounded up."""
    first, last, steps = log.first, log.last, log.steps
    with localcontext(working()):
        top = first * ((Decimal(last) / first) ** (Decimal(k) / steps) - Decimal(log.added))
        near = int(top.to_integral_value())
        if abs(top - near) > Decimal("1e-30"):
            return max(first, math.ceil(top))
    if log.added:
        return max(first, near + log.up)
    # An integer, or too close to one for 60 digits: compared in integer arithmetic.
    ours, theirs = near**steps, last**k * first ** (steps - k)
    return near + (ours < theirs or (log.up and ours == theirs))
