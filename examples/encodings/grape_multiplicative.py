"""GRAPE, multiplicative: each head turns queries and keys by their position in one plane, which is learned.

``G(n) = exp(n w L)`` with ``L = a bᵀ - b aᵀ`` is ``I + sin(n w s) L / s + (1 - cos(n w s)) L² / s²``, where
``s² = |a|² |b|² - (a b)²``. Source: Zhang et al. 2025, arXiv:2512.07805, the generator of rank 2; the formula is in the
README of model-architectures/GRAPE too.
"""

import torch
from torch import nn


class Grape(nn.Module):
    shared = False  # each layer has planes of its own

    def __init__(self, heads, head_width):
        super().__init__()
        self.planes = nn.Parameter(torch.randn(2, heads, 1, head_width) / head_width**0.5)
        self.log_rates = nn.Parameter(torch.zeros(heads, 1, 1))

    def rotate(self, q, k, positions):
        return self.turned(q, positions), self.turned(k, positions)

    def turned(self, x, positions):
        a, b = self.planes
        area = ((a * a).sum(-1) * (b * b).sum(-1) - (a * b).sum(-1) ** 2).sqrt()[..., None]
        angles = positions[:, None] * self.log_rates.exp() * area  # [heads, seq, 1]
        once = self.generated(x.float() if x.dtype != torch.float64 else x)
        twice = self.generated(once)
        return (x + angles.sin() / area * once + (1 - angles.cos()) / area**2 * twice).to(x.dtype)

    def generated(self, x):
        a, b = self.planes
        return a * (b * x).sum(-1, keepdim=True) - b * (a * x).sum(-1, keepdim=True)

    def scores(self, q, k, q_positions, k_positions):  # the exponential of each distance
        a, b = self.planes[:, :, 0]
        generator = self.log_rates.exp() * (a[:, :, None] * b[:, None] - b[:, :, None] * a[:, None])
        away = (k_positions - q_positions[:, None])[..., None, None, None]
        turns = torch.matrix_exp(away * generator)  # [queries, keys, heads, head_width, head_width]
        return torch.einsum("bhic,ijhcd,bhjd->bhij", q.to(turns), turns, k.to(turns)) / q.shape[-1] ** 0.5
