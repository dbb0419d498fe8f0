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


def test_a_model_is_converted_and_the_talk_is_on_stderr(run, model, tmp_path):
    out = tmp_path / "out"
    done = run("convert", model, out, "--layout", "interleaved")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        f"{out}: 1 of 2 tensors moved from halves (architecture of gpt_neox (transformers 5.23.0)) to interleaved.\n"
        f"note: A gpt_neox pairs halves in Transformers, which reads no other layout: {out} is for code that pairs"
        " interleaved.\n"
    )
    rows = load_file(out / "model.safetensors")[NAME][:, 0] / 8
    head = [0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11]
    assert rows.tolist() == [*head, *(12 + row for row in head)]


def test_json_says_what_was_done(run, model, tmp_path):
    done = run("convert", model, tmp_path / "out", "--layout", "interleaved", "--json")
    assert json.loads(done.out) == {
        "schema": 1,
        "from": "halves",
        "layout": "interleaved",
        "because": "architecture of gpt_neox (transformers 5.23.0)",
        "moved": [NAME],
        "kept": 1,
        "files": [str(tmp_path / "out" / name) for name in ("model.safetensors", "config.json")],
    }


def test_what_cannot_be_done_ends_in_2(run, model, tmp_path):
    done = run("convert", model, tmp_path / "out", "--layout", "halves")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: {model} is in the layout halves already (architecture of gpt_neox (transformers 5.23.0)).\nhint: "
        "If its rows have another order, pass --from interleaved (from_= in Python).\n"
    )
    assert run("convert", model, tmp_path / "out", "--layout", "halves", "--from", "interleaved").code == 0
    done = run("convert", model, tmp_path / "out", "--layout", "halves", "--from", "interleaved")
    assert done.err == (
        f"error: {tmp_path / 'out'} is already there.\nhint: Give another name, or `--force` to replace its files.\n"
    )
    assert run("convert", model, tmp_path / "out", "--layout", "halves", "--from", "interleaved", "--force").code == 0
    (tmp_path / "file").touch()
    assert run("convert", model, tmp_path / "file" / "x", "--layout", "interleaved").err == (
        f"error: {tmp_path / 'file'} is a file, so it cannot contain the output.\nhint: Name another output.\n"
    )


def test_folders_on_the_way_are_made(run, model, tmp_path):
    """As in the examples of the help, whose folder nobody made."""
    out = tmp_path / "no" / "where" / "model.safetensors"
    assert run("convert", model / "model.safetensors", out, "--layout", "interleaved").code == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["config.json", "model.safetensors"]
