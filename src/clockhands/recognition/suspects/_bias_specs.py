"""Bias suspects: every known fault of a bias, with the parameters to try."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.biases import BiasCode, Buckets, CeilingBuckets, Clipped, Kerple, TableCode, Window
from clockhands.encodings.biases.codes import LogBuckets
from clockhands.encodings.biases.linear import Alibi, Decay, Slopes
from clockhands.errors import ClockhandsError
from clockhands.recognition.suspects._bias_code import Apply, SeenBias, StagedBias, bias_stateful
from clockhands.recognition.suspects._stages import COARSE, rounded
from clockhands.recognition.suspects._suspect import Suspect

_FORMS = ("distance", "past", "symmetric", "key", "last-key")
_IN_WORDS = {
    "distance": "-slope (q - k)",
    "past": "-slope max(q - k, 0)",
    "symmetric": "-slope |q - k|",
    "key": "slope k",
    "last-key": "slope (k - last key)",
}


def bias_suspects(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    if spec.slopes is not None:
        yield from _slopes(spec, seen)
        yield from _forms(spec, seen)
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        yield from _buckets(spec, seen)
    if isinstance(spec, Kerple):
        yield from _kernels(spec, seen)
    if isinstance(spec, Window):
        yield from _planes(seen)
    yield from _directions(seen)
    yield from _sizes(spec, seen)
    yield from _dropped(spec, seen)
    yield from _moved(spec, seen)
    yield from _rounded(spec, seen)
    yield from bias_stateful(spec, seen)


def _slopes(spec: Any, seen: SeenBias) -> Iterator[Suspect]:
    own = np.array(spec.slopes)
    known = [own, -own]
    for code, words, made in _rules(spec):
        slopes = made(spec)
        if slopes is None or any(_alike(slopes, other) for other in known):
            continue
        known.append(slopes)
        yield seen.built(
            code,
            {"rule": words, "used": _some(slopes, own), "declared": _some(own, slopes)},
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
        {"rule": rule, "used": _some(slopes, own), "declared": _some(own, slopes)},
        lambda it: seen.right(it, slopes=slopes if it.heads == len(slopes) else None),
    )


def _rules(spec: Any) -> Iterator[tuple[str, str, Callable[[Any], np.ndarray | None]]]:
    def series(heads: int, octaves: float, start: int = 1) -> np.ndarray:
        return 2.0 ** (-octaves * (start + np.arange(heads)) / heads)

    if isinstance(spec, Decay):
        yield "slopes-rule", "the slope of the first head has a wrong exponent", lambda it: np.array(_shifted(it, 1))
        yield "slopes-rule", "the slope of the first head has a wrong exponent", lambda it: np.array(_shifted(it, -1))
        yield "slopes-rule", "each slope is the decay, not its logarithm", lambda it: np.exp(-np.array(it.slopes))
        yield "slopes-rule", "the right slopes in reverse order of heads", lambda it: np.array(it.slopes)[::-1]
        return

    if isinstance(spec, Slopes):
        yield "slopes-rule", "the right slopes in reverse order of heads", lambda it: np.array(it.slopes)[::-1]
        return

    def below(it: Alibi) -> int:
        return 2 ** (it.heads.bit_length() - 1)

    def of_powers(it: Alibi, start: int, of_above: slice) -> np.ndarray:
        """The slopes of the next lower power of two, then some of those of the next higher power, [heads]."""
        power = below(it)
        above = series(2 * power, it.octaves, start)[of_above]
        return np.concatenate([series(power, it.octaves, start), above[: it.heads - power]])

    words = "slopes of the next lower power of two, then"
    yield "first-slope-one", "", lambda it: series(it.heads, it.octaves, 0)
    yield "first-slope-one", "", lambda it: of_powers(it, 0, slice(0, None, 2))
    for rule, made in (
        ("one geometric series through all heads", lambda it: series(it.heads, it.octaves)),
        (
            f"{words} every second slope of the next higher power, from its first slope on",
            lambda it: of_powers(it, 1, slice(0, None, 2)),
        ),
        (f"{words} the first slopes of the next higher power", lambda it: of_powers(it, 1, slice(None))),
        (
            f"{words} every second slope of the next higher power, from its second slope on",
            lambda it: of_powers(it, 1, slice(1, None, 2)),
        ),
        (
            "the first slopes of the next higher power of two",
            lambda it: series(2 ** math.ceil(math.log2(it.heads)), it.octaves)[: it.heads],
        ),
        ("the right slopes in reverse order of heads", lambda it: np.array(it.slopes)[::-1]),
        ("each slope is half of the slope of the head before", lambda it: 2.0 ** -(1.0 + np.arange(it.heads))),
    ):
        yield "slopes-rule", rule, made
    for octaves in (1, 2, 4, 8, 16):
        yield (
            "slopes-rule",
            f"the last slope is 2 ** -{octaves} instead of 2 ** -{spec.octaves:g}",
            lambda it, octaves=octaves: np.array(replace(it, octaves=float(octaves)).slopes),
        )


def _shifted(spec: Decay, by: int) -> Any:
    return replace(spec, first=max(1, spec.first + by)).slopes


def _slopes_of(spec: Any) -> np.ndarray:
    return np.array(spec.slopes)


def _alike(these: np.ndarray, those: np.ndarray, within: float = 1e-4) -> bool:
    return these.shape == those.shape and bool((np.abs(these - those) <= within * np.abs(those)).all())


def _some(slopes: np.ndarray, other: np.ndarray) -> str:
    """The slope of the first head in which two series of slopes differ, as text."""
    head = int(np.argmax(np.abs(slopes - other) > 1e-4 * np.abs(other)))
    return f"{slopes[head]:.6g} in head {head}"


def _forms(spec: Any, seen: SeenBias) -> Iterator[Suspect]:
    if not isinstance(spec, Alibi | Slopes):
        return
    for form in _FORMS:
        if form == spec.form:
            continue
        # After softmax, the other forms differ only if some keys come after queries.
        code = "bias-from-key-only" if seen.exact and form in ("key", "last-key") else "other-form"
        if seen.exact or not seen.causal:
            yield seen.suspect(code, {"used": _IN_WORDS[form], "declared": _IN_WORDS[spec.form]}, form=form)


def _kernels(spec: Kerple, seen: SeenBias) -> Iterator[Suspect]:
    values = seen.values(spec)

    def exchanged(it: BiasCode) -> Apply:
        return StagedBias(it, {"p": values["a"], "a": values["p"]})

    try:
        exchanged(spec)(np.arange(2), np.arange(2))
    except ClockhandsError:
        pass
    else:
        yield seen.built("other-form", {"used": "p and a exchanged", "declared": "p and a"}, exchanged)
    other: Any = {"log": "power", "power": "log"}[spec.kernel]
    words = {"log": "p ln(1 + a d)", "power": "a d ** p"}
    changed = replace(spec, kernel=other)
    if changed.refuse({name: np.asarray(array) for name, array in values.items()}) is None:
        yield seen.built(
            "other-form",
            {"used": f"-{words[other]}", "declared": f"-{words[spec.kernel]}"},
            lambda it: StagedBias(replace(it, kernel=other), values),  # type: ignore[type-var]
        )


def _planes(seen: SeenBias) -> Iterator[Suspect]:
    def transposed(it: BiasCode) -> Apply:
        assert isinstance(it, Window)

        def places(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return _column_by_column(it, queries), _column_by_column(it, keys)

        return StagedBias(replace(it, height=it.width, width=it.height), seen.values(it), places=places)

    yield seen.built("axes-exchanged", {}, transposed)


def _column_by_column(spec: Window, at: np.ndarray) -> np.ndarray:
    """The token numbers of a window that is read column by column."""
    first = spec.first_token
    down, across = np.divmod(at - first, spec.width)
    return np.where(at < first, at, across * spec.height + down + first)


def _directions(seen: SeenBias) -> Iterator[Suspect]:
    def transposed(it: BiasCode) -> Apply:
        own = seen.right(it)
        if it.reads == "key":
            return own
        # Queries and keys are exchanged: the matrix is transposed.
        return lambda queries, keys: np.swapaxes(own(keys, queries), -1, -2)

    yield seen.built("other-direction", {}, transposed)


def _sizes(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    factors = seen.factors
    if np.isfinite(factors).all() and np.ptp(factors) <= 1e-3 * np.abs(factors).max(initial=0):
        factor = float(np.median(factors))
        named = getattr(spec, "scale", 1.0)
        ruled = spec.slopes is not None and any(
            _alike(factor * np.array(spec.slopes), slopes)
            for _, _, made in _rules(spec)
            if (slopes := made(spec)) is not None
        )
        if not ruled and min(abs(factor - known) for known in (0, 1, -1)) > 3e-3:
            yield seen.suspect(
                "bias-scaled",
                {"factor": factor, "why": " (its scale is missing)" if abs(factor * named - 1) < 1e-3 else ""},
                numbers=lambda found, *_: factor * found,
            )
        if abs(factor + 1) < 0.01 and spec.slopes is None:
            yield seen.suspect("slope-sign", {}, numbers=lambda found, *_: -found)
    if seen.order is not None and spec.slopes is None:
        order = seen.order
        pairs = [
            f"head {head} has the bias of head {other}" for head, other in enumerate(order.tolist()) if head != other
        ]
        yield seen.suspect(
            "heads-exchanged",
            {"heads": ", ".join(pairs[:3]) + (", ..." if len(pairs) > 3 else "")},
            numbers=lambda found, *_: found[order],
        )


def _dropped(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    def none(found: np.ndarray, *_: np.ndarray) -> np.ndarray:
        return np.zeros_like(found)

    def of_one(found: np.ndarray, queries: np.ndarray, *_: np.ndarray) -> np.ndarray:
        return found * (len(queries) > 1)

    def of_fewer(found: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return found * (len(queries) >= len(keys))

    for numbers, when in (
        (none, ""),
        (of_one, " if there is only one query, as in decoding"),
        (of_fewer, " if there are fewer queries than keys, as with a cache"),
    ):
        yield seen.suspect("bias-dropped", {"when": when}, numbers=numbers)

    def masked(found: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return np.where(queries[:, None] < keys[None, :], -np.inf, found)

    if not seen.causal and spec.ordered:
        yield seen.suspect("later-keys-masked", {}, numbers=masked)


def _moved(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    if not spec.ordered:
        return

    def first_rows(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(queries)), keys

    def first_of_fewer(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(queries)) if len(queries) < len(keys) else queries, keys

    def both_counted(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(queries)), np.arange(len(keys))

    def at_the_end(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(queries)) + len(keys) - len(queries), np.arange(len(keys))

    first = "bias-of-first-rows"
    for places in (first_rows, first_of_fewer):
        yield seen.suspect(first, {"when": ""}, places=places)
    counted = "positions-ignored"
    for places, words in (
        (both_counted, "the first positions"),
        (at_the_end, "the last positions of the keys"),
    ) * seen.placed:
        yield seen.suspect(counted, {"where": words}, places=places)
    for by in (-2, -1, 1, 2):
        for alone in (False, True):

            def off(
                queries: np.ndarray, keys: np.ndarray, by: int = by, alone: bool = alone
            ) -> tuple[np.ndarray, np.ndarray]:
                return (queries + by if not alone or len(queries) < len(keys) else queries), keys

            when = " if there are fewer queries than keys" if alone else ""
            yield seen.suspect("distance-offset", {"by": f"{by:+d}", "when": when}, places=off)
    most = {2**power - 1 for power in range(4, 14)} | {2**power for power in range(4, 14)}
    most |= {seen.first_wrong - 1, seen.first_wrong} if seen.first_wrong else set()
    if isinstance(spec, TableCode):
        return  # their last bucket already clips distances
    for end in sorted(end for end in most if 0 < end < seen.length):

        def clipped(queries: np.ndarray, keys: np.ndarray, it: BiasCode, end: int = end) -> np.ndarray:
            # Each distance is clipped, as an index into a table of distances is.
            line = seen.right(it)(np.array([2 * end]), np.arange(4 * end + 1))[:, 0]
            apart = np.clip(queries[:, None] - keys[None, :], -2 * end, 2 * end)
            return line[:, 2 * end - np.clip(apart, -end, end)]

        if spec.reads == "distance":
            yield seen.built(
                "distances-clipped",
                {"end": end},
                lambda it, clipped=clipped: lambda queries, keys: clipped(queries, keys, it),
            )


def _rounded(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    forms: tuple[str | None, ...] = (None,)
    if isinstance(spec, Alibi | Slopes) and seen.causal and not seen.exact:
        forms = (None, *(form for form in ("distance", "key", "last-key") if form != spec.form))
    for dtype in COARSE:
        words = {"dtype": dtype, "ties": {"bfloat16": 257, "float16": 2049}[dtype]}

        def to(numbers: Any, *_: Any, dtype: str = dtype) -> np.ndarray:
            return rounded(numbers, dtype)

        def places(queries: np.ndarray, keys: np.ndarray, to: Any = to) -> tuple[np.ndarray, np.ndarray]:
            return to(queries), to(keys)

        if spec.slopes is not None:
            for form in forms:
                for codes, stages in _roundings(spec, to, form):
                    yield Suspect(codes, words, lambda stages=stages: lambda it: seen.right(it, **stages(it)))
        else:
            yield seen.suspect("bias-rounded", words, numbers=to)
        if spec.ordered and spec.reads != "key":
            yield seen.suspect("positions-rounded", words, places=places)


def _roundings(
    spec: Any, to: Callable[..., np.ndarray], form: str | None
) -> Iterator[tuple[tuple[str, ...], Callable[[Any], dict[str, Any]]]]:
    """Possible roundings in a linear bias: the codes of the faults, and a function that returns the replaced stages."""
    own = _slopes_of(spec)
    changed = not np.array_equal(to(own), own)
    if changed and form is None:
        yield ("slopes-rounded",), lambda it: {"slopes": to(_slopes_of(it))}
    for codes, stages in (
        (("distances-rounded",), {"tokens": to}),
        (("bias-rounded",), {"numbers": to}),
        (("distances-rounded", "bias-rounded"), {"tokens": to, "numbers": to}),
    ):
        named = {"form": form, **stages}
        yield codes, lambda _, named=named: named
        if changed:
            yield (*codes, "slopes-rounded"), lambda it, named=named: {**named, "slopes": to(_slopes_of(it))}


def _computed(log: LogBuckets, sizes: np.ndarray, *, up: bool, single: bool) -> np.ndarray:
    """The bucket of each distance, before clipping, as implementations compute it in float32 or float64."""
    kind = np.float32 if single else np.float64
    far = np.maximum(sizes, log.first).astype(kind) / kind(log.first) + kind(log.added)
    y = np.log(far) / kind(math.log(log.last / log.first)) * kind(log.steps)
    if not single:
        near = np.round(y)
        y = np.where(np.abs(y - near) < 1e-9, near, y)
    return np.where(sizes < log.first, sizes, log.first + (np.ceil(y) if up else np.floor(y)).astype(np.int64))


def _buckets(spec: Buckets | CeilingBuckets | Clipped, seen: SeenBias) -> Iterator[Suspect]:
    """Suspects that put distances into other buckets."""
    if isinstance(spec, Buckets):
        yield from _of_t5(spec, seen)
    elif isinstance(spec, CeilingBuckets):
        yield from _of_deberta(spec, seen)
    else:
        for span in _others(spec.span):
            yield from _other(
                "another-max-distance", {"used": span, "declared": spec.span}, replace(spec, span=span), seen
            )
            yield _clipped_about(spec, span, seen)


def _others(number: int) -> list[int]:
    found = {number // 2, 2 * number, number - 1, number + 1, 4 * number, number // 4}
    return sorted((found | {8, 16, 32, 64, 128, 256, 320, 512, 800, 1024}) - {number})


def _other(code: str, parameters: dict[str, Any], other: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    """A suspect with a wrong field, which is wrong in every model that it builds."""
    table = seen.values(other)
    if table is None:
        return
    yield seen.built(code, parameters, lambda _: StagedBias(other, table))
    for rows in _rows_of(other):
        yield seen.built(code, parameters, lambda _, rows=rows: StagedBias(other, _scaled(other, table), rows=rows))


def _scaled(spec: BiasCode, table: Any) -> Any:
    return np.asarray(table, np.float64) * getattr(spec, "scale", 1.0)


def _rows_of(spec: BiasCode) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Functions for the table rows as computed in float32, which differ at some bucket edges."""
    if isinstance(spec, Buckets):
        yield _t5_rows(spec, up=False, single=True)
    elif isinstance(spec, CeilingBuckets):
        yield _deberta_rows(spec, up=True, single=True)


