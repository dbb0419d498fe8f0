"""Diagnosis of an array that a position code computes: ALiBi slopes, a table, or frequencies, by its kind.

`of_array` is called for named arrays: those of a state dict, or of a module that is checked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, Sinusoidal, table
from clockhands.encodings.biases import Alibi, BiasCode
from clockhands.encodings.dtypes import rounded
from clockhands.encodings.layouts import pair_channels
from clockhands.encodings.rotary import Rotary
from clockhands.recognition.diagnosis._cosines import Cosines, allowed, cosines_of, of_table
from clockhands.recognition.diagnosis._rates import (
    ROUNDED,
    Verdict,
    fits,
    judged,
    left,
    reference_of,
    reference_of_rates,
    slack_of,
)

SLOPES = 2.0**-20
"""Relative error bound of a slope: a power of two, computed by ``pow`` in float32."""
_RIGHT = Verdict(None, {})
_STEEPEST = 1e3  # above the slopes of all known biases
_FURTHEST = 1e5  # a number this many times larger than the largest correct one is not of a table


@dataclass(frozen=True, eq=False)
class Computed:
    """An array, the numbers that the code computes in its place, and the diagnosis.

    Attributes:
        what: The content: ``"rates"``, ``"slopes"``, ``"cosines and sines"`` or ``"rows"``.
        held: The numbers of the array, [pairs or heads] or [rows, channels], without axes of size 1.
        made: The numbers that the code computes; their width differs if the array belongs to a code of another width.
        allowed: The error bound of float32 arithmetic and one rounding to the array's type.
        pair: The dimension pair of each channel.
        verdict: The diagnosis.
    """

    what: str
    held: np.ndarray
    made: np.ndarray
    allowed: np.ndarray
    pair: np.ndarray
    verdict: Verdict = _RIGHT


def of_array(array: np.ndarray, spec: Any, kind: str, name: str = "", dtype: str = "float32") -> Computed | None:
    """Compare an array with the one that a code computes in its place.

    Args:
        array: The stored array.
        spec: A rotary code, an additive code or a bias.
        kind: ``"rates"``, ``"slopes"`` or ``"table"``, according to the array's name.
        name: Its name, which distinguishes a table of cosines from one of sines.
        dtype: The type in which it is stored.

    Returns:
        The comparison; None if the code computes nothing of that kind.

    >>> of_array(np.zeros((16, 4)), Sinusoidal(4), "table").verdict.code
    'buffer-zero'
    """
    with np.errstate(all="ignore"):
        if kind == "table":
            rotary = isinstance(spec, Rotary)
            return _of_cosines_and_sines(array, spec, name, dtype) if rotary else _rows(array, spec, dtype)
        one_each = np.array(getattr(spec if kind == "slopes" else getattr(spec, "ladder", spec), kind, ()))
        if not one_each.size:
            return None
        held = array.reshape(-1)
        if kind == "slopes":
            return Computed(
                kind, held, one_each, SLOPES * one_each, np.arange(len(one_each)), of_slopes(held, spec, dtype)
            )
        reference = reference_of(spec, reach=spec.length) if isinstance(spec, Rotary) else reference_of_rates(one_each)
        bound, verdict = reference.slack * one_each, judged(held, dtype, reference, None)
        return Computed(kind, held, one_each, bound, np.arange(len(one_each)), verdict)


# Tables


def _of_cosines_and_sines(array: np.ndarray, spec: Rotary, name: str, dtype: str) -> Computed | None:
    """Diagnose the cosines and sines of a rotary code."""
    rates = np.array(spec.rates)
    waves = None if spec.axes is not None else cosines_of(array, name, dtype, len(rates))
    if waves is None:
        return None
    # With one number per channel, both channels of a pair have the pair's number.
    doubled = array.ndim > 1 and array.shape[-1] == 2 * len(rates) and len(waves.parts) == 1
    pair = np.arange(len(rates))
    if doubled:
        halves = spec.layout == "halves" or spec.reordered
        pair = np.tile(pair, 2) if halves else np.repeat(pair, 2)
    phases = waves.positions[:, None] * rates[pair]
    reference, factor = reference_of(spec, reach=len(phases)), spec.attention_factor
    exact = {"cosine": factor * np.cos(phases), "sine": factor * np.sin(phases)}
    if len(waves.parts) == 2:
        held, made = waves.cos + 1j * waves.sin, exact["cosine"] + 1j * exact["sine"]  # type: ignore[operator]
    else:
        held, made = array.reshape(phases.shape), exact[waves.parts[0][0]]
    bound = allowed(phases, factor, reference.slack, dtype)
    found = Computed("cosines and sines", held, made, bound, pair)
    return _judged(found, lambda: of_table(waves, reference, factor, rates))


def _rows(array: np.ndarray, spec: Any, dtype: str) -> Computed | None:
    """Diagnose rows of an additive code; None for codes of several axes, whose row positions are unknown."""
    if not isinstance(spec, AdditiveCode) or spec.learned or spec.number_of_axes > 1:
        return None
    if array.ndim < 2 or sum(size != 1 for size in array.shape[:-1]) > 1:
        return None
    held, ladder = array.reshape(-1, array.shape[-1]), getattr(spec, "ladder", None)
    made = table(spec, len(held), "float64")
    pair, rates = np.arange(spec.width), np.zeros(spec.width)
    if ladder is not None and ladder.pairs < spec.width:
        width = min(spec.width, 2 * ladder.pairs)
        for channel in pair_channels(ladder.pairs, getattr(spec, "layout", "interleaved")).T:
            inside = channel < width
            pair[channel[inside]] = np.arange(ladder.pairs)[inside]
            rates[channel[inside]] = np.array(ladder.rates)[inside]
    slack = slack_of(ladder.rates, None) if ladder is not None else 0.0
    phases = np.arange(len(held))[:, None] * rates
    bound = np.maximum(np.abs(made), 1) * allowed(phases, 1.0, slack, dtype)
    waves = _waves_of(spec, held, dtype)
    found = Computed("rows", held, made, bound, pair)
    return _judged(found, None if waves is None else lambda: _of_sinusoids(spec, waves))


def _waves_of(spec: AdditiveCode, held: np.ndarray, dtype: str) -> Cosines | None:
    """The cosines and sines of a sinusoidal table; None for codes that also have other numbers."""
    if not isinstance(spec, Sinusoidal) or spec.order not in ("sin-cos", "cos-sin") or held.shape[1] != spec.width:
        return None
    if (spec.odd, spec.scaled, spec.standardised) != ("refuse", False, None):
        return None
    first, second = (held[:, channels] for channels in pair_channels(spec.width // 2, spec.layout).T)
    cos, sin = (second, first) if spec.order == "sin-cos" else (first, second)
    kept = np.setdiff1d(np.arange(len(held)), spec.zero_rows)
    return Cosines(kept.astype(np.float64), cos[kept], sin[kept], dtype)


def _of_sinusoids(spec: Any, waves: Cosines) -> Verdict:
    verdict = of_table(waves, reference_of(Rotary(spec.width, spacing=spec.spacing)), spec.scale)  # its rates
    # No factor on cosines is known of a table that is added.
    return replace(verdict, code="buffer-differs") if verdict.code == "attention-factor-differs" else verdict


def _judged(found: Computed, why: Callable[[], Verdict] | None) -> Computed:
    """Compare a table number by number; ``why`` diagnoses cosines and sines that differ."""
    held, made = found.held, found.made
    if held.shape != made.shape:
        width = {"pairs": held.shape[1], "declared pairs": made.shape[1]}
        return replace(found, verdict=Verdict("buffer-of-another-width", width))
    if _within(held, made, found.allowed):
        return found
    verdict = _unlike(held, made, found.allowed) if why is None else why()
    if verdict.code is None:  # the numbers that were looked at are right, and others are not
        verdict = Verdict("buffer-differs", _furthest(held, made, found.pair))
    return replace(found, verdict=verdict)


def _within(held: np.ndarray, made: np.ndarray, bound: np.ndarray) -> bool:
    off = held - made
    return bool((np.maximum(np.abs(np.real(off)), np.abs(np.imag(off))) <= bound).all())


def _unlike(held: np.ndarray, made: np.ndarray, bound: np.ndarray) -> Verdict:
    """Diagnose numbers that are not sinusoids: uninitialised memory, zeros, or the correct ones rounded."""
    bad = ~np.isfinite(held).all(axis=1) | (np.abs(held) > _FURTHEST * max(1.0, float(np.abs(made).max()))).any(axis=1)
    if bad.any():
        return Verdict("buffer-uninitialised", {"wrong": int(bad.sum()), "pairs": len(held), "of": "rows"})
    if not held.any():
        return Verdict("buffer-zero", {"pairs": held.shape[1]})
    for dtype, unit in ROUNDED.items():
        as_held = np.array_equal(rounded(held, dtype), held)
        if as_held and _within(held, made, bound + unit * np.maximum(np.abs(made), 1)):
            words = f"one whose numbers were rounded to {dtype}"
            return Verdict("buffer-rounded", {"rounded to": dtype, "of": "numbers", "behaves as": words})
    return _RIGHT


def _furthest(held: np.ndarray, made: np.ndarray, pair: np.ndarray) -> dict[str, Any]:
    row, channel = (int(at) for at in np.unravel_index(int(np.abs(held - made).argmax()), held.shape))
    numbers = {"stored": float(np.real(held[row, channel])), "declared": float(np.real(made[row, channel]))}
    return {"pair": int(pair[channel]), "position": row, "wave": "number", **numbers}


# Slopes


def of_slopes(slopes: np.ndarray, spec: BiasCode | None, dtype: str = "float32") -> Verdict:
    """Diagnose the slopes of a linear bias by comparison with those of a code.

    Args:
        slopes: The stored slopes, float64 [heads], positive.
        spec: The declared code, which has slopes; None if none is declared for this number of heads.
        dtype: The type in which they are stored.

    Returns:
        A verdict with one of the codes ``buffer-uninitialised``, ``-zero``, ``-rounded``, ``-of-another-width`` or
        ``slopes-differ``; None where they are right.

    >>> of_slopes(np.array([2.0**-6, 2.0**-3, 2.0**-2]), Alibi(3)).code
    'slopes-differ'
    """
    bad = ~np.isfinite(slopes) | (np.abs(slopes) > _STEEPEST)
    if bad.any():
        return Verdict("buffer-uninitialised", {"wrong": int(bad.sum()), "pairs": len(slopes), "of": "heads"})
    if len(slopes) and not slopes.any():
        return Verdict("buffer-zero", {"pairs": len(slopes)})
    if spec is None:
        return _RIGHT
    right = np.array(spec.slopes)  # type: ignore[attr-defined]
    if len(slopes) != len(right):
        return Verdict("buffer-of-another-width", {"pairs": len(slopes), "declared pairs": len(right)})
    how = fits(slopes, right, SLOPES, dtype)
    if how == "exact":
        return Verdict(None, {}, left=left(slopes, right))
    head = int(np.argmax(np.abs(slopes - right) / right))
    seen = {"head": head, "stored": float(slopes[head]), "declared": float(right[head])}
    if how is not None:
        return Verdict("buffer-rounded", {**seen, "rounded to": how}, left=left(slopes, right))
    explained = float(np.mean(np.abs(slopes - right) <= SLOPES * right))
    return Verdict("slopes-differ", seen | _other_slopes(slopes, right, dtype), explained, left(slopes, right))


def _other_slopes(slopes: np.ndarray, right: np.ndarray, dtype: str) -> dict[str, str]:
    """The rule that gives these slopes, if it is a known wrong one."""
    heads = len(slopes)
    rules = {
        "one geometric series through all heads": np.array(Alibi(heads, series="plain").slopes),
        "a series that begins at 1": np.array([2.0 ** (-8 * head / heads) for head in range(heads)]),
        "the declared ones in another order of heads": np.sort(right)[::-1],
    }
    for name, rule in rules.items():
        seen = np.sort(slopes)[::-1] if name.startswith("the declared") else slopes
        if fits(seen, rule, SLOPES, dtype) is not None:
            return {"it is": name}
    return {}
