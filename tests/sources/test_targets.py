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

from clockhands.errors import InvalidType, InvalidValue, Unreadable
from clockhands.sources import Opened, open_target
from written_files import gguf_bytes, gguf_key, refusal, small_gguf, written

READ = "a model folder, config.json, .yaml, .gguf, .safetensors or .bin (or its index), .pt, .onnx, .npy, .npz"
CONFIG = b'{"model_type": "llama", "rope_theta": 10000.0}'


@dataclass(frozen=True)
class Preset:
    name: str


@pytest.fixture(autouse=True)
def presets(monkeypatch):
    """Two presets that say what they were called with, so that these tests do not depend on the real ones."""
    module = types.ModuleType("clockhands.presets")
    module.presets = lambda: (Preset("vaswani2017"), Preset("whisper"))
    module.names = lambda: ("vaswani2017", "whisper")
    module.preset = lambda name, **fields: (name, fields)
    monkeypatch.setitem(sys.modules, "clockhands.presets", module)


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


# Files


def test_a_config_is_opened_with_its_duplicates(here):
    written(here / "config.json", b'{"a": 1, "a": 2}')
    opened = open_target("config.json")
    assert (opened.form, opened.path, opened.config_name) == ("config", Path("config.json"), "config.json")
    assert (opened.config, opened.duplicates, dict(opened.tensors)) == ({"a": 2}, ("a",), {})
    assert open_target("file:config.json").config == {"a": 2}
    assert open_target(here / "config.json").config == {"a": 2}


def test_a_gguf_is_opened_by_its_ending_or_its_first_bytes(here, cases):
    for name in ("model.gguf", "sha256-0123", "MODEL.GGUF"):
        written(here / name, small_gguf())
        with cases(name):
            opened = open_target(name)
            assert (opened.form, opened.config_name, opened.notes) == ("gguf", name, ())
            assert opened.config["llama.context_length"] == 8192
            assert opened.array("rope_freqs.weight").tolist() == [1, 2, 3, 4]
            assert opened.summary("rope_freqs.weight").nonfinite_rows == 0
    written(here / "model.gguf", small_gguf(">"))
    assert open_target("model.gguf").notes == ("model.gguf is in big-endian byte order.",)


def test_other_files_are_opened_by_their_first_bytes_too(here):
    save_file({"a": np.ones(2)}, here / "blob")
    assert open_target("blob").form == "safetensors"
    np.savez(here / "x.npz", a=np.ones(2))
    (here / "x.npz").rename(here / "blob")
    assert open_target("blob:a").form == "array"
    written(here / "blob", b" " * 8 + CONFIG)
    assert open_target("blob").config == json.loads(CONFIG)


def test_a_file_that_fails_while_it_is_looked_at_is_refused(here, monkeypatch, refused):
    written(here / "blob", CONFIG)

    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda *_: Failing())
        told = refused("blob")
    assert told == ("blob cannot be read: Input/output error.", "Check the path and the disk.")


def test_a_tensor_that_is_not_there_is_refused_with_the_nearest(here):
    written(here / "model.gguf", small_gguf())
    opened = open_target("model.gguf")
    for call in (opened.array, opened.summary, opened.tensor):
        assert refusal(call, "rope_freq.weight", error=Unreadable) == (
            "model.gguf has no tensor 'rope_freq.weight'.",
            "Did you mean rope_freqs.weight?",
        )
    assert refusal(opened.array, "z", error=Unreadable)[1] == "It holds rope_freqs.weight, half, brain, quantised."


def part(number, *more):
    return gguf_bytes([gguf_key("split.no", "uint16", number), gguf_key("split.count", "uint16", 3), *more])


def test_parts_of_a_gguf(here, refused, snapshot):
    llama = gguf_key("general.architecture", "string", "llama")
    written(here / "m-00001-of-00003.gguf", part(0, llama))
    written(here / "m-00002-of-00003.gguf", part(1))
    note = "m-00001-of-00003.gguf is part 1 of 3; tensors of the other parts are not examined."
    assert open_target("m-00001-of-00003.gguf").notes == (note,)
    assert open_target(".").notes == (note,)
    assert refused("m-00002-of-00003.gguf") == snapshot


def test_a_safetensors_file_is_opened_with_the_config_beside_it(here):
    save_file({"a": np.arange(3.0)}, here / "x.safetensors")
    alone = open_target("x.safetensors")
    assert (alone.form, alone.config, alone.notes) == ("safetensors", None, ())
    assert alone.array("a").tolist() == [0, 1, 2]
    written(here / "config.json", CONFIG)
    both = open_target("x.safetensors")
    assert (both.form, both.config, both.config_name) == ("safetensors", json.loads(CONFIG), "config.json")
    assert both.notes == ("config.json in the same folder is read too.",)


