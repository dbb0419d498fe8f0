"""The verdict "look correct" is earned: no slip of one position field passes, and no file that a runtime refuses."""

import importlib
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from auditing import published_fields as of
from auditing.faulty_files import QWEN2_YARN
from clockhands.auditing import CORRECT, audit
from clockhands.cli import main
from clockhands.configs.model_types import class_of_others, model_type, model_types

LLAMA_YARN = of.LLAMA_3 | {
    "max_position_embeddings": 32768,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
}
SOUND = {
    "llama": of.LLAMA_31,
    "llama, YaRN": LLAMA_YARN,
    "qwen2": QWEN2_YARN,
    "mistral": of.LLAMA_3 | {"model_type": "mistral"},
}
KEYS = ("rope_theta", "rope_scaling", "max_position_embeddings")
IN_BLOCK = ("rope_type", "factor", "original_max_position_embeddings", "low_freq_factor")


def misspelt(key, chance):
    """A key with one slip of the keyboard, or in another style of writing."""
    at = chance.randrange(1, len(key) - 1)
    words = key.split("_")
    return chance.choice(
        [
            key[:at] + key[at + 1 :],
            key[:at] + key[at] + key[at:],
            key[:at] + key[at + 1] + key[at] + key[at + 2 :],
            key[:at] + chance.choice("aeiou") + key[at + 1 :],
            key.upper(),
            key.replace("_", "-"),
            words[0] + "".join(word.title() for word in words[1:]),
        ]
    )


def written(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def slipped(config, chance):
    """A config in which one key of its position fields is misspelt, and the key that was meant."""
    changed = json.loads(json.dumps(config))
    block = changed.get("rope_scaling") or {}
    held = [(changed, key) for key in KEYS if changed.get(key) is not None] + [
        (block, key) for key in IN_BLOCK if key in block
    ]
    holder, key = chance.choice(held)
    name = misspelt(key, chance)
    holder[name] = holder.pop(key)
    return changed, key, name


def test_a_misspelt_key_is_one_problem_and_its_fix_gives_the_sound_file(tmp_path, cases, draw):
    seeds = draw(range(10_000), 60)
    for number, (name, config) in enumerate(SOUND.items()):
        sound = audit(written(tmp_path, config))
        for seed in seeds[number :: len(SOUND)]:
            changed, key, slip = slipped(config, random.Random(seed))
            if slip == key:
                continue
            found = audit(written(tmp_path, changed))
            with cases(name, key, slip, seed):
                assert CORRECT not in found.verdict
                (problem,) = (each for each in found.problems if found.fixed_with(each) is None)
                assert problem.code == "unknown-key"
                (step,) = problem.edit.patch
                assert (step["op"], step["path"].rpartition("/")[2]) == ("move", key)
                assert sound.verdict.startswith(CORRECT) or sound.doubts


@pytest.mark.parametrize(
    ("scaling", "meant"),
    [
        ({"type": "YaRN", "factor": 4.0, "original_max_position_embeddings": 8192}, "yarn"),
        ({"rope_type": "Dynamic", "factor": 2.0}, "dynamic"),
        ({"rope_type": " linear", "factor": 2.0}, "linear"),
    ],
)
def test_a_name_that_runtimes_refuse_is_a_problem_of_the_file_with_a_fix(tmp_path, scaling, meant):
    found = audit(written(tmp_path, of.LLAMA_3 | {"rope_scaling": scaling, "max_position_embeddings": 32768}))
    (problem,) = found.errors
    assert (problem.code, problem.blames) == ("unknown-scaling", "file")
    assert problem.edit.patch[0]["value"] == meant
    assert found.layers[0].rates, "the report shows what is meant"


def test_keys_in_places_that_nothing_reads_are_named(tmp_path):
    config = of.LLAMA_3 | {"attention": {"sliding_window": 512}, "rope_type_of_layers": ["a"]}
    found = audit(written(tmp_path, config))
    assert found.doubts == ("rope_type_of_layers and attention.sliding_window are not read",)
    assert found.verdict == f"No problem was found, but {found.doubts[0]}."
    off = audit(written(tmp_path, of.LLAMA_3 | {"use_mrope": False, "rope_interleaved": False}))
    assert off.verdict.startswith(CORRECT), "a switch that is off changes nothing"


def test_a_reference_is_a_value_that_is_not_read(tmp_path):
    found = audit(written(tmp_path, of.LLAMA_3 | {"max_position_embeddings": "${model.length}"}))
    assert not found.errors
    assert "max_position_embeddings is not read" in found.verdict


def test_a_base_inside_the_attention_of_dbrx_is_in_the_file(tmp_path):
    """vLLM computes with it; the class of Transformers 5 makes its frequencies from the top level alone."""
    dbrx = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768}
    for base, verdict in ((1e4, "same"), (5e5, "differs")):
        found = audit(written(tmp_path, dbrx | {"attn_config": {"kv_n_heads": 8, "rope_theta": base}}))
        assert found.layers[0].base == base
        assert not {each.code for each in found.findings} & {"default-base", "ignored-key"}
        assert {each.reader: each.verdict for each in found.readings if each.reader in {"vllm", "transformers-5"}} == {
            "vllm": "same",
            "transformers-5": verdict,
        }
    assert "default-base" in {each.code for each in audit(written(tmp_path, dbrx)).findings}


