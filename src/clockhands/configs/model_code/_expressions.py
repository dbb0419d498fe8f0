"""The values of expressions in code that is followed and never run; rotations and frequencies are recognised here."""

import ast
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.configs.model_code._definitions import Definitions, Frame
from clockhands.configs.model_code._idioms import exponential_frequencies, is_ntk, width_of_range
from clockhands.configs.model_code._known_values import (
    UNKNOWN,
    Class,
    Frequencies,
    Function,
    Instance,
    Items,
    Known,
    RunTime,
    Several,
    Value,
    arithmetic,
    is_numbered,
    join,
    join_all,
    mixed,
    options_of,
)
from clockhands.configs.model_code._tensors import KEEPING, ODD, SPREADING, doubled_in, half, layout_of, reshaped

# A list with more items is one of layers, which are followed once.
_FEW = 8

# A logarithm to a base beyond this is one of lengths; others are those of factors.
_LEAST_LENGTH = 16


class Expressions(Definitions):
    """What expressions give, by the definitions of the files and by what is known of PyTorch's functions."""

    @abstractmethod
    def call(
        self, function: Function, given: Sequence[Value], named: Mapping[str, Value], *, certain: bool, part: str = ""
    ) -> Value:
        """The result of a call of a function of the code."""

    @abstractmethod
    def construct(
        self, kind: Class, given: Sequence[Value], named: Mapping[str, Value], *, certain: bool, part: str
    ) -> Instance:
        """An instance of a class of the code."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Give a name, an attribute or several of them a value."""

    @abstractmethod
    def bind_attribute(self, of: Instance, name: str, value: Value, frame: Frame) -> None:
        """Give an attribute a value."""

    def value(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression."""
        self._step()
        follow = _EXPRESSIONS.get(type(node))
        if follow is not None:
            return follow(self, node, frame)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, frame)
        return UNKNOWN

    def name(self, node: ast.Name, frame: Frame) -> Value:
        """The value of a name."""
        if node.id in frame.names:
            return frame.names[node.id]
        names = self._names_for(node.id, frame.function.file)
        found = names.get(node.id, UNKNOWN)
        if isinstance(found, tuple):
            names[node.id] = UNKNOWN  # a name that is defined by itself
            held, file = found
            found = self.value(held, Frame(Function(frame.function.node, file), {}, frame.certain, frame.part))
            names[node.id] = found
        return found

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        """The value of an attribute."""
        return self.attribute_of(self.value(node.value, frame), node.attr, frame)

    def attribute_of(self, of: Value, name: str, frame: Frame) -> Value:
        """An attribute of a value: what was set, a key of a config, a property or a method."""
        if isinstance(of, Several):
            return join_all([self.attribute_of(each, name, frame) for each in of.options])
        if not isinstance(of, Instance):
            return of if isinstance(of, RunTime) and name in ("T", "real") else UNKNOWN
        found = self.method(of, name)
        if found is not None and _is_property(found.node):
            return self.call(found, [], {}, certain=frame.certain)
        if name in of.attributes:
            return of.attributes[name]
        if of.values is not None and name in of.values:
            return self.read(of, name)
        for kind in () if of.type is None else self.bases(of.type):
            members = self.members(kind)
            if isinstance(held := members.get(name), ast.Assign):
                return self.value(held.value, frame)
            if isinstance(held := members.get("attribute_map"), ast.Assign):
                other = self.value(held.value, frame)
                renamed = other.value.get(name) if isinstance(other, Known) else None
                if isinstance(renamed, str) and renamed != name:
                    return self.attribute_of(of, renamed, frame)
        return UNKNOWN if found is None else found

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        """The value of a subscript: a key, an item, or channels of a tensor."""
        of = self.value(node.value, frame)
        index = node.slice
        if isinstance(of, Known) and isinstance(of.value, dict):
            at = self.value(index, frame)
            if isinstance(at, Known) and isinstance(at.value, str):
                held = of.value.get(at.value, UNKNOWN)
                return held if isinstance(held, Class | Function | Known | Instance) else UNKNOWN
            found = [each for each in of.value.values() if isinstance(each, Class | Function)]
            return Several(tuple(found[:16])) if found else UNKNOWN
        if isinstance(of, Instance):
            at = self.value(index, frame)
            return (
                self.attribute_of(of, at.value, frame)
                if isinstance(at, Known) and isinstance(at.value, str)
                else UNKNOWN
            )
        if isinstance(of, Items) or (isinstance(of, Known) and isinstance(of.value, list)):
            at = self.value(index, frame) if not isinstance(index, ast.Slice) else UNKNOWN
            if is_numbered(at):
                return join(at, self._item(of)) if isinstance(of, Items) else at
            return self._item(of, at.value if isinstance(at, Known) and isinstance(at.value, int) else None)
        if isinstance(of, Several):
            return UNKNOWN
        return self._channels(of, index, frame) if isinstance(of, RunTime) else UNKNOWN

    def _channels(self, of: RunTime, index: ast.expr, frame: Frame) -> RunTime:
        """Some channels of a tensor."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        last = parts[-1]
        number = last.value if isinstance(last, ast.Constant) else None
        if of.split == "last" and number in (0, 1):
            return half(of, "interleaved", int(number))
        before = parts[-2].value if len(parts) > 1 and isinstance(parts[-2], ast.Constant) else None
        if of.split == "before" and before in (0, 1):
            return half(of, "halves", int(before))
        if not isinstance(last, ast.Slice):
            return of
        if isinstance(last.step, ast.Constant) and last.step.value == 2 and last.upper is None:
            first = last.lower.value if isinstance(last.lower, ast.Constant) else 0
            return half(of, "interleaved", int(first)) if first in (0, 1) else replace(of, part=None)
        lower, upper = self._is_half(last.lower, frame), self._is_half(last.upper, frame)
        if lower and last.upper is None:
            return half(of, "halves", 1)
        if upper and (last.lower is None or (isinstance(last.lower, ast.Constant) and last.lower.value == 0)):
            return half(of, "halves", 0)
        whole = last.lower is None and last.upper is None and last.step is None
        return of if whole else replace(of, part=None, split=None)

    def _is_half(self, node: ast.expr | None, frame: Frame) -> bool:
        """Whether the bound of a slice is half of a width."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
            return isinstance(node.right, ast.Constant) and node.right.value == 2
        if isinstance(node, ast.Call) and node.args:  # int(width / 2)
            return self._is_half(node.args[0], frame)
        found = UNKNOWN if node is None else self.value(node, frame)
        return isinstance(found, RunTime) and found.halved

    def binary(self, node: ast.BinOp, frame: Frame) -> Value:
        """The result of an operator; powers of a base and rotations are recognised here."""
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        if isinstance(node.op, ast.Pow):
            return self.power(node, left, right, node.right, frame)
        if isinstance(left, RunTime) and isinstance(right, RunTime):
            self._rotation(node, left, right, frame)
        return arithmetic(node.op, left, right)

    def _rotation(self, node: ast.BinOp, left: RunTime, right: RunTime, frame: Frame) -> None:
        """Record a rotation in a product or a difference; what is no rotation of RoPE has the layout `ODD`."""
        one, other = left.part, right.part
        if isinstance(node.op, ast.Mult):
            for turned, by in ((left, right), (right, left)):
                if turned.turned and not turned.multiplied and by.trig and not by.part:
                    fits = by.trig == "sin" and by.doubled in (None, turned.turned)
                    if not fits:
                        self._record("rotation", node, ODD, frame)
        elif isinstance(node.op, ast.Sub) and right.turned and right.multiplied:
            self._record("rotation", node, ODD, frame)  # in the other direction
        elif isinstance(node.op, ast.Sub) and one and other and left.multiplied and right.multiplied:
            layout = one[0] if one[0] == other[0] else None
            exchanged = left.trig == "sin" or right.trig == "cos"
            if (one[1], other[1]) == (0, 1):
                self._record("rotation", node, ODD if exchanged else layout, frame)

    def power(self, node: ast.expr, base: Value, exponent: Value, written: ast.expr, frame: Frame) -> Value:
        """A power; that of a base to even channel numbers gives the frequencies."""
        channels = width_of_range(written)
        if channels is not None:
            grown = base.growth if isinstance(base, RunTime) else None
            width, divisor = (self.value(each, frame) for each in channels)
            if width != divisor and ast.dump(channels[0]) != ast.dump(channels[1]):
                base, grown = UNKNOWN, None
            found = Frequencies(grown or base, width, self._place(node, frame), grown is not None)
            sign = isinstance(written, ast.UnaryOp) and isinstance(written.op, ast.USub)
            return RunTime(frequencies=found) if sign else RunTime(power=found)
        if is_ntk(written) and not isinstance(base, Known):
            return RunTime(growth=Known(1.0))
        if isinstance(base, Known) and base.value == 2 and "log2" in ast.unparse(written):
            self._record("slopes", node, None, frame)
        return arithmetic(ast.Pow(), base, exponent)

    def unary(self, node: ast.UnaryOp, frame: Frame) -> Value:
        """The result of a sign or a negation."""
        of = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            holds = self.truth(of)
            return UNKNOWN if holds is None else Known(not holds, of.sources if isinstance(of, Known) else ())
        if isinstance(node.op, ast.USub):
            if isinstance(of, Known) and of.number is not None:
                return Known(-of.number, of.sources)
            return replace(of, negated=not of.negated) if isinstance(of, RunTime) else UNKNOWN
        return of

    def boolean(self, node: ast.BoolOp, frame: Frame) -> Value:
        """The result of ``and`` and ``or``."""
        stops = isinstance(node.op, ast.Or)
        found: list[Value] = []
        for at, each in enumerate(node.values, 1):
            value = self.value(each, frame)
            holds = self.truth(value)
            if holds is None or holds is stops or at == len(node.values):
                found.append(value)
            if holds is stops:
                break
        return join_all(found)

    def comparison(self, node: ast.Compare, frame: Frame) -> Value:
        """The result of a comparison of known values."""
        left, right = self.value(node.left, frame), self.value(node.comparators[0], frame)
        operator = node.ops[0]
        made = isinstance(left, Instance | Items | Class | Function)
        if made and isinstance(operator, ast.Is | ast.IsNot) and right == Known(None):
            return Known(isinstance(operator, ast.IsNot))
        held = right.values if isinstance(right, Instance) else None
        if held is not None and isinstance(operator, ast.In | ast.NotIn) and _text(left) is not None:
            return Known((_text(left) in held) is isinstance(operator, ast.In))
        if isinstance(right, Items) and all(isinstance(each, Known) for each in right.values):
            right = Known([each.value for each in right.values if isinstance(each, Known)])
        if is_numbered(left) or is_numbered(right):
            return RunTime(numbered=True)
        if len(node.ops) > 1 or not isinstance(left, Known) or not isinstance(right, Known):
            return UNKNOWN
        try:
            result = _COMPARISONS[type(operator)](left.value, right.value)
        except (KeyError, TypeError):
            return UNKNOWN
        return Known(result, (*left.sources, *right.sources))

    def choice(self, node: ast.IfExp, frame: Frame) -> Value:
        """The value of a conditional expression."""
        test = self.value(node.test, frame)
        holds = self.truth(test)
        if holds is not None:
            return self.value(node.body if holds else node.orelse, frame)
        certain, frame.certain = frame.certain, frame.certain and not self._building
        before, self._numbered = self._numbered, self._numbered or is_numbered(test)
        made = join(self.value(node.body, frame), self.value(node.orelse, frame))
        frame.certain, self._numbered = certain, before
        return made

    def listed(self, node: ast.List | ast.Tuple, frame: Frame) -> Value:
        """The value of a list."""
        return Items(tuple(self.value(each, frame) for each in node.elts))

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, frame: Frame) -> Value:
        """The value of a comprehension; its expression is followed for each of a few known items, or once."""
        loop, *further = node.generators
        items = self.value(loop.iter, frame)
        if isinstance(items, Items) and len(items.values) <= _FEW and not further and not loop.ifs:
            made: list[Value] = []
            for item in items.values:
                self.bind(loop.target, item, frame)
                made.append(self.value(node.elt, frame))
            return Items(tuple(made))
        for each in node.generators:
            self.bind(each.target, self._item(self.value(each.iter, frame)), frame)
        return Items((self.value(node.elt, frame),))

    def mapping(self, node: ast.Dict, frame: Frame) -> Value:
        """The value of a dictionary with known keys."""
        held: dict[str, Any] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            value = self.value(each, frame)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                held[key.value] = value.value if isinstance(value, Known) and isinstance(value.value, str) else value
        return Known(held)

    def called(self, node: ast.Call, frame: Frame) -> Value:
        """The result of a call."""
        given: list[Value] = []
        for each in node.args:
            value = self.value(each.value if isinstance(each, ast.Starred) else each, frame)
            given += value.values if isinstance(each, ast.Starred) and isinstance(value, Items) else [value]
        named: dict[str, Value] = {}
        for each in node.keywords:
            value = self.value(each.value, frame)
            held = value.value if isinstance(value, Known) and isinstance(value.value, dict) else {}
            named |= held if each.arg is None else {each.arg: value}
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        if isinstance(node.func, ast.Attribute):
            if _name(getattr(node.func.value, "func", None)) == "super":
                return self._inherited(name, given, named, frame)
            of = self.value(node.func.value, frame)
        else:
            of = UNKNOWN
        if isinstance(of, Instance) and name == "register_buffer" and len(given) > 1 and isinstance(given[0], Known):
            of.attributes[str(given[0].value)] = given[1]
            return UNKNOWN
        if isinstance(of, Class):
            return self._of_class(of, name, given, named, frame)
        function = self.attribute_of(of, name, frame) if isinstance(of, Instance) else UNKNOWN
        if not isinstance(node.func, ast.Attribute):
            function = self.value(node.func, frame)
        made = [self._result(each, given, named, frame) for each in options_of(function)]
        if any(each is not None for each in made):
            return join_all([UNKNOWN if each is None else each for each in made])
        return self._of_library(node, name, of, given, named, frame)

    def _result(self, function: Value, given: list[Value], named: dict[str, Value], frame: Frame) -> Value | None:
        """The result of a call of something that the files define; None for anything else."""
        if isinstance(function, Class):
            return self.construct(function, given, named, certain=frame.certain, part=frame.part)
        if isinstance(function, Function):
            return self.call(function, given, named, certain=frame.certain, part=frame.part)
        if isinstance(function, Instance):
            forward = self.method(function, "forward")
            function.called = not self._numbered or bool(function.called)
            return None if forward is None else self.call(forward, given, named, certain=frame.certain)
        if given and isinstance(given[0], Class):  # skip_init(Embedding, config)
            return self.construct(given[0], given[1:], named, certain=frame.certain, part=frame.part)
        return None

    def _of_class(self, kind: Class, name: str, given: list[Value], named: dict[str, Value], frame: Frame) -> Value:
        """The result of a call of a method of a class."""
        found = self.method(Instance(kind), name)
        if found is not None:
            first = [kind] if any(_name(each) == "classmethod" for each in found.node.decorator_list) else []
            return self.call(replace(found, of=None), [*first, *given], named, certain=frame.certain, part=frame.part)
        if name in ("from_config", "_from_config", "from_pretrained"):
            return self.construct(kind, given, named, certain=frame.certain, part=frame.part)
        return UNKNOWN

    def _inherited(self, name: str, given: list[Value], named: dict[str, Value], frame: Frame) -> Value:
        of = frame.function.of
        found = None if of is None else self.method(of, name, frame.function.within)
        if found is not None:
            return self.call(found, given, named, certain=frame.certain)
        if of is not None and of.values is not None and name == "__init__":
            # The library's class of a config keeps what it is given.
            of.attributes |= {key: value for key, value in named.items() if key not in of.attributes}
        return UNKNOWN

    def _of_library(  # noqa: PLR0917 - a call has as many parts
        self, node: ast.Call, name: str, of: Value, given: list[Value], named: dict[str, Value], frame: Frame
    ) -> Value:
        """The result of a call of a function that the files do not define."""
        if name in ("getattr", "get", "pop"):
            return self._looked_up(name, of, given, frame)
        if name == "setattr" and len(given) == 3 and isinstance(given[0], Instance) and _text(given[1]) is not None:
            self.bind_attribute(given[0], str(_text(given[1])), given[2], frame)
            return UNKNOWN
        if name in ("copy", "deepcopy") and given and isinstance(given[0], Instance):
            return replace(given[0], attributes=dict(given[0].attributes))
        if name == "hasattr" and len(given) > 1:
            found = self._looked_up("getattr", of, given[:2], frame)
            return UNKNOWN if found == UNKNOWN else Known(value=True)
        if name in _NUMBERS and given and all(isinstance(each, Known) and each.number is not None for each in given):
            numbers = [each for each in given if isinstance(each, Known)]
            try:
                result = _NUMBERS[name](*(each.value for each in numbers))
            except (ArithmeticError, ValueError, TypeError):
                return UNKNOWN
            return Known(result, tuple(source for each in numbers for source in each.sources))
        if name == "log" and len(given) > 1 and isinstance(given[1], Known) and (given[1].number or 0) > _LEAST_LENGTH:
            self._record("logarithm", node, given[1], frame)
        tensor, arguments = (of if isinstance(of, RunTime) else UNKNOWN), given
        if given and self._of_module(node.func, frame):  # torch.chunk(x, 2)
            tensor, arguments = (given[0] if isinstance(given[0], RunTime) else UNKNOWN), given[1:]
        if name == "pow" and len(node.args) > 1:
            return self.power(node, given[0], given[1], node.args[1], frame)
        written = exponential_frequencies(node.args[0]) if name == "exp" and node.args else None
        if written is not None and ast.dump(written[1]) == ast.dump(written[2]):
            base, width = (self.value(each, frame) for each in written[:2])
            return RunTime(frequencies=Frequencies(base, width, self._place(node, frame)))
        if name in ("cos", "sin", "polar") or (name == "exp" and tensor.frequencies is not None):
            found = mixed([tensor, *arguments])
            if found.frequencies is None:
                return UNKNOWN
            self._record("frequencies", node, (found.frequencies, found.scale), frame)
            return RunTime(trig=name, doubled=doubled_in(tensor, arguments)) if name in ("cos", "sin") else UNKNOWN
        if name in ("cat", "concat", "concatenate", "stack"):
            return self._together(node, name, given, frame)
        if name == "view_as_complex":
            if tensor.split is not None:
                self._record("rotation", node, layout_of(tensor), frame)
            return tensor
        shaped = reshaped(name, tensor, arguments, named)
        if shaped is not None:
            return shaped
        if name in KEEPING:
            return tensor
        listed = [value for each in given if isinstance(each, Items) for value in each.values]
        if name.endswith("_like"):  # the shape of a tensor with other values
            return UNKNOWN
        if name == "range":
            return RunTime(numbered=True)
        made = mixed([tensor, *given, *listed])
        if name == "repeat_interleave" and made.frequencies is not None:
            return replace(made, doubled="interleaved")
        if made.frequencies is None or name in SPREADING:
            return made
        return replace(made, frequencies=replace(made.frequencies, changed=True))

    def _of_module(self, node: ast.expr, frame: Frame) -> bool:
        """Whether a function is one of a module that is imported, not a method."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return (
            isinstance(node, ast.Name)
            and node.id not in frame.names
            and node.id not in self._names_for(node.id, frame.function.file)
        )

    def _looked_up(self, name: str, of: Value, given: list[Value], frame: Frame) -> Value:
        """The result of ``getattr`` and of ``get``."""
        where, rest = (given[0], given[1:]) if name == "getattr" and given else (of, given)
        if not rest or not isinstance(rest[0], Known) or not isinstance(rest[0].value, str):
            return UNKNOWN
        key = rest[0].value
        if isinstance(where, Known) and isinstance(where.value, dict):
            held = where.value.get(key)
            return held if isinstance(held, Class | Function | Known) else (rest[1] if len(rest) > 1 else Known(None))
        if not isinstance(where, Instance):
            return UNKNOWN
        found = self.attribute_of(where, key, frame)
        absent = found == UNKNOWN and where.values is not None and key not in where.attributes
        return rest[1] if absent and len(rest) > 1 and self._is_whole(where) else found

    def _together(self, node: ast.Call, name: str, given: list[Value], frame: Frame) -> Value:
        """Tensors one after another: minus the second channels of the pairs before the first ones is a rotation."""
        held = list(given[0].values) if given and isinstance(given[0], Items) else given
        tensors = [each for each in held if isinstance(each, RunTime)]
        if len(tensors) == len(held) == 2:
            one, other = tensors
            if one.part and other.part and (one.part[1], other.part[1]) == (1, 0) and one.negated > other.negated:
                layout = one.part[0] if one.part[0] == other.part[0] else None
                self._record("rotation", node, layout, frame)
                return RunTime(turned="halves" if one.permuted and layout == "interleaved" else layout)
            ends = [_last(each.value) for each in node.keywords if each.arg in ("dim", "axis")] or map(
                _last, node.args[1:]
            )
            if one == other and one.frequencies is not None and -1 in ends:
                return replace(one, doubled="interleaved" if name == "stack" else "halves")
            if one.part and other.part and name == "stack" and (one.part[1], other.part[1]) == (0, 1):
                return RunTime(split="last" if one.part[0] == "interleaved" else "before")
        return mixed(list(held))


