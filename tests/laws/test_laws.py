"""The law table: every code x every law of its kind x every array library."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import clockhands as ch
from clockhands import specs, testing
from clockhands.errors import InvalidType
from clockhands.ladders import Geometric
from clockhands.mixtures import LayerMixture
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
                wanted = ch.add(x.astype(_numpy_dtype(dtype)), row.spec, at, values=values)
                got = ch.add(any_backend.asarray(x, dtype), row.spec, at, values=values)
                assert got.dtype == any_backend.dtype(dtype)
                assert np.array_equal(np.asarray(any_backend.to_numpy(got), np.float64), wanted.astype(np.float64))


def test_the_number_of_threads_changes_nothing(monkeypatch, cases):
    from clockhands import phases

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


def _numpy_dtype(name):
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


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


def test_positions_that_are_written_into_are_noticed():
    subject = testing.Subject(SPEC, writes_into_positions, positions=range(60_000))
    assert testing.broken(LAWS["arguments stay as they are"], subject) == "the positions were changed"


def test_shifts_that_do_not_compose_are_noticed(monkeypatch):
    from clockhands.testing.laws import _additive as additive

    subject = testing.Subject(SPEC, right)
    monkeypatch.setattr(additive, "shift", lambda spec, k: ch.shift(spec, k + (k == 3)))
    assert "are not one by 3" in testing.broken(LAWS["shifts compose"], subject)


def test_shift_matrices_that_stretch_or_mix_are_noticed(monkeypatch):
    from clockhands.testing.laws import _additive as additive

    subject, law = testing.Subject(SPEC, right), LAWS["shift is a rotation"]
    monkeypatch.setattr(additive, "shift", lambda spec, k: 1.01 * ch.shift(spec, k))
    assert "not orthogonal" in testing.broken(law, subject)
    turned = np.roll(np.eye(8), 1, axis=0)
    monkeypatch.setattr(additive, "shift", lambda *_: turned)
    assert "mixes pairs" in testing.broken(law, subject)
    monkeypatch.setattr(additive, "shift", lambda *_: np.eye(6))
    assert "is of shape (6, 6)" in testing.broken(law, subject)
    monkeypatch.setattr(additive, "shift", lambda spec, k: ch.shift(spec, -k))
    assert "off by" in testing.broken(law, subject)


def test_a_kernel_of_another_code_is_noticed(monkeypatch):
    from clockhands.testing.laws import _additive as additive

    monkeypatch.setattr(additive, "kernel", lambda _, d: ch.kernel(ch.Sinusoidal(8, base=9_000.0), d))
    assert "dot product" in testing.broken(LAWS["kernel of distance"], testing.Subject(SPEC, right))


def test_specs_that_share_their_numbers_are_noticed():
    # As where a table is remembered without the base that it was made from.
    other = testing.Subject(ch.Sinusoidal(8, base=500.0), right)
    how = testing.broken(LAWS["told apart in either order"], testing.Subject(SPEC, right, (other,)))
    assert "give the same numbers" in how


def test_a_spec_that_changes_another_is_noticed():
    asked = []

    def apply(x, positions):
        return x + ch.table(SPEC, positions) + len(asked)

    other = testing.Subject(SPEC, lambda x, _: asked.append(1) or x)
    how = testing.broken(LAWS["told apart in either order"], testing.Subject(SPEC, apply, (other,)))
    assert how == "the same spec gave different values after another spec was used"


@pytest.mark.parametrize("loses", ["from_json", "describe"])
def test_a_spec_that_does_not_survive_is_noticed(monkeypatch, loses):
    from clockhands.testing.laws import _everywhere as everywhere

    answers = iter(range(100))
    replacement = {
        "from_json": lambda _: ch.Sinusoidal(8, base=9_000.0),
        "describe": lambda _: f"spec {next(answers)}",
    }[loses]
    monkeypatch.setattr(everywhere, loses, replacement)
    assert testing.broken(LAWS["survives json"], testing.Subject(SPEC, right))


def test_wrong_shapes_are_noticed():
    subject = testing.Subject(SPEC, lambda x, positions: right(x, positions)[..., :-1, :])
    assert "shape" in testing.broken(LAWS["every axis before the sequence is alike"], subject)


def test_numbers_that_are_not_numbers_are_noticed():
    subject = testing.Subject(SPEC, lambda x, positions: right(x, positions) * np.float32("nan"))
    assert testing.broken(LAWS["shift is a rotation"], subject)
    assert testing.broken(LAWS["bounded"], subject)


def test_laws_need_room():
    subject = testing.Subject(SPEC, right, positions=range(4))
    assert "too few positions" in testing.broken(LAWS["shift is a rotation"], subject)


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
