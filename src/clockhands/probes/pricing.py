"""Measures what each position fault costs a trained model, in nats per token."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.auditing import audit
from clockhands.configs.resolved import TEXT
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Yarn
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.lab.kept_models import KeptModel
from clockhands.models.rotation_changes import (
    Change,
    Rotating,
    Waves,
    first_half,
    of_channels,
    of_other_layout,
    of_positions,
    of_queries,
    of_waves,
    rotating,
    together,
)
from clockhands.models.running_models import RunningModel
from clockhands.probes._paired_differences import BLOCK, ERRORS, FEWEST, LEAST, PairedDifference, difference
from clockhands.probes.results import Columns, EstimateRows, ProbeResult, Progress, Stopped

UNSEEN = 1e-5
"""Nats by which rounding alone may change the loss of a token in a small model."""

SHIFT = 1000
"""Tokens by which all positions are shifted."""


@dataclass(frozen=True)
class PricedFault:
    """A fault that can be put into a running model.

    Attributes:
        name: Its name in a report.
        says: What the model does with the fault, as text.
        code: The fault of `clockhands check` that it is; None where it is none by itself.
        change: Puts it in place.
        harmless: Whether a correct model must not change its loss with it.
    """

    name: str
    says: str
    code: str | None
    change: Change
    harmless: bool = False


@dataclass(frozen=True)
class Price:
    """What one fault costs.

    Attributes:
        fault: Which one.
        nats: The paired difference in nats per token.
    """

    fault: PricedFault
    nats: PairedDifference

    def to_dict(self) -> dict[str, Any]:
        """One element of ``prices`` in the JSON of a probe."""
        return {"fault": self.fault.name, "says": self.fault.says, "code": self.fault.code, **self.nats.to_dict()}


def rotary_faults(at: Rotating, declared: Rotary | None, context: int | None) -> Iterator[PricedFault]:
    """The faults that can be put into a rotary model.

    Args:
        at: Where it rotates.
        declared: The spec that its config declares, if that is one for all layers.
        context: Usable positions, for the scaling that is tried; None if they are not known.
    """
    yield PricedFault("rotation-off", "No query and key is rotated.", None, of_waves(_with_rates(torch.zeros_like)))
    yield PricedFault(
        "layout-swapped",
        f"Pairs are {'channels i and i + half' if at.layout == 'interleaved' else 'neighbouring channels'}.",
        "other-layout",
        of_other_layout,
    )
    base = _other_base(at)
    yield PricedFault(
        "another-base",
        f"The base is {base:,.0f}.",
        "another-base",
        of_waves(_with_rates(lambda it: _geometric(it, base))),
    )
    half = of_waves(_with_rates(_half_width))
    yield PricedFault(
        "half-width",
        "Half as many channels are rotated, with the frequencies of a head of that width.",
        "other-rotated-width",
        half if at.layout == "interleaved" else together(half, of_channels(first_half)),
    )
    if declared is not None and declared.scaling is not None:
        plain = torch.tensor(replace(declared, scaling=None, length=None).rates, dtype=torch.float64)
        yield PricedFault(
            "scaling-dropped",
            "Frequencies are not scaled.",
            "scaling-dropped",
            of_waves(lambda _: Waves(plain, 1.0)),
        )
    yield PricedFault(
        "linear-scaling-2",
        "All frequencies are divided by 2.",
        "another-scaling",
        of_waves(_with_rates(lambda it: it / 2)),
    )
    if declared is not None and declared.scaling is None and context is not None:
        scaled = replace(declared, scaling=Yarn(4.0, context))
        rates, factor = torch.tensor(scaled.rates, dtype=torch.float64), scaled.attention_factor
        for name, says, used in (
            ("yarn-4", f"YaRN with factor 4 over {context:,} positions is applied.", factor),
            ("yarn-4-without-factor", "The same without the attention factor of YaRN.", 1.0),
        ):
            yield PricedFault(name, says, "another-scaling", of_waves(lambda _, used=used: Waves(rates, used)))
    yield PricedFault(
        "slow-half-off", "The slower half of the pairs is not rotated.", None, of_waves(_with_rates(_slow_half_off))
    )
    yield PricedFault(
        "rounded-frequencies",
        "Frequencies are rounded to bfloat16.",
        None,
        of_waves(_with_rates(lambda it: it.bfloat16().double())),
    )
    yield PricedFault(
        "rounded-angles",
        "Angles (position x frequency) are rounded to bfloat16.",
        "positions-rounded",
        of_waves(angles=lambda it: it.bfloat16().double()),
    )
    yield PricedFault(
        "positions-shifted",
        f"All positions are {SHIFT:,} later; a rotary model computes the same.",
        None,
        of_positions(SHIFT),
        harmless=True,
    )
    if len(at.waves) == 1:
        yield PricedFault("queries-late", "Queries are one position later than keys.", None, of_queries(1.0))


def losses(model: nn.Module, windows: Tensor) -> np.ndarray:
    """Nats of each token but the first, [windows, tokens - 1]; one window at a time, without gradients."""
    found = []
    with torch.no_grad():
        for window in windows:
            logits = model(input_ids=window[None], use_cache=False).logits[0, :-1].float()
            found.append(nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    return torch.stack(found).double().numpy()


def price(
    nats: Callable[[Tensor], np.ndarray],
    at: Any,
    fault: PricedFault,
    windows: Tensor,
    sound: np.ndarray,
    *,
    unseen: float | None = None,
) -> Price | None:
    """The price of one fault; None if it changes no loss by more than ``unseen``.

    Args:
        nats: The losses of the model, [windows, tokens - 1].
        at: Where it rotates; None for a model that the lab kept.
        fault: What is put in place.
        windows: Token ids, [windows, tokens].
        sound: Losses without the fault.
        unseen: Nats that rounding may change; None gives every fault a price.
    """
    with fault.change(at):
        changed = nats(windows)
    if unseen is not None and np.abs(changed - sound).max() <= unseen:
        return None
    return Price(fault, difference(changed, sound))


def declared_rotary(model: RunningModel) -> Rotary | None:
    """The rotary spec that the config of a model declares; None where layers differ or it declares none."""
    try:
        layers = audit(model.module).layers
    except ClockhandsError:
        return None
    specs = {each.spec for each in layers if each.kind == "rotary" and each.part in TEXT}
    found = specs.pop() if len(specs) == 1 else None
    return found if isinstance(found, Rotary) else None


def kept_faults(model: KeptModel, length: int) -> Iterator[PricedFault]:
    """The encoding removed, and every fault that it can have, in a model that the lab kept.

    Raises:
        InvalidValue: It has no encoding, as after a drop.
    """
    if model.code.spec is None:
        raise InvalidValue(
            f"The arm {model.arm} has no position encoding at this step, so no fault has a price.",
            "Mechanism works without one.",
        )
    yield PricedFault("encoding-removed", "No position encoding.", None, lambda _: model.replaced(model.no_code))
    if model.added:
        says = "Each token gets the mean of all rows, not the row of its position."
        yield PricedFault("mean-row", says, None, lambda _: model.without_order())
    else:
        for layer in range(model.layers):
            says = f"Layer {layer} has no rotation and no bias."
            off = partial(model.replaced, model.no_code, [layer])
            yield PricedFault(f"layer-{layer}-removed", says, None, lambda _, off=off: off())
    for name, says, code in model.faults(length):
        faulty = partial(model.replaced, code)
        yield PricedFault(name, f"The encoding {says}.", name, lambda _, faulty=faulty: faulty())


def rotating_of(model: RunningModel, declared: Rotary | None) -> Rotating:
    """Where a model rotates, after checking that its loss can be measured.

    Raises:
        InvalidValue: It does not predict the next token, or its rotation cannot be reached.
    """
    if not model.predicts:
        raise InvalidValue(
            f"{type(model.module).__name__} does not predict the next token, so a fault has no price in nats.",
            "Measure the price on a causal language model; behaviour and mechanism work without.",
        )
    return rotating(model.module, declared)


def check_price(model: RunningModel) -> None:
    """Refuse a model that no fault can be put into, before any long work."""
    if isinstance(model, KeptModel):
        next(kept_faults(model, 1))
    else:
        rotating_of(model, None)


def measure_price(model: RunningModel, ids: Tensor, progress: Progress) -> ProbeResult:
    """What each fault of positions costs a rotary model, or any that the lab kept.

    Args:
        model: A causal language model of Transformers, or one that the lab kept, whose loss is that of its task.
        ids: Windows of token ids, [windows, tokens].
        progress: Called before each fault.

    Raises:
        InvalidValue: As `rotating_of`.
        Stopped: Ctrl-C; it holds the prices until then.
    """
    if isinstance(model, KeptModel):
        at: Any = None
        unseen = UNSEEN  # some faults are of other calls than whole sequences, which begin at position 0
        faults, nats = list(kept_faults(model, ids.shape[1])), model.losses
    else:
        unseen = None
        declared = declared_rotary(model)
        at = rotating_of(model, declared)
        faults, nats = list(rotary_faults(at, declared, model.context)), partial(losses, model.module)
    prices: list[Price] = []
    progress("the loss without a fault", 0.0)
    sound = nats(ids)
    try:
        for number, fault in enumerate(faults, 1):
            progress(fault.name, number / (len(faults) + 1))
            found = price(nats, at, fault, ids, sound, unseen=unseen)
            prices += [] if found is None else [found]
    except KeyboardInterrupt:
        raise Stopped(_priced(prices, sound, ids)) from None
    return _priced(prices, sound, ids)


def _priced(prices: Sequence[Price], sound: np.ndarray, ids: Tensor) -> ProbeResult:
    ordered = sorted(prices, key=lambda each: -each.nats.mean)
    rows = tuple(
        (each.fault.name, *each.nats.estimate, {True: "yes", False: "no", None: "not known"}[each.nats.visible])
        for each in ordered
    )
    count, length = ids.shape
    table = Columns(
        f"Price of each fault, nats per token, on {count} windows of {length:,} tokens",
        ("fault", "nats", "low", "high", "visible"),
        rows,
    )
    meanings = tuple((each.fault.name, each.fault.says) for each in ordered)
    meant = Columns("What the model does with each fault", ("fault", "what it does"), meanings)
    numbers = {
        "loss": float(sound.mean()), "windows": count, "length": length, "prices": [each.to_dict() for each in prices],
    }  # fmt: skip
    figure = EstimateRows(
        "Price of each fault", "nats per token", tuple((each.fault.name, *each.nats.estimate) for each in ordered)
    )
    answers = tuple(_answers(ordered, sound, length))
    return ProbeResult("price", answers, numbers, (table, meant), (figure,) if ordered else ())


def _answers(ordered: Sequence[Price], sound: np.ndarray, length: int) -> Iterator[str]:
    """The prices as sentences, the largest ones first."""
    blocks = min((each.nats.blocks for each in ordered), default=FEWEST)
    if blocks < FEWEST:
        windows, more = sound.shape[0], -(-FEWEST * sound.shape[0] // blocks)
        yield (
            f"No price can be judged: {windows} windows of {length:,} tokens are {blocks} blocks of about {BLOCK} "
            f"tokens, and an interval needs {FEWEST}. Give --windows {more} or a longer --length."
        )
        yield f"Loss without a fault: {sound.mean():.3f} nats per token."
        return
    shown = [each for each in ordered if each.nats.visible and not each.fault.harmless]
    if shown:
        named = ", ".join(f"{each.fault.name} {each.nats.mean:.3g}" for each in shown[:3])
        tried = sum(not each.fault.harmless for each in ordered)
        yield f"{len(shown)} of {tried} faults are visible; the most expensive in nats per token: {named}."
    elif ordered:
        yield (
            "No fault is visible: the loss of this model does not depend on its rotation, or the text is too short to "
            "show it."
        )
    for each in ordered:
        if each.fault.harmless and each.nats.visible:
            yield f"{each.fault.name} costs {each.nats.mean:.3g} nats per token. {each.fault.says} This model does not."
        elif each.fault.harmless:
            yield f"{each.fault.name} costs nothing ({each.nats.mean:.2g} nats per token), as a rotation should."
    hidden = [each.fault.name for each in ordered if not each.nats.visible and not each.fault.harmless]
    if hidden:
        yield (
            f"Windows of {length:,} tokens cannot show {', '.join(hidden)}: at most {LEAST} nats per token or "
            f"{ERRORS:.0f} standard errors. A longer window may (--length)."
        )
    yield f"Loss without a fault: {sound.mean():.3f} nats per token."


def _with_rates(change: Any) -> Any:
    return lambda waves: replace(waves, rates=change(waves.rates))


def _other_base(at: Rotating) -> float:
    """10,000, the base that most code falls back to; 500,000 where that is the model's own."""
    waves: Mapping[str, Waves] = at.waves
    own = torch.cat([each.rates for each in waves.values()])
    near = _geometric(own, 10_000.0) if len(waves) == 1 else own
    return 500_000.0 if len(waves) == 1 and torch.allclose(own, near, rtol=1e-3) else 10_000.0


def _geometric(rates: Tensor, base: float) -> Tensor:
    """Frequencies of a base; pairs that do not rotate stay so."""
    pairs = len(rates)
    made = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return torch.where(rates == 0, rates, made)


def _slow_half_off(rates: Tensor) -> Tensor:
    return torch.where(torch.arange(len(rates)) < len(rates) // 2, rates, 0.0)


def _half_width(rates: Tensor) -> Tensor:
    """The frequencies of a head of half the width in the first half of the pairs; the others do not rotate."""
    pairs = len(rates)
    half = torch.zeros_like(rates)
    half[: pairs // 2] = rates[::2][: pairs // 2]
    return half
