"""The smallest change of a file that fixes a finding, as text and as a JSON Patch (RFC 6902).

Sources name a value as `file:key.inner.key`. A rule makes its edit from such names alone; `placed` then finds the keys
in the file itself, because a key may contain a dot, and drops a patch that does not fit the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clockhands.formats.files import file_and_key

STDIN = "<stdin>"

# The most keys and dots of a path for which a patch is made; the deepest path in use has five. With dotted keys inside
# nested objects, the possible readings of a longer path could be too many to count.
_MOST_STEPS = 12


Patch = Sequence[Mapping[str, Any]]
"""Operations of JSON Patch (RFC 6902)."""


@dataclass(frozen=True)
class Edit:
    """A change of one file.

    Attributes:
        says: The change as a sentence.
        file: The file that it changes, as sources name it.
        patch: The same as operations of JSON Patch; empty if the file is not JSON.
    """

    says: str
    file: str | None = None
    patch: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON values."""
        return {"says": self.says, "file": self.file, "patch": [dict(step) for step in self.patch]}


def pointer(place: str) -> tuple[str, str]:
    """The file and the JSON pointer (RFC 6901) of a source, with every dot read as a step.

    >>> pointer("config.json:text_config.rope_scaling.factor")
    ('config.json', '/text_config/rope_scaling/factor')
    """
    file, keys = file_and_key(place)
    return file, _pointed(keys.split("."))


def removed(place: str, says: str = "") -> Edit:
    """Remove one key."""
    return _edit(place, says, {"op": "remove"})


def replaced(place: str, value: Any, says: str = "") -> Edit:
    """Replace the value of an existing key."""
    return _edit(place, says, {"op": "replace"}, value)


def added(place: str, value: Any, says: str = "") -> Edit:
    """Add a key."""
    return _edit(place, says, {"op": "add"}, value)


def moved(place: str, to: str, says: str = "") -> Edit:
    """Move a value to another key of the same file, which does not exist yet."""
    return _edit(to, says, {"op": "move", "from": pointer(place)[1]})


def renamed(place: str, key: str) -> Edit:
    """Rename one key."""
    around = place[: max(place.rfind("."), place.rfind(":")) + 1]
    return moved(place, f"{around}{key}", f"Rename the key to {key}.")


def copied(place: str, to: str, says: str = "") -> Edit:
    """Copy the value of one key to another key of the same file, whether that exists or not."""
    return _edit(to, says, {"op": "copy", "from": pointer(place)[1]})


def together(says: str, *edits: Edit) -> Edit:
    """Several changes of one file as one, applied in this order."""
    files = {edit.file for edit in edits}
    whole = len(files) == 1 and all(edit.patch for edit in edits)
    patch = tuple(step for edit in edits for step in edit.patch) if whole else ()
    return Edit(says, edits[0].file if edits else None, patch)


def placed(edit: Edit | None, documents: Mapping[str, Any]) -> Edit | None:
    """Fit the pointers of an edit to the keys that the file has, including keys with dots.

    The patch is dropped, and the sentence is kept, if it does not fit: the file was not read, a key is missing, a value
    would be moved over another one, or the dots can be read in two ways.

    Args:
        edit: The edit, or None.
        documents: The parsed files, by the name that sources give them.
    """
    if edit is None or not edit.patch:
        return edit
    document = documents.get(edit.file or "")
    steps: list[dict[str, Any]] = []
    for step in edit.patch:
        # A step may use what an earlier one created: it is fitted to the file as the earlier steps leave it.
        try:
            document = document if not steps else applied(steps[-1], document)
        except (KeyError, IndexError):  # an earlier step removed the object that this one adds to
            return replace(edit, patch=())
        fitted = None if document is None else _fitted(step, document)
        if fitted is None:
            return replace(edit, patch=())
        steps.append(fitted)
    return replace(edit, patch=tuple(steps))


def _fitted(step: Mapping[str, Any], document: Any) -> dict[str, Any] | None:
    fitted = dict(step)
    for name in ("from", "path"):
        if name not in step:
            continue
        keys = keys_of(step[name])
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
    if step["op"] == "move" and fitted["path"].startswith(f"{fitted['from']}/"):
        return None  # a value cannot be moved into itself
    return fitted


def applied(step: Mapping[str, Any], document: Any) -> Any:
    """A document after one fitted step; objects on the path are copied, the rest is shared."""
    value = step.get("value")
    if "from" in step:
        origin = keys_of(step["from"])
        value = _at(document, origin[:-1])[origin[-1]]
        if step["op"] == "move":
            document = _changed(document, origin, None, remove=True)
    return _changed(document, keys_of(step["path"]), value, remove=step["op"] == "remove")


def all_applied(patch: Patch, document: Any) -> Any:
    """A document after the fitted steps of a patch."""
    for step in patch:
        document = applied(step, document)
    return document


def _changed(here: Any, keys: Sequence[str], value: Any, *, remove: bool) -> Any:
    if isinstance(here, list):
        place = int(keys[0])
        return [*here[:place], _changed(here[place], keys[1:], value, remove=remove), *here[place + 1 :]]
    if len(keys) == 1:
        others = {key: held for key, held in here.items() if key != keys[0]}
        return others if remove else {**here, keys[0]: value}
    return {**here, keys[0]: _changed(here[keys[0]], keys[1:], value, remove=remove)}


def keys_of(pointer: str) -> list[str]:
    """The keys that a JSON pointer (RFC 6901) leads through."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def _found(parts: Sequence[str], document: Any) -> list[str] | None:
    """The keys of a document that match these parts, some joined by dots; None unless there is exactly one match."""
    if len(parts) > _MOST_STEPS:
        return None
    ways = _paths_in_document(tuple(parts), document)
    return ways[0] if len(ways) == 1 else None


def _paths_in_document(parts: tuple[str, ...], here: Any) -> list[list[str]]:
    """At most two matches: a second one is enough to know that the match is not unique."""
    if not parts:
        return [[]]
    if isinstance(here, list):
        inner = parts[0].isdecimal() and int(parts[0]) < len(here)
        return [[parts[0], *rest] for rest in _paths_in_document(parts[1:], here[int(parts[0])])] if inner else []
    ways: list[list[str]] = []
    for count in range(1, len(parts) + 1 if isinstance(here, dict) else 0):
        key = ".".join(parts[:count])
        if key in here and len(ways) < 2:
            ways += [[key, *rest] for rest in _paths_in_document(parts[count:], here[key])]
    return ways[:2]


def _at(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document if isinstance(document, dict) else {}


def _edit(place: str, says: str, step: Mapping[str, Any], *value: Any) -> Edit:
    file, path = pointer(place)
    if not file.endswith(".json") and file != STDIN:
        return Edit(says, file)
    return Edit(says, file, ({**step, "path": path, **({"value": value[0]} if value else {})},))


def _pointed(keys: Sequence[str]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def disputed(one: Patch, other: Patch) -> str | None:
    """The pointer of a key to which two patches give different values; None if they do not contradict each other."""
    first, second = ({step["path"]: step for step in patch} for patch in (one, other))
    return next((path for path in sorted(first.keys() & second.keys()) if first[path] != second[path]), None)
