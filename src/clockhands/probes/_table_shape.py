"""Measures the shape of a learned position table: how close it is to a sinusoid, and whether one matrix shifts it.

Both are tested on held-out rows, every third run of eight rows, and compared with random tables that share one spectrum
with the given table: the same singular values with random directions, or the same Fourier spectrum of each channel with
random phases.
"""

from dataclasses import dataclass

import numpy as np

from clockhands.measures import judged

PLANES, DISTANCES, DRAWS = 4, (1, 2, 8), 8
FEWEST = 64
"""Rows that are needed."""

_TOPS, _RATIOS, _ROUNDS = 40, 30, 3


@dataclass(frozen=True, eq=False)
class Waves4:
    """The best sum of four waves whose frequencies have a constant ratio.

    Attributes:
        share: R2 on the held-out rows; ``fitted`` on the fitted rows.
        rates: The frequencies, rad per row.
    """

    share: float
    fitted: float
    rates: tuple[float, ...]


def four_waves(table: np.ndarray) -> Waves4:
    """Fit four waves, frequencies to even rows and amplitudes to all rows, and compute R2 on the held-out runs.

    >>> rows = np.arange(128)[:, None] * 0.5 ** np.arange(4)
    >>> four_waves(np.concatenate([np.sin(rows), np.cos(rows)], axis=1)).share > 0.99
    True
    """
    number = len(table)
    rows = np.arange(number)
    left_out = rows // 8 % 3 == 1
    even = rows[~left_out & (rows % 2 == 0)]
    known = table[even]
    gram = known @ known.T
    total = float(((known - known.mean(0)) ** 2).sum())
    tops, ratios = np.geomspace(np.pi / number, np.pi, _TOPS), np.geomspace(1.02, 8, _RATIOS)
    steps = np.array([tops[1] / tops[0], ratios[1] / ratios[0]])
    found, least = np.empty(0), total
    for _ in range(_ROUNDS):
        asked = np.stack(np.meshgrid(tops, ratios, indexing="ij"), -1).reshape(-1, 2)
        rates = asked[:, :1] / asked[:, 1:] ** np.arange(PLANES)
        basis = np.linalg.qr(_waves(even, rates)).Q
        left = np.trace(gram) - ((gram @ basis) * basis).sum((1, 2))
        best = int(left.argmin())
        found, least = rates[best], float(left[best])
        around = np.linspace(-1, 1, 9)
        tops, ratios = (asked[best, each] * steps[each] ** around for each in (0, 1))
        steps **= 0.25
    share = 1 - least / total
    kept = rows[~left_out]
    amplitudes = np.linalg.lstsq(_waves(kept, found), table[kept], rcond=1e-6)[0]
    expected = table[left_out]
    error = float(((expected - _waves(rows[left_out], found) @ amplitudes) ** 2).sum())
    return Waves4(1 - error / float(((expected - expected.mean(0)) ** 2).sum()), share, tuple(found.tolist()))


def _waves(rows: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Cosines and sines of some ladders of rates, and a constant, [..., rows, 2 PLANES + 1]."""
    angles = rows[:, None] * rates[..., None, :]
    return np.concatenate([np.cos(angles), np.sin(angles), np.ones((*angles.shape[:-1], 1))], axis=-1)


def same_singular_values(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows in random directions with the singular values of a table: no trace of the order of its rows remains."""
    left, sizes, right = np.linalg.svd(table, full_matrices=False)
    drawn, _ = np.linalg.qr(rng.standard_normal(left.shape))
    return (drawn * sizes) @ right


def same_fourier_spectrum(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Channels with the Fourier power of a table's channels and random phases: equally smooth, but no position code."""
    spectrum = np.fft.rfft(table, axis=0)
    turned = np.abs(spectrum) * np.exp(2j * np.pi * rng.random(spectrum.shape))
    turned[0] = spectrum[0]
    return np.fft.irfft(turned, len(table), axis=0)


@dataclass(frozen=True, eq=False)
class TrainedTable:
    """The shape of a table, and that of random tables for comparison.

    Attributes:
        waves: The best four waves.
        noise_waves: The largest R2 of four waves over `DRAWS` tables with the same Fourier spectrum.
        shifts: Residual share of the best matrix for each of `DISTANCES`.
        noise_shifts: The smallest over tables with the same singular values, for each distance.
        smooth_shifts: The same over tables with the same Fourier spectrum.
    """

    waves: Waves4
    noise_waves: float
    shifts: tuple[float, ...]
    noise_shifts: tuple[float, ...]
    smooth_shifts: tuple[float, ...]


def table_shape(table: np.ndarray, draws: int = DRAWS) -> TrainedTable:
    """Measure a table, [positions, width]."""
    rng = np.random.default_rng(0)
    noise = [same_singular_values(table, rng) for _ in range(draws)]
    smooth = [same_fourier_spectrum(table, rng) for _ in range(draws)]
    return TrainedTable(
        four_waves(table),
        max(four_waves(each).share for each in smooth),
        shift_residuals(table),
        _least(noise),
        _least(smooth),
    )


def shift_residuals(table: np.ndarray) -> tuple[float, ...]:
    """The residual share of the best linear map from row t to row t + k on held-out rows, for each of `DISTANCES`."""
    return tuple(float("nan") if each is None else each.share for each in judged(table, DISTANCES))


def _least(tables: list[np.ndarray]) -> tuple[float, ...]:
    return tuple(np.array([shift_residuals(each) for each in tables]).min(0).tolist())
