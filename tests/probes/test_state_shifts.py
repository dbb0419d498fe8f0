"""What a matrix leaves of a shift of hidden states, on states that are made of a table and of noise."""

import numpy as np
import pytest

import clockhands as ch
from late import Late

state_shifts = Late("clockhands.probes._state_shifts")
SPEC = ch.Sinusoidal(16)


def states(rows: np.ndarray, noise: float, windows: int = 8) -> np.ndarray:
    return rows + noise * np.random.default_rng(0).standard_normal((windows, *rows.shape))


def test_a_sinusoid_under_contents_is_shifted_by_its_own_matrix_and_by_the_best():
    rows = ch.table(SPEC, 256, "float64")
    found = state_shifts.state_shifts(states(rows, 1.0, windows=64), SPEC)
    signal = rows.var(0).sum()
    assert found.share == pytest.approx(signal / (signal + 16), rel=0.1)
    assert abs(found.own[1]) < 0.02
    assert abs(found.own[8]) < 0.02
    assert found.best[1] < 0.1


def test_another_matrix_or_a_random_table_leaves_much(cases):
    rows = ch.table(SPEC, 256, "float64")
    for name, given, spec in (
        ("another base", rows, ch.preset("vaswani2017", width=16, base=3)),
        ("random rows", np.random.default_rng(1).standard_normal((256, 16)), SPEC),
        ("rows in another order", np.random.default_rng(1).permutation(rows), SPEC),
    ):
        with cases(name):
            assert state_shifts.state_shifts(states(given, 0.5), spec).own[1] > 0.1


def test_nothing_is_said_without_a_position_part_or_with_too_few_tokens():
    rows = ch.table(SPEC, 256, "float64")
    assert state_shifts.state_shifts(states(0 * rows, 1.0), SPEC) is None
    assert state_shifts.state_shifts(states(rows, 1.0, windows=1), SPEC) is None
    short = state_shifts.state_shifts(states(rows[:48], 0.1), SPEC)
    assert short.best is None
    assert short.own is not None
    assert state_shifts.state_shifts(states(rows, 0.1), None).own is None
