"""Open a model folder: its config, the weights that are there, and the other documents of its release."""

import re
from pathlib import Path
from typing import Any

from clockhands.arguments import shown
from clockhands.errors import Unreadable
from clockhands.sources import arrays, checkpoints, documents, files, safetensors
from clockhands.sources.arrays import TensorInfo
from clockhands.sources.opened import READ, Opened
from clockhands.sources.openers import open_gguf

# The config of a model, where there are several the first: Hugging Face's, or Meta's and Mistral's own.
CONFIGS = ("config.json", "params.json")

# What stands beside a config in releases and says something about lengths or rotation as well.
BESIDE = ("params.json", "generation_config.json", "tokenizer_config.json")

# The usual names of weights in PyTorch's own format. Others may be the state of an optimizer.
CHECKPOINTS = ("pytorch_model.bin", "model.bin", "model.pt", "model.pth", "consolidated.00.pth")


def open_folder(folder: Path, target: str) -> Opened:
    """A model folder: its config with what safetensors it holds, or the only thing that is there.

    Raises:
        Unreadable: The folder cannot be listed, holds no model or several, or its config or weights cannot be read.
    """
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise Unreadable(
            f"{folder} cannot be listed: {error.strerror}.", "Give yourself permission to read the folder."
        ) from None
    config = next((name for name in CONFIGS if name in names), None)
    tensors, notes = _folder_tensors(folder, names, config is not None)
    if config is not None:
        document = documents.read(folder / config, found=True)
        beside, unread = _documents_beside(folder, [name for name in names if name != config])
        return Opened(
            target,
            "config",
            folder,
            document.fields,
            config,
            tensors,
            notes=notes + unread,
            duplicates=document.duplicates,
            beside=beside,
        )
    if tensors:
        form = "safetensors" if any(name.endswith(".safetensors") for name in names) else "pytorch"
        return Opened(target, form, folder, tensors=tensors, notes=notes)
    models = [name for name in names if name.lower().endswith(".gguf")]
    first = [name for name in models if not re.search(r"-\d{5}-of-\d{5}\.gguf$", name.lower()) or "-00001-of-" in name]
    if len(first) == 1:
        return open_gguf(folder / first[0], target)
    if models:
        raise Unreadable(
            f"{folder} has no config.json and {len(models)} .gguf files.",
            "Name one of them. " + arrays.listed("There are", tuple(first or models)),
        )
    raise Unreadable(f"{folder} has no config.json.", _folder_hint(folder, names))


def _documents_beside(folder: Path, names: list[str]) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The documents that stand beside a config, and notes: one that is broken is no reason to refuse the model."""
    beside, notes = {}, []
    for name in BESIDE:
        if name not in names:
            continue
        try:
            document = documents.read(folder / name, found=True)
        except Unreadable as error:
            notes.append(f"{name} is not looked at: {error.message}")
            continue
        beside[name] = document.fields
        notes += [
            f"{name} gives {shown(key)} more than once; the last value is used." for key in document.duplicates[:8]
        ]
    return beside, tuple(notes)


def _folder_hint(folder: Path, names: list[str]) -> str:
    inner = tuple(name for name in names if (folder / name / "config.json").is_file())
    if inner:
        return "Name one of its folders. " + arrays.listed("With a config.json there are", inner)
    if "snapshots" in names:
        return "It is a folder of the Hugging Face cache: name the model as org/name, or one of its snapshots."
    return f"Name {READ}."


def _folder_tensors(folder: Path, names: list[str], has_config: bool) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """The tensors of a model folder, and notes on what was left out.

    With a config, weights that were not downloaded are a note: the config alone can be judged.
    """
    index = _preferred(names, ".safetensors.index.json", "model.safetensors.index.json")
    if index:
        header = safetensors.read_index(folder / index, allow_absent=has_config)
        if not header.absent:
            return header.tensors, ()
        note = f"{len(header.absent)} of the shards that {index} names are not here, {header.absent[0]} first."
        return header.tensors, (note,)
    file = _preferred(names, ".safetensors", "model.safetensors")
    if file and has_config and files.is_pointer(folder / file):
        return {}, (f"{file} is a Git LFS pointer; its tensors are not here.",)
    if file:
        return safetensors.read_header(folder / file).tensors, ()
    several = [name for name in names if name.endswith(".safetensors")]
    if not several:
        return _checkpoint_tensors(folder, names, has_config)
    if not has_config:
        raise Unreadable(
            f"{folder} has {len(several)} .safetensors files and neither an index nor a config.json.",
            "Name one of them. " + arrays.listed("There are", tuple(several)),
        )
    return {}, (f"{len(several)} .safetensors files without an index are not looked at; name one of them.",)


def _checkpoint_tensors(
    folder: Path, names: list[str], has_config: bool
) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """The tensors of a folder whose weights are in PyTorch's own format; what cannot be read is a note too."""
    index = _preferred(names, ".bin.index.json", "pytorch_model.bin.index.json")
    file = index or next((name for name in CHECKPOINTS if name in names), None)
    if file is None:
        return {}, ()
    if has_config and files.is_pointer(folder / file):
        return {}, (f"{file} is a Git LFS pointer; its tensors are not here.",)
    parts = [name for name in names if re.fullmatch(r"consolidated\.\d\d\.pth", name)]
    told = (f"{file} is one of {len(parts)} files that each hold a slice of every matrix; no other is read.",)
    try:
        if not index:
            return checkpoints.read_header(folder / file).tensors, told if file in parts and len(parts) > 1 else ()
        header = checkpoints.read_index(folder / index, allow_absent=has_config)
    except Unreadable as error:
        if has_config:
            return {}, (f"The tensors of {file} are not looked at: {error.message}",)
        raise
    if not header.absent:
        return header.tensors, ()
    return header.tensors, (
        f"{len(header.absent)} of the shards that {index} names are not here, {header.absent[0]} first.",
    )


def _preferred(names: list[str], ending: str, usual: str) -> str | None:
    """The file of the usual name, else the only one with that ending."""
    if usual in names:
        return usual
    found = [name for name in names if name.endswith(ending)]
    return found[0] if len(found) == 1 else None
