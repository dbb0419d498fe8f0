"""`check_generation`: whether a model with a KV cache gives the same logits for a text however it is passed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.rope_blocks import NEW, OLD, rope_blocks
from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.models.key_selection import SELECTED, selects_keys
from clockhands.models.opened_modules import config_values, text_config
from clockhands.phrases import listed
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.testing._checks import named, resolved
from clockhands.testing._experiments import ExperimentRun, Unasked
from clockhands.testing.generation._cache_shifts import CacheShift, cache_shift, found_shift
from clockhands.testing.generation._causal_models import CausalModel, TransformersModel
from clockhands.testing.generation._chosen_tokens import NO_LOGITS, tie_rate, without_ties
from clockhands.testing.generation._draft_trees import ACCEPTED, NOT_JUDGED, VERIFIED
from clockhands.testing.generation._explanations import explained, explanation_of
from clockhands.testing.generation._failure_pattern import failure_pattern
from clockhands.testing.generation._kept_states import accounted_by_states
from clockhands.testing.generation._long_texts import (
    BLOCKS,
    LONG,
    MOST,
    declared_sizes,
    length_that_matters,
    longest_of,
    sizes_of,
)
from clockhands.testing.generation._measured_attention import is_measurable
from clockhands.testing.generation._measured_passes import IN_ONE_PASS, faults_of_pass
from clockhands.testing.generation._opened_models import opened
from clockhands.testing.generation._predictions import RecordedRun
from clockhands.testing.generation._prompt_drivers import opened_driver, own_program
from clockhands.testing.generation._prompt_experiments import checked_driver
from clockhands.testing.generation._started_caches import owners_of
from clockhands.testing.generation._text_experiments import ONE_TOKEN, GenerationExperiment, experiments
from clockhands.testing.generation.texts import GenerationSubject, measured, texts_of
from clockhands.testing.reports import CannotCheck, Failure, Report, settled

# Tokens of the longest text, and the most that it is made longer by itself: beyond that somebody shall say so.
LENGTH, LONGEST = 16, 512


def check_generation(
    model: Any = None,
    *,
    forward: Callable[..., Any] | None = None,
    vocabulary: int | None = None,
    tokens: Sequence[Any] | None = None,
    like: Rotary | str | None = None,
    length: int | None = None,
    shift: Callable[..., Any] | None = None,
    join: Callable[..., Any] | None = None,
    evict: Callable[..., Any] | None = None,
    backend: Any = None,
    timeout: float | None = 60.0,
    raises: bool = True,
) -> Report:
    """Check that a causal model says the same of a text however it is given.

    What it says of three texts, each alone and in one pass, is compared with what it says of them padded on the left
    and on the right, packed into one row, in pieces, one token at a time, with a cache that was copied, pickled, moved
    on or cut, by turns, and again. What fails is explained by the known fault that gives the same answers when it is
    imposed on single passes of the model, and that would not show in what passed. What it says of pads is not compared,
    but must be finite, also where a pad sees no key at all (`masked-row-not-finite`). Random weights will do, if they
    are large enough for positions to matter.

    Args:
        model: A causal model of Transformers, or an encoder-decoder model, of which the decoder is checked; a function
            like `forward`; or an engine whose ``prefill(tokens)`` and ``decode(tokens, state)`` return the logits of
            the last token and a state, with ``merge(states)`` for batches if there is one. A small model of
            Transformers is copied for every experiment and never changed. One of more than 20 million numbers is asked
            itself and must be in eval mode, as is one whose copies would call it: a function assigned to
            ``model.forward`` calls the module that it was made for.
        forward: A function(tokens [batch, seq], positions [batch, seq], mask, cache) -> (logits [batch, seq,
            vocabulary], cache), of arrays of one's own library. ``cache`` is None at first; ``mask`` is None, or
            booleans [batch, keys] of the keys that are no padding, or [batch, seq, keys] of those that each query sees
            (a function that refuses these is not asked about packing). Arguments that it has no use for may be absent,
            and have other usual names, such as input_ids, position_ids, attention_mask and past_key_values; ``offset``
            or ``start_pos`` is the position of the first token of a call. It may return logits alone, or an output of
            Transformers. What is then not checked is in the verdict.
        vocabulary: Tokens that it knows. Unless given, that of the config of a model of Transformers, else the length
            of the last axis of its logits.
        tokens: Three texts of one's own, the longest first.
        like: The rotary code of all its layers, where the config does not say it: positions that are all shifted then
            give the same logits, and keys may be turned on.
        length: Tokens of the longest text: 16, or more where a window or a scaling begins later.
        shift: A function(cache, positions) -> cache that moves a cache on by so many positions, (cache, start, delta)
            from a row on, or (cache, n_keep, n_discard) that drops so many rows and moves later ones back. One beside
            the model with ``shift`` in its name and such arguments is found.
        join: A function(cache, cache) -> cache that puts two caches, of texts from position 0, one after the other.
        evict: A function(cache, rows) -> cache that keeps these rows of it.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API for `forward`; found out unless said.
        timeout: Seconds for a call; None calls without a limit, in this thread.
        raises: Whether a failure is raised; else it is in the report.

    Returns:
        The report; where something failed and ``raises`` is false too.

    Accuracy: how far rounding may move a logit is measured on the model itself, as told in
        `clockhands.testing.generation.texts`; the report says how much more a slip of one position moves it.

    Raises:
        CheckFailed: Something failed; the message is the report.
        CannotCheck: The model cannot be called like that; the message says what came back.
        InvalidValue, InvalidType: An argument cannot be used.
    """
    if forward is None and not hasattr(model, "forward") and (driver := opened_driver(model, backend, timeout)):
        return settled(checked_driver(driver, vocabulary, _named(model, None)), raises)
    try:
        called = opened(model, forward, vocabulary, backend, timeout)
    except CannotCheck:
        own = None if forward is not None else own_program(model)
        if own is None:
            raise
        how: dict[str, Any] = {"vocabulary": vocabulary, "backend": backend, "timeout": timeout, "raises": raises}
        report = check_generation(own, **how)
        return replace(report, subject=_named(model, None))
    spec = _spec_of(called) if like is None else resolved(like, Rotary, "rotary")
    notes: dict[str, str] = {}
    size = _length(called, length, notes)
    first = getattr(called, "first", 0)
    if first:
        notes["position ids from 0"] = f"they begin at {first}, as the model counts where none are passed"
    # A class that counts from the id of padding counts no padding, wherever it stands in a text, as some decoders do.
    counted = first == 0 and getattr(called, "source", None) is None
    drawn = texts_of(called.vocabulary, size, without=None if counted else called.pad)
    texts = drawn if tokens is None else _given_texts(tokens, called.vocabulary)
    shift = found_shift(called) if shift is None else cache_shift(shift)
    drops = isinstance(shift, CacheShift) and shift.drops
    subject = GenerationSubject(
        called, texts, spec=spec, shift=shift, join=join, evict=evict, drops=drops, shifts=shift is not None,
        long_sizes=sizes_of(called) if length is None else (),
    )  # fmt: skip
    try:
        subject = measured(subject)
    except (Refused, Unasked) as error:
        raise CannotCheck(
            f"A text of {len(texts[0])} tokens was given in one pass, but the model failed: {error}.",
            "Pass length=, the largest number of tokens that it takes.",
        ) from error.__cause__
    not_finite = _not_finite(subject)
    asked, left_out = _experiment_runs(subject)
    _refuse_one_way_alone(asked, left_out)
    asked, later = _without_consequences(asked)
    left_out |= later

    def longer(size: int) -> Report:
        """The report on texts that are all so long: what depends on the length is named there."""
        return check_generation(
            model,
            forward=forward,
            vocabulary=vocabulary,
            like=like,
            length=size,
            shift=shift,
            join=join,
            evict=evict,
            backend=backend,
            timeout=timeout,
            raises=False,
        )

    if tokens is None and (size := length_that_matters(asked)):
        return settled(longer(size), raises)
    if called.chooses:
        _, cache = called.fresh()(texts[0][None])
        asked, ties = without_ties(asked, tie_rate(cache, *owners_of(called.forward)))
        notes |= {"logits": NO_LOGITS, **ties}
    noted: dict[str, str] = {}
    failed = [one for one in asked if one.wrong]
    if any(one.experiment.name == LONG for one in failed):
        subject = replace(subject, sizes=(*subject.long_sizes, *BLOCKS))
    reasons = explained(subject, asked) if failed and not not_finite else ()
    if tokens is None and not reasons and [one.experiment.name for one in failed] == [LONG]:
        other = longer(longest_of(failed))
        if other.explanations:
            return settled(other, raises)
    for one in list(failed):
        experiment = one.experiment
        if isinstance(experiment, GenerationExperiment) and experiment.note and _only(reasons, experiment):
            noted[experiment.name] = experiment.note
            failed.remove(one)
    accounted = {name for one in reasons for name in one.evidence.get("explains", ())}
    unknown = [one.experiment.name for one in failed if one.experiment.name not in accounted]
    by_states = accounted_by_states(subject, unknown, {one.experiment.name for one in asked})
    by_states = by_states or _by_selection(subject, unknown)
    by_states |= dict.fromkeys({VERIFIED, ACCEPTED}.intersection(unknown), NOT_JUDGED)
    noted |= by_states
    failed = [one for one in failed if one.experiment.name not in by_states]
    if noted:
        asked = [one for one in asked if one.experiment.name not in noted]
        reasons = explained(subject, asked) if failed and not not_finite else ()
    if "offset" in called.names and not subject.slip:
        notes["faults of one position"] = "it takes one position for a call, so no token can be moved alone"
    elif "positions" in called.takes and not subject.slip:
        notes["faults of one position"] = (
            "the positions passed in have no effect: it has no position encoding, counts by itself, or its weights "
            "are too small to show it"
        )
    elif subject.slip and subject.slip <= 4 * subject.allowed:
        notes["faults of one position"] = (
            f"an error of one position changes its logits by {subject.slip:.2g} at most, and rounding alone by "
            f"{subject.allowed:.2g}; use larger weights, or a dtype of higher precision"
        )
    of_pass = faults_of_pass(subject) if is_measurable(called) else None
    reasons = (*reasons, *(explanation_of((code,), told, [IN_ONE_PASS]) for code, told in of_pass or ()))
    parting = parted(subject) if any(one.experiment.name == "one token at a time" for one in failed) else None
    report = Report(
        subject=_named(model, forward),
        kind="generation",
        like=f"the same logits however a text of up to {_longest(subject, asked)} tokens is passed",
        experiments=(*(one.experiment.name for one in asked), *([] if of_pass is None else [IN_ONE_PASS])),
        left_out={**left_out, **noted, **notes},
        failures=(
            *(_failure(one, parting) for one in failed),
            *(Failure(IN_ONE_PASS, f"texts of one repeated token: {told['how']}.", told) for _, told in of_pass or ()),
        ),
        explanations=reasons,
        called={
            "library": called.library.name,
            "dtype": called.counts.dtype,
            "calls": called.counts.calls,
            "rows": called.counts.rows,
            "tokens": [len(text) for text in subject.texts],
            "rounding explains": subject.allowed,
            "a slip of one position": subject.slip,
        },
        worst=max(
            (float(answer.shares.max(initial=0)) for one in asked for answer in one.answers),
            default=0.0,
        ),
        spec=spec,
        pattern=not_finite or (failure_pattern(asked) if failed and not reasons else ""),
    )
    return settled(report, raises)


def _refuse_one_way_alone(asked: Sequence[ExperimentRun], left_out: Mapping[str, str]) -> None:
    """Refuse a model that raises an error wherever a text is passed in another way: nothing would be compared."""
    ways = {"a longer text", "chunks", ONE_TOKEN}
    raised = [why for name, why in left_out.items() if name in ways and why.startswith("it raised")]
    later = [left_out.get(name, "") for name in ("chunks", "one token at a time", "chunks after single tokens")]
    if all(why.startswith("it raised") for why in later):
        raise CannotCheck(
            f"It takes a text from its beginning alone: where it is to go on after a part of it, {later[1]}.",
            "Wrap it: def forward(tokens, positions, mask, cache): return logits, cache, which goes on from the cache.",
        )
    compared = any(one.wrong or one.experiment.name.startswith(tuple(ways)) for one in asked)
    if raised and not compared:
        raise CannotCheck(
            f"It takes a text only as a whole: given its beginning or its parts, {raised[0]}.",
            "Wrap it, so that it takes any number of tokens; or write def generate(prompt, max_new_tokens), which "
            "passes prompts of the sizes that it takes.",
        )


def _not_finite(it: GenerationSubject) -> str:
    """Where the logits of one pass are not numbers, so that no cause can be found by comparing with them."""
    for text, logits in zip(it.texts, it.wanted, strict=False):
        finite = np.isfinite(logits).all(axis=-1)
        if not finite.all():
            return (
                f"In one pass over {len(text)} tokens its logits are not finite from token {int(finite.argmin())} on: "
                "correct that first, or pass length=, the number of tokens that a call may have."
            )
    return ""


def _without_consequences(asked: list[RecordedRun]) -> tuple[list[RecordedRun], dict[str, str]]:
    """The experiments without failed ones on trees and on long texts, if others failed, which may be their cause."""
    of_others = {VERIFIED, ACCEPTED, LONG}
    wrong = {one.experiment.name for one in asked if one.wrong and not getattr(one.experiment, "note", "")}
    left_out = wrong & of_others if wrong - of_others else set[str]()
    told = "it fails as well, which what else fails may cause: fix that first"
    return [one for one in asked if one.experiment.name not in left_out], dict.fromkeys(left_out, told)


def _longest(subject: GenerationSubject, asked: Sequence[RecordedRun]) -> int:
    """Tokens of the longest text that was tried."""
    tried = (answer.positions for one in asked if one.experiment.name == LONG for answer in one.answers)
    return max([len(subject.texts[0]), *(1 + int(each.max()) for each in tried if each is not None)])


def _experiment_runs(subject: GenerationSubject) -> tuple[list[RecordedRun], dict[str, str]]:
    asked: list[RecordedRun] = []
    left_out: dict[str, str] = {}
    for experiment in experiments(subject):
        try:
            recorded = subject.recorded()
            answers = experiment.run(recorded)
            asked.append(RecordedRun(experiment, answers, tuple(recorded.model.answers or ())))
        except (Unasked, Refused) as reason:
            left_out[experiment.name] = str(reason)
    return asked, left_out


def _by_selection(subject: GenerationSubject, failed: Sequence[str]) -> dict[str, str]:
    """Why a selection of keys accounts for failures: among scores that are nearly equal, rounding selects others."""
    model = subject.model
    if not failed or not isinstance(model, TransformersModel) or model.source is not None:
        return {}
    if not selects_keys(model.fresh().model, model.library.positions(subject.texts[0][None])):
        return {}
    told = f"{SELECTED}, fewer than the text has tokens, so rounding may select others: it was not judged"
    return dict.fromkeys(failed, told)


def _only(reasons: Sequence[Any], experiment: GenerationExperiment) -> bool:
    """Whether a failure is what the experiment's note speaks of, and nothing else."""
    about = [reason for reason in reasons if experiment.name in reason.evidence.get("explains", ())]
    return bool(about) and all(reason.codes[0] in experiment.codes for reason in about)


