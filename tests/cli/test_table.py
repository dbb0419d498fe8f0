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
from clockhands.grids import Grid

SMALL = "vaswani2017:width=4"


def test_the_paper_s_table_is_readable(run):
    done = run("table", SMALL, "--positions", "5")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "position           0           1           2           3",
        "       0           0           1           0           1",
        "       1    0.841471    0.540302  0.00999983     0.99995",
        "       2    0.909297   -0.416147   0.0199987      0.9998",
        "       3     0.14112   -0.989992   0.0299955     0.99955",
        "       4   -0.756802   -0.653644   0.0399893      0.9992",
    ]


@pytest.mark.parametrize(
    ("text", "positions"),
    [
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
    ],
)
def test_positions_as_people_write_them(run, tmp_path, text, positions):
    out = tmp_path / "t.csv"
    done = run("table", SMALL, "--positions", text, "--out", out)
    assert (done.code, done.out) == (0, "")
    rows = list(csv.reader(out.read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["position", "0", "1", "2", "3"]
    assert [float(row[0]) if "." in row[0] else int(row[0]) for row in rows[1:]] == positions
    numbers = np.array([row[1:] for row in rows[1:]], dtype=np.float32).reshape(-1, 4)
    assert np.array_equal(numbers, ch.table(ch.preset("vaswani2017", width=4), positions))


@pytest.mark.parametrize(
    "text", ["", "a", "1:", ":5", "1:2:3:4", "1;2", "0,,1", ",", "1.5:3", "0x10", "3x", "3x4/", "+3x4", "1e3", "5.0"]
)
def test_positions_that_nobody_understands(run, text):
    done = run("table", SMALL, "--positions", text)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: `{text}` does not name positions.\nhint: Write a count (5 is 0 to 4), start:stop or start:stop:step,"
        " a list (0,7,0.5; one position: 7,), or a grid (14x14).\n"
    )


def test_a_grid_of_a_code_of_several_axes(run):
    done = run("table", "detr:width=4", "--positions", "2x3")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[:2] for line in lines[1:]] == [[str(row), str(column)] for row in range(2) for column in range(3)]
    table = ch.table(ch.preset("detr", width=4), Grid((2, 3)))
    assert np.allclose([[float(number) for number in line[2:]] for line in lines[1:]], table, atol=1e-5)
    done = run("table", "detr:width=4", "--positions", "3")
    assert done.code == 2
    assert done.err.startswith("error: `positions` must be of shape [..., 2] for a code of 2 axes, got [3].\nhint: ")


def test_a_grid_with_rows_that_stand_nowhere_and_in_another_order(run, tmp_path):
    spec = ch.preset("mae", width=8)
    for text, grid in {
        "3x4": Grid((3, 4)),
        "2+3x4/1,0": Grid((3, 4), order=(1, 0), prefix=2),
    }.items():
        done = run("table", "mae:width=8", "--positions", text, "--out", tmp_path / "t.npy", "--force")
        assert done.code == 0, done.err
        assert np.array_equal(np.load(tmp_path / "t.npy"), ch.table(spec, grid))
    done = run("table", "mae:width=8", "--positions", "1+1x2")
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["position", "0"],
        ["none", "0"],
        ["0", "0"],
        ["0", "1"],
    ]
    assert run("table", "vaswani2017:width=4", "--positions", "1+5").out.count("\n") == 7
    done = run("table", "mae", "--positions", "3x4/0,0")
    assert done.err.startswith("error: `order` must name each of the axes 0, 1 once, got (0, 0).\nhint: ")


