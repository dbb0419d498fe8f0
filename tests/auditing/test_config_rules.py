"""Every rule about configs, each way: it fires on the file with the fault, and is silent on the one beside it."""

import io
import json

from auditing import published_fields as of
from auditing.faulty_files import CONFIG_FAULTS
from auditing.faulty_files import GEMMA3_FULL as FULL
from auditing.faulty_files import GEMMA3_NESTED as NESTED
from auditing.faulty_files import GEMMA3_NEW as GEMMA3
from auditing.faulty_files import GEMMA3_SLIDING as SLIDING
from auditing.faulty_files import QWEN2_YARN as YARN
from auditing.faulty_files import gemma4_full as gemma4
from auditing.model_files import findings
from auditing.published_fields import QWEN2, block_with, in_text, new_shape, without
from clockhands.auditing import CODES, audit

LONG = {"type": "longrope", "short_factor": of.PHI3_SHORT, "long_factor": of.PHI3_LONG}


def yarn_by_hand(length):
    """YaRN switched on for a base of 10,000, with a maximum that is still the original length."""
    block = of.QWEN_YARN | {"original_max_position_embeddings": length}
    return QWEN2 | {"rope_theta": 10000.0, "max_position_embeddings": length, "rope_scaling": block}


def nested(sliding, full):
    return GEMMA3 | {"rope_parameters": {"sliding_attention": sliding, "full_attention": full}}


def sections(*sizes):
    block = {"rope_type": "default", "mrope_section": list(sizes), "mrope_interleaved": True}
    return in_text(of.QWEN3_VL, rope_scaling=block)


