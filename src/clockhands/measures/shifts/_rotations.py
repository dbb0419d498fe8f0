"""Measures whether a shift is one rotation at every position; for other codes, how well a linear map can perform it.

A pair of frequency ``r`` with the value ``u`` has the value ``u exp(i r k)`` some ``k`` tokens later, at every
position. So a code of such pairs has one matrix for each distance, ``table(t + k) = table(t) @ R_k.T``
(`clockhands.shift`), a rotation of every pair.

**The numbers** of a code of cosine-sine pairs (errors in the code's unit; lists have one entry for each of
``distances``):

* ``distances``: the shifts ``k`` that were measured, in tokens; ``tokens_compared``: the positions ``t`` whose rows
  were compared with shifted rows, for all shifts.
* ``largest_error``: the largest absolute entry of ``table(t + k) - table(t) @ R_k.T``, where both tables are rounded to
  the dtype and ``R_k`` is the rotation for a shift by ``k`` tokens.
* ``error_bound``: the largest value of ``largest_error`` that rounding alone can cause.
* ``orthogonality_error``: the largest absolute entry of ``R_k @ R_k.T - I``, computed in float64, where ``R_k`` is the
  rotation for a shift by ``k`` tokens.
* ``composition_error``: the largest absolute entry of ``R_j @ R_k - R_(j + k)``, where ``j`` and ``k`` are neighbouring
  numbers in ``distances`` and ``R_k`` is the rotation for a shift by ``k`` tokens.
* ``hands``: the number of dimension pairs that rotate; ``axis``: for an encoding with several axes, the axis with the
  largest error.
* ``decay_per_token_most``, ``decay_per_token_least``: for xPos, the largest and the smallest factor by which the decay
  multiplies a dimension pair for each token.

Of other codes (shares of variance by ``distances``; see `clockhands.measures.shifts._linear_maps`):

* ``residual_share``: the share of the variance of the test rows that the best linear map from rows ``t`` to rows ``t +
  k`` does not explain; the map is not fitted to the test rows. ``largest_error``: the largest error of this map for one
  number of a test row. Both figures are None if there are too few rows.
* ``residual_share_with_constant``, ``largest_error_with_constant``: the same two figures for the best linear map that
  may also add a constant row. They are given for encodings in which a step adds, or may add, a constant: counters, raw
  coordinates and trained encodings.
* ``tokens``: the number of rows of the table that were measured.
* ``first_step_turns``, ``last_step_turns``: for a warped position, the angle in radians by which a step of one token
  rotates the first dimension pair, at the first token and at the last token; the angle is not reduced modulo 2 pi.

For biases, see `clockhands.measures.biases._diagonals`.

**Accuracy.** The bound of the error: rows of numbers of size at most ``S`` are within ``d`` of the real ones, half the
dtype's spacing below ``S`` and ``2**-46 S`` for what came before (`phases`), 1.01 times that for numbers
rounded by way of float32. A number of the predicted row is ``c x + s y`` with ``c**2 + s**2 = 1``: ``x`` and ``y``
bring ``(|c| + |s|) d <= sqrt(2) d``, the errors of ``c`` and ``s`` (1.55 x 2**-53 each) and two roundings at most
``7 x 2**-53 S``, a decay 5 more. The later row brings ``d``. Together ``(1 + sqrt(2)) d + 12 x 2**-53 S``.
"""

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.additive import AdditiveCode, Counter, NormalizedCounter, Sinusoidal, WarpedPosition
from clockhands.encodings.dtypes import SMALLEST, limits, output_dtype
from clockhands.encodings.layouts import pair_channels
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.measures.biases._diagonals import diagonals
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.shifts._linear_maps import Judged, judged
from clockhands.measures.subject import MeasuredCode, rows_within, zero_tokens
from clockhands.phrases import percent

_COMPARED = 12  # tokens that are compared at each distance
_LONGEST = 1 << 60  # tokens: the sum of two distances is still a position
_ROWS, _WORK = 8192, 3e9  # rows, and multiplications, of a fit; of longer texts only the first tokens are used
# Relative to the largest value: an error of a fitted map that is only rounding, in float64, and for trained float32
# values.
_EXACT, _EXACT_TRAINED = 1e-8, 1e-6


