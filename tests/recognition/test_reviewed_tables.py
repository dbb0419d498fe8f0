"""Tables that `clockhands.identify` once read wrongly: bytes, scales, arithmetic, far rows, other axes."""

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from clockhands.errors import InvalidValue
from clockhands.recognition._matches import Equivalent


def table(rows=128, width=64, **fields):
    return ch.table(ch.Sinusoidal(width, **fields), rows)


def test_eight_bits_are_too_few_in_any_library():
    torch = pytest.importorskip("torch")
    for kind in ("float8_e4m3fn", "float8_e5m2"):
        for rows in (table().astype(getattr(ml_dtypes, kind)), torch.from_numpy(table()).to(getattr(torch, kind))):
            matches = ch.identify(rows)
            assert matches == []
            assert f"Numbers of {kind} have too few digits" in matches.reason


def test_hidden_numbers_are_refused():
    rows = np.ma.masked_array(table(), mask=np.zeros((128, 64), bool))
    assert ch.identify(rows)[0].name == "vaswani2017"
    rows[5] = np.ma.masked
    with pytest.raises(InvalidValue, match="hides 64 of 8192"):
        ch.identify(rows)


def test_bfloat16_of_torch_is_compared_in_bfloat16():
    torch = pytest.importorskip("torch")
    (match,) = ch.identify(torch.from_numpy(table()).bfloat16())
    assert dict(match.evidence)["dtype"] == "bfloat16"
    assert dict(match.evidence)["not_nearest"] < 0.01


def test_ramps_have_no_scale():
    for rows, width, kind in ((163, 26, "float16"), (222, 44, "float32"), (163, 26, "float64")):
        ramps = np.exp(-np.arange(rows)[:, None] / rows * np.arange(1, width + 1))
        assert not any(isinstance(match.spec, ch.Sinusoidal) for match in ch.identify(ramps.astype(kind)))


def test_the_bias_of_rounding_is_no_scale(cases):
    for rows, width in ((128, 1024), (24, 512), (64, 64)):
        with cases(rows, width):
            for kind in ("float16", "bfloat16"):
                (match,) = ch.identify(ch.table(ch.Sinusoidal(width), rows, kind))
                assert (match.name, match.spec.scale, match.residual) == ("vaswani2017", 1, None)
            (match,) = ch.identify((np.round(table(rows, width) * 127) / 127).astype(np.float32))
            assert (match.name, match.computed_in) == ("vaswani2017", None)
            assert match.residual is not None


def test_training_noise_is_no_scale(cases):
    for sigma in (1e-5, 1e-4, 1e-3, 3e-3, 0.03):
        with cases(sigma):
            rows = table(128, 128) + sigma * np.random.default_rng(1).normal(size=(128, 128))
            (match,) = ch.identify(rows.astype(np.float32))
            # What a trained table was computed in cannot be seen any more.
            assert (match.name, match.spec.scale, match.computed_in) == ("vaswani2017", 1, None)


def test_a_scale_that_no_training_reaches_is_a_fixed_one():
    for factor in (1000.0, 1e-3):
        (match,) = ch.identify(table() * np.float32(factor))
        assert (match.name, match.values) == (None, None)
        assert match.spec.scale == pytest.approx(factor, rel=1e-7)
    (match,) = ch.identify(table() * np.float32(0.7))
    assert (match.name, match.values) == ("speecht5", pytest.approx(0.7))


def test_long_phases_and_scales_in_float64_are_float64(cases):
    for start, scale in ((10**6, 1.0), (30_000, 1.0), (0, 1000.0), (10**6, 0.01)):
        with cases(start, scale):
            phases = np.multiply.outer(start + np.arange(64.0), 10_000.0 ** (-np.arange(32) / 32))
            rows = scale * np.stack([np.sin(phases), np.cos(phases)], axis=-1).reshape(64, 64)
            (match,) = ch.identify(rows)
            assert (match.computed_in, match.residual) == ("float64", None)


