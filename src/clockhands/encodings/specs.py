"""Specs: immutable values that define one position encoding completely, except its learned numbers.

A spec is hashable, so it can be a cache key or a static argument of ``jax.jit``. This module has the union of all spec
types, conversion to and from JSON, changing single fields, and a one-line description.
"""

import dataclasses
import itertools
import json
from fractions import Fraction
from typing import Any, cast

from clockhands.encodings import additive, biases, ladders, mixtures, rotary, scaling, scores
from clockhands.encodings.spec_fields import no_field
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.phrases import did_you_mean, shown

Spec = additive.AdditiveCode | rotary.Rotary | biases.BiasCode | mixtures.LayerMixture | scores.ScoreScale

SPECS = (*additive.CODES, rotary.Rotary, *biases.CODES, mixtures.LayerMixture)
"""The specs of position encodings."""

WRITTEN = (*SPECS, *scores.SCALES)
"""All specs: a score scale is used together with an encoding, and is written and described in the same way."""

# The parts of specs.
PARTS = (
    ladders.Geometric,
    ladders.EvenSteps,
    ladders.Explicit,
    ladders.Joined,
    ladders.Repeated,
    rotary.XPos,
    *scaling.SCALINGS,
)

_BY_NAME = {kind.__name__: kind for kind in (*WRITTEN, *PARTS)}


def to_dict(spec: Spec) -> dict[str, Any]:
    """A spec as plain JSON values: its class under ``type``, then every field.

    Raises:
        InvalidType: It is not a spec of this library.
    """
    _check_spec(spec)
    return _as_json_values(spec)


METHODS = ("embed", "add", "rotate", "bias", "scores")
"""The methods of an encoding of one's own, see `clockhands.encodings.protocols`."""


def is_own(encoding: object) -> bool:
    """Whether it is no spec, but an object with a method of the protocol: an encoding of one's own."""
    named = not isinstance(encoding, (*WRITTEN, type, str))
    return named and any(callable(getattr(encoding, name, None)) for name in METHODS)


def _check_spec(spec: object) -> None:
    if is_own(spec):
        raise InvalidType(
            f"{type(spec).__name__} is an encoding of your own, which has no JSON.",
            'Name it by its file, in commands as path/file.py:NAME, in a study as { python = "file.py:NAME" }.',
        )
    if not isinstance(spec, WRITTEN):
        raise InvalidType(
            f"Expected a spec, got {type(spec).__name__} {shown(spec)}.",
            f"Specs are {', '.join(kind.__name__ for kind in WRITTEN)}.",
        )


def from_dict(data: object) -> Spec:
    """The spec that `to_dict` made these values from.

    Raises:
        InvalidValue, InvalidType: The values are not a spec's; the message says which and why.
    """
    try:
        spec = _made(data, "the spec")
    except RecursionError:
        raise InvalidValue(
            "These values are nested too deeply to be a spec.", "Write the spec as to_json does."
        ) from None
    if not isinstance(spec, WRITTEN):
        raise InvalidValue(
            f"{type(spec).__name__} is a part of a spec, not a spec.",
            f"Specs are {', '.join(kind.__name__ for kind in WRITTEN)}.",
        )
    return spec


def to_json(spec: Spec) -> str:
    """A spec as one line of JSON; ``from_json`` gives an equal spec back.

    Raises:
        InvalidType: It is not a spec of this library.

    >>> to_json(additive.NoPosition(width=8))
    '{"type": "NoPosition", "width": 8}'
    """
    return json.dumps(to_dict(spec), allow_nan=False)


def from_json(text: str | bytes) -> Spec:
    """The spec that this JSON text describes.

    Raises:
        InvalidValue, InvalidType: The text is not JSON, or does not describe a spec; the message says which and why.

    >>> from_json('{"type": "NoPosition", "width": 8}')
    NoPosition(width=8)
    """
    if not isinstance(text, str | bytes):
        raise InvalidType(f"`text` must be JSON text, got {type(text).__name__}.", "Pass what to_json returned.")
    try:
        data = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except ClockhandsError:
        raise
    except ValueError as error:  # not JSON, not text, or a number of thousands of digits
        raise InvalidValue(
            f"A spec must be one JSON object, but this is not JSON: {error}.", "Pass what to_json returned."
        ) from None
    except RecursionError:
        raise InvalidValue("This JSON is nested too deeply to be a spec.", "Pass what to_json returned.") from None
    return from_dict(data)


