"""The patch of a finding, applied to the file, mends it: the finding is gone, and nothing else fires that did not."""

import io
import json

import jsonpatch
import pytest

from auditing import published_fields
from auditing.faulty_files import CONFIG_FAULTS
from auditing.published_fields import (
    DEEPSEEK_V3,
    GEMMA3_4B,
    LLAMA_31,
    PHI3,
    QWEN2,
    QWEN3_VL,
    QWEN_YARN,
    block_with,
    in_text,
    without,
)
from clockhands.auditing import CODES, audit

YARN = QWEN2 | {"max_position_embeddings": 131072, "rope_scaling": QWEN_YARN}
# Faults that no public report names, so that every rule with a patch has a file to mend.
FURTHER = {
    "a misspelt key": block_with(YARN, factor=None, factr=4.0),
    "a misspelt key with a dot": YARN | {"rope_scaling": QWEN_YARN | {"be.ta.fast": 32}},
    "a key that means nothing": block_with(YARN, stretch_it=True),
    "a misspelt scaling": block_with(YARN, rope_type="yarnn"),
    "three numbers that do not fit": block_with(YARN, factor=2.0),
    "a base of another type": without(QWEN2, "rope_theta") | {"model_type": "gpt_neox", "rope_theta": 500000.0},
    "a scaling on both kinds of layers": without(GEMMA3_4B, "rope_theta", "rope_local_base_freq", "rope_scaling")
    | {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_parameters": {
            "sliding_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        },
    },
    "a key at the top that the text does not share": {"rope_theta": 1e4, **QWEN3_VL},
    "sections that are not there": in_text(QWEN3_VL, rope_scaling=None),
    "a documented default": without(LLAMA_31, "rope_theta") | {"max_position_embeddings": 4096, "rope_scaling": None},
    "the old spelling alone": block_with(GEMMA3_4B, rope_type=None, type="linear"),
    "an original length in two places": PHI3 | {"rope_scaling": PHI3["rope_scaling"] | {"rope_type": "longrope"}},
    "a known scaling without its original length": block_with(DEEPSEEK_V3, original_max_position_embeddings=None),
    "a number as a text": PHI3 | {"partial_rotary_factor": "0.75"},
}
FILES = {fault.name: fault.faulty["config.json"] for fault in CONFIG_FAULTS} | FURTHER


def findings(config):
    return audit("-", stdin=io.BytesIO(json.dumps(config).encode())).findings


def mended():
    """Every file with every code whose finding has a patch for it."""
    for name, config in FILES.items():
        found = findings(config)
        wrong = any(each.blames == "file" for each in found)
        for code in dict.fromkeys(each.code for each in found if each.edit and each.edit.patch):
            # What a reader makes of a file is mended once the file is right.
            if not (wrong and any(each.code == code and each.blames == "reader" for each in found)):
                yield pytest.param(config, code, id=f"{name}: {code}")


MENDED = list(mended())


def patched(config, code):
    """The file with every finding of one code mended, one after the other."""
    for _ in range(8):
        edit = next((found.edit for found in findings(config) if found.code == code and found.edit), None)
        if edit is None or not edit.patch:
            return config
        config = jsonpatch.apply_patch(config, [dict(step) for step in edit.patch])
    pytest.fail("eight patches one after the other do not mend it")


def grave(found):
    return [each for each in found if each.severity != "note"]


@pytest.mark.parametrize(("config", "code"), MENDED)
def test_the_patch_mends_the_file_and_nothing_new_fires(config, code):
    before, after = findings(config), findings(patched(config, code))
    fired = {each.code for each in grave(before)}
    assert code not in {each.code for each in (grave(after) if code in fired else after)}
    # A file that is right may still be misread: where it was wrong, there was nothing to misread.
    assert {
        each.code: each.message for each in grave(after) if each.blames != "reader" and each.code not in fired
    } == {}


@pytest.mark.parametrize(
    "overrides",
    [
        {"rope_theta": "500000"},
        {"rope_scaling.original_max_position_embeddings": 8192},
        {"rope_scaling": QWEN_YARN | {"be.ta": 1}},
    ],
)
def test_what_the_caller_sets_is_not_patched_in_the_file(overrides):
    found = audit("-", stdin=io.BytesIO(json.dumps(YARN).encode()), overrides=overrides).findings
    edits = [each.edit for each in grave(found) if each.edit]
    assert edits
    assert all(edit.says and not edit.patch for edit in edits)


@pytest.mark.parametrize("more", [{}, {"rope_theta": 10000.0}, {"new": "block"}, {"new": "default", "rope_theta": 1e4}])
def test_the_patches_of_a_config_give_its_base_one_value(more):
    """A Llama 3.1 without its base: that of the release and the default of the class are not both written."""
    config = {name: value for name, value in published_fields.LLAMA_31.items() if name != "rope_theta"}
    if "new" in more:
        whole = {"rope_type": "default", "rope_theta": 10000.0} if more["new"] == "default" else {}
        config["rope_parameters"] = whole or config.pop("rope_scaling")
    config |= {name: value for name, value in more.items() if name != "new"}
    found = audit("-", stdin=io.BytesIO(json.dumps(config).encode())).findings
    steps = [step for each in found if each.edit for step in each.edit.patch]
    bases = [step["value"] for step in steps if step["path"].endswith("/rope_theta") and "value" in step]
    assert set(bases) == {500000.0}


def test_a_block_that_names_kinds_of_layers_without_objects_is_not_patched():
    config = without(GEMMA3_4B, "rope_theta", "rope_local_base_freq", "rope_scaling")
    for kinds in ({"full_attention": []}, {"sliding_attention": False}, {"full_attention": 1, "sliding_attention": {}}):
        (flat,) = [
            found.edit
            for found in findings(config | {"rope_parameters": {"rope_theta": 1e6, **kinds}})
            if found.code == "flat-layer-types"
        ]
        assert flat is None, kinds


def test_a_patch_that_mends_nothing_is_noticed():
    config = LLAMA_31 | {"rope_theta": "500000"}
    unmended = jsonpatch.apply_patch(config, [{"op": "add", "path": "/rope_theta", "value": "500001"}])
    assert "text-number" in {found.code for found in findings(unmended)}


def test_every_rule_of_a_config_that_makes_an_edit_has_a_file_to_mend():
    tried = {param.values[1] for param in MENDED}
    assert {code for code in CODES if CODES[code].edit and code in OF_CONFIGS} <= tried


# Rules whose edit is made from a config alone; the others have tests of their own.
OF_CONFIGS = {
    code
    for code, kind in CODES.items()
    if kind.__module__.rpartition(".")[2] in ("keys", "layer_kinds", "releases", "scalings", "values")
} - {"head-width"}