def test_one_row_that_is_far_off_is_only_that(cases):
    """A class token that was trained stands before a table as a row of its own."""
    for rows, far in ((128, 0), (128, 1), (128, 50), (128, 127), (24, 3), (513, 0), (513, 512)):
        with cases(rows, far):
            given = table(rows).copy()
            given[far] = np.random.default_rng(far).normal(size=64)
            (match,) = ch.identify(given)
            assert (match.name, match.positions) == ("vaswani2017", range(rows))
            assert match.residual.rows == (far,)
            assert match.confidence == 1 - 1 / rows


def test_one_row_in_a_hundred_may_be_far_off():
    given, others = table(1000).copy(), [10, 200, 500, 501, 777]
    given[others] = np.random.default_rng(0).normal(size=(5, 64))
    (match,) = ch.identify(given)
    assert match.name == "vaswani2017"
    assert sorted(match.residual.rows) == others


def test_positions_that_are_not_the_rows_own_are_said_to_be(cases):
    for given, words in ((range(2, 130), "2 too high"), (range(-3, 125), "3 too low")):
        with cases(given, words):
            (match,) = matches = ch.identify(table(), positions=given)
            assert (match.name, match.positions, match.residual) == ("vaswani2017", range(128), None)
            assert f"The positions given are {words}." in matches.reason
            matches = ch.identify(table(), positions=np.cumsum(np.arange(128)))
            assert matches[0].positions == range(128)
            assert "are not at the positions given" in matches.reason


def zeroed():
    rows = table().copy()
    rows[6] = 0
    return rows


GRID = Grid((7, 5), start=(0.5, 0), order=(1, 0))


def test_every_equivalent_makes_the_same_numbers(cases):
    def preset(name, width, at=40):
        return ch.table(ch.preset(name, width=width), at)

    rows = (
        preset("fairseq", 64),
        preset("fairseq", 64, range(2, 40)),
        preset("marian-transformers", 33),
        preset("funnel-omega", 32),
    )
    grids = preset("mae", 64, GRID), preset("mae", 64, GRID) * np.float32(0.02)
    detr = preset("detr", 64, Grid((7, 5), start=0.5, step=(0.3, 0.4)))
    irregular = ch.table(ch.Sinusoidal(64, 771.3), 7.7 - 0.37 * np.arange(60), "float64")
    standardised = ch.table(ch.Sinusoidal(64, standardised=40, scale=0.1), 40)
    others = irregular, standardised, preset("pi0-timestep", 64, np.arange(30) / 1000), detr
    perceiver = preset("perceiver", 26, Grid.between((6, 9), -1, 1))
    for number, given in enumerate((table(), table() * np.float32(0.3), zeroed(), *rows, *grids, *others, perceiver)):
        with cases(number):
            (match,) = ch.identify(given)
            for other in match.equivalents:
                spec, positions = other, match.positions
                if isinstance(other, str):
                    spec = ch.preset(other, width=given.shape[1])
                elif isinstance(other, Equivalent):
                    spec, positions = other.spec, other.positions
                    assert ch.describe(spec) in str(other)
                made = ch.table(spec, positions, "float64", values=match.values)
                assert np.abs(made - given).max() <= match.error + 2.0**-22 * np.abs(given).max()


def test_equivalents_that_are_none_are_left_out():
    """A row of zeros, a mean that is taken away, or a scale are no part of the plain presets."""
    for given in (zeroed(), ch.table(ch.Sinusoidal(64, standardised=40, scale=0.1), 40)):
        (match,) = ch.identify(given)
        assert not any(isinstance(other, str) for other in match.equivalents)
    (match,) = ch.identify(ch.table(ch.preset("mae", width=64), GRID) * np.float32(0.02))
    assert (match.name, match.equivalents) == (None, ())


AXES = ch.table(ch.preset("transformers-2d", width=64), Grid((14, 14)))


