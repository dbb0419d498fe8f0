"""Measures the bias that each layer of a running model adds to its scores, and compares it with the declared one.

In a text of one repeated token whose tokens all have the same position, all queries are equal, and all keys. So the
scores of a query differ only by the bias, which can be read off in every layer without code for the model family.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import LayerEncoding, layer_numbers, layer_ranges, numbered_layers
from clockhands.encodings.biases import Alibi, BiasCode, Buckets, bias
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.models.attention_inputs import HIDDEN, Attended, attended, roundoff
from clockhands.models.observations import Observation
from clockhands.models.running_models import runner, takes
from clockhands.recognition.diagnosis import of_slopes

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")  # of a layer, in the path of a table

KINDS = ("alibi", "buckets", "relative")
"""Kinds of codes that add a bias to scores."""

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
        others: Tables of other layers, by what they are called in a sentence.
    """

    code: LayerEncoding
    spec: BiasCode
    values: Any = None
    scale: float = 1.0
    dtype: str = "float32"
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    def matrix(self, queries: int, keys: int, table: Any = None) -> np.ndarray:
        """The declared bias, or that of another table, [heads, queries, keys], float64."""
        table = self.values if table is None else table
        values = {} if table is None else {"values": table}
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
        side = _side(each, codes)
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
        elif isinstance(code.spec, Buckets):
            wanted, others = _tables_of(each, code, _tables(module, code.spec, side))
            if wanted is not None:
                found[each.path] = DeclaredBias(code, code.spec, wanted, others=others)
    return found


_OWN_TABLE = ("umt5",)
"""Types of which each layer has a table of its own (transformers 5.23.0, UMT5Block)."""
_FIRST_TABLE = ("t5", "mt5", "longt5", "switch_transformers", "pop2piano")
"""Types of which all layers of a stack share the table of its first layer (transformers 5.23.0, T5Block)."""


def _is_of(code: LayerEncoding, types: Sequence[str]) -> bool:
    kind = code.source.get("kind", "")
    return any(kind.startswith(f"architecture of {name} (") for name in types)


def _stack(path: str) -> str | None:
    """``encoder`` or ``decoder``, if the path of an attention begins with it."""
    return next((part for part in ("encoder", "decoder") if path.startswith(f"{part}.")), None)


def _side(own: Attended, codes: Sequence[LayerEncoding]) -> str | None:
    """The stack of an attention; where its path says none, and there are two, what its queries see says it."""
    side = _stack(own.path)
    if side is None and own.scores is not None and {"encoder", "decoder"} <= {code.part for code in codes}:
        return "decoder" if bool((own.scores <= HIDDEN).any()) else "encoder"
    return side


def _tables(module: nn.Module, spec: Buckets, side: str | None) -> dict[int | None, nn.Embedding]:
    """The tables [buckets, heads] of a stack by the number of their layer; None for one that is of no layer."""
    found: dict[int | None, nn.Embedding] = {}
    for name, each in module.named_modules(remove_duplicate=False):
        if not isinstance(each, nn.Embedding) or (_stack(name) is not None and _stack(name) != side):
            continue
        if name.endswith("relative_attention_bias") or tuple(each.weight.shape) == (spec.buckets, spec.heads):
            number = _NUMBER.search(name)
            found.setdefault(None if number is None else int(number[1]), each)
    return found


def _tables_of(
    own: Attended, code: LayerEncoding, tables: Mapping[int | None, nn.Embedding]
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """The learned numbers [buckets, heads] that a layer should read, and those of other layers."""
    if not tables:
        return None, {}
    first = None if None in tables else min(layer for layer in tables if layer is not None)
    wanted = first if _is_of(code, _FIRST_TABLE) or len(tables) == 1 else own.layer
    held = {layer: each.weight.detach().float().cpu().numpy() for layer, each in tables.items()}
    others = {
        "its own table" if layer == own.layer else f"the table of layer {layer}": each
        for layer, each in held.items()
        if layer not in (wanted, None)
    }
    return held.get(wanted), others


def shared_tables(module: nn.Module, codes: Sequence[LayerEncoding], seen: Sequence[Attended]) -> list[Observation]:
    """Layers that hold one table though their type gives each a table of its own: one object, or equal numbers."""
    found = []
    for side in dict.fromkeys(_side(each, codes) for each in seen):
        own = [
            code for code in codes if isinstance(code.spec, Buckets) and (side is None or code.part in ("text", side))
        ]
        if len(own) != 1 or not _is_of(own[0], _OWN_TABLE):
            continue
        layers = sorted({each.layer for each in seen if _side(each, codes) == side})
        held = {layer: each.weight for layer, each in _tables(module, own[0].spec, side).items()}  # type: ignore[arg-type]
        known = [layer for layer in layers if layer in held]
        if len(layers) < 2 or not held or (len(held) > 1 and len(known) < 2):
            continue
        first = held[known[0]] if known else next(iter(held.values()))
        alike = [layer for layer in layers if torch.equal(held.get(layer, first), first)]
        if len(alike) < 2 or not (first != first[0, 0]).any():  # numbers that are all equal were not trained
            continue
        where = f" of the {side}" if side is not None else ""
        says = f"One table of biases serves {numbered_layers(alike)}{where}, where the config declares one for each."
        found.append(Observation("run-differs", {"says": says}, layer_ranges(alike[1:])))
    return found


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
        hidden = scores <= HIDDEN
        if not alike or scores.shape[-2] != scores.shape[-1] or not np.isfinite(scores[~hidden]).all():
            continue
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

    def fits(matrix: np.ndarray) -> bool:
        other = matrix - np.diagonal(matrix, axis1=1, axis2=2)[..., None]
        return bool(np.nan_to_num(np.abs(own.matrix - other) - roundings).max() <= own.rounding)

    for name, table in declared.others.items():
        if fits(declared.matrix(tokens, tokens, table)):
            should = "each layer its own" if _is_of(declared.code, _OWN_TABLE) else "all layers that of the first one"
            return "run-differs", {"says": f"The bias on the scores of {own.path} is that of {name}, where the config "
                                           f"declares {should}."}  # fmt: skip
    if isinstance(declared.spec, Buckets):
        sides = ("one-sided, as in a decoder", "two-sided, as in an encoder")
        right, wrong = sides[:: -1 if declared.spec.bidirectional else 1]
        other = replace(declared.spec, bidirectional=not declared.spec.bidirectional)
        if fits(replace(declared, spec=other).matrix(tokens, tokens)):
            return "run-differs", {
                "says": f"The buckets of {own.path} are {wrong}, where those of its stack are {right}."
            }
    says = f"The bias on the scores of {own.path} differs from the declared one: head {head} adds "
    says += f"{own.matrix[head, query, key]:.4g} at distance {query - key}, expected {wanted[head, query, key]:.4g}."
    return "run-differs", {"says": says}
