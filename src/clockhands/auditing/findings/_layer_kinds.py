"""Findings on differences between layers, channels, axes and heads, compared with the model type's own pattern."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing._edits import Edit, added, moved, removed, replaced, together
from clockhands.auditing.findings._kind import EXPECTED, Kind, spoken
from clockhands.auditing.findings._parts import Audited, Part, check, in_a_file, labels_of, rotary_parts
from clockhands.configs.fields import MOST_LAYERS
from clockhands.configs.projections import other_widths

_SPELT_OUT = {"full": "full-attention", "sliding": "sliding-window"}


class LayerTypeScaling(Kind, code="layer-type-scaling"):
    title = "The RoPE scaling is on the wrong layer type"
    severity = "warning"
    hint = "Put the scaling on the layer type that has it in the model's original release."
    blames = "file"
    stands_on: str
    belongs_on: str
    missing_there: bool | None = None
    factor: float | None = None
    block: str | None = None
    belongs_in: str | None = None

    def message(self) -> str:
        wrong, right = (_SPELT_OUT.get(kind, kind) for kind in (self.stands_on, self.belongs_on))
        missing = f" and {right} layers have no scaling" if self.missing_there else ""
        return (
            f"The RoPE scaling is on {wrong} layers ({self.said()}){missing}, but this model type scales only {right}"
            f" layers. The scaling makes the RoPE frequencies of {wrong} layers too low by a factor of"
            f" {spoken(self.factor)}."
        )

    def edit(self) -> Edit | None:
        """Move the scaling's keys to the kind of layer that has it, or remove them if that kind has its own."""
        wrong, right = self.block, self.belongs_in
        if not isinstance(wrong, str) or not isinstance(right, str):
            return None
        edits = []
        keys = [place.rpartition(".")[2] for place, _ in self.stated]
        if self.missing_there:
            for key in keys:
                if key in ("rope_type", "type"):
                    edits.append(added(f"{right}.{key}", self.evidence[f"{wrong}.{key}"], ""))
                else:
                    edits.append(moved(f"{wrong}.{key}", f"{right}.{key}", ""))
            says = f"Move the scaling to {_SPELT_OUT.get(self.belongs_on, self.belongs_on)} layers."
        else:
            says = f"Remove the scaling from {_SPELT_OUT.get(self.stands_on, self.stands_on)} layers."
            edits += [removed(f"{wrong}.{key}", "") for key in keys if key not in ("rope_type", "type")]
        edits += [replaced(f"{wrong}.{key}", "default", "") for key in keys if key in ("rope_type", "type")]
        return together(says, *edits)


class NopeInverted(Kind, code="nope-inverted"):
    title = "The list of layers without RoPE is inverted or empty"
    severity = "warning"
    hint = "Correct the list. In no_rope_layers, 1 means that the layer rotates, although the name says the opposite."
    blames = "file"
    layers_without_rotation: int
    one_layer_without_rotation_in: int

    def message(self) -> str:
        still, layers = spoken(self.layers_without_rotation), spoken(self.evidence["layers"])
        every = spoken(self.one_layer_without_rotation_in)
        if not self.layers_without_rotation:
            return (
                f"By the list, all {layers} layers rotate ({self.said()}), but by the interval one layer in {every}"
                " does"
                " not rotate. If the interval is right, runtimes that use the list rotate layers that were trained"
                " without rotation."
            )
        do = "does" if still == "1" else "do"
        return (
            f"By the list, {still} of {layers} layers {do} not rotate ({self.said()}), but in this model family one"
            " layer"
            f" in {every} does not rotate. In this list, 1 means that the layer rotates, and 0 means that the layer"
            " does not rotate. The 1s and 0s were probably exchanged."
        )

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


class MropeSections(Kind, code="mrope-sections"):
    title = "M-RoPE sections do not add up to the number of pairs"
    hint = (
        "Copy the sections from the model's original release. The sections must add up to half of the RoPE dimensions."
    )
    blames = "file"
    together: int
    pairs: int
    order: str | None = None

    def severity(self) -> str:
        return "error" if self.together != self.pairs else "warning"

    def message(self) -> str:
        pairs, together_ = self.pairs, self.together
        if together_ != pairs:
            does = (
                "fails when it splits the pairs into sections"
                if self.order == "chunked"
                else "rotates the remaining pairs by time, without a warning"
            )
            return (
                f"{self.said()}: the sum is {spoken(together_)} pairs, but there are {spoken(pairs)} RoPE pairs. Code"
                f" of this model type {does}."
            )
        if self.order == "chunked":
            return (
                f"{self.said()}: the sum of {spoken(pairs)} pairs is right, but there must be one section for time, one"
                " for rows and one for columns. At least one of these three coordinates has no pairs."
            )
        return (
            f"{self.said()}: the sum of {spoken(pairs)} pairs is right, but this model type interleaves the sections,"
            f" so rows can have at most {spoken((pairs + 1) // 3)} pairs and columns at most {spoken(pairs // 3)}"
            " pairs."
            " Code of this model type rotates the pairs above these limits by time, without a warning."
        )


