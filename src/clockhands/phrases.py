"""Phrases of messages and reports: values as text, lists of words, the name that was meant, and templates."""

import difflib
import math
import numbers
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from string import Formatter
from typing import Any


def shown(value: object) -> str:
    """A value as an error message shows it: short, whatever it is, and no more of it is looked at."""
    text = ""
    try:
        for piece in [f"{value:g}"] if isinstance(value, float) else _pieces(value):
            text += piece
            if len(text) > 60:
                return text[:57] + "..."
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or a nest without end
        return f"{type(value).__name__} too long to show"
    return text


def _pieces(value: object) -> Iterator[str]:
    """What ``repr`` gives, piece by piece, so that a long value is not spelt out."""
    if type(value) in (str, bytes):
        yield repr(value[:61])  # type: ignore[index]
    elif type(value) in (list, tuple):
        start, end = "[]" if type(value) is list else "()"
        yield start
        for at, item in enumerate(value):  # type: ignore[arg-type]
            yield ", " if at else ""
            yield from _pieces(item)
        yield "," + end if start == "(" and len(value) == 1 else end  # type: ignore[arg-type]
    elif type(value) is dict:
        yield "{"
        for at, (key, item) in enumerate(value.items()):
            yield ", " if at else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(item)
        yield "}"
    else:
        yield repr(value)


def safe(text: object) -> str:
    """Text from elsewhere, with everything that could move a terminal's cursor or break or turn a line made visible.

    >>> safe("yarn" + chr(27) + "[2J") == "yarn" + chr(92) + "x1b[2J"
    True
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def spoken(value: object) -> str:
    """A value as text for a sentence: commas between thousands, six digits of a real number, text in quotes.

    >>> spoken(100000.0), spoken(8192), spoken(1.4330125702369627e-05), spoken("yarn"), spoken(None)
    ('100,000', '8,192', '1.43301e-05', '"yarn"', 'null')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return _whole(int(value))
    if isinstance(value, numbers.Real):
        return _real(float(value))
    if isinstance(value, str):
        return f'"{_short(value)}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key}: {spoken(item)}" for key, item in list(value.items())[:8])
        return "{" + inside + (", ..." if len(value) > 8 else "") + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(spoken(item) for item in value[:4]) + (", ..." if len(value) > 4 else "") + "]"
    return _short(str(value))


def _whole(value: int) -> str:
    if abs(value) < 10**18:
        return f"{value:,}"
    return f"{value:.6e}" if abs(value) < 10**300 else "a whole number of more than 300 digits"


def _real(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return (
        f"{value:,.6g}"
        if 1e-4 <= abs(value) < 1e6
        else (f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}")
    )


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(words: Iterable[str], joint: str = "and") -> str:
    """Words joined as a list in a sentence.

    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    each = list(words)
    return f" {joint} ".join(filter(None, [", ".join(each[:-1]), *each[-1:]]))


def some_of(names: Iterable[str], most: int = 8) -> str:
    """Names for a sentence: the first few, and how many more.

    >>> some_of(["a", "b"]), some_of("abcdefghij")
    ('a, b', 'a, b, c, d, e, f, g, h and 2 more')
    """
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def number_of(number: int, word: str) -> str:
    """A number of things.

    >>> number_of(1, "row"), number_of(4096, "row")
    ('1 row', '4,096 rows')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """Of some names, the one spelt most like a word; None if none is similar.

    Args:
        word: What was given.
        known: The names that exist.
        alike: The least similarity, from 0 (nothing in common) to 1 (equal), as `difflib` counts it.
    """
    return next(iter(difflib.get_close_matches(word, list(known), 1, alike)), None)


def did_you_mean(word: str, known: Collection[str], otherwise: str = "", alike: float = 0.6, *, most: int = 1) -> str:
    """The question for a name that does not exist; ``otherwise`` if no name is similar.

    Args:
        word: What was given.
        known: The names that exist.
        otherwise: What is said instead.
        alike: See `nearest`.
        most: The largest number of names in the question.

    >>> did_you_mean("tabel", ["table", "audit"])
    'Did you mean table?'
    """
    near = difflib.get_close_matches(word, list(known), most, alike)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def said(number: float) -> str:
    """A number as text: commas between thousands, three digits for small numbers.

    >>> said(8192), said(438001.27), said(0.0123456), said(12.5)
    ('8,192', '438,001', '0.0123', '12.5')
    """
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:.3g}"


def percent(share: float) -> str:
    """A share as text: 0% and 100% are only written if they are exact.

    >>> percent(0.3829), percent(0.00001), percent(0.99999), percent(1.0)
    ('38.3%', 'under 0.1%', 'over 99.9%', '100%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    return "under 0.1%" if share < 1e-3 else "over 99.9%" if share > 0.999 else f"{share:.1%}"


def filled(template: str, values: Any) -> str:
    """A template with values.

    ``{name}`` is text as it is, or a number with commas; ``{name!r}`` has text in quotes; ``{name!s}`` and
    ``{name:.2g}`` are those of Python. ``{name:is/are}`` is the first word for one, the second for another number;
    ``{name:and}`` joins a list; ``{name:times}`` is a ratio; ``{name:z}`` a z-score; ``{name:capital}`` begins with a
    capital letter; ``{name:said}`` and ``{name:percent}`` are as these functions give them. A part in square brackets
    is left out if a value in it is missing, empty or 0. Where a part has ``{name:?}``, which itself is nothing, that
    value alone decides.

    Args:
        template: The text.
        values: What each name stands for: a dict, or another object that is asked with ``in`` and ``[]``.

    Raises:
        KeyError: A name outside square brackets stands for nothing.

    >>> filled("{pairs} pairs[ of the {part}]", {"pairs": 1024})
    '1,024 pairs'
    """
    words: list[str] = []
    for number, part in enumerate(re.split(r"[\[\]]", template)):
        optional = number % 2 == 1
        pieces = [
            (text, name, None if name is None or (optional and name not in values) else values[name], spec, how)
            for text, name, spec, how in Formatter().parse(part)
        ]
        deciding = [held for _, _, held, spec, _ in pieces if spec == "?"]
        deciding = deciding or [held for _, name, held, _, _ in pieces if name is not None]
        if optional and not all(deciding):
            continue
        for text, name, held, spec, how in pieces:
            words.append(text)
            if name is not None:
                words.append(_filled_in(held, spec or "", how))
    return "".join(words)


def _filled_in(value: Any, spec: str, how: str | None) -> str:
    if "/" in spec:
        one, more = spec.split("/")
        return one if (len(value) if isinstance(value, Sized) else value) == 1 else more
    if spec == "?":
        return ""
    if spec == "capital":
        return f"{value[:1].upper()}{value[1:]}"
    if spec in ("said", "percent"):
        return said(value) if spec == "said" else percent(value)
    if spec == "times":
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if spec == "z":
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
    if spec == "and":
        return listed([each if isinstance(each, str) else spoken(each) for each in value])
    if spec:
        return format(value, spec)
    return str(value) if how == "s" or (how is None and isinstance(value, str)) else spoken(value)
