"""Small random models of many families, the faults that are done to them, and what the audit should say of each.

What is expected was written down from the classes' own code and the public cases, before the audit was: which layers a
ladder serves, and which fault leaves which family as it is.
"""

import copy
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

LAYERS = 3
_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_WIDE = {**_GROUPED, "head_dim": 16}
_SEQ2SEQ = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0 + pair / 8 for pair in range(8)],
    "long_factor": [1.0 + pair / 2 for pair in range(8)],
    "original_max_position_embeddings": 64,
}
_DEEPSEEK = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 40.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        config: What its small model is made with.
        ladders: The buffers that hold its rates, to the layers that they serve; empty where it turns nothing, or
            keeps tables in place of rates.
        scaled: Those of them that have a scaling.
        written: Whether rates are written with the weights, so that a checkpoint brings them.
    """

    config: Mapping[str, Any]
    ladders: Mapping[str, str] = field(default_factory=dict)
    scaled: tuple[str, ...] = ()
    written: bool = False


_ALL = {"inv_freq": "0-2"}

FAMILIES: Mapping[str, Family] = {
    "llama": Family({**_WIDE, "max_position_embeddings": 512, "rope_parameters": LLAMA3}, _ALL, ("inv_freq",)),
    "mistral": Family({**_WIDE, "sliding_window": 64}, _ALL),
    "qwen2": Family(_GROUPED, _ALL),
    "qwen3": Family(_WIDE, _ALL),
    "gemma2": Family(_WIDE, _ALL),
    "gemma3_text": Family(
        {
            **_WIDE,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
            },
        },
        {"sliding_attention_inv_freq": "0-1", "full_attention_inv_freq": "2"},
        ("full_attention_inv_freq",),
    ),
    "phi3": Family(
        {
            **_GROUPED,
            "pad_token_id": 0,
            "max_position_embeddings": 512,
            "original_max_position_embeddings": 64,
            "rope_parameters": _LONG,
        },
        _ALL,
        ("inv_freq",),
    ),
    "gpt_neox": Family({**_SIZES}, _ALL),
    "modernbert": Family(
        {
            **_SIZES,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
        {"full_attention_inv_freq": "0", "sliding_attention_inv_freq": "1-2"},
    ),
    "falcon": Family({**_SIZES}, _ALL),
    "smollm3": Family({**_GROUPED, "pad_token_id": 0, "no_rope_layers": [1, 1, 0]}, {"inv_freq": "0-1"}),
    "gpt_oss": Family(
        {
            **_WIDE,
            "num_local_experts": 4,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        _ALL,
        ("inv_freq",),
    ),
    "cohere": Family(_GROUPED, _ALL),
    "glm": Family({**_WIDE, "pad_token_id": 0}, _ALL),
    "deepseek_v3": Family(
        {
            **_SIZES,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 32,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16,
            "v_head_dim": 16,
            "max_position_embeddings": 2560,
            "rope_parameters": _DEEPSEEK,
        },
        _ALL,
        ("inv_freq",),
    ),
    "esm": Family(
        {**_SIZES, "vocab_size": 33, "position_embedding_type": "rotary", "pad_token_id": 1}, _ALL, written=True
    ),
    "olmo3": Family(
        {**_GROUPED, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
        {"sliding_attention_inv_freq": "0-1", "full_attention_inv_freq": "2"},
    ),
    "llama4_text": Family({**_WIDE, "intermediate_size_mlp": 64, "num_local_experts": 2}, _ALL),
    "gemma4_text": Family(
        {
            **_WIDE,
            "vocab_size_per_layer_input": 100,
            "hidden_size_per_layer_input": 8,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        {"sliding_attention_inv_freq": "0-1", "full_attention_inv_freq": "2"},
    ),
    "stablelm": Family(_GROUPED, _ALL),
    "mixtral": Family({**_GROUPED, "num_local_experts": 2}, _ALL),
    "gptj": Family({"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "rotary_dim": 8, "vocab_size": 100}),
    "codegen": Family({"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "rotary_dim": 8, "vocab_size": 100}),
    "gpt2": Family({"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "vocab_size": 100, "n_positions": 128}),
    "opt": Family({**_SIZES, "ffn_dim": 64, "max_position_embeddings": 128, "word_embed_proj_dim": 64}),
    "bart": Family(_SEQ2SEQ),
    "bert": Family(_SIZES),
    "roberta": Family({**_SIZES, "max_position_embeddings": 130}),
    "distilbert": Family(
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 100, "sinusoidal_pos_embds": True}
    ),
    "bloom": Family({"hidden_size": 64, "n_layer": LAYERS, "n_head": 4, "vocab_size": 100}),
    "mpt": Family({"d_model": 64, "n_layers": LAYERS, "n_heads": 4, "vocab_size": 100}),
    "t5": Family({"d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 64, "vocab_size": 100}),
    "whisper": Family(
        {
            **{key: value for key, value in _SEQ2SEQ.items() if key != "max_position_embeddings"},
            "max_source_positions": 100,
            "max_target_positions": 64,
        }
    ),
    "m2m_100": Family(_SEQ2SEQ),
    "marian": Family(_SEQ2SEQ),
    "roformer": Family({**_SIZES, "embedding_size": 64, "max_position_embeddings": 128}),
    "vit": Family({**{k: v for k, v in _SIZES.items() if k != "vocab_size"}, "image_size": 32, "patch_size": 8}),
}

_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
_TOWER = {"depth": 2, "hidden_size": 32, "out_hidden_size": 64, "num_heads": 2, "intermediate_size": 32}
_SECTIONS = {"rope_type": "default", "rope_theta": 1e6}

COMPOSED: Mapping[str, Mapping[str, Any]] = {
    "qwen2_vl": {
        "text_config": {**_GROUPED, "rope_parameters": {**_SECTIONS, "mrope_section": [2, 3, 3]}},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
    },
    "qwen2_5_vl": {
        "text_config": {**_GROUPED, "rope_parameters": {**_SECTIONS, "mrope_section": [2, 3, 3]}},
        "vision_config": {**_TOWER, "fullatt_block_indexes": [1]},
    },
    "qwen3_vl": {
        "text_config": {
            **_WIDE,
            "rope_parameters": {**_SECTIONS, "mrope_section": [4, 2, 2], "mrope_interleaved": True},
        },
        "vision_config": {**_TOWER, "deepstack_visual_indexes": [0, 1]},
    },
    "gemma3": {"text_config": _WIDE, "vision_config": _VISION, "mm_tokens_per_image": 4},
    "mistral3": {
        "text_config": {**_WIDE, "model_type": "mistral"},
        "vision_config": {**_VISION, "model_type": "pixtral"},
    },
    "llava": {
        "text_config": {**_GROUPED, "model_type": "llama"},
        "vision_config": {**_VISION, "model_type": "clip_vision_model"},
    },
    "clip": {"text_config": {**_SIZES, "projection_dim": 32}, "vision_config": _VISION},
    "siglip": {
        "text_config": {**{key: _VISION[key] for key in list(_VISION)[:4]}, "vocab_size": 100},
        "vision_config": _VISION,
    },
}
"""Models of several parts, each with a config of its own."""

TURNING = tuple(name for name, family in FAMILIES.items() if family.ladders)


def transformers() -> Any:
    """The library, told to say nothing; a test that needs it skips without it."""
    pytest.importorskip("torch")
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    return found


def config_of(name: str, **changed: Any) -> Any:
    """The config of the small model of a family."""
    given = COMPOSED[name] if name in COMPOSED else FAMILIES[name].config
    return transformers().AutoConfig.for_model(name, **copy.deepcopy({**given, **changed}))


def model_of(name: str, **changed: Any) -> Any:
    """The small random model of a family, by the class that has no head."""
    import torch

    torch.manual_seed(0)
    return transformers().AutoModel.from_config(config_of(name, **changed)).eval()


def rotary_of(model: Any) -> Any:
    """The one module of a model that holds its rates."""
    found = [one for _, one in model.named_modules() if any("inv_freq" in name for name in one._buffers)]
    assert len(found) == 1
    return found[0]


# What is done to a model


@contextmanager
def filled_with_nan():
    """Memory that nobody fills holds NaN, as PyTorch offers it, so that a test sees the same each time."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def emptied(name: str) -> Any:
    """Made on the meta device, emptied, its weights loaded: nobody computes what is in no checkpoint (D2, 1)."""
    import torch

    weights = model_of(name).state_dict()
    with torch.device("meta"):
        model = transformers().AutoModel.from_config(config_of(name)).eval()
    with filled_with_nan():
        model.to_empty(device="cpu")
    model.load_state_dict(weights)
    return model