def _t5_rows(spec: Buckets, *, up: bool, single: bool) -> Callable[[np.ndarray], np.ndarray]:
    way = spec.one_way

    def rows(apart: np.ndarray) -> np.ndarray:
        sizes = np.abs(apart) if spec.bidirectional else np.maximum(apart, 0)
        found = np.minimum(_computed(spec.log_buckets, sizes, up=up, single=single), way - 1)
        return found + way * ((apart < 0) & spec.bidirectional)

    return rows


def _deberta_rows(spec: CeilingBuckets, *, up: bool, single: bool) -> Callable[[np.ndarray], np.ndarray]:
    def rows(apart: np.ndarray) -> np.ndarray:
        found = _computed(spec.log_buckets, np.abs(apart), up=up, single=single) * np.where(apart < 0, -1, 1)
        return np.clip(found + spec.span, 0, 2 * spec.span - 1)

    return rows


def _of_t5(spec: Buckets, seen: SeenBias) -> Iterator[Suspect]:
    code = "one-sided-buckets" if spec.bidirectional else "two-sided-buckets"
    for sides in _possible(spec, "bidirectional", [not spec.bidirectional]):
        yield from _other(code, {}, sides, seen)
    yield from _other_numbers(spec, seen, "another-number-of-buckets", "buckets")
    yield from _other_numbers(spec, seen, "another-max-distance", "max_distance")
    table = seen.values(spec)
    for single in (False, True):
        rows = _t5_rows(spec, up=True, single=single)
        own = _measured(spec, rows, seen) if table is not None else None
        if own is not None:
            yield seen.built(
                "buckets-rounded-up", {}, lambda it, rows=rows, own=own: StagedBias(it, _scaled(it, own), rows=rows)
            )


