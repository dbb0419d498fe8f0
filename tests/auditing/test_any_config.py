"""Whatever stands in a config, its audit ends without a traceback, is strict JSON, and its patches fit the file."""

import copy
import json

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditing import published_fields as of
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import audit_of
from auditing.published_fields import LLAMA_31, without
from clockhands.auditing._audits import judged
from clockhands.configs.resolve import resolve
from clockhands.errors import ClockhandsError
from configs.expected import opened
from configs.test_any_json import CONFIGS, JSON, places

FILES = [*CONFIGS, *(fault.faulty["config.json"] for fault in CONFIG_FAULTS)]


@settings(max_examples=25)
@given(data=st.data())
def test_any_value_in_any_field_is_audited(data):
    audit_changed(data)


@pytest.mark.slow
@settings(max_examples=1000)
@given(data=st.data())
def test_more_values_in_any_field_are_audited(data):
    audit_changed(data)


def audit_changed(data):
    """Audit a config with other values in some of its fields, or without them."""
    config = copy.deepcopy(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 3))):
        *around, key = data.draw(st.sampled_from(sorted(places(config))))
        inside = config
        for name in around:
            inside = inside[name]
        if data.draw(st.booleans()):
            inside[key] = data.draw(JSON)
        else:
            del inside[key]
            if not config:
                break
    length = data.draw(st.one_of(st.none(), st.integers(1, 10**9)))
    target = opened(config)
    try:
        found = judged(target, resolve(target, length))
    except ClockhandsError:
        return
    json.dumps(found.to_dict(), allow_nan=False)
    for finding in found.findings:
        assert finding.message.endswith(".")
        assert finding.hint.endswith(".")
        if finding.edit is not None and finding.edit.patch:
            assert finding.edit.file == "config.json"
            jsonpatch.apply_patch(config, [dict(step) for step in finding.edit.patch])


# A type that no class is known of, and the sizes of a head.
UNKNOWN = {"model_type": "mystery", "rope_theta": 1e4}
SIZES = {"hidden_size": 512, "num_attention_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
# A config with a value that is none, or without one, and the errors and warnings about it.
VALUES = [
    (LLAMA_31 | {"hidden_size": "x"}, ["impossible-value"]),
    (LLAMA_31 | {"rope_theta": float("nan")}, ["impossible-value"]),
    (LLAMA_31 | {"rope_scaling": {"factor": 8.0}}, ["incomplete-scaling"]),
    (LLAMA_31 | {"rope_scaling": {"type": 5}}, ["unreadable-field"]),
    (LLAMA_31 | {"rope_scaling": of.LLAMA3 | {"factor": "x"}}, ["impossible-value"]),
    (LLAMA_31 | {"model_type": 5}, ["unreadable-field"]),
    (without(LLAMA_31, "hidden_size"), []),  # the class has one
    (of.QWEN2 | {"use_sliding_window": "yes"}, ["impossible-value"]),
    (of.GPT_OSS | {"layer_types": []}, []),
    (of.GPT_OSS | {"layer_types": ["full_attention"] * 3}, ["impossible-value"]),
    (of.GPT_OSS | {"num_hidden_layers": 3}, ["impossible-value"]),
    (without(of.GPT_OSS, "layer_types") | {"num_hidden_layers": 3}, []),
    (without(of.SMOLLM3, "num_hidden_layers") | {"layer_types": ["full_attention"] * 3}, ["impossible-value"]),
    (without(of.DEEPSEEK_V3, "qk_rope_head_dim"), []),
    (of.DEEPSEEK_V3 | {"qk_rope_head_dim": "x"}, ["impossible-value"]),
    (of.DEEPSEEK_V3 | {"qk_nope_head_dim": -1}, ["impossible-value"]),
    (of.PHI2 | {"rope_scaling": {"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}, ["conflicting-keys"]),
    (of.PHI2 | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, ["conflicting-shapes"]),
    (of.WHISPER | {"d_model": "x"}, ["impossible-value"]),
    (of.ROBERTA | {"max_position_embeddings": 1}, ["impossible-value"]),
    (of.ROBERTA | {"hidden_size": "x"}, ["impossible-value"]),
    (UNKNOWN | {"num_attention_heads": 8}, []),  # a note: the frequencies cannot be computed
    (UNKNOWN | {"num_attention_heads": 8, "hidden_size": 4097}, ["impossible-value"]),
    (UNKNOWN | {"num_attention_heads": 1, "hidden_size": 10**7}, ["impossible-value"]),
    (UNKNOWN | SIZES | {"rope_scaling": YARN}, []),
]


def test_what_is_said_of_values_that_are_none(cases):
    for number, (config, codes) in enumerate(VALUES):
        with cases(number, codes):
            assert [found.code for found in audit_of(config).findings if found.severity != "note"] == codes
    # This model type reads one block for all layers.
    nested = LLAMA_31 | {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "rope_theta": 5e5}}
    assert {"ignored-key", "conflicting-shapes"} == {found.code for found in audit_of(nested).problems}
    verdict = "No problem was found, but the RoPE frequencies cannot be computed: hidden_size is not in the file"
    known = audit_of(UNKNOWN | {"num_attention_heads": 8}).verdict
    assert known == f'{verdict}; the model type "mystery" is not known.'
