"""What a checkpoint stores that a model computes: rates and position numbers, held against what its config declares."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clockhands.auditing.checks.lengths import TEXT
from clockhands.auditing.checks.subject import Case, Subject
from clockhands.dtypes import output_dtype
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

# Rates are made in float32, in a few operations each good to half a unit in the last place.
_SAME = 2.0**-20
_ROUNDED = {"bfloat16": 2.0**-8, "float16": 2.0**-10}
_SMALLEST = 2.0**-24  # float16 holds no number below


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
        if info.dtype in _ROUNDED:
            return "low-precision", evidence | {"rates": True, "dtype": info.dtype, "error": _ROUNDED[info.dtype] / 2}
        return "stored-frequencies", evidence
    if code is None or not code.rates:
        return "stored-frequencies", evidence
    if len(numbers) != len(code.rates):
        return "stored-frequencies-differ:count", evidence | {"stored pairs": len(numbers), "pairs": len(code.rates)}
    if _off(numbers, code.rates).max() <= _SAME or _is_before_linear(code, numbers):
        return "stored-frequencies", evidence
    for dtype, coarse in _ROUNDED.items():
        rounded = np.array(code.rates).astype(output_dtype(dtype)).astype(np.float64)
        # A rate that was in float32 before may lie on the other side of a midpoint: not many do.
        mostly = np.count_nonzero(numbers == rounded) >= 0.9 * len(numbers)
        if mostly and np.allclose(numbers, rounded, rtol=coarse, atol=_SMALLEST):
            off = float(np.abs(numbers - code.rates).max()) * (subject.resolved.context or 0)
            evidence |= {"dtype": dtype, "error": float(_off(numbers, code.rates).max()), "phase error": off}
            # The library computes the rates of the types that it knows; code that came with a model may load them.
            known = subject.resolved.model_type is not None and model_type(subject.resolved.model_type) is not None
            return ("stored-frequencies:rounded" if known else "low-precision"), evidence | {"rates": True}
    worst = int(_off(numbers, code.rates).argmax())
    evidence |= {"pair": worst, "stored": float(numbers[worst]), "declared": code.rates[worst]}
    plain = _plain(code)
    if plain is not None and _off(numbers, plain).max() <= _SAME:
        return "stored-frequencies-differ:plain", evidence | {"unscaled": True, "base": code.base}
    return "stored-frequencies-differ", evidence


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


def _off(numbers: np.ndarray, rates: Sequence[float]) -> np.ndarray:
    """How far numbers are from rates, in parts of them; where a rate is 0, the number itself."""
    declared = np.array(rates)
    off = np.abs(np.where(np.isfinite(numbers), numbers, np.inf) - declared)
    return np.where(declared == 0, off, off / np.where(declared == 0, 1, declared))


def _plain(code: Code) -> list[float] | None:
    """The rates of the base alone."""
    if code.base is None or not code.rates:
        return None
    return [code.base ** (-pair / len(code.rates)) for pair in range(len(code.rates))]


def _is_before_linear(code: Code, numbers: np.ndarray) -> bool:
    """Whether they are the ladder before a linear scaling: older code divided positions by the factor, not rates."""
    plain = _plain(code)
    linear = (code.scaling or {}).get("type") == "linear"
    return linear and plain is not None and bool(_off(numbers, plain).max() <= _SAME)


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
