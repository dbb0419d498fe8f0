"""`clockhands.identify` of bare tables: what is read out of one, and how a match is to be used."""

import json

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, FourierFeatures
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric


def identified(rows, **options):
    """The only match, after the promise that the table is made again."""
    (match,) = ch.identify(rows, **options)
    if match.residual is None:
        made = ch.table(match.spec, match.positions, "float64", values=match.values)
        assert np.abs(made - np.asarray(rows, np.float64)).max() <= match.error + 2.0**-25 * np.abs(made).max()
    return match


def test_a_step_and_rates_are_told_up_to_a_factor():
    """Step 0.25 with rates times 4 is step 1."""
    fast = ch.Sinusoidal(64, spacing=Geometric(10_000.0, multiplier=4.0))
    match = identified(ch.table(fast, 0.25 * np.arange(50)))
    assert (match.name, match.positions) == ("vaswani2017", range(50))


def test_a_base_of_one_span_is_another_of_the_other():
    match = identified(ch.table(ch.preset("vaswani2017"), 64))
    closed = next(spec for spec in match.equivalents if not isinstance(spec, str))
    assert closed.spacing.span == "closed"
    assert closed.base == pytest.approx(9646.62, abs=0.005)
    np.testing.assert_allclose(closed.rates, match.spec.rates, rtol=1e-14)
    whisper = identified(ch.table(ch.preset("whisper"), 64))
    assert whisper.spec.base == 10_000
    assert "whisper" in (whisper.name, *whisper.equivalents)
    # Round in neither span, it is that of the usual one.
    neither = identified(ch.table(ch.Sinusoidal(16, 12345.678), 64))
    assert (neither.spec.spacing.span, neither.spec.base) == ("open", pytest.approx(12345.678))


def test_a_base_beside_a_round_one_is_not_taken_for_it_where_the_numbers_tell_them_apart(cases):
    for dtype, rows, base, beside in (("float32", 8, 500_001, 500_000), ("float16", 40, 9_999, 10_000)):
        with cases(dtype, base):
            found = identified(ch.table(ch.Sinusoidal(16, base), rows, dtype)).spec.base
            assert abs(found - base) < abs(found - beside)


def test_published_rates_that_do_not_start_at_one_are_named():
    spec = ch.preset("pi0-timestep", width=64)
    match = identified(ch.table(spec, np.arange(30) / 1000))
    assert match.name == "pi0-timestep"
    assert dict(match.evidence)["step"] == 0.001


def test_four_rows_are_enough_and_three_are_not():
    rows = ch.table(ch.preset("vaswani2017", width=64), 4)
    assert identified(rows).name == "vaswani2017"
    assert "3 rows are too few" in ch.identify(rows[:3]).reason


def test_what_was_added_to_the_scale_is_read():
    for scale in (0.125, 22.627, 3.0):
        match = identified(ch.table(ch.Sinusoidal(16, 321.0, scale=scale), 40))
        assert match.spec.scale == pytest.approx(scale, rel=1e-7)
    scaled = ch.preset("x-transformers-sinusoidal", width=64)
    match = identified(ch.table(scaled, 40, values=0.3))
    assert (match.name, match.spec, match.values) == ("x-transformers-sinusoidal", scaled, 0.3)


def test_rows_of_zeros_are_told_from_positions():
    spec = ch.Sinusoidal(32, 500.0)
    rows = ch.table(spec, range(3, 40))
    padded = rows.copy()
    padded[5] = 0
    match = identified(padded)
    assert (match.rows.zeroed, match.rows.prepended) == ((5,), 0)
    assert (match.spec.zero_rows, match.positions) == ((8,), range(3, 40))
    # Class rows before position 0 stand nowhere.
    led = np.concatenate([np.zeros((2, 32), np.float32), ch.table(spec, 40)])
    match = identified(led)
    assert (match.rows.zeroed, match.rows.prepended) == ((), 2)
    assert match.positions == Grid(40, prefix=2)
    # Among positions that are no integers a row of zeros stands where no other row does.
    between = ch.table(spec, 0.5 + np.arange(30.0))
    between[11] = 0
    match = identified(between)
    assert match.rows.zeroed == (11,)
    assert match.spec.zero_rows[0] not in 0.5 + np.arange(30.0)


