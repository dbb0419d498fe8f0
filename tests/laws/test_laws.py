"""The law table: every code x every law of its kind x every array library."""

import copy
from dataclasses import replace

import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it
import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.encodings import specs
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.mixtures import LayerMixture
from clockhands.errors import InvalidType
from conftest import load_backend
from laws.bias_members import MEMBERS as BIAS_MEMBERS
from laws.members import DRAWN, MEMBERS, NO_SHIFT, judge, other_libraries, subject_of
from laws.rotary_members import ROTARY_MEMBERS

NAMES = [row.name for row in MEMBERS]
LAWS = {law.name: law for law in testing.laws_for(ch.Sinusoidal(8))}
CELLS = [(row, law) for row in MEMBERS for law in LAWS.values()]


@pytest.mark.parametrize("row", MEMBERS, ids=NAMES)
def test_every_code_keeps_the_laws_of_its_kind(row, cases):
    subject = subject_of(row, load_backend("numpy"))
    for law in LAWS.values():
        with cases(law.name):
            judge(row, law, subject)


@other_libraries
def test_laws_that_are_drawn_hold_in_every_library(any_backend, draw, cases):
    """That all numbers are those of NumPy is seen below."""
    for row, law in draw(CELLS, DRAWN[any_backend.name]):
        with cases(row.name, law.name):
            judge(row, law, subject_of(row, any_backend))


def test_every_public_spec_is_a_row():
    rows = {type(row.spec) for row in (*MEMBERS, *ROTARY_MEMBERS, *BIAS_MEMBERS)}
    # A mixture says which layer has which code; each of those is a row.
    assert set(specs.SPECS) - {LayerMixture} == rows


def test_what_is_no_spec_has_no_laws():
    with pytest.raises(InvalidType, match="There are no laws for Geometric"):
        testing.laws_for(Geometric())


def test_rows_name_laws_that_exist():
    for row in MEMBERS:
        assert row.breaks <= LAWS.keys()


def test_each_law_says_what_it_says():
    for spec in (ch.Sinusoidal(8), ch.Rotary(8), ch.Alibi(8)):
        laws = testing.laws_for(spec)
        assert len({law.name for law in laws}) == len(laws)
    assert all(law.says.endswith(".") for law in testing.LAWS)


@pytest.mark.parametrize("any_backend", ["torch", "jax"], indirect=True)
def test_all_libraries_give_the_same_numbers(any_backend, draw, cases):
    # The code is made once, in NumPy, and one addition in float32 is the same everywhere; values may be the library's.
    learned = [row for row in MEMBERS if row.spec.learned]
    for row in [*learned, *draw([row for row in MEMBERS if not row.spec.learned], 3)]:
        subject = subject_of(row, any_backend)
        at = subject.at(subject.among(np.array([0, 1, 2, 3, 5, 63, 64])))
        x = np.random.default_rng(3).standard_normal((2, len(at), row.spec.width))
        values = row.values if row.spec.learned else None
        for dtype in ("float32", "float16", "bfloat16"):
            with cases(row.name, dtype):
                wanted = ch.add(x.astype(dtype), row.spec, at, values=values)
                got = ch.add(any_backend.asarray(x, dtype), row.spec, at, values=values)
                assert got.dtype == any_backend.dtype(dtype)
                assert np.array_equal(np.asarray(any_backend.to_numpy(got), np.float64), wanted.astype(np.float64))


def test_the_number_of_threads_changes_nothing(monkeypatch, cases):
    from clockhands.encodings import phases

    monkeypatch.setattr(phases, "_THREADED", 1)
    for row in MEMBERS:
        values = row.values if row.spec.learned else None
        at = range(max(0, row.positions.start), min(1_000, row.positions.stop))
        if row.spec.number_of_axes > 1:
            at = testing.Subject(row.spec, right).at(np.array(at))
        for dtype in ("float32", "float64"):
            with cases(row.name, dtype):
                one, *more = (ch.table(row.spec, at, dtype, values=values, threads=threads) for threads in (1, 2, 3))
                assert all(np.array_equal(one, other) for other in more)


# --- each law can fail: a right code made wrong in one way, and the law that must say so -----------------------


SPEC = ch.Sinusoidal(8)


def right(x, positions):
    return ch.add(x, SPEC, positions)


def wrong(rows):
    """An implementation that adds ``rows(positions)`` instead."""
    return lambda x, positions: (x + rows(np.asarray(positions))).astype(x.dtype)


def textbook_float16(positions):
    rates = 10_000.0 ** (-np.arange(4) / 4)
    phases = (positions.astype(np.float16)[:, None] * rates).astype(np.float64)
    return np.stack([np.sin(phases), np.cos(phases)], -1).reshape(len(positions), 8).astype(np.float32)


def transposed(x, positions):
    spec = ch.Sinusoidal(8, layout="halves")
    return ch.add(x, spec, positions)


class Cached:
    """Remembers the last table by its length, as one would."""

    def __init__(self):
        self.tables = {}

    def __call__(self, x, positions):
        key = len(positions)
        if key not in self.tables or x.dtype != np.float32:
            self.tables[key] = ch.table(SPEC, positions).astype(x.dtype).astype(np.float32)
        return (x + self.tables[key]).astype(x.dtype)


