"""What is asked of an implementation of a rotary code, and what is right.

Tokens are drawn once, of sizes around 1, and rounded to the dtype in which they are given, so that nothing is lost on
the way in. Right is `clockhands.rotate` in float64.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.calling import Refused
from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError
from clockhands.faults.turning import Turning
from clockhands.ladders import Geometric
from clockhands.rotary import Rotary, rotate
from clockhands.testing.asking import Implementation, Inside, Outside
from clockhands.testing.bounds import SINGLE, UNIT, turned_error
from clockhands.testing.calling import PAIRS
from clockhands.testing.experiments import Answer, Experiment, Unasked

# What tells dtypes apart (bfloat16 holds whole numbers up to 256, float16 up to 2,048), and powers of two, at which no
# whole number is rounded.
TELLING = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 257, 259, 401, 511, 512, 1001, 1024, 2049)
ROWS = 40
KEYS_UP_TO = 300
# Numbers that are held at once for one that is asked: tokens, answers, what is right, what is allowed, on the way too.
COPIES = 8
TELLING_FAR = (2051, 2048, 4095, 4096, 4097, 7001, 8191, 8192, 16384, 30011, 32768, 65536, 99991, 131071)


def telling(length: int) -> np.ndarray:
    """40 positions below a length at which roundings show, in order; fewer where there are fewer.

    Always as many: libraries that compile do so for each number of rows.
    """
    found = {place for place in (*TELLING, *TELLING_FAR, length - 1) if 0 <= place < length}
    others = (place for place in range(length) if place not in found)
    return np.array(sorted(found | set(itertools.islice(others, max(ROWS - len(found), 0)))))


def tokens(implementation: Implementation, *shape: int, seed: int = 0, dtype: str | None = None) -> np.ndarray:
    """Tokens [batch, heads, seq, width] that the dtype holds exactly."""
    drawn = np.random.default_rng(seed).standard_normal((*shape, implementation.spec.head_width))
    return drawn.astype(output_dtype(dtype or implementation.dtype)).astype(np.float64)


def at_axes(spec: Rotary, positions: np.ndarray) -> np.ndarray:
    """Positions of text: every coordinate is the token's."""
    if spec.axes is None:
        return positions
    return np.repeat(positions[..., None], spec.number_of_axes, axis=-1)


