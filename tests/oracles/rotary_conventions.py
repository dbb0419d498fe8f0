"""What each published rotary table is in this library's words: a spec, positions, and which columns hold a pair."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import EvenSteps, Geometric, Joined
from clockhands.encodings.rotary import XPos, alternating, chunked, grid, interleaved, rotate
from clockhands.encodings.scaling import Linear, Yarn

Arrays = Mapping[str, np.ndarray]


def halves(table: np.ndarray) -> np.ndarray:
    return table[:, : table.shape[1] // 2]


def every_second(table: np.ndarray) -> np.ndarray:
    return table[:, ::2]


def each(table: np.ndarray) -> np.ndarray:
    return table


@dataclass(frozen=True)
class Table:
    """Cosines and sines [tokens, columns], or angles; ``columns`` picks one column for each pair."""

    spec: ch.Rotary
    positions: Callable[[Arrays], Any]
    columns: Callable[[np.ndarray], np.ndarray]

    def picked(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Their cosines and sines, one column for each pair."""
        if "angles" in arrays:
            angles = self.columns(arrays["angles"].astype(np.float64))
            return {"cos": np.cos(angles), "sin": np.sin(angles)}
        return {name: self.columns(arrays[name]) for name in ("cos", "sin")}

    def made(self, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Ours and theirs, cosines beside sines."""
        made, theirs = units(self.spec, self.positions(arrays)), self.picked(arrays)
        return np.concatenate(made, axis=-1), np.concatenate([*theirs.values()], axis=-1)


@dataclass(frozen=True)
class Heads:
    """Heads ``x`` [tokens, width] at the positions 0, 1, 2, …, and what became of them."""

    spec: ch.Rotary
    role: str | None = None

    def made(self, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Ours and theirs."""
        return rotate(arrays["x"], self.spec, role=self.role), arrays["out"]


def units(spec: ch.Rotary, positions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of each pair: what becomes of a head that has a 1 in the first channel of each."""
    at = np.asarray(positions)
    x = np.zeros((len(at), spec.head_width))
    first, second = spec.channels.T
    x[:, first] = 1
    turned = rotate(x, spec, at)
    return turned[:, first], turned[:, second]


def per_axis(*pairs: int, base: float = 10_000.0, **fields: Any) -> dict[str, Any]:
    """A ladder for each axis, one after another."""
    spacing = Joined(tuple((own, Geometric(base, **fields)) for own in pairs))
    return {"spacing": spacing, "axes": chunked(pairs)}


def width_first(spec: ch.Rotary) -> ch.Rotary:
    """The same with the pairs of the second coordinate in front."""
    assert spec.axes is not None
    return replace(spec, axes=tuple(1 - axis for axis in spec.axes))


def at(*sizes: Any) -> Callable[[Arrays], np.ndarray]:
    cells = grid(*sizes)
    return lambda _: cells


def beside(*names: str) -> Callable[[Arrays], np.ndarray]:
    return lambda arrays: np.stack([arrays[name].astype(np.float64) for name in names], axis=-1)


def first(number: int) -> Callable[[Arrays], np.ndarray]:
    return lambda _: np.arange(number)


def centres(cells: int) -> np.ndarray:
    return (2 * np.arange(cells) + 1) / cells - 1


HALVES, INTERLEAVED = ch.Rotary(64), ch.Rotary(64, "interleaved")
VIDEO = ch.Rotary(64, "interleaved", **per_axis(8, 12, 12))
VISION = ch.Rotary(64, **per_axis(16, 16))
VISION_INTERLEAVED = ch.Rotary(64, "interleaved", **per_axis(16, 16))
CENTRED = ch.Rotary(64, "interleaved", xpos=XPos(centre=12.0))

TABLES = {
    "rope_yarn_original": Table(ch.Rotary(64, scaling=Yarn(8.0, 4_096)), first(16), halves),
    "rope_diffusers_1d_half": Table(HALVES, first(16), halves),
    "rope_diffusers_1d_ntk": Table(
        ch.Rotary(64, "interleaved", base=30_000.0, scaling=Linear(2.0)), first(16), every_second
    ),
    "rope_ret_pixel_axial": Table(
        ch.Rotary(
            128, "interleaved", spacing=Joined(((32, EvenSteps(1.0, 16.0, math.pi)),) * 2), axes=chunked([32, 32])
        ),
        at(np.linspace(-1, 1, 4), np.linspace(-1, 1, 5)),
        every_second,
    ),
    "rope_hf_qwen2vl_vision": Table(VISION, at(4, 6), halves),
    "rope_timm_dinov3": Table(
        ch.Rotary(64, **per_axis(16, 16, base=100.0, multiplier=2 * math.pi)), at(centres(4), centres(6)), halves
    ),
    "rope_timm_eva": Table(VISION_INTERLEAVED, at(np.arange(4) * 2.0, np.arange(6) * 8 / 6), every_second),
    "rope_timm_pixel": Table(
        ch.Rotary(64, "interleaved", **per_axis(16, 16, base=1 / 16, span="closed", multiplier=math.pi)),
        at(np.linspace(-1, 1, 4), np.linspace(-1, 1, 6)),
        every_second,
    ),
    "rope_hf_sam2video": Table(width_first(VISION_INTERLEAVED), at(4, 6), every_second),
    "rope_hf_qwen2vl_mrope": Table(ch.Rotary(64, axes=chunked([8, 12, 12])), beside("p0", "p1", "p2"), halves),
    "rope_hf_qwen3vl_mrope": Table(ch.Rotary(64, axes=interleaved([12, 10, 10])), beside("p0", "p1", "p2"), halves),
    "rope_hf_glm4v_mrope": Table(
        ch.Rotary(64, "interleaved", axes=chunked([8, 12, 12])), beside("p0", "p1", "p2"), every_second
    ),
    "rope_hf_neomme": Table(ch.Rotary(64, axes=alternating(32, 2)), beside("p0", "p1"), halves),
    "rope_hf_esmfold2_3d": Table(
        ch.Rotary(
            64,
            spacing=Joined((*((6, Geometric(100.0)),) * 3, (8, Geometric()), (6, EvenSteps(0.0, 0.0)))),
            axes=chunked([6, 6, 6, 14]),
        ),
        beside("x", "y", "z", "u"),
        halves,
    ),
    "rope_diffusers_2d_hunyuandit": Table(
        width_first(VISION_INTERLEAVED), at(np.arange(4) * 2.0, np.arange(6) * 2.0), every_second
    ),
    "rope_diffusers_3d_cogvideox": Table(VIDEO, at(3, 4, 6), every_second),
    "rope_diffusers_flux": Table(VIDEO, at([0], 4, 6), every_second),
    "rope_diffusers_wan": Table(ch.Rotary(64, "interleaved", **per_axis(12, 10, 10)), at(3, 4, 6), every_second),
    "rope_diffusers_hunyuanvideo": Table(
        ch.Rotary(64, "interleaved", **per_axis(8, 12, 12, base=256.0)), at(3, 4, 6), every_second
    ),
    "rope_diffusers_qwenimage_txt": Table(VIDEO, lambda _: np.repeat(np.arange(3, 7)[:, None], 3, axis=1), each),
    "rope_diffusers_cogview4": Table(VISION, at([0, 4, 8, 12], [0, 2, 5, 8, 10, 13]), halves),
    # One axis' block of several, halves within it.
    "rope_diffusers_allegro_w": Table(ch.Rotary(16), lambda _: np.arange(6) * 2 / 3, halves),
    "retnet_xpos_angles": Table(
        ch.Rotary(64, "interleaved", spacing=Geometric(span="closed")), first(16), every_second
    ),
    # The class token in front stands at 0, where nothing turns.
    "rope_torchtune_vision": Table(
        width_first(VISION_INTERLEAVED), lambda _: np.concatenate([[[0, 0]], grid(range(1, 5), range(1, 5))]), each
    ),
}

APPLIED = {
    **{f"rope_apply_{name}": Heads(HALVES) for name in ("hf_llama", "kerashub", "fair_esm", "litgpt", "equinox")},
    **{
        f"rope_apply_{name}": Heads(INTERLEAVED)
        for name in (
            "hf_gptj",
            "hf_roformer",
            "hf_deepseek_v2",
            "meta_llama3",
            "flashattn_interleaved",
            "rotary_embedding_torch",
            "x_transformers",
            "torchtune",
        )
    },
    "rope_apply_hf_neox_partial": Heads(ch.Rotary(64, rotated=16)),
    "rope_xpos_torchscale_q": Heads(CENTRED, "query"),
    "rope_xpos_torchscale_k": Heads(CENTRED, "key"),
    "rope_xpos_x_transformers": Heads(CENTRED, "query"),
    # The numbers of a first call; what goes wrong with a cache is shown beside the others.
    "rope_xpos_ret": Heads(CENTRED, "query"),
    "rope_xpos_flashattn": Heads(CENTRED, "query"),
}

# The library gives other numbers than its words: what is wrong, in one line each. The tests show each.
DEFECTS = {
    "rope_apply_equinox_theta500k": "a table that was cached for another base",
    "rope_litgpt_yarn": "the ramp of YaRN the wrong way round, and no attention factor",
    "rope_ret_axial_offset_cached": "angles that were cached without their offset",
    "rope_ret_bf16_positions": "positions in bfloat16",
    "rope_mmpretrain_fast": "cosines in the order of halves, pairs interleaved",
    "rope_hf_vjepa2": "cosines in the order of halves, pairs interleaved",
    "rope_hf_hunyuan_vl_xdrope": "two axes in one pair",
    "rope_hf_llama_module_bf16": "rates in bfloat16",
}
# Positions only: its rates are learned, a matrix for each head.
POSITIONS = {"rope_diffusers_mochi_positions"}

FAMILIES = ("rotary_table", "rotary_apply", "rotary_axial")
