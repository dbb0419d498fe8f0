"""Tests whether the positions in effect in a running model are the declared ones.

Three tests are combined, since each alone misses some fault: outputs do not change when all positions are shifted (a
wrong base passes this, too); outputs equal those of a reference whose queries and keys are rotated here, by the
declared spec; and the loss in each band of positions equals that of the reference. `clockhands.models.layer_rotations`
finds the layers, and `clockhands.testing.check_generation` compares padding, packing, chunks and cached decoding with
one pass.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.auditing import Audit, Finding, audit
from clockhands.auditing.findings import make_finding
from clockhands.configs.resolved import TEXT, layer_numbers, layer_ranges, numbered_layers
from clockhands.encodings import rotary
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.models.attention_inputs import Attended, attended, attended_once, inner, is_compiled, uncompiled
from clockhands.models.compared_runs import (
    WholePasses,
    biased_reference,
    causal,
    counts_itself,
    divergence,
    logits,
    rotated_reference,
    rounding_of,
    rounds_activations,
    some_tokens,
)
from clockhands.models.key_selection import SELECTED, selects_keys
from clockhands.models.layer_biases import (
    KINDS,
    DeclaredBias,
    biases_in_effect,
    declared_biases,
    differing_biases,
    shared_tables,
)
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
    by_name,
    differing_scores,
    in_measured_order,
    layers_that_do_not_rotate,
    scores_at_zero,
)
from clockhands.models.layer_windows import differing_windows
from clockhands.models.measured_rotations import lengths_in_use
from clockhands.models.opened_modules import text_config, token_numbering
from clockhands.models.running_models import RunningModel, takes
from clockhands.models.score_growth import growth_of_scores, telling_positions
from clockhands.models.text_parts import TokenPart, is_absent, running_text
from clockhands.models.torch_threads import faster_alone, in_one_thread
from clockhands.models.tower_inputs import reason
from clockhands.phrases import listed
from clockhands.probes._live_parts import parts_in_effect
from clockhands.probes._live_result import LiveResult
from clockhands.probes._whole_passes import add_whole_passes
from clockhands.probes.results import ProbeResult, Progress, Stopped
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing import CannotCheck, Report, check_generation, check_positions

SHIFT = 1000
"""Tokens by which all positions are shifted, where the context allows it."""

_BY_SPEC = frozenset({"a shifted cache", "rows removed from the cache"})
"""Experiments that rotate cached keys by the declared spec: they fail wherever another rotation is in effect."""
_NOT_OF_FREQUENCIES = frozenset({"no-rotation", "other-layout", "other-rotated-width", "unrotated-channels-turned"})
"""Faults of a rotation that no frequencies make."""
_LEAST_MOVE = 2.0**-12  # of queries that depend on the position


def check_live(model: RunningModel) -> None:
    """Refuse a model whose attention cannot be captured, before any long work."""
    module = inner(model.module)
    if module.training:
        raise InvalidValue(
            f"{type(module).__name__} is in training mode: dropout would change its output.", "Call model.eval() first."
        )
    if not hasattr(module, "config"):
        running_text(module)  # without a config no input of another kind can be made


def measure_live(model: RunningModel, ids: Tensor, progress: Progress) -> ProbeResult:
    """Whether the declared positions are in effect.

    Args:
        model: A model of Transformers, compiled, wrapped by PEFT, quantised, or as it is.
        ids: Windows of token ids, [windows, tokens].
        progress: Called before each test.

    Raises:
        InvalidValue: As `check_live`.
        Stopped: Ctrl-C; it holds what was found until then.
    """
    module = inner(model.module)
    live = LiveResult()
    ids = ids.to(next(module.parameters()).device)
    try:
        with uncompiled(), in_one_thread() if faster_alone(module) else nullcontext():
            _measured(live, model, module, ids, progress)
        if is_compiled(model.module) and live.numbers["text_ran"]:
            progress("the compiled model", 0.95)
            _compiled(live, model.module, module, ids[0])
    except KeyboardInterrupt:
        raise Stopped(live.verified()) from None
    return live.verified()


def token_positions(module: nn.Module) -> Report | None:
    """The check of the model's own `get_rope_index`; None where it has none, or its family has no known rule."""
    numbering = token_numbering(module)
    if numbering is None or numbering.rules is None:
        return None
    try:
        return check_positions(numbering.call, like=numbering.rules, backend="torch", raises=False)
    except CannotCheck:
        return None


