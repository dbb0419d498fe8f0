"""HARoPE, head-wise adaptive RoPE: a learned matrix of each head stands before the rotation.

``q' = R(i) M q`` and ``k' = R(j) M⁻ᵀ k``, so that at one position the score is that of ``q`` and ``k``. ``M = U S Vᵀ``
with ``U`` and ``V`` the exponentials of skew matrices and ``S`` a softplus; it begins as the identity. Source: Li et
al. 2025, arXiv:2510.10489; the authors' code, Studentxll/HARoPE, model/models_HARoPE.py (of images; here one axis).
"""

import math

import torch
from torch import nn
from torch.nn.functional import softplus


class HaRope(nn.Module):
    shared = False
    by_nature = {
        "norms": "the matrix stretches queries and keys",
        "position 0": "queries get the matrix, and keys its inverse transposed",
    }

    def __init__(self, heads, head_width, base=10000.0):
        super().__init__()
        self.left = nn.Parameter(torch.zeros(heads, head_width, head_width))
        self.right = nn.Parameter(torch.zeros(heads, head_width, head_width))
        self.sizes = nn.Parameter(torch.full((heads, head_width), math.log(math.e - 1)))  # softplus of it is 1
        self.base = base

    def rotate(self, q, k, positions):
        pairs = q.shape[-1] // 2
        angles = positions[:, None] * self.base ** (-torch.arange(pairs, device=q.device) / pairs)
        u, v = (torch.matrix_exp((each - each.mT).float() / 2) for each in (self.left, self.right))
        sizes = softplus(self.sizes.float())[:, None] + 1e-6
        adapted = ((q.to(u) @ v) * sizes @ u.mT, (k.to(u) @ v) / sizes @ u.mT)
        return tuple(self.turn(each, angles).to(q.dtype) for each in adapted)

    def turn(self, x, angles):
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