def test_a_share_of_deepseek_v4_is_read(tmp_path):
    config = {"model_type": "deepseek_v4", "head_dim": 64, "num_hidden_layers": 4, "partial_rotary_factor": 0.25}
    found = audit(written(tmp_path, config))
    assert (found.layers[0].rotated, found.layers[0].width) == (16, 64)
    assert "ignored-key" not in {each.code for each in found.findings}


ROTARY = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral", "qwen3": "Qwen3", "phi3": "Phi3", "olmo2": "Olmo2"}


def by_transformers(config):
    """The frequencies and the factor of the installed release; None where it refuses the config."""
    transformers = pytest.importorskip("transformers")
    kind = config["model_type"]
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    try:
        made = transformers.AutoConfig.for_model(**config)
        turning = getattr(module, f"{ROTARY[kind]}RotaryEmbedding")(made)
        return turning.inv_freq.double().numpy(), float(turning.attention_scaling)
    except Exception:  # noqa: BLE001 - whatever it raises, it does not load the file
        return None


def mutated(chance):
    """A config of a drawn type with one change of a position field."""
    kind = chance.choice(list(ROTARY))
    scaling = chance.choice([
        None,
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192},
        {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [4.0] * 16},
    ])  # fmt: skip
    config = {
        "model_type": kind, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
        "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 128, "head_dim": 32,
        "max_position_embeddings": 32768, "rope_theta": 500000.0,
    } | ({} if scaling is None else {"rope_scaling": scaling})  # fmt: skip
    if scaling is not None and "short_factor" in scaling:
        config["original_max_position_embeddings"] = 8192
    block = config.get("rope_scaling") or {}
    holder, key = chance.choice([(config, "rope_theta"), *((block, key) for key in block)])
    value = holder[key]
    how = chance.choice(["misspelt", "case", "length", "elsewhere", "dropped", "twice", "none"])
    if how == "misspelt":
        holder[misspelt(key, chance)] = holder.pop(key)
    elif how == "case" and isinstance(value, str):
        holder[key] = chance.choice([value.upper(), value.title()])
    elif how == "length" and isinstance(value, list):
        holder[key] = value[:-1]
    elif how == "elsewhere":
        config["positions"] = {key: holder.pop(key)}
    elif how == "dropped":
        del holder[key]
    elif how == "twice":
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    return config, how, key


@pytest.mark.parametrize("number", [30, pytest.param(2000, marks=pytest.mark.slow)])
def test_nothing_looks_correct_that_transformers_refuses_or_computes_otherwise(cases, draw, number):
    for seed in draw(range(10**6), number):
        config, how, key = mutated(random.Random(seed))
        found = audit(config)
        if not found.verdict.startswith(CORRECT):
            continue
        made = by_transformers(config)
        with cases(seed, how, key, config):
            assert made is not None, "Transformers refuses it"
            rates, factor = made
            assert np.allclose(found.layers[0].rates, rates, rtol=1e-5)
            assert found.layers[0].attention_factor in (None, pytest.approx(factor, rel=1e-6))


