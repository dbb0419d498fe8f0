"""What a person may name, in which order it is tried, and what is said when nothing fits."""

import io
import json
import os
import sys
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clockhands.configs import Opened, open_target
from clockhands.errors import InvalidType, InvalidValue, Unreadable
from written_files import refusal, small_gguf, written

READ = "a model folder, config.json, .yaml, .gguf, .safetensors or .bin (or its index), .pt, .onnx, .npy, .npz"
CONFIG = b'{"model_type": "llama", "rope_theta": 10000.0}'


@dataclass(frozen=True)
class Preset:
    name: str


@pytest.fixture(autouse=True)
def presets(monkeypatch):
    """Two presets that say what they were called with, so that these tests do not depend on the real ones."""
    module = types.ModuleType("clockhands.encodings.presets")
    module.presets = lambda: (Preset("vaswani2017"), Preset("whisper"))
    module.names = lambda: ("vaswani2017", "whisper")
    module.preset = lambda name, **fields: (name, fields)
    monkeypatch.setitem(sys.modules, "clockhands.encodings.presets", module)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder, and an empty Hugging Face cache."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


@pytest.fixture
def refused(refused):
    """What a target is refused with."""
    return partial(refused, open_target)


def model_folder(folder: Path, config: bytes | None = CONFIG, **tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_bytes(config)
    if tensors:
        save_file(tensors, folder / "model.safetensors")
    return folder


# Presets


FIELDS = {
    "width=4": {"width": 4},
    "base=1e4,first=-1": {"base": 1e4, "first": -1},
    "layout=halves": {"layout": "halves"},
    "zero_rows=[0,1],width=8": {"zero_rows": (0, 1), "width": 8},
    "scaling=null,truncate=true": {"scaling": None, "truncate": True},
    "a=x,y,b= 2": {"a": "x,y", "b": 2},
    "base=inf": {"base": float("inf")},
    "base=": {"base": ""},
    "x=[[[": {"x": "[[["},
}


def test_a_preset_is_opened_with_its_fields(cases):
    for text in ("vaswani2017", "preset:vaswani2017"):
        assert open_target(text) == Opened(text, "preset", spec=("vaswani2017", {}))
        for fields, expected in FIELDS.items():
            with cases(text, fields):
                assert open_target(f"{text}:{fields}").spec == ("vaswani2017", expected)


def test_fields_that_are_none_and_misspelt_presets_are_refused(refused, snapshot, cases):
    for text in ("vaswani2017:width", "vaswani2017:", "preset:whisper:1=2", "vaswani2017:a=1,a=2"):
        with cases(text):
            assert refused(text, error=InvalidValue) == snapshot(name=text)
    for text in ("vaswani2071", "preset:wisper:a=1", "sinusoid"):
        with cases(text):
            assert refused(text) == snapshot(name=text)


# Standard input


def test_a_config_on_standard_input_is_read(cases):
    for stream in (io.BytesIO(CONFIG), io.StringIO(CONFIG.decode())):
        with cases(stream):
            opened = open_target("-", stdin=stream)
            assert (opened.form, opened.path, opened.config_name) == ("config", None, "<stdin>")
            assert opened.config == json.loads(CONFIG)


def test_yaml_on_standard_input_is_read(refused, snapshot, cases):
    neox = b"\xef\xbb\xbf# GPT-NeoX\nnum-layers: 2\nhidden-size: 64\nnum-attention-heads: 2\npos-emb: rotary\n"
    opened = open_target("-", stdin=io.BytesIO(neox))
    assert (opened.form, opened.config_name) == ("dialect", "<stdin>")
    llama = b"model_type: llama\nrope_theta: 1e6\n"
    assert open_target("-", stdin=io.BytesIO(llama)).config == {"model_type": "llama", "rope_theta": 1e6}
    faulty = [b"a config", b' {"a": 1', b"a: " + b"x" * 2**20, b"base_model: org/name\nadapter: lora\n"]
    for number, data in enumerate(faulty):
        with cases(data[:40]):
            assert refused("-", stdin=io.BytesIO(data)) == snapshot(name=f"{number}")


def test_the_program_s_own_standard_input_is_read(monkeypatch, refused):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CONFIG)))
    assert open_target("-").config == json.loads(CONFIG)
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-") == ("<stdin> is closed.", "Pipe a config.json into the command.")


