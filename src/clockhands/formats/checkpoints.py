"""Headers of PyTorch checkpoints (``.bin``, ``.pt``, ``.pth``), read without PyTorch and without running code.

A checkpoint consists of a pickle that describes the tensors, and of their numbers. Since 2020 both are in a zip
archive, uncompressed, as ``NAME/data.pkl`` and ``NAME/data/KEY``; before that they followed each other in one file. The
pickle is read as data (``pickles``), and anything that would run code is refused by name, like
``torch.load(weights_only=True)`` does. PyTorch is not loaded: that takes seconds, and it would run native code on
untrusted data. Tests check that both agree.

Source: ``torch/serialization.py`` of PyTorch 2.13 (``_legacy_save``, ``_save``, ``_legacy_load``).
"""

import io
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from clockhands.errors import Unreadable
from clockhands.formats import archives, pickles, shards
from clockhands.formats.arrays import Names, TensorInfo, bits_of, check_shape
from clockhands.formats.files import damaged, is_not, open_regular, too_many, truncated
from clockhands.formats.pickles import STORAGES, PickledDict, Tensor
from clockhands.formats.shards import WeightsHeader
from clockhands.phrases import shown

# Files from before 2020 begin with a number and a version, both as pickles.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001

MOST_TENSORS = 2**20
_DEEPEST = 16
_MOST_VALUES = 2**21


def is_checkpoint(path: Path) -> bool:
    """Whether an archive is one of PyTorch's, and not one of arrays.

    Raises:
        Unreadable: It is not an archive.
    """
    with archives.open_archive(path, "a zip archive") as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def read_header(path: Path) -> WeightsHeader:
    """The tensors of a checkpoint: their names, types, shapes and the places of their numbers.

    Dictionaries in dictionaries give names with dots: ``state_dict.embed.weight``. A file of one tensor
    gives it the file's name.

    Raises:
        Unreadable: It is not a checkpoint or damaged, holds anything but tensors in dictionaries and lists (which could
            run code when loaded), or declares tensors beyond its storages or its size.
    """
    with open_regular(path) as file:
        start = file.read(32)
    if start.startswith(b"PK"):
        found, places, big = _from_archive(path)
    elif start.startswith((b"\x80", b"(", b"c", b"]", b"}")):
        found, places, big = _from_stream(path)
    else:
        raise is_not(path, "a PyTorch checkpoint", start)
    tensors = {}
    for name, tensor in _named(found, path):
        if name in tensors:
            raise Unreadable(
                f"{path} holds two tensors named {shown(name)}.", "Save it again with a unique name for each tensor."
            )
        tensors[name] = _placed(path, name, tensor, places, big)
        if len(tensors) > MOST_TENSORS:
            raise too_many(path, MOST_TENSORS, "tensors")
    return WeightsHeader(path, tensors)


read_index: Callable[..., WeightsHeader] = partial(shards.read_index, read_header)
"""A ``*.bin.index.json`` and the headers of the shards that it names."""


def _from_archive(path: Path) -> tuple[Any, dict[str, tuple[int, int]], bool]:
    """The object in the archive's pickle, the place and size of each storage by key, and the byte order."""
    with archives.open_archive(path, "a PyTorch checkpoint") as archive:
        names = archive.namelist()
        pickled = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickled) != 1:
            raise Unreadable(
                f"{path} is a zip archive without the one data.pkl that a PyTorch checkpoint has.",
                "If it is an archive of arrays, its name must end in .npz.",
            )
        with archives.open_member(archive, path, pickled[0]) as stream:
            found = pickles.read_pickle(stream, str(path))
        folder = pickled[0].removesuffix("data.pkl")
        places, beginning = {}, f"{folder}data/"
        for name in names:
            key = name.removeprefix(beginning)
            if name.startswith(beginning) and "/" not in key:
                places[key] = (archives.place_of(archive, path, name), archive.getinfo(name).file_size)
        big = False
        if f"{folder}byteorder" in names:
            with archives.open_member(archive, path, f"{folder}byteorder") as stream:
                big = stream.read(16) == b"big"
    return found, places, big


def _from_stream(path: Path) -> tuple[Any, dict[str, tuple[int, int]], bool]:
    """The same for a file from before 2020: four pickles, the keys in order, then each storage after its length."""
    with open_regular(path) as file:
        magic = pickles.read_pickle(file, str(path))
        if magic != _MAGIC:
            # A pickle of something else: what it would import has been refused by now.
            raise Unreadable(
                f"{path} is a pickle file, but not a PyTorch checkpoint.",
                "Save the state_dict with torch.save, or as .safetensors.",
            )
        version, system = pickles.read_pickle(file, str(path)), pickles.read_pickle(file, str(path))
        if version != _VERSION:
            raise Unreadable(
                f"{path} is a PyTorch checkpoint of version {shown(version)}, but only version {_VERSION} can be read.",
                "Load it with the PyTorch that wrote it, and save it again.",
            )
        found = pickles.read_pickle(file, str(path))
        keys = pickles.read_pickle(file, str(path))
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise damaged(f"{path} has no list of the storages that contain its numbers.")
        big = isinstance(system, PickledDict) and ("little_endian", False) in system
        widths = {
            tensor.storage.key: bits_of(STORAGES[tensor.storage.kind] or "bool") // 8
            for _, tensor in _named(found, path)
            if tensor.storage.kind in STORAGES
        }
        return (
            found,
            _storages(path, file, [(key, widths.get(key, 0)) for key in keys], "big" if big else "little"),
            big,
        )


