"""Measures the factor on the scores of each layer, and how its rotation orders channels, beside its projections.

A query that attention receives at position 0 is a row of a projection times a constant (`head_sources`). The same holds
for a key, and for the rotated and the other channels of a head apart: cosines that are multiplied by a factor change
the first alone. From there to the input of the softmax, the product of a query and a key is multiplied by the scale.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import TEXT, LayerEncoding, layer_ranges, numbered_layers
from clockhands.configs.softmax_scales import class_source, softmax_scale_of
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.encodings.scores import ConstantScale, score_scale
from clockhands.models.attention_inputs import HIDDEN, Attended
from clockhands.models.head_sources import HeadSource, Order, OutputAtZero, home_of, outputs_at_zero, sources_of
from clockhands.models.layer_rotations import DeclaredLayer, tolerance
from clockhands.models.observations import Observation
from clockhands.phrases import listed

ROTATED, OTHERS = "rotated", "other"
"""The two kinds of channels of a head."""

_ADDED = frozenset({"learned", "sinusoidal", "alibi", "buckets"})  # to tokens, or to scores whatever the tokens are
_NUMBER = r"\.\d+(?:\.|$)"  # of a layer, in the path of its attention
_REMEDY = "Multiply q k by the declared scale once, in every layer, and cosine and sine by their own factor alone."


@dataclass(frozen=True)
class LayerScores:
    """The factor on q k in one layer at position 0.

    Attributes:
        layer: Its number.
        path: The path of its attention.
        width: Channels of a head.
        order: Of the rotated channels; None where no projection gives the queries.
        scale: What the product of a query and a key that attention receives is multiplied by; None where that is not
            one number.
        factors: For each kind of channels, what q k of a projection (or of a norm behind it) is multiplied by until the
            softmax; only those that were measured.
        after_rotation: Whether what gives the queries comes after the rotation, so that no factor on cosines is seen.
        angles: By how much more queries are rotated than keys, [heads, pairs], rad; None where that is not known.
    """

    layer: int
    path: str
    width: int
    order: Order | None
    scale: float | None
    factors: Mapping[str, float]
    after_rotation: bool = False
    angles: np.ndarray | None = None


# Measuring


def layers_that_do_not_rotate(
    codes: Sequence[LayerEncoding], type_name: str, config: Mapping[str, Any], seen: Sequence[Attended]
) -> dict[int, DeclaredLayer]:
    """The layers of a model that has a table or a bias in place of a rotation, with the scale that its class has.

    Args:
        codes: As an audit has them.
        type_name: The type of the model.
        config: Its config.
        seen: One pass.
    """
    own = [code for code in codes if code.part in TEXT]
    if not own or not {code.kind for code in own} <= _ADDED:
        return {}
    found = {}
    for each in seen:
        scale = softmax_scale_of(type_name, config, each.queries.shape[-1])
        value, key = (None, None) if scale is None else scale
        source = {"softmax_scale": class_source(type_name) if key is None else f"config:{key}"}
        found[each.layer] = DeclaredLayer(replace(own[0], softmax_scale=value, source=source), None, None)
    return found


def scores_at_zero(
    module: nn.Module, tokens: Tensor, declared: Mapping[int, DeclaredLayer], seen: Sequence[Attended], *, places: bool
) -> list[LayerScores]:
    """Measure every declared layer, in texts of one token at position 0.

    Args:
        module: The model.
        tokens: Token ids, [texts].
        declared: The layers.
        seen: The records of a pass over two texts, with scores.
        places: Whether the model takes positions.
    """
    allowed = tolerance(seen[0].queries.dtype)
    homes = {each.path: home_of(module, each.path) for each in seen}
    single, made = outputs_at_zero(module, tokens, list(homes.values()), allowed, places=places)
    scales = {each.path: _scale(each) for each in reversed(seen)}
    found: dict[tuple[int, str], LayerScores] = {}
    for each in single:
        if (want := declared.get(each.layer)) is None:
            continue
        # The stacks of an encoder and a decoder have layers of one number.
        key = (each.layer, each.path if want.code.kind in _ADDED else "")
        if key not in found:
            inside = [output for output in made if output.path.startswith(f"{homes[each.path]}.")]
            found[key] = _of_layer(each, want, inside, scales.get(each.path), len(tokens))
    return list(found.values())


def _scale(own: Attended) -> float | None:
    """What q k is multiplied by.

    What is added to all scores of a query, as a largest one, does not count, nor what is added to that of a query and a
    key in every text, as a bias.
    """
    assert own.scores is not None
    queries, keys = own.queries.double(), own.keys.double()
    products = queries @ keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1).mT
    scores = own.scores.double()
    seen = scores > HIDDEN
    count = seen.sum(dim=-1, keepdim=True).clamp_min(1)

    def beside_mean(numbers: Tensor) -> Tensor:
        mean = torch.where(seen, numbers, 0).sum(dim=-1, keepdim=True) / count
        apart = torch.where(seen, numbers - mean, 0)
        return apart if len(apart) == 1 else apart - apart.mean(dim=0, keepdim=True)

    given, scaled = beside_mean(products), beside_mean(scores)
    ratio = float((given * scaled).sum() / (given**2).sum().clamp_min(1e-300))
    fits = float((scaled - ratio * given).norm()) <= 4 * tolerance(own.queries.dtype) * float(scaled.norm())
    return ratio if fits and ratio > 0 else None


def _of_layer(
    own: Attended, want: DeclaredLayer, made: Sequence[OutputAtZero], scale: float | None, texts: int
) -> LayerScores:
    width, allowed = own.queries.shape[-1], tolerance(own.queries.dtype)
    rotated = np.arange(width)[want.channels(width)] if want.expected is not None else np.arange(0)
    kinds = {ROTATED: rotated, OTHERS: np.delete(np.arange(width), rotated)}
    of_rotated: list[list[HeadSource]] = []
    factors = {}
    for kind, channels in kinds.items():
        sources = []
        for heads in (own.queries, own.keys):
            rows = heads[:texts, :, 0].double().cpu().numpy()[..., channels]
            found = sources_of(rows, made, allowed, want.layout if kind == ROTATED else None) if len(channels) else None
            sources.append(found)
        if kind == ROTATED:
            of_rotated = [each or [] for each in sources]
        if scale is not None and None not in sources:
            factors[kind] = scale * math.prod(each[0].ratio for each in sources if each)
    of_queries = of_rotated[0][0] if of_rotated[0] else None
    return LayerScores(
        own.layer,
        own.path,
        width,
        None if of_queries is None else of_queries.order,
        scale,
        factors,
        of_queries is not None and of_queries.moved,
        _angles_apart(*of_rotated),
    )


def _angles_apart(queries: Sequence[HeadSource], keys: Sequence[HeadSource]) -> np.ndarray | None:
    """By how much more queries are rotated than keys, [heads, pairs], rad; None where one is not known."""
    sides = [[each.angles for each in side if each.angles is not None] for side in (queries, keys)]
    if not all(sides) or [len(side) for side in sides] != [len(queries), len(keys)]:
        return None
    of_queries, of_keys = map(np.array, sides)
    return of_queries - of_keys.repeat(len(of_queries) // len(of_keys), axis=0)


def in_measured_order(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores]
) -> dict[int, DeclaredLayer]:
    """The declared layers; where neighbours are declared, with the arrangement in which attention receives them."""
    made = dict(declared)
    for each in measured:
        want = made.get(each.layer)
        if want is not None and want.code.layout == "interleaved" and each.order is not None:
            made[each.layer] = replace(want, layout="halves" if each.order == "halves" else "interleaved")
    return made


def by_name(measured: Sequence[LayerScores]) -> dict[str, LayerScores]:
    """The layers by their numbers; by the paths of their attentions where two stacks have layers of one number."""
    several = len({each.layer for each in measured}) < len(measured)
    return {each.path if several else str(each.layer): each for each in measured}


# Comparing


def differing_scores(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores], dtype: torch.dtype
) -> tuple[list[Observation], list[str], list[int]]:
    """Layers whose scores are not multiplied by the declared number at position 0.

    Returns:
        What differs, answers on what was declared and not measured, and the layers in which it was.
    """
    wrong: dict[str, list[int]] = {}
    unknown: set[int] = set()
    known: set[int] = set()
    free: dict[str, set[int]] = {}
    rotating = {(each.code.width, each.code.softmax_scale) for each in declared.values() if each.expected is not None}
    for name, each in by_name(measured).items():
        want = declared[each.layer]
        softmax = _softmax_scale(want.code, each.width)
        if want.expected is None and len(rotating) == 1 and {each.width} == {width for width, _ in rotating}:
            softmax = min(rotating)[1]  # layers that do not rotate attend as those that do
        if softmax is None:
            for kind, factor in each.factors.items():
                of = f" of the {kind} channels" if len(each.factors) > 1 else ""
                free.setdefault(f"Scores{of} are multiplied by {factor * each.width**0.5:.4g}", set()).add(each.layer)
            continue
        scores = 1.0 if want.code.score_scale is None else float(score_scale(want.code.score_scale, [0])[0])
        parts = _Parts(softmax, scores, 1.0 if want.expected is None else want.expected.factor_on_cosines)
        # A norm behind the rotation takes the factor on cosines away.
        seen = {
            kind: factor
            for kind, factor in each.factors.items()
            if kind == OTHERS or parts.cosines == 1 or not each.after_rotation
        }
        (known if seen else unknown).add(each.layer)
        if any(_far(factor, parts.of(kind), dtype) for kind, factor in seen.items()):
            says = _difference(seen, parts, want.code, each.width**-0.5, dtype)
            says = f"{says} That is in {re.split(_NUMBER, name)[0]}." if name == each.path else says
            wrong.setdefault(says, []).append(each.layer)
    found = [
        Observation("run-differs", {"says": says, "remedy": _REMEDY}, layer_ranges(layers))
        for says, layers in wrong.items()
    ]
    answers = []
    if unknown:
        answers.append(
            f"The declared factor on the scores of {numbered_layers(sorted(unknown))} was not measured: no "
            "projection gives their queries and keys, or scores are no multiple of q k."
        )
    if known and not found:
        answers.append(
            f"At position 0, scores are multiplied by the declared numbers in {numbered_layers(sorted({*known}))}."
        )
    answers += [
        f"{says} (besides 1 / sqrt of the width of a head) in {numbered_layers(sorted(layers))}; what the class "
        "declares is not known."
        for says, layers in free.items()
    ]
    if not found and not answers:
        answers.append("The factor on q k was not measured in any layer.")
    return found, answers, sorted(known)


@dataclass(frozen=True)
class _Parts:
    """The declared factors of q k: the scale of the softmax, that on the scores, and that on cosines."""

    softmax: float
    scores: float
    cosines: float

    def of(self, kind: str) -> float:
        """What q k of channels of this kind is multiplied by."""
        return self.softmax * self.scores * (self.cosines**2 if kind == ROTATED else 1.0)

    def suspects(self, code: LayerEncoding, plain: float) -> Iterator[tuple[str, dict[str, float]]]:
        """Usual faults, each with the number that it gives for both kinds of channels."""

        def both(times: float) -> dict[str, float]:
            return {kind: times * self.of(kind) for kind in (ROTATED, OTHERS)}

        softmax, scores, cosines = self.softmax, self.scores, self.cosines
        if softmax != plain:
            source = code.source.get("softmax_scale", "the declared scale")
            yield f"1 / sqrt of the width of a head in place of {source}", both(plain / softmax)
        yield "the scale of the softmax left out", both(1 / softmax)
        yield "the scale of the softmax applied twice", both(softmax)
        if scores != 1:
            yield f"the factor {scores:.4g} on the scores left out", both(1 / scores)
            yield f"the factor {scores:.4g} on the scores applied twice", both(scores)
            yield "the magnitude of YaRN, where its square is declared", both(scores**-0.5)
        if cosines != 1:
            rotated, says = self.of(ROTATED), f"the attention factor {cosines:.4g} of cosines and sines"
            yield f"{says} left out", both(1) | {ROTATED: rotated / cosines**2}
            yield f"{says} applied to queries or keys alone", both(1) | {ROTATED: rotated / cosines}
            yield f"{says} applied twice", both(1) | {ROTATED: rotated * cosines**2}
            yield f"{says} also applied to channels that do not rotate", both(1) | {OTHERS: rotated}
        factor = (code.scaling or {}).get("factor")
        if scores != 1 and factor is not None:
            # On cosines, YaRN in latent attention divides the magnitude of one field by that of the other.
            for name, magnitude in (("`mscale`", cosines * scores**0.5), ("mscale 1", yarn_magnitude(factor, 1.0))):
                yield f"the magnitude of {name} in place of that of `mscale_all_dim`", both(magnitude**2 / scores)


def _far(measured: float, declares: float, dtype: torch.dtype) -> bool:
    return abs(measured / declares - 1) > 2 * tolerance(dtype)


def _softmax_scale(code: LayerEncoding, width: int) -> float | None:
    """The declared scale; 1 / sqrt(width) where only a factor beside it is declared, None where nothing is."""
    if code.softmax_scale is None and isinstance(code.score_scale, ConstantScale):
        return width**-0.5
    return code.softmax_scale


def _difference(seen: Mapping[str, float], parts: _Parts, code: LayerEncoding, plain: float, dtype: torch.dtype) -> str:
    """What is wrong with the measured factors, in sentences; a fault is named where it gives all of them."""
    usual = not _far(parts.softmax, plain, dtype)
    unit = plain if usual else 1.0
    beside = " (besides 1 / sqrt of the width of a head)" if usual else ""
    wrong = [kind for kind, factor in seen.items() if _far(factor, parts.of(kind), dtype)]
    apart = len(wrong) < len(seen) or any(_far(seen[kind], seen[wrong[0]], dtype) for kind in wrong)
    told = []
    for kind in wrong:
        of = f" of the {kind} channels" if apart else ""
        measured, declares = f"{seen[kind] / unit:.4g}", f"{parts.of(kind) / unit:.4g}"
        what = f"Scores{of} are" if usual else f"q k{of} is"
        told.append(f"{what} multiplied by {measured}, where the config declares {declares}{beside}.")
    fits = [
        phrase
        for phrase, values in parts.suspects(code, plain)
        if not any(_far(factor, values[kind], dtype) for kind, factor in seen.items())
    ]
    fault = [f"That is {listed(fits, 'or')}."] if fits else []
    return " ".join([*dict.fromkeys(told), *fault])
