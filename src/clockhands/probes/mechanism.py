"""Measures how a model uses its positions: score terms, heads, readable positions, table shape, pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.lab.kept_models import KeptModel
from clockhands.models.rotation_changes import Rotating, rotating
from clockhands.models.running_models import RunningModel
from clockhands.probes._additive_terms import EXACT, Adding, ScoreTerms, adding, score_terms
from clockhands.probes._head_distances import FIXED, REACH, FixedHead, HeadsSeen, fixed_heads, watching
from clockhands.probes._pair_shares import PairShares, pair_shares
from clockhands.probes._position_readout import hidden_states, layers_read, read_position
from clockhands.probes._state_shifts import SHIFTS, StateShifts, state_shifts
from clockhands.probes._table_shape import DISTANCES, FEWEST, TrainedTable, table_shape
from clockhands.probes._token_cosines import TrainedCosines, token_cosines
from clockhands.probes.pricing import declared_rotary
from clockhands.probes.results import Curve, GatheredResult, HeadMap, ProbeResult, Progress, kept_when_stopped

MOST_TOKENS, MOST_PRICED = 512, 2
"""Tokens of a window that are looked at, and windows on which pairs are switched off."""

TOKENS_PER_CHANNEL = 2
"""Tokens that a linear map is fitted to, for each channel; with fewer, an R2 near 0 says nothing of the model."""

READ, NO_POSITION = 0.5, 0.1
"""R2 from which on the position can be read, and up to which it cannot."""

WAVES_LEAST, SHIFT_MOST = 0.45, 0.06
"""R2 from which on a table is partly periodic, and the residual share up to which one matrix shifts it."""


@dataclass(frozen=True, eq=False)
class _Pass:
    """The results of one run over all windows: heads, and hidden states, [windows, length, width] each."""

    heads: HeadsSeen | None
    states: Mapping[int, np.ndarray]


def measure_mechanism(model: RunningModel, ids: Tensor, progress: Progress) -> ProbeResult:
    """Measure how a model uses its positions.

    Args:
        model: A model of Transformers, or one of the lab. Measurements for which it has no module are left out.
        ids: Token ids, [windows, length]; of at least two windows the position is read on held-out text.
        progress: Called as ``progress(what, share)`` before each step.

    Raises:
        InvalidValue: Windows are too short.
        Stopped: An interrupt; it holds what was measured until then.
    """
    ids = ids[:, :MOST_TOKENS]
    windows, length = ids.shape
    if length < 2 * REACH:
        raise InvalidValue(
            f"Windows of {length} tokens are too short: distances up to {REACH} tokens are measured.",
            f"Choose --length {2 * REACH} or more.",
        )
    module = model.module
    added, rotated = adding(module), _rotating(model)
    spec = _spec_of(rotated, added)
    fitted = max(1, windows * 3 // 4)
    progress("attention and hidden states", 0.0)
    own = _run(module, ids, None)
    progress("the same with all tokens at position 0", 0.1)
    frozen = _run(module, ids, torch.zeros(length, dtype=torch.long))
    relabelled = None
    if added is not None:
        progress("the same with the rows of the table in another order", 0.2)
        order = torch.randperm(length, generator=torch.Generator().manual_seed(0))
        relabelled = _run(module, ids, order)
    found = _Findings()
    with kept_when_stopped(found, "mechanism"):
        width = next(iter(own.states.values())).shape[-1]
        if windows > 1 and fitted * length >= TOKENS_PER_CHANNEL * width:
            found.readout(own, frozen, relabelled, fitted)
        else:
            found.answers.append(
                f"Whether a linear map reads the position was not measured: {fitted * length:,} tokens in {fitted} of "
                f"{windows} windows are too few for hidden states of width {width:,}, which need "
                f"{TOKENS_PER_CHANNEL * width:,} and one window more."
            )
        if added is not None:
            code = model.code.spec if isinstance(model, KeptModel) else None
            found.shifts({layer: state_shifts(states, code) for layer, states in own.states.items()})
        if own.heads is not None and frozen.heads is not None:
            found.heads(own.heads, fixed_heads(own.heads, frozen.heads, spec, length))
        if added is not None:
            progress("the four terms of the scores of layer 0", 0.3)
            terms = score_terms(added, ids[:4])
            found.terms(terms, _attention_apart(terms, own.heads), windows=min(4, windows))
            table = added.table()
            words = getattr(getattr(added.base, "get_input_embeddings", lambda: None)(), "weight", None)
            if table is not None and words is not None and words.shape[1] == table.shape[1]:
                found.cosines(token_cosines(words.detach().double().cpu().numpy(), table), table.shape[1])
            if table is not None and len(table) >= FEWEST:
                progress("the shape of the table", 0.5)
                found.shape(table_shape(table))
        if rotated is not None and len(rotated.waves) == 1:
            progress("dimension pairs", 0.5)
            few = ids[:MOST_PRICED]
            found.pairs(pair_shares(module, rotated, few, progress, predicts=model.predicts))
    return found.result("mechanism")


def _rotating(model: RunningModel) -> Rotating | None:
    try:
        return rotating(model.module, declared_rotary(model))
    except InvalidValue:
        return None


def _spec_of(at: Rotating | None, added: Adding | None) -> Any:
    """The encoding for the head built by hand: the model's own, a sinusoid for a table, None for others."""
    if at is not None and len(at.waves) == 1:
        (waves,) = at.waves.values()
        ladder = waves.geometric
        return None if ladder is None else Rotary(2 * len(ladder.rates), spacing=Explicit(ladder.rates))
    if added is not None:
        row: Any = added.norm
        width = row.weight.shape[0]
        return Sinusoidal(width) if width % 2 == 0 else None
    return None


