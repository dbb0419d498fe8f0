"""Contextual position encoding, CoPE: a key's position is a sum of gates, so tokens may count words or sentences.

``p_ij = sum over j <= l <= i of sigmoid(q_i k_l / sqrt(d))``, at most ``rows - 1``; the score gets ``q_i e[p_ij]``,
with the rows ``e`` interpolated between whole positions. Source: Golovneva et al. 2024, arXiv:2405.18719, section 4.
"""

import torch
from torch import nn


class Cope(nn.Module):
    shared = False  # each layer has rows of its own

    def __init__(self, head_width, rows=16):
        super().__init__()
        self.rows = nn.Parameter(0.02 * torch.randn(head_width, rows))

    def bias(self, q_positions, k_positions, heads, q=None, k=None):
        many, most = q.shape[-2], k.shape[-2]
        seen = torch.ones(many, most, dtype=torch.bool, device=q.device).tril(most - many)
        gates = torch.sigmoid(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5) * seen
        at = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.rows.shape[1] - 1)
        scores, low = q @ self.rows, at.floor().long()
        part = at - low
        return scores.gather(-1, low) * (1 - part) + scores.gather(-1, at.ceil().long()) * part
