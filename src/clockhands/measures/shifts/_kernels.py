"""Measures the similarity of two positions by distance: the dot product of their codes.

For codes of cosine-sine pairs (a clock, see `MeasuredCode.clock`) it is the kernel ``g(k) = sum_i cos(rate_i k)`` of
`clockhands.kernel` at all positions; it is even in ``k``, so it does not distinguish before from after. For other codes
the dot product depends on both positions, and its mean over all pairs of tokens at each distance is reported.

**The numbers** of `kernel` (distances in tokens, from 0 to ``length - 1``; a share is between 0 and 1):

* ``at_zero``: ``g(0)``, which is the number of dimension pairs; ``at_the_length``: ``g(length - 1) / g(0)``, the
  similarity at the largest distance.
* ``first_rise``: the first distance ``k`` from which ``g`` rises, ``g(k + 1) > g(k)``; None where ``g`` only falls;
* ``share_of_steps_rising``: the share of the steps from a distance ``k`` to ``k + 1`` at which the sum of cosines ``g``
  rises.
* ``share_out_of_order``: the share of the pairs of distances ``k < k'`` for which the sum of cosines is larger at the
  larger distance: ``g(k) < g(k')``. The share is counted, not estimated.
* ``first_negative``: the first distance ``k`` at which the sum of cosines ``g(k)`` is negative; None where no sum is
  negative.
* ``attention_factor_squared``: for a RoPE with an attention factor, the square of this factor, by which every score is
  multiplied.
* ``even``: whether the positions ``k`` tokens before and ``k`` tokens after a position are equally similar to this
  position; None where the similarity is no function of the distance.
* ``octaves``: the first distance of each octave (1, 2, 4, …); ``mean_by_octave``: the mean of ``g(k) / g(0)`` from the
  first distance of an octave up to that of the next octave;
* ``explained_by_distance``: for encodings whose similarity depends on more than the distance: the share of the variance
  of the dot products of two different positions' rows that a function of the distance explains. At 1, the distance
  explains the dot products completely; at 0, the distance explains nothing. None where all dot products are equal.
* ``cosine_of_neighbours``: for encodings whose similarity depends on more than the distance, the mean cosine of the
  rows of neighbouring positions.

**Accuracy.** `kernel_by_distance` is a product of two tables of units, ``g(a n + b) = sum_i Re(u_i(a n) u_i(b))``.
Units of 2**-53 below. The parts of ``u`` are within 1.55 (`phases`); a decay ``exp(d k)`` is within 2.4 (one
ulp of the exponential, and ``x exp(-x) < 0.37`` for the rounding of ``d k``) and its product with a part rounded once
more: 5 in all. The product of two is within ``sqrt(2) (5 + 5) < 15``. A sum of ``2 n`` products in any order adds
``2 n`` times the sum of their sizes, which is at most ``n``. Together `kernel_bound`: ``n (2 n + 15) 2**-53``, 1.5e-11
for 256 pairs. A rise, or a negative value, is counted only where it is larger than that. Sums over pairs of tokens are
made by Fourier transforms of the channels: means within 1e-12 of the largest dot product.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count
from clockhands.encodings.ladders import Ladder
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode, row_norms, rows_within

# Rows, and multiplications, of a measure over pairs of tokens; of longer texts only the first tokens are used.
_ROWS, _WORK = 8192, 4e9

_FARTHEST = 1 << 22  # the most distances in a report; more would take too long for one property


def kernel_by_distance(ladder: Ladder, length: int, decay: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """``g(k) = sum_i cos(rate_i k)`` for every distance ``k`` below ``length``, float64 [length].

    The same as `clockhands.kernel` at ``range(length)``, but much faster: a shift is a rotation, so the unit vectors of
    ``length`` distances are products of those of about ``2 sqrt(length)`` distances, and summing the products over the
    pairs is one product of matrices.

    Args:
        ladder: The frequencies; the attention factor is ignored.
        length: How many distances, from 0 on.
        decay: The logarithm of the decay per token of each pair, at most 0 (xPos); the result is then ``sum_i
            exp(decay_i k) cos(rate_i k)``.

    Accuracy: `kernel_bound`, 1.5e-11 for 256 pairs; derived in the module.

    Raises:
        InvalidValue: The length is below 1.
        TooLarge: So many numbers would not fit in memory.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> kernel_by_distance(Sinusoidal(width=512).ladder, 11)[[0, 10]].round(4).tolist()
    [256.0, 173.7897]
    """
    length = count("length", length)
    refuse_larger((length,), 16, "A kernel", "Use fewer distances.")
    fine_number = 1 << max(0, (length.bit_length() + 1) // 2)
    coarse_number = -(-length // fine_number)
    coarse_at = np.arange(coarse_number, dtype=np.int64) * fine_number
    fine_at = np.arange(fine_number, dtype=np.int64)
    coarse, fine = (units(ladder, positions_of(at)) for at in (coarse_at, fine_at))
    if decay is not None:
        coarse *= np.exp(np.multiply.outer(coarse_at, decay))
        fine *= np.exp(np.multiply.outer(fine_at, decay))
    made = coarse.real @ fine.real.T
    made -= coarse.imag @ fine.imag.T
    return made.reshape(-1)[:length]


def kernel_bound(pairs: int) -> float:
    """The largest error of a number of `kernel_by_distance`, derived in the module.

    >>> f"{kernel_bound(256):.1e}"
    '1.5e-11'
    """
    return pairs * (2 * pairs + 15) * 2.0**-53


def first_rise(values: NDArray[np.float64], error: float = 0.0) -> int | None:
    """The first distance ``k`` with ``values[k + 1] > values[k]``, where it stops falling; None if there is none.

    Args:
        values: A kernel by distance.
        error: The largest error of each value; a rise of at most twice that does not count.

    >>> first_rise(np.array([3.0, 1.0, 2.0]))
    1
    """
    rising = np.flatnonzero(np.diff(values) > 2 * error)
    return int(rising[0]) if rising.size else None


def first_negative(values: NDArray[np.float64], error: float = 0.0) -> int | None:
    """The first distance with a value below ``-error``; None if there is none.

    >>> first_negative(np.array([3.0, 1.0, -2.0]))
    2
    """
    below = np.flatnonzero(values < -error)
    return int(below[0]) if below.size else None


def out_of_order(values: NDArray[np.float64]) -> int:
    """How many pairs of places ``i < j`` have ``values[i] < values[j]``; 0 for a sequence that only falls.

    Counted exactly, one bit of the ranks after another: among numbers with equal higher bits, each 0 before a 1 is one
    such pair. Time ``n log(n)**2`` at most.

    >>> out_of_order(np.array([5.0, 1.0, 3.0, 3.0]))
    2
    """
    ranks = np.unique(values, return_inverse=True)[1].astype(np.int64)
    found = 0
    for bit in range(int(ranks.max(initial=0)).bit_length() - 1, -1, -1):
        group = ranks >> (bit + 1)  # sorted: each round moves the zeros of a group before its ones
        one = (ranks >> bit) & 1
        zeros = np.cumsum(1 - one)
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        earlier = np.repeat(zeros[starts] - (1 - one[starts]), np.diff(starts, append=len(group)))
        found += int(((zeros - earlier) * one).sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    return found


def mean_by_octave(values: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    """The first distance of each octave, 1, 2, 4, …, and the mean of the values from there to the next one.

    >>> mean_by_octave(np.array([9.0, 4.0, 2.0, 1.0, 5.0]))
    ([1, 2, 4], [4.0, 1.5, 5.0])
    """
    starts = [1 << octave for octave in range(max(0, (len(values) - 1).bit_length())) if 1 << octave < len(values)]
    return starts, [float(values[start : 2 * start].mean()) for start in starts]


def dot_products_by_distance(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], float | None]:
    """The mean dot product of two tokens at each distance, [tokens], and the share of variance that distance explains.

    The share is 1 minus the sum of squares within distances over the sum of squares about the common mean, over all
    pairs of different tokens; None if all dot products are the same (or there are fewer than two).

    Args:
        rows: The numbers of the tokens, [tokens, channels].

    Accuracy: means within 1e-12 of the largest squared norm, the share within 1e-9.
    """
    tokens = len(rows)
    size = 1 << (2 * tokens - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for begin in range(0, rows.shape[1], 64):
        waves = np.fft.rfft(rows[:, begin : begin + 64], size, axis=0)
        power += (waves.real**2 + waves.imag**2).sum(axis=1)
    sums = np.fft.irfft(power, size)[:tokens]
    numbers = np.arange(tokens, 0, -1)
    means = sums / numbers
    if tokens < 3:
        return means, None
    # The sum of squares of all dot products is that of the smaller of the two Gram matrices.
    squares = rows.T @ rows if tokens > rows.shape[1] else rows @ rows.T
    norms = np.einsum("tc,tc->t", rows, rows)
    total = (float((squares**2).sum()) - float((norms**2).sum())) / 2
    pairs, largest = tokens * (tokens - 1) / 2, float(norms.max(initial=0)) ** 2
    common = float(sums[1:].sum()) / pairs
    about = total - pairs * common**2
    if about <= pairs * largest * 1e-13:
        return means, None
    return means, float(np.clip((numbers[1:] * (means[1:] - common) ** 2).sum() / about, 0, 1))


@measure
def kernel(subject: MeasuredCode) -> Property:
    """The similarity of two positions by distance; the module lists the numbers.

    Accuracy: see the module. A code of several axes is measured along each axis, with the pairs of that axis; the axis
    with the largest share of distances out of order is reported.
    """
    if subject.length == 1:
        return not_computed(sentence("kernel.one_token"))
    if subject.length > _FARTHEST:
        return not_computed(sentence("kernel.too_long", most=_FARTHEST))
    # For these codes the dot product of two positions is the kernel of the frequencies.
    rotary = isinstance(subject.spec, Rotary)
    if own := subject.ladders if rotary else subject.clock_ladders:
        each = [_of_ladder(subject, ladder) for ladder in own]
        worst = max(range(len(each)), key=lambda axis: each[axis]["share_out_of_order"] or 0.0)
        return _property_of_ladder(subject, each[worst], worst)
    if subject.missing is not None:
        return not_computed(subject.missing)
    return _of_rows(subject)


def _of_ladder(subject: MeasuredCode, ladder: Ladder) -> dict[str, Any]:
    xpos = subject.spec.xpos if isinstance(subject.spec, Rotary) else None
    decay = None if xpos is None else xpos.logarithms(ladder.pairs)
    return _figures(kernel_by_distance(ladder, subject.length, decay), kernel_bound(ladder.pairs))


def _figures(values: NDArray[np.float64], error: float) -> dict[str, Any]:
    """The figures from a kernel by distance."""
    length = len(values)
    octaves, means = mean_by_octave(values / values[0] if values[0] else values)
    return {
        "at_zero": float(values[0]),
        "at_the_length": float(values[-1] / values[0]) if values[0] else 0.0,
        "first_rise": first_rise(values, error),
        "share_of_steps_rising": float((np.diff(values) > 2 * error).mean()),
        "share_out_of_order": out_of_order(values) / (length * (length - 1) / 2),
        "first_negative": first_negative(values, error),
        "octaves": octaves,
        "mean_by_octave": means,
    }


def _property_of_ladder(subject: MeasuredCode, found: dict[str, Any], axis: int) -> Property:
    if subject.axes > 1:
        found |= {"axis": axis}
    rotary = subject.spec if isinstance(subject.spec, Rotary) else None
    found["even"] = rotary is None or rotary.xpos is None
    if rotary is not None:
        found["attention_factor_squared"] = rotary.attention_factor**2
    words = {
        "what": "score" if rotary else "dot product",
        "of": "RoPE score of a query and an equal key" if rotary else "dot product of two encodings",
        "where": f" along axis {axis}" if subject.axes > 1 else "",
        "last": subject.length - 1,
        "negative": found["first_negative"] is not None,
        "never": found["first_negative"] is None,
        "scaled": rotary is not None and rotary.attention_factor != 1,
    }
    case = "falls" if found["first_rise"] is None else "oscillates"
    sides = "of_additive" if rotary is None else "of_rotary" if found["even"] else "of_xpos"
    values = found | words
    more = (f"kernel.{each}" for each in ("far", sides, *(["factor"] if words["scaled"] else [])))
    return answer(f"kernel.{case}", *(sentence(each, **values) for each in more), words=words, **found)


def _of_rows(subject: MeasuredCode) -> Property:
    """The figures, computed from rows, for a code whose dot products depend on both positions."""
    width = subject.rows(0, 1).shape[-1]
    tokens = rows_within(_WORK, subject.length, width, _ROWS)
    each: list[tuple[dict[str, Any], float]] = []
    for axis in range(subject.axes):
        try:
            rows = subject.rows(0, tokens, axis, "float64")
        except InvalidValue as error:
            return not_computed(str(error).splitlines()[0])
        means, explained = dot_products_by_distance(rows)
        norms = row_norms(rows)
        length = norms[1:] * norms[:-1]
        dots = np.einsum("tc,tc->t", rows[1:], rows[:-1])
        cosine = float((dots[length > 0] / length[length > 0]).mean()) if (length > 0).any() else None
        found = _figures(means, 1e-12 * float(norms.max(initial=0)) ** 2)
        found |= {"explained_by_distance": explained, "cosine_of_neighbours": cosine, "even": None, "tokens": tokens}
        each.append((found, 1.0 if explained is None else explained))
    axis = min(range(len(each)), key=lambda number: each[number][1])
    found, _ = each[axis]
    if subject.axes > 1:
        found |= {"axis": axis}
    explained = found["explained_by_distance"]
    words = {
        "where": f" along axis {axis}" if subject.axes > 1 else "",
        "beginning": None if tokens == subject.length else tokens,
        "near": found["cosine_of_neighbours"] is not None,
    }
    if explained is not None and explained > 1 - 1e-9:
        found |= {"even": True}
    case = "all_equal" if explained is None else "by_distance" if found["even"] else "by_positions"
    return answer(f"kernel.{case}", words=words, **found)
