"""Small inputs for the parts of a model that read no tokens: images of a few patches, spectrograms and audio waves.

What a part takes is in the signature of its forward pass, and the sizes are in its config and its first layer. Several
sizes may be possible: the first one that the part accepts is used.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

IMAGES = ("pixel_values", "grid_thw")
"""Arguments of a part that takes images: pixels, or patches with the numbers of their rows and columns."""

AUDIO = ("input_features", "input_values")
"""Arguments of a part that takes audio: spectrograms, or waves."""

_LEAST = 4  # patches in a column of the image, so that windows and blocks of patches show
_FRAMES = 16  # of a short spectrogram
_SAMPLES = 2000  # of a short wave


@dataclass(frozen=True)
class PatchedImage:
    """What a tower is given, without its content.

    Attributes:
        rows: Patches in a column.
        columns: Patches in a row.
        block: Patches on each side of a block whose patches are given one after the other; 1 for row by row.
        shape: Of the numbers of one patch.
    """

    rows: int
    columns: int
    block: int
    shape: tuple[int, ...]

    @property
    def cells(self) -> np.ndarray:
        """Row and column of each patch in the order in which a tower is given them, [patches, 2]."""
        places = np.moveaxis(np.indices((self.rows, self.columns)), 0, -1)
        blocks = places.reshape(self.rows // self.block, self.block, self.columns // self.block, self.block, 2)
        return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, 2)

    def noise(self, part: nn.Module, seed: int) -> Tensor:
        """Equal patches of noise, [patches, numbers of one]."""
        return _noise(part, (1, math.prod(self.shape)), seed).expand(self.rows * self.columns, -1)


@dataclass(frozen=True, eq=False)
class SmallInput:
    """An input that a part accepts.

    Attributes:
        says: Its size in words, after "ran on".
        given: From a seed to the arguments of the part.
        image: Its patches; None for audio.
        of_patches: From the numbers of patches [patches, numbers of one] to the arguments; None for audio.
    """

    says: str
    given: Callable[[int], dict[str, Any]]
    image: PatchedImage | None = None
    of_patches: Callable[[Tensor], dict[str, Any]] | None = None


def takes_any(part: nn.Module, names: Sequence[str]) -> bool:
    """Whether a part takes one of these arguments, and no tokens beside it."""
    taken = set(inspect.signature(part.forward).parameters)
    return bool(taken & set(names)) and not taken & {"input_ids", "decoder_input_ids"}


def reason(error: Exception) -> str:
    """The first line of an error, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0][:160].rstrip(".")


def _noise(part: nn.Module, shape: Sequence[int], seed: int) -> Tensor:
    like = next(part.parameters())
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(like.device, like.dtype)


# Images


def images(part: nn.Module, areas: Sequence[tuple[int, int]], *, of_any_size: bool) -> Iterator[SmallInput]:
    """Images for a tower: one that is wider than high if it may have any size, and one of the size in its config.

    Args:
        part: The tower.
        areas: Height and width of the windows of its layers, in patches.
        of_any_size: Whether the image must not have the size in the config, as no table does.
    """
    config: Any = part.config  # pyright: ignore[reportAttributeAccessIssue]
    taken = inspect.signature(part.forward).parameters
    block = int(getattr(config, "spatial_merge_size", 1)) if "grid_thw" in taken else 1
    shape = _numbers_of_a_patch(part)
    if of_any_size:
        height, width = (max((area[axis] for area in areas), default=0) for axis in (0, 1))
        rows = block * math.ceil(max(_LEAST, height + 1) / block)
        yield _image(part, PatchedImage(rows, block * math.ceil(max(rows + 1, 2 * width + 1) / block), block, shape))
    if (side := _declared_side(config)) is not None and side % block == 0:
        yield _image(part, PatchedImage(side, side, block, shape))


def other_image(part: nn.Module, image: PatchedImage) -> SmallInput:
    """A small image of another shape than a square one, for which a table is interpolated."""
    return _image(part, PatchedImage(6 * image.block, 8 * image.block, image.block, image.shape))


