"""Scalings that are unknown, incomplete, or at odds with the lengths beside them."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, said


def _unknown_scaling(evidence: Evidence) -> str:
    known = f" (known: {evidence['known']})" if evidence.get("known") else ""
    return f"{said(evidence)}, a scaling that is not known{known}; no rates follow from it."


_BY_ITSELF = "a scaling block with its numbers"


def _incomplete(evidence: Evidence) -> str:
    if evidence.get("missing") == _BY_ITSELF:
        return (
            f"{said(evidence)}: a scaling that only the model's own code knows the numbers of; the rates are left open."
        )
    return f"The scaling block is incomplete ({said(evidence)}): it lacks {evidence.get('missing', 'a required key')}."


def _incomplete_severity(evidence: Evidence) -> str:
    return "note" if evidence.get("missing") == _BY_ITSELF else "error"


def _missing_original(evidence: Evidence) -> str:
    return (
        f"The scaling does not say which length the model was trained on, so {spoken(evidence.get('used'))} was taken"
        f" ({said(evidence)}); if the model was trained on less, every rate that the scaling bends is wrong."
    )


def _factor(evidence: Evidence) -> str:
    product = evidence.get("factor x original")
    reach = (
        f"Factor x original length is {spoken(product)}" if product is not None else "Factor x original length differs"
    )
    tail = (
        "Models of the Llama-3 family are published so: the factor there is a tuning, not a ratio of lengths."
        if evidence.get("scaling") == "llama3"
        else "Readers that compute one from the others disagree."
    )
    return f"{reach}, another length than the one declared ({said(evidence)}). {tail}"


def _family(evidence: Evidence) -> str:
    return "note" if evidence.get("scaling") == "llama3" else "warning"


CODES: Mapping[str, Rule] = {
    "unknown-scaling": Rule(
        "error", _unknown_scaling, "Correct the spelling, or use a release of clockhands that knows this scaling."
    ),
    "incomplete-scaling": Rule(
        _incomplete_severity,
        _incomplete,
        "Copy the whole block from the model's original release; readers that guess differ.",
    ),
    "missing-original": Rule(
        "warning", _missing_original, "Add original_max_position_embeddings with the length of the first training."
    ),
    "factor-times-original": Rule(
        _family,
        _factor,
        lambda evidence: (
            IF_SOUND
            if _family(evidence) == "note"
            else "Make the three numbers agree with the model's original release."
        ),
    ),
}
