"""Bias suspects: every known fault of a bias, with the parameters to try."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.biases import BiasCode, Buckets, CeilingBuckets, Clipped, Kerple, TableCode, Window
from clockhands.encodings.biases.linear import Alibi, Decay, Slopes
from clockhands.encodings.dtypes import rounded
from clockhands.encodings.usual_values import BUCKETS, LAST_DISTANCES
from clockhands.errors import ClockhandsError
from clockhands.recognition.suspects._bias_code import (
    FORMS,
    Apply,
    BiasObservations,
    Places,
    Rows,
    StagedBias,
    bias_stateful,
)
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._stages import COARSE


def bias_suspects(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    """Suspects to try, the simple ones first."""
    if spec.slopes is not None:
        yield from _slopes(spec, seen)
    if isinstance(spec, Alibi | Slopes):
        yield from _forms(spec, seen)
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        yield from _buckets(spec, seen)
    if isinstance(spec, Kerple):
        yield from _kernels(spec, seen)
    if isinstance(spec, Window):
        yield seen.built("axes-exchanged", {}, lambda it: _column_by_column(it, seen))
    yield seen.built("other-direction", {}, lambda it: _transposed(it, seen))
    yield from _sizes(spec, seen)
    yield from _dropped(spec, seen)
    if spec.ordered:
        yield from _moved(seen)
        yield from _clipped_distances(spec, seen)
    yield from _rounded(spec, seen)
    yield from bias_stateful(spec, seen)


def _slopes(spec: Any, seen: BiasObservations) -> Iterator[FaultModel]:
    own = _slopes_of(spec)
    known = [own, -own]
    for code, words, made in _rules(spec):
        slopes = made(spec)
        if any(_alike(slopes, other) for other in known):
            continue
        known.append(slopes)
        yield seen.built(
            code,
            {"rule": words, "used": _first_other_slope(slopes, own), "declared": _first_other_slope(own, slopes)},
            lambda it, made=made: seen.right(it, slopes=made(it)),
        )
    yield seen.built("slope-sign", {}, lambda it: seen.right(it, slopes=-_slopes_of(it)))
    factors = seen.factors
    if not np.isfinite(factors).all() or (np.abs(factors) < 1e-3).any():
        return
    slopes = own * factors
    if any(_alike(slopes, other, 0.01) for other in known) or np.ptp(factors) <= 1e-3 * np.abs(factors).max():
        return
    same = _alike(np.sort(slopes), np.sort(own))
    rule = "the right slopes in another order of heads" if same else "slopes of no known rule"
    yield seen.built(
        "slopes-rule",
        {"rule": rule, "used": _first_other_slope(slopes, own), "declared": _first_other_slope(own, slopes)},
        lambda it: seen.right(it, slopes=slopes if it.heads == len(slopes) else None),
    )


_Rule = tuple[str, str, Callable[[Any], np.ndarray]]
"""The code of a fault, the rule in words, and the slopes by this rule."""


def _rules(spec: Any) -> Iterator[_Rule]:
    if not isinstance(spec, Alibi):
        yield from _DECAY_RULES if isinstance(spec, Decay) else (_REVERSED,)
        return
    yield from _ALIBI_RULES
    for octaves in (1, 2, 4, 8, 16):
        yield (
            "slopes-rule",
            f"the last slope is 2 ** -{octaves} instead of 2 ** -{spec.octaves:g}",
            lambda it, octaves=octaves: _slopes_of(replace(it, octaves=float(octaves))),
        )
    for ranks in (2, 4, 8):
        if spec.heads % ranks == 0 and spec.heads > ranks:
            yield (
                "slopes-rule",
                f"each of {ranks} ranks makes the slopes of as many heads as it has",
                lambda it, ranks=ranks: np.tile(_slopes_of(replace(it, heads=it.heads // ranks)), ranks),
            )


def _slopes_of(spec: Any) -> np.ndarray:
    return np.array(spec.slopes)


def _shifted(spec: Decay, by: int) -> np.ndarray:
    return _slopes_of(replace(spec, first=max(1, spec.first + by)))


def _series(heads: int, octaves: float, start: int = 1) -> np.ndarray:
    return 2.0 ** (-octaves * (start + np.arange(heads)) / heads)


def _of_powers(spec: Alibi, start: int, of_above: slice) -> np.ndarray:
    """The slopes of the next lower power of two, then some of those of the next higher power, [heads]."""
    power = 2 ** (spec.heads.bit_length() - 1)
    above = _series(2 * power, spec.octaves, start)[of_above]
    return np.concatenate([_series(power, spec.octaves, start), above[: spec.heads - power]])


_BELOW = "slopes of the next lower power of two, then"
_SECOND = f"{_BELOW} every second slope of the next higher power, from its"
_REVERSED: _Rule = ("slopes-rule", "the right slopes in reverse order of heads", lambda it: _slopes_of(it)[::-1])
_DECAY_RULES: tuple[_Rule, ...] = (
    ("slopes-rule", "the slope of the first head has a wrong exponent", lambda it: _shifted(it, 1)),
    ("slopes-rule", "the slope of the first head has a wrong exponent", lambda it: _shifted(it, -1)),
    ("slopes-rule", "each slope is the decay, not its logarithm", lambda it: np.exp(-_slopes_of(it))),
    _REVERSED,
)
_ALIBI_RULES: tuple[_Rule, ...] = (
    ("first-slope-one", "", lambda it: _series(it.heads, it.octaves, 0)),
    ("first-slope-one", "", lambda it: _of_powers(it, 0, slice(0, None, 2))),
    ("slopes-rule", "one geometric series through all heads", lambda it: _series(it.heads, it.octaves)),
    ("slopes-rule", f"{_SECOND} first slope on", lambda it: _of_powers(it, 1, slice(0, None, 2))),
    ("slopes-rule", f"{_BELOW} the first slopes of the next higher power", lambda it: _of_powers(it, 1, slice(None))),
    ("slopes-rule", f"{_SECOND} second slope on", lambda it: _of_powers(it, 1, slice(1, None, 2))),
    (
        "slopes-rule",
        "the first slopes of the next higher power of two",
        lambda it: _series(2 ** math.ceil(math.log2(it.heads)), it.octaves)[: it.heads],
    ),
    _REVERSED,
    (
        "slopes-rule",
        "each slope is half of the slope of the head before",
        lambda it: 2.0 ** -(1.0 + np.arange(it.heads)),
    ),
)


def _alike(these: np.ndarray, those: np.ndarray, within: float = 1e-4) -> bool:
    return these.shape == those.shape and bool((np.abs(these - those) <= within * np.abs(those)).all())


def _first_other_slope(slopes: np.ndarray, other: np.ndarray) -> str:
    """The slope of the first head in which two series of slopes differ, as text."""
    head = int(np.argmax(np.abs(slopes - other) > 1e-4 * np.abs(other)))
    return f"{slopes[head]:.6g} in head {head}"


def _forms(spec: Alibi | Slopes, seen: BiasObservations) -> Iterator[FaultModel]:
    if seen.causal and not seen.exact:
        return  # after softmax, the other forms differ only if some keys come after queries
    declared, _ = FORMS[spec.form]
    for form, (used, _) in FORMS.items():
        if form != spec.form:
            code = "bias-from-key-only" if seen.exact and form in ("key", "last-key") else "other-form"
            yield seen.suspect(code, {"used": used, "declared": declared}, form=form)


def _kernels(spec: Kerple, seen: BiasObservations) -> Iterator[FaultModel]:
    values = seen.values(spec)
    arrays = {name: np.asarray(array) for name, array in values.items()}
    exchanged = {"p": values["a"], "a": values["p"]}
    if spec.refuse({"p": arrays["a"], "a": arrays["p"]}) is None:
        words = {"used": "p and a exchanged", "declared": "p and a"}
        yield seen.built("other-form", words, lambda it: StagedBias(it, exchanged))
    other: Any = {"log": "power", "power": "log"}[spec.kernel]
    words = {"log": "p ln(1 + a d)", "power": "a d ** p"}
    if replace(spec, kernel=other).refuse(arrays) is None:
        yield seen.built(
            "other-form",
            {"used": f"-{words[other]}", "declared": f"-{words[spec.kernel]}"},
            lambda it: StagedBias(replace(it, kernel=other), values),
        )


def _column_by_column(spec: Any, seen: BiasObservations) -> Apply:
    """A window whose tokens are read column by column."""

    def moved(at: np.ndarray) -> np.ndarray:
        first = spec.first_token
        down, across = np.divmod(at - first, spec.width)
        return np.where(at < first, at, across * spec.height + down + first)

    transposed = replace(spec, height=spec.width, width=spec.height)
    return StagedBias(transposed, seen.values(spec), places=lambda queries, keys: (moved(queries), moved(keys)))


def _transposed(spec: BiasCode, seen: BiasObservations) -> Apply:
    """Queries and keys are exchanged: the matrix is transposed."""
    own = seen.right(spec)
    return own if spec.reads == "key" else lambda queries, keys: np.swapaxes(own(keys, queries), -1, -2)


def _sizes(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    factors = seen.factors
    if np.isfinite(factors).all() and np.ptp(factors) <= 1e-3 * np.abs(factors).max(initial=0):
        factor = float(np.median(factors))
        named = getattr(spec, "scale", 1.0)
        ruled = spec.slopes is not None and any(
            _alike(factor * _slopes_of(spec), made(spec)) for _, _, made in _rules(spec)
        )
        if not ruled and min(abs(factor - known) for known in (0, 1, -1)) > 3e-3:
            yield seen.suspect(
                "bias-scaled",
                {"factor": factor, "why": " (its scale is missing)" if abs(factor * named - 1) < 1e-3 else ""},
                numbers=lambda found, *_: factor * found,
            )
        if abs(factor + 1) < 0.01 and spec.slopes is None:
            yield seen.suspect("slope-sign", {}, numbers=lambda found, *_: -found)
    order = seen.order
    if order is not None and spec.slopes is None:
        pairs = [
            f"head {head} has the bias of head {other}" for head, other in enumerate(order.tolist()) if head != other
        ]
        heads = ", ".join(pairs[:3]) + (", ..." if len(pairs) > 3 else "")
        yield seen.suspect("heads-exchanged", {"heads": heads}, numbers=lambda found, *_: found[order])


def _dropped(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    ways: tuple[tuple[str, Callable[[np.ndarray, np.ndarray], bool]], ...] = (
        ("", lambda *_: True),
        (" if there is only one query, as in decoding", lambda queries, _: len(queries) == 1),
        (" if there are fewer queries than keys, as with a cache", _fewer),
    )
    for when, dropped in ways:
        yield seen.suspect(
            "bias-dropped",
            {"when": when},
            numbers=lambda found, *at, dropped=dropped: np.zeros_like(found) if dropped(*at) else found,
        )
    if not seen.causal and spec.ordered:
        yield seen.suspect(
            "later-keys-masked",
            {},
            numbers=lambda found, queries, keys: np.where(queries[:, None] < keys[None, :], -np.inf, found),
        )


def _fewer(queries: np.ndarray, keys: np.ndarray) -> bool:
    return len(queries) < len(keys)


def _counted(at: np.ndarray) -> np.ndarray:
    return np.arange(len(at))


_MOVED: tuple[tuple[str, dict[str, str], Places], ...] = (
    ("bias-of-first-rows", {"when": ""}, lambda queries, keys: (_counted(queries), keys)),
    (
        "bias-of-first-rows",
        {"when": ""},
        lambda queries, keys: (_counted(queries) if _fewer(queries, keys) else queries, keys),
    ),
)
# Of an implementation that gets positions.
_IGNORED: tuple[tuple[str, dict[str, str], Places], ...] = (
    (
        "positions-ignored",
        {"where": "the first positions"},
        lambda queries, keys: (_counted(queries), _counted(keys)),
    ),
    (
        "positions-ignored",
        {"where": "the last positions of the keys"},
        lambda queries, keys: (_counted(queries) + len(keys) - len(queries), _counted(keys)),
    ),
)


def _moved(seen: BiasObservations) -> Iterator[FaultModel]:
    for code, words, places in (*_MOVED, *_IGNORED * seen.placed):
        yield seen.suspect(code, words, places=places)
    for by in (-2, -1, 1, 2):
        yield seen.suspect(
            "distance-offset",
            {"by": f"{by:+d}", "when": ""},
            places=lambda queries, keys, by=by: (queries + by, keys),
        )
        yield seen.suspect(
            "distance-offset",
            {"by": f"{by:+d}", "when": " if there are fewer queries than keys"},
            places=lambda queries, keys, by=by: (queries + by * _fewer(queries, keys), keys),
        )


def _clipped_distances(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    if isinstance(spec, TableCode) or spec.reads != "distance":
        return  # the last bucket of a table already clips distances
    measured = (seen.first_wrong - 1, seen.first_wrong) if seen.first_wrong else ()
    for end in sorted(end for end in {*LAST_DISTANCES, *measured} if 0 < end < seen.length):

        def clipped(it: BiasCode, queries: np.ndarray, keys: np.ndarray, end: int = end) -> np.ndarray:
            # Each distance is clipped, as an index into a table of distances is.
            line = seen.right(it)(np.array([2 * end]), np.arange(4 * end + 1))[:, 0]
            return line[:, 2 * end - np.clip(queries[:, None] - keys[None, :], -end, end)]

        yield seen.built("distances-clipped", {"end": end}, lambda it, clipped=clipped: functools.partial(clipped, it))


def _rounded(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    forms: tuple[str | None, ...] = (None,)
    if isinstance(spec, Alibi | Slopes) and seen.causal and not seen.exact:
        forms = (None, *(form for form in ("distance", "key", "last-key") if form != spec.form))
    for dtype, first in COARSE.items():
        words = {"dtype": dtype, "ties": first}

        def to(numbers: Any, *_: Any, dtype: str = dtype) -> np.ndarray:
            return rounded(numbers, dtype)

        if spec.slopes is not None:
            for form in forms:
                for codes, stages, slopes in _roundings(spec, to, form):

                    def build(it: Any, stages: Any = stages, slopes: Any = slopes) -> Apply:
                        return seen.right(it, **stages, slopes=slopes(_slopes_of(it)) if slopes else None)

                    yield seen.built(codes, words, build)
        else:
            yield seen.suspect("bias-rounded", words, numbers=to)
        if spec.ordered and spec.reads != "key":
            yield seen.suspect("positions-rounded", words, places=lambda queries, keys, to=to: (to(queries), to(keys)))


def _roundings(
    spec: Any, to: Callable[..., np.ndarray], form: str | None
) -> Iterator[tuple[tuple[str, ...], dict[str, Any], Callable[[np.ndarray], np.ndarray] | None]]:
    """Possible roundings in a linear bias: the codes of the faults, the replaced stages, and the rounding of slopes."""
    own = _slopes_of(spec)
    changed = not np.array_equal(to(own), own)
    if changed and form is None:
        yield ("slopes-rounded",), {}, to
    for codes, stages in (
        (("distances-rounded",), {"tokens": to}),
        (("bias-rounded",), {"numbers": to}),
        (("distances-rounded", "bias-rounded"), {"tokens": to, "numbers": to}),
    ):
        yield codes, {"form": form, **stages}, None
        if changed:
            yield (*codes, "slopes-rounded"), {"form": form, **stages}, to


_BUCKET_FIELDS = {
    Buckets: (("another-number-of-buckets", "buckets"), ("another-max-distance", "max_distance")),
    CeilingBuckets: (("another-number-of-buckets", "span"), ("another-max-distance", "max_distance")),
    Clipped: (("another-max-distance", "span"),),
}


def _buckets(spec: Buckets | CeilingBuckets | Clipped, seen: BiasObservations) -> Iterator[FaultModel]:
    """Suspects that put distances into other buckets."""
    if isinstance(spec, Buckets):
        code = "one-sided-buckets" if spec.bidirectional else "two-sided-buckets"
        yield from _other(code, {}, spec, seen, bidirectional=not spec.bidirectional)
    for code, field in _BUCKET_FIELDS[type(spec)]:
        declared = getattr(spec, field)
        two_sided = seen.later_keys_differ and not getattr(spec, "bidirectional", True)
        near = {declared // 2, 2 * declared, declared - 1, declared + 1, 4 * declared, declared // 4}
        for number in sorted({*near, *BUCKETS} - {declared}):
            if code == "another-number-of-buckets" and two_sided and number == declared // 2:
                continue  # two-sided buckets put earlier keys as half as many one-sided ones do
            words = {"used": number, "declared": declared}
            yield from _other(code, words, spec, seen, **{field: number})
            if isinstance(spec, Clipped):
                yield _clipped_about(spec, number, words, seen)
    if isinstance(spec, Clipped) or (isinstance(spec, Buckets) and seen.values(spec) is None):
        return
    up = isinstance(spec, Buckets)
    for single in (False, True):
        rows = _log_rows(spec, up=up, single=single)
        own = _measured(spec, rows, seen)
        if own is not None:
            yield seen.built(
                "buckets-rounded-up" if up else "buckets-rounded-down",
                {},
                lambda it, rows=rows, own=own: StagedBias(it, _scaled(it, own), rows=rows),
            )


def _other(
    code: str, parameters: dict[str, Any], spec: Any, seen: BiasObservations, **changed: Any
) -> Iterator[FaultModel]:
    """A suspect with another value of a field, if the spec allows it; it is wrong in every model that it builds."""
    try:
        other = replace(spec, **changed)
    except ClockhandsError:
        return
    table = seen.values(other)
    if table is None:
        return
    yield seen.built(code, parameters, lambda _: StagedBias(other, table))
    if isinstance(other, Buckets | CeilingBuckets):  # some bucket edges differ where they are computed in float32
        rows = _log_rows(other, up=isinstance(other, CeilingBuckets), single=True)
        yield seen.built(code, parameters, lambda _: StagedBias(other, _scaled(other, table), rows=rows))


def _scaled(spec: BiasCode, table: Any) -> Any:
    return np.asarray(table, np.float64) * getattr(spec, "scale", 1.0)


def _log_rows(spec: Buckets | CeilingBuckets, *, up: bool, single: bool) -> Rows:
    """The table row of each distance as implementations compute it in float32 or float64, rounded up or down."""
    log, kind = spec.log_buckets, np.float32 if single else np.float64

    def buckets(sizes: np.ndarray) -> np.ndarray:
        far = np.maximum(sizes, log.first).astype(kind) / kind(log.first) + kind(log.added)
        y = np.log(far) / kind(math.log(log.last / log.first)) * kind(log.steps)
        if not single:
            near = np.round(y)
            y = np.where(np.abs(y - near) < 1e-9, near, y)
        return np.where(sizes < log.first, sizes, log.first + (np.ceil(y) if up else np.floor(y)).astype(np.int64))

    def rows(apart: np.ndarray) -> np.ndarray:
        if isinstance(spec, CeilingBuckets):
            found = buckets(np.abs(apart)) * np.where(apart < 0, -1, 1)
            return np.clip(found + spec.span, 0, 2 * spec.span - 1)
        sizes = np.abs(apart) if spec.bidirectional else np.maximum(apart, 0)
        return np.minimum(buckets(sizes), spec.one_way - 1) + spec.one_way * ((apart < 0) & spec.bidirectional)

    return rows


def _measured(spec: BiasCode, rows: Rows, seen: BiasObservations) -> Any:
    """The table for these rows: the known one, or the measured one."""
    measured = getattr(seen.values, "behind", None)
    return seen.values(spec) if measured is None else measured(rows, spec)


def _clipped_about(spec: Clipped, span: int, words: dict[str, Any], seen: BiasObservations) -> FaultModel:
    """A suspect that clips distances at another span, around the middle of the same table."""

    def rows(apart: np.ndarray) -> np.ndarray:
        return np.clip(np.clip(apart, -span, span) + spec.span, 0, 2 * spec.span - 1)

    own = _measured(spec, rows, seen)
    own = seen.values(spec) if own is None else own
    return seen.built("another-max-distance", words, lambda it: StagedBias(it, np.asarray(own, np.float64), rows=rows))
