"""Rotation of PyTorch tensors: in one pass for interleaved pairs, with a backward that rotates back."""

import inspect
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from array_api_compat import torch as xp

from clockhands.encodings.compiling import forward_mode, is_gradient_batch, transforms_active
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.rotary.formula import cut, members, plain, regions

_IN_CACHE = 1 << 18  # numbers that are rotated at a time on one thread
# On several threads each pass ends with waiting for all of them. If the process has a second team of threads, because
# PyTorch was called from another thread, they sleep meanwhile, and many small passes cost more than the cache saves.
_ON_SEVERAL_THREADS = 1 << 22

# Batched gradients have a rule for `cat` and none for its alias `concat`.
_SIMPLE = SimpleNamespace(
    astype=torch.Tensor.to,
    reshape=torch.reshape,
    stack=lambda parts, axis: torch.stack(parts, dim=axis),
    concat=lambda parts, axis: torch.cat(parts, dim=axis),
)


def rotated_by_library(x: torch.Tensor, cosine: Any, sine: Any, spec: Rotary) -> torch.Tensor:
    """See `clockhands.rotary.formula.plain`, to which this is equal."""
    cos, sin = (torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in (cosine, sine))
    cos, sin = cos.to(x.device), sin.to(x.device)
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return plain(x, cos, sin, spec, xp)
    if _is_watched(x):
        return Rotation.apply(x, cos, sin, spec)  # type: ignore[no-any-return]
    return _rotate(x, cos, sin, spec)


