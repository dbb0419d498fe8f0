"""Encodings of a user's own, as studies of these tests name them; the file is copied beside the study."""

import torch


class Rope(torch.nn.Module):
    def __init__(self, head_width, base=10000.0):
        super().__init__()
        self.rates = base ** (-torch.arange(head_width // 2) * 2 / head_width)

    def rotate(self, q, k, positions):
        angles = positions[:, None] * self.rates
        return self.turn(q, angles), self.turn(k, angles)

    def turn(self, x, angles):
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Slopes(torch.nn.Module):
    shared = False

    def __init__(self, heads):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(heads))

    def bias(self, q_positions, k_positions, heads):
        return -self.slopes[:, None, None] * (q_positions[:, None] - k_positions).abs()


class Added:
    def embed(self, positions, width):
        return positions[:, None].float().expand(-1, width)


class Wrong:
    def rotate(self, q, k, positions):
        return q
