"""PaTH: between a key and its query stands a product of reflections, one for each token between, made of the token.

``score_ij = k_jᵀ H_(j+1) … H_i q_i / sqrt(d)`` with ``H_t = I - beta_t w_t w_tᵀ``: ``w_t`` of length 1 is linear in the
token's state, ``beta_t`` from 0 to 2 is twice a sigmoid of it. Source: Yang et al. 2025, arXiv:2505.16381, section 3
(without its short convolution).
"""

import torch
from torch import nn


class Path(nn.Module):
    shared = False

    def __init__(self, width, heads, head_width):
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.ways = nn.Linear(width, heads * head_width, bias=False)
        self.strengths = nn.Linear(width, heads)

    def scores(self, q, k, q_positions, k_positions, x=None):
        batch, _, many, width = q.shape
        most = k.shape[-2]
        way = self.ways(x).view(batch, most, self.heads, self.head_width).transpose(1, 2)
        way = way / way.norm(dim=-1, keepdim=True)
        beta = 2 * torch.sigmoid(self.strengths(x)).transpose(1, 2)[..., None]
        places = torch.arange(most - many, most, device=q.device)  # queries are the last tokens
        out = q.new_full((batch, self.heads, many, most), float("-inf"))
        for back in range(most):
            at = (places - back).clamp(min=0)
            there = (places >= back).view(1, 1, many, 1)
            score = (q * k[:, :, at]).sum(-1, keepdim=True) / width**0.5
            score = score.masked_fill(~there, float("-inf"))
            key = torch.arange(most, device=q.device) == at[:, None]
            out = torch.where(key & there[..., 0][..., None], score, out)
            q = q - beta[:, :, at] * (q * way[:, :, at]).sum(-1, keepdim=True) * way[:, :, at]
        return out
