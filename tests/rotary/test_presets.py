"""Rotary presets against published configs, published tables, and the code of other libraries."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import open_target
from clockhands.encodings.ladders import Geometric, Joined
from clockhands.encodings.presets import presets
from clockhands.encodings.rotary import grid, rotate
from clockhands.encodings.specs import with_fields
from late import Late
from oracles.rotary_conventions import APPLIED, TABLES, units
from oracles.rows import every

torch = Late("torch")

ROTARY = {each.name: each for each in presets() if isinstance(each.spec, ch.Rotary)}

# Each preset is that of a published config (of which of its codes, and what a config does not say is changed first), of
# a published table, or held to the original's code below, at its real width.
HELD = json.loads(Path(__file__).with_name("presets.json").read_text("utf-8"))
CONFIGS, PUBLISHED, BY_CODE = HELD["configs"], HELD["tables"], HELD["by_code"]


def test_presets_are_the_published_configs(published, tmp_path, cases):
    for name, row in CONFIGS.items():
        held = json.loads((published / "configs" / f"{row['config']}.json").read_text("utf-8"))
        path = tmp_path / "config.json"
        path.write_text(json.dumps(held["config"]), encoding="utf-8")
        codes = [code for code in resolve(open_target(str(path))).codes if code.part == "text"]
        with cases(name):
            assert with_fields(ROTARY[name].spec, **row["changed"]) == codes[row["code"]].spec
            if name not in ("qwen2.5-yarn", "gpt-neox"):  # their sources are a model card and the paper's 20B
                assert held["source"]["path"] in ROTARY[name].source
                assert f"{held['source']['repo']} at {held['source']['commit'][:7]}" in ROTARY[name].source


def narrowed(spec, like):
    """The preset at the width of the published table."""
    pairs = like.rotated // 2
    spacing = spec.spacing
    if isinstance(spacing, Joined):
        # As many pairs for each axis as the table has, each spaced as in the preset.
        theirs = [own for own, _ in like.spacing.parts]
        spacing = Joined(tuple((own, part) for own, (_, part) in zip(theirs, spacing.parts, strict=True)))
        order = list(dict.fromkeys(spec.axes))
        axes = tuple(axis for axis, own in zip(order, theirs, strict=True) for _ in range(own))
        assert len(axes) == pairs
        return replace(spec, head_width=like.head_width, rotated=like.rotated, spacing=spacing, axes=axes)
    return replace(spec, head_width=like.head_width, rotated=like.rotated)


@every("name", PUBLISHED)
def test_presets_are_the_published_tables(name):
    like = {**TABLES, **APPLIED}[PUBLISHED[name]].spec
    spec = narrowed(ROTARY[name].spec, like)
    if name == "xpos":
        spec = with_fields(spec, xpos=like.xpos)  # the table's centre is half of its length
    assert spec == like


def test_every_rotary_preset_is_checked():
    assert ROTARY.keys() == CONFIGS.keys() | PUBLISHED.keys() | {*BY_CODE}
    assert len(ROTARY) >= 49


def test_both_lists_of_phi3_are_served():
    long = ch.preset("phi3-long")
    for length, divisors in ((4_096, long.scaling.short), (131_072, long.scaling.long)):
        plain = np.array(ch.preset("phi3").rates)
        assert np.allclose(np.array(with_fields(long, length=length).rates) * divisors, plain, rtol=1e-15)


def test_pixtral_divides_one_ladder_between_its_axes():
    """The columns' ladder begins half a step below the rows'; its first rate is a float64 and not the real number."""
    spec, whole = ch.preset("pixtral"), ch.Rotary(64)
    even, odd = whole.rates[::2], whole.rates[1::2]
    assert np.abs(np.array(spec.rates) / np.array(even + odd) - 1).max() < 2.0**-51
    assert spec.spacing.parts[0] == (16, Geometric(span=16.0))


# --- the code of other libraries -------------------------------------------------------------------------------


def made_by(module, name, config, *inputs):
    """What a rotary module of transformers makes: cosine and sine."""
    pytest.importorskip("transformers")
    import importlib

    found = getattr(importlib.import_module(f"transformers.models.{module}"), name)(config=config)
    return [np.asarray(part.float()) for part in found(torch.zeros(1, 1), *inputs)]


def heads(spec, tokens):
    return np.random.default_rng(0).standard_normal((1, 1, tokens, spec.head_width)).astype(np.float32)


@pytest.mark.slow
def test_images_as_transformers_turns_them():
    transformers = pytest.importorskip("transformers")
    cells = grid(5, 7)
    spec = ch.preset("pixtral")
    config = transformers.PixtralVisionConfig(hidden_size=1024, num_attention_heads=16, image_size=128, patch_size=16)
    made = made_by("pixtral.modeling_pixtral", "PixtralVisionRotaryEmbedding", config, torch.as_tensor(cells))
    for got, wanted in zip(units(spec, cells), made, strict=True):
        assert np.abs(np.tile(got, 2) - wanted).max() < 1e-5

    from transformers.models.gemma4 import modeling_gemma4

    spec = ch.preset("gemma4-vision")
    config = modeling_gemma4.Gemma4VisionConfig(hidden_size=768, num_attention_heads=12, head_dim=64)
    cosine, sine = made_by(
        "gemma4.modeling_gemma4", "Gemma4VisionRotaryEmbedding", config, torch.as_tensor(cells)[None]
    )
    x = heads(spec, 35)
    wanted = modeling_gemma4.apply_multidimensional_rope(
        torch.as_tensor(x).transpose(1, 2), torch.as_tensor(cosine), torch.as_tensor(sine), torch.as_tensor(cells)[None]
    )
    assert np.abs(rotate(x, spec, cells) - wanted.transpose(1, 2).numpy()).max() < 1e-5


@pytest.mark.slow
def test_heads_as_transformers_turns_them():
    pytest.importorskip("transformers")
    from transformers.models.deepseek_v3 import modeling_deepseek_v3
    from transformers.models.nanochat import modeling_nanochat

    at = np.arange(9)

    def doubled(spec):
        cosine, sine = units(replace(spec, direction="forward"), at)
        return [torch.as_tensor(np.tile(part, 2)[None].astype(np.float32)) for part in (cosine, sine)]

    spec = ch.preset("nanochat")
    x = heads(spec, 9)
    wanted, _ = modeling_nanochat.apply_rotary_pos_emb(torch.as_tensor(x), torch.as_tensor(x), *doubled(spec))
    assert np.abs(rotate(x, spec) - wanted.numpy()).max() < 1e-5

    spec = ch.preset("deepseek-v3-transformers")
    x = heads(spec, 9)
    turning = torch.as_tensor(x[..., 128:])
    cosine, sine = doubled(replace(spec, reordered=False, head_width=64, part="first"))
    wanted, _ = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(turning, turning, cosine, sine)
    got = rotate(x, spec)
    assert np.abs(got[..., 128:] - wanted.numpy()).max() < 1e-5
    assert np.array_equal(got[..., :128], x[..., :128])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "layers", "fields"),
    [
        ("modernbert-global", "modernbert", "full_attention", {"hidden_size": 1024, "num_attention_heads": 16}),
        ("modernbert-local", "modernbert", "sliding_attention", {"hidden_size": 1024, "num_attention_heads": 16}),
        ("glm4", "glm4", None, {}),
        ("gpt-oss", "gpt_oss", None, {}),
    ],
)
def test_rates_as_transformers_makes_them(name, kind, layers, fields):
    transformers = pytest.importorskip("transformers")
    import importlib

    config = transformers.CONFIG_MAPPING[kind](**fields)
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    (made,) = (
        value for key, value in vars(module).items() if key.endswith("RotaryEmbedding") and isinstance(value, type)
    )
    embedding = made(config=config)
    rates = getattr(embedding, f"{layers}_inv_freq") if layers else embedding.inv_freq
    spec = ch.preset(name)
    assert np.abs(np.asarray(rates) / np.array(spec.rates) - 1).max() < 1e-5
    if not layers:
        assert embedding.attention_scaling == pytest.approx(spec.attention_factor, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("qwen2-vl", "qwen2_vl", {"hidden_size": 3584, "num_attention_heads": 28}),
        ("qwen3-vl", "qwen3_vl", {"head_dim": 128}),
        ("glm-4v", "glm4v", {"hidden_size": 4096, "num_attention_heads": 32}),
        ("ernie-4.5-vl", "ernie4_5_vl_moe", {"hidden_size": 2560, "num_attention_heads": 20, "head_dim": 128}),
    ],
)
def test_sections_as_transformers_turns_them(name, kind, fields):
    transformers = pytest.importorskip("transformers")
    import importlib

    spec = ch.preset(name)
    sections = [spec.axes.count(axis) for axis in range(3)]
    if kind == "ernie4_5_vl_moe":
        sections = [22, 22, 20]
    parameters = {"rope_type": "default", "rope_theta": spec.base, "mrope_section": sections}
    if spec.rotated < spec.head_width:
        parameters["partial_rotary_factor"] = spec.rotated / spec.head_width
    config = transformers.CONFIG_MAPPING[f"{kind}_text"](**fields, rope_parameters=parameters)
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    (made,) = (
        value
        for key, value in vars(module).items()
        if re.fullmatch(r".*(Text|VL)RotaryEmbedding", key) and isinstance(value, type)
    )
    at = np.random.default_rng(0).integers(0, 2_000, (9, 3))
    cosine, sine = made(config=config)(torch.zeros(1, 1), torch.as_tensor(at.T[:, None].copy()))
    columns = (
        (lambda part: part[:, ::2]) if spec.layout == "interleaved" else (lambda part: part[:, : spec.rotated // 2])
    )
    for got, wanted in zip(units(spec, at), (cosine, sine), strict=True):
        theirs = wanted.numpy()[0]
        theirs = theirs if theirs.shape[-1] == spec.rotated // 2 else columns(theirs)
        assert np.abs(got - theirs).max() < 2_000 * 2.0**-22


@pytest.mark.slow
def test_videos_as_diffusers_turns_them():
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_ltx import LTXVideoRotaryPosEmbed

    # Rates that rise, axes that take turns, and the channels that are left over in front.
    pairs = 64 // 6
    spec = ch.Rotary(
        64,
        "interleaved",
        rotated=6 * pairs,
        part="last",
        axes=ch.rotary.alternating(3 * pairs, 3),
        spacing=Joined(((pairs, Geometric(1e-4, span="closed", multiplier=math.pi / 2)),) * 3, in_turns=True),
    )
    embedding = LTXVideoRotaryPosEmbed(64, base_num_frames=4, base_height=8, base_width=8)
    coordinates = grid(3, 4, 5)
    cosine, sine = embedding(torch.zeros(1, 1), video_coords=torch.as_tensor(coordinates.T[None].astype(np.float32)))
    at = 2 * coordinates / np.array([4.0, 8.0, 8.0]) - 1
    for got, wanted, still in zip(units(spec, at), (cosine, sine), (1, 0), strict=True):
        assert (wanted.numpy()[0, :, :4] == still).all()
        # Phases of up to 15,708 rad in float32.
        assert np.abs(np.repeat(got, 2, axis=-1) - wanted.numpy()[0, :, 4:]).max() < 15_708 * 2.0**-21


@pytest.mark.slow
def test_thirds_of_a_head_as_diffusers_turns_them():
    pytest.importorskip("diffusers")
    from diffusers.models.embeddings import apply_rotary_emb_allegro, get_3d_rotary_pos_embed_allegro

    spec, cells = ch.preset("allegro"), grid(3, 4, 5)
    tables = get_3d_rotary_pos_embed_allegro(96, ((0, 0), (4, 5)), (4, 5), 3, device="cpu")[:3]
    x = heads(spec, 60)
    places = [torch.as_tensor(cells[None, :, axis].copy()) for axis in range(3)]
    wanted = apply_rotary_emb_allegro(torch.as_tensor(x), tables, places)
    assert np.abs(rotate(x, spec, cells) - wanted.numpy()).max() < 1e-5
