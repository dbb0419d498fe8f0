"""Findings on differences between layers, channels, axes and heads, compared with the model type's own pattern."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing._edits import Edit, added, moved, removed, replaced, together
from clockhands.auditing.findings._parts import AuditSubject, Part, check, in_a_file
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.fields import MOST_LAYERS
from clockhands.configs.model_types import layer_labels
from clockhands.configs.projections import other_widths
from clockhands.phrases import spoken

_SPELT_OUT = {"full": "full-attention", "sliding": "sliding-window"}


class LayerTypeScaling(Case, code="layer-type-scaling"):
    def wrong(self) -> str:
        """The layers that have the scaling."""
        return str(_SPELT_OUT.get(self.stands_on, self.stands_on))

    def right(self) -> str:
        """The layers that should have it."""
        return str(_SPELT_OUT.get(self.belongs_on, self.belongs_on))

    def edit(self) -> Edit | None:
        """Move the scaling's keys to the kind of layer that has it, or remove them if that kind has its own."""
        wrong, right = self.block, self.belongs_in
        if wrong is None or right is None:
            return None
        keys = [place.rpartition(".")[2] for place, _ in self.stated]
        names = [key for key in keys if key in ("rope_type", "type")]
        numbers = [key for key in keys if key not in names]
        off = [replaced(f"{wrong}.{key}", "default") for key in names]
        if not self.missing_there:
            return together(
                f"Remove the scaling from {self.wrong()} layers.", *(removed(f"{wrong}.{key}") for key in numbers), *off
            )
        there = [added(f"{right}.{key}", self.evidence[f"{wrong}.{key}"]) for key in names]
        there += [moved(f"{wrong}.{key}", f"{right}.{key}") for key in numbers]
        return together(f"Move the scaling to {self.right()} layers.", *there, *off)


class NopeInverted(Case, code="nope-inverted"):
    def edit(self) -> Edit | None:
        place, flags = next(iter(self.stated), (None, None))
        if place is None or not isinstance(flags, list | tuple):
            return None
        if not self.layers_without_rotation:
            every = self.one_layer_without_rotation_in
            by_interval = [0 if (layer + 1) % every == 0 else 1 for layer in range(len(flags))]
            return replaced(place, by_interval, f"Write 0 for one layer in {every}, as the interval in the file says.")
        says = "Invert the list: write 1 for a layer that rotates, and 0 for a layer that does not rotate."
        return replaced(place, [0 if flag else 1 for flag in flags], says)


class MropeSections(Case, code="mrope-sections"):
    def most_for_rows(self) -> int:
        """The most pairs of rows that interleaved sections have."""
        return (self.pairs + 1) // 3

    def most_for_columns(self) -> int:
        """The most pairs of columns that interleaved sections have."""
        return self.pairs // 3


class MropeOrder(Case, code="mrope-order"):
    def edit(self) -> Edit | None:
        place, value = self.stated[0]
        return replaced(place, not value, f"Write {spoken(not value)}, as in the model's code.")


class PartialMeaning(Case, code="partial-meaning"):
    def percent(self) -> str:
        """The share of the channels that rotate, as text."""
        return f"{100 * self.share:.3g} %"

    def right(self) -> bool:
        """Whether the file says what the class computes."""
        return bool(self.axes or self.as_the_class_has_it)

    def edit(self) -> Edit | None:
        own = self.class_meaning
        place = next((name for name, value in self.stated if isinstance(value, str)), None)
        if own is None or place is None or self.right():
            return None
        return replaced(place, own, f'Write "{own}", as in the model\'s class.')


class InertWindow(Case, code="inert-window"):
    def switch_absent(self) -> bool:
        """Whether the file does not have the switch."""
        return len(self.stated) < 2


class OtherHeadWidth(Case, code="head-width"):
    def edit(self) -> Edit | None:
        places = [name for name, _ in self.stated if " " not in name]
        right = self.width_in_the_weights
        says = f"Set the head width to {spoken(right)}, as in the weights."
        return replaced(places[0], right, says) if places else Edit(says)


# Keys of a block that belong to its scaling; the rest is a base and a share.
_SCALES = (
    "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "mscale", "mscale_all_dim",
    "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "truncate",
)  # fmt: skip


@check
def layer_type_scaling(subject: AuditSubject) -> Iterator[Case]:
    """A scaling on a kind of layer that this type does not scale."""
    for part in subject.rotary_parts:
        if part.row is None or not part.row.nested or not part.row.scaled:
            continue
        blocks = [block for block in part.blocks() if block.kind is not None]
        for block in blocks:
            if block.kind in part.row.scaled or not block.scales:
                continue
            right = next((other for other in blocks if other.kind in part.row.scaled), None)
            evidence: dict[str, Any] = block.said(*_SCALES)
            evidence |= {
                "stands on": block.kind,
                "belongs on": part.row.scaled[0],
                "block": block.place,
                "belongs in": None if right is None else right.place,
                "missing there": right is not None and not right.scales,
                "factor": block.values.get("factor"),
            }
            yield case_of("layer-type-scaling", evidence)


