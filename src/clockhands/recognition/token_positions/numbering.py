"""The positions that a rule gives to the tokens of a prompt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from clockhands.recognition.token_positions.audible_videos import audible_order, frame_times
from clockhands.recognition.token_positions.prompts import KINDS, Run, Runs, TokenBatch
from clockhands.recognition.token_positions.rules import PositionRule

_After = Callable[[PositionRule, Run, np.ndarray, float], float]

AFTER: Mapping[str, _After] = {
    "largest": lambda _rule, _run, part, _start: part.max() + 1,
    "sides": lambda rule, run, _part, start: start + max(_sides(rule, run)),
    "largest itself": lambda _rule, _run, part, _start: part.max(),
    "sides less one": lambda rule, run, _part, start: start + max(_sides(rule, run)) - 1,
    "sides and one": lambda rule, run, _part, start: start + max(_sides(rule, run)) + 1,
    "one more": lambda _rule, _run, part, _start: part.max() + 2,
    "tokens": lambda _rule, run, _part, start: start + len(run.ids),
    "one": lambda _rule, _run, _part, start: start + 1,
    "start": lambda _rule, _run, _part, start: start,
    "rows": lambda rule, run, _part, start: start + _sides(rule, run)[0],
    "columns": lambda rule, run, _part, start: start + _sides(rule, run)[1],
    "smaller side": lambda rule, run, _part, start: start + min(_sides(rule, run)),
    "half sides": lambda rule, run, _part, start: start + max(_sides(rule, run)) // 2,
}
"""Where the next run starts after a grid: a function of the rule, the run, its positions and its start."""


INVERTED: Mapping[str, float] = {"inverted at 0": 0, "inverted at 1": 1}
"""The position of all tokens where padding is numbered in their place."""

LEFT: Mapping[str, float] = {"left at 0": 0, "left at 1": 1}
"""The position of all tokens of the documents that are not numbered."""


class Unpredicted(Exception):
    """The rule gives these tokens no positions, because their number is another one."""


def positions(rule: PositionRule, prompt: TokenBatch) -> np.ndarray:
    """The positions of all tokens, [axes, batch, seq] in float64; NaN for padding, and where nothing is known.

    Raises:
        Unpredicted: A faulty rule has too few positions for the tokens, or only those of padding.
    """
    if rule.rows == "first" and not prompt.mask[0].any():
        raise Unpredicted
    rows = [np.minimum(_row(rule, prompt, number), rule.limit) for number in range(len(prompt.runs))]
    if rule.rows in {"shifted", "numbered"}:
        where = np.arange(len(rule.axes))[:, None] < (1 if rule.rows == "numbered" else len(rule.axes))
        rows = [row + number * where for number, row in enumerate(rows)]
    out = np.stack([prompt.spread([row[axis] for row in rows], np.nan) for axis in range(len(rule.axes))])
    if rule.rows == "first":
        out = np.where(prompt.mask, out[:, :1], np.nan)
    return out


def delta(got: np.ndarray, prompt: TokenBatch) -> np.ndarray:
    """By how much the position of the next token differs from the number of tokens before it, for each row."""
    return np.nanmax(np.where(prompt.mask, got, np.nan), axis=(0, 2)) + 1 - prompt.mask.sum(1)


def _row(rule: PositionRule, prompt: TokenBatch, number: int) -> np.ndarray:
    """The positions of the tokens of one row, [axes, tokens]."""
    documents = prompt.runs[number]
    if not documents:  # a row of padding
        return np.empty((len(rule.axes), 0))
    if rule.grids != "own":
        documents = _with_grids(rule, prompt, documents)
    if rule.documents == "continue":
        documents = [tuple(run for runs in documents for run in runs)]
    if rule.padding in INVERTED:  # the numbers of padding are not compared; labels begin it one token earlier
        left = np.full((len(rule.axes), int(prompt.mask[number].sum())), float(INVERTED[rule.padding]))
        left[:, -1:] = np.nan
        return left
    first = rule.first
    if rule.padding == "counted":
        first += int(np.argmax(prompt.mask[number]))
    if rule.rows == "flat":
        first += int(prompt.mask[:number].sum())
    parts, before = [], 0
    for runs in documents:
        part = _document(rule, runs, first)
        if part.shape[1] != sum(len(run.ids) for run in runs):
            raise Unpredicted
        if rule.documents == "late" and parts:
            part = np.concatenate([parts[-1][:, -1:] + 1, part[:, :-1]], axis=1)
        part = part + (rule.documents == "one" and bool(parts))
        if rule.documents in LEFT and parts:
            part = np.full_like(part, LEFT[rule.documents])
        parts.append(part - before * (rule.documents == "twice"))
        before += part.shape[1]
    return np.concatenate(parts, axis=1)


def _with_grids(rule: PositionRule, prompt: TokenBatch, documents: Sequence[Runs]) -> list[Runs]:
    """A row with the grid of the first run of each kind in the prompt, or of the same run of the first row."""
    model = [
        run for documents in prompt.runs[: 1 if rule.grids == "row" else None] for each in documents for run in each
    ]
    left = {kind: [run.grid for run in model if run.kind == kind] for kind in ("image", "video")}

    def changed(run: Run) -> Run:
        grids = left.get(run.kind, [])
        grid = grids.pop(0) if rule.grids == "row" and len(grids) > 1 else grids[0] if grids else run.grid
        return replace(run, grid=grid)

    return [tuple(changed(run) for run in runs) for runs in documents]


def _document(rule: PositionRule, runs: Sequence[Run], start: float) -> np.ndarray:
    parts: list[np.ndarray] = [np.empty(0)] * len(runs)
    order = range(len(runs))
    media = [place for place in order if runs[place].kind != "text"]
    missed = {place for number, place in enumerate(media) if number in rule.missed}
    grids_first = sorted(order, key=lambda place: runs[place].kind == "text")
    for place in grids_first if rule.text == "after" else order:
        run = runs[place]
        way = "text" if place in missed else {"image": rule.image, "video": rule.video}.get(run.kind, "text")
        count = len(run.ids)
        if run.audio and way != "text":
            part, after = _audible(rule, run, start)
        elif way == "grid":
            part = _cells(rule, run, start, "cells")
            sides = _cells(rule, run, start, "sides") if rule.unmerged else part
            after = AFTER[rule.after](rule, run, sides, start)
            part = part + rule.grid_shift
        else:
            own = np.arange(count) * (way != "one") + start * (way != "local")
            part = np.tile(own, (len(rule.axes), 1))
            after = start + {"one": 1, "uncounted": 0}.get(way, count)
            if rule.text in {"zero", "line"} and run.kind == "text":
                line = np.array([[axis == "line"] for axis in rule.axes]) & (rule.text == "line")
                part, after = line * np.arange(count), start
        parts[place] = part[:, :count].astype(float)  # of more cells than tokens the first ones
        start = after
    return np.concatenate([parts[place] for place in (grids_first if rule.grids_first else order)], axis=1)


def _audible(rule: PositionRule, run: Run, start: float) -> tuple[np.ndarray, float]:
    """The positions of a video with audio and its four marks, [axes, tokens], and where the next run starts.

    Both are NaN where it depends on the code: of a rule that has no grid there, or another number of cells than the
    tokens, or times by which audio comes elsewhere between the frames.
    """
    second = int(rule.audio_marks == "counted")
    first = start + second + 1
    cells = _cells(rule, run, first, "cells")
    heard = np.arange(run.audio) + (first if rule.audio_start_at == "with" else cells.max() + 1)
    times = cells[rule.axes.index("time")] - (first if rule.time_origin == "start" else 0)
    order = audible_order(replace(rule, audio_order=rule.audio_read or rule.audio_order), times, run.audio)
    audible = np.array(run.mixed[2:-2]) == KINDS.index("audio")
    fits = order.size == audible.size and (rule.audio_read or np.array_equal(order >= times.size, audible))
    if rule.video != "grid" or not fits:
        return np.full((len(rule.axes), len(run.ids)), np.nan), np.nan
    inside = np.concatenate([cells + rule.grid_shift, np.tile(heard, (len(rule.axes), 1))], axis=1)[:, order]
    last = (inside[:, -1] if rule.audio_after == "last" else inside).max()
    marks = [np.tile([[where], [where + second]], len(rule.axes)).T for where in (start, last + 1)]
    return np.concatenate([marks[0], inside, marks[1]], axis=1), last + second + 2


def _sides(rule: PositionRule, run: Run, what: str = "sides") -> tuple[int, int]:
    """The rows and columns of a grid, of cells unless the rule forgets this."""
    merge = 1 if what in rule.unmerged else rule.merge
    rows, columns = run.grid[1] // merge, run.grid[2] // merge
    return (columns, rows) if rule.transposed else (rows, columns)


def _of_cells(rule: PositionRule, cells: np.ndarray, stride: float, causal: bool) -> np.ndarray:
    """The coordinates of cells along an axis, in frames or pixels."""
    ends = np.stack([cells, cells + 1]) * stride
    ends = np.maximum(ends + 1 - stride, 0) if causal else ends
    return {"start": ends[0], "middle": ends.mean(0), "end": ends[1]}[rule.cell]


def _cells(rule: PositionRule, run: Run, start: float, what: str) -> np.ndarray:
    """The coordinates of the cells of a grid, [axes, cells]."""
    video = run.kind == "video"
    frames = run.grid[0] // (rule.frame_merge if video else 1)
    shape = (frames, *_sides(rule, run, what))
    order = ["trc".index(axis) for axis in rule.scan]
    time, row, column = (
        _of_cells(rule, axis.transpose(order).ravel(), stride, rule.causal and not number)
        for number, (axis, stride) in enumerate(zip(np.indices(shape), rule.stride, strict=True))
    )
    time = frame_times(rule, time, run.seconds if video else None) + run.begins * (rule.begins == "added")
    if rule.time_origin == "start":
        time = time + start * (rule.video_scale if video else rule.image_scale)
    if rule.origin == "middle":
        row, column = (place - (side - side // 2) for place, side in ((row, shape[1]), (column, shape[2])))
    elif rule.origin == "start":
        row, column = row + start, column + start
    places = {"time": time, "row": row, "column": column, "position": time, "line": 0 * time}
    return np.stack([places[axis] for axis in rule.axes]).astype(float)
