"""The record of what was tested fails a run that tested less than it was asked to."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import GUARDS, in_part

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
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(
        command, cwd=folder, env={**clean, **environment}, capture_output=True, text=True, check=False
    )


def test_a_run_that_did_what_was_asked_passes(tmp_path: Path):
    done = run(tmp_path, ONE_OF_EACH, EXPECT_BACKENDS="numpy", EXPECT_TESTS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "expected backends: numpy" in done.stdout
    assert "Using --randomly-seed=" in done.stdout, "the seed of the random order must be printed"


@pytest.mark.parametrize(
    ("test", "environment", "sentence"),
    [
        (ONE_SKIPPED, {"EXPECT_TESTS": "2"}, "1 tests passed, but EXPECT_TESTS asks for at least 2"),
        (ONE_SKIPPED, {"EXPECT_BACKENDS": "numpy"}, "no test of the backend numpy passed"),
        (ONE_SKIPPED, {"CI": "true"}, "skipped, which CI forbids: test_inner.py::test_skipped"),
        ("import pytest\npytest.importorskip('absent_module')", {"CI": "true"}, "skipped, which CI forbids"),
    ],
)
def test_a_run_that_did_less_fails(tmp_path: Path, test: str, environment: dict[str, str], sentence: str):
    done = run(tmp_path, test, **environment)
    assert done.returncode != 0, done.stdout
    assert sentence in done.stdout


def test_an_absent_backend_skips_or_fails_as_asked(tmp_path: Path):
    (tmp_path / "torch.py").write_text(ABSENT, encoding="utf-8")
    (tmp_path / "jax.py").write_text(ABSENT, encoding="utf-8")
    without = {"PYTHONPATH": str(tmp_path)}
    calm = run(tmp_path, ONE_OF_EACH, **without)
    assert calm.returncode == 0, calm.stdout
    assert "1 passed, 2 skipped" in calm.stdout
    strict = run(tmp_path, ONE_OF_EACH, EXPECT_BACKENDS="numpy,torch", **without)
    assert strict.returncode != 0
    assert "torch is expected (EXPECT_BACKENDS) but cannot be imported" in strict.stdout


def test_only_the_tests_themselves_may_need_a_library_that_is_absent(tmp_path: Path):
    inner = tmp_path / "tests"
    inner.mkdir()
    (tmp_path / "package.py").write_text(
        "def needs():\n    raise ModuleNotFoundError('no jax', name='jax')\n", encoding="utf-8"
    )
    without = {"PYTHONPATH": str(tmp_path)}
    itself = "def test_it():\n    raise ModuleNotFoundError('no jax', name='jax')\n"
    assert "1 skipped" in run(inner, itself, **without).stdout
    assert run(inner, itself, EXPECT_BACKENDS="jax", **without).returncode != 0
    assert "1 failed" in run(inner, "import package\ndef test_it():\n    package.needs()\n", **without).stdout


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


def test_a_loop_reports_every_case_that_fails(tmp_path: Path):
    done = run(tmp_path, CASES)
    assert "7 of 10 cases failed" in done.stdout
    assert "number, 3\n" in done.stdout
    assert "test_inner.py:5: assert number % 2 == 0" in done.stdout
    assert "test_inner.py:7: [][number]" in done.stdout
    assert "IndexError: list index out of range" in done.stdout
    assert "no case was tried" in done.stdout
    assert "1 passed" in done.stdout


def test_a_drawn_sample_follows_from_the_seed(tmp_path: Path):
    test = "def test_drawn(draw):\n    print(draw(range(100), 3), draw('ab', 5))\n    assert 0\n"
    one, again = (run(tmp_path, test, PYTEST_ADDOPTS="--randomly-seed=7").stdout for _ in range(2))
    drawn = [line for line in one.splitlines() if line.startswith("[")]
    assert drawn == [line for line in again.splitlines() if line.startswith("[")]
    assert drawn[0].endswith("['a', 'b']")
    other = run(tmp_path, test, PYTEST_ADDOPTS="--randomly-seed=8").stdout
    assert drawn != [line for line in other.splitlines() if line.startswith("[")]


SLOW = """
import pytest
@pytest.mark.slow
@pytest.mark.parametrize("n", range(40))
def test_slow(n): pass
def test_quick(): pass
"""


def test_a_part_of_the_slow_tests_holds_those_that_always_run(tmp_path: Path):
    assert all((CONFTEST.parents[1] / name).is_file() for name in GUARDS)
    guard = tmp_path / GUARDS[-1]
    guard.parent.mkdir()
    guard.write_text("import pytest\n@pytest.mark.slow\ndef test_guard(): pass\n", encoding="utf-8")
    ran = []
    for number in ("7", "8", "next", "next"):
        done = run(
            tmp_path, SLOW, PYTEST_ADDOPTS=f"-v -n 2 -m slow --part {number}", XDG_CACHE_HOME=str(tmp_path / "cache")
        )
        assert done.returncode == 0, done.stdout + done.stderr
        ran.append({line.split()[-1] for line in done.stdout.splitlines() if " PASSED" in line})
        assert f"{GUARDS[-1]}::test_guard" in ran[-1]
        assert len(ran[-1]) < 30
        printed = re.search(r"part of the slow tests: --part (\d+)", done.stdout)
        assert printed
        numbers = int(printed[1]) if number == "next" else None
    assert not (ran[0] & ran[1]) - {f"{GUARDS[-1]}::test_guard"}, "parts 7 and 8 are of one round"
    assert numbers == int((tmp_path / "cache" / "clockhands" / "slow-part").read_text())


def test_ten_runs_in_a_row_hold_every_slow_test():
    for first in (0, 3, 41, 999_998):
        runs = range(first, first + 10)
        assert all(any(in_part(f"tests/a.py::test[{n}]", run) for run in runs) for n in range(200))
    assert 20 < sum(in_part(f"tests/a.py::test[{n}]", 4) for n in range(200)) < 60, "a part is about a fifth"