def _run(module: nn.Module, ids: Tensor, positions: Tensor | None) -> _Pass:
    states: dict[int, list[np.ndarray]] = {}
    with watching(module) as seen:
        for window in ids:
            seen.begin()
            all_states = hidden_states(module, window, positions)
            for layer in layers_read(len(all_states)):
                states.setdefault(layer, []).append(all_states[layer].float().cpu().numpy())
    return _Pass(seen.found(), {layer: np.stack(each) for layer, each in states.items()})


def _attention_apart(terms: ScoreTerms, heads: HeadsSeen | None) -> float | None:
    """The largest difference between the softmax of the scores and the model's own attention, layer 0, first window."""
    if heads is None or heads.example is None:
        return None
    scores, own = terms.scores, heads.example.double()
    if own.shape != scores.shape:
        return None
    causal = bool((own.triu(1) == 0).all())
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return float((scores.softmax(-1) - own).abs().max())


class _Findings(GatheredResult):
    """What each part of the measurement adds."""

    def readout(self, own: _Pass, frozen: _Pass, relabelled: _Pass | None, fitted: int) -> None:
        runs = {"own": own, "frozen": frozen, **({} if relabelled is None else {"relabelled": relabelled})}
        shares = {
            name: {layer: read_position(states, fitted) for layer, states in run.states.items()}
            for name, run in runs.items()
        }
        layers = list(own.states)
        first, last = (shares["own"][each] for each in (layers[0], layers[-1]))
        best = max(layers, key=lambda it: shares["own"][it])
        most, without = shares["own"][best], shares["frozen"][best]
        if most < READ:
            says = f"No layer lets a linear map read the position: R2 is {most:.3f} at most, on held-out text."
        elif without <= NO_POSITION:
            says = (
                f"A linear map reads the position best after layer {best}, with an R2 of {most:.3f} on held-out text "
                f"({first:.3f} before the first layer, {last:.3f} after the last); with all tokens at position 0 it "
                f"is {without:.3f}."
            )
        else:
            says = (
                f"A linear map reads the position best after layer {best}, with an R2 of {most:.3f} on held-out text; "
                f"with all tokens at position 0 it is still {without:.3f}, so the causal mask or the text tells it."
            )
        self.answers.append(says)
        self.numbers["position_r2"] = {
            "windows_fitted": fitted,
            "windows_judged": len(own.states[layers[0]]) - fitted,
            "position_encoding": most >= READ and without <= NO_POSITION,
            **{name: {str(layer): value for layer, value in each.items()} for name, each in shares.items()},
        }
        heads = ("after layer", "R2", *(("R2, all at position 0", "R2, rows relabelled")[: len(runs) - 1]))
        rows = tuple((layer, *(each[layer] for each in shares.values())) for layer in layers)
        self.table("Position read by a linear map on held-out text, R2", heads, rows)
        names = {"own": "as it is", "frozen": "all tokens at position 0", "relabelled": "rows relabelled"}
        curves = tuple(
            Curve(names[name], tuple(map(float, layers)), tuple(each.values())) for name, each in shares.items()
        )
        self.figure("Position that a linear map reads", "after layer", "R2", *curves)

    def shifts(self, by_layer: Mapping[int, StateShifts | None]) -> None:
        found = {layer: each for layer, each in by_layer.items() if each is not None}
        if not found:
            return
        first, last, one = found[min(found)], found[max(found)], SHIFTS[0]
        self.answers.append(
            f"The position part has {first.share:.1%} of the variance of hidden states after layer {min(found)}, and "
            f"{last.share:.1%} after layer {max(found)}."
        )
        ways = (("the encoding's own matrix R_k", first.own, last.own), ("the best matrix", first.best, last.best))
        self.answers += [
            f"Of a shift of this part by {one} token, {name} leaves {before[one]:.1%} and {after[one]:.1%} unexplained "
            "on tokens that were left out."
            for name, before, after in ways
            if before is not None and after is not None
        ]
        self.numbers["state_shifts"] = {str(layer): asdict(each) for layer, each in found.items()}
        heads = ("after layer", "share", *(f"{name}, k = {k}" for k in SHIFTS for name in ("best matrix", "R_k")))
        rows = (
            (layer, each.share, *(None if way is None else way[k] for k in SHIFTS for way in (each.best, each.own)))
            for layer, each in found.items()
        )
        self.table("Position part of hidden states, and what a shift by k tokens leaves of it", heads, rows)

    def heads(self, seen: HeadsSeen, fixed: Sequence[FixedHead]) -> None:
        number = seen.distance.size
        lost = [each for each in fixed if each.without < FIXED]
        if fixed:
            head = fixed[0]
            where = f"{abs(head.back)} token{'s' * (abs(head.back) > 1)} {'back' if head.back > 0 else 'ahead'}"
            self.answers.append(
                f"{len(fixed)} of {number} heads put at least {FIXED:.0%} of their attention at one fixed distance; "
                f"head {head.head} of layer {head.layer} looks {where} with {head.share:.0%}. With all tokens at "
                f"position 0, {len(lost)} of the {len(fixed)} do so no more."
            )
        else:
            self.answers.append(f"None of {number} heads puts {FIXED:.0%} of its attention at one fixed distance.")
        self.answers.append(
            f"The heads look {seen.distance.mean():.0f} tokens away on average, from {seen.distance.min():.1f} to "
            f"{seen.distance.max():.0f}; the first token gets {seen.first.mean():.0%} of the attention, and more than "
            f"half of it in {int((seen.first > 0.5).sum())} of {number} heads."
        )
        self.numbers["heads"] = {
            "fixed": [asdict(each) for each in fixed],
            "lost_at_position_0": len(lost),
            "mean_distance": seen.distance.tolist(),
            "first_token_share": seen.first.tolist(),
        }
        heads = ("layer", "head", "back", "share", "beside", "all at 0", "temperature by hand", "beside by hand")
        rows = tuple(
            (it.layer, it.head, it.back, it.share, it.beside, it.without, it.temperature, it.beside_by_hand)
            for it in fixed[:12]
        )
        if rows:
            self.table("Heads at one distance, beside the head built by hand", heads, rows)
        for title, unit, values in (
            ("How far heads look", "mean distance, tokens", seen.distance),
            ("Attention to the first token", "share", seen.first),
        ):
            self.figures.append(HeadMap(title, unit, tuple(map(tuple, values.tolist()))))

    def terms(self, terms: ScoreTerms, attention: float | None, *, windows: int) -> None:
        exact = terms.apart <= EXACT and (attention is None or attention <= 1e-3)
        share = {name: f"{each:.1%}" for name, each in terms.shares.items()}
        trained = terms.offsets["trained"]
        if exact:
            self.answers.append(
                "In layer 0, and there exactly, attention scores are the sum of four terms: content-content has "
                f"{share['content_content']} of the variance, content-position {share['content_position']}, "
                f"position-content {share['position_content']} and position-position {share['position_position']}. "
                "Later layers mix content and position, and are not split."
            )
        else:
            by = terms.apart if terms.apart > EXACT else attention
            self.answers.append(
                f"The four terms are not the attention scores of layer 0: they differ by {by:.2g}. The model adds "
                "something else to its scores, or its norm is no LayerNorm, so no shares are given."
            )
        if exact:
            self.answers.append(
                f"The distance explains {terms.offsets['before']:.1%} of the position-position part before a "
                f"projection, {terms.offsets['random']:.1%} behind random projections and {np.mean(trained):.1%} "
                f"({min(trained):.1%} to {max(trained):.1%}) behind those of the {len(trained)} heads of layer 0."
            )
        self.numbers["score_terms"] = {
            "exact": exact,
            "layer": 0,
            "windows": windows,
            "largest_difference": terms.apart,
            "largest_difference_of_attention": attention,
            "shares": dict(terms.shares) if exact else None,
            "distance_explains": dict(terms.offsets) if exact else None,
        }
        if exact:
            rows = tuple((name.replace("_", "-"), each) for name, each in terms.shares.items())
            self.table("Share of each term in the scores of layer 0", ("term", "share"), rows)

    def cosines(self, cosines: TrainedCosines, width: int) -> None:
        self.answers.append(
            f"Tokens and rows of the table have cosines of {cosines.deviation:.3f} (root mean square; "
            f"{width**-0.5:.3f} for random vectors), {cosines.largest:.2f} at most; {cosines.found:.1%} of sums of a "
            "token and a row are still nearest to their own token."
        )
        self.numbers["token_cosines"] = asdict(cosines)

    def shape(self, shape: TrainedTable) -> None:
        waves, noise = shape.waves.share, shape.noise_waves
        near = waves >= WAVES_LEAST and waves > noise
        self.answers.append(
            f"Four waves explain {waves:.1%} of rows of the table that were left out, and {noise:.1%} at most of "
            f"tables of the same spectrum: it is {'partly periodic, not a sinusoid' if near else 'not periodic'}."
            if waves < 0.99
            else f"The table is a sinusoid: four waves explain {waves:.1%} of rows that were left out."
        )
        one, least = shape.shifts[0], min(shape.noise_shifts[0], shape.smooth_shifts[0])
        moves = one <= SHIFT_MOST and one < least
        self.answers.append(
            f"{'One matrix' if moves else 'No matrix'} takes each row to the next: the best leaves {one:.3g} of the "
            f"variance of rows that were left out, {shape.shifts[1]:.3g} at {DISTANCES[1]} tokens and "
            f"{shape.shifts[2]:.3g} at {DISTANCES[2]}; of tables of the same spectrum it leaves at least {least:.3g}."
        )
        self.numbers["table"] = {
            "partly_periodic": near,
            "one_matrix_shifts": moves,
            "four_waves_r2": waves,
            "four_waves_r2_of_noise": noise,
            "frequencies": list(shape.waves.rates),
            "shift_residuals": dict(zip(map(str, DISTANCES), shape.shifts, strict=True)),
            "shift_residuals_same_singular_values": dict(zip(map(str, DISTANCES), shape.noise_shifts, strict=True)),
            "shift_residuals_same_fourier_spectrum": dict(zip(map(str, DISTANCES), shape.smooth_shifts, strict=True)),
        }
        rows = tuple(zip(DISTANCES, shape.shifts, shape.noise_shifts, shape.smooth_shifts, strict=True))
        self.table(
            "What the best matrix from row t to row t + k leaves of the variance",
            ("k", "table", "same singular values", "same Fourier spectrum"),
            rows,
        )

    def pairs(self, found: PairShares) -> None:
        mean = found.shares.mean((0, 1))
        half = len(mean) // 2
        self.answers.append(
            f"The slower half of the pairs has {mean[half:].sum():.0%} of |q||k|; the pair with the most is pair "
            f"{int(mean.argmax())} of {len(mean)} ({mean.max():.1%}; an equal share is {1 / len(mean):.1%})."
        )
        if found.removed:
            fast, slow = found.removed[0], found.removed[-1]
            still = found.unrotated[-1]
            self.answers.append(
                f"Without the fastest quarter of the pairs the loss rises by {fast.mean:.3f} nats, without the "
                f"slowest by {slow.mean:.3f}; if the slowest quarter is kept and not rotated, by {still.mean:.3f}."
            )
        self.numbers["pairs"] = {
            "share_of_query_and_key": mean.tolist(),
            "share_by_layer": found.shares.mean(1).tolist(),
            "rates": list(found.rates),
            "groups": [
                {"first": group[0], "last": group[-1], "removed": off.to_dict(), "unrotated": still.to_dict()}
                for group, off, still in zip(found.groups, found.removed, found.unrotated, strict=False)
            ],
        }
        rows = tuple(
            (f"{group[0]} to {group[-1]}", float(mean[list(group)].sum()), off.mean, still.mean)
            for group, off, still in zip(found.groups, found.removed, found.unrotated, strict=False)
        )
        if rows:
            heads = ("pairs, fast to slow", "share of |q||k|", "nats if removed", "nats if not rotated")
            self.table("Dimension pairs", heads, rows)
        curve = Curve("mean over layers and heads", tuple(map(float, range(len(mean)))), tuple(mean.tolist()))
        self.figure("How much of queries and keys is in each pair", "pair", "share of |q||k|", curve)
