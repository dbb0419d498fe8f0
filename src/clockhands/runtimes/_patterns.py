"""Common misreadings of a config by many programs: what each pattern makes of the encodings that the file declares.

A pattern is not a program. The runtimes and releases known to follow one, and the thread in which that was reported,
are in ``misread.json``. A pattern that changes nothing in a file does not apply to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clockhands.configs.model_types import ModelType
from clockhands.configs.resolved import INDEXER, SECOND, TEXT, LayerEncoding
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Linear, LongRope, Proportional, Scaling, Yarn, yarn_magnitude
from clockhands.encodings.scores import ConstantScale, FloorLogScale
from clockhands.errors import ClockhandsError
from clockhands.runtimes._windows import with_sections, with_window
from clockhands.runtimes.views import ORIGINAL, Undescribed, View

DEFAULT_BASE = 10_000.0
"""What ``getattr(config, "rope_theta", 10000.0)`` gives where the key moved."""

_BASE, _SHARE = "rope_theta", "partial_rotary_factor"
_BASES = (_BASE, "rope_local_base_freq", "local_rope_theta", "global_rope_theta", "rotary_emb_base")
_MOST_LAYERS = 10_000
_ROUNDING = 1e-6  # of a number of channels that was computed from a share
# Parts of which a pattern changes the encodings: towers for images and sound have configs of their own.
_CHANGED = (*TEXT, *SECOND)
_ONE_KIND = "The file has one base and one scaling for all layers."

Codes = Sequence[LayerEncoding]


@dataclass(frozen=True)
class DeclaredModel:
    """What patterns ask of a model besides its encodings.

    Attributes:
        known: The type of its text; None for one that is not in the table.
        context: The declared context length.
        scales: Whether its file names a scaling.
    """

    known: ModelType | None
    context: int | None
    scales: bool

    @property
    def reads_share(self) -> bool:
        """Whether a share of each head rotates if the file says so."""
        return self.known is None or "share" in self.known.reads


@dataclass(frozen=True)
class Pattern:
    """One pattern of misreading.

    Attributes:
        change: What it makes of the encodings of a model; None where other keys of the file are read.
        at: The length at which the result is compared: ``original`` or ``context``; by default the asked length.
        reads: How the part of a config is changed so that the other keys are read.
    """

    change: Callable[[Codes, DeclaredModel], Iterator[LayerEncoding]] | None = None
    at: str | None = None
    reads: Callable[[View], None] | None = None

    def changed(
        self, codes: tuple[LayerEncoding, ...], model: DeclaredModel
    ) -> tuple[tuple[LayerEncoding, ...], tuple[LayerEncoding, ...]]:
        """The encodings at the length at which they are compared, and as the pattern computes them at that length.

        The second is the same tuple where it changes none.
        """
        assert self.change is not None
        if self.at == "original":
            codes = tuple(code if (lists := _lists(code)) is None else code.at_length(lists.original) for code in codes)
        elif self.at is not None and model.context is not None:
            codes = tuple(code.at_length(model.context) for code in codes)
        made = tuple(self.change(codes, model))
        return codes, codes if all(one is other for one, other in zip(made, codes, strict=True)) else made


def of_each(
    change: Callable[[LayerEncoding, DeclaredModel], LayerEncoding],
    needs: Callable[[Codes, DeclaredModel], None] | None = None,
) -> Pattern:
    """The pattern that changes each rotary encoding of a text by itself.

    Args:
        change: What it makes of one encoding.
        needs: Raises `Undescribed` for a model that it cannot change.
    """

    def changed(codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
        if needs is not None:
            needs(codes, model)
        return (change(code, model) if _rotates(code) else code for code in codes)

    return Pattern(changed)


def _rotates(code: LayerEncoding) -> bool:
    return code.kind == "rotary" and code.part in _CHANGED


def _of_text(code: LayerEncoding) -> bool:
    return code.part in TEXT


# What is put in place of a field of the rotation.


def _rotating(code: LayerEncoding, declared: Mapping[str, Any] | None, **fields: Any) -> LayerEncoding:
    """The encoding with other fields of its rotation, and with this as its declared scaling."""
    if code.rotation is None:
        return code
    try:
        rotation = replace(code.rotation, **fields)
    except ClockhandsError:  # such a file has no frequencies
        return _without_frequencies(code, declared)
    base = code.base if rotation.base is None else rotation.base
    unknown = code.rates is None  # because the declared scaling is not known
    if unknown and fields.get("scaling", ...) is not None:
        return replace(code, rotation=rotation, base=base)
    spec = rotation if code.spec is not None or (unknown and code.layout is not None) else None
    rates, factor = rotation.rates, rotation.attention_factor
    made = replace(code, spec=spec, rotation=rotation, rates=rates, attention_factor=factor)
    return replace(made, base=base, scaling=declared)


def _without_frequencies(code: LayerEncoding, declared: Mapping[str, Any] | None) -> LayerEncoding:
    return replace(code, spec=None, rotation=None, rates=None, attention_factor=None, scaling=declared)


def _rescaled(code: LayerEncoding, declared: Mapping[str, Any] | None, **fields: Any) -> LayerEncoding:
    """The encoding with other fields of its scaling."""
    scaling: Any = None if code.rotation is None else code.rotation.scaling
    try:
        return _rotating(code, declared, scaling=replace(scaling, **fields))
    except ClockhandsError:
        return _without_frequencies(code, declared)


def _unscaled(
    code: LayerEncoding, scaling: Scaling | None, model: DeclaredModel, declared: Mapping[str, Any] | None = None
) -> LayerEncoding:
    """The encoding without its scaling, or with one whose factor divides all frequencies in its place."""
    fields: dict[str, Any] = {"scaling": scaling, "length": None}
    if _proportional(code):
        rotated = code.rotated if model.reads_share else code.width
        code, fields["rotated"] = replace(code, rotated=rotated), rotated
    return _rotating(code, declared, **fields)


def _with_base(code: LayerEncoding, base: float) -> LayerEncoding:
    spacing = None if code.rotation is None else code.rotation.spacing
    if not isinstance(spacing, Geometric):
        return code
    return _rotating(code, code.scaling, spacing=replace(spacing, base=base))


def _with_share(code: LayerEncoding, share: float) -> LayerEncoding:
    """The encoding with this share of each head rotated."""
    rotation, width = code.rotation, code.width
    if rotation is None or width is None:
        return code
    turned = int(width * share + _ROUNDING)
    fields: dict[str, Any] = {}
    if isinstance(rotation.scaling, Proportional):
        turned, fields = 2 * int(share * width / 2 + _ROUNDING), {"scaling": replace(rotation.scaling, fraction=share)}
    elif turned != rotation.rotated:
        # Sections of several axes are for another number of pairs.
        fields = {"rotated": turned, "axes": None}
    if isinstance(rotation.spacing, Geometric):
        fields["spacing"] = Geometric(rotation.spacing.base)
    made = _rotating(replace(code, rotated=turned), code.scaling, **fields)
    return made if rotation.axes is None or not fields.get("rotated") else replace(made, spec=None)


def _share(code: LayerEncoding) -> float | None:
    """The rotated share of a head, if the file can change it; None where a number of dimensions is rotated."""
    place, whole = (code.source.get(name, "") for name in ("rotated", "width"))
    if not code.rotated or not code.width or _of_class(place):
        return None
    shared = " x " in place or place.startswith(f"{whole}, ") or _proportional(code)
    return code.rotated / code.width if shared else None


def _of_class(place: str) -> bool:
    """Whether a value follows from the type of the model alone, whatever the file says."""
    return place.startswith("architecture of")


def _a_scaling(_: Codes, model: DeclaredModel) -> None:
    if not model.scales:
        raise Undescribed("The file declares no scaling.")


def _a_factor(codes: Codes, _: DeclaredModel) -> None:
    if not any(_rotates(code) and _in_block(code, "scaling", ".factor") for code in codes):
        raise _lacking(codes, "No scaling of the file has factor.")


def _a_yarn(codes: Codes, _: DeclaredModel) -> None:
    if not any(_rotates(code) and code.rotation and isinstance(code.rotation.scaling, Yarn) for code in codes):
        raise _lacking(codes, "The file has no YaRN.")


def _a_proportional(codes: Codes, _: DeclaredModel) -> None:
    if not any(map(_proportional, codes)):
        raise _lacking(codes, "The file has no proportional rotation.")


def _by_block(code: LayerEncoding, field: str) -> list[bool]:
    """For each source of a field, whether it is in a RoPE block of the file."""
    return [f"{OLD}." in place or f"{NEW}." in place for place in code.source.get(field, "").split(", ")]


def _in_block(code: LayerEncoding, field: str, key: str = "") -> bool:
    """Whether a field is from a RoPE block of the file, and there from this key, where one is given."""
    places = code.source.get(field, "").split(", ")
    return any(inside and place.endswith(key) for inside, place in zip(_by_block(code, field), places, strict=True))


def _without_block(code: LayerEncoding) -> LayerEncoding:
    """The encoding without the scale of its scores, as far as that is declared in a RoPE block."""
    scale, inside = code.score_scale, _by_block(code, "score_scale")
    if scale is None or not any(inside):
        return code
    return replace(code, score_scale=None if all(inside) else _without_magnitude(scale))


def _without_magnitude(scale: Any) -> Any:
    """A scale of scores without YaRN's magnitude, which is the only constant one."""
    if isinstance(scale, FloorLogScale):
        return replace(scale, factor=1.0)
    return None if isinstance(scale, ConstantScale) else scale


