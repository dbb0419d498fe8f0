"""Common misreadings of a config by many programs: each pattern is written as a reader.

A pattern is not a program. The runtimes and releases known to follow one, and the thread in which that was reported,
are in ``misread.json``. A pattern that changes nothing in a file does not apply to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from clockhands.configs.resolved import INDEXER, Code
from clockhands.configs.rope_blocks import NEW, OLD, RopeBlock, scaling_name
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Proportional, yarn_magnitude
from clockhands.runtimes.views import CONTEXT, ORIGINAL, Undescribed, View, named

DEFAULT_BASE = 10_000.0
"""What ``getattr(config, "rope_theta", 10000.0)`` gives where the key moved."""

_BASE, _SHARE = "rope_theta", "partial_rotary_factor"
_MOST_LAYERS = 10_000
_KEPT = (_BASE, _SHARE, "mrope_section", "mrope_interleaved")
_MAGNITUDES = ("attention_factor", "mscale", "mscale_all_dim")
_YARN = ("yarn", "deepseek_yarn")
_UNSCALED = (None, "default", "mrope", "proportional")
_BASES = (_BASE, "rope_local_base_freq", "local_rope_theta", "global_rope_theta", "rotary_emb_base")


def no_scaling(view: View) -> None:
    """The base is read and the scaling is ignored.

    Raises:
        Undescribed: There is no scaling to ignore.
    """
    found = False
    for block in view.blocks():
        found = found or scaling_name(block.values) not in (None, "default", "mrope")
        _put(view, block, _kept(block.values) | {"rope_type": "default"})
    if not found:
        raise Undescribed("The file declares no scaling.")


def default_base(view: View) -> None:
    """The base is looked up at its old place, is not there, and becomes 10,000; the scaling is kept."""
    for key in _BASES:
        if key in view.values:
            view.put(key, DEFAULT_BASE)
    view.put(_BASE, DEFAULT_BASE)
    _put_everywhere(view, {_BASE: DEFAULT_BASE})


def default_base_without_scaling(view: View) -> None:
    """Neither base nor scaling is found at its old place: base 10,000 and no scaling.

    Raises:
        Undescribed: There is no scaling, so `default_base` describes it completely.
    """
    no_scaling(view)
    default_base(view)


def _one_kind(kind: str) -> Callable[[View], None]:
    def reads(view: View) -> None:
        kinds = _kinds_of_class(view)
        if kinds is not None:
            full, sliding = _of_kinds(view, kinds)
            kept = full if kind == "full_attention" else sliding
            _put_kinds(view, kinds, kept, kept)
            return
        blocks = view.blocks()
        kept = next((block.values for block in blocks if block.label == kind), None)
        bases = {"full_attention": ("rope_theta", "global_rope_theta"), "sliding_attention": _BASES[1:3]}[kind]
        base = next((view.get(key) for key in bases if view.number(key) is not None), None)
        if kept is None and (base is None or not any(view.get(key) is not None for key in _BASES[1:3])):
            raise Undescribed("The file has one base and one scaling for all layers.")
        for block in blocks:
            made = kept if kept is not None and block.label else block.values
            _put(view, block, made | ({} if base is None else {_BASE: base}))
        for key in _BASES:
            if base is not None and key in view.values:
                view.put(key, base)

    reads.__doc__ = f"All layers get the base and the scaling of the layers of kind {kind}."
    return reads


full_block_everywhere = _one_kind("full_attention")
sliding_block_everywhere = _one_kind("sliding_attention")


def scaling_everywhere(view: View) -> None:
    """Every kind of layer keeps its base, and all of them get the scaling of the full-attention layers.

    Raises:
        Undescribed: There is no scaling, or the model's class scales all layers.
    """
    kinds = _kinds_of_class(view)
    if kinds is None:
        raise Undescribed("The class of this type has one scaling for all layers.")
    full, sliding = _of_kinds(view, kinds)
    if scaling_name(full) in _UNSCALED:
        raise Undescribed("The full-attention layers have no scaling.")
    _put_kinds(view, kinds, full, full | {key: sliding[key] for key in (_BASE,) if key in sliding})


class _Kinds(NamedTuple):
    """How a class that scales only its full-attention layers names its kinds of layers and their bases."""

    full: str
    sliding: str
    full_bases: Sequence[str]
    sliding_bases: Sequence[str]
    base: float | None
    local: float | None


def _kinds_of_class(view: View) -> _Kinds | None:
    """The kinds of the view's type; None where its class has one scaling for all layers, or is not known."""
    known = view.known
    row = next((row for row in known.rows if row.nested and "full" in row.scaled), None) if known else None
    if known is None or row is None:
        return None
    full, sliding = (row.labels.get(kind, [f"{kind}_attention"])[0] for kind in ("full", "sliding"))
    bases, local_bases = (known.reads.get(name, ()) for name in ("base", "local_base"))
    base, local = (known.defaults.get(name) for name in ("base", "local_base"))
    return _Kinds(full, sliding, bases, local_bases, base, local)


