"""Which tensors of a file may be tables of positions, and one of them as rows, as little of it in memory as can be."""

from dataclasses import replace

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.recognition import identify
from clockhands.sources import arrays
from clockhands.sources.arrays import TensorInfo
from clockhands.sources.targets import Opened
from clockhands.sources.weights import TABLE, rows_and_width

FLOATS = ("float64", "float32", "float16", "bfloat16")

# A file of no more tables than this is one of tables; one of more is a model, whose matrices are looked at by name.
_FEW = 16

_HEAD = 256  # rows that tell what a tensor without a name might be


def position_tables(opened: Opened) -> tuple[str, ...]:
    """The tensors that are tables of positions by their names; else those that a graph adds; else all of a few.

    Only tensors of floats with rows of several channels: axes of size 1 do not count. A graph adds and gathers much
    else, embeddings of words above all: of that only what begins like a computed code counts, and no more is read.
    """
    likely = [name for name, info in opened.tensors.items() if is_table(info)]
    named = tuple(name for name in likely if TABLE.search(name))
    if named or opened.form not in ("array", "onnx", "safetensors", "pytorch", "gguf"):
        return named
    if opened.form == "onnx":
        return tuple(name for name in likely if name in opened.added and _begins_like_a_code(opened.tensors[name]))
    return tuple(likely) if len(likely) <= _FEW else ()


def is_table(info: TensorInfo) -> bool:
    """Whether a tensor has rows of several channels of floats."""
    found = rows_and_width(info.shape)
    return info.dtype in FLOATS and found is not None and found[0] > 1 and found[1] > 1


def _begins_like_a_code(info: TensorInfo) -> bool:
    """Whether the first rows are a code that is computed."""
    try:
        matches = identify(_first_rows(info))
    except ClockhandsError:
        return False
    return bool(matches) and (matches[0].values is None or np.size(matches[0].values) == 1)


def _first_rows(info: TensorInfo) -> np.ndarray:
    found = rows_and_width(info.shape)
    assert found is not None, "it is a table"
    rows, width = found
    some = arrays.read_rows(replace(info, shape=(rows, width)), np.arange(min(_HEAD, rows)))
    return np.array(some)


def rows_of(info: TensorInfo) -> np.ndarray:
    """A tensor as [rows, width], where its axes of size 1 leave two; read from the file piece by piece where it can be.

    Raises:
        Unreadable: It is quantised, or the file ends inside it.
        TooLarge: It cannot be mapped, and takes more than 4 GiB.
    """
    array = arrays.mapped(info)
    found = rows_and_width(info.shape)
    return array if found is None else array.reshape(found)
