"""Modules that a test file names at its top, imported when a test first asks one of them for something.

PyTorch and Transformers take seconds to import, in every process that collects the tests.
"""

from typing import Any

import pytest


class Late:
    """``torch = Late("torch")``: used as the module is; a test that needs it skips where it is not installed."""

    def __init__(self, name: str) -> None:
        vars(self)["_name"] = name

    def _loaded(self) -> Any:
        if "_module" not in vars(self):
            vars(self)["_module"] = pytest.importorskip(self._name)
        return vars(self)["_module"]

    def __getattr__(self, name: str) -> Any:
        if name == "__test__" or name.startswith("_pytest"):  # asked of everything in a module that is collected
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._loaded(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loaded(), name)
