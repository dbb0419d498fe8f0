"""Configs as they turn up: odd numbers, absent keys, two schemas, contradictions."""

import math

import numpy as np
import pytest

from clockhands.rotary import Rotary
from clockhands.scaling import Linear, Llama3, Yarn
from resolution.expected import fact_codes, resolved

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
GEMMA3 = {"model_type": "gemma3_text", "num_hidden_layers": 12, "max_position_embeddings": 32768}


def only(config, **changes):
    """The single code of a config with some keys changed."""
    (code,) = resolved({**config, **changes}).codes
    return code


def facts(config, **changes):
    return {fact.code: dict(fact.evidence) for fact in resolved({**config, **changes}).facts}


def test_a_plain_config_has_a_source_for_every_value():
    code = only(LLAMA)
    assert code.spec == Rotary(128, "halves", base=500000.0)
    assert code.layers == "0-31"
    assert code.source == {
        "kind": "architecture of llama (transformers 5.23.0)",
        "layers": "config.json:num_hidden_layers",
        "layout": "architecture of llama (transformers 5.23.0)",
        "width": "config.json:hidden_size / config.json:num_attention_heads",
        "rotated": (
            "config.json:hidden_size / config.json:num_attention_heads, architecture of llama (transformers 5.23.0)"
        ),
        "base": "config.json:rope_theta",
        "context": "config.json:max_position_embeddings",
        "usable_length": "config.json:max_position_embeddings",
        "rates": (
            "computed from config.json:rope_theta, config.json:hidden_size / config.json:num_attention_heads, "
            "architecture of llama (transformers 5.23.0)"
        ),
        "attention_factor": "computed from no scaling: 1",
    }
    assert not facts(LLAMA)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 4096.0, "num_hidden_layers": 32.0},
        {"rope_theta": 500000},
        {"head_dim": None},
        {"head_dim": 128},
        {"rope_scaling": None},
        {"rope_scaling": {}},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}},
        {"sliding_window": None},
        {"position_embedding_type": "absolute"},
        {"layer_types": []},
    ],
)
def test_what_changes_nothing_is_no_fact(changes):
    assert only(LLAMA, **changes).spec == Rotary(128, "halves", base=500000.0)
    assert not facts(LLAMA, **changes)


def test_the_new_shape_alone():
    new = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    code = only(new, rope_parameters={**LLAMA3, "rope_theta": 300000.0})
    assert code.spec == Rotary(128, "halves", base=300000.0, scaling=Llama3(8.0, 8192))
    assert code.source["base"] == "config.json:rope_parameters.rope_theta"
    assert code.source["scaling"].startswith("config.json:rope_parameters.rope_type")


def test_a_number_in_quotes_is_read_and_told():
    assert only(LLAMA, rope_theta="500000").base == 500000.0
    assert facts(LLAMA, rope_theta="500000") == {
        "text-number": {"config.json:rope_theta": "500000", "read as": 500000.0}
    }


@pytest.mark.parametrize("value", [None, ...])
def test_an_absent_base_is_the_class_default(value):
    config = {**LLAMA, "rope_theta": value} if value is None else {k: v for k, v in LLAMA.items() if k != "rope_theta"}
    found = resolved(config)
    assert found.codes[0].base == 10000.0
    assert found.codes[0].source["base"] == "class default of llama (transformers 5.23.0)"
    (fact,) = found.facts
    assert fact.code == "default-base"
    assert fact.evidence["used"] == 10000.0
    assert fact.evidence["documented"] is True
    assert ("config.json:rope_theta" in fact.evidence) == (value is None)


