"""Polar coordinate position embedding, PoPE: the token sets lengths, its position sets angles, and neither mixes.

``score_ij = sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) rate_c + delta_c) / sqrt(d)`` with a rate for each
of the d channels, and ``delta`` learned from 0 to -2 pi. Source: Gopalakrishnan et al. 2025, arXiv:2509.10534,
section 3.
"""

import math

import torch
from torch import nn
from torch.nn.functional import softplus


class Pope(nn.Module):
    by_nature = {
        "norms": "a channel becomes softplus of it, and has a cosine and a sine",
        "position 0": "a token's channels become lengths there too",
    }

    def __init__(self, heads, head_width, base=10000.0):
        super().__init__()
        self.base = base
        self.delta = nn.Parameter(torch.zeros(heads, 1, head_width))

    def rotate(self, q, k, positions):
        width = q.shape[-1]
        angles = positions[:, None] * self.base ** (-torch.arange(width, device=q.device) / width)
        moved = angles + self.delta.float().clamp(-2 * math.pi, 0)
        lengths = softplus(q.float()), softplus(k.float())
        turned = (torch.cat([r * a.cos(), r * a.sin()], -1) for r, a in zip(lengths, (angles, moved), strict=True))
        return tuple(each.to(q.dtype) for each in turned)
