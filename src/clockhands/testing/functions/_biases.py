"""`check_bias`: whether a function gives the numbers that a bias adds to scores.

The expected output is `clockhands.bias` in float64. A constant added to a whole row of scores does not change the
softmax, so every row is compared relative to the nearest visible key, unless ``exact`` is set.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.biases import BiasCode, TableCode, bias, row_numbers
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.recognition.faults import BIAS, Fault
from clockhands.recognition.suspects import Behind, GivenValues, SeenBias, Suspect, alone, bias_suspects, table_of
from clockhands.testing._checks import checked, function_of, made, named, resolved
from clockhands.testing._experiments import Answer, Asked, Experiment, Unasked, experiment, failed_of
from clockhands.testing.bounds import UNIT, beyond_edge, bias_error, near_edge
from clockhands.testing.functions._calls import CalledBias
from clockhands.testing.functions._suspects import explanations, fitting, told_of
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report

# Positions that separate dtypes (bfloat16 represents whole numbers exactly up to 256, float16 up to 2,048) and buckets.
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

# At or below this, a number at a key after the query is a mask; no bias of the distances tested is near it.
_MASK = -9999.0


def telling_distances(length: int) -> np.ndarray:
    """64 sorted positions below a length that show roundings and buckets; all positions of a shorter length."""
    some = {place for place in (*TELLING, *TELLING_FAR, length - 1) if place < length}
    # The same number as in an earlier pass, because libraries compile for every shape.
    more = (place for place in range(length) if place not in some)
    return np.array(sorted([*some, *itertools.islice(more, max(0, 64 - len(some)))]))


@dataclass(frozen=True)
class BiasAnswer(Answer):
    """One bias [heads, queries, keys]; unless compared exactly, each row is relative to one of its keys.

    Attributes:
        queries, keys: Their positions.
        masked: Whether all keys after their queries are masked; None if there are no such keys.
    """

    queries: np.ndarray | None = None
    keys: np.ndarray | None = None
    masked: bool | None = None


@dataclass(frozen=True)
class _Right:
    """The expected bias for some queries and keys, [heads, queries, keys], relative to the same keys as the answer.

    Attributes:
        wanted: The expected numbers.
        other: The numbers of the other bucket, for distances on the edge of two buckets.
        near: Whether a distance is on such an edge, [queries, keys].
        allowed: The bound of the error of each number.
        read_from: The index of the key whose number is subtracted from its row, [1, queries, 1]; None if none is.
        later: Whether the key comes after the query, [queries, keys].
    """

    wanted: np.ndarray
    other: np.ndarray
    near: np.ndarray
    allowed: np.ndarray
    read_from: np.ndarray | None
    later: np.ndarray

    def of(self, heads: np.ndarray) -> "_Right":
        """The same for some heads."""
        return replace(self, wanted=self.wanted[heads], other=self.other[heads], allowed=self.allowed[heads])


def answer(it: Any, asked: str, queries: np.ndarray, keys: np.ndarray) -> BiasAnswer:
    """Call the implementation, and return its bias with the expected one and the bounds."""
    own = it.spec
    got = np.array(it(queries, keys))
    question = own, queries.tobytes(), keys.tobytes()
    if question not in it.remembered:
        it.remembered[question] = _right(it, own, queries, keys)
    right: _Right = it.remembered[question]
    if it.only is not None:
        got, right = got[it.only[it.only < len(got)]], right.of(it.only[it.only < own.heads])
    if got.shape != right.wanted.shape:
        got = np.full(right.wanted.shape, np.nan)  # the number of heads is wrong, so no number is right
    later = right.later
    masked = bool((got[:, later] <= _MASK).all()) if later.any() else None
    got, wanted = _read(got, right.read_from), right.wanted
    if right.near.any():
        with np.errstate(invalid="ignore"):
            # All heads look up the same row, so all of them must use the other bucket.
            close = (np.abs(got - right.other) <= right.allowed).all(axis=0) & right.near
        got = np.where(close, wanted, got)
    if it.causal:
        # NaN and plus infinity remain errors, because adding a mask does not remove them.
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
    near = near_edge(spec, apart)
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
    # The nearest key that the query sees and whose bucket is certain.
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
    """Whether keys after the query are masked: ``causal`` if given, else as this kind of bias is used."""
    if causal is not None:
        if causal and not spec.ordered:
            raise InvalidValue(
                f"{type(spec).__name__} is for tokens on a plane, where no token comes before another, so it has no "
                "causal form.",
                "Leave `causal` out.",
            )
        return bool(causal)
    return spec.keys_after in ("as itself", "more")


def standing(it: Any, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the queries and of the keys, with the queries at the last or the first keys (``aligned``)."""
    start = 0 if it.aligned == "start" else keys - queries
    return start + np.arange(queries), np.arange(keys)


