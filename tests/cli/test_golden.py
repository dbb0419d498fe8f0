"""What commands say, word for word: every page of help, and every refusal of what a caller did wrong.

The words stand in `__snapshots__/test_golden.ambr`; `pytest tests/cli/test_golden.py --snapshot-update` writes them.
"""

import itertools
import json
import pickle
import re
import shlex
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.cli import lab, survey
from clockhands.cli.group import COMMANDS
from written_files import entry, gguf_bytes, onnx_bytes, onnx_outside, onnx_tensor, safetensors_bytes

from .conftest import LLAMA, TURNED

LINES = Path(__file__).with_name("misuse.txt")
YARN = {"rope_type": "deepseek_yarn", "factor": 4.0}
PAPER = {"type": "Sinusoidal", "width": 16}
TEXTS = {
    "sound.json": LLAMA,
    "deepseek-yarn.json": LLAMA | {"rope_scaling": YARN},
    "no-rates.json": LLAMA | {"rope_theta": "abc"},
    "no-code.json": {"model_type": "nobody's"},
    "no-position.json": {"model_type": "jamba"},
    "impossible.json": {"type": "Counter", "width": -1},
    "models/a/config.json": LLAMA,
    "web/config.json": {"name": "an application", "version": "1"},
    "version.json": {"baseline": 2, "findings": []},
    "list.json": [],
    "{}.json": {},
    "none-found.json": {"results": []},
    "two-found.json": {"results": [{"matches": [1]}] * 2},
    "lacking-found.json": {"results": [{"matches": [{}]}]},
    "misspelt.json": {"type": "Sinusoidal", "widht": 4},
    "elsewhere-found.json": {"results": [{"matches": [{"spec": PAPER, "positions": {"x": 1}, "values": None}]}]},
    "broken.json": "no json",
    "kept.html": "kept" * 100,
    "kept.npy": "kept",
    "somebodys.py": f"{TURNED}\napply_rotary = turned\nnumber = 3\ndef slopes(queries, keys): ...\n",
    "deep/somebodys.py": TURNED,
    "broken_module.py": "1 / 0",
    "leaving.py": "raise SystemExit(7)",
    "needing.py": "import absent_one",
}
MODULES = {Path(name).stem for name in TEXTS if name.endswith(".py")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the files that misuse.txt names."""
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    (tmp_path / "there-models").mkdir()
    rows = np.full((4, 6), np.inf, np.float32)
    table = ch.table(ch.preset("vaswani2017", width=16), 64)
    arrays = {"t": table, "infinite": rows, "line": rows[0], "whole": np.ones((4, 6), int), "words": np.array(["a"])}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def held(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_misuse_is_one_sentence_a_hint_and_exit_code_2_and_writes_nothing(run, folder, cases, snapshot):
    lines = [line for line in LINES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    before = held(folder)
    for command, group in itertools.groupby(lines, key=lambda line: line.split()[0]):
        told = ""
        for line in group:
            with cases(line):
                done = run(*shlex.split(line))
                assert (done.code, done.out) == (2, "")
                assert re.fullmatch(r"error: \S.+\nhint: [A-Z`].+\n", done.err), done.err
                assert held(folder) == before, sorted(held(folder).keys() - before)
                told += f"$ clockhands {line}\n{done.err}".replace(str(folder), "<folder>")
        with cases(command):
            assert told == snapshot(name=f"misuse of {command}")


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
