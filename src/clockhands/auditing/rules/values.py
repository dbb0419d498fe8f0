"""Values that cannot be used, or that no file holds."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit, added, replaced
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, said, stated


def _impossible(evidence: Evidence) -> str:
    limit = str(evidence.get("allowed", "")).rstrip(".")
    # Some limits are sentences of their own: they come from the code that refused the values.
    allowed = f" ({limit})" if " must " in limit else f" (allowed: {limit})" if limit else ""
    return f"{said(evidence)}, which cannot be used{allowed}; what follows from it is left open."


def _default(evidence: Evidence) -> str:
    owner = evidence.get("default of", "the model's class")
    usual = "its documented default" if evidence.get("documented") else "a default that other readers may not share"
    nulled = f" ({said(evidence)})" if stated(evidence) else ""
    used = spoken(evidence.get("used"))
    return f"{evidence.get('field', 'The base')} is not in the file{nulled}; {used} is the default of {owner}, {usual}."


def _default_base(evidence: Evidence) -> str:
    doubt = _doubt(evidence)
    return _default(evidence) + (f" {doubt}" if doubt else "")


# Bases that loaders and classes take where a file has none; they are right for models of a few thousand positions.
_USUAL_BASE = 10_000.0
# The longest context that releases with such a base and no scaling have been published with.
_PLAIN_CONTEXT = 8_192


def _doubt(evidence: Evidence) -> str:
    """Why a default base is not the one that the model was trained with; "" where it may well be."""
    used, context, scaling = (evidence.get(name) for name in ("used", "context", "scaling"))
    if not isinstance(used, int | float) or used > _USUAL_BASE or evidence.get("as released"):
        return ""
    # Every LongRoPE release known has a base of 10,000.
    if scaling in ("llama3", "yarn"):
        return f"The scaling {spoken(scaling)} is mostly published with a larger base."
    if isinstance(context, int | float) and context > _PLAIN_CONTEXT and not scaling and not evidence.get("window"):
        return (
            f"So small a base seldom reaches {spoken(context)} positions without a scaling: it is rather a fallback"
            " than what the model was trained with."
        )
    if evidence.get("never"):
        return f"No release of this architecture has that base: {evidence['never']}."
    return ""


def default_base_severity(evidence: Evidence) -> str:
    """A note where the default may be what the model was trained with, a warning where it cannot well be.

    The evidence holds ``used``, ``context``, ``scaling`` and ``window`` as far as they are known, and under ``never``
    in words which bases the releases of the architecture have, where none has this one; under ``as released`` the name
    of a release of the same shape that has this one.
    """
    return "warning" if _doubt(evidence) else _documented(evidence)


def _default_edit(evidence: Evidence) -> Edit | None:
    place, used = evidence.get("belongs at"), evidence.get("used")
    if not isinstance(place, str) or used is None or _doubt(evidence):
        return None
    return added(place, used, f"Write {spoken(used)} into the file.")


def _missing_value(evidence: Evidence) -> str:
    if evidence.get("without it"):
        return f"{evidence['missing']} is not in the file: {evidence['without it']}."
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


def _text_edit(evidence: Evidence) -> Edit | None:
    place, value = next(iter(stated(evidence)), (None, None)), evidence.get("read as")
    if place[0] is None or not isinstance(value, int | float):
        return None
    number = int(value) if float(value).is_integer() else value
    return replaced(place[0], number, f"Write {spoken(number)}, without the quotes.")


CODES: Mapping[str, Rule] = {
    "impossible-value": Rule(
        "error",
        _impossible,
        "Put the value in that the model was trained with; the original release of the model has it.",
        blames="file",
        unmended="Which value the model was trained with, only its original release says.",
        title="A value from which no code can be made",
        means="A base of 0, a share above 1, a word for a factor: no ladder follows from it. Some readers fail"
        " with an error about shapes; Transformers 5.23.0 accepts several such values without a word and computes"
        " rates that are not numbers, or no rotation at all.",
    ),
    "unreadable-field": Rule(
        "warning",
        _unreadable_field,
        "Write the field as the model's library writes it.",
        blames="file",
        unmended="What was meant by the field is not in the file.",
        title="A field whose form is not understood",
        means="A list stands where an object is expected, or a number where a name is. Readers refuse the file, or go"
        " on as if the field were not there; what it was meant to say is then lost.",
    ),
    "text-number": Rule(
        "warning",
        _text_number,
        "Write it as a number, without the quotes.",
        blames="file",
        edit=_text_edit,
        title="A number that is written as a text",
        means="The value stands in quotes. Readers may fail when they first calculate with it, or take a default"
        " instead. Transformers 5.23.0 accepts such a base while it reads the config.",
    ),
    "default-base": Rule(
        default_base_severity,
        _default_base,
        lambda evidence: (
            "Write the base that the model was trained with into the file; its original release has it."
            if _doubt(evidence)
            else "Write the base into the file, so that no reader has to guess."
        ),
        blames=lambda evidence: None if default_base_severity(evidence) == "note" else "file",
        edit=_default_edit,
        unmended="Which base the model was trained with, only its original release says.",
        title="The base is not in the file",
        means="The base spans the ladder of rates, and every reader has its own default for one that is missing: 10,000"
        " in most, 500,000 or 1,000,000 in some classes. Where the model was trained with another, all pairs but the"
        " first turn at wrong rates: short prompts look fine, and the loss grows with length. Official GGUF files of"
        " Qwen1.5 shipped so in 2024, and a leaderboard rated the model accordingly.",
        cases=(
            "realizar#78 (February 2026)",
            "aprender#324 (February 2026)",
            "ollama/ollama#2379 (February 2024)",
            "ggml-org/llama.cpp#2768 (August 2023)",
        ),
    ),
    "default-value": Rule(
        _documented,
        _default,
        "Write the value into the file, so that no reader has to guess.",
        blames=lambda evidence: None if _documented(evidence) == "note" else "file",
        edit=_default_edit,
        unmended="Where the value is a whole block, copy it from the model's original release.",
        title="A value that the model's class fills in",
        means="The file leaves out what the class of the model has as a default, such as a rotated share of 0.5. The"
        " class reads it right; a reader that does not know this class turns the whole head, or takes another length.",
        cases=("ml-explore/mlx-lm#1698 (August 2026)",),
    ),
    "missing-value": Rule(
        "note",
        _missing_value,
        "Add it with the value that the model was trained with.",
        unmended="The value is in no file that was read.",
        title="A value that is needed and not there",
        means="Something that the position code follows from is not in the file, and nothing says what stands in for"
        " it. The audit leaves open what would follow instead of guessing it.",
    ),
}
