"""Values that cannot be used, or that no file holds."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, said, stated


def _impossible(evidence: Evidence) -> str:
    limit = str(evidence.get("allowed", "")).rstrip(".")
    # Some limits are sentences of their own: they come from the code that refused the values.
    allowed = f" ({limit})" if " must " in limit else f" (allowed: {limit})" if limit else ""
    return f"{said(evidence)}, which cannot be used{allowed}; no rates follow from it."


def _default(evidence: Evidence) -> str:
    owner = evidence.get("default of", "the model's class")
    usual = "its documented default" if evidence.get("documented") else "a default that other readers may not share"
    nulled = f" ({said(evidence)})" if stated(evidence) else ""
    used = spoken(evidence.get("used"))
    return f"{evidence.get('field', 'The base')} is not in the file{nulled}; {used} is the default of {owner}, {usual}."


def _missing_value(evidence: Evidence) -> str:
    return f"{evidence['missing']} is not in the file, and {evidence['needed for']} would follow from it: left open."


def _documented(evidence: Evidence) -> str:
    return "note" if evidence.get("documented") else "warning"


def _unreadable_field(evidence: Evidence) -> str:
    expected = f" (expected: {evidence['expected']})" if evidence.get("expected") else ""
    return f"{said(evidence)}, which was not understood{expected} and was left out."


def _text_number(evidence: Evidence) -> str:
    read = spoken(evidence.get("read as"))
    return (
        f"{said(evidence)}, a text and not a number: it was read as {read}; other readers refuse it or take a default."
    )


CODES: Mapping[str, Rule] = {
    "impossible-value": Rule(
        "error",
        _impossible,
        "Put the value in that the model was trained with; the original release of the model has it.",
    ),
    "unreadable-field": Rule("warning", _unreadable_field, "Write the field as the model's library writes it."),
    "text-number": Rule("warning", _text_number, "Write it as a number, without the quotes."),
    "default-base": Rule(_documented, _default, "Write the base into the file, so that no reader has to guess."),
    "default-value": Rule(_documented, _default, "Write the value into the file, so that no reader has to guess."),
    "missing-value": Rule("note", _missing_value, "Add it with the value that the model was trained with."),
}
