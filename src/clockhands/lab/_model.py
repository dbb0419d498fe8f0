"""A small transformer whose position encoding is exchangeable: `clockhands.lab._model_codes.ModelCode`.

The model does not depend on the encoding. ``embed`` is called once on the tokens, ``prepare`` once for each forward
pass, and each layer takes its rotation and its mask from the prepared result.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, silu

from clockhands.lab._model_codes import ModelCode
from clockhands.lab.study import Model
from clockhands.torch import Prepared

EPSILON = 1e-6


def _norm(kind: str, width: int) -> nn.Module:
    return nn.LayerNorm(width, eps=EPSILON) if kind == "layer" else nn.RMSNorm(width, eps=EPSILON)


class Attention(nn.Module):
    """Attention of several heads; keys and values may have fewer heads than queries."""

    def __init__(self, sizes: Model) -> None:
        super().__init__()
        self.heads, self.kv_heads = sizes.heads, sizes.kv_heads or sizes.heads
        inner, kv = sizes.heads * sizes.head_width, self.kv_heads * sizes.head_width
        self.split = (inner, kv, kv)
        self.into = nn.Linear(sizes.width, inner + 2 * kv, bias=False)
        self.out = nn.Linear(inner, sizes.width, bias=False)
        self.head_width = sizes.head_width
        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        if sizes.qk_norm:
            self.add_norms()
        self.shares: list[torch.Tensor] | None = None

    def add_norms(self) -> None:
        """Normalise queries and keys from now on, with a weight for each channel that starts at 1."""
        self.query_norm = nn.RMSNorm(self.head_width, eps=EPSILON, device=self.out.weight.device)
        self.key_norm = nn.RMSNorm(self.head_width, eps=EPSILON, device=self.out.weight.device)

    def forward(self, x: torch.Tensor, ready: Prepared, logit_scale: float) -> torch.Tensor:
        """``x`` [batch, length, width] attended."""
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, -1, self.head_width).transpose(1, 2)
            for part in self.into(x).split(self.split, dim=-1)
        )
        query, key = ready.turn(self.query_norm(query), self.key_norm(key), x=x)
        if self.kv_heads != self.heads:
            key, value = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value))
        scale = logit_scale / math.sqrt(self.head_width)
        if self.shares is not None:
            self.shares.append(first_token_share(query, key, ready, scale))
        seen = ready.attend(query, key, value, scale=scale)
        return self.out(seen.transpose(1, 2).reshape(batch, length, -1))


def first_token_share(query: torch.Tensor, key: torch.Tensor, ready: Prepared, scale: float) -> torch.Tensor:
    """The attention that each query gives to the first key, averaged over sequences and heads: [length]."""
    scores = query @ key.transpose(-2, -1) * scale
    if ready.mask is not None:
        scores = scores + ready.mask
    elif ready.is_causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1)[..., 0].mean((0, 1))


class FeedForward(nn.Module):
    """Two linear maps with GELU between them, or SwiGLU."""

    def __init__(self, sizes: Model) -> None:
        super().__init__()
        hidden = sizes.feed_forward or 4 * sizes.width
        self.gated = sizes.gated
        self.into = nn.Linear(sizes.width, hidden * (1 + sizes.gated), bias=False)
        self.out = nn.Linear(hidden, sizes.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., width] to the same shape."""
        inside = self.into(x)
        if not self.gated:
            return self.out(gelu(inside))
        gate, value = inside.chunk(2, dim=-1)
        return self.out(silu(gate) * value)


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalised input and added to it."""

    def __init__(self, sizes: Model) -> None:
        super().__init__()
        self.attention_norm, self.attention = _norm(sizes.norm, sizes.width), Attention(sizes)
        self.feed_forward_norm, self.feed_forward = _norm(sizes.norm, sizes.width), FeedForward(sizes)

    def forward(self, x: torch.Tensor, ready: Prepared, logit_scale: float) -> torch.Tensor:
        """``x`` [batch, length, width] to the same shape."""
        x = x + self.attention(self.attention_norm(x), ready, logit_scale)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """A pre-norm transformer: a decoder where it is causal, else an encoder.

    The same seed gives the same weights whatever the code is: the code's own numbers are drawn apart from these.
    Matrices are drawn as `torch.nn.Linear` does, embeddings with standard deviation 1.

    Args:
        sizes: The sizes.
        vocabulary: Number of tokens.
        code: The position encoding.
        causal: Whether a token sees only what is before it.
        seed: Of the weights.
    """

    def __init__(self, sizes: Model, vocabulary: int, code: ModelCode, causal: bool, seed: int) -> None:
        super().__init__()
        self.sizes, self.causal = sizes, causal
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocabulary, sizes.width)
            self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
            self.norm = _norm(sizes.norm, sizes.width)
            self.head = nn.Linear(sizes.width, vocabulary, bias=False)
        if sizes.tied:
            self.head.weight = self.embedding.weight
        self.code = code
        self.logit_scale = 1.0

    def forward(self, tokens: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """Logits [batch, length, vocabulary] of tokens [batch, length]."""
        x = self.code.embed(self.embedding(tokens), positions)
        ready = self.code.prepare(len(self.blocks), tokens.shape[1], positions, x)
        for block, each in zip(self.blocks, ready, strict=True):
            x = block(x, each, self.logit_scale)
        return self.head(self.norm(x))

    def add_query_key_norms(self) -> None:
        """Normalise queries and keys from now on."""
        for attention in self.attentions:
            attention.add_norms()

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each layer."""
        return [block.attention for block in self.blocks if isinstance(block, Block)]

    def counted(self) -> dict[str, int]:
        """Parameters in all, and those of the position encoding."""
        code = sum(each.numel() for each in self.code.parameters())
        return {"parameters": sum(each.numel() for each in self.parameters()), "code_parameters": code}
