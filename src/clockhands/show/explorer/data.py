"""What Python puts into the explorer's page: codes by name, and what an audit says of each target."""

from typing import Any

from clockhands.additive import Sinusoidal
from clockhands.ladders import Geometric
from clockhands.presets import presets


def codes() -> dict[str, dict[str, Any]]:
    """The published sinusoids on one axis, by name: what each is, its width and its ladder."""
    found: dict[str, dict[str, Any]] = {}
    for each in presets():
        spec = each.spec
        if isinstance(spec, Sinusoidal) and isinstance(spec.spacing, Geometric):
            found[each.name] = {
                "kind": "sinusoidal",
                "says": each.name,
                "width": spec.width,
                "base": spec.spacing.base,
                "span": spec.spacing.span,
                "layout": spec.layout,
                "order": spec.order,
            }
    return found


def data() -> dict[str, Any]:
    """All of it for a page without a target."""
    return {"codes": codes(), "start": {}, "models": []}
