"""`clockhands identify`: tables of every kind of file, functions, JSON, and what is printed."""

import json
import re
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.auditing._audits import LAYER_FIELDS
from clockhands.cli.identified_json import command_of, positions_from_json, positions_to_json
from clockhands.grids import Grid
from clockhands.recognition import Match
from written_files import onnx_bytes, onnx_node, onnx_outside, onnx_tensor, written

PAPER = ch.preset("vaswani2017", width=16)
TABLE = ch.table(PAPER, 64)
NOISE = np.random.default_rng(3).normal(size=(64, 16)).astype(np.float32)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(done, code=0):
    """The results of a run with --json."""
    assert done.code == code, done.err
    document = json.loads(done.out)
    assert list(document) == ["schema", "target", "results"]
    assert document["schema"] == 1
    return document["results"]


def is_paper(match) -> bool:
    """Whether this is the paper's code, by whichever of its names."""
    return ch.preset(match["name"], width=16) == ch.specs.from_dict(match["spec"]) == PAPER


def files(folder):
    """The same table in every kind of file."""
    np.save(folder / "t.npy", TABLE)
    np.save(folder / "f.npy", np.asfortranarray(TABLE.astype(">f4")))
    np.savez_compressed(folder / "t.npz", inside=TABLE[None])
    save_file({"t": TABLE[:, None]}, folder / "t.safetensors")
    written(folder / "t.onnx", onnx_bytes([onnx_tensor("t", (64, 16), raw=TABLE.tobytes())]))


@pytest.mark.parametrize(
    "name", ["t.npy", "f.npy", "t.npz", "t.npz:inside", "t.safetensors", "t.safetensors:t", "t.onnx"]
)
def test_a_table_in_any_file(run, here, name):
    files(here)
    (result,) = told(run("identify", name, "--json"))
    (match,) = result["matches"]
    assert is_paper(match)
    assert match["computed_in"] == "float64"
    assert match["positions"] == {"start": 0, "stop": 64, "step": 1}
    assert match["error"] <= 2**-24
    assert result["dtype"] == "float32"
    assert list(match) == [
        "name", "says", "spec", "positions", "values", "error", "confidence", "equivalents", "computed_in", "rows",
        "residual", "evidence", "command",
    ]  # fmt: skip


def test_the_document_about_the_json_names_every_field(run, here, repository):
    text = (repository / "docs" / "json.md").read_text(encoding="utf-8")
    part = text.partition("## `clockhands identify --json`")[2].partition("## `clockhands audit --json`")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    np.save(here / "t.npy", TABLE)
    (result,) = told(run("identify", "t.npy", "--json"))
    assert named == set(result) | set(result["matches"][0])
    assert all(f"`{name}`" in text for name in LAYER_FIELDS)
    assert all(f"`{code}`" in text for code in ("zero-table", "table-differs", "recognised", "moved-table"))


def test_what_is_printed(run, here):
    np.save(here / "t.npy", ch.table(ch.preset("fairseq", width=16), 64))
    done = run("identify", "t.npy")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "t.npy: 64 x 16, float32"
    code = ch.describe(ch.preset("fairseq", width=16))
    assert " ".join(" ".join(lines[1:3]).split()).startswith(f"fairseq: {code}")
    assert "  positions    0 to 63" in lines
    assert "  zero rows    row 1" in lines
    assert "  again        clockhands table fairseq:width=16 --positions 0:64" in lines
    assert max(map(len, lines)) <= 80


def test_the_command_that_is_printed_makes_the_table_again(run, here):
    cases = {
        "a": ch.table(ch.preset("fairseq", width=16), 64),
        "b": ch.table(ch.Sinusoidal(16, layout="halves", order="cos-sin", base=500.0), range(50, -14, -1)),
        "c": ch.table(ch.Sinusoidal(17, odd="extra"), 64),
        "d": ch.table(ch.Sinusoidal(16, scale=0.25), range(3, 200, 3)),
        "e": ch.table(ch.preset("mae", width=64), Grid((12, 16), order=(1, 0), prefix=1)),
    }
    for name, table in cases.items():
        np.save(here / f"{name}.npy", table)
        (result,) = told(run("identify", f"{name}.npy", "--json"))
        words = result["matches"][0]["command"].replace("'", "").split()
        assert words[:2] == ["clockhands", "table"]
        assert run(*words[1:], "--out", f"{name}2.npy").code == 0
        assert np.abs(np.load(here / f"{name}2.npy") - table).max() <= 2**-23, words


