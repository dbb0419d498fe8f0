"""Layers that read hidden states, not token ids: each id becomes a vector that was drawn at random."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing.generation._causal_models import CausalModel, logits_and_cache
from clockhands.testing.generation._started_caches import owners_of

_MOST_WIDTHS = 8


@dataclass(frozen=True)
class HiddenStateLayer:
    """A layer as a function of token ids.

    Attributes:
        layer: From hidden states to others.
        name: What it calls them; None where they are passed first.
        rows: The vector of each token, [tokens, width].
        axes: Those of hidden states before the width: ``"batch seq"``, ``"seq batch"``, or ``"seq"`` of one text.
    """

    layer: Callable[..., Any]
    name: str | None
    rows: Any
    axes: str

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Look up the rows of the tokens, and call the layer with them."""
        tokens = named.pop(self.name) if self.name is not None else arguments[0]
        if self.axes == "seq" and len(tokens) > 1:
            raise Refused("it takes one text at a time")
        states = self.rows[tokens[0] if self.axes == "seq" else tokens.T if self.axes == "seq batch" else tokens]
        if self.name is not None:
            answer = self.layer(**{self.name: states}, **named)
        else:
            answer = self.layer(states, *arguments[1:], **named)
        made, cache = logits_and_cache(answer)
        return made[None] if self.axes == "seq" else made.transpose(0, 1) if self.axes == "seq batch" else made, cache


def reading_states(model: CausalModel) -> CausalModel | None:
    """The model as one that reads token ids, if it is a layer of PyTorch that reads hidden states; else None."""
    for width in _widths(model.forward):
        rows = model.library.floats(np.random.default_rng(5).standard_normal((width, width)), "float32")
        for axes in ("batch seq", "seq batch", "seq"):
            made = _of_layer(model, rows, axes)
            # Without a mask, a layer that takes one may see later tokens, which says nothing of the layer.
            if _depends(made, 0, 2) and not ("mask" in made.takes and _depends(made, 2, 0)):
                return made
    return None


def _of_layer(model: CausalModel, rows: Any, axes: str) -> CausalModel:
    layer = HiddenStateLayer(model.forward, model.names.get("tokens"), rows, axes)
    return replace(model, forward=layer, vocabulary=len(rows))


def _depends(model: CausalModel, changed: int, place: int) -> bool:
    """Whether the answer to one of three tokens depends on another; not of a layer that cannot be called."""
    text = np.array([[1, 0, 1]])
    other = text.copy()
    other[0, changed] = 0
    try:
        one, another = (model(each)[0][0, place] for each in (text, other))
    except Refused:
        return False
    return not np.array_equal(one, another)


def _widths(forward: Any) -> Iterator[int]:
    """What the hidden states of a module may have channels: the sizes of its parameters, the first ones first."""
    sizes = [size for owner in owners_of(forward) for each in owner.parameters() for size in reversed(each.shape)]
    yield from [size for size in dict.fromkeys(sizes) if size > 1][:_MOST_WIDTHS]
