"""The kinds of findings, each a row of a TOML file of this folder, and their cases, each described by its evidence."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from clockhands.auditing._edits import Edit
from clockhands.auditing.findings._finding import SEVERITIES, Finding
from clockhands.formats.files import file_and_key
from clockhands.phrases import filled, listed, spoken
from clockhands.recognition.diagnosis import hint_of
from clockhands.recognition.faults import Catalogue, rows_in

DEPENDS = "depends"
"""Stands in a row for a severity or a cause that its class computes from the case."""

_FAMILIES = (
    "values", "keys", "scalings", "releases", "layer_kinds", "table_rows", "stored", "lengths", "gguf", "files",
    "runtimes", "weights", "loaded",
)  # fmt: skip


_COMPARISONS = {"<": operator.lt, ">": operator.gt, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Rule:
    """One kind of finding.

    Attributes:
        code: Its name.
        family: The name of the file.
        title: What it is, in a few words.
        severity: One of `SEVERITIES`, or `DEPENDS`.
        means: Its effect on a model and how that shows, for `clockhands explain`.
        sentence: What is said of a case: a template, see `filled`. Empty if a class of `Case` makes it.
        hint: What to do. Empty if it depends on the case.
        blames: The cause: the ``file``; ``ambiguous`` if the file can be read in two ways; a ``reader`` (runtime) that
            misreads a correct file; or the loaded ``module``; or `DEPENDS`. Empty if nothing is wrong.
        unmended: Why no change of the file fixes it, or why not in every case.
        cases: Public cases: ``owner/repository#number``, with the month.
        news: Whether a note is worth reading; False if every correct model of the type has it.
        variants: What differs from case to case: a severity, a cause, a sentence, a hint, each ``when`` some values are
            equal to others, greater or less than an entry (``"> context"``), or are there (true) or missing, empty or 0
            (false).
        loaded: The code of the same finding on a loaded model, whose sentence and hint it has.
        doubt: What is not known of the model because of it, as a clause: then no verdict says that all is correct.
    """

    code: str
    family: str
    title: str
    severity: str
    means: str
    sentence: str = ""
    hint: str = ""
    blames: str = ""
    unmended: str = ""
    cases: tuple[str, ...] = ()
    news: bool = False
    loaded: str = ""
    doubt: str = ""
    variants: tuple[Mapping[str, Any], ...] = ()

    @property
    def gravest(self) -> int:
        """The index of its severity in `SEVERITIES`; if it depends on the case, that of an error."""
        return 0 if self.severity == DEPENDS else SEVERITIES.index(self.severity)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON values: null for what depends on the case."""
        return {
            "code": self.code,
            "severity": None if self.severity == DEPENDS else self.severity,
            "title": self.title,
            "means": self.means,
            "blames": self.blames if self.blames not in ("", DEPENDS) else None,
            "hint": self.hint or None,
            "cases": list(self.cases),
        }

    @property
    def advice(self) -> str:
        """What to do; general advice if that depends on the case."""
        return self.hint or case_of(self.code, {}).hint()

    @property
    def has_edit(self) -> bool:
        """Whether a change of the file may fix it."""
        return _class_of(self).edit is not Case.edit


