"""How the weights pair channels, where that is not how readers of the file pair them."""

from collections.abc import Mapping
from typing import Any

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule

_PAIRED = {"interleaved": "neighbouring rows (interleaved)", "halves": "rows half a head apart (halves)"}


def _z(value: Any) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _pairing(evidence: Evidence) -> str:
    layout, readers = evidence["layout in the weights"], evidence["layout of readers"]
    sure = f", confidence {evidence['confidence']:.2f}" if evidence.get("confidence") else ""
    z = f"z {_z(evidence['z'])} against {_z(evidence['z of the other'])}{sure}"
    if evidence.get("projection"):
        who = f"The keys pair {_PAIRED[layout]}, {z}, and the queries {_PAIRED[evidence['queries']]}"
    elif evidence.get("other layers"):
        count, all_of_them = evidence["layers that pair so"], evidence["layers looked at"]
        who = f"{count} of {all_of_them} layers pair {_PAIRED[layout]}, at most {z}, and the others"
        who += f" {_PAIRED[evidence['other layers']]}"
    else:
        who = f"The weights of {evidence['layers looked at']} layers pair {_PAIRED[layout]}, {z}"
    because = str(evidence["because"])
    by = f"the {because}" if because.startswith("architecture") else because
    return f"{who}, but readers of this file pair {_PAIRED[readers]}, by {by}."


def _permuted(evidence: Evidence) -> str:
    heads, undone = spoken(evidence["heads"]), spoken(evidence["put in order for heads"])
    also = "".join(f" or {count}" for count in evidence["or for heads"])
    for_heads = f"{undone}{also} head{'' if undone + also == '1' else 's'}"
    return (
        f"The rows of the {evidence['projection']} are in order for {for_heads}, where there are {heads}: with that"
        f" undone they pair {_PAIRED[evidence['layout once undone']]}, z {_z(evidence['z once undone'])}; as they stand"
        f" no layout explains them as well, z at most {_z(evidence['z as they stand'])}."
    )


CODES: Mapping[str, Rule] = {
    "pairing-against-format": Rule(
        "warning",
        _pairing,
        "Convert the file again from its source, or move the rows of q and k with `clockhands convert`; a reader that"
        " can be told the layout may be told instead.",
        blames="file",
        unmended="the rows of the weights have to move, and no key says how they lie.",
        title="Weights that pair channels otherwise than readers of the file do",
        means=(
            "The same weights have their rows in one order in safetensors files of most types and in another in GGUF"
            " files of some: a pair is two rows half a head apart, or two neighbours. Whoever takes one for the other"
            " turns rows together that do not belong together. The first tokens look right, the rest is garbage: 11 to"
            " 35 in perplexity for a small model, 2.4 to 3.2 nats a token for another. How the weights pair is read off"
            " the weights themselves, with a confidence of at most 0.99."
        ),
        cases=("ooples/AiDotNet#2074 (2026-08)", "jzhang38/TinyLlama#24 (2023-09)"),
    ),
    "permuted-heads": Rule(
        "warning",
        _permuted,
        "Convert the model again, with the number of key heads for k and of query heads for q.",
        blames="file",
        unmended="the rows of the weights have to move, and no key says how they lie.",
        title="Rows put in order for another number of heads",
        means=(
            "A converter that moves rows from one pairing to the other needs the number of heads: that of the keys for"
            " keys, which is smaller in most models since Llama 2. Told another number it moves rows across pairs, and"
            " the model writes gibberish. Where the wrong number happens to be the right one, as in Llama-2-70B (64"
            " heads over 8), nobody notices until a smaller model is converted."
        ),
        cases=(
            "ggml-org/llama.cpp#3364 (2023-09)",
            "huggingface/transformers#31766 (2024-07)",
            "huggingface/transformers#31788 (2024-07)",
        ),
    ),
}
