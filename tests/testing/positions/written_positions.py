"""A position function of our own, written token by token, and one wrong variant of it for each fault.

It shares nothing with the rules under test. A fault is the name of the line that is wrong.
"""

import numpy as np

from clockhands.recognition.token_positions import rules_of


class Numbering:
    """A function of a family that numbers tokens; ``fault`` is what it does wrong."""

    def __init__(self, family, fault=None):
        self.rule = rules_of(family)[0]
        self.fault = fault
        self.kept = None

    def __call__(  # noqa: PLR0917 - the arguments that such functions take
        self, input_ids, attention_mask=None, image_grid_thw=None, video_grid_thw=None, second_per_grid_ts=None,
        mm_token_type_ids=None, document_ids=None, use_audio_in_video=False,
    ):  # fmt: skip
        self.told = use_audio_in_video
        mask = np.ones_like(input_ids) if attention_mask is None or self.fault == "padding" else attention_mask
        self.grids = {1: list(image_grid_thw) if image_grid_thw is not None else [],
                      2: list(self.frames(video_grid_thw))}  # fmt: skip
        self.seconds = list(second_per_grid_ts) if second_per_grid_ts is not None else []
        axes, self.before = len(self.rule.axes), 0
        out = np.zeros((axes, *input_ids.shape))
        for row in range(len(input_ids)):
            kept = np.flatnonzero(mask[row])
            whole = self.row(mm_token_type_ids[row, kept], document_ids[row, kept], input_ids[row, kept])
            out[:, row, kept] = whole
            self.before += len(kept)
        if self.fault == "first row":
            out[:] = out[:, :1]
        if self.fault == "stale":
            count = np.cumsum(mask, axis=1) - 1
            delta = out.max() - count.max()
            if self.kept is None:
                self.kept = delta
            else:
                out[:] = count + self.kept
        if self.fault == "axes":
            out = out[[1, 2, 0]]
        if self.fault == "exchanged":
            out = out[[0, 2, 1]]
        if self.fault == "clamped":
            out = np.minimum(out, 7)
        if self.fault == "one more":
            out = out + 1
        if self.fault == "two too many":
            out = out + 2
        return out if axes > 1 else out[0]

    def frames(self, grids):
        for frames, rows, columns in () if grids is None else grids:
            yield from [(1, rows, columns)] * frames if self.rule.frames_apart else [(frames, rows, columns)]

    def row(self, types, documents, ids):
        axes = len(self.rule.axes)
        done, start, place = [], self.rule.first + (self.before if self.fault == "flat" else 0), 0
        while place < len(types):
            starts = [0 <= documents[at] != documents[at - 1] >= 0 if at > 0 else False for at in (place - 1, place)]
            new = starts[0] if self.fault == "late" else starts[1]
            if new and self.fault != "no restart":
                start = self.rule.first - {"restarted twice": place, "from one": -1}.get(self.fault, 0)
            kind = types[place]
            marks = [self.rule.tokens.video_start, self.rule.tokens.audio_start]
            if self.told and self.fault != "as text" and ids[place : place + 2].tolist() == marks:
                numbers, start = self.audible(start, types, place)
                done += numbers
                place += len(numbers)
            elif kind in (1, 2) and (axes == 3 or self.fault in RUN_FAULTS):
                cells, count, start = self.cells(kind, start, types, place)
                done += cells
                place += count
            else:
                done.append((start,) * axes)
                start, place = start + 1, place + 1
        return np.array(done).T

    def audible(self, start, types, place):
        """A video with audio: its marks, frames and audio in the order of their tokens."""
        apart = int((self.rule.family == "qwen3_omni") != (self.fault == "marks"))
        end = place + 2
        while types[end]:
            end += 1
        first = start + 1 + apart
        cells = self.cells(2, first, types, place + 2)[0]
        from_here = max(map(max, cells)) + 1 if self.fault == "audio later" else first
        audio = [(from_here + number,) * 3 for number in range(list(types[place:end]).count(3))]
        left = {2: list(cells), 3: list(audio)}
        inside = [left[kind].pop(0) for kind in types[place + 2 : end]]
        if self.fault == "frames first":
            inside = cells + audio
        last = max(map(max, inside)) if self.fault == "after the largest" else max(inside[-1])
        marks = [[(at,) * 3, (at + apart,) * 3] for at in (start, last + 1)]
        return [*marks[0], *inside, *marks[1]], last + apart + 2

    def cells(self, kind, start, types, place):
        if self.fault in RUN_FAULTS:
            axes, count = len(self.rule.axes), 1
            while place + count < len(types) and types[place + count] == kind:
                count += 1
            if self.fault == "point":
                return [(start,) * axes] * count, count, start + 1
            first = 0 if self.fault == "local" else start
            numbers = [(first + number,) * axes for number in range(count)]
            return numbers, count, start if self.fault == "uncounted" else start + count
        frames, rows, columns = self.grids[kind].pop(0)
        if self.fault == "grid transposed":
            rows, columns = columns, rows
        merge = self.rule.merge
        frames = frames // self.rule.frame_merge if kind == 2 else frames
        count = frames * (rows // merge) * (columns // merge)
        if self.fault == "as text":
            return [(start + number,) * 3 for number in range(count)], count, start + count
        step = 1
        if kind == 2 and self.rule.per_second:
            seconds = self.seconds.pop(0)
            step = self.rule.per_second * {"seconds": int(seconds), "frames": 1 / seconds}.get(self.fault, seconds)
        if self.fault == "twice the time":
            step = 2 * step
        wide = columns // merge
        cells = []
        for number in range(count):
            frame, inside = divmod(number, (rows // merge) * (columns // merge))
            row, column = divmod(inside, wide)
            if self.fault == "by column":
                column, row = divmod(inside, rows // merge)
            time = frame * step if self.rule.times == "exact" else int(frame * step)
            from_start = {"scaled start": start * 2, "all from zero": 0}.get(self.fault, start)
            origin = 0 if self.fault in {"from zero", "all from zero"} else start
            cells.append((time + from_start, row + origin, column + origin))
        largest = max(map(max, cells))
        if self.fault == "patch cells":
            frame, row, column = np.unravel_index(range(count), (frames, rows, columns))
            time = frame * step if self.rule.times == "exact" else np.floor(frame * step)
            cells = list(zip(time + start, row + start, column + start, strict=True))
        sides = max(rows, columns) // merge
        after = {
            "after tokens": start + count, "after itself": largest, "after one": start + 1, "two more": largest + 2,
            "patches": max(largest + 1, start + max(rows, columns)), "all from zero": start + sides,
            "sides and one": start + sides + 1, "sides less one": start + sides - 1,
        }  # fmt: skip
        if self.fault == "image mark" and kind == 1 and self.told:
            return cells, count, largest
        return cells, count, after.get(self.fault, start + sides if self.fault == "sides" else largest + 1)


RUN_FAULTS = {"point": "image-as-one-position", "uncounted": "image-not-counted", "local": "image-from-zero"}
TEXT_FAULTS = {
    "padding": "padding-shifts",
    "no restart": "documents-continue",
    "restarted twice": "documents-restart-twice",
    "late": "documents-restart-late",
    "from one": "documents-restart-at-one",
    "clamped": "positions-clamped",
    "first row": "positions-of-first-sequence",
    "flat": "rows-continue",
    "one more": "first-position",
    "two too many": "first-position",
}
IMAGE_FAULTS = {**RUN_FAULTS, **TEXT_FAULTS}
GRID_FAULTS = {
    **RUN_FAULTS,
    **{fault: code for fault, code in TEXT_FAULTS.items() if fault != "late"},  # a grid cannot be cut
    "as text": "image-as-text",
    "exchanged": "rows-and-columns-exchanged",
    "axes": "axes-reordered",
    "by column": "cells-reordered",
    "scaled start": "image-time-scaled",
    "grid transposed": "grid-transposed",
    "from zero": "grid-origin",
    "all from zero": "grid-origin",
    "after tokens": "offset-after-image",
    "after itself": "offset-after-image",
    "after one": "offset-after-image",
    "two more": "offset-after-image",
    "patches": "merge-forgotten",
    "patch cells": "merge-forgotten",
    "stale": "stale-delta",
}
TIME_FAULTS = {"twice the time": "time-step", "seconds": "seconds-cut", "frames": "seconds-inverted"}
AUDIO_FAULTS = {
    "marks": "audio-marks",
    "audio later": "audio-after-video",
    "frames first": "audio-interleaved-otherwise",
    "after the largest": "audio-followed-otherwise",
    "image mark": "offset-after-image",
}