def with_fields(spec: Spec, **fields: Any) -> Spec:
    """A copy of the spec with new values in some fields.

    The fields of its spacing (``base``, ``span``, ``multiplier``, …) can be given too. Where the spacing is joined of
    several parts, or layers have different codes, a field is changed in all of them, if it has one value in all.

    Raises:
        InvalidValue, InvalidType: A field does not exist, its value is not allowed, or the parts differ in it.

    >>> with_fields(additive.Sinusoidal(width=8), span="closed").rates[-1]
    0.0001
    """
    _check_spec(spec)
    if isinstance(spec, mixtures.LayerMixture):
        return _with_fields_of_codes(spec, fields)
    spacing = getattr(spec, "spacing", None)
    own = {field.name for field in _fields(spec) if field.init}
    inner = _reached(spacing)
    for name in fields:
        if name not in own | inner:
            raise InvalidValue(*no_field(type(spec), name, own | inner))
    if "head_width" in fields and "rotated" not in fields and getattr(spec, "rotated", None) == spec.head_width:  # type: ignore[union-attr]
        fields["rotated"] = fields["head_width"]  # all channels were rotated, so all of the new width are
    if isinstance(spec, rotary.Rotary) and spec.axes is not None and "axes" not in fields:
        fields = {**_of_axes(spec, fields.get("rotated", spec.rotated)), **fields}
    spaced = {name: fields.pop(name) for name in tuple(fields) if name not in own}
    if spaced:
        changed = fields.get("spacing", spacing)
        if not spaced.keys() <= _reached(changed):
            raise InvalidValue(
                f"{', '.join(sorted(spaced))} cannot be changed together with a new spacing, got {shown(changed)}.",
                "Pass these values to the new spacing when you make it.",
            )
        fields["spacing"] = _spaced(changed, spaced)
    return dataclasses.replace(spec, **fields)  # type: ignore[type-var]


