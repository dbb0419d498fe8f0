"""Measures what a trained model loses without its positions, shifted or shuffled, and what it recalls.

Measured are the loss by position, a shift of all positions, shuffled tokens, each position code removed from the whole
model and from one layer at a time, and the recall of a planted fact by depth and length. The unit is nats if the model
predicts tokens; the result names the loss. A difference compares the same tokens with and without the change, with a 95
% bootstrap interval over blocks of tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.configs.resolve import resolve
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.models.compared_runs import divergence
from clockhands.models.held_tensors import walked
from clockhands.models.layer_stacks import begun_at, kept_outputs, stacks
from clockhands.models.opened_modules import open_module
from clockhands.models.position_removals import Reached, all_removed, reached
from clockhands.models.running_models import RunningModel, runner, takes
from clockhands.phrases import listed
from clockhands.probes._paired_differences import ERRORS, PairedDifference, difference
from clockhands.probes._position_use import ROUNDING, PositionsUsed, positions_used
from clockhands.probes._recall import RecallPlan, measure_recall
from clockhands.probes._yardsticks import SAYS, Yardstick, yardstick
from clockhands.probes.results import Curve, GatheredResult, ProbeResult, Progress, kept_when_stopped

SHIFTS = (1, 1000)
SHIFTED_WINDOWS = 2
FIRST_BAND = 16
"""Positions before the first band ends; every later band is twice as long as what is before it."""


def measure_behaviour(
    model: RunningModel, ids: Tensor, progress: Progress, *, recall: RecallPlan | None = None
) -> ProbeResult:
    """Measure what a model does with its positions.

    Args:
        model: In evaluation mode.
        ids: Token ids, [windows, tokens].
        progress: Called as ``progress(what, share)`` before each step.
        recall: Where facts are planted; None for a small default.

    Raises:
        InvalidValue: The windows are shorter than 32 tokens, or the positions of the model cannot be changed.
        Stopped: An interrupt; it holds what was measured until then.
    """
    if ids.ndim != 2 or ids.shape[1] < 2 * FIRST_BAND:
        raise InvalidValue(
            f"Windows must be [windows, tokens] with at least {2 * FIRST_BAND} tokens, got {list(ids.shape)}.",
            "Choose a longer --length.",
        )
    module, run = model.module, runner(model.module)
    progress("whether the model uses positions", 0.0)
    used = positions_used(module, ids[0], run)
    declared = _declared(module)
    try:
        places: tuple[Reached, ...] = reached(module, run, ids[:1, :FIRST_BAND])
    except InvalidValue:
        if used.uses is not False:
            raise
        places = ()
    with all_removed(places):
        left = positions_used(module, ids[0], run)
    by = yardstick(model, ids, used.causal)
    work = _MeasuredModel(model, by, places, progress)
    progress("the unchanged model", 0.05)
    work.begin()
    found = GatheredResult(numbers={"unit": SAYS[by.kind], "tokens": list(ids.shape)})
    _of_code(found, used, left, declared, places)
    found.answers.insert(1, f"The measured quantity is the {SAYS[by.kind]}.")
    with kept_when_stopped(found, "behaviour"):
        for measure in (_of_bands, _of_shifts, _of_shuffling, _of_removal):
            measure(found, work)
        _of_recall(found, work, recall or RecallPlan())
    return found.result("behaviour")


class _MeasuredModel:
    """Shared by all measurements: the numbers of the unchanged model."""

    def __init__(self, model: RunningModel, by: Yardstick, places: Sequence[Reached], progress: Progress) -> None:
        self.model, self.by, self.places, self.progress = model, by, places, progress
        self.run = runner(model.module)
        self.sound: np.ndarray = np.zeros(0)
        self.states: list[Tensor] | None = None

    def begin(self) -> None:
        if not self.by.nats:
            self.states = [self.by.outputs(self.by.given(number)) for number in range(len(self.by.windows))]
        self.sound = self.by.all_numbers(like=self.states)

    def apart(self, shuffled: Tensor | None = None) -> PairedDifference:
        """The difference caused by the change that is in effect now."""
        return difference(self.by.all_numbers(shuffled, self.states), self.sound)

    @property
    def unit(self) -> str:
        return "nats per token" if self.by.nats else "of cosine distance"


def _declared(module: Any) -> bool | None:
    """Whether the config declares a code of the tokens' positions; None where that cannot be read."""
    try:
        codes = resolve(open_module(module, walked(module))).codes
    except ClockhandsError:
        return None
    kinds = {code.kind for code in codes if code.part in ("text", "encoder", "decoder")}
    if kinds - {"none", None}:
        return True
    return None if None in kinds else False


