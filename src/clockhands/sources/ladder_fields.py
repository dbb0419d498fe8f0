"""From what was read of a rotary code to its spec and its rates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.ladders import Spacing
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, LongRope, Proportional
from clockhands.sources.fields import LONGEST, Fields
from clockhands.sources.resolved import Code
from clockhands.sources.scaling_fields import Declared


def built(
    code: Code,
    declared: Declared,
    fields: Fields,
    length: int | None,
    *,
    spacing: Spacing | None = None,
    assumed: bool = True,
    more: Mapping[str, Any] | None = None,
) -> Code:
    """The code with its ladder, or without rates and with a fact where no ladder can be made.

    Args:
        code: What is known of it.
        declared: Its scaling.
        fields: Where facts go.
        length: Tokens at which the rates shall hold.
        spacing: Its rates, where they are no geometric ladder of its base.
        assumed: Whether all that a spec says is known.
        more: Further fields of the spec.
    """
    if not declared.known or code.width is None or code.rotated is None:
        return code
    if code.base is None and spacing is None:
        return code
    # Such a ladder goes over the whole head, or over the whole rotated part of a head of two parts.
    proportional = isinstance(declared.scaling, Proportional) and (more or {}).get("part") != "last"
    regimes = isinstance(declared.scaling, Dynamic | LongRope)
    try:
        spec = Rotary(
            code.width,
            "halves" if code.layout is None else code.layout,  # type: ignore[arg-type]
            rotated=code.width if proportional else code.rotated,
            scaling=declared.scaling,
            length=length if regimes and length is not None and length <= LONGEST else None,
            **{"base": code.base if spacing is None else None, "spacing": spacing, **(more or {})},
        )
    except ClockhandsError as error:
        evidence = {
            code.source[name]: getattr(code, name) for name in ("width", "rotated", "base") if name in code.source
        }
        fields.note("impossible-value", {**evidence, **declared.values, "allowed": error.message}, code.layers)
        return code
    whole = spec if code.layout is not None and assumed else None
    return replace(code, spec=whole, rates=spec.rates, attention_factor=spec.attention_factor)
