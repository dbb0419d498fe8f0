"""Laws of biases, which are added to the attention scores of queries and keys."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.testing.laws._everywhere import survives_json
from clockhands.testing.laws._subjects import BIAS, close, demand, laws_of

_SHIFTS = (1, 17, 100_000, 2**40)


@dataclass(frozen=True)
class BiasSubject:
    """An implementation of a bias, and the spec that it should implement.

    Attributes:
        spec: The bias that it should implement.
        bias: ``bias(queries [queries], keys [keys], causal)``: the numbers [heads, queries, keys], a NumPy array.
        others: The same implementation with other specs, which must give other numbers.
        positions: The valid positions.
        tolerance: The largest allowed error of a float32 number, as a share of the largest number.
    """

    spec: Any
    bias: Callable[[np.ndarray, np.ndarray, bool], np.ndarray]
    others: tuple["BiasSubject", ...] = ()
    positions: range = range(2**41)
    tolerance: float = 2.0**-22

    def ends(self, number: int) -> np.ndarray:
        """The first ``number`` positions; fewer if fewer are valid."""
        return np.arange(self.positions.start, min(self.positions.start + number, self.positions.stop))

    def matrix(self, queries: np.ndarray, keys: np.ndarray, *, causal: bool = False) -> np.ndarray:
        """The bias, [heads, queries, keys]; raises `LawBroken` for another shape."""
        made = np.asarray(self.bias(queries, keys, causal))
        wanted = (self.spec.heads, len(queries), len(keys))
        demand(made.shape == wanted, f"the bias is of shape {made.shape}, not {wanted}")
        return made


def told_apart_in_either_order(subject: BiasSubject) -> None:
    """Different specs give different numbers, whichever is asked first."""
    for other in subject.others:
        at = subject.ends(200)[: len(other.ends(200))]
        first, second, again = subject.matrix(at, at), other.matrix(at, at), subject.matrix(at, at)
        demand(np.array_equal(first, again), "the same spec gave different values after another spec was used")
        same = first.shape == second.shape and np.array_equal(first, second)
        demand(not same, f"{subject.spec} and {other.spec} give the same numbers")


def remembers_nothing(subject: BiasSubject) -> None:
    """Answers do not depend on what was asked before."""
    at = subject.ends(24)
    fresh = subject.matrix(at, at)
    subject.matrix(at[:3], at, causal=_ordered(subject))
    subject.matrix(at[-1:], at[:5])
    demand(np.array_equal(fresh, subject.matrix(at, at)), "the second answer differs from the first")


def arguments_stay_as_they_are(subject: BiasSubject) -> None:
    """Nothing that is passed in is changed."""
    queries, keys = subject.ends(6), subject.ends(9)
    before, spec = (queries.copy(), keys.copy()), pickle.loads(pickle.dumps(subject.spec))
    subject.matrix(queries, keys)
    same = np.array_equal(queries, before[0]) and np.array_equal(keys, before[1])
    demand(same, "the positions were changed")
    demand(subject.spec == spec, "the spec was changed")


def a_query_is_by_itself(subject: BiasSubject) -> None:
    """A row depends on its own query alone: one decoding step is the last row of the whole."""
    at = subject.ends(40)
    whole = subject.matrix(at, at)
    worst = subject.tolerance * _largest(whole)
    for rows in (slice(0), slice(1), slice(-1, None), slice(3, 7), slice(None, None, -2)):
        close(subject.matrix(at[rows], at), whole[:, rows], worst, "some queries alone get another bias")


def a_key_is_by_itself(subject: BiasSubject) -> None:
    """A column depends on its own key alone, so a longer past changes no number."""
    at = subject.ends(40)
    whole = subject.matrix(at, at)
    worst = subject.tolerance * _largest(whole)
    for columns in (slice(0), slice(1), slice(5, 9), slice(None, None, -2)):
        close(subject.matrix(at, at[columns]), whole[:, :, columns], worst, "some keys alone get another bias")


def constant_along_diagonals(subject: BiasSubject) -> None:
    """A distance has one number, wherever it stands, up to 2**40."""
    at = subject.ends(30)
    whole = subject.matrix(at, at)
    demand(np.array_equal(whole[:, 1:, 1:], whole[:, :-1, :-1]), "the diagonals are not constant")
    for shift in _SHIFTS:
        demand(int(at[-1]) + shift in subject.positions, f"there are no positions {shift} further on")
        demand(np.array_equal(subject.matrix(at + shift, at + shift), whole), f"{shift} tokens on, the bias is another")


def zero_where_a_token_meets_itself(subject: BiasSubject) -> None:
    """A token gives its own score no bias."""
    at = subject.ends(30)
    diagonal = np.diagonal(subject.matrix(at, at), axis1=1, axis2=2)
    demand(not diagonal.any(), f"at distance 0 the bias is {np.abs(diagonal).max():.3g} in size")


def falls_with_the_distance(subject: BiasSubject) -> None:
    """The further back a key stands, the lower its bias, in every head."""
    at = subject.ends(300)
    row = subject.matrix(at[-1:], at)[:, 0]
    demand(len(at) == 300, "there are too few positions to look back on")
    demand((np.diff(row) > 0).all(), "an earlier key has no lower bias than a later one")


def masked_only_when_asked(subject: BiasSubject) -> None:
    """A causal mask is minus infinity at later keys and changes nothing else; without it nothing is masked."""
    queries, keys = subject.ends(20)[5:], subject.ends(20)
    plain = subject.matrix(queries, keys)
    demand(np.isfinite(plain).all(), "there are values that are not finite, without a mask")
    demand(_ordered(subject), "its positions are in no order that a mask could follow")
    masked, after = subject.matrix(queries, keys, causal=True), keys > queries[:, None]
    demand((masked[:, after] == -np.inf).all(), "a key after the query is not masked")
    demand(np.array_equal(masked[:, ~after], plain[:, ~after]), "the mask changes keys that the query may see")


def heads_differ(subject: BiasSubject) -> None:
    """No two heads have the same bias."""
    at = subject.ends(30)
    heads = subject.matrix(at, at).reshape(subject.spec.heads, -1)
    demand(len(np.unique(heads, axis=0)) == len(heads), "two heads have the same bias")


def _ordered(subject: BiasSubject) -> bool:
    return bool(getattr(subject.spec, "ordered", True))


def _largest(numbers: np.ndarray) -> float:
    return float(np.abs(numbers).max())


LAWS = laws_of(
    frozenset({BIAS}),
    told_apart_in_either_order,
    remembers_nothing,
    arguments_stay_as_they_are,
    a_query_is_by_itself,
    a_key_is_by_itself,
    constant_along_diagonals,
    zero_where_a_token_meets_itself,
    falls_with_the_distance,
    masked_only_when_asked,
    heads_differ,
    survives_json,
)
