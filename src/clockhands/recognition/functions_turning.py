"""What was measured of pairs that turn, the ladders that have it, and what is rounded on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.ladders import Explicit, Joined, Spacing
from clockhands.recognition.decimals import Interval
from clockhands.recognition.fitting import Fit, fit_ladder
from clockhands.recognition.functions_arithmetic import (
    TELLING,
    Arithmetic,
    product_dtypes,
    rates_dtype,
    rounded,
)
from clockhands.recognition.functions_calling import Reader
from clockhands.recognition.functions_pairs import Pairs
from clockhands.recognition.functions_phases import Phases, read_phases, wrapped

RELATIVE = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, eq=False)
class Turning:
    """Everything that was measured of a rotation."""

    reader: Reader
    longest: int
    pairs: Pairs
    phases: Phases
    unit: float
    table: str
    sign: float
    offset: float = 0.0

    @property
    def noise(self) -> float:
        """What one phase may be off by reading it."""
        return 2 * self.unit


def index_of(pairs: Pairs) -> np.ndarray:
    """Which pair of the rotated channels each measured pair is."""
    first = pairs.channels[:, 0] - pairs.start
    if pairs.blocks:
        return np.arange(len(first))
    return first // 2 if pairs.layout == "interleaved" else first


def all_pairs(turning: Turning) -> tuple[np.ndarray, np.ndarray]:
    """Rates and their bounds of all rotated pairs, also of those that stand still, in the order of the pairs."""
    number = turning.pairs.rotated // 2
    rates, bounds = np.zeros(number), np.full(number, turning.noise / turning.longest)
    at = index_of(turning.pairs)
    rates[at], bounds[at] = turning.sign * turning.phases.rates, turning.phases.bounds
    return rates, bounds


def fits_of(turning: Turning, factor: Interval) -> tuple[list[Fit], np.ndarray, str | None]:
    """Ladders with the measured rates, what these are known to, and the dtype they are held in, if it is seen."""
    phases = turning.phases
    rates, bounds = all_pairs(turning)
    held = rates_dtype(phases, None)
    # Rates are powers of the base: in floating point the exponent is off by half a unit, so the power by half its
    # logarithm, and power, division and rounding by three more.
    steps = np.abs(np.log(np.maximum(np.abs(rates), 1e-30))) / 2 + 3
    tries = {"float32": ("float32",), "bfloat16": ("float32", "bfloat16"), "float16": ("float32", "float16")}
    found: list[Fit] = []
    within = bounds
    for dtype in tries.get(held or "", ("float64", "float32")):
        slack = steps * RELATIVE[dtype] * np.abs(rates)
        if held in ("bfloat16", "float16"):  # cast once, from what was computed in float32
            slack = slack + RELATIVE[held] * np.abs(rates) + (2.0**-25 if held == "float16" else 0)
        fits = _fit(turning, rates, bounds + slack, factor)
        if not found or fits[0].cost < found[0].cost:
            found, within = fits, bounds + slack
        # Two rates are on some ladder whatever they were rounded to: there the one with the shorter numbers is taken.
        if not isinstance(fits[0].spacing, Explicit) and (np.abs(rates) > bounds).sum() > 2:
            return fits, bounds + slack, held
    return found, within, held


def _fit(turning: Turning, rates: np.ndarray, bounds: np.ndarray, factor: Interval) -> list[Fit]:
    modulo, blocks = turning.phases.modulo, turning.pairs.blocks
    settings: dict[str, Any] = {
        "attention_factor": factor.middle,
        "attention_uncertainty": (factor.high - factor.low) / 2,
        "modulo": modulo,
    }
    rates = rates if modulo is not None else np.maximum(rates, 0)
    fits = fit_ladder(rates, bounds, whole=turning.reader.caller.width, **settings)
    if len(blocks) > 1 and isinstance(fits[0].spacing, Explicit):
        joined = _joined(rates, bounds, blocks, settings)
        if joined is not None:
            fits = [joined, *fits]
    return fits


def _joined(rates: np.ndarray, bounds: np.ndarray, blocks: tuple[int, ...], settings: dict[str, Any]) -> Fit | None:
    """A ladder for each block, one after another."""
    ends = np.cumsum(blocks)
    parts: list[Fit] = []
    for size, end in zip(blocks, ends, strict=True):
        block = slice(int(end) - size, int(end))
        plain = [fit for fit in fit_ladder(rates[block], bounds[block], **settings) if fit.scaling is None]
        if not plain or isinstance(plain[0].spacing, Joined):
            return None
        parts.append(plain[0])
    spacing: Spacing = Joined(tuple(zip(blocks, [fit.spacing for fit in parts], strict=True)))  # type: ignore[arg-type]
    return Fit(spacing, None, max(fit.difference for fit in parts), sum(fit.cost for fit in parts))


def arithmetic_of(turning: Turning, rates: Sequence[float], rates_in: str | None) -> Arithmetic:
    """What the function rounds, by what it gives at positions that are no powers of two.

    Args:
        turning: What was measured.
        rates: The rates of the ladder that was found, of all pairs.
        rates_in: The dtype that the rates are held in, if it is seen already.
    """
    phases = turning.phases
    if rates_in is None:
        rates_in = rates_dtype(phases, np.array(rates)[index_of(turning.pairs)])
    # Beyond where phases agree, something else than rounding is at work.
    positions = np.array([place for place in TELLING if place <= phases.reached.max()])
    if not positions.size:
        positions = np.arange(1, min(turning.longest, 64) + 1)
    seen, _ = read_phases(turning.reader, turning.pairs, positions)
    places, product = product_dtypes(positions + turning.offset, seen, phases, turning.noise, rates_in)
    return Arithmetic(rates_in, places, product, turning.table)


def explained_by(turning: Turning, arithmetic: Arithmetic, positions: np.ndarray, rates: Sequence[float]) -> np.ndarray:
    """How far each row may be off by what the function rounds, [positions], beside a ladder of these rates."""
    exactly = np.array(rates)[index_of(turning.pairs)]
    held = np.abs(turning.phases.rates)
    places = positions.astype(np.float64)
    if arithmetic.positions in RELATIVE:
        places = rounded(places, arithmetic.positions)
    exact = positions[:, None] * exactly
    moved = np.abs(wrapped(places[:, None] * held - exact)) + positions[:, None] * turning.phases.bounds
    if arithmetic.phases in RELATIVE:
        moved = moved + 2 * RELATIVE[arithmetic.phases] * exact
    return np.max(moved, axis=1) + 4 * turning.noise


def first_of(positions: np.ndarray, bad: np.ndarray, ask: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """The first position that is bad, looked for between the first bad one that was asked and the one asked before.

    Args:
        positions: Those asked, rising.
        bad: Which of them are.
        ask: Which of some others are; every call narrows what is left to a 64th.
    """
    found = np.flatnonzero(bad)
    if not found.size:
        return None
    high = int(positions[found[0]])
    low = int(positions[found[0] - 1]) if found[0] else high - 1
    while high - low > 1:
        between = np.unique(np.linspace(low, high, 66).astype(int)[1:-1])
        between = between[(between > low) & (between < high)]
        worse = np.flatnonzero(ask(between))
        low, high = (
            (int(between[-1]), high)
            if not worse.size
            else (int(between[worse[0] - 1]) if worse[0] else low, int(between[worse[0]]))
        )
    return high
