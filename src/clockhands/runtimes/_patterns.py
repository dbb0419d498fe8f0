"""Common misreadings of a config by many programs: what each pattern makes of the encodings that the file declares.

A pattern is not a program. The runtimes and releases known to follow one, and the thread in which that was reported,
are in ``misread.json``. A pattern that changes nothing in a file does not apply to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clockhands.configs.model_types import ModelType
from clockhands.configs.resolved import INDEXER, SECOND, TEXT, Code
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
# Parts of which a pattern changes the encodings: towers for images and sound have configs of their own.
_CHANGED = (*TEXT, *SECOND)
_ONE_KIND = "The file has one base and one scaling for all layers."

Codes = Sequence[Code]


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

    change: Callable[[Codes, DeclaredModel], Iterator[Code]] | None = None
    at: str | None = None
    reads: Callable[[View], None] | None = None

    def changed(self, codes: tuple[Code, ...], model: DeclaredModel) -> tuple[tuple[Code, ...], tuple[Code, ...]]:
        """The encodings at the length at which they are compared, and as the pattern computes them at that length.

        The second is the same tuple where it changes none.
        """
        assert self.change is not None
        at = model.context
        if self.at == "original":
            at = next((scaling.original for scaling in map(_lists, codes) if scaling is not None), None)
        if self.at is not None and at is not None:
            codes = tuple(code.at_length(at) for code in codes)
        made = tuple(self.change(codes, model))
        return codes, codes if all(one is other for one, other in zip(made, codes, strict=True)) else made


def of_each(
    change: Callable[[Code, DeclaredModel], Code],
    applies: Callable[[Codes, DeclaredModel], bool] | None = None,
    lacks: str = "",
) -> Pattern:
    """The pattern that changes each rotary encoding of a text by itself.

    Args:
        change: What it makes of one encoding.
        applies: Whether it can change a model at all.
        lacks: The sentence for a model that it cannot change.
    """

    def changed(codes: Codes, model: DeclaredModel) -> Iterator[Code]:
        if applies is not None and not applies(codes, model):
            raise Undescribed(lacks)
        return (change(code, model) if _turns(code) else code for code in codes)

    return Pattern(changed)


def _turns(code: Code) -> bool:
    return code.kind == "rotary" and code.part in _CHANGED


def _of_text(code: Code) -> bool:
    return code.part in TEXT


# What is put in place of a field of the rotation.


def _rotating(code: Code, declared: Mapping[str, Any] | None, **fields: Any) -> Code:
    """The encoding with other fields of its rotation, and with this as its declared scaling."""
    if code.rotation is None:
        return code
    try:
        rotation = replace(code.rotation, **fields)
    except ClockhandsError:  # such a file has no frequencies
        return replace(code, spec=None, rotation=None, rates=None, attention_factor=None, scaling=declared)
    base = code.base if rotation.base is None else rotation.base
    unknown = code.rates is None  # because the declared scaling is not known
    if unknown and fields.get("scaling", ...) is not None:
        return replace(code, rotation=rotation, base=base)
    spec = rotation if code.spec is not None or (unknown and code.layout is not None) else None
    rates, factor = rotation.rates, rotation.attention_factor
    made = replace(code, spec=spec, rotation=rotation, rates=rates, attention_factor=factor)
    return replace(made, base=base, scaling=declared)


def _unscaled(
    code: Code, scaling: Scaling | None, model: DeclaredModel, declared: Mapping[str, Any] | None = None
) -> Code:
    """The encoding without its scaling, or with one whose factor divides all frequencies in its place."""
    fields: dict[str, Any] = {"scaling": scaling, "length": None}
    if _proportional(code):
        rotated = code.rotated if model.reads_share else code.width
        code, fields["rotated"] = replace(code, rotated=rotated), rotated
    return _rotating(code, declared, **fields)


def _with_base(code: Code, base: float) -> Code:
    spacing = None if code.rotation is None else code.rotation.spacing
    if not isinstance(spacing, Geometric):
        return code
    return _rotating(code, code.scaling, spacing=replace(spacing, base=base))


def _with_share(code: Code, share: float) -> Code:
    """The encoding with this share of each head rotated."""
    rotation, width = code.rotation, code.width
    if rotation is None or width is None:
        return code
    turned = int(width * share)
    fields: dict[str, Any] = {}
    if isinstance(rotation.scaling, Proportional):
        turned, fields = 2 * int(share * width / 2), {"scaling": replace(rotation.scaling, fraction=share)}
    elif turned != rotation.rotated:
        # Sections of several axes are for another number of pairs.
        fields = {"rotated": turned, "axes": None}
    if isinstance(rotation.spacing, Geometric):
        fields["spacing"] = Geometric(rotation.spacing.base)
    made = _rotating(replace(code, rotated=turned), code.scaling, **fields)
    return made if rotation.axes is None or not fields.get("rotated") else replace(made, spec=None)


def _share(code: Code) -> float | None:
    """The rotated share of a head, if the file can change it; None where a number of dimensions is rotated."""
    place, whole = (code.source.get(name, "") for name in ("rotated", "width"))
    if not code.rotated or not code.width or _of_class(place):
        return None
    shared = " x " in place or place.startswith(f"{whole}, ") or _proportional(code)
    return code.rotated / code.width if shared else None


def _of_class(place: str) -> bool:
    """Whether a value follows from the type of the model alone, whatever the file says."""
    return place.startswith("architecture of")


def _scales(_: Codes, model: DeclaredModel) -> bool:
    return model.scales


def _in_block(code: Code, field: str, key: str = "") -> bool:
    """Whether a field is from a RoPE block of the file, and there from this key, where one is given."""
    places = code.source.get(field, "").split(", ")
    return any((f"{OLD}." in each or f"{NEW}." in each) and each.endswith(key) for each in places)


def _without_block(code: Code) -> Code:
    """The encoding without the scale of its scores, as far as that is declared in a RoPE block."""
    scale, places = code.score_scale, code.source.get("score_scale", "").split(", ")
    if scale is None or not _in_block(code, "score_scale"):
        return code
    inside = all(f"{OLD}." in each or f"{NEW}." in each for each in places)
    return replace(code, score_scale=None if inside else _without_magnitude(scale))


def _without_magnitude(scale: Any) -> Any:
    """A scale of scores without YaRN's magnitude, which is the only constant one."""
    if isinstance(scale, FloorLogScale):
        return replace(scale, factor=1.0)
    return None if isinstance(scale, ConstantScale) else scale


