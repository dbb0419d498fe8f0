"""The indexer of a sparse attention: a second rotation in the same layers, with a layout of its own."""

import importlib
import json
import sys
from typing import Any

import pytest

from clockhands.auditing import audit
from clockhands.readers import misreadings
from clockhands.sources import open_target
from clockhands.sources.resolve import resolve
from readers.reading_files import read

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
# Which function of the class turns what the indexer compares, by layout.
FUNCTIONS = {"halves": "apply_rotary_pos_emb", "interleaved": "apply_rotary_pos_emb_interleave"}


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


@pytest.mark.slow
@pytest.mark.parametrize(("config", "layout"), [(DEEPSEEK, "halves"), (GLM, "interleaved")])
def test_the_class_rotates_the_heads_of_its_indexer_so(monkeypatch, config, layout):
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    name = config["model_type"]
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    small = {
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1,
        "intermediate_size": 32, "vocab_size": 32, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "q_lora_rank": 16, "kv_lora_rank": 16, "index_topk": 4, "index_head_dim": 16, "index_n_heads": 2,
        "first_k_dense_replace": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "indexer_rope_interleave": layout != "interleaved", "mlp_layer_types": ["dense"],
    }  # fmt: skip
    called: list[tuple[str, str, int]] = []

    def watched(function, original):
        def call(query, *rest, **more):
            owner = type(sys._getframe(1).f_locals["self"]).__name__
            called.append((function, owner, query.shape[-1]))
            return original(query, *rest, **more)

        return call

    for function in FUNCTIONS.values():
        if hasattr(module, function):
            monkeypatch.setattr(module, function, watched(function, getattr(module, function)))
    built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **small)).eval()
    built(torch.tensor([[1, 2, 3, 4, 5, 6]]))
    of_indexer = {(function, width) for function, owner, width in called if owner.endswith("Indexer")}
    assert of_indexer == {(FUNCTIONS[layout], small["qk_rope_head_dim"])}
