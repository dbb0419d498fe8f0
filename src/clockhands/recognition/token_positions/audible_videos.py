"""The order of frames and audio in a video with audio."""

from collections.abc import Sequence

import numpy as np

from clockhands.recognition.token_positions.rules import PositionRule

_SECONDS = {
    "exact": lambda seconds: seconds,
    "whole": lambda seconds: seconds // 1,
    "ignored": lambda _seconds: 1.0,
    "inverse": lambda seconds: 1 / seconds,
}
"""What is taken for the seconds from one frame to the next."""


def frame_times(rule: PositionRule, frames: np.ndarray, seconds: float | None) -> np.ndarray:
    """The times of frames by their numbers, in positions from the first one; of an image ``seconds`` are None."""
    kind = np.float32 if rule.precision == "single" else np.float64
    times = frames.astype(kind) * kind(rule.frame_step)
    if rule.per_second and seconds is not None:
        times = times * kind(_SECONDS[rule.seconds](seconds)) * kind(rule.per_second)
    times = times.astype(np.float64)
    if rule.times == "exact":
        return times
    return np.floor(times) if rule.times == "whole" else np.round(times)


def audible_order(rule: PositionRule, times: np.ndarray, audio: int) -> np.ndarray:
    """The order of the cells of a video, which have these times, and of its audio tokens, numbered after the cells."""
    both = [times, np.arange(audio)]
    if rule.audio_order == "chunks":
        both = [_chunks(each, int(rule.per_second * rule.chunk)) for each in both]
    elif rule.audio_order == "frames":
        both = [np.zeros(each.size) for each in both]
    return np.argsort(np.concatenate(both), kind="stable")  # of cells and audio of one time the cells come first


def _chunks(times: Sequence[float] | np.ndarray, length: int) -> np.ndarray:
    """The number of the chunk of each token. A token begins at most one: after a gap some chunks are one token."""
    numbers, number = [], 0
    for time in times:
        number += time >= (number + 1) * length
        numbers.append(number)
    return np.array(numbers, int)
