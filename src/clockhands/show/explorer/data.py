"""What Python puts into the explorer's page: codes by name, and what an audit says of each target."""

from collections.abc import Iterable
from typing import Any, TypeGuard, cast

import numpy as np

from clockhands.additive import Sinusoidal
from clockhands.auditing import Audit
from clockhands.ladders import Explicit, Geometric, Ladder
from clockhands.presets import preset, presets
from clockhands.rotary import Rotary
from clockhands.show.explorer.model_biases import model_biases
from clockhands.show.explorer.precise import precise
from clockhands.sources.resolved import Code
from clockhands.specs import to_dict

PLAIN = "vaswani2017"
"""The code that the page opens on where no model is given: the paper's."""

_ATTENDED = ("sinusoidal", "rotary", "alibi")
"""The kinds that the view on attention has: a page of a model opens on the model's."""


def codes() -> dict[str, dict[str, Any]]:
    """Every preset with hands along one axis, by name.

    Returns:
        For each its ``kind`` (``sinusoidal`` or ``rotary``), what it ``says``, its ``width`` (two channels for each
        pair that turns), ``base`` (None where no base alone makes the ladder), ``span``, ``layout``, ``order``, and
        its whole ``spec`` as `clockhands.specs.to_dict` gives it, from which the page computes the exact ladder.

    >>> found = codes()["whisper"]
    >>> found["kind"], found["width"], found["base"], found["span"], found["layout"]
    ('sinusoidal', 512, 10000.0, 'closed', 'halves')
    """
    turning = ((each.name, each.spec, each.says) for each in presets())
    return {name: _code(spec, says) for name, spec, says in turning if turns_along_one_axis(spec)}


def turns_along_one_axis(spec: object) -> TypeGuard[Sinusoidal | Rotary]:
    """Whether a page shows the hands of a code, also where no one rotation is its shift: its captions then say why."""
    if isinstance(spec, Sinusoidal):
        # A hand without its second channel has no place in the page's width.
        return spec.width == 2 * len(spec.rates) or spec.odd == "zero"
    return isinstance(spec, Rotary) and spec.number_of_axes == 1


def data(audits: Iterable[Audit] = ()) -> dict[str, Any]:
    """All that a page holds, as plain JSON values.

    Args:
        audits: What was found in each target; the page opens on the first ladder among them.

    Returns:
        ``codes``, the state that the page starts with under ``start``, the audits under ``models`` in the form of
        ``clockhands audit --json``, how many ``axes`` their codes have where it is more than one, their ``biases``,
        and angles beyond a double's reach under ``precise``.
    """
    given = list(audits)
    models = [each.to_dict() for each in given]
    ladders = {PLAIN: cast(Sinusoidal, preset(PLAIN)).ladder} | _ladders(given)
    return {
        "codes": codes(),
        "start": _start(models),
        "models": models,
        "axes": _axes(given),
        "biases": model_biases(given),
        "precise": precise(ladders),
    }


def _axes(audits: list[Audit]) -> dict[str, int]:
    """How many axes a model's code has, by the name that the page gives it; those of one axis are left out."""
    found = {
        f"model-{number}-{place}": getattr(code.spec, "number_of_axes", 1)
        for number, audit in enumerate(audits)
        for place, code in enumerate(audit.layers)
    }
    return {name: axes for name, axes in found.items() if axes > 1}


def _ladders(audits: list[Audit]) -> dict[str, Ladder]:
    """The ladder of each group of layers, by the name that the page gives its code."""
    return {
        f"model-{number}-{place}": _ladder(code)
        for number, audit in enumerate(audits)
        for place, code in enumerate(audit.layers)
        if code.rates
    }


def _ladder(code: Code) -> Ladder:
    """The real ladder of a code; where it is known by its rates alone, each is the number that its double holds."""
    assert code.rates is not None
    known = getattr(code.spec, "ladder", None)
    if (
        isinstance(known, Ladder)
        and known.pairs == len(code.rates)
        and np.allclose(known.rates, code.rates, rtol=2**-51, atol=0)
    ):
        return known
    return Explicit(tuple(code.rates)).ladder(len(code.rates), 2 * len(code.rates))


def _code(spec: Sinusoidal | Rotary, says: str) -> dict[str, Any]:
    spacing = spec.spacing
    # A base below 1 makes a ladder that rises, which the page's own control does not reach.
    by_base = isinstance(spacing, Geometric) and spacing.multiplier == 1 and spacing.base > 1
    return {
        "kind": "sinusoidal" if isinstance(spec, Sinusoidal) else "rotary",
        "says": says,
        "width": 2 * len(spec.rates),
        "base": spacing.base if isinstance(spacing, Geometric) and by_base else None,
        "span": spacing.span if isinstance(spacing, Geometric) and isinstance(spacing.span, str) else "open",
        "layout": spec.layout,
        "order": spec.order if isinstance(spec, Sinusoidal) else "sin-cos",
        "spec": to_dict(spec),
    }


def _start(models: list[dict[str, Any]]) -> dict[str, Any]:
    """The state for a page of models: the first ladder among their layers, which brings its lengths; two side by side.

    Where no layer has one the first context that is declared is the length.
    """
    start: dict[str, Any] = {"beside": 1} if len(models) > 1 else {}
    layers = (
        (f"model-{number}-{place}", layer)
        for number, each in enumerate(models)
        for place, layer in enumerate(each["layers"])
    )
    first = next((name for name, layer in layers if layer["rates"]), None)
    context = next((each["context"] for each in models if each["context"]), None)
    if first is not None:
        start["code"] = first
    elif context is not None:
        # One of a single token, or of 2**40, is outside what the page's controls can be set to.
        start["length"] = start["served"] = min(max(context, 2), 2**24)
    kinds = (layer["kind"] for each in models for layer in each["layers"])
    attended = next((kind for kind in kinds if kind in _ATTENDED), None)
    if attended is not None:
        start["code_in_attention"] = attended
    return start
