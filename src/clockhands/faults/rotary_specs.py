"""Rotary suspects of another spec: one field is not what was declared, which a file can show."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.faults.fault import Suspect
from clockhands.faults.turning import Apply, Call, Turning, another, built
from clockhands.ladders import Geometric
from clockhands.rotary import Rotary, XPos, chunked, interleaved
from clockhands.scaling import Dynamic, Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.specs import describe

FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0)


def other_specs(spec: Rotary, length: int) -> Iterator[Suspect]:
    """One field of the spec is another."""
    other = {"halves": "interleaved", "interleaved": "halves"}
    yield another(
        "other-layout",
        {"declared": laid_out(spec), "used": other[spec.layout]},
        lambda it: replace(it, layout=other[it.layout], reordered=False, blocks=()),
    )
    if spec.blocks:
        yield another(
            "other-layout",
            {"declared": laid_out(spec), "used": f"{spec.layout} over all of them"},
            lambda it: replace(it, blocks=()),
        )
    if spec.reordered:
        yield another(
            "other-layout",
            {"declared": "interleaved that go out as halves", "used": "interleaved that stay where they are"},
            lambda it: replace(it, reordered=False),
        )
    elif spec.layout == "interleaved" and not spec.blocks:
        yield another(
            "other-layout",
            {"declared": "interleaved", "used": "interleaved that go out as halves"},
            lambda it: replace(it, reordered=True),
        )
    turned = {"forward": "backward", "backward": "forward"}
    yield another(
        "other-direction",
        {"declared": spec.direction, "used": turned[spec.direction]},
        lambda it: replace(it, direction=turned[it.direction]),
    )
    if spec.rotated < spec.head_width:
        yield another(
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
        yield another("xpos-dropped", {}, lambda it: replace(it, xpos=None))
        for both in (False, True):
            yield Suspect(
                ("xpos-centre",),
                {"centre": "half of the length in use", "declared": spec.xpos.centre},
                built(lambda it, both=both: _moving_centre(it, both)),
            )
        for centre in sorted({0.0, float(length // 2), *(float(n // 2) for n in (8, 16, 24, 32))}):
            if centre != spec.xpos.centre:
                yield Suspect(
                    ("xpos-centre",),
                    {"centre": f"{centre:g}", "declared": spec.xpos.centre},
                    built(lambda it, centre=centre: _keys_centred(it, centre)),
                )
                yield another(
                    "xpos-centre",
                    {"centre": f"{centre:g}", "declared": spec.xpos.centre},
                    lambda it, centre=centre: replace(it, xpos=replace(spec.xpos or XPos(), centre=centre)),
                )


def _keys_centred(spec: Rotary, centre: float) -> Apply:
    """Queries around the right centre and keys around another."""
    keys = Turning(replace(spec, xpos=replace(spec.xpos or XPos(), centre=centre)))
    return lambda x, at, dtype, role: (keys if role == "key" else Turning(spec))(x, at, dtype, role)


def _moving_centre(spec: Rotary, both: bool) -> Apply:
    """Keys, or queries too, around half of the length of each call."""

    def apply(x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        if not both and role != "key":
            return Turning(spec)(x, at, dtype, role)
        centre = float((int(np.max(at, initial=-1)) + 1) // 2)
        return Turning(replace(spec, xpos=replace(spec.xpos or XPos(), centre=centre)))(x, at, dtype, role)

    return apply


def laid_out(spec: Rotary) -> str:
    """Which channels form a pair, in words."""
    return f"{spec.layout}{' in blocks' if spec.blocks else ''}"


def _widths(spec: Rotary) -> Iterator[Suspect]:
    if spec.axes is not None or spec.blocks:
        return
    head = spec.head_width
    wanted = {head, spec.rotated // 2, *(head * share // 8 for share in range(1, 8)), 2 * spec.rotated}
    for width in sorted(wanted):
        if width == spec.rotated or width % 2 or not 2 <= width <= head:
            continue
        yield another(
            "other-rotated-width",
            {"declared": spec.rotated, "used": width},
            lambda it, width=width: replace(it, rotated=width),
        )
        # The same ladder, cut: rates made for the whole head and used for a part of it.
        if width < spec.rotated and isinstance(spec.spacing, Geometric) and spec.scaling is None:
            span = replace(spec.spacing, span=spec.rotated / 2)
            yield another(
                "other-rotated-width",
                {"declared": spec.rotated, "used": width},
                lambda it, width=width, span=span: replace(it, rotated=width, spacing=span),
            )


def _spans(spec: Rotary) -> Iterator[Suspect]:
    if not isinstance(spec.spacing, Geometric):
        return
    if spec.spacing.span != "closed" and spec.rotated > 2:
        yield another("closed-span", {}, lambda it: replace(it, spacing=replace(it.spacing, span="closed")))
    declared = spec.rotated if isinstance(spec.spacing.span, str) else 2 * spec.spacing.span
    for width in sorted({spec.head_width, spec.rotated, 2 * spec.rotated, spec.rotated // 2}):
        if width not in {declared, 0}:
            yield another(
                "other-denominator",
                {"declared": declared, "used": width},
                lambda it, width=width: replace(it, spacing=replace(it.spacing, span=width / 2)),
            )


def _scalings(spec: Rotary) -> Iterator[Suspect]:
    scaling: Any = spec.scaling  # each has its own fields
    if scaling is None:
        return
    words = named(scaling)
    dropped = replace(spec, scaling=None, length=None)
    yield another("scaling-dropped", {"scaling": words}, lambda it: replace(it, scaling=None, length=None))
    if spec.attention_factor != 1:
        yield Suspect(
            ("attention-factor",),
            {"factor": 1.0, "declared": spec.attention_factor},
            built(lambda it: Turning(it, factor=1.0)),
        )
        yield Suspect(
            ("scaling-dropped",),
            {"scaling": f"{words}, whose attention factor is applied"},
            built(lambda it: Turning(replace(it, scaling=None, length=None), factor=it.attention_factor)),
        )
    twice = scaling(replace(spec.ladder, ratio=dropped.ladder.ratio), spec.length)
    for factor in {spec.attention_factor, twice.attention_factor}:
        yield Suspect(
            ("scaling-twice",),
            {"scaling": words},
            built(lambda it, factor=factor: Turning(it, rates=_again(it), factor=factor)),
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
    if isinstance(scaling, Yarn):

        def reversed_ramp(it: Rotary, factor: float) -> Turning:
            if it.scaling is None:
                return Turning(it)
            plain = np.array(replace(it, scaling=None, length=None).rates)
            return Turning(it, rates=plain + plain / scaling.factor - np.array(it.rates), factor=factor)

        for factor in {1.0, spec.attention_factor}:
            yield Suspect(("ramp-reversed",), {}, built(lambda it, factor=factor: reversed_ramp(it, factor)))
        for changed in ({"truncate": not scaling.truncate}, {"beta_fast": 32.0}, {"beta_slow": 1.0}):
            yield from _other_fields(scaling, changed)
    if isinstance(scaling, LongRope):
        here = spec.length is not None and spec.length > scaling.original
        used = {True: "short", False: "long"}[here]
        yield another(
            "lists-swapped",
            {"declared": "long" if here else "short", "used": used},
            lambda it: _with(it, replace(scaling, short=scaling.long, long=scaling.short)),
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
        if other != scaling and _does_something(spec, other):
            yield another(
                "another-scaling",
                told_apart(scaling, other),
                lambda it, other=other: _with(it, other),
            )


def _with(spec: Rotary, scaling: Any) -> Rotary:
    """Another scaling in place of a model's own; a model that has none keeps none."""
    return spec if spec.scaling is None else replace(spec, scaling=scaling)


