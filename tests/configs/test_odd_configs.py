"""Scalings that a length or a type chooses; `stated/odd_configs.json` states what else odd configs are resolved to."""

import numpy as np
import pytest

from clockhands.auditing._audits import judged
from configs.expected import opened, resolved
from configs.test_overriding import LLAMA


def facts(config):
    return {fact.code: dict(fact.evidence) for fact in resolved(config).facts}


def test_an_original_length_where_its_type_does_not_read_it():
    """Phi-3 takes the length outside the block, its class default where there is none, and never the block's."""
    lists = {"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48}
    config = {"model_type": "phi3", "max_position_embeddings": 131072}
    inside = {**config, "rope_parameters": {**lists, "original_max_position_embeddings": 8192}}
    found = resolved(inside)
    assert found.codes[0].scaling == {"type": "longrope", "factor": 32.0, "original": 4096}
    assert facts(inside)["ignored-key"]["config.json:rope_parameters.original_max_position_embeddings"] == 8192
    assert "4,096" in facts(inside)["ignored-key"]["read instead"]
    same = {**config, "rope_parameters": {**lists, "original_max_position_embeddings": 4096}}
    assert "ignored-key" not in facts(same)
    outside = {**inside, "original_max_position_embeddings": 16384}
    assert resolved(outside).codes[0].scaling["original"] == 16384
    assert "conflicting-keys" in facts(outside)


def test_the_document_of_an_audit_has_the_keys_that_nothing_read():
    config = {"model_type": "llama", "rope_theta": 1e6, "rope_ratio": 50, "use_dynamic_ntk": True, "vocab_size": 9}
    ignored = judged(opened(config), resolved(config)).to_dict()["ignored"]
    assert ignored == {"config.json:rope_ratio": 50, "config.json:use_dynamic_ntk": True}


def test_length_chooses_the_regime():
    dynamic = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    assert resolved(dynamic).length == 8192
    assert resolved(dynamic).codes[0].rates == resolved(LLAMA).codes[0].rates
    assert resolved(dynamic, 16384).codes[0].rates[-1] < resolved(LLAMA).codes[0].rates[-1]
    lists = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [4.0] * 64}
    long = {**LLAMA, "rope_scaling": lists, "original_max_position_embeddings": 2048}
    assert resolved(long).length == 2048
    assert resolved(long).codes[0].rates[0] == 1.0
    assert resolved(long, 8192).codes[0].rates[0] == 0.25
    assert resolved(long).codes[0].scaling == {"type": "longrope", "factor": 4.0, "original": 2048}


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3"])
def test_a_proportional_share_is_read_where_the_class_reads_no_share(model_type: str):
    """Transformers' function of the scaling reads it from the block, for every model type."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    fields = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }
    config = transformers.AutoConfig.for_model(model_type, **fields)
    expected, _ = ROPE_INIT_FUNCTIONS["proportional"](config, None)
    (code,) = resolved({"model_type": model_type, "num_hidden_layers": 2, **fields}).codes
    found = code.spec.rates
    assert np.allclose(found, expected.numpy(), rtol=1e-6)
    assert np.count_nonzero(found) == 4