def test_a_grid_in_which_an_entry_or_a_row_is_wrong_is_still_known():
    rng = np.random.default_rng(0)
    for row, change in ((77, np.eye(1, 64, 3) * 0.1), (0, np.eye(1, 64, 9) * 0.1), (100, rng.normal(size=(1, 64)))):
        given = AXES.copy()
        given[row] += change[0]
        (match,) = matches = ch.identify(given)
        assert (match.name, match.positions, match.residual.rows) == ("transformers-2d", Grid((14, 14)), (row,))
        assert f"row {row}" in matches.reason


def test_confidence_is_the_share_of_rows_that_agree_in_a_grid_too():
    given = AXES.copy()
    given[100, 5:9] += 1e-3
    (match,) = ch.identify(given)
    assert match.confidence == pytest.approx(1 - 1 / 196, abs=1e-12)
    assert match.residual.share < 1e-4


def test_cells_start_at_a_round_part_of_a_step():
    """Rows are moved by less than their rounding if the start of a cell is 7e-9 off."""
    centres = Grid.centres((2, 9), -1, 1, order=(1, 0))
    (match,) = ch.identify(ch.table(ch.preset("stable-diffusion-3"), centres))
    assert (match.positions.start, match.computed_in) == ((-1 / 2, -8 / 9), "float64")


def test_fourier_features_behind_their_coordinate_are_recognised():
    spec = ch.additive.FourierFeatures(33, 1, raw="before")
    rates = np.random.default_rng(0).normal(size=16)
    (match,) = ch.identify(ch.table(spec, np.arange(64) / 64, values=rates))
    assert (match.spec, match.residual) == (spec, None)
    np.testing.assert_allclose(match.values, rates, rtol=1e-5, atol=1e-6)


def test_a_convention_at_known_positions_is_recognised_at_any_of_them():
    for seed in range(5):
        at = np.sort(np.random.default_rng(seed).choice(400, 120, replace=False))
        (match,) = ch.identify(ch.table(ch.Sinusoidal(96), at, "bfloat16"), positions=at)
        assert dict(match.evidence)["names"] == ["cct"]


def test_a_grid_that_is_near_a_code_is_still_known():
    given = AXES + 0.01 * np.random.default_rng(0).normal(size=AXES.shape)
    (match,) = matches = ch.identify(given.astype(np.float32))
    assert (match.name, match.positions, match.computed_in) == ("transformers-2d", Grid((14, 14)), None)
    assert match.residual.share == pytest.approx(0.0141, rel=0.05)
    assert "What changed them is not known." in matches.reason


def test_rows_before_and_behind_a_grid_are_told_from_it():
    rng = np.random.default_rng(0)
    (match,) = matches = ch.identify(np.concatenate([rng.normal(size=(1, 64)), AXES]).astype(np.float32))
    assert (match.name, match.positions, match.residual.rows) == ("transformers-2d", Grid((14, 14), prefix=1), (0,))
    assert "first row is another" in matches.reason
    (match,) = matches = ch.identify(np.concatenate([AXES, np.zeros((4, 64), np.float32)]))
    assert (match.name, match.rows.zeroed) == ("transformers-2d", (196, 197, 198, 199))
    assert sorted(match.residual.rows) == [196, 197, 198, 199]
    assert ch.table(match.spec, match.positions).shape == (200, 64)
    assert "last 4 rows are zeros" in matches.reason


