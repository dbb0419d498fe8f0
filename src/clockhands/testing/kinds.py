"""The kinds of checks: which check fits an encoding, a function or a module, and which options it takes."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from types import CodeType
from typing import Any, NamedTuple

from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers
from clockhands.encodings.specs import describe
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import did_you_mean, listed, shown
from clockhands.testing._usual_names import meanings
from clockhands.testing.reports import CannotCheck, Report, settled

CHECKS = {
    "rotary": "check_rotary",
    "additive": "check_additive",
    "bias": "check_bias",
    "module": "check_module",
    "attention": "check_attention",
    "generation": "check_generation",
    "positions": "check_positions",
}
"""The name of the check function for each kind."""

_EXPERIMENTS = {
    "rotary": ("functions._rotary", ("SMALL", "EVERY")),
    "additive": ("functions._additive", ("SMALL", "EVERY")),
    "bias": ("functions._biases", ("SMALL", "MEASURED", "EVERY")),
}


def check_of(kind: str) -> Callable[..., Report]:
    """The check function for a kind."""
    return getattr(import_module("clockhands.testing"), CHECKS[kind])


def experiments(kind: str) -> Mapping[str, str]:
    """The experiments of a kind, {name: what it tests}; empty for kinds that have treatments or prompts instead."""
    if kind not in _EXPERIMENTS:
        return {}
    home, names = _EXPERIMENTS[kind]
    module = import_module(f"clockhands.testing.{home}")
    held = [getattr(module, name) for name in names]
    every = [one for group in held for one in (group if isinstance(group, tuple) else (group,))]
    return {one.name: one.asks for one in every}


def spec_of(like: Any) -> Any:
    """The spec that a string names: a preset with fields, the file of a spec, or what a model's files declare.

    ``path/to/model`` is the code of the model's text where all its layers share one, ``path/to/model:layer=5`` that of
    one layer, ``path/to/model:part=indexer`` that of another part. Anything that is not a string is returned as it is.

    Raises:
        InvalidValue: The model's layers have several codes, or none is known whole, or it has no such part.
    """
    if not isinstance(like, str):
        return like
    from clockhands.configs.targets import is_preset, open_target, path_of

    chosen = chosen_in(like)
    if is_preset(like) or like.startswith("preset:") or path_of(chosen.target) is None:
        before, colon, choice = like.partition(":")
        if colon and not is_preset(before) and path_of(before) is not None:
            raise InvalidValue(f"{before} is a model, and {shown(choice)} chooses nothing in it.", _CHOICES)
        return open_target(like if like.startswith("preset:") else f"preset:{like}").spec
    opened = open_target(chosen.target)
    if opened.spec is not None:
        return opened.spec
    return _declared(chosen, resolve(opened).codes)


class Chosen(NamedTuple):
    """A model, and what is chosen in it.

    Attributes:
        target: The model.
        layer: The number of a layer; None for all.
        part: The name of a part, as an audit has it; None for its text.
    """

    target: str
    layer: int | None
    part: str | None

    def codes(self, every: tuple[LayerEncoding, ...]) -> tuple[LayerEncoding, ...]:
        """The codes of the part; raises `InvalidValue` where there is none, with the parts that there are."""
        parts = TEXT if self.part is None else (self.part,)
        own = tuple(code for code in every if code.part in parts)
        if self.part is not None and not own:
            names = dict.fromkeys(code.part for code in every)
            raise InvalidValue(
                f"{self.target} has no part {shown(self.part)}.",
                f"Choose one of {listed([f':part={name}' for name in names], 'or')}.",
            )
        return own


def chosen_in(text: str) -> Chosen:
    """What ``TARGET[:part=NAME][:layer=N]`` names.

    >>> chosen_in("path/to/model:part=indexer:layer=3")
    Chosen(target='path/to/model', layer=3, part='indexer')

    Raises:
        InvalidValue: The layer is no number.
    """
    found: dict[str, str] = {}
    while (last := _CHOICE.fullmatch(text)) is not None:
        text, name, value = last.groups()
        found.setdefault(name, value)
    layer = found.get("layer")
    if layer is not None and not layer.isdecimal():
        raise InvalidValue(
            f"`layer` must be the number of a layer, got {shown(layer)}.",
            f"Such as {text}:layer=0; a part is {text}:part={layer if layer.isalpha() else 'indexer'}.",
        )
    return Chosen(text, None if layer is None else int(layer), found.get("part"))


_CHOICES = "A layer is chosen by :layer=N, another part of the model by :part=NAME, such as :part=indexer."
_CHOICE = re.compile(r"(.+):(layer|part)=([^:]*)")


def other_parts(chosen: Chosen, codes: tuple[LayerEncoding, ...]) -> list[str]:
    """What chooses the other parts whose encoding is known whole, such as ``:part=indexer``."""
    own = {code.part for code in chosen.codes(codes)}
    return [f":part={part}" for part in dict.fromkeys(code.part for code in codes if code.spec) if part not in own]


def _declared(chosen: Chosen, codes: tuple[LayerEncoding, ...]) -> Any:
    """The one spec among the codes of a model's text or of another part, or of one of its layers."""
    model, layer = chosen.target, chosen.layer
    text = [code for code in chosen.codes(codes) if code.kind != "none"]
    if layer is not None:
        text = [code for code in text if code.layers and code.layers != "input" and layer in layer_numbers(code.layers)]
    layers: dict[Any, list[str]] = {}
    for code in text:
        if code.spec is not None:
            layers.setdefault(code.spec, []).append(str(code.layers))
    if len(layers) == 1:
        return next(iter(layers))
    what = [f"{describe(spec)} in layers {','.join(each)}" for spec, each in layers.items()]
    others = other_parts(chosen, codes)
    also = f" Another part is chosen by {listed(others, 'or')}." if others else ""
    raise InvalidValue(
        f"{model} declares {listed(what) if what else 'no encoding that is known whole'}"
        f"{'' if layer is None else f' in layer {layer}'}.",
        (f"Name a layer, such as {model}:layer=0." if what else f"See why: `clockhands audit {model}`.") + also,
    )


