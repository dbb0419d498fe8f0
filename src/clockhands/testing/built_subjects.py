"""Builds a class of the user's for the config of a model: it is given the config whole, or its numbers by their names.

Weights are drawn, the same in each run: no class says how the files of a model are read.
"""

import ast
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clockhands.configs.callables import module_of_source, text_of_file
from clockhands.configs.own_encodings import seeded
from clockhands.configs.targets import open_target
from clockhands.errors import ClockhandsError
from clockhands.phrases import listed
from clockhands.recognition.calling import EndsProcess, error_text
from clockhands.testing._usual_names import meanings, usual_names
from clockhands.testing.kinds import is_module, takes_tokens
from clockhands.testing.reports import CannotCheck

CONFIG = "config.json"
_SIZES = (
    "hidden size", "heads", "key heads", "head size", "number of layers", "vocabulary", "feed-forward size", "theta",
    "seq_len",
)  # fmt: skip
_GIVEN = ("config", *_SIZES, "number of the layer", "folder", "config file", "model", "device", "dtype")
_MEANT = meanings(*_GIVEN)
_WHOLE = frozenset({"config", "folder", "config file"})
_ROTATES = ("rot", "rope")
_LOADS = re.compile(r"(load|build|make|create)$|(load|build|make|get|create)_?(\w+_)?model")
_MOST, _FEW_TOKENS = 250_000_000, 1024  # numbers of a class that is built
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def config_beside(file: Path) -> Path | None:
    """The config of the model in whose folder, or in a folder of which, a file of code is; None if there is none."""
    folders = (file.resolve().parent, file.resolve().parent.parent)
    return next((folder / CONFIG for folder in folders if (folder / CONFIG).is_file()), None)


def takes_config(value: Any) -> bool:
    """Whether a class needs arguments that a config gives, or a function the config itself."""
    needed = _needed(value)
    if not needed or None in map(_meant, needed):
        return False
    return isinstance(value, type) or (inspect.isroutine(value) and takes_whole(value))


def takes_whole(value: Any) -> bool:
    """Whether a class or a function needs the config itself, or the folder of a model."""
    return not _WHOLE.isdisjoint(map(_meant, _needed(value)))


def needed_of(value: Any) -> list[str]:
    """The arguments without which a class, or a function, cannot be called."""
    return [one.name for one in _needed(value)]


def _needed(value: Any) -> list[inspect.Parameter]:
    return [one for one in _parameters(value) if one.default is one.empty] if callable(value) else []


def built_for(value: Any, config: Path, layer: int = 0) -> Any:
    """What a class or a function makes of a config: of each argument the values that it may mean are tried.

    An argument that is the number of a layer gets ``layer``.

    Raises:
        CannotCheck: It makes nothing of any; the message says what it raised.
    """
    held = _config_of(config)
    raised: list[str] = []
    for whole in _wholes(value, held):
        try:
            with seeded(0):
                return value(**_arguments(value, whole, held, config, layer))
        except ClockhandsError:
            raise
        except (Exception, EndsProcess) as error:  # noqa: BLE001 - a user's code may raise anything
            raised.append(error_text(error))
    raise CannotCheck(
        f"{value.__name__} was built for {config}, but it raised {listed(dict.fromkeys(raised), 'and')}.",
        f"Name a function without arguments that returns it: def built(): return {value.__name__}(...).",
    )


def loaded_instance(value: Any) -> Any:
    """What the loader beside a class gives, if that is an instance of it; else None."""
    made = _loaded(value)
    return made if made is not None and isinstance(made, value) else None


def cut_of(config: Path) -> str:
    """Which of its layers and tokens a class is built with, in words; empty where it is built whole."""
    return _cut(open_target(str(config)).config or {})[1]


def _config_of(path: Path) -> Mapping[str, Any]:
    return _cut(open_target(str(path)).config or {})[0]


