"""Rotary suspects of the right spec and wrong code: positions, arithmetic and pairs."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from clockhands.faults.fault import Suspect
from clockhands.faults.rotary_measured import Seen
from clockhands.faults.turning import Apply, Call, Turning, built, rounded
from clockhands.rotary import Rotary

COARSE = ("bfloat16", "float16")

Phases = Callable[[np.ndarray, Call], np.ndarray]
Held = Callable[[np.ndarray, str], np.ndarray]


def _in_blocks(size: int) -> Held:
    """Positions as a range of a coarse dtype counts them: the start of each block is rounded, then the sum.

    PyTorch's vectorised ``arange`` does so, in blocks of 16 or 32 numbers.
    """
    return lambda at, dtype: rounded(rounded(at // size * size, dtype) + at % size, dtype)


HELD: tuple[Held, ...] = (rounded, _in_blocks(16), _in_blocks(32))


def wrong_places(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Positions are read otherwise."""

    def each(places: Phases) -> Callable[[], Callable[[Rotary], Apply]]:
        return built(lambda it: Turning(it, places=places))

    several = spec.axes is not None
    tokens = -2 if several else -1

    def counted(at: np.ndarray, _: Call) -> np.ndarray:
        rows = np.arange(at.shape[tokens], dtype=np.float64)
        return np.broadcast_to(rows[:, None] if several else rows, at.shape)

    def from_first(at: np.ndarray, _: Call) -> np.ndarray:
        return at - np.take(at, [0], axis=tokens) if at.size else at

    def of_first(at: np.ndarray, _: Call) -> np.ndarray:
        return np.broadcast_to(at[:1], at.shape) if at.ndim > 1 + several else at

    yield Suspect(("positions-ignored",), {}, each(counted))

    def on_from_first(at: np.ndarray, call: Call) -> np.ndarray:
        return np.take(at, [0], axis=tokens) + counted(at, call) if at.size else at

    yield Suspect(("positions-from-first",), {"how": "only differences within a call matter"}, each(from_first))
    yield Suspect(("positions-from-first",), {"how": "the others are not read"}, each(on_from_first))
    yield Suspect(("positions-of-first-sequence",), {}, each(of_first))
    for coarse in COARSE:
        parameters = {"dtype": coarse, "first": {"bfloat16": 257, "float16": 2049}[coarse]}
        for held in HELD:
            yield Suspect(
                ("positions-rounded",), parameters, each(lambda at, _, coarse=coarse, held=held: held(at, coarse))
            )
        yield Suspect(
            ("positions-rounded",),
            parameters,
            each(lambda at, call, coarse=coarse: rounded(at, coarse) if call.dtype == coarse else at),
        )
    # A table of one row turns nothing, which is another fault.
    for last in seen.ends():

        def evicted(at: np.ndarray, _: Call, last: int = last) -> np.ndarray:
            return np.minimum(at[..., :1], last) + (at - at[..., :1]) if at.size and not several else at

        yield Suspect(("eviction-stops-positions",), {"last": last}, each(evicted))
    ends = {int(seen.first_wrong)} if seen.first_wrong and seen.first_wrong > 1 else set()
    for rows in sorted(ends):
        yield Suspect(
            ("table-ends",),
            {"rows": rows, "how": "repeats the last one"},
            each(lambda at, _, rows=rows: np.minimum(at, rows - 1)),
        )
        yield Suspect(("table-ends",), {"rows": rows, "how": "begins again"}, each(lambda at, _, rows=rows: at % rows))
        for dtype in COARSE:
            for near in {rows, 1 << (rows.bit_length() - 1)}:
                yield Suspect(
                    ("table-rebuilt-rounded",),
                    {"rows": near, "dtype": dtype},
                    built(lambda it, near=near, dtype=dtype: Turning(it, phases=_beyond(near, dtype))),
                )
    for name, axis, one, place in (("heads", "heads", "head", 1), ("batch", "sequences", "sequence", 0)):
        if name not in seen.axes or several or spec.xpos is not None:
            continue

        def along(
            it: Rotary, given: bool, x: np.ndarray, positions: np.ndarray, *_: Any, place: int = place
        ) -> np.ndarray:
            number = x.shape[place]
            at = np.resize(np.ravel(positions), number) if given and np.size(positions) else np.arange(number)
            moved = np.moveaxis(x, place, -2)
            return np.moveaxis(Turning(it)(moved, at), -2, place)

        for given in (False, True):
            yield Suspect(
                ("turns-other-axis",),
                {"axis": axis, "one": one},
                built(lambda it, along=along, given=given: functools.partial(along, it, given)),
            )


def _beyond(rows: int, dtype: str) -> Phases:
    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        fine = call.turning.phases(at)
        # All of a table is built again, in the dtype of the tokens that were longer than it.
        if not at.size or at.max() < rows:
            return fine
        coarse = rounded(call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype)), dtype)
        axes = call.turning.spec.axes
        late = at >= rows
        return np.where(late[..., None] if axes is None else late[..., list(axes)], coarse, fine)

    return phases


