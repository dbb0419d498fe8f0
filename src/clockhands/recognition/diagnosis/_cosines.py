"""Diagnosis of tables of cosines and sines (stored in a module or returned by it) against those of a config.

The reference is computed in float64: below position 2**20 a phase at one radian per token is within 2**-33 of the exact
one, a thousandth of the float32 error. The error bound of float32 is derived in `allowed`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import SMALLEST, UNIT_ROUNDOFF, rounded
from clockhands.recognition.diagnosis._rates import ROUNDED, Reference, Verdict, ways

# Where phases are rounded, one near a midpoint may be rounded in the other direction; these are few.
_MOSTLY = 0.98
_MOST_ROWS = 4096


@dataclass(frozen=True)
class Cosines:
    """Cosines and sines of some positions, float64 [positions, pairs].

    Attributes:
        positions: The positions, in tokens.
        cos: The cosines, times the attention factor; None for a table of sines only.
        sin: The sines, likewise; None for a table of cosines only.
        dtype: The type that they were rounded to.
    """

    positions: np.ndarray
    cos: np.ndarray | None
    sin: np.ndarray | None
    dtype: str = "float32"

    @property
    def parts(self) -> tuple[tuple[str, np.ndarray], ...]:
        """The parts that are present, by name."""
        both = (("cosine", self.cos), ("sine", self.sin))
        return tuple((name, part) for name, part in both if part is not None)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.parts[0][1].shape[1]


def cosines_of(array: np.ndarray, name: str, dtype: str, pairs: int) -> Cosines | None:
    """Read an array as a table of cosines and sines, by its name and the number of pairs; None if it is not one.

    Rows are positions. Supported are complex numbers; cosines and sines concatenated (vLLM's ``cos_sin_cache``; sines
    first in GPT-J's ``embed_positions``) or in a last axis of size 2; and only one of them, per pair or per channel.
    """
    if array.ndim > 2:
        array = array.reshape([size for place, size in enumerate(array.shape) if size != 1 or place >= array.ndim - 1])
    if np.iscomplexobj(array):
        return _table(np.real(array), np.imag(array), dtype) if array.ndim == 2 and array.shape[1] == pairs else None
    if array.ndim == 3 and array.shape[1:] == (pairs, 2):
        return _table(array[..., 0], array[..., 1], dtype)
    if array.ndim != 2:
        return None
    width = array.shape[1]
    if "cos_sin" in name and width == 2 * pairs:
        return _table(array[:, :pairs], array[:, pairs:], dtype)
    if name == "embed_positions" and width == 2 * pairs:
        return _table(array[:, pairs:], array[:, :pairs], dtype)
    one = array if width == pairs else one_of_each(array, pairs) if width == 2 * pairs else None
    if one is None or ("sin" in name) == ("cos" in name):
        return None
    return _table(None, one, dtype) if "sin" in name else _table(one, None, dtype)


def one_of_each(doubled: np.ndarray, pairs: int) -> np.ndarray:
    """One number per pair from one per channel, for half-split or interleaved repetition."""
    neighbours = doubled[..., ::2]
    return neighbours if np.array_equal(neighbours, doubled[..., 1::2], equal_nan=True) else doubled[..., :pairs]


def _table(cos: np.ndarray | None, sin: np.ndarray | None, dtype: str) -> Cosines:
    rows = len(cos if cos is not None else sin if sin is not None else ())
    return Cosines(np.arange(rows, dtype=np.float64), cos, sin, dtype)


def _sampled(table: Cosines) -> Cosines:
    """Some rows of a long table: the first ones, for the frequencies, and others spread over the rest up to the end."""
    rows = len(table.positions)
    if rows <= _MOST_ROWS:
        return table
    kept = np.unique(np.concatenate([np.arange(1024), np.linspace(0, rows - 1, _MOST_ROWS - 1024).astype(int)]))
    cos, sin = (None if part is None else part[kept] for part in (table.cos, table.sin))
    return Cosines(table.positions[kept], cos, sin, table.dtype)


def of_table(table: Cosines, reference: Reference, factor: float = 1.0, rates: np.ndarray | None = None) -> Verdict:
    """Diagnose cosines and sines by comparison with those of a code's frequencies.

    Args:
        table: The stored or computed table.
        reference: The correct frequencies.
        factor: The correct attention factor.
        rates: One of the ladders of the reference; the first by default.

    Returns:
        A verdict with a code of `of_rates`, or ``attention-factor-differs``; None where they are
        right.

    >>> import clockhands as ch
    >>> from clockhands.recognition.diagnosis import reference_of
    >>> turns = np.arange(2048.0)[:, None] * np.array(ch.Rotary(64, base=500_000).rates)
    >>> of_table(Cosines(np.arange(2048.0), np.cos(turns), np.sin(turns)), reference_of(ch.Rotary(64))).code
    'buffer-of-another-base'
    """
    rates, table = reference.rates if rates is None else rates, _sampled(table)
    with np.errstate(all="ignore"):
        wrong = _no_cosines(table, rates, factor)
        if wrong is not None:
            return wrong
        phases = table.positions[:, None] * rates
        if _is(table, phases, factor, reference.slack):
            return Verdict(None, {})
        evidence = _worst(table, phases, factor)
        held_in = next((dtype for dtype in ROUNDED if all(_is_in(dtype, part) for _, part in table.parts)), table.dtype)
        if held_in != table.dtype:
            table = replace(table, dtype=held_in)
            if _is(table, phases, factor, reference.slack):
                return Verdict("buffer-rounded", evidence | _rounding("numbers", held_in))
            evidence["rounded to"] = held_in
        for code, other, times, more, mostly in _ways(table, rates, factor, reference):
            if _is(table, other, times, reference.slack, mostly=mostly):
                return Verdict(code, evidence | more)
        return _by_rates(table, reference, factor, evidence) or Verdict("buffer-differs", evidence)


def allowed(phases: np.ndarray, factor: float, slack: float, dtype: str) -> np.ndarray:
    """The error bound of correct float32 arithmetic.

    Frequencies have a relative error of ``slack``, products are rounded in float32, cosine and sine are within two
    units in the last place, the product with the factor is rounded, and the result is rounded to its type.
    """
    return factor * (np.abs(phases) * (slack + 2.0**-24) + 2.0**-22 + UNIT_ROUNDOFF.get(dtype, 2.0**-24))


def _is(table: Cosines, phases: np.ndarray, factor: float, slack: float, *, mostly: bool = False) -> bool:
    bound = allowed(phases, factor, slack, table.dtype)
    exact = {"cosine": np.cos(phases), "sine": np.sin(phases)}
    shares = [np.mean(np.abs(part - factor * exact[name]) <= bound) for name, part in table.parts]
    return bool(min(shares) >= (_MOSTLY if mostly else 1.0))


def _no_cosines(table: Cosines, rates: np.ndarray, factor: float) -> Verdict | None:
    """Diagnose numbers that cannot be cosines or sines."""
    count = len(table.positions)
    bad = np.zeros(count, bool)
    for _, part in table.parts:
        bad |= ~np.isfinite(part).all(axis=1) | (np.abs(np.nan_to_num(part)) > 4 * factor).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        name, part = table.parts[0]
        pair = int(np.argmax(np.where(np.isfinite(part[row]), np.abs(part[row]), np.inf)))
        phase = table.positions[row] * rates[pair]
        exact = factor * float(np.cos(phase) if name == "cosine" else np.sin(phase))
        evidence = {"pair": pair, "position": int(table.positions[row]), "wave": name, "declared": exact}
        wrong = {"stored": float(part[row, pair]), "wrong": int(bad.sum()), "pairs": count, "of": "rows"}
        return Verdict("buffer-uninitialised", evidence | wrong)
    if not any(part.any() for _, part in table.parts):
        return Verdict("buffer-zero", {"pairs": table.pairs}) if table.cos is not None else None
    return None


def _worst(table: Cosines, phases: np.ndarray, factor: float) -> dict[str, Any]:
    """The number with the largest error."""
    exact = {"cosine": np.cos(phases), "sine": np.sin(phases)}
    name, part = max(table.parts, key=lambda each: float(np.abs(each[1] - factor * exact[each[0]]).max()))
    off = np.abs(part - factor * exact[name])
    row, pair = (int(at) for at in np.unravel_index(int(off.argmax()), off.shape))
    return {
        "pair": pair,
        "position": int(table.positions[row]),
        "wave": name,
        "stored": float(part[row, pair]),
        "declared": factor * float(exact[name][row, pair]),
        "error": float(off[row, pair]),
    }


def _ways(
    table: Cosines, rates: np.ndarray, factor: float, reference: Reference
) -> Iterator[tuple[str, np.ndarray, float, dict[str, Any], bool]]:
    """Known errors: finding, phases, factor, evidence, and whether a few numbers may differ."""
    at = table.positions[:, None]
    plain = reference.plain
    if plain is not None and len(plain) == len(rates):
        told = {"effective factor": 1.0, "declared factor": reference.factor, "base": reference.base}
        words = "one with frequencies without the declared scaling"
        known = {name: value for name, value in told.items() if value is not None} | {"behaves as": words}
        yield "buffer-unscaled", at * plain, 1.0, known, False
        yield "buffer-unscaled", at * plain, factor, known, False
    for dtype in ROUNDED:
        places, low = rounded(at, dtype), rounded(rates, dtype)
        each = {
            "positions": places * rates,
            "frequencies": at * low,
            "angles": rounded(at * rates, dtype),
            "positions and frequencies": places * low,
            "positions, frequencies and angles": rounded(places * low, dtype),
            "frequencies and angles": rounded(at * low, dtype),
        }
        for of, phases in each.items():
            wrong = np.flatnonzero((np.abs(phases - at * rates) > 0.01).any(axis=1))
            since = f" (first wrong at position {int(table.positions[wrong[0]]):,})" if len(wrong) else ""
            yield "buffer-rounded", phases, factor, _rounding(of, dtype, since), True
    for step in (1, -1):
        words = f"one that takes each position for the one {'after' if step > 0 else 'before'} it"
        yield "buffer-differs", (at + step) * rates, factor, {"behaves as": words}, False
    yield "buffer-differs", -at * rates, factor, {"behaves as": "one that rotates backward"}, False
    yield "buffer-differs", 0 * at * rates, factor, {"behaves as": "one that rotates nothing"}, False
    cos = table.cos
    if cos is not None and table.positions[0] == 0 and cos[0, 0] > 0:
        kept = float(cos[0, 0])
        words = f"the declared one times {kept / factor:.6g}"
        more = {"behaves as": words, "factor": kept, "declared factor on cosines": factor}
        yield "attention-factor-differs", at * rates, kept, more, False


def _rounding(of: str, dtype: str, since: str = "") -> dict[str, Any]:
    return {"rounded to": dtype, "of": of, "behaves as": f"one whose {of} were rounded to {dtype}{since}"}


def _is_in(dtype: str, numbers: np.ndarray) -> bool:
    return np.array_equal(rounded(numbers, dtype), numbers)


def _by_rates(table: Cosines, reference: Reference, factor: float, evidence: dict[str, Any]) -> Verdict | None:
    """Diagnose the frequencies measured from the first rows, if cosine and sine are both there."""
    measured = measured_rates(table)
    if measured is None:
        return None
    numbers, bound = measured
    assert table.cos is not None
    kept = float(table.cos[0, 0])
    known = np.isfinite(bound)
    slack = max(reference.slack, float((bound[known] / numbers[known]).max()))
    for code, made, more in ways(numbers, "float32", replace(reference, slack=slack)):
        for dtype in (None, *ROUNDED):
            ladder = made if dtype is None else rounded(made, dtype)
            if len(ladder) != len(numbers) or (np.abs(ladder - numbers) > bound + 2 * reference.slack * ladder).any():
                continue
            phases = table.positions[:, None] * ladder
            if not any(_is(table, phases, each, reference.slack, mostly=dtype is not None) for each in (factor, kept)):
                continue
            words = str(_NAMED.get(code, more.get("it is") or "")).format(**more)
            held_in = {} if dtype is None else {"rounded to": dtype}
            return Verdict(code, more | evidence | held_in | ({"behaves as": words} if words else {}))
    return None


_NAMED = {
    "buffer-unscaled": "one with frequencies without the declared scaling",
    "buffer-of-another-base": "one with frequencies of base {base in effect:,.6g}",
    "buffer-scaled-twice": "one with frequencies scaled twice",
    "buffer-of-another-factor": "one with frequencies scaled by {effective factor:.6g}",
}


def measured_rates(table: Cosines) -> tuple[np.ndarray, np.ndarray] | None:
    """The frequencies of the first rows and their error bounds; None for fewer than nine rows, or without cos or sin.

    If cosine and sine are each off by a unit in the last place, the angle is off by at most ``u |sin 2x|``, so a low
    frequency is known as well as a high one. A pair with too few digits is extrapolated from the others.
    """
    at = table.positions
    together = int(np.argmax(np.diff(at) != 1)) if (np.diff(at) != 1).any() else len(at) - 1
    if table.cos is None or table.sin is None or at[0] != 0 or together < 8:
        return None
    angles = np.unwrap(np.arctan2(table.sin[: together + 1], table.cos[: together + 1]), axis=0)
    turned = angles[-1] - angles[0]
    unit = 2 * max(UNIT_ROUNDOFF.get(table.dtype, 2.0**-24), 2.0**-22)
    bound = (unit * np.minimum(np.abs(turned), 1) + SMALLEST.get(table.dtype, 0.0)) / at[together]
    rates, pairs = turned / at[together], np.arange(len(turned))
    seen = rates > 8 * bound
    if np.count_nonzero(seen) < 2:
        return None
    line = np.polyfit(pairs[seen], np.log(rates[seen]), 1)
    return np.where(seen, rates, np.exp(np.polyval(line, pairs))), np.where(seen, bound, np.inf)
