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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from clockhands.arguments import shown
from clockhands.errors import Unreadable
from clockhands.formats.arrays import Names, TensorInfo, check_shape
from clockhands.formats.files import (
    TRUNCATED,
    WRITE_AGAIN,
    ReadAround,
    head,
    is_pointer,
    leaves_folder,
    not_pulled,
    open_regular,
    place,
    signature,
    too_many,
)
from clockhands.formats.protobuf import FIXED32, FIXED64, LENGTH, Field, MessageFile, Span
from clockhands.formats.shards import WeightsHeader

# Types by their number: bits, and the name that NumPy or ml_dtypes has for it (else the format's, in capitals).
TYPES = {
    1: (32, "float32"),
    2: (8, "uint8"),
    3: (8, "int8"),
    4: (16, "uint16"),
    5: (16, "int16"),
    6: (32, "int32"),
    7: (64, "int64"),
    8: (0, "STRING"),
    9: (8, "bool"),
    10: (16, "float16"),
    11: (64, "float64"),
    12: (32, "uint32"),
    13: (64, "uint64"),
    14: (64, "complex64"),
    15: (128, "complex128"),
    16: (16, "bfloat16"),
    17: (8, "float8_e4m3fn"),
    18: (8, "float8_e4m3fnuz"),
    19: (8, "float8_e5m2"),
    20: (8, "float8_e5m2fnuz"),
    21: (4, "UINT4"),
    22: (4, "INT4"),
    23: (4, "FLOAT4E2M1"),
    24: (8, "float8_e8m0fnu"),
    25: (2, "UINT2"),
    26: (2, "INT2"),
}

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
_FUNCTION = {1: "name", 7: "node"}
_NODE = {1: "input", 2: "output", 4: "operator", 5: "attribute", 7: "domain"}
_ATTRIBUTE = {1: "name", 5: "tensor", 6: "graph", 7: "floats", 11: "graph"}
_ENTRY = {1: "key", 2: "value"}
_TENSOR = {1: "sizes", 2: "type", 8: "name", 9: "raw", 13: "external", 14: "location"}

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
            raise Unreadable(f"{path} is not an ONNX model: it is empty.", WRITE_AGAIN)
        if found is not None and found[0] == "pointer":
            raise not_pulled(path, "the model")
        walk = _Walk(MessageFile(path, ReadAround(path, file), "an ONNX model"))
        walk.model()
    added = frozenset(walk.used & walk.tensors.keys())
    return WeightsHeader(path, walk.tensors, absent=tuple(walk.absent), added=added)


