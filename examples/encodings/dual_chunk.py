"""Dual chunk attention, of Qwen2.5-1M: positions are counted in chunks, so that no distance is above the chunk size.

With chunks of ``s = size - local`` tokens a key is at ``j mod s``. For keys of its own chunk a query is at ``i mod s``,
for the chunk before at ``min(i mod s + s, size)``, and for earlier ones at ``min(2 s - 1, size)``. Source: An et al.
2024, arXiv:2402.17463; the authors' code, HKUNLP/ChunkLlama, chunkqwen_attn_replace.py; SGLang computes the same.
"""

import torch


class DualChunk:
    by_nature = {"distance only": "chunks are counted from position 0, so a distance depends on where they begin"}

    def __init__(self, head_width, base=10000.0, size=48, local=16):
        self.chunk, self.size, pairs = size - local, size, head_width // 2
        self.rates = base ** (-torch.arange(pairs) / pairs)

    def scores(self, q, k, q_positions, k_positions):
        within, keys = q_positions % self.chunk, self.rotated(k, k_positions % self.chunk).transpose(-1, -2)
        last = torch.full_like(within, 2 * self.chunk - 1)
        places = within, (within + self.chunk).clamp(max=self.size), last.clamp(max=self.size)
        own, before, earlier = (self.rotated(q, place) @ keys for place in places)
        chunks = (q_positions // self.chunk)[:, None] - k_positions // self.chunk
        return torch.where(chunks <= 0, own, torch.where(chunks == 1, before, earlier)) / q.shape[-1] ** 0.5

    def rotated(self, x, positions):
        a, b = x.chunk(2, -1)
        angles = positions[:, None] * self.rates
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
