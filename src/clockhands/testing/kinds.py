"""The kinds of checks: which one a code, a function or a module is for, and which options it takes."""

import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from clockhands.arguments import shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing.reports import Report

CHECKS = {
    "rotary": "check_rotary",
    "additive": "check_additive",
    "bias": "check_bias",
    "module": "check_module",
    "generation": "check_generation",
}
"""Every kind and the name of its check."""

_EXPERIMENTS = {
    "rotary": ("functions._rotary", ("SMALL", "EVERY")),
    "additive": ("functions._additive", ("SMALL", "EVERY")),
    "bias": ("functions._biases", ("SMALL", "MEASURED", "EVERY")),
}


def check_of(kind: str) -> Callable[..., Report]:
    """The check of a kind."""
    return getattr(import_module("clockhands.testing"), CHECKS[kind])


def experiments(kind: str) -> Mapping[str, str]:
    """What each experiment of a kind of code asks, by its name; empty for modules and models, which are treated."""
    if kind not in _EXPERIMENTS:
        return {}
    home, names = _EXPERIMENTS[kind]
    module = import_module(f"clockhands.testing.{home}")
    held = [getattr(module, name) for name in names]
    every = [one for group in held for one in (group if isinstance(group, tuple) else (group,))]
    return {one.name: one.asks for one in every}


def spec_of(like: Any) -> Any:
    """The spec that is meant: itself, or a preset by its name with fields."""
    if not isinstance(like, str):
        return like
    from clockhands.sources.targets import open_target

    return open_target(like if like.startswith("preset:") else f"preset:{like}").spec


def is_module(value: Any) -> bool:
    """Whether it is a PyTorch module or a class of them; one can only be there where PyTorch has been imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return issubclass(value, torch.nn.Module) if isinstance(value, type) else isinstance(value, torch.nn.Module)


def kind_for(fn: Any, like: Any) -> str:
    """The check that fits: a PyTorch module's, or that of the code."""
    if is_module(fn):
        return "module"
    if like is None:
        raise InvalidType(
            "`like` is missing: the encoding that the function should compute.",
            'Give a spec, or a preset\'s name: like="llama3.1".',
        )
    from clockhands.additive.codes import AdditiveCode
    from clockhands.biases.codes import BiasCode
    from clockhands.rotary import Rotary

    spec = spec_of(like)
    for kind, codes in (("rotary", Rotary), ("additive", AdditiveCode), ("bias", BiasCode)):
        if isinstance(spec, codes):
            return kind
    raise InvalidType(
        f"`like` must be RoPE, an additive encoding or a bias, got {shown(spec)}.",
        'Give a spec, or a preset\'s name: like="llama3.1".',
    )


def check_options(check: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a check does not have."""
    known = [
        name
        for name, parameter in inspect.signature(check).parameters.items()
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD} and name != "raises"
    ]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidValue(
                f"{check.__name__} has no option {name!r}.",
                f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}.",
            )


def check_any(fn: Any = None, like: Any = None, *, raises: bool = True, **options: Any) -> Report:
    """Check a function as the code that it should be, or a PyTorch module, whichever it is.

    Args:
        fn: The function or the module.
        like: The code that it should be; a module can do without.
        raises: Whether a failure is raised.
        options: Those of the check that fits.

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
