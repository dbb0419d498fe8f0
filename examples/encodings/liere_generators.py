"""LieRE for images: a patch's place turns queries and keys by the exponential of learned generators, one for each axis.

``R(x, y) = exp(x X + y Y)``, with ``X`` and ``Y`` skew: an upper triangle minus its transpose, for each head. Patches
are numbered row by row. Source: Ostmeier et al. 2024, arXiv:2406.10322; the authors' code, StanfordMIMI/LieRE,
models/rope_vit.py.
"""

import torch
from torch import nn


class LieRe(nn.Module):
    causal = False
    shared = False
    by_nature = {"distance only": "the generators of two axes do not commute, and patches are numbered row by row"}

    def __init__(self, heads, head_width, side=16):
        super().__init__()
        self.side = side
        self.upper = nn.Parameter(torch.randn(2, heads, head_width, head_width) / head_width)

    def rotate(self, q, k, positions):
        upper = self.upper.triu(1)
        places = torch.stack([positions % self.side, positions // self.side], -1).to(upper)
        turns = torch.matrix_exp(torch.einsum("sa,ahij->hsij", places, upper - upper.mT).contiguous())
        return self.turn(q, turns), self.turn(k, turns)

    def turn(self, x, turns):
        return torch.einsum("hsij,bhsj->bhsi", turns, x.to(turns)).to(x.dtype)
