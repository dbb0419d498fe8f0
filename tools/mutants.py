"""Mutants: small changes of the package, put into its modules by an import hook, and run by a plugin of pytest.

`tools/mutation_sample.py` says what they are and starts the processes that this file is for. Each imports it first, so
it imports little itself. Which sample is meant, which mutant is on and where notes go stand in the environment.

PYTEST_DONT_REWRITE: pytest is imported after this file.
"""

import ast
import copy
import functools
import gc
import importlib.machinery
import inspect
import json
import marshal
import os
import signal
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = "clockhands"
SAMPLE, NOTES, ACTIVE = "MUTATION_SAMPLE", "MUTATION_NOTES", "MUTATION_ACTIVE"
WORK, RESULTS = "MUTATION_WORK", "MUTATION_RESULTS"

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


# --- changes of one module ----------------------------------------------------------------------------------------


def changed(node: ast.AST) -> tuple[str, ast.AST | None] | None:
    """The kind of change that a node allows, and the node after it: ``None`` for a statement that is left out."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            return "comparison", _with(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            return "operator", _with(node, op=_OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            return "and or", _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return "not or sign", operand
        case ast.Constant(value=bool() as value):
            return "true or false", _with(node, value=not value)
        case ast.Constant(value=int() | float() as value):
            return "number", _with(node, value=value + 1)
        case ast.Constant(value=str() as value):
            return "text", _with(node, value=f"XX{value}XX")
        case ast.JoinedStr(values=values):
            return "text", _with(node, values=[ast.Constant("XX"), *values])
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(keywords=[*before, ast.keyword(arg=str() as name)]) if name != "strict":  # `zip` checks itself
            return "argument", _with(node, keywords=before)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return "left out", None
    return None


def _with(node: Any, **values: Any) -> Any:
    new = copy.copy(node)
    for name, value in values.items():
        setattr(new, name, value)
    return new


def places(tree: ast.Module) -> Iterator[tuple[int, ast.AST, str]]:
    """The nodes inside functions that may change: a number, the same at each parse, the node, and its function."""
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}

    def walk(node: ast.AST, name: str, within: bool) -> Iterator[tuple[int, ast.AST, str]]:
        if isinstance(node, ast.pattern | ast.FormattedValue | ast.arguments):
            return
        if isinstance(node, _FUNCTIONS | ast.ClassDef):
            name = f"{name}.{node.name}".lstrip(".")
            within = within or isinstance(node, _FUNCTIONS)
            children = node.body if ast.get_docstring(node, clean=False) is None else node.body[1:]
        else:
            if within and changed(node) is not None:
                yield numbers[id(node)], node, name
            unseen = {"annotation"} if isinstance(node, ast.AnnAssign) else set()
            fields = (value for field, value in ast.iter_fields(node) if field not in unseen)
            children = [each for value in fields for each in (value if isinstance(value, list) else [value])]
        if not isinstance(node, ast.JoinedStr):
            for each in children:
                if isinstance(each, ast.AST):
                    yield from walk(each, name, within)

    yield from walk(tree, "", within=False)


class _Switches(ast.NodeTransformer):
    """Puts mutants into a module: ``changed if __mutant__(n) else as it was``."""

    def __init__(self, tree: ast.Module, mutants: dict[int, int], noting: bool) -> None:
        self.mutants = {id(node): mutants[number] for number, node, _ in places(tree) if number in mutants}
        self.noting = noting

    def visit(self, node: ast.AST) -> Any:
        number = self.mutants.get(id(node))
        node = self.generic_visit(node)
        if self.noting and isinstance(node, _FUNCTIONS):
            node.decorator_list = [_noting(each) for each in node.decorator_list]
        if number is None:
            return node
        _, new = changed(node) or ("", None)
        on = ast.Subscript(ast.Name("__mutants__", ast.Load()), ast.Constant(number), ast.Load())
        if self.noting:
            on = ast.Call(ast.Name("__reached__", ast.Load()), [ast.Constant(number)], [])
        if isinstance(node, ast.expr):
            return ast.copy_location(ast.IfExp(on, copy.deepcopy(new), node), node)
        return ast.copy_location(ast.If(on, [copy.deepcopy(new) if new else ast.Pass()], [node]), node)


def _noting(decorator: ast.expr) -> ast.expr:
    """What remembers answers must also remember which mutants they came from."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    own = {"cache": "__noting_cache__", "lru_cache": "__noting_cache__", "cached_property": "__noting_property__"}
    if name not in own:
        return decorator
    return ast.copy_location(ast.Call(ast.Name(own[name], ast.Load()), [decorator], []), decorator)


