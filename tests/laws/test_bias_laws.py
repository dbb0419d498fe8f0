"""The law table of biases: every bias x every law x every array library."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.encodings import specs
from clockhands.encodings.biases import Alibi, BiasCode
from clockhands.testing import BiasSubject
from conftest import load_backend
from laws.bias_members import MEMBERS, subject_of, values_for
from laws.members import DRAWN, judge, other_libraries

ALL_LAWS = testing.laws_for(Alibi(4))
LAWS = {law.name: law for law in ALL_LAWS}
LEARNED = [row for row in MEMBERS if row.spec.learned]


@pytest.mark.parametrize("row", MEMBERS, ids=[row.name for row in MEMBERS])
def test_every_bias_keeps_the_laws(row, cases):
    subject = subject_of(row, load_backend("numpy"))
    for law in ALL_LAWS:
        with cases(law.name):
            judge(row, law, subject)


@other_libraries
def test_laws_that_are_drawn_hold_in_every_library(any_backend, draw, cases):
    """Biases without learned numbers are made in NumPy whatever the library is."""
    for row, law in draw([(row, law) for row in LEARNED for law in ALL_LAWS], DRAWN[any_backend.name]):
        with cases(row.name, law.name):
            judge(row, law, subject_of(row, any_backend))


def test_every_public_bias_is_a_row():
    assert {kind for kind in specs.SPECS if issubclass(kind, BiasCode)} == {type(row.spec) for row in MEMBERS}


def test_rows_name_laws_that_exist():
    assert len(LAWS) == len(ALL_LAWS)
    assert all(row.breaks <= LAWS.keys() for row in MEMBERS)
    assert all(law.says.endswith(".") for law in ALL_LAWS)


def test_all_libraries_give_the_same_numbers(backend, draw, cases):
    units = {"float32": 2.0**-22, "bfloat16": 2.0**-8, "float16": 2.0**-11}
    rows, shapes = (MEMBERS, [(9, 21), (21, 9)]) if backend.name == "numpy" else (LEARNED, [(9, 21)])
    rows = draw(rows, 4) if backend.name == "jax" else rows
    for row, shape in itertools.product(rows, shapes):
        at = [np.arange(row.positions.start, row.positions.start + number) for number in shape]
        known = values_for(row.spec)
        exact = ch.bias(row.spec, *at, values=known, dtype="float64")
        values = known and {name: backend.asarray(array, "float32") for name, array in known.items()}
        for dtype, unit in units.items():
            with cases(row.name, shape, dtype):
                got = ch.bias(row.spec, *at, values=values, dtype=dtype)
                if backend.name != "numpy":
                    assert got.dtype == backend.dtype(dtype)
                    got = backend.to_numpy(got)
                difference = np.abs(got.astype(np.float64) - exact)
                # float32 within 2**-22 of the largest; fewer bits within one rounding of that.
                assert (difference <= unit * np.abs(exact) + 2.0**-22 * np.abs(exact).max()).all()


# --- each law can fail: a right bias made wrong in one way ------------------------------------------------------

SPEC = Alibi(4)


def right(queries, keys, causal):
    return ch.bias(SPEC, queries, keys, causal=causal)


class Cached:
    """Remembers the largest matrix and cuts the next ones out of its corner, as OpenNMT does."""

    def __init__(self):
        self.matrix = np.zeros((4, 0, 0), np.float32)

    def __call__(self, queries, keys, causal):
        if self.matrix.shape[2] < len(keys) or self.matrix.shape[1] < len(queries):
            self.matrix = ch.bias(SPEC, queries, keys, causal=causal)
        return self.matrix[:, : len(queries), : len(keys)]


class Forgetful:
    """Remembers by the number of queries, and forgets what it was asked for since."""

    asked = 0

    def __call__(self, queries, keys, causal):
        self.asked += 1
        return right(queries, keys, causal) - np.float32(self.asked > 1)


def writes_into_queries(queries, keys, causal):
    answer = right(queries, keys, causal)
    queries[:1] += 1
    return answer


def in_bfloat16(queries, keys, causal):
    import ml_dtypes

    apart = queries[:, None].astype(ml_dtypes.bfloat16) - keys.astype(ml_dtypes.bfloat16)
    made = -np.multiply.outer(np.array(SPEC.slopes), apart.astype(np.float64)).astype(np.float32)
    return np.where(causal & (keys > queries[:, None]), -np.inf, made)


SABOTAGE = {
    "told apart in either order": None,
    "remembers nothing": Forgetful(),
    "arguments stay as they are": writes_into_queries,
    "a query is by itself": Cached(),
    "a key is by itself": lambda q, k, causal: right(q, k - (k[-1] if len(k) else 0), causal),
    "constant along diagonals": in_bfloat16,
    "zero where a token meets itself": lambda q, k, causal: right(q, k - 1, causal),
    "falls with the distance": lambda q, k, causal: np.maximum(right(q, k, causal), -20),
    "masked only when asked": lambda q, k, _: right(q, k, True),
    "heads differ": lambda q, k, causal: np.repeat(right(q, k, causal)[:1], 4, axis=0),
    "survives json": None,
}


@pytest.mark.parametrize("name", [name for name, wrong in SABOTAGE.items() if wrong])
def test_the_law_can_fail(name):
    subject = BiasSubject(SPEC, right)
    assert testing.broken(LAWS[name], subject) is None
    assert testing.broken(LAWS[name], replace(subject, bias=SABOTAGE[name]))


def test_there_is_a_wrong_bias_for_each_law():
    assert SABOTAGE.keys() == LAWS.keys()


def test_masks_that_are_not_there_or_reach_too_far_are_noticed():
    law = LAWS["masked only when asked"]
    unmasked = BiasSubject(SPEC, lambda q, k, _: right(q, k, False))
    assert testing.broken(law, unmasked) == "a key after the query is not masked"
    wider = BiasSubject(SPEC, lambda q, k, causal: right(q, k + causal, causal))
    assert "changes keys that the query may see" in testing.broken(law, wider)


def test_specs_that_share_their_numbers_are_noticed():
    law = LAWS["told apart in either order"]
    other = BiasSubject(Alibi(4, octaves=4.0), right)
    assert "give the same numbers" in testing.broken(law, BiasSubject(SPEC, right, (other,)))


def test_a_spec_that_does_not_survive_is_noticed(monkeypatch):
    from clockhands.testing.laws import _everywhere as everywhere

    monkeypatch.setattr(everywhere, "from_json", lambda _: Alibi(5))
    assert "JSON makes another spec" in testing.broken(LAWS["survives json"], BiasSubject(SPEC, right))


def test_wrong_shapes_are_noticed():
    one_head = BiasSubject(SPEC, lambda q, k, causal: right(q, k, causal)[:1])
    assert "of shape (1, 30, 30), not (4, 30, 30)" in testing.broken(LAWS["heads differ"], one_head)