def counted(it: Any, queries: int, keys: int, before: str = "") -> BiasAnswer:
    """The bias of this number of queries and keys; ``before`` is appended to the phrase in messages."""
    words = f"{queries} {'query' if queries == 1 else 'queries'} of {keys} keys{before}"
    return answer(it, words, *standing(it, queries, keys))


def _along(it: Any) -> None:
    if not it.spec.ordered:
        raise Unasked("its tokens form a plane and are passed all at once")


def _any_positions(it: Any) -> None:
    if not it.takes_positions:
        raise Unasked("it counts its queries and keys, so other positions cannot be checked")


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
        raise Unasked("its queries start at the first key")
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
            raise Unasked("its queries start at the first key")
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
        raise Unasked("there is no other encoding with the same learned values")
    return answers


def siblings(spec: BiasCode) -> list[tuple[str, BiasCode]]:
    """Biases that differ in one field, which the key of a cache may lack, with learned numbers of the same shape.

    Returns pairs of a phrase for the difference and the spec.
    """
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
    experiment("a longer pass after a shorter one", longer_than_before),
    experiment("repeated call", asked_again),
    experiment("positions that start later", starting_later),
    experiment("any order", any_order),
    experiment("far distances", far_distances),
    experiment("two models in one process", two_models),
)
"""The quick experiments: suspects run all of them."""

EVERY = experiment("every distance", every_distance, needed=True)


