"""Tensors in files: where a tensor is, how to read it, and a summary that needs little memory.

In every container (``.npy``, ``.npz``, safetensors, GGUF) a tensor is a block of numbers of one type at some place in a
file. The parser of a header gives that place (``TensorInfo``), and this module reads it. ``.npy`` and ``.npz`` headers
are read here by NumPy's own functions, before memory is allocated; pickles are never opened.

Source: the .npy format, NumPy Enhancement Proposal 1 and ``numpy.lib.format``.
"""

import io
import itertools
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from clockhands.encodings import memory
from clockhands.errors import TooLarge, Unreadable
from clockhands.formats import archives
from clockhands.formats.files import WRITE_AGAIN, damaged, miswritten, open_regular, place, seems
from clockhands.packaged import packaged
from clockhands.phrases import shown, some_of

NUMBER_TYPES = packaged(__file__, "number_types.json")
"""The types of numbers of each format, by the format's name or number for them."""

# The most memory for one tensor, if that much is available. The largest known position table has about 1 GB (131,072
# rows of 2,048 float32); without a limit a zip bomb would be unpacked for minutes.
LARGEST = 4 * 2**30

# NumPy's own bound for a header (numpy.lib.format), checked here before the header is read.
# The longest name of a tensor that was seen has 120 characters; 138,000 of 65 are the most in one checkpoint.
LONGEST_NAME = 4096
MOST_CHARACTERS = 2**24

_LONGEST_HEADER = 10_000

_CHUNK = 2**18  # elements that are read at once

_NPZ = "an .npz archive"

# What to do about numbers that cannot be read.
PLAIN_COPY = "Use a copy of the model in float32, float16 or bfloat16."


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file, not read yet.

    Attributes:
        name: Its name in the container.
        dtype: NumPy's (or ml_dtypes') name of the type; for a type that neither has, the container's.
        shape: Rows first, as NumPy writes it.
        file: The file that holds it.
        offset: Where in the file, in bytes; inside the member for an .npz archive.
        fortran: The first axis is contiguous (Fortran order).
        big_endian: The bytes of each number are in big-endian order.
        member: The member of an .npz archive.
        held: The bytes of its numbers, if the file does not hold them in this form.
        model: The file that declares it, if another one holds its numbers.
        hub: The command that downloads the model, if only the header of the file was fetched from a hub.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int = 0
    fortran: bool = False
    big_endian: bool = False
    member: str | None = None
    held: bytes | None = field(default=None, repr=False)
    model: Path | None = None
    hub: str | None = None

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """How many bits all its numbers take, by the name of its type; the numbers of some types share bytes."""
        return self.elements * bits_of(self.dtype)

    @property
    def declared_in(self) -> Path:
        """The file that declares it, wherever its numbers are."""
        return self.model or self.file


def possible(shape: Sequence[int]) -> bool:
    """Whether NumPy can represent this shape: at most 64 axes, sizes from 0 on that do not overflow."""
    return len(shape) <= 64 and min(shape, default=0) >= 0 and math.prod(max(size, 1) for size in shape) < 2**59


def check_shape(where: str, shape: Sequence[int], error: Callable[[str], Unreadable] = damaged) -> None:
    """Refuse the shape of a tensor that cannot be, with an ``error``; ``where`` is the tensor and its file.

    Raises:
        Unreadable: NumPy cannot represent it.
    """
    if not possible(shape):
        raise error(f"{where} has the impossible shape {shown(shape)}.")


def read(info: TensorInfo) -> np.ndarray:
    """Read one tensor, in the machine's byte order.

    Raises:
        Unreadable: Its type has no NumPy counterpart (it is quantised), or the file ends inside it.
        TooLarge: It takes more than 4 GiB, or more than is available; it is refused before memory is allocated.
    """
    dtype = number_type(info)
    size = info.elements * dtype.itemsize
    left = memory.available()
    limit = LARGEST if left is None else min(left, LARGEST)
    if size > limit:
        raise TooLarge(
            f"{shown(info.name)} in {info.file} would take {memory.readable(size)}; at most {memory.readable(limit)} "
            "can be read into memory.",
            "Save the part that you need as a separate array.",
        )
    made = np.empty(info.elements, dtype)
    at = 0
    for block in _blocks(info, dtype):
        made[at : at + block.size] = block
        at += block.size
    return made.reshape(info.shape, order="F" if info.fortran else "C")


