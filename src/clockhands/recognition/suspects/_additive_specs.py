"""Additive suspects with a wrong spec: one field has another usual or measured value, or the grid cells differ."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from clockhands.encodings.additive import AdditiveCode, AxialSinusoidal, Sinusoidal
from clockhands.encodings.additive.axial import Channels
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.specs import describe
from clockhands.encodings.usual_values import ADDITIVE_BASES, UNITS
from clockhands.recognition.channel_waves import ChannelWaves, sinusoid_channels
from clockhands.recognition.suspects._additive_code import (
    AdditiveObservations,
    additive_stateful,
    wrong_arithmetic,
    wrong_places,
    wrong_sums,
)
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._resized_tables import resized_otherwise
from clockhands.recognition.suspects._stages import (
    FieldFault,
    bases_of,
    exchanged,
    of_sources,
    with_axes,
    with_spacing,
)
from clockhands.recognition.unwrapped_phases import wrapped

_LAYOUTS = {"halves": "interleaved", "interleaved": "halves"}
_ORDERS = {"sin-cos": "cos-sin", "cos-sin": "sin-cos", "sin": "cos", "cos": "sin"}
_WORDS = {
    "halves": "all sines, then all cosines, or the reverse (half-split)",
    "interleaved": "alternating sine and cosine (interleaved)",
}
_SPANS = {"open": "closed", "closed": "open"}

Change = Callable[[Any], Any]


def other_specs(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with one wrong field, or two that are often wrong together."""
    faults = list(_fields(spec))
    for fault in faults:
        yield seen.faulty(fault)
    for one, other in itertools.combinations(faults, 2):
        yield seen.another(
            (one.code, other.code),
            {**other.parameters, **one.parameters},
            lambda it, one=one, other=other: other.change(one.change(it)),
        )
    if isinstance(spec, Sinusoidal) and spec.width % 2:
        for odd in (odd for odd in ("zero", "extra", "cut") if odd != spec.odd):
            yield seen.another(
                "odd-width",
                {"used": odd, "declared": spec.odd},
                lambda it, odd=odd: replace(it, odd=odd) if it.width % 2 else it,
            )
    for row in getattr(spec, "zero_rows", ()):
        yield seen.changed("padding-row", {"row": row}, zero_rows=())
    if isinstance(spec, AxialSinusoidal):
        yield from _axial(spec, seen)


