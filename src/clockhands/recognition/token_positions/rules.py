"""Rules by which model families number tokens: text, cells of images and videos, audio, padding, packed documents.

One `PositionRule` describes a family; a fault is the same rule with one other field. The rules of ``families.toml`` are
written from the sources that they name, and tests hold them to the functions of the pinned Transformers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from clockhands.errors import InvalidType, InvalidValue
from clockhands.packaged import packaged
from clockhands.phrases import did_you_mean, listed, shown

TIME_ROW_COLUMN = ("time", "row", "column")


@dataclass(frozen=True)
class TokenIds:
    """The ids of the tokens that hold the place of an image, a video or a sound, and of the marks around them."""

    image: int = 1_000_001
    video: int = 1_000_002
    audio: int = 1_000_003
    image_start: int = 1_000_004
    image_end: int = 1_000_005
    video_start: int = 1_000_004
    video_end: int = 1_000_005
    audio_start: int = 1_000_006
    audio_end: int = 1_000_007


@dataclass(frozen=True)
class PositionRule:
    """How a family numbers its tokens.

    Positions count tokens. A run of text has consecutive numbers on every axis. A run of cells, (frames, rows, columns)
    of an image or a video, has the coordinates of each cell, counted from the position where the run starts.

    Attributes:
        family: The name of the family.
        source: The paper, or the file and release, that defines the rule.
        tokens: The ids of special tokens.
        axes: What each number of a token is.
        first: The position of the first token.
        merge: Patches per cell and side: a grid of 4 x 6 patches has 2 x 3 cells if 2 are merged.
        frame_merge: Frames of a video per cell.
        per_second: Positions per second of a video; 0 where a frame is one position, whatever its time.
        frame_step: What times are multiplied by besides.
        seconds: ``"exact"``, or ``"whole"`` where seconds are cut to whole numbers first, or ``"ignored"``, or
            ``"inverse"`` where the frames of a second are taken for them.
        times: ``"whole"`` where times are cut to whole positions, else ``"exact"`` or ``"rounded"``.
        precision: In which times are computed, ``"double"`` or ``"single"``: near a whole position the cut differs.
        image, video: How their tokens are numbered: as a ``"grid"``, like ``"text"``, all as ``"one"`` position, like
            text that the next run does not count (``"uncounted"``), from 0 (``"local"``); ``"none"`` if there are none.
        frames_apart: Whether each frame of a video is a run of its own, with its time as text before or after it.
        after: Where the next run starts after a grid: after its ``"largest"`` position, or ``"sides"``: the larger
            number of rows or columns after its start; further values are those of `numbering.AFTER`.
        origin: Where rows and columns are counted from: ``"start"`` of the run, ``"zero"``, or the ``"middle"``.
        time_origin: Where times are counted from: ``"start"`` or ``"zero"``.
        image_scale, video_scale: What the start of a run is multiplied by in its times.
        begins: Whether the seconds at which a video begins are ``"added"`` or ``"ignored"``.
        grid_shift: What is added to the coordinates of cells.
        stride: What a cell of a latent stands for: frames of the video, and pixels down and across.
        causal: Whether the first frame of a latent stands for one frame of the video, whatever the stride.
        cell: Whether a coordinate is that of the ``"start"`` of a cell, its ``"middle"`` or its ``"end"``.
        text: Whether text tokens are ``"counted"``, or all at ``"zero"``, or counted from 0 on the axis ``"line"``
            alone, or counted after the grids that follow them (``"after"``); ``"none"`` if there are none among the
            tokens.
        grids_first: Whether the positions of grids are returned before those of text.
        scan: The order of cells, the slowest axis first.
        transposed: Whether grids are read as (frames, columns, rows).
        unmerged: What forgets that patches are merged: ``"cells"``, ``"sides"``, or both.
        audio_rate: Audio features per audio token; 0 if the family has no audio.
        audio_chunk: Audio tokens for each chunk of features, of which the last has half of its features; 0 if all have
            `audio_rate`.
        audio_order: The order of frames and audio in a video: by ``"chunks"`` of time, frames first, or token by token
            by ``"time"``, or all ``"frames"`` before all audio; ``"none"`` if no such order is known.
        audio_read: The order in which they are numbered, where it is another one than that of the tokens.
        chunk: Seconds of a chunk.
        audio_start_at: Whether the audio of a video starts ``"with"`` its frames, or ``"after"`` them.
        audio_marks: Whether the two marks before a video with audio, and those after it, are ``"counted"``, or have
            one position, ``"shared"``.
        audio_after: Whether the marks after a video with audio follow its ``"last"`` token, or the ``"largest"``
            position.
        padding: Whether padding is ``"skipped"`` or ``"counted"``, or is counted in place of the tokens, which are all
            ``"inverted at 0"`` or ``"inverted at 1"``.
        documents: Whether packed documents ``"restart"`` or ``"continue"``, or restart ``"twice"``,
            or one token ``"late"``, or all after the first at ``"one"``; or those after the first are not numbered, and
            all their tokens are ``"left at 0"`` or ``"left at 1"``.
        limit: The largest position: larger ones are this one.
        rows: Whether the rows of a batch have positions of their ``"own"``, or those of the ``"first"`` row, or
            count on from row to row, ``"flat"``, or are higher by the number of the row, ``"shifted"``, or are so
            on the first axis alone, ``"numbered"``.
        grids: Whether each run has its ``"own"`` grid, that of the ``"first"`` run of the prompt, or that of the run in
            the first ``"row"``.
        missed: Which images and videos of a document, counted from 0, are numbered like text.
        noted: What is particular to this version of the rule, for the report.
    """

    family: str
    source: str
    tokens: TokenIds = TokenIds()
    axes: tuple[str, ...] = TIME_ROW_COLUMN
    first: int = 0
    merge: int = 1
    frame_merge: int = 1
    per_second: float = 0.0
    frame_step: float = 1.0
    seconds: str = "exact"
    times: str = "whole"
    precision: str = "double"
    image: str = "grid"
    video: str = "grid"
    frames_apart: bool = False
    after: str = "largest"
    origin: str = "start"
    time_origin: str = "start"
    image_scale: float = 1.0
    video_scale: float = 1.0
    begins: str = "added"
    grid_shift: int = 0
    stride: tuple[float, ...] = (1.0, 1.0, 1.0)
    causal: bool = False
    cell: str = "start"
    text: str = "counted"
    grids_first: bool = False
    scan: str = "trc"
    transposed: bool = False
    unmerged: frozenset[str] = frozenset()
    audio_rate: int = 0
    audio_chunk: int = 0
    audio_order: str = "none"
    audio_read: str = ""
    chunk: float = 2.0
    audio_start_at: str = "with"
    audio_marks: str = "counted"
    audio_after: str = "last"
    padding: str = "skipped"
    documents: str = "restart"
    limit: float = math.inf
    rows: str = "own"
    grids: str = "own"
    missed: frozenset[int] = frozenset()
    noted: str = ""

    @property
    def latent(self) -> bool:
        """Whether the tokens are those of one latent image or video, and are given by its size."""
        return self.origin != "start"

    def audio_features(self, tokens: int) -> int:
        """The number of audio features of so many audio tokens."""
        halves = tokens // self.audio_chunk if self.audio_chunk else 0
        return self.audio_rate * tokens - self.audio_rate // 2 * halves

    @property
    def words(self) -> str:
        """The rule in a report."""
        return f"token positions of {self.family} ({self.noted or self.source})"


def _families() -> Iterator[tuple[str, tuple[PositionRule, ...]]]:
    """Each name of a family, with its rules."""
    rules: dict[str, PositionRule] = {}
    for family, row in packaged(__file__, "families.toml").items():
        like, also, versions = row.get("like"), row.get("also", ()), row.get("versions", ())
        around = rules[like] if like else PositionRule(family, row["source"])
        fields = {key: value for key, value in row.items() if key not in ("like", "also", "versions")}
        fields["tokens"] = replace(around.tokens, **row.get("tokens", {}))
        fields |= {name: tuple(row.get(name, getattr(around, name))) for name in ("axes", "stride")}
        rules[family] = rule = replace(around, family=family, **fields)
        for name in (family, *also):
            yield name, (rule, *(replace(rule, **version) for version in versions))


_BY_NAME = dict(_families())

FAMILIES: Mapping[str, tuple[PositionRule, ...]] = {rules[0].family: rules for rules in _BY_NAME.values()}
"""The rules of each family; where releases differ, the published one first."""

_PER_SECOND_UNSAID = {"qwen2_5_vl": 4.0, "qwen3_omni_moe": 25.0, "qwen3_omni_moe_thinker": 25.0}
"""What the class of Transformers takes where a config does not say the positions per second, if the rule has others."""


def _stride(text: str) -> tuple[float, ...]:
    """``4x16x16``: the frames, the pixels down and the pixels across that a cell of a latent stands for."""
    made = tuple(float(each) for each in text.split("x"))
    if len(made) != 3 or not all(0 < each < math.inf for each in made):
        raise ValueError(text)
    return made


SETTABLE = {
    "merge": int, "frame_merge": int, "per_second": float, "chunk": float, "first": int, "stride": _stride,
    **{each.name: int for each in fields(TokenIds)},
}  # fmt: skip
"""What a caller may set of a rule, with its type; `first` is the first position, the others are ids of tokens."""


def rules_of(like: object) -> tuple[PositionRule, ...]:
    """The rules of a family by its name, with fields: ``"qwen2_5_vl:per_second=2,image=9"``; or rules themselves.

    >>> [rule.after for rule in rules_of("qwen2_vl:merge=1")]
    ['largest', 'sides']
    """
    if isinstance(like, PositionRule):
        return (like,)
    if isinstance(like, tuple) and like and all(isinstance(each, PositionRule) for each in like):
        return like
    if not isinstance(like, str):
        missing = "The family whose rule the positions should follow is missing."
        raise InvalidType(
            missing if like is None else f"`like` must be the name of a family, got {shown(like)}.",
            f"Pass it: like=, or --like FAMILY. Families: {listed(sorted(FAMILIES))}.",
        )
    name, _, settings = like.partition(":")
    if not is_family(like):
        raise InvalidValue(
            f"There is no family of position rules called {shown(name)}.",
            did_you_mean(name, _BY_NAME, f"Families: {', '.join(sorted(FAMILIES))}."),
        )
    name = _plain(name)
    given = dict(_setting(each) for each in settings.split(",") if each.strip())
    ids = {key: value for key, value in given.items() if hasattr(TokenIds, key)}
    others = {key: value for key, value in given.items() if key not in ids}
    rules = _BY_NAME[name]
    return tuple(replace(rule, tokens=replace(rule.tokens, **ids), **others) for rule in rules)


def is_family(like: str) -> bool:
    """Whether a text is the name of a family, with or without fields.

    >>> is_family("Qwen2.5-VL:image=9"), is_family("qwen2")
    (True, False)
    """
    return _plain(like.partition(":")[0]) in _BY_NAME


def _plain(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


def rules_of_config(config: Any) -> tuple[PositionRule, ...] | None:
    """The rules of the family of a config, loaded or as a dict, with its tokens and sizes; None for other families."""
    name = str(_held(config, "model_type"))
    if name not in _BY_NAME:
        return None
    config = _held(config, "thinker_config") or config
    vision = _held(config, "vision_config")
    sizes = {
        "merge": _held(vision, "spatial_merge_size"),
        "frame_merge": _held(vision, "temporal_merge_size"),
        "per_second": _held(vision, "tokens_per_second")
        or _held(config, "position_id_per_seconds")
        or _PER_SECOND_UNSAID.get(name),
        "chunk": _held(config, "seconds_per_chunk"),
    }
    ids = {
        each.name: _held(config, key)
        for each in fields(TokenIds)
        for key in (
            f"{each.name}_token_id",
            f"{each.name}_token_index",
            f"{each.name.replace('image_', 'vision_').replace('video_', 'vision_')}_token_id",
        )
        if isinstance(_held(config, key), int)
    }
    rules = _BY_NAME[name]
    if rules[0].tokens.video == rules[0].tokens.image and "image" in ids:
        ids["video"] = ids["image"]
    known = {key: value for key, value in sizes.items() if value is not None and getattr(rules[0], key)}
    return tuple(replace(rule, tokens=replace(rule.tokens, **ids), **known) for rule in rules)


def _held(config: Any, key: str) -> Any:
    return config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = (part.strip() for part in text.partition("="))
    if key not in SETTABLE:
        raise InvalidValue(
            f"A position rule has no field {shown(key)}.", did_you_mean(key, SETTABLE, f"It has {', '.join(SETTABLE)}.")
        )
    try:
        number = SETTABLE[key](value)
        if key != "stride" and number < (1 if "merge" in key else 0):
            raise ValueError(value)
    except ValueError:
        what, example = ("three numbers", "8x32x32") if key == "stride" else ("a number", "2")
        raise InvalidValue(f"`{key}` must be {what}, got {shown(value)}.", f"Write it as {key}={example}.") from None
    return key, number
