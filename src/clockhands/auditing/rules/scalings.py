"""Scalings that are unknown, incomplete, or at odds with the lengths beside them."""

import difflib
from collections.abc import Mapping

from clockhands.auditing.edits import Edit, added, moved, replaced, together
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, listed, named, said, stated


def _unknown_scaling(evidence: Evidence) -> str:
    known = f" (known: {evidence['known']})" if evidence.get("known") else ""
    near = _nearest_scaling(evidence)
    meant = f" Perhaps {spoken(near)} is meant." if near else ""
    return f"{said(evidence)}, a scaling that is not known{known}; no rates follow from it.{meant}"


def _nearest_scaling(evidence: Evidence) -> str | None:
    """The known scaling whose name is most like the unknown one, if one is like it."""
    name = next((str(value).lower() for _, value in stated(evidence)), "")
    known = str(evidence.get("known", "")).split(", ")
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def _unknown_scaling_edit(evidence: Evidence) -> Edit | None:
    place, near = next((name for name, _ in stated(evidence)), None), _nearest_scaling(evidence)
    return replaced(place, near, f"Write {spoken(near)}, if that is what was meant.") if place and near else None


_BY_ITSELF = "a scaling block with its numbers"


def _incomplete(evidence: Evidence) -> str:
    if evidence.get("missing") == _BY_ITSELF:
        return (
            f"{said(evidence)}: a scaling that only the model's own code knows the numbers of; the rates are left open."
        )
    return f"The scaling block is incomplete ({said(evidence)}): it lacks {evidence.get('missing', 'a required key')}."


def _incomplete_severity(evidence: Evidence) -> str:
    return "note" if evidence.get("missing") == _BY_ITSELF else "error"


def _missing_original(evidence: Evidence) -> str:
    return (
        f"The scaling does not say which length the model was trained on, so {spoken(evidence.get('used'))} was taken"
        f" ({said(evidence)}); if the model was trained on less, every rate that the scaling bends is wrong."
    )


def _factor(evidence: Evidence) -> str:
    product = evidence.get("factor x original")
    reach = (
        f"Factor x original length is {spoken(product)}" if product is not None else "Factor x original length differs"
    )
    if evidence.get("scaling") == "llama3":
        tail = "Models of the Llama-3 family are published so: the factor there is a tuning, not a ratio of lengths."
    elif evidence.get("switched on in"):
        tail = (
            f"The length is still that of {evidence['switched on in']}, which has no scaling: it was switched on by"
            " hand, and readers that go by the declared length do not use it."
        )
    else:
        tail = "Readers that compute one from the others disagree."
    return f"{reach}, another length than the one declared ({said(evidence)}). {tail}"


def _family(evidence: Evidence) -> str:
    return "note" if evidence.get("scaling") == "llama3" or evidence.get("switched on in") else "warning"


def _factor_edit(evidence: Evidence) -> Edit | None:
    if _family(evidence) == "note":
        return None
    reach = evidence.get("factor x original")
    place = next((name for name, _ in reversed(stated(evidence))), None)
    if place is None or not isinstance(reach, int | float) or not float(reach).is_integer():
        return None
    says = f"Declare {spoken(int(reach))} positions, which is what the scaling reaches."
    return replaced(place, int(reach), says)


def _wrong_original(evidence: Evidence) -> str:
    original, context = spoken(evidence["original"]), spoken(evidence["context"])
    if evidence["original"] > evidence["context"]:
        return (
            f"The original length of the scaling is {original}, more than the {context} positions that the model has"
            f" ({said(evidence)}): the length of the first training cannot be longer than that of the last."
        )
    if evidence.get("long list"):
        return (
            f"The original length of the scaling is {original}, as long as the whole context ({said(evidence)}), and"
            f" yet its lists differ, and the long one goes up to {spoken(evidence['long list'])}: the long list can"
            " never be reached, and the magnitude becomes 1. One of the two lengths was overwritten."
        )
    if evidence.get("first bad distance"):
        return (
            f"The original length of the scaling is {original}, as long as the whole context, but a base of"
            f" {spoken(evidence['base'])} over {spoken(evidence['pairs'])} pairs tells near from far only up to a"
            f" distance of {spoken(evidence['first bad distance'])}: the first training was far shorter, and the ramp"
            " of the scaling sits at the wrong pairs."
        )
    return (
        f"The original length of the scaling is {original}, as long as the whole context ({said(evidence)}), and yet"
        f" its factor is {spoken(evidence['factor'])}: nothing was left to stretch, or the original length was"
        " overwritten with the extended one."
    )


