"""What is asked of an implementation of a rotary code, and what is right.

Tokens are drawn once, of sizes around 1, and rounded to the dtype in which they are given, so that nothing is lost on
the way in. Right is `clockhands.rotate` in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.calling import Refused
from clockhands.errors import ClockhandsError
from clockhands.faults.fault import Suspect
from clockhands.faults.turning import Turning
from clockhands.ladders import Geometric
from clockhands.rotary import Rotary, rotate
from clockhands.testing.bounds import SINGLE, UNIT, turned_error
from clockhands.testing.experiments import ROWS, Answer, Unasked, experiment, telling
from clockhands.testing.functions.calls import PAIRS, first_places, first_shape, in_runs, numbered
from clockhands.testing.functions.tokens import (
    TokenFunction,
    Tokens,
    coarser_tokens,
    coarser_tokens_before,
    one_at_a_time,
    one_token_of_many_sequences,
    other_tokens,
    positions_of_their_own,
    two_models,
)


@dataclass(frozen=True)
class OneSide:
    """A suspect for queries or for keys alone; the others are turned as they should be."""

    spec: Any
    apply: Any
    side: str

    def __call__(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """See `Turning`."""
        own = (role or "query") == self.side
        return (self.apply if own else Turning(self.spec))(x, at, dtype, role)


def _at_axes(self: Any, positions: np.ndarray) -> np.ndarray:
    """Positions of text: every coordinate is the token's."""
    if self.spec.axes is None:
        return positions
    return np.repeat(positions[..., None], self.spec.number_of_axes, axis=-1)


def _answer(
    implementation: Any,
    asked: str,
    x: np.ndarray,
    positions: np.ndarray,
    *,
    dtype: str | None = None,
    role: str | None = None,
    given: bool = False,
) -> Answer:
    """Ask, and put what is right beside it.

    Args:
        implementation: Whom.
        asked: In words.
        x: Tokens [batch, heads, seq, width].
        positions: [seq] or [batch, seq].
        dtype: The dtype of the tokens, if not the implementation's own.
        role: ``"key"`` for keys.
        given: Whether positions have their coordinates already.
    """
    own: Rotary = implementation.spec
    at = positions if given else implementation.at_axes(positions)
    got = implementation(x, at, dtype=dtype, role=role)
    where = np.broadcast_to(positions[..., 0] if given and own.axes is not None else positions, (len(x), x.shape[-2]))
    if isinstance(implementation, RotarySuspect):
        # What is right was found when the implementation itself was asked; where a suspect loses more to rounding, by
        # other pairs or faster rates, the implementation may too.
        turning, allowed = implementation.turning, np.zeros(())
        if turning is not None and (turning.spec != own or (turning.rates > np.array(own.rates)).any()):
            exact = turning.phases(np.asarray(at, np.float64))
            allowed = turned_error(x, turning.spec, _aligned(exact), dtype or implementation.dtype)
        return Answer(asked, got, got, allowed, where[:, None])
    roles = None if own.xpos is None else role or "query"
    wanted = rotate(x, own, at, role=roles)
    turning = Turning(own)
    phases = turning.phases(np.asarray(at, np.float64))
    sizes, growth = x, None
    if own.xpos is not None:
        growth = np.broadcast_to(turning.growth(np.asarray(at, np.float64), roles), phases.shape)
        sizes = np.array(x)
        for channels in own.channels.T:
            sizes[..., channels] = sizes[..., channels] * _aligned(growth)
    allowed = turned_error(sizes, own, _aligned(phases), dtype or implementation.dtype)
    if own.reordered:
        allowed = _reordered(allowed, own)
    if growth is not None:
        # The exponent is made in float32, of eight roundings at most: a share of the pair's length.
        first, second = own.channels.T
        lengths = np.hypot(sizes[..., first], sizes[..., second]) * own.attention_factor
        lost = 8 * SINGLE * np.abs(np.log(np.maximum(_aligned(growth), 1e-300))) * lengths
        for channels in (first, second):
            allowed[..., channels] += lost
    return Answer(asked, got, wanted, allowed, where[:, None])


def _aligned(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] if numbers.ndim == 3 else numbers


