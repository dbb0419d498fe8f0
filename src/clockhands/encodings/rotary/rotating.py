"""Rotate queries and keys by their positions, in the array library of the input.

Cosine and sine are computed from exact phases in float32 (float64 for a float64 query). The products are computed in
that precision too and rounded once, to the dtype of the query.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings import traces
from clockhands.encodings.dtypes import NAMES, float_of, name_of
from clockhands.encodings.grids import at_origin
from clockhands.encodings.phases import FINE, fill, units
from clockhands.encodings.positions import Positions, positions_of, refuse_no_array, refuse_not_dense
from clockhands.encodings.rotary._arguments import (
    OF_TEXT,
    are_coordinates,
    check_lengths,
    check_role,
    check_shape,
    check_spec,
    check_unread,
    checked,
    given_positions,
    heads_of,
)
from clockhands.encodings.rotary._cosines import CosSin, parts_of
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.rotary._ways import (
    converted,
    first_step,
    in_one_kernel,
    phases_in_one_kernel,
    placed,
    rotated_by_library,
    step,
)
from clockhands.encodings.rotary.limiting import first_beyond
from clockhands.encodings.sharding import RankPart, is_sharded, local_of, refuse_unsummed, wrapped
from clockhands.encodings.traces import is_traced
from clockhands.errors import InvalidType, InvalidValue

# The logarithm of the largest number minus a margin: 3.7 in float32, for pairs with a norm up to 40, and 1 in float16,
# for a norm up to 2.7. A larger margin there would exclude the 4,096 tokens that published code uses.
_LARGEST_EXPONENT = 85.0
_EXPONENTS = {"float16": 10.1}

_NUMPY = (np.ndarray, np.generic)

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


# The cosine and sine of sequences from position 0 are cached on the spec for lengths above the first number and up to
# the second: shorter ones are fast to compute, and longer ones would keep more than 16 MB at 64 pairs.
_REMEMBERED = (2 * FINE, 1 << 15)


def rotate(
    x: Any,
    spec: Rotary,
    positions: Any = None,
    seq_axis: int = -2,
    *,
    role: str | None = None,
    cos_sin: CosSin | None = None,
) -> Any:
    """Queries or keys rotated by their positions, in the library, dtype and device of ``x``.

    ``(x, y) -> f (x cos(p r) - y sin(p r), x sin(p r) + y cos(p r))`` for each pair of rate ``r`` at position ``p``,
    with ``f`` the attention factor. Channels that are not RoPE dimensions are copied bit for bit. ``x`` is not changed.
    The gradient is the gradient of the output, rotated back.

    Args:
        x: [..., seq, head_width], or with ``seq`` at ``seq_axis``: a NumPy, PyTorch or JAX array, or one of another
            array-API library.
        spec: A rotary code of that head width.
        positions: [seq], or [batch, seq] where ``batch`` is axis 0 of ``x`` (or 1); with one more axis, the
            coordinates, for codes of several axes. There an axis of size 1 holds one coordinate for all axes: the
            tokens of a text in a model with M-RoPE are at ``positions[..., None]``; and a code of three axes takes four
            coordinates as in llama.cpp, of which the fourth is 0. None is 0 to seq - 1. Integers on a
            GPU stay there without a synchronisation, also in a CUDA graph that is captured after a first call. Real
            positions on a GPU, and all positions of float64 queries, are copied to the CPU, which synchronises.
        seq_axis: The sequence axis of ``x``.
        role: ``"query"`` or ``"key"``: required where the code treats them differently (xPos), refused elsewhere.
        cos_sin: The result of `clockhands.rotary.cos_sin` for these positions, instead of ``positions``: the output is
            the same bit for bit, and no phase is computed. Compute it once per step and pass it to every layer.

    Accuracy: cosine and sine correctly rounded to float32 at every position up to 2**63 (within 2**-22 where the
    phases are computed on a GPU or inside a trace), two products and a sum in float32, one rounding to ``x``'s dtype:
    within 2**-22 of the largest channel for float32; on a GPU or inside a trace 3 x 2**-22.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2.

    >>> rotate(np.eye(2), Rotary(head_width=2, base=100.0), [0, 1]).round(4).tolist()
    [[1.0, 0.0], [-0.8415, 0.5403]]
    """
    if cos_sin is None or positions is None:
        again = step(spec, (x,), positions, seq_axis, (role,), (cos_sin,))
        if again is not None:
            return again[0]
    shape, kind, axis = heads_of(x, spec, seq_axis, "rotate")
    check_role(spec, role)
    if is_sharded(x, positions, getattr(cos_sin, "cosine", None)):
        return _on_this_rank(x, spec, positions, axis, role, cos_sin)
    if cos_sin is not None:
        parts = parts_of(cos_sin, x, spec, positions, role, axis)
        made = in_one_kernel(spec, parts, [x], [axis])
        return _applied(x, spec, parts, axis, (None, seq_axis, role, cos_sin)) if made is None else made[0]
    given, positions = positions, given_positions(positions, spec, x, axis)
    _check_length_known(spec, positions)
    made = in_one_kernel(spec, positions, [x], [axis])
    if made is not None:
        return made[0]
    at = positions if _stay(positions, kind) else checked(at_origin(positions), spec, shape, axis)
    return _applied(x, spec, _cosine_and_sine(spec, at, kind, role), axis, (given, seq_axis, role, None))


def rotate_both(
    queries: Any,
    keys: Any,
    spec: Rotary,
    positions: Any = None,
    seq_axis: int = -2,
    *,
    cos_sin: CosSin | tuple[CosSin, CosSin] | None = None,
) -> tuple[Any, Any]:
    """Queries and keys at the same positions, both rotated (with xPos, each in its role).

    The same result as two calls of `rotate`, in less time: positions are checked, and cosine and sine computed, once.

    Args:
        queries: [..., seq, head_width], or with ``seq`` at ``seq_axis``.
        keys: The same shape with any number of heads, in the library of the queries.
        spec: A rotary code of that head width.
        positions: As in `rotate`; None only if there are as many queries as keys.
        seq_axis: The sequence axis.
        cos_sin: The result of `clockhands.rotary.cos_sin`, instead of ``positions``; or a tuple of two, for queries and
            for keys: needed with xPos (one per role) and where queries and keys are at different positions.

    Accuracy: as `rotate`.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; or the numbers of queries and keys differ and the
            positions of the queries are not given.

    >>> rotated, kept = rotate_both(np.eye(2), np.eye(2), Rotary(head_width=2, base=100.0), [1, 0])
    >>> rotated.round(4).tolist(), kept.round(4).tolist()
    ([[0.5403, 0.8415], [0.0, 1.0]], [[0.5403, 0.8415], [0.0, 1.0]])
    """
    roles: tuple[str | None, str | None] = (None, None)
    if isinstance(spec, Rotary) and spec.xpos is not None:
        roles = ("query", "key")
    pairs = cos_sin if isinstance(cos_sin, tuple) and len(cos_sin) == 2 else (cos_sin, cos_sin)
    if cos_sin is None or (positions is None and None not in pairs):
        again = step(spec, (queries, keys), positions, seq_axis, roles, pairs)
        if again is not None:
            return again[0], again[1]
    shape, kind, axis = heads_of(queries, spec, seq_axis, "rotate_both", "queries")
    shape_of_keys, kind_of_keys, axis_of_keys = heads_of(keys, spec, seq_axis, "rotate_both", "keys")
    if cos_sin is None:
        check_lengths(shape, axis, shape_of_keys, axis_of_keys)
    if is_sharded(queries, keys, positions, *(getattr(pair, "cosine", None) for pair in pairs)):
        return (
            _on_this_rank(queries, spec, positions, axis, roles[0], pairs[0], "queries"),
            _on_this_rank(keys, spec, positions, axis_of_keys, roles[1], pairs[1], "keys"),
        )
    if cos_sin is not None:
        theirs = parts_of(pairs[0], queries, spec, positions, roles[0], axis, "queries")
        others = parts_of(pairs[1], keys, spec, positions, roles[1], axis_of_keys, "keys")
        if pairs[0] is pairs[1]:
            made = in_one_kernel(spec, theirs, [queries, keys], [axis, axis_of_keys])
            if made is not None:
                return made[0], made[1]
        return (
            _applied(queries, spec, theirs, axis, (None, seq_axis, roles[0], pairs[0])),
            _applied(keys, spec, others, axis_of_keys, (None, seq_axis, roles[1], pairs[1])),
        )
    given, positions = positions, given_positions(positions, spec, queries, axis)
    _check_length_known(spec, positions)
    made = in_one_kernel(spec, positions, [queries, keys], [axis, axis_of_keys])
    if made is not None:
        return made[0], made[1]
    if _stay(positions, kind) and _stay(positions, kind_of_keys):
        at = given_positions(positions, spec, keys, axis_of_keys)
    else:
        at = checked(at_origin(positions), spec, shape, axis)
        checked(at, spec, shape_of_keys, axis_of_keys)
    turns = _cosine_and_sine(spec, at, kind, roles[0])
    turned_queries = _applied(queries, spec, turns, axis, (given, seq_axis, roles[0], None))
    if roles[1] is not None or kind_of_keys != kind:
        turns = _cosine_and_sine(spec, at, kind_of_keys, roles[1])
    return turned_queries, _applied(keys, spec, turns, axis_of_keys, (given, seq_axis, roles[1], None))


def cos_sin(spec: Rotary, positions: Any, like: Any, *, role: str | None = None) -> CosSin:
    """Cosine and sine of every dimension pair at these positions, computed once per step and used in every layer.

    ``rotate(x, spec, cos_sin=pair)`` equals ``rotate(x, spec, positions)`` bit for bit, without computing phases again
    and without copying positions from a GPU in each layer.

    Args:
        spec: A rotary code.
        positions: As in `rotate`, [seq] or [batch, seq]; with one more axis, the coordinates, for codes of several
            axes; or a count n for 0 to n - 1.
        like: A float array, such as the queries or hidden states. The result has its library and device, and is
            float64 if ``like`` is, else float32. Its shape does not matter.
        role: ``"query"`` or ``"key"``: required for xPos, which needs a pair for each; refused elsewhere.

    Returns:
        A `clockhands.rotary.CosSin` with ``cosine`` and ``sine``, [*positions, pairs] each (without the axis of the
        coordinates).

    Accuracy: as `rotate`: correctly rounded at positions that are known, within 2**-22 on a GPU or inside a trace.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    >>> spec, heads = Rotary(head_width=2, base=100.0), np.eye(2)
    >>> pair = cos_sin(spec, [0, 1], like=heads)
    >>> rotate(heads, spec, cos_sin=pair).round(4).tolist()
    [[1.0, 0.0], [-0.8415, 0.5403]]
    """
    check_spec(spec, "cos_sin")
    refuse_no_array(like, "like", "Give the queries, or the tokens.")
    traces.refuse_recording(like)
    kind = float_of(like, "like", "Give the queries, or the tokens.")
    check_role(spec, role)
    if is_sharded(positions):
        refuse_unsummed(positions, "positions", last=spec.axes is not None)
        made = cos_sin(spec, local_of(positions), like, role=role)
        shape = (*(positions.shape if spec.axes is None else positions.shape[:-1]), spec.rotated // 2)
        cosine, sine = (wrapped(part, shape, positions) for part in made)
        return replace(made, cosine=cosine, sine=sine)
    if isinstance(positions, int):  # a count, which may be symbolic while compiling
        positions = traces.as_traced(positions, like)
    else:
        positions = traces.beside(positions, like, "positions", "like")
    at = positions if _stay(positions, kind) else at_origin(positions)
    body = tuple(at.shape)
    if spec.axes is not None and body and are_coordinates(body[-1], spec):
        body = body[:-1]
    elif spec.axes is not None:
        body = ()
    if len(body) not in (1, 2):
        tail = "" if spec.axes is None else f", {spec.number_of_axes}"
        hint = "Give one position for each token." if not tail else f"Give one coordinate for each axis. {OF_TEXT}."
        raise InvalidValue(
            f"`positions` must be of shape [seq{tail}] or [batch, seq{tail}], got {list(at.shape)}.",
            hint,
        )
    cosine, sine = (placed(part, like) for part in _cosine_and_sine(spec, at, kind, role))
    return CosSin(cosine, sine, spec, role, kind)


def as_cos_sin(spec: Rotary, cosine: Any, sine: Any, like: Any = None, *, role: str | None = None) -> CosSin:
    """A table of your own, cosines and sines from anywhere, as the ``cos_sin`` of `rotate` and `rotate_both`.

    The numbers are used as they are: neither the positions nor the rates of ``spec`` matter, only its layout and its
    RoPE dimensions. An attention factor is expected in them, and a negative sine where the code rotates backward.

    Args:
        spec: A rotary code.
        cosine: [seq, pairs] or [batch, seq, pairs]; or full-width, [..., rotated], where both channels of a pair have
            the same number in the layout of ``spec``, as Transformers returns them. Float64, float32, float16 or
            bfloat16, of the library of ``like`` or of NumPy.
        sine: The sines of the same angles.
        like: A float array, such as the queries: the result has its library and device, and is float64 if ``like`` is,
            else float32. By default the cosines themselves.
        role: As in `cos_sin`.

    Returns:
        A `CosSin` with a copy of these numbers; gradients do not reach them.

    Accuracy: float16 and bfloat16 are converted exactly, and what they lost stays lost: a bfloat16 cosine is off by up
    to 2**-9. Full-width numbers are compared, which synchronises on a GPU; a width of pairs needs no comparison.

    Raises:
        InvalidValue: The shape is not one of these, or the channels of a pair differ.
        InvalidType: They are not float arrays, or of another library.

    >>> spec, heads, angles = Rotary(head_width=4), np.ones((3, 4)), np.arange(3)[:, None] * np.array([1.0, 0.01])
    >>> angles = np.concatenate((angles, angles), axis=-1)
    >>> pair = as_cos_sin(spec, np.cos(angles), np.sin(angles), like=heads)
    >>> bool(np.allclose(rotate(heads, spec, cos_sin=pair), rotate(heads, spec)))
    True
    """
    check_spec(spec, "as_cos_sin")
    check_role(spec, role)
    like = cosine if like is None else like
    parts = [_as_given(spec, part, like, name) for part, name in ((cosine, "cosine"), (sine, "sine"))]
    if tuple(parts[0].shape) != tuple(parts[1].shape):
        raise InvalidValue(
            f"`cosine` and `sine` must have the same shape, got {list(cosine.shape)} and {list(sine.shape)}.",
            "Give the cosine and the sine of the same angles.",
        )
    return CosSin(parts[0], parts[1], spec, role, name_of(like))


def _as_given(spec: Rotary, part: Any, like: Any, name: str) -> Any:
    """A copy of a user's cosines or sines, one for each pair."""
    for array, called in ((part, name), (like, "like")):
        refuse_not_dense(array, called)
        if not hasattr(array, "shape") or not hasattr(array, "dtype") or name_of(array) not in NAMES:
            kind = name_of(array) if hasattr(array, "dtype") else type(array).__name__
            raise InvalidType(f"`{called}` must be an array of floats, got {kind}.", f"Give one of {', '.join(NAMES)}.")
    theirs, ours, pairs = traces.library_of(part), traces.library_of(like), spec.rotated // 2
    if theirs not in (ours, "numpy"):
        raise InvalidType(
            f"`{name}` is an array of {theirs}, but `like` is an array of {ours}.", "Convert one of them."
        )
    shape = tuple(part.shape)
    if len(shape) not in (2, 3) or shape[-1] not in (pairs, 2 * pairs):
        raise InvalidValue(
            f"`{name}` must be of shape [seq, {pairs}], [seq, {2 * pairs}] or one of these after a batch, got "
            f"{list(shape)}.",
            "Give a number for each pair, or for each RoPE dimension; leave out an axis of heads.",
        )
    if shape[-1] == 2 * pairs:
        part = _of_pairs(spec, part, name)
    work = "float64" if name_of(like) == "float64" else "float32"
    if isinstance(part, _NUMPY):
        return placed(np.array(part, work), like)
    return converted(part, like, work)


