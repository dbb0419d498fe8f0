"""Follows the code of a model from its class, without running it: which values of the config reach which computation.

Constructors and ``forward`` are followed statement by statement, with values that are known or known only at run time.
Both branches are followed where a condition is known only while the model runs; what the config decides is decided.
What is found on the way is recorded as an `Event` with file and line.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.configs.key_reads import defaults_of
from clockhands.configs.model_code._definitions import OTHER_PARTS, Frame
from clockhands.configs.model_code._expressions import Expressions
from clockhands.configs.model_code._idioms import rows_of_embedding
from clockhands.configs.model_code._known_values import (
    UNKNOWN,
    Class,
    Function,
    Instance,
    Items,
    Known,
    RunTime,
    Value,
    arithmetic,
    is_numbered,
    join,
    join_all,
)

# Calls inside each other: real models have ten.
MOST_CALLS = 24


class FollowedCode(Expressions):
    """The code of a model that was followed."""

    def config(self, kind: Class | None, values: Mapping[str, Any], path: str) -> Instance:
        """The config of a class, made from the object of a file."""
        made = Instance(kind, values=values, path=path)
        start = None if kind is None else self.method(made, "__init__")
        if start is not None:
            named = [each.arg for each, _ in defaults_of(start.node.args)]
            self.call(start, [], {key: self.read(made, key) for key in named if key in values}, certain=True)
        return made

    def follow(self, kind: Class, config: Instance) -> None:
        """Follow the class of a model: its constructor, and the forward methods of everything that it makes."""
        self.construct(kind, [config], {}, certain=True, part="text")
        self._building = False
        done = 0
        while done < len(self.instances):
            made = self.instances[done]
            done += 1
            forward = self.method(made, "forward")
            if forward is not None and made.values is None:
                # Whatever the model passes to it: its defaults say nothing.
                given = {each.arg: UNKNOWN for each, _ in defaults_of(forward.node.args) if each.arg != "self"}
                self._numbered = made.numbered or made.called is False
                self.call(forward, [], given, certain=made.certain)

    def construct(
        self, kind: Class, given: Sequence[Value], named: Mapping[str, Value], *, certain: bool, part: str
    ) -> Instance:
        """An instance of a class of the code."""
        made = Instance(kind, part="other" if OTHER_PARTS.search(kind.node.name) else part, certain=certain)
        made.numbered = self._numbered
        for each in (*given, *named.values()):
            if isinstance(each, Instance) and each.values is not None:
                made.attributes["config"] = each
                made.part = each.part if each.part != "text" else made.part
        self.instances.append(made)
        start = self.method(made, "__init__")
        if start is not None:
            self.call(start, given, named, certain=certain)
        return made

    def call(
        self, function: Function, given: Sequence[Value], named: Mapping[str, Value], *, certain: bool, part: str = ""
    ) -> Value:
        """The result of a call of a function of the code."""
        if len(self._calls) >= MOST_CALLS or self._calls.count(function.node):
            return UNKNOWN
        self._step(len(function.around))
        self._calls.append(function.node)
        frame = Frame(
            function, dict(function.around), certain, function.of.part if function.of is not None else part or "text"
        )
        parameters = defaults_of(function.node.args)
        if function.of is not None and not _is_static(function.node):
            given = [function.of, *given]
        places = [*function.node.args.posonlyargs, *function.node.args.args]
        values = {each.arg: value for each, value in zip(places, given, strict=False)} | dict(named)
        if function.node.args.vararg is not None:
            frame.names[function.node.args.vararg.arg] = Items(tuple(given[len(places) :]))
        if function.node.args.kwarg is not None:
            known = {each.arg for each, _ in parameters}
            frame.names[function.node.args.kwarg.arg] = Known(
                {key: held for key, held in named.items() if key not in known}
            )
        for each, default in parameters:
            value = values.get(each.arg)
            if value is None:
                value = UNKNOWN if default is None else _from_line(self.value(default, frame), function.file, each)
            frame.names[each.arg] = value
        before = self._numbered
        self._block(function.node.body, frame)
        self._numbered = before
        self._calls.pop()
        return join_all(frame.returned) if frame.returned else UNKNOWN

    def _block(self, body: Sequence[ast.stmt], frame: Frame) -> str:
        """Follow statements; says how they end: ``raise``, ``return`` or the empty text."""
        for statement in body:
            ended = self._statement(statement, frame)
            if ended:
                return ended
        return ""

    def _statement(self, node: ast.stmt, frame: Frame) -> str:
        self._step()
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._assignment(node, frame)
        elif isinstance(node, ast.Expr):
            self.value(node.value, frame)
        elif isinstance(node, ast.If):
            return self._condition(node, frame)
        elif isinstance(node, ast.Return):
            frame.returned.append(UNKNOWN if node.value is None else self.value(node.value, frame))
            return "return"
        elif isinstance(node, ast.Raise):
            return "raise"
        elif isinstance(node, ast.For | ast.While):
            self._loop(node, frame)
        elif isinstance(node, ast.With):
            return self._block(node.body, frame)
        elif isinstance(node, ast.Try):
            return self._block([*node.body, *node.finalbody], frame)
        elif isinstance(node, ast.FunctionDef):
            frame.names[node.name] = Function(node, frame.function.file, around=frame.names)
        return ""

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, frame: Frame) -> None:
        if node.value is None:
            return
        value = self.value(node.value, frame)
        if isinstance(node, ast.AugAssign):
            value = arithmetic(node.op, self.value(node.target, frame), value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.bind(target, value, frame)
            name = target.attr if isinstance(target, ast.Attribute) else ""
            rows = rows_of_embedding(node.value)
            if name and rows is not None:
                self._record("table", node, self.value(rows, frame), frame, name)

    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Give a name, an attribute or several of them a value."""
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            of = self.value(target.value, frame)
            if isinstance(of, Instance):
                self.bind_attribute(of, target.attr, value, frame)
        elif isinstance(target, ast.Subscript) and isinstance(value, RunTime) and value.trig and _every_second(target):
            self._record("sinusoids", target, value.trig, frame)
        elif isinstance(target, ast.Tuple | ast.List):
            for at, each in enumerate(target.elts):
                self.bind(each, self._item(value, at), frame)

    def bind_attribute(self, of: Instance, name: str, value: Value, frame: Frame) -> None:
        """Give an attribute a value; under a condition that is not known, it may keep the one that it has."""
        if frame.branches and of is not frame.function.of:
            before = of.attributes.get(name, UNKNOWN if of.values is None else self.read(of, name))
            value = value if before == UNKNOWN else join(before, value)
        of.attributes[name] = value

    def _loop(self, node: ast.For | ast.While, frame: Frame) -> None:
        """Follow the body of a loop once, for any of its turns: what an earlier turn has changed is not known.

        After it, names have what a turn leaves or what they had before, for there may be no turn.
        """
        of = frame.function.of
        before = dict(frame.names), {} if of is None else dict(of.attributes)
        self._step(len(before[0]) + len(before[1]))
        if isinstance(node, ast.For):
            self.bind(node.target, self._item(self.value(node.iter, frame)), frame)
        frame.branches += 1
        for each in _changed(node.body):
            if isinstance(each, ast.Attribute) or each.id in before[0]:
                self.bind(each, UNKNOWN, frame)
        self._block(node.body, frame)
        frame.branches -= 1
        frame.names = _joined([before[0], frame.names])
        if of is not None:
            of.attributes = _joined([before[1], of.attributes])

    def _condition(self, node: ast.If, frame: Frame) -> str:
        test = self.value(node.test, frame)
        holds = self.truth(test)
        if holds is not None:
            return self._block(node.body if holds else node.orelse, frame)
        certain, of = frame.certain, frame.function.of
        outside, numbered = self._numbered, is_numbered(test)
        before = dict(frame.names), {} if of is None else dict(of.attributes)
        self._step(len(before[0]) + len(before[1]))
        ends, states = [], []
        frame.branches += 1
        for body in (node.body, node.orelse):
            frame.names, frame.certain = dict(before[0]), certain and not self._building
            self._numbered = outside or numbered
            if of is not None:
                of.attributes = dict(before[1])
            ends.append(self._block(body, frame))
            states.append((frame.names, {} if of is None else of.attributes))
        frame.certain, frame.branches = certain, frame.branches - 1
        self._numbered = outside or (numbered and "return" in ends)  # the other layers alone go on
        left = [state for end, state in zip(ends, states, strict=True) if not end]
        if not left:
            return "return" if "return" in ends else "raise"
        frame.names = _joined([names for names, _ in left])
        if of is not None:
            # What a branch that returns has set stays set for later calls.
            of.attributes = _joined([held for end, (_, held) in zip(ends, states, strict=True) if end != "raise"])
        return ""


def _changed(body: Sequence[ast.stmt]) -> Iterator[ast.Name | ast.Attribute]:
    """The names and attributes that statements give a value."""
    for statement in body:
        for each in ast.walk(statement):
            if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store):
                yield each


def _every_second(target: ast.Subscript) -> bool:
    """Whether a subscript is every second channel of a tensor."""
    last = target.slice.elts[-1] if isinstance(target.slice, ast.Tuple) else target.slice
    return isinstance(last, ast.Slice) and isinstance(last.step, ast.Constant) and last.step.value == 2


def _is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def _from_line(value: Value, file: str, node: ast.AST) -> Value:
    """A default with the line that it is written in."""
    if isinstance(value, Known) and not value.sources:
        return Known(value.value, (f"{file}:{getattr(node, 'lineno', 1)}",))
    return value


def _joined(states: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    made: dict[str, Value] = {}
    for state in states:
        for name, value in state.items():
            if name not in made:
                made[name] = value
            elif made[name] is not value:
                made[name] = join(made[name], value)
    return made
