"""Configs of other programs: what each says of position, held to facts written by hand from its text and its program.

The configs are those of `published/dialects`, whose README says where they are from. They are written out as their
program has them, YAML or JSON, and read from there.
"""

import copy
import json
from pathlib import Path

import pytest

from clockhands.sources import open_target
from clockhands.sources.dialects import dialect_of, dialects, in_dialect
from clockhands.sources.opened import Opened
from clockhands.sources.resolve import resolve
from resolution.expected import fact_gaps

PUBLISHED = Path(__file__).parents[1] / "published"
LEAST = 45  # files; a file fewer is one that was lost


@pytest.fixture(scope="module")
def cases(published):
    paths = sorted((published / "dialects").glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def written(folder, case):
    """The file of a case; JSON is YAML too. The model that a training file or a Modelfile names lies beside it."""
    path, config = folder / case["file"], dict(case["config"])
    if "base" in case:
        base = json.loads((PUBLISHED / "configs" / f"{case['base']}.json").read_text(encoding="utf-8"))["config"]
        (folder / case["base"]).mkdir(exist_ok=True)
        (folder / case["base"] / "config.json").write_text(json.dumps(base), encoding="utf-8")
        config[next(iter(config))] = case["base"]
    lines = [key if key == "FROM" else f"PARAMETER {key}" for key in config]
    text = "".join(f"{line} {value}\n" for line, value in zip(lines, config.values(), strict=True))
    path.write_text(text if case["dialect"] == "Modelfile" else json.dumps(config), encoding="utf-8")
    return path


def gaps(found, facts, length=None):
    yield from fact_gaps(found, facts)
    if length != facts.get("asked"):
        yield f"asked: {length}, facts {facts.get('asked')}"
    layouts = {code.layout for code in found.codes if code.kind == "rotary"}
    if layouts and layouts != {facts["layout"]}:
        yield f"layout: resolved {layouts}, facts {facts['layout']}"
    if facts.get("base", 0) is None and any(code.base or code.rates for code in found.codes):
        yield "base: resolved, where the file cannot say it"


def test_facts_written_by_hand_agree(cases, tmp_path, capsys):
    parted = {}
    for case in cases:
        opened = open_target(written(tmp_path, case))
        says = f"{case['base']} is read from " if "base" in case else f" is read as a config of {case['dialect']}."
        says = f" is built from {case['base']}" if case["dialect"] == "Modelfile" else says
        assert any(says in note for note in opened.notes), case["name"]
        found = list(gaps(resolve(opened), case["facts"], opened.length if "base" in case else None))
        if found:
            parted[case["name"]] = found
    with capsys.disabled():
        print(f"\n{len(cases)} configs of other programs, {len(parted)} that part from their facts")
    assert parted == {}
    assert len(cases) >= LEAST


def test_a_wrong_fact_is_noticed(cases, tmp_path):
    case = next(case for case in cases if case["name"] == "neox-20b")
    found = resolve(open_target(written(tmp_path, case)))
    for name, wrong in {"rotated": 96, "base": 1e6, "layers": 43, "max_length": 4096, "layout": "interleaved"}.items():
        assert [gap.partition(":")[0] for gap in gaps(found, {**case["facts"], name: wrong})], name


def test_every_value_names_a_key_of_the_file_or_the_program(cases, tmp_path):
    rows = {dialect.name: dialect for dialect in dialects()}
    for case in cases:
        for code in resolve(open_target(written(tmp_path, case))).codes:
            for source in () if "base" in case else code.source.values():
                places = (case["file"], rows[case["dialect"]].library, "computed from no scaling")
                assert any(place in source for place in places), (case["name"], source)


def test_configs_of_transformers_are_in_no_dialect(published):
    for path in sorted((published / "configs").glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        assert dialect_of(config) is None, path.name


def test_mlx_writes_a_config_of_transformers():
    config = {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16}
    quantised = config | {"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"bits": 4}}
    assert dialect_of(quantised) is None
    plain, other = (resolve(Opened("x", "config", config=each, config_name="x")) for each in (config, quantised))
    assert (plain.codes, plain.facts, plain.ignored) == (other.codes, other.facts, other.ignored)


def keys(config, path=()):
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from keys(value, (*path, key))


ODD = ("x", -1, None, [], {}, float("inf"), 10**40, "${a.b}", {"rope_type": "yarn"})


def test_whatever_stands_under_a_key_it_is_read(cases):
    smallest = {}
    for case in sorted(cases, key=lambda case: -len(json.dumps(case["config"]))):
        smallest[case["dialect"]] = case
    assert len(smallest) > 8
    for case in smallest.values():
        for path in keys(case["config"]):
            for odd in ODD:
                config = copy.deepcopy(case["config"])
                holder = config
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = odd
                form = "config" if dialect_of(config) is None else "dialect"
                resolve(Opened("x", form, config=config, config_name=case["file"]))


NEMO = {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "position_embedding_type": "rope"}


@pytest.mark.parametrize(
    ("length", "context", "note"),
    [
        ("${.encoder_seq_length}", 4096, None),
        ("${model.encoder_seq_length}", 4096, None),
        ("${length}", 512, None),
        ("${further}", 512, None),
        ("${oc.env:LENGTH}", 4096, "${oc.env:LENGTH}"),
        ("${multiply:2, ${.encoder_seq_length}}", 4096, "${multiply:2, ${.encoder_seq_length}}"),
        ("${.nowhere}", 4096, "${.nowhere}"),
        ("${loop}", 4096, "${loop}"),
        ("???", 4096, "???"),
    ],
)
def test_references_lead_to_values_of_the_file(length, context, note):
    model = NEMO | {"encoder_seq_length": 4096, "max_position_embeddings": length}
    config = {"model": model, "length": 512, "further": "${length}", "loop": "${loop}"}
    found = in_dialect(config, "nemo.yaml")
    said = f"nemo.yaml:model.max_position_embeddings is {note}, whose value is not in this file."
    assert found.notes == (() if note is None else (said,))
    resolved = resolve(Opened("x", "dialect", config=config, config_name="nemo.yaml"))
    assert resolved.context == context


def test_a_scaling_in_several_keys_is_one_block_with_the_places_of_the_file():
    config = {"n_layer": 2, "n_embd": 128, "n_head": 4, "rotary_percentage": 1.0, "rope_base": 500000}
    config["rope_adjustments"] = {
        "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_seq_len": 8192,
    }  # fmt: skip
    (code,) = resolve(Opened("x", "dialect", config=config, config_name="model_config.yaml")).codes
    assert dict(code.scaling) == {"type": "llama3", "factor": 32.0, "original": 8192}
    assert "model_config.yaml:rope_adjustments.original_max_seq_len" in code.source["scaling"]
    assert resolve(Opened("x", "dialect", config=config, config_name="model_config.yaml")).ignored == {}
    config["rope_adjustments"]["factor"] = 0.5
    (fact,) = (
        fact for fact in resolve(Opened("x", "dialect", config=config, config_name="model_config.yaml")).facts
        if fact.code == "impossible-value"
    )  # fmt: skip
    assert fact.evidence["model_config.yaml:rope_adjustments.factor"] == 0.5


def test_the_training_length_of_maxtext_is_no_context_beside_the_positions():
    config = {"base_emb_dim": 2560, "base_num_decoder_layers": 6, "base_num_query_heads": 8, "head_dim": 256,
              "decoder_block": "gemma3", "sliding_window_size": 1024, "max_target_length": 2048}  # fmt: skip
    for more, context, key in (
        ({"max_position_embeddings": 131072}, 131072, "max_position_embeddings"), ({}, 2048, "max_target_length"),
    ):  # fmt: skip
        found = resolve(Opened("x", "dialect", config=config | more, config_name="gemma3-4b.yml"))
        assert (found.context, found.source["context"]) == (context, f"gemma3-4b.yml:{key}")
        assert [fact for fact in found.facts if fact.code == "default-value"] == []


def test_layers_of_litgpt_that_slide_have_a_base_of_their_own():
    config = {"n_layer": 3, "n_embd": 128, "n_head": 4, "rotary_percentage": 1.0, "rope_base": 1000000}
    config |= {"sliding_window_size": 512, "sliding_window_indices": [1, 1, 0], "rope_adjustments": {"factor": 8.0}}
    for local, base in ((10000, 10000.0), (None, 1000000.0)):
        given = {**config, "rope_local_base_freq": local}
        sliding, full = resolve(Opened("x", "dialect", config=given, config_name="model_config.yaml")).codes
        assert (sliding.layers, sliding.base, sliding.window, sliding.scaling) == ("0-1", base, 512, None)
        assert (full.layers, full.base, full.window) == ("2", 1000000.0, None)
        assert dict(full.scaling) == {"type": "linear", "factor": 8.0, "original": None}


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"use_rope_scaling": True, "rope_scaling_factor": 32.0}, ("llama3", 32.0, 8192)),
        ({"use_rope_scaling": False, "rope_scaling_factor": 32.0}, None),
        ({"rotary_seq_len_interpolation_factor": 4}, ("linear", 4.0, None)),
        ({"rotary_seq_len_interpolation_factor": 1}, None),
    ],
)
def test_switches_of_megatron(keys, scaling):
    config = {**NEMO, "rotary_base": 500000, "max_position_embeddings": 131072, **keys}
    assert dialect_of(config).name == "Megatron-LM"
    (code,) = resolve(Opened("x", "dialect", config=config, config_name="args.yaml")).codes
    assert (None if code.scaling is None else tuple(code.scaling.values())) == scaling


