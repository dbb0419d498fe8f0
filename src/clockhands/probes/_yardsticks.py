"""The scale on which a change of positions is measured: nats of tokens if the model predicts, else cosines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.models.running_models import RunningModel, takes
from clockhands.probes._position_use import outputs_of

Kind = Literal["next", "masked", "second-half", "states"]
MASKS = ("[MASK]", "<mask>")
SHARE = 0.15
"""Share of the tokens that are masked, as in BERT's training."""

SAYS: dict[Kind, str] = {
    "next": "loss of the next token, in nats per token",
    "masked": "loss of masked tokens (15 % of the tokens), in nats per masked token",
    "second-half": "loss of the second half of each window, given the first half in the encoder, in nats per token",
    "states": "change of the final hidden states (1 - cosine), because the model has no logits of tokens, or its mask "
    "token is not known",
}


@dataclass(frozen=True, eq=False)
class Yardstick:
    """How outputs become one number for each token.

    Attributes:
        kind: ``next``, ``masked``, ``second-half`` (encoder and decoder) or ``states``.
        module: The model.
        windows: Token ids, [windows, tokens].
        places: The position of each number, [windows, numbers].
        mask: The token that is put over masked ones.
    """

    kind: Kind
    module: nn.Module
    windows: Tensor
    places: Tensor
    mask: int | None = None

    @property
    def nats(self) -> bool:
        """Whether the numbers are nats, and not cosines."""
        return self.kind != "states"

    def given(self, number: int, shuffled: Tensor | None = None) -> Tensor:
        """Token ids of a window as input of the model; `shuffled` is an order for all its tokens."""
        ids = self.windows[number]
        if self.kind == "second-half":
            half = len(ids) // 2
            first = ids[:half] if shuffled is None else ids[:half][shuffled[shuffled < half]]
            return torch.cat((first, ids[half:]))
        if self.kind != "masked":
            return ids if shuffled is None else ids[shuffled]
        hidden = torch.zeros(len(ids), dtype=torch.bool)
        hidden[self.places[number]] = True
        ids = ids.clone()
        if shuffled is not None:
            ids[~hidden] = ids[shuffled[~hidden[shuffled]]]
        assert self.mask is not None
        ids[hidden] = self.mask
        return ids

    def outputs(self, ids: Tensor, **more: Any) -> Tensor:
        """Logits, or final hidden states, [tokens, ...]."""
        with torch.no_grad():
            if self.kind == "second-half":
                first, labels = _halves(ids)
                module: Any = self.module
                before = module.prepare_decoder_input_ids_from_labels(labels[None])
                return module(input_ids=first[None], decoder_input_ids=before, use_cache=False, **more).logits[0]
            return outputs_of(self.module(input_ids=ids[None], use_cache=False, **more))[0]

    def numbers(
        self, number: int, outputs: Tensor, shuffled: Tensor | None = None, like: Tensor | None = None
    ) -> Tensor:
        """One number for each place of a window; `like` are the unchanged outputs, for cosines."""
        ids = self.windows[number]
        if self.kind == "next":
            goal = ids if shuffled is None else ids[shuffled]
            return nn.functional.cross_entropy(outputs[:-1].float(), goal[1:], reduction="none")
        if self.kind == "masked":
            at = self.places[number]
            return nn.functional.cross_entropy(outputs[at].float(), ids[at], reduction="none")
        if self.kind == "second-half":
            return nn.functional.cross_entropy(outputs.float(), _halves(ids)[1], reduction="none")
        same = outputs if like is None else like
        back = outputs if shuffled is None else outputs[shuffled.argsort()]
        return 1 - nn.functional.cosine_similarity(back.double(), same.double(), dim=-1)

    def all_numbers(self, shuffled: Tensor | None = None, like: list[Tensor] | None = None) -> np.ndarray:
        """The numbers of all windows, [windows, numbers]."""
        found = []
        for number in range(len(self.windows)):
            outputs = self.outputs(self.given(number, shuffled))
            same = None if like is None else like[number]
            found.append(self.numbers(number, outputs, shuffled, same))
        return torch.stack(found).double().numpy()


def yardstick(model: RunningModel, windows: Tensor, causal: bool) -> Yardstick:
    """Choose the yardstick for a model.

    Args:
        model: The model.
        windows: Token ids, [windows, tokens].
        causal: Whether its outputs depend on earlier tokens alone.
    """
    module, tokens = model.module, windows.shape[1]
    everywhere = torch.arange(tokens).expand(len(windows), -1)
    if getattr(getattr(module, "config", None), "is_encoder_decoder", False) and _has_labels(module):
        return Yardstick("second-half", module, windows, everywhere[:, : tokens - tokens // 2])
    with torch.no_grad():
        result = module(input_ids=windows[:1], use_cache=False)
    logits = getattr(result, "logits", None)
    of_tokens = isinstance(logits, Tensor) and logits.ndim == 3 and logits.shape[-1] > int(windows.max())
    if of_tokens and causal:
        return Yardstick("next", module, windows, everywhere[:, 1:])
    mask = _mask(model.encode) if of_tokens else None
    if mask is None:
        return Yardstick("states", module, windows, everywhere)
    drawn = [
        torch.randperm(tokens, generator=torch.Generator().manual_seed(number))[: max(1, round(SHARE * tokens))]
        for number in range(len(windows))
    ]
    return Yardstick("masked", module, windows, torch.stack(drawn).sort(dim=-1).values, mask)


def _halves(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[: len(ids) // 2], ids[len(ids) // 2 :]


def _has_labels(module: nn.Module) -> bool:
    return hasattr(module, "prepare_decoder_input_ids_from_labels") and takes(module, "labels")


def _mask(encode: Callable[[str], list[int]] | None) -> int | None:
    for text in MASKS if encode is not None else ():
        assert encode is not None
        ids = encode(text)
        if len(ids) == 1 and ids != encode("\uffff"):
            return ids[0]
    return None