def mapped(info: TensorInfo) -> np.ndarray:
    """One tensor; above 64 MiB it is memory-mapped, if the file holds its bytes as they are in memory.

    Smaller tensors are not mapped, because truncating a mapped file ends the process (SIGBUS).

    Raises:
        Unreadable: Its type has no NumPy counterpart (it is quantised), or the file ends inside it.
        TooLarge: It has to be read whole, and takes more than 4 GiB or than there is.
    """
    dtype = number_type(info)
    if not _is_plain(info, dtype) or info.elements * dtype.itemsize <= _MAPPED_FROM:
        return read(info)
    with opened_file(info) as file:
        if file.seek(0, io.SEEK_END) < info.offset + info.elements * dtype.itemsize:
            raise miswritten(f"{info.file} ends inside {shown(info.name)}.")
        order = "F" if info.fortran else "C"
        return np.memmap(file, dtype, "r", info.offset, info.shape, order)


_MAPPED_FROM = 2**26


def _is_plain(info: TensorInfo, dtype: np.dtype) -> bool:
    """Whether the file holds the numbers as they are in memory."""
    plain = info.member is None and info.held is None and not info.big_endian and dtype.kind != "b"
    return plain and info.elements > 0 and sys.byteorder == "little"


def read_rows(info: TensorInfo, rows: np.ndarray) -> np.ndarray:
    """Some rows of a tensor; if the file holds its bytes as they are in memory, no other row is read.

    Raises:
        Unreadable: Its type has no NumPy counterpart (it is quantised), or the file ends inside it.
        TooLarge: It has to be read whole, and takes more than 4 GiB or than there is.
    """
    dtype = number_type(info)
    if not _is_plain(info, dtype) or info.fortran:
        return read(info)[rows]
    width = info.elements // info.shape[0] * dtype.itemsize
    with opened_file(info) as file:
        return taken_rows(file, info, width, rows).view(dtype).reshape(len(rows), *info.shape[1:])


def taken_rows(file: IO[bytes], info: TensorInfo, width: int, rows: np.ndarray) -> np.ndarray:
    """The bytes of some rows of a tensor, [rows, width]; neighbouring rows are read together.

    Raises:
        Unreadable: The file ends inside the tensor.
    """
    taken = np.empty((len(rows), width), np.uint8)
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    for start, stop in itertools.pairwise([0, *breaks.tolist(), len(rows)]):
        for first in range(start, stop, step := max(1, _PIECE // max(1, width))):
            some = taken[first : min(first + step, stop)]
            file.seek(info.offset + int(rows[first]) * width)
            some[...] = np.frombuffer(_exactly(file, some.size, info), np.uint8).reshape(some.shape)
    return taken


_PIECE = 2**22  # bytes of neighbouring rows that are read at once


def bits_of(dtype: str) -> int:
    """The bits of one number of a type, which its name says; 0 for text, and for a type that has no name.

    >>> bits_of("float8_e4m3fn"), bits_of("BOOL"), bits_of("FLOAT4E2M1"), bits_of("STRING"), bits_of("type 77")
    (8, 8, 4, 0, 0)
    """
    found = re.match(r"(?:[a-z]+|[A-Z]+)(\d+)", dtype)
    return int(found[1]) if found else 8 * (dtype.lower() == "bool")


def number_type(info: TensorInfo) -> np.dtype:
    """The NumPy type of a tensor's numbers.

    Raises:
        Unreadable: The tensor is quantised, or of a type narrower than a byte.
    """
    if re.fullmatch(r"bool|u?int(8|16|32|64)|float(16|32|64|96|128)|complex(64|128|192|256)", info.dtype):
        return np.dtype(info.dtype)
    if info.dtype.startswith(("bfloat", "float8")):
        # Imported here: importing it adds types to NumPy, and few targets need them.
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, info.dtype))
    raise Unreadable(
        f"{shown(info.name)} in {info.file} is stored as {info.dtype}, whose numbers cannot be read one by one.",
        PLAIN_COPY,
    )


def _blocks(info: TensorInfo, dtype: np.dtype) -> Iterator[np.ndarray]:
    """The tensor's numbers in file order, a bounded number at a time, in the machine's byte order."""
    left = info.elements
    with _stream(info) as stream:
        while left:
            count = min(left, _CHUNK)
            data = _exactly(stream, count * dtype.itemsize, info)
            yield _numbers(data, dtype, info.big_endian)
            left -= count


