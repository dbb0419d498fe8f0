"""How a report reads: what it is like, what to do, the evidence, and what was not asked, in this order."""

import json
import pickle

import pytest

import clockhands as ch
from clockhands.recognition.faults import FAULTS
from clockhands.testing import CheckFailed, Explanation, Failure, Report, check_rotary

CODE = "table-ends"
SOUND = Report(
    "turned",
    "rotary",
    "RoPE, half-split",
    experiments=("a few positions", "every position"),
    left_out={"two models": "pass make=, a function of a spec", "coordinates": "the encoding has one axis"},
    called={"library": "numpy", "dtype": "float32", "calls": 12, "rows": 3456},
    worst=0.456,
)
FAILED = Report(
    "turned",
    "rotary",
    "RoPE, half-split",
    experiments=("first", "second", "third", "every position", "last", "kept"),
    left_out={"two models": "pass make=, a function of a spec", "coordinates": "the encoding has one axis"},
    failures=tuple(
        Failure(name, f"{name}: 3 of 4 numbers are wrong.", {"wrong": 3, "position": float("inf")})
        for name in ("first", "second", "third", "every position", "last")
    ),
    explanations=(
        Explanation((CODE,), "repeats its last row.", "Make it longer.", ("somebody#1", "nobody#2"), {"rows": 3}),
        Explanation(("one", "other"), "is rounded.", "Do not.", where="layers.3"),
    ),
    worst=float("nan"),
)


def lines(report, **options):
    return [line.text for line in report.lines(**options)]


def test_a_sound_report_is_short(snapshot):
    assert str(SOUND) == snapshot


def test_a_failed_report_tells_what_it_is_like_before_the_evidence(snapshot):
    assert lines(FAILED) == snapshot


def test_the_experiment_that_separates_the_fault_is_told_first():
    code = next(code for code, fault in FAULTS.items() if fault.shown_by == "positions that start later")
    failures = tuple(Failure(name, "wrong.") for name in ("any", "every position", "positions that start later"))
    report = Report("f", "rotary", "g", ("any",), failures=failures, explanations=(Explanation((code,), "is.", "Do."),))
    told = lines(report)
    heading = next(number for number, line in enumerate(told) if line.startswith("Failed"))
    assert told[heading + 1 : heading + 4] == [
        "positions that start later: wrong.",
        "every position: wrong.",
        "any: wrong.",
    ]


def test_verbose_tells_all_evidence_and_every_reason():
    told = lines(FAILED, verbose=True)
    assert sum(line.endswith("3 of 4 numbers are wrong.") for line in told) == 5
    assert "Skipped: coordinates (the encoding has one axis)." in told
    assert not any("--verbose" in line for line in told)


def test_what_is_beside_the_experiments_or_the_known_faults_is_said():
    failures = tuple(Failure(name, "wrong.") for name in ("a", "arguments stay as they are"))
    told = lines(Report("f", "rotary", "g", ("a",), failures=failures))
    assert "Failed, 2 of 2 experiments:" in told
    told = lines(Report("f", "generation", "g", ("a",), failures=(Failure("a", "wrong."),)))
    assert told[2] == "No known fault has these symptoms."
    assert "identify" not in told[3], "which takes functions"
    assert "Nothing passed." in told


def test_lines_are_broken_between_words_and_numbers_stay_with_their_nouns():
    report = Report("f" * 100, "rotary", "g", ("a",), failures=(Failure("a", "word " * 16 + "position 1,234 is off."),))
    text = str(report)
    assert "position 1,234" in text
    assert "f" * 100 in text, "a name is not broken"
    assert max(len(line) for line in text.splitlines() if "f" * 100 not in line) <= 88
    assert "\N{NO-BREAK SPACE}" not in text


def test_a_report_is_strict_json():
    told = json.loads(json.dumps(FAILED.to_dict(), allow_nan=False))
    assert told["worst"] == "NaN"
    assert told["failures"][0]["evidence"] == {"wrong": 3, "position": "Infinity"}
    assert told["explanations"][1] == {
        "codes": ["one", "other"],
        "message": "is rounded.",
        "hint": "Do not.",
        "cases": [],
        "evidence": {},
        "where": "layers.3",
    }
    assert json.loads(json.dumps(SOUND.to_dict()))["sound"] is True


def test_what_is_raised_is_the_report_and_survives_another_process():
    with pytest.raises(CheckFailed) as raised:
        check_rotary(lambda x, _: x, ch.Rotary(8), length=50)
    assert str(raised.value) == str(raised.value.report)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert again.report.codes == raised.value.report.codes
    assert isinstance(raised.value, AssertionError)


def test_a_lambda_is_called_by_its_line():
    report = check_rotary(lambda x, _: x, ch.Rotary(8), length=50, raises=False)
    assert report.subject.startswith("lambda at test_reports.py:")

    def kept(x, _):
        return x

    assert check_rotary(kept, ch.Rotary(8), length=50, raises=False).subject == "kept"