# The patterns, a function for each.


def without_scaling(code: Code, model: DeclaredModel) -> Code:
    """The base is read and the scaling is ignored."""
    if code.rotation is None or not (code.scaling is None or _in_block(code, "scaling")):
        return code
    if code.scaling is None and code.score_scale is None:
        return code
    return _without_block(_unscaled(code, None, model))


def with_default_base(code: Code, _: DeclaredModel) -> Code:
    """The base is looked up at its old place, is not there, and becomes 10,000; the scaling is kept."""
    return code if _of_class(code.source.get("base", "")) else _with_base(code, DEFAULT_BASE)


def without_both(code: Code, model: DeclaredModel) -> Code:
    """Neither base nor scaling is found at its old place: base 10,000 and no scaling."""
    return with_default_base(without_scaling(code, model), model)


def linear_in_its_place(code: Code, model: DeclaredModel) -> Code:
    """The factor of a scaling of any type divides all frequencies alike."""
    factor = (code.scaling or {}).get("factor")
    if factor is None or not _in_block(code, "scaling", ".factor"):
        return code
    said = {"type": "linear", "factor": factor, "original": None}
    return _without_block(_unscaled(code, Linear(factor), model, said))


def with_usual_betas(code: Code, _: DeclaredModel) -> Code:
    """YaRN's bounds are 32 and 1, whatever the file says."""
    if code.rotation is None or not isinstance(code.rotation.scaling, Yarn):
        return code
    return _rotating(code, code.scaling, scaling=replace(code.rotation.scaling, beta_fast=32.0, beta_slow=1.0))


