"""LM-Infinite: a query sees the last tokens and the first ones, and the first ones at one distance at most.

A key at a distance below ``window`` is scored by RoPE. Beyond it the first ``first`` keys are scored as if they were
``window`` tokens before the query, and all others are not seen. Source: Han et al. 2023, arXiv:2308.16137; the authors'
code, Glaciohound/LM-Infinite, models/llama.py, where ``limit_distance`` is the window.
"""

import torch


class LmInfinite:
    by_nature = {"distance only": "the first tokens are seen from everywhere, and others are not"}

    def __init__(self, head_width, base=10000.0, window=256, first=4):
        self.window, self.first, pairs = window, first, head_width // 2
        self.rates = base ** (-torch.arange(pairs) / pairs)

    def scores(self, q, k, q_positions, k_positions):
        near = self.rotated(q, q_positions) @ self.rotated(k, k_positions).mT
        far = self.rotated(q, torch.full_like(q_positions, self.window)) @ self.rotated(k, 0 * k_positions).mT
        far = far.masked_fill(k_positions >= self.first, float("-inf"))
        return torch.where(q_positions[:, None] - k_positions < self.window, near, far) / q.shape[-1] ** 0.5

    def rotated(self, x, positions):
        a, b = x.chunk(2, -1)
        angles = positions[:, None] * self.rates
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
