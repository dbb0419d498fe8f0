"""`check_positions`: whether a function gives tokens, images and videos the positions of a family."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from clockhands.configs.callables import SAVED_BATCH
from clockhands.models.opened_modules import name_of, token_numbering
from clockhands.phrases import filled, listed, number_of, said
from clockhands.recognition.calling import Refused, refusals
from clockhands.recognition.faults import POSITIONS
from clockhands.recognition.token_positions import (
    PositionRule,
    PositionSuspect,
    Prompt,
    TokenBatch,
    delta,
    position_suspects,
    positions,
    prompts_of,
)
from clockhands.testing._checks import named
from clockhands.testing.positions._known_rules import known_rules
from clockhands.testing.positions._position_calls import PositionFunction, is_processor
from clockhands.testing.reports import UNDECIDED, CannotCheck, Explanation, Failure, Report, settled


@dataclass(frozen=True)
class Numbered:
    """What the function returned for a prompt: positions [axes, batch, seq], and deltas if it returns them."""

    prompt: TokenBatch
    got: np.ndarray
    deltas: np.ndarray | None

    def wrong(self, wanted: np.ndarray) -> np.ndarray:
        """Which tokens have other positions, [batch, seq]; what is not known (NaN) may be anything, as padding.

        Fractions of a position may differ by the rounding of single precision.
        """
        fraction = (self.got % 1 != 0) | (wanted % 1 != 0)
        same = (self.got == wanted) | (fraction & (np.abs(self.got - wanted) <= _ROUNDING * np.abs(wanted)))
        return (~same & ~np.isnan(wanted)).any(axis=0)

    def known(self, rule: PositionRule) -> bool:
        """Whether a rule gives each token a position: frames and audio may come in the order of another precision."""
        return not np.isnan(positions(rule, self.prompt)[:, self.prompt.mask]).any()


_ROUNDING = 2.0**-20
"""Of a position that is a few sums and products in float32, 16 roundings."""

MEASURED = frozenset({"delta-lost", "restarts-inside", "first-frame-alone"})
"""Faults that no rule predicts: what is seen of them is said."""

_VIDEO = 2  # as types say
_SELECTED = 4
"""Of more images and videos the selections are not tried."""


def check_positions(
    fn: Any = None,
    *,
    like: str | PositionRule | tuple[PositionRule, ...] | None = None,
    call: str | None = None,
    backend: Any = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    """Check that a function numbers tokens, cells of images and videos, padding and documents as a family does.

    It is called with prompts of text, images, videos and audio, alone, in batches, padded and packed, as far as it
    takes arguments for them, and with an early prompt again after the others. Every position is compared with the rule
    of the family. If some are wrong, the rule with each other field, and then with two, is tried for the same numbers.

    Args:
        fn: A function of some of ``input_ids`` [batch, seq], ``attention_mask``, ``image_grid_thw`` and
            ``video_grid_thw`` [number, 3] in patches, ``second_per_grid_ts``, ``mm_token_type_ids``, ``cu_seqlens`` or
            ``document_ids``; of a latent image of ``height`` and ``width`` in patches, ``frames``, ``text_length``. It
            returns positions [3, batch, seq], [batch, seq] or [seq], alone or with the deltas of the next token, or a
            mapping with ``position_ids``. Or of one mapping ``features`` of these; or a loaded model, of which its
            `get_rope_index` is checked.
        like: The family, with fields if they differ: ``"qwen2_vl"``, ``"qwen2_5_vl:per_second=2,image=9"``; or a model,
            whose config says it: ``"path/to/model"``, ``"org/name"``. Of a loaded model its own unless given.
        call: What its arguments are, in their order, if their names do not say it: ``"input_ids, image_grid_thw"``.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; found out unless given.
        timeout: Seconds for a call.
        raises: Whether a failure is raised; else it is in the report.

    Returns:
        The report; where something failed and ``raises`` is false too.

    Accuracy: whole positions are compared exactly, fractions of one within 2**-20; those of padding are not compared.

    Raises:
        CheckFailed: Something failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message says what it must take.
        InvalidValue, InvalidType: An argument cannot be used.

    Source: each rule names the paper, or the file of the release, that defines it
        (`clockhands.recognition.token_positions.rules`).

    >>> import numpy as np
    >>> def count(attention_mask):
    ...     return np.cumsum(attention_mask, axis=1) - 1
    >>> check_positions(count, like="text").sound
    True
    """
    __tracebackhide__ = True
    if fn is None:
        raise CannotCheck("No function was passed.", "Pass the function to check.")
    if call is None:
        refuse_processor(fn, like)
    if isinstance(fn, type):
        raise CannotCheck(
            f"The class {fn.__name__} was passed, not a function.",
            "Pass a function of an instance, or a function without arguments that returns a model. Of a processor: "
            f"{SAVED_BATCH[0].lower()}{SAVED_BATCH[1:].format(family=_family(like))}.",
        )
    if hasattr(fn, "named_modules"):
        fn, own = _numbering_of(fn)
        like = own if like is None else like
    rules = known_rules(like)
    called = PositionFunction(fn, rules[0], call, timeout)
    answers, refused, left_out = _answers(called, prompts_of(rules[0]), backend)
    report = judged(named(fn, None), rules, answers, left_out, called.summary)
    report = replace(
        report,
        experiments=(*report.experiments, *(failure.experiment for failure in refused)),
        failures=(*report.failures, *refused),
    )
    if called.changed:
        names = listed(sorted(called.changed))
        changed = Failure("arguments stay as they are", f"it changed {names}.", {"changed": tuple(called.changed)})
        report = replace(
            report,
            failures=(*report.failures, changed),
            explanations=(*report.explanations, _known("changes-its-arguments", {"names": names})),
        )
    return settled(report, raises)


def refuse_processor(value: Any, like: Any) -> None:
    """Refuse what makes batches of images and texts: no check can make those for it.

    Raises:
        CannotCheck: It is such a class, object or function.
    """
    if is_processor(value):
        name = getattr(value, "__name__", type(value).__name__)
        family = _family(like)
        raise CannotCheck(
            f"{name} makes batches of images and texts, as a processor does, and needs some.",
            f"{SAVED_BATCH.format(family=family)}; in Python check_batch({family!r}, batch).",
        )


def _family(like: Any) -> str:
    return like if isinstance(like, str) else "FAMILY"


def _numbering_of(model: Any) -> tuple[Callable[..., Any], tuple[PositionRule, ...] | None]:
    """The `get_rope_index` of a model, and the rules of its config, if they are known.

    Raises:
        CannotCheck: It has none.
    """
    numbering = token_numbering(model)
    if numbering is None:
        raise CannotCheck(
            f"{name_of(model)} has no get_rope_index: a forward pass of the model numbers its tokens.",
            "check_generation (--kind generation) runs the model; check_batch checks the position_ids of a batch.",
        )
    return numbering.call, numbering.rules


def judged(
    subject: str,
    rules: Sequence[PositionRule],
    answers: Sequence[Numbered],
    left_out: Mapping[str, str],
    called: Mapping[str, Any],
) -> Report:
    """The report on positions: by the rule that gives them, or, if none does, what is wrong by the first rule."""
    rules = [rule for rule in rules if all(answer.known(rule) for answer in answers)] or rules
    rule = next((each for each in rules if not _wrong(each, answers)), rules[0])
    wrong = _wrong(rule, answers)
    if wrong:
        failures, explanations = [_failure(rule, answer) for answer in wrong], _explanations(rules, answers)
    else:
        failures, explanations = _of_deltas(answers)
    return Report(
        subject=subject,
        kind="positions",
        like=rule.words,
        experiments=tuple(answer.prompt.name for answer in answers),
        left_out=left_out,
        failures=tuple(failures),
        explanations=explanations,
        called=called,
    )


def _answers(
    called: PositionFunction, prompts: Sequence[Prompt], backend: Any
) -> tuple[list[Numbered], list[Failure], dict[str, str]]:
    """What the function returns for the prompts that it takes, those where it fails, and why others are left out."""
    answers = [_first(called, prompts, backend)]
    refused: list[Failure] = []
    lacks = {prompt.name: called.lacks(prompt) for prompt in prompts}
    left_out = {name: f"it takes no {what}" for name, what in lacks.items() if what is not None}
    for prompt in prompts:
        if prompt.name in left_out or prompt.name == answers[0].prompt.name:
            continue
        try:
            answers.append(Numbered(prompt, *called.positions(prompt)))
        except Refused as error:
            if prompt.shape[0] > 1 and "attention_mask" not in called.takes.values():
                left_out[prompt.name] = "it takes no attention_mask"  # a function of one row of tokens, as [1, seq]
            elif "latents" in called.takes.values() and prompt.grids("video") is not None:
                left_out[prompt.name] = f"it takes latents of images alone: {error}"  # [batch, channels, rows, columns]
            else:
                refused.append(Failure(prompt.name, f"{error}."))
    return answers, refused, left_out


def _first(called: PositionFunction, prompts: Sequence[Prompt], backend: Any) -> Numbered:
    """What the function returns for the first prompt that it takes: as a batch of one row, or as that row alone.

    Raises:
        CannotCheck: It takes no prompt, or fails with either.
    """
    prompt = next((prompt for prompt in prompts if called.lacks(prompt) is None), None)
    if prompt is None:
        raise CannotCheck(
            f"The function takes {listed(called.takes)}, which is not enough for any prompt.",
            f"Let it take {called.lacks(prompts[0])}.",
        )
    answers: list[Numbered] = []
    tried = called.find_library(backend, lambda: answers.append(Numbered(prompt, *called.positions(prompt))))
    if not answers:
        called.flat = True
        called.find_library(backend, lambda: answers.append(Numbered(prompt, *called.positions(prompt))))
    if not answers:
        raise CannotCheck(
            f"The function was called with {listed(called.takes)} of {prompt.name}, but {refusals(tried)}.",
            "Let it take these arguments and return positions, or say what its arguments are with call=.",
        ) from tried[0][1].__cause__
    return answers[0]


def _wrong(rule: PositionRule, answers: Sequence[Numbered]) -> list[Numbered]:
    return [answer for answer in answers if answer.wrong(positions(rule, answer.prompt)).any()]


def _failure(rule: PositionRule, answer: Numbered) -> Failure:
    """The first token that has another position."""
    wanted = positions(rule, answer.prompt)
    wrong = answer.wrong(wanted)
    row, token = (int(each) for each in np.argwhere(wrong)[0])
    got, right = ([_number(value) for value in each[:, row, token]] for each in (answer.got, wanted))
    where = f"row {row}, token {token}" if len(wrong) > 1 else f"token {token}"
    kind = ("text", "image", "video", "audio")[answer.prompt.types[row, token]]
    axes = "" if len(rule.axes) == 1 else f" ({', '.join(rule.axes)})"
    message = (
        f"{int(wrong.sum()):,} of {int(answer.prompt.mask.sum()):,} tokens are wrong; the first is {where} ({kind}): "
        f"expected {_as_text(right)}{axes}, got {_as_text(got)}."
    )
    evidence = {"row": row, "token": token, "kind": kind, "right": right, "got": got, "wrong": int(wrong.sum())}
    return Failure(answer.prompt.name, message, evidence)


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def _as_text(values: Sequence[float]) -> str:
    words = [said(value) if isinstance(value, float) else str(value) for value in values]
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _explanations(rules: Sequence[PositionRule], answers: Sequence[Numbered]) -> tuple[Explanation, ...]:
    """The faults that give the same numbers: one, or two at once; none if no known fault does.

    If none gives all of them, the faults of prompts of one row: what is wrong in batches besides is not known then.
    """
    single = [answer for answer in answers if len(answer.prompt.runs) == 1]
    found = _faults(rules, answers)
    if found or len(single) == len(answers) or not _wrong(rules[0], single):
        return found
    rest = "; that batches of several rows are wrong too has another cause"
    return tuple(replace(each, message=f"{each.message.removesuffix('.')}{rest}.") for each in _faults(rules, single))


def _faults(rules: Sequence[PositionRule], answers: Sequence[Numbered]) -> tuple[Explanation, ...]:
    prompts = [answer.prompt for answer in answers]
    wrong = [answer.wrong(positions(rules[0], answer.prompt)) for answer in answers]
    order = sorted(range(len(answers)), key=lambda number: not wrong[number].any())

    def fits(suspect: PositionSuspect) -> bool:
        known = False
        for number in order:
            predicted = suspect.predicted(prompts, number)
            if predicted is None or answers[number].wrong(predicted).any():
                return False
            known |= bool((~np.isnan(predicted[:, wrong[number]])).any())
        return known  # of tokens that are wrong it knows at least some

    largest = max(float(answer.got[:, answer.prompt.mask].max()) for answer in answers)
    runs = (run for prompt in prompts for row in prompt.runs for document in row for run in document)
    timed = any(run.seconds != 1 for run in runs if run.kind == "video")
    for rule in rules:
        found = [suspect for suspect in position_suspects(rule, largest) if fits(suspect)]
        if not rule.per_second and not timed:  # where a frame is a second, positions per frame say all
            found = [suspect for suspect in found if "per_second" not in suspect.changed] or found
        if found:
            return (_explanation(found),)
    for rule in rules:
        for pair in _pairs(rule, largest):
            if fits(pair[-1]):
                return tuple(_explanation([each]) for each in pair[:-1])
    if any(all(_with_some_grids(rule, answer) for answer in answers) for rule in rules):
        return (_known("image-as-text", {"what": "some images or videos of prompts with several"}),)
    told = [measured for number in order if (measured := _measured(rules[0], answers[number])) is not None]
    return tuple(told[:1])


@dataclass(frozen=True)
class _Row:
    """The tokens of one row of a prompt, of which some have wrong positions.

    Attributes:
        row: Its number.
        places: Of its tokens, padding left out.
        got: Their positions [axes, tokens].
        right: Those of the rule.
        wrong: Which ones differ [tokens].
        types: 0 for text, 1 of an image, 2 of a video, 3 of audio.
        start: The position of the first token.
    """

    row: int
    places: np.ndarray
    got: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    types: np.ndarray
    start: float

    @property
    def first(self) -> int:
        """The first wrong token."""
        return int(np.argmax(self.wrong))


def _measured(rule: PositionRule, answer: Numbered) -> Explanation | None:
    """What wrong positions of a prompt are by themselves; None where that is nothing simple."""
    wanted, mask = positions(rule, answer.prompt), answer.prompt.mask
    wrong = answer.wrong(wanted)
    for number in np.flatnonzero(wrong.any(axis=1)).tolist():
        at = np.flatnonzero(mask[number])
        got, right, types = answer.got[:, number, at], wanted[:, number, at], answer.prompt.types[number, at]
        row = _Row(number, at, got, right, wrong[number, at], types, rule.first)
        told = (
            explained for of_row in (_delta_lost, _restarts_inside, _first_frame_alone) if (explained := of_row(row))
        )
        if (explanation := next(told, None)) is not None:
            return explanation
    return None


def _delta_lost(row: _Row) -> Explanation | None:
    """All text behind images is counted by its tokens."""
    behind, count = slice(row.first, None), np.arange(len(row.places)) + row.start
    if row.types[behind].any() or not row.types[: row.first].any():
        return None
    if not row.wrong[behind].all() or not (row.got == count)[:, behind].all():
        return None
    tokens, lost = number_of(len(row.places) - row.first, "token"), _number((row.right - count)[0, -1])
    return _known("delta-lost", {"count": tokens, "row": row.row, "delta": lost})


def _restarts_inside(row: _Row) -> Explanation | None:
    """A token of text that follows another one has the first position again."""
    plain = (row.types[1:] == 0) & (row.types[:-1] == 0) & (np.diff(row.right) == 1).all(axis=0)
    again = (row.got[:, 1:] == row.start).all(axis=0) & (np.diff(row.got) < 0).all(axis=0)
    at = next(iter((np.flatnonzero(plain & again) + 1).tolist()), None)
    if at is None:
        return None
    where = {"token": int(row.places[at]), "row": row.row, "before": _number(row.got[0, at - 1])}
    return _known("restarts-inside", {"first": row.start, **where})


def _first_frame_alone(row: _Row) -> Explanation | None:
    """All wrong cells are of a video and have one position, that of its end, where the rule has several times."""
    cells = row.wrong & (row.types == _VIDEO)
    if row.types[row.first] != _VIDEO:
        return None
    first, times = int(np.argmax(cells)), row.right[0]
    at = row.got[:, cells]
    one = (at == at[:, :1]).all() and at.shape[1] > 1 and len(np.unique(times[cells])) > 1
    if not one or times[first] <= times[max(first - 1, 0)]:
        return None
    return _known("first-frame-alone", {"at": _as_text([_number(value) for value in at[:, 0]])})


def _with_some_grids(rule: PositionRule, answer: Numbered) -> bool:
    """Whether the positions are those of the rule, with some of several images and videos of a prompt as text.

    Which of them a function misses may depend on their places, so each selection is tried, of at most four.
    """
    documents = (runs for row in answer.prompt.runs for runs in row)
    most = max((sum(run.kind != "text" for run in runs) for runs in documents), default=0)
    tried = range(most + 1) if 1 < most <= _SELECTED else (0,)
    return any(
        not answer.wrong(positions(replace(rule, missed=frozenset(missed)), answer.prompt)).any()
        for count in tried
        for missed in combinations(range(most), count)
    )


def _pairs(rule: PositionRule, largest: float) -> Iterator[tuple[PositionSuspect, PositionSuspect, PositionSuspect]]:
    """Each two faults of other fields, and the suspect that has both."""
    single = [suspect for suspect in position_suspects(rule, largest) if "state" not in suspect.changed]
    for one, two in combinations(single, 2):
        if one.changed.isdisjoint(two.changed) and one.code != two.code:
            yield one, two, one.with_fields_of(two)


def _explanation(found: Sequence[PositionSuspect]) -> Explanation:
    """The explanation of suspects that give the same numbers; of the same fault in more fields, the one in fewer."""
    least = [one for one in found if not any(two.code == one.code and two.changed < one.changed for two in found)]
    told = list(dict.fromkeys(filled(POSITIONS[one.code].sentence, one.parameters) for one in least))
    codes = tuple(dict.fromkeys(one.code for one in least))
    fault = POSITIONS[codes[0]]
    message = f"{told[0]}." if len(told) == 1 else f"{listed(told, 'or')}{UNDECIDED}."
    return Explanation(codes, message, fault.hint, fault.cases, dict(least[0].parameters))


def _known(code: str, parameters: Mapping[str, Any]) -> Explanation:
    """The explanation of a fault that is measured, not tried."""
    fault = POSITIONS[code]
    message = f"{filled(fault.sentence, parameters)}."
    return Explanation((code,), message, fault.hint, fault.cases, parameters)


def _of_deltas(answers: Sequence[Numbered]) -> tuple[list[Failure], tuple[Explanation, ...]]:
    """The deltas that are wrong, where all positions are right; both ways of counting padding are in use."""
    failures = []
    for answer in answers:
        if answer.deltas is None:
            continue
        right = delta(answer.got, answer.prompt)
        padded = right - (~answer.prompt.mask).sum(1)
        if answer.deltas.shape != right.shape or not (
            np.array_equal(answer.deltas, right) or np.array_equal(answer.deltas, padded)
        ):
            got, wanted = (_as_text([_number(value) for value in each]) for each in (answer.deltas, right))
            failures.append(
                Failure(
                    answer.prompt.name,
                    f"the delta of the next token is {got}; expected {wanted}: the largest position + 1 - the number "
                    f"of {number_of(int(answer.prompt.mask.sum()), 'token')}.",
                    {"right": wanted, "got": got},
                )
            )
    if not failures:
        return [], ()
    return failures, (_known("delta-wrong", failures[0].evidence),)
