"""Opens a file (a config, weights with the config that belongs to them, an array) or the folder of a model."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clockhands import formats
from clockhands.configs.composition import composed
from clockhands.configs.dialects import as_program_reads, in_dialect
from clockhands.configs.kept_models import NOTE, open_kept
from clockhands.configs.model_code import code_beside
from clockhands.configs.model_types import table
from clockhands.configs.opened import READ, Opened
from clockhands.encodings.scores import ScoreScale
from clockhands.encodings.specs import WRITTEN, from_dict
from clockhands.errors import Unreadable
from clockhands.formats import arrays, documents, files
from clockhands.formats.documents import CONFIGS, Document
from clockhands.formats.shards import WeightsHeader
from clockhands.phrases import shown

# The key by which `clockhands.to_json` marks a spec.
_SPECS = frozenset(kind.__name__ for kind in WRITTEN)

# Documents beside a config in releases that also have lengths or rotation settings.
BESIDE = ("params.json", "generation_config.json", "tokenizer_config.json")

# What PEFT writes beside an adapter's weights, with the name of the model that it is for.
_ADAPTER = "adapter_config.json"

# The usual names of weights in PyTorch's own format. Other names may hold the state of an optimizer.
CHECKPOINTS = ("pytorch_model.bin", "model.bin", "model.pt", "model.pth", "consolidated.00.pth")


def open_file(path: Path, target: str, tensor: str | None) -> Opened:
    """Open a file by its kind; with ``tensor``, open one tensor of it as an array.

    Raises:
        Unreadable: It is damaged, or of a kind that is not supported.
        InvalidValue, InvalidType: It is the JSON of a spec, with invalid values.
    """
    kind = files.kind(path)
    if tensor is not None and kind not in files.CONTAINERS:
        raise Unreadable(
            f"{path} holds no tensors to pick {shown(tensor)} from.",
            "Tensors are picked from .npz, .safetensors, .onnx, .gguf, .bin and .pt files.",
        )
    if kind == "npz" and not path.name.lower().endswith(".npz") and formats.checkpoints.is_checkpoint(path):
        kind = "checkpoint"
    if kind in ("npy", "npz"):
        return _open_array(path, target, kind, tensor)
    if kind == "json":
        document = documents.read(path)
        kind_of_spec = document.fields.get("type")
        # The type in a config that is not a spec may be any value, also an unhashable one.
        if "model_type" not in document.fields and isinstance(kind_of_spec, str) and kind_of_spec in _SPECS:
            spec = from_dict(document.fields)
            if isinstance(spec, ScoreScale):
                raise Unreadable(
                    f"{path} is the spec of a scale of attention scores, which is no position encoding.",
                    "Give a model, or the spec of an encoding; clockhands.scores.score_scale computes a scale.",
                )
            return Opened(target, "preset", path, spec=spec)
        return open_document(document, target, path, path.name)
    if kind == "yaml":
        return open_document(formats.yaml_documents.read(path), target, path, path.name)
    opener = _OPENERS.get(kind or "")
    if opener is not None:
        opened = opener(path, target)
        return opened if tensor is None else _picked(opened, tensor)
    raise _unsupported(path, kind)


def open_document(document: Document, target: str, path: Path | None, name: str) -> Opened:
    """Open a parsed config, in the dialect that its keys belong to; ``name`` is its name in sources."""
    file = None if path is None else path / name if files.place(path) == "folder" else path
    made = composed(as_program_reads(document.fields, document.exponents), file, name)
    config, notes = made.fields, tuple(made.notes)
    opened = Opened(
        target, "config", path, config, name, notes=notes, duplicates=document.duplicates, overridden=made.places
    )
    found = in_dialect(config, name)
    if found is None:
        code = None if file is None else code_beside(file.parent, config)
        return opened if code is None else replace(opened, code=code, notes=(*notes, *code.notes))
    notes = (f"{name} is read as a config of {found.dialect.name}.", *notes, *found.notes)
    key, length = found.dialect.length(config, opened.config_name or "")
    place = key and f"{opened.config_name}:{key}"
    return replace(opened, form="dialect", notes=notes, length=length, length_place=place)


def _unsupported(path: Path, kind: str | None) -> Unreadable:
    if kind == "pointer":
        return Unreadable(f"{path} is a Git LFS pointer, not the file itself.", "Run `git lfs pull` in its folder.")
    seems = files.seems(files.head(path))
    return Unreadable(f"{path} is not a kind of file that clockhands reads: {seems}.", f"Name {READ}.")


def _open_array(path: Path, target: str, kind: str, name: str | None) -> Opened:
    if kind == "npy":
        if name is not None:
            raise Unreadable(
                f"{path} holds one array without a name, not {shown(name)}.", f"Name the file only: {path}."
            )
        info = arrays.npy_header(path)
    else:
        names = arrays.npz_names(path)
        beside = any(files.place(path.with_name(config)) for config in ("config.json", "params.json"))
        if name is None and len(names) > 1 and beside:  # weights of a model
            opened = Opened(target, "npz", path, tensors=arrays.npz_headers(path, names))
            return _with_config(opened, path.with_name("config.json"))
        if name is None and len(names) != 1:
            hint = f"Pick one as {path}:NAME. " + arrays.listed("It holds", names)
            raise Unreadable(f"{path} holds {len(names)} arrays, but one is needed.", hint)
        info = arrays.npz_header(path, next(iter(names)) if name is None else name)
    return Opened(target, "array", path, None, path.name, {info.name: info})


def _picked(opened: Opened, name: str) -> Opened:
    """One tensor of a file, as an array."""
    info = opened.tensor(name)
    return Opened(opened.target, "array", opened.path, None, info.declared_in.name, {name: info})


def open_gguf(path: Path, target: str) -> Opened:
    """Open a GGUF file, or the part of a split one that declares the model.

    Raises:
        Unreadable: It cannot be read, or is another part.
    """
    return opened_gguf(formats.gguf.read_header(path), target)


def opened_gguf(header: "formats.gguf.Header", target: str) -> Opened:
    """Open the header of a GGUF file as a target.

    Raises:
        Unreadable: It is of a part that does not declare the model.
    """
    path = header.path
    notes = []
    parts, number = header.fields.get("split.count"), header.fields.get("split.no")
    if isinstance(parts, int) and isinstance(number, int) and parts > 1:
        if number > 0 and "general.architecture" not in header.fields:
            raise Unreadable(
                f"{path} is part {number + 1} of {parts}, but the model's settings are in part 1.",
                "Name the part whose name has 00001.",
            )
        notes.append(f"{path.name} is part {number + 1} of {parts}; tensors of the other parts are not examined.")
    if header.byte_order == "big":
        notes.append(f"{path.name} is in big-endian byte order.")
    name = header.fields.get("general.architecture")
    own = table()["gguf"]["of_ollama"].get(name) if isinstance(name, str) else None
    added = {} if own is None else {f"{name}.{key}": value for key, value in own.get("adds", {}).items()}
    added = {key: value for key, value in added.items() if key not in header.fields}
    if own is not None:
        notes.append(f"{name} is a name of Ollama's: the file is read as {own['as']}, as Ollama's loader reads it.")
    fields, places = {**header.fields, **added}, dict.fromkeys(added, "added by Ollama's loader")
    return Opened(target, "gguf", path, fields, path.name, header.tensors, notes=tuple(notes), overridden=places)


def _open_weights(
    path: Path, target: str, form: str, read: Callable[[Path], WeightsHeader], where: Path | None = None
) -> Opened:
    """Open weights, with the config in the folder ``where``, else in that of the weights."""
    header = read(path)
    if list(header.tensors) == [path.name] and form == "pytorch":  # a tensor saved on its own
        return Opened(target, "array", path, None, path.name, header.tensors)
    if NOTE in header.metadata:
        return open_kept(header, target)
    notes: tuple[str, ...] = ()
    if form == "onnx":
        notes = tuple(f"{name}, which holds tensors of {path.name}, is not there." for name in header.absent[:8])
    opened = Opened(target, form, path, tensors=header.tensors, notes=notes, added=header.added, layouts=header.layouts)
    return _with_config(opened, (where or path.parent) / "config.json")


def _open_onnx(path: Path, target: str) -> Opened:
    # Libraries for browsers store the models of a repository in a folder `onnx`, and the config above it.
    above = path.parent.absolute().name == "onnx" and files.place(path.parent / "config.json") is None
    return _open_weights(path, target, "onnx", formats.onnx.read_header, path.absolute().parents[1] if above else None)


def _with_config(opened: Opened, config: Path) -> Opened:
    """Tensors with the config.json that belongs to them, if there is one: tensors alone say little about positions."""
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
        notes=(*opened.notes, f"{config} in the same folder is read too."),
    )


_OPENERS: Mapping[str, Callable[[Path, str], Opened]] = {
    "gguf": open_gguf,
    "safetensors": lambda path, target: _open_weights(path, target, "safetensors", formats.safetensors.read_header),
    "index": lambda path, target: _open_weights(path, target, "safetensors", formats.safetensors.read_index),
    "checkpoint": lambda path, target: _open_weights(path, target, "pytorch", formats.checkpoints.read_header),
    "checkpoint-index": lambda path, target: _open_weights(path, target, "pytorch", formats.checkpoints.read_index),
    "onnx": _open_onnx,
}


def open_folder(folder: Path, target: str, *, weights: bool = True) -> Opened:
    """Open a model folder: its config with its safetensors files, or the only model file in it.

    Args:
        folder: The folder.
        target: As the caller wrote it.
        weights: Whether the headers of weights beside a config are read.

    Raises:
        Unreadable: The folder cannot be listed, holds no model or several, or its config or weights cannot be read.
    """
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise Unreadable(
            f"{folder} cannot be listed: {error.strerror}.", "Get permission to read the folder."
        ) from None
    config = next((name for name in CONFIGS if name in names), None)
    header, notes = WeightsHeader(folder, {}), ()
    if weights or config is None:
        header, notes = _folder_tensors(folder, names, config is not None)
    if config is not None:
        read = formats.yaml_documents.read if files.kind(folder / config) == "yaml" else documents.read
        opened = open_document(read(folder / config, found=True), target, folder, config)
        beside, unread = _documents_beside(folder, [name for name in names if name != config])
        notes += unread
        return replace(
            opened, tensors=header.tensors, notes=opened.notes + notes, beside=beside, layouts=header.layouts
        )
    if header.tensors:
        form = "safetensors" if any(name.endswith(".safetensors") for name in names) else "pytorch"
        return Opened(target, form, folder, tensors=header.tensors, notes=notes, layouts=header.layouts)
    if _ADAPTER in names:
        return open_file(folder / _ADAPTER, target, None)
    models, first = gguf_models(names)
    if len(first) == 1:
        return open_gguf(folder / first[0], target)
    if models:
        raise Unreadable(
            f"{folder} has {len(models)} .gguf files and no config.json.",
            "Name one of them. " + arrays.listed("There are", tuple(first or models)),
        )
    raise Unreadable(f"{folder} has no config.json.", _folder_hint(folder, names))


def gguf_models(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The GGUF files among some names, and of those the ones that declare a model.

    Of a split file that is the first part; the projector of a vision model (``mmproj``) only counts if it is alone.
    """
    models = [name for name in names if name.lower().endswith(".gguf")]
    first = [name for name in models if not re.search(r"-\d{5}-of-\d{5}\.gguf$", name.lower()) or "-00001-of-" in name]
    return models, [name for name in first if "mmproj" not in name.lower()] or first


