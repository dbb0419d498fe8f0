"""Position terms of attention scores that depend on content (DeBERTa, Shaw, Transformer-XL): the rows that they read.

A score is linear in each of its arguments. So with queries of one unit vector and a table whose row r is r, a term is
the number of the row that it reads for each query and key; nothing needs to be known of the function but its arguments.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.testing._checks import named
from clockhands.testing._number_rules import InputNumbers, NamedCall, NumberRule, first_judged, judged, named_parameters
from clockhands.testing._usual_names import meanings
from clockhands.testing.reports import Report

_KNOWN = meanings("q", "k", "table of keys", "table of queries")
_TERMS = {"table of keys": ("q", "content-to-position"), "table of queries": ("k", "position-to-content")}
_LONG, _WIDTHS = 24, (8, 16, 32, 64)
_ERROR = 1e-3
_NUMBERS = (2 * _LONG - 1, 2 * _LONG, 2 * _LONG + 1, _LONG, 512, 256, 128, 64, 32, 16, 8, *range(5, 66, 2))
"""The numbers of rows that are tried: of all distances, of those of a causal model, and of usual tables."""
_LONGEST = (16, 20, 24, 28, 32, 48, 64, 128, 256, 384, 512, 768, 1024, 2048)
"""Usual distances from which DeBERTa's buckets do not grow."""

_APART = np.arange(_LONG)[:, None] - np.arange(_LONG)
Rows = np.ndarray
"""The row that a term reads for each query and key, [queries, keys]."""


scores_taken = partial(named_parameters, known=_KNOWN, enough=(("q", "table of keys"), ("k", "table of queries")))
"""What the parameters of a function mean, if they are queries or keys and a table of relative positions."""


