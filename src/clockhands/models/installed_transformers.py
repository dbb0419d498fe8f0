"""What clockhands needs of the installed Transformers beyond its public names, and the same in older releases.

Tried with the releases that ``tests/releases/environments.toml`` names.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import transformers
from packaging.version import Version
from transformers import modeling_rope_utils

RELEASE = Version(transformers.__version__)


def dtype_option(dtype: Any) -> Mapping[str, Any]:
    """The argument of ``from_pretrained`` that sets the dtype of the weights; it was renamed in 4.56."""
    return {"dtype" if Version("4.56") <= RELEASE else "torch_dtype": dtype}


def gguf_reading() -> ModuleType | None:
    """The module that reads GGUF files, where it has the progress bar ``tqdm`` that is taken out of it."""
    found = import_module("transformers.modeling_gguf_pytorch_utils")
    return found if hasattr(found, "tqdm") else None


def add_rope_type(name: str, standard: str, frequencies: Callable[..., Any]) -> None:
    """Let ``rope_type: name`` in a config select a function of frequencies, with the validation of a standard type.

    The function is called with a config and a device, from Transformers 5 on also with ``layer_type``, and returns
    frequencies and attention factor. A second call changes nothing.
    """
    modeling_rope_utils.ROPE_INIT_FUNCTIONS.setdefault(name, frequencies)
    mixin = getattr(modeling_rope_utils, "RotaryEmbeddingConfigMixin", None)
    if mixin is None:  # Transformers 4
        known: Any = getattr(modeling_rope_utils, "ROPE_VALIDATION_FUNCTIONS", {})
        if standard in known:
            known.setdefault(name, known[standard])
        return

    def validate(self: Any, rope_parameters: Any, ignore_keys: Any = None) -> None:
        getattr(self, f"_validate_{standard}_rope_parameters")(rope_parameters, ignore_keys=ignore_keys)

    setattr(mixin, f"_validate_{name}_rope_parameters", validate)
