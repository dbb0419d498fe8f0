"""GRAPE, additive and gated by the key: ALiBi whose slope is set by each key.

``bias_ij = (j - i) softplus(w) m softplus(u k_j / sqrt(d))`` in each head, with ALiBi's slope ``m`` and ``u`` of length
1. It is what ``exp((j - i) A)`` with ``A² = 0`` adds to the product of a query and a key with one more channel. Source:
Zhang et al. 2025, arXiv:2512.07805; the authors' code, model-architectures/GRAPE, model/llama-mha-grape-a-keygated.py.
"""

import math

import torch
from torch import nn
from torch.nn.functional import normalize, softplus


class GrapeAdditive(nn.Module):
    shared = False

    def __init__(self, heads, head_width):
        super().__init__()
        self.ways = nn.Parameter(torch.randn(heads, head_width) / head_width**0.5)
        self.strengths = nn.Parameter(torch.full((heads,), math.log(math.e - 1)))  # softplus of it is 1
        slopes = 2.0 ** (-8 / heads * torch.arange(1, heads + 1))  # of ALiBi, for a power of two
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self, q_positions, k_positions, heads, k=None):
        ways = normalize(self.ways, dim=-1)[:, None]
        gates = softplus((k * ways).sum(-1) / k.shape[-1] ** 0.5)  # [batch, heads, keys]
        slopes = (softplus(self.strengths) * self.slopes)[:, None] * gates
        return (k_positions - q_positions[:, None]) * slopes[:, :, None]
