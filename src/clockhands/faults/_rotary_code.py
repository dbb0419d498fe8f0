"""A rotary implementation in stages, and suspects that apply the right spec wrongly.

Its stages are ``places -> phases -> waves -> turn``: the waves turn the pairs. Positions are read otherwise, numbers
are rounded, waves meet the wrong channels, or answers depend on what was asked before.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.faults._fault import Suspect
from clockhands.faults._stages import (
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
    rounded,
    rounded_phases,
    shared,
    unwrapped_rates,
)
from clockhands.rotary import Rotary
from clockhands.rotary.formula import plain


class StagedRotary:
    """A right implementation, or one with a stage of another kind.

    Each stage is a function that is called with what the stage before made, and with the call (`Call`).
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
        """What it makes of tokens [batch, heads, seq, width], float64."""
        at = np.asarray(positions, np.float64)
        call = Call(self, x, at, dtype, role)
        at = at if self.places is None else self.places(at, call)
        phases = self.phases(at) if self.make_phases is None else self.make_phases(at, call)
        cosine, sine = np.cos(phases), np.sin(phases)
        if self.waves is not None:
            cosine, sine = self.waves(cosine, sine, call)
        growth = self.factor * self.growth(at, role)
        cosine, sine = call.aligned(cosine * growth), call.aligned(sine * growth)
        return (self.turn or turned)(x, cosine, sine, self.spec)

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, pairs], negative where the code turns backward."""
        rates = self.rates if rates is None else rates
        sign = -1.0 if self.spec.direction == "backward" else 1.0
        if self.spec.axes is None:
            return sign * at[..., None] * rates
        return sign * at[..., list(self.spec.axes)] * rates

    def growth(self, at: np.ndarray, role: str | None) -> np.ndarray | float:
        """What xPos multiplies a query by, or a key."""
        if self.spec.xpos is None:
            return 1.0
        power = self.spec.xpos.logarithms(self.spec.rotated // 2)
        exponent = (at - self.spec.xpos.centre)[..., None] * power
        return np.exp(-exponent if role == "key" else exponent)


def turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """The right last stage."""
    shape = (*x.shape[:-1], cosine.shape[-1])
    return plain(x, np.broadcast_to(cosine, shape), np.broadcast_to(sine, shape), spec, np)


Samples = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Tokens and what became of them, [rows, width] each."""


def turning_of(samples: Samples, spec: Rotary) -> tuple[np.ndarray, bool]:
    """What each pair of a spec was multiplied by, complex [rows, pairs], and whether that is what happened to it.

    Pairs that were turned or stretched, and nothing else, are multiplied alike whatever the tokens are.
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
    """What was measured of an implementation before suspects are tried.

    Attributes:
        dtype: The dtype of its tokens.
        coarse: The coarser dtype that it was asked in too, or None.
        length: Positions that it was asked for.
        first_wrong: The first position at which it is wrong, or None.
        positions: Where its turning was measured, [n], without repetition.
        turning: What each pair was multiplied by there, complex [n, pairs], as the declared pairs have it.
        pairwise: Whether that is what happened: pairs were turned or stretched, and nothing else.
        specs: Codes that it was recognised as.
        axes: Which of batch and heads its tokens have.
        stands: Where its tokens seem to stand, for each of the positions; None where that is not seen.
        first_right: The first position after the first wrong one at which it is right, or None.
        samples: Tokens and what became of them at these positions, [n, width] each, drawn more than once.
        role: What they are, ``"key"`` or None for queries.
        counted: Whether it was asked for several runs of positions, since it counts them itself.
        coordinates: Coordinates that differ, [m, axes], for codes of several axes.
        apart: What became of tokens at these coordinates, as in `samples`.
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
        """What was measured, as the pairs of another spec have it."""
        if not self.samples:
            return self
        turning, pairwise = turning_of(self.samples, spec)
        return replace(self, turning=turning, pairwise=pairwise, stands=None)

    def right(self, spec: Rotary, **stages: Any) -> Apply:
        """A right implementation but for some stages."""
        return StagedRotary(spec, **stages)

    def may_be(self, suspect: Suspect, spec: Rotary) -> bool:
        """Whether a suspect is anywhere near what was measured: most are not, and need not be asked everything."""
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
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None where that is not seen."""
        if not self.pairwise:
            return None
        at = {int(place): np.angle(row) for place, row in zip(self.positions, self.turning, strict=True)}
        return unwrapped_rates(at)

    def evenly(self) -> bool:
        """Whether each pair turns by one angle more with each token."""
        rates = self.rates()
        if rates is None:
            return False
        start = self.turning[self.positions == 0][0]
        turned = start * np.exp(1j * self.positions[:, None] * rates)
        return bool(np.abs(turned - self.turning).max() <= 0.05 * max(np.abs(start).max(), 1e-30))

    def apparent(self, spec: Rotary) -> np.ndarray | None:
        """The position below the length whose turning comes nearest to what was seen at each position."""
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
        """The last position that something seems to stand at, where all later ones seem to stand there too."""
        if self.stands is None or len(self.stands) < 3 or (last := int(self.stands[-1])) <= 0:
            return ()
        late = (self.stands == last) & (self.positions > last)
        return (last,) if late.sum() >= 3 else ()

    def size(self) -> float | None:
        """What every pair is multiplied by, if it is one number."""
        sizes = np.abs(self.turning)
        if not self.pairwise or not sizes.size or np.ptp(sizes) > 0.01 * np.median(sizes):
            return None
        return float(np.median(sizes))


Held = Callable[[np.ndarray, str], np.ndarray]


def _in_blocks(size: int) -> Held:
    """Positions as a range of a coarse dtype counts them: the start of each block is rounded, then the sum.

    PyTorch's vectorised ``arange`` does so, in blocks of 16 or 32 numbers.
    """
    return lambda at, dtype: rounded(rounded(at // size * size, dtype) + at % size, dtype)


HELD: tuple[Held, ...] = (rounded, _in_blocks(16), _in_blocks(32))


def wrong_places(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Positions are read otherwise."""
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
    # A table of one row turns nothing, which is another fault.
    for last in seen.ends():

        def evicted(at: np.ndarray, _: Call, last: int = last) -> np.ndarray:
            return np.minimum(at[..., :1], last) + (at - at[..., :1]) if at.size and not several else at

        yield seen.suspect("eviction-stops-positions", {"last": last}, places=evicted)
    if seen.first_wrong and seen.first_wrong > 1:
        rows = int(seen.first_wrong)
        repeats = {"rows": rows, "how": "repeats the last row"}
        yield seen.suspect("table-ends", repeats, places=lambda at, _: np.minimum(at, rows - 1))
        yield seen.suspect("table-ends", {"rows": rows, "how": "starts again at row 0"}, places=lambda at, _: at % rows)
        for dtype in COARSE:
            for near in {rows, 1 << (rows.bit_length() - 1)}:
                parameters = {"rows": near, "dtype": dtype}
                yield seen.suspect("table-rebuilt-rounded", parameters, phases=_beyond(near, dtype))
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


