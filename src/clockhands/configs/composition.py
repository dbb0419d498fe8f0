"""Configs that are composed: of the files that they extend, and of references to other values.

Files are looked for in the folder of the config and below it only. What cannot be read here stays as it is written,
under its key, so that a reader of the config sees that values are not known: `unread_parents`, `is_reference`.

Source: https://omegaconf.readthedocs.io/en/2.3_branch/usage.html#variable-interpolation (``${a.b}``, ``${.b}``),
https://hydra.cc/docs/advanced/defaults_list/ (``defaults``, ``_self_``), https://mmengine.readthedocs.io (``_base_``),
AMD-AGI/Primus fd1eeabb, ``primus/core/config/yaml_loader.py`` (``extends``: later files win, the file itself last).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clockhands import formats
from clockhands.errors import Unreadable
from clockhands.formats import documents, files

_EXTENDING = ("extends", "_base_", "base", "defaults")
_HYDRA = "defaults"
_SELF = "_self_"
_ENDINGS = (".yaml", ".yml", ".json")
_MOST_FILES = 64

# OmegaConf's marker for a value that must be set on the command line.
_UNSET = "???"
_REFERENCE = re.compile(r"\$\{(\.*)([\w.-]+(?:\[[\w-]+\][\w.-]*)*)\}")
_LONGEST_CHAIN = 8  # of references


@dataclass
class ComposedConfig:
    """A config with the values of the files that it extends.

    Attributes:
        fields: The values, references resolved.
        places: The source of each value from another file, by its full key.
        notes: Which files were read, and which were not.
    """

    fields: dict[str, Any]
    places: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def composed(config: Mapping[str, Any], path: Path | None, name: str) -> ComposedConfig:
    """A config with the values of the files that it extends, and with its references resolved.

    Args:
        config: The config.
        path: Its file; None for standard input.
        name: What the file is called in notes.

    Raises:
        Unreadable: It extends more files than any config.
    """
    made = ComposedConfig({})
    parents = _ParentFiles(None if path is None else path.parent, made, name)
    own = parents.extended(config, () if path is None else (path,))
    for key in _kept(own, config) if made.places else ():
        made.places.pop(key, None)
    made.fields = _with_references(own)
    unread = unread_parents(made.fields)
    if unread:
        after = {each.name for each in _parents(_HYDRA, config.get(_HYDRA)) if each.after}
        unknown = f"what {name} leaves out is not known"
        if after & {*unread}:
            unknown += f", nor whether they replace what {name} sets"
        made.notes.append(f"{name} takes values from {', '.join(unread)}, not read here: {unknown}.")
    return made


def unread_parents(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a config takes values from and that were not read."""
    return tuple(dict.fromkeys(each.name for key in _EXTENDING for each in _parents(key, config.get(key))))


def is_reference(value: Any) -> bool:
    """Whether a value stands for another one that is not known here."""
    return isinstance(value, str) and ("${" in value or value == _UNSET)


@dataclass(frozen=True)
class _Parent:
    """A file that is extended.

    Attributes:
        name: Its name.
        inside: The object of the config that its values belong to, "" for the config.
        after: Whether its values replace those of the file that names it.
    """

    name: str
    inside: str = ""
    after: bool = False


def _parents(key: str, held: Any) -> Iterator[_Parent]:
    """The files that the value of a key names."""
    after = False
    for item in held if isinstance(held, list) else [held] if key != _HYDRA else []:
        if item == _SELF:
            after = key == _HYDRA
        elif isinstance(item, str) and (key in (_HYDRA, "extends") or item.endswith(_ENDINGS)):
            yield _Parent(item, after=after)
        elif isinstance(item, Mapping) and key == _HYDRA:
            # Hydra's own groups, and those that only replace an earlier choice, hold no values of a model.
            own = {group: option for group, option in item.items() if not str(group).startswith(("override", "hydra"))}
            chosen = {str(group): each for group, each in own.items() if isinstance(each, str)}
            yield from (_Parent(f"{group}/{each}", group, after) for group, each in chosen.items())


