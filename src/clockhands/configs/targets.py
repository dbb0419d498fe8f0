"""Opens a target: anything that a user may name on the command line, from a preset to a model folder.

Tried in this order: ``-`` (a config on standard input), an existing path, a preset's exact name, a model in the local
Hugging Face cache, the same on the hub, a callable. ``preset:NAME`` and ``file:PATH`` select one of these;
``ollama:NAME`` and ``lmstudio:NAME`` are models of these programs, and ``STORE:ARM:SEED`` is one that the lab kept.
The network is used only for ``org/name[@revision]``, with the extra ``hub`` and unless ``HF_HUB_OFFLINE`` is set. Of a
tensor file only the header is read.
"""

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import IO

from clockhands import formats
from clockhands.configs.base_models import on_base, open_modelfile
from clockhands.configs.callables import IN_FILE, NAMED
from clockhands.configs.kept_headers import with_kept
from clockhands.configs.kept_models import kept_path
from clockhands.configs.local_models import PREFIXES, local_path, open_local
from clockhands.configs.opened import READ, Opened
from clockhands.configs.openers import open_document, open_file, open_folder
from clockhands.errors import InvalidType, InvalidValue, Unreadable
from clockhands.formats import documents, files
from clockhands.formats.hub_cache import HubName, cached_model, hub_folder, hub_name
from clockhands.formats.transfers import why_not
from clockhands.phrases import did_you_mean, shown

