"""Fourier features: given rates of either sign, exact phases, and gradients that reach the rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import clockhands as ch
from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.grids import Grid
from clockhands.encodings.phases import DIRECT_FINE
from late import Late
from oracles import sentences
from oracles.real_numbers import FLOAT32, worst_number
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

RATES = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
PLACES = st.integers(-(2**62), 2**62) | st.floats(-1e6, 1e6)


def in_real_numbers(rates, places, multiplier):
    """Sines, then cosines, [rows][2 pairs]."""
    rows = []
    for place in places:
        phases = [
            mpf(multiplier) * sum(mpf(at) * mpf(float(rate)) for at, rate in zip(place, column, strict=True))
            for column in rates.T
        ]
        rows.append([mp.sin(phase) for phase in phases] + [mp.cos(phase) for phase in phases])
    return rows


# --- against real numbers --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(PLACES, PLACES, PLACES), min_size=1, max_size=3), st.sampled_from([1.0, 6.25, 2 * np.pi]))
@settings(max_examples=30)
def test_sums_of_phases_are_exact(places, multiplier):
    spec = FourierFeatures(8, 3, multiplier)
    rows = in_real_numbers(RATES, places, multiplier)
    assert worst_number(ch.table(spec, places, values=RATES), rows) <= FLOAT32
    # Each axis past the first adds 13 units of 2**-64 turns; the sign of a rate adds nothing.
    assert worst_number(ch.table(spec, places, "float64", values=RATES), rows) <= DIRECT_FINE + 2 * 0.04 * 2.0**-53


def test_the_check_by_real_numbers_can_fail():
    places = [(1, 2, 3)]
    table = ch.table(FourierFeatures(8, 3), places, values=RATES)
    assert worst_number(table, in_real_numbers(RATES, places, 2 * np.pi * (1 + 1e-6))) > FLOAT32
    assert worst_number(table, in_real_numbers(-RATES, places, 2 * np.pi)) > 0.1
    assert worst_number(table, in_real_numbers(RATES, [(2, 1, 3)], 2 * np.pi)) > 0.01


@every("raw", [None, "before", "after"])
def test_where_everything_stands(raw):
    places = np.array([[0.5, -2.0], [0.25, 8.0]])
    plain = ch.table(FourierFeatures(8), places, values=RATES[:2])
    width = 8 + 2 * (raw is not None)
    for layout, columns in {"halves": slice(None), "interleaved": [0, 4, 1, 5, 2, 6, 3, 7]}.items():
        made = ch.table(FourierFeatures(width, raw=raw, layout=layout), places, values=RATES[:2])
        waves = {None: made, "before": made[:, 2:], "after": made[:, :-2]}[raw]
        assert np.array_equal(waves, plain[:, columns])
        if raw:
            assert np.array_equal(made[:, :2] if raw == "before" else made[:, -2:], places.astype(np.float32))
    assert np.array_equal(
        ch.table(FourierFeatures(8, order="cos-sin"), places, values=RATES[:2]), plain[:, [4, 5, 6, 7, 0, 1, 2, 3]]
    )
    exact = ch.table(FourierFeatures(8), places, "float64", values=RATES[:2])
    halved = ch.table(FourierFeatures(8, scale=0.3), places, values=RATES[:2])
    assert np.array_equal(halved, (0.3 * exact).astype(np.float32))


def test_phases_at_the_origin_and_single_waves(backend):
    rates = np.random.default_rng(7).standard_normal((3, 6)).astype(np.float32)
    places = [(0.5, -2.0), (0, 0), (2**40, 0.125)]
    phases = in_real_numbers(rates, [(*place, 1) for place in places], 2 * np.pi)
    for order, part in {"cos": slice(6, 12), "sin": slice(0, 6), "sin-cos": slice(0, 12)}.items():
        spec = FourierFeatures(6 if part != slice(0, 12) else 12, 2, order=order, offsets=True)
        assert spec.values_shape == (3, 6)
        wanted = [row[part] for row in phases]
        assert worst_number(ch.table(spec, places, values=rates), wanted) <= FLOAT32
        x = np.zeros((3, spec.width), np.float32)
        got = ch.add(backend.asarray(x), spec, places, values=backend.asarray(rates))
        assert np.array_equal(backend.to_numpy(got), ch.table(spec, places, values=rates))
    without = FourierFeatures(6, 2, order="cos")
    table = ch.table(without, places, values=rates[:2])
    assert np.array_equal(table, ch.table(FourierFeatures(12), places, values=rates[:2])[:, 6:])


def test_magnitude_preserving_features():
    # As EDM2's module makes them in float32: cos(x f + b) times the root of 2.
    rng = np.random.default_rng(8)
    at = rng.standard_normal(5).astype(np.float32)
    freqs, phases = (2 * np.pi * numbers for numbers in (rng.standard_normal(16), rng.uniform(size=16)))
    values = np.stack([freqs, phases]).astype(np.float32)
    theirs = np.cos(at[:, None] * values[0] + values[1]) * np.float32(np.sqrt(2))
    ours = ch.table(ch.preset("edm2", width=16), at, values=values)
    assert np.abs(ours - theirs).max() < 1e-5
    ours = ch.table(ch.preset("alphafold3-noise", width=16), at, values=values / (2 * np.pi))
    assert np.abs(np.sqrt(2) * ours - theirs).max() < 1e-5


def test_phases_at_the_origin_have_gradients_and_traces():
    spec = FourierFeatures(5, 2, order="cos", offsets=True, raw="after")
    values = torch.tensor(RATES[:, :3], dtype=torch.float64, requires_grad=True)
    x, places = torch.zeros(4, 5, dtype=torch.float64), np.random.default_rng(9).uniform(-2, 2, (4, 2))
    assert torch.autograd.gradcheck(lambda values: ch.add(x, spec, places, values=values), values)
    made = jax.jit(lambda values: ch.add(jax.numpy.zeros((4, 5)), spec, places, values=values))(RATES[:, :3])
    assert np.abs(made - ch.table(spec, places, values=RATES[:, :3])).max() < 2.0**-17


# --- libraries, gradients, traces ------------------------------------------------------------------------------


def test_values_of_any_library(backend):
    spec, places = FourierFeatures(8, 3), np.random.default_rng(1).uniform(-1, 1, (2, 5, 3))
    x = np.random.default_rng(2).standard_normal((2, 5, 8)).astype(np.float32)
    wanted = x + ch.table(spec, places, values=RATES)
    for values in (RATES, backend.asarray(RATES)):
        got = ch.add(backend.asarray(x), spec, places, values=values)
        assert np.array_equal(backend.to_numpy(got), wanted)
    led = ch.add(backend.asarray(x[0]), spec, Grid((1, 2, 2), prefix=1), values=backend.asarray(RATES))
    assert np.array_equal(backend.to_numpy(led), x[0] + ch.table(spec, Grid((1, 2, 2), prefix=1), values=RATES))


def test_gradients_are_those_of_exact_phases():
    spec = FourierFeatures(9, 3, layout="interleaved", raw="after", scale=0.5, order="-sin-cos")
    values = torch.tensor(RATES[:, :3], dtype=torch.float64, requires_grad=True)
    x, places = torch.zeros(4, 9, dtype=torch.float64), np.random.default_rng(3).uniform(-2, 2, (4, 3))

    def loss(values):
        return ch.add(x, spec, places, values=values)

    assert np.array_equal(loss(values).detach().numpy(), ch.table(spec, places, "float64", values=RATES[:, :3]))
    assert torch.autograd.gradcheck(loss, values)
    assert torch.autograd.gradgradcheck(loss, values)
    # Far away, where a phase in float32 would be noise, the derivative is still p cos(p r).
    far, rates = 10**9, torch.tensor([0.123], requires_grad=True)
    ch.add(torch.zeros(1, 2), FourierFeatures(2, 1, 1.0), [far], values=rates)[0, 0].backward()
    slope = far * ch.table(FourierFeatures(2, 1, 1.0), [far], "float64", values=rates)[0, 1]
    assert rates.grad.item() == pytest.approx(slope, rel=1e-6)


def test_inside_a_trace_phases_are_made_in_the_numbers_own_dtype():
    spec, places = FourierFeatures(8, 3), np.random.default_rng(4).uniform(-1, 1, (5, 3))
    x = jax.numpy.zeros((5, 8))

    def loss(values):
        return (ch.add(x, spec, places, values=values) ** 3).sum()

    made = jax.jit(lambda values: ch.add(x, spec, places, values=values))(jax.numpy.asarray(RATES))
    exact = ch.table(spec, places, "float64", values=RATES)
    largest = 2 * np.pi * np.abs(places @ RATES).max()
    assert np.abs(made - exact).max() <= max(1, largest) * 3 * 2.0**-22
    gradient = jax.jit(jax.grad(loss))(jax.numpy.asarray(RATES))
    sine, cosine = exact[:, :4], exact[:, 4:]
    wanted = places.T @ (3 * sine**2 * cosine - 3 * cosine**2 * sine) * 2 * np.pi
    assert np.abs(gradient - wanted).max() < 1e-3


# --- refusals --------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("fourier", cases)


def test_rates_are_leaves_of_a_pytree():
    code = Late("clockhands.jax").Additive.drawn(FourierFeatures(8, 3), jax.random.key(0))
    assert code.values.shape == (3, 4)
    assert 0.2 < float(code.values.std()) < 2
    assert jax.tree.leaves(code)[0] is code.values
    grid, x = Grid.between((2, 1, 3), -1, 1), jax.numpy.zeros((6, 8))
    wanted = ch.table(code.spec, grid, values=np.asarray(code.values))
    assert np.array_equal(np.asarray(code(x, grid)), wanted)
    assert np.abs(np.asarray(jax.jit(lambda code, x: code(x, grid))(code, x)) - wanted).max() < 2.0**-17