def _of_pairs(spec: Rotary, full: Any, name: str) -> Any:
    """The number of each pair, from one for each RoPE dimension."""
    channels = np.array(traces.known_numbers(spec, "channels")) - spec.start
    xp = np if isinstance(full, _NUMPY) else traces.library(full)
    both = (channels[:, member].astype(np.int64) for member in (0, 1))
    first, second = (xp.take(full, one if xp is np else traces.constant(one, full), axis=-1) for one in both)
    if not is_traced(full) and not bool(xp.all(first == second)):
        raise InvalidValue(
            f"The two channels of a pair have different numbers in `{name}`, which is not in the layout "
            f"{spec.layout} of `spec`.",
            f'Use layout="{"interleaved" if spec.layout == "halves" else "halves"}" if the weights have it too; else '
            f"give one number for each pair.",
        )
    return first


def _stay(positions: Any, kind: str) -> bool:
    """Whether phases are computed where the positions are, with enough precision for heads of this dtype.

    On an accelerator phases are float32, so for float64 heads the positions are copied to the CPU.
    """
    return traces.stay(positions) and (kind != "float64" or is_traced(positions))


def _cosine_and_sine(spec: Rotary, at: Any, kind: str, role: str | None) -> tuple[Any, Any]:
    """Cosine and sine at these positions, known or traced, in the precision that heads of this dtype need."""
    _check_length_known(spec, at)
    if isinstance(at, Positions):
        if spec.xpos is not None and kind in _EXPONENTS:
            _check_growth(spec, _distances(at) - spec.xpos.centre, kind)
        return cosine_sine(spec, at, _FLOAT64 if kind == "float64" else _FLOAT32, role)
    return phases_in_one_kernel(spec, at) or _wide(traced_cosine_sine(spec, at, role), kind)