# What names nothing


NOTHING = ["", " ", "a\0b", "x" * 5000, "x" * 300, "package.module:function", "org/name"]
MISSING = {
    "model.gguf": "model.gguf",
    "a/b/c": "a/b/c",
    "a/b.json": "a/b.json",
    "x.npz:member": "x.npz",
    "file:vaswani2017": "vaswani2017",
    "C:\\models\\x.npz": "C:\\models\\x.npz",
    "C:\\models\\x.npz:member": "C:\\models\\x.npz",
    "C:/models": "C:/models",
    "./x": "x",
}


def test_what_names_nothing_is_refused(refused, snapshot, cases):
    for text in NOTHING:
        with cases(text):
            assert refused(text) == snapshot(name=f"{len(text)} {text[:30]!r}")
    for target in (5, None, b"config.json", ["a"]):
        with cases(target):
            message, hint = refused(target, error=InvalidType)
            assert message == f"A target must be a string or a path, got {target!r}."
            assert hint == f"Name a preset, {READ}."


def test_a_missing_path_is_refused(here, refused, cases, snapshot):
    for text, path in MISSING.items():
        with cases(text):
            assert refused(text) == (
                f"{path} does not exist.",
                "Check the spelling; the current folder is FOLDER/here.",
            )
    for name in ("none.json", "none"):
        assert refused(here / name)[0] == f"FOLDER/here/{name} does not exist."
    (here / "model").symlink_to("gone")
    assert refused("model") == snapshot


# Files and folders; what is opened of each is in test_layouts_of_models.py


def test_a_tensor_that_is_not_there_is_refused_with_the_nearest(here):
    written(here / "model.gguf", small_gguf())
    opened = open_target("model.gguf")
    for call in (opened.array, opened.tensor):
        assert refusal(call, "rope_freq.weight", error=Unreadable) == (
            "model.gguf has no tensor 'rope_freq.weight'.",
            "Did you mean rope_freqs.weight?",
        )
    assert refusal(opened.array, "z", error=Unreadable)[1] == "It holds rope_freqs.weight, half, brain, quantised."


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_where_a_file_is_needed(here, refused, cases):
    for name in ("model.gguf", "model.safetensors", "x.npy", "x.npz"):
        os.mkfifo(here / name)
        with cases(name):
            assert refused(name) == (
                f"{name} is not a regular file, but this kind of file cannot be read as a stream.",
                "Save it as a file first; only JSON can come through a pipe.",
            )


CALLED = {
    "https://huggingface.co/org/name": "org/name",
    "http://www.huggingface.co/org/name/": "org/name",
    "hf.co/org/name": "org/name",
    "https://huggingface.co/org/name/tree/v1.0": "org/name@v1.0",
    "https://huggingface.co/org/name/blob/main/config.json": "org/name@main",
    "https://huggingface.co/org/name/resolve/main/config.json?download=true": "org/name@main",
    "https://example.com/model.gguf": "org/name[@revision]",
    "s3://bucket/model": "org/name[@revision]",
}


def test_a_web_address_is_refused_with_the_name_to_give(refused, cases):
    for address, called in CALLED.items():
        with cases(address):
            message, hint = refused(address)
            assert message == f"{address} is a web address, and models are audited by their name."
            assert hint.startswith(f"Give {called} for a model of the hub;")
    for text in ("org/name@", "org/name@:model.gguf"):
        with cases(text):
            assert refused(text) == (f"{text} has no revision after the @.", "Give org/name, or org/name@REVISION.")


def test_what_may_not_be_looked_at_or_fails_meanwhile_says_so(here, monkeypatch, refused):
    model_folder(here / "m")
    written(here / "blob", CONFIG)

    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda *_: Failing())
        told = refused("blob")
    assert told == ("blob cannot be read: Input/output error.", "Check the path and the disk.")

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", fail)
        told = refused("m")
    assert told == ("m cannot be listed: Permission denied.", "Get permission to read the folder.")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", fail)
        patched.setattr(Path, "open", fail)
        patched.setattr(Path, "is_dir", lambda _: False)
        told = refused("locked/config.json")
    assert told == (
        "locked/config.json cannot be read: Permission denied.",
        "Get read permission, or copy the file.",
    )


