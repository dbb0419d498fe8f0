"""Tables of no known convention: columns that are sinusoids nevertheless, smooth rows, and noise.

A sinusoid of any phase satisfies ``d_(r+1) + d_(r-1) = 2 cos(angle) d_r``, where ``d`` is its change from row to row.
A column counts as a sinusoid if the residual is at most a fiftieth of the second difference of ``d``, and the column
has at least half a rotation.

In noise, the correlation of neighbouring rows has mean 0 and standard deviation ``1 / sqrt(rows x n)``, where ``n`` is
the number of independent numbers in a row: ``1 / sum(s**2)`` for components with shares ``s`` of the variance. Smooth
rows have a much higher correlation, whatever made them.
"""

import math
from typing import Any

import numpy as np

from clockhands.encodings.additive import FourierFeatures, Learned
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Matches
from clockhands.recognition._preset_names import of_kind

_ROWS, _CHANNELS = 1024, 512  # the most rows that are searched for sinusoids, and the most channels that are used
_LEFT = 0.02
_SHARE = 0.1  # the least share of columns that must be sinusoids, and at least 4, to be reported
_MOST_COLUMNS = 0.5  # the share of columns with a constant frequency from which a form of such columns is named
SIGMAS = 8.0  # the least correlation of neighbouring rows, in standard deviations of noise
_SPECTRUM_ROWS = 2048  # the most rows that are used for the spectrum


def lone_waves(given: GivenTable) -> tuple[str, dict[str, Any]]:
    """A sentence about the columns that are sinusoids, and the measurements; both empty if there are few."""
    rows = given.at(slice(0, min(_ROWS, given.rows)))[:, :: max(1, given.width // _CHANNELS)]
    if len(rows) < 16:
        return "", {}
    change = np.diff(rows, axis=0)
    middle, both = change[1:-1], change[2:] + change[:-2]
    power = np.maximum((middle**2).sum(axis=0), 1e-300)
    cosine = np.clip((middle * both).sum(axis=0) / (2 * power), -1, 1)
    left = np.sqrt(((both - 2 * cosine * middle) ** 2).sum(axis=0) / power)
    angle = np.arccos(cosine)
    moves = np.abs(change).max(axis=0) > 8 * given.rounding * np.abs(rows).max()
    waves = moves & (left <= _LEFT * 2 * (1 - cosine)) & (angle * len(rows) >= math.pi)
    number = int(waves.sum())
    if number < max(4, _SHARE * rows.shape[1]):
        return "", {}
    rates = angle[waves]
    words = (
        f"{number} of {rows.shape[1]} columns have a constant frequency, from {rates.min():.3g} to "
        f"{rates.max():.3g} rad per row, but not as pairs of a known convention."
    )
    return words, {"columns_that_turn": number, "rates_per_row": [float(f"{one:.6g}") for one in rates[:64]]}


def unknown_rows(given: GivenTable, reason: str) -> Matches:
    """No match, with the reason: noise, or smooth rows of unknown origin; ``reason`` says what was excluded before.

    Numbers do not show whether rows were trained: polynomials, chirps, wavelets and smoothed noise are as smooth.
    """
    for begin, block in given.blocks():
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            return Matches([], f"Row {begin + bad[0]} holds NaN or infinite numbers.")
    waves, turning = lone_waves(given)
    rows = given.at(slice(0, min(_SPECTRUM_ROWS, given.rows)))[:, :: max(1, given.width // _CHANNELS)]
    found = spectrum(rows)
    noise, near = found["by_chance"], found["neighbours"]
    if abs(near) < SIGMAS * noise:
        words = (
            f"{waves or reason} Neighbouring rows are no more similar than noise: their correlation is {near:.2g}; "
            f"rows in random order have up to {SIGMAS * noise:.1g}."
        )
    else:
        words = (
            f"Smooth rows, origin unknown: neighbours correlate by {near:.2g}, and "
            f"{found['components_for_90_percent']} of {min(rows.shape)} components hold 90 % of what differs between "
            f"rows. {waves or reason} Excluded: sines and cosines of one axis or of a grid, also with frequencies of "
            f"their own, and every preset that is computed."
        )
    if turning and turning["columns_that_turn"] >= _MOST_COLUMNS * rows.shape[1]:
        drawn = [name for name, spec in of_kind(FourierFeatures) if spec.offsets]
        words += f" Cosines with frequencies and phases of their own are the form of {' and '.join(drawn)}."
    shaped = [name for name, spec in of_kind(Learned) if (spec.rows, spec.width) == (given.rows, given.width)]
    if shaped:
        words += f" Its shape, {given.rows} x {given.width}, is that of the tables of {', '.join(shaped)}."
    return Matches([], words, (*found.items(), *turning.items()))


def spectrum(rows: np.ndarray) -> dict[str, Any]:
    """Correlations and principal components of the rows [rows, channels] of a table, as JSON values.

    ``neighbours`` is the correlation of neighbouring rows, ``alike`` that of rows at distances 1, 2, 4, …, and
    ``by_chance`` the standard deviation of the correlation in noise. ``components`` has the shares of the 8 leading
    components in the variance, ``components_for_90_percent`` how many hold 90 % of it, and ``periods`` the periods of
    the first 4 in rows, by their largest Fourier coefficients. ``unlike`` has the rows with lengths far from the
    median.
    """
    lengths = np.linalg.norm(rows, axis=1)
    middle = np.median(lengths)
    spread = 1.4826 * np.median(np.abs(lengths - middle)) + 1e-12 * middle
    unlike = np.flatnonzero(np.abs(lengths - middle) > 8 * spread)
    rest = rows - rows.mean(axis=0)
    total = float((rest**2).sum())
    if not total > 0:
        return {"neighbours": 0.0, "by_chance": 1.0, "components_for_90_percent": 0}
    lags = [1 << power for power in range(10) if (1 << power) <= len(rows) // 2]
    alike = [float((rest[lag:] * rest[:-lag]).sum()) / total * len(rows) / (len(rows) - lag) for lag in lags]
    wide = len(rows) <= rest.shape[1]
    values, vectors = np.linalg.eigh(rest @ rest.T if wide else rest.T @ rest)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    share = values / values.sum()
    courses = vectors[:, :4] if wide else rest @ vectors[:, :4]
    periods = []
    for course in (courses - courses.mean(axis=0)).T:
        strength = np.abs(np.fft.rfft(course))
        strength[0] = 0
        top = int(strength.argmax())
        periods.append(round(len(rows) / top, 1) if top else None)
    return {
        "neighbours": alike[0] if alike else 0.0,
        "by_chance": math.sqrt(float((share**2).sum()) / len(rows)),
        "alike": {str(lag): round(one, 4) for lag, one in zip(lags, alike, strict=True)},
        "components": [round(float(one), 4) for one in share[:8]],
        "components_for_90_percent": int(np.searchsorted(np.cumsum(share), 0.9)) + 1,
        "periods": periods,
        "unlike": unlike[:10].tolist(),
    }
