"""Measures the factor on the scores of each layer, and how its rotation orders channels, beside its projections.

At position 0 a rotation does nothing: a query that attention receives is the row of its projection, times a constant,
with channels in the projection's order or in another one. The score of a token that attends to itself alone is the
product of its query and its key, times the scale.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import layer_ranges
from clockhands.encodings.scores import ConstantScale
from clockhands.models.attention_inputs import Attended, attended
from clockhands.models.layer_rotations import DeclaredLayer, tolerance
from clockhands.models.observations import Observation
from clockhands.models.running_models import runner

Order = Literal["kept", "halves"]
"""Of the rotated channels that attention receives: as projected, or first the even ones, then the odd ones."""


_REMEDY = "Multiply the scale of the attention scores by the factor of the scaling, not cosine and sine."


@dataclass(frozen=True)
class LayerScores:
    """What one layer makes of its projections at position 0.

    Attributes:
        layer: Its number.
        path: The path of its attention.
        width: Channels of a head.
        order: Of the rotated channels; None where no projection gives the queries.
        scale: What the product of a projected query and a key is multiplied by; None where that is not one number.
    """

    layer: int
    path: str
    width: int
    order: Order | None
    scale: float | None


def scores_at_zero(module: nn.Module, tokens: Tensor, declared: Mapping[int, DeclaredLayer]) -> list[LayerScores]:
    """Measure every layer with a declared rotation, in texts of one token at position 0.

    Args:
        module: A model that takes positions.
        tokens: Token ids, [texts].
        declared: The layers.
    """
    ids = tokens[:, None]
    projected: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for path, each in module.named_modules():
            if getattr(each, "out_features", None) is not None:

                def heard(_: nn.Module, __: Any, made: Any, path: str = path) -> None:
                    if isinstance(made, Tensor):
                        projected[path] = made.detach()

                stack.enter_context(each.register_forward_hook(heard))
        seen = stack.enter_context(attended(module, scores=True))
        with torch.no_grad():
            runner(module)(ids, position_ids=torch.zeros_like(ids), attention_mask=torch.ones_like(ids))
    found = {}
    for each in seen:
        want = declared.get(each.layer)
        if want is not None and want.expected is not None and each.layer not in found:
            inside = [rows for path, rows in projected.items() if path.startswith(f"{each.path}.")]
            found[each.layer] = _of_layer(each, want, inside)
    return list(found.values())


def _of_layer(own: Attended, want: DeclaredLayer, projected: Sequence[Tensor]) -> LayerScores:
    queries = own.queries[..., 0, :].double().cpu().numpy()  # texts, heads, channels
    heads, width = queries.shape[1:]
    keys = own.keys[..., 0, :].double().cpu().numpy().repeat(heads // own.keys.shape[1], axis=1)
    order, growth = None, None
    for made in projected:
        if made.numel() != queries.size:
            continue
        rows = made.double().cpu().numpy().reshape(queries.shape)
        for each, channels in _orders(want.channels(width), width).items():
            ratio = _constant(rows[..., channels], queries, tolerance(own.queries.dtype))
            if ratio is not None and order is None:
                order, growth = each, ratio
    assert own.scores is not None
    scores = own.scores[..., 0, 0].double().cpu().numpy()
    scale = _constant((queries * keys).sum(axis=-1), scores, 4 * tolerance(own.queries.dtype))
    return LayerScores(own.layer, own.path, width, order, None if scale is None or growth is None else scale * growth)


def _orders(rotated: slice, width: int) -> dict[Order, np.ndarray]:
    kept = np.arange(width)
    halves, inside = kept.copy(), kept[rotated]
    halves[rotated] = np.concatenate([inside[::2], inside[1::2]])
    return {"kept": kept, "halves": halves}


def _constant(given: np.ndarray, made: np.ndarray, allowed: float) -> float | None:
    """The number by which the first array gives the second one; None if there is none."""
    ratio = float((given * made).sum() / max((given**2).sum(), 1e-300))
    return ratio if np.linalg.norm(made - ratio * given) <= allowed * np.linalg.norm(made) else None


def in_measured_order(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores]
) -> dict[int, DeclaredLayer]:
    """The declared layers; where neighbours are declared, with the arrangement in which attention receives them."""
    made = dict(declared)
    for each in measured:
        want = made[each.layer]
        if want.code.layout == "interleaved" and each.order is not None:
            made[each.layer] = replace(want, layout="halves" if each.order == "halves" else "interleaved")
    return made


def differing_scores(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores], dtype: torch.dtype
) -> tuple[list[Observation], list[str]]:
    """Observations where scores are not multiplied by the declared constant, and answers on what was not measured."""
    wrong: dict[tuple[str, str], list[int]] = {}
    unknown = []
    for each in measured:
        scale = declared[each.layer].code.score_scale
        if not isinstance(scale, ConstantScale):
            continue
        if each.scale is None:
            unknown.append(each.layer)
            continue
        factor = each.scale * each.width**0.5
        if abs(factor / scale.factor - 1) > 8 * tolerance(dtype):
            wrong.setdefault((f"{factor:.4g}", f"{scale.factor:.4g}"), []).append(each.layer)
    found = []
    for (factor, declares), layers in wrong.items():
        says = f"Scores are multiplied by {factor}, where the config declares {declares} (besides 1 / sqrt of the width"
        evidence = {"says": f"{says} of a head).", "remedy": _REMEDY}
        found.append(Observation("run-differs", evidence, layer_ranges(layers)))
    answers = []
    if unknown:
        answers.append(
            f"The declared factor on the scores of layers {layer_ranges(unknown)} was not measured: no projection gives"
            " their queries."
        )
    return found, answers
