"""The RoPE frequency of each pair of a function, as precisely as its arithmetic allows, and what it rounds.

If a row has a 1 in the first channel of every pair, the output has the cosine and sine of each pair, so one row per
position gives all phases. Position 1 gives the rate with the error of one phase; position 2 halves this error, position
4 halves it again, and so on, because the rate so far determines the number of full rotations at the next position (lag
doubling). In binary floating point, a product with a power of two is not rounded, so these are the rates as the
function stores them. Phases at other positions show what is rounded: positions (257 is 256 or 258 in bfloat16),
products (a float32 phase of 50,000 rad has an error of up to 0.004), or nothing. Each possibility is computed with the
measured rates and compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import UNIT_ROUNDOFF, rounded
from clockhands.encodings.ladders import Explicit, Joined, Spacing
from clockhands.encodings.written_numbers import Interval
from clockhands.recognition._fitting import Fit, fit_ladder
from clockhands.recognition._functions_calling import Refused, RowCaller
from clockhands.recognition._given import LOW_PRECISION
from clockhands.recognition._matches import Match
from clockhands.recognition.functions._rotated_pairs import NoRotation, RotatedPairs
from clockhands.recognition.probe_positions import probe_positions
from clockhands.recognition.unwrapped_phases import rates_of_phases, wrapped

_TURN = 2 * np.pi
# Fractions of a token, for functions that accept them: the first one determines rates up to pi x 2**10 rad/token.
_PARTS = 2.0 ** np.arange(-10, 0)
# Distance between neighbouring numbers of each dtype, relative to the power of two below them.
SPACING = {dtype: 2 * half for dtype, half in UNIT_ROUNDOFF.items()}
ORDER = ("bfloat16", "float16", "float32", "float64")
_WAYS = (  # possible dtypes of positions and of products
    ("exact", "float64"),
    ("exact", "float32"),
    *((low, product) for low in LOW_PRECISION for product in ("float64", "float32", low)),
    ("exact", "bfloat16"),
    ("exact", "float16"),
)


@dataclass(frozen=True, eq=False)
class Phases:
    """The measurements of each pair.

    Attributes:
        rates: Radians per token, [pairs]; positive from the first channel of a pair to the second.
        bounds: Error bound of each rate in rad/token, [pairs].
        reached: The last power of two at which the phase agreed with those before, [pairs].
        positions: The positions of the amplitudes.
        amplitudes: The factor on cosine and sine, [positions, pairs].
        modulo: 2 pi if only integer positions were used, which do not show full rotations per token; else None.
    """

    rates: np.ndarray
    bounds: np.ndarray
    reached: np.ndarray
    positions: np.ndarray
    amplitudes: np.ndarray
    modulo: float | None


def read_phases(reader: RowCaller, pairs: RotatedPairs, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The phase in (-pi, pi] and the amplitude of each pair at these positions, [positions, pairs] each."""
    x = np.zeros((len(positions), reader.caller.width))
    a, b = pairs.channels.T
    x[:, a] = 1
    y = reader(x, positions)[:, pairs.order]
    return np.arctan2(y[:, b], y[:, a]), np.hypot(y[:, a], y[:, b])


def measure(reader: RowCaller, pairs: RotatedPairs, longest: int, unit: float) -> Phases:
    """The rate of each pair, from positions 1, 2, 4, … up to ``longest``; ``unit`` is the rounding of one number."""
    whole = 1 << np.arange(int(longest).bit_length())
    phases, amplitudes = read_phases(reader, pairs, whole)
    start = read_phases(reader, pairs, np.array([0]))[0]
    start = np.where(np.abs(start) > 16 * unit, start, 0.0)  # not 0 if positions have an offset
    phases = wrapped(phases - start)
    noise = 2 * unit  # error of a phase: half a unit each in cosine and sine, and the errors of these functions
    parts = _parts(reader, pairs)
    if parts is not None:
        positions = np.concatenate([_PARTS, whole])
        rates, bounds, reached = rates_of_phases(np.concatenate([wrapped(parts - start), phases]), positions, noise)
        if (reached >= 1).all():
            return Phases(rates, bounds, reached, whole, amplitudes, None)
    rates, bounds, reached = rates_of_phases(phases, whole.astype(np.float64), noise)
    return Phases(rates, bounds, reached, whole, amplitudes, _TURN)