@pytest.mark.parametrize("value", [0, -5, 1, 0.5, math.nan, math.inf, -math.inf, "abc", [], True])
def test_an_impossible_base(value):
    found = resolved({**LLAMA, "rope_theta": value})
    assert found.codes[0].rates is None
    assert found.codes[0].base is None
    assert [fact.code for fact in found.facts] in (["impossible-value"], ["unreadable-field"])
    assert "config.json:rope_theta" in found.facts[0].evidence


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"head_dim": 0}, "config.json:head_dim"),
        ({"head_dim": -64}, "config.json:head_dim"),
        ({"head_dim": 65}, "config.json:head_dim"),
        ({"num_attention_heads": 0}, "config.json:num_attention_heads"),
        ({"num_attention_heads": 33}, "config.json:num_attention_heads"),
        ({"hidden_size": 2**40}, "config.json:hidden_size"),
        ({"rope_scaling": {**YARN, "factor": 0.5}}, "config.json:rope_scaling.factor"),
        ({"rope_scaling": {**YARN, "factor": "x"}}, "config.json:rope_scaling.factor"),
        ({"rope_scaling": {**YARN, "beta_fast": -1}}, "config.json:rope_scaling.beta_fast"),
        ({"rope_scaling": {**YARN, "truncate": "no"}}, "config.json:rope_scaling.truncate"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 0.1}}, "config.json:rope_scaling.factor"),
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 0}}, None),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 64}}, None),
        ({"rope_scaling": {"type": "longrope", "short_factor": [0.0] * 64, "long_factor": [2.0] * 64}}, None),
    ],
)
def test_impossible_values_leave_no_rates(changes, key):
    found = resolved({**LLAMA, **changes})
    assert found.codes[0].rates is None
    assert found.codes[0].kind == "rotary"
    told = [fact for fact in found.facts if fact.code in ("impossible-value", "unreadable-field", "longrope-lists")]
    assert told
    if key is not None:
        assert any(key in fact.evidence for fact in told)


@pytest.mark.parametrize("value", ["abc", [1], {}, 0, -1, 1.5, 10**9])
def test_impossible_layers_leave_the_ladder(value):
    found = resolved({**LLAMA, "num_hidden_layers": value})
    assert found.codes[0].layers is None
    assert found.codes[0].rates is not None
    assert [fact.code for fact in found.facts] in (["impossible-value"], ["unreadable-field"])


@pytest.mark.parametrize("value", [[1, 2], "yarn", 3, True])
def test_a_block_that_is_none(value):
    assert facts(LLAMA, rope_scaling=value) == {
        "unreadable-field": {"config.json:rope_scaling": value, "expected": "an object or null"}
    }


def test_both_schemas_in_conflict():
    code = only(LLAMA, rope_scaling=YARN, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6})
    assert code.spec == Rotary(128, "halves", base=500000.0, scaling=Yarn(4.0, 2048))
    told = facts(LLAMA, rope_scaling=YARN, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6})
    assert told["conflicting-shapes"]["config.json:rope_scaling.factor"] == 4.0
    assert told["conflicting-shapes"]["config.json:rope_parameters.factor"] == 2.0
    assert told["conflicting-shapes"]["used"] == "config.json:rope_scaling"


def test_both_schemas_in_agreement():
    assert "conflicting-shapes" not in facts(LLAMA, rope_scaling=YARN, rope_parameters={**YARN, "rope_theta": 500000.0})


