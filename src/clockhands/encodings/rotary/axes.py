"""RoPE with several axes: which dimension pair is rotated by which coordinate of a token.

A rotary code for images, video or mixed sequences assigns every pair to one axis (time, row, column). Every published
arrangement is a list with the axis of each pair. The functions here make the usual lists, and the positions of a grid.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import positions_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_MOST = 1 << 20  # pairs; far more than any head has


def chunked(sections: Sequence[int]) -> tuple[int, ...]:
    """Axis 0 gets the first ``sections[0]`` pairs, axis 1 the next, and so on (M-RoPE; most axial codes).

    Raises:
        InvalidValue, InvalidType: A section is not a whole number, or below 0.

    Source: Wang et al. 2024, Qwen2-VL, arXiv:2409.12191, section 2.1; Transformers ``mrope_section``.

    >>> chunked([1, 2, 1])
    (0, 1, 1, 2)
    """
    return tuple(axis for axis, pairs in enumerate(_sections(sections)) for _ in range(pairs))


def interleaved(sections: Sequence[int], pairs: int | None = None) -> tuple[int, ...]:
    """Pairs alternate between the axes, 0 1 2 0 1 2 …; when an axis has all its pairs, axis 0 gets its places.

    Axis ``a > 0`` owns the pairs ``a, a + n, a + 2 n, …`` up to its section's number, axis 0 all the rest.

    Args:
        sections: Number of pairs of each axis, which must fit.
        pairs: Number of pairs of a head. If given, sections are read as by code that assigns slices (Transformers,
            torchtitan): they need not add up to ``pairs``, and an axis whose section is too long gets fewer.

    Raises:
        InvalidValue: Without ``pairs``: the pairs do not leave room for a section at that stride.

    Source: Qwen3-VL; Transformers 5.23.0, ``Qwen3VLTextRotaryEmbedding.recomposition_frequencies``; torchtitan's
    ``MRoPE``.

    >>> interleaved([3, 1, 1]), interleaved([2, 1, 1], pairs=6)
    ((0, 1, 2, 0, 0), (0, 1, 2, 0, 0, 0))
    """
    sizes = _sections(sections)
    total = sum(sizes) if pairs is None else _total(pairs)
    axes, stride = [0] * total, len(sizes)
    for axis, size in enumerate(sizes[1:], start=1):
        places = range(axis, axis + stride * size, stride)
        if pairs is None and size and places[-1] >= total:
            raise InvalidValue(
                f"Axis {axis} cannot have {size} of the {total} pairs: interleaved, it can have one in {stride}.",
                f"Give it at most {len(range(axis, total, stride))}, and axis 0 the rest; or use chunked sections. "
                f"interleaved({shown(sections)}, pairs={total}) reads them as Transformers does, "
                f"imrope({shown(sections)}) as llama.cpp.",
            )
        for place in places:
            if place < total:
                axes[place] = axis
    return tuple(axes)


def imrope(sections: Sequence[int], pairs: int | None = None) -> tuple[int, ...]:
    """Interleaved sections as in llama.cpp (``GGML_ROPE_TYPE_IMROPE``; a GGUF file has a fourth section, 0).

    With ``s`` the pair modulo the sum of all sections, axis ``a < 3`` owns the pairs with ``s mod 3 = a`` and
    ``s < 3 sections[a]``; all others are on axis 3. Transformers assigns these to axis 0, see `interleaved`. With
    Qwen3-VL's 24, 20 and 20 pairs, pairs 61 and 62 are on axis 3, where the position of text is 0: a text token is at
    (p, p, p, 0).

    Args:
        sections: Three or four numbers, ``rope.dimension_sections`` in GGUF.
        pairs: Number of pairs of a head; the sum of the sections by default.

    Raises:
        InvalidValue, InvalidType: These are not three or four whole numbers of at least 0 that are not all 0.

    Source: ggml, ggml-cpu/ops.cpp, ``ggml_mrope_cache_init``; llama.cpp, llama-graph.cpp, ``llm_graph_input_pos``.

    >>> imrope([4, 2, 2, 0])
    (0, 1, 2, 0, 1, 2, 0, 3)
    """
    sizes = _sections(sections)
    if len(sizes) not in (3, 4):
        raise InvalidValue(f"`sections` must be three or four numbers, got {len(sizes)}.", "Write [24, 20, 20, 0].")
    whole = sum(sizes)
    places = (pair % whole for pair in range(whole if pairs is None else _total(pairs)))
    return tuple(place % 3 if place < 3 * sizes[place % 3] else 3 for place in places)


def alternating(pairs: int, axes: int) -> tuple[int, ...]:
    """Pair ``i`` belongs to axis ``i mod axes``: each axis gets high and low frequencies (Pixtral, NeoMME).

    Raises:
        InvalidValue: A number is not positive.

    >>> alternating(4, axes=2)
    (0, 1, 0, 1)
    """
    axes = count("axes", axes)
    return tuple(pair % axes for pair in range(count("pairs", pairs)))


def grid(*sizes: int | Sequence[float]) -> np.ndarray:
    """The positions of a grid's cells in row-major order: [cells, axes], the last axis varies fastest.

    Args:
        sizes: For each axis the number of cells (positions 0, 1, 2, …) or a list of its positions.

    Raises:
        InvalidValue, InvalidType: There is no axis, or one is neither a number of cells nor a list of positions; or no
            single integer or float64 array can represent all positions exactly.
        TooLarge: The positions would not fit in memory.

    >>> grid(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if not sizes:
        raise InvalidValue("A grid needs at least one axis, got none.", "Write grid(rows, columns).")
    lines = [_line(size) for size in sizes]
    cells = math.prod(line.stop if isinstance(line, range) else len(line) for line in lines)
    refuse_larger((cells, len(lines)), 16, "A grid", "Ask for fewer cells at once.")
    dtype = np.result_type(*(_dtype(line) for line in lines))
    steps = [np.array(line, dtype) for line in lines]
    for line, step in zip(lines, steps, strict=True):
        # Compared as Python numbers: an integer equals a float only if they are the same real number.
        if isinstance(line, list) and (
            wrong := [one for one, other in zip(line, step.tolist(), strict=True) if one != other]
        ):
            raise InvalidValue(
                f"{shown(wrong[0])} would be rounded, because all positions of this grid share the dtype {dtype.name}.",
                "Use clockhands.grids.Grid, which keeps each position exactly.",
            )
    return np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, len(steps))


