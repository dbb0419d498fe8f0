"""Layers and their encodings in words: where they are, what they are, and each value with the fields of its source."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.auditing.main_properties import MainProperties
from clockhands.configs.resolved import COMPUTED, SECOND, LayerEncoding
from clockhands.encodings.layouts import LAYOUTS
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scores import score_scale
from clockhands.phrases import listed, spoken
from clockhands.runtimes.telling import layers_in_words, part_in_words

_PLURAL = {"sin": "sines", "cos": "cosines", "-sin": "sines with a minus", "-cos": "cosines with a minus"}


def part_of_layers(code: LayerEncoding | MainProperties) -> str:
    """The part in words: by the object of the config if several are alike; empty for the main text.

    >>> part_of_layers(LayerEncoding("audio", "0-3", "rotary", component="token2wav_config.dit_config"))
    'token2wav dit'
    >>> part_of_layers(LayerEncoding("mtp", "4", "rotary", component="talker_config"))
    'talker multi-token prediction'
    """
    named = re.sub(r"_(config|cfg)(?=\.|$)", "", code.component or "").replace(".", " ").replace("_", " ")
    kind = "" if code.part in ("text", "other") else part_in_words(code.part)
    return " ".join(filter(None, (named, kind if not named or code.part in SECOND else "")))


def label_of(code: LayerEncoding) -> str:
    """Part and layers, short enough for a column."""
    part = part_of_layers(code)
    where = "input" if code.layers == "input" else code.layers and layers_in_words(code.layers, most=16)
    return " ".join(filter(None, (part, where))) or "encoding"


LIKE_LLAMA = "if its code is like Llama's"
_PLACEMENTS = {
    "interpolated": "interpolated to the size of the image",
    "repeated": "repeated over the image",
    "per axis": "as many for columns as for rows, of which two are added",
    "in each tile": "the same in each tile",
    "per tile": "one for each tile of each arrangement of tiles",
    "per patch of each tile": "one for each patch of each tile of each arrangement of tiles",
}


def details_of(code: LayerEncoding) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What a code has beside the usual fields: name, value and the fields whose sources are shown with it.

    >>> [says for _, says, _ in details_of(LayerEncoding("vision", "0-3", "rotary", window_area=(8, 8)))]
    ['windows of 8 x 8 patches']
    """
    if code.window_area is not None:
        yield "window", f"windows of {code.window_area[0]} x {code.window_area[1]} patches", ("window_area",)
    if code.rotating_heads is not None:
        heads = "head rotates" if code.rotating_heads == 1 else f"{code.rotating_heads} heads rotate"
        yield "heads", f"only the first {heads}", ("kind",)
    if code.coordinates is not None:
        factor, first, last = (spoken(code.coordinates[name]) for name in ("factor", "first", "last"))
        yield "positions", f"{factor} times coordinates from {first} to {last} over the image, not tokens", ("kind",)
    if code.positions_per_second is not None:
        yield "time", f"{code.positions_per_second} positions per second of audio or video", ("positions_per_second",)
    if code.placement is not None:
        yield "placement", _PLACEMENTS[code.placement], ("kind",)
    if code.relative:
        yield "distances", relative_in_words(code.relative), ("heads", "buckets", "max_distance", "terms")


_TERMS = {"c2p": "content-to-position", "p2c": "position-to-content"}


def relative_in_words(numbers: Mapping[str, Any]) -> str:
    """The numbers of a code of relative distances.

    >>> relative_in_words({"buckets": 256, "max_distance": 512, "rows": 512, "terms": ["c2p", "p2c"]})
    '256 buckets, distances up to 512, 512 rows, terms content-to-position and position-to-content'
    """
    words = [f"{spoken(numbers['heads'])} heads"] if numbers.get("heads") else []
    words += [f"{spoken(numbers['buckets'])} buckets"] if numbers.get("buckets") else []
    words += [f"distances up to {spoken(numbers['max_distance'])}"] if numbers.get("max_distance") else []
    words += [f"{spoken(numbers['rows'])} rows"] if numbers.get("rows") else []
    if "terms" in numbers:
        terms = [_TERMS.get(term) or term for term in map(str, numbers["terms"])]
        words.append(f"terms {listed(terms)}" if terms else "no terms of positions")
    return ", ".join(words)


