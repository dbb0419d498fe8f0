"""The base class of findings: a kind of finding is a subclass; an instance is one case, described by its evidence."""

import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any, ClassVar

from clockhands.auditing._edits import Edit
from clockhands.auditing.findings._finding import SEVERITIES, Finding, spoken
from clockhands.formats.files import file_and_key
from clockhands.runtimes.telling import listed

EXPECTED = "Expected for this model; no action needed."


class Kind:
    """One kind of finding; an instance is one case of it.

    A subclass declares what it takes from the evidence as typed fields: ``largest_ratio: float`` is the entry "largest
    ratio". A field without a default is required. Values from files are in `stated`, by their sources.

    Attributes:
        evidence: The numbers, in display order: keys are `"file:key"` for values in files, plain words for computed
            ones.
        layers: The layers that it concerns; None for the whole model.
        code: The name of the kind.
        title: What it is, in a few words.
        severity: One of `SEVERITIES`, or a method where it depends on the case.
        hint: What to do, or a method.
        blames: The cause: the ``file``; ``ambiguous`` if the file can be read in two ways; a ``reader`` (runtime) that
            misreads a correct file; or the loaded ``module``. None if nothing is wrong.
        edit: A method that returns the smallest change of the file that fixes it; None if no change does.
        means: Its effect on a model and how that shows, for `clockhands explain`.
        unmended: Why no change of the file fixes it, or why not in every case.
        cases: Public cases: ``owner/repository#number``, with the month.
        news: Whether a note is worth reading; False if every correct model of the type has it.
    """

    kinds: ClassVar[dict[str, type["Kind"]]] = {}
    fields: ClassVar[frozenset[str]] = frozenset()

    code: str
    title: str
    severity: str | Callable[..., str]
    hint: str | Callable[..., str]
    blames: str | Callable[..., str | None] | None = None
    edit: Callable[..., Edit | None] | None = None
    means: str = ""
    unmended: str = ""
    cases: tuple[str, ...] = ()
    news: bool = False

    def __init_subclass__(cls, code: str = "") -> None:
        cls.fields = cls.fields | (inspect.get_annotations(cls).keys() - inspect.get_annotations(Kind).keys())
        if code:
            cls.code = code
            Kind.kinds[code] = cls
            for name, value in explanations().get(code, {}).items():
                setattr(cls, name, tuple(value) if isinstance(value, list) else value)

    def __init__(self, evidence: Mapping[str, Any], layers: str | None = None) -> None:
        self.evidence: Mapping[str, Any] = evidence
        self.layers: str | None = layers
        named = {name.lower().replace(" ", "_"): value for name, value in evidence.items()}
        vars(self).update({name: value for name, value in named.items() if name in self.fields})

    def message(self) -> str:
        """One or two full sentences with the numbers."""
        raise NotImplementedError

    def doubt(self) -> str | None:
        """What is not known of the model because of it, as a clause: then no verdict says that all is correct."""
        return None

    @classmethod
    def advice(cls) -> str:
        """General advice, if the hint depends on the case."""
        return cls.hint if isinstance(cls.hint, str) else cls({}).hint()  # pyright: ignore[reportCallIssue]

    @classmethod
    def gravest(cls) -> int:
        """The index of its severity in `SEVERITIES`; if it depends on the case, that of an error."""
        return SEVERITIES.index(cls.severity) if isinstance(cls.severity, str) else 0

    def finding(self) -> Finding:
        """The `Finding` for this case."""
        return Finding(
            self.code,
            self.severity if isinstance(self.severity, str) else self.severity(),
            self.message(),
            self.hint if isinstance(self.hint, str) else self.hint(),
            self.evidence,
            self.layers,
            self.blames() if callable(self.blames) else self.blames,
            None if self.edit is None else self.edit(),
        )

    @property
    def stated(self) -> list[tuple[str, Any]]:
        """The entries with values from a file: their names are `file:key`."""
        return [(name, value) for name, value in self.evidence.items() if ":" in name]

    @property
    def place(self) -> str | None:
        """The first source."""
        return next((name for name, _ in self.stated), None)

    @property
    def named(self) -> list[tuple[str, Any]]:
        """The values from files under their bare keys; with the file's name if there are several files."""
        files = {file_and_key(name)[0] for name, _ in self.stated}
        # A quantity computed from several keys names the file before each: `file:hidden_size /
        # file:num_attention_heads`.
        bare = "" if len(files) != 1 else f"{min(files)}:"
        return [(name.replace(bare, "") if bare else name, value) for name, value in self.stated]

    def said(self, joint: str = "and") -> str:
        """What the file says, as text.

        >>> Kind({"config.json:rope_theta": 10000.0, "used": 1}).said()
        'rope_theta is 10,000'
        """
        return listed([f"{name} is {spoken(value)}" for name, value in self.named], joint) or "the file does not say"


def nearest(name: str, known: str) -> str | None:
    """Of several names, separated by commas, the one spelt most like a name, if one is similar."""
    return next(iter(difflib.get_close_matches(name, known.split(", "), n=1, cutoff=0.7)), None)


@cache
def explanations() -> Mapping[str, Mapping[str, Any]]:
    """For each code, its explanation: general texts, stored in lines that fit a page."""
    text = resources.files("clockhands.auditing.findings").joinpath("explanations.toml").read_text(encoding="utf-8")
    return {
        code: {name: " ".join(held.split()) if isinstance(held, str) else held for name, held in told.items()}
        for code, told in tomllib.loads(text).items()
    }