def test_two_bases():
    told = facts(LLAMA, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    assert told["conflicting-shapes"] == {
        "config.json:rope_theta": 500000.0,
        "config.json:rope_parameters.rope_theta": 10000.0,
        "used": "config.json:rope_parameters.rope_theta",
    }


def test_two_spellings_of_the_type():
    block = {**YARN, "type": "linear"}
    assert only(LLAMA, rope_scaling=block).scaling["type"] == "yarn"
    assert facts(LLAMA, rope_scaling=block)["conflicting-spellings"] == {
        "config.json:rope_scaling.rope_type": "yarn",
        "config.json:rope_scaling.type": "linear",
        "used": "config.json:rope_scaling.rope_type",
    }
    assert "conflicting-spellings" not in facts(LLAMA, rope_scaling={**YARN, "type": "yarn"})
    assert "conflicting-spellings" not in facts(LLAMA, rope_scaling={"type": "mrope", "rope_type": "default"})


@pytest.mark.parametrize("outer", [2048, 1024])
def test_the_original_length_at_either_level(outer):
    found = resolved({**LLAMA, "original_max_position_embeddings": outer, "rope_scaling": YARN})
    assert found.codes[0].scaling["original"] == outer
    assert found.length == outer
    assert any(fact.code == "conflicting-keys" for fact in found.facts) == (outer != 2048)


def test_yarn_without_an_original_length_takes_the_context():
    block = {"rope_type": "yarn", "factor": 4.0}
    assert only(LLAMA, rope_scaling=block).scaling == {"type": "yarn", "factor": 4.0, "original": 8192}
    assert facts(LLAMA, rope_scaling=block) == {
        "missing-original": {"used": 8192, "config.json:max_position_embeddings": 8192}
    }


@pytest.mark.parametrize("missing", ["low_freq_factor", "high_freq_factor", "factor"])
def test_an_incomplete_block(missing):
    block = {key: value for key, value in LLAMA3.items() if key != missing}
    found = resolved({**LLAMA, "rope_scaling": block})
    assert found.codes[0].rates is None
    assert {fact.code: fact.evidence.get("missing") for fact in found.facts} == {"incomplete-scaling": missing}


def test_a_block_without_a_type():
    told = facts(LLAMA, rope_scaling={"factor": 4.0})
    assert told == {"incomplete-scaling": {"config.json:rope_scaling.factor": 4.0, "missing": "rope_type"}}
    assert only(LLAMA, rope_scaling={"factor": 4.0}).rates is None


def test_an_unknown_scaling():
    found = resolved({**LLAMA, "rope_scaling": {"rope_type": "stretchy", "factor": 4.0}})
    assert found.codes[0].rates is None
    assert found.codes[0].scaling == {"type": "stretchy", "factor": 4.0, "original": None}
    assert found.facts[0].code == "unknown-scaling"


def test_a_name_that_only_says_how_axes_share_a_ladder_is_no_scaling():
    # Transformers 5 saves Pixtral's images so.
    found = resolved({"model_type": "pixtral", "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}})
    assert not [fact for fact in found.facts if fact.code == "unknown-scaling"]


@pytest.mark.parametrize("name", ["deepseek_yarn", "telechat3-yarn"])
def test_a_name_that_only_some_readers_know_computes_what_the_common_name_does(name):
    uncommon, common = (resolved({**LLAMA, "rope_scaling": {**YARN, "rope_type": kind}}) for kind in (name, "yarn"))
    assert uncommon.codes[0].rates == common.codes[0].rates
    assert not uncommon.facts


def test_an_unknown_key_of_a_block():
    told = facts(LLAMA, rope_scaling={**YARN, "alpha": 1000.0})
    assert told["unknown-key"]["config.json:rope_scaling.alpha"] == 1000.0


@pytest.mark.parametrize(
    ("block", "context", "told"),
    [
        (LLAMA3, 131072, True),
        (LLAMA3, 65536, False),
        (LLAMA3, 8192, False),
        (YARN, 8192, False),
        (YARN, 16384, True),
        (YARN, 2048, False),
    ],
)
def test_factor_times_original_beside_another_context(block, context, told):
    found = facts(LLAMA, rope_scaling=block, max_position_embeddings=context)
    assert ("factor-times-original" in found) == told
    if told:
        assert (
            found["factor-times-original"]["factor x original"]
            == block["factor"] * block["original_max_position_embeddings"]
        )
        assert found["factor-times-original"]["scaling"] == block["rope_type"]


def test_a_key_that_the_type_does_not_read():
    told = facts(LLAMA, partial_rotary_factor=0.5)
    assert list(told) == ["ignored-key"]
    assert only(LLAMA, partial_rotary_factor=0.5).rotated == 128
    neox = {"model_type": "gpt_neox", "rotary_pct": 1.0, "rope_theta": 1e6, "rotary_emb_base": 10000}
    told = facts(neox)
    assert told["ignored-key"]["config.json:rope_theta"] == 1e6
    assert told["ignored-key"]["read instead"] == "rotary_emb_base"


def test_shares_of_a_head():
    phi = {**LLAMA, "model_type": "phi", "hidden_size": 2560}
    assert only(phi).rotated == 40
    assert facts(phi)["default-value"]["used"] == 0.5
    assert only(phi, partial_rotary_factor=0.4).rotated == 32
    assert only(phi, rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.2}).rotated == 16
    assert only(phi, partial_rotary_factor=1.5).rates is None
    assert only({**LLAMA, "model_type": "gpt_neox"}).rotated == 32
    gptj = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 2}
    code = only(gptj)
    assert (code.rotated, code.width, code.layout, code.base) == (64, 256, "interleaved", 10000.0)
    assert only(gptj, rotary_dim=32).rotated == 32


def test_windows_follow_their_switch():
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 28}
    assert only(qwen).window is None
    assert only(qwen, use_sliding_window=False).window is None
    groups = resolved({**qwen, "use_sliding_window": True}).codes
    assert [(code.layers, code.window) for code in groups] == [("0-27", None), ("28-31", 4096)]
    mistral = {**LLAMA, "model_type": "mistral"}
    assert only(mistral).window == 4096
    assert only(mistral, sliding_window=None).window is None
    assert only(mistral, sliding_window=128).window == 128


