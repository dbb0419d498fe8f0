"""Several axes: which pair of a head is turned by which coordinate of a token.

A rotary code of images, video or mixed sequences gives every pair to one axis (time, row, column). All
published arrangements are one list, the axis of each pair; here are the functions that write the usual ones,
and the positions of a grid.
"""

from collections.abc import Sequence

import numpy as np

from clockhands.arguments import count, shown
from clockhands.errors import InvalidType, InvalidValue


def chunked(sections: Sequence[int]) -> tuple[int, ...]:
    """Axis 0 gets the first ``sections[0]`` pairs, axis 1 the next, and so on (M-RoPE; most axial codes).

    Raises:
        InvalidValue, InvalidType: A section is not a whole number, or below 0.

    Source: Wang et al. 2024, Qwen2-VL, arXiv:2409.12191, section 2.1; Transformers ``mrope_section``.

    >>> chunked([1, 2, 1])
    (0, 1, 1, 2)
    """
    return tuple(axis for axis, pairs in enumerate(_sections(sections)) for _ in range(pairs))


def interleaved(sections: Sequence[int]) -> tuple[int, ...]:
    """Pairs go round the axes, 0 1 2 0 1 2 …; an axis that has had its section leaves its places to axis 0.

    Axis ``a > 0`` owns the pairs ``a, a + n, a + 2 n, …`` up to its section's number, axis 0 all the rest.

    Raises:
        InvalidValue: The pairs do not leave room for a section at that stride.

    Source: Qwen3-VL; Transformers 5.23.0, ``Qwen3VLTextRotaryEmbedding.apply_interleaved_mrope``.

    >>> interleaved([3, 1, 1])
    (0, 1, 2, 0, 0)
    """
    sizes = _sections(sections)
    axes, stride = [0] * sum(sizes), len(sizes)
    for axis, pairs in enumerate(sizes[1:], start=1):
        places = range(axis, axis + stride * pairs, stride)
        if pairs and places[-1] >= len(axes):
            raise InvalidValue(
                f"Axis {axis} cannot own {pairs} of {len(axes)} pairs, one in {stride}.",
                f"At most {len(range(axis, len(axes), stride))} fit; give the rest to axis 0, or use chunked sections.",
            )
        for place in places:
            axes[place] = axis
    return tuple(axes)


def alternating(pairs: int, axes: int) -> tuple[int, ...]:
    """Pair ``i`` belongs to axis ``i mod axes``: each axis gets its share of fast and slow hands (Pixtral, NeoMME).

    Raises:
        InvalidValue: A number is not positive.

    >>> alternating(4, axes=2)
    (0, 1, 0, 1)
    """
    axes = count("axes", axes)
    return tuple(pair % axes for pair in range(count("pairs", pairs)))


def grid(*sizes: int | Sequence[float]) -> np.ndarray:
    """The positions of a grid's cells, row by row: [cells, axes], the last axis running fastest.

    Args:
        sizes: For each axis the number of cells (positions 0, 1, 2, …) or its positions one by one.

    Raises:
        InvalidValue, InvalidType: No axis, or one that is neither a number of cells nor a list of positions.

    >>> grid(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if not sizes:
        raise InvalidValue("A grid needs at least one axis, got none.", "Write grid(rows, columns).")
    steps = [np.asarray(size) if np.ndim(size) else np.arange(count("sizes", size, least=0)) for size in sizes]
    for step in steps:
        if step.ndim != 1 or step.dtype.kind not in "iuf":
            raise InvalidType(f"An axis must be a list of positions, got {shown(step)}.", "Write grid(rows, columns).")
    return np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(steps))


def _sections(sections: Sequence[int]) -> list[int]:
    if isinstance(sections, str) or not isinstance(sections, Sequence):
        raise InvalidType(
            f"`sections` must be a list of pairs for each axis, got {shown(sections)}.", "Write [16, 24, 24]."
        )
    sizes = [count("sections", pairs, least=0) for pairs in sections]
    if not sum(sizes):
        raise InvalidValue("`sections` must hold at least one pair.", "Write the number of pairs of each axis.")
    return sizes
