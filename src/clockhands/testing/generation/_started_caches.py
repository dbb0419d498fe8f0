"""Finds how the cache of a model begins, where a call without one returns none: by trying what its code offers.

A way is right only if it has an effect: what the model answers to the second half of a text then depends on the first
half, and on nothing else that was asked before.
"""

import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Unasked
from clockhands.testing.generation._causal_models import CausalModel, TransformersModel

ROOM = 64
"""Tokens of a cache that is made with a fixed size; a text of a check is shorter."""

# What a function that makes a cache may be told, by a part of the name of its argument.
_SIZES = ("len", "seq", "max", "size", "tokens", "capacity")
_BATCHES = ("batch", "bsz")
# A function that makes a cache or a class of caches; other functions with the word in their names are not called.
_MAKER = re.compile(
    r"(_*(make|new|init|initiali[sz]e|create|build|alloc|allocate|empty|prepare|setup|get|reset)_\w*"
    r"(cache|context|ctx|session|state|kv|memory)\w*"
    r"|_*(init|setup)cache|[A-Z]\w*Cache|_*\w*cache_(init|new|empty))",
)
_LEAST = 1e-4  # of the largest logit: more than rounding moves it

Start = Callable[[int], Any]
"""From the number of texts to their empty cache."""


def started(model: CausalModel) -> CausalModel:
    """The model with a cache for each text, if one is found; else itself."""
    with suppress(Refused, Unasked):
        _, cache = model(_text(model)[:, :3])
        if cache is None or "cache" not in model.takes:
            for way in _ways(model):
                with suppress(Refused, Unasked):
                    if _reads_its_cache(way):
                        return way
    return model


def begun(model: CausalModel, opened: Callable[[CausalModel], CausalModel]) -> CausalModel | None:
    """A model that cannot be called without a cache, with the cache that its code offers; None if none is found.

    Args:
        model: The model.
        opened: Calls a model for the first time, which finds its vocabulary.
    """
    for way in _ways(model) if "cache" in model.takes else ():
        if way.starts is not None:
            with suppress(Refused, Unasked):
                made = opened(way)
                if _reads_its_cache(made):
                    return made
    return None


def owners_of(fn: Any) -> list[Any]:
    """The modules of PyTorch that a callable is, is bound to, encloses or names."""
    if "torch" not in sys.modules:
        return []
    held: list[Any] = [fn]
    while isinstance(fn, functools.partial):
        held += [*fn.args, *fn.keywords.values()]
        fn = fn.func
        held.append(fn)
    held.append(object_of(fn))
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is not None:
        held += [fn.__globals__.get(name) for name in code.co_names]
        held += [value for cell in fn.__closure__ or () if (value := _value_of(cell)) is not None]
    held += [value for each in tuple(held) for value in getattr(each, "__dict__", {}).values()]
    found = [each for each in held if isinstance(each, sys.modules["torch"].nn.Module)]
    return list({id(each): each for each in found}.values())


def modules_of(model: CausalModel) -> list[Any]:
    """The modules of PyTorch that a model is, or calls."""
    return [model.model] if isinstance(model, TransformersModel) else owners_of(model.forward)


def object_of(fn: Any) -> Any:
    """The object that a callable is a method of, or that it calls as its engine; None if there is none."""
    return getattr(fn, "__self__", None) or getattr(fn, "owner", None)


def _value_of(cell: Any) -> Any:
    with suppress(ValueError):  # not filled yet
        return cell.cell_contents
    return None


def _ways(model: CausalModel) -> Iterator[CausalModel]:
    """The model with each way in which its cache may begin."""
    fn = model.forward
    named = {"cache": model.names["cache"]} if "cache" in model.names else {}
    others = [] if "cache" in model.takes else [{"cache": name} for name in unknown_arguments(model)]
    for cache in [named] if "cache" in model.takes else others:
        caching = replace(model, names={**model.names, **cache}, takes=model.takes | {"cache"})
        flags = _flags(fn)
        for start in (None, *_starts(fn)):
            if start is not None or others:
                yield replace(caching, starts=start)
            if flags and model.names:
                with_flags = functools.wraps(_signed(fn))(functools.partial(fn, **dict.fromkeys(flags, True)))
                yield replace(caching, forward=with_flags, starts=start)
    if "offset" in model.names and "cache" not in model.takes and isinstance(fn, _module_class()):
        # What is kept is in the module itself: each text has a copy of it.
        def of_copy(cache: Any, **given: Any) -> Any:
            return cache(**given)

        yield replace(
            model,
            forward=of_copy,
            names={**model.names, "cache": "cache"},
            takes=model.takes | {"cache"},
            starts=lambda _: copy.deepcopy(fn),
        )


