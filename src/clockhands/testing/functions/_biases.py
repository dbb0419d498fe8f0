"""`check_bias`: whether a function gives the numbers that a bias adds to scores.

The expected output is `clockhands.bias` in float64. A constant added to a whole row of scores does not change the
softmax, so every row is compared relative to the nearest visible key, unless ``exact`` is set.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.biases import BiasCode, bias
from clockhands.errors import InvalidValue
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.recognition.faults import BIAS, SHARDING
from clockhands.recognition.suspects import Behind, BiasObservations, FaultModel, GivenValues, bias_suspects
from clockhands.testing._checks import checked, function_of, made, named, resolved
from clockhands.testing._experiments import Answer, Experiment, ExperimentRun, Unasked, failed_of
from clockhands.testing.functions._bias_calls import CalledBias, bias_arguments
from clockhands.testing.functions._bias_subject import (
    EVERY,
    MEASURED,
    OF_PART,
    SMALL,
    BiasAnswer,
    CheckedBias,
    measured,
    table_seen,
)
from clockhands.testing.functions._rank_parts import head_part, head_suspects, sequence_part
from clockhands.testing.functions._suspects import exact_fits, explanation_of, explanations, fitting
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report, settled

LENGTH = 10_000
# A function that takes counts may build the whole square of queries and keys for one row; this bounds its numbers.
_SQUARE = 2**25


def check_bias(
    fn: Callable[..., Any] | None = None,
    like: BiasCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    call: str | None = None,
    aligned: str = "end",
    heads: str | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    zigzag: bool = False,
    causal: bool | None = None,
    exact: bool = False,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function gives the numbers that a bias adds to scores.

    ``fn(queries, keys) -> [heads, queries, keys]``, called for full passes, single queries and chunks after a cache,
    longer and shorter sequences than before, any order, and every distance below `length`. Failures are explained by
    trying every known fault.

    For instance the bias of T5 in Transformers, which takes counts and the number of earlier keys:
    ``check_bias(lambda q, k: attention.compute_bias(q, k, past_seen_tokens=k - q), "t5:heads=12", call="counts")``.

    A number that is added to a whole row of scores does not change the softmax. So rows are compared up to a constant,
    unless `exact`: ``slope k`` is as correct as ``-slope (q - k)``. Axes of size 1 before the heads are allowed, and
    one row for all queries if they are equal, as in ``[1, heads, 1, keys]``.

    Args:
        fn: The function, in any array library.
        like: The expected bias: a spec, or a preset's name with fields (``"bloom:heads=12"``).
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        values: Learned numbers, as `clockhands.bias` takes them (T5: ``table`` [buckets, heads]). If they are omitted
            for a bias with a lookup table, the function's own are measured, and which distances share a row is checked.
        call: The arguments of the function: ``"queries, keys"``, two arrays of positions; ``"counts"``, two numbers,
            with the queries at the last keys; ``"keys"``, the number of keys, for all queries or one;
            ``"heads -> slopes"`` if it returns the slopes of a linear bias for a number of heads. By default it is read
            from the names of the parameters, such as ``attention_mask, num_heads, dtype`` or ``n_heads, seq_len``, and
            is ``"queries, keys"`` if they are not known.
        aligned: ``"start"`` if a function that takes counts has its queries at the first keys.
        causal: Whether keys after their query are masked, so that their numbers do not matter. By default true for
            biases of decoders: ALiBi in all forms but the symmetric one, buckets of one side, FIRE and others.
        exact: Whether constants of rows are compared too.
        heads: The heads of a rank, for a function that returns only these: ``"4:8"``.
        rank: The rank whose queries a function with ``call="counts"`` has, of a split sequence; it gets all keys.
        ranks: The number of ranks.
        zigzag: Whether a rank has two chunks, one from each end, as in ring attention; see `check_rotary`.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The precision that the numbers must have: a bias stored in bfloat16 fails unless this is bfloat16.
        length: Positions 0 to ``length - 1`` are checked: 10,000 by default; if the function takes counts, as many as
            make a square of 2**25 numbers in all heads, at least 512 and at most 10,000.
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report; with failures only if ``raises`` is false.

    Accuracy: the error of a number may be that of correct float32 arithmetic, derived in `clockhands.testing.bounds`,
        plus the rounding to the dtype. A distance on the edge of two buckets may be in either.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message gives the call and its result.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def one_series(queries, keys): return ch.bias(ch.Alibi(12, series="plain"), queries, keys)
    >>> report = check_bias(one_series, ch.Alibi(12), length=300, raises=False)
    >>> sorted(report.codes)
    ['slopes-rule']
    """
    __tracebackhide__ = True
    spec = resolved(like, BiasCode, "bias")
    causal = masks_later_keys(spec, causal)
    if values is not None:
        values = (
            {name: as_numpy(each) for name, each in values.items()} if isinstance(values, dict) else as_numpy(values)
        )
    function = function_of(fn, make, spec)
    meant, arguments = bias_arguments(function, call)
    length = _length(spec, length, meant)
    part, own = sequence_part(rank, ranks, zigzag, None), head_part(heads, spec.heads)
    if part is not None and meant != "counts":
        raise InvalidValue("`rank` is for functions that count their queries.", 'Pass call="counts".')
    called = CalledBias(
        function,
        spec.heads if own is None else len(own),
        spec=spec,
        part=part,
        tokens=None if spec.ordered else length,
        call=meant,
        arguments=arguments,
        aligned=aligned,
        backend=backend,
        dtype=dtype,
        timeout=timeout,
    )

    def another(own: BiasCode, _: str | None) -> CheckedBias:
        assert make is not None
        number = own.heads if it.heads is None else len(it.heads)
        return replace(it.for_spec(own), called=called.beside(made(make, own), number))

    build = None if make is None else another
    it = CheckedBias(
        spec, called, length, build, causal=causal, exact=bool(exact), given=GivenValues(values), heads=own
    )
    if values is None and spec.learned and (own is not None or part is not None):
        raise InvalidValue("The learned numbers of all heads are needed for a rank's part.", "Pass values=.")
    if values is None and spec.learned:
        it = _with_own_values(it)
    else:
        bias(spec, [0], [0], values=values)  # raises for wrong values before the function is called
    experiments = (*SMALL, *MEASURED, EVERY) if it.measured else (*SMALL, EVERY)
    if part is not None:
        experiments = OF_PART
    unknown = "the learned values are not known: pass values="
    report = checked(
        "bias",
        named(fn, make),
        it,
        experiments,
        partial(_explained, it),
        raises=False,
        failure_of=failure_of,
        summary=lambda asked: {"keys after the query": _later(asked, causal)},
        left_out={"keys before and after exchanged": unknown} if it.measured and spec.ordered else {},
    )
    if not report.sound and not report.explanations and (meant, aligned) == ("counts", "end"):
        at_start = check_bias(
            fn, like, make=make, values=values, call=call, aligned="start", heads=heads, rank=rank, ranks=ranks,
            zigzag=zigzag, causal=causal, exact=exact, backend=backend, dtype=dtype, length=length, timeout=timeout,
            raises=False,
        )  # fmt: skip
        if at_start.explanations:
            report = replace(at_start, left_out={**at_start.left_out, "queries at the last keys": _AT_START})
    return settled(report, raises)