def compiled(path: str, source: bytes, mutants: dict[int, int], noting: bool) -> Any:
    """The code of a module with its mutants; ``mutants`` maps numbers of places to numbers of mutants."""
    tree = ast.parse(source, path)
    tree = ast.fix_missing_locations(_Switches(tree, mutants, noting).visit(tree))
    return compile(tree, path, "exec", dont_inherit=True)


# --- inside every process of the tests ----------------------------------------------------------------------------

_test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # a process that a test starts is part of it
_known: set[tuple[int, str]] = set()
_open: list[set[int]] = []  # one for each remembered answer that is being computed


def reached(number: int) -> bool:
    """Note that the current test reaches a mutant."""
    for each in _open:
        each.add(number)
    if (number, _test) not in _known:
        _known.add((number, _test))
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps([number, _test]) + "\n")
    return False


reached._dynamo_marked_constant = True  # type: ignore[attr-defined]  # PyTorch's compiler calls it while it traces


def _noted(call: Callable[[], Any], into: dict[Any, set[int]], key: Any) -> Any:
    _open.append(set())
    try:
        return call()
    finally:
        into[key] = _open.pop()


def _noting_cache(decorator: Callable) -> Callable:
    def decorate(function: Callable) -> Callable:
        known: dict[Any, set[int]] = {}

        @functools.wraps(function)
        def first(*arguments: Any, **options: Any) -> Any:
            return _noted(lambda: function(*arguments, **options), known, (arguments, *sorted(options.items())))

        remembering = decorator(first)

        @functools.wraps(function)
        def ask(*arguments: Any, **options: Any) -> Any:
            answer = remembering(*arguments, **options)
            for number in known.get((arguments, *sorted(options.items())), ()):
                reached(number)
            return answer

        ask.cache_clear, ask.cache_info = remembering.cache_clear, remembering.cache_info  # type: ignore[attr-defined]
        return ask

    return decorate


class _NotingProperty:
    """A cached property whose every use counts; it writes, like the original, into the instance's ``__dict__``."""

    def __init__(self, function: Callable) -> None:
        self.function, self.__doc__ = function, function.__doc__
        self.known: dict[int, set[int]] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self.name not in instance.__dict__:
            instance.__dict__[self.name] = _noted(lambda: self.function(instance), self.known, id(instance))
        for number in self.known.get(id(instance), ()):
            reached(number)
        return instance.__dict__[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


class _Loader(importlib.machinery.SourceFileLoader):
    mutants: dict[int, int]

    def get_code(self, fullname: str) -> Any:
        """The code with its mutants, kept beside the sample: a test may start many processes."""
        source, noting = Path(self.path).read_bytes(), NOTES in os.environ
        key = zlib.crc32(repr((self.path, sorted(self.mutants.items()), noting)).encode(), zlib.crc32(source))
        kept = Path(os.environ[SAMPLE]).parent / "code" / f"{fullname}-{key:08x}"
        if kept.exists():
            return marshal.loads(kept.read_bytes())
        code = compiled(self.path, source, self.mutants, noting)
        kept.parent.mkdir(exist_ok=True)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_bytes(marshal.dumps(code))
        written.replace(kept)
        return code


class _Finder:
    """Finds the modules of the package, and gives those with mutants a loader that puts them in."""

    def __init__(self, sample: list[dict[str, Any]]) -> None:
        self.files: dict[str, dict[int, int]] = defaultdict(dict)
        for number, mutant in enumerate(sample):
            self.files[mutant["file"]][mutant["place"]] = number

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return spec
        name = Path(spec.origin).as_posix().rpartition(f"/{PACKAGE}/")[2]
        if name in self.files or NOTES in os.environ:
            loader = _Loader(fullname, spec.origin)
            loader.mutants = self.files.get(name, {})
            spec.loader, spec.cached = loader, None
        return spec


def install() -> None:
    """Put the mutants of the sample into this process, all off but the active one."""
    import builtins

    sample = json.loads(Path(os.environ[SAMPLE]).read_text(encoding="utf-8"))
    active = int(os.environ.get(ACTIVE, "-1"))
    builtins.__mutants__ = [number == active for number in range(len(sample))]  # type: ignore[attr-defined]
    builtins.__reached__ = reached  # type: ignore[attr-defined]
    builtins.__noting_cache__ = _noting_cache  # type: ignore[attr-defined]
    builtins.__noting_property__ = lambda _: _NotingProperty  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder(sample))  # type: ignore[arg-type]


