"""The positions of a decoding step: from the number of tokens before it, their deltas, and the number of new ones."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.testing._checks import named
from clockhands.testing._number_rules import InputNumbers, NamedCall, NumberRule, first_judged, judged, named_parameters
from clockhands.testing._usual_names import meanings
from clockhands.testing.reports import Report

_NUMBERS = ("number of tokens", "number of queries", "seq_len")
_KNOWN = meanings("offset", "earlier", "delta", *_NUMBERS, "positions", "cache_positions", "step", "batch_size")
_ENOUGH = (
    *product(("offset", "earlier"), (*_NUMBERS, "step", "delta")),
    *product(("positions", "cache_positions"), ("delta",)),
)

Window = Mapping[str, Any]
"""``before`` and ``delta`` of each row, the ``number`` of tokens, and the ``step`` of the first."""


def _window(before: list[int], delta: list[int], number: int) -> Window:
    return {"before": np.array(before), "delta": np.array(delta), "number": number, "step": 0}


_WINDOWS: Mapping[str, Window] = {
    "one token": _window([37], [-20], 1),
    "a window of tokens": _window([37], [-20], 4),
    "an empty cache": _window([0], [0], 5),
    "rows of different lengths": _window([37, 12, 90], [-20, 0, 7], 4),
}


windows_taken = partial(named_parameters, known=_KNOWN, enough=_ENOUGH)
"""What the parameters of a function mean, if they are those of a decoding step."""


def check_windows(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that gives the tokens of a decoding step their positions.

    Raises:
        CannotCheck: It cannot be called, or its numbers are those of no known rule.
    """
    called = NamedCall(function, takes, backend, timeout)
    words = {*takes.values()}
    windows = {
        name: {
            **window,
            "number": window["number"] if words & {*_NUMBERS, "positions", "cache_positions"} else 1,
            "step": place if "step" in words else 0,
        }
        for place, (name, window) in enumerate(_WINDOWS.items())
    }

    def attempt(shaped: Callable[[np.ndarray], Any], total: bool) -> Report:
        asked = []
        for name, window in windows.items():
            given = _arguments(window, shaped, total, several=len(words & {*_NUMBERS}) > 1)
            if given is not None:
                got = called.answer(given, window["number"], lambda answer, it=window: _read(answer, it))
                asked.append(InputNumbers(name, window, got))
        return judged(named(function, None), "positions", asked, _readings(words), called)

    return first_judged((form, partial(attempt, *how)) for form, how in _FORMS.items())


def _arguments(
    window: Window, shaped: Callable[[np.ndarray], Any], total: bool, several: bool
) -> dict[str, Any] | None:
    """The values of all words; None for several rows where there is one number for all.

    Where a function takes ``several`` numbers of tokens, the length is that of all tokens.
    """
    before, delta = window["before"], window["delta"]
    if shaped is _scalar and len(before) > 1:
        return None
    positions = before[:, None] + np.arange(window["number"])
    whole = window["number"] + int(before.max())
    return {
        **dict.fromkeys(_NUMBERS, whole if total else window["number"]),
        **({"seq_len": whole} if several else {}),
        **dict.fromkeys(("offset", "earlier"), shaped(before)),
        **dict.fromkeys(("positions", "cache_positions"), positions),
        "delta": shaped(delta),
        "step": window["step"],
        "batch_size": len(before),
    }


def _scalar(numbers: np.ndarray) -> int:
    return int(numbers[0])


_FORMS: Mapping[str, tuple[Callable[[np.ndarray], Any], bool]] = {
    "one number for each row": (lambda numbers: numbers, False),
    "one number for each row, [rows, 1]": (lambda numbers: numbers[:, None], False),
    "one number": (_scalar, False),
    "one number, and the length of all tokens": (_scalar, True),
}


def _read(answer: Any, window: Window) -> np.ndarray:
    """Positions as [rows, tokens]; axes before these must agree."""
    answer = answer[0] if isinstance(answer, tuple) and answer else answer
    array = np.asarray(answer) if isinstance(answer, int | list | range) else answer
    if not hasattr(array, "shape") or as_numpy(array).dtype.kind not in "iuf":
        raise Refused(f"it returned {kind_of(answer)}, not positions")
    array = as_numpy(array).astype(np.float64)
    rows, number = len(window["before"]), window["number"]
    if array.size % (rows * number) or (array.ndim > 1 and array.shape[-2:] not in {(rows, number), (1, number)}):
        raise Refused(f"it returned shape {list(array.shape)} for {rows} rows of {number} tokens")
    axes = array.reshape(-1, rows, number)
    if len(axes) not in {1, 3, 4} or not (axes == axes[0]).all():
        raise Refused(f"it returned shape {list(array.shape)}, with other numbers on each axis")
    return axes[0]


_MISUSED: Mapping[Any, str] = {
    0: "it is left out",
    -1: "it is subtracted",
    2: "it is added twice",
    "first": "that of the first row is added to every row",
}
"""What the delta is multiplied by, or whose it is."""


def _readings(words: set[str]) -> Iterator[NumberRule]:
    """The right positions, and those of known faults."""
    has_delta = "delta" in words

    def positions(
        before: Any = 1, delta: Any = 1, shift: int = 0, step: int = 1, steps: int = 1
    ) -> Callable[[Window], np.ndarray]:
        def numbers(window: Window) -> np.ndarray:
            held = [window["before"], window["delta"]]
            first, added = (
                np.full(len(each), each[0]) if how == "first" else how * each
                for each, how in zip(held, (before, delta if has_delta else 0), strict=True)
            )
            further = steps * window["step"] + shift + step * np.arange(window["number"], dtype=np.float64)
            return (first + added)[:, None] + further

        return numbers

    words_of = "number of earlier tokens" + " + rope delta" * has_delta + " + 0, 1, 2, ..."
    yield NumberRule(positions(), words_of)
    if "step" in words:  # steps may be counted from 1
        yield NumberRule(positions(shift=-1), f"{words_of}, where the first step is 1")
    at_one, shifted, of_first = "window-at-one-position", "window-shifted", "positions-of-first-sequence"
    faults: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        (at_one, {}, {"step": 0}),
        (shifted, {"by": "one later"}, {"shift": 1}),
        (shifted, {"by": "one earlier"}, {"shift": -1}),
        (shifted, {"by": "two later"}, {"shift": 2}),
        (shifted, {"by": "two earlier"}, {"shift": -2}),
        ("window-from-zero", {}, {"before": 0, "delta": 0}),
        *[("window-from-zero", {}, {"before": 0, "delta": 0, "steps": 0})] * ("step" in words),
        (shifted, {"by": "later, by the number of earlier tokens"}, {"before": 2}),
        (of_first, {}, {"before": "first", "delta": "first"}),
        (of_first, {}, {"before": "first"}),
    ]
    for delta, how in _MISUSED.items() if has_delta else ():
        faults += [("delta-misused", {"how": how}, {"delta": delta}), (at_one, {}, {"delta": delta, "step": 0})]
    faults += [("window-from-zero", {}, {"before": 0})] * has_delta
    for code, parameters, changes in faults:
        yield NumberRule(positions(**changes), code=code, parameters=parameters)