def test_irregular_positions_may_be_given():
    rng = np.random.default_rng(3)
    spec = ch.preset("ddpm", width=64)
    for at in (np.sort(rng.uniform(0, 1000, 50)), rng.permutation(100), np.array([0, 1, 10, 100, 500, 999])):
        match = identified(ch.table(spec, at), positions=at)
        assert "ddpm" in (match.name, *match.equivalents)
        np.testing.assert_array_equal(match.positions, at)
    # Without them the rows are no progression, and with wrong ones no code.
    assert not any(isinstance(one.spec, ch.Sinusoidal) for one in ch.identify(ch.table(spec, at)))
    assert not any(isinstance(one.spec, ch.Sinusoidal) for one in ch.identify(ch.table(spec, at), positions=at + 0.5))


def test_the_libraries_of_arrays_are_all_read(backend):
    rows = ch.table(ch.preset("dit", width=64), 50)
    match = identified(rows) if backend.name == "numpy" else ch.identify(backend.asarray(rows))[0]
    assert match.name == "dit"


def test_the_arithmetic_is_seen():
    at, rates = np.arange(300), 1000.0 ** (-np.arange(16) / 16)
    exact = np.multiply.outer(at.astype(np.float64), rates)
    once = np.concatenate([np.sin(exact), np.cos(exact)], axis=1).astype(np.float32)
    phases = np.multiply.outer(at.astype(np.float32), rates.astype(np.float32))
    single = np.concatenate([np.sin(phases), np.cos(phases)], axis=1)
    assert identified(once).computed_in == "float64"
    assert identified(single).computed_in == "float32"
    assert identified(single.astype(np.float64)).computed_in == "float32"
    # At large positions, phases in float32 are off by more than float16 explains, here by less than twice as much.
    at = np.linspace(0, 80_000, 100)
    exact = np.multiply.outer(at, rates)
    phases = np.multiply.outer(at.astype(np.float32), rates.astype(np.float32)).astype(np.float64)
    for made, arithmetic in ((exact, None), (phases, "float32")):
        rows = np.concatenate([np.sin(made), np.cos(made)], axis=1).astype(np.float16)
        assert identified(rows, positions=at).computed_in == arithmetic


def test_a_wrong_row_is_seen_and_named(cases):
    for far in (0, 7, 29, 500):
        with cases(far):
            rows = ch.table(ch.preset("vaswani2017", width=32), 600 if far > 29 else 30).copy()
            rows[far, 3] += 1e-3
            match = identified(rows)
            assert (match.name, match.confidence) == ("vaswani2017", 1 - 1 / len(rows))
            assert (match.residual.rows, match.residual.channels[0]) == ((far,), 3)
            assert match.residual.largest == pytest.approx(1e-3, rel=1e-3)
            assert f"row {far}" in ch.identify(rows).reason


def test_a_table_near_a_code_keeps_its_name_and_says_how_far_it_is_off():
    rng = np.random.default_rng(5)
    rows = ch.table(ch.preset("vaswani2017", width=128), 512)
    moves = 0.05 * rng.normal(size=rows.shape)
    moves[:, 40] *= 4
    moves[100] *= 4
    match = identified((rows + moves).astype(np.float32))
    assert (match.name, match.spec.base) == ("vaswani2017", 10_000)
    share = np.sqrt((moves**2).mean() / (rows.astype(np.float64) ** 2).mean())
    assert match.residual.share == pytest.approx(share, rel=0.02)
    assert match.confidence == pytest.approx(1 - share, abs=0.01)
    assert (match.residual.rows[0], match.residual.channels[0]) == (100, 40)
    assert "What changed them is not known." in ch.identify((rows + moves).astype(np.float32)).reason


