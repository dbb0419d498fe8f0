"""A single finding: what is wrong or worth knowing, the numbers that show it, and what to do about it."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clockhands.auditing._edits import Edit
from clockhands.configs.overriding import CALLER
from clockhands.encodings.specs import WRITTEN, to_dict
from clockhands.phrases import spoken

SEVERITIES = ("error", "warning", "note")
"""From grave to harmless: wrong for any reader; wrong for some reader or length; worth knowing of a sound model."""

BLAMED = {
    "file": "",
    "reader": "The config is correct, but some runtimes misread it.",
    "ambiguous": "The file can be read in two ways.",
    "module": "The loaded module is wrong.",
}
"""What is said of the cause of a problem, after its message."""


@dataclass(frozen=True)
class Finding:
    """Something noticed about a model's position codes.

    Attributes:
        code: The kind of finding: a key of `CODES`, and the word that `--ignore` takes.
        severity: One of `SEVERITIES`.
        message: One or two full sentences with the numbers.
        evidence: The numbers: the keys are `"file:key"` for values in a file, plain words for computed values.
        hint: What to do.
        layers: The layers that it concerns, as in a position code; None for the whole model.
        blames: The cause: ``file``, ``reader`` (a runtime), ``module`` (a loaded one), or ``ambiguous`` if it is not
            certain; None if nothing is wrong.
        edit: The smallest change of the file that fixes it, if there is one.
        price: The increase of the model's loss in nats per token, if it was measured (``--price``).
    """

    code: str
    severity: str
    message: str
    hint: str
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)
    layers: str | None = None
    blames: str | None = None
    edit: Edit | None = None
    price: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def patch(self) -> tuple[Mapping[str, Any], ...]:
        """The edit as operations of JSON Patch; empty if no change of a file fixes it."""
        return () if self.edit is None else self.edit.patch

    @property
    def problem(self) -> str:
        """The message, and the cause: the file, some runtimes, or not certain."""
        # A value set by the caller is in no file.
        by_caller = any(name.startswith(f"{CALLER}:") for name in self.evidence)
        # A finding about one runtime names it in its first words.
        silent = by_caller or "runtime" in self.evidence or self.severity == "note"
        return f"{self.message} {'' if silent else BLAMED.get(self.blames or '', '')}".rstrip()

    @property
    def change(self) -> str:
        """The smallest edit as text; empty if the finding has none."""
        return "" if self.edit is None else self.edit.says

    @property
    def in_one_line(self) -> str:
        """The whole finding in one line, for programs that show it next to a file."""
        layers = f" (layers {self.layers})" if self.layers else ""
        return f"{self.problem}{layers} {self.hint} {self.change}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values, in the order in which the schema names the fields."""
        made = as_json(self, "code", "severity", "message", "evidence", "hint", "layers", "blames", "edit")
        return made | ({} if self.price is None else {"price": dict(self.price)})


def price_in_words(price: Mapping[str, Any]) -> str:
    """A price as a sentence.

    >>> price_in_words({"nats": 0.1407, "interval": [0.1085, 0.1706], "visible": True, "windows": 4, "length": 512})
    '0.141 nats per token (0.108 to 0.171) on 4 windows of 512 tokens.'
    """
    text = f"{price['windows']:,} windows of {price['length']:,} tokens"
    if price["visible"] is None:
        return f"not known: {text} are too few to judge a difference of {price['nats']:.3g} nats per token."
    low, high = price["interval"]
    hidden = "" if price["visible"] else "; not visible at this length"
    return f"{price['nats']:.3g} nats per token ({low:.3g} to {high:.3g}) on {text}{hidden}."


def json_value(value: Any) -> Any:
    """A value for strict JSON: NaN and infinities become words, a spec becomes its fields, other objects their text.

    An object with ``to_dict`` is what that gives.

    >>> json_value({"base": float("nan"), "rates": (1.0, 0.5)})
    {'base': 'NaN', 'rates': [1.0, 0.5]}
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, WRITTEN):
        return to_dict(value)
    if hasattr(value, "to_dict"):
        return json_value(value.to_dict())
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, numbers.Integral):  # numpy's integers
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else spoken(number)
    return str(value)


def as_json(holder: object, *names: str) -> dict[str, Any]:
    """Some attributes of an object as JSON values."""
    return {name: json_value(getattr(holder, name)) for name in names}
