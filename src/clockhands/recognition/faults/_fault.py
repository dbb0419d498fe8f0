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


def rows_in(package: str, name: str) -> dict[str, dict[str, Any]]:
    """The rows of the file ``NAME.toml`` of a package, by code, in the order of the file.

    ``[usual]`` holds what a row leaves out. Texts are stored in lines that fit a page, and lists become tuples.
    """
    text = resources.files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    usual = rows.pop("usual", {})
    return {code: {key: _settled(value) for key, value in {**usual, **row}.items()} for code, row in rows.items()}


def _settled(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _settled(held) for key, held in value.items()}
    return tuple(map(_settled, value)) if isinstance(value, list) else value


def faults_in(name: str) -> dict[str, Fault]:
    """The faults in the file ``NAME.toml`` of this folder, by code."""
    rows = rows_in("clockhands.recognition.faults", name)
    for row in rows.values():
        # One hint for each remedy: a row may name the row that has it.
        if "hint_of" in row:
            row["hint"] = rows[row.pop("hint_of")]["hint"]
    return {code: Fault(code, **row) for code, row in rows.items()}


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
