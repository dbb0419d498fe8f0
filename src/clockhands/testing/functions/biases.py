"""`check_bias`: whether somebody's function adds to scores what a bias says."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.biases import BiasCode, TableCode, bias, row_numbers
from clockhands.biases.linear import Alibi, Decay
from clockhands.calling import Refused, as_numpy
from clockhands.errors import InvalidValue
from clockhands.faults import bias_rows
from clockhands.faults.biases import SeenBias, bias_suspects
from clockhands.faults.biasing import Behind, Given, alone, table_of
from clockhands.faults.fault import Fault, Suspect
from clockhands.testing.bounds import UNIT, looks_up, near_edge
from clockhands.testing.experiments import (
    Answer,
    Asked,
    Experiment,
    asked_all,
    experiment,
    failed_of,
    function_of,
    named,
    report_of,
    resolved,
)
from clockhands.testing.functions.bias_experiments import (
    EVERY,
    SMALL,
    BiasAnswer,
    BiasFunction,
    BiasSuspect,
    masks_later_keys,
    standing,
)
from clockhands.testing.functions.calls import CalledBias
from clockhands.testing.functions.suspects import explanations, fitting, told_of
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report, settled

LENGTH = 10_000
# A function that counts may build the whole square to give one row: so many numbers of it are asked for.
_SQUARE = 2**25
# Suspects are compared in so many heads.
_HEADS = 16


def check_bias(
    fn: Callable[..., Any] | None = None,
    like: BiasCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    call: str = "queries, keys",
    aligned: str = "end",
    causal: bool | None = None,
    exact: bool = False,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function gives the numbers that a bias adds to scores.

    ``fn(queries, keys) -> [heads, queries, keys]``, asked for full passes, single queries and chunks after a cache,
    longer and shorter sequences than before, any order, and every distance below `length`. What fails is explained by
    trying every known fault.

    T5's of Transformers, for instance, which counts and is told how many keys came before:
    ``check_bias(lambda q, k: attention.compute_bias(q, k, past_seen_tokens=k - q), "t5:heads=12", call="counts")``.

    Softmax does not see a number that is added to a whole row of scores. So rows are compared up to a constant, unless
    `exact`: ``slope k`` is as right as ``-slope (q - k)``. Axes of size 1 before the heads are allowed, and one row
    for all queries where they are alike, as in ``[1, heads, 1, keys]``.

    Args:
        fn: The function, of one's own library.
        like: The bias that it should be: a spec, or a preset's name with fields (``"bloom:heads=12"``).
        make: A function(spec) that builds the function for a spec: two models of one process are then asked too.
        values: Learned numbers, as `clockhands.bias` takes them (T5: ``table`` [buckets, heads]). Left out for a code
            that looks its numbers up, the function's own are measured, and which distances share a row is checked.
        call: What it is called with: ``"queries, keys"``, two arrays of positions; ``"counts"``, two numbers, of
            which the queries stand at the last of the keys; ``"keys"``, the number of keys, for all queries or one.
        aligned: ``"start"`` where queries that are counted stand at the first of the keys.
        causal: Whether keys after their query are masked anyway, so that any number may stand there. Left out, so it
            is for codes of decoders: ALiBi in all forms but the symmetric one, buckets of one side, FIRE and others.
        exact: Whether constants of rows are compared too.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; found out unless said.
        dtype: What the numbers should be good for: one that is held in bfloat16 fails unless it is said.
        length: Positions 0 to ``length - 1`` are asked: 10,000, or as many as make a square of 2**25 numbers of all
            heads where the function counts.
        timeout: Seconds for a call.
        raises: Whether a failure is raised; else it is in the report.

    Returns:
        The report; where something failed and ``raises`` is false too.

    Accuracy: a number may be off by what honest float32 arithmetic makes of it, derived in
        `clockhands.testing.bounds`, and rounded to the dtype. A distance that lies on the edge of two buckets
        may be in either.

    Raises:
        CheckFailed: Something failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message says what came back.
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
    length = _length(spec, length, call)
    called = CalledBias(
        function_of(fn, make, spec),
        spec.heads,
        tokens=None if spec.ordered else length,
        call=call,
        aligned=aligned,
        backend=backend,
        dtype=dtype,
        timeout=timeout,
    )
    it = BiasFunction(spec, called, length, causal, bool(exact), Given(values), make)
    if values is None and spec.learned:
        it = _with_own_values(it)
    else:
        bias(spec, [0], [0], values=values)  # what is wrong with the values is said before anything is asked
    experiments = (*SMALL, *MEASURED, EVERY) if it.measured else (*SMALL, EVERY)
    asked, left_out = asked_all(it, experiments)
    if it.measured and spec.ordered:
        left_out["keys before and after exchanged"] = "the learned numbers are not known: say values="
    report = report_of(
        "bias",
        named(fn, make),
        spec,
        asked,
        left_out,
        called=called,
        told={"keys after the query": _later(asked, causal)},
        failure_of=failure_of,
    )
    if not report.sound:
        report = replace(report, explanations=_explained(it, asked))
    return settled(report, raises)


def _length(spec: BiasCode, length: int | None, call: str) -> int:
    if not spec.ordered:
        return int(spec.tokens)  # type: ignore[attr-defined]
    if length is not None:
        return count("length", length, least=2)
    if call == "queries, keys":
        return LENGTH
    return min(LENGTH, max(math.isqrt(_SQUARE // spec.heads), 512))


def _with_own_values(it: BiasFunction) -> BiasFunction:
    """The same with the function's own learned numbers, as they are if it is right."""
    if not looks_up(it.spec):
        names = " and ".join(it.spec.shapes)
        raise InvalidValue(
            f"{type(it.spec).__name__} has learned numbers, and `values` is missing.", f"Pass {names} as values=."
        )
    try:
        blocks = measured(it)
    except Refused as error:
        raise CannotCheck(
            f"The function was asked for its own learned numbers: {error}.",
            f"Say length= for a function of fewer than {it.length:,} positions, or values=.",
        ) from error.__cause__
    numbers = np.concatenate([block.reshape(it.spec.heads, -1) for _, _, block in blocks], axis=1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size or np.ptp(finite) == 0:
        raise CannotCheck(
            "All numbers of the function are the same: its table is not trained, or it adds no bias.",
            "Fill the table with different numbers, such as random ones, and say values=.",
        )
    table = np.nan_to_num(table_seen(it.spec, blocks)) / getattr(it.spec, "scale", 1.0)
    return replace(it, given=Behind(blocks, {it.spec: table}), measured=True)


def _later(asked: list[Asked], causal: bool) -> str:
    masked = {each.masked for one in asked for each in one.answers if isinstance(each, BiasAnswer)} - {None}
    if masked == {True}:
        return "masked"
    return "not compared" if causal else "compared"


def _explained(it: BiasFunction, asked: list[Asked]) -> tuple[Explanation, ...]:
    """What the failures look like."""
    # Suspects are asked what is quick to ask, and every distance only where nothing else shows what is wrong.
    compared = [one for one in asked if one.experiment in SMALL]
    if not any(one.wrong for one in compared):
        compared += [one for one in asked if one.experiment is EVERY]
    if not any(one.wrong for one in compared):
        return unexplained(it, asked)
    measured_too, only = seen(it, asked), _some_heads(it, asked)
    if only is not None:
        compared = [Asked(one.experiment, [_of(each, only) for each in one.answers]) for one in compared]

    def built(suspect: Suspect) -> BiasSuspect:
        return BiasSuspect.of_suspect(suspect, it, only)

    found, note = fitting(compared, bias_suspects(it.spec, measured_too), built)
    return explanations(found, FAULTS_OF_BIASES, note) if found else unexplained(it, asked)


def _some_heads(it: BiasFunction, asked: list[Asked]) -> np.ndarray | None:
    """Sixteen heads, of those that are wrong and of the others, where there are many more; None for all."""
    heads = it.spec.heads
    if heads <= _HEADS:
        return None
    wrong = np.zeros(heads, bool)
    for one in asked:
        for each in one.answers:
            if len(each.got) == heads:
                wrong |= (each.shares > 1).any(axis=(1, 2))
    some, others = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    some = some[np.linspace(0, len(some) - 1, min(len(some), _HEADS - 4)).astype(int)]
    others = others[np.linspace(0, len(others) - 1, min(len(others), _HEADS - len(some))).astype(int)]
    return np.sort(np.concatenate([some, others]))


def _of(answer: Answer, heads: np.ndarray) -> Answer:
    heads = heads[heads < len(answer.got)]
    allowed = np.broadcast_to(answer.allowed, answer.got.shape)
    return replace(answer, got=answer.got[heads], wanted=answer.wanted[heads], allowed=allowed[heads])


FAULTS_OF_BIASES: Mapping[str, Fault] = {fault.code: fault for fault in bias_rows.FAULTS}
"""The words for a fault where it is one of a bias."""


def failure_of(experiment: Experiment, answer: Answer) -> Failure | None:
    """What is wrong with an answer, by its heads, queries and keys."""
    over = answer.shares
    if not over.size or over.max() <= 1:
        return None
    wrong = over > 1
    if not isinstance(answer, BiasAnswer) or answer.queries is None or answer.keys is None:
        assert answer.positions is not None
        rows = answer.positions[wrong].tolist()
        some = ", ".join(map(str, rows[:6])) + (", ..." if len(rows) > 6 else "")
        message = f"{len(rows)} of {wrong.size} rows of its table are like another one: {some}."
        return Failure(experiment.name, message, {"rows": rows})
    apart = answer.queries[:, None] - answer.keys[None, :]
    # The first wrong one is the nearest: that is where to look.
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
        f"at {at:,} and the key at {to:,}, it is {evidence['got']:.6g}, right is {evidence['right']:.6g} within "
        f"{evidence['allowed']:.2g}."
    )
    return Failure(experiment.name, message, evidence)