def with_magnitude_of_the_formula(code: Code, _: DeclaredModel) -> Code:
    """YaRN's attention factor is always 0.1 ln(factor) + 1; the file and the class defaults are ignored."""
    yarn = None if code.rotation is None else code.rotation.scaling
    if not isinstance(yarn, Yarn):
        return code
    usual = replace(yarn, attention_factor=yarn_magnitude(yarn.factor), mscale=None, mscale_all_dim=None)
    made = _rotating(code, code.scaling, scaling=usual)
    return replace(made, score_scale=_without_magnitude(made.score_scale))


def context_as_original(codes: Codes, model: DeclaredModel) -> Iterator[Code]:
    """The declared context length is used as the original length of the scaling.

    Raises:
        Undescribed: The file lacks one of the two.
    """
    if model.context is None:
        raise Undescribed("The file declares no context length.")
    if not any(_in_block(code, "scaling", ORIGINAL) for code in filter(_turns, codes)):
        raise Undescribed(f"No scaling of the file has {ORIGINAL}.")
    for code in codes:
        scaling: Any = None if code.rotation is None else code.rotation.scaling
        if _turns(code) and getattr(scaling, "original", None) is not None and _in_block(code, "scaling", ORIGINAL):
            said = {**(code.scaling or {}), "original": model.context}
            yield _rotating(code, said, scaling=replace(scaling, original=model.context))
        else:
            yield code


def _lists(code: Code) -> LongRope | None:
    scaling = None if code.rotation is None or not _turns(code) else code.rotation.scaling
    return scaling if isinstance(scaling, LongRope) else None


def one_list(kept: str, codes: Codes, model: DeclaredModel) -> Iterator[Code]:
    """One list of LongRoPE is used for texts of every length; it is compared at a length of the other list.

    Raises:
        Undescribed: There are no lists.
    """
    del model
    if not any(map(_lists, codes)):
        raise Undescribed("The file has no lists of LongRoPE.")
    for code in codes:
        lists = _lists(code)
        if lists is None:
            yield code
        else:
            divisors = getattr(lists, kept)
            yield _rotating(code, code.scaling, scaling=replace(lists, short=divisors, long=divisors))


def one_kind(kept: str, codes: Codes, model: DeclaredModel) -> Iterator[Code]:
    """All layers get the base, the scaling and the rotated share of those that see all, or of those with a window.

    Raises:
        Undescribed: The file has one base and one scaling for all layers.
    """
    del model
    like, other = _of_kind(codes, kept)
    own, others = like.rotation, other.rotation
    if own is None or others is None or (own.spacing, own.scaling) == (others.spacing, others.scaling):
        raise Undescribed(_ONE_KIND)
    share = _share(like)
    for code in codes:
        rotation = code.rotation
        if not _turns(code) or rotation is None or (rotation.spacing, rotation.scaling) == (own.spacing, own.scaling):
            yield code
            continue
        fields = {"spacing": own.spacing, "scaling": own.scaling, "length": own.length}
        rotated = code.width if isinstance(own.scaling, Proportional) else code.rotated
        made = _rotating(code, like.scaling, **fields, rotated=rotated)
        yield made if share is None or _share(code) is None else _with_share(made, share)


def scaling_everywhere(codes: Codes, model: DeclaredModel) -> Iterator[Code]:
    """Every kind of layer keeps its base, and all of them get the scaling of the full-attention layers.

    Raises:
        Undescribed: There is no scaling, or the model's class scales all layers.
    """
    known = model.known
    if known is None or not any(row.nested and "full" in row.scaled for row in known.rows):
        raise Undescribed("The class of this type has one scaling for all layers.")
    like, _ = _of_kind(codes, "full")
    if like.rotation is None or like.rotation.scaling is None:
        raise Undescribed("The full-attention layers have no scaling.")
    for code in codes:
        takes = _turns(code) and code.scaling is None
        yield _rotating(code, like.scaling, scaling=like.rotation.scaling) if takes else code


def _of_kind(codes: Codes, kind: str) -> tuple[Code, Code]:
    """An encoding of the layers that see all, and one of those with a window; the one of this kind first.

    Raises:
        Undescribed: The model has only one of the two.
    """
    of_text = [code for code in codes if _turns(code) and _of_text(code)]
    full = next((code for code in of_text if code.farthest is None), None)
    sliding = next((code for code in of_text if code.farthest is not None), None)
    if full is None or sliding is None:
        raise Undescribed(_ONE_KIND)
    return (full, sliding) if kind == "full" else (sliding, full)


