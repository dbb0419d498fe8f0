"""Rotary suspects with a wrong spec: one field has another usual or measured value than declared."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import Rotary, XPos, alternating, chunked, interleaved
from clockhands.encodings.scaling import SIMPLE_FIRST, KnownScaling, Linear, Mistake
from clockhands.encodings.specs import describe
from clockhands.encodings.usual_values import FACTORS, ORIGINAL_LENGTHS, ROTARY_BASES
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._measured_ladders import other_ladders
from clockhands.recognition.suspects._rotary_code import (
    RotaryObservations,
    StagedRotary,
    pair_factors,
    rotated_to,
    rotated_twice,
    sign_of,
    unscaled,
    wrong_arithmetic,
    wrong_pairs,
    wrong_places,
)
from clockhands.recognition.suspects._stages import (
    Apply,
    bases_of,
    exchanged,
    first_axis,
    of_sources,
    with_axes,
    with_spacing,
)
from clockhands.recognition.suspects._stateful_rotary import rotary_stateful

LAYOUTS = {"halves": "half-split", "interleaved": "interleaved"}
_LAYOUT = {"halves": "interleaved", "interleaved": "halves"}
_DIRECTION = {"forward": "backward", "backward": "forward"}
_PART = {"first": "last", "last": "first"}


def other_specs(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with one wrong field of the spec."""
    yield seen.another(
        "other-layout",
        {"declared": laid_out(spec), "used": LAYOUTS[_LAYOUT[spec.layout]]},
        lambda it: replace(it, layout=_LAYOUT[it.layout], reordered=False, blocks=()),
    )
    if spec.blocks:
        words = {"declared": laid_out(spec), "used": f"{LAYOUTS[spec.layout]} over all dimensions"}
        yield seen.changed("other-layout", words, blocks=())
    if spec.reordered:
        words = {"declared": "interleaved with half-split output", "used": "interleaved with output in place"}
        yield seen.changed("other-layout", words, reordered=False)
    elif spec.layout == "interleaved" and not spec.blocks:
        words = {"declared": "interleaved", "used": "interleaved with half-split output"}
        yield seen.changed("other-layout", words, reordered=True)
    yield seen.faulty(exchanged(spec, "other-direction", "direction", _DIRECTION))
    if spec.rotated < spec.head_width:
        yield seen.faulty(exchanged(spec, "other-part", "part", _PART))
    yield from _widths(spec, seen)
    yield from _still_pairs(spec, seen)
    yield from _spans(spec, seen)
    yield from _scalings(spec, seen)
    if spec.axes is not None:
        yield from _axes(spec, seen)
    if spec.xpos is not None:
        yield seen.changed("xpos-dropped", {}, xpos=None)
        yield from _centres(spec.xpos, seen)


