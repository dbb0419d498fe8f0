"""Configs of other programs: what each says of position, held to facts written by hand from its text and its program.

The configs are those of `published/dialects`, whose README says where they are from. They are written out as their
program has them, YAML or JSON, and read from there. `stated/dialects.json` states what single keys are resolved to.
"""

import copy
import json
from pathlib import Path

import pytest

from clockhands.configs import dialects as dialects_module
from clockhands.configs import open_target
from clockhands.configs.dialects import dialect_of, dialects, in_dialect
from clockhands.configs.models_under import models_under
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.errors import Unreadable
from configs.expected import fact_gaps

PUBLISHED = Path(__file__).parents[1] / "published"
LEAST = 62  # files; a file fewer is one that was lost


@pytest.fixture(scope="module")
def configs(published):
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


def test_facts_written_by_hand_agree(configs, tmp_path, cases):
    """And every value names a key of the file or the program."""
    assert len(configs) >= LEAST
    rows = {dialect.name: dialect for dialect in dialects()}
    for case in configs:
        with cases(case["name"]):
            opened = open_target(written(tmp_path, case))
            says = f"{case['base']} is read from " if "base" in case else f" is read as a config of {case['dialect']}."
            says = f" is built from {case['base']}" if case["dialect"] == "Modelfile" else says
            assert any(says in note for note in opened.notes)
            found = resolve(opened)
            assert list(gaps(found, case["facts"], opened.length if "base" in case else None)) == []
            for source in (source for code in found.codes for source in code.source.values() if "base" not in case):
                places = (case["file"], rows[case["dialect"]].library, "computed from no scaling")
                assert any(place in source for place in places), source


def test_a_wrong_fact_is_noticed(configs, tmp_path):
    case = next(case for case in configs if case["name"] == "neox-20b")
    found = resolve(open_target(written(tmp_path, case)))
    for name, wrong in {"rotated": 96, "base": 1e6, "layers": 43, "max_length": 4096, "layout": "interleaved"}.items():
        assert [gap.partition(":")[0] for gap in gaps(found, {**case["facts"], name: wrong})], name