def _numbers(data: bytes, dtype: np.dtype, big_endian: bool) -> np.ndarray:
    if dtype.kind == "b":
        return np.frombuffer(data, np.uint8) != 0  # a bool byte other than 0 or 1 is undefined in NumPy
    if not big_endian:
        return np.frombuffer(data, dtype if dtype.kind == "V" else dtype.newbyteorder("<")).astype(dtype, copy=False)
    if dtype.kind == "V":  # ml_dtypes' types have no byte order of their own
        return np.frombuffer(data, f">u{dtype.itemsize}").astype(f"u{dtype.itemsize}").view(dtype)
    return np.frombuffer(data, dtype.newbyteorder(">")).astype(dtype)


@contextmanager
def _stream(info: TensorInfo) -> Iterator[IO[bytes]]:
    if info.held is not None:
        yield io.BytesIO(info.held)
        return
    if info.member is None:
        with opened_file(info) as file:
            file.seek(info.offset)
            yield file
        return
    with (
        archives.open_archive(info.file, _NPZ) as archive,
        archives.open_member(archive, info.file, info.member) as stream,
    ):
        _exactly(stream, info.offset, info)
        yield stream


def opened_file(info: TensorInfo) -> IO[bytes]:
    """The file that holds the numbers, open for reading bytes.

    Raises:
        Unreadable: It is missing beside the file that declares them, only its header was fetched, or it cannot be
            opened.
    """
    if info.hub is not None:
        raise Unreadable(
            f"The numbers of {shown(info.name)} were not fetched, only the header of {info.file.name}.",
            f"Download the model: `{info.hub}`.",
        )
    if info.model is not None and place(info.file) is None:
        raise Unreadable(
            f"{info.model} keeps the numbers of {shown(info.name)} in {info.file}, which is not there.",
            f"Download {info.file.name} too: the two files belong together.",
        )
    return open_regular(info.file)


def _exactly(stream: IO[bytes], count: int, info: TensorInfo) -> bytes:
    try:
        data = stream.read(count)
    except Exception as error:  # noqa: BLE001 - zipfile has a dozen exceptions for a damaged member
        raise archives.damaged(info.file, error) from None
    if len(data) < count:
        raise miswritten(f"{info.file} ends inside {shown(info.name)}.")
    return data


@dataclass
class Names:
    """The names in one file, which are compared with patterns letter by letter, so that they have a budget.

    Attributes:
        path: The file.
        left: How many characters may follow.
    """

    path: Path
    left: int = MOST_CHARACTERS

    def spend(self, name: str) -> str:
        """Take one name.

        Raises:
            Unreadable: It is longer than any name of a tensor, or all of them together are.
        """
        self.left -= len(name)
        if len(name) > LONGEST_NAME or self.left < 0:
            told = f"a name of {len(name):,} characters" if len(name) > LONGEST_NAME else "names of too many characters"
            raise Unreadable(
                f"{self.path} has {told}; one may have {LONGEST_NAME:,}, and all together {MOST_CHARACTERS:,}.",
                "No model has such names; check that this is the file you mean.",
            )
        return name


def npy_header(path: Path) -> TensorInfo:
    """The place of the array in a ``.npy`` file, checked against the file's size; its name is the file's.

    Raises:
        Unreadable: It is not a .npy file, declares more than it holds, or holds anything but plain
            numbers: Python objects (a pickle, which could run code), structures, text.
    """
    with open_regular(path) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return _header(file, path, path.name, size, None)


def npz_names(path: Path) -> tuple[str, ...]:
    """The names of the arrays in an ``.npz`` archive, as ``np.load`` gives them.

    Raises:
        Unreadable: It is not a zip archive, or names an array twice.
    """
    with archives.open_archive(path, _NPZ) as archive:
        names = tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    budget = Names(path)
    counted = Counter(map(budget.spend, names))
    if len(counted) < len(names):
        double = next(name for name, count in counted.items() if count > 1)
        raise miswritten(f"{path} holds two arrays named {shown(double)}.")
    return names


def npz_header(path: Path, name: str) -> TensorInfo:
    """The place of one array in an ``.npz`` archive, checked against the member's declared size.

    Raises:
        Unreadable: There is no such array, or it is refused for a reason that ``npy_header`` gives.
    """
    names = npz_names(path)
    if name not in names:
        raise Unreadable(f"{path} has no array {shown(name)}.", listed("It holds", names))
    return npz_headers(path, (name,))[name]