def seen(it: BiasFunction, asked: Sequence[Asked]) -> SeenBias:
    """Measure how the numbers that came back go with the right ones."""
    wrong_at = []
    factors: np.ndarray | None = None
    order = None
    for one in asked:
        for each in one.answers:
            if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
                continue
            apart = np.abs(each.queries[:, None] - each.keys[None, :])
            wrong = (each.shares > 1).any(axis=0)
            wrong_at += [int(apart[wrong].min())] if wrong.any() else []
            if factors is None:
                factors, order = _factors(each), _order(each)
    first_wrong = min(wrong_at, default=None)
    none = np.full(it.spec.heads, np.nan)
    known = none if factors is None else factors
    return SeenBias(it.given, it.causal, it.exact, it.takes_positions, it.length, first_wrong, known, order)


def _factors(answer: BiasAnswer) -> np.ndarray:
    """What each head's numbers are times the right ones; NaN where that leaves more than rounding."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if not np.isfinite(got).all():
        return np.full(len(got), np.nan)
    whole = (wanted**2).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (got * wanted).sum(axis=-1) / whole
        left = ((got - factors[:, None] * wanted) ** 2).sum(axis=-1) / (got**2).sum(axis=-1)
    return np.where(left < 1e-4, factors, np.nan)


def _order(answer: BiasAnswer) -> np.ndarray | None:
    """Whose numbers each head has, where they are another's."""
    got, wanted = (numbers.reshape(len(numbers), -1) for numbers in (answer.got, answer.wanted))
    if len(got) < 2 or not np.isfinite(got).all():
        return None
    off = ((got[:, None] - wanted[None]) ** 2).sum(axis=-1)
    order = np.argmin(off, axis=-1)
    size = (wanted[order] ** 2).sum(axis=-1)
    exact = (off[np.arange(len(got)), order] <= 1e-4 * size).all()
    exchanged = exact and len(np.unique(order)) == len(order)
    return order if exchanged and not np.array_equal(order, np.arange(len(got))) else None