class Case:
    """One case of a finding.

    What a row cannot say, a subclass computes from the evidence, whose entries are its attributes: "largest ratio" is
    ``largest_ratio``, and None if there is no such entry and the class has no default. Values from files are in
    `stated`, by their sources.

    Attributes:
        rule: Its kind.
        evidence: The numbers, in display order: keys are `"file:key"` for values in files, plain words for computed
            ones.
        layers: The layers that it concerns; None for the whole model.
    """

    classes: ClassVar[dict[str, type["Case"]]] = {}

    def __init_subclass__(cls, code: str | tuple[str, ...] = (), family: str = "") -> None:
        names = (code,) if isinstance(code, str) else (*code, *filter(None, [family]))
        Case.classes.update(dict.fromkeys(names, cls))

    def __init__(self, rule: Rule, evidence: Mapping[str, Any], layers: str | None = None) -> None:
        self._named: dict[str, Any] = {name.lower().replace(" ", "_"): value for name, value in evidence.items()}
        vars(self).update(self._named)
        self.rule: Rule = rule
        self.evidence: Mapping[str, Any] = evidence
        self.layers: str | None = layers

    def __getattr__(self, name: str) -> Any:
        """None for an entry that this case does not have."""
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    @property
    def code(self) -> str:
        """The name of its kind."""
        return self.rule.code

    def severity(self) -> str:
        """One of `SEVERITIES`."""
        return self.text("severity")

    def message(self) -> str:
        """One or two full sentences with the numbers."""
        return filled(self.text("sentence"), self)

    def hint(self) -> str:
        """What to do."""
        return filled(self.text("hint"), self)

    def blames(self) -> str | None:
        """The cause; None if nothing is wrong."""
        return self.text("blames") or None

    def edit(self) -> Edit | None:
        """The smallest change of the file that fixes it; None if no change does."""
        return None

    def doubt(self) -> str:
        """What is not known of the model because of it, as a clause."""
        return filled(self.text("doubt"), self)

    def finding(self) -> Finding:
        """The `Finding` for this case."""
        said = self.severity(), self.message(), self.hint()
        return Finding(self.code, *said, self.evidence, self.layers, self.blames(), self.edit())

    def __contains__(self, name: str) -> bool:
        """Whether a name in a template stands for something."""
        return name in vars(self) or hasattr(type(self), name)

    def __getitem__(self, name: str) -> Any:
        """What a name in a template stands for: an entry of the evidence, or what the case makes of it."""
        if name in self._named:
            return self._named[name]
        if name not in self:
            raise KeyError(f"{self.code} has no {name}")
        held = getattr(self, name)
        return held() if callable(held) else held

    def text(self, field: str) -> str:
        """What the row says of this case: by the first variant that holds and has the field, else by the row itself."""
        variants = (each for each in self.rule.variants if field in each and self._holds(each.get("when", {})))
        return next(variants, vars(self.rule))[field]

    def _holds(self, when: Mapping[str, Any]) -> bool:
        for name, wanted in when.items():
            value = self[name] if name in self else None  # noqa: SIM401 - a case is no dict
            comparison, _, other = str(wanted).partition(" ")
            if comparison in _COMPARISONS:
                if value is None or not _COMPARISONS[comparison](value, self[other]):
                    return False
            elif (bool(value) if isinstance(wanted, bool) else value) != wanted:
                return False
        return True

    @property
    def stated(self) -> list[tuple[str, Any]]:
        """The entries with values from a file: their names are `file:key`."""
        return [(name, value) for name, value in self.evidence.items() if ":" in name]

    @property
    def place(self) -> str | None:
        """The first source."""
        return next((name for name, _ in self.stated), None)

    def key(self) -> str:
        """The key of the first source."""
        return file_and_key(self.place or "")[1]

    def written(self) -> Any:
        """The value of the first source."""
        return next((value for _, value in self.stated), None)

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

        >>> case_of("unreadable-field", {"config.json:rope_theta": 10000.0, "used": 1}).said()
        'rope_theta is 10,000'
        """
        return listed([f"{name} is {spoken(value)}" for name, value in self.named], joint) or "the file does not say"

    def opposed(self) -> str:
        """What the file says, where its values contradict each other."""
        return self.said("but")


def _in_a_checkpoint(loaded: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a finding on a checkpoint, made from that on a loaded model: same cause, same sentence and hint."""
    title = loaded["title"].replace("frequency buffer", "frequency tensor in the checkpoint")
    means = f"{loaded['means']} {stored['means']}"
    return {
        **loaded,
        "title": title,
        "severity": "warning",
        "blames": "file",
        "means": means,
        "unmended": stored["unmended"],
    }


def _rules() -> dict[str, Rule]:
    """Every rule, the grave ones first."""
    rows: dict[str, dict[str, Any]] = {}
    for family in _FAMILIES:
        for code, row in rows_in(__file__, family).items():
            rows[code] = row | {"family": family}
            if family == "loaded" and "hint" not in row:
                rows[code]["hint"] = hint_of(code)  # that of the fault which `clockhands check` finds in a module
    stored = rows["stored-frequencies-differ"]
    for code, row in rows.items():
        if "loaded" in row:
            rows[code] = {**_in_a_checkpoint(rows[row["loaded"]], stored), **row}
    made = [Rule(code, **row) for code, row in rows.items()]
    return {rule.code: rule for rule in sorted(made, key=lambda rule: rule.gravest)}


CODES: Mapping[str, Rule] = Catalogue(_rules)
"""Every code that a finding can have, the grave ones first."""


def _class_of(rule: Rule) -> type[Case]:
    """The class of its code, else that of the same finding on a loaded model, else that of its family."""
    own = Case.classes.get(rule.code) or (_class_of(CODES[rule.loaded]) if rule.loaded else None)
    return own or Case.classes.get(rule.family, Case)


def case_of(code: str, evidence: Mapping[str, Any], layers: str | None = None) -> Case:
    """A case of a finding.

    Args:
        code: A name of `CODES`.
        evidence: The values in files and what was computed from them.
        layers: The layers that it concerns.
    """
    return _class_of(CODES[code])(CODES[code], evidence, layers)
