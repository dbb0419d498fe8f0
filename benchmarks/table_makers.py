"""Ways to build a float32 table of sinusoids, ours and others', for `run.py` to time.

Each peer is called as its library means it to be called. None may answer from memory:

* *textbook*, *diffusers* and we take any positions, and get another range in every repetition.
* *M2M100*, *Whisper*, *GPT-J* and *Marian* (transformers) take only a number of positions and always start at 0;
  these functions keep nothing between calls, so starting at 0 gives them no advantage.
* *positional-encodings* always starts at 0 too, but remembers its last answer on the module: every repetition gets a
  new module, made before the clock starts.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import clockhands as ch

FILL = "np.empty + fill"
OURS = "clockhands"


@dataclass(frozen=True)
class Contestant:
    """One way to make a table.

    Attributes:
        name: As printed.
        prepare: ``(rows, width, first) -> make``: what does not count. ``make()`` is timed and returns the table.
        most_entries: Left out of larger tables; None for no limit.
    """

    name: str
    prepare: Callable[[int, int, int], Callable[[], Any]]
    most_entries: int | None = None


def _fill(rows: int, width: int, _first: int) -> Callable[[], Any]:
    def make() -> np.ndarray:
        out = np.empty((rows, width), np.float32)
        out.fill(1.0)
        return out

    return make


def _ours(rows: int, width: int, first: int) -> Callable[[], Any]:
    spec = ch.preset("vaswani2017", width=width)
    positions = range(first, first + rows)
    return lambda: ch.table(spec, positions)


def _textbook(rows: int, width: int, first: int) -> Callable[[], Any]:
    def make() -> torch.Tensor:
        position = torch.arange(first, first + rows, dtype=torch.float32).unsqueeze(1)
        rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
        out = torch.zeros(rows, width)
        out[:, 0::2] = torch.sin(position * rates)
        out[:, 1::2] = torch.cos(position * rates)
        return out

    return make


def _transformers() -> Iterator[Contestant]:
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
    from transformers.models.whisper.modeling_whisper import sinusoids

    def marian(rows: int, width: int, _first: int) -> Callable[[], Any]:
        module = MarianSinusoidalPositionalEmbedding(rows, width)
        return module.create_weight

    embedding = M2M100SinusoidalPositionalEmbedding.get_embedding
    yield Contestant("transformers M2M100", lambda rows, width, _first: lambda: embedding(rows, width))
    yield Contestant("transformers Whisper", lambda rows, width, _first: lambda: sinusoids(rows, width))
    yield Contestant("transformers GPT-J", lambda rows, width, _first: lambda: create_sinusoidal_positions(rows, width))
    # A Python loop over all entries: 3 s for the small table, 48 s for the large one.
    yield Contestant("transformers Marian", marian, most_entries=3_000_000)


def _diffusers() -> Iterator[Contestant]:
    from diffusers.models.embeddings import get_timestep_embedding

    def prepare(rows: int, width: int, first: int) -> Callable[[], Any]:
        positions = torch.arange(first, first + rows)
        return lambda: get_timestep_embedding(positions, width)

    yield Contestant("diffusers timestep", prepare)


def _positional_encodings() -> Iterator[Contestant]:
    from positional_encodings.torch_encodings import PositionalEncoding1D

    def prepare(rows: int, width: int, _first: int) -> Callable[[], Any]:
        module = PositionalEncoding1D(width)
        shape = torch.zeros(1).expand(1, rows, width)  # only its shape is read; no memory behind it
        return lambda: module(shape)

    yield Contestant("positional-encodings", prepare)


def contestants() -> list[Contestant]:
    """Everybody, the floor first and us second."""
    return [
        Contestant(FILL, _fill),
        Contestant(OURS, _ours),
        Contestant("textbook torch", _textbook),
        *_transformers(),
        *_diffusers(),
        *_positional_encodings(),
    ]


def is_peer(contestant: Contestant) -> bool:
    return contestant.name not in {FILL, OURS}
