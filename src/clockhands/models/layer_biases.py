"""Measures the bias that each layer of a running model adds to its scores, and compares it with the declared one.

In a text of one repeated token whose tokens all have the same position, all queries are equal, and all keys. So the
scores of a query differ only by the bias, which can be read off in every layer without code for the model family.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import LayerEncoding, layer_numbers, layer_ranges
from clockhands.encodings.biases import Alibi, BiasCode, Buckets, bias
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.models.attention_inputs import HIDDEN, Attended, attended, roundoff
from clockhands.models.observations import Observation
from clockhands.models.running_models import runner, takes
from clockhands.recognition.diagnosis import of_slopes

TOKENS = 48
"""Of the text: distances up to here, which fill the exact and most of the logarithmic buckets of T5."""

_SUMS = 16
"""Roundings of a score: a product is summed in another order for another query."""


@dataclass(frozen=True, eq=False)
class LayerBias:
    """What one layer adds to its scores.

    Attributes:
        layer: Its number.
        path: The path of its attention.
        matrix: Relative to the query's own position, [heads, queries, keys]; NaN where a key is hidden.
        rounding: The largest value that rounding alone can cause.
    """

    layer: int
    path: str
    matrix: np.ndarray
    rounding: float

    @property
    def present(self) -> bool:
        """Whether something is added."""
        return bool(np.nanmax(np.abs(self.matrix)) > self.rounding)


@dataclass(frozen=True, eq=False)
class DeclaredBias:
    """What a config declares to be added to the scores of a layer.

    Attributes:
        code: The code.
        spec: Its spec.
        values: Its learned numbers, as the module holds them; None where it has none.
        scale: The factor by which the family multiplies it.
        dtype: The type in which the family computes it.
    """

    code: LayerEncoding
    spec: BiasCode
    values: Any = None
    scale: float = 1.0
    dtype: str = "float32"

    def matrix(self, queries: int, keys: int) -> np.ndarray:
        """The declared bias, [heads, queries, keys], float64."""
        values = {} if self.values is None else {"values": self.values}
        return self.scale * np.asarray(bias(self.spec, queries, keys, **values), np.float64)


def declared_biases(
    module: nn.Module, codes: Sequence[LayerEncoding], seen: Sequence[Attended]
) -> dict[str, DeclaredBias]:
    """For each attention path the declared bias, if it is a single bias with known numbers.

    Args:
        module: The model.
        codes: As an audit has them.
        seen: One pass.
    """
    found: dict[str, DeclaredBias] = {}
    config: Any = getattr(module, "config", None)
    for each in seen:
        side = _stack(each.path)
        own = [code for code in codes if code.kind in ("alibi", "buckets")
               and (code.layers is None or code.layers == "input" or each.layer in layer_numbers(code.layers))
               and (side is None or code.part in ("text", side))]  # fmt: skip
        if len(own) != 1:
            continue
        (code,) = own
        if isinstance(code.spec, Alibi):
            found[each.path] = DeclaredBias(code, code.spec)
        elif code.kind == "alibi" and code.spec is None and getattr(config, "model_type", None) == "falcon":
            # Transformers 5.23, models/falcon/modeling_falcon.py: slopes in bfloat16, divided by the root of the width
            # of a head as the scores are.
            heads = config.num_attention_heads
            width = config.hidden_size // heads
            found[each.path] = DeclaredBias(code, Alibi(heads, form="key"), None, width**-0.5, "bfloat16")
        elif isinstance(code.spec, Buckets) and (table := _table(module, each.path, side)) is not None:
            found[each.path] = DeclaredBias(code, code.spec, table)
    return found


def _stack(path: str) -> str | None:
    """``encoder`` or ``decoder``, if the path of an attention begins with it."""
    return next((part for part in ("encoder", "decoder") if path.startswith(f"{part}.")), None)


def _table(module: nn.Module, path: str, side: str | None) -> np.ndarray | None:
    """The learned numbers of buckets, [buckets, heads]: those of an attention, or of the one table of a stack."""
    tables = {
        name: each for name, each in module.named_modules()
        if name.endswith("relative_attention_bias") and isinstance(each, nn.Embedding)
        and (side is None or name.startswith(f"{side}."))
    }  # fmt: skip
    own = tables.get(f"{path}.relative_attention_bias")
    table = next(iter(tables.values())) if own is None and len(tables) == 1 else own
    return None if table is None else table.weight.detach().float().cpu().numpy()


def biases_in_effect(module: nn.Module, token: int, device: Any, context: int | None) -> dict[str, LayerBias]:
    """For each attention path the bias added to its scores, if its queries and keys are all equal."""
    length = TOKENS if context is None else min(TOKENS, context)
    ids = torch.full((1, length), token, device=device)
    how = {"position_ids": torch.zeros_like(ids)} if takes(module, "position_ids") else {}
    how |= {"attention_mask": torch.ones_like(ids)} if takes(module, "attention_mask") and how else {}
    with attended(module, scores=True) as seen, torch.no_grad():
        runner(module)(ids, **how)
    found: dict[str, LayerBias] = {}
    for each in seen:
        assert each.scores is not None
        allowed = _SUMS * roundoff(each.queries.dtype)
        alike = all(_alike(heads, max(allowed, 2.0**-12)) for heads in (each.queries, each.keys))
        scores = each.scores[0].double().cpu().numpy()
        if not alike or scores.shape[-2] != scores.shape[-1]:
            continue
        hidden = scores <= HIDDEN
        visible = np.where(hidden, np.nan, scores)
        matrix = visible - np.diagonal(visible, axis1=1, axis2=2)[..., None]
        # A score is a sum of products of all channels: what is left of it may be small beside them. Queries and keys
        # of later tokens have another sum behind them, so they are alike up to rounding only.
        query, query_apart = _sizes(each.queries)
        key, key_apart = _sizes(each.keys)
        scale = each.queries.shape[-1] ** -0.5
        size = max(query * key * scale, float(np.nanmax(np.abs(visible))))
        rounding = allowed * size + (query_apart * key + query * key_apart) * scale
        found.setdefault(each.path, LayerBias(each.layer, each.path, matrix, rounding))
    return found


def _sizes(heads: Tensor) -> tuple[float, float]:
    """The largest length of a row, and of the difference of two."""
    rows = heads.double()
    return float(rows.norm(dim=-1).max()), 2 * float((rows - rows[..., :1, :]).norm(dim=-1).max())


def _alike(heads: Tensor, allowed: float) -> bool:
    """Whether the rows of all tokens are equal up to rounding."""
    rows = heads.double()
    return bool((rows - rows[..., :1, :]).abs().max() <= allowed * rows.abs().max())


def differing_biases(measured: Mapping[str, LayerBias], declared: Mapping[str, DeclaredBias]) -> list[Observation]:
    """One observation for all layers whose bias differs in the same way."""
    alike: dict[Any, list[tuple[LayerBias, str, dict[str, Any]]]] = {}
    for path, each in measured.items():
        if path not in declared:
            continue
        wrong = _wrong(each, declared[path])
        if wrong is not None:
            code, evidence = wrong
            key = (code, evidence.get("fault"), evidence.get("it is"), _stack(path))
            alike.setdefault(key, []).append((each, code, evidence))
    found = []
    for group in alike.values():
        own, code, evidence = group[0]
        evidence = {**evidence, "module": own.path} if code == "run-differs" else evidence
        found.append(Observation(code, evidence, layer_ranges([each.layer for each, *_ in group])))
    return found


def _wrong(own: LayerBias, declared: DeclaredBias) -> tuple[str, dict[str, Any]] | None:
    heads, tokens, _ = own.matrix.shape
    wanted = declared.matrix(tokens, tokens)
    if len(wanted) != heads:
        says = f"A bias of {heads} heads is added to the scores of {own.path}, where the config declares {len(wanted)}."
        return "run-differs", {"says": says}
    wanted = wanted - np.diagonal(wanted, axis1=1, axis2=2)[..., None]
    # A number of the bias is rounded where it is made and where it is added, also before the diagonal is taken off it.
    roundings = 2 * UNIT_ROUNDOFF.get(declared.dtype, 2.0**-24) * np.abs(wanted).max(axis=(1, 2), keepdims=True)
    apart = np.nan_to_num(np.abs(own.matrix - wanted) - roundings)
    if apart.max() <= own.rounding:
        return None
    if not own.present:
        return "run-differs", {
            "says": f"No bias, or the same at each distance, is added to the scores of {own.path}, where the config "
                    "declares one that depends on the distance.",
            "fault": "bias-dropped",
        }  # fmt: skip
    head, query, key = (int(at) for at in np.unravel_index(int(apart.argmax()), apart.shape))
    if isinstance(declared.spec, Alibi):
        distance = np.arange(tokens)[:, None] - np.arange(tokens)
        far = np.where(distance > 0, distance, np.nan)
        slopes = np.nanmean(-own.matrix / far, axis=(1, 2))
        left = np.nan_to_num(own.matrix * (distance > 0) + slopes[:, None, None] * np.maximum(distance, 0))
        if np.abs(left).max() <= own.rounding + float(roundings.max()):
            verdict = of_slopes(slopes / declared.scale, declared.spec, declared.dtype)
            if verdict.code == "slopes-differ":
                return verdict.code, {**verdict.evidence, "what": f"slopes of {own.path}"}
    says = f"The bias on the scores of {own.path} differs from the declared one: head {head} adds "
    says += f"{own.matrix[head, query, key]:.4g} at distance {query - key}, expected {wanted[head, query, key]:.4g}."
    return "run-differs", {"says": says}
