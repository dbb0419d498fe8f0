"""What a module holds of positions, beside the code that it should be: rates that nobody wrote, zeros, other bases."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clockhands.diagnosis import Verdict, of_rates
from clockhands.faults import scaling_name
from clockhands.rotary import Rotary
from clockhands.testing.module_tensors import Held, held, numbers

_RATES = re.compile(r"freq|theta|rate|omega", re.IGNORECASE)
_TABLES = re.compile(r"cos|sin|freqs_cis|cache|pe$|weights?$|embed|position|table", re.IGNORECASE)


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
    """What the rates of a tensor are, as `clockhands.diagnosis` says it."""
    dtype = str(one.tensor.dtype).removeprefix("torch.")
    verdict = of_rates(numbers(one.tensor), spec, dtype, length=spec.length)
    if verdict.code is None:
        return None
    right = np.array(spec.rates)
    return Wrong(verdict.code, one, _parameters(verdict, spec, len(right)), right)


def _parameters(verdict: Verdict, spec: Rotary, pairs: int) -> dict[str, Any]:
    """What the sentence of a fault names."""
    found = verdict.evidence
    told = ""
    if "stored" in found and "declared" in found:
        told = f"pair {found['pair']} turns by {found['stored']:.7g} rad/token, right is {found['declared']:.7g}"
    if verdict.code == "buffer-uninitialised":
        told = f"{found['wrong']} of {found['pairs']} are wrong" + (f", {told}" if told else "")
    if "rounded to" in found and verdict.code != "buffer-rounded":
        told += f"; they are rounded to {found['rounded to']}, too"
    if "it is" in found:
        told += f"; it holds {found['it is']}"
    return {
        "told": told,
        "dtype": found.get("rounded to", ""),
        "scaling": "none" if spec.scaling is None else scaling_name(spec.scaling),
        "other": found.get("scaling in effect", ""),
        "base": found.get("base in effect", 0.0),
        "factor": found.get("effective factor", 0.0),
        "declared": float((spec.base or 0.0) if "base in effect" in found else found.get("declared factor", 0.0)),
        "held": found.get("pairs", pairs),
        "pairs": pairs,
    }
