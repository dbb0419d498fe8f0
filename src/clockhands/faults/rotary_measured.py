"""Rotary suspects whose parameter was measured: a base, a factor, an offset."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from clockhands.faults.fault import Suspect
from clockhands.faults.rotary_specs import told_apart, told_by_fields
from clockhands.faults.turning import Turning, another, built
from clockhands.ladders import Geometric
from clockhands.rotary import Rotary
from clockhands.scaling import Linear

BASES = (1e2, 1e3, 1e4, 2.5e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 5e6, 8e6, 1e7)


@dataclass(frozen=True)
class Seen:
    """What was measured of an implementation before suspects are tried.

    Attributes:
        dtype: The dtype of its tokens.
        coarse: The coarser dtype that it was asked in too, or None.
        length: Positions that it was asked for.
        first_wrong: The first position at which it is wrong, or None.
        positions: Where its turning was measured, [n], without repetition.
        turning: What each pair was multiplied by there, complex [n, pairs], as the declared pairs have it.
        pairwise: Whether that is what happened: pairs were turned or stretched, and nothing else.
        specs: Codes that it was recognised as.
        axes: Which of batch and heads its tokens have.
        stands: Where its tokens seem to stand, for each of the positions; None where that is not seen.
    """

    dtype: str
    coarse: str | None
    length: int
    first_wrong: int | None
    positions: np.ndarray
    turning: np.ndarray
    pairwise: bool
    specs: tuple[Rotary, ...] = ()
    axes: tuple[str, ...] = ()
    stands: np.ndarray | None = None

    def rates(self) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None where that is not seen."""
        if not self.pairwise:
            return None
        at = {int(place): np.angle(row) for place, row in zip(self.positions, self.turning, strict=True)}
        if 0 not in at or 1 not in at:
            return None
        rates, known = wrapped(at[1] - at[0]), 1
        for place in sorted(at):
            if known < place <= 4 * known:
                rates = rates + wrapped(at[place] - at[0] - place * rates) / place
                known = place
        return rates

    def evenly(self) -> bool:
        """Whether each pair turns by one angle more with each token."""
        rates = self.rates()
        if rates is None:
            return False
        start = self.turning[self.positions == 0][0]
        turned = start * np.exp(1j * self.positions[:, None] * rates)
        return bool(np.abs(turned - self.turning).max() <= 0.05 * max(np.abs(start).max(), 1e-30))

    def apparent(self, spec: Rotary) -> np.ndarray | None:
        """The position below the length whose turning comes nearest to what was seen at each position."""
        if not self.pairwise or spec.axes is not None or not len(self.positions):
            return None
        if not np.isfinite(self.turning).all():
            return None
        sign = -1 if spec.direction == "backward" else 1
        reach = np.arange(self.length)
        known = np.exp(1j * sign * reach[:, None] * np.array(spec.rates))
        seen = self.turning / np.maximum(np.abs(self.turning), 1e-30)
        off = np.stack([np.abs(known - row).max(axis=1) for row in seen])
        return np.where(off.min(axis=1) < 0.05, np.argmin(off, axis=1), -1)

    def ends(self) -> tuple[int, ...]:
        """The last position that something seems to stand at, where all later ones seem to stand there too."""
        if self.stands is None or len(self.stands) < 3 or (last := int(self.stands[-1])) <= 0:
            return ()
        late = (self.stands == last) & (self.positions > last)
        return (last,) if late.sum() >= 3 else ()

    def size(self) -> float | None:
        """What every pair is multiplied by, if it is one number."""
        sizes = np.abs(self.turning)
        if not self.pairwise or not sizes.size or np.ptp(sizes) > 0.01 * np.median(sizes):
            return None
        return float(np.median(sizes))


