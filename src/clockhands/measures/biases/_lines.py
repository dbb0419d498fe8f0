"""The bias of one query by distance 0, 1, 2, …: the input of the measures `reach` and `told_apart`.

A *line* is one row of a bias, [heads, distances], from the query outwards. Its query is the last token, at ``length -
1``, so that every distance within the length occurs. For biases that depend on the position of the key or the query
(the key forms of ALiBi, FIRE), these are the values that this token gets.

Softmax does not change when a constant is added to a whole row. What counts is the *fall*, ``line[0] -
line[distance]``: at equal content, the weight of a key is ``exp(-fall)`` times that of the query's own position.
"""

import numpy as np

from clockhands.encodings import biases
from clockhands.encodings.biases import BiasCode, bias
from clockhands.measures.property import Property, Unanswered, not_applicable, not_computed
from clockhands.measures.subject import MeasuredCode

# Numbers computed at once: 128 MiB of float64. A longer line is "not computed".
MOST_NUMBERS = 2**24

# The end of the range of positions; larger distances do not exist.
MOST_DISTANCE = 2.0**63

AFTER_SAYS = {
    "as before": "A key after the query gets the same bias as the key at the same distance before the query.",
    "as itself": "All keys after the query get the same bias as the key at distance 0.",
    "more": "A key after the query would get a larger bias than the key at distance 0, so a causal mask is needed.",
    "own": "Keys after the query have other bias values than keys before the query, so the bias distinguishes before "
    "from after.",
}


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
        words = ", ".join(f"{each} {list(shape)}" for each, shape in spec.shapes.items())
        return not_computed(
            f"The bias values of {name(spec)} are trained: pass them to clockhands.properties as values=, with these "
            f"arrays and shapes: {words}."
        )
    return None


def refuse_more(subject: MeasuredCode, numbers: int) -> None:
    """Refuse a line of more than `MOST_NUMBERS`.

    Raises:
        Unanswered: It would be too long.
    """
    if numbers > MOST_NUMBERS:
        raise Unanswered(
            not_computed(
                f"This measure needs {numbers:,} bias values of {name(_bias(subject))}, more than the limit of "
                f"{MOST_NUMBERS:,}: use a shorter length."
            )
        )


def tokens(distance: float) -> str:
    """A distance as text: "9.2 tokens", "1,179 tokens"."""
    text = f"{distance:,.0f}" if distance >= 100 or float(distance).is_integer() else f"{distance:.3g}"
    return f"{text} token{'' if text == '1' else 's'}"


def refuse_others(subject: MeasuredCode, asked: str, instead: str) -> None:
    """Refuse a code that is not a bias.

    Raises:
        Unanswered: The question applies to biases only.
    """
    if subject.kind == "bias":
        return
    why = f"Without a position encoding there is no bias for a distance, so {asked}."
    if subject.kind != "none":
        what = "RoPE rotates queries and keys"
        if subject.kind == "additive":
            what = f"The {type(subject.spec).__name__} encoding is added to tokens"
        why = f"{what} and has no bias for a distance, so {asked}; see the property {instead}."
    raise Unanswered(not_applicable(why))


def _bias(subject: MeasuredCode) -> BiasCode:
    assert isinstance(subject.spec, BiasCode)
    return subject.spec
