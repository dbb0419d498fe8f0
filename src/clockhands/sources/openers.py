"""Open one file: a config, weights with the config that belongs to them, an array."""

from dataclasses import replace
from pathlib import Path

from clockhands.arguments import shown
from clockhands.errors import Unreadable
from clockhands.sources import arrays, checkpoints, documents, files, gguf, onnx, safetensors
from clockhands.sources.opened import READ, Opened


def open_file(path: Path, target: str, tensor: str | None) -> Opened:
    """Open a file by its kind; with ``tensor``, one tensor of it as an array by itself.

    Raises:
        Unreadable: It cannot be read as what it is, or is of no kind that is read here.
    """
    kind = files.kind(path)
    if tensor is not None and kind not in files.CONTAINERS:
        raise Unreadable(
            f"{path} holds no tensors to pick {shown(tensor)} from.",
            "Tensors are picked from .npz, .safetensors, .onnx, .gguf, .bin and .pt files.",
        )
    if kind == "npz" and not path.name.lower().endswith(".npz") and checkpoints.is_checkpoint(path):
        kind = "checkpoint"
    if kind in ("npy", "npz"):
        return _open_array(path, target, kind, tensor)
    if kind == "json":
        document = documents.read(path)
        return Opened(target, "config", path, document.fields, path.name, duplicates=document.duplicates)
    if kind in _OPENERS:
        opened = _OPENERS[kind](path, target)
        return opened if tensor is None else _picked(opened, tensor)
    raise _unsupported(path, kind)


def _unsupported(path: Path, kind: str | None) -> Unreadable:
    if kind == "pointer":
        return Unreadable(
            f"{path} is a Git LFS pointer, not the file it stands for.", "Run `git lfs pull` in its folder."
        )
    told = files.seems(files.head(path)) if files.head(path) else "it is empty"
    return Unreadable(f"{path} is no kind of file that is read here: {told}.", f"Name {READ}.")


def _open_array(path: Path, target: str, kind: str, name: str | None) -> Opened:
    if kind == "npy":
        if name is not None:
            raise Unreadable(f"{path} holds one array without a name, not {shown(name)}.", f"Name {path} alone.")
        info = arrays.npy_header(path)
    else:
        names = arrays.npz_names(path)
        beside = any(files.place(path.with_name(config)) for config in ("config.json", "params.json"))
        if name is None and len(names) > 1 and beside:  # weights of a model
            opened = Opened(target, "npz", path, tensors=arrays.npz_headers(path, names))
            return _with_config(opened, path.with_name("config.json"))
        if name is None and len(names) != 1:
            hint = f"Pick one as {path}:NAME. " + arrays.listed("It holds", names)
            raise Unreadable(f"{path} holds {len(names)} arrays, where one is needed.", hint)
        info = arrays.npz_header(path, next(iter(names)) if name is None else name)
    return Opened(target, "array", path, None, path.name, {info.name: info})


def _picked(opened: Opened, name: str) -> Opened:
    """One tensor of a file, as an array by itself."""
    info = opened.tensor(name)
    return Opened(opened.target, "array", opened.path, None, info.declared_in.name, {name: info})


def open_gguf(path: Path, target: str) -> Opened:
    """Open a GGUF file, or the part of a split one that declares the model.

    Raises:
        Unreadable: It cannot be read, or is another part.
    """
    header = gguf.read_header(path)
    notes = []
    parts, number = header.fields.get("split.count"), header.fields.get("split.no")
    if isinstance(parts, int) and isinstance(number, int) and parts > 1:
        if number > 0 and "general.architecture" not in header.fields:
            raise Unreadable(
                f"{path} is part {number + 1} of {parts}; what the model declares is in part 1.",
                "Name the part whose name has 00001.",
            )
        notes.append(f"{path.name} is part {number + 1} of {parts}; tensors of the other parts are not looked at.")
    if header.byte_order == "big":
        notes.append(f"{path.name} is in big-endian byte order.")
    return Opened(target, "gguf", path, header.fields, path.name, header.tensors, notes=tuple(notes))


def _open_safetensors(path: Path, target: str) -> Opened:
    tensors = safetensors.read_header(path).tensors
    return _with_config(Opened(target, "safetensors", path, tensors=tensors), path.parent / "config.json")


def _open_index(path: Path, target: str) -> Opened:
    tensors = safetensors.read_index(path).tensors
    return _with_config(Opened(target, "safetensors", path, tensors=tensors), path.parent / "config.json")


def _open_checkpoint(path: Path, target: str) -> Opened:
    tensors = checkpoints.read_header(path).tensors
    if list(tensors) == [path.name]:  # a tensor saved by itself
        return Opened(target, "array", path, None, path.name, tensors)
    return _with_config(Opened(target, "pytorch", path, tensors=tensors), path.parent / "config.json")


def _open_checkpoint_index(path: Path, target: str) -> Opened:
    tensors = checkpoints.read_index(path).tensors
    return _with_config(Opened(target, "pytorch", path, tensors=tensors), path.parent / "config.json")


def _open_onnx(path: Path, target: str) -> Opened:
    header = onnx.read_header(path)
    notes = tuple(f"{name}, which holds tensors of {path.name}, is not there." for name in header.absent[:8])
    opened = Opened(target, "onnx", path, tensors=header.tensors, notes=notes, added=header.added)
    beside = path.parent / "config.json"
    # Libraries for browsers keep the models of a repository in a folder `onnx`, and the config above it.
    above = path.parent.absolute().name == "onnx" and files.place(beside) is None
    return _with_config(opened, path.absolute().parents[1] / "config.json" if above else beside)


def _with_config(opened: Opened, config: Path) -> Opened:
    """Tensors with the config.json that belongs to them, if there is one: alone they say little about positions."""
    if files.place(config) is None:
        config = config.with_name("params.json")  # as Mistral and Meta publish their own weights
    if files.place(config) is None:
        return opened
    document = documents.read(config, found=True)
    return replace(
        opened,
        config=document.fields,
        config_name=config.name,
        duplicates=document.duplicates,
        notes=(*opened.notes, f"{config} beside it is read too."),
    )


_OPENERS = {
    "gguf": open_gguf,
    "safetensors": _open_safetensors,
    "index": _open_index,
    "checkpoint": _open_checkpoint,
    "checkpoint-index": _open_checkpoint_index,
    "onnx": _open_onnx,
}
