"""How many positions a code can be asked for, and which keys about position nothing read."""

import pytest

from clockhands.additive import Learned
from clockhands.auditing._audits import judged
from clockhands.sources.opened import Opened
from clockhands.sources.resolve import resolve
from resolution.expected import opened, resolved
from resolution.test_gguf_metadata import gguf, named

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("config", "usable", "place"),
    [
        (LLAMA, 8192, "config.json:max_position_embeddings"),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512, None),
        ({"model_type": "opt", "max_position_embeddings": 2048}, 2048, None),
        ({"model_type": "bert", "max_position_embeddings": 512}, 512, None),
        ({"model_type": "bloom", "seq_length": 2048}, 2048, "config.json:seq_length"),
        ({"model_type": "t5"}, None, None),
    ],
)
def test_rows_from_the_first_position_on_else_the_context(config, usable, place):
    (code, *_) = resolved(config).codes
    assert code.usable_length == usable
    if place:
        assert code.source["usable_length"] == place


def test_the_source_of_a_usable_length_names_rows_and_offset():
    (code,) = resolved({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}).codes
    assert code.source["usable_length"] == "config.json:max_position_embeddings - config.json:pad_token_id + 1"
    (preset,) = resolve(Opened("mine", "preset", spec=Learned(8, 514, 2))).codes
    assert (preset.usable_length, preset.source["usable_length"]) == (512, "preset mine")
    assert resolve(gguf()).codes[0].usable_length == resolve(gguf()).context


def test_keys_that_nothing_read_are_listed_with_their_values():
    config = {
        **LLAMA,
        "rope_theta": 1e6,
        "rope_ratio": 50,
        "use_dynamic_ntk": True,
        "vocab_size": 9,
        "rope_interleave": None,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "factr": 3.0},
    }
    found = resolved(config)
    assert found.ignored == {
        "config.json:rope_ratio": 50,
        "config.json:use_dynamic_ntk": True,
        "config.json:rope_scaling.factr": 3.0,
    }
    assert judged(opened(config), found).to_dict()["ignored"] == found.ignored


def test_keys_around_the_parts_of_a_model_are_listed_too():
    text = {**LLAMA, "model_type": "qwen3_5_text", "alibi": True}
    found = resolved({"model_type": "qwen3_5", "rope_theta": 5.0, "text_config": text})
    assert found.ignored == {"config.json:rope_theta": 5.0, "config.json:text_config.alibi": True}


def test_one_block_for_each_kind_of_layer_is_looked_into():
    inner = {"rope_type": "default", "rope_theta": 1e6, "factr": 1}
    config = {"model_type": "gemma3_text", "rope_parameters": {"full_attention": inner, "other": {"rope_theta": 2.0}}}
    assert resolved(config).ignored == {
        "config.json:rope_parameters.full_attention.factr": 1,
        "config.json:rope_parameters.other": "an object of 1 keys",
    }


def test_keys_of_gguf_files_and_of_the_caller():
    found = resolve(gguf(named("llama", **{"rope.mystery": 4})))
    assert found.ignored == {"model.gguf:llama.rope.mystery": 4}
    set_by_caller = resolve(opened(LLAMA), overrides={"rotary_dim": 64})
    assert set_by_caller.ignored == {"--set:rotary_dim": 64}
    assert resolved(LLAMA).ignored == {}