def test_layers_of_two_kinds():
    sliding, full = resolved({**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}).codes
    assert (sliding.layers, sliding.base, sliding.scaling, sliding.window) == ("0-4,6-10", 10000.0, None, 4096)
    assert (full.layers, full.base, full.window) == ("5,11", 1000000.0, None)
    assert full.spec.scaling == Linear(8.0)
    listed = ["full_attention", "sliding_attention"] * 6
    assert [code.layers for code in resolved({**GEMMA3, "layer_types": listed}).codes] == [
        "0,2,4,6,8,10",
        "1,3,5,7,9,11",
    ]
    assert [code.layers for code in resolved({**GEMMA3, "sliding_window_pattern": 4}).codes] == [
        "0-2,4-6,8-10",
        "3,7,11",
    ]


@pytest.mark.parametrize("types", [["full_attention"] * 11, ["what"] * 12, [3] * 12, "sliding"])
def test_layer_types_that_are_none(types):
    found = resolved({**GEMMA3, "layer_types": types})
    assert [code.layers for code in found.codes] == ["0-4,6-10", "5,11"]
    assert {fact.code for fact in found.facts} & {"impossible-value", "unreadable-field"}


def test_a_flat_block_where_one_for_each_kind_is_read():
    config = {**GEMMA3, "rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}
    assert all(code.scaling is None for code in resolved(config).codes)
    assert facts(config)["flat-layer-types"] == {
        "config.json:rope_parameters.rope_type": "linear",
        "config.json:rope_parameters.factor": 8.0,
        "config.json:rope_parameters.rope_theta": 1e6,
        "kinds of layers": ["sliding_attention", "full_attention"],
        "base of sliding_attention": 10000.0,
        "base of full_attention": 1e6,
        "scaled": ["full_attention"],
    }


def test_no_window_leaves_layers_their_bases():
    """The kinds of Gemma-3's layers follow from the pattern; a window of null makes no layer a global one."""
    for changes in ({"sliding_window": None}, {"sliding_window": None, "sliding_window_pattern": 3}):
        local, full = resolved({**GEMMA3, **changes}).codes
        assert (local.base, local.window, full.base, full.window) == (10000.0, None, 1e6, None)
    assert (local.layers, full.layers) == ("0-1,3-4,6-7,9-10", "2,5,8,11")
    # Where all kinds turn alike, no window is one group.
    gemma2 = {"model_type": "gemma2", "num_hidden_layers": 4, "sliding_window": None}
    assert [code.layers for code in resolved(gemma2).codes] == ["0-3"]


def test_an_old_type_alone_scales_for_some_readers_only():
    block = {"type": "linear", "factor": 8.0}
    found = resolved({**GEMMA3, "rope_scaling": block})
    (fact,) = [fact for fact in found.facts if fact.code == "ignored-key"]
    assert fact.evidence["config.json:rope_scaling.type"] == "linear"
    assert fact.evidence["read instead"] == 'rope_type "default"'
    assert found.codes[1].scaling["factor"] == 8.0


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


def test_one_block_for_each_kind():
    block = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
    }
    sliding, full = resolved({**GEMMA3, "rope_parameters": block}).codes
    assert (sliding.base, sliding.scaling, full.base, full.scaling["factor"]) == (20000.0, None, 500000.0, 8.0)
    assert full.source["base"] == "config.json:rope_parameters.full_attention.rope_theta"


