"""Modules as people write them without a library: where they keep rates, tables and numbers, and how they turn.

Plain PyTorch, nothing of this library; each is right as it stands, and tests do the faults to it.
"""

import torch
from torch import nn

WIDTH, BASE, LENGTH = 16, 10_000.0, 512
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": WIDTH,
    "vocab_size": 100, "max_position_embeddings": LENGTH, "rope_theta": BASE,
}  # fmt: skip


def ladder(width=WIDTH, base=BASE, factor=1.0):
    """Rates as people compute them."""
    return 1.0 / (base ** (torch.arange(0, width, 2).float() / width)) / factor


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Halves(nn.Module):
    """Rates in a buffer; turns queries by itself."""

    def __init__(self, width=WIDTH, base=BASE):
        super().__init__()
        self.register_buffer("inv_freq", ladder(width, base), persistent=False)

    def forward(self, x, position_ids):
        phases = position_ids[..., None].float() * self.inv_freq.float()
        both = torch.cat((phases, phases), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class Doing(Halves):
    """The same with right rates, which something else is done with."""

    def __init__(self, phases, times=1.0):
        super().__init__()
        self.phases, self.times = phases, times

    def forward(self, x, position_ids):
        phases = self.phases(position_ids[..., None], self.inv_freq)
        both = torch.cat((phases, phases), dim=-1)
        return self.times * both.cos(), self.times * both.sin()


class Growing(Halves):
    """Changes what it holds when it is called, as dynamic scalings do."""

    def forward(self, x, position_ids):
        self.inv_freq.mul_(0.5)
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x, position_ids)


class Cached(nn.Module):
    """Rates, and cosines and sines of all positions in two buffers, as libraries kept them until 2023."""

    def __init__(self, width=WIDTH, base=BASE, length=LENGTH):
        super().__init__()
        rates = ladder(width, base)
        self.register_buffer("inv_freq", rates, persistent=False)
        phases = torch.outer(torch.arange(length).float(), rates)
        both = torch.cat((phases, phases), dim=-1)
        self.register_buffer("cos_cached", both.cos()[None, None], persistent=False)
        self.register_buffer("sin_cached", both.sin()[None, None], persistent=False)

    def forward(self, x, seq_len):
        return self.cos_cached[:, :, :seq_len].to(x.dtype), self.sin_cached[:, :, :seq_len].to(x.dtype)


class Beside(nn.Module):
    """Cosines and sines beside each other in one buffer, one row for each position."""

    def __init__(self, width=WIDTH, base=BASE, length=LENGTH):
        super().__init__()
        phases = torch.outer(torch.arange(length).float(), ladder(width, base))
        self.register_buffer("cos_sin_cache", torch.cat((phases.cos(), phases.sin()), dim=-1), persistent=False)


class OfVllm(Beside):
    """The same with what vLLM's classes keep beside it: no frequencies, no config."""

    def __init__(self, *, head_size=WIDTH, rotary_dim=WIDTH, base=BASE, is_neox_style=True, length=LENGTH):
        super().__init__(rotary_dim, base, length)
        self.head_size, self.rotary_dim, self.base, self.is_neox_style = head_size, rotary_dim, base, is_neox_style


class Complex(nn.Module):
    """Complex numbers of all positions, a plain attribute of the model, as in Meta's code."""

    def __init__(self, width=WIDTH, base=BASE, length=LENGTH):
        super().__init__()
        phases = torch.outer(torch.arange(length).float(), ladder(width, base))
        self.freqs_cis = torch.polar(torch.ones_like(phases), phases)


class OnTheFly(nn.Module):
    """Nothing is kept: a rotary part that turns rows [seq, width] at positions [seq], interleaved."""

    def __init__(self, base=BASE):
        super().__init__()
        self.base = base

    def forward(self, x, positions):
        phases = positions[:, None].float() * ladder(x.shape[-1], self.base)
        cos, sin = phases.cos(), phases.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.q_proj = nn.Linear(64, 64)
        self.rotary_emb = make()


class Model(nn.Module):
    """Layers that each have a rotary part of their own."""

    def __init__(self, make=Halves, config=None, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer(make) for _ in range(layers))
        self.config = CONFIG if config is None else config


class Wrapper(nn.Module):
    """A module around another one that has the config."""

    def __init__(self, model):
        super().__init__()
        self.base_model = nn.ModuleDict({"model": model})


class Compiled(nn.Module):
    """A module around another one, which it keeps where ``torch.compile`` does."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model


def shrinking(layers=3):
    """Each layer halves the settings that they share, and makes its ladder from what is left."""
    settings = {"width": WIDTH}

    def make():
        made = Halves(settings["width"])
        settings["width"] //= 2
        return made

    return Model(make, layers=layers)


class Embeddings(nn.Module):
    """A learned table, and the numbers of its rows."""

    def __init__(self, rows=64):
        super().__init__()
        self.wpe = nn.Embedding(rows, 32)
        self.register_buffer("position_ids", torch.arange(rows)[None], persistent=False)
        self.config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}


class RotaryWithCache(nn.Module):
    """Rates called ``theta`` and a table [positions, pairs, 2] called ``cache``, as in torchtune."""

    def __init__(self, base=BASE, rates=BASE):
        super().__init__()
        self.register_buffer("theta", ladder(base=rates), persistent=False)
        phases = torch.outer(torch.arange(LENGTH).float(), ladder(base=base))
        self.register_buffer("cache", torch.stack((phases.cos(), phases.sin()), dim=-1), persistent=False)

    def forward(self, x, *, input_pos=None):
        waves = self.cache[input_pos if input_pos is not None else torch.arange(x.shape[1])]
        waves = waves.view(-1, x.shape[1], 1, x.shape[-1] // 2, 2)
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        cos, sin = waves[..., 0], waves[..., 1]
        turned = (pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin)
        return torch.stack(turned, dim=-1).flatten(3).type_as(x)


class PositionalEncoding(nn.Module):
    """Rates of a table that is added."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", ladder(32), persistent=False)


class Sloped(nn.Module):
    """Attention of so many heads whose scores fall with the distance."""

    def __init__(self, slopes):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes).reshape(-1, 1, 1), persistent=False)


def sloped(slopes, heads):
    """Two layers of them."""
    model = nn.Module()
    model.layers = nn.ModuleList(Sloped(slopes) for _ in range(2))
    model.config = {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": heads, "vocab_size": 100}
    return model


def table_of(way, make):
    """A rotary part whose table is made from other phases."""
    part = way()
    phases = make(torch.outer(torch.arange(LENGTH).float(), ladder()))
    both = torch.cat((phases, phases), dim=-1)
    if way is Cached:
        part.cos_cached, part.sin_cached = both.cos()[None, None], both.sin()[None, None]
    elif way is Beside:
        part.cos_sin_cache = torch.cat((phases.cos(), phases.sin()), dim=-1)
    else:
        part.freqs_cis = torch.polar(torch.ones_like(phases), phases)
    return part