def test_what_the_table_says_of_a_type_in_words_is_reported(cases, tmp_path, capsys):
    for remark, name in ((known.remark, known.name) for known in map(model_type, model_types()) if known.remark):
        with cases(name):
            assert remark in {says for _, says in audit({"model_type": name}).remarks}
    path = written(tmp_path, {"model_type": "longformer", "attention_window": [512, 256], "num_hidden_layers": 2})
    for more in ((), ("--verbose",)):
        with pytest.raises(SystemExit):
            main(["audit", str(path), *more])
        told = " ".join(capsys.readouterr().out.split())
        assert "256 positions on either side" in told
        assert "128 positions on either side" in told


def test_what_layers_have_beside_their_encoding_is_in_the_remarks_too():
    found = audit({"model_type": "deberta-v2", "relative_attention": True, "pos_att_type": "c2p|p2c"}).to_dict()
    assert found["layers"][0]["relative"] == {"max_distance": 512, "rows": 1024, "terms": ["c2p", "p2c"]}
    says = "layers 0-23: distances up to 512, 1,024 rows, terms content-to-position and position-to-content"
    assert {"part": "text", "says": says} in found["remarks"]


def test_a_default_base_beside_a_default_context_is_no_fault():
    found = {each.code: each.severity for each in audit({"model_type": "qwen2_5_omni_dit"}).findings}
    assert found["default-base"] == "note"
    declared = audit({"model_type": "qwen3", "max_position_embeddings": 262144})
    assert {each.code: each.severity for each in declared.findings}["default-base"] == "warning"


def test_a_part_under_a_key_that_the_class_ignores_is_not_what_it_computes():
    text = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 1e6}
    found = audit({"model_type": "vibevoice", "decoder_config": text})
    assert "Transformers 5.23.0 computes other values than the file declares" in found.verdict
    held = audit({"model_type": "vibevoice", "text_config": text})
    assert "Transformers 5.23.0" not in held.verdict


def test_no_class_of_the_library_is_called_one_of_another_type(cases):
    of_the_library = pytest.importorskip("transformers.models.auto.modeling_auto")
    mappings = [name for name in dir(of_the_library) if re.fullmatch(r"MODEL\w*_MAPPING_NAMES", name)]
    for name, classes in (pair for mapping in mappings for pair in getattr(of_the_library, mapping).items()):
        known = model_type(name)
        for each in (classes,) if isinstance(classes, str) else classes:
            with cases(name, each):
                assert known is None or class_of_others({"architectures": [each]}, known) is None
    others = [("t5", "Chronos2Model"), ("mixtral", "LlamaForCausalLM")]
    others += [("llama", f"LlamaForCausalLM{more}") for more in ("Eagle", "Eagle3", "Medusa", "NextN")]
    for name, other in others:
        assert class_of_others({"architectures": [other]}, model_type(name)) == other


FIELD = json.loads((Path(__file__).parent / "field_files.json").read_text(encoding="utf-8"))["files"]


def test_files_of_the_field_are_read_right_or_are_said_to_be_unknown(cases, tmp_path, capsys):
    """YAML takes JSON too, so that every file is written as JSON."""
    for row in FIELD:
        path = tmp_path / row["file"]
        path.write_text(json.dumps(row["config"]), encoding="utf-8")
        with pytest.raises(SystemExit):
            main(["audit", str(path), "--verbose", *(("--for", row["runtime"]) if "runtime" in row else ())])
        printed = " ".join("".join(capsys.readouterr()).split())
        with cases(row["name"]):
            assert not [words for words in row["says"] if words not in printed]
            assert not [words for words in row["never"] if words in printed]
        path.unlink()


def test_a_switch_for_the_order_that_the_class_has_anyway_leaves_no_doubt(cases):
    sections = {"rope_type": "default", "mrope_section": [24, 20, 20], "rope_theta": 5e6}
    text = {"model_type": "qwen3_vl_text", "head_dim": 128, "hidden_size": 256, "num_attention_heads": 2}
    for interleaved, verdict in ((True, CORRECT), (False, "1 problem: mrope_interleaved contradicts the model type")):
        with cases(interleaved):
            block = {**sections, "mrope_interleaved": interleaved}
            found = audit({"model_type": "qwen3_vl", "text_config": {**text, "rope_scaling": block}})
            assert found.verdict.startswith(verdict)
    assert not audit({"model_type": "glm_moe_dsa", "rope_theta": 1e6, "rope_interleave": True}).unexplained
