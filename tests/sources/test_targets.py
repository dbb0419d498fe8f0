"""What a person may name, in which order it is tried, and what is said when nothing fits."""

import io
import json
import os
import sys
import types
from dataclasses import dataclass
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


def refused(text, error=Unreadable, **named):
    return refusal(open_target, text, error=error, **named)


def model_folder(folder: Path, config: bytes | None = CONFIG, **tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_bytes(config)
    if tensors:
        save_file(tensors, folder / "model.safetensors")
    return folder


# Presets


@pytest.mark.parametrize("text", ["vaswani2017", "preset:vaswani2017"])
def test_a_preset_is_opened(text):
    assert open_target(text) == Opened(text, "preset", spec=("vaswani2017", {}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("width=4", {"width": 4}),
        ("base=1e4,first=-1", {"base": 1e4, "first": -1}),
        ("layout=halves", {"layout": "halves"}),
        ("zero_rows=[0,1],width=8", {"zero_rows": (0, 1), "width": 8}),
        ("scaling=null,truncate=true", {"scaling": None, "truncate": True}),
        ("a=x,y,b= 2", {"a": "x,y", "b": 2}),
        ("base=inf", {"base": float("inf")}),
        ("base=", {"base": ""}),
        ("x=[[[", {"x": "[[["}),
    ],
)
@pytest.mark.parametrize("force", ["", "preset:"])
def test_the_fields_of_a_preset(fields, expected, force):
    assert open_target(f"{force}vaswani2017:{fields}").spec == ("vaswani2017", expected)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "vaswani2017:width",
            "vaswani2017:width has 'width', but a field is expected there.",
            "Write fields as PRESET:field=value,field=value.",
        ),
        (
            "vaswani2017:",
            "vaswani2017: has '', but a field is expected there.",
            "Write fields as PRESET:field=value,field=value.",
        ),
        (
            "preset:whisper:1=2",
            "whisper:1=2 has '1=2', but a field is expected there.",
            "Write fields as PRESET:field=value,field=value.",
        ),
        ("vaswani2017:a=1,a=2", "vaswani2017:a=1,a=2 gives the field a twice.", "Give each field once."),
    ],
)
def test_fields_that_are_none_are_refused(text, message, hint):
    assert refused(text, InvalidValue) == (message, hint)


def test_a_misspelt_preset_is_refused_with_the_nearest():
    lists = f"`clockhands presets` lists all; else name {READ}."
    assert refused("vaswani2071") == (
        "vaswani2071 is neither a path nor a preset.",
        f"Did you mean vaswani2017? {lists}",
    )
    assert refused("preset:wisper:a=1") == (
        "There is no preset 'wisper'.",
        "Did you mean whisper? `clockhands presets` lists all.",
    )
    assert refused("sinusoid") == ("sinusoid is neither a path nor a preset.", lists)


# Standard input


@pytest.mark.parametrize("stream", [io.BytesIO(CONFIG), io.StringIO(CONFIG.decode())])
def test_a_config_on_standard_input_is_read(stream):
    opened = open_target("-", stdin=stream)
    assert (opened.form, opened.path, opened.config_name) == ("config", None, "<stdin>")
    assert opened.config == json.loads(CONFIG)


def test_yaml_on_standard_input_is_read():
    neox = b"\xef\xbb\xbf# GPT-NeoX\nnum-layers: 2\nhidden-size: 64\nnum-attention-heads: 2\npos-emb: rotary\n"
    opened = open_target("-", stdin=io.BytesIO(neox))
    assert (opened.form, opened.config_name) == ("dialect", "<stdin>")
    llama = b"model_type: llama\nrope_theta: 1e6\n"
    assert open_target("-", stdin=io.BytesIO(llama)).config == {"model_type": "llama", "rope_theta": 1e6}
    with pytest.raises(Unreadable, match="<stdin> is YAML without keys at the top level"):
        open_target("-", stdin=io.BytesIO(b"a config"))
    with pytest.raises(Unreadable, match="<stdin> is not JSON"):
        open_target("-", stdin=io.BytesIO(b' {"a": 1'))
    with pytest.raises(Unreadable, match="<stdin> has more than"):
        open_target("-", stdin=io.BytesIO(b"a: " + b"x" * 2**20))
    with pytest.raises(Unreadable, match="says nothing about positions but by the model that it trains"):
        open_target("-", stdin=io.BytesIO(b"base_model: org/name\nadapter: lora\n"))