def _of_positions(report: Report) -> dict[str, str]:
    """What a finding says of wrong positions: the fault, the first wrong token, and what to do."""
    first = report.failures[0]
    faults = [f"`get_rope_index` {each.message}" for each in report.explanations]
    remedy = (
        report.explanations[0].hint if report.explanations else "Compare `get_rope_index` with that of the release."
    )
    return {"says": " ".join([*faults, f"With {first.experiment}, {first.message}"]), "remedy": remedy}


def _measured(live: LiveResult, model: RunningModel, module: nn.Module, ids: Tensor, progress: Progress) -> None:
    progress("what the config declares and the modules hold", 0.0)
    audited = audit(module)
    live.findings += [each for each in audited.problems if each.blames == "module"]
    progress("what parts for images and audio do, and tables", 0.05)
    text = parts_in_effect(live, module, audited)
    specs = [code.spec for code in audited.layers if code.part in TEXT]
    axes = [spec.number_of_axes for spec in specs if isinstance(spec, rotary.Rotary)]
    live.numbers["text_coordinates"] = max(axes, default=1)
    if (report := token_positions(module)) is not None:
        live.numbers["image_coordinates"] = {
            "same": report.sound,
            "family": report.like,
            "prompts": list(report.experiments),
            "faults": sorted(report.codes),
        }
        if not report.sound:
            live.findings.append(make_finding("run-differs", _of_positions(report)))
    if text is None:
        return
    try:
        _of_text(live, model, text, audited, ids, progress=progress)
    except (AttributeError, IndexError, RuntimeError, TypeError) as error:  # of the code of the model
        live.answers.append(f"The measurement of the text part ended: {reason(error)}.")
        live.numbers["not_measured"].append("a part of the text")