def _storages(
    path: Path, file: IO[bytes], keys: list[tuple[str, int]], order: Literal["big", "little"]
) -> dict[str, tuple[int, int]]:
    """The places of the storages after the pickles: each is a count of numbers, then the numbers.

    Args:
        path: The file.
        file: The same, open behind the pickles.
        keys: The names of the storages in order, each with the bytes of one number; 0 is unknown.
        order: The byte order.
    """
    at = file.tell()
    size = file.seek(0, io.SEEK_END)
    places = {}
    for key, width in keys:
        if not width:
            raise Unreadable(
                f"{path} holds the storage {shown(key)}, which no tensor uses, so its type and its end are not known.",
                "Load it with the PyTorch that wrote it, and save it again.",
            )
        file.seek(at)
        length = width * int.from_bytes(file.read(8), order)
        places[key] = (at + 8, length)
        at += 8 + length
        if at > size:
            raise truncated(f"{path} ends after {size:,} bytes, inside the storage {shown(key)}.")
    return places


def _named(found: Any, path: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its name, however deep in dictionaries and lists."""
    if isinstance(found, Tensor):
        yield path.name, found
        return
    left, names = _MOST_VALUES, Names(path)
    waiting: list[tuple[str, int, Iterator[tuple[Any, Any]]]] = [("", 0, _items(found))]
    while waiting:
        prefix, depth, items = waiting[-1]
        for key, value in items:
            left -= 1
            # Python writes whole numbers of at most 4,300 digits.
            named = isinstance(key, str) or (isinstance(key, int) and abs(key) < 2**63)
            name = f"{prefix}{key}" if named else None
            names.spend(name or "")
            if left < 0 or depth > _DEEPEST:
                raise Unreadable(
                    f"{path} has more or deeper nested dictionaries than any checkpoint.",
                    "Check that this is the file you mean.",
                )
            if name is None:
                continue
            if isinstance(value, Tensor):
                yield name, value
            elif isinstance(value, list | tuple):
                waiting.append((f"{name}.", depth + 1, _items(value)))
                break
        else:
            waiting.pop()


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, PickledDict):
        return iter(value)
    return iter(enumerate(value)) if isinstance(value, list | tuple) else iter(())


def _placed(path: Path, name: str, tensor: Tensor, places: dict[str, tuple[int, int]], big: bool) -> TensorInfo:
    """The place of a tensor's numbers, checked against its storage and the file."""
    where = f"{path}: tensor {shown(name)}"
    dtype, width = _type(tensor)
    check_shape(where, tensor.shape)
    if tensor.storage.key not in places:
        raise damaged(f"{where} is in the storage {shown(tensor.storage.key)}, which the file does not contain.")
    start, size = places[tensor.storage.key]
    last = sum((count - 1) * step for count, step in zip(tensor.shape, tensor.strides, strict=True))
    needed = (tensor.offset + last + 1) * width if math.prod(tensor.shape) else 0
    if needed > size:
        raise Unreadable(
            f"{where} needs {needed:,} bytes of its storage, which has only {size:,}.",
            "The file is damaged: download it again.",
        )
    order = _order(tensor)
    if order is None:
        # Views with gaps are rare in checkpoints, and position tables are not stored like that.
        dtype = f"scattered {dtype}"
    return TensorInfo(
        name, dtype, tensor.shape, path, start + tensor.offset * width, fortran=order == "F", big_endian=big
    )


def _type(tensor: Tensor) -> tuple[str, int]:
    """The type of a tensor's numbers, and how many bytes one takes."""
    dtype = tensor.dtype or STORAGES.get(tensor.storage.kind, tensor.storage.kind) or "untyped"
    return dtype, bits_of(dtype) // 8 or 1


def _order(tensor: Tensor) -> str | None:
    """Whether the numbers are contiguous in C order or in Fortran order."""
    for order, step in (("C", -1), ("F", 1)):
        expected, fits = 1, True
        for count, stride in list(zip(tensor.shape, tensor.strides, strict=True))[::step]:
            fits = fits and (count == 1 or stride == expected)
            expected *= count
        if fits or not math.prod(tensor.shape):
            return order
    return None
