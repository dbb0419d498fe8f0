"""The record of what was tested fails a run that tested less than it was asked to."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import GUARDS, Record, in_part, next_number

CONFTEST = Path(__file__).with_name("conftest.py")
ONE_OF_EACH = """
def test_backend(backend):
    assert backend.to_numpy(backend.asarray([1.0, 2.0], "float32")).tolist() == [1.0, 2.0]
"""
ONE_SKIPPED = """
import pytest
def test_skipped():
    pytest.skip("no particular reason")
def test_passed():
    assert True
"""
# A module that cannot be imported, found before the real one.
ABSENT = "raise ImportError('made absent by this test')\n"


def run(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_inner.py").write_text(test, encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if key not in {"CI", "EXPECT_BACKENDS", "EXPECT_TESTS"}}
    # Of the plugins of pytest only those that conftest.py knows: the others take a third of the time.
    clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-p", "randomly", "-p", "xdist"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(
        command, cwd=folder, env={**clean, **environment}, capture_output=True, text=True, check=False
    )


def test_a_run_of_what_is_there_passes_and_an_absent_backend_skips_or_fails_as_asked(tmp_path: Path):
    (tmp_path / "torch.py").write_text(ABSENT, encoding="utf-8")
    (tmp_path / "jax.py").write_text(ABSENT, encoding="utf-8")
    without = {"PYTHONPATH": str(tmp_path)}
    calm = run(tmp_path, ONE_OF_EACH, EXPECT_BACKENDS="numpy", EXPECT_TESTS="1", **without)
    assert calm.returncode == 0, calm.stdout + calm.stderr
    assert "1 passed, 2 skipped" in calm.stdout
    assert "expected backends: numpy" in calm.stdout
    assert "Using --randomly-seed=" in calm.stdout, "the seed of the random order must be printed"
    strict = run(tmp_path, ONE_OF_EACH, EXPECT_BACKENDS="numpy,torch", **without)
    assert strict.returncode != 0
    assert "torch is expected (EXPECT_BACKENDS) but cannot be imported" in strict.stdout


def test_a_run_that_did_less_fails(tmp_path: Path):
    (tmp_path / "test_whole_file.py").write_text("import pytest\npytest.importorskip('absent')\n", encoding="utf-8")
    done = run(tmp_path, ONE_SKIPPED, EXPECT_TESTS="2", EXPECT_BACKENDS="numpy", CI="true")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    for sentence in (
        "1 tests passed, but EXPECT_TESTS asks for at least 2",
        "no test of the backend numpy passed, but EXPECT_BACKENDS names it",
        "skipped, which CI forbids: test_inner.py::test_skipped: Skipped: no particular reason",
        "skipped, which CI forbids: test_whole_file.py (whole file)",
    ):
        assert f"EXPECTED OTHERWISE: {sentence}" in done.stdout


def test_each_of_these_alone_fails_a_run(monkeypatch: pytest.MonkeyPatch, cases):
    expected = {"EXPECT_TESTS": "2", "EXPECT_BACKENDS": "numpy", "CI": "true"}
    for name, value in expected.items():
        for each in expected:
            monkeypatch.delenv(each, raising=False)
        record = Record()
        record.passed, record.skipped = 1, ["test_inner.py"]
        with cases(name):
            assert record.judge() == []
            monkeypatch.setenv(name, value)
            assert len(record.judge()) == 1


def test_only_the_tests_themselves_may_need_a_library_that_is_absent(tmp_path: Path):
    inner = tmp_path / "tests"
    inner.mkdir()
    needs = "raise ModuleNotFoundError('no jax', name='jax')\n"
    (tmp_path / "package.py").write_text(f"def needs():\n    {needs}", encoding="utf-8")
    both = f"import package\ndef test_it():\n    {needs}def test_package():\n    package.needs()\n"
    without = {"PYTHONPATH": str(tmp_path)}
    assert "1 failed, 1 skipped" in run(inner, both, **without).stdout
    assert "2 failed" in run(inner, both, EXPECT_BACKENDS="jax", **without).stdout


CASES = """
def test_cases(cases):
    for number in range(5):
        with cases("number", number):
            assert number % 2 == 0
        with cases("double", number):
            [][number]
def test_without_cases(cases):
    for number in range(0):
        with cases(number):
            assert False
def test_all_right(cases):
    with cases(1):
        assert True
"""
DRAWN = "def test_drawn(draw):\n    print(draw(range(100), 3), draw('ab', 5))\n    assert 0\n"


def test_a_loop_reports_every_case_that_fails_and_a_sample_follows_from_the_seed(tmp_path: Path):
    one, again, other = (
        run(tmp_path, test, PYTEST_ADDOPTS=f"--randomly-seed={seed}").stdout
        for seed, test in ((7, CASES + DRAWN), (7, DRAWN), (8, DRAWN))
    )
    for line in (
        "7 of 10 cases failed",
        "number, 3\n",
        "test_inner.py:5: assert number % 2 == 0",
        "test_inner.py:7: [][number]",
        "IndexError: list index out of range",
        "no case was tried",
        "1 passed",
    ):
        assert line in one
    drawn, same, another = (
        [line for line in text.splitlines() if line.startswith("[")] for text in (one, again, other)
    )
    assert drawn == same != another
    assert drawn[0].endswith("['a', 'b']")


SLOW = """
import pytest
@pytest.mark.slow
@pytest.mark.parametrize("n", range(40))
def test_slow(n): pass
def test_quick(): pass
"""


def test_a_part_of_the_slow_tests_holds_those_that_always_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert all((CONFTEST.parents[1] / name).is_file() for name in GUARDS)
    guard = tmp_path / GUARDS[-1]
    guard.parent.mkdir()
    guard.write_text("import pytest\n@pytest.mark.slow\ndef test_guard(): pass\n", encoding="utf-8")
    cache = str(tmp_path / "cache")
    # Two processes: both must have the part that the first one drew.
    done = run(tmp_path, SLOW, PYTEST_ADDOPTS="-v -n 2 -m slow --part next", XDG_CACHE_HOME=cache, GITHUB_RUN_NUMBER="")
    assert done.returncode == 0, done.stdout + done.stderr
    ran = {line.split()[-1] for line in done.stdout.splitlines() if " PASSED" in line}
    (number,) = map(int, re.findall(r"part of the slow tests: --part (\d+)", done.stdout))
    slow = {f"test_inner.py::test_slow[{n}]" for n in range(40)}
    assert ran == {f"{GUARDS[-1]}::test_guard", *(each for each in slow if in_part(each, number))}
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.delenv("GITHUB_RUN_NUMBER", raising=False)
    assert (next_number(), next_number()) == (number + 1, number + 2)
    monkeypatch.setenv("GITHUB_RUN_NUMBER", "41")
    assert next_number() == 41


def test_ten_runs_in_a_row_hold_every_slow_test_once():
    tests = [f"tests/a.py::test[{n}]" for n in range(200)]
    for first in (0, 3, 41, 999_998):
        assert [sum(in_part(test, run) for run in range(first, first + 10)) for test in tests] == [1] * 200
    assert 10 < sum(in_part(test, 4) for test in tests) < 30, "a part is about a tenth"
