"""Models that look wrong and are right: position fields as they were published, under the number of the public list.

Where no published file was at hand, the fields are the class defaults of transformers 5.23.0 for the type, and the
comment says so.
"""

import numpy as np

from auditing.faulty_containers import FACTORS, LLAMA
from auditing.model_files import Gguf, Model
from auditing.published_fields import (
    COMMAND_R,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    GEMMA3_1B,
    GEMMA3_4B,
    GEMMA4,
    GLM4_9B,
    GPT_OSS,
    LLAMA3,
    LLAMA4_SCOUT,
    LLAMA_31,
    LLAMA_32_1B,
    MODERNBERT,
    OLMO3,
    PHI3,
    PHI4_MINI,
    QWEN2,
    QWEN25_VL,
    QWEN_YARN,
    SMOLLM3,
    without,
)

# Class defaults of ApertusConfig; the releases write them in the old shape.
APERTUS = {
    "model_type": "apertus", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "max_position_embeddings": 65536, "vocab_size": 131072, "rope_theta": 12000000,
    "rope_scaling": LLAMA3,
}  # fmt: skip
# ai-dynamo/aiconfigurator, model_configs/zai-org--GLM-5_config.json, 095f58a
GLM5 = {
    "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 78, "kv_lora_rank": 512,
    "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "rope_interleave": True, "indexer_rope_interleave": True,
    "max_position_embeddings": 202752, "vocab_size": 154880,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
}  # fmt: skip
# GLM-5.2 differs from GLM-5 in these, as public copies of its config have it.
GLM52 = GLM5 | {
    "max_position_embeddings": 1048576, "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
}  # fmt: skip
# Class defaults of GraniteSWAConfig, with its documented list: every fourth layer sees all and does not turn.
GRANITE_SWA = {
    "model_type": "granite_swa", "hidden_size": 2560, "num_attention_heads": 20, "num_key_value_heads": 4,
    "num_hidden_layers": 24, "max_position_embeddings": 8192, "vocab_size": 100352, "sliding_window": 128,
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 6, "layer_rope_theta": [0, *[10000.0] * 3] * 6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}  # fmt: skip
# ai-dynamo/aiconfigurator, model_configs/nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config.json, 095f58a
NEMOTRON_H = {
    "model_type": "nemotron_h", "hidden_size": 2688, "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 2, "num_hidden_layers": 52, "max_position_embeddings": 262144, "vocab_size": 131072,
    "partial_rotary_factor": 1.0, "rope_theta": 10000, "sliding_window": None,
}  # fmt: skip
# intel/intel-extension-for-pytorch, tests/cpu/hf_configs/jamba/config.json, 6d3ba89
JAMBA = {
    "model_type": "jamba", "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 8,
    "num_hidden_layers": 4, "max_position_embeddings": 262144, "vocab_size": 65536, "sliding_window": None,
}  # fmt: skip
# sgl-project/ome, pkg/hfutil/modelconfig/testdata/llama3_2_11b_vision.json, 17b77ed
MLLAMA = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 40, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "max_position_embeddings": 131072, "max_length": 20, "vocab_size": 128256, "rope_theta": 500000.0,
        "rope_scaling": LLAMA3,
    },
    "vision_config": {"model_type": "mllama_vision_model", "hidden_size": 1280, "num_hidden_layers": 32},
}  # fmt: skip
# vminh16/VI-Legal-RAG, models/bge-reranker-base/config.json, cede331
ROBERTA = {
    "model_type": "xlm-roberta", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12,
    "max_position_embeddings": 514, "vocab_size": 250002, "pad_token_id": 1, "position_embedding_type": "absolute",
}  # fmt: skip
# The 4,098 rows are those of huggingface/transformers, threads 14243 and 8077; the shape is the class's.
LONGFORMER = {
    "model_type": "longformer", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12,
    "max_position_embeddings": 4098, "vocab_size": 50265, "pad_token_id": 1, "attention_window": [512] * 12,
}  # fmt: skip
# intel/intel-extension-for-pytorch, tests/cpu/hf_configs/opt/config.json, 6d3ba89, with the width of OPT-125M.
OPT = {
    "model_type": "opt", "hidden_size": 768, "word_embed_proj_dim": 768, "num_attention_heads": 12,
    "num_hidden_layers": 12, "max_position_embeddings": 2048, "vocab_size": 50272, "pad_token_id": 1,
}  # fmt: skip
# balaji-munusamy/speech-summarizer, models/bart-large-cnn/config.json, 7f04b4f
BART = {
    "model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "num_hidden_layers": 12,
    "max_position_embeddings": 1024, "vocab_size": 50264, "pad_token_id": 1,
}  # fmt: skip
# A base written out, and no scaling: two checkpoints of MarinFold#198 were trained so; the shape is made up.
BARE_BASE = {
    "model_type": "llama", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 12,
    "num_hidden_layers": 24, "max_position_embeddings": 8192, "vocab_size": 32000, "rope_theta": 10000.0,
}  # fmt: skip
# Class defaults of HYV3Config, Dots3NoteTextConfig, FuyuConfig and DINOv3ViTConfig.
HY_V3 = {
    "model_type": "hy_v3", "hidden_size": 4096, "head_dim": 128, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_hidden_layers": 80, "max_position_embeddings": 131072, "vocab_size": 120832,
    "rope_parameters": {"rope_theta": 11158840.0, "rope_type": "default"},
}  # fmt: skip
DOTS3_NOTE = {
    "model_type": "dots3_note_text", "hidden_size": 5120, "head_dim": 256, "num_attention_heads": 128,
    "num_key_value_heads": 128, "num_hidden_layers": 46, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "kv_lora_rank": 512, "max_position_embeddings": 524288, "vocab_size": 152064, "rope_theta": 80000000.0,
    "swa_rope_theta": 50000.0,
}  # fmt: skip
FUYU = {
    "model_type": "fuyu", "hidden_size": 4096, "num_attention_heads": 64, "num_hidden_layers": 36,
    "max_position_embeddings": 16384, "vocab_size": 262144, "partial_rotary_factor": 0.5, "rope_theta": 25000.0,
}  # fmt: skip
DINOV3 = {
    "model_type": "dinov3_vit", "hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12,
    "patch_size": 16, "image_size": 224, "rope_theta": 100.0,
}  # fmt: skip
# sophgo/LLM-TPU, models/Llama2/compile/files/llama-2-7b-chat-hf/config.json, d581e7b
LLAMA2 = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 4096, "vocab_size": 32000,
    "rope_theta": 10000.0, "rope_scaling": None,
}  # fmt: skip
INV_FREQ = 10000.0 ** (-np.arange(64) / 64)
# Class defaults of NanoChatConfig, in the old shape.
NANOCHAT = {
    "model_type": "nanochat", "hidden_size": 768, "num_attention_heads": 6, "num_key_value_heads": 6,
    "num_hidden_layers": 12, "max_position_embeddings": 2048, "vocab_size": 50304, "rope_theta": 10000.0,
}  # fmt: skip
# intel/intel-extension-for-pytorch, tests/cpu/hf_configs/bloom/config.json, 6d3ba89
BLOOM = {
    "model_type": "bloom", "hidden_size": 2048, "n_layer": 24, "num_attention_heads": 16, "seq_length": 4096,
    "vocab_size": 250880, "torch_dtype": "bfloat16",
}  # fmt: skip
# intel/intel-extension-for-pytorch, .../model_config/mosaicml_mpt-7b_config.json, 6d3ba89
MPT = {
    "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "max_seq_len": 2048, "vocab_size": 50432,
    "attn_config": {"alibi": True, "alibi_bias_max": 8}, "learned_pos_emb": True, "torch_dtype": "bfloat16",
}  # fmt: skip
# ibelem/speech-recognition, public/models/Xenova/whisper-tiny.en/config.json, 13c82d5
WHISPER = {
    "model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "num_hidden_layers": 4,
    "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51864, "pad_token_id": 50256,
}  # fmt: skip
# sgl-project/ome, pkg/hfutil/modelconfig/testdata/stablelm_3b.json, 17b77ed
STABLELM = {
    "model_type": "stablelm", "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 32,
    "num_hidden_layers": 32, "max_position_embeddings": 4096, "vocab_size": 50304, "rope_theta": 10000,
}  # fmt: skip
# The lists of pytorch/executorch, .../weights/phi3.5-mini-instruct/config.json, cff6f4d, rounded to two decimals; the
# length is that of the release, where that file has the 4,096 that it is exported for.
PHI35 = PHI3 | {
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [
            1.0, 1.02, 1.03, 1.03, *[1.05] * 5, 1.07, 1.1, 1.11, 1.16, 1.16, 1.17, 1.29, 1.34, 1.68, 1.79, 1.82, 1.85,
            1.88, 1.91, 1.94, 1.99, *[2.02] * 6, *[2.03] * 9, 2.08, 2.09, 2.19, 2.22, 2.59, 2.73, 2.75, 2.84,
        ],
        "long_factor": [
            1.08, 1.11, 1.14, 1.34, 1.59, 1.6, 1.62, 2.62, 3.23, 3.23, 4.79, 7.4, 7.7, 9.09, 12.2, 17.67, 24.46, 28.57,
            30.42, 30.84, 32.59, 32.93, 42.32, 44.96, 50.34, 50.45, 57.55, 57.93, 58.21, 60.14, 62.61, 62.62, 62.71,
            63.14, 63.14, 63.77, 63.93, 63.96, 63.97, 64.03, 64.07, 64.08, 64.12, 64.41, 64.48, 64.51, 64.53, 64.84,
        ],
    },
}  # fmt: skip


