"""Reads GGUF files: every key and every tensor's place in the header, and rows of quantised tensors.

The header is walked once from front to back, a few kilobytes at a time: keys in any order, then the tensors. Values
that an audit never needs as Python objects (a vocabulary of 49,000 strings) are skipped and kept as an ``Unread``,
which takes no memory. Every count and length is checked against the rest of the file before memory is allocated for it.

The header is read here and not by the ``gguf`` package, which only dequantises rows, because the package keeps two
arrays for each string of a vocabulary (22 s and 560 MiB for one of 430,000 strings, 0.2 s here), and maps the file,
which ends the process when another program truncates it.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (the layout), and for the sizes of the quantised types
``GGML_QUANT_SIZES`` of the ``gguf`` package, 0.19.
"""

import math
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from clockhands.errors import Unreadable
from clockhands.formats.arrays import NUMBER_TYPES, PLAIN_COPY, Names, TensorInfo, check_shape, opened_file, taken_rows
from clockhands.formats.files import ReadAround, damaged, is_not, open_regular, truncated
from clockhands.phrases import shown

# Kinds of values, by their number in the file: a name, and the letter of the `struct` module.
SCALARS = {int(number): row for number, row in NUMBER_TYPES["gguf_values"].items()}
STRING, ARRAY = 8, 9

# Types of tensors, by their number in the file: a name, numbers in a block, bytes of a block.
TENSOR_TYPES = {int(number): row for number, row in NUMBER_TYPES["gguf"].items()}

# Bounds for hostile files, each far above any real one: a header has about 50 keys, a vocabulary at
# most 300,000 strings, a model at most 100,000 tensors.
MOST_KEYS = 2**16
MOST_TENSORS = 2**20
MOST_STEPS = 2**24  # the most strings that are skipped in one header, at about 10 million a second
_STEPS_OF_AN_ARRAY = 16  # an array inside an array takes the time of about this many strings
LONGEST_NAME = 2**16 - 1  # the format's limit for a key
DEEPEST_ARRAY = 8
MOST_AXES = 4  # ggml's limit

# What is kept as Python values: arrays of up to 1,024 elements and texts of up to 1 MiB, 64 MiB in all.
_KEPT_ELEMENTS = 1024
_KEPT_BYTES = 2**20
_KEPT_IN_ALL = 2**26


@dataclass(frozen=True, slots=True)
class Unread:
    """An array or a text that was skipped: its kind and its place.

    Attributes:
        item: The kind of its elements, such as "string", or "character" for a text.
        length: How many elements it has.
        offset: Where the first one begins in the file, in bytes.
    """

    item: str
    length: int
    offset: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True)
class Header:
    """What the header of a GGUF file says.

    Attributes:
        path: The file.
        version: The version of the format, 2 or 3.
        byte_order: "little" or "big".
        fields: Every key with its value: numbers, bools and texts, lists of them, or an ``Unread``.
        tensors: Every tensor by name, in the order of the file.
    """

    path: Path
    version: int
    byte_order: str
    fields: dict[str, object]
    tensors: dict[str, TensorInfo]


def read_header(path: Path) -> Header:
    """Read all keys and all tensor places of a GGUF file, version 2 or 3, of either byte order.

    Raises:
        Unreadable: The file is truncated or not a GGUF file, has another version, or is inconsistent: counts and
            lengths beyond the file, unknown kinds of values, a key or a tensor given twice, tensors that overlap or lie
            outside.
    """
    with open_regular(path) as file:
        return header_in(path, file)


def header_in(path: Path, file: BinaryIO) -> Header:
    """Read the header from an open file, from its beginning; ``path`` is the file with its tensors.

    Raises:
        Unreadable: As `read_header`.
    """
    start = file.read(32)
    if start[:4] != b"GGUF":
        raise is_not(path, "a GGUF file", start)
    if len(start) < 24:
        raise truncated(f"{path} ends after {len(start)} bytes, but a GGUF file begins with a header of 24 bytes.")
    return _walk(path, ReadAround(path, file))