@dataclass
class BiasFunction:
    """A user's bias under test.

    Attributes:
        spec: The expected bias.
        length: Positions 0 to length - 1 are checked.
        causal: Whether keys after the query are masked, so that their numbers are not compared.
        exact: Whether numbers are compared exactly, including a constant added to a whole row.
        called: The function as a function of NumPy arrays.
        given: The learned numbers.
        make: Builds the function of another spec, or None.
        measured: Whether the learned numbers were measured on the function itself.
        remembered: The expected numbers of earlier calls, by spec, queries and keys.
        only: The heads that are compared; None for all.
    """

    spec: Any
    called: CalledBias
    length: int
    causal: bool
    exact: bool
    given: GivenValues | Behind
    make: Callable[[Any], Callable[..., Any]] | None = None
    measured: bool = False
    remembered: dict[Any, Any] = field(default_factory=dict)
    only: np.ndarray | None = None

    @property
    def values(self) -> Any:
        """The learned numbers of the expected bias, or None."""
        return self.given(self.spec) if self.spec.learned else None

    @property
    def dtype(self) -> str:
        """The precision that its numbers must have."""
        return self.called.dtype

    @property
    def aligned(self) -> str:
        """Whether the queries are at the last (``"end"``) or the first keys (``"start"``) if it takes counts."""
        return self.called.aligned

    @property
    def takes_positions(self) -> bool:
        """Whether it takes arbitrary positions."""
        return self.called.takes_positions

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers, float64 [heads, queries, keys]."""
        return self.called(queries, keys)

    def of(self, spec: BiasCode) -> "BiasFunction":
        """Another model in this process, of this spec; raises `Unasked` if it cannot be built or compared."""
        if self.make is None:
            raise Unasked("pass make=, a function that builds one for a spec, to compare two models")
        if self.measured:
            raise Unasked("another model has other learned values: pass values=")
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
    """A suspect, called in the same way as the user's function."""

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
        """The suspect in a new process, after the same first calls that the user's function had."""
        it = cls(like.spec, like, suspect.make(), only)
        for queries, keys in like.called.first:
            it(queries, keys)
        return it

    def __getattr__(self, name: str) -> Any:
        # The inputs and the expected output are those of the implementation.
        return getattr(self.like, name)

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers, float64 [heads, queries, keys]; raises `Unasked` if the suspect cannot compute them."""
        try:
            return self.built(queries, keys)
        except (ClockhandsError, IndexError, ValueError) as error:
            raise Unasked(str(error)) from error

    def of(self, spec: BiasCode) -> "BiasSuspect":
        """Another model in the same process, of this spec."""
        return BiasSuspect(spec, self.like, self.process, self.only)


LENGTH = 10_000
# A function that takes counts may build the whole square of queries and keys for one row; this bounds its numbers.
_SQUARE = 2**25
# The number of heads in which suspects are compared.
_HEADS = 16


def check_bias(
    fn: Callable[..., Any] | None = None,
    like: BiasCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    call: str = "queries, keys",
    aligned: str = "end",
    causal: bool | None = None,
    exact: bool = False,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function gives the numbers that a bias adds to scores.

    ``fn(queries, keys) -> [heads, queries, keys]``, called for full passes, single queries and chunks after a cache,
    longer and shorter sequences than before, any order, and every distance below `length`. Failures are explained by
    trying every known fault.

    For instance the bias of T5 in Transformers, which takes counts and the number of earlier keys:
    ``check_bias(lambda q, k: attention.compute_bias(q, k, past_seen_tokens=k - q), "t5:heads=12", call="counts")``.

    A number that is added to a whole row of scores does not change the softmax. So rows are compared up to a constant,
    unless `exact`: ``slope k`` is as correct as ``-slope (q - k)``. Axes of size 1 before the heads are allowed, and
    one row for all queries if they are equal, as in ``[1, heads, 1, keys]``.

    Args:
        fn: The function, in any array library.
        like: The expected bias: a spec, or a preset's name with fields (``"bloom:heads=12"``).
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        values: Learned numbers, as `clockhands.bias` takes them (T5: ``table`` [buckets, heads]). If they are omitted
            for a bias with a lookup table, the function's own are measured, and which distances share a row is checked.
        call: The arguments of the function: ``"queries, keys"``, two arrays of positions; ``"counts"``, two numbers,
            with the queries at the last keys; ``"keys"``, the number of keys, for all queries or one.
        aligned: ``"start"`` if a function that takes counts has its queries at the first keys.
        causal: Whether keys after their query are masked, so that their numbers do not matter. By default true for
            biases of decoders: ALiBi in all forms but the symmetric one, buckets of one side, FIRE and others.
        exact: Whether constants of rows are compared too.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The precision that the numbers must have: a bias stored in bfloat16 fails unless this is bfloat16.
        length: Positions 0 to ``length - 1`` are checked: 10,000 by default; if the function takes counts, as many as
            make a square of 2**25 numbers in all heads, at least 512 and at most 10,000.
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report; with failures only if ``raises`` is false.

    Accuracy: the error of a number may be that of correct float32 arithmetic, derived in `clockhands.testing.bounds`,
        plus the rounding to the dtype. A distance on the edge of two buckets may be in either.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message gives the call and its result.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def one_series(queries, keys): return ch.bias(ch.Alibi(12, series="plain"), queries, keys)
    >>> report = check_bias(one_series, ch.Alibi(12), length=300, raises=False)
    >>> sorted(report.codes)
    ['slopes-rule']
    """
    __tracebackhide__ = True
    spec = resolved(like, BiasCode, "bias")
    causal = masks_later_keys(spec, causal)
    if values is not None:
        values = (
            {name: as_numpy(each) for name, each in values.items()} if isinstance(values, dict) else as_numpy(values)
        )
    length = _length(spec, length, call)
    called = CalledBias(
        function_of(fn, make, spec),
        spec.heads,
        tokens=None if spec.ordered else length,
        call=call,
        aligned=aligned,
        backend=backend,
        dtype=dtype,
        timeout=timeout,
    )
    it = BiasFunction(spec, called, length, causal, bool(exact), GivenValues(values), make)
    if values is None and spec.learned:
        it = _with_own_values(it)
    else:
        bias(spec, [0], [0], values=values)  # raises for wrong values before the function is called
    experiments = (*SMALL, *MEASURED, EVERY) if it.measured else (*SMALL, EVERY)
    unknown = "the learned values are not known: pass values="
    return checked(
        "bias",
        named(fn, make),
        it,
        experiments,
        lambda asked: _explained(it, asked),
        raises=raises,
        failure_of=failure_of,
        summary=lambda asked: {"keys after the query": _later(asked, causal)},
        left_out={"keys before and after exchanged": unknown} if it.measured and spec.ordered else {},
    )


