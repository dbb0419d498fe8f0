"""Which positions a program passes to the functions of its model, read from the arguments of its Python functions."""

import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np

from clockhands.recognition.calling import as_numpy
from clockhands.testing._usual_names import meanings
from clockhands.testing.generation._causal_models import is_token

_OF_POSITIONS = meanings("positions", "cache_positions", "offset", "earlier")
_SLOTS = meanings("cache_positions")
_OUTSIDE = ("site-packages", "dist-packages", "<frozen", "clockhands/testing", "clockhands/recognition")


@dataclass(frozen=True)
class PlacedToken:
    """A token of a text that was passed with a position."""

    text: int
    place: int
    position: int


@dataclass
class PassedPositions:
    """Calls of functions that took tokens and positions, by function.

    Attributes:
        calls: The tokens and the positions of each call, [texts, tokens] both.
        slots: Whether places in a cache are taken for positions, which they are not where pads have some, too.
    """

    calls: dict[CodeType, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    slots: bool = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read the arguments of functions that this thread calls, while this lasts."""
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if (name := _argument_of(code)) is None or (not self.slots and name in _SLOTS):
            return
        held = frame.f_locals
        given = [held.get(each) for each in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
        positions = _whole(held.get(name))
        tokens = next((array for each in given if (array := _whole(each)) is not None and each is not held[name]), None)
        if positions is None or tokens is None or tokens.ndim == 0 or tokens.ndim > 2:
            return
        tokens = np.atleast_2d(tokens)
        if positions.ndim == 0 or (positions.size == 1 and tokens.shape[1] > 1):
            positions = positions.reshape(-1)[:1] + np.arange(tokens.shape[1])
        elif positions.shape == (len(tokens),) and tokens.shape[1] != len(tokens):
            positions = positions[:, None] + np.arange(tokens.shape[1])
        try:
            positions = np.broadcast_to(positions, tokens.shape)
        except ValueError:
            return
        self.calls.setdefault(code, []).append((tokens, positions))

    def wrong(
        self, texts: Sequence[Sequence[int]], prompts: Sequence[int], *, alike: bool
    ) -> tuple[list[PlacedToken], str]:
        """The tokens of texts that were passed with other positions than their places, and the function they went to.

        Args:
            texts: Each with the tokens that followed it.
            prompts: How many tokens of each text were its prompt.
            alike: Whether this is said of texts, too, whose positions are all further by one number: what is relative
                does not see that.
        """
        best: tuple[list[PlacedToken], str] = [], ""
        for code, calls in self.calls.items():
            placed = list(placed_tokens(calls, texts, prompts))
            if len(placed) > len(best[0]):
                best = placed, code.co_qualname
        wrong = []
        for text in range(len(texts)):
            of = [one for one in best[0] if one.text == text]
            if alike or len({one.position - one.place for one in of}) > 1:
                wrong += [one for one in of if one.position != one.place]
        return wrong, best[1]


def placed_tokens(
    calls: Sequence[tuple[np.ndarray, np.ndarray]], texts: Sequence[Sequence[int]], prompts: Sequence[int]
) -> Iterator[PlacedToken]:
    """The tokens of calls by the texts that they continue; those of pads and of unknown texts are left out."""
    done = [0] * len(texts)
    once = len(texts) == 1 and sum(tokens.size for tokens, _ in calls) < len(texts[0])  # no token is read twice
    before: dict[int, tuple[int, int]] = {}  # the row of each text, and of how many
    for tokens, positions in calls:
        taken: set[int] = set()
        for row, (ids, at) in enumerate(zip(tokens.tolist(), positions.tolist(), strict=True)):
            fits = [
                (text, found)
                for text in range(len(texts))
                if text not in taken
                and (text not in before or before[text] == (row, len(tokens)) or before[text][1] != len(tokens))
                and (found := _part(ids, texts[text], done[text])) is not None
            ]
            own = [one for one in fits if one[0] == row] or (fits if len(fits) == 1 else [])
            for text, (first, start, common) in own[:1]:
                size = common if done[text] else min(common, prompts[text])
                taken.add(text)
                before[text] = row, len(tokens)
                done[text] = start + size
                # A token that stands there twice may be the one before, read again.
                again = not once and size == 1 and start > 0 and texts[text][start] == texts[text][start - 1]
                for each in range(0 if again else size):
                    yield PlacedToken(text, start + each, at[first + each])


def _part(ids: list[int], text: Sequence[int], done: int) -> tuple[int, int, int] | None:
    """Where a row of tokens begins to be a part of a text, where in the text, and for how many tokens.

    None if it is none: before the tokens there may be pads or other text, and behind them pads or what a draft added.
    """
    own = list(text)
    best = (0, done, 0)
    for first in range(1 if done and _common(ids, own[done:]) else len(ids)):
        size = _common(ids[first:], own[done:])
        if size > best[2]:
            best = (first, done, size)
    if done and best[2] < len(ids) and (again := _common(ids, own)) >= done:
        return 0, 0, again  # the text is read once more from its start
    return best if best[2] >= min(2, len(ids)) or (best[2] and not best[0]) else None


def _common(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@functools.lru_cache(maxsize=4096)
def _argument_of(code: CodeType) -> str | None:
    """The argument of positions of a function that is none of a library."""
    if any(part in code.co_filename.replace("\\", "/") for part in _OUTSIDE):
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return next((name for name in _OF_POSITIONS if name in names), None)


def _whole(value: Any) -> np.ndarray | None:
    """An array of whole numbers; None of anything else, and of arrays that have no values yet."""
    if is_token(value):
        return np.array(int(value))
    if isinstance(value, list | tuple) and value and all(map(is_token, value)):
        return np.array(value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    try:
        array = as_numpy(value)
    except Exception:  # noqa: BLE001 - an array inside a trace
        return None
    return array if array.dtype.kind in "iu" else None