def _of_kinds(view: View, kinds: _Kinds) -> tuple[dict[str, Any], dict[str, Any]]:
    """The blocks of the full-attention and of the sliding-window layers, each with its base."""
    blocks = {block.label: block.values for block in view.blocks()}
    full = blocks.get(kinds.full, blocks.get("", {"rope_type": "default"}))
    sliding = blocks.get(kinds.sliding, {"rope_type": "default"})
    made = []
    for block, keys, default in ((full, kinds.full_bases, kinds.base), (sliding, kinds.sliding_bases, kinds.local)):
        base = view.number(_BASE, block) or next(filter(None, map(view.number, keys)), default)
        made.append(block if base is None else block | {_BASE: base})
    if _BASE not in made[1] and _BASE in made[0]:
        made[1][_BASE] = made[0][_BASE]
    return made[0], made[1]


def _put_kinds(view: View, kinds: _Kinds, full: dict[str, Any], sliding: dict[str, Any]) -> None:
    for key in (*kinds.full_bases, *kinds.sliding_bases, OLD):
        view.values.pop(key, None)
    view.put(NEW, {kinds.full: full, kinds.sliding: sliding})


def whole_head(view: View) -> None:
    """All dimensions of a head are rotated although the file rotates only some."""
    view.put(_SHARE, 1.0)
    _put_everywhere(view, {_SHARE: 1.0})


def default_share(view: View) -> None:
    """The share of the head that the class has by default is rotated, whatever the file declares.

    Raises:
        Undescribed: The type has no default share.
    """
    known = view.known
    share = None if known is None else known.defaults.get("share")
    if known is None or share is None:
        raise Undescribed("The class of this type has no default share.")
    for key in {_SHARE, *known.reads.get("share", ())} & view.values.keys():
        view.put(key, share)
    view.put(_SHARE, share)
    _put_everywhere(view, {_SHARE: share})


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


def ordinary_partial(view: View) -> None:
    """Proportional RoPE is read as partial RoPE: the exponents are divided by the rotated width.

    Raises:
        Undescribed: The file has no proportional RoPE.
    """
    blocks = [block for block in view.blocks() if scaling_name(block.values) == "proportional"]
    if not blocks:
        raise Undescribed("The file has no proportional rotation.")
    for block in blocks:
        _put(view, block, named(block.values, "default"))


def linear_in_its_place(view: View) -> None:
    """The factor of a scaling of any type divides all frequencies alike.

    Raises:
        Undescribed: There is no scaling with a factor.
    """
    _in_scalings(view, lambda block: {**_kept(block), "factor": block["factor"], "rope_type": "linear"}, "factor")


def context_as_original(view: View) -> None:
    """The declared context length is used as the original length of the scaling.

    Raises:
        Undescribed: The file lacks one of the two.
    """
    context = view.number(CONTEXT)
    if context is None:
        raise Undescribed("The file declares no context length.")
    _in_scalings(view, lambda block: block | {ORIGINAL: context}, ORIGINAL)


