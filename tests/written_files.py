"""Small files of the formats that are read, built byte by byte, so that a test can lie in any of them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import ClockhandsError

GGUF_KINDS = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "?"),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}


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
        return (
            struct.pack(order + "I", 9)
            + number
            + struct.pack(order + "Q", len(value))
            + b"".join(e[4:] for e in elements)
        )
    number, letter = GGUF_KINDS[kind]
    return struct.pack(order + "I" + letter, number, value)


def gguf_key(key: str | bytes, kind: str, value: Any, order: str = "<") -> bytes:
    return gguf_string(key, order) + gguf_value(kind, value, order)


def gguf_tensor(name: str | bytes, sizes: tuple[int, ...], kind: int, offset: int, order: str = "<") -> bytes:
    """An entry of the tensor list; sizes as the file has them, the row's length first."""
    return (
        gguf_string(name, order)
        + struct.pack(order + "I", len(sizes))
        + struct.pack(f"{order}{len(sizes)}Q", *sizes)
        + struct.pack(order + "IQ", kind, offset)
    )


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
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    head = b"GGUF" + struct.pack(order + "IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
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
