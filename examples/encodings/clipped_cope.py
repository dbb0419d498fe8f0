"""CoPE, clipped RoPE: the lowest RoPE frequencies are faded out, the last one to zero.

``rate_k (1 + cos(pi j / (n - 1))) / 2`` for the ``n`` lowest frequencies, j = 0 to n - 1; the others stay. The authors
fade 20 of 64. Source: Li et al. 2026, arXiv:2602.05258, and the authors' code, hrlics/CoPE, modeling_cope.py. In NumPy.
"""

import numpy as np


class ClippedRope:
    def __init__(self, head_width, base=10000.0, faded=None):
        pairs = head_width // 2
        faded = pairs * 20 // 64 if faded is None else faded
        self.rates = base ** (-np.arange(pairs) / pairs)
        self.rates[pairs - faded :] *= (1 + np.cos(np.linspace(0, np.pi, faded))) / 2

    def rotate(self, q, k, positions):
        angles = positions[:, None] * self.rates
        return self.turn(q, angles), self.turn(k, angles)

    def turn(self, x, angles):
        a, b = np.split(x.astype(np.float64), 2, -1)
        turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
        return np.concatenate(turned, -1).astype(x.dtype)