def _declared_side(config: Any) -> int | None:
    """Patches on each side of an image of the declared size; None where none is declared."""
    if (count := getattr(config, "num_position_embeddings", None) or getattr(config, "num_patches", None)) is not None:
        return math.isqrt(int(count))
    if getattr(config, "image_size", None) is None:
        return None
    whole, patch = (np.ravel(each)[0] for each in (config.image_size, config.patch_size))
    return int(whole // patch)


def _numbers_of_a_patch(part: nn.Module) -> tuple[int, ...]:
    """The shape of the numbers of one patch: those of the first layer, or of the config for pixels of an image."""
    config: Any = part.config  # pyright: ignore[reportAttributeAccessIssue]
    first = next(each for each in part.modules() if isinstance(each, nn.Conv2d | nn.Conv3d | nn.Linear))
    taken = inspect.signature(part.forward).parameters
    if not isinstance(first, nn.Linear):
        return (first.in_channels, *first.kernel_size)
    if "pixel_values" not in taken or "spatial_shapes" in taken:
        return (first.in_features,)
    return (getattr(config, "num_channels", 3), *np.broadcast_to(config.patch_size, 2).tolist())


def _image(part: nn.Module, image: PatchedImage) -> SmallInput:
    taken = list(inspect.signature(part.forward).parameters)
    config: Any = part.config  # pyright: ignore[reportAttributeAccessIssue]

    def arguments(patches: Tensor) -> dict[str, Any]:
        device, grid = patches.device, [image.rows, image.columns]
        if "grid_thw" in taken:
            return {taken[0]: patches, "grid_thw": torch.tensor([[1, *grid]], device=device)}
        if "spatial_shapes" in taken:
            seen = torch.ones(1, len(patches), dtype=torch.long, device=device)
            shapes = torch.tensor([grid], device=device)
            return {"pixel_values": patches[None], "pixel_attention_mask": seen, "spatial_shapes": shapes}
        channels, height, width = image.shape
        pixels = patches.reshape(image.rows, image.columns, channels, height, width).permute(2, 0, 3, 1, 4)
        pixels = pixels.reshape(1, channels, image.rows * height, image.columns * width)
        more: dict[str, Any] = {}
        if "image_sizes" in taken:
            more["image_sizes"] = torch.tensor([pixels.shape[2:]], device=device)
        if "aspect_ratio_ids" in taken:  # the same image in each of its tiles
            tiles = config.max_num_tiles
            more["aspect_ratio_ids"] = torch.ones(1, 1, dtype=torch.long, device=device)
            more["aspect_ratio_mask"] = torch.ones(1, 1, tiles, dtype=torch.long, device=device)
            pixels = pixels[None, None].expand(-1, -1, tiles, -1, -1, -1)
        if "interpolate_pos_encoding" in taken and image.rows != image.columns:
            more["interpolate_pos_encoding"] = True
        return {"pixel_values": pixels, **more}

    says = f"an image of {image.rows} x {image.columns} patches"
    return SmallInput(says, lambda seed: arguments(image.noise(part, seed)), image, arguments)


# Audio


def audio_inputs(part: nn.Module) -> Iterator[SmallInput]:
    """Audio for a tower: a short input, and one of the length that a table of its config covers."""
    taken = inspect.signature(part.forward).parameters
    config: Any = part.config  # pyright: ignore[reportAttributeAccessIssue]
    whole = getattr(config, "max_source_positions", None)
    bins = next((size for key in ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim",
                 "input_feat_size") if isinstance(size := getattr(config, key, None), int)), None)  # fmt: skip
    name = next(each for each in AUDIO if each in taken)
    if bins is None:
        if name == "input_values":
            yield SmallInput(f"an audio wave of {_SAMPLES:,} samples", _arguments(part, name, (1, _SAMPLES)))
        return
    lengths = [_FRAMES, getattr(config, "max_length", None) if name == "input_values" else None]
    lengths.append(2 * whole if isinstance(whole, int) else None)
    for frames in filter(None, lengths):
        for shape in ((bins, frames), (1, bins, frames), (1, frames, bins)):
            if (len(shape) == 2) == ("feature_lens" in taken):
                yield SmallInput(f"a spectrogram of {frames:,} frames", _arguments(part, name, shape))


def _arguments(part: nn.Module, name: str, shape: tuple[int, ...]) -> Callable[[int], dict[str, Any]]:
    taken = inspect.signature(part.forward).parameters

    def arguments(seed: int) -> dict[str, Any]:
        given = _noise(part, shape, seed)
        lengths = torch.tensor([shape[-1]], device=given.device)
        return {name: given, **({"feature_lens": lengths} if "feature_lens" in taken else {})}

    return arguments
