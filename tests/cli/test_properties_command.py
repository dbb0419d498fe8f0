"""`clockhands properties`: what is true of a target's own codes, in text and for programs."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.encodings.additive import Counter
from clockhands.encodings.grids import Grid
from clockhands.encodings.presets import presets
from clockhands.measures import QUESTIONS
from late import Late
from packaged_weights import smollm2_file

from . import conftest

jsonschema = Late("jsonschema")

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "properties.schema.json").read_text(encoding="utf-8")
)
LLAMA = conftest.LLAMA | {"hidden_size": 128, "max_position_embeddings": 131072}
BERT = conftest.BERT | {"max_position_embeddings": 32}
T5 = {
    "model_type": "t5", "d_model": 16, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16,
}  # fmt: skip


def folder(path, config, tensors=None):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        save_file(tensors, str(path / "model.safetensors"))
    return path


def asked(run, *words, **more):
    """The JSON of a run that is sound, held to its published schema."""
    done = run("properties", *words, "--json", **more)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


# What is said


def test_every_question_is_answered_or_said_to_make_no_sense(run):
    done = run("properties", "vaswani2017:width=64", "--length", "256")
    assert (done.code, done.err) == (0, "")
    report = ch.properties(ch.preset("vaswani2017", width=64), 256)
    text = " ".join(done.out.split())
    for name, each in report:
        assert " ".join(each.says.split()) in text, name
        if each.state == "not applicable":
            assert name in text
        else:
            assert QUESTIONS[name] in text
    marks = {"yes": True, "no": False, "-": None}
    lines = re.findall(r"^(yes|no|-) +([a-z_]+): (?=[A-Z])", done.out, re.MULTILINE)
    shown = {name: marks[mark] for mark, name in lines}
    assert shown == {name: each.holds for name, each in report if each.state == "measured"}
    assert len(shown) > 5


def test_json_has_every_property_of_the_code(run):
    document = asked(run, "llama2", "--length", "128", "--dtype", "bfloat16")
    (code,) = document["codes"]
    found = ch.properties(ch.preset("llama2"), 128, "bfloat16")
    assert code["properties"] == json.loads(json.dumps({name: each.to_dict() for name, each in found}))
    assert (code["length"], code["dtype"], code["why"]) == (128, "bfloat16", None)
    assert ch.from_json(json.dumps(code["spec"])) == ch.preset("llama2")
    # And its schema can fail.
    wrong = copy.deepcopy(document)
    wrong["codes"][0]["properties"]["unique"]["state"] = "perhaps"
    for each in (document | {"schema": 2}, document | {"codes": None}, wrong):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(each)


# What is measured


def test_the_context_decides_how_many_tokens_and_a_cut_is_said(run, tmp_path):
    target = folder(tmp_path / "long", LLAMA)
    (code,) = asked(run, target)["codes"]
    assert (code["usable_length"], code["length"]) == (131072, 8192)
    assert code["notes"] == ["Measured over the first 8,192 of 131,072 positions; --length 131072 measures all."]
    short = folder(tmp_path / "short", LLAMA | {"max_position_embeddings": 512})
    (code,) = asked(run, short)["codes"]
    assert (code["length"], code["notes"]) == (512, [])
    assert asked(run, short, "--length", "100")["codes"][0]["length"] == 100


def test_without_a_context_a_model_says_over_how_many_tokens_and_a_preset_needs_none(run, tmp_path):
    bloom = folder(tmp_path / "bloom", {"model_type": "bloom", "hidden_size": 16, "n_head": 2, "n_layer": 2})
    (code,) = asked(run, bloom)["codes"]
    assert (code["usable_length"], code["length"]) == (None, 2048)
    assert code["notes"] == ["No context is declared: measured over 2,048 tokens."]
    (code,) = asked(run, "alibi:heads=2")["codes"]
    assert (code["length"], code["notes"]) == (2048, [])


def test_layers_with_a_window_are_measured_over_it(run, tmp_path):
    config = LLAMA | {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 256}
    config |= {"max_position_embeddings": 1024}
    codes = asked(run, folder(tmp_path / "windows", config))["codes"]
    assert {code["layers"]: code["length"] for code in codes} == {"0-4": 256, "5": 1024}
    assert codes[0]["notes"] == ["A query here attends only to the last 256 positions: measured over 256."]


def test_a_learned_table_is_read_from_the_weights(run, tmp_path):
    rows = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    rows[20] = rows[3]
    target = folder(tmp_path / "bert", BERT, {"embeddings.position_embeddings.weight": rows})
    (code,) = asked(run, target)["codes"]
    expected = ch.properties(ch.Learned(8, 32), 32, values=rows)
    assert code["properties"] == json.loads(json.dumps({name: each.to_dict() for name, each in expected}))
    assert code["properties"]["unique"]["holds"] is False
    assert code["length"] == 32


def test_without_the_weights_it_is_said_that_the_rows_are_not_there(run, tmp_path):
    (code,) = asked(run, folder(tmp_path / "bert", BERT))["codes"]
    assert code["notes"] == ["Its trained numbers are not in what was read: name the weights to have them measured."]
    assert code["properties"]["unique"]["state"] == "not computed"
    text = " ".join(run("properties", tmp_path / "bert").out.split())
    # What is missing for one reason is told once.
    assert text.count("pass them to clockhands.properties as values=") == 1
    assert "bounded, unique, smooth," in text


def test_rows_that_are_no_numbers_are_left_out(run, tmp_path):
    rows = np.ones((32, 8), np.float32)
    rows[5, 2] = np.nan
    (code,) = asked(run, folder(tmp_path / "bert", BERT, {"embeddings.position_embeddings.weight": rows}))["codes"]
    assert code["notes"] == ["Its numbers are left out: row 5 holds NaN or infinite numbers."]


def test_the_biases_of_t5_are_read_from_the_weights(run, tmp_path):
    made = np.random.default_rng(1)
    tables = {part: made.normal(size=(8, 2)).astype(np.float32) for part in ("encoder", "decoder")}
    name = "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    target = folder(tmp_path / "t5", T5, {name.format(part): table for part, table in tables.items()})
    codes = {code["part"]: code for code in asked(run, target, "--length", "40")["codes"]}
    for part, table in tables.items():
        spec = ch.Buckets(heads=2, buckets=8, max_distance=16, bidirectional=part == "encoder")
        expected = ch.properties(spec, 40, values=table)
        assert ch.from_json(json.dumps(codes[part]["spec"])) == spec
        assert codes[part]["properties"]["reach"] == json.loads(json.dumps(expected.reach.to_dict()))


def test_rates_are_enough_where_the_layout_is_not_known(run, tmp_path):
    config = {"model_type": "nobodys", "hidden_size": 128, "num_attention_heads": 2, "rope_theta": 10000.0}
    (code,) = asked(run, folder(tmp_path / "unknown", config | {"head_dim": 64}), "--length", "64")["codes"]
    assert code["notes"][0] == "The layout is unknown; no figure here depends on it."
    expected = ch.properties(ch.Rotary(head_width=64), 64)
    assert code["properties"]["turning"]["brief"] == expected.turning.brief


def test_a_bare_array_is_the_code_that_it_is_recognised_as(run, tmp_path):
    np.save(tmp_path / "whisper.npy", ch.table(ch.preset("whisper", width=16), 100))
    (code,) = asked(run, tmp_path / "whisper.npy")["codes"]
    spec = ch.from_json(json.dumps(code["spec"]))
    assert np.array_equal(ch.table(spec, 100), ch.table(ch.preset("whisper", width=16), 100))
    assert code["length"] == 100
    assert code["notes"] == ["The array is recognised as tensor2tensor, off by at most 3e-08; the code is measured."]


def test_rows_that_stand_elsewhere_are_measured_there_and_cells_along_an_axis(run, tmp_path):
    np.save(tmp_path / "fairseq.npy", ch.table(ch.preset("fairseq", width=16), range(2, 100)))
    (code,) = asked(run, tmp_path / "fairseq.npy")["codes"]
    assert (code["spec"]["first"], code["length"]) == (2, 98)
    np.save(tmp_path / "mae.npy", ch.table(ch.preset("mae", width=32), Grid((7, 9), order=(1, 0))))
    (code,) = asked(run, tmp_path / "mae.npy")["codes"]
    assert (code["spec"]["type"], code["length"]) == ("AxialSinusoidal", 9)


def test_a_bare_array_that_is_no_known_code_is_measured_as_it_stands(run, tmp_path):
    rows = np.random.default_rng(2).normal(size=(30, 6)).astype(np.float16)
    np.savez(tmp_path / "rows.npz", one=rows, two=rows[:5])
    (code,) = asked(run, f"{tmp_path / 'rows.npz'}:one")["codes"]
    assert code["spec"]["type"] == "Learned"
    expected = ch.properties(ch.Learned(6, 30), 30, values=rows)
    assert code["properties"]["smooth"] == json.loads(json.dumps(expected.smooth.to_dict()))


def test_a_config_on_standard_input(run):
    document = asked(run, "-", stdin=json.dumps(LLAMA | {"max_position_embeddings": 64}).encode())
    assert (document["target"], document["codes"][0]["length"]) == ("-", 64)


def test_what_has_no_code_is_said_beside_what_has_one(run):
    codes = asked(run, "llama4-scout", "--length", "64")["codes"]
    (without,) = [code for code in codes if code["properties"] is None]
    assert without["spec"] is None
    assert without["why"] == "These layers have no position encoding, so there are no properties."
    assert without["why"] in " ".join(run("properties", "llama4-scout", "--length", "64").out.split())


# Real models


def test_smollm2_in_its_own_numbers(run):
    done = run("properties", smollm2_file())
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "layers 0-29: RoPE" in text
    assert "over 8,192 tokens in float32" in text
    assert "12 of 32 dimension pairs" in text
    assert "3,616" in text  # the first distance at which the bound of Men et al. fails


# All presets


def test_presets_have_a_report(run, cases, draw):
    """One of each kind of code, and some more; that every one has its properties is asked of the engine."""
    kinds = {type(each.spec): each.name for each in presets()}
    for name in {"gemma3", "qwen2-vl", "t5", *kinds.values(), *draw((each.name for each in presets()), 4)}:
        with cases(name):
            done = run("properties", name, "--length", "64")
            assert (done.code, done.err) == (0, "")
            assert max(map(len, done.out.splitlines())) <= 80


# Files of one spec, and codes that fail


def test_a_file_of_a_spec_is_the_spec(run, tmp_path, cases):
    file = tmp_path / "spec.json"
    for spec in (Counter(8), ch.Sinusoidal(8), ch.Rotary(64), ch.preset("alibi")):
        with cases(spec):
            file.write_text(ch.to_json(spec), encoding="utf-8")
            (code,) = asked(run, file, "--length", "64")["codes"]
            assert ch.from_json(json.dumps(code["spec"])) == spec
            done = run("audit", file)
            assert "No position encoding was recognised" not in done.out
            assert "The position settings look correct." in done.out


def test_sections_are_measured_as_text_meets_them(run, tmp_path):
    heads = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 6, "max_position_embeddings": 4096}
    sections = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 1e6}
    (code,) = asked(run, folder(tmp_path / "sections", heads | sections | {"model_type": "qwen2_vl"}))["codes"]
    (plain,) = asked(run, folder(tmp_path / "plain", heads | {"model_type": "qwen2", "rope_theta": 1e6}))["codes"]
    assert code["properties"] == plain["properties"]
    assert code["properties"]["base_bound"]["state"] == "measured"
    assert code["spec"]["axes"] == [0] * 16 + [1] * 24 + [2] * 24
    assert any("advance together" in note for note in code["notes"])
    assert "along each axis" not in run("properties", tmp_path / "sections").out
