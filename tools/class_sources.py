"""The source of classes and functions of a library, in a form that is the same for copies of them."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any

from torch import nn

from clockhands.models.class_modules import PositionModules, modeling_code, own_modules

# What the names of classes that attend or hold positions have in them.
_POSITIONS = re.compile(r"pos|rot|rope|rel|sin|alibi|att|twoway|embed|window|mixer|conv", re.IGNORECASE)


@cache
def definitions(file: str) -> Mapping[str, str]:
    """The source of each class and function of a file by its qualified name; ``inspect`` parses a file for each."""
    lines = Path(file).read_text(encoding="utf-8").splitlines(keepends=True)
    found: dict[str, str] = {}

    def look(node: ast.AST, inside: str) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ClassDef | ast.FunctionDef):
                first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
                found[inside + each.name] = "".join(lines[first - 1 : each.end_lineno])
                look(each, f"{inside}{each.name}.")
            elif isinstance(each, ast.If | ast.Try):
                look(each, inside)

    look(ast.parse("".join(lines)), "")
    return found


def source_of(thing: type | Callable[..., Any]) -> str:
    """The source of a class or a function."""
    real = thing if isinstance(thing, type) else inspect.unwrap(thing)
    return definitions(sys.modules[real.__module__].__file__ or "").get(real.__qualname__, "")


@cache
def plain(source: str) -> str:
    """A source without comments and names of classes, by which copies are recognised."""
    source = re.sub(r'"""[\s\S]*?"""|#.*', "", source)
    return re.sub(r"\s+", " ", re.sub(r"\b[A-Z]\w*(?=Config|Rot|RoPE|Rope|Attention|Position)", "X", source))


def signature(module: nn.Module) -> str:
    """What a rotary module does when it is called, in a form that is the same for copies of it."""
    kind = type(module)
    left_out = ("__init__", "compute_default_rope_parameters")
    methods = [each for name, each in sorted(vars(kind).items()) if inspect.isfunction(each) and name not in left_out]
    sections = re.findall(r"mrope_section[^\n]*", source_of(kind.__init__))
    return plain("".join(map(source_of, methods)) + "".join(sections))


@cache
def taken_keys(kind: type) -> Mapping[str, Any]:
    """The keys that the code of a config class takes from what it is given, and their defaults where it writes them."""
    calls = [node for node in ast.walk(ast.parse(dedent(source_of(kind)))) if isinstance(node, ast.Call) and node.args]
    taken: dict[str, Any] = {}
    for call in calls:
        key, default = call.args[0], call.args[-1]
        if ast.unparse(call.func) in ("kwargs.pop", "kwargs.get") and isinstance(key, ast.Constant):
            taken.setdefault(
                str(key.value), default.value if isinstance(default, ast.Constant) and default is not key else None
            )
    return taken


def rotating_conditions(found: PositionModules) -> frozenset[str]:
    """On what the modules of a model rotate queries and keys, as their code says it.

    That a module has the rotary module that it was made with is no condition.
    """
    kinds = own_classes(found)
    modules = {type(module): module for _, module in own_modules(found.model, []) if type(module) in kinds}
    return frozenset(
        ast.unparse(node.test)
        for kind, module in modules.items()
        for node in ast.walk(ast.parse(dedent(source_of(kind))))
        if isinstance(node, ast.If) and any(map(_rotates, node.body)) and not any(map(_rotates, node.orelse))
        if not _has_module(node.test, module)
    )


def _has_module(test: ast.expr, module: nn.Module) -> bool:
    match test:
        case ast.Compare(left=ast.Attribute(value=ast.Name(id="self"), attr=name), ops=[ast.IsNot()]):
            return isinstance(getattr(module, name, None), nn.Module)
        case _:
            return False


def _rotates(statement: ast.stmt) -> bool:
    called = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(name.startswith("apply_rot") for name in called)


def own_classes(found: PositionModules) -> set[type]:
    """The classes of the modules of a model that are in the file of its type."""
    code = modeling_code(found.config).__name__
    return {type(module) for _, module in own_modules(found.model, []) if type(module).__module__ == code}


def rotations(found: PositionModules) -> frozenset[str]:
    """The functions by which the modules of a model rotate queries and keys, with those that they call."""
    code = modeling_code(found.config)
    functions = {
        name: each for name, each in inspect.getmembers(code, inspect.isfunction) if re.search(r"rot|rope", name)
    }
    text = "".join(map(source_of, own_classes(found)))
    called = {name for name in functions if re.search(rf"\b{name}\b", text)}
    called |= {
        other for name in called for other in functions if re.search(rf"\b{other}\b", source_of(functions[name]))
    }
    return frozenset(plain(re.sub(r"\b\w*rot\w*(?=\()", "f", source_of(functions[name]))) for name in called)


def indexer_source(model: nn.Module) -> str | None:
    """What the indexer of a sparse attention does; None without one."""
    kinds = [type(module) for _, module in own_modules(model, []) if type(module).__name__.endswith("Indexer")]
    return plain(source_of(kinds[0].forward)) if kinds else None


def position_sources(found: PositionModules) -> Mapping[str, str]:
    """The sources of what attends or holds positions in a model, by the name of the class without that of the type."""
    classes = own_classes(found)
    letters = zip(*(each.__name__ for each in classes), strict=False) if len(classes) > 1 else ()
    shared = "".join(column[0] for column in takewhile(lambda column: len(set(column)) == 1, letters))
    prefix = shared or type(found.config).__name__.removesuffix("Config")
    while prefix and not any(each.__name__.startswith(prefix) for each in classes):
        prefix = prefix[:-1]
    names = {each: each.__name__.removeprefix(prefix) for each in classes}
    return {
        name: re.sub(rf"\b{re.escape(prefix)}", "", re.sub(r'"""[\s\S]*?"""|#.*|\s+', " ", source_of(each)))
        for each, name in names.items()
        if _POSITIONS.search(name)
    }


def likeness(ours: Mapping[str, str], theirs: Mapping[str, str]) -> float:
    """The share of the classes of two models that both have, with the same source counted twice, from 0 to 1."""
    if not ours or not theirs:
        return 0.0
    both = ours.keys() & theirs.keys()
    return (len(both) + sum(ours[name] == theirs[name] for name in both)) / (2 * len(ours.keys() | theirs.keys()))