def unexplained(it: BiasFunction, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common, by rules."""
    failed = failed_of(asked)
    if it.called.changed:
        return (told_of(FAULTS_OF_BIASES["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if set(failed) == {"buckets of their own"}:
        each = failed["buckets of their own"].answers[0]
        assert each.positions is not None
        rows = each.positions[each.shares > 1].tolist()
        return (told_of(FAULTS_OF_BIASES["buckets-not-apart"], {"which": "rows " + ", ".join(map(str, rows[:6]))}),)
    few = _few(it.spec, [each for one in failed.values() for each in one.answers])
    return (told_of(FAULTS_OF_BIASES["one-number-wrong"], {"which": few}),) if few else ()


def _few(spec: BiasCode, answers: Sequence[Answer]) -> str:
    """The few distances at which a bias is wrong that is right elsewhere, in words."""
    distances: set[int] = set()
    heads: set[int] = set()
    asked: set[int] = set()
    parts = []
    for each in answers:
        if not isinstance(each, BiasAnswer) or each.queries is None or each.keys is None:
            return ""
        apart = each.queries[:, None] - each.keys[None, :]
        parts.append((apart, each.shares > 1, (apart == 0).any(axis=-1)))
    # Rows that are read from the query's own key are wrong only where they are wrong, not where they are read from.
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
    if isinstance(spec, Alibi | Decay) or len(heads) < spec.heads:
        where += f", in head{'s' if len(heads) > 1 else ''} {', '.join(map(str, sorted(heads)[:6]))}"
    return where


def measured(it: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers of a function that show every row of its table: queries, keys and numbers [heads, queries, keys].

    Those at keys that nobody sees are left out (NaN).
    """
    spec = it.spec
    blocks = []
    if not it.takes_positions or not spec.ordered:
        number = min(it.length, max(64, int((2**18 / spec.heads) ** 0.5))) if spec.ordered else it.length
        blocks.append(standing(it, number, number))
        if spec.ordered and it.aligned == "end" and _rows_in(spec, number) < _rows_in(spec, it.length):
            blocks.append(standing(it, 1, it.length))
    else:
        at = np.arange(it.length)
        blocks += [(at[-1:], at), (at[:1], at)]
    found = []
    for queries, keys in blocks:
        unseen = it.causal & (queries[:, None] < keys[None, :])
        found.append((queries, keys, np.where(unseen, np.nan, it(queries, keys))))
    return found


def _rows_in(spec: TableCode, length: int) -> int:
    """How many rows the last query of so many keys takes."""
    return len(np.unique(row_numbers(spec, 1, length)))


def table_seen(spec: TableCode, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """The table that gives these numbers, [rows, heads]; NaN where no number shows a row.

    Numbers at distances on an edge of two buckets are not looked at: they may be in either.
    """
    parts = []
    for queries, keys, numbers in blocks:
        apart = queries[:, None] - keys[None, :]
        edge = near_edge(spec, apart) if spec.reads == "distance" else np.zeros(apart.shape, bool)
        parts.append((row_numbers(spec, queries, keys), np.where(edge, np.nan, numbers)))
    return table_of(parts, spec.rows)


def rows_apart(it: Any) -> list[Answer]:
    """Distances of different buckets have different numbers, in one head at least."""
    table = table_seen(it.spec, measured(it))
    taken = np.flatnonzero(np.isfinite(table).all(axis=-1))
    found = alone(table[taken], 8 * max(UNIT[it.dtype], 2.0**-24)).astype(float)
    shape = (1, 1, len(taken))
    return [
        Answer("rows of the table", found.reshape(shape), np.ones(shape), np.full(shape, 0.5), taken.reshape(shape))
    ]


MEASURED = (experiment("buckets of their own", rows_apart),)
"""Asked where a function's own learned numbers are measured."""