# The Hugging Face cache


def cached(hub: Path, name: str = "org/name", revision: str = "abc", main: str | None = "abc") -> Path:
    model = hub / ("models--" + name.replace("/", "--"))
    if main is not None:
        (model / "refs").mkdir(parents=True, exist_ok=True)
        (model / "refs" / "main").write_text(main)
    return model_folder(model / "snapshots" / revision)


@pytest.mark.parametrize(
    ("variable", "value", "hub"),
    [
        ("HF_HUB_CACHE", "{tmp}/one", "one"),
        ("HUGGINGFACE_HUB_CACHE", "{tmp}/two", "two"),
        ("HF_HOME", "{tmp}/three", "three/hub"),
        ("XDG_CACHE_HOME", "{tmp}/four", "four/huggingface/hub"),
        ("HOME", "{tmp}/five", "five/.cache/huggingface/hub"),
    ],
)
def test_a_model_in_the_cache_is_opened(tmp_path, monkeypatch, variable, value, hub):
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv(variable, value.format(tmp=tmp_path))
    snapshot = cached(tmp_path / hub)
    opened = open_target("org/name")
    assert (opened.target, opened.form, opened.path) == ("org/name", "config", snapshot)
    assert opened.notes == (f"org/name is read from the local Hugging Face cache: {snapshot}.",)


def test_the_main_or_the_only_snapshot_is_taken(tmp_path):
    old = cached(tmp_path / "hub", revision="old", main=None)
    assert open_target("org/name").path == old
    main = cached(tmp_path / "hub", revision="new", main="new")
    assert open_target("org/name").path == main


def test_a_cache_that_cannot_tell_is_refused(tmp_path, refused, snapshot):
    hub = tmp_path / "hub"
    (hub / "models--org--name").mkdir(parents=True)
    assert refused("org/name") == snapshot(name="nothing downloaded")
    cached(hub, revision="one", main=None)
    cached(hub, revision="two", main=None)
    assert refused("org/name") == snapshot(name="two without main")
    cached(hub, revision="two", main="../../../..")
    assert refused("org/name") == snapshot(name="elsewhere")


def test_only_a_name_of_two_parts_is_looked_up(tmp_path, refused, cases):
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    for name in ("../name", "org/..", "org/name/more", "/name", "org/", "o--rg/na me"):
        with cases(name):
            assert "nothing of it was downloaded" not in refused(name)[0]


# The order


def test_an_existing_path_comes_before_a_preset(here):
    model_folder(here / "whisper")
    opened = open_target("whisper")
    assert (opened.form, opened.path) == ("config", Path("whisper"))
    assert opened.notes == ("whisper is read as a path; preset:whisper fits too.",)
    assert open_target("preset:whisper").notes == ()
    assert open_target("file:whisper").notes == ()


def test_an_existing_path_comes_before_the_cache(here, tmp_path):
    model_folder(here / "org" / "name")
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    assert open_target("org/name").notes == (), "a broken cache does not matter"
    snapshot = cached(tmp_path / "hub")
    opened = open_target("org/name")
    assert opened.path == Path("org/name")
    assert opened.notes == (f"org/name is read as a path; {snapshot} fits too.",)


def test_the_fields_of_a_preset_come_before_a_file_without_tensors(here):
    written(here / "whisper", CONFIG)
    assert open_target("whisper:width=4").spec == ("whisper", {"width": 4})
    np.savez(here / "two.npz", a=np.ones(2))
    (here / "two.npz").rename(here / "whisper")
    assert list(open_target("whisper:a").tensors) == ["a"]


def test_presets_are_not_imported_for_a_file(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "clockhands.encodings.presets", None)  # importing it would raise
    written(here / "model.gguf", small_gguf())
    assert open_target("model.gguf").form == "gguf"
    assert open_target("./model.gguf").form == "gguf"
