"""Small causal models in PyTorch that keep a cache, each with a slip that somebody's serving code has, or without it.

``forward(tokens [batch, seq], positions [batch, seq], mask, cache) -> (logits [batch, seq, vocabulary], cache)``; the
mask says which keys are seen, [batch, keys] or [batch, seq, keys], beside causality; the cache is a list of keys and
values, one pair a layer. The models are random: what is asked is whether they agree with themselves.
"""

import math
from dataclasses import dataclass
from typing import Any

import pytest

from faults.wrong_biases import get_slopes
from faults.wrong_rotary_torch import apply, doubled

torch = pytest.importorskip("torch")

VOCABULARY, WIDTH, HEADS, LAYERS = 61, 32, 4, 2
HEAD = WIDTH // HEADS
# What dynamic and LongRoPE models were trained on; their rotation changes beyond it.
ORIGINAL = 24


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)


class Model(torch.nn.Module):
    """Right, unless ``slip`` names what is wrong."""

    def __init__(self, code="halves", slip=None):
        super().__init__()
        self.code, self.slip = code, slip
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
            self.head = torch.nn.Linear(WIDTH, VOCABULARY)
            for weights in self.parameters():
                if weights.ndim == 2:
                    torch.nn.init.normal_(weights, std=2.0 / math.sqrt(weights.shape[1]))
        self.requires_grad_(False)

    def rates(self, length):
        """Of the rotation in use for so many tokens: only slips look at them."""
        base, divisors = 1000.0, torch.ones(HEAD // 2)
        if self.slip == "dynamic" and length > ORIGINAL:
            base *= (4.0 * length / ORIGINAL - 3.0) ** (HEAD / (HEAD - 2))
        if self.slip == "lists":
            divisors = torch.arange(HEAD // 2) * 3.0 + 2.0 if length > ORIGINAL else divisors
        return 1.0 / (base ** (torch.arange(0, HEAD, 2).float() / HEAD)) / divisors

    def placed(self, tokens, positions, mask, cache):
        """Where tokens stand: as they are told, unless something slipped."""
        batch, seq = tokens.shape
        past = 0 if cache is None else cache[0][0].shape[2]
        slots = torch.arange(past, past + seq).expand(batch, seq)
        if self.slip == "slots":  # no position is looked at: slots are counted
            return slots
        if self.slip == "documents" and mask is not None and mask.ndim == 3:  # one count for all of a row
            return slots
        if self.slip == "one for all" and past:  # the first row's, for every row (unsloth#3699)
            return positions[:1].expand(batch, seq)
        if self.slip == "skips" and past and seq == 1:  # 8, 9 where 7, 8 belong (sglang#25015)
            return positions + 1
        if self.slip == "stuck" and past and seq == 1:
            return cache[-1][:, -1:]  # the one before, again
        if self.slip == "restarts" and past:  # each part from 0
            return torch.arange(seq).expand(batch, seq)
        return positions

    def forward(self, tokens, positions, mask=None, cache=None):
        batch, seq = tokens.shape
        placed = self.placed(tokens, positions, mask, cache)
        past = 0 if cache is None else cache[0][0].shape[2]
        rates = self.rates(past + seq)
        x, kept = self.embedding(tokens), []
        if self.code == "sinusoidal":
            phases = placed.float()[..., None] * 1000.0 ** -(torch.arange(0, WIDTH, 2).float() / WIDTH)
            x = x + torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2)
        where = placed if cache is None else torch.cat((cache[-1], placed), dim=1)
        for number, layer in enumerate(self.layers):
            q, k, v = layer.attention(layer.first(x)).chunk(3, dim=-1)
            q, k, v = (part.reshape(batch, seq, HEADS, HEAD).transpose(1, 2) for part in (q, k, v))
            if self.code in ("halves", "interleaved"):
                emb = doubled(placed.float()[:, None, :, None] * rates, self.code)
                q, k = (apply(part, emb.cos(), emb.sin(), self.code) for part in (q, k))
            if cache is not None:
                k, v = torch.cat((cache[number][0], k), dim=2), torch.cat((cache[number][1], v), dim=2)
            kept.append((k, v))
            scores = q @ k.transpose(2, 3) / math.sqrt(HEAD) + self.bias(placed, where, past, seq)
            keys = k.shape[2]
            seen = torch.arange(keys)[None, :] <= torch.arange(past, past + seq)[:, None]
            seen = seen[None].expand(batch, seq, keys)
            if mask is not None and not (self.slip == "leaks" and mask.ndim == 3):
                mask = mask.bool()
                seen = seen & (mask[:, None, :] if mask.ndim == 2 else mask)
            scores = scores.masked_fill(~seen[:, None], -1e9)
            mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, seq, WIDTH)
            x = x + layer.out(mixed)
            x = x + layer.down(torch.nn.functional.gelu(layer.up(layer.second(x))))
        return self.head(x), [*kept, where]

    def bias(self, queries, keys, past, seq):
        """ALiBi's, [batch, heads, queries, keys]; none for rotary models."""
        if self.code != "alibi" or (self.slip == "no bias in decode" and past and seq == 1):
            return 0.0
        slopes = torch.tensor(get_slopes(HEADS))[:, None, None]
        return -slopes * (queries[:, :, None] - keys[:, None, :]).float()[:, None]


@dataclass(frozen=True)
class GenerationRow:
    """One slip of a model; as `faults.rows.Row`."""

    case: str
    slip: str
    codes: frozenset[str]
    model_codes: tuple[str, ...] = ("halves", "interleaved")
    length: int | None = None

    @property
    def name(self):
        return f"{self.case}-{self.slip}".replace(" ", "-")


def _row(case, slip, *codes, models=("halves", "interleaved"), length=None):
    return GenerationRow(case, slip, frozenset(codes), models, length)


ROWS = (
    _row("D2#16", "skips", "decode-positions"),
    _row("D2#16", "stuck", "decode-positions"),
    # A constant shift of a whole row is not seen by a rotary model: an absolute code sees it, padded and packed alike.
    _row("D2#18", "slots", "padding-shifts", "packing-ignored", models=("sinusoidal",)),
    _row("D2#18", "one for all", "padding-shifts", "decode-positions"),
    _row("D2#19", "documents", "packing-ignored", models=("sinusoidal",)),
    _row("D2#19", "leaks", "packing-ignored"),
    _row("D2#20", "restarts", "chunk-restarts", "decode-positions"),
    _row("D2#23", "lists", "chunk-mixes-lists", "cache-older-base", length=2 * ORIGINAL),
    _row("D2#24", "dynamic", "cache-older-base", "chunk-mixes-lists", length=2 * ORIGINAL),
    _row("D3#8", "no bias in decode", "bias-lost-in-decode", models=("alibi",)),
)


def built(row: GenerationRow, code: str, wrong: bool) -> Any:
    """The model, wrong or right."""
    return Model(code, row.slip if wrong else None).eval()