def _walk(path: Path, data: ReadAround) -> Header:
    version, order = _version(path, int.from_bytes(data[4:8], "little"))
    cursor = _Cursor(path, data, 8, len(data), "<" if order == "little" else ">")
    tensor_count, key_count = cursor.scalar("Q", "its counts"), cursor.scalar("Q", "its counts")
    _check_count(cursor, key_count, "keys", MOST_KEYS, 13)
    _check_count(cursor, tensor_count, "tensors", MOST_TENSORS, 24)
    fields: dict[str, object] = {}
    names = Names(path)
    for number in range(key_count):
        key = names.spend(cursor.text(f"key {number:,}", LONGEST_NAME))
        if key in fields:
            raise Unreadable(
                f"{path} contains the key {shown(key)} twice.", "Write the file again with one value for each key."
            )
        fields[key] = _value(cursor, cursor.scalar("I", f"the value of {shown(key)}"), key)
    return Header(path, version, order, fields, _tensors(cursor, tensor_count, fields))


def _version(path: Path, number: int) -> tuple[int, str]:
    swapped = int.from_bytes(number.to_bytes(4, "little"), "big")
    for version, order in ((number, "little"), (swapped, "big")):
        if version in (2, 3):
            return version, order
    version = min(number, swapped)
    hint = "A file of version 1 must be converted again." if version == 1 else "It may need a newer clockhands."
    raise Unreadable(f"{path} is a GGUF file of version {version}, but only versions 2 and 3 can be read.", hint)


