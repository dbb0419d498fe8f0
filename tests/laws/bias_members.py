"""Every bias as rows of its law table, each with the laws that it breaks by nature."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.encodings.biases import (
    Alibi,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Slopes,
    Window,
)
from clockhands.testing.laws import BiasSubject

DIAGONALS = {"constant along diagonals"}
ZERO = {"zero where a token meets itself"}
FALLS = {"falls with the distance"}
ALONE = {"a key is by itself"}
MASK = {"masked only when asked"}
HEADS = {"heads differ"}
TABLE = ZERO | FALLS
PLANE = TABLE | DIAGONALS | MASK


@dataclass(frozen=True)
class Member:
    """A row: a bias, others that differ from it in one thing, and the laws that it breaks by nature."""

    spec: Any
    others: tuple[Any, ...]
    breaks: frozenset[str] = frozenset()
    positions: range = range(2**41)
    tolerance: float = 2.0**-22

    @property
    def name(self) -> str:
        return ch.to_json(self.spec)


def member(spec: Any, *others: Any, breaks: set[str] | None = None, **further: Any) -> Member:
    return Member(spec, others, frozenset(breaks or ()), **further)


MEMBERS = (
    member(Alibi(8), Alibi(8, "key"), Alibi(8, "past"), Alibi(8, octaves=4.0), Alibi(12)),
    member(Alibi(12), Alibi(12, series="plain"), Alibi(12, "symmetric")),
    member(Alibi(1), Alibi(2), Decay(1)),
    member(Alibi(5, "past"), Alibi(5)),
    member(Alibi(8, "symmetric"), Alibi(8)),
    # The same in each row: not a function of the distance, and zero at the first key instead of the own.
    member(Alibi(8, "key"), Alibi(8, "last-key"), breaks=DIAGONALS | ZERO),
    member(Alibi(20, "last-key"), Alibi(20, "key"), breaks=DIAGONALS | ZERO | ALONE),
    member(Decay(4), Decay(4, first=6)),
    member(Slopes((0.5, 0.125, 3.0)), Slopes((0.5, 0.125, 2.0)), Slopes((0.5, 0.125, 3.0), "past")),
    member(Slopes((0.25, 0.75), "symmetric"), Slopes((0.25, 0.75))),
    member(Buckets(4), Buckets(4, bidirectional=False), Buckets(4, max_distance=64), breaks=TABLE),
    member(
        Buckets(4, 32, 128, bidirectional=False, epsilon=2.0**-23, scale=8.0),
        Buckets(4, 32, 128, bidirectional=False, epsilon=2.0**-23),
        breaks=TABLE,
    ),
    member(CeilingBuckets(4, 8, 32), CeilingBuckets(4, 8, 33), breaks=TABLE),
    member(Clipped(4, 16), Clipped(4, 17), breaks=TABLE),
    member(Kerple(4), Kerple(4, "power"), Kerple(4, symmetric=True)),
    member(Kerple(4, "power"), Kerple(4, "power", symmetric=True)),
    # A sum of nine products of either sign: as many roundings, of terms that may be larger than it.
    member(Fire(4, 8), Fire(4, 8, epsilon=1e-3), breaks=DIAGONALS | TABLE, tolerance=2.0**-20),
    member(Window(3, 5, 8), Window(3, 8, 5), breaks=PLANE, positions=range(40)),
    member(Window(3, 3, 13, class_token=True), Window(3, 5, 8), breaks=PLANE, positions=range(40)),
    member(LogWindow(3, 5, 8, hidden=16), LogWindow(3, 5, 8, (7, 7), 16), breaks=PLANE, positions=range(40)),
)


def values_for(spec: Any) -> dict[str, np.ndarray] | None:
    """Some learned numbers, the same for the same spec, of the sizes that training gives them."""
    draw = np.random.default_rng(7)
    made = {name: draw.uniform(0.1, 1.0, shape).astype(np.float32) for name, shape in spec.shapes.items()}
    for name in made.keys() & {"w1", "w2", "table"}:
        made[name] = draw.standard_normal(made[name].shape).astype(np.float32)
    if "threshold" in made:
        made["threshold"] = np.float32(16.0)
    return made or None


def subject_of(row: Member, backend: Any) -> BiasSubject:
    """The row as an implementation in one array library, NumPy arrays in and out."""

    def subject(spec: Any, others: tuple[BiasSubject, ...] = ()) -> BiasSubject:
        known = values_for(spec)
        values = known and {name: backend.asarray(array, "float32") for name, array in known.items()}

        def bias(queries: np.ndarray, keys: np.ndarray, causal: bool) -> np.ndarray:
            made = ch.bias(spec, queries, keys, values=values, causal=causal)
            return made if isinstance(made, np.ndarray) else backend.to_numpy(made)

        return BiasSubject(spec, bias, others, row.positions, row.tolerance)

    return subject(row.spec, tuple(subject(other) for other in row.others))
