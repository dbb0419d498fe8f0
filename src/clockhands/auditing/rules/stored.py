"""Rates and position numbers that a checkpoint stores although models compute them."""

from collections.abc import Mapping
from dataclasses import replace

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules import modules
from clockhands.auditing.rules.rule import Evidence, Rule, stated


def _where(evidence: Evidence) -> str:
    place = next((name for name, _ in stated(evidence)), "the checkpoint")
    count = evidence.get("tensors", 1)
    others = "" if count == 1 else f" and {spoken(count - 1)} more tensor{'s' if count > 2 else ''}"
    return f"{place}{others}"


def _frequencies(evidence: Evidence) -> str:
    return (
        f"The checkpoint stores rates ({_where(evidence)}), which recent readers leave aside and compute from the"
        " config."
    )


def _frequencies_differ(evidence: Evidence) -> str:
    head = f"The checkpoint stores rates ({_where(evidence)}) that are not what its config declares"
    if "declared pairs" in evidence:
        return f"{head}: {spoken(evidence['pairs'])} numbers for {spoken(evidence['declared pairs'])} pairs."
    it_is = f" They are {evidence['it is']}." if evidence.get("it is") else ""
    return (
        f"{head}: pair {evidence['pair']} turns by {spoken(evidence['stored'])} rad a token there, by"
        f" {spoken(evidence['declared'])} by the config.{it_is}"
    )


def _position_ids(evidence: Evidence) -> str:
    place = _where(evidence)
    kind = f" in {evidence['dtype']}" if "float" in evidence["dtype"] else ""
    if "wrong" not in evidence:
        return (
            f"The numbers of positions ({place}) are stored{kind}: they are whole still, but the next cast or merge of"
            " the checkpoint rounds them."
        )
    are = "is" if evidence["wrong"] == 1 else "are"
    return (
        f"The {spoken(evidence['count'])} numbers of positions ({place}) are stored{kind} and"
        f" {spoken(evidence['wrong'])} of them {are} wrong: position {spoken(evidence['first wrong'])} is"
        f" {spoken(evidence['stored'])}, so that a reader that loads them takes another row of the table."
    )


_CAUSES = (
    "uninitialised", "zero", "unscaled", "scaled-twice", "of-another-factor", "of-another-base", "of-another-scaling",
    "rounded",
)  # fmt: skip


def _as_stored(code: str) -> Rule:
    """The rule on rates of a loaded model, for rates in a checkpoint: the same cause has the same sentence and hint."""
    rule = modules.CODES[code]
    return replace(
        rule,
        severity=_severity_of_rounded if code == "buffer-rounded" else "warning",
        blames="file",
        unmended="The tensors are wrong, or the config is, and the files do not say which.",
        title=rule.title.replace("of a loaded model", "in a checkpoint"),
        means=f"{rule.means} {_OLDER}",
    )


def _severity_of_rounded(evidence: Evidence) -> str:
    return "note" if evidence.get("loaded") == "no" else "warning"


_OLDER = (
    "Older libraries load the rates (inv_freq) that a checkpoint stores; newer ones compute them from the config. Where"
    " the two differ, old and new readers run different models."
)

CODES: Mapping[str, Rule] = {
    "stored-frequencies-differ": Rule(
        "warning",
        _frequencies_differ,
        modules.CODES["buffer-differs"].hint,
        blames="file",
        unmended="The tensors are wrong, or the config is, and the files do not say which.",
        title="Stored rates that are not the declared ones",
        means=_OLDER,
        cases=("amazon-science/chronos-forecasting#491 (April 2026)", "unslothai/unsloth#6907 (July 2026)"),
    ),
    **{f"stored-frequencies-{cause}": _as_stored(f"buffer-{cause}") for cause in _CAUSES},
    "float-position-ids": Rule(
        "warning",
        _position_ids,
        "Leave position_ids out of the checkpoint, or store them again as whole numbers from 0 on in int64.",
        blames="file",
        unmended="A tensor has to be stored again.",
        title="Position numbers stored as floats, or wrong",
        means=(
            "Some models keep the numbers 0, 1, 2, ... of their positions as a tensor. Whoever casts or averages a"
            " whole checkpoint, as merges of image models did, makes floats of them that are no longer whole: 76"
            " becomes 75.9, is cut to 75, and two positions read the same row. Nothing fails; a few words are read in"
            " the wrong place."
        ),
        cases=("AUTOMATIC1111/stable-diffusion-webui#6728 (2023)", "AUTOMATIC1111/stable-diffusion-webui#7450 (2023)"),
    ),
    "stored-frequencies": Rule(
        "note",
        _frequencies,
        "Nothing to mend. Who writes the checkpoint anew may leave the tensors out.",
        title="Rates stored in the checkpoint",
        means=(
            "The checkpoint holds the rates (inv_freq), as those of Llama 2 do. Recent readers ignore them and compute"
            " the rates from the config; very old ones load them. They are the declared ones here, so it makes no"
            " difference."
        ),
        cases=("huggingface/transformers#35255",),
    ),
}