def offset_of(reader: RowCaller, pairs: RotatedPairs, phases: Phases, unit: float) -> float:
    """The offset of the positions in tokens, from the angles of the pairs at position 0.

    Raises:
        NoRotation: No offset gives these angles.
    """
    start = read_phases(reader, pairs, np.array([0]))[0][0]
    order = np.argsort(np.abs(phases.rates))
    order = order[np.abs(phases.rates[order]) > 0]
    offset: float | None = None
    for pair in order:  # the lowest frequency gives a rough offset, higher ones make it more precise
        rate, off = phases.rates[pair], start[pair]
        if offset is not None:
            off = offset * rate + wrapped(off - offset * rate)
        offset = float(off / rate)
        if abs(offset - round(offset)) < 8 * unit / abs(rate):
            offset = float(round(offset))
    if offset is None or np.abs(wrapped(start - offset * phases.rates)).max() > 64 * unit * max(1.0, abs(offset)):
        raise NoRotation(
            "It is not a rotation by positions: at position 0 its pairs are already rotated, by angles that no "
            "shift of the positions explains."
        )
    return float(f"{offset:.6g}")


def _parts(reader: RowCaller, pairs: RotatedPairs) -> np.ndarray | None:
    """Phases at fractions of a token, [fractions, pairs]; None if the function does not accept or ignores them."""
    if reader.counts:
        return None
    try:
        phases, _ = read_phases(reader, pairs, _PARTS)
    except Refused:
        return None
    return phases if np.isfinite(phases).all() and (phases != 0).any() else None


@dataclass(frozen=True)
class Arithmetic:
    """The dtype of each step of the computation; None if it could not be determined.

    Attributes:
        rates: The dtype in which the rates are stored.
        positions: The dtype to which positions are rounded before the product; ``"exact"`` if they are not rounded.
        phases: The dtype of the product; ``"float64"`` also if it is exact.
        table: The dtype of cosine and sine.
    """

    rates: str | None
    positions: str | None
    phases: str | None
    table: str

    @property
    def coarsest(self) -> str | None:
        """The least precise dtype of rates, positions and products; None if none is known."""
        named = [name for name in (self.rates, self.positions, self.phases) if name in ORDER]
        return min(named, key=ORDER.index, default=None)

    def words(self) -> list[str]:
        """Sentences on what is rounded to bfloat16 or float16."""
        named = {
            "Positions are rounded to": self.positions,
            "Frequencies are stored in": self.rates,
            "Phases are rounded to": self.phases,
            "Cosine and sine are rounded to": self.table,
        }
        return [f"{words} {dtype}." for words, dtype in named.items() if dtype in LOW_PRECISION]


def table_dtype(numbers: np.ndarray, output: str) -> str:
    """The least precise dtype that holds all these cosines and sines exactly."""
    for dtype in ("bfloat16", "float16", "float32"):
        if np.array_equal(rounded(numbers, dtype), numbers, equal_nan=True):
            return dtype
    return output if output in ORDER else "float64"


def rates_dtype(phases: Phases, exact: np.ndarray | None) -> str | None:
    """The dtype in which the rates are stored; None if the measurement is not precise enough.

    It is a dtype whose numbers all rates are, within their bounds, if the probability of this by chance is below 1e-4.
    If there is none and the measured rates are the exact ones of the ladder, it is float64.
    """
    rates, bounds = np.abs(phases.rates), phases.bounds
    for dtype in ("bfloat16", "float16", "float32"):
        grid = SPACING[dtype] * 2.0 ** np.floor(np.log2(np.maximum(rates, 1e-300)))
        if dtype == "float16":
            grid = np.maximum(grid, 2.0**-24)
        fine = (bounds < grid / 16) & (rates > 0)
        powers = 2.0 ** np.round(np.log2(np.maximum(rates, 1e-300)))  # every dtype holds these
        fine &= np.abs(rates - powers) > 4 * bounds
        if not fine.any():
            continue
        near = np.abs(rates - rounded(rates, dtype)) <= bounds
        chance = float(np.sum(np.log10(2 * bounds[fine] / grid[fine])))
        if near[fine].all() and chance < -4:
            return dtype
    if exact is not None:
        finest = SPACING["float32"] / 16
        fine = (bounds < finest * rates) & (rates > 0)
        if fine.sum() > 1 and (np.abs(rates - exact) <= 2 * bounds)[fine].all():
            return "float64"
    return None


