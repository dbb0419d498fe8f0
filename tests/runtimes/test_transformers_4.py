"""Transformers 4 as it is described, against what release 4.57.1 itself computed from the same configs."""

import json
from pathlib import Path

import pytest

from clockhands.auditing import audit
from clockhands.runtimes.views import facts
from runtimes.reading_files import read as read_by

CASES = json.loads(Path(__file__).with_name("transformers_4.json").read_text(encoding="utf-8"))["cases"]
DEFAULTS = json.loads(Path(__file__).with_name("transformers_4_defaults.json").read_text(encoding="utf-8"))["types"]
ROWS = facts()["transformers-4"]["types"]
# Parts of models that make sound, read images or hold no tokens of text: no text config is read as one of them.
OTHER_PARTS = frozenset(
    {
        "blt_global_transformer", "blt_local_decoder", "blt_local_encoder", "blt_patcher", "csm_depth_decoder_model",
        "dia_decoder", "dia_encoder", "llama4_vision_model", "qwen2_5_omni_dit", "qwen2_5_omni_talker",
        "qwen3_omni_moe_talker_code_predictor", "qwen3_omni_moe_talker_text", "t5_gemma_module",
    }
)  # fmt: skip

# The library computes in float32: the base to a power, its inverse and a scaling, each rounded once.
CLOSE = 3e-6


def read(folder, config, length=None):
    return read_by(folder, config, "transformers-4", length)


def test_it_computes_what_the_library_computes(tmp_path, cases):
    verdicts = set()
    for case in CASES:
        with cases(case["name"]):
            found = read(tmp_path, case["config"], case["length"])
            verdicts.add(found.verdict)
            assert (found.verdict == "refuses") == ("raises" in case)
            assert case.get("raises", "") in (found.because or "")
            for code in (code for code in found.codes if code.kind == "rotary" and "rotary" in case):
                theirs = case["rotary"]["sliding" if code.window is not None and "sliding" in case["rotary"] else "all"]
                assert code.rates == pytest.approx(theirs["rates"], rel=CLOSE)
                assert code.attention_factor == pytest.approx(theirs["attention_factor"], rel=CLOSE)
    assert verdicts == {"same", "differs", "refuses"}, "every kind of answer is among the cases"


def test_a_wrong_number_of_the_library_would_be_noticed(tmp_path):
    case = next(case for case in CASES if "rotary" in case)
    found = read(tmp_path, case["config"], case["length"])
    wrong = [rate * (1 + 1e-5) for rate in case["rotary"]["all"]["rates"]]
    assert found.codes[0].rates != pytest.approx(wrong, rel=CLOSE)


def taken(row):
    """What a row says of the attributes of a class that was made without arguments."""
    held = dict(row[quantity] for quantity in ("base", "local", "share") if quantity in row)
    return held | ({"rope_scaling": row["scaling"]} if "scaling" in row else {})


def read_off(attributes):
    """The same of the class itself: a scaling of none is no default, and some attributes have two names."""
    held = {key: value for key, value in attributes.items() if key != "rope_scaling" or value is not None}
    if "rotary_emb_base" in held:
        held = {key: value for key, value in held.items() if key not in ("rope_theta", "partial_rotary_factor")}
    if isinstance(held.get("rope_scaling"), dict) and "rope_type" in held["rope_scaling"]:
        held["rope_scaling"] = {key: value for key, value in held["rope_scaling"].items() if key != "type"}
    return held


def test_a_row_has_the_defaults_of_its_class_and_every_class_with_a_base_a_row_or_is_no_reader_of_text(cases):
    for name, row in ROWS.items():
        with cases(name):
            assert taken(row) == read_off(DEFAULTS[name])
    assert set(DEFAULTS) - set(ROWS) == OTHER_PARTS


def test_a_wrong_default_would_be_noticed():
    assert taken(ROWS["llama"] | {"base": ["rope_theta", 500000.0]}) != read_off(DEFAULTS["llama"])
    assert taken(ROWS["gpt_oss"] | {"scaling": {"rope_type": "default"}}) != read_off(DEFAULTS["gpt_oss"])


def test_what_it_says_of_files_that_it_does_not_read(tmp_path, cases):
    llama = CASES[0]["config"]
    without_block = next(case["config"] for case in CASES if case["name"] == "mllama new only")
    mine = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.Mine"}}
    unread = "The class of gptj in Transformers 4.57.1 has no RoPE, or is not known to clockhands."
    for config, verdict, because in (
        (llama | {"model_type": "minicpm5"}, "refuses", "Transformers has no model type minicpm5."),
        (llama | mine, "unknown", None),
        (llama | {"model_type": "gptj"}, "unknown", unread),
        (without_block, "refuses", "The class of mllama_text_model needs rope_scaling, which is absent (TypeError)."),
    ):
        with cases(config["model_type"]):
            found = read(tmp_path, config)
            assert found.verdict == verdict
            assert because in (None, found.because)


def test_what_goes_by_the_config_class_alone_is_told_where_the_model_class_fails(tmp_path):
    case = next(case for case in CASES if case["name"] == "mllama new only")
    found = read(tmp_path, case["config"])
    assert found.verdict == "refuses"
    assert {code.base for code in found.codes if code.kind == "rotary"} == {500_000}
    assert not any(code.scaling for code in found.codes)
    (finding,) = (each for each in audit(tmp_path).findings if each.code == "new-shape-only")
    assert (
        "needs rope_scaling, which is absent (TypeError). Other old runtimes, which read only the config"
        in finding.message
    )


def test_a_base_of_the_class_around_is_not_called_the_default_of_the_part(tmp_path):
    # VoxtralConfig gives its text part base 100,000,000 in Transformers 4 too; LlamaConfig alone takes 10,000.
    part = {
        "model_type": "llama", "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 32,
        "head_dim": 128, "max_position_embeddings": 131072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e8},
    }  # fmt: skip
    for config, code in (
        ({"model_type": "voxtral", "text_config": part}, "runtime-not-known"),
        (part, "misread-by-runtime"),
    ):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        codes = [finding["code"] for finding in audit(path, runtime="transformers@4.57.6").to_dict()["findings"]]
        assert {"runtime-not-known", "misread-by-runtime"} & {*codes} == {code}