@measure
def shift(subject: MeasuredCode) -> Property:
    """Whether a shift is one rotation at every position; the module lists the numbers.

    Accuracy: the module derives the bound; rows are compared at 12 tokens for each of up to six distances, spread
    evenly from the first token to the last. A code of several axes is shifted along each axis separately; the worst
    axis is reported.
    """
    if subject.kind == "bias":
        return diagonals(subject)
    if subject.length == 1:
        return not_computed(sentence("shift.one_token"))
    if subject.length > _LONGEST:
        return not_computed(sentence("shift.too_long", most=_LONGEST))
    if isinstance(subject.spec, Sinusoidal) and subject.missing is not None:
        # A trained scale multiplies rows and shifted rows by the same number.
        subject = dataclasses.replace(subject, spec=dataclasses.replace(subject.spec, scaled=False))
    if isinstance(subject.spec, Rotary) or subject.clock is not None:
        return _of_pairs(subject)
    if subject.missing is not None:
        return not_computed(subject.missing)
    return _of_rows(subject)


def error_bound(size: float, dtype: str) -> float:
    """The largest difference between rows and shifted rows that rounding alone can cause, for values up to ``size``.

    >>> f"{error_bound(1.0, 'float32'):.2g}"
    '7.3e-08'
    """
    epsilon = 2.0 ** (1 - limits(output_dtype(dtype))[0])
    step = epsilon * 2.0 ** (math.ceil(math.log2(size)) - 1) if size else 0.0
    rounded = 1.01 * max(step, SMALLEST[dtype]) / 2 + 2.0**-46 * size
    return (1 + math.sqrt(2)) * rounded + 12 * 2.0**-53 * size


