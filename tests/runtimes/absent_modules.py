"""Stand-ins for modules that a runtime imports and that its position code does not use, such as a CUDA extension.

What is asked of one is a class without a method: nothing that is computed with it gives a number. Only the modules
that are named stand in; any other that is missing fails as usual.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any


class _Nothing(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing(name)


def _nothing(name: str) -> Any:
    return _Nothing(name, (), {"__init__": _takes_anything})


def _takes_anything(_made: Any, *_args: Any, **_named: Any) -> None:
    pass


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self.names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in_for(*names: str) -> None:
    """Let these modules, and those inside them, be imported although they are not installed."""
    sys.meta_path.insert(0, _Finder(names))


def without_init(*packages: str) -> None:
    """Let modules of these packages be imported without running ``__init__.py``, which imports the whole runtime."""
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError(name)
        module = types.ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations)
        module.__spec__ = spec
        sys.modules[name] = module
        around, _, last = name.rpartition(".")
        if around:
            setattr(sys.modules[around], last, module)
