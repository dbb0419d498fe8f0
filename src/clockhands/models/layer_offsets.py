"""Compares by which distance queries are rotated more than keys in each layer of a running model: by none.

Scores depend on the position of a query minus that of a key. A shift of both changes nothing, and one of queries or of
keys alone changes every distance, although each of them rotates from token to token as declared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from clockhands.configs.resolved import layer_ranges
from clockhands.encodings.layouts import pair_channels
from clockhands.models.head_sources import ELSEWHERE
from clockhands.models.layer_rotations import DeclaredLayer, tolerance
from clockhands.models.layer_scores import LayerScores
from clockhands.models.measured_rotations import padded, rates_at
from clockhands.models.observations import Observation
from clockhands.phrases import number_of

FARTHEST = 8192
"""Tokens up to which a distance is sought."""

_IN_A_TEXT = 2.0**-4  # of cosines and sines, where earlier layers round
REMEDY = "Rotate the query and the key of a token by one position: look for a slice of cosines that begins elsewhere."


@dataclass
class Offsets:
    """By which distance queries are rotated more than keys.

    Attributes:
        tokens: For each layer in which they were measured, that of each head; None for angles of no whole distance.
        found: What is not as declared.
        unknown: The layers that rotate and in which they were not measured.
    """

    tokens: dict[int, list[int | None]] = field(default_factory=dict)
    found: list[Observation] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


def differing_offsets(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores], dtype: torch.dtype
) -> Offsets:
    """Compare queries with keys in every layer that is declared to rotate."""
    made = Offsets()
    wrong: dict[tuple[int | None, str], list[int]] = {}
    for each in measured:
        want = declared.get(each.layer)
        if want is None or want.expected is None:
            continue
        if each.angles is None:
            made.unknown.append(each.layer)
            continue
        rates = want.sign * padded(rates_at(want.expected, ELSEWHERE + 1), each.angles.shape[1])
        of_heads = [_tokens(angles, rates, 2 * tolerance(dtype)) for angles in each.angles]
        made.tokens[each.layer] = of_heads
        for apart in set(of_heads) - {0}:
            heads = [head for head, tokens in enumerate(of_heads) if tokens == apart]
            where = "" if len(heads) == len(of_heads) else f" of heads {layer_ranges(heads)}"
            wrong.setdefault((apart, where), []).append(each.layer)
    for (apart, where), layers in wrong.items():
        evidence = {"says": _sentence(apart, where), "remedy": REMEDY}
        evidence |= {} if apart is None else {"offset": apart}
        made.found.append(Observation("run-differs", evidence, layer_ranges(layers)))
    return made


def offset_in_text(own: Tensor, other: Tensor, want: DeclaredLayer) -> int | None:
    """By how many tokens queries or keys of a text are rotated more than others, [1, heads, tokens, channels].

    None where that is not one distance at all tokens, but for those that a shift along the text moves beyond its end.
    """
    if want.expected is None:
        return None
    assert want.layout is not None
    place, tokens = want.channels(own.shape[-1]), own.shape[-2]
    first, second = pair_channels(want.rotated // 2, want.layout).T
    heads = max(own.shape[-3], other.shape[-3])
    of_own, of_other = (
        rows[..., first] + 1j * rows[..., second]
        for rows in (
            each[0].repeat_interleave(heads // each.shape[-3], 0)[..., place].double().cpu().numpy()
            for each in (own, other)
        )
    )
    turned = np.exp(1j * np.angle((of_own * of_other.conj()).sum(axis=0)))
    rates = want.sign * padded(rates_at(want.expected, tokens), turned.shape[-1])
    distances = np.arange(1 - tokens, tokens)
    apart = np.abs(np.exp(1j * distances[:, None] * rates)[:, None] - turned).max(axis=-1)
    fits = (apart <= _IN_A_TEXT).sum(axis=1)
    best = int(fits.argmax())
    distance = int(distances[best])
    return distance if 2 * abs(distance) < tokens and fits[best] >= tokens - abs(distance) else None


def _sentence(apart: int | None, where: str) -> str:
    if apart is None:
        return (
            f"Queries and keys{where} of one token are rotated by different angles, which no whole distance up to "
            f"{FARTHEST:,} tokens gives at the declared frequencies."
        )
    how = "later" if apart > 0 else "earlier"
    return (
        f"Queries{where} are rotated as if they were {number_of(abs(apart), 'token')} {how} than the keys of the same "
        f"tokens: every distance is {abs(apart):,} too {'large' if apart > 0 else 'small'}."
    )


def _tokens(angles: np.ndarray, rates: np.ndarray, allowed: float) -> int | None:
    """The whole distance that gives these angles; None if there is none."""
    if np.abs(np.exp(1j * angles) - 1).max() <= allowed:
        return 0
    distances = np.arange(-FARTHEST, FARTHEST + 1)
    apart = np.abs(np.exp(1j * distances[:, None] * rates) - np.exp(1j * angles)).max(axis=1)
    nearest = int(apart.argmin())
    return int(distances[nearest]) if apart[nearest] <= allowed else None