# Code, severity, a file with the fault, and one without it that looks much the same: beyond the public faults.
EACH_WAY = [
    ("conflicting-shapes", "warning", of.LLAMA_3 | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
     of.LLAMA_3 | {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}),
    ("conflicting-shapes", "warning", YARN | {"rope_parameters": of.QWEN_YARN | {"rope_theta": 1e6, "beta_fast": 16}},
     YARN | {"rope_parameters": of.QWEN_YARN | {"rope_theta": 1e6}}),
    ("conflicting-spellings", "warning", block_with(YARN, type="linear"), block_with(YARN, type="YaRN")),
    ("conflicting-spellings", "warning", block_with(of.PHI3, rope_type="linear"), block_with(of.PHI3, rope_type="su")),
    ("layer-type-scaling", "warning", nested(SLIDING | {"rope_type": "linear", "factor": 8.0}, FULL), NESTED),
    ("layer-type-scaling", "warning", nested(FULL | {"rope_theta": 1e4}, SLIDING | {"rope_theta": 1e6}),
     nested(SLIDING | {"rope_type": "linear", "factor": 1.0}, FULL)),
    ("nope-inverted", "warning", of.SMOLLM3 | {"no_rope_layers": [0] * 30 + [1] * 6},
     of.SMOLLM3 | {"no_rope_layers": [1] * 18 + [0] * 18}),
    ("nope-inverted", "warning", of.SMOLLM3 | {"no_rope_layers": [1] * 4, "num_hidden_layers": 4},
     of.SMOLLM3 | {"no_rope_layers": [1] * 3, "num_hidden_layers": 3}),
    ("mrope-sections", "warning", sections(18, 23, 23), sections(22, 21, 21)),
    ("mrope-order", "warning", block_with(of.QWEN25_VL, mrope_interleaved=True),
     block_with(of.QWEN25_VL, mrope_interleaved=False)),
    ("partial-meaning", "warning", gemma4(rope_type="default"), gemma4(rope_type="default", partial_rotary_factor=1.0)),
    ("partial-meaning", "note", of.GEMMA4, of.PHI2),
    ("inert-window", "note", QWEN2, QWEN2 | {"sliding_window": None}),
    ("inert-window", "note", QWEN2, QWEN2 | {"use_sliding_window": True}),
    ("missing-scaling", "warning", without(of.DEEPSEEK_V3, "rope_scaling"), of.LLAMA_3),
    ("missing-scaling", "warning", of.LLAMA_32_1B | {"rope_scaling": None},
     of.LLAMA_31 | {"rope_theta": 5e7, "rope_scaling": None}),
    ("wrong-original", "warning", block_with(YARN, original_max_position_embeddings=262144),
     YARN | {"max_position_embeddings": 32768}),
    ("wrong-original", "warning", of.LLAMA_31 | {"hidden_size": 3840, "max_position_embeddings": 8192},
     of.LLAMA_31 | {"max_position_embeddings": 8192}),
    ("context-of-no-release", "note", of.LLAMA_31 | {"max_position_embeddings": 4096},
     of.LLAMA_31 | {"hidden_size": 3840, "max_position_embeddings": 4096}),
    ("context-of-no-release", "warning", of.LLAMA_3 | {"max_position_embeddings": 20000}, of.LLAMA_3),
    ("wrong-original", "warning", of.PHI3 | {"max_position_embeddings": 4096},
     of.PHI3 | {"max_position_embeddings": 4096, "rope_scaling": LONG | {"long_factor": of.PHI3_SHORT}}),
    # 64 pairs of base 10,000 fail at a distance of 1,707 first, and 20 times that is 34,140.
    ("wrong-original", "warning", yarn_by_hand(34140), yarn_by_hand(34139)),
    ("differs-from-release", "warning", without(QWEN2, "rope_theta"), QWEN2),
    ("differs-from-release", "warning", QWEN2 | {"rope_theta": 1e4}, QWEN2 | {"rope_theta": 1e4, "hidden_size": 1792}),
    ("differs-from-release", "note", QWEN2 | {"rope_theta": 3e6}, QWEN2 | {"vocab_size": 32000, "rope_theta": 3e6}),
    ("differs-from-release", "note", of.LLAMA_32_1B | {"max_position_embeddings": 8192, "rope_scaling": None},
     of.LLAMA_3),
    ("differs-from-release", "note", of.CODELLAMA | {"rope_theta": 2e6}, of.CODELLAMA),
    ("differs-from-release", "warning", in_text(of.QWEN3_VL, rope_scaling=None), of.QWEN3_VL),
    ("differs-from-release", "warning", of.QWEN2_VL | {"rope_scaling": of.QWEN_YARN}, of.QWEN2_VL),
    ("longrope-lists", "error", block_with(of.PHI3, short_factor=[1.0] * 64), of.PHI3),
    ("longrope-swapped", "warning", block_with(of.PHI3, short_factor=[2.0] * 48, long_factor=[1.0] * 48),
     block_with(of.PHI3, short_factor=[2.0] * 48, long_factor=[2.0] * 48)),
    ("longrope-swapped", "warning", block_with(of.PHI3, short_factor=[2.0] * 48, long_factor=[1.0] * 47 + [1.5]),
     block_with(of.PHI3, short_factor=[2.0] * 48, long_factor=[1.0] * 47 + [40.0])),
    ("longrope-swapped", "warning", block_with(of.PHI3, short_factor=[1.0] * 47 + [99.0], long_factor=[1.0] * 48),
     block_with(of.PHI3, short_factor=[1.0] * 47 + [99.0], long_factor=[4.0] * 48)),
    ("factor-times-original", "warning", block_with(YARN, factor=2.0), YARN),
    ("factor-times-original", "warning", block_with(YARN, factor=2.0), YARN | {"max_position_embeddings": 32768}),
    ("factor-times-original", "note", of.LLAMA_31, YARN),
    ("factor-times-original", "warning", of.QWEN3_YARN | {"max_position_embeddings": 65536}, of.QWEN3_YARN),
    ("factor-times-original", "note", of.QWEN3_YARN, of.QWEN3_YARN | {"max_position_embeddings": 131072}),
    ("unknown-scaling", "error", block_with(YARN, rope_type="yarnn"), YARN),
    ("unknown-key", "warning", block_with(YARN, beta_fats=32), block_with(YARN, beta_fast=32)),
    ("conflicting-keys", "warning", YARN | {"original_max_position_embeddings": 16384},
     YARN | {"original_max_position_embeddings": 32768}),
    ("ignored-key", "warning", QWEN2 | {"model_type": "gpt_neox"},
     without(QWEN2, "rope_theta") | {"model_type": "gpt_neox", "rotary_emb_base": 1e6}),
    ("default-base", "warning", without(of.DEEPSEEK_V3, "rope_theta") | {"num_attention_heads": 64},
     without(of.DEEPSEEK_V3, "rope_theta")),
    ("default-base", "warning", without(of.CODELLAMA, "rope_theta"),
     without(of.CODELLAMA, "rope_theta") | {"vocab_size": 32000, "max_position_embeddings": 4096}),
    ("default-base", "note", without(of.TINYLLAMA, "rope_theta"), of.TINYLLAMA),
    ("impossible-value", "error", of.LLAMA_31 | {"rope_theta": "auto"}, of.LLAMA_31),
    ("unreadable-field", "warning", of.LLAMA_31 | {"rope_scaling": [1, 2]}, of.LLAMA_31 | {"rope_scaling": {}}),
    ("null-value", "warning", of.LLAMA_31 | {"num_attention_heads": None}, of.LLAMA_31 | {"sliding_window": None}),
    ("null-value", "note", {"model_type": "roberta", "pad_token_id": None}, {"model_type": "roberta"}),
    ("missing-value", "note", {"rope_scaling": {}, "head_dim": 64, "rotary_dim": 32}, of.LLAMA_31),
    ("unknown-model-type", "note", of.LLAMA_31 | {"model_type": "mystery"}, of.LLAMA_31),
    ("own-code", "note", of.LLAMA_31 | {"auto_map": {"AutoModelForCausalLM": "modeling_custom.CustomLM"}},
     of.LLAMA_31 | {"auto_map": {"AutoModelForCausalLM": "modeling_flash_llama.LlamaForCausalLM"}}),
    ("converted-layout", "warning", of.LLAMA_31 | {"clockhands_layout": "interleaved"},
     of.LLAMA_31 | {"clockhands_layout": "halves"}),
]  # fmt: skip


