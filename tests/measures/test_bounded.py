"""Whether numbers stay within a bound."""

import json
import math
import sys
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from clockhands.encodings.additive import (
    AdditiveCode,
    AxialSinusoidal,
    Binary,
    Counter,
    FourierFeatures,
    Learned,
    NoPosition,
    NormalizedCounter,
    SineOnly,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.biases import Alibi, Buckets, Decay, Fire, Kerple, LogWindow, bias
from clockhands.encodings.presets import preset
from clockhands.encodings.rotary import Rotary, XPos
from clockhands.encodings.scaling import Yarn
from clockhands.measures import subject
from clockhands.measures.subject import subject_of
from clockhands.measures.tokens.bounded import bounded

DTYPES = ["float32", "float16", "bfloat16"]


def of(spec, length, dtype="float32", values=None):
    found = bounded(subject_of(spec, length, dtype, values))
    json.dumps(found.to_dict(), allow_nan=False)
    return found


@dataclass(frozen=True)
class Squares(AdditiveCode):
    """A code that this measure knows nothing of."""

    width: int

    def write(self, out, positions, threads=None):
        out[:] = (positions.as_float64() ** 2)[:, None]


def test_no_bound_is_claimed_of_a_code_that_says_none(monkeypatch):
    monkeypatch.setattr(subject, "SPECS", (*subject.SPECS, Squares))
    found = of(Squares(4), 64)
    assert found.holds is None
    assert found.says == "The Squares encoding does not define the largest size of its values."


def largest(spec, length, **values):
    return np.abs(table(spec, range(spec.first, spec.first + length), "float64", **values)).max()


def test_a_clock_is_bounded_and_all_its_rows_are_as_long(cases):
    for length, dtype in product((17, 2048), DTYPES):
        with cases(length, dtype):
            found = of(Sinusoidal(512), length, dtype)
            assert found.holds
            assert (found.numbers["limit"], found.numbers["largest"], found.numbers["row_norm"]) == (1, 1, 16)
            rows = table(Sinusoidal(512), length, dtype).astype(np.float64)
            assert np.linalg.norm(rows, axis=1) == pytest.approx(16, rel=2**-8)
            assert np.abs(rows).max() <= 1


def test_no_number_passes_the_limit_and_the_largest_is_one_of_them(cases):
    for spec in (
        Sinusoidal(64, scale=0.3),
        Sinusoidal(9, odd="extra"),
        Sinusoidal(4, first=1),
        preset("fairseq"),
        preset("patchtst"),
        preset("funnel-pi"),
        SineOnly(8),
        Binary(12),
        WarpedPosition(8),
    ):
        for length in (17, 2048):
            with cases(spec, length):
                found = of(spec, length)
                assert found.holds
                assert found.numbers["largest"] == pytest.approx(largest(spec, length), rel=1e-12)
                assert found.numbers["largest"] <= found.numbers["limit"] * (1 + 1e-12)
                assert found.numbers["limit"] < 2 * found.numbers["largest"], "the limit is not just any number"


def test_a_counter_grows_and_may_outgrow_the_dtype(cases):
    for length, dtype in product((17, 70_000), DTYPES):
        with cases(length, dtype):
            found = of(Counter(4), length, dtype)
            assert found.holds is False
            assert found.numbers["largest"] == length - 1
            assert found.numbers["largest_row_norm"] == 2 * (length - 1)
            assert found.numbers["fits_dtype"] is not (dtype == "float16" and length == 70_000)
            assert f"{length - 1:,}" in found.says


def test_counters_of_a_text_and_raw_coordinates_grow_past_it():
    assert of(NormalizedCounter(4, length=100), 100).numbers["limit"] == 1
    beyond = of(NormalizedCounter(4, length=100), 199)
    assert beyond.holds is False
    assert beyond.numbers["largest"] == 2
    spec = AxialSinusoidal(10, (1, 1), raw="after")
    found = of(spec, 50)
    assert found.holds is False
    assert found.numbers["largest"] == 49
    assert of(AxialSinusoidal(8, (1, 1)), 50).holds


def test_a_learned_table_is_bounded_by_its_rows_in_use_and_a_learned_scale_bounds(cases):
    for dtype in DTYPES:
        with cases(dtype):
            values = np.array([[9.0, 9], [0, 0], [-3, 4], [3, 5]])
            found = of(Learned(2, rows=4, offset=1), 3, dtype, values)
            assert found.holds
            assert (found.numbers["largest"], found.numbers["largest_row_norm"]) == (5, math.sqrt(34))
            assert of(Learned(2, rows=4, offset=1), 2, dtype, values).numbers["largest"] == 4
            assert of(Learned(2, rows=4), 2, dtype).state == "not computed"
    found = of(preset("speecht5"), 17, "float32", np.array(-0.25))
    assert (found.numbers["limit"], found.numbers["row_norm"]) == (0.25, 0.25 * math.sqrt(384))
    assert of(preset("speecht5"), 17).holds


def test_fourier_features_are_bounded_whatever_their_rates():
    assert of(preset("edm2"), 17).numbers["limit"] == math.sqrt(2)
    rates = np.random.default_rng(0).standard_normal((2, 4))
    found = of(FourierFeatures(8), 17, "float32", rates)
    assert found.numbers["largest"] <= found.numbers["limit"] == 1
    assert of(preset("stable-audio-seconds"), 17).holds is False


def test_a_rotation_keeps_lengths_but_for_its_attention_factor(cases):
    for length, dtype in product((17, 2048), DTYPES):
        with cases(length, dtype):
            found = of(Rotary(64), length, dtype)
            assert found.holds
            assert found.numbers["norm_factor"] == 1
            assert "keeps the norms" in found.says
            scaled = Rotary(64, scaling=Yarn(factor=4, original=2048))
            found = of(scaled, length, dtype)
            # 0.1 ln(4) + 1, YaRN's factor.
            assert found.numbers["norm_factor"] == pytest.approx(0.1 * math.log(4) + 1, rel=1e-12)
            assert "1.13863" in found.says


def test_xpos_lets_keys_grow_by_its_slowest_exponent(cases):
    for length in (17, 2048):
        with cases(length):
            found = of(preset("xpos"), length)
            assert found.holds is False
            # zeta of the first pair is 0.4 / 1.4, once in 512 tokens.
            assert found.numbers["largest"] == pytest.approx(3.5 ** ((length - 1) / 512), rel=1e-12)
            assert found.numbers["growth_per_token"] == pytest.approx(math.log(3.5) / 512, rel=1e-12)
            # From a centre in the middle it grows half as far.
            centred = Rotary(64, xpos=XPos(centre=(length - 1) / 2))
            assert of(centred, length).numbers["largest"] == pytest.approx(3.5 ** ((length - 1) / 1024), rel=1e-12)
            beyond = of(preset("xpos"), 2**30)
            assert (beyond.numbers["largest"], beyond.numbers["fits_dtype"]) == (None, False)
            assert "10**" in beyond.says


def test_lines_grow_without_end(cases):
    for length, form in product((2, 300), ("distance", "past", "symmetric", "key", "last-key")):
        with cases(length, form):
            spec = Alibi(8, form=form)
            found = of(spec, length)
            assert found.holds is False
            assert (
                found.numbers["largest"]
                == np.abs(bias(spec, length, length, dtype="float64")).max()
                == 0.5 * (length - 1)
            )
            assert ("adds" in found.says) == (form == "key")
            assert of(Decay(8), length).numbers["largest"] == pytest.approx(-math.log(1 - 2**-5) * (length - 1))


def test_what_is_looked_up_is_bounded_by_the_table():
    spec = Buckets(4, scale=2.0)
    assert of(spec, 64).holds
    assert of(spec, 64).numbers["limit"] is None
    values = np.zeros((32, 4))
    values[5, 2] = -7.5
    assert of(spec, 64, "float32", values).numbers["limit"] == 15
    assert of(LogWindow(3, 8, 8), 64).numbers["limit"] == 16


def test_kerple_grows(cases):
    for length, kernel in product((2, 300), ("log", "power")):
        with cases(length, kernel):
            spec = Kerple(2, kernel=kernel)
            values = {"p": np.array([0.5, 1.5]), "a": np.array([2.0, 0.3])}
            found = of(spec, length, "float32", values)
            assert found.holds is False
            worst = np.abs(bias(spec, length, length, dtype="float64", values=values)).max()
            assert found.numbers["largest"] == pytest.approx(worst, rel=1e-12)
            assert of(spec, length).holds is False


def test_fire_is_bounded_by_its_network_on_shares():
    # One hidden channel that rises until 0.25 and falls from there: relu(x) - 5 relu(x - 0.25), and 0.5 more.
    values = {
        "c": np.array(1.0),
        "threshold": np.array(4.0),
        "w1": np.array([[1.0], [1.0]]),
        "b1": np.array([0.0, -0.25]),
        "w2": np.array([[1.0, -5.0]]),
        "b2": np.array([0.5]),
    }
    spec = Fire(1, hidden=2)
    found = of(spec, 64, "float32", values)
    # At 0: 0.5; at 0.25: 0.75; at 1: 0.5 + 1 - 3.75 = -2.25.
    assert found.holds
    assert found.numbers["limit"] == 2.25
    values["w2"] = np.array([[1.0, -1.0]])
    found = of(spec, 64, "float32", values)
    assert found.numbers["limit"] == 0.75
    worst = np.abs(bias(spec, 3000, 3000, dtype="float64", values=values)).max()
    assert 0.74 < worst <= 0.75
    assert of(spec, 64).holds


def test_a_length_without_end_needs_no_rows():
    assert of(Sinusoidal(512), 2**62).holds
    assert of(NoPosition(4), 16).numbers["limit"] == 0
    assert of(preset("fairseq"), 2**62).numbers["largest"] is None
    assert of(Counter(4), 2**62).numbers["largest"] == 2.0**62


def test_learned_rows_are_read_however_many_there_are(monkeypatch):
    monkeypatch.setattr(sys.modules[bounded.__module__], "_MOST_NUMBERS", 8)
    found = of(Learned(4, 3), 3, values=np.arange(12.0).reshape(3, 4))
    assert found.numbers["largest"] == 11
    assert found.says.startswith("The largest absolute value of the learned table is 11,")
