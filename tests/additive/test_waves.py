"""What a sinusoid is made of beside the paper's: other waves, a scale, a table that is standardised, repeated rates."""

import numpy as np
import pytest
from mpmath import mp

import clockhands as ch
from clockhands.encodings.additive import standardised
from late import Late
from oracles import real_numbers, sentences
from oracles.real_numbers import FLOAT32, FLOAT64
from oracles.rows import every

jax = Late("jax")

AT = [0, 1, 2.5, -3, 10**18]
FUNNEL = {
    "sin-sin": ("sin", "sin"),
    "cos-cos": ("cos", "cos"),
    "-sin-cos": ("-sin", "cos"),
    "cos--sin": ("cos", "-sin"),
}


@every("layout", ["interleaved", "halves"])
@every("order", FUNNEL)
def test_other_waves_are_the_papers_in_other_places(order, layout):
    for dtype in ("float32", "float64", "bfloat16"):
        plain = ch.table(ch.Sinusoidal(8, layout="halves"), AT, dtype)
        parts = {"sin": plain[:, :4], "cos": plain[:, 4:], "-sin": -plain[:, :4]}
        first, second = (parts[name] for name in FUNNEL[order])
        wanted = np.stack([first, second], -1).reshape(5, 8) if layout == "interleaved" else np.hstack([first, second])
        assert np.array_equal(ch.table(ch.Sinusoidal(8, layout=layout, order=order), AT, dtype), wanted)
    # Consecutive positions are made as products, in blocks that are used again.
    plain = ch.table(ch.Sinusoidal(8, layout="halves"), 20_000)
    made = ch.table(ch.Sinusoidal(8, layout="halves", order="-sin-cos"), 20_000)
    assert np.array_equal(made, plain * np.repeat([-1, 1], 4).astype(np.float32))


def test_a_scale_is_rounded_once():
    for positions in (AT, 20_000):
        exact = ch.table(ch.Sinusoidal(8), positions, "float64")
        made = ch.table(ch.Sinusoidal(8, scale=0.1), positions)
        assert np.abs(made - 0.1 * exact).max() <= 2.0**-28 * 1.01
    assert ch.table(ch.Sinusoidal(8, scale=2.0**-3), AT).tolist() == (ch.table(ch.Sinusoidal(8), AT) / 8).tolist()
    both = ch.Sinusoidal(8, scale=0.5, scaled=True)
    assert np.allclose(ch.table(both, AT, values=3.0), 1.5 * ch.table(ch.Sinusoidal(8), AT), atol=1e-7)


@every("rows", [2, 128, 1_000])
def test_a_standardised_table_is_that_of_its_own_length(rows):
    spec = ch.Sinusoidal(8, standardised=rows, scale=0.1)
    rates = real_numbers.geometric(4)
    real = [real_numbers.sinusoid(rates, position) for position in range(min(rows, 128))]
    if rows <= 128:
        numbers = [number for row in real for number in row]
        mean = sum(numbers) / len(numbers)
        spread = mp.sqrt(sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1))
        wanted = np.array([[float((number - mean) / (10 * spread)) for number in row] for row in real])
        assert np.abs(ch.table(spec, rows, "float64") - wanted).max() <= FLOAT64
        assert np.abs(ch.table(spec, rows) - wanted).max() <= FLOAT32
    table = ch.table(spec, rows, "float64")
    assert abs(table.mean()) < 1e-15
    assert table.std(ddof=1) == pytest.approx(0.1, rel=1e-14)
    # As the function for tables of one's own makes it.
    assert np.abs(table - standardised(ch.table(ch.Sinusoidal(8), rows, "float64"))).max() < 1e-15
    # A part of it, and what lies beyond, are rows of the same table.
    assert np.array_equal(ch.table(spec, [1, 0]), ch.table(spec, rows)[[1, 0]])
    assert ch.table(spec, [10**18]).shape == (1, 8)


@every("order", FUNNEL)
def test_other_waves_inside_a_trace(order):
    spec = ch.Sinusoidal(8, layout="halves", order=order)
    made = jax.jit(lambda x, at: ch.add(x, spec, at))(np.zeros((5, 8), np.float32), np.arange(5, dtype=np.int32) * 99)
    assert np.abs(np.asarray(made) - ch.table(spec, range(0, 495, 99))).max() < 2.0**-21


def test_a_standardised_table_inside_a_trace():
    spec = ch.Sinusoidal(8, standardised=64, scale=0.1)
    made = jax.jit(lambda x, at: ch.add(x, spec, at))(np.zeros((64, 8), np.float32), np.arange(64, dtype=np.int32))
    assert np.abs(np.asarray(made) - ch.table(spec, 64)).max() < 2.0**-21


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("waves", cases)