@pytest.mark.parametrize(
    "positions", [range(64), 0.5 * np.arange(64) - 3, np.array([0.0, 1, 4, 9, 16.5, 30, 31, 40, 41, 50])], ids=str
)
def test_the_json_that_is_written_makes_the_table_again(run, here, positions):
    table = ch.table(PAPER, positions)
    np.save(here / "t.npy", table)
    more = [] if len(positions) == 64 else ["--positions", ",".join(map(str, positions))]
    done = run("identify", "t.npy", "--json", *more)
    assert told(done)[0]["matches"], done.out
    written(here / "found.json", done.out.encode())
    for kind in ("npy", "npz", "csv"):
        done = run("table", "found.json", "--out", f"again.{kind}")
        assert done.code == 0, done.err
    assert np.abs(np.load(here / "again.npy") - table).max() <= 2**-23
    assert run("table", "found.json", "--positions", "3").out.count("\n") == 4


def test_a_spec_in_a_file_is_a_table_too(run, here):
    written(here / "spec.json", ch.to_json(PAPER).encode())
    assert run("table", "spec.json", "--positions", "0:64", "--out", "t.npy").code == 0
    assert np.array_equal(np.load(here / "t.npy"), TABLE)


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({}, "found.json holds neither a spec nor the output of `clockhands identify`."),
        ({"results": []}, "found.json must hold exactly one recognised table, but nothing was recognised."),
        (
            {"results": [{"matches": [1]}] * 2},
            "found.json must hold exactly one recognised table, but 2 tables were recognised.",
        ),
        ({"results": [{"matches": [{}]}]}, "found.json lacks fields that `clockhands identify --json` writes."),
        ({"type": "Sinusoidal", "widht": 4}, "Sinusoidal has no field 'widht'."),
        (
            {"results": [{"matches": [{"spec": ch.specs.to_dict(PAPER), "positions": {"x": 1}, "values": None}]}]},
            "The positions in the file cannot be understood.",
        ),
    ],
)
def test_a_json_that_says_no_table(run, here, document, error):
    written(here / "found.json", json.dumps(document).encode())
    done = run("table", "found.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {error}\nhint: ")


GRID = Grid((2, 3), start=(0, 0.5), step=(1, 0.1), order=(1, 0), prefix=2)


@pytest.mark.parametrize("positions", [None, range(5, 0, -1), GRID, [0.5, 7.0], 0.1 * np.arange(9) + 0.3], ids=str)
def test_positions_survive_json(positions):
    again = positions_from_json(json.loads(json.dumps(positions_to_json(positions))))
    if isinstance(positions, Grid | range) or positions is None:
        assert again == positions
    else:
        assert np.array_equal(again, positions)


def test_a_grid_with_rows_that_stand_nowhere_is_written_with_its_coordinates(run, here):
    spec = ch.additive.AxialSinusoidal(8, (1, 1))
    match = {"spec": ch.specs.to_dict(spec), "positions": positions_to_json(GRID), "values": None}
    written(here / "found.json", json.dumps({"results": [{"matches": [match]}]}).encode())
    done = run("table", "found.json")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[1:5]] == [
        ["none", "0"], ["none", "0"], ["0", "0.5"], ["1", "0.5"],
    ]  # fmt: skip
    assert run("table", "found.json", "--out", "t.npz").code == 0
    with np.load(here / "t.npz") as members:
        assert members["table"].shape == (8, 8)
        assert np.isnan(members["positions"][:2]).all()
        assert members["positions"][2].tolist() == [0, 0.5]


def test_a_grid_comes_back_by_way_of_the_json(run, here):
    table = ch.table(ch.preset("mae", width=64), Grid((12, 16), start=(0, 3), order=(1, 0), prefix=1))
    np.save(here / "t.npy", table)
    text = run("identify", "t.npy").out
    assert "a grid of 12 x 16; axis 0 from 0 in steps of 1; axis 1 from 3 in steps of 1" in " ".join(text.split())
    assert (
        "  again        clockhands identify t.npy --json > found.json\n               clockhands table found.json\n"
        in text
    )
    written(here / "found.json", run("identify", "t.npy", "--json").out.encode())
    assert run("table", "found.json", "--out", "again.npy").code == 0
    assert np.abs(np.load(here / "again.npy") - table).max() <= 2**-24