def _failure(one: ExperimentRun, parting: tuple[str, int] | None) -> Failure:
    name = one.experiment.name
    if name == ONE_TOKEN:
        (answer,) = one.answers
        assert answer.positions is not None
        same = answer.positions[answer.wrong[:, 0]].tolist()
        message = (
            f"{answer.asked}: its logits at {listed([f'{at:,}' for at in same])} are those at the position before."
        )
        return Failure(name, message, {"asked": answer.asked, "wrong": len(same), "of": len(answer.positions)})
    parts, where = "", parting if name.startswith(("one token", "chunks")) else None
    if where is not None:
        parts = f". The first layer with a different output is {where[0]}, at position {where[1]}"
    for answer in one.answers:
        wrong = np.asarray((answer.shares > 1).any(axis=-1))
        if not wrong.any():
            continue
        first = int(np.argmax(wrong))
        off = np.abs(answer.got - answer.wanted)
        largest = float(off[first].max()) if np.isfinite(off[first]).all() else float("nan")
        allowed = float(np.max(answer.allowed))
        assert answer.positions is not None
        position = int(answer.positions[first])
        size = "not a number" if np.isnan(largest) else f"off by {largest:.2g} (rounding allows {allowed:.2g})"
        other = int((answer.got.argmax(-1) != answer.wanted.argmax(-1)).sum())
        changed = f"different after {other} of them" if other else "the same after each"
        message = (
            f"{answer.asked}: the logits of {int(wrong.sum())} of {len(wrong)} tokens are wrong, the first at position "
            f"{position}, where they are {size}; the most likely next token is {changed}{parts}."
        )
        evidence = {
            "asked": answer.asked,
            "wrong": int(wrong.sum()),
            "of": len(wrong),
            "first wrong position": position,
            "error there": largest,
            "largest error": float(np.nanmax(off)) if np.isfinite(off).any() else None,
            "allowed": allowed,
            "other next tokens": other,
        }
        if where is not None:
            evidence |= {"layer": where[0], "position in it": where[1]}
        return Failure(name, message, evidence)
    raise AssertionError("no failed experiment")


