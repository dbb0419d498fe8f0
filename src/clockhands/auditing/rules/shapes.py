"""The old and the new shape of a config, and its two spellings: what stands twice, or in a form that is not read."""

from collections.abc import Mapping

from clockhands.auditing.edits import Edit, added, copied, moved, removed, replaced, together
from clockhands.auditing.findings import spoken
from clockhands.auditing.rules.rule import Evidence, Rule, listed, named, said, stated


def _shapes(evidence: Evidence) -> str:
    used = str(evidence.get("used", ""))
    tail = f" Transformers 5 and this audit go by {used.partition(':')[2]}." if used else ""
    return (
        f"The old shape of the config and the new one disagree: {_paired(evidence)}. Readers of the old shape take the"
        f" one, readers of the new shape the other, and none warns.{tail}"
    )


def _paired(evidence: Evidence) -> str:
    """What is said of one thing in two places, side by side; what stands in one of the two only comes last."""
    entries = named(evidence)
    both: list[str] = []
    alone: dict[str, list[str]] = {}
    for (name, value), (other, its) in zip(entries[::2], entries[1::2], strict=True):
        if value is None or its is None:
            holder, _, key = (name if its is None else other).rpartition(".")
            alone.setdefault(holder, []).append(key)
        else:
            both.append(f"{name} is {spoken(value)} but {other} is {spoken(its)}")
    only = [
        f"{listed(keys)} {'stands' if len(keys) == 1 else 'stand'} in {holder} only" for holder, keys in alone.items()
    ]
    return "; ".join(filter(None, [listed(both), *only]))


def _shapes_edit(evidence: Evidence) -> Edit | None:
    """The place that is not used made to say what the used one says, number by number."""
    used = str(evidence.get("used", ""))
    entries = stated(evidence)
    edits = []
    for first, second in zip(entries[::2], entries[1::2], strict=True):
        (from_, value), (to, _) = (second, first) if second[0].startswith(used) else (first, second)
        key = to.rpartition(":")[2].rpartition(".")[2]
        if value is None:
            # What is used does not hold the key: a type stands for none, another key has to go.
            edits.append(replaced(to, "default", "") if key in ("type", "rope_type") else removed(to, ""))
        else:
            edits.append(copied(from_, to, ""))
    place = used.partition(":")[2]
    return together(f"Make the other place say what {place} says, if that is what the model was trained with.", *edits)


def _spellings(evidence: Evidence) -> str:
    used = str(evidence.get("used", "")).rpartition(".")[2]
    return (
        f"The two spellings of the scaling's name contradict each other: {said(evidence, 'but')}. Readers that know"
        f" only one of the spellings apply that scaling; Transformers 5 and this audit go by {used}."
    )


def _spellings_edit(evidence: Evidence) -> Edit | None:
    used = evidence.get("used")
    other = next((name for name, _ in stated(evidence) if name != used), None)
    if not isinstance(used, str) or other is None:
        return None
    name = spoken(evidence.get(used))
    return copied(used, other, f"Write {name} under both spellings, if that is the scaling of the training.")


def _flat(evidence: Evidence) -> str:
    kinds = list(evidence.get("kinds of layers", ()))
    taken = [f"{spoken(evidence[f'base of {kind}'])} for {kind}" for kind in kinds if evidence.get(f"base of {kind}")]
    instead = f" Transformers 5 takes the base {listed(taken)}, and no scaling." if taken else ""
    return (
        f"The rotary block is flat ({said(evidence)}), but this type has one for each kind of layer"
        f" ({listed(kinds)}): what stands flat is dropped, or other readers give it to all layers alike.{instead}"
    )


def _flat_edit(evidence: Evidence) -> Edit | None:
    """The block moved into the object of the layers that it is for; the others get what the class gives them."""
    kinds, owners = list(evidence.get("kinds of layers", ())), list(evidence.get("scaled", ()))
    entries = stated(evidence)
    if len(owners) != 1 or not kinds or not entries:
        return None
    if any(place.rpartition(".")[2] in kinds for place, _ in entries):
        return None  # a kind of layer has something there that is no object: what was meant is not known
    block = entries[0][0].rpartition(".")[0]
    edits = []
    for kind in kinds:
        base = evidence.get(f"base of {kind}")
        if kind not in owners and base is None:
            return None
        values = {} if kind in owners else {"rope_type": "default", "rope_theta": base}
        edits.append(added(f"{block}.{kind}", values, ""))
    for place, _ in entries:
        edits.append(moved(place, f"{block}.{owners[0]}.{place.rpartition('.')[2]}", ""))
    return together(f"Move the block into an object {owners[0]}, and give the other kinds of layers their own.", *edits)


CODES: Mapping[str, Rule] = {
    "conflicting-shapes": Rule(
        "warning",
        _shapes,
        "Find out which one the model was trained with and make both places say it, or delete the other.",
        blames="ambiguous",
        edit=_shapes_edit,
        title="The old and the new shape of the config disagree",
        means="Transformers 5 moved the base and the scaling into rope_parameters; older readers look at rope_theta and"
        " rope_scaling. A file that has both, with different numbers, is two models: Transformers 5.23.0 takes"
        " rope_scaling where both blocks are there, and rope_parameters over a rope_theta at the top, and warns of"
        " neither. Outputs part more at every longer distance, and short prompts look fine.",
        cases=(
            "vllm-project/vllm#42624 (May 2026)",
            "vllm-project/vllm#44158 (May 2026)",
        ),
    ),
    "conflicting-spellings": Rule(
        "warning",
        _spellings,
        "Find out which scaling the model was trained with and write it under both spellings, or under rope_type only.",
        blames="ambiguous",
        edit=_spellings_edit,
        title="type and rope_type of one block contradict each other",
        means="The name of a scaling was once called type and is now called rope_type; files carry either or both."
        " Where both stand and name different scalings, a reader applies the one whose spelling it knows: another"
        " ladder, and so another model beyond short prompts. Transformers 5.23.0 takes rope_type and does not warn.",
    ),
    "flat-layer-types": Rule(
        "warning",
        _flat,
        "Write one object for each kind of layer into the block, as the model's original release has it.",
        blames="file",
        edit=_flat_edit,
        unmended="Which kind of layer the flat values are for follows only where the type scales one kind.",
        title="One flat rotary block where each kind of layer has its own",
        means="Models such as Gemma 3 turn sliding and full layers by different bases, and stretch only the full ones."
        " A flat block is dropped by Transformers 5 without a word, so that the scaling is lost; readers that accept"
        " it give every layer the same base. Short prompts agree; reasoning over longer ones degrades first.",
        cases=("atlas#276 (July 2026)",),
    ),
}
