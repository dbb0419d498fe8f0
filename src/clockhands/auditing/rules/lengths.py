"""How far the codes reach, and lengths that disagree."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, named


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


def _below_bound(evidence: Evidence) -> str:
    first, reach = spoken(evidence["first failing distance"]), spoken(evidence["reach"])
    scaled = " and its scaling" if evidence.get("scaled") else ""
    return (
        f"With this base{scaled} the cosines of all pairs add up to less than 0 at a distance of {first} already,"
        f" within the {reach} positions that a query may look back: there a head that looks for a like token scores it"
        " below a random one."
    )


def _differ(evidence: Evidence) -> str:
    context, other = spoken(evidence["context"]), spoken(evidence["other"])
    keys = " but ".join(f"{name} is {spoken(value)}" for name, value in named(evidence))
    if evidence["other"] < evidence["context"]:
        tail = f"a reader that goes by the shorter one cuts a text at {other} of {context} positions."
    elif evidence["leaves"] == "table":
        tail = f"a reader that goes by the longer one asks for rows past the end of a table of {context} positions."
    else:
        tail = f"a reader that goes by the longer one passes the declared context of {context}."
    because = f" It is no fault here: {evidence['because']}." if evidence.get("because") else ""
    return f"Two lengths disagree: {keys}; {tail}{because}"


def _differ_severity(evidence: Evidence) -> str:
    shorter = evidence.get("other", 0) < evidence.get("context", 0)
    return "note" if shorter or evidence.get("because") else "warning"


def _padding(evidence: Evidence) -> str:
    rows, offset, usable = (spoken(evidence[name]) for name in ("rows", "offset", "usable"))
    belong = "belongs" if evidence["offset"] == 1 else "belong"
    owner = f" of the {evidence['part']}" if evidence.get("part") else ""
    return (
        f"Position 0 is row {offset} of the table{owner}: {offset} of its {rows} rows {belong} to no position, and"
        f" {usable} can be used."
    )


def _colliding(evidence: Evidence) -> str:
    first, dtype = evidence["first"], evidence["dtype"]
    return (
        f"The checkpoint is in {dtype}, which does not hold position {spoken(first)} nor many after it, up to the"
        f" context of {spoken(evidence['context'])}: harmless as long as no reader casts positions or phases to it."
    )


CODES: Mapping[str, Rule] = {
    "beyond-context": Rule(
        "warning",
        _beyond,
        lambda evidence: (
            "Stay within the table; it has to be trained further to reach more."
            if evidence.get("kind") == "learned"
            else "Stay within the context, or declare the scaling that the model was extended with."
        ),
        title="A length past the declared context",
        means=(
            "You asked for a length that the files do not declare. Phases stay exact there, but slow pairs reach angles"
            " that the model never saw, and a learned table has no rows at all. It shows as text that loses its thread"
            " or as an index error, at long prompts only. The report says what is sound at that length and which"
            " scaling would serve."
        ),
    ),
    "lengths-differ": Rule(
        _differ_severity,
        _differ,
        lambda evidence: (
            IF_SOUND
            if _differ_severity(evidence) == "note"
            else "Find out which length the model was trained for, and write that one in both places."
        ),
        blames=lambda evidence: "ambiguous" if _differ_severity(evidence) == "warning" else None,
        unmended="Which of the two lengths the model was trained for, only its release says.",
        title="Two lengths disagree",
        means=(
            "A model's files give its length in several places: the context of the config, a training length beside it,"
            " the tokenizer's, that of generation. Readers take one of them. Who takes the longer one may leave a table"
            " or the trained context, silently; who takes the shorter one cuts texts that the model could read."
        ),
        cases=("turboderp-org/exllamav2#404 (April 2024)", "vllm-project/vllm#3919 (April 2024)"),
    ),
    "never-turning": Rule(
        "note",
        _never_turning,
        f"{IF_SOUND} It matters when the model is served at a longer length than it was trained on.",
        title="Pairs that never complete a turn in training",
        means=(
            "The slow pairs of a ladder turn through only a part of their circle in the trained length. Every angle"
            " beyond is new to the model: these are the pairs that break first at longer lengths, and those that"
            " scalings slow down. Liu et al. (2023, arXiv:2310.05209) count them as the critical dimension."
        ),
    ),
    "base-below-bound": Rule(
        "note",
        _below_bound,
        f"{IF_SOUND} Whoever trains the model further for long texts may raise the base.",
        title="The base is low for the context",
        means=(
            "A head that looks for a token like its own scores it by the sum of the cosines of all pairs at their"
            " distance. Where that sum is negative, likeness counts against a token. Men et al. (2024,"
            " arXiv:2405.14591) ask for a base at which this happens nowhere within the context, and find models below"
            " it fluent but unable to retrieve. It is a property of the ladder, not a fault of the file; a larger base"
            " may fail too, for the bound has gaps."
        ),
    ),
    "padding-offset": Rule(
        "note",
        _padding,
        "Nothing to mend. Number positions from that row when you port the model.",
        title="A table that begins with rows for no position",
        means=(
            "RoBERTa, OPT and BART keep rows before the first position, because positions were numbered after the"
            " padding token. The table is then longer than the text that fits: 514 rows are 512 positions. A port that"
            " numbers from 0 shifts every row, loads without a word and answers worse; one that takes the rows for the"
            " length reads past the end."
        ),
        cases=(
            "huggingface/sentence-transformers#3879 (July 2026)",
            "huggingface/transformers#47525 (July 2026)",
            "huggingface/transformers#14243",
        ),
    ),
    "colliding-positions": Rule(
        "note",
        _colliding,
        "Nothing to mend in the file. Keep positions whole or in float32 when you port, cast or quantise the model.",
        title="Positions that the checkpoint's dtype cannot tell apart",
        means=(
            "bfloat16 holds whole numbers up to 256, float16 up to 2,048; beyond, neighbours fall together. The library"
            " keeps positions and phases in float32 whatever the weights are in. A reader that makes them in the"
            " model's dtype, or casts the module as a whole, gives several tokens the same place. It shows only in long"
            " texts."
        ),
        cases=("EleutherAI/gpt-neox#1016", "Modalities/modalities#462 (September 2026)"),
    ),
}
