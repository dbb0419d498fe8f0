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

from clockhands.presets import preset
from clockhands.rotary import rotate
from clockhands.rotary.axes import grid
from resolution.expected import resolved

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
    assert found == [preset("gemma4-vision")]
    # Old files name the whole model's type in the tower.
    tower = specs(CASES["qwen3-vl-32b"], "vision")
    assert [(spec.head_width, spec.number_of_axes, len(spec.axes)) for spec in tower] == [(72, 2, 36)]


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


# The library's own code.

LIBRARY = {
    "falcon": ("falcon", "FalconRotaryEmbedding", {}),
    "gpt_oss": ("gpt_oss", "GptOssRotaryEmbedding", {}),
    "gemma4_text": ("gemma4", "Gemma4TextRotaryEmbedding", {}),
    "modernbert": ("modernbert", "ModernBertRotaryEmbedding", {}),
    "modernbert-decoder": ("modernbert_decoder", "ModernBertDecoderRotaryEmbedding", {}),
    "esm": ("esm", "EsmRotaryEmbedding", {"position_embedding_type": "rotary", "pad_token_id": 1, "vocab_size": 33}),
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLRotaryEmbedding", {}),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLRotaryEmbedding", {}),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", {}),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeTextRotaryEmbedding", {}),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5TextRotaryEmbedding", {}),
}
TOWERS = {
    "qwen2_vl_vision": ("qwen2_vl", "Qwen2VLVisionRotaryEmbedding", {}),
    "qwen2_5_vl_vision": ("qwen2_5_vl", "Qwen2_5_VLVisionRotaryEmbedding", {"hidden_size": 1280}),
    "qwen3_vl_vision": ("qwen3_vl", "Qwen3VLVisionRotaryEmbedding", {}),
    "gemma4_vision": ("gemma4", "Gemma4VisionRotaryEmbedding", {}),
}
# Float32 phases below 50 radians, cosines of them and the rounding of rates: 50 x 2**-24 twice, and a rounding.
NEAR = 1e-5


def library_module(name, folder, kind, values):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(name, **values)
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    return module, getattr(module, kind)(config)


