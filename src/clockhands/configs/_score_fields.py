"""Reads from a config what the scores of attention are multiplied by: the scale of the softmax, and a factor on it.

Which type has a factor, and in which layers, is data beside the types (``scores`` in ``model_types.json``). Its numbers
are at the top level of a config, in its rotary block, or in a separate object. The scale of the softmax is
in `softmax_scales`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.configs._scaling_fields import scaling_type
from clockhands.configs.fields import Fields, Sourced, above_zero
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.softmax_scales import class_source, softmax_rules, softmax_scale_of
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.encodings.scores import ConstantScale, FloorLogScale, LogScale, ScoreScale

_GROWTH_ALLOWED = "a finite number of at least 0"


def score_scale_of(
    says: Mapping[str, Any], fields: Fields, block: Fields | None, *, rotating: bool
) -> Sourced[ScoreScale] | None:
    """The scale of a group of layers; None if there is none, or it cannot be known.

    Args:
        says: What the type of the model has: the ``formula`` (``steps`` or ``log``), the number of the ``first`` token,
            whether the ``magnitude`` of YaRN multiplies the scores, and the ``layers``: by default the rotary ones,
            else ``still`` (those without RoPE) or ``all``.
        fields: The config of the part.
        block: The rotary block of these layers.
        rotating: Whether these layers rotate.
    """
    if not says or says.get("layers", "rotating") not in ("all", "rotating" if rotating else "still"):
        return None
    magnitude = _magnitude(block) if says.get("magnitude") and block is not None else None
    grown = None
    if says.get("formula") == "log":
        grown = _log(fields, says["first"])
    elif says.get("formula") == "steps":
        switch = _switch(fields)
        holder = fields if "score_growth" in fields.spellings else block
        if holder is not None and (switch is None or switch.value):
            grown = steps_of(holder, says["first"], switch)
            if block is not None and holder is block and not block.declares("score_growth"):
                # The classes that scale scores by the block use its number for every type of scaling.
                held = block.raw("type")
                evidence = {} if held is None else {held.source: held.value}
                block.note("incomplete-scaling", {**evidence, "missing": block.spellings["score_growth"][0]})
    if magnitude is None or magnitude.value is None:
        return grown
    if grown is None or not isinstance(grown.value, FloorLogScale):
        return Sourced(ConstantScale(magnitude.value), magnitude.source)
    both = FloorLogScale(grown.value.original, grown.value.beta, grown.value.first, magnitude.value)
    return Sourced(both, f"{grown.source}, {magnitude.source}")


def with_scores(code: LayerEncoding, scale: Sourced[ScoreScale] | None) -> LayerEncoding:
    """The code with the scale of its scores, if there is one."""
    if scale is None:
        return code
    return replace(code, score_scale=scale.value, source={**code.source, "score_scale": scale.source})


def with_softmax_scale(code: LayerEncoding, type_name: str, fields: Fields) -> LayerEncoding:
    """The code of rotated layers with the scale of their softmax, if it is known of the class of the type."""
    scale = softmax_scale_of(type_name, fields.values, code.width)
    if scale is None:
        return code
    value, key = scale
    if key is not None:
        read_from = fields.default_source if fields.values.get(key) is None else fields.source(key)
    elif "fixed" in softmax_rules()[type_name]:
        read_from = class_source(type_name)
    else:
        read_from = f"{code.source.get('width', '')}, {class_source(type_name)}"
    return replace(code, softmax_scale=value, source={**code.source, "softmax_scale": read_from})


def steps_of(holder: Fields, first: int, *beside: Sourced[Any] | None) -> Sourced[ScoreScale] | None:
    """The scale in steps, from the growth and length in an object; ``beside`` is the key that switches it on."""
    growth = holder.number("score_growth", lambda value: value >= 0, _GROWTH_ALLOWED)
    length = holder.whole("score_length") or holder.whole("original")
    if growth is None or length is None or not growth.value or length.value is None:
        return None
    return Sourced(FloorLogScale(length.value, growth.value, first), _together(*beside, growth, length))


def _switch(fields: Fields) -> Sourced[bool] | None:
    """Whether the scale is on; a non-zero number also switches it on, as in the first configs of Llama 4."""
    held = fields.raw("score_switch")
    if held is not None and isinstance(held.value, int):
        return Sourced(bool(held.value), held.source)
    return fields.flag("score_switch")


def _log(fields: Fields, first: int) -> Sourced[ScoreScale] | None:
    switch, trained = _switch(fields), fields.whole("trained", least=2)
    if switch is None or not switch.value or trained is None or trained.value is None:
        return None
    return Sourced(LogScale(trained.value, first), _together(switch, trained))


def _magnitude(block: Fields) -> Sourced[float] | None:
    """The square of YaRN's magnitude for ``mscale_all_dim``, if a scaling of any type has that key."""
    kind = scaling_type(block)
    if kind is None or kind.value in (None, "default") or not block.declares("mscale_all"):
        return None
    whole, factor = block.number("mscale_all"), block.number("factor", above_zero, "a number above 0")
    if whole is None or factor is None or not whole.value or whole.value < 0 or not factor.value or factor.value <= 1:
        return None
    return Sourced(yarn_magnitude(factor.value, whole.value) ** 2, _together(whole, factor))


def _together(*found: Sourced[Any] | None) -> str:
    return ", ".join(dict.fromkeys(each.source for each in found if each is not None))
