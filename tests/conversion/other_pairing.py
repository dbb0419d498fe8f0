"""Rotations as a few lines of PyTorch: what code of the other layout does, for models run by their own class."""


def to_interleaved(x):
    """From (a0 … an, b0 … bn) to (a0, b0, a1, b1, …)."""
    import torch

    half = x.shape[-1] // 2
    return torch.stack([x[..., :half], x[..., half:]], dim=-1).flatten(-2)


def to_halves(x):
    """From (a0, b0, a1, b1, …) to (a0 … an, b0 … bn)."""
    import torch

    return torch.cat([x[..., ::2], x[..., 1::2]], dim=-1)


def interleaved_apply(q, k, cos, sin, unsqueeze_dim=1):
    """Pairs (2i, 2i + 1) of the first channels turned, with the angles that a class of halves made (each twice)."""
    import torch

    half = cos.shape[-1] // 2
    cos, sin = cos[..., :half].unsqueeze(unsqueeze_dim), sin[..., :half].unsqueeze(unsqueeze_dim)

    def turn(x):
        turning, rest = x[..., : 2 * half], x[..., 2 * half :]
        a, b = turning[..., ::2], turning[..., 1::2]
        return torch.cat([torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2), rest], dim=-1)

    return turn(q), turn(k)


def halves_apply_complex(q, k, angles):
    """Pairs (i, i + d/2) turned, with the complex numbers that a class of interleaved pairs made."""
    import torch

    def turn(x):
        half = x.shape[-1] // 2
        turned = torch.complex(x[..., :half], x[..., half:]) * angles.unsqueeze(1)
        return torch.cat([turned.real, turned.imag], dim=-1)

    return turn(q), turn(k)
