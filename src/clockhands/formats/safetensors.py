"""Reads headers of safetensors files and of sharded checkpoints, without their numbers.

A file is a length (8 bytes), a JSON header of that length, and the tensors one after the other. The header is read here
and not by the ``safetensors`` library, because the library's errors name neither the tensor nor a solution, it keeps
the last of two tensors with the same name, and it has no NumPy arrays for float8. Tests compare both: what the library
refuses is refused here, and what it opens is opened with the same numbers, except absurd shapes and duplicate names.

Source: the format section of the safetensors README, https://github.com/huggingface/safetensors.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from clockhands.errors import Unreadable
from clockhands.formats import documents, files, shards
from clockhands.formats.arrays import NUMBER_TYPES, Names, TensorInfo, bits_of, check_shape
from clockhands.formats.files import damaged, open_regular, seems, truncated
from clockhands.formats.shards import WeightsHeader
from clockhands.phrases import shown

# The format's own bound on a header, in bytes.
LONGEST_HEADER = 100_000_000

# The format's types, and the name that NumPy or ml_dtypes has for each (None: they have none of that width).
TYPES: Mapping[str, str | None] = NUMBER_TYPES["safetensors"]


def read_header(path: Path) -> WeightsHeader:
    """Read the header of one safetensors file and check it against the file's size.

    Raises:
        Unreadable: The file is truncated or not a safetensors file, or its header is inconsistent: a length beyond the
            file, an unknown type, offsets that are negative, overlap, leave holes, do not fit the shape or do not end
            where the file ends, or two tensors of one name.
    """
    with open_regular(path) as file:
        state = files.state(file)
        size = file.seek(0, 2)
        file.seek(0)
        length = header_length(path, file.read(32), size)
        file.seek(8)
        text = file.read(length)
    return header_of(path, text, size, state)


def header_length(path: Path, start: bytes, size: int) -> int:
    """The number of bytes of the header after the first 8 bytes of a file.

    Args:
        path: The file, for messages.
        start: Its first 32 bytes, or all that it has.
        size: How many bytes it has.

    Raises:
        Unreadable: The file is too short for the header, or not a safetensors file.
    """
    if len(start) < 8:
        raise damaged(f"{path} has {size} bytes, fewer than the 8 that a safetensors file begins with.")
    length = int.from_bytes(start[:8], "little")
    if length > size - 8 or length > LONGEST_HEADER:
        raise _length_error(path, length, size, start)
    return length


def header_of(path: Path, text: bytes, size: int, state: tuple[int, int, int, int] | None = None) -> WeightsHeader:
    """Parse the text of a header, and check it against the size of the file.

    Args:
        path: The file that holds the tensors.
        text: The header, without the 8 bytes of its length.
        size: How many bytes the file has.
        state: What `files.state` says of the file.

    Raises:
        Unreadable: The header is inconsistent, as for `read_header`.
    """
    where = f"the header of {path}"
    document = documents.parse(text, where, strict=True, many=True)
    if document.duplicates:
        raise Unreadable(
            f"{where} contains {shown(document.duplicates[0])} twice.", "Write the file again with unique tensor names."
        )
    fields = document.fields
    metadata = fields.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Unreadable(
            f"{where} has `__metadata__` that does not map keys to strings: {shown(metadata)}.",
            "Write the file again with strings as metadata.",
        )
    tensors = _tensors(fields, path, 8 + len(text), size)
    return WeightsHeader(path, tensors, metadata, state=state)


def _length_error(path: Path, length: int, size: int, start: bytes) -> Unreadable:
    if start.startswith(b"version https://git-lfs"):
        return files.not_pulled(path, "the tensors themselves")
    if length > size - 8 and start[8:9] == b"{":
        return truncated(f"{path} declares a header of {length:,} bytes, but only {size - 8:,} follow.")
    if length > size - 8:
        return Unreadable(
            f"{path} is not a safetensors file: read as one, it declares a header of {length:,} bytes in a file of "
            f"{size:,}, and {seems(start)}.",
            "Give the file the ending of its real type, or download it again.",
        )
    return damaged(f"{path} declares a header of {length:,} bytes, but the format allows at most {LONGEST_HEADER:,}.")


def _tensors(fields: dict[str, Any], path: Path, data_start: int, size: int) -> dict[str, TensorInfo]:
    """Check every entry separately, then that together they cover the data exactly once."""
    names = Names(path)
    entries = [(*_entry(names.spend(name), entry, path), name) for name, entry in fields.items()]
    # One tensor of size zero may begin where another begins; the format orders them by begin, then end.
    entries.sort(key=lambda entry: entry[:2])
    expected, before, tensors = 0, "", {}
    for begin, end, code, shape, name in entries:
        if begin != expected:
            fault = f"overlaps {before}" if begin < expected else f"leaves a hole of {begin - expected:,} bytes"
            raise damaged(
                f"{path}: tensor {shown(name)} begins at byte {begin:,} of the data, but must begin at byte "
                f"{expected:,}: it {fault}."
            )
        expected, before = end, shown(name)
        tensors[name] = TensorInfo(name, TYPES[code] or code, shape, path, data_start + begin)
    if data_start + expected != size:
        there = size - data_start
        error = truncated if there < expected else damaged
        raise error(f"{path}: its header declares {expected:,} bytes of tensors, but {there:,} follow it.")
    return tensors


def _entry(name: str, entry: object, path: Path) -> tuple[int, int, str, tuple[int, ...]]:
    """One entry of the header: begin, end, type and shape, each checked."""
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(entry, dict):
        raise damaged(f"{where} is described by {shown(entry)}, but an object is expected.")
    code, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(code, str) or code not in TYPES:
        raise Unreadable(
            f"{where} has the type {shown(code)}, which is not a type of the format.",
            f"Its types are {', '.join(TYPES)}; for a newer file, update clockhands.",
        )
    if not _sizes(shape):
        raise damaged(f"{where} has the shape {shown(shape)}, but it must be a list of whole numbers of at least 0.")
    check_shape(where, shape)
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise damaged(
            f"{where} has the offsets {shown(offsets)}, but they must be two whole numbers of at least 0, the first "
            "not above the second."
        )
    begin, end = offsets
    bits = math.prod(shape) * bits_of(TYPES[code] or code)
    if bits != 8 * (end - begin):
        raise damaged(
            f"{where} has {end - begin:,} bytes, but its shape {shown(shape)} and type {code} take {bits / 8:,.10g}."
        )
    return begin, end, code, tuple(shape)


def _sizes(value: object) -> TypeGuard[list[int]]:
    # 2**64 is the limit of the format's own integers.
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**64 for number in value)


read_index: Callable[..., WeightsHeader] = partial(shards.read_index, read_header)
"""A ``*.safetensors.index.json`` and the headers of the shards that it names."""
