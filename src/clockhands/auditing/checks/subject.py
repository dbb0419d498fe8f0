"""What a check looks at, and what it yields."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clockhands.readers import Reading
from clockhands.sources.resolved import Code, Resolved
from clockhands.sources.targets import Opened

Case = tuple[str, dict[str, Any], str | None]


@dataclass(frozen=True)
class Subject:
    """What a check looks at.

    Attributes:
        opened: The target: its config, the documents beside it, the headers of its tensors.
        resolved: What was made of them.
        readings: What other readers make of them.
    """

    opened: Opened
    resolved: Resolved
    readings: tuple[Reading, ...] = ()


Check = Callable[[Subject], Iterator[Case]]


def declared(holder: Code | Resolved, *fields: str) -> dict[str, Any]:
    """The values of some fields under the names of their places, for those that stand in a file."""
    stated = {}
    for field in fields:
        place, value = holder.source.get(field), getattr(holder, field)
        if place and value is not None and in_a_file(place):
            stated[place] = value
    return stated


def in_a_file(place: str) -> bool:
    """Whether a source is `file:key`, and not words about an architecture or a default.

    A loaded module has its ``config`` and the ``model`` itself where others have files.

    >>> in_a_file("config.json:rope_theta"), in_a_file("architecture: llama")
    (True, False)
    """
    name, colon, key = place.partition(":")
    named = name in ("<stdin>", "config", "model") or "." in name
    return bool(colon and key) and " " not in key and named
