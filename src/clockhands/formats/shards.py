"""Checkpoints in several files: reads an index that lists the file of each tensor.

An index comes from an untrusted source, so it may only name files in its own folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from clockhands.errors import Unreadable
from clockhands.formats import documents
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.files import is_pointer, leaves_folder, place
from clockhands.phrases import shown

# An index of a checkpoint with 90,000 tensors has about 9 MB.
LARGEST_INDEX = 128 * 2**20

# The key of the metadata under which `clockhands convert` keeps the layout of a file.
LAYOUT_NOTE = "clockhands.layout"


@dataclass(frozen=True)
class WeightsHeader:
    """The header of a file of weights, or those of all shards of a checkpoint together.

    Attributes:
        path: The file, or the index.
        tensors: Every tensor by name, in the order of the data.
        metadata: Free text by key, as the writer left it.
        absent: Missing files with tensors: shards, if that was allowed, or data files beside a model.
        added: Tensors that the graph of an ONNX model adds to something, or gathers rows of, as it does with position
            tables.
        layouts: What each shard says of its layout, empty if it says nothing; only where they contradict each other.
        state: Of a safetensors file, what `files.state` said of it when the header was read.
    """

    path: Path
    tensors: dict[str, TensorInfo]
    metadata: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()
    layouts: Mapping[str, str] = field(default_factory=dict)
    state: tuple[int, int, int, int] | None = None


def shard_of_each(path: Path) -> dict[str, str]:
    """The tensors that an index lists, each with the name of its file.

    Raises:
        Unreadable: The index cannot be read, or is not an index.
    """
    names = documents.read(path, LARGEST_INDEX, found=True).fields.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(shard, str) for shard in names.values()):
        raise Unreadable(
            f"{path} has no `weight_map` from tensor names to file names.",
            "Name the index that was saved with the shards, or the model folder.",
        )
    return names


def is_here(file: Path) -> bool:
    """Whether a shard itself is present, and not a Git LFS pointer to it."""
    return place(file) is not None and not is_pointer(file)


def read_index(
    read_header: Callable[[Path], WeightsHeader],
    path: Path,
    allow_absent: bool = False,
    present: Callable[[Path], bool] = is_here,
) -> WeightsHeader:
    """Read an index and, with ``read_header``, the headers of the shards that it names.

    Only file names inside the index's own folder are followed. With ``allow_absent`` shards that are
    not ``present`` are listed in ``absent`` instead of refused.

    Raises:
        Unreadable: The index or a shard cannot be read, a shard is missing or lies outside the folder,
            or a shard does not hold a tensor that the index looks for in it.
    """
    names = shard_of_each(path)
    shards: dict[str, WeightsHeader] = {}
    absent = []
    for shard in dict.fromkeys(names.values()):
        file = _shard(path, shard)
        if allow_absent:
            if not present(file):
                absent.append(shard)
                continue
        elif place(file) is None:
            raise Unreadable(
                f"{path} names the shard {shown(shard)}, which is not in the same folder.",
                "Download all shards, or name the model's config.json to audit only the config.",
            )
        shards[shard] = read_header(file)
    tensors = {}
    for name, shard in names.items():
        if shard not in shards:
            continue
        if name not in shards[shard].tensors:
            raise Unreadable(
                f"{path} looks for {shown(name)} in the shard {shown(shard)}, which does not contain it.",
                "The shards and the index are of different checkpoints: download them again.",
            )
        tensors[name] = shards[shard].tensors[name]
    metadata = {key: value for header in shards.values() for key, value in header.metadata.items()}
    layouts = {shard: header.metadata.get(LAYOUT_NOTE, "") for shard, header in shards.items()}
    return WeightsHeader(
        path, tensors, metadata, tuple(absent), layouts=layouts if len(set(layouts.values())) > 1 else {}
    )


def _shard(index: Path, name: str) -> Path:
    """The path of the file that an index calls ``name``: always in the index's own folder."""
    if leaves_folder(name) or len(PurePosixPath(name).parts) != 1:
        raise Unreadable(
            f"{index} names the shard {shown(name)}, which is not a file name in its own folder.",
            "Do not trust this checkpoint: shards must be in the folder of their index.",
        )
    file = index.parent / name
    target = out_of_folder(file)
    if target is not None:
        raise Unreadable(
            f"{index} names the shard {shown(name)}, which is a link out of its folder, to {target}.",
            "Name the checkpoint in the folder that holds the files themselves.",
        )
    return file


def out_of_folder(file: Path) -> Path | None:
    """Where a link leads that leaves its folder; None for a file, a link within the folder, or one in a circle.

    The cache of Hugging Face keeps the files of a model in ``models--ORG--NAME/blobs``, and snapshots contain links to
    them, as do the folders that older releases of its library downloaded to.
    """
    try:
        target = file.resolve() if file.is_symlink() else None
        folder = file.parent.resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    if target is None or target.is_relative_to(folder):
        return None
    kept = target.parent.name == "blobs" and target.parent.parent.name.startswith(("models--", "datasets--"))
    return None if kept else target
