"""Position encodings of transformers: compute them exactly, apply them, and audit the settings of a real model.

Each public name is imported on first use, so ``import clockhands`` loads neither PyTorch nor JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clockhands.additive import Learned, NoPosition, Sinusoidal, add, table
    from clockhands.auditing import audit
    from clockhands.biases import Alibi, Buckets, bias
    from clockhands.clocks import kernel, shift
    from clockhands.conversion import convert_table
    from clockhands.measures import properties
    from clockhands.presets import preset
    from clockhands.probes import probe
    from clockhands.recognition import identify
    from clockhands.rotary import Rotary, rotate
    from clockhands.specs import describe, from_json, to_json

__version__ = "0.1.0"

__all__ = [
    "Alibi",
    "Buckets",
    "Learned",
    "NoPosition",
    "Rotary",
    "Sinusoidal",
    "add",
    "audit",
    "bias",
    "convert_table",
    "describe",
    "from_json",
    "identify",
    "kernel",
    "preset",
    "probe",
    "properties",
    "rotate",
    "shift",
    "table",
    "to_json",
]

_HOME = {
    "Alibi": "biases",
    "Buckets": "biases",
    "Learned": "additive",
    "NoPosition": "additive",
    "Rotary": "rotary",
    "Sinusoidal": "additive",
    "add": "additive",
    "audit": "auditing",
    "bias": "biases",
    "convert_table": "conversion",
    "describe": "specs",
    "from_json": "specs",
    "identify": "recognition",
    "kernel": "clocks",
    "preset": "presets",
    "probe": "probes",
    "properties": "measures",
    "rotate": "rotary",
    "shift": "clocks",
    "table": "additive",
    "to_json": "specs",
}

_SUBMODULES = frozenset(
    {
        "additive",
        "auditing",
        "biases",
        "clocks",
        "conversion",
        "errors",
        "grids",
        "heads",
        "jax",
        "ladders",
        "layouts",
        "measures",
        "mixtures",
        "presets",
        "probes",
        "recognition",
        "rotary",
        "sampling",
        "scaling",
        "scores",
        "sharding",
        "show",
        "specs",
        "torch",
        "transformers",
    }
)


def __getattr__(name: str) -> object:
    if name not in _HOME and name not in _SUBMODULES:
        raise AttributeError(f"module 'clockhands' has no attribute {name!r}")
    try:
        if name in _HOME:
            value = getattr(import_module(f"clockhands.{_HOME[name]}"), name)
        else:
            value = import_module(f"clockhands.{name}")
    except ModuleNotFoundError as missing:
        # An AttributeError, so that `hasattr` and `help` work where PyTorch or JAX is not installed.
        if str(missing.name).partition(".")[0] == "clockhands":
            raise
        raise AttributeError(f"clockhands.{name} is not available: {missing}.") from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
