"""What a loaded module holds, where that is not what its own config declares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, stated
from clockhands.faults import FAULTS

_NO_KEY = "the config is right, and what the loaded module holds is not."
_AGAIN = (
    "Load the model again, and look at what was done to it since it was made: the values are computed, not loaded, so"
    " whoever moves or empties a module has to compute them again."
)


def _place(evidence: Evidence) -> str:
    name = next((name.removeprefix("model:") for name, _ in stated(evidence)), "the module")
    more = evidence.get("tensors", 1) - 1
    return name + (f" and {spoken(more)} more like it" if more > 0 else "")


def _what(evidence: Evidence) -> str:
    return str(evidence.get("what", "rates"))


def _head(evidence: Evidence) -> str:
    return f"The {_what(evidence)} in {_place(evidence)}"


def _at(evidence: Evidence) -> str:
    """Where the numbers part most."""
    if "declared" not in evidence or "stored" not in evidence:
        return ""
    stored, declared = spoken(evidence["stored"]), spoken(evidence["declared"])
    if "head" in evidence:
        return f"that of head {spoken(evidence['head'])} is {stored}, where {declared} is right"
    if "position" in evidence:
        wave = evidence.get("wave", "cosine")
        pair, position = spoken(evidence["pair"]), spoken(evidence["position"])
        return f"the {wave} of pair {pair} at position {position} is {stored}, where the config says {declared}"
    return f"pair {spoken(evidence['pair'])} turns by {stored} rad a token, where the config says {declared}"


def _uninitialised(evidence: Evidence) -> str:
    wrong, pairs = spoken(evidence["wrong"]), spoken(evidence["pairs"])
    unit = evidence.get("of", "pairs")
    partly = ", or not all of them" if evidence["wrong"] < evidence["pairs"] else ""
    where = f": {_at(evidence)}" if _at(evidence) else ""
    return (
        f"{_head(evidence)} were never filled{partly}: {wrong} of {pairs} {unit} hold what nothing computes, such as"
        f" what the memory held before{where}."
    )


def _zero(evidence: Evidence) -> str:
    return f"{_head(evidence)} are all zero: nothing turns, and no position can be told from another."


def _rounded_too(evidence: Evidence) -> str:
    return f" They are rounded to {evidence['rounded to']} as well." if evidence.get("rounded to") else ""


def _unscaled(evidence: Evidence) -> str:
    base = f" of base {spoken(evidence['base'])}" if evidence.get("base") else ""
    declared = evidence.get("declared factor")
    factors = f" The factor in effect is 1, the declared one {spoken(declared)}." if declared else ""
    return (
        f"{_head(evidence)} are those{base} without the scaling that the config declares ({_at(evidence)})."
        f"{factors}{_it_is(evidence)}{_rounded_too(evidence)}"
    )


def _twice(evidence: Evidence) -> str:
    factors = ""
    if evidence.get("declared factor"):
        effect, declared = spoken(evidence["effective factor"]), spoken(evidence["declared factor"])
        factors = f" The slowest pair is slowed by {effect}, where {declared} is declared."
    return f"{_head(evidence)} are scaled twice ({_at(evidence)}).{factors}{_rounded_too(evidence)}"


def _other_factor(evidence: Evidence) -> str:
    effect, declared = spoken(evidence["effective factor"]), spoken(evidence["declared factor"])
    return (
        f"{_head(evidence)} are scaled by {effect}, where the config declares {declared} ({_at(evidence)})."
        f"{_rounded_too(evidence)}"
    )


def _other_scaling(evidence: Evidence) -> str:
    factor = f" by {spoken(evidence['effective factor'])}" if evidence.get("effective factor") else ""
    return (
        f"{_head(evidence)} have the scaling {evidence['scaling in effect']}{factor}, where the config declares"
        f" {evidence['declared scaling']} ({_at(evidence)}).{_rounded_too(evidence)}"
    )


def _other_base(evidence: Evidence) -> str:
    dropped = ", without the declared scaling" if evidence.get("scaling dropped") else ""
    if evidence.get("scaled twice"):
        dropped = ", scaled twice"
    elif evidence.get("effective factor"):
        dropped = f", scaled by {spoken(evidence['effective factor'])}"
    return (
        f"{_head(evidence)} are those of base {spoken(evidence['base in effect'])}{dropped}, where the config declares"
        f" {spoken(evidence['declared base'])} ({_at(evidence)}).{_rounded_too(evidence)}"
    )


def _it_is(evidence: Evidence) -> str:
    return f" What it holds is {evidence['it is']}." if evidence.get("it is") else ""


def _other_width(evidence: Evidence) -> str:
    held, declared = spoken(evidence["pairs"]), spoken(evidence["declared pairs"])
    return f"{_head(evidence)} are for {held} pairs, where the config declares {declared}.{_it_is(evidence)}"


def _mutated(evidence: Evidence) -> str:
    sizes = evidence["pairs by layer"]
    told = ", ".join(f"{spoken(size)} in layer {layer}" for layer, size in list(sizes.items())[:4])
    return (
        f"{_head(evidence)} become fewer with depth ({told} pairs), where the config declares"
        f" {spoken(evidence['declared pairs'])} in all: each layer has changed an object that they share."
    )


def _differs(evidence: Evidence) -> str:
    return f"{_head(evidence)} are not what the config declares: {_at(evidence)}.{_it_is(evidence)}"


def _rounded(evidence: Evidence) -> str:
    off = ""
    if evidence.get("phase error"):
        end = spoken(evidence["context"])
        off = f"; phases are off by up to {evidence['phase error']:.2g} rad at the end of the context of {end}"
    of = f" of their {evidence['of']}" if evidence.get("of") else ""
    return f"{_head(evidence)} are the declared ones rounded to {evidence['rounded to']}{of}: {_at(evidence)}{off}."


def _on_meta(evidence: Evidence) -> str:
    return (
        f"{_head(evidence)} have a shape and no numbers (they are on the meta device), while the rest of the model has"
        " been loaded: whatever stands in for them is not what the config declares."
    )


def _inert(evidence: Evidence) -> str:
    factor = evidence.get("declared factor")
    declared = f" by {spoken(factor)}" if factor else ""
    module = _place({**evidence, "tensors": 1}).rpartition(".")[0] or "the module"
    built = f" (it says of itself that it is {spoken(evidence['built as'])})" if evidence.get("built as") else ""
    return (
        f"The config declares a {evidence['scaling']} scaling{declared}, but {module} was built without one"
        f"{built}: a config that is changed after the model is made changes no number in it."
    )


def _attention(evidence: Evidence) -> str:
    name, kept = next((name.removeprefix("model:"), value) for name, value in stated(evidence))
    return (
        f"Cosine and sine are multiplied by {spoken(kept)} ({name}), where {spoken(evidence['declared'])} follows from"
        " the config."
    )


def _ids(evidence: Evidence) -> str:
    kind = f" as {evidence['dtype']}" if "float" in evidence["dtype"] else ""
    if "wrong" not in evidence:
        return (
            f"The numbers of positions in {_place(evidence)} are held{kind}, where rows are found by whole numbers: the"
            " next cast rounds them."
        )
    are = "is" if evidence["wrong"] == 1 else "are"
    return (
        f"The {spoken(evidence['count'])} numbers of positions in {_place(evidence)} are held{kind}, and"
        f" {spoken(evidence['wrong'])} of them {are} wrong: position {spoken(evidence['first wrong'])} is"
        f" {spoken(evidence['stored'])}."
    )


def _table(evidence: Evidence) -> str:
    return (
        f"The table of positions in {_place(evidence)} was never filled: its numbers go from"
        f" {spoken(evidence['least'])} to {spoken(evidence['most'])} in size, as those of no table do that is random or"
        " trained."
    )


def _zero_rows(evidence: Evidence) -> str:
    rows = spoken(evidence["rows"])
    return (
        f"All {rows} rows of {_place(evidence)} are zero, and can be trained: so does training of image models begin."
    )


def _differing_slopes(evidence: Evidence) -> str:
    it_is = f" They are {evidence['it is']}." if evidence.get("it is") else ""
    return f"{_head(evidence)} are not those of so many heads: {_at(evidence)}.{it_is}"


def _dtype(evidence: Evidence) -> str:
    held, right = evidence["dtype"], evidence["right"]
    if evidence.get("exact"):
        return f"{_head(evidence)} are held in {held}, where {right} is usual; none of these happens to be rounded."
    return (
        f"{_head(evidence)} are held in {held}, while the model computes in {right}: they were made for another type"
        f" and kept, and are off by up to {evidence['error']:.2g}."
    )


def _dtype_severity(evidence: Evidence) -> str:
    return "note" if evidence.get("exact") else "warning"


def _persistent(evidence: Evidence) -> str:
    return f"{_head(evidence)} are written with the weights, although they are computed: a loader may keep stale ones."


def _effect(evidence: Evidence) -> str:
    more = evidence.get("parts", 1) - 1
    name = str(evidence.get("module") or "the module") + (f" (and {spoken(more)} more like it)" if more > 0 else "")
    behaves = f" It behaves as {evidence['behaves as']}." if evidence.get("behaves as") else ""
    return f"What {name} turns by is not what the config declares: {_at(evidence)}.{behaves}"


def _rule(
    severity: Any, sentence: Any, title: str, means: str, *, hint: str = _AGAIN, cases: tuple[str, ...] = ()
) -> Rule:
    return Rule(severity, sentence, hint, blames="module", unmended=_NO_KEY, title=title, means=means, cases=cases)


_RULES: Mapping[str, Rule] = {
    "buffer-uninitialised": _rule(
        "error",
        _uninitialised,
        "Rates of a loaded model that nobody filled",
        (
            "A model that is made on the meta device and moved with `to_empty` has memory in place of numbers: weights"
            " are loaded into it, but rates stand in no checkpoint and have to be computed again. Where nobody does,"
            " queries and keys are turned by whatever the memory held. Nothing fails: the loss is that of chance, or"
            " text is garbage after a few words."
        ),
        cases=(
            "pytorch/torchtitan#4783 (September 2026)",
            "unslothai/unsloth#4112 (February 2026)",
            "Synthyra/FastPLMs#47 (2026)",
        ),
    ),
    "buffer-zero": _rule(
        "error",
        _zero,
        "Rates of a loaded model that are zero",
        (
            "With rates of zero every cosine is 1 and every sine 0, so nothing is turned and the model sees a bag of"
            " words. It comes of a buffer that was emptied or replaced by zeros when the model was loaded. Short"
            " answers may still look right."
        ),
        cases=("amazon-science/chronos-forecasting#491 (April 2026)",),
    ),
    "buffer-unscaled": _rule(
        "error",
        _unscaled,
        "Rates of a loaded model without the declared scaling",
        (
            "The rates are those of the base alone, and the config declares a scaling with which the model was trained."
            " Repairs that compute rates again after loading often write these. Short texts hardly show it, and the"
            " loss on long ones is several times what it should be."
        ),
        cases=("unslothai/unsloth#6907 (July 2026)",),
    ),
    "buffer-scaled-twice": _rule(
        "error",
        _twice,
        "Rates of a loaded model that are scaled twice",
        (
            "The scaling was applied to rates that had it already, so slow pairs are slowed by the square of the"
            " factor. It happens where a repair or a patch scales what the class has scaled. The model behaves as one"
            " that was extended without training."
        ),
    ),
    "buffer-of-another-factor": _rule(
        "error",
        _other_factor,
        "Rates of a loaded model scaled by another factor",
        (
            "The rates have the declared kind of scaling by another factor. The config was changed after the model was"
            " made, or the rates come from another model. Texts within the original length may look right."
        ),
    ),
    "buffer-of-another-base": _rule(
        "error",
        _other_base,
        "Rates of a loaded model from another base",
        (
            "The rates are a sound ladder of another base than the config's. A class took its default because it looked"
            " for the base under another name, a cache gave the ladder of another model, or the config was changed"
            " after the model was made. The model was trained with one of the two, and is wrong with the other."
        ),
        cases=("paiml/aprender#1607",),
    ),
    "buffer-of-another-scaling": _rule(
        "error",
        _other_scaling,
        "Rates of a loaded model with another type of scaling",
        (
            "The rates are those of the declared base with another type of scaling than the config declares: linear"
            " where YaRN is declared, for example. Fast and slow pairs are then slowed by other amounts than in"
            " training. Short texts may look right; the loss on long ones is higher."
        ),
    ),
    "buffer-of-another-width": _rule(
        "error",
        _other_width,
        "Rates of a loaded model for another number of pairs",
        (
            "The ladder has another number of rates than the channels that the config says turn. A share that only part"
            " of a head turns was dropped or applied twice, or a cache gave the ladder of another model. Most code"
            " fails on it; code that broadcasts does not."
        ),
    ),
    "shared-object-mutated": _rule(
        "error",
        _mutated,
        "Rates that become fewer from layer to layer",
        (
            "Layers were given one object that says how many channels turn, and each of them changed it, so the second"
            " layer turns half as many as the first and the third a quarter. The first layer is right, which is what"
            " tests look at."
        ),
        cases=("vllm-project/vllm#16904 (April 2025)",),
    ),
    "buffer-differs": _rule(
        "error",
        _differs,
        "Rates of a loaded model that are not the declared ones",
        (
            "The rates are a ladder, but not the one that the config declares, by more than rounding in float32"
            " explains. The model turns queries and keys by these numbers, whatever its config says."
        ),
    ),
    "buffer-on-meta": _rule(
        "error",
        _on_meta,
        "Rates of a loaded model that have no numbers",
        (
            "A part of the model was left on the meta device, where tensors have shapes only. Code that copies such a"
            " cache, or shares it with another model, leaves queries unturned without a word."
        ),
        cases=("sgl-project/sglang#33575 (August 2026)",),
    ),
    "slopes-differ": _rule(
        "error",
        _differing_slopes,
        "Slopes of a loaded model that are not those of its heads",
        (
            "Each head lowers its scores by a slope of its own for every token of distance, and the slopes follow from"
            " the number of heads. They begin at a half for eight heads, and for numbers that are no power of two they"
            " are two series, not one. A model that was trained with these slopes is wrong with others, most of all on"
            " long texts."
        ),
        cases=("paiml/aprender#2143 (June 2026)", "ml-explore/mlx#3071 (January 2026)"),
    ),
    "attention-factor-differs": _rule(
        "error",
        _attention,
        "A loaded model whose factor on cosine and sine is another",
        (
            "YaRN and LongRoPE multiply cosine and sine by a factor, which makes attention sharper. The loaded module"
            " has another one than follows from its config, so all scores of turned channels are off by its square."
        ),
    ),
    "ids-of-floats": _rule(
        "error",
        _ids,
        "Position numbers of a loaded model that are floats, or wrong",
        (
            "Some models keep the numbers 0, 1, 2, ... of their positions as a tensor. A cast or a merge of the whole"
            " model makes floats of them, which are rounded, so that two positions read one row; or they were never"
            " filled. A few words are read in the wrong place."
        ),
        cases=("AUTOMATIC1111/stable-diffusion-webui#6728 (2023)", "AUTOMATIC1111/stable-diffusion-webui#7450 (2023)"),
    ),
    "table-uninitialised": _rule(
        "error",
        _table,
        "A table of positions that nobody filled",
        (
            "A table of rows for positions holds whatever the memory held before, not random numbers of an"
            " initialisation and not trained ones. It comes of a model that was made on the meta device and emptied,"
            " whose checkpoint has the table under another name or not at all."
        ),
    ),
    "rotation-differs": _rule(
        "error",
        _effect,
        "A loaded model that turns otherwise than declared",
        (
            "A part of the model was copied and asked for the cosines and sines of a few positions, near and far. They"
            " are not those that follow from the config, by more than the arithmetic of their type explains, although"
            " what the part holds is right or cannot be seen."
        ),
        hint="Look at how the part computes its phases: in which type, from which positions, and by which rates.",
    ),
    "scaling-inert": _rule(
        "warning",
        _inert,
        "A scaling that the config declares and the loaded model lacks",
        (
            "Rates are computed when a model is made. Who sets a scaling in the config of a model that is loaded"
            " already changes nothing: answers are the same byte by byte, and lengths past the original one are as bad"
            " as before."
        ),
        cases=("MakazhanAlpamys/Soup#793 (September 2026)",),
    ),
    "buffer-rounded": _rule(
        "warning",
        _rounded,
        "Rates of a loaded model rounded to few bits",
        (
            "Casting a whole model to bfloat16 or float16 casts its computed rates too, to 8 or 11 bits, and casting"
            " back does not undo it. Phases are then off by a share of the position: nothing to see at the start of a"
            " text, radians at its end. Loading with the type that is wanted (`from_pretrained(...,"
            " dtype=torch.bfloat16)` in Transformers) keeps the rates in float32."
        ),
        cases=("NVIDIA-NeMo/Automodel#2549 (June 2026)",),
    ),
    "buffer-of-another-dtype": _rule(
        _dtype_severity,
        _dtype,
        "Computed positions of a loaded model in another type",
        (
            "What is computed is held in a type of fewer bits than the model computes in. A table that was made for a"
            " call in bfloat16 and kept is used for calls in float32 too, which are then no better than the first."
        ),
    ),
    "table-zero": Rule(
        "note",
        _zero_rows,
        FAULTS["table-zero"].hint,
        title="A table of positions that can be trained and is all zero",
        means=(
            "Models of images often begin with a table of zeros and learn it. Before training that is as it should be;"
            " in a trained model it says that the table was not found in the checkpoint, and then no position can be"
            " told from another."
        ),
    ),
    "buffer-persistent": Rule(
        "note",
        _persistent,
        FAULTS["buffer-persistent"].hint,
        title="Computed positions that are written with the weights",
        means=(
            "The buffer is persistent: it is written into checkpoints and loaded from them, although it follows from"
            " the config. It is right here. A checkpoint with another config's numbers, or rounded ones, would replace"
            " it."
        ),
    ),
}

CODES: Mapping[str, Rule] = {
    # What to do stands with the fault of the same code: whoever finds it gives the same advice.
    code: replace(rule, hint=FAULTS[code].hint) if code in FAULTS else rule
    for code, rule in _RULES.items()
}
