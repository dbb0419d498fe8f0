"""Faulty position functions: a rule with one other field, or with what an earlier call has left behind."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from clockhands.phrases import listed, said
from clockhands.recognition.token_positions.numbering import AFTER, INVERTED, LEFT, Unpredicted, delta, positions
from clockhands.recognition.token_positions.prompts import TokenBatch
from clockhands.recognition.token_positions.rules import PositionRule

Numbering = Callable[[PositionRule, Sequence[TokenBatch], int], np.ndarray]
"""The positions of one of the prompts of a series: a function of the rule, the prompts and the index."""


def _fresh(rule: PositionRule, prompts: Sequence[TokenBatch], number: int) -> np.ndarray:
    return positions(rule, prompts[number])


@dataclass(frozen=True)
class PositionSuspect:
    """A position function with a fault.

    Attributes:
        code: The code of the fault.
        parameters: What its sentence says of it.
        rule: The rule by which it numbers.
        numbering: How it numbers a series of prompts; each by itself unless it keeps something.
        changed: The fields of the rule that differ: two suspects that change others may be combined.
    """

    code: str
    parameters: Mapping[str, Any]
    rule: PositionRule
    numbering: Numbering = _fresh
    changed: frozenset[str] = frozenset()

    def predicted(self, prompts: Sequence[TokenBatch], number: int) -> np.ndarray | None:
        """The positions of one prompt of a series; None where the fault gives none."""
        try:
            return self.numbering(self.rule, prompts, number)
        except Unpredicted:
            return None

    def with_fields_of(self, other: "PositionSuspect") -> "PositionSuspect":
        """A suspect with both faults."""
        fields = {name: getattr(other.rule, name) for name in other.changed}
        numbering = other.numbering if self.numbering is _fresh else self.numbering
        return replace(
            self, rule=replace(self.rule, **fields), numbering=numbering, changed=self.changed | other.changed
        )


_AFTER_WORDS = {
    "largest itself": "at the largest position of the grid, which is used twice",
    "sides less one": "one position too early",
    "sides and one": "one position too late",
    "one more": "one position too late",
    "tokens": "after as many positions as the grid has tokens",
    "one": "one position after the start of the grid",
    "start": "at the position where the grid starts",
    "rows": "after the number of rows, whatever the number of columns",
    "columns": "after the number of columns, whatever the number of rows",
    "smaller side": "after the smaller side of the grid",
    "half sides": "after half of the larger side of the grid",
    "largest": "after the largest position of the grid",
    "sides": "after the larger side of the grid",
}
_UNMERGED = {
    frozenset({"cells", "sides"}): "for rows and columns and for the start of what follows",
    frozenset({"cells"}): "for rows and columns",
    frozenset({"sides"}): "for the start of what follows",
}
_WAYS = {
    "text": "image-as-text",
    "one": "image-as-one-position",
    "uncounted": "image-not-counted",
    "local": "image-from-zero",
}


STRIDES = {(4.0, 8.0, 8.0), (4.0, 16.0, 16.0), (8.0, 8.0, 8.0), (8.0, 16.0, 16.0), (8.0, 32.0, 32.0)}
"""Frames, pixels down and across of a cell: the video encoders of Wan 2.1 and 2.2, Cosmos and LTX (diffusers)."""


def position_suspects(rule: PositionRule, largest: float) -> Iterator[PositionSuspect]:
    """Every known fault of code for this rule.

    Args:
        rule: The rule.
        largest: The largest position that the code gives, which a limit would be.
    """

    def other(code: str, told: Mapping[str, Any] | None = None, **changes: Any) -> PositionSuspect:
        changed = frozenset(name for name, value in changes.items() if value != getattr(rule, name))
        return PositionSuspect(code, told or {}, replace(rule, **changes), changed=changed)

    grid = "grid" in {rule.image, rule.video}
    kinds = [kind for kind in ("image", "video") if getattr(rule, kind) != "none"]
    for way, code in _WAYS.items():
        if rule.latent and way != "text":
            continue
        for some in ([*kinds], *([kind] for kind in kinds if len(kinds) > 1)):
            if any(getattr(rule, kind) != way for kind in some):
                yield other(code, {"what": listed(f"{kind}s" for kind in some)}, **dict.fromkeys(some, way))
    if grid:
        yield from _of_grids(rule, other)
        yield from _of_times(rule, other)
    if rule.audio_order != "none":
        yield from _of_audio(rule, other)
    if not rule.latent:
        yield other("padding-shifts", {"how": "a text after padding does not start at 0"}, padding="counted")
        for padding, filler in INVERTED.items():
            yield other("mask-inverted", {"filler": filler}, padding=padding)
        yield other("documents-continue", documents="continue")
        yield other("documents-restart-twice", documents="twice")
        yield other("documents-restart-late", documents="late")
        for documents, filler in LEFT.items():
            yield other("documents-left-out", {"filler": filler}, documents=documents)
        yield other("documents-restart-at-one", {"which": "every document after the first"}, documents="one")
        yield other("positions-clamped", {"limit": largest}, limit=largest)
        yield other("positions-of-first-sequence", rows="first")
        yield other("rows-continue", rows="flat")
        if grid:
            yield from _of_state(rule)
    else:
        yield other("rows-shifted", {"where": "each axis"}, rows="shifted")
        yield other("rows-shifted", {"where": f"the {rule.axes[0]}"}, rows="numbered")
    if rule.text == "after":
        yield other("text-counted-first", text="counted")
        yield other("text-at-zero", text="zero")
    if rule.text == "zero":
        yield other("text-counted", text="counted", origin="zero")
    for first in {0, 1, 2, rule.first + 2} - {rule.first}:
        if not rule.latent:
            yield other("first-position", {"used": first, "declared": rule.first}, first=first)


def _of_grids(rule: PositionRule, other: Callable[..., PositionSuspect]) -> Iterator[PositionSuspect]:
    """Faults of cells: their axes and order, where they are counted from, where the next run starts."""
    for axes in permutations(rule.axes):
        swapped = tuple(one for one, two in zip(axes, rule.axes, strict=True) if one != two)
        if set(swapped) == {"row", "column"}:
            yield other("rows-and-columns-exchanged", axes=axes)
        elif swapped:
            yield other("axes-reordered", {"used": ", ".join(axes), "declared": ", ".join(rule.axes)}, axes=axes)
    words = {"t": "frame", "r": "row", "c": "column"}
    for scan in map("".join, permutations("trc")):
        if scan != rule.scan:
            yield other("cells-reordered", {"fastest": words[scan[2]], "slowest": words[scan[0]]}, scan=scan)
    yield other("grid-transposed", transposed=True)
    if rule.merge > 1:
        for what, how in _UNMERGED.items():
            yield other("merge-forgotten", {"how": how}, unmerged=what)
    for shift in (1, -1):
        yield other("grid-shifted", {"shift": f"{shift:+}"}, grid_shift=shift)
    for cell in {"start", "middle", "end"} - {rule.cell} if set(rule.stride) != {1.0} else ():
        yield other("cells-at-another-place", {"used": cell, "declared": rule.cell}, cell=cell)
    if rule.latent and rule.per_second:
        yield other("begin-ignored", begins="ignored")
    if rule.causal:
        yield other("first-frame-not-causal", causal=False)
    others = {(1.0, 1.0, 1.0), (rule.stride[0], 1.0, 1.0), (1.0, *rule.stride[1:])}
    for stride in (others | STRIDES if set(rule.stride) != {1.0} else others) - {rule.stride}:
        words = {"used": _per_cell(stride), "declared": _per_cell(rule.stride)}
        yield other("cells-not-scaled", words, stride=stride)
    for origin in ("start", "zero", "middle"):
        if origin != rule.origin and not (rule.latent and origin == "start"):
            counted = {"start": "the start of the grid", "zero": "0", "middle": "the middle of the grid"}
            yield other(
                "grid-origin",
                {"used": counted[origin], "declared": counted[rule.origin], "axes": "rows and columns"},
                origin=origin,
            )
    published = {rule.after} if rule.after not in {"largest", "sides"} else {"largest", "sides"}
    published |= {"sides less one", "sides and one"} if rule.after != "sides" else set()
    after = [name for name in AFTER if name not in published] if not rule.latent or rule.text == "after" else []
    for name in after:
        yield other("offset-after-image", {"how": _AFTER_WORDS[name]}, after=name)
    if not rule.latent:
        yield other("grid-of-another-image", {"how": "the grid of the first one"}, grids="first")
        yield other("grid-of-another-image", {"how": "the grids of the first row of the batch"}, grids="row")


def _per_cell(stride: tuple[float, ...]) -> str:
    return f"{' x '.join(map(said, stride))} (frames, rows and columns of the video)"


def _of_audio(rule: PositionRule, other: Callable[..., PositionSuspect]) -> Iterator[PositionSuspect]:
    """Faults of videos with audio, and of images beside them."""
    words = {"chunks": "by chunks of time", "time": "token by token", "frames": "all frames before the audio"}
    for order in ("", "frames"):
        yield other("audio-after-video", audio_start_at="after", audio_read=order)
    for order, how in words.items():
        if order != rule.audio_order:
            told = {"used": how, "declared": words[rule.audio_order]}
            yield other("audio-interleaved-otherwise", told, audio_read=order)
    for chunk in (rule.chunk / 2, rule.chunk * 2) if rule.audio_order == "chunks" else ():
        used, declared = (f"by chunks of {said(seconds)} s" for seconds in (chunk, rule.chunk))
        yield other(
            "audio-interleaved-otherwise", {"used": used, "declared": declared}, chunk=chunk, audio_read="chunks"
        )
    marks = "counted" if rule.audio_marks == "shared" else "shared"
    counted = {"counted": "a position each", "shared": "one position together"}
    yield other("audio-marks", {"used": counted[marks], "declared": counted[rule.audio_marks]}, audio_marks=marks)
    yield other("audio-followed-otherwise", audio_after="largest")

    def early(rule: PositionRule, prompts: Sequence[TokenBatch], number: int) -> np.ndarray:
        told = prompts[number].audio_in_video
        return positions(replace(rule, after="largest itself") if told else rule, prompts[number])

    how = f"{_AFTER_WORDS['largest itself']}, where videos have audio"
    yield PositionSuspect("offset-after-image", {"how": how}, rule, early, frozenset({"after"}))


def _of_times(rule: PositionRule, other: Callable[..., PositionSuspect]) -> Iterator[PositionSuspect]:
    """Faults of the times of frames."""
    if "time" not in rule.axes:
        return
    per_second = "{} positions per second".format
    declared = per_second(said(rule.per_second)) if rule.per_second else "one position per frame"
    if not rule.frames_apart:
        if rule.per_second:
            yield other("time-step", {"used": "one position per frame", "declared": declared}, per_second=0.0)
        for factor in (2.0, 0.5, 0.0):
            used = f"{said(factor * (rule.per_second or 1))} positions per {'second' if rule.per_second else 'frame'}"
            yield other("time-step", {"used": used, "declared": declared}, frame_step=factor)
        for step in (
            () if rule.latent else {1.0, 2.0, 4.0, 25.0} - {rule.per_second, 2 * rule.per_second, rule.per_second / 2}
        ):
            yield other("time-step", {"used": per_second(said(step)), "declared": declared}, per_second=step)
    if rule.per_second:
        yield other("seconds-cut", {"how": "whole ones, the fraction is cut"}, seconds="whole")
        for taken in (1 / 24, 1 / 25, 1 / 30, 1 / 16) if rule.latent else (1.0, 2.0, 0.5):
            how = f"{said(taken)}, not those that are given"
            yield other("seconds-cut", {"how": how}, seconds="ignored", frame_step=taken)
        yield other("seconds-inverted", seconds="inverse")
        for times, how in (
            ("exact", "fractions of positions are kept"),
            ("rounded", "to the nearest whole position"),
            ("whole", "fractions of positions are cut"),
        ):
            if times != rule.times:
                yield other("time-rounding", {"how": how}, times=times)
    if rule.time_origin == "start":
        for factor in {rule.per_second or 2.0, 2.0, 4.0, 25.0}:
            for what, fields in (("images", ("image_scale",)), ("images and videos", ("image_scale", "video_scale"))):
                yield other("image-time-scaled", {"what": what, "factor": factor}, **dict.fromkeys(fields, factor))
        yield other(
            "grid-origin", {"used": "0", "declared": "the start of the grid", "axes": "times"}, time_origin="zero"
        )
        for after in {rule.after, "sides"}:
            yield other(
                "grid-origin",
                {"used": "0", "declared": "the start of the grid", "axes": "times, rows and columns"},
                time_origin="zero",
                origin="zero",
                after=after,
            )


def _of_state(rule: PositionRule) -> Iterator[PositionSuspect]:
    """Faults that show only after another call."""
    for how, earlier in (("the first call", lambda _number: 0), ("the call before", lambda number: number - 1)):

        def stale(rule: PositionRule, prompts: Sequence[TokenBatch], number: int, earlier=earlier) -> np.ndarray:  # noqa: ANN001
            if number == 0:
                return positions(rule, prompts[0])
            prompt, kept = prompts[number], prompts[earlier(number)]
            count = np.where(prompt.mask, np.cumsum(prompt.mask, axis=1) - 1.0, np.nan)
            return np.tile(count + delta(positions(rule, kept), kept)[0], (len(rule.axes), 1, 1))

        yield PositionSuspect("stale-delta", {"how": how}, rule, stale, frozenset({"state"}))