def sine_then_cosine(rows: int, width: int, *, closed: bool = True) -> np.ndarray:
    """Sines of all rates, then their cosines: the slowest rate is 1/10,000 where the spacing is closed."""
    half = width // 2
    phases = np.outer(np.arange(rows), 10000.0 ** (-np.arange(half) / (half - 1 if closed else half)))
    return np.concatenate([np.sin(phases), np.cos(phases)], axis=1).astype(np.float32)


def trained(rows: int, width: int) -> np.ndarray:
    """A learned table, as numbers that no formula makes."""
    return np.random.default_rng(0).normal(0, 0.02, (rows, width)).astype(np.float32)


def with_weights(values: dict[str, object], **tensors: np.ndarray) -> Model:
    """A config beside tensors; a tensor's name is written with two underscores for a dot."""
    return {
        "config.json": values,
        "model.safetensors": {name.replace("__", "."): array for name, array in tensors.items()},
    }


def alone(values: dict[str, object]) -> Model:
    """A config alone."""
    return {"config.json": values}


RIGHT: dict[str, Model] = {
    "D6-01 Llama 3.2: 32 x 8,192 is not 131,072": alone(LLAMA_32_1B),
    "D6-02 Llama 3.1: 8 x 8,192 is not 131,072": alone(LLAMA_31),
    "D6-03 Apertus: base 12,000,000": alone(APERTUS),
    "D6-04 Llama 4 Scout: both frequency factors are 1": alone(LLAMA4_SCOUT),
    "D6-05 DeepSeek-V3: both mscale are 1": alone(DEEPSEEK_V3),
    "D6-06 DeepSeek-V4: two bases, no attention factor": alone(DEEPSEEK_V4),
    "D6-07 DeepSeek: 64 of 192 dimensions rotate, head_dim is 64": alone(DEEPSEEK_V3 | {"head_dim": 64}),
    "D6-07 GLM-5: 64 of 256 dimensions rotate, head_dim is 64": alone(GLM5),
    "D6-08 Gemma 3 1B: two bases, no factor": alone(GEMMA3_1B),
    "D6-08 Gemma 3 4B: two bases, a factor for one of them": alone(GEMMA3_4B),
    "D6-09 Gemma 4: three quarters of the pairs stand still": alone(GEMMA4),
    "D6-10 ModernBERT: 160,000 and 10,000": alone(MODERNBERT),
    "D6-11 Olmo 3: the attention factor written out": alone(OLMO3),
    "D6-12 gpt-oss: base 150,000, no rounding of the ramp": alone(GPT_OSS),
    "D6-13 GLM: half turns by the class's default": alone(without(GLM4_9B, "partial_rotary_factor")),
    "D6-13 GLM-4-0414: half turns by the class's default": alone(
        without(GLM4_9B, "partial_rotary_factor") | {"model_type": "glm4", "max_position_embeddings": 32768}
    ),
    "D6-14 Command-R: 8,192 beside 131,072": alone(COMMAND_R),
    "D6-15 SmolLM3: 1 in the list means that a layer turns": alone(SMOLLM3),
    "D6-16 Granite: a base of 0 means no rotation": alone(GRANITE_SWA),
    "D6-17 Nemotron-H: a base that no code reads": alone(NEMOTRON_H),
    "D6-17 Jamba: no position encoding": alone(JAMBA),
    "D6-18 Mllama: cross-attention does not turn": alone(MLLAMA),
    "D6-19 Qwen2: a window that is switched off": alone(QWEN2),
    "D6-20 RoBERTa: 514 rows for 512 tokens": with_weights(
        ROBERTA, roberta__embeddings__position_embeddings__weight=trained(514, 768)
    ),
    "D6-20 Longformer: 4,098 rows for 4,096 tokens": alone(LONGFORMER),
    "D6-21 OPT: two rows more than positions": with_weights(
        OPT, model__decoder__embed_positions__weight=trained(2050, 768)
    ),
    "D6-21 BART: two rows more than positions": with_weights(
        BART,
        model__encoder__embed_positions__weight=trained(1026, 1024),
        model__decoder__embed_positions__weight=trained(1026, 1024),
    ),
    "D6-22 Qwen2.5-VL: type mrope": alone(QWEN25_VL),
    "D6-23 both spellings of the type, equal": alone(LLAMA_31 | {"rope_scaling": LLAMA3 | {"type": "llama3"}}),
    "D6-24 YaRN whose maximum is still the original length": alone(QWEN2 | {"rope_scaling": QWEN_YARN}),
    "D6-25 a bare base of 10,000": alone(BARE_BASE),
    "D6-26 Hunyuan V3: base 11,158,840": alone(HY_V3),
    "D6-26 Fuyu: base 25,000": alone(FUYU),
    "D6-26 dots3 note: bases 80,000,000 and 50,000": alone(DOTS3_NOTE),
    "D6-26 DINOv3: base 100": alone(DINOV3),
    "D6-27 Llama 2: inv_freq stored in float32": with_weights(
        LLAMA2, model__layers__0__self_attn__rotary_emb__inv_freq=INV_FREQ.astype(np.float32)
    ),
    "D6-27 Llama 2: inv_freq stored in float16": with_weights(
        LLAMA2, model__layers__0__self_attn__rotary_emb__inv_freq=INV_FREQ.astype(np.float16)
    ),
    "D6-28 rope_freqs.weight in the GGUF file only": {
        "config.json": LLAMA_31,
        "model.gguf": Gguf(LLAMA, {"rope_freqs.weight": FACTORS}),
    },
    "D6-28 rope_freqs.weight in a GGUF file": {"model.gguf": Gguf(LLAMA, {"rope_freqs.weight": FACTORS})},
    "D6-29 nanochat: turned the other way, query and key alike": alone(NANOCHAT),
    "D6-30 Bloom: ALiBi by the key's position, in bfloat16": alone(BLOOM),
    "D6-30 MPT: ALiBi shifted by one, in bfloat16": alone(MPT),
    "D6-31 Whisper: sines first, then cosines": with_weights(
        WHISPER, model__encoder__embed_positions__weight=sine_then_cosine(1500, 384)
    ),
    "D6-32 GLM-5.2: 1,048,576 positions without a scaling": alone(GLM52),
    "D6-33 StableLM: a quarter turns by the class's default": alone(STABLELM),
    "D6-34 Phi-4-mini: short factors are all 1": alone(PHI4_MINI),
    "D6-34 Phi-3.5: short factors are not": alone(PHI35),
}