def distances_tried(length: int) -> list[int]:
    """Up to six distances from 1 to ``length - 1``, including both ends.

    >>> distances_tried(2048), distances_tried(2)
    ([1, 7, 64, 1000, 1024, 2047], [1])
    """
    return sorted({k for k in (1, 7, 64, 1000, length // 2, length - 1) if 1 <= k < length})


def _of_pairs(subject: MeasuredCode) -> Property:
    distances = distances_tried(subject.length)
    try:
        each = [_of_axis(subject, axis, distances) for axis in range(subject.axes)]
    except InvalidValue as error:  # values that overflow the dtype
        return not_computed(str(error).splitlines()[0])
    axis = max(range(len(each)), key=lambda number: each[number]["largest_error"] / each[number]["error_bound"])
    found = each[axis] | ({"axis": axis} if subject.axes > 1 else {})
    if not math.isfinite(found["largest_error"]):
        return not_computed(sentence("shift.overflows", dtype=subject.dtype.name))
    if "decay_per_token_most" in found:
        case = "decays"
    else:
        case = "not_exact" if found["largest_error"] > found["error_bound"] else "rotations"
    words = {
        "dtype": subject.dtype.name,
        "along": f" along any of the {subject.axes} axes" if subject.axes > 1 else "",
        "who": "a query or key" if isinstance(subject.spec, Rotary) else "the encoding",
        "reordered": getattr(subject.spec, "reordered", False),
        "zeros": ", ".join(map(str, zero_tokens(subject))),
    }
    return answer(f"shift.{case}", holds=case == "rotations", words=words, **found)


def _of_axis(subject: MeasuredCode, axis: int, distances: list[int]) -> dict[str, Any]:
    """The figures of one axis: rows compared with rotated rows, and the rotations with each other."""
    starts = [np.unique(np.linspace(0, subject.length - 1 - k, _COMPARED).astype(np.int64)) for k in distances]
    tokens, place = np.unique(
        np.concatenate([at for k, start in zip(distances, starts, strict=True) for at in (start, start + k)]),
        return_inverse=True,
    )
    rows = subject.rows_at(tokens, axis).astype(np.float64)
    skip = np.isin(tokens + subject.first, getattr(subject.spec, "zero_rows", ()))
    turns, grown = _pair_factors(subject, axis, [*distances, *(a + b for a, b in itertools.pairwise(distances))])
    hands, others = _complex_pairs(subject, rows)
    error, begin, compared = 0.0, 0, 0
    for number, start in enumerate(starts):
        here, there = (place[begin + step : begin + step + len(start)] for step in (0, len(start)))
        begin += 2 * len(start)
        kept = ~(skip[here] | skip[there])
        compared += int(kept.sum())
        here, there = here[kept], there[kept]
        moved = hands[here] * (turns[number] * grown[number]) - hands[there]
        still = others[here] - others[there]
        error = max(error, *(float(np.abs(part).max(initial=0)) for part in (moved.real, moved.imag, still)))
    size = float(np.abs(rows).max(initial=0)) or 1.0
    pure, both = turns[: len(distances)], turns[len(distances) :]
    found: dict[str, Any] = {
        "distances": distances,
        "tokens_compared": compared,
        "largest_error": error,
        "error_bound": error_bound(size, subject.dtype.name),
        "orthogonality_error": float(np.abs(pure.real**2 + pure.imag**2 - 1).max()),
        "composition_error": _largest(pure[:-1] * pure[1:] - both),
        "hands": hands.shape[1],
    }
    xpos = subject.spec.xpos if isinstance(subject.spec, Rotary) else None
    if xpos is not None:
        decays = np.exp(xpos.logarithms(hands.shape[1]))
        found |= {"decay_per_token_most": float(decays.min()), "decay_per_token_least": float(decays.max())}
    return found


def _largest(numbers: NDArray[np.complex128]) -> float:
    return float(max(np.abs(numbers.real).max(initial=0), np.abs(numbers.imag).max(initial=0)))


def _pair_factors(
    subject: MeasuredCode, axis: int, distances: list[int]
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """The complex factors of the pairs at each distance along an axis, [distances, pairs]: rotation and growth."""
    spec = subject.spec
    at = np.array(distances, np.int64)
    if subject.axes > 1:
        along = np.zeros((len(at), subject.axes), np.int64)
        along[:, axis] = at
        at = along
    if not isinstance(spec, Rotary):
        clock = subject.clock
        assert clock is not None
        turned = clock.units(positions_of(at))
        # `clockhands.shift` rotates (sin, cos), not (cos, sin).
        return turned.conj() if clock.order == "sin-cos" else turned, np.ones(turned.shape)
    if spec.axes is None:
        turned = units(spec.ladder, positions_of(at))
    else:
        turned = np.where(np.array(spec.axes) == axis, units(spec.ladder, positions_of(at[:, axis])), 1)
    if spec.direction == "backward":
        turned = turned.conj()
    if spec.xpos is None:
        return turned, np.ones(turned.shape)
    return turned, np.exp(np.multiply.outer(np.array(distances), spec.xpos.logarithms(turned.shape[1])))


def _complex_pairs(
    subject: MeasuredCode, rows: NDArray[np.float64]
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """The two channels of each pair as one complex number, and the channels that belong to no pair."""
    if isinstance(subject.spec, Rotary):
        pairs = rows.shape[1] // 2
        return rows[:, :pairs] + 1j * rows[:, pairs:], rows[:, :0]
    clock = subject.clock
    assert clock is not None
    channels = pair_channels(clock.ladder.pairs, clock.layout) if clock.channels is None else clock.channels
    left = np.ones(rows.shape[1], bool)
    left[channels.reshape(-1)] = False
    return rows[:, channels[:, 0]] + 1j * rows[:, channels[:, 1]], rows[:, left]


def _of_rows(subject: MeasuredCode) -> Property:
    """The best linear map of a code that is not made of cosine-sine pairs."""
    spec, name = subject.spec, type(subject.spec).__name__
    assert isinstance(spec, AdditiveCode)
    tokens = rows_within(_WORK, subject.length, spec.width, _ROWS)
    distances = sorted({1, max(1, min(64, tokens // 8))})
    # Axes with the same frequencies are measured once.
    alike = subject.ladders if len(subject.ladders) == subject.axes else range(subject.axes)
    made = {one: _maps(subject, axis, tokens, distances) for axis, one in reversed([*enumerate(alike)])}
    each = [made[one] for one in alike]
    axis = max(range(len(each)), key=lambda number: each[number].numbers["residual_share"][0] or 0.0)
    found: dict[str, Any] = each[axis].numbers | {"distances": distances, "tokens": tokens}
    found |= {"axis": axis} if subject.axes > 1 else {}
    along, over = f" along axis {axis}" if subject.axes > 1 else "", None if tokens == subject.length else tokens
    figures = zip(distances, found["residual_share"], found["largest_error"], strict=True)
    steps = [
        sentence("shift.step", left=_left(share), distance=k, error=error)
        for k, share, error in figures
        if share is not None
    ]
    fit = sentence("shift.fit", steps=" and ".join(steps), over=over) if steps else ""
    share, addition = found["residual_share"][0], each[axis].addition
    words = {"along": along, "left": "" if share is None else _left(share)}
    if isinstance(spec, WarpedPosition):
        first, last = (_step_of(spec, subject.first + at) for at in (0, subject.length - 2))
        found |= {"first_step_turns": first, "last_step_turns": last}
        return answer("shift.warped", fit, holds=False, **found)
    if subject.spec_is_learned:
        few = share is None or (share > 0.5 and found["tokens"] * 2 // 3 <= spec.width)
        if few:
            why = sentence("shift.too_few", tokens=found["tokens"], width=spec.width, fit=fit)
            return not_computed(why, **found)
        case = "one_map" if each[axis].linear else "one_affine_map" if addition else "no_map"
        return answer(f"shift.{case}", fit, holds=case == "one_map", words=words, **found)
    if addition:
        words["error"] = max(found["largest_error_with_constant"])
        return answer("shift.addition", fit, holds=False, words=words, **found)
    # Within the length a linear map can compute the shift of some codes from the other dimensions.
    case = "nearly" if each[axis].linear else "unknown_share" if share is None else "no_matrix"
    near = sentence("shift.near") if each[axis].linear else ""
    words |= {"encoding": name, "why": spec.why_no_shift()}
    told = sentence("shift.no_single_matrix", **words)
    return answer(f"shift.{case}", told, fit, near, holds=False, words=words, **found)


def _left(share: float) -> str:
    """The share that a map leaves unexplained, as text; on held-out rows it may be above 1."""
    return "all" if share >= 1 else percent(share)


def _step_of(spec: WarpedPosition, position: int) -> float:
    """The angle in radians, not reduced, by which a step from this position rotates the pair of frequency 1."""
    if spec.warp == "square":
        return float(2 * position + 1)
    return math.log1p(1 / position) if spec.warp == "log" else -1 / (position * (position + 1))


class _Maps(NamedTuple):
    """The figures of the best maps along one axis, and whether one is exact within float64."""

    numbers: dict[str, Any]
    linear: bool
    addition: bool


def _maps(subject: MeasuredCode, axis: int, tokens: int, distances: list[int]) -> _Maps:
    """The best linear maps along one axis, without a constant row and with one."""
    rows = subject.rows(0, tokens, axis, "float64")
    if subject.axes > 1:  # channels of the other axes do not change here, and would act as a constant
        rows = rows[:, rows.max(axis=0) != rows.min(axis=0)]
    allowed = (_EXACT_TRAINED if subject.spec_is_learned else _EXACT) * float(np.abs(rows).max(initial=0))
    plain = judged(rows, distances)
    linear, addition = _all_fit(plain, allowed), False
    numbers = _numbers(plain, "")
    # A step may add a constant to the rows of counters, raw coordinates, and trained codes.
    counts = isinstance(subject.spec, Counter | NormalizedCounter) or bool(getattr(subject.spec, "raw", None))
    if not linear and (counts or subject.spec_is_learned):
        affine = judged(rows, distances, constant=True)
        addition = _all_fit(affine, allowed)
        numbers |= _numbers(affine, "_with_constant")
    return _Maps(numbers, linear, addition)


def _numbers(judgements: list[Judged | None], name: str) -> dict[str, Any]:
    return {
        f"residual_share{name}": [None if one is None else one.share for one in judgements],
        f"largest_error{name}": [None if one is None else one.largest for one in judgements],
    }


def _all_fit(found: list[Judged | None], allowed: float) -> bool:
    return all(one is not None and one.largest <= allowed for one in found)
