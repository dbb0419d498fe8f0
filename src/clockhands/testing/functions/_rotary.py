"""`check_rotary`: whether a function rotates queries and keys as a RoPE spec defines.

Tokens are drawn once, with values around 1, and rounded to the dtype in which they are passed, so that the input is
exact. The expected output is `clockhands.rotate` in float64.
"""

import copy
import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ROTARY, SHARDING
from clockhands.recognition.suspects import (
    FaultModel,
    RotaryObservations,
    StagedRotary,
    recognised,
    rotary_suspects,
)
from clockhands.testing._checks import COPIES, checked, function_of, named, resolved, with_fewer_positions
from clockhands.testing._experiments import Answer, ExperimentRun, Unasked, failed_of
from clockhands.testing.functions._call_shapes import spaced
from clockhands.testing.functions._calls import Called
from clockhands.testing.functions._measured_rotations import by_rates, from_first, rotations_of
from clockhands.testing.functions._rank_parts import EVERY_OF_PART, head_part, part_experiments
from clockhands.testing.functions._rotary_subject import (
    EVERY,
    KEYS,
    KEYS_UP_TO,
    LIKE_KEYS,
    SHORT,
    SMALL,
    CheckedRotary,
    FromPosition,
    holds_tokens,
)
from clockhands.testing.functions._suspects import (
    MOST,
    collided,
    exact_fits,
    explanation_of,
    explanations,
    few_numbers,
    nearest_fit,
    not_finite,
    of_any_code,
    only_coarse,
)
from clockhands.testing.functions._tokens import chosen_positions, other_tokens
from clockhands.testing.functions._two_faults import suspects_with_two_faults
from clockhands.testing.reports import Explanation, Failure, Report, settled

LENGTH = 10_000


