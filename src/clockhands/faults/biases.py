"""Bias suspects: every known fault of a bias with the parameters that it may have here."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.biases import BiasCode, Buckets, CeilingBuckets, Clipped, Kerple, TableCode, Window
from clockhands.biases.linear import Alibi, Decay
from clockhands.errors import ClockhandsError
from clockhands.faults.bias_buckets import bucket_suspects
from clockhands.faults.bias_state import stateful
from clockhands.faults.biasing import Apply, Biasing
from clockhands.faults.fault import Suspect
from clockhands.faults.turning import rounded

COARSE = ("bfloat16", "float16")
_FORMS = ("distance", "past", "symmetric", "key", "last-key")
_IN_WORDS = {
    "distance": "-slope (q - k)",
    "past": "-slope max(q - k, 0)",
    "symmetric": "-slope |q - k|",
    "key": "slope k",
    "last-key": "slope (k - last key)",
}


@dataclass(frozen=True)
class SeenBias:
    """What was measured of an implementation before suspects are tried.

    Attributes:
        values: The learned numbers of another code with this number of rows or parameters, as the implementation
            would have them; None where it cannot have any.
        causal, exact: As the check compares.
        placed: Whether it is told where queries and keys stand, not only how many they are.
        length: Positions that it was asked for.
        first_wrong: The smallest distance at which it is wrong, or None.
        factors: What each head's numbers are times the right ones, by least squares, [heads]; NaN where they are not.
        order: For each head the right one whose numbers it has, [heads], where that is another order; else None.
    """

    values: Callable[[BiasCode], Any]
    causal: bool
    exact: bool
    placed: bool
    length: int
    first_wrong: int | None
    factors: np.ndarray
    order: np.ndarray | None


def bias_suspects(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    if isinstance(spec, Alibi | Decay):
        yield from _slopes(spec, seen)
        yield from _forms(spec, seen)
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        yield from bucket_suspects(spec, seen.values)
    if isinstance(spec, Kerple):
        yield from _kernels(spec, seen)
    if isinstance(spec, Window):
        yield from _planes(seen)
    yield from _directions(seen)
    yield from _sizes(spec, seen)
    yield from _dropped(spec, seen)
    yield from _moved(spec, seen)
    yield from _rounded(spec, seen)
    yield from stateful(spec, seen.values)


def right(spec: BiasCode, seen: SeenBias, **stages: Any) -> Biasing:
    """A right implementation but for some stages."""
    return Biasing(spec, seen.values(spec), **stages)


def _suspect(code: str, parameters: Mapping[str, Any], build: Callable[[BiasCode], Apply]) -> Suspect:
    return Suspect((code,), parameters, lambda: build)


def _slopes(spec: Alibi | Decay, seen: SeenBias) -> Iterator[Suspect]:
    own = np.array(spec.slopes)
    known = [own, -own]
    for code, words, made in _rules(spec):
        slopes = made(spec)
        if slopes is None or any(_alike(slopes, other) for other in known):
            continue
        known.append(slopes)
        yield _suspect(
            code,
            {"rule": words, "used": _some(slopes, own), "declared": _some(own, slopes)},
            lambda it, made=made: right(it, seen, slopes=made(it)),
        )
    yield _suspect("slope-sign", {}, lambda it: right(it, seen, slopes=-_slopes_of(it)))
    factors = seen.factors
    if not np.isfinite(factors).all() or (np.abs(factors) < 1e-3).any():
        return
    slopes = own * factors
    if any(_alike(slopes, other, 0.01) for other in known) or np.ptp(factors) <= 1e-3 * np.abs(factors).max():
        return
    same = _alike(np.sort(slopes), np.sort(own))
    rule = "the right slopes in another order of heads" if same else "slopes of no rule that is known"
    yield _suspect(
        "slopes-rule",
        {"rule": rule, "used": _some(slopes, own), "declared": _some(own, slopes)},
        lambda it: right(it, seen, slopes=slopes if it.heads == len(slopes) else None),
    )


def _rules(spec: Alibi | Decay) -> Iterator[tuple[str, str, Callable[[Any], np.ndarray | None]]]:
    def series(heads: int, octaves: float, start: int = 1) -> np.ndarray:
        return 2.0 ** (-octaves * (start + np.arange(heads)) / heads)

    if isinstance(spec, Decay):
        yield "slopes-rule", "the first head's from another power", lambda it: np.array(_shifted(it, 1))
        yield "slopes-rule", "the first head's from another power", lambda it: np.array(_shifted(it, -1))
        yield "slopes-rule", "the decay itself, not its logarithm", lambda it: np.exp(-np.array(it.slopes))
        yield "slopes-rule", "the right slopes with the heads in reverse", lambda it: np.array(it.slopes)[::-1]
        return

    def below(it: Alibi) -> int:
        return 2 ** (it.heads.bit_length() - 1)

    def of_powers(it: Alibi, start: int) -> np.ndarray:
        power = below(it)
        more = series(2 * power, it.octaves, start)[::2][: it.heads - power]
        return np.concatenate([series(power, it.octaves, start), more])

    yield "first-slope-one", "", lambda it: series(it.heads, it.octaves, 0)
    yield "first-slope-one", "", lambda it: of_powers(it, 0)
    yield "slopes-rule", "one geometric series through all heads", lambda it: series(it.heads, it.octaves)
    yield (
        "slopes-rule",
        "the power of two below, then every other one of the power above",
        lambda it: of_powers(it, 1),
    )
    yield (
        "slopes-rule",
        "the power of two below, then the first ones of the power above",
        lambda it: np.concatenate(
            [series(below(it), it.octaves), series(2 * below(it), it.octaves)[: it.heads - below(it)]]
        ),
    )
    yield (
        "slopes-rule",
        "the power of two below, then the second of each two of the power above",
        lambda it: np.concatenate(
            [series(below(it), it.octaves), series(2 * below(it), it.octaves)[1::2][: it.heads - below(it)]]
        ),
    )
    yield (
        "slopes-rule",
        "the first ones of the power of two above",
        lambda it: series(2 ** math.ceil(math.log2(it.heads)), it.octaves)[: it.heads],
    )
    yield "slopes-rule", "the right slopes with the heads in reverse", lambda it: np.array(it.slopes)[::-1]
    yield "slopes-rule", "half of the slope before, in every head", lambda it: 2.0 ** -(1.0 + np.arange(it.heads))
    for octaves in (1, 2, 4, 8, 16):
        yield (
            "slopes-rule",
            f"a last slope of 2 ** -{octaves}, where 2 ** -{spec.octaves:g} is right",
            lambda it, octaves=octaves: np.array(replace(it, octaves=float(octaves)).slopes),
        )


def _shifted(spec: Decay, by: int) -> Any:
    return replace(spec, first=max(1, spec.first + by)).slopes


def _slopes_of(spec: Any) -> np.ndarray:
    return np.array(spec.slopes)


def _alike(these: np.ndarray, those: np.ndarray, within: float = 1e-4) -> bool:
    return these.shape == those.shape and bool((np.abs(these - those) <= within * np.abs(those)).all())


def _some(slopes: np.ndarray, other: np.ndarray) -> str:
    """The slopes at the first head that differs, and its neighbour."""
    head = int(np.argmax(np.abs(slopes - other) > 1e-4 * np.abs(other)))
    return f"{slopes[head]:.6g} in head {head}"


def _forms(spec: Alibi | Decay, seen: SeenBias) -> Iterator[Suspect]:
    if not isinstance(spec, Alibi):
        return
    for form in _FORMS:
        if form == spec.form:
            continue
        # Forms that softmax tells apart only where keys come after queries.
        code = "bias-from-key-only" if seen.exact and form in ("key", "last-key") else "other-form"
        if seen.exact or not seen.causal:
            yield _suspect(
                code,
                {"used": _IN_WORDS[form], "declared": _IN_WORDS[spec.form]},
                lambda it, form=form: right(it, seen, form=form),
            )


def _kernels(spec: Kerple, seen: SeenBias) -> Iterator[Suspect]:
    values = seen.values(spec)

    def exchanged(it: BiasCode) -> Apply:
        return Biasing(it, {"p": values["a"], "a": values["p"]})

    try:
        exchanged(spec)(np.arange(2), np.arange(2))
    except ClockhandsError:
        pass
    else:
        yield _suspect("other-form", {"used": "p and a exchanged", "declared": "p and a"}, exchanged)
    other: Any = {"log": "power", "power": "log"}[spec.kernel]
    words = {"log": "p ln(1 + a d)", "power": "a d ** p"}
    changed = replace(spec, kernel=other)
    if changed.refuse({name: np.asarray(array) for name, array in values.items()}) is None:
        yield _suspect(
            "other-form",
            {"used": f"-{words[other]}", "declared": f"-{words[spec.kernel]}"},
            lambda it: Biasing(replace(it, kernel=other), values),  # type: ignore[type-var]
        )


def _planes(seen: SeenBias) -> Iterator[Suspect]:
    def transposed(it: BiasCode) -> Apply:
        assert isinstance(it, Window)

        def places(queries: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return _turned(it, queries), _turned(it, keys)

        return Biasing(replace(it, height=it.width, width=it.height), seen.values(it), places=places)

    yield _suspect("axes-exchanged", {}, transposed)


def _turned(spec: Window, at: np.ndarray) -> np.ndarray:
    """The token numbers of a window that is read column by column."""
    first = spec.first_token
    down, across = np.divmod(at - first, spec.width)
    return np.where(at < first, at, across * spec.height + down + first)


def _directions(seen: SeenBias) -> Iterator[Suspect]:
    def turned(it: BiasCode) -> Apply:
        own = right(it, seen)
        if it.reads == "key":
            return own
        # Query and key change places: the matrix is transposed.
        return lambda queries, keys: np.swapaxes(own(keys, queries), -1, -2)

    yield _suspect("other-direction", {}, turned)


def _sizes(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    factors = seen.factors
    if np.isfinite(factors).all() and np.ptp(factors) <= 1e-3 * np.abs(factors).max(initial=0):
        factor = float(np.median(factors))
        named = getattr(spec, "scale", 1.0)
        ruled = isinstance(spec, Alibi | Decay) and any(
            _alike(factor * np.array(spec.slopes), slopes)
            for _, _, made in _rules(spec)
            if (slopes := made(spec)) is not None
        )
        if not ruled and min(abs(factor - known) for known in (0, 1, -1)) > 3e-3:
            yield _suspect(
                "bias-scaled",
                {"factor": factor, "why": " (its scale is left out)" if abs(factor * named - 1) < 1e-3 else ""},
                lambda it: right(it, seen, numbers=lambda found, *_: factor * found),
            )
        if abs(factor + 1) < 0.01 and not isinstance(spec, Alibi | Decay):
            yield _suspect("slope-sign", {}, lambda it: right(it, seen, numbers=lambda found, *_: -found))
    if seen.order is not None and not isinstance(spec, Alibi | Decay):
        order = seen.order
        pairs = [f"{head} has those of {other}" for head, other in enumerate(order.tolist()) if head != other]
        yield _suspect(
            "heads-exchanged",
            {"heads": ", ".join(pairs[:3]) + (", ..." if len(pairs) > 3 else "")},
            lambda it: right(it, seen, numbers=lambda found, *_: found[order]),
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
        (of_one, " where there is one query: none in decoding"),
        (of_fewer, " where queries are fewer than keys: none once a cache exists"),
    ):
        yield _suspect("bias-dropped", {"when": when}, lambda it, numbers=numbers: right(it, seen, numbers=numbers))

    def masked(found: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return np.where(queries[:, None] < keys[None, :], -np.inf, found)

    if not seen.causal and spec.ordered:
        yield _suspect("later-keys-masked", {}, lambda it: right(it, seen, numbers=masked))


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
        yield _suspect(first, {"when": ""}, lambda it, places=places: right(it, seen, places=places))
    counted = "positions-ignored"
    for places, words in ((both_counted, "the first ones"), (at_the_end, "the last of the keys")) * seen.placed:
        yield _suspect(counted, {"where": words}, lambda it, places=places: right(it, seen, places=places))
    for by in (-2, -1, 1, 2):
        for alone in (False, True):

            def off(
                queries: np.ndarray, keys: np.ndarray, by: int = by, alone: bool = alone
            ) -> tuple[np.ndarray, np.ndarray]:
                return (queries + by if not alone or len(queries) < len(keys) else queries), keys

            when = " where queries are fewer than keys" if alone else ""
            yield _suspect(
                "distance-offset", {"by": f"{by:+d}", "when": when}, lambda it, off=off: right(it, seen, places=off)
            )
    most = {2**power - 1 for power in range(4, 14)} | {2**power for power in range(4, 14)}
    most |= {seen.first_wrong - 1, seen.first_wrong} if seen.first_wrong else set()
    if isinstance(spec, TableCode):
        return  # their last bucket does it
    for end in sorted(end for end in most if 0 < end < seen.length):

        def clipped(queries: np.ndarray, keys: np.ndarray, it: BiasCode, end: int = end) -> np.ndarray:
            # Entry by entry, as an index into a table of distances that is cut.
            line = right(it, seen)(np.array([2 * end]), np.arange(4 * end + 1))[:, 0]
            apart = np.clip(queries[:, None] - keys[None, :], -2 * end, 2 * end)
            return line[:, 2 * end - np.clip(apart, -end, end)]

        if spec.reads == "distance":
            yield _suspect(
                "distances-clipped",
                {"end": end},
                lambda it, clipped=clipped: lambda queries, keys: clipped(queries, keys, it),
            )


def _rounded(spec: BiasCode, seen: SeenBias) -> Iterator[Suspect]:
    forms: tuple[str | None, ...] = (None,)
    if isinstance(spec, Alibi) and seen.causal and not seen.exact:
        forms = (None, *(form for form in ("distance", "key", "last-key") if form != spec.form))
    for dtype in COARSE:
        words = {"dtype": dtype, "ties": {"bfloat16": 257, "float16": 2049}[dtype]}

        def to(numbers: Any, *_: Any, dtype: str = dtype) -> np.ndarray:
            return rounded(numbers, dtype)

        def places(queries: np.ndarray, keys: np.ndarray, to: Any = to) -> tuple[np.ndarray, np.ndarray]:
            return to(queries), to(keys)

        if isinstance(spec, Alibi | Decay):
            for form in forms:
                for codes, stages in _roundings(spec, to, form):
                    yield Suspect(codes, words, lambda stages=stages: lambda it: right(it, seen, **stages(it)))
        else:
            yield _suspect("bias-rounded", words, lambda it, to=to: right(it, seen, numbers=to))
        if spec.ordered and spec.reads != "key":
            yield _suspect("positions-rounded", words, lambda it, places=places: right(it, seen, places=places))


def _roundings(
    spec: Alibi | Decay, to: Callable[..., np.ndarray], form: str | None
) -> Iterator[tuple[tuple[str, ...], Callable[[Any], dict[str, Any]]]]:
    """What of a line may be rounded: the stages of an implementation, and what they are called."""
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
