"""What a file says rightly and some reader takes otherwise."""

from collections.abc import Mapping, Sequence

from clockhands.auditing.edits import Edit, copied, moved, replaced, together
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, listed, named, said, stated


def _readers(value: object, otherwise: str) -> str:
    names = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    return listed([str(name) for name in names]) if names else otherwise


def _new_shape(evidence: Evidence) -> str:
    apart = ""
    if evidence.get("largest ratio") is not None:
        apart = (
            f" The rates of pair {evidence['pair']} are then {_times(evidence['largest ratio'])} times apart, and a"
            f" pair is off by a radian from distance {spoken(evidence['off by a radian from'])} on."
        )
    if evidence.get("fails"):
        # The class fails where it is called; what goes by its config alone does not.
        return (
            f"What the positions need stands in rope_parameters alone, where {evidence['reader']} does not look."
            f" {evidence['fails']} What is built on releases of that age, and goes by its config alone, takes"
            f" {evidence['read instead']} instead of {evidence['right']}, without a warning.{apart}"
        )
    return (
        f"What the positions need stands in rope_parameters alone. {evidence['reader']}, and what is built on"
        f" releases of that age, does not look there: it takes {evidence['read instead']} instead of"
        f" {evidence['right']}, without a warning.{apart}"
    )


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _new_shape_edit(evidence: Evidence) -> Edit | None:
    """The same in the old shape as well."""
    held = evidence.get("in the old shape")
    if not isinstance(held, Mapping) or not held:
        return None
    keys = listed([to.rpartition(":")[2] for to in held])
    return together(
        f"Write the same in the old shape as well, under {keys}.",
        *(copied(place, to, "") for to, place in held.items()),
    )


def _legacy(evidence: Evidence) -> str:
    apart = ""
    if evidence.get("largest ratio") is not None:
        apart = f", pair {evidence['pair']} by {_times(evidence['largest ratio'])} times"
    return (
        f"{said(evidence)}: two bases for two kinds of layers, in keys of the old shape only. A reader that knows"
        f" one of the keys gives all layers the same base, and so turns the others at wrong rates{apart}."
    )


def _uncommon_name(evidence: Evidence) -> str:
    name = next(spoken(value) for place, value in stated(evidence) if place.endswith("type"))
    refused = _readers(evidence.get("refused by"), "")
    refuses = f" {refused} {'refuse' if ' and ' in refused else 'refuses'} it." if refused else ""
    product = evidence.get("length x factor")
    twice = ""
    if product is not None:
        context = next(value for place, value in stated(evidence) if place.endswith("max_position_embeddings"))
        factor = next(value for place, value in stated(evidence) if place.endswith("factor"))
        twice = (
            f" A reader that knows the length to hold the factor for common names only, such as vLLM 0.11.0, takes"
            f" {spoken(context)} x {spoken(factor)} = {spoken(product)} positions."
        )
    common = spoken(evidence["common name"])
    return f"The scaling is called {name}, which only some readers know; the common name is {common}.{refuses}{twice}"


def _uncommon_name_edit(evidence: Evidence) -> Edit | None:
    place = next((place for place, _ in stated(evidence) if place.endswith("type")), None)
    if place is None:
        return None
    return replaced(place, evidence["common name"], f"Call it {spoken(evidence['common name'])}.")


def _explicit(evidence: Evidence) -> str:
    (written,) = (value for _, value in stated(evidence))
    readers = _readers(evidence.get("readers"), "")
    who = f"{readers} {'drop' if ' and ' in readers else 'drops'} the key and" if readers else "A reader that drops it"
    verb = "take" if " and " in readers else "takes"
    return (
        f"attention_factor is written out as {spoken(written)}, where the scaling's own formula gives"
        f" {evidence['formula']:.4f}. {who} {verb} the formula's."
    )


def _disputed(evidence: Evidence) -> str:
    scales = " and ".join(f"{name.rpartition('.')[2]} is {spoken(value)}" for name, value in named(evidence)[:2])
    return (
        f"Disputed: what multiplies cosine and sine where {scales}. The ratio of the two magnitudes gives"
        f" {evidence['ratio']:.4f}{_computed_by(evidence, 'ratio')}; the formula of YaRN's paper, 0.1 ln(factor) + 1,"
        f" gives {evidence['formula']:.4f}{_computed_by(evidence, 'formula')}. This audit shows the ratio and gives no"
        " verdict."
    )


def _computed_by(evidence: Evidence, name: str) -> str:
    return f" ({_readers(evidence.get(f'readers of the {name}'), 'none of the readers described here does so')})"