@dataclass
class _ParentFiles:
    """Merges the files below a folder that a config extends."""

    folder: Path | None
    into: ComposedConfig
    name: str
    named: int = 0

    def extended(self, config: Mapping[str, Any], chain: tuple[Path, ...]) -> dict[str, Any]:
        """A config with the values of its parents below its own; ``chain`` are the files that led here."""
        own = {key: value for key, value in config.items() if not any(_parents(key, value)) or key not in _EXTENDING}
        if len(own) == len(config):
            return own
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for key in _EXTENDING:
            unread = []
            for parent in _parents(key, config.get(key)):
                values = self.parent(parent, chain)
                if values is None:
                    unread.append(parent.name)
                else:
                    left = unread_parents(values)
                    unread += left
                    rest = {name: value for name, value in values.items() if not left or name not in _EXTENDING}
                    rest = {parent.inside: rest} if parent.inside else rest
                    if parent.after:
                        after = _merged(after, rest)
                    else:
                        before = _merged(before, rest)
            if unread:
                own["extends"] = list(dict.fromkeys([*own.get("extends", []), *unread]))
        return _merged(_merged(before, own), after)

    def parent(self, parent: _Parent, chain: tuple[Path, ...]) -> dict[str, Any] | None:
        """The values of a file that is extended; None if it is not below the folder, or is no config."""
        self.named += 1
        if self.named > _MOST_FILES:
            raise Unreadable(
                f"{self.name} takes values from more than {_MOST_FILES} files.", "Check that this is the file you mean."
            )
        found = self.file(parent.name, chain)
        if found is None or found in chain:
            return None
        try:
            read = documents.read if found.suffix == ".json" else formats.yaml_documents.read
            document = read(found, found=True)
        except Unreadable as error:
            self.into.notes.append(f"{parent.name} is not read: {error.message}")
            return None
        self.into.notes.append(f"Values of {parent.name}, which the file takes its values from, are read too.")
        values = self.extended(document.fields, (*chain, found))
        inside = f"{parent.inside}." if parent.inside else ""
        for key in _kept(values, document.fields):
            self.into.places[f"{inside}{key}"] = f"{parent.name}:{key}"
        return values

    def file(self, name: str, chain: tuple[Path, ...]) -> Path | None:
        """The file with a name beside the file that names it, if it is really in the folder of the config."""
        if self.folder is None or "\0" in name or len(name) > 4096:
            return None
        top = os.path.realpath(self.folder)
        for ending in ("", ".yaml", ".yml"):
            real = Path(os.path.realpath(chain[-1].parent / f"{name}{ending}"))
            if real.is_relative_to(top) and files.place(real) == "file":
                return real
        return None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two objects as one; where both have a value, that of the second, and objects key by key."""
    made = dict(below)
    for key, value in above.items():
        held = made.get(key)
        made[key] = _merged(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    return made


def _at(config: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a place of a config, None if there is none."""
    value: Any = config
    for key in path:
        if isinstance(value, list):
            value = value[int(key)] if re.fullmatch(r"\d{1,6}", key) and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _kept(values: Mapping[str, Any], config: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The full keys of a config whose values are still the same in values that were merged from it and others."""
    for key, value in config.items():
        held = values.get(key)
        if held is value:
            yield f"{path}{key}"
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            yield from _kept(held, value, f"{path}{key}.")


def _with_references(config: dict[str, Any]) -> dict[str, Any]:
    """A config whose references to values of the same file are replaced by these values."""

    def resolved(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {key: resolved(each, (*path, str(key))) for key, each in value.items()}
        if isinstance(value, list):
            return [resolved(each, path) for each in value]
        return _referred(config, path, value) if is_reference(value) else value

    return resolved(config, ())


def _referred(config: Mapping[str, Any], path: tuple[str, ...], written: str) -> Any:
    """The value that a reference leads to, or the text of the reference."""
    value: Any = written
    for _ in range(_LONGEST_CHAIN):
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            break
        path = (*(path[: -len(found[1])] if found[1] else ()), *found[2].replace("[", ".").replace("]", "").split("."))
        value = _at(config, path)
    # An object or a list may hold references too, and one file that refers to its parts many times would grow.
    return written if value is None or is_reference(value) or isinstance(value, Mapping | list) else value
