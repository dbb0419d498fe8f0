"""Prompts for position functions: rows of documents of text, images, videos and audio, with their tokens and grids."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.packaged import packaged
from clockhands.recognition.token_positions.audible_videos import audible_order, frame_times
from clockhands.recognition.token_positions.rules import PositionRule, TokenIds

KINDS = ("text", "image", "video", "audio")
"""The kinds of runs; a token's type is the index of its kind."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a document, as a person thinks of it: so much text or audio, an image, a video.

    Attributes:
        kind: One of `KINDS`.
        tokens: Of text and audio, the number of tokens; of a video, those of the audio in it.
        cells: Of an image or a video, the number of frames, rows and columns of its tokens.
        seconds: Of a video, the time from one frame to the next.
        begins: Of a video that continues another, the time of its first frame in seconds.
    """

    kind: str
    tokens: int = 0
    cells: tuple[int, int, int] = (1, 1, 1)
    seconds: float = 1.0
    begins: float = 0.0


@dataclass(frozen=True)
class Run:
    """Consecutive tokens that are numbered together: text with its marks, the cells of a grid, a video with audio.

    Attributes:
        kind: One of `KINDS`.
        ids: The ids of its tokens.
        grid: The grid in patches, (frames, rows, columns).
        seconds: The time from one frame to the next.
        mixed: Of a video with audio, the type of each token: its two marks on each side, cells and audio.
        begins: The time of its first frame, of a video that continues another.
    """

    kind: str
    ids: tuple[int, ...]
    grid: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 1.0
    mixed: tuple[int, ...] = ()
    begins: float = 0.0

    @property
    def types(self) -> tuple[int, ...]:
        """The type of each token."""
        return self.mixed[: len(self.ids)] or (KINDS.index(self.kind),) * len(self.ids)

    @property
    def audio(self) -> int:
        """The number of audio tokens inside a video."""
        return self.mixed.count(KINDS.index("audio"))


Document = tuple[PromptPart, ...]
Runs = tuple[Run, ...]


@dataclass(frozen=True)
class TokenBatch:
    """Rows of tokens, as the runs of their documents.

    Attributes:
        name: Its name in a report.
        runs: The runs of each document of each row; a row that is not packed has one document.
        mask: Which tokens are no padding, [batch, seq].
        audio_in_video: Whether the function is told that its videos have audio.
    """

    name: str
    runs: tuple[tuple[Runs, ...], ...]
    mask: np.ndarray = field(compare=False, repr=False)
    audio_in_video: bool = field(default=False, kw_only=True)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of tokens of the longest one."""
        return self.mask.shape[0], self.mask.shape[1]

    @property
    def lengths(self) -> list[list[int]]:
        """The number of tokens of each document of each row."""
        return [[sum(len(run.ids) for run in document) for document in row] for row in self.runs]

    def spread(self, values: Sequence[Sequence[float]], padding: float) -> np.ndarray:
        """Numbers of the tokens of each row, [batch, seq], with the padding around them."""
        out = np.full(self.shape, padding)
        out[self.mask] = [value for row in values for value in row]
        return out

    @property
    def ids(self) -> np.ndarray:
        """The ids of the tokens, [batch, seq]; padding has id 0."""
        return self._of_runs(lambda run: run.ids)

    @property
    def types(self) -> np.ndarray:
        """The type of each token, [batch, seq]: 0 text, 1 image, 2 video, 3 audio."""
        return self._of_runs(lambda run: run.types)

    def _of_runs(self, numbers: Callable[[Run], Sequence[int]]) -> np.ndarray:
        rows = [[number for document in row for run in document for number in numbers(run)] for row in self.runs]
        return self.spread(rows, 0).astype(np.int64)

    @property
    def documents(self) -> np.ndarray:
        """The number of the document of each token, [batch, seq], from 0; padding has -1."""
        rows = [[number for number, count in enumerate(row) for _ in range(count)] for row in self.lengths]
        return self.spread(rows, -1).astype(np.int64)


@dataclass(frozen=True)
class Prompt(TokenBatch):
    """A batch that a position function is called with.

    Attributes:
        rows: The parts of each document of each row.
        rule: The rule whose tokens and merging it has.
    """

    rows: tuple[tuple[Document, ...], ...]
    rule: PositionRule

    @property
    def parts(self) -> Iterator[PromptPart]:
        """All parts of all rows."""
        return (part for row in self.rows for document in row for part in document)

    def grids(self, kind: str) -> np.ndarray | None:
        """The grids of all images or videos in patches, [number, 3]; None if there are none."""
        found = [_patches(part, self.rule) for part in self.parts if part.kind == kind]
        return np.array(found, np.int64) if found else None


def prompt_of(name: str, rows: tuple[tuple[Document, ...], ...], rule: PositionRule, *, left: bool = True) -> Prompt:
    """A prompt from the parts of its documents; shorter rows are padded on the left, or on the right."""
    runs = tuple(
        tuple(tuple(run for part in document for run in _runs(part, rule)) for document in row) for row in rows
    )
    counts = [sum(len(run.ids) for document in row for run in document) for row in runs]
    places = np.arange(max(counts))
    mask = np.array([places >= places.size - count if left else places < count for count in counts])
    audible = any(run.audio for row in runs for document in row for run in document)
    return Prompt(name, runs, mask, rows, rule, audio_in_video=audible)


