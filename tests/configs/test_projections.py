"""Where query and key projections lie in a checkpoint, and which of their rows turn."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clockhands.configs import projections as module
from clockhands.configs.projections import projections
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import open_target
from clockhands.errors import TooLarge
from written_files import entry, gguf_bytes, gguf_key, gguf_tensor, safetensors_bytes

LLAMA = {
    "model_type": "llama", "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "num_hidden_layers": 2, "max_position_embeddings": 64, "rope_theta": 1e4,
}  # fmt: skip


def numbered(rows, inputs=24, dtype="float32"):
    """Rows that hold their own number."""
    return np.repeat(np.arange(rows, dtype=dtype)[:, None], inputs, axis=1)


def found(folder: Path, config, tensors):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "model.safetensors")
    opened = open_target(str(folder))
    return projections(opened, resolve(opened))


def rows_of(one):
    """The rows of a projection, a list for each head."""
    return one.read()[:, :, 0].astype(int).tolist()


def by_head(*starts, width=8):
    return [list(range(start, start + width)) for start in starts]


def test_separate_projections_are_heads_of_rows(tmp_path):
    tensors = {}
    for layer in (1, 0):
        tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = numbered(32)
        tensors[f"model.layers.{layer}.self_attn.k_proj.weight"] = numbered(16)
        tensors[f"model.layers.{layer}.self_attn.v_proj.weight"] = numbered(16)
        tensors[f"model.layers.{layer}.self_attn.q_proj.bias"] = np.ones(32, np.float32)
    made = found(tmp_path / "llama", LLAMA, tensors)
    assert [(one.layer, one.of) for one in made.projections] == [(0, "q"), (0, "k"), (1, "q"), (1, "k")]
    assert rows_of(made.projections[0]) == by_head(0, 8, 16, 24)
    assert rows_of(made.projections[1]) == by_head(0, 8)
    assert (made.heads, made.keys, made.left_out) == (4, 2, ())


FUSED = {
    "phi3": (
        LLAMA | {"model_type": "phi3", "pad_token_id": 0}, "model.layers.0.self_attn.qkv_proj.weight", 64,
        by_head(0, 8, 16, 24), by_head(32, 40),
    ),
    "gpt_neox": (
        LLAMA | {"model_type": "gpt_neox", "hidden_size": 32, "rotary_pct": 0.5, "num_key_value_heads": None},
        "gpt_neox.layers.0.attention.query_key_value.weight", 96,
        by_head(0, 24, 48, 72, width=4), by_head(8, 32, 56, 80, width=4),
    ),
    "falcon": (
        {"model_type": "falcon", "hidden_size": 32, "num_attention_heads": 4, "num_kv_heads": 2,
         "new_decoder_architecture": True, "num_hidden_layers": 1, "alibi": False},
        "transformer.h.0.self_attention.query_key_value.weight", 64,
        by_head(0, 8, 32, 40), by_head(16, 48),
    ),
    "codegen": (
        {"model_type": "codegen", "n_embd": 64, "n_head": 8, "n_layer": 1, "n_positions": 64, "rotary_dim": 4},
        "transformer.h.0.attn.qkv_proj.weight", 192,
        by_head(0, 8, 48, 56, 96, 104, 144, 152, width=4), by_head(32, 40, 80, 88, 128, 136, 176, 184, width=4),
    ),
    "modernbert": (
        {"model_type": "modernbert", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1},
        "model.layers.0.attn.Wqkv.weight", 96,
        by_head(0, 8, 16, 24), by_head(32, 40, 48, 56),
    ),
    "qwen": (
        {"model_type": "qwen", "hidden_size": 32, "num_attention_heads": 4, "kv_channels": 8, "num_hidden_layers": 1,
         "rotary_emb_base": 10000, "seq_length": 64},
        "transformer.h.0.attn.c_attn.weight", 96,
        by_head(0, 8, 16, 24), by_head(32, 40, 48, 56),
    ),
}  # fmt: skip


def test_fused_projections_are_cut_as_their_class_cuts_them(tmp_path, cases):
    for name, (config, tensor, rows, queries, keys) in FUSED.items():
        with cases(name):
            made = found(tmp_path / name, config, {tensor: numbered(rows)})
            assert made.left_out == ()
            assert [one.of for one in made.projections] == ["q", "k"]
            assert [rows_of(one) for one in made.projections] == [queries, keys]


def test_of_latent_heads_the_last_channels_turn(tmp_path):
    config = {
        "model_type": "deepseek_v2", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "kv_lora_rank": 16, "q_lora_rank": 12, "v_head_dim": 8,
        "max_position_embeddings": 64,
    }  # fmt: skip
    tensors = {"q_b_proj": numbered(24, 12), "kv_a_proj_with_mqa": numbered(20), "kv_b_proj": numbered(32, 16)}
    tensors = {f"model.layers.0.self_attn.{name}.weight": values for name, values in tensors.items()}
    made = found(tmp_path / "latent", config, tensors)
    assert [rows_of(one) for one in made.projections] == [by_head(8, 20, width=4), by_head(16, width=4)]


def test_gates_beside_queries_are_not_taken_for_heads(tmp_path):
    config = LLAMA | {"model_type": "qwen3_next", "layer_types": ["full_attention"], "num_hidden_layers": 1}
    made = found(tmp_path / "gated", config, {"model.layers.0.self_attn.q_proj.weight": numbered(64)})
    (one,) = made.projections
    assert one.starts == (0, 16, 32, 48)


def test_a_projection_that_lies_across_is_told_by_its_keys(tmp_path):
    config = LLAMA | {"model_type": "none that is known", "hidden_size": 32}
    across = {"blocks.0.attn.W_Q": numbered(32, 32).T, "blocks.0.attn.W_K": numbered(16, 32).T}
    made = found(tmp_path / "across", config, across)
    assert all(one.transposed for one in made.projections)
    assert rows_of(made.projections[0]) == by_head(0, 8, 16, 24)
    assert rows_of(made.projections[1]) == by_head(0, 8)
    alone = found(tmp_path / "alone", config, {"blocks.0.attn.W_Q": numbered(32, 32).T})
    assert not alone.projections[0].transposed  # a square one by itself does not say


def test_what_cannot_be_read_is_left_out_with_its_reason(tmp_path, cases):
    attention = "model.layers.0.self_attn"
    many = LLAMA | {"num_attention_heads": 1025, "num_key_value_heads": 1, "hidden_size": 8200}
    wide = LLAMA | {"head_dim": 2048, "num_attention_heads": 1, "num_key_value_heads": 1}
    for number, (config, tensor, values, reason) in enumerate([
        (LLAMA, "q_proj.weight", numbered(36), "of 36 rows, which does not fit 4 heads"),
        (LLAMA, "k_proj.weight", numbered(32), "of 32 rows, which does not fit 2 heads"),
        (LLAMA, "q_proj.qweight", numbered(4, dtype="int32"), "quantised by GPTQ or AWQ"),
        (LLAMA, "q_proj.weight_packed", numbered(32, dtype="int32"), "packed several numbers"),
        (many, "q_proj.weight", numbered(8200, 1), "above the limits (1024 and 1024)"),
        (wide, "q_proj.weight", numbered(2048, 1), "above the limits (1024 and 1024)"),
    ]):  # fmt: skip
        with cases(tensor, reason):
            made = found(tmp_path / f"{number}", config, {f"{attention}.{tensor}": values})
            assert made.projections == ()
            (words,) = made.left_out
            assert words.startswith("1 tensor is ") or config is not LLAMA
            assert reason in words


def test_rows_that_do_not_fit_into_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    made = found(tmp_path / "large", LLAMA, {"model.layers.0.self_attn.q_proj.weight": numbered(32)})
    monkeypatch.setattr(module, "read_rows", lambda info, _: pytest.fail(f"{info.name} was read"))
    monkeypatch.setattr(module.memory, "available", lambda: 1000)
    with pytest.raises(TooLarge, match=r"would take 3 KiB; at most 0\.977 KiB can be read"):
        made.projections[0].read()


def test_an_order_that_is_not_known_is_not_guessed(tmp_path):
    config = LLAMA | {"model_type": "none that is known"}
    tensors = {f"layers.{layer}.attn.Wqkv.weight": numbered(64) for layer in range(2)}
    made = found(tmp_path / "fused", config, tensors)
    assert made.projections == ()
    assert made.left_out == ("2 tensors are fused in an order that is not known for this model type",)


def test_what_is_no_self_attention_of_the_text_is_passed_over(tmp_path):
    names = (
        "model.vision_tower.layers.0.self_attn.q_proj.weight", "model.layers.0.cross_attn.q_proj.weight",
        "model.layers.9.self_attn.q_proj.weight", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.mlp.key.bias", "model.layers.0.self_attn.o_proj.weight",
    )  # fmt: skip
    for name in ("llama", "none that is known"):
        made = found(tmp_path / name, LLAMA | {"model_type": name}, {each: numbered(32) for each in names})
        assert (made.projections, made.left_out) == ((), ())


def test_blocks_of_small_floats_are_multiplied_by_their_scales(tmp_path):
    import ml_dtypes

    scales = np.array([[1, 2], [4, 8], [16, 32], [64, 128]], np.float32)
    path = tmp_path / "fp8"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    weight, name = np.ones((32, 24), ml_dtypes.float8_e4m3fn), "model.layers.0.self_attn.q_proj.weight"
    header = {name: entry("F8_E4M3", (32, 24), (0, 768)), f"{name}_scale_inv": entry("F32", (4, 2), (768, 800))}
    (path / "model.safetensors").write_bytes(safetensors_bytes(header, weight.tobytes() + scales.tobytes()))
    opened = open_target(str(path))
    (one,) = projections(opened, resolve(opened)).projections
    assert np.array_equal(one.read().reshape(32, 24), np.repeat(np.repeat(scales, 8, 0), 12, 1))


def quantised_gguf(path: Path, kind: int, data: bytes, width: int = 32) -> Path:
    keys = [
        gguf_key("general.architecture", "string", "llama"), gguf_key("llama.block_count", "uint32", 1),
        gguf_key("llama.context_length", "uint32", 64), gguf_key("llama.embedding_length", "uint32", width),
        gguf_key("llama.attention.head_count", "uint32", 2), gguf_key("llama.rope.dimension_count", "uint32", 8),
        gguf_key("llama.attention.key_length", "uint32", 8),
    ]  # fmt: skip
    path.write_bytes(gguf_bytes(keys, [gguf_tensor("blk.0.attn_q.weight", (width, 16), kind, 0)], data))
    return path


def test_quantised_rows_are_read_alone(tmp_path):
    pytest.importorskip("gguf")
    # Q8_0: a scale in half precision and 32 numbers; row r holds r times 0.5.
    blocks = b"".join(np.float16(0.5).tobytes() + bytes([row] * 32) for row in range(16))
    opened = open_target(str(quantised_gguf(tmp_path / "q.gguf", 8, blocks)))
    (one,) = projections(opened, resolve(opened)).projections
    assert one.read()[:, :, 0].tolist() == [[row / 2 for row in range(8)], [row / 2 for row in range(8, 16)]]


def test_a_quantisation_needs_a_library_that_reads_it(tmp_path, monkeypatch, refused, snapshot):
    pytest.importorskip("gguf")
    opened = open_target(str(quantised_gguf(tmp_path / "q.gguf", 15, bytes(292 * 16), width=256)))  # Q8_K
    (one,) = projections(opened, resolve(opened)).projections
    assert refused(one.read) == snapshot(name="not read")
    opened = open_target(str(quantised_gguf(tmp_path / "q.gguf", 8, bytes(34 * 16))))
    (one,) = projections(opened, resolve(opened)).projections
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert refused(one.read) == snapshot(name="missing")
