"""`check_additive`: whether somebody's function adds the numbers of an additive code to its tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode, Learned
from clockhands.arguments import count, positive, shown
from clockhands.calling import Refused
from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.faults.additive import Seen, additive_suspects, further_suspects
from clockhands.faults.additive_rows import ADDITIVE
from clockhands.faults.fault import Suspect
from clockhands.grids import Grid
from clockhands.memory import refuse_larger
from clockhands.positions import numpy_of
from clockhands.testing.experiments import (
    COPIES,
    ROWS,
    Answer,
    Asked,
    Experiment,
    Unasked,
    asked_all,
    failed_of,
    function_of,
    named,
    report_of,
    resolved,
)
from clockhands.testing.functions.additive_experiments import EVERY, SMALL, AdditiveFunction, AdditiveSuspect, Right
from clockhands.testing.functions.calls import PAIRS, Called
from clockhands.testing.functions.suspects import (
    collided,
    explanations,
    few_numbers,
    fitting,
    of_any_code,
    only_coarse,
    told_of,
)
from clockhands.testing.reports import Explanation, Report, settled

LENGTH = 10_000
_TELLING = 64  # wrong numbers of an answer by which suspects are told apart


def check_additive(
    fn: Callable[..., Any] | None = None,
    like: AdditiveCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    resized: Mapping[str, Any] | None = None,
    grid: Grid | None = None,
    token_scale: float = 1.0,
    negative: bool | None = None,
    axes: str = "seq width",
    call: str = "x, positions",
    positions: str = "seq",
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function adds the numbers of an additive code to its tokens.

    ``x -> token_scale x + table(spec, positions)``, asked at every position below `length`, in any order, for batches,
    packed and one token at a time, of tokens of zeros, in a coarser dtype, before and after other calls. What fails is
    explained by trying every known fault.

    Args:
        fn: The function, of one's own library.
        like: The code that it should be: a spec, or a preset's name with fields (``"vaswani2017:width=64"``).
        make: A function(spec) that builds the function for a spec: two models of one process are then asked too.
        values: The code's learned numbers: the rows of `Learned`, the rates of `FourierFeatures`, a trained scale.
        resized: How the function resizes a learned table first, as keywords of `clockhands.additive.resize`
            (``{"rows": (32, 32), "kind": "cubic"}``); ``values`` are the rows before that, ``like`` the code after it.
        grid: The cells that its rows stand at, for a function that counts its rows itself, ``call="x"``.
        token_scale: What it multiplies tokens by before it adds the code (``width ** 0.5`` in the paper's model).
        negative: Whether it takes positions below 0. None asks, and lets pass what looks like an index from the end.
        axes: The axes of x in the function's order: ``"batch seq width"``.
        call: What it is called with: ``"x, positions"``, ``"x"`` where it counts its rows itself, ``"x, offset"``,
            ``"positions"`` where it gives the table alone.
        positions: The axes of its positions: ``"seq"``, ``"batch seq"``, with ``axes`` for codes of several.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; found out unless said.
        dtype: The dtype of its tokens, or of its table where it gives that alone.
        length: Positions 0 to ``length - 1`` are asked: 10,000, or fewer where the code has fewer.
        timeout: Seconds for a call.
        raises: Whether a failure is raised; else it is in the report.

    Returns:
        The report; where something failed and ``raises`` is false too.

    Accuracy: a number may be off by what honest float32 arithmetic makes of it, derived in
        `clockhands.testing.bounds`, for the dtype of the tokens. Arithmetic of that size is not told from exact.

    Raises:
        CheckFailed: Something failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message says what came back.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def added(x, positions): return ch.add(x, ch.Sinusoidal(8, base=500.0), positions)
    >>> report = check_additive(added, ch.Sinusoidal(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    spec: AdditiveCode = resolved(like, AdditiveCode, "additive")
    given, values = _values(spec, values, resized)
    right = Right(spec, values, positive("token_scale", token_scale), _grid(grid, spec, call))
    if call == PAIRS:
        raise InvalidValue(
            f"`call` must be of tokens for an additive code, got {shown(call)}.", 'Say call="x, positions".'
        )
    ends = LENGTH if right.ends is None else min(LENGTH, right.ends)
    length = ends if length is None else _length(length, right)

    def outside(function: Callable[..., Any], own: Right, first: str | None = None) -> AdditiveFunction:
        called = Called(
            function,
            own.spec.width,
            axes=axes,
            call=call,
            positions=positions,
            coordinates=own.axes,
            start=own.lowest,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
            first=first,
        )
        return AdditiveFunction(own.spec, called, length, called.coarse, None, build, own, negative)

    def another(other: AdditiveCode, first: str | None = None) -> AdditiveFunction:
        assert make is not None
        return outside(make(other), right.of(other), first)

    build = None if make is None else another
    it = outside(function_of(fn, make, spec), right)
    asked, left_out = asked_all(it, (*SMALL, EVERY))
    report = report_of("additive", named(fn, make), spec, asked, left_out, called=it.called)
    if not report.sound:
        report = replace(report, explanations=_explained(it, asked, given, resized))
    return settled(report, raises)


def _values(
    spec: AdditiveCode, values: Any, resized: Mapping[str, Any] | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The learned numbers as they were given, and as the code has them."""
    given = None if values is None else numpy_of(values, "values").astype(np.float64)
    own = given
    if resized is not None:
        if not isinstance(spec, Learned) or given is None:
            raise InvalidValue(
                "`resized` is for a learned table, and needs its rows.", "Give Learned, and the rows as values=."
            )
        from clockhands.additive import resize

        own = resize(given, **resized)
    spec.check_values(None if own is None else own.shape)
    return given, own