def test_multi_head_latent_attention():
    deepseek = {**LLAMA, "model_type": "deepseek_v3", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    code = only(deepseek, head_dim=64)
    assert (code.width, code.rotated, code.layout) == (192, 64, "interleaved")
    assert only(deepseek, rope_interleave=False).layout == "halves"
    plain = only({**deepseek, "model_type": "deepseek_v2", "use_mla": False, "qk_rope_head_dim": 0})
    assert (plain.width, plain.rotated) == (128, 128)
    scaled = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    assert only(deepseek, rope_scaling=scaled).attention_factor == 1.0


@pytest.mark.parametrize(
    ("block", "keys"),
    [
        (YARN, ["factor"]),
        (YARN | {"mscale": 1.0}, ["factor"]),
        (YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}, ["mscale", "mscale_all_dim", "factor"]),
        (YARN | {"attention_factor": 1.1}, ["attention_factor"]),
        (LLAMA3, []),
    ],
)
def test_the_factor_of_cosine_and_sine_names_its_keys(block, keys):
    source = only(LLAMA, rope_scaling=block).source
    named = ", ".join(f"config.json:rope_scaling.{key}" for key in keys)
    assert source["attention_factor"] == (named or "computed from config.json:rope_scaling.rope_type")


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


def test_learned_tables_and_their_offsets():
    cases = {
        "bert": (512, 512, 0, 512),
        "roberta": (514, 514, 2, 512),
        "xlm-roberta": (514, 514, 2, 512),
        "opt": (2048, 2050, 2, 2048),
    }
    for name, (declared, rows, offset, usable) in cases.items():
        found = resolved({"model_type": name, "max_position_embeddings": declared, "hidden_size": 768})
        (code,) = found.codes
        assert (code.kind, code.layers, code.rows, code.offset) == ("learned", "input", rows, offset)
        assert found.context == found.length == usable
    roberta = resolved({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 0})
    assert (roberta.codes[0].offset, roberta.context) == (1, 513)
    gpt2 = resolved({"model_type": "gpt2", "n_positions": 1024, "n_ctx": 512})
    assert gpt2.codes[0].rows == 1024
    assert gpt2.facts == ()  # that two lengths disagree is told by the audit
    short = resolved({"model_type": "opt", "max_position_embeddings": -5})
    assert short.codes[0].rows is None
    assert short.facts[0].code == "impossible-value"