def _check_length_known(spec: Rotary, at: Any) -> None:
    """Refuse positions at which the ladder depends on a length that the code does not have."""
    original = spec.untold
    if original is None or not (isinstance(at, Positions) or traces.stay(at)):
        return
    where = "these positions are not known here"
    if isinstance(at, Positions):
        beyond = first_beyond(at, original)
        if beyond is None:
            return
        where = f"position {beyond:,} is beyond its {original:,} tokens"
    raise InvalidValue(
        f"The frequencies of {type(spec.scaling).__name__} depend on the length of the text, but `spec` has none, and "
        f"{where}.",
        f"Make it with length=…, the number of tokens of the whole text; length={original} is for up to {original}.",
    )


def rerotate(keys: Any, spec: Rotary, from_: Any, to: Any, seq_axis: int = -2) -> Any:
    """Move cached keys from one set of positions to another in a single rotation.

    A key that was rotated for position ``from_`` becomes the key that `rotate` gives at ``to``, within the rounding of
    its dtype. The phase difference is computed exactly, so the keys can be moved by any distance. The attention factor
    is already in the keys and is not applied again.

    Args:
        keys: Rotated keys [..., seq, head_width].
        spec: The rotary code that rotated them.
        from_: Their present positions, [seq] or [batch, seq] (and coordinates).
        to: Their new positions, of the same shape.
        seq_axis: The sequence axis of ``keys``.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
    """
    shape, kind, axis = heads_of(keys, spec, seq_axis, "rerotate")
    if is_sharded(keys, from_, to):
        part = RankPart(keys, axis, "keys")
        mine = [_of_this_rank(part, spec, place, name) for place, name in ((from_, "from_"), (to, "to"))]
        return part.wrapped(rerotate(part.local, spec, mine[0], mine[1], axis))
    if spec.reordered:
        raise InvalidValue(
            "The dimensions of these keys were reordered, so they cannot be rotated again.",
            "Cache keys with reordered=False. If queries also have reordered=False, scores do not change.",
        )
    start, end = (given_positions(place, spec, keys, axis, name) for place, name in ((from_, "from_"), (to, "to")))
    inside = _stay(start, kind), _stay(end, kind)
    start, end = (
        place if traced else checked(at_origin(place, name), spec, shape, axis, name)
        for place, name, traced in ((start, "from_", inside[0]), (end, "to", inside[1]))
    )
    _check_length_known(spec, start)
    _check_length_known(spec, end)
    if any(inside):
        return _applied(keys, spec, _wide(_traced_difference(spec, start, end), kind), axis)
    if start.shape != end.shape:
        raise InvalidValue(
            f"`from_` and `to` must have the same shape, got {list(start.shape)} and {list(end.shape)}.",
            "Give each key a position in `from_` and in `to`.",
        )
    dtype = np.dtype(np.float64 if kind == "float64" else np.float32)
    turn = _units(spec, end) * _units(spec, start).conj()
    if spec.xpos is not None:
        away = _distances(start) - _distances(end)
        _check_growth(spec, away, kind)
        turn = turn * _growth(spec, away)
    return _applied(keys, spec, (turn.real.astype(dtype), turn.imag.astype(dtype)), axis)


