"""The definitions of Python files, and what is recorded while they are followed."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.configs.model_code._idioms import assigned, definitions, imported
from clockhands.configs.model_code._known_values import (
    UNKNOWN,
    Class,
    Function,
    Instance,
    Items,
    Known,
    RunTime,
    Several,
    Value,
    join,
    join_all,
    mixed,
)

# Ten times the steps of the largest of fourteen models, so that a small file cannot keep the audit busy.
MOST_STEPS = 100_000

# So many names are copied in about the time of a step.
_NAMES_OF_STEP = 8

# Classes and configs of parts that are no text.
OTHER_PARTS = re.compile(r"(?i)vision|visual|vit(?![a-z])|image|audio|speech|tower|resampler|whisper|siglip|clip|tts")

# The library's class of all configs, which has no keys about positions.
_PLAIN_CONFIGS = ("PretrainedConfig", "PreTrainedConfig", "object")


class Exhausted(Exception):
    """The code is larger than what is followed."""


@dataclass(frozen=True)
class Event:
    """Something that the code computes.

    Attributes:
        kind: ``rotation`` (with a layout), ``frequencies``, ``sinusoids`` (with ``cos`` or ``sin``), ``table``,
            ``slopes`` or ``logarithm``.
        place: File and line.
        value: What was found.
        certain: Whether the model certainly has the object that computes it.
        numbered: Whether the number of a layer decides that it is computed.
        name: The attribute that holds a table; otherwise the class and the function that compute it.
    """

    kind: str
    place: str
    value: Any
    certain: bool
    numbered: bool
    name: str


@dataclass
class Frame:
    """The call that is followed."""

    function: Function
    names: dict[str, Value]
    certain: bool
    part: str
    returned: list[Value] = field(default_factory=list)
    branches: int = 0


class Definitions:
    """The classes, functions and constants of some Python files, and what following them has shown."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        """Collect the definitions; ``trees`` has the syntax tree of each file."""
        self.events: list[Event] = []
        self.instances: list[Instance] = []
        self._steps = 0
        self._building = True
        self._numbered = False
        self._calls: list[ast.AST] = []
        self._bases: dict[Class, Sequence[Class]] = {}
        self._members: dict[Class, Mapping[str, ast.stmt]] = {}
        self._names: dict[str, Value | tuple[ast.expr, str]] = {}
        self._own = {file: dict(self._of_file(file, tree)) for file, tree in trees.items()}
        self._imported = {file: dict(imported(tree)) for file, tree in trees.items()}
        for names in self._own.values():
            for name, found in names.items():
                self._names[name] = UNKNOWN if name in self._names else found

    def _of_file(self, file: str, tree: ast.Module) -> Mapping[str, Value | tuple[ast.expr, str]]:
        """The names of a file: the last class or function of a name, or several where a condition chooses one.

        What a name holds that is assigned again, or in a function, is not known: that depends on when it is read.
        """
        found: dict[str, Value | tuple[ast.expr, str]] = {}
        values = assigned(tree)
        for node in definitions(tree.body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                made = Class(node, file) if isinstance(node, ast.ClassDef) else Function(node, file)
                before = found.get(node.name)
                if isinstance(before, Class | Function | Several) and node not in tree.body:
                    found[node.name] = join(before, made)
                else:
                    found[node.name] = made
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                once = values[name] == 1 and name not in found
                found[name] = (node.value, file) if once else UNKNOWN
        return found

    def _names_for(self, name: str, file: str) -> dict[str, Value | tuple[ast.expr, str]]:
        """The names among which a file finds one: its own, those of the file that it imports it from, or all."""
        for each in (file, self._imported.get(file, {}).get(name, "")):
            if name in self._own.get(each, {}):
                return self._own[each]
        return self._names

    def class_named(self, name: str, file: str = "") -> Class | None:
        """The class of that name, if the files define it: for a file, its own before those of others."""
        found = self._names_for(name, file).get(name)
        return found if isinstance(found, Class) else None

    def config_class(self, model_type: object) -> Class | None:
        """The class of a config that says it is of a type."""
        for found in self._names.values():
            for each in found.node.body if isinstance(found, Class) else ():
                said = (
                    each.value
                    if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "model_type"
                    else None
                )
                if isinstance(found, Class) and isinstance(said, ast.Constant) and said.value == model_type:
                    return found
        return None

    def read(self, config: Instance, key: str) -> Value:
        """A key of the file of a config."""
        if config.values is None or key not in config.values:
            return UNKNOWN
        value = config.values[key]
        if isinstance(value, Mapping):
            part = "other" if OTHER_PARTS.search(key) else config.part
            return Instance(None, values=value, path=f"{config.path}{key}.", part=part)
        return Known(value, (f"{config.path}{key}",))

    def bases(self, kind: Class) -> Sequence[Class]:
        """A class and those that it inherits from, as far as the files define them, in the order of their methods."""
        if kind not in self._bases:
            found: dict[Class, None] = {}
            self._after_bases(kind, found)
            self._bases[kind] = tuple(reversed(found))
        self._step(len(self._bases[kind]))
        return self._bases[kind]

    def _after_bases(self, kind: Class, found: dict[Class, None]) -> None:
        """Add a class after all those that it inherits from; each is visited once, however often it is inherited."""
        self._step()
        for base in reversed(kind.node.bases):
            of = self.class_named(base.id, kind.file) if isinstance(base, ast.Name) else None
            if of is not None and of is not kind and of not in found:
                self._after_bases(of, found)
        found[kind] = None

    def members(self, kind: Class) -> Mapping[str, ast.stmt]:
        """What the body of a class gives names to; of several with one name the last, as in Python."""
        if kind not in self._members:
            self._members[kind] = dict(_named_in(kind.node.body))
        return self._members[kind]

    def method(self, made: Instance, name: str, after: Class | None = None) -> Function | None:
        """A method of an instance; with ``after``, of the classes that this class inherits from."""
        line = () if made.type is None else self.bases(made.type)
        if after in line:
            line = line[line.index(after) + 1 :]
        for kind in line:
            node = self.members(kind).get(name)
            if isinstance(node, ast.FunctionDef):
                return Function(node, kind.file, made, kind)
        return None

    def truth(self, value: Value) -> bool | None:
        """Whether a value counts as true; None if that is known only while the model runs."""
        if isinstance(value, Known):
            return bool(value.value)
        if isinstance(value, Instance | Class | Function):
            return value.values != {} if isinstance(value, Instance) and value.values is not None else True
        if isinstance(value, Items):
            return bool(value.values)
        return None

    def _item(self, value: Value, at: int | None = None) -> Value:
        """An item of a value, or any item."""
        if isinstance(value, Items) and value.values:
            if at is None:
                return join_all(list(value.values))
            return value.values[at] if -len(value.values) <= at < len(value.values) else UNKNOWN
        if isinstance(value, Known) and isinstance(value.value, list) and at is not None:
            held = value.value
            return Known(held[at], value.sources) if -len(held) <= at < len(held) else UNKNOWN
        if isinstance(value, Several):
            return join_all([self._item(each, at) for each in value.options])
        return mixed([value]) if isinstance(value, RunTime) else UNKNOWN

    def _is_whole(self, config: Instance) -> bool:
        """Whether a config has no key beyond those of its file and of the classes at hand."""
        if config.type is None:
            return config.path.endswith(".")  # an object in the file
        names = {ast.unparse(base).rpartition(".")[2] for kind in self.bases(config.type) for base in kind.node.bases}
        return all(self.class_named(name) is not None or name in _PLAIN_CONFIGS for name in names)

    def _step(self, names: int = 0) -> None:
        """Count a step; one that copies or looks through ``names`` counts as more."""
        self._steps += 1 + names // _NAMES_OF_STEP
        if self._steps > MOST_STEPS:
            raise Exhausted

    def _record(self, kind: str, node: ast.AST, value: Any, frame: Frame, name: str = "") -> None:
        if frame.part != "text":
            return
        of = frame.function.of
        around = f"{'' if of is None or of.type is None else of.type.node.name} {frame.function.node.name}"
        event = Event(kind, self._place(node, frame), value, frame.certain, self._numbered, name or around)
        if event not in self.events:
            self.events.append(event)

    def _place(self, node: ast.AST, frame: Frame) -> str:
        return f"{frame.function.file}:{getattr(node, 'lineno', 1)}"


def _named_in(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """The methods and the values in the body of a class, by name; the setter of a property is not its getter."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            if not any(isinstance(each, ast.Attribute) and each.attr == "setter" for each in node.decorator_list):
                yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node
