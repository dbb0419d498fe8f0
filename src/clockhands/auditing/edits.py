"""The smallest change of a file that mends a finding, in words and as a JSON Patch (RFC 6902)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """The file and the JSON pointer (RFC 6901) of a source, whose keys are joined by dots.

    >>> pointer("config.json:text_config.rope_scaling.factor")
    ('config.json', '/text_config/rope_scaling/factor')
    """
    file, _, keys = place.partition(":")
    return file, "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys.split("."))


def removed(place: str, says: str) -> Edit:
    """Without one key."""
    file, path = pointer(place)
    return Edit(says, file, ({"op": "remove", "path": path},) if _is_json(file) else ())


def replaced(place: str, value: Any, says: str) -> Edit:
    """With another value under a key that is there."""
    file, path = pointer(place)
    return Edit(says, file, ({"op": "replace", "path": path, "value": value},) if _is_json(file) else ())


def added(place: str, value: Any, says: str) -> Edit:
    """With a key that is not there."""
    file, path = pointer(place)
    return Edit(says, file, ({"op": "add", "path": path, "value": value},) if _is_json(file) else ())


def _is_json(file: str) -> bool:
    return file.endswith(".json") or file == "<stdin>"
