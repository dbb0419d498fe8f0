"""Fixes: the edits of findings, made in the text of a JSON file. Every character outside of an edit stays as it is.

A fix is made from JSON Patch operations (RFC 6902) that `clockhands.auditing._edits.placed` has fitted to the file. The
text is read by Python's own JSON parser, value by value, so that the parser and the fix agree on where a value ends.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from clockhands.auditing._edits import Edit, keys_of
from clockhands.auditing.findings import Finding
from clockhands.errors import InvalidValue
from clockhands.sources import files

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # not str.splitlines, which parts lines at characters that are text here


class _Member(NamedTuple):
    """A key of an object, or an item of a list, in a text."""

    key: str
    start: int  # of the key; of the value in a list
    value: int
    end: int


@dataclass(frozen=True)
class Fix:
    """A file before and after the fixes of its findings.

    Attributes:
        path: The file.
        before: Its text.
        after: Its text with the fixes.
        fixed: The findings that were fixed.
        refused: Findings with an edit that was not made, each with the reason.
    """

    path: Path
    before: str
    after: str
    fixed: tuple[Finding, ...]
    refused: tuple[tuple[Finding, str], ...] = field(default=())

    @property
    def contradictions(self) -> tuple[str, ...]:
        """What is said of fixes that ask for different values under one key."""
        return tuple(dict.fromkeys(why for _, why in self.refused if "contradicts" in why))

    def diff(self, name: str | None = None) -> str:
        """The fix as a unified diff, which ``patch`` and ``git apply`` take; empty where nothing changes."""
        return unified(self.before, self.after, str(self.path) if name is None else name)


def fix_of(path: Path, findings: Iterable[Finding]) -> Fix:
    """The fixes of a JSON file, one after the other.

    Two findings may ask for the same change, which is made once. Where two ask for different values under one key,
    none of both is made.

    Raises:
        Unreadable: The file cannot be read.
        UnicodeDecodeError: It is not UTF-8.
    """
    with files.open_regular(path) as file:
        before = file.read().decode("utf-8")
    offered = [finding for finding in findings if finding.edit is not None and finding.edit.file == path.name]
    refused = [(each, "The edit is in words only.") for each in offered if not each.edit or not each.edit.patch]
    offered = [each for each in offered if each.edit is not None and each.edit.patch]
    after, fixed, made = before, [], []
    for finding in offered:
        edit = finding.edit
        assert edit is not None
        if edit.patch in made:
            fixed.append(finding)
            continue
        others = [each.code for each in offered if each.edit is not None and _disagree(each.edit, edit)]
        if others:
            refused.append((finding, f"It contradicts the fix of {others[0]}."))
            continue
        try:
            after = patched(after, edit.patch)
        except InvalidValue as error:  # an earlier fix has changed what this one starts from
            refused.append((finding, error.message))
            continue
        made.append(edit.patch)
        fixed.append(finding)
    return Fix(path, before, after, tuple(fixed), tuple(refused))


def _disagree(one: Edit, other: Edit) -> bool:
    """Whether two edits leave different values under one key."""
    ends = [{step["path"]: step for step in edit.patch} for edit in (one, other)]
    return any(ends[0][path] != ends[1][path] for path in ends[0].keys() & ends[1].keys())


def patched(text: str, patch: Iterable[Mapping[str, Any]]) -> str:
    r"""A JSON text with operations of JSON Patch; everything else stays, character for character.

    >>> print(patched('{\n  "rope_theta": 1e4,\n  "type": "x"\n}', [{"op": "remove", "path": "/type"}]))
    {
      "rope_theta": 1e4
    }

    Raises:
        InvalidValue: A key that an operation starts from is not there.
    """
    for step in patch:
        keys = keys_of(step["path"])
        if step["op"] in ("move", "copy"):
            source = keys_of(step["from"])
            held = _member(text, source)
            if held is None:
                raise InvalidValue(f"The file has no key {step['from']}.", "Read the file again.")
            value = text[held.value : held.end]
            if step["op"] == "move":
                text = _without(text, source)
            text = _with(text, keys, value)
        elif step["op"] == "remove":
            text = _without(text, keys)
        else:
            text = _with(text, keys, json.dumps(step["value"], ensure_ascii=False), step["value"])
    return text


def unified(before: str, after: str, name: str) -> str:
    """The difference of two texts as a unified diff of one file."""
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), f"a/{name}", f"b/{name}", n=1)
    # A last line without an end says so, as `diff` does; else two lines would run together.
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _members(text: str, start: int) -> Iterator[_Member]:
    """What is in the object or list that begins at ``start``."""
    closing = {"{": "}", "[": "]"}.get(text[start : start + 1])
    at = _blank(text, start + 1)
    index = 0
    while closing is not None and text[at] != closing:
        key, value = str(index), at
        if closing == "}":
            key, end = json.decoder.scanstring(text, at + 1, False)  # type: ignore[attr-defined]
            value = _blank(text, _blank(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield _Member(key, at, value, end)
        index += 1
        at = _blank(text, end)
        if text[at] == ",":
            at = _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _start(text: str) -> int:
    return _blank(text, text.startswith("\ufeff"))


def _member(text: str, keys: list[str]) -> _Member | None:
    start, found = _start(text), None
    for key in keys:
        # Of a key that is there twice, parsers take the last.
        found = next((each for each in reversed(list(_members(text, start))) if each.key == key), None)
        if found is None:
            return None
        start = found.value
    return found


def _object(text: str, keys: list[str]) -> int:
    """Where the object begins that these keys lead to."""
    if not keys:
        return _start(text)
    found = _member(text, keys)
    if found is None:
        raise InvalidValue(f"The file has no key {'.'.join(keys)}.", "Read the file again.")
    return found.value


def _without(text: str, keys: list[str]) -> str:
    while True:  # every one of a key that is there twice: an earlier one would come to the surface
        inside = list(_members(text, _object(text, keys[:-1])))
        where = next((number for number, each in enumerate(inside) if each.key == keys[-1]), None)
        if where is None:
            return text
        if where + 1 < len(inside):
            text = text[: inside[where].start] + text[inside[where + 1].start :]
        elif where:
            text = text[: inside[where - 1].end] + text[inside[where].end :]
        else:
            start = _object(text, keys[:-1])
            text = text[: start + 1] + text[_blank(text, inside[where].end) :]


def _with(text: str, keys: list[str], written: str, value: Any = None) -> str:
    held = _member(text, keys)
    if held is not None:
        return text[: held.value] + written + text[held.end :]
    start = _object(text, keys[:-1])
    inside = list(_members(text, start))
    if inside:
        before = inside[-2].end if len(inside) > 1 else start
        # What is between the last two keys: a line's end and the margin.
        margin = text[text.index("," if len(inside) > 1 else "{", before) + 1 : inside[-1].start]
        at = inside[-1].end
    else:
        margin, at = "", start + 1
    if "\n" in margin and isinstance(value, dict | list):
        step = margin.rpartition("\n")[2]
        outer = step[: len(step) // max(len(keys), 1)] if step else "  "
        written = json.dumps(value, ensure_ascii=False, indent=outer).replace("\n", f"\n{step}")
    return f"{text[:at]}{',' if inside else ''}{margin}{json.dumps(keys[-1], ensure_ascii=False)}: {written}{text[at:]}"
