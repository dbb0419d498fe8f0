"""Values of code that is followed but never run: numbers that follow from a config, and tensors."""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Union

Value = Union["Known", "RunTime", "Items", "Several", "Class", "Function", "Instance"]

# A number beyond this describes no model, and its powers would not fit in memory.
_LARGEST = 2.0**100


@dataclass(frozen=True)
class Known:
    """A value that follows from the config, with the keys and the lines that it comes from."""

    value: Any
    sources: tuple[str, ...] = ()

    @property
    def number(self) -> float | int | None:
        """The value if it is a number that a model can have."""
        fits = isinstance(self.value, int | float) and not isinstance(self.value, bool) and abs(self.value) < _LARGEST
        return self.value if fits else None


@dataclass(frozen=True)
class Frequencies:
    """The frequencies ``base ** -(arange(0, width, 2) / width)``.

    Attributes:
        base: The base; a `RunTime` if it is known only at run time.
        width: How many channels are rotated.
        place: File and line.
        by_length: Whether the base is multiplied by a number that is known only while the model runs, to the power
            width / (width - 2), as NTK-aware scalings do.
        changed: Whether a function that is not followed may have changed them, as one that reverses their order does.
    """

    base: Value
    width: Value
    place: str
    by_length: bool = False
    changed: bool = False


@dataclass(frozen=True)
class RunTime:
    """A value that is known only at run time, with what matters of it for positions.

    Attributes:
        part: The layout and the number, 0 or 1, of the channels of each pair that it holds, if it holds only these.
        negated: Whether it is minus such channels.
        multiplied: Whether it is such channels times something.
        split: The last axis of channels as two axes with pairs along the ``last`` of them or the one ``before``.
        permuted: Whether interleaved channels were moved into halves.
        halved: Whether it is half of a number.
        frequencies: Those that it was computed from.
        power: Those whose reciprocal it is.
        scale: What it was multiplied by.
        growth: The number that it is a multiple of by an NTK-aware factor.
        numbered: Whether it follows from the number of a layer, or of another turn of a loop.
        turned: The layout in which a tensor has minus the second channels of its pairs before, or between, the first.
        trig: ``cos`` or ``sin`` where it is that of angles, or channels times it.
        doubled: The layout for which each angle is in it twice; None if that is not known.
    """

    part: tuple[str, int] | None = None
    negated: bool = False
    multiplied: bool = False
    split: Literal["last", "before"] | None = None
    permuted: bool = False
    halved: bool = False
    frequencies: Frequencies | None = None
    power: Frequencies | None = None
    scale: float = 1.0
    growth: Known | None = None
    numbered: bool = False
    turned: str | None = None
    trig: str | None = None
    doubled: str | None = None


@dataclass(frozen=True)
class Items:
    """A list or a tuple of values."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Several:
    """One of several values, by a condition that is known only while the model runs."""

    options: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the code."""

    node: ast.ClassDef
    file: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the code, or a method with its instance and the class that defines it.

    ``around`` has the names of the function around it.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    file: str
    of: "Instance | None" = None
    within: Class | None = None
    around: Mapping[str, "Value"] = field(default_factory=dict)


@dataclass(eq=False)
class Instance:
    """An object of a class of the code.

    Attributes:
        type: The class; None for an object of a config whose class is not at hand.
        attributes: What its methods have set so far.
        part: What it belongs to: ``text``, or another part that its class or its config names.
        certain: Whether the model certainly has it.
        values: The object of the config file, if it is a config.
        path: The place of that object in the file, as ``config.json:text_config.``.
        numbered: Whether the number of a layer decides that it is made.
        called: Whether it is called whatever the number of a layer is; None if no ``forward`` method calls it.
    """

    type: Class | None
    attributes: dict[str, Value] = field(default_factory=dict)
    part: str = "text"
    certain: bool = True
    values: Mapping[str, Any] | None = None
    path: str = ""
    numbered: bool = False
    called: bool | None = None


UNKNOWN = RunTime()


def is_numbered(value: Value) -> bool:
    """Whether a value, or one that it may be, follows from the number of a layer."""
    return any(isinstance(each, RunTime) and each.numbered for each in options_of(value))


def join(first: Value, second: Value) -> Value:
    """A value that is one of two."""
    options = [*options_of(first), *(each for each in options_of(second) if each not in options_of(first))]
    return options[0] if len(options) == 1 else Several(tuple(options[:16]))


def options_of(value: Value) -> tuple[Value, ...]:
    return value.options if isinstance(value, Several) else (value,)


def mixed(values: list[Value]) -> RunTime:
    """What an unknown function makes of some values: frequencies stay known."""
    tensors = [each for each in values if isinstance(each, RunTime)]
    held = [each for each in tensors if each.frequencies is not None]
    if not held or any(each.frequencies != held[0].frequencies for each in held):
        return RunTime(numbered=any(each.numbered for each in tensors))
    # Frequencies side by side are not multiplied with each other.
    scale = held[0].scale if all(each.scale == held[0].scale for each in held) else math.nan
    for each in tensors:
        scale *= each.scale if each.frequencies is None else 1.0
    return RunTime(frequencies=held[0].frequencies, scale=scale)


def arithmetic(operator: ast.operator, left: Value, right: Value) -> Value:
    """The result of an operator on two values."""
    if isinstance(left, Known) and isinstance(right, Known):
        return _of_numbers(operator, left, right)
    if isinstance(left, Several):
        return join_all([arithmetic(operator, each, right) for each in left.options])
    if isinstance(right, Several):
        return join_all([arithmetic(operator, left, each) for each in right.options])
    divides = isinstance(operator, ast.FloorDiv | ast.Div)
    if divides and left == UNKNOWN and isinstance(right, Known) and right.value == 2:
        return RunTime(halved=True, scale=0.5)
    if isinstance(operator, ast.Div) and isinstance(right, RunTime) and right.power is not None:
        return RunTime(frequencies=right.power) if isinstance(left, Known) and left.value == 1 else UNKNOWN
    if isinstance(operator, ast.Mult):
        return _product(left, right)
    if isinstance(operator, ast.Div) and isinstance(left, RunTime) and isinstance(right, Known) and right.number:
        return replace(left, scale=left.scale / right.number)
    return mixed([left, right])


def _product(left: Value, right: Value) -> Value:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Known) and isinstance(other, RunTime) and one.number is not None:
            if other.growth is not None:
                return RunTime(growth=one)
            if other.power is not None:
                return UNKNOWN
            return replace(other, scale=other.scale * one.number)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, RunTime) and (one.part or one.turned) and not one.multiplied:
            return replace(one, multiplied=True, trig=other.trig if isinstance(other, RunTime) else None)
    return mixed([left, right])


def join_all(values: list[Value]) -> Value:
    """A value that is one of some."""
    made = values[0]
    for each in values[1:]:
        made = join(made, each)
    return made


def _of_numbers(operator: ast.operator, left: Known, right: Known) -> Value:
    one, other = left.number, right.number
    if one is None or other is None or (isinstance(operator, ast.Pow) and abs(other) > 1000):
        return UNKNOWN
    sources = tuple(dict.fromkeys((*left.sources, *right.sources)))
    try:
        result = _OPERATORS[type(operator)](one, other)
    except (KeyError, ArithmeticError, ValueError):
        return UNKNOWN
    made = Known(result, sources)
    return UNKNOWN if made.number is None else made


_OPERATORS: Mapping[type[ast.operator], Any] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one / other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: lambda one, other: one % other,
    ast.Pow: lambda one, other: float(one) ** other if other < 0 or isinstance(other, float) else one**other,
}
