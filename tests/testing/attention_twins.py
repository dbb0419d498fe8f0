"""Attention as people write it, each right, and wrong where it is told to be: the fault is the only difference.

Plain PyTorch: nothing of the package is used to make them.
"""

import math

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

WIDTH, HEADS, HEAD = 64, 4, 16


def halves(x):
    """Channels i and i + half of a head, the second one negated, in each other's place."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def complex_rotated(x, freqs):
    """x [batch, seq, heads, width] rotated by complex numbers [seq, width / 2], neighbours as pairs."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, :, None]).flatten(3)


def seen(tokens, window=None):
    shown = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    return shown if window is None else shown.triu(1 - window)


class Layer(nn.Module):
    """Takes positions, multiplies by matmul, and puts a mask over scores; heads before tokens."""

    def __init__(self, *, base=10_000.0, rotates=True, scale=HEAD**-0.5, cap=None, late=0, grows=None, window=None):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.rotates, self.scale, self.cap, self.late, self.grows = rotates, scale, cap, late, grows
        self.window = window
        self.register_buffer("inv_freq", base ** (-torch.arange(0, HEAD, 2) / HEAD), persistent=False)

    def projected(self, states):
        return [each(states).unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for each in self.qkv]

    def rotated(self, x, positions):
        angles = (positions[:, None, :, None] * self.inv_freq).repeat(1, 1, 1, 2)
        return x * angles.cos() + halves(x) * angles.sin()

    def attended(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * self.scale
        scores = scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)
        scores = scores.masked_fill(~seen(q.shape[-2], self.window), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, hidden_states, position_ids):
        q, k, v = self.projected(hidden_states)
        if self.rotates:
            q, k = self.rotated(q, position_ids + self.late), self.rotated(k, position_ids)
        if self.grows is not None:
            q = q * (1 + 0.1 * torch.log1p(torch.floor((position_ids + 1) / self.grows)))[:, None, :, None]
        return self.attended(q, k, v)


class Fused(Layer):
    """Calls `scaled_dot_product_attention` with cosines and sines that it is given as a pair."""

    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        q, k, v = self.projected(hidden_states)
        cos, sin = (each[:, None] for each in position_embeddings)
        q, k = (x * cos + halves(x) * sin for x in (q, k))
        made = nn.functional.scaled_dot_product_attention(q, k, v, attention_mask, is_causal=True, scale=self.scale)
        return self.out(made.transpose(1, 2).flatten(2)), None


class Einsum(Layer):
    """Tokens before heads, one projection for all, and cosines and sines [seq, half] by their names."""

    def __init__(self, **how):
        super().__init__(**how)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, cos, sin):
        def turned(heads):
            first, second = heads.chunk(2, -1)
            c, s = cos[:, None], sin[:, None]
            return torch.cat([first * c - second * s, first * s + second * c], -1)

        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)) * self.scale
        scores = scores.masked_fill(~seen(x.shape[1]), -1e9).softmax(-1)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", scores, v).flatten(2))


class Complex(Layer):
    """Neighbours as pairs, by complex numbers, with arguments of a cache and a mask that it needs."""

    def forward(self, x, start_pos, freqs_cis, mask):
        q, k, v = (each.transpose(1, 2) for each in self.projected(x))
        q, k = complex_rotated(q, freqs_cis), complex_rotated(k, freqs_cis)
        return self.attended(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))


class Flexible(Layer):
    """Calls `flex_attention`."""

    def attended(self, q, k, v):
        tokens = q.shape[-2]
        mask = create_block_mask(
            lambda _batch, _head, query, key: query >= key, None, None, tokens, tokens, device="cpu"
        )
        return self.out(flex_attention(q, k, v, block_mask=mask, scale=self.scale).transpose(1, 2).flatten(2))


class Counting(Layer):
    """Counts the tokens itself."""

    def forward(self, x):
        return super().forward(x, torch.arange(x.shape[1])[None])


