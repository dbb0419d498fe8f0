"""Measures the factor on the scores of each layer, and how its rotation orders channels, beside its projections.

At position 0 a rotation does nothing: a query that attention receives is a row of a projection or of a norm, times a
constant, with channels in their order or in another one. The same holds for a key, and for the rotated and the other
channels of a head apart: cosines that are multiplied by a factor change the first alone. From there to the input of the
softmax, the product of a query and a key is multiplied by the scale.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import LayerEncoding, layer_ranges
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.encodings.scores import ConstantScale, FloorLogScale, LogScale, ScoreScale, score_scale
from clockhands.models.attention_inputs import Attended, attended
from clockhands.models.layer_rotations import DeclaredLayer, growth, repeated_tokens, rows_of, tolerance
from clockhands.models.observations import Observation
from clockhands.models.running_models import runner
from clockhands.phrases import listed

Order = Literal["kept", "halves"]
"""Of the rotated channels that attention receives: as projected, or first the even ones, then the odd ones."""

ROTATED, OTHERS = "rotated", "other"
"""The two kinds of channels of a head."""

LONGEST_TEXT = 1100
"""Tokens of a text in which layers are let count by themselves."""

_ELSEWHERE = 5  # a second position, at which a row behind a rotation differs from that at position 0
_HIDDEN = -1e4  # scores of hidden keys are below
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
    """

    layer: int
    path: str
    width: int
    order: Order | None
    scale: float | None
    factors: Mapping[str, float]
    after_rotation: bool = False


# Measuring


def scores_at_zero(
    module: nn.Module, tokens: Tensor, declared: Mapping[int, DeclaredLayer], seen: Sequence[Attended], *, places: bool
) -> list[LayerScores]:
    """Measure every declared layer, in texts of one token at position 0.

    Args:
        module: The model.
        tokens: Token ids, [texts].
        declared: The layers.
        seen: The records of a pass over a text, with scores.
        places: Whether the model takes positions.
    """
    positions = (0, _ELSEWHERE) if places else (0,)
    ids = tokens.repeat(len(positions))[:, None]
    at = torch.tensor(positions, device=ids.device).repeat_interleave(len(tokens))[:, None]
    given = {"position_ids": at, "attention_mask": torch.ones_like(ids)} if places else {}
    made: list[tuple[str, np.ndarray]] = []  # a norm may be called for queries and again for keys
    with ExitStack() as stack:
        for path, each in module.named_modules():

            def heard(_: nn.Module, __: Any, output: Any, path: str = path) -> None:
                if isinstance(output, Tensor) and output.shape[0] == len(ids) and output.is_floating_point():
                    made.append((path, output.detach().double().cpu().numpy().reshape(len(ids), -1)))

            if any(path.startswith(f"{one.path}.") for one in seen):
                stack.enter_context(each.register_forward_hook(heard))
        single = stack.enter_context(attended(module))
        with torch.no_grad():
            runner(module)(ids, **given)
    scales = {each.path: _scale(each) for each in reversed(seen)}
    found = {}
    for each in single:
        if each.layer in declared and each.layer not in found:
            inside = [rows for path, rows in made if path.startswith(f"{each.path}.")]
            found[each.layer] = _of_layer(each, declared[each.layer], inside, scales.get(each.path), len(tokens))
    return list(found.values())


def _scale(own: Attended) -> float | None:
    """What q k is multiplied by; a number that is added to all scores of a query, as a largest one, does not count."""
    assert own.scores is not None
    queries, keys = own.queries.double(), own.keys.double()
    products = queries @ keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1).mT
    scores = own.scores.double()
    seen = scores > _HIDDEN
    count = seen.sum(dim=-1, keepdim=True).clamp_min(1)

    def beside_mean(numbers: Tensor) -> Tensor:
        mean = torch.where(seen, numbers, 0).sum(dim=-1, keepdim=True) / count
        return torch.where(seen, numbers - mean, 0)

    given, scaled = beside_mean(products), beside_mean(scores)
    ratio = float((given * scaled).sum() / (given**2).sum().clamp_min(1e-300))
    fits = float((scaled - ratio * given).norm()) <= 4 * tolerance(own.queries.dtype) * float(scaled.norm())
    return ratio if fits and ratio > 0 else None


def _of_layer(
    own: Attended, want: DeclaredLayer, made: Sequence[np.ndarray], scale: float | None, texts: int
) -> LayerScores:
    width = own.queries.shape[-1]
    rotated = np.arange(width)[want.channels(width)] if want.expected is not None else np.arange(0)
    kinds = {ROTATED: rotated, OTHERS: np.delete(np.arange(width), rotated)}
    order: Order | None = None
    factors, moved = {}, False
    for kind, channels in kinds.items():
        ratios = []
        for heads in (own.queries, own.keys):
            rows = heads[:, :, 0].double().cpu().numpy()[..., channels]
            source = _source(rows, made, texts, tolerance(heads.dtype)) if len(channels) else None
            ratios.append(None if source is None else source.ratio)
            if source is not None and heads is own.queries and kind == ROTATED:
                order, moved = source.order, source.moved
        if scale is not None and None not in ratios:
            factors[kind] = scale * math.prod(each for each in ratios if each is not None)
    return LayerScores(own.layer, own.path, width, order, scale, factors, moved)