def test_what_megatron_reads_of_a_language_model_stands_beside_the_other_arguments():
    scaled = {"use_rope_scaling": True, "rope_scaling_factor": 32.0, "rotary_base": 500000}
    config = {"language_model": {**NEMO, **scaled}, "max_position_embeddings": 4096}
    resolved = resolve(Opened("x", "dialect", config=config, config_name="args.yaml"))
    (code,) = resolved.codes
    assert (code.kind, code.base, dict(code.scaling)["factor"], resolved.ignored) == ("rotary", 500000.0, 32.0, {})
    assert code.source["kind"].split(", ")[0] == "args.yaml:language_model.position_embedding_type"
    assert code.source["base"] == "args.yaml:language_model.rotary_base"
    outside = {"position_embedding_type": "rope", "max_position_embeddings": 4096}
    config = {"language_model": {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4}, **outside}
    (code,) = resolve(Opened("x", "dialect", config=config, config_name="args.yaml")).codes
    assert code.source["kind"].split(", ")[0] == "args.yaml:position_embedding_type"


def test_yarn_of_megatron_bridge():
    config = {"model": {"_target_": "megatron.bridge.models.gpt_provider.GPTModelProvider", **NEMO,
                        "position_embedding_type": "yarn", "rotary_base": 150000, "seq_length": 4096,
                        "yarn_rotary_scaling_factor": 32.0, "yarn_original_max_position_embeddings": 4096,
                        "yarn_correction_range_round_to_int": False, "yarn_mscale": None}}  # fmt: skip
    (code,) = resolve(Opened("x", "dialect", config=config, config_name="run_config.yaml")).codes
    assert dict(code.scaling) == {"type": "yarn", "factor": 32.0, "original": 4096}
    assert (code.base, code.spec.scaling.truncate) == (150000.0, False)