def check_rotary(
    fn: Callable[..., Any] | None = None,
    like: Rotary | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    keys: Callable[..., Any] | None = None,
    axes: str | None = None,
    call: str | None = None,
    positions: str | None = None,
    heads: str | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    zigzag: bool = False,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function rotates queries and keys as a RoPE spec defines.

    ``(a, b) -> f (a cos(p r) - b sin(p r), a sin(p r) + b cos(p r))`` for each dimension pair of frequency ``r`` at
    position ``p``, with the attention factor ``f``. It is checked at every position below `length`, in any order, for
    batches, packed sequences, single tokens and a lower-precision dtype, before and after other calls. Failures are
    explained by trying every known fault.

    Args:
        fn: The function, in any array library.
        like: The expected RoPE: a spec, or a preset's name with fields (``"llama3.1"``).
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        keys: The function for keys, if they are treated differently (xPos).
        axes: The axes of x in the function's order: ``"batch heads seq width"``; ``"seq heads*width"`` if heads and
            width are one axis.
        call: The arguments of the function: ``"x, positions"``; ``"x"`` if it counts its rows itself; ``"x, offset"``;
            ``"q, k, positions"`` if it returns both queries and keys; ``"q, k, cos, sin"`` or ``"q, k, freqs_cis"`` if
            it is given what rotates them, which is made from `like`; ``"positions -> cos, sin"`` or
            ``"dim, end, theta -> freqs_cis"`` if it returns this, which then rotates tokens. By default it is read from
            the names of the parameters, and is ``"x, positions"`` if they are not known.
        positions: The axes of its positions: ``"seq"`` or ``"batch seq"``; with ``axes`` for several coordinates.
        heads: The heads of a rank, ``"4:8"``: every call has as many.
        rank: The rank, from 0, of a function that has a part of a sequence and finds out which tokens these are:
            ``"x"``, ``"x, cu_seqlens"``, or ``"q, k, cos, sin"`` of the whole sequence.
        ranks: The number of ranks.
        zigzag: Whether a rank has chunks r and 2 R - 1 - r of 2 R, of each document if it takes ``cu_seqlens``, as in
            ring attention and Megatron's context parallelism; see `clockhands.encodings.sharding.rank_positions`.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The dtype of its tokens.
        length: Positions 0 to ``length - 1`` are checked: 10,000, or fewer if the frequencies of the spec depend on the
            length and hold for fewer, or if the function refuses more (8,192, 4,096, ..., 512).
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
    >>> def rotated(x, positions): return ch.rotate(x, ch.Rotary(8, base=500.0), positions)
    >>> report = check_rotary(rotated, ch.Rotary(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    spec = resolved(like, Rotary, "rotary")
    given_length = length is not None
    length = checked_length(spec, length)
    if spec.number_of_axes > 1 and spaced(call) in {"x", "x, offset"}:
        raise InvalidValue(
            f"`call` is {shown(call)}, but positions of {spec.number_of_axes} coordinates must be passed to it.",
            'Wrap the function so that it takes positions, and pass call="x, positions" or "q, k, positions".',
        )

    own_heads = head_part(heads, None)

    def outside(
        function: Callable[..., Any], own: Rotary, key: Callable[..., Any] | None = None, first: str | None = None
    ) -> CheckedRotary:
        as_called = partial(
            Called,
            width=own.head_width,
            axes=axes,
            call=call,
            positions=positions,
            rotary=own,
            rank=rank,
            ranks=ranks,
            zigzag=zigzag,
            heads=None if own_heads is None else len(own_heads),
            coordinates=own.number_of_axes,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
        )
        called = as_called(function, first=first)
        called.most = length
        other = None if key is None else as_called(key)
        return CheckedRotary(own, called, length, build, keys=other)

    build = None if make is None else (lambda own, first: outside(make(own), own, first=first))
    it = outside(function_of(fn, make, spec), spec, keys)
    experiments = (*SMALL, EVERY)
    if it.called.part is not None:
        experiments = (*part_experiments("several heads", keys=it.called.shape.pairs), EVERY_OF_PART)
    run = partial(checked, "rotary", named(fn, make), it, experiments, partial(_explained, it), raises=raises)
    report = run() if given_length or it.called.part is not None else with_fewer_positions(it, run)
    if not report.sound:
        return report
    report = replace(report, left_out={**report.left_out, **it.called.unread_waves()})
    report = _of_views(report, it)
    return settled(_with_gradient(report, it) if report.sound else report, raises)


_GRADIENT, _VIEWS = "gradient", "tokens of a larger array"


def _of_views(report: Report, it: CheckedRotary) -> Report:
    """The report on a right function, with that on tokens that are a part of an array, as of queries, keys and values.

    Code that counts numbers from the first one on, in place of strides, reads others there.
    """
    if it.called.shape.is_table or it.called.library.name not in {"numpy", "torch"}:
        return report
    at = it.few_positions(16)
    x = it.tokens(1, 1, len(at), seed=28)
    library = sys.modules[it.called.library.name]
    found: list[Any] = []

    def viewed(value: Any) -> Any:
        if not holds_tokens(value, x) or value.shape[-1] != x.shape[-1]:
            return value
        found.append(value)
        return library.concatenate([value + 1, value, value - 1], -1)[..., x.shape[-1] : 2 * x.shape[-1]]

    def of_views(*arguments: Any, **named: Any) -> Any:
        found.clear()
        return it.called.function(*map(viewed, arguments), **{name: viewed(each) for name, each in named.items()})

    beside = replace(it, called=copy.copy(it.called))
    beside.called.function = of_views
    try:
        roles = (None if it.spec.xpos is None else "query", *(["key"] if it.called.shape.pairs else []))
        both = [beside.compared(x, it.at_axes(at), None, role) for role in roles]
        if not found:
            raise Unasked("its tokens are not passed as they are")
    except (Unasked, Refused) as reason:
        return replace(report, left_out={**report.left_out, _VIEWS: str(reason.__cause__ or reason)})
    where = np.broadcast_to(at, (1, 1, len(at)))
    answers = [Answer(_VIEWS, got, wanted, allowed, where) for got, wanted, allowed in both]
    report = replace(report, experiments=(*report.experiments, _VIEWS))
    if not any(each.wrong.any() for each in answers):
        return report
    off = max(float(each.off.max()) for each in answers)
    failure = Failure(_VIEWS, f"tokens that are a part of an array are off by {off:.3g}.", {"off": off})
    return replace(report, failures=(failure,), explanations=(explanation_of(ROTARY["view-misread"], {}),))


def _with_gradient(report: Report, it: CheckedRotary) -> Report:
    """The report on a right function, with that on its gradient: a fused or hand-written backward may be another."""
    if it.called.library.name != "torch":
        return report
    from clockhands.testing.functions._rotation_gradients import rotated_gradient

    try:
        answer, unrotated = rotated_gradient(it)
    except (Unasked, Refused) as reason:
        return replace(report, left_out={**report.left_out, _GRADIENT: str(reason.__cause__ or reason)})
    report = replace(report, experiments=(*report.experiments, _GRADIENT))
    if not answer.wrong.any():
        return report
    off = float(answer.off.max())
    alone = bool(np.abs(unrotated - answer.got).max() < 1e-4)
    how = "that of a function which returns its tokens as they are" if alone else f"rotated, it is off by {off:.3g}"
    failure = Failure(_GRADIENT, f"the gradient of its tokens is not rotated back: {how}.", {"off": off})
    told = explanation_of(ROTARY["gradient-not-rotated"], {"how": how})
    return replace(report, failures=(failure,), explanations=(told,))


def checked_length(spec: Rotary, length: int | None) -> int:
    """The number of positions to check: ``length`` if given, else those for which the spec's frequencies hold.

    That is at most 10,000.
    """
    if length is not None:
        length = count("length", length)
        refuse_larger((length, spec.head_width), COPIES * 8, "The array for all positions", "Pass a smaller length=.")
        return length
    original = getattr(spec.scaling, "original", None)
    # Frequencies that depend on the length in use equal those of the spec only up to this length.
    if original is not None and _follows_length(spec):
        return min(LENGTH, spec.length or original)
    return LENGTH


def _follows_length(spec: Rotary) -> bool:
    original = spec.scaling.original  # type: ignore[union-attr]
    try:
        return replace(spec, length=4 * original).rates != replace(spec, length=original).rates
    except ClockhandsError:
        return False


def _crossed(spec: Rotary) -> Callable[..., np.ndarray]:
    right = StagedRotary(spec)
    return lambda x, *arguments: right(other_tokens(x), *arguments)


CROSSED = FaultModel(("queries-and-keys-crossed",), {}, lambda: _crossed)
"""A function that returns the keys as queries and the queries as keys."""


def _of_other_side(seen: RotaryObservations, side: str) -> FaultModel:
    """A function that rotates one of queries and keys by the positions of the other, which are in reverse order."""
    one, other = ("keys", "queries") if side == "key" else ("queries", "keys")
    return seen.suspect("positions-of-other-side", {"one": one, "other": other}, places=lambda at, _: at[..., ::-1])


def _explained(it: CheckedRotary, runs: list[ExperimentRun]) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    small = [one for one in runs if one.experiment.name != EVERY.name]
    every = next((one for one in runs if one.experiment is EVERY), None)
    first_wrong = first_right = None
    if every is not None:
        first_wrong, first_right, at = _chosen(every.answers[0])
        chosen = chosen_positions(at)
        with suppress(Refused):
            small.append(ExperimentRun(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, runs)
    side = _wrong_side(it, runs)
    seen = replace(rotations_of(it, first_wrong, side), first_right=first_right)
    shape = it.called.shape
    suspects = [*rotary_suspects(it.spec, seen), *[CROSSED] * shape.pairs]
    if it.called.part is not None:  # which tokens a rank has is tried first: rows that it counts itself are such a case
        found = exact_fits(small, it.called.part.suspects(seen), partial(it.suspected, side=side))
        if found:
            return one_sided(explanations(found, SHARDING, None), side)
    if {"q_positions", "k_positions"} <= {*shape.takes} and side is not None:
        suspects.append(_of_other_side(seen, side))

    def built(suspect: FaultModel) -> CheckedRotary:
        return it.suspected(suspect, None if suspect is CROSSED else side)

    found, note = exact_fits(small, [one for one in suspects if seen.may_be(one, it.spec)], built), None
    alone = every is not None and few_numbers(every.answers[0])  # a few wrong numbers, which no known fault gives
    if not found and not alone and not not_finite(small):
        # Two faults that give all answers explain more than one that gives most of them.
        both = (exact_fits(small, some, built) for some in suspects_with_two_faults(it.spec, seen))
        found = next(filter(None, both), [])
    if not found:
        found, note = nearest_fit(small, suspects, built), MOST
    failed = failed_of(runs)
    # At position 0 every rotation is right: what is wrong from position 1 on is wrong everywhere.
    begins = first_wrong or 0
    if not found and every is not None and begins > 1 and (later := _later_rows(it, small, begins, side)):
        return later
    if not found and "a short sequence" in failed and (known := recognised(it.spec, _recognised(it), seen)):
        found = exact_fits(small, known, built)
        note = None if found else MOST
        found = found or nearest_fit(small, [*suspects, *known], built)
    told = (
        explanations(found, ROTARY, note)
        or remembers(runs)
        or (() if it.spec.axes else collided(it, ROTARY))
        or by_rates(it.spec, seen)
        or explanations(_of_first_positions(it, small, side, built), ROTARY, _FIRST)
        or unexplained(it, runs)
    )
    return one_sided(only_coarse(told, runs, it.coarse), side)


def _later_rows(it: CheckedRotary, small: list[ExperimentRun], first: int, side: str | None) -> tuple[Explanation, ...]:
    """The explanation of rows that are right below a position, and those of one fault, or two, from it on."""
    if it.spec.axes is not None or it.called.part is not None or first + 2 > it.length:
        return ()
    seen = from_first(rotations_of(it, None, side, start=first), it.spec)
    if seen is None:
        return ()

    def later(suspect: FaultModel) -> FaultModel:
        make = suspect.make()
        return replace(
            suspect, make=lambda: lambda spec: FromPosition(StagedRotary(spec), make(spec), first), parts=None
        )

    one = (each for each in rotary_suspects(it.spec, seen) if each.parts is not None)
    for suspects in itertools.chain([one], suspects_with_two_faults(it.spec, seen)):
        some = (later(each) for each in suspects if seen.may_be(each, it.spec))
        if found := exact_fits(small, some, partial(it.suspected, side=side)):
            break
    else:
        found = []
    where = f", from position {first:,} on: earlier positions are right."
    told = explanations(found, ROTARY, None) or by_rates(it.spec, seen)
    return tuple(replace(each, message=each.message.removesuffix(".") + where) for each in told)


_FIRST = "at the first 512 positions; what is wrong at later ones is not known"


def _of_first_positions(
    it: CheckedRotary, small: list[ExperimentRun], side: str | None, built: Callable[[FaultModel], CheckedRotary]
) -> list[FaultModel]:
    """The suspects that give all answers at the first positions, where none gives those at later ones."""
    short = [
        one
        for one in small
        if all(each.positions is not None and each.positions.max(initial=0) < SHORT for each in one.answers)
    ]
    if "a short sequence" not in failed_of(short) or it.length <= SHORT:
        return []
    seen = rotations_of(replace(it, length=SHORT), None, side)
    return exact_fits(short, [one for one in rotary_suspects(it.spec, seen) if seen.may_be(one, it.spec)], built)


def _chosen(dense: Answer) -> tuple[int | None, int | None, np.ndarray]:
    """The first wrong position, the first right one after it, and some wrong positions and others."""
    bad = dense.wrong[0, 0].any(axis=-1)
    wrong = np.flatnonzero(bad)
    first = int(wrong[0]) if len(wrong) else None
    right = np.flatnonzero(~bad[first:]) if first is not None else wrong
    some = np.unique(
        np.concatenate(
            [
                wrong[:24],
                wrong[-8:],
                wrong[np.linspace(0, len(wrong) - 1, 24).astype(int)] if len(wrong) else [],
                np.array([0, 1]),
            ]
        ).astype(np.int64)
    )
    # With the position before each, to locate where errors begin.
    at = np.unique(np.concatenate([some, np.maximum(some - 1, 0)]))
    return first, (first or 0) + int(right[0]) if len(right) else None, at


def _wrong_side(it: CheckedRotary, runs: list[ExperimentRun]) -> str | None:
    """``"key"`` or ``"query"`` if only these are wrong, else None."""
    if not it.called.shape.pairs:
        return None
    names = {one.experiment.name for one in runs}
    failed = failed_of(runs)
    if failed.keys() & set(KEYS):
        return "key" if failed.keys() <= set(KEYS) else None
    for one in runs:
        # Keys have fewer experiments, so a correct key counts only for an experiment that queries and keys both have.
        if one.experiment.name in failed and LIKE_KEYS.get(one.experiment.name) in names:
            for each in one.answers:
                rows = each.wrong.any(axis=-1)
                if (
                    each.positions is not None
                    and (np.broadcast_to(each.positions, rows.shape)[rows] < KEYS_UP_TO).any()
                ):
                    return "query"
    return None


def _recognised(it: CheckedRotary) -> tuple[Rotary, ...]:
    """The specs of the RoPE that the function computes, if it is another known one."""
    if it.spec.axes is not None or it.called.shape.pairs or len(it.called.axes) > 2 or it.length < 300:
        return ()

    def answer_of(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return it(x[None, None], positions)[0, 0]

    with suppress(ClockhandsError, Refused):
        matches = identify(answer_of, width=it.spec.head_width, backend="numpy", dtype="float64", longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, Rotary) and match.spec.base)
    return ()


def unexplained(it: CheckedRotary, runs: Sequence[ExperimentRun]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    if told := of_any_code(it, runs, ROTARY):
        return told
    failed = failed_of(runs)
    still = np.setdiff1d(np.arange(it.spec.head_width), it.spec.channels.reshape(-1))
    wrong_channels = np.unique(
        np.concatenate(
            [
                np.flatnonzero(each.wrong.reshape(-1, each.shares.shape[-1]).any(axis=0))
                for one in failed.values()
                for each in one.answers
                if each.shares.shape[-1] == it.spec.head_width
            ]
            or [np.empty(0, int)]
        )
    )
    if len(still) and len(wrong_channels) and np.isin(wrong_channels, still).all():
        some = ", ".join(map(str, wrong_channels[:4])) + (
            f" and {len(wrong_channels) - 4} more" if len(wrong_channels) > 4 else ""
        )
        return (explanation_of(ROTARY["unrotated-channels-turned"], {"channels": some}),)
    every = failed.get("every position")
    few = "" if every is None else few_numbers(every.answers[0])
    return (explanation_of(ROTARY["one-number-wrong"], {"which": few}),) if few else ()


def remembers(runs: Sequence[ExperimentRun]) -> tuple[Explanation, ...]:
    """The explanation that short sequences are right at first and wrong after longer ones; or empty."""
    failed = failed_of(runs)
    sound = {one.experiment.name for one in runs} - failed.keys()
    if "a short sequence" in sound and {"repeated call", "after a longer sequence"} & failed.keys():
        return (explanation_of(ROTARY["remembers-longest"], {}),)
    return ()


def one_sided(told: tuple[Explanation, ...], side: str | None) -> tuple[Explanation, ...]:
    """The explanations, with the remark that only keys or only queries are affected, if that is so."""
    if side is None or not told:
        return told
    one, others = ("keys", "queries") if side == "key" else ("queries", "keys")
    message = f"{told[0].message.removesuffix('.')}, for {one} only: {others} are correct."
    return (replace(told[0], message=message), *told[1:])