def _of_code(
    part: GatheredResult,
    used: PositionsUsed,
    left: PositionsUsed,
    declared: bool | None,
    places: Sequence[Reached],
) -> None:
    names = listed(dict.fromkeys(place.code for place in places)) if places else ""
    largest = max((used.added, *used.layers, used.whole or 0.0))
    if used.uses is None:
        part.answers.append("Whether the model uses positions cannot be determined: none of its layers was found.")
    elif not used.uses:
        part.answers.append(
            f"The model has no position code: permuted inputs change the output of no layer by more than {largest:.1g} "
            "of its length, which is rounding."
        )
    elif declared is False:
        part.answers.append(
            f"The model has a position code that its config does not declare: {_where(used)} (change of up to "
            f"{largest:.2g} of an output's length when inputs are permuted)."
        )
    else:
        part.answers.append(f"The model uses positions: {_where(used)} (change of up to {largest:.2g}).")
    without = [path for path in used.paths if path not in used.in_layers]
    if used.uses and used.in_layers and without:
        part.answers.append(f"{len(without)} of {len(used.paths)} layers use no positions: {', '.join(without)}.")
    if used.uses and left.uses:
        part.answers.append(
            f"With {names or 'nothing'} removed, a position code remains: {_where(left)}. What removal costs below is "
            "not the price of all positions."
        )
    part.numbers["positions"] = {
        "uses": used.uses, "declared": declared, "reached": [place.code for place in places], "causal": used.causal,
        "added": used.added, "whole": used.whole, "layers": dict(zip(used.paths, used.layers, strict=True)),
        "rounding": ROUNDING, "remains": left.uses,
    }  # fmt: skip


def _where(used: PositionsUsed) -> str:
    parts = []
    if used.added > ROUNDING:
        parts.append("something is added to the tokens by position")
    if used.in_layers:
        count = len(used.in_layers)
        parts.append(f"attention depends on the order in {count} of {len(used.paths)} layers")
    return " and ".join(parts) or "outputs depend on the order of the tokens"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _bands(last: int) -> Iterator[tuple[int, int]]:
    """Ranges of positions: 0 to 15, 16 to 31, 32 to 63 and so on."""
    first, end = 0, FIRST_BAND
    while first < last:
        yield first, min(end, last)
        first, end = end, 2 * end


def _of_bands(part: GatheredResult, work: _MeasuredModel) -> None:
    by = work.by
    if not by.nats:
        part.answers.append("Loss by position was not measured: the model has no logits of tokens.")
        return
    rows, places = [], by.places.numpy()
    offset = 0 if by.kind != "second-half" else by.windows.shape[1] // 2
    for first, end in _bands(by.windows.shape[1]):
        inside = (places >= first) & (places < end)
        if not inside.any():
            continue
        numbers = work.sound[inside]
        found = _mean(work.sound, inside)
        rows.append(
            {"first": first + offset, "last": end - 1 + offset, "nats": found.mean, "interval": found.interval,
             "tokens": len(numbers)}
        )  # fmt: skip
    part.numbers["bands"] = rows
    part.table(
        "Loss by position (nats per token)",
        ("positions", "nats", "low", "high", "tokens"),
        ((f"{r['first']}-{r['last']}", r["nats"], *(r["interval"] or (None, None)), r["tokens"]) for r in rows),
    )
    middles = tuple((row["first"] + row["last"]) / 2 for row in rows)
    part.figure(
        "Loss by position",
        "position (token)",
        "nats per token",
        Curve("mean loss", middles, tuple(row["nats"] for row in rows)),
    )
    part.answers.append(
        f"Loss is {rows[0]['nats']:.2f} nats at positions {rows[0]['first']} to {rows[0]['last']} and "
        f"{rows[-1]['nats']:.2f} at {rows[-1]['first']} to {rows[-1]['last']}."
    )


def _mean(numbers: np.ndarray, inside: np.ndarray) -> PairedDifference:
    """The mean of the numbers at some places, which may differ between windows."""
    least = int(inside.sum(axis=1).min())
    if least == 0:
        return difference(numbers[inside][None], np.zeros((1, int(inside.sum()))))
    kept = np.stack([row[where][:least] for row, where in zip(numbers, inside, strict=True)])
    return difference(kept, np.zeros_like(kept))


