"""Numbers that other libraries' own code made: the presets and every scaling give them, or the library is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.ladders import Explicit, Geometric, geometric
from clockhands.scaling import Dynamic, Linear, Llama3, LongRope, Ntk, Proportional, Yarn
from oracles import extract

PUBLISHED = json.loads(extract.PUBLISHED.read_text("utf-8"))
# What float32 rates may be off by: the exponent of the ladder is rounded, then the power.
RELATIVE = 1e-6

SHORT = tuple(float(1 + np.float64(i) * 0.02) for i in range(32))
LONG = tuple(1 + 1.5 * i for i in range(32))
LADDER = geometric(32)
SCALED = {
    "rope_hf_default": LADDER,
    "rope_hf_linear": Linear(4.0)(LADDER),
    "rope_hf_dynamic_short": Dynamic(2.0, 4_096)(LADDER),
    "rope_hf_yarn": Yarn(8.0, 4_096)(LADDER),
    "rope_hf_yarn_notrunc": Yarn(8.0, 4_096, truncate=False, beta_fast=16.0, beta_slow=2.0)(LADDER),
    "rope_hf_longrope_short": LongRope(SHORT, LONG, 4_096, 32.0)(LADDER),
    "rope_hf_llama3": Llama3(8.0, 8_192)(LADDER),
    "rope_hf_proportional": Proportional(0.25)(LADDER),
    "rope_kerashub_linear": Linear(4.0)(LADDER),
    "rope_ret_ntk": Ntk(8.0)(LADDER),
}
# The library gives other numbers than it says it does; the right ones are asserted below, and the defect shown.
DEFECTS = {
    "rope_hf_yarn_nested_truncate": "truncate=False is not read where rope_parameters is nested by layer type",
    "rope_kerashub_dynamic": "every rate is divided by factor ** (d / (d - 2)), instead of the base multiplied by it",
}


def worst_relative(got, wanted):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    assert ((got == 0) == (wanted == 0)).all()
    return np.abs(got / np.where(wanted == 0, 1, wanted) - (wanted != 0)).max()


def published_rates(key):
    return PUBLISHED["rates"][key]["rates"]


@pytest.mark.parametrize("key", SCALED)
def test_scaled_rates_are_the_published_ones(key):
    published = PUBLISHED["rates"][key]
    assert worst_relative(SCALED[key].rates, published["rates"]) <= RELATIVE
    assert SCALED[key].attention_factor == pytest.approx(published["attention_factor"], rel=1e-6)


def test_every_published_ladder_is_matched_or_named_as_a_defect():
    assert PUBLISHED["rates"].keys() == SCALED.keys() | DEFECTS.keys()


def test_transformers_ignores_a_nested_truncate():
    published = published_rates("rope_hf_yarn_nested_truncate")
    # Asked for without floor and ceil, it gives the numbers with them.
    fields = {"beta_fast": 16.0, "beta_slow": 2.0}
    assert worst_relative(Yarn(8.0, 4_096, truncate=True, **fields)(LADDER).rates, published) <= RELATIVE
    right = Yarn(8.0, 4_096, truncate=False, **fields)(LADDER).rates
    assert worst_relative(right, published) > 0.1
    # The right ones are those that the same library gives where the value is not nested.
    assert worst_relative(right, published_rates("rope_hf_yarn_notrunc")) <= RELATIVE


def test_keras_hub_slows_every_hand_alike_and_calls_it_dynamic():
    published = published_rates("rope_kerashub_dynamic")
    assert worst_relative(Linear(4.0 ** (64 / 62))(LADDER).rates, published) <= RELATIVE
    # NTK-aware scaling multiplies the base by that: the fastest hand stays, the slowest is slowed four times.
    by_base = geometric(32, 10_000.0 * 4.0 ** (64 / 62)).rates
    for right in (Ntk(4.0)(LADDER), Dynamic(4.0, 4_096)(LADDER, 7_168)):
        assert worst_relative(right.rates, published) > 0.1
        assert worst_relative(right.rates, by_base) < 1e-14


def test_litgpt_blends_yarn_the_wrong_way_round():
    litgpt, original = (PUBLISHED["first_turns"][key] for key in ("rope_litgpt_yarn", "rope_yarn_original"))
    right = Yarn(8.0, 4_096)(LADDER)
    # At position 1 the phase is the rate. The authors' code multiplies cosine and sine by the attention factor.
    factor = np.hypot(original["cos"], original["sin"])
    assert np.abs(factor / right.attention_factor - 1).max() < 1e-6
    assert worst_relative(np.arctan2(original["sin"], original["cos"]), right.rates) <= RELATIVE
    wrong = np.arctan2(litgpt["sin"], litgpt["cos"])
    assert worst_relative(wrong, right.rates) > 0.5
    plain = np.array(LADDER.rates)
    # Where one keeps a rate, the other slows it; where both blend, the shares are swapped.
    assert worst_relative(wrong, plain + plain / 8 - np.array(right.rates)) <= RELATIVE
    assert np.abs(np.hypot(litgpt["cos"], litgpt["sin"]) - 1).max() < 1e-6


@pytest.mark.parametrize("key", SCALED)
def test_the_check_of_rates_can_fail(key):
    published = published_rates(key)
    rates = np.array(SCALED[key].rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert worst_relative(rates * (1 + 1.2e-6), published) > RELATIVE
    others = [other for other in SCALED if worst_relative_or_inf(SCALED[other].rates, published) <= RELATIVE]
    alike = {"rope_hf_default", "rope_hf_dynamic_short"}, {"rope_hf_linear", "rope_kerashub_linear"}
    assert set(others) in ({key}, *alike)


def worst_relative_or_inf(got, wanted):
    try:
        return worst_relative(got, wanted)
    except AssertionError:
        return np.inf


# --- sinusoids -------------------------------------------------------------------------------------------------

PRESETS = {
    "sin_annotated_transformer": ch.preset("vaswani2017", width=64),
    "sin_fairseq_pad1_d64": ch.preset("fairseq", width=64),
    "sin_hf_distilbert_d65": ch.preset("vaswani2017", width=65, odd="extra"),
    "sin_hf_m2m100_forward_padded": ch.preset("fairseq", width=64),
    "sin_hf_marian_d64": ch.preset("marian", width=64),
    "sin_openai_whisper": ch.preset("whisper", width=64),
    "sin_t2t_1d_even": ch.preset("tensor2tensor", width=64),
    "sin_t2t_1d_odd": ch.preset("tensor2tensor", width=65),
    "time_diffusers_ddpm_default": ch.preset("ddpm", width=64),
    "time_diffusers_odd": ch.preset("ddpm", width=65),
    "time_guided_diffusion_odd": ch.preset("dit", width=65),
    "time_diffusers_sd_unet": ch.preset("dit", width=64),
}


def worst_excess(spec, positions, rows):
    """By how much the float32 rows of another library part from ours, as a share of what float32 allows it.

    There a phase is rounded to 24 bits from a rate that has lost up to two units more: at most 3 x phase x 2**-24.
    """
    ours = ch.table(spec, positions, "float64")
    rows = np.asarray(rows, np.float32)
    assert ours.shape == rows.shape
    fastest = max(spec.rates)
    allowed = 3 * fastest * np.abs(np.asarray(positions, np.float64))[:, None] * 2.0**-24 + 2.0**-23
    return (np.abs(rows - ours) / allowed).max()


@pytest.mark.parametrize("key", PRESETS)
def test_presets_give_the_published_rows(key):
    published = PUBLISHED["sinusoids"][key]
    assert worst_excess(PRESETS[key], published["positions"], published["rows"]) <= 1


def test_every_published_table_is_a_preset_and_every_preset_is_checked():
    from clockhands.presets import presets

    assert PRESETS.keys() == PUBLISHED["sinusoids"].keys()
    checked = {(spec.layout, spec.order, spec.spacing, spec.first, spec.zero_rows) for spec in PRESETS.values()}
    for known in presets():
        spec = known.spec
        if not isinstance(spec, ch.Sinusoidal):
            continue
        assert (spec.layout, spec.order, spec.spacing, spec.first, spec.zero_rows) in checked, known.name


@pytest.mark.parametrize("key", PRESETS)
def test_the_check_of_rows_can_fail(key):
    from clockhands.specs import with_fields

    published, spec = PUBLISHED["sinusoids"][key], PRESETS[key]
    flipped = {"interleaved": "halves", "halves": "interleaved"}[spec.layout]
    other_span = {"open": "closed", "closed": "open"}[spec.spacing.span]
    other_order = {"sin-cos": "cos-sin", "cos-sin": "sin-cos"}[spec.order]
    for fields in ({"layout": flipped}, {"span": other_span}, {"order": other_order}, {"base": 10_001.0}):
        if fields.get("layout") and spec.width % 2:
            continue  # an odd width means other channels in another layout
        wrong = with_fields(spec, **fields)
        assert worst_excess(wrong, published["positions"], published["rows"]) > 1, fields
    shifted = [position + 1 for position in published["positions"]]
    assert worst_excess(spec, shifted, published["rows"]) > 1


# --- everything, where the full tables are at hand -------------------------------------------------------------


def test_what_is_committed_is_what_was_published(shared):
    assert extract.as_text(extract.extract(shared)) == extract.PUBLISHED.read_text("utf-8")


# Codes that are no clock: why.
OTHERS = {
    "sin_hf_funnel_phi": "two sines instead of a sine and a cosine",
    "sin_hf_funnel_pi": "two cosines",
    "sin_hf_funnel_psi": "a cosine and a sine, in pieces",
    "sin_hf_patchtst": "standardised over the table",
    "sin_hf_speecht5_scaled": "multiplied by a learned number",
    "sin_xtransformers_scaled": "multiplied by a learned number",
    "sin_hf_timesfm_odd": "zeros for a position that does not exist",
    "time_gaussian_fourier_log": "random rates of both signs",
    "time_score_sde_gfp": "random rates of both signs",
    # Made in bfloat16: not the numbers that the convention says, and not meant to be matched.
    "sin_hf_pegasus_x_bf16": "positions in bfloat16",
    "time_qwenimage_bf16": "rates in bfloat16",
}


def spec_of(entry):
    """The sinusoid that an entry of the index describes, by its own words."""
    (axis,), spec = entry["spec"]["axes"], entry["spec"]
    freq = axis["freq"]
    layout = {"akt": "interleaved", "atk": "halves"}[spec["chan"]]
    order = {("sin", "cos"): "sin-cos", ("cos", "sin"): "cos-sin"}[tuple(spec["trig"])]
    den, step, scale = freq["den"], freq.get("step", 1), axis["pos"].get("scale", 1.0)
    n, base = freq["n"], freq["base"] ** -freq.get("sign", -1)
    spacing = Geometric(base, den / step, freq.get("mult", 1.0) * scale)
    if freq.get("repeat", 1) > 1:
        spacing = Explicit(tuple(base ** -(step * (k // freq["repeat"]) / den) for k in range(n)))
    width = spec.get("truncate_to") or spec.get("pad_to") or 2 * n
    odd = "refuse" if width % 2 == 0 else "zero" if "pad_to" in spec else "extra"
    return ch.Sinusoidal(
        width, spacing=spacing, layout=layout, order=order, odd=odd, zero_rows=tuple(spec.get("zero_rows", ()))
    )


def entries_of(shared: Path, *families):
    index = json.loads((shared / "conventions" / "index.json").read_text("utf-8"))["tables"]
    return {entry["key"]: entry for entry in index if entry["family"] in families}


def test_every_published_sinusoid_is_a_spec(shared):
    entries = entries_of(shared, "sinusoidal", "timestep")
    checked = []
    for key, entry in entries.items():
        if key in OTHERS:
            continue
        with np.load(shared / "conventions" / "tables" / f"{key}.npz") as arrays:
            made = dict(arrays)
        (axis,) = entry["spec"]["axes"]
        at = axis["pos"]
        if "array" in at:
            positions = made[at["array"]].reshape(-1)
        elif "gather" in entry["spec"]:
            positions = made[entry["spec"]["gather"]][0]
        else:
            positions = at["start"] + at["step"] * np.arange(at["n"])
        table = made["table"].reshape(len(positions), -1)
        assert worst_excess(spec_of(entry), positions, table) <= 1, key
        checked.append(key)
    assert OTHERS.keys() <= entries.keys()
    assert len(checked) == len(entries) - len(OTHERS)
    assert len(checked) >= 30


def test_every_published_rotary_ladder_is_matched(shared):
    entries = entries_of(shared, "rotary_inv_freq")
    assert entries.keys() == SCALED.keys() | DEFECTS.keys()
    for key, ladder in SCALED.items():
        with np.load(shared / "conventions" / "tables" / f"{key}.npz") as arrays:
            assert worst_relative(ladder.rates, arrays["inv_freq"]) <= RELATIVE
            assert ladder.attention_factor == pytest.approx(float(arrays["attention_factor"]), rel=1e-6)
            assert not entries[key]["differs_from_documented_claim"]
    for key in DEFECTS:
        assert entries[key]["differs_from_documented_claim"]
