"""Twenty-six models as users hold them: sound ones, and the same with what conversions and edits lose."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import clockhands as ch
from auditing import published_fields as of
from auditing.published_fields import GEMMA3_1B, LLAMA_31, PHI3, QWEN2, QWEN2_VL, ROBERTA, Config, without
from written_files import (
    checkpoint_bytes,
    gguf_bytes,
    gguf_key,
    gguf_tensor,
    onnx_bytes,
    onnx_tensor,
    pickled_dictionary,
    pickled_tensor,
)

_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
CONFIGS: Mapping[str, Config] = {
    "llama-3.1": LLAMA_31,
    "llama-3.1-no-scaling": without(LLAMA_31, "rope_scaling"),
    "llama-3.1-no-base": without(LLAMA_31, "rope_theta"),
    "llama-3.1-null-base": LLAMA_31 | {"rope_theta": None},
    "llama-3.2": of.LLAMA_32_1B,
    "gemma-3": GEMMA3_1B,
    "gemma-3-new-keys": without(GEMMA3_1B, "rope_theta", "rope_local_base_freq", "rope_scaling")
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        }
    },
    "gemma-3-no-local-base": without(GEMMA3_1B, "rope_local_base_freq"),  # the class has this base
    "phi-3": PHI3,
    "phi-3-no-original": without(PHI3, "original_max_position_embeddings"),  # the class has this length
    "qwen-2.5": QWEN2,
    "qwen-2.5-yarn": QWEN2 | {"max_position_embeddings": 131072, "rope_scaling": _YARN},
    "qwen-2.5-wrong-original": QWEN2
    | {"max_position_embeddings": 131072, "rope_scaling": _YARN | {"original_max_position_embeddings": 8192}},
    "qwen-2.5-no-original": QWEN2
    | {"max_position_embeddings": 131072, "rope_scaling": without(_YARN, "original_max_position_embeddings")},
    "qwen2-vl": QWEN2_VL,
    "qwen2-vl-wrong-section": QWEN2_VL | {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 25]}},
    "qwen2-vl-yarn-no-sections": QWEN2_VL | {"rope_scaling": _YARN},
    "mistral-7b": of.MISTRAL_CLASS,
    "roberta-514": ROBERTA,
    "roberta-512": ROBERTA | {"max_position_embeddings": 512},  # 510 usable positions, as its summary says
    "llava": of.LLAVA,
}

# What each faulty model must be told, and the sound one whose ladder its fix gives; None where nothing in the file
# says what was lost.
FAULTY: Mapping[str, tuple[str, str | None]] = {
    "llama-3.1-no-scaling": ("missing-scaling", "llama-3.1"),
    "llama-3.1-no-base": ("differs-from-release", "llama-3.1"),
    "llama-3.1-null-base": ("differs-from-release", "llama-3.1"),
    "llama-3.2-no-scaling.gguf": ("rope-freqs-missing", None),
    "llama-3.2-no-base.gguf": ("differs-from-release", None),
    "qwen-2.5-wrong-original": ("differs-from-release", "qwen-2.5-yarn"),
    "qwen-2.5-no-original": ("missing-original", "qwen-2.5-yarn"),
    "qwen2-vl-wrong-section": ("mrope-sections", None),
    "qwen2-vl-yarn-no-sections": ("differs-from-release", None),
}


def write_everyday_models(folder: Path) -> list[str]:
    """Write all of them into a folder; their names."""
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    scaled = ch.Rotary(head_width=64, base=5e5, scaling=ch.scaling.Llama3(factor=32.0, original=8192))
    divisors = np.array(ch.Rotary(head_width=64, base=5e5).rates) / np.array(scaled.rates)
    (folder / "llama-3.2.gguf").write_bytes(llama_32_gguf(divisors))
    (folder / "llama-3.2-no-scaling.gguf").write_bytes(llama_32_gguf(None))
    (folder / "llama-3.2-no-base.gguf").write_bytes(llama_32_gguf(divisors, base=None))
    table = np.random.default_rng(0).normal(0, 0.02, (1024, 768)).astype("<f4")
    body = pickled_dictionary({"wpe.weight": pickled_tensor("0", table.shape, numel=table.size, strides=(768, 1))})
    (folder / "gpt2.bin").write_bytes(checkpoint_bytes(body, {"0": table.tobytes()}))
    sinusoid = np.asarray(ch.table(ch.Sinusoidal(width=64), 512), "<f4")
    (folder / "sinusoid.onnx").write_bytes(onnx_bytes([onnx_tensor("pe", (512, 64), raw=sinusoid.tobytes())]))
    return sorted(path.name for path in folder.iterdir())


def llama_32_gguf(divisors: np.ndarray | None, base: float | None = 5e5) -> bytes:
    """Llama-3.2-1B as GGUF: the divisors of its frequencies, or no tensor of them, and its base, or none."""
    sizes = {
        "context_length": 131072, "embedding_length": 2048, "block_count": 16, "attention.head_count": 32,
        "attention.head_count_kv": 8, "vocab_size": 128256, "rope.dimension_count": 64,
    }  # fmt: skip
    keys = [gguf_key("general.architecture", "string", "llama")]
    keys += [gguf_key(f"llama.{key}", "uint32", size) for key, size in sizes.items()]
    keys += [] if base is None else [gguf_key("llama.rope.freq_base", "float32", base)]
    numbers: Any = np.ones(32) if divisors is None else divisors
    name = "output_norm.weight" if divisors is None else "rope_freqs.weight"
    return gguf_bytes(keys, [gguf_tensor(name, (32,), 0, 0)], numbers.astype("<f4").tobytes())
