"""`check_rotary`: whether somebody's function turns queries and keys as a rotary code says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count, shown
from clockhands.calling import Refused
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.faults.fault import Suspect
from clockhands.faults.rotary import Seen, rotary_suspects
from clockhands.faults.rotary_rows import ROTARY
from clockhands.memory import refuse_larger
from clockhands.rotary import Rotary
from clockhands.testing.experiments import (
    COPIES,
    Answer,
    Asked,
    Experiment,
    asked_all,
    failed_of,
    function_of,
    named,
    report_of,
    resolved,
)
from clockhands.testing.functions.calls import PAIRS, Called, spaced
from clockhands.testing.functions.rotary_experiments import (
    EVERY,
    KEYS,
    KEYS_UP_TO,
    LIKE_KEYS,
    SMALL,
    RotaryFunction,
    RotarySuspect,
)
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


def check_rotary(
    fn: Callable[..., Any] | None = None,
    like: Rotary | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    keys: Callable[..., Any] | None = None,
    axes: str = "seq width",
    call: str = "x, positions",
    positions: str = "seq",
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function turns queries and keys as a rotary code says.

    ``(a, b) -> f (a cos(p r) - b sin(p r), a sin(p r) + b cos(p r))`` for each pair of rate ``r`` at position ``p``,
    asked at every position below `length`, in any order, for batches, packed and one token at a time, in a coarser
    dtype, before and after other calls. What fails is explained by trying every known fault.

    Args:
        fn: The function, of one's own library.
        like: The code that it should be: a spec, or a preset's name with fields (``"llama3.1"``).
        make: A function(spec) that builds the function for a spec: two models of one process are then asked too.
        keys: The function for keys, where they are treated otherwise (xPos).
        axes: The axes of x in the function's order: ``"batch heads seq width"``.
        call: What it is called with: ``"x, positions"``, ``"x"`` where it counts its rows itself, ``"x, offset"``,
            ``"q, k, positions"``, of which it gives back both.
        positions: The axes of its positions: ``"seq"``, ``"batch seq"``, with ``axes`` for codes of several.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; found out unless said.
        dtype: The dtype of its tokens.
        length: Positions 0 to ``length - 1`` are asked: 10,000, or fewer where the code's scaling ends before.
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
    >>> def turned(x, positions): return ch.rotate(x, ch.Rotary(8, base=500.0), positions)
    >>> report = check_rotary(turned, ch.Rotary(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    spec = resolved(like, Rotary, "rotary")
    length = asked_length(spec, length)
    if spec.number_of_axes > 1 and spaced(call) in {"x", "x, offset"}:
        raise InvalidValue(
            f"`call` is {shown(call)}, and tokens of {spec.number_of_axes} coordinates cannot be counted.",
            'Say call="x, positions" or "q, k, positions": wrap the function so that it takes them.',
        )

    def outside(
        function: Callable[..., Any], own: Rotary, key: Callable[..., Any] | None = None, first: str | None = None
    ) -> RotaryFunction:
        as_called = partial(
            Called,
            width=own.head_width,
            axes=axes,
            call=call,
            positions=positions,
            coordinates=own.number_of_axes,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
        )
        called = as_called(function, first=first)
        called.most = length
        other = None if key is None else as_called(key)
        return RotaryFunction(own, called, length, called.coarse, other, build)

    build = None if make is None else (lambda own, first: outside(make(own), own, first=first))
    it = outside(function_of(fn, make, spec), spec, keys)
    asked, left_out = asked_all(it, (*SMALL, EVERY))
    report = report_of("rotary", named(fn, make), spec, asked, left_out, called=it.called)
    if not report.sound:
        report = replace(report, explanations=_explained(it, asked))
    return settled(report, raises)


def asked_length(spec: Rotary, length: int | None) -> int:
    """Positions that are asked: those that are said, or as many as the rates of the spec hold for."""
    if length is not None:
        length = count("length", length)
        refuse_larger(
            (length, spec.head_width), COPIES * 8, "What every position is asked with", "Say a smaller length=."
        )
        return length
    original = getattr(spec.scaling, "original", None)
    # Rates that follow the length in use are those of the spec only up to there.
    if original is not None and _follows_length(spec):
        return min(LENGTH, spec.length or original)
    return LENGTH


def _follows_length(spec: Rotary) -> bool:
    original = spec.scaling.original  # type: ignore[union-attr]
    try:
        return replace(spec, length=4 * original).rates != replace(spec, length=original).rates
    except ClockhandsError:
        return False


def _explained(it: RotaryFunction, asked: list[Asked]) -> tuple[Explanation, ...]:
    """What the failures look like."""
    small = [one for one in asked if one.experiment is not EVERY]
    every = next((one for one in asked if one.experiment is EVERY), None)
    first_wrong = None
    if every is not None:
        first_wrong, chosen = _chosen(every.answers[0])
        with suppress(Refused):
            small.append(Asked(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, asked)
    side = _wrong_side(it, asked)
    seen = _seen(it, first_wrong, side)

    def tried() -> Iterator[Suspect]:
        yield from rotary_suspects(it.spec, seen)
        if it.call == PAIRS:
            from clockhands.faults.turning import Turning

            yield Suspect(("queries-and-keys-crossed",), {}, lambda: Turning)

    def built(suspect: Suspect) -> RotarySuspect:
        return RotarySuspect.of_suspect(suspect, it, side)

    found, note = fitting(small, tried(), built)
    failed = failed_of(asked)
    if not found and "a short sequence" in failed:
        seen = replace(seen, specs=_recognised(it))
        if seen.specs:
            found, note = fitting(small, rotary_suspects(it.spec, seen), built)
    told = (
        explanations(found, ROTARY, note)
        or remembers(asked)
        or (() if it.spec.axes else collided(it, ROTARY))
        or _by_rates(it.spec, seen)
        or unexplained(it, asked)
    )
    return one_sided(only_coarse(told, asked, it.coarse), side)


def _chosen(dense: Answer) -> tuple[int | None, Experiment]:
    """Rows of all positions at which it is wrong, and others, as a question that is quick to ask."""
    wrong = np.flatnonzero((dense.shares[0, 0] > 1).any(axis=-1))
    first = int(wrong[0]) if len(wrong) else None
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
    # The position before each is told apart from it.
    at = np.unique(np.concatenate([some, np.maximum(some - 1, 0)]))

    def run(implementation: Any) -> list[Answer]:
        return [implementation.answer("chosen positions", implementation.tokens(1, 1, len(at), seed=18), at)]

    return first, Experiment("chosen positions", "Positions at which it is wrong, and others.", run)


def _wrong_side(it: RotaryFunction, asked: list[Asked]) -> str | None:
    """``"key"`` or ``"query"`` where only one of both is wrong."""
    if it.call != PAIRS:
        return None
    names = {one.experiment.name for one in asked}
    failed = failed_of(asked)
    if failed.keys() & set(KEYS):
        return "key" if failed.keys() <= set(KEYS) else None
    for one in asked:
        # Keys are asked for less: what they pass says only something of what was asked of both.
        if one.experiment.name in failed and LIKE_KEYS.get(one.experiment.name) in names:
            for each in one.answers:
                rows = (each.shares > 1).any(axis=-1)
                if (
                    each.positions is not None
                    and (np.broadcast_to(each.positions, rows.shape)[rows] < KEYS_UP_TO).any()
                ):
                    return "query"
    return None


def _seen(it: RotaryFunction, first_wrong: int | None, side: str | None = None) -> Seen:
    """Measure the turning of the declared pairs."""
    powers = [2**power for power in range(1, 18) if 2**power < it.length]
    at = np.array([0, 1, *powers])
    spec = it.spec.in_order
    first, second = spec.channels.T
    measured = []
    try:
        for seed in (19, 20):
            x = it.tokens(1, 1, len(at), seed=seed)
            y = it.answer("the turning of pairs", x, at, role="key" if side == "key" else None).got
            with np.errstate(invalid="ignore", divide="ignore"):
                measured.append(((y[..., first] + 1j * y[..., second]) / (x[..., first] + 1j * x[..., second]))[0, 0])
    except Refused:
        measured = []
    turning = measured[0] if measured else np.zeros((0, len(first)), complex)
    alike = bool(measured) and bool(
        (np.abs(measured[0] - measured[1]) <= 0.05 * np.maximum(np.abs(measured[0]), 0.1)).mean() > 0.98
    )
    seen = Seen(
        it.dtype,
        it.coarse,
        it.length,
        first_wrong,
        at if measured else at[:0],
        turning,
        alike,
        axes=it.called.axes,
    )
    return replace(seen, stands=seen.apparent(it.spec))


def _by_rates(spec: Rotary, seen: Seen) -> tuple[Explanation, ...]:
    """What can be said of a rotation that turns evenly, by rates that no known fault makes."""
    rates = seen.rates() if seen.evenly() else None
    if rates is None:
        return ()
    sign = -1.0 if spec.direction == "backward" else 1.0
    declared, rates = np.array(spec.rates), sign * rates
    # A turning is known to within 0.05 over the longest position that it was measured at.
    wrong = np.flatnonzero(np.abs(rates - declared) > 0.05 / max(int(seen.positions.max()), 1))
    if not len(wrong):
        return ()
    pair = int(wrong[0])
    parameters = {
        "wrong": len(wrong),
        "pairs": len(rates),
        "pair": pair,
        "rate": float(rates[pair]),
        "declared": float(declared[pair]),
        "rates": tuple(map(float, rates)),
    }
    falling = bool((np.diff(rates) < 0).all() and rates[-1] > 0)
    code = "rates-uninitialised" if not falling and len(wrong) > len(rates) // 2 else "other-rates"
    return (told_of(ROTARY[code], parameters),)


def _recognised(it: RotaryFunction) -> tuple[Rotary, ...]:
    """What it is, where it is a rotary code of another spec."""
    from clockhands.recognition import identify

    if it.spec.axes is not None or it.call == PAIRS or len(it.called.axes) > 2 or it.length < 300:
        return ()

    def asked(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return it(x[None, None], positions)[0, 0]

    with suppress(ClockhandsError, Refused):
        matches = identify(asked, width=it.spec.head_width, backend="numpy", dtype="float64", longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, Rotary) and match.spec.base)
    return ()


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common, by rules."""
    if told := of_any_code(it, asked, ROTARY):
        return told
    failed = failed_of(asked)
    still = np.setdiff1d(np.arange(it.spec.head_width), it.spec.channels.reshape(-1))
    wrong_channels = np.unique(
        np.concatenate(
            [
                np.flatnonzero((each.shares > 1).reshape(-1, each.shares.shape[-1]).any(axis=0))
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
        return (told_of(ROTARY["unrotated-channels-turned"], {"channels": some}),)
    every = failed.get("every position")
    few = "" if every is None else few_numbers(every.answers[0])
    return (told_of(ROTARY["one-number-wrong"], {"which": few}),) if few else ()


def remembers(asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What was right at first, and is not once something longer was asked."""
    failed = failed_of(asked)
    sound = {one.experiment.name for one in asked} - failed.keys()
    if "a short sequence" in sound and {"asked again", "after a longer sequence"} & failed.keys():
        return (told_of(ROTARY["remembers-longest"], {}),)
    return ()


def one_sided(told: tuple[Explanation, ...], side: str | None) -> tuple[Explanation, ...]:
    """What was told, with the word that it is so for keys or for queries only, where it is."""
    if side is None or not told:
        return told
    one, others = ("keys", "queries") if side == "key" else ("queries", "keys")
    message = f"{told[0].message.removesuffix('.')}, for {one} only: {others} are right."
    return (replace(told[0], message=message), *told[1:])
