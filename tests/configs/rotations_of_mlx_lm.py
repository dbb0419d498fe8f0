"""The rotations that mlx-lm makes for small models, in a process whose PYTHONPATH has it; JSON on both ends.

Standard input is a list of configs; standard output a list of what the rotations of each model hold, layer by layer:
``[[dimensions, interleaved, base], ...]``.
"""

import importlib
import json
import sys
from typing import Any

# What the classes need and no rotation depends on.
SIZES = {
    "vocab_size": 64, "intermediate_size": 64, "rms_norm_eps": 1e-6, "layer_norm_eps": 1e-6, "layer_norm_epsilon": 1e-6,
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "num_experts": 2, "n_shared_experts": 1,
    "num_experts_per_tok": 1, "moe_intermediate_size": 16, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": False, "num_shared_experts": 1, "first_k_dense_replace": 1, "layer_group_size": 2,
    "group_norm_size": 1, "num_kv_reuse_layers": 1, "conv_window": 2, "use_cla": False, "cla_share_factor": 2,
    "moe_topk": 1, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "use_qk_norm": True, "ffn_dim_divisor": 8,
    "n_shared_head": 8, "n_routed_experts": 2, "num_local_experts": 2, "num_vocab": 64, "use_qkv_bias": False,
    "use_bias": False, "num_loops": 1, "loop_num": 2, "ffn_hidden_size": 64, "use_cache": True,
    "expert_ffn_hidden_size": 16, "zero_expert_num": 1, "mla_scale_q_lora": True, "mla_scale_kv_lora": True,
    "routed_scaling_factor": 1.0, "q_lora_rank": 16, "kv_lora_rank": 16, "head_dim": 16,
}  # fmt: skip


def rotations(config: dict[str, Any]) -> list[tuple[int, bool, float]]:
    """What each rotation of the model of a config holds."""
    utils: Any = importlib.import_module("mlx_lm.utils")
    name = utils.MODEL_REMAPPING.get(config["model_type"], config["model_type"])
    module: Any = importlib.import_module(f"mlx_lm.models.{name}")
    model = module.Model(module.ModelArgs.from_dict(SIZES | config))
    held = (each for name, each in model.named_modules() if name.endswith(("rope", "rotary_emb")))
    return [(int(each.dims), bool(each.traditional), float(each.base)) for each in reversed(list(held))]


if __name__ == "__main__":
    print(json.dumps([rotations(config) for config in json.load(sys.stdin)]))