_AT_START = "it returns rows of queries at the first keys; its caller takes the last ones, or they are wrong besides"


def _length(spec: BiasCode, length: int | None, call: str) -> int:
    if not spec.ordered:
        return int(spec.tokens)  # type: ignore[attr-defined]
    if length is not None:
        return count("length", length, least=2)
    if call in {"queries, keys", "heads -> slopes"}:
        return LENGTH
    return min(LENGTH, max(math.isqrt(_SQUARE // spec.heads), 512))


def _with_own_values(it: CheckedBias) -> CheckedBias:
    """The same function with its own learned numbers, measured under the assumption that it is correct."""
    if not it.spec.looked_up:
        names = " and ".join(it.spec.shapes)
        raise InvalidValue(
            f"{type(it.spec).__name__} has learned numbers, but `values` is missing.", f"Pass {names} as values=."
        )
    try:
        blocks = measured(it)
    except Refused as error:
        raise CannotCheck(
            f"The learned values of the function could not be read by calling it: {error}.",
            f"Pass length= for a function of fewer than {it.length:,} positions, or values=.",
        ) from error.__cause__
    numbers = np.concatenate([block.reshape(it.spec.heads, -1) for _, _, block in blocks], axis=1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size or np.ptp(finite) == 0:
        raise CannotCheck(
            "All values of the function are the same: its table is not trained, or it adds no bias.",
            "Fill the table with different values, such as random ones, and pass values=.",
        )
    behind, certain = Behind(blocks, {}), table_seen(it.spec, blocks) / getattr(it.spec, "scale", 1.0)
    # A row whose only distances are on an edge of two buckets has the numbers of these distances.
    behind.known[it.spec] = np.nan_to_num(np.where(np.isnan(certain), behind.table(it.spec), certain))
    return replace(it, given=behind, measured=True)


def _later(asked: list[ExperimentRun], causal: bool) -> str:
    masked = {each.masked for one in asked for each in one.answers if isinstance(each, BiasAnswer)} - {None}
    if masked == {True}:
        return "masked"
    return "not compared" if causal else "compared"


def masks_later_keys(spec: BiasCode, causal: bool | None) -> bool:
    """Whether keys after the query are masked: ``causal`` if given, else as this kind of bias is used."""
    if causal is not None:
        if causal and not spec.ordered:
            raise InvalidValue(
                f"{type(spec).__name__} is for tokens on a plane, where no token comes before another, so it has no "
                "causal form.",
                "Leave `causal` out.",
            )
        return bool(causal)
    return spec.keys_after in ("as itself", "more")


def failure_of(experiment: Experiment, answer: Answer) -> Failure | None:
    """The failure of an answer, with head, query and key of the nearest wrong number; None if none is wrong."""
    over = answer.shares
    if not over.size or over.max() <= 1:
        return None
    wrong = answer.wrong
    if not isinstance(answer, BiasAnswer) or answer.queries is None or answer.keys is None:
        assert answer.positions is not None
        rows = answer.positions[wrong].tolist()
        some = ", ".join(map(str, rows[:6])) + (", ..." if len(rows) > 6 else "")
        message = f"{len(rows)} of {wrong.size} rows of its table equal another row: {some}."
        return Failure(experiment.name, message, {"rows": rows})
    apart = answer.queries[:, None] - answer.keys[None, :]
    # The wrong number of the smallest distance is the most useful one to look at.
    ranked = np.where(wrong, np.abs(apart)[None], np.iinfo(np.int64).max)
    head, query, key = np.unravel_index(int(np.argmin(ranked)), over.shape)
    at, to = int(answer.queries[query]), int(answer.keys[key])
    evidence: dict[str, Any] = {
        "asked": answer.asked,
        "head": int(head),
        "query": at,
        "key": to,
        "distance": at - to,
        "got": float(answer.got[head, query, key]),
        "right": float(answer.wanted[head, query, key]),
        "allowed": float(np.broadcast_to(answer.allowed, over.shape)[head, query, key]),
        "wrong": int(wrong.sum()),
        "of": int(wrong.size),
        "heads": np.flatnonzero(wrong.any(axis=(1, 2))).tolist(),
    }
    message = (
        f"{answer.asked}: {evidence['wrong']:,} of {evidence['of']:,} numbers are wrong; in head {head}, of the query "
        f"at {at:,} and the key at {to:,}, expected {evidence['right']:.6g} ± {evidence['allowed']:.2g}, got "
        f"{evidence['got']:.6g}."
    )
    return Failure(experiment.name, message, evidence)


_HEADS = 16  # in which suspects are compared


def _explained(it: CheckedBias, asked: list[ExperimentRun]) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    # Suspects run the quick experiments, and "every distance" only if no quick experiment failed.
    compared = [one for one in asked if one.experiment in (*SMALL, *OF_PART)]
    if not any(one.wrong for one in compared):
        compared += [one for one in asked if one.experiment is EVERY]
    if not any(one.wrong for one in compared):
        return unexplained(it, asked)
    measured_too, only = seen(it, asked), _some_heads(it, asked)
    if only is not None:
        compared = [ExperimentRun(one.experiment, [_of(each, only) for each in one.answers]) for one in compared]

    some = replace(it, only=only)
    for suspects in _of_parts(it, measured_too):
        if found := exact_fits(compared, suspects, some.suspected):
            return explanations(found, SHARDING, None)
    found, note = fitting(compared, list(bias_suspects(it.spec, measured_too)), some.suspected)
    if (note or not found) and (largest := _constant_for_each_row(it, asked)) is not None:
        return (explanation_of(BIAS["constant-for-each-row"], {"largest": largest}),)
    return explanations(found, BIAS, note) if found else unexplained(it, asked)


def _constant_for_each_row(it: CheckedBias, asked: Sequence[ExperimentRun]) -> float | None:
    """The largest of the constants by which rows differ from the expected ones; None if a row differs otherwise."""
    found = [0.0]
    for each in (answer for one in asked for answer in one.answers):
        if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
            return None
        seen = (each.queries[:, None] >= each.keys) | (not it.causal)
        rows = seen.any(axis=1)
        off, allowed = (each.got - each.wanted)[:, rows], np.broadcast_to(each.allowed, each.got.shape)[:, rows]
        least = np.where(seen[rows], off, np.inf).min(axis=-1)
        most = np.where(seen[rows], off, -np.inf).max(axis=-1)
        if not (most - least <= 2 * allowed.max(axis=-1)).all():
            return None
        found.append(float(np.maximum(np.abs(least), np.abs(most)).max(initial=0)))
    return max(found)


def _of_parts(it: CheckedBias, measured_too: BiasObservations) -> Iterator[Iterable[FaultModel]]:
    """Suspects that mistake which heads, or which queries, a rank has."""
    if it.heads is not None:
        yield head_suspects(it.spec, it.heads, measured_too)
    if it.called.part is not None:
        for code, parameters, positions in it.called.part.mistaken():
            yield [
                measured_too.suspect(
                    code, parameters, places=lambda queries, keys, at=positions: (at(len(queries)), keys)
                )
            ]


def _some_heads(it: CheckedBias, asked: list[ExperimentRun]) -> np.ndarray | None:
    """The indices of at most 16 heads, wrong ones (up to 12) and correct ones; None if there are no more than 16."""
    heads = it.spec.heads if it.heads is None else len(it.heads)
    if heads <= _HEADS:
        return None
    wrong = np.zeros(heads, bool)
    for one in asked:
        for each in one.answers:
            if len(each.got) == heads:
                wrong |= each.wrong.any(axis=(1, 2))
    some, others = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    some = some[np.linspace(0, len(some) - 1, min(len(some), _HEADS - 4)).astype(int)]
    others = others[np.linspace(0, len(others) - 1, min(len(others), _HEADS - len(some))).astype(int)]
    return np.sort(np.concatenate([some, others]))


def _of(answer: Answer, heads: np.ndarray) -> Answer:
    heads = heads[heads < len(answer.got)]
    allowed = np.broadcast_to(answer.allowed, answer.got.shape)
    return replace(answer, got=answer.got[heads], wanted=answer.wanted[heads], allowed=allowed[heads])


def seen(it: CheckedBias, asked: Sequence[ExperimentRun]) -> BiasObservations:
    """Measure how the numbers of the function relate to the expected ones."""
    wrong_at = []
    factors: np.ndarray | None = None
    order = None
    for one in asked:
        for each in one.answers:
            if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
                continue
            apart = np.abs(each.queries[:, None] - each.keys[None, :])
            wrong = each.wrong.any(axis=0)
            wrong_at += [int(apart[wrong].min())] if wrong.any() else []
            if factors is None:
                factors, order = _factors(each), _order(each)
    first_wrong = min(wrong_at, default=None)
    known = np.full(it.spec.heads, np.nan) if factors is None else factors
    if it.heads is not None:  # the heads of other ranks are not seen: they are taken to be like these, or right
        alike = np.ptp(known[: len(it.heads)]) < 1e-3
        known, every = np.full(it.spec.heads, known[0] if alike else 1.0), np.arange(it.spec.heads)
        known[it.heads] = np.nan if factors is None else factors
        every[it.heads] = it.heads if order is None else it.heads.start + order
        order = None if order is None else every
    return BiasObservations(
        it.given, it.causal, it.exact, it.takes_positions, it.length, first_wrong, known, order, _later_keys_differ(it)
    )


def _later_keys_differ(it: CheckedBias) -> bool:
    """Whether keys after a query have several finite numbers, and not those of keys as far before it."""
    keys = np.arange(min(40, it.length))
    with suppress(Refused, Unasked):
        matrix = it.called(keys, keys)
        later, earlier = matrix[:, 0, 1:], matrix[:, -1, -2::-1]
        least = 1e-3 * np.abs(later).max()
        several = np.isfinite(later).all() and np.ptp(later, axis=-1).max(initial=0) > least
        return bool(several and np.abs(later - earlier).max() > least)
    return False


def _factors(answer: BiasAnswer) -> np.ndarray:
    """The factor of each head's numbers to the expected ones, [heads]; NaN if it leaves 1e-4 of the squared numbers."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if not np.isfinite(got).all():
        return np.full(len(got), np.nan)
    whole = (wanted**2).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (got * wanted).sum(axis=-1) / whole
        left = ((got - factors[:, None] * wanted) ** 2).sum(axis=-1) / (got**2).sum(axis=-1)
    return np.where(left < 1e-4, factors, np.nan)


def _order(answer: BiasAnswer) -> np.ndarray | None:
    """For each head the head whose numbers it has, [heads], if heads are exchanged; else None."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if len(got) < 2 or not np.isfinite(got).all():
        return None
    off = ((got[:, None] - wanted[None]) ** 2).sum(axis=-1)
    order = np.argmin(off, axis=-1)
    size = (wanted[order] ** 2).sum(axis=-1)
    exact = (off[np.arange(len(got)), order] <= 1e-4 * size).all()
    exchanged = exact and len(np.unique(order)) == len(order)
    return order if exchanged and not np.array_equal(order, np.arange(len(got))) else None


def unexplained(it: CheckedBias, asked: Sequence[ExperimentRun]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    failed = failed_of(asked)
    if it.called.changed:
        return (explanation_of(BIAS["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if it.called.overwrites:
        return (explanation_of(BIAS["overwrites-its-answers"], {}),)
    if set(failed) == {"separate buckets"}:
        each = failed["separate buckets"].answers[0]
        assert each.positions is not None
        rows = each.positions[each.wrong].tolist()
        return (explanation_of(BIAS["buckets-not-apart"], {"which": "rows " + ", ".join(map(str, rows[:6]))}),)
    few = _few(it.spec, [each for one in failed.values() for each in one.answers])
    return (explanation_of(BIAS["one-number-wrong"], {"which": few}),) if few else ()


def _few(spec: BiasCode, answers: Sequence[Answer]) -> str:
    """The wrong distances and heads, as a phrase, if they are few (at most 8, or 0.5 % of those tested); else empty."""
    distances: set[int] = set()
    heads: set[int] = set()
    asked: set[int] = set()
    parts = []
    for each in answers:
        if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
            return ""
        apart = each.queries[:, None] - each.keys[None, :]
        parts.append((apart, each.wrong, (apart == 0).any(axis=-1)))
    # A row relative to the query's own key is wrong only at the wrong keys. A row relative to another key is wrong
    # everywhere if that key is wrong.
    plain = any(wrong[:, own].any() for _, wrong, own in parts)
    for apart, wrong, own in parts:
        rows = own if plain else np.ones_like(own)
        asked |= set(np.unique(apart[rows]).tolist())
        distances |= set(np.unique(apart[rows][wrong[:, rows].any(axis=0)]).tolist())
        heads |= set(np.flatnonzero(wrong[:, rows].any(axis=(1, 2))).tolist())
    if not distances or len(distances) > max(8, len(asked) // 200):
        return ""
    at = sorted(distances, key=abs)
    where = f"distance {at[0]:,}" if len(at) == 1 else f"{len(at)} distances (the nearest is {at[0]:,})"
    if spec.slopes is not None or len(heads) < spec.heads:
        where += f", in head{'s' if len(heads) > 1 else ''} {', '.join(map(str, sorted(heads)[:6]))}"
    return where
