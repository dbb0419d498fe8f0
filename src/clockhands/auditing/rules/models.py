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
    told = evidence.get("read as")
    if told is not None:
        said = f"Model type {spoken(names[0])} is not in the table of known types" if names[:-1] else "No type is named"
        return f"{said}, but its classes are those of {told}, as which it was read."
    who = f"Model type {spoken(names[0])} is not in the table of known types" if names else "No model type is named"
    return f"{who}: its fields alone were read, and what only its code decides, such as the layout, is left open."


CODES: Mapping[str, Rule] = {
    "converted-layout": Rule(
        "warning",
        _converted,
        "Run it with code that pairs as the key says, or convert it back with `clockhands convert`.",
        blames="reader",
        unmended="The rows of the weights are ordered for the other pairing: `clockhands convert` puts them back.",
        title="Weights converted to a pairing that the type's own code does not have",
        means="The query and key rows of this model were reordered, and the config says so under a key of its own. Code"
        " of the model's type does not know that key and pairs channels as ever: it is right at position 0 and for one"
        " or two tokens, then it speaks without regard to the order of words.",
    ),
    "unknown-model-type": Rule(
        "note",
        _unknown_type,
        "Check the layout against the model's code before you convert or port it.",
        unmended="Nothing is wrong with the file.",
        title="A model type that the table does not hold",
        means="Fields with well-known names were read. What only the code of a model decides is left open: which two"
        " channels form a pair, what an absent key means, which layers do not rotate.",
    ),
    "nothing-declared": Rule(
        "note",
        _nothing,
        "Audit the model's config.json, or the folder that holds both.",
        unmended="What is looked for stands in another file.",
        title="A file that says nothing about positions",
        means="Weights alone seldom say how positions are coded: rotary and bias codes have no weights. The config that"
        " belongs to them does.",
    ),
}