def whole_head(code: Code, _: DeclaredModel) -> Code:
    """All dimensions of a head are rotated although the file rotates only some."""
    return code if _share(code) is None else _with_share(code, 1.0)


def default_share(codes: Codes, model: DeclaredModel) -> Iterator[Code]:
    """The share of the head that the class has by default is rotated, whatever the file declares.

    Raises:
        Undescribed: The type has no default share.
    """
    share = None if model.known is None else model.known.defaults.get("share")
    if share is None:
        raise Undescribed("The class of this type has no default share.")
    return (_with_share(code, share) if _turns(code) and _share(code) is not None else code for code in codes)


def ordinary_partial(code: Code, model: DeclaredModel) -> Code:
    """Proportional RoPE is read as partial RoPE: the exponents are divided by the rotated width."""
    return _unscaled(code, None, model) if _proportional(code) else code


def _proportional(code: Code) -> bool:
    return code.rotation is not None and isinstance(code.rotation.scaling, Proportional)


def proportional_partial(code: Code, _: DeclaredModel) -> Code:
    """Partial RoPE is read as proportional RoPE: the exponents and the pairs span the whole head."""
    width, rotated, spec = code.width, code.rotated, code.spec
    if not isinstance(spec, Rotary) or not width or not rotated or code.base is None:
        return code
    if code.scaling is not None or spec.part != "first" or rotated >= width or width % 2:
        return code
    made = Rotary(width, spec.layout, base=code.base, scaling=Proportional(rotated / width))
    return replace(code, spec=made, rates=made.rates)


def without_magnitude(code: Code, _: DeclaredModel) -> Code:
    """Cosine and sine are not multiplied by the attention factor."""
    return code if code.attention_factor is None else replace(code, attention_factor=1.0)


def magnitude_twice(code: Code, _: DeclaredModel) -> Code:
    """The attention factor is applied to the queries and to the keys, and then to the scores once more."""
    return code if code.attention_factor is None else replace(code, attention_factor=code.attention_factor**2)


def other_layout(code: Code, _: DeclaredModel, *, of_indexer: bool = False) -> Code:
    """Interleaved pairs are read as half-split ones, and the reverse: of the attention, or of its indexer."""
    layout = {"interleaved": "halves", "halves": "interleaved"}.get(code.layout or "")
    if layout is None or not isinstance(code.spec, Rotary) or (code.part == INDEXER) != of_indexer:
        return code
    return replace(code, layout=layout, spec=replace(code.spec, layout=layout))


def one_axis(code: Code, _: DeclaredModel) -> Code:
    """Several position axes are read as one."""
    if not isinstance(code.spec, Rotary) or code.spec.axes is None or code.counts_apart:
        return code
    return replace(code, spec=replace(code.spec, axes=None))


def in_all_layers(change: Callable[[Code], Code]) -> Pattern:
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
    "no-scaling": of_each(without_scaling, _scales, "The file declares no scaling."),
    "default-base": of_each(with_default_base),
    "default-base-no-scaling": of_each(without_both, _scales, "The file declares no scaling."),
    "full-block-everywhere": Pattern(partial(one_kind, "full")),
    "sliding-block-everywhere": Pattern(partial(one_kind, "sliding")),
    "scaling-everywhere": Pattern(scaling_everywhere),
    "linear-in-its-place": of_each(linear_in_its_place, _scales, "No scaling of the file has factor."),
    "context-as-original": Pattern(context_as_original),
    "default-betas": of_each(with_usual_betas, _scales, "No scaling of the file has beta_fast."),
    "formula-magnitude": of_each(with_magnitude_of_the_formula, _scales, "The file has no YaRN."),
    "long-list-everywhere": Pattern(partial(one_list, "long"), "original"),
    "short-list-everywhere": Pattern(partial(one_list, "short"), "context"),
    "whole-head": of_each(whole_head),
    "default-share": Pattern(default_share),
    "ordinary-partial": of_each(
        ordinary_partial, lambda codes, _: any(map(_proportional, codes)), "The file has no proportional rotation."
    ),
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
