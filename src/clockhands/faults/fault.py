"""What a fault is: a way to get a position code wrong, and what it looks like from outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Fault:
    """A way to get it wrong.

    Attributes:
        code: What it is called by.
        kind: ``"spec"`` where the code is another one, which a file can show; ``"code"`` where the code is the right
            one and its application is wrong.
        about: The kinds of codes and subjects that can have it.
        sentence: What it behaves like, after "It"; a template over the fault's parameters.
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


def row_maker(kind: Literal["spec", "code"], about: str, shown_by: str = "") -> Callable[..., Fault]:
    """What makes rows of one kind about one subject: ``row(code, sentence, hint, *cases, shown_by=...)``.

    Args:
        kind: See `Fault`.
        about: The one subject.
        shown_by: The experiment that shows a row unless it names another.
    """
    usual = shown_by

    def row(code: str, sentence: str, hint: str, *cases: str, shown_by: str = usual) -> Fault:
        return Fault(code, kind, (about,), sentence, hint, cases, shown_by)

    return row


@dataclass(frozen=True)
class Suspect:
    """One fault with its parameters, as something that can be asked like the real thing.

    Attributes:
        codes: The fault's, or those of several that it has at once; the first one's sentence is told.
        parameters: What the sentence names.
        make: A fresh process: it gives what makes a wrong implementation of a spec, as often as a model is built.
    """

    codes: tuple[str, ...]
    parameters: Mapping[str, Any]
    make: Callable[[], Any]
