"""`clockhands check`: somebody's function from a shell: what is said, the exit codes, JSON, and what hangs."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import clockhands as ch
from late import Late

from .conftest import PROGRAM, TURNED

jsonschema = Late("jsonschema")

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "check.schema.json"
MODULE = f"""{TURNED}
import ctypes
import os
import sys
import time
def apply_rotary(x, positions):
    print("the function talks")
    return turned(x, positions)

def wrong_base(x, positions):
    return turned(x, positions, 500_000.0)

def build(spec):
    return lambda x, positions: turned(x, positions, spec.base)

_kept = []

def build_once(spec):
    if not _kept:
        _kept.append(build(spec))
    return _kept[0]

def by_heads(x, positions):  # [seq, heads, width]
    return np.moveaxis(turned(np.moveaxis(x, 0, 1), positions), 1, 0)

def added(x, positions):
    return (x + table(positions, x.shape[-1])).astype(x.dtype)

def table(positions, width):
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(positions), width)

def nothing_added(x, positions):
    return x

def slopes(queries, keys):
    return -(2.0 ** -np.arange(1.0, 9))[:, None, None] * np.abs(queries[:, None] - keys)

def hangs(x, positions):
    while True:
        time.sleep(0.05)

def hangs_for_many(x, positions):
    if len(positions) == 1:
        hangs(x, positions)
    return turned(x, positions)

def infinite(x, positions):
    out = turned(x, positions)
    out[positions == 3] = np.inf
    return out

def wrong_in_place(x, positions):
    x[:] = turned(x, positions, 777_777.0) * 1.5 + 1
    return x

def ends_it_for_many(x, positions):
    return turned(x, positions) if len(positions) < 10 else os._exit(0)

def talks_below_python(x, positions):
    os.write(1, b"below Python\\n")
    if os.name != "nt":
        child = os.fork()  # a process of its own, which ends as it wants
        if not child:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        ctypes.CDLL(None).printf(b"a library of C, %d\\n", len(positions))  # kept back until the process ends
    return turned(x, positions)