def _softmax(evidence: Evidence) -> str:
    releases = {name: value for name, value in evidence.items() if isinstance(value, bool)}
    does = [name for name, value in releases.items() if value]
    lacks = [name for name, value in releases.items() if not value]
    words = [f"{listed(does)} {'do' if len(does) > 1 else 'does'} so for this type"] if does else []
    words += [f"{listed(lacks)} {'do' if len(lacks) > 1 else 'does'} not"] if lacks else []
    who = f" {', '.join(words)}." if words else ""
    return (
        f"mscale_all_dim asks for a factor on the scores as well, (0.1 mscale_all_dim ln(factor) + 1)^2 ="
        f" {evidence['scale of the scores']:.3f}, and no ladder shows it.{who}"
    )


def _betas(evidence: Evidence) -> str:
    readers = _readers(evidence.get("readers"), "readers with constants")
    takes = "takes" if readers and " and " not in readers and readers != "readers with constants" else "take"
    pairs = ""
    if evidence.get("first pair") is not None:
        pairs = (
            f" With those, pairs {evidence['first pair']} to {evidence['last pair']} turn at other rates, up to"
            f" {_times(evidence['largest ratio'])} times apart."
        )
    return (
        f"The ramp of YaRN is not the usual one ({said(evidence)}): {readers} {takes} beta_fast 32, beta_slow 1 and a"
        f" ramp between whole pairs, whatever the file says.{pairs}"
    )


def _misplaced(evidence: Evidence) -> str:
    refused = _readers(evidence.get("refused by"), "")
    refuses = f"; {refused} {'refuse' if ' and ' in refused else 'refuses'} the block so" if refused else ""
    return (
        f"{said(evidence)}, inside the block, where the class of {evidence['type']} looks for it outside: a reader"
        f" finds no original length and takes another one{refuses}."
    )


def _misplaced_edit(evidence: Evidence) -> Edit | None:
    place = next((place for place, _ in stated({k: v for k, v in evidence.items() if k != "outside"})), None)
    outside = evidence.get("outside")
    if place is None or not isinstance(outside, str):
        return None
    return moved(place, outside, "Move it to the top of the part, beside max_position_embeddings.")


def _times_factor(evidence: Evidence) -> str:
    entries = named(evidence)
    own = [(name, value) for name, value in entries if name.endswith(("max_position_embeddings", "factor"))]
    other = [f"{name} is {spoken(value)}" for name, value in entries if (name, value) not in own]
    tail = " Which of the two is meant, the file does not say."
    if evidence.get("confirmed"):
        tail = (
            f" {listed(other)} as well, so the length holds the factor already, and such a reader serves positions that"
            " the model was not made for."
        )
    readers = _readers(evidence.get("multiplied by"), "vLLM")
    verbs = ("multiply", "take") if " and " in readers else ("multiplies", "takes")
    context = next(value for name, value in own if name.endswith("max_position_embeddings"))
    return (
        f"{listed([f'{name} is {spoken(value)}' for name, value in own])}: {readers} {verbs[0]} them and {verbs[1]}"
        f" {spoken(evidence['length x factor'])} positions for the longest length, and Transformers takes"
        f" {spoken(context)}.{tail}"
    )


def _flat(evidence: Evidence) -> str:
    return (
        f"The text part stands flat at the top ({said(evidence)}), and the class of {evidence['type']} in Transformers"
        f" 5.23.0 reads text_config alone: it drops these and takes the defaults of {evidence['text type']}."
    )


_ONE_SHAPE = "Write the base and the scaling in both shapes, with the same numbers, until no old reader is left."

