"""ReRoPE: RoPE with no distance above a window; with ``leak`` above 0 distances past it grow by that much a token.

``d = min(i - j, window) + leak max(0, i - j - window)``. Source: Su 2023, https://kexue.fm/archives/9708.
"""

import torch


class ReRope:
    def __init__(self, head_width, base=10000.0, window=64, leak=0.0):
        self.window, self.leak, pairs = window, leak, head_width // 2
        self.rates = base ** (-torch.arange(pairs) / pairs)

    def scores(self, q, k, q_positions, k_positions):
        distance = q_positions[:, None] - k_positions
        seen = distance.clamp(max=self.window) + self.leak * (distance - self.window).clamp(min=0)
        angles = seen[..., None] * self.rates  # [queries, keys, pairs]
        (a, b), (c, d) = q.chunk(2, -1), k.chunk(2, -1)
        every = "bhip,bhjp,ijp->bhij"
        cosines = torch.einsum(every, a, c, angles.cos()) + torch.einsum(every, b, d, angles.cos())
        sines = torch.einsum(every, a, d, angles.sin()) - torch.einsum(every, b, c, angles.sin())
        return (cosines + sines) / q.shape[-1] ** 0.5
