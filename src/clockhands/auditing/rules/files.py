"""Files of one folder that say different things."""

from collections.abc import Mapping

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule


def _disagree(evidence: Evidence) -> str:
    places = [(name, value) for name, value in evidence.items() if ":" in name or name.startswith("config.json (")]
    told = " but ".join(f"{name} is {spoken(value)}" for name, value in places)
    if "here" in evidence:
        return (
            f"Two files disagree about the {evidence['what']}: {told}, by which cosine and sine are multiplied by"
            f" {spoken(evidence['there'])} and not by {spoken(evidence['here'])}."
        )
    tail = "readers of the one and of the other build different models."
    if evidence.get("lost"):
        tail = "in one of them the scaling was lost, so that its readers turn the slow pairs wrongly."
    if "taken" in evidence:
        told += f", for which {evidence['taken by']}, takes {spoken(evidence['taken'])}"
    ratio = f" A rate is {spoken(evidence['ratio'])} times the other at most;" if evidence.get("ratio") else ""
    return f"Two files disagree about the {evidence['what']}: {told};{ratio} {tail}".replace("; A", ". A")


CODES: Mapping[str, Rule] = {
    "files-disagree": Rule(
        "warning",
        _disagree,
        "Find out which file the model was trained by, usually the oldest, and convert the other again.",
        blames="ambiguous",
        unmended="Which of the files is right, only the model's release says.",
        title="Two files of one folder disagree",
        means=(
            "A folder often holds the same model twice: a config.json and the params.json or GGUF file that it was"
            " converted from or to. Conversion loses scalings, switches and layers without a word, and readers of"
            " either file then run different models. It shows as a quality that depends on the program, mostly at long"
            " texts."
        ),
        cases=("ggml-org/llama.cpp#22612 (May 2026)", "NVIDIA-NeMo/Megatron-Bridge#5097 (July 2026)"),
    ),
}
