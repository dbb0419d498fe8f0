"""A table of cases as one test: every row is tried, and all that fail are reported together."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def every(
    names: str, rows: Iterable[Any] | Callable[[], Iterable[Any]], drawn: int | dict[str, int] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, with one test for all rows: ``@every("spec, position", ROWS)``.

    For rows that share nothing but what they read: fixtures are made once. NumPy sees all rows; with ``drawn``, other
    libraries (or those that it names) see so many of them, others in each run.
    """
    named = [name.strip() for name in names.split(",")]

    def looped(test: Callable[..., None]) -> Callable[..., None]:
        asked = inspect.signature(test).parameters

        @functools.wraps(test)
        def loop(cases: Any, draw: Any, **given: Any) -> None:
            given |= {name: value for name, value in (("cases", cases), ("draw", draw)) if name in asked}
            library = getattr(given.get("backend", given.get("any_backend")), "name", "numpy")
            few = drawn.get(library) if isinstance(drawn, dict) else None if library == "numpy" else drawn
            known = list(rows() if callable(rows) else rows)
            for row in known if few is None else draw(known, few):
                held = dict(zip(named, row if len(named) > 1 else (row,), strict=True))
                cases.tried += 1
                try:
                    test(**given, **held)
                except ModuleNotFoundError:
                    raise  # the test is skipped
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a row fails with
                    place = traceback.extract_tb(error.__traceback__)[1]
                    shown = ", ".join(f"{name}={value}" for name, value in held.items())
                    where = f"{Path(place.filename).name}:{place.lineno}: {place.line}"
                    cases.failures.append(f"{shown}\n  {where}\n  {type(error).__name__}: {error}")

        wanted = [*(name for name in asked if name not in {*named, "cases", "draw"}), "cases", "draw"]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in wanted]
        loop.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del loop.__wrapped__  # type: ignore[attr-defined] - pytest would ask its arguments
        return loop

    return looped
