"""A bias under test, what is expected of it, and the experiments on it."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.encodings.biases import BiasCode, TableCode, bias, row_numbers
from clockhands.errors import ClockhandsError
from clockhands.recognition.calling import Refused
from clockhands.recognition.probe_positions import probe_positions
from clockhands.recognition.suspects import Behind, GivenValues, alone, table_of
from clockhands.testing._experiments import Answer, Unasked, experiment
from clockhands.testing.bounds import UNIT, beyond_edge, bias_error, near_edge
from clockhands.testing.functions._bias_calls import CalledBias
from clockhands.testing.functions._rank_parts import ROWS
from clockhands.testing.functions._subject import CheckedFunction

# At or below this, a number at a key after the query is a mask; no bias of the distances tested is near it.
_MASK = -9999.0


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


@dataclass
class CheckedBias(CheckedFunction):
    """A bias under test, or a suspect in its place.

    Attributes:
        called: The user's function as a function of NumPy arrays.
        causal: Whether keys after the query are masked, so that their numbers are not compared.
        exact: Whether numbers are compared exactly, including a constant added to a whole row.
        given: The learned numbers.
        measured: Whether the learned numbers were measured on the function itself.
        remembered: The expected numbers of earlier calls, by spec, queries and keys.
        only: The heads that are compared; None for all.
        heads: The heads that the function returns, of those of the spec; None for all.
        aligned: Whether the queries are at the last (``"end"``) or the first keys (``"start"``) if it takes counts.
        takes_positions: Whether it takes arbitrary positions.
    """

    called: CalledBias
    causal: bool = False
    exact: bool = False
    given: GivenValues | Behind = field(default_factory=lambda: GivenValues(None))
    measured: bool = False
    remembered: dict[Any, Any] = field(default_factory=dict, repr=False)
    only: np.ndarray | None = None
    heads: range | None = None

    @property
    def values(self) -> Any:
        """The learned numbers of the expected bias, or None."""
        return self.given(self.spec) if self.spec.learned else None

    def __post_init__(self) -> None:
        """See `CheckedFunction`."""
        super().__post_init__()
        self.aligned: str = self.called.aligned
        self.takes_positions: bool = self.called.takes_positions

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers, float64 [heads, queries, keys]; raises `Unasked` if a suspect cannot compute them."""
        if self.suspect is None:
            return self.called(queries, keys)
        try:
            made = self.model(queries, keys)
            return made if self.heads is None else made[self.heads.start : self.heads.stop]
        except (ClockhandsError, IndexError, ValueError) as error:
            raise Unasked(str(error)) from error

    def first_call(self, dtype: str | None) -> None:
        """See `CheckedFunction`."""
        for queries, keys in self.called.first:
            self(queries, keys)

    def of(self, spec: BiasCode, first: str | None = None) -> "CheckedBias":
        """See `CheckedFunction`."""
        if self.suspect is None and self.build is not None and self.measured:
            raise Unasked("another model has other learned values: pass values=")
        return super().of(spec, first)

    def answer(self, asked: str, queries: np.ndarray, keys: np.ndarray) -> BiasAnswer:
        """Call the implementation, and return its bias with the expected one and the bounds."""
        own = self.spec
        got = np.array(self(queries, keys))
        question = own, queries.tobytes(), keys.tobytes()
        if question not in self.remembered:
            self.remembered[question] = self._right(queries, keys)
        right: _Right = self.remembered[question]
        if self.heads is not None:
            right = right.of(np.array(self.heads))
        if self.only is not None:
            there = own.heads if self.heads is None else len(self.heads)
            got, right = got[self.only[self.only < len(got)]], right.of(self.only[self.only < there])
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
        if self.causal:
            # NaN and plus infinity remain errors, because adding a mask does not remove them.
            unseen = later & ~(np.isnan(got) | np.isposinf(got))
            got = np.where(unseen, 0.0, got)
            wanted = np.where(later, 0.0, wanted)
        elif masked and wanted[:, later].max() > _MASK / 2:
            got = np.where(later, -np.inf, got)
        return BiasAnswer(asked, got, wanted, right.allowed, None, queries, keys, masked)

    def _right(self, queries: np.ndarray, keys: np.ndarray) -> _Right:
        spec = self.spec
        made = bias(spec, queries, keys, values=self.values, dtype="float64")
        error, common = bias_error(spec, queries, keys, made, values=self.values, dtype=self.dtype)
        error = np.broadcast_to(error, made.shape)
        apart = queries[:, None] - keys[None, :]
        near = near_edge(spec, apart)
        other = made
        if near.any():
            other = made.copy()
            places, inverse = np.unique(beyond_edge(spec, apart[near]), return_inverse=True)
            line = [
                bias(spec, [max(int(place), 0)], [max(-int(place), 0)], values=self.values, dtype="float64")[:, 0, 0]
                for place in places
            ]
            other[:, near] = np.stack(line, axis=-1)[:, inverse.reshape(-1)]
        if self.exact:
            allowed = error + common * np.abs(made)
            return _Right(made, other, near, allowed, None, apart < 0)
        # The nearest key that the query sees and whose bucket is certain.
        away = np.abs(apart) + np.where(near, 1e12, 0) + (np.where(apart < 0, 1e15, 0) if self.causal else 0)
        read_from = np.argmin(away, axis=-1)[None, :, None]
        wanted, other = made - _at(made, read_from), other - _at(made, read_from)
        allowed = error + _at(error, read_from) + common * np.abs(wanted)
        return _Right(wanted, other, near, allowed, read_from, apart < 0)

    def standing(self, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the queries, at the last or the first keys (``aligned``), and of the keys."""
        return self.called.standing(queries, keys), np.arange(keys)

    def counted(self, queries: int, keys: int, before: str = "") -> BiasAnswer:
        """The bias of this number of queries and keys; ``before`` is appended to the phrase in messages."""
        words = f"{queries} {'query' if queries == 1 else 'queries'} of {keys} keys{before}"
        return self.answer(words, *self.standing(queries, keys))


def _at(numbers: np.ndarray, read_from: np.ndarray) -> np.ndarray:
    return np.take_along_axis(numbers, np.broadcast_to(read_from, (*numbers.shape[:2], 1)), axis=-1)


def _read(numbers: np.ndarray, read_from: np.ndarray | None) -> np.ndarray:
    if read_from is None:
        return numbers
    with np.errstate(invalid="ignore"):
        return numbers - _at(numbers, read_from)


def _along(it: CheckedBias) -> None:
    if not it.spec.ordered:
        raise Unasked("its tokens form a plane and are passed all at once")


def _any_positions(it: CheckedBias) -> None:
    if not it.takes_positions:
        raise Unasked("it counts its queries and keys, so other positions cannot be checked")


def full_pass(it: CheckedBias) -> list[BiasAnswer]:
    """Every query of a sequence sees every key with the bias of the two."""
    if not it.spec.ordered:
        if it.takes_positions and it.length > 256:
            at = np.random.default_rng(1).permutation(it.length)
            return [it.answer("some tokens of the window", at[:24], at)]
        return [it.counted(it.length, it.length)]
    number = min(40, it.length)
    return [it.counted(number, number)]


def decoding(it: CheckedBias) -> list[BiasAnswer]:
    """One query after all keys has the last row of the full pass."""
    _along(it)
    if it.aligned == "start":
        raise Unasked("its queries start at the first key")
    return [it.counted(1, keys) for keys in (12, 40, 300) if keys <= it.length]


def chunks(it: CheckedBias) -> list[BiasAnswer]:
    """Some queries after all keys have the last rows of the full pass."""
    _along(it)
    return [it.counted(7, 12)] if it.length >= 12 else [it.counted(1, it.length)]


def longer_than_before(it: CheckedBias) -> list[BiasAnswer]:
    """A sequence longer than all before has the bias of its own length, and a shorter one after it too."""
    _along(it)
    sizes = [size for size in (64, 40) if size <= it.length]
    answers = [it.counted(size, size, ", after others") for size in sizes]
    if it.aligned == "end" and it.length >= 40:
        answers += [it.counted(1, keys, ", after a longer pass") for keys in (12, 40)]
    return answers


def repeated_call(it: CheckedBias) -> list[BiasAnswer]:
    """The same question has the same answer, whatever was asked between."""
    number = min(40, it.length) if it.spec.ordered else it.length
    if not it.spec.ordered and it.takes_positions:
        return [it.answer("some tokens again", np.arange(min(9, number)), np.arange(number)) for _ in range(2)]
    return [it.counted(number, number, " again") for _ in range(2)]


def starting_later(it: CheckedBias) -> list[BiasAnswer]:
    """Queries and keys that start later have the bias of their positions."""
    _along(it)
    _any_positions(it)
    starts = {min(5, it.length // 2), max(it.length // 2 - 40, 0)}
    answers = []
    for start in sorted(starts):
        at = np.arange(start, min(start + 40, it.length))
        answers.append(it.answer(f"{len(at)} tokens from position {start:,}", at, at))
    return answers


def any_order(it: CheckedBias) -> list[BiasAnswer]:
    """Queries and keys out of order, or repeated, have the bias of their positions."""
    _any_positions(it)
    queries = np.minimum(np.array([9, 2, 2, 30, 6, 11, 17]), it.length - 1)
    keys = np.minimum(np.array([5, 0, 9, 1, 30, 3, 2, 28, 6, 17, 12, 11]), it.length - 1)
    return [it.answer("queries and keys in another order", queries, keys)]


def far_distances(it: CheckedBias) -> list[BiasAnswer]:
    """Keys far from the query have the bias of their distance."""
    _along(it)
    if not it.takes_positions:
        if it.aligned == "start":
            raise Unasked("its queries start at the first key")
        return [it.counted(1, it.length)]
    at = probe_positions(it.length, 64)
    return [it.answer("queries and keys at a few positions", at, at)]


def two_models(it: CheckedBias) -> list[BiasAnswer]:
    """Two models of one process, of different codes, each get their own."""
    answers = []
    for what, other in siblings(it.spec):
        first, second = it.of(it.spec), it.of(other)
        number = min(40, it.length)
        answers.append(first.counted(number, number, ", the first model"))
        try:
            answers.append(second.answer(f"a second model, of {what}", *it.standing(number, number)))
        except Refused as error:
            if "shape" not in str(error):
                raise
            right = bias(other, number, number, values=it.values, dtype="float64")
            nothing = np.full(right.shape, np.nan)
            at = it.standing(number, number)
            answers.append(
                BiasAnswer(f"a second model, of {what}: {error}", nothing, right, np.ones(right.shape), None, *at)
            )
        answers.append(first.counted(number, number, f", the first model after that of {what}"))
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


def every_distance(it: CheckedBias) -> list[BiasAnswer]:
    """Every distance below the length has its own bias, for the last query, the first one, and those between."""
    _along(it)
    if not it.takes_positions:
        if it.aligned == "start":
            number = min(it.length, 300)
            return [it.counted(number, number)]
        return [it.counted(1, it.length)]
    at = np.arange(it.length)
    answers = [it.answer(f"distances 0 to {it.length - 1:,}", at[-1:], at)]
    if not it.causal:
        answers.append(it.answer(f"distances 0 to -{it.length - 1:,}", at[:1], at))
    keys = np.unique([0, min(1, it.length - 1), it.length // 2])
    answers.append(it.answer(f"queries 0 to {it.length - 1:,} and a few keys", at, keys))
    return answers


SMALL = (
    experiment("full pass", full_pass, needed=True),
    experiment("decoding equals the full pass", decoding, needed=True),
    experiment("chunks equal the full pass", chunks),
    experiment("a longer pass after a shorter one", longer_than_before),
    experiment("repeated call", repeated_call),
    experiment("positions that start later", starting_later),
    experiment("any order", any_order),
    experiment("far distances", far_distances),
    experiment("two models in one process", two_models),
)
"""The quick experiments: suspects run all of them."""

EVERY = experiment("every distance", every_distance, needed=True)


def queries_of_a_part(it: CheckedBias) -> list[BiasAnswer]:
    """The queries of a rank see all keys with the bias of their positions."""
    assert it.called.part is not None
    return [it.counted(rows, rows * it.called.part.ranks) for rows in (ROWS, 4 * ROWS, 2 * ROWS)]


def repeated_part(it: CheckedBias) -> list[BiasAnswer]:
    """The same part again."""
    assert it.called.part is not None
    return [it.counted(ROWS, ROWS * it.called.part.ranks, " again") for _ in range(2)]


OF_PART = (
    experiment("full pass", queries_of_a_part, needed=True),
    experiment("repeated call", repeated_part),
)
"""The experiments on a rank's part of the queries."""


def measured(it: CheckedBias) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers of a function that show every row of its table: (queries, keys, numbers [heads, queries, keys]).

    Numbers at masked keys are NaN.
    """
    spec = it.spec
    blocks = []
    if not it.takes_positions or not spec.ordered:
        number = min(it.length, max(64, int((2**18 / spec.heads) ** 0.5))) if spec.ordered else it.length
        blocks.append(it.standing(number, number))
        if spec.ordered and it.aligned == "end" and _rows_in(spec, number) < _rows_in(spec, it.length):
            blocks.append(it.standing(1, it.length))
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


def rows_apart(it: CheckedBias) -> list[Answer]:
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
