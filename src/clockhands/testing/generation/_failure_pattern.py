"""Failures of a model that no known fault explains, in words: which passes and which calls with a cache are wrong."""

from collections.abc import Iterator, Sequence

from clockhands.phrases import listed
from clockhands.testing._experiments import Answer
from clockhands.testing.generation._long_texts import LONG
from clockhands.testing.generation._predictions import RecordedRun

_LONGER = "a longer text"
_DEPENDS = {
    _LONGER: "the number of its tokens",
    "with other texts": "the other texts of the batch",
    "left padding": "padding on the left",
    "right padding": "padding on the right",
    "packing": "the other documents of its row",
    "repeated call": "earlier calls",
}
"""What one pass over a text depends on if an experiment fails."""

_IN_PIECES = ("chunks", "one token at a time", "chunks after single tokens")


def failure_pattern(asked: Sequence[RecordedRun]) -> str:
    """Sentences on single passes, and on later calls of one token and of several; empty where neither was asked."""
    runs = {one.experiment.name: one for one in asked}
    of_length = _of_length([one for one in asked if one.wrong])
    return " ".join(
        [*_of_passes(runs), *_of_later_calls([runs[name] for name in _IN_PIECES if name in runs]), *of_length]
    )


def _of_length(wrong: Sequence[RecordedRun]) -> Iterator[str]:
    """Where a text becomes wrong that alone is longer than the others."""
    if [one.experiment.name for one in wrong] == [LONG]:
        places = [one.positions[one.wrong.any(axis=-1)] for one in wrong[0].answers if one.positions is not None]
        first = min(int(each.min()) for each in places if each.size)
        yield f"Shorter texts are right: the first wrong position is {first}."


def _of_passes(runs: dict[str, RecordedRun]) -> Iterator[str]:
    wrong = [name for name in _DEPENDS if name in runs and runs[name].wrong]
    if wrong == [_LONGER] and all(len(one.got) == 1 for one in runs[_LONGER].answers if one.wrong.any()):
        yield "One pass over a single token is unlike that of longer texts, whose passes agree."
    elif wrong:
        yield f"The result of one pass over a text depends on {listed([_DEPENDS[name] for name in wrong])}."
    elif _LONGER in runs:
        yield "Single passes over a text agree with each other."


def _of_later_calls(runs: Sequence[RecordedRun]) -> Iterator[str]:
    calls = [call for run in runs for call in _telling_calls(run)]
    said = []
    for what, several in (("one token", False), ("several tokens", True)):
        wrong = [is_wrong for size, is_wrong in calls if (size > 1) is several]
        if wrong:
            how = "wrong" if all(wrong) else "wrong in part" if any(wrong) else "right"
            said.append(f"calls of {what} after a cache are {how}")
    if said:
        yield f"{', '.join(said).capitalize()}."


def _telling_calls(run: RecordedRun) -> Iterator[tuple[int, bool]]:
    """The tokens of each call with a cache, and whether it is wrong, up to the first wrong one of each text.

    What comes later may be wrong by the keys that this one left in the cache.
    """
    sizes = iter([one.shape[1] for one in run.heard])
    for answer in run.answers:
        told = False
        for start, size in _calls_of(answer, sizes):
            wrong = bool(answer.wrong[start : start + size].any())
            if not told:
                yield size, wrong
            told = told or wrong


def _calls_of(answer: Answer, sizes: Iterator[int]) -> list[tuple[int, int]]:
    """Where the later calls of a text begin in its answer, and their sizes."""
    assert answer.positions is not None
    first, last = int(answer.positions[0]), int(answer.positions[-1])
    at, found = next(sizes), []
    while at <= last:
        size = next(sizes)
        found.append((at - first, size))
        at += size
    return found