@pytest.mark.parametrize("number", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_what_falls_apart_along_a_grid_and_is_no_sinusoid_is_not_called_one(number, cases, draw):
    for kind in range(5):
        for seed in draw(range(6), number):
            with cases(kind, seed):
                rng = np.random.default_rng([kind, seed])
                given = AXES.astype(np.float64)
                if kind == 0:  # lines of noise
                    given[:, :32] = np.repeat(rng.normal(size=(14, 32)), 14, axis=0)
                    given[:, 32:] = np.tile(rng.normal(size=(14, 32)), (14, 1))
                elif kind == 1:  # a third of the rows replaced
                    which = rng.choice(196, 65, replace=False)
                    given[which] = rng.normal(size=(65, 64)) if seed % 2 else given[np.roll(which, 1)]
                elif kind == 2:  # smooth lines
                    line = np.cumsum(rng.normal(size=(14, 32)), axis=0) / 4
                    given[:, :32], given[:, 32:] = np.repeat(line, 14, axis=0), np.tile(line, (14, 1))
                elif kind == 3:  # one axis of noise
                    given[:, 32:] = np.tile(rng.normal(size=(14, 32)), (14, 1))
                else:
                    given += rng.normal(size=given.shape)
                assert ch.identify(given.astype(np.float32)) == []


def test_rows_of_zeros_behind_a_table_are_seen():
    (match,) = ch.identify(np.concatenate([table(), np.zeros((30, 64), np.float32)]))
    assert (match.name, match.rows.zeroed) == ("vaswani2017", tuple(range(128, 158)))


WAVES = table()
PHASES = np.multiply.outer(np.arange(128.0), 10_000.0 ** (-np.arange(32) / 32))


def test_waves_that_no_convention_pairs_are_not_said_not_to_turn(cases):
    led = np.concatenate([np.repeat([[0.0, 1.0]], 16, axis=1).repeat(40, axis=0), WAVES[:40]], axis=1)
    mirrored = np.stack([np.sin(PHASES), -np.cos(PHASES)], axis=-1).reshape(128, 64)
    shuffled = WAVES[:, np.random.default_rng(0).permutation(64)]
    for number, given in enumerate((mirrored, -WAVES, shuffled, WAVES - WAVES.mean(axis=0), np.cos(PHASES), led)):
        with cases(number):
            matches = ch.identify(given.astype(np.float32))
            assert matches == []
            assert "columns have a constant frequency" in matches.reason
            assert "No pair" not in matches.reason
            seen = dict(matches.evidence)
            assert max(seen["rates_per_row"]) == pytest.approx(1, rel=1e-3)
            assert min(seen["rates_per_row"]) > 0


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_cosine_and_sine_transforms_were_not_trained_further(number, cases, draw):
    for shift in draw((0, 0.5), number):
        with cases(shift):
            rows, waves = np.arange(128)[:, None] + (0.5 if shift else 1), np.arange(64)
            transform = np.cos(np.pi * rows * waves / 128) if shift else np.sin(np.pi * rows * (waves + 1) / 129)
            matches = ch.identify(transform.astype(np.float32))
            assert not any(isinstance(match.spec, ch.Sinusoidal) for match in matches)


def test_pairs_that_stand_still_are_no_training():
    """A grid of one row: half of the channels turn exactly, the others not at all, as those of no ladder do."""
    given = np.concatenate([WAVES[:40], np.tile([0.0, 1.0], (40, 32))], axis=1).astype(np.float32)
    (match,) = ch.identify(given)
    assert match.residual is None
    np.testing.assert_allclose(ch.table(match.spec, match.positions, values=match.values), given, atol=2e-7)


def test_what_would_be_a_code_otherwise_is_said():
    wide = table(64, 128)
    assert "Its columns are the rows of sinusoidal, width 128" in ch.identify(wide.T).reason
    assert "With the other sign it is that of sinusoidal, width 64" in ch.identify(-WAVES).reason
    assert "reshaped to [196, 64]" in ch.identify(AXES.reshape(14, 14, 64)).reason
    assert "The cosines that RoPE stores" in ch.identify(np.cos(np.concatenate([PHASES, PHASES], axis=1))).reason
    rising = ch.identify(table(spacing=Geometric(1 / 10_000, multiplier=10_000 ** (-31 / 32))))
    assert "geometric (base 10000, open, from low to high" in rising.reason
