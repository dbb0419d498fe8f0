"""Published conventions: the names of the presets that equal a code, and other descriptions of the same numbers."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from clockhands.encodings.additive import AdditiveCode, AxialSinusoidal, Sinusoidal, table
from clockhands.encodings.grids import Grid
from clockhands.encodings.positions import positions_of
from clockhands.encodings.presets import preset, presets
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic
from clockhands.errors import ClockhandsError
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Equivalent, Match

Kind = TypeVar("Kind")

# The best-known presets; of several presets with the same code, these come first.
KNOWN = ("vaswani2017", "tensor2tensor", "transformer-xl", "dit", "musicgen")
# The original conventions; of several presets with the same code, these come first.
_FIRST = ("roformer", "llama2", "vaswani2017", "tensor2tensor")
_ROWS = 64  # rows in which two codes are compared; these are enough, because a code has few parameters


def of_kind(kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    """Name and spec of each preset with a spec of this class."""
    for known in presets():
        if isinstance(known.spec, kind):
            yield known.name, known.spec


def ranked(names: list[str], known: tuple[str, ...] = KNOWN) -> list[str]:
    """The names: first those in ``known`` in this order, then the others in alphabetical order."""
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def alike(spec: Sinusoidal) -> list[tuple[str, Sinusoidal]]:
    """Name and spec of each preset with this spacing, order, layout and rule for odd widths; without padding first."""
    found = {}
    for name, own in of_kind(Sinusoidal):
        if (own.spacing, own.layout, own.order) != (spec.spacing, spec.layout, spec.order):
            continue
        if (own.standardised is None) != (spec.standardised is None) or (spec.width % 2 and own.odd != spec.odd):
            continue
        found[name] = own
    names = sorted(ranked(list(found)), key=lambda name: bool(found[name].zero_rows))
    return [(name, found[name]) for name in names]


def rotary_names(spec: Rotary, bounds: np.ndarray | None = None) -> tuple[str, ...]:
    """Names of the presets that rotate heads as this spec does: the original conventions, then those of its width.

    Two specs are the same if all fields except spacing and scaling are equal, and all rates and the attention factor
    agree. Therefore an NTK-scaled base and an equal unscaled base have the same names. ``bounds`` are the error bounds
    of the rates in rad/token.
    """
    slack = 1e-9 * np.array(spec.rates) if bounds is None else bounds
    own_width = {}
    for name, other in of_kind(Rotary):
        if _kind(other) != _kind(spec):
            continue
        spec = spec if other.length is None else replace(spec, length=other.length)
        if other.rotated * spec.head_width != spec.rotated * other.head_width:
            continue
        with contextlib.suppress(ClockhandsError):  # the preset has numbers for one width only
            if _same_ladder(replace(other, head_width=spec.head_width, rotated=spec.rotated), spec, slack):
                own_width[name] = other.head_width == spec.head_width
    return tuple(sorted(own_width, key=lambda name: (name not in _FIRST, not own_width[name], name)))


def rope_presets(spec: Rotary) -> tuple[str, ...]:
    """Names of the presets of one axis that rotate as many dimensions with these frequencies, in any layout."""
    same = []
    for name, own in of_kind(Rotary):
        if own.rotated != spec.rotated or own.axes is not None or isinstance(own.scaling, Dynamic):
            continue
        if _same_ladder(own, spec, 1e-6 * np.array(spec.rates)):
            same.append(name)
    return tuple(sorted(same, key=lambda name: (name not in _FIRST, name)))


def sinusoidal_names(spec: Sinusoidal, bounds: np.ndarray) -> tuple[str, ...]:
    """Names of the presets that are this code at its width; first those without zero rows or another first position."""
    found = []
    for name, other in of_kind(Sinusoidal):
        if other.scaled or other.standardised is not None:
            continue
        if (other.layout, other.order, other.scale) != (spec.layout, spec.order, spec.scale):
            continue
        with contextlib.suppress(ClockhandsError):  # the preset has numbers for one width only
            rates = np.array(replace(other, width=spec.width).rates)
            if len(rates) == len(spec.rates) and (np.abs(rates - spec.rates) <= bounds).all():
                found.append((bool(other.zero_rows), other.first, name not in _FIRST, other.odd != "refuse", name))
    return tuple(name for *_, name in sorted(found))


def _kind(spec: Rotary) -> tuple[object, ...]:
    by_length = isinstance(spec.scaling, Dynamic)
    return spec.layout, spec.part, spec.axes, spec.blocks, spec.direction, spec.reordered, spec.xpos, by_length


def _same_ladder(one: Rotary, other: Rotary, slack: np.ndarray) -> bool:
    return bool(
        (np.abs(np.array(one.rates) - other.rates) <= slack).all()
        and abs(one.attention_factor - other.attention_factor) <= 1e-6 * one.attention_factor
    )


def with_equal_words(match: Match, given: GivenTable) -> Match:
    """The match without equivalents that give other numbers, and without a name if the preset's scale differs."""
    equal = _equal_to(match, given)
    name = match.name
    if isinstance(match.spec, AxialSinusoidal) and name is not None:
        known = preset(name)
        name = name if isinstance(known, AxialSinusoidal) and known.scale == match.spec.scale else None
    others = [other for other in match.equivalents if other != name and equal(other)]
    if match.residual is None and match.values is None:
        axes = match.spec.number_of_axes  # type: ignore[union-attr]
        known = [other for other, spec in of_kind(AdditiveCode) if not spec.learned and spec.number_of_axes == axes]
        more = ranked([other for other in known if other not in (name, *others) and equal(other)])
        if name is None and more:
            name, *more = more
        others = sorted([*others, *more], key=lambda other: (not isinstance(other, str), other in more))
    return replace(match, name=name, equivalents=tuple(others))


