"""Transformers 4 as it is described, against what release 4.57.1 itself computed from the same configs."""

import json
from pathlib import Path

import pytest

from clockhands.auditing import audit
from clockhands.readers.views import facts
from readers.reading_files import read as read_by

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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_computes_what_the_library_computes(tmp_path, case):
    found = read(tmp_path, case["config"], case["length"])
    if "raises" in case:
        assert found.verdict == "refuses"
        assert case["raises"] in found.because
        return
    assert found.verdict in ("same", "differs")
    for code in (code for code in found.codes if code.kind == "rotary"):
        label = "sliding" if code.window is not None and "sliding" in case["rotary"] else "all"
        theirs = case["rotary"][label]
        assert code.rates == pytest.approx(theirs["rates"], rel=CLOSE)
        assert code.attention_factor == pytest.approx(theirs["attention_factor"], rel=CLOSE)


def test_every_kind_of_answer_is_among_the_cases(tmp_path):
    verdicts = {read(tmp_path, case["config"], case["length"]).verdict for case in CASES}
    assert verdicts == {"same", "differs", "refuses"}


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


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_has_the_defaults_of_its_class(name):
    assert taken(ROWS[name]) == read_off(DEFAULTS[name])


def test_every_class_with_a_base_has_a_row_or_is_no_reader_of_text():
    assert set(DEFAULTS) - set(ROWS) == OTHER_PARTS


def test_a_wrong_default_would_be_noticed():
    assert taken(ROWS["llama"] | {"base": ["rope_theta", 500000.0]}) != read_off(DEFAULTS["llama"])
    assert taken(ROWS["gpt_oss"] | {"scaling": {"rope_type": "default"}}) != read_off(DEFAULTS["gpt_oss"])


def test_the_new_shape_alone_is_read_as_a_base_of_10000_and_no_scaling(tmp_path):
    case = next(case for case in CASES if case["name"] == "llama new only")
    found = read(tmp_path, case["config"])
    (group,) = found.parted
    assert found.not_read == ("config.json:rope_parameters",)
    assert (group.theirs.base, group.theirs.scaling) == (10_000, None)
    assert round(group.ladder.ratio) == 354


def test_a_type_that_it_does_not_have_is_not_loaded(tmp_path):
    config = {**CASES[0]["config"], "model_type": "minicpm5"}
    found = read(tmp_path, config)
    assert (found.verdict, found.because) == ("refuses", "Transformers has no model type minicpm5.")


def test_code_that_comes_with_the_model_is_not_guessed_at(tmp_path):
    config = {**CASES[0]["config"], "model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.Mine"}}
    assert read(tmp_path, config).verdict == "unknown"


def test_a_class_that_was_not_read_is_not_said_to_lack_anything(tmp_path):
    config = {**CASES[0]["config"], "model_type": "gptj"}
    found = read(tmp_path, config)
    assert found.verdict == "unknown"
    assert found.because == "The class of gptj in Transformers 4.57.1 has no RoPE, or is not known to clockhands."


def test_a_class_that_looks_its_block_up_is_said_to_fail_without_one(tmp_path):
    case = next(case for case in CASES if case["name"] == "mllama new only")
    found = read(tmp_path, case["config"])
    assert found.because == "The class of mllama_text_model needs rope_scaling, which is absent (TypeError)."


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