def _again(spec: Rotary) -> np.ndarray:
    if spec.scaling is None:
        return np.array(spec.rates)
    plain = replace(spec, scaling=None, length=None).ladder
    return np.array(spec.scaling(replace(spec.ladder, ratio=plain.ratio), spec.length).rates)


def _does_something(spec: Rotary, scaling: Any) -> bool:
    """Whether a scaling changes the rates at this length: one that does not is none."""
    try:
        return replace(spec, scaling=scaling).rates != replace(spec, scaling=None, length=None).rates
    except ClockhandsError:
        return False


def _other_fields(scaling: Any, changed: Mapping[str, Any]) -> Iterator[Suspect]:
    other = replace(scaling, **changed)
    if other != scaling:
        words = told_apart(scaling, other)
        yield another("another-scaling", words, lambda it: _with(it, other))


def _with_scaling(code: str, parameters: Mapping[str, Any], scaling: Any, **changed: Any) -> Iterator[Suspect]:
    try:
        other = replace(scaling, **changed)
    except (ClockhandsError, TypeError):
        return
    yield another(code, parameters, lambda it: _with(it, other))


def told_apart(one: Any, other: Any) -> dict[str, Any]:
    """A declared scaling and another in words, with the fields in which they differ."""
    if type(one) is not type(other):
        return {"declared": named(one), "scaling": named(other)}
    apart = [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]

    def words(scaling: Any) -> str:
        return f"{type(scaling).__name__} with {', '.join(f'{name} {getattr(scaling, name)}' for name in apart)}"

    return {"declared": words(one), "scaling": words(other)}


