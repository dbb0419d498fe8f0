"""How far the codes reach."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule


def _never_turning(evidence: Evidence) -> str:
    count, pairs = evidence["pairs that never complete a turn"], evidence["pairs"]
    length, longest = spoken(evidence["length"]), spoken(evidence["longest wavelength"])
    complete = "completes" if count == 1 else "complete"
    owner = f" of the {evidence['part']}" if evidence.get("part") else ""
    return (
        f"{count} of {pairs} pairs{owner} never {complete} a turn within {length} positions (the slowest would need"
        f" {longest}): the model has seen only a part of their circle."
    )


def _beyond(evidence: Evidence) -> str:
    length, context = spoken(evidence["length"]), spoken(evidence["context"])
    asked = f"A length of {length} was asked for, but"
    if evidence.get("kind") == "learned":
        return f"{asked} the learned table ends after {context} positions: there are no rows to read."
    return f"{asked} the file declares a context of {context}: what lies beyond was never promised."


CODES: Mapping[str, Rule] = {
    "beyond-context": Rule(
        "warning",
        _beyond,
        lambda evidence: (
            "Stay within the table; it has to be trained further to reach more."
            if evidence.get("kind") == "learned"
            else "Stay within the context, or declare the scaling that the model was extended with."
        ),
    ),
    "never-turning": Rule(
        "note",
        _never_turning,
        f"{IF_SOUND} It matters when the model is served at a longer length than it was trained on.",
    ),
}
