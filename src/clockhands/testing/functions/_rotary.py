"""`check_rotary`: whether a function rotates queries and keys as a RoPE spec defines.

Tokens are drawn once, with values around 1, and rounded to the dtype in which they are passed, so that the input is
exact. The expected output is `clockhands.rotate` in float64.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count, shown
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ROTARY
from clockhands.recognition.suspects import (
    Samples,
    SeenRotary,
    StagedRotary,
    Suspect,
    axis_ladders,
    pairs_of_suspects,
    rotary_suspects,
    turning_of,
)
from clockhands.testing._checks import COPIES, checked, function_of, named, resolved
from clockhands.testing._experiments import ROWS, Answer, Asked, Experiment, Unasked, experiment, failed_of, telling
from clockhands.testing.bounds import SINGLE, UNIT, turned_error
from clockhands.testing.functions._calls import PAIRS, Called, first_places, first_shape, in_runs, numbered, spaced
from clockhands.testing.functions._suspects import (
    collided,
    explanations,
    few_numbers,
    fitting,
    not_finite,
    of_any_code,
    only_coarse,
    told_of,
)
from clockhands.testing.functions._tokens import (
    DrawnTokens,
    TokenFunction,
    coarser_tokens,
    coarser_tokens_before,
    one_at_a_time,
    one_token_of_many_sequences,
    other_tokens,
    positions_of_their_own,
    two_models,
)
from clockhands.testing.reports import Explanation, Report


@dataclass(frozen=True)
class OneSide:
    """A suspect for queries only or for keys only; the other side is rotated correctly."""

    spec: Any
    apply: Any
    side: str

    def __call__(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """See `StagedRotary`."""
        own = (role or "query") == self.side
        return (self.apply if own else StagedRotary(self.spec))(x, at, dtype, role)


def _at_axes(self: Any, positions: np.ndarray) -> np.ndarray:
    """Positions of text: all coordinates of a token are equal."""
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
    """Call the implementation, and return its output with the expected output and the bounds.

    Args:
        implementation: The implementation; of a suspect, the expected output is its own output.
        asked: The input, as a phrase for messages.
        x: Tokens [batch, heads, seq, width].
        positions: [seq] or [batch, seq].
        dtype: The dtype of the tokens, if not the default dtype of the implementation.
        role: ``"key"`` for keys.
        given: Whether positions already have the axis of coordinates.
    """
    own: Rotary = implementation.spec
    at = positions if given else implementation.at_axes(positions)
    got = implementation(x, at, dtype=dtype, role=role)
    where = np.broadcast_to(positions[..., 0] if given and own.axes is not None else positions, (len(x), x.shape[-2]))
    if isinstance(implementation, RotarySuspect):
        # The expected output is known from the call of the user's function. If a suspect has larger rounding errors,
        # because of other pairs or higher frequencies, the user's function may have them too.
        turning, allowed = implementation.turning, np.zeros(())
        if turning is not None and (turning.spec != own or turning.turn or (turning.rates > np.array(own.rates)).any()):
            exact = turning.phases(np.asarray(at, np.float64))
            allowed = turned_error(x, turning.spec, _aligned(exact), dtype or implementation.dtype)
            if turning.turn is not None:  # the rotated pair may be in any dimension
                allowed = allowed.max(axis=-1, keepdims=True)
        return Answer(asked, got, got, allowed, where[:, None])
    roles = None if own.xpos is None else role or "query"
    wanted = rotate(x, own.at_original, at, role=roles)
    turning = StagedRotary(own)
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
        # The exponent is computed in float32 with at most eight roundings: an error relative to the norm of the pair.
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
class RotarySuspect(DrawnTokens):
    """A suspect, called in the same way as the user's function."""

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
        """Build the first model, and call it as `Called` calls a function for the first time."""
        self.built = self.process(self.spec)
        at = first_places(getattr(self.spec, "number_of_axes", 1))
        self(np.ones(first_shape(self.axes, self.spec.head_width)), at, dtype=self.first)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: TokenFunction, side: str | None = None) -> "RotarySuspect":
        """The suspect in a new process; with a ``side``, it is correct for the other side."""
        crossed = "queries-and-keys-crossed" in suspect.codes
        make = suspect.make()
        process = make if side is None else lambda spec: OneSide(spec, make(spec), side)
        return cls(like.spec, like.dtype, like.coarse, like.length, like.call, like.axes, process, crossed)

    @property
    def turning(self) -> StagedRotary | None:
        """The rotation that the suspect computes; None if it is no plain rotation."""
        built = self.built.apply if isinstance(self.built, OneSide) else self.built
        return built if isinstance(built, StagedRotary) else None

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `TokenFunction`."""
        if self.crossed:
            x = other_tokens(x)

        def ask(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            return self.built(part, at, dtype or self.dtype, role)

        # Suspects keep state between calls, so a suspect is called as often as the function under test.
        if self.call == "x":
            return numbered(ask, x, positions, self.length)
        return in_runs(ask, x, positions) if self.call == "x, offset" else ask(x, positions)

    def of(self, spec: Any, first: str | None = None) -> "RotarySuspect":
        """See `TokenFunction`."""
        return replace(self, spec=spec, first=first)


KEYS_UP_TO = 300


def a_few_positions(it: Any) -> list[Answer]:
    """Tokens at positions near and far are turned by position times rate."""
    at = telling(it.length)
    return [it.answer("a few positions", it.tokens(1, 1, len(at)), at)]


def a_short_sequence(it: Any) -> list[Answer]:
    """The first tokens that it sees, a few hundred, are turned by position times rate."""
    at = telling(min(it.length, 512))
    return [it.answer("the first tokens of the check", it.tokens(1, 1, len(at), seed=21), at)]


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
    """The numbers of sequences and heads for one call, and a phrase for them; raises `Unasked` if both are 1.

    Also raises `Unasked` if an axis of ``needed`` is missing.
    """
    batch, heads = 3 if "batch" in it.axes else 1, 2 if "heads" in it.axes else 1
    if batch * heads == 1 or not {*needed} <= {*it.axes}:
        missing = " or ".join(word for word in needed or ("batch", "heads") if word not in it.axes)
        raise Unasked(f"it is called without an axis of {missing} (pass axes= if it takes one)")
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
        raise Unasked("the encoding has one axis")
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (24, it.spec.number_of_axes))
    return [it.answer("coordinates that differ", it.tokens(1, 1, 24, seed=7), at, given=True)]


def keys_as_well(it: Any) -> list[Answer]:
    """Keys that stand beside queries are made of keys."""
    _keys_apart(it)
    at = telling(min(it.length, KEYS_UP_TO))
    return [it.answer("keys", it.tokens(1, 1, len(at), seed=9), at, role="key")]


def keys_that_start_later(it: Any) -> list[Answer]:
    """Keys that start later are turned by where they stand, not by their number in the call."""
    _keys_apart(it)
    start = min(5, it.length // 2)
    number = min(ROWS, it.length - start)
    at = np.arange(start, start + number)
    return [it.answer(f"{number} keys from position {start}", it.tokens(1, 1, number, seed=25), at, role="key")]


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
        raise Unasked("it treats queries and keys alike")
    if it.call != PAIRS and isinstance(it, TokenFunction) and it.keys is None:
        raise Unasked("xPos treats keys differently: pass keys=, the function for them")


def _coarser_tokens(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    return coarser_tokens(it, telling(it.length))


def _coarser_tokens_before(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them."""
    return coarser_tokens_before(it, telling(min(it.length, 2000)))  # no more rows than a cache may hold