def _line(size: int | Sequence[float]) -> range | list[float]:
    """The positions of one axis, as Python numbers."""
    if not isinstance(size, Sequence | np.ndarray) or isinstance(size, str) or np.shape(size) == ():
        return range(count("sizes", size, least=0))
    at = positions_of(size, "sizes")
    if len(at.shape) != 1:
        raise InvalidType(
            f"An axis must be a size or a list of positions, got {shown(size)}.", "Write grid(rows, columns)."
        )
    return [at.element(index) for index in range(at.size)]


def _dtype(line: range | list[float]) -> type:
    """The first of the usual dtypes that represents these positions."""
    if isinstance(line, range) or all(isinstance(one, int) and -(2**63) <= one < 2**63 for one in line):
        return np.int64
    return np.uint64 if all(isinstance(one, int) and one >= 0 for one in line) else np.float64


def _total(pairs: int) -> int:
    """The number of all pairs."""
    total = count("pairs", pairs)
    if total > _MOST:
        raise InvalidValue(
            f"`pairs` must be at most {_MOST}, got {shown(pairs)}.", "It is half of the RoPE dimensions."
        )
    return total


def _sections(sections: Sequence[int]) -> list[int]:
    if isinstance(sections, str) or not isinstance(sections, Sequence):
        raise InvalidType(
            f"`sections` must be a list with the number of pairs of each axis, got {shown(sections)}.",
            "Write [16, 24, 24].",
        )
    sizes = [count("sections", pairs, least=0) for pairs in itertools.islice(sections, _MOST + 1)]
    if len(sizes) > _MOST or sum(sizes) > _MOST:
        raise InvalidValue(f"`sections` must hold at most {_MOST} pairs, got {shown(sections)}.", "Write [16, 24, 24].")
    if not sum(sizes):
        raise InvalidValue("`sections` must hold at least one pair.", "Write the number of pairs of each axis.")
    return sizes
