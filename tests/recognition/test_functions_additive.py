"""Functions that add a table: which, from where on, times what, and in which precision."""

import ml_dtypes
import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import Geometric
from clockhands.recognition.functions import identify_function

WIDTH = 32
SPEC = ch.Sinusoidal(WIDTH)


def in_float32(x, positions, places=np.float32, first=1.0):
    rates = (10_000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)).astype(np.float32)
    phases = positions.astype(places).astype(np.float32)[:, None] * rates
    rows = np.empty((len(x), WIDTH), np.float32)
    rows[:, ::2], rows[:, 1::2] = np.sin(phases), np.cos(phases)
    return np.float32(first) * x + rows


def test_tables_that_are_added_are_identified_and_named(cases):
    presets = {name: ch.preset(name, width=WIDTH) for name in ("vaswani2017", "tensor2tensor")}
    own = (
        {},
        {"layout": "halves"},
        {"order": "cos-sin"},
        {"layout": "halves", "order": "cos-sin", "spacing": Geometric(span="closed")},
        {"base": 123.0},
        {"scale": 0.25},
        *({"width": 33, "odd": odd} for odd in ("zero", "extra", "cut")),
    )
    specs = presets | {str(fields): ch.Sinusoidal(**{"width": WIDTH} | fields) for fields in own}
    for name, spec in specs.items():
        with cases(name):
            found = identify_function(lambda x, p, spec=spec: ch.add(x, spec, p), spec.width)
            match = found[0]
            if name in presets:
                assert (match.name, name in dict(match.evidence)["presets"]) == (name, True)
            else:
                assert (match.spec, match.confidence) == (spec, 1)
            assert match.error < 1e-7
            assert "It adds a table to x." in found.reason
            assert spec.width > WIDTH or match.computed_in == dict(match.evidence)["phases_in"] == "float64"


def test_what_a_function_does_beside_adding_is_said(cases):
    for function, words in (
        (lambda x, p: ch.add(8 * x, SPEC, p), "which it multiplies by 8"),
        (lambda x, p: ch.add(x, SPEC, p + 2), "Position p is row p + 2 of the code."),  # as in fairseq
        (lambda x, _: ch.add(x, SPEC), "counts its rows"),
        (lambda x, p: ch.add(x, SPEC, p).astype(np.longdouble), "It adds a table to x"),
    ):
        with cases(words):
            found = identify_function(function, WIDTH)
            assert found[0].spec == SPEC
            assert words in found.reason
            assert dict(found[0].evidence)["factor_on_x"] == (8 if "8" in words else 1)


def test_float32_is_seen():
    match = identify_function(in_float32, WIDTH)[0]
    evidence = dict(match.evidence)
    assert match.spec == SPEC
    assert (evidence["rates_in"], evidence["phases_in"], match.computed_in) == ("float32",) * 3
    assert 1e-3 < match.error < 131_072 * 2.0**-23


def test_positions_in_bfloat16_are_seen():
    found = identify_function(lambda x, p: in_float32(x, p, ml_dtypes.bfloat16), WIDTH)
    assert found[0].spec == SPEC
    assert found[0].computed_in == dict(found[0].evidence)["positions_in"] == "bfloat16"
    assert "From position 257 on it is off" in found.reason
    assert found[0].error > 1


def test_a_table_that_ends_and_is_none_is_learned():
    rows = np.random.default_rng(0).standard_normal((512, WIDTH)).astype(np.float32)
    found = identify_function(lambda x, p: x + rows[p], WIDTH)
    assert found[0].spec == ch.Learned(WIDTH, 512)
    assert np.array_equal(found[0].values, rows)
    assert "512 rows" in found.reason


def test_other_tables_are_none(cases):
    for function in (
        lambda x, p: x + np.abs(p[:, None] - 7).astype(x.dtype),
        lambda x, p: x + np.stack([np.random.default_rng(int(at)).standard_normal(WIDTH) for at in p]),
        lambda x, _: x + 1,
    ):
        with cases():
            found = identify_function(function, WIDTH)
            assert not found
            assert found.reason


def test_a_counter_is_named():
    (match,) = identify_function(lambda x, p: x + p[:, None].astype(x.dtype), WIDTH)
    assert (match.name, match.spec) == ("counter", ch.preset("counter", width=WIDTH))
