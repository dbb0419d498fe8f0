"""mlx-lm as it is described, against what release 0.32.2 itself computed from the same configs."""

import json
from pathlib import Path

import pytest

from runtimes.reading_files import read

CASES = json.loads(Path(__file__).with_name("mlx_lm.json").read_text(encoding="utf-8"))["cases"]

# float32 throughout, and the angle of a turned vector is taken back from its sine and cosine.
CLOSE = 2e-5


def test_it_computes_what_the_library_computes(tmp_path, cases):
    verdicts = set()
    for case in CASES:
        with cases(case["name"]):
            found = read(tmp_path, case["config"], "mlx-lm")
            verdicts.add(found.verdict)
            assert (found.verdict == "refuses") == ("raises" in case)
            assert case.get("raises", "") in (found.because or "")
            turning = [code for code in found.codes if code.kind == "rotary"] if "rotary" in case else []
            assert len({code.rates for code in turning}) == len(case.get("rotary", ()))
            for code in turning:
                assert any(
                    code.rates == pytest.approx(theirs["rates"], rel=CLOSE)
                    and code.attention_factor == pytest.approx(theirs["attention_factor"], rel=CLOSE)
                    for theirs in case["rotary"]
                )
    assert verdicts == {"same", "differs", "refuses"}, "every kind of answer is among the cases"


def test_the_scaling_of_qwen3_moe_is_dropped(tmp_path):
    case = next(case for case in CASES if case["name"] == "qwen3_moe yarn dropped")
    found = read(tmp_path, case["config"], "mlx-lm")
    assert found.not_read == ("config.json:rope_scaling",)
    (group,) = found.parted
    assert (group.theirs.scaling, group.ladder.first) == (None, 24)


def test_a_type_without_a_file_is_not_loaded(tmp_path):
    found = read(tmp_path, CASES[0]["config"] | {"model_type": "arcee"}, "mlx-lm")
    assert (found.verdict, found.because) == ("refuses", "mlx-lm has no model type arcee.")
