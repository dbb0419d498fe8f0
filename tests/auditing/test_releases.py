"""The table of published models: what it holds is what the named copies of their configs hold, and it finds them."""

import ast
import json

import pytest

import published_models as tool
from auditing import published_fields as of
from auditing.model_files import findings
from clockhands.auditing.findings._published_models import ModelShape, of_shape, reach_of, releases, whole_model_type
from clockhands.configs.model_types import model_type


def test_a_release_is_named_once_and_says_where_its_numbers_are_from():
    names = [release.name for release in releases()]
    assert len(names) == len(set(names)) > 150
    for release in releases():
        repository, _, rest = release.source.partition(", ")
        assert rest, release
        # One copy stands in the test of another program, found as text.
        assert "/" in repository or release.name == "Command-R"
        assert release.base > 1
        needed = (
            {"rope_type"} if (release.scaling or {}).get("rope_type") == "proportional" else {"rope_type", "factor"}
        )
        assert release.scaling is None or needed <= release.scaling.keys()


LLAMA_8B = ModelShape("llama", 4096, 32, 32, 128256)


def test_releases_of_a_shape(cases):
    sevens = {
        "Llama-2-7B",
        "CodeLlama-7B",
        "CodeLlama-7B-Python",
        "Llama-3-8B",
        "Llama-3.1-8B",
        "Salamandra-7B",
        "Yi-6B",
    }
    for shape, names in (
        (LLAMA_8B, {"Llama-3-8B", "Llama-3.1-8B"}),
        (ModelShape("llama", 4096, 32, 32, 128300), {"Llama-3-8B", "Llama-3.1-8B"}),  # tokens were added
        (ModelShape("llama", 4096, 32, 32, 128000), set()),
        (ModelShape("llama", 4096, 32, 32, 32016), {"CodeLlama-7B"}),
        (ModelShape("llama", 4096, 32, 32, 32000), {"CodeLlama-7B-Python", "Llama-2-7B"}),
        (ModelShape("llama", 4096, 32, 32, None), sevens),
        (ModelShape("gemma3", 2560, 34, 8, 262208), {"Gemma-3-4B"}),
        (ModelShape("qwen2", 4096, 32, 32, 128256), set()),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 960), {"Phi-mini-MoE"}),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 6400), {"Phi-3.5-MoE"}),
        (ModelShape("phimoe", 4096, 32, 32, 32064, 5000), set()),
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
        ({"rope_theta": None}, ["default-base", "null-value"]),  # 10,000 or 1,000,000: two releases of the shape part
    ):
        fired = fires(of.DISTILLED_QWEN2 | changes)
        with cases(changes):
            assert set(codes) <= set(fired) <= {*codes, "default-base", "differs-from-release"}
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


def config_of(release):
    """What the config of a release says of position, with the first names that its class reads."""
    known = model_type(release.shape.type)
    values = {name: getattr(release.shape, name) for name in ("hidden", "layers", "heads")}
    values |= {"context": release.context, "base": release.base}
    config = {
        known.reads[name][0]: value for name, value in values.items() if value is not None and known.reads.get(name)
    }
    block = dict(release.scaling or {})
    if release.sections:
        block = {"rope_type": "default", "mrope_section": release.sections, **block}
    if block and any(row.nested for row in known.rows) and not known.reads.get("base"):
        block = {"full_attention": {**block, "rope_theta": release.base}}
    if block:
        config[(known.reads.get("blocks") or ["rope_scaling"])[0]] = block
    sizes = {"vocab_size": release.shape.vocabulary, "intermediate_size": release.shape.feed_forward}
    return {"model_type": release.shape.type, **{key: size for key, size in sizes.items() if size}, **config}


def of_releases(config):
    """The findings that compare with releases."""
    codes = ("context-of-no-release", "differs-from-release", "missing-scaling", "wrong-original")
    return [found for found in findings(config) if found.code in codes]


def values_of(patch, key):
    """The values that a fix writes for a key."""
    return {step["value"] for step in patch if step["path"].endswith(f"/{key}")}


