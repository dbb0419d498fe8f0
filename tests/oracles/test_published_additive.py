"""Tables that other libraries' own code made: a named preset gives each of them, or says why not."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, FourierFeatures
from clockhands.encodings.grids import Grid
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import with_fields
from clockhands.errors import InvalidValue
from late import Late
from oracles import published
from oracles.additive_cases import CASES, FAMILIES, IMAGE, IMAGE_XY, IMAGE_YX, MAE, POINTS, Case, case
from oracles.original_arithmetic import ORIGINALS
from oracles.rows import every

torch = Late("torch")

ENTRIES = published.entries(*FAMILIES)
# Above this a stated tolerance allows for low precision: those originals are made once more, in their own steps.
COARSE = 1e-3


def arrays_of(key):
    """All arrays of a table; the table itself with one row for each position."""
    arrays = published.arrays(key)
    arrays["table"] = arrays["table"].reshape(-1, arrays["table"].shape[-1])
    return arrays


def table_of(key):
    """The published table in float64, the row of a defect left out."""
    table = arrays_of(key)["table"].astype(float)
    # Its last row is of zeros, for a position that does not exist.
    return table[:-1] if key == "sin_hf_timesfm_odd" else table


def worst(made: Case, key):
    table, theirs = made.table(arrays_of(key)), table_of(key)
    assert table.shape == theirs.shape
    return np.abs(table - theirs).max()


# --- every table -----------------------------------------------------------------------------------------------


def test_every_published_table_has_a_preset():
    assert CASES.keys() == ENTRIES.keys()
    assert len(CASES) == 80
    known = {known.name for known in presets()}
    assert {made.name for made in CASES.values()} <= known


@every("key", CASES)
def test_a_preset_gives_the_published_table(key):
    assert worst(CASES[key], key) <= ENTRIES[key]["tolerance"]
    # float32 is the exact number rounded once, whatever the original did.
    arrays = arrays_of(key)
    made, rounded = CASES[key].table(arrays), CASES[key].table(arrays, "float32")
    most = 2.0**-25 * 1.01 * max(1, np.abs(made).max())
    assert np.array_equal(rounded, made.astype(np.float32)) or np.abs(rounded - made).max() <= most


def variants(made: Case):
    """The same code with one thing wrong, as it is usually got wrong."""
    spec, wrong = made.spec, []
    flipped = {"sin-cos": "cos-sin", "cos-sin": "sin-cos"}.get(spec.order)
    if flipped:
        wrong.append(with_fields(spec, order=flipped))
    if isinstance(spec, FourierFeatures):
        wrong += [with_fields(spec, multiplier=1.01 * spec.multiplier), with_fields(spec, layout="interleaved")]
        return wrong
    spacing = spec.spacing[0] if isinstance(spec.spacing, tuple) else spec.spacing
    spacing = getattr(spacing, "spacing", spacing)
    wrong.append(with_fields(spec, spacing=type(spacing)(**{**vars(spacing), "multiplier": 1.01 * spacing.multiplier})))
    if isinstance(spec, AxialSinusoidal):
        others = {"axis-wave-rate", "axis-rate-wave", "wave-axis-rate", "rate-wave-axis"} - {spec.channels}
        if spec.number_of_axes > 1 and spec.raw not in ("before-each", "after-each"):
            wrong += [with_fields(spec, channels=other) for other in sorted(others)]
        return wrong
    if spec.order not in ("sin-sin", "cos-cos") and spec.width % 2 == 0:
        wrong.append(with_fields(spec, layout={"halves": "interleaved", "interleaved": "halves"}[spec.layout]))
    return wrong


@every("key", CASES)
def test_the_check_of_tables_can_fail(key):
    made, theirs = CASES[key], table_of(key)
    # Where low precision is allowed for, a wrong table may pass: there the original's own steps are what is checked.
    tolerance = min(ENTRIES[key]["tolerance"], COARSE)
    arrays = arrays_of(key)
    for spec in variants(made):
        table = ch.table(spec, made.at(arrays), "float64", values=made.given(arrays))
        assert np.abs(table - theirs).max() > tolerance, spec
    # One row further on, and in single precision's place half precision's.
    table = made.table(arrays)
    moved = np.roll(table, 1, axis=0)
    assert np.abs(moved - theirs).max() > tolerance


@every("key", ["sin2d_mae_original", "sin2d_diffusers", "sin2d_vitpytorch", "sin2d_timm_default"])
def test_a_grid_whose_rows_run_the_other_way_is_noticed(key):
    made = CASES[key]
    grid = made.positions
    other = Grid(grid.sizes, start=grid.start, step=grid.step, order=grid.order[::-1], prefix=grid.prefix)
    assert worst(Case(made.name, made.fields, other), key) > 0.1


def test_every_additive_preset_is_checked_or_says_what_it_is():
    # Presets without a table of their own: what they differ in from one that has it.
    alike = {
        "opennmt-concat": "whisper",
        "marian": "whisper",
        "kimi-k2.5-time": "ctrl",
        "moco-v3": "mae",
        "rt-detr": "mae",
        "big-vision": "simple-vit",
        "stable-audio-timestep": "gaussian-fourier",
        "flux-timestep": "qwen-image-timestep",
    }
    apart = {
        "musicgen": ("tensor2tensor", "order"),
        "funnel-omega": ("funnel-psi", "order"),
        "dab-detr": ("detr", "spacing"),
        "simple-vit-3d": ("tensor2tensor-2d", "shares"),
        "nerf-paper": ("nerf", "spacing, channels and raw"),
        "stable-audio-seconds": ("score-sde-fourier", "raw"),
        "edm2": ("score-sde-fourier", "order and offsets"),
        "alphafold3-noise": ("edm2", "multiplier and scale"),
    }
    checked = {made.name for made in CASES.values()}
    sinusoids = (ch.Sinusoidal, AxialSinusoidal, FourierFeatures)
    named = {known.name for known in presets() if isinstance(known.spec, sinusoids)}
    assert named == checked | alike.keys() | apart.keys()
    for name, other in alike.items():
        order = {"order": "cos-sin"} if name == "stable-audio-timestep" else {}
        assert ch.preset(name, width=64) == ch.preset(other, width=64, **order), name


# --- low precision: the original's own steps ---------------------------------------------------------------------


def test_low_precision_is_made_once_more():
    assert {key for key, entry in ENTRIES.items() if entry["tolerance"] > COARSE} == ORIGINALS.keys()


@every("key", ORIGINALS)
def test_the_original_arithmetic_gives_the_published_table(key):
    original, least = ORIGINALS[key]
    arrays, theirs = arrays_of(key), table_of(key)
    table = original(arrays)
    remade_to_the_unit(table, theirs)
    # And the exact numbers are others, also when they are rounded to that dtype at the end.
    assert worst(CASES[key], key) > least
    exact = torch.from_numpy(CASES[key].table(arrays)).to(table.dtype)
    assert (exact.double().numpy() != theirs).mean() > 0.05


def remade_to_the_unit(made, theirs):
    # One unit of the dtype at numbers of size 1, for another processor's exponential; nearly all are equal to the bit.
    unit = torch.finfo(made.dtype).eps if made.dtype == torch.bfloat16 else 1e-6
    off = np.abs(made.double().numpy() - theirs)
    assert off.max() <= unit
    assert (off == 0).mean() > 0.9


def test_the_check_of_arithmetic_can_fail():
    key = "sin_hf_pegasus_x_bf16"
    exact = torch.from_numpy(CASES[key].table({})).to(torch.bfloat16)
    with pytest.raises(AssertionError):
        remade_to_the_unit(exact, table_of(key))


# --- defects: what the library says or means, beside what it makes ------------------------------------------------


def published_row(key, row):
    return arrays_of(key)["table"][row].astype(float)


def right(name, positions, **fields):
    return ch.table(ch.preset(name, width=64, **fields), positions, "float64")


def test_tensor2tensor_multiplies_by_its_least_timescale():
    # "min_timescale" 10 is said to be the first wavelength over 2 pi: a first rate of a tenth, and a last of 1/10,000.
    row = published_row("sin_t2t_1d_min_timescale10", 1)
    said = right("tensor2tensor", [1], base=1_000.0, multiplier=0.1)[0]
    assert np.abs(np.arctan2(row[0], row[32]) - (10 - 4 * math.pi)) < 1e-5
    assert np.arctan2(said[0], said[32]) == pytest.approx(0.1)
    assert np.abs(said - row).max() > 0.5


def test_timesfm_pads_the_rows_of_an_odd_width():
    key = "sin_hf_timesfm_odd"
    assert arrays_of(key)["table"].shape == (129, 64)
    assert not published_row(key, 128).any()
    meant = ch.table(ch.preset("timesfm", width=65), 128)
    assert meant.shape == (128, 65)
    assert not meant[:, -1].any()


def test_speechbrain_forgets_the_sign_of_the_distance():
    key = "sin_speechbrain_relposxl"
    last = published_row(key, 62)  # distance -31
    assert np.abs(last - right("speechbrain-relative", [31])[0]).max() < 1e-5
    meant = right("speechbrain-relative", range(31, -32, -1))
    assert np.abs(meant[62] - last).max() > 1.8
    # Sines are odd: only their columns are wrong.
    assert np.abs(meant[62, 1::2] - last[1::2]).max() < 1e-5
    assert np.abs(meant[62, ::2] + last[::2]).max() < 1e-5


def test_diffusers_has_other_rates_than_dit():
    arrays = arrays_of("time_diffusers_flip_shift1")
    own = ch.table(ch.preset("dit", width=64), arrays["t"], "float64")
    assert worst(case("dit", lambda arrays: arrays["t"]), "time_diffusers_flip_shift1") > 1
    assert np.abs(own - CASES["time_diffusers_flip_shift1"].table(arrays)).max() > 1


@every("key", ["sin2d_diffusers", "sin2d_mae_original", "sin2d_hf_vitmae"])
def test_what_is_named_for_the_height_is_the_width(key):
    made = CASES[key]
    grid = made.positions
    # The height first, with the rows where they are: other numbers.
    named = Grid(grid.sizes[::-1], start=grid.start[::-1], step=grid.step[::-1], prefix=grid.prefix)
    assert worst(Case(made.name, made.fields, named), key) > 0.5
    assert worst(made, key) < 1e-5


def test_diffusers_rescales_every_grid_to_16():
    # Asked for 6 x 9 cells, it does not stand them at 0, 1, 2, …: by default they fill 16 positions.
    made = CASES["sin2d_diffusers"]
    assert worst(Case(made.name, made.fields, IMAGE_XY), "sin2d_diffusers") > 0.5


def test_timm_interleaves_nothing():
    made = CASES["sin2d_timm_interleave"]
    said = Case(made.name, {**made.fields, "channels": "axis-rate-wave"}, made.positions)
    assert worst(said, "sin2d_timm_interleave") > 0.5


def test_cogvideox_needs_more_than_its_check_asks_for():
    # A width of 20 passes "divisible by 4", and its eighths are no whole channels.
    with pytest.raises(InvalidValue, match="`width` must be a multiple of 16"):
        ch.preset("cogvideox-2b", width=20)


@every("key", ["sin2d_hf_detr_norm", "sin2d_detr_original"])
def test_detr_ends_at_a_turn_and_not_at_one(key):
    unit = tuple(1 / (size + 1e-6) for size in IMAGE)
    assert worst(Case("detr", {"width": 64}, Grid(IMAGE, start=unit, step=unit)), key) > 0.5
    assert worst(Case("detr", {"width": 64}, IMAGE_YX), key) > 0.5


def test_detr_in_bfloat16_is_not_detr():
    assert worst(CASES["sin2d_hf_detr_bf16"], "sin2d_hf_detr_bf16") > 2e-3


def test_half_of_the_columns_of_sam2_are_copies():
    rows = table_of("sin_hf_sam2video_objptr")
    assert np.array_equal(rows[:, 0::2], rows[:, 1::2])
    assert len(set(ch.preset("sam2-object-pointer", width=64).rates)) == 16


def test_nerf_leaves_out_the_pi_of_its_paper():
    key = "fourier_nerf_original"
    made = CASES[key]
    paper = Case("nerf", {**made.fields, "multiplier": math.pi}, POINTS)
    assert worst(paper, key) > 0.5
    # The paper's own order of channels: coordinate by coordinate.
    table = ch.table(ch.preset("nerf-paper"), [[0.5, 0.25, -0.125]], "float64")[0]
    assert np.allclose(table[:4], [1, 0, 0, -1], atol=1e-15)


def test_precision_that_is_lost_in_pegasus_x_leaves_few_rows():
    original, _ = ORIGINALS["sin_hf_pegasus_x_bf16"]
    assert len(torch.unique(original({}), dim=0)) == 769
    exact = ch.table(ch.preset("pegasus-x", width=64), 4_096)
    assert len(np.unique(exact, axis=0)) == 4_096


VITMAE = """
from transformers import ViTMAEConfig, ViTMAEModel
config = ViTMAEConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, image_size=112)
table = ViTMAEModel(config).embeddings.position_embeddings
print(tuple(table.shape), float(table.abs().max()), table.requires_grad)
"""


@pytest.mark.slow
def test_transformers_leaves_the_table_of_vitmae_at_zero():
    done = subprocess.run([sys.executable, "-c", VITMAE], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 50, 64) 0.0 False\n"
    right = ch.table(ch.preset("mae", width=64), MAE)
    assert right.shape == (50, 64)
    assert np.abs(right[1:]).max() == 1


def test_every_known_defect_has_a_test_and_a_preset_that_names_it(cases):
    defects = json.loads(Path(__file__).with_name("defects_of_originals.json").read_text("utf-8"))
    assert {key for key, entry in ENTRIES.items() if entry["differs_from_documented_claim"]} == defects.keys()
    for key, defect in defects.items():
        with cases(key):
            assert defect["test"] in globals()
            (says,) = (known.says for known in presets() if known.name == CASES[key].name)
            assert defect["words"] in says
