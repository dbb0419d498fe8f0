"""Known mistakes in implementations of encodings: each with a code, an explanation and a fix.

A fault is a row of a TOML file: what it behaves like, what to do, and public reports of it. For most faults there are
suspects (`clockhands.recognition.suspects`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from clockhands.packaged import packaged
from clockhands.phrases import listed

T = TypeVar("T")
_FIELD = r"\{\w+(?::[^}]*)?\}"
# What a measured value says in addition: after a colon, in parentheses, as an ending, of which layers.
_DETAIL = re.compile(rf"(?:: |; expected:? ){_FIELD}$| \({_FIELD}\)|(?<=\w){_FIELD}| in layers {_FIELD}")


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
        general: The behaviour without measured values, where leaving these out of the sentence does not give it.
        cases: Public reports: repository and thread.
        shown_by: The name of the smallest experiment that distinguishes it from a correct implementation.
    """

    code: str
    kind: Literal["spec", "code"]
    about: tuple[str, ...]
    sentence: str
    hint: str
    general: str = ""
    cases: tuple[str, ...] = ()
    shown_by: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fault as JSON values."""
        return {
            "code": self.code,
            "kind": self.kind,
            "about": list(self.about),
            "behaves": fault_in_words(self),
            "hint": self.hint,
            "shown_by": self.shown_by or None,
            "cases": list(self.cases),
        }


def subject_of(fault: Fault) -> str:
    """What has the fault."""
    return {"module": "The module", "attention": "The module", "generation": "The model"}.get(
        fault.about[0], "The function"
    )


def fault_in_words(fault: Fault) -> str:
    """The symptom of a fault, after "The function", as far as it is known before anything is measured.

    >>> fault_in_words(FAULTS["another-base"])
    'computes its frequencies from another base than the expected one'
    >>> fault_in_words(FAULTS["changes-its-arguments"])  # its sentence ends with ": {names}"
    'changes the arrays that are passed in'
    """
    words, before = fault.general or fault.sentence, None
    while words != before:
        before, words = words, _DETAIL.sub("", words)
    return words


def fault_of(fault: Fault) -> str:
    """The kinds of code that can have it, as text."""
    names = {
        "rotary": "RoPE",
        "additive": "additive encodings",
        "bias": "biases",
        "module": "modules",
        "attention": "attention layers",
        "generation": "generation with a cache",
        "positions": "positions of tokens",
    }
    return listed(names.get(kind, kind) for kind in fault.about)


def rows_in(module: str, name: str) -> dict[str, dict[str, Any]]:
    """The rows of the file ``NAME.toml`` beside the file of a module, by code, in the order of the file.

    ``[usual]`` holds what a row leaves out. Texts are stored in lines that fit a page, and lists become tuples.
    """
    rows = dict(packaged(module, f"{name}.toml"))
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
    rows = rows_in(__file__, name)
    for row in rows.values():
        # One hint for each remedy: a row may name the row that has it.
        if "hint_of" in row:
            row["hint"] = rows[row.pop("hint_of")]["hint"]
    return {code: Fault(code, **row) for code, row in rows.items()}


class Catalogue(Mapping[str, T]):
    """Rows of TOML files by their codes, read when the first one is needed: most runs need none."""

    def __init__(self, read: Callable[[], Mapping[str, T]]) -> None:
        self._read: Callable[[], Mapping[str, T]] = read

    @cached_property
    def _rows(self) -> Mapping[str, T]:
        return self._read()

    def __getitem__(self, code: str) -> T:
        """The row of a code."""
        return self._rows[code]

    def __iter__(self) -> Iterator[str]:
        """The codes, in the order of the files."""
        return iter(self._rows)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._rows)


ROTARY: Mapping[str, Fault] = Catalogue(lambda: faults_in("rotary"))
"""The faults of rotary codes, by code, with the sentences and cases for rotary codes."""
ADDITIVE: Mapping[str, Fault] = Catalogue(lambda: faults_in("additive"))
"""The faults of additive codes."""
BIAS: Mapping[str, Fault] = Catalogue(lambda: faults_in("bias"))
"""The faults of biases."""
MODULE: Mapping[str, Fault] = Catalogue(lambda: faults_in("module"))
"""The faults of modules. They have no suspects: a treatment of the module shows each, and its tensors identify it."""
ATTENTION: Mapping[str, Fault] = Catalogue(lambda: faults_in("attention"))
"""The faults of attention layers: what each gives is measured on the running module beside a config."""
GENERATION: Mapping[str, Fault] = Catalogue(lambda: faults_in("generation"))
"""The faults of models with a cache: a single pass with other positions or other visible keys gives the same output."""

SHARDING: Mapping[str, Fault] = Catalogue(lambda: faults_in("sharding"))
"""The faults of a rank's part of a sequence, or of its heads."""

POSITIONS: Mapping[str, Fault] = Catalogue(lambda: faults_in("positions"))
"""The faults of functions that number tokens: `clockhands.recognition.token_positions` has a suspect for each."""


def _joined(kinds: Iterable[Mapping[str, Fault]]) -> dict[str, Fault]:
    """Each code once: a fault of several kinds has the sentence of the first kind and the cases of all."""
    found: dict[str, Fault] = {}
    for fault in (fault for kind in kinds for fault in kind.values()):
        first = found.setdefault(fault.code, fault)
        if first is not fault:
            about, cases = (*first.about, *fault.about), (*first.cases, *fault.cases)
            found[fault.code] = replace(first, about=tuple(dict.fromkeys(about)), cases=tuple(dict.fromkeys(cases)))
    return found


FAULTS: Mapping[str, Fault] = Catalogue(
    lambda: _joined((ROTARY, ADDITIVE, BIAS, SHARDING, MODULE, ATTENTION, GENERATION, POSITIONS))
)
"""Every fault by its code."""
