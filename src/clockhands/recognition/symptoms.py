"""What people see when positions are wrong, what it often is, and the commands that tell; and search by words."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Symptom:
    """Something that is seen where positions are wrong.

    Attributes:
        sees: What is seen, as a clause.
        also: Other words that people use for it.
        often: Its usual causes, as a clause.
        codes: Findings of the audit and faults of the checks that public reports of it had.
        commands: What to run; words in capitals are the user's own.
        reported: Public reports: repository and thread.
    """

    sees: str
    also: str
    often: str
    codes: tuple[str, ...]
    commands: tuple[str, ...]
    reported: tuple[str, ...]

    @property
    def searched(self) -> str:
        """The text in which words are looked for: not the causes, which are what the reader does not know."""
        return " ".join((self.sees, self.also, *self.codes))

    def to_dict(self) -> dict[str, Any]:
        """The symptom as JSON values."""
        return asdict(self)


def _read() -> tuple[Symptom, ...]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["symptoms"]
    lists = ("codes", "commands", "reported")
    return tuple(Symptom(**row | {name: tuple(row[name]) for name in lists}) for row in rows)


SYMPTOMS = _read()
# Words that say nothing of what is wrong.
_COMMON = frozenset(
    """
    a after all an and any are as at but by does for from gets give gives has have i in into is it its lot model more my
    no not of on only or other our so than that the then there they this to too very was we when where which while with
    wrong
    """.split()  # noqa: SIM905 - a list of 60 words is read as a text
)


def found_by(words: Iterable[str], texts: Mapping[T, str]) -> list[T]:
    """The keys of the texts that have the words best, the best first; words count without their usual endings.

    A word weighs less the more texts have it, so that a rare word decides. A text with at most half the weight of the
    best one is left out.

    >>> texts = {"padding": "fine at batch 1, wrong with padding", "length": "gibberish past some thousands of tokens"}
    >>> found_by(["gibberish past 4k"], texts), found_by(["batches"], texts), found_by(["the"], texts)
    (['length'], ['padding'], [])
    """
    asked = {_stem(word) for word in _words(" ".join(words))} - _COMMON
    held = {name: {_stem(word) for word in _words(text)} for name, text in texts.items()}
    common = {word: sum(word in each for each in held.values()) for word in asked}
    scores = {name: sum(1 / common[word] for word in asked & each) for name, each in held.items()}
    most = max(scores.values(), default=0.0)
    return sorted((name for name in scores if scores[name] > most / 2), key=lambda name: -scores[name]) if most else []


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9][a-z0-9.+_]*", text.lower())


def _stem(word: str) -> str:
    """A word without the usual endings of English, so that "batches" and "batched" are "batch"."""
    if word in _COMMON:
        return word
    for ending in ("ings", "ing", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
