"""Configs whose audits are shown: a plain one, one of two shapes, and one of two kinds of layers."""

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
TWO_SHAPES = LLAMA | {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "head_dim": 256,
    "num_hidden_layers": 34, "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    "sliding_window": 1024, "sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip
