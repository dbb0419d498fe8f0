"""Position encodings of transformers: compute them exactly, apply them, and audit the settings of a real model.

Each public name is imported on first use, so ``import clockhands`` loads neither PyTorch nor JAX.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from clockhands.auditing import audit
    from clockhands.conversion import convert_table
    from clockhands.encodings.additive import Learned, NoPosition, Sinusoidal, add, table
    from clockhands.encodings.biases import Alibi, Buckets, bias
    from clockhands.encodings.clocks import kernel, shift
    from clockhands.encodings.presets import preset
    from clockhands.encodings.rotary import Rotary, rotate
    from clockhands.encodings.specs import describe, from_json, to_json
    from clockhands.measures import properties
    from clockhands.probes import probe
    from clockhands.recognition import identify
    from clockhands.testing import (
        check_additive,
        check_batch,
        check_bias,
        check_generation,
        check_module,
        check_positions,
        check_rotary,
    )

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
    "check_additive",
    "check_batch",
    "check_bias",
    "check_generation",
    "check_module",
    "check_positions",
    "check_rotary",
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

# Where each public name is defined.
_HOME = {
    "Alibi": "encodings.biases",
    "Buckets": "encodings.biases",
    "Learned": "encodings.additive",
    "NoPosition": "encodings.additive",
    "Rotary": "encodings.rotary",
    "Sinusoidal": "encodings.additive",
    "add": "encodings.additive",
    "audit": "auditing",
    "bias": "encodings.biases",
    "check_additive": "testing",
    "check_batch": "testing",
    "check_bias": "testing",
    "check_generation": "testing",
    "check_module": "testing",
    "check_positions": "testing",
    "check_rotary": "testing",
    "convert_table": "conversion",
    "describe": "encodings.specs",
    "from_json": "encodings.specs",
    "identify": "recognition",
    "kernel": "encodings.clocks",
    "preset": "encodings.presets",
    "probe": "probes",
    "properties": "measures",
    "rotate": "encodings.rotary",
    "shift": "encodings.clocks",
    "table": "encodings.additive",
    "to_json": "encodings.specs",
}

_SUBMODULES = frozenset(
    {
        "auditing",
        "conversion",
        "encodings",
        "errors",
        "jax",
        "measures",
        "probes",
        "recognition",
        "show",
        "testing",
        "torch",
        "transformers",
    }
)

# Public modules that also have a shorter path: ``clockhands.scaling`` is ``clockhands.encodings.scaling``.
_SHORT = {
    name: f"encodings.{name}"
    for name in (
        "additive", "biases", "clocks", "grids", "heads", "ladders", "layouts", "mixtures", "presets", "rotary",
        "sampling", "scaling", "scores", "sharding", "specs",
    )
} | {"claims": "measures.claims"}  # fmt: skip


class _ShortPaths:
    """Imports ``clockhands.scaling`` as the module ``clockhands.encodings.scaling``, the same object."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":  # noqa: ARG004 - the protocol of finders
        package, _, rest = name.partition(".")
        if package != __name__ or rest.partition(".")[0] not in _SHORT:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, _ShortPaths)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: "ModuleSpec") -> "ModuleType":
        head, dot, rest = spec.name.partition(".")[2].partition(".")
        module = import_module(f"{__name__}.{_SHORT[head]}{dot}{rest}")
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: Any) -> None:
        module.__spec__ = module.__spec__.loader_state  # importing replaced it


# First, because the usual finder would load a part of such a module a second time, under another name.
sys.meta_path.insert(0, _ShortPaths)  # type: ignore[arg-type]


def __getattr__(name: str) -> object:
    home = _HOME.get(name) or _SHORT.get(name) or (name if name in _SUBMODULES else None)
    if home is None:
        raise AttributeError(f"module 'clockhands' has no attribute {name!r}")
    try:
        value = import_module(f"clockhands.{home}")
    except ModuleNotFoundError as missing:
        # An AttributeError, so that `hasattr` and `help` work where PyTorch or JAX is not installed.
        if str(missing.name).partition(".")[0] == "clockhands":
            raise
        raise AttributeError(f"clockhands.{name} is not available: {missing}.") from missing
    globals()[name] = value = getattr(value, name) if name in _HOME else value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES, *_SHORT})
