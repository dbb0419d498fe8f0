"""Asks a model of text and images which coordinates it gives to a still image, and compares them with M-RoPE's."""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from clockhands.errors import ClockhandsError

TYPES = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"})
"""Types whose images have the coordinates of Qwen2-VL: one time, and rows and columns counted from it."""

_BEFORE, _SIDE, _AFTER = 6, 4, 5


@dataclass(frozen=True)
class ImageCoordinates:
    """What a model gives to a prompt with one still image.

    Attributes:
        got: Its coordinates (time, row, column), [tokens, 3].
        wanted: Those of M-RoPE.
    """

    got: np.ndarray
    wanted: np.ndarray

    @property
    def says(self) -> str | None:
        """The first token that differs, in a sentence; None if there is none."""
        other = np.flatnonzero((self.got != self.wanted).any(axis=1))
        if not other.size:
            return None
        token = int(other[0])
        inside = _BEFORE <= token < _BEFORE + _SIDE**2
        which = f"Cell {token - _BEFORE} of an image" if inside else f"Token {token} of a prompt with an image"
        got, wanted = (tuple(map(int, each[token])) for each in (self.got, self.wanted))
        return (
            f"{which} of {_SIDE} x {_SIDE} cells, after {_BEFORE} tokens of text, has the coordinates {got} (time, row,"
            f" column) instead of {wanted}; {len(other)} of {len(self.got)} tokens differ."
        )


def image_coordinates(module: nn.Module) -> ImageCoordinates | None:
    """Ask the model for the coordinates of a prompt; None where it does not compute them as these types do.

    A still image that starts at position ``s`` has one time ``s``, rows ``s + r`` and columns ``s + c``; text goes on
    after the largest coordinate.

    Source: Wang et al. 2024, arXiv:2409.12191, section 2.1; a fault of it: huggingface/transformers#45325.
    """
    config: Any = getattr(module, "config", None)
    owner: Any = next((each for each in module.modules() if hasattr(each, "get_rope_index")), None)
    if owner is None or getattr(config, "model_type", None) not in TYPES:
        return None
    merge = getattr(config.vision_config, "spatial_merge_size", 1)
    image = [config.image_token_id] * _SIDE**2
    ids = torch.tensor([[1] * (_BEFORE - 1) + [config.vision_start_token_id] + image + [1] * _AFTER])
    given: dict[str, Any] = {"input_ids": ids, "image_grid_thw": torch.tensor([[1, _SIDE * merge, _SIDE * merge]])}
    if "mm_token_type_ids" in inspect.signature(owner.get_rope_index).parameters:
        given["mm_token_type_ids"] = (ids == config.image_token_id).int()
    try:
        got, _ = owner.get_rope_index(**given, attention_mask=torch.ones_like(ids))
    except (ClockhandsError, AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None
    cells = [(_BEFORE, _BEFORE + row, _BEFORE + column) for row in range(_SIDE) for column in range(_SIDE)]
    text = [(place,) * 3 for place in (*range(_BEFORE), *range(_BEFORE + _SIDE, _BEFORE + _SIDE + _AFTER))]
    wanted = np.array([*text[:_BEFORE], *cells, *text[_BEFORE:]])
    made = got[:, 0].T.cpu().numpy()
    return ImageCoordinates(made, wanted) if made.shape == wanted.shape else None
