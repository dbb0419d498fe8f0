"""Every file of sentences is held by one test, and what is wrong in one, or in a row of a table, is noticed."""

import re
from pathlib import Path

import pytest

from conftest import Cases
from oracles import sentences
from oracles.rows import every


def test_every_file_is_held_by_one_test():
    tests = [path.read_text("utf-8") for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]
    held = [name for text in tests for name in re.findall(r'^ +sentences\.hold\("(\w+)", cases\)$', text, re.MULTILINE)]
    assert sorted(held) == sorted(path.stem for path in sentences.FOLDER.iterdir())


def test_wrong_answers_are_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(sentences, "FOLDER", tmp_path)
    calls = {"n": "1", "n + 1": "1", "1 / 0": "", "ch.Rotary(0)": "InvalidValue: `head_width` must be at least 1"}
    text = "\n\n".join(f">>> {call}\n{answer}" for call, answer in calls.items())
    (tmp_path / "some.txt").write_text(f">>> import clockhands as ch\n>>> n = 1\n{text}\n", encoding="utf-8")
    found = Cases()
    sentences.hold("some", found)
    assert found.tried == 4
    assert [failure.partition("\n")[0] for failure in found.failures] == [
        "some.txt:6, n + 1",
        "some.txt:9, 1 / 0",
        "some.txt:12, ch.Rotary(0)",
    ]


def test_rows_that_fail_are_all_reported():
    @every("number, wanted", [(1, 1), (2, 3), (4, 4), (5, 6)])
    def test(number, wanted):
        assert number == wanted

    found = Cases()
    test(found, None)
    assert found.tried == 4
    assert [failure.partition("\n")[0] for failure in found.failures] == ["number=2, wanted=3", "number=5, wanted=6"]
    with pytest.raises(AssertionError, match="2 of 4 cases failed"):
        found.judge()
