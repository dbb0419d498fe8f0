"""In which precision a function makes its phases: what is rounded, seen from what comes out wrong.

The rates as the function holds them are measured at powers of two (`functions_phases`). Elsewhere the phases tell what
is rounded: positions (257 is 256 or 258 in bfloat16), products (a float32 phase of 50,000 rad is known to 0.004), or
nothing. Each way is computed with the measured rates and compared.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clockhands.dtypes import output_dtype
from clockhands.recognition.functions_phases import Phases, wrapped

# Numbers below 1 lie this far apart, relative to the power of two below them.
SPACING = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
ORDER = ("bfloat16", "float16", "float32", "float64")
# Whole numbers that bfloat16, float16 and float32 products cannot hold, spread over what models use.
TELLING = (257, 259, 401, 1_001, 2_049, 2_051, 4_097, 10_007, 30_011, 65_537, 99_991, 100_003)


@dataclass(frozen=True)
class Arithmetic:
    """What is rounded to what; None where it was not seen.

    Attributes:
        rates: The dtype that holds the rates.
        positions: The dtype that positions are rounded to before they are multiplied; ``"exact"`` if to none.
        phases: The dtype of the product; ``"float64"`` also stands for exact.
        table: The dtype of cosine and sine.
    """

    rates: str | None
    positions: str | None
    phases: str | None
    table: str

    @property
    def coarsest(self) -> str | None:
        """What phases are made in: the least precise of rates, positions and products; None where nothing is seen."""
        named = [name for name in (self.rates, self.positions, self.phases) if name in ORDER]
        return min(named, key=ORDER.index, default=None)

    def words(self) -> list[str]:
        """Sentences on what is rounded to less than float32."""
        low = ("bfloat16", "float16")
        named = {
            "Positions are rounded to": self.positions,
            "Rates are held in": self.rates,
            "Phases are rounded to": self.phases,
            "Cosine and sine are rounded to": self.table,
        }
        return [f"{words} {dtype}." for words, dtype in named.items() if dtype in low]


def rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as this dtype holds them, float64 again."""
    with np.errstate(over="ignore"):
        return numbers.astype(output_dtype(dtype)).astype(np.float64)


def table_dtype(numbers: np.ndarray, output: str) -> str:
    """The coarsest dtype that holds all these cosines and sines."""
    for dtype in ("bfloat16", "float16", "float32"):
        if np.array_equal(rounded(numbers, dtype), numbers, equal_nan=True):
            return dtype
    return output if output in ORDER else "float64"


def rates_dtype(phases: Phases, exact: np.ndarray | None) -> str | None:
    """The dtype that the rates are held in; None where the measurement is not fine enough to say.

    Rates that all lie on a dtype's grid, closer than chance, are held in it. Where none does, and the measured rates
    are the exact ones of the ladder, they are float64.
    """
    rates, bounds = np.abs(phases.rates), phases.bounds
    for dtype in ("bfloat16", "float16", "float32"):
        grid = SPACING[dtype] * 2.0 ** np.floor(np.log2(np.maximum(rates, 1e-300)))
        if dtype == "float16":
            grid = np.maximum(grid, 2.0**-24)
        fine = (bounds < grid / 16) & (rates > 0)
        powers = 2.0 ** np.round(np.log2(np.maximum(rates, 1e-300)))  # every dtype holds those
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
    """What positions and products are rounded to, by phases seen at positions that are no powers of two.

    Args:
        positions: Where, [positions].
        seen: The signed phases there, [positions, pairs].
        phases: The measured rates.
        noise: Of one phase.
        held: The dtype of the rates, if it is known: they are then known exactly.

    Returns:
        The dtype of the positions (``"exact"`` where they are not rounded) and of the products, None where float32 and
        finer ones look alike; None, None where no way that is known explains the phases.
    """
    rates = phases.rates if held in (None, "float64") else rounded(phases.rates, held)
    for places, product, made in _ways():
        with np.errstate(invalid="ignore"):
            predicted = made(positions, rates)
        if not np.isfinite(predicted).all():  # float16 ends at 65,504
            continue
        off = np.abs(wrapped(seen - predicted))
        # What the rates are not known to moves the phase, and with it how a product is rounded, by one unit.
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
    """Exact positions and a product that is off by as much as this dtype's roundings, however they are made.

    Positions that are divided first, or rates that are put together at the end, round twice.
    """
    exact = positions[:, None] * phases.rates
    off = np.abs(wrapped(seen - exact))
    for product in ("float32", "float16", "bfloat16"):
        slack = 4 * noise + positions[:, None] * phases.bounds + 2 * SPACING[product] * np.abs(exact)
        if np.isfinite(off).all() and (off <= slack).all() and slack.max() < np.pi / 2:
            return "exact", product
    return None, None


def _ways() -> list[tuple[str, str, Callable[[np.ndarray, np.ndarray], np.ndarray]]]:
    def way(places: str, product: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        def made(positions: np.ndarray, rates: np.ndarray) -> np.ndarray:
            at = positions.astype(np.float64) if places == "exact" else rounded(positions, places)
            phase = at[:, None] * rates
            return phase if product == "float64" else rounded(phase, product)

        return made

    pairs = [
        ("exact", "float64"),
        ("exact", "float32"),
        ("bfloat16", "float64"),
        ("bfloat16", "float32"),
        ("bfloat16", "bfloat16"),
        ("float16", "float64"),
        ("float16", "float32"),
        ("float16", "float16"),
        ("exact", "bfloat16"),
        ("exact", "float16"),
    ]
    return [(places, product, way(places, product)) for places, product in pairs]
