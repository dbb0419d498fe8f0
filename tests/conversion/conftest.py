"""Small checkpoints of any type: a config and tensors whose every number says where it stood."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "max_position_embeddings": 64, "rope_theta": 1e4,
}  # fmt: skip
ATTENTION = "model.layers.{}.self_attn.{}"


def numbered(*shape: int, dtype: Any = "float32", start: int = 0) -> np.ndarray:
    return (np.arange(start, start + int(np.prod(shape))) % 251).reshape(shape).astype(dtype)


def llama_tensors(layers: int = 2, dtype: Any = "float32") -> dict[str, np.ndarray]:
    """Heads of 4 channels: 4 of queries, 2 of keys."""
    tensors = {"model.embed_tokens.weight": numbered(10, 16, dtype=dtype)}
    for layer in range(layers):
        for number, (name, rows) in enumerate((("q_proj", 16), ("k_proj", 8), ("v_proj", 8), ("o_proj", 16))):
            tensors[ATTENTION.format(layer, name) + ".weight"] = numbered(
                rows, 16, dtype=dtype, start=7 * number + layer
            )
    return tensors


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Write a model folder: checkpoint("name", config, tensors, shards=2)."""

    def write(
        name: str = "model",
        config: dict[str, Any] | None = LLAMA,
        tensors: dict[str, np.ndarray] | None = None,
        shards: int = 1,
        file: str = "model.safetensors",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        tensors = llama_tensors() if tensors is None else tensors
        if shards == 1:
            save_file(tensors, folder / file, metadata={"format": "pt"})
            return folder
        names = sorted(tensors)
        places = {each: f"model-{1 + at % shards:05}-of-{shards:05}.safetensors" for at, each in enumerate(names)}
        for shard in sorted(set(places.values())):
            save_file({each: tensors[each] for each in names if places[each] == shard}, folder / shard)
        index = {"metadata": {"total_size": 1}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
        return folder

    return write