def test_one_tensor_is_picked(here, refused, snapshot):
    save_file({"deep/b:0": np.arange(3.0), "c": np.ones(1)}, here / "x.safetensors")
    for text in ("x.safetensors:deep/b:0", "file:x.safetensors:deep/b:0"):
        opened = open_target(text)
        assert (opened.form, list(opened.tensors), opened.config) == ("array", ["deep/b:0"], None)
        assert opened.array("deep/b:0").tolist() == [0, 1, 2]
    assert refused("x.safetensors:C") == snapshot(name="another")
    written(here / "config.json", CONFIG)
    assert refused("config.json:a") == snapshot(name="config")


def test_a_colon_in_a_file_s_name_is_part_of_it(here):
    np.savez(here / "a:b.npz", c=np.ones(2), d=np.zeros(1))
    assert open_target("a:b.npz:c").array("c").tolist() == [1, 1]
    np.save(here / "x:y.npy", np.ones(3))
    assert list(open_target("x:y.npy").tensors) == ["x:y.npy"]


def test_arrays_are_opened(here, refused, snapshot):
    np.save(here / "table.npy", np.array([[1, np.nan], [0, 1]]))
    opened = open_target("table.npy")
    assert (opened.form, opened.config_name, list(opened.tensors)) == ("array", "table.npy", ["table.npy"])
    assert opened.summary("table.npy").first_nonfinite == (0,)
    np.savez(here / "one.npz", only=np.ones(2))
    assert list(open_target("one.npz").tensors) == ["only"]
    np.savez(here / "two.npz", a=np.ones(2), b=np.ones(2))
    assert list(open_target("two.npz:b").tensors) == ["b"]
    for text in ("two.npz", "table.npy:a", "two.npz:c"):
        assert refused(text) == snapshot(name=text)


def test_an_archive_with_a_config_beside_it_is_a_model(here):
    np.savez(here / "weights.npz", wpe=np.ones((8, 4), "float32"), q=np.ones((4, 4)))
    written(here / "config.json", CONFIG)
    opened = open_target("weights.npz")
    assert (opened.form, opened.config_name, list(opened.tensors)) == ("npz", "config.json", ["wpe", "q"])
    assert opened.array("wpe").sum() == 32
    assert open_target("weights.npz:q").form == "array"


OTHER_KINDS = {
    "pytorch_model.bin": b"PK\x03\x04",
    "weights": b"\x80\x04\x95",
    "model.onnx": b"",
    "blob": b"version https://git-lfs.github.com/spec/v1\n",
    "text": b"hello",
    "none": b"",
    "page": b"<!DOCTYPE html>",
}