def _on_this_rank(  # noqa: PLR0917 - what `rotate` was called with
    x: Any, spec: Rotary, positions: Any, axis: int, role: str | None, pair: Any, name: str = "x"
) -> Any:
    """`rotate` for a DTensor: each rank rotates its local part by the positions of its tokens."""
    part = RankPart(x, axis, name)
    if pair is None:
        mine = _of_this_rank(part, spec, positions)
        return part.wrapped(rotate(part.local, spec, mine, axis, role=role))
    cosine, sine = (
        part.positions(each, each.ndim - 1, "cos_sin") for each in parts_of(pair, x, spec, positions, role, axis, name)
    )
    mine = replace(pair, cosine=cosine, sine=sine)
    return part.wrapped(rotate(part.local, spec, None, axis, role=role, cos_sin=mine))


def _of_this_rank(part: RankPart, spec: Rotary, positions: Any, name: str = "positions") -> Any:
    """The positions of this rank's tokens."""
    given = given_positions(positions, spec, part.whole, part.axis, name)
    if not is_sharded(given) and not traces.stay(given):
        given = at_origin(given, name)
    check_shape(tuple(given.shape), spec, tuple(part.whole.shape), part.axis, name)
    return part.positions(given, len(given.shape) - (spec.axes is not None), name)


