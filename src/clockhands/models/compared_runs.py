"""Runs of a model, beside what rounding does to them and beside a reference from the declared spec.

The reference's queries and keys are rotated here, or its scores get a bias that is computed here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings import rotary
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.layouts import Layout
from clockhands.models.attention_inputs import Attended, attended, roundoff
from clockhands.models.layer_biases import DeclaredBias
from clockhands.models.layer_offsets import offset_in_text
from clockhands.models.layer_rotations import (
    ROUNDINGS,
    ROWS,
    TOKENS,
    DeclaredLayer,
    moved,
    repeated_tokens,
    rows_of,
    tolerance,
)
from clockhands.models.measured_rotations import rates_at
from clockhands.models.position_removals import all_removed, reached
from clockhands.models.running_models import runner

KL_LIMIT = 1e-6
"""The largest mean KL divergence in float32; other precisions have `rounding_of` the model."""

_IN_A_PASS = 2.0**-8  # the largest accepted difference from the reference's query, as a share of its size
_TWICE = 2  # as far as rounding moves outputs in passes that are drawn; divergences grow with the square
_DRAWS = 2
_COARSE = 2.0**-10  # of an output: far above the rounding of float32, far below a step of int8


def logits(module: nn.Module, window: Tensor, **how: Any) -> Tensor:
    """The output of one window, [tokens, vocabulary or width], in float32."""
    with torch.no_grad():
        answer = runner(module)(window[None], **how)
    found = getattr(answer, "logits", None)
    return (answer.last_hidden_state if found is None else found)[0].float()


def divergence(sound: Tensor, changed: Tensor) -> float:
    """The mean KL divergence of two outputs that are logits, in nats."""
    one, other = (each.float().log_softmax(dim=-1) for each in (sound, changed))
    return float(nn.functional.kl_div(other, one, log_target=True, reduction="none").sum(dim=-1).double().mean())


@dataclass(frozen=True)
class Rounding:
    """The effect of rounding alone on a model.

    Attributes:
        kl: The largest mean KL divergence that it explains.
        apart: How far it moves queries and keys of each layer, as a share of their size.
    """

    kl: float
    apart: Mapping[int, float]


def rounding_of(
    module: nn.Module, window: Tensor, sound: Tensor, own: Sequence[Attended], *, phase: float = 0.0
) -> Rounding:
    """Measure the effect of rounding alone on the model itself.

    Two ways to rotate the same numbers may differ by the rounding of a cosine or sine, of two products and of their
    sum. So queries and keys of all layers are changed randomly by that much, and the effect is measured: all later
    operations round as in the model, whatever its precision. In float32 it is far below 1e-6.

    Args:
        module: The model.
        window: Token ids.
        sound: Its output of them.
        own: The inputs of attention in that pass.
        phase: The largest phase, in rad, where its rounding to float32 counts as well.
    """
    kls, apart = [0.0], {each.layer: 0.0 for each in own}
    for draw in range(_DRAWS):
        drawn = torch.Generator().manual_seed(draw)

        def rounded(heads: Tensor, drawn: torch.Generator = drawn) -> Tensor:
            # As far in the mean square as half of a phase's last digit, once, beside the roundings that are drawn.
            unit = roundoff(heads.dtype) + phase * roundoff(torch.float32) / ROUNDINGS
            pair = heads.float().square().mean(dim=-1, keepdim=True).mul(2).sqrt()
            drawn_ones = torch.rand((ROUNDINGS, *heads.shape), generator=drawn).to(heads.device)
            return (heads.float() + unit * pair * (2 * drawn_ones - 1).sum(dim=0)).to(heads.dtype)

        with attended(module, lambda _, queries, keys: (rounded(queries), rounded(keys)), known=own) as moved_ones:
            changed = logits(module, window)
        kls.append(divergence(sound, changed))
        for one, other in zip(own, moved_ones, strict=True):
            apart[one.layer] = max(apart[one.layer], one.distance(other.queries, other.keys))
    return Rounding(
        max(KL_LIMIT, _TWICE**2 * max(kls)), {layer: max(_IN_A_PASS, _TWICE * far) for layer, far in apart.items()}
    )


def rounds_activations(module: nn.Module) -> bool:
    """Whether linear layers quantise their inputs: they are then not additive, by far more than rounding."""
    linear: Any = next((each for each in module.modules() if hasattr(each, "in_features")), None)
    if linear is None:
        return False
    like = next(module.parameters())
    dtype = like.dtype if like.is_floating_point() else torch.float32
    one, other = torch.randn(2, 4, linear.in_features, generator=torch.Generator().manual_seed(0)).to(
        like.device, dtype
    )
    with torch.no_grad():
        none, both = linear(torch.zeros_like(one)), linear(one + other)
        apart = linear(one) + linear(other) - none - both
    unit = roundoff(dtype)
    return float(apart.float().norm() / both.float().norm()) > max(4 * unit, _COARSE)


def causal(module: nn.Module, ids: Tensor) -> bool:
    """Whether an output does not depend on later tokens."""
    window, other = ids[0, :8], ids[0, :8].clone()
    other[-1] = (other[-1] + 1) % 2
    one, two = logits(module, window)[:-1], logits(module, other)[:-1]
    return float((one - two).abs().max()) <= 1e-5 * float(one.abs().max())


def counts_itself(module: nn.Module, ids: Tensor, known: Sequence[Attended]) -> bool:
    """Whether queries and keys of one repeated token move along the text, and with no position that is given.

    Transformers 4 rotates ESM so: its positions are for a table alone. ``known``: one pass.
    """
    counted = torch.arange(8, device=ids.device)[None]
    passes = [
        repeated_tokens(module, ids[0, :1], 8, known, position_ids=positions)
        for positions in (counted, torch.zeros_like(counted))
    ]
    allowed = tolerance(passes[0][0].queries.dtype)
    same = all(one.distance(other.queries, other.keys) <= allowed for one, other in zip(*passes, strict=True))
    return same and any(moved(rows_of(each.queries, 8)) > allowed for each in passes[0])


def some_tokens(module: nn.Module, ids: Tensor, seen: Sequence[Attended]) -> Tensor:
    """A few token ids of the windows, so many that keys have `ROWS` different rows in each layer.

    A token whose row of the embedding is zero, as that of padding is, shows nothing if other tokens are there.

    Args:
        module: The model.
        ids: Windows, [windows, tokens].
        seen: One pass.
    """
    # Heads may share keys, or the rotated part of them: in each channel so many are different.
    heads = min(len(channel.unique()) for each in seen for channel in each.keys[0, :, 0].T)
    count = min(TOKENS, max(2, -(-ROWS // heads)))
    unique = ids.flatten().unique()
    unique = unique[:: max(1, len(unique) // (4 * TOKENS))]
    with attended(module) as alone, torch.no_grad():
        runner(module)(unique[:, None])
    heard = [heads.flatten(1).any(1).cpu() for each in alone for heads in (each.queries, each.keys)]
    shown = torch.stack([each for each in heard if len(each) == len(unique)]).all(0).to(unique.device)
    unique = unique[shown] if shown.any() else unique
    return unique[:: max(1, len(unique) // count)][:count]


# References


def _rotated(each: DeclaredLayer, heads: Tensor, positions: np.ndarray | None = None) -> Tensor:
    """Heads, rotated by clockhands by the declared spec: by the number of a token, or by [batch, tokens] positions."""
    if each.expected is None:
        return heads
    length = heads.shape[-2]
    place = each.channels(heads.shape[-1])
    direction = "backward" if each.sign < 0 else "forward"
    assert each.layout is not None
    rates = tuple(float(rate) for rate in rates_at(each.expected, length))
    rates += (0.0,) * (each.rotated // 2 - len(rates))
    made, spec = heads.clone(), _spec(each.rotated, each.layout, rates, direction)
    made[..., place] = rotary.rotate(heads[..., place].contiguous(), spec, positions)
    return made


def _rotated_further(each: DeclaredLayer, heads: Tensor, by: Sequence[int]) -> Tensor:
    """Each head of one text, rotated by its number of tokens."""
    positions = np.repeat(np.array(by)[:, None], heads.shape[-2], axis=1)
    return _rotated(each, heads[0][:, None], positions)[None, :, 0]


@cache
def _spec(
    rotated: int, layout: Layout, rates: tuple[float, ...], direction: Literal["forward", "backward"]
) -> rotary.Rotary:
    """One spec for all layers of these frequencies: it keeps what is computed from them."""
    return rotary.Rotary(rotated, layout, spacing=Explicit(rates), direction=direction)


Reference = Callable[[Tensor], tuple[Tensor, Mapping[int, Sequence[tuple[Tensor, Tensor]]]]]
"""From a window to the outputs of the reference, and queries and keys of its layers, where they are made here."""


def rotated_reference(
    module: nn.Module,
    declared: Mapping[int, DeclaredLayer],
    seen: Sequence[Attended],
    offsets: Mapping[int, Sequence[int]],
) -> Reference:
    """A reference whose queries and keys are rotated by clockhands.

    At position 0 a model rotates queries and keys alike. So it is run with every token at position 0, and they are
    rotated before attention, by the frequencies, layout and channels that the config declares for the layer.

    Args:
        module: The model.
        declared: Its layers.
        seen: One pass.
        offsets: By how many tokens the model rotates queries more than keys, in each head of some layers.
    """

    def outputs(window: Tensor) -> Any:
        turned: dict[int, list[tuple[Tensor, Tensor]]] = {}

        def rotation(layer: int, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
            if any(apart := offsets.get(layer, ())):
                queries = _rotated_further(declared[layer], queries, [-tokens for tokens in apart])
            both = _rotated(declared[layer], queries), _rotated(declared[layer], keys)
            turned.setdefault(layer, []).append(both)
            return both

        none, ones = torch.zeros_like(window)[None], torch.ones_like(window)[None]
        with attended(module, rotation, known=seen):
            made = logits(module, window, position_ids=none, attention_mask=ones)
        return made, turned

    return outputs


def biased_reference(module: nn.Module, declared: Mapping[str, DeclaredBias], ids: Tensor) -> Reference:
    """A reference without the model's own biases, whose scores get a bias computed by clockhands."""
    places = [each for each in reached(module, runner(module), ids[:1, :8]) if each.kind == "handed"]

    def outputs(window: Tensor) -> Any:
        def add(path: str, scores: Tensor) -> Tensor:
            made = declared[path].matrix(*scores.shape[-2:])
            return torch.from_numpy(made).to(scores.device, scores.dtype)[None]

        with all_removed(places), attended(module, add=add):
            return logits(module, window), {}

    return outputs