def test_the_program_s_own_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CONFIG)))
    assert open_target("-").config == json.loads(CONFIG)
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("-") == ("<stdin> is closed.", "Pipe a config.json into the command.")


# What names nothing


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "'' does not name a model, a file or a preset.", f"Name a preset, {READ}."),
        (" ", "' ' does not name a model, a file or a preset.", f"Name a preset, {READ}."),
        ("a\0b", "'a\\x00b' does not name a model, a file or a preset.", f"Name a preset, {READ}."),
        ("x" * 5000, f"'{'x' * 56}... does not name a model, a file or a preset.", f"Name a preset, {READ}."),
        ("x" * 300, f"'{'x' * 56}... does not name a model, a file or a preset.", f"Name a preset, {READ}."),
        (
            "package.module:function",
            "package.module:function is neither a path nor a preset with fields, and functions cannot be audited.",
            f"`clockhands identify package.module:function --width N` looks at functions; else name a preset, {READ}.",
        ),
        (
            "org/name",
            "org/name is neither a path here nor a model in the local Hugging Face cache ({hub}), and "
            "HF_HUB_OFFLINE is set.",
            "Check the spelling; to fetch its config and headers, unset HF_HUB_OFFLINE; or download it: "
            "`hf download org/name`.",
        ),
    ],
)
def test_what_names_nothing_is_refused(tmp_path, text, message, hint):
    assert refused(text) == (message.format(hub=tmp_path / "hub"), hint)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("model.gguf", "model.gguf"),
        ("a/b/c", "a/b/c"),
        ("a/b.json", "a/b.json"),
        ("x.npz:member", "x.npz"),
        ("file:vaswani2017", "vaswani2017"),
        ("C:\\models\\x.npz", "C:\\models\\x.npz"),
        ("C:\\models\\x.npz:member", "C:\\models\\x.npz"),
        ("C:/models", "C:/models"),
        ("./x", "x"),
    ],
)
def test_a_missing_path_is_refused(here, text, path):
    assert refused(text) == (f"{path} does not exist.", f"Check the spelling; the current folder is {here}.")


def test_a_link_to_nothing_is_refused(here):
    (here / "model").symlink_to("gone")
    assert refused("model") == (
        "model is a link to gone, which does not exist.",
        "Download or copy the file it points to.",
    )


@pytest.mark.parametrize("target", [5, None, b"config.json", ["a"]])
def test_a_target_is_text(target):
    message, hint = refused(target, InvalidType)
    assert message == f"A target must be a string or a path, got {target!r}."
    assert hint == f"Name a preset, {READ}."


# Files


def test_a_config_is_opened_with_its_duplicates(here):
    written(here / "config.json", b'{"a": 1, "a": 2}')
    opened = open_target("config.json")
    assert (opened.form, opened.path, opened.config_name) == ("config", Path("config.json"), "config.json")
    assert (opened.config, opened.duplicates, dict(opened.tensors)) == ({"a": 2}, ("a",), {})
    assert open_target("file:config.json").config == {"a": 2}
    assert open_target(here / "config.json").config == {"a": 2}


def test_a_missing_path_object_is_refused(here):
    message, _ = refused(here / "none.json")
    assert message == f"{here / 'none.json'} does not exist."
    message, _ = refused(here / "none")
    assert message == f"{here / 'none'} does not exist."


