"""Small files of the formats that are read, built byte by byte, so that a test can lie in any of them."""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import ClockhandsError

GGUF_KINDS = {
    "uint8": (0, "B"), "int8": (1, "b"), "uint16": (2, "H"), "int16": (3, "h"), "uint32": (4, "I"), "int32": (5, "i"),
    "float32": (6, "f"), "bool": (7, "?"), "uint64": (10, "Q"), "int64": (11, "q"), "float64": (12, "d"),
}  # fmt: skip


def refusal(call, *arguments, error: type[ClockhandsError], **named) -> tuple[str, str]:
    """The message and the hint with which a call is refused."""
    with pytest.raises(error) as caught:
        call(*arguments, **named)
    message, hint = caught.value.message, caught.value.hint
    assert message.endswith("."), message
    assert hint.endswith((".", "?", ").")), hint
    return message, hint


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def safetensors_bytes(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header, an object or raw bytes, and any declared length of it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def gguf_string(text: str | bytes, order: str = "<") -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(order + "Q", len(data)) + data


def gguf_value(kind: str, value: Any, order: str = "<") -> bytes:
    """A value with the number of its kind in front; ``kind`` is a scalar's name, "string" or "array of ..."."""
    if kind == "string":
        return struct.pack(order + "I", 8) + gguf_string(value, order)
    if kind.startswith("array of "):
        item = kind.removeprefix("array of ")
        elements = [gguf_value(item, each, order) for each in value]
        number = elements[0][:4] if elements else struct.pack(order + "I", 4)
        kinds = struct.pack(order + "I", 9) + number + struct.pack(order + "Q", len(value))
        return kinds + b"".join(each[4:] for each in elements)
    number, letter = GGUF_KINDS[kind]
    return struct.pack(order + "I" + letter, number, value)


def gguf_key(key: str | bytes, kind: str, value: Any, order: str = "<") -> bytes:
    return gguf_string(key, order) + gguf_value(kind, value, order)


def gguf_tensor(name: str | bytes, sizes: tuple[int, ...], kind: int, offset: int, order: str = "<") -> bytes:
    """An entry of the tensor list; sizes as the file has them, the row's length first."""
    shape = struct.pack(f"{order}I{len(sizes)}Q", len(sizes), *sizes)
    return gguf_string(name, order) + shape + struct.pack(order + "IQ", kind, offset)


def gguf_bytes(
    keys: list[bytes],
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    version: int = 3,
    order: str = "<",
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    tensors = tensors or []
    count = len(tensors) if tensor_count is None else tensor_count
    keys_said = len(keys) if key_count is None else key_count
    head = b"GGUF" + struct.pack(order + "IQQ", version, count, keys_said) + b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment if tensors else 0) + data


def small_gguf(order: str = "<", version: int = 3) -> bytes:
    """A whole small model: every kind of value, plain and quantised tensors, position keys last."""
    keys = [gguf_key(f"kind.{kind}", kind, kind == "bool" or 3, order) for kind in GGUF_KINDS]
    keys += [
        gguf_key("general.architecture", "string", "llama", order),
        gguf_key("tokenizer.ggml.tokens", "array of string", ["a", "bc", ""] * 700, order),
        gguf_key("general.languages", "array of string", ["en", "de"], order),
        gguf_key("kind.nested", "array of array of int32", [[1, 2], [3]], order),
        gguf_key("kind.sections", "array of int32", [16, 24, 24, 0], order),
        gguf_key("llama.context_length", "uint32", 8192, order),
        gguf_key("llama.rope.freq_base", "float32", 100_000.0, order),
    ]
    tensors = [
        gguf_tensor("rope_freqs.weight", (4,), 0, 0, order),
        gguf_tensor("half", (3, 2), 1, 32, order),
        gguf_tensor("brain", (2,), 30, 64, order),
        gguf_tensor("quantised", (32, 2), 2, 96, order),
    ]
    data = struct.pack(order + "4f", 1, 2, 3, 4).ljust(32, b"\0")
    data += struct.pack(order + "6e", 1, 2, 3, 4, 5, 6).ljust(32, b"\0")
    data += struct.pack(order + "2H", 0x3F80, 0xC000).ljust(32, b"\0")  # 1 and -2 in bfloat16
    return gguf_bytes(keys, tensors, data + b"\1" * 36, order=order, version=version)


def varint(number: int) -> bytes:
    """An integer as protocol buffers write it."""
    made = bytearray()
    while number >= 128:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def onnx_field(number: int, value: int | bytes) -> bytes:
    """A field of a message: an integer, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx_tensor(
    name: str, shape: tuple[int, ...], *, kind: int = 1, raw: bytes | None = None, more: bytes = b""
) -> bytes:
    sizes = b"".join(onnx_field(1, size) for size in shape)
    numbers = b"" if raw is None else onnx_field(9, raw)
    return sizes + onnx_field(2, kind) + more + onnx_field(8, name.encode()) + numbers


def onnx_outside(name: str, shape: tuple[int, ...], location: str = "data", **entries: str) -> bytes:
    """A tensor whose numbers are said to lie in another file."""
    pairs = {"location": location, **entries}
    told = (onnx_field(1, key.encode()) + onnx_field(2, value.encode()) for key, value in pairs.items())
    return onnx_tensor(name, shape, more=b"".join(onnx_field(13, pair) for pair in told) + onnx_field(14, 1))


def onnx_node(operator: str, more: bytes = b"", inputs: tuple[str, ...] = (), output: str = "y") -> bytes:
    """A field of a graph: one node."""
    named = b"".join(onnx_field(1, name.encode()) for name in inputs)
    return onnx_field(1, named + onnx_field(2, output.encode()) + onnx_field(4, operator.encode()) + more)


def onnx_bytes(tensors: list[bytes], nodes: bytes = b"") -> bytes:
    """A model whose graph has these tensors; the set of operators comes last."""
    graph = nodes + onnx_field(2, b"main") + b"".join(onnx_field(5, tensor) for tensor in tensors)
    return onnx_field(1, 8) + onnx_field(7, graph) + onnx_field(8, onnx_field(2, 20))


def pickled_text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def pickled_tuple(*parts: bytes | int) -> bytes:
    return b"(" + b"".join(b"J" + struct.pack("<i", part) if isinstance(part, int) else part for part in parts) + b"t"


def pickled_name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def pickled_tensor(
    key: str, shape: tuple[int, ...], *, numel: int, strides: tuple[int, ...], offset: int = 0, kind: str = "Float"
) -> bytes:
    """A tensor as PyTorch pickles one: a call by name with a storage that lies elsewhere."""
    storage = pickled_tuple(
        pickled_text("storage"), pickled_name("torch", f"{kind}Storage"), pickled_text(key), pickled_text("cpu"), numel
    )
    hooks = pickled_name("collections", "OrderedDict") + b")R"
    parts = (storage + b"Q", offset, pickled_tuple(*shape), pickled_tuple(*strides), b"\x89", hooks)
    return pickled_name("torch._utils", "_rebuild_tensor_v2") + pickled_tuple(*parts) + b"R"


def pickled_dictionary(values: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(pickled_text(key) + value for key, value in values.items()) + b"u"


def checkpoint_bytes(body: bytes, storages: dict[str, bytes], order: bytes = b"little") -> bytes:
    """A checkpoint of PyTorch's: an archive of a pickle and of the storages, all of them stored as they are."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", b"\x80\x02" + body + b".")
        archive.writestr("model/byteorder", order)
        for key, data in storages.items():
            archive.writestr(f"model/data/{key}", data)
    return stream.getvalue()


def small_checkpoint() -> bytes:
    """Two views of one storage, and a dictionary in the dictionary."""
    inner = pickled_dictionary({"b": pickled_tensor("0", (2, 2), numel=6, strides=(1, 2), offset=2)})
    body = pickled_dictionary(
        {"a": pickled_tensor("0", (2, 3), numel=6, strides=(3, 1)), "inner": inner, "epoch": b"K\3"}
    )
    return checkpoint_bytes(body, {"0": struct.pack("<6f", *range(6))})
