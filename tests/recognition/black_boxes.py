"""Rotations as other libraries compute them, written again: float32 tables, complex products, kept tables, their slips.

Each is a function(x [seq, width], positions [seq]) of NumPy arrays in the arithmetic that the named library uses; the
tests hold each to numbers that the library itself made, and then have it identified.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import XPos
from clockhands.encodings.scaling import Linear, Yarn

F = np.float32
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]
WIDTH = 64


def rates(width: int = WIDTH, base: float = 10_000.0) -> np.ndarray:
    """Powers in float32, as nearly every library makes them."""
    return F(1) / F(base) ** (np.arange(0, width, 2).astype(F) / F(width))


def halves(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Cosines and sines written twice, and the halves of x exchanged."""
    half = x.shape[-1] // 2
    beside = np.concatenate([-x[:, half:], x[:, :half]], axis=-1)
    return (x * np.tile(cosine, 2) + beside * np.tile(sine, 2)).astype(x.dtype)


def interleaved(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Cosines and sines repeated, and neighbours exchanged."""
    beside = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    return (x * np.repeat(cosine, 2, axis=-1) + beside * np.repeat(sine, 2, axis=-1)).astype(x.dtype)


def complex_product(x: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """Pairs of neighbours as complex numbers."""
    turned = np.ascontiguousarray(x, F).view(np.complex64) * np.exp(1j * phases.astype(F)).astype(np.complex64)
    return turned.view(F).astype(x.dtype)


def phases_of(positions: np.ndarray, ladder: np.ndarray | None = None) -> np.ndarray:
    return positions.astype(F)[:, None] * (rates() if ladder is None else ladder).astype(F)


def hf_llama(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    phases = phases_of(positions)
    return halves(x, np.cos(phases), np.sin(phases))


def hf_llama_bfloat16(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """After ``model.to(bfloat16)``, which casts the buffer of the rates."""
    phases = phases_of(positions, rates().astype(ml_dtypes.bfloat16).astype(F))
    return halves(x, np.cos(phases), np.sin(phases))


def hf_gptj(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A table of 2,048 rows, sines before cosines."""
    table = phases_of(np.arange(2_048))
    sine, cosine = np.split(np.concatenate([np.sin(table), np.cos(table)], axis=1)[positions], 2, axis=-1)
    return interleaved(x, cosine, sine)


def hf_roformer(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A table that is made in double precision and kept in float32, 1,536 rows of it."""
    table = np.arange(1_536)[:, None] / 10_000.0 ** (2 * np.arange(WIDTH // 2) / WIDTH)
    return interleaved(x, np.cos(table).astype(F)[positions], np.sin(table).astype(F)[positions])


def hf_neox_partial(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    phases = phases_of(positions, rates(16))
    return np.concatenate([halves(x[:, :16], np.cos(phases), np.sin(phases)), x[:, 16:]], axis=-1)


def hf_nanochat(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    phases = phases_of(positions)
    return halves(x, np.cos(phases), -np.sin(phases))


def meta_llama3(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Complex units of a table of 4,096 rows."""
    table = phases_of(np.arange(4_096))
    return complex_product(x, table[positions])


def flash_attention(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Rows of cosines and sines beside rows of x: positions are not asked for."""
    phases = phases_of(np.arange(len(x)))
    return interleaved(x, np.cos(phases), np.sin(phases))


def counting(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    """fair-esm and Equinox count tokens; Equinox answers for another base what it kept of the first."""
    return hf_llama(x, np.arange(len(x)))


def rotary_embedding_torch(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Positions in the dtype of x."""
    phases = positions.astype(x.dtype).astype(F)[:, None] * rates()
    return interleaved(x.astype(F), np.cos(phases), np.sin(phases)).astype(x.dtype)


def yarn_original(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    factor = F(0.1 * math.log(8) + 1)
    width, plain = WIDTH, rates()
    begin, end = (width * math.log(4_096 / (turns * 2 * math.pi)) / (2 * math.log(10_000)) for turns in (32, 1))
    begin, end = max(math.floor(begin), 0), min(math.ceil(end), width - 1)
    kept = 1 - np.clip((np.arange(width // 2).astype(F) - begin) / F(end - begin), 0, 1)
    phases = phases_of(positions, plain / F(8) * (1 - kept) + plain * kept)
    return halves(x, np.cos(phases) * factor, np.sin(phases) * factor)


def diffusers_ntk(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The base times a factor, and rates divided by another."""
    phases = phases_of(positions, rates(base=30_000.0) / F(2))
    return interleaved(x, np.cos(phases), np.sin(phases))


def retnet(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    phases = phases_of(positions, F(1) / F(10_000.0) ** np.linspace(0, 1, WIDTH // 2).astype(F))
    return interleaved(x, np.cos(phases), np.sin(phases))


def allegro(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One axis' block: positions are divided by the interpolation of a grid."""
    phases = (positions.astype(F) / F(1.5))[:, None] * rates(16)
    return halves(x, np.cos(phases), np.sin(phases))


def qwen_image_text(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Text stands at one number on all three axes, each of which has a ladder of its own."""
    ladder = np.concatenate([rates(16), rates(24), rates(24)])
    return complex_product(x, phases_of(positions, ladder))


def xpos(x: np.ndarray, positions: np.ndarray, centre: float = 12.0, sign: int = 1) -> np.ndarray:
    """torchscale's, with the middle of the sequence given."""
    zeta = (np.arange(0, WIDTH, 2) + 0.4 * WIDTH) / (1.4 * WIDTH)
    growth = (zeta ** (sign * (positions[:, None] - centre) / 512)).astype(F)
    phases = phases_of(positions)
    return interleaved(x, np.cos(phases) * growth, np.sin(phases) * growth)


def xpos_key(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return xpos(x, positions, sign=-1)


def xpos_counting(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    """It counts tokens, and half of them is the middle."""
    return xpos(x, np.arange(len(x)), centre=len(x) // 2)


def vjepa2(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Angles written twice as for halves, pairs interleaved."""
    phases = phases_of(positions, rates(x.shape[-1]))
    beside = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    return (x * np.tile(np.cos(phases), 2) + beside * np.tile(np.sin(phases), 2)).astype(x.dtype)


def mmpretrain_fast(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The same in two blocks, one for each axis."""
    return np.concatenate([vjepa2(block, positions) for block in np.split(x, 2, axis=-1)], axis=-1)


@dataclass(frozen=True)
class Box:
    """A function, the code that it is, and what is said of how it computes; ``spec`` None for no rotation.

    Attributes:
        keys: The published tables that it reproduces.
        said: Words of the reason.
        options: What `identify` is told.
    """

    function: Function
    spec: ch.Rotary | None
    name: str | None = None
    keys: tuple[str, ...] = ()
    computed_in: str = "float32"
    said: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    width: int = WIDTH


def applied(*names: str) -> tuple[str, ...]:
    return tuple(f"rope_apply_{name}" for name in names)


HALVES, INTERLEAVED = ch.Rotary(WIDTH), ch.Rotary(WIDTH, "interleaved")

BOXES = {
    "llama": Box(
        hf_llama, HALVES, "llama2", (*applied("hf_llama", "kerashub", "litgpt"), "rope_diffusers_1d_half"),
    ),
    "llama in bfloat16": Box(
        hf_llama_bfloat16, HALVES, "llama2", ("rope_hf_llama_module_bf16",), "bfloat16",
        ("Frequencies are stored in bfloat16.", "off by more than 0.01"),
        evidence={"rates_in": "bfloat16", "positions_in": "exact"},
    ),
    "gpt-j": Box(hf_gptj, INTERLEAVED, "roformer", applied("hf_gptj"), said=("positions up to 2,047 only",)),
    "roformer": Box(
        hf_roformer, INTERLEAVED, "roformer", applied("hf_roformer"), computed_in="float64",
        said=("positions up to 1,535 only",), evidence={"phases_in": "float64", "longest_position": 1_535},
    ),
    "gpt-neox": Box(hf_neox_partial, ch.Rotary(WIDTH, rotated=16), "gpt-neox", applied("hf_neox_partial")),
    "nanochat": Box(hf_nanochat, ch.Rotary(WIDTH, direction="backward"), "nanochat"),
    "meta": Box(
        meta_llama3, INTERLEAVED, "roformer", applied("meta_llama3", "hf_deepseek_v2"),
        said=("positions up to 4,095 only",),
    ),
    "flash-attention": Box(
        flash_attention, INTERLEAVED, "roformer", applied("flashattn_interleaved"), said=("counts its rows from 0",),
    ),
    "fair-esm and equinox": Box(
        counting, HALVES, "llama2", applied("fair_esm", "equinox", "equinox_theta500k"),
        said=("ignores the positions",),
    ),
    "rotary-embedding-torch": Box(
        rotary_embedding_torch, INTERLEAVED, "roformer",
        applied("rotary_embedding_torch", "x_transformers", "torchtune"),
    ),
    "rotary-embedding-torch in bfloat16": Box(
        rotary_embedding_torch, INTERLEAVED, "roformer", computed_in="bfloat16",
        said=("Positions are rounded to bfloat16.", "From position 257 on it is off"), options={"dtype": "bfloat16"},
        evidence={"positions_in": "bfloat16", "first_wrong_position": 257},
    ),
    "yarn": Box(yarn_original, ch.Rotary(WIDTH, scaling=Yarn(8.0, 4_096)), None, ("rope_yarn_original",)),
    "diffusers, two factors": Box(
        diffusers_ntk, ch.Rotary(WIDTH, "interleaved", base=30_000.0, scaling=Linear(2.0)), None,
        ("rope_diffusers_1d_ntk",),
    ),
    "retnet": Box(
        retnet, ch.Rotary(WIDTH, "interleaved", spacing=Geometric(span="closed")), "retnet-rotary",
        ("retnet_xpos_angles",),
    ),
    "allegro": Box(allegro, ch.Rotary(16, scaling=Linear(1.5)), None, ("rope_diffusers_allegro_w",), width=16),
    "xpos, query": Box(
        xpos, ch.Rotary(WIDTH, "interleaved", xpos=XPos(centre=12.0)), None,
        ("rope_xpos_torchscale_q", "rope_xpos_x_transformers", "rope_xpos_ret", "rope_xpos_flashattn"),
        evidence={"role": "query"},
    ),
    "xpos, key": Box(
        xpos_key, ch.Rotary(WIDTH, "interleaved", xpos=XPos(centre=12.0)), None, ("rope_xpos_torchscale_k",),
        evidence={"role": "key"},
    ),
    "xpos that counts": Box(
        xpos_counting, ch.Rotary(WIDTH, "interleaved", xpos=XPos(centre=256.0)), None,
        ("rope_xpos_ret", "rope_xpos_flashattn"), said=("ignores the positions", "depends on how many rows"),
        evidence={"role": "query"},
    ),
}  # fmt: skip

# What they turn is no pair, and by how much a head changes its length.
BROKEN = {
    "V-JEPA 2": Box(
        vjepa2,
        None,
        None,
        ("rope_hf_vjepa2",),
        said=(
            "It is not a rotation: it changes lengths by factors from 0.",
            "interleaved, its angles are written twice as halves are",
        ),
    ),
    "mmpretrain's fast": Box(mmpretrain_fast, None, said=("not a rotation", "changes lengths", "in each block")),
}
