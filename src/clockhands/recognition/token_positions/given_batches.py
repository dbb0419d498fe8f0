"""A user's own batch as runs of tokens: which tokens are text, and which are cells of which image or video."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.phrases import number_of
from clockhands.recognition.token_positions.prompts import KINDS, Run, Runs, TokenBatch, audible_run
from clockhands.recognition.token_positions.rules import PositionRule

_Grid = tuple[int, int, int]


def given_batch(
    rule: PositionRule,
    ids: np.ndarray,
    *,
    mask: np.ndarray | None = None,
    grids: Mapping[str, Any] | None = None,
    seconds: Sequence[float] | None = None,
    types: np.ndarray | None = None,
    documents: np.ndarray | None = None,
) -> TokenBatch:
    """The runs of a batch.

    Args:
        rule: The rule of the family.
        ids: The ids of its tokens, [batch, seq].
        mask: Which tokens are no padding, [batch, seq]; all unless given.
        grids: The grids of all images and videos in patches, [number, 3], by ``"image"`` and ``"video"``.
        seconds: The time between the frames of each video; 1 unless given.
        types: The type of each token, [batch, seq]; from the ids unless given.
        documents: The number of the document of each token, [batch, seq]; one for each row unless given.

    Raises:
        InvalidValue: A type is not known, or the images or videos have other numbers of tokens or seconds than grids.
    """
    mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    types = _types(rule, ids) if types is None else np.asarray(types)
    if not np.isin(types, range(len(KINDS))).all():
        raise InvalidValue(
            f"`mm_token_type_ids` has the type {types[~np.isin(types, range(len(KINDS)))][0]}.",
            f"Types are {', '.join(f'{number} ({kind})' for number, kind in enumerate(KINDS))}.",
        )
    videos = (grids or {}).get("video")
    count = 0 if videos is None else len(videos)
    if seconds is not None and len(seconds) != count:
        raise InvalidValue(
            f"`second_per_grid_ts` has {number_of(len(seconds), 'value')} for {number_of(count, 'video')}.",
            "Pass the seconds between the frames of each video, in the order of video_grid_thw.",
        )
    documents = np.zeros(ids.shape, int) if documents is None else np.asarray(documents)
    left = {kind: list(_grids(rule, kind, (grids or {}).get(kind), seconds)) for kind in ("image", "video")}
    rows = []
    for row in range(len(ids)):
        kept = np.flatnonzero(mask[row])
        parts = [list(places) for _, places in groupby(kept, key=lambda place, row=row: documents[row, place])]
        rows.append(tuple(tuple(_runs(rule, ids[row, part], types[row, part], left)) for part in parts))
    for kind, rest in left.items():
        if rest:
            raise InvalidValue(
                f"{number_of(len(rest), 'grid')} of {kind}s have no tokens in the batch.",
                "Pass the grids of the images and videos of this batch, and the ids of their tokens.",
            )
    audible = any(run.audio for row in rows for document in row for run in document)
    return TokenBatch("the batch", tuple(rows), mask, audio_in_video=audible)


def _types(rule: PositionRule, ids: np.ndarray) -> np.ndarray:
    """The types of tokens by their ids; frames that are marked as images are a video between the marks of one."""
    tokens = rule.tokens
    types = np.zeros(ids.shape, int)
    for kind in ("audio", "video", "image"):
        types[ids == getattr(tokens, kind)] = KINDS.index(kind)
    if tokens.image == tokens.video:
        inside = np.cumsum(ids == tokens.video_start, axis=1) > np.cumsum(ids == tokens.video_end, axis=1)
        types[(ids == tokens.image) & inside] = KINDS.index("video")
    return types


def _grids(rule: PositionRule, kind: str, grids: Any, seconds: Sequence[float] | None) -> Iterator[tuple[_Grid, float]]:
    """The grid of each run of one kind, and the time between its frames."""
    for number, (frames, rows, columns) in enumerate([] if grids is None else np.asarray(grids).tolist()):
        apart = kind == "video" and rule.frames_apart
        step = 1.0 if seconds is None or kind == "image" else float(seconds[number])
        yield from [((1 if apart else frames, rows, columns), step)] * (frames if apart else 1)


def _runs(rule: PositionRule, ids: np.ndarray, types: np.ndarray, left: dict[str, list[tuple[_Grid, float]]]) -> Runs:
    runs = []
    audible = _audible_videos(rule, ids, types)
    for (number, own), group in groupby(range(len(ids)), lambda at: (audible[at], types[at] * (not audible[at]))):
        places = list(group)
        kind, found = KINDS[own], tuple(ids[places].tolist())
        if number:
            runs.append(_audible_run(rule, found, types[places], left))
        elif kind not in left or getattr(rule, kind) != "grid":
            runs.append(Run(kind, found))
        else:
            while found:
                grid, seconds, count = _next_grid(rule, kind, len(found), left)
                runs.append(Run(kind, found[:count], grid, seconds))
                found = found[count:]
    return tuple(runs)


def _next_grid(
    rule: PositionRule, kind: str, tokens: int, left: dict[str, list[tuple[_Grid, float]]]
) -> tuple[_Grid, float, int]:
    """The next grid of a kind, the time between its frames, and its number of cells, of which there are tokens."""
    if not left[kind]:
        raise InvalidValue(
            f"The batch has {number_of(tokens, 'token')} of {kind}s without a grid.",
            f"Pass {kind}_grid_thw with the grid of every {kind}, in patches.",
        )
    grid, seconds = left[kind].pop(0)
    frames = grid[0] // (rule.frame_merge if kind == "video" else 1)
    count = frames * (grid[1] // rule.merge) * (grid[2] // rule.merge)
    if not 0 < count <= tokens:
        raise InvalidValue(
            f"A grid of {' x '.join(map(str, grid))} patches has {number_of(count, 'token')}, but the batch "
            f"has {tokens} where this {kind} is.",
            f"Pass the grids in the order of the {kind}s; {rule.merge} x {rule.merge} patches are a token.",
        )
    return grid, seconds, count


def _audible_videos(rule: PositionRule, ids: np.ndarray, types: np.ndarray) -> np.ndarray:
    """For each token the number of its video with audio, from 1, with two marks on each side; 0 for other tokens."""
    numbers = np.zeros(len(ids), int)
    if rule.audio_order == "none":
        return numbers
    starts = np.flatnonzero((ids[:-1] == rule.tokens.video_start) & (ids[1:] == rule.tokens.audio_start))
    for number, start in enumerate(starts + 2, 1):
        inside = np.cumprod(types[start:] != 0).sum()
        if KINDS.index("video") in types[start : start + inside]:
            numbers[start - 2 : start + inside + 2] = number
    return numbers


def _audible_run(
    rule: PositionRule, ids: tuple[int, ...], types: np.ndarray, left: dict[str, list[tuple[_Grid, float]]]
) -> Run:
    cells, audio = (int((types == KINDS.index(kind)).sum()) for kind in ("video", "audio"))
    grid, seconds, _ = _next_grid(rule, "video", cells, left)
    either = [replace(rule, precision=precision) for precision in ("double", "single")]
    runs = [audible_run(each, grid, seconds, audio) for each in either]
    run = next((each for each in runs if each.mixed[: len(types)] == tuple(types.tolist())), None)
    if run is None:
        raise InvalidValue(
            "The frames and the audio of a video come in another order than in this family, so their positions are "
            "not known.",
            "Let the processor of the model make the tokens; second_per_grid_ts says the time between frames.",
        )
    return replace(run, ids=ids)
