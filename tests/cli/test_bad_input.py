"""Bad input from the caller: one clear sentence, a hint, exit code 2 and nothing on stdout."""

import json
import math
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from clockhands.errors import InvalidValue
from clockhands.scaling import Dynamic, Linear, Llama3, Ntk, Yarn
from written_files import onnx_bytes, onnx_outside, onnx_tensor

WIDTH = "Give `width` as an int of at least 1."
ODD = 'Use an even width, or set odd="zero", "extra" or "cut".'
CLOSED = (
    "A closed span divides by d/2 - 1, which is 0 or less at width 2.",
    'Use at least 4 dimensions, or span="open" (the paper\'s, which divides by d/2).',
)
BASE = "`base` must be a finite positive number other than 1, got "
BASES = "Usual bases are 10000 (the paper) and 500000 (Llama 3); with base 1 all pairs have the same frequency."
FINITE = "Remove NaN and infinite positions."
FAR = "Use positions from -2**63 to 2**63; nothing is wrapped or clamped."

SPECS = [
    ("vaswani2017:width=0", "`width` must be at least 1, got 0.", WIDTH),
    ("vaswani2017:width=-4", "`width` must be at least 1, got -4.", WIDTH),
    ("vaswani2017:width=ten", "`width` must be a whole number, got 'ten'.", WIDTH),
    ("vaswani2017:width=5", "`width` must be even unless `odd` says what to do, got 5.", ODD),
    ("whisper:width=3", "`width` must be even unless `odd` says what to do, got 3.", ODD),
    ("tensor2tensor:width=2", *CLOSED),
    ("fairseq:width=2", *CLOSED),
    ("vaswani2017:base=0", f"{BASE}0.", BASES),
    ("vaswani2017:base=1", f"{BASE}1.", BASES),
    ("vaswani2017:base=-5", f"{BASE}-5.", BASES),
    ("vaswani2017:base=nan", f"{BASE}nan.", BASES),
    ("vaswani2017:base=inf", f"{BASE}inf.", BASES),
    ("vaswani2017:wdth=4", "Sinusoidal has no field 'wdth'.", "Did you mean 'width'?"),
    (
        "vaswani2017:width",
        "vaswani2017:width has 'width', but a field is expected there.",
        "Write fields as PRESET:field=value,field=value.",
    ),
]


def refused(done, error, hint):
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {error}\nhint: {hint}\n"


@pytest.mark.parametrize(("preset", "error", "hint"), SPECS)
def test_a_preset_with_an_impossible_field(run, preset, error, hint):
    refused(run("table", preset, "--positions", "4"), error, hint)


@pytest.mark.parametrize("preset", [case[0] for case in SPECS])
def test_it_is_misuse_in_an_audit_too(run, preset):
    done = run("audit", preset)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"error: .+\nhint: .+\n", done.err)


@pytest.mark.parametrize(
    ("positions", "error", "hint"),
    [
        ("0,nan", "`positions` must be finite, got nan.", FINITE),
        ("-inf,", "`positions` must be finite, got -inf.", FINITE),
        ("9223372036854775809,", "`positions` must be from -2**63 to 2**63, got 9223372036854775809.", FAR),
        ("-9223372036854775809,", "`positions` must be from -2**63 to 2**63, got -9223372036854775809.", FAR),
        ("1e19,", "`positions` must be from -2**63 to 2**63, got 1e+19.", FAR),
        ("0:9223372036854775810", "`positions` must be from -2**63 to 2**63, got 9223372036854775809.", FAR),
    ],
)
def test_positions_that_cannot_be(run, positions, error, hint):
    refused(run("table", "vaswani2017:width=4", "--positions", positions), error, hint)


def test_a_table_larger_than_memory_is_refused_with_its_size(run):
    done = run("table", "vaswani2017", "--positions", "0:1000000000000")
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(
        r"error: A table of shape \[1000000000000, 512\] would take 1\.82 PiB; .+ available\.\n"
        r"hint: Make it in parts: .+\n",
        done.err,
    )


