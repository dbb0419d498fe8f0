"""Expressions that models share, found in the syntax tree: frequencies, tables, and where definitions are."""

import ast
from collections.abc import Iterator, Sequence


def definitions(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The definitions of a module, also those under a condition."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from definitions([*node.body, *node.orelse])


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