def _patches(part: PromptPart, rule: PositionRule) -> tuple[int, int, int]:
    frames, rows, columns = part.cells
    return frames * (rule.frame_merge if part.kind == "video" else 1), rows * rule.merge, columns * rule.merge


def _runs(part: PromptPart, rule: PositionRule) -> Iterator[Run]:
    """A part with its marks. Frames that are apart have a time before them, or after them where images mark frames."""
    tokens = rule.tokens
    grid = _patches(part, rule)
    cells = part.cells[0] * part.cells[1] * part.cells[2]
    if part.kind == "text":
        yield _text(part.tokens, tokens)
    elif part.kind == "video" and rule.frames_apart:
        marked = tokens.video == tokens.image  # frames are marked as images, between the marks of the video
        frame = Run("video", (tokens.video,) * (cells // part.cells[0]), (1, *grid[1:]))
        for number in range(part.cells[0]):
            yield _mark(tokens.video_start) if marked and not number else _text(2, tokens)
            yield from (_mark(tokens.image_start), frame, _mark(tokens.image_end))
        yield _mark(tokens.video_end) if marked else _text(1, tokens)
    elif part.kind == "video" and part.tokens:
        yield audible_run(rule, grid, part.seconds, part.tokens)
    elif rule.latent:
        yield Run(part.kind, (tokens.image,) * cells, grid, part.seconds, begins=part.begins)
    else:
        count = part.tokens if part.kind == "audio" else cells
        yield _mark(getattr(tokens, f"{part.kind}_start"))
        yield Run(part.kind, (getattr(tokens, part.kind),) * count, grid, part.seconds)
        yield _mark(getattr(tokens, f"{part.kind}_end"))


def audible_run(rule: PositionRule, grid: tuple[int, int, int], seconds: float, audio: int) -> Run:
    """A video with audio: its marks, and between them cells and audio in the order of the family."""
    tokens = rule.tokens
    frames, cells = grid[0] // rule.frame_merge, (grid[1] // rule.merge) * (grid[2] // rule.merge)
    times = np.repeat(frame_times(rule, np.arange(frames), seconds), cells)
    audible = audible_order(rule, times, audio) >= times.size
    ids = np.where(audible, tokens.audio, tokens.video).tolist()
    types = np.where(audible, KINDS.index("audio"), KINDS.index("video")).tolist()
    marked = (tokens.video_start, tokens.audio_start, *ids, tokens.audio_end, tokens.video_end)
    return Run("video", marked, grid, seconds, (0, 0, *types, 0, 0))


def _mark(token: int) -> Run:
    return Run("text", (token,))


def _text(count: int, tokens: TokenIds) -> Run:
    """Text of tokens that are not special."""
    special = set(vars(tokens).values())
    plain = [token for token in range(1, 24) if token not in special]
    return Run("text", tuple(plain[place % len(plain)] for place in range(count)))


def prompts_of(rule: PositionRule) -> list[Prompt]:
    """The prompts that tell the rules and the faults apart."""
    known = packaged(__file__, "prompts.toml")
    if rule.latent:
        return [_written(row, rule) for group in _groups_of_latents(rule) for row in known[group]]
    prompts = [_written(row, rule) for group in _groups(rule) for row in known[group]]
    return [*prompts, replace(prompts[0], name="the first prompt again")]  # shows what is kept from an earlier call


def _groups_of_latents(rule: PositionRule) -> tuple[str, ...]:
    if rule.per_second:
        return ("latent_seconds",)
    return ("latent",) if rule.text == "none" else ("latent", "latent_and_text")


def _groups(rule: PositionRule) -> Iterator[str]:
    """The groups of prompts with parts that the rule has."""
    if rule.image != "none":
        yield "image"
    yield "text"
    if rule.video != "none":
        yield "video"
    if rule.audio_rate:
        yield "audio"
    if rule.audio_order != "none":
        yield "audible"


def _written(row: Mapping[str, Any], rule: PositionRule) -> Prompt:
    """A prompt of ``prompts.toml``."""
    packed = [tuple(_part(*part) for part in document) for document in row.get("packed", ())]
    rows = [(tuple(_part(*part) for part in parts),) for parts in row.get("rows", ())]
    prompt = prompt_of(row["name"], tuple(rows) or (tuple(packed),), rule, left=not row.get("right"))
    return replace(prompt, audio_in_video=row.get("audio_in_video", prompt.audio_in_video))


def _part(kind: str, *numbers: Any) -> PromptPart:
    """A part of a prompt, as ``prompts.toml`` writes it."""
    if kind == "image":
        rows, columns = numbers
        return PromptPart(kind, cells=(1, rows, columns))
    if kind == "video":
        frames, rows, columns, seconds, audio, begins = (*numbers, 0, 0)[:6]
        return PromptPart(kind, audio, (frames, rows, columns), seconds, begins)
    return PromptPart(kind, *numbers)