def default_betas(view: View) -> None:
    """YaRN's bounds are 32 and 1, whatever the file says.

    Raises:
        Undescribed: The file does not declare them.
    """
    _in_scalings(view, lambda block: block | {"beta_fast": 32.0, "beta_slow": 1.0}, "beta_fast")


def formula_magnitude(view: View) -> None:
    """YaRN's attention factor is always 0.1 ln(factor) + 1; the file and the class defaults are ignored.

    Raises:
        Undescribed: The file has no YaRN.
    """
    found = [block for block in view.blocks() if scaling_name(block.values) in _YARN]
    for block in found:
        factor = view.number("factor", block.values)
        kept = {key: value for key, value in block.values.items() if key not in _MAGNITUDES}
        _put(view, block, kept | ({} if factor is None else {"attention_factor": yarn_magnitude(factor)}))
    if not found:
        raise Undescribed("The file has no YaRN.")


def long_list_everywhere(view: View) -> None:
    """LongRoPE's long list is used for short texts too; it is compared at the original length."""
    _one_list(view, "long_factor", "short_factor")
    view.at = int(view.original(_scaling(view)) or 0) or None


def short_list_everywhere(view: View) -> None:
    """LongRoPE's short list is used for long texts too; it is compared at the declared context length."""
    _one_list(view, "short_factor", "long_factor")
    view.at = int(view.number(CONTEXT) or 0) or None


def every_layer_rotated(view: View) -> None:
    """Layers without RoPE are rotated like the others.

    Raises:
        Undescribed: The number of layers is not known.
    """
    view.put("no_rope_layers", [1] * _layers(view))


def nope_inverted(view: View) -> None:
    """``no_rope_layers`` is read as its name says: 1 for a layer without RoPE (the classes mean the reverse).

    Raises:
        Undescribed: The file has no such list.
    """
    held = view.get("no_rope_layers")
    if not isinstance(held, list) or not held:
        raise Undescribed("The file has no list no_rope_layers.")
    view.put("no_rope_layers", [int(not value) for value in held])


def no_windows(view: View) -> None:
    """Every layer sees all positions."""
    view.window_rule = {"sees": "all"}


def window_of_one_more(view: View) -> None:
    """Every window has one token more than in the model class."""
    view.window_rule = {"sees": "one more"}


def sections_in_a_row(view: View) -> None:
    """The axes of M-RoPE get consecutive pairs where the class interleaves them."""
    view.sections = "consecutive"


def sections_in_turns(view: View) -> None:
    """The axes of M-RoPE get interleaved pairs where they are consecutive in the class."""
    view.sections = "strided"


def as_the_file(view: View) -> None:
    """The config is read correctly; what the pattern changes is computed from it afterwards."""


def without_magnitude(code: Code) -> Code:
    """Cosine and sine are not multiplied by the attention factor."""
    return code if code.attention_factor is None else replace(code, attention_factor=1.0)


def magnitude_twice(code: Code) -> Code:
    """The attention factor is applied to the queries and to the keys, and then to the scores once more."""
    return code if code.attention_factor is None else replace(code, attention_factor=code.attention_factor**2)


def other_layout(code: Code) -> Code:
    """Interleaved pairs are read as half-split ones, and the reverse."""
    layout = {"interleaved": "halves", "halves": "interleaved"}.get(code.layout or "")
    if layout is None or not isinstance(code.spec, Rotary) or code.part == INDEXER:
        return code
    return replace(code, layout=layout, spec=replace(code.spec, layout=layout))


def other_layout_of_indexer(code: Code) -> Code:
    """The indexer of a sparse attention gets the layout that the indexer of this model does not have."""
    return replace(other_layout(replace(code, part="text")), part=INDEXER) if code.part == INDEXER else code


def one_axis(code: Code) -> Code:
    """Several position axes are read as one."""
    if not isinstance(code.spec, Rotary) or code.spec.axes is None or code.counts_apart:
        return code
    return replace(code, spec=replace(code.spec, axes=None))


