"""An engine as a module of PyTorch, so that its attention is checked beside a config as that of a model is."""

from typing import Any

import torch
from torch import Tensor, nn

from clockhands.recognition.calling import Refused
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._opened_models import opened
from clockhands.testing.generation._started_caches import modules_of


class EngineModule(nn.Module):
    """What is no module, such as an engine, as one that takes the token ids of one text."""

    def __init__(self, model: CausalModel) -> None:
        """Hold the modules that the engine holds."""
        super().__init__()
        self.model = model
        for number, each in enumerate(modules_of(model)):
            self.add_module(f"part_{'abcdefghijklmnopqrstuvwxyz'[number % 26]}", each)

    def forward(self, input_ids: Tensor) -> Any:
        """Logits [1, seq, vocabulary] of a new text [seq]."""
        if input_ids.ndim != 1:
            raise Refused("it takes one text at a time")
        return self.model.fresh().once()(input_ids[None].cpu().numpy())[0]


def engine_module(engine: Any, backend: Any = None) -> EngineModule | None:
    """The module of an engine of PyTorch; None for any other.

    Raises:
        CannotCheck: It cannot be called.
    """
    model = opened(engine, None, None, backend, None)
    named = type(type(engine).__name__, (EngineModule,), {})  # in messages it has the name of the engine
    return named(model).eval() if model.library.name == torch.__name__ else None
