"""Models that look wrong and are right: position fields as they were published, under the number of the public list."""

from functools import cache

import numpy as np

from auditing import published_fields as of
from auditing.faulty_containers import FACTORS
from auditing.model_files import Gguf, Model
from auditing.published_fields import LLAMA3, LLAMA_31, without

INV_FREQ = 10000.0 ** (-np.arange(64) / 64)


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


@cache
def right() -> dict[str, Model]:
    """Each of them, by its number and what looks wrong in it; where a table is trained, a narrow part of the model."""
    return {
        "D6-01 Llama 3.2: 32 x 8,192 is not 131,072": alone(of.LLAMA_32_1B),
        "D6-02 Llama 3.1: 8 x 8,192 is not 131,072": alone(LLAMA_31),
        "D6-03 Apertus: base 12,000,000": alone(of.APERTUS),
        "D6-04 Llama 4 Scout: both frequency factors are 1": alone(of.LLAMA4_SCOUT),
        "D6-05 DeepSeek-V3: both mscale are 1": alone(of.DEEPSEEK_V3),
        "D6-06 DeepSeek-V4: two bases, no attention factor": alone(of.DEEPSEEK_V4),
        "D6-07 DeepSeek: 64 of 192 dimensions rotate, head_dim is 64": alone(of.DEEPSEEK_V3 | {"head_dim": 64}),
        "D6-07 GLM-5: 64 of 256 dimensions rotate, head_dim is 64": alone(of.GLM5),
        "D6-08 Gemma 3 1B: two bases, no factor": alone(of.GEMMA3_1B),
        "D6-08 Gemma 3 4B: two bases, a factor for one of them": alone(of.GEMMA3_4B),
        "D6-09 Gemma 4: three quarters of the pairs stand still": alone(of.GEMMA4),
        "D6-10 ModernBERT: 160,000 and 10,000": alone(of.MODERNBERT),
        "D6-11 Olmo 3: the attention factor written out": alone(of.OLMO3),
        "D6-12 gpt-oss: base 150,000, no rounding of the ramp": alone(of.GPT_OSS),
        "D6-13 GLM: half turns by the class's default": alone(without(of.GLM4_9B, "partial_rotary_factor")),
        "D6-13 GLM-4-0414: half turns by the class's default": alone(
            without(of.GLM4_9B, "partial_rotary_factor") | {"model_type": "glm4", "max_position_embeddings": 32768}
        ),
        "D6-14 Command-R: 8,192 beside 131,072": alone(of.COMMAND_R),
        "D6-15 SmolLM3: 1 in the list means that a layer turns": alone(of.SMOLLM3),
        "D6-16 Granite: a base of 0 means no rotation": alone(of.GRANITE_SWA),
        "D6-17 Nemotron-H: a base that no code reads": alone(of.NEMOTRON_H),
        "D6-17 Jamba: no position encoding": alone(of.JAMBA),
        "D6-18 Mllama: cross-attention does not turn": alone(of.MLLAMA),
        "D6-19 Qwen2: a window that is switched off": alone(of.QWEN2),
        "D6-20 RoBERTa: 514 rows for 512 tokens": with_weights(
            of.ROBERTA | {"hidden_size": 48}, roberta__embeddings__position_embeddings__weight=trained(514, 48)
        ),
        "D6-20 Longformer: 4,098 rows for 4,096 tokens": alone(of.LONGFORMER),
        "D6-21 OPT: two rows more than positions": with_weights(
            of.OPT | {"hidden_size": 48, "word_embed_proj_dim": 48},
            model__decoder__embed_positions__weight=trained(2050, 48),
        ),
        "D6-21 BART: two rows more than positions": with_weights(
            of.BART | {"d_model": 48},
            model__encoder__embed_positions__weight=trained(1026, 48),
            model__decoder__embed_positions__weight=trained(1026, 48),
        ),
        "D6-22 Qwen2.5-VL: type mrope": alone(of.QWEN25_VL),
        "D6-23 both spellings of the type, equal": alone(LLAMA_31 | {"rope_scaling": LLAMA3 | {"type": "llama3"}}),
        "D6-24 YaRN whose maximum is still the original length": alone(of.QWEN2 | {"rope_scaling": of.QWEN_YARN}),
        "D6-25 a bare base of 10,000": alone(of.BARE_BASE),
        "D6-26 Hunyuan V3: base 11,158,840": alone(of.HY_V3),
        "D6-26 Fuyu: base 25,000": alone(of.FUYU),
        "D6-26 dots3 note: bases 80,000,000 and 50,000": alone(of.DOTS3_NOTE),
        "D6-26 DINOv3: base 100": alone(of.DINOV3),
        "D6-27 Llama 2: inv_freq stored in float32": with_weights(
            of.LLAMA2, model__layers__0__self_attn__rotary_emb__inv_freq=INV_FREQ.astype(np.float32)
        ),
        "D6-27 Llama 2: inv_freq stored in float16": with_weights(
            of.LLAMA2, model__layers__0__self_attn__rotary_emb__inv_freq=INV_FREQ.astype(np.float16)
        ),
        "D6-28 rope_freqs.weight in the GGUF file only": {
            "config.json": LLAMA_31,
            "model.gguf": Gguf(of.GGUF_LLAMA, {"rope_freqs.weight": FACTORS}),
        },
        "D6-28 rope_freqs.weight in a GGUF file": {"model.gguf": Gguf(of.GGUF_LLAMA, {"rope_freqs.weight": FACTORS})},
        "D6-29 nanochat: turned the other way, query and key alike": alone(of.NANOCHAT),
        "D6-30 Bloom: ALiBi by the key's position, in bfloat16": alone(of.BLOOM),
        "D6-30 MPT: ALiBi shifted by one, in bfloat16": alone(of.MPT),
        "D6-31 Whisper: sines first, then cosines": with_weights(
            of.WHISPER, model__encoder__embed_positions__weight=sine_then_cosine(1500, 384)
        ),
        "D6-32 GLM-5.2: 1,048,576 positions without a scaling": alone(of.GLM52),
        "D6-33 StableLM: a quarter turns by the class's default": alone(of.STABLELM),
        "D6-34 Phi-4-mini: short factors are all 1": alone(of.PHI4_MINI),
        "D6-34 Phi-3.5: short factors are not": alone(of.PHI35),
    }
