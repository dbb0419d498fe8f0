"""Additive suspects of another spec: one field of it is another."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from clockhands.additive import AdditiveCode, AxialSinusoidal, Sinusoidal
from clockhands.additive.axial import Channels
from clockhands.faults.adding import Apply, Hands, hands_of
from clockhands.faults.additive_seen import Seen
from clockhands.faults.fault import Suspect
from clockhands.ladders import Geometric
from clockhands.specs import describe

_LAYOUTS = {"halves": "interleaved", "interleaved": "halves"}
_ORDERS = {"sin-cos": "cos-sin", "cos-sin": "sin-cos", "sin": "cos", "cos": "sin"}
_WORDS = {
    "halves": "one wave of all pairs before the other (halves)",
    "interleaved": "sine and cosine in turns (interleaved)",
}
_SPANS = {"open": "closed", "closed": "open"}

Change = Callable[[Any], Any]


def other_specs(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """One field is another, or two of those that go wrong together."""
    changes = list(_changes(spec))
    for code, parameters, change in changes:
        yield seen.another((code,), parameters, change)
    for (code, parameters, change), (also, more, second) in itertools.combinations(changes, 2):
        if code != also:
            yield seen.another(
                (code, also),
                {**more, **parameters},
                lambda it, change=change, second=second: second(change(it)),
            )
    if isinstance(spec, Sinusoidal) and spec.width % 2:
        for odd in ("zero", "extra", "cut"):
            if odd != spec.odd:
                yield seen.another(
                    ("odd-width",),
                    {"used": odd, "declared": spec.odd},
                    lambda it, odd=odd: replace(it, odd=odd) if it.width % 2 else it,
                )
    for row in getattr(spec, "zero_rows", ()):
        yield seen.another(("padding-row",), {"row": row}, lambda it: replace(it, zero_rows=()))
    if isinstance(spec, AxialSinusoidal):
        yield from _axial(spec, seen)


def recognised(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """The codes that it was recognised as."""
    for other in seen.specs:
        if other != spec:
            yield seen.another("another-code", {"used": describe(other)}, lambda _, other=other: other)


def _changes(spec: Any) -> Iterator[tuple[str, dict[str, Any], Change]]:
    layout, order = getattr(spec, "layout", None), getattr(spec, "order", None)
    if order in _ORDERS:
        used = _ORDERS[order]
        yield (
            "sine-and-cosine-swapped",
            {"declared": order, "used": used},
            lambda it: replace(it, order=_ORDERS[it.order]),
        )
    if layout is not None:
        yield (
            "other-layout",
            {"declared": _WORDS[layout], "used": _WORDS[_LAYOUTS[layout]]},
            lambda it: replace(it, layout=_LAYOUTS[it.layout]),
        )
    spacing = getattr(spec, "spacing", None)
    if not isinstance(spacing, Geometric):
        return
    if spacing.span in _SPANS:
        span = _SPANS[str(spacing.span)]
        yield (
            f"{span}-span",
            {},
            lambda it: replace(it, spacing=replace(it.spacing, span=_SPANS[str(it.spacing.span)])),
        )


def _denominators(spec: Any) -> Iterator[float]:
    """Widths that an exponent is divided by in the place of the right one."""
    for width in sorted({spec.width, 2 * spec.width, spec.width / 2, spec.width - 1, spec.width + 2}):
        if width > 1:
            yield float(width)


def _of_span(spec: Any, span: str | None) -> float | None:
    """What the exponent is divided by, times 2, with this span."""
    if span is None:
        return None
    return 2 * float(replace(spec.spacing, span=span).denominator(spec.width))


def other_exponents(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """The exponent of the rates is another: each channel has its own, or the denominator is another width."""
    spacing = getattr(spec, "spacing", None)
    if not isinstance(spacing, Geometric) or spec.number_of_axes > 1:
        return
    declared = 2 * float(spacing.denominator(spec.width))
    for width in _denominators(spec):
        if width not in (declared, _of_span(spec, _SPANS.get(str(spacing.span)))):
            yield seen.another(
                ("other-denominator",),
                {"declared": declared, "used": width},
                lambda it, width=width: replace(it, spacing=replace(it.spacing, span=width / 2)),
            )
    for words, powers in _POWERS.items():

        def build(it: AdditiveCode, powers: tuple[int, ...] = powers) -> Apply:
            hands = hands_of(it, seen.values)
            assert hands is not None
            return seen.adding(it, hands=_with_powers(it, hands, powers))

        yield seen.built("exponent", {"which": words}, build)


# Exponents of base as multiples of 1/d: of the number of the pair, of the wave in its pair, of the channel, of 1, and
# of the number of the pair halved and rounded down.
_POWERS = {
    "each channel c has its own, c/d, where both channels of pair i have 2i/d": (0, 0, 1, 0, 0),
    "channel c has 2c/d, where both channels of pair i have 2i/d": (0, 0, 2, 0, 0),
    "the second wave of pair i has 2(i + 1)/d, where both have 2i/d": (2, 2, 0, 0, 0),
    "the second wave of pair i has (2i + 1)/d, where both have 2i/d": (2, 1, 0, 0, 0),
    "pair i has 2(i + 1)/d, where 2i/d is right: pairs are counted from 1": (2, 0, 0, 2, 0),
    "pairs i and i + 1 both have 2i/d, i even, where each has its own: every rate is there twice": (0, 0, 0, 0, 4),
}


def _with_powers(spec: Any, hands: Hands, powers: tuple[int, ...]) -> Hands:
    channels = np.arange(spec.width)
    pairs, waves = channels // 2, channels % 2
    if spec.layout == "halves":
        half = -(-spec.width // 2)
        pairs, waves = channels % half, channels // half
    parts = (pairs, waves, channels, np.ones(spec.width), pairs // 2)
    steps = np.sum([power * part for power, part in zip(powers, parts, strict=True)], axis=0)
    exponents = steps / (2 * float(spec.spacing.denominator(spec.width)))
    rates = spec.spacing.multiplier * spec.spacing.base**-exponents
    return replace(hands, rates=np.where(hands.quarters >= 0, rates, 0.0)[None])


def _axial(spec: AxialSinusoidal, seen: Seen) -> Iterator[Suspect]:
    for channels in get_args(Channels):
        if channels != spec.channels:
            yield seen.another(
                ("other-layout",),
                {"declared": spec.channels, "used": channels},
                lambda it, channels=channels: replace(it, channels=channels),
            )
    for order in itertools.permutations(range(spec.number_of_axes)):
        if order == tuple(range(spec.number_of_axes)):
            continue
        words = ", ".join(f"coordinate {axis} stands where {place} belongs" for place, axis in enumerate(order))
        yield seen.suspect("axes-exchanged", {"which": words}, places=lambda at, _, order=order: at[..., list(order)])
    if len(set(spec.shares)) > 1:
        yield seen.another(
            ("axes-exchanged",),
            {"which": "the first axis has the last one's share of the channels"},
            lambda it: replace(it, shares=it.shares[::-1]),
        )
    for axis in range(1, spec.number_of_axes):

        def dropped(at: np.ndarray, _: Any, axis: int = axis) -> np.ndarray:
            at = at.copy()
            at[..., axis] = at[..., 0]
            return at

        yield seen.suspect("axis-dropped", {"which": f"coordinate {axis}"}, places=dropped)