def test_encoders_and_decoders():
    whisper = resolved(
        {"model_type": "whisper", "d_model": 384, "max_source_positions": 1500, "max_target_positions": 448}
    )
    assert [(code.part, code.kind, code.rows, code.layout) for code in whisper.codes] == [
        ("encoder", "sinusoidal", 1500, "halves"),
        ("decoder", "learned", 448, None),
    ]
    assert whisper.codes[0].rates[-1] == pytest.approx(1e-4, rel=1e-15)
    assert whisper.context == 448
    m2m = resolved({"model_type": "m2m_100", "d_model": 1024, "max_position_embeddings": 1024})
    assert [(code.part, code.rows, code.offset, code.spec.zero_rows) for code in m2m.codes] == [
        ("encoder", 1026, 2, (1,)),
        ("decoder", 1026, 2, (1,)),
    ]
    assert m2m.context == 1024
    assert m2m.source["context"] == "config.json:max_position_embeddings"
    # The first token stands behind the padding's row, wherever that is.
    padded = resolved({"model_type": "m2m_100", "d_model": 64, "max_position_embeddings": 1024, "pad_token_id": 0})
    assert [(code.rows, code.offset, code.spec.first, code.spec.zero_rows) for code in padded.codes] == [
        (1026, 1, 1, (0,))
    ] * 2
    assert padded.context == 1024


def test_parts_of_a_composite():
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    config = {
        "model_type": "gemma3",
        "text_config": {**GEMMA3, "rope_theta": 1e6},
        "vision_config": {"model_type": "some_tower", "hidden_size": 1152, "num_hidden_layers": 27, "rope_theta": 1e4},
        "audio_config": {"hidden_size": 64, "num_hidden_layers": 2},
    }
    found = resolved(config)
    assert [code.part for code in found.codes] == ["text", "text", "vision", "audio"]
    assert found.context == 32768
    vision = found.codes[2]
    assert (vision.kind, vision.rates, vision.base, vision.layers) == ("rotary", None, 1e4, "0-26")
    assert found.codes[1].source["base"] == "config.json:text_config.rope_theta"
    outer = resolved({"model_type": "foo", "rope_theta": 1e4, "text_config": {**text, "model_type": "llama"}})
    conflict = next(fact for fact in outer.facts if fact.code == "conflicting-keys")
    assert conflict.evidence == {
        "config.json:rope_theta": 1e4,
        "config.json:text_config.rope_theta": 500000.0,
        "used": "config.json:text_config.rope_theta",
    }


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"alibi": True}, ["alibi"]),
        ({"attn_config": {"alibi": True}, "learned_pos_emb": True}, ["alibi"]),
        ({"relative_attention_num_buckets": 32}, ["buckets"]),
        ({"relative_attention": True, "position_buckets": 256}, ["relative"]),
        ({"position_embedding_type": "relative_key"}, ["relative"]),
        ({"position_embedding_type": "absolute"}, ["learned"]),
        ({"position_embedding_type": "rope", "rope_theta": 1e4}, ["rotary"]),
        ({"position_embedding_type": "absolute", "rope_theta": 1e4}, ["rotary"]),
        ({"position_embedding_type": "what"}, [None]),
        ({"rope_theta": 1e4, "alibi": False}, ["rotary"]),
        ({}, [None]),
    ],
)
def test_a_type_that_is_not_in_the_table(config, kinds):
    found = resolved(
        {"model_type": "unheard-of", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2, **config}
    )
    assert [code.kind for code in found.codes] == kinds
    assert all(code.layout is None and code.spec is None for code in found.codes)
    assert found.facts[0].code == "unknown-model-type"
    assert found.facts[0].evidence == {"config.json:model_type": "unheard-of"}