def _coarser_model_first(it: Any) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    return coarser_tokens_before(it, telling(min(it.length, 2000)), first=True)


def after_a_longer_sequence(it: Any) -> list[Answer]:
    """A sequence longer than those before leaves nothing behind."""
    original = getattr(it.spec.scaling, "original", None)
    if original is None:
        raise Unasked("its frequencies do not depend on the length")
    short = telling(min(it.length, original, 512))
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


def two_bases(it: Any) -> list[Answer]:
    """Two models of one process, of different bases, each get their own."""
    spec: Rotary = it.spec
    if not isinstance(spec.spacing, Geometric):
        raise Unasked("its frequencies have no base")
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
    except ClockhandsError as error:  # lists of factors or of axes are valid for one width only
        raise Unasked(f"there is no such encoding of {what}: {error.message}") from None
    return two_models(it, what, other, telling(min(it.length, 100)))


def norms_are_kept(it: Any) -> list[Answer]:
    """Rotation keeps the length of each pair, at every position."""
    if it.spec.xpos is not None:
        raise Unasked("the encoding has a decay")
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
    # A suspect with other pairs has norms that depend on phases, which other experiments compare.
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
    """Every position below the length is rotated by position * frequency."""
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
        "A single token, with its position, is rotated as in the full sequence.",
    ),
    experiment("several heads", heads_beside_each_other),
    experiment("separate positions per sequence", _positions_of_their_own),
    experiment("one token for each sequence", _one_token_of_many_sequences),
    experiment("separate coordinates", coordinates_of_their_own),
    experiment("keys", keys_as_well),
    experiment("keys that start later", keys_that_start_later),
    experiment("several heads of keys", keys_beside_each_other),
    experiment("keys at separate positions", keys_at_positions_of_their_own),
    experiment("repeated call", asked_again),
    experiment("low-precision tokens", _coarser_tokens),
    experiment("after low-precision tokens", _coarser_tokens_before),
    experiment("after a longer sequence", after_a_longer_sequence),
    experiment("two models of different bases", two_bases),
    experiment("two models of different scalings", two_scalings),
    experiment("two models of different widths", two_widths),
    experiment("a model of low-precision tokens first", _coarser_model_first),
)
"""The quick experiments: suspects run all of them."""