@pytest.mark.parametrize("factor", [0.5, 0.0, -2.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "scaling", [Linear, Ntk, lambda factor: Dynamic(factor, 4096), lambda factor: Yarn(factor, 4096),
                lambda factor: Llama3(factor, 8192)],
)  # fmt: skip
def test_a_scaling_factor_below_1(scaling, factor):
    with pytest.raises(InvalidValue, match=r"`factor` must be .*at least 1") as caught:
        scaling(factor)
    assert caught.value.hint


def test_the_same_factor_in_a_config_is_a_finding_and_exit_code_1(run, tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    config |= {"rope_theta": 1e4, "max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 0.5}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("audit", "--json", tmp_path)
    assert done.code == 1
    (target,) = json.loads(done.out)["targets"]
    assert target["layers"][0]["rates"] is None
    (finding,) = [found for found in target["findings"] if found["severity"] == "error"]
    assert finding["code"] == "impossible-value"
    assert finding["evidence"]["config.json:rope_scaling.factor"] == 0.5


def safetensors(header, body=b""):
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(told)) + told + body


def tensor(shape, begin, end):
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def gguf(tensors, keys, body=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


AGAIN = "Download or write the file again."
TRUNCATED = "The file is truncated: download it again."
DEEP = b'{"a":' * 10**6 + b"1" + b"}" * 10**6
KINDS = "Name a model folder, config.json, .yaml, .gguf, .safetensors or .bin (or its index), .pt, .onnx, .npy, .npz."

FILES = [
    ("t.safetensors", b"\x10\x00", "has 2 bytes, fewer than the 8 that a safetensors file begins with.", AGAIN),
    (
        "t.safetensors",
        struct.pack("<Q", 10**12) + b"{}",
        "declares a header of 1,000,000,000,000 bytes, but only 2 follow.",
        TRUNCATED,
    ),
    (
        "t.safetensors",
        safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
        "tensor 'b' begins at byte 4 of the data, but must begin at byte 8: it overlaps 'a'.",
        AGAIN,
    ),
    (
        "t.safetensors",
        safetensors({"a": tensor([2], -8, 0)}, bytes(8)),
        "tensor 'a' has the offsets [-8, 0], but they must be two whole numbers of at least 0, the first not above the"
        " second.",
        AGAIN,
    ),
    (
        "t.safetensors",
        safetensors({"a": tensor([20], 0, 80)}, bytes(8)),
        "its header declares 80 bytes of tensors, but 8 follow it.",
        TRUNCATED,
    ),
    ("t.safetensors", safetensors(DEEP), "nests objects or lists deeper than 100 levels.", None),
    ("m.onnx", b"\x08\x08", "is not an ONNX model, or damaged: it has no graph.", None),
    ("m.onnx", b"\x3a\xff\xff\x03", "ends after 4 bytes, inside a field of 65,535 that begins at byte 4.", TRUNCATED),
    (
        "m.onnx",
        onnx_bytes([onnx_outside("t", (4, 2), location="../../etc/passwd")]),
        "tensor 't' declares its data at '../../etc/passwd', a path that does not stay in the model's folder.",
        "Do not trust this model: a valid model keeps its data in its own folder.",
    ),
    (
        "m.onnx",
        onnx_bytes([onnx_tensor("t", (2**40, 2**10), raw=bytes(8))]),
        "tensor 't' has 8 bytes, but its shape [1099511627776, 1024] and type float32 take 4,503,599,627,370,496.",
        None,
    ),
    ("m.gguf", b"", "is not a GGUF file: it is empty.", None),
    ("m.gguf", b"GGUF\x03\0\0\0", "ends after 8 bytes, but a GGUF file begins with a header of 24 bytes.", TRUNCATED),
    ("m.gguf", gguf(0, 2**60), "declares 1,152,921,504,606,846,976 keys, more than its 24 bytes can hold.", AGAIN),
    (
        "m.gguf",
        gguf(0, 1, struct.pack("<Q1sI", 1, b"a", 9) + struct.pack("<IQ", 9, 1) * 10**6),
        "the value of 'a' nests arrays deeper than 8 levels.",
        None,
    ),
    ("config.json", DEEP, "nests objects or lists deeper than 100 levels.", None),
    ("config.json", b"[1, 2]", "holds a list at the top level, but a config must be a JSON object.", None),
    ("config.json", b'{"a":', "is not JSON: Expecting value at line 1, column 6.", None),
    ("config.json", b"\xff\xfe\x00", "is UTF-16 text, but JSON must be UTF-8.", None),
    ("a.npy", b"", "is not a .npy array: it is empty.", None),
    ("a.npy", pickle.dumps([1, 2]), "is not a .npy array: it starts like a Python pickle.", None),
]


@pytest.mark.parametrize("command", ["audit", "identify"])
@pytest.mark.parametrize(("name", "content", "error", "hint"), FILES, ids=range(len(FILES)))
def test_a_file_that_lies_or_ends_early(run, tmp_path, monkeypatch, command, name, content, error, hint):  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    done = run(command, name)
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first.startswith("error: ")
    assert name in first
    assert first.endswith(error)
    assert re.fullmatch(r"hint: [A-Z].+\.", second) if hint is None else second == f"hint: {hint}"


def test_an_array_of_pickled_objects_is_refused_and_not_loaded(run, tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    refused(
        run("audit", tmp_path / "a.npy"),
        f"{tmp_path / 'a.npy'} holds Python objects (a pickle), which could run code when loaded; only numbers are"
        " read.",
        "Save it again as numbers, for instance np.save(file, array.astype(np.float32)).",
    )
    assert not (tmp_path / "sprung").exists()


def test_a_missing_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hint = f"Check the spelling; the current folder is {tmp_path}."
    refused(run("audit", "missing.gguf"), "missing.gguf does not exist.", hint)
    refused(run("audit", "no/config.json"), "no/config.json does not exist.", hint)


def test_a_folder_without_a_config(run, tmp_path):
    refused(run("audit", tmp_path), f"{tmp_path} has no config.json.", KINDS)


def test_a_name_that_is_nothing(run):
    refused(
        run("audit", "vaswani"),
        "vaswani is neither a path nor a preset.",
        "Did you mean vaswani2017? `clockhands presets` lists all; else name " + KINDS.removeprefix("Name "),
    )
