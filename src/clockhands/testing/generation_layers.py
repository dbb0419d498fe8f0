"""Where a model's layers part: the first whose output with a cache is another one than in one pass."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from clockhands.calling import Refused, as_numpy
from clockhands.testing.experiments import Unasked
from clockhands.testing.generation_calling import Model, TransformersModel
from clockhands.testing.generation_subject import Subject

# Hidden states may be off by a larger share of their size than the logits, which are normed before.
_ROOM = 8.0


def parted(it: Subject) -> tuple[str, int] | None:
    """The name of the first layer that answers otherwise one token at a time, and the first position at which it does.

    None where the model shows no layers, or they do not part.
    """
    text, half = it.texts[0], len(it.texts[0]) // 2
    with suppress(Refused, Unasked):
        whole, pieces = it.model.fresh(), it.model.fresh()
        at = np.arange(len(text))[None] if "positions" in it.model.takes else None
        with _heard(whole) as one:
            whole(text[None], at)
        with _heard(pieces) as many:
            cache = None
            for start, stop in [(0, half), *((step, step + 1) for step in range(half, len(text)))]:
                _, cache = pieces(text[None, start:stop], None if at is None else at[:, start:stop], None, cache)
        share = it.allowed / max(float(np.abs(it.wanted[0]).max()), it.allowed)
        for name, said in one.items():
            wanted, got = said[0], np.concatenate(many[name])
            off = np.abs(got - wanted).max(axis=-1) > _ROOM * share * np.abs(wanted).max()
            if off.any():
                return name, int(np.argmax(off))
    return None


@contextmanager
def _heard(model: Model) -> Iterator[dict[str, list[np.ndarray]]]:
    """What each layer answers, [tokens, width] a call, while this lasts."""
    said: dict[str, list[np.ndarray]] = {}
    hooks = []
    for name, layer in _layers(model):
        answers = said.setdefault(name, [])

        def heard(_: Any, __: Any, answer: Any, answers: list[np.ndarray] = answers) -> None:
            hidden = answer[0] if isinstance(answer, tuple) else answer
            answers.append(as_numpy(hidden).astype(np.float64).reshape(-1, hidden.shape[-1]))

        hooks.append(layer.register_forward_hook(heard))
    try:
        yield said
    finally:
        for hook in hooks:
            hook.remove()


def _layers(model: Model) -> list[tuple[str, Any]]:
    """The layers of a model of Transformers: the longest list of modules in it."""
    if not isinstance(model, TransformersModel):
        return []
    lists = [(name, one) for name, one in model.model.named_modules() if type(one).__name__ == "ModuleList"]
    name, layers = max(lists, key=lambda one: len(one[1]), default=("", []))
    return [(f"{name}.{place}", layer) for place, layer in enumerate(layers)]