def test_no_command_where_the_command_line_has_no_word_for_it():
    learned = Match(ch.Learned(width=4, rows=5), range(5), values=np.ones((5, 4)))
    rates = Match(ch.Sinusoidal(4, spacing=ch.ladders.Explicit((1.0, 0.3))), range(5))
    grid = Match(ch.additive.AxialSinusoidal(8, (1, 1)), GRID)
    assert [command_of(match) for match in (learned, rates, grid)] == [None, None, None]


def test_what_is_no_sinusoid_is_an_answer(run, here):
    np.save(here / "noise.npy", NOISE)
    done = run("identify", "noise.npy", "--json")
    (result,) = told(done)
    assert result["matches"] == []
    assert result["reason"].endswith(".")
    shown = run("identify", "noise.npy")
    assert shown.code == 0
    assert result["reason"] in " ".join(shown.out.split())


def test_tables_of_a_model_are_found_by_their_names(run, here):
    tensors = {f"layer.{number}.weight": NOISE for number in range(20)}
    tensors |= {"encoder.embed_positions.weight": TABLE, "pos_encoder.pe": TABLE[:, None, :]}
    save_file(tensors, here / "model.safetensors")
    results = told(run("identify", "model.safetensors", "--json"))
    assert [result["what"] for result in results] == [
        "model.safetensors:encoder.embed_positions.weight",
        "model.safetensors:pos_encoder.pe",
    ]
    assert all(is_paper(result["matches"][0]) for result in results)
    (here / "folder").mkdir()
    save_file(tensors, here / "folder" / "model.safetensors")
    assert len(told(run("identify", "folder", "--json"))) == 2
    text = run("identify", "model.safetensors").out
    assert " ".join(text.split()).count(f": {ch.describe(PAPER)} positions 0 to 63") == 2


def test_a_model_without_such_names_is_asked_about(run, here):
    save_file({f"layer.{number}.weight": NOISE for number in range(20)}, here / "m.safetensors")
    done = run("identify", "m.safetensors")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: None of the 20 tensors of m.safetensors is named like a table of positions.\n"
        "hint: Pick one as m.safetensors:NAME. It holds layer.0.weight, "
    )


def test_a_graph_says_which_table_is_added(run, here):
    tensors = [onnx_tensor(name, (64, 16), raw=TABLE.tobytes()) for name in ("onnx::Add_7", "onnx::MatMul_9")]
    nodes = onnx_node("Add", b"", ("x", "onnx::Add_7")) + onnx_node("MatMul", b"", ("y", "onnx::MatMul_9"))
    written(here / "m.onnx", onnx_bytes(tensors, nodes))
    (result,) = told(run("identify", "m.onnx", "--json"))
    assert result["what"] == "m.onnx:onnx::Add_7"
    assert is_paper(result["matches"][0])
    (picked,) = told(run("identify", "m.onnx:onnx::MatMul_9", "--json"))
    assert is_paper(picked["matches"][0])


def test_a_table_beside_its_model_has_the_name_that_picks_it(run, here):
    tensors = [onnx_outside(name, (64, 16), location="d.bin", offset=str(at)) for name, at in (("pos", 0), ("b", 4096))]
    written(here / "ext.onnx", onnx_bytes(tensors))
    (here / "d.bin").write_bytes(2 * TABLE.tobytes())
    (result,) = told(run("identify", "ext.onnx:pos", "--json"))
    assert result["what"] == "ext.onnx:pos"
    assert told(run("identify", result["what"], "--json")) == [result]
    (here / "d.bin").unlink()
    done = run("identify", "ext.onnx:pos")
    assert done.code == 2
    assert "error: ext.onnx keeps the numbers of 'pos' in d.bin, which is not there.\n" in done.err
    assert "hint: Download d.bin too: the two files belong together.\n" in done.err


def test_several_arrays_of_an_archive(run, here):
    np.savez(here / "t.npz", table=TABLE, noise=NOISE, positions=np.arange(64), spec=np.array(ch.to_json(PAPER)))
    done = run("identify", "t.npz", "--json")
    assert done.err.startswith("note: left out: 'spec' in t.npz holds ")
    results = told(done)
    assert [(result["what"], len(result["matches"])) for result in results] == [("t.npz:table", 1), ("t.npz:noise", 0)]