def named(scaling: Any) -> str:
    """A scaling in words."""
    name = type(scaling).__name__
    factor = getattr(scaling, "factor", None)
    return f"{name}, factor {factor:g}" if isinstance(factor, int | float) else name


def _axes(spec: Rotary) -> Iterator[Suspect]:
    assert spec.axes is not None
    sections = tuple(spec.axes.count(axis) for axis in range(spec.number_of_axes))
    for words, made in (("sections one after another", chunked), ("sections that take turns", interleaved)):
        try:
            axes = made(sections)
        except ClockhandsError:
            continue
        if axes != spec.axes:
            declared = "sections that take turns" if "after" in words else "sections one after another"
            yield another(
                "other-axes-order",
                {"declared": declared, "used": words},
                lambda it, axes=axes: replace(it, axes=axes),
            )

    def first_of_all(at: np.ndarray, _: Call) -> np.ndarray:
        return np.repeat(at[..., :1], at.shape[-1], axis=-1)

    yield Suspect(
        ("axis-dropped",),
        {"which": "all coordinates but the first"},
        built(lambda it: Turning(it, places=first_of_all)),
    )
    for axis in range(1, spec.number_of_axes):

        def dropped(at: np.ndarray, _: Call, axis: int = axis) -> np.ndarray:
            at = at.copy()
            at[..., axis] = at[..., 0]
            return at

        yield Suspect(
            ("axis-dropped",),
            {"which": f"coordinate {axis}"},
            built(lambda it, dropped=dropped: Turning(it, places=dropped)),
        )


def told_by_fields(spec: Rotary, other: Rotary) -> tuple[str, dict[str, Any]]:
    """The fault that turns one spec into another, by the first field in which they differ."""
    if other.layout != spec.layout or other.blocks != spec.blocks:
        return "other-layout", {"declared": laid_out(spec), "used": laid_out(other)}
    if other.direction != spec.direction:
        return "other-direction", {"declared": spec.direction, "used": other.direction}
    if other.rotated != spec.rotated:
        return "other-rotated-width", {"declared": spec.rotated, "used": other.rotated}
    if other.part != spec.part:
        return "other-part", {"declared": spec.part, "used": other.part}
    if other.scaling != spec.scaling:
        if other.scaling is None:
            return "scaling-dropped", {"scaling": named(spec.scaling)}
        if spec.scaling is None:
            return "another-scaling", {"declared": "nothing", "scaling": named(other.scaling)}
        return "another-scaling", told_apart(spec.scaling, other.scaling)
    if other.base is not None and spec.base is not None and other.base != spec.base:
        return "another-base", {"base": other.base, "declared": spec.base}
    if isinstance(other.spacing, Geometric) and other.spacing.span == "closed":
        return "closed-span", {}
    return "another-scaling", {"declared": describe(spec), "scaling": describe(other)}
