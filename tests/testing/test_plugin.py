"""The pytest plugin: what a failing check looks like to whoever runs the tests, and what marker and fixture take."""

import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "checking.md"

pytest_plugins = ["pytester"]

ROPE = """
    import numpy as np

    def apply_rotary(x, positions, base=10_000.0):
        half = x.shape[-1] // 2
        rates = base ** (-np.arange(half) / half)
        angles = positions[:, None] * rates
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)

    def wrong_base(x, positions):
        return apply_rotary(x, positions, 500_000.0)

    def raises(x, positions):
        return positions + "a"

    def raises_far_away(x, positions):
        if positions.max() > 50:
            raise IndexError("the table has 50 rows")
        return apply_rotary(x, positions)
"""


@pytest.fixture
def project(pytester):
    """A project with a module `rope` beside its tests; run in a process of its own, as libraries are imported there."""
    pytester.makepyfile(rope=ROPE)
    pytester.syspathinsert()
    return pytester


FAILING = """
    import clockhands as ch
    import pytest
    import rope
    from clockhands.testing import check_rotary

    SPEC = ch.Rotary(16)

    @pytest.mark.clockhands(like=SPEC, length=300)
    def test_marked(clockhands):
        clockhands.check(rope.wrong_base)

    def test_by_hand():
        check_rotary(rope.wrong_base, SPEC, length=300)

    def test_of_something_else():
        assert 1 == 2

    def test_of_a_file():
        ch.audit("nowhere/at/all.json")

    def test_that_raises(clockhands):
        clockhands.check_rotary(rope.raises_far_away, SPEC)

    @pytest.mark.clockhands(like=SPEC, lenght=3)
    def test_with_a_wrong_option(clockhands):
        clockhands.check(rope.apply_rotary)

    @pytest.mark.clockhands(like="lama2")
    def test_with_a_wrong_name(clockhands):
        clockhands.check(rope.apply_rotary)

    @pytest.mark.clockhands(length=3)
    def test_like_nothing(clockhands):
        clockhands.check(rope.apply_rotary)

    def test_of_a_number(clockhands):
        clockhands.check_rotary(3, SPEC)

    def test_of_another_signature(clockhands):
        clockhands.check_rotary(lambda x, at, more: x, SPEC)

    def test_that_raises_at_once(clockhands):
        clockhands.check_rotary(rope.raises, SPEC)

    @pytest.mark.clockhands(like="llama2")
    def test_without_the_fixture():
        pass
"""


@pytest.fixture(scope="module")
def ran():
    """What was run already, for the tests of this file that look at the same run."""
    return {}


@pytest.fixture
def failing(project, ran):
    """The output of a run in which everything fails: the lines of each test by its name, and all of it."""
    if not ran:
        project.makepyfile(test_rope=FAILING)
        result = project.runpytest_subprocess("-p", "no:randomly", "--strict-markers", "--junit-xml=out.xml")
        result.assert_outcomes(failed=11, errors=1)
        ran["lines"] = [line.rstrip() for line in result.outlines]
        ran["properties"] = [each.attrib for each in ET.parse(project.path / "out.xml").iter("property")]
    return ran


def lines_after(lines, start):
    """The lines from the first that holds this on."""
    return lines[next(number for number, line in enumerate(lines) if start in line) :]


def section(lines, name):
    """What is shown of one test."""
    shown = lines_after(lines, f" {name} ____")[1:]
    return shown[: next(number for number, line in enumerate(shown) if line.startswith(("____", "====")))]


def test_a_failing_check_shows_the_line_of_the_test_and_the_report_with_the_fixture_or_without(failing):
    shown = section(failing["lines"], "test_marked")
    assert shown[shown.index("    def test_marked(clockhands):") :][:9] == [
        "    def test_marked(clockhands):",
        ">       clockhands.check(rope.wrong_base)",
        "E       clockhands.testing.CheckFailed: wrong_base is wrong; expected RoPE, half-split, 16 of 16 "
        "dimensions, geometric (base",
        "E       10000, open).",
        "E",
        "E       The function computes its frequencies from base 500,000 instead of 10,000.",
        "E         hint: Pass the base to the code that computes the frequencies, and look for a default",
        "E           that is used instead.",
        "E         seen in: SpecForge#265, DeepSpeed#8341, MarinFold#184",
    ]
    evidence = lines_after(shown, "Failed, ")
    assert evidence[1].startswith("E         a few positions: "), "what separates the fault comes first"
    assert not any("clockhands/testing" in line for line in shown), "nothing of ours stands between"
    assert shown[-2:] == ["", "test_rope.py:10: CheckFailed"]
    by_hand = section(failing["lines"], "test_by_hand")
    assert ">       check_rotary(rope.wrong_base, SPEC, length=300)" in by_hand
    assert [line for line in by_hand if line.startswith("E")] == [line for line in shown if line.startswith("E")]
    assert not any("clockhands/testing" in line for line in by_hand)


def test_a_summary_names_each_failed_check(failing):
    told = lines_after(failing["lines"], "wrong position encodings (clockhands)")
    said = "wrong_base computes its frequencies from base 500,000 instead of 10,000. [another-base]"
    assert told[1:3] == [f"test_rope.py::test_marked: {said}", f"test_rope.py::test_by_hand: {said}"]
    assert not told[3].startswith("test_rope.py")
    assert failing["properties"] == [{"name": "clockhands failed", "value": said}] * 2, "for JUnit files"