@dataclass
class _Cursor:
    """A position in a file; every step is checked against the end before it is made."""

    path: Path
    data: ReadAround
    at: int
    end: int
    order: str
    kept: int = 0
    steps: int = 0
    formats: dict[str, struct.Struct] = field(default_factory=dict)

    def scalar(self, letter: str, what: str) -> Any:  # int, float or bool, as the letter says
        form = self.formats.get(letter)
        if form is None:
            form = self.formats[letter] = struct.Struct(self.order + letter)
        at = self.step(form.size, what)
        return form.unpack_from(*self.data.around(at, form.size))[0]

    def step(self, count: int, what: str) -> int:
        """Move ``count`` bytes on; return the position before."""
        at = self.at
        if count > self.end - at:
            if count > self.end:
                raise damaged(f"{self.path}: {what} should take {count:,} bytes, but the whole file has {self.end:,}.")
            raise truncated(f"{self.path} ends after {self.end:,} bytes, inside {what}.")
        self.at = at + count
        return at

    def text(self, what: str, longest: int) -> str:
        """A string that must be UTF-8, such as a name."""
        length = self.scalar("Q", what)
        at = self.step(length, what)
        if length > longest:
            raise damaged(
                f"{self.path}: {what} has a name of {length:,} bytes, but the format allows at most {longest:,}."
            )
        try:
            return self.data[at : at + length].decode()
        except UnicodeDecodeError:
            raise damaged(f"{self.path}: {what} has a name that is not UTF-8 text.") from None

    def strings_over(self, count: int, what: str) -> None:
        """Skip ``count`` strings."""
        self.spend(count)
        unpack, at, last = struct.Struct(self.order + "Q").unpack_from, self.at, self.end - 8
        held, start, stop = b"", 0, 0
        for _ in range(count):
            if not start <= at <= stop:
                if at > last:
                    at = self.end + 1
                    break
                held, offset = self.data.around(at, 8)
                start = at - offset
                stop = start + len(held) - 8
            at += 8 + unpack(held, at - start)[0]
        if at > self.end:
            raise truncated(f"{self.path} ends after {self.end:,} bytes, inside {what}.")
        self.at = at

    def spend(self, steps: int) -> None:
        """Count steps that take time but hardly any bytes, so that a sparse file cannot cause hours of work."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise Unreadable(
                f"{self.path} holds more than {MOST_STEPS:,} strings before its tensors.",
                "No vocabulary is that large; check that this is the file you mean.",
            )

    def keep(self, elements: int, start: int) -> bool:
        """Whether the bytes between ``start`` and here are few enough to become Python values."""
        span = self.at - start
        if elements > _KEPT_ELEMENTS or span > _KEPT_BYTES or self.kept + span > _KEPT_IN_ALL:
            return False
        self.kept += span
        return True


def _check_count(cursor: _Cursor, count: int, what: str, most: int, least_bytes: int) -> None:
    left = cursor.end - cursor.at
    if count * least_bytes > left:
        raise damaged(f"{cursor.path} declares {count:,} {what}, more than its {cursor.end:,} bytes can hold.")
    if count > most:
        raise Unreadable(
            f"{cursor.path} declares {count:,} {what}, but at most {most:,} are read.",
            "No model has that many; check that this is the file you mean.",
        )


def _value(cursor: _Cursor, kind: int, key: str) -> object:
    what = f"the value of {shown(key)}"
    if kind in SCALARS:
        return cursor.scalar(SCALARS[kind][1], what)
    if kind == STRING:
        length = cursor.scalar("Q", what)
        at = cursor.step(length, what)
        if not cursor.keep(1, at):
            return Unread("character", length, at)
        return _decoded(cursor.data[at : at + length])
    if kind == ARRAY:
        item, count = cursor.scalar("I", what), cursor.scalar("Q", what)
        start = cursor.at
        _over(cursor, item, count, what, 1)
        if item == ARRAY or not cursor.keep(count, start):
            name = SCALARS[item][0] if item in SCALARS else "string" if item == STRING else "array"
            return Unread(name, count, start)
        return _elements(cursor, item, count, start)
    raise _unknown(cursor, kind, what)


def _over(cursor: _Cursor, item: int, count: int, what: str, depth: int) -> None:
    """Skip the elements of an array."""
    if item in SCALARS:
        cursor.step(count * struct.calcsize("<" + SCALARS[item][1]), what)
    elif item == STRING:
        if count * 8 > cursor.end - cursor.at:
            cursor.step(count * 8, what)
        cursor.strings_over(count, what)
    elif item == ARRAY:
        if depth >= DEEPEST_ARRAY:
            raise Unreadable(
                f"{cursor.path}: {what} nests arrays deeper than {DEEPEST_ARRAY} levels.",
                "No model does; check that this is the file you mean.",
            )
        if count * 12 > cursor.end - cursor.at:
            cursor.step(count * 12, what)
        for _ in range(count):
            cursor.spend(_STEPS_OF_AN_ARRAY)
            _over(cursor, cursor.scalar("I", what), cursor.scalar("Q", what), what, depth + 1)
    else:
        raise _unknown(cursor, item, what)


def _elements(cursor: _Cursor, item: int, count: int, start: int) -> list[object]:
    """The elements of a short array that was skipped before."""
    if item in SCALARS:
        form = struct.Struct(f"{cursor.order}{count}{SCALARS[item][1]}")
        return list(form.unpack(cursor.data[start : start + form.size]))
    made, at = [], start
    for _ in range(count):
        (length,) = struct.unpack(cursor.order + "Q", cursor.data[at : at + 8])
        at += 8 + length
        made.append(_decoded(cursor.data[at - length : at]))
    return made


def _decoded(data: bytes) -> str:
    # Values are only displayed; old converters cut some of them inside a character.
    return data.decode(errors="replace")


def _unknown(cursor: _Cursor, kind: int, what: str) -> Unreadable:
    return Unreadable(
        f"{cursor.path}: {what} has the value type {kind}, but the format has only 0 to 12.",
        "If the file is newer than clockhands, update clockhands; otherwise download it again.",
    )


def _tensors(cursor: _Cursor, count: int, fields: dict[str, object]) -> dict[str, TensorInfo]:
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise damaged(f"{cursor.path}: `general.alignment` is {shown(alignment)}, but must be a power of two.")
    entries, names = {}, Names(cursor.path)
    for number in range(count):
        name, *entry = _tensor(cursor, number)
        names.spend(name)
        if name in entries:
            raise Unreadable(
                f"{cursor.path} contains the tensor {shown(name)} twice.",
                "Write the file again with unique tensor names.",
            )
        entries[name] = entry
    start = -(-cursor.at // alignment) * alignment
    taken = []
    tensors = {}
    for name, (dtype, shape, size, offset) in entries.items():
        what = f"{cursor.path}: tensor {shown(name)}"
        if offset % alignment:
            raise damaged(f"{what} begins at byte {offset:,} of the data, which is not a multiple of {alignment}.")
        if start + offset + size > cursor.end:
            raise truncated(f"{what} ends at byte {start + offset + size:,}, but the file has {cursor.end:,}.")
        if size:
            taken.append((offset, offset + size, name))
        tensors[name] = TensorInfo(name, dtype, shape, cursor.path, start + offset, big_endian=cursor.order == ">")
    taken.sort()
    for (_, end, first), (begin, _, second) in pairwise(taken):
        if begin < end:
            raise damaged(f"{cursor.path}: the tensors {shown(first)} and {shown(second)} overlap.")
    return tensors


def _tensor(cursor: _Cursor, number: int) -> tuple[str, str, tuple[int, ...], int, int]:
    """One entry of the tensor list: name, type, shape with rows first, bytes, offset in the data."""
    name = cursor.text(f"tensor {number:,}", LONGEST_NAME)
    what = f"tensor {shown(name)}"
    axes = cursor.scalar("I", what)
    if axes > MOST_AXES:
        raise damaged(f"{cursor.path}: {what} has {axes:,} axes, but the format allows at most {MOST_AXES}.")
    sizes = [cursor.scalar("Q", what) for _ in range(axes)]
    kind, offset = cursor.scalar("I", what), cursor.scalar("Q", what)
    shape = tuple(sizes[::-1])
    check_shape(f"{cursor.path}: {what}", shape)
    if kind not in TENSOR_TYPES:
        # Quantised types are added every few months; an audit needs none of their numbers.
        return name, f"type {kind}", shape, 0, offset
    dtype, block, block_bytes = TENSOR_TYPES[kind]
    row = shape[-1] if shape else 1
    if row % block:
        raise damaged(
            f"{cursor.path}: {what} has rows of {row:,} numbers, but {dtype} stores numbers in blocks of {block}."
        )
    return name, dtype, shape, math.prod(shape) // block * block_bytes, offset


# Quantised tensors

_BLOCKS = {name: (numbers, size) for name, numbers, size in TENSOR_TYPES.values() if numbers > 1}


def is_quantised(info: TensorInfo) -> bool:
    """Whether the numbers are in quantised blocks of a GGUF type."""
    return info.dtype in _BLOCKS


def quantised_rows(info: TensorInfo, rows: np.ndarray) -> np.ndarray:
    """Some rows of a quantised matrix, float32; no other row is read.

    Raises:
        Unreadable: The extra `gguf` is not installed, it does not know the type, or the file ends inside the tensor.
    """
    where = f"{shown(info.name)} in {info.file}"
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise Unreadable(
            f"{where} is stored as {info.dtype}, but the library that reads this type is missing.",
            "Install it with `pip install 'clockhands[gguf]'`.",
        ) from None
    numbers, size = _BLOCKS[info.dtype]
    width = info.shape[-1] // numbers * size
    with opened_file(info) as file:
        taken = taken_rows(file, info, width, rows)
    if info.big_endian:
        raise Unreadable(f"{where} is quantised and in big-endian byte order, which cannot be read.", PLAIN_COPY)
    try:
        return dequantize(taken, GGMLQuantizationType[info.dtype])
    except (KeyError, NotImplementedError):
        raise Unreadable(
            f"{where} is stored as {info.dtype}, which the library gguf does not read.", PLAIN_COPY
        ) from None
