"""Reads YAML documents, as training programs write their configs, as the same plain values as JSON.

PyYAML parses the text into nodes, and the values are built here: nothing in a file can name a Python object, an alias
counts as its target, and every key has its line. The rules are those of YAML 1.1 as in PyYAML's safe loader, except for
numbers such as ``1e6``: YAML 1.1 requires a dot and a sign of the exponent, so PyYAML reads text; the programs that
these configs are for expect a number, and it is read as one here.

Source: https://yaml.org/spec/1.1/ and https://pyyaml.org/wiki/PyYAMLDocumentation (safe loading, resolvers, nodes).
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import yaml

from clockhands.errors import Unreadable
from clockhands.sources import documents
from clockhands.sources.documents import DEEPEST, LONGEST_KEY, MOST_DIGITS, MOST_DUPLICATES, MOST_KEYS, Document

# The largest config seen has 30 kB; PyYAML needs about 5 seconds for a mebibyte.
LARGEST = 2**20

_TAG = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?[eE][-+]?\d{1,4}")
_MERGE = f"{_TAG}merge"


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
    node = _root(documents.decoded(data, where, "YAML"), where)
    if not isinstance(node, yaml.MappingNode):
        raise Unreadable(
            f"{where} is YAML without keys at the top level, but a config must have some.",
            "A config begins with a line such as `model:` or `hidden_size: 4096`.",
        )
    maker = _Maker(where)
    fields = maker.mapping(node, 0)
    return Document(where, fields, tuple(maker.duplicates), maker.exponents)


@lru_cache(maxsize=2)
def key_lines(text: str) -> Mapping[str, int]:
    r"""The line, from 1, of each key of a YAML text, with dots between the keys; empty if it cannot be read.

    >>> key_lines("model:\n  rotary_base: 10000\n")["model.rotary_base"]
    2
    """
    try:
        node = _root(text, "the text")
        maker = _Maker("the text")
        if isinstance(node, yaml.MappingNode):
            maker.mapping(node, 0)
    except Unreadable:
        return {}
    return maker.lines


def _root(text: str, where: str) -> yaml.Node:
    """The only document of a text that is not empty."""
    try:
        # The C loader is faster, but deep nesting crashes the process there.
        found = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if not _is_empty(node)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        said = (error.problem or error.context or "it cannot be parsed").rstrip(".")
        raise Unreadable(f"{where} is not YAML: {said}{place}.", "Correct the file there.") from None
    except yaml.YAMLError:  # a character that YAML does not allow
        raise Unreadable(f"{where} is not YAML: it holds control characters.", "Check that this is a text.") from None
    except RecursionError:
        raise documents.too_deep(where) from None
    if len(found) > 1:
        raise Unreadable(
            f"{where} holds {len(found)} YAML documents, parted by ---, but a config is one.",
            "Save the one that you mean in a file by itself.",
        )
    if not found:
        raise Unreadable(f"{where} is YAML without any value.", "Check that the file was written completely.")
    return found[0]


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null")


@dataclass
class _Maker:
    """Builds plain values from nodes, within the limits of a config.

    Attributes:
        where: The file, as messages call it.
        values: How many values were made; an alias counts as often as it is used.
        duplicates: Keys that a mapping gives more than once.
        lines: Path of a key to its line.
        exponents: The text of each number that YAML 1.1 reads as a string, by path of its key.
    """

    where: str
    values: int = 0
    duplicates: dict[str, None] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    exponents: dict[str, str] = field(default_factory=dict)

    def mapping(self, node: yaml.MappingNode, depth: int, path: str = "") -> dict[str, Any]:
        """The keys and values of a mapping; values merged by `<<` yield to keys of the mapping itself."""
        merged: dict[str, Any] = {}
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merged(value_node, depth + 1, path), **merged}
                continue
            key = self._key(key_node)
            if key in made:
                self.duplicates[key] = None
                if len(self.duplicates) > MOST_DUPLICATES:
                    raise self._refusal(f"more than {MOST_DUPLICATES} keys that are given more than once")
            self.lines[f"{path}{key}"] = key_node.start_mark.line + 1
            made[key] = self.value(value_node, depth + 1, f"{path}{key}.")
        return {**merged, **made}

    def value(self, node: yaml.Node, depth: int, path: str) -> Any:
        """The value of a node."""
        self.values += 1
        if self.values > MOST_KEYS:
            raise self._refusal(f"more than {MOST_KEYS:,} values, those that aliases repeat among them")
        if depth > DEEPEST:  # also if an alias is inside its own target
            raise documents.too_deep(self.where)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, depth, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, depth + 1, f"{path}{place}.") for place, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind, path.removesuffix("."))
        raise self._tagged(node)

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: str) -> Any:
        if kind in ("int", "float") and len(node.value) > MOST_DIGITS:
            raise self._refusal(f"a number of {len(node.value):,} characters")
        if kind == "null":
            return None
        try:
            if kind in ("int", "float", "bool"):
                return getattr(yaml.SafeLoader(""), f"construct_yaml_{kind}")(node)
        except ValueError:  # such as an octal number with a nine
            return node.value
        if kind in ("str", "timestamp", "value"):
            if node.style is not None or not _EXPONENT.fullmatch(node.value):
                return node.value
            self.exponents[path] = node.value
            return float(node.value.replace("_", ""))
        raise self._tagged(node)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._refusal(f"a list or a mapping as a key in line {node.start_mark.line + 1}")
        if len(node.value) > LONGEST_KEY:
            raise self._refusal(f"a key of more than {LONGEST_KEY:,} characters")
        return node.value

    def _merged(self, node: yaml.Node, depth: int, path: str) -> dict[str, Any]:
        """The mappings that `<<` names: one, or a list of which the first has priority."""
        if isinstance(node, yaml.SequenceNode):
            held: dict[str, Any] = {}
            for each in node.value:
                held = {**self._merged(each, depth + 1, path), **held}
            return held
        found = self.value(node, depth, path)
        if not isinstance(found, dict):
            raise self._refusal(f"<< without a mapping in line {node.start_mark.line + 1}")
        return found

    def _tagged(self, node: yaml.Node) -> Unreadable:
        tag = node.tag.replace(_TAG, "!!")[:80]
        return Unreadable(
            f"{self.where} holds the tag {tag} in line {node.start_mark.line + 1}, and only plain values are read.",
            "Take the tag away: numbers, texts, lists and mappings need none.",
        )

    def _refusal(self, what: str) -> Unreadable:
        return Unreadable(f"{self.where} holds {what}, which no config has.", "Check that this is the file you mean.")