def is_module(value: Any) -> bool:
    """Whether the value is a PyTorch module or a subclass of one. False if PyTorch has not been imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return issubclass(value, torch.nn.Module) if isinstance(value, type) else isinstance(value, torch.nn.Module)


def by_names(fn: Any, kind: str | None = None, *, backend: Any = None, timeout: float = 60.0) -> Report | None:
    """The report of the check that needs no encoding, because the names of a function's parameters say what it gives.

    None if there is no such check, of this kind.

    Raises:
        CannotCheck: The function cannot be called like that, or its numbers are those of no known rule.
    """
    homes = {"positions": ("positions",), None: ("positions", "functions")}.get(kind, ("functions",))
    refused = None
    for taken, check in (row for home in homes for row in import_module(f"clockhands.testing.{home}").BY_NAMES):
        takes = taken(fn)
        if takes is None:
            continue
        try:
            return check(fn, takes, backend, timeout)
        except CannotCheck as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return None


def kind_for(fn: Any, like: Any) -> str:
    """The kind of check: ``"module"`` for a PyTorch module, otherwise the kind of the encoding ``like``.

    A module of which no encoding is expected, and which takes token ids and a cache, is a model: ``"generation"``. One
    that holds projections, beside a config, is attention: ``"attention"``.

    Raises:
        CannotCheck: It takes token ids and no cache: what it is for is not known.
        InvalidType: No kind fits.
    """
    if is_module(fn):
        if like is not None:
            return "attention" if is_config(like) and attends(fn) else "module"
        if not takes_tokens(fn) or not _has_table(fn):
            return "module"
        if not any(name in meanings("cache") for name in inspect.signature(fn.forward).parameters):
            taken = list(inspect.signature(fn.forward).parameters)
            model = type(fn).__name__
            raise CannotCheck(
                f"{model} takes token ids, {taken[0]}, and no cache: whether it generates text is not known.",
                "A model that does is checked by check_generation, --kind generation, and code that chooses its tokens "
                "by its name: FILE.py:model.generate. Of an encoder, clockhands audit --live measures the positions in "
                "effect. For one part of it, pass that part.",
            )
        return "generation"
    if like is None:
        raise InvalidType(
            "`like` is missing: the encoding that the function should compute.",
            'Give a spec, or a preset\'s name: like="llama3.1".',
        )
    from clockhands.encodings.additive.codes import AdditiveCode
    from clockhands.encodings.biases.codes import BiasCode
    from clockhands.encodings.rotary import Rotary

    spec = spec_of(like)
    for kind, codes in (("rotary", Rotary), ("additive", AdditiveCode), ("bias", BiasCode)):
        if isinstance(spec, codes):
            return kind
    raise InvalidType(
        f"`like` must be RoPE, an additive encoding or a bias, got {shown(spec)}.",
        'Give a spec, or a preset\'s name: like="llama3.1".',
    )


def is_config(like: Any) -> bool:
    """Whether ``like`` is a config: the path of a model, ``PATH:layer=N``, a dict, or an object with its keys."""
    if isinstance(like, str):
        from clockhands.configs.targets import is_preset, open_target, path_of

        text = chosen_in(like).target
        return not is_preset(text) and path_of(text) is not None and open_target(text).spec is None
    return isinstance(like, Mapping) or callable(getattr(like, "to_dict", None))


def attends(module: Any) -> bool:
    """Whether a module, or a class of modules, may be an attention layer or a model: it holds projections.

    Of a class that is not built, the names in its code are read.
    """
    if isinstance(module, type):
        methods = [method for kind in module.__mro__[:-1] for method in vars(kind).values()]
        return any(_names_of(method.__code__) & _PROJECTIONS for method in methods if hasattr(method, "__code__"))
    linear = any(type(each).__name__ in _PROJECTIONS for each in module.modules())
    tables = sum("Embedding" in type(each).__name__ for each in module.modules())
    return linear or sum(each.ndim == 2 for each in module.parameters()) > tables + 1


def _names_of(code: CodeType) -> set[str]:
    """The names in some code, and in what it holds, such as comprehensions."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names_of, inner))


