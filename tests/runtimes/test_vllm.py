"""vLLM of two ages as it is described, against what its own rotary code computed from the same configs."""

import json
from pathlib import Path

import pytest

from runtimes.reading_files import read

RELEASES = {"vllm": "vllm_0_33.json", "vllm-0.11": "vllm_0_11.json"}
CASES = [
    (reader, case)
    for reader, name in RELEASES.items()
    for case in json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))["cases"]
]

# float32 throughout, and the angles are taken back from sine and cosine.
CLOSE = 5e-6


def test_it_computes_what_the_library_computes(tmp_path, cases):
    verdicts = {reader: set() for reader in RELEASES}
    for reader, case in CASES:
        with cases(reader, case["name"]):
            found = read(tmp_path, case["config"], reader, case["length"])
            verdicts[reader].add(found.verdict)
            assert (found.verdict == "refuses") == ("raises" in case)
            assert case.get("raises", "") in (found.because or "")
            for code in (code for code in found.codes if code.kind == "rotary" and "rotary" in case):
                theirs = case["rotary"]["sliding" if code.window is not None and "sliding" in case["rotary"] else "all"]
                assert code.rates == pytest.approx(theirs["rates"], rel=CLOSE)
                assert code.attention_factor == pytest.approx(theirs["attention_factor"], rel=CLOSE)
    # Every kind of answer is among the cases.
    assert all(found == {"same", "differs", "refuses"} for found in verdicts.values()), verdicts


def test_the_old_release_raises_the_base_once_for_all_lengths(tmp_path):
    case = next(case for of, case in CASES if of == "vllm-0.11" and case["name"] == "dynamic short")
    found = read(tmp_path, case["config"], "vllm-0.11", 1000)
    assert (found.verdict, found.longest) == ("differs", 8192)


def test_the_new_release_never_raises_it(tmp_path):
    case = next(case for of, case in CASES if of == "vllm" and case["name"] == "dynamic long")
    found = read(tmp_path, case["config"], "vllm", 16384)
    assert (found.verdict, found.longest) == ("differs", 8192)
    assert found.codes[0].scaling is None
