"""Opens files that name another model and change it: training files of axolotl and TRL, and Ollama's Modelfile.

The named model is opened if it is on this machine (below the folder of the file, in the Hugging Face cache or in
Ollama's store), and the changes are applied to its config as with ``--set``; sources then name the file with the
change. If the model is not on this machine, a training file is read for the settings that it contains itself.

Source: https://docs.axolotl.ai/docs/config-reference.html (``base_model``, ``overrides_of_model_config``),
https://huggingface.co/docs/trl/sft_trainer (``model_name_or_path``, ``model_init_kwargs``, ``max_length``),
https://github.com/ollama/ollama/blob/main/docs/modelfile.md (instructions), and its ``docs/faq.md`` (where models are).
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clockhands.configs.dialects import dialect_of, in_dialect, whole_length
from clockhands.configs.local_models import local_path, ollama_folders, open_local
from clockhands.configs.opened import Opened
from clockhands.configs.openers import open_file, open_folder
from clockhands.configs.overriding import overridden
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.formats import documents, files
from clockhands.formats.hub_cache import cached_model, hub_name
from clockhands.phrases import shown

# Modelfiles contain prompts too: the largest seen has 60 kB.
_LARGEST = 2**20

_QUOTED = re.compile(r'"""(.*?)"""', re.DOTALL)


def on_base(opened: Opened) -> Opened:
    """The model that a training file names, with the changes of the file; other targets are returned unchanged.

    Raises:
        Unreadable: The model is not on this machine or cannot be read, and the file itself has no position settings.
    """
    dialect = dialect_of(opened.config or {}) if opened.form == "dialect" else None
    key, name, changes = ("", None, {}) if dialect is None else dialect.of_base(opened.config or {})
    if not isinstance(name, str) or not name:
        return opened
    try:
        base = _model(name, opened.path)
        reason = f"The base model {shown(name)[1:-1]} is not on this machine, and was not read."
    except ClockhandsError as error:
        base, reason = None, f"The base model {shown(name)[1:-1]} was not read: {error.message}"
    if base is None:
        found = in_dialect(opened.config or {}, opened.config_name or "")
        if found is None or not found.known.rows:
            raise Unreadable(
                f"{opened.config_name} says nothing about positions but by the model that it names. {reason}",
                f"Download the model, or write its folder under {key}.",
            )
        return _noted(opened, reason)
    changed = _changed(base, changes, f"{opened.config_name}:")
    where = base.path if base.path is not None else base.target
    notes = (*opened.notes, f"The base model {shown(name)[1:-1]} is read from {where}.", *base.notes)
    # Without a path, a fix of the training file is not written into a model that others use.
    length = {"length": opened.length, "length_place": opened.length_place}
    return replace(changed, target=opened.target, path=None, notes=notes, **length)


def open_modelfile(path: Path, target: str) -> Opened:
    """Open the model that a Modelfile is built from, with its parameters.

    Raises:
        Unreadable: It is not a Modelfile, names no model, or the model is not on this machine or cannot be read.
    """
    text = documents.decoded(documents.bytes_of(path, _LARGEST), str(path), "Modelfile")
    said = [line.split(maxsplit=1) for line in _QUOTED.sub('""', text).splitlines()]
    told = [(words[0].upper(), words[1].strip()) for words in said if len(words) == 2]
    froms = [name.strip("\"'") for word, name in told if word == "FROM"]
    if not froms:
        raise Unreadable(f"{path} has no FROM, so it names no model.", "A Modelfile begins with FROM and a model.")
    held = [what.split(maxsplit=1) for word, what in told if word == "PARAMETER"]
    parameters = {words[0].lower(): words[1].strip("\"'") for words in held if len(words) == 2}
    stored = f"ollama:{froms[0]}"
    base = _model(froms[0], path, ollama_folders()) or (None if local_path(stored) is None else open_local(stored))
    if base is None:
        raise Unreadable(
            f"{path} is built from {shown(froms[0])[1:-1]}, which is not on this machine.",
            "Pull the model first, or name its GGUF file: FROM ./model.gguf.",
        )
    changed = base
    for name, changes in _parameters(parameters, base.form == "gguf").items():
        for key, value in changes.items():
            changed = overridden(changed, {key: value})
            renamed = {full: f"{path.name}:{name}" if place == f"--set:{key}" else place
                       for full, place in changed.overridden.items()}  # fmt: skip
            changed = replace(changed, overridden=renamed)
    where = base.path if base.path is not None else base.target
    notes = (f"{path.name} is built from {froms[0]}, which is read from {where}.", *base.notes)
    place, served = f"{path.name}:num_ctx", parameters.get("num_ctx")
    length = {} if served is None else {"length": whole_length(served, place), "length_place": place}
    return replace(changed, target=target, path=None, notes=notes, **length)


def _model(name: str, beside: Path | None, stores: Iterable[Path] = ()) -> Opened | None:
    """The model with a name: a folder or weights below the folder of the naming file, or in the cache.

    A file from elsewhere must not choose what else is read of this machine: a path that leads out of its folder, by
    itself or by links, is refused, unless it leads into one of the ``stores``.
    """
    text = os.path.expanduser(name)
    if "\0" in text or len(text) > 4096:
        return None
    if beside is not None:
        path = beside.parent / text
        real = Path(os.path.realpath(path))  # `Path.resolve` raises on a loop of links
        if not any(real.is_relative_to(os.path.realpath(folder)) for folder in (beside.parent, *stores)):
            raise Unreadable(
                f"{shown(name)[1:-1]} is not in the folder of {beside.name}, and only what is there is read.",
                f"Put {beside.name} into a folder that holds the model, or audit the model by its own name.",
            )
        if files.place(path) == "folder":
            return open_folder(path, name)
        if files.place(path) == "file" and files.kind(path) in ("gguf", "safetensors"):
            return open_file(path, name, None)
    asked = hub_name(name)
    cached = None if asked is None else cached_model(asked)
    return None if cached is None else open_folder(cached, name)


def _changed(base: Opened, changes: Mapping[str, Any], file: str) -> Opened:
    """A model with the position changes of a training file, which may change other keys too."""
    for place, value in changes.items():
        holder, _, key = place.rpartition(".")
        try:
            base = overridden(base, {key: value}, f"{file}{holder}." if holder else file)
        except InvalidValue:
            continue
    return base


def _parameters(parameters: Mapping[str, str], gguf: bool) -> dict[str, dict[str, Any]]:
    """The parameters of older versions of Ollama and their values, by parameter and by key of the model."""
    base, scale = (_number(parameters.get(f"rope_frequency_{name}")) for name in ("base", "scale"))
    changes: dict[str, dict[str, Any]] = {}
    if base:
        changes["rope_frequency_base"] = {"rope.freq_base" if gguf else "rope_theta": base}
    if scale and scale != 1:
        factor = 1 / scale
        keys = {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
        changes["rope_frequency_scale"] = keys if gguf else {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    return changes


def _number(text: str | None) -> float | None:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return float(value) if type(value) in (int, float) and 0 < value < 1e300 else None


def _noted(opened: Opened, note: str) -> Opened:
    return replace(opened, notes=(*opened.notes, note))