def _of_text(
    live: LiveResult, model: RunningModel, text: TokenPart, audited: Audit, ids: Tensor, *, progress: Progress
) -> None:
    """The rotations, biases and scores of the part that reads texts, and its outputs."""
    rows = [code.usable_length for code in audited.layers if code.part in TEXT and code.rows is not None]
    audited = replace(audited, context=min(filter(None, (audited.context, *rows)), default=None))
    module, by_module = text.module, [each.layers for each in audited.problems if each.blames == "module"]
    seen = attended_once(module, torch.stack([ids[0, :8], ids[0].flip(0)[:8]]), scores=True)
    layers = sorted({each.layer for each in seen})
    config: Any = getattr(module, "config", None)
    declared = declared_layers(audited.layers, layers, reordered=bool(getattr(config, "rope_interleave", False)))
    whole = bool(declared) and set(declared) == set(layers) and any(each.expected for each in declared.values())
    places = takes(module, "position_ids")
    if places and counts_itself(module, ids, seen):
        places = False
        live.answers.append("`position_ids` change no query and no key: the layers count the tokens themselves.")
    tokens = some_tokens(module, ids, seen)
    of_text: Any = text_config(module)
    fields = {} if of_text is None else vars(of_text)
    others = layers_that_do_not_rotate(audited.layers, getattr(of_text, "model_type", ""), fields, seen)
    scored_layers = others | declared
    measured = scores_at_zero(module, tokens, scored_layers, seen, places=places)
    declared = in_measured_order(declared, measured)
    observed, answers, scored = differing_scores(scored_layers, measured, seen[0].queries.dtype)
    live.findings += [make_finding(*each) for each in observed]
    live.answers += answers
    live.numbers["scores"] = {name: dict(each.factors) for name, each in by_name(measured).items() if each.factors}
    live.numbers["scores_checked"] = len(scored)
    offsets = differing_offsets(declared, measured, seen[0].queries.dtype)
    live.findings += [make_finding(*each) for each in offsets.found]
    live.numbers["offsets"] = {str(layer): list(dict.fromkeys(of)) for layer, of in offsets.tokens.items()}
    if offsets.unknown:
        where = f"the distance between queries and keys in {numbered_layers(offsets.unknown)}"
        live.numbers["not_measured"].append(where)
    windows = differing_windows(module, ids[0], audited.layers, seen, audited.context)
    live.findings += [make_finding(*each) for each in windows.found]
    live.answers += windows.answers
    if windows.unknown:
        live.numbers["not_measured"].append(f"the window of {numbered_layers(sorted({*windows.unknown}))}")
    progress("the rotation of each layer", 0.1)
    rotations = _rotations(live, module, tokens, audited, seen, declared=declared, places=places)
    live.findings += [each for each in _of_rotations(rotations) if not _explained(each, by_module)]
    progress("the bias of each layer", 0.2)
    of_bias = _biases(live, module, ids, audited, seen)
    _verdict_of_positions(live, declared, audited, seen[0].queries.dtype)
    unlike = _without_reference(live, module, ids) if places else ""
    if unlike:
        live.answers.append(f"{unlike}, so outputs beside a reference and at later positions were not judged.")
        live.numbers["not_measured"].append("outputs beside a reference and at later positions")
    places = places and not unlike
    by = _shift_of(live, model.context, ids.shape[1]) if places else 0
    reference = None
    # Neither a distance that a reference could undo, nor products in two parts that it could replace.
    odd = any(None in heads for heads in offsets.tokens.values()) or any(each.summed for each in seen)
    if places and whole and not odd and not live.numbers.get("positions_ignored"):
        apart = {layer: [tokens or 0 for tokens in heads] for layer, heads in offsets.tokens.items()}
        reference = rotated_reference(module, declared, seen, apart)
    elif of_bias and {each.path for each in seen} <= set(of_bias) and not whole:
        try:
            reference = biased_reference(module, of_bias, ids)
        except InvalidValue as error:
            live.answers.append(f"Outputs were not compared with those of a reference. {error.message}")
    if by or reference is not None:
        compared = WholePasses(module, by, reference, declared)
        try:
            for number, window in enumerate(ids):
                progress(f"text {number + 1} of {len(ids)} in one pass", 0.25 + 0.35 * number / len(ids))
                compared.run(window, losses=model.predicts)
        finally:  # Ctrl-C keeps the windows that were run
            relative = whole and not any(code.score_scale for code in audited.layers)
            add_whole_passes(live, compared, relative=relative)
    if takes(inner(model.module), "decoder_input_ids"):
        why = "these experiments pass one text, and this model reads one with its encoder and another with its decoder"
        live.answers.append(f"Padding, packing, chunks and cached decoding: not run: {why}.")
        live.numbers["not_measured"].append("decoding from a cache")
    elif model.predicts and not text.path and takes(module, "past_key_values"):
        progress("padding, packing, chunks and cached decoding", 0.6)
        if rounds_activations(module):
            live.answers.append(
                "Padding, packing, chunks and cached decoding were not compared: linear layers quantise activations, "
                "and a rounding of a number may move the output by a whole step."
            )
        elif causal(module, ids):
            _generation(live, module, short=changes_with_length(list(declared.values())))


def _without_reference(live: LiveResult, module: nn.Module, ids: Tensor) -> str:
    """What makes outputs differ from those of a sound reference; empty where nothing does."""
    if live.numbers["layers_with_held_input"]:
        return "Layers without attention depend on `position_ids`"
    return SELECTED.capitalize() if selects_keys(module, ids[:1]) else ""


def _rotations(
    live: LiveResult,
    module: nn.Module,
    tokens: Tensor,
    audited: Audit,
    seen: Sequence[Attended],
    *,
    declared: dict[int, DeclaredLayer],
    places: bool,
) -> list[LayerRotation]:
    """The layers whose rotation differs from the declared one; the frequencies go into the numbers."""
    found: list[LayerRotation] = []
    far: dict[int, float] = {}
    checked: set[int] = set()
    silent: set[int] = set()
    held: set[int] = set()
    specs = [each.code.spec for each in declared.values() if each.expected is not None]
    lengths = lengths_in_use(specs, audited.context or 4096)
    for length in lengths:
        if places:
            more = telling_positions(declared.values(), length)
            positions = np.union1d(probe_positions(length, POSITIONS), more)
            given = single_tokens(module, tokens, positions, seen)
        else:
            positions = np.arange(min(length, 128))
            given = repeated_tokens(module, tokens, len(positions), seen)
        zeros = {each.layer for each in given if not (each.queries.any() and each.keys.any())}
        silent |= zeros
        given = [each for each in given if each.layer not in zeros]
        for each in given:
            far[each.layer] = max(far.get(each.layer, 0.0), moved(rows_of(each.queries, len(positions))),
                                  moved(rows_of(each.keys, len(positions))))  # fmt: skip
        held |= {each.layer for each in given if each.held}
        found += differing(given, declared, positions, length)
        checked |= {each.layer for each in given} & set(declared)
        if length == lengths[-1]:
            grown = growth_of_scores(module, given, declared, positions, tokens)
            live.findings += [make_finding(*each) for each in grown.found]
            live.answers += grown.answers
            live.numbers["scores_grow"] = {str(layer): most for layer, most in grown.most.items() if most != 1}
    live.numbers["layers"] = {str(layer): size for layer, size in sorted(far.items())}
    live.numbers["layers_checked"] = len(checked)
    live.numbers["layers_with_held_input"] = sorted(held)
    if silent:
        says = f"The positions of {numbered_layers(sorted(silent))} were not measured: their queries or keys are 0."
        live.answers.append(says)
    if far and not any(code.kind in ("learned", "sinusoidal", "rotary") for code in audited.layers):
        undeclared = [layer for layer, size in far.items() if size > _LEAST_MOVE and layer not in declared]
        if undeclared:
            says = f"Queries and keys of {numbered_layers(undeclared)} depend on the position, but the config "
            says += "declares no position encoding."
            live.findings.append(make_finding("run-differs", {"says": says}, layer_ranges(undeclared)))
    return found