def _cut(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """A config with fewer layers and tokens, where a class of its sizes would have more than `_MOST` numbers.

    Raises:
        CannotCheck: One layer alone has more than four times as many.
    """
    width, layers, tokens = (_number(each, config) for each in ("hidden size", "number of layers", "vocabulary"))
    if not all(isinstance(each, int) and each > 0 for each in (width, layers, tokens)):
        return config, ""
    held = {**config, **(config.get("text_config") or {})}
    experts = next((held[name] for name in _EXPERTS if isinstance(held.get(name), int)), 1)
    inner = held.get("moe_intermediate_size") or _number("feed-forward size", config) or 4 * width
    a_layer = 4 * width**2 + 3 * width * inner * max(experts, 1)
    if layers * a_layer + 2 * tokens * width <= _MOST:
        return config, ""
    few_tokens = min(tokens, _FEW_TOKENS)
    few = max(1, min(layers, (_MOST - 2 * few_tokens * width) // a_layer))
    if few * a_layer > 4 * _MOST:
        raise CannotCheck(
            f"One layer in the sizes of the config has {a_layer:,} numbers, which is too many to draw.",
            "Name a config with a smaller width or fewer experts: --like path/to/config.json.",
        )
    made = {"number of layers": few, "vocabulary": few_tokens}
    names = {name: size for quantity, size in made.items() for name in (quantity, *usual_names(quantity))}

    def changed(part: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: names.get(name, each) if isinstance(each, int) else each for name, each in part.items()}
        ids = {name for name, each in found.items() if name.endswith("_token_id") and isinstance(each, int)}
        return found | {name: min(found[name], few_tokens - 1) for name in ids}

    smaller = changed(config)
    if isinstance(config.get("text_config"), Mapping):
        smaller["text_config"] = changed(config["text_config"])
    return smaller, f"{few:,} of {layers:,} layers and {few_tokens:,} of {tokens:,} tokens"


def with_paths(function: Any, config: Path | None) -> Any:
    """A function whose arguments for a model, its folder or its config are given; itself if it has none."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    needed = [one for one in signature.parameters.values() if one.default is one.empty]
    files = [one for one in needed if config is not None and _MEANT.get(one.name) in _WHOLE]
    given: dict[str, Any] = {}
    if files and config is not None:
        every = _arguments(function, ReadConfig(_config_of(config)), {}, config)
        given = {one.name: every[one.name] for one in files if one.name in every}
    models = [one.name for one in needed if _MEANT.get(one.name) == "model"]
    made = {name: _loaded(function) for name in models}  # a draft is a model of its own
    given |= {name: model for name, model in made.items() if model is not None}
    if not given:
        return function

    @functools.wraps(function)
    def with_given(*arguments: Any, **named: Any) -> Any:
        return function(**given, **_by_name(signature, given, arguments), **named)

    left = [one for one in signature.parameters.values() if one.name not in given]
    with_given.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    return with_given


def _by_name(signature: inspect.Signature, given: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, Any]:
    """Arguments by position with the names of the parameters that are left."""
    return dict(zip((name for name in signature.parameters if name not in given), arguments, strict=False))


class ReadConfig(dict[str, Any]):
    """A config by keys and by attributes, also by the other usual names of its numbers."""

    def __getattr__(self, name: str) -> Any:
        try:
            found = self[name]
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None
        return ReadConfig(found) if isinstance(found, Mapping) else found

    def __missing__(self, name: str) -> Any:
        found = _of_name(name, self)
        if found is None:
            raise KeyError(name)
        return found


def _of_name(name: str, config: Mapping[str, Any]) -> Any:
    """A number of a config by another of its names; None if it has none."""
    quantity = _MEANT.get(name)
    return None if quantity not in _SIZES else _number(quantity, config)


def _number(quantity: str, config: Mapping[str, Any]) -> Any:
    held = {**config, **(config.get("text_config") or {})}
    found = next((held[name] for name in (quantity, *usual_names(quantity)) if held.get(name) is not None), None)
    if found is not None:
        return found
    if quantity == "key heads":
        return _number("heads", config)
    if quantity == "theta":
        inner = [held.get(name) for name in ("rope_parameters", "rope_scaling")]
        return next((each["rope_theta"] for each in inner if isinstance(each, Mapping) and "rope_theta" in each), None)
    width, heads = (_number(each, config) for each in ("hidden size", "heads")) if quantity == "head size" else (0, 0)
    return width // heads if width and heads else None


def _parameters(value: Any) -> list[inspect.Parameter]:
    try:
        every = inspect.signature(value, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError, SyntaxError):
        return []
    return [one for one in every if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}]


def _meant(parameter: inspect.Parameter) -> str | None:
    """What an argument is; of one with a class of the file as its annotation, an object of that."""
    if _is_own_class(parameter.annotation) and _MEANT.get(parameter.name) != "config":
        return "object"
    return _MEANT.get(parameter.name)


def _is_own_class(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation.__module__ not in {
        "builtins",
        "inspect",
        "torch",
        "typing",
        "pathlib",
    }


def _model_class(value: Any) -> Any:
    """The class of a model in the file of another class: a module that takes token ids; None if there is none."""
    held = vars(sys.modules.get(value.__module__, object))
    own = [each for each in held.values() if is_module(each) and each is not value and takes_config(each)]
    own = [each for each in own if each.__module__ == value.__module__ and takes_tokens(each)]
    return own[-1] if own else None


def _model_for(value: Any, config: Path) -> Any:
    """A model for a class that takes one: of a class in its file, or what a loader gives, there or in a file beside."""
    if (kind := _model_class(value)) is None:
        return _loaded(value)
    try:
        return built_for(kind, config)
    except CannotCheck:
        if (made := _loaded(value)) is None:
            raise
        return made


def _loaded(value: Any) -> Any:
    """What the loader of a model gives, in the file of a class or function or in one beside; None if there is none."""
    held = vars(sys.modules.get(value.__module__, object))
    loaders = [each for name, each in held.items() if _LOADS.match(name) and inspect.isfunction(each)]
    loaders = [each for each in loaders if not _needed(each)] or _loaders_beside(Path(held.get("__file__", "")))
    if not loaders:
        return None
    try:
        return loaders[0]()
    except (Exception, EndsProcess) as error:
        raise CannotCheck(
            f"{loaders[0].__name__} was called for the model of {value.__name__}, but it raised {error_text(error)}.",
            f"Name a function without arguments that returns it: def built(): return {value.__name__}(...).",
        ) from error


def _loaders_beside(file: Path) -> list[Any]:
    """The function of a file in the same folder that gives a model, if there is one alone.

    A file is run for that only if its top level imports, defines, and assigns without calls, but of paths and the like.
    """
    found = []
    for path in sorted(file.parent.glob("*.py")) if file.is_file() else ():
        with suppress(ClockhandsError, SyntaxError):
            source = text_of_file(path)
            tree = ast.parse(source)
            names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and _LOADS.match(each.name)]
            if path != file and names and all(map(_only_defines, tree.body)):
                known = sys.modules.get(path.stem)  # as another file of the folder imported it
                made = known if getattr(known, "__file__", "") == str(path) else module_of_source(source, path)
                found += [each for name in names if not _needed(each := getattr(made, name))]
    return found if len(found) == 1 else []


def _only_defines(node: ast.stmt) -> bool:
    said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    assigns = isinstance(node, ast.Assign | ast.AnnAssign)
    called = [ast.unparse(each.func).rpartition(".")[2] for each in ast.walk(node) if isinstance(each, ast.Call)]
    calls = assigns and not _HARMLESS.issuperset(called)
    return said or main or isinstance(node, _DEFINITIONS) or (assigns and not calls)


_HARMLESS = frozenset({
    "Path", "resolve", "absolute", "abspath", "dirname", "join", "with_name", "getLogger", "TypeVar", "namedtuple",
    "frozenset", "set", "dict", "list", "tuple", "range", "int", "float",
})  # fmt: skip
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _wholes(value: Any, held: Mapping[str, Any]) -> Iterator[Any]:
    """The config as the objects that code takes: one of its own class, a mapping with attributes, Transformers' own."""
    for parameter in _parameters(value):
        if _meant(parameter) == "config" and _is_own_class(parameter.annotation):
            kind = parameter.annotation
            given = {
                name: found for name in _fields(kind) if (found := held.get(name, _of_name(name, held))) is not None
            }
            try:
                yield kind(**given)
            except Exception:  # noqa: BLE001 - a user's code may raise anything
                continue
    flat = {**held, **(held.get("text_config") or {})}
    yield ReadConfig(flat)
    if "torch" in sys.modules and held.get("model_type"):
        try:
            from clockhands.models.built_classes import class_config

            yield class_config(held)
        except (ClockhandsError, ImportError):
            return


def _fields(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    return [parameter.name for parameter in _parameters(kind)]


def _arguments(value: Any, whole: Any, held: Mapping[str, Any], config: Path, layer: int = 0) -> dict[str, Any]:
    """The arguments of a class: all that it needs, and those with a default that the config says otherwise."""
    given: dict[str, Any] = {}
    parameters = _parameters(value)
    named = {_meant(one) for one in parameters}
    rotates = "heads" not in named and any(word in value.__name__.lower() for word in _ROTATES)
    for one in parameters:
        meant = _meant(one)
        if meant == "object":
            if one.default is one.empty:
                given[one.name] = built_for(one.annotation, config)
            continue
        if meant == "model" and one.default is one.empty and (model := _model_for(value, config)) is not None:
            given[one.name] = model
            continue
        if meant == "hidden size" and rotates:
            meant = "head size"
        values = {
            "config": whole, "number of the layer": layer, "folder": str(config.parent), "config file": str(config),
            "device": "cpu",
        }  # fmt: skip
        found = values[meant] if meant in values else _number(meant, held) if meant in _SIZES else None
        if one.default is one.empty and meant == "dtype":
            found = getattr(sys.modules.get("torch"), "float32", "float32")
        wanted = one.default is one.empty or (meant in _SIZES and not _WHOLE & named)
        wanted = wanted or (meant == "number of the layer" and layer > 0)
        if wanted and found is not None:
            given[one.name] = found
    return given
