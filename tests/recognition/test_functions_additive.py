"""Functions that add a table: which, from where on, times what, and in which precision."""

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.ladders import Geometric
from clockhands.recognition.functions import identify_function

WIDTH = 32
SPEC = ch.Sinusoidal(WIDTH)


def in_float32(x, positions, places=np.float32, first=1.0):
    rates = (10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)).astype(np.float32)
    phases = positions.astype(places).astype(np.float32)[:, None] * rates
    rows = np.empty((len(x), WIDTH), np.float32)
    rows[:, ::2], rows[:, 1::2] = np.sin(phases), np.cos(phases)
    return np.float32(first) * x + rows


CODES = {
    "the paper's": SPEC,
    "halves": ch.Sinusoidal(WIDTH, layout="halves"),
    "cosine first": ch.Sinusoidal(WIDTH, order="cos-sin"),
    "halves, cosine first, closed": ch.Sinusoidal(
        WIDTH, layout="halves", order="cos-sin", spacing=Geometric(span="closed")
    ),
    "another base": ch.Sinusoidal(WIDTH, base=123.0),
    "smaller": ch.Sinusoidal(WIDTH, scale=0.25),
}


@pytest.mark.parametrize("name", CODES)
def test_tables_that_are_added_are_identified(name):
    spec = CODES[name]
    found = identify_function(lambda x, p: ch.add(x, spec, p), WIDTH)
    match = found[0]
    assert match.spec == spec
    assert match.error < 1e-7
    assert match.confidence == 1
    assert "It adds a table to x." in found.reason
    assert match.computed_in == dict(match.evidence)["phases_in"] == "float64"


@pytest.mark.parametrize("preset", ["vaswani2017", "tensor2tensor"])
def test_they_are_named(preset):
    spec = ch.preset(preset, width=WIDTH)
    match = identify_function(lambda x, p: ch.add(x, spec, p), WIDTH)[0]
    assert match.name == preset
    assert preset in dict(match.evidence)["presets"]


@pytest.mark.parametrize("odd", ["zero", "extra", "cut"])
def test_odd_widths(odd):
    spec = ch.Sinusoidal(33, odd=odd)
    match = identify_function(lambda x, p: ch.add(x, spec, p), 33)[0]
    assert match.spec == spec
    assert match.error < 1e-7


def test_a_factor_on_x_is_seen():
    found = identify_function(lambda x, p: ch.add(8 * x, SPEC, p), WIDTH)
    assert found[0].spec == SPEC
    assert dict(found[0].evidence)["factor_on_x"] == 8
    assert "which it multiplies by 8" in found.reason


def test_float32_is_seen():
    match = identify_function(in_float32, WIDTH)[0]
    evidence = dict(match.evidence)
    assert match.spec == SPEC
    assert (evidence["rates_in"], evidence["phases_in"], match.computed_in) == ("float32",) * 3
    assert 1e-3 < match.error < 131_072 * 2.0**-23


def test_positions_in_bfloat16_are_seen():
    def function(x, positions):
        return in_float32(x, positions, ml_dtypes.bfloat16)

    found = identify_function(function, WIDTH)
    assert found[0].spec == SPEC
    assert found[0].computed_in == dict(found[0].evidence)["positions_in"] == "bfloat16"
    assert "From position 257 on it is off" in found.reason
    assert found[0].error > 1


def test_positions_from_elsewhere():
    """Row p is that of p + 2, as in fairseq."""
    found = identify_function(lambda x, p: ch.add(x, SPEC, p + 2), WIDTH)
    assert found[0].spec == SPEC
    assert "Position p is row p + 2 of the code." in found.reason


def test_a_table_that_ends_and_is_none_is_learned():
    rows = np.random.default_rng(0).standard_normal((512, WIDTH)).astype(np.float32)
    found = identify_function(lambda x, p: x + rows[p], WIDTH)
    assert found[0].spec == ch.Learned(WIDTH, 512)
    assert np.array_equal(found[0].values, rows)
    assert "512 rows" in found.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: x + p[:, None].astype(x.dtype),
        lambda x, p: x + np.stack([np.random.default_rng(int(at)).standard_normal(WIDTH) for at in p]),
        lambda x, _: x + 1,
    ],
)
def test_other_tables_are_none(function):
    found = identify_function(function, WIDTH)
    assert not found
    assert found.reason


def test_functions_that_give_back_wider_floats():
    found = identify_function(lambda x, p: ch.add(x, SPEC, p).astype(np.longdouble), WIDTH)
    assert found[0].spec == SPEC


def test_functions_that_count_their_rows():
    found = identify_function(lambda x, _: ch.add(x, SPEC), WIDTH)
    assert found[0].spec == SPEC
    assert "counts its rows" in found.reason
