"""Tables that were made in bfloat16 or float16: their own arithmetic repeated, and compared on every row.

A table of sines and cosines from position 0 on says its layout in row 0 (zeros and ones) and its rates in row 1. From
these two rows the arithmetic of a dtype makes all others: positions, rates and phases rounded to it, or some of them.
Where that gives the table, and numbers without rounding do not, the table was made so. No rate has to be known for
that; which code was meant is the published one whose rates lie within a unit of the dtype's last place.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from clockhands.additive import Sinusoidal, table
from clockhands.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.errors import ClockhandsError
from clockhands.layouts import pair_channels
from clockhands.recognition._given import LOW_PRECISION
from clockhands.recognition._matches import Match, Matches, Residual
from clockhands.recognition._preset_names import KNOWN, alike, of_kind
from clockhands.specs import describe

PARTS = ("positions", "rates", "phases")

_STORED = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-12, "bfloat16": 2.0**-9}
_UNITS_AROUND = 8  # units of the last place in which the rate of a table of few bits is looked for
_LEAST_ROWS = 64  # fewer do not show how phases were rounded
_SAMPLE = 256  # rows that are compared to find out how
_MOST = 0.99  # numbers that must agree: a rate that is not known to its last bit may round a phase the other way
_OTHERS = 0.9  # and that agree without rounding where there is none
_BLOCK = 2**20


@dataclass(frozen=True)
class LowPrecision:
    """How a table was made.

    Attributes:
        dtype: ``bfloat16`` or ``float16``.
        rounded: What was rounded to it: of ``positions``, ``rates`` and ``phases``.
        spec: The code that was meant, or None where it is none that is known.
        name: The preset that it is.
    """

    dtype: str
    rounded: tuple[str, ...]
    spec: Sinusoidal | None = None
    name: str | None = None


@dataclass(frozen=True)
class _Sample:
    """Some rows of a table: where they stand, their sines and cosines, and what storing them has cost."""

    at: np.ndarray
    sines: np.ndarray
    cosines: np.ndarray
    stored: float

    def agrees(self, rates: np.ndarray, dtype: str = "", rounded: tuple[str, ...] = ()) -> float:
        """The share of numbers that arithmetic gives in which some parts are rounded to a dtype."""
        return float(self.agreeing(rates, dtype, rounded).mean())

    def agreeing(self, rates: np.ndarray, dtype: str, rounded: tuple[str, ...]) -> np.ndarray:
        """Which pairs of which rows that arithmetic gives."""
        positions = _rounded(self.at, dtype) if "positions" in rounded else self.at
        rates = _rounded(rates, dtype) if "rates" in rounded else rates
        phases = (positions[:, None].astype(np.float32) * rates.astype(np.float32)).astype(np.float64)
        if "phases" in rounded:
            phases = _rounded(phases, dtype)
        # Phases in float32, of rates that are known to an ulp of float32.
        allowed = 2.0**-21 + self.stored + np.abs(phases) * 2.0**-22
        with np.errstate(invalid="ignore"):
            off = np.maximum(np.abs(np.sin(phases) - self.sines), np.abs(np.cos(phases) - self.cosines))
        return off <= allowed

    def nearest(self, rates: np.ndarray, dtype: str) -> np.ndarray:
        """The numbers of the dtype, a few units around some rates, that make most of the sample in its arithmetic."""
        held = _rounded(rates, dtype)
        parts = ("positions", "rates", "phases")
        best, shares = held.copy(), np.full(len(held), -1.0)
        for steps in range(-_UNITS_AROUND, _UNITS_AROUND + 1):
            tried = _rounded(held * (1 + 2 * steps * UNIT_ROUNDOFF[dtype]), dtype)
            share = self.agreeing(tried, dtype, parts).mean(axis=0)
            better = share > shares
            best, shares = np.where(better, tried, best), np.where(better, share, shares)
        return best


def low_precision(array: np.ndarray) -> LowPrecision | None:
    """How a table [rows, width] of floats was made, if in low precision from position 0 on; else None."""
    stored = array.dtype.name
    if array.ndim != 2 or len(array) < _LEAST_ROWS or array.shape[1] % 2 or array.shape[1] < 8 or stored not in _STORED:
        return None
    head = np.asarray(array[:2]).astype(np.float64)
    for layout, order in product(("interleaved", "halves"), ("sin-cos", "cos-sin")):
        first, second = pair_channels(array.shape[1] // 2, layout).T
        sine, cosine = (first, second) if order == "sin-cos" else (second, first)
        if np.isfinite(head).all() and not head[0, sine].any() and (head[0, cosine] == 1).all():
            return _made(array, stored, Sinusoidal(array.shape[1], layout=layout, order=order), sine, cosine)
    return None


def _made(
    array: np.ndarray, stored: str, spec: Sinusoidal, sine: np.ndarray, cosine: np.ndarray
) -> LowPrecision | None:
    chosen = np.unique(np.linspace(0, len(array) - 1, min(len(array), _SAMPLE)).astype(np.int64))
    rows = np.asarray(array[chosen]).astype(np.float64)
    stored = next((dtype for dtype in LOW_PRECISION if np.array_equal(_rounded(rows, dtype), rows)), stored)
    sample = _Sample(chosen.astype(np.float64), rows[:, sine], rows[:, cosine], _STORED[stored])
    second = np.asarray(array[1]).astype(np.float64)
    seen = np.arctan2(second[sine], second[cosine])
    if (seen <= 0).any():
        return None
    named = list(_published(spec))
    # Row 1 says the rates; where it holds few bits of them, published ones are tried first, then numbers of its dtype.
    ladders = [(np.array(known.rates), False) for known in named]
    if stored in LOW_PRECISION:
        ladders.append((sample.nearest(seen, stored), True))
    else:
        ladders.insert(0, (seen, True))
    for rates, measured in ladders:
        few = measured and any(_few_bits(rates, dtype) for dtype in LOW_PRECISION)
        if not few and sample.agrees(rates) > _OTHERS:
            return None
    for (rates, measured), dtype in product(ladders, LOW_PRECISION):
        choices = _choices(sample.at, rates, dtype, measured)
        shares = {rounded: sample.agrees(rates, dtype, rounded) for rounded in choices}
        rounded = max(shares, key=lambda parts: (shares[parts], -len(parts)), default=None)
        if rounded is not None and shares[rounded] >= _MOST:
            meant = _meant(rates, dtype, named)
            name = next((name for name, own in alike(meant) if _as_it_is(own)), None) if meant is not None else None
            return LowPrecision(dtype, rounded, meant, name)
    return None


def _few_bits(rates: np.ndarray, dtype: str) -> bool:
    """Whether rates are numbers of a dtype, and not only powers of two, which are numbers of any."""
    held = _rounded(rates, dtype)
    kept = np.abs(held - rates) <= 2.0**-21 * rates
    return bool(kept.all()) and int((np.frexp(held)[0] != 0.5).sum()) >= 4


def _choices(at: np.ndarray, rates: np.ndarray, dtype: str, measured: bool) -> Iterator[tuple[str, ...]]:
    """What may have been rounded: what shows."""
    positions = (_rounded(at, dtype) != at).any()
    few = _few_bits(_as_made(rates, dtype), dtype)
    for chosen in product((False, True), repeat=3):
        parts = tuple(part for part, one in zip(PARTS, chosen, strict=True) if one)
        if not parts or ("positions" in parts and not positions):
            continue
        # Rates that were measured to have more bits were not rounded; those that have few were.
        if not measured or ("rates" in parts) == few:
            yield parts


def _as_made(rates: np.ndarray, dtype: str) -> np.ndarray:
    """The rates as numbers of the dtype where they are such to within what was seen of them."""
    held = _rounded(rates, dtype)
    return held if (np.abs(held - rates) <= 2.0**-21 * rates).all() else rates


def _rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(output_dtype(dtype)).astype(np.float64)


def _as_it_is(spec: Sinusoidal) -> bool:
    """Whether a preset is its sines and cosines and nothing else."""
    return not spec.scaled and spec.scale == 1 and spec.standardised is None and not spec.zero_rows


def _published(spec: Sinusoidal) -> Iterator[Sinusoidal]:
    """Published codes of this layout and order, with the width of the table."""
    seen = set()
    for _, own in sorted(of_kind(Sinusoidal), key=lambda each: (each[0] not in KNOWN, each[0])):
        if (own.layout, own.order) != (spec.layout, spec.order) or not _as_it_is(replace(own, zero_rows=())):
            continue
        try:
            made = replace(spec, spacing=own.spacing)
        except ClockhandsError:
            continue  # rates given one by one are for another width
        if made not in seen:
            seen.add(made)
            yield made


def _meant(rates: np.ndarray, dtype: str, named: list[Sinusoidal]) -> Sinusoidal | None:
    """The published code whose rates these are, but for what the dtype has cost.

    That is a unit of its last place; 8 of them where the rate is an exponential of a rounded argument, up to ln 10,000.
    """
    for allowed in (2 * UNIT_ROUNDOFF[dtype], 16 * UNIT_ROUNDOFF[dtype]):
        near = []
        for known in named:
            exact = np.array(known.rates)
            off = np.abs(rates - exact) / np.maximum(exact, 2.0**-14 if dtype == "float16" else 0)
            if off.max() <= allowed:
                near.append((float(np.sqrt((off * off).mean())), len(near), known))
        if near:
            return min(near)[2]
    return None


def identify_low_precision(array: np.ndarray) -> Matches | None:
    """The published code that a table [rows, width] was meant to be, if it was made in low precision; else None.

    `Match.residual` says how far the rounding has put it from that code, and `Match.evidence` what was rounded.
    """
    made = low_precision(array)
    if made is None or made.spec is None:
        return None
    residual = _residual(array, made.spec)
    match = Match(
        made.spec,
        range(len(array)),
        error=residual.largest,
        name=made.name,
        computed_in=made.dtype,
        residual=residual,
        evidence=(("rounded", list(made.rounded)),),
    )
    return Matches(
        [match],
        f"It is {describe(made.spec)}, made in {made.dtype}: its {_listed(made.rounded)} are rounded, which puts it off"
        f" by up to {residual.largest:.2g}, furthest in row {residual.rows[0]}.",
    )


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _residual(array: np.ndarray, spec: Sinusoidal) -> Residual:
    """How far a table is from a code, block by block."""
    step, squares = max(1, _BLOCK // spec.width), 0.0
    rows, channels = np.empty(len(array)), np.zeros(spec.width)
    for begin in range(0, len(array), step):
        block = np.asarray(array[begin : begin + step]).astype(np.float64)
        off = np.abs(block - table(spec, range(begin, begin + len(block)), "float64"))
        rows[begin : begin + step] = off.max(axis=1)
        np.maximum(channels, off.max(axis=0), out=channels)
        squares += float((off * off).sum())
    mean = math.sqrt(squares / (len(array) * spec.width))
    furthest, most = (np.argsort(-each, kind="stable")[:10].tolist() for each in (rows, channels))
    # Sine and cosine of a pair have squares of 1 together: a root mean square of half of that a channel.
    return Residual(float(rows.max()), mean, mean * math.sqrt(2), tuple(furthest), tuple(most))
