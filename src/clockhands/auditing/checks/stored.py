"""What a checkpoint stores that a model computes: rates and position numbers, held against what its config declares."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.auditing.checks.lengths import TEXT
from clockhands.auditing.checks.subject import Case, Subject
from clockhands.auditing.expected import expected_of
from clockhands.diagnosis import ROUNDED, Verdict, judged
from clockhands.errors import ClockhandsError
from clockhands.sources.arrays import TensorInfo
from clockhands.sources.model_types import model_type
from clockhands.sources.resolved import Code
from clockhands.sources.weights import RATES

_NUMBERS = re.compile(r"(^|\.)position_ids$")
_LAYER = re.compile(r"\.(\d+)\.")
_OTHER_PART = re.compile(r"vision|visual|audio|image")
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_MOST_NUMBERS = 2**16  # of one tensor; a head has some hundreds of pairs, a table of numbers as many as positions
_MOST_TENSORS = 512  # models keep the same rates once for each layer

CODES_OF_STORED = {
    "buffer-differs": "stored-frequencies-differ",
    "buffer-of-another-width": "stored-frequencies-differ:count",
}
"""Findings on stored rates that have another name than the same finding on those of a loaded model."""


def stored_frequencies(subject: Subject) -> Iterator[Case]:
    """Rates in a checkpoint: what they are beside the config, one case for all tensors that are alike."""
    opened = subject.opened
    names = [name for name, info in opened.tensors.items() if RATES.search(name) and _is_small(info)][:_MOST_TENSORS]
    alike: dict[str, tuple[dict[str, Any], int]] = {}
    for name in names:
        numbers = _numbers(subject, name)
        if numbers is None:
            continue
        with np.errstate(all="ignore"):  # stored garbage may be anything
            verdict, evidence = _beside_config(subject, name, numbers)
        first, count = alike.get(verdict, (evidence, 0))
        alike[verdict] = first, count + 1
    for verdict, (evidence, count) in alike.items():
        yield verdict.partition(":")[0], {**evidence, "tensors": count}, None


def _is_small(info: TensorInfo) -> bool:
    return len(info.shape) == 1 and info.dtype in _FLOATS and 0 < info.elements <= _MOST_NUMBERS


def _numbers(subject: Subject, name: str) -> np.ndarray | None:
    try:
        return subject.opened.array(name).astype(np.float64)
    except ClockhandsError:
        return None


def _beside_config(subject: Subject, name: str, numbers: np.ndarray) -> tuple[str, dict[str, Any]]:
    """What one tensor is: the code of the finding, with what tells its cases apart behind a colon, and the evidence."""
    opened, info = subject.opened, subject.opened.tensors[name]
    where = f"{info.declared_in.name}:{name}"
    evidence: dict[str, Any] = {where: f"{len(numbers)} numbers in {info.dtype}"}
    code = None if opened.config is None else _declared(subject, name)
    if opened.config is None:
        # They are all that this file says of rates.
        if info.dtype in ROUNDED:
            return "low-precision", evidence | {"rates": True, "dtype": info.dtype, "error": ROUNDED[info.dtype]}
        return "stored-frequencies", evidence
    if code is None or not code.rates:
        return "stored-frequencies", evidence
    expected = expected_of(code, None)
    assert expected is not None
    context = subject.resolved.context
    verdict = judged(numbers, info.dtype, replace(expected, sure=True), context)
    if verdict.code is None or _is_before_linear(code, verdict):
        return "stored-frequencies", evidence
    evidence |= verdict.evidence
    if verdict.code == "buffer-rounded":
        # The library computes the rates of the types that it knows; code that came with a model may load them.
        known = subject.resolved.model_type is not None and model_type(subject.resolved.model_type) is not None
        evidence["loaded"] = "no" if known else "maybe"
    return CODES_OF_STORED.get(verdict.code) or f"stored-frequencies-{verdict.cause}", evidence


def _declared(subject: Subject, name: str) -> Code | None:
    """The code of the layer whose rates a tensor holds; None where that cannot be told."""
    codes = [code for code in subject.resolved.codes if code.kind == "rotary" and code.part in TEXT]
    if _OTHER_PART.search(name) or not codes:
        return None
    if len({code.rates for code in codes}) == 1:
        return codes[0]
    layer = _LAYER.search(name)
    return next((code for code in codes if layer and _holds(code.layers, int(layer[1]))), None)


def _holds(layers: str | None, number: int) -> bool:
    """Whether a layer is one of `"0-4,6"`."""
    spans = [span.partition("-") for span in (layers or "").split(",") if span[:1].isdigit()]
    return any(int(first) <= number <= int(last or first) for first, _, last in spans)


def _is_before_linear(code: Code, verdict: Verdict) -> bool:
    """Whether they are the ladder before a linear scaling: older code divided positions by the factor, not rates."""
    exactly = "rounded to" not in verdict.evidence and "it is" not in verdict.evidence
    return (code.scaling or {}).get("type") == "linear" and verdict.code == "buffer-unscaled" and exactly


def position_numbers(subject: Subject) -> Iterator[Case]:
    """Stored numbers of positions that are no whole numbers from 0, or not kept as such."""
    opened = subject.opened
    for name in [name for name in opened.tensors if _NUMBERS.search(name)][:_MOST_TENSORS]:
        info = opened.tensors[name]
        one_row = info.elements == max(info.shape, default=0)
        if not one_row or not 0 < info.elements <= _MOST_NUMBERS:
            continue
        numbers = _numbers(subject, name)
        if numbers is None:
            continue
        wrong = np.flatnonzero(numbers.ravel() != np.arange(info.elements))
        if not wrong.size and info.dtype not in _FLOATS:
            continue
        where = f"{info.declared_in.name}:{name}"
        evidence: dict[str, Any] = {where: list(info.shape), "dtype": info.dtype, "count": info.elements}
        if wrong.size:
            evidence |= {"wrong": int(wrong.size), "first wrong": int(wrong[0])}
            evidence["stored"] = float(numbers.ravel()[wrong[0]])
        yield "float-position-ids", evidence, None
