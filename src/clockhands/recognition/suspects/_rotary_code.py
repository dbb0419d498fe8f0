"""A rotary implementation in stages, and suspects that apply the right spec incorrectly.

Its stages are ``places -> phases -> waves -> rotation``: cosines and sines rotate the pairs. The suspects use wrong
positions, round numbers or rotate the wrong channels.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import rounded
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.errors import ClockhandsError
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._stages import (
    COARSE,
    PARTS,
    Apply,
    Call,
    Held,
    Places,
    Stage,
    SuspectMaker,
    for_tokens_of,
    other_ends,
    phase_rounding,
    rebuilt_tables,
    rounding,
)
from clockhands.recognition.unwrapped_phases import rates_of_angles

Turn = Callable[[np.ndarray, np.ndarray, np.ndarray, Rotary], np.ndarray]
"""The last stage: ``rotation(x, cosines, sines, spec) -> rotated x``."""


class StagedRotary:
    """A correct implementation, or one with some stages replaced.

    The stage ``waves`` maps cosines and sines, [2, ..., seq, pairs].
    """

    def __init__(
        self,
        spec: Rotary,
        *,
        rates: np.ndarray | None = None,
        places: Stage | None = None,
        phases: Stage | None = None,
        waves: Stage | None = None,
        rotation: Turn | None = None,
        factor: float | None = None,
    ) -> None:
        self.spec: Rotary = spec
        self.places: Stage | None = places
        self.other_phases: Stage | None = phases
        self.waves: Stage | None = waves
        self.rates: np.ndarray = np.array(spec.ladder.rates) if rates is None else rates
        self.factor: float = spec.ladder.attention_factor if factor is None else factor
        self.rotation: Turn | None = rotation

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, dtype: str = "float32", role: str | None = None
    ) -> np.ndarray:
        """The result for tokens [batch, heads, seq, width], float64."""
        at = np.asarray(positions, np.float64)
        call = Call(self, x, at, dtype, role)
        if self.places is not None:
            at = self.places(at, call)
        phases = self.phases(at) if self.other_phases is None else self.other_phases(at, call)
        # Far positions that are rounded to float16 are infinite (see `rounded`): the answer is then NaN.
        waves = np.empty((2, *phases.shape))
        with np.errstate(invalid="ignore"):
            np.cos(phases, out=waves[0])
            np.sin(phases, out=waves[1])
        if self.waves is not None:
            waves = self.waves(waves, call)
        cosine, sine = waves * (self.factor * self.growth(at, role))
        if cosine.ndim == 3:  # each sequence has positions of its own, the same for all heads
            cosine, sine = cosine[:, None], sine[:, None]
        return (self.rotation or rotation_stage)(x, cosine, sine, self.spec)

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, pairs], negative where the code rotates backward."""
        rates = self.rates if rates is None else rates
        sign = sign_of(self.spec)
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


