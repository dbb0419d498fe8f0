"""Applies the edits of findings to the text of a JSON file; every other character stays as it is.

A fix consists of JSON Patch operations (RFC 6902) that `clockhands.auditing._edits.placed` has fitted to the file. The
text is read by Python's own JSON parser, value by value, so that the parser and the fix agree on where a value ends.
Fixes are applied one after the other. After each, the model is audited again with the changed file, in a folder of
links to its other files, because an edit may no longer be right after an earlier one. A fix that causes a new problem
is applied only together with the fix of that problem: a value that the file has in two formats is set in both.
"""

import difflib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from clockhands.auditing._audits import Audit
from clockhands.auditing._edits import Edit, Patch, all_applied, disputed, keys_of
from clockhands.auditing.findings import Finding
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.targets import open_target
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.formats import files

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # not str.splitlines, which splits at characters that are text here


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
        left: The audit of the model after the fixes.
        made: The findings whose edits were applied, in this order.
    """

    path: Path
    before: str
    after: str
    left: Audit
    made: tuple[Finding, ...] = ()

    def diff(self) -> str:
        """The fix as a unified diff for ``patch -p1`` and ``git apply``; empty if nothing changes."""
        try:
            name = self.path.absolute().relative_to(Path.cwd())
        except (ValueError, OSError):
            name = Path(*self.path.absolute().parts[1:])
        return unified(self.before, self.after, name.as_posix())


def codes_with_fix(found: Audit, finding: Finding) -> tuple[LayerEncoding, ...]:
    """The position codes of a model after the fix of one finding; empty if the fix does not change the config.

    Args:
        found: The audit of the model.
        finding: One of its findings.
    """
    if found.path is None or finding.edit is None or not finding.patch:
        return ()
    opened = open_target(found.path)
    if opened.config is None or finding.edit.file != opened.config_name:
        return ()
    return resolve(replace(opened, config=all_applied(finding.patch, opened.config)), found.asked).codes


def fix_of(found: Audit, name: str, again: Callable[[Path], Audit]) -> Fix:
    """The fixes of one JSON file of an audited model.

    Args:
        found: The audit.
        name: The file, as sources name it.
        again: Audits a file or folder with the same options.

    Raises:
        InvalidValue: Two findings ask for different values under one key, or the file has changed.
        Unreadable: The file cannot be read.
        UnicodeDecodeError: It is not UTF-8.
    """
    assert found.path is not None
    path = file_of(found.path, name)
    before = _text_of(path)
    target = found.path

    def audited(text: str) -> Audit:
        return _audited_with(target, path, text, again)

    # What was found is of the text that was audited, and a file may have been changed since.
    then, now = ([(each.edit, each.message) for each in _offered(one, name)] for one in (found, audited(before)))
    if now != then:
        raise InvalidValue(f"{path} has changed since it was audited.", "Run the command again.")
    settled = _yielding(found, name, before, audited)
    text, left, made, refused = before, found, (), []
    while True:
        tried = [*settled, *refused, *(each.edit for each in made)]
        finding = next((each for each in _offered(left, name) if each.edit not in tried), None)
        if finding is None:
            return Fix(path, before, text, left, made)
        step = _step(text, left, finding, name, audited)
        if step is None:
            refused.append(finding.edit)
        else:
            text, left, together = step
            made, refused = (*made, *together), []  # what was refused may be right after this one


_MOST_TOGETHER = 4


def _step(
    text: str, left: Audit, finding: Finding, name: str, audited: Callable[[str], Audit]
) -> tuple[str, Audit, tuple[Finding, ...]] | None:
    """The text after the fix of a finding and of what that brings about, its audit, the findings; None if it is wrong.

    It is wrong if a new problem is left, if the finding is still there, or if a later fix undoes an earlier one.
    """
    known, changed, after, together = {each.code for each in left.problems}, text, left, ()
    following: Finding | None = finding
    while following is not None and following.edit is not None and len(together) < _MOST_TOGETHER:
        try:
            changed = patched(changed, following.patch)
        except InvalidValue:  # an earlier fix removed what this one starts from
            return None
        if any(_undoes(following.patch, each.patch) for each in together):
            return None
        after, together = audited(changed), (*together, following)
        new = [each for each in after.problems if each.code not in known]
        if not new:
            gone = all(each.edit != finding.edit for each in after.problems)
            return (changed, after, together) if gone and changed != text else None
        following = next((each for each in _offered(after, name) if each in new and each not in together), None)
    return None


def _undoes(later: Patch, earlier: Patch) -> bool:
    """Whether an edit changes what an earlier one wrote; to correct a value that was only moved does not undo it."""
    return any(
        f"{one['path']}/".startswith(f"{other['path']}/") or f"{other['path']}/".startswith(f"{one['path']}/")
        for one, other in itertools.product(later, earlier)
        if "value" not in one or "value" in other
    )


def _value(text: str, pointer: str) -> Any:
    """The value that a text has at a pointer; None if it has none."""
    held = _member(text, keys_of(pointer))
    return None if held is None else json.loads(text[held.value : held.end])


def file_of(path: Path, name: str) -> Path:
    """The path of a file that a finding names, in an audited file or folder."""
    if path.name == name:
        return path
    return path / name if path.is_dir() else path.with_name(name)


def _text_of(path: Path) -> str:
    with files.open_regular(path) as file:
        return file.read().decode("utf-8")


def _offered(found: Audit, name: str) -> list[Finding]:
    return [each for each in found.problems if each.patch and each.edit is not None and each.edit.file == name]


def _yielding(found: Audit, name: str, text: str, audited: Callable[[str], Audit]) -> list[Edit | None]:
    """Of any two edits that set one key to different values the one after which the other is still needed.

    A number that is written as text gives way to the number of the release, since that is no text either.

    Raises:
        InvalidValue: Neither makes the other unnecessary, or each does.
    """
    yielding: list[Edit | None] = []
    for one, other in itertools.combinations(_offered(found, name), 2):
        pointer = disputed(one.patch, other.patch)
        if pointer is None:
            continue
        enough: list[tuple[int, Edit | None]] = []  # the problems left for a person, the edit that is not needed
        values = []
        for each, yields in ((one, other.edit), (other, one.edit)):
            step = _step(text, found, each, name, audited)
            left = [] if step is None else _offered(step[1], name)
            sets = any(change["path"] == pointer for one in left for change in one.patch)
            if step is not None and not sets:
                values.append(_value(step[0], pointer))
                enough.append((len(step[1].problems) - len(left), yields))
        if not enough or values[0] != values[-1]:
            raise InvalidValue(
                f"{found.path}: the fixes of {one.code} and {other.code} set {keys_of(pointer)[-1]} to different"
                " values.",
                "Make the right change by hand.",
            )
        yielding.append(min(enough, key=lambda each: each[0])[1])
    return yielding


def _audited_with(target: Path, path: Path, text: str, again: Callable[[Path], Audit]) -> Audit:
    """The audit of a target with one of its files replaced by another text."""
    from tempfile import TemporaryDirectory  # imported for fixes only: a report takes one line of an edit from here

    with TemporaryDirectory(prefix="clockhands-") as folder:
        here = Path(folder)
        for each in itertools.islice(path.parent.iterdir(), _MOST_FILES):
            if each.name != path.name and each.is_file():
                (here / each.name).symlink_to(each.resolve())
        (here / path.name).write_bytes(text.encode("utf-8"))
        return replace(again(here if target.is_dir() else here / path.name), target=str(target), path=target)


# Files beside a config that an audit may read; a folder with more files is not a model folder.
_MOST_FILES = 4096


def lines_of_edit(path: Path, edit: Edit) -> list[str]:
    """The lines of a file that one edit removes and adds, with ``-`` and ``+`` before them.

    Raises:
        InvalidValue, Unreadable, UnicodeDecodeError: The file cannot be read, or is not the one that was audited.
    """
    before = _text_of(path)
    lines = unified(before, patched(before, edit.patch), path.name).splitlines()
    return [line for line in lines[2:] if line[:1] in ("-", "+")]


# Longer lines of a file are not printed to show a change in them.
_LONGEST_LINE = 200


def changed_lines(audit: Audit, finding: Finding) -> Iterator[str]:
    """The lines of the file that the fix of a finding removes and adds, with ``-`` and ``+`` before them."""
    if audit.path is None or finding.edit is None or not finding.edit.patch or finding.edit.file is None:
        return
    try:
        lines = list(lines_of_edit(file_of(audit.path, finding.edit.file), finding.edit))
    except (ClockhandsError, OSError, ValueError):  # the file is gone or was changed meanwhile: the sentence remains
        return
    if all(len(line) <= _LONGEST_LINE for line in lines):  # a config in one line would be printed twice completely
        yield from lines


def patched(text: str, patch: Patch) -> str:
    r"""A JSON text after operations of JSON Patch; everything else stays, character for character.

    >>> print(patched('{\n  "rope_theta": 1e4,\n  "type": "x"\n}', [{"op": "remove", "path": "/type"}]))
    {
      "rope_theta": 1e4
    }

    Raises:
        InvalidValue: A key that an operation starts from is missing.
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
    names = (_name_in_diff(f"{side}/{name}") for side in "ab")
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), *names, n=1)
    # A last line without a newline is marked, as in `diff`; otherwise two lines would be joined.
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _name_in_diff(name: str) -> str:
    r"""The name of a file as ``patch`` and ``git apply`` read it.

    A name is quoted as Git does where it could end its line, and a patch with it name another file.

    >>> _name_in_diff("a/config.json"), _name_in_diff("a/c\nd")
    ('a/config.json', '"a/c\\012d"')
    """
    if name.isprintable():
        return name + ("\t" if " " in name else "")  # without it, ``patch`` ends a name at its first blank
    kept = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(name))
    return f'"{"".join(kept)}"'


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object or list that begins at ``start``."""
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
        # If a key occurs twice, parsers use the last one.
        found = next((each for each in reversed(list(_members(text, start))) if each.key == key), None)
        if found is None:
            return None
        start = found.value
    return found


def _object(text: str, keys: list[str]) -> int:
    """Where the object begins to which these keys lead."""
    if not keys:
        return _start(text)
    found = _member(text, keys)
    if found is None:
        raise InvalidValue(f"The file has no key {'.'.join(keys)}.", "Read the file again.")
    return found.value


def _without(text: str, keys: list[str]) -> str:
    while True:  # every occurrence of a duplicate key: otherwise an earlier one would become effective
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
        # What is between the last two keys: a line break and the indentation.
        margin = text[text.index("," if len(inside) > 1 else "{", before) + 1 : inside[-1].start]
        at = inside[-1].end
    else:
        margin, at = "", start + 1
    if "\n" in margin and isinstance(value, dict | list):
        step = margin.rpartition("\n")[2]
        line = "\r\n" if "\r\n" in margin else "\n"
        outer = step[: len(step) // max(len(keys), 1)] if step else "  "
        written = json.dumps(value, ensure_ascii=False, indent=outer).replace("\n", f"{line}{step}")
    return f"{text[:at]}{',' if inside else ''}{margin}{json.dumps(keys[-1], ensure_ascii=False)}: {written}{text[at:]}"