def recognised(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """The codes that it was recognised as."""
    for other in seen.specs:
        if other != spec:
            yield seen.another("another-code", {"used": describe(other)}, lambda _, other=other: other)


def _fields(spec: Any) -> Iterator[FieldFault]:
    if getattr(spec, "order", None) in _ORDERS:
        yield exchanged(spec, "sine-and-cosine-swapped", "order", _ORDERS)
    if getattr(spec, "layout", None) is not None:
        yield exchanged(spec, "other-layout", "layout", _LAYOUTS, _WORDS)
    spacing = getattr(spec, "spacing", None)
    if isinstance(spacing, Geometric) and spacing.span in _SPANS:
        span = _SPANS[str(spacing.span)]
        yield FieldFault(f"{span}-span", {}, lambda it: with_spacing(span=_SPANS[str(it.spacing.span)])(it))


def other_exponents(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with wrong exponents of the rates: one per channel, or another width as the denominator."""
    spacing = getattr(spec, "spacing", None)
    if not isinstance(spacing, Geometric) or spec.number_of_axes > 1:
        return
    declared = 2 * float(spacing.denominator(spec.width))
    spans = [spacing, replace(spacing, span=_SPANS[str(spacing.span)])] if spacing.span in _SPANS else [spacing]
    known = {2 * float(each.denominator(spec.width)) for each in spans}
    # Wrong widths in the denominator of the exponent.
    for width in map(float, sorted({spec.width, 2 * spec.width, spec.width / 2, spec.width - 1, spec.width + 2})):
        if width > 1 and width not in known:
            parameters = {"declared": declared, "used": width}
            yield seen.another("other-denominator", parameters, with_spacing(span=width / 2))
    for words, powers in _POWERS.items():
        yield seen.built(
            "exponent",
            {"which": words},
            lambda it, powers=powers: seen.right(it, hands=_with_powers(it, powers)),
        )


# The exponent of the base in units of 1/d, as factors on five numbers: the index of the pair, that of the channel in
# its pair, that of the channel, 1, and half of the index of the pair, rounded down.
_POWERS = {
    "dimension c has c/d; expected 2i/d for both dimensions of pair i": (0, 0, 1, 0, 0),
    "dimension c has 2c/d; expected 2i/d for both dimensions of pair i": (0, 0, 2, 0, 0),
    "the second dimension of pair i has 2(i + 1)/d; expected 2i/d for both": (2, 2, 0, 0, 0),
    "the second dimension of pair i has (2i + 1)/d; expected 2i/d for both": (2, 1, 0, 0, 0),
    "pair i has 2(i + 1)/d; expected 2i/d: pairs are counted from 1": (2, 0, 0, 2, 0),
    "pairs i and i + 1 both have 2i/d, i even: every frequency occurs twice": (0, 0, 0, 0, 4),
}


def _with_powers(spec: Any, powers: tuple[int, ...]) -> ChannelWaves:
    hands = sinusoid_channels(spec)
    assert hands is not None
    channels = np.arange(spec.width)
    pairs, waves = channels // 2, channels % 2
    if spec.layout == "halves":
        half = -(-spec.width // 2)
        pairs, waves = channels % half, channels // half
    parts = (pairs, waves, channels, np.ones(spec.width), pairs // 2)
    steps = np.sum([power * part for power, part in zip(powers, parts, strict=True)], axis=0)
    exponents = steps / (2 * float(spec.spacing.denominator(spec.width)))
    rates = spec.spacing.multiplier * spec.spacing.base**-exponents
    return replace(hands, rates=np.where(hands.quarters >= 0, rates, 0.0)[None])


def _axial(spec: AxialSinusoidal, seen: AdditiveObservations) -> Iterator[FaultModel]:
    for channels in get_args(Channels):
        if channels != spec.channels:
            yield seen.changed("other-layout", {"declared": spec.channels, "used": channels}, channels=channels)
    for order in itertools.permutations(range(spec.number_of_axes)):
        if order == tuple(range(spec.number_of_axes)):
            continue
        words = ", ".join(f"coordinate {axis} is used as coordinate {place}" for place, axis in enumerate(order))
        yield seen.suspect("axes-exchanged", {"which": words}, places=lambda at, _, order=order: at[..., list(order)])
    if len(set(spec.shares)) > 1:
        yield seen.another(
            "axes-exchanged",
            {"which": "the first axis has as many dimensions as the last axis should have"},
            lambda it: replace(it, shares=it.shares[::-1]),
        )
    for axis in range(1, spec.number_of_axes):
        yield seen.suspect("axis-dropped", {"which": f"coordinate {axis}"}, places=with_axes({axis: 0}))


_CHANNELS = 64


def measured(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with measured parameters, or usual ones where nothing was measured."""
    yield from _scales(spec, seen)
    hands = sinusoid_channels(spec, seen.values)
    rates = None if hands is None else seen.rates(hands)
    if rates is not None:
        assert hands is not None
        own = hands.rates[0][hands.pairs[:, 0]]
        yield from _bases(spec, seen, np.abs(rates), own)
        yield from _units(seen, np.abs(rates), own)
    elif isinstance(getattr(spec, "spacing", None), Geometric):
        yield from _of_bases(spec, seen, ADDITIVE_BASES)
    if hands is not None:
        for factor in UNITS:
            yield seen.scaled(factor)
    yield from _offsets(spec, seen)


def _scales(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with another factor on the code, on the tokens, or on both."""
    share, declared = seen.share(), seen.right(spec).scale
    known = {1.0, 2.0, 1 / declared if declared else 1.0}
    together = seen.token_scale != 1 and share is not None and abs(share - seen.token_scale) < 1e-3 * seen.token_scale
    if together:
        # The factor on tokens is applied after the code was added.
        yield seen.suspect("sum-scaled", {"factor": seen.token_scale}, table=lambda rows, _: rows * seen.token_scale)
    elif share is not None and all(abs(share - one) > 1e-3 * one for one in known) and abs(share) > 1e-4:
        for factor in _rounded(share * declared, seen.fine):
            yield seen.suspect(
                "another-scale",
                {"scale": factor, "declared": declared},
                table=lambda rows, _, factor=factor: rows * (factor / declared),
            )
    if seen.factor is None or abs(seen.factor - seen.token_scale) < 1e-3 * max(abs(seen.factor), 1e-3):
        return
    root = math.sqrt(spec.width)
    for factor in (1.0, root, 1 / root, seen.token_scale**2, *_rounded(seen.factor, True)):
        if abs(factor - seen.factor) < 1e-2 * abs(factor):
            parameters = {"factor": factor, "declared": seen.token_scale}
            yield seen.suspect("tokens-scaled", parameters, token_scale=factor)
            ratio = factor / seen.token_scale
            yield seen.suspect(
                "sum-scaled", {"factor": ratio}, add=lambda x, rows, scale, ratio=ratio: ratio * (scale * x + rows)
            )


def _rounded(number: float, fine: bool) -> dict[float, None]:
    return dict.fromkeys(float(f"{number:.{digits}e}") for digits in ((1, 2, 4, 12) if fine else (1, 2)))


def _bases(spec: Any, seen: AdditiveObservations, rates: np.ndarray, own: np.ndarray) -> Iterator[FaultModel]:
    if not isinstance(getattr(spec, "spacing", None), Geometric):
        return
    exponents = -np.log(np.maximum(own, 1e-300) / spec.spacing.multiplier) / np.log(spec.spacing.base)
    there = (exponents > 0) & (rates > 0)
    digits = (4, 6, 15) if seen.fine else (1, 3)
    found = bases_of(rates[there] / spec.spacing.multiplier, exponents[there], digits)
    yield from _of_bases(spec, seen, (*(base for base in found if base not in (0.0, 1.0)), *ADDITIVE_BASES))


def _of_bases(spec: Any, seen: AdditiveObservations, bases: Iterable[float]) -> Iterator[FaultModel]:
    for base in dict.fromkeys(bases):
        if base != spec.spacing.base:
            yield seen.another("another-base", {"base": base, "declared": spec.spacing.base}, with_spacing(base=base))


def _units(seen: AdditiveObservations, rates: np.ndarray, own: np.ndarray) -> Iterator[FaultModel]:
    turns = own > 0
    ratio = float(np.median(rates[turns] / own[turns])) if turns.any() else 0.0
    if ratio > 0 and abs(ratio - 1) > 1e-4:
        plain = (float(f"{ratio:.3g}"), 1 / float(f"{1 / ratio:.3g}"))
        for factor in dict.fromkeys((ratio,) if seen.fine else plain):
            yield seen.scaled(factor)


def _offsets(spec: AdditiveCode, seen: AdditiveObservations, reach: int = 8192) -> Iterator[FaultModel]:
    """Suspects with shifted positions; the shift is measured from the first two rows."""
    if spec.number_of_axes > 1 or len(seen.positions) < 2 or not np.isfinite(seen.rows[:2]).all():
        return
    offsets = np.arange(-reach, reach + 1)
    adding = seen.right(spec)
    if adding.hands is not None:
        some = np.unique(np.linspace(0, spec.width - 1, _CHANNELS).astype(int))
        adding.hands = adding.hands.columns(some)
    else:
        some = np.arange(spec.width)
    off = np.zeros(len(offsets))
    for place, row in zip(seen.positions[:2], seen.rows[:2, some], strict=True):
        made = adding.rows((place + offsets).astype(np.float64), None)  # type: ignore[arg-type]
        off += np.where(np.isfinite(made), (made - row) ** 2, 4.0).sum(axis=1)
    for offset in offsets[np.argsort(off, kind="stable")[:2]]:
        if offset:
            yield seen.moved(int(offset))


def other_cells(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with other cell positions."""
    if seen.grid is None:
        return
    hands = seen.right(spec).hands
    if not seen.fine:
        yield from _other_order(seen, seen.grid)
        yield from _other_units(seen, seen.grid)
    elif hands is not None and len(hands.pairs):
        yield from _elsewhere(seen, seen.grid, hands)


def _other_order(seen: AdditiveObservations, grid: Grid) -> Iterator[FaultModel]:
    """Suspects with another order of the cells, or a reversed axis."""
    for order in itertools.permutations(range(grid.axes)):
        for reversed_axes in itertools.product((False, True), repeat=grid.axes):
            if order == grid.order and not any(reversed_axes):
                continue
            ends = [
                (start + (size - 1) * step, -step) if back else (start, step)
                for start, step, size, back in zip(grid.start, grid.step, grid.sizes, reversed_axes, strict=True)
            ]
            starts, steps = zip(*ends, strict=True)
            other = Grid(grid.sizes, start=starts, step=steps, order=order, prefix=grid.prefix)
            words = [f"axis {axis} from its end" for axis, back in enumerate(reversed_axes) if back]
            if order != grid.order:
                words.insert(0, f"axis {order[-1]} runs fastest")
            yield seen.suspect(
                "rows-in-another-order",
                {"used": " and ".join(words), "declared": f"axis {grid.order[-1]} runs fastest"},
                cells=np.asarray(other),
            )


def _other_units(seen: AdditiveObservations, grid: Grid) -> Iterator[FaultModel]:
    """Suspects with cell indices instead of coordinates, or class tokens at the other end."""
    counted = Grid(grid.sizes, order=grid.order, prefix=grid.prefix)
    step = float(grid.step[0])
    if counted != grid and step:
        yield seen.suspect("positions-scaled", {"factor": 1 / step}, cells=np.asarray(counted))
    if grid.prefix:
        cells = np.asarray(grid)
        yield seen.suspect(
            "rows-in-another-order",
            {
                "used": f"the {grid.prefix} rows without a position come last",
                "declared": f"the {grid.prefix} rows without a position come first",
            },
            cells=np.concatenate([cells[grid.prefix :], cells[: grid.prefix]]),
        )


def _elsewhere(seen: AdditiveObservations, grid: Grid, hands: ChannelWaves) -> Iterator[FaultModel]:
    """Suspects with another start and step of each axis, measured from the phases of its pairs."""
    found = [each for axis in range(grid.axes) if (each := _along(seen, grid, hands, axis)) is not None]
    if len(found) < grid.axes:
        return
    starts, steps = zip(*found, strict=True)
    plain = [tuple(Fraction(number).limit_denominator(512) for number in numbers) for numbers in (starts, steps)]
    for start, step in (plain, (starts, steps)):
        other = Grid(grid.sizes, start=start, step=step, order=grid.order, prefix=grid.prefix)
        near = np.allclose(np.asarray(other), np.asarray(grid), rtol=1e-4, atol=1e-6, equal_nan=True)
        if not near:
            yield seen.suspect(
                "cells-elsewhere",
                {"used": _axes_as_text(other), "declared": _axes_as_text(grid)},
                cells=np.asarray(other),
            )


def _along(seen: AdditiveObservations, grid: Grid, hands: ChannelWaves, axis: int) -> tuple[float, float] | None:
    """The measured position of the first cell of an axis, and the step to the next."""
    numbers = np.asarray(Grid(grid.sizes, order=grid.order, prefix=grid.prefix)).reshape(len(grid), -1)[seen.positions]
    others = np.delete(numbers, axis, axis=1)
    rows = np.flatnonzero((others == 0).all(axis=1) & ~np.isnan(numbers[:, axis]))
    rows = rows[np.argsort(numbers[rows, axis])]
    cells = numbers[rows, axis]
    if len(rows) < 2 or cells[0] != 0 or cells[1] != 1:
        return None
    sine, cosine = hands.pairs.T
    own = hands.rates[axis if len(hands.rates) > 1 else 0, sine]
    units = (seen.rows[:, cosine] + 1j * seen.rows[:, sine])[rows][:, own > 0]
    rates = own[own > 0]
    sizes = np.abs(units)
    if not sizes.size or not np.isfinite(sizes).all() or np.ptp(sizes) > 0.01 * sizes.max():
        return None  # not pairs of sine and cosine
    slow = np.argsort(rates)
    # From the lowest frequency, which has rotated least, to the highest, the most precise; then on to the last cell.
    start = step = 0.0
    for pair in slow:
        start += wrapped(np.angle(units[0, pair]) - start * rates[pair]) / rates[pair]
        step += wrapped(np.angle(units[1, pair] * units[0, pair].conj()) - step * rates[pair]) / rates[pair]
    for cell, row in zip(cells[1:], units[1:], strict=True):
        fastest = rates[slow[-1]]
        angle = np.angle(row[slow[-1]] * units[0, slow[-1]].conj())
        step += wrapped(angle - step * cell * fastest) / (cell * fastest)
    return float(start), float(step)


def _axes_as_text(grid: Grid) -> str:
    axes = [
        f"axis {axis} from {float(start):.6g} in steps of {float(step):.6g}"
        for axis, (start, step) in enumerate(zip(grid.start, grid.step, strict=True))
    ]
    return " and ".join(axes)


def additive_suspects(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects to try, the simple ones first."""
    return of_sources(
        spec,
        seen,
        other_specs,
        other_exponents,
        wrong_sums,
        measured,
        wrong_places,
        other_cells,
        wrong_arithmetic,
        resized_otherwise,
        additive_stateful,
    )


def further_suspects(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with unusual measured or recognised parameters, tried if no simple one fits."""
    return of_sources(spec, seen, *((recognised,) if seen.specs else (measured, other_cells)))