def rotation_stage(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """The correct last stage."""
    return plain(x, cosine, sine, spec, np)


def unscaled(spec: Rotary) -> Rotary:
    """The spec without its scaling."""
    return replace(spec, scaling=None, length=None)


def sign_of(spec: Rotary) -> float:
    """1, or -1 for a code that rotates backward."""
    return -1.0 if spec.direction == "backward" else 1.0


Samples = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Input and output tokens, [rows, width] each."""


def pair_factors(samples: Samples, spec: Rotary) -> tuple[np.ndarray, bool]:
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


def rotated_to(
    row: np.ndarray, spec: Rotary, places: np.ndarray, within: float, pairs: Any = slice(None)
) -> np.ndarray:
    """Those of some positions at which pairs of a spec have measured factors, up to their sizes; the nearest first.

    Args:
        row: The factor of each pair, [pairs].
        spec: The spec.
        places: The positions.
        within: The largest difference of a pair.
        pairs: Which of the spec's pairs.
    """
    row = row / np.maximum(np.abs(row), 1e-30)
    rates = sign_of(spec) * np.array(spec.rates)[pairs]
    for rate, factor in zip(rates, row, strict=True):  # high-frequency pairs, which come first, leave few positions
        places = places[np.abs(np.exp(1j * places * rate) - factor) < within]
    off = np.abs(np.exp(1j * places[:, None] * rates) - row).max(axis=1)
    return places[np.argsort(off, kind="stable")]


@dataclass(frozen=True)
class RotaryObservations(SuspectMaker):
    """Measurements of a rotary implementation, made before suspects are tried.

    Attributes:
        dtype: The dtype of its tokens.
        coarse: The coarser dtype in which it was also called, or None.
        length: Number of positions at which it was called.
        first_wrong: The first wrong position, or None.
        positions: The positions of the measurements, [n], without repetition.
        turning: The complex factor of each declared pair there, [n, pairs].
        pairwise: Whether pairs were only rotated or scaled.
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
    axes: tuple[str, ...] = ()
    stands: np.ndarray | None = None
    first_right: int | None = None
    samples: Samples = ()
    role: str | None = None
    counted: bool = False
    coordinates: np.ndarray | None = None
    apart: Samples = ()

    def of(self, spec: Rotary) -> "RotaryObservations":
        """The same measurements, for the pairs of another spec."""
        if not self.samples:
            return self
        turning, pairwise = pair_factors(self.samples, spec)
        return replace(self, turning=turning, pairwise=pairwise, stands=None)

    def right(self, spec: Rotary, **stages: Any) -> Apply:
        """A correct implementation with some stages replaced."""
        return StagedRotary(spec, **stages)

    def may_be(self, suspect: FaultModel, spec: Rotary) -> bool:
        """Whether a suspect roughly agrees with the measurements; most do not and need no full comparison."""
        if not self.samples or suspect.parts is None:
            return True
        at = self.positions if spec.axes is None else np.repeat(self.positions[:, None], spec.number_of_axes, axis=1)
        (x, y), *_ = self.samples
        with np.errstate(all="ignore"):
            try:
                other, stages = suspect.parts(spec)
            except ClockhandsError:  # a spec that cannot be built is no suspect
                return False
            if self.counted and not stages.keys().isdisjoint({"places", "waves"}):
                return True  # they may depend on the rows of each call
            made = self.right(other, **stages)(x[None, None], at, self.dtype, self.role)[0, 0]
            size = np.abs(y[np.isfinite(y)]).max(initial=1.0)
            return bool(np.nanmax(np.abs(made - y), initial=0.0) <= 0.1 * size)

    def rates(self) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None if not measurable."""
        return rates_of_angles(self.positions, np.angle(self.turning)) if self.pairwise else None

    def evenly(self) -> bool:
        """Whether each pair rotates by a constant angle per token."""
        rates = self.rates()
        if rates is None:
            return False
        start = self.turning[self.positions == 0][0]
        expected = start * np.exp(1j * self.positions[:, None] * rates)
        return bool(np.abs(expected - self.turning).max() <= 0.05 * max(np.abs(start).max(), 1e-30))

    def apparent(self, spec: Rotary) -> np.ndarray | None:
        """For each position the one below ``length`` whose correct rotation is closest to the measured one."""
        if not self.pairwise or spec.axes is not None or not len(self.positions):
            return None
        if not np.isfinite(self.turning).all():
            return None
        reach = np.arange(self.length)
        return np.array([next(iter(rotated_to(row, spec, reach, 0.05)), -1) for row in self.turning])

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


def _in_blocks(size: int) -> Held:
    """Positions as ``arange`` of a low-precision dtype gives them: the start of each block is rounded, then the sum.

    PyTorch's vectorised ``arange`` does this in blocks of 16 or 32 numbers.
    """
    return lambda at, dtype: rounded(rounded(at // size * size, dtype) + at % size, dtype)


HELD: tuple[Held, ...] = (rounded, _in_blocks(16), _in_blocks(32))


def wrong_places(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with wrong positions."""
    several = spec.axes is not None
    read = Places(several)
    yield seen.suspect("positions-ignored", {}, places=lambda at, _: read.counted(at))
    for how, places in (
        ("every call starts at position 0", read.from_first),
        ("later positions that are passed in are ignored", read.on_from_first),
        ("every token of a call has this position", read.first),
    ):
        yield seen.suspect("positions-from-first", {"how": how}, places=places)
    yield seen.suspect("positions-of-first-sequence", {}, places=read.of_first_sequence)
    for dtype, first in COARSE.items():
        always = [rounding(dtype, held=held) for held in HELD]
        for places in (*always, rounding(dtype, for_tokens_of(dtype))):
            yield seen.suspect("positions-rounded", {"dtype": dtype, "first": first}, places=places)
    yield from _without_rows(seen, read)
    # A table of one row rotates nothing, which is another fault.
    for last in () if several else seen.ends():
        yield seen.suspect("eviction-stops-positions", {"last": last}, places=functools.partial(_evicted, last))
    if seen.first_wrong and seen.first_wrong > 1:
        rows = int(seen.first_wrong)
        for how, places in other_ends(rows):
            yield seen.suspect("table-ends", {"rows": rows, "how": how}, places=places)
        yield from rebuilt_tables(seen, rows)
    for axis, one, place in (("heads", "head", 1), ("batch", "sequence", 0)):
        if axis not in seen.axes or several or spec.xpos is not None:
            continue
        words = {"axis": "sequences" if axis == "batch" else axis, "one": one}
        for given in (False, True):
            along = seen.built(
                "turns-other-axis",
                words,
                lambda it, place=place, given=given: functools.partial(_rotated_along, it, place, given),
            )
            yield replace(along, whole=True)  # calls of one sequence or head do not show the axis


def _evicted(last: int, at: np.ndarray, _: Call) -> np.ndarray:
    """Positions of calls that start at ``last`` at most."""
    return np.minimum(at[..., :1], last) + (at - at[..., :1]) if at.size else at


def _rotated_along(spec: Rotary, place: int, given: bool, x: np.ndarray, positions: np.ndarray, *_: Any) -> np.ndarray:
    """Rotate by the position along another axis: the given positions, or its row numbers."""
    number = x.shape[place]
    at = np.resize(np.ravel(positions), number) if given and np.size(positions) else np.arange(number)
    return np.moveaxis(StagedRotary(spec)(np.moveaxis(x, place, -2), at), -2, place)


def _without_rows(seen: RotaryObservations, read: Places) -> Iterator[FaultModel]:
    """Suspects whose calls find no rows of cosines and sines where they start late."""
    beyond = "beyond their own length"

    def copied(at: np.ndarray, call: Call) -> np.ndarray:
        return read.counted(at) - (at - read.from_first(at, call))

    ways: tuple[tuple[str, str, Stage | None, Callable[[np.ndarray, np.ndarray], np.ndarray]], ...] = (
        (
            beyond,
            ": the table is read from row 0 on and written from the row of the start on, instead of the reverse",
            copied,
            lambda rows, at: rows < at[..., :1],
        ),
        (beyond, ": the table has only as many rows as the call", None, lambda rows, at: at >= rows.shape[-1]),
        ("later than position 0", "", None, lambda _, at: np.broadcast_to(at[..., :1] > 0, at.shape)),
    )
    for (where, how, places, absent), (what, cosine) in itertools.product(ways, _NO_ROWS):
        stages: dict[str, Any] = {"waves": functools.partial(_without_waves, absent, cosine)}
        if places is not None:
            stages["places"] = places
        yield seen.suspect("late-calls-without-rows", {"what": what, "where": where, "how": how}, **stages)


_NO_ROWS = (("zeros", 0.0), ("unrotated tokens", 1.0))


def _without_waves(
    absent: Callable[[np.ndarray, np.ndarray], np.ndarray], cosine: float, waves: np.ndarray, call: Call
) -> np.ndarray:
    """Cosines and sines replaced by another cosine and 0 in rows; ``absent(rows of the call, positions)``."""
    at = call.positions if call.of.spec.axes is None else call.positions[..., 0]
    if not at.size:
        return waves
    none = absent(np.broadcast_to(np.arange(at.shape[-1]), at.shape), at)[..., None]
    return np.stack([np.where(none, cosine, waves[0]), np.where(none, 0.0, waves[1])])


def wrong_arithmetic(_: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects that round intermediate numbers."""
    ways = [(codes, parts, held) for codes, parts in PARTS for held in (HELD if "p" in parts else HELD[:1])]
    for dtype, first in COARSE.items():
        parameters = {"dtype": dtype, "first": first}
        for codes, parts, held in ways:
            phases = phase_rounding(dtype, parts, held=held)
            yield seen.suspect(codes, parameters, phases=phases)
            if len(codes) > 1:  # if several steps use the dtype, cosine and sine may be rounded to it too
                yield seen.suspect(codes, parameters, phases=phases, waves=rounding(dtype))
            if seen.coarse == dtype and seen.dtype != dtype:
                coarse_only = phase_rounding(dtype, parts, for_tokens_of(dtype), held)
                yield seen.suspect(codes, parameters, phases=coarse_only)
        yield seen.suspect("table-rounded", {"dtype": dtype}, waves=rounding(dtype))


def wrong_pairs(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects that rotate the wrong channels."""
    yield seen.built("no-rotation", {"when": ""}, lambda _: unrotated)
    yield seen.suspect("sine-and-cosine-swapped", {}, waves=lambda waves, _: waves[::-1])
    yield from _other_partners(spec, seen)
    yield from _leading_rows(seen)
    signs: tuple[tuple[str, Rule], ...] = (
        ("a plus in both dimensions of a pair", lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        ("a minus in both dimensions of a pair", lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
        ("no effect on the second dimension of a pair", lambda a, b, c, s: (a * c - b * s, b)),
        ("no effect on the first dimension of a pair", lambda a, b, c, s: (a, b * c + a * s)),
    )
    for words, rule in signs:
        yield seen.suspect(
            "one-half-only",
            {"signs": words},
            rotation=lambda x, cosine, sine, it, rule=rule: _paired(x, tuple(it.channels.T), cosine, sine, rule),
        )
    if spec.rotated // 2 > 1 and not spec.blocks and not spec.reordered:
        names = {"halves": "half-split", "interleaved": "interleaved"}
        tables = {"halves": "interleaved", "interleaved": "half-split"}
        parameters = {"table": tables[spec.layout], "pairs": names[spec.layout]}
        yield seen.suspect("table-and-pairs-disagree", parameters, rotation=_rotated_by_other_table)


Rule = Callable[[np.ndarray, np.ndarray, Any, Any], tuple[np.ndarray, np.ndarray]]


def _rotation(a: np.ndarray, b: np.ndarray, c: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    return a * c - b * s, b * c + a * s


def _paired(
    x: np.ndarray, pairs: tuple[Any, Any], cosine: np.ndarray, sine: np.ndarray, rule: Rule = _rotation
) -> np.ndarray:
    """The tokens with a rule for the two channels of each pair."""
    (one, other), y = pairs, np.array(x, np.float64)
    y[..., one], y[..., other] = rule(x[..., one], x[..., other], cosine, sine)
    return y


def _rotated_by_other_table(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary) -> np.ndarray:
    """The table of cosines is repeated as for the other layout."""
    one, other = it.channels.T
    table = np.arange(it.rotated // 2)
    spread = np.tile(table, 2) if it.layout == "interleaved" else np.repeat(table, 2)
    at_one, at_other = spread[one - it.start], spread[other - it.start]
    y = _paired(x, (one, other), cosine[..., at_one], sine[..., at_one])
    y[..., other] = x[..., other] * cosine[..., at_other] + x[..., one] * sine[..., at_other]
    return y


def unrotated(x: np.ndarray, *_: Any) -> np.ndarray:
    """An implementation that rotates nothing."""
    return np.array(x, np.float64)


def rotated_twice(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """A last stage that rotates twice."""
    return rotation_stage(rotation_stage(x, cosine, sine, spec), cosine, sine, spec)


def _other_partners(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Wrong partners in partial RoPE: half of the head apart instead of half of the RoPE dimensions, or the reverse."""
    if spec.layout != "halves" or spec.blocks or spec.start:
        return
    turning = int(np.count_nonzero(spec.rates))
    declared = spec.rotated // 2
    used = spec.head_width // 2 if spec.rotated < spec.head_width else turning
    if used == declared or not turning or any(spec.rates[turning:]):
        return

    def rotation(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, _: Rotary) -> np.ndarray:
        one, other = slice(turning), slice(used, used + turning)
        return _paired(x, (one, other), cosine[..., one], sine[..., one])

    yield seen.suspect("other-partners", {"used": used, "declared": declared, "pairs": turning}, rotation=rotation)


def _leading_rows(seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects whose first rows differ from later ones: in the table, by position, or in every call."""
    rows = seen.first_right
    if rows is None or seen.first_wrong is None or seen.first_wrong > 1:
        return
    last = "position 0" if rows == 1 else f"positions 0 to {rows - 1:,}"
    be = "is" if rows == 1 else "are"
    in_call = "the first row of each call" if rows == 1 else f"the first {rows:,} rows of each call"
    ways = ((last, lambda _, at: at < rows), (in_call, lambda row, _: row < rows))
    for (how, cosine), (which, early) in itertools.product((("returned as zeros", 0.0), ("not rotated", 1.0)), ways):
        waves = functools.partial(_without_waves, early, cosine)
        yield seen.suspect("leading-rows", {"which": which, "how": f"{be} {how}", "rows": rows}, waves=waves)
