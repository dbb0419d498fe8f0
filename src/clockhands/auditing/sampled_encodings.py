"""An encoding of the user's own as a spec with numbers, sampled from calls: so that its properties are measured.

What it adds, how it rotates and its bias are looked at as `clockhands.identify` looks at a function or a table. Where
that finds no code, rows are taken as a table, and a bias as one number for each distance. Where the numbers depend on
the tokens, or are known as scores alone, the mean score of a key that equals the query stands for them, by distance.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.auditing._audits import Audit, judged
from clockhands.auditing._held_numbers import HeldCode
from clockhands.auditing.target_properties import CodeProperties, TargetProperties
from clockhands.configs.opened import Opened
from clockhands.configs.own_encodings import NamedEncoding
from clockhands.configs.resolve import code_of, resolve
from clockhands.encodings import rotary
from clockhands.encodings.additive import Learned
from clockhands.encodings.biases import Buckets, bias
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.protocols import ModelSizes
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.measures import Properties, properties
from clockhands.measures.property import Property, not_computed
from clockhands.phrases import said
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.testing.encodings import DrawnTokens, EncodingCalls, EncodingSubject, drawn_tokens

LENGTH = 1_024
"""Positions that are sampled of a table or a bias, unless more are asked for."""

SAMPLED = 256
"""Positions that are sampled for the explorer."""

_DRAWN, _DRAWN_LENGTH = 16, 256
"""Sequences and tokens from which the mean of numbers that depend on the tokens is taken."""


def sampled_codes(named: NamedEncoding, length: int = LENGTH) -> list[HeldCode]:
    """What an encoding adds, how it rotates and its bias, each as a spec with numbers, or why there is none.

    Args:
        named: The encoding.
        length: Positions that are sampled of a table or a bias.

    Accuracy: that of the encoding's own arithmetic, float32; a code that `clockhands.identify` finds is exact.

    Raises:
        Unreadable, InvalidType: The encoding cannot be made, or refuses a call.
        CannotCheck: It cannot be called.
    """
    calls = EncodingCalls(named.made(ModelSizes(length=length), seed=0), ModelSizes(length=length))
    try:
        return _codes_of(calls, _taken(calls, length))
    except Refused as error:
        raise Unreadable(
            f"{named.name} of {named.file} was called to sample it, but {error}.", "`clockhands check` tests its laws."
        ) from error.__cause__


def _codes_of(calls: EncodingCalls, length: int) -> list[HeldCode]:
    depends = EncodingSubject(calls, 24).depends_on_tokens
    if calls.scored and (depends or calls.methods == ("scores",)):
        return [_mean_scores(calls, min(length, _DRAWN_LENGTH), depends or "it has `scores` alone")]
    if depends:
        return [HeldCode(why=f"Its numbers cannot be sampled by position alone: {depends}.")]
    return list(_sampled(calls, length))


def _taken(calls: EncodingCalls, length: int) -> int:
    """The number of positions that it takes: this one, or a half, a quarter and so on of it."""
    for number in (length, *(length >> shift for shift in range(1, 6))):
        tokens = drawn_tokens(calls.sizes, [number - 1], batch=1)
        with suppress(Refused):
            if calls.adds:
                calls.added(tokens)
            if calls.scored:
                calls.scores(tokens)
            return number
    raise Unreadable(f"It takes none of the positions {length >> 5:,} to {length - 1:,}.", "Pass a shorter --length.")


def _mean_scores(calls: EncodingCalls, length: int, why: str) -> HeldCode:
    """The scores of the last query with keys that equal it, by distance: the mean over drawn tokens in each head."""
    tokens = drawn_tokens(calls.sizes, range(length), batch=_DRAWN)
    same = replace(tokens, k=np.broadcast_to(tokens.q[:, :, -1:], tokens.k.shape))
    drawn = calls.scores(same)[:, :, -1, ::-1]
    alone = (tokens.q[:, :, -1:] ** 2).sum(-1) / np.sqrt(calls.sizes.head_width)
    numbers = drawn - alone
    spread = float(numbers.std(axis=0).max())
    note = (
        f"Sampled by calls: {why}. The numbers are what it adds to the score of a key that equals the query, by "
        f"distance: the mean over {_DRAWN} drawn sequences of {length} tokens. Of single sequences they differ from it "
        f"by up to {said(spread)} (standard deviation)."
    )
    return HeldCode(*_by_distance(numbers.mean(axis=0)), (note,), length=length)


def _by_distance(numbers: np.ndarray) -> tuple[Buckets, np.ndarray]:
    """A bias [heads, distances] as a table of one bucket for each distance."""
    heads, length = numbers.shape
    # The first n buckets of 2 n are one distance each.
    spec = Buckets(heads=heads, buckets=2 * length, max_distance=4 * length, bidirectional=False)
    return spec, np.concatenate([numbers, np.repeat(numbers[:, -1:], length, axis=1)], axis=1).T


def _sampled(calls: EncodingCalls, length: int) -> Iterator[HeldCode]:
    tokens = drawn_tokens(calls.sizes, range(length), batch=1)
    if calls.adds:
        rows = (calls.added(tokens) - tokens.x)[0]
        yield _found(identify(rows), Learned(width=rows.shape[1], rows=length), rows)
    if "rotate" in calls.methods:

        def rotated(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
            heads = np.broadcast_to(x, (1, calls.sizes.heads, *x.shape))
            return calls.rotated(DrawnTokens(np.zeros((1, len(x), calls.sizes.width)), heads, heads, positions))[0][
                0, 0
            ]

        found = identify(rotated, width=calls.sizes.head_width, backend="numpy")
        if found and _rotates_as(calls, tokens, found[0].spec):
            told = f"Sampled by calls, and compared for queries and keys of all heads at {length:,} positions."
            yield HeldCode(found[0].spec, None, (told,), length=length)
        else:
            yield _mean_scores(calls, min(length, _DRAWN_LENGTH), f"no spec rotates as it does ({found.reason})")
    if "bias" in calls.methods:
        yield _bias(calls, tokens, length)


def _rotates_as(calls: EncodingCalls, tokens: DrawnTokens, spec: Any) -> bool:
    """Whether queries and keys of all heads are rotated as by a spec: within float32 phases at these positions."""
    wanted = rotary.rotate_both(tokens.q, tokens.k, spec, tokens.positions)
    slack = 2.0**-18 + len(tokens.positions) * 2.0**-22
    got = calls.rotated(tokens)
    return all(
        np.allclose(one, other, rtol=0, atol=slack * np.abs(other).max())
        for one, other in zip(got, wanted, strict=True)
    )


def _bias(calls: EncodingCalls, tokens: DrawnTokens, length: int) -> HeldCode:
    last = calls.biased(tokens, slice(length - 1, None))[0, :, 0, ::-1]
    few = calls.biased(tokens.only(slice(32)))[0]
    by_distance = all(np.allclose(few[:, row, row::-1], last[:, : row + 1], atol=1e-5) for row in range(32))
    if not by_distance:
        return HeldCode(why="Its bias does not depend on the distance alone, so it has no number for each distance.")
    if not np.isfinite(last).all():
        return HeldCode(why="It masks some keys (minus infinity), which no table of numbers by distance holds.")
    matches = identify(few)
    if matches and not _biased_as(matches[0], last):
        matches = []
    return _found(matches, *_by_distance(last))


def _biased_as(match: Any, last: np.ndarray) -> bool:
    """Whether a bias that was found in few numbers gives those of all distances."""
    length = last.shape[1]
    try:
        wanted = bias(match.spec, 1, length, values=match.values)[:, 0, ::-1]
    except ClockhandsError:
        return False
    return wanted.shape == last.shape and bool(np.allclose(wanted, last, rtol=2.0**-18, atol=2.0**-18))


def _found(matches: Any, otherwise: Any, values: np.ndarray) -> HeldCode:
    """The code that was found, if it gives the numbers; else the sampled numbers."""
    match = matches[0] if matches else None
    if match is not None and match.residual is None and match.computed:
        notes = (f"Sampled by calls, and recognised: {matches.reason}",)
        return HeldCode(match.spec, match.values, notes, length=len(values))
    length = len(values) // 2 if isinstance(otherwise, Buckets) else len(values)
    told = (
        f"Sampled by calls: the numbers of {length:,} {'distances' if isinstance(otherwise, Buckets) else 'positions'}."
    )
    return HeldCode(otherwise, values, (told,), length=length)


def own_properties(named: NamedEncoding, length: int | None = None, dtype: str = "float32") -> TargetProperties:
    """The properties of an encoding of the user's own, by sampling, and what could not be sampled.

    Args:
        named: The encoding.
        length: Tokens to sample and measure; 1,024 unless given, and fewer where it takes fewer, or where the mean over
            drawn tokens stands for its numbers (256).
        dtype: What its numbers are rounded to.

    Raises:
        Unreadable: No number could be sampled.
    """
    kind = output_dtype(dtype).name
    found = []
    for held in sampled_codes(named, length or LENGTH):
        code = (
            replace(code_of(held.spec, None, None), part="own") if held.spec is not None else code_of(None, None, None)
        )
        one = CodeProperties(code, held.spec, None, kind, None, held.notes, held.why)
        if held.spec is not None:
            assert held.length is not None  # what was sampled has a length
            over = held.length if length is None else min(length, held.length)
            measured = properties(held.spec, over, dtype, values=held.values)
            if held.values is not None and isinstance(held.spec, Learned | Buckets):
                measured = replace(measured, **_as_sampled(measured, over))
                told = f"{_HELD[type(held.spec)]}, sampled"
                one = replace(one, code=replace(code, kind=None), sampled=told)
            one = replace(one, length=over, properties=measured)
        found.append(one)
    if not any(each.properties for each in found):
        why = " ".join(filter(None, (each.why for each in found)))
        raise Unreadable(f"{named.name} of {named.file} was not measured. {why}", "`clockhands check` tests its laws.")
    return TargetProperties(f"{named.file}:{named.name}", tuple(found))


_HELD = {Learned: "a row for each position", Buckets: "a number for each distance"}


_OF_NUMBERS = ("unique", "smooth", "kernel", "spectrum", "adding", "reach", "told_apart")
"""Properties that follow from sampled numbers, whatever gives them further on."""


def _as_sampled(measured: Properties, length: int) -> dict[str, Property]:
    """The properties as far as they follow from sampled numbers, not from the table that holds them."""
    why = not_computed(f"The encoding was sampled over {length:,} tokens; its form beyond them is not known.")
    found = {}
    for name, each in measured:
        if name not in _OF_NUMBERS and each.state == "measured":
            found[name] = why
        elif each.state == "measured":
            says = each.says.replace("T5's buckets", "the sampled bias")
            found[name] = replace(each, says=says.partition(" All keys after the query")[0])
    return found


def audit_of_own(named: NamedEncoding) -> Audit:
    """An encoding of the user's own as the explorer takes a preset: by the spec that was recognised from its numbers.

    Raises:
        Unreadable: No spec gives its numbers.
    """
    held = sampled_codes(named, SAMPLED)
    spec = next((each.spec for each in held if not isinstance(each.spec, Learned | None)), None)
    if spec is None:
        why = " ".join(filter(None, (each.why for each in held))) or "No frequencies or slopes give its numbers."
        raise Unreadable(
            f"{named.name} of {named.file} cannot be drawn. {why}",
            "`clockhands check` tests its laws.",
        )
    opened = Opened(f"{named.file}:{named.name}", "preset", spec=spec)
    try:
        found = judged(opened, resolve(opened))
    except ClockhandsError as error:
        raise Unreadable(f"{named.name} of {named.file} cannot be drawn. {error.message}", error.hint) from None
    return replace(found, not_covered=("its code: what is shown was sampled by calls",))
