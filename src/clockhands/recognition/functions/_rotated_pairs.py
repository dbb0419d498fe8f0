"""Which channels a function rotates as pairs, and whether it is a rotation.

A function that is linear in ``x`` is a matrix at each position, ``y = x @ A_p``, and ``A_p`` is its output for the
identity. It is a rotation of pairs if, up to a fixed order of the output channels, every channel is mixed with at most
one other, and the matrix of each pair is ``f [[cos, sin], [-sin, cos]]``.
"""

from dataclasses import dataclass

import numpy as np

from clockhands.encodings.layouts import Layout, pair_channels

# Entries below this, relative to the largest one, count as 0: rounding in float32 sums of 2**20 channels leaves less.
NOTHING = 2.0**-22


@dataclass(frozen=True, eq=False)
class RotatedPairs:
    """The pairs of a rotation.

    Attributes:
        channels: The two channels of each pair, int [pairs, 2], in the order of the first channel.
        layout: The layout of the pairs, or None if it is not a known one.
        blocks: Number of pairs of each block, if there are several half-split blocks.
        start: The first rotated channel.
        rotated: Number of channels from the first to the last rotated one, in a head.
        order: For each input channel the output channel that it moves to, int [width].
        reordered: Whether the output of interleaved pairs is half-split.
    """

    channels: np.ndarray
    layout: Layout | None
    blocks: tuple[int, ...]
    start: int
    rotated: int
    order: np.ndarray
    reordered: bool


class NoRotation(Exception):
    """A function is not a rotation of pairs; the message is the reason."""