class Unnamed(Layer):
    """Has a name of its own for positions."""

    def forward(self, x, where):
        return super().forward(x, where)


class Product(nn.Module):
    """Multiplies heads alone, without a parameter."""

    def forward(self, q, k, v, scale):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


class Nested(Layer):
    """Its product is a module of its own, inside one that holds the projections."""

    def __init__(self, **how):
        super().__init__(**how)
        self.product = Product()

    def attended(self, q, k, v):
        return self.out(self.product(q, k, v, self.scale).transpose(1, 2).flatten(2))


class Parameters(Layer):
    """Multiplies by parameters, without modules for its projections."""

    def __init__(self, **how):
        super().__init__(**how)
        self.qkv = nn.ParameterList(torch.randn(WIDTH, WIDTH) / 8 for _ in range(3))

    def projected(self, states):
        return [(states @ each).unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for each in self.qkv]


class TokensFirst(Layer):
    """Hidden states [seq, batch, width], heads and batch as one axis, and angles as it is given them."""

    def forward(self, hidden_states, attention_mask, rotary_pos_emb):
        q, k, v = (each(hidden_states).unflatten(-1, (HEADS, HEAD)) for each in self.qkv)
        q, k = (x * rotary_pos_emb.cos() + halves(x) * rotary_pos_emb.sin() for x in (q, k))
        q, k, v = (x.permute(1, 2, 0, 3).flatten(0, 1) for x in (q, k, v))
        scores = (torch.bmm(q, k.mT) * self.scale).masked_fill(~seen(q.shape[1]), -1e4)
        made = torch.bmm(scores.softmax(-1), v).unflatten(0, (-1, HEADS))
        return self.out(made.permute(2, 0, 1, 3).flatten(2))