def in_short(code: LayerEncoding) -> str:
    """One encoding in a line.

    >>> in_short(LayerEncoding("text", "0-3", "rotary", layout="halves", width=2, rotated=2, base=1e4, rates=(1.0,)))
    'RoPE, half-split, 2 of 2 dimensions, base 10,000'
    """
    if code.kind == "rotary":
        words = ["RoPE", LAYOUTS.get(code.layout or "", "layout not known")]
        like = f" {LIKE_LLAMA}" if "rotated" in code.assumed else ""
        words += (
            [f"{spoken(code.rotated)} of {spoken(code.width)} dimensions{like}"] if code.rotated and code.width else []
        )
        words += [] if code.sections is None else [f"sections {sections_in_words(code)}"]
        words += [] if code.base is None else [f"base {spoken(code.base)}"]
        words += [] if code.rates else ["frequencies cannot be computed"]
        words += [scaling_in_words(code.scaling)] if code.scaling else []
    else:
        words = [title_of(code).rpartition(": ")[2]]
        words += [f"width {spoken(code.width)}"] if code.width is not None and code.kind != "none" else []
        words += [] if code.rows is None else [f"{spoken(code.rows)} rows"]
        if code.rows is not None and code.usable_length not in (None, code.rows):
            words.append(f"{spoken(code.usable_length)} usable positions")
    if code.window is not None:
        words.append(f"sliding window, {code.seen}" if code.two_sided else f"sliding window {spoken(code.window)}")
    words += [] if code.chunk is None else [f"chunks of {spoken(code.chunk)}"]
    words += [f"q k times {spoken(code.softmax_scale)}"] if unusual_scale(code) else []
    words += [] if code.score_scale is None else [f"scores {code.score_scale.words}"]
    words += [says for _, says, _ in details_of(code)]
    return ", ".join(words)


def places_of(code: LayerEncoding, *fields: str) -> list[str]:
    """The sources of some fields of a code, without repetitions."""
    # What is computed from the lines above has its sources there.
    told = (code.source.get(field, "") for field in fields)
    places = list(dict.fromkeys(source for source in told if source and not source.startswith(COMPUTED)))
    return [place for place in places if not any(place in other for other in places if other != place)]


def together(source: str) -> str:
    """Join several keys of one object of one file.

    >>> together("config.json:rope_scaling.type, config.json:rope_scaling.factor")
    'config.json:rope_scaling.{type, factor}'
    >>> together("config.json:head_dim, class default of llama")
    'config.json:head_dim, class default of llama'
    """
    parts = [part.rpartition(".") for part in source.split(", ")]
    place = parts[0][0]
    if len(parts) < 2 or ":" not in place or any(part[0] != place or " " in part[2] for part in parts):
        return source
    return f"{place}.{{{', '.join(part[2] for part in parts)}}}"


_KINDS = {"rotary": "RoPE", "none": "no position encoding", "": "an encoding that is not recognised"}


def title_of(code: LayerEncoding, most: int | None = None) -> str:
    """The layers and their encoding: `layers 0-29: RoPE`; with ``most``, as `layers_in_words` shortens a long list."""
    part = part_of_layers(code)
    where = "added to the input" if code.layers == "input" else code.layers and layers_in_words(code.layers, most)
    kind = code.kind or ("" if code.spec is None else type(code.spec).__name__)
    kind = _KINDS.get(kind, kind)
    place = ", ".join(filter(None, (part, where)))
    return f"{place}: {kind}" if place else kind


