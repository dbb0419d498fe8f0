"""Small random models of transformers, converted, in code that pairs channels the other way: the same logits.

Four types have their own few lines of the other pairing here. All others go through one wrapper of their class's
function, so that every row of the table is held to the class that it describes.
"""

import contextlib
import importlib
import json
from typing import Any

import pytest

from clockhands.configs.tensor_names import type_names
from clockhands.conversion import convert

from .other_pairing import halves_apply_complex, interleaved_apply, to_halves, to_interleaved

pytestmark = pytest.mark.slow
torch: Any = None
transformers: Any = None

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50, "intermediate_size": 48}
SMALL |= {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {"num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = GROUPED | {
    "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "first_k_dense_replace": 2, "head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "rope_interleave": True,
}  # fmt: skip
GPTJ = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64, "rotary_dim": 8, "n_inner": 48}

# Type: what its config says beyond the usual, and which of its norms and biases are turned on.
CASES = {
    "llama": GROUPED | {"attention_bias": True},
    "mistral": GROUPED | {"head_dim": 32},
    "mixtral": GROUPED | EXPERTS,
    "qwen2": GROUPED,
    "qwen2_moe": GROUPED | EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3": GROUPED | {"head_dim": 32, "attention_bias": True},
    "qwen3_moe": GROUPED | EXPERTS | {"head_dim": 16},
    "gemma": {"num_key_value_heads": 1, "head_dim": 32},
    "gemma2": GROUPED | {"head_dim": 32},
    "gemma3_text": GROUPED | {"head_dim": 32, "num_hidden_layers": 7, "sliding_window": 8},
    "olmo": GROUPED | {"clip_qkv": 0.5},
    "olmo2": GROUPED,
    "olmo3": GROUPED,
    "granite": GROUPED,
    "starcoder2": GROUPED | {"use_bias": True},
    "phimoe": GROUPED | EXPERTS | {"attention_bias": True},
    "helium": GROUPED | {"head_dim": 16},
    "glm": GROUPED | {"head_dim": 16, "attention_bias": True},
    "glm4": GROUPED | {"head_dim": 16},
    "smollm3": GROUPED | {"num_hidden_layers": 5, "no_rope_layers": [1, 0, 1, 1, 0]},
    "cohere": GROUPED | {"use_qk_norm": True},
    "phi": GROUPED | {"qk_layernorm": True},
    "stablelm": GROUPED | {"qk_layernorm": True, "use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "phi3": GROUPED | {"partial_rotary_factor": 0.5},
    "gpt_neox": {"rotary_pct": 0.25, "attention_bias": True},
    "persimmon": {"qk_layernorm": True},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "alibi": False, "rope_theta": 1e4},
    "gptj": GPTJ,
    "codegen": GPTJ,
    "llama4_text": GROUPED | EXPERTS | {
        "head_dim": 16, "num_hidden_layers": 4, "intermediate_size_mlp": 48, "use_qk_norm": True, "attention_bias": True
    },
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "minicpm3": LATENT,
    "deepseek_v32": LATENT | {"index_topk": 4, "index_head_dim": 16, "index_n_heads": 2},
    "gpt_oss": GROUPED | EXPERTS | {"head_dim": 16, "sliding_window": 8},
}  # fmt: skip
# Its class pairs as a key of the config says, which a conversion sets.
KNOWS_BOTH = {"deepseek_v3"}
# Types whose text model is tried inside the type that holds it, or by another test.
ELSEWHERE = {"mllama_text_model", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
# Whose functions take each angle once.
ONCE = {"gptj", "codegen", "gpt_oss"}
MODULES = {"gemma3_text": "gemma3", "llama4_text": "llama4"}
INTERLEAVED = {
    "helium", "glm", "glm4", "cohere", "gptj", "codegen", "llama4_text", "deepseek_v2", "deepseek_v3", "deepseek_v32",
}  # fmt: skip
FUNCTIONS = {"llama4_text": "apply_rotary_emb", "deepseek_v32": "apply_rotary_pos_emb_interleave"}


@pytest.fixture(autouse=True, scope="module")
def peers():
    """Imported when the first test runs: the quick tests read this file too."""
    for name in ("torch", "transformers"):
        globals()[name] = pytest.importorskip(name)


def other(name):
    return "halves" if name in INTERLEAVED else "interleaved"


def modeling(name):
    folder = MODULES.get(name, name)
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


VARIANTS = [
    *((name, {}) for name in CASES),
    ("falcon", {"new_decoder_architecture": False, "multi_query": True}),
    ("falcon", {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 4}),
    ("deepseek_v2", {"q_lora_rank": None, "attention_bias": True}),
    ("deepseek_v3", {"q_lora_rank": None, "rope_interleave": False}),
    ("gpt_neox", {"rotary_pct": 1.0, "attention_bias": False}),
]


def variant_name(variant):
    return "-".join([variant[0], *(f"{key}={value}" for key, value in variant[1].items())])


def made(name, folder, **more):
    """A random model of the type, saved; norms and biases are random too, or a wrong order of theirs would not show."""
    values = dict(SMALL) | CASES[name] | more
    config = transformers.AutoConfig.for_model(name, **values)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5))
    model.save_pretrained(folder)
    return model


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype="float32"
    ).eval()