def wrong_arithmetic(seen: Seen) -> Iterator[Suspect]:
    """Numbers are rounded on the way."""

    def rates(dtype: str) -> Phases:
        return lambda at, call: call.turning.phases(at, rounded(call.turning.rates, dtype))

    def product(dtype: str) -> Phases:
        return lambda at, call: rounded(call.turning.phases(at), dtype)

    def rates_and_product(dtype: str) -> Phases:
        return lambda at, call: rounded(call.turning.phases(at, rounded(call.turning.rates, dtype)), dtype)

    def everything(held: Held) -> Callable[[str], Phases]:
        return lambda dtype: (
            lambda at, call: rounded(call.turning.phases(held(at, dtype), rounded(call.turning.rates, dtype)), dtype)
        )

    def places_and_rates(held: Held) -> Callable[[str], Phases]:
        return lambda dtype: lambda at, call: call.turning.phases(held(at, dtype), rounded(call.turning.rates, dtype))

    def places_and_product(held: Held) -> Callable[[str], Phases]:
        return lambda dtype: lambda at, call: rounded(call.turning.phases(held(at, dtype)), dtype)

    ways = (
        (("rates-rounded",), rates),
        (("phases-rounded",), product),
        (("phases-rounded", "rates-rounded"), rates_and_product),
        *((("positions-rounded", "rates-rounded", "phases-rounded"), everything(held)) for held in HELD),
        *((("positions-rounded", "rates-rounded"), places_and_rates(held)) for held in HELD),
        *((("positions-rounded", "phases-rounded"), places_and_product(held)) for held in HELD),
    )
    for dtype in COARSE:
        first = {"bfloat16": 257, "float16": 2049}[dtype]
        for codes, way in ways:
            phases = way(dtype)
            parameters = {"dtype": dtype, "first": first}
            yield Suspect(codes, parameters, built(lambda it, phases=phases: Turning(it, phases=phases)))
            if len(codes) > 1:  # a chain in one dtype holds its waves in it too
                yield Suspect(
                    codes,
                    parameters,
                    built(lambda it, phases=phases, dtype=dtype: Turning(it, phases=phases, waves=_waves(dtype))),
                )

            def coarse_only(at: np.ndarray, call: Call, phases: Any = phases, dtype: str = dtype) -> np.ndarray:
                return phases(at, call) if call.dtype == dtype else call.turning.phases(at)

            if seen.coarse == dtype and seen.dtype != dtype:
                yield Suspect(
                    codes, parameters, built(lambda it, coarse_only=coarse_only: Turning(it, phases=coarse_only))
                )
        yield Suspect(
            ("table-rounded",), {"dtype": dtype}, built(lambda it, dtype=dtype: Turning(it, waves=_waves(dtype)))
        )


def _waves(dtype: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return lambda cosine, sine, _: (rounded(cosine, dtype), rounded(sine, dtype))


def wrong_pairs(spec: Rotary) -> Iterator[Suspect]:
    """Waves meet the wrong channels."""
    yield Suspect(("no-rotation",), {"when": ""}, _same(lambda x, *_: np.array(x, np.float64)))
    yield Suspect(
        ("sine-and-cosine-swapped",), {}, built(lambda it: Turning(it, waves=lambda cosine, sine, _: (sine, cosine)))
    )

    def pairs(rule: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Callable[[], Callable[[Rotary], Apply]]:
        def turn(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary) -> np.ndarray:
            y = np.array(x, np.float64)
            one, other = it.channels.T
            y[..., one], y[..., other] = rule(x[..., one], x[..., other], cosine, sine)
            return y

        return built(lambda it: Turning(it, turn=turn))

    signs = (
        ("a plus in both channels of a pair", lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        ("a minus in both channels of a pair", lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
        ("no effect on the second channel of a pair", lambda a, b, c, s: (a * c - b * s, b)),
        ("no effect on the first channel of a pair", lambda a, b, c, s: (a, b * c + a * s)),
    )
    for words, rule in signs:
        yield Suspect(("one-half-only",), {"signs": words}, pairs(rule))
    half = spec.rotated // 2
    if half > 1 and not spec.blocks and not spec.reordered:

        def mixed(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary) -> np.ndarray:
            y = np.array(x, np.float64)
            one, other = it.channels.T
            # The table is laid out as the other layout repeats it.
            table = np.arange(it.rotated // 2)
            spread = np.tile(table, 2) if it.layout == "interleaved" else np.repeat(table, 2)
            at_one, at_other = spread[one - it.start], spread[other - it.start]
            a, b = x[..., one], x[..., other]
            y[..., one] = a * cosine[..., at_one] - b * sine[..., at_one]
            y[..., other] = b * cosine[..., at_other] + a * sine[..., at_other]
            return y

        names = {"halves": "interleaved pairs", "interleaved": "halves"}
        yield Suspect(
            ("table-and-pairs-disagree",),
            {"table": names[spec.layout], "pairs": spec.layout},
            built(lambda it: Turning(it, turn=mixed)),
        )


def _same(apply: Apply) -> Callable[[], Callable[[Rotary], Apply]]:
    """A process whose models are all this one."""
    return lambda: lambda _: apply