def _of_shifts(part: GatheredResult, work: _MeasuredModel) -> None:
    by = work.by
    codes = {place.code for place in work.places}
    if not takes(work.model.module, "position_ids") or not codes & {"rotary", "table"}:
        part.answers.append("Positions were not shifted: the model takes distances between tokens, and no positions.")
        return
    if by.kind == "second-half":
        part.answers.append("Positions were not shifted: encoder and decoder take no positions as arguments.")
        return
    context, first = work.model.context, _first(work.places)
    tokens = by.windows.shape[1]
    if context is not None and tokens + first + 1 > context:
        tokens = context // 2
    room = None if context is None else context - first - tokens
    shifts = sorted({k for k in (*SHIFTS, room or 0) if k > 0 and (room is None or k <= room)})
    found: dict[int, list[tuple[float | None, np.ndarray]]] = {k: [] for k in shifts}
    sound = []
    for number in range(min(SHIFTED_WINDOWS, len(by.windows)) if shifts else 0):
        work.progress(f"all positions shifted, window {number + 1}", 0.1)
        ids = by.given(number)[:tokens]
        own = torch.arange(len(ids))[None] + first
        plain = by.outputs(ids, position_ids=own)
        sound.append(_of_part(by, number, plain, None))
        for k in shifts:
            moved = by.outputs(ids, position_ids=own + k)
            apart = divergence(plain, moved) if by.nats else None
            found[k].append((apart, _of_part(by, number, moved, plain)))
    rows = []
    for k, windows in found.items():
        width = min(len(each) for each in sound)  # of masked tokens, a beginning has more or fewer
        apart = difference(
            *(np.stack([each[:width] for each in every]) for every in ([it for _, it in windows], sound))
        )
        kl = float(np.mean([each for each, _ in windows if each is not None])) if by.nats else None
        rows.append(
            {"by": k, "kl": kl, "nats": apart.mean, "interval": apart.interval, "visible": apart.visible}
        )  # fmt: skip
    part.numbers["shifts"] = rows
    part.table(
        f"All positions shifted, {tokens:,} tokens (KL in nats; difference in {work.unit})",
        ("shift", "mean KL", "difference", "low", "high"),
        ((r["by"], r["kl"], r["nats"], *(r["interval"] or (None, None))) for r in rows),
    )
    if rows:
        worst = max(rows, key=lambda row: abs(row["nats"]))
        kl = f", mean KL {max(row['kl'] for row in rows):.2g}" if by.nats else ""
        tried = listed(f"{row['by']:,}" for row in rows)
        part.answers.append(
            f"A shift of all positions by {tried} changes at most "
            f"{worst['nats']:+.4f} {work.unit} (by {worst['by']:,}){kl}."
        )


def _of_part(by: Yardstick, number: int, outputs: Tensor, like: Tensor | None) -> np.ndarray:
    """The numbers of the beginning of a window."""
    tokens = len(outputs)
    whole = by.windows.shape[1]
    if tokens == whole:
        return by.numbers(number, outputs, like=like).double().numpy()
    windows = by.windows[:, :tokens]
    places = by.places[number]
    begun = Yardstick(by.kind, by.module, windows, places[places < tokens][None].expand(len(windows), -1), by.mask)
    return begun.numbers(number, outputs, like=like).double().numpy()


def _first(places: Sequence[Reached]) -> int:
    """The first used row of a table: RoBERTa's tables begin with a padding row."""
    rows = [
        getattr(module, "padding_idx", None) for place in places if place.kind == "table" for module in place.modules
    ]
    return max((each + 1 for each in rows if each is not None), default=0)


def _of_shuffling(part: GatheredResult, work: _MeasuredModel) -> None:
    work.progress("tokens shuffled", 0.15)
    tokens = work.by.windows.shape[1]
    found = work.apart(torch.randperm(tokens, generator=torch.Generator().manual_seed(0)))
    part.numbers["shuffled"] = _shown(found)
    part.answers.append(f"Shuffled tokens: {_said(found, work)}.")


def _shown(found: PairedDifference) -> dict[str, Any]:
    return {**found.to_dict(), "error": found.error}


def _said(found: PairedDifference, work: _MeasuredModel) -> str:
    interval = found.interval
    between = "" if interval is None else f" (95 % interval {interval[0]:.3f} to {interval[1]:.3f})"
    return f"{found.mean:+.3f} {work.unit}{between}"


def _of_removal(part: GatheredResult, work: _MeasuredModel) -> None:
    removed, rows = {}, []
    for place in work.places:
        for how in place.removals:
            name = f"{place.code} {how}"
            work.progress(f"{name} in the whole model", 0.2)
            with place.removed(how):
                found = work.apart()
            removed[name] = _shown(found)
            rows.append((name, *found.estimate))
            part.answers.append(f"{_capital(name)} in the whole model: {_said(found, work)}.")
    part.numbers["removed"] = removed
    if rows:
        part.table(
            f"Position codes removed in the whole model ({work.unit})", ("removed", "difference", "low", "high"), rows
        )
    for place in work.places:
        if place.layers:
            _layer_by_layer(work, place, part)
        else:
            part.answers.append(
                "The table is added once before the first layer, so no layer can be left without it alone."
            )