def cosine_sine(spec: Rotary, at: Positions, dtype: np.dtype, role: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of every pair times the attention factor and xPos factor, [*positions, pairs] each.

    The sine is negative where the code rotates backward.
    """
    if at.progression and (at.start, at.step) == (0, 1) and _REMEMBERED[0] < at.size <= _REMEMBERED[1]:
        return _remembered(spec, at.size, dtype, role)
    if at.size > _REMEMBERED[0]:
        return _made(spec, at, dtype, role)
    # A decoding step: all layers use the same few positions, one after another.
    key = (at.shape, at.start, at.step, *(None if limb is None else limb.tobytes() for limb in at.limbs))
    held = spec._latest.get((dtype.name, role))
    if held is None or held[0] != key:
        held = key, _made(spec, at, dtype, role)
        spec._latest[dtype.name, role] = held
    return held[1]


def _remembered(spec: Rotary, number: int, dtype: np.dtype, role: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of a table that is cached on the spec and grows by doubling."""
    held = spec._first_rows.get((dtype.name, role))
    if held is None or len(held[0]) < number:
        rows = min(max(number, 0 if held is None else 2 * len(held[0])), _REMEMBERED[1])
        held = _made(spec, positions_of(range(rows)), dtype, role)
        spec._first_rows[dtype.name, role] = held
    return held[0][:number], held[1][:number]


def _made(spec: Rotary, at: Positions, dtype: np.dtype, role: str | None) -> tuple[np.ndarray, np.ndarray]:
    shape = (*(at.shape if spec.axes is None else at.shape[:-1]), spec.rotated // 2)
    cosine, sine = np.empty(shape, dtype), np.empty(shape, dtype)
    factor = spec.attention_factor
    sign = 1 if spec.direction == "forward" else -1
    if spec.axes is None and spec.xpos is None:
        rows = (-1, shape[-1])
        flat_cosine, flat_sine = cosine.reshape(rows), sine.reshape(rows)

        def write(rows: slice, pairs: slice, block: NDArray[np.complexfloating]) -> None:
            if factor != 1:
                block = block * factor
            flat_cosine[rows, pairs] = block.real
            if sign > 0:
                flat_sine[rows, pairs] = block.imag
            else:
                np.negative(block.imag, out=flat_sine[rows, pairs], casting="same_kind")

        fill(write, spec.ladder, at, swapped=False, fine=dtype == np.float64)
        return cosine, sine
    turn = _units(spec, at) * factor
    if spec.xpos is not None:
        away = _distances(at) - spec.xpos.centre
        _check_growth(spec, away, "float32")
        turn = turn * _growth(spec, away if role == "query" else -away)
    cosine[...], sine[...] = turn.real, turn.imag
    return cosine, sine


def traced_cosine_sine(spec: Rotary, positions: Any, role: str | None = None) -> tuple[Any, Any]:
    """`cosine_sine` at traced positions, float32 in their library.

    Accuracy: see `clockhands.encodings.traces`.
    """
    traces.prepare(spec)
    xp = traces.library(positions)
    if spec.axes is None:
        cosine, sine = traces.cosine_sine(spec.ladder, positions, xp)
    else:
        given = positions.shape[-1]
        parts = [
            traces.cosine_sine(ladder, positions[..., axis % given], xp) for axis, ladder in enumerate(spec.ladders)
        ]
        # Concatenated axis by axis, then put into the order of the pairs.
        order = np.argsort(np.argsort(np.array(spec.axes), kind="stable"), kind="stable")
        index = traces.constant(order, positions)
        cosine, sine = (xp.take(xp.concat(list(part), axis=-1), index, axis=-1) for part in zip(*parts, strict=True))
    if spec.attention_factor != 1:
        cosine, sine = cosine * spec.attention_factor, sine * spec.attention_factor
    if spec.xpos is not None:
        away = xp.astype(positions, xp.float32) - spec.xpos.centre
        logarithms = traces.constant(spec.xpos.logarithms(spec.rotated // 2).astype(np.float32), positions)
        growth = xp.exp((away if role == "query" else -away)[..., None] * logarithms)
        cosine, sine = cosine * growth, sine * growth
    return cosine, (sine if spec.direction == "forward" else -sine)


def _units(spec: Rotary, at: Positions) -> NDArray[np.complex128]:
    """``cos + i sin`` of every pair at the coordinate of its axis, conjugated for backward codes."""
    if spec.axes is None:
        turn = units(spec.ladder, at)
    else:
        check_unread(spec, at)
        turn = np.empty((*at.shape[:-1], spec.rotated // 2), np.complex128)
        owners = np.array(spec.axes)
        for axis, ladder in enumerate(spec.ladders):
            turn[..., owners == axis] = units(ladder, at.coordinate(axis % at.shape[-1]))
    return turn if spec.direction == "forward" else turn.conj()


def _distances(at: Positions) -> np.ndarray:
    """Positions as float64, which is precise enough for the decay."""
    return at.as_float64().reshape(at.shape)


def _growth(spec: Rotary, away: np.ndarray) -> np.ndarray:
    """The xPos factor of each pair, ``zeta_j ** (away / scale)``."""
    assert spec.xpos is not None
    return np.exp(away[..., None] * spec.xpos.logarithms(spec.rotated // 2))


def _check_growth(spec: Rotary, away: np.ndarray, kind: str) -> None:
    """Refuse distances from the centre at which heads would leave the range of this dtype."""
    assert spec.xpos is not None
    far = float(np.abs(away).max(initial=0.0))
    if far * float(np.abs(spec.xpos.logarithms(spec.rotated // 2)).max()) > _EXPONENTS.get(kind, _LARGEST_EXPONENT):
        raise InvalidValue(
            f"The xPos factors at {far:g} tokens from the centre exceed the range of "
            f"{'float16' if kind == 'float16' else 'float32'}.",
            "Set XPos(centre=…) near the positions in use, the same for all queries and keys"
            + (", or rotate them in float32." if kind == "float16" else "."),
        )


def _traced_difference(spec: Rotary, start: Any, end: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotation from ``start`` to ``end``, where one of them is traced."""
    if tuple(start.shape) != tuple(end.shape):
        raise InvalidValue(
            f"`from_` and `to` must have the same shape, got {list(start.shape)} and {list(end.shape)}.",
            "Give each key a position in `from_` and in `to`.",
        )
    beside = end if isinstance(start, Positions) else start
    # Two rotations instead of one by the difference, which may overflow traced integers; queries grow as keys shrink.
    roles = (None, None) if spec.xpos is None else ("query", "key")
    (cosine, sine), (along, up) = (
        _beside(spec, place, beside, role) for place, role in zip((start, end), roles, strict=True)
    )
    twice = spec.attention_factor**2
    return (along * cosine + up * sine) / twice, (up * cosine - along * sine) / twice


def _beside(spec: Rotary, place: Any, traced: Any, role: str | None) -> tuple[Any, Any]:
    """Cosine and sine at traced positions, or at known ones used with them, in the library of the traced ones."""
    if not isinstance(place, Positions):
        return traced_cosine_sine(spec, place, role)
    xp, known = traces.library(traced), _cosine_and_sine(spec, place, "float32", role)
    where = {"device": traced.device} if "torch" in xp.__name__ else {}
    cosine, sine = (xp.asarray(part, **where) for part in known)
    return cosine, sine


def _wide(parts: tuple[Any, Any], kind: str) -> tuple[Any, Any]:
    """Traced numbers in float64 if the query is float64, so that the query is not rounded to float32."""
    if kind != "float64":
        return parts
    xp = traces.library(parts[0])
    cosine, sine = (xp.astype(part, xp.float64) for part in parts)
    return cosine, sine


def _applied(
    x: Any,
    spec: Rotary,
    turns: tuple[Any, Any],
    axis: int,
    asked: tuple[Any, int, str | None, CosSin | None] | None = None,
) -> Any:
    """``x`` rotated by cosine and sine, which are first broadcast to its axes.

    ``asked`` is the arguments of `rotate` (positions, axis, role, pair), the cache key for the next layers.
    """
    lead = [1] * (len(x.shape) - 1)
    lead[axis] = x.shape[axis]
    cosine, sine = turns
    if cosine.ndim == 3:
        lead[0] = cosine.shape[0]
    shape = (*lead, spec.rotated // 2)
    if hasattr(cosine, "reshape"):
        cosine, sine = cosine.reshape(shape), sine.reshape(shape)
    else:  # a library with only the functions of the array API
        xp = traces.library(cosine)
        cosine, sine = xp.reshape(cosine, shape), xp.reshape(sine, shape)
    made = None if asked is None else first_step(spec, x, *asked, (cosine, sine))
    return made if made is not None else rotated_by_library(x, cosine, sine, spec)
