"""A model whose calls are changed before it gets them, and which answers stay the same then."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import ExperimentRun, Unasked, shares
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._imposed_faults import ExpectedCall
from clockhands.testing.generation._key_places import KeyPlaces
from clockhands.testing.generation.texts import GenerationSubject

ROOM = 2.0
"""Rounding on both sides: of two answers that are compared."""


@dataclass(frozen=True)
class CallArguments:
    """What a call is given beside its tokens.

    Attributes:
        positions: [batch, seq], or None.
        mask: [batch, keys], [batch, seq, keys], or None.
        cache: The cache.
    """

    positions: np.ndarray | None
    mask: np.ndarray | None
    cache: Any


Change = Callable[[CallArguments], CallArguments]
Seen = Callable[[np.ndarray, np.ndarray | None, Any], None]


@dataclass
class ChangedModel(CausalModel):
    """A model that gets other arguments than it is passed, or whose caches are looked at.

    Attributes:
        own: The model itself.
        change: The change.
        seen: Called with the tokens and right positions of each call, if these are known, and the cache after it.
    """

    own: CausalModel = field(kw_only=True)
    change: Change = field(kw_only=True, default=lambda call: call)
    seen: Seen = field(kw_only=True, default=lambda _tokens, _positions, _cache: None)

    def fresh(self) -> "ChangedModel":
        """The same that was not asked anything, where it can be copied."""
        return replace(self, own=self.own.fresh())

    def answer_of(self, tokens: np.ndarray, positions: Any, mask: Any, cache: Any, keep: bool) -> tuple[Any, Any]:
        """See `CausalModel`."""
        given = self.change(CallArguments(positions, mask, cache))
        logits, kept = self.own.answer_of(tokens, given.positions, given.mask, given.cache, keep)
        right = positions
        if right is None and mask is not None and mask.ndim == 2:
            right = np.maximum(mask.cumsum(-1) - 1, 0)[:, -tokens.shape[1] :]
        self.seen(tokens, right, kept)
        return logits, kept


def unchanged(it: GenerationSubject, one: ExperimentRun, change: Change) -> bool:
    """Whether an experiment gives the answers that it gave if its calls are changed; false where none is."""
    changed: list[bool] = []

    def noted(call: CallArguments) -> CallArguments:
        made = change(call)
        changed.append(made is not call)
        return made

    under = replace(it, model=_around(it.model, change=noted))
    with suppress(Refused, Unasked):
        said = list(zip(one.experiment.run(under), one.answers, strict=True))
        alike = [shares(each.got, answer.got, ROOM * np.asarray(answer.allowed)) <= 1 for each, answer in said]
        return any(changed) and all(each.all() for each in alike)
    return False


def misplaced(it: GenerationSubject, one: ExperimentRun, places: KeyPlaces) -> bool:
    """Whether in some call of an experiment a cached key stands elsewhere than its token should.

    Of a batch it is asked of the last token of each text, which is none of padding on the left.
    """
    wrong: list[bool] = []

    def seen(tokens: np.ndarray, positions: np.ndarray | None, cache: Any) -> None:
        if positions is None or cache is None:
            return
        first = 0 if len(tokens) == 1 else tokens.shape[1] - 1
        for text in range(len(tokens)):
            found = places.of_last(cache, tokens[text, first:].tolist(), text)
            wrong.append(found is not None and bool((found != positions[text, first:]).any()))

    with suppress(Refused, Unasked):
        one.experiment.run(replace(it, model=_around(it.model, seen=seen)))
    return any(wrong)


def places_after_padding(it: GenerationSubject, one: ExperimentRun) -> list[tuple[ExpectedCall, np.ndarray]]:
    """Each call of a padded batch with the place of the last key of each text, [texts]; empty where some show none."""
    calls: list[tuple[ExpectedCall, np.ndarray | None]] = []
    memory: dict[str, Any] = {}

    def seen(tokens: np.ndarray, right: np.ndarray | None, cache: Any) -> None:
        if right is None or cache is None:
            return
        size, past = tokens.shape[1], sum(call.size for call, _ in calls)
        first = calls[0][0].size if calls else size
        call = ExpectedCall(
            right, past, past, first, len(calls), memory, padded=True, masked=True, unmasked=right[:, -1:] + 1
        )
        found = [places.of_last(cache, tokens[text, -1:].tolist(), text) for text in range(len(tokens))]
        shown = [each for each in found if each is not None]
        calls.append((call, np.concatenate(shown) if len(shown) == len(found) else None))

    with suppress(Refused, Unasked):
        places = KeyPlaces(it)
        one.experiment.run(replace(it, model=_around(it.model, seen=seen)))
    known = [(call, found) for call, found in calls if found is not None]
    return known if len(known) == len(calls) else []


def _around(model: CausalModel, **how: Any) -> ChangedModel:
    same = {each.name: getattr(model, each.name) for each in fields(CausalModel)}
    return ChangedModel(**same, own=model.fresh(), **how)


def clamped(limit: int) -> Change:
    """No position is larger than the limit."""

    def change(call: CallArguments) -> CallArguments:
        if call.positions is None or call.positions.max(initial=0) <= limit:
            return call
        return replace(call, positions=np.minimum(call.positions, limit))

    return change
