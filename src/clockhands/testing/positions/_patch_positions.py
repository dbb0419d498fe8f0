"""The rows of a learned table that the patches of an image read, by where they lie in the image (Idefics, SmolVLM)."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.testing._checks import named
from clockhands.testing._number_rules import InputNumbers, NamedCall, NumberRule, first_judged, judged, named_parameters
from clockhands.testing._usual_names import meanings
from clockhands.testing.reports import Report

_KNOWN = meanings("mask of patches", "side of table")
_SIDE = 32  # of the table, where the function is told
_FULL = 101  # the side of an image of which no patch lies on a border, for tables of other sides

Image = tuple[int, int, int, int]
"""Rows and columns of patches of the batch, and of the image in its upper left."""


patches_taken = partial(named_parameters, known=_KNOWN, enough=(("mask of patches",),))
"""What the parameters of a function mean, if they are those of the positions of patches."""


def check_patches(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that gives the patches of images their rows of a square learned table.

    The published rule: patch k of n along a side reads row floor(k N / n) of the N rows of that side, and the numbers
    are row * N + column. Where k N / n is whole and n no power of two, rounding may give the row before.

    Source: transformers 5.23.0, models/idefics3/modeling_idefics3.py, Idefics3VisionEmbeddings; Dehghani et al. 2023,
    arXiv:2307.06304.

    Raises:
        CannotCheck: It cannot be called, or its numbers are those of no known rule.
    """
    called = NamedCall(function, takes, backend, timeout)

    def ask(image: Image) -> np.ndarray:
        height, width, rows, columns = image
        mask = np.zeros((1, height, width), bool)
        mask[:, :rows, :columns] = True
        return called.answer(
            {"mask of patches": mask, "side of table": _SIDE}, height * width, lambda answer: _read(answer, image)
        )

    def attempt() -> Report:
        largest = int(ask((_FULL, _FULL, _FULL, _FULL)).max())
        side = _SIDE if "side of table" in takes.values() else math.isqrt(largest + 1)
        images: Mapping[str, Image] = {
            "a whole image": (side, side, side, side),
            "a smaller image": (side, side, max(side // 2, 2), max(3 * side // 4, 3)),
            "an image of odd sides": (13, 13, 7, 11),
            "an image without padding": (5, 9, 5, 9),
        }
        asked = [InputNumbers(name, image, ask(image)) for name, image in images.items()]
        return judged(named(function, None), "positions", asked, _readings(side), called)

    return first_judged([("a mask of patches [1, rows, columns]", attempt)])


def _read(answer: Any, image: Image) -> np.ndarray:
    """The numbers of the valid patches, [rows, columns]."""
    height, width, rows, columns = image
    if not hasattr(answer, "shape") or as_numpy(answer).dtype.kind not in "iu":
        raise Refused(f"it returned {kind_of(answer)}, not whole numbers")
    if answer.shape not in {(1, height * width), (1, height, width), (height * width,), (height, width)}:
        raise Refused(f"it returned shape {list(answer.shape)} for {height} x {width} patches")
    return as_numpy(answer).reshape(height, width)[:rows, :columns].astype(np.float64)


def _readings(side: int) -> Iterator[NumberRule]:
    """The published rule for a table of ``side`` x ``side`` rows, and those of known faults."""

    def numbers(row: Callable[..., np.ndarray], column: Callable[..., np.ndarray] | None = None, **how: Any) -> Any:
        def of(image: Image) -> np.ndarray:
            height, width, rows, columns = image
            high, wide = (height, width) if how.get("padded") else (rows, columns)
            if how.get("exchanged_sizes"):
                high, wide = wide, high
            here = np.clip(row(np.arange(rows), high), 0, side - 1)[:, None]
            there = np.clip((column or row)(np.arange(columns), wide), 0, side - 1)[None, :]
            stride = wide if how.get("own_stride") else side
            return here + stride * there if how.get("turned") else stride * here + there

        return of

    def bucket(at: np.ndarray, number: int) -> np.ndarray:
        found = (at * side // number).astype(np.float64)
        # Unless fractions are exact, a border may be rounded to the row before; then it is not compared.
        on_border = (at > 0) & (at * side % number == 0) & (number & (number - 1) > 0)
        return np.where(on_border, np.nan, found)

    def before(at: np.ndarray, number: int) -> np.ndarray:
        return np.maximum(-(-at * side // number) - 1, 0).astype(np.float64)

    words = f"patch positions by their fraction of the image, floor(k * {side} / n) of a table of {side} x {side} rows"
    yield NumberRule(numbers(bucket), words)
    code = "patches-misplaced"
    ways = {
        "the row and column before, where a patch lies on the border of two": numbers(before),
        "column * side + row, in place of row * side + column": numbers(bucket, turned=True),
        "fractions of the padded size, in place of the size of the image": numbers(bucket, padded=True),
        "fractions of the height for columns and of the width for rows": numbers(bucket, exchanged_sizes=True),
        "row * (columns of the image) + column, in place of row * side + column": numbers(bucket, own_stride=True),
        "the nearest row, in place of the one at or below": numbers(lambda at, n: np.floor(at * side / n + 0.5)),
        "the row above": numbers(lambda at, n: np.ceil(at * side / n)),
        "the row after": numbers(lambda at, n: bucket(at, n) + 1),
        "fractions k / (n - 1), in place of k / n": numbers(lambda at, n: np.floor(at * (side - 1) / (n - 1) + 1e-9)),
        "row k for patch k, whatever the size of the image": numbers(lambda at, _: at.astype(np.float64)),
    }
    for how, of in ways.items():
        yield NumberRule(of, code=code, parameters={"how": how})