def _module_class() -> Any:
    return sys.modules["torch"].nn.Module if "torch" in sys.modules else ()


def _signed(fn: Any) -> Any:
    """What has the signature and the code of a callable."""
    return getattr(fn, "forward", fn)


def unknown_arguments(model: CausalModel) -> list[str]:
    """Arguments that may be left out, and of whose names none is known."""
    with suppress(TypeError, ValueError):
        parameters = inspect.signature(_signed(model.forward)).parameters.values()
        known = set(model.names.values())
        return [one.name for one in parameters if one.default is None and one.name not in known] if known else []
    return []


def _flags(fn: Any) -> list[str]:
    """Arguments that are off unless they are passed, and speak of a cache."""
    with suppress(TypeError, ValueError):
        parameters = inspect.signature(_signed(fn)).parameters.values()
        return [one.name for one in parameters if one.default is False and "cache" in one.name]
    return []


def _starts(fn: Any) -> Iterator[Start]:
    """Empty caches: what the object, and the file that its class or function is from, can make; a dict; a list."""
    held = object_of(fn)
    owners = [*owners_of(fn), fn, *([] if held is None or held in owners_of(fn) else [held])]
    layers = max((len(each) for owner in owners for each in _lists(owner)), default=1)
    makers = [getattr(owner, name) for owner in owners for name in dir(type(owner)) if _MAKER.fullmatch(name)]
    for owner in owners:
        code = getattr(type(owner), "forward", None) or getattr(owner, "__func__", owner)
        defined: Mapping[str, Any] = getattr(code, "__globals__", {})
        makers += [each for name, each in defined.items() if _MAKER.fullmatch(name)]
    unique = {id(maker): maker for maker in makers if callable(maker) and not isinstance(maker, _module_class())}
    for maker in unique.values():
        for owner in owners:
            if (start := _made_by(maker, owner)) is not None:
                yield start
                yield lambda batch, start=start: [start(1) for _ in range(batch)]
                yield lambda batch, start=start: [start(batch) for _ in range(layers)]
    yield lambda _: {}
    yield lambda _: [{} for _ in range(layers)]
    yield lambda _: []


def _lists(owner: Any) -> Iterator[Any]:
    for each in owner.modules() if isinstance(owner, _module_class()) else ():
        if isinstance(each, sys.modules["torch"].nn.ModuleList):
            yield each


def _made_by(maker: Any, owner: Any) -> Start | None:
    """A function or class called with what its arguments ask for; None if one of them is not known."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return None
    given: dict[str, Callable[[int], Any]] = {}
    for one in parameters:
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            continue
        name = one.name.lower()
        if name == "b" or any(part in name for part in _BATCHES):
            given[one.name] = lambda batch: batch
        elif one.default is not one.empty:
            continue
        elif any(part in name for part in _SIZES):
            given[one.name] = lambda _: ROOM
        elif "config" in name or name == "cfg":
            given[one.name] = lambda _: owner.config
        elif "layers" in name:
            given[one.name] = lambda _: max((len(each) for each in _lists(owner)), default=1)
        elif isinstance(owner, _module_class()):
            given[one.name] = lambda _: owner
        else:
            return None
    return lambda batch: maker(**{name: value(batch) for name, value in given.items()})


def _text(model: CausalModel) -> np.ndarray:
    return np.arange(6)[None] % model.vocabulary


def _reads_its_cache(model: CausalModel) -> bool:
    text = _text(model)

    def second_half(first_half: np.ndarray) -> np.ndarray:
        _, (logits, _) = model.in_pieces(np.append(first_half, text[:, 3:], axis=1), [3])
        return logits

    one, again, other = map(second_half, (text[:, :3], text[:, :3], text[:, 1:4]))
    least = _LEAST * np.abs(one).max()
    return bool(np.abs(again - one).max() <= least < np.abs(other - one).max())