def _biases(
    live: LiveResult, module: nn.Module, ids: Tensor, audited: Audit, seen: Sequence[Attended]
) -> dict[str, DeclaredBias]:
    """The declared biases on scores, by path; differences become findings."""
    measured = biases_in_effect(module, int(ids[0, 0]), ids.device, audited.context)
    declared = declared_biases(module, audited.layers, seen)
    wrong = [*differing_biases(measured, declared), *shared_tables(module, audited.layers, seen)]
    live.findings += [make_finding(*each) for each in wrong]
    compared = [declared[path].code for path in measured if path in declared]
    for code in audited.layers:
        if code.part in TEXT and code.kind in KINDS and code not in compared and not is_absent(module, code.part):
            layers = "" if code.layers is None else f" in layers {code.layers}"
            live.numbers["not_measured"].append(f"the bias on scores{layers} of the {code.part} part")
    present = sorted({each.layer for each in measured.values() if each.present})
    if present:
        live.numbers["layers_with_bias"] = layer_ranges(present)
    if declared:
        live.numbers["biases_checked"] = len([path for path in measured if path in declared])
    known = any(code.kind in (*KINDS, None) for code in audited.layers)
    if present and not known:
        evidence = {"says": f"A bias is added to the scores of {numbered_layers(present)}, but the config declares "
                    "none."}  # fmt: skip
        live.findings.append(make_finding("run-differs", evidence, layer_ranges(present)))
    return declared


def _verdict_of_positions(
    live: LiveResult, declared: dict[int, DeclaredLayer], audited: Audit, dtype: torch.dtype
) -> None:
    """Which layers rotate nothing, and whether the model has positions at all."""
    allowed = tolerance(dtype)
    far = {int(layer): size for layer, size in live.numbers["layers"].items()}
    still = [layer for layer, size in far.items() if size <= allowed]
    biased = "layers_with_bias" in live.numbers
    if still:
        live.numbers["layers_without_rotation"] = layer_ranges(still)
    others = any(code.kind not in ("rotary", "none") for code in audited.layers)
    if still and len(still) == len(far) and not biased and not others:
        live.numbers["positions"] = "none"
        live.numbers["positions_ignored"] = any(each.expected for each in declared.values())
    elif biased and still and len(still) == len(far):
        live.answers.append("Queries and keys are not rotated; a bias is added to the scores.")


def _explained(found: Finding, by_module: Sequence[str | None]) -> bool:
    """Whether wrong frequencies held by modules of these layers explain this rotation."""
    if found.evidence.get("fault") in _NOT_OF_FREQUENCIES or found.layers is None:
        return False
    return any(layers is None or layer_numbers(found.layers) <= layer_numbers(layers) for layers in by_module)


def _of_rotations(rotations: Sequence[LayerRotation]) -> list[Finding]:
    """One finding for all layers that differ in the same way."""
    alike: dict[Any, list[LayerRotation]] = {}
    for each in rotations:
        alike.setdefault((each.fault, each.evidence.get("behaves as")), []).append(each)
    made = []
    for group in alike.values():
        first = group[0]
        layers = sorted({each.layer for each in group})
        of = sorted({each.of for each in group})
        name = f"{first.path} ({' and '.join(reversed(of))})"
        evidence = {"module": name, **first.evidence, "parts": len(layers), "fault": first.fault}
        found = make_finding("rotation-differs", {key: value for key, value in evidence.items() if value is not None},
                      layer_ranges(layers))  # fmt: skip
        made.append(found)
    return made


