"""The code of a release as syntax trees: which definitions code can get to, and which keys of a config they mention.

Nothing is imported or run. From a definition every name is followed to its definition in the same package: base
classes, functions, shared layers. A key counts as read wherever this code mentions it, so that what is left is not
mentioned at all. `clockhands.configs.key_reads` answers the other question, which keys code reads for certain.
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from clockhands.configs import model_types
from clockhands.formats.python_files import read

Place = tuple[str, str]
"""A module and a name in it; an empty name is the module itself."""

Mentions = Callable[[ast.AST], Iterator[tuple[str, int]]]
"""The keys that code mentions, each with its line."""


def _position_keys() -> frozenset[str]:
    """The keys of a config about positions that the audit knows, which are not in objects."""
    data = model_types.table()
    about = ("rotated", "share", "context", "base", "local_base", "original", "blocks", "window", "window_on")
    about += ("window_from", "window_period", "layer_types", "rotating_layers", "still_period", "base_ratio", "growing")
    spelt = {key for quantity in about for key in data["spellings"]["config"][quantity]}
    return frozenset(spelt | set(data["position_keys"]))


POSITION_KEYS = _position_keys()
BLOCK_KEYS = frozenset(key for spelt in model_types.table()["spellings"]["block"].values() for key in spelt)
"""The keys of a RoPE block."""

# What a package is called otherwise than its program, and the folder around it.
_PACKAGES = {"megatron-bridge": ("megatron",), "llama-cpp-python": ("convert_hf_to_gguf", "conversion")}
_AROUND = {"llama-cpp-python": "vendor/llama.cpp"}


@dataclass
class Module:
    """A file of a release: its definitions by name, and what its other names are imported from."""

    name: str
    file: str
    tree: ast.Module
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in _outer_statements(self.tree.body):
            for name in defined(node):
                self.definitions.setdefault(name, []).append(node)
        package = self.name if self.file.endswith("__init__.py") else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                levels = package.split(".")
                around = levels[: len(levels) - node.level + 1] if node.level else []
                source = ".".join([*around, *filter(None, [node.module])])
                self.imports |= {each.asname or each.name: (source, each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                self.imports |= {each.asname: (each.name, "") for each in node.names if each.asname}


def _outer_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those under a condition."""
    for node in body:
        yield node
        for name in ("body", "orelse", "handlers", "finalbody"):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _outer_statements(getattr(node, name, []))


