"""What a wrong function is: the public case, the code that names it, and how its twin differs."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

LAYOUTS = ("halves", "interleaved")
LOW = {"bfloat16", "float16"}


@dataclass(frozen=True)
class Row:
    """One slip.

    Attributes:
        case: Where it was met: a row of the evidence ("D2#9"), or the library that has it.
        builder: The name of its builder, the same in every framework's file.
        codes: The faults that may be named: more than one only where no experiment tells them apart.
        spec: layout -> what the function should be.
        slip: Keywords of the builder.
        options: Keywords of the check.
        factory: Whether the builder makes a builder (what several models share lives between the two).
        fresh: Whether a check is given the builder, to make a new function for each experiment.
        values: spec -> the trained numbers, where it has some; the builder takes them too.
        frameworks: Where it can be written.
        layouts: Where it differs.
    """

    case: str
    builder: str
    codes: frozenset[str]
    spec: Callable[[str], Any]
    slip: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    factory: bool = False
    fresh: bool = False
    values: Callable[[Any], Any] | None = None
    frameworks: tuple[str, ...] = ("torch", "numpy", "jax")
    layouts: tuple[str, ...] = LAYOUTS

    @property
    def name(self) -> str:
        slip = "-".join(f"{key}={_word(value)}" for key, value in self.slip.items())
        called = "-".join(str(value).replace(" ", "").replace(",", "+") for value in self.options.values())
        return "-".join(filter(None, (self.case, self.builder, slip, getattr(self.spec, "__name__", ""), called)))


def _word(value: Any) -> str:
    return getattr(value, "__name__", str(value)).replace(" ", "_")


def low_dtype(name: str, framework: str) -> Any:
    """A dtype as this framework's file takes it."""
    if framework == "torch":
        return getattr(importlib.import_module("torch"), name)
    return np.float16 if name == "float16" else importlib.import_module("ml_dtypes").bfloat16


def arrays_of(framework: str) -> Any:
    """The module of arrays; skips where it is absent."""
    names = {"torch": "torch", "jax": "jax.numpy", "numpy": "numpy"}
    pytest.importorskip(framework)
    return importlib.import_module(names[framework])


def keywords(row: Row, framework: str) -> dict[str, Any]:
    """The slip, its dtypes as this framework has them."""
    slip = {
        key: low_dtype(value, framework) if isinstance(value, str) and value in LOW else value
        for key, value in row.slip.items()
    }
    if framework != "torch":
        slip["xp"] = arrays_of(framework)
    return slip


def expected(report: Any, codes: frozenset[str]) -> bool:
    """Whether a report is right on a fault: the first thing that it says names it, in a group of at most four."""
    return bool(report.explanations) and any(
        codes & set(one.codes) and len(one.codes) <= 4 for one in report.explanations[:1]
    )


def cast(xp, a, dtype):
    """An array in another dtype, which may be given by its name."""
    if xp.__name__ == "torch":
        return a.to(getattr(xp, dtype) if isinstance(dtype, str) else dtype)
    if dtype == "bfloat16":
        dtype = importlib.import_module("ml_dtypes").bfloat16
    return a.astype(dtype)
