"""Constants for torch.compile, which cannot trace the exact arithmetic.

Imported only where PyTorch is installed. The compiler runs these functions at compile time, stores their results as
constants of its graph, and recompiles when the spec or ladder changes.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from clockhands.ladders import Ladder


def leave(why: str) -> None:
    """Break the graph here, with a reason that PyTorch shows where graph breaks are not allowed."""
    torch._dynamo.graph_break(msg=why)  # noqa: SLF001 - public by its documentation, in a module that is not


@torch.compiler.assume_constant_result
def remember(spec: Any) -> bool:
    """Make a spec compute its cached values; a copied or unpickled spec has none yet."""
    for ladder in (getattr(spec, "ladder", None), *getattr(spec, "ladders", ())):
        if ladder is not None:
            _ = ladder.turns
    _ = getattr(spec, "affine", None)
    return True


@torch.compiler.assume_constant_result
def numbers_of(spec: Any, name: str) -> list[Any]:
    """Numbers derived from a spec, as Python numbers in lists."""
    known = getattr(spec, name)
    known = known() if callable(known) else known
    return known.tolist() if hasattr(known, "tolist") else list(known)


@torch.compiler.assume_constant_result
def limbs(ladder: Ladder) -> list[list[int]]:
    """The upper three 32-bit words of each rate's turns per token, as plain integers."""
    high, low = ladder.turns.high.tolist(), ladder.turns.low.tolist()
    return [[word >> 32 for word in high], [word & 0xFFFFFFFF for word in high], [word >> 32 for word in low]]


@lru_cache(maxsize=256)
def kept_limbs(ladder: Ladder, device: torch.device) -> list[torch.Tensor]:
    """`limbs` on a device, copied there once: a copy synchronises, and a CUDA graph cannot contain it."""
    return [torch.tensor(limb, dtype=torch.int64, device=device) for limb in limbs(ladder)]


@lru_cache(maxsize=256)
def kept(numbers: bytes, dtype: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The numbers of an array on a device, copied there once."""
    return torch.from_numpy(np.frombuffer(numbers, dtype).reshape(shape).copy()).to(device)


@torch.compiler.assume_constant_result
def made(make: Callable[..., Any], *known: Any) -> torch.Tensor:
    """The array that a function computes from values known at compile time, as a constant of the graph."""
    return torch.from_numpy(make(*known))