def defined(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


@dataclass(eq=False)
class Release:
    """The code of a release.

    Attributes:
        program: The program, as package registries call it.
        version: Its release.
        folder: The folder that holds its package.
        parsed: The modules that were read, by name.
        used: What each definition names.
        told: The keys that each definition mentions, by the function that found them.
    """

    program: str
    version: str
    folder: Path
    parsed: dict[str, Module | None] = field(default_factory=dict)
    used: dict[Place, list[Place]] = field(default_factory=dict)
    told: dict[tuple[Place, Mentions], dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder / _AROUND.get(self.program, "")
        self.packages: Sequence[str] = _PACKAGES.get(self.program, (self.program.replace("-", "_"),))

    def __str__(self) -> str:
        return f"{self.program} {self.version}"

    def module(self, name: str) -> Module | None:
        """A module of the package; None if it is none."""
        if name not in self.parsed:
            path = self.folder.joinpath(*name.split("."))
            files = (path.with_suffix(".py"), path / "__init__.py")
            file = next((each for each in files if each.is_file()), None)
            inside = name.split(".", maxsplit=1)[0] in self.packages
            self.parsed[name] = self._read(name, file) if inside and file is not None else None
        return self.parsed[name]

    def _read(self, name: str, file: Path) -> Module:
        return Module(name, file.relative_to(self.folder).as_posix(), read(file))

    def modules(self, folder: str, pattern: str) -> Iterator[Module]:
        """The modules whose files match a pattern in a folder of the package."""
        for file in sorted((self.folder / folder).glob(pattern)):
            parts = file.relative_to(self.folder).with_suffix("").parts
            module = self.module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            if module is not None:
                yield module

    def definition(self, name: str) -> tuple[Module, ast.stmt] | None:
        """The module and the statement of a definition, named with its module, also where that only imports it."""
        place = (name.rpartition(".")[0], name.rpartition(".")[2])
        while (module := self.module(place[0])) is not None:
            if place[1] in module.definitions:
                return module, module.definitions[place[1]][0]
            if place[1] not in module.imports:
                return None
            place = module.imports[place[1]]
        return None

    def digest(self, file: str) -> str:
        """The SHA-256 of a file."""
        return hashlib.sha256((self.folder / file).read_bytes()).hexdigest()

    def reach(self, roots: Iterable[Place], known: AbstractSet[Place] = frozenset()) -> frozenset[Place]:
        """The definitions that code can get to from others by their names, without those that are known."""
        found: set[Place] = set()
        left = list(roots)
        while left:
            place = left.pop()
            if place not in found and place not in known:
                found.add(place)
                left += self._used_by(place)
        return frozenset(found)

    def _used_by(self, place: Place) -> list[Place]:
        if place not in self.used:
            self.used[place] = self._names_in(place)
        return self.used[place]

    def _names_in(self, place: Place) -> list[Place]:
        """The definitions that one names; of a module all."""
        module = self.module(place[0])
        if module is None:
            return []
        if place[1] not in module.definitions:
            inner = self.module(".".join(filter(None, place)))
            if inner is not None:
                return [(inner.name, each) for each in inner.definitions]
            return [module.imports[place[1]]] if place[1] in module.imports else []
        nodes = module.definitions[place[1]]
        names = {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}
        own = [(module.name, name) for name in names - {place[1]} if name in module.definitions]
        return own + [module.imports[name] for name in names - module.definitions.keys() if name in module.imports]

    def mentions(self, reach: Iterable[Place], found_by: Mentions) -> dict[str, str]:
        """The keys that these definitions mention, each with the first file and line."""
        found: dict[str, str] = {}
        for place in sorted(reach):
            for key, told in self._mentioned_in(place, found_by).items():
                found.setdefault(key, told)
        return {key: found[key] for key in sorted(found)}

    def _mentioned_in(self, place: Place, found_by: Mentions) -> dict[str, str]:
        if (place, found_by) not in self.told:
            module = self.module(place[0])
            nodes = [] if module is None else module.definitions.get(place[1], [])
            found = [each for node in nodes for each in found_by(node)]
            if ".models." in place[0] and any(_hands_on(each) for node in nodes for each in ast.walk(node)):
                found += [(key, nodes[0].lineno) for key in POSITION_KEYS]
            file = "" if module is None else module.file
            latest_first = sorted(found, key=lambda each: -each[1])
            self.told[place, found_by] = {key: f"{file}:{line}" for key, line in latest_first}
        return self.told[place, found_by]


def loaded(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Every position key that code takes from an object, with its line.

    Of the code that all models share only this counts: it has tables with the keys of other files.
    """
    for each in ast.walk(node):
        key = each.attr if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load) else None
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in ("getattr", "hasattr"):
            named = each.args[1] if len(each.args) > 1 else None
            key = named.value if isinstance(named, ast.Constant) else None
        if key in POSITION_KEYS:
            yield str(key), getattr(each, "lineno", 1)


def mentioned(node: ast.AST, without: AbstractSet[int] = frozenset()) -> Iterator[tuple[str, int]]:
    """Every mention of a position key that may read it at the top level of a config, with its line."""
    inside = {id(key_of_block(each, POSITION_KEYS)) for each in ast.walk(node)}
    for each in ast.walk(node):
        if id(each) not in inside | without:
            yield from ((name, getattr(each, "lineno", 1)) for name in _names_of(each, POSITION_KEYS))


def mentioned_beside_fields(node: ast.AST) -> Iterator[tuple[str, int]]:
    """As `mentioned`, of programs whose config is a dataclass: a field that no other code mentions is not read."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return mentioned(node, frozenset(id(each) for each in body if isinstance(each, ast.AnnAssign)))


def of_any_kind(*more: str) -> Mentions:
    """Every mention of a position key, of a key of a RoPE block, or of one of these words, with its line.

    An attribute of ``self`` that the same class assigns is not a key: what is assigned to it is looked at.
    """
    keys = POSITION_KEYS | BLOCK_KEYS | frozenset(more)

    def found(node: ast.AST) -> Iterator[tuple[str, int]]:
        own = {_attribute_of_self(each, ast.Store) for each in ast.walk(node)} - {None}
        for each in ast.walk(node):
            if _attribute_of_self(each, ast.Load) not in own:
                yield from ((name, getattr(each, "lineno", 1)) for name in _names_of(each, keys))

    return found


def _attribute_of_self(node: ast.AST, context: type[ast.expr_context]) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, context):
        return node.attr if node.value.id == "self" else None
    return None


def _names_of(node: ast.AST, keys: AbstractSet[str]) -> Iterator[str]:
    """The keys that a node is a mention of, without the nodes below it."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        names = [node.attr]
    elif isinstance(node, ast.Constant):
        # Some programs write a path: ``rope_parameters->rope_theta``.
        names = re.split(r"->|\.", node.value) if isinstance(node.value, str) else []
    elif isinstance(node, ast.arg):
        names = [node.arg]
    elif isinstance(node, ast.FunctionDef):  # a property
        names = [node.name]
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        names = [node.target.id]
    elif isinstance(node, ast.JoinedStr):
        names = [key for key in keys if _may_make(node, key)]
    else:
        names = []
    return (name for name in names if name in keys)


def _hands_on(node: ast.AST) -> bool:
    """Whether code makes another model or config from the whole config, so that any key may be read."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.DictComp):
        return "_config" in ast.unparse(node.targets[0]) and "kwargs" in ast.unparse(node.value)
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    if called.endswith(".from_config"):
        return any(ast.unparse(each) == "config" for each in node.args)
    rest = any(each.arg is None and ast.unparse(each.value) == "kwargs" for each in node.keywords)
    return rest and re.search(r"[Cc]onfig(s\[.*\]|Class|_class)?$", called) is not None


def _may_make(text: ast.JoinedStr, key: str) -> bool:
    """Whether a text that is put together may be the key: it ends or begins with a part of it that says something."""
    ends = [each.value for each in (*text.values[:1], *text.values[-1:]) if isinstance(each, ast.Constant)]
    said = [each for each in ends if isinstance(each, str) and len(each) > 4]
    return len(text.values) <= 3 and any(key.startswith(each) or key.endswith(each) for each in said)


def key_of_block(node: ast.AST, keys: AbstractSet[str]) -> ast.Constant | None:
    """The text that is a key of a RoPE block: ``rope_parameters["rope_theta"]``, ``rope_scaling.get("rope_theta")``."""
    block, key = None, None
    if isinstance(node, ast.Subscript):
        block, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        block, key = node.func.value, node.args[0]
    if not isinstance(key, ast.Constant) or key.value not in keys or block is None:
        return None
    return key if _BLOCK.search(ast.unparse(block)) else None


_BLOCK = re.compile(r"rope_(parameters|scaling|params)")
