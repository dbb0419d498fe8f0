"""Checks of a user's functions and modules: laws, exact numbers, and an explanation of what is wrong.

`check_rotary`, `check_additive` and `check_bias` test a function, `check_module` a PyTorch module, `check_attention`
attention layers beside a config, `check_generation` a model with a KV cache, `check_positions` a function that numbers
tokens, `check_encoding` an encoding of one's own, without a reference. `laws` are properties that hold for every
encoding of a kind.

>>> import clockhands as ch
>>> from clockhands.testing import check_rotary
>>> spec = ch.Rotary(head_width=16)
>>> check_rotary(lambda x, positions: ch.rotate(x, spec, positions), spec, length=100).sound
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.testing.encodings import EncodingReport, check_encoding
    from clockhands.testing.functions import check_additive, check_bias, check_rotary
    from clockhands.testing.generation import check_generation
    from clockhands.testing.laws import (
        ADDITIVE,
        BIAS,
        EVERY_KIND,
        LAWS,
        ROTARY,
        BiasSubject,
        Law,
        LawBroken,
        Subject,
        broken,
        kind_of,
        laws_for,
    )
    from clockhands.testing.modules import check_attention, check_module
    from clockhands.testing.positions import check_batch, check_positions
    from clockhands.testing.reports import CannotCheck, CheckFailed, Explanation, Failure, Report

# Every run of pytest imports the plugin, and so this package: its modules are imported on first use. Names that are not
# listed here are in `laws`.
_HOME = {
    "encodings": ("EncodingReport", "check_encoding"),
    "functions": ("check_additive", "check_bias", "check_rotary"),
    "generation": ("check_generation",),
    "modules": ("check_attention", "check_module"),
    "positions": ("check_batch", "check_positions"),
    "reports": ("CannotCheck", "CheckFailed", "Explanation", "Failure", "Report"),
}
_PLACES = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ADDITIVE",
    "BIAS",
    "EVERY_KIND",
    "LAWS",
    "ROTARY",
    "BiasSubject",
    "CannotCheck",
    "CheckFailed",
    "EncodingReport",
    "Explanation",
    "Failure",
    "Law",
    "LawBroken",
    "Report",
    "Subject",
    "broken",
    "check_additive",
    "check_attention",
    "check_batch",
    "check_bias",
    "check_encoding",
    "check_generation",
    "check_module",
    "check_positions",
    "check_rotary",
    "kind_of",
    "laws_for",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'clockhands.testing' has no attribute {name!r}")
    return getattr(import_module(f"clockhands.testing.{_PLACES.get(name, 'laws')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
