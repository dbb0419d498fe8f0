"""What a test of the positions in effect found so far, and its verdict."""

from dataclasses import dataclass, field

from clockhands.auditing import Finding
from clockhands.phrases import listed
from clockhands.probes.results import GatheredResult, ProbeResult


@dataclass(kw_only=True)
class LiveResult(GatheredResult):
    """The results so far; the answers are those after the verdict.

    Attributes:
        findings: Problems.
    """

    findings: list[Finding] = field(default_factory=list)

    def verified(self) -> ProbeResult:
        """The result, with the verdict first."""
        told = dict.fromkeys(_in_words(each) for each in self.findings if each.severity != "note")
        numbers = {**self.numbers, "ran": self.measured, "findings": [each.to_dict() for each in self.findings]}
        return ProbeResult(
            "live", (self.verdict(), *told, *self.answers), numbers, tuple(self.columns), tuple(self.figures)
        )

    def verdict(self) -> str:
        """The first sentence."""
        wrong = [each for each in self.findings if each.severity != "note"]
        if wrong:
            return f"{len(wrong)} problem{'s' if len(wrong) > 1 else ''} of positions at run time."
        if self.numbers.get("positions") == "none":
            return "The model has no position encoding: queries and keys are the same at every position."
        if count := self.numbers.get("layers_checked") or self.numbers.get("biases_checked"):
            layers = f"The declared positions are in effect in all {count} layer{'s' if count != 1 else ''} checked"
            return f"{layers}, in text; {left} not checked." if (left := self.left_out()) else f"{layers}."
        if measured := self.numbers.get("measured"):
            told = listed([f"in the {part} part ({what})" for part, what in measured.items()])
            told = f"The declared positions are in effect {told}"
            return f"{told}; {left} not checked." if (left := self.left_out()) else f"{told}."
        if not self.measured:
            left = self.left_out() if self.numbers.get("text_ran") else ""
            why = f"{left} not checked" if left else "no part of the model that shows them was run"
            return f"The positions were not measured: {why}."
        if left := self.left_out():
            return f"No problem was found; {left} not checked."
        return "No problem was found; no layer declares a rotation that can be measured here."

    @property
    def measured(self) -> bool:
        """Whether something was measured; a text that ran is not enough where it left out what is declared."""
        seen = ("measured", "layers_checked", "biases_checked", "offsets", "generation", "positions")
        if self.findings or any(self.numbers.get(name) for name in seen):
            return True
        return bool(self.numbers.get("text_ran")) and not self.left_out()

    def left_out(self) -> str:
        """The positions of the model that texts do not show, as a phrase with its verb; empty where there are none."""
        found = list(self.numbers.get("not_measured", []))
        numbered = self.numbers.get("image_coordinates", {"prompts": ()})["prompts"]
        unseen = [f"{kind}s" for kind in ("image", "video") if not any(kind in prompt for prompt in numbered)]
        several = bool(unseen) and self.numbers.get("text_coordinates", 1) > 1
        if several:
            found.append(f"the coordinates of {listed(unseen)}")
        return f"{listed(found)} {'were' if several or len(found) > 1 else 'was'}" if found else ""


def _in_words(found: Finding) -> str:
    where = f", layers {found.layers}" if found.layers else ""
    return f"{found.severity} {found.code}{where}: {found.message} Fix: {found.hint}"