# --- the plugin of pytest -----------------------------------------------------------------------------------------


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test reaches the mutants from now on."""
    globals()["_test"] = nodeid


def pytest_runtest_logfinish() -> None:
    """What is reached between tests belongs to none."""
    globals()["_test"] = ""


def pytest_runtest_logreport(report: Any) -> None:
    """Note how long a test took."""
    if NOTES in os.environ and "PYTEST_XDIST_WORKER" not in os.environ and report.when == "call":
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps([report.nodeid, report.duration, report.outcome]) + "\n")


def pytest_runtestloop(session: Any) -> bool | None:
    """In place of the run: fork a process for each mutant, which runs the tests that reach it until one fails."""
    if WORK not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    _forget()
    for line in Path(os.environ[WORK]).read_text(encoding="utf-8").splitlines():
        work = json.loads(line)
        chosen = [items[test] for test in work["tests"] if test in items]
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            _run(work["number"], chosen)
        noticed = _ended(child, start + work["limit"])
        seconds = round(time.monotonic() - start, 1)
        with Path(os.environ[RESULTS]).open("a", encoding="utf-8") as results:
            results.write(json.dumps({"number": work["number"], **noticed, "seconds": seconds}) + "\n")
    return True


def _run(number: int, items: list[Any]) -> None:
    """Run tests until one fails, say which in a file beside the results, and end the process."""
    import builtins

    from _pytest.runner import runtestprotocol

    told = Path(f"{os.environ['MUTATION_RESULTS']}.{os.getpid()}")
    try:
        builtins.__mutants__[number] = True  # type: ignore[attr-defined]
        os.environ[ACTIVE] = str(number)
        for item, following in zip(items, [*items[1:], None], strict=True):
            told.write_text(item.nodeid, encoding="utf-8")
            item._initrequest()
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                os._exit(1)
    except BaseException:  # noqa: BLE001 - also where the mutant ends the process
        os._exit(1)
    os._exit(0)


def _ended(child: int, until: float) -> dict[str, Any]:
    """How the process of a mutant ended: the test that failed, or was running when it crashed or took too long."""
    told = Path(f"{os.environ['MUTATION_RESULTS']}.{child}")
    status = None
    while status is None and time.monotonic() < until:
        done, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        time.sleep(0.02)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    test = told.read_text(encoding="utf-8") if told.exists() else ""
    told.unlink(missing_ok=True)
    how = {None: "took too long", 0: "", 1: "failed"}.get(status, "crashed")
    return {"noticed": bool(how), "how": how, "by": test if how else ""}


def _forget() -> None:
    """Forget what was computed while the tests were collected, which no mutant could change any more."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            if str(getattr(each, "__module__", "")).startswith(PACKAGE):
                each.cache_clear()
        elif type(each).__module__.partition(".")[0] == PACKAGE and isinstance(getattr(each, "__dict__", None), dict):
            for name, value in inspect.getmembers_static(type(each)):
                if isinstance(value, functools.cached_property):
                    each.__dict__.pop(name, None)
