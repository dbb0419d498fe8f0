"""What a function computes, where nothing says what it should: named, so that the next command can be typed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Unasked
from clockhands.testing.functions._bias_calls import CalledBias, bias_arguments
from clockhands.testing.functions._calls import Called

_WIDTHS = (64, 128, 32, 16, 8)


def computed_encoding(function: Callable[..., Any], width: int | None, backend: Any, timeout: float) -> tuple[str, int]:
    """The encoding that a function computes, in words, and the width of its tokens; empty and 0 if it is not known.

    Of a function that is given cosines and sines only the layout of pairs is said: the rest is what it is given.
    """
    if found := _found_bias(function, backend, timeout):
        return found, 0
    for each in _WIDTHS if width is None else (width,):
        for rotary in (None, Rotary(each)):
            try:
                called = Called(function, each, rotary=rotary, backend=backend, timeout=timeout)
                if found := _found(called, each):
                    return found, each
            except (ClockhandsError, Refused) as error:
                if "did not return" in str(error):  # each further call would take as long
                    return "", 0
    return "", 0


def _found_bias(function: Callable[..., Any], backend: Any, timeout: float) -> str:
    """The bias that a function computes, if it is told how many queries or keys there are; else empty."""
    meant, arguments = bias_arguments(function, None)
    if meant not in {"counts", "keys"}:
        return ""
    try:
        called = CalledBias(function, 8, call=meant, arguments=arguments, backend=backend, timeout=timeout)
        matches = identify(called(np.arange(40), np.arange(40)))
    except (ClockhandsError, Refused, Unasked):
        return ""
    return describe(matches[0].spec) if matches else ""


def _found(called: Called, width: int) -> str:
    def answer(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        y = called(x[None, None], positions)[0, 0]
        return y + x if called.shape.is_table else y

    matches = identify(answer, width=width, backend="numpy", dtype="float64", longest=1000)
    if not matches:
        return ""
    spec = matches[0].spec
    if called.shape.table is not None and isinstance(spec, Rotary):
        return f"a rotation by the cosines and sines that it is given, with pairs as {spec.layout}"
    return describe(spec)