class MropeOrder(Kind, code="mrope-order"):
    title = "mrope_interleaved contradicts the model type"
    severity = "warning"
    hint = (
        "Set mrope_interleaved to the value that the model's code uses. mrope_interleaved does not set the layout"
        " (which"
        " two dimensions form a pair)."
    )
    blames = "file"
    class_order: str
    type: str

    def message(self) -> str:
        place, value = self.stated[0]
        does = "are interleaved" if self.class_order == "interleaved" else "are consecutive"
        return (
            f"{place.rpartition(':')[2]} is {spoken(value)}, but in code of this model type ({self.type}) the pairs of"
            f" time, rows and columns {does}. Runtimes that use mrope_interleaved rotate pairs by the wrong coordinate."
            " mrope_interleaved does not set the layout (which two dimensions form a pair)."
        )

    def edit(self) -> Edit | None:
        place, value = self.stated[0]
        return replaced(place, not value, f"Write {spoken(not value)}, as in the model's code.")


class PartialMeaning(Kind, code="partial-meaning"):
    title = "partial_rotary_factor has two meanings, and a runtime may use the wrong one"
    share: float
    type: str
    class_meaning: str | None = None
    axes: bool | None = None
    as_the_class_has_it: bool | None = None

    def hint(self) -> str:
        return (
            f"{EXPECTED} If you port the model, check which pairs rotate, and at which frequencies."
            if self._as_it_should_be()
            else "Write the scaling type that the model's class uses."
        )

    def blames(self) -> str | None:
        return "reader" if self._as_it_should_be() else "file"

    def severity(self) -> str:
        return "note" if self._as_it_should_be() else "warning"

    def message(self) -> str:
        share, own = f"{100 * self.share:.3g} %", self.class_meaning
        if self.axes:
            return (
                f"{self.said()}: only {share} of the dimensions of each head rotate, and the RoPE pairs are divided"
                " among"
                " time, rows and columns. Some runtimes ignore partial_rotary_factor if there is an mrope_section, and"
                " rotate"
                " the whole head."
            )
        if self.as_the_class_has_it:
            return (
                f"{self.said()}: the RoPE frequencies are computed over the whole head, but only the fastest {share}"
                " of the"
                " pairs rotate. The model's class computes the same. Runtimes that ignore rope_type compute the"
                " frequencies over the RoPE dimensions instead, so all frequencies but the first are wrong."
            )
        if own == "proportional":
            return (
                f"{self.said()}, but this model type computes the frequencies over the whole head and rotates only the"
                f' fastest {share} of the pairs (rope_type "proportional"). With "default", the frequencies are'
                " computed"
                " over the RoPE dimensions instead, so all frequencies but the first are wrong."
            )
        return (
            f"{self.said()}, but code of this model type ({self.type}) computes the frequencies over the RoPE"
            " dimensions"
            f' ({share} of the head). With "proportional", the frequencies are computed over the whole head instead, so'
            " all frequencies but the first are wrong, and the slow pairs do not rotate."
        )

    def edit(self) -> Edit | None:
        own = self.class_meaning
        place = next((name for name, value in self.stated if isinstance(value, str)), None)
        if own is None or place is None or self._as_it_should_be():
            return None
        return replaced(place, own, f'Write "{own}", as in the model\'s class.')

    def _as_it_should_be(self) -> bool:
        return bool(self.axes or self.as_the_class_has_it)


class InertWindow(Kind, code="inert-window"):
    title = "The sliding window is switched off"
    severity = "note"
    hint = f"{EXPECTED} A runtime that ignores use_sliding_window wrongly limits every layer to the window."

    def message(self) -> str:
        absent = " use_sliding_window is absent, and false by default." if len(self.stated) < 2 else ""
        return f"{self.said()}: the sliding window is switched off for all layers.{absent}"


