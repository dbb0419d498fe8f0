"""The numbers that one query gives to keys at the distances 0, 1, 2, …: what reach and telling apart are read from.

A *line* is one row of a bias, [heads, distances], read from the query outwards. Its query is the last token, at
``length - 1``, so that every distance within the length is there, and a number that depends on where the key or the
query stands (the key forms of ALiBi, FIRE) is the one that this token really gets.

A softmax does not see what is added to a whole row. What counts is the *fall*, ``line[0] - line[distance]``: at equal
content a key weighs ``exp(-fall)`` beside the query itself.
"""

from typing import Literal

import numpy as np

from clockhands.biases import (
    Alibi,
    BiasCode,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Window,
    bias,
)
from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject

# Numbers made at once: 128 MiB of float64. A line of more is "not computed".
MOST_NUMBERS = 2**24

# Where positions end; a distance beyond is none.
MOST_DISTANCE = 2.0**63

# What a bias gives to keys after the query: the number of the key as far before it; that of the query itself; more, the
# later they stand; or a number of their own.
After = Literal["as before", "as itself", "more", "own"]


def keys_after(spec: BiasCode) -> After:
    """What keys after the query get."""
    if isinstance(spec, Decay) or (isinstance(spec, Alibi) and spec.form in ("distance", "key", "last-key")):
        return "more"
    if isinstance(spec, Alibi):
        return "as before" if spec.form == "symmetric" else "as itself"
    if isinstance(spec, Kerple):
        return "as before" if spec.symmetric else "as itself"
    one_way = isinstance(spec, Fire) or (isinstance(spec, Buckets) and not spec.bidirectional)
    return "as itself" if one_way else "own"


AFTER_SAYS = {
    "as before": "A key after the query has the number of the key as far before it, so left and right look alike.",
    "as itself": "All keys after the query have the number of the query itself.",
    "more": "A key after the query would get more than the query itself, so this form needs a causal mask.",
    "own": "Keys after the query have numbers of their own, so left and right can be told apart.",
}


def name(spec: BiasCode) -> str:
    """What a report calls the code."""
    names = {
        Alibi: "ALiBi",
        Buckets: "T5's buckets",
        CeilingBuckets: "DeBERTa-v2's buckets",
        Clipped: "clipped distances",
        Decay: "Retention's decay",
        Fire: "FIRE",
        Kerple: "KERPLE",
        LogWindow: "the window",
        Window: "the window",
    }
    return names[type(spec)]


def line(subject: Subject, distances: int, dtype: object = None, *, after: bool = False) -> np.ndarray:
    """The numbers of the last token's row by distance, [heads, distances], rounded to a dtype and held as float64.

    Args:
        subject: A bias that depends on distance, key or query, with its learned numbers if it has any.
        distances: How many, from 0 on; at most the length.
        dtype: What to round to; that of the subject if not given.
        after: The first token's row, with keys after it, in place of the last token's.

    Raises:
        InvalidValue: A number does not fit the dtype.
    """
    kind = subject.dtype if dtype is None else dtype
    last = subject.length - 1
    if after:
        row = bias(_bias(subject), [0], range(distances), values=subject.values, dtype=kind)[:, 0]
        return row.astype(np.float64)
    row = bias(_bias(subject), [last], range(last + 1 - distances, last + 1), values=subject.values, dtype=kind)[:, 0]
    return row[:, ::-1].astype(np.float64)


def unknown(subject: Subject) -> Property | None:
    """Why numbers of this bias cannot be measured; None where they can."""
    spec = _bias(subject)
    if not spec.learned:
        return None
    if subject.values is None:
        words = ", ".join(f"{each} {list(shape)}" for each, shape in spec.shapes.items())
        return not_computed(f"The numbers of {name(spec)} are learned: pass values= with {words}.")
    return None


def too_many(subject: Subject, numbers: int) -> Property:
    """The property of a line that would be too long."""
    return not_computed(
        f"This would take {numbers:,} numbers of {name(_bias(subject))}, and at most {MOST_NUMBERS:,} are made: "
        "ask for a shorter length."
    )


def tokens(distance: float) -> str:
    """A distance in words: "9.2 tokens", "1,179 tokens"."""
    text = f"{distance:,.0f}" if distance >= 100 or float(distance).is_integer() else f"{distance:.3g}"
    return f"{text} token{'' if text == '1' else 's'}"


def no_bias(subject: Subject, asked: str, instead: str) -> str:
    """Why a question about biases makes no sense for another code."""
    if subject.kind == "none":
        return f"Without a position code there is no number for a distance, so {asked}."
    way = "is added to tokens" if subject.kind == "additive" else "turns queries and keys"
    return f"{type(subject.spec).__name__} {way} and gives no number to a distance, so {asked}; see {instead}."


def _bias(subject: Subject) -> BiasCode:
    assert isinstance(subject.spec, BiasCode)
    return subject.spec
