"""`check_additive`: whether a function adds the numbers of an additive encoding to its tokens.

Tokens are drawn once, with values around 1, and rounded to the dtype in which they are passed, so that the input is
exact. The expected output is the token times its scale plus `clockhands.table`, in float64.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count, positive
from clockhands.encodings.additive import AdditiveCode, Learned, resize
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.grids import Grid
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import numpy_of
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ADDITIVE, SHARDING
from clockhands.recognition.suspects import AdditiveObservations, additive_suspects, further_suspects
from clockhands.testing._checks import COPIES, checked, function_of, named, resolved, with_fewer_positions
from clockhands.testing._experiments import ROWS, Answer, ExperimentRun, Unasked, failed_of
from clockhands.testing.bounds import resizing_error
from clockhands.testing.functions._additive_subject import EVERY, SMALL, CheckedAdditive, Right
from clockhands.testing.functions._argument_names import QUANTITIES
from clockhands.testing.functions._call_shapes import spaced
from clockhands.testing.functions._calls import Called
from clockhands.testing.functions._rank_parts import EVERY_OF_PART, part_experiments
from clockhands.testing.functions._resized_grids import ResizedTable, Resizing, resizing_taken
from clockhands.testing.functions._suspects import (
    MOST,
    collided,
    exact_fits,
    explanation_of,
    explanations,
    few_numbers,
    fitting,
    nearest_fit,
    of_any_code,
    only_coarse,
)
from clockhands.testing.functions._table_functions import TableOfLength, length_taken
from clockhands.testing.functions._tokens import chosen_positions
from clockhands.testing.reports import Explanation, Report

LENGTH = 10_000


def check_additive(
    fn: Callable[..., Any] | None = None,
    like: AdditiveCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    resized: Mapping[str, Any] | None = None,
    grid: Grid | None = None,
    token_scale: float = 1.0,
    axes: str | None = None,
    call: str | None = None,
    positions: str | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    zigzag: bool = False,
    negative: bool | None = None,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function adds the numbers of an additive encoding to its tokens.

    ``x -> token_scale x + table(spec, positions)``, checked at every position below `length`, in any order, for
    batches, packed sequences, single tokens, tokens of zeros and a lower-precision dtype, before and after other calls.
    Failures are explained by trying every known fault.

    Args:
        fn: The function, in any array library.
        like: The expected encoding: a spec, or a preset's name with fields (``"vaswani2017:width=64"``); of a resized
            table it may be left out.
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        values: The learned numbers: the rows of `Learned`, the frequencies of `FourierFeatures`, a trained scale.
        resized: How the function resizes a learned table first, as keywords of `clockhands.additive.resize`
            (``{"rows": (32, 32), "kind": "cubic"}``); ``values`` are the rows before, ``like`` the encoding after it.
            A function of a table and a size, ``call="table, size"``, is given ``values`` and the size in ``rows``.
        grid: The cells of its rows, for a function that counts its rows itself (``call="x"``).
        token_scale: The factor of the tokens, before the encoding is added (``width ** 0.5`` in the paper's model).
        axes: The axes of x in the function's order: ``"batch seq width"``.
        call: The arguments of the function: ``"x, positions"``; ``"x"`` if it counts its rows itself; ``"x, offset"``;
            ``"positions"`` if it returns the table; ``"x, cu_seqlens"`` if it counts within packed documents. By
            default it is read from the names of the parameters, and is ``"x, positions"`` if they are not known.
        positions: The axes of its positions: ``"seq"`` or ``"batch seq"``; with ``axes`` for several coordinates.
        rank: The rank of a function that has a part of a sequence; with `ranks` and `zigzag` as in `check_rotary`.
        ranks: The number of ranks.
        zigzag: Whether a rank has two chunks, one from each end.
        negative: Whether it takes positions below 0. None tries them, and accepts what looks like an index from the
            end.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The dtype of its tokens, or of the table that it returns.
        length: Positions 0 to ``length - 1`` are checked: 10,000, or fewer if the encoding has fewer or the function
            refuses more (8,192, 4,096, ..., 512).
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report; with failures only if ``raises`` is false.

    Accuracy: the error of a number may be that of correct float32 arithmetic, derived in `clockhands.testing.bounds`,
        for the dtype of the tokens. A fault with smaller errors is not found.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message gives the call and its result.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def added(x, positions): return ch.add(x, ch.Sinusoidal(8, base=500.0), positions)
    >>> report = check_additive(added, ch.Sinusoidal(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    if like is None and resized is not None and values is not None:
        like = _resized_spec(values, resized)
    spec: AdditiveCode = resolved(like, AdditiveCode, "additive")
    given, values = _values(spec, values, resized)
    right = Right(spec, values, positive("token_scale", token_scale), _grid(grid, spec, call))
    resizing = None if resized is None or given is None else _resizing(given, resized)
    if resizing is not None:
        right.resizing = resizing_error(resizing.values, resizing.old)
    if not {*_words(call)} & {*QUANTITIES} <= {"x", "positions", "offset", "cu_seqlens"}:
        raise InvalidValue(
            f"`call` must take tokens for an additive encoding, got {shown(call)}.", 'Pass call="x, positions".'
        )
    ends, given_length = LENGTH if right.ends is None else min(LENGTH, right.ends), length is not None
    length = ends if length is None else _length(length, right)

    def outside(function: Callable[..., Any], own: Right, first: str | None = None) -> CheckedAdditive:
        if resizing is not None and (takes := _resizing_takes(function, call)):
            table = ResizedTable(function, takes, resizing, backend=backend, dtype=dtype, timeout=timeout, first=first)
            return CheckedAdditive(own.spec, table, length, build, right=own)
        if call is None and rank is None and own.axes == 1 and (takes := length_taken(function)):
            options = {"backend": backend, "dtype": dtype, "timeout": timeout, "first": first}
            rows = TableOfLength(function, takes, own.spec.width, lambda at: own.rows(at)[0], **options)
            return CheckedAdditive(own.spec, rows, length, build, right=own, negative=negative)
        called = Called(
            function,
            own.spec.width,
            axes=axes,
            call=call,
            positions=positions,
            coordinates=own.axes,
            rank=rank,
            ranks=ranks,
            zigzag=zigzag,
            start=own.lowest,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
            first=first,
            wrapping=None if resizing is None else "resized(table, size)",
        )
        return CheckedAdditive(own.spec, called, length, build, right=own, negative=negative)

    def another(other: AdditiveCode, first: str | None = None) -> CheckedAdditive:
        assert make is not None
        return outside(make(other), right.of(other), first)

    build = None if make is None else another
    it = outside(function_of(fn, make, spec), right)
    explained = partial(_explained, it, given=given, resized=resized)
    experiments = (*SMALL, EVERY)
    if it.called.part is not None:
        experiments = (*part_experiments("several sequences", keys=False), EVERY_OF_PART)
    run = partial(checked, "additive", named(fn, make), it, experiments, explained, raises=raises)
    return run() if given_length or it.called.part is not None else with_fewer_positions(it, run)


def _resizing_takes(function: Callable[..., Any], call: str | None) -> Mapping[str, str] | None:
    """What the parameters of a function mean, by ``call`` or their names, if it takes the table that it resizes."""
    if call is None:
        return resizing_taken(function)
    words = _words(call)
    return dict(zip(inspect.signature(function).parameters, words, strict=False)) if "table" in words else None


def _resizing(given: np.ndarray, resized: Mapping[str, Any]) -> Resizing:
    """The table before it is resized, its grid and the new one, and how many rows are not of the grid."""
    kept, rows = resized.get("kept", 0), resized["rows"]
    rows = rows if isinstance(rows, tuple | list) else (rows,)
    cells = len(given) - kept
    square = (math.isqrt(cells),) * 2
    grid = resized.get("grid") or (square if len(rows) > 1 and math.prod(square) == cells else (cells,))
    return Resizing(given, tuple(grid), tuple(rows), kept)


def _resized_spec(values: Any, resized: Mapping[str, Any]) -> Learned:
    """The learned table that ``values`` become."""
    made = _resizing(numpy_of(values, "values"), resized)
    return Learned(made.values.shape[-1], rows=made.kept + math.prod(made.rows))


def _values(
    spec: AdditiveCode, values: Any, resized: Mapping[str, Any] | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The learned numbers as given, and after resizing; None without learned numbers."""
    given = None if values is None else numpy_of(values, "values").astype(np.float64)
    own = given
    if resized is not None:
        if not isinstance(spec, Learned) or given is None:
            raise InvalidValue(
                "`resized` needs a learned table and its rows.",
                "Give like=Learned(…), and values= the rows.",
            )
        own = resize(given, **resized)
    spec.check_values(None if own is None else own.shape)
    return given, own