@dataclass(frozen=True)
class _Slice:
    """What gives the channels of all heads: the constant between, their order, and whether it depends on positions."""

    ratio: float
    order: Order
    moved: bool


def _source(rows: np.ndarray, made: Sequence[np.ndarray], texts: int, allowed: float) -> _Slice | None:
    """The output of a module that gives channels of heads [texts, heads, channels]; None if there is none."""
    found = [_slice_of(rows[:, head], made, texts, allowed) for head in range(rows.shape[1])]
    first = found[0]
    if first is None or any(each is None or abs(each.ratio / first.ratio - 1) > 2 * allowed for each in found):
        return None
    return first


def _slice_of(rows: np.ndarray, made: Sequence[np.ndarray], texts: int, allowed: float) -> _Slice | None:
    """The last output in which channels [texts, channels] of one head are found beside each other."""
    width, first = rows.shape[-1], rows[:texts]
    largest = int(np.linalg.norm(first, axis=-1).argmax())  # that of a padding token may be zeros
    orders: dict[Order, np.ndarray] = {"kept": np.arange(width), "halves": np.r_[0:width:2, 1:width:2]}
    for output in reversed(made):
        for order, places in orders.items():
            for start in _starts(first[largest], output[largest], places, allowed):
                given = output[:, start + places]
                ratio = constant(given[:texts], first, allowed)
                if ratio is not None:
                    # Without a second position it is not known whether the rotation comes before.
                    apart = np.abs(given[texts:] - given[:texts]).max() if len(given) > texts else np.inf
                    return _Slice(ratio, order, bool(apart > allowed * np.abs(given).max()))
    return None


def _starts(row: np.ndarray, output: np.ndarray, places: np.ndarray, allowed: float) -> Iterator[int]:
    """Where a row may begin in an output: there its three largest channels have one ratio."""
    count = len(output) - int(places.max())
    first, *others = np.argsort(-np.abs(row))[:3]
    if count < 1 or not row[first]:
        return
    most = output[places[first] :][:count]
    near = np.abs(most) > 0
    for channel in others:
        apart = row[first] * output[places[channel] :][:count] - row[channel] * most
        near &= np.abs(apart) <= 4 * allowed * np.abs(row[first] * most)
    yield from map(int, np.flatnonzero(near))


def constant(given: np.ndarray, made: np.ndarray, allowed: float) -> float | None:
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


# Comparing


def differing_scores(
    declared: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores], dtype: torch.dtype
) -> tuple[list[Observation], list[str], list[int]]:
    """Layers whose scores are not multiplied by the declared number at position 0.

    Returns:
        What differs, answers on what was declared and not measured, and the layers in which it was.
    """
    wrong: dict[str, list[int]] = {}
    unknown, known = [], []
    free: dict[tuple[str, str], list[int]] = {}
    rotating = {(each.code.width, each.code.softmax_scale) for each in declared.values() if each.expected is not None}
    for each in measured:
        want = declared[each.layer]
        softmax = _softmax_scale(want.code, each.width)
        if want.expected is None and len(rotating) == 1 and {each.width} == {width for width, _ in rotating}:
            softmax = min(rotating)[1]  # layers that do not rotate attend as those that do
        if softmax is None:
            for kind, factor in each.factors.items():
                free.setdefault((kind, f"{factor * each.width**0.5:.4g}"), []).append(each.layer)
            continue
        scores = 1.0 if want.code.score_scale is None else float(score_scale(want.code.score_scale, [0])[0])
        parts = _Parts(softmax, scores, 1.0 if want.expected is None else want.expected.factor_on_cosines)
        # A norm behind the rotation takes the factor on cosines away.
        seen = {
            kind: factor
            for kind, factor in each.factors.items()
            if kind == OTHERS or parts.cosines == 1 or not each.after_rotation
        }
        (known if seen else unknown).append(each.layer)
        if any(_far(factor, parts.of(kind), dtype) for kind, factor in seen.items()):
            says = _difference(seen, parts, want.code, each.width**-0.5, dtype)
            wrong.setdefault(says, []).append(each.layer)
    found = [
        Observation("run-differs", {"says": says, "remedy": _REMEDY}, layer_ranges(layers))
        for says, layers in wrong.items()
    ]
    answers = []
    if unknown:
        answers.append(
            f"The declared factor on the scores of layers {layer_ranges(unknown)} was not measured: no projection gives"
            " their queries and keys, or scores are no multiple of q k."
        )
    if known and not found:
        answers.append(f"At position 0, scores are multiplied by the declared numbers in layers {layer_ranges(known)}.")
    answers += [
        f"Scores of the {kind} channels are multiplied by {factor} (besides 1 / sqrt of the width of a head) in layers "
        f"{layer_ranges(layers)}; what the class declares is not known."
        for (kind, factor), layers in free.items()
    ]
    if not found and not answers:
        answers.append("The factor on q k was not measured in any layer.")
    return found, answers, known


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


