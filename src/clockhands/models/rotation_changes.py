"""Changes a running model by PyTorch hooks: each puts one position fault in place and removes it again.

A rotation reaches a decoder of Transformers in two places: one module computes cosine and sine for the positions
(``forward(x, position_ids[, layer_type]) -> (cosine, sine)``), and every attention rotates queries and keys by them. A
fault of frequencies or positions changes the first; another layout is equivalent to reordering the channels of each
head before the rotation, since attention scores do not depend on the order of channels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.ladders import Ladder, geometric
from clockhands.encodings.layouts import Layout, pair_channels, permutation
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue

HELD = "inv_freq"
SAME = 1e-5
"""Share by which stored frequencies, float32, may differ from powers of a base."""


@dataclass(frozen=True, eq=False)
class Waves:
    """Cosine and sine of one kind of layers, as the model computes them.

    Attributes:
        rates: Radians per token of each pair, float64 [pairs].
        factor: The factor on cosine and sine.
    """

    rates: Tensor
    factor: float

    @property
    def geometric(self) -> Ladder | None:
        """The geometric ladder with these frequencies; None if they are not powers of one base."""
        rates = self.rates.numpy()
        if len(rates) < 2 or rates[-1] <= 0:
            return None
        ladder = geometric(len(rates), float(rates[-1] ** (-len(rates) / (len(rates) - 1))))
        return ladder if np.allclose(ladder.rates, rates, rtol=SAME) else None


@dataclass(frozen=True, eq=False)
class Rotating:
    """Where a model rotates.

    Attributes:
        rotary: The module that computes cosine and sine.
        waves: Kind of layer, as the model names it, to what it makes; one without a name where all layers are alike.
        attentions: The attention modules in order, with their number of channels per head.
        layout: Which two channels of a head are a pair.
    """

    rotary: nn.Module
    waves: Mapping[str, Waves]
    attentions: tuple[tuple[nn.Module, int], ...]
    layout: Layout = "halves"


def rotating(model: nn.Module, declared: Rotary | None = None) -> Rotating:
    """Where a model rotates.

    Args:
        model: The model.
        declared: The spec that its config declares, which has the layout; None for half-split pairs.

    Raises:
        InvalidValue: Not one module makes cosine and sine for all layers, or no attention has q_proj and k_proj.
    """
    held: list[Any] = [each for each in model.modules() if _kinds(each)]
    attentions: list[Any] = [each for each in model.modules() if hasattr(each, "q_proj") and hasattr(each, "k_proj")]
    sized = tuple((each, each.head_dim) for each in attentions if isinstance(getattr(each, "head_dim", None), int))
    if len(held) != 1 or not sized:
        raise InvalidValue(
            f"The rotation of {type(model).__name__} cannot be reached: {len(held)} of its modules hold frequencies "
            f"({HELD}), and {len(sized)} attention modules have q_proj, k_proj and head_dim.",
            "A price needs a decoder in which one module makes cosine and sine for all layers, such as Llama, Mistral, "
            "Qwen 2, Qwen 3, Gemma 3, OLMo 2 or SmolLM 3.",
        )
    (rotary,) = held
    waves = {
        kind: Waves(
            getattr(rotary, f"{kind}{HELD}").detach().to(torch.float64),
            float(getattr(rotary, f"{kind}attention_scaling", 1.0)),
        )
        for kind in _kinds(rotary)
    }
    return Rotating(rotary, waves, sized, "halves" if declared is None else declared.layout)


def _kinds(module: Any) -> list[str]:
    """The prefixes before ``inv_freq`` in the names of a module's buffers: "", or ``full_attention_`` and so on."""
    names = [name for name, _ in module.named_buffers(recurse=False) if name.endswith(HELD)]
    return [name.removesuffix(HELD) for name in names if not name.endswith(f"original_{HELD}")]


Change = Callable[[Rotating], Any]
"""From where a model rotates to a context in which it is changed."""


def of_waves(
    rates: Callable[[Waves], Waves] = lambda same: same,
    angles: Callable[[Tensor], Tensor] = lambda same: same,
) -> Change:
    """Change frequencies, factors or angles; cosine and sine are computed from them in float64."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        made = {kind: rates(waves) for kind, waves in at.waves.items()}

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], sound: Any) -> tuple[Tensor, Tensor]:
            given = {**dict(zip(("x", "position_ids", "layer_type"), args, strict=False)), **kwargs}
            ids, kind = given["position_ids"], given.get("layer_type")
            waves = made["" if kind is None else f"{kind}_"]
            turned = angles(ids.to(torch.float64)[..., None] * waves.rates)
            turned = turned.repeat_interleave(2, dim=-1) if _neighbours(sound[0]) else torch.cat((turned, turned), -1)
            cosine, sine = ((wave * waves.factor).to(sound[0].dtype) for wave in (turned.cos(), turned.sin()))
            return cosine, sine

        with at.rotary.register_forward_hook(hook, with_kwargs=True):
            yield

    return changed


def of_positions(by: int) -> Change:
    """Shift all positions by some tokens, with cosine and sine as the model itself computes them."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if "position_ids" in kwargs:
                return args, {**kwargs, "position_ids": kwargs["position_ids"] + by}
            return (args[0], args[1] + by, *args[2:]), kwargs

        with at.rotary.register_forward_pre_hook(hook, with_kwargs=True):
            yield

    return changed


