"""`check_bias`: whether somebody's function adds to scores what a bias says."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.biases import BiasCode, bias
from clockhands.calling import Refused, as_numpy
from clockhands.errors import InvalidValue
from clockhands.faults.biases import bias_suspects
from clockhands.faults.biasing import Behind, Given
from clockhands.faults.fault import Suspect
from clockhands.testing.bias_asking import InsideBias, OutsideBias
from clockhands.testing.bias_bounds import looks_up
from clockhands.testing.bias_calling import CalledBias
from clockhands.testing.bias_experiments import EVERY, SMALL, BiasAnswer, masks_later_keys
from clockhands.testing.bias_measuring import MEASURED, measured, table_seen
from clockhands.testing.bias_telling import FAULTS_OF_BIASES, failure_of, seen, unexplained
from clockhands.testing.experiments import Answer
from clockhands.testing.explaining import Asked, explanations, fitting
from clockhands.testing.judging import asked_all, function_of, named, report_of, resolved
from clockhands.testing.reports import CannotCheck, Explanation, Report, settled

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
        `clockhands.testing.bias_bounds`, and rounded to the dtype. A distance that lies on the edge of two buckets
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
    it = OutsideBias(spec, called, length, causal, bool(exact), Given(values), make)
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


def _with_own_values(it: OutsideBias) -> OutsideBias:
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


def _explained(it: OutsideBias, asked: list[Asked]) -> tuple[Explanation, ...]:
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

    def built(suspect: Suspect) -> InsideBias:
        return InsideBias.of_suspect(suspect, it, only)

    found, note = fitting(compared, bias_suspects(it.spec, measured_too), built)
    return explanations(found, FAULTS_OF_BIASES, note) if found else unexplained(it, asked)


def _some_heads(it: OutsideBias, asked: list[Asked]) -> np.ndarray | None:
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
