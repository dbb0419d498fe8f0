"""Write configs/released_code.json: which position keys the code of a release reads for each model type.

The code is parsed and never run. From the classes of a type (its configuration and its model) every name is followed to
its definition in the same package: base classes, functions, shared layers. A key counts as read wherever this code
mentions it, as an attribute or a text, except as a key of a RoPE block; so what is left is not mentioned at all. In
Transformers the class of every config also puts some keys into rope_parameters: code that does not mention
rope_parameters does not get them.

    python tools/released_code.py FOLDER    # with a folder NAME-VERSION for each release, as pip unpacks it
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from clockhands.configs import model_types
from clockhands.formats.python_files import read
from clockhands.runtimes.releases import statements

CONFIGS = Path(model_types.__file__).parent
WRITTEN = CONFIGS / "released_code.json"

Place = tuple[str, str]
"""A module and a name in it; an empty name is the module itself."""


def _position_keys() -> frozenset[str]:
    """The keys of a config about positions that the audit knows, which are not in objects."""
    data = model_types.table()
    about = ("rotated", "share", "context", "base", "local_base", "original", "blocks", "window", "window_on")
    about += ("window_from", "window_period", "layer_types", "rotating_layers", "still_period", "base_ratio", "growing")
    spelt = {key for quantity in about for key in data["spellings"]["config"][quantity]}
    return frozenset(spelt | set(data["position_keys"]))


POSITION_KEYS = _position_keys()


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
            for name in _defined(node):
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


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


@dataclass
class Release:
    """The code of a release.

    Attributes:
        program: The program, a key of `READERS`.
        version: Its release.
        folder: The folder that holds its package.
        parsed: The modules that were read, by name.
        used: What each definition names.
        told: The keys that each definition mentions, or takes from an object.
    """

    program: str
    version: str
    folder: Path
    parsed: dict[str, Module | None] = field(default_factory=dict)
    used: dict[Place, list[Place]] = field(default_factory=dict)
    told: dict[tuple[Place, bool], dict[str, str]] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The name of its package."""
        return self.program.replace("-", "_")

    @cached_property
    def shared(self) -> frozenset[Place]:
        """The code that all models share: that of no model, without what makes one key of a config of another."""
        reached = self.reach(READERS[self.program][1]) - CONVERSIONS
        return frozenset(place for place in reached if ".models." not in place[0])

    def module(self, name: str) -> Module | None:
        """A module of the package; None if it is none."""
        if name not in self.parsed:
            path = self.folder.joinpath(*name.split("."))
            files = (path.with_suffix(".py"), path / "__init__.py")
            file = next((each for each in files if each.is_file()), None)
            inside = name.split(".", maxsplit=1)[0] == self.package
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

    def mentions(self, reach: Iterable[Place], *, shared: bool = False) -> dict[str, str]:
        """The position keys that these definitions mention, each with the first file and line."""
        found: dict[str, str] = {}
        for place in sorted(reach):
            if not (shared and _ELSEWHERE.search(place[0])):
                for key, told in self._mentioned_in(place, shared=shared).items():
                    found.setdefault(key, told)
        return {key: found[key] for key in sorted(found)}

    def _mentioned_in(self, place: Place, *, shared: bool) -> dict[str, str]:
        if (place, shared) not in self.told:
            module = self.module(place[0])
            nodes = [] if module is None else module.definitions.get(place[1], [])
            found = [each for node in nodes for each in (loaded(node) if shared else mentioned(node))]
            if ".models." in place[0] and any(_hands_on(each) for node in nodes for each in ast.walk(node)):
                found += [(key, nodes[0].lineno) for key in POSITION_KEYS]
            file = "" if module is None else module.file
            latest_first = sorted(found, key=lambda each: -each[1])
            self.told[place, shared] = {key: f"{file}:{line}" for key, line in latest_first}
        return self.told[place, shared]


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


