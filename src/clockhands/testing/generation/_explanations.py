"""Explanation of a model's failures by its logits under each known fault, computed with the model itself."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from clockhands.phrases import listed, number_of, some_of
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import FAULTS, GENERATION
from clockhands.testing._experiments import ExperimentRun, Unasked, shares
from clockhands.testing.generation._cache_arrays import rows_of, with_rows
from clockhands.testing.generation._changed_caches import moved_keys
from clockhands.testing.generation._changed_calls import (
    ROOM,
    CallArguments,
    clamped,
    misplaced,
    places_after_padding,
    unchanged,
)
from clockhands.testing.generation._draft_trees import ACCEPTED, VERIFIED
from clockhands.testing.generation._fault_catalogue import CATALOGUE, faults_of
from clockhands.testing.generation._imposed_faults import facts_of, places_under
from clockhands.testing.generation._kept_states import states_of, states_with_pads
from clockhands.testing.generation._key_places import (
    NOWHERE,
    KeyPlaces,
    grown_cache,
    holds_positions,
    places_of_keys,
    rotated_alike,
    rows_that_are_written,
)
from clockhands.testing.generation._long_texts import LONG
from clockhands.testing.generation._measured_attention import (
    changed_by_length,
    is_measurable,
    measured_calls,
    reference_of,
    rotates_by_length,
    shifts_by_length,
)
from clockhands.testing.generation._measured_faults import faults_of_calls, shifted_by_length
from clockhands.testing.generation._predictions import Predictions, RecordedRun
from clockhands.testing.generation._text_experiments import NO_KEYS, ONE_TOKEN, PADDED_DECODING
from clockhands.testing.generation.texts import GenerationSubject
from clockhands.testing.reports import UNDECIDED, Explanation

_PIECES = ("one token", "chunks")
"""How the names of experiments begin in which a text is given in pieces."""

_ALONE = frozenset({VERIFIED, ACCEPTED, LONG})
"""Experiments that are explained by single faults: each has so many passes that pairs would take long."""

_WITH_CACHE = frozenset({
    "a copied cache", "a pickled cache", "two continuations of one text", "two alternating texts",
    "a text beside a batch",
})  # fmt: skip
"""Others in which later pieces are like those of one text."""

_ALTERNATING = frozenset({
    "two continuations of one text", "two alternating texts", "a text beside a batch", "alternating images",
})  # fmt: skip
"""Experiments in which what is kept outside of a cache is that of another text."""

BY_CALL_LENGTH = "positions-by-call-length"
"""The code of a model whose single passes agree with each other only where they are of one length."""

BY_FREQUENCIES = "frequencies-by-length"
"""The code of one whose frequencies are others behind a length."""

_Rule = tuple[str, Mapping[str, Any], list[str]]
_Reason = tuple[tuple[str, ...], Mapping[str, Any], list[str]]
_ROWS = GENERATION


def explained(it: GenerationSubject, asked: Sequence[RecordedRun]) -> tuple[Explanation, ...]:
    """The faults that account for what failed; each experiment is accounted for once."""
    failed = [one for one in asked if one.wrong]
    left = {one.experiment.name: one for one in failed}
    told: list[_Reason] = []

    def add(rules: Iterable[_Rule]) -> None:
        nonlocal left
        for code, parameters, names in rules:
            told.append(((code,), parameters, names))
            left = {name: one for name, one in left.items() if name not in names}

    add(_by_length(it, left))
    add(_left_behind(it, left))
    add(_by_short_tables(it, left))
    by_length = any({BY_CALL_LENGTH, BY_FREQUENCIES}.intersection(codes) for codes, _, _ in told)
    if by_length or any("later-tokens-seen" in codes for codes, _, _ in told):
        left = {}  # single passes of such a model predict nothing of its cache
    predicted = Predictions(it, [one for one in asked if not one.wrong])
    single: list[_Reason] = []
    for reason in predicted.single_faults(left):
        single.append(reason)
        left = {name: one for name, one in left.items() if name not in reason[2]}
    told += single
    add(_by_lost_order(it, left))
    add(_by_clamped_positions(it, left))
    add(_by_kept_positions(it, left))
    add(_by_moved_keys(it, left))
    add(_by_padded_states(it, left))
    add(_by_rule(it, left, [one.experiment.name for one in failed]))
    add(predicted.positions_found(left))
    pairs: set[str] = set()
    for reasons in predicted.two_faults({name: one for name, one in left.items() if name not in _ALONE}):
        told += reasons
        pairs.update(name for _, _, names in reasons for name in names)
    for fault, reason in zip(predicted.found, single, strict=True):
        others = {one.experiment.name: one for one in failed if one.experiment.name not in {*pairs, *reason[2]}}
        if predicted.refuted(fault, others):
            told.remove(reason)
    known = {name for _, _, names in told for name in names}
    padded = [name for name in left if name.startswith("left padding") and name not in known]
    # What counts padding would have been found by imposing it, where positions show something.
    if padded and it.slip and (read := _of_pads(it))[0] == "padding-seen":
        told.append(((read[0],), read[1], padded))
        known.update(padded)
    if not by_length:
        told += _by_measurement(it, [name for name in (one.experiment.name for one in failed) if name not in known])
    merged: list[_Reason] = []
    for codes, parameters, names in told:
        same = [reason for reason in merged if reason[:2] == (codes, parameters)]
        if not same:
            merged.append((codes, parameters, list(dict.fromkeys(names))))
        for _, _, held in same:
            held += [name for name in names if name not in held]
    return tuple(explanation_of(*reason) for reason in merged)


def _by_measurement(it: GenerationSubject, unknown: Sequence[str]) -> list[_Reason]:
    """What is measured inside a model of PyTorch, where calls with a cache fail and nothing else accounts for them."""
    pieces = [name for name in unknown if name in _WITH_CACHE or name.startswith(_PIECES)]
    if not any(name.startswith(_PIECES) for name in unknown):
        return []  # what else fails follows from what is explained
    if not is_measurable(it.model) or (reference := reference_of(it)) is None or states_of(it):
        return []  # what a state adds differs from position to position
    measured = measured_calls(it, reference)
    if measured is None:
        return []
    alone = any(one.start == 0 and one.size == 1 and one.got != one.right for one in measured.rows)
    names = [*(["a longer text"] if alone and "a longer text" in unknown else []), *pieces]
    return [((code,), parameters, names) for code, parameters in faults_of_calls(measured)]


def _by_length(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Rates that follow the length: what one pass says of the first tokens depends on how many there are."""
    if "a longer text" not in failed:
        return []
    text = it.texts[0]
    said = [it.alone(text[:size])[1] for size in range(2, len(text) + 1)]
    alike = [bool((shares(each, said[0], ROOM * it.allowed) <= 1).all()) for each in said]
    short = len(alike) if all(alike) else alike.index(False)  # said[i] is of i + 2 tokens
    threshold = short + 1
    if threshold >= len(text) or threshold < 4:
        later = [bool((shares(each, other, ROOM * it.allowed) <= 1).all()) for each, other in pairwise(said)]
        return [] if any(later[:2]) else _by_values_or_length(it)
    unlike = _by_values_or_length(it)  # whether later tokens are seen, or what else depends on the length
    if unlike and (
        unlike[0][0] != BY_CALL_LENGTH or (is_measurable(it.model) and not rotates_by_length(it, threshold))
    ):
        how = changed_by_length(it, threshold) if unlike[0][0] == BY_CALL_LENGTH and is_measurable(it.model) else ""
        return [(BY_FREQUENCIES, {"threshold": threshold, "how": how}, unlike[0][2])] if how else unlike
    beyond = said[short:]
    one = all(bool((shares(each, beyond[0], ROOM * it.allowed) <= 1).all()) for each in beyond)
    code = "chunk-mixes-lists" if one else "cache-older-base"
    shorter = it.shortened(threshold)
    explained_by = ["a longer text"]
    for name, asked in failed.items():
        if name == "a longer text":
            continue
        if _explains(asked, shorter):
            explained_by.append(name)
    return [(code, {"threshold": threshold, "next": threshold + 1}, explained_by)]


