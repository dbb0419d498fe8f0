"""What a fault is: a way to get a position code wrong, and what it looks like from outside."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True)
class Fault:
    """A way to get it wrong.

    Attributes:
        code: What it is called by.
        kind: ``"spec"`` where the code is another one, which a file can show; ``"code"`` where the code is the right
            one and its application is wrong.
        about: The kinds of codes and subjects that can have it.
        sentence: What it behaves like, after "The function"; a template over the fault's parameters.
        hint: What to do about it.
        cases: Where it was met in public: repository and thread.
        shown_by: The name of the smallest experiment that separates it from being right.
    """

    code: str
    kind: Literal["spec", "code"]
    about: tuple[str, ...]
    sentence: str
    hint: str
    cases: tuple[str, ...] = ()
    shown_by: str = ""


def faults_in(name: str) -> dict[str, Fault]:
    """The faults in the file ``NAME.toml`` beside this one, by their codes, in the order of the file."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(
        resources.files("clockhands.faults").joinpath(f"{name}.toml").read_text(encoding="utf-8")
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
    """One fault with its parameters, as something that can be asked like the real thing.

    Attributes:
        codes: The fault's, or those of several that it has at once; the first one's sentence is told.
        parameters: What the sentence names.
        make: A fresh process: it gives what makes a wrong implementation of a spec, as often as a model is built.
        parts: From a spec to the spec that is applied in its place, and the stages that are of another kind; None where
            the fault is nothing of that sort, and is not tried together with another one.
        beside: A second fault that it has as well, of its own parameters; its codes are among the codes.
    """

    codes: tuple[str, ...]
    parameters: Mapping[str, Any]
    make: Callable[[], Any]
    parts: Parts | None = None
    beside: "Suspect | None" = None

    @property
    def each(self) -> tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]:
        """The faults that it has at once, the codes and the parameters of each."""
        if self.beside is None:
            return ((self.codes, self.parameters),)
        own = self.codes[: len(self.codes) - len(self.beside.codes)]
        return ((own, self.parameters), *self.beside.each)
