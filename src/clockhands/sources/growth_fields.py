"""Ladders that the code of a model stretches by itself once a text is longer than those of its training."""

import math

from clockhands.scaling import Ntk
from clockhands.sources.fields import Fields, Found
from clockhands.sources.model_types import Row
from clockhands.sources.scaling_fields import Declared


def grown(fields: Fields, row: Row | None, declared: Declared, length: int | None) -> Declared:
    """What was declared, or the scaling that the code of the type adds where a switch of the config is on.

    Two ways are known. ``doubling`` (Qwen): NTK-aware scaling by ``2 ** ceil(log2(L / L0) + 1) - 1`` for a text of
    ``L`` tokens and a training length of ``L0``. ``other``: in a way that no formula here has; beyond ``L0`` the rates
    are then unknown.

    Args:
        fields: The config of the part.
        row: The code of its type.
        declared: The scaling of its block.
        length: Tokens at which the rates shall hold, or None.
    """
    if row is None or row.growth is None:
        return declared
    switch, trained = fields.flag("growing"), fields.whole("trained")
    if switch is None or switch.value is not True or trained is None or trained.value is None:
        return declared
    summary = {"type": "dynamic", "factor": None, "original": trained.value} if fields.declares("growing") else None
    source = {"scaling": ", ".join(dict.fromkeys((switch.source, trained.source)))}
    if length is None or length <= trained.value:
        return Declared(None, summary, original=trained.value, source=source)
    if row.growth == "doubling":
        factor = 2.0 ** math.ceil(math.log2(length / trained.value) + 1) - 1
        return Declared(Ntk(factor), summary, original=trained.value, source=source)
    evidence = {
        trained.source: trained.value,
        "missing": "the formula by which the model's code stretches longer texts",
    }
    fields.note("missing-value", {**evidence, "needed for": "the rates"})
    return Declared(None, summary, known=False, original=trained.value, source=source)


def multiplied(fields: Fields, base: Found[float] | None) -> Found[float] | None:
    """A base times the ratio that the config has for it (ChatGLM), if its type reads one."""
    ratio = fields.number("base_ratio", lambda value: value > 0, "a number above 0")
    if base is None or base.value is None or ratio is None or ratio.value in (None, 1.0):
        return base
    return Found(base.value * ratio.value, f"{base.source} x {ratio.source}")