def writes_into_x(x, positions):
    x += ch.table(SPEC, positions)
    return x


def writes_into_positions(x, positions):
    answer = right(x, positions)
    if len(positions):
        positions[0] += 1
    return answer


def first_sequence_only(x, positions):
    answer = x.copy()
    sequences = answer.reshape(-1, *x.shape[-2:])
    sequences[0] = right(sequences[0], positions)
    return answer


def counts_from_zero(x, positions):
    return right(x, np.arange(len(positions)))


def chosen_by_dtype(x, positions):
    near = np.asarray(positions).astype(x.dtype).astype(np.float64) if x.dtype == np.float16 else positions
    return right(x, near)


SABOTAGE = {
    "bounded": wrong(lambda at: 1.001 * ch.table(SPEC, at)),
    "shifted by one matrix": wrong(lambda at: ch.table(SPEC, (at // 3).tolist())),
    "shift is a rotation": transposed,
    "shifts compose": None,
    "kernel of distance": wrong(textbook_float16),
    "told apart in either order": None,
    "remembers nothing": Cached(),
    "the dtype of x decides its rounding only": chosen_by_dtype,
    "arguments stay as they are": writes_into_x,
    "every axis before the sequence is alike": first_sequence_only,
    "any number of tokens": counts_from_zero,
    "survives json": None,
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast", "ignore:invalid value encountered in cast")
@pytest.mark.parametrize("name", [name for name, apply in SABOTAGE.items() if apply])
def test_the_law_can_fail(name):
    subject = testing.Subject(SPEC, right, positions=range(60_000))
    assert testing.broken(LAWS[name], subject) is None
    how = testing.broken(LAWS[name], replace(subject, apply=SABOTAGE[name]))
    assert how


def test_there_is_a_wrong_code_for_each_law():
    assert SABOTAGE.keys() == LAWS.keys()


def test_other_wrong_codes_are_noticed(cases):
    asked = []

    def counted(x, positions):
        return x + ch.table(SPEC, positions) + len(asked)

    other_base = testing.Subject(ch.Sinusoidal(8, base=500.0), right)
    counting = testing.Subject(SPEC, lambda x, _: asked.append(1) or x)
    in_between = "the same spec gave different values after another spec was used"
    far = {"positions": range(60_000)}
    for law, apply, fields, words in (
        ("arguments stay as they are", writes_into_positions, far, "the positions were changed"),
        # As where a table is remembered without the base that it was made from.
        ("told apart in either order", right, {"others": (other_base,)}, "give the same numbers"),
        ("told apart in either order", counted, {"others": (counting,)}, in_between),
        ("every axis before the sequence is alike", lambda x, at: right(x, at)[..., :-1, :], {}, "shape"),
        ("shift is a rotation", lambda x, at: right(x, at) * np.float32("nan"), {}, "off by nan"),
        ("bounded", lambda x, at: right(x, at) * np.float32("nan"), {}, ""),
        ("shift is a rotation", right, {"positions": range(4)}, "too few positions"),
    ):
        with cases(law, words):
            assert words in testing.broken(LAWS[law], testing.Subject(SPEC, apply, **fields))


def test_what_the_laws_ask_of_the_library_is_noticed_where_it_is_wrong(monkeypatch, cases):
    from clockhands.testing.laws import _additive as additive
    from clockhands.testing.laws import _everywhere as everywhere

    turned, answers = np.roll(np.eye(8), 1, axis=0), iter(range(100))
    for law, module, name, replacement, words in (
        ("shifts compose", additive, "shift", lambda spec, k: ch.shift(spec, k + (k == 3)), "are not one by 3"),
        ("shift is a rotation", additive, "shift", lambda spec, k: 1.01 * ch.shift(spec, k), "not orthogonal"),
        ("shift is a rotation", additive, "shift", lambda *_: turned, "mixes pairs"),
        ("shift is a rotation", additive, "shift", lambda *_: np.eye(6), "is of shape (6, 6)"),
        ("shift is a rotation", additive, "shift", lambda spec, k: ch.shift(spec, -k), "off by"),
        (
            "kernel of distance",
            additive,
            "kernel",
            lambda _, d: ch.kernel(ch.Sinusoidal(8, base=9e3), d),
            "dot product",
        ),
        ("survives json", everywhere, "from_json", lambda _: ch.Sinusoidal(8, base=9e3), "makes another spec"),
        ("survives json", everywhere, "describe", lambda _: f"spec {next(answers)}", "changes"),
    ):
        with monkeypatch.context() as patch, cases(law, words):
            patch.setattr(module, name, replacement)
            assert words in testing.broken(LAWS[law], testing.Subject(SPEC, right))


def test_breaking_by_nature_is_shown_by_the_numbers():
    # Not only by the refusal of `shift`: the rows themselves have no matrix.
    law = LAWS["shifted by one matrix"]
    for row in MEMBERS:
        if row.breaks >= NO_SHIFT:
            subject = testing.Subject(copy.deepcopy(row.spec), _apply(row), (), row.positions, row.tolerance)
            assert testing.broken(law, subject), row.name


def _apply(row):
    values = row.values if row.spec.learned else None
    return lambda x, positions: ch.add(x, row.spec, positions, values=values)
