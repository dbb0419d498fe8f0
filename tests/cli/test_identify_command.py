"""`clockhands identify`: tables of every kind of file, functions, JSON, and what is printed."""

import json
import re
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.auditing._audits import LAYER_FIELDS
from clockhands.cli.identified_json import command_of, positions_from_json, positions_to_json
from clockhands.encodings.grids import Grid
from clockhands.recognition import Match
from written_files import onnx_bytes, onnx_node, onnx_outside, onnx_tensor, written

from .conftest import TURNED

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


def test_a_table_in_any_file(run, here, cases):
    files(here)
    for name in ("t.npy", "f.npy", "t.npz", "t.npz:inside", "t.safetensors", "t.safetensors:t", "t.onnx"):
        with cases(name):
            (result,) = told(run("identify", name, "--json"))
            (match,) = result["matches"]
            assert is_paper(match)
            assert match["computed_in"] == "float64"
            assert match["positions"] == {"start": 0, "stop": 64, "step": 1}
            assert match["error"] <= 2**-24
            assert result["dtype"] == "float32"
            assert list(match) == [
                "name", "says", "spec", "positions", "values", "error", "confidence", "equivalents", "computed_in",
                "rows", "residual", "evidence", "command",
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


def test_the_json_that_is_written_makes_the_table_again(run, here, cases):
    mae = ch.preset("mae", width=64)
    for spec, positions, words in (
        (PAPER, range(64), ()),
        (PAPER, 0.5 * np.arange(64) - 3, ()),
        (PAPER, [0.0, 1, 4, 9, 16.5, 30, 31, 40, 41, 50], ("--positions", "0.0,1,4,9,16.5,30,31,40,41,50")),
        (mae, Grid((12, 16), start=(0, 3), order=(1, 0), prefix=1), ()),
    ):
        with cases(spec, positions):
            table = ch.table(spec, np.array(positions) if isinstance(positions, list) else positions)
            np.save(here / "t.npy", table)
            done = run("identify", "t.npy", "--json", *words)
            assert told(done)[0]["matches"], done.out
            written(here / "found.json", done.out.encode())
            for kind in ("npy", "npz", "csv"):
                done = run("table", "found.json", "--out", f"again.{kind}", "--force")
                assert done.code == 0, done.err
            assert np.abs(np.load(here / "again.npy") - table).max() <= 2**-23
            assert spec is mae or run("table", "found.json", "--positions", "3").out.count("\n") == 4


GRID = Grid((2, 3), start=(0, 0.5), step=(1, 0.1), order=(1, 0), prefix=2)


def test_positions_survive_json(cases):
    for positions in (None, range(5, 0, -1), GRID, [0.5, 7.0], 0.1 * np.arange(9) + 0.3):
        with cases(positions):
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
    assert run("table", "found.json", "--out", "t.npz").code == 0
    with np.load(here / "t.npz") as members:
        assert members["table"].shape == (8, 8)
        assert np.isnan(members["positions"][:2]).all()
        assert members["positions"][2].tolist() == [0, 0.5]


def test_no_command_where_the_command_line_has_no_word_for_it():
    learned = Match(ch.Learned(width=4, rows=5), range(5), values=np.ones((5, 4)))
    rates = Match(ch.Sinusoidal(4, spacing=ch.ladders.Explicit((1.0, 0.3))), range(5))
    grid = Match(ch.additive.AxialSinusoidal(8, (1, 1)), GRID)
    assert [command_of(match) for match in (learned, rates, grid)] == [None, None, None]


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


def test_several_arrays_of_an_archive(run, here):
    np.savez(here / "t.npz", table=TABLE, noise=NOISE, positions=np.arange(64), spec=np.array(ch.to_json(PAPER)))
    done = run("identify", "t.npz", "--json")
    assert done.err.startswith("note: left out: 'spec' in t.npz holds ")
    results = told(done)
    assert [(result["what"], len(result["matches"])) for result in results] == [("t.npz:table", 1), ("t.npz:noise", 0)]


MODULE = f"""
print("imported")
{TURNED}
class Model:
    def turned(x, positions):
        print("called")
        return turned(x, positions)

def failing(x, positions):
    raise RuntimeError("no luck")

def leaving(x, positions):
    raise SystemExit(5)
"""


@pytest.fixture
def module(here):
    written(here / "their_rotary.py", MODULE.encode())
    yield here
    sys.modules.pop("their_rotary", None)


@pytest.mark.usefixtures("module")
def test_a_function_is_called_and_what_it_prints_is_talk(run, cases):
    before = list(sys.path)
    for name in ("turned", "Model.turned"):
        with cases(name):
            done = run("identify", f"their_rotary:{name}", "--width", "16", "--json")
            (result,) = told(done)
            assert ("imported" if name == "turned" else "called") in done.err
            assert (result["what"], result["shape"]) == (f"their_rotary:{name}", None)
            spec = ch.specs.from_dict(result["matches"][0]["spec"])
            assert isinstance(spec, ch.Rotary)
            assert (spec.layout, spec.rotated) == ("halves", 16)
            assert spec.rates == pytest.approx([10_000 ** (-pair / 8) for pair in range(8)], rel=1e-9)
            assert sys.path == before


@pytest.mark.usefixtures("module")
def test_a_function_is_said_to_be_measured_in_words(run):
    text = run("identify", "their_rotary:turned", "--width", "16", "--dtype", "float64", "--longest", "4096").out
    for line in (
        "  made in      float64 arithmetic",
        "  sure         1 of 1: every row is made by it",
        "  positions    not rounded",
    ):
        assert line in text.splitlines()
    assert "  asked        " in text
    assert "rounded      " not in text


def test_the_json_of_one_table_of_several_is_asked_for_by_its_name(run, here):
    np.savez(here / "two.npz", a=TABLE, b=ch.table(PAPER, 0.37 * np.arange(64)))
    written(here / "found.json", run("identify", "two.npz:b", "--json").out.encode())
    assert run("table", "found.json", "--out", "b.npy").code == 0


@pytest.mark.usefixtures("module")
def test_a_function_that_fails_or_ends_python_is_told_and_not_taken_for_ours(run, cases):
    """An end of Python, taken for a reader that has gone away, would end in 141 without a word."""
    for name, said in (("failing", "RuntimeError: no luck"), ("leaving", "SystemExit: 5")):
        with cases(name):
            done = run("identify", f"their_rotary:{name}", "--width", "8")
            assert (done.code, done.out) == (2, "")
            assert said in done.err
            assert "fault of clockhands" not in done.err


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