def logits(model, tokens=None):
    tokens = torch.arange(3, 27).reshape(2, 12) if tokens is None else tokens
    with torch.no_grad():
        return model(tokens).logits


def close(first, second):
    return torch.allclose(first, second, rtol=0, atol=1e-5 * float(first.abs().max()))


OWN = {
    "llama": ("apply_rotary_pos_emb", interleaved_apply),
    "qwen3": ("apply_rotary_pos_emb", interleaved_apply),
    "gpt_neox": ("apply_rotary_pos_emb", interleaved_apply),
    "deepseek_v2": ("apply_rotary_emb", halves_apply_complex),
}


def wrapped(function, name):
    """The class's own function for queries and keys whose rotated channels come in the other layout."""

    def turn(*arguments, **named):
        arrays = arguments[: 1 if name in ("gptj", "codegen") else 2]
        angles = arguments[len(arrays) :]
        rotated = angles[0].shape[-1] * (2 if torch.is_complex(angles[0]) or name in ONCE else 1)
        into, back = (to_interleaved, to_halves) if other(name) == "halves" else (to_halves, to_interleaved)
        ready = [torch.cat([into(x[..., :rotated]), x[..., rotated:]], dim=-1) for x in arrays]
        done = function(*ready, *angles, **named)
        done = done if isinstance(done, tuple) else (done,)
        done = tuple(torch.cat([back(x[..., :rotated]), x[..., rotated:]], dim=-1) for x in done)
        return done if len(arrays) > 1 else done[0]

    return turn


@contextlib.contextmanager
def pairing_the_other_way(name, monkeypatch):
    module = modeling(name)
    function, own = OWN.get(name, (None, None))
    function = function or FUNCTIONS.get(name, "apply_rotary_pos_emb")
    with monkeypatch.context() as patch:
        if name not in KNOWS_BOTH:
            patch.setattr(module, function, own or wrapped(getattr(module, function), name))
        yield


def test_every_type_of_the_table_is_tried():
    assert CASES.keys() | ELSEWHERE == set(type_names())


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_a_converted_model_computes_the_same_in_code_of_the_other_layout(variant, tmp_path, monkeypatch):
    name, fields = variant
    model = made(name, tmp_path / "model", **fields)
    expected = logits(model)
    assert close(logits(loaded(tmp_path / "model")), expected)
    wanted = "interleaved" if fields.get("rope_interleave") is False else other(name)
    assert convert(tmp_path / "model", tmp_path / "converted", wanted).moved
    converted = loaded(tmp_path / "converted")
    with pairing_the_other_way(name, monkeypatch):
        assert close(logits(converted), expected)
        if name not in KNOWS_BOTH:
            assert not close(logits(model), expected), "the other code must not fit the model that was not converted"
    if name not in KNOWS_BOTH:
        assert not close(logits(converted), expected), "the class must not fit the converted model"
    convert(tmp_path / "converted", tmp_path / "back", "halves" if wanted == "interleaved" else "interleaved")
    read = {each: (tmp_path / each / "model.safetensors").read_bytes() for each in ("model", "converted", "back")}
    assert read["back"] == read["model"] != read["converted"]
    said = [json.loads((tmp_path / each / "config.json").read_text()) for each in ("model", "back")]
    assert said[0] == said[1]