def _missing_scaling(evidence: Evidence) -> str:
    return (
        f"{spoken(evidence['context'])} positions are declared with a base of {spoken(evidence['base'])} and no"
        f" scaling, but with that base alone models of type {spoken(evidence['type'])} reach"
        f" {spoken(evidence['reach'])}; {evidence['release']}, which has this shape, has {evidence['its scaling']}."
        " Beyond the first training's length the slow pairs turn too far."
    )


def _released(evidence: Evidence) -> str:
    shape = f"has this shape ({evidence['shape']})" if evidence.get("shape") else "is of this type"
    return (
        f"{said(evidence) if stated(evidence) else evidence['here']}, but {evidence['release']}, which {shape}, has"
        f" {evidence['published']}: {_guess(evidence)}"
    )


def _guess(evidence: Evidence) -> str:
    if evidence.get("because"):
        return f"{evidence['because']}, and the release's was probably lost in a conversion or an export."
    return "this is another model, or one that was stretched or trained further with another ladder."


def _release_edit(evidence: Evidence) -> Edit | None:
    """The release's value in the place of what was lost; none for a model that may be meant to differ."""
    return _as_released(evidence) if evidence.get("because") else None


def _as_released(evidence: Evidence) -> Edit | None:
    place, value = evidence.get("mended at"), evidence.get("mended with")
    if not isinstance(place, str) or value is None:
        return None
    has = f"as {evidence['release']} has it, if this model was made from it."
    if evidence.get("merged") and isinstance(value, Mapping):
        numbers = listed([f"{key} {spoken(number)}" for key, number in value.items()])
        steps = (added(f"{place}.{key}", number, "") for key, number in value.items())
        return together(f"Write {numbers}, {has}", *steps)
    key = place.rpartition(":")[2].rpartition(".")[2]
    return added(place, value, f"Write {key} {spoken(value)}, {has}")


def _lists(evidence: Evidence) -> str:
    place, _ = stated(evidence)[0]
    return (
        f"{place.rpartition(':')[2]} has {spoken(evidence['numbers'])} numbers for {spoken(evidence['pairs'])} pairs"
        " that turn: it needs one for each, and no rates follow from it."
    )


def _swapped(evidence: Evidence) -> str:
    places = listed([name for name, _ in named(evidence)])
    return (
        f"The short list goes up to {spoken(evidence['largest short'])} and the long one to"
        f" {spoken(evidence['largest long'])}: {places} are swapped, because the short list has to stretch less."
    )


def _swapped_edit(evidence: Evidence) -> Edit | None:
    places = [name for name, _ in stated(evidence)]
    if len(places) != 2:
        return None
    short, long = places
    aside = f"{short.rpartition('.')[0]}.swapped"
    steps = (moved(short, aside, ""), moved(long, short, ""), moved(aside, long, ""))
    return together("Swap the two lists.", *steps)


