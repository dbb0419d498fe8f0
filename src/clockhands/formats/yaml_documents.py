"""Reads YAML documents, as training programs write their configs, as the same plain values as JSON.

PyYAML parses the text into events (libyaml does, where it is there), and nodes and values are built here: nothing in a
file can name a Python object, an alias counts as its target, every key has its line, and what a file costs is bounded
while it is parsed. The rules are those of YAML 1.1 as in PyYAML's safe loader, except for
numbers such as ``1e6``: YAML 1.1 requires a dot and a sign of the exponent, so PyYAML reads text; the programs that
these configs are for expect a number, and it is read as one here.

Source: https://yaml.org/spec/1.1/ and https://pyyaml.org/wiki/PyYAMLDocumentation (safe loading, resolvers, nodes).
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import yaml

from clockhands.errors import Unreadable
from clockhands.formats import documents
from clockhands.formats.documents import DEEPEST, KEYS, MOST_DIGITS, PATHS, TAGS, TEXTS, TWICE, VALUES, Budget, Document

# The largest config seen has 30 kB; PyYAML needs about 5 seconds for a mebibyte where libyaml is missing.
LARGEST = 2**20

# Its composer is never used: that of libyaml ends the process where a file nests deep.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?[eE][-+]?\d{1,4}")
_MERGE = f"{_TAG}merge"
_CONSTRUCTOR = yaml.SafeLoader("")


def read(path: Path, *, found: bool = False) -> Document:
    """Read the mapping in a YAML file; ``found`` says that it was found rather than named by the user.

    Raises:
        Unreadable: The file cannot be opened, is larger than any config, or is not one YAML mapping of plain values.
    """
    return parse(documents.bytes_of(path, LARGEST, found=found), str(path))


def read_stream(stream: IO[bytes] | IO[str] | None, where: str) -> Document:
    """Read the JSON object or the YAML mapping in an open stream; JSON begins with a bracket.

    Raises:
        Unreadable: The stream is closed or fails, holds more than any config, or is neither.
    """
    data = documents.bytes_in(stream, where, documents.LARGEST)
    if data.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"", b"{", b"["):
        return documents.parse(data, where)
    if len(data) > LARGEST:
        raise documents.too_large(where, LARGEST)
    return parse(data, where)


def parse(data: bytes, where: str) -> Document:
    """Parse the bytes of a YAML mapping; ``where`` is their name in messages.

    Raises:
        Unreadable: They are empty, not UTF-8, not YAML, several documents, no mapping, nested deeper than 100 levels,
            or hold a tag, or more than any config.
    """
    budget = Budget(where)
    node = _root(documents.decoded(data, where, "YAML"), budget)
    if not isinstance(node, yaml.MappingNode):
        raise Unreadable(
            f"{where} is YAML without keys at the top level, but a config must have some.",
            "A config begins with a line such as `model:` or `hidden_size: 4096`.",
        )
    maker = _Maker(budget)
    fields = maker.mapping(node, 0)
    return Document(where, fields, tuple(maker.duplicates), maker.exponents)


@lru_cache(maxsize=2)
def key_lines(text: str) -> Mapping[str, int]:
    r"""The line, from 1, of each key of a YAML text, with dots between the keys; empty if it cannot be read.

    >>> key_lines("model:\n  rotary_base: 10000\n")["model.rotary_base"]
    2
    """
    try:
        budget = Budget("the text")
        node = _root(text, budget)
        maker = _Maker(budget, lines={})
        if isinstance(node, yaml.MappingNode):
            maker.mapping(node, 0)
    except Unreadable:
        return {}
    return maker.lines or {}


def _root(text: str, budget: Budget) -> yaml.Node:
    """The only document of a text that is not empty."""
    where = budget.where
    try:
        found = [node for node in _Composer(text, budget).documents() if not _is_empty(node)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        said = (error.problem or error.context or "it cannot be parsed").rstrip(".")
        raise Unreadable(f"{where} is not YAML: {said}{place}.", "Correct the file there.") from None
    except yaml.YAMLError:  # a character that YAML does not allow
        raise Unreadable(f"{where} is not YAML: it holds control characters.", "Check that this is a text.") from None
    if len(found) > 1:
        raise Unreadable(
            f"{where} holds {len(found)} YAML documents, parted by ---, but a config is one.",
            "Save the one that you mean in a file by itself.",
        )
    if not found:
        raise Unreadable(f"{where} is YAML without any value.", "Check that the file was written completely.")
    return found[0]


class _Composer:
    """Makes nodes of the events of a text, within a budget; PyYAML's composers have none."""

    def __init__(self, text: str, budget: Budget) -> None:
        budget.spend(TAGS, text.count("%TAG"))  # libyaml compares each with all before it
        self.loader = _LOADER(text)
        self.budget = budget
        self.anchors: dict[str, yaml.Node] = {}

    def documents(self) -> Iterator[yaml.Node]:
        """The root of each document."""
        while self.loader.check_event():
            event = self.loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                self.budget.spend(TEXTS)
                self.anchors = {}
                yield self.node(self.loader.get_event(), 0)

    def node(self, event: Any, depth: int) -> yaml.Node:
        """The node that begins with an event."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise yaml.MarkedYAMLError(problem="an alias without its target", problem_mark=event.start_mark)
            return self.anchors[event.anchor]
        if depth > DEEPEST:
            raise documents.too_deep(self.budget.where)
        if isinstance(event, yaml.ScalarEvent):
            tag = event.tag
            if tag is None or tag == "!":
                tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            made: Any = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark, event.style)
            if event.anchor is not None:
                self.anchors[event.anchor] = made
            return made
        mapping = isinstance(event, yaml.MappingStartEvent)
        kind = yaml.MappingNode if mapping else yaml.SequenceNode
        tag = f"{_TAG}{'map' if mapping else 'seq'}" if event.tag in (None, "!") else event.tag
        made = kind(tag, [], event.start_mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = made
        end = yaml.MappingEndEvent if mapping else yaml.SequenceEndEvent
        while not isinstance(event := self.loader.get_event(), end):
            self.budget.spend(KEYS if mapping else VALUES)
            item = self.node(event, depth + 1)
            made.value.append((item, self.node(self.loader.get_event(), depth + 1)) if mapping else item)
        return made


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null")


class _Path(NamedTuple):
    """The keys that lead to a value; they are joined only where the whole path is needed."""

    before: "_Path | None"
    key: str

    def joined(self, budget: Budget) -> str:
        """The keys with dots between them."""
        keys, here = [], self
        while here is not None:
            keys.append(here.key)
            here = here.before
        path = ".".join(reversed(keys))
        budget.spend(PATHS, len(path))
        return path


@dataclass
class _Maker:
    """Builds plain values from nodes.

    Attributes:
        budget: What may be built; an alias counts as often as it is used.
        lines: Path of a key to its line; None if nobody asks.
        duplicates: Keys that a mapping gives more than once.
        exponents: The text of each number that YAML 1.1 reads as a string, by path of its key.
    """

    budget: Budget
    lines: dict[str, int] | None = None
    duplicates: dict[str, None] = field(default_factory=dict)
    exponents: dict[str, str] = field(default_factory=dict)

    def mapping(self, node: yaml.MappingNode, depth: int, path: _Path | None = None) -> dict[str, Any]:
        """The keys and values of a mapping; values merged by `<<` yield to keys of the mapping itself."""
        merged: dict[str, Any] = {}
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._merge(value_node, depth + 1, path, merged)
                continue
            key = self._key(key_node)
            if key in made and key not in self.duplicates:
                self.duplicates[key] = None
                self.budget.spend(TWICE)
            here = _Path(path, key)
            if self.lines is not None:
                self.lines[here.joined(self.budget)] = key_node.start_mark.line + 1
            made[key] = self.value(value_node, depth + 1, here)
        return {**merged, **made} if merged else made

    def value(self, node: yaml.Node, depth: int, path: _Path | None) -> Any:
        """The value of a node."""
        self.budget.spend(VALUES)
        if depth > DEEPEST:  # also if an alias is inside its own target
            raise documents.too_deep(self.budget.where)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, depth, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, depth + 1, _Path(path, str(place))) for place, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind, path)
        raise self._tagged(node)

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: _Path | None) -> Any:
        if kind in ("int", "float") and len(node.value) > MOST_DIGITS:
            raise self.budget.refusal(f"a number of {len(node.value):,} characters")
        if kind == "null":
            return None
        if kind in ("int", "float", "bool"):
            try:
                return getattr(_CONSTRUCTOR, f"construct_yaml_{kind}")(node)
            except (ArithmeticError, LookupError, ValueError):  # an octal number with a nine, no digits at all
                return node.value
        if kind in ("str", "timestamp", "value"):
            if node.style or not _EXPONENT.fullmatch(node.value):
                return node.value
            if path is not None:
                self.exponents[path.joined(self.budget)] = node.value
            return float(node.value.replace("_", ""))
        raise self._tagged(node)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.budget.refusal(f"a list or a mapping as a key in line {node.start_mark.line + 1}")
        self.budget.key(node.value)
        return node.value

    def _merge(self, node: yaml.Node, depth: int, path: _Path | None, into: dict[str, Any]) -> None:
        """Add the mappings that `<<` names, one or a list, to those before them, which have priority."""
        if isinstance(node, yaml.SequenceNode):
            if depth > DEEPEST:
                raise documents.too_deep(self.budget.where)
            for each in node.value:
                self.budget.spend(VALUES)
                self._merge(each, depth + 1, path, into)
            return
        found = self.value(node, depth, path)
        if not isinstance(found, dict):
            raise self.budget.refusal(f"<< without a mapping in line {node.start_mark.line + 1}")
        for key, value in found.items():
            into.setdefault(key, value)

    def _tagged(self, node: yaml.Node) -> Unreadable:
        tag = node.tag[: 80 + len(_TAG)].replace(_TAG, "!!")[:80]
        return Unreadable(
            f"{self.budget.where} holds the tag {tag} in line {node.start_mark.line + 1}, and only plain values are"
            " read.",
            "Take the tag away: numbers, texts, lists and mappings need none.",
        )