"""
LLAMA = ("--like", "llama2:head_width=16", "--length", "300")


@pytest.fixture
def checked(run, tmp_path, monkeypatch):
    """Run `clockhands check somebodys:NAME …` in a folder that holds the module."""
    (tmp_path / "somebodys.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys", raising=False)
    yield lambda name, *words: run("check", f"somebodys:{name}", *words)
    sys.modules.pop("somebodys", None)


def in_a_process(folder, command, name, *words):
    """The same in a process of its own, as a function that hangs or ends its process needs it."""
    (folder / "somebodys.py").write_text(MODULE, encoding="utf-8")
    (folder / "ends_when_imported.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    words = [*PROGRAM, command, name, *words]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=100)


def test_a_right_function_is_exit_code_0_and_its_talk_goes_to_stderr(checked):
    done = checked("apply_rotary", *LLAMA)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "somebodys:apply_rotary is correct: RoPE, half-split, 16 of 16 dimensions,"
    assert lines[2].startswith("11 experiments in ")
    assert sum(line.startswith("Skipped: ") for line in lines) == 2, "what does not apply is one line"
    assert set(done.err.splitlines()) == {"the function talks"}


def test_a_wrong_function_is_exit_code_1_and_is_explained_before_the_evidence(checked):
    done = checked("wrong_base", *LLAMA)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(
        textwrap.dedent("""\
            somebodys:wrong_base is wrong; expected RoPE, half-split, 16 of 16 dimensions,
            geometric (base 10000, open).

            The function computes its frequencies from base 500,000 instead of 10,000.
              hint: Pass the base to the code that computes the frequencies, and look for a
                default that is used instead.
              seen in: SpecForge#265, DeepSpeed#8341, MarinFold#184
              code: another-base (clockhands explain another-base)

            Failed, """)
    )
    assert "  a few positions: " in done.out
    assert "Passed: norms are kept." in done.out
    assert len(checked("wrong_base", *LLAMA, "-v").out) > len(done.out)


def test_json_is_one_document_of_the_published_schema_which_refuses_what_is_no_report(checked):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for name, sound in (("apply_rotary", True), ("wrong_base", False), ("infinite", False)):
        done = checked(name, *LLAMA, "--json")
        assert done.code == int(not sound)
        told = json.loads(done.out, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
        jsonschema.Draft202012Validator(schema).validate(told)
        assert (told["target"], told["subject"], told["sound"]) == (*[f"somebodys:{name}"] * 2, sound)
        assert told["spec"] == json.loads(ch.to_json(ch.preset("llama2", head_width=16)))
    assert told["worst"] == "Infinity"
    for change in ({"sound": True}, {"kind": "rope"}, {"schema": 2}, {"failures": []}, {"worst": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema).validate(told | change)


KINDS = [
    ("added", ("--like", "vaswani2017:width=16"), 0),
    ("added", ("--like", "vaswani2017", "--width", "16"), 0),
    ("nothing_added", ("--like", "vaswani2017", "--width", "16"), 1),
    ("slopes", ("--like", "alibi"), 0),
    ("apply_rotary", ("--like", "llama2", "--width", "16"), 0),
    ("by_heads", ("--like", "llama2", "--width", "16", "--axes", "seq heads width"), 0),
    ("wrong_base", ("--like", "spec.json"), 0),
    ("build", ("--make", "--like", "llama2:head_width=16"), 0),
    ("build_once", ("--make", "--like", "llama2:head_width=16"), 1),
]


def test_the_kind_follows_from_the_spec(checked, cases):
    Path("spec.json").write_text(ch.to_json(ch.Rotary(16, base=500_000.0)), encoding="utf-8")
    kinds = {"vaswani2017": "additive", "alibi": "bias"}
    for name, words, code in KINDS:
        with cases(name, *words):
            done = checked(name, "--length", "300", "--json", *words)
            assert done.code == code, done.out + done.err
            assert json.loads(done.out)["kind"] == kinds.get(words[1].partition(":")[0], "rotary")


def test_a_spec_that_identify_wrote_is_taken(run, checked):
    assert run("table", "vaswani2017:width=16", "--positions", "64", "--out", "table.npy").code == 0
    Path("found.json").write_text(run("identify", "table.npy", "--json").out, encoding="utf-8")
    assert checked("added", "--like", "found.json", "--length", "300").code == 0


def test_a_function_that_hangs_does_not_keep_the_process(tmp_path):
    start = time.monotonic()
    done = in_a_process(tmp_path, "check", "somebodys:hangs", *LLAMA, "--timeout", "0.5", "--backend", "numpy")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: The function was called as function(x [4, 16], positions [seq]): ")
    assert error.endswith("it did not return within 0.5 seconds.")
    assert hint.startswith("hint: ")
    assert time.monotonic() - start < 90, "the call that hangs would go on for ever"


def test_a_function_that_hangs_once_still_has_its_report(tmp_path):
    words = ("somebodys:hangs_for_many", *LLAMA, "--timeout", "0.5", "--backend", "numpy", "--json")
    done = in_a_process(tmp_path, "check", *words)
    told = json.loads(done.stdout)
    assert done.returncode == int(not told["sound"])
    assert "did not return" in json.dumps(told)


def test_a_fault_that_is_ignored_is_left_out_with_what_it_explains(checked):
    done = checked("wrong_base", *LLAMA, "--backend", "numpy", "--ignore", "another-base", "--json")
    told = json.loads(done.out)
    assert (done.code, told["sound"], told["failures"], told["explanations"]) == (0, True, [], [])
    assert re.search(r"^note: somebodys:wrong_base: \d+ failures left out by --ignore\.$", done.err, re.MULTILINE)
    kept = checked("wrong_base", *LLAMA, "--backend", "numpy", "--ignore", "changes-its-arguments,other-layout")
    assert (kept.code, kept.err) == (1, "")
    # What is noticed beside the experiments explains nothing but itself.
    name = "wrong_in_place"
    done = checked(name, *LLAMA, "--backend", "numpy", "--json", "--ignore", "changes-its-arguments")
    told = json.loads(done.out)
    assert (done.code, told["sound"], told["explanations"]) == (1, False, [])
    assert re.search(rf"^note: somebodys:{name}: 1 failure left out by --ignore\.$", done.err, re.MULTILINE)
    assert "arguments stay as they are" not in {failure["experiment"] for failure in told["failures"]}
    assert "a few positions" in {failure["experiment"] for failure in told["failures"]}


def test_a_function_that_ends_the_process_is_no_success(tmp_path, cases):
    ended = "it called os._exit(0), which ends the process."
    for command, name, said in (
        ("check", "somebodys:ends_it_for_many", ended),
        ("check", "ends_when_imported:anything", "os._exit(0)"),
        ("identify", "somebodys:ends_it_for_many", ended),
    ):
        with cases(command, name):
            how = (*LLAMA, "--backend", "numpy") if command == "check" else ("--width", "16")
            done = in_a_process(tmp_path, command, name, *how)
            assert (done.returncode, done.stdout) == (2, "")
            assert said in done.stderr
            assert done.stderr.startswith("error: ")


def test_json_stands_alone_on_stdout_whatever_writes_to_its_descriptor(tmp_path, cases):
    for command, how in (
        ("check", (*LLAMA, "--backend", "numpy")),
        ("identify", ("--width", "16", "--longest", "300")),
    ):
        with cases(command):
            done = in_a_process(tmp_path, command, "somebodys:talks_below_python", *how, "--json")
            assert done.returncode == 0
            assert json.loads(done.stdout)["target"] == "somebodys:talks_below_python"
            assert "below Python\n" in done.stderr
            assert os.name == "nt" or "a library of C, " in done.stderr


def test_identify_waits_for_a_function_no_longer_than_it_is_told(tmp_path):
    done = in_a_process(tmp_path, "identify", "somebodys:hangs_for_many", "--width", "16", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    called = r"error: The function was called with \d+ rows?, and it did not return within 0.5 seconds\."
    assert re.fullmatch(called, error)
    assert hint == "hint: Give it more time: timeout= (--timeout on a command line), or name a function that returns."


def test_no_colour_where_none_is_wanted(checked, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in checked("wrong_base", *LLAMA, "--backend", "numpy").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in checked("wrong_base", *LLAMA, "--backend", "numpy").out


def test_names_in_a_report_cannot_move_the_cursor(capsys):
    from clockhands.show.explanation import print_report
    from clockhands.testing import Failure, Report

    report = Report("a\x1b[2Jb", "rotary", "c", ("d",), failures=(Failure("d", "e\x07f"),))
    print_report(report, width=80)
    assert "\x1b" not in (out := capsys.readouterr().out)
    assert "\x07" not in out
    assert "\\x1b" in out


TORCH_MODULE = """
import torch

