"""Findings on unusable or missing values, and on model types: what is noted while a config is read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.auditing._edits import Edit, added, replaced
from clockhands.auditing.findings._kind import Kind, listed, spoken
from clockhands.auditing.findings._parts import Audited, check
from clockhands.configs.rope_blocks import NEW, OLD
from clockhands.formats.files import file_and_key

# Bases that loaders and classes use if a file has none; they are right for models with a few thousand positions.
_USUAL_BASE = 10_000.0
# The longest published context with such a base and no scaling.
_PLAIN_CONTEXT = 8_192


class Default(Kind):
    """A value that is missing in the file, and for which the class of the model has a default.

    Attributes:
        never: The bases of the releases of the architecture, as text, if none has the default.
        read_by: The program that reads the keys that hold the base instead.
        as_released: The name of a release of the same shape that has the default.
    """

    default_of: str = "the model's class"
    documented: bool | None = None
    used: Any = None
    field: str = "The base"
    context: int | None = None
    scaling: str | None = None
    as_released: str | None = None
    window: int | None = None
    never: str | None = None
    belongs_at: str | None = None
    read_by: str | None = None

    def message(self) -> str:
        others = "" if self.documented else " Other runtimes may use another default."
        return f"{self.used_instead()}.{others}"

    def used_instead(self) -> str:
        """That the value is not in the file, and what the audit uses, as a clause."""
        owner = self.default_of
        which = "documented default" if self.documented else "default"
        nulled = f" ({self.said()})" if self.stated else ""
        if self.read_by:
            nulled = f" under the key that {owner} reads ({self.said()}: {self.read_by} reads that)"
        used = spoken(self.used)
        return f"{self.field} is not in the file{nulled}, so the audit uses the {which} of {owner}: {used}"

    def _doubt(self) -> str:
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
        if not isinstance(place, str) or used is None or self._doubt():
            return None
        return added(place, used, f"Write {spoken(used)} into the file.")

    def severity(self) -> str:
        return "note" if self.documented else "warning"

    def blames(self) -> str | None:
        return None if self.severity() == "note" else "file"


class ImpossibleValue(Kind, code="impossible-value"):
    title = "A value in the file is impossible"
    severity = "error"
    hint = "Write the value that the model was trained with. The model's original release has this value."
    blames = "file"
    allowed: str = ""

    def message(self) -> str:
        limit = str(self.allowed).rstrip(".")
        # Some limits are whole sentences: they come from the code that refused the values.
        allowed = f" ({limit})" if " must " in limit else f" (allowed: {limit})" if limit else ""
        return f"{self.said()}, which cannot be used{allowed}. The audit did not compute what depends on this value."


class UnreadableField(Kind, code="unreadable-field"):
    title = "A field has a form that the audit cannot read"
    severity = "warning"
    hint = "Write the field in the form in which the model's library saves it."
    blames = "file"
    expected: str | None = None

    def message(self) -> str:
        expected = f" (expected: {self.expected})" if self.expected else ""
        return f"{self.said()}, which the audit cannot read{expected} and ignores."


class TextNumber(Kind, code="text-number"):
    title = "A number is written as text"
    severity = "warning"
    blames = "file"
    read_as: Any = None

    @property
    def exponent(self) -> bool:
        """Whether it is a number with an exponent, which YAML reads as text without quotes."""
        in_yaml = file_and_key(self.place or "")[0].lower().endswith((".yaml", ".yml"))
        return in_yaml and any("e" in str(value).lower() for _, value in self.stated)

    def hint(self) -> str:
        return f"Write the value as a number, without {'an exponent' if self.exponent else 'quotes'}."

    def message(self) -> str:
        read = spoken(self.read_as)
        if self.exponent:
            return (
                f"{self.said()}, which is text in YAML 1.1 (used by PyYAML): a number with an exponent needs a dot and"
                " a"
                f" sign (1.0e+6). The audit uses {read}; a program that reads the text fails or uses a default."
            )
        return (
            f"{self.said()}, which is text, not a number. The audit uses {read}; some runtimes refuse the text or use a"
            " default instead."
        )

    def edit(self) -> Edit | None:
        place, value = self.place, self.read_as
        if place is None or not isinstance(value, int | float):
            return None
        number = int(value) if float(value).is_integer() else value
        without = "an exponent" if self.exponent else "the quotes"
        return replaced(place, number, f"Write {spoken(number)}, without {without}.")


class DefaultBase(Default, code="default-base"):
    title = "The RoPE base is not in the file"

    def hint(self) -> str:
        return (
            "Write the base that the model was trained with into the file. The model's original release has this base."
            if self._doubt()
            else "Write the base into the file, so that no runtime has to guess."
        )

    def severity(self) -> str:
        """A note if the model may have been trained with the default, a warning if that is implausible."""
        return "warning" if self._doubt() else super().severity()

    def message(self) -> str:
        doubt = self._doubt()
        return super().message() + (f" {doubt}" if doubt else "")


class DefaultValue(Default, code="default-value"):
    title = "The file lacks a value, so the default of the model's class is used"
    news = True
    hint = "Write the value into the file, so that no runtime has to guess."


class MissingValue(Kind, code="missing-value"):
    title = "A required value is missing"
    news = True
    severity = "note"
    hint = "Add the value that the model was trained with."
    missing: str
    needed_for: str
    without_it: str | None = None

    def message(self) -> str:
        if self.without_it:
            return f"{self.missing} is not in the file: {self.without_it}."
        needs = f"{self.needed_for[:1].upper()}{self.needed_for[1:]}"
        return f"{self.missing} is not in the file. {needs} cannot be computed without this value."


class ConvertedLayout(Kind, code="converted-layout"):
    title = "The weights have another layout than the code of the model type"
    severity = "warning"
    hint = (
        "Run the model with code that uses the declared layout, or convert the weights back with `clockhands convert`."
    )
    blames = "reader"
    pairs: str
    type: str

    def message(self) -> str:
        return (
            f"{self.said()}, but the code of this model type ({self.type}) does not read this key and uses the RoPE"
            f' layout "{self.pairs}". This code therefore rotates wrong pairs of dimensions.'
        )


class UnknownModelType(Kind, code="unknown-model-type"):
    title = "Unknown model type"
    news = True
    severity = "note"
    hint = "Before you convert or port the model, compare its layout with the model's code."
    read_as: Any = None
    other_class: str | None = None
    other_keys: Sequence[str] = ()

    def message(self) -> str:
        names = [value for _, value in self.stated if value]
        if self.other_class is not None:
            return (
                f"The file names the model type {spoken(names[0])}, but the name of its class, {self.other_class}, is"
                " not of that type. The audit reads only the file; what that class computes is not known."
            )
        if self.other_keys:
            return (
                f"The file names the model type {spoken(names[0])}, but its sizes are under {listed(self.other_keys)},"
                " which the classes of this type do not read: the file is for another program. The audit reads only the"
                " file; what that program computes is not known."
            )
        told = self.read_as
        if told is not None:
            return f"The file names no model type, but the classes of {told}. The audit reads the model as {told}."
        what = "class of diffusers" if any(place.endswith("_class_name") for place, _ in self.stated) else "model type"
        who = f"clockhands does not know the {what} {spoken(names[0])}" if names else f"The file names no {what}"
        limits = "The audit reads only the file; what the model's code decides, such as the RoPE layout, is unknown."
        return f"{who}. {limits}"

    def doubt(self) -> str:
        names = [value for _, value in self.stated if value]
        if self.other_class is not None:
            return f"the class {self.other_class} is not one of the model type {spoken(names[0])}"
        if self.other_keys:
            return f"the keys are not those of the model type {spoken(names[0])}"
        if self.read_as is not None:
            return f"the file names no model type, and is read as {self.read_as}"
        return f"the model type {spoken(names[0])} is not known" if names else "the file names no model type"


class OwnCode(Kind, code="own-code"):
    title = "The model comes with custom code"
    news = True
    severity = "note"
    hint = "Check the RoPE layout, the RoPE frequencies and the window in the custom code of the model."
    read_as: Any = None

    def message(self) -> str:
        (named,) = (value for _, value in self.stated)
        return (
            f"The config names a class of custom code, {named}, which clockhands does not know. The audit reads the"
            " model"
            f" as {self.read_as} of the library; the custom code may compute something else."
        )

    def doubt(self) -> str:
        (named,) = (value for _, value in self.stated)
        return f"what the model's own class {named} computes is not known"


class NothingDeclared(Kind, code="nothing-declared"):
    title = "The file declares nothing about positions"
    news = True
    severity = "note"
    hint = "Audit the model's config.json, or the folder that holds the config and the weights."

    def message(self) -> str:
        return " ".join(f"{name} holds {what}." for name, what in self.evidence.items())


class OverrideReplacesBlock(Kind, code="override-replaces-block"):
    title = "The override lacks RoPE settings that the file has"
    blames = "file"
    block: str
    lost: Mapping[str, Any]

    def severity(self) -> str:
        """An error if a block of the file had the value; beside the block, older runtimes still find it."""
        return "error" if any("rope_" in place.rpartition(".")[0] for place in self.lost) else "warning"

    def hint(self) -> str:
        if not self.evidence:
            return "Copy all keys of the file's RoPE block into the override."
        keys = {place.rpartition(".")[2]: value for place, value in self.lost.items()}
        return f"Add these keys to the override: {json.dumps(keys)[1:-1]}."

    def message(self) -> str:
        names = [f"{place} ({spoken(value)})" for place, value in self.lost.items()]
        return (
            f"The override replaces the whole {self.block}, but lacks values that the file has:"
            f" {listed(names)}. Transformers 5.23.0 then raises an error, or uses another value without a warning."
        )


_TAKE_OVERRIDES = ("transformers", "vllm", "sglang")


@check
def override_replaces_block(subject: Audited) -> Iterator[Kind]:
    """A whole block set by the caller, without the base or another value that the file has."""
    if subject.runtime is not None and subject.runtime.name not in _TAKE_OVERRIDES:
        return
    for override in subject.opened.overridden:
        path, dot, last = override.rpartition(".")
        lost = {
            where.rpartition(":")[2]: value
            for where, value in subject.opened.lost.items()
            if where.rpartition(":")[2].startswith(f"{path}{dot}")
        }
        if last in (OLD, NEW) and lost:
            yield OverrideReplacesBlock({"block": override, "lost": lost})
            return
