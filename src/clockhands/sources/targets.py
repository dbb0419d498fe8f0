"""Open a target: whatever a person may name on the command line, from a preset to a model folder.

Tried in this order: ``-`` (a config on standard input), an existing path, a preset's exact name, a
model in the local Hugging Face cache, a callable. ``preset:NAME`` and ``file:PATH`` force one. The
network is never used, and of a tensor file only the header is read.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from clockhands.arguments import shown
from clockhands.errors import InvalidType, InvalidValue, Unreadable
from clockhands.sources import arrays, documents, files, gguf, onnx, safetensors
from clockhands.sources.arrays import Summary, TensorInfo
from clockhands.sources.callables import NAMED
from clockhands.sources.hub_cache import cached_model, hub_folder

_READ = "a model folder, config.json, .gguf, .safetensors (or its index), .onnx, .npy, .npz"


@dataclass(frozen=True)
class Opened:
    """A target with its headers read.

    Attributes:
        target: As the caller wrote it.
        form: "preset", "config", "gguf", "safetensors", "onnx" or "array" (a .npy, or one tensor of a file).
        path: The file or folder on disk; None for a preset and for standard input.
        config: The parsed config.json, or the keys of a GGUF file as they stand there; None if there is none.
        config_name: The file that ``source`` names: that of ``config``, "<stdin>" for standard input, or the array's.
        tensors: Every tensor by name, headers only.
        spec: The spec of a preset.
        notes: What a person should know about how the target was understood.
        duplicates: Keys that the config gives more than once; the last value counts.
        added: Tensors that the graph of an ONNX model adds, or takes rows of.
    """

    target: str
    form: str
    path: Path | None = None
    config: dict[str, Any] | None = None
    config_name: str | None = None
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    spec: object | None = None
    notes: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()

    def array(self, name: str) -> np.ndarray:
        """Read one tensor; no other is touched.

        Raises:
            Unreadable: There is no such tensor, it is quantised, or the file ends inside it.
            TooLarge: It takes more than 4 GiB.
        """
        return arrays.read(self.tensor(name))

    def summary(self, name: str) -> Summary:
        """Shape, type and non-finite rows of one tensor, which is never held whole.

        Raises:
            Unreadable: There is no such tensor, it is quantised, or the file ends inside it.
        """
        return arrays.summarise(self.tensor(name))

    def tensor(self, name: str) -> TensorInfo:
        """Where one tensor lies.

        Raises:
            Unreadable: There is no such tensor.
        """
        if name not in self.tensors:
            raise Unreadable(f"{self.target} has no tensor {shown(name)}.", _nearest(name, tuple(self.tensors)))
        return self.tensors[name]


def open_target(text: str | os.PathLike[str], stdin: IO[bytes] | IO[str] | None = None) -> Opened:
    """Open what ``text`` names; a path object is always a path. ``stdin`` replaces standard input for ``-``.

    Raises:
        InvalidType: ``text`` is neither a string nor a path.
        InvalidValue: A preset's fields are impossible.
        Unreadable: Nothing has that name, or what has it cannot be read.
    """
    if isinstance(text, os.PathLike):
        return _open_path(Path(text), os.fspath(text), None)
    if not isinstance(text, str):
        raise InvalidType(f"A target must be a string or a path, got {shown(text)}.", f"Name a preset, {_READ}.")
    if not text.strip() or "\0" in text or len(text) > 4096:
        raise Unreadable(f"{shown(text)} names nothing.", f"Name a preset, {_READ}.")
    if text == "-":
        document = documents.read_stream(stdin or documents.standard_input(), "<stdin>")
        return Opened(text, "config", None, document.fields, "<stdin>", duplicates=document.duplicates)
    if text.startswith("preset:"):
        return _open_preset(text.removeprefix("preset:"), text)
    if text.startswith("file:"):
        return _open_file_reading(text.removeprefix("file:"), text)
    return _first_reading(text)


def is_function(text: str) -> bool:
    """Whether ``text`` can only be ``package.module:callable``: no path, no preset and no model is called so."""
    if not NAMED.fullmatch(text) or _known_ending(text.partition(":")[0]):
        return False
    return _path_and_tensor(text) is None and not _is_preset(text)


def _first_reading(text: str) -> Opened:
    """The first reading of ``text`` that fits, with a note for each later one that would have."""
    readings = []
    found = _path_and_tensor(text)
    if found:
        readings.append((f"file:{text}", lambda: _open_path(found[0], text, found[1])))
    if _is_preset(text):
        readings.append((f"preset:{text}", lambda: _open_preset(text, text)))
    cached = _cached(text, beside=bool(readings))
    if cached:
        readings.append((str(cached), lambda: _open_path(cached, text, None)))
    if not readings:
        raise _nothing(text)
    opened = readings[0][1]()
    later = tuple(f"{text} is read as {_said(readings[0][0])}; {name} fits too." for name, _ in readings[1:])
    if cached and len(readings) == 1:
        later = (f"{text} is read from the local Hugging Face cache: {cached}.",)
    return _replace(opened, notes=later + opened.notes)


def _cached(text: str, beside: bool) -> Path | None:
    """``cached_model``; a broken cache is no matter where another reading comes first."""
    try:
        return cached_model(text)
    except Unreadable:
        if beside:
            return None
        raise


def _said(reading: str) -> str:
    return "a path" if reading.startswith("file:") else "a preset"


def _replace(opened: Opened, **changes: object) -> Opened:
    return Opened(**(vars(opened) | changes))  # type: ignore[arg-type]


def _nothing(text: str) -> Unreadable:
    """The error for a text that names nothing, by what it looks like."""
    if len(text) > 200:
        return Unreadable(f"{shown(text)} names nothing.", f"Name a preset, {_READ}.")
    before = text.partition(":")[0]
    if NAMED.fullmatch(text) and not _known_ending(before):
        return Unreadable(
            f"{text} is neither a path nor a preset with fields, and a function is not audited.",
            f"`clockhands identify {text} --width N` looks at functions; else name a preset, {_READ}.",
        )
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", text) and not _known_ending(text):
        return Unreadable(
            f"{text} is neither a path here nor a model in the local Hugging Face cache ({hub_folder()}).",
            "Check the spelling, or download the model first: the network is never used here.",
        )
    path = Path(_before_tensor(text))
    if files.link_target(path) or any(mark in text for mark in "/\\") or _known_ending(str(path)):
        return files.missing(path)
    return _unknown_preset(before, f"{text} is neither a path nor a preset.")


def _known_ending(text: str) -> bool:
    return text.lower().endswith(tuple(files.KINDS))


def _before_tensor(text: str) -> str:
    """``file`` of a text that looks like ``file:tensor``, else all of it."""
    for at in _colons(text):
        if _known_ending(text[:at]):
            return text[:at]
    return text


def _colons(text: str) -> list[int]:
    """Where ``text`` may be cut into a file and a tensor: at every colon but that of a Windows drive."""
    drive = re.match(r"[A-Za-z]:[\\/]", text)
    return [at for at, mark in enumerate(text) if mark == ":" and not (drive and at == 1)]


def _path_and_tensor(text: str) -> tuple[Path, str | None] | None:
    """The existing path that ``text`` names, and the tensor behind a colon."""
    if files.place(Path(text)):
        return Path(text), None
    for at in _colons(text):
        path, tensor = Path(text[:at]), text[at + 1 :]
        if tensor and files.place(path) == "file" and (not _is_preset(text) or files.kind(path) in files.CONTAINERS):
            return path, tensor
    return None


def _open_file_reading(text: str, target: str) -> Opened:
    found = _path_and_tensor(text)
    if not found:
        raise files.missing(Path(_before_tensor(text)))
    return _open_path(found[0], target, found[1])


def _open_path(path: Path, target: str, tensor: str | None) -> Opened:
    if files.place(path) == "folder":
        return _open_folder(path, target)
    kind = files.kind(path)
    if tensor is not None and kind not in files.CONTAINERS:
        raise Unreadable(
            f"{path} holds no tensors to pick {shown(tensor)} from.",
            "Tensors are picked from .npz, .safetensors, .onnx and .gguf files.",
        )
    if kind in ("npy", "npz"):
        return _open_array(path, target, kind, tensor)
    if kind == "json":
        document = documents.read(path)
        return Opened(target, "config", path, document.fields, path.name, duplicates=document.duplicates)
    if kind in ("gguf", "safetensors", "index", "onnx"):
        opened = _OPENERS[kind](path, target)
        return opened if tensor is None else _picked(opened, tensor)
    raise _unsupported(path, kind)


def _unsupported(path: Path, kind: str | None) -> Unreadable:
    if kind == "pickle":
        return Unreadable(
            f"{path} is a PyTorch or Python pickle, which can run code when loaded; it is not opened.",
            "Save the model as .safetensors, or name its config.json.",
        )
    if kind == "pointer":
        return Unreadable(
            f"{path} is a Git LFS pointer, not the file it stands for.", "Run `git lfs pull` in its folder."
        )
    told = files.seems(files.head(path)) if files.head(path) else "it is empty"
    return Unreadable(f"{path} is no kind of file that is read here: {told}.", f"Name {_READ}.")


def _open_array(path: Path, target: str, kind: str, name: str | None) -> Opened:
    if kind == "npy":
        if name is not None:
            raise Unreadable(f"{path} holds one array without a name, not {shown(name)}.", f"Name {path} alone.")
        info = arrays.npy_header(path)
    else:
        names = arrays.npz_names(path)
        if name is None and len(names) != 1:
            hint = f"Pick one as {path}:NAME. " + arrays.listed("It holds", names)
            raise Unreadable(f"{path} holds {len(names)} arrays, where one is needed.", hint)
        info = arrays.npz_header(path, names[0] if name is None else name)
    return Opened(target, "array", path, None, path.name, {info.name: info})


def _picked(opened: Opened, name: str) -> Opened:
    """One tensor of a file, as an array by itself."""
    info = opened.tensor(name)
    return Opened(opened.target, "array", opened.path, None, info.declared_in.name, {name: info})


def _open_gguf(path: Path, target: str) -> Opened:
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
        return opened
    document = documents.read(config)
    return _replace(
        opened,
        config=document.fields,
        config_name=config.name,
        duplicates=document.duplicates,
        notes=(*opened.notes, f"{config} beside it is read too."),
    )


_OPENERS = {"gguf": _open_gguf, "safetensors": _open_safetensors, "index": _open_index, "onnx": _open_onnx}


def _open_folder(folder: Path, target: str) -> Opened:
    """A model folder: its config.json with what safetensors it holds, or the only thing that is there."""
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise Unreadable(
            f"{folder} cannot be listed: {error.strerror}.", "Give yourself permission to read the folder."
        ) from None
    tensors, notes = _folder_tensors(folder, names, "config.json" in names)
    if "config.json" in names:
        document = documents.read(folder / "config.json")
        return Opened(
            target, "config", folder, document.fields, "config.json", tensors, None, notes, document.duplicates
        )
    if tensors:
        return Opened(target, "safetensors", folder, tensors=tensors, notes=notes)
    models = [name for name in names if name.lower().endswith(".gguf")]
    first = [name for name in models if not re.search(r"-\d{5}-of-\d{5}\.gguf$", name.lower()) or "-00001-of-" in name]
    if len(first) == 1:
        return _open_gguf(folder / first[0], target)
    if models:
        raise Unreadable(
            f"{folder} has no config.json and {len(models)} .gguf files.",
            "Name one of them. " + arrays.listed("There are", tuple(first or models)),
        )
    raise Unreadable(f"{folder} has no config.json.", _folder_hint(folder, names))


def _folder_hint(folder: Path, names: list[str]) -> str:
    if "params.json" in names:
        return "It has a params.json, which is not read yet: name the same model in Hugging Face format."
    inner = tuple(name for name in names if (folder / name / "config.json").is_file())
    if inner:
        return "Name one of its folders. " + arrays.listed("With a config.json there are", inner)
    if "snapshots" in names:
        return "It is a folder of the Hugging Face cache: name the model as org/name, or one of its snapshots."
    return f"Name {_READ}."


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
    if several and not has_config:
        raise Unreadable(
            f"{folder} has {len(several)} .safetensors files and neither an index nor a config.json.",
            "Name one of them. " + arrays.listed("There are", tuple(several)),
        )
    note = f"{len(several)} .safetensors files without an index are not looked at; name one of them."
    return {}, (note,) if several else ()


def _preferred(names: list[str], ending: str, usual: str) -> str | None:
    """The file of the usual name, else the only one with that ending."""
    if usual in names:
        return usual
    found = [name for name in names if name.endswith(ending)]
    return found[0] if len(found) == 1 else None


def _preset_names() -> tuple[str, ...]:
    # Imported here: most targets are files, and presets bring all specs with them.
    from clockhands.presets import names

    return names()


def _is_preset(text: str) -> bool:
    """Whether ``text`` is a preset's exact name, with or without fields."""
    name = text.partition(":")[0]
    if any(mark in name for mark in "/\\") or _known_ending(name):
        return False
    return name in _preset_names()


