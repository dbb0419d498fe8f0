"""Additive suspects whose parameter was measured: another base, another scale, an offset, another unit."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.faults.adding import hands_of
from clockhands.faults.additive_seen import Seen
from clockhands.faults.fault import Suspect
from clockhands.ladders import Geometric

BASES = (1e2, 1e3, 1e4, 1e5, 5e5, 1e6)
# Turns for radians, shares of a thousand steps, pixels for halves of them.
FACTORS = (2 * math.pi, math.pi, 1 / (2 * math.pi), 1 / math.pi, 2.0, 0.5, 1000.0, 0.001)
_CHANNELS = 64


def measured(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Suspects by what was measured, and by what is usual where it was not."""
    yield from _scales(spec, seen)
    hands = hands_of(spec, seen.values)
    rates = None if hands is None else seen.rates(hands)
    if rates is not None:
        assert hands is not None
        own = hands.rates[0][hands.pairs[:, 0]]
        yield from _bases(spec, seen, np.abs(rates), own)
        yield from _units(seen, np.abs(rates), own)
    elif isinstance(getattr(spec, "spacing", None), Geometric):
        yield from _of_bases(spec, seen, iter(BASES))
    if hands is not None:
        for factor in FACTORS:
            yield _scaled(seen, factor)
    yield from _offsets(spec, seen)


def _scales(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Another factor of the code, of the tokens, or of both."""
    share, declared = seen.share(), seen.adding(spec).scale
    known = {1.0, 2.0, 1 / declared if declared else 1.0}
    together = seen.token_scale != 1 and share is not None and abs(share - seen.token_scale) < 1e-3 * seen.token_scale
    if together:
        # Multiplied with the tokens, after the code was added.
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
    for factor in (*(one for one in (1.0, root, 1 / root, seen.token_scale**2)), *_rounded(seen.factor, True)):
        if abs(factor - seen.factor) < 1e-2 * abs(factor):
            parameters = {"factor": factor, "declared": seen.token_scale}
            yield seen.suspect("tokens-scaled", parameters, token_scale=factor)
            ratio = factor / seen.token_scale
            yield seen.suspect(
                "sum-scaled", {"factor": ratio}, add=lambda x, rows, scale, ratio=ratio: ratio * (scale * x + rows)
            )


def _rounded(number: float, fine: bool) -> dict[float, None]:
    return dict.fromkeys(float(f"{number:.{digits}e}") for digits in ((1, 2, 4, 12) if fine else (1, 2)))


def _bases(spec: Any, seen: Seen, rates: np.ndarray, own: np.ndarray) -> Iterator[Suspect]:
    if not isinstance(getattr(spec, "spacing", None), Geometric):
        return
    exponents = -np.log(np.maximum(own, 1e-300) / spec.spacing.multiplier) / np.log(spec.spacing.base)
    there = (exponents > 0) & (rates > 0)

    def found() -> Iterator[float]:
        if there.any():
            logarithms = -np.log(rates[there] / spec.spacing.multiplier) / exponents[there]
            for logarithm in (logarithms[0], np.median(logarithms), logarithms[-1]):
                base = float(np.exp(logarithm)) if abs(logarithm) < 70 else 1.0
                if base != 1 and base > 0:
                    yield from (float(f"{base:.{digits}e}") for digits in ((4, 6, 15) if seen.fine else (1, 3)))
        yield from BASES

    yield from _of_bases(spec, seen, found())


def _of_bases(spec: Any, seen: Seen, bases: Iterator[float]) -> Iterator[Suspect]:
    for base in dict.fromkeys(bases):
        if base != spec.spacing.base:
            yield seen.another(
                "another-base",
                {"base": base, "declared": spec.spacing.base},
                lambda it, base=base: replace(it, spacing=replace(it.spacing, base=base)),
            )


def _units(seen: Seen, rates: np.ndarray, own: np.ndarray) -> Iterator[Suspect]:
    turns = own > 0
    ratio = float(np.median(rates[turns] / own[turns])) if turns.any() else 0.0
    if ratio > 0 and abs(ratio - 1) > 1e-4:
        plain = (float(f"{ratio:.3g}"), 1 / float(f"{1 / ratio:.3g}"))
        for factor in dict.fromkeys((ratio,) if seen.fine else plain):
            yield _scaled(seen, factor)


def _scaled(seen: Seen, factor: float) -> Suspect:
    return seen.suspect("positions-scaled", {"factor": factor}, places=lambda at, _: at * factor)


def _offsets(spec: AdditiveCode, seen: Seen, reach: int = 8192) -> Iterator[Suspect]:
    """By how many rows it stands off: the first two rows tell."""
    if spec.number_of_axes > 1 or len(seen.positions) < 2 or not np.isfinite(seen.rows[:2]).all():
        return
    offsets = np.arange(-reach, reach + 1)
    adding = seen.adding(spec)
    if adding.hands is not None:
        some = np.unique(np.linspace(0, spec.width - 1, _CHANNELS).astype(int))
        part = replace(
            adding.hands,
            **{name: getattr(adding.hands, name)[..., some] for name in ("rates", "offsets", "quarters", "raw")},
        )
        adding.hands = part
    else:
        some = np.arange(spec.width)
    off = np.zeros(len(offsets))
    for place, row in zip(seen.positions[:2], seen.rows[:2, some], strict=True):
        made = adding.rows((place + offsets).astype(np.float64), None)  # type: ignore[arg-type]
        off += np.where(np.isfinite(made), (made - row) ** 2, 4.0).sum(axis=1)
    for offset in offsets[np.argsort(off, kind="stable")[:2]]:
        if offset:
            yield seen.suspect(
                "positions-offset",
                {"offset": int(offset)},
                places=lambda at, _, offset=int(offset): at + offset,
            )
