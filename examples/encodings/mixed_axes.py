"""RoPE-Mixed for images: each pair turns by a mix of column and row, with two learned frequencies for each head.

``angle = x f + y g`` for the patch in column ``x`` and row ``y``; patches are numbered row by row. At the start a pair
of frequencies has length ``base ** (-4 c / d)``, half of them along a drawn direction and half across it. Pairs of
channels are interleaved. Source: Heo et al. 2024, arXiv:2403.13298; timm 1.0.31, RotaryEmbeddingMixed.
"""

import torch
from torch import nn


class MixedAxes(nn.Module):
    causal = False
    shared = False  # each layer has its own
    by_nature = {"distance only": "patches are numbered row by row, so numbers moved by some tokens wrap at an edge"}

    def __init__(self, heads, head_width, side=16, base=10.0):
        super().__init__()
        self.side = side
        lengths = base ** (-4 * torch.arange(head_width // 4) / head_width)
        way = 2 * torch.pi * torch.rand(heads, 1)
        ways = torch.cat([way.expand(-1, len(lengths)), way.expand(-1, len(lengths)) + torch.pi / 2], -1)
        self.rates = nn.Parameter(lengths.repeat(2) * torch.stack([ways.cos(), ways.sin()]))  # [2, heads, pairs]

    def rotate(self, q, k, positions):
        across, along = self.rates[:, :, None]
        angles = (positions % self.side)[:, None] * across + (positions // self.side)[:, None] * along
        return self.turn(q, angles), self.turn(k, angles)

    def turn(self, x, angles):
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
        return torch.stack(turned, -1).flatten(-2).to(x.dtype)
