"""Finds the tensors of an ONNX model without reading their values.

For encoders deployed with onnxruntime or in a browser (sentence embeddings, BERT, ViT): the position table that runs is
in this file, often without a config. Covered are initialisers, values of Constant nodes, subgraphs, functions, and data
in files beside the model. The file is walked a few kilobytes at a time, and nothing in it is run. Sparse tensors and
tensors for training are ignored.

The ``onnx`` package is not used, not even as an extra, because no limit can be set to its memory, even without external
data: 1,000 MiB of weights took 2,000 MiB, a file of 20 MiB that is nothing but empty tensors took 1,700 MiB, and it
refuses models of more than 2 GiB. Tests check that both agree: what the package opens is opened, with the same numbers.

Source: ``onnx.proto`` of onnx 1.23.2 (numbers of fields and types), and its ``docs/ExternalData.md``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from clockhands.errors import Unreadable
from clockhands.formats.arrays import NUMBER_TYPES, Names, TensorInfo, bits_of, check_shape
from clockhands.formats.files import (
    ReadAround,
    head,
    is_pointer,
    leaves_folder,
    miswritten,
    not_pulled,
    open_regular,
    place,
    signature,
    too_many,
    truncated,
)
from clockhands.formats.protobuf import FIXED32, FIXED64, LENGTH, Field, MessageFile, Span
from clockhands.formats.shards import WeightsHeader
from clockhands.phrases import shown

# Types by their number.
TYPES = {int(number): name for number, name in NUMBER_TYPES["onnx"].items()}

# Bounds for hostile files, each far above any real one.
MOST_TENSORS = 2**17
MOST_NODES = 2**17
_MOST_FILES = 2**13  # beside the model
MOST_AXES = 64
DEEPEST_GRAPH = 32

# Bytes of numbers that are kept because the file does not hold them in that form.
_KEPT_IN_ALL = 2**26

# Fields by their number.
_MODEL = {1: "version", 7: "graph", 8: "opset", 25: "function"}
_GRAPH = {1: "node", 2: "name", 5: "tensor"}
_FUNCTION = {1: "name", 7: "body"}
_NODE = {1: "input", 2: "output", 4: "operator", 5: "attribute", 7: "domain"}
_ATTRIBUTE = {1: "name", 5: "value", 6: "graph", 7: "floats", 11: "graph"}
_ENTRY = {1: "key", 2: "value"}
_TENSOR = {1: "sizes", 2: "type", 8: "name", 9: "raw", 13: "external", 14: "location"}
_TENSOR |= dict.fromkeys((4, 5, 7, 10, 11), "values")

# Fields of numbers that are not raw bytes: floats as they are, integers as varints.
_FLOATS, _VARINTS = {4: FIXED32, 10: FIXED64}, (5, 7, 11)

# Operations that may be between a table and the sum that it goes into.
_TO_A_SUM = frozenset({"Add", "Sum", "Slice", "Gather", "Unsqueeze", "Expand", "Cast", "Identity", "Reshape"})


def read_header(path: Path) -> WeightsHeader:
    """Walk an ONNX model and find its tensors.

    Raises:
        Unreadable: The file is not an ONNX model or truncated, a tensor's size does not match its shape, or its data
            have a path outside the model's folder (links in the folder are followed).
    """
    with open_regular(path) as file:
        size = file.seek(0, 2)
        start = head(path)
        found = signature(start)
        if not size:
            raise miswritten(f"{path} is not an ONNX model: it is empty.")
        if found is not None and found[0] == "pointer":
            raise not_pulled(path, "the model")
        walk = _Walk(MessageFile(path, ReadAround(path, file), "an ONNX model"))
        walk.model()
    added = frozenset(walk.used & walk.tensors.keys())
    return WeightsHeader(path, walk.tensors, absent=tuple(walk.absent), added=added)


@dataclass
class _Walk:
    """The results of walking through one model."""

    file: MessageFile
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)  # of the files beside the model
    absent: list[str] = field(default_factory=list)
    numbered: dict[str, int] = field(default_factory=dict)  # of names that are used again: the next number
    counts: Counter[str] = field(default_factory=Counter)  # of nodes, and of tensors of graphs
    kept: int = 0

    def __post_init__(self) -> None:
        """All names of the model have one budget."""
        self.names = Names(self.file.path)

    def _text(self, span: Span) -> str:
        return self.names.spend(self.file.text(span))

    def _last(self, spans: list[Span], default: str = "") -> str:
        """The text of the field that counts if a message has several."""
        return self._text(spans[-1]) if spans else default

    def _parts(self, span: Span, names: Mapping[int, str]) -> dict[str, list[Field]]:
        """The named fields of a message, each by its name."""
        parts: dict[str, list[Field]] = {name: [] for name in names.values()}
        for each in self.file.fields(span):
            name = names.get(each[0])
            if name is None:
                continue
            if name in ("tensor", "node", "raw", "external"):
                self._messages([each])
            if name != "sizes" or len(parts[name]) <= MOST_AXES:
                parts[name].append(each)
            if name in ("tensor", "node"):
                self.counts[name] += 1
                most = MOST_NODES if name == "node" else MOST_TENSORS
                if self.counts[name] > most:
                    raise too_many(self.file.path, most, f"{name}s")
        return parts

    def model(self) -> None:
        """The whole file."""
        seen: set[str | None] = set()
        for each in self.file.fields(self.file.whole):
            seen.add(part := _MODEL.get(each[0]))
            for span in self._messages([each]) if part in ("graph", "function") else ():
                self._graph(span, "", 0) if part == "graph" else self._function(span)
        # Without these checks a file of a few random bytes would count as a model.
        for name in ("version", "graph", "opset"):
            if name not in seen:
                raise self.file.wrong(f"it has no {'set of operators' if name == 'opset' else name}")

    def _messages(self, fields: list[Field]) -> list[Span]:
        if any(kind != LENGTH for _, kind, _ in fields):
            raise self.file.wrong("a number is found where a part of the model is expected")
        return _spans(fields)

    def _graph(self, span: Span, owner: str, depth: int) -> None:
        if depth > DEEPEST_GRAPH:
            raise self.file.wrong(f"it nests graphs deeper than {DEEPEST_GRAPH} levels")
        parts = self._parts(span, _GRAPH)
        inner = f"{owner}{self._last(_spans(parts['name'])) or 'graph'}/" if depth else ""
        for tensor in self._messages(parts["tensor"]):
            self._tensor(tensor, None, inner)
        for node in self._messages(parts["node"]):
            self._node(node, inner, depth)

    def _function(self, span: Span) -> None:
        parts = self._parts(span, _FUNCTION)
        name = self._last(_spans(parts["name"]), "function")
        for node in self._messages(parts["body"]):
            self._node(node, f"{name}/", 1)

    def _node(self, span: Span, owner: str, depth: int) -> None:
        """Read a node: the tensor that it holds, the graphs inside it, and the tensors that it adds."""
        parts = self._parts(span, _NODE)
        operators, domains, outputs = (self._messages(parts[name]) for name in ("operator", "domain", "output"))
        operator = self._last(operators) if self._last(domains) in ("", "ai.onnx") else ""
        if operator in _TO_A_SUM:
            self.used.update(map(self._text, self._messages(parts["input"])))
        constant = self._last(outputs[:1]) if operator == "Constant" else None
        for attribute in self._messages(parts["attribute"]):
            self._attribute(attribute, constant, owner, depth)

    def _attribute(self, span: Span, constant: str | None, owner: str, depth: int) -> None:
        parts = self._parts(span, _ATTRIBUTE)
        for graph in self._messages(parts["graph"]):
            self._graph(graph, owner, depth + 1)
        name = "" if constant is None else self._last(_spans(parts["name"]))
        if name == "value" and parts["value"]:
            self._tensor(self._messages(parts["value"])[-1], constant, owner)
        elif name == "value_floats":
            floats = _spans(parts["floats"])
            info = TensorInfo(constant or "", "float32", (sum(map(len, floats)) // 4,), self.file.path)
            self._put(owner, self._laid(info, floats, False))

    def _tensor(self, span: Span, name: str | None, owner: str) -> None:
        """Add a tensor whose values are raw, in a typed field, or in a file beside the model."""
        parts = self._parts(span, _TENSOR)
        integers = (self.file.integers(kind, value, MOST_AXES) for _, kind, value in parts["sizes"])
        sizes = tuple(islice(chain.from_iterable(integers), MOST_AXES + 1))
        if len(sizes) > MOST_AXES:
            raise miswritten(
                f"{self.file.path} has a tensor of more than {MOST_AXES} axes, which NumPy does not allow."
            )
        raw = self._messages(parts["raw"])
        own = self._last(_spans(parts["name"]))
        label = own if name is None else name
        number = _last_number(parts["type"])
        info = TensorInfo(label, TYPES.get(number, f"type {number}"), sizes, self.file.path)
        check_shape(self._where(label), sizes, miswritten)
        varints = any(number in _VARINTS for number, _, _ in parts["values"])
        if _last_number(parts["location"]) == 1:
            info = self._outside(info, self._messages(parts["external"]))
        elif raw:
            info = self._checked(replace(info, offset=raw[-1].start), len(raw[-1]))
        elif bits_of(info.dtype) >= 8:  # else text, or several numbers in a byte: these values are not read
            values = [v for n, kind, v in parts["values"] if n in _VARINTS or kind in (LENGTH, _FLOATS[n])]
            info = self._laid(info, values, varints)
        self._put(owner, info)

    def _laid(self, info: TensorInfo, numbers: Sequence[Span | int], varints: bool) -> TensorInfo:
        """The place of the values, or the values themselves if the file does not hold them as bytes."""
        if len(numbers) == 1 and isinstance(numbers[0], Span) and not varints:
            return self._checked(replace(info, offset=numbers[0].start), len(numbers[0]))
        made, room, width = [], _KEPT_IN_ALL - self.kept, bits_of(info.dtype) // 8
        for each in numbers:
            if isinstance(each, Span) and not varints:
                block = self.file.data[each.start : each.stop]
            elif isinstance(each, Span) and len(each) * width > room:
                room = -1
                break
            else:
                values = np.array([each], np.uint64) if isinstance(each, int) else self.file.varints(each)
                block = values.astype(f"<u{width}").tobytes() if width < 16 else b""
            room -= len(block)
            if room < 0:
                break
            made.append(block)
        if room < 0:  # too much would have to be kept
            return replace(info, dtype=f"scattered {info.dtype}", held=b"")
        self.kept = _KEPT_IN_ALL - room
        data = b"".join(made)
        return self._checked(replace(info, held=data), len(data))

    def _outside(self, info: TensorInfo, entries: list[Span]) -> TensorInfo:
        """A tensor in a file beside the model."""
        parts = [self._parts(entry, _ENTRY) for entry in entries]
        pairs = {self._last(_spans(part["key"])): self._last(_spans(part["value"])) for part in parts}
        where = self._where(info.name)
        file = _beside(self.file.path, where, pairs.get("location", ""))
        offset = _whole(where, "offset", pairs.get("offset", "0"))
        length = _whole(where, "length", pairs.get("length", str(-(-info.bits // 8))))
        self._checked(info, length)
        name = str(file.relative_to(self.file.path.parent))
        if name not in self.sizes:
            if len(self.sizes) >= _MOST_FILES:
                raise too_many(self.file.path, _MOST_FILES, "files of data beside it")
            there = place(file) == "file" and file.is_file() and not is_pointer(file)
            self.sizes[name] = file.stat().st_size if there else -1
            if not there:
                self.absent.append(name)
        if offset + length > self.sizes[name] >= 0:
            raise truncated(
                f"{where} ends at byte {offset + length:,} of {name}, which has only {self.sizes[name]:,} bytes."
            )
        return replace(info, file=file, offset=offset, model=self.file.path)

    def _checked(self, info: TensorInfo, length: int) -> TensorInfo:
        """A tensor whose values have as many bytes as its shape and type take."""
        size = -(-info.bits // 8)
        if length != size and bits_of(info.dtype):
            raise miswritten(
                f"{self._where(info.name)} has {length:,} bytes, but its shape {shown(list(info.shape))} and type "
                f"{info.dtype} take {size:,}."
            )
        return info

    def _put(self, owner: str, info: TensorInfo) -> None:
        if len(self.tensors) >= MOST_TENSORS:
            raise too_many(self.file.path, MOST_TENSORS, "tensors")
        # Nested graphs may use a name twice, and some tensors have none.
        label = info.name or "unnamed"
        name = label
        if name in self.tensors and owner:
            name = self.names.spend(owner + label)
        if name in self.tensors:
            count = max(len(self.tensors), self.numbered.get(owner + label, 0))
            while (numbered := self.names.spend(f"{name}#{count}")) in self.tensors:
                count += 1
            self.numbered[owner + label] = count + 1
            name = numbered
        self.tensors[name] = replace(info, name=name)

    def _where(self, label: str) -> str:
        return f"{self.file.path}: tensor {shown(label)}"


def _last_number(fields: list[Field]) -> int:
    """The number of the field that counts if a message has several."""
    return next((value for _, _, value in reversed(fields) if isinstance(value, int)), 0)


def _spans(fields: list[Field]) -> list[Span]:
    """Where the bytes of some fields lie; a number in place of them is left out, as the ``onnx`` package does."""
    return [value for _, _, value in fields if isinstance(value, Span)]


def _beside(model: Path, where: str, location: str) -> Path:
    """The data file of a tensor; its path must stay in the model's folder: no ``..``, no absolute path.

    The path is checked as the model declares it. The file may be a link, and links are followed: the Hugging Face cache
    stores the data of every model as links to ``../../blobs``, which a model cannot create itself.
    """
    if leaves_folder(location):
        raise Unreadable(
            f"{where} declares its data at {shown(location)}, a path that does not stay in the model's folder.",
            "Do not trust this model: a valid model keeps its data in its own folder.",
        )
    return model.parent / location


def _whole(where: str, name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise miswritten(f"{where} has the {name} {shown(text)} in its file, where a whole number is expected.")
    return int(text)
