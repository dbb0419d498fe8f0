"""A rotary function under test, what is expected of it, and the experiments on it."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.errors import ClockhandsError
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.recognition.suspects import FaultModel, StagedRotary
from clockhands.testing._experiments import ROWS, Answer, Unasked, experiment
from clockhands.testing.bounds import SINGLE, UNIT, rotation_error
from clockhands.testing.functions._tokens import (
    CheckedTokens,
    a_few_positions,
    beside_each_other,
    positions_of_their_own,
    token_experiments,
)

KEYS_UP_TO = 300
SHORT = 512
"""The positions of a short sequence."""


@dataclass(frozen=True)
class OneSide:
    """A suspect for queries only or for keys only; the other side is rotated correctly."""

    right: Any
    apply: Any
    side: str

    def __call__(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """See `StagedRotary`."""
        return (self.apply if (role or "query") == self.side else self.right)(x, at, dtype, role)


@dataclass(frozen=True)
class FromPosition:
    """A suspect for positions from one on; earlier ones are rotated correctly."""

    right: Any
    apply: Any
    first: int

    def __call__(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """See `StagedRotary`."""
        later = (at >= self.first)[..., None, :, None]
        return np.where(later, self.apply(x, at, dtype, role), self.right(x, at, dtype, role))


@dataclass
class CheckedRotary(CheckedTokens):
    """A rotary function under test, or a suspect in its place."""

    gets_whole_sequences = True
    coordinate_rows = 24
    packed = (np.arange(8), np.arange(5), np.arange(3, 11), np.array([9, 2, 2, 6]), np.arange(15))
    again = ("the first tokens again", SHORT, 21)

    @property
    def coordinates(self) -> int | None:
        """See `CheckedTokens`."""
        return None if self.spec.axes is None else self.spec.number_of_axes

    def later_runs(self) -> list[tuple[str, np.ndarray]]:
        """See `CheckedTokens`."""
        number = min(ROWS, self.length - min(5, self.length // 2))
        starts = (min(5, self.length // 2), max(self.length // 2 - number, 0))
        return [(f"{number} tokens from position {start}", np.arange(start, start + number)) for start in starts]

    def beside(self, *needed: str) -> tuple[int, int, str]:
        """See `CheckedTokens`; raises `Unasked` if both numbers are 1, or if an axis of ``needed`` is missing."""
        batch, heads = 3 if "batch" in self.axes else 1, self.called.heads if "heads" in self.axes else 1
        if batch * heads == 1 or not {*needed} <= {*self.axes}:
            missing = " or ".join(word for word in needed or ("batch", "heads") if word not in self.axes)
            raise Unasked(f"it is called without an axis of {missing} (pass axes= if it takes one)")
        words = [f"{batch} sequences"] * (batch > 1) + [f"{heads} heads"] * (heads > 1)
        return batch, heads, " of ".join(words)

    def coarse_positions(self, after: bool) -> np.ndarray:
        """See `CheckedTokens`."""
        return self.places(2000 if after else None)  # no more rows than a cache may hold

    def model_positions(self) -> np.ndarray:
        """See `CheckedTokens`."""
        return self.places(100)

    def few_positions(self, number: int) -> np.ndarray:
        """So many of the positions; of a rank's tokens the first ones."""
        part = self.called.part
        return self.places(number) if part is None else part.positions(number)

    def sibling(self, field: str) -> tuple[str, Rotary]:
        """See `CheckedTokens`."""
        spec: Rotary = self.spec
        if field == "base":
            if not isinstance(spec.spacing, Geometric):
                raise Unasked("its frequencies have no base")
            base = 1e6 if spec.spacing.base < 1e5 else 1e4
            what, fields = f"base {base:,.0f}", {"spacing": replace(spec.spacing, base=base)}
        elif field == "scaling":
            if spec.scaling is None:
                raise Unasked("it has no scaling")
            what, fields = "no scaling", {"scaling": None, "length": None}
        else:
            what, fields = "twice the width", {"head_width": 2 * spec.head_width, "rotated": 2 * spec.rotated}
        try:
            return what, replace(spec, **fields)
        except ClockhandsError as error:  # lists of factors or of axes are valid for one width only
            raise Unasked(f"there is no such encoding of {what}: {error.message}") from None

    def compared(
        self, x: np.ndarray, at: np.ndarray, dtype: str | None, role: str | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `CheckedTokens`; a suspect's expected output is its own."""
        got = self(x, at, dtype=dtype, role=role)
        if self.suspect is not None:
            return got, got, self._error_of_suspect(x, at, dtype or self.dtype)
        spec: Rotary = self.spec
        roles = None if spec.xpos is None else role or "query"
        return got, rotate(x, spec.at_original, at, role=roles), self._error(x, at, dtype or self.dtype, roles)

    def _error(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        spec, at = self.spec, np.asarray(at, np.float64)
        right = StagedRotary(spec)
        phases = right.phases(at)
        if spec.xpos is None:
            allowed = rotation_error(x, spec, _aligned(phases), dtype)
            return _reordered(allowed, spec) if spec.reordered else allowed
        growth = _aligned(np.broadcast_to(right.growth(at, role), phases.shape))
        first, second = spec.channels.T
        sizes = np.array(x)
        for channels in (first, second):
            sizes[..., channels] *= growth
        allowed = rotation_error(sizes, spec, _aligned(phases), dtype)
        if spec.reordered:
            allowed = _reordered(allowed, spec)
        # The exponent is computed in float32 with at most eight roundings: an error relative to the norm of the pair.
        lengths = np.hypot(sizes[..., first], sizes[..., second]) * spec.attention_factor
        lost = 8 * SINGLE * np.abs(np.log(np.maximum(growth, 1e-300))) * lengths
        for channels in (first, second):
            allowed[..., channels] += lost
        return allowed

    def _error_of_suspect(self, x: np.ndarray, at: np.ndarray, dtype: str) -> np.ndarray:
        """The bound of a suspect, if other pairs or higher frequencies make its errors larger; else 0.

        The user's function may have them too.
        """
        built = self.model.apply if isinstance(self.model, OneSide) else self.model
        if not isinstance(built, StagedRotary):
            return np.zeros(())
        if built.spec == self.spec and not built.rotation and not (built.rates > np.array(self.spec.rates)).any():
            return np.zeros(())
        allowed = rotation_error(x, built.spec, _aligned(built.phases(np.asarray(at, np.float64))), dtype)
        # The rotated pair may be in any dimension.
        return allowed if built.rotation is None else allowed.max(axis=-1, keepdims=True)

    def suspected(self, suspect: FaultModel, side: str | None = None) -> Self:
        """See `CheckedFunction`; with a ``side``, ``"key"`` or ``"query"``, the other side is correct."""
        if side is None:
            return super().suspected(suspect)
        make = suspect.make()
        return super().suspected(
            replace(suspect, make=lambda: lambda spec: OneSide(StagedRotary(spec), make(spec), side))
        )


def holds_tokens(value: Any, x: np.ndarray) -> bool:
    """Whether an argument of a call has the numbers of some tokens, in whatever order of axes."""
    if not hasattr(value, "shape") or math.prod(value.shape) != x.size:
        return False
    return np.array_equal(np.sort(as_numpy(value), axis=None), np.sort(x, axis=None))


def _aligned(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] if numbers.ndim == 3 else numbers


def _reordered(allowed: np.ndarray, spec: Rotary) -> np.ndarray:
    moved = allowed.copy()
    block = slice(spec.start, spec.start + spec.rotated)
    moved[..., block] = np.concatenate([allowed[..., block][..., ::2], allowed[..., block][..., 1::2]], axis=-1)
    return moved


def a_short_sequence(it: CheckedRotary) -> list[Answer]:
    """The first tokens that it sees, a few hundred, are rotated by position * frequency."""
    at = it.places(SHORT)
    return [it.answer("the first tokens of the check", it.tokens(1, 1, len(at), seed=21), at)]


def keys_as_well(it: CheckedRotary) -> list[Answer]:
    """Keys that stand beside queries are made of keys."""
    _keys_apart(it)
    at = it.places(KEYS_UP_TO)
    return [it.answer("keys", it.tokens(1, 1, len(at), seed=9), at, role="key")]


def keys_that_start_later(it: CheckedRotary) -> list[Answer]:
    """Keys that start later are rotated by their positions, not by their number in the call."""
    _keys_apart(it)
    words, at = it.later_runs()[0]
    return [it.answer(words.replace("tokens", "keys"), it.tokens(1, 1, len(at), seed=25), at, role="key")]


def keys_beside_each_other(it: CheckedRotary) -> list[Answer]:
    """Keys of several heads and sequences, at the same positions, are rotated alike."""
    _keys_apart(it)
    return beside_each_other(it, "key")


def keys_at_positions_of_their_own(it: CheckedRotary) -> list[Answer]:
    """Keys of sequences that have positions of their own get what each gets alone."""
    _keys_apart(it)
    return positions_of_their_own(it, "key")


def _keys_apart(it: CheckedRotary) -> None:
    if not it.called.shape.pairs and it.spec.xpos is None:
        raise Unasked("it treats queries and keys alike")
    if not it.called.shape.pairs and it.keys is None:
        raise Unasked("xPos treats keys differently: pass keys=, the function for them")


def after_a_longer_sequence(it: CheckedRotary) -> list[Answer]:
    """A sequence longer than those before leaves nothing behind."""
    original = getattr(it.spec.scaling, "original", None)
    if original is None:
        raise Unasked("its frequencies do not depend on the length")
    short = it.places(min(original, 512))
    # Above the original length the expected output depends on the length, so the function is compared with itself.
    between = np.array([0, 1, 5, original + original // 2])
    x = it.tokens(1, 1, len(between), seed=12)
    try:
        before = it(x, it.at_axes(between))
        it(x[:, :, :2], it.at_axes(np.array([0, 4 * original])))
        after = it(x, it.at_axes(between))
    except Refused as error:
        raise Unasked(f"position {4 * original:,} is refused: {error}") from None
    words = f"{between[-1] + 1:,} tokens, before and after {4 * original + 1:,}"
    # The difference of two answers of the same function, so that their common rounding errors cancel.
    allowed = 4 * UNIT[it.dtype] * np.abs(before) + 4 * UNIT[it.dtype]
    moved = after - before
    return [
        it.answer("short again", it.tokens(1, 1, len(short), seed=13), short),
        Answer(words, moved, np.zeros_like(moved), allowed, between),
    ]


def norms_are_kept(it: CheckedRotary) -> list[Answer]:
    """Rotation keeps the length of each pair, at every position."""
    if it.spec.xpos is not None:
        raise Unasked("the encoding has a decay")
    at = it.places()
    asked = it.answer("lengths of pairs", it.tokens(1, 1, len(at), seed=16), at)
    spec = it.spec.in_order
    block = slice(spec.start, spec.start + spec.rotated)

    def lengths(numbers: np.ndarray) -> np.ndarray:
        if it.spec.reordered:
            numbers = numbers.copy()
            inside = numbers[..., block]
            numbers[..., block] = np.stack(np.split(inside, 2, axis=-1), axis=-1).reshape(inside.shape)
        first, second = spec.channels.T
        return np.hypot(numbers[..., first], numbers[..., second])

    wanted = lengths(asked.wanted)
    # A suspect with other pairs has norms that depend on phases, which other experiments compare.
    inside = it.suspect is not None
    unit = max(UNIT[it.dtype], SINGLE)
    return [
        replace(
            asked,
            got=lengths(asked.got),
            wanted=wanted,
            allowed=np.full(wanted.shape, np.inf) if inside else 1.01 * 8 * unit * wanted + 1e-30,
        )
    ]


def every_position(it: CheckedRotary) -> list[Answer]:
    """Every position below the length is rotated by position * frequency."""
    at = np.arange(it.length)
    return [it.answer(f"positions 0 to {it.length - 1:,}", it.tokens(1, 1, it.length, seed=17), at)]


SMALL = token_experiments(
    {
        "positions that start later": (
            "Tokens that start later are rotated by their positions, not by their number in the call."
        ),
        "decoding equals the full pass": "A single token, with its position, is rotated as in the full sequence.",
        "several heads": "Heads and sequences beside each other, at the same positions, are rotated alike.",
        "one token for each sequence": (
            "One token of each of several sequences, as in decoding a batch, is rotated in each."
        ),
        "separate coordinates": (
            "Tokens whose coordinates differ, as those of an image, rotate each pair by its own coordinate."
        ),
        "two models of different bases": "Two models of one process, of different bases, each get their own.",
        "two models of different scalings": (
            "Two models of one process, one with a scaling and one without, each get their own."
        ),
        "two models of different widths": "Two models of one process, of different widths, each get their own.",
    },
    first=(
        experiment("a short sequence", a_short_sequence, needed=True),
        experiment(
            "a few positions",
            a_few_positions,
            "Tokens at positions near and far are rotated by position * frequency.",
            needed=True,
        ),
        experiment("norms are kept", norms_are_kept, needed=True),
    ),
    middle=(
        experiment("keys", keys_as_well),
        experiment("keys that start later", keys_that_start_later),
        experiment("several heads of keys", keys_beside_each_other),
        experiment("keys at separate positions", keys_at_positions_of_their_own),
    ),
    last=(experiment("after a longer sequence", after_a_longer_sequence),),
    beside="several heads",
    fields=("base", "scaling", "width"),
    later_needed=True,
)
"""The quick experiments: suspects run all of them."""

EVERY = experiment("every position", every_position, needed=True)

LIKE_KEYS = {
    "a short sequence": "keys",
    "positions that start later": "keys that start later",
    "several heads": "several heads of keys",
    "separate positions per sequence": "keys at separate positions",
}
"""The experiments on queries that have a counterpart on keys, with its name."""

KEYS = tuple(LIKE_KEYS.values())
