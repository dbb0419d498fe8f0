"""Rotary tables that other libraries' own code made: a spec gives each of them, or the library is wrong and named."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.ladders import Geometric, geometric
from clockhands.encodings.rotary import chunked, grid, rotate
from clockhands.encodings.scaling import Yarn
from oracles import published, rotary_conventions
from oracles.rotary_conventions import APPLIED, DEFECTS, HALVES, INTERLEAVED, POSITIONS, TABLES, VISION, per_axis, units
from oracles.rows import every

ENTRIES = published.entries(*rotary_conventions.FAMILIES)
MATCHED = {**TABLES, **APPLIED}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def off(ours, theirs):
    assert ours.shape == theirs.shape
    return np.abs(ours.astype(np.float64) - theirs).max()


@every("key", MATCHED)
def test_specs_give_the_published_numbers(key):
    """And a base that is one in a hundred off is seen in each."""
    convention, tolerance = MATCHED[key], ENTRIES[key]["tolerance"]
    arrays = published.arrays(key)
    assert off(*convention.made(arrays)) <= tolerance <= 1e-4
    spec = ch.specs.with_fields(convention.spec, spacing=Geometric(9_900.0))
    assert off(*dataclasses.replace(convention, spec=spec).made(arrays)) > tolerance


def test_every_published_table_is_matched_or_named_as_a_defect():
    groups = (MATCHED.keys(), DEFECTS.keys(), POSITIONS)
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert ENTRIES.keys() == set().union(*groups)
    named = {key for key, entry in ENTRIES.items() if entry["differs_from_documented_claim"]}
    # The first words only: its comment names the other axis. The next two are right until a cache is kept.
    assert named - DEFECTS.keys() == {"rope_diffusers_2d_hunyuandit", "rope_xpos_ret", "rope_xpos_flashattn"}
    assert len(MATCHED) >= 43


def test_pairs_have_two_columns_where_a_table_is_doubled():
    for key, table in TABLES.items():
        arrays = published.arrays(key)
        for name in {"cos", "sin", "angles"} & arrays.keys():
            picked, both = table.columns(arrays[name]), arrays[name]
            if table.columns is rotary_conventions.halves:
                assert np.array_equal(np.tile(picked, 2), both)
            elif table.columns is rotary_conventions.every_second:
                assert np.array_equal(np.repeat(picked, 2, axis=-1), both)


def test_mochi_stands_at_the_centres_of_its_cells():
    """Its rates are learned, a matrix for each head: only where its tokens stand is a convention."""
    arrays = published.arrays("rope_diffusers_mochi_positions")
    reach = np.sqrt(192**2 / (4 * 6))
    cells = grid(3, (np.arange(4) - 1.5) * reach, (np.arange(6) - 2.5) * reach)
    assert off(cells, arrays["table"]) <= 1e-4


# --- defects ---------------------------------------------------------------------------------------------------


def test_equinox_answers_for_another_base():
    arrays = published.arrays("rope_apply_equinox_theta500k")
    at = np.arange(24)
    # Asked for base 500,000 after a layer of base 10,000, it gives the latter.
    assert off(rotate(arrays["x"], HALVES, at), arrays["out"]) <= 1e-5
    assert off(rotate(arrays["x"], ch.Rotary(64, base=500_000.0), at), arrays["out"]) > 1


def test_litgpt_blends_yarn_the_wrong_way_round():
    arrays = published.arrays("rope_litgpt_yarn")
    right = ch.Rotary(64, scaling=Yarn(8.0, 4_096))
    plain = np.array(geometric(32).rates)
    swapped = plain + plain / 8 - np.array(right.rates)
    phases = np.outer(np.arange(16), np.tile(swapped, 2))
    assert off(np.cos(phases), arrays["cos"]) <= 1e-5
    assert off(np.sin(phases), arrays["sin"]) <= 1e-5
    cosine, _ = units(right, np.arange(16))
    assert off(np.tile(cosine, 2), arrays["cos"]) > 0.2


def test_rotary_embedding_torch_forgets_an_offset_that_it_cached():
    arrays = published.arrays("rope_ret_axial_offset_cached")
    rates = np.array(geometric(32).rates)

    def angles(*sizes):
        cells = grid(*sizes)
        return np.repeat(np.concatenate([np.outer(cells[:, axis], rates) for axis in (0, 1)], axis=-1), 2, axis=-1)

    assert off(angles(4, 5), arrays["angles"]) <= 1e-5
    assert off(angles(range(3, 7), range(7, 12)), arrays["angles"]) == pytest.approx(7.0, abs=1e-5)
    # Asked here, there is nothing that could be remembered.
    spec = ch.Rotary(128, "interleaved", **per_axis(32, 32))
    here = units(spec, grid(4, 5))[0]
    moved = units(spec, grid(range(3, 7), range(7, 12)))[0]
    assert np.array_equal(here, units(spec, grid(4, 5))[0])
    assert off(here, moved) > 1


def in_its_arithmetic(x, positions):
    rates = np.float32(1) / (10_000.0 ** (np.arange(0, 64, 2) / 64)).astype(np.float32)
    phases = np.repeat(positions[:, None] * rates, 2, axis=-1)
    beside = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    return (x * np.cos(phases) + beside * np.sin(phases)).astype(BFLOAT16).astype(np.float64)


def test_rotary_embedding_torch_counts_in_bfloat16():
    arrays = published.arrays("rope_ret_bf16_positions")
    at = np.arange(1_024)
    x, theirs = arrays["x"], arrays["out"]
    # Its arithmetic: positions in bfloat16, phases as products in float32, the result rounded once at the end.
    collapsed = at.astype(BFLOAT16)
    again = in_its_arithmetic(x, collapsed.astype(np.float32))
    assert (np.abs(again - theirs) <= 2.0**-7 * np.abs(theirs)).all()
    assert np.unique(np.arange(1_024).astype(BFLOAT16)).size < 520
    # The exact value is another from position 257 on, and the same before.
    exact = rotate(x.astype(BFLOAT16), INTERLEAVED, at).astype(np.float64)
    far, near = collapsed.astype(np.int64) != at, at <= 256
    assert np.abs(exact - theirs)[far].max() > 1
    assert (np.abs(exact - theirs)[near] <= 2.0**-7 * np.abs(theirs[near]) + 1e-6).all()


def test_transformers_rounds_the_rates_of_a_model_that_is_cast():
    arrays = published.arrays("rope_hf_llama_module_bf16")
    at = np.arange(2_048)
    # `model.to(bfloat16)` casts the buffer of the rates; the phases are made in float32 from what is left of it.
    cast = np.array(HALVES.rates, np.float32).astype(BFLOAT16).astype(np.float32)
    phases = np.tile((at.astype(np.float32)[:, None] * cast).astype(np.float64), 2)
    assert off(np.cos(phases), arrays["cos"]) <= 1e-6
    assert off(np.sin(phases), arrays["sin"]) <= 1e-6
    cosine, _ = units(HALVES, at)
    assert off(np.tile(cosine, 2), arrays["cos"]) > 0.3


@pytest.mark.parametrize("key", ["rope_hf_vjepa2", "rope_mmpretrain_fast"])
def test_cosines_of_halves_on_interleaved_pairs_are_no_rotation(key):
    arrays = published.arrays(key)
    if key == "rope_hf_vjepa2":
        made = np.tile(units(HALVES, np.arange(24))[0], 2)
    else:
        # It stretches every grid to half of the head's width.
        spec, cells = VISION, grid(np.arange(4) * 32 / 4, np.arange(6) * 32 / 6)
        cosine = units(spec, cells)[0]
        made = np.concatenate([np.tile(cosine[:, :16], 2), np.tile(cosine[:, 16:], 2)], axis=-1)
    assert off(made, arrays["cos"]) <= 1e-5
    # The two channels of a pair, 2j and 2j + 1, are turned by two angles: a head changes its length.
    assert off(arrays["cos"][:, ::2], arrays["cos"][:, 1::2]) > 0.5
    x = np.random.default_rng(0).standard_normal((len(made), 64))
    beside = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    turned = x * arrays["cos"] + beside * arrays["sin"]
    assert np.abs(np.linalg.norm(turned, axis=-1) / np.linalg.norm(x, axis=-1) - 1).max() > 0.003
    right = rotate(x, INTERLEAVED, np.arange(24))
    assert np.abs(np.linalg.norm(right, axis=-1) / np.linalg.norm(x, axis=-1) - 1).max() < 1e-14


def test_hunyuan_gives_the_two_channels_of_a_pair_to_two_axes():
    arrays = published.arrays("rope_hf_hunyuan_vl_xdrope")
    # Its sections divide the doubled table: channel c belongs to axis c // 16, its partner c + 32 to another.
    for name, part in (("cos", 0), ("sin", 1)):
        made = [
            units(ch.Rotary(64, axes=chunked([16, 16])), rotary_conventions.beside(*names)(arrays))[part]
            for names in (("p0", "p1"), ("p2", "p3"))
        ]
        assert off(np.concatenate(made, axis=-1), arrays[name]) <= 1e-5
    assert off(arrays["cos"][:, :32], arrays["cos"][:, 32:]) > 0.5
    # Where all coordinates are alike, as in text, it is the code that turns each pair by one axis.
    spec = ch.Rotary(64, axes=chunked([8, 8, 8, 8]))
    places = rotary_conventions.beside("p0", "p1", "p2", "p3")(arrays)
    alike = (places == places[:, :1]).all(axis=-1)
    right = np.tile(units(spec, places)[0], 2)
    if alike.any():
        assert off(right[alike], arrays["cos"][alike]) <= 1e-5
    assert off(right[~alike], arrays["cos"][~alike]) > 0.5
