"""Findings on values that a checkpoint stores although a model computes them: frequencies and position numbers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.auditing.findings._parts import AuditSubject, check_of
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.expected_rates import expected_of
from clockhands.configs.model_types import model_type
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers
from clockhands.configs.weights import RATES
from clockhands.encodings.dtypes import NAMES
from clockhands.errors import ClockhandsError
from clockhands.formats.arrays import TensorInfo
from clockhands.recognition.diagnosis import ROUNDED, Verdict, judged, rounded_to


class Stored(Case, code=("stored-frequencies-differ", "stored-frequencies")):
    """Tensors of a checkpoint that hold computed values."""

    def more(self) -> int:
        """How many further tensors are like the first one."""
        return (self.tensors or 1) - 1


_NUMBERS = re.compile(r"(^|\.)position_ids$")
_LAYER = re.compile(r"\.(\d+)\.")
_OTHER_PART = re.compile(r"vision|visual|audio|image")
_MOST_NUMBERS = 2**16  # the largest tensor that is read, above the pairs of a head and the positions of a table
_MOST_TENSORS = 512  # models store the same frequencies once for each layer

CODES_OF_STORED = {
    "buffer-differs": "stored-frequencies-differ",
    "buffer-of-another-width": "stored-frequencies-differ:count",
}
"""Findings on stored rates that have another name than the same finding on those of a loaded model."""


@check_of("tensors", form="onnx")
def stored_frequencies(subject: AuditSubject) -> Iterator[Case]:
    """Frequencies in a checkpoint compared with the config, one case for all tensors that are alike."""
    opened = subject.opened
    names = [name for name, info in opened.tensors.items() if RATES.search(name) and _is_small(info)][:_MOST_TENSORS]
    alike: dict[str, tuple[dict[str, Any], int]] = {}
    for name in names:
        numbers = _numbers(subject, name)
        if numbers is None:
            continue
        with np.errstate(all="ignore"):  # uninitialised memory may hold anything
            verdict, evidence = _beside_config(subject, name, numbers)
        first, count = alike.get(verdict, (evidence, 0))
        alike[verdict] = first, count + 1
    if opened.form == "onnx" and (
        opened.config is None or not (alike or any("rows" in code.source for code in subject.resolved.codes))
    ):
        evidence = {"file": opened.path.name if opened.path else opened.target}
        yield case_of(
            "graph-not-examined", evidence if opened.config is None else {**evidence, "config": opened.config_name}
        )
    for verdict, (evidence, count) in alike.items():
        yield case_of(verdict.partition(":")[0], {**evidence, "tensors": count})


def _in_graph(opened: Opened) -> dict[str, Any]:
    """Evidence that the tensors of an ONNX file are used by its graph."""
    return {"loaded": "by the graph"} if opened.form == "onnx" else {}


def _is_small(info: TensorInfo) -> bool:
    one_row = info.elements == max(info.shape, default=0)  # graphs store them as [1, pairs, 1]
    return one_row and info.dtype in NAMES and 0 < info.elements <= _MOST_NUMBERS


def _numbers(subject: AuditSubject, name: str) -> np.ndarray | None:
    try:
        return subject.opened.array(name).astype(np.float64).ravel()
    except ClockhandsError:
        return None


def _beside_config(subject: AuditSubject, name: str, numbers: np.ndarray) -> tuple[str, dict[str, Any]]:
    """One tensor's result: the code of the finding, after a colon what distinguishes its cases, and the evidence."""
    opened, info = subject.opened, subject.opened.tensors[name]
    where = f"{info.declared_in.name}:{name}"
    evidence: dict[str, Any] = {where: f"{len(numbers)} numbers in {info.dtype}"}
    in_graph = _in_graph(opened)
    code = None if opened.config is None else _declared(subject, name)
    if opened.config is None:
        # They are all that this file says about frequencies.
        dtype = info.dtype if info.dtype in ROUNDED else rounded_to(numbers)
        if dtype is not None:
            return "low-precision", evidence | in_graph | {"rates": True, "dtype": dtype, "error": ROUNDED[dtype]}
        return "stored-frequencies", evidence | in_graph
    if code is None or not code.rates:
        return "stored-frequencies", evidence | in_graph
    expected = expected_of(code, None)
    assert expected is not None
    context = subject.resolved.context
    verdict = judged(numbers, info.dtype, replace(expected, sure=True), context)
    if verdict.code is None or _is_before_linear(code, verdict):
        return "stored-frequencies", evidence | in_graph
    evidence |= verdict.evidence
    if verdict.code == "buffer-rounded":
        # The library computes the frequencies of known types; code that came with a model may load them.
        known = subject.resolved.model_type is not None and model_type(subject.resolved.model_type) is not None
        evidence |= in_graph or {"loaded": "no" if known else "maybe"}
    return CODES_OF_STORED.get(verdict.code) or f"stored-frequencies-{verdict.cause}", evidence


def _declared(subject: AuditSubject, name: str) -> LayerEncoding | None:
    """The code of the layer whose frequencies a tensor holds; None if that is not known."""
    codes = [code for code in subject.resolved.codes if code.kind == "rotary" and code.part in TEXT]
    if _OTHER_PART.search(name) or not codes:
        return None
    if len({code.rates for code in codes}) == 1:
        return codes[0]
    layer = _LAYER.search(name)
    return next((code for code in codes if layer and int(layer[1]) in layer_numbers(code.layers or "")), None)


def _is_before_linear(code: LayerEncoding, verdict: Verdict) -> bool:
    """Whether they are the frequencies before a linear scaling: older code divided positions by the factor instead."""
    exactly = "rounded to" not in verdict.evidence and "it is" not in verdict.evidence
    return (code.scaling or {}).get("type") == "linear" and verdict.code == "buffer-unscaled" and exactly


@check_of("tensors")
def position_numbers(subject: AuditSubject) -> Iterator[Case]:
    """Stored position numbers that are not whole numbers from 0, or not stored as integers."""
    opened = subject.opened
    for name in [name for name in opened.tensors if _NUMBERS.search(name)][:_MOST_TENSORS]:
        info = opened.tensors[name]
        one_row = info.elements == max(info.shape, default=0)
        if not one_row or not 0 < info.elements <= _MOST_NUMBERS:
            continue
        numbers = _numbers(subject, name)
        if numbers is None:
            continue
        place = f"{info.declared_in.name}:{name}"
        evidence = numbered(place, info.shape, info.dtype, numbers, **_in_graph(opened))
        if evidence is not None:
            yield case_of("float-position-ids", evidence)


def numbered(
    place: str, shape: Sequence[int], dtype: str, numbers: np.ndarray, first: float = 0, **more: Any
) -> dict[str, Any] | None:
    """The evidence that position numbers do not count from ``first``, or are no integers; None if they are right."""
    wrong = np.flatnonzero(numbers != np.arange(numbers.size) + first)
    if not wrong.size and dtype not in NAMES:
        return None
    evidence = {place: list(shape), "dtype": dtype, "count": numbers.size, **more}
    if wrong.size:
        evidence |= {"wrong": int(wrong.size), "first wrong": int(wrong[0]), "stored": float(numbers[wrong[0]])}
    return evidence
