"""`clockhands convert`: the talk, the JSON, the exit codes."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

CONFIG = {
    "model_type": "gpt_neox", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "rotary_pct": 1.0,
    "max_position_embeddings": 64,
}  # fmt: skip
NAME = "gpt_neox.layers.0.attention.query_key_value.weight"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file({NAME: np.arange(24 * 8, dtype="float32").reshape(24, 8), "x": np.ones(3)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def said(tmp_path):
    """What was said or printed, with FOLDER for the folder of the test."""
    return lambda text: text.replace(str(tmp_path), "FOLDER")


def test_a_model_is_converted_and_the_talk_is_on_stderr(run, model, tmp_path, said, snapshot):
    out = tmp_path / "out"
    done = run("convert", model, out, "--layout", "interleaved")
    assert (done.code, done.out) == (0, "")
    assert said(done.err) == snapshot(name="text")
    rows = load_file(out / "model.safetensors")[NAME][:, 0] / 8
    head = [0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11]
    assert rows.tolist() == [*head, *(12 + row for row in head)]
    done = run("convert", model, out, "--layout", "interleaved", "--json", "--force")
    assert json.loads(said(done.out)) == snapshot(name="json")


def test_what_cannot_be_done_ends_in_2(run, model, tmp_path, said, snapshot):
    out, moved = tmp_path / "out", ("--layout", "halves", "--from", "interleaved")
    done = run("convert", model, out, "--layout", "halves")
    assert (done.code, done.out) == (2, "")
    assert said(done.err) == snapshot(name="nothing to do")
    assert run("convert", model, out, *moved).code == 0
    assert said(run("convert", model, out, *moved).err) == snapshot(name="already there")
    assert run("convert", model, out, *moved, "--force").code == 0
    (tmp_path / "file").touch()
    assert said(run("convert", model, tmp_path / "file" / "x", *moved).err) == snapshot(name="a file")


def test_folders_on_the_way_are_made(run, model, tmp_path):
    """As in the examples of the help, whose folder nobody made."""
    out = tmp_path / "no" / "where" / "model.safetensors"
    assert run("convert", model / "model.safetensors", out, "--layout", "interleaved").code == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["config.json", "model.safetensors"]
