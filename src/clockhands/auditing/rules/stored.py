"""Rates and position numbers that a checkpoint stores although models compute them."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, stated


def _where(evidence: Evidence) -> str:
    place = next((name for name, _ in stated(evidence)), "the checkpoint")
    count = evidence.get("tensors", 1)
    others = "" if count == 1 else f" and {spoken(count - 1)} more tensor{'s' if count > 2 else ''}"
    return f"{place}{others}"


def _frequencies(evidence: Evidence) -> str:
    rounded = ""
    if evidence.get("rates"):
        rounded = (
            f" They are rounded to {evidence['dtype']}: off by up to {evidence['error']:.2g} of a rate, which makes"
            f" {evidence['phase error']:.2g} rad at the end of the context for a reader that loads them."
        )
    return (
        f"The checkpoint stores rates ({_where(evidence)}), which recent readers leave aside and compute from the"
        f" config.{rounded}"
    )


def _frequencies_differ(evidence: Evidence) -> str:
    head = f"The checkpoint stores rates ({_where(evidence)}) that are not what its config declares"
    if "pairs" in evidence:
        return f"{head}: {spoken(evidence['stored pairs'])} numbers for {spoken(evidence['pairs'])} pairs."
    off = (
        f"pair {evidence['pair']} turns by {spoken(evidence['stored'])} rad a token there, by"
        f" {spoken(evidence['declared'])} by the config"
    )
    if evidence.get("unscaled"):
        return f"{head}: they are the ladder of base {spoken(evidence['base'])} without the declared scaling ({off})."
    return f"{head}: {off}."


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


CODES: Mapping[str, Rule] = {
    "stored-frequencies-differ": Rule(
        "warning",
        _frequencies_differ,
        "Find out which of the two the model was trained with; take the tensors out, or correct the config.",
        blames="file",
        unmended="The tensors are wrong, or the config is, and the files do not say which.",
        title="Stored rates that are not the declared ones",
        means=(
            "Older libraries kept the rates (inv_freq) in the checkpoint and loaded them; newer ones compute them from"
            " the config. Where the two differ, old and new readers run different models. Rates of zeros or of garbage"
            " are buffers that were never filled, and rates without the declared scaling were often written by a repair"
            " that forgot it."
        ),
        cases=("amazon-science/chronos-forecasting#491 (April 2026)", "unslothai/unsloth#6907 (July 2026)"),
    ),
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
            " the rates from the config; very old ones load them. They are the declared ones here, at most rounded, so"
            " it makes no difference, or hardly any."
        ),
        cases=("huggingface/transformers#35255",),
    ),
}
