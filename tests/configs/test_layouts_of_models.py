"""Files and folders as people have them: what is opened of each, with which config and tensors, and what is refused.

Each layout is laid out by itself, and each of its targets is opened; all that a target is found to be is kept as it was
found, so that what is read beside a file, left out with a note or refused with a sentence is one table.
"""

import io
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from clockhands.configs import open_target
from clockhands.errors import Unreadable
from formats.test_arrays import npy_of
from written_files import (
    checkpoint_bytes,
    gguf_bytes,
    gguf_key,
    onnx_bytes,
    onnx_tensor,
    pickled_dictionary,
    pickled_tensor,
    small_checkpoint,
    small_gguf,
)

CONFIG = b'{"model_type": "llama", "rope_theta": 10000.0}'
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
PARAMS = b'{"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 128256, "rope_theta": 500000.0}'


def npz(**held) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **held)
    return stream.getvalue()


def part(number: int, *more: bytes) -> bytes:
    return gguf_bytes([gguf_key("split.no", "uint16", number), gguf_key("split.count", "uint16", 3), *more])


def layouts() -> dict[str, tuple[dict[str, bytes | None], str]]:
    """Files by their path, None for a folder; and the targets that are opened, parted by spaces."""
    one, two, three = save({"a": np.ones(1)}), save({"b": np.ones(1)}), save({"a": np.arange(3.0)})
    index = json.dumps({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}}).encode()
    shards = {"m/model.safetensors.index.json": index, "m/s1.safetensors": one}
    picked = save({"deep/b:0": np.arange(3.0), "c": np.ones(1)})
    llama = gguf_key("general.architecture", "string", "llama")
    tensor = pickled_tensor("0", (2, 3), numel=6, strides=(3, 1))
    pt, c = small_checkpoint(), pickled_dictionary({"c": pickled_tensor("0", (2,), numel=2, strides=(1,))})
    names = {"a": "pytorch_model-00001-of-00002.bin", "c": "pytorch_model-00002-of-00002.bin"}
    first = {"pytorch_model.bin.index.json": json.dumps({"weight_map": names}).encode(), names["a"]: pt}
    nan, both = npy_of(np.array([[1, np.nan], [0, 1]])), npz(a=np.ones((2, 4), "float32"), b=np.zeros(1))
    model = onnx_bytes([onnx_tensor("a:b", (2,), raw=bytes(8))])
    beside = {
        "m/config.json": CONFIG, "m/tokenizer_config.json": b'{"model_max_length": 1e30, "a": 1, "a": 2}',
        "m/generation_config.json": b'{"max_length": 4096}', "m/params.json": b"[1]", "m/vocab.json": b"{}",
    }  # fmt: skip
    return {
        # Configs
        "a config": ({"config.json": b'{"a": 1, "a": 2}'}, "config.json file:config.json config.json:a confg.json"),
        "a model": ({"m/config.json": CONFIG, "m/model.safetensors": one}, "m m/config.json m/confg.json m/other.json"),
        "other documents": (beside, "m m/config.json"),
        "a config by its first bytes": ({"blob": b" " * 8 + CONFIG}, "blob"),
        "a folder called config": ({"m/config.json": None}, "m m/config.json"),
        "a model in a folder called config": ({"m/config.json/config.json": CONFIG}, "m/config.json"),
        "a folder of nothing": ({"m": None}, "m"),
        "a folder of the cache": ({"m/snapshots": None}, "m"),
        "a folder with a model": ({"m/unet/config.json": CONFIG, "m/snapshots": None}, "m"),
        "a folder with two models": ({"m/unet/config.json": CONFIG, "m/vae/config.json": CONFIG}, "m"),
        "YAML files": ({"m/20B.yml": b"num_layers: 2\n", "m/1-3B.yaml": b"num_layers: 2\n"}, "m"),
        # GGUF
        "GGUF": ({"model.gguf": small_gguf(), "sha256-0123": small_gguf()}, "model.gguf sha256-0123 ."),
        "GGUF in capitals": ({"MODEL.GGUF": small_gguf()}, "MODEL.GGUF"),
        "GGUF of another byte order": ({"model.gguf": small_gguf(">")}, "model.gguf"),
        "two GGUF": ({"m/x.gguf": part(0), "m/y.gguf": part(0)}, "m"),
        "parts of a GGUF": (
            {"m-00001-of-00003.gguf": part(0, llama), "m-00002-of-00003.gguf": part(1)},
            "m-00001-of-00003.gguf . m-00002-of-00003.gguf",
        ),
        # Safetensors
        "safetensors": ({"x.safetensors": three, "blob": three}, "x.safetensors blob"),
        "safetensors and a config": ({"x.safetensors": three, "config.json": CONFIG}, "x.safetensors"),
        "a picked tensor": (
            {"x.safetensors": picked},
            "x.safetensors:deep/b:0 file:x.safetensors:deep/b:0 x.safetensors:C",
        ),
        "a shard is absent": (shards | {"m/config.json": CONFIG}, "m"),
        "all shards": (shards | {"m/config.json": CONFIG, "m/s2.safetensors": two}, "m"),
        "shards without a config": (shards | {"m/s2.safetensors": two}, "m m/model.safetensors.index.json"),
        "a shard and the config are absent": (shards, "m m/model.safetensors.index.json"),
        "cloned without large files": ({"m/config.json": CONFIG, "m/model.safetensors": POINTER}, "m"),
        "a pointer": ({"m/model.safetensors": POINTER}, "m"),
        "broken": ({"m/config.json": CONFIG, "m/model.safetensors": one[:-1]}, "m"),
        "several safetensors": ({"m/config.json": CONFIG, "m/1.safetensors": one, "m/2.safetensors": one}, "m"),
        "several without a config": ({"m/1.safetensors": one, "m/2.safetensors": one}, "m"),
        "one has the usual name": ({"m/1.safetensors": two, "m/model.safetensors": one, "m/config.json": CONFIG}, "m"),
        # Arrays
        "an array": ({"table.npy": nan, "x:y.npy": npy_of(np.ones(3))}, "table.npy table.npy:a x:y.npy"),
        "an archive of one": ({"one.npz": npz(only=np.ones(2))}, "one.npz"),
        "an archive of two": ({"two.npz": both, "a:b.npz": both}, "two.npz two.npz:b two.npz:c a:b.npz:a"),
        "an archive by its first bytes": ({"blob": both}, "blob:a"),
        "an archive and a config": ({"w.npz": both, "config.json": CONFIG}, "w.npz w.npz:b"),
        # ONNX
        "ONNX": ({"onnx/m.onnx": model}, "onnx/m.onnx onnx/m.onnx:a:b"),
        "ONNX and a config above": ({"onnx/m.onnx": model, "config.json": CONFIG}, "onnx/m.onnx"),
        "ONNX and two configs": (
            {"onnx/m.onnx": model, "config.json": b"{}", "onnx/config.json": CONFIG},
            "onnx/m.onnx",
        ),
        # PyTorch
        "a checkpoint": ({"pytorch_model.bin": pt}, ". pytorch_model.bin pytorch_model.bin:a"),
        "a checkpoint and a config": ({"pytorch_model.bin": pt, "config.json": CONFIG}, ". pytorch_model.bin"),
        "a checkpoint by its first bytes": ({"0123abcd": pt}, "0123abcd"),
        "a tensor by itself": ({"x.pt": checkpoint_bytes(tensor, {"0": bytes(24)})}, "x.pt"),
        "shards of PyTorch": (
            first | {names["c"]: checkpoint_bytes(c, {"0": bytes(8)})},
            ". pytorch_model.bin.index.json",
        ),
        "a shard of PyTorch is absent": (first | {"config.json": b"{}"}, "."),
        # Meta and Mistral
        "a folder of Meta": (
            {"params.json": PARAMS, "consolidated.00.pth": pt, "consolidated.01.pth": pt},
            ". params.json",
        ),
        "a folder of Mistral": ({"params.json": PARAMS, "consolidated.safetensors": one}, ". consolidated.safetensors"),
        "params beside a config": ({"params.json": PARAMS, "config.json": CONFIG}, "."),
        # None of these
        "a zip that is none": ({"pytorch_model.bin": b"PK\x03\x04"}, "pytorch_model.bin"),
        "half a pickle": ({"weights": b"\x80\x04\x95"}, "weights"),
        "nothing": ({"model.onnx": b"", "none": b""}, "model.onnx none"),
        "a pointer without an ending": ({"blob": POINTER}, "blob"),
        "text": ({"text": b"hello", "page": b"<!DOCTYPE html>"}, "text page"),
    }  # fmt: skip


