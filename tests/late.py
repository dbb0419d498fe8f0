"""Modules that a test file names at its top, imported when a test first asks one of them for something.

PyTorch, JAX and Transformers take seconds to import, in every process that collects the tests.
"""

import sys
from types import ModuleType
from typing import Any

import pytest


class Late:
    """``torch = Late("torch")``: used as the module is; a test that needs it skips where it is not installed.

    Once it is imported, the file that named it has the module itself, which a compiler follows as any other.
    """

    def __init__(self, name: str) -> None:
        vars(self).update(_name=name, _file=sys._getframe(1).f_globals)

    def _imported(self) -> ModuleType:
        module = pytest.importorskip(self._name)
        self._file.update({name: module for name, held in self._file.items() if held is self})
        return module

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_mock", "pytest")):  # what pytest asks of everything in a module
            raise AttributeError(name)
        return getattr(self._imported(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._imported(), name, value)


def jax_with_64_bits(wide: bool = True) -> Any:
    """A context in which JAX has 64 bits, or has not; before JAX 0.8 its name is in another module."""
    jax = pytest.importorskip("jax")
    here = jax if hasattr(jax, "enable_x64") else pytest.importorskip("jax.experimental")
    return here.enable_x64(wide)