def turned_by(module, cos, sin, width, seed=0):
    """A head turned by the class's function, and the head."""
    torch = importlib.import_module("torch")
    head = torch.randn(1, 1, cos.shape[-2], width, generator=torch.Generator().manual_seed(seed))
    function = module.apply_rotary_pos_emb
    turned = function(head, head, cos, sin)
    return head.numpy()[0, 0], (turned[0] if isinstance(turned, tuple) else turned).numpy()[0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_a_head_turns_as_in_the_library(name):
    torch = pytest.importorskip("torch")
    module, embedding = library_module(name, *LIBRARY[name])
    found = [code for code in resolved({"model_type": name, **LIBRARY[name][2]}).codes if code.kind == "rotary"]
    kinds = getattr(embedding, "layer_types", None) or [None]
    for code in found:
        axes = code.spec.number_of_axes
        positions = np.random.default_rng(1).integers(0, 50, (7, axes) if axes > 1 else 7)
        ids = torch.tensor(positions.T[:, None] if axes > 1 else positions[None])
        more = {} if kinds == [None] else {"layer_type": "sliding_attention" if code.window else "full_attention"}
        cos, sin = embedding(torch.zeros(1), ids, **more)
        if name == "gpt_oss":  # its function takes each angle once
            cos, sin = (torch.cat([part, part], dim=-1) for part in (cos, sin))
        if name in ("gpt_oss", "gemma4_text", "esm"):  # whose functions take one tensor, or are methods: all of halves
            module = importlib.import_module("transformers.models.llama.modeling_llama")
        head, expected = turned_by(module, cos, sin, code.spec.head_width)
        scale = code.spec.attention_factor * np.abs(head).max()
        assert np.abs(rotate(head, code.spec, positions) - expected).max() <= NEAR * scale
        if axes > 1:
            wrong = replace(code.spec, axes=tuple(reversed(code.spec.axes)))
            assert np.abs(rotate(head, wrong, positions) - expected).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_turns_as_in_the_library(name):
    torch = pytest.importorskip("torch")
    _, embedding = library_module(name, *TOWERS[name])
    (spec,) = specs({"model_type": name, **TOWERS[name][2]}, "vision")
    positions = np.random.default_rng(1).integers(0, 50, (7, 2))
    if name == "gemma4_vision":
        cos, sin = embedding(torch.zeros(1), torch.tensor(positions[None]))
    else:
        cos, sin = embedding(torch.zeros(1), torch.tensor(positions))
    cos, sin = cos.reshape(7, -1).numpy(), sin.reshape(7, -1).numpy()
    ours = cosine_sine(spec, positions)
    for theirs, own in zip((cos, sin), ours, strict=True):
        assert theirs.shape == own.shape
        assert np.abs(theirs - own).max() <= NEAR


@pytest.mark.slow
def test_a_matcher_of_images_turns_as_in_the_library():
    torch = pytest.importorskip("torch")
    module, embedding = library_module("efficientloftr", "efficientloftr", "EfficientLoFTRRotaryEmbedding", {})
    (spec,) = specs({"model_type": "efficientloftr"}, "vision")
    cos, sin = (part.flatten(1, 2) for part in embedding(torch.zeros(1, 256, 20, 28)))
    head = torch.randn(1, 35, 1, 256, generator=torch.Generator().manual_seed(0))
    turned, _ = module.apply_rotary_pos_emb(head, head, cos, sin, unsqueeze_dim=2)
    rows_and_columns = grid(5, 7) + 1  # the class counts from 1
    ours = rotate(head.numpy()[0, :, 0], spec, rows_and_columns)
    assert np.abs(ours - turned.numpy()[0, :, 0]).max() <= NEAR * head.abs().max().item()
    wrong = replace(spec, axes=tuple(reversed(spec.axes)))
    assert np.abs(rotate(head.numpy()[0, :, 0], wrong, rows_and_columns) - turned.numpy()[0, :, 0]).max() > 0.1


@pytest.mark.slow
def test_the_last_channels_of_latent_heads_turn_as_in_the_library():
    torch = pytest.importorskip("torch")
    module, embedding = library_module("deepseek_v2", "deepseek_v2", "DeepseekV2RotaryEmbedding", {})
    (spec,) = specs({"model_type": "deepseek_v2"})
    positions = np.arange(3, 40, 5)
    heads = [torch.randn(1, 1, len(positions), spec.head_width) for _ in range(2)]
    angles = embedding(torch.zeros(1), torch.tensor(positions[None]))
    parts = module.apply_rotary_emb(*(head[..., spec.start :] for head in heads), angles)
    for head, part in zip(heads, parts, strict=True):
        ours = rotate(head.numpy()[0, 0], spec, positions)
        assert np.array_equal(ours[:, : spec.start], head.numpy()[0, 0, :, : spec.start])
        assert np.abs(ours[:, spec.start :] - part.numpy()[0, 0]).max() <= NEAR * 4

    module, embedding = library_module("deepseek_v3", "deepseek_v3", "DeepseekV3RotaryEmbedding", {})
    (spec,) = specs({"model_type": "deepseek_v3"})
    cos, sin = embedding(torch.zeros(1), torch.tensor(positions[None]))
    parts = module.apply_rotary_pos_emb_interleave(*(head[..., spec.start :] for head in heads), cos, sin)
    query, key = (rotate(head.numpy()[0, 0], spec, positions)[:, spec.start :] for head in heads)
    # Its channels come out in another order, in which queries and keys meet as before.
    expected = (parts[0] @ parts[1].transpose(-1, -2)).numpy()[0, 0]
    assert np.abs(query @ key.T - expected).max() <= NEAR * np.abs(expected).max() * 4


def cosine_sine(spec, positions):
    """Of every channel: a unit vector of each pair's first channel turned shows both."""
    ones = np.zeros((len(positions), spec.head_width), np.float32)
    ones[:, spec.channels[:, 0]] = 1
    turned = rotate(ones, spec, positions)
    cos, sin = np.empty_like(turned), np.empty_like(turned)
    cos[:, spec.channels[:, 0]] = cos[:, spec.channels[:, 1]] = turned[:, spec.channels[:, 0]]
    sin[:, spec.channels[:, 0]] = sin[:, spec.channels[:, 1]] = turned[:, spec.channels[:, 1]]
    return cos, sin
