"""Finds the line of a key in a JSON or YAML text, for editors and code reviews."""

import re
from functools import lru_cache
from pathlib import Path

from clockhands.errors import ClockhandsError
from clockhands.sources import files
from clockhands.sources.yaml_documents import key_lines

# Configs are smaller; for a larger file no line is given.
MOST = 1 << 22

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def line_of(text: str, place: str) -> int | None:
    r"""The line, from 1, of the key that ``place`` names, with dots between the keys; None if there is none.

    >>> line_of('{\n "rope_scaling": {\n  "factor": 4}}', "rope_scaling.factor")
    3
    """
    path: list[str] = []  # the key that led into each object; "" for a list
    key, last, start = "", "", 0
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == ":":
            key = last
            if ".".join([*filter(None, path), key]) == place:
                return text.count("\n", 0, start) + 1
        elif word in "{[":
            path.append(key)
            key = ""
        elif word in "}]":
            if path:
                path.pop()
            key = ""
        elif word == ",":
            key = ""
        elif word.startswith('"'):
            last, start = word[1:-1], token.start()
    return None


def line_in(path: Path, place: str) -> int | None:
    """The line of a key in a file; None if the file is not text, too large, or lacks the key."""
    try:
        seen = path.stat()
        text = _text(path, seen.st_mtime_ns, seen.st_size)
    except (ClockhandsError, OSError, ValueError):
        return None
    if text is None:
        return None
    return key_lines(text).get(place) if path.suffix.lower() in (".yaml", ".yml") else line_of(text, place)


@lru_cache(maxsize=1)
def _text(path: Path, _changed: int, _size: int) -> str | None:
    """The text of a file, read once for all findings on it; None if it is too large."""
    with files.open_regular(path) as file:
        held = file.read(MOST + 1)
    return held.decode("utf-8-sig") if len(held) <= MOST else None
