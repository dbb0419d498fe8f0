"""Prompts for position functions: rows of documents of text, images, videos and audio, with their tokens and grids."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

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
    """

    kind: str
    tokens: int = 0
    cells: tuple[int, int, int] = (1, 1, 1)
    seconds: float = 1.0


@dataclass(frozen=True)
class Run:
    """Consecutive tokens that are numbered together: text with its marks, the cells of a grid, a video with audio.

    Attributes:
        kind: One of `KINDS`.
        ids: The ids of its tokens.
        grid: The grid in patches, (frames, rows, columns).
        seconds: The time from one frame to the next.
        mixed: Of a video with audio, the type of each token: its two marks on each side, cells and audio.
    """

    kind: str
    ids: tuple[int, ...]
    grid: tuple[int, int, int] = (0, 0, 0)
    seconds: float = 1.0
    mixed: tuple[int, ...] = ()

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
        yield Run(part.kind, (tokens.image,) * cells, grid, part.seconds)
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


def _image(rows: int, columns: int) -> PromptPart:
    return PromptPart("image", cells=(1, rows, columns))


def _video(frames: int, rows: int, columns: int, seconds: float, audio: int = 0) -> PromptPart:
    return PromptPart("video", audio, (frames, rows, columns), seconds)


def _words(count: int) -> PromptPart:
    return PromptPart("text", count)


def prompts_of(rule: PositionRule) -> list[Prompt]:
    """The prompts that tell the rules and the faults apart: sides that differ, times that are no whole numbers."""

    def prompt(name: str, *rows: Document, left: bool = True) -> Prompt:
        return prompt_of(name, tuple((row,) for row in rows), rule, left=left)

    if rule.latent:
        latents = [
            prompt("a latent image", (_image(2, 5),)),
            prompt("a tall latent image", (_image(6, 3),)),
            prompt("a latent video", (_video(4, 2, 3, 1.0),)),
        ]
        if rule.text == "none":
            return latents
        return [
            *latents,
            prompt("text and a latent image", (_words(3), _image(4, 7))),
            prompt("text and a latent video", (_words(2), _video(3, 5, 4, 1.0))),
        ]
    wide, tall = _image(3, 5), _image(5, 3)
    inputs = [
        prompt("text", (_words(9),)),
        prompt("left padding of text", (_words(4),), (_words(6),)),
        prompt("right padding of text", (_words(4),), (_words(6),), left=False),
        prompt_of("packed text", (((_words(5),), (_words(3),), (_words(4),)),), rule),
    ]
    if rule.image != "none":
        # The image first: what is kept from this call shows in the next one.
        inputs = [
            prompt("an image", (_words(4), _image(3, 4), _words(3))),
            prompt("a tall image", (_words(3), tall, _words(4))),
            prompt("two images", (_words(2), wide, _words(3), tall, _words(2))),
            prompt("a batch", (_words(3), wide, _words(2)), (_words(3), tall, _words(2))),
            prompt("left padding", (_words(4), wide, _words(3)), (_words(2), _image(4, 3), _words(2))),
            prompt("left padding of the first row", (_words(2), _image(3, 3)), (_words(5), tall, _words(2))),
            prompt("right padding", (_words(2), _image(3, 3), _words(2)), (_words(6), wide, _words(3)), left=False),
            prompt_of("packed images", (((_words(3), wide, _words(2)), (_words(2), tall, _words(3))),), rule),
            *inputs,
        ]
    if rule.video != "none":
        inputs += [
            prompt("a video", (_words(3), _video(3, 3, 4, 1.375), _words(3))),
            prompt("a long video", (_words(4), _video(7, 3, 4, 0.625), _words(4))),
            prompt("two videos", (_words(2), _video(2, 3, 4, 0.375), _words(2), _video(2, 4, 3, 2.75), _words(2))),
            prompt("a video and an image", (_words(2), _video(2, 4, 3, 1.375), _words(2), wide, _words(2))),
        ]
    if rule.audio_rate:
        inputs.append(prompt("audio and an image", (_words(3), PromptPart("audio", 7), _words(2), wide, _words(2))))
    if rule.audio_order != "none":
        inputs += [
            replace(prompt("an image beside videos with audio", (_words(2), wide, _words(3))), audio_in_video=True),
            prompt("a video with audio", (_words(3), _video(3, 2, 3, 0.625, 9), _words(2))),
            prompt("a wide video with audio", (_words(2), _video(2, 2, 7, 0.125, 4), _words(3))),
            prompt("a long video with audio", (_words(2), _video(5, 2, 3, 1.5, 70), _words(3))),
            prompt(
                "a video with audio and an image", (_words(2), _video(2, 2, 3, 1.375, 41), _words(2), tall, _words(2))
            ),
        ]
    return [*inputs, replace(inputs[0], name="the first prompt again")]  # shows what is kept from an earlier call