CODES: Mapping[str, Rule] = {
    "unknown-scaling": Rule(
        "error",
        _unknown_scaling,
        "Correct the spelling, or use a release of clockhands that knows this scaling.",
        blames="file",
        edit=_unknown_scaling_edit,
        unmended="Where no known name is near, only the model's original release says what was meant.",
        title="A scaling that is not known",
        means="The block names a scaling that no known reader has. Some readers refuse the file; others go on without"
        " any scaling, and the model fails beyond the length of its first training.",
    ),
    "incomplete-scaling": Rule(
        _incomplete_severity,
        _incomplete,
        "Copy the whole block from the model's original release; readers that guess differ.",
        blames="file",
        edit=_as_released,
        unmended="The numbers that are missing stand in the model's original release only, which may not be known.",
        title="A scaling block that lacks numbers",
        means="The block names a scaling and leaves out numbers that the scaling cannot do without. Transformers 5.23.0"
        " stops with a KeyError; readers that put their own defaults in make another ladder each.",
        cases=("abhiraj1/llm-judge-llama-3.1 on the Hub",),
    ),
    "missing-original": Rule(
        "warning",
        _missing_original,
        "Add original_max_position_embeddings with the length of the first training.",
        blames="file",
        edit=_as_released,
        unmended="Which length the model was trained on, only its original release says, which may not be known.",
        title="A scaling without the length of the first training",
        means="YaRN, LongRoPE and Llama-3 scalings bend each rate by how often it turned within the first training's"
        " length. Without that length readers take max_position_embeddings, which is already the extended one: with a"
        " base of 1,000,000 and heads of 128, 131,072 instead of 32,768 moves YaRN's ramp from pairs 23 to 40 to pairs"
        " 30 to 47. Nobody warns, and outputs degrade with length.",
        cases=("hiyouga/LlamaFactory#8101",),
    ),
    "factor-times-original": Rule(
        _family,
        _factor,
        lambda evidence: (
            IF_SOUND
            if _family(evidence) == "note"
            else "Make the three numbers agree with the model's original release."
        ),
        blames=lambda evidence: None if _family(evidence) == "note" else "ambiguous",
        edit=_factor_edit,
        unmended="In the Llama-3 family, and where a scaling was switched on by hand, nothing is wrong.",
        title="Factor x original length is not the declared length",
        means="A YaRN or LongRoPE block says by what factor which length was stretched, and the config what came of"
        " it. Where the three disagree, readers that compute one from the others serve another length or another"
        " ladder. Llama 3.1 to 3.3 are published so, with 8 x 8,192 beside 131,072, and are right: there it is a note.",
        cases=("NVIDIA/Megatron-LM#1418 (May 2025)",),
    ),
    "wrong-original": Rule(
        "warning",
        _wrong_original,
        "Write the length of the first training, which the model's original release names.",
        blames="file",
        unmended="Which length the model was trained on, only its original release says.",
        title="An original length that cannot be the training's",
        means="The scaling measures each rate against the length of the first training. If the extended length stands"
        " there, the ramp sits at the wrong pairs: fast ones are stretched that should not be, or slow ones are left as"
        " they were. The model loads and answers, and loses track with length.",
        cases=("NVIDIA/Megatron-LM#1418 (May 2025)",),
    ),
    "missing-scaling": Rule(
        "warning",
        _missing_scaling,
        "Copy the scaling block from the model's original release, or declare the length that the base alone reaches.",
        blames="file",
        edit=_as_released,
        unmended="Where the release's scaling has a list for each pair, copy it from the release.",
        title="A long context without the scaling that it was trained with",
        means="A scaling block is set to null or lost on export while the length that it made possible stays. Every"
        " reader then turns the slow pairs as if nothing had been stretched: short prompts are nearly unchanged, and"
        " beyond the first training's length the model falls apart.",
        cases=(
            "TroyDoesAI's copies of Llama 3.1 8B on the Hub",
            "hugging-quants' Llama 3.1 70B GPTQ on the Hub, discussion 5",
        ),
    ),
    "differs-from-release": Rule(
        lambda evidence: "warning" if evidence.get("because") else "note",
        _released,
        lambda evidence: (
            "Compare it with the model's original release, and take its value if this model was made from it."
            if evidence.get("because", True)
            else f"{IF_SOUND} If the model was not trained with another ladder, take the release's value."
        ),
        blames=lambda evidence: "file" if evidence.get("because") else None,
        edit=_release_edit,
        unmended="A model that was trained further with another ladder is right as it is.",
        title="A published model's shape with another base or scaling",
        means="The model has the type, the width, the layers, the heads and the vocabulary of a published one, and"
        " turns by another ladder than any release of that shape. Where what stands here is missing, 1 or a known"
        " default, a converter or an exporter most likely put it there: the weights were trained with the other.",
        cases=(
            "NVIDIA/Megatron-LM#6305 (August 2026)",
            "Megatron-Bridge#5097 (July 2026)",
            "ollama/ollama#12360 (September 2025)",
        ),
    ),
    "longrope-lists": Rule(
        "error",
        _lists,
        "Copy the list from the model's original release: it needs one number for each pair that turns.",
        blames="file",
        unmended="The numbers of the list stand in the model's original release only.",
        title="A LongRoPE list of the wrong length",
        means="LongRoPE divides the rate of each pair by its own number. With more or fewer numbers than pairs there is"
        " no ladder: Transformers 5.23.0 refuses such a Phi-3, and only warns for other classes. It comes of counting"
        " the whole head, say, where only a part of it turns.",
    ),
    "longrope-swapped": Rule(
        "warning",
        _swapped,
        "Swap the two lists; the long one has the larger numbers.",
        blames="file",
        edit=_swapped_edit,
        title="LongRoPE's short and long list are swapped",
        means="The short list is for texts within the first training's length and stretches little or nothing; the long"
        " one is for those beyond. Swapped, the model is wrong on every short text, and wrong the other way round on"
        " long ones. Transformers 5.23.0 does not check it.",
        cases=("lablup/mlxcel#1580 (September 2026)",),
    ),
}
