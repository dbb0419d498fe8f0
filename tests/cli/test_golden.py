"""What commands say, word for word: every page of help, every refusal of misuse, and answers of many command lines.

The command lines stand in `misuse.txt` and `sessions.txt`, the configs that they name in `models.json`, what is said in
`__snapshots__/test_golden.ambr`, which `pytest tests/cli/test_golden.py --snapshot-update` writes again.
"""

import itertools
import json
import pickle
import re
import shlex
import shutil
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.cli import lab, survey
from clockhands.cli.group import COMMANDS
from clockhands.cli.identified_json import positions_to_json
from clockhands.encodings.grids import Grid
from written_files import entry, gguf_bytes, gguf_key, onnx_bytes, onnx_outside, onnx_tensor, safetensors_bytes

from .conftest import NEMO, TURNED

HERE = Path(__file__).parent
TEXTS = {
    "broken.json": "no json",
    "names.txt": "\ufefffleet/a\nfleet/b\n",
    "kept.html": "kept" * 100,
    "kept.npy": "kept",
    "nemo.yaml": NEMO,
    "somebodys.py": f"{TURNED}\napply_rotary = turned\nnumber = 3\ndef slopes(queries, keys): ...\n",
    "deep/somebodys.py": TURNED,
    "broken_module.py": "1 / 0",
    "leaving.py": "raise SystemExit(7)",
    "needing.py": "import absent_one",
}
MODULES = {Path(name).stem for name in TEXTS if name.endswith(".py")}


def write_configs(folder):
    """The configs of models.json, each the one that it is `of`, changed; a key that is null is left out."""
    known = {}
    for name, fields in json.loads((HERE / "models.json").read_text(encoding="utf-8")).items():
        known[name] = fields
        if isinstance(fields, dict) and "of" in fields:
            changed = known[fields["of"]] | fields
            known[name] = {key: value for key, value in changed.items() if key != "of" and value is not None}
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(json.dumps(known[name], indent=2), encoding="utf-8")
    (folder / "one-line.json").write_text(json.dumps(known["wrong-base.json"]), encoding="utf-8")
    twice = json.dumps(known["llama.json"])[:-1] + ', "rope_theta": 500000.0, "vocab": 1, "vocab": 2}'
    (folder / "duplicate.json").write_text(twice, encoding="utf-8")


