"""CABLE, context-aware biases: each token adds a distance of its own, and the bias is their sum.

``bias_ij = -sum over j < l <= i of softplus(w x_l + b)`` in each head. As ``-softplus(z) = log sigmoid(-z)``, it is the
bias of FoX (`forgetting_fox.py`) with gates of the other sign. Source: Veisi et al. 2025, arXiv:2503.08067, and the
authors' code, axiomlab/Cable, src/Cable.py.
"""

from torch import nn
from torch.nn.functional import softplus


class Cable(nn.Module):
    shared = False

    def __init__(self, width, heads):
        super().__init__()
        self.lengths = nn.Linear(width, heads)

    def bias(self, q_positions, k_positions, heads, x=None):
        passed = -softplus(self.lengths(x)).cumsum(1).transpose(1, 2)  # [batch, heads, keys]
        many = len(q_positions)  # queries are the last tokens
        return passed[:, :, -many:, None] - passed[:, :, None, :]