@pytest.mark.parametrize("name", ["model.gguf", "sha256-0123", "MODEL.GGUF"])
def test_a_gguf_is_opened_by_its_ending_or_its_first_bytes(here, name):
    written(here / name, small_gguf())
    opened = open_target(name)
    assert (opened.form, opened.config_name, opened.notes) == ("gguf", name, ())
    assert opened.config["llama.context_length"] == 8192
    assert opened.array("rope_freqs.weight").tolist() == [1, 2, 3, 4]
    assert opened.summary("rope_freqs.weight").nonfinite_rows == 0


def test_other_files_are_opened_by_their_first_bytes_too(here):
    save_file({"a": np.ones(2)}, here / "blob")
    assert open_target("blob").form == "safetensors"
    np.savez(here / "x.npz", a=np.ones(2))
    (here / "x.npz").rename(here / "blob")
    assert open_target("blob:a").form == "array"
    written(here / "blob", b" " * 8 + CONFIG)
    assert open_target("blob").config == json.loads(CONFIG)


def test_a_file_that_fails_while_it_is_looked_at_is_refused(here, monkeypatch):
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
        message, hint = refusal(call, "rope_freq.weight", error=Unreadable)
        assert (message, hint) == ("model.gguf has no tensor 'rope_freq.weight'.", "Did you mean rope_freqs.weight?")
    _, hint = refusal(opened.array, "z", error=Unreadable)
    assert hint == "It holds rope_freqs.weight, half, brain, quantised."


def test_a_big_endian_file_is_noted(here):
    written(here / "model.gguf", small_gguf(">"))
    assert open_target("model.gguf").notes == ("model.gguf is in big-endian byte order.",)


def part(number, *more):
    return gguf_bytes([gguf_key("split.no", "uint16", number), gguf_key("split.count", "uint16", 3), *more])


def test_parts_of_a_gguf(here):
    llama = gguf_key("general.architecture", "string", "llama")
    written(here / "m-00001-of-00003.gguf", part(0, llama))
    written(here / "m-00002-of-00003.gguf", part(1))
    note = "m-00001-of-00003.gguf is part 1 of 3; tensors of the other parts are not examined."
    assert open_target("m-00001-of-00003.gguf").notes == (note,)
    assert open_target(".").notes == (note,)
    message, hint = refused("m-00002-of-00003.gguf")
    assert message == "m-00002-of-00003.gguf is part 2 of 3, but the model's settings are in part 1."
    assert hint == "Name the part whose name has 00001."


def test_a_safetensors_file_is_opened_with_the_config_beside_it(here):
    save_file({"a": np.arange(3.0)}, here / "x.safetensors")
    alone = open_target("x.safetensors")
    assert (alone.form, alone.config, alone.notes) == ("safetensors", None, ())
    assert alone.array("a").tolist() == [0, 1, 2]
    written(here / "config.json", CONFIG)
    both = open_target("x.safetensors")
    assert (both.form, both.config, both.config_name) == ("safetensors", json.loads(CONFIG), "config.json")
    assert both.notes == ("config.json in the same folder is read too.",)


@pytest.mark.parametrize("separator", ["x.safetensors:deep/b:0", "file:x.safetensors:deep/b:0"])
def test_one_tensor_is_picked(here, separator):
    save_file({"deep/b:0": np.arange(3.0), "c": np.ones(1)}, here / "x.safetensors")
    opened = open_target(separator)
    assert (opened.form, list(opened.tensors), opened.config) == ("array", ["deep/b:0"], None)
    assert opened.array("deep/b:0").tolist() == [0, 1, 2]
    message, hint = refused("x.safetensors:C")
    assert (message, hint) == ("x.safetensors:C has no tensor 'C'.", "It holds c, deep/b:0.")


def test_a_colon_in_a_file_s_name_is_part_of_it(here):
    np.savez(here / "a:b.npz", c=np.ones(2), d=np.zeros(1))
    assert open_target("a:b.npz:c").array("c").tolist() == [1, 1]
    np.save(here / "x:y.npy", np.ones(3))
    assert list(open_target("x:y.npy").tensors) == ["x:y.npy"]


