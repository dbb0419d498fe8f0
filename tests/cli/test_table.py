import csv
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open

import clockhands as ch
import clockhands.cli.table as command
from clockhands.encodings.grids import Grid

SMALL = "vaswani2017:width=4"


def test_positions_as_people_write_them(run, tmp_path, cases):
    for text, positions in (
        ("5", [0, 1, 2, 3, 4]),
        ("0", []),
        ("5,", [5]),
        ("3:6", [3, 4, 5]),
        ("0:10:4", [0, 4, 8]),
        ("3:0:-1", [3, 2, 1]),
        ("-2:1", [-2, -1, 0]),
        ("0,7,1000000000000000000", [0, 7, 10**18]),
        ("0.5, 1.25,-3", [0.5, 1.25, -3]),
        ("0.5", [0.5]),
        ("1_000:1_002", [1000, 1001]),
        ("-9223372036854775808,9223372036854775808", [-(2**63), 2**63]),
    ):
        with cases(text):
            out = tmp_path / "t.csv"
            done = run("table", SMALL, "--positions", text, "--out", out, "--force")
            assert (done.code, done.out) == (0, "")
            rows = list(csv.reader(out.read_text(encoding="utf-8").splitlines()))
            assert rows[0] == ["position", "0", "1", "2", "3"]
            assert [float(row[0]) if "." in row[0] else int(row[0]) for row in rows[1:]] == positions
            numbers = np.array([row[1:] for row in rows[1:]], dtype=np.float32).reshape(-1, 4)
            assert np.array_equal(numbers, ch.table(ch.preset("vaswani2017", width=4), positions))


def test_a_grid_with_rows_that_stand_nowhere_and_in_another_order(run, tmp_path):
    spec = ch.preset("mae", width=8)
    for text, grid in {
        "3x4": Grid((3, 4)),
        "2+3x4/1,0": Grid((3, 4), order=(1, 0), prefix=2),
    }.items():
        done = run("table", "mae:width=8", "--positions", text, "--out", tmp_path / "t.npy", "--force")
        assert done.code == 0, done.err
        assert np.array_equal(np.load(tmp_path / "t.npy"), ch.table(spec, grid))


def test_files_hold_exactly_what_the_library_makes(run, tmp_path, cases):
    for dtype in ("float64", "float32", "float16"):
        with cases(dtype):
            expected = ch.table(ch.preset("vaswani2017", width=6), range(3, 9), dtype=dtype)
            for kind in ("npy", "npz", "safetensors", "csv"):
                out = tmp_path / f"t.{kind}"
                words = ("--positions", "3:9", "--dtype", dtype, "--out", out, "--force")
                done = run("table", "vaswani2017:width=6", *words)
                assert (done.code, done.out, done.err) == (0, "", f"{out}: 6 positions x 6 dimensions, {dtype}.\n")
            with np.load(tmp_path / "t.npz") as members:
                archive = dict(members)
            with safe_open(tmp_path / "t.safetensors", "np") as tensors:
                inside, positions, spec = (
                    tensors.get_tensor("table"),
                    tensors.get_tensor("positions"),
                    tensors.metadata(),
                )
            from_csv = np.loadtxt(tmp_path / "t.csv", delimiter=",", skiprows=1, dtype=np.float64)[:, 1:].astype(dtype)
            for numbers in (np.load(tmp_path / "t.npy"), archive["table"], inside, from_csv):
                assert numbers.dtype == expected.dtype
                assert np.array_equal(numbers, expected)
            assert archive["positions"].tolist() == positions.tolist() == [3, 4, 5, 6, 7, 8]
            paper = ch.preset("vaswani2017", width=6)
            assert ch.from_json(str(archive["spec"])) == ch.from_json(spec["spec"]) == paper


def test_bfloat16_goes_where_it_can_be_held(run, tmp_path):
    assert run("table", SMALL, "--positions", "3", "--dtype", "bfloat16", "--out", tmp_path / "t.safetensors").code == 0
    raw = (tmp_path / "t.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["table"]["dtype"] == "BF16"


def test_a_file_is_replaced_by_force_and_is_whole_or_not_there(run, tmp_path, monkeypatch):
    out = tmp_path / "t.npy"
    out.write_bytes(b"precious")

    def breaks(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(command.np.lib.format, "write_array_header_1_0", breaks)
        done = run("table", SMALL, "--out", out, "--force")
    assert done.code == 2
    assert done.err == f"error: {out} cannot be written: No space left on device.\nhint: Choose another place.\n"
    assert out.read_bytes() == b"precious"
    assert run("table", SMALL, "--out", out, "--force", "--positions", "3").code == 0
    assert np.load(out).shape == (3, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["t.npy"]


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # a compiled module would be cut too, and stay so
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
from clockhands.cli import main
for out in sys.argv[1:]:
    try:
        main(["table", "vaswani2017", "--positions", "50", "--out", out])
    except SystemExit as ended:
        assert ended.code == 2
"""
ENDINGS = ("npy", "npz", "safetensors", "csv")


@pytest.mark.skipif(os.name == "nt", reason="sizes of files are limited in another way there")
def test_a_place_that_takes_no_more_bytes_is_named_with_the_cause_and_nothing_is_left(tmp_path):
    outs = [str(tmp_path / f"t.{ending}") for ending in ENDINGS]
    # A measurement of coverage would write a file too, and fail.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", LIMITED, *outs], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "".join(
        f"error: {out} cannot be written: File too large.\nhint: Choose another place.\n" for out in outs
    )
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_file_is_refused_before_it_is_opened(run, tmp_path, cases):
    for ending in ENDINGS:
        (tmp_path / f"folder.{ending}").mkdir()
        (tmp_path / f"device.{ending}").symlink_to(os.devnull)
        for name, said in (
            (f"missing/t.{ending}", "is not a folder."),
            (f"folder.{ending}", "is a directory."),
            (f"device.{ending}", "is not a regular file, so it is not replaced."),
        ):
            with cases(name):
                done = run("table", SMALL, "--positions", "3", "--out", tmp_path / name, "--force")
                assert (done.code, done.out) == (2, "")
                assert done.err.splitlines()[0].endswith(said)
                assert len(done.err.splitlines()) == 2


def test_a_terminal_gets_what_fits_and_is_told_so(monkeypatch, capsys):
    # The command's own name alone: pytest asks the module for the size too, and in its own way.
    monkeypatch.setattr(command, "shutil", SimpleNamespace(get_terminal_size=lambda: os.terminal_size((80, 24))))
    monkeypatch.setattr(command.sys.stdout, "isatty", lambda: True)
    spec = ch.preset("vaswani2017")
    command._print(ch.table(spec, 2048), command.positions_of(2048))
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["position", "0", "1", "2", "3", "...", "511"]
    assert lines[-1].split()[0] == "2047"
    assert shown.err == "19 of 2,048 positions and 5 of 512 dimensions are shown; use --out FILE or a pipe for all.\n"
