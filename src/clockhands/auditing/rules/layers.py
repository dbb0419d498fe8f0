"""What differs between layers, channels and axes: scalings, rotation, sections, shares, windows."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit, added, moved, removed, replaced, together
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, said, stated


def _layer_scaling(evidence: Evidence) -> str:
    wrong, right = evidence["stands on"], evidence["belongs on"]
    missing = f" and {right} layers have none" if evidence.get("missing there") else ""
    return (
        f"The scaling stands on {wrong} layers ({said(evidence)}){missing}, but this type stretches {right} layers"
        f" only: {wrong} layers see their window and nothing further, and turn by a factor of"
        f" {spoken(evidence.get('factor'))} too slowly there."
    )


def _layer_scaling_edit(evidence: Evidence) -> Edit | None:
    """The scaling's keys moved to the kind of layer that has it, or taken away where that one has its own."""
    wrong, right = evidence.get("block"), evidence.get("belongs in")
    if not isinstance(wrong, str) or not isinstance(right, str):
        return None
    edits = []
    keys = [place.rpartition(".")[2] for place, _ in stated(evidence)]
    if evidence.get("missing there"):
        for key in keys:
            if key in ("rope_type", "type"):
                edits.append(added(f"{right}.{key}", evidence[f"{wrong}.{key}"], ""))
            else:
                edits.append(moved(f"{wrong}.{key}", f"{right}.{key}", ""))
        says = f"Move the scaling to {evidence['belongs on']} layers."
    else:
        says = f"Take the scaling off {evidence['stands on']} layers."
        edits += [removed(f"{wrong}.{key}", "") for key in keys if key not in ("rope_type", "type")]
    edits += [replaced(f"{wrong}.{key}", "default", "") for key in keys if key in ("rope_type", "type")]
    return together(says, *edits)


def _nope(evidence: Evidence) -> str:
    still, layers = spoken(evidence["layers without rotation"]), spoken(evidence["layers"])
    every = spoken(evidence["one layer without rotation in"])
    if not evidence["layers without rotation"]:
        return (
            f"All {layers} layers are said to rotate ({said(evidence)}), where by the interval one in {every} does not:"
            " readers that go by the list rotate layers that were trained without rotation, if the interval is right."
        )
    return (
        f"{still} of {layers} layers are said not to rotate ({said(evidence)}), where one in {every} does not in this"
        " family: the list is inverted. In it, 1 means that a layer rotates and 0 that it does not."
    )


def _nope_edit(evidence: Evidence) -> Edit | None:
    place, flags = next(iter(stated(evidence)), (None, None))
    if place is None or not isinstance(flags, list | tuple):
        return None
    if not evidence["layers without rotation"]:
        every = evidence["one layer without rotation in"]
        by_interval = [0 if (layer + 1) % every == 0 else 1 for layer in range(len(flags))]
        return replaced(place, by_interval, f"Write 0 for one layer in {every}, as the interval has it.")
    return replaced(place, [0 if flag else 1 for flag in flags], "Invert the list: 1 for a layer that rotates.")


def _sections(evidence: Evidence) -> str:
    pairs, together_ = evidence["pairs"], evidence["together"]
    if together_ != pairs:
        does = (
            "fails when it cuts them apart"
            if evidence.get("order") == "chunked"
            else "turns those left over by time, without a word"
        )
        return (
            f"{said(evidence)}, {spoken(together_)} pairs together, but {spoken(pairs)} pairs turn: code of this type"
            f" {does}."
        )
    if evidence.get("order") == "chunked":
        return (
            f"{said(evidence)}: {spoken(pairs)} pairs as it should be, but not one part of time, one of rows and one of"
            " columns; some coordinate turns nothing."
        )
    return (
        f"{said(evidence)}: the three fill {spoken(pairs)} pairs, but this type lets them take turns, every third pair"
        f" to one of them, which leaves {spoken((pairs + 1) // 3)} pairs for rows and {spoken(pairs // 3)} for columns:"
        " what is beyond goes to time without a word."
    )


def _sections_severity(evidence: Evidence) -> str:
    return "error" if evidence["together"] != evidence["pairs"] else "warning"


def _order(evidence: Evidence) -> str:
    place, value = stated(evidence)[0]
    does = "take turns pair by pair" if evidence["class order"] == "interleaved" else "lie side by side in blocks"
    return (
        f"{place.rpartition(':')[2]} is {spoken(value)}, but in code of this type ({evidence['type']}) the pairs of"
        f" time, rows and columns {does}: readers that go by the key turn pairs by the wrong coordinate. The key is"
        " about axes and says nothing about which two channels form a pair."
    )


def _order_edit(evidence: Evidence) -> Edit | None:
    place, value = stated(evidence)[0]
    return replaced(place, not value, f"Write {spoken(not value)}, as the code of the type does.")


def _meaning(evidence: Evidence) -> str:
    share, own = spoken(evidence["share"]), evidence.get("class meaning")
    if evidence.get("axes"):
        return (
            f"{said(evidence)}: only {share} of a head turns, and its pairs are shared among time, rows and columns"
            " besides. Readers are known to drop the share where there are sections, and then turn the whole head."
        )
    if evidence.get("as the class has it"):
        return (
            f"{said(evidence)}: {share} of the pairs of the whole head's ladder turn, and the slow ones stand still, as"
            " the class of this type has it. Readers that know the share alone make a new ladder over the part that"
            " turns, and every rate but the first is another."
        )
    if own == "proportional":
        return (
            f"{said(evidence)}, but this type stops the slow pairs of the whole head's ladder (rope_type"
            f' "proportional", share {share}): read as "default", the same share makes a new, steeper ladder over the'
            " part that turns, and every rate but the first is another."
        )
    return (
        f"{said(evidence)}, but code of this type ({evidence['type']}) makes the ladder over the part that turns"
        f" (share {share}): proportional instead keeps the ladder of the whole head and stops its slow pairs, and"
        " every rate but the first is another."
    )


