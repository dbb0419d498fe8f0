"""Positions at which position encodings are told apart: of functions, of modules and of running models."""

import numpy as np

# Beside those after which a list of consecutive positions ends: neighbours of powers of two, and odd ones between them.
_SPREAD = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 257, 259, 401, 511, 512, 1001, 1024, 2048, 2049),
    *(2051, 4095, 4096, 4097, 7001, 8191, 8192, 16384, 30011, 32768, 65536, 99991, 131071),
)


def probe_positions(length: int, count: int = 40) -> np.ndarray:
    """``count`` sorted positions below a length that tell encodings apart; all positions of a shorter length.

    The first ones are consecutive, because the frequency of a pair follows from neighbouring positions alone without
    ambiguity, by whatever number of rotations later ones differ. Far ones tell slow pairs, scalings and other bases
    apart, since a difference of frequencies is multiplied by the position. Odd positions above 256 and 2,048 are not
    represented in bfloat16 and float16, so a rounded position gives another number there; powers of two are represented
    in every dtype, so only frequencies and phases can be rounded there. The last position has the largest phase.

    Libraries that compile do so for each number of rows, so the number is the same for every length above it.

    >>> probe_positions(1000, 24).tolist()[-6:]
    [257, 259, 401, 511, 512, 999]
    """
    last = range(max(length - 1, 0), length)
    found = np.array([*(place for place in _SPREAD if place < length - 1), *last], np.int64)
    first = np.arange(min(length, count))
    first = np.delete(first, found[found < len(first)])
    return np.sort(np.concatenate([found, first[: max(count - len(found), 0)]]))