def numbers(opened, info):
    """A few numbers of a tensor and its rows that are not finite, or why there are none."""
    try:
        array = opened.array(info.name)
        finite = np.isfinite(np.atleast_1d(array)).reshape(len(np.atleast_1d(array)), -1).all(axis=1)
        rows = tuple(np.flatnonzero(~finite).tolist())
        return f"{array.ravel()[:8].tolist()}{f', not finite: {rows}' if rows else ''}"
    except Unreadable as error:
        return error.message


def seen(opened) -> dict:
    tensors = [f"{name}: {info.dtype} {info.shape} {numbers(opened, info)}" for name, info in opened.tensors.items()]
    told = {name: getattr(opened, name) for name in ("form", "config_name", "duplicates", "beside")}
    told["notes"] = tuple(note.replace(str(Path.cwd()), "FOLDER") for note in opened.notes)
    config = opened.config and {key: value for key, value in opened.config.items() if key[:4] not in ("kind", "toke")}
    told |= {"path": str(opened.path), "config": config, "tensors": tensors}
    return {name: value for name, value in told.items() if value not in ((), [], {}, None)}


def test_every_layout_is_opened_or_refused_as_it_was(tmp_path, monkeypatch, refused, snapshot, cases):
    for number, (name, (files, targets)) in enumerate(layouts().items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        for path, data in files.items():
            Path(path if data is None else Path(path).parent).mkdir(parents=True, exist_ok=True)
            if data is not None:
                Path(path).write_bytes(data)
        for target in targets.split():
            with cases(name, target):
                try:
                    told = seen(open_target(target))
                except Unreadable:
                    told = tuple(part.replace(f"FOLDER/{number}", "FOLDER") for part in refused(open_target, target))
                assert told == snapshot(name=f"{name}: {target}")
