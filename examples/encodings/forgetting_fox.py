"""The forgetting transformer, FoX: each token says how much of the past stays, and the logarithms are added to scores.

``bias_ij = sum over j < l <= i of log sigmoid(w x_l + b)`` in each head. Source: Lin et al. 2025, arXiv:2503.02130,
section 3.
"""

from torch import nn
from torch.nn.functional import logsigmoid


class Fox(nn.Module):
    shared = False

    def __init__(self, width, heads):
        super().__init__()
        self.gates = nn.Linear(width, heads)

    def bias(self, q_positions, k_positions, heads, x=None):
        kept = logsigmoid(self.gates(x)).cumsum(1).transpose(1, 2)  # [batch, heads, keys]
        many = len(q_positions)  # queries are the last tokens
        return kept[:, :, -many:, None] - kept[:, :, None, :]