def hold_a_row(release):
    """A released config is silent; with another base, context or original length a released value is named."""
    config, known, reads = config_of(release), of_shape(release.shape), model_type(release.shape.type).reads
    assert of_releases(config) == []
    kind = (release.scaling or {}).get("rope_type")
    if kind == "longrope":
        return  # the lists of divisors are not in the row, and without them there are no frequencies
    if reads.get("base"):
        key, wrong = (
            reads["base"][0],
            next(release.base * by for by in (10, 30) if release.base * by not in {*map(base_of, known)}),
        )
        told = of_releases(config | {key: wrong})
        assert any(f"a base of {each.base:,.0f}" in found.message for found in told for each in known)
        fitting = {each.base for each in known if each.context == release.context}
        fixes = [values_of(found.patch, key) for found in told]
        assert all(not fix or (fix == fitting and len(fix) == 1) for fix in fixes), "a fix that is not certain"
    contexts = {each.context for each in known}
    if None not in contexts:
        told = of_releases(config | {reads["context"][0]: 2 * max(contexts)})
        assert "warning" in {found.severity for found in told}
        assert all(values_of(found.patch, reads["context"][0]) <= contexts for found in told)
    if kind in ("llama3", "yarn"):
        block = {**release.scaling, "original_max_position_embeddings": 512}
        assert of_releases(config | {reads["blocks"][0]: block})


def base_of(release):
    return release.base


@pytest.mark.parametrize("number", [8, pytest.param(len(releases()), marks=pytest.mark.slow)])
def test_a_released_config_is_silent_and_another_value_is_named_with_the_released_one(number, cases, draw):
    for release in draw(releases(), number):
        with cases(release.name):
            hold_a_row(release)


def test_the_base_of_one_release_beside_the_context_of_another_is_named_with_both_and_not_fixed():
    glm = next(release for release in releases() if release.name == "GLM-5")
    (found,) = of_releases(config_of(glm) | {"max_position_embeddings": 1048576})
    assert (found.code, found.severity, found.edit) == ("context-of-no-release", "warning", None)
    assert "GLM-5, published with this size, has 202,752" in found.message
    assert "GLM-5.2 with a base of 8,000,000 has this length" in found.message
    assert "the base of one release and the length of another" in found.hint


def test_a_shorter_model_of_the_usual_base_is_not_held_for_a_longer_one_that_lost_its_base():
    """LLaMA 1 has the sizes of Llama 2 and of Code Llama for Python, 2,048 positions and no base in its file."""
    llama = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "num_attention_heads": 32}
    sizes = {"num_hidden_layers": 32, "intermediate_size": 11008}
    for context, codes in ((2048, []), (4096, []), (16384, ["differs-from-release"])):
        found = of_releases(llama | sizes | {"max_position_embeddings": context})
        assert [each.code for each in found] == codes


def test_the_tool_reads_the_rows_from_the_copies_again(published, cases):
    """Of the copies that the tests have, which keep what configs say of position."""
    named = {release.source: release for release in releases()}
    read = 0
    for file in sorted((published / "configs").glob("*.json")):
        copy = json.loads(file.read_text(encoding="utf-8"))
        source = copy["source"]
        release = named.get(f"{source['repo']}, {source['path']}, {source['commit'][:7]}")
        row = None if release is None else tool.row_of(copy["config"])
        if release is None or row is None:
            continue
        read += 1
        with cases(release.name):
            assert (row["type"], row["base"]) == (release.shape.type, release.base)
            assert (row["hidden"], row["layers"], row["heads"]) == (
                release.shape.hidden,
                release.shape.layers,
                release.shape.heads,
            )
            assert row["scaling"] == release.scaling
            assert release.context in (None, row["context"])
    assert read > 60


def test_sections_are_those_of_the_type_and_not_of_another_model_with_its_text_part():
    row = next(release for release in releases() if release.name == "Qwen3.5-0.8B")
    part = config_of(row)
    (block,) = (key for key, value in part.items() if isinstance(value, dict))
    part[block] = {"rope_type": "default", "rope_theta": row.base}
    for whole, codes in (("qwen3_5", ["differs-from-release"]), ("minicpmv4_6", [])):
        assert [found.code for found in of_releases({"model_type": whole, "text_config": part})] == codes


def test_a_copy_in_a_file_of_python_is_read_and_not_run():
    module = ast.parse(
        "raise SystemExit\n"
        "presets = {'small': {'hidden_size': 8}}\n"
        "large_config = Config(hidden_size=16, layer_types=[kind for kind in kinds], rope=dict(factor=2.0))\n"
        "models = [dict(name='tiny', n_embd=4)]\n"
    )
    assert tool.in_python(module, "small") == {"hidden_size": 8}
    assert tool.in_python(module, "large_config") == {"hidden_size": 16, "rope": {"factor": 2.0}}
    assert tool.in_python(module, "tiny") == {"name": "tiny", "n_embd": 4}
    with pytest.raises(SystemExit, match="no other"):
        tool.in_python(module, "other")