def _reordered(allowed: np.ndarray, spec: Rotary) -> np.ndarray:
    moved = allowed.copy()
    block = slice(spec.start, spec.start + spec.rotated)
    moved[..., block] = np.concatenate([allowed[..., block][..., ::2], allowed[..., block][..., 1::2]], axis=-1)
    return moved


@dataclass
class RotaryFunction(TokenFunction):
    """A user's rotary function."""

    at_axes = _at_axes
    answer = _answer


@dataclass
class RotarySuspect(Tokens):
    """A suspect, asked as somebody's function is."""

    spec: Any
    dtype: str
    coarse: str | None
    length: int
    call: str
    axes: tuple[str, ...]
    process: Callable[[Any], Any]
    crossed: bool = False
    first: str | None = None
    built: Any = field(init=False)
    lowest = 0
    at_axes = _at_axes
    answer = _answer

    def __post_init__(self) -> None:
        """Build the first model, and ask it what `Called` asks when it looks whether something can be called."""
        self.built = self.process(self.spec)
        at = first_places(getattr(self.spec, "number_of_axes", 1))
        self(np.ones(first_shape(self.axes, self.spec.head_width)), at, dtype=self.first)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: TokenFunction, side: str | None = None) -> "RotarySuspect":
        """In a process of its own; a suspect for one side is right for the other."""
        crossed = "queries-and-keys-crossed" in suspect.codes
        make = suspect.make()
        process = make if side is None else lambda spec: OneSide(spec, make(spec), side)
        return cls(like.spec, like.dtype, like.coarse, like.length, like.call, like.axes, process, crossed)

    @property
    def turning(self) -> Turning | None:
        """The rotation that it does, where it is one."""
        built = self.built.apply if isinstance(self.built, OneSide) else self.built
        return built if isinstance(built, Turning) else None

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `Any`."""
        if self.crossed:
            x = other_tokens(x)

        def ask(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            return self.built(part, at, dtype or self.dtype, role)

        # State is kept from call to call, so a suspect is called as often as what is checked.
        if self.call == "x":
            return numbered(ask, x, positions, self.length)
        return in_runs(ask, x, positions) if self.call == "x, offset" else ask(x, positions)

    def of(self, spec: Any, first: str | None = None) -> "RotarySuspect":
        """See `Any`."""
        return replace(self, spec=spec, first=first)


KEYS_UP_TO = 300


def a_few_positions(it: Any) -> list[Answer]:
    """Tokens at positions near and far are turned by position times rate."""
    at = telling(it.length)
    return [it.answer("a few positions", it.tokens(1, 1, len(at)), at)]


def a_short_sequence(it: Any) -> list[Answer]:
    """The first tokens that it sees, a few hundred, are turned by position times rate."""
    at = telling(min(it.length, 512))
    return [it.answer("the first tokens that it saw", it.tokens(1, 1, len(at), seed=21), at)]


def positions_that_start_later(it: Any) -> list[Answer]:
    """Tokens that start later are turned by where they stand, not by their number in the call."""
    start = min(5, it.length // 2)
    number = min(ROWS, it.length - start)
    first = it.answer(
        f"{number} tokens from position {start}", it.tokens(1, 1, number), np.arange(start, start + number)
    )
    start = max(it.length // 2 - number, 0)
    later = it.answer(
        f"{number} tokens from position {start}", it.tokens(1, 1, number), np.arange(start, start + number)
    )
    return [first, later]


def any_order(it: Any) -> list[Answer]:
    """Packed sequences, repeated positions and positions out of order get what each token gets alone."""
    parts = [np.arange(8), np.arange(5), np.arange(3, 11), np.array([9, 2, 2, 6]), np.arange(15)]
    at = np.minimum(np.concatenate(parts), it.length - 1)
    return [it.answer("sequences packed into one", it.tokens(1, 1, len(at), seed=1), at)]


def asked_again(it: Any) -> list[Answer]:
    """The same question has the same answer, whatever was asked between."""
    at = telling(min(it.length, 512))
    return [it.answer("the first tokens again", it.tokens(1, 1, len(at), seed=21), at) for _ in range(2)]


def beside(it: Any, *needed: str) -> tuple[int, int, str]:
    """How many sequences and heads it is asked with beside each other, and in words."""
    batch, heads = 3 if "batch" in it.axes else 1, 2 if "heads" in it.axes else 1
    if batch * heads == 1 or not {*needed} <= {*it.axes}:
        missing = " or ".join(word for word in needed or ("batch", "heads") if word not in it.axes)
        raise Unasked(f"it is called with no axis of {missing} (say axes= if it takes one)")
    words = [f"{batch} sequences"] * (batch > 1) + [f"{heads} heads"] * (heads > 1)
    return batch, heads, " of ".join(words)


def heads_beside_each_other(it: Any) -> list[Answer]:
    """Heads and sequences beside each other, at the same positions, are turned alike."""
    batch, heads, words = beside(it)
    at = np.minimum(np.arange(2, 7), it.length - 1)
    return [it.answer(words, it.tokens(batch, heads, 5, seed=4), at)]


def _positions_of_their_own(it: Any) -> list[Answer]:
    """Sequences of a batch that have positions of their own, as with padding on the left, get what each gets alone."""
    return positions_of_their_own(it, beside(it, "batch")[1])


def _one_token_of_many_sequences(it: Any) -> list[Answer]:
    """One token of each of several sequences, as in decoding a batch, is turned in each."""
    return one_token_of_many_sequences(it, beside(it, "batch")[1])


def coordinates_of_their_own(it: Any) -> list[Answer]:
    """Tokens whose coordinates differ, as those of an image, turn each pair by its own coordinate."""
    if it.spec.axes is None:
        raise Unasked("the code has one axis")
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (24, it.spec.number_of_axes))
    return [it.answer("coordinates that differ", it.tokens(1, 1, 24, seed=7), at, given=True)]


def keys_as_well(it: Any) -> list[Answer]:
    """Keys that stand beside queries are made of keys."""
    _keys_apart(it)
    at = telling(min(it.length, KEYS_UP_TO))
    return [it.answer("keys", it.tokens(1, 1, len(at), seed=9), at, role="key")]


def keys_beside_each_other(it: Any) -> list[Answer]:
    """Keys of several heads and sequences, at the same positions, are turned alike."""
    _keys_apart(it)
    batch, heads, words = beside(it)
    at = np.minimum(np.arange(2, 7), it.length - 1)
    return [it.answer(f"keys, {words}", it.tokens(batch, heads, 5, seed=18), at, role="key")]


def keys_at_positions_of_their_own(it: Any) -> list[Answer]:
    """Keys of sequences that have positions of their own get what each gets alone."""
    _keys_apart(it)
    return positions_of_their_own(it, beside(it, "batch")[1], "key")


def _keys_apart(it: Any) -> None:
    if it.call != PAIRS and it.spec.xpos is None:
        raise Unasked("it takes queries and keys alike")
    if it.call != PAIRS and isinstance(it, TokenFunction) and it.keys is None:
        raise Unasked("xPos treats keys otherwise: say keys=, the function for them")


def _coarser_tokens(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    return coarser_tokens(it, telling(it.length))


def _coarser_tokens_before(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them."""
    return coarser_tokens_before(it, telling(min(it.length, 2000)))  # no more rows than a cache may keep


