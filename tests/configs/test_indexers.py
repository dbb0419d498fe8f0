"""The indexer of a sparse attention: a second rotation in the same layers, with a layout of its own."""

import importlib
import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.auditing import audit
from clockhands.configs import open_target
from clockhands.configs.model_types import model_type
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import INDEXER, layer_numbers
from clockhands.runtimes import misreadings
from runtimes.reading_files import read

YARN = {
    "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0,
    "beta_fast": 32, "beta_slow": 1,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v32", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 4,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000,
    "rope_scaling": YARN,
}  # fmt: skip
GLM = {
    "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 4,
    "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "max_position_embeddings": 202752,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "indexer_rope_interleave": True,
}  # fmt: skip
# Small configs of every type whose class has an indexer; a key that a type does not read is one too many for its class.
SMALL = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 32, "moe_intermediate_size": 16, "vocab_size": 32, "index_topk": 4, "index_head_dim": 16,
    "index_n_heads": 2, "max_position_embeddings": 64, "num_experts_per_tok": 2, "n_routed_experts": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LATENT = SMALL | {
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 16, "kv_lora_rank": 16, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
INDEXED = {
    "deepseek_v32": LATENT,
    "glm_moe_dsa": LATENT | {"indexer_types": ["full", "shared", "full", "shared"]},
    "axk2": LATENT | {"qk_rope_head_dim": 4},
    "hy_v4": LATENT | {"num_hidden_layers": 6, "rope_parameters": {"rope_type": "default", "rope_theta": 5e4}},
    "mistral_large4_text": LATENT | {"index_topk_freq": 2, "no_rope_layers": [1, 1, 0, 0]},
    "dots3_note_text": LATENT | {
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_q_lora_rank": 16, "swa_kv_lora_rank": 16,
        "swa_head_dim": 16, "swa_qk_nope_head_dim": 8, "swa_v_head_dim": 8,
    },
    "deepseek_v4": SMALL | {
        "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16, "o_lora_rank": 8, "o_groups": 2,
        "num_key_value_heads": 1, "compress_ratios": [0, 4, 128, 4], "num_hash_layers": 0,
    },
    "minimax_m3_vl_text": SMALL | {
        "head_dim": 16, "partial_rotary_factor": 0.5, "num_local_experts": 4, "index_block_size": 2,
        "sparse_attention_config": {"sparse_attention_freq": [0, 1, 0, 1], "sparse_index_dim": 12},
    },
    "qwen4_exp_text": SMALL | {
        "head_dim": 16, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 12, "indexer_budget": 4,
        "indexer_compress_ratio": 2, "num_experts": 4, "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
    "glm5_next_text": LATENT | {
        "qk_rope_head_dim": 0, "head_dim": 0, "index_kpool": 2, "linear_head_dim": 8, "linear_num_heads": 2,
    },
}  # fmt: skip
# Some classes put the first channels of all pairs before the second ones while they rotate.
TAKEN_APART = "apply_rotary_pos_emb_interleave"


def codes(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return {code.part: code for code in audit(path).layers}


@pytest.mark.parametrize(("config", "layout"), [(DEEPSEEK, "halves"), (GLM, "interleaved")])
def test_the_indexer_has_the_frequencies_of_the_attention_and_its_own_layout(tmp_path, config, layout):
    found = codes(tmp_path, config)
    text, indexer = found["text"], found["indexer"]
    assert (text.layout, indexer.layout) == ("interleaved", layout)
    assert (indexer.layers, indexer.width, indexer.rotated) == ("0-3", 128, 64)
    assert indexer.rates == text.rates
    assert indexer.score_scale is None


def test_only_the_layers_with_an_indexer_have_one(tmp_path):
    listed = {"indexer_types": ["full", "shared", "full", "shared"]}
    assert codes(tmp_path, GLM | listed)["indexer"].layers == "0,2"


def test_a_file_may_say_the_layout_of_the_indexer(tmp_path):
    other = GLM | {"indexer_rope_interleave": False}
    found = codes(tmp_path, other)
    assert (found["text"].layout, found["indexer"].layout) == ("interleaved", "halves")
    reading = read(tmp_path, other, "transformers-5")
    (group,) = reading.parted
    assert (group.part, group.says) == ("indexer", ("half-split layout against interleaved layout",))
    assert read(tmp_path, other, "vllm").not_compared == ("indexer",)


@pytest.mark.parametrize("config", [DEEPSEEK, GLM])
def test_the_other_layout_of_an_indexer_is_a_pattern(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    opened = open_target(path)
    held = {each.reader: each for each in misreadings(opened, resolve(opened), None)}
    assert {group.part for group in held["indexer-other-layout"].parted} == {"indexer"}
    assert {group.part for group in held["other-layout"].parted} == {"text"}


def test_the_lists_of_a_file_may_be_letters_or_a_number(tmp_path):
    """As in the config class of GLM-5: a letter for each layer, or one layer of so many after the first ones."""
    assert codes(tmp_path, GLM | {"index_topk_pattern": "FSSF"})["indexer"].layers == "0,3"
    counted = {"num_hidden_layers": 10, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    assert codes(tmp_path, GLM | counted)["indexer"].layers == "0-2,6"


def test_a_model_without_sparse_layers_has_no_indexer(tmp_path):
    config = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 2}
    assert set(codes(tmp_path, config)) == {"text"}
    assert codes(tmp_path, config | {"layer_types": ["full_attention", "minimax_m3_sparse"]})["indexer"].layers == "1"


def test_every_class_with_an_indexer_has_a_row_for_it():
    """Found by the names of classes in the source of the installed library."""
    found = importlib.util.find_spec("transformers")
    if found is None or found.origin is None:
        pytest.skip("Transformers is not installed")
    files = Path(found.origin).parent.glob("models/*/modeling_*.py")
    folders = {
        file.parent.name for file in files if re.search(r"^class \w+Indexer\(", file.read_text("utf-8"), re.MULTILINE)
    }
    assert folders == {name.removesuffix("_text") for name in INDEXED}
    for name in INDEXED:
        known = model_type(name)
        assert known is not None
        assert [row.part for row in known.rows].count(INDEXER) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEXED)
def test_the_class_rotates_the_heads_of_its_indexer_so(monkeypatch, tmp_path, name):
    """The layers with an indexer, and in each of them what its function makes of the queries."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    folder = name.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    called: dict[int, tuple[str, int, Any, Any]] = {}

    def watched(function, original):
        def call(query, *rest, **more):
            made = original(query, *rest, **more)
            owner = sys._getframe(1).f_locals["self"]
            if type(owner).__name__.endswith("Indexer") and 6 in query.shape[1:3]:
                turned = made[0] if isinstance(made, tuple) else made
                called.setdefault(id(owner), (function, query.storage_offset(), query.detach(), turned.detach()))
            return made

        return call

    for function in [each for each in vars(module) if each.startswith("apply_rotary_pos_emb")]:
        monkeypatch.setattr(module, function, watched(function, getattr(module, function)))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **INDEXED[name])
    built = transformers.AutoModel.from_config(config).eval()
    built(torch.tensor([[3, 4, 5, 6, 7, 8]]))
    indexers = {
        int(path.split(".")[1]): part for path, part in built.named_modules() if type(part).__name__.endswith("Indexer")
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": name, **INDEXED[name]}), encoding="utf-8")
    ours = {layer: code for code in audit(path).layers if code.part == INDEXER for layer in layer_numbers(code.layers)}
    assert set(ours) == set(indexers)
    for layer, code in ours.items():
        assert (code.kind == "rotary") == (id(indexers[layer]) in called)
        if code.kind == "rotary":
            _held_to(code, *called[id(indexers[layer])])


def _held_to(code, function, start, query, turned):
    """What a function made of six positions of queries, the whole head or its rotating channels alone."""
    spec, (x, y) = code.spec, (each.numpy().astype(np.float64) for each in (query, turned))
    axis = 1 + query.shape[1:3].index(6)
    if x.shape[-1] == code.rotated:
        assert start == (code.width - code.rotated if spec.part == "last" else 0)
        spec = replace(spec, head_width=code.rotated, part="first")
    else:
        assert x.shape[-1] == code.width
    if function == TAKEN_APART:
        y = np.stack(np.split(y, 2, axis=-1), axis=-1).reshape(y.shape)
    positions = np.arange(6) if spec.axes is None else np.repeat(np.arange(6)[:, None], 3, axis=1)
    assert np.abs(ch.rotate(x, spec, positions, seq_axis=axis) - y).max() < 1e-5
    assert np.abs(y - x).max() > 1e-3
