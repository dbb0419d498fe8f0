"""Measures the price of a finding: what its fault costs the audited model, in nats per token."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clockhands.auditing import Audit, Finding
from clockhands.auditing.fixes import codes_with_fix
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.models.rotation_changes import Change, Rotating, Waves, of_other_layout, of_waves
from clockhands.models.running_models import RunningModel
from clockhands.probes._paired_differences import PairedDifference, difference
from clockhands.probes.pricing import declared_rotary, losses, rotating_of
from clockhands.probes.results import Progress

_OF_LAYOUT = frozenset({"converted-layout", "pairing-against-format"})
_OF_BUFFERS = ("buffer-", "scaling-inert", "attention-factor-differs", "shared-object-mutated")


def with_prices(audited: Audit, model: RunningModel, ids: Tensor, progress: Progress) -> Audit:
    """An audit with the price beside each problem whose fault can be built.

    For a problem of the file it is the loss of the model as loaded, minus its loss with the fix of the finding in
    place. For a problem of runtimes it is the loss with the values that a runtime computes, minus the loss as loaded;
    for several runtimes, the largest.

    Args:
        audited: The audit of its files.
        model: The model, loaded from them.
        ids: Windows of token ids, [windows, tokens].
        progress: Called before each price.

    Raises:
        InvalidValue: The model does not predict the next token, or its rotation cannot be changed.
    """
    declared = declared_rotary(model)
    at = rotating_of(model, declared)
    progress("the loss as it is loaded", 0.0)
    own = losses(model.module, ids)
    priced: dict[int, Finding] = {}
    for number, found in enumerate(audited.problems, 1):
        progress(found.code, number / (len(audited.problems) + 1))
        prices: list[tuple[PairedDifference, str]] = []
        for change, wrong, says in _changes(found, audited, at):
            with change(at):
                changed = losses(model.module, ids)
            prices.append((difference(changed, own) if wrong else difference(own, changed), says))
        if prices:
            nats, says = max(prices, key=lambda each: each[0].mean)
            priced[id(found)] = replace(found, price={
                **nats.to_dict(), "windows": ids.shape[0], "length": ids.shape[1], "of": says,
            })  # fmt: skip
    return replace(audited, findings=tuple(priced.get(id(each), each) for each in audited.findings))


def _changes(found: Finding, audited: Audit, at: Rotating) -> list[tuple[Change, bool, str]]:
    """The change to apply, whether it is the wrong one of the two, and what is compared."""
    if found.code in _OF_LAYOUT:
        return [(of_other_layout, False, "as loaded, and with the other layout")]
    if len(at.waves) != 1:
        return []
    (held,) = at.waves.values()
    if found.blames == "reader":
        runtimes: dict[Waves, str] = {}
        for each in audited.readings:
            waves = _waves(each.codes, held) if each.verdict == "differs" else None
            if waves is not None and all(not _same(waves, other) for other in (held, *runtimes)):
                runtimes[waves] = each.title
        return [(of_waves(lambda _, waves=waves: waves), True, f"the values of {title}, and as loaded")
                for waves, title in runtimes.items()]  # fmt: skip
    if found.blames == "module" and found.code.startswith(_OF_BUFFERS):
        waves = _waves(audited.layers, held)
    else:
        waves = _waves(codes_with_fix(audited, found), held)
    if waves is None or _same(waves, held):
        return []
    return [(of_waves(lambda _: waves), False, "as loaded, and with the fix")]


def _waves(codes: Sequence[LayerEncoding], held: Waves) -> Waves | None:
    """The frequencies of a single rotary code for all layers; None for several codes, or another number of pairs."""
    text = [code for code in codes if code.part in TEXT and code.kind == "rotary" and code.rates]
    alike = {(code.rates, code.attention_factor) for code in text}
    if len(alike) != 1:
        return None
    ((rates, factor),) = alike
    if rates is None or len(rates) != len(held.rates):
        return None
    return Waves(torch.tensor(rates, dtype=torch.float64), factor or 1.0)


def _same(one: Waves, other: Waves) -> bool:
    return torch.allclose(one.rates, other.rates, rtol=1e-5, atol=0) and abs(one.factor - other.factor) < 1e-5