def _of_axes(spec: rotary.Rotary, rotated: Any) -> dict[str, Any]:
    """The axes of the pairs, and what follows them, of a code with another number of RoPE dimensions.

    Each axis keeps its share of the pairs, and the arrangement stays: one axis after another, alternating, or
    interleaved.
    """
    assert spec.axes is not None
    if rotated == spec.rotated or not isinstance(rotated, int) or isinstance(rotated, bool) or rotated < 2:
        return {}
    own, share = spec.axes, Fraction(rotated, spec.rotated)
    sections = [own.count(axis) for axis in range(spec.number_of_axes)]
    runs = [(axis, len(list(run))) for axis, run in itertools.groupby(own)]

    def sized(pairs: int) -> int:
        if (pairs * share).denominator != 1:
            raise InvalidValue(
                f"The axes of this code have {sections} pairs, which cannot be {rotated // 2} in the same shares.",
                "Give axes=… too, for example rotary.chunked(sections).",
            )
        return int(pairs * share)

    if len(runs) == spec.number_of_axes:
        axes = tuple(axis for axis, pairs in runs for _ in range(sized(pairs)))
    elif own == rotary.alternating(len(own), spec.number_of_axes):
        axes = rotary.alternating(rotated // 2, spec.number_of_axes)
    elif own == rotary.interleaved(sections, len(own)):
        axes = rotary.interleaved(list(map(sized, sections)), rotated // 2)
    else:
        raise InvalidValue(
            f"The axes of this code are in no usual order, so they are not known for {rotated // 2} pairs.",
            "Give axes=… too, with the axis of each pair.",
        )
    fields: dict[str, Any] = {"axes": axes, "blocks": tuple(map(sized, spec.blocks))}
    if isinstance(spec.spacing, ladders.Joined):
        spans = [part.span for _, part in spec.spacing.parts if isinstance(part, ladders.Geometric)]
        if any(not isinstance(span, str) for span in spans):
            raise InvalidValue(
                f"The frequencies of this code have the spans {', '.join(map(str, spans))}, which hold for "
                f"{spec.rotated} dimensions only.",
                "Give spacing=… and axes=… too.",
            )
        parts = tuple((sized(pairs), spacing) for pairs, spacing in spec.spacing.parts)
        fields["spacing"] = dataclasses.replace(spec.spacing, parts=parts)
    return fields


def _reached(spacing: Any) -> set[str]:
    """The fields of a spacing that can be changed by name: those of the spacing, and those that all its parts have."""
    own = {field.name for field in _fields(spacing)} if dataclasses.is_dataclass(spacing) else set()
    inner = _parts_of(spacing)
    return own | set.intersection(*map(_reached, inner)) if inner else own


def _parts_of(spacing: Any) -> tuple[Any, ...]:
    if isinstance(spacing, ladders.Joined):
        return tuple(part for _, part in spacing.parts)
    return (spacing.spacing,) if isinstance(spacing, ladders.Repeated) else ()


def _spaced(spacing: Any, fields: dict[str, Any]) -> Any:
    """The spacing with new values in some of its changeable fields (see `_reached`)."""
    own = {field.name for field in _fields(spacing)}
    outer = {name: value for name, value in fields.items() if name in own}
    inner = {name: value for name, value in fields.items() if name not in own}
    if inner:
        parts = _parts_of(spacing)
        _refuse_different(inner, parts, "parts of this spacing", "Give the whole spacing, Joined(…).")
        changed = [_spaced(part, inner) for part in parts]
        if isinstance(spacing, ladders.Joined):
            pairs = (own for own, _ in spacing.parts)
            outer.setdefault("parts", tuple(zip(pairs, changed, strict=True)))
        else:
            outer.setdefault("spacing", changed[0])
    return dataclasses.replace(spacing, **outer)


def _with_fields_of_codes(spec: mixtures.LayerMixture, fields: dict[str, Any]) -> mixtures.LayerMixture:
    """A layer mixture with new values in its fields, or in a field of all its codes."""
    own = {field.name for field in _fields(spec)}
    outer = {name: value for name, value in fields.items() if name in own}
    inner = {name: value for name, value in fields.items() if name not in own}
    if inner:
        given = mixtures.LayerMixture(**{"codes": spec.codes, "pattern": spec.pattern, **outer})
        codes = [code for code in given.codes if code is not None]
        changed = [with_fields(code, **inner) for code in codes]  # raises where a code does not have the field
        _refuse_different(inner, codes, "codes of these layers", "Give all of them, codes=(…).")
        left = iter(changed)
        outer["codes"] = tuple(None if code is None else next(left) for code in given.codes)
    return dataclasses.replace(spec, **outer)


def _refuse_different(fields: dict[str, Any], parts: Any, words: str, hint: str) -> None:
    for name in fields:
        held = [_held(part, name) for part in parts]
        if any(value != held[0] for value in held):
            raise InvalidValue(
                f"The {words} have different values of {name}: {', '.join(map(shown, dict.fromkeys(held)))}.", hint
            )


def _held(part: Any, name: str) -> Any:
    """The value of a changeable field (see `_reached`)."""
    if any(field.name == name for field in _fields(part)):
        return getattr(part, name)
    inner = getattr(part, "spacing", None)
    return _held(inner if inner is not None else _parts_of(part)[0], name)


def describe(spec: Spec) -> str:
    """One line of text about a spec.

    >>> describe(additive.Sinusoidal(width=512))
    'sinusoidal, width 512, interleaved, sin-cos, geometric (base 10000, open)'
    >>> describe(rotary.Rotary(head_width=64, base=500000.0))
    'RoPE, half-split, 64 of 64 dimensions, geometric (base 500000, open)'
    """
    _check_spec(spec)
    if isinstance(spec, additive.Sinusoidal):
        words = [
            f"sinusoidal, width {spec.width}",
            _layout_words(spec.layout),
            spec.order,
            _spacing_words(spec.spacing),
        ]
        words += [f"first token at {spec.first}"] if spec.first else []
        words += [f"standardised over {spec.standardised} rows"] if spec.standardised is not None else []
        words += [f"times {spec.scale:g}"] if spec.scale != 1 else []
        words += ["times a learned scale"] if spec.scaled else []
        return ", ".join(words)
    if isinstance(spec, additive.AxialSinusoidal):
        shares = "" if len(set(spec.shares)) == 1 else f" sharing {':'.join(map(str, spec.shares))}"
        words = [f"sinusoidal, width {spec.width}", f"{spec.number_of_axes} axes{shares}", spec.channels, spec.order]
        each = spec.spacing if isinstance(spec.spacing, tuple) else (spec.spacing,)
        words += [" then ".join(map(_spacing_words, each))]
        words += [f"coordinates {spec.raw.replace('-', ' ')}"] if spec.raw is not None else []
        words += [f"times {spec.scale:g}"] if spec.scale != 1 else []
        return ", ".join(words)
    if isinstance(spec, rotary.Rotary):
        words = [
            "RoPE",
            _layout_words(spec.layout),
            f"{spec.rotated} of {spec.head_width} dimensions",
            _spacing_words(spec.spacing),
        ]
        words += [_part_words(spec.scaling)] if spec.scaling is not None else []
        words += ["the last dimensions"] if spec.start else []
        words += [f"{spec.number_of_axes} axes"] if spec.axes is not None else []
        words += [f"a separate layout in each of {len(spec.blocks)} blocks"] if spec.blocks else []
        words += ["rotating backward"] if spec.direction == "backward" else []
        words += ["reordered to half-split"] if spec.reordered else []
        words += [_part_words(spec.xpos)] if spec.xpos is not None else []
        return ", ".join(words)
    if isinstance(spec, mixtures.LayerMixture):
        period = len(spec.pattern)
        each = (
            f"{', '.join(map(str, spec.layers(number)))} of every {period} layers: "
            + ("no position" if code is None else describe(code))
            for number, code in enumerate(spec.codes)
        )
        return "; ".join(each)
    if isinstance(spec, scores.ScoreScale):
        return f"scores {spec.words}"
    fields = ((field.name.replace("_", " "), getattr(spec, field.name)) for field in _fields(spec))
    return ", ".join([type(spec).__name__, *(f"{name} {value}" for name, value in fields if value is not None)])


def _layout_words(layout: str) -> str:
    return "half-split" if layout == "halves" else layout


def _spacing_words(spacing: ladders.Spacing) -> str:
    if isinstance(spacing, ladders.Geometric):
        span = spacing.span if isinstance(spacing.span, str) else f"span {spacing.span:g}"
        times = f", times {spacing.multiplier:g}" if spacing.multiplier != 1 else ""
        if spacing.base < 1:
            rising = f"geometric (base {1 / spacing.base:g}, {span}, from low to high, from {spacing.multiplier:g} on)"
            return rising.replace("e+0", "e")
        return f"geometric (base {spacing.base:g}, {span}{times})".replace("e+0", "e")
    if isinstance(spacing, ladders.Explicit):
        return f"{len(spacing.rates)} frequencies given"
    if isinstance(spacing, ladders.Joined):
        each = [_spacing_words(part) for _, part in spacing.parts]
        if len(set(each)) == 1:
            words = f"{' + '.join(str(pairs) for pairs, _ in spacing.parts)} pairs, each {each[0]}"
        else:
            words = " + ".join(f"{pairs} pairs {part}" for (pairs, _), part in zip(spacing.parts, each, strict=True))
        return f"{words}, alternating" if spacing.in_turns else words
    if isinstance(spacing, ladders.Repeated):
        return f"{_spacing_words(spacing.spacing)}, each frequency {spacing.times} times"
    return _part_words(spacing)


def _part_words(part: object) -> str:
    if not isinstance(part, PARTS):  # a scaling defined by the caller
        return shown(part)
    fields = ", ".join(
        f"{field.name} {getattr(part, field.name):g}"
        for field in _fields(part)
        if isinstance(getattr(part, field.name), int | float) and not isinstance(getattr(part, field.name), bool)
    )
    return f"{type(part).__name__} ({fields})"


def _fields(value: object) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cast(Any, value))


def _as_json_values(value: Any) -> Any:
    if isinstance(value, tuple(_BY_NAME.values())):
        fields = {field.name: _as_json_values(getattr(value, field.name)) for field in _fields(value) if field.init}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [_as_json_values(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidType(
        f"{type(value).__name__} cannot be written as JSON in a spec.",
        f"Use one of {', '.join(kind.__name__ for kind in PARTS)}.",
    )


def _made(data: object, where: str) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise InvalidValue(
            f'Expected {where} as an object with a "type", got {shown(data)}.', "Write the spec as to_json does."
        )
    kind = _BY_NAME.get(data["type"])
    if kind is None:
        raise InvalidValue(
            f"There is no spec of type {shown(data['type'])}.",
            did_you_mean(data["type"], _BY_NAME, f"Types are {', '.join(_BY_NAME)}."),
        )
    known = {field.name for field in _fields(kind) if field.init}
    fields = {name: value for name, value in data.items() if name != "type"}
    for name in fields:
        if name not in known:
            raise InvalidValue(*no_field(kind, name, known))
    fields = {name: _value(value, name) for name, value in fields.items()}
    try:
        return kind(**fields)
    except TypeError as error:
        if isinstance(error, InvalidType):
            raise
        raise InvalidValue(
            f"A {kind.__name__} cannot be made from these fields: {error}.", "Give the missing ones."
        ) from None


def _value(value: object, where: str) -> Any:
    if isinstance(value, dict):
        return _made(value, where)
    return tuple(_value(item, where) for item in value) if isinstance(value, list) else value


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValue(f"The key {shown(twice)} appears twice in one object.", "Keep one of them.")
    return data


def _no_constant(name: str) -> float:
    raise InvalidValue(f"A spec holds finite numbers only, got {name}.", "Replace it with the number that is meant.")
