"""Streaming writer of safetensors files: the header first, then tensor by tensor, without loading a whole file.

The ``safetensors`` library writes all tensors of a file at once from memory. A conversion changes only the order of
rows, so the header of the new file is known before any data is read.

Source: the format section of the safetensors README, https://github.com/huggingface/safetensors.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from clockhands.errors import Unreadable
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.files import open_regular, state
from clockhands.formats.safetensors import TYPES, read_header
from clockhands.formats.shards import WeightsHeader
from clockhands.phrases import shown

# Bytes in memory at once: a slot of rows of a large model has 4 MB.
PIECE = 2**24

_CODES = {name or code: code for code, name in TYPES.items()}


def write(
    out: Path, header: WeightsHeader, metadata: Mapping[str, str], orders: Mapping[str, tuple[np.ndarray, int]]
) -> None:
    """Write the tensors of a file to another, some with their rows in another order.

    Args:
        out: The new file; nothing may be there.
        header: The file to read, with its tensors in the order of the data.
        metadata: The new file's metadata.
        orders: For each reordered tensor the order of all rows, and the rows per slot: no row leaves its slot.

    Raises:
        Unreadable: The file was replaced or changed since its header was read.
        OSError: The new file cannot be written.
    """
    with open_regular(header.path) as source, out.open("xb") as target:
        # A system's clock is coarse: a change within one tick of it is seen in the header alone.
        _refuse_changed(source, header)
        if read_header(header.path) != header:
            raise _changed(header)
        target.write(header_bytes(header.tensors, metadata))
        for info in header.tensors.values():
            source.seek(info.offset)
            if info.name in orders:
                _reorder(source, target, info, *orders[info.name])
            else:
                _copy(source, target, info)
        _refuse_changed(source, header)


def _refuse_changed(source: BinaryIO, header: WeightsHeader) -> None:
    if state(source) != header.state:
        raise _changed(header)


def _changed(header: WeightsHeader) -> Unreadable:
    return Unreadable(
        f"{header.path} has changed since its header was read, so its tensors may lie elsewhere.",
        "Convert it again when no other program writes to it.",
    )


def header_bytes(tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """The length and the header of a file with these tensors in this order, as the safetensors library writes them."""
    fields: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, info in tensors.items():
        end = at + size_of(info)
        fields[name] = {"dtype": _CODES[info.dtype], "shape": list(info.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


def size_of(info: TensorInfo) -> int:
    """Bytes of a tensor."""
    return info.bits // 8


def _copy(source: BinaryIO, target: BinaryIO, info: TensorInfo) -> None:
    left = size_of(info)
    while left:
        data = _exactly(source, min(left, PIECE), info)
        target.write(data)
        left -= len(data)


def _reorder(source: BinaryIO, target: BinaryIO, info: TensorInfo, order: np.ndarray, slot: int) -> None:
    """Copy a tensor with its rows in another order; rows are handled as bytes, for every dtype."""
    row, rest = divmod(size_of(info), len(order))
    assert not rest, f"{info.name} was planned with rows that are not whole bytes"
    if not row:
        return
    rows = slot * max(1, math.floor(PIECE / max(1, slot * row)))
    for start in range(0, len(order), rows):
        places = order[start : start + rows]
        data = _exactly(source, len(places) * row, info)
        target.write(np.frombuffer(data, np.uint8).reshape(len(places), row)[places - start].data)


def _exactly(source: BinaryIO, count: int, info: TensorInfo) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise Unreadable(
            f"{info.file} ends inside {shown(info.name)}.",
            "The file changed during the conversion: convert it again.",
        )
    return data
