"""The table of published models: what it holds is what the named copies of their configs hold, and it finds them."""

from auditing import published_fields as of
from auditing.model_files import findings
from clockhands.auditing.findings._releases import ModelShape, of_shape, reach_of, releases, whole_model_type


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


LLAMA_8B = ModelShape("llama", 4096, 32, 32, 128256)


def test_releases_of_a_shape(cases):
    sevens = {"Llama-2-7B", "CodeLlama-7B", "Llama-3-8B", "Llama-3.1-8B", "Yi-6B"}
    for shape, names in (
        (LLAMA_8B, {"Llama-3-8B", "Llama-3.1-8B"}),
        (ModelShape("llama", 4096, 32, 32, 128300), {"Llama-3-8B", "Llama-3.1-8B"}),  # tokens were added
        (ModelShape("llama", 4096, 32, 32, 128000), set()),
        (ModelShape("llama", 4096, 32, 32, 32016), {"CodeLlama-7B"}),
        (ModelShape("llama", 4096, 32, 32, 32000), {"Llama-2-7B"}),
        (ModelShape("llama", 4096, 32, 32, None), sevens),
        (ModelShape("gemma3", 2560, 34, 8, 262208), {"Gemma-3-4B"}),
        (ModelShape("qwen2", 4096, 32, 32, 128256), set()),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 960), {"Phi-mini-MoE"}),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 6400), set()),  # Phi-3.5-MoE
    ):
        with cases(shape):
            assert {release.name for release in of_shape(shape)} == names


def test_how_far_a_base_reaches_by_itself():
    assert reach_of("llama", 500000.0) == 8192
    assert reach_of("deepseek_v3", 10000.0) == 4096
    assert reach_of("llama", 1.5) is None
    assert whole_model_type("gemma3_text") == whole_model_type("gemma3")


def test_a_shape_in_words():
    assert str(LLAMA_8B) == "llama, width 4,096, 32 layers, 32 heads, 128,256 tokens"
    assert str(ModelShape("llama", 8, 1, 1, None)) == "llama, width 8, 1 layers, 1 heads"


def fires(config):
    return [found.code for found in findings(config) if found.severity != "note"]


def test_a_base_of_ten_thousand_is_that_of_the_distilled_models_at_their_length(cases):
    """DeepSeek's distilled Qwen2.5-Math models have the base that readers fall back on, and 131,072 positions."""
    for changes, codes in (
        ({}, []),
        ({"hidden_size": 3584, "num_attention_heads": 28, "vocab_size": 152064}, []),
        ({"max_position_embeddings": 32768}, ["differs-from-release"]),  # the length of Qwen2-1.5B: its base was lost
        ({"rope_theta": None}, ["default-base"]),  # 10,000 or 1,000,000: two releases of the shape part
    ):
        fired = fires(of.DISTILLED_QWEN2 | changes)
        with cases(changes):
            assert set(codes) <= set(fired) <= {"default-base", "differs-from-release"}
            assert bool(fired) == bool(codes)


def test_a_scaled_llama_2_is_not_held_for_code_llama():
    """Llama 2's 7B and Code Llama's have one shape; a scaling gives the former the context of the latter."""
    shape = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32064}
    for scaling in ("linear", "yarn"):
        block = {"rope_type": scaling, "factor": 4.0, "original_max_position_embeddings": 4096}
        config = {"model_type": "llama", "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": block}
        assert "differs-from-release" not in fires(config | shape), scaling


def test_the_faults_of_llama_in_another_family_with_its_scaling(cases):
    for changes, codes in (
        ({}, []),
        ({"rope_scaling": {**of.EXAONE4["rope_scaling"], "factor": 8.0}}, ["differs-from-release"]),
        ({"rope_scaling": None}, ["missing-scaling"]),
        ({"rope_theta": 10000}, ["differs-from-release"]),
    ):
        with cases(changes):
            assert fires(of.EXAONE4 | changes) == codes


def test_a_lost_scaling_is_that_of_the_release_with_this_context(cases):
    assert fires(of.KIMI_K2) == []
    for context, words in (
        (131072, "Kimi-K2, a published model of the same size, has the scaling yarn with a factor of 32"),
        (262144, "Kimi-K2.5, a published model of the same size, has the scaling yarn with a factor of 64"),
    ):
        lost = of.KIMI_K2 | {"rope_scaling": None, "max_position_embeddings": context}
        (found,) = (each for each in findings(lost) if each.severity != "note")
        with cases(context):
            assert found.code == "missing-scaling"
            assert words in found.message


def test_a_lost_scaling_of_a_smaller_model_of_the_family(cases):
    shape = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32}
    olmo = of.OLMO3 | shape | {"layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8}
    for changes, codes in (
        ({}, []),
        ({"rope_scaling": None}, ["missing-scaling"]),
        ({"rope_scaling": None, "max_position_embeddings": 8192}, []),  # before it was stretched
    ):
        with cases(changes):
            assert fires(olmo | changes) == codes


def test_the_context_of_a_class_does_not_say_which_release_a_file_is_of():
    shape = {
        "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000,
    }  # fmt: skip
    for base, severities in ((10000.0, []), (1e6, []), (12345.0, ["note"])):
        found = findings(shape | {"rope_theta": base})
        assert [each.severity for each in found if each.code == "differs-from-release"] == severities
