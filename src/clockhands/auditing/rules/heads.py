"""Heads that the weights have otherwise than the files declare."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit, replaced
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, stated


def _head_width(evidence: Evidence) -> str:
    rows, heads, width = (spoken(evidence[name]) for name in ("rows", "heads", "width"))
    declared = f"heads of {width} channels are declared"
    if evidence.get("width from"):
        declared = f"heads of {width} channels follow from what is declared ({evidence['width from']})"
    return (
        f"The queries of the weights have {rows} rows, which is {heads} heads of"
        f" {spoken(evidence['width in the weights'])} channels, but {declared}: every rate is that of another ladder,"
        " and readers that trust what is declared cut the rows into the wrong heads."
    )


def _mended(evidence: Evidence) -> Edit | None:
    places = [name for name, _ in stated(evidence) if " " not in name]
    right = evidence["width in the weights"]
    says = f"Write {spoken(right)} as the width of a head, as the weights have it."
    return replaced(places[0], right, says) if places else Edit(says)


CODES: Mapping[str, Rule] = {
    "head-width": Rule(
        "warning",
        _head_width,
        "Write the width that the weights have into the file, or take the weights that it was written for.",
        blames="file",
        edit=_mended,
        title="Heads of another width in the weights than in what is declared",
        means=(
            "A rate is the base to the power of a channel's place over the width of a head, so a wrong width bends the"
            " whole ladder. Importers that know no key for it take the class's default, or the hidden size over the"
            " heads, which some families do not follow: Gemma-2-27B has heads of 128 where the default is 256 and the"
            " quotient 144. Loaders that compare sizes refuse such a file; others cut the projections elsewhere."
        ),
        cases=("huggingface/transformers#35818 (2025-01)",),
    ),
}
