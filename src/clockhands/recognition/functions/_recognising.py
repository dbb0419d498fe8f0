"""Reading a code of positions out of running code, by feeding it rows and looking at what comes out.

The order of questions: what does a row depend on (`_behaviour`); is it ``x`` plus a table, or a rotation of pairs
(`_rotated_pairs`); how fast does each pair rotate, and what is rounded on the way (`_phases`); which ladder is that
(`clockhands.recognition._fitting`). Then the code that was found is run at other positions and on other rows,
and what it gives is compared with what the function gives.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.errors import InvalidValue
from clockhands.recognition._functions_calling import Caller, Refused, callable_or_refuse
from clockhands.recognition._matches import Match, Matches
from clockhands.recognition.functions._additions import identify_additive
from clockhands.recognition.functions._behaviour import ALWAYS_ANOTHER, LONGEST_CALL, Behaviour, Unfit, equal, look
from clockhands.recognition.functions._rotary_codes import identify_by_length, identify_rotation
from clockhands.recognition.functions._rotated_pairs import NoRotation

LONGEST = 131_072


def identify_function(
    function: Callable[..., Any],
    width: int | None = None,
    *,
    backend: str | None = None,
    dtype: str = "float32",
    longest: int = LONGEST,
    timeout: float = 60.0,
) -> Matches:
    """The code that a function(x [seq, width], positions [seq]) -> [seq, width] applies: a rotation, or a table added.

    It is called some forty times, with some ten thousand rows in all (`Match.evidence` says how many; up to ten times
    as many where it looks at their number), never with more than 4,097 at once. Its arguments are arrays of its own
    library; positions are whole numbers in any order, some twice, and parts of a token where it takes them; none is
    negative. Nothing of JAX's or PyTorch's settings is changed, and no library is imported that is not there
    already.

    Args:
        function: One head, no batch, queries or keys alone. `functools.partial`, modules and methods are functions.
        width: Channels of ``x``.
        backend: ``"numpy"``, ``"torch"`` or ``"jax"``; found by what the function speaks of and accepts, unless said.
        dtype: The dtype of ``x``, float32 unless said. JAX without its 64-bit mode makes float32 of float64.
        longest: The largest position that may be asked for.
        timeout: Seconds for a call.

    Returns:
        One match, or none with `Matches.reason`. `Match.spec` is a `Rotary` (or an additive code); ``error`` the
        largest difference from `clockhands.rotate` (or `add`) over every row compared, for ``x`` of at most 1.5;
        ``confidence`` the share of those rows that the spec gives within what the function's own arithmetic explains;
        ``computed_in`` the coarsest dtype that its phases go through (``"float64"`` stands for exact ones too);
        ``name`` a preset; ``equivalents`` other specs with the same rates within what was measured. ``evidence`` holds
        the measured ``rates`` of all pairs and their ``bounds``, the ``attention_factor``, what is rounded to which
        dtype (``rates_in``, ``positions_in``, ``phases_in``, ``table_in``), ``first_wrong_position`` (off by more than
        0.01), ``last_length_alike`` (the most rows of a call, where longer calls are another code), what could not be
        told (``undetermined``), and ``calls`` and ``rows``.

    Accuracy: rates are known to about 2**-22 / longest rad/token where the function computes in float32.

    Raises:
        InvalidValue: It cannot be called like that, a call does not return in time, or ``width`` is missing; the
            message holds what it raised.
        InvalidType: It is no function.

    >>> from clockhands.rotary import Rotary, rotate
    >>> def turned(x, positions): return rotate(x, Rotary(16, "interleaved", base=500_000.0), positions)
    >>> match = identify_function(turned, width=16)[0]
    >>> match.spec.layout, match.spec.base, match.computed_in
    ('interleaved', 500000.0, 'float64')
    """
    callable_or_refuse(function)
    if width is None:
        raise InvalidValue("`width` must be given for a function, got None.", "It is the width of x: the head width.")
    caller = Caller(function, count("width", width), backend, dtype, timeout)
    longest = count("longest", longest, least=4)
    x, at = np.random.default_rng(1).integers(-96, 97, (3, caller.width)) / 64, np.array([0, 2, 7])
    try:
        before = caller(x, at)
        match, reason = _answer(caller, longest)
        state = _kept_state(caller, x, at, before)
    except Refused as error:
        raise InvalidValue(
            f"The function failed for other rows or positions: {error}.",
            f"It must accept any number of rows and any position up to {longest:,}; for fewer, pass longest=.",
        ) from error.__cause__
    if match is None and state and not reason.startswith(ALWAYS_ANOTHER):
        return Matches((), state)  # what changes in between looks like anything
    return Matches(() if match is None else (_counted(match, caller),), f"{reason} {state}".rstrip())


def _answer(caller: Caller, longest: int) -> tuple[Match | None, str]:
    """What it is and why, or why it is none."""
    try:
        behaviour = look(caller, longest)
        zeros = behaviour.reader(np.zeros((3, caller.width)), np.array([0, 2, 7]))
        is_added = np.abs(zeros).max() > 0
        find = identify_additive if is_added else identify_by_length if behaviour.by_largest else identify_rotation
        match, reason = find(behaviour)
        if match is not None and behaviour.last_length_alike is not None:
            match = _in_long_calls(match, behaviour)
    except (Unfit, NoRotation) as answer:
        return None, str(answer)
    return match, " ".join([reason, *behaviour.notes])


def _kept_state(caller: Caller, x: np.ndarray, at: np.ndarray, before: np.ndarray) -> str:
    """What to say where the very first question has another answer now."""
    with suppress(Refused):
        after = caller(x, at)
        finite = np.isfinite(before)
        if (finite == np.isfinite(after)).all() and equal(caller, before[finite], after[finite]):
            return ""
    return f"It is stateful: the first call, repeated {caller.calls} calls later, returned a different result."


def _in_long_calls(match: Match, behaviour: Behaviour) -> Match:
    """The match with the rows of a call that is too long for it: they count as much as those of short calls."""
    caller, draw = behaviour.reader.caller, np.random.default_rng(10)
    x = draw.integers(-96, 97, (LONGEST_CALL, caller.width)) / 64
    at = np.arange(LONGEST_CALL)
    some = np.sort(draw.permutation(min(LONGEST_CALL, behaviour.longest))[:256])
    long, short = caller(x, at)[some], behaviour.reader(x[some], at[some])
    alike = np.mean([equal(caller, *rows) for rows in zip(short, long, strict=True)])
    return replace(
        match,
        error=max(match.error, float(np.abs(long - short).max())),
        confidence=float(match.confidence * (1 + alike) / 2),
        evidence=(*match.evidence, ("last_length_alike", behaviour.last_length_alike)),
    )


def _counted(match: Match, caller: Caller) -> Match:
    seen = (("library", caller.library.name), ("output", caller.output), ("calls", caller.calls), ("rows", caller.rows))
    return replace(match, evidence=(*match.evidence, *seen))