def test_an_unknown_type_guesses_nothing():
    config = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "rope_theta": 1e4}
    found = resolved(config)
    assert found.codes[0].rates is not None
    assert found.codes[0].source["rotated"].endswith("no key declares a partial rotation")
    for missing in ("num_attention_heads", "hidden_size"):
        less = {key: value for key, value in config.items() if key != missing}
        assert resolved(less).codes[0].rates is None
        assert "missing-value" in fact_codes(less)
    half = {**config, "partial_rotary_factor": 0.5, "rotary_dim": 16}
    assert resolved(half).codes[0].rotated == 16
    assert "conflicting-keys" in fact_codes(half)
    two = {**config, "rope_local_base_freq": 2e4}
    assert resolved(two).codes[0].rates is None
    assert "missing-value" in fact_codes(two)
    told = resolved({**two, "layer_types": ["full_attention", "sliding_attention"] * 2})
    assert [(code.layers, code.base) for code in told.codes] == [("0,2", 1e4), ("1,3", 2e4)]


def test_layers_without_rotation_by_fields():
    config = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "rope_theta": 1e4}
    for key, value in (
        ("no_rope_layers", [1, 1, 1, 0]),
        ("no_rope_layer_interval", 4),
        ("cross_attention_layers", [3]),
        ("layer_types", ["full_attention"] * 3 + ["linear_attention"]),
    ):
        codes = resolved({**config, key: value}).codes
        assert [(code.kind, code.layers) for code in codes] == [("rotary", "0-2"), ("none", "3")], key
    assert "impossible-value" in fact_codes({**config, "no_rope_layers": [1, 0]})
    assert len(resolved({**config, "no_rope_layers": []}).codes) == 1


@pytest.mark.parametrize("name", [3, ["llama"], {"a": 1}, True])
def test_a_model_type_that_is_no_text(name):
    found = resolved({**LLAMA, "model_type": name})
    assert found.model_type is None
    assert found.facts[0].code == "unreadable-field"


@pytest.mark.parametrize("key", ["use_scaled_rope", "use_dynamic_ntk", "rope_scaling_long_factor"])
def test_a_scaling_switched_on_outside_of_a_block(key):
    config = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "rope_theta": 1e4}
    config[key] = [1.0] * 32 if "factor" in key else True
    found = resolved(config, 4096)
    assert found.codes[0].rates is None
    assert "incomplete-scaling" in [fact.code for fact in found.facts]
    # Up to the trained length a dynamic scaling changes nothing.
    assert (resolved(config).codes[0].rates is not None) == (key == "use_dynamic_ntk")
    assert "incomplete-scaling" not in fact_codes({**config, key: None})


def test_a_further_base_of_unknown_layers():
    config = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "rope_theta": 1e4}
    found = resolved({**config, "compress_rope_theta": 160000})
    assert found.codes[0].base is None
    assert found.facts[1].evidence["config.json:compress_rope_theta"] == 160000


def test_sound_types_that_keep_keys_without_a_use():
    assert not fact_codes({"model_type": "nemotron_h", "rope_theta": 10000, "max_position_embeddings": 262144})
    modern = {"hidden_size": 512, "num_attention_heads": 8, "rope_theta": 1e4, "position_embedding_type": "absolute"}
    assert fact_codes({**modern, "num_hidden_layers": 2}) == ["unknown-model-type"]


def test_heads_without_latent_attention_pair_as_llama_does():
    """The published code of DeepSeek-V2 takes Llama's attention where `use_mla` is false."""
    config = {"model_type": "deepseek_v2", "hidden_size": 1280, "num_attention_heads": 10, "qk_rope_head_dim": 0}
    plain = resolved({**config, "use_mla": False}).codes[0]
    assert (plain.layout, plain.width, plain.rotated) == ("halves", 128, 128)
    assert resolved({**config, "qk_rope_head_dim": 64}).codes[0].layout == "interleaved"


def test_a_number_as_text_that_is_past_all_numbers_is_impossible_only():
    facts = [fact.code for fact in resolved({"model_type": "llama", "rope_theta": "1e999"}).facts]
    assert "impossible-value" in facts
    assert "text-number" not in facts


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
    found = only({"model_type": model_type, "num_hidden_layers": 2, **fields}).spec.rates
    assert np.allclose(found, expected.numpy(), rtol=1e-6)
    assert np.count_nonzero(found) == 4