def test_ladders_that_are_not_geometric_are_read():
    even = ch.Sinusoidal(32, spacing=EvenSteps(0.1, 1.0))
    match = identified(ch.table(even, 40))
    np.testing.assert_allclose(match.spec.rates, even.rates, rtol=1e-6)
    rng = np.random.default_rng(2)
    drawn = ch.Sinusoidal(32, spacing=Explicit(tuple(rng.uniform(0.01, 1, 16))), layout="halves")
    match = identified(ch.table(drawn, 5 + np.arange(40)))
    step = dict(match.evidence)["step"]
    np.testing.assert_allclose(np.array(match.spec.rates) * step, drawn.rates, rtol=1e-5)


def test_the_channels_of_several_axes_are_told_apart(cases):
    for order in ("sin-cos", "cos-sin"):
        for channels in ("axis-wave-rate", "axis-rate-wave", "wave-axis-rate", "rate-wave-axis"):
            with cases(order, channels):
                spec = AxialSinusoidal(48, (1, 1), 300.0, channels=channels, order=order)
                grid = Grid((7, 5), start=(0.5, -1), step=(1, 0.5), order=(1, 0), prefix=1)
                match = identified(ch.table(spec, grid))
                assert match.spec == spec
                assert match.positions == grid
                assert dict(match.evidence)["grid"] == [5, 7]


def test_rates_that_were_drawn_are_answered_as_values():
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(2, 16))
    spec = FourierFeatures(32, 2)
    match = identified(ch.table(spec, Grid.centres((9, 6), -1, 1, order=(1, 0)), values=drawn))
    assert (match.name, match.spec, match.values.shape) == ("sam", spec, (2, 16))
    # A grid shows rates modulo a turn from cell to cell.
    turns = (match.values - drawn) * np.array([[2 / 9], [2 / 6]])
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-6)


def test_lists_leading_axes_of_one_bytes_in_any_order_and_other_floats_are_read(cases):
    plain = ch.table(ch.preset("transformer-xl", width=32), 60)
    for kind in (">f4", "<f8", ">f8", "longdouble", ml_dtypes.bfloat16):
        rows = plain.astype(kind)
        for given in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2], rows[None, None]):
            with cases(kind):
                assert ch.identify(given)[0].name == "transformer-xl"
    assert ch.identify(plain.tolist())[0].name == "transformer-xl"
    # And what is wrong in them is wrong in any order of bytes.
    for kind in (">f4", ">f8", "longdouble"):
        rows = plain.astype(kind)
        rows[50, 5] += 0.2
        rows[50, 9] -= 0.1
        with cases(kind, "wrong"):
            (match,) = ch.identify(rows)
            assert (match.residual.rows, match.residual.channels) == ((50,), (5, 9))


def test_what_was_seen_is_json():
    rng = np.random.default_rng(0)
    grid = Grid((6, 5), order=(1, 0))
    tables = (
        ch.table(ch.preset("fairseq", width=33), 40),
        ch.table(ch.Sinusoidal(16, 33.3), 0.1 + 0.37 * np.arange(40), "float64"),
        ch.table(ch.preset("mae", width=32), grid),
        ch.table(FourierFeatures(32, 2), grid, values=rng.normal(size=(2, 16))),
        ch.table(ch.preset("funnel-phi", width=32), 40),
        np.cumsum(rng.normal(size=(64, 16)), axis=0),
    )
    for rows in tables:
        matches = ch.identify(rows)
        for evidence in [match.evidence for match in matches] or [matches.evidence]:
            assert evidence
            assert json.loads(json.dumps(dict(evidence))) == dict(evidence)


def test_falling_positions_are_those_of_a_sine_turned_round():
    rows = ch.table(ch.preset("funnel-omega", width=32), 40)
    match = identified(rows)
    assert (match.spec.order, dict(match.evidence)["step"]) == ("sin-cos", -1)
    assert any("-sin-cos" in str(words) for words in match.equivalents)
