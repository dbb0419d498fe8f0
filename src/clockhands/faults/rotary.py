"""Rotary suspects: every known fault of a rotary code with the parameters that it may have here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.faults.fault import Suspect
from clockhands.faults.rotary_state import stateful
from clockhands.faults.turning import Apply, Call, Turning, rounded
from clockhands.ladders import Geometric
from clockhands.rotary import Rotary, chunked, interleaved
from clockhands.scaling import Dynamic, Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.specs import describe

COARSE = ("bfloat16", "float16")
BASES = (1e2, 1e3, 1e4, 2.5e4, 5e4, 1e5, 1.5e5, 1.6e5, 2.5e5, 5e5, 1e6, 1.5e6, 2e6, 5e6, 8e6, 1e7)
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0)


@dataclass(frozen=True)
class Seen:
    """What was measured of an implementation before suspects are tried.

    Attributes:
        dtype: The dtype of its tokens.
        coarse: The coarser dtype that it was asked in too, or None.
        length: Positions that it was asked for.
        first_wrong: The first position at which it is wrong, or None.
        positions: Where its turning was measured, [n], without repetition.
        turning: What each pair was multiplied by there, complex [n, pairs], as the declared pairs have it.
        pairwise: Whether that is what happened: pairs were turned or stretched, and nothing else.
        offsets: Numbers of tokens by which it may stand off.
        specs: Codes that it was recognised as.
    """

    dtype: str
    coarse: str | None
    length: int
    first_wrong: int | None
    positions: np.ndarray
    turning: np.ndarray
    pairwise: bool
    specs: tuple[Rotary, ...] = ()

    def rates(self) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None where that is not seen."""
        if not self.pairwise:
            return None
        at = {int(place): np.angle(row) for place, row in zip(self.positions, self.turning, strict=True)}
        if 0 not in at or 1 not in at:
            return None
        rates, known = _wrapped(at[1] - at[0]), 1
        for place in sorted(at):
            if known < place <= 4 * known:
                rates = rates + _wrapped(at[place] - at[0] - place * rates) / place
                known = place
        return rates

    def size(self) -> float | None:
        """What every pair is multiplied by, if it is one number."""
        sizes = np.abs(self.turning)
        if not self.pairwise or not sizes.size or np.ptp(sizes) > 0.01 * np.median(sizes):
            return None
        return float(np.median(sizes))


