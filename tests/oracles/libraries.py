"""Libraries that are imported when a test first asks them for something: reading the tests imports none of them."""

from typing import Any

import pytest


class Lazily:
    """A module by its name; a test that asks it for something is skipped where it is absent."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = pytest.importorskip(self._name)
        # From now on they are found at once, also by a compiler that follows a test.
        self.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("__")})
        return getattr(module, attribute)