# Models of text and images: the text model inside moves, and what sees images stays.

SIGHT = {
    "depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "patch_size": 4,
    "out_hidden_size": 64, "num_position_embeddings": 16, "deepstack_visual_indexes": [], "fullatt_block_indexes": [0],
}  # fmt: skip
SECTIONS = {"rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]}}
SEEING = {
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", SIGHT | {"hidden_size": 64}, GROUPED | SECTIONS),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", SIGHT, GROUPED | SECTIONS),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", SIGHT, GROUPED | SECTIONS | {"head_dim": 16}),
    "qwen3_vl_moe": (
        "Qwen3VLMoeForConditionalGeneration", SIGHT, GROUPED | SECTIONS | EXPERTS | {"head_dim": 16},
    ),
    "mllama": (
        "MllamaForConditionalGeneration",
        {
            "hidden_size": 32, "attention_heads": 2, "num_hidden_layers": 2, "num_global_layers": 1, "image_size": 8,
            "patch_size": 4, "intermediate_size": 32, "intermediate_layers_indices": [0], "max_num_tiles": 1,
            "supported_aspect_ratios": [[1, 1]], "vision_output_dim": 64,
        },
        GROUPED | {"num_hidden_layers": 3, "cross_attention_layers": [1], "rope_scaling": None, "rope_theta": 1e4},
    ),
}  # fmt: skip


def seeing(name, folder):
    """A random model of text and images, saved, and how it is called: tokens at places in time, rows and columns."""
    kind, sight, text = SEEING[name]
    config = transformers.AutoConfig.for_model(name, text_config=SMALL | text, vision_config=sight)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5))
    model.save_pretrained(folder)
    places = {} if name == "mllama" else {"position_ids": torch.randint(0, 9, (3, 2, 12))}

    def call(model):
        with torch.no_grad():
            return model(torch.arange(3, 27).reshape(2, 12), use_cache=False, **places).logits

    return model, call


def opened_again(name, folder):
    kind = getattr(transformers, SEEING[name][0])
    return kind.from_pretrained(folder, attn_implementation="eager", dtype="float32").eval()


@pytest.mark.parametrize("name", SEEING)
def test_the_text_model_of_one_that_sees_computes_the_same_in_code_of_the_other_layout(name, tmp_path, monkeypatch):
    model, call = seeing(name, tmp_path / "model")
    expected = call(model)
    assert close(call(opened_again(name, tmp_path / "model")), expected)
    done = convert(tmp_path / "model", tmp_path / "converted", "interleaved")
    assert done.moved
    assert not any("visual" in moved or "vision" in moved or "cross_attn" in moved for moved in done.moved)
    assert any("stay as their class pairs them" in note for note in done.notes)
    said = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert said["text_config"]["clockhands_layout"] == "interleaved"
    converted = opened_again(name, tmp_path / "converted")
    with pairing_the_other_way(name, monkeypatch):
        assert close(call(converted), expected)
        assert not close(call(model), expected), "the other code must not fit the model that was not converted"
    assert not close(call(converted), expected), "the class must not fit the converted model"
    convert(tmp_path / "converted", tmp_path / "back", "halves")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()


def test_an_old_config_of_a_model_that_sees_has_its_text_at_the_top(tmp_path):
    """As the published configs of Qwen2-VL: no text_config, and the tower named after the whole."""
    seeing("qwen2_vl", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    flat = {key: value for key, value in config.pop("text_config").items() if key != "model_type"} | config
    (tmp_path / "model" / "config.json").write_text(json.dumps(flat | {"vision_config": SIGHT}))
    done = convert(tmp_path / "model", tmp_path / "converted", "interleaved")
    assert len(done.moved) == 2 * 2 * 2  # weights and biases of queries and keys in two layers
    assert json.loads((tmp_path / "converted" / "config.json").read_text())["clockhands_layout"] == "interleaved"