MISUSED = [
    ("test_with_a_wrong_option", "check_rotary has no option 'lenght'."),
    ("test_with_a_wrong_name", "There is no preset 'lama2'."),
    ("test_like_nothing", "`like` is missing: the encoding that the function should compute."),
    ("test_of_a_number", "Expected a function, got 3."),
    ("test_of_another_signature", "The function was called as function(x [4, 16], positions [seq]): "),
]


def test_misuse_is_a_sentence_and_a_hint(failing, cases):
    for name, told in MISUSED:
        with cases(name):
            shown = section(failing["lines"], name)
            errors = [line for line in shown if line.startswith("E ")]
            assert told in errors[-2]
            assert errors[-1].startswith("E       hint: ")
            assert sum(line.startswith(">") for line in shown) == 1
            assert not any("clockhands/testing" in line for line in shown)


def test_what_the_function_raises_is_shown_where_it_is_raised(failing):
    shown = section(failing["lines"], "test_that_raises")
    assert '>           raise IndexError("the table has 50 rows")' in shown
    assert ">       clockhands.check_rotary(rope.raises_far_away, SPEC)" in shown
    errors = [line for line in shown if line.startswith("E ")]
    assert errors[0] == "E           IndexError: the table has 50 rows"
    assert "clockhands.testing.CannotCheck: " in errors[1]
    assert "it raised IndexError: the table has 50 rows" in errors[1]
    assert not any("clockhands/testing" in line for line in shown)
    shown = section(failing["lines"], "test_that_raises_at_once")
    assert '>       return positions + "a"' in shown
    assert "clockhands.testing.CannotCheck: " in [line for line in shown if line.startswith("E ")][-2]


def test_other_failures_keep_their_tracebacks(failing):
    assert any("clockhands/configs" in line for line in section(failing["lines"], "test_of_a_file"))
    assert "E       assert 1 == 2" in section(failing["lines"], "test_of_something_else")


def test_a_marked_test_without_the_fixture_fails(failing):
    shown = section(failing["lines"], "ERROR at setup of test_without_the_fixture")
    assert shown == [
        "The test is marked `clockhands` and takes no fixture `clockhands`, so it checks nothing.",
        "hint: Write def test_...(clockhands): clockhands.check(function).",
    ]


def test_what_is_right_passes_under_strict_markers_and_warnings_as_errors_without_torch_and_jax(project):
    project.makeconftest('import sys\nsys.modules |= dict.fromkeys(("torch", "jax", "transformers"))')
    project.makepyfile("""
        import pytest
        import rope

        pytestmark = pytest.mark.clockhands(like="llama3", length=300)

        @pytest.mark.clockhands("llama2:head_width=16")
        class TestRope:
            def test_of_the_class(self, clockhands):
                report = clockhands.check(rope.apply_rotary)
                assert report.kind == "rotary" and report.sound and report.called["rows"] < 4000

            @pytest.mark.clockhands(length=200)
            def test_of_the_function(self, clockhands):
                assert clockhands.check(rope.apply_rotary).spec.base == 10_000

            def test_of_the_call(self, clockhands):
                assert not clockhands.check(rope.apply_rotary, like="llama3:head_width=16", raises=False).sound

        def test_named(clockhands):
            assert clockhands.check_rotary(rope.apply_rotary, "llama2:head_width=16", length=300).sound
    """)
    result = project.runpytest_subprocess("--strict-markers", "--strict-config", "-W", "error", "--junit-xml=out.xml")
    result.assert_outcomes(passed=4)
    properties = [each.attrib for each in ET.parse(project.path / "out.xml").iter("property")]
    assert [each["name"] for each in properties] == ["clockhands"] * 3
    assert all(each["value"].startswith("apply_rotary is correct") for each in properties)


# pytester takes what a test imports out of `sys.modules` again, which PyTorch does not survive: none imports it here.
def there(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"could not import {name!r}")


@pytest.mark.slow
@there("xdist")
def test_it_works_in_several_processes(project):
    project.makepyfile("""
        import clockhands as ch
        import pytest
        import rope

        @pytest.mark.parametrize("number", range(3))
        def test_rope(clockhands, number):
            clockhands.check_rotary(rope.wrong_base if number else rope.apply_rotary, ch.Rotary(16), length=300)
    """)
    result = project.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=1, failed=2)
    told = lines_after(result.outlines, "wrong position encodings (clockhands)")
    assert sum(line.endswith("[another-base]") for line in told) == 2


@pytest.mark.slow
@there("torch")
def test_what_the_document_shows_passes(project):
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    project.makepyfile(test_document="\n".join(shown))
    project.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)


def test_the_marker_is_described(project):
    # In a process of its own: what plugins import must not be taken out of this one again.
    result = project.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.clockhands(like=None, [*][*]options): what clockhands.check(function)*"])


def test_it_costs_a_run_of_pytest_next_to_nothing():
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport clockhands.testing.plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('clockhands')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "click", "rich", "torch", "jax"} & set(done.stdout.split())
    assert len(done.stdout.split()) < 10, done.stdout