def test_arrays_are_opened(here):
    np.save(here / "table.npy", np.array([[1, np.nan], [0, 1]]))
    opened = open_target("table.npy")
    assert (opened.form, opened.config_name, list(opened.tensors)) == ("array", "table.npy", ["table.npy"])
    assert opened.summary("table.npy").first_nonfinite == (0,)
    np.savez(here / "one.npz", only=np.ones(2))
    assert list(open_target("one.npz").tensors) == ["only"]
    np.savez(here / "two.npz", a=np.ones(2), b=np.ones(2))
    assert list(open_target("two.npz:b").tensors) == ["b"]
    assert refused("two.npz") == (
        "two.npz holds 2 arrays, but one is needed.",
        "Pick one as two.npz:NAME. It holds a, b.",
    )
    assert refused("table.npy:a") == (
        "table.npy holds one array without a name, not 'a'.",
        "Name the file only: table.npy.",
    )
    assert refused("two.npz:c") == ("two.npz has no array 'c'.", "It holds a, b.")


def test_an_archive_with_a_config_beside_it_is_a_model(here):
    np.savez(here / "weights.npz", wpe=np.ones((8, 4), "float32"), q=np.ones((4, 4)))
    written(here / "config.json", CONFIG)
    opened = open_target("weights.npz")
    assert (opened.form, opened.config_name, list(opened.tensors)) == ("npz", "config.json", ["wpe", "q"])
    assert opened.array("wpe").sum() == 32
    assert open_target("weights.npz:q").form == "array"


@pytest.mark.parametrize(
    ("name", "data", "message", "hint"),
    [
        (
            "pytorch_model.bin",
            b"PK\x03\x04",
            "pytorch_model.bin cannot be read as a zip archive: File is not a zip file.",
            "Write or download the file again.",
        ),
        (
            "weights",
            b"\x80\x04\x95",
            "weights is not a complete pickle: not enough data in stream to read uint8.",
            "Download or write the file again.",
        ),
        ("model.onnx", b"", "model.onnx is not an ONNX model: it is empty.", "Write or download the file again."),
        (
            "blob",
            b"version https://git-lfs.github.com/spec/v1\n",
            "blob is a Git LFS pointer, not the file itself.",
            "Run `git lfs pull` in its folder.",
        ),
        (
            "text",
            b"hello",
            "text is not a kind of file that clockhands reads: its first bytes are b'hello'.",
            f"Name {READ}.",
        ),
        ("none", b"", "none is not a kind of file that clockhands reads: it is empty.", f"Name {READ}."),
        (
            "page",
            b"<!DOCTYPE html>",
            "page is not a kind of file that clockhands reads: it starts like a web page.",
            f"Name {READ}.",
        ),
    ],
)
def test_files_of_other_kinds_are_refused(here, name, data, message, hint):
    written(here / name, data)
    assert refused(name) == (message, hint)


