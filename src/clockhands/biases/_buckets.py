"""Learned biases by buckets of the distance: exact near by, logarithmic further away.

Where a bucket ends is a whole distance, and which one is a question of whole numbers: ``d`` lies beyond the real
number ``first (last / first) ** (k / m)`` where ``d ** m`` exceeds ``last ** k first ** (m - k)``. The usual code takes
the logarithm in floating point and rounds it down (T5) or up (DeBERTa), which puts a distance that lies on a boundary,
or next to it, into the wrong bucket now and then.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np

from clockhands.arguments import count, not_negative, positive, settle
from clockhands.biases.codes import After, LogBuckets, TableCode, truth
from clockhands.biases.distances import QueryKeyPairs
from clockhands.biases.values import Values
from clockhands.errors import InvalidValue
from clockhands.ladders import working

# Boundaries beyond the largest distance, 2**64, are never reached.
_BEYOND = 2**64


@dataclass(frozen=True)
class Buckets(TableCode):
    """T5's relative biases: each pair takes the row of its distance's bucket, ``values[bucket, head]``.

    With ``n`` buckets for a direction and ``e = n // 2``, a distance ``d`` below ``e`` has a bucket of its own and
    those above share ``floor(e + ln(d / e) / ln(max_distance / e) (n - e))``, at most ``n - 1``. In an encoder the
    lower half of the buckets is for keys at or before the query, the upper half for keys after it; in a decoder all
    are for keys before, and keys after are in bucket 0.

    Attributes:
        heads: Number of heads.
        buckets: Rows of the table (``relative_attention_num_buckets``).
        max_distance: From this distance on all share the last bucket (``relative_attention_max_distance``).
        bidirectional: Whether keys after the query have buckets of their own, as in encoders.
        epsilon: Added to ``d / e`` inside the logarithm, so that a float32 does not fall below a boundary it is on
            (mesh-transformer-jax: 2**-23); the boundaries of the formula with it are exact here too.
        scale: What the looked-up numbers are multiplied by (x-transformers: the root of the head width).

    Values: ``table`` [buckets, heads].

    Accuracy: every whole distance is in the bucket that the formula in real numbers says; the numbers are the
    table's, rounded once.

    Raises:
        InvalidValue, InvalidType: A number is not allowed, or leaves no bucket to a direction.

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
        settle(
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
        """What keys after the query get."""
        return "own" if self.bidirectional else "as itself"

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self.buckets

    @property
    def one_way(self) -> int:
        """Number of buckets of a direction."""
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
    """DeBERTa-v2's buckets: as T5's in idea, but rounded up, and signed.

    With ``m = span // 2``, a distance ``r = q - k`` of at most ``m`` in size is itself, and a larger one becomes
    ``sign(r) (m + ceil(ln(|r| / m) / ln((max_distance - 1) / m) (m - 1)))``, cut to ``-span`` to ``span - 1``; its row
    is that plus ``span``. The model looks up vectors there, for content against position; `row_numbers` are what it
    looks up, and `bias` is the same with one number in place of each vector.

    Attributes:
        heads: Number of heads.
        span: Half of the rows (``position_buckets``), at least 4. An odd one leaves two buckets for distances from
            ``max_distance`` on, an even one leaves one.
        max_distance: From this distance on all share the last bucket (``max_relative_positions``), if ``span`` is even.

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
        settle(
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
    """A row for each distance, those beyond the span sharing the last: ``clip(q - k, -span, span - 1) + span``.

    As DeBERTa without buckets; it looks up vectors there, see `CeilingBuckets`.

    Attributes:
        heads: Number of heads.
        span: Half of the rows (``max_relative_positions``).

    Values: ``table`` [2 span, heads].

    Accuracy: exact; the numbers are the table's, rounded once.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Shaw et al. 2018, arXiv:1803.02155, section 3.2 (clipping); He et al. 2021, arXiv:2006.03654, section 3.1.
    """

    heads: int
    span: int = 512

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, heads=count("heads", self.heads), span=count("span", self.span))

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return 2 * self.span

    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row of each pair."""
        return _signed(self.span, pairs.clipped(self.span, self), pairs)


def _signed(span: int, steps: Any, pairs: QueryKeyPairs) -> Any:
    """The row of a number of steps before or after, of ``2 span`` rows."""
    where = pairs.xp.where
    row = span + where(pairs.distances.negative, -steps, steps)
    return where(row >= 2 * span, 0 * row + (2 * span - 1), row)


def _boundaries(log: LogBuckets) -> tuple[int, ...]:
    # Rounded up, the bucket after the one that ends at the real number t starts at the next whole number above t.
    which = range(log.steps + 1 + log.beyond) if log.up else range(1, log.steps)
    beyond = takewhile(lambda boundary: boundary < _BEYOND, (_boundary(log, k) for k in which))
    return (*range(1, log.first + 1), *beyond)


def _boundary(log: LogBuckets, k: int) -> int:
    """The smallest whole ``d`` whose ``y`` is at least ``k``; above it, where ``y`` is rounded up."""
    first, last, steps = log.first, log.last, log.steps
    with localcontext(working()):
        top = first * ((Decimal(last) / first) ** (Decimal(k) / steps) - Decimal(log.added))
        near = int(top.to_integral_value())
        if abs(top - near) > Decimal("1e-30"):
            return max(first, math.ceil(top))
    if log.added:
        return max(first, near + log.up)
    # On a whole number, or nearer to one than 60 digits tell: compared as whole numbers.
    ours, theirs = near**steps, last**k * first ** (steps - k)
    return near + (ours < theirs or (log.up and ours == theirs))
