"""Tiny models of many families, with seeded random weights."""

from contextlib import contextmanager

import pytest
import torch

from auditing import loaded_models as models

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

VOCABULARY, CONTEXT = 48, 128
_BERT = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": CONTEXT,
}  # fmt: skip
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {**_BERT, **_IDS, "num_key_value_heads": 1}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT, **_IDS}
_BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 2, **_IDS}
_T5 = {
    "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 3, "num_heads": 2,
    "decoder_start_token_id": 0, **_IDS,
}  # fmt: skip
_FALCON = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT, **_IDS,
}  # fmt: skip

# Name: class, config, its fields, and the code that the class has.
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA, "rotary"),
    "gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_LLAMA, "head_dim": 16}, "rotary"),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_BERT, **_IDS}, "rotary"),
    "gpt-j": ("GPTJForCausalLM", "GPTJConfig", {**_GPT2, "rotary_dim": 8}, "rotary"),
    "falcon": ("FalconForCausalLM", "FalconConfig", {**_FALCON, "alibi": False}, "rotary"),
    "falcon with alibi": ("FalconForCausalLM", "FalconConfig", {**_FALCON, "alibi": True}, "ALiBi"),
    "bloom": ("BloomForCausalLM", "BloomConfig", _BLOOM, "ALiBi"),
    "mpt": (
        "MptForCausalLM", "MptConfig",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": CONTEXT}, "relative bias",
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5, "relative bias"),
    "t5 encoder": ("T5EncoderModel", "T5Config", _T5, "relative bias"),
    "gpt-2": ("GPT2LMHeadModel", "GPT2Config", _GPT2, "table"),
    "opt": (
        "OPTForCausalLM", "OPTConfig",
        {
            "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": CONTEXT, **_IDS,
        },
        "table",
    ),
    "bert": ("BertForMaskedLM", "BertConfig", _BERT, "table"),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {**_BERT, "max_position_embeddings": CONTEXT + 2}, "table"),
    "bert without a head": ("BertModel", "BertConfig", _BERT, "table"),
}  # fmt: skip


# Families beside those of `auditing.loaded_models`: the name of their type, and the fields of their config.
_GROUPED = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 100,
}  # fmt: skip
_ALIKE = {name: value for name, value in _GROUPED.items() if name != "num_key_value_heads"}
_WIDE = {**_GROUPED, "head_dim": 16}
_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
MORE = {
    "olmo": _GROUPED, "olmo2": _GROUPED, "granite": _GROUPED, "starcoder2": _GROUPED, "cohere2": _GROUPED,
    "nemotron": _GROUPED, "arcee": _GROUPED, "apertus": _GROUPED, "bitnet": _GROUPED, "diffllama": _GROUPED,
    "gemma": _WIDE, "helium": _WIDE, "ministral": _WIDE, "seed_oss": _WIDE, "ernie4_5": _WIDE,
    "hunyuan_v1_dense": _WIDE, "phi": _ALIKE, "persimmon": _ALIKE, "glm4": {**_WIDE, "pad_token_id": 0},
    "olmoe": {**_GROUPED, **_EXPERTS}, "qwen3_moe": {**_WIDE, **_EXPERTS, "moe_intermediate_size": 32},
    "exaone4": {**_GROUPED, "sliding_window": 32},
    "umt5": {"d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 64, "vocab_size": 100},
    "mamba": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8},
    "xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 100},
}  # fmt: skip


def small(name, **fields):
    """A model of a type, of `auditing.loaded_models` or of `MORE`, with some fields of its config changed."""
    library = models.transformers()
    if name in models.FAMILIES:
        config = models.config_of(name, **fields)
    else:
        config = library.AutoConfig.for_model(name, **MORE[name], **fields)
    torch.manual_seed(0)
    try:
        return library.AutoModelForCausalLM.from_config(config).eval()
    except ValueError:
        return library.AutoModel.from_config(config).eval()


def tiny(family, **fields):
    """A model of a family, with some fields of its config changed."""
    name, config, values, _ = FAMILIES[family]
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**{**values, **fields})).eval()


def without_positions(rotated=(0, 0)):
    """A decoder whose config says for each layer whether it rotates; none does unless said."""
    torch.manual_seed(0)
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**_LLAMA, no_rope_layers=list(rotated))).eval()


def tokens(windows, length, seed=1):
    return torch.randint(4, VOCABULARY, (windows, length), generator=torch.Generator().manual_seed(seed))


@contextmanager
def hidden_bias(model, layers):
    """Attention scores that fall with distance in some layers, which no config says: added to the mask."""

    def hook(_, args, kwargs):
        count = kwargs["hidden_states"].shape[1]
        places = torch.arange(count)
        apart = (places[:, None] - places).float()
        mask = torch.where(apart < 0, torch.finfo(torch.float32).min, -0.25 * apart)
        return args, {**kwargs, "attention_mask": mask[None, None]}

    hooks = [model.model.layers[layer].self_attn.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield model
    finally:
        for each in hooks:
            each.remove()
