"""Model types, and files that say nothing."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, said, stated


def _converted(evidence: Evidence) -> str:
    return (
        f"{said(evidence)}, but code of this type pairs {evidence['pairs']} ({evidence['type']}) and does not know the"
        " key: it would turn the wrong channels together."
    )


def _nothing(evidence: Evidence) -> str:
    return " ".join(f"{name} holds {what}." for name, what in evidence.items())


def _unknown_type(evidence: Evidence) -> str:
    names = [value for _, value in stated(evidence) if value]
    who = f"Model type {spoken(names[0])} is not in the table of known types" if names else "No model type is named"
    return f"{who}: its fields alone were read, and what only its code decides, such as the layout, is left open."


CODES: Mapping[str, Rule] = {
    "converted-layout": Rule(
        "warning",
        _converted,
        "Run it with code that pairs as the key says, or convert it back with `clockhands convert`.",
    ),
    "unknown-model-type": Rule(
        "note", _unknown_type, "Check the layout against the model's code before you convert or port it."
    ),
    "nothing-declared": Rule("note", _nothing, "Audit the model's config.json, or the folder that holds both."),
}