def _words(call: Any) -> list[str]:
    return spaced(call).replace(" -> ", ", ").split(", ") if isinstance(call, str) else []


def _grid(grid: Any, spec: AdditiveCode, call: str | None) -> Grid | None:
    if grid is None:
        return None
    if not isinstance(grid, Grid):
        raise InvalidType(f"`grid` must be a grid, got {shown(grid)}.", "Give clockhands.grids.Grid((rows, columns)).")
    if call not in ("x", "x, offset"):
        raise InvalidValue(
            f"`grid` is for functions that count their rows themselves, got call={shown(call)}.", 'Pass call="x".'
        )
    if grid.axes != spec.number_of_axes:
        raise InvalidValue(
            f"The number of axes of `grid` must be {spec.number_of_axes}, as in the encoding, got {grid.axes}.",
            "Give one size for each axis of the encoding, in the same order.",
        )
    return grid


def _length(length: int, right: Right) -> int:
    wanted = count("length", length)
    if right.ends is not None and wanted > right.ends:
        raise InvalidValue(
            f"`length` must be at most {right.ends:,}, the number of positions of the encoding, got {wanted:,}.",
            "Leave it out to check all of them.",
        )
    refuse_larger((wanted, right.spec.width), COPIES * 8, "The array for all positions", "Pass a smaller length=.")
    return wanted


