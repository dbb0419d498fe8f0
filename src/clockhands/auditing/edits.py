"""The smallest change of a file that mends a finding, in words and as a JSON Patch (RFC 6902).

Sources name a value as `file:key.inner.key`. A rule makes its edit from such names alone; `placed` then finds the keys
in the file itself, because a key may hold a dot of its own, and drops a patch that does not fit the file.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

STDIN = "<stdin>"


@dataclass(frozen=True)
class Edit:
    """A change of one file.

    Attributes:
        says: The change in words.
        file: The file that it changes, as sources name it.
        patch: The same as operations of JSON Patch; empty where the file is no JSON.
    """

    says: str
    file: str | None = None
    patch: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON values."""
        return {"says": self.says, "file": self.file, "patch": [dict(step) for step in self.patch]}


def pointer(place: str) -> tuple[str, str]:
    """The file and the JSON pointer (RFC 6901) of a source, every dot taken for a step.

    >>> pointer("config.json:text_config.rope_scaling.factor")
    ('config.json', '/text_config/rope_scaling/factor')
    """
    file, _, keys = place.partition(":")
    return file, _pointed(keys.split("."))


def removed(place: str, says: str) -> Edit:
    """Without one key."""
    return _edit(place, says, {"op": "remove"})


def replaced(place: str, value: Any, says: str) -> Edit:
    """With another value under a key that is there."""
    return _edit(place, says, {"op": "replace"}, value)


def added(place: str, value: Any, says: str) -> Edit:
    """With a key that is not there."""
    return _edit(place, says, {"op": "add"}, value)


def moved(place: str, to: str, says: str) -> Edit:
    """With a value under another key of the same file, where nothing stands yet."""
    return _edit(to, says, {"op": "move", "from": pointer(place)[1]})


def copied(place: str, to: str, says: str) -> Edit:
    """With the value of one key under another one of the same file too, whatever stands there."""
    return _edit(to, says, {"op": "copy", "from": pointer(place)[1]})


def together(says: str, *edits: Edit) -> Edit:
    """Several changes of one file as one, made in this order."""
    files = {edit.file for edit in edits}
    whole = len(files) == 1 and all(edit.patch for edit in edits)
    patch = tuple(step for edit in edits for step in edit.patch) if whole else ()
    return Edit(says, edits[0].file if edits else None, patch)


def placed(edit: Edit | None, documents: Mapping[str, Any]) -> Edit | None:
    """An edit whose pointers lead through the keys that the file has, dots in them and all.

    The patch is dropped, and the words stay, where it does not fit: the file is not among those that were read, a key
    is not there, a value would be moved over another one, or the dots can be read in two ways.

    Args:
        edit: The edit, or None.
        documents: The parsed files, by the name that sources give them.
    """
    if edit is None or not edit.patch:
        return edit
    # A step may use what an earlier one made: each is fitted to the file as the steps before it leave it.
    document = copy.deepcopy(documents.get(edit.file or ""))
    steps = []
    for step in edit.patch:
        fitted = None if document is None else _fitted(step, document)
        if fitted is None:
            return replace(edit, patch=())
        steps.append(fitted)
        _apply(fitted, document)
    return replace(edit, patch=tuple(steps))


def _fitted(step: Mapping[str, Any], document: Any) -> dict[str, Any] | None:
    fitted = dict(step)
    for name in ("from", "path"):
        if name not in step:
            continue
        keys = _keys(step[name])
        if name == "path" and step["op"] in ("add", "move", "copy"):
            around = _found(keys[:-1], document)
            if around is None or (step["op"] == "move" and _at(document, around).get(keys[-1]) is not None):
                return None
            found = [*around, keys[-1]]
        else:
            found = _found(keys, document)
        if found is None:
            return None
        fitted[name] = _pointed(found)
    return fitted


def _apply(step: Mapping[str, Any], document: Any) -> None:
    """Make one fitted step of a patch in an object; lists are only led through."""
    *around, key = _keys(step["path"])
    value = step.get("value")
    if "from" in step:
        *origin, name = _keys(step["from"])
        holder = _at(document, origin)
        value = holder[name] if step["op"] == "copy" else holder.pop(name)
    here = _at(document, around)
    if step["op"] == "remove":
        here.pop(key, None)
    else:
        here[key] = copy.deepcopy(value)


def _keys(pointer: str) -> list[str]:
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def _found(parts: Sequence[str], document: Any) -> list[str] | None:
    """The keys of a document that these parts, some of them joined by dots, lead through; None unless just one way."""
    ways = _ways(list(parts), document)
    return ways[0] if len(ways) == 1 else None


def _ways(parts: list[str], here: Any) -> list[list[str]]:
    if not parts:
        return [[]]
    if isinstance(here, list):
        inner = parts[0].isdecimal() and int(parts[0]) < len(here)
        return [[parts[0], *rest] for rest in _ways(parts[1:], here[int(parts[0])])] if inner else []
    if not isinstance(here, dict):
        return []
    ways = []
    for count in range(1, len(parts) + 1):
        key = ".".join(parts[:count])
        if key in here:
            ways += [[key, *rest] for rest in _ways(parts[count:], here[key])]
    return ways


def _at(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document if isinstance(document, dict) else {}


def _edit(place: str, says: str, step: Mapping[str, Any], *value: Any) -> Edit:
    file, path = pointer(place)
    if not _is_json(file):
        return Edit(says, file)
    return Edit(says, file, ({**step, "path": path, **({"value": value[0]} if value else {})},))


def _pointed(keys: Sequence[str]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def _is_json(file: str) -> bool:
    return file.endswith(".json") or file == STDIN
