"""Finds the line of a key in a JSON or YAML text, for editors and code reviews."""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from clockhands import formats
from clockhands.errors import ClockhandsError
from clockhands.formats import files

# Configs are smaller; for a larger file no line is given.
MOST = 1 << 22

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class _Place(NamedTuple):
    """Where a key is, and the keys of its object."""

    line: int
    inside: "dict[str, _Place]"


def line_of(text: str, place: str) -> int | None:
    r"""The line, from 1, of the key that ``place`` names, with dots between the keys; None if there is none.

    >>> line_of('{\n "rope_scaling": {\n  "factor": 4}}', "rope_scaling.factor")
    3
    """
    return _line(_json_keys(text), place)


@lru_cache(maxsize=2)
def _json_keys(text: str) -> dict[str, _Place]:
    """The keys of a JSON text, each with its line, as a tree: paths would repeat the keys above."""
    top: dict[str, _Place] = {}
    above: list[dict[str, _Place]] = []
    here, next_object = top, top  # an object in a list counts as the one around it
    last, start, line, counted = "", 0, 1, 0
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == ":":
            line += text.count("\n", counted, start)
            counted = start
            # Of two equal keys the first has the line, and both may hold objects.
            next_object = here.setdefault(last, _Place(line, {})).inside
        elif word in "{[":
            above.append(here)
            here = next_object
        elif word in "}]":
            here = next_object = above.pop() if above else top
        elif word == ",":
            next_object = here
        elif word.startswith('"'):
            last, start = word[1:-1], token.start()
    return top


def _line(keys: Mapping[str, _Place], place: str) -> int | None:
    """The first line of a place; a key may hold dots itself."""
    lines = [keys[place].line] if place in keys else []
    at = place.find(".")
    while at >= 0:
        found = keys.get(place[:at])
        line = None if found is None else _line(found.inside, place[at + 1 :])
        if line is not None:
            lines.append(line)
        at = place.find(".", at + 1)
    return min(lines, default=None)


def line_in(path: Path, place: str) -> int | None:
    """The line of a key in a file; None if the file is not text, too large, or lacks the key."""
    try:
        seen = path.stat()
        text = _text(path, seen.st_mtime_ns, seen.st_size)
    except (ClockhandsError, OSError, ValueError):
        return None
    if text is None:
        return None
    return (
        formats.yaml_documents.key_lines(text).get(place)
        if path.suffix.lower() in (".yaml", ".yml")
        else line_of(text, place)
    )


@lru_cache(maxsize=1)
def _text(path: Path, _changed: int, _size: int) -> str | None:
    """The text of a file, read once for all findings on it; None if it is too large."""
    with files.open_regular(path) as file:
        held = file.read(MOST + 1)
    return held.decode("utf-8-sig") if len(held) <= MOST else None