@check
def nope_inverted(subject: AuditSubject) -> Iterator[Case]:
    """A list of layers without RoPE that is inverted compared with the interval or the family, or that is empty."""
    for part in subject.rotary_parts:
        flags = part.fields.items("rotating_layers")
        period = part.fields.whole("still_period")
        every = period.value if period is not None else (part.row.still if part.row is not None else None)
        if flags is None or not flags.value or every is None or every < 3:
            continue
        layers = part.fields.whole("layers", most=MOST_LAYERS)
        if layers is None or len(flags.value) != layers.value:
            continue  # a list of another length is impossible, and reported as such
        still = sum(1 for flag in flags.value if flag == 0)
        evidence = {flags.source: flags.value}
        if all(flag == 1 for flag in flags.value):
            # The class fills the list from the interval: a list without such a layer was written by something else.
            if len(flags.value) < every or period is None or not part.fields.declares("still_period"):
                continue
            evidence |= {period.source: every}
        # One layer in `every` has no RoPE: a list in which most have none is inverted, not another choice of layers.
        elif 2 * still <= len(flags.value) or any(flag not in (0, 1) for flag in flags.value):
            continue
        evidence |= {"layers without rotation": still, "layers": len(flags.value)}
        yield case_of("nope-inverted", {**evidence, "one layer without rotation in": every})


@check
def mrope_order(subject: AuditSubject) -> Iterator[Case]:
    """A key that declares another order of axes than the class of the type has."""
    for part in subject.rotary_parts:
        if part.row is None or part.row.sections is None or part.known is None:
            continue
        for block in part.blocks():
            said = block.values.get("mrope_interleaved")
            if isinstance(said, bool) and said != (part.row.sections == "interleaved"):
                evidence = {f"{block.place}.mrope_interleaved": said, "class order": part.row.sections}
                yield case_of("mrope-order", {**evidence, "type": f"{part.known.name}, {part.known.library}"})


@check
def partial_meaning(subject: AuditSubject) -> Iterator[Case]:
    """A partial rotary factor that can mean a shorter ladder, or a full one whose slow pairs have frequency 0."""
    for part in subject.rotary_parts:
        if part.row is None or part.known is None:
            continue
        own, said = _own_meanings(part), part.fields.number("share")
        for block in part.blocks():
            meaning = own.get(block.kind or "full", "default")
            share = block.values.get("partial_rotary_factor", None if said is None else said.value)
            if not isinstance(share, int | float) or not 0 < share < 1:
                continue
            if "proportional" not in (block.scaling, meaning) or block.scaling not in ("proportional", "default"):
                continue
            evidence = block.said("rope_type", "type", "partial_rotary_factor")
            evidence |= {"share": share, "class meaning": meaning, "type": f"{part.known.name}, {part.known.library}"}
            evidence["as the class has it"] = block.scaling == meaning
            yield case_of("partial-meaning", evidence)
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
        yield case_of("partial-meaning", {**evidence, "share": value, "axes": True})


def _own_meanings(part: Part) -> dict[str, str]:
    """For each kind of layer, how the class reads its partial rotary factor."""
    block = part.row.block if part.row is not None else {}
    held = {kind: block.get(label, {}) for kind in ("full", "sliding", "chunked") for label in layer_labels()[kind][:1]}
    return {kind: str(values["rope_type"]) for kind, values in held.items() if "rope_type" in values}


@check
def inert_window(subject: AuditSubject) -> Iterator[Case]:
    """A window next to a switch that disables it."""
    for part in subject.rotary_parts:
        switch, window = part.fields.flag("window_on"), part.fields.raw("window")
        if any(code.window for code in subject.resolved.codes if code.part == part.section.part):
            continue  # a class whose switch does not disable windows of layers listed in the file
        if switch is not None and window is not None and switch.value is False and window.value:
            yield case_of("inert-window", {window.source: window.value, switch.source: switch.value})


@check
def head_width(subject: AuditSubject) -> Iterator[Case]:
    """Heads of another width than the rows of the query projection allow."""
    for other in other_widths(subject.opened, subject.resolved) if subject.opened.tensors else ():
        evidence: dict[str, Any] = {
            "tensor": other.info.name,
            "rows": other.rows,
            "heads": other.heads,
            "width": other.width,
            "width in the weights": other.found,
        }
        if in_a_file(other.source):
            evidence[other.source] = other.width
        elif other.source:
            evidence["width from"] = other.source
        yield case_of("head-width", evidence, other.layers)