def product_dtypes(
    positions: np.ndarray, seen: np.ndarray, phases: Phases, noise: float, held: str | None = None
) -> tuple[str | None, str | None]:
    """The dtypes of positions and products, from phases [positions, pairs] at positions that are not powers of two.

    Returns the dtype of the positions (``"exact"`` if they are not rounded) and that of the products, which is None if
    float32 cannot be distinguished from more precise dtypes. Both are None if no known way explains the phases.
    ``held`` is the dtype of the rates, if known; rounding to it makes the rates exact.
    """
    rates = phases.rates if held in (None, "float64") else rounded(phases.rates, held)
    for places, product in _WAYS:
        at = positions.astype(np.float64) if places == "exact" else rounded(positions, places)
        with np.errstate(invalid="ignore"):
            predicted = at[:, None] * rates
            predicted = predicted if product == "float64" else rounded(predicted, product)
        if not np.isfinite(predicted).all():  # float16 ends at 65,504
            continue
        off = np.abs(wrapped(seen - predicted))
        # The error of a rate changes the phase, and may change the rounded product by one unit.
        slack = 4 * noise + positions[:, None] * phases.bounds + 2.0**-51 * np.abs(predicted)
        if product != "float64":
            unit = SPACING[product] * 2.0 ** np.floor(np.log2(np.maximum(np.abs(predicted), 1e-300)))
            near = positions[:, None] * phases.bounds > unit / 64
            slack = slack + np.where(near, unit, 0)
        if np.isfinite(off).all() and (off <= slack).all():
            if product == "float64" and (np.abs(predicted - rounded(predicted, "float32")) <= slack).all():
                return places, None  # float32 would look the same
            return places, product
    return _by_size(positions, seen, phases, noise)


def _by_size(positions: np.ndarray, seen: np.ndarray, phases: Phases, noise: float) -> tuple[str | None, str | None]:
    """Dtypes as above, by the size of the error alone: at most two roundings of the product, in any order.

    Functions that divide positions first, or combine rates at the end, round twice.
    """
    exact = positions[:, None] * phases.rates
    off = np.abs(wrapped(seen - exact))
    for product in ("float32", "float16", "bfloat16"):
        slack = 4 * noise + positions[:, None] * phases.bounds + 2 * SPACING[product] * np.abs(exact)
        if np.isfinite(off).all() and (off <= slack).all() and slack.max() < np.pi / 2:
            return "exact", product
    return None, None


@dataclass(frozen=True, eq=False)
class MeasuredRotation:
    """All measurements of a rotation.

    Attributes:
        reader: Reads output rows of the function.
        longest: The largest position that is used.
        pairs: The pairs of channels.
        phases: The measured rates and amplitudes.
        unit: The error of one number of the output.
        table: The dtype of cosine and sine.
        sign: 1 for forward rotation, -1 for backward.
        offset: The offset of the positions, in tokens.
    """

    reader: RowCaller
    longest: int
    pairs: RotatedPairs
    phases: Phases
    unit: float
    table: str
    sign: float
    offset: float = 0.0

    @property
    def noise(self) -> float:
        """The error of one measured phase in rad."""
        return 2 * self.unit


def index_of(pairs: RotatedPairs) -> np.ndarray:
    """The index of each measured pair among the pairs of the RoPE dimensions, int [measured pairs]."""
    first = pairs.channels[:, 0] - pairs.start
    if pairs.blocks:
        return np.arange(len(first))
    return first // 2 if pairs.layout == "interleaved" else first


def all_pairs(turning: MeasuredRotation) -> tuple[np.ndarray, np.ndarray]:
    """Rates and error bounds of all pairs of the RoPE dimensions, in order, with rate 0 for pairs without rotation."""
    number = turning.pairs.rotated // 2
    rates, bounds = np.zeros(number), np.full(number, turning.noise / turning.longest)
    at = index_of(turning.pairs)
    rates[at], bounds[at] = turning.sign * turning.phases.rates, turning.phases.bounds
    return rates, bounds


