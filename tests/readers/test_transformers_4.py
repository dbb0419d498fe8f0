"""Transformers 4 as it is described, against what release 4.57.1 itself computed from the same configs."""

import json
from pathlib import Path

import pytest

from readers.reading_files import read as read_by

CASES = json.loads(Path(__file__).with_name("transformers_4.json").read_text(encoding="utf-8"))["cases"]

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
    assert (found.verdict, found.because) == ("refuses", "It has no model type minicpm5.")


def test_code_that_comes_with_the_model_is_not_guessed_at(tmp_path):
    config = {**CASES[0]["config"], "model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.Mine"}}
    assert read(tmp_path, config).verdict == "unknown"


def test_a_class_that_was_not_read_is_not_said_to_lack_anything(tmp_path):
    # Mllama's class takes 500,000 where the base is absent; how it reads a scaling was not looked at.
    text = {**CASES[0]["config"], "model_type": "mllama_text_model"}
    found = read(tmp_path, {"model_type": "mllama", "text_config": text})
    assert found.verdict == "unknown"
    assert found.because.endswith("in Transformers 4.57.1 has no rotary code, or it was not read.")