def _explained(
    it: CheckedAdditive, runs: list[ExperimentRun], given: np.ndarray | None, resized: Mapping[str, Any] | None
) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    small = [one for one in runs if one.experiment.name != EVERY.name]
    every = next((one for one in runs if one.experiment is EVERY), None)
    first_wrong = None
    if every is not None and it.right.axes == 1:
        first_wrong, at = _chosen(every.answers[0], it.lowest, it.length)
        chosen = chosen_positions(at)
        with suppress(Refused, Unasked):
            small.append(ExperimentRun(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, runs)
    seen = replace(_seen(it, first_wrong), given=given, resized=resized, grid=it.right.grid)

    if it.called.part is not None and (found := exact_fits(small, it.called.part.suspects(seen), it.suspected)):
        return explanations(found, SHARDING, None)
    suspects, note = list(additive_suspects(it.spec, seen)), None
    found = exact_fits(small, suspects, it.suspected)
    if not found:
        finer = list(further_suspects(it.spec, replace(seen, fine=True)))
        found = exact_fits(small, finer, it.suspected)
        note = None if found else MOST
        found = found or nearest_fit(small, suspects, it.suspected) or nearest_fit(small, finer, it.suspected)
    told = explanations(found, ADDITIVE, note) or unexplained(it, runs)
    if not told and (specs := _recognised(it)):
        known = list(further_suspects(it.spec, replace(seen, specs=specs)))
        found, note = fitting(small, known, it.suspected)
        told = explanations(found, ADDITIVE, note)
    return only_coarse(told, runs, it.coarse)


def _chosen(dense: Answer, lowest: int, length: int) -> tuple[int | None, np.ndarray]:
    """The first wrong position, and wrong positions with others."""
    wrong = np.flatnonzero(dense.wrong[0, 0].any(axis=-1)) + lowest
    spread = wrong[np.linspace(0, len(wrong) - 1, 6).astype(int)] if len(wrong) else wrong
    some = np.concatenate([wrong[:12], spread, wrong[-1:]]).astype(np.int64)
    # With the position before each wrong one, to locate where errors begin; padded to a constant number, because
    # libraries compile for every shape.
    found = np.unique(np.maximum(np.concatenate([some, some - 1]), lowest))
    others = np.setdiff1d(np.arange(lowest, min(length, lowest + 2 * ROWS)), found)
    at = np.sort(np.concatenate([found, others[: max(ROWS - len(found), 0)]]))
    return int(wrong[0]) if len(wrong) else None, at


def _seen(it: CheckedAdditive, first_wrong: int | None) -> AdditiveObservations:
    """Measure the rows of the function, and the factor of its tokens."""
    powers = np.array([0, *(2**power for power in range(18) if 2**power < it.length)])
    others = np.setdiff1d(np.arange(min(it.length, ROWS)), powers)
    at = np.sort(np.concatenate([powers, others[: ROWS - len(powers)]]))
    at = at[at >= it.lowest]
    if it.right.grid is not None:  # enough to reach the second row of a grid
        at = np.arange(min(it.length, 4 * ROWS))
    width = it.spec.width
    try:
        zeros = it.answer("rows", np.zeros((1, 1, len(at), width)), at)
        rows, right, factor = zeros.got[0, 0], zeros.wanted[0, 0], None
        if not it.called.shape.is_table:
            x = it.tokens(1, 1, len(at), seed=19)
            through = (it.answer("tokens", x, at).got - zeros.got)[0, 0]
            factor = float((through * x[0, 0]).sum() / (x * x).sum())
    except (Refused, Unasked):
        at, rows, right, factor = at[:0], np.zeros((0, width)), np.zeros((0, width)), None
    return AdditiveObservations(
        "positions" if it.called.shape.is_table else it.call,
        it.dtype,
        it.coarse,
        it.length,
        first_wrong,
        it.right.values,
        it.right.token_scale,
        at,
        rows,
        right,
        factor,
    )


def _recognised(it: CheckedAdditive) -> tuple[AdditiveCode, ...]:
    """The specs of the additive encoding that the function computes, if it is another known one."""
    if it.spec.number_of_axes > 1 or it.right.grid is not None or it.length < 300 or it.lowest:
        return ()

    def answer_of(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        y = it(x[None, None], positions)[0, 0]
        return (y + x if it.called.shape.is_table else y).astype(output_dtype(it.dtype))

    with suppress(ClockhandsError, Refused):
        if it.call == "x":
            rows = it(np.zeros((1, 1, min(it.length, 2048), it.spec.width)), np.arange(min(it.length, 2048)))
            matches = identify(rows[0, 0].astype(np.float32))
        else:
            matches = identify(answer_of, width=it.spec.width, backend="numpy", dtype=it.dtype, longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, AdditiveCode) and not match.spec.learned)
    return ()


# If the squared difference exceeds this share of the rows' squared deviation from their mean, the rows may be those of
# another table, so a different resizing is not reported.
_ALIKE = 0.5


def unexplained(it: CheckedAdditive, runs: Sequence[ExperimentRun]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    if told := of_any_code(it, runs, ADDITIVE):
        return told
    every = failed_of(runs).get(EVERY.name)
    if every is None:
        return ()
    few = few_numbers(every.answers[0])
    if few:
        return (explanation_of(ADDITIVE["one-number-wrong"], {"which": few}),)
    if isinstance(it.spec, Learned):
        one = every.answers[0]
        return _resized(it.right.rows(np.arange(it.lowest, it.length))[0], (one.got - one.wanted)[0, 0])
    return collided(it, ADDITIVE) if it.spec.number_of_axes == 1 and it.right.grid is None else ()


def _resized(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    """The explanation of a learned table that is close to the right one [rows, width]: its rows are moved or mixed.

    Rows at ``p + d(p)`` with a small ``d(p) = u + v p`` differ by ``d(p)`` times the slope of the rows, from which
    ``u`` and ``v`` are fitted.
    """
    spread = float(((right - right.mean(axis=0)) ** 2).sum())
    if len(right) < 8 or not np.isfinite(off).all() or (off**2).sum() > _ALIKE * spread:
        return ()
    return _moved(right, off)


def _moved(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    at = np.arange(len(right), dtype=np.float64)
    slope = np.gradient(right, axis=0)
    parts = np.stack([slope.reshape(-1), (slope * at[:, None]).reshape(-1)], axis=1)
    (start, growth), *_ = np.linalg.lstsq(parts, off.reshape(-1), rcond=None)
    there = at + start + growth * at
    moved = np.stack([np.interp(there, at, column) for column in right.T], axis=-1)
    left = float(((right + off - moved) ** 2).sum() / (off**2).sum())
    if left < _ALIKE:
        used = (
            f"row p is that of position {1 + growth:.5g} p {start:+.3g}, by linear interpolation ({1 - left:.0%} of the"
        )
        used += " squared difference)"
        return (explanation_of(ADDITIVE["rows-moved"], {"used": used, "declared": "position p"}),)
    largest = float(np.abs(off).max())
    used = f"each row is a mixture of those near it, off by up to {largest:.3g}"
    return (explanation_of(ADDITIVE["rows-rescaled"], {"used": used, "declared": "the rows that were given"}),)