def mentioned(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Every mention of a position key that may read it at the top level of a config, with its line."""
    inside = {id(_key_of_block(each, POSITION_KEYS)) for each in ast.walk(node)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
            names = [each.attr]
        elif isinstance(each, ast.Constant) and id(each) not in inside:
            names = [each.value]
        elif isinstance(each, ast.arg):
            names = [each.arg]
        elif isinstance(each, ast.FunctionDef):  # a property
            names = [each.name]
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            names = [each.target.id]
        elif isinstance(each, ast.JoinedStr):
            names = [key for key in POSITION_KEYS if _may_make(each, key)]
        else:
            continue
        yield from ((name, getattr(each, "lineno", 1)) for name in names if name in POSITION_KEYS)


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
    ends = [each.value for each in (text.values[0], text.values[-1]) if isinstance(each, ast.Constant)]
    said = [each for each in ends if isinstance(each, str) and len(each) > 4]
    return len(text.values) <= 3 and any(key.startswith(each) or key.endswith(each) for each in said)


def _key_of_block(node: ast.AST, keys: AbstractSet[str]) -> ast.Constant | None:
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


@dataclass
class TypeReads:
    """What the code for one model type reads.

    Attributes:
        owner: The class of the model, with its file and line.
        keys: The position keys that the code mentions.
    """

    owner: str
    keys: frozenset[str]


# What no config of a model reaches.
_ELSEWHERE = re.compile(r"\.(tokenization|processing|feature_extraction)_\w+$")


# The common class of all configs, which puts the RoPE keys of a file into rope_parameters.
CONVERSIONS = frozenset(
    [
        ("transformers.configuration_utils", "PreTrainedConfig"),
        ("transformers.configuration_utils", "PretrainedConfig"),
        ("transformers.modeling_rope_utils", "RotaryEmbeddingConfigMixin"),
    ]
)


def transformers_types(release: Release) -> Iterator[tuple[str, TypeReads]]:
    """The types of Transformers: the class of a config names its type, and the model is in the same folder."""
    shared = release.shared | CONVERSIONS
    taken = frozenset(release.mentions(CONVERSIONS))
    for config in release.modules("transformers/models", "*/configuration_*.py"):
        models = list(release.modules(str(Path(config.file).parent), "modeling_*.py"))
        of_models = release.reach({(each.name, name) for each in models for name in each.definitions}, shared)
        for node in config.tree.body if models else ():
            name = _type_named(node)
            if name is None or not isinstance(node, ast.ClassDef):
                continue
            keys = frozenset(release.mentions(of_models | release.reach({(config.name, node.name)}, shared)))
            if keys & {"rope_parameters", "rope_scaling"}:
                # An attribute rope_scaling is rope_parameters under its old name, whoever takes the other keys.
                keys |= {"rope_scaling"} if _takes_out(node) else taken
            yield name, TypeReads(_class_of(node, config, models), keys)


def _type_named(node: ast.stmt) -> str | None:
    """The ``model_type`` of the class of a config."""
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and "model_type" in _defined(each):
            return str(value.value) if value.value else None
    return None


def _takes_out(node: ast.ClassDef) -> bool:
    """Whether the class of a config takes RoPE keys out of a file itself, so that the common class does not."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "convert_rope_params_to_dict":
            return "super()" not in ast.unparse(each)
    return False


def _class_of(config: ast.ClassDef, around: Module, models: list[Module]) -> str:
    """The class of the model of a config, with file and line; the class of the config where no model has its name."""
    stem = config.name.removesuffix("Config")
    wanted = [f"{stem}{end}" for end in ("Model", "ForCausalLM", "ForConditionalGeneration", "PreTrainedModel", "")]
    held = {name: (nodes[0], module) for module in models for name, nodes in module.definitions.items()}
    node, module = next((held[each] for each in wanted if each in held), (config, around))
    return f"{getattr(node, 'name', stem)} {module.file}:{node.lineno}"


def mlx_types(release: Release) -> Iterator[tuple[str, TypeReads]]:
    """The types of mlx-lm: a file has the name of its type, or of one that it is mapped to."""
    utils = release.module("mlx_lm.utils")
    (mapping,) = utils.definitions["MODEL_REMAPPING"] if utils is not None else []
    assert isinstance(mapping, ast.Assign)
    other_names: dict[str, list[str]] = {}
    for name, source in ast.literal_eval(mapping.value).items():
        other_names.setdefault(source, []).append(name)
    for module in release.modules("mlx_lm/models", "*.py"):
        if "ModelArgs" in module.definitions:
            reached = release.reach([(module.name, each) for each in module.definitions], release.shared)
            owner = f"ModelArgs {module.file}:{module.definitions['ModelArgs'][0].lineno}"
            keys = frozenset(release.mentions(reached))
            name = module.name.rpartition(".")[2]
            yield from ((each, TypeReads(owner, keys)) for each in [name, *other_names.get(name, ())])


READERS: Mapping[str, tuple[Callable[[Release], Iterator[tuple[str, TypeReads]]], Sequence[Place]]] = {
    "transformers": (
        transformers_types,
        (("transformers.modeling_utils", "PreTrainedModel"), ("transformers.generation.utils", "GenerationMixin")),
    ),
    "mlx-lm": (mlx_types, (("mlx_lm.utils", "load_model"),)),
}
"""Of each program the function that finds its types, and the code that all of them share."""


def as_json(release: Release) -> dict[str, Any]:
    """What is written of a release: the keys that shared code reads, and each type's class and further keys.

    Of other releases than that of the table, only types of which a statement says that they do not read a key.
    """
    types, _ = READERS[release.program]
    common = release.mentions(release.shared, shared=True)
    found: dict[str, TypeReads] = {}
    for name, each in types(release):
        first = found.get(name, each)  # two classes may have one type
        found[name] = TypeReads(first.owner, first.keys | each.keys)
    if f"{release.program} {release.version}" != model_types.table()["library"]:
        said = [each for each in statements() if each.runtime == release.program and each.unread is not None]
        about = {name for each in said for name in each.types or ()}
        found = {name: each for name, each in found.items() if name in about}
    sets: list[list[str]] = []
    rows: dict[str, list[Any]] = {}
    for name in sorted(found):
        held = sorted(found[name].keys - common.keys())
        if held not in sets:
            sets.append(held)
        rows[name] = [found[name].owner, sets.index(held)]
    taken = {"config": release.mentions(CONVERSIONS, shared=True), "block": keys_of_blocks(release)}
    return {"shared": common, **{name: held for name, held in taken.items() if held}, "sets": sets, "types": rows}


def keys_of_blocks(release: Release) -> dict[str, str]:
    """The keys that shared code takes from a RoPE block, each with its first file and line."""
    keys = {key for spelt in model_types.table()["spellings"]["block"].values() for key in spelt}
    module = release.module(f"{release.package}.modeling_rope_utils")
    if module is None:
        return {}
    taken = [each for node in ast.walk(module.tree) if (each := _key_of_block(node, keys)) is not None]
    lines = {str(each.value): each.lineno for each in sorted(taken, key=lambda each: -each.lineno)}
    return {key: f"{module.file}:{line}" for key, line in sorted(lines.items())}


def written() -> dict[str, Any]:
    """The data as it is in the package."""
    return json.loads(WRITTEN.read_text(encoding="utf-8"))


SAYS = (
    "Written by tools/released_code.py. Of each release: shared, the position keys that code for all models reads, with"
    " file and line; config, those that the class of every config takes; block, keys of a RoPE block; types, of each"
    " model type its class with file and line, and which of the sets holds the further position keys that its code"
    " mentions."
)


def main() -> None:
    """Read the releases in a folder and write the data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = {}
    for program in READERS:
        for path in sorted(folder.glob(f"{program.replace('-', '_')}-*")):
            release = Release(program, path.name.rpartition("-")[2], path)
            found[f"{program} {release.version}"] = as_json(release)
    text = json.dumps({"says": SAYS, "keys": sorted(POSITION_KEYS), "releases": found}, indent=1)
    one_line = re.sub(r"\[[^\[\]{}]+\]", lambda held: " ".join(held[0].split()), text)  # a list is a line
    WRITTEN.write_text(f"{one_line}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
