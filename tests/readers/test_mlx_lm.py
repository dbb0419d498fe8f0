"""mlx-lm as it is described, against what release 0.32.2 itself computed from the same configs."""

import json
from pathlib import Path

import pytest

from readers.reading_files import read

CASES = json.loads(Path(__file__).with_name("mlx_lm.json").read_text(encoding="utf-8"))["cases"]

# float32 throughout, and the angle of a turned vector is taken back from its sine and cosine.
CLOSE = 2e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_computes_what_the_library_computes(tmp_path, case):
    found = read(tmp_path, case["config"], "mlx-lm")
    if "raises" in case:
        assert found.verdict == "refuses"
        assert case["raises"] in found.because
        return
    assert found.verdict in ("same", "differs")
    turning = [code for code in found.codes if code.kind == "rotary"]
    assert len({code.rates for code in turning}) == len(case["rotary"])
    for code in turning:
        assert any(
            code.rates == pytest.approx(theirs["rates"], rel=CLOSE)
            and code.attention_factor == pytest.approx(theirs["attention_factor"], rel=CLOSE)
            for theirs in case["rotary"]
        )


def test_every_kind_of_answer_is_among_the_cases(tmp_path):
    assert {read(tmp_path, case["config"], "mlx-lm").verdict for case in CASES} == {"same", "differs", "refuses"}


def test_the_scaling_of_qwen3_moe_is_dropped(tmp_path):
    case = next(case for case in CASES if case["name"] == "qwen3_moe yarn dropped")
    found = read(tmp_path, case["config"], "mlx-lm")
    assert found.not_read == ("config.json:rope_scaling",)
    (group,) = found.parted
    assert (group.theirs.scaling, group.ladder.first) == (None, 24)


def test_a_type_without_a_file_is_not_loaded(tmp_path):
    found = read(tmp_path, CASES[0]["config"] | {"model_type": "arcee"}, "mlx-lm")
    assert (found.verdict, found.because) == ("refuses", "mlx-lm has no model type arcee.")