def test_a_step_of_zero_never_arrives(run):
    done = run("table", SMALL, "--positions", "0:5:0")
    assert done.code == 2
    assert (
        done.err == "error: The step of `0:5:0` is 0, so the range never ends.\nhint: Give a step above or below 0.\n"
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_files_hold_exactly_what_the_library_makes(run, tmp_path, dtype):
    expected = ch.table(ch.preset("vaswani2017", width=6), range(3, 9), dtype=dtype)
    for kind in ("npy", "npz", "safetensors", "csv"):
        done = run(
            "table", "vaswani2017:width=6", "--positions", "3:9", "--dtype", dtype, "--out", tmp_path / f"t.{kind}"
        )
        assert (done.code, done.out) == (0, "")
        assert done.err == f"{tmp_path / f't.{kind}'}: 6 positions x 6 dimensions, {dtype}.\n"
    with np.load(tmp_path / "t.npz") as members:
        archive = dict(members)
    with safe_open(tmp_path / "t.safetensors", "np") as tensors:
        from_tensors, positions, spec = tensors.get_tensor("table"), tensors.get_tensor("positions"), tensors.metadata()
    from_csv = np.loadtxt(tmp_path / "t.csv", delimiter=",", skiprows=1, dtype=np.float64)[:, 1:].astype(dtype)
    for numbers in (np.load(tmp_path / "t.npy"), archive["table"], from_tensors, from_csv):
        assert numbers.dtype == expected.dtype
        assert np.array_equal(numbers, expected)
    assert archive["positions"].tolist() == positions.tolist() == [3, 4, 5, 6, 7, 8]
    assert ch.from_json(str(archive["spec"])) == ch.from_json(spec["spec"]) == ch.preset("vaswani2017", width=6)


def test_bfloat16_goes_where_it_can_be_held(run, tmp_path):
    assert run("table", SMALL, "--positions", "3", "--dtype", "bfloat16", "--out", tmp_path / "t.safetensors").code == 0
    raw = (tmp_path / "t.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["table"]["dtype"] == "BF16"
    done = run("table", SMALL, "--dtype", "bfloat16", "--out", tmp_path / "t.npy")
    assert done.code == 2
    assert (
        done.err
        == "error: A .npy file cannot hold bfloat16.\nhint: Write a .safetensors file, or use --dtype float32.\n"
    )
    assert not (tmp_path / "t.npy").exists()


def test_a_file_is_replaced_only_by_force_and_is_whole_or_not_there(run, tmp_path, monkeypatch):
    out = tmp_path / "t.npy"
    out.write_bytes(b"precious")
    done = run("table", SMALL, "--out", out)
    assert done.code == 2
    assert done.err == f"error: {out} is already there.\nhint: Give another name, or `--force` to replace it.\n"
    assert out.read_bytes() == b"precious"

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


def test_an_unknown_kind_of_file_and_a_missing_folder(run, tmp_path):
    done = run("table", SMALL, "--out", tmp_path / "t.txt")
    assert done.err == (
        f"error: {tmp_path / 't.txt'} does not end in a file type that can be written.\n"
        "hint: End it in one of .npy, .npz, .safetensors, .csv.\n"
    )
    done = run("table", SMALL, "--out", tmp_path / "no" / "t.npy")
    assert done.code == 2
    assert done.err.endswith("is not a folder.\nhint: Create the folder first.\n")


def test_positions_that_no_array_holds_are_refused_by_the_files_that_keep_them(run, tmp_path):
    both = "0.5,9007199254740993"
    done = run("table", SMALL, "--positions", both, "--out", tmp_path / "t.npz")
    assert done.code == 2
    assert "which no array type holds exactly" in done.err
    assert run("table", SMALL, "--positions", both, "--out", tmp_path / "t.csv").code == 0


@pytest.mark.skipif(os.name == "nt", reason="sizes of files are limited in another way there")
@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors", "csv"])
def test_a_place_that_takes_no_more_bytes_is_named_with_the_cause_and_nothing_is_left(tmp_path, ending):
    code = (
        # A compiled module would be cut too, and stay so.
        "import resource, sys; sys.dont_write_bytecode = True; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)); "
        "from clockhands.cli import main; main(sys.argv[1:])"
    )
    out = tmp_path / f"t.{ending}"
    words = [sys.executable, "-c", code, "table", "vaswani2017", "--positions", "50", "--out", str(out)]
    # A measurement of coverage would write a file too, and fail.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {out} cannot be written: File too large.\nhint: Choose another place.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors", "csv"])
def test_a_place_that_is_no_file_is_refused_before_it_is_opened(run, tmp_path, ending):
    (tmp_path / f"folder.{ending}").mkdir()
    (tmp_path / f"device.{ending}").symlink_to(os.devnull)
    for name, said in (
        (f"missing/t.{ending}", "is not a folder."),
        (f"folder.{ending}", "is a directory."),
        (f"device.{ending}", "is not a regular file, so it is not replaced."),
    ):
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


def test_a_config_is_no_preset(run):
    done = run("table", "config.json")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: There is no preset 'config.json'.\nhint: `clockhands presets` lists all.\n"