def _last(node: ast.expr) -> int | None:
    """The number of an axis in code, if it counts from the last one."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return None
    number = node.operand.value if isinstance(node.operand, ast.Constant) else None
    return -number if isinstance(number, int) else None


def _name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _text(value: Value) -> str | None:
    return value.value if isinstance(value, Known) and isinstance(value.value, str) else None


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_name(each) in ("property", "cached_property") for each in node.decorator_list)


_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "min": min, "max": max, "abs": abs, "round": round, "sqrt": math.sqrt,
    "floor": math.floor, "ceil": math.ceil, "log": math.log, "log2": math.log2, "bool": bool,
}  # fmt: skip  # fmt: skip

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.Lt: lambda one, other: one < other,
    ast.LtE: lambda one, other: one <= other,
    ast.Gt: lambda one, other: one > other,
    ast.GtE: lambda one, other: one >= other,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}

_EXPRESSIONS: Mapping[type[ast.expr], Callable[[Expressions, Any, Frame], Value]] = {
    ast.Constant: lambda _, node, __: Known(node.value),
    ast.Name: Expressions.name,
    ast.Attribute: Expressions.attribute,
    ast.Subscript: Expressions.subscript,
    ast.BinOp: Expressions.binary,
    ast.UnaryOp: Expressions.unary,
    ast.BoolOp: Expressions.boolean,
    ast.Compare: Expressions.comparison,
    ast.IfExp: Expressions.choice,
    ast.List: Expressions.listed,
    ast.Tuple: Expressions.listed,
    ast.ListComp: Expressions.comprehension,
    ast.GeneratorExp: Expressions.comprehension,
    ast.Dict: Expressions.mapping,
    ast.Call: Expressions.called,
}