def _centres(xpos: XPos, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with another centre of xPos: half of each call's length or a number, for keys only or for both."""
    for only in ("key", None):
        yield seen.built(
            "xpos-centre",
            {"centre": "half of the current length", "declared": xpos.centre},
            lambda it, only=only: _centred(it, None, only),
        )
    for centre in sorted({0.0, float(seen.length // 2), *(float(n // 2) for n in (8, 16, 24, 32))}):
        if centre != xpos.centre:
            words = {"centre": f"{centre:g}", "declared": xpos.centre}
            yield seen.built("xpos-centre", words, lambda it, centre=centre: _centred(it, centre, "key"))
            yield seen.changed("xpos-centre", words, xpos=replace(xpos, centre=centre))


def _centred(spec: Rotary, centre: float | None, only: str | None) -> Apply:
    """Apply xPos with another centre, of keys only or of both; None is half of each call's length."""

    def moved(middle: float) -> Rotary:
        return replace(spec, xpos=replace(spec.xpos or XPos(), centre=middle))

    fixed = None if centre is None else moved(centre)

    def apply(x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        other = spec
        if only in {role, None}:
            other = fixed or moved(float((int(np.max(at, initial=-1)) + 1) // 2))
        return StagedRotary(other)(x, at, dtype, role)

    return apply


def laid_out(spec: Rotary) -> str:
    """A phrase for which channels form a pair."""
    return f"{LAYOUTS[spec.layout]}{' in blocks' if spec.blocks else ''}"


def _widths(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
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


def _still_pairs(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Some pairs stay as they are: those of rows and columns of a text that has positions on the first axis alone.

    The last pairs, if they are interleaved, are those of a head that rotates fewer dimensions, a fault of its own.
    """
    rates = np.array(spec.rates)
    if not seen.pairwise or seen.turning.shape[1] != len(rates):
        return
    shown = np.abs(np.exp(1j * seen.positions[:, None] * rates) - 1).max(axis=0) > _SHOWN
    still = shown & (np.abs(seen.turning - 1).max(axis=0) < _SHOWN / 10)
    count, first = int(still.sum()), int(np.argmax(still))
    if not 0 < count < shown.sum() or (spec.layout == "interleaved" and still[first:].all()):
        return
    last = len(still) - int(np.argmax(still[::-1])) - 1

    def rates_of(it: Rotary) -> tuple[Rotary, dict[str, Any]]:
        if len(it.rates) != len(still):
            raise InvalidValue(f"{len(still)} pairs were measured, and this spec has {len(it.rates)}.", "")
        return it, {"rates": np.where(still, 0.0, it.rates)}

    which = f"pairs {first} to {last}" if last > first else f"pair {first}"
    words = {"number": count, "declared": len(rates), "which": which}
    yield seen.of_parts("pairs-unturned", words, rates_of)


_SHOWN = 1e-2  # how far a pair is turned by the largest position at which it is seen whether it is turned


def _spans(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    if not isinstance(spec.spacing, Geometric):
        return
    if spec.spacing.span != "closed" and spec.rotated > 2:
        yield seen.another("closed-span", {}, with_spacing(span="closed"))
    declared = spec.rotated if isinstance(spec.spacing.span, str) else 2 * spec.spacing.span
    turning = 2 * int(np.count_nonzero(spec.rates))
    for width in sorted({spec.head_width, spec.rotated, 2 * spec.rotated, spec.rotated // 2, turning}):
        if width not in {declared, 0}:
            yield seen.another("other-denominator", {"declared": declared, "used": width}, with_spacing(span=width / 2))


def _scalings(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    scaling: Any = spec.scaling  # each has its own fields
    if scaling is None:
        return
    words = scaling_name(scaling)
    yield seen.changed("scaling-dropped", {"scaling": words}, scaling=None, length=None)
    if spec.attention_factor != 1:
        yield seen.suspect("attention-factor", {"factor": 1.0, "declared": spec.attention_factor}, factor=1.0)
        yield seen.of_parts(
            "scaling-dropped",
            {"scaling": f"{words}, whose attention factor is applied"},
            lambda it: (unscaled(it), {"factor": it.attention_factor}),
        )
    twice = scaling(replace(spec.ladder, ratio=unscaled(spec).ladder.ratio), spec.length)
    for factor in {spec.attention_factor, twice.attention_factor}:
        yield seen.of_parts(
            "scaling-twice",
            {"scaling": words},
            lambda it, factor=factor: (it, {"rates": _again(it), "factor": factor}),
        )
    known = scaling.mistakes(spec.length) if isinstance(scaling, KnownScaling) else ()
    for mistake in itertools.chain(_other_numbers(scaling, spec.base), known, _other_scalings(spec)):
        yield from _mistaken(spec, seen, mistake)


def _other_numbers(scaling: Any, base: float | None) -> Iterator[Mistake]:
    """The scaling with another usual factor or original length."""
    reach = int(getattr(scaling, "original", 0) * getattr(scaling, "factor", 1) or 1)
    lengths = sorted({reach, *ORIGINAL_LENGTHS})
    for code, field, numbers in (
        ("another-factor", "factor", (*FACTORS, base)),  # the base may be passed in its place
        ("another-original-length", "original", lengths),
    ):
        declared = getattr(scaling, field, None)
        for number in numbers if hasattr(scaling, field) else ():
            with suppress(ClockhandsError, TypeError):
                if number not in {declared, None}:
                    yield Mistake(code, {field: number, "declared": declared}, replace(scaling, **{field: number}))


def _other_scalings(spec: Rotary) -> Iterator[Mistake]:
    """Scalings of other types with the same numbers, if they change the rates at this length."""
    factor, original = getattr(spec.scaling, "factor", 8.0), getattr(spec.scaling, "original", 8192)
    for other in [other for kind in SIMPLE_FIRST for other in kind.usual(factor, original)]:
        with suppress(ClockhandsError):
            if other != spec.scaling and replace(spec, scaling=other).rates != unscaled(spec).rates:
                yield Mistake("another-scaling", scaling=other)


def _mistaken(spec: Rotary, seen: RotaryObservations, mistake: Mistake) -> Iterator[FaultModel]:
    other, rates, fault = mistake.scaling, mistake.rates, mistake.fault
    if other is not None:
        words = mistake.parameters or scaling_difference(spec.scaling, other)
        yield seen.another(fault, words, lambda it: it if it.scaling is None else replace(it, scaling=other))
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
    plain = np.array(unscaled(spec).rates)
    return spec, {"rates": rates(plain, np.array(spec.rates)), "factor": factor}


def _again(spec: Rotary) -> np.ndarray:
    if spec.scaling is None:
        return np.array(spec.rates)
    return np.array(spec.scaling(replace(spec.ladder, ratio=unscaled(spec).ladder.ratio), spec.length).rates)


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


def _axes(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
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


def _measured_axes(spec: Rotary, seen: RotaryObservations) -> tuple[int, ...] | None:
    """The coordinate that rotates each pair, if every pair is rotated by one coordinate at its rate."""
    if seen.coordinates is None or not seen.apart:
        return None
    turning, pairwise = pair_factors(seen.apart, spec)
    if not pairwise:
        return None
    turning = turning / np.maximum(np.abs(turning), 1e-30)
    known = np.exp(1j * sign_of(spec) * seen.coordinates[:, :, None] * np.array(spec.rates))
    off = np.abs(known - turning[:, None]).max(axis=0)  # [axes, pairs]
    # If a pair fits no coordinate, or a coordinate has no pair, the rates are wrong, not the order.
    axes = tuple(int(axis) for axis in np.argmin(off, axis=0))
    return axes if off.min(axis=0).max() < 0.05 and set(axes) == set(range(spec.number_of_axes)) else None


def _axis_by_axis(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with one coordinate shifted or scaled, measured from its pairs in text."""
    rates, own = seen.rates(), np.array(spec.rates)
    if rates is None:
        return
    for axis in range(spec.number_of_axes):
        pairs = np.flatnonzero((np.array(spec.axes) == axis) & (own > 0))
        if not len(pairs):
            continue
        unit = (np.arange(spec.number_of_axes) == axis).astype(np.float64)
        for offset in _offsets_at_zero(spec, seen, pairs):
            yield seen.suspect(
                "axis-offset",
                {"axis": axis, "offset": offset},
                places=lambda at, _, moved=offset * unit: at + moved,
            )
        for factor in _as_written(_ratio(sign_of(spec) * rates[pairs], own[pairs])):
            yield seen.suspect(
                "axis-stretched",
                {"axis": axis, "factor": factor},
                places=lambda at, _, unit=unit, factor=factor: at * np.where(unit, factor, 1.0),
            )


def _offsets_at_zero(
    spec: Rotary, seen: RotaryObservations, pairs: Any = slice(None), reach: int = 8192
) -> list[float]:
    """The one or two nearest positions, in half tokens, at which pairs have their measured rotation at position 0."""
    where = np.flatnonzero(seen.positions == 0)
    if not len(where):
        return []
    halves = np.arange(-2 * reach, 2 * reach + 1) / 2
    return [float(place) for place in rotated_to(seen.turning[where[0], pairs], spec, halves, 0.1, pairs)[:2] if place]


def _ratio(rates: np.ndarray, own: np.ndarray) -> float:
    """The measured rates divided by the declared ones; 1 where they are equal or not to be compared."""
    turns = own > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = float(np.median(rates[turns] / own[turns]))
    return ratio if 1e-9 < abs(ratio) < 1e9 and abs(ratio - 1) > 1e-4 else 1.0


def _as_written(ratio: float) -> Iterator[float]:
    """Round numbers near a measured ratio, or near its reciprocal, and the ratio itself; nothing for 1."""
    if ratio != 1:
        yield from dict.fromkeys((float(f"{ratio:.3g}"), 1 / float(f"{1 / ratio:.3g}"), ratio))


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


def measured(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with a measured parameter."""
    size = seen.size()
    # The smallest measurable difference of the factor, which is the median over all pairs.
    least = 1e-5 if seen.dtype in ("float32", "float64") else 1e-3
    if size is not None and abs(size - spec.attention_factor) > least * size:
        parameters = {"factor": size, "declared": spec.attention_factor}
        yield seen.suspect("attention-factor", parameters, factor=size)
    bases: Iterable[float] = ROTARY_BASES
    rates = seen.rates()
    if rates is not None and isinstance(spec.spacing, Geometric):
        # If every pair rotates by a constant angle, the measured rates give the base, and usual bases are not needed.
        # A single pair of exponent 0 has no measurable base.
        by_rates = list(_bases(spec, np.abs(rates)))
        bases = [*by_rates, *([] if by_rates and seen.evenly() else bases)]
        yield from _slowed_alike(spec, seen, np.abs(rates))
        yield from _other_positions(spec, seen, np.abs(rates))
    if isinstance(spec.spacing, Geometric):
        declared = spec.spacing.base
        for base in dict.fromkeys(bases):
            if abs(base / declared - 1) > 1e-3:  # a nearer base is a measurement of the declared one
                yield seen.another("another-base", {"base": base, "declared": declared}, with_spacing(base=base))
    yield from other_ladders(spec, seen)


def recognised(spec: Rotary, others: Iterable[Rotary], seen: RotaryObservations) -> list[FaultModel]:
    """Suspects of other specs that an implementation was recognised as."""
    return [_of_all_faults(spec, other, seen) for other in others if other != spec]


def _of_all_faults(spec: Rotary, other: Rotary, seen: RotaryObservations) -> FaultModel:
    """A suspect of another spec, with all faults between the two."""
    found: FaultModel | None = None
    for code, parameters in reversed(list(faults_between(spec, other))):
        codes = (code,) if found is None else (code, *found.codes)
        one = seen.another(codes, parameters, lambda _: other)
        found = replace(one, beside=found)
    assert found is not None
    return found


def _bases(spec: Rotary, rates: np.ndarray) -> Iterator[float]:
    """Bases from the measured rates: from the pairs that the scaling does not change, and from all."""
    assert isinstance(spec.spacing, Geometric)
    plain = np.maximum(np.array(unscaled(spec).rates), 1e-300)
    exponents = -np.log(plain) / np.log(spec.spacing.base)
    own = (exponents > 0) & (rates > 0)
    kept = np.array(spec.rates) / plain
    for numbers in (rates / np.where(kept > 0, kept, 1.0), rates):
        found = bases_of(np.maximum(numbers[own], 1e-300), exponents[own], (1, 3, 6, 16))
        yield from (base for base in found if 1 < base < 1e30)


def _slowed_alike(spec: Rotary, seen: RotaryObservations, rates: np.ndarray) -> Iterator[FaultModel]:
    """Suspects that divide all plain rates by one number instead of applying the scaling."""
    if spec.scaling is None:
        return
    plain = np.array(unscaled(spec).rates)
    turning = (plain > 0) & (rates > 0)
    factor = float(np.median(plain[turning] / rates[turning])) if turning.any() else 1.0
    if not 1.001 < factor < 1e6:
        return
    for one in dict.fromkeys((float(f"{factor:.3g}"), factor)):
        if Linear(one) != spec.scaling:
            yield from _mistaken(spec, seen, Mistake("another-scaling", scaling=Linear(one)))


def _other_positions(spec: Rotary, seen: RotaryObservations, rates: np.ndarray) -> Iterator[FaultModel]:
    """Suspects with scaled or shifted positions, measured from the rates and from the rotation at position 0."""
    ratio = _ratio(rates, np.array(spec.rates))
    if abs(ratio - 2) < 1e-3:
        yield seen.suspect("rotated-twice", {}, rotation=rotated_twice)
    for factor in _as_written(ratio):
        yield seen.scaled(factor)
    for offset in _offsets_at_zero(spec, seen):
        if offset.is_integer():
            yield seen.moved(int(offset))


def rotation_suspects(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects that need no measurement: another spec than declared, or pairs that are rotated in a wrong way."""
    return of_sources(spec, seen, other_specs, wrong_pairs)


def rotary_suspects(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects to try, the simple ones first."""
    return of_sources(spec, seen, other_specs, measured, wrong_places, wrong_arithmetic, wrong_pairs, rotary_stateful)
