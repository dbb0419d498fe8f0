"""Public faults that a GGUF file or the weights show, each made by the edit that makes it on a sound file."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from auditing import published_fields as of
from auditing.faulty_files import Fault
from auditing.model_files import Gguf
from auditing.published_fields import GGUF_PERSIMMON, GGUF_QWEN3, GGUF_STABLELM, without


def llama3_factors(factor: float = 8.0, pairs: int = 64, base: float = 500000.0) -> np.ndarray:
    """What each rate is divided by under the llama3 scaling, as converters write it into ``rope_freqs.weight``."""
    return np.array([_divisor(base ** (-pair / pairs), factor) for pair in range(pairs)], np.float32)


def slipped_factors(factor: float = 8.0, pairs: int = 64, base: float = 500000.0) -> np.ndarray:
    """The same with the slip of llama.cpp#8676: ``1 / (1 - s) * f + s`` where ``1 / ((1 - s) / f + s)`` belongs."""
    return np.array([_divisor(base ** (-pair / pairs), factor, slip=True) for pair in range(pairs)], np.float32)


def _divisor(rate: float, factor: float, *, slip: bool = False) -> float:
    wavelength, low, high, original = 2 * math.pi / rate, 1.0, 4.0, 8192
    if wavelength < original / high:
        return 1.0
    if wavelength > original / low:
        return factor
    smooth = (original / wavelength - low) / (high - low)
    return 1 / (1 - smooth) * factor + smooth if slip else 1 / ((1 - smooth) / factor + smooth)


def keys(architecture: str, **values: Any) -> dict[str, Any]:
    """The keys of a GGUF file, written with two underscores for a dot."""
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{name.replace('__', '.')}": value for name, value in values.items()},
    }


def gguf(values: Mapping[str, Any], **tensors: np.ndarray) -> dict[str, Gguf]:
    """A model of one GGUF file; a tensor's name is written with two underscores for a dot."""
    held = {name.replace("__", "."): array for name, array in tensors.items()}
    # A file without any tensor is no model, and lacks none.
    return {"model.gguf": Gguf(values, {"token_embd.weight": np.zeros((2, 8), np.float32), **held})}


FACTORS = llama3_factors()
# One projection says how many channels all heads have.
GEMMA2_WEIGHTS = {"model.layers.0.self_attn.q_proj.weight": np.zeros((4096, 8), np.float16)}

CONTAINER_FAULTS = (
    Fault(
        "D1-41 Qwen1.5 without its base", "ollama#2379",
        gguf(of.GGUF_QWEN), gguf(without(of.GGUF_QWEN, "qwen2.rope.freq_base")), "differs-from-release", "warning",
        ("10,000", "1,000,000"),
    ),
    Fault(
        "D1-41 CodeLlama without its base", "llama.cpp#2768",
        gguf(of.GGUF_CODELLAMA), gguf(without(of.GGUF_CODELLAMA, "llama.rope.freq_base")), "default-base", "warning",
        ("10,000", "16,384"),
    ),
    Fault(
        "D1-42 llama3 without its factors", "ik_llama.cpp#402, #2291",
        gguf(of.GGUF_LLAMA, rope_freqs__weight=FACTORS), gguf(of.GGUF_LLAMA), "rope-freqs-missing", "warning",
        ("rope_freqs.weight",),
    ),
    Fault(
        "D1-42 llama3 with factors of a slipped formula", "llama.cpp#8676",
        gguf(of.GGUF_LLAMA, rope_freqs__weight=FACTORS), gguf(of.GGUF_LLAMA, rope_freqs__weight=slipped_factors()),
        "rope-freqs-differ", "warning", ("rope_freqs.weight",),
    ),
    Fault(
        "D1-also twice as many channels as turn", "llama.cpp#5460",
        gguf(GGUF_PERSIMMON), gguf(GGUF_PERSIMMON | {"persimmon.rope.dimension_count": 64}),
        "dimension-count", "warning", ("64", "32"),
    ),
    Fault(
        "D1-also the number of turned channels is absent", "llama.cpp#3773",
        gguf(GGUF_STABLELM), gguf(without(GGUF_STABLELM, "stablelm.rope.dimension_count")),
        "dimension-count", "warning", ("80", "20"),
    ),
    Fault(
        "D1-also half the channels of a draft", "ngxson/llama.cpp#100",
        gguf(GGUF_QWEN3), gguf(GGUF_QWEN3 | {"qwen3.rope.dimension_count": 64}),
        "dimension-count", "warning", ("64", "128"),
    ),
    Fault(
        "D1-also YaRN keys that were not converted", "llama.cpp#13322",
        gguf(of.GGUF_QWEN3_MOE),
        gguf({key: value for key, value in of.GGUF_QWEN3_MOE.items() if ".scaling." not in key}),
        "missing-scaling", "warning", ("131,072",),
    ),
    Fault(
        "D1-also a head width that the weights do not have", "transformers#35818",
        {"config.json": of.GEMMA2_27B, "model.safetensors": GEMMA2_WEIGHTS},
        {"config.json": of.GEMMA2_27B | {"head_dim": 256}, "model.safetensors": GEMMA2_WEIGHTS},
        "head-width", "warning", ("256", "4,096"),
    ),
)  # fmt: skip