# The patterns, a function for each.


def without_scaling(code: LayerEncoding, model: DeclaredModel) -> LayerEncoding:
    """The base is read and the scaling is ignored."""
    if code.rotation is None or not (code.scaling is None or _in_block(code, "scaling")):
        return code
    if code.scaling is None and code.score_scale is None:
        return code
    return _without_block(_unscaled(code, None, model))


def with_default_base(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """The base is looked up at its old place, is not there, and becomes 10,000; the scaling is kept."""
    return code if _of_class(code.source.get("base", "")) else _with_base(code, DEFAULT_BASE)


def without_both(code: LayerEncoding, model: DeclaredModel) -> LayerEncoding:
    """Neither base nor scaling is found at its old place: base 10,000 and no scaling."""
    return with_default_base(without_scaling(code, model), model)


def linear_in_its_place(code: LayerEncoding, model: DeclaredModel) -> LayerEncoding:
    """The factor of a scaling of any type divides all frequencies alike."""
    factor = (code.scaling or {}).get("factor")
    if factor is None or not _in_block(code, "scaling", ".factor"):
        return code
    said = {"type": "linear", "factor": factor, "original": None}
    return _without_block(_unscaled(code, Linear(factor), model, said))


def with_usual_betas(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """YaRN's bounds are 32 and 1, whatever the file says."""
    if code.rotation is None or not isinstance(code.rotation.scaling, Yarn):
        return code
    return _rotating(code, code.scaling, scaling=replace(code.rotation.scaling, beta_fast=32.0, beta_slow=1.0))


def with_magnitude_of_the_formula(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """YaRN's attention factor is always 0.1 ln(factor) + 1; the file and the class defaults are ignored."""
    yarn = None if code.rotation is None else code.rotation.scaling
    if not isinstance(yarn, Yarn):
        return code
    usual = replace(yarn, attention_factor=yarn_magnitude(yarn.factor), mscale=None, mscale_all_dim=None)
    made = _rotating(code, code.scaling, scaling=usual)
    return replace(made, score_scale=_without_magnitude(made.score_scale))


def context_as_original(codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
    """The declared context length of a part is used as the original length of its scaling.

    Raises:
        Undescribed: The file lacks one of the two.
    """
    if model.context is None:
        raise Undescribed("The file declares no context length.")
    if not any(_in_block(code, "scaling", ORIGINAL) for code in filter(_rotates, codes)):
        raise _lacking(codes, f"No scaling of the file has {ORIGINAL}.")
    for code in codes:
        scaling: Any = None if code.rotation is None else code.rotation.scaling
        if not _rotates(code) or getattr(scaling, "original", None) is None or not _in_block(code, "scaling", ORIGINAL):
            yield code
            continue
        fields: dict[str, Any] = {"original": code.usable_length or model.context}
        if not _in_block(code, "scaling", "factor"):
            fields["factor"] = 1.0  # the context over the original length, which are now the same
        yield _rescaled(code, {**(code.scaling or {}), **fields}, **fields)


def _lists(code: LayerEncoding) -> LongRope | None:
    scaling = None if code.rotation is None or not _rotates(code) else code.rotation.scaling
    return scaling if isinstance(scaling, LongRope) else None


def one_list(kept: str, codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
    """One list of LongRoPE is used for texts of every length; it is compared at a length of the other list.

    Raises:
        Undescribed: There are no lists.
    """
    del model
    if not any(map(_lists, codes)):
        raise _lacking(codes, "The file has no lists of LongRoPE.")
    for code in codes:
        lists = _lists(code)
        if lists is None:
            yield code
        else:
            divisors = getattr(lists, kept)
            yield _rescaled(code, code.scaling, short=divisors, long=divisors)


def one_kind(kept: str, codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
    """All layers of a part get the base, the scaling and the share of those that see all, or of those that slide.

    Raises:
        Undescribed: The file has one base and one scaling for all layers.
    """
    del model
    kinds = {part: found for part in TEXT if (found := _of_kinds(codes, part, kept)) and _differ(*found)}
    if not kinds:
        raise _lacking(codes, _ONE_KIND)
    for code in codes:
        like = kinds.get(_part_of(code), (code,))[0]
        yield _like(code, like) if _rotates(code) and _differ(code, like) else code


def _like(code: LayerEncoding, like: LayerEncoding) -> LayerEncoding:
    """The encoding with the base, the scaling and the rotated share of another."""
    own = like.rotation
    if own is None or like.rates is None:
        return replace(_without_frequencies(code, like.scaling), base=like.base)
    rotated = code.width if isinstance(own.scaling, Proportional) else code.rotated
    fields: dict[str, Any] = {"spacing": own.spacing, "scaling": own.scaling, "length": own.length, "rotated": rotated}
    made, share = _rotating(code, like.scaling, **fields), _share(like)
    return made if share is None or _share(code) is None else _with_share(made, share)


def scaling_everywhere(codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
    """Every kind of layer keeps its base, and all of a part get the scaling of its full-attention layers.

    Raises:
        Undescribed: There is no scaling, or the model's class scales all layers.
    """
    known = model.known
    if known is None or not any(row.nested and "full" in row.scaled for row in known.rows):
        raise Undescribed("The class of this type has one scaling for all layers.")
    found = {part: kinds[0] for part in TEXT if (kinds := _of_kinds(codes, part, "full"))}
    scaled = {part: like for part, like in found.items() if like.scaling is not None}
    if not scaled:
        raise Undescribed("The full-attention layers have no scaling." if found else _ONE_KIND)
    for code in codes:
        like = scaled.get(_part_of(code))
        if like is None or not _rotates(code) or code.scaling == like.scaling:
            yield code
        elif like.rotation is None or like.rates is None:
            yield _without_frequencies(code, like.scaling)
        else:
            yield _rotating(code, like.scaling, scaling=like.rotation.scaling, length=like.rotation.length)


def _part_of(code: LayerEncoding) -> str:
    """The part whose settings an encoding follows: indexers and the layers for further tokens follow the text."""
    return "text" if code.part in SECOND else code.part


def _of_kinds(codes: Codes, part: str, first: str) -> tuple[LayerEncoding, LayerEncoding] | None:
    """An encoding of the layers of a part that see all, and one of those that slide; that of the first kind first."""
    of_part = [code for code in codes if _rotates(code) and code.part == part]
    kinds = {code.layer_kind or ("full" if code.farthest is None else "sliding"): code for code in reversed(of_part)}
    full, sliding = kinds.get("full"), kinds.get("sliding")
    if full is None or sliding is None:
        return None
    return (full, sliding) if first == "full" else (sliding, full)


def _differ(code: LayerEncoding, other: LayerEncoding) -> bool:
    """Whether two encodings have another base, scaling or rotated share."""
    one, two = code.rotation, other.rotation
    if one is None or two is None:
        return (code.base, code.scaling) != (other.base, other.scaling)
    shares = _share(code), _share(other)
    other_share = None not in shares and shares[0] != shares[1]
    return (one.spacing, one.scaling, code.scaling) != (two.spacing, two.scaling, other.scaling) or other_share


def _lacking(codes: Codes, otherwise: str) -> Undescribed:
    """Why a pattern does not apply: frequencies that are not known, or what the file lacks."""
    unknown = any(_rotates(code) and _of_text(code) and not code.rates for code in codes)
    return Undescribed("The file lacks values for the RoPE frequencies." if unknown else otherwise)


def whole_head(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """All dimensions of a head are rotated although the file rotates only some."""
    return code if _share(code) is None else _with_share(code, 1.0)


def default_share(codes: Codes, model: DeclaredModel) -> Iterator[LayerEncoding]:
    """The share of the head that the class has by default is rotated, whatever the file declares.

    Raises:
        Undescribed: The type has no default share.
    """
    share = None if model.known is None else model.known.defaults.get("share")
    if share is None:
        raise Undescribed("The class of this type has no default share.")
    return (_with_share(code, share) if _rotates(code) and _share(code) is not None else code for code in codes)


def ordinary_partial(code: LayerEncoding, model: DeclaredModel) -> LayerEncoding:
    """Proportional RoPE is read as partial RoPE: the exponents are divided by the rotated width."""
    return _unscaled(code, None, model) if _proportional(code) else code


def _proportional(code: LayerEncoding) -> bool:
    """Whether proportional RoPE spans the whole head; in a head of two parts it spans the rotated one."""
    rotation = code.rotation
    return rotation is not None and isinstance(rotation.scaling, Proportional) and rotation.part == "first"


def proportional_partial(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """Partial RoPE is read as proportional RoPE: the exponents and the pairs span the whole head."""
    width, rotated, spec = code.width, code.rotated, code.spec
    if not isinstance(spec, Rotary) or not width or not rotated or code.base is None:
        return code
    if code.scaling is not None or spec.part != "first" or rotated >= width or width % 2:
        return code
    made = Rotary(width, spec.layout, base=code.base, scaling=Proportional(rotated / width))
    return replace(code, spec=made, rates=made.rates)


def without_magnitude(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """Cosine and sine are not multiplied by the attention factor."""
    return code if code.attention_factor is None else replace(code, attention_factor=1.0)


def magnitude_twice(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """The attention factor is applied to the queries and to the keys, and then to the scores once more."""
    return code if code.attention_factor is None else replace(code, attention_factor=code.attention_factor**2)


def other_layout(code: LayerEncoding, _: DeclaredModel, *, of_indexer: bool = False) -> LayerEncoding:
    """Interleaved pairs are read as half-split ones, and the reverse: of the attention, or of its indexer."""
    layout = {"interleaved": "halves", "halves": "interleaved"}.get(code.layout or "")
    if layout is None or not isinstance(code.spec, Rotary) or (code.part == INDEXER) != of_indexer:
        return code
    return replace(code, layout=layout, spec=replace(code.spec, layout=layout))


def one_axis(code: LayerEncoding, _: DeclaredModel) -> LayerEncoding:
    """Several position axes are read as one."""
    if not isinstance(code.spec, Rotary) or code.spec.axes is None or code.counts_apart:
        return code
    return replace(code, spec=replace(code.spec, axes=None))


def in_all_layers(change: Callable[[LayerEncoding], LayerEncoding]) -> Pattern:
    """The pattern that changes every encoding of a text, those without a rotation too."""
    return Pattern(lambda codes, *_: (change(code) if _of_text(code) else code for code in codes))


def outer_level(view: View) -> None:
    """Only the top level of a nested config is read: keys in its text part are not found.

    Raises:
        Undescribed: The config is not nested.
    """
    if not view.path:
        raise Undescribed("The config has one level.")
    for key in (*_BASES, _SHARE, OLD, NEW):
        view.values.pop(key, None)
        if view.top.get(key) is not None:
            view.put(key, view.top[key])
    if not any(view.get(key) is not None for key in (_BASE, NEW)):
        view.put(_BASE, DEFAULT_BASE)
    if view.get(OLD) is None and view.get(NEW) is None:
        view.put(OLD, {"rope_type": "default"})


def every_layer_rotated(view: View) -> None:
    """Layers without RoPE are rotated like the others.

    Raises:
        Undescribed: The number of layers is not known.
    """
    number = view.number("num_hidden_layers")
    if number is None or number > _MOST_LAYERS:
        raise Undescribed("The number of layers is not known.")
    view.put("no_rope_layers", [1] * int(number))


def nope_inverted(view: View) -> None:
    """``no_rope_layers`` is read as its name says: 1 for a layer without RoPE (the classes mean the reverse).

    Raises:
        Undescribed: The file has no such list.
    """
    held = view.get("no_rope_layers")
    if not isinstance(held, list) or not held:
        raise Undescribed("The file has no list no_rope_layers.")
    view.put("no_rope_layers", [int(not value) for value in held])


PATTERNS: Mapping[str, Pattern] = {
    "no-scaling": of_each(without_scaling, _a_scaling),
    "default-base": of_each(with_default_base),
    "default-base-no-scaling": of_each(without_both, _a_scaling),
    "full-block-everywhere": Pattern(partial(one_kind, "full")),
    "sliding-block-everywhere": Pattern(partial(one_kind, "sliding")),
    "scaling-everywhere": Pattern(scaling_everywhere),
    "linear-in-its-place": of_each(linear_in_its_place, _a_factor),
    "context-as-original": Pattern(context_as_original),
    "default-betas": of_each(with_usual_betas, _a_yarn),
    "formula-magnitude": of_each(with_magnitude_of_the_formula, _a_yarn),
    "long-list-everywhere": Pattern(partial(one_list, "long"), "original"),
    "short-list-everywhere": Pattern(partial(one_list, "short"), "context"),
    "whole-head": of_each(whole_head),
    "default-share": Pattern(default_share),
    "ordinary-partial": of_each(ordinary_partial, _a_proportional),
    "outer-level": Pattern(reads=outer_level),
    "every-layer-rotated": Pattern(reads=every_layer_rotated),
    "nope-inverted": Pattern(reads=nope_inverted),
    "no-windows": in_all_layers(partial(with_window, how="all")),
    "window-of-one-more": in_all_layers(partial(with_window, how="one more")),
    # The axes of M-RoPE get consecutive pairs where the class interleaves them, and the reverse.
    "sections-in-a-row": in_all_layers(partial(with_sections, how="consecutive")),
    "sections-in-turns": in_all_layers(partial(with_sections, how="strided")),
    "no-magnitude": of_each(without_magnitude),
    "magnitude-twice": of_each(magnitude_twice),
    "other-layout": of_each(other_layout),
    "indexer-other-layout": of_each(partial(other_layout, of_indexer=True)),
    "one-axis": of_each(one_axis),
    "no-score-scale": in_all_layers(lambda code: code if code.score_scale is None else replace(code, score_scale=None)),
    "proportional-partial": of_each(proportional_partial),
}
"""Every pattern by its name."""
