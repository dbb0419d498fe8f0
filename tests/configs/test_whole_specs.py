"""What a config resolves to as a spec, held to presets, which were written down apart, and to the library's own code.

Presets say a head; the config of the same model must resolve to the same value. The slow half builds the rotary modules
of transformers and compares cosine, sine and turned heads at positions that tell the axes apart.
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clockhands.encodings.additive import Learned
from clockhands.encodings.presets import preset
from clockhands.encodings.rotary import rotate
from clockhands.encodings.rotary.axes import grid
from configs.expected import resolved

CASES = {
    case["name"]: case["config"]
    for case in json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]
}


def specs(config, part="text"):
    return [code.spec for code in resolved(config).codes if code.part == part and code.spec is not None]


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("deepseek-v2-lite", "deepseek-v2"),
        ("deepseek-v3", "deepseek-v3"),
        ("deepseek-v3.2", "deepseek-v3"),
        ("gpt-oss-20b", "gpt-oss"),
        ("qwen2-vl-7b", "qwen2-vl"),
        ("qwen3-vl-32b", "qwen3-vl"),
        ("llama-3.1-8b", "llama3.1"),
    ],
)
def test_a_config_resolves_to_the_preset_of_its_model(case, name):
    assert set(specs(CASES[case])) == {preset(name)}


def test_kinds_of_layers_resolve_to_the_codes_of_a_mixture():
    local, whole = specs({"model_type": "modernbert"})
    mixture = preset("modernbert")
    codes = {code.layers: code for code in resolved({"model_type": "modernbert"}).codes}
    assert {local, whole} == set(mixture.codes)
    for layers, code in codes.items():
        assert code.spec == mixture.layer(int(layers.split("-")[0].split(",")[0]))
    # 64 tokens on either side of the query, and itself.
    assert {code.window for code in codes.values()} == {None, 129}


def test_heads_of_esm_are_those_of_its_preset_but_narrower():
    assert specs(CASES["esm2-t6-8m"]) == [preset("esm2", head_width=16)]


def test_towers_of_images_turn_by_rows_and_columns():
    assert specs(CASES["qwen2-vl-7b"], "vision") == [preset("qwen2-vl-vision")]
    e2b = {"model_type": "gemma4_vision", "head_dim": 64, "rope_parameters": {"rope_type": "default"}}
    found = specs({"model_type": "gemma4", "text_config": {"head_dim": 256}, "vision_config": e2b}, "vision")
    assert found == [preset("gemma4-vision"), Learned(768, 10240)]
    # Old files name the whole model's type in the tower.
    tower, beside = specs(CASES["qwen3-vl-32b"], "vision")
    assert (tower.head_width, tower.number_of_axes, len(tower.axes)) == (72, 2, 36)
    assert beside == Learned(1152, 2304)


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5"])
def test_buckets_of_encoders_go_both_ways(name):
    config = {"model_type": name, "num_heads": 8, "num_decoder_layers": 6, "relative_attention_num_buckets": 16}
    encoder, decoder = resolved(config).codes
    assert encoder.spec == preset("t5", heads=8, buckets=16)
    assert decoder.spec == preset("t5-decoder", heads=8, buckets=16)
    assert (encoder.part, decoder.part) == ("encoder", "decoder")
    assert encoder.source["buckets"] == "config.json:relative_attention_num_buckets"
    # Where the file does not say that there is a decoder, half of it could be one.
    assert [code.spec for code in resolved({"model_type": name}).codes] == [None]
    odd = resolved(config | {"relative_attention_num_buckets": 17})
    assert [code.spec is None for code in odd.codes] == [True, False]
    assert [fact.code for fact in odd.facts] == ["impossible-value"]


def test_slopes_of_bloom():
    (code,) = resolved({"model_type": "bloom", "n_head": 112}).codes
    assert code.spec == preset("bloom", heads=112)
    assert code.source["heads"] == "config.json:n_head"
    # More heads than any model has are a mistake of the file, of which no slopes are made.
    many = resolved({"model_type": "bloom", "n_head": 10**9})
    assert [code.spec for code in many.codes] == [None]
    assert [fact.evidence["allowed"] for fact in many.facts] == ["a whole number from 1 to 65,536"]


# The library's own code: heads that turn by several axes. Those of one axis are in test_class_defaults.py.

LIBRARY = {
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLRotaryEmbedding"),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLRotaryEmbedding"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextRotaryEmbedding"),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeTextRotaryEmbedding"),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5TextRotaryEmbedding"),
}
# Float32 phases below 50 radians, cosines of them and the rounding of rates: 50 x 2**-24 twice, and a rounding.
NEAR = 1e-5


def library_module(name, folder, kind):
    transformers = pytest.importorskip("transformers")
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    return module, getattr(module, kind)(transformers.AutoConfig.for_model(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_a_head_turns_as_in_the_library(name):
    torch = pytest.importorskip("torch")
    module, embedding = library_module(name, *LIBRARY[name])
    for code in (code for code in resolved({"model_type": name}).codes if code.kind == "rotary"):
        positions = np.random.default_rng(1).integers(0, 50, (7, code.spec.number_of_axes))
        cos, sin = embedding(torch.zeros(1), torch.tensor(positions.T[:, None]))
        head = torch.randn(1, 1, 7, code.spec.head_width, generator=torch.Generator().manual_seed(0))
        expected = module.apply_rotary_pos_emb(head, head, cos, sin)[0].numpy()[0, 0]
        head = head.numpy()[0, 0]
        scale = code.spec.attention_factor * np.abs(head).max()
        assert np.abs(rotate(head, code.spec, positions) - expected).max() <= NEAR * scale
        wrong = replace(code.spec, axes=tuple(reversed(code.spec.axes)))
        assert np.abs(rotate(head, wrong, positions) - expected).max() > 0.1


@pytest.mark.slow
def test_a_tower_whose_halves_are_layouts_turns_as_in_the_library():
    """The others are in test_every_model_type.py."""
    torch = pytest.importorskip("torch")
    _, embedding = library_module("gemma4_vision", "gemma4", "Gemma4VisionRotaryEmbedding")
    spec, table = specs({"model_type": "gemma4_vision"}, "vision")
    assert isinstance(table, Learned)
    positions = np.random.default_rng(1).integers(0, 50, (7, 2))
    waves = embedding(torch.zeros(1), torch.tensor(positions[None]))
    for theirs, own in zip(waves, cosine_sine(spec, positions), strict=True):
        assert np.abs(theirs.reshape(7, -1).numpy() - own).max() <= NEAR


@pytest.mark.slow
def test_a_matcher_of_images_turns_as_in_the_library():
    torch = pytest.importorskip("torch")
    module, embedding = library_module("efficientloftr", "efficientloftr", "EfficientLoFTRRotaryEmbedding")
    (spec,) = specs({"model_type": "efficientloftr"}, "vision")
    cos, sin = (part.flatten(1, 2) for part in embedding(torch.zeros(1, 256, 20, 28)))
    head = torch.randn(1, 35, 1, 256, generator=torch.Generator().manual_seed(0))
    turned, _ = module.apply_rotary_pos_emb(head, head, cos, sin, unsqueeze_dim=2)
    rows_and_columns = grid(5, 7) + 1  # the class counts from 1
    ours = rotate(head.numpy()[0, :, 0], spec, rows_and_columns)
    assert np.abs(ours - turned.numpy()[0, :, 0]).max() <= NEAR * head.abs().max().item()
    wrong = replace(spec, axes=tuple(reversed(spec.axes)))
    assert np.abs(rotate(head.numpy()[0, :, 0], wrong, rows_and_columns) - turned.numpy()[0, :, 0]).max() > 0.1


def cosine_sine(spec, positions):
    """Of every channel: a unit vector of each pair's first channel turned shows both."""
    ones = np.zeros((len(positions), spec.head_width), np.float32)
    ones[:, spec.channels[:, 0]] = 1
    turned = rotate(ones, spec, positions)
    cos, sin = np.empty_like(turned), np.empty_like(turned)
    cos[:, spec.channels[:, 0]] = cos[:, spec.channels[:, 1]] = turned[:, spec.channels[:, 0]]
    sin[:, spec.channels[:, 0]] = sin[:, spec.channels[:, 1]] = turned[:, spec.channels[:, 1]]
    return cos, sin
