"""What is asked of an implementation of a bias, and what is right.

Right is `clockhands.bias` in float64. Softmax does not see a number that is added to a whole row of scores, so every
row is read from the nearest key that the query sees, unless the bias shall be compared as it stands.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.biases import Alibi, BiasCode, Buckets, Decay, Fire, Kerple, bias
from clockhands.calling import Refused
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.faults.biasing import Behind, Given
from clockhands.faults.fault import Suspect
from clockhands.testing.bounds import beyond_edge, bias_error, near_edge
from clockhands.testing.experiments import Answer, Unasked, experiment, made
from clockhands.testing.functions.calls import CalledBias
from clockhands.testing.reports import CannotCheck

# What tells dtypes apart (bfloat16 holds whole numbers up to 256, float16 up to 2,048) and lies in different buckets.
TELLING = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 23, 24, 29, 33, 39, 47, 63, 65, 77, 90, 91, 107, 127, 129)
TELLING_FAR = (
    181,
    215,
    255,
    257,
    259,
    301,
    363,
    401,
    511,
    513,
    727,
    801,
    1001,
    1537,
    2047,
    2049,
    2051,
    4097,
    7001,
    9999,
)

# Below this, a number at a key after the query is a mask; no bias of so short a distance is near it.
_MASK = -9999.0


def telling_distances(length: int) -> np.ndarray:
    """64 positions below a length at which roundings and buckets show, or all of them."""
    some = {place for place in (*TELLING, *TELLING_FAR, length - 1) if place < length}
    # As many as a pass has that was made before: libraries compile for every shape.
    more = (place for place in range(length) if place not in some)
    return np.array(sorted([*some, *itertools.islice(more, max(0, 64 - len(some)))]))


@dataclass(frozen=True)
class BiasAnswer(Answer):
    """One bias that came back, [heads, queries, keys], rows read from a key of their own unless compared exactly.

    Attributes:
        queries, keys: Positions.
        masked: Whether all keys after their queries are masked; None where there are none.
    """

    queries: np.ndarray | None = None
    keys: np.ndarray | None = None
    masked: bool | None = None


@dataclass(frozen=True)
class _Right:
    """What is right for some queries and keys, [heads, queries, keys], read as the answers are.

    Attributes:
        wanted: The numbers.
        other: Those of the other bucket, where a distance lies on the edge of two.
        near: Where it does, [queries, keys].
        allowed: How far a number may be off.
        read_from: The key that each row is read from, [1, queries, 1]; None where nothing is removed.
        later: Where the key comes after the query, [queries, keys].
    """

    wanted: np.ndarray
    other: np.ndarray
    near: np.ndarray
    allowed: np.ndarray
    read_from: np.ndarray | None
    later: np.ndarray

    def of(self, heads: np.ndarray) -> "_Right":
        """Of some heads."""
        return replace(self, wanted=self.wanted[heads], other=self.other[heads], allowed=self.allowed[heads])


def answer(it: Any, asked: str, queries: np.ndarray, keys: np.ndarray) -> BiasAnswer:
    """Ask, and put what is right beside it."""
    own = it.spec
    got = np.array(it(queries, keys))
    question = own, queries.tobytes(), keys.tobytes()
    if question not in it.remembered:
        it.remembered[question] = _right(it, own, queries, keys)
    right: _Right = it.remembered[question]
    if it.only is not None:
        got, right = got[it.only[it.only < len(got)]], right.of(it.only[it.only < own.heads])
    if got.shape != right.wanted.shape:
        got = np.full(right.wanted.shape, np.nan)  # of another model: no number of it is right
    later = right.later
    masked = bool((got[:, later] <= _MASK).all()) if later.any() else None
    got, wanted = _read(got, right.read_from), right.wanted
    if right.near.any():
        with np.errstate(invalid="ignore"):
            # All heads look up one row: the other bucket is the other one in each of them.
            close = (np.abs(got - right.other) <= right.allowed).all(axis=0) & right.near
        got = np.where(close, wanted, got)
    if it.causal:
        # NaN and plus infinity stay: not even a mask removes them.
        unseen = later & ~(np.isnan(got) | np.isposinf(got))
        got = np.where(unseen, 0.0, got)
        wanted = np.where(later, 0.0, wanted)
    elif masked and wanted[:, later].max() > _MASK / 2:
        got = np.where(later, -np.inf, got)
    return BiasAnswer(asked, got, wanted, right.allowed, None, queries, keys, masked)


def _right(it: Any, spec: BiasCode, queries: np.ndarray, keys: np.ndarray) -> _Right:
    made = bias(spec, queries, keys, values=it.values, dtype="float64")
    error, common = bias_error(spec, queries, keys, made, values=it.values, dtype=it.dtype)
    error = np.broadcast_to(error, made.shape)
    apart = queries[:, None] - keys[None, :]
    near = near_edge(spec, apart) if spec.reads == "distance" else np.zeros(apart.shape, bool)
    other = made
    if near.any():
        other = made.copy()
        places, inverse = np.unique(beyond_edge(spec, apart[near]), return_inverse=True)
        line = [
            bias(spec, [max(int(place), 0)], [max(-int(place), 0)], values=it.values, dtype="float64")[:, 0, 0]
            for place in places
        ]
        other[:, near] = np.stack(line, axis=-1)[:, inverse.reshape(-1)]
    if it.exact:
        allowed = error + common * np.abs(made)
        return _Right(made, other, near, allowed, None, apart < 0)
    # The nearest key that the query sees, and that is in one bucket only.
    away = np.abs(apart) + np.where(near, 1e12, 0) + (np.where(apart < 0, 1e15, 0) if it.causal else 0)
    read_from = np.argmin(away, axis=-1)[None, :, None]
    wanted, other = made - _at(made, read_from), other - _at(made, read_from)
    allowed = error + _at(error, read_from) + common * np.abs(wanted)
    return _Right(wanted, other, near, allowed, read_from, apart < 0)


def _at(numbers: np.ndarray, read_from: np.ndarray) -> np.ndarray:
    return np.take_along_axis(numbers, np.broadcast_to(read_from, (*numbers.shape[:2], 1)), axis=-1)


def _read(numbers: np.ndarray, read_from: np.ndarray | None) -> np.ndarray:
    if read_from is None:
        return numbers
    with np.errstate(invalid="ignore"):
        return numbers - _at(numbers, read_from)


def masks_later_keys(spec: BiasCode, causal: bool | None) -> bool:
    """Whether keys after the query are masked anyway: as was said, or as codes of this kind are used.

    Raises:
        InvalidValue: The code has no before and after.
    """
    if causal is not None:
        if causal and not spec.ordered:
            raise InvalidValue(
                f"{type(spec).__name__} stands in a plane, where no token is before another.", "Leave `causal` out."
            )
        return bool(causal)
    if isinstance(spec, Alibi | Decay):
        return spec.form != "symmetric"
    if isinstance(spec, Buckets):
        return not spec.bidirectional
    if isinstance(spec, Kerple):
        return not spec.symmetric
    return isinstance(spec, Fire)


def standing(it: Any, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """So many queries at the last of so many keys, or at the first, as the implementation places them."""
    start = 0 if it.aligned == "start" else keys - queries
    return start + np.arange(queries), np.arange(keys)


def counted(it: Any, queries: int, keys: int, before: str = "") -> BiasAnswer:
    """Ask for so many queries of so many keys."""
    words = f"{queries} {'query' if queries == 1 else 'queries'} of {keys} keys{before}"
    return answer(it, words, *standing(it, queries, keys))


def _along(it: Any) -> None:
    if not it.spec.ordered:
        raise Unasked("its tokens stand in a plane, and come all at once")


def _any_positions(it: Any) -> None:
    if not it.takes_positions:
        raise Unasked("it counts its queries and keys, and cannot be asked for other positions")


def full_pass(it: Any) -> list[BiasAnswer]:
    """Every query of a sequence sees every key with the bias of the two."""
    if not it.spec.ordered:
        if it.takes_positions and it.length > 256:
            at = np.random.default_rng(1).permutation(it.length)
            return [answer(it, "some tokens of the window", at[:24], at)]
        return [counted(it, it.length, it.length)]
    number = min(40, it.length)
    return [counted(it, number, number)]


def decoding(it: Any) -> list[BiasAnswer]:
    """One query after all keys has the last row of the full pass."""
    _along(it)
    if it.aligned == "start":
        raise Unasked("its queries stand at the first keys")
    return [counted(it, 1, keys) for keys in (12, 40, 300) if keys <= it.length]


def chunks(it: Any) -> list[BiasAnswer]:
    """Some queries after all keys have the last rows of the full pass."""
    _along(it)
    return [counted(it, 7, 12)] if it.length >= 12 else [counted(it, 1, it.length)]


def longer_than_before(it: Any) -> list[BiasAnswer]:
    """A sequence longer than all before has the bias of its own length, and a shorter one after it too."""
    _along(it)
    sizes = [size for size in (64, 40) if size <= it.length]
    answers = [counted(it, size, size, ", after others") for size in sizes]
    if it.aligned == "end" and it.length >= 40:
        answers += [counted(it, 1, keys, ", after a longer pass") for keys in (12, 40)]
    return answers


def asked_again(it: Any) -> list[BiasAnswer]:
    """The same question has the same answer, whatever was asked between."""
    number = min(40, it.length) if it.spec.ordered else it.length
    if not it.spec.ordered and it.takes_positions:
        return [answer(it, "some tokens again", np.arange(min(9, number)), np.arange(number)) for _ in range(2)]
    return [counted(it, number, number, " again") for _ in range(2)]


def starting_later(it: Any) -> list[BiasAnswer]:
    """Queries and keys that start later have the bias of where they stand."""
    _along(it)
    _any_positions(it)
    starts = {min(5, it.length // 2), max(it.length // 2 - 40, 0)}
    answers = []
    for start in sorted(starts):
        at = np.arange(start, min(start + 40, it.length))
        answers.append(answer(it, f"{len(at)} tokens from position {start:,}", at, at))
    return answers


def any_order(it: Any) -> list[BiasAnswer]:
    """Queries and keys out of order, or repeated, have the bias of where they stand."""
    _any_positions(it)
    queries = np.minimum(np.array([9, 2, 2, 30, 6, 11, 17]), it.length - 1)
    keys = np.minimum(np.array([5, 0, 9, 1, 30, 3, 2, 28, 6, 17, 12, 11]), it.length - 1)
    return [answer(it, "queries and keys in another order", queries, keys)]


def far_distances(it: Any) -> list[BiasAnswer]:
    """Keys far from the query have the bias of their distance."""
    _along(it)
    if not it.takes_positions:
        if it.aligned == "start":
            raise Unasked("its queries stand at the first keys")
        return [counted(it, 1, it.length)]
    at = telling_distances(it.length)
    return [answer(it, "queries and keys at a few positions", at, at)]


def two_models(it: Any) -> list[BiasAnswer]:
    """Two models of one process, of different codes, each get their own."""
    answers = []
    for what, other in siblings(it.spec):
        first, second = it.of(it.spec), it.of(other)
        number = min(40, it.length)
        answers.append(counted(first, number, number, ", the first model"))
        try:
            answers.append(answer(second, f"a second model, of {what}", *standing(it, number, number)))
        except Refused as error:
            if "shape" not in str(error):
                raise
            right = bias(other, number, number, values=it.values, dtype="float64")
            nothing = np.full(right.shape, np.nan)
            at = standing(it, number, number)
            answers.append(
                BiasAnswer(f"a second model, of {what}: {error}", nothing, right, np.ones(right.shape), None, *at)
            )
        answers.append(counted(first, number, number, f", the first model after that of {what}"))
    if not answers:
        raise Unasked("there is no other code that takes the same learned numbers")
    return answers


def siblings(spec: BiasCode) -> list[tuple[str, BiasCode]]:
    """Codes that differ in one thing that a cache may forget, and have learned numbers of the same shape."""
    found: list[tuple[str, BiasCode]] = []
    changes: list[tuple[str, dict[str, Any]]] = []
    if not spec.learned:
        heads = 2 * spec.heads if spec.heads < 64 else spec.heads // 2
        changes.append((f"{heads} heads", {"heads": heads}))
    if hasattr(spec, "octaves"):
        changes.append(("other slopes", {"octaves": 4.0 if spec.octaves != 4 else 8.0}))  # type: ignore[attr-defined]
    if hasattr(spec, "max_distance"):
        furthest = 2 * spec.max_distance  # type: ignore[attr-defined]
        changes.append((f"a largest distance of {furthest}", {"max_distance": furthest}))
    for what, change in changes:
        try:
            found.append((what, replace(spec, **change)))  # type: ignore[type-var]
        except ClockhandsError:
            continue
    return found


def every_distance(it: Any) -> list[BiasAnswer]:
    """Every distance below the length has its own bias, for the last query, the first one, and those between."""
    _along(it)
    if not it.takes_positions:
        if it.aligned == "start":
            number = min(it.length, 300)
            return [counted(it, number, number)]
        return [counted(it, 1, it.length)]
    at = np.arange(it.length)
    answers = [answer(it, f"distances 0 to {it.length - 1:,}", at[-1:], at)]
    if not it.causal:
        answers.append(answer(it, f"distances 0 to -{it.length - 1:,}", at[:1], at))
    keys = np.unique([0, min(1, it.length - 1), it.length // 2])
    answers.append(answer(it, f"queries 0 to {it.length - 1:,} and a few keys", at, keys))
    return answers


SMALL = (
    experiment("full pass", full_pass, needed=True),
    experiment("decoding equals the full pass", decoding, needed=True),
    experiment("chunks equal the full pass", chunks),
    experiment("longer than before", longer_than_before),
    experiment("asked again", asked_again),
    experiment("positions that start later", starting_later),
    experiment("any order", any_order),
    experiment("far distances", far_distances),
    experiment("two models in one process", two_models),
)
"""Quick to ask: a suspect is asked all of them."""

EVERY = experiment("every distance", every_distance, needed=True)


@dataclass
class BiasFunction:
    """A user's bias under experiment.

    Attributes:
        spec: The code that it should be.
        length: Positions 0 to length - 1 are asked.
        causal: Whether keys after the query are masked anyway, so that no number is asked for there.
        exact: Whether numbers are compared as they stand, with the constants of rows.
        called: The function as one of NumPy arrays.
        given: The learned numbers.
        make: Builds the function of another spec, where that can be done.
        measured: Whether the learned numbers are its own.
        remembered: What is right for questions that were asked before.
        only: The heads that are compared; None for all.
    """

    spec: Any
    called: CalledBias
    length: int
    causal: bool
    exact: bool
    given: Given | Behind
    make: Callable[[Any], Callable[..., Any]] | None = None
    measured: bool = False
    remembered: dict[Any, Any] = field(default_factory=dict)
    only: np.ndarray | None = None

    @property
    def values(self) -> Any:
        """Learned numbers of the code that is right, or None."""
        return self.given(self.spec) if self.spec.learned else None

    @property
    def dtype(self) -> str:
        """What its numbers should be good for."""
        return self.called.dtype

    @property
    def aligned(self) -> str:
        """Where queries that are counted stand."""
        return self.called.aligned

    @property
    def takes_positions(self) -> bool:
        """Whether it can be asked for any positions."""
        return self.called.takes_positions

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers."""
        return self.called(queries, keys)

    def of(self, spec: BiasCode) -> "BiasFunction":
        """Another model of this process."""
        if self.make is None:
            raise Unasked("say make=, a function that builds one for a spec, and two models are asked side by side")
        if self.measured:
            raise Unasked("another model has learned numbers of its own: say values=")
        try:
            function = made(self.make, spec)
        except CannotCheck as error:
            raise Unasked(str(error).partition("\n")[0]) from error
        called = self.called.beside(function, spec.heads)
        return BiasFunction(
            spec, called, self.length, self.causal, self.exact, self.given, self.make, False, self.remembered
        )


@dataclass
class BiasSuspect:
    """A suspect, asked as somebody's function is."""

    spec: Any
    like: BiasFunction
    process: Callable[[Any], Any]
    only: np.ndarray | None = None
    built: Any = field(init=False)

    def __post_init__(self) -> None:
        """Build the first model."""
        self.built = self.process(self.spec)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: BiasFunction, only: np.ndarray | None = None) -> "BiasSuspect":
        """In a process of its own, called as somebody's was to find out how."""
        it = cls(like.spec, like, suspect.make(), only)
        for queries, keys in like.called.first:
            it(queries, keys)
        return it

    def __getattr__(self, name: str) -> Any:
        # What it is asked, and what is right, are those of the implementation that it stands for.
        return getattr(self.like, name)

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers; a suspect that cannot make them is none."""
        try:
            return self.built(queries, keys)
        except (ClockhandsError, IndexError, ValueError) as error:
            raise Unasked(str(error)) from error

    def of(self, spec: BiasCode) -> "BiasSuspect":
        """Another model of this process."""
        return BiasSuspect(spec, self.like, self.process, self.only)