# Growth with the position


def telling_positions(declared: Iterable[DeclaredLayer], length: int) -> np.ndarray:
    """Positions below a length at which declared scales of scores step or begin to grow, and those beside them."""
    scales = [each.code.score_scale for each in declared]
    edges = {scale.grows_from for scale in scales if scale is not None and scale.grows_from is not None}
    near = {step * edge + beside for edge in edges for step in (0.5, 1, 2, 3) for beside in (-1, 0, 1)}
    return np.array(sorted({int(each) for each in near if 0 < each < length}), dtype=np.int64)


@dataclass
class Growth:
    """How scores grow with the position.

    Attributes:
        found: What is not as declared.
        most: How far scores of each layer grow up to the position where they are largest.
        answers: On what was declared and not measured.
    """

    found: list[Observation] = field(default_factory=list)
    most: dict[int, float] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)


def growth_of_scores(
    module: nn.Module, seen: Sequence[Attended], declared: Mapping[int, DeclaredLayer], positions: np.ndarray,
    tokens: Tensor,
) -> Growth:  # fmt: skip
    """Compare how queries and keys grow with the position with the declared scale of scores.

    Layers that do not grow with the positions that they are given may count the tokens: they get a long text.

    Args:
        module: The model.
        seen: Each layer's queries and keys of texts of one token, by position.
        declared: The layers.
        positions: The positions; the first is 0.
        tokens: Token ids, [texts].
    """
    made = Growth()
    still = _grown(made, seen, declared, positions)
    if not still:
        return made
    scales = {layer: declared[layer].code.score_scale for layer in still}
    length = 2 + max(scale.grows_from or 0 for scale in scales.values() if scale is not None)
    if length > LONGEST_TEXT:
        made.answers.append(
            f"Scores of layers {layer_ranges(still)} do not grow with `position_ids`. Whether they grow with the "
            f"tokens that the layers count was not measured: that takes a text of {length:,} tokens."
        )
        return made
    waiting = {layer: declared[layer] for layer in still}
    left_out: dict[str, list[int]] = {}
    for layer in _grown(made, repeated_tokens(module, tokens[:1], length), waiting, np.arange(length)):
        scale = scales[layer]
        left_out.setdefault("not to change" if scale is None else scale.words, []).append(layer)
    for words, layers in left_out.items():
        says = f"Scores do not grow with the position, where the config declares them {words}."
        made.found.append(_growth_differs(says, layers))
    return made


def _grown(
    made: Growth, seen: Sequence[Attended], declared: Mapping[int, DeclaredLayer], positions: np.ndarray
) -> list[int]:
    """Notes growth that differs, and returns the layers whose scores stay as at position 0 against the declaration."""
    wrong: dict[str, list[int]] = {}
    still: list[int] = []
    done: set[int] = set()
    for each in seen:
        if (want := declared.get(each.layer)) is None or each.layer in done:
            continue
        done.add(each.layer)
        allowed = 2 * tolerance(each.queries.dtype)
        queries, keys = (growth(rows_of(heads, len(positions)), allowed / 2) for heads in (each.queries, each.keys))
        measured, scale = queries * keys, want.code.score_scale
        made.most[each.layer] = float(measured.max())
        declares = np.ones(len(positions)) if scale is None else score_scale(scale, positions)
        declares = declares / declares[0]
        far = np.abs(measured / declares - 1)
        at = int(far.argmax())
        if far[at] <= allowed:
            continue
        if not (measured != 1).any():
            still.append(each.layer)
            continue
        says = (
            f"Scores of queries at position {positions[at]:,} are {measured[at]:.4g} times those at position 0, "
            f"where the config declares {declares[at]:.4g}."
        )
        faults = [
            phrase
            for phrase, growing in _growths(scale, positions)
            if np.abs(measured / (growing / growing[0]) - 1).max() <= allowed
        ]
        wrong.setdefault(f"{says} That is {listed(faults, 'or')}." if faults else says, []).append(each.layer)
    made.found += [_growth_differs(says, layers) for says, layers in wrong.items()]
    return still


def _growth_differs(says: str, layers: Sequence[int]) -> Observation:
    remedy = "Multiply each query once by the declared scale at its position."
    return Observation("run-differs", {"says": says, "remedy": remedy}, layer_ranges(layers))


def _growths(scale: ScoreScale | None, positions: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Usual faults of a scale that grows, each with what it makes of the scores, beside the first position."""
    if not isinstance(scale, FloorLogScale | LogScale):
        return

    yield "the growth applied twice", score_scale(scale, positions) ** 2
    yield "the growth of a position one later", score_scale(scale, positions + 1)
    yield "the growth of a position one earlier", score_scale(scale, np.maximum(positions - 1, 0))
    if isinstance(scale, FloorLogScale):
        steps = (positions + scale.first) / scale.original
        yield "the growth without rounding the steps down (`floor`)", 1 + scale.beta * np.log1p(steps)
        yield "the logarithm without 1 +", 1 + scale.beta * np.log(np.maximum(np.floor(steps), 1))
