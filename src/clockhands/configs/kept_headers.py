"""Stores headers of safetensors files fetched from a hub, so that the next audit gives the same result offline.

They are stored in the folder that ``huggingface_hub`` reserves for data derived from models, one JSON document for each
folder of a commit: the text and the file size of each header, and the small tensors that were fetched with them.

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache (caching assets).
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clockhands.configs.opened import Opened
from clockhands.errors import ClockhandsError
from clockhands.formats import documents, hub_cache, safetensors, shards
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.hub_cache import HubName

_LARGEST = 64_000_000  # bytes; what is fetched of one model has at most 20 MB


@dataclass(frozen=True)
class RemoteHeader:
    """The header of a file that is not on this machine.

    Attributes:
        size: Bytes of the whole file.
        text: The header, without the 8 bytes of its length.
    """

    size: int
    text: bytes


def tensors_of(folder: Path, index: str | None, headers: Mapping[str, RemoteHeader]) -> dict[str, TensorInfo]:
    """The tensors that headers declare, with the same checks as for local files.

    Args:
        folder: The folder of a snapshot, where the files would be.
        index: The name of the index, which is present; None for a file without one.
        headers: Headers by the name of the file.

    Raises:
        Unreadable: A header is inconsistent, or the index names a file that lacks a tensor.
    """
    found = {folder / name: safetensors.header_of(folder / name, one.text, one.size) for name, one in headers.items()}
    if index is None:
        return {name: info for header in found.values() for name, info in header.tensors.items()}
    present = found.__contains__
    return shards.read_index(found.__getitem__, folder / index, allow_absent=True, present=present).tensors


def away(
    tensors: Mapping[str, TensorInfo], download: str, held: Mapping[str, bytes | bytearray]
) -> dict[str, TensorInfo]:
    """Tensors whose values are not on this machine, except those whose bytes are ``held``; ``download`` fetches all."""
    return {
        name: replace(info, hub=download, held=bytes(held[name]) if name in held else None)
        for name, info in tensors.items()
    }


def keep(
    asked: HubName, folder: Path, index: str | None, headers: Mapping[str, RemoteHeader], held: Mapping[str, bytes]
) -> None:
    """Store what was fetched for a folder of a snapshot; if that fails, it is fetched again next time."""
    document = {
        "index": index,
        "headers": {name: {"size": one.size, "text": one.text.decode()} for name, one in headers.items()},
        "held": {name: base64.b64encode(data).decode() for name, data in held.items()},
    }
    with suppress(OSError):
        path = _path(asked, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        hub_cache.write(path, json.dumps(document).encode())


def with_kept(asked: HubName, opened: Opened) -> Opened:
    """A model from the cache, with the stored headers of its weights if only those were fetched."""
    if opened.tensors or opened.path is None or not opened.path.is_dir():
        return opened
    try:
        path = _path(asked, opened.path)
        if not path.is_file():
            return opened
        fields = documents.read(path, _LARGEST, found=True).fields
        index = fields["index"]
        headers = {name: RemoteHeader(one["size"], one["text"].encode()) for name, one in fields["headers"].items()}
        held = {name: base64.b64decode(data, validate=True) for name, data in fields["held"].items()}
        tensors = tensors_of(opened.path, index, headers)
    except (ClockhandsError, OSError, KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        return replace(opened, notes=(*opened.notes, "The headers that were kept of its weights cannot be read."))
    said = "Of its weights only the headers are here, from when it was fetched."
    return replace(opened, tensors=away(tensors, asked.download, held), hub=asked.download, notes=(*opened.notes, said))


def _path(asked: HubName, folder: Path) -> Path:
    """The document of a folder of a snapshot."""
    inside = folder.relative_to(hub_cache.snapshots(asked)).parts
    name = re.sub(r"[^\w.-]", "_", "--".join(inside))
    folder = hub_cache.assets_folder() / "clockhands" / "headers" / asked.name.replace("/", "--")
    return folder / f"{name}.json"