def test_no_tensor_is_picked_from_a_config(here):
    written(here / "config.json", CONFIG)
    assert refused("config.json:a") == (
        "config.json holds no tensors to pick 'a' from.",
        "Tensors are picked from .npz, .safetensors, .onnx, .gguf, .bin and .pt files.",
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors", "x.npy", "x.npz"])
def test_a_pipe_is_refused_where_a_file_is_needed(here, name):
    os.mkfifo(here / name)
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


def test_a_folder_with_an_index(here):
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
    message, _ = refused("m")
    assert (
        message == "m/model.safetensors.index.json names the shard 's2.safetensors', which is not in the same folder."
    )
    message, _ = refused("m/model.safetensors.index.json")
    assert (
        message == "m/model.safetensors.index.json names the shard 's2.safetensors', which is not in the same folder."
    )


def test_a_folder_cloned_without_its_large_files(here):
    folder = model_folder(here / "m")
    written(folder / "model.safetensors", b"version https://git-lfs.github.com/spec/v1\n")
    opened = open_target("m")
    assert dict(opened.tensors) == {}
    assert opened.notes == ("model.safetensors is a Git LFS pointer; its tensors are not here.",)
    (folder / "config.json").unlink()
    message, _ = refused("m")
    assert message == "m/model.safetensors is a Git LFS pointer, not the tensors themselves."


def test_a_folder_with_a_broken_file_is_refused(here):
    folder = model_folder(here / "m", a=np.ones(8))
    whole = (folder / "model.safetensors").read_bytes()
    written(folder / "model.safetensors", whole[:-1])
    message, _ = refused("m")
    assert message == "m/model.safetensors: its header declares 64 bytes of tensors, but 63 follow it."


def test_a_folder_with_several_files_of_tensors(here):
    folder = model_folder(here / "m")
    for name in ("one", "two"):
        save_file({"a": np.ones(1)}, folder / f"{name}.safetensors")
    opened = open_target("m")
    assert dict(opened.tensors) == {}
    assert opened.notes == ("2 .safetensors files without an index are not examined; name one of them.",)
    (folder / "config.json").unlink()
    assert refused("m") == (
        "m has 2 .safetensors files and neither an index nor a config.json.",
        "Name one of them. There are one.safetensors, two.safetensors.",
    )
    (folder / "two.safetensors").rename(folder / "model.safetensors")
    assert open_target("m").tensors["a"].file.name == "model.safetensors"


def test_a_folder_with_a_gguf_only(here):
    folder = model_folder(here / "m", None)
    written(folder / "x.gguf", small_gguf())
    opened = open_target("m")
    assert (opened.form, opened.path, opened.config_name) == ("gguf", Path("m/x.gguf"), "x.gguf")
    written(folder / "y.gguf", small_gguf())
    assert refused("m") == ("m has 2 .gguf files and no config.json.", "Name one of them. There are x.gguf, y.gguf.")


def test_folders_without_a_config(here):
    folder = model_folder(here / "m", None)
    assert refused("m") == ("m has no config.json.", f"Name {READ}.")
    (folder / "snapshots").mkdir()
    hint = "It is a folder of the Hugging Face cache: name the model as org/name, or one of its snapshots."
    assert refused("m") == ("m has no config.json.", hint)
    model_folder(folder / "unet")
    hint = "Name one of its folders. With a config.json there are unet."
    assert refused("m") == ("m has no config.json.", hint)
    model_folder(folder / "vae")
    hint = "Name one of its folders. With a config.json there are unet, vae. `clockhands audit -r m` audits them all."
    assert refused("m") == ("m has no config.json.", hint)


def test_a_folder_of_yaml_files_names_them(here):
    folder = model_folder(here / "m", None)
    for name in ("20B.yml", "1-3B.yaml"):
        (folder / name).write_text("num_layers: 2\n")
    assert refused("m") == ("m has no config.json.", "Name one of its files. There are 1-3B.yaml, 20B.yml.")


def test_a_name_that_is_nearly_that_of_a_file_is_offered(here):
    model_folder(here / "m")
    there = f"the current folder is {here}."
    assert refused("m/confg.json")[1] == f"Did you mean m/config.json? Check the spelling; {there}"
    assert refused("m/other.json")[1] == f"Check the spelling; {there}"


def test_a_folder_that_is_called_as_a_config(here):
    folder = model_folder(here / "m", None)
    (folder / "config.json").mkdir()
    message, hint = refused("m")
    assert message == "m/config.json is a folder, but in a model folder a file is expected."
    assert hint.startswith("If the model is in it, name it")
    assert refused("m/config.json")[0] == "m/config.json has no config.json."
    model_folder(folder / "config.json")
    assert open_target("m/config.json").form == "config"


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("https://huggingface.co/org/name", "org/name"),
        ("http://www.huggingface.co/org/name/", "org/name"),
        ("hf.co/org/name", "org/name"),
        ("https://huggingface.co/org/name/tree/v1.0", "org/name@v1.0"),
        ("https://huggingface.co/org/name/blob/main/config.json", "org/name@main"),
        ("https://huggingface.co/org/name/resolve/main/config.json?download=true", "org/name@main"),
        ("https://example.com/model.gguf", "org/name[@revision]"),
        ("s3://bucket/model", "org/name[@revision]"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_web_address_is_refused_with_the_name_to_give(address, called):
    message, hint = refused(address)
    assert message == f"{address} is a web address, and models are audited by their name."
    assert hint.startswith(f"Give {called} for a model of the hub;")


@pytest.mark.parametrize("text", ["org/name@", "org/name@:model.gguf"])
@pytest.mark.usefixtures("here")
def test_a_name_with_an_empty_revision_is_refused(text):
    assert refused(text) == (f"{text} has no revision after the @.", "Give org/name, or org/name@REVISION.")


def test_a_folder_that_may_not_be_listed_is_refused(here, monkeypatch):
    model_folder(here / "m")

    def fail(_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", fail)
        told = refused("m")
    assert told == ("m cannot be listed: Permission denied.", "Get permission to read the folder.")


def test_a_path_that_may_not_be_looked_at_says_so(monkeypatch):
    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", fail)
        patched.setattr(Path, "open", fail)
        patched.setattr(Path, "is_dir", lambda _: False)
        message, hint = refused("locked/config.json")
    assert message == "locked/config.json cannot be read: Permission denied."
    assert hint == "Get read permission, or copy the file."


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


def test_the_main_snapshot_is_taken(tmp_path):
    cached(tmp_path / "hub", revision="old")
    main = cached(tmp_path / "hub", revision="new", main="new")
    assert open_target("org/name").path == main


def test_a_lone_snapshot_needs_no_reference(tmp_path):
    snapshot = cached(tmp_path / "hub", main=None)
    assert open_target("org/name").path == snapshot


def test_a_cache_that_cannot_tell_is_refused(tmp_path):
    hub = tmp_path / "hub"
    model = hub / "models--org--name"
    model.mkdir(parents=True)
    assert refused("org/name") == (
        f"org/name is in the local Hugging Face cache, but nothing of it was downloaded ({model}).",
        "Download the model first, or at least its config.json.",
    )
    cached(hub, revision="one", main=None)
    cached(hub, revision="two", main=None)
    hint = f"Name one of the folders in {model / 'snapshots'}."
    assert refused("org/name") == (
        "org/name is in the local Hugging Face cache, but a main revision is not among its 2 snapshots.",
        hint,
    )
    cached(hub, revision="two", main="../../../..")
    assert refused("org/name") == (
        "org/name is in the local Hugging Face cache, but the revision '../../../..' is not among its 2 snapshots.",
        hint,
    )


@pytest.mark.parametrize("name", ["../name", "org/..", "org/name/more", "/name", "org/", "o--rg/na me"])
def test_only_a_name_of_two_parts_is_looked_up(tmp_path, name):
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    message, _ = refused(name)
    assert "nothing of it was downloaded" not in message


# The order


def test_an_existing_path_comes_before_a_preset(here):
    model_folder(here / "whisper")
    opened = open_target("whisper")
    assert (opened.form, opened.path) == ("config", Path("whisper"))
    assert opened.notes == ("whisper is read as a path; preset:whisper fits too.",)
    assert open_target("preset:whisper").notes == ()
    assert open_target("file:whisper").notes == ()


def test_an_existing_path_comes_before_the_cache(here, tmp_path):
    snapshot = cached(tmp_path / "hub")
    model_folder(here / "org" / "name")
    opened = open_target("org/name")
    assert opened.path == Path("org/name")
    assert opened.notes == (f"org/name is read as a path; {snapshot} fits too.",)


def test_a_broken_cache_does_not_matter_to_an_existing_path(here, tmp_path):
    (tmp_path / "hub" / "models--org--name").mkdir(parents=True)
    model_folder(here / "org" / "name")
    assert open_target("org/name").notes == ()


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
