"""`check_attention`: whether attention layers rotate, scale and bias their scores as a config declares."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved, layer_numbers, numbered_layers
from clockhands.configs.targets import is_preset, open_target
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.models.attention_inputs import Attended
from clockhands.models.compared_runs import some_tokens
from clockhands.models.fitted_rotations import fitted
from clockhands.models.layer_biases import KINDS, biases_in_effect, declared_biases, differing_biases, shared_tables
from clockhands.models.layer_offsets import differing_offsets
from clockhands.models.layer_rotations import (
    POSITIONS,
    DeclaredLayer,
    LayerRotation,
    changes_with_length,
    declared_layers,
    differing,
    moved,
    repeated_tokens,
    rows_of,
    single_tokens,
    tolerance,
)
from clockhands.models.layer_scores import (
    LayerScores,
    differing_scores,
    in_measured_order,
    layers_that_do_not_rotate,
    scores_at_zero,
)
from clockhands.models.layer_windows import differing_windows
from clockhands.models.measured_rotations import lengths_in_use
from clockhands.models.observations import Observation
from clockhands.models.opened_modules import open_values
from clockhands.models.score_growth import growth_of_scores, telling_positions
from clockhands.phrases import listed, shown
from clockhands.recognition.calling import error_text
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing.kinds import chosen_in
from clockhands.testing.modules._attention_calls import OpenedAttention, calls_of, opened_attention
from clockhands.testing.modules._explanations import explanation_of_codes
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report

EXPERIMENTS = ("rotation", "score scale", "score scale by position", "queries beside keys", "bias on scores", "window")
"""The names of what is measured."""
ROTATION, SCALE, GROWTH, BESIDE, BIAS, WINDOW = EXPERIMENTS
_OF_POSITIONS = frozenset({ROTATION, GROWTH, BESIDE, BIAS, WINDOW})
_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_LONGEST = 32_768  # positions to which a rotation is followed
_COUNTED = 128  # tokens of a text in which a module counts them itself
_COUNTS_ITSELF = (_COUNTED, 32, 16, 8)


def check_layers(
    module: torch.nn.Module,
    like: Any,
    *,
    layer: int | None,
    call: Callable[..., Any] | None,
    name: str,
) -> Report:
    """See `clockhands.testing.check_attention`."""
    declared = _Declared.of(like, layer)
    with torch.no_grad():
        only, spec = None, declared.spec_for(declared.layer)
        calls = list(calls_of(module, call, declared.width, rotates=spec is not None))
        opened = opened_attention(module, calls, spec, None, lambda _: True, layers=declared.count)
        _refuse_one_module_for_all(opened.seen, name)
        is_model = declared.layer is None and not opened.run.call.width and declared.layers(opened.seen, None)
        if len({each.path for each in opened.seen}) == 1 and not is_model:
            only = _layer_of(module, declared)
            spec = declared.spec_for(only)
        if opened.run.call.table is not None or only is not None:
            fits = partial(_rotates_as, declared=declared, only=only)
            opened = opened_attention(module, calls, spec, only, fits, layers=declared.count)
        try:
            declared = declared.with_decoder(opened.seen)
            found = _measured(opened, declared, only)
            plain = declared.without_default_scaling() if ROTATION in found.failed else None
            if plain is not None and ROTATION not in (without := _measured(opened, plain, only)).failed:
                declared, found = plain, without
                found.left_out["scaling of frequencies"] = (
                    "the config names none, which its class has by default: it rotates without any"
                )
            if "layer-rotates" in {code for each in found.explanations for code in each.codes}:
                _refuse_layers_by_default(declared, name)
        except CannotCheck:
            raise
        except Exception as error:
            if error is not opened.run.raised:
                raise
            raise CannotCheck(
                f"{name} took a text of {opened.ids.shape[1]} tokens, but then it raised {error_text(error)}.",
                "Build it with room for 32 texts of 4,096 tokens, or pass call=.",
            ) from error
    encoded = any(code.kind == "rotary" or code.kind in KINDS for code in declared.codes)
    if not found.made or (encoded and not found.failures and _OF_POSITIONS.isdisjoint(found.made)):
        reasons = [f"{what} ({why.removesuffix('.')})" for what, why in found.left_out.items()]
        raise CannotCheck(
            f"No position encoding that {declared.name} declares could be measured in {name}: {listed(reasons)}.",
            "Check the function that rotates by check_rotary, or pass the layer that holds its projections.",
        )
    return Report(
        subject=name,
        kind="attention",
        like=f"{found.what} as in {declared.name}",
        experiments=tuple(found.made),
        left_out=found.left_out,
        failures=tuple(found.failures),
        explanations=tuple(found.explanations),
        called={"library": "torch", "dtype": str(opened.run.like[1]).removeprefix("torch."),
                "shape": opened.run.call.text(), "did_not_fit": {}},
        spec=spec,
    )  # fmt: skip


@dataclass(frozen=True)
class _Declared:
    """What a config declares for the layers of its text.

    Attributes:
        name: What it is called in messages.
        opened: The config.
        resolved: Its codes.
        layer: The layer that the caller names, if any.
    """

    name: str
    opened: Opened
    resolved: Resolved
    layer: int | None

    @classmethod
    def of(cls, like: Any, layer: int | None) -> "_Declared":
        """What ``like`` declares: a target, ``TARGET:layer=N``, a dict or an object with the keys of a config."""
        if isinstance(like, str):
            chosen = chosen_in(like)
            text = chosen.target
            opened = open_target(f"preset:{text}" if is_preset(text) else text)
            resolved = resolve(opened)
            resolved = replace(resolved, codes=chosen.codes(resolved.codes))
            return cls(text, opened, resolved, layer if chosen.layer is None else chosen.layer)
        values = open_values(like)
        if values is None:
            raise InvalidType(
                f"`like` must be a config, got {shown(like)}.",
                "Give the path of a model or of its config.json, a dict, or an object such as LlamaConfig().",
            )
        return cls(f"the config of {resolve(values).model_type}", values, resolve(values), layer)

    def with_decoder(self, seen: Sequence[Attended]) -> "_Declared":
        """The same where a stack is seen of two, and the config does not say how many layers a decoder has."""
        stacks = {each.path.partition(".")[0] for each in seen}
        layers = self.config.get("num_layers")
        if {"encoder", "decoder"}.isdisjoint(stacks) or "num_decoder_layers" in self.config or layers is None:
            return self
        return replace(self, resolved=resolve(self.opened, overrides={"num_decoder_layers": layers}))

    def without_default_scaling(self) -> "_Declared | None":
        """The same without a scaling that only the default of its class has; None if there is none."""
        rotating = [code for code in self.codes if code.kind == "rotary" and code.scaling is not None]
        if not rotating or any("class default" not in code.source.get("scaling", "") for code in rotating):
            return None
        return replace(self, resolved=resolve(self.opened, overrides={"rope_scaling": {"rope_type": "default"}}))

    @property
    def codes(self) -> tuple[LayerEncoding, ...]:
        """The codes of its text. Layers that do not rotate multiply scores as those that do, if these are alike."""
        text = tuple(code for code in self.resolved.codes if code.part in TEXT)
        scales = {(code.softmax_scale, code.source.get("softmax_scale", "")) for code in text if code.kind == "rotary"}
        if len(scales) != 1:
            return text
        ((scale, source),) = scales
        return tuple(
            replace(code, softmax_scale=scale, source={**code.source, "softmax_scale": source})
            if code.kind == "none" and code.softmax_scale is None
            else code
            for code in text
        )

    @property
    def config(self) -> Mapping[str, Any]:
        """The keys of the config of its text."""
        config = self.opened.config or {}
        inner = config.get("text_config")
        return inner if isinstance(inner, Mapping) else config

    @property
    def width(self) -> int | None:
        """Channels of hidden states."""
        value = self.config.get("hidden_size", self.config.get("d_model", self.config.get("n_embd")))
        return value if isinstance(value, int) else None

    @property
    def count(self) -> int | None:
        """The layers of its text."""
        value = next((self.config[name] for name in _COUNTS if name in self.config), None)
        return value if isinstance(value, int) else None

    @property
    def latent(self) -> bool:
        """Whether keys come from one latent vector, where the order of channels of a head is free."""
        return "kv_lora_rank" in self.config

    def spec_for(self, only: int | None) -> Rotary | None:
        """What the cosines of a layer, or of all layers, are made from: those of another one if it does not rotate."""
        rotating = [code for code in self.codes if isinstance(code.spec, Rotary)]
        own = [code for code in rotating if only is None or code.layers is None or only in layer_numbers(code.layers)]
        return next((code.spec for code in [*own, *rotating] if isinstance(code.spec, Rotary)), None)

    def layers(self, seen: Sequence[Attended], only: int | None) -> dict[int, DeclaredLayer]:
        """The declaration of each layer that was seen."""
        numbers = sorted({each.layer for each in seen})
        reordered = bool(self.config.get("rope_interleave"))
        if only is None:
            return declared_layers(self.codes, numbers, reordered=reordered)
        own = declared_layers(self.codes, [only], reordered=reordered)
        return {number: own[only] for number in numbers if only in own}  # whatever number it gives itself


def _refuse_one_module_for_all(seen: Sequence[Attended], name: str) -> None:
    """Refuse a module that itself computes the attention of several layers: which is which is not known."""
    paths = [each.path for each in seen]
    if len(paths) > 1 and len({*paths}) == 1 and "." not in paths[0].partition("layers.")[2]:
        raise CannotCheck(
            f"{name} puts {len(paths)} products of queries and keys into a softmax in one forward.",
            "Give each layer a separate module that computes its attention.",
        )


def _refuse_layers_by_default(declared: _Declared, name: str) -> None:
    """Refuse a config with a rotation that no layer has by the default of its class, as of a hybrid model."""
    named = [key for key in ("rope_parameters", "rope_scaling", "rope_theta") if declared.config.get(key)]
    if declared.codes and {code.kind for code in declared.codes} == {"none"} and named:
        raise CannotCheck(
            f"{declared.name} has {named[0]}, and by the default of its class none of its layers rotates, so it is not "
            f"known what the attention of {name} should do.",
            "Name the layers that attend in the config, such as by layer_types.",
        )


def _layer_of(module: torch.nn.Module, declared: _Declared) -> int:
    """The number of the one layer that a module is.

    Raises:
        InvalidValue: The layers of the config differ, and nothing says which one it is.
    """
    if declared.layer is not None:
        return declared.layer
    own = [getattr(each, name, None) for each in module.modules() for name in ("layer_idx", "layer_id", "layer_number")]
    if (number := next((each for each in own if type(each) is int), None)) is not None:
        return number
    kinds: dict[Any, str] = {}
    for code in declared.codes:
        kinds.setdefault((code.kind, code.spec, code.softmax_scale, code.score_scale), str(code.layers))
    if len(kinds) > 1:
        what = [f"{code.kind} in layers {code.layers}" for code in declared.codes]
        raise InvalidValue(
            f"{type(module).__name__} is one layer, and {declared.name} declares {listed(what)}.",
            f"Name the layer: --like {declared.name}:layer=0, or layer=0.",
        )
    first = next((code.layers for code in declared.codes if code.layers), None)
    return min(layer_numbers(first or "0"), default=0)


@dataclass
class _MeasuredAttention:
    """What was measured.

    Attributes:
        made: The experiments that were made, each with the layers that were measured.
        left_out: Those that were not, with the reasons.
        failures: Those that failed.
        explanations: What is wrong.
    """

    made: dict[str, set[int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)

    @property
    def what(self) -> str:
        """What was measured of which layers."""
        by_layers: dict[tuple[int, ...], list[str]] = {}
        for experiment, layers in self.made.items():
            by_layers.setdefault(tuple(sorted(layers)), []).append(experiment)
        return "; ".join(f"{listed(each)} of {numbered_layers(layers)}" for layers, each in by_layers.items())

    @property
    def failed(self) -> set[str]:
        """The experiments that failed."""
        return {each.experiment for each in self.failures}

    def note(self, experiment: str, layers: Iterable[int], why_not: str = "") -> None:
        """Note that an experiment was made in some layers, or why it was not."""
        layers = set(layers)
        if layers:
            self.made.setdefault(experiment, set()).update(layers)
        elif why_not:
            self.left_out[experiment] = why_not

    def unmade(self, experiment: str, layers: Iterable[int]) -> None:
        """Note that an experiment says nothing of some layers after all."""
        left = self.made.pop(experiment, set()) - set(layers)
        if left:
            self.made[experiment] = left

    def wrong(
        self, experiment: str, code: str, layers: str, told: str, *, evidence: Mapping[str, Any], what: str = ""
    ) -> None:
        """Note a fault of some layers: what they do, and ``what`` of them does it."""
        told = told.removesuffix(".")
        told = told if told.startswith("q k") else f"{told[:1].lower()}{told[1:]}"
        parameters = {"layers": layers, "told": told, "what": what}
        self.explanations.append(explanation_of_codes(code, parameters, None, {**evidence, "explains": [experiment]}))
        message = f"in {layers}, {f'{what} rotate {told}' if what else told}".rstrip()
        self.failures.append(Failure(experiment, f"{message}.", dict(evidence)))


def _measured(opened: OpenedAttention, declared: _Declared, only: int | None) -> _MeasuredAttention:
    """Measure everything that is declared."""
    run, seen, found = opened.run, opened.seen, _MeasuredAttention()
    dtype = seen[0].queries.dtype
    wanted = declared.layers(seen, only)
    tables = layers_that_do_not_rotate(declared.codes, declared.resolved.model_type or "", declared.config, seen)
    number = (lambda layer: layer) if only is None else (lambda _: only)
    _refuse_other_sizes(seen, wanted, declared)
    tokens = some_tokens(run, opened.ids, seen)
    given, positions, length = _along(opened, tokens, wanted, declared)
    wanted = _as_placed(given, wanted, len(positions)) if declared.latent else wanted
    measured = scores_at_zero(run, tokens, tables | wanted, seen, places=False)
    wanted = in_measured_order(wanted, measured)
    alone = (
        partial(single_tokens, run, tokens, positions, seen)
        if opened.follows_positions and run.call.positions_in_batches
        else None
    )
    if run.call.places_given and not opened.follows_positions:
        found.left_out["positions that are passed in"] = "they change no query and no key: it counts the tokens"
    kinds = {code.kind for code in declared.codes}
    _add_rotations(found, given, wanted, positions, length, alone=alone, number=number, rotates="rotary" in kinds)
    if kinds & {"learned", "sinusoidal"}:
        found.left_out["table of positions"] = "it is added before the layers: check_additive checks it"
    _add_scores(found, tables | wanted, measured, dtype, number)
    offsets = differing_offsets(wanted, measured, dtype)
    found.note(BESIDE, map(number, offsets.tokens))
    for each in offsets.found:
        _add(found, BESIDE, "queries-beside-keys", each, number)
    _add_growth(found, opened, given, wanted, positions=positions, tokens=tokens, number=number)
    _add_biases(found, opened, declared, number)
    # A layer that was asked for by its number may hold another one.
    of_number = seen if only is None else [replace(each, layer=only) for each in seen]
    _add_windows(found, replace(opened, seen=of_number), declared, number)
    if declared.config.get("attn_logit_softcapping"):
        found.left_out["soft cap of scores"] = "no experiment measures it"
    return found


_Number = Callable[[int], int]


def _refuse_other_sizes(seen: Sequence[Attended], wanted: Mapping[int, DeclaredLayer], declared: _Declared) -> None:
    """Refuse a module whose heads are not those of the config: its frequencies would be others."""
    for each in seen:
        want, width = wanted.get(each.layer), each.queries.shape[-1]
        if want is None or want.expected is None:
            continue
        right = want.code.width
        if want.rotated > width or (right is not None and right != width and not declared.latent):
            raise CannotCheck(
                f"Its heads have {width} channels, and {declared.name} declares "
                f"{f'{right}' if right is not None else f'at least {want.rotated}'}.",
                "Build the module in the sizes of the config, or pass a config in the sizes of the module.",
            )


def _as_placed(given: Sequence[Attended], wanted: Mapping[int, DeclaredLayer], rows: int) -> dict[int, DeclaredLayer]:
    """The layers; where the rotated channels of a head come first, which no score depends on, as such."""
    made = dict(wanted)
    for each in given:
        want = made.get(each.layer)
        if want is None or want.expected is None:
            continue
        heads = rows_of(each.queries, rows)
        allowed = tolerance(each.queries.dtype)
        first, others = heads[..., : want.rotated], heads[..., want.rotated :]
        if others.shape[-1] and moved(first) > allowed >= moved(others):
            made[each.layer] = replace(want, leading=True)
    return made


def _along(
    opened: OpenedAttention, tokens: torch.Tensor, wanted: Mapping[int, DeclaredLayer], declared: _Declared
) -> tuple[list[Attended], np.ndarray, int]:
    """Queries and keys of texts of one repeated token, their positions, and the length in use."""
    run = opened.run
    specs = [each.code.spec for each in wanted.values() if each.expected is not None]
    lengths = lengths_in_use(specs, min(declared.resolved.context or 4096, _LONGEST))
    # Of frequencies that depend on the length, those of short texts: a longer one is another experiment.
    length = lengths[0]
    if opened.follows_positions:
        growing = max(
            (each.code.score_scale.grows_from or 0 for each in wanted.values() if each.code.score_scale), default=0
        )
        reach = length if changes_with_length(list(wanted.values())) else max(length, 3 * int(growing) + 2)
        for most in dict.fromkeys((reach, length, _COUNTED)):
            at = np.union1d(probe_positions(most, POSITIONS), telling_positions(wanted.values(), most))
            where = torch.from_numpy(at).to(tokens.device)[None].expand(len(tokens), -1)
            with suppress(Exception):  # a module may have rows of fewer positions
                return repeated_tokens(run, tokens, len(at), opened.seen, position_ids=where), at, most
    given: list[Attended] = []
    size = length
    for most in _COUNTS_ITSELF:  # what reads its tokens in parts, as an engine may, is seen whole in a short text
        size = min(length, most)
        given = repeated_tokens(run, tokens, size, opened.seen)
        if given and (not run.several or [each.layer for each in given] == [each.layer for each in opened.seen]):
            break
    return given, np.arange(size), size


def _rotates_as(opened: OpenedAttention, declared: _Declared, only: int | None) -> bool:
    """Whether the first layers that are declared to rotate do so as declared, with these cosines."""
    wanted = {key: each for key, each in declared.layers(opened.seen, only).items() if each.expected is not None}
    tokens = opened.ids[0, :2]
    given, positions, length = _along(opened, tokens, wanted, declared)
    if declared.latent:
        wanted = _as_placed(given, wanted, len(positions))
    layouts: tuple[Layout | None, ...] = ("halves", "interleaved") if declared.latent else (None,)
    return any(not list(differing(given, _laid_out(wanted, layout), positions, length)) for layout in layouts)


def _laid_out(wanted: Mapping[int, DeclaredLayer], layout: Layout | None) -> dict[int, DeclaredLayer]:
    return {key: each if layout is None else replace(each, layout=layout) for key, each in wanted.items()}


def _add_rotations(
    found: _MeasuredAttention, given: Sequence[Attended], wanted: Mapping[int, DeclaredLayer], positions: np.ndarray,
    length: int, *, alone: Callable[[], list[Attended]] | None, number: _Number, rotates: bool,
) -> None:  # fmt: skip
    silent = {each.layer for each in given if not (each.queries.any() and each.keys.any())}
    unseen = "its queries or keys are 0" if silent else "its attention over a text was not seen"
    measured = {each.layer for each in given if each.layer in wanted} - silent
    unknown = "the declared one is not known whole" if not wanted else unseen
    found.note(ROTATION, map(number, measured), unknown if rotates else "")
    alike: dict[tuple[str, str], list[LayerRotation]] = {}
    wrong = list(differing([one for one in given if one.layer in measured], dict(wanted), positions, length))
    if wrong and alone is not None:  # a sink, or what counts keys, moves hidden states along a text as well
        along = {(each.layer, each.of) for each in wrong}
        wrong = [each for each in differing(alone(), dict(wanted), positions, length) if (each.layer, each.of) in along]
    elif wrong:
        moving = {each.layer for each in given[1:] if not _is_rotated(each, len(positions))}
        if moving & {each.layer for each in wrong}:
            where = numbered_layers(sorted(map(number, moving)))
            found.left_out[f"rotation of {where}"] = "their hidden states change along a text of one token"
            found.unmade(ROTATION, map(number, moving))
        wrong = [each for each in wrong if each.layer not in moving]
    for each in wrong:
        alike.setdefault(_rotation_fault(each, wanted[each.layer]), []).append(each)
    for (code, told), group in alike.items():
        layers = numbered_layers(sorted({number(each.layer) for each in group}))
        of = listed(sorted({each.of for each in group}, reverse=True))
        found.wrong(ROTATION, code, layers, told, evidence=group[0].evidence, what=of)


def _is_rotated(own: Attended, positions: int) -> bool:
    """Whether pairs of channels of queries are rotated from position to position, and nothing else changes them."""
    rows = rows_of(own.queries, positions)
    width = rows.shape[-1]
    layouts: tuple[Layout, ...] = ("halves", "interleaved")
    parts = [rows[..., part] for part in (slice(None), slice(width // 2), slice(width // 2, None), slice(width // 4))]
    return any(
        fitted(part, pair_channels(part.shape[-1] // 2, layout))[2] <= tolerance(own.queries.dtype)
        for part in parts
        for layout in layouts
        if part.shape[-1] > 1 and part.shape[-1] % 2 == 0
    )


def _rotation_fault(found: LayerRotation, want: DeclaredLayer) -> tuple[str, str]:
    """The code of a wrong rotation, and what queries or keys do."""
    if want.expected is None:
        return "layer-rotates", ""
    if found.fault == "no-rotation":
        return "layer-without-rotation", "by no angle"
    evidence = found.evidence
    if "behaves as" in evidence:
        return "layer-rotation", f"like {evidence['behaves as']}"
    if {"wave", "stored", "declared", "pair", "position"} <= set(evidence):
        told = (
            f"with a {evidence['wave']} of {evidence['stored']:.6g} for pair {evidence['pair']} at position "
            f"{evidence['position']}, where {evidence['declared']:.6g} is declared"
        )
        # Measured beside those of the first position, of which a factor is a part: cosines are within 1.
        is_one = abs(evidence["stored"]) <= _LARGEST
        return "layer-rotation", told if is_one else _UNFILLED
    return "layer-rotation", f"as with {_numbers(evidence)}"


_LARGEST = 2.0
_UNFILLED = (
    "with numbers that are no cosines or sines, as in memory that nothing has written to: a table that is not saved "
    "with the weights, or was made on the device meta, has to be computed after loading"
)


def _numbers(evidence: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in evidence.items()
    )


def _add_scores(
    found: _MeasuredAttention, wanted: Mapping[int, DeclaredLayer], measured: Sequence[LayerScores], dtype: torch.dtype,
    number: _Number,
) -> None:  # fmt: skip
    observed, answers, scored = differing_scores(wanted, measured, dtype)
    missing = sorted({each.layer for each in measured} - {*scored})
    found.note(SCALE, map(number, scored), " ".join(answers))
    if scored and missing:
        where = numbered_layers(sorted(map(number, missing)))
        found.left_out[f"score scale of {where}"] = (
            "no projection gives their queries and keys along a text of one token, or none is declared"
        )
    for each in observed:
        _add(found, SCALE, "score-scale", each, number)


def _add_growth(
    found: _MeasuredAttention, opened: OpenedAttention, given: Sequence[Attended], wanted: Mapping[int, DeclaredLayer],
    *, positions: np.ndarray, tokens: torch.Tensor, number: _Number,
) -> None:  # fmt: skip
    grown = growth_of_scores(opened.run, given, wanted, positions, tokens)
    grows = [each.layer for each in given if (want := wanted.get(each.layer)) and want.code.score_scale is not None
             and want.code.score_scale.grows_from is not None]  # fmt: skip
    scales = [wanted[layer].code.score_scale for layer in grows]
    reach = min((scale.grows_from or 0 for scale in scales if scale is not None), default=0)
    still = [layer for layer in grows if grown.most.get(layer) == 1]
    told = opened.follows_positions and opened.run.call.positions_given and positions.max() >= reach
    if still and told and grown.answers:  # else it may count the tokens of a text that is too long to give
        says = "scores do not grow with the positions that are passed in"
        found.note(GROWTH, map(number, grows))
        found.wrong(GROWTH, "score-growth", numbered_layers(sorted(map(number, still))), says, evidence={})
    elif grows and (grown.answers or positions.max() < reach):
        why = " ".join(grown.answers) or f"it takes no positions beyond {positions.max():,}"
        found.left_out[GROWTH] = why
    elif grows or grown.found:
        found.note(GROWTH, map(number, grows or wanted))
    for each in grown.found:
        _add(found, GROWTH, "score-growth", each, number)


def _add_biases(found: _MeasuredAttention, opened: OpenedAttention, declared: _Declared, number: _Number) -> None:
    of_layers = declared_biases(opened.run, declared.codes, opened.seen)
    measured = biases_in_effect(opened.run, int(opened.ids[0, 0]), opened.ids.device, declared.resolved.context)
    checked = [each.layer for path, each in measured.items() if path in of_layers]
    if any(code.kind in KINDS for code in declared.codes):
        found.note(BIAS, map(number, checked), "the numbers of its bias were not found, or its queries are not alike")
    for each in [*differing_biases(measured, of_layers), *shared_tables(opened.run, declared.codes, opened.seen)]:
        _add(found, BIAS, "layer-bias", each, number)


def _add_windows(found: _MeasuredAttention, opened: OpenedAttention, declared: _Declared, number: _Number) -> None:
    if not any(code.farthest is not None for code in declared.codes):
        return
    if opened.takes_mask:
        found.left_out[WINDOW] = "it takes a mask, and the window is in the mask that its model makes"
        return
    context = declared.resolved.context
    windows = differing_windows(opened.run, opened.ids[0], declared.codes, opened.seen, context)
    why_not = " ".join(windows.answers) or f"no text within {context:,} tokens shows it"
    found.note(WINDOW, map(number, windows.compared), why_not)
    for each in windows.found:
        _add(found, WINDOW, "layer-window", each, number)


def _add(found: _MeasuredAttention, experiment: str, code: str, observed: Observation, number: _Number) -> None:
    layers = sorted({number(layer) for layer in layer_numbers(observed.layers or "")})
    told = str(observed.evidence.get("says") or _numbers(observed.evidence))
    found.wrong(experiment, code, numbered_layers(layers), told, evidence=observed.evidence)
