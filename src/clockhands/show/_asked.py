"""What a figure is asked for, checked before anything is drawn: one position, some of a kind, two sentences."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, real, shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.positions import positions_of

MOST_POINTS = 2048
"""Points of a line, or rows of a picture, that are computed: a few for each dot of a figure."""

_MOST_WORDS, _MOST_LETTERS = 8, 40  # more are laid over each other


def one_position(name: str, value: Any) -> int | float:
    """A single position, in tokens, as a Python number.

    Raises:
        InvalidType, InvalidValue: It is none, or too far.
    """
    if getattr(value, "shape", ()) != ():
        raise InvalidType(f"`{name}` must be one number, got {shown(value)}.", f"Give `{name}` as an int or a float.")
    number = real(name, value)  # refuses words, lists and NumPy's booleans
    exact: int | float = count(name, value, -(2**63)) if hasattr(value, "__index__") else number
    positions_of([exact], name)
    return exact


def several(name: str, value: Any, what: str, most: int) -> tuple[Any, ...]:
    """Several of a kind, from one to ``most``.

    Args:
        name: The argument.
        value: What was given for it.
        what: What each is, in the plural, with an example.
        most: How many a figure has room for.

    Raises:
        InvalidType: It is no list, or a single word.
        InvalidValue: There are none, or too many.
    """
    hint = f"Give `{name}` as a list or tuple of {what}."
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable) or getattr(value, "shape", None) == ():
        raise InvalidType(f"`{name}` must be a list of {what}, got {shown(value)}.", hint)
    given = tuple(value[: most + 1] if isinstance(value, range) else value)
    if not 0 < len(given) <= most:
        got = "none" if not given else f"{len(value) if isinstance(value, range) else len(given):,}"
        raise InvalidValue(f"`{name}` must have from 1 to {most} of {what}, got {got}.", hint)
    return given


def two_sentences(name: str, value: Any) -> tuple[list[str], list[str]]:
    """The words of two sentences, which are the same in two orders.

    Raises:
        InvalidType: They are not two texts.
        InvalidValue: They are not the same words, or more than a figure has room for.
    """
    hint = 'Write ("dog bites man", "man bites dog").'
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidType(f"`{name}` must be two sentences, got {shown(value)}.", hint)
    if len(value) != 2:
        raise InvalidValue(f"`{name}` must be two sentences, got {len(value):,}.", hint)
    words, others = (text.split() for text in value)
    if sorted(words) != sorted(others) or len(set(words)) < len(words) or len(words) < 2:
        raise InvalidValue(f"`{name}` must be two orders of the same words, each once, got {shown(value)}.", hint)
    if len(words) > _MOST_WORDS or len(" ".join(words)) > _MOST_LETTERS:
        raise InvalidValue(
            f"A figure has room for {_MOST_WORDS} words and {_MOST_LETTERS} letters, but `{name}` has {len(words):,} "
            f"words and {len(' '.join(words)):,} letters.",
            "Give shorter sentences.",
        )
    return words, others


def evenly(length: int, most: int = MOST_POINTS) -> range:
    """At most ``most`` places from 0 to ``length - 1``, one step apart.

    >>> evenly(5), evenly(100_000)
    (range(0, 5), range(0, 100000, 49))
    """
    return range(0, length, -(-length // most))


def every(step: int) -> str:
    """How far apart places are, in words.

    >>> every(2), every(49), every(112), every(1023)
    ('every 2nd', 'every 49th', 'every 112th', 'every 1,023rd')
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if step % 100 in (11, 12, 13) else endings.get(step % 10, "th")
    return f"every {step:,}{ending}"


def extremes(values: NDArray[np.float64], most: int = MOST_POINTS) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where a line of many values turns, and the values there: the least and the largest of each stretch, and its ends.

    A line through them covers the same dots as one through all.

    Args:
        values: One for each place from 0 on, float64 [length].
        most: How many places are left, about.

    Returns:
        Places, int64, rising; values, float64, of the same length.

    >>> extremes(np.array([0.0, 3, 1, 2, 5, 4]), 4)[0].tolist()
    [0, 1, 3, 4, 5]
    """
    if len(values) <= most:
        return np.arange(len(values)), values
    size = -(-len(values) // max(1, most // 2))
    # The last stretch is filled with its end, which stands before what fills it.
    blocks = np.pad(values, (0, -len(values) % size), mode="edge").reshape(-1, size)
    starts = np.arange(len(blocks)) * size
    places = np.unique(
        np.concatenate([starts + blocks.argmin(axis=1), starts + blocks.argmax(axis=1), [0, len(values) - 1]])
    )
    return places, values[places]
