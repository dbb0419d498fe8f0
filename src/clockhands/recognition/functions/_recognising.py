"""Recognition of the position encoding of a function, from its outputs for chosen rows.

The order of the steps: what an output row depends on (`_behaviour`); whether the function adds a table to ``x`` or
rotates pairs (`_rotated_pairs`); the frequency of each pair, and what is rounded (`_phases`); the ladder
(`clockhands.recognition._fitting`). Finally, the recognised code is computed at other positions and on other rows, and
compared with the function.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition._functions_calling import Caller, Refused
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
    """Find the encoding of a function(x [seq, width], positions [seq]) -> [seq, width]: a rotation, or an added table.

    The function is called about 40 times with about 10,000 rows in total (`Match.evidence` has the exact numbers; ten
    times as many if it depends on the number of rows), with at most 4,097 rows in a call. Its arguments are arrays of
    its library. Positions are integers in any order, some of them repeated, and fractions of a token if it accepts
    them; none is negative. The settings of JAX and PyTorch are not changed, and no library is imported that is not
    imported already.

    Args:
        function: For one head without batch, queries or keys alone; also a `functools.partial`, module or method.
        width: Number of channels of ``x``.
        backend: ``"numpy"``, ``"torch"`` or ``"jax"``; by default found from the function's code and what it accepts.
        dtype: The dtype of ``x``, float32 by default. JAX without its 64-bit mode converts float64 to float32.
        longest: The largest position that may be passed.
        timeout: The longest time of a call in seconds.

    Returns:
        One match, or none with `Matches.reason`. `Match.spec` is a `Rotary` (or an additive code). ``error`` is the
        largest difference from `clockhands.rotate` (or `add`) over all compared rows, for ``x`` of at most 1.5.
        ``confidence`` is the share of these rows in which the difference is explained by the function's own arithmetic.
        ``computed_in`` is the least precise dtype in the computation of its phases (``"float64"`` also for exact ones).
        ``name`` is a preset, and ``equivalents`` are other specs with the same rates within the measurement error.
        ``evidence`` has the measured ``rates`` of all pairs and their ``bounds`` (rad/token), the ``attention_factor``,
        what is rounded to which dtype (``rates_in``, ``positions_in``, ``phases_in``, ``table_in``),
        ``first_wrong_position`` (an error above 0.01), ``last_length_alike`` (the most rows of a call, if longer calls
        have another code), what could not be determined (``undetermined``), and ``calls`` and ``rows``.

    Accuracy: rates are known to about 2**-22 / longest rad/token if the function computes in float32.

    Raises:
        InvalidValue: The function cannot be called like this, a call does not return in time, or ``width`` is missing;
            the message says what the function raised.
        InvalidType: It is not a function.

    >>> from clockhands.encodings.rotary import Rotary, rotate
    >>> def turned(x, positions): return rotate(x, Rotary(16, "interleaved", base=500_000.0), positions)
    >>> match = identify_function(turned, width=16)[0]
    >>> match.spec.layout, match.spec.base, match.computed_in
    ('interleaved', 500000.0, 'float64')
    """
    if not callable(function):
        raise InvalidType(
            f"Expected a function(x [seq, width], positions [seq]), got {shown(function)}.",
            "Pass a function; to identify a table, pass the array of its rows.",
        )
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
        return Matches((), state)  # a change between calls explains any other reason
    return Matches(() if match is None else (_counted(match, caller),), f"{reason} {state}".rstrip())


def _answer(caller: Caller, longest: int) -> tuple[Match | None, str]:
    """The match or None, and the reason."""
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
    """A sentence if repeating the first call gives another result; else an empty string."""
    with suppress(Refused):
        after = caller(x, at)
        finite = np.isfinite(before)
        if (finite == np.isfinite(after)).all() and equal(caller, before[finite], after[finite]):
            return ""
    return f"It is stateful: the first call, repeated {caller.calls} calls later, returned a different result."


def _in_long_calls(match: Match, behaviour: Behaviour) -> Match:
    """The match with the rows of a call that is longer than its code allows; they are half of the confidence."""
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
