"""What GGUF files lack or hold twice."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, listed, stated

_AGAIN = "Convert the model again with a current converter"


def _missing(evidence: Evidence) -> str:
    return (
        f"A {evidence['architecture']} file with a base of {spoken(evidence['base'])} and a context of"
        f" {spoken(evidence['context'])} is of the kind of {evidence['release']}, which has {evidence['scaling']}, but"
        " the tensor rope_freqs.weight that holds it is not there: the slow pairs turn too fast, and text falls apart"
        f" past about {spoken(evidence['reach'])} positions."
    )


def _differ(evidence: Evidence) -> str:
    head = f"The {evidence['pairs']} numbers of rope_freqs.weight, which divide the rates,"
    if evidence["because"] == "all are 1":
        return (
            f"{head} are all 1 and scale nothing, but {evidence['release']}, which has this base and context, has"
            f" {evidence['scaling']}."
        )
    if evidence["because"] == "applied twice":
        keys = listed([f"{name.rpartition(':')[2]} is {spoken(value)}" for name, value in _keys(evidence)])
        return (
            f"{head} go up to {spoken(evidence['largest'])}, and {keys} as well: readers apply both, and the slow pairs"
            " turn too slowly."
        )
    return (
        f"{head} go from {spoken(evidence['first'])} to {spoken(evidence['last'])}, at most"
        f" {spoken(evidence['largest'])}, as no llama3 scaling does, and are no list of LongRoPE either."
    )


def _keys(evidence: Evidence) -> list[tuple[str, object]]:
    return [(name, value) for name, value in stated(evidence) if "rope_freqs" not in name]


def _lists(evidence: Evidence) -> str:
    keys = listed([f"{name.rpartition(':')[2]} is {spoken(value)}" for name, value in stated(evidence)])
    return (
        f"{keys}, as in a model that LongRoPE extended, but"
        f" {listed(list(evidence['missing']))} {'is' if len(evidence['missing']) == 1 else 'are'} not there: readers"
        " leave the rates as they are, and the model fails past its first length."
    )


def _dimension_count(evidence: Evidence) -> str:
    width, architecture = spoken(evidence["width"]), evidence["architecture"]
    if evidence["declared"] is None:
        return (
            f"{architecture}.rope.dimension_count is not there, so readers turn all {width} channels of a head; in"
            f" releases of this architecture {spoken(evidence['expected'])} turn."
        )
    right = f"; in releases of this architecture {spoken(evidence['expected'])} turn" if "expected" in evidence else ""
    return (
        f"{architecture}.rope.dimension_count is {spoken(evidence['declared'])}, but a head has {width}"
        f" channels{right}."
    )


def _dimension_edit(evidence: Evidence) -> Edit | None:
    if "expected" not in evidence:
        return None
    key = f"{evidence['architecture']}.rope.dimension_count"
    file = next((name.partition(":")[0] for name, _ in stated(evidence)), evidence.get("file"))
    return Edit(f"Set {key} to {spoken(evidence['expected'])}.", file)


CODES: Mapping[str, Rule] = {
    "rope-freqs-missing": Rule(
        "warning",
        _missing,
        f"{_AGAIN}: it writes rope_freqs.weight for models with a llama3 scaling.",
        blames="file",
        unmended="A tensor is missing, and no key stands for it.",
        title="A GGUF file of a scaled Llama without its divisors",
        means=(
            "GGUF has no key for the scaling of Llama 3.1 to 3.3. Converters write what each rate is divided by as the"
            " tensor rope_freqs.weight; without it the model turns as Llama 3 did. Nothing fails up to 8,192 positions,"
            " so short tests pass. At 32,768 perplexity was 2,916 instead of 5.50 for a model of 1B, 5.22 instead of"
            " 3.20 for one of 8B."
        ),
        cases=("ikawrakow/ik_llama.cpp#2291 (August 2026)", "ikawrakow/ik_llama.cpp#402 (May 2025)"),
    ),
    "rope-freqs-differ": Rule(
        "warning",
        _differ,
        f"{_AGAIN}, or take the scaling keys out where the tensor holds the scaling already.",
        blames="file",
        unmended="The numbers of a tensor are wrong, or one of two scalings has to go: the file does not say which.",
        title="Divisors of the rates that no scaling gives, or that are applied twice",
        means=(
            "rope_freqs.weight divides the rates of each pair. By the llama3 formula its numbers rise from 1 to the"
            " factor along a curve with one bend; a slip in that formula, or a tensor of another model, gives others."
            " Where a scaling stands in the keys too, readers apply both. Either way the slow pairs turn wrongly, which"
            " shows at long texts only."
        ),
        cases=("ggml-org/llama.cpp#8676",),
    ),
    "longrope-factors-missing": Rule(
        "warning",
        _lists,
        f"{_AGAIN}: it writes rope_factors_long.weight and rope_factors_short.weight.",
        blames="file",
        unmended="Tensors are missing, and no key stands for them.",
        title="A LongRoPE model without its lists",
        means=(
            "LongRoPE slows each pair by a number of its own, found by a search: one list up to the first length, one"
            " beyond. GGUF holds both as tensors. Without them readers multiply cosine and sine by the model's factor"
            " but leave the rates alone, so that the model works up to its first length, about, and fails past it."
        ),
    ),
    "dimension-count": Rule(
        "warning",
        _dimension_count,
        "Set the key to the channels that turn in the model's original config (a share of a head, or all of it).",
        blames="file",
        edit=_dimension_edit,
        unmended="Where no release of the architecture is known, its original config says how many channels turn.",
        title="A number of turned channels that is no share of a head",
        means=(
            "rope.dimension_count says how many channels of a head turn, and the rates follow from it. Doubled, halved"
            " or absent, every rate but the first is wrong and channels turn that should stand still. The model writes"
            " text that is fluent at first and does not hold together, or garbage."
        ),
        cases=("ggml-org/llama.cpp#5460", "ggml-org/llama.cpp#3773", "ngxson/llama.cpp#100"),
    ),
}