def test_bfloat16(run, here):
    save_file({"t": TABLE.astype(ml_dtypes.bfloat16)}, here / "t.safetensors")
    (result,) = told(run("identify", "t.safetensors", "--json"))
    assert result["dtype"] == "bfloat16"
    assert is_paper(result["matches"][0])


def test_low_precision_is_said_with_what_was_rounded(run, here):
    at = np.arange(600).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.save(here / "t.npy", ch.table(PAPER, at))
    text = run("identify", "t.npy").out
    assert "  made in      bfloat16, rounding its positions\n" in text
    assert "  off          by " in text


MODULE = """
import numpy as np
print("imported")

def turned(x, positions):
    rates = 10_000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = np.asarray(positions)[:, None] * rates
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(x, 2, axis=-1)
    print("called")
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], -1)

class Model:
    turned = staticmethod(turned)

def failing(x, positions):
    raise RuntimeError("no luck")

def leaving(x, positions):
    raise SystemExit(5)

number = 3
"""


@pytest.fixture
def module(here):
    written(here / "their_rotary.py", MODULE.encode())
    yield here
    sys.modules.pop("their_rotary", None)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", ["turned", "Model.turned"])
def test_a_function_is_called_and_what_it_prints_is_talk(run, name):
    before = list(sys.path)
    done = run("identify", f"their_rotary:{name}", "--width", "16", "--json")
    (result,) = told(done)
    assert "called" in done.err
    assert (result["what"], result["shape"]) == (f"their_rotary:{name}", None)
    spec = ch.specs.from_dict(result["matches"][0]["spec"])
    assert isinstance(spec, ch.Rotary)
    assert (spec.layout, spec.rotated) == ("halves", 16)
    assert spec.rates == pytest.approx([10_000 ** (-pair / 8) for pair in range(8)], rel=1e-9)
    assert sys.path == before
    text = run("identify", f"their_rotary:{name}", "--width", "16", "--longest", "4096")
    assert text.code == 0
    assert "  asked        " in text.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["their_rotary:turned"], "The width of the function's input is missing."),
        (["their_rotary:trned"], "their_rotary has no 'trned'."),
        (["broken_module:f"], "broken_module cannot be imported: ZeroDivisionError: division by zero."),
        (
            ["their_rotary.py:turned", "--width", "8"],
            "their_rotary.py is a Python file. Give the function as MODULE:FUNCTION",
        ),
        (["their_rotary.py"], "their_rotary.py is a Python file. Give the function as MODULE:FUNCTION, not as a file."),
        (["nothing"], "nothing is neither a path nor a preset."),
        (["their_rotary:trned", "--width", "8"], "their_rotary has no 'trned'."),
        (["their_rotary:number", "--width", "8"], "their_rotary:number is of type int, which cannot be called."),
        (["their_rotary:turned", "--positions", "3"], "--positions is for tables, but a function was given."),
        (["no_such_module:f", "--width", "8"], "There is no module 'no_such_module' in "),
        (["broken_module:f", "--width", "8"], "broken_module cannot be imported: ZeroDivisionError: division by zero."),
        (["leaving:f", "--width", "8"], "leaving cannot be imported: SystemExit: 7."),
        (
            ["needing:f", "--width", "8"],
            "needing cannot be imported: ModuleNotFoundError: No module named 'absent_one'.",
        ),
        (["t.npy", "--width", "8"], "--width is for functions, but a table was given."),
        (["t.npy", "--backend", "torch"], "--backend is for functions, but a table was given."),
        (["whisper"], "whisper holds no tables."),
        (["nothing.npy"], "nothing.npy does not exist."),
        (
            ["t.npy", "--positions", "5"],
            "`positions` must have one position for each row of an array of shape [64, 16], got "
            "positions of shape [5].",
        ),
    ],
)
def test_misuse(run, module, words, error):
    np.save(module / "t.npy", TABLE)
    written(module / "broken_module.py", b"1 / 0")
    written(module / "leaving.py", b"raise SystemExit(7)")
    written(module / "needing.py", b"import absent_one")
    done = run("identify", *words)
    assert (done.code, done.out) == (2, ""), done.err
    lines = [line for line in done.err.splitlines() if line not in {"imported", "called"}]
    assert lines[0].startswith(f"error: {error}")
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