@pytest.mark.parametrize(
    ("style", "kind"),
    [("learned", "learned"), ("alibi", "alibi"), ("rpe", "buckets"), ("none", "none"), ("sinusoidal", "sinusoidal")],
)
def test_other_kinds_of_codes_of_gpt_neox(style, kind):
    config = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 512, "pos-emb": style}
    (code,) = resolve(Opened("x", "dialect", config=config, config_name="neox.yml")).codes
    assert code.kind == kind
    assert code.source["kind"] == "neox.yml:pos-emb"


def test_without_pos_emb_gpt_neox_takes_its_default_which_is_told():
    config = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "max-position-embeddings": 512}
    for own in ({"pipe-parallel-size": 1}, {"no-weight-tying": True}, {"train_micro_batch_size_per_gpu": 4}):
        assert dialect_of(config | own).name == "GPT-NeoX"
        resolved = resolve(Opened("x", "dialect", config=config | own, config_name="neox.yml"))
        assert [(code.kind, code.rows) for code in resolved.codes] == [("learned", 512)]
        (fact,) = (fact for fact in resolved.facts if fact.code == "default-value")
        assert (fact.evidence["field"], fact.evidence["used"], fact.evidence["default of"]) == (
            "pos_emb", "learned", "GPT-NeoX",
        )  # fmt: skip
    said = resolve(Opened("x", "dialect", config=config | {"pos-emb": "learned"}, config_name="neox.yml"))
    assert [fact for fact in said.facts if fact.code == "default-value"] == []