def test_a_rule_fires_on_the_fault_and_not_beside_it(cases):
    for number, (code, severity, faulty, sound) in enumerate(EACH_WAY):
        with cases(number, code):
            assert (code, severity) in {(each.code, each.severity) for each in findings(faulty)}
            assert (code, severity) not in {(each.code, each.severity) for each in findings(sound)}


def test_a_key_given_twice_is_told_by_what_it_is_about():
    text = json.dumps(of.LLAMA_31)
    for key, severity in (("rope_theta", "warning"), ("torch_dtype", "note")):
        twice = text[:-1] + f', "{key}": 1e4, "{key}": 5e5}}'
        found = audit("-", stdin=io.BytesIO(twice.encode())).findings
        assert [each.severity for each in found if each.code == "duplicate-key"] == [severity]
    assert "duplicate-key" not in {each.code for each in findings(of.LLAMA_31)}


def test_every_rule_of_configs_is_tried_each_way():
    rows = {code for code, rule in CODES.items() if rule.family in ("keys", "layer_kinds", "scalings", "values")} - {
        "head-width"
    }
    # The first above, the second about files without a config, the third about what the caller sets (test_overriding),
    # the fourth about code beside a config (test_model_code).
    elsewhere = {"duplicate-key", "nothing-declared", "override-replaces-block", "code-differs"}
    assert rows - elsewhere <= {code for code, *_ in EACH_WAY} | {fault.code for fault in CONFIG_FAULTS}


def test_the_new_shape_is_held_against_releases_too():
    base = new_shape(of.LLAMA_31)
    other = base | {"rope_parameters": base["rope_parameters"] | {"rope_theta": 1e4}}
    assert "differs-from-release" not in {each.code for each in findings(base)}
    assert "differs-from-release" in {each.code for each in findings(other) if each.severity == "warning"}


def test_one_lost_scaling_is_told_once():
    told = [each.code for each in findings(of.LLAMA_32_1B | {"rope_scaling": None})]
    assert told.count("missing-scaling") == 1
    assert "differs-from-release" not in told
    for config in (GEMMA3 | {"rope_parameters": FULL}, nested(FULL | {"rope_theta": 1e4}, SLIDING)):
        assert "There is no scaling" not in " ".join(each.message for each in findings(config))
