"""What calls answer, in words: `tests/sentences` holds it as an interpreter shows it, each call above its answer.

A call that raises an error of the package answers with the end of its traceback: the kind, the message, the hint.
"""

import ast
import doctest
from pathlib import Path
from typing import Any

from clockhands.errors import ClockhandsError

FOLDER = Path(__file__).resolve().parents[1] / "sentences"


def answer(call: str, names: dict[str, Any]) -> str:
    """The value of a call as text, or the error that it raises."""
    try:
        return str(eval(call, names))
    except ClockhandsError as error:
        return f"{type(error).__name__}: {error}"


def hold(name: str, cases: Any) -> None:
    """Every call of a file has the answer below it; lines without an answer make the names that calls use."""
    names: dict[str, Any] = {}
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    for example in doctest.DocTestParser().get_examples(text, name):
        call = example.source.strip()
        if not example.want and not isinstance(ast.parse(call).body[0], ast.Expr):
            exec(compile(call, str(FOLDER / f"{name}.txt"), "exec"), names)
            continue
        with cases(f"{name}.txt:{example.lineno + 1}", call[:100]):
            assert example.want, "there is no answer"
            found, wanted = answer(call, names), example.want.removesuffix("\n")
            assert found == wanted, f"it answers\n{found}\nand not\n{wanted}"
