"""RoPE whose frequencies are trained: ``rate_k = exp(f_k)``, which begins as RoPE of some base."""

import math

import torch
from torch import nn


class LearnedFrequencies(nn.Module):
    shared = False  # each layer has its own

    def __init__(self, head_width, base=10000.0):
        super().__init__()
        pairs = head_width // 2
        self.log_rates = nn.Parameter(-math.log(base) * torch.arange(pairs) / pairs)

    def rotate(self, q, k, positions):
        angles = positions[:, None] * self.log_rates.exp()
        return self.turn(q, angles), self.turn(k, angles)

    def turn(self, x, angles):
        a, b = x.float().chunk(2, -1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1).to(x.dtype)
