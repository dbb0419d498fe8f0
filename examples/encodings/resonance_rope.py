"""Resonance RoPE: every wavelength is rounded to whole tokens, so that angles past the trained length came up in it.

``rate = 2 pi / round(2 pi / rate)``. Source: Wang et al. 2024, arXiv:2403.00071, section 4. In NumPy.
"""

import numpy as np


class ResonanceRope:
    def __init__(self, head_width, base=10000.0):
        pairs = head_width // 2
        rates = base ** (-np.arange(pairs) / pairs)
        self.rates = 2 * np.pi / np.round(2 * np.pi / rates)

    def rotate(self, q, k, positions):
        angles = positions[:, None] * self.rates
        return self.turn(q, angles), self.turn(k, angles)

    def turn(self, x, angles):
        a, b = np.split(x.astype(np.float64), 2, -1)
        turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
        return np.concatenate(turned, -1).astype(x.dtype)