def proportional_partial(code: Code) -> Code:
    """Partial RoPE is read as proportional RoPE: the exponents and the pairs span the whole head."""
    width, rotated, spec = code.width, code.rotated, code.spec
    if not isinstance(spec, Rotary) or not width or not rotated or code.base is None:
        return code
    if code.scaling is not None or spec.part != "first" or rotated >= width or width % 2:
        return code
    made = Rotary(width, spec.layout, base=code.base, scaling=Proportional(rotated / width))
    return replace(code, spec=made, rates=made.rates)


READS: Mapping[str, Callable[[View], None]] = {
    "no-scaling": no_scaling,
    "default-base": default_base,
    "default-base-no-scaling": default_base_without_scaling,
    "full-block-everywhere": full_block_everywhere,
    "sliding-block-everywhere": sliding_block_everywhere,
    "scaling-everywhere": scaling_everywhere,
    "linear-in-its-place": linear_in_its_place,
    "context-as-original": context_as_original,
    "default-betas": default_betas,
    "formula-magnitude": formula_magnitude,
    "long-list-everywhere": long_list_everywhere,
    "short-list-everywhere": short_list_everywhere,
    "whole-head": whole_head,
    "default-share": default_share,
    "ordinary-partial": ordinary_partial,
    "outer-level": outer_level,
    "every-layer-rotated": every_layer_rotated,
    "nope-inverted": nope_inverted,
    "no-windows": no_windows,
    "window-of-one-more": window_of_one_more,
    "sections-in-a-row": sections_in_a_row,
    "sections-in-turns": sections_in_turns,
}
"""Patterns that change what is read, by name."""


def without_score_scale(code: Code) -> Code:
    """Scores are not multiplied by the scale that depends on the position of the query."""
    return code if code.score_scale is None else replace(code, score_scale=None)


COMPUTES: Mapping[str, Callable[[Code], Code]] = {
    "no-magnitude": without_magnitude,
    "magnitude-twice": magnitude_twice,
    "other-layout": other_layout,
    "indexer-other-layout": other_layout_of_indexer,
    "one-axis": one_axis,
    "no-score-scale": without_score_scale,
    "proportional-partial": proportional_partial,
}
"""Patterns that change what is computed of it, by name."""


def _scaling(view: View) -> dict[str, Any]:
    """The first block that names a scaling; an empty one if there is none."""
    return next((block.values for block in _scalings(view)), {})


def _scalings(view: View) -> list[RopeBlock]:
    """The blocks that name a scaling."""
    return [block for block in view.blocks() if scaling_name(block.values) not in _UNSCALED]


def _kept(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: block[key] for key in _KEPT if key in block}


def _in_scalings(view: View, change: Callable[[dict[str, Any]], dict[str, Any]], needed: str) -> None:
    """Change each scaling that has a number under this key.

    Raises:
        Undescribed: There is none.
    """
    found = [block for block in _scalings(view) if view.number(needed, block.values) is not None]
    if not found:
        raise Undescribed(f"No scaling of the file has {needed}.")
    for block in found:
        _put(view, block, change(block.values))


def _one_list(view: View, kept: str, other: str) -> None:
    if not isinstance(_scaling(view).get(kept), list):
        raise Undescribed("The file has no lists of LongRoPE.")
    for block in view.blocks():
        if isinstance(block.values.get(kept), list):
            _put(view, block, block.values | {other: block.values[kept]})


def _layers(view: View) -> int:
    number = view.number("num_hidden_layers")
    if number is None or number > _MOST_LAYERS:
        raise Undescribed("The number of layers is not known.")
    return int(number)


def _put(view: View, block: RopeBlock, values: dict[str, Any]) -> None:
    held = view.block(block.key) or {}
    view.put(block.key, {**held, block.label: values} if block.label else values)


def _put_everywhere(view: View, values: dict[str, Any]) -> None:
    for block in view.blocks():
        _put(view, block, block.values | values)