def _of_deberta(spec: CeilingBuckets, seen: SeenBias) -> Iterator[Suspect]:
    yield from _other_numbers(spec, seen, "another-number-of-buckets", "span")
    yield from _other_numbers(spec, seen, "another-max-distance", "max_distance")
    for single in (False, True):
        rows = _deberta_rows(spec, up=False, single=single)
        own = _measured(spec, rows, seen)
        if own is not None:
            yield seen.built("buckets-rounded-down", {}, lambda it, rows=rows, own=own: StagedBias(it, own, rows=rows))


def _other_numbers(spec: Any, seen: SeenBias, code: str, field: str) -> Iterator[Suspect]:
    """Suspects with another number in one field, if the spec allows it."""
    declared = getattr(spec, field)
    for other in _possible(spec, field, _others(declared)):
        yield from _other(code, {"used": getattr(other, field), "declared": declared}, other, seen)


def _measured(spec: BiasCode, rows: Callable[[np.ndarray], np.ndarray], seen: SeenBias) -> Any:
    """The table for these rows: the known one, or the measured one."""
    measured = getattr(seen.values, "behind", None)
    return seen.values(spec) if measured is None else measured(rows, spec)


def _clipped_about(spec: Clipped, span: int, seen: SeenBias) -> Suspect:
    """A suspect that clips distances at another span, around the middle of the same table."""

    def rows(apart: np.ndarray) -> np.ndarray:
        return np.clip(np.clip(apart, -span, span) + spec.span, 0, 2 * spec.span - 1)

    own = _measured(spec, rows, seen)
    own = seen.values(spec) if own is None else own
    return seen.built(
        "another-max-distance",
        {"used": span, "declared": spec.span},
        lambda it: StagedBias(it, np.asarray(own, np.float64), rows=rows),
    )


def _possible(spec: Any, field: str, values: Iterable[Any]) -> Iterator[Any]:
    """The specs with each of these values, without those that do not exist."""
    for value in values:
        with suppress(ClockhandsError):
            yield replace(spec, **{field: value})
