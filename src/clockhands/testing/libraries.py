"""Arrays of any library: given as a function takes them, and back."""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from clockhands.arguments import shown
from clockhands.dtypes import output_dtype
from clockhands.errors import InvalidType
from clockhands.recognition.functions_calling import as_numpy, library_name, likely_libraries

FLOATS = ("float64", "float32", "float16", "bfloat16")
LIBRARIES = ("numpy", "torch", "jax")

# Half the distance of neighbouring numbers, relative to their size: what one rounding is off by, at most.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
# What is lost below the smallest normal number.
TINY = {"bfloat16": 2.0**-133, "float16": 2.0**-25, "float32": 2.0**-149, "float64": 0.0}


class Library:
    """A library that arrays can be given in.

    Attributes:
        name: What it is called by in a report.
    """

    def __init__(self, backend: Any) -> None:
        """Take a name (numpy, torch, jax) or a module of the array API."""
        self.module = None if isinstance(backend, str) else backend
        if backend not in LIBRARIES if isinstance(backend, str) else not hasattr(backend, "asarray"):
            raise InvalidType(
                f"`backend` must be numpy, torch, jax or a module with the array API, got {shown(backend)}.",
                "Leave it out to have it found.",
            )
        self.name = backend if isinstance(backend, str) else getattr(backend, "__name__", "array API")

    def floats(self, x: np.ndarray, dtype: str) -> Any:
        """Numbers in this dtype."""
        if self.name == "numpy":
            return x.astype(output_dtype(dtype))
        if self.name == "torch":
            torch = import_module("torch")
            return torch.from_numpy(np.ascontiguousarray(x, np.float64).copy()).to(getattr(torch, dtype))
        if self.name == "jax":
            # Without its 64-bit mode JAX holds no float64; it is not turned on for anybody.
            return import_module("jax.numpy").asarray(x.astype(output_dtype(self.held(dtype))))
        assert self.module is not None
        return self.module.asarray(np.ascontiguousarray(x.astype(output_dtype(dtype))))

    def integers(self, positions: np.ndarray) -> Any:
        """Positions, as whole numbers."""
        if self.name == "torch":
            return import_module("torch").from_numpy(positions.astype(np.int64))
        if self.name == "jax":
            return import_module("jax.numpy").asarray(positions.astype(np.int32))
        if self.module is not None:
            return self.module.asarray(positions.astype(np.int64))
        return positions.astype(np.int64)

    def held(self, dtype: str) -> str:
        """The dtype that numbers of this one come in."""
        if self.name == "jax" and dtype == "float64" and not import_module("jax").config.jax_enable_x64:
            return "float32"
        return dtype

    def holds(self, dtype: str) -> bool:
        """Whether the library has numbers of this dtype."""
        return dtype in {"float32", "float64"} or self.module is None

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called without a record of gradients."""
        if self.name != "torch":
            return function

        @functools.wraps(function)
        def called(*arguments: Any) -> Any:
            with import_module("torch").no_grad():
                return function(*arguments)

        return called


def float_name(dtype: Any) -> Any:
    """The name of a dtype that is said by its name or as a library's own; what is neither comes back as it is."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    return name if name in FLOATS else dtype


def dtype_of(array: Any) -> str:
    """The name of an array's dtype, in any library."""
    return str(array.dtype).removeprefix("torch.").rpartition(".")[2]


__all__ = [
    "FLOATS",
    "TINY",
    "UNIT",
    "Library",
    "as_numpy",
    "dtype_of",
    "float_name",
    "library_name",
    "likely_libraries",
]