def copied(part: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A copy of an array on the device of ``like``, which counts its changes in torch.inference_mode too."""
    with torch.inference_mode(mode=False):
        return torch.from_numpy(part).to(like.device, copy=True)


def in_one_kernel(
    spec: Rotary, by: Any, heads: Sequence[torch.Tensor], axes: Sequence[int]
) -> tuple[torch.Tensor, ...] | None:
    """One or two arrays of heads rotated on their GPU, by integer positions there or by a tuple of cosine and sine.

    None where no kernel applies, or where cosine and sine need gradients themselves.
    """
    if not all(x.is_cuda for x in heads) or torch.compiler.is_compiling() or any(map(_is_transformed, heads)):
        return None
    kernel, known = _kernel(), isinstance(by, tuple)
    if kernel is None or not kernel.fits(spec, *heads, known=known):
        return None
    watched = torch.is_grad_enabled() and any(x.requires_grad for x in heads)
    if known:
        if torch.is_grad_enabled() and any(part.requires_grad for part in by):
            return None
        if watched:
            return kernel.RotationByCosSin.apply(spec, *by, tuple(axes), *heads)  # type: ignore[no-any-return]
        return kernel.by_cos_sin(spec, *by, axes, heads)  # type: ignore[no-any-return]
    if by.dtype == torch.uint64:
        return None
    at = by.to(heads[0].device)
    if watched:
        return kernel.RotationByPositions.apply(spec, at, tuple(axes), False, *heads)  # type: ignore[no-any-return]
    return kernel.by_positions(spec, at, axes, heads)  # type: ignore[no-any-return]


def phases_in_one_kernel(spec: Rotary, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Cosine and sine at integer positions on a GPU; None where no kernel applies."""
    kernel = _kernel() if positions.is_cuda and type(positions) is torch.Tensor else None
    if kernel is None or not kernel.fits(spec) or positions.dtype == torch.uint64 or _is_transformed(positions):
        return None
    return kernel.cosine_sine(spec, positions)  # type: ignore[no-any-return]


@cache
def _kernel() -> Any:
    """The kernel module, or None without Triton."""
    try:
        from clockhands.encodings.rotary import _triton_way
    except ImportError:
        return None
    return _triton_way


def _is_watched(x: torch.Tensor) -> bool:
    """Whether gradients or a mapped axis require the autograd function; without them it is skipped."""
    return (x.requires_grad and torch.is_grad_enabled()) or _is_transformed(x)


def _is_transformed(x: torch.Tensor) -> bool:
    return is_gradient_batch(x) or transforms_active() or forward_mode()


class Rotation(torch.autograd.Function):
    """A rotation; its backward is the rotation by the negative sine."""

    @staticmethod
    def forward(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, spec: Rotary) -> torch.Tensor:
        """Rotate."""
        if is_gradient_batch(x):
            return plain(x, cos, sin, spec, _SIMPLE)  # type: ignore[no-any-return]
        return _rotate(x, cos, sin, spec)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG004 - torch's own name
        """Save what the backward needs, which does not include the tensor."""
        _, cos, sin, spec = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(cos, sin)
        ctx.spec = spec

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[torch.Tensor, int]:
        """Move the mapped axis to the front, where all three arrays broadcast."""
        *arrays, spec = args
        x, cos, sin = (
            part if dim is None else part.movedim(dim, 0) for part, dim in zip(arrays, in_dims[:3], strict=True)
        )
        if in_dims[0] is None:
            x = x.expand(info.batch_size, *x.shape)
        return Rotation.apply(x, cos, sin, spec), 0

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Rotate back; if the output was reordered, restore the order of the channels."""
        (gradient,) = grad_outputs
        cos, sin = ctx.saved_tensors
        spec: Rotary = ctx.spec
        if spec.reordered:
            return _rotate_back(gradient, cos, sin, spec), None, None, None
        if torch.compiler.is_compiling() or _is_watched(gradient):
            return Rotation.apply(gradient, cos, -sin, spec), None, None, None
        return _rotate(gradient, cos, -sin, spec), None, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> torch.Tensor:
        """A rotation is linear."""
        cos, sin = ctx.saved_tensors
        return Rotation.apply(grad_inputs[0], cos, sin, ctx.spec)  # type: ignore[no-any-return]


# PyTorch needs it in every call, and computing it costs as much as rotating a short sequence.
Rotation.forward.__signature__ = inspect.signature(Rotation.forward)  # type: ignore[attr-defined]


def _rotate_back(gradient: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, spec: Rotary) -> torch.Tensor:
    begin, end, half = spec.start, spec.start + spec.rotated, spec.rotated // 2
    pairs = torch.stack((gradient[..., begin : begin + half], gradient[..., begin + half : end]), dim=-1)
    pieces = (gradient[..., :begin], pairs.reshape((*gradient.shape[:-1], spec.rotated)), gradient[..., end:])
    return Rotation.apply(torch.cat(pieces, dim=-1), cos, -sin, spec.in_order)  # type: ignore[no-any-return]


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, spec: Rotary) -> torch.Tensor:
    if x.is_cuda and x.ndim == cos.ndim == 4 and cos.dtype == torch.float32:
        kernel, axis = _kernel(), 2 if cos.shape[2] > 1 or cos.shape[1] == 1 else 1
        if kernel is not None and kernel.fits(spec, x, known=True):
            # Without the heads axis, which has size 1.
            return kernel.by_cos_sin(spec, cos.squeeze(3 - axis), sin.squeeze(3 - axis), (axis,), (x,))[0]  # type: ignore[no-any-return]
    work = x.to(cos.dtype)
    out = torch.empty(x.shape, dtype=cos.dtype, device=x.device)
    if spec.rotated < spec.head_width:
        out[..., : spec.start] = work[..., : spec.start]
        out[..., spec.start + spec.rotated :] = work[..., spec.start + spec.rotated :]
    for channels, pairs in regions(spec):
        block, result, c, s = cut(work, channels), cut(out, channels), cut(cos, pairs), cut(sin, pairs)
        if spec.layout == "interleaved" and not spec.reordered and _complex_view_fits(block):
            numbers = torch.view_as_complex(block.unflatten(-1, (-1, 2)))
            torch.mul(numbers, torch.complex(c, s), out=torch.view_as_complex(result.unflatten(-1, (-1, 2))))
            continue
        _in_parts(block, result, c, s, spec)
    return out.to(x.dtype)


def _in_parts(block: torch.Tensor, result: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, spec: Rotary) -> None:
    """Rotate channels of one layout, in blocks of tokens (of all heads) that fit the cache between the passes."""
    together = _IN_CACHE if torch.get_num_threads() == 1 else _ON_SEVERAL_THREADS
    if block.numel() <= together:
        _in_passes(block, result, cos, sin, spec)
        return
    tokens = max(1, together * block.shape[-2] // block.numel())
    cos, sin = (part.expand(*block.shape[:-1], part.shape[-1]) for part in (cos, sin))
    parts = (tensor.split(tokens, dim=-2) for tensor in (block, result, cos, sin))
    for given, made, c, s in zip(*parts, strict=True):
        _in_passes(given, made, c, s, spec)


def _in_passes(given: torch.Tensor, made: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, spec: Rotary) -> None:
    """Rotate channels of one layout at once."""
    first, second = members(given, spec)
    into, beside = made.chunk(2, dim=-1) if spec.reordered else members(made, spec)
    torch.mul(first, cos, out=into)
    into.addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=beside)
    beside.addcmul_(first, sin)


def _complex_view_fits(block: torch.Tensor) -> bool:
    """Whether the channels of a pair are adjacent in memory and start at even offsets."""
    *lead, last = block.stride()
    return last == 1 and block.storage_offset() % 2 == 0 and all(step % 2 == 0 for step in lead)
