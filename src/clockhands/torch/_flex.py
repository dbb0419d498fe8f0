"""`score_mod`, a bias for FlexAttention: a function of one score, so that no queries x keys matrix is stored."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from clockhands.encodings.biases import BiasCode, Fire, LogWindow, Window, bias, some_heads
from clockhands.encodings.biases.distances import Batches, QueryKeyPairs, batches_of, reals_of
from clockhands.encodings.biases.values import Values, refuse_distributed, values_of
from clockhands.encodings.positions import Positions
from clockhands.encodings.traces import as_tensor, in_full
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# FlexAttention's own order: score, batch, head, index of the query, index of the key.
ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]

# Diagonals that a table may have where positions are not consecutive: 64 MiB for 16 heads.
_MOST_DIAGONALS = 1 << 20


def score_mod(
    spec: BiasCode,
    queries: Any,
    keys: Any,
    *,
    values: Any = None,
    device: torch.device | str | None = None,
    heads: range | None = None,
) -> ScoreMod:
    """The bias as a ``score_mod`` for `torch.nn.attention.flex_attention.flex_attention`.

    It adds the same numbers as ``bias(spec, queries, keys)``, read from a table with one row per head and one number
    per distance, ``queries + keys - 1`` for consecutive positions. FIRE's network is evaluated score by score. Nothing
    is masked: use FlexAttention's ``block_mask``. With one, compiled, the attention needs no memory of size queries x
    keys; without one, PyTorch's CPU kernel takes all keys as one block, and uncompiled it stores all scores. On a CPU,
    PyTorch compiles FlexAttention from 2.6 on.

    It can be called outside or inside a function that PyTorch compiles. Inside, a bias of the distance has the same
    small table if positions are given as counts; any other bias is a queries x keys matrix in each head.

    Args:
        spec: A bias.
        queries: Integer positions, or a count, which means the positions of the last keys; as for `bias`.
        keys: Positions, or a count.
        values: Learned numbers, as for `bias`; PyTorch values get the gradients that FlexAttention supports.
        device: The device of the attention, if not that of the values.
        heads: A range of heads, as for `bias`, if this attention has only some of them.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    >>> from clockhands.encodings.biases import Alibi
    >>> mod = score_mod(Alibi(heads=2), 1, 4)
    >>> float(mod(torch.tensor(1.0), 0, 0, torch.tensor(0), torch.tensor(2)))
    0.9375
    """
    if not isinstance(spec, BiasCode):
        raise InvalidType(
            f"`score_mod` takes a bias, got {type(spec).__name__} {shown(spec)}.",
            "Biases are Alibi, Buckets and those of clockhands.biases.",
        )
    spec = some_heads(spec, heads)
    refuse_distributed(queries, keys, values)
    if torch.compiler.is_compiling():
        return _inside(spec, queries, keys, values, device)
    at = batches_of(queries, keys)
    if 0 in at.shape:
        raise InvalidValue(
            f"`score_mod` needs queries and keys, got {at.shape[0]} queries and {at.shape[1]} keys.",
            "Give at least one query and one key.",
        )
    learned = _learned(spec, values, device)
    with in_full(next(iter(learned.arrays.values()), None)):
        if isinstance(spec, Window | LogWindow):
            return _in_plane(spec, at, learned)
        if spec.reads == "key":
            return _by_key(spec, at, learned)
        if isinstance(spec, Fire):
            return _by_network(spec, at, learned)
        return _by_distance(spec, at, learned)


def _inside(spec: BiasCode, queries: Any, keys: Any, values: Any, device: Any) -> ScoreMod:
    """`score_mod` inside PyTorch's compiler, where counts may be symbolic and positions are tensors of the graph."""
    given = values if isinstance(values, dict) else {"": values}
    places = [each.device for each in (queries, keys, *given.values()) if isinstance(each, torch.Tensor)]
    place = device if device is not None or not places else places[0]
    if isinstance(queries, int) and isinstance(keys, int) and spec.reads == "distance":
        # The distances of the last query from key 0 on, then those of the first keys from the query after the key: an
        # index below 0 counts from the end. No number is captured, which may be symbolic: PyTorch 2.5 refuses it.
        parts = (torch.arange(keys - queries, -queries, -1), torch.arange(keys - 1, keys - queries, -1))
        line = torch.cat(parts).to(place)
        table = _stored(bias(spec, line, torch.zeros_like(line[:1]), values=values)[:, :, 0])

        def add(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
            return score + table[head, key - query]

        return add
    matrix = bias(spec, queries, as_tensor(keys, place), values=values)
    entry = _entries(_stored(matrix[None] if matrix.dim() == 3 else matrix))

    def add_from_matrix(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score + entry(batch, head, query, key)

    return add_from_matrix


def _entries(table: torch.Tensor) -> Callable[..., Any]:
    """The entries of a table [sequences, ...] by tensors of indices; a table of one sequence is that of every batch.

    In PyTorch 2.5 no index of `score_mod` may be a number.
    """
    if table.shape[0] != 1:
        return lambda batch, *index: table[(batch, *index)]
    single = table[0]
    return lambda _batch, *index: single[index]


def _stored(table: torch.Tensor) -> torch.Tensor:
    """The same numbers in new memory: PyTorch's attention on the CPU refuses tensors that it would compute itself."""
    table = table.contiguous()
    return table.as_strided(table.shape, table.stride())


def _learned(spec: BiasCode, values: Any, device: Any) -> Values:
    """Learned numbers as tensors; where there are none, the library that tables are to be made in."""
    given = values_of(type(spec).__name__, values, spec.shapes)
    if given.in_numpy:
        wrong = spec.refuse(given.arrays)
        if wrong:
            raise InvalidValue(
                wrong, "Clamp the learned values before you pass them; implementations clamp them before each use."
            )
        return Values(np, given.arrays, "float64", device)
    if not all(isinstance(array, torch.Tensor) for array in given.arrays.values()):
        raise InvalidType(
            "`values` must be PyTorch or NumPy arrays here, got arrays of another library.", "Convert them first."
        )
    return given


def _tensor(numbers: Any, values: Values) -> torch.Tensor:
    """Numbers as a tensor to look up in: float32 unless the values are float64 tensors."""
    if isinstance(numbers, torch.Tensor):
        return numbers
    array = np.ascontiguousarray(numbers, np.float32 if numbers.dtype == np.float64 else None)
    return torch.from_numpy(array).to(device=values.device)


def _by_key(spec: BiasCode, at: Batches, values: Values) -> ScoreMod:
    entry = _entries(_tensor(np.stack([spec.numbers(grid.columns(), values) for grid in at.grids()]), values))

    def add(score: Any, batch: Any, head: Any, _query: Any, key: Any) -> Any:
        return score + entry(batch, head, key)

    return add


def _by_distance(spec: BiasCode, at: Batches, values: Values) -> ScoreMod:
    pairs, diagonal = _diagonals(at, values)
    table = _tensor(spec.numbers(pairs, values), values)

    def add(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score + table[head, diagonal(batch, query, key)]

    return add


def _by_network(spec: Fire, at: Batches, values: Values) -> ScoreMod:
    pairs, diagonal = _diagonals(at, values)
    above = _tensor(spec.numerator(pairs.distances.past, values), values)
    places = [reals_of(grid.queries.sizes(0, grid.queries.size)) for grid in at.grids()]
    below = _entries(_tensor(spec.denominator(np.stack(places), values), values))
    w1, b1, w2, b2 = (_tensor(values.arrays[name], values) for name in ("w1", "b1", "w2", "b2"))
    out = w2.reshape(-1)

    def add(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        share = above[diagonal(batch, query, key)] / below(batch, query)
        number = b2[head]
        for channel in range(spec.hidden):
            number = number + out[head * spec.hidden + channel] * torch.relu(w1[channel, 0] * share + b1[channel])
        return score + number

    return add


def _in_plane(spec: Window | LogWindow, at: Batches, values: Values) -> ScoreMod:
    table = _tensor(spec.table(values), values)
    sides = []
    for side in ("queries", "keys"):
        sizes = [(each := getattr(grid, side)).sizes(0, each.size) for grid in at.grids()]
        outside = np.stack([size.whole < np.uint64(spec.first_token) for size in sizes])
        places = np.stack([spec.places(size) for size in sizes])
        sides += [_entries(_tensor(each, values)) for each in (np.where(outside, 0, places), outside)]
    query_place, query_outside, key_place, key_outside = sides
    half, last = spec.differences // 2, spec.rows - 1

    def add(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        row = query_place(batch, query) - key_place(batch, key) + half
        if spec.first_token:
            from_class, to_class = query_outside(batch, query), key_outside(batch, key)
            row = torch.where(from_class, last - 2, torch.where(to_class, last - 1, row))
            row = torch.where(from_class & to_class, last, row)
        return score + table[row, head]

    return add


def _diagonals(at: Batches, values: Values) -> tuple[QueryKeyPairs, Callable[[Any, Any, Any], Any]]:
    """One pair for each occurring distance, and a function that gives the index of a query's and key's distance."""
    grids = list(at.grids())
    if not at.several and grids[0].even:
        last = at.shape[0] - 1
        return grids[0].diagonals(), lambda _batch, query, key: key - query + last
    queries, keys, first, count = _offsets(at)
    place, other = (_entries(_tensor(side, values)) for side in (queries, keys))
    # Each distance as that of a query there from a key at 0.
    line, zero = Positions((count,), start=first), Positions((1,))

    def diagonal(batch: Any, query: Any, key: Any) -> Any:
        return place(batch, query) - other(batch, key)

    return QueryKeyPairs(line.sizes(0, count), zero.sizes(0, 1), zero.sizes(0, 1)), diagonal


def _offsets(at: Batches) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Numbers for queries and keys whose difference counts distances, the first distance, and how many there are."""
    queries, keys = _whole(at.queries), _whole(at.keys)
    start, end = min(queries), max(keys)
    first, count = start - end, max(queries) - min(keys) - (start - end) + 1
    if count > max(_MOST_DIAGONALS, 4 * sum(at.shape)) or abs(first) + count > 2**63:
        raise InvalidValue(
            f"These positions have {count} distances, from {first} on, too many for the table that `score_mod` makes.",
            "Use positions that are closer together, or bias(spec, queries, keys).",
        )
    sides = []
    for side, begin, length in ((queries, start, at.shape[0]), (keys, end, at.shape[1])):
        numbers = np.array([each - begin for each in side], np.int64).reshape(-1, length)
        sides.append(np.broadcast_to(numbers, (*(at.batch or (1,)), length)).copy())
    return sides[0], sides[1], first, count


def _whole(at: Positions) -> list[int]:
    elements = [at.element(index) for index in range(at.size)]
    for element in elements:
        if not isinstance(element, int):
            raise InvalidValue(
                f"`score_mod` looks up distances in a table, so positions must be whole numbers, got {element}.",
                "For fractional positions, use bias(spec, queries, keys).",
            )
    return [int(element) for element in elements]