def test_configs_of_transformers_are_in_no_dialect(published):
    for path in sorted((published / "configs").glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        assert dialect_of(config) is None, path.name


FILES_OF_OTHERS = {
    "llm-analysis": {"name": "opt", "num_layers": 24, "n_head": 16, "hidden_dim": 1024, "vocab_size": 50272,
                     "max_seq_len": 2048, "ffn_embed_dim": 4096, "model_type": "opt"},
    "timm": {"architecture": "vit_base_patch16_224", "num_classes": 1000, "pretrained_cfg": {"tag": "x"}},
    "OpenCLIP": {"model_cfg": {"embed_dim": 512, "vision_cfg": {"layers": 12}, "text_cfg": {}}},
    "KerasHub": {"registered_name": "keras_hub>Llama3Backbone", "config": {"num_layers": 32}},
    "Levanter": {"model": {"type": "llama", "seq_len": 4096, "hidden_dim": 512, "num_layers": 12}},
    "OLMo-core": {"model": {"_CLASS_": "olmo_core.nn.transformer.config.TransformerConfig", "d_model": 64}},
    "Qualcomm's Genie": {"dialog": {"context": {"size": 1024}, "engine": {"model": {"type": "binary"}}}},
    "fairseq": {"task": {"_name": "masked_lm"}, "model": {"_name": "masked_lm", "encoder_layers": 12}},
    "OpenNMT": {"model_type": "text", "decoder_type": "transformer", "dec_layers": 6, "heads": 8,
                "position_encoding": True},
    "CTranslate2": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "layer_norm_epsilon": None,
                    "add_source_bos": False},
    "DeepSpeed": {"train_batch_size": 16, "zero_optimization": {"stage": 3}},
    "Model-Optimizer": {"producer": {"name": "modelopt", "version": "0.27.1"}, "quantization": {"quant_algo": "NVFP4"}},
    "MNN": {"llm_model": "llm.mnn", "llm_weight": "llm.mnn.weight", "backend_type": "cpu"},
    "LLaMA-Factory (with rope_scaling)": {"model_name_or_path": "org/name", "stage": "sft", "rope_scaling": "yarn"},
    "the settings of generation in Transformers": {"eos_token_id": 2, "transformers_version": "4.31.0"},
    "an image or sound processor of Transformers": {"image_processor_type": "CLIPImageProcessor"},
    "npm": {"name": "x", "version": "1.0.0", "dependencies": {}},
    "a tokenizer of Transformers": {"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096},
}  # fmt: skip


def test_a_file_of_a_program_that_is_not_read_is_refused_by_name(tmp_path, cases):
    assert FILES_OF_OTHERS.keys() == {dialect.name for dialect in dialects() if dialect.refused}
    for program, config in FILES_OF_OTHERS.items():
        with cases(program):
            path = tmp_path / ("config.json" if program in {"timm", "MNN"} else "file.yaml")
            path.write_text(json.dumps(config))
            with pytest.raises(Unreadable) as refused:
                open_target(path)
            assert f"is a file of {program}, and clockhands does not read it." in refused.value.message
            assert list(models_under(tmp_path)) == []
            path.unlink()


def test_files_with_fewer_keys_are_refused_by_name_too(tmp_path, cases):
    tower = {"embed_dim": 512, "vision_cfg": {"layers": 12, "width": 768}, "text_cfg": {"layers": 12, "width": 512}}
    for program, config in (
        ("OpenCLIP", tower),
        ("the settings of generation in Transformers", {"eos_token_id": 2, "temperature": 0.7, "max_length": 2048}),
    ):
        with cases(program):
            path = tmp_path / "file.json"
            path.write_text(json.dumps(config))
            with pytest.raises(Unreadable, match=f"is a file of {program}"):
                open_target(path)


def test_a_folder_with_an_adapter_alone_is_the_model_that_it_names(tmp_path):
    (tmp_path / "base").mkdir()
    base = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    (tmp_path / "base" / "config.json").write_text(json.dumps(base))
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    assert resolve(open_target(tmp_path)).model_type == "llama"
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(Unreadable, match=r"adapter_config\.json says nothing about positions"):
        open_target(tmp_path)


def test_files_that_name_a_model_are_read_with_it(tmp_path, monkeypatch, cases):
    """The values of the file that its program lays over the model count, in its spelling."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    base = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps(base | {"max_position_embeddings": 64}))
    over = {"hf-overrides": {"rope_theta": 500000}, "max-model-len": 32}
    foundry = {"name": "hf_causal_lm", "pretrained_model_name_or_path": "base"}
    foundry |= {"config_overrides": {"rope_theta": 500000}}
    for name, config, base_of_rope, length in (
        ("serve.yaml", {"model": "base"} | over, 500_000, 32),
        ("train.yaml", {"model": foundry, "max_seq_len": 32}, 500_000, 32),
        ("adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "base"}, 10_000, None),
        ("sft.yaml", {"model_name_or_path": "base", "stage": "sft", "cutoff_len": 32}, 10_000, 32),
    ):
        (tmp_path / name).write_text(json.dumps(config))
        with cases(name):
            opened = open_target(tmp_path / name)
            (code,) = resolve(opened).codes
            assert (code.base, opened.length) == (base_of_rope, length)
            assert name in code.source["base"] or base_of_rope == 10_000


def test_the_positions_of_llm_foundry_follow_from_switches(cases):
    original = {"type": "original", "pos_idx_in_fp32": True, "xpos_scale_base": 512}
    linear = {"rope_impl": "hf", "rope_hf_config": {"type": "linear", "factor": 4.0}}
    for attention, kind, scaling in (
        ({}, "learned", None),
        ({"alibi": True, "alibi_bias_max": 8}, "alibi", None),
        ({"alibi": True, "alibi_bias_max": 16}, None, None),
        ({"rope": True, "rope_dail_config": original}, "rotary", None),
        ({"rope": True, "rope_dail_config": original | {"type": "xpos"}}, None, None),
        ({"rope": True, **linear}, "rotary", "linear"),
    ):
        model = {"name": "mpt_causal_lm", "d_model": 64, "n_heads": 2, "n_layers": 2, "max_seq_len": 32}
        config = {"model": model | {"attn_config": attention}}
        with cases(attention):
            found = resolve(Opened("x", "dialect", config=config, config_name="mpt.yaml"))
            assert {code.kind for code in found.codes} == {kind}
            assert {(code.scaling or {}).get("type") for code in found.codes} == {scaling}
            assert [fact.code for fact in found.facts if fact.code != "default-base"] == []


def test_the_default_of_a_training_is_what_the_model_learns():
    """A program that converts or serves may have lost the base of a release; one that trains has no other."""
    model = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 131072}
    trained = {"model": {"model_config": model | {"is_llama_config": True}}}
    served = {"architecture": "LlamaForCausalLM", "mapping": {}, "position_embedding_type": "rope_gpt_neox", **model}
    lost = [resolve(Opened("x", "dialect", config=config, config_name="x")).facts for config in (trained, served)]
    assert [[fact.evidence["context"] for fact in facts if fact.code == "default-base"] for facts in lost] == (
        [[None], [131072]]
    )


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


def test_whatever_stands_under_a_key_it_is_read(configs, draw):
    smallest = {}
    for case in sorted(configs, key=lambda case: -len(json.dumps(case["config"]))):
        smallest[case["dialect"]] = case
    assert len(smallest) > 8
    for case in smallest.values():
        for path in keys(case["config"]):
            for odd in draw(ODD, 3):
                config = copy.deepcopy(case["config"])
                holder = config
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = odd
                form = "config" if dialect_of(config) is None else "dialect"
                resolve(Opened("x", form, config=config, config_name=case["file"]))


def test_references_lead_to_values_of_the_file(cases, tmp_path):
    """One that leads elsewhere leaves its value unknown: another key or a default does not take its place."""
    nemo = {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "position_embedding_type": "rope"}
    lead = {"${.encoder_seq_length}": 4096, "${model.encoder_seq_length}": 4096, "${length}": 512, "${further}": 512}
    nowhere = ("${oc.env:LENGTH}", "${multiply:2, ${.encoder_seq_length}}", "${.nowhere}", "${loop}", "???")
    for length, context in (lead | dict.fromkeys(nowhere)).items():
        with cases(length):
            model = nemo | {"encoder_seq_length": 4096, "max_position_embeddings": length}
            config = {"model": model, "length": 512, "further": "${length}", "loop": "${loop}"}
            said = f"nemo.yaml:model.max_position_embeddings is {length}, whose value is not in this file."
            (tmp_path / "nemo.yaml").write_text(json.dumps(config))
            opened = open_target(tmp_path / "nemo.yaml")
            assert opened.notes[1:] == (() if length in lead else (said,))
            assert resolve(opened).context == context


def test_the_program_of_a_file_is_told_by_its_keys():
    megatron = {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "position_embedding_type": "rope"}
    assert dialect_of({**megatron, "rotary_base": 500000, "use_rope_scaling": True}).name == "Megatron-LM"
    assert (
        dialect_of({**megatron, "rotary_base": 500000, "rotary_seq_len_interpolation_factor": 4}).name == "Megatron-LM"
    )
    neox = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "max-position-embeddings": 512}
    for own in ({"pipe-parallel-size": 1}, {"no-weight-tying": True}, {"train_micro_batch_size_per_gpu": 4}):
        assert dialect_of(neox | own).name == "GPT-NeoX"


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


def test_keys_are_gone_through_once_however_many_dialects_there_are(monkeypatch):
    """Each lookup went through all keys: 60,000 of them took 7 seconds."""
    asked = []
    real = dialects_module.plain
    monkeypatch.setattr(dialects_module, "plain", lambda key: (asked.append(key), real(key))[1])
    keys = {f"key-{number}": number for number in range(1000)}
    model = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 2, "encoder-seq-length": 8}
    assert in_dialect({"model": model | keys} | keys, "x.yaml") is not None
    assert len(asked) < 6 * len(keys)
