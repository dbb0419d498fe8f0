"""Rotary suspects with a wrong spec: one field has another usual or measured value than declared."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from clockhands.encodings.ladders import Geometric, Joined
from clockhands.encodings.rotary import Rotary, XPos, alternating, chunked, interleaved
from clockhands.encodings.scaling import SIMPLE_FIRST, KnownScaling, Linear, Mistake
from clockhands.encodings.specs import describe
from clockhands.encodings.written_numbers import plain
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.recognition.suspects._rotary_code import (
    SeenRotary,
    StagedRotary,
    rotary_stateful,
    turned_twice,
    turning_of,
    wrong_arithmetic,
    wrong_pairs,
    wrong_places,
)
from clockhands.recognition.suspects._stages import (
    Apply,
    Call,
    first_axis,
    of_sources,
    with_axes,
    with_spacing,
    wrapped,
)
from clockhands.recognition.suspects._suspect import Suspect

BASES = (1e2, 1e3, 1e4, 2.5e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 5e6, 8e6, 1e7)


LAYOUTS = {"halves": "half-split", "interleaved": "interleaved"}

FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0)


def other_specs(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with one wrong field of the spec."""
    other = {"halves": "interleaved", "interleaved": "halves"}
    yield seen.another(
        "other-layout",
        {"declared": laid_out(spec), "used": LAYOUTS[other[spec.layout]]},
        lambda it: replace(it, layout=other[it.layout], reordered=False, blocks=()),
    )
    if spec.blocks:
        yield seen.changed(
            "other-layout",
            {"declared": laid_out(spec), "used": f"{LAYOUTS[spec.layout]} over all dimensions"},
            blocks=(),
        )
    if spec.reordered:
        words = {"declared": "interleaved with half-split output", "used": "interleaved with output in place"}
        yield seen.changed("other-layout", words, reordered=False)
    elif spec.layout == "interleaved" and not spec.blocks:
        words = {"declared": "interleaved", "used": "interleaved with half-split output"}
        yield seen.changed("other-layout", words, reordered=True)
    yield _exchanged(spec, seen, "other-direction", "direction", {"forward": "backward", "backward": "forward"})
    if spec.rotated < spec.head_width:
        yield _exchanged(spec, seen, "other-part", "part", {"first": "last", "last": "first"})
    yield from _widths(spec, seen)
    yield from _spans(spec, seen)
    yield from _scalings(spec, seen)
    if spec.axes is not None:
        yield from _axes(spec, seen)
    if spec.xpos is not None:
        yield seen.changed("xpos-dropped", {}, xpos=None)
        for both in (False, True):
            yield seen.built(
                "xpos-centre",
                {"centre": "half of the current length", "declared": spec.xpos.centre},
                lambda it, both=both: _moving_centre(it, both),
            )
        for centre in sorted({0.0, float(seen.length // 2), *(float(n // 2) for n in (8, 16, 24, 32))}):
            if centre != spec.xpos.centre:
                words = {"centre": f"{centre:g}", "declared": spec.xpos.centre}
                yield seen.built("xpos-centre", words, lambda it, centre=centre: _keys_centred(it, centre))
                yield seen.changed("xpos-centre", words, xpos=replace(spec.xpos, centre=centre))


def _exchanged(spec: Rotary, seen: SeenRotary, code: str, field: str, opposite: Mapping[str, str]) -> Suspect:
    """A suspect with the other of the two values of a field."""
    parameters = {"declared": getattr(spec, field), "used": opposite[getattr(spec, field)]}
    return seen.another(code, parameters, lambda it: replace(it, **{field: opposite[getattr(it, field)]}))


def _keys_centred(spec: Rotary, centre: float) -> Apply:
    """Apply xPos with the correct centre for queries and another one for keys."""
    keys = StagedRotary(replace(spec, xpos=replace(spec.xpos or XPos(), centre=centre)))
    return lambda x, at, dtype, role: (keys if role == "key" else StagedRotary(spec))(x, at, dtype, role)


def _moving_centre(spec: Rotary, both: bool) -> Apply:
    """Apply xPos with half of each call's length as the centre of keys, or of queries too."""

    def apply(x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        if not both and role != "key":
            return StagedRotary(spec)(x, at, dtype, role)
        centre = float((int(np.max(at, initial=-1)) + 1) // 2)
        return StagedRotary(replace(spec, xpos=replace(spec.xpos or XPos(), centre=centre)))(x, at, dtype, role)

    return apply


def laid_out(spec: Rotary) -> str:
    """A phrase for which channels form a pair."""
    return f"{LAYOUTS[spec.layout]}{' in blocks' if spec.blocks else ''}"


def _widths(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    if spec.axes is not None or spec.blocks:
        return
    head = spec.head_width
    wanted = {head, spec.rotated // 2, *(head * share // 8 for share in range(1, 8)), 2 * spec.rotated}
    for width in sorted(wanted):
        if width == spec.rotated or width % 2 or not 2 <= width <= head:
            continue
        words = {"declared": spec.rotated, "used": width}
        yield seen.changed("other-rotated-width", words, rotated=width)
        # Rates for the declared width, of which only the first ones are used.
        if width < spec.rotated and isinstance(spec.spacing, Geometric) and spec.scaling is None:
            span = replace(spec.spacing, span=spec.rotated / 2)
            yield seen.changed("other-rotated-width", words, rotated=width, spacing=span)


def _spans(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    if not isinstance(spec.spacing, Geometric):
        return
    if spec.spacing.span != "closed" and spec.rotated > 2:
        yield seen.another("closed-span", {}, with_spacing(span="closed"))
    declared = spec.rotated if isinstance(spec.spacing.span, str) else 2 * spec.spacing.span
    turning = 2 * int(np.count_nonzero(spec.rates))
    for width in sorted({spec.head_width, spec.rotated, 2 * spec.rotated, spec.rotated // 2, turning}):
        if width not in {declared, 0}:
            yield seen.another("other-denominator", {"declared": declared, "used": width}, with_spacing(span=width / 2))


def _scalings(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    scaling: Any = spec.scaling  # each has its own fields
    if scaling is None:
        return
    words = scaling_name(scaling)
    dropped = replace(spec, scaling=None, length=None)
    yield seen.changed("scaling-dropped", {"scaling": words}, scaling=None, length=None)
    if spec.attention_factor != 1:
        yield seen.suspect("attention-factor", {"factor": 1.0, "declared": spec.attention_factor}, factor=1.0)
        yield seen.of_parts(
            "scaling-dropped",
            {"scaling": f"{words}, whose attention factor is applied"},
            lambda it: (replace(it, scaling=None, length=None), {"factor": it.attention_factor}),
        )
    twice = scaling(replace(spec.ladder, ratio=dropped.ladder.ratio), spec.length)
    for factor in {spec.attention_factor, twice.attention_factor}:
        yield seen.of_parts(
            "scaling-twice",
            {"scaling": words},
            lambda it, factor=factor: (it, {"rates": _again(it), "factor": factor}),
        )
    if hasattr(scaling, "factor"):
        for factor in FACTORS:
            if factor != scaling.factor:
                yield from _with_scaling(
                    seen, "another-factor", {"factor": factor, "declared": scaling.factor}, scaling, factor=factor
                )
    if hasattr(scaling, "original"):
        declared = scaling.original
        lengths = {int(declared * getattr(scaling, "factor", 1) or 1), *(2**power for power in range(9, 21))}
        for original in sorted(lengths - {declared}):
            yield from _with_scaling(
                seen,
                "another-original-length",
                {"original": original, "declared": declared},
                scaling,
                original=original,
            )
    for mistake in scaling.mistakes(spec.length) if isinstance(scaling, KnownScaling) else ():
        yield from _mistaken(spec, seen, mistake)
    factor, original = getattr(scaling, "factor", 8.0), getattr(scaling, "original", 8192)
    for other in [other for kind in SIMPLE_FIRST for other in kind.usual(factor, original)]:
        if other != scaling and _does_something(spec, other):
            yield from _mistaken(spec, seen, Mistake("another-scaling", scaling=other))


def _mistaken(spec: Rotary, seen: SeenRotary, mistake: Mistake) -> Iterator[Suspect]:
    other, rates, fault = mistake.scaling, mistake.rates, mistake.fault
    if other is not None:
        words = mistake.parameters or scaling_difference(spec.scaling, other)
        yield seen.another(fault, words, lambda it: _with(it, other))
    if rates is not None:
        for factor in {1.0, spec.attention_factor}:
            parameters = mistake.parameters or {}
            yield seen.of_parts(fault, parameters, lambda it, factor=factor: _with_rates(it, rates, factor))


def _with_rates(
    spec: Rotary, rates: Callable[[np.ndarray, np.ndarray], np.ndarray], factor: float
) -> tuple[Rotary, dict[str, Any]]:
    """A spec with rates computed from the plain and the correct ones; a model without scaling is correct."""
    if spec.scaling is None:
        return spec, {}
    plain = np.array(replace(spec, scaling=None, length=None).rates)
    return spec, {"rates": rates(plain, np.array(spec.rates)), "factor": factor}


def _with(spec: Rotary, scaling: Any) -> Rotary:
    """The spec with another scaling; a model without a scaling keeps none."""
    return spec if spec.scaling is None else replace(spec, scaling=scaling)


def _again(spec: Rotary) -> np.ndarray:
    if spec.scaling is None:
        return np.array(spec.rates)
    plain = replace(spec, scaling=None, length=None).ladder
    return np.array(spec.scaling(replace(spec.ladder, ratio=plain.ratio), spec.length).rates)


def _does_something(spec: Rotary, scaling: Any) -> bool:
    """Whether a scaling changes the rates at this length."""
    try:
        return replace(spec, scaling=scaling).rates != replace(spec, scaling=None, length=None).rates
    except ClockhandsError:
        return False


def _with_scaling(
    seen: SeenRotary, code: str, parameters: Mapping[str, Any], scaling: Any, **changed: Any
) -> Iterator[Suspect]:
    try:
        other = replace(scaling, **changed)
    except (ClockhandsError, TypeError):
        return
    yield seen.another(code, parameters, lambda it: _with(it, other))


def scaling_difference(one: Any, other: Any) -> dict[str, Any]:
    """The names of a declared scaling and another one, with the fields in which they differ."""
    if type(one) is not type(other):
        return {"declared": scaling_name(one), "scaling": scaling_name(other)}
    apart = [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]

    def words(scaling: Any) -> str:
        return f"{type(scaling).__name__} with {', '.join(f'{name} {getattr(scaling, name)}' for name in apart)}"

    return {"declared": words(one), "scaling": words(other)}


def scaling_name(scaling: Any) -> str:
    """The name of a scaling for messages."""
    name = type(scaling).__name__
    factor = getattr(scaling, "factor", None)
    return f"{name}, factor {factor:g}" if isinstance(factor, int | float) else name


def _axes(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    assert spec.axes is not None
    sections = tuple(spec.axes.count(axis) for axis in range(spec.number_of_axes))
    for words, made in (("consecutive sections", chunked), ("interleaved sections", interleaved)):
        try:
            axes = made(sections)
        except ClockhandsError:
            continue
        if axes != spec.axes:
            declared = "interleaved sections" if "consecutive" in words else "consecutive sections"
            yield seen.changed("other-axes-order", {"declared": declared, "used": words}, axes=axes)

    measured = _measured_axes(spec, seen)
    orders = list(itertools.permutations(range(spec.number_of_axes))) if spec.number_of_axes <= _MOST_AXES else []
    if measured is not None and measured not in {tuple(order[axis] for axis in spec.axes) for order in orders}:
        words = {"declared": _in_words(spec.axes), "used": _in_words(measured)}
        yield seen.changed("other-axes-order", words, axes=measured)
    yield seen.suspect(
        "axis-dropped", {"which": "all coordinates but the first", "used": "the first coordinate"}, places=first_axis
    )
    for axis, other in itertools.permutations(range(spec.number_of_axes), 2):
        words = {"which": f"coordinate {axis}", "used": f"coordinate {other}" if other else "the first coordinate"}
        yield seen.suspect("axis-dropped", words, places=with_axes({axis: other}))
    for order in orders:
        moved = {axis: other for axis, other in enumerate(order) if axis != other}
        if moved:
            how = [f"the pairs of coordinate {axis} rotate by coordinate {other}" for axis, other in moved.items()]
            words = {"which": " and ".join(map(str, moved)), "how": ", ".join(how)}
            yield seen.suspect("axes-exchanged", words, places=with_axes(moved))
    yield from _axis_by_axis(spec, seen)


_MOST_AXES = 4  # whose orders are all tried


def _in_words(axes: tuple[int, ...]) -> str:
    """The order of sections, and how many pairs each coordinate has."""
    counts = [axes.count(axis) for axis in range(max(axes) + 1)]
    sizes = f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} pairs"
    if axes == chunked(counts):
        return f"consecutive sections of {sizes}"
    with suppress(ClockhandsError):
        if axes == interleaved(counts):
            return f"interleaved sections of {sizes}"
    if axes == alternating(len(axes), len(counts)):
        return f"alternating order, pair by pair, with {sizes}"
    return f"another order, with {sizes}"


def _measured_axes(spec: Rotary, seen: SeenRotary) -> tuple[int, ...] | None:
    """The coordinate that rotates each pair, if every pair is rotated by one coordinate at its rate."""
    if seen.coordinates is None or not seen.apart:
        return None
    turning, pairwise = turning_of(seen.apart, spec)
    if not pairwise:
        return None
    turning = turning / np.maximum(np.abs(turning), 1e-30)
    sign = -1 if spec.direction == "backward" else 1
    known = np.exp(1j * sign * seen.coordinates[:, :, None] * np.array(spec.rates))
    off = np.abs(known - turning[:, None]).max(axis=0)  # [axes, pairs]
    # If a pair fits no coordinate, or a coordinate has no pair, the rates are wrong, not the order.
    axes = tuple(int(axis) for axis in np.argmin(off, axis=0))
    return axes if off.min(axis=0).max() < 0.05 and set(axes) == set(range(spec.number_of_axes)) else None


def _axis_by_axis(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with one coordinate shifted or scaled, measured from its pairs in text."""
    rates, own, start = seen.rates(), np.array(spec.rates), np.flatnonzero(seen.positions == 0)
    if rates is None:
        return
    sign = -1.0 if spec.direction == "backward" else 1.0
    for axis in range(spec.number_of_axes):
        pairs = np.flatnonzero((np.array(spec.axes) == axis) & (own > 0))
        if not len(pairs):
            continue
        unit = (np.arange(spec.number_of_axes) == axis).astype(np.float64)
        for offset in _standing(seen.turning[start[0], pairs], sign * own[pairs]):
            yield seen.suspect(
                "axis-offset",
                {"axis": axis, "offset": offset},
                places=lambda at, _, moved=offset * unit: at + moved,
            )
        ratio = float(np.median(sign * rates[pairs] / own[pairs]))
        if not 1e-9 < abs(ratio) < 1e9 or abs(ratio - 1) < 1e-4:
            continue
        for factor in _as_written(ratio):
            yield seen.suspect(
                "axis-stretched",
                {"axis": axis, "factor": factor},
                places=lambda at, _, unit=unit, factor=factor: at * np.where(unit, factor, 1.0),
            )


def _standing(row: np.ndarray, rates: np.ndarray, reach: int = 8192) -> list[float]:
    """The one or two nearest positions, in half tokens, at which pairs of these rates have this rotation."""
    row = row / np.maximum(np.abs(row), 1e-30)
    places = np.arange(-2 * reach, 2 * reach + 1) / 2
    for pair in range(len(rates)):  # high-frequency pairs, which come first, leave few positions
        near = np.abs(np.exp(1j * places * rates[pair]) - row[pair]) < 0.1
        places = places[near]
    off = np.abs(np.exp(1j * places[:, None] * rates) - row).max(axis=1)
    return [float(place) for place in places[np.argsort(off, kind="stable")[:2]] if place]


def _as_written(number: float) -> Iterator[float]:
    """Round numbers near a measured one, or near its reciprocal, and the measured number itself."""
    yield from dict.fromkeys((float(f"{number:.3g}"), 1 / float(f"{1 / number:.3g}"), number))


def faults_between(spec: Rotary, other: Rotary) -> Iterator[tuple[str, dict[str, Any]]]:
    """The faults between two specs, one for each field in which they differ."""
    found = list(_differences(spec, other))
    yield from found or [("another-scaling", {"declared": describe(spec), "scaling": describe(other)})]


def _differences(spec: Rotary, other: Rotary) -> Iterator[tuple[str, dict[str, Any]]]:
    if other.layout != spec.layout or other.blocks != spec.blocks:
        yield "other-layout", {"declared": laid_out(spec), "used": laid_out(other)}
    if other.direction != spec.direction:
        yield "other-direction", {"declared": spec.direction, "used": other.direction}
    if other.rotated != spec.rotated:
        yield "other-rotated-width", {"declared": spec.rotated, "used": other.rotated}
    elif other.part != spec.part:
        yield "other-part", {"declared": spec.part, "used": other.part}
    if other.base is not None and spec.base is not None and other.base != spec.base:
        yield "another-base", {"base": other.base, "declared": spec.base}
    if other.scaling != spec.scaling:
        if other.scaling is None:
            yield "scaling-dropped", {"scaling": scaling_name(spec.scaling)}
        elif spec.scaling is None:
            yield "another-scaling", {"declared": "nothing", "scaling": scaling_name(other.scaling)}
        else:
            yield "another-scaling", scaling_difference(spec.scaling, other.scaling)
    spans = [getattr(one.spacing, "span", None) for one in (spec, other)]
    if spans[0] != spans[1] and spans[1] == "closed":
        yield "closed-span", {}


def measured(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with a measured parameter."""
    size = seen.size()
    # The smallest measurable difference of the factor, which is the median over all pairs.
    least = 1e-5 if seen.dtype in ("float32", "float64") else 1e-3
    if size is not None and abs(size - spec.attention_factor) > least * size:
        parameters = {"factor": size, "declared": spec.attention_factor}
        yield seen.suspect("attention-factor", parameters, factor=size)
    bases = list(BASES)
    rates = seen.rates()
    if rates is not None and isinstance(spec.spacing, Geometric):
        # If every pair rotates by a constant angle, the measured rates give the base, and usual bases are not needed.
        # A single pair of exponent 0 has no measurable base.
        by_rates = list(_bases(spec, np.abs(rates)))
        bases = [*by_rates, *([] if by_rates and seen.evenly() else bases)]
        yield from _slowed_alike(spec, seen, np.abs(rates))
        yield from _scaled_positions(spec, seen, np.abs(rates))
        yield from _offsets(spec, seen)
    if isinstance(spec.spacing, Geometric):
        declared = spec.spacing.base
        for base in dict.fromkeys(bases):
            if abs(base / declared - 1) > 1e-3:  # a nearer base is a measurement of the declared one
                yield seen.another("another-base", {"base": base, "declared": declared}, with_spacing(base=base))
    yield from _other_ladders(spec, seen)
    for other in seen.specs:
        if other != spec and isinstance(other, Rotary):
            yield _recognised(spec, other, seen)


@dataclass(frozen=True)
class AxisLadder:
    """The measured rotation of the pairs of one coordinate: ``angle of a pair = (factor p + moved) base**-exponent``.

    Attributes:
        axis: The coordinate, None where there is one.
        pairs: Its pairs.
        declared: Their spacing in the spec; it gives the exponents.
        base, factor, moved: The measured values.
    """

    axis: int | None
    pairs: np.ndarray
    declared: Geometric
    base: float
    factor: float
    moved: float

    @property
    def how(self) -> str:
        """The values that differ from the spec's, as a phrase."""
        words = []
        if not _same(self.base, self.declared.base):
            words.append(f"base {self.base:,.10g} instead of {self.declared.base:,.10g}")
        placed = []
        if not _same(self.factor, self.declared.multiplier):
            placed.append(f"multiplied by {self.factor:.7g} instead of {self.declared.multiplier:.7g}")
        if self.moved:
            placed.append(f"moved by {self.moved:.7g}")
        if placed:
            words.append(f"{'positions' if self.axis is None else 'coordinates'} {', then '.join(placed)}")
        return ", ".join(words)


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1) < 1e-5


def axis_ladders(spec: Rotary, seen: SeenRotary) -> list[AxisLadder]:
    """The ladder of each coordinate, if the pairs of every coordinate rotate by a geometric ladder; else none.

    A rate is known up to whole rotations per token. The slowest pairs turn by less than half a rotation; from them on,
    each faster rate is the one nearest to the progression of the slower ones. Angles at position 0 are followed in the
    same order.
    """
    rates, where = seen.rates(), np.flatnonzero(seen.positions == 0)
    if rates is None or not len(where) or not seen.evenly():
        return []
    sign = -1.0 if spec.direction == "backward" else 1.0
    started = sign * np.angle(seen.turning[where[0]])
    noise = 2e-4 / max(int(seen.positions.max()), 1)
    found = []
    for axis, pairs, spacing in _geometric_parts(spec):
        own = np.array(replace(spec, scaling=None, length=None).rates)[pairs]
        exponents = -np.log(own / spacing.multiplier) / np.log(spacing.base)
        made = _progression(exponents, sign * rates[pairs], started[pairs], noise)
        if made is None:
            return []
        found.append(AxisLadder(axis, pairs, spacing, *made))
    return found


def _geometric_parts(spec: Rotary) -> Iterator[tuple[int | None, np.ndarray, Geometric]]:
    """The coordinate, the pairs and the spacing of each geometric ladder of a spec; nothing if another one is in it."""
    pairs, spacing = np.arange(spec.rotated // 2), spec.spacing
    parts = spacing.parts if isinstance(spacing, Joined) else ((len(pairs), spacing),)
    ends = np.cumsum([size for size, _ in parts])
    turns = isinstance(spacing, Joined) and spacing.in_turns
    held = [
        pairs[number :: len(parts)] if turns else pairs[end - size : end]
        for number, (size, end) in enumerate(zip((size for size, _ in parts), ends, strict=True))
    ]
    made = [(own, each) for own, (_, each) in zip(held, parts, strict=True) if isinstance(each, Geometric)]
    if len(made) < len(held) or any(each.multiplier <= 0 for _, each in made):
        return
    for own, each in made:
        if spec.axes is None:
            yield None, own, each
            continue
        axes = np.array(spec.axes)[own]
        for axis in sorted(set(axes.tolist())):
            yield axis, own[axes == axis], each


def _progression(
    exponents: np.ndarray, rates: np.ndarray, started: np.ndarray, noise: float
) -> tuple[float, float, float] | None:
    """Base, factor and shift of ``(factor p + moved) base**-exponent``; None if the rates are no such ladder."""
    order = np.argsort(-exponents)
    exponents, rates, started = exponents[order], rates[order].copy(), started[order]
    if len(rates) < _FEWEST or np.ptp(exponents) == 0 or (rates[:2] <= 8 * noise).any():
        return None
    for pair in range(2, len(rates)):
        steps = np.diff(exponents[pair - 2 : pair + 1])
        expected = rates[pair - 1] * (rates[pair - 1] / rates[pair - 2]) ** (steps[1] / steps[0])
        rates[pair] += 2 * np.pi * np.round((expected - rates[pair]) / (2 * np.pi))
        if rates[pair] <= 0:
            return None
    weights = np.minimum(rates / noise, 1e6)  # one over the error of a logarithm
    slope, height = np.polyfit(exponents, np.log(rates), 1, w=weights)
    fitted = np.exp(height + slope * exponents)
    if np.abs(fitted - rates).max() > max(noise, 1e-6 * rates.max()):
        return None
    base, factor = (plain(float(value), 1e-7 * float(value))[1] for value in (np.exp(-slope), np.exp(height)))
    unit, moved = float(base) ** -exponents, 0.0
    for angle, size in zip(started, unit, strict=True):
        moved += float(wrapped(np.array(angle - moved * size))) / size
    moved = plain(moved, 2e-5)[1]
    if not base > 1 or np.abs(wrapped(started - moved * unit)).max() > _STARTED:
        return None
    return base, factor, moved


_FEWEST = 4  # pairs of a coordinate that show a progression: two of them fit any
_STARTED = 1e-3


def _other_ladders(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """A suspect with the ladders that were measured."""
    # Beside a scaling that is not applied, the ladder is a second fault: of the spec without it.
    ladders = axis_ladders(spec, seen) if spec.scaling is None else []
    if all(not one.how for one in ladders):
        return
    shifts = np.zeros(spec.number_of_axes)
    for one in ladders:
        shifts[one.axis or 0] = one.moved / one.factor

    def moved(at: np.ndarray, _: Call) -> np.ndarray:
        return at + (shifts if spec.axes is not None else shifts[0])

    told = _told_of(ladders, shifts)
    if told is not None:
        yield seen.of_parts(*told, lambda it: (it, {"rates": _rates_of(it, ladders), "places": moved}))


def _rates_of(spec: Rotary, ladders: list[AxisLadder]) -> np.ndarray:
    """The rates of a spec of any width with ladders that were measured at one width.

    Raises:
        InvalidValue: The spec has other coordinates than the measured one.
    """
    rates, own = np.array(spec.rates), np.array(replace(spec, scaling=None, length=None).rates)
    parts = list(_geometric_parts(spec))
    if len(parts) != len(ladders):
        raise InvalidValue(
            f"The frequencies were measured with {len(ladders)} coordinates, and this spec has {len(parts)}.",
            "Give a spec with as many axes.",
        )
    for (_, pairs, spacing), one in zip(parts, ladders, strict=True):
        rates[pairs] = one.factor * (own[pairs] / spacing.multiplier) ** (np.log(one.base) / np.log(spacing.base))
    return rates


def _told_of(ladders: list[AxisLadder], shifts: np.ndarray) -> tuple[str, dict[str, Any]] | None:
    """The fault of measured ladders: one field of all that differs, or all that differ.

    None where one coordinate alone is stretched or moved by half tokens, which is a fault of its own.
    """
    bases, others = {(one.base, one.declared.base) for one in ladders}, set(shifts.tolist())
    ratios = [one.factor / one.declared.multiplier for one in ladders]
    plainly = all(_same(ratio, 1) for ratio in ratios)
    if plainly and len(bases) == 1 and not any(others):
        base, declared = bases.pop()
        return "another-base", {"base": base, "declared": declared}
    if all(_same(*each) for each in bases):
        if plainly and len(others) == 1 and float(shifts[0]).is_integer():
            return "positions-offset", {"offset": int(shifts[0])}
        if not any(others) and all(_same(ratio, ratios[0]) for ratio in ratios):
            return "positions-scaled", {"factor": ratios[0]}
        alone = len(ladders) > 1 and sum(bool(one.how) for one in ladders) == 1
        if alone and ((plainly and float(2 * shifts.sum()).is_integer()) or not any(others)):
            return None
    how = {f"coordinate {one.axis}: ": one.how or "as declared" for one in ladders}
    alike = len(set(how.values())) == 1
    return "other-ladder", {"how": ladders[0].how if alike else "; ".join(map("".join, how.items()))}


def _recognised(spec: Rotary, other: Rotary, seen: SeenRotary) -> Suspect:
    """A suspect of another spec, with all faults between the two."""
    found: Suspect | None = None
    for code, parameters in reversed(list(faults_between(spec, other))):
        codes = (code,) if found is None else (code, *found.codes)
        one = seen.another(codes, parameters, lambda _: other)
        found = replace(one, beside=found)
    assert found is not None
    return found


def _bases(spec: Rotary, rates: np.ndarray) -> Iterator[float]:
    """Bases from the measured rates: from the pairs that the scaling does not change, and from all."""
    assert isinstance(spec.spacing, Geometric)
    plain = replace(spec, scaling=None, length=None)
    exponents = -np.log(np.maximum(np.array(plain.rates), 1e-300)) / np.log(spec.spacing.base)
    own = (exponents > 0) & (rates > 0)
    if not own.any():
        return
    kept = np.array(spec.rates) / np.maximum(np.array(plain.rates), 1e-300)
    for numbers in (rates / np.where(kept > 0, kept, 1.0), rates):
        logarithms = -np.log(np.maximum(numbers[own], 1e-300)) / exponents[own]
        for logarithm in (logarithms[0], np.median(logarithms), logarithms[-1]):
            base = float(np.exp(min(logarithm, 70.0)))
            if 1 < base < 1e30:
                for digits in (2, 4, 7):
                    yield float(f"{base:.{digits - 1}e}")
                yield base


def _slowed_alike(spec: Rotary, seen: SeenRotary, rates: np.ndarray) -> Iterator[Suspect]:
    """Suspects that divide all plain rates by one number instead of applying the scaling."""
    if spec.scaling is None:
        return
    plain = np.array(replace(spec, scaling=None, length=None).rates)
    turning = (plain > 0) & (rates > 0)
    factor = float(np.median(plain[turning] / rates[turning])) if turning.any() else 1.0
    if not 1.001 < factor < 1e6:
        return
    for one in dict.fromkeys((float(f"{factor:.3g}"), factor)):
        if Linear(one) != spec.scaling:
            words = scaling_difference(spec.scaling, Linear(one))
            yield seen.another(
                "another-scaling",
                words,
                lambda it, one=one: it if it.scaling is None else replace(it, scaling=Linear(one)),
            )


def _scaled_positions(spec: Rotary, seen: SeenRotary, rates: np.ndarray) -> Iterator[Suspect]:
    own = np.array(spec.rates)
    turns = own > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = rates[turns] / own[turns]
    ratio = float(np.median(ratios))
    if 1e-9 < ratio < 1e9 and abs(ratio - 1) > 1e-4:
        if abs(ratio - 2) < 1e-3:
            yield seen.suspect("rotated-twice", {}, turn=turned_twice)
        for factor in _as_written(ratio):
            yield seen.suspect("positions-scaled", {"factor": factor}, places=lambda at, _, factor=factor: at * factor)


def _offsets(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects with shifted positions; the shift is measured from the rotation at position 0."""
    where = np.flatnonzero(seen.positions == 0)
    if not len(where):
        return
    sign = -1 if spec.direction == "backward" else 1
    for offset in _standing(seen.turning[where[0]], sign * np.array(spec.rates)):
        if offset == int(offset):
            yield seen.suspect(
                "positions-offset", {"offset": int(offset)}, places=lambda at, _, offset=offset: at + offset
            )


def rotary_suspects(spec: Rotary, seen: SeenRotary) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    return of_sources(spec, seen, *_STATELESS, rotary_stateful)


_STATELESS = (other_specs, measured, wrong_places, wrong_arithmetic, wrong_pairs)


def pairs_of_suspects(spec: Rotary, seen: SeenRotary) -> Iterator[Iterator[Suspect]]:
    """Suspects with two faults, grouped by the first one.

    The second is a fault of the spec that the first one gives: the base is measured again if the first fault removed
    the scaling, and the pairs if it changed the layout. Faults that depend on earlier calls are not combined.
    """
    singles = [one for one in of_sources(spec, seen, *_STATELESS) if one.parts is not None]
    tried = {spec}
    for place, one in enumerate(singles):
        try:
            between, stages = one.parts(spec)  # type: ignore[misc]
        except ClockhandsError:
            continue
        if between == spec:  # the order of two such faults does not matter, so each pair is tried once
            others: Iterable[Suspect] = (other for other in singles[place + 1 :] if _keeps(spec, other))
        elif between not in tried or stages:
            tried.add(between)
            others = of_sources(between, seen.of(between), *_STATELESS)
        else:
            continue
        both = (seen.together(one, other) for other in others)
        yield (each for each in both if each is not None and _may_be(spec, seen, each))


def _keeps(spec: Rotary, suspect: Suspect) -> bool:
    """Whether a fault does not change the spec."""
    with suppress(ClockhandsError):
        return suspect.parts is not None and suspect.parts(spec)[0] == spec
    return False


def _may_be(spec: Rotary, seen: SeenRotary, suspect: Suspect) -> bool:
    try:
        return seen.may_be(suspect, spec)
    except ClockhandsError:  # two faults that clash
        return False