def _documents_beside(folder: Path, names: list[str]) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The documents beside a config, and notes: a damaged one does not make the model unreadable."""
    beside, notes = {}, []
    for name in BESIDE:
        if name not in names:
            continue
        try:
            document = documents.read(folder / name, found=True)
        except Unreadable as error:
            notes.append(f"{name} is not examined: {error.message}")
            continue
        beside[name] = document.fields
        notes += [
            f"{name} gives {shown(key)} more than once; the last value is used." for key in document.duplicates[:8]
        ]
    return beside, tuple(notes)


def _folder_hint(folder: Path, names: list[str]) -> str:
    inner = tuple(name for name in names if (folder / name / "config.json").is_file())
    if inner:
        named = "Name one of its folders. " + arrays.listed("With a config.json there are", inner)
        return f"{named} `clockhands audit -r {shlex.quote(str(folder))}` audits them all." if inner[1:] else named
    if "snapshots" in names:
        return "It is a folder of the Hugging Face cache: name the model as org/name, or one of its snapshots."
    configs = tuple(name for name in names if name.lower().endswith((".yaml", ".yml")))
    return f"Name one of its files. {arrays.listed('There are', configs)}" if configs else f"Name {READ}."


def _folder_tensors(folder: Path, names: list[str], has_config: bool) -> tuple[WeightsHeader, tuple[str, ...]]:
    """The headers of the weights in a model folder, and notes on what was left out.

    With a config, missing weights are only a note: the config alone can be audited.
    """
    index = preferred(names, ".safetensors.index.json", "model.safetensors.index.json")
    if index:
        return _present(formats.safetensors.read_index(folder / index, allow_absent=has_config))
    file = preferred(names, ".safetensors", "model.safetensors")
    if file and has_config and files.is_pointer(folder / file):
        return WeightsHeader(folder, {}), (f"{file} is a Git LFS pointer; its tensors are not here.",)
    if file:
        return formats.safetensors.read_header(folder / file), ()
    several = [name for name in names if name.endswith(".safetensors")]
    if not several:
        return _checkpoint_tensors(folder, names, has_config)
    if not has_config:
        raise Unreadable(
            f"{folder} has {len(several)} .safetensors files and neither an index nor a config.json.",
            "Name one of them. " + arrays.listed("There are", tuple(several)),
        )
    return WeightsHeader(folder, {}), (
        f"{len(several)} .safetensors files without an index are not examined; name one of them.",
    )


def _checkpoint_tensors(folder: Path, names: list[str], has_config: bool) -> tuple[WeightsHeader, tuple[str, ...]]:
    """The headers of a folder with weights in PyTorch's format; unreadable files are also notes."""
    index = preferred(names, ".bin.index.json", "pytorch_model.bin.index.json")
    file = index or next((name for name in CHECKPOINTS if name in names), None)
    if file is None:
        return WeightsHeader(folder, {}), ()
    if has_config and files.is_pointer(folder / file):
        return WeightsHeader(folder, {}), (f"{file} is a Git LFS pointer; its tensors are not here.",)
    parts = [name for name in names if re.fullmatch(r"consolidated\.\d\d\.pth", name)]
    slices = (f"{file} is one of {len(parts)} files that each hold a slice of every matrix; no other is read.",)
    try:
        if not index:
            return formats.checkpoints.read_header(folder / file), slices if file in parts and len(parts) > 1 else ()
        header = formats.checkpoints.read_index(folder / index, allow_absent=has_config)
    except Unreadable as error:
        if has_config:
            return WeightsHeader(folder, {}), (f"The tensors of {file} are not examined: {error.message}",)
        raise
    return _present(header)


def _present(header: WeightsHeader) -> tuple[WeightsHeader, tuple[str, ...]]:
    """The header of the shards that are present, and a note on the others."""
    count = len(header.absent)
    notes = [
        f"{count} of the shards that {header.path.name} names are not here, {name} first." for name in header.absent
    ]
    return header, tuple(notes[:1])


def preferred(names: Sequence[str], ending: str, usual: str) -> str | None:
    """The file with the usual name, else the only one with that ending."""
    if usual in names:
        return usual
    found = [name for name in names if name.endswith(ending)]
    return found[0] if len(found) == 1 else None
