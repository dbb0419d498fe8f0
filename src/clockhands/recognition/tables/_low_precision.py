"""Recognition of tables computed in bfloat16 or float16: their arithmetic is repeated and compared.

In a table of sines and cosines from position 0 on, row 0 (zeros and ones) shows the layout and row 1 the rates. From
these two rows, the arithmetic of a dtype gives all others: positions, rates and phases, or some of them, are rounded
to it. If this gives the table and arithmetic without rounding does not, the table was computed in this dtype. No known
rates are needed for this. The intended code is the published one with rates within one unit in the last place of the
dtype.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.encodings.layouts import pair_channels
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.phrases import listed
from clockhands.recognition._given import LOW_PRECISION
from clockhands.recognition._matches import Match, Matches, Residual
from clockhands.recognition._preset_names import KNOWN, alike, of_kind

PARTS = ("positions", "rates", "phases")

_STORED = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-12, "bfloat16": 2.0**-9}
_UNITS_AROUND = 8  # the rates of a low-precision table are searched this many units in the last place around row 1
_LEAST_ROWS = 64  # fewer rows do not show how phases were rounded
_SAMPLE = 256  # the most rows that are compared to find what was rounded
_MOST = 0.99  # the least share of numbers that must agree; an error in a rate's last bit may round a phase differently
_OTHERS = 0.9  # if more than this share agrees without rounding, the table was not computed in low precision


@dataclass(frozen=True)
class LowPrecision:
    """How a low-precision table was computed.

    Attributes:
        dtype: ``bfloat16`` or ``float16``.
        rounded: Those of ``positions``, ``rates`` and ``phases`` that were rounded to it.
        spec: The intended code, or None if it is not a known one.
        name: The name of the preset that is this code, or None.
    """

    dtype: str
    rounded: tuple[str, ...]
    spec: Sinusoidal | None = None
    name: str | None = None


@dataclass(frozen=True)
class _Sample:
    """Some rows of a table: positions [rows], sines and cosines [rows, pairs], and the rounding error of storage."""

    at: np.ndarray
    sines: np.ndarray
    cosines: np.ndarray
    stored: float

    def agrees(self, rates: np.ndarray, dtype: str = "", rounded: tuple[str, ...] = ()) -> float:
        """The share of pairs that agree with arithmetic in which these parts are rounded to a dtype, from 0 to 1."""
        return float(self.agreeing(rates, dtype, rounded).mean())

    def agreeing(self, rates: np.ndarray, dtype: str, rounded: tuple[str, ...]) -> np.ndarray:
        """Which pairs agree with that arithmetic, bool [rows, pairs]."""
        positions = _rounded(self.at, dtype) if "positions" in rounded else self.at
        rates = _rounded(rates, dtype) if "rates" in rounded else rates
        phases = (positions[:, None].astype(np.float32) * rates.astype(np.float32)).astype(np.float64)
        if "phases" in rounded:
            phases = _rounded(phases, dtype)
        # Error bound of phases in float32, with rates that are known to one ulp of float32.
        allowed = 2.0**-21 + self.stored + np.abs(phases) * 2.0**-22
        with np.errstate(invalid="ignore"):
            off = np.maximum(np.abs(np.sin(phases) - self.sines), np.abs(np.cos(phases) - self.cosines))
        return off <= allowed

    def nearest(self, rates: np.ndarray, dtype: str) -> np.ndarray:
        """For each rate the number of the dtype within 8 units with which most of the sample agrees, [pairs]."""
        held = _rounded(rates, dtype)
        best, shares = held.copy(), np.full(len(held), -1.0)
        for steps in range(-_UNITS_AROUND, _UNITS_AROUND + 1):
            tried = _rounded(held * (1 + 2 * steps * UNIT_ROUNDOFF[dtype]), dtype)
            share = self.agreeing(tried, dtype, PARTS).mean(axis=0)
            better = share > shares
            best, shares = np.where(better, tried, best), np.where(better, share, shares)
        return best


def low_precision(array: np.ndarray) -> LowPrecision | None:
    """How a table [rows, width] of floats was computed, if it is a low-precision one from position 0 on; else None."""
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
    # Row 1 shows the rates. If it is stored in low precision, published rates are tried first, then numbers of its
    # dtype near the rates of row 1.
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
    """Whether all rates are numbers of a dtype, and at least 4 are not powers of two, which every dtype holds."""
    held = _rounded(rates, dtype)
    kept = np.abs(held - rates) <= 2.0**-21 * rates
    return bool(kept.all()) and int((np.frexp(held)[0] != 0.5).sum()) >= 4


def _choices(at: np.ndarray, rates: np.ndarray, dtype: str, measured: bool) -> Iterator[tuple[str, ...]]:
    """The sets of parts that may have been rounded, without those whose rounding would have no effect."""
    positions = (_rounded(at, dtype) != at).any()
    few = _few_bits(rates, dtype)
    for chosen in product((False, True), repeat=3):
        parts = tuple(part for part, one in zip(PARTS, chosen, strict=True) if one)
        if not parts or ("positions" in parts and not positions):
            continue
        # Measured rates show whether they were rounded: they are then numbers of the dtype.
        if not measured or ("rates" in parts) == few:
            yield parts


def _rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(output_dtype(dtype)).astype(np.float64)


def _as_it_is(spec: Sinusoidal) -> bool:
    """Whether a preset is sines and cosines only: without scale, standardisation or zero rows."""
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
            continue  # a list of rates for another width
        if made not in seen:
            seen.add(made)
            yield made


def _meant(rates: np.ndarray, dtype: str, named: list[Sinusoidal]) -> Sinusoidal | None:
    """The published code with these rates up to the rounding of the dtype, or None.

    A rate may be off by one unit in the last place of the dtype, or by 8 units if it is the exponential of a rounded
    argument of up to ln 10,000.
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
    """The match of a table [rows, width] that was computed in low precision with a published code; else None.

    `Match.residual` is the difference from that code due to rounding, and `Match.evidence` says what was rounded.
    """
    made = low_precision(array)
    if made is None or made.spec is None:
        return None
    spec = made.spec
    residual = Residual.between(array, spec)
    match = Match(
        spec,
        range(len(array)),
        error=residual.largest,
        name=made.name,
        computed_in=made.dtype,
        residual=residual,
        evidence=(("rounded", list(made.rounded)),),
    )
    return Matches(
        [match],
        f"It is {describe(spec)}, made in {made.dtype}: its {listed(made.rounded)} are rounded, which puts it off"
        f" by up to {residual.largest:.2g}, furthest in row {residual.rows[0]}.",
    )