def _neighbours(wave: Tensor) -> bool:
    """Whether neighbouring channels hold the same value, as in some models with interleaved pairs."""
    return wave.shape[-1] > 2 and torch.equal(wave[..., 0::2], wave[..., 1::2])


def of_channels(order: Callable[[int], Tensor], layers: Sequence[int] | None = None) -> Change:
    """Reorder the rotated channels of each head of queries and keys before the rotation."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        (rotated,) = {2 * len(waves.rates) for waves in at.waves.values()}
        moved = order(rotated)

        def hook(y: Tensor, width: int) -> Tensor:
            heads = y.unflatten(-1, (-1, width))
            return torch.cat((heads[..., moved], heads[..., rotated:]), dim=-1).flatten(-2)

        with _on_heads(at, ("q", "k"), hook, layers):
            yield

    return changed


@contextmanager
def of_other_layout(at: Rotating) -> Iterator[None]:
    """Rotate queries and keys in the other layout, as a change."""
    other: Layout = "halves" if at.layout == "interleaved" else "interleaved"
    with of_channels(lambda rotated: torch.from_numpy(permutation(rotated // 2, other, at.layout)))(at):
        yield


def of_queries(by: float) -> Change:
    """Rotate queries by some positions more than keys; for a model whose layers all rotate the same way."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        (waves,) = at.waves.values()
        angles = by * waves.rates
        cosine, sine = (torch.diag(each).float() for each in (angles.cos(), angles.sin()))
        turn = torch.cat((torch.cat((cosine, -sine), 1), torch.cat((sine, cosine), 1)))  # of halves
        order = permutation(len(angles), "halves", at.layout)
        turn = turn[order][:, order]

        def hook(y: Tensor, width: int) -> Tensor:
            heads = y.unflatten(-1, (-1, width))
            turned = heads[..., : len(turn)] @ turn.T.to(y.dtype)
            return torch.cat((turned, heads[..., len(turn) :]), dim=-1).flatten(-2)

        with _on_heads(at, ("q",), hook):
            yield

    return changed


def without_pairs(pairs: Sequence[int]) -> Change:
    """Set the channels of some pairs of the queries to zero, so that these pairs add nothing to a score."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        (half,) = {len(waves.rates) for waves in at.waves.values()}
        off = pair_channels(half, at.layout)[list(pairs)].ravel()

        def hook(y: Tensor, width: int) -> Tensor:
            kept = torch.ones(width, dtype=y.dtype, device=y.device)
            kept[off] = 0
            return (y.unflatten(-1, (-1, width)) * kept).flatten(-2)

        with _on_heads(at, ("q",), hook):
            yield

    return changed


@contextmanager
def _on_heads(
    at: Rotating, which: Sequence[str], change: Callable[[Tensor, int], Tensor], layers: Sequence[int] | None = None
) -> Iterator[None]:
    """Change the input of the rotation: the output of a norm of queries and keys, else that of the projection."""
    with ExitStack() as stack:
        for number, (attention, width) in enumerate(at.attentions):
            if layers is not None and number not in layers:
                continue
            for name in which:
                module = before_rotation(attention, name)

                def hook(_: nn.Module, __: Any, y: Tensor, width: int = width) -> Tensor:
                    return change(y, width)

                stack.enter_context(module.register_forward_hook(hook))
        yield


def before_rotation(attention: Any, name: str) -> nn.Module:
    """The module whose output is rotated: the norm of queries (``q``) or keys (``k``), else their projection."""
    return getattr(attention, f"{name}_norm", None) or getattr(attention, f"{name}_proj")


def together(*changes: Change) -> Change:
    """Apply several changes at once."""

    @contextmanager
    def changed(at: Rotating) -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change(at))
            yield

    return changed


def first_half(width: int) -> Tensor:
    """The channel order in which half-split code rotates the pairs (i, i + width / 4) of the first half of a head."""
    one, two, three, four = torch.arange(width).view(4, -1)
    return torch.cat((one, three, two, four))
