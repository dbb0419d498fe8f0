"""What differs between layers, channels and axes, held against what the model's type does."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing.checks.parts import Block, Part, labels_of, rotary_parts
from clockhands.auditing.checks.subject import Case, Subject
from clockhands.sources.fields import MOST_LAYERS

# Keys of a block that belong to its scaling; what is left is a base and a share.
_SCALES = (
    "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "mscale", "mscale_all_dim",
    "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "truncate",
)  # fmt: skip


def layer_type_scaling(subject: Subject) -> Iterator[Case]:
    """A scaling on the kind of layer that this type does not stretch."""
    for part in rotary_parts(subject):
        if part.row is None or not part.row.nested or not part.row.scaled:
            continue
        blocks = [block for block in part.blocks() if block.kind is not None]
        for block in blocks:
            if block.kind in part.row.scaled or not _scales(block):
                continue
            right = next((other for other in blocks if other.kind in part.row.scaled), None)
            evidence: dict[str, Any] = block.said(*_SCALES)
            evidence |= {
                "stands on": block.kind,
                "belongs on": part.row.scaled[0],
                "block": block.place,
                "belongs in": None if right is None else right.place,
                "missing there": right is not None and not _scales(right),
                "factor": block.values.get("factor"),
            }
            yield "layer-type-scaling", evidence, None


def _scales(block: Block) -> bool:
    return block.scaling not in (None, "default") and block.values.get("factor") != 1


def nope_inverted(subject: Subject) -> Iterator[Case]:
    """A list of layers without rotation that is the inverse of what the interval or the family says, or names none."""
    for part in rotary_parts(subject):
        flags = part.fields.items("rotating_layers")
        period = part.fields.whole("still_period")
        every = period.value if period is not None else (part.row.still if part.row is not None else None)
        if flags is None or not flags.value or every is None or every < 3:
            continue
        layers = part.fields.whole("layers", most=MOST_LAYERS)
        if layers is None or len(flags.value) != layers.value:
            continue  # a list of another length is impossible, and told as that
        still = sum(1 for flag in flags.value if flag == 0)
        if still == 0 and all(flag == 1 for flag in flags.value) and len(flags.value) >= every:
            # The class fills the list from the interval: one without any such layer was filled by something else.
            if period is not None and part.fields.declares("still_period"):
                evidence = {flags.source: flags.value, period.source: every, "layers without rotation": 0}
                evidence |= {"layers": len(flags.value), "one layer without rotation in": every}
                yield "nope-inverted", evidence, None
            continue
        # One in `every` does not rotate: a list in which most do not is its inverse, not another choice of layers.
        if 2 * still <= len(flags.value) or any(flag not in (0, 1) for flag in flags.value):
            continue
        evidence = {flags.source: flags.value, "layers without rotation": still, "layers": len(flags.value)}
        yield "nope-inverted", {**evidence, "one layer without rotation in": every}, None


def mrope_order(subject: Subject) -> Iterator[Case]:
    """A key that says another order of axes than the class of the type has."""
    for part in rotary_parts(subject):
        if part.row is None or part.row.sections is None or part.known is None:
            continue
        for block in part.blocks():
            said = block.values.get("mrope_interleaved")
            if isinstance(said, bool) and said != (part.row.sections == "interleaved"):
                evidence = {f"{block.place}.mrope_interleaved": said, "class order": part.row.sections}
                yield "mrope-order", {**evidence, "type": f"{part.known.name}, {part.known.library}"}, None


def partial_meaning(subject: Subject) -> Iterator[Case]:
    """A share of the head that can be read as a shorter ladder, or as one whose slow pairs stand still."""
    for part in rotary_parts(subject):
        if part.row is None or part.known is None:
            continue
        own = _own_meanings(part)
        for block in part.blocks():
            meaning = own.get(block.kind or "full", "default")
            share = block.values.get("partial_rotary_factor", _share(part))
            if not isinstance(share, int | float) or not 0 < share < 1:
                continue
            if "proportional" not in (block.scaling, meaning) or block.scaling not in ("proportional", "default"):
                continue
            evidence = block.said("rope_type", "type", "partial_rotary_factor")
            evidence |= {"share": share, "class meaning": meaning, "type": f"{part.known.name}, {part.known.library}"}
            evidence["as the class has it"] = block.scaling == meaning
            yield "partial-meaning", evidence, None
        yield from _share_beside_sections(part)


def _share_beside_sections(part: Part) -> Iterator[Case]:
    if part.row is None or part.row.sections is None:
        return
    held = [block.said("partial_rotary_factor", "mrope_section") for block in part.blocks()]
    share = part.fields.number("share")
    evidence = next((said for said in held if len(said) == 2), next(iter(held), {}))
    value = next((value for place, value in evidence.items() if place.endswith("factor")), None)
    if value is None and share is not None:
        value = share.value
        evidence = {share.source: value, **evidence} if part.fields.declares("share") else evidence
    if isinstance(value, int | float) and 0 < value < 1 and evidence:
        yield "partial-meaning", {**evidence, "share": value, "axes": True}, None


def _own_meanings(part: Part) -> dict[str, str]:
    """Kind of layer to the meaning that the class has of a share there."""
    block = part.row.block if part.row is not None else {}
    held = {kind: block.get(label, {}) for kind in ("full", "sliding", "chunked") for label in labels_of(kind)[:1]}
    return {kind: str(values["rope_type"]) for kind, values in held.items() if "rope_type" in values}


def _share(part: Part) -> float | None:
    share = part.fields.number("share")
    return None if share is None else share.value


def inert_window(subject: Subject) -> Iterator[Case]:
    """A window beside a switch that turns it off."""
    for part in rotary_parts(subject):
        switch, window = part.fields.raw("window_on"), part.fields.raw("window")
        if switch is not None and window is not None and switch.value is False and window.value:
            yield "inert-window", {window.source: window.value, switch.source: switch.value}, None
