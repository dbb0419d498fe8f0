"""Expressions that models share, found in the syntax tree: frequencies, tables, and where definitions are."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence


def definitions(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The definitions of a module, also those under a condition."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from definitions([*node.body, *node.orelse])


def assigned(tree: ast.Module) -> Counter[str]:
    """How often the names of a module are given a value, in functions that call them global too."""
    found: Counter[str] = Counter()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            found.update(name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names)
        else:
            # A loop gives a name more than one value.
            loops = isinstance(node, ast.For | ast.While)
            waiting += [*ast.iter_child_nodes(node), *(node.body if loops else ())]
    return found


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a file imports from another one beside it, each with that file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            yield from ((each.name, f"{node.module}.py") for each in node.names if each.asname is None)


def rows_of_embedding(node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "Embedding":
        return None
    named = {each.arg: each.value for each in node.keywords}
    return node.args[0] if node.args else named.get("num_embeddings")


def _range_in(node: ast.AST) -> ast.Call | None:
    """The call ``arange(0, width, 2)`` in an expression."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] in ("arange", "range"):
            numbers = [at.value if isinstance(at, ast.Constant) else None for at in each.args]
            if len(each.args) == 3 and (numbers[0], numbers[2]) == (0, 2):
                return each
    return None


def width_of_range(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Width and divisor of ``arange(0, width, 2) / divisor``; None if an expression is another."""
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div):
            found = _range_in(each.left)
            if found is not None:
                return found.args[1], each.right
    return None


def exponential_frequencies(node: ast.expr) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Base, width and divisor of ``arange(0, width, 2) * (-log(base) / divisor)``, the exponent of sinusoids."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for one, other in ((node.left, node.right), (node.right, node.left)):
        ratio = other.operand if isinstance(other, ast.UnaryOp) else other
        channels = _range_in(one)
        if channels is None or not isinstance(ratio, ast.BinOp) or not isinstance(ratio.op, ast.Div):
            continue
        log = ratio.left.operand if isinstance(ratio.left, ast.UnaryOp) else ratio.left
        negative = isinstance(other, ast.UnaryOp) is not isinstance(ratio.left, ast.UnaryOp)
        if negative and isinstance(log, ast.Call) and ast.unparse(log.func).rpartition(".")[2] == "log" and log.args:
            return log.args[0], channels.args[1], ratio.right
    return None


def is_ntk(node: ast.expr) -> bool:
    """Whether an exponent is width / (width - 2), that of NTK-aware scalings."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    less = node.right
    return (
        isinstance(less, ast.BinOp)
        and isinstance(less.op, ast.Sub)
        and ast.dump(less.left) == ast.dump(node.left)
        and isinstance(less.right, ast.Constant)
        and less.right.value == 2
    )


def scalings_compared(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that code compares with the type of a scaling in its config, each with its line."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        inside = list(ast.walk(function))
        assigned = [each for each in inside if isinstance(each, ast.Assign) and _is_type(each.value)]
        held = {target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)}
        for each in inside:
            if not isinstance(each, ast.Compare) or not (_is_type(each.left) or getattr(each.left, "id", None) in held):
                continue
            for said in ast.walk(each.comparators[0]):
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    yield said.value, said.lineno


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is ``rope_scaling["type"]``, or ``rope_scaling.get("type")``."""
    if isinstance(node, ast.BoolOp):
        return any(map(_is_type, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        around, key = node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript):
        around, key = node.value, node.slice
    else:
        return False
    block = around.attr if isinstance(around, ast.Attribute) else getattr(around, "id", "")
    return block in ("rope_scaling", "rope_parameters") and getattr(key, "value", None) in ("type", "rope_type")