@dataclass(frozen=True)
class LayerApart:
    """The first layer whose queries or keys differ from those of the reference by more than a shift of both.

    Attributes:
        layer: Its number.
        queries: By how many tokens its queries are rotated more than declared; None where no distance gives them.
        keys: As much for its keys.
    """

    layer: int
    queries: int | None
    keys: int | None


def first_apart(
    seen: Sequence[Attended],
    turned: Mapping[int, Sequence[tuple[Tensor, Tensor]]],
    declared: Mapping[int, DeclaredLayer],
    rounding: Rounding,
) -> LayerApart | None:
    """The first layer that differs from the reference."""
    wanted = {layer: iter(each) for layer, each in turned.items()}
    for each in seen:
        others, want = next(wanted[each.layer]), declared[each.layer]
        if each.distance(*others) <= rounding.apart[each.layer]:
            continue
        heads = each.queries, each.keys
        queries, keys = (offset_in_text(own, other, want) for own, other in zip(heads, others, strict=True))
        if queries is not None and queries == keys:
            shifted = (_rotated_further(want, other, [queries] * other.shape[1]) for other in others)
            if each.distance(*shifted) <= rounding.apart[each.layer]:
                continue
        return LayerApart(each.layer, queries, keys)
    return None


def nats_of(output: Tensor, window: Tensor) -> np.ndarray:
    """The loss of each token but the first of a window."""
    return nn.functional.cross_entropy(output[:-1], window[1:], reduction="none").double().cpu().numpy()


