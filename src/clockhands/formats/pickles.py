"""Reads a pickle of tensors as data: nothing in it is imported, called or constructed.

A pickle is a program for a small stack machine. The interpreter here supports the instructions that PyTorch checkpoints
use. Everything that the pickle would import stays a name; only the few names that build tensors have a meaning, and any
other name ends the reading with an error that contains it. PyTorch itself is not needed.

The standard library's ``Unpickler`` is not used, even with a ``find_class`` that refuses everything, because it
allocates whatever a pickle asks for: one of 9 bytes took 2 GiB.

Source: ``pickletools`` of the standard library (the instructions), ``torch/_utils.py`` and ``torch/serialization.py``
of PyTorch 2.13 (how tensors are pickled).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from clockhands.errors import Unreadable
from clockhands.formats.arrays import NUMBER_TYPES
from clockhands.formats.files import damaged
from clockhands.phrases import shown

# Bounds for hostile files. A tensor takes about 35 instructions and 200 bytes; models have 100,000 at most,
# in many files.
LARGEST = 32 * 2**20
MOST_STEPS = 2**21
_LONGEST_TEXT = 2**20

_HINT_SAFE = "Save the model as .safetensors, or its state_dict alone with torch.save; a config.json is read by itself."


@dataclass(frozen=True, slots=True)
class Name:
    """What a pickle would import, by its name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers that several tensors may share.

    Attributes:
        kind: The name of the class of the storage, such as ``FloatStorage``.
        key: Its name in the file.
        numel: How many numbers it has.
    """

    kind: str
    key: str
    numel: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage; offset and strides count numbers.

    Attributes:
        storage: Where its numbers are.
        offset: The first of them.
        shape: Its sizes.
        strides: The step between neighbours along each axis.
        dtype: The name of its type, if the storage does not have one.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None = None


class PickledDict(list[tuple[Any, Any]]):
    """A dictionary as written: keys are not hashed, since a hostile file could make them collide."""


class _Opaque:
    """An object without meaning for tensors."""


OPAQUE = _Opaque()
_MARK = _Opaque()

_CLASSES = {Name("torch.nn.parameter", "Parameter"), Name("torch", "Tensor"), Name("torch.nn.parameter", "Buffer")}
_STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage")
DTYPES = frozenset(NUMBER_TYPES["pytorch"])
# The types that storages are named for; for others (None) the tensor has the type.
STORAGES: Mapping[str, str | None] = NUMBER_TYPES["storages"]


def read_pickle(stream: IO[bytes], where: str) -> Any:
    """The object of one pickle, with tensors as ``Tensor``; the stream is left after its end.

    Raises:
        Unreadable: It is damaged, too large, or holds anything but tensors in dictionaries and lists.
    """
    # Imported here: most targets are not pickles.
    import pickletools

    machine = _Machine(where)
    source = _BoundedStream(stream, where)
    steps = 0
    try:
        for step, argument, _ in pickletools.genops(source):  # type: ignore[arg-type]
            steps += 1
            if steps > MOST_STEPS:
                raise _too_large(where, f"{MOST_STEPS:,} instructions")
            machine.do(step.name, argument)
        return machine.result()
    except Unreadable:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle fails in as many ways as its machine has
        said = str(error).strip().rstrip(".") or type(error).__name__
        raise damaged(f"{where} is not a complete pickle: {shown(said)[1:-1]}.") from None


class _BoundedStream:
    """A stream that limits the size of one text and of the whole pickle."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self.stream = stream
        self.where = where
        self.left = LARGEST

    def read(self, count: int) -> bytes:
        if count > _LONGEST_TEXT:
            raise _too_large(self.where, f"{_LONGEST_TEXT:,} bytes in one value")
        return self._spent(self.stream.read(count))

    def readline(self) -> bytes:
        return self._spent(self.stream.readline(_LONGEST_TEXT))

    def _spent(self, data: bytes) -> bytes:
        self.left -= len(data)
        if self.left < 0:
            raise _too_large(self.where, f"{LARGEST:,} bytes")
        return data