def _open_preset(text: str, target: str) -> Opened:
    name, colon, fields = text.partition(":")
    if name not in _preset_names():
        raise _unknown_preset(name, f"There is no preset {shown(name)}.", "")
    from clockhands.presets import preset

    return Opened(target, "preset", spec=preset(name, **(_fields(fields, text) if colon else {})))


def _unknown_preset(name: str, message: str, otherwise: str = f"; else name {_READ}") -> Unreadable:
    # Imported here: only a mistake needs it.
    import difflib

    names = _preset_names()
    near = difflib.get_close_matches(name, names, n=1)
    question = f"Did you mean {near[0]}? " if near else ""
    return Unreadable(message, f"{question}`clockhands presets` lists all{otherwise}.")


def _fields(text: str, target: str) -> dict[str, object]:
    """The fields of ``preset:field=value,…``; a comma inside a value is one that no ``field=`` follows."""
    fields: dict[str, object] = {}
    for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InvalidValue(
                f"{target} has {shown(part)} where a field is expected.",
                "Write fields as PRESET:field=value,field=value.",
            )
        if name in fields:
            raise InvalidValue(f"{target} gives the field {name} twice.", "Give each field once.")
        fields[name] = _field_value(value.strip())
    return fields


def _nearest(name: str, names: tuple[str, ...]) -> str:
    """A hint for a name that is not there: the nearest one, or some of those that are."""
    # Imported here: only a mistake needs it.
    import difflib

    # Comparing with each takes about 20 microseconds.
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.7) if len(names) <= 10_000 else []
    return f"Did you mean {shown(near[0])[1:-1]}?" if near else arrays.listed("It holds", names)


def _field_value(text: str) -> object:
    """A number if it reads as one, a JSON list or constant if it is one, else the text itself."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        # 1e3 is a short way to write a whole number; 512.0 says that it is a real one.
        return int(value) if "." not in text and math.isfinite(value) and value == int(value) else value
    # Imported here: only a preset with fields needs it.
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value
