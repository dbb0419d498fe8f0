"""The memory of the key-value cache, beside the cache that the class itself fills."""

import json

import pytest

from clockhands.auditing import audit
from late import Late

torch, transformers = Late("torch"), Late("transformers")

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
         "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 256, "pad_token_id": 0}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 16}
LENGTH, WINDOW = 96, 16
TYPES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {"sliding_window": WINDOW, "head_dim": 32},
    "gemma3_text": {"sliding_window": WINDOW, "head_dim": 32},
    "smollm3": {},
    "phi3": {},
    "olmo2": {},
    "mixtral": {"num_local_experts": 2},
    "gpt_oss": {"sliding_window": WINDOW, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
    "cohere2": {"sliding_window": WINDOW},
    "glm4": {"head_dim": 16},
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
    "deepseek_v3": EXPERTS | {
        "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
        "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 4,
    },
    "qwen3_next": EXPERTS | {
        "head_dim": 32, "num_experts": 2, "linear_num_value_heads": 2, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip


@pytest.mark.slow
def test_the_memory_is_that_of_the_cache_of_the_class(cases):
    """A class keeps one position less than its window: that of the next query is added when it comes."""
    for kind, more in TYPES.items():
        with cases(kind):
            config = transformers.AutoConfig.for_model(kind, **(SIZES | more))
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            with torch.no_grad():
                layers = model(torch.arange(LENGTH)[None], use_cache=True).past_key_values.layers
            sizes = {layer: bytes_of(layer) for layer in layers}
            windows = [size // (WINDOW - 1) for layer, size in sizes.items() if getattr(layer, "is_sliding", False)]
            written = json.loads(config.to_json_string(use_diff=False)) | {"dtype": "float32"}
            found = audit(written, LENGTH).cache
            assert found is not None
            assert found.bytes == sum(sizes.values()) + sum(windows)


def bytes_of(layer):
    """What a layer of a cache holds of keys and values; nothing for one without attention."""
    held = (getattr(layer, name, None) for name in ("keys", "values"))
    return sum(each.numel() * each.element_size() for each in held if each is not None)
