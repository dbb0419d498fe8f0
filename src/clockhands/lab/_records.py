"""The records in a store of results: studies, trials, and measurements."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

KEPT_MODEL = "kept model"
"""The variant of the rows that a probe of kept models adds to a curve."""

# Any tuple of these three is taken as a key.
AnyKey: TypeAlias = tuple[str, str, int]


class Key(NamedTuple):
    """Which trial of a study: a task, an arm and a seed."""

    task: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task}, {self.arm}, seed {self.seed}"


class Measurement(NamedTuple):
    """One number that a trial measured.

    Attributes:
        kind: ``training`` (the mean over the steps since the last such row), ``curve`` (held-out data while training)
            or ``evaluation`` (held-out data at the end).
        measure: What was measured: ``loss``, ``accuracy``, ``gradient_norm``, ...
        value: The number. NaN and infinities are kept; SQLite drops the sign of a zero.
        step: After how many training steps.
        length: The sequence length, in tokens.
        place: A position bucket or a depth; ``None`` for an average over all.
        protocol: How the text was cut: ``whole``, ``sliding``, or ``''``.
        variant: The change at test time; ``''`` is as trained. In a curve, ``before drop``, ``dropped`` or
            ``kept model``.
    """

    kind: str
    measure: str
    value: float
    step: int
    length: int
    place: int | None = None
    protocol: str = ""
    variant: str = ""


class StoredRow(NamedTuple):
    """One measurement of one trial, as it is stored and exported."""

    study: str
    task: str
    arm: str
    seed: int
    kind: str
    variant: str
    step: int
    protocol: str
    length: int
    place: int | None
    measure: str
    value: float

    @property
    def key(self) -> Key:
        """The trial that measured it."""
        return Key(self.task, self.arm, self.seed)

    @property
    def measurement(self) -> Measurement:
        """What was measured, without the trial."""
        return Measurement(**{name: getattr(self, name) for name in Measurement._fields})


class StoredStudy(NamedTuple):
    """One study: its file, and where and with what it was first run.

    Attributes:
        machine: The machine, threads, device, texts and checkpoints of the first run.
        bounds: Derived bounds of the scores, by task and by length (as text); empty in older stores.
    """

    hash: str
    name: str
    text: str
    created: str
    command: str
    version: str
    commit_id: str
    versions: dict[str, Any]
    machine: dict[str, Any]
    bounds: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType({})


class Trial(NamedTuple):
    """One trial and its state: ``waiting``, ``finished`` or ``failed``."""

    task: str
    arm: str
    seed: int
    state: str
    message: str
    seconds: float | None
    facts: dict[str, Any]
    finished_at: str | None

    @property
    def key(self) -> Key:
        """Which trial it is."""
        return Key(self.task, self.arm, self.seed)
