"""A rotary implementation in stages, and suspects that apply the right spec incorrectly.

Its stages are ``places -> phases -> waves -> turn``: cosines and sines rotate the pairs. The suspects use wrong
positions, round numbers, rotate the wrong channels, or keep state between calls.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.errors import InvalidValue
from clockhands.recognition.suspects._stages import (
    COARSE,
    FIRST_ONLY,
    PARTS,
    Apply,
    Call,
    CoarseCache,
    Phases,
    Places,
    SuspectMaker,
    first_sequence_only,
    kept_by_length,
    other_ends,
    rebuilt_tables,
    rounded,
    rounded_phases,
    shared,
    unwrapped_rates,
)
from clockhands.recognition.suspects._suspect import Suspect


class StagedRotary:
    """A correct implementation, or one with some stages replaced.

    Each stage is a function of the previous stage's result and the call (`Call`).
    """

    def __init__(
        self,
        spec: Rotary,
        *,
        rates: np.ndarray | None = None,
        places: Callable[[np.ndarray, Call], np.ndarray] | None = None,
        phases: Callable[[np.ndarray, Call], np.ndarray] | None = None,
        waves: Callable[[np.ndarray, np.ndarray, Call], tuple[np.ndarray, np.ndarray]] | None = None,
        turn: Callable[[np.ndarray, np.ndarray, np.ndarray, Rotary], np.ndarray] | None = None,
        factor: float | None = None,
    ) -> None:
        self.spec: Rotary = spec
        self.rates: np.ndarray = np.array(spec.rates) if rates is None else rates
        self.factor: float = spec.attention_factor if factor is None else factor
        self.places: Callable[[np.ndarray, Call], np.ndarray] | None = places
        self.make_phases: Callable[[np.ndarray, Call], np.ndarray] | None = phases
        self.waves: Callable[[np.ndarray, np.ndarray, Call], tuple[np.ndarray, np.ndarray]] | None = waves
        self.turn: Callable[[np.ndarray, np.ndarray, np.ndarray, Rotary], np.ndarray] | None = turn

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, dtype: str = "float32", role: str | None = None
    ) -> np.ndarray:
        """The result for tokens [batch, heads, seq, width], float64."""
        at = np.asarray(positions, np.float64)
        call = Call(self, x, at, dtype, role)
        at = at if self.places is None else self.places(at, call)
        phases = self.phases(at) if self.make_phases is None else self.make_phases(at, call)
        # Far positions that are rounded to float16 are infinite (see `rounded`): the answer is then NaN.
        with np.errstate(invalid="ignore"):
            cosine, sine = np.cos(phases), np.sin(phases)
        if self.waves is not None:
            cosine, sine = self.waves(cosine, sine, call)
        growth = self.factor * self.growth(at, role)
        cosine, sine = call.aligned(cosine * growth), call.aligned(sine * growth)
        return (self.turn or turned)(x, cosine, sine, self.spec)

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, pairs], negative where the code rotates backward."""
        rates = self.rates if rates is None else rates
        sign = -1.0 if self.spec.direction == "backward" else 1.0
        if self.spec.axes is None:
            return sign * at[..., None] * rates
        return sign * at[..., list(self.spec.axes)] * rates

    def growth(self, at: np.ndarray, role: str | None) -> np.ndarray | float:
        """The xPos factor of a query or a key."""
        if self.spec.xpos is None:
            return 1.0
        power = self.spec.xpos.logarithms(self.spec.rotated // 2)
        exponent = (at - self.spec.xpos.centre)[..., None] * power
        return np.exp(-exponent if role == "key" else exponent)


def turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """The correct last stage."""
    shape = (*x.shape[:-1], cosine.shape[-1])
    return plain(x, np.broadcast_to(cosine, shape), np.broadcast_to(sine, shape), spec, np)


Samples = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Input and output tokens, [rows, width] each."""


def turning_of(samples: Samples, spec: Rotary) -> tuple[np.ndarray, bool]:
    """The complex factor of each pair of a spec, [rows, pairs], and whether each pair was only multiplied by it.

    Pairs that were only rotated or scaled have the same factor for every token.
    """
    first, second = spec.channels.T
    measured = []
    for x, y in samples:
        with np.errstate(invalid="ignore", divide="ignore"):
            measured.append((y[..., first] + 1j * y[..., second]) / (x[..., first] + 1j * x[..., second]))
    if not measured:
        return np.zeros((0, len(first)), complex), False
    one, other = measured[0], measured[-1]
    with np.errstate(invalid="ignore"):
        alike = (np.abs(one - other) <= 0.05 * np.maximum(np.abs(one), 0.1)).mean() > 0.98
    return one, bool(alike)


@dataclass(frozen=True)
class SeenRotary(SuspectMaker):
    """Measurements of a rotary implementation, made before suspects are tried.

    Attributes:
        dtype: The dtype of its tokens.
        coarse: The coarser dtype in which it was also called, or None.
        length: Number of positions at which it was called.
        first_wrong: The first wrong position, or None.
        positions: The positions of the measurements, [n], without repetition.
        turning: The complex factor of each declared pair there, [n, pairs].
        pairwise: Whether pairs were only rotated or scaled.
        specs: Codes that it was recognised as.
        axes: Which of batch and heads its tokens have.
        stands: The apparent position of its tokens at each of the positions; None if not measurable.
        first_right: The first correct position after the first wrong one, or None.
        samples: Input and output tokens at these positions, [n, width] each, drawn more than once.
        role: ``"key"`` for keys, None for queries.
        counted: Whether it was called for several runs of positions, because it counts them itself.
        coordinates: Coordinates that differ, [m, axes], for codes of several axes.
        apart: Input and output tokens at these coordinates, as in `samples`.
    """

    dtype: str
    coarse: str | None
    length: int
    first_wrong: int | None
    positions: np.ndarray
    turning: np.ndarray
    pairwise: bool
    specs: tuple[Rotary, ...] = ()
    axes: tuple[str, ...] = ()
    stands: np.ndarray | None = None
    first_right: int | None = None
    samples: Samples = ()
    role: str | None = None
    counted: bool = False
    coordinates: np.ndarray | None = None
    apart: Samples = ()

    def of(self, spec: Rotary) -> "SeenRotary":
        """The same measurements, for the pairs of another spec."""
        if not self.samples:
            return self
        turning, pairwise = turning_of(self.samples, spec)
        return replace(self, turning=turning, pairwise=pairwise, stands=None)

    def right(self, spec: Rotary, **stages: Any) -> Apply:
        """A correct implementation with some stages replaced."""
        return StagedRotary(spec, **stages)

    def may_be(self, suspect: Suspect, spec: Rotary) -> bool:
        """Whether a suspect roughly agrees with the measurements; most do not and need no full comparison."""
        if not self.samples or suspect.parts is None:
            return True
        at = self.positions if spec.axes is None else np.repeat(self.positions[:, None], spec.number_of_axes, axis=1)
        (x, y), *_ = self.samples
        with np.errstate(all="ignore"):
            other, stages = suspect.parts(spec)
            if self.counted and "places" in stages:
                return True
            made = self.right(other, **stages)(x[None, None], at, self.dtype, self.role)[0, 0]
            return bool(np.nanmax(np.abs(made - y), initial=0.0) <= 0.1 * max(np.abs(y).max(), 1.0))

    def rates(self) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None if not measurable."""
        if not self.pairwise:
            return None
        at = {int(place): np.angle(row) for place, row in zip(self.positions, self.turning, strict=True)}
        return unwrapped_rates(at)

    def evenly(self) -> bool:
        """Whether each pair rotates by a constant angle per token."""
        rates = self.rates()
        if rates is None:
            return False
        start = self.turning[self.positions == 0][0]
        turned = start * np.exp(1j * self.positions[:, None] * rates)
        return bool(np.abs(turned - self.turning).max() <= 0.05 * max(np.abs(start).max(), 1e-30))

    def apparent(self, spec: Rotary) -> np.ndarray | None:
        """For each position the one below ``length`` whose correct rotation is closest to the measured one."""
        if not self.pairwise or spec.axes is not None or not len(self.positions):
            return None
        if not np.isfinite(self.turning).all():
            return None
        sign = -1 if spec.direction == "backward" else 1
        reach = np.arange(self.length)
        known = np.exp(1j * sign * reach[:, None] * np.array(spec.rates))
        seen = self.turning / np.maximum(np.abs(self.turning), 1e-30)
        off = np.stack([np.abs(known - row).max(axis=1) for row in seen])
        return np.where(off.min(axis=1) < 0.05, np.argmin(off, axis=1), -1)

    def ends(self) -> tuple[int, ...]:
        """The last apparent position, if all later tokens appear to be at that position too."""
        if self.stands is None or len(self.stands) < 3 or (last := int(self.stands[-1])) <= 0:
            return ()
        late = (self.stands == last) & (self.positions > last)
        return (last,) if late.sum() >= 3 else ()

    def size(self) -> float | None:
        """The common factor of all pairs, if there is one."""
        sizes = np.abs(self.turning)
        if not self.pairwise or not sizes.size or np.ptp(sizes) > 0.01 * np.median(sizes):
            return None
        return float(np.median(sizes))


Held = Callable[[np.ndarray, str], np.ndarray]


def _in_blocks(size: int) -> Held:
    """Positions as ``arange`` of a low-precision dtype gives them: the start of each block is rounded, then the sum.

    PyTorch's vectorised ``arange`` does this in blocks of 16 or 32 numbers.
    """
    return lambda at, dtype: rounded(rounded(at // size * size, dtype) + at % size, dtype)


HELD: tuple[Held, ...] = (rounded, _in_blocks(16), _in_blocks(32))


def wrong_places(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with wrong positions."""
    several = spec.axes is not None
    read = Places(several)
    yield seen.suspect("positions-ignored", {}, places=lambda at, _: read.counted(at))
    for how, places in (
        ("every call starts at position 0", read.from_first),
        ("later positions that are passed in are ignored", read.on_from_first),
    ):
        yield seen.suspect("positions-from-first", {"how": how}, places=places)
    yield seen.suspect("positions-of-first-sequence", {}, places=read.of_first_sequence)
    for coarse, first in COARSE.items():
        parameters = {"dtype": coarse, "first": first}
        for held in HELD:
            yield seen.suspect(
                "positions-rounded", parameters, places=lambda at, _, coarse=coarse, held=held: held(at, coarse)
            )
        yield seen.suspect(
            "positions-rounded",
            parameters,
            places=lambda at, call, coarse=coarse: rounded(at, coarse) if call.dtype == coarse else at,
        )
    yield from _without_rows(seen, read)
    # A table of one row rotates nothing, which is another fault.
    for last in seen.ends():

        def evicted(at: np.ndarray, _: Call, last: int = last) -> np.ndarray:
            return np.minimum(at[..., :1], last) + (at - at[..., :1]) if at.size and not several else at

        yield seen.suspect("eviction-stops-positions", {"last": last}, places=evicted)
    if seen.first_wrong and seen.first_wrong > 1:
        rows = int(seen.first_wrong)
        for how, places in other_ends(rows):
            yield seen.suspect("table-ends", {"rows": rows, "how": how}, places=places)
        yield from rebuilt_tables(seen, rows)
    for name, axis, one, place in (("heads", "heads", "head", 1), ("batch", "sequences", "sequence", 0)):
        if name not in seen.axes or several or spec.xpos is not None:
            continue

        def along(
            it: Rotary, given: bool, x: np.ndarray, positions: np.ndarray, *_: Any, place: int = place
        ) -> np.ndarray:
            number = x.shape[place]
            at = np.resize(np.ravel(positions), number) if given and np.size(positions) else np.arange(number)
            moved = np.moveaxis(x, place, -2)
            return np.moveaxis(StagedRotary(it)(moved, at), -2, place)

        for given in (False, True):
            yield seen.built(
                "turns-other-axis",
                {"axis": axis, "one": one},
                lambda it, along=along, given=given: functools.partial(along, it, given),
            )


def _without_rows(seen: SeenRotary, read: Places) -> Iterator[Suspect]:
    """Suspects whose calls find no rows of cosines and sines where they start late."""
    beyond = "beyond their own length"

    def copied(at: np.ndarray, call: Call) -> np.ndarray:
        return read.counted(at) - (at - read.from_first(at, call))

    ways: tuple[tuple[str, str, Phases | None, Callable[[np.ndarray, np.ndarray], np.ndarray]], ...] = (
        (
            beyond,
            ": the table is read from row 0 on and written from the row of the start on, instead of the reverse",
            copied,
            lambda rows, at: rows < at[..., :1],
        ),
        (beyond, ": the table has only as many rows as the call", None, lambda rows, at: at >= rows.shape[-1]),
        ("later than position 0", "", None, lambda _, at: np.broadcast_to(at[..., :1] > 0, at.shape)),
    )
    for (where, how, places, absent), (what, cosines) in itertools.product(ways, _NO_ROWS):

        def waves(
            cosine: np.ndarray,
            sine: np.ndarray,
            call: Call,
            absent: Callable[[np.ndarray, np.ndarray], np.ndarray] = absent,
            cosines: float = cosines,
        ) -> tuple[np.ndarray, np.ndarray]:
            at = call.positions[..., 0] if read.several else call.positions
            if not at.size:
                return cosine, sine
            none = absent(np.broadcast_to(np.arange(at.shape[-1]), at.shape), at)[..., None]
            return np.where(none, cosines, cosine), np.where(none, 0.0, sine)

        stages = {"waves": waves} if places is None else {"places": places, "waves": waves}
        yield seen.suspect("late-calls-without-rows", {"what": what, "where": where, "how": how}, **stages)


_NO_ROWS = (("zeros", 0.0), ("unrotated tokens", 1.0))


def wrong_arithmetic(_: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects that round intermediate numbers."""
    ways = [(codes, parts, held) for codes, parts in PARTS for held in (HELD if "p" in parts else HELD[:1])]
    for dtype, first in COARSE.items():
        parameters = {"dtype": dtype, "first": first}
        for codes, parts, held in ways:

            def phases(
                at: np.ndarray, call: Call, parts: str = parts, dtype: str = dtype, held: Held = held
            ) -> np.ndarray:
                return rounded_phases(at, call, parts, dtype, held)

            yield seen.suspect(codes, parameters, phases=phases)
            if len(codes) > 1:  # if several steps use the dtype, cosine and sine may be rounded to it too
                yield seen.suspect(codes, parameters, phases=phases, waves=_rounded_waves(dtype))

            def coarse_only(at: np.ndarray, call: Call, phases: Phases = phases, dtype: str = dtype) -> np.ndarray:
                return phases(at, call) if call.dtype == dtype else call.of.phases(at)

            if seen.coarse == dtype and seen.dtype != dtype:
                yield seen.suspect(codes, parameters, phases=coarse_only)
        yield seen.suspect("table-rounded", {"dtype": dtype}, waves=_rounded_waves(dtype))


def _rounded_waves(
    dtype: str, when: Callable[[Call], bool] = lambda _: True
) -> Callable[[np.ndarray, np.ndarray, Call], tuple[np.ndarray, np.ndarray]]:
    def waves(cosine: np.ndarray, sine: np.ndarray, call: Call) -> tuple[np.ndarray, np.ndarray]:
        return (rounded(cosine, dtype), rounded(sine, dtype)) if when(call) else (cosine, sine)

    return waves


def wrong_pairs(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects that rotate the wrong channels."""
    yield seen.built("no-rotation", {"when": ""}, lambda _: _unturned)
    yield seen.suspect("sine-and-cosine-swapped", {}, waves=lambda cosine, sine, _: (sine, cosine))
    yield from _other_partners(spec, seen)
    yield from _leading_rows(seen)
    signs: tuple[tuple[str, Callable[..., tuple[np.ndarray, np.ndarray]]], ...] = (
        ("a plus in both dimensions of a pair", lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        ("a minus in both dimensions of a pair", lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
        ("no effect on the second dimension of a pair", lambda a, b, c, s: (a * c - b * s, b)),
        ("no effect on the first dimension of a pair", lambda a, b, c, s: (a, b * c + a * s)),
    )
    for words, rule in signs:

        def turn(
            x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary, rule: Callable[..., Any] = rule
        ) -> np.ndarray:
            y = np.array(x, np.float64)
            one, other = it.channels.T
            y[..., one], y[..., other] = rule(x[..., one], x[..., other], cosine, sine)
            return y

        yield seen.suspect("one-half-only", {"signs": words}, turn=turn)
    if spec.rotated // 2 > 1 and not spec.blocks and not spec.reordered:

        def mixed(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary) -> np.ndarray:
            y = np.array(x, np.float64)
            one, other = it.channels.T
            # The table of cosines is repeated as for the other layout.
            table = np.arange(it.rotated // 2)
            spread = np.tile(table, 2) if it.layout == "interleaved" else np.repeat(table, 2)
            at_one, at_other = spread[one - it.start], spread[other - it.start]
            a, b = x[..., one], x[..., other]
            y[..., one] = a * cosine[..., at_one] - b * sine[..., at_one]
            y[..., other] = b * cosine[..., at_other] + a * sine[..., at_other]
            return y

        names = {"halves": "half-split", "interleaved": "interleaved"}
        tables = {"halves": "interleaved", "interleaved": "half-split"}
        parameters = {"table": tables[spec.layout], "pairs": names[spec.layout]}
        yield seen.suspect("table-and-pairs-disagree", parameters, turn=mixed)


def _unturned(x: np.ndarray, *_: Any) -> np.ndarray:
    return np.array(x, np.float64)


def turned_twice(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """A last stage that rotates twice."""
    return turned(turned(x, cosine, sine, spec), cosine, sine, spec)


def _other_partners(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Wrong partners in partial RoPE: half of the head apart instead of half of the RoPE dimensions, or the reverse."""
    if spec.layout != "halves" or spec.blocks or spec.start:
        return
    turning = int(np.count_nonzero(spec.rates))
    declared = spec.rotated // 2
    used = spec.head_width // 2 if spec.rotated < spec.head_width else turning
    if used == declared or not turning or any(spec.rates[turning:]):
        return

    def turn(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, _: Rotary) -> np.ndarray:
        y = np.array(x, np.float64)
        a, b = x[..., :turning], x[..., used : used + turning]
        cosine, sine = cosine[..., :turning], sine[..., :turning]
        y[..., :turning], y[..., used : used + turning] = a * cosine - b * sine, b * cosine + a * sine
        return y

    yield seen.suspect("other-partners", {"used": used, "declared": declared, "pairs": turning}, turn=turn)


def _leading_rows(seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects whose first rows differ from later ones: in the table, by position, or in every call."""
    rows = seen.first_right
    if rows is None or seen.first_wrong is None or seen.first_wrong > 1:
        return

    last = "position 0" if rows == 1 else f"positions 0 to {rows - 1:,}"
    be = "is" if rows == 1 else "are"
    in_call = "the first row of each call" if rows == 1 else f"the first {rows:,} rows of each call"
    for how, cosines in (("returned as zeros", 0.0), ("not rotated", 1.0)):
        for which, by_row in ((last, False), (in_call, True)):

            def waves(
                cosine: np.ndarray, sine: np.ndarray, call: Call, cosines: float = cosines, by_row: bool = by_row
            ) -> tuple[np.ndarray, np.ndarray]:
                at = call.positions if call.of.spec.axes is None else call.positions[..., 0]
                early = (np.broadcast_to(np.arange(at.shape[-1]), at.shape) if by_row else at) < rows
                return np.where(early[..., None], cosines, cosine), np.where(early[..., None], 0.0, sine)

            yield seen.suspect("leading-rows", {"which": which, "how": f"{be} {how}", "rows": rows}, waves=waves)


_CACHES = {
    "cache-without-base": ("spacing",),
    "cache-without-scaling": ("scaling", "length"),
    "cache-without-width": ("head_width", "rotated"),
}


def rotary_stateful(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with state between calls: caches with an incomplete key, the first call's dtype, counters."""
    for code, without in _CACHES.items():
        yield Suspect((code,), {}, lambda without=without: shared(without, StagedRotary, _with_held_rates))
    for dtype in COARSE:
        stages: tuple[Callable[[CoarseCache], dict[str, Any]], ...] = (
            lambda cache: {"waves": _rounded_waves(cache.dtype, cache)},
            lambda cache: {"places": cache.places},
            lambda cache: {"phases": cache.phases},
        )
        for kept, first in itertools.product(stages, (False, True)):
            yield seen.built(
                "cache-keeps-first-dtype",
                {"dtype": dtype},
                lambda it, kept=kept, dtype=dtype, first=first: StagedRotary(it, **kept(CoarseCache(dtype, first))),
            )
        for rows in (512, 1024, 2048, 4096, 8192):
            yield seen.built(
                "table-rebuilt-rounded",
                {"rows": rows, "dtype": dtype},
                lambda it, rows=rows, dtype=dtype: _rebuilt(it, rows, dtype),
            )
    yield seen.built("cache-keeps-offset", {}, lambda it: StagedRotary(it, places=kept_by_length()))
    yield seen.built("cache-keeps-offset", {}, _longest_kept)
    yield Suspect(("no-rotation",), {"when": " in every model but the first"}, _first_model_turns)
    for when, always in FIRST_ONLY:
        yield seen.built(
            "first-sequence-only",
            {"when": when},
            lambda it, always=always: first_sequence_only(StagedRotary(it), always, lambda others: others),
        )
    for least, cut in itertools.product((0, 2), (False, True)):
        yield seen.built("shrinks-each-call", {}, lambda it, least=least, cut=cut: _Shrinking(it, least, cut))
    if spec.scaling is not None and hasattr(spec.scaling, "original"):
        yield seen.built("remembers-longest", {}, _LongestSeen)


def _with_held_rates(held: StagedRotary, spec: Rotary) -> Apply:
    rates = held.rates if len(held.rates) == spec.rotated // 2 else np.resize(held.rates, spec.rotated // 2)
    return StagedRotary(spec, rates=rates, factor=held.factor)


def _rebuilt(spec: Rotary, rows: int, dtype: str) -> Apply:
    """A table of ``rows`` rows, rebuilt in a low-precision dtype for a later position, and kept."""
    late = False

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        nonlocal late
        late = late or bool(at.size and at.max() >= rows)
        return rounded_phases(at, call, "prf" if late else "", dtype)

    return StagedRotary(spec, phases=phases)


def _first_model_turns() -> Callable[[Rotary], Apply]:
    """A process whose first model is correct and whose other models rotate nothing."""
    models = itertools.count()
    return lambda spec: _unturned if next(models) else StagedRotary(spec)


def _longest_kept(spec: Rotary) -> Apply:
    """The rows of the longest call so far are reused for calls of at most that length, with any start."""
    kept = np.zeros(0)

    def places(at: np.ndarray, _: Call) -> np.ndarray:
        nonlocal kept
        if at.ndim != 1:
            return at
        if len(at) > len(kept):
            kept = at
        return kept[: len(at)]

    return StagedRotary(spec, places=places)


class _Shrinking:
    """Each call halves the RoPE dimensions, with a new ladder or with the first rates of the correct one."""

    def __init__(self, spec: Rotary, least: int, cut: bool) -> None:
        self.spec, self.rotated, self.least, self.cut = spec, spec.rotated, least, cut

    def __call__(self, x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        if self.spec.axes is not None or self.spec.blocks:
            raise InvalidValue("The spec gives its pairs one by one.", "Try another fault.")
        rotated, self.rotated = self.rotated, max(self.rotated // 2 // 2 * 2, self.least)
        if rotated < 2:
            return np.array(x, np.float64)
        now = replace(self.spec, rotated=rotated, scaling=None, length=None) if self.cut else None
        if now is None:
            return StagedRotary(replace(self.spec, rotated=rotated))(x, *arguments, **more)
        rates = np.array(self.spec.rates)[: rotated // 2]
        return StagedRotary(now, rates=rates, factor=self.spec.attention_factor)(x, *arguments, **more)


class _LongestSeen:
    """The rates of a scaling that depends on the length, at the longest length seen."""

    def __init__(self, spec: Rotary) -> None:
        self.spec, self.longest = spec, spec.length or 0

    def __call__(self, x: np.ndarray, positions: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        self.longest = max(self.longest, int(np.max(positions, initial=-1)) + 1)
        return StagedRotary(replace(self.spec, length=max(self.longest, 1)))(x, positions, *arguments, **more)