def fits_of(turning: MeasuredRotation, factor: Interval) -> tuple[list[Fit], np.ndarray, str | None]:
    """Fits of ladders to the measured rates, the error bounds that were used, and the dtype of the rates or None."""
    phases = turning.phases
    rates, bounds = all_pairs(turning)
    held = rates_dtype(phases, None)
    # Rates are powers of the base: rounding the exponent by half a unit changes the power by half its logarithm in
    # units; power, division and rounding add three units.
    steps = np.abs(np.log(np.maximum(np.abs(rates), 1e-30))) / 2 + 3
    tries = {"float32": ("float32",), "bfloat16": ("float32", "bfloat16"), "float16": ("float32", "float16")}
    found: list[Fit] = []
    within = bounds
    for dtype in tries.get(held or "", ("float64", "float32")):
        slack = steps * UNIT_ROUNDOFF[dtype] * np.abs(rates)
        if held in LOW_PRECISION:  # rates computed in float32 and cast once
            slack = slack + UNIT_ROUNDOFF[held] * np.abs(rates) + (2.0**-25 if held == "float16" else 0)
        fits = _fit(turning, rates, bounds + slack, factor)
        if not found or fits[0].cost < found[0].cost:
            found, within = fits, bounds + slack
        # With only two rates, some ladder always fits, so the dtype is chosen that gives the shorter numbers.
        if not isinstance(fits[0].spacing, Explicit) and (np.abs(rates) > bounds).sum() > 2:
            return fits, bounds + slack, held
    return found, within, held


def _fit(turning: MeasuredRotation, rates: np.ndarray, bounds: np.ndarray, factor: Interval) -> list[Fit]:
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
    """A fit with a separate ladder for each block, or None if a block has no fit without scaling."""
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


def arithmetic_of(turning: MeasuredRotation, rates: Sequence[float], rates_in: str | None) -> Arithmetic:
    """What the function rounds, from its phases at positions that are not powers of two, compared with these rates."""
    phases = turning.phases
    if rates_in is None:
        rates_in = rates_dtype(phases, np.array(rates)[index_of(turning.pairs)])
    # At positions where phases no longer agree, the errors have another cause than rounding.
    positions = probe_positions(int(phases.reached.max()) + 1)
    # Those that bfloat16 does not represent; powers of two are already in the phases.
    positions = positions[(positions > 256) & (positions & (positions - 1) != 0)]
    if not positions.size:
        positions = np.arange(1, min(turning.longest, 64) + 1)
    seen, _ = read_phases(turning.reader, turning.pairs, positions)
    places, product = product_dtypes(positions + turning.offset, seen, phases, turning.noise, rates_in)
    return Arithmetic(rates_in, places, product, turning.table)


def explained_by(
    turning: MeasuredRotation, arithmetic: Arithmetic, positions: np.ndarray, rates: Sequence[float]
) -> np.ndarray:
    """The error bound of each row due to the function's rounding, [positions], compared with exact rates ``rates``."""
    exactly = np.array(rates)[index_of(turning.pairs)]
    held = np.abs(turning.phases.rates)
    places = positions.astype(np.float64)
    if arithmetic.positions in UNIT_ROUNDOFF:
        places = rounded(places, arithmetic.positions)
    exact = positions[:, None] * exactly
    moved = np.abs(wrapped(places[:, None] * held - exact)) + positions[:, None] * turning.phases.bounds
    if arithmetic.phases in UNIT_ROUNDOFF:
        moved = moved + 2 * UNIT_ROUNDOFF[arithmetic.phases] * exact
    return np.max(moved, axis=1) + 4 * turning.noise


def first_of(positions: np.ndarray, bad: np.ndarray, ask: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """The first bad position between the first one marked in ``bad`` and the one before it in ``positions``; or None.

    ``ask`` returns which of further positions are bad; each call reduces the range to about 1/64.
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
        if not worse.size:
            low = int(between[-1])
            continue
        low, high = int(between[worse[0] - 1]) if worse[0] else low, int(between[worse[0]])
    return high


def measured_match(
    specs: Sequence[Any],
    names: Sequence[str],
    arithmetic: Arithmetic,
    measured: dict[str, Any],
    *,
    error: float,
    explained: float,
    first_wrong: int | None,
    largest: int,
    more: dict[str, Any] | None = None,
) -> Match:
    """The match of the first spec, with the measurements of the function's rates and arithmetic as evidence."""
    evidence = {
        **measured,
        "rates_in": arithmetic.rates,
        "positions_in": arithmetic.positions,
        "phases_in": arithmetic.phases,
        "table_in": arithmetic.table,
        "first_wrong_position": first_wrong,
        "longest_position": largest,
        **(more or {}),
        **({"presets": list(names)} if names else {}),
    }
    return Match(
        specs[0],
        error=error,
        confidence=explained,
        name=names[0] if names else None,
        equivalents=tuple(other for other in specs[1:] if not isinstance(other.spacing, Explicit)),
        computed_in=arithmetic.coarsest,
        evidence=tuple(evidence.items()),
    )