def check_scores(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on the position terms of a score function.

    Each term reads one row for each query and key. In all published forms the row depends on the distance alone, it
    does not fall where the distance grows (or does not rise), and it changes by one from distance -1 to 0 and to 1. Of
    two terms both read the row of the same signed distance, query minus key. DeBERTa's buckets are compared number by
    number; so is the clipped distance of Shaw.

    Source: He et al. 2021, arXiv:2006.03654, section 3.1; transformers 5.23.0,
    models/deberta_v2/modeling_deberta_v2.py, make_log_bucket_position and disentangled_attention_bias; Shaw et al.
    2018, arXiv:1803.02155, section 3.2; Dai et al. 2019, arXiv:1901.02860, section 3.3.

    Raises:
        CannotCheck: It cannot be called, or a term reads no rows by a known rule.
    """
    called = NamedCall(function, takes, backend, timeout)

    def attempt(shape: str, number: int, width: int) -> Report:
        terms = {table: _read(called, table, shape, number, width) for table in _TERMS if table in takes.values()}
        return _judged(function, called, terms, number)

    return first_judged(
        (f"[{', '.join([*shape.split(), 'tokens', 'width'])}]", partial(attempt, shape, number, width))
        for shape, number, width in itertools.product(("heads", "batch heads", ""), _NUMBERS, _WIDTHS)
    )


def _read(called: NamedCall, table: str, shape: str, number: int, width: int) -> Rows:
    """The rows that the term of a table of ``number`` rows reads, NaN if it reads none."""
    axes = {"heads": 2, "batch": 1}
    before = tuple(axes[axis] for axis in shape.split())

    def scores(rows: np.ndarray) -> np.ndarray:
        given = {word: np.zeros((*before, _LONG, width)) for word in ("q", "k")}
        given |= {word: np.zeros((*before, number, width)) for word in _TERMS}
        given[_TERMS[table][0]][..., 0] = 1.0
        given[table][..., 0] = rows
        return called.answer(given, _LONG, lambda answer: _last(answer, before))

    whole, counted = scores(np.ones(number)), scores(np.arange(number, dtype=float))
    scale = whole[-1, 0]
    reads = np.abs(whole - scale) <= _ERROR * np.abs(scale)
    if not scale or not (reads | (_APART < 0)).all():
        raise Refused("a term does not read one row for each query and key")
    found = np.where(reads, counted / scale, np.nan)  # keys after the query may have none
    if np.nanmax(np.abs(found - np.round(found))) > 0.05:
        raise Refused("a term mixes rows of its table")
    return np.round(found)


def _last(answer: Any, before: tuple[int, ...]) -> np.ndarray:
    if not hasattr(answer, "shape") or tuple(answer.shape) != (*before, _LONG, _LONG):
        raise Refused(f"it returned {list(answer.shape) if hasattr(answer, 'shape') else kind_of(answer)}")
    return as_numpy(answer).astype(np.float64).reshape(-1, _LONG, _LONG)[-1]


def _judged(function: Callable[..., Any], called: NamedCall, terms: Mapping[str, Rows], number: int) -> Report:
    """The report by the rule that gives the rows of all terms."""
    asked = [InputNumbers(_TERMS[name][1], name, rows) for name, rows in terms.items()]
    rules = {words: rule for rows in terms.values() for words, rule in _rules(rows, number)}
    return judged(named(function, None), "bias", asked, _readings(list(terms), rules), called)


Rule = Callable[[np.ndarray], np.ndarray]
"""The row of each distance, query minus key; NaN where any row will do."""


def _rules(rows: Rows, number: int) -> Iterator[tuple[str, Rule]]:
    """The published rules of which the row of a distance may be one, for the rows of one term, right or wrong."""
    yield f"distance + {number // 2}", lambda apart: apart + float(number // 2)
    yield f"{number // 2} - distance", lambda apart: number // 2 - 1.0 * apart
    if number == 2 * _LONG:
        yield f"distance + {_LONG - 1}", lambda apart: apart + _LONG - 1.0
        yield f"{_LONG - 1} - distance", lambda apart: _LONG - 1.0 - apart
    if number >= _LONG:  # keys after the query are masked
        yield (
            f"{number - 1} - distance, of a causal model",
            lambda apart: np.where(apart < 0, np.nan, number - 1.0 - apart),
        )
        yield "distance, of a causal model", lambda apart: np.where(apart < 0, np.nan, 1.0 * apart)
    high = int(np.nanmax(rows))
    for side in dict.fromkeys((high // 2, (high + 1) // 2, (number - 1) // 2)):
        words = f"of the distance, clipped at {side}"
        yield f"{words}, + {side}", lambda apart, side=side: np.clip(apart, -side, side) + float(side)
        yield f"{side} - that {words}", lambda apart, side=side: float(side) - np.clip(apart, -side, side)
    for side in dict.fromkeys(((high + 1) // 2, high // 2 + 1)):
        words = f"the distance + {side}, at least 0 and at most {2 * side - 1}"
        yield words, lambda apart, side=side: np.clip(apart + side, 0.0, 2 * side - 1)
        for longest in (each for each in _LONGEST if each > side // 2 + 1 and side > 3):
            words = f"that of DeBERTa's bucket of the distance, {side} on each side, to distance {longest}"
            yield words, lambda apart, side=side, longest=longest: _bucket(apart, side, longest)


def _bucket(apart: np.ndarray, side: int, longest: int) -> np.ndarray:
    """The row of DeBERTa's table of ``2 side`` rows for each distance."""
    middle = side // 2
    size = np.maximum(np.abs(apart), middle).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.ceil(np.log(size / middle) / np.log((longest - 1) / middle) * (middle - 1)) + middle
    rows = np.where(np.abs(apart) > middle, log * np.sign(apart), apart)
    return np.clip(rows + side, 0, 2 * side - 1)


def _readings(names: list[str], rules: Mapping[str, Rule]) -> Iterator[NumberRule]:
    """All terms by one rule, and one of them with a fault."""
    rights = {
        words: NumberRule(lambda _, rule=rule: rule(_APART), f"position terms of scores: the row is {words}")
        for words, rule in rules.items()
    }
    yield from rights.values()
    for (words, right), wrong in itertools.product(rights.items(), names if len(names) > 1 else ()):
        rule = rules[words]
        yield _with_fault(wrong, rule(-_APART), right, "term-of-opposite-distance", {})
        for by, how in ((1, "after the right one"), (-1, "before the right one")):
            yield _with_fault(wrong, rule(_APART) + by, right, "term-of-row-beside", {"how": how})


def _with_fault(wrong: str, rows: Rows, right: NumberRule, code: str, more: dict[str, Any]) -> NumberRule:
    parameters = {"term": _TERMS[wrong][1], **more}
    return NumberRule(lambda name: rows if name == wrong else right.numbers(name), "", code, parameters, right)
