"""The patch of a finding, applied to the file, mends it: the finding is gone, and nothing else fires that did not."""

import jsonpatch
import pytest

from auditing import published_fields as of
from auditing.faulty_files import CONFIG_FAULTS, QWEN2_YARN
from auditing.model_files import audit_of, findings
from auditing.published_fields import (
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
from clockhands.auditing import CODES

LINEAR = {"rope_type": "linear", "factor": 8.0}
# Faults that no public report names, so that every rule with a patch has a file to mend.
FURTHER = {
    "a misspelt key": block_with(QWEN2_YARN, factor=None, factr=4.0),
    "a misspelt key with a dot": QWEN2_YARN | {"rope_scaling": QWEN_YARN | {"be.ta.fast": 32}},
    "a key that means nothing": block_with(QWEN2_YARN, stretch_it=True),
    "a misspelt scaling": block_with(QWEN2_YARN, rope_type="yarnn"),
    "three numbers that do not fit": block_with(QWEN2_YARN, factor=2.0),
    "a base of another type": without(QWEN2, "rope_theta") | {"model_type": "gpt_neox", "rope_theta": 500000.0},
    "a scaling on both kinds of layers": GEMMA3_4B
    | {
        "rope_parameters": {
            "sliding_attention": LINEAR | {"rope_theta": 1e4},
            "full_attention": LINEAR | {"rope_theta": 1e6},
        }
    },
    "a key at the top that the text does not share": {"rope_theta": 1e4, **QWEN3_VL},
    "sections that are not there": in_text(QWEN3_VL, rope_scaling=None),
    "a documented default": without(LLAMA_31, "rope_theta") | {"max_position_embeddings": 4096, "rope_scaling": None},
    "the old spelling alone": block_with(GEMMA3_4B, rope_type=None, type="linear"),
    "an original length in two places": PHI3 | {"rope_scaling": PHI3["rope_scaling"] | {"rope_type": "longrope"}},
    "a known scaling without its original length": block_with(of.DEEPSEEK_V3, original_max_position_embeddings=None),
    "a number as a text": PHI3 | {"partial_rotary_factor": "0.75"},
}
FILES = {fault.name: fault.faulty["config.json"] for fault in CONFIG_FAULTS} | FURTHER


def to_mend(found):
    """The codes of findings that have a patch."""
    wrong = any(each.blames == "file" for each in found)
    for code in dict.fromkeys(each.code for each in found if each.edit and each.edit.patch):
        # What a reader makes of a file is mended once the file is right.
        if not (wrong and any(each.code == code and each.blames == "reader" for each in found)):
            yield code


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


def test_the_patch_mends_the_file_and_nothing_new_fires(cases):
    tried = set()
    for name, config in FILES.items():
        before = findings(config)
        fired = {each.code for each in grave(before)}
        for code in to_mend(before):
            tried.add(code)
            with cases(name, code):
                after = findings(patched(config, code))
                assert code not in {each.code for each in (grave(after) if code in fired else after)}
                # A file that is right may still be misread: where it was wrong, there was nothing to misread.
                new = [each for each in grave(after) if each.blames != "reader" and each.code not in fired]
                assert {each.code: each.message for each in new} == {}
    assert {code for code in OF_CONFIGS if CODES[code].has_edit} - tried == set()


# Rules whose edit is made from a config alone; the others have tests of their own.
OF_CONFIGS = {code for code, rule in CODES.items() if rule.family in ("keys", "layer_kinds", "scalings", "values")} - {
    "head-width"
}


def test_what_the_caller_sets_is_not_patched_in_the_file(cases):
    for overrides in (
        {"rope_theta": "500000"},
        {"rope_scaling.original_max_position_embeddings": 8192},
        {"rope_scaling": QWEN_YARN | {"be.ta": 1}},
    ):
        edits = [each.edit for each in grave(audit_of(QWEN2_YARN, overrides=overrides).findings) if each.edit]
        with cases(overrides):
            assert edits
            assert all(edit.says and not edit.patch for edit in edits)


def test_the_patches_of_a_config_give_its_base_one_value(cases):
    """A Llama 3.1 without its base: that of the release and the default of the class are not both written."""
    baseless = without(LLAMA_31, "rope_theta")
    new = without(baseless, "rope_scaling") | {"rope_parameters": of.LLAMA3}
    default = baseless | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": 1e4}
    for config in (baseless, LLAMA_31 | {"rope_theta": 1e4}, new, default):
        steps = [step for each in findings(config) if each.edit for step in each.edit.patch]
        bases = [step["value"] for step in steps if step["path"].endswith("/rope_theta") and "value" in step]
        with cases(config):
            assert set(bases) == {500000.0}


def test_a_block_that_names_kinds_of_layers_without_objects_is_not_patched():
    config = without(GEMMA3_4B, "rope_theta", "rope_local_base_freq", "rope_scaling")
    for kinds in ({"full_attention": []}, {"sliding_attention": False}, {"full_attention": 1, "sliding_attention": {}}):
        found = findings(config | {"rope_parameters": {"rope_theta": 1e6, **kinds}})
        assert [each.edit for each in found if each.code == "flat-layer-types"] == [None], kinds


def test_a_patch_that_mends_nothing_is_noticed():
    config = LLAMA_31 | {"rope_theta": "500000"}
    unmended = jsonpatch.apply_patch(config, [{"op": "add", "path": "/rope_theta", "value": "500001"}])
    assert "text-number" in {found.code for found in findings(unmended)}
