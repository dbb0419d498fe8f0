"""Measures recall of a planted fact by its place and the text length, with and without scalings at test time.

A fact with a key of five digits is put into filler text, and the text ends with the question. The score is the mean
log-probability of the key's tokens, and whether each is the most probable one. The control is the same text without the
fact: what the model guesses there is not recall.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.scaling import Dynamic, Linear, Ntk, Scaling, Yarn
from clockhands.errors import InvalidValue
from clockhands.models.rotation_changes import Waves, of_waves, rotating
from clockhands.models.running_models import RunningModel, takes
from clockhands.probes.results import Progress

FACT, QUESTION = (
    "\nThe pass key is {key}. Remember it: {key} is the pass key.\n",
    "\nWhat is the pass key? The pass key is",
)
CUE, KEY = 4, 3
"""Tokens of a cue and of a key, where the model has no tokenizer and both are drawn."""


@dataclass(frozen=True)
class RecallPlan:
    """Where facts are planted, and in how long texts.

    Attributes:
        lengths: Tokens of each text; None for the length of the windows and, where it is at most `most`, twice the
            context.
        depths: Shares of the filler text before the fact.
        most: Tokens of the longest text that is chosen by itself.
        keys: How many keys are tried in each place.
        scalings: Names of the scalings that are tried at test time.
    """

    lengths: tuple[int, ...] | None = None
    depths: tuple[float, ...] = (0.1, 0.5, 0.9)
    most: int = 2048
    keys: int = 1
    scalings: tuple[str, ...] = ("linear", "ntk", "yarn", "dynamic")


@dataclass(frozen=True)
class Recalled:
    """Recall at one length and depth, mean over keys.

    Attributes:
        length: Tokens of the text.
        past: Whether that is past the declared context.
        depth: Share of the filler text before the fact; None for the text without the fact.
        scaling: Name of the scaling at test time; None without.
        factor: Its factor.
        log_probability: Nats per token of the key.
        greedy: Share of the keys of which every token is the most probable one.
    """

    length: int
    past: bool
    depth: float | None
    scaling: str | None
    factor: float | None
    log_probability: float
    greedy: float


def measure_recall(
    model: RunningModel, filler: Tensor, plan: RecallPlan, rows: int | None, progress: Progress
) -> tuple[tuple[Recalled, ...], tuple[str, ...]]:
    """Recall at every length and depth, and sentences on what was not measured, with the reason.

    Args:
        model: A model that predicts the next token.
        filler: Token ids of the text, [windows, tokens]; repeated where a text is longer.
        plan: What is tried.
        rows: Positions of the shortest table that is added to tokens; None without one.
        progress: Called as ``progress(what, share)`` before each length.
    """
    lengths, missing = _lengths(model, filler, plan, rows)
    found: list[Recalled] = []
    facts = [_fact(model, filler, number) for number in range(plan.keys)]
    scalings, why = _scalings(model) if plan.scalings else (None, None)
    missing += [why] if why else []
    for length in lengths:
        past = model.context is not None and length > model.context
        progress(f"recall of a planted fact in {length:,} tokens", 0.8)
        found += [_recalled(model.module, facts, filler, (length, past), depth) for depth in (None, *plan.depths)]
        factor = max(2.0, length / model.context) if model.context else 2.0
        middle = plan.depths[len(plan.depths) // 2]
        tried = scalings(factor, length) if scalings else ()
        for name, change in ((name, change) for name, change in tried if name in plan.scalings):
            for depth in plan.depths if past else (middle,):
                with change():
                    each = _recalled(model.module, facts, filler, (length, past), depth)
                found.append(replace(each, scaling=name, factor=factor))
    return tuple(found), tuple(missing)


def _lengths(model: RunningModel, filler: Tensor, plan: RecallPlan, rows: int | None) -> tuple[list[int], list[str]]:
    least, missing = 64, []
    wanted = list(plan.lengths or (filler.shape[1],))
    if plan.lengths is None and model.context is not None:
        if 2 * model.context <= plan.most:
            wanted.append(2 * model.context)
        elif rows is None:
            missing.append(
                f"Recall past the context of {model.context:,} tokens was not measured: a text of "
                f"{2 * model.context:,} tokens is longer than {plan.most:,}. Choose longer texts for recall."
            )
    for length in wanted:
        if length < least:
            missing.append(f"Recall was not measured in {length:,} tokens: fact and question need {least}.")
        elif rows is not None and length > rows:
            missing.append(f"Recall was not measured in {length:,} tokens: the position table has {rows:,} rows.")
    return [each for each in dict.fromkeys(wanted) if each >= least and (rows is None or each <= rows)], missing


@dataclass(frozen=True, eq=False)
class _PlantedFact:
    """Token ids of a fact, of the question and of the key, which is the answer."""

    fact: Tensor
    question: Tensor
    key: Tensor


def _fact(model: RunningModel, filler: Tensor, number: int) -> _PlantedFact:
    draw = np.random.default_rng(number)
    if model.encode is None:
        known = np.unique(filler.numpy())
        cue, key = (torch.from_numpy(draw.choice(known, size)) for size in (CUE, KEY))
        return _PlantedFact(torch.cat((cue, key, cue, key)), cue, key)
    key = str(draw.integers(10_000, 100_000))
    question = model.encode(QUESTION)
    answered = model.encode(f"{QUESTION} {key}")
    return _PlantedFact(
        torch.tensor(model.encode(FACT.format(key=key))),
        torch.tensor(question),
        torch.tensor(answered[len(question) :]),
    )


def _recalled(
    module: nn.Module, facts: list[_PlantedFact], filler: Tensor, length: tuple[int, bool], depth: float | None
) -> Recalled:
    scores = [_score(module, _text(filler, each, length[0], depth), each.key) for each in facts]
    mean, greedy = (float(np.mean(each)) for each in zip(*scores, strict=True))
    return Recalled(*length, depth, None, None, mean, greedy)


def _text(filler: Tensor, planted: _PlantedFact, length: int, depth: float | None) -> Tensor:
    fact = planted.fact[:0] if depth is None else planted.fact
    left = length - len(fact) - len(planted.question) - len(planted.key)
    words = filler.flatten()
    words = words.repeat(left // len(words) + 1)[:left]
    before = round((depth or 0.0) * left)
    return torch.cat((words[:before], fact, words[before:], planted.question, planted.key))


def _score(module: nn.Module, ids: Tensor, key: Tensor) -> tuple[float, bool]:
    last = len(key) + 1
    more = {"logits_to_keep": last} if takes(module, "logits_to_keep") else {}
    with torch.no_grad():
        logits = module(input_ids=ids[None], use_cache=False, **more).logits[0, -last:-1].float()
    chosen = logits.log_softmax(dim=-1)[torch.arange(len(key)), key]
    return float(chosen.mean()), bool((logits.argmax(dim=-1) == key).all())


def _scalings(model: RunningModel) -> tuple[Callable[[float, int], Iterator[tuple[str, Any]]] | None, str | None]:
    """Scalings at test time, each with a context manager that puts it in effect; or the reason why there are none."""
    try:
        at = rotating(model.module)
    except InvalidValue:
        return None, "Scalings at test time were not tried: the frequencies are not made by one known module."
    declared = getattr(at.rotary, "rope_type", "default")
    kinds = set(declared.values()) if isinstance(declared, Mapping) else {declared}
    ladders = [waves.geometric for waves in at.waves.values()]
    context, ladder = model.context, ladders[0] if len(ladders) == 1 else None
    if kinds != {"default"} or context is None or ladder is None:
        why = (
            f"the model has a scaling ({', '.join(sorted(map(str, kinds)))})"
            if kinds != {"default"}
            else "the model declares no context"
            if context is None
            else "its layers have not one base for all frequencies"
        )
        return None, f"Scalings at test time were not tried: {why}."

    def tried(factor: float, length: int) -> Iterator[tuple[str, Any]]:
        made: dict[str, Scaling] = {
            "linear": Linear(factor), "ntk": Ntk(factor), "yarn": Yarn(factor, context),
            "dynamic": Dynamic(factor, context),
        }  # fmt: skip
        for name, scaling in made.items():
            scaled = scaling(ladder, length)
            rates = torch.tensor(scaled.rates, dtype=torch.float64)
            change = of_waves(lambda waves, rates=rates, by=scaled: Waves(rates, waves.factor * by.attention_factor))
            yield name, partial(change, at)

    return tried, None