# An address on the hub, with a model and possibly a revision in it, or any other address.
_ADDRESS = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:/(?:tree|blob|resolve|raw)/(?P<revision>[\w.-]+)(?:[/?#].*)?|[/?#].*)?"
    r"|[a-z][a-z0-9+.-]*://.*",
    re.ASCII | re.IGNORECASE,
)


def open_target(text: str | os.PathLike[str], stdin: IO[bytes] | IO[str] | None = None) -> Opened:
    """Open what ``text`` names; a path object is always a path. ``stdin`` replaces standard input for ``-``.

    Raises:
        InvalidType: ``text`` is neither a string nor a path.
        InvalidValue: A preset's fields are impossible.
        Unreadable: Nothing has that name, or it cannot be read.
    """
    if isinstance(text, os.PathLike):
        return _open_path(Path(text), os.fspath(text), None)
    if not isinstance(text, str):
        raise InvalidType(f"A target must be a string or a path, got {shown(text)}.", f"Name a preset, {READ}.")
    if not text.strip() or "\0" in text or len(text) > 4096:
        raise Unreadable(f"{shown(text)} does not name a model, a file or a preset.", f"Name a preset, {READ}.")
    if text == "-":
        document = formats.yaml_documents.read_stream(stdin or documents.standard_input(), "<stdin>")
        return on_base(open_document(document, text, None, "<stdin>"))
    if text.startswith("preset:"):
        return _open_preset(text.removeprefix("preset:"), text)
    if text.startswith(PREFIXES):
        return open_local(text)
    if text.startswith("file:"):
        return _open_file_reading(text.removeprefix("file:"), text)
    if (kept := kept_path(text)) is not None:
        return open_file(kept, text, None)
    return _first_reading(text)


def path_of(text: str) -> Path | None:
    """The file or folder that ``text`` names; None for a preset, standard input and what does not exist.

    >>> path_of("vaswani2017"), path_of("-")
    (None, None)
    """
    if text == "-" or text.startswith("preset:") or not text.strip() or "\0" in text:
        return None
    if text.startswith(PREFIXES):
        return local_path(text)
    if (kept := kept_path(text)) is not None:
        return kept
    found = _path_and_tensor(text.removeprefix("file:"))
    asked = hub_name(text)
    return found[0] if found else None if asked is None else _cached(asked, beside=True)


def is_function(text: str) -> bool:
    """Whether ``text`` names a function: ``file.py:callable``, or what can only be ``package.module:callable``."""
    if IN_FILE.fullmatch(text):
        return True
    if not NAMED.fullmatch(text) or _known_ending(text.partition(":")[0]) or text.startswith(PREFIXES):
        return False
    return _path_and_tensor(text) is None and not is_preset(text)


def _first_reading(text: str) -> Opened:
    """The first interpretation of ``text`` that fits, with a note for each later one that would fit too."""
    if (own := IN_FILE.fullmatch(text)) and Path(own["file"]).is_file():
        raise Unreadable(
            f"{own['file']} is code, and an audit runs no code.",
            f"`clockhands check {text}` tests the laws of an encoding of your own, `clockhands properties {text}` and "
            f"`clockhands explore {text}` sample it.",
        )
    readings = []
    found = _path_and_tensor(text)
    if found:
        readings.append((f"file:{text}", lambda: _open_path(found[0], text, found[1])))
    if is_preset(text):
        readings.append((f"preset:{text}", lambda: _open_preset(text, text)))
    asked = hub_name(text)
    cached = None if asked is None else _cached(asked, beside=bool(readings))
    if asked is not None and cached is not None:
        readings.append((str(cached), lambda: with_kept(asked, _open_path(cached, text, None))))
    if not readings and asked is not None and not _known_ending(asked.name):
        return _fetched(asked, text)
    if not readings:
        raise _nothing(text)
    opened = readings[0][1]()
    first = "a path" if found else "a preset"
    later = tuple(f"{text} is read as {first}; {name} fits too." for name, _ in readings[1:])
    if cached and len(readings) == 1:
        later = (f"{text} is read from the local Hugging Face cache: {cached}.",)
    return replace(opened, notes=later + opened.notes)


def _cached(asked: HubName, beside: bool) -> Path | None:
    """Like ``cached_model``; a missing model is not an error if another interpretation fits, or the hub has it."""
    try:
        return cached_model(asked)
    except Unreadable:
        if beside or why_not() is None:
            return None
        raise


def _fetched(asked: HubName, target: str) -> Opened:
    """The model on the hub."""
    hindered = why_not()
    if hindered is not None:
        why, way_out = hindered
        raise Unreadable(
            f"{asked} is neither a path here nor a model in the local Hugging Face cache ({hub_folder()}), {why}.",
            f"Check the spelling; to fetch its config and headers, {way_out}; or download it: `{asked.download}`.",
        )
    # Imported here: most targets are files, and fetching also imports the parser of GGUF keys.
    from clockhands.configs.hub import fetched

    return fetched(asked, target)


def _nothing(text: str) -> Unreadable:
    """The error for a text that names nothing, by what it looks like."""
    if len(text) > 200:
        return Unreadable(f"{shown(text)} does not name a model, a file or a preset.", f"Name a preset, {READ}.")
    address = _ADDRESS.fullmatch(text)
    if address is not None:
        name, revision = address["name"], address["revision"]
        called = f"{name}@{revision}" if name and revision else name or "org/name[@revision]"
        return Unreadable(
            f"{text} is a web address, and models are audited by their name.",
            f"Give {called} for a model of the hub; download anything else, and name the file.",
        )
    if (name := hub_name(text.partition("@")[0])) is not None and re.fullmatch(r"[^@]*@(:.*)?", text):
        return Unreadable(f"{text} has no revision after the @.", f"Give {name}, or {name}@REVISION.")
    before = text.partition(":")[0]
    if NAMED.fullmatch(text) and not _known_ending(before):
        return Unreadable(
            f"{text} is neither a path nor a preset with fields, and functions cannot be audited.",
            f"`clockhands identify {text} --width N` looks at functions; else name a preset, {READ}.",
        )
    path = Path(_before_tensor(text))
    if files.link_target(path) or any(mark in text for mark in "/\\") or _known_ending(str(path)):
        return files.missing(path)
    return _unknown_preset(before, f"{text} is neither a path nor a preset.")


def _known_ending(text: str) -> bool:
    return text.lower().endswith(tuple(files.KINDS))


def _before_tensor(text: str) -> str:
    """``file`` if the text looks like ``file:tensor``, else all of it."""
    for at in _colons(text):
        if _known_ending(text[:at]):
            return text[:at]
    return text


def _colons(text: str) -> list[int]:
    """The colons at which ``text`` may be split into a file and a tensor: all except that of a Windows drive."""
    drive = re.match(r"[A-Za-z]:[\\/]", text)
    return [at for at, mark in enumerate(text) if mark == ":" and not (drive and at == 1)]


def _path_and_tensor(text: str) -> tuple[Path, str | None] | None:
    """The existing path that ``text`` names, and the tensor behind a colon."""
    if files.place(Path(text)):
        return Path(text), None
    for at in _colons(text):
        path, tensor = Path(text[:at]), text[at + 1 :]
        if tensor and files.place(path) == "file" and (not is_preset(text) or files.kind(path) in files.CONTAINERS):
            return path, tensor
    return None


def _open_file_reading(text: str, target: str) -> Opened:
    found = _path_and_tensor(text)
    if not found:
        raise files.missing(Path(_before_tensor(text)))
    return _open_path(found[0], target, found[1])


def _open_path(path: Path, target: str, tensor: str | None) -> Opened:
    if files.place(path) == "folder":
        return on_base(open_folder(path, target))
    if tensor is None and files.kind(path) == "modelfile":
        return open_modelfile(path, target)
    return on_base(open_file(path, target, tensor))


def _preset_names() -> tuple[str, ...]:
    # Imported here: most targets are files, and presets import all specs.
    from clockhands.encodings.presets import names

    return names()


def is_preset(text: str) -> bool:
    """Whether ``text`` is a preset's exact name, with or without fields."""
    name = text.partition(":")[0]
    if any(mark in name for mark in "/\\") or _known_ending(name):
        return False
    return name in _preset_names()


def _open_preset(text: str, target: str) -> Opened:
    name, colon, fields = text.partition(":")
    if name not in _preset_names():
        raise _unknown_preset(name, f"There is no preset {shown(name)}.", "")
    from clockhands.encodings.presets import preset

    return Opened(target, "preset", spec=preset(name, **(given_fields(fields, text) if colon else {})))


def _unknown_preset(name: str, message: str, otherwise: str = f"; else name {READ}") -> Unreadable:
    question = did_you_mean(name, _preset_names())
    return Unreadable(message, f"{question} `clockhands presets` lists all{otherwise}.".lstrip())


def given_fields(text: str, target: str) -> dict[str, object]:
    """The fields of ``preset:field=value,…`` by name; a comma that no ``field=`` follows belongs to a value.

    Raises:
        InvalidValue: A part is no field, or a field is given twice.
    """
    fields: dict[str, object] = {}
    for part in re.split(r",(?=\s*[A-Za-z_]\w*\s*=)", text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InvalidValue(
                f"{target} has {shown(part)}, but a field is expected there.",
                "Write fields as PRESET:field=value,field=value.",
            )
        if name in fields:
            raise InvalidValue(f"{target} gives the field {name} twice.", "Give each field once.")
        fields[name] = _field_value(value.strip())
    return fields


def _field_value(text: str) -> object:
    """The value of a field: a number, a JSON list or constant, if it reads as one, else the text itself."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        # 1e3 is a short form of a whole number; 512.0 is a real number on purpose.
        return int(value) if "." not in text and math.isfinite(value) and value == int(value) else value
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value