class Coordinates(Layer):
    """Positions [3, batch, seq], of which each pair of channels takes one coordinate, as Qwen2-VL has them."""

    def rotated(self, x, positions):
        own = torch.stack([positions[pair % 3] for pair in range(HEAD // 2)], -1)
        angles = (own * self.inv_freq)[:, None].repeat(1, 1, 1, 2)
        return x * angles.cos() + halves(x) * angles.sin()


class OneText(Layer):
    """Hidden states [tokens, width] of one text, heads after tokens, as engines with packed rows have them."""

    def forward(self, hidden_states, positions):
        q, k, v = (each(hidden_states).unflatten(-1, (HEADS, HEAD)) for each in self.qkv)
        if self.rotates:
            angles = (positions[:, None] * self.inv_freq).repeat(1, 2)[:, None]
            q, k = (x * angles.cos() + halves(x) * angles.sin() for x in (q, k))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.scale
        scores = scores.masked_fill(~seen(len(q)), -1e9).softmax(-1)
        return self.out(torch.einsum("hqk,khd->qhd", scores, v).flatten(1))


class Sinking(Counting):
    """Has a key without a value beside those of the tokens, so that what it returns depends on how many it sees."""

    def attended(self, q, k, v):
        scores = (q @ k.mT * self.scale).masked_fill(~seen(q.shape[-2], self.window), float("-inf"))
        weights = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1]
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Latent(nn.Module):
    """Multi-head latent attention as DeepSeek-V3 has it: one rotated key for all heads, keys and values from a latent.

    ``times`` says how often the softmax scale is multiplied by the square of YaRN's magnitude; ``way`` how heads are
    multiplied: by ``einsum``, with the projection of keys in the queries (``absorbed``), or with the rotated channels
    ``first``.
    """

    plain, turning, latent, value = 16, 8, 16, 16

    def __init__(self, times=1, way="einsum", factor=40.0):
        super().__init__()
        self.q_a, self.q_b = nn.Linear(WIDTH, 24), nn.Linear(24, HEADS * (self.plain + self.turning))
        self.kv_a = nn.Linear(WIDTH, self.latent + self.turning)
        self.kv_b = nn.Linear(self.latent, HEADS * (self.plain + self.value), bias=False)
        self.norms = nn.ModuleList((nn.RMSNorm(24), nn.RMSNorm(self.latent)))
        self.scale = (self.plain + self.turning) ** -0.5 * (0.1 * math.log(factor) + 1) ** (2 * times)
        self.way = way

    def forward(self, x, start_pos, freqs_cis, mask):
        q = self.q_b(self.norms[0](self.q_a(x))).unflatten(-1, (HEADS, -1))
        q_plain, q_turned = q[..., : self.plain], complex_rotated(q[..., self.plain :], freqs_cis)
        latent, k_turned = self.kv_a(x).split([self.latent, self.turning], -1)
        latent, k_turned = self.norms[1](latent), complex_rotated(k_turned[:, :, None], freqs_cis)
        if self.way == "absorbed":
            weight = self.kv_b.weight.view(HEADS, -1, self.latent)[:, : self.plain]
            scores = torch.einsum("bshc,btc->bsht", torch.einsum("bshd,hdc->bshc", q_plain, weight), latent)
            scores = (scores + torch.einsum("bshr,btr->bsht", q_turned, k_turned[:, :, 0])) * self.scale
        else:
            k_plain = self.kv_b(latent).unflatten(-1, (HEADS, -1))[..., : self.plain]
            k_turned = k_turned.expand(-1, -1, HEADS, -1)
            order = -1 if self.way == "first" else 1
            q, k = (torch.cat(each[::order], -1) for each in ((q_plain, q_turned), (k_plain, k_turned)))
            scores = torch.einsum("bshd,bthd->bsht", q, k) * self.scale
        scores = scores.masked_fill(~seen(x.shape[1])[None, :, None], float("-inf")).softmax(-1)
        return torch.einsum("bsht,btc->bshc", scores, latent)


class Model(nn.Module):
    """A model of four layers that reads token ids; ``rotate`` says which layers rotate."""

    def __init__(self, rotate=(True, True, True, False), layer=Layer, **how):
        super().__init__()
        self.embed = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(layer(rotates=rotates, **how) for rotates in rotate)
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, idx, position_ids=None):
        x = self.embed(idx)
        flat = isinstance(self.blocks[0], OneText)
        positions = torch.arange(idx.shape[-1])[None if not flat else ...] if position_ids is None else position_ids
        for block in self.blocks:
            x = x + (block(x) if isinstance(block, Counting) else block(x, positions))
        return self.head(x)


class Biased(Layer):
    """Adds what it is given to its scores, and hides nothing."""

    def forward(self, hidden_states, position_bias):
        q, k, v = self.projected(hidden_states)
        scores = q @ k.mT + position_bias
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Buckets(nn.Module):
    """An encoder like T5's whose layer ``n`` reads the table of layer ``reads(n)``."""

    def __init__(self, reads, *, two_sided=True):
        super().__init__()
        self.two_sided = two_sided
        self.embed = nn.Embedding(100, WIDTH)
        self.layers = nn.ModuleList(Biased() for _ in range(3))
        self.tables = nn.ModuleList(nn.Embedding(32, HEADS) for _ in range(3))
        self.reads = reads

    def forward(self, input_ids):
        x, count = self.embed(input_ids), input_ids.shape[1]
        apart = torch.arange(count)[None] - torch.arange(count)[:, None]
        size, exact = (apart.abs(), 8) if self.two_sided else ((-apart).clamp_min(0), 16)
        far = exact + (torch.log(size.clamp_min(1) / exact) / math.log(128 / exact) * exact).long()
        bucket = torch.where(size < exact, size, far.clamp_max(2 * exact - 1)) + 16 * (apart > 0) * self.two_sided
        for number, layer in enumerate(self.layers):
            x = x + layer(x, self.tables[self.reads(number)](bucket).permute(2, 0, 1))
        return x
