"""Constants for torch.compile, which cannot trace the exact arithmetic.

Imported only where there is PyTorch. The compiler runs these functions while it compiles, keeps what they return as
constants of its graph, and compiles again when it is given another spec or ladder.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from clockhands.ladders import Ladder


def leave(why: str) -> None:
    """End the graph here, with a reason that PyTorch shows where it may not end."""
    torch._dynamo.graph_break(msg=why)  # noqa: SLF001 - public by its documentation, in a module that is not


@torch.compiler.assume_constant_result
def remember(spec: Any) -> bool:
    """Have a spec compute what it remembers about itself, which a copied or unpickled one has not done yet."""
    for ladder in (getattr(spec, "ladder", None), *getattr(spec, "ladders", ())):
        if ladder is not None:
            _ = ladder.turns
    _ = getattr(spec, "affine", None)
    return True


@torch.compiler.assume_constant_result
def numbers_of(spec: Any, name: str) -> list[Any]:
    """Numbers that follow from a spec, as plain numbers in lists."""
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
    """`limbs` on a device, copied there once: a copy waits, and a CUDA graph cannot hold it."""
    return [torch.tensor(limb, dtype=torch.int64, device=device) for limb in limbs(ladder)]


@lru_cache(maxsize=256)
def kept(numbers: bytes, dtype: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The numbers of an array on a device, copied there once."""
    return torch.from_numpy(np.frombuffer(numbers, dtype).reshape(shape).copy()).to(device)


@torch.compiler.assume_constant_result
def made(make: Callable[..., Any], *known: Any) -> torch.Tensor:
    """The array that a function makes of known values, as a constant of the graph."""
    return torch.from_numpy(make(*known))
