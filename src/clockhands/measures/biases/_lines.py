"""The bias of one query by distance 0, 1, 2, …: the input of the measures `reach` and `told_apart`.

A *line* is one row of a bias, [heads, distances], from the query outwards. Its query is the last token, at ``length -
1``, so that every distance within the length occurs. For biases that depend on the position of the key or the query
(the key forms of ALiBi, FIRE), these are the values that this token gets.

Softmax does not change when a constant is added to a whole row. What counts is the *fall*, ``line[0] -
line[distance]``: at equal content, the weight of a key is ``exp(-fall)`` times that of the query's own position.
"""

from typing import Any

import numpy as np

from clockhands.encodings import biases
from clockhands.encodings.biases import BiasCode, bias
from clockhands.measures.property import Property, Unanswered, not_applicable, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

# Numbers computed at once: 128 MiB of float64. A longer line is "not computed".
MOST_NUMBERS = 2**24

# The end of the range of positions; larger distances do not exist.
MOST_DISTANCE = 2.0**63


def after_says(spec: Any) -> str:
    """A sentence on the bias of keys after the query."""
    return sentence(f"reach.keys_after.{spec.keys_after.replace(' ', '_')}")


def name(spec: BiasCode) -> str:
    """The name of the code in a report."""
    names = {
        biases.Alibi: "ALiBi",
        biases.Buckets: "T5's buckets",
        biases.CeilingBuckets: "DeBERTa-v2's buckets",
        biases.Clipped: "clipped distances",
        biases.Decay: "Retention's decay",
        biases.Fire: "FIRE",
        biases.Kerple: "KERPLE",
        biases.LogWindow: "the window",
        biases.Slopes: "the linear bias",
        biases.Window: "the window",
    }
    return names[type(spec)]


def line(subject: MeasuredCode, distances: int, dtype: object = None) -> np.ndarray:
    """The biases of the last token by distance, [heads, distances], rounded to a dtype and stored as float64.

    Args:
        subject: A bias that depends on distance, key or query, with its learned numbers if it has any.
        distances: How many distances, from 0 on; at most the length.
        dtype: The dtype to round to; that of the subject if not given.

    Raises:
        InvalidValue: A number does not fit the dtype.
    """
    kind = subject.dtype if dtype is None else dtype
    last = subject.length - 1
    row = bias(_bias(subject), [last], range(last + 1 - distances, last + 1), values=subject.values, dtype=kind)[:, 0]
    return row[:, ::-1].astype(np.float64)


def unknown(subject: MeasuredCode) -> Property | None:
    """Why this bias cannot be measured; None if it can."""
    spec = _bias(subject)
    if not spec.learned:
        return None
    if subject.values is None:
        arrays = ", ".join(f"{each} {list(shape)}" for each, shape in spec.shapes.items())
        return not_computed(sentence("reach.no_values", bias=name(spec), arrays=arrays))
    return None


def refuse_more(subject: MeasuredCode, numbers: int) -> None:
    """Refuse a line of more than `MOST_NUMBERS`.

    Raises:
        Unanswered: It would be too long.
    """
    if numbers > MOST_NUMBERS:
        words = {"numbers": numbers, "bias": name(_bias(subject)), "most": MOST_NUMBERS}
        raise Unanswered(not_computed(sentence("reach.too_long", **words)))


def tokens(distance: float) -> str:
    """A distance as text: "9.2 tokens", "1,179 tokens"."""
    text = f"{distance:,.0f}" if distance >= 100 or float(distance).is_integer() else f"{distance:.3g}"
    return f"{text} token{'' if text == '1' else 's'}"


def refuse_others(subject: MeasuredCode, property: str) -> None:  # noqa: A002 - the field's own word
    """Refuse a code that is not a bias.

    Raises:
        Unanswered: The question of the property applies to biases only.
    """
    if subject.kind == "bias":
        return
    words = {each: sentence(f"{property}.{each}") for each in ("so", "instead")}
    words["encoding"] = type(subject.spec).__name__
    raise Unanswered(not_applicable(sentence(f"reach.other_kinds.{subject.kind}", **words)))


def _bias(subject: MeasuredCode) -> BiasCode:
    assert isinstance(subject.spec, BiasCode)
    return subject.spec
