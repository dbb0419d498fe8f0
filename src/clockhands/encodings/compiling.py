"""Constants for torch.compile, which cannot trace the exact arithmetic, and the private names of PyTorch in use.

Imported only where PyTorch is installed. The compiler runs functions marked as constant at compile time, stores their
results as constants of its graph, and recompiles when the spec or ladder changes. Releases before 2.12 pass only plain
numbers and strings to such functions, so specs and ladders are passed by number; see `clockhands.encodings.constants`.

For some questions PyTorch has no public name. The private ones are here only. Where a release lacks one, the answer is
the one that leads to the slower, general way.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from clockhands.encodings.constants import Source, enrolled
from clockhands.errors import InvalidType

_constant = torch.compiler.assume_constant_result
_constant(Source._enrol)  # noqa: SLF001 - of no use to a user of the specs


def _private(path: str, otherwise: Any) -> Any:
    """A private name of PyTorch, or what replaces it in a release without it."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return otherwise if found is None else found


def _refuse_check(_holds: torch.Tensor, _says: str) -> None:
    raise InvalidType(
        f"PyTorch {torch.__version__} has no check that a graph can hold.",
        "Call within(…) before the compiled function.",
    )


# Whether a transform of `torch.func` (vmap, grad, jvp) is active, and whether a tensor is inside one.
transforms_active: Callable[[], bool] = _private("_C._are_functorch_transforms_active", lambda: True)
is_transformed: Callable[[torch.Tensor], bool] = _private(
    "_C._functorch.is_functorch_wrapped_tensor", lambda _: transforms_active()
)
# Whether a tensor is a batch of gradients (``is_grads_batched`` of `torch.autograd.grad`).
is_gradient_batch: Callable[[torch.Tensor], bool] = _private("_C._functorch.is_legacy_batchedtensor", lambda _: False)
_modes: Callable[[], int] = _private("_C._len_torch_dispatch_stack", lambda: 1)
_mode: Callable[[Any], Any] = _private("_C._get_dispatch_mode", lambda _: None)
_proxy = _private("_C._TorchDispatchModeKey.PROXY", None)
_forward = torch.autograd.forward_ad
_fake = _private("_subclasses.FakeTensor", ())
# A context in which tensors from outside of a `torch.func` transform are plain ones.
untransformed: Callable[[], AbstractContextManager[Any]] = _private("_C._DisableFuncTorch", nullcontext)
# The base of modes that see each operation, and may change its result.
DispatchMode: Any = _private("utils._python_dispatch.TorchDispatchMode", object)
# A check in the graph or the queue of a GPU, which does not wait for it, as reading the condition would.
assert_later: Callable[[torch.Tensor, str], None] = _private("_assert_async", _refuse_check)


def forward_mode() -> bool:
    """Whether derivatives are computed in forward mode now."""
    return getattr(_forward, "_current_level", 0) >= 0


def intercepted() -> bool:
    """Whether operations may be traced or intercepted: a compiler, a dispatch mode, or a `torch.func` transform."""
    return (
        _modes() > 0 or transforms_active() or forward_mode() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    )


def is_placeholder(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no values yet, outside of torch.compile: fake, inside a transform, or recorded by proxies.

    Fake tensors are used to infer shapes; `make_fx` traces with proxies.
    """
    return _mode(_proxy) is not None or is_transformed(tensor) or isinstance(tensor, _fake)


def leave(why: str) -> None:
    """Break the graph here, with a reason that PyTorch shows where graph breaks are not allowed."""
    torch._dynamo.graph_break(msg=why)  # noqa: SLF001 - public by its documentation, in a module that is not


def _number(source: Source) -> int:
    """The number by which the functions below find this object; the graph is for this object only."""
    source._enrol()  # noqa: SLF001
    return id(source)


def remember(spec: Source) -> None:
    """Make a spec compute its cached values; a copied or unpickled spec has none yet."""
    _remembered(_number(spec))


@_constant
def _remembered(number: int) -> bool:
    spec = enrolled(number)
    for ladder in (getattr(spec, "ladder", None), *getattr(spec, "ladders", ())):
        if ladder is not None:
            _ = ladder.turns
    _ = getattr(spec, "affine", None)
    return True


def numbers_of(spec: Source, name: str) -> list[Any]:
    """Numbers derived from a spec, as Python numbers in lists."""
    return _numbers(_number(spec), name)


@_constant
def _numbers(number: int, name: str) -> list[Any]:
    known = getattr(enrolled(number), name)
    known = known() if callable(known) else known
    return known.tolist() if hasattr(known, "tolist") else list(known)


def limbs(ladder: Source) -> list[list[int]]:
    """The upper three 32-bit words of each rate's turns per token, as plain integers."""
    return _limbs(_number(ladder))


@_constant
def _limbs(number: int) -> list[list[int]]:
    turns = enrolled(number).turns
    high, low = turns.high.tolist(), turns.low.tolist()
    return [[word >> 32 for word in high], [word & 0xFFFFFFFF for word in high], [word >> 32 for word in low]]


@lru_cache(maxsize=256)
def kept_limbs(ladder: Source, device: torch.device) -> list[torch.Tensor]:
    """`limbs` on a device, copied there once: a copy synchronises, and a CUDA graph cannot contain it."""
    return [torch.tensor(limb, dtype=torch.int64, device=device) for limb in limbs(ladder)]


@lru_cache(maxsize=256)
def kept(numbers: bytes, dtype: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The numbers of an array on a device, copied there once."""
    return torch.from_numpy(np.frombuffer(numbers, dtype).reshape(shape).copy()).to(device)


def made(make: Callable[..., np.ndarray], sources: tuple[Source, ...], known: tuple[Any, ...]) -> torch.Tensor:
    """The array that a function computes from objects and plain values that are known at compile time."""
    return _made(make, [_number(source) for source in sources], known)


@_constant
def _made(make: Callable[..., np.ndarray], numbers: list[int], known: tuple[Any, ...]) -> torch.Tensor:
    return torch.from_numpy(make(*map(enrolled, numbers), *known))
