"""Findings on unusable or missing values, and on model types: what is noted while a config is read."""

from typing import Any

from clockhands.auditing._edits import Edit, added, replaced
from clockhands.auditing.findings._rules import Case
from clockhands.formats.files import file_and_key
from clockhands.phrases import spoken

# Bases that loaders and classes use if a file has none; they are right for models with a few thousand positions.
_USUAL_BASE = 10_000.0
# The longest published context with such a base and no scaling.
_PLAIN_CONTEXT = 8_192


class Default(Case, code=("default-base", "default-value")):
    """A value that is missing in the file, and for which the class of the model has a default.

    Attributes:
        never: The bases of the releases of the architecture, as text, if none has the default.
        read_by: The program that reads the keys that hold the base instead.
        as_released: The name of a release of the same shape that has the default.
    """

    default_of = "the model's class"
    field = "The base"

    def undocumented(self) -> bool:
        """Whether other runtimes may use another default."""
        return not self.documented

    def used_instead(self) -> str:
        """That the value is not in the file, and what the audit uses, as a clause."""
        owner = self.default_of
        which = "documented default" if self.documented else "default"
        nulled = f" ({self.said()})" if self.stated else ""
        if self.read_by:
            nulled = f" under the key that {owner} reads ({self.said()}: {self.read_by} reads that)"
        used = spoken(self.used)
        return f"{self.field} is not in the file{nulled}, so the audit uses the {which} of {owner}: {used}"

    def trained_otherwise(self) -> str:
        """Why a default base is not the trained one; "" if it may be."""
        used, context, scaling = self.used, self.context, self.scaling
        if not isinstance(used, int | float) or used > _USUAL_BASE or self.as_released:
            return ""
        # Every LongRoPE release known has a base of 10,000.
        if scaling in ("llama3", "yarn"):
            return f"The scaling {spoken(scaling)} is usually published with a larger base."
        if isinstance(context, int | float) and context > _PLAIN_CONTEXT and not scaling and not self.window:
            return (
                f"The base {spoken(used)} is small for {spoken(context)} positions without a scaling, so the model was"
                " probably trained with a larger base."
            )
        if self.never:
            return f"No release of this architecture has the base {spoken(used)}: {self.never}."
        return ""

    def edit(self) -> Edit | None:
        place, used = self.belongs_at, self.used
        if not isinstance(place, str) or used is None or self.trained_otherwise():
            return None
        return added(place, used, f"Write {spoken(used)} into the file.")


class ImpossibleValue(Case, code="impossible-value"):
    allowed = ""

    def limit(self) -> str:
        """What is allowed; some limits are whole sentences, from the code that refused the values."""
        limit = str(self.allowed).rstrip(".")
        return limit if not limit or " must " in limit else f"allowed: {limit}"


class TextNumber(Case, code="text-number"):
    @property
    def exponent(self) -> bool:
        """Whether it is a number with an exponent, which YAML reads as text without quotes."""
        in_yaml = file_and_key(self.place or "")[0].lower().endswith((".yaml", ".yml"))
        return in_yaml and any("e" in str(value).lower() for _, value in self.stated)

    def edit(self) -> Edit | None:
        place, value = self.place, self.read_as
        if place is None or not isinstance(value, int | float):
            return None
        number = int(value) if float(value).is_integer() else value
        without = "an exponent" if self.exponent else "the quotes"
        return replaced(place, number, f"Write {spoken(number)}, without {without}.")


class UnknownModelType(Case, code="unknown-model-type"):
    def type(self) -> Any:
        """The first name in the file."""
        return next((value for _, value in self.stated if value), None)

    def part(self) -> str:
        """The object of the file that has no known type; empty for the whole file."""
        return self.key().rpartition(".")[0]

    def what(self) -> str:
        """What the name is one of."""
        return "class of diffusers" if any(place.endswith("_class_name") for place, _ in self.stated) else "model type"


class NothingDeclared(Case, code="nothing-declared"):
    def message(self) -> str:
        return " ".join(f"{name} holds {what}." for name, what in self.evidence.items())
