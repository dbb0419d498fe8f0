"""Self-Extend: past a window, positions are divided by a group size, so that distances stay within the trained ones.

Distances below ``window`` are as they are; others are ``i // group - j // group + window - window // group``.
Source: Jin et al. 2024, arXiv:2401.01325, section 3.
"""

import torch


class SelfExtend:
    by_nature = {"distance only": "whole groups are counted, so a distance depends on where groups begin"}

    def __init__(self, head_width, base=10000.0, window=64, group=8):
        self.window, self.group, pairs = window, group, head_width // 2
        self.rates = base ** (-torch.arange(pairs) / pairs)

    def scores(self, q, k, q_positions, k_positions):
        near = self.rotated(q, q_positions) @ self.rotated(k, k_positions).transpose(-1, -2)
        moved = q_positions // self.group + self.window - self.window // self.group
        far = self.rotated(q, moved) @ self.rotated(k, k_positions // self.group).transpose(-1, -2)
        close = q_positions[:, None] - k_positions < self.window
        return torch.where(close, near, far) / q.shape[-1] ** 0.5

    def rotated(self, x, positions):
        a, b = x.chunk(2, -1)
        angles = positions[:, None] * self.rates
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