def test_a_builder_that_is_not_known_is_said():
    config = {"model": {"_component_": "torchtune.models.other.other_9b", "rope_base": 1e6}}
    found = in_dialect(config, "recipe.yaml")
    assert found.notes == ("What torchtune.models.other.other_9b of torchtune builds is not known here.",)


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("neox.yml", "num-layers: 2\nhidden-size: 128\nnum-attention-heads: 4\npos-emb: rotary\nrotary-emb-base: {}\n",
         "rotary-emb-base"),
        ("args.yaml", "language_model:\n  num_layers: 2\n  hidden_size: 128\n  num_attention_heads: 4\n"
                      "  position_embedding_type: rope\n  rotary_base: {}\n", "language_model.rotary_base"),
        ("model_config.yaml", "n_layer: 2\nn_embd: 128\nn_head: 4\nrotary_percentage: 1.0\nrope_base: {}\n",
         "rope_base"),
        ("axolotl.yaml", "base_model: not/here\nsequence_len: 512\noverrides_of_model_config:\n  rope_theta: {}\n",
         "overrides_of_model_config.rope_theta"),
        ("sft.yaml", "model_name_or_path: not/here\noutput_dir: out\nmodel_init_kwargs:\n  rope_theta: {}\n",
         "model_init_kwargs.rope_theta"),
        ("nemo.yaml", "model:\n  num_layers: 2\n  hidden_size: 128\n  num_attention_heads: 4\n"
                      "  position_embedding_type: rope\n  rotary_base: {}\n", None),
        ("pretrain.yaml", "model_config:\n  n_layer: 2\n  n_embd: 128\n  n_head: 4\n  rope_base: {}\n", None),
    ],
)  # fmt: skip
def test_an_exponent_without_a_dot_is_what_the_program_reads(tmp_path, monkeypatch, name, text, key):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for written_as, is_text in (("1e6", True), ("1.0e6", True), ("1.0e+6", False), ("1000000", False)):
        (tmp_path / name).write_text(text.format(written_as))
        found = resolve(open_target(tmp_path / name))
        texts = [fact.evidence for fact in found.facts if fact.code == "text-number"]
        assert texts == ([{f"{name}:{key}": written_as, "read as": 1e6}] if key and is_text else [])
        assert {code.base for code in found.codes} == {1e6}


@pytest.mark.parametrize(
    ("builder", "more", "base", "scaling", "layout"),
    [
        ("llama3_1.llama3_1", {"rope_base": 250000, "scale_factor": 16}, 250000.0, ("llama3", 16.0), "interleaved"),
        ("llama3_1.lora_llama3_1", {}, 500000.0, ("llama3", 8.0), "interleaved"),
        ("llama3_2.llama3_2", {}, 500000.0, ("llama3", 32.0), "interleaved"),
        ("llama2.qlora_llama2", {}, 10000.0, None, "interleaved"),
        ("mistral.mistral", {}, 10000.0, None, "interleaved"),
        ("qwen2.qwen2", {}, 1000000.0, None, "halves"),
    ],
)
def test_a_general_builder_of_torchtune_takes_its_arguments_from_the_file(builder, more, base, scaling, layout):
    held = {"num_layers": 2, "num_heads": 4, "embed_dim": 256, "max_seq_len": 65536}
    config = {"model": {"_component_": f"torchtune.models.{builder}", **held, **more}}
    resolved = resolve(Opened("x", "dialect", config=config, config_name="recipe.yaml"))
    (code,) = resolved.codes
    assert (code.layers, code.width, code.base, code.layout) == ("0-1", 64, base, layout)
    assert (code.scaling and tuple(code.scaling.values())[:2]) == scaling
    assert (resolved.context, resolved.source["context"]) == (65536, "recipe.yaml:model.max_seq_len")