def _grid(grid: Any, spec: AdditiveCode, call: str) -> Grid | None:
    if grid is None:
        return None
    if not isinstance(grid, Grid):
        raise InvalidType(f"`grid` must be a grid, got {shown(grid)}.", "Give clockhands.grids.Grid((rows, columns)).")
    if call not in ("x", "x, offset"):
        raise InvalidValue(f"`grid` is for functions that count their rows, got call={shown(call)}.", 'Say call="x".')
    if grid.axes != spec.number_of_axes:
        raise InvalidValue(
            f"`grid` must have as many axes as the code, {spec.number_of_axes}, got {grid.axes}.",
            "Give a size for each axis of the code, in their order.",
        )
    return grid


def _length(length: int, right: Right) -> int:
    wanted = count("length", length)
    if right.ends is not None and wanted > right.ends:
        raise InvalidValue(
            f"`length` must be at most the {right.ends:,} positions of the code, got {wanted:,}.",
            "Leave it out to ask all of them.",
        )
    refuse_larger((wanted, right.spec.width), COPIES * 8, "What every position is asked with", "Say a smaller length=.")
    return wanted


def _explained(
    it: AdditiveFunction, asked: list[Asked], given: np.ndarray | None, resized: Mapping[str, Any] | None
) -> tuple[Explanation, ...]:
    """What the failures look like."""
    small = [one for one in asked if one.experiment is not EVERY]
    every = next((one for one in asked if one.experiment is EVERY), None)
    first_wrong = None
    if every is not None and it.right.axes == 1:
        first_wrong, chosen = _chosen(every.answers[0], it.lowest, it.length)
        with suppress(Refused, Unasked):
            small.append(Asked(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, asked)
    seen = replace(_seen(it, first_wrong), given=given, resized=resized, grid=it.right.grid)

    def built(suspect: Suspect) -> AdditiveSuspect:
        return AdditiveSuspect.of_suspect(suspect, it)

    def tried(suspects: Iterator[Suspect]) -> Iterator[Suspect]:
        return (one for one in suspects if _may_be(small[0], partial(built, one)))

    found, note = fitting(small, tried(additive_suspects(it.spec, seen)), built)
    if not found or note:
        finer, word = fitting(small, tried(further_suspects(it.spec, replace(seen, fine=True))), built)
        if finer and (not word or not found):
            found, note = finer, word
    told = explanations(found, ADDITIVE, note) or unexplained(it, asked)
    specs = () if told else _recognised(it)
    if specs:
        found, note = fitting(small, tried(further_suspects(it.spec, replace(seen, specs=specs))), built)
        told = explanations(found, ADDITIVE, note)
    return only_coarse(told, asked, it.coarse)


def _may_be(first: Asked, build: Callable[[], AdditiveSuspect]) -> bool:
    """Whether a suspect is worth all questions, by the first one, which nothing came before.

    One that neither leaves less than half of the squared difference there nor gives one in ten of the wrong numbers
    leaves too much of the whole; so does one that is wrong where next to nothing is.
    """
    seen = first.answers[0]
    wrong = seen.shares > 1
    try:
        made = first.experiment.run(build())[0]
    except (Unasked, ClockhandsError):
        return False
    alike = np.abs(seen.got - made.got) <= 2 * np.maximum(seen.allowed, made.allowed)
    if wrong.sum() < _TELLING:
        return bool(alike[~wrong].mean() > 0.9)
    left, whole = (seen.got - made.got)[wrong], (seen.got - seen.wanted)[wrong]
    both = np.isfinite(left) & np.isfinite(whole)
    return bool(alike[wrong].mean() > 0.1 or (left[both] ** 2).sum() < 0.5 * (whole[both] ** 2).sum())


def _chosen(dense: Answer, lowest: int, length: int) -> tuple[int | None, Experiment]:
    """Rows of all positions at which it is wrong, and others, as a question that is quick to ask."""
    wrong = np.flatnonzero((dense.shares[0, 0] > 1).any(axis=-1)) + lowest
    spread = wrong[np.linspace(0, len(wrong) - 1, 6).astype(int)] if len(wrong) else wrong
    some = np.concatenate([wrong[:12], spread, wrong[-1:]]).astype(np.int64)
    # The position before each is told apart from it; and always as many, for libraries that compile.
    found = np.unique(np.maximum(np.concatenate([some, some - 1]), lowest))
    others = np.setdiff1d(np.arange(lowest, min(length, lowest + 2 * ROWS)), found)
    at = np.sort(np.concatenate([found, others[: max(ROWS - len(found), 0)]]))

    def run(it: Any) -> list[Answer]:
        return [it.answer("chosen positions", it.tokens(1, 1, len(at), seed=18), at)]

    chosen = Experiment("chosen positions", "Positions at which it is wrong, and others.", run)
    return int(wrong[0]) if len(wrong) else None, chosen


def _seen(it: AdditiveFunction, first_wrong: int | None) -> Seen:
    """Measure the rows, and what becomes of tokens."""
    powers = np.array([0, *(2**power for power in range(18) if 2**power < it.length)])
    others = np.setdiff1d(np.arange(min(it.length, ROWS)), powers)
    at = np.sort(np.concatenate([powers, others[: ROWS - len(powers)]]))
    at = at[at >= it.lowest]
    if it.right.grid is not None:  # as far as the second row of a grid
        at = np.arange(min(it.length, 4 * ROWS))
    width = it.spec.width
    try:
        zeros = it.answer("rows", np.zeros((1, 1, len(at), width)), at)
        rows, right, factor = zeros.got[0, 0], zeros.wanted[0, 0], None
        if it.call != "positions":
            x = it.tokens(1, 1, len(at), seed=19)
            through = (it.answer("tokens", x, at).got - zeros.got)[0, 0]
            factor = float((through * x[0, 0]).sum() / (x * x).sum())
    except (Refused, Unasked):
        at, rows, right, factor = at[:0], np.zeros((0, width)), np.zeros((0, width)), None
    return Seen(
        it.call,
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


def _recognised(it: AdditiveFunction) -> tuple[AdditiveCode, ...]:
    """What it is, where it is an additive code of another spec."""
    from clockhands.recognition import identify

    if it.spec.number_of_axes > 1 or it.right.grid is not None or it.length < 300 or it.lowest:
        return ()

    def asked(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        y = it(x[None, None], positions)[0, 0]
        return (y + x if it.call == "positions" else y).astype(output_dtype(it.dtype))

    with suppress(ClockhandsError, Refused):
        if it.call == "x":
            rows = it(np.zeros((1, 1, min(it.length, 2048), it.spec.width)), np.arange(min(it.length, 2048)))
            matches = identify(rows[0, 0].astype(np.float32))
        else:
            matches = identify(asked, width=it.spec.width, backend="numpy", dtype=it.dtype, longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, AdditiveCode) and not match.spec.learned)
    return ()


# Rows of another table are not told from rows that were resized otherwise where more than this share of their spread
# is different.
_ALIKE = 0.5


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common."""
    if told := of_any_code(it, asked, ADDITIVE):
        return told
    every = failed_of(asked).get(EVERY.name)
    if every is None:
        return ()
    few = few_numbers(every.answers[0])
    if few:
        return (told_of(ADDITIVE["one-number-wrong"], {"which": few}),)
    if isinstance(it.spec, Learned):
        one = every.answers[0]
        return _resized(it.right.rows(np.arange(it.lowest, it.length))[0], (one.got - one.wanted)[0, 0])
    return collided(it, ADDITIVE) if it.spec.number_of_axes == 1 and it.right.grid is None else ()


def _resized(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    """A learned table that is like the right one [rows, width], but off: its rows moved, or mixed otherwise.

    Rows that stand at ``p + d(p)`` with a small ``d(p) = u + v p`` differ by ``d(p)`` times the slope of the rows, by
    which ``u`` and ``v`` are measured.
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
        return (told_of(ADDITIVE["rows-moved"], {"used": used, "declared": "position p"}),)
    largest = float(np.abs(off).max())
    used = f"each row is a mixture of those near it, off by up to {largest:.3g}"
    return (told_of(ADDITIVE["rows-rescaled"], {"used": used, "declared": "the rows that were given"}),)