def mirrored(spec: Sinusoidal, positions: Any) -> Equivalent | None:
    """The same table at negated positions, or None: a sine is an odd function, a cosine an even one."""
    flipped = {"sin-cos": "-sin-cos", "cos-sin": "cos--sin"}.get(spec.order)
    if flipped is None or spec.zero_rows:
        return None
    if isinstance(positions, range):
        positions = range(-positions.start, -positions.stop, -positions.step)
    elif isinstance(positions, Grid):
        start, step = ([-one for one in each] for each in (positions.start, positions.step))
        positions = Grid(positions.sizes, start=start, step=step, order=positions.order, prefix=positions.prefix)
    else:
        positions = -np.asarray(positions)
    return named_equivalent(replace(spec, order=flipped), positions)  # type: ignore[arg-type]


def named_equivalent(spec: Sinusoidal, positions: Any) -> Equivalent:
    """The same numbers by another code at other positions, with the names of the presets that are this code."""
    same = (name for name, known in alike(spec) if (known.scaled, known.scale) == (spec.scaled, spec.scale))
    return Equivalent(spec, positions, tuple(same))


def _equal_to(match: Match, given: GivenTable) -> Callable[[Any], bool]:
    """A test that says whether an equivalent gives the numbers of the match, in at most 64 of its rows."""
    places = _some(match.positions)
    rows = table(match.spec, places, "float64", values=match.values)  # type: ignore[arg-type]
    fastest = max((max(np.ravel(one)) for one in getattr(match.spec, "rates", ())), default=1.0)
    reach = float(np.abs(positions_of(places).as_float64()).max(initial=0.0) * fastest)
    # A base for another span is rounded to float64, so its rates have relative errors of a few roundings.
    allowed = (4 * given.rounding + 2.0**-48 * reach) * float(np.abs(rows).max(initial=0.0))
    known: dict[Any, bool] = {}

    def equal(other: Any) -> bool:
        spec, positions = other, match.positions
        try:
            if isinstance(other, str):
                spec = preset(other, width=match.spec.width)  # type: ignore[union-attr]
            elif isinstance(other, Equivalent):
                spec, positions = other.spec, other.positions
            key = (spec, id(positions))
            if key not in known:
                made = table(spec, _some(positions), "float64", values=match.values)  # type: ignore[arg-type]
                near = made.shape == rows.shape and bool(np.abs(made - rows).max(initial=0.0) <= allowed)
                known[key] = near and _zeros(spec, positions) == _zeros(match.spec, match.positions)
            return known[key]
        except ClockhandsError:
            return False

    return equal


def _some(positions: Any) -> Any:
    """At most 64 of the positions, evenly spread from the first to the last."""
    if isinstance(positions, Grid):
        full = Grid(positions.sizes, start=positions.start, step=positions.step, order=positions.order)
        at = positions_of(full).as_float64().reshape(-1, len(positions.sizes))
        at = at[:, 0] if len(positions.sizes) == 1 else at
    else:
        at = positions
    pick = np.unique(np.linspace(0, len(at) - 1, min(len(at), _ROWS)).astype(np.int64))
    return [at[int(row)] for row in pick] if isinstance(at, range) else np.asarray(at)[pick]


def _zeros(spec: Any, positions: Any) -> set[int]:
    """The zero rows of a spec that are among these positions."""
    rows = getattr(spec, "zero_rows", ())
    if not rows or isinstance(positions, Grid):
        return set(rows)
    return {row for row in rows if row in positions}
