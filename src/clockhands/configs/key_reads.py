"""The keys of a config that Python code reads, by its syntax tree: which key, in which class and line, which default.

Nothing is imported or run. An expression is a config by its name (``config``, ``self.text_config``, ``args``), by what
was assigned to the name before, or as ``self`` in a class that is a config itself.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from clockhands.formats.python_files import syntax_tree

# Names of variables and attributes that hold the config of a model, and not settings of the program.
_PROGRAM = "cache|compilation|device|generation|load|log|lora|parallel|peft|quant|quantization|scheduler|tokenizer"
_CONFIGS = re.compile(rf"_*(?!({_PROGRAM})_)(\w+_)?(config|cfg|hparams|args)_*")

# Objects around a config, which are no keys of it: `vllm_config.model_config.hf_config.rope_theta` is `rope_theta`.
_WRAPPERS = re.compile(r"_*((hf|model|vllm|base|main)_)?(config|cfg|hparams|args)|hf_text_config")

# Classes whose attributes are the keys of a config.
_CONFIG_CLASSES = re.compile(r"\w*(Config|Args|Configuration|Arguments)(V\d+)?|_Config")


@dataclass(frozen=True)
class KeyRead:
    """One place where code reads a key of a config.

    Attributes:
        key: The key; a key of an object inside has its path, as in ``rope_scaling.factor``, and one whose name is
            computed is ``*``.
        file: The file's name.
        line: The line, from 1.
        owner: The class around it; None outside of classes.
        function: The function around it; None outside of functions.
        default: The text of the default, as ``10000.0``; None if there is none.
        declared: Whether the class of a config declares the key here, as a parameter, a field, or a keyword argument
            that it takes out; else code reads it.
    """

    key: str
    file: str
    line: int
    owner: str | None = None
    function: str | None = None
    default: str | None = None
    declared: bool = False

    @property
    def place(self) -> str:
        """File and line.

        >>> KeyRead("rope_theta", "modeling_x.py", 12).place
        'modeling_x.py:12'
        """
        return f"{self.file}:{self.line}"


def key_reads(text: str, file: str) -> list[KeyRead]:
    """Every read of a key of a config in Python code, in the order of the lines.

    >>> code = '''
    ... class Attention:
    ...     def __init__(self, config):
    ...         self.base = getattr(config, "rope_theta", 10000.0)
    ...         self.factor = config.rope_scaling["factor"]
    ... '''
    >>> for read in key_reads(code, "modeling_x.py"):
    ...     print(read.place, read.owner, read.key, read.default)
    modeling_x.py:4 Attention rope_theta 10000.0
    modeling_x.py:5 Attention rope_scaling None
    modeling_x.py:5 Attention rope_scaling.factor None

    Raises:
        Unreadable: The text is no Python, larger than 2 MiB, or deeper than any program.
    """
    return reads_in(syntax_tree(text, file), file)


def reads_in(tree: ast.Module, file: str) -> list[KeyRead]:
    """Every read of a key of a config in a syntax tree, in the order of the lines."""
    return sorted(set(_Scope(file).reads(tree)), key=lambda read: (read.line, read.key, read.default or ""))


@dataclass(frozen=True)
class _Scope:
    """What is known at a place in the code: the class and function around it, and the names of configs."""

    file: str
    owner: str | None = None
    function: str | None = None
    paths: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def declares(self) -> bool:
        """Whether the class around it is that of a config."""
        return self.owner is not None and _CONFIG_CLASSES.fullmatch(self.owner) is not None

    def reads(self, node: ast.AST) -> Iterator[KeyRead]:
        """The reads in a node and below it."""
        if isinstance(node, ast.ClassDef):
            yield from replace(self, owner=node.name).in_class(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self.in_function(node)
        else:
            yield from self._here(node)
            method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            for child in ast.iter_child_nodes(node):
                # The name of a method is no key.
                yield from self.reads(method.value if method is not None and child is method else child)

    def in_class(self, node: ast.ClassDef) -> Iterator[KeyRead]:
        for each in node.body:
            if self.declares and isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield self.read(each.target.id, each, each.value, declared=True)
        held = {} if self.declares else self.assigned(node, ast.Attribute)
        inside = replace(self, paths={**self.paths, **held})
        for child in ast.iter_child_nodes(node):
            yield from inside.reads(child)

    def in_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[KeyRead]:
        parameters = defaults_of(node.args)
        # A parameter hides a name of outside.
        paths = {name: path for name, path in self.paths.items() if name not in {each.arg for each, _ in parameters}}
        if self.declares:
            paths["self"] = ""
        inside = replace(self, function=node.name, paths=paths)
        if self.declares and node.name == "__init__":
            if node.args.kwarg is not None:
                paths[node.args.kwarg.arg] = ""
            for each, default in parameters:
                if each.arg != "self":
                    yield inside.read(each.arg, each, default, declared=True)
        inside = replace(inside, paths={**paths, **inside.assigned(node, ast.Name)})
        for child in ast.iter_child_nodes(node):
            yield from inside.reads(child)

    def assigned(self, node: ast.AST, kind: type[ast.Name | ast.Attribute]) -> dict[str, str | None]:
        """The names, or attributes of ``self``, that hold objects of a config; None for what also holds another."""
        found: dict[str, str | None] = {}
        for each in ast.walk(node):
            if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], kind):
                continue
            if not _WRAPPERS.fullmatch(name := ast.unparse(each.targets[0])):
                path = replace(self, paths={**self.paths, **found}).path(each.value)
                if path is not None or name in found:
                    found[name] = path if found.get(name, path) == path else None
        return found

    def _here(self, node: ast.AST) -> Iterator[KeyRead]:
        """The reads that a node is itself."""
        for key in _keys_of_converter(node):
            yield self.read(key, node, None)
        path = self.path(node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else None
        # An attribute of a module is read where it was assigned.
        held = isinstance(node, ast.Attribute) and ast.unparse(node) in self.paths
        if path and not isinstance(node, ast.Name) and not held:
            # `kwargs.pop("rope_theta", 10000.0)` in the class of a config declares a key.
            declared = self.declares and isinstance(node, ast.Call) and _root(node) not in ("getattr", "self")
            yield self.read(path, node, _default(node), declared=declared)

    def path(self, node: ast.AST) -> str | None:
        """The path of an expression inside a config, empty for the config itself; None for anything else."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id, "" if _CONFIGS.fullmatch(node.id) else None)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.paths:
                return self.paths[f"{node.value.id}.{node.attr}"]
            around = self.path(node.value)
            if _WRAPPERS.fullmatch(node.attr) or (around is None and _CONFIGS.fullmatch(node.attr)):
                return ""
            return _joined(around, node.attr)
        if isinstance(node, ast.Subscript):
            around, key = self.path(node.value), _text(node.slice)
            return None if key is None and not around else _joined(around, key or "*")
        if isinstance(node, ast.Call):
            return self._path_of_call(node)
        return None

    def _path_of_call(self, node: ast.Call) -> str | None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            key = _text(node.args[1])
            return None if key is None else _joined(self.path(node.args[0]), key)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "get_text_config":
                return self.path(node.func.value)
            key = _text(node.args[0]) if node.func.attr in ("get", "pop") and node.args else None
            return None if key is None else _joined(self.path(node.func.value), key)
        return None

    def read(self, key: str, node: ast.AST, default: ast.expr | None, *, declared: bool = False) -> KeyRead:
        said = None if default is None else ast.unparse(default)
        return KeyRead(key, self.file, getattr(node, "lineno", 1), self.owner, self.function, said, declared)


def defaults_of(given: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function, each with its default."""
    places = [*given.posonlyargs, *given.args]
    least = len(places) - len(given.defaults)
    named = [(each, given.defaults[at - least] if at >= least else None) for at, each in enumerate(places)]
    return [*named, *zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def _keys_of_converter(node: ast.AST) -> list[str]:
    """The keys in a call of llama.cpp's converter, which takes the first that a config has."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "find_hparam":
        listed = node.args[0] if node.args else None
        if isinstance(listed, ast.List | ast.Tuple):
            return [key for each in listed.elts if (key := _text(each)) is not None]
    return []


def _default(node: ast.AST) -> ast.expr | None:
    """What a call takes where the key is absent; ``a.get("k") or 1`` is no default, since it replaces zeros too."""
    if not isinstance(node, ast.Call):
        return None
    at = 2 if isinstance(node.func, ast.Name) else 1
    return node.args[at] if len(node.args) > at else None


def _joined(around: str | None, key: str) -> str | None:
    if around is None:
        return None
    return f"{around}.{key}" if around else key


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _root(node: ast.AST) -> str | None:
    """The name at which an expression begins."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
