"""Every public spec class as rows of the law table, each with the laws that it breaks by nature."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import (
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric, Repeated
from clockhands.testing import Law, Subject, broken

# How many cells of a table are drawn for each library but NumPy: JAX compiles every operation for every shape.
DRAWN = {"torch": 30, "jax": 4, "array_api_strict": 30}
other_libraries = pytest.mark.parametrize("any_backend", DRAWN, indirect=True)
SHIFTS = {"shift is a rotation", "shifts compose", "kernel of distance"}
NO_SHIFT = SHIFTS | {"shifted by one matrix"}


@dataclass(frozen=True)
class Member:
    """A row: a spec, others that differ from it in one thing, and the laws that it breaks by nature."""

    spec: Any
    others: tuple[Any, ...]
    breaks: frozenset[str] = frozenset()
    positions: range = range(-(2**31), 2**31)
    values: np.ndarray | None = None
    # Beyond the bound of clocks: for codes whose numbers are not of size 1, half an ulp of the largest.
    tolerance: float = 2.0**-25 * 1.01

    @property
    def name(self) -> str:
        return ch.to_json(self.spec)


def member(spec: Any, *others: Any, breaks: set[str] = frozenset(), **further: Any) -> Member:  # type: ignore[assignment]
    return Member(spec, others, frozenset(breaks), **further)


RATES = np.random.default_rng(21).standard_normal((2, 4)) / 16
ROWS = np.random.default_rng(20).standard_normal((96, 8))

MEMBERS = (
    member(
        ch.Sinusoidal(8),
        ch.Sinusoidal(8, base=500.0),
        ch.Sinusoidal(8, layout="halves"),
        ch.Sinusoidal(8, order="cos-sin"),
        ch.Sinusoidal(8, spacing=Geometric(span="closed")),
        ch.Sinusoidal(8, spacing=Geometric(multiplier=2.0)),
        ch.Sinusoidal(8, zero_rows=(1,)),
    ),
    member(ch.Sinusoidal(8, layout="halves", order="cos-sin"), ch.Sinusoidal(8, layout="halves")),
    member(ch.Sinusoidal(6, base=50.0, order="cos-sin"), ch.Sinusoidal(6, base=51.0, order="cos-sin")),
    member(ch.Sinusoidal(2), ch.Sinusoidal(2, order="cos-sin")),
    member(
        ch.Sinusoidal(8, spacing=Explicit((0.5, 7.0, 65.3, 1_000.0))), ch.Sinusoidal(8, spacing=EvenSteps(0.0, 1.0))
    ),
    # A column of zeros is moved by any matrix, but no rotation of pairs stands there.
    member(
        ch.Sinusoidal(7, layout="halves", odd="zero", spacing=Geometric(span="closed")),
        ch.Sinusoidal(7, layout="halves", odd="zero"),
        breaks={"shift is a rotation"},
    ),
    member(ch.Sinusoidal(7, odd="extra"), ch.Sinusoidal(7, odd="cut"), breaks=NO_SHIFT),
    member(ch.Sinusoidal(7, odd="cut"), ch.Sinusoidal(7, odd="extra", layout="halves"), breaks=NO_SHIFT),
    # The zero row does not lie on the clock.
    member(
        ch.Sinusoidal(8, zero_rows=(1, 8)),
        ch.Sinusoidal(8, zero_rows=(1,)),
        breaks={"shifted by one matrix", "shift is a rotation", "kernel of distance"},
        positions=range(64),
    ),
    # Funnel's tables, and SAM 2's rates.
    member(ch.Sinusoidal(8, order="-sin-cos"), ch.Sinusoidal(8), ch.Sinusoidal(8, order="cos-sin")),
    member(ch.Sinusoidal(8, order="cos--sin", layout="halves"), ch.Sinusoidal(8, order="cos-sin", layout="halves")),
    member(ch.Sinusoidal(8, order="sin-sin"), ch.Sinusoidal(8), breaks=NO_SHIFT),
    member(ch.Sinusoidal(8, order="cos-cos"), ch.Sinusoidal(8, order="sin-sin"), breaks=NO_SHIFT),
    member(ch.Sinusoidal(8, spacing=Repeated(Geometric())), ch.Sinusoidal(8)),
    # The kernel is that of the clock, before the scale.
    member(ch.Sinusoidal(8, scale=0.5), ch.Sinusoidal(8), breaks={"kernel of distance"}),
    # A mean is taken from every number; the fixed matrix that is found needs one more column, of ones.
    member(
        ch.Sinusoidal(8, standardised=64, scale=0.1),
        ch.Sinusoidal(8, standardised=65, scale=0.1),
        ch.Sinusoidal(8, scale=0.1),
        breaks=NO_SHIFT,
    ),
    member(
        AxialSinusoidal(16),
        AxialSinusoidal(16, channels="axis-rate-wave"),
        AxialSinusoidal(16, channels="wave-axis-rate"),
        AxialSinusoidal(16, base=500.0),
        AxialSinusoidal(16, (1, 3)),
        AxialSinusoidal(16, order="cos-sin"),
        AxialSinusoidal(16, spacing=(Geometric(), Geometric(500.0))),
    ),
    member(AxialSinusoidal(32, (1, 2, 1), channels="rate-wave-axis"), AxialSinusoidal(32, (1, 2, 1))),
    member(AxialSinusoidal(32, (1, 1, 1, 1), order="-sin-cos"), AxialSinusoidal(32, (1, 1, 1, 1))),
    member(AxialSinusoidal(8, (1,), channels="rate-axis-wave"), AxialSinusoidal(8, (1,))),
    # Columns of zeros are moved by any matrix, but no rotation of pairs stands there.
    member(AxialSinusoidal(10, uneven="zero"), AxialSinusoidal(10, uneven="cut"), breaks={"shift is a rotation"}),
    # The last pair is cut off as a whole, and the other channels are pairs.
    member(AxialSinusoidal(10, uneven="cut", channels="axis-rate-wave"), AxialSinusoidal(10, uneven="zero")),
    member(AxialSinusoidal(11, uneven="cut", channels="axis-rate-wave"), breaks=NO_SHIFT),
    member(
        AxialSinusoidal(14, (1, 1), 0.5, raw="before", channels="rate-wave-axis"),
        AxialSinusoidal(14, (1, 1), 0.5, raw="after", channels="rate-wave-axis"),
        breaks={"bounded", *NO_SHIFT},
        positions=range(-64, 64),
    ),
    # Any rates make a clock, but the spec does not hold them.
    member(
        FourierFeatures(8, 2, 1.0),
        FourierFeatures(8, 2, 2.0),
        FourierFeatures(8, 2, 1.0, layout="interleaved"),
        FourierFeatures(8, 2, 1.0, order="cos-sin"),
        breaks=SHIFTS,
        values=RATES,
    ),
    member(FourierFeatures(8, 1, layout="interleaved"), breaks=SHIFTS, values=RATES[0]),
    member(FourierFeatures(4, 1, order="cos", offsets=True), breaks=NO_SHIFT, values=RATES),
    member(SingleFrequency(4, 0.7), SingleFrequency(4, 0.6), SingleFrequency(4, 0.7, layout="halves")),
    member(EvenlySpaced(8), EvenlySpaced(8, last_rate=0.5), EvenlySpaced(8, order="cos-sin")),
    member(SineOnly(8), SineOnly(8, base=500.0), breaks=NO_SHIFT),
    member(
        WarpedPosition(8, "log"),
        WarpedPosition(8, "square"),
        WarpedPosition(8, "reciprocal"),
        breaks=NO_SHIFT,
        positions=range(1, 4_096),
        tolerance=2.0**-24,
    ),
    member(WarpedPosition(8, "square"), WarpedPosition(8, "log"), breaks=NO_SHIFT, positions=range(1, 2**31)),
    member(WarpedPosition(8, "reciprocal", base=10.0), breaks=NO_SHIFT, positions=range(1, 4_096)),
    member(Binary(8), Counter(8), breaks=NO_SHIFT, positions=range(2_048)),
    member(Counter(8), NormalizedCounter(8, 99), breaks={"bounded", *NO_SHIFT}, positions=range(4_096), tolerance=0.0),
    member(NormalizedCounter(8, 4_096), NormalizedCounter(8, 100), breaks=NO_SHIFT, positions=range(4_096)),
    member(ch.NoPosition(8), Counter(8), breaks=NO_SHIFT),
    member(
        ch.Learned(8, rows=96, offset=2),
        ch.Learned(8, rows=96),
        breaks={"bounded", *NO_SHIFT},
        positions=range(94),
        values=ROWS,
    ),
    # Padding stands at -1, before the first token.
    member(
        ch.Learned(8, rows=96, offset=2, padding_row=1),
        ch.Learned(8, rows=96, offset=3, padding_row=2),
        breaks={"bounded", *NO_SHIFT},
        positions=range(-1, 93),
        values=ROWS,
    ),
    # The kernel is that of the clock, before the trained scale.
    member(
        ch.Sinusoidal(8, scaled=True),
        ch.Sinusoidal(8, scaled=True, layout="halves"),
        ch.Sinusoidal(8),
        breaks={"kernel of distance"},
        values=np.array(0.5),
    ),
)


def subject_of(row: Member, backend: Any) -> Subject:
    """The row as an implementation in one array library, NumPy arrays in and out."""

    def applied(spec: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        values = row.values if spec.learned else None

        def apply(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return backend.to_numpy(ch.add(backend.asarray(x, x.dtype.name), spec, positions, values=values))

        return apply

    def subject(spec: Any, others: tuple[Subject, ...] = ()) -> Subject:
        coarse = None if backend.name == "array_api_strict" else np.float16
        return Subject(spec, applied(spec), others, row.positions, row.tolerance, coarse=coarse)

    return subject(row.spec, tuple(subject(other) for other in row.others))


def judge(row: Any, law: Law, subject: Any) -> None:
    """The law holds, or is broken where the row says so."""
    how = broken(law, subject)
    if law.name in row.breaks:
        assert how, f"{row.name} is said to break the law {law.name!r} by nature, and keeps it"
    else:
        assert how is None, how