LIKE_KEYS = {
    "a short sequence": "keys",
    "positions that start later": "keys that start later",
    "several heads": "several heads of keys",
    "separate positions per sequence": "keys at separate positions",
}
"""The experiments on queries that have a counterpart on keys, with its name."""

KEYS = tuple(LIKE_KEYS.values())

EVERY = experiment("every position", every_position, needed=True)


LENGTH = 10_000


def check_rotary(
    fn: Callable[..., Any] | None = None,
    like: Rotary | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    keys: Callable[..., Any] | None = None,
    axes: str = "seq width",
    call: str = "x, positions",
    positions: str = "seq",
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function rotates queries and keys as a RoPE spec defines.

    ``(a, b) -> f (a cos(p r) - b sin(p r), a sin(p r) + b cos(p r))`` for each dimension pair of frequency ``r`` at
    position ``p``, with the attention factor ``f``. It is checked at every position below `length`, in any order, for
    batches, packed sequences, single tokens and a lower-precision dtype, before and after other calls. Failures are
    explained by trying every known fault.

    Args:
        fn: The function, in any array library.
        like: The expected RoPE: a spec, or a preset's name with fields (``"llama3.1"``).
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        keys: The function for keys, if they are treated differently (xPos).
        axes: The axes of x in the function's order: ``"batch heads seq width"``.
        call: The arguments of the function: ``"x, positions"``; ``"x"`` if it counts its rows itself; ``"x, offset"``;
            ``"q, k, positions"`` if it returns both queries and keys.
        positions: The axes of its positions: ``"seq"`` or ``"batch seq"``; with ``axes`` for several coordinates.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The dtype of its tokens.
        length: Positions 0 to ``length - 1`` are checked: 10,000, or fewer if the frequencies of the spec depend on the
            length and hold for fewer.
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report; with failures only if ``raises`` is false.

    Accuracy: the error of a number may be that of correct float32 arithmetic, derived in `clockhands.testing.bounds`,
        for the dtype of the tokens. A fault with smaller errors is not found.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message gives the call and its result.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def rotated(x, positions): return ch.rotate(x, ch.Rotary(8, base=500.0), positions)
    >>> report = check_rotary(rotated, ch.Rotary(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    spec = resolved(like, Rotary, "rotary")
    length = asked_length(spec, length)
    if spec.number_of_axes > 1 and spaced(call) in {"x", "x, offset"}:
        raise InvalidValue(
            f"`call` is {shown(call)}, but positions of {spec.number_of_axes} coordinates must be passed to it.",
            'Wrap the function so that it takes positions, and pass call="x, positions" or "q, k, positions".',
        )

    def outside(
        function: Callable[..., Any], own: Rotary, key: Callable[..., Any] | None = None, first: str | None = None
    ) -> RotaryFunction:
        as_called = partial(
            Called,
            width=own.head_width,
            axes=axes,
            call=call,
            positions=positions,
            coordinates=own.number_of_axes,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
        )
        called = as_called(function, first=first)
        called.most = length
        other = None if key is None else as_called(key)
        return RotaryFunction(own, called, length, called.coarse, other, build)

    build = None if make is None else (lambda own, first: outside(make(own), own, first=first))
    it = outside(function_of(fn, make, spec), spec, keys)
    return checked("rotary", named(fn, make), it, (*SMALL, EVERY), partial(_explained, it), raises=raises)


def asked_length(spec: Rotary, length: int | None) -> int:
    """The number of positions to check: ``length`` if given, else those for which the spec's frequencies hold.

    That is at most 10,000.
    """
    if length is not None:
        length = count("length", length)
        refuse_larger((length, spec.head_width), COPIES * 8, "The array for all positions", "Pass a smaller length=.")
        return length
    original = getattr(spec.scaling, "original", None)
    # Frequencies that depend on the length in use equal those of the spec only up to this length.
    if original is not None and _follows_length(spec):
        return min(LENGTH, spec.length or original)
    return LENGTH


def _follows_length(spec: Rotary) -> bool:
    original = spec.scaling.original  # type: ignore[union-attr]
    try:
        return replace(spec, length=4 * original).rates != replace(spec, length=original).rates
    except ClockhandsError:
        return False


def _explained(it: RotaryFunction, asked: list[Asked]) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    small = [one for one in asked if one.experiment is not EVERY]
    every = next((one for one in asked if one.experiment is EVERY), None)
    first_wrong = first_right = None
    if every is not None:
        first_wrong, first_right, chosen = _chosen(every.answers[0])
        with suppress(Refused):
            small.append(Asked(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, asked)
    side = _wrong_side(it, asked)
    seen = replace(_seen(it, first_wrong, side), first_right=first_right)

    def tried() -> Iterator[Suspect]:
        yield from rotary_suspects(it.spec, seen)
        if it.call == PAIRS:
            yield Suspect(("queries-and-keys-crossed",), {}, lambda: StagedRotary)

    def built(suspect: Suspect) -> RotarySuspect:
        return RotarySuspect.of_suspect(suspect, it, side)

    found, note = fitting(small, tried(), built)
    alone = every is not None and few_numbers(every.answers[0])  # a few wrong numbers, which no known fault gives
    if (not found or note) and not alone and not not_finite(small):
        # Two faults that give all answers explain more than one that gives most of them. Failed experiments run first,
        # because they reject a suspect sooner.
        telling_first = sorted(small, key=lambda one: not one.wrong)
        both = (fitting(telling_first, some, built, whole=True)[0] for some in pairs_of_suspects(it.spec, seen))
        found, note = next(((some, None) for some in both if some), (found, note))
    failed = failed_of(asked)
    if not found and "a short sequence" in failed:
        seen = replace(seen, specs=_recognised(it))
        if seen.specs:
            found, note = fitting(small, rotary_suspects(it.spec, seen), built)
    told = (
        explanations(found, ROTARY, note)
        or remembers(asked)
        or (() if it.spec.axes else collided(it, ROTARY))
        or _by_rates(it.spec, seen)
        or unexplained(it, asked)
    )
    return one_sided(only_coarse(told, asked, it.coarse), side)


def _chosen(dense: Answer) -> tuple[int | None, int | None, Experiment]:
    """The first wrong position, the first right one after it, and a quick experiment with some wrong positions."""
    bad = (dense.shares[0, 0] > 1).any(axis=-1)
    wrong = np.flatnonzero(bad)
    first = int(wrong[0]) if len(wrong) else None
    right = np.flatnonzero(~bad[first:]) if first is not None else wrong
    some = np.unique(
        np.concatenate(
            [
                wrong[:24],
                wrong[-8:],
                wrong[np.linspace(0, len(wrong) - 1, 24).astype(int)] if len(wrong) else [],
                np.array([0, 1]),
            ]
        ).astype(np.int64)
    )
    # With the position before each, to locate where errors begin.
    at = np.unique(np.concatenate([some, np.maximum(some - 1, 0)]))

    def run(implementation: Any) -> list[Answer]:
        return [implementation.answer("chosen positions", implementation.tokens(1, 1, len(at), seed=18), at)]

    experiment = Experiment("chosen positions", "Positions at which it is wrong, and others.", run)
    return first, (first or 0) + int(right[0]) if len(right) else None, experiment


def _wrong_side(it: RotaryFunction, asked: list[Asked]) -> str | None:
    """``"key"`` or ``"query"`` if only these are wrong, else None."""
    if it.call != PAIRS:
        return None
    names = {one.experiment.name for one in asked}
    failed = failed_of(asked)
    if failed.keys() & set(KEYS):
        return "key" if failed.keys() <= set(KEYS) else None
    for one in asked:
        # Keys have fewer experiments, so a correct key counts only for an experiment that queries and keys both have.
        if one.experiment.name in failed and LIKE_KEYS.get(one.experiment.name) in names:
            for each in one.answers:
                rows = (each.shares > 1).any(axis=-1)
                if (
                    each.positions is not None
                    and (np.broadcast_to(each.positions, rows.shape)[rows] < KEYS_UP_TO).any()
                ):
                    return "query"
    return None


def _seen(it: RotaryFunction, first_wrong: int | None, side: str | None = None) -> SeenRotary:
    """Measure the rotation of the declared dimension pairs."""
    powers = [2**power for power in range(1, 18) if 2**power < it.length]
    at = np.array([0, 1, *powers])
    role = "key" if side == "key" else None
    # Both draws of tokens get the same different coordinates.
    axes = it.spec.number_of_axes
    apart = np.random.default_rng(24).integers(0, min(it.length, 40), (24, axes)) if axes > 1 else None

    def asked(positions: np.ndarray, given: bool = False) -> Samples:
        found = []
        with suppress(Refused):
            for seed in (19, 20):
                x = it.tokens(1, 1, len(positions), seed=seed)
                y = it.answer("the rotation of pairs", x, positions, role=role, given=given).got
                found.append((x[0, 0], y[0, 0]))
            return tuple(found)
        return ()

    samples = asked(at)
    turning, alike = turning_of(samples, it.spec)
    seen = SeenRotary(
        it.dtype,
        it.coarse,
        it.length,
        first_wrong,
        at if samples else at[:0],
        turning,
        alike,
        axes=it.called.axes,
        samples=samples,
        role=role,
        counted="positions" not in it.call,
        coordinates=apart,
        apart=() if apart is None else asked(apart, given=True),
    )
    return replace(seen, stands=seen.apparent(it.spec))


def _by_rates(spec: Rotary, seen: SeenRotary) -> tuple[Explanation, ...]:
    """The explanation of a rotation with constant frequencies that no known fault gives; empty if there are none."""
    rates = seen.rates() if seen.evenly() else None
    if rates is None:
        return ()
    sign = -1.0 if spec.direction == "backward" else 1.0
    declared, rates = np.array(spec.rates), sign * rates
    # A frequency is known to 0.05 rad divided by the largest position that was measured.
    wrong = np.flatnonzero(np.abs(rates - declared) > 0.05 / max(int(seen.positions.max()), 1))
    if not len(wrong):
        return ()
    pair = int(wrong[0])
    parameters = {
        "wrong": len(wrong),
        "pairs": len(rates),
        "pair": pair,
        "rate": float(rates[pair]),
        "declared": float(declared[pair]),
        "rates": tuple(map(float, rates)),
    }
    ruled = (
        axis_ladders(spec, seen) or _in_order(rates) or _even(rates) or np.allclose(np.sort(rates), np.sort(declared))
    )
    code = "other-rates" if ruled or len(wrong) <= len(rates) // 2 else "rates-uninitialised"
    return (told_of(ROTARY[code], parameters),)


def _in_order(rates: np.ndarray) -> bool:
    """Whether rates fall from pair to pair and stay above 0."""
    return bool((np.diff(rates) < 0).all() and rates[-1] > 0)


def _even(rates: np.ndarray) -> bool:
    """Whether neighbouring rates have one difference."""
    steps = np.diff(rates)
    return len(steps) > 1 and bool(np.ptp(steps) < 1e-3 * np.abs(steps).max())


def _recognised(it: RotaryFunction) -> tuple[Rotary, ...]:
    """The specs of the RoPE that the function computes, if it is another known one."""
    if it.spec.axes is not None or it.call == PAIRS or len(it.called.axes) > 2 or it.length < 300:
        return ()

    def asked(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return it(x[None, None], positions)[0, 0]

    with suppress(ClockhandsError, Refused):
        matches = identify(asked, width=it.spec.head_width, backend="numpy", dtype="float64", longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, Rotary) and match.spec.base)
    return ()


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    if told := of_any_code(it, asked, ROTARY):
        return told
    failed = failed_of(asked)
    still = np.setdiff1d(np.arange(it.spec.head_width), it.spec.channels.reshape(-1))
    wrong_channels = np.unique(
        np.concatenate(
            [
                np.flatnonzero((each.shares > 1).reshape(-1, each.shares.shape[-1]).any(axis=0))
                for one in failed.values()
                for each in one.answers
                if each.shares.shape[-1] == it.spec.head_width
            ]
            or [np.empty(0, int)]
        )
    )
    if len(still) and len(wrong_channels) and np.isin(wrong_channels, still).all():
        some = ", ".join(map(str, wrong_channels[:4])) + (
            f" and {len(wrong_channels) - 4} more" if len(wrong_channels) > 4 else ""
        )
        return (told_of(ROTARY["unrotated-channels-turned"], {"channels": some}),)
    every = failed.get("every position")
    few = "" if every is None else few_numbers(every.answers[0])
    return (told_of(ROTARY["one-number-wrong"], {"which": few}),) if few else ()


def remembers(asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """The explanation that short sequences are right at first and wrong after longer ones; or empty."""
    failed = failed_of(asked)
    sound = {one.experiment.name for one in asked} - failed.keys()
    if "a short sequence" in sound and {"repeated call", "after a longer sequence"} & failed.keys():
        return (told_of(ROTARY["remembers-longest"], {}),)
    return ()


def one_sided(told: tuple[Explanation, ...], side: str | None) -> tuple[Explanation, ...]:
    """The explanations, with the remark that only keys or only queries are affected, if that is so."""
    if side is None or not told:
        return told
    one, others = ("keys", "queries") if side == "key" else ("queries", "keys")
    message = f"{told[0].message.removesuffix('.')}, for {one} only: {others} are correct."
    return (replace(told[0], message=message), *told[1:])
