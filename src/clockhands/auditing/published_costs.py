"""Published results on serving a model at longer lengths than it was trained for, each figure with its source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LABELS: Mapping[str, str] = {
    "read": "read in the source",
    "transcribed": "from a transcription of the paper's tables, not checked against the paper",
    "computed": "follows from its formula",
    "none": "no figure was found",
}


@dataclass(frozen=True)
class Cost:
    """One published result on a scaling.

    Attributes:
        says: The result, with the model and the data of the measurement.
        source: Where it was published; empty if it follows from the formula, or nothing was found.
        label: How it is known: a key of `LABELS`.
    """

    says: str
    source: str
    label: str

    def to_dict(self) -> dict[str, str]:
        """The result as JSON values."""
        return {"says": self.says, "source": self.source, "known": LABELS[self.label]}


_DATA = json.loads(Path(__file__).with_name("published_costs.json").read_text(encoding="utf-8"))

OF_SCALINGS: Mapping[str, tuple[Cost, ...]] = {
    name: tuple(Cost(**row) for row in rows) for name, rows in _DATA["scalings"].items()
}
"""Scaling to what is known of it."""

OF_KINDS: Mapping[str, tuple[Cost, ...]] = {
    name: tuple(Cost(**row) for row in rows) for name, rows in _DATA["kinds"].items()
}
"""Kind of position code to what is known of it past the trained length."""
