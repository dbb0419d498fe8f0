"""Saying what is wrong with a bias: what failed, what was measured of it, and what no suspect explains."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clockhands.biases import BiasCode
from clockhands.biases.linear import Alibi, Decay
from clockhands.faults import BIAS, Fault, SeenBias
from clockhands.testing.bias_asking import OutsideBias
from clockhands.testing.bias_experiments import BiasAnswer
from clockhands.testing.experiments import Answer, Experiment
from clockhands.testing.explaining import Asked, failed_of, told_of
from clockhands.testing.reports import Explanation, Failure

FAULTS_OF_BIASES: Mapping[str, Fault] = BIAS
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


def seen(it: OutsideBias, asked: Sequence[Asked]) -> SeenBias:
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


def unexplained(it: OutsideBias, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
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