def _coarser_model_first(it: Any) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    return coarser_tokens_before(it, telling(min(it.length, 2000)), first=True)


def after_a_longer_sequence(it: Any) -> list[Answer]:
    """A sequence longer than those before leaves nothing behind."""
    original = getattr(it.spec.scaling, "original", None)
    if original is None:
        raise Unasked("its rates do not depend on the length")
    short = telling(min(it.length, original, 512))
    # Between the original length and a longer one, where only the function itself can say what is right.
    between = np.array([0, 1, 5, original + original // 2])
    x = it.tokens(1, 1, len(between), seed=12)
    try:
        before = it(x, it.at_axes(between))
        it(x[:, :, :2], it.at_axes(np.array([0, 4 * original])))
        after = it(x, it.at_axes(between))
    except Refused as error:
        raise Unasked(f"position {4 * original:,} is refused: {error}") from None
    words = f"{between[-1] + 1:,} tokens, before and after {4 * original + 1:,}"
    # The difference of the two answers, so that what both lose to rounding is in neither.
    allowed = 4 * UNIT[it.dtype] * np.abs(before) + 4 * UNIT[it.dtype]
    moved = after - before
    return [
        it.answer("short again", it.tokens(1, 1, len(short), seed=13), short),
        Answer(words, moved, np.zeros_like(moved), allowed, between),
    ]


def two_bases(it: Any) -> list[Answer]:
    """Two models of one process, of different bases, each get their own."""
    spec: Rotary = it.spec
    if not isinstance(spec.spacing, Geometric):
        raise Unasked("its rates have no base")
    base = 1e6 if spec.spacing.base < 1e5 else 1e4
    return _two(it, f"base {base:,.0f}", {"spacing": replace(spec.spacing, base=base)})


def two_scalings(it: Any) -> list[Answer]:
    """Two models of one process, one with a scaling and one without, each get their own."""
    if it.spec.scaling is None:
        raise Unasked("it has no scaling")
    return _two(it, "no scaling", {"scaling": None, "length": None})


def two_widths(it: Any) -> list[Answer]:
    """Two models of one process, of different widths, each get their own."""
    return _two(it, "twice the width", {"head_width": 2 * it.spec.head_width, "rotated": 2 * it.spec.rotated})


def _two(it: Any, what: str, fields: dict[str, Any]) -> list[Answer]:
    try:
        other = replace(it.spec, **fields)
    except ClockhandsError as error:  # lists of factors or of axes fit one width
        raise Unasked(f"there is no such code of {what}: {error.message}") from None
    return two_models(it, what, other, telling(min(it.length, 100)))


def norms_are_kept(it: Any) -> list[Answer]:
    """A pair is as long as it was before it was turned, wherever it stands."""
    if it.spec.xpos is not None:
        raise Unasked("the code has a decay")
    at = telling(it.length)
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
    # Pairs of other channels have lengths that depend on phases, which suspects are asked for elsewhere.
    inside = isinstance(it, RotarySuspect)
    unit = max(UNIT[it.dtype], SINGLE)
    return [
        replace(
            asked,
            got=lengths(asked.got),
            wanted=wanted,
            allowed=np.full(wanted.shape, np.inf) if inside else 1.01 * 8 * unit * wanted + 1e-30,
        )
    ]


def every_position(it: Any) -> list[Answer]:
    """Every position below the length is turned by position times rate."""
    at = np.arange(it.length)
    return [it.answer(f"positions 0 to {it.length - 1:,}", it.tokens(1, 1, it.length, seed=17), at)]


SMALL = (
    experiment("a short sequence", a_short_sequence, needed=True),
    experiment("a few positions", a_few_positions, needed=True),
    experiment("norms are kept", norms_are_kept, needed=True),
    experiment("positions that start later", positions_that_start_later, needed=True),
    experiment("packed equals separate", any_order),
    experiment(
        "decoding equals the full pass",
        one_at_a_time,
        "A token that comes alone, with its position, is turned as in the whole.",
    ),
    experiment("heads beside each other", heads_beside_each_other),
    experiment("positions of their own", _positions_of_their_own),
    experiment("one token of many sequences", _one_token_of_many_sequences),
    experiment("coordinates of their own", coordinates_of_their_own),
    experiment("keys as well", keys_as_well),
    experiment("keys beside each other", keys_beside_each_other),
    experiment("keys at positions of their own", keys_at_positions_of_their_own),
    experiment("asked again", asked_again),
    experiment("coarser tokens", _coarser_tokens),
    experiment("coarser tokens before", _coarser_tokens_before),
    experiment("after a longer sequence", after_a_longer_sequence),
    experiment("two models of different bases", two_bases),
    experiment("two models of different scalings", two_scalings),
    experiment("two models of different widths", two_widths),
    experiment("a model of coarser tokens first", _coarser_model_first),
)
"""Quick to ask: a suspect is asked all of them."""

LIKE_KEYS = {
    "a short sequence": "keys as well",
    "heads beside each other": "keys beside each other",
    "positions of their own": "keys at positions of their own",
}
"""Which look at keys as others do at queries."""

KEYS = tuple(LIKE_KEYS.values())

EVERY = experiment("every position", every_position, needed=True)
