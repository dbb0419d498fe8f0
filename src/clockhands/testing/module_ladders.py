"""What a module holds of positions, beside the code that it should be: rates that nobody wrote, zeros, other bases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError
from clockhands.faults.rotary_specs import named
from clockhands.rotary import Rotary
from clockhands.testing.module_tensors import Held, held, numbers

_RATES = re.compile(r"freq|theta|rate|omega", re.IGNORECASE)
_TABLES = re.compile(r"cos|sin|freqs_cis|cache|pe$|weights?$|embed|position|table", re.IGNORECASE)
# What float32 arithmetic makes of a rate: `clockhands.torch.peers` derives the first, a scaling adds its own roundings.
_RIGHT, _SCALED = 2.0**-19, 2.0**-16


@dataclass(frozen=True)
class Wrong:
    """A tensor that is not what the code says.

    Attributes:
        code: The fault.
        held: The tensor.
        parameters: What the sentence names.
        right: What it should hold.
    """

    code: str
    held: Held
    parameters: Mapping[str, Any]
    right: np.ndarray | None


def wrong_tensors(module: torch.nn.Module, spec: Any) -> list[Wrong]:
    """The tensors of a module that are not what a code says, the rates before tables that are made of them."""
    found = []
    for one in held(module).values():
        if not (one.tensor.is_floating_point() or one.tensor.is_complex()) or one.tensor.is_meta:
            continue
        name = one.path.rpartition(".")[2]
        if isinstance(spec, Rotary) and _holds_rates(one, name, spec):
            wrong = _rates(one, spec)
        elif one.tensor.ndim >= 2 and _TABLES.search(name):
            wrong = _table(one)
        else:
            continue
        if wrong is not None:
            found.append(wrong)
    return sorted(found, key=lambda one: one.code.startswith("table"))


def _holds_rates(one: Held, name: str, spec: Rotary) -> bool:
    pairs = spec.rotated // 2
    return one.tensor.is_floating_point() and one.tensor.numel() == pairs and bool(_RATES.search(name))


def _table(one: Held) -> Wrong | None:
    values = numbers(one.tensor)
    # Learned numbers may start at zero; a table that is filled when it is first used has not been written yet.
    if one.kind == "parameter" and one.tensor.requires_grad:
        return None
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
    if values.size and not np.isfinite(size).all():
        where = int(np.argmax(~np.isfinite(size)))
        told = f"{int((~np.isfinite(size)).sum()):,} of {size.size:,} numbers are no numbers, the first is {where:,}"
        return Wrong("table-uninitialised", one, {"told": told}, None)
    if values.size and not size.any():
        return Wrong("table-zero", one, {}, None)
    if values.size and size.max() > 1e6:
        told = f"it holds {values.reshape(-1)[int(np.argmax(size))]:.4g}"
        return Wrong("table-uninitialised", one, {"told": told}, None)
    return None


def _rates(one: Held, spec: Rotary) -> Wrong | None:
    values = np.real(numbers(one.tensor))
    right = np.array(spec.rates)
    slack = _RIGHT if spec.scaling is None else _SCALED
    if _near(values, right, slack):
        return None
    plain = np.array(replace(spec, scaling=None, length=None).rates)
    told = _first_wrong(values, right, slack)
    scaling = "" if spec.scaling is None else named(spec.scaling)
    if not values.any():
        return Wrong("buffer-zero", one, {}, right)
    for dtype in ("bfloat16", "float16"):
        rounded = right.astype(output_dtype(dtype)).astype(np.float64)
        # A rate that was in float32 before may lie on the other side of a midpoint.
        step = 2.0 ** (-7 if dtype == "bfloat16" else -10)
        exact = values.astype(output_dtype(dtype)).astype(np.float64) == values
        if exact.all() and (np.abs(values - rounded) <= step * np.abs(right) + 2.0**-24).all():
            return Wrong("buffer-rounded", one, {"dtype": dtype, "told": told}, right)
    if spec.scaling is not None:
        if _near(values, plain, _RIGHT):
            return Wrong("buffer-unscaled", one, {"scaling": scaling, "told": told}, right)
        if _near(values, _twice(spec), _SCALED):
            return Wrong("buffer-scaled-twice", one, {"scaling": scaling, "told": told}, right)
    base = _base(values)
    if base is not None and spec.base is not None:
        return Wrong("buffer-of-another-base", one, {"base": base, "declared": float(spec.base)}, right)
    return Wrong("buffer-uninitialised", one, {"told": told}, right)


def _near(values: np.ndarray, right: np.ndarray, slack: float) -> bool:
    return values.shape == right.shape and bool((np.abs(values - right) <= slack * np.abs(right)).all())


def _twice(spec: Rotary) -> np.ndarray:
    assert spec.scaling is not None
    try:
        return np.array(spec.scaling(spec.ladder, spec.length).rates)
    except ClockhandsError:
        return np.empty(0)


def _base(values: np.ndarray) -> float | None:
    """The base of a geometric ladder that starts at 1, or None."""
    if len(values) < 3 or not np.isfinite(values).all() or (values <= 0).any():
        return None
    logarithms = np.log(values)
    step = logarithms[-1] / (len(values) - 1)
    if abs(values[0] - 1) > _RIGHT or step >= 0:
        return None
    if (np.abs(logarithms - step * np.arange(len(values))) > _RIGHT * (1 + np.abs(logarithms))).any():
        return None
    return float(f"{np.exp(-step * len(values)):.6g}")


def _first_wrong(values: np.ndarray, right: np.ndarray, slack: float) -> str:
    off = ~(np.abs(values - right) <= slack * np.abs(right))
    pair = int(np.argmax(off))
    return (
        f"{int(off.sum())} of {len(right)} are wrong, pair {pair} turns by {values[pair]:.7g} rad/token, right is"
        f" {right[pair]:.7g}"
    )
