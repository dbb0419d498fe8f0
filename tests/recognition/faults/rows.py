"""What a wrong function is: the public case, the code that names it, and how its right twin differs."""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from clockhands import testing

LAYOUTS, LOW = ("halves", "interleaved"), ("bfloat16", "float16")
NO_JAX = ("numpy", "torch")  # for what writes into its arguments


@dataclass(frozen=True)
class Row:
    """One slip.

    Attributes:
        case: Where it was met: a row of the evidence ("D2#9"), or the library that has it.
        builder: ``(spec, wrong, xp, **slip) -> function``.
        codes: The faults that may be named: more than one only where no experiment tells them apart.
        spec: layout -> what the function should be.
        slip: Keywords of the builder.
        options: Keywords of the check.
        factory: Whether the builder is ``(xp, **slip) -> build(spec, wrong)``: models share what lives between the two.
        fresh: Whether a check is given the builder, to make a new function for each experiment.
        values: spec -> the trained numbers, where it has some; the builder takes them too.
        own: Whether the check reads the trained numbers from the function itself.
        exact: Whether nothing else is named, in NumPy.
        every: Whether all of the codes are named.
        frameworks: Where it can be written.
        layouts: Where it differs.
        drawn: ``(draw, spec) -> slip``, or ``"spec"`` where a spec alone is drawn; None where nothing is.
        limits: What a drawn spec must have.
    """

    case: str
    builder: Callable[..., Any]
    codes: frozenset[str]
    spec: Callable[[str], Any]
    slip: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    factory: bool = False
    fresh: bool = False
    values: Callable[[Any], Any] | None = None
    own: bool = False
    exact: bool = True
    every: bool = False
    frameworks: tuple[str, ...] = ("numpy", "torch", "jax")
    layouts: tuple[str, ...] = LAYOUTS
    drawn: Any = None
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        slip = "-".join(f"{key}={_word(value)}" for key, value in self.slip.items())
        called = "-".join(str(value).replace(" ", "").replace(",", "+") for value in self.options.values())
        named = (self.case, self.builder.__name__, slip, getattr(self.spec, "__name__", ""), called)
        return "-".join(filter(None, named))

    def built(self, framework: str, wrong: bool, slip: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
        """``spec -> function``; what several functions share is new with each call."""
        xp, slip = arrays_of(framework), self.slip if slip is None else slip
        if self.factory:
            return functools.partial(self.builder(xp, **slip), wrong=wrong)

        @functools.wraps(self.builder, assigned=("__name__",), updated=())
        def build(spec: Any) -> Any:
            more = {"values": self.values(spec)} if self.values else {}
            return self.builder(spec, wrong, xp, **slip, **more)

        del build.__wrapped__  # the check reads how many arguments it takes
        return build

    def report(self, framework: str, layout: str = "halves", wrong: bool = True, **drawn: Any) -> Any:
        """What the check says of the wrong function, or of its right twin; `drawn` may name a spec, a slip, a dtype."""
        spec = drawn.pop("spec", None) or self.spec(layout)
        build = self.built(framework, wrong, drawn.pop("slip", None))
        options = {"backend": framework, "raises": False, **self.options, **drawn}
        if self.values and not self.own:
            options["values"] = self.values(spec)
        check = getattr(testing, f"check_{kind_of(spec)}")
        if self.factory or self.fresh:
            return check(make=build, like=spec, **options)
        return check(build(spec), spec, **options)


def kind_of(spec: Any) -> str:
    """What checks it: "rotary", "additive" or "bias"."""
    package = type(spec).__module__.split(".")[2]
    return {"biases": "bias"}.get(package, package)


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a name, which a row shows."""
    function.__name__ = name
    return function


def row(case: str, builder: Callable[..., Any], *codes: str, **fields: Any) -> Row:
    """One slip, and the faults that may be named."""
    return Row(case, builder, frozenset(codes), **fields)


def one_of(**choices: Any) -> Callable[..., Any]:
    """A slip of values that are drawn one by one."""
    return lambda draw, _: {key: draw.choice(values) for key, values in choices.items()}


def _word(value: Any) -> str:
    return getattr(value, "__name__", str(value)).replace(" ", "_")


def arrays_of(framework: str) -> Any:
    """The module of arrays; skips where it is absent."""
    pytest.importorskip(framework)
    return importlib.import_module({"jax": "jax.numpy"}.get(framework, framework))


def expected(report: Any, codes: frozenset[str]) -> bool:
    """Whether a report is right on a fault: the first thing that it says names it, in a group of at most four."""
    first = report.explanations[:1]
    return bool(first) and len(first[0].codes) <= 4 and not codes.isdisjoint(first[0].codes)


def cast(xp: Any, a: Any, dtype: Any) -> Any:
    """An array in another dtype, which may be given by its name."""
    if xp.__name__ == "torch":
        return a.to(getattr(xp, dtype) if isinstance(dtype, str) else dtype)
    return a.astype(importlib.import_module("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)


def through(xp: Any, a: Any, dtype: Any) -> Any:
    """In float32, rounded to another dtype before, if that is said."""
    return cast(xp, a if dtype is None else cast(xp, a, dtype), "float32")