def find_pairs(matrices: np.ndarray, positions: np.ndarray, unit: float) -> RotatedPairs:
    """The pairs that these matrices [positions, width, width] rotate; the first matrix is that of position 0.

    Raises:
        NoRotation: They do not rotate pairs; the message says what they do.
    """
    width = matrices.shape[-1]
    order = _order(matrices[0]) if not mixed_at_zero(matrices[0]) else np.arange(width)
    sorted_ = matrices[..., order]
    scale = np.abs(np.diagonal(sorted_[0])).max()
    meets = (np.abs(sorted_) > NOTHING * scale).any(axis=0)
    np.fill_diagonal(meets, False)
    partners = meets | meets.T
    crowded = np.flatnonzero(partners.sum(axis=1) > 1)
    if crowded.size:
        channel = int(crowded[0])
        others = ", ".join(map(str, np.flatnonzero(partners[channel])[:4]))
        raise NoRotation(
            f"It is not a rotation of pairs: dimension {channel} is mixed with {int(partners[channel].sum())} "
            f"others ({others}{', …' if partners[channel].sum() > 4 else ''})."
        )
    firsts = np.flatnonzero(partners.any(axis=1))
    if not firsts.size:
        raise NoRotation(_why_no_rotation(sorted_, positions, unit))
    channels = np.array([(a, int(np.flatnonzero(partners[a])[0])) for a in firsts])
    channels = channels[channels[:, 0] < channels[:, 1]]
    _check_rotation(sorted_, positions, channels, unit)
    layout, blocks, start, rotated = _arranged(channels, width)
    moved = np.flatnonzero(order != np.arange(width))
    if moved.size:
        # The first and the last of the RoPE dimensions keep their place; all between them move, even if not rotated.
        start, rotated = int(moved[0]) - 1, int(moved[-1]) + 2 - (int(moved[0]) - 1)
        halved = np.arange(width)
        if rotated % 2 == 0 and start >= 0 and start + rotated <= width:
            halved[start : start + rotated] = start + pair_channels(rotated // 2, "halves").reshape(-1)
        side_by_side = (channels[:, 1] - channels[:, 0] == 1) & ((channels[:, 0] - start) % 2 == 0)
        if not side_by_side.all() or (order != halved).any():
            raise NoRotation(
                f"It rotates pairs, but the output dimensions are in an unknown order: dimension {int(moved[0])} of "
                f"its output is dimension {int(order[moved[0]])} of its input."
            )
        return RotatedPairs(channels, "interleaved", (), start, rotated, order, reordered=True)
    return RotatedPairs(channels, layout, blocks, start, rotated, order, reordered=False)


def mixed_at_zero(at_zero: np.ndarray) -> bool:
    """Whether channels are mixed at position 0: then positions have an offset, or it is not a rotation.

    Raises:
        NoRotation: The output is zero.
    """
    largest = np.abs(at_zero).max()
    if largest == 0:
        raise NoRotation("It is not a rotation: at position 0 it returns zeros.")
    goes = np.abs(at_zero) > NOTHING * largest
    return bool((goes.sum(axis=0) != 1).any() or (goes.sum(axis=1) != 1).any())


def _order(at_zero: np.ndarray) -> np.ndarray:
    """The output channel of each input channel, int [width], from the matrix of position 0, without rotation."""
    goes = np.abs(at_zero) > NOTHING * np.abs(at_zero).max()
    if (at_zero[goes] < 0).any():
        raise NoRotation("It is not a rotation: at position 0, without any rotation, it changes signs.")
    return goes.argmax(axis=1)


def _why_no_rotation(matrices: np.ndarray, positions: np.ndarray, unit: float) -> str:
    diagonals = np.diagonal(matrices, axis1=1, axis2=2)
    if np.abs(diagonals - diagonals[0]).max() <= 4 * unit * np.abs(diagonals[0]).max():
        return "It ignores positions: the output for x is the same at every position."
    away = np.abs(diagonals / diagonals[0])
    place = int(positions[np.abs(away - 1).max(axis=1).argmax()])
    return (
        f"It is not a rotation: dimensions are not mixed; each is multiplied by a separate factor ({away.min():.4g} "
        f"to {away.max():.4g} of position 0's, at position {place})."
    )


def _check_rotation(matrices: np.ndarray, positions: np.ndarray, channels: np.ndarray, unit: float) -> None:
    """Raise `NoRotation` if the 2 x 2 matrix of a pair is not a multiple of a rotation, with the change of lengths."""
    a, b = channels.T
    blocks = np.stack([np.stack([matrices[:, a, a], matrices[:, a, b]], -1),
                       np.stack([matrices[:, b, a], matrices[:, b, b]], -1)], -2)  # fmt: skip
    scale = np.abs(blocks).max(axis=(2, 3), keepdims=True)
    away = np.maximum(
        np.abs(blocks[..., 0, 0] - blocks[..., 1, 1]), np.abs(blocks[..., 0, 1] + blocks[..., 1, 0])
    ) / np.maximum(scale[..., 0, 0], 1e-300)
    if away.max() <= 16 * unit:
        return
    at_zero = np.abs(np.linalg.det(blocks[0])) ** 0.5
    at_zero = np.where(at_zero > NOTHING, at_zero, 1.0)
    lengths = np.linalg.svd(blocks, compute_uv=False) / np.maximum(at_zero, 1e-300)[None, :, None]
    worst = np.unravel_index(away.argmax(), away.shape)
    pair = tuple(map(int, channels[worst[1]]))
    raise NoRotation(
        f"It is not a rotation: it changes lengths by factors from {lengths.min():.4g} to {lengths.max():.4g}. The "
        f"dimensions of pair {pair} are rotated by two angles, different by {away.max():.2g} at position "
        f"{int(positions[worst[0]])}.{_tiled(matrices, positions, channels)}"
    )


def _tiled(matrices: np.ndarray, positions: np.ndarray, channels: np.ndarray) -> str:
    """A sentence if the angles are repeated as for the other layout; else an empty string."""
    at = int(np.flatnonzero(positions != 0)[0])
    a, b = channels.T
    angles = np.full(matrices.shape[-1], np.nan)
    angles[a] = np.arctan2(-matrices[at, b, a], matrices[at, a, a])
    angles[b] = np.arctan2(matrices[at, a, b], matrices[at, b, b])
    angles = angles[np.isfinite(angles)]
    half = len(angles) // 2
    apart = b - a
    quarter = half // 2
    blocks = angles.reshape(2, -1) if len(angles) % 4 == 0 else angles.reshape(1, -1)
    if (apart == 1).all() and quarter and np.allclose(blocks[:, :quarter], blocks[:, quarter:], atol=1e-5):
        return " Its pairs are interleaved, its angles are written twice as halves are, in each block."
    if (apart == 1).all() and np.allclose(angles[:half], angles[half:], atol=1e-5):
        return " Its pairs are interleaved, its angles are written twice as halves are ([f, f])."
    if (apart == half).all() and np.allclose(angles[::2], angles[1::2], atol=1e-5):
        return " Its pairs are halves, its angles are repeated as interleaved ones are (f0, f0, f1, f1, …)."
    return ""


def _arranged(channels: np.ndarray, width: int) -> tuple[Layout | None, tuple[int, ...], int, int]:
    """Layout, blocks, first RoPE dimension and number of RoPE dimensions.

    Pairs without rotation may lie between rotated ones: half-split pairs over the whole head of which the
    lowest-frequency pairs do not rotate are one half-split layout, not a block.
    """
    a, b = channels.T
    apart = np.unique(b - a)
    first, last = int(a.min()), int(b.max())
    if len(apart) == 1 and apart[0] == 1 and ((a - first) % 2 == 0).all():
        # Rotation of the last part of a head: the channels after the rotated ones are included, with rate 0.
        end = width if first and (width - first) % 2 == 0 else last + 1
        return "interleaved", (), first, end - first
    if len(apart) == 1:
        half = int(apart[0])
        # Half-split pairs at the start or the end of the head; the first or last ones may have shown no rotation.
        for start in (0, width - 2 * half, first):
            if start <= first and a.max() < start + half and 0 <= start <= width - 2 * half:
                return "halves", (), start, 2 * half
    blocks, channel, partner = [], first, dict(channels.tolist())
    while channel <= last:
        step = partner.get(channel, channel) - channel
        if step <= 0 or any(partner.get(channel + more) != channel + more + step for more in range(step)):
            return None, (), first, last + 1 - first
        blocks.append(step)
        channel += 2 * step
    return "halves", tuple(blocks), first, last + 1 - first