def _as_it_should_be(evidence: Evidence) -> bool:
    return bool(evidence.get("axes") or evidence.get("as the class has it"))


def _meaning_severity(evidence: Evidence) -> str:
    return "note" if _as_it_should_be(evidence) else "warning"


def _meaning_edit(evidence: Evidence) -> Edit | None:
    own = evidence.get("class meaning")
    place = next((name for name, value in stated(evidence) if isinstance(value, str)), None)
    if own is None or place is None or _as_it_should_be(evidence):
        return None
    return replaced(place, own, f'Write "{own}", as the class of this type has it.')


def _inert(evidence: Evidence) -> str:
    return f"{said(evidence)}: the window is switched off, and no layer has one."


CODES: Mapping[str, Rule] = {
    "layer-type-scaling": Rule(
        "warning",
        _layer_scaling,
        "Put the scaling on the kind of layer that the model's original release has it on.",
        blames="file",
        edit=_layer_scaling_edit,
        title="The scaling stands on the wrong kind of layer",
        means="Models that alternate sliding and full layers stretch the full ones only: a sliding layer never looks"
        " further than its window, so it needs no stretching. With the scaling on the sliding layers these turn too"
        " slowly at every distance, and the full ones too fast beyond the first training's length. Reported for Gemma"
        " 3, whose full layers had lost it: a rank correlation of 0.96 at 195 tokens and of 0.53 at 2,916.",
        cases=("Blaizzy/mlx-vlm#1709 (2026)", "lablup/mlxcel#1340 (2026)", "vllm-project/vllm#29111 (November 2025)"),
    ),
    "nope-inverted": Rule(
        "warning",
        _nope,
        "Correct the list: in no_rope_layers, in spite of its name, 1 means that a layer rotates.",
        blames="file",
        edit=_nope_edit,
        title="The list of layers without rotation is inverted, or names none",
        means="no_rope_layers holds 1 for a layer that rotates, although its name says the opposite. Read or written"
        " the other way round, three quarters of the layers lose their rotation and the others gain one: the model"
        " answers fluently and loses the order of words. A list of ones beside an interval has no layer without"
        " rotation at all, and readers that go by the list turn layers that were trained without it.",
        cases=("mobius#233 (May 2026)", "Camelid#535 (July 2026)"),
    ),
    "mrope-sections": Rule(
        _sections_severity,
        _sections,
        "Copy the sections from the model's original release: they must fill half of the channels that turn.",
        blames="file",
        unmended="Which section is wrong, the file does not say; the model's original release does.",
        title="The sections of time, rows and columns do not fill the pairs",
        means="Models of images and video turn some pairs by time, some by the row and some by the column of a patch;"
        " mrope_section says how many of each. If the numbers do not add up to the pairs that turn, the code of"
        " Qwen2.5-VL in Transformers 5.23.0 fails, and that of Qwen3-VL silently turns what is left by time. Text alone"
        " shows nothing, because all three coordinates are equal there.",
        cases=("mflux#483 (August 2026)",),
    ),
    "mrope-order": Rule(
        "warning",
        _order,
        "Write what the code of the type does; the key does not say which two channels form a pair.",
        blames="file",
        edit=_order_edit,
        title="mrope_interleaved contradicts the code of the type",
        means="The pairs of time, rows and columns lie either in blocks or in turns, which the class of a model decides"
        " and not its config. Readers that go by the key, or take it for the pairing of channels, turn pairs by another"
        " coordinate. Reported with a perplexity of 16.62 that became 15.89 once mended.",
        cases=("ohdearquant/lattice#96 (May 2026)",),
    ),
    "partial-meaning": Rule(
        _meaning_severity,
        _meaning,
        lambda evidence: (
            f"{IF_SOUND} When you port it, check which pairs turn, and at which rates."
            if _as_it_should_be(evidence)
            else "Write the type of scaling that the class of this model has."
        ),
        blames=lambda evidence: "reader" if _as_it_should_be(evidence) else "file",
        edit=_meaning_edit,
        unmended="A share beside sections, and one that the class reads so, are right as they stand.",
        title="partial_rotary_factor read in its other meaning",
        means="partial_rotary_factor has two meanings. Usually the ladder is made anew over the channels that turn; in"
        " a proportional ladder it is that of the whole head, and its slow pairs stand still. Both accept the same"
        " keys, agree in the first pair and in nothing else. Reported at 1,024 tokens: the argmax agreed in 60 %,"
        " and in 92.5 % once mended.",
        cases=(
            "pie-project/pie#603 (September 2026)",
            "AI-Hypercomputer/maxtext#4616 (July 2026)",
            "vllm-project/vllm#43770 (May 2026)",
        ),
    ),
    "inert-window": Rule(
        "note",
        _inert,
        f"{IF_SOUND} A reader that looks at the window alone would cut the context off.",
        title="A window that is switched off",
        means="Qwen2 and its relatives are published with a sliding_window beside use_sliding_window: false. It has no"
        " effect, and is right. A reader that looks at the window alone limits every layer to it.",
    ),
}