def _by_values_or_length(it: GenerationSubject) -> list[_Rule]:
    """Whether logits change with which tokens come later, or only with how many: one text with two ends."""
    text = it.texts[0]
    others = [np.append(text[:cut], (text[cut:] + 1) % it.model.vocabulary) for cut in (len(text) // 2, len(text) - 1)]
    before, *ended, again = (it.alone(each) for each in (text, *others, text))
    same = [shares(each, before, ROOM * it.allowed).max(axis=-1) <= 1 for each in (*ended, again)]
    if not same[-1].all():
        return []  # one text has two answers
    if not all(each[: len(text) // 2].all() for each in same):
        return [("later-tokens-seen", {}, ["a longer text"])]
    shifts = shifts_by_length(it) if is_measurable(it.model) else []
    how = shifted_by_length(shifts) or "what depends on it is not known"
    return [(BY_CALL_LENGTH, {"how": how}, ["a longer text"])]


def _left_behind(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Something stays in the model between two texts."""
    if "repeated call" not in failed:
        return []
    answers = {answer.asked: answer for answer in failed["repeated call"].answers}
    twice = [[answer.got for answer in failed["repeated call"].answers if answer.asked == name] for name in answers]
    still = all((shares(one, each[0], ROOM * it.allowed) <= 1).all() for each in twice[:-1] for one in each)
    longest = list(answers.values())[-1]
    if (longest.shares > 1).any() or not (still or it.model.copied):
        return [("model-keeps-state", {}, ["repeated call"])]
    explained_by = ["repeated call"]
    if not it.model.copied:
        # What every text is, once the longest was seen, accounts for the rest.
        after = replace(it, wanted=[it.alone(text) for text in it.texts])
        explained_by += [name for name, one in failed.items() if name != "repeated call" and _explains(one, after)]
    return [("remembers-longest", {}, explained_by)]


def _by_short_tables(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Keys of zeros at the end of a long call: all that is compared with a long call fails, and only that."""
    if not any(name.startswith(_PIECES) for name in failed):
        return []
    with suppress(Refused, Unasked):
        size = len(it.texts[0])
        written = rows_that_are_written(it)
        shorter = it.shortened(written) if 8 <= written < size else None
        names = [name for name, one in failed.items() if shorter is not None and _explains(one, shorter)]
        if names:
            return [("long-calls-without-rows", {"written": written}, names)]
    return []


def _by_moved_keys(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """What a caller's function did to the keys of each layer."""
    name = "a shifted cache"
    if name not in failed or it.shift is None or it.drops:
        return []
    with suppress(Refused, Unasked):
        wrong = moved_keys(it)
        still = [layer for layer, of in wrong.items() if of is None]
        others = [
            f"those of {layer} by " + (f"the rotation of {of}" if of else "the angles of none of its layers")
            for layer, of in wrong.items()
        ]
        if still:
            return [("cached-keys-keep-positions", {"moved": f"shifted, in {listed(still)}"}, [name])]
        if others:
            return [("cached-keys-other-rotation", {"how": listed(others)}, [name])]
    return []


def _by_kept_positions(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Positions of the first call of a length that all later calls of this length get."""
    if not failed or it.slip or "positions" not in it.model.takes:
        return []
    row = np.concatenate(it.texts)
    size, model = len(it.texts[0]), it.model.fresh()
    at = np.arange(size + 3)
    spread = at + (at >= size // 2)
    with suppress(Refused, Unasked):
        # No text had these two lengths: each has the positions of its first call, or those that it is given.
        first, second, first_again, second_again = (
            model(row[None, :more], where[None, :more])[0][0]
            for more, where in ((size + 2, spread), (size + 3, at), (size + 2, at), (size + 3, spread))
        )
        kept = all(
            (shares(again, before, ROOM * it.allowed) <= 1).all()
            for again, before in ((first_again, first), (second_again, second))
        )
        if kept and (shares(first, second[: size + 2], ROOM * it.allowed) > 1).any():
            return [("model-keeps-state", {}, list(failed))]
    return []


def _explains(one: ExperimentRun, it: GenerationSubject) -> bool:
    with suppress(Refused, Unasked):
        return all((answer.shares <= 1).all() for answer in one.experiment.run(it.fresh()))
    return False


def _by_padded_states(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Padding that is in the states of a padded text, which goes on rightly with the states of the text alone."""
    padded = [name for name in failed if name.startswith("left padding")]
    with suppress(Refused, Unasked):
        if padded and (states := states_with_pads(it)):
            how = (
                f"after pads in front of a text, {some_of(states, 2)} of its cache differs from that of the text alone"
            )
            return [("padding-in-state", {"how": how}, padded)]
    return []


def _by_rule(it: GenerationSubject, failed: Mapping[str, ExperimentRun], every: Collection[str]) -> list[_Rule]:
    """What is known without another pass to compare with."""
    found = []
    if NO_KEYS in failed:
        spread = [
            name
            for name, one in failed.items()
            if name == NO_KEYS or not all(np.isfinite(answer.got).all() for answer in one.answers)
        ]
        found.append(("masked-row-not-finite", {}, spread))
        failed = {name: one for name, one in failed.items() if name not in spread}
    steps = [name for name in failed if name.startswith(_PIECES)]
    if steps and not it.slip:
        code, told = _by_keys(it)
        if code:
            places = KeyPlaces(it)
            others = [name for name, one in failed.items() if name not in steps and misplaced(it, one, places)]
            found.append((code, told, [*steps, *others]))
    state = [name for name in failed if name in _ALTERNATING]
    if state and not any(name.startswith((*_PIECES, "a copied")) for name in every):
        # One text alone goes on rightly: what it goes on from is not in its cache.
        removed = ("rows removed from the cache", "rejected tokens")
        evicted = [name for name in removed if name in failed and not it.slip]
        found.append(("model-keeps-state", {}, [*state, *evicted]))
        failed = {name: one for name, one in failed.items() if name not in evicted}
    padded = [name for name in failed if name.startswith("left padding")]
    if padded and not it.slip:
        code, pads = _of_pads(it)
        code, pads = (code, pads) if code else _of_padded_keys(it, [failed[name] for name in padded])
        if code:
            found.append((code, pads, padded))
    evicted = failed.get("rows removed from the cache")
    if evicted and not it.slip and not steps:
        # Positions that are given change nothing, so all that it can count are the rows.
        facts = {name: facts_of(it)[name] for name in ("kept", "begun")}
        found.append(("eviction-stops-positions", facts, [evicted.experiment.name]))
    if "repeated call" in failed and not any("repeated call" in names for _, _, names in found):
        found.append(("model-keeps-state", {}, ["repeated call"]))
    return found


def _by_keys(it: GenerationSubject) -> tuple[str, dict[str, Any]]:
    """What the cached keys show of later pieces, of a model that cannot be told positions in one pass.

    A fault is named only if it predicts the places of all keys, in every way in which the text is cut.
    """
    if "positions" not in it.model.takes:
        return "", {}  # measuring its attention says more
    if it.model.window is not None and it.model.window <= len(it.texts[0]):
        it = it.shortened(it.model.window - 1)  # layers with a window keep no more rows
    size = len(it.texts[0])
    part = min(5, size // 3)
    seen: list[tuple[list[int], np.ndarray]] = []
    for cuts in ([part, size - part], [size // 2, *range(size // 2 + 1, size)]):
        with suppress(Refused, Unasked):
            places = places_of_keys(it, cuts)
            if places is not None and not (places == NOWHERE).any():
                seen.append((cuts, places))
    right = np.arange(size)
    wrong = [(cuts, places) for cuts, places in seen if (places != right).any()]
    if not wrong:
        return "", {}
    cuts, places = wrong[0]
    if rotated_alike(it, cuts[0]):
        for fault in faults_of(it):
            if fault.sees is None and all((places_under(fault, [0, *cut], size) == at).all() for cut, at in seen):
                return fault.code, fault.parameters(it)
    first = int(np.flatnonzero(places != right)[0])
    got, wanted = (", ".join(map(str, each[first : first + 3])) for each in (places, right))
    return "decode-positions", {"how": f"its cached keys are at positions {got} instead of {wanted}"}


def _of_pads(it: GenerationSubject) -> tuple[str, dict[str, Any]]:
    """What pads do to a text that no positions can be given to: whether they are read, or counted."""
    text, pads = it.texts[1], len(it.texts[0]) - len(it.texts[1])
    mask = np.arange(len(text) + pads)[None] >= pads
    with suppress(Refused, Unasked):
        said = []
        for token in (it.model.pad, (it.model.pad + 1) % it.model.vocabulary):
            row = np.concatenate([np.full(pads, token), text])[None]
            at = it.model.given(np.maximum(np.arange(row.shape[1]) - pads, 0)[None])
            said.append(it.model.fresh()(row, at, mask)[0][0, pads:])
        if (np.abs(said[0] - it.wanted[1]) <= it.allowed).all():
            return "", {}
        code = "padding-shifts" if (np.abs(said[0] - said[1]) <= ROOM * it.allowed).all() else "padding-seen"
        return code, next(fault for fault in CATALOGUE if fault.code == code).parameters(it)
    return "", {}


def _of_padded_keys(it: GenerationSubject, padded: Sequence[ExperimentRun]) -> tuple[str, dict[str, Any]]:
    """What the cached keys of padded texts show, where only what follows the padded call is wrong.

    A fault is named only if it predicts the places of the last keys of all texts, after each call.
    """
    if [one.experiment.name for one in padded] != [PADDED_DECODING]:
        return "", {}
    calls = places_after_padding(it, padded[0])
    wrong = [(call, at) for call, at in calls if (call.right[:, -1] != at).any()]
    if not wrong:
        return "", {}
    for fault in faults_of(it):
        if fault.sees is None and all((fault.keys(call)[:, -1] == at).all() for call, at in calls):
            return fault.code, fault.parameters(it)
    call, at = wrong[0]
    text = int(np.argmax(call.right[:, -1] != at))
    how = f"after padding a cached key is at position {at[text]} instead of {call.right[text, -1]}"
    return "decode-positions", {"how": how}


def _by_lost_order(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Later calls that do not see in which order the cached keys stand, where one pass does.

    The prediction: with the rows of the cache reversed before each later call, all answers are the same.
    """
    if not any(name.startswith(_PIECES) for name in failed):
        return []
    text = it.texts[1]
    with suppress(Refused, Unasked):
        _, axes = grown_cache(it.model, text[:-1], [len(text) - 2])
        if not axes:
            return []
        other = it.alone(text[[1, 0, *range(2, len(text))]])[-1]
        if np.abs(other - it.wanted[1][-1]).max() <= it.allowed:
            return []

        def in_reverse(call: CallArguments) -> CallArguments:
            if call.cache is None:
                return call
            rows = {path: rows_of(call.cache, path, axis) for path, axis in axes.items()}
            past = max(map(len, rows.values()))
            mask = call.mask
            if mask is not None:
                mask = np.concatenate([mask[..., past - 1 :: -1], mask[..., past:]], axis=-1)
            return replace(call, mask=mask, cache=with_rows(call.cache, lambda size: np.arange(size)[::-1], axes))

        names = [name for name, one in failed.items() if unchanged(it, one, in_reverse)]
        if not any(name.startswith(_PIECES) for name in names):
            return []
        if not holds_positions(it):
            return [("bias-lost-in-decode", {}, names)]
        size = len(it.texts[0])
        places = places_of_keys(it, [size // 2, size - 2])
        if places is not None and (places == NOWHERE).any():
            return [("late-calls-without-rows", {"first": int(np.argmax(places == NOWHERE))}, names)]
    return []


def _by_clamped_positions(it: GenerationSubject, failed: Mapping[str, ExperimentRun]) -> list[_Rule]:
    """Positions above a limit that are all the limit, in single passes too: a text further on is then not the same.

    The prediction: where all positions above the limit are passed as the limit, all answers are the same. Of positions
    that are added to tokens, a token alone shows the same: it differs up to the limit and nowhere after it.
    """
    if ONE_TOKEN in failed:
        (answer,) = failed[ONE_TOKEN].answers
        limit, same = int(np.argmax(answer.wrong[:, 0])), int(answer.wrong.sum())
        beyond = same > 1 and same == len(answer.wrong) - limit  # one position alone may have the row of another
        return [("positions-clamped", {"limit": limit}, [ONE_TOKEN])] if beyond else []
    one = failed.get("a shifted text")
    if one is None or not it.slip:
        return []
    limit = next((limit for limit in range(1, 2 * len(it.texts[0])) if unchanged(it, one, clamped(limit))), None)
    if limit is None:
        return []
    shifted = [name for name in failed if name.startswith("a shifted") and unchanged(it, failed[name], clamped(limit))]
    return [("positions-clamped", {"limit": limit}, shifted)]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {number_of(rest, 'other experiment')}" if rest > 0 else "")


def explanation_of(codes: tuple[str, ...], parameters: Mapping[str, Any], names: Sequence[str]) -> Explanation:
    """The faults of these codes in words, with the experiments that they account for."""
    # A code that other kinds share is told in the words of this one, with the cases of all.
    rows = [_ROWS[code] for code in codes]
    said = [row.sentence.format(**parameters) for row in rows[:1]]
    said += [row.sentence.partition(":")[0].partition(" {")[0] for row in rows[1:3]]
    message = said[0] if len(said) == 1 else ", or ".join(said) + UNDECIDED
    message += parameters.get("when", "")
    return Explanation(
        codes,
        f"{message} (failed experiments: {_some(names)}).",
        rows[0].hint,
        tuple(dict.fromkeys(case for code in codes for case in FAULTS[code].cases)),
        {**parameters, "explains": tuple(names)},
    )
