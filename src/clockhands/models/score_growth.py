"""Measures how the scores of each layer grow with the position of a query, beside the declared scale."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn

from clockhands.configs.resolved import layer_ranges, numbered_layers
from clockhands.encodings.scores import FloorLogScale, LogScale, ScoreScale, score_scale
from clockhands.models.attention_inputs import Attended
from clockhands.models.fitted_rotations import growth
from clockhands.models.layer_rotations import DeclaredLayer, repeated_tokens, rows_of, tolerance
from clockhands.models.observations import Observation
from clockhands.phrases import listed

LONGEST_TEXT = 1100
"""Tokens of a text in which layers are let count by themselves."""


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
            f"Scores of {numbered_layers(still)} do not grow with `position_ids`. Whether they grow with the "
            f"tokens that the layers count was not measured: that takes a text of {length:,} tokens."
        )
        return made
    waiting = {layer: declared[layer] for layer in still}
    left_out: dict[str, list[int]] = {}
    for layer in _grown(made, repeated_tokens(module, tokens[:1], length, seen), waiting, np.arange(length)):
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