def rows_of(code: LayerEncoding) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The lines of one code: name, value and the fields whose sources are shown with it."""
    if code.kind == "none":
        yield from _window(code)
        return
    if code.layout is not None:
        yield "layout", layout_in_words(code), ("layout",)
    elif code.kind == "rotary":
        yield "layout", "not known: only the model's code says it", ()
    if code.kind == "rotary":
        turned = f"{code.rotated} of {code.width} per head" if code.rotated and code.width else "not known"
        turned += f", {LIKE_LLAMA}" if "rotated" in code.assumed and code.rotated else ""
        yield "RoPE dims", turned, ("rotated", "width")
        if code.sections is not None:
            yield "sections", sections_in_words(code), ("axes",)
    elif code.width is not None:
        yield "width", spoken(code.width), ("width",)
    if code.base is not None:
        yield "base", spoken(code.base), ("base",)
    if code.rates and code.coordinates is not None:
        ends = (spoken(code.coordinates["factor"] * code.rates[place]) for place in (0, -1))
        yield "frequencies", f"{' to '.join(ends)} rad per unit of the coordinates, {len(code.rates)} pairs", ("rates",)
    elif code.rates:
        yield "frequencies", rates_in_words(code.rates), ("rates",)
        yield "wavelengths", wavelengths_in_words(code.rates), ()
    elif code.kind == "rotary":
        yield "frequencies", "cannot be computed", ()
    if code.kind == "rotary":
        yield "scaling", scaling_in_words(code.scaling), ("scaling",)
        if code.attention_factor is not None:
            yield "attention", f"factor {spoken(code.attention_factor)} on cos and sin", ("attention_factor",)
    if code.rows is not None:
        yield "rows", spoken(code.rows), ("rows",)
    if code.offset is not None:
        yield "offset", f"position 0 is row {spoken(code.offset)}", ("offset",)
    if code.rows is not None and code.usable_length not in (None, code.rows):
        yield "usable", f"{spoken(code.usable_length)} positions", ()
    yield from _window(code)


def _window(code: LayerEncoding) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if code.window is not None:
        yield "window", code.seen, ("window",)
    if code.chunk is not None:
        yield "chunk", code.seen, ("chunk",)
    if unusual_scale(code) and code.width is not None:
        usual = f"where 1 / sqrt(width of a head) is {spoken(code.width**-0.5)}"
        yield "softmax", f"q k times {spoken(code.softmax_scale)}, {usual}", ("softmax_scale",)
    if code.score_scale is not None:
        yield "scores", score_scale_in_words(code), ("score_scale",)
    yield from details_of(code)


def unusual_scale(code: LayerEncoding) -> bool:
    """Whether the scale of the softmax is known not to be 1 / sqrt(width of a head)."""
    return code.softmax_scale is not None and bool(code.width) and abs(code.softmax_scale**2 * code.width - 1) > 1e-6


def score_scale_in_words(code: LayerEncoding) -> str:
    """The factor on scores at position ``p``, and its value at the last position.

    >>> from clockhands.encodings.scores import FloorLogScale
    >>> score_scale_in_words(LayerEncoding("text", "3", "none", score_scale=FloorLogScale(8192), usable_length=32768))
    'multiplied by 1 + 0.1 ln(1 + floor(p / 8,192)) at position p: grows from position 8,192, 1.13863 at 32,767'
    """
    scale = code.score_scale
    if scale is None:
        return "not scaled"
    if scale.grows_from is None:
        return scale.words
    last = None if code.usable_length is None else code.usable_length - 1
    end = (
        ""
        if last is None or last < scale.grows_from
        else f", {spoken(float(score_scale(scale, [last])[0]))} at {last:,}"
    )
    return f"{scale.words}: grows from position {scale.grows_from:,}{end}"


def layout_in_words(code: LayerEncoding) -> str:
    """Which channels form a pair, as text.

    >>> layout_in_words(LayerEncoding("text", "0-3", "rotary", layout="halves", rotated=64))
    'half-split: pairs (i, i+32)'
    >>> from clockhands.encodings.presets import preset
    >>> layout_in_words(LayerEncoding("other", "input", "sinusoidal", spec=preset("edm2"), layout="halves"))
    'all cosines'
    """
    first, second = _waves(code.order or "sin-cos")
    match code.kind, code.layout:
        case "rotary", "interleaved":
            return "interleaved: pairs (2i, 2i+1)"
        case "rotary", "halves":
            return f"half-split: pairs (i, i+{_partner(code)})"
        case "sinusoidal", _ if not second:  # one wave for each channel, each with its own phase
            return f"all {_PLURAL[first]}"
        case "sinusoidal", "interleaved":
            return f"interleaved: {first}, {second}, {first}, ..."
        case "sinusoidal", "halves":
            return f"half-split: all {_PLURAL[first]}, all {_PLURAL[second]}"
        case _:
            return str(code.layout)


def _partner(code: LayerEncoding) -> int | str:
    """How far a dimension is from its partner: half of what its ladder is laid over, of which a part may not rotate.

    >>> from clockhands.encodings.rotary import Rotary
    >>> from clockhands.encodings.scaling import Proportional
    >>> code = Rotary(512, scaling=Proportional(0.25))
    >>> _partner(LayerEncoding("text", "5", "rotary", code, layout="halves", rotated=128))
    256
    """
    if isinstance(code.spec, Rotary) and not code.spec.blocks:
        return code.spec.rotated // 2
    return code.rotated // 2 if code.rotated else "half"


def _waves(order: str) -> tuple[str, str]:
    """The two functions of a pair, from the name of their order.

    >>> _waves("cos-sin"), _waves("-sin-cos"), _waves("cos--sin")
    (('cos', 'sin'), ('-sin', 'cos'), ('cos', '-sin'))
    """
    sign = "-" if order.startswith("-") else ""
    first, _, second = order.removeprefix("-").partition("-")
    return sign + first, second


def sections_in_words(code: LayerEncoding) -> str:
    """How many pairs each axis has, as text; empty for one axis.

    >>> from clockhands.encodings.rotary import Rotary, chunked
    >>> sections_in_words(LayerEncoding("text", "0-3", "rotary", Rotary(128, axes=chunked([16, 24, 24]))))
    'temporal 16, height 24, width 24 pairs, consecutive'
    """
    found = code.sections
    if found is None:
        return ""
    each = ", ".join(f"{axis} {pairs}" for axis, pairs in zip(found["axes"], found["pairs"], strict=True))
    return f"{each} pairs, {found['order']}"


def rates_in_words(rates: tuple[float, ...]) -> str:
    """The first and the last frequency, as text.

    >>> rates_in_words((1.0, 0.1, 0.01))
    '1 to 0.01 rad/token, 3 pairs'
    """
    return f"{spoken(rates[0])} to {spoken(rates[-1])} rad/token, {len(rates)} pair{'s' if len(rates) > 1 else ''}"


def wavelengths_in_words(rates: tuple[float, ...]) -> str:
    """The wavelengths of the fastest and the slowest pair.

    >>> wavelengths_in_words((1.0, 0.01)), wavelengths_in_words((1.0, 0.0))
    ('6.28319 to 628.319 tokens', '6.28319 tokens; the last pair does not rotate')
    """
    first = spoken(2 * math.pi / rates[0]) if rates[0] else "infinite"
    if not rates[-1]:
        return f"{first} tokens; the last pair does not rotate"
    return f"{first} to {spoken(2 * math.pi / rates[-1])} tokens"


def scaling_in_words(scaling: Mapping[str, Any] | None) -> str:
    """The scaling, its factor and its original length, as text.

    >>> scaling_in_words({"type": "yarn", "factor": 4.0, "original": 32768}), scaling_in_words(None)
    ('yarn, factor 4, original length 32,768', 'none')
    """
    if not scaling:
        return "none"
    words = [str(scaling.get("type"))]
    if scaling.get("factor") is not None:
        words.append(f"factor {spoken(scaling['factor'])}")
    if scaling.get("original") is not None:
        words.append(f"original length {spoken(scaling['original'])}")
    return ", ".join(words)


LISTED = 40
"""How many characters of a list of layers a heading has, where the whole list stands elsewhere."""


def where_of(one: MainProperties, most: int | None = None) -> str:
    """The layers as text, as in `layers_in_words`; empty if they are all layers."""
    part = part_of_layers(one)
    layers = "" if one.layers in (None, "input") else layers_in_words(one.layers, most)
    return ", ".join(filter(None, (part, layers)))
