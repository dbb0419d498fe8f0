"""Attention with a learned mask on the CPU: PyTorch's fast forward, and a backward computed in blocks.

PyTorch's fast attention on the CPU gives no gradient for its mask, so with a learned bias PyTorch falls back to a
slower path that stores all weights, [batch, heads, queries, keys]. Here the forward is the fast one, and the backward
computes the weights again, some queries at a time, and for a causal bias only up to the last key that they see.
"""

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from clockhands.encodings.compiling import forward_mode, transforms_active

# Queries at a time: 4 sequences of 1,024 keys are 1 MiB of float32, which stays in the cache of one core.
_ROWS = 64


def attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    is_causal: bool,
    **more: Any,
) -> torch.Tensor:
    """``scaled_dot_product_attention``, with a faster backward where the mask is a learned bias on the CPU.

    Args:
        queries: [..., queries, head_width], as for PyTorch's function.
        keys: [..., keys, head_width].
        values: [..., keys, channels].
        mask: ``attn_mask``.
        is_causal: As there.
        more: ``dropout_p``, ``scale`` and ``enable_gqa``, as there.
    """
    if mask is None or not _in_blocks(queries, keys, values, mask, more):
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=is_causal, **more)
    scale = more.get("scale")
    scale = queries.shape[-1] ** -0.5 if scale is None else float(scale)
    return Blocks.apply(queries, keys, values, mask, scale)  # type: ignore[no-any-return]


def _in_blocks(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, more: dict[str, Any]
) -> bool:
    tensors = (queries, keys, values, mask)
    return (
        not torch.compiler.is_compiling()
        and mask.requires_grad
        and torch.is_grad_enabled()
        and all(type(each) is torch.Tensor and each.device.type == "cpu" and each.dim() == 4 for each in tensors)
        and queries.dtype in (torch.float32, torch.float64)
        and len({each.dtype for each in tensors}) == 1
        and queries.shape[:2] == keys.shape[:2] == values.shape[:2]
        and mask.shape == (mask.shape[0], queries.shape[1], queries.shape[2], keys.shape[2])
        and mask.shape[0] in (1, queries.shape[0])
        and not more.get("dropout_p")
        and not more.get("enable_gqa")
        and not torch.is_autocast_enabled("cpu")
        and not transforms_active()
        and not forward_mode()
    )


class Blocks(torch.autograd.Function):
    """``softmax(scale q k' + mask) v``, with the gradients of all four."""

    @staticmethod
    def forward(
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """PyTorch's fast attention, which PyTorch uses only if the mask needs no gradient."""
        return scaled_dot_product_attention(queries, keys, values, attn_mask=mask.detach(), scale=scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG004 - torch's own name
        """Save the inputs; the backward recomputes the weights."""
        *tensors, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """The gradients, some queries of one head at a time."""
        queries, keys, values, gradient = (each.contiguous() for each in (*ctx.saved_tensors[:3], *grad_outputs))
        mask = ctx.saved_tensors[3]
        # Contiguous per head: PyTorch then processes all sequences of a head at once if every key is seen.
        to_queries, to_keys, to_values = (
            torch.zeros_like(each.transpose(0, 1), memory_format=torch.contiguous_format).transpose(0, 1)
            for each in (queries, keys, values)
        )
        to_mask = torch.zeros_like(mask, memory_format=torch.contiguous_format)
        # As in PyTorch, a row without keys is 0. Searching the weights for one takes longer than computing them.
        softmax = torch.ops.aten._safe_softmax if _hides_all(mask) else torch.softmax  # noqa: SLF001
        many, most = mask.shape[-2:]
        one = mask.shape[0] == 1
        for begin in range(0, many, _ROWS):
            rows = slice(begin, min(begin + _ROWS, many))
            seen = slice(0, _seen(mask[:, :, rows], max(rows.stop + most - many, 1)))
            for head in range(mask.shape[1]):
                query, flow, beside = queries[:, head, rows], gradient[:, head, rows], mask[:, head, rows, seen]
                key, value = keys[:, head, seen], values[:, head, seen]
                scores = torch.baddbmm(beside, query, key.mT, alpha=ctx.scale)
                weights = softmax(scores, -1)
                to_values[:, head, seen].baddbmm_(weights.mT, flow)
                towards = flow @ value.mT
                towards = torch.ops.aten._softmax_backward_data(towards, weights, -1, weights.dtype)  # noqa: SLF001
                to_queries[:, head, rows] = torch.bmm(towards, key).mul_(ctx.scale)
                to_keys[:, head, seen].baddbmm_(towards.mT, query, alpha=ctx.scale)
                to_mask[:, head, rows, seen] = towards.sum(0, keepdim=True) if one else towards
        return to_queries, to_keys, to_values, to_mask, None


def _hides_all(mask: torch.Tensor) -> bool:
    """Whether some query sees no key."""
    return mask.numel() > 0 and mask.amax(-1).amin().item() == -math.inf


def _seen(mask: torch.Tensor, stop: int) -> int:
    """The number of leading keys that these rows see: ``stop`` if the mask hides all later ones, else all."""
    later = mask[..., stop:]
    return stop if later.numel() == 0 or later.amax().item() == -math.inf else mask.shape[-1]
