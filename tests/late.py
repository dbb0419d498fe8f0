"""Modules that a test file names at its top, imported when a test first asks one of them for something.

PyTorch and Transformers take seconds to import, in every process that collects the tests.
"""

from typing import Any

import pytest


class Late:
    """``torch = Late("torch")``: read as the module is; a test that needs it skips where it is not installed.

    To patch it, name it: ``monkeypatch.setattr("torch.name", value)``.
    """

    def __init__(self, name: str) -> None:
        vars(self)["_name"] = name

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f'monkeypatch.setattr("{self._name}.{name}", value)')

    def _loaded(self) -> Any:
        if "_module" not in vars(self):
            vars(self)["_module"] = pytest.importorskip(self._name)
        return vars(self)["_module"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_mock", "pytest")):  # what pytest asks of everything in a module
            raise AttributeError(name)
        return getattr(self._loaded(), name)