_PROJECTIONS = frozenset({"Linear", "Conv1D", "MultiheadAttention"})


def takes_tokens(module: Any) -> bool:
    """Whether a module, or a class of modules, takes token ids first."""
    taken = list(inspect.signature(module.forward).parameters)[isinstance(module, type) :]  # without `self`
    return bool(taken) and taken[0] in meanings("tokens")


def keeps_cache(module: Any) -> bool:
    """Whether a module takes a cache, or the number of the tokens before, which it keeps itself."""
    return any(name in meanings("cache", "offset") for name in inspect.signature(module.forward).parameters)


def _has_table(module: Any) -> bool:
    """Whether the module holds a table, as that of its tokens is."""
    return any("Embedding" in type(each).__name__ for each in module.modules())


def check_options(check: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `InvalidValue` for an option that a check does not have."""
    known = [
        name
        for name, parameter in inspect.signature(check).parameters.items()
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD} and name != "raises"
    ]
    for name in options:
        if name not in known:
            raise InvalidValue(
                f"{check.__name__} has no option {name!r}.",
                did_you_mean(name, known, f"It has {', '.join(known)}."),
            )


def check_whole(model: Any, like: Any, *, raises: bool = True, **options: Any) -> Report:
    """Check a model with a cache, or an engine: its layers beside its config, and a text in pieces beside it whole.

    Args:
        model: The model.
        like: Its config.
        raises: Whether a failure is raised.
        options: Options of `check_generation`.

    Returns:
        One report of both; what one of them cannot check is left out, with the reason.

    Raises:
        CheckFailed: Something failed.
        CannotCheck: Neither can check it.
    """
    __tracebackhide__ = True
    generation = attention = refused = None
    try:
        generation = check_of("generation")(model, raises=False, **options)
    except CannotCheck as error:
        refused = error
    try:
        attention = _attention_of(model, like)
    except CannotCheck as error:
        if generation is None:
            raise refused or error from None
        return settled(replace(generation, left_out={**generation.left_out, _LAYERS: error.message}), raises)
    if generation is None:
        assert refused is not None
        left_out = {**attention.left_out, "texts in pieces": refused.message}
        return settled(replace(attention, left_out=left_out), raises)
    both = replace(
        generation,
        like=f"{generation.like}, and layers as in {like}",
        spec=attention.spec or generation.spec,
        experiments=(*attention.experiments, *generation.experiments),
        failures=(*attention.failures, *generation.failures),
        explanations=(*attention.explanations, *generation.explanations),
        left_out={**attention.left_out, **generation.left_out},
    )
    return settled(both, raises)


_LAYERS = "its layers beside the config"


def _attention_of(model: Any, like: Any) -> Report:
    """The report on the attention of a model, or of an engine, which is no module."""
    if not is_module(model):
        engine_module = import_module("clockhands.testing.generation._engine_modules").engine_module
        name, model = type(model).__name__, engine_module(model)
        if model is None:
            raise CannotCheck(f"{name} is not made of PyTorch.", "check_rotary checks the function that rotates.")
    return check_of("attention")(model, like, raises=False)


def check_any(fn: Any = None, like: Any = None, *, raises: bool = True, **options: Any) -> Report:
    """Check a function or a PyTorch module with the check that fits it.

    Args:
        fn: The function or the module.
        like: The encoding that it should compute; optional for a module.
        raises: Whether a failure is raised.
        options: The options of that check.

    Returns:
        The report.

    Raises:
        CheckFailed, CannotCheck: See the checks.
        InvalidType, InvalidValue: No check fits, or it has no such option.

    >>> import clockhands as ch
    >>> spec = ch.Rotary(8)
    >>> check_any(lambda x, positions: ch.rotate(x, spec, positions), spec, length=50).kind
    'rotary'
    """
    __tracebackhide__ = True
    check = check_of(kind_for(fn, like))
    check_options(check, options)
    return check(*([] if fn is None else [fn]), like=like, raises=raises, **options)
