"""`Fault`, a known mistake in an implementation of a position code, and `Suspect`, an implementation that has it."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True)
class Fault:
    """A known mistake.

    Attributes:
        code: Its identifier.
        kind: ``"spec"`` if the position settings are wrong, which a file can show; ``"code"`` if the settings are
            right and the implementation is wrong.
        about: The kinds of codes and subjects that can have it.
        sentence: The behaviour, after "The function"; a template with the fault's parameters.
        hint: What to do about it.
        cases: Public reports: repository and thread.
        shown_by: The name of the smallest experiment that distinguishes it from a correct implementation.
    """

    code: str
    kind: Literal["spec", "code"]
    about: tuple[str, ...]
    sentence: str
    hint: str
    cases: tuple[str, ...] = ()
    shown_by: str = ""


def faults_in(name: str) -> dict[str, Fault]:
    """The faults in the file ``NAME.toml`` of this folder, by code, in the order of the file."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(
        resources.files("clockhands.recognition.faults").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    )
    usual = rows.pop("usual")
    found = {}
    for code, written in rows.items():
        row = {**usual, **written}
        # One hint for each remedy: a row may name the row that has it.
        hint = rows[row.pop("hint_of")]["hint"] if "hint_of" in row else row["hint"]
        texts = {name: " ".join(text.split()) for name, text in (("sentence", row["sentence"]), ("hint", hint))}
        lists = {name: tuple(row.pop(name, ())) for name in ("about", "cases")}
        found[code] = Fault(code, **{**row, **texts, **lists})
    return found


Parts = Callable[[Any], tuple[Any, Mapping[str, Any]]]


@dataclass(frozen=True)
class Suspect:
    """A runnable implementation with one fault (or two) and its parameters.

    Attributes:
        codes: The code of the fault, or of several at once; the sentence of the first one is used.
        parameters: The parameters in the sentence.
        make: Simulates a new process: it returns a function that builds a faulty implementation for a spec.
        parts: Maps a spec to the spec applied in its place and the replaced stages; None if the fault cannot be
            described like this, and is not combined with another one.
        beside: A second fault with separate parameters; its codes are among the codes.
    """

    codes: tuple[str, ...]
    parameters: Mapping[str, Any]
    make: Callable[[], Any]
    parts: Parts | None = None
    beside: "Suspect | None" = None

    @property
    def each(self) -> tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]:
        """The codes and parameters of each of its faults."""
        if self.beside is None:
            return ((self.codes, self.parameters),)
        own = self.codes[: len(self.codes) - len(self.beside.codes)]
        return ((own, self.parameters), *self.beside.each)