def write_arrays(folder):
    """Tables of positions in files of every kind, and what is none."""
    paper, random = ch.preset("vaswani2017", width=16), np.random.default_rng(3)
    table, noise = ch.table(paper, 64), random.normal(size=(64, 16)).astype(np.float32)
    moved, rows = table.copy(), np.full((4, 6), np.inf, np.float32)
    moved[7] += 0.1
    grid = Grid((12, 16), start=(0, 3), order=(1, 0), prefix=1)
    arrays = {
        "t": table, "moved": moved, "noise": noise, "infinite": rows, "line": rows[0], "words": np.array(["a"]),
        "rows": np.ones((6, 4), np.float16), "whole": np.ones((4, 6), int),
        "fairseq": ch.table(ch.preset("fairseq", width=16), 64),
        "bfloat16": ch.table(paper, np.arange(600).astype(ml_dtypes.bfloat16).astype(np.float64)),
        "from-2": ch.table(paper, range(2, 66)), "every-3": ch.table(paper, range(0, 192, 3)),
        "grid": ch.table(ch.preset("mae", width=64), grid),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "words.npz", inside=arrays["rows"])
    np.savez(folder / "two.npz", a=table, b=ch.table(paper, 0.37 * np.arange(64)))
    unnamed = {f"layer.{number}.weight": noise for number in range(20)}
    save_file(unnamed, folder / "unnamed.safetensors")
    tables = {"encoder.embed_positions.weight": table, "pos_encoder.pe": table[:, None, :]}
    save_file(unnamed | tables, folder / "model.safetensors")
    at = positions_to_json(Grid((2, 3), start=(0, 0.5), step=(1, 0.1), order=(1, 0), prefix=2))
    match = {"spec": ch.specs.to_dict(ch.additive.AxialSinusoidal(8, (1, 1))), "positions": at, "values": None}
    (folder / "grid-found.json").write_text(json.dumps({"results": [{"matches": [match]}]}), encoding="utf-8")
    for name, context in (("unscaled", 8192), ("lost", 131072)):
        keys = {"block_count": 32, "context_length": context, "embedding_length": 4096, "attention.head_count": 64}
        written = [gguf_key(f"llama.{name}", "uint32", value) for name, value in keys.items()]
        architecture = gguf_key("general.architecture", "string", "llama")
        base = gguf_key("llama.rope.freq_base", "float32", 500000.0)
        (folder / f"{name}.gguf").write_bytes(gguf_bytes([architecture, base, *written]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the files that the lines name."""
    write_configs(tmp_path)
    write_arrays(tmp_path)
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "there-models").mkdir()
    shutil.copytree(tmp_path / "whisper", tmp_path / "models" / "a")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def held(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def lines_by_command(file):
    lines = [line for line in (HERE / file).read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return itertools.groupby(lines, key=lambda line: line.split()[0])


def test_misuse_is_one_sentence_a_hint_and_exit_code_2_and_writes_nothing(run, folder, cases, snapshot):
    before = held(folder)
    for command, lines in lines_by_command("misuse.txt"):
        told = ""
        for line in lines:
            with cases(line):
                done = run(*shlex.split(line))
                assert (done.code, done.out) == (2, "")
                assert re.fullmatch(r"error: \S.+\nhint: [A-Z`].+\n", done.err), done.err
                assert held(folder) == before, sorted(held(folder).keys() - before)
                told += f"$ clockhands {line}\n{done.err}".replace(str(folder), "<folder>")
        with cases(command):
            assert told == snapshot(name=f"misuse of {command}")


def test_what_command_lines_answer(run, folder, cases, snapshot):
    for command, lines in lines_by_command("sessions.txt"):
        for line in lines:
            with cases(line):
                done = run(*shlex.split(line), stdin=Path("wrong-base.json").read_bytes())
                wide = [each for each in done.out.splitlines() if len(each) > 80 and not each.startswith("Same ")]
                assert not wide or command == "table" or "github" in line
                told = done.out + (done.err and f"--- beside it:\n{done.err}") + f"--- exit code {done.code}\n"
                assert told.replace(str(folder), "<folder>") == snapshot(name=line)


def safetensors(body=b"", **tensors):
    entries = {name: entry("F32", shape, offsets) for name, (shape, *offsets) in tensors.items()}
    return safetensors_bytes(entries, body)


def lying():
    """Files that lie or end early."""
    deep = b'{"a":' * 10**6 + b"1" + b"}" * 10**6
    arrays = struct.pack("<Q1sI", 1, b"a", 9) + struct.pack("<IQ", 9, 1) * 10**6
    return {
        "two-bytes.safetensors": b"\x10\x00",
        "long-header.safetensors": struct.pack("<Q", 10**12) + b"{}",
        "overlap.safetensors": safetensors(bytes(12), a=([2], 0, 8), b=([2], 4, 12)),
        "negative.safetensors": safetensors(bytes(8), a=([2], -8, 0)),
        "short.safetensors": safetensors(bytes(8), a=([20], 0, 80)),
        "deep.safetensors": safetensors_bytes(deep),
        "no-graph.onnx": b"\x08\x08",
        "short.onnx": b"\x3a\xff\xff\x03",
        "outside.onnx": onnx_bytes([onnx_outside("t", (4, 2), location="../../etc/passwd")]),
        "large.onnx": onnx_bytes([onnx_tensor("t", (2**40, 2**10), raw=bytes(8))]),
        "empty.gguf": b"",
        "short.gguf": b"GGUF\x03\0\0\0",
        "many-keys.gguf": gguf_bytes([], key_count=2**60),
        "deep.gguf": gguf_bytes([arrays]),
        "deep/config.json": deep,
        "list/config.json": b"[1, 2]",
        "open/config.json": b'{"a":',
        "utf-16/config.json": b"\xff\xfe\x00",
        "empty.npy": b"",
        "pickle.npy": pickle.dumps([1, 2]),
    }


def test_a_file_that_lies_or_ends_early(run, tmp_path, monkeypatch, cases, snapshot):
    monkeypatch.chdir(tmp_path)
    told = ""
    for command, (name, content) in itertools.product(("audit", "identify"), lying().items()):
        with cases(command, name):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(content)
            done = run(command, name)
            assert (done.code, done.out) == (2, "")
            assert re.fullmatch(r"error: .+\nhint: .+\n", done.err), done.err
            assert name in done.err
            told += f"$ clockhands {command} {name}\n{done.err}"
    assert told == snapshot


def test_the_help_of_every_command_is_the_frozen_one(run, cases, snapshot):
    groups = (f"{group.name} {name}" for group in (lab.command, survey.command) for name in group.commands)
    for command in ("", *COMMANDS, *groups):
        with cases(command):
            shown = run(*command.split(), "--help")
            assert (shown.code, shown.err) == (0, "")
            assert shown.out.startswith(f"Usage: {' '.join(['clockhands', *command.split()])} ")
            assert shown.out == snapshot(name=f"help of {command or 'clockhands'}")


def test_no_command_at_all_is_misuse_and_shows_the_help(run):
    done = run()
    assert (done.code, done.out) == (2, "")
    assert done.err == run("--help").out
