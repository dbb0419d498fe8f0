"""Answers that are tokens, not logits: how many other tokens are more than rounding explains.

Two logits that are nearly equal change places by rounding. The gap between the largest and the second of random logits
is below a share ``s`` of their spread for about one token in ``1 / s``. Rounding moves logits of float32 by less than a
thousandth of their spread, those of half precision by less than a twentieth. So of ``n`` tokens that are compared, the
number that differs by rounding is at most binomial with that rate: what is as rare as once in 10,000 is a failure.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clockhands.recognition.calling import dtype_of
from clockhands.testing.generation._cache_arrays import arrays_of
from clockhands.testing.generation._predictions import RecordedRun

_RATE, _RATE_OF_HALF = 1e-3, 0.05
_RARE = 1e-4
_HALF = ("float16", "bfloat16")

FEWEST = 8
"""The smallest vocabulary that a check can use."""

NO_LOGITS = "only its most likely tokens were compared"


def tokens_found(
    chosen_after: Callable[[np.ndarray], list[int]], seen: Sequence[int], prompts: int, draw: np.random.Generator
) -> list[int]:
    """Known tokens, and those that are chosen after so many prompts, each of tokens that are known by then."""
    found = list(seen)
    for _ in range(prompts):
        found += chosen_after(draw.choice(found, 5))
    return found


def tie_rate(*holders: Any) -> float:
    """How often rounding may change a token, by the dtypes of arrays and of modules of PyTorch."""
    torch = sys.modules.get("torch")
    held: list[Any] = []
    for holder in holders:
        if torch is not None and isinstance(holder, torch.nn.Module):
            held += holder.parameters()
        else:
            held += [array for _, array in arrays_of(holder)]
    return _RATE_OF_HALF if any(dtype_of(array) in _HALF for array in held) else _RATE


def explained_by_ties(wrong: int, of: int, rate: float) -> str:
    """Why an experiment is not judged in which so few tokens differ; empty if none does, or too many for this rate."""
    tail = sum(math.comb(of, more) * rate**more * (1 - rate) ** (of - more) for more in range(wrong, of + 1))
    if not wrong or tail < _RARE:
        return ""
    return f"{wrong} of {of} tokens differ, which rounding may cause where two logits are nearly equal"


def without_ties(asked: Sequence[RecordedRun], rate: float) -> tuple[list[RecordedRun], dict[str, str]]:
    """The experiments that are judged, and why others are not."""
    kept, left_out = [], {}
    for one in asked:
        wrong = sum(int(answer.wrong.any(axis=-1).sum()) for answer in one.answers)
        of = sum(len(answer.got) for answer in one.answers)
        if why := explained_by_ties(wrong, of, rate):
            left_out[one.experiment.name] = why
        else:
            kept.append(one)
    return kept, left_out