def _each_ladder(change: Callable[[Any, str], None]) -> Callable[[str], Any]:
    def done(name: str) -> Any:
        model = model_of(name)
        rotary = rotary_of(model)
        for buffer in rotary._buffers:
            if "inv_freq" in buffer:
                change(rotary, buffer)
        return model

    return done


def _garbage(rotary: Any, buffer: str) -> None:
    import torch

    held = getattr(rotary, buffer)
    bits = torch.randint(0, 2**31 - 1, held.shape, generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    held.copy_(bits.view(torch.float32))


def _zero(rotary: Any, buffer: str) -> None:
    getattr(rotary, buffer).zero_()


def _first_tiny(rotary: Any, buffer: str) -> None:
    getattr(rotary, buffer)[0] = 6.93e-18


recycled = _each_ladder(_garbage)  # D2, 2: the same, with memory that held something else
zeroed = _each_ladder(_zero)  # D2, 4
first_wrong = _each_ladder(_first_tiny)  # D2, 5


def repaired_without_scaling(name: str) -> Any:
    """Rates computed again by the plain formula (D2, 3)."""
    import torch

    model = model_of(name)
    rotary = rotary_of(model)
    for buffer in FAMILIES[name].ladders:
        held = getattr(rotary, buffer)
        parameters = rotary.config.rope_parameters
        kind = buffer.removesuffix("_inv_freq")
        base = parameters.get(kind, parameters)["rope_theta"]
        held.copy_(base ** -(torch.arange(held.numel(), dtype=torch.float64) / held.numel()))
    return model


def configured_late(name: str) -> Any:
    """A scaling set in the config of a model that is loaded already (D2, 6)."""
    model = model_of(name)
    parameters = rotary_of(model).config.rope_parameters
    late = {"rope_type": "linear", "factor": 4.0}
    for block in [parameters] if "rope_theta" in parameters else parameters.values():
        block.update(late)
    return model


def cast(name: str) -> Any:
    """The whole model cast to bfloat16 (D2, 7)."""
    import torch

    return model_of(name).to(torch.bfloat16)
