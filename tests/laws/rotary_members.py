"""The rotary rows of the law table."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric, Joined
from clockhands.encodings.rotary import XPos, alternating, chunked, interleaved, rotate
from clockhands.encodings.scaling import Linear, Llama3, LongRope, MixedNtk, Proportional, Yarn
from clockhands.testing import Subject

FAR = range(-(2**40), 2**40 + 1)
# Two products and a sum of a cosine and a sine that are rounded to float32, as a share of the largest channel.
TOLERANCE = 2.0**-22
REORDERED = frozenset(
    {"position zero is the identity", "the inverse is the negative position", "layouts agree under the permutation"}
)


@dataclass(frozen=True)
class RotaryMember:
    """A row: a spec, others that differ from it in one thing, and the laws that it breaks by nature."""

    spec: ch.Rotary
    others: tuple[ch.Rotary, ...]
    breaks: frozenset[str] = frozenset()
    positions: range = FAR
    tolerance: float = TOLERANCE

    @property
    def name(self) -> str:
        return ch.describe(self.spec)


def other_layout(spec: ch.Rotary) -> ch.Rotary:
    layout: Any = {"halves": "interleaved", "interleaved": "halves"}[spec.layout]
    return replace(spec, layout=layout, reordered=False)


def member(spec: ch.Rotary, *others: ch.Rotary, breaks: Any = (), positions: range = FAR) -> RotaryMember:
    # Two channels are one pair in either layout.
    twins = (other_layout(spec),) if spec.rotated > 2 else ()
    return RotaryMember(spec, (*twins, *others), frozenset(breaks), positions)


ROTARY_MEMBERS = (
    member(
        ch.Rotary(8),
        ch.Rotary(8, base=500.0),
        ch.Rotary(8, spacing=Geometric(span="closed")),
        ch.Rotary(8, spacing=Geometric(multiplier=2.0)),
        ch.Rotary(8, rotated=4),
        ch.Rotary(8, rotated=4, part="last"),
        ch.Rotary(8, blocks=(2, 2)),
        ch.Rotary(8, direction="backward"),
        ch.Rotary(8, scaling=Linear(2.0)),
    ),
    member(ch.Rotary(8, "interleaved", base=500_000.0), ch.Rotary(8, "interleaved", base=500_000.0, reordered=True)),
    member(ch.Rotary(2, direction="backward"), ch.Rotary(2, spacing=EvenSteps(0.5, 1.0))),
    member(ch.Rotary(12, rotated=8), ch.Rotary(12, rotated=8, spacing=Geometric(span=6.0))),
    # An odd width, so that the pairs start at an odd channel.
    member(ch.Rotary(9, "interleaved", rotated=6, part="last"), ch.Rotary(9, "interleaved", rotated=6)),
    member(
        ch.Rotary(16, rotated=12, scaling=Yarn(8.0, 4_096)),
        ch.Rotary(16, rotated=12, scaling=Yarn(8.0, 4_096, attention_factor=1.0)),
        ch.Rotary(16, rotated=12, scaling=Llama3(8.0, 8_192)),
        ch.Rotary(16, rotated=12, scaling=Proportional(0.5)),
        ch.Rotary(16, rotated=12, scaling=MixedNtk(4.0, 0.5)),
    ),
    member(
        ch.Rotary(8, "interleaved", scaling=LongRope((1.0,) * 4, (1.0, 2.0, 3.0, 4.0), 4_096, 32.0), length=8_192),
        ch.Rotary(8, "interleaved", scaling=LongRope((1.0,) * 4, (1.0, 2.0, 3.0, 4.0), 4_096, 32.0), length=4_096),
    ),
    member(ch.Rotary(8, spacing=Explicit((7.0, 65.3, 1_000.25, 0.0))), ch.Rotary(8, spacing=EvenSteps(0.0, 1.0))),
    member(
        ch.Rotary(16, axes=chunked([2, 3, 3])),
        ch.Rotary(16, axes=interleaved([4, 2, 2])),
        ch.Rotary(16, axes=alternating(8, 3)),
        ch.Rotary(16, axes=(0, 0, 1, 1, 1, 2, 2, 2), scaling=Linear(2.0)),
    ),
    member(
        ch.Rotary(
            18,
            "interleaved",
            rotated=16,
            part="last",
            axes=interleaved([4, 4]),
            spacing=Joined(((4, Geometric(100.0)), (4, Geometric())), in_turns=True),
        ),
        ch.Rotary(18, "interleaved", rotated=16, part="last", axes=chunked([4, 4])),
    ),
    member(
        ch.Rotary(16, axes=chunked([4, 4]), blocks=(4, 4), direction="backward"),
        ch.Rotary(16, axes=chunked([4, 4]), direction="backward"),
    ),
    member(
        ch.Rotary(12, "interleaved", rotated=8, reordered=True),
        ch.Rotary(12, "interleaved", rotated=8),
        breaks=REORDERED,
    ),
    # A decay of the scores with distance: what is turned shrinks or grows.
    member(
        ch.Rotary(8, "interleaved", xpos=XPos()),
        ch.Rotary(8, "interleaved"),
        ch.Rotary(8, "interleaved", xpos=XPos(scale=256)),
        ch.Rotary(8, "interleaved", xpos=XPos(smoothing=0.5)),
        breaks={"norms are kept"},
        positions=range(-4_096, 4_097),
    ),
    member(
        ch.Rotary(8, xpos=XPos(scale=1_024.0, centre=100.0)),
        ch.Rotary(8, xpos=XPos(scale=1_024.0)),
        breaks={"norms are kept", "position zero is the identity", "the inverse is the negative position"},
        positions=range(-4_096, 4_097),
    ),
)


def rotary_subject_of(row: RotaryMember, backend: Any, turn: Callable[..., Any] = rotate) -> Subject:
    """The row as an implementation in one array library, NumPy arrays in and out."""

    def applied(spec: ch.Rotary, role: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        chosen = None if spec.xpos is None else role

        def apply(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return backend.to_numpy(turn(backend.asarray(x, x.dtype.name), spec, positions, role=chosen))

        return apply

    def subject(spec: ch.Rotary, others: tuple[Subject, ...] = ()) -> Subject:
        apply, keys = applied(spec, "query"), applied(spec, "key")
        coarse = None if backend.name == "array_api_strict" else np.float16
        return Subject(spec, apply, others, row.positions, row.tolerance, keys, coarse)

    # That specs are told apart is seen by one library as well as by all; each costs JAX a compilation.
    others = row.others if backend.name == "numpy" else row.others[:2]
    return subject(row.spec, tuple(subject(other) for other in others))
