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
    if kind == "none":
        return nn.Identity()
    return nn.RMSNorm(width, eps=EPSILON) if kind == "rms" else nn.LayerNorm(width, eps=EPSILON)


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

    def projected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [batch, heads, length, head_width] of ``x`` [batch, length, width]."""
        query, key, value = (_of_heads(part, self.head_width) for part in self.into(x).split(self.split, dim=-1))
        return query, key, value

    def forward(
        self, x: torch.Tensor, ready: Prepared, logit_scale: float, score_scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``x`` [batch, length, width] attended."""
        batch, length, _ = x.shape
        query, key, value = self.projected(x)
        query, key = self.query_norm(query), self.key_norm(key)
        if score_scale is not None:
            query = (query * score_scale).to(query.dtype)
        query, key = ready.turn(query, key, x=x)
        if self.kv_heads != self.heads:
            key, value = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value))
        scale = logit_scale / math.sqrt(self.head_width)
        if self.shares is not None:
            self.shares.append(first_token_share(query, key, ready, scale))
        seen = ready.attend(query, key, value, scale=scale)
        return self.out(seen.transpose(1, 2).reshape(batch, length, -1))


class LatentAttention(Attention):
    """Multi-head latent attention: keys and values are made from one narrow vector of the token, which is normalised.

    The last ``shared_channels`` of each key are made from the token, once for all heads: the part that RoPE rotates.

    Source: DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.
    """

    def __init__(self, sizes: Model) -> None:
        super().__init__(sizes)
        inner, self.shared = sizes.heads * sizes.head_width, sizes.shared_channels
        self.split = (inner, sizes.latent, self.shared)
        self.into = nn.Linear(sizes.width, sum(self.split), bias=False)
        self.latent_norm = nn.RMSNorm(sizes.latent, eps=EPSILON)
        self.from_latent = nn.Linear(sizes.latent, 2 * inner - sizes.heads * self.shared, bias=False)

    def projected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [batch, heads, length, head_width] of ``x`` [batch, length, width]."""
        query, latent, shared = self.into(x).split(self.split, dim=-1)
        own = self.head_width - self.shared
        made = _of_heads(self.from_latent(self.latent_norm(latent)), own + self.head_width)
        key, value = made.split((own, self.head_width), dim=-1)
        key = torch.cat([key, shared[:, None].expand(-1, self.heads, -1, -1)], dim=-1)
        return _of_heads(query, self.head_width), key, value


def _of_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """Channels [batch, length, heads x width] as [batch, heads, length, width]."""
    return x.view(*x.shape[:2], -1, width).transpose(1, 2)


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
    """Attention, then feed-forward: each on the normalised input and added to it; after it with ``norm = "post"``."""

    def __init__(self, sizes: Model) -> None:
        super().__init__()
        self.attention_norm = _norm(sizes.norm, sizes.width)
        self.attention = LatentAttention(sizes) if sizes.latent else Attention(sizes)
        self.feed_forward_norm, self.feed_forward = _norm(sizes.norm, sizes.width), FeedForward(sizes)
        self.post = sizes.norm == "post"

    def forward(
        self, x: torch.Tensor, ready: Prepared, logit_scale: float, score_scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``x`` [batch, length, width] to the same shape."""
        if self.post:
            x = self.attention_norm(x + self.attention(x, ready, logit_scale, score_scale))
            return self.feed_forward_norm(x + self.feed_forward(x))
        x = x + self.attention(self.attention_norm(x), ready, logit_scale, score_scale)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """A transformer: a decoder where it is causal, else an encoder.

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
            self.norm = _norm("none" if sizes.norm == "post" else sizes.norm, sizes.width)
            self.head = nn.Linear(sizes.width, vocabulary, bias=False)
            self.sinks = nn.Parameter(torch.randn(sizes.sinks, sizes.width)) if sizes.sinks else None
        if sizes.tied:
            self.head.weight = self.embedding.weight
        self.code = code
        self.logit_scale = 1.0

    def forward(self, tokens: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """Logits [batch, length, vocabulary] of tokens [batch, length]."""
        x = self.embedding(tokens)
        if self.sinks is not None:
            x = torch.cat([self.sinks.expand(len(x), -1, -1), x], dim=1)
        x = self.code.embed(x, positions)
        asked = len(self.blocks), x.shape[1], positions, x
        for block, ready, scale in zip(
            self.blocks, self.code.prepare(*asked), self.code.score_scales(*asked), strict=True
        ):
            x = block(x, ready, self.logit_scale, scale)
        return self.head(self.norm(x[:, self.sizes.sinks :]))

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
