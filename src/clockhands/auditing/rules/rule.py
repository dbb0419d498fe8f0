"""What a rule is: how one kind of finding is judged, told, explained and mended; and the words that rules share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing.edits import Edit
from clockhands.auditing.findings import Finding, spoken
from clockhands.readers.telling import listed

Evidence = Mapping[str, Any]

IF_SOUND = "Nothing to mend: sound models have this too."


@dataclass(frozen=True)
class Rule:
    """How one kind of finding is judged and told.

    Attributes:
        severity: One of the severities, or a function of the evidence where it depends on the case.
        sentence: From the evidence to the message.
        hint: What to do, or a function of the evidence.
        blames: Who is wrong: the ``file``; nobody for certain, because the file can be read in two ways
            (``ambiguous``); a ``reader`` that misreads a file that is right; or the loaded ``module``. None where
            nothing is wrong.
        edit: From the evidence to the smallest change of the file that mends it; None where no change of it does.
        unmended: Why no change of the file mends it, or why not in every case.
        title: What it is, in a few words.
        means: What it does to a model and how it shows, in a few sentences, for `clockhands explain`.
        cases: Public cases: ``owner/repository#number``, with the month.
    """

    severity: str | Callable[[Evidence], str]
    sentence: Callable[[Evidence], str]
    hint: str | Callable[[Evidence], str]
    blames: str | Callable[[Evidence], str | None] | None = None
    edit: Callable[[Evidence], Edit | None] | None = None
    unmended: str = ""
    title: str = ""
    means: str = ""
    cases: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What to do in general, where the hint of a finding depends on its case."""
        return self.hint if isinstance(self.hint, str) else self.hint({})

    def finding(self, code: str, evidence: Evidence, layers: str | None) -> Finding:
        """The finding that this rule makes of one case."""
        return Finding(
            code,
            self.severity if isinstance(self.severity, str) else self.severity(evidence),
            self.sentence(evidence),
            self.hint if isinstance(self.hint, str) else self.hint(evidence),
            evidence,
            layers,
            self.blames(evidence) if callable(self.blames) else self.blames,
            self.edit(evidence) if self.edit else None,
        )


def stated(evidence: Evidence) -> list[tuple[str, Any]]:
    """The entries that stand in a file: their names are `file:key`."""
    return [(name, value) for name, value in evidence.items() if ":" in name]


def said(evidence: Evidence, joint: str = "and") -> str:
    """What the file says, in words.

    >>> said({"config.json:rope_theta": 10000.0, "used": 1})
    'rope_theta is 10,000'
    """
    return listed([f"{name} is {spoken(value)}" for name, value in named(evidence)], joint) or "the file does not say"


def named(evidence: Evidence) -> list[tuple[str, Any]]:
    """What stands in the file under its bare keys; with the file's name where there are several files."""
    entries = stated(evidence)
    files = {name.partition(":")[0] for name, _ in entries}
    # A quantity of several keys names the file before each: `file:hidden_size / file:num_attention_heads`.
    return [(name if len(files) > 1 else name.replace(f"{min(files)}:", ""), value) for name, value in entries]