def _length(model: CausalModel, length: int | None, notes: dict[str, str]) -> int:
    """Tokens of the longest text: enough to leave its windows and its original training length, if it can be."""
    if length is not None:
        return count("length", length, 8)
    size = LENGTH
    for what, edge in _edges(model).items():
        if edge + 8 <= LONGEST:
            size = max(size, edge + 8)
        else:
            notes[f"beyond {what}"] = f"pass length={edge + 8:,} for texts of more than {edge:,} tokens"
    for name, edge in declared_sizes(model).items():
        if edge > MOST and edge not in _edges(model).values():
            notes[f"beyond its {name}"] = f"pass length={edge + 8:,} for texts of more than {edge:,} tokens"
    most = _most(model)
    return size if most is None else max(min(size, most), 8)


def _edges(model: CausalModel) -> dict[str, int]:
    edges = {} if model.window is None else {"its window": model.window}
    config = _config(model)
    blocks = rope_blocks(config, keys=(NEW, OLD))
    held = next((block.values for block in blocks if block.scaling in {"dynamic", "longrope", "su"}), None)
    if held is not None:
        original = held.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
        original = original or config.get("max_position_embeddings")
        if isinstance(original, int):
            edges["its original training length"] = original
    return edges


def _most(model: CausalModel) -> int | None:
    """Tokens that fit into a learned table."""
    config = _config(model)
    if config.get("rope_parameters") or config.get("rope_scaling"):
        return None
    most = config.get("max_position_embeddings", config.get("n_positions"))
    return most if isinstance(most, int) else None


