"""An encoding of one's own (`clockhands.encodings.protocols`) as a module, with the interface of every other code."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from clockhands.encodings.protocols import accepted, methods_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.torch._interface import PositionModule, Prepared, check_prepare


class OwnEncoding(PositionModule):
    """An encoding of one's own as a module.

    Attributes:
        layers: The objects: one that all layers share, or one for each layer.

    Args:
        layers: As above. Those that are modules become parts of this one, with their learned numbers.

    Raises:
        InvalidType: An object has no method of the protocol.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.spec: Any = None
        self.methods: tuple[str, ...] = methods_of(layers[0])
        self.modules_of_layers: nn.ModuleList = nn.ModuleList(each for each in layers if isinstance(each, nn.Module))
        self._plain = [each for each in layers if not isinstance(each, nn.Module)]

    @property
    def layers(self) -> list[Any]:
        """The objects."""
        return [*self.modules_of_layers, *self._plain]

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """``x`` [..., seq, width] with its positions, if the encoding is added to the tokens; else ``x`` itself."""
        first = self.layers[0]
        if "add" in self.methods:
            return first.add(x, _whole(x.shape[-2] if positions is None else positions, x))
        if "embed" in self.methods:
            rows = first.embed(_whole(x.shape[-2] if positions is None else positions, x), x.shape[-1])
            return x + rows.to(x)
        return x

    def prepare(self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True) -> "PreparedEncoding":
        """What attention needs, for as many queries as keys; see `clockhands.torch.PositionModule.prepare`."""
        check_prepare(like, causal)
        if keys is not None:
            raise InvalidValue(
                "An encoding of one's own is prepared for queries and keys at the same positions.",
                "Leave `keys` out: tokens of the past are given again.",
            )
        return PreparedEncoding(self.layers, self.methods, _whole(queries, like), causal)


class PreparedEncoding:
    """`Prepared` of an encoding of one's own; `layer` gives that of a layer."""

    def __init__(self, layers: list[Any], methods: tuple[str, ...], positions: torch.Tensor, causal: bool) -> None:
        self._layers, self._methods, self._positions, self._causal = layers, methods, positions, causal
        self._bias: dict[int, torch.Tensor] = {}

    def layer(self, index: int) -> Prepared:
        """The `Prepared` of layer ``index``, counted from 0."""
        encoding = self._layers[index % len(self._layers)]
        return _PreparedLayer(encoding, self._methods, self._positions, self._causal, self._bias)


class _PreparedLayer(Prepared):
    """What one layer needs. `turn` is called before `attend`: a bias may depend on its queries and keys."""

    def __init__(
        self, encoding: Any, methods: tuple[str, ...], positions: torch.Tensor, causal: bool, known: dict[int, Any]
    ) -> None:
        super().__init__(None, is_causal=causal and len(positions) > 1)
        self._encoding, self._methods, self._positions, self._known = encoding, methods, positions, known
        self._given: dict[str, Any] = {}

    def turn(
        self, queries: torch.Tensor, keys: torch.Tensor, seq_axis: int = -2, *, x: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [batch, heads, seq, head_width] with their positions; the bias becomes the mask."""
        at = self._positions
        self._given = {"q": queries, "k": keys, "x": x}
        if "bias" in self._methods:
            self._add_bias(queries, keys, x)
        if "rotate" in self._methods:
            rotate = self._encoding.rotate
            queries, keys = rotate(queries, keys, at, **accepted(rotate, x=x))
        return queries, keys

    def _add_bias(self, queries: torch.Tensor, keys: torch.Tensor, x: torch.Tensor | None) -> None:
        bias, at = self._encoding.bias, self._positions
        more = accepted(bias, q=queries, k=keys, x=x)
        made = self._known.get(id(self._encoding))
        if made is None:
            made = bias(at, at, queries.shape[1], **more)
            if not made.is_floating_point():
                raise InvalidType(
                    f"`bias` must return a tensor of floats, got {made.dtype}.", "Add minus infinity to hide a key."
                )
            made = made.to(queries.dtype)
            made = made if made.dim() == 4 else made[None]
            if self.is_causal:
                made = made.masked_fill(_later(made), -math.inf)
            if not more:  # the same numbers for every layer that shares the object
                self._known[id(self._encoding)] = made
        # What an arm has set before, such as a window.
        self.mask: torch.Tensor | None = made if self.mask is None else made + self.mask
        self.is_causal = False

    def attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, **more: Any) -> torch.Tensor:
        """Attention with this encoding: of ``scores`` alone in its exact form, else as `Prepared.attend`."""
        if {"rotate", "bias"} & set(self._methods) or "scores" not in self._methods:
            return super().attend(queries, keys, values, **more)
        scores, at = self._encoding.scores, self._positions
        made = scores(self._given["q"], self._given["k"], at, at, **accepted(scores, x=self._given["x"]))
        scale = more.get("scale")
        if scale is not None:  # `scores` are made with 1 / sqrt(head_width)
            made = made * (scale * math.sqrt(queries.shape[-1]))
        if self.is_causal:
            made = made.masked_fill(_later(made), -math.inf)
        if self.mask is not None:
            made = made + self.mask
        weights = torch.nn.functional.dropout(made.softmax(-1), more.get("dropout_p", 0.0))
        return weights.to(values.dtype) @ values


def _later(scores: torch.Tensor) -> torch.Tensor:
    """Where a key stands after its query, [queries, keys]."""
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)


def _whole(positions: Any, like: torch.Tensor) -> torch.Tensor:
    """Positions [seq] as a tensor beside the tokens."""
    if isinstance(positions, int):
        return torch.arange(positions, device=like.device)
    return torch.as_tensor(positions, device=like.device)