def measured(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Faults whose parameter was measured."""
    size = seen.size()
    # A length is known to what rounding leaves of the median of all.
    least = 1e-5 if seen.dtype in ("float32", "float64") else 1e-3
    if size is not None and abs(size - spec.attention_factor) > least * size:
        parameters = {"factor": size, "declared": spec.attention_factor}
        yield Suspect(("attention-factor",), parameters, built(lambda it: Turning(it, factor=size)))
    bases = list(BASES)
    rates = seen.rates()
    if rates is not None and isinstance(spec.spacing, Geometric):
        bases = [*_bases(spec, np.abs(rates)), *bases]
        yield from _slowed_alike(spec, np.abs(rates))
        yield from _scaled_positions(spec, np.abs(rates))
        yield from _offsets(spec, seen)
        # The right code, but for a factor that was measured too.
    if isinstance(spec.spacing, Geometric):
        declared = spec.spacing.base
        for base in dict.fromkeys(bases):
            # One this near is a measured right one.
            if abs(base / declared - 1) > 1e-3:
                yield another(
                    "another-base",
                    {"base": base, "declared": declared},
                    lambda it, base=base: replace(it, spacing=replace(it.spacing, base=base)),
                )
    for other in seen.specs:
        if other != spec and isinstance(other, Rotary):
            code, parameters = told_by_fields(spec, other)
            yield another(code, parameters, lambda _, other=other: other)


def _bases(spec: Rotary, rates: np.ndarray) -> Iterator[float]:
    """Bases by the measured rates: by the pairs that a scaling leaves, and by all."""
    assert isinstance(spec.spacing, Geometric)
    plain = replace(spec, scaling=None, length=None)
    exponents = -np.log(np.maximum(np.array(plain.rates), 1e-300)) / np.log(spec.spacing.base)
    own = (exponents > 0) & (rates > 0)
    if not own.any():
        return
    kept = np.array(spec.rates) / np.maximum(np.array(plain.rates), 1e-300)
    for numbers in (rates / np.where(kept > 0, kept, 1.0), rates):
        logarithms = -np.log(np.maximum(numbers[own], 1e-300)) / exponents[own]
        for logarithm in (logarithms[0], np.median(logarithms), logarithms[-1]):
            base = float(np.exp(min(logarithm, 70.0)))
            if 1 < base < 1e30:
                for digits in (2, 4, 7):
                    yield float(f"{base:.{digits - 1}e}")
                yield base


def _slowed_alike(spec: Rotary, rates: np.ndarray) -> Iterator[Suspect]:
    """Every plain rate is divided by one number, where the scaling does something else."""
    if spec.scaling is None:
        return
    plain = np.array(replace(spec, scaling=None, length=None).rates)
    turning = (plain > 0) & (rates > 0)
    factor = float(np.median(plain[turning] / rates[turning])) if turning.any() else 1.0
    if not 1.001 < factor < 1e6:
        return
    for one in dict.fromkeys((float(f"{factor:.3g}"), factor)):
        if Linear(one) != spec.scaling:
            words = told_apart(spec.scaling, Linear(one))
            yield another(
                "another-scaling",
                words,
                lambda it, one=one: it if it.scaling is None else replace(it, scaling=Linear(one)),
            )


def _scaled_positions(spec: Rotary, rates: np.ndarray) -> Iterator[Suspect]:
    own = np.array(spec.rates)
    turns = own > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = rates[turns] / own[turns]
    ratio = float(np.median(ratios))
    if 1e-9 < ratio < 1e9 and abs(ratio - 1) > 1e-4:
        for factor in dict.fromkeys((float(f"{ratio:.3g}"), 1 / float(f"{1 / ratio:.3g}"), ratio)):
            yield Suspect(
                ("positions-scaled",),
                {"factor": factor},
                built(lambda it, factor=factor: Turning(it, places=lambda at, _: at * factor)),
            )


def _offsets(spec: Rotary, seen: Seen, reach: int = 8192) -> Iterator[Suspect]:
    """By how many tokens it stands off: the turning where position 0 stands tells."""
    where = np.flatnonzero(seen.positions == 0)
    if spec.axes is not None or not len(where):
        return
    row = seen.turning[where[0]]
    row = row / np.maximum(np.abs(row), 1e-30)
    sign = -1 if spec.direction == "backward" else 1
    offsets = np.arange(-reach, reach + 1)
    off = np.abs(np.exp(1j * sign * offsets[:, None] * np.array(spec.rates)) - row).max(axis=1)
    for offset in offsets[np.argsort(off, kind="stable")[:2]]:
        if offset:
            yield Suspect(
                ("positions-offset",),
                {"offset": int(offset)},
                built(lambda it, offset=offset: Turning(it, places=lambda at, _: at + offset)),
            )


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles within half a turn of 0."""
    return (angles + np.pi) % (2 * np.pi) - np.pi