def _config(model: CausalModel) -> dict[str, Any]:
    return config_values(text_config(model.model)) or {} if isinstance(model, TransformersModel) else {}


def _spec_of(model: CausalModel) -> Rotary | None:
    """The rotary code of all layers that a config declares, if it is one, and the same at every length."""
    config = config_values(model.model.config) if isinstance(model, TransformersModel) else None
    if config is None:
        return None
    try:
        codes = resolve(Opened("config", "config", config=config, config_name="config")).codes
    except ClockhandsError:
        return None
    text = [code for code in codes if code.part in {"text", "decoder"}]
    spec = text[0].spec if len(text) == 1 else None
    if not isinstance(spec, Rotary) or _edges(model).get("its original training length"):
        return None
    return spec


def _given_texts(tokens: Sequence[Any], vocabulary: int) -> list[np.ndarray]:
    texts = [np.asarray(text) for text in tokens]
    if len(texts) != 3 or any(text.ndim != 1 or text.dtype.kind not in "iu" for text in texts):
        raise InvalidType(
            "`tokens` must be three lists of token ids.", "Give three lists of token ids, the longest first."
        )
    sizes = [len(text) for text in texts]
    if sizes != sorted(sizes, reverse=True) or sizes[0] < 8 or sizes[-1] < 2:
        raise InvalidValue(
            f"`tokens` must be three texts, the longest first: it needs at least 8 tokens, the last at least 2; got "
            f"{sizes} tokens.",
            "Give longer texts, or sort them by length.",
        )
    if any(text.min() < 0 or text.max() >= vocabulary for text in texts):
        raise InvalidValue(
            f"`tokens` must be from 0 to {vocabulary - 1:,}.",
            "If the model has more tokens, pass their number as vocabulary=.",
        )
    return [text.astype(np.int64) for text in texts]


