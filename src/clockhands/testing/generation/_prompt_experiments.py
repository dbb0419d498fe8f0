"""The check of a program that chooses its tokens: a prompt alone, with others, and with what it chose as its end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.phrases import listed, number_of
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import FAULTS, fault_in_words
from clockhands.testing._experiments import Unasked
from clockhands.testing.generation._chosen_tokens import FEWEST, NO_LOGITS, explained_by_ties, tie_rate, tokens_found
from clockhands.testing.generation._explanations import explanation_of
from clockhands.testing.generation._measured_faults import Told
from clockhands.testing.generation._measured_programs import faults_of_program
from clockhands.testing.generation._passed_positions import PassedPositions
from clockhands.testing.generation._prompt_drivers import END, PromptDriver, RequestEngine
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report

_SIZES, _COUNT = (9, 6, 12, 9, 4, 9, 7, 5), 6
_RESERVED = 4  # ids that are often those of padding and ends
_FOUND_BY = 8  # prompts
_DECODING, _PADDED, _LATER = "one token at a time", "texts of several lengths", "texts that begin later"
_BATCH, _AGAIN, _CHUNKS = "with other texts", "repeated call", "chunks"
_EDITED, _MODELS = "an edited prompt", "positions in its models"
_POSITIONS = ", and the positions of one pass in its models"
_MEASURED = 16  # tokens: some of a draft are rejected
_CHUNK = 4  # tokens, less than a prompt has


@dataclass(frozen=True)
class Continuation:
    """What a program chose, beside what it should have chosen.

    Attributes:
        asked: What it was given.
        text: The number of the prompt.
        got, wanted: Tokens.
        first: The place of the first of them after the prompt.
    """

    asked: str
    text: int
    got: Sequence[int]
    wanted: Sequence[int]
    first: int = 0

    @property
    def parts(self) -> int | None:
        """The first token that is another; None if none is."""
        return next(
            (at for at, (one, other) in enumerate(zip(self.got, self.wanted, strict=True)) if one != other), None
        )

    @property
    def compared(self) -> int:
        """Tokens up to the first that is another: what follows that is another text."""
        return len(self.wanted) if self.parts is None else self.parts + 1


@dataclass
class PromptSubject:
    """A program, its prompts, and how it continues each of them alone.

    Attributes:
        driver: The program.
        prompts: Token ids.
        wanted: The tokens that follow each.
    """

    driver: PromptDriver
    prompts: list[list[int]]
    wanted: list[list[int]] = field(default_factory=list)

    def one_object(self) -> dict[str, Any]:
        """What has several calls made to one object, as a user makes them, where each call has a new copy else."""
        return {"engine": self.driver.copied()} if self.driver.renews else {}

    def given(self, chosen: Sequence[int], asked: str, **how: Any) -> list[Continuation]:
        """Some prompts in one call."""
        got = self.driver.new_tokens([self.prompts[one] for one in chosen], _COUNT, **how)
        wanted = [self.wanted[one] for one in chosen]
        # In a batch, what follows the end of a text is filled up in one way or another.
        return [
            Continuation(f"prompt {row + 1} of {len(chosen)}, {asked}", one, got[row][: len(right)], right)
            for row, (one, right) in enumerate(zip(chosen, wanted, strict=True))
        ]


def _decoded(it: PromptSubject) -> list[Continuation]:
    """Each token is that which follows the prompt with all tokens before it, given as one prompt."""
    found = []
    for number, (prompt, chosen) in enumerate(zip(it.prompts, it.wanted, strict=True)):
        for at in range(1, len(chosen)):
            ((wanted,),) = it.driver.new_tokens([[*prompt, *chosen[:at]]], 1)
            asked = f"token {at + 1} after a prompt of {len(prompt)}"
            found.append(Continuation(asked, number, chosen[at : at + 1], [wanted], at))
    return found


def _alike(it: PromptSubject) -> list[Continuation]:
    alike = [one for one, prompt in enumerate(it.prompts) if len(prompt) == _SIZES[0]]
    return it.given(alike, "all of one length")


def _unlike(it: PromptSubject) -> list[Continuation]:
    several = range(1, len(it.prompts))
    return [
        *it.given(list(several)[::2], "of several lengths"),
        *it.given(list(several)[1::2], "of several lengths"),
    ]


def _later(it: PromptSubject) -> list[Continuation]:
    chosen = list(range(len(it.prompts)))
    return it.given(chosen, "each added after a step", begins=[2 * one for one in chosen])


def _again(it: PromptSubject) -> list[Continuation]:
    found = []
    engine = it.one_object()
    for one in (1, 2, 1, 4, 2, 1):
        found += it.given([one], "after others", **engine)
    return found


def _edited(it: PromptSubject) -> list[Continuation]:
    """A prompt that begins like the one before it, with all that was chosen then, as an edited chat does."""
    engine = it.one_object()
    found = []
    for number, (prompt, chosen) in enumerate(zip(it.prompts[:3], it.wanted, strict=False)):
        whole = [*prompt, *chosen]
        for kept in (len(prompt), len(prompt) // 2, len(whole) - 1):
            edited = [*whole[:kept], *it.prompts[-1][:2]]
            (wanted,) = it.driver.new_tokens([edited], _COUNT)
            it.given([number], "", **engine)
            (got,) = it.driver.new_tokens([edited], _COUNT, **engine)
            asked = f"a prompt with the first {kept} tokens of the text before it"
            found.append(Continuation(asked, number, got, wanted))
    return found


def _in_chunks(it: PromptSubject) -> list[Continuation]:
    name = it.driver.chunked
    return [
        each
        for size in (2, 5)
        for one in range(len(it.prompts))
        for each in it.given([one], f"{name}={size}", settings={name: size})
    ]


EXPERIMENTS: Mapping[str, Callable[[PromptSubject], list[Continuation]]] = {
    _DECODING: _decoded, _AGAIN: _again, _EDITED: _edited, _CHUNKS: _in_chunks, _BATCH: _alike, _PADDED: _unlike,
    _LATER: _later,
}  # fmt: skip


def checked_driver(driver: PromptDriver, vocabulary: int | None, name: str) -> Report:
    """The report on a program that continues prompts.

    Raises:
        CannotCheck: It fails at a single prompt, or its number of tokens is not known.
    """
    try:
        subject = _subject(driver, vocabulary)
    except (Refused, Unasked) as error:
        raise CannotCheck(f"{driver.how} failed with another prompt: {error}.", "Fix that first.") from error
    rate = tie_rate(*driver.owners)
    runs: dict[str, list[Continuation]] = {}
    left_out = {"logits": NO_LOGITS}
    absent = {_CHUNKS: not driver.chunked, _LATER: not isinstance(driver, RequestEngine)}
    for experiment, run in EXPERIMENTS.items():
        if absent.get(experiment):
            continue
        try:
            found = run(subject)
        except (Unasked, Refused) as reason:
            left_out[experiment] = str(reason)
            continue
        wrong, of = sum(one.parts is not None for one in found), sum(one.compared for one in found)
        if why := explained_by_ties(wrong, of, rate):
            left_out[experiment] = why
        else:
            runs[experiment] = found
    failed = {name: found for name, found in runs.items() if any(one.parts is not None for one in found)}
    reasons, pattern = _explained(subject, failed)
    failures = [_failure(name, found) for name, found in failed.items()]
    models, inside = (0, []) if failed else _inside(subject)
    for number, (code, how) in inside:
        where = f"in model {number + 1} of the {models} that read the text, " if models > 1 else ""
        said = {**how, "how": f"{where}{how['how']}"} if "how" in how else how
        reasons += (explanation_of((code,), said, [_MODELS]),)
        shown = said.get("how", f"{where}{fault_in_words(FAULTS[code])}")
        failures.append(Failure(_MODELS, f"{shown}.", {"model": number}))
    return Report(
        subject=name,
        kind="generation",
        like="the same tokens however a text is passed" + (_POSITIONS if models else ""),
        experiments=(*runs, *([_MODELS] if models else [])),
        left_out=left_out,
        failures=tuple(failures),
        explanations=reasons,
        called={"calls": driver.calls, "rows": driver.tokens, "shape": driver.how, "did_not_fit": list(driver.failed)},
        pattern="" if reasons else pattern,
    )


def _subject(driver: PromptDriver, vocabulary: int | None) -> PromptSubject:
    draw = np.random.default_rng(14)
    seen = tokens_found(
        lambda prompt: driver.new_tokens([prompt.tolist()], 4)[0], [0, 1], 0 if vocabulary else _FOUND_BY, draw
    )
    size = vocabulary or 1 + max(seen)
    if size < FEWEST:
        raise CannotCheck(
            f"The program chose only the tokens {min(seen)} to {max(seen)}.", "Pass vocabulary=, its number of tokens."
        )
    first = _RESERVED if size > 4 * _RESERVED else 0
    prompts = [draw.integers(first, size, length).tolist() for length in _SIZES]
    alone = [driver.new_tokens([prompt], _COUNT)[0] for prompt in prompts]
    return PromptSubject(driver, prompts, [[token for token in each if token != END] for each in alone])


def _failure(experiment: str, found: Sequence[Continuation]) -> Failure:
    wrong = [one for one in found if one.parts is not None]
    first = wrong[0]
    at = first.parts
    assert at is not None
    which = "" if experiment == _DECODING else f"token {first.first + at + 1} after it "
    message = (
        f"{first.asked}: {which}is {first.got[at]}, and {first.wanted[at]} where the text is one prompt by itself; "
        f"so in {len(wrong)} of {len(found)} cases."
    )
    return Failure(experiment, message, {"asked": first.asked, "wrong": len(wrong), "of": len(found), "token": at})


_SCENES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    _DECODING: ("of a text alone", {}),
    _CHUNKS: ("of a prompt in chunks", {}),
    _BATCH: ("of texts of one length in one call", {}),
    _PADDED: ("of texts of several lengths in one call", {}),
    _LATER: ("of texts of which each begins later", {"begins": range(0, 2 * len(_SIZES), 2)}),
}
"""What is asked once more to see which positions are passed, if an experiment failed."""

_PATTERNS = {
    _DECODING: "The first token after a prompt is right, later ones are not: the fault is in the calls with a cache.",
    _CHUNKS: "A prompt is right in one piece and wrong in chunks: the fault is in the calls that read it.",
    _BATCH: "A prompt alone is right, and prompts of one length in one call change each other.",
    _PADDED: "Prompts alone are right, and of several lengths in one call they are not: the fault is in the padding, "
    "or in what is counted for all texts together.",
    _LATER: "Prompts that begin together are right, and one that joins others is not: the fault is in what is counted "
    "or kept for all texts together.",
}


def _explained(it: PromptSubject, failed: Mapping[str, Sequence[Continuation]]) -> tuple[tuple[Explanation, ...], str]:
    """The faults that account for what failed, and what is known where none does."""
    first = next((name for name in _SCENES if name in failed), "")
    if first:
        told = _of_pads(it) if first == _PADDED else None
        if told is None or told[0] == "padding-shifts":
            told = _of_positions(it, first, failed[first], alike=told is not None) or told
        told = told or _of_attention(it, first, failed[first])
        if told is not None:
            return (explanation_of((told[0],), told[1], list(failed)),), ""
    for name, code in ((_AGAIN, "model-keeps-state"), (_EDITED, "kept-prefix-wrong")):
        if name in failed:
            return (explanation_of((code,), {}, list(failed)),), ""
    return (), _PATTERNS.get(first, "")


def _of_positions(
    it: PromptSubject, name: str, found: Sequence[Continuation], *, alike: bool
) -> tuple[str, dict[str, Any]] | None:
    """The fault that the positions show which the program passes on; None where they are right or not seen.

    Args:
        it: The program.
        name: The experiment that failed.
        found: What it gave.
        alike: Whether positions that are all further by one number are wrong.
    """
    where, how = _scene(it, name)
    prompts = _prompts_of(it, name, found)
    seen = PassedPositions(slots=name != _PADDED)
    watched = replace(it.driver, watch=seen.watching)
    with suppress(Refused, Unasked):
        got = watched.new_tokens(prompts, _COUNT, **how)
        sizes = [len(prompt) for prompt in prompts]
        texts = [[*prompt, *new] for prompt, new in zip(prompts, got, strict=True)]
        wrong, function = seen.wrong(texts, sizes, alike=alike)
        if not wrong:
            return None
        first = [each for each in wrong if each.text == wrong[0].text][:3]
        positions = listed(f"{one.position:,}" for one in first)
        places = listed(f"{one.place:,}" for one in first)
        told = f"{where}, positions {positions} instead of {places} are passed to {function}"
        if wrong[0].place >= sizes[wrong[0].text]:
            return "decode-positions", {"how": told}
        if name == _PADDED:
            return "padding-shifts", {"how": told}
    return None


def _scene(it: PromptSubject, name: str) -> tuple[str, Mapping[str, Any]]:
    where, how = _SCENES[name]
    return where, {"settings": {it.driver.chunked: 2}} if name == _CHUNKS else how


def _prompts_of(it: PromptSubject, name: str, found: Sequence[Continuation]) -> list[list[int]]:
    """The first prompt that was continued wrongly, or all that were given in one call."""
    if name in (_DECODING, _CHUNKS):
        return [it.prompts[next(one.text for one in found if one.parts is not None)]]
    return [it.prompts[one] for one in dict.fromkeys(one.text for one in found)]


def _of_attention(it: PromptSubject, name: str, found: Sequence[Continuation]) -> Told | None:
    """The first fault that queries, keys and scores show inside a program of PyTorch; None where they show none."""
    _, how = _scene(it, name)
    with suppress(Refused, Unasked, ImportError):
        told = faults_of_program(it.driver, _prompts_of(it, name, found), _COUNT, **how)
        return next((each[0] for each in told.values() if each), None)
    return None


def _inside(it: PromptSubject) -> tuple[int, list[tuple[int, Told]]]:
    """How many models made of PyTorch read the tokens in a program, and what is wrong in the calls of each.

    Tokens alone may hide it: weights may give positions little to say, and what a draft computes changes how many of
    its tokens are accepted, and not which ones follow.
    """
    with suppress(Refused, Unasked, ImportError):
        models, wrong = _inside_alone(it)
        name = it.driver.chunked
        ways: list[Mapping[str, Any]] = [{}, *([{"settings": {name: _CHUNK}}] if name else [])]
        for how in ways if it.driver.batches and not it.driver.unlike else ():
            wrong = wrong or _inside_batches(it, how)
        return models, wrong
    return 0, []


def _inside_alone(it: PromptSubject) -> tuple[int, list[tuple[int, Told]]]:
    """The same, of prompts one by one."""
    told: dict[int, list[Told]] = {}
    for number, prompt in enumerate(it.prompts[:4]):
        found = faults_of_program(it.driver, [prompt], _MEASURED)
        if number > 1 and len(found) < 2:
            break  # no draft, of which all tokens of a text may be accepted
        for model, faults in found.items():
            told.setdefault(model, []).extend(faults[:1])
    # One prompt alone may have a drafted token by chance where another one stands in its text.
    return len(told), [(model, faults[0]) for model, faults in told.items() if len(faults) > 1]


def _inside_batches(it: PromptSubject, how: Mapping[str, Any]) -> list[tuple[int, Told]]:
    """What is wrong in the calls of each model where prompts of several lengths are given together."""
    told: dict[int, list[Told]] = {}
    followed = 0  # batches: of a piece of pads alone it may not be known whose it is
    with suppress(Refused, Unasked):
        for first in range(5):
            found = faults_of_program(it.driver, it.prompts[first : first + 3], _MEASURED, **how)
            followed += bool(found)
            for model, faults in found.items():
                told.setdefault(model, []).extend(faults[:1])
            if followed == 2:
                break
    where = "with prompts of several lengths, "
    where += "".join(f"read with {name}={size}, " for name, size in how.get("settings", {}).items())
    sure = [(model, *faults[0]) for model, faults in told.items() if len(faults) > 1]
    return [(model, (code, {**said, "how": f"{where}{said['how']}"} if "how" in said else said))
            for model, code, said in sure]  # fmt: skip


def _of_pads(it: PromptSubject) -> tuple[str, dict[str, Any]] | None:
    """What pads do that are put in front of prompts here: whether they are read, or counted."""
    chosen = [*range(1, len(it.prompts))][::2]
    prompts = [it.prompts[one] for one in chosen]
    most = max(map(len, prompts))
    with suppress(Refused, Unasked):
        said = [it.driver.new_tokens(prompts, _COUNT, pad=pad) for pad in (0, 1, _RESERVED)]
        if it.driver.pads_itself:
            return None
        if any(one != said[0] for one in said):
            return "padding-seen", {"pads": f"up to {number_of(most - min(map(len, prompts)), 'pad')}"}
        return "padding-shifts", {"how": "a text continues otherwise after pads, whichever token they are"}
    return None