@dataclass(frozen=True)
class _Said:
    """What the model says about a tensor, before its values are located."""

    label: str
    owner: str
    dtype: str
    shape: tuple[int, ...]
    bits: int

    @property
    def size(self) -> int:
        """The bytes of its values."""
        return -(-math.prod(self.shape) * self.bits // 8)


@dataclass
class _Walk:
    """The results of walking through one model."""

    file: MessageFile
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)  # of the files beside the model
    absent: list[str] = field(default_factory=list)
    numbered: dict[str, int] = field(default_factory=dict)  # of names that are used again: the next number
    kept: int = 0
    nodes: int = 0

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
            if each[0] in names:
                parts[names[each[0]]].append(each)
        return parts

    def model(self) -> None:
        """The whole file."""
        seen: set[str | None] = set()
        for number, kind, value in self.file.fields(self.file.whole):
            seen.add(part := _MODEL.get(number))
            if part == "graph":
                self._graph(self._message(kind, value), "", 0)
            elif part == "function":
                self._function(self._message(kind, value))
        # Without these checks a file of a few random bytes would count as a model.
        for name in ("version", "graph", "opset"):
            if name not in seen:
                raise self.file.wrong(f"it has no {'set of operators' if name == 'opset' else name}")

    def _messages(self, fields: list[Field]) -> list[Span]:
        return [self._message(kind, value) for _, kind, value in fields]

    def _message(self, kind: int, value: int | Span) -> Span:
        if kind != LENGTH or isinstance(value, int):
            raise self.file.wrong("a number is found where a part of the model is expected")
        return value

    def _graph(self, span: Span, owner: str, depth: int) -> None:
        if depth > DEEPEST_GRAPH:
            raise self.file.wrong(f"it nests graphs deeper than {DEEPEST_GRAPH} levels")
        nodes: list[Span] = []
        tensors: list[Span] = []
        name = ""
        for number, kind, value in self.file.fields(span):
            part = _GRAPH.get(number)
            if part == "tensor":
                tensors.append(self._message(kind, value))
                if len(self.tensors) + len(tensors) > MOST_TENSORS:
                    raise too_many(self.file.path, MOST_TENSORS, "tensors")
            elif part == "node":
                nodes.append(self._message(kind, value))
                self.nodes += 1
                if self.nodes > MOST_NODES:
                    raise too_many(self.file.path, MOST_NODES, "nodes")
            elif part == "name" and isinstance(value, Span):
                name = self._text(value)
        inner = f"{owner}{name or 'graph'}/" if depth else ""
        for tensor in tensors:
            self._tensor(tensor, None, inner)
        for node in nodes:
            self._node(node, inner, depth)

    def _function(self, span: Span) -> None:
        parts = self._parts(span, _FUNCTION)
        name = self._last(_spans(parts["name"]), "function")
        for node in self._messages(parts["node"]):
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
        if constant is None:
            return
        name = self._last(_spans(parts["name"]))
        if name == "value" and parts["tensor"]:
            self._tensor(self._messages(parts["tensor"])[-1], constant, owner)
        elif name == "value_floats":
            floats = _spans(parts["floats"])
            said = _Said(constant, owner, "float32", (sum(map(len, floats)) // 4,), 32)
            self._add(said, *self._laid(floats, False, 4))

    def _tensor(self, span: Span, name: str | None, owner: str) -> None:
        """Add a tensor whose values are raw, in a typed field, or in a file beside the model."""
        own, kind_number, outside = "", 0, 0
        sizes: list[int] = []
        raw: Span | None = None
        numbers: list[Span | int] = []
        varints, external = False, []
        for number, kind, value in self.file.fields(span):
            part = _TENSOR.get(number)
            if part == "sizes":
                sizes += self.file.integers(kind, value, MOST_AXES)
                if len(sizes) > MOST_AXES:
                    raise Unreadable(
                        f"{self.file.path} has a tensor of more than {MOST_AXES} axes, which NumPy does not allow.",
                        WRITE_AGAIN,
                    )
            elif part == "type" and isinstance(value, int):
                kind_number = value
            elif part == "name" and isinstance(value, Span):
                own = self._text(value)
            elif part == "raw":
                raw = self._message(kind, value)
            elif part == "external":
                external.append(self._message(kind, value))
            elif part == "location" and isinstance(value, int):
                outside = value
            elif number in _FLOATS and kind in (LENGTH, _FLOATS[number]):
                numbers.append(value)
            elif number in _VARINTS:
                numbers.append(value)
                varints = True
        label = own if name is None else name
        bits, dtype = TYPES.get(kind_number, (0, f"type {kind_number}"))
        shape = tuple(sizes)
        check_shape(self._where(label), shape, WRITE_AGAIN)
        said = _Said(label, owner, dtype, shape, bits)
        if outside == 1:
            self._outside(said, external)
        elif raw is not None:
            self._add(said, raw.start, len(raw), None)
        elif bits < 8:  # text, or several numbers in a byte: these values are not read
            self._put(said, TensorInfo("", dtype, shape, self.file.path))
        else:
            self._add(said, *self._laid(numbers, varints, bits // 8))

    def _laid(self, numbers: Sequence[Span | int], varints: bool, width: int) -> tuple[int, int, bytes | None]:
        """The offset and size of the values, and the values themselves if the file does not hold them as bytes."""
        if len(numbers) == 1 and isinstance(numbers[0], Span) and not varints:
            return numbers[0].start, len(numbers[0]), None
        made, room = [], _KEPT_IN_ALL - self.kept
        for each in numbers:
            if isinstance(each, int):
                block = np.array([each], np.uint64).astype(f"<u{width}").tobytes() if width < 16 else b""
            elif varints:
                if len(each) * width > room:
                    return 0, -1, b""
                block = self.file.varints(each).astype(f"<u{width}").tobytes() if width < 16 else b""
            else:
                block = self.file.data[each.start : each.stop]
            room -= len(block)
            if room < 0:
                return 0, -1, b""
            made.append(block)
        self.kept = _KEPT_IN_ALL - room
        data = b"".join(made)
        return 0, len(data), data

    def _outside(self, said: _Said, entries: list[Span]) -> None:
        """A tensor in a file beside the model."""
        parts = [self._parts(entry, _ENTRY) for entry in entries]
        pairs = {self._last(_spans(part["key"])): self._last(_spans(part["value"])) for part in parts}
        where = self._where(said.label)
        file = _beside(self.file.path, where, pairs.get("location", ""))
        offset = _whole(where, "offset", pairs.get("offset", "0"))
        length = _whole(where, "length", pairs.get("length", str(said.size)))
        self._check(said, length)
        name = str(file.relative_to(self.file.path.parent))
        if name not in self.sizes:
            if len(self.sizes) >= _MOST_FILES:
                raise too_many(self.file.path, _MOST_FILES, "files of data beside it")
            there = place(file) == "file" and file.is_file() and not is_pointer(file)
            self.sizes[name] = file.stat().st_size if there else -1
            if not there:
                self.absent.append(name)
        if offset + length > self.sizes[name] >= 0:
            raise Unreadable(
                f"{where} ends at byte {offset + length:,} of {name}, which has only {self.sizes[name]:,} bytes.",
                TRUNCATED,
            )
        self._put(said, TensorInfo("", said.dtype, said.shape, file, offset, model=self.file.path))

    def _add(self, said: _Said, offset: int, length: int, data: bytes | None) -> None:
        """Add a tensor of the model itself; a length below 0 means that too much of it would have to be kept."""
        if length >= 0:
            self._check(said, length)
        dtype = said.dtype if length >= 0 else f"scattered {said.dtype}"
        self._put(said, TensorInfo("", dtype, said.shape, self.file.path, offset, held=data))

    def _check(self, said: _Said, length: int) -> None:
        if length != said.size and said.bits:
            raise Unreadable(
                f"{self._where(said.label)} has {length:,} bytes, but its shape {shown(list(said.shape))} and type "
                f"{said.dtype} take {said.size:,}.",
                WRITE_AGAIN,
            )

    def _put(self, said: _Said, info: TensorInfo) -> None:
        if len(self.tensors) >= MOST_TENSORS:
            raise too_many(self.file.path, MOST_TENSORS, "tensors")
        # Nested graphs may use a name twice, and some tensors have none.
        label = said.label or "unnamed"
        name = label
        if name in self.tensors and said.owner:
            name = self.names.spend(said.owner + label)
        if name in self.tensors:
            count = max(len(self.tensors), self.numbered.get(said.owner + label, 0))
            while (numbered := self.names.spend(f"{name}#{count}")) in self.tensors:
                count += 1
            self.numbered[said.owner + label] = count + 1
            name = numbered
        self.tensors[name] = replace(info, name=name)

    def _where(self, label: str) -> str:
        return f"{self.file.path}: tensor {shown(label)}"


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
        raise Unreadable(
            f"{where} has the {name} {shown(text)} in its file, where a whole number is expected.", WRITE_AGAIN
        )
    return int(text)
