"""What whole texts show: outputs beside those of shifted positions and of a reference, and losses by position."""

import itertools
from typing import Any

import numpy as np

from clockhands.auditing.findings import make_finding
from clockhands.models.compared_runs import LayerApart, WholePasses
from clockhands.models.layer_offsets import REMEDY
from clockhands.phrases import number_of
from clockhands.probes._live_result import LiveResult
from clockhands.probes._paired_differences import difference
from clockhands.probes.results import Curve

BANDS = 4
"""Of positions, in which losses are compared."""


def add_whole_passes(live: LiveResult, compared: WholePasses, *, relative: bool) -> None:
    """The first and the second test; ``relative``: whether a shift of all positions must not change outputs."""
    if compared.shifted:
        by, limit, kl = compared.by, compared.shift_limit, float(np.mean(compared.shifted))
        live.numbers["shift"] = {"by": by, "kl": kl, "limit": limit, "same": kl <= limit}
        does = "the outputs stay the same" if kl <= limit else "the outputs change"
        if not relative and kl > limit:
            does += ", as those of a model with absolute positions do"
        if relative and kl > limit and all(each.severity == "note" for each in live.findings):
            says = f"The outputs change when all positions are {by:,} later (mean KL {kl:.2g} nats), but a rotation "
            live.findings.append(make_finding("run-differs", {"says": f"{says}depends on distances only.", "kl": kl}))
        live.answers.append(f"All positions {by:,} later: {does} (mean KL {kl:.2g} nats, limit {limit:.2g}).")
    if compared.referred:
        _of_reference(live, compared)


def _of_reference(live: LiveResult, compared: WholePasses) -> None:
    """The second and the third test: outputs and losses beside those of the reference."""
    apart, limit, kl = compared.first, compared.rounding.kl, float(np.mean(compared.referred))
    first = None if apart is None else apart.layer
    same, made = kl <= limit, "rotation" if compared.rotated else "bias"
    live.numbers["reference"] = {"kl": kl, "limit": limit, "same": same, "first_layer": first}
    live.answers.append(
        f"Beside a {made} made by clockhands from the declared values: mean KL {kl:.2g} nats (limit {limit:.2g})"
        + ("." if same else f", the outputs differ{'' if first is None else f' from layer {first} on'}.")
    )
    if compared.losses:
        _bands(live, np.array(compared.losses))
    if (not same or first is not None) and all(each.severity == "note" for each in live.findings):
        says = f"In one pass over a text the outputs are not those of the declared {made} (mean KL {kl:.2g} nats)"
        evidence: dict[str, Any] = {"says": f"{says}.", "kl": kl}
        if apart is not None:
            evidence["says"] = f"{says}; queries and keys differ from layer {first} on.{_shift_in(apart)}"
        if apart is not None and None not in (apart.queries, apart.keys):
            evidence |= {"remedy": REMEDY}
        live.findings.append(make_finding("run-differs", evidence, None if first is None else str(first)))


def _shift_in(apart: LayerApart) -> str:
    """By how much queries and keys of a layer are rotated wrongly, as a sentence behind another one."""
    shifts = [("queries", apart.queries), ("keys", apart.keys)]
    told = [
        f"{of} are rotated {number_of(abs(by), 'token')} too {'far' if by > 0 else 'little'}" for of, by in shifts if by
    ]
    return f" In this layer {' and '.join(told)}." if told else ""


_CURVES = {"model": "loss", "reference": "reference"}


def _bands(live: LiveResult, losses: np.ndarray) -> None:
    """Losses [windows, model or reference, tokens] by band of positions."""
    tokens = losses.shape[-1]
    edges = np.linspace(0, tokens, BANDS + 1).astype(int)
    rows, bands = [], []
    for start, stop in itertools.pairwise(edges.tolist()):
        own, wanted = losses[:, 0, start:stop], losses[:, 1, start:stop]
        apart = difference(own, wanted)
        bands.append({
            "first": start, "last": stop - 1, "loss": float(own.mean()), "reference": float(wanted.mean()),
            "interval": apart.interval, "visible": apart.visible,
        })  # fmt: skip
        rows.append((f"{start:,} to {stop - 1:,}", float(own.mean()), float(wanted.mean()), apart.mean))
    live.numbers["bands"] = bands
    live.table("Loss by band of positions, nats per token", ("positions", "model", "reference", "difference"), rows)
    middle = tuple((start + stop) / 2 for start, stop in itertools.pairwise(edges.tolist()))
    curves = [Curve(name, middle, tuple(each[key] for each in bands)) for name, key in _CURVES.items()]
    live.figure("Loss by position", "position in tokens", "nats per token", *curves)
