"""Objects shared by modules with equal specs: one spec object, and the cached mask of a computed bias."""

from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch

from clockhands.encodings.biases import BiasCode
from clockhands.encodings.compiling import is_transformed

_MOST = 1 << 26  # bytes of a mask that is kept: 4 heads of 2,048 x 2,048 in float32

# Keyed by the spec, which is frozen and compared by value: the mask's key, the mask, and its version in PyTorch.
_LATEST: WeakKeyDictionary[BiasCode, tuple[tuple[object, ...], torch.Tensor, int]] = WeakKeyDictionary()

# By value, the spec that modules hold; neither is kept alive here.
_SHARED: WeakKeyDictionary[Any, ReferenceType[Any]] = WeakKeyDictionary()


def shared(spec: Any) -> Any:
    """The equal spec that an existing module already holds, else this one.

    PyTorch's compiler recognises a spec by object identity only, so modules with equal specs hold one object.
    """
    try:
        held = _SHARED.get(spec)
        first = None if held is None else held()
        if first is None:
            first = spec
            _SHARED[spec] = ref(spec)
    except TypeError:  # None, or a spec with an unhashable part, such as a user's scaling
        return spec
    return first


def remembered(spec: BiasCode, key: tuple[object, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The mask made by ``make``, or the cached one for this spec and key.

    One mask of at most 64 MiB is cached per spec. A mask that was changed in place, or that requires a gradient, is
    made again.
    """
    held = _LATEST.get(spec)
    if held is not None and held[0] == key and held[1]._version == held[2] and not held[1].requires_grad:  # noqa: SLF001
        return held[1]
    made = make()
    plain = type(made) is torch.Tensor and not made.is_inference() and not made.requires_grad
    plain = plain and not is_transformed(made)
    if plain and made.numel() * made.element_size() <= _MOST and made.device.type != "meta":
        _LATEST[spec] = key, made, made._version  # noqa: SLF001
    return made