def _named(model: Any, forward: Callable[..., Any] | None) -> str:
    return type(model).__name__ if forward is None and hasattr(model, "forward") else named(forward or model, None)


# Hidden states may be off by a larger share of their size than the logits, which are normed before.
_ROOM = 8.0


def parted(it: GenerationSubject) -> tuple[str, int] | None:
    """The name of the first layer that answers otherwise one token at a time, and the first position at which it does.

    None where the model shows no layers, or they do not part.
    """
    text, half = it.texts[0], len(it.texts[0]) // 2
    with suppress(Refused, Unasked):
        whole, pieces = it.model.fresh(), it.model.fresh()
        with _heard(whole) as one:
            list(whole.in_pieces(text[None], []))
        with _heard(pieces) as many:
            list(pieces.in_pieces(text[None], range(half, len(text))))
        share = it.allowed / max(float(np.abs(it.wanted[0]).max()), it.allowed)
        for name, said in one.items():
            wanted, got = (np.concatenate(each) if each else np.zeros((0, 0)) for each in (said, many[name]))
            if not said or wanted.shape != got.shape:
                continue  # a layer that some calls pass by, or that gets some tokens only, as an expert does
            # Beside the size of the same token: that of the first one may be hundreds of times larger.
            off = np.abs(got - wanted).max(axis=-1) > _ROOM * share * np.abs(wanted).max(axis=-1)
            if off.any():
                return name, int(np.argmax(off))
    return None


@contextmanager
def _heard(model: CausalModel) -> Iterator[dict[str, list[np.ndarray]]]:
    """What each layer answers, [tokens, width] a call, while this lasts."""
    said: dict[str, list[np.ndarray]] = {}
    with ExitStack() as hooks:
        for name, layer in _layers(model):
            answers = said.setdefault(name, [])

            def heard(_: Any, __: Any, answer: Any, answers: list[np.ndarray] = answers) -> None:
                hidden = answer[0] if isinstance(answer, tuple) else answer
                if hasattr(hidden, "shape"):
                    answers.append(as_numpy(hidden).astype(np.float64).reshape(-1, hidden.shape[-1]))

            hooks.enter_context(layer.register_forward_hook(heard))
        yield said


def _layers(model: CausalModel) -> list[tuple[str, Any]]:
    """The layers of a model of Transformers: the longest list of modules in it."""
    if not isinstance(model, TransformersModel):
        return []
    lists = [(name, one) for name, one in model.model.named_modules() if type(one).__name__ == "ModuleList"]
    name, layers = max(lists, key=lambda one: len(one[1]), default=("", []))
    return [(f"{name}.{place}", layer) for place, layer in enumerate(layers)]