CODES: Mapping[str, Rule] = {
    "new-shape-only": Rule(
        "warning",
        _new_shape,
        _ONE_SHAPE,
        blames="reader",
        edit=_new_shape_edit,
        title="Base and scaling stand in rope_parameters alone",
        means="Transformers 5 saves the base and the scaling in rope_parameters. Releases of Transformers 4, and"
        " servers and trainers that follow them, look at rope_theta and rope_scaling, find neither, and take the"
        " class's defaults. Nothing fails: the model is fluent on short prompts and loses its way with distance.",
        cases=(
            "Open-Athena/MarinFold#184 (July 2026)",
            "Open-Athena/MarinFold#198 (August 2026)",
            "vllm-project/vllm#42624 (May 2026)",
        ),
    ),
    "uncommon-scaling-name": Rule(
        "warning",
        _uncommon_name,
        "Write the common name, with the numbers that the model was trained with.",
        blames="reader",
        edit=_uncommon_name_edit,
        title="A name of a scaling that only some readers know",
        means="Programs have names of their own for variants of YaRN. Where such a name reaches a config, other readers"
        " refuse the file, or treat the scaling as one whose factor the declared length does not hold yet, and read"
        " past the end of their table.",
        cases=("vllm-project/vllm#56446 (September 2026)", "vllm-project/vllm#53634 (August 2026)"),
    ),
    "misplaced-original": Rule(
        "warning",
        _misplaced,
        "Move the original length to where the class of this type reads it.",
        blames="reader",
        edit=_misplaced_edit,
        title="LongRoPE's original length stands where its class does not look",
        means="LongRoPE has one list of divisors up to the original length and another beyond it. A reader that does"
        " not find that length takes the declared one or a constant, and so the wrong list and the wrong magnitude.",
        cases=("mlxcel#1580 (September 2026)",),
    ),
    "flat-vision-language": Rule(
        "warning",
        _flat,
        "Put the fields of the text part into a text_config, as the class of this type saves them.",
        blames="reader",
        unmended="Which fields are those of the text, the class of the type decides.",
        title="A flat config of images and text, of a type that now has a text_config",
        means="Older releases of models of images and text kept the text part at the top of the config. The class of"
        " today makes the text part from text_config alone and, without one, from its own defaults: another base,"
        " another share of rotated channels, another length.",
    ),
    "length-times-factor": Rule(
        lambda evidence: "warning" if evidence.get("confirmed") else "note",
        _times_factor,
        "Serve it with the length set by hand; or say in the tokenizer's model_max_length which one is meant.",
        blames="ambiguous",
        unmended="Which of the two lengths is meant, the file does not say.",
        title="Whether the declared length holds the factor already",
        means="For linear and dynamic scaling some readers multiply max_position_embeddings by the factor to get the"
        " longest length, and others take it as it is. The ladder is the same; how far one may go is not.",
        cases=("Safe-Synthesizer#623 (July 2026)",),
    ),
    "legacy-layer-bases": Rule(
        "note",
        _legacy,
        f"{IF_SOUND} Check that your reader turns the layers with a window by their own base.",
        blames="reader",
        title="Two bases in keys of the old shape only",
        means="Layers that see a window and layers that see all may turn at different bases. In the old shape each"
        " family has keys of its own for the second base, and a port that does not know them turns all layers alike.",
        cases=("TensorRT-Model-Connect#692 (July 2026)",),
    ),
    "explicit-attention-factor": Rule(
        "note",
        _explicit,
        f"{IF_SOUND} Check that your reader takes the written factor.",
        blames="reader",
        title="An attention factor that the formula does not give",
        means="YaRN and LongRoPE multiply cosine and sine by a number that follows from the factor. A config may write"
        " another one out; readers that drop the key make all scores larger or smaller, at every length.",
        cases=("vllm-project/vllm#46280 (June 2026)", "vllm-project/vllm#48351 (June 2026)"),
    ),
    "disputed-attention-factor": Rule(
        "note",
        _disputed,
        f"{IF_SOUND} Compare the outputs of your reader with those of the model's own code.",
        blames="ambiguous",
        title="mscale and mscale_all_dim: readers compute different attention factors",
        means="DeepSeek's code divides two magnitudes, of mscale and of mscale_all_dim. Readers of plain YaRN know"
        " neither key and take the formula. Both readings have been reported as the bug.",
        cases=("turboderp-org/exllamav3#259 (July 2026)", "vllm-project/vllm#48621 (2026)"),
    ),
    "softmax-scale": Rule(
        "note",
        _softmax,
        f"{IF_SOUND} Check that your reader scales the scores too.",
        blames="reader",
        title="mscale_all_dim scales the scores as well",
        means="In models with mscale_all_dim the softmax is sharpened by the square of its magnitude. Ladder and"
        " attention factor are right without it, and the attention is flatter than the model was trained with.",
        cases=("huggingface/transformers#47435 (July 2026)",),
    ),
    "uncommon-betas": Rule(
        "note",
        _betas,
        f"{IF_SOUND} Check that your reader takes the ends of the ramp from the file.",
        blames="reader",
        title="YaRN's ramp has other ends than usual",
        means="YaRN keeps fast pairs and slows the slow ones, with a ramp between beta_fast and beta_slow turns."
        " Readers that have 32 and 1 as constants bend other pairs than the model was trained with.",
        cases=("daScript#3479 (July 2026)",),
    ),
}
