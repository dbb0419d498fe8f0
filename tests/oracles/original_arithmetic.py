"""How some libraries really compute their tables: in bfloat16, or in float32 at phases of thousands of radians.

Their tables differ from what their conventions say by more than a thousandth. Here each is made once more in the
original's own steps, each rounded as there, to show that nothing but the rounding is the difference.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from late import Late

torch = Late("torch")

TURN = 2 * math.pi

Arrays = Mapping[str, np.ndarray]


def pegasus_x(_: Arrays) -> Any:
    """Transformers: rates, positions and phases in bfloat16."""
    half = 32
    numbers = torch.arange(half).to(torch.bfloat16)
    rates = torch.exp(numbers * -(math.log(10_000.0) / (half - 1)))
    # Whole positions times bfloat16 rates: the product is bfloat16, and so are 256 and 257.
    phases = torch.arange(4_096)[:, None] * rates
    return torch.cat([phases.sin(), phases.cos()], dim=-1)


def qwen_image(arrays: Arrays) -> Any:
    """diffusers: rates rounded to the bfloat16 of the timesteps, all else in float32."""
    half = 32
    exponents = -math.log(10_000) * torch.arange(half, dtype=torch.float32) / half
    rates = torch.exp(exponents).to(torch.bfloat16)
    phases = 1_000 * (torch.from_numpy(arrays["t"])[:, None] * rates.float()[None])
    return torch.cat([phases.cos(), phases.sin()], dim=-1)


def detr(_: Arrays) -> Any:
    """Transformers 5: DETR's grid in the bfloat16 of the feature map."""
    size, features = 40, 32
    along = torch.arange(1, size + 1, dtype=torch.bfloat16)
    along = along / (along[-1:] + 1e-6) * TURN
    index = torch.arange(features).to(torch.bfloat16)
    divisors = 10_000 ** (2 * torch.div(index, 2, rounding_mode="floor") / features)
    phases = along[:, None] / divisors
    block = torch.stack([phases[:, 0::2].sin(), phases[:, 1::2].cos()], dim=-1).flatten(1)
    down, across = block[:, None].expand(size, size, features), block[None].expand(size, size, features)
    return torch.cat([down, across], dim=-1).reshape(size * size, -1)


def gaussian_fourier(arrays: Arrays) -> Any:
    """score_sde: 2 pi W t in float32, in this order."""
    phases = torch.from_numpy(arrays["t"])[:, None] * torch.from_numpy(arrays["W"])[None] * 2 * np.pi
    return torch.cat([phases.sin(), phases.cos()], dim=-1)


def pi0(arrays: Arrays) -> Any:
    """Transformers: periods first, then rates, in float32."""
    periods = 4e-3 * (4.0 / 4e-3) ** torch.linspace(0.0, 1.0, 32, dtype=torch.float32)
    phases = (1.0 / periods * 2 * math.pi)[None] * torch.from_numpy(arrays["t"])[:, None]
    return torch.cat([phases.sin(), phases.cos()], dim=-1)


def stable_audio_3(arrays: Arrays) -> Any:
    """diffusers: frequencies up to 10,000 as float32 exponentials."""
    ramp = torch.linspace(0.0, 1.0, 32, dtype=torch.float32)
    frequencies = torch.exp(ramp * (math.log(10_000.0) - math.log(0.5)) + math.log(0.5))
    phases = torch.from_numpy(arrays["t"]).float()[:, None] * frequencies * 2.0 * math.pi
    return torch.cat([phases.cos(), phases.sin()], dim=-1)


def timm_pixel(_: Arrays) -> Any:
    """timm: bands up to 112 pi in float32."""
    bands = 2.0 ** torch.linspace(0, math.log2(224) - 1, 8) * math.pi
    down, across = (torch.linspace(-1.0, 1.0, size) for size in (6, 9))
    points = torch.stack(torch.meshgrid(down, across, indexing="ij"), dim=-1).reshape(-1, 2)
    phases = (points[:, None] * bands[:, None]).flatten(1)
    return torch.cat([points, phases.sin(), phases.cos()], dim=-1)


def sam(arrays: Arrays) -> Any:
    """Transformers: a matrix product, then 2 pi, in float32."""
    points = 2 * torch.from_numpy(np.stack([arrays["x"], arrays["y"]], axis=-1)) - 1
    phases = 2 * np.pi * (points @ torch.from_numpy(arrays["B"]))
    return torch.cat([phases.sin(), phases.cos()], dim=-1)


def mochi(arrays: Arrays) -> Any:
    """diffusers: powers of two times 2 pi in float32."""
    rates = torch.pow(2.0, torch.arange(6, 8, dtype=torch.float32)) * (2 * torch.pi)
    points = torch.from_numpy(np.stack([arrays["c0"], arrays["c1"]], axis=-1))
    phases = rates.repeat(2) * points.repeat_interleave(2, dim=-1)
    return torch.cat([points, phases.sin(), phases.cos()], dim=-1)


# With a difference from the exact numbers that the committed rows show, far above any rounding at the end.
ORIGINALS: dict[str, tuple[Callable[[Arrays], Any], float]] = {
    "sin_hf_pegasus_x_bf16": (pegasus_x, 1.0),
    "time_qwenimage_bf16": (qwen_image, 0.1),
    "sin2d_hf_detr_bf16": (detr, 2e-3),
    "time_score_sde_gfp": (gaussian_fourier, 2e-5),
    "time_hf_pi0": (pi0, 2e-5),
    "time_stable_audio3_expo": (stable_audio_3, 1e-3),
    "fourier_timm_pixel": (timm_pixel, 5e-6),
    "fourier_hf_sam": (sam, 5e-5),
    "fourier_diffusers_mochi": (mochi, 5e-6),
}
