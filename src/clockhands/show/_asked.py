"""Checks the arguments of figures before anything is drawn: a position, several items, two sentences."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, real, shown
from clockhands.encodings.positions import positions_of
from clockhands.errors import InvalidType, InvalidValue

MOST_POINTS = 2048
"""Points of a line, or rows of a picture, that are computed: a few for each dot of a figure."""

_MOST_WORDS, _MOST_LETTERS = 8, 40  # the most items in a figure; more would overlap


def one_position(name: str, value: Any) -> int | float:
    """A single position, in tokens, as a Python number.

    Raises:
        InvalidType, InvalidValue: It is not a position, or too far.
    """
    if getattr(value, "shape", ()) != ():
        raise InvalidType(f"`{name}` must be one number, got {shown(value)}.", f"Give `{name}` as an int or a float.")
    number = real(name, value)  # refuses words, lists and NumPy's booleans
    exact: int | float = count(name, value, -(2**63)) if hasattr(value, "__index__") else number
    positions_of([exact], name)
    return exact


def several(name: str, value: Any, what: str, most: int) -> tuple[Any, ...]:
    """A list of one to ``most`` items.

    Args:
        name: The argument.
        value: What was given for it.
        what: What the items are, in the plural, with an example.
        most: How many fit in a figure.

    Raises:
        InvalidType: It is not a list, or a single word.
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
    """The words of two sentences, which must be the same words in two orders.

    Raises:
        InvalidType: They are not two texts.
        InvalidValue: They are not the same words, or too many for a figure.
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
    """At most ``most`` evenly spaced places from 0 to ``length - 1``.

    >>> evenly(5), evenly(100_000)
    (range(0, 5), range(0, 100000, 49))
    """
    return range(0, length, -(-length // most))


def every(step: int) -> str:
    """The step between places, as text.

    >>> every(2), every(49), every(112), every(1023)
    ('every 2nd', 'every 49th', 'every 112th', 'every 1,023rd')
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if step % 100 in (11, 12, 13) else endings.get(step % 10, "th")
    return f"every {step:,}{ending}"


def extremes(values: NDArray[np.float64], most: int = MOST_POINTS) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Reduce a line of many values to the minimum and maximum of each interval, and the ends of the line.

    A line through them covers the same pixels as one through all values.

    Args:
        values: One for each place from 0 on, float64 [length].
        most: The approximate number of places that remain.

    Returns:
        Places, int64, rising; values, float64, of the same length.

    >>> extremes(np.array([0.0, 3, 1, 2, 5, 4]), 4)[0].tolist()
    [0, 1, 3, 4, 5]
    """
    if len(values) <= most:
        return np.arange(len(values)), values
    size = -(-len(values) // max(1, most // 2))
    # The last interval is padded with its end, and argmin and argmax find that end before the padding.
    blocks = np.pad(values, (0, -len(values) % size), mode="edge").reshape(-1, size)
    starts = np.arange(len(blocks)) * size
    places = np.unique(
        np.concatenate([starts + blocks.argmin(axis=1), starts + blocks.argmax(axis=1), [0, len(values) - 1]])
    )
    return places, values[places]