def test_files_of_other_kinds_are_refused(here, refused, snapshot, cases):
    for name, data in OTHER_KINDS.items():
        written(here / name, data)
        with cases(name):
            assert refused(name) == snapshot(name=name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_where_a_file_is_needed(here, refused, cases):
    for name in ("model.gguf", "model.safetensors", "x.npy", "x.npz"):
        os.mkfifo(here / name)
        with cases(name):
            assert refused(name) == (
                f"{name} is not a regular file, but this kind of file cannot be read as a stream.",
                "Save it as a file first; only JSON can come through a pipe.",
            )


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system has no /dev/fd")
def test_a_config_comes_through_a_pipe():
    read, write = os.pipe()
    os.write(write, CONFIG)
    os.close(write)
    try:
        assert open_target(f"/dev/fd/{read}").config == json.loads(CONFIG)
    finally:
        os.close(read)


# Folders


def test_a_model_folder_is_opened(here):
    model_folder(here / "m", embed=np.ones((4, 2), "float32"))
    opened = open_target("m")
    assert (opened.form, opened.path, opened.config_name, opened.notes) == ("config", Path("m"), "config.json", ())
    assert opened.config == json.loads(CONFIG)
    assert opened.tensors["embed"].shape == (4, 2)
    assert opened.array("embed").sum() == 8


def test_the_other_documents_of_a_folder_are_read(here):
    folder = model_folder(here / "m")
    written(folder / "tokenizer_config.json", b'{"model_max_length": 1e30, "a": 1, "a": 2}')
    written(folder / "generation_config.json", b'{"max_length": 4096}')
    written(folder / "params.json", b"[1]")
    written(folder / "vocab.json", b"{}")
    opened = open_target("m")
    assert opened.beside == {
        "generation_config.json": {"max_length": 4096},
        "tokenizer_config.json": {"model_max_length": 1e30, "a": 2},
    }
    assert opened.notes == (
        "params.json is not examined: m/params.json holds a list at the top level, but a config must be a JSON object.",
        "tokenizer_config.json gives 'a' more than once; the last value is used.",
    )


def test_a_config_by_itself_brings_nothing_else(here):
    folder = model_folder(here / "m")
    written(folder / "tokenizer_config.json", b'{"model_max_length": 512}')
    assert open_target("m/config.json").beside == {}


def test_a_folder_with_an_index(here, refused):
    folder = model_folder(here / "m")
    save_file({"a": np.ones(1)}, folder / "s1.safetensors")
    index = {"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}}
    written(folder / "model.safetensors.index.json", json.dumps(index).encode())
    opened = open_target("m")
    assert list(opened.tensors) == ["a"]
    assert opened.notes == (
        "1 of the shards that model.safetensors.index.json names are not here, s2.safetensors first.",
    )
    save_file({"b": np.ones(1)}, folder / "s2.safetensors")
    opened = open_target("m")
    assert (list(opened.tensors), opened.notes) == (["a", "b"], ())
    (folder / "config.json").unlink()
    opened = open_target("m")
    assert (opened.form, opened.config, list(opened.tensors)) == ("safetensors", None, ["a", "b"])
    (folder / "s2.safetensors").unlink()
    told = "m/model.safetensors.index.json names the shard 's2.safetensors', which is not in the same folder."
    assert refused("m")[0] == refused("m/model.safetensors.index.json")[0] == told


def test_a_folder_cloned_without_its_large_files(here, refused, snapshot):
    folder = model_folder(here / "m")
    written(folder / "model.safetensors", b"version https://git-lfs.github.com/spec/v1\n")
    opened = open_target("m")
    assert dict(opened.tensors) == {}
    assert opened.notes == ("model.safetensors is a Git LFS pointer; its tensors are not here.",)
    (folder / "config.json").unlink()
    assert refused("m") == snapshot(name="pointer")
    folder = model_folder(here / "broken", a=np.ones(8))
    written(folder / "model.safetensors", (folder / "model.safetensors").read_bytes()[:-1])
    assert refused("broken") == snapshot(name="broken")


def test_a_folder_with_several_files_of_tensors(here, refused, snapshot):
    folder = model_folder(here / "m")
    for name in ("one", "two"):
        save_file({"a": np.ones(1)}, folder / f"{name}.safetensors")
    opened = open_target("m")
    assert dict(opened.tensors) == {}
    assert opened.notes == ("2 .safetensors files without an index are not examined; name one of them.",)
    (folder / "config.json").unlink()
    assert refused("m") == snapshot
    (folder / "two.safetensors").rename(folder / "model.safetensors")
    assert open_target("m").tensors["a"].file.name == "model.safetensors"


def test_a_folder_with_a_gguf_only(here, refused):
    folder = model_folder(here / "m", None)
    written(folder / "x.gguf", small_gguf())
    opened = open_target("m")
    assert (opened.form, opened.path, opened.config_name) == ("gguf", Path("m/x.gguf"), "x.gguf")
    written(folder / "y.gguf", small_gguf())
    assert refused("m") == ("m has 2 .gguf files and no config.json.", "Name one of them. There are x.gguf, y.gguf.")


def test_folders_without_a_config(here, refused, snapshot):
    folder = model_folder(here / "m", None)
    assert refused("m") == snapshot(name="1 empty")
    (folder / "snapshots").mkdir()
    assert refused("m") == snapshot(name="2 of the cache")
    model_folder(folder / "unet")
    assert refused("m") == snapshot(name="3 with a model")
    model_folder(folder / "vae")
    assert refused("m") == snapshot(name="4 with two models")
    folder = model_folder(here / "yaml", None)
    for name in ("20B.yml", "1-3B.yaml"):
        (folder / name).write_text("num_layers: 2\n")
    assert refused("yaml") == snapshot(name="5 of YAML files")


def test_a_name_that_is_nearly_that_of_a_file_is_offered(here, refused):
    model_folder(here / "m")
    there = "the current folder is FOLDER/here."
    assert refused("m/confg.json")[1] == f"Did you mean m/config.json? Check the spelling; {there}"
    assert refused("m/other.json")[1] == f"Check the spelling; {there}"


def test_a_folder_that_is_called_as_a_config(here, refused, snapshot):
    folder = model_folder(here / "m", None)
    (folder / "config.json").mkdir()
    assert refused("m") == snapshot(name="above")
    assert refused("m/config.json") == snapshot(name="itself")
    model_folder(folder / "config.json")
    assert open_target("m/config.json").form == "config"


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


def test_what_may_not_be_looked_at_says_so(here, monkeypatch, refused):
    model_folder(here / "m")

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
    monkeypatch.setitem(sys.modules, "clockhands.presets", None)  # importing it would raise
    written(here / "model.gguf", small_gguf())
    assert open_target("model.gguf").form == "gguf"
    assert open_target("./model.gguf").form == "gguf"
