"""Splits the attention scores of layer 0 into four terms, for a model that adds positions to its tokens.

The input of attention in layer 0 is ``norm(content + position)``. A LayerNorm is linear once each token's own standard
deviation is given, so with ``q = W_q norm(.) + b_q`` the score of two tokens is exactly content-content +
content-position + position-content + position-position + the terms of the biases. Later layers see a mixture of both
and are not covered.

Where a model adds its positions is a row of `FAMILIES`. To add a family, write the names of its modules in a new row.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.measures import drawn_projections, expected_offset_share, four_terms, offset_share

EXACT = 1e-10
"""The four terms and the biases differ from the scores of layer 0 by at most this much in float64."""

_MOST_ROWS = 1024


@dataclass(frozen=True)
class Family:
    """Names of the modules of a family.

    Attributes:
        name: Models of this form.
        positions: The module whose output is added to the tokens.
        norm: The norm through which layer 0 sees the sum.
        query, key: The projections of layer 0; the same name where one module makes both.
        heads: The module that has the number of heads as ``heads``; empty where it is in the config.
    """

    name: str
    positions: str
    norm: str
    query: str
    key: str
    heads: str = ""


FAMILIES = (
    Family(
        "BERT, RoBERTa, MPNet and other encoders of this form",
        "embeddings.position_embeddings",
        "embeddings.LayerNorm",
        "encoder.layer.0.attention.self.query",
        "encoder.layer.0.attention.self.key",
    ),
    Family(
        "DistilBERT",
        "embeddings.position_embeddings",
        "embeddings.LayerNorm",
        "transformer.layer.0.attention.q_lin",
        "transformer.layer.0.attention.k_lin",
    ),
    Family("GPT-2", "wpe", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn.c_attn"),
    Family(
        "models of the lab",
        "code",
        "blocks.0.attention_norm",
        "blocks.0.attention.into",
        "blocks.0.attention.into",
        "blocks.0.attention",
    ),
)


@dataclass(frozen=True, eq=False)
class Adding:
    """Where a model adds its positions.

    Attributes:
        family: The names of its modules.
        base: The model without its head.
        positions, norm, query, key: The modules themselves.
        heads: Heads of layer 0.
    """

    family: Family
    base: Any
    positions: nn.Module
    norm: nn.Module
    query: nn.Module
    key: nn.Module
    heads: int

    def table(self) -> np.ndarray | None:
        """The rows of a learned table, float64 [positions, width]; None where positions are computed."""
        own: Any = self.positions
        weight = getattr(own, "weight", None)
        if not isinstance(own, nn.Embedding) or weight is None or not weight.requires_grad:
            return None
        first = 0 if own.padding_idx is None or self.family.name == "GPT-2" else own.padding_idx + 1
        return weight.detach()[first:].double().cpu().numpy()


def adding(module: nn.Module) -> Adding | None:
    """Where a model adds its positions; None if it does not, or belongs to no known family."""
    base: Any = getattr(module, "base_model", module)
    for family in FAMILIES:
        named = dict(base.named_modules())
        paths = (family.positions, family.norm, family.query, family.key)
        if not all(path in named for path in paths):
            continue
        if family.heads:
            attention: Any = named[family.heads]
            if (
                not hasattr(base.code, "embed")
                or not torch.any(lab_rows(base, 4))
                or attention.kv_heads != attention.heads
            ):
                return None
            heads = attention.heads
        else:
            heads = base.config.num_attention_heads
        positions, norm, query, key = (named[path] for path in paths)
        return Adding(family, base, positions, norm, query, key, heads)
    return None


def lab_rows(base: Any, length: int) -> Tensor:
    """What a model of the lab adds to tokens of zeros, [length, width]."""
    width = base.embedding.weight.shape[1]
    with torch.no_grad():
        return base.code.embed(torch.zeros(1, length, width))[0]


@contextmanager
def _seen(at: Adding) -> Iterator[dict[str, Tensor]]:
    """The outputs of the position module and the inputs of the norm, for the last window that was run."""
    kept: dict[str, Tensor] = {}

    def added(_: nn.Module, __: Any, y: Tensor) -> None:
        kept["rows"] = y.detach()

    def given(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        kept["sum"] = args[0].detach()

    with at.positions.register_forward_hook(added), at.norm.register_forward_pre_hook(given):
        yield kept


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """The four terms of layer 0.

    Attributes:
        shares: Share of each term in the variance, the mean over heads and windows, mean rows taken out.
        apart: The largest difference between the sum of all terms and the scores of layer 0, in float64.
        scores: Scores of the first window, [heads, length, length], float64.
        offsets: Share of the position-position part that the distance explains: ``before`` a projection, behind
            ``random`` projections (expected) and ``one_random``, ``trained`` by head.
    """

    shares: Mapping[str, float]
    apart: float
    scores: Tensor
    offsets: Mapping[str, Any]


def score_terms(at: Adding, ids: Tensor) -> ScoreTerms:
    """The four terms in the windows of token ids, [windows, length]."""
    norm, query, key = (copy.deepcopy(each).double().eval() for each in (at.norm, at.query, at.key))
    inner = _width_of(query, at)
    project = _Projections.of(query, key, at.heads, inner, joined=at.family.query == at.family.key)
    sums, rows = [], torch.empty(0)
    with torch.no_grad():
        for window in ids:
            with _seen(at) as kept:
                at.base(window[None])
            sums.append(kept["sum"][0].double())
            rows = kept["rows"] if "rows" in kept else lab_rows(at.base, len(window))
        rows = rows.reshape(-1, rows.shape[-1]).double()
        content = torch.stack(sums) - rows
        mean_content, mean_row = content.mean((0, 1)), rows.mean(0)
        apart, shares, first = 0.0, [], torch.empty(0)
        for own, summed in zip(content, sums, strict=True):
            scale = _GivenDeviation(at.norm, summed)
            parts = project.sum_of_terms(scale(own), scale(rows), scale.bias)
            scores = project.scores(norm(summed))
            apart = max(apart, float((parts - scores).abs().max()))
            first = first if first.numel() else scores
            x, p = (scale(each).numpy() for each in (own - mean_content, rows - mean_row))
            shares += [four_terms(x, p, *head).to_dict() for head in project.heads_of()]
    mean = {name: float(np.mean([each[name] for each in shares])) for name in shares[0]}
    return ScoreTerms(mean, apart, first, _offsets(rows[:_MOST_ROWS].numpy(), at.norm, project))


def _offsets(rows: np.ndarray, norm: Any, project: "_Projections") -> dict[str, Any]:
    """How much of the position-position part is a function of the distance; the norm is part of the projection."""
    width = rows.shape[1]
    gain = np.ones(width) if norm.weight is None else norm.weight.detach().double().numpy()
    centre = np.eye(width) - 1 / width if isinstance(norm, nn.LayerNorm) else np.eye(width)
    heads = [(centre * gain @ query, centre * gain @ key) for query, key in project.heads_of()]
    drawn = drawn_projections(np.random.default_rng(0), width, heads[0][0].shape[1])
    return {
        "before": offset_share(np.eye(width), rows),
        "random": expected_offset_share(rows),
        "one_random": offset_share(drawn, rows),
        "trained": [offset_share(each, rows) for each in heads],
    }


class _GivenDeviation:
    """A norm as a linear map, given each token's standard deviation."""

    def __init__(self, norm: Any, summed: Tensor) -> None:
        self.centred = isinstance(norm, nn.LayerNorm)
        spread = summed - summed.mean(-1, keepdim=True) if self.centred else summed
        epsilon = norm.eps if norm.eps is not None else torch.finfo(torch.float32).eps
        self.deviation = (spread.square().mean(-1, keepdim=True) + epsilon).sqrt()
        width = summed.shape[-1]
        self.gain = torch.ones(width).double() if norm.weight is None else norm.weight.detach().double()
        bias = getattr(norm, "bias", None)
        self.bias = torch.zeros(width).double() if bias is None else bias.detach().double()

    def __call__(self, part: Tensor) -> Tensor:
        spread = part - part.mean(-1, keepdim=True) if self.centred else part
        return spread / self.deviation * self.gain