def _beyond(rows: int, dtype: str) -> Phases:
    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        fine = call.of.phases(at)
        # All of a table is built again, in the dtype of the tokens that were longer than it.
        if not at.size or at.max() < rows:
            return fine
        axes = call.of.spec.axes
        late = at >= rows
        coarse = rounded_phases(at, call, "prf", dtype)
        return np.where(late[..., None] if axes is None else late[..., list(axes)], coarse, fine)

    return phases


def wrong_arithmetic(_: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Numbers are rounded on the way."""
    ways = [(codes, parts, held) for codes, parts in PARTS for held in (HELD if "p" in parts else HELD[:1])]
    for dtype, first in COARSE.items():
        parameters = {"dtype": dtype, "first": first}
        for codes, parts, held in ways:

            def phases(
                at: np.ndarray, call: Call, parts: str = parts, dtype: str = dtype, held: Held = held
            ) -> np.ndarray:
                return rounded_phases(at, call, parts, dtype, held)

            yield seen.suspect(codes, parameters, phases=phases)
            if len(codes) > 1:  # a chain in one dtype holds its waves in it too
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
    """Waves meet the wrong channels."""
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
            # The table is laid out as the other layout repeats it.
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
    """A last stage that is done twice."""
    return turned(turned(x, cosine, sine, spec), cosine, sine, spec)


def _other_partners(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """The partners of a partial rotation: half of the head further where it is half of what turns, or the reverse."""
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
    """The first rows are another thing than all later ones: of the table, by position, or of every call."""
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
    """Suspects whose answers depend on what was asked before: caches without their key, first dtypes, counters."""
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
    """A table of so many rows, made again in a coarse dtype when a later position is asked for, and kept so."""
    late = False

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        nonlocal late
        late = late or bool(at.size and at.max() >= rows)
        return rounded_phases(at, call, "prf" if late else "", dtype)

    return StagedRotary(spec, phases=phases)


def _first_model_turns() -> Callable[[Rotary], Apply]:
    """A process whose first model is right, and whose others turn nothing."""
    models = itertools.count()
    return lambda spec: _unturned if next(models) else StagedRotary(spec)


def _longest_kept(spec: Rotary) -> Apply:
    """The rows of the longest call so far serve all that are no longer, wherever they start."""
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
    """Half as many channels turn with each call, by a ladder of their own or by the first rates of the right one."""

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