def rotary_suspects(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    for source in (_other_specs, _measured, _wrong_places, _wrong_arithmetic, _wrong_pairs):
        try:
            yield from source(spec, seen)
        except ClockhandsError:  # a spec that does not exist is no suspect
            continue
    yield from stateful(spec, seen)


def _built(build: Callable[[Rotary], Apply]) -> Callable[[], Callable[[Rotary], Apply]]:
    """A process in which nothing is shared."""
    return lambda: build


def _as(code: str, parameters: Mapping[str, Any], change: Callable[[Rotary], Rotary]) -> Suspect:
    """An implementation of another spec; of other models it gets the same field wrong."""

    def build(spec: Rotary) -> Apply:
        try:
            return Turning(change(spec))
        except ClockhandsError:
            return Turning(spec)

    return Suspect((code,), parameters, _built(build))


def _other_specs(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """One field of the spec is another."""
    other = {"halves": "interleaved", "interleaved": "halves"}
    yield _as(
        "other-layout",
        {"declared": _laid_out(spec), "used": other[spec.layout]},
        lambda it: replace(it, layout=other[it.layout], reordered=False, blocks=()),
    )
    if spec.blocks:
        yield _as(
            "other-layout",
            {"declared": _laid_out(spec), "used": f"{spec.layout} over all of them"},
            lambda it: replace(it, blocks=()),
        )
    if spec.reordered:
        yield _as(
            "other-layout",
            {"declared": "interleaved that go out as halves", "used": "interleaved that stay where they are"},
            lambda it: replace(it, reordered=False),
        )
    elif spec.layout == "interleaved" and not spec.blocks:
        yield _as(
            "other-layout",
            {"declared": "interleaved", "used": "interleaved that go out as halves"},
            lambda it: replace(it, reordered=True),
        )
    turned = {"forward": "backward", "backward": "forward"}
    yield _as(
        "other-direction",
        {"declared": spec.direction, "used": turned[spec.direction]},
        lambda it: replace(it, direction=turned[it.direction]),
    )
    if spec.rotated < spec.head_width:
        yield _as(
            "other-part",
            {"declared": spec.part, "used": {"first": "last", "last": "first"}[spec.part]},
            lambda it: replace(it, part={"first": "last", "last": "first"}[it.part]),
        )
    yield from _widths(spec)
    yield from _spans(spec)
    yield from _scalings(spec)
    if spec.axes is not None:
        yield from _axes(spec)
    if spec.xpos is not None:
        yield _as("xpos-dropped", {}, lambda it: replace(it, xpos=None))
        for centre in sorted({0.0, float(seen.length // 2), *(float(n // 2) for n in (8, 16, 24, 32))}):
            if centre != spec.xpos.centre:
                yield _as(
                    "xpos-centre",
                    {"centre": centre, "declared": spec.xpos.centre},
                    lambda it, centre=centre: replace(it, xpos=replace(it.xpos, centre=centre)),
                )


def _laid_out(spec: Rotary) -> str:
    return f"{spec.layout}{' in blocks' if spec.blocks else ''}"


def _widths(spec: Rotary) -> Iterator[Suspect]:
    if spec.axes is not None or spec.blocks:
        return
    head = spec.head_width
    wanted = {head, spec.rotated // 2, *(head * share // 8 for share in range(1, 8)), 2 * spec.rotated}
    for width in sorted(wanted):
        if width == spec.rotated or width % 2 or not 2 <= width <= head:
            continue
        yield _as(
            "other-rotated-width",
            {"declared": spec.rotated, "used": width},
            lambda it, width=width: replace(it, rotated=width),
        )
        # The same ladder, cut: rates made for the whole head and used for a part of it.
        if width < spec.rotated and isinstance(spec.spacing, Geometric) and spec.scaling is None:
            span = replace(spec.spacing, span=spec.rotated / 2)
            yield _as(
                "other-rotated-width",
                {"declared": spec.rotated, "used": width},
                lambda it, width=width, span=span: replace(it, rotated=width, spacing=span),
            )


def _spans(spec: Rotary) -> Iterator[Suspect]:
    if not isinstance(spec.spacing, Geometric):
        return
    if spec.spacing.span != "closed" and spec.rotated > 2:
        yield _as("closed-span", {}, lambda it: replace(it, spacing=replace(it.spacing, span="closed")))
    declared = spec.rotated if isinstance(spec.spacing.span, str) else 2 * spec.spacing.span
    for width in sorted({spec.head_width, spec.rotated, 2 * spec.rotated, spec.rotated // 2}):
        if width not in {declared, 0}:
            yield _as(
                "other-denominator",
                {"declared": declared, "used": width},
                lambda it, width=width: replace(it, spacing=replace(it.spacing, span=width / 2)),
            )


def _scalings(spec: Rotary) -> Iterator[Suspect]:
    scaling = spec.scaling
    if scaling is None:
        return
    words = _named(scaling)
    dropped = replace(spec, scaling=None, length=None)
    yield _as("scaling-dropped", {"scaling": words}, lambda it: replace(it, scaling=None, length=None))
    if spec.attention_factor != 1:
        yield Suspect(
            ("attention-factor",),
            {"factor": 1.0, "declared": spec.attention_factor},
            _built(lambda it: Turning(it, factor=1.0)),
        )
        yield Suspect(
            ("scaling-dropped",),
            {"scaling": f"{words}, whose attention factor is applied"},
            _built(lambda it: Turning(replace(it, scaling=None, length=None), factor=it.attention_factor)),
        )
    twice = scaling(replace(spec.ladder, ratio=dropped.ladder.ratio), spec.length)
    for factor in {spec.attention_factor, twice.attention_factor}:
        yield Suspect(
            ("scaling-twice",),
            {"scaling": words},
            _built(lambda it, factor=factor: Turning(it, rates=_again(it), factor=factor)),
        )
    if hasattr(scaling, "factor"):
        for factor in FACTORS:
            if factor != scaling.factor:
                yield from _with_scaling(
                    "another-factor", {"factor": factor, "declared": scaling.factor}, scaling, factor=factor
                )
    if hasattr(scaling, "original"):
        declared = scaling.original
        lengths = {int(declared * getattr(scaling, "factor", 1) or 1), *(2**power for power in range(9, 21))}
        for original in sorted(lengths - {declared}):
            yield from _with_scaling(
                "another-original-length", {"original": original, "declared": declared}, scaling, original=original
            )
    if isinstance(scaling, LongRope):
        here = spec.length is not None and spec.length > scaling.original
        used = {True: "short", False: "long"}[here]
        yield _as(
            "lists-swapped",
            {"declared": "long" if here else "short", "used": used},
            lambda it: replace(it, scaling=replace(it.scaling, short=it.scaling.long, long=it.scaling.short)),
        )
    factor, original = getattr(scaling, "factor", 8.0), getattr(scaling, "original", 8192)
    others = (
        Linear(factor),
        Ntk(factor),
        Ntk(factor**2),
        Yarn(factor, original),
        Llama3(factor, original),
        Dynamic(factor, original),
    )
    for other in others:
        if type(other) is not type(scaling) or other != scaling:
            yield _as(
                "another-scaling",
                {"declared": words, "scaling": _named(other)},
                lambda it, other=other: replace(it, scaling=other),
            )


def _again(spec: Rotary) -> np.ndarray:
    assert spec.scaling is not None
    plain = replace(spec, scaling=None, length=None).ladder
    return np.array(spec.scaling(replace(spec.ladder, ratio=plain.ratio), spec.length).rates)


def _with_scaling(code: str, parameters: Mapping[str, Any], scaling: Any, **fields: Any) -> Iterator[Suspect]:
    try:
        other = replace(scaling, **fields)
    except (ClockhandsError, TypeError):
        return
    yield _as(code, parameters, lambda it: replace(it, scaling=other))


def _named(scaling: Any) -> str:
    name = type(scaling).__name__
    factor = getattr(scaling, "factor", None)
    return f"{name}, factor {factor:g}" if isinstance(factor, int | float) else name


def _axes(spec: Rotary) -> Iterator[Suspect]:
    assert spec.axes is not None
    sections = tuple(spec.axes.count(axis) for axis in range(spec.number_of_axes))
    for words, made in (("sections one after another", chunked), ("sections that take turns", interleaved)):
        try:
            axes = made(*sections)
        except (ClockhandsError, TypeError):
            continue
        if axes != spec.axes:
            declared = "sections that take turns" if "after" in words else "sections one after another"
            yield _as(
                "other-axes-order",
                {"declared": declared, "used": words},
                lambda it, axes=axes: replace(it, axes=axes),
            )

    def first_of_all(at: np.ndarray, call: Call) -> np.ndarray:
        return np.repeat(at[..., :1], at.shape[-1], axis=-1)

    yield Suspect(
        ("axis-dropped",),
        {"which": "all coordinates but the first"},
        _built(lambda it: Turning(it, places=first_of_all)),
    )
    for axis in range(1, spec.number_of_axes):

        def dropped(at: np.ndarray, call: Call, axis: int = axis) -> np.ndarray:
            at = at.copy()
            at[..., axis] = at[..., 0]
            return at

        yield Suspect(
            ("axis-dropped",),
            {"which": f"coordinate {axis}"},
            _built(lambda it, dropped=dropped: Turning(it, places=dropped)),
        )


def _measured(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Faults whose parameter was measured."""
    size = seen.size()
    if size is not None and abs(size - spec.attention_factor) > 1e-3 * size:
        parameters = {"factor": size, "declared": spec.attention_factor}
        yield Suspect(("attention-factor",), parameters, _built(lambda it: Turning(it, factor=size)))
    bases = list(BASES)
    rates = seen.rates()
    if rates is not None and isinstance(spec.spacing, Geometric):
        bases = [*_bases(spec, np.abs(rates)), *bases]
        yield from _scaled_positions(spec, np.abs(rates))
        yield from _offsets(spec, seen)
        # The right code, but for a factor that was measured too.
    if isinstance(spec.spacing, Geometric):
        declared = spec.spacing.base
        for base in dict.fromkeys(bases):
            if base != declared:
                yield _as(
                    "another-base",
                    {"base": base, "declared": declared},
                    lambda it, base=base: replace(it, spacing=replace(it.spacing, base=base)),
                )
    for other in seen.specs:
        if other != spec and isinstance(other, Rotary):
            code, parameters = told_by_fields(spec, other)
            yield _as(code, parameters, lambda _, other=other: other)


def told_by_fields(spec: Rotary, other: Rotary) -> tuple[str, dict[str, Any]]:
    """The fault that turns one spec into another, by the first field in which they differ."""
    if other.layout != spec.layout or other.blocks != spec.blocks:
        return "other-layout", {"declared": _laid_out(spec), "used": _laid_out(other)}
    if other.direction != spec.direction:
        return "other-direction", {"declared": spec.direction, "used": other.direction}
    if other.rotated != spec.rotated:
        return "other-rotated-width", {"declared": spec.rotated, "used": other.rotated}
    if other.part != spec.part:
        return "other-part", {"declared": spec.part, "used": other.part}
    if other.scaling != spec.scaling:
        if other.scaling is None:
            return "scaling-dropped", {"scaling": _named(spec.scaling)}
        if spec.scaling is None:
            return "another-scaling", {"declared": "nothing", "scaling": _named(other.scaling)}
        return "another-scaling", {"declared": _named(spec.scaling), "scaling": _named(other.scaling)}
    if other.base is not None and spec.base is not None and other.base != spec.base:
        return "another-base", {"base": other.base, "declared": spec.base}
    return "another-scaling", {"declared": describe(spec), "scaling": describe(other)}


def _bases(spec: Rotary, rates: np.ndarray) -> Iterator[float]:
    """Bases by the measured rates: by the pairs that a scaling leaves, and by all."""
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
            base = float(np.exp(logarithm))
            if 1 < base < 1e30:
                for digits in (2, 4, 7):
                    yield float(f"{base:.{digits - 1}e}")
                yield base


def _scaled_positions(spec: Rotary, rates: np.ndarray) -> Iterator[Suspect]:
    own = np.array(spec.rates)
    turns = own > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = rates[turns] / own[turns]
    ratio = float(np.median(ratios))
    if np.isfinite(ratio) and ratio > 0 and abs(ratio - 1) > 1e-4:
        for factor in dict.fromkeys((float(f"{ratio:.3g}"), 1 / float(f"{1 / ratio:.3g}"), ratio)):
            yield Suspect(
                ("positions-scaled",),
                {"factor": factor},
                _built(lambda it, factor=factor: Turning(it, places=lambda at, _: at * factor)),
            )


def _offsets(spec: Rotary, seen: Seen, reach: int = 8192) -> Iterator[Suspect]:
    """By how many tokens it stands off: the turning where position 0 stands tells."""
    where = np.flatnonzero(seen.positions == 0)
    if spec.axes is not None or not len(where):
        return
    row = seen.turning[where[0]]
    row = row / np.maximum(np.abs(row), 1e-30)
    sign = -1 if spec.direction == "backward" else 1
    offsets = np.arange(-reach, reach + 1)
    off = np.abs(np.exp(1j * sign * offsets[:, None] * np.array(spec.rates)) - row).max(axis=1)
    for offset in offsets[np.argsort(off, kind="stable")[:2]]:
        if offset:
            yield Suspect(
                ("positions-offset",),
                {"offset": int(offset)},
                _built(lambda it, offset=offset: Turning(it, places=lambda at, _: at + offset)),
            )


def _wrong_places(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Positions are read otherwise."""

    def each(places: Callable[[np.ndarray, Call], np.ndarray]) -> Callable[[], Callable[[Rotary], Apply]]:
        return _built(lambda it: Turning(it, places=places))

    several = spec.axes is not None

    def tokens(at: np.ndarray) -> int:
        return -2 if several else -1

    def counted(at: np.ndarray, call: Call) -> np.ndarray:
        rows = np.arange(at.shape[tokens(at)], dtype=np.float64)
        return np.broadcast_to(rows[:, None] if several else rows, at.shape)

    def from_first(at: np.ndarray, call: Call) -> np.ndarray:
        return at - np.take(at, [0], axis=tokens(at)) if at.size else at

    def of_first(at: np.ndarray, call: Call) -> np.ndarray:
        return np.broadcast_to(at[:1], at.shape) if at.ndim > 1 + several else at

    yield Suspect(("positions-ignored",), {}, each(counted))
    yield Suspect(("positions-from-first",), {}, each(from_first))
    yield Suspect(("positions-of-first-sequence",), {}, each(of_first))
    for coarse in COARSE:
        parameters = {"dtype": coarse, "first": {"bfloat16": 257, "float16": 2049}[coarse]}
        yield Suspect(("positions-rounded",), parameters, each(lambda at, _, coarse=coarse: rounded(at, coarse)))
        yield Suspect(
            ("positions-rounded",),
            parameters,
            each(lambda at, call, coarse=coarse: rounded(at, coarse) if call.dtype == coarse else at),
        )
    ends = {int(seen.first_wrong)} if seen.first_wrong else set()
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
                    _built(lambda it, near=near, dtype=dtype: Turning(it, phases=_beyond(near, dtype))),
                )
    for axis, one, place in (("heads", "head", 1), ("sequences", "sequence", 0)):

        def along(x: np.ndarray, *arguments: Any, place: int = place, spec: Rotary = spec, **more: Any) -> np.ndarray:
            at = np.arange(x.shape[place])
            moved = np.moveaxis(x, place, -2)
            return np.moveaxis(Turning(spec)(moved, at), -2, place)

        if not several and spec.xpos is None:
            yield Suspect(("turns-other-axis",), {"axis": axis, "one": one}, _built(lambda it, along=along: along))


def _beyond(rows: int, dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        fine = call.turning.phases(at)
        # All of a table is built again, in the dtype of the tokens that were longer than it.
        if not at.size or at.max() < rows:
            return fine
        coarse = rounded(call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype)), dtype)
        return np.where((at >= rows)[..., None], coarse, fine)

    return phases


def _wrong_arithmetic(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Numbers are rounded on the way."""

    def rates(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: call.turning.phases(at, rounded(call.turning.rates, dtype))

    def product(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: rounded(call.turning.phases(at), dtype)

    def rates_and_product(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: rounded(call.turning.phases(at, rounded(call.turning.rates, dtype)), dtype)

    def everything(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: rounded(
            call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype)), dtype
        )

    def places_and_rates(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype))

    def places_and_product(dtype: str) -> Callable[[np.ndarray, Call], np.ndarray]:
        return lambda at, call: rounded(call.turning.phases(rounded(at, dtype)), dtype)

    ways = (
        (("rates-rounded",), rates),
        (("phases-rounded",), product),
        (("phases-rounded", "rates-rounded"), rates_and_product),
        (("positions-rounded", "rates-rounded", "phases-rounded"), everything),
        (("positions-rounded", "rates-rounded"), places_and_rates),
        (("positions-rounded", "phases-rounded"), places_and_product),
    )
    for dtype in COARSE:
        first = {"bfloat16": 257, "float16": 2049}[dtype]
        for codes, way in ways:
            phases = way(dtype)
            parameters = {"dtype": dtype, "first": first}
            yield Suspect(codes, parameters, _built(lambda it, phases=phases: Turning(it, phases=phases)))

            def coarse_only(at: np.ndarray, call: Call, phases: Any = phases, dtype: str = dtype) -> np.ndarray:
                return phases(at, call) if call.dtype == dtype else call.turning.phases(at)

            if seen.coarse == dtype and seen.dtype != dtype:
                yield Suspect(
                    codes, parameters, _built(lambda it, coarse_only=coarse_only: Turning(it, phases=coarse_only))
                )

        def table(cosine: np.ndarray, sine: np.ndarray, call: Call, dtype: str = dtype) -> Any:
            return rounded(cosine, dtype), rounded(sine, dtype)

        yield Suspect(("table-rounded",), {"dtype": dtype}, _built(lambda it, table=table: Turning(it, waves=table)))


def _wrong_pairs(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Waves meet the wrong channels."""
    yield Suspect(("no-rotation",), {}, _built(lambda it: lambda x, *arguments, **more: np.array(x, np.float64)))
    yield Suspect(
        ("sine-and-cosine-swapped",), {}, _built(lambda it: Turning(it, waves=lambda cosine, sine, _: (sine, cosine)))
    )

    def pairs(rule: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Callable[[], Callable[[Rotary], Apply]]:
        def turn(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, it: Rotary) -> np.ndarray:
            y = np.array(x, np.float64)
            one, other = it.channels.T
            y[..., one], y[..., other] = rule(x[..., one], x[..., other], cosine, sine)
            return y

        return _built(lambda it: Turning(it, turn=turn))

    signs = (
        ("a plus in both channels of a pair", lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        ("a minus in both channels of a pair", lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
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
            _built(lambda it: Turning(it, turn=mixed)),
        )


def _wrapped(angles: np.ndarray) -> np.ndarray:
    return (angles + np.pi) % (2 * np.pi) - np.pi