class Right(torch.nn.Module):
    dtype = torch.float32

    def forward(self, x, positions):
        rates = 10_000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
        angles = positions[..., None].to(torch.float64) * rates
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

class Wrong(Right):
    dtype = torch.bfloat16

right, wrong = Right(), Wrong()
"""


def test_a_module_is_checked_as_a_module(run, tmp_path, monkeypatch, cases):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somemodules.py").write_text(TORCH_MODULE, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "somemodules", raising=False)
    for name in ("Right", "right", "wrong"):
        with cases(name):
            done = run("check", f"somemodules:{name}", "--like", "llama2:head_width=16", "--length", "300", "--json")
            told = json.loads(done.out)
            assert told["kind"] == "module"
            assert done.code == int(name == "wrong"), done.out
            jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(told)
    sys.modules.pop("somemodules", None)


def test_a_model_to_generate_with_may_be_a_forward_function_or_what_builds_it(run, tmp_path, monkeypatch, cases):
    monkeypatch.chdir(tmp_path)
    Path("small.py").write_text(
        textwrap.dedent("""
            import numpy as np

            ROWS = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)

            def forward(input_ids, past_key_values=None):
                return ROWS[input_ids], "nothing is kept"

            def model():
                return forward
        """)
    )
    for name in ("forward", "model"):
        with cases(name):
            done = run("check", f"small.py:{name}", "--kind", "generation", "--json")
            assert done.code == 0, done.err
            told = json.loads(done.out)
            assert told["sound"]
            assert "one token at a time" in told["experiments"]


def test_a_function_whose_arguments_tell_needs_no_encoding(run, tmp_path):
    file = tmp_path / "steps.py"
    file.write_text("import numpy as np\ndef at(start, n): return np.arange(n) + start + 1\n")
    done = run("check", f"{file}:at")
    assert done.code == 1
    assert "window-shifted" in done.out