class WholePasses:
    """Texts in one pass each: outputs beside those of shifted positions and of a reference; one pass serves both.

    Attributes:
        by: How far positions are shifted; 0 where they are not.
        rounding: The effect of rounding, measured on the first text.
        shifted: For each text, the mean KL divergence when all positions are shifted.
        shift_limit: What rounding explains of it.
        referred: For each text, the mean KL divergence from the reference.
        losses: For each text, nats of each token of the model and of the reference.
        rotated: Whether the reference rotates queries and keys, and not a bias is its own.
        first: The first layer that differs from the reference, in the first text.
    """

    def __init__(
        self, module: nn.Module, by: int, reference: Reference | None, declared: Mapping[int, DeclaredLayer]
    ) -> None:
        self.module: nn.Module = module
        self.by: int = by
        self.reference: Reference | None = reference
        self.declared: Mapping[int, DeclaredLayer] = declared
        self.rounding: Rounding = Rounding(KL_LIMIT, {})
        self.shift_limit: float = KL_LIMIT
        self.shifted: list[float] = []
        self.referred: list[float] = []
        self.losses: list[list[np.ndarray]] = []
        self.rotated: bool = False
        self.first: LayerApart | None = None

    def run(self, window: Tensor, *, losses: bool) -> None:
        """Run one text; ``losses``: whether outputs are logits of the next token."""
        begins = not self.shifted and not self.referred
        with attended(self.module) as seen:
            own = logits(self.module, window)
        if begins:
            self.rounding = rounding_of(self.module, window, own, seen)
            self.shift_limit = self.rounding.kl
        if self.by:
            at = self.by + torch.arange(len(window), device=window.device)[None]
            self.shifted.append(divergence(own, logits(self.module, window, position_ids=at)))
            if self.shifted[-1] > self.shift_limit:
                # A phase is rounded in float32 before its cosine: the further on, the more.
                further = rounding_of(self.module, window, own, seen, phase=float(self.by + len(window)))
                self.shift_limit = max(self.shift_limit, further.kl)
        if self.reference is not None:
            wanted, turned = self.reference(window)
            self.referred.append(divergence(wanted, own))
            if begins and turned:
                self.rotated, self.first = True, first_apart(seen, turned, self.declared, self.rounding)
            if losses:
                self.losses.append([nats_of(each, window) for each in (own, wanted)])