def _layer_by_layer(work: _MeasuredModel, place: Reached, part: GatheredResult) -> None:
    """Remove the code from one layer at a time; earlier layers are not computed again."""
    found = stacks(work.model.module, work.run, work.by.windows[:1, :FIRST_BAND])
    at = [_layer_of(found, module) for module in place.modules]
    numbers: list[list[Tensor]] = [[] for _ in place.modules]
    for window in range(len(work.by.windows)):
        work.progress(f"{place.code} removed in each of {place.layers} layers, window {window + 1}", 0.25)
        ids = work.by.given(window)
        kept: dict[str, list[Any]] = {}
        with ExitStack() as stack:
            for each in found:
                kept[each.path] = stack.enter_context(kept_outputs(each))
            same = work.by.outputs(ids)
        for layer, where in enumerate(at):
            with place.removed("off", [layer]), _resumed(where, kept):
                outputs = work.by.outputs(ids)
            like = None if work.by.nats else same
            numbers[layer].append(work.by.numbers(window, outputs, like=like))
    differences = [difference(torch.stack(each).double().numpy(), work.sound) for each in numbers]
    names = [str(layer) if where is None else f"{where[0].path}.{where[1]}" for layer, where in enumerate(at)]
    apart = [
        name for name, each in zip(names, differences, strict=True)
        if np.isfinite(each.error) and each.mean > ERRORS * each.error and each.mean > 0
    ]  # fmt: skip
    part.numbers[f"{place.code} by layer"] = {
        "layers": {name: _shown(each) for name, each in zip(names, differences, strict=True)}, "apart": apart,
    }  # fmt: skip
    part.table(
        f"{_capital(place.code)} removed in one layer ({work.unit})",
        ("layer", "difference", "low", "high", "over 3 standard errors"),
        (
            (name, *each.estimate, "yes" if name in apart else "no")
            for name, each in zip(names, differences, strict=True)
        ),
    )
    part.figure(
        f"{_capital(place.code)} removed in one layer",
        "layer",
        work.unit,
        Curve("difference", tuple(map(float, range(len(names)))), tuple(each.mean for each in differences)),
    )
    most = int(np.argmax([each.mean for each in differences]))
    part.answers.append(
        f"{_capital(place.code)} removed in one layer: {len(apart)} of {len(names)} layers lose more than "
        f"{ERRORS:.0f} standard errors, most of all {names[most]} ({_said(differences[most], work)})."
    )


def _layer_of(found: Sequence[Any], module: Any) -> tuple[Any, int] | None:
    """The stack and the number of the layer that holds a module."""
    for stack in found:
        for number, layer in enumerate(stack.layers):
            if any(each is module for each in layer.modules()):
                return stack, number
    return None


@contextmanager
def _resumed(where: tuple[Any, int] | None, kept: dict[str, list[Any]]) -> Iterator[None]:
    if where is None:
        yield
        return
    stack, number = where
    with begun_at(stack, number, kept[stack.path]):
        yield


def _of_recall(part: GatheredResult, work: _MeasuredModel, plan: RecallPlan) -> None:
    if work.by.kind != "next":
        part.answers.append("Recall was not measured: the model does not predict the next token.")
        return
    tables = [module for place in work.places if place.kind != "handed" for module in place.modules]
    rows = work.model.context if tables else None
    found, missing = measure_recall(work.model, work.by.windows, plan, rows, work.progress)
    part.numbers["recall"] = [asdict(each) for each in found]
    part.numbers["recall not measured"] = list(missing)
    if found:
        part.table(
            "Recall of a planted fact (log-probability in nats per token of the key)",
            ("tokens", "depth", "scaling", "log-probability", "greedy match"),
            (
                (
                    each.length,
                    "without the fact" if each.depth is None else f"{each.depth:.0%}",
                    each.scaling or "",
                    each.log_probability,
                    each.greedy,
                )
                for each in found
            ),
        )
    for length in dict.fromkeys(each.length for each in found):
        here = [each for each in found if each.length == length and each.scaling is None]
        planted = [each for each in here if each.depth is not None]
        without = next(each for each in here if each.depth is None)
        where = "past" if without.past else "inside"
        part.answers.append(
            f"In {length:,} tokens, {where} the context, the planted key is recalled at "
            f"{sum(each.greedy == 1 for each in planted)} of {len(planted)} depths (log-probability "
            f"{np.mean([each.log_probability for each in planted]):.2f} per token, {without.log_probability:.2f} "
            "without the fact)."
        )
        scaled = [each for each in found if each.length == length and each.scaling is not None]
        if scaled:
            mean = {
                name: np.mean([each.log_probability for each in scaled if each.scaling == name])
                for name in dict.fromkeys(each.scaling for each in scaled)
            }
            part.answers.append(
                f"With a scaling at test time (factor {scaled[0].factor:g}) in {length:,} tokens, the log-probability "
                f"is {listed(f'{each:.2f} with {name}' for name, each in mean.items())}."
            )
    part.answers += missing
