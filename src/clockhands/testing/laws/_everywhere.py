"""Laws of every encoding that is applied to tokens."""

import copy
import pickle

import numpy as np

from clockhands.encodings.specs import describe, from_json, to_json
from clockhands.testing.laws._subjects import EVERY_KIND, Subject, close, demand, laws_of


def told_apart_in_either_order(subject: Subject) -> None:
    """Different specs give different numbers, whichever is asked first."""
    at = subject.among(np.array([1, 2, 3, 5, 8, 1_000]))
    for other in subject.others:
        there = other.among(at)
        first, second, again = subject.rows(there), other.rows(there), subject.rows(there)
        demand(np.array_equal(first, again), "the same spec gave different values after another spec was used")
        same = first.shape == second.shape and np.array_equal(first, second)
        demand(not same, f"{subject.spec} and {other.spec} give the same numbers")


def remembers_nothing(subject: Subject) -> None:
    """Answers do not depend on what was asked before."""
    at = subject.some(64)
    fresh = subject.rows(at)
    subject.rows(at[::2])
    if subject.coarse is not None:
        subject.rows(at, subject.coarse)
    subject.rows(at[:1])
    demand(np.array_equal(fresh, subject.rows(at)), "the second answer differs from the first")


def the_dtype_of_x_decides_its_rounding_only(subject: Subject) -> None:
    """The code does not depend on the dtype of what it is applied to."""
    if subject.coarse is None:
        return
    at, dtype = subject.some(64), np.dtype(subject.coarse)
    exact, coarse = subject.rows(at), subject.rows(at, subject.coarse)
    with np.errstate(over="ignore"):
        demand(np.array_equal(exact.astype(dtype), coarse), f"{dtype} tokens get another code, not a rounded one")


def arguments_stay_as_they_are(subject: Subject) -> None:
    """Nothing that is passed in is changed."""
    at = subject.some(32)
    x = np.random.default_rng(1).standard_normal((len(at), subject.width)).astype(np.float32)
    at = subject.at(at)
    x_before, at_before, spec_before = x.copy(), at.copy(), pickle.loads(pickle.dumps(subject.spec))
    subject.apply(x, at)
    demand(np.array_equal(x, x_before), "the tokens were changed")
    demand(np.array_equal(at, at_before), "the positions were changed")
    demand(subject.spec == spec_before, "the spec was changed")


def every_axis_before_the_sequence_is_alike(subject: Subject) -> None:
    """Batches get what each sequence alone would get."""
    at = subject.some(16)
    x = np.random.default_rng(2).standard_normal((2, 3, len(at), subject.width)).astype(np.float32)
    at = subject.at(at)
    whole = subject.apply(x, at)
    demand(whole.shape == x.shape and whole.dtype == x.dtype, "shape or dtype of the tokens is not kept")
    for batch in np.ndindex(2, 3):
        demand(np.array_equal(whole[batch], subject.apply(x[batch], at)), "a batch differs from its sequences")


def any_number_of_tokens(subject: Subject) -> None:
    """No token, one token and many tokens are all sequences."""
    width, start = subject.width, subject.some(2)[0]
    demand(subject.rows(np.arange(0)).shape == (0, width), "no token at all is not taken")
    long = np.arange(start, min(start + 5_000, subject.positions.stop))
    rows = subject.rows(long)
    demand(rows.shape == (len(long), width), "many tokens are not taken")
    allowed = 2 * subject.allowed(rows)
    close(subject.rows(long[:1]), rows[:1], allowed, "one token alone gets another code")
    half = len(long) // 2
    close(subject.rows(long[half:]), rows[half:], allowed, "the second half alone gets another code")


def survives_json(subject: Subject) -> None:
    """A spec written as JSON, pickled or copied is the same spec."""
    spec = subject.spec
    for name, back in (
        ("JSON", from_json(to_json(spec))),
        ("pickling", pickle.loads(pickle.dumps(spec))),
        ("copying", copy.deepcopy(spec)),
    ):
        demand(back == spec and hash(back) == hash(spec), f"{name} makes another spec of {spec}")
        demand(to_json(back) == to_json(spec) and describe(back) == describe(spec), f"{name} changes {spec}")


LAWS = laws_of(
    EVERY_KIND,
    told_apart_in_either_order,
    remembers_nothing,
    the_dtype_of_x_decides_its_rounding_only,
    arguments_stay_as_they_are,
    every_axis_before_the_sequence_is_alike,
    any_number_of_tokens,
    survives_json,
)