class _Machine:
    """The stack, its marks, and the memo."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def result(self) -> Any:
        if len(self.stack) != 1:
            raise ValueError(f"{len(self.stack)} values are left on its stack")
        return self.stack[0]

    def do(self, name: str, argument: Any) -> None:
        """One instruction."""
        stack = self.stack
        if name in _PUSHED:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            if not 0 <= argument < 2**32:
                raise ValueError("it puts a value aside under no number")
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in _STEPS:
            _STEPS[name](self)
        elif name in ("GLOBAL", "INST"):
            module, _, what = argument.partition(" ")
            stack.append(self._named(module, what))
            if name == "INST":
                raise TypeError("it makes an object of a class")
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise Unreadable(
                f"{self.where} is a pickle with the instruction {name}, which no file of tensors needs; it is not read "
                "further.",
                _HINT_SAFE,
            )

    def since_mark(self) -> list[Any]:
        """Remove and return all values above the last mark."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def tuple_of(self, count: int) -> None:
        """The last few values as one."""
        values = [self.stack.pop() for _ in range(count)][::-1]
        self.stack.append(tuple(values))

    def append(self, values: list[Any]) -> None:
        """Values for the list below them."""
        if type(self.stack[-1]) is not list:  # a dictionary is one of pairs
            raise TypeError("it appends to what is no list")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Keys and values for the dictionary below them."""
        if not isinstance(self.stack[-1], PickledDict):
            raise TypeError("it sets items of what is no dictionary")
        self.stack[-1].extend(zip(values[::2], values[1::2], strict=True))

    def named_by_stack(self) -> None:
        """A name whose two parts are the last values."""
        what, module = self.stack.pop(), self.stack.pop()
        if not isinstance(what, str) or not isinstance(module, str):
            raise TypeError("it imports what is no name")
        self.stack.append(self._named(module, what))

    def _named(self, module: str, what: str) -> Any:
        name = Name(module, what)
        if name in _CLASSES or name in _MADE:
            return name
        if (module in _STORAGE_MODULES and what in STORAGES) or (module == "torch" and what in DTYPES):
            return name
        raise Unreadable(
            f"{self.where} is a pickle that asks for {shown(f'{module}.{what}')[1:-1]}, which no tensor needs and "
            "which may run code when it is loaded; it is not read further.",
            _HINT_SAFE,
        )

    def persistent(self) -> None:
        """A storage, by the tuple that PyTorch writes for it."""
        kind, storage, key, _, numel, *view = self.stack.pop()
        if kind != "storage" or not isinstance(storage, Name) or not isinstance(key, str) or not _size(numel):
            raise TypeError("it refers to something else than a storage")
        # Files from before 2020 may have storages that are parts of others; they are no longer written.
        part = "part of a " if view and view[0] is not None else ""
        self.stack.append(Storage(part + storage.name, key, numel))

    def call(self) -> None:
        """A tensor or a container, put together of its parts."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise TypeError("it calls what is no name")
        if function not in _MADE:
            raise TypeError(f"it calls {function}")
        self.stack.append(_MADE[function](arguments))

    def build(self) -> None:
        """A state for the value below it; what is read here has none."""
        self.stack.pop()
        if not isinstance(self.stack[-1], PickledDict | Tensor | _Opaque):
            raise TypeError("it gives a state to what has none")


def _parameter(arguments: tuple[Any, ...]) -> Tensor:
    if not isinstance(arguments[0], Tensor):
        raise TypeError("it makes a parameter of what is no tensor")
    return arguments[0]


def _of_a_type(arguments: tuple[Any, ...]) -> Any:
    inner, _, parts, *_ = arguments
    made = _MADE.get(inner) if isinstance(inner, Name) else None
    if made is None or made is _of_a_type:
        raise TypeError("it makes a tensor by what is no function for it")
    return made(parts)


def _tensor(arguments: tuple[Any, ...], dtype: Name | None = None) -> Tensor:
    storage, offset, shape, strides, *_ = arguments
    if not isinstance(storage, Storage) or not _size(offset) or not _sizes(shape) or not _sizes(strides):
        raise TypeError("it has a tensor without storage, offset, sizes or strides")
    if len(shape) != len(strides):
        raise TypeError("it has a tensor of other axes than strides")
    if dtype is not None and not isinstance(dtype, Name):
        raise TypeError("it has a tensor of no type")
    return Tensor(storage, offset, tuple(shape), tuple(strides), None if dtype is None else dtype.name)


# What is made where one of these is called.
_MADE: Mapping[Name, Callable[[tuple[Any, ...]], Any]] = {
    Name("collections", "OrderedDict"): lambda _: PickledDict(),
    Name("torch", "Size"): lambda arguments: arguments[0],
    Name("torch", "device"): lambda _: OPAQUE,
    Name("torch.serialization", "_get_layout"): lambda _: OPAQUE,
    Name("_codecs", "encode"): lambda _: OPAQUE,  # bytes, as the older protocols write them
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v3"): lambda arguments: _tensor(arguments, arguments[6]),
    Name("torch._utils", "_rebuild_parameter"): _parameter,
    Name("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    Name("torch._tensor", "_rebuild_from_type_v2"): _of_a_type,
}


def _size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _sizes(value: object) -> bool:
    return isinstance(value, tuple) and len(value) <= 64 and all(_size(size) for size in value)


def _too_large(where: str, what: str) -> Unreadable:
    return Unreadable(
        f"{where} is a pickle of more than {what}, which no file of tensors has.",
        "Check that this is the file you mean.",
    )


_PUSHED = frozenset([
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
])  # fmt: skip
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": PickledDict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
    "MARK": lambda: _MARK,
}
_STEPS: Mapping[str, Callable[[_Machine], object]] = {
    "POP": lambda machine: machine.stack.pop(),
    "POP_MARK": lambda machine: machine.since_mark(),
    "DUP": lambda machine: machine.stack.append(machine.stack[-1]),
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
    "LIST": lambda machine: machine.stack.append(machine.since_mark()),
    "DICT": lambda machine: machine.stack.append(PickledDict(_paired(machine.since_mark()))),
    "APPEND": lambda machine: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine: machine.append(machine.since_mark()),
    "ADDITEMS": lambda machine: machine.append(machine.since_mark()),
    "SETITEM": lambda machine: machine.set_items([machine.stack.pop() for _ in range(2)][::-1]),
    "SETITEMS": lambda machine: machine.set_items(machine.since_mark()),
    "STACK_GLOBAL": lambda machine: machine.named_by_stack(),
    "BINPERSID": lambda machine: machine.persistent(),
    "REDUCE": lambda machine: machine.call(),
    "BUILD": lambda machine: machine.build(),
}


def _paired(values: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(values[::2], values[1::2], strict=True))