class OtherHeadWidth(Kind, code="head-width"):
    title = "The head width in the weights differs from the declared one"
    severity = "warning"
    hint = "Write the head width of the weights into the file, or use the weights that the file was written for."
    blames = "file"
    rows: int
    heads: int
    width: int
    width_in_the_weights: int
    width_from: str | None = None

    def message(self) -> str:
        rows, heads, width = spoken(self.rows), spoken(self.heads), spoken(self.width)
        declared = f"a head width of {width} is declared"
        if self.width_from:
            declared = f"a head width of {width} follows from the declared values ({self.width_from})"
        return (
            f"The query weights have {rows} rows: {heads} heads of width"
            f" {spoken(self.width_in_the_weights)}. But {declared}. With a head width of {width}, the RoPE frequencies"
            " are"
            " wrong, and runtimes split the rows into the wrong heads."
        )

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
def layer_type_scaling(subject: Audited) -> Iterator[Kind]:
    """A scaling on a kind of layer that this type does not scale."""
    for part in rotary_parts(subject):
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
            yield LayerTypeScaling(evidence)


@check
def nope_inverted(subject: Audited) -> Iterator[Kind]:
    """A list of layers without RoPE that is inverted compared with the interval or the family, or that is empty."""
    for part in rotary_parts(subject):
        flags = part.fields.items("rotating_layers")
        period = part.fields.whole("still_period")
        every = period.value if period is not None else (part.row.still if part.row is not None else None)
        if flags is None or not flags.value or every is None or every < 3:
            continue
        layers = part.fields.whole("layers", most=MOST_LAYERS)
        if layers is None or len(flags.value) != layers.value:
            continue  # a list of another length is impossible, and reported as such
        still = sum(1 for flag in flags.value if flag == 0)
        if still == 0 and all(flag == 1 for flag in flags.value) and len(flags.value) >= every:
            # The class fills the list from the interval: a list without such a layer was written by something else.
            if period is not None and part.fields.declares("still_period"):
                evidence = {flags.source: flags.value, period.source: every, "layers without rotation": 0}
                evidence |= {"layers": len(flags.value), "one layer without rotation in": every}
                yield NopeInverted(evidence)
            continue
        # One layer in `every` has no RoPE: a list in which most have none is inverted, not another choice of layers.
        if 2 * still <= len(flags.value) or any(flag not in (0, 1) for flag in flags.value):
            continue
        evidence = {flags.source: flags.value, "layers without rotation": still, "layers": len(flags.value)}
        yield NopeInverted({**evidence, "one layer without rotation in": every})


@check
def mrope_order(subject: Audited) -> Iterator[Kind]:
    """A key that declares another order of axes than the class of the type has."""
    for part in rotary_parts(subject):
        if part.row is None or part.row.sections is None or part.known is None:
            continue
        for block in part.blocks():
            said = block.values.get("mrope_interleaved")
            if isinstance(said, bool) and said != (part.row.sections == "interleaved"):
                evidence = {f"{block.place}.mrope_interleaved": said, "class order": part.row.sections}
                yield MropeOrder({**evidence, "type": f"{part.known.name}, {part.known.library}"})


@check
def partial_meaning(subject: Audited) -> Iterator[Kind]:
    """A partial rotary factor that can mean a shorter ladder, or a full one whose slow pairs have frequency 0."""
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
            yield PartialMeaning(evidence)
        yield from _share_beside_sections(part)


def _share_beside_sections(part: Part) -> Iterator[Kind]:
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
        yield PartialMeaning({**evidence, "share": value, "axes": True})


def _own_meanings(part: Part) -> dict[str, str]:
    """For each kind of layer, how the class reads its partial rotary factor."""
    block = part.row.block if part.row is not None else {}
    held = {kind: block.get(label, {}) for kind in ("full", "sliding", "chunked") for label in labels_of(kind)[:1]}
    return {kind: str(values["rope_type"]) for kind, values in held.items() if "rope_type" in values}


def _share(part: Part) -> float | None:
    share = part.fields.number("share")
    return None if share is None else share.value


@check
def inert_window(subject: Audited) -> Iterator[Kind]:
    """A window next to a switch that disables it."""
    for part in rotary_parts(subject):
        switch, window = part.fields.flag("window_on"), part.fields.raw("window")
        if any(code.window for code in subject.resolved.codes if code.part == part.section.part):
            continue  # a class whose switch does not disable windows of layers listed in the file
        if switch is not None and window is not None and switch.value is False and window.value:
            yield InertWindow({window.source: window.value, switch.source: switch.value})


@check
def head_width(subject: Audited) -> Iterator[Kind]:
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
        yield OtherHeadWidth(evidence, other.layers)