def answer(
    implementation: Implementation,
    asked: str,
    x: np.ndarray,
    positions: np.ndarray,
    *,
    dtype: str | None = None,
    role: str | None = None,
    spec: Rotary | None = None,
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
        spec: What is right, if not the implementation's own.
        given: Whether positions have their coordinates already.
    """
    own: Rotary = implementation.spec if spec is None else spec
    at = positions if given else at_axes(own, positions)
    got = implementation(x, at, dtype=dtype, role=role)
    where = np.broadcast_to(positions[..., 0] if given and own.axes is not None else positions, (len(x), x.shape[-2]))
    if isinstance(implementation, Inside):
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


def a_few_positions(it: Implementation) -> list[Answer]:
    """Tokens at positions near and far are turned by position times rate."""
    at = telling(it.length)
    return [answer(it, "a few positions", tokens(it, 1, 1, len(at)), at)]


def a_short_sequence(it: Implementation) -> list[Answer]:
    """The first tokens that it sees, a few hundred, are turned by position times rate."""
    at = telling(min(it.length, 512))
    return [answer(it, "the first tokens that it saw", tokens(it, 1, 1, len(at), seed=21), at)]


def positions_that_start_later(it: Implementation) -> list[Answer]:
    """Tokens that start later are turned by where they stand, not by their number in the call."""
    start = min(5, it.length // 2)
    number = min(ROWS, it.length - start)
    first = answer(
        it, f"{number} tokens from position {start}", tokens(it, 1, 1, number), np.arange(start, start + number)
    )
    start = max(it.length // 2 - number, 0)
    later = answer(
        it, f"{number} tokens from position {start}", tokens(it, 1, 1, number), np.arange(start, start + number)
    )
    return [first, later]


def any_order(it: Implementation) -> list[Answer]:
    """Packed sequences, repeated positions and positions out of order get what each token gets alone."""
    parts = [np.arange(8), np.arange(5), np.arange(3, 11), np.array([9, 2, 2, 6]), np.arange(15)]
    at = np.minimum(np.concatenate(parts), it.length - 1)
    return [answer(it, "sequences packed into one", tokens(it, 1, 1, len(at), seed=1), at)]


def one_at_a_time(it: Implementation) -> list[Answer]:
    """A token that comes alone, with its position, is turned as in the whole."""
    x, at = tokens(it, 1, 1, 6, seed=2), np.minimum(np.array([0, 1, 2, 5, 40, 300]), it.length - 1)
    return [
        answer(it, f"position {place} alone", x[:, :, row : row + 1], at[row : row + 1]) for row, place in enumerate(at)
    ]


def asked_again(it: Implementation) -> list[Answer]:
    """The same question has the same answer, whatever was asked between."""
    at = telling(min(it.length, 512))
    return [answer(it, "the first tokens again", tokens(it, 1, 1, len(at), seed=21), at) for _ in range(2)]


def beside(it: Implementation, *needed: str) -> tuple[int, int, str]:
    """How many sequences and heads it is asked with beside each other, and in words."""
    batch, heads = 3 if "batch" in it.axes else 1, 2 if "heads" in it.axes else 1
    if batch * heads == 1 or not {*needed} <= {*it.axes}:
        missing = " or ".join(word for word in needed or ("batch", "heads") if word not in it.axes)
        raise Unasked(f"it is called with no axis of {missing} (say axes= if it takes one)")
    words = [f"{batch} sequences"] * (batch > 1) + [f"{heads} heads"] * (heads > 1)
    return batch, heads, " of ".join(words)


def heads_beside_each_other(it: Implementation) -> list[Answer]:
    """Heads and sequences beside each other, at the same positions, are turned alike."""
    batch, heads, words = beside(it)
    at = np.minimum(np.arange(2, 7), it.length - 1)
    return [answer(it, words, tokens(it, batch, heads, 5, seed=4), at)]


def positions_of_their_own(it: Implementation) -> list[Answer]:
    """Sequences of a batch that have positions of their own, as with padding on the left, get what each gets alone."""
    _, heads, _ = beside(it, "batch")
    at = np.minimum(np.stack([np.arange(6), np.arange(3, 9), np.maximum(np.arange(6) - 2, 0)]), it.length - 1)
    return [answer(it, "3 sequences, each with positions of its own", tokens(it, 3, heads, 6, seed=5), at)]


def one_token_of_many_sequences(it: Implementation) -> list[Answer]:
    """One token of each of several sequences, as in decoding a batch, is turned in each."""
    _, heads, _ = beside(it, "batch")
    at = np.array([min(9, it.length - 1)])
    return [answer(it, "one token of each of 3 sequences", tokens(it, 3, heads, 1, seed=6), at)]


def coordinates_of_their_own(it: Implementation) -> list[Answer]:
    """Tokens whose coordinates differ, as those of an image, turn each pair by its own coordinate."""
    if it.spec.axes is None:
        raise Unasked("the code has one axis")
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (24, it.spec.number_of_axes))
    return [answer(it, "coordinates that differ", tokens(it, 1, 1, 24, seed=7), at, given=True)]


def keys_as_well(it: Implementation) -> list[Answer]:
    """Keys that stand beside queries are made of keys."""
    _keys_apart(it)
    at = telling(min(it.length, KEYS_UP_TO))
    return [answer(it, "keys", tokens(it, 1, 1, len(at), seed=9), at, role="key")]


def keys_beside_each_other(it: Implementation) -> list[Answer]:
    """Keys of several heads and sequences, at the same positions, are turned alike."""
    _keys_apart(it)
    batch, heads, words = beside(it)
    at = np.minimum(np.arange(2, 7), it.length - 1)
    return [answer(it, f"keys, {words}", tokens(it, batch, heads, 5, seed=18), at, role="key")]


def keys_at_positions_of_their_own(it: Implementation) -> list[Answer]:
    """Keys of sequences that have positions of their own get what each gets alone."""
    _keys_apart(it)
    _, heads, _ = beside(it, "batch")
    at = np.minimum(np.stack([np.arange(6), np.arange(3, 9), np.maximum(np.arange(6) - 2, 0)]), it.length - 1)
    asked = "keys of 3 sequences, each with positions of its own"
    return [answer(it, asked, tokens(it, 3, heads, 6, seed=19), at, role="key")]


def _keys_apart(it: Implementation) -> None:
    if it.call != PAIRS and it.spec.xpos is None:
        raise Unasked("it takes queries and keys alike")
    if it.call != PAIRS and isinstance(it, Outside) and it.keys is None:
        raise Unasked("xPos treats keys otherwise: say keys=, the function for them")


def coarser_tokens(it: Implementation) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("its library or its dtype has no coarser one")
    at = telling(it.length)
    x = tokens(it, 1, 1, len(at), seed=10, dtype=it.coarse)
    return [answer(it, f"{it.coarse} tokens", x, at, dtype=it.coarse)]


def coarser_tokens_before(it: Implementation) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them."""
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("its library or its dtype has no coarser one")
    # No more rows than a cache may keep.
    at = telling(min(it.length, 2000))
    it(tokens(it, 1, 1, len(at), seed=10, dtype=it.coarse), at_axes(it.spec, at), dtype=it.coarse)
    return [answer(it, f"the same positions after {it.coarse} tokens", tokens(it, 1, 1, len(at), seed=11), at)]


def coarser_model_first(it: Implementation) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("its library or its dtype has no coarser one")
    return coarser_tokens_before(it.of(it.spec, first=it.coarse))


def after_a_longer_sequence(it: Implementation) -> list[Answer]:
    """A sequence longer than those before leaves nothing behind."""
    original = getattr(it.spec.scaling, "original", None)
    if original is None:
        raise Unasked("its rates do not depend on the length")
    short = telling(min(it.length, original, 512))
    # Between the original length and a longer one, where only the function itself can say what is right.
    between = np.array([0, 1, 5, original + original // 2])
    x = tokens(it, 1, 1, len(between), seed=12)
    try:
        before = it(x, at_axes(it.spec, between))
        it(x[:, :, :2], at_axes(it.spec, np.array([0, 4 * original])))
        after = it(x, at_axes(it.spec, between))
    except Refused as error:
        raise Unasked(f"position {4 * original:,} is refused: {error}") from None
    words = f"{between[-1] + 1:,} tokens, before and after {4 * original + 1:,}"
    # The difference of the two answers, so that what both lose to rounding is in neither.
    allowed = 4 * UNIT[it.dtype] * np.abs(before) + 4 * UNIT[it.dtype]
    moved = after - before
    return [
        answer(it, "short again", tokens(it, 1, 1, len(short), seed=13), short),
        Answer(words, moved, np.zeros_like(moved), allowed, between),
    ]


def two_bases(it: Implementation) -> list[Answer]:
    """Two models of one process, of different bases, each get their own."""
    spec: Rotary = it.spec
    if not isinstance(spec.spacing, Geometric):
        raise Unasked("its rates have no base")
    base = 1e6 if spec.spacing.base < 1e5 else 1e4
    return _two(it, f"base {base:,.0f}", {"spacing": replace(spec.spacing, base=base)})


def two_scalings(it: Implementation) -> list[Answer]:
    """Two models of one process, one with a scaling and one without, each get their own."""
    if it.spec.scaling is None:
        raise Unasked("it has no scaling")
    return _two(it, "no scaling", {"scaling": None, "length": None})


def two_widths(it: Implementation) -> list[Answer]:
    """Two models of one process, of different widths, each get their own."""
    return _two(it, "twice the width", {"head_width": 2 * it.spec.head_width, "rotated": 2 * it.spec.rotated})


def _two(it: Implementation, what: str, fields: dict[str, Any]) -> list[Answer]:
    """A model, one that differs in one thing that a cache may forget, and the first one again."""
    try:
        other = replace(it.spec, **fields)
    except ClockhandsError as error:  # lists of factors or of axes fit one width
        raise Unasked(f"there is no such code of {what}: {error.message}") from None
    at = telling(min(it.length, 100))
    first, second = it.of(it.spec), it.of(other)
    x = tokens(it, 1, 1, len(at), seed=14)
    return [
        answer(first, "the first model", x, at),
        answer(second, f"a second model, of {what}", tokens(second, 1, 1, len(at), seed=15), at, spec=other),
        answer(first, f"the first model after that of {what}", x, at),
    ]


def norms_are_kept(it: Implementation) -> list[Answer]:
    """A pair is as long as it was before it was turned, wherever it stands."""
    if it.spec.xpos is not None:
        raise Unasked("the code has a decay")
    at = telling(it.length)
    asked = answer(it, "lengths of pairs", tokens(it, 1, 1, len(at), seed=16), at)
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
    inside = isinstance(it, Inside)
    unit = max(UNIT[it.dtype], SINGLE)
    return [
        replace(
            asked,
            got=lengths(asked.got),
            wanted=wanted,
            allowed=np.full(wanted.shape, np.inf) if inside else 1.01 * 8 * unit * wanted + 1e-30,
        )
    ]


def every_position(it: Implementation) -> list[Answer]:
    """Every position below the length is turned by position times rate."""
    at = np.arange(it.length)
    return [answer(it, f"positions 0 to {it.length - 1:,}", tokens(it, 1, 1, it.length, seed=17), at)]


SMALL = (
    Experiment("a short sequence", "", a_short_sequence, needed=True),
    Experiment("a few positions", "", a_few_positions, needed=True),
    Experiment("norms are kept", "", norms_are_kept, needed=True),
    Experiment("positions that start later", "", positions_that_start_later, needed=True),
    Experiment("packed equals separate", "", any_order),
    Experiment("decoding equals the full pass", "", one_at_a_time),
    Experiment("heads beside each other", "", heads_beside_each_other),
    Experiment("positions of their own", "", positions_of_their_own),
    Experiment("one token of many sequences", "", one_token_of_many_sequences),
    Experiment("coordinates of their own", "", coordinates_of_their_own),
    Experiment("keys as well", "", keys_as_well),
    Experiment("keys beside each other", "", keys_beside_each_other),
    Experiment("keys at positions of their own", "", keys_at_positions_of_their_own),
    Experiment("asked again", "", asked_again),
    Experiment("coarser tokens", "", coarser_tokens),
    Experiment("coarser tokens before", "", coarser_tokens_before),
    Experiment("after a longer sequence", "", after_a_longer_sequence),
    Experiment("two models of different bases", "", two_bases),
    Experiment("two models of different scalings", "", two_scalings),
    Experiment("two models of different widths", "", two_widths),
    Experiment("a model of coarser tokens first", "", coarser_model_first),
)
"""Quick to ask: a suspect is asked all of them."""

LIKE_KEYS = {
    "a short sequence": "keys as well",
    "heads beside each other": "keys beside each other",
    "positions of their own": "keys at positions of their own",
}
"""Which look at keys as others do at queries."""

KEYS = tuple(LIKE_KEYS.values())

EVERY = Experiment("every position", "", every_position, needed=True)
SMALL, EVERY = (
    tuple(replace(one, asks=(one.run.__doc__ or "").partition("\n")[0]) for one in SMALL),
    replace(EVERY, asks=(every_position.__doc__ or "").partition("\n")[0]),
)