HINTS = {
    "their_rotary.py:turned": "Write their_rotary:turned.",
    "deep/their_rotary.py:turned": "Write their_rotary:turned in the folder deep.",
    "their_rotary.py": "Write their_rotary:FUNCTION.",
    "nothing": "Name a .npy, .npz, .safetensors, .onnx or .gguf file, a model folder that holds one, or a function as "
    "package.module:callable.",
}


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("target", HINTS)
def test_hints_are_of_this_command(run, here, target):
    (here / "deep").mkdir()
    written(here / "deep" / "their_rotary.py", MODULE.encode())
    done = run("identify", target)
    assert done.code == 2
    assert done.err.splitlines()[-1] == f"hint: {HINTS[target]}"


@pytest.mark.usefixtures("module")
def test_a_function_is_said_to_be_measured_in_words(run):
    text = run("identify", "their_rotary:turned", "--width", "16", "--dtype", "float64").out
    assert "  made in      float64 arithmetic\n" in text
    assert "  sure         1 of 1: every row is made by it\n" in text
    assert "  positions    not rounded\n" in text
    assert "rounded      " not in text


def test_what_was_made_with_more_digits_than_it_keeps(run, here):
    np.save(here / "t.npy", TABLE)
    assert "  made in      float64 arithmetic, then rounded to float32\n" in run("identify", "t.npy").out
    moved = TABLE.copy()
    moved[7] += 0.1
    np.save(here / "t.npy", moved)
    assert "  sure         0.984 of 1: the share of the rows that it makes\n" in run("identify", "t.npy").out


@pytest.mark.parametrize(("words", "again"), [("64", "0:64"), ("2:66", "2:66"), ("0:192:3", "0:192:3")])
def test_positions_that_were_given_have_a_command_too(run, here, words, again):
    """They are a list of numbers then, and still no more than a start, a stop and a step."""
    start, stop, step = (int(part) for part in (again + ":1").split(":")[:3])
    np.save(here / "t.npy", ch.table(PAPER, range(start, stop, step)))
    text = run("identify", "t.npy", "--positions", words).out
    assert f"  again        clockhands table vaswani2017:width=16 --positions {again}\n" in text


def test_the_json_of_one_table_of_several_is_asked_for_by_its_name(run, here):
    np.savez(here / "two.npz", a=TABLE, b=ch.table(PAPER, 0.37 * np.arange(64)))
    text = run("identify", "two.npz").out
    assert "  again        clockhands identify two.npz:b --json > found.json\n" in text
    written(here / "found.json", run("identify", "two.npz:b", "--json").out.encode())
    assert run("table", "found.json", "--out", "b.npy").code == 0


@pytest.mark.usefixtures("module")
def test_a_function_that_fails_is_told_and_not_taken_for_ours(run):
    done = run("identify", "their_rotary:failing", "--width", "8")
    assert done.code == 2
    assert "RuntimeError: no luck" in done.err
    assert "fault of clockhands" not in done.err


@pytest.mark.usefixtures("module")
def test_a_function_that_ends_python_ends_nothing(run):
    """Taken for a reader that has gone away, it would end in 141 without a word."""
    done = run("identify", "their_rotary:leaving", "--width", "8")
    assert (done.code, done.out) == (2, "")
    assert "SystemExit: 5" in done.err


def test_a_path_comes_before_a_function(run, module):
    np.save(module / "their_rotary", TABLE)
    (module / "their_rotary.npy").rename(module / "their_rotary:turned")
    (result,) = told(run("identify", "their_rotary:turned", "--json"))
    assert is_paper(result["matches"][0])


def test_one_table_that_cannot_be_read_among_others(run, here):
    save_file({"a.pos_embed": TABLE, "b.pos_embed": TABLE}, here / "m.safetensors")
    data = (here / "m.safetensors").read_bytes()
    header, rest = data.split(b'"b.pos_embed"', 1)
    written(here / "m.safetensors", header + b'"b.pos_embed"' + rest.replace(b'"F32"', b'"U32"', 1))
    (result,) = told(run("identify", "m.safetensors", "--json"))
    assert result["what"] == "m.safetensors:a.pos_embed"