def npz_headers(path: Path, names: Sequence[str]) -> dict[str, TensorInfo]:
    """The places of some arrays in an ``.npz`` archive, each checked against its member's declared size.

    Raises:
        Unreadable: One of them is refused for a reason that ``npy_header`` gives.
    """
    found = {}
    with archives.open_archive(path, _NPZ) as archive:
        for name in names:
            member = name + ".npy"
            with archives.open_member(archive, path, member) as stream:
                found[name] = _header(stream, path, name, archive.getinfo(member).file_size, member)
    return found


def listed(words: str, names: tuple[str, ...]) -> str:
    """A sentence that lists some names: the first eight, and how many more."""
    if not names:
        return f"{words} nothing."
    return f"{words} {some_of(shown(name)[1:-1] for name in names)}."


def _header(stream: IO[bytes], path: Path, name: str, size: int, member: str | None) -> TensorInfo:
    """The header at the start of ``stream``, which holds ``size`` bytes in all."""
    where = f"{shown(name)} in {path}" if member else str(path)
    empty = TensorInfo(name, "", (), path, member=member)
    start = _exactly(stream, min(size, 8), empty)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        hint = WRITE_AGAIN if not start.startswith(b"\x80") else "Pickles can run code: save it with np.save."
        raise Unreadable(f"{where} is not a .npy array: {seems(start)}.", hint)
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0)):
        # Version 3 exists only for field names outside Latin-1.
        raise Unreadable(
            f"{where} is a .npy array of version {version[0]}.{version[1]}; plain numbers have version 1.0 or 2.0.",
            "Save it again with np.save as a plain array of numbers.",
        )
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(_exactly(stream, width, empty), "little")
    offset = 8 + width + length
    if length > _LONGEST_HEADER or offset > size:
        raise miswritten(
            f"{where} declares a header of {length:,} bytes, and the file has {size:,}; a header of an array of "
            f"numbers has at most {_LONGEST_HEADER:,}."
        )
    text = _exactly(stream, length, empty)
    shape, fortran, dtype = _parsed(length.to_bytes(width, "little") + text, version, where)
    _check_numbers(dtype, where)
    needed = math.prod(shape) * dtype.itemsize
    if needed > size - offset:
        raise miswritten(
            f"{where} declares {needed:,} bytes of numbers (shape {shape}, {dtype.name}), but holds {size - offset:,}."
        )
    return TensorInfo(
        name, dtype.name, shape, path, offset, fortran and len(shape) > 1, dtype.str.startswith(">"), member
    )


def _parsed(data: bytes, version: tuple[int, int], where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about headers written by Python 2, which it reads
            shape, fortran, dtype = reader(io.BytesIO(data))
    except Exception:  # noqa: BLE001 - the header is parsed as Python, which fails in as many ways as Python has
        raise miswritten(f"{where} has a .npy header that NumPy cannot read.") from None
    if any(size < 0 for size in shape):
        raise miswritten(f"{where} declares the shape {shown(shape)}, with a negative size.")
    if not possible(shape):
        raise miswritten(f"{where} declares the impossible shape {shown(shape)}.")
    return tuple(int(size) for size in shape), fortran, dtype


def _check_numbers(dtype: np.dtype, where: str) -> None:
    if dtype.hasobject:
        raise Unreadable(
            f"{where} holds Python objects (a pickle), which could run code when loaded; only numbers are read.",
            "Save it again as numbers, for instance np.save(file, array.astype(np.float32)).",
        )
    if dtype.names is not None or dtype.subdtype is not None:
        raise Unreadable(
            f"{where} holds structures (dtype {shown(str(dtype))}), where plain numbers are expected.",
            "Save the field that you need as a separate array.",
        )
    if dtype.kind == "V":
        raise Unreadable(
            f"{where} holds raw bytes (dtype {dtype.name}), as .npy files do for bfloat16 and float8 arrays.",
            "Save it as float32, or in a .safetensors file, which keeps the type.",
        )
    if dtype.kind not in "biufc":
        raise Unreadable(
            f"{where} holds {dtype.name} values, where plain numbers are expected.",
            "Save the numbers as an array of floats or integers.",
        )