def _compiled(live: LiveResult, module: nn.Module, own: nn.Module, window: Tensor) -> None:
    """Compare the outputs of the compiled model with those of its Python code, which all other tests run."""
    with uncompiled():
        with attended(own) as seen:
            wanted = logits(own, window)
        limit = rounding_of(own, window, wanted, seen).kl
    kl = divergence(wanted, logits(module, window))
    live.numbers["compiled"] = {"kl": kl, "limit": limit, "same": kl <= limit}
    does = "equals" if kl <= limit else "differs from"
    live.answers.append(f"The compiled model {does} its own code (mean KL {kl:.2g} nats, limit {limit:.2g}).")
    if not kl <= limit:
        says = f"The compiled model gives other outputs than its own code (mean KL {kl:.2g} nats)."
        live.findings.append(make_finding("run-differs", {"says": says, "kl": kl}))


def _shift_of(live: LiveResult, context: int | None, length: int) -> int:
    """By how much all positions are shifted; 0 where the context has no room for that."""
    by = SHIFT if context is None else min(SHIFT, context - length)
    if by < 1:
        live.answers.append(f"Shift invariance was not tested: the window fills the context of {context:,}.")
    return max(by, 0)


def _generation(live: LiveResult, module: nn.Module, *, short: bool) -> None:
    """Compare padding, packing, chunks and cached decoding with one pass.

    Args:
        live: The object that collects the result.
        module: The model.
        short: Whether frequencies depend on the length in use: cached keys then keep those of shorter texts by design,
            so texts stay below the original length.
    """
    try:
        # In this thread, in which it ran before: with OpenMP's pools of two threads each call took 1.4 times as long.
        report = check_generation(module, raises=False, length=16 if short else None, timeout=None)
    except ClockhandsError as error:
        live.answers.append(f"Padding, packing, chunks and cached decoding were not checked: {error.message}")
        return
    if short:
        live.answers.append(
            "Texts beyond the original length were not decoded: there frequencies depend on the length."
        )
    unasked: dict[str, list[str]] = {}
    for name, why in report.left_out.items():
        if name == "left padding" or why.startswith(("by design", SELECTED)):
            unasked.setdefault(why, []).append(name)
    for why, names in unasked.items():
        told = listed(names).capitalize()
        live.answers.append(f"{told} {'were' if len(names) > 1 else 'was'} not compared: {why}.")
    why = report.left_out.get("faults of one position", "")
    if why.startswith("an error of one position"):
        live.answers.append(f"Faults of one position in padding, packing and decoding cannot be judged: {why}.")
        live.numbers["not_measured"].append("faults of one position in padding, packing and decoding")
    live.numbers["generation"] = {
        "experiments": list(report.experiments), "left_out": dict(report.left_out),
        "failures": [each.experiment for each in report.failures],
    }  # fmt: skip
    wrong = any(each.severity != "note" for each in live.findings)
    failures = [each for each in report.failures if not (wrong and each.experiment in _BY_SPEC)]
    if report.sound:
        parts = {"right padding": "padding", "packing": "packing", "chunks": "chunks",
                 "one token at a time": "cached decoding"}  # fmt: skip
        same = listed([part for name, part in parts.items() if name in report.experiments]) or "repeated calls"
        verb = "equal" if " and " in same or same == "repeated calls" else "equals"
        live.answers.append(f"{same.capitalize()} {verb} one pass ({len(report.experiments)} experiments).")
        return
    if not failures:
        return
    layer = next((each.evidence["layer"] for each in failures if "layer" in each.evidence), None)
    number = None if layer is None else str(layer).rpartition(".")[2]
    failed = ", ".join(each.experiment for each in failures[:3])
    codes = [code for each in report.explanations for code in each.codes]
    fault = codes[0] if codes else None
    reason = report.explanations[0].message if report.explanations else failures[0].message
    evidence = {"says": f"The model differs from one pass in: {failed}. {reason}", "experiments": failed}
    if fault is not None:
        evidence["fault"] = fault
    live.findings.append(make_finding("run-differs", evidence, number))
