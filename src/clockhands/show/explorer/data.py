"""What Python puts into the explorer's page: codes by name, and what an audit says of each target."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np

from clockhands.auditing import Audit
from clockhands.auditing.fixes import changed_lines
from clockhands.auditing.sampled_encodings import SAMPLED, sampled_codes
from clockhands.auditing.target_properties import held_codes
from clockhands.configs import open_target
from clockhands.configs.callables import IN_FILE
from clockhands.configs.own_encodings import named_encoding
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.biases import Alibi, Buckets
from clockhands.encodings.ladders import Explicit, Geometric, Ladder
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.presets import preset, presets
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import to_dict
from clockhands.errors import ClockhandsError
from clockhands.show.explorer.trained import trained

PLAIN = "vaswani2017"
"""The code that the page opens on where no model is given: the paper's."""

_ATTENDED = ("sinusoidal", "rotary", "alibi")
"""The kinds that the view on attention has: a page of a model opens on the model's."""

MOST_NUMBERS = 2**15
"""Of one table that goes into a page; T5's have at most 32 x 128."""

# From where position * rate is no longer to be drawn, up to the last whole number that every double below it reaches.
POSITIONS = (2**40, 10**13, 10**14, 10**15, 2**53 - 1)
HANDS = 6  # of each ladder, evenly from the fastest to the slowest


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
    return {name: _code(spec, says) for name, spec, says in turning if rotates_along_one_axis(spec)}


def rotates_along_one_axis(spec: object) -> TypeGuard[Sinusoidal | Rotary]:
    """Whether a page shows the hands of a code, also where no one rotation is its shift: its captions then say why."""
    if isinstance(spec, Sinusoidal):
        # A hand without its second channel has no place in the page's width.
        return spec.width == 2 * len(spec.rates) or spec.odd == "zero"
    return isinstance(spec, Rotary) and spec.number_of_axes == 1


def data(audits: Iterable[Audit] = (), model: str | None = None) -> dict[str, Any]:
    """All that a page holds, as plain JSON values.

    Args:
        audits: What was found in each target; the page opens on the first ladder among them.
        model: The package of a small trained model that the page runs, ``glassllm``.

    Raises:
        InvalidValue: The package of the model is not installed.
        Unreadable: Its files are damaged.

    Returns:
        ``codes``, the state that the page starts with under ``start``, the audits under ``models`` in the form of
        ``clockhands audit --json`` with the changed lines of each fix, how many ``axes`` their codes have where it is
        more than one, their ``biases``, angles beyond a double's reach under ``precise``, and the model that the page
        runs under ``trained``, if there is one.
    """
    given = list(audits)
    models = [_model(each) for each in given]
    running = {} if model is None else {"trained": trained(model)}
    ladders = {PLAIN: cast(Sinusoidal, preset(PLAIN)).ladder} | _ladders(given)
    return {
        "codes": codes(),
        "start": _start(models),
        "models": models,
        "axes": _axes(given),
        "biases": model_biases(given),
        "precise": precise(ladders),
        **running,
    }


def _model(audit: Audit) -> dict[str, Any]:
    """An audit as JSON, where the edit of each problem also has the ``lines`` of the file that it removes and adds."""
    model = audit.to_dict()
    for told, finding in zip(model["findings"], audit.findings, strict=True):
        if finding.severity != "note" and told["edit"] is not None:
            told["edit"]["lines"] = list(changed_lines(audit, finding))
    return model


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


def _ladder(code: LayerEncoding) -> Ladder:
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


# Where hands stand beyond a page's double precision: once its last digit is a turn, `position * rate` says nothing


def precise(ladders: Mapping[str, Ladder]) -> dict[str, Any]:
    """Angles of some hands of each ladder at positions that a page cannot compute by itself, plain JSON values.

    Args:
        ladders: By the names that the page has for their codes.

    Returns:
        ``positions``, and for each ladder under ``codes`` its ``pairs`` and ``angles``, a list for each position of
        one angle in rad for each of these pairs, from -pi to pi.

    Accuracy: an angle is within ``2**-50`` rad of the real one.

    >>> from clockhands import preset
    >>> found = precise({"vaswani2017": preset("vaswani2017").ladder})["codes"]["vaswani2017"]
    >>> found["pairs"], round(found["angles"][0][0], 6)
    ([0, 51, 102, 153, 204, 255], -2.723843)
    """
    return {"positions": list(POSITIONS), "codes": {name: _of(ladder) for name, ladder in ladders.items()}}


def _of(ladder: Ladder) -> dict[str, Any]:
    last = ladder.pairs - 1
    pairs = sorted({round(last * step / (HANDS - 1)) for step in range(HANDS)})
    some = Ladder(tuple(ladder.exact[pair] for pair in pairs))
    return {"pairs": pairs, "angles": np.angle(units(some, positions_of(list(POSITIONS)))).tolist()}


# What each head adds to a score, by trained numbers where a file holds them


def model_biases(audits: Sequence[Audit]) -> list[dict[str, Any]]:
    """ALiBi's slopes and T5's buckets of each model, plain JSON values.

    Args:
        audits: What was found in each target. A table's trained numbers are read from the target once more, where it
            is a file or a folder.

    Returns:
        For each bias the ``model`` by its place, the ``part`` and ``layers`` that it belongs to, its ``spec`` as
        `clockhands.specs.to_dict` gives it, and its ``values``: ``{"table": rows}``, a number for each head in each
        row; None where it is computed, or the numbers cannot be read.
    """
    found: list[dict[str, Any]] = []
    for number, audit in enumerate(audits):
        own = [(code, code.spec) for code in audit.layers if isinstance(code.spec, Alibi | Buckets)]
        trained = _tables(audit.target) if any(spec.learned for _, spec in own) else {}
        for code, spec in own:
            table = trained.get((code.part, code.layers))
            found.append(
                {
                    "model": number,
                    "part": code.part,
                    "layers": code.layers,
                    "spec": to_dict(spec),
                    "values": None if table is None else {"table": table.tolist()},
                }
            )
    return found


def _tables(target: str) -> dict[tuple[str, str | None], np.ndarray]:
    """The trained tables of a target by part and layers; those that cannot be read are not among them."""
    if IN_FILE.fullmatch(target):
        held = sampled_codes(named_encoding(target), SAMPLED)
        sampled = [np.asarray(each.values, np.float64) for each in held if each.values is not None]
        return {("text", None): sampled[0]} if sampled else {}
    if not Path(target).exists():  # a preset, standard input, or a module that was loaded
        return {}
    try:
        held = list(held_codes(open_target(target)))
    except ClockhandsError:
        return {}
    return {
        (code.part, code.layers): np.asarray(one.values, dtype=np.float64)
        for code, one in held
        if one.values is not None and np.size(one.values) <= MOST_NUMBERS and np.ndim(one.values) == 2
    }
