"""The mask of a computed bias, made once and used again: it follows from the spec and two counts alone."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch

from clockhands.biases import BiasCode

_MOST = 1 << 26  # bytes of a mask that is kept: 4 heads of 2,048 x 2,048 in float32

# By the spec, which is frozen and compared by value: what the mask is of, the mask, and its version in PyTorch.
_LATEST: WeakKeyDictionary[BiasCode, tuple[tuple[object, ...], torch.Tensor, int]] = WeakKeyDictionary()


def remembered(spec: BiasCode, key: tuple[object, ...], make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The mask that ``make`` makes, or the one that it made last for this spec and key.

    One mask is kept for each spec, of at most 64 MiB. A mask that was changed in place, or was given a gradient, is
    made again.
    """
    held = _LATEST.get(spec)
    if held is not None and held[0] == key and held[1]._version == held[2] and not held[1].requires_grad:  # noqa: SLF001
        return held[1]
    made = make()
    plain = type(made) is torch.Tensor and not made.is_inference() and not made.requires_grad
    if plain and made.numel() * made.element_size() <= _MOST and made.device.type != "meta":
        _LATEST[spec] = key, made, made._version  # noqa: SLF001
    return made