def _length(spec: BiasCode, length: int | None, call: str) -> int:
    if not spec.ordered:
        return int(spec.tokens)  # type: ignore[attr-defined]
    if length is not None:
        return count("length", length, least=2)
    if call == "queries, keys":
        return LENGTH
    return min(LENGTH, max(math.isqrt(_SQUARE // spec.heads), 512))


def _with_own_values(it: BiasFunction) -> BiasFunction:
    """The same function with its own learned numbers, measured under the assumption that it is correct."""
    if not it.spec.looked_up:
        names = " and ".join(it.spec.shapes)
        raise InvalidValue(
            f"{type(it.spec).__name__} has learned numbers, but `values` is missing.", f"Pass {names} as values=."
        )
    try:
        blocks = measured(it)
    except Refused as error:
        raise CannotCheck(
            f"The learned values of the function could not be read by calling it: {error}.",
            f"Pass length= for a function of fewer than {it.length:,} positions, or values=.",
        ) from error.__cause__
    numbers = np.concatenate([block.reshape(it.spec.heads, -1) for _, _, block in blocks], axis=1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size or np.ptp(finite) == 0:
        raise CannotCheck(
            "All values of the function are the same: its table is not trained, or it adds no bias.",
            "Fill the table with different values, such as random ones, and pass values=.",
        )
    table = np.nan_to_num(table_seen(it.spec, blocks)) / getattr(it.spec, "scale", 1.0)
    return replace(it, given=Behind(blocks, {it.spec: table}), measured=True)


def _later(asked: list[Asked], causal: bool) -> str:
    masked = {each.masked for one in asked for each in one.answers if isinstance(each, BiasAnswer)} - {None}
    if masked == {True}:
        return "masked"
    return "not compared" if causal else "compared"


def _explained(it: BiasFunction, asked: list[Asked]) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    # Suspects run the quick experiments, and "every distance" only if no quick experiment failed.
    compared = [one for one in asked if one.experiment in SMALL]
    if not any(one.wrong for one in compared):
        compared += [one for one in asked if one.experiment is EVERY]
    if not any(one.wrong for one in compared):
        return unexplained(it, asked)
    measured_too, only = seen(it, asked), _some_heads(it, asked)
    if only is not None:
        compared = [Asked(one.experiment, [_of(each, only) for each in one.answers]) for one in compared]

    def built(suspect: Suspect) -> BiasSuspect:
        return BiasSuspect.of_suspect(suspect, it, only)

    found, note = fitting(compared, bias_suspects(it.spec, measured_too), built)
    return explanations(found, FAULTS_OF_BIASES, note) if found else unexplained(it, asked)


def _some_heads(it: BiasFunction, asked: list[Asked]) -> np.ndarray | None:
    """The indices of at most 16 heads, wrong ones (up to 12) and correct ones; None if there are no more than 16."""
    heads = it.spec.heads
    if heads <= _HEADS:
        return None
    wrong = np.zeros(heads, bool)
    for one in asked:
        for each in one.answers:
            if len(each.got) == heads:
                wrong |= (each.shares > 1).any(axis=(1, 2))
    some, others = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    some = some[np.linspace(0, len(some) - 1, min(len(some), _HEADS - 4)).astype(int)]
    others = others[np.linspace(0, len(others) - 1, min(len(others), _HEADS - len(some))).astype(int)]
    return np.sort(np.concatenate([some, others]))


def _of(answer: Answer, heads: np.ndarray) -> Answer:
    heads = heads[heads < len(answer.got)]
    allowed = np.broadcast_to(answer.allowed, answer.got.shape)
    return replace(answer, got=answer.got[heads], wanted=answer.wanted[heads], allowed=allowed[heads])


FAULTS_OF_BIASES: Mapping[str, Fault] = BIAS
"""The faults of biases, by code."""


def failure_of(experiment: Experiment, answer: Answer) -> Failure | None:
    """The failure of an answer, with head, query and key of the nearest wrong number; None if none is wrong."""
    over = answer.shares
    if not over.size or over.max() <= 1:
        return None
    wrong = over > 1
    if not isinstance(answer, BiasAnswer) or answer.queries is None or answer.keys is None:
        assert answer.positions is not None
        rows = answer.positions[wrong].tolist()
        some = ", ".join(map(str, rows[:6])) + (", ..." if len(rows) > 6 else "")
        message = f"{len(rows)} of {wrong.size} rows of its table equal another row: {some}."
        return Failure(experiment.name, message, {"rows": rows})
    apart = answer.queries[:, None] - answer.keys[None, :]
    # The wrong number of the smallest distance is the most useful one to look at.
    ranked = np.where(wrong, np.abs(apart)[None], np.iinfo(np.int64).max)
    head, query, key = np.unravel_index(int(np.argmin(ranked)), over.shape)
    at, to = int(answer.queries[query]), int(answer.keys[key])
    evidence: dict[str, Any] = {
        "asked": answer.asked,
        "head": int(head),
        "query": at,
        "key": to,
        "distance": at - to,
        "got": float(answer.got[head, query, key]),
        "right": float(answer.wanted[head, query, key]),
        "allowed": float(np.broadcast_to(answer.allowed, over.shape)[head, query, key]),
        "wrong": int(wrong.sum()),
        "of": int(wrong.size),
        "heads": np.flatnonzero(wrong.any(axis=(1, 2))).tolist(),
    }
    message = (
        f"{answer.asked}: {evidence['wrong']:,} of {evidence['of']:,} numbers are wrong; in head {head}, of the query "
        f"at {at:,} and the key at {to:,}, expected {evidence['right']:.6g} ± {evidence['allowed']:.2g}, got "
        f"{evidence['got']:.6g}."
    )
    return Failure(experiment.name, message, evidence)


def seen(it: BiasFunction, asked: Sequence[Asked]) -> SeenBias:
    """Measure how the numbers of the function relate to the expected ones."""
    wrong_at = []
    factors: np.ndarray | None = None
    order = None
    for one in asked:
        for each in one.answers:
            if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
                continue
            apart = np.abs(each.queries[:, None] - each.keys[None, :])
            wrong = (each.shares > 1).any(axis=0)
            wrong_at += [int(apart[wrong].min())] if wrong.any() else []
            if factors is None:
                factors, order = _factors(each), _order(each)
    first_wrong = min(wrong_at, default=None)
    none = np.full(it.spec.heads, np.nan)
    known = none if factors is None else factors
    return SeenBias(it.given, it.causal, it.exact, it.takes_positions, it.length, first_wrong, known, order)


def _factors(answer: BiasAnswer) -> np.ndarray:
    """The factor of each head's numbers to the expected ones, [heads]; NaN if it leaves 1e-4 of the squared numbers."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if not np.isfinite(got).all():
        return np.full(len(got), np.nan)
    whole = (wanted**2).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (got * wanted).sum(axis=-1) / whole
        left = ((got - factors[:, None] * wanted) ** 2).sum(axis=-1) / (got**2).sum(axis=-1)
    return np.where(left < 1e-4, factors, np.nan)


def _order(answer: BiasAnswer) -> np.ndarray | None:
    """For each head the head whose numbers it has, [heads], if heads are exchanged; else None."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if len(got) < 2 or not np.isfinite(got).all():
        return None
    off = ((got[:, None] - wanted[None]) ** 2).sum(axis=-1)
    order = np.argmin(off, axis=-1)
    size = (wanted[order] ** 2).sum(axis=-1)
    exact = (off[np.arange(len(got)), order] <= 1e-4 * size).all()
    exchanged = exact and len(np.unique(order)) == len(order)
    return order if exchanged and not np.array_equal(order, np.arange(len(got))) else None


def unexplained(it: BiasFunction, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    failed = failed_of(asked)
    if it.called.changed:
        return (told_of(FAULTS_OF_BIASES["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if it.called.overwrites:
        return (told_of(FAULTS_OF_BIASES["overwrites-its-answers"], {}),)
    if set(failed) == {"separate buckets"}:
        each = failed["separate buckets"].answers[0]
        assert each.positions is not None
        rows = each.positions[each.shares > 1].tolist()
        return (told_of(FAULTS_OF_BIASES["buckets-not-apart"], {"which": "rows " + ", ".join(map(str, rows[:6]))}),)
    few = _few(it.spec, [each for one in failed.values() for each in one.answers])
    return (told_of(FAULTS_OF_BIASES["one-number-wrong"], {"which": few}),) if few else ()


def _few(spec: BiasCode, answers: Sequence[Answer]) -> str:
    """The wrong distances and heads, as a phrase, if they are few (at most 8, or 0.5 % of those tested); else empty."""
    distances: set[int] = set()
    heads: set[int] = set()
    asked: set[int] = set()
    parts = []
    for each in answers:
        if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
            return ""
        apart = each.queries[:, None] - each.keys[None, :]
        parts.append((apart, each.shares > 1, (apart == 0).any(axis=-1)))
    # A row relative to the query's own key is wrong only at the wrong keys. A row relative to another key is wrong
    # everywhere if that key is wrong.
    plain = any(wrong[:, own].any() for _, wrong, own in parts)
    for apart, wrong, own in parts:
        rows = own if plain else np.ones_like(own)
        asked |= set(np.unique(apart[rows]).tolist())
        distances |= set(np.unique(apart[rows][wrong[:, rows].any(axis=0)]).tolist())
        heads |= set(np.flatnonzero(wrong[:, rows].any(axis=(1, 2))).tolist())
    if not distances or len(distances) > max(8, len(asked) // 200):
        return ""
    at = sorted(distances, key=abs)
    where = f"distance {at[0]:,}" if len(at) == 1 else f"{len(at)} distances (the nearest is {at[0]:,})"
    if spec.slopes is not None or len(heads) < spec.heads:
        where += f", in head{'s' if len(heads) > 1 else ''} {', '.join(map(str, sorted(heads)[:6]))}"
    return where


def measured(it: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers of a function that show every row of its table: (queries, keys, numbers [heads, queries, keys]).

    Numbers at masked keys are NaN.
    """
    spec = it.spec
    blocks = []
    if not it.takes_positions or not spec.ordered:
        number = min(it.length, max(64, int((2**18 / spec.heads) ** 0.5))) if spec.ordered else it.length
        blocks.append(standing(it, number, number))
        if spec.ordered and it.aligned == "end" and _rows_in(spec, number) < _rows_in(spec, it.length):
            blocks.append(standing(it, 1, it.length))
    else:
        at = np.arange(it.length)
        blocks += [(at[-1:], at), (at[:1], at)]
    found = []
    for queries, keys in blocks:
        unseen = it.causal & (queries[:, None] < keys[None, :])
        found.append((queries, keys, np.where(unseen, np.nan, it(queries, keys))))
    return found


def _rows_in(spec: TableCode, length: int) -> int:
    """The number of table rows that the last query of ``length`` keys uses."""
    return len(np.unique(row_numbers(spec, 1, length)))


def table_seen(spec: TableCode, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """The table that gives these numbers, [rows, heads]; NaN where no number shows a row.

    Numbers at distances on an edge of two buckets are ignored: they may be in either bucket.
    """
    parts = []
    for queries, keys, numbers in blocks:
        apart = queries[:, None] - keys[None, :]
        edge = near_edge(spec, apart)
        parts.append((row_numbers(spec, queries, keys), np.where(edge, np.nan, numbers)))
    return table_of(parts, spec.rows)


def rows_apart(it: Any) -> list[Answer]:
    """Distances of different buckets have different numbers, in one head at least."""
    table = table_seen(it.spec, measured(it))
    taken = np.flatnonzero(np.isfinite(table).all(axis=-1))
    found = alone(table[taken], 8 * max(UNIT[it.dtype], 2.0**-24)).astype(float)
    shape = (1, 1, len(taken))
    return [
        Answer("rows of the table", found.reshape(shape), np.ones(shape), np.full(shape, 0.5), taken.reshape(shape))
    ]


MEASURED = (experiment("separate buckets", rows_apart),)
"""The experiments that run only if the learned numbers were measured on the function itself."""
