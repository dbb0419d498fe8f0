"""Finds the tensors of a file that may be position tables, and reads one of them as rows with little memory."""

from dataclasses import replace

import numpy as np

from clockhands.configs.targets import Opened
from clockhands.configs.weights import TABLE, rows_and_width
from clockhands.errors import ClockhandsError
from clockhands.formats import arrays
from clockhands.formats.arrays import TensorInfo
from clockhands.recognition import identify

FLOATS = ("float64", "float32", "float16", "bfloat16")

# A file with at most this many tables contains only tables; with more it is a model, where names decide.
_FEW = 16

_HEAD = 256  # rows that are read to recognise a tensor without a name


def position_tables(opened: Opened) -> tuple[str, ...]:
    """The tensors that are tables of positions by their names; else those that a graph adds; else all of a few.

    Only float tensors with rows of several channels count; axes of size 1 are ignored. A graph also adds and gathers
    other tensors, mostly word embeddings: of these only tensors that begin like a computed code count.
    """
    likely = [name for name, info in opened.tensors.items() if is_table(info)]
    named = tuple(name for name in likely if TABLE.search(name))
    if named or opened.form not in ("array", "onnx", "safetensors", "pytorch", "gguf"):
        return named
    if opened.form == "onnx":
        return tuple(name for name in likely if name in opened.added and _begins_like_a_code(opened.tensors[name]))
    return tuple(likely) if len(likely) <= _FEW else ()


def is_table(info: TensorInfo) -> bool:
    """Whether a tensor is a float matrix with several channels."""
    found = rows_and_width(info.shape)
    return info.dtype in FLOATS and found is not None and found[0] > 1 and found[1] > 1


def _begins_like_a_code(info: TensorInfo) -> bool:
    """Whether the first rows are those of a computed code."""
    try:
        matches = identify(_first_rows(info))
    except ClockhandsError:
        return False
    return bool(matches) and matches[0].computed


def _first_rows(info: TensorInfo) -> np.ndarray:
    found = rows_and_width(info.shape)
    assert found is not None, "it is a table"
    rows, width = found
    some = arrays.read_rows(replace(info, shape=(rows, width)), np.arange(min(_HEAD, rows)))
    return np.array(some)


def rows_of(info: TensorInfo) -> np.ndarray:
    """A tensor as [rows, width] after removing axes of size 1; memory-mapped if possible.

    Raises:
        Unreadable: It is quantised, or the file ends inside it.
        TooLarge: It cannot be mapped, and takes more than 4 GiB.
    """
    array = arrays.mapped(info)
    found = rows_and_width(info.shape)
    return array if found is None else array.reshape(found)
