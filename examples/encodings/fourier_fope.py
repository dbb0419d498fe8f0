"""FoPE, Fourier position embedding: cosine and sine of a pair are sums over all frequencies that complete a turn.

``cos_c(p) = sum over k of cos(p rate_k) A[k, c]``, likewise ``sin_c`` with ``B``, over the rates of at least
``2 pi / length``. ``A`` and ``B`` are ones in every some rows plus drawn numbers, and are not trained. At most half of
the pairs get such sums; the others are multiplied by ``1 + 1 i`` at every position. Source: Hua et al. 2024,
arXiv:2412.17739; the authors' code, TsinghuaC3I/Fourier-Position-Embedding, olmo/model.py, with fourier_ignore_zero.
"""

import math

import torch
from torch import nn


class Fope(nn.Module):
    shared = False  # each layer draws its own
    by_nature = {
        "distance only": "a product of two sums of cosines holds their sums of positions too",
        "norms": "cosine and sine of a pair are on no circle",
        "position 0": "the sums of drawn numbers are not 1 there",
    }

    def __init__(self, heads, head_width, length, base=10000.0, drawn=0.3):
        super().__init__()
        self.pairs = head_width // 2
        self.rates = [rate for i in range(self.pairs) if (rate := base ** (-i / self.pairs)) >= 2 * math.pi / length]
        kept = len(self.rates)
        made = min(kept, self.pairs // 2)
        start = torch.zeros(heads, kept, made)
        for pair, row in enumerate(range(0, kept, math.ceil(kept / made))):
            start[:, row, pair] = 1
        self.cosines, self.sines = (
            nn.Parameter(start + nn.init.xavier_normal_(torch.empty_like(start), gain=drawn), requires_grad=False)
            for _ in range(2)
        )

    def rotate(self, q, k, positions):
        angles = positions[:, None] * torch.tensor(self.rates, device=q.device)
        sums = angles.cos() @ self.cosines.float(), angles.sin() @ self.sines.float()  # [heads, seq, made]
        cosine, sine = (nn.functional.pad(each, (0, self.pairs - each.shape[-1]), value=1.0) for each in sums)
        return self.turn(q, cosine, sine), self.turn(k, cosine, sine)

    def turn(self, x, cosine, sine):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1).to(x.dtype)