@dataclass(frozen=True, eq=False)
class _Projections:
    """Layer 0: the modules, their weights [heads, width, head width] and their biases [heads, head width]."""

    query: Tensor
    key: Tensor
    query_bias: Tensor
    key_bias: Tensor
    modules: tuple[nn.Module, nn.Module]
    columns: tuple[slice, slice]

    @classmethod
    def of(cls, query: nn.Module, key: nn.Module, heads: int, inner: int, *, joined: bool) -> "_Projections":
        """Determined from the outputs of the modules for the unit vectors and for zero."""
        columns = (slice(0, inner), slice(inner, 2 * inner)) if joined else (slice(0, inner), slice(0, inner))
        own: Any = query
        width = own.in_features if isinstance(own, nn.Linear) else own.weight.shape[0]
        found = []
        with torch.no_grad():
            for module, where in zip((query, key), columns, strict=True):
                zero = module(torch.zeros(1, width).double())[:, where]
                weight = module(torch.eye(width).double())[:, where] - zero
                found.append((weight.unflatten(1, (heads, -1)).transpose(0, 1), zero[0].unflatten(0, (heads, -1))))
        (query_weight, query_bias), (key_weight, key_bias) = found
        return cls(query_weight, key_weight, query_bias, key_bias, (query, key), columns)

    def heads_of(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """W_Q and W_K of each head, [width, head width]."""
        yield from zip(self.query.numpy(), self.key.numpy(), strict=True)

    def scores(self, seen: Tensor) -> Tensor:
        """Scores as the model's own modules make them of what layer 0 sees, [heads, length, length]."""
        heads = len(self.query)
        q, k = (
            module(seen)[:, where].unflatten(1, (heads, -1)).transpose(0, 1)
            for module, where in zip(self.modules, self.columns, strict=True)
        )
        return q @ k.mT / math.sqrt(q.shape[-1])

    def sum_of_terms(self, content: Tensor, position: Tensor, bias: Tensor) -> Tensor:
        """The four terms, and those of the biases, added up, [heads, length, length]."""
        queries = [content @ self.query, position @ self.query, (bias @ self.query + self.query_bias)[:, None]]
        keys = [content @ self.key, position @ self.key, (bias @ self.key + self.key_bias)[:, None]]
        total = torch.zeros(len(self.query), len(content), len(content)).double()
        for one in queries:
            for other in keys:
                total += one @ other.mT
        return total / math.sqrt(self.query.shape[-1])


def _width_of(query: Any, at: Adding) -> int:
    """Channels of all queries together."""
    if at.family.heads:
        attention: Any = dict(at.base.named_modules())[at.family.heads]
        return attention.heads * attention.head_width
    if at.family.query != at.family.key:
        return query.out_features
    return query.weight.shape[1] // 3
