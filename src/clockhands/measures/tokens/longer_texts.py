"""What an encoding is past the length: whether it has values there, and whether these occurred within the length.

A model that is trained at a length has met the values within it. Past it, each part of an encoding either repeats what
occurred or is new: a dimension pair that completed a rotation repeats its angles, one that did not reaches new ones; a
bias by buckets looks up a row that training used, ALiBi subtracts more than it ever did. This says what a model *meets*
in longer texts, not what it *does* there, which has to be measured: with no new value in any part, the combination of
all parts is still new at every position that is unique, and a model may cope with values that are new.

The numbers of `longer_texts`; distances are those from a query to keys before it:

* ``defined``: whether the encoding has values past the length; ``last_position``: the last position that has one, None
  where there is no end.
* ``of``: what is counted in ``total`` and ``new``: ``"pairs"`` (RoPE and sinusoids: a pair is new that does not
  complete a rotation within the length, so that its angles past the length did not occur), ``"sines"`` (the same for
  sines without cosines), ``"rows"`` (learned tables: rows that no shorter text uses), ``"channels"`` (other added
  encodings: a channel is new that leaves the interval of its values within the length) or ``"heads"`` (biases: a head
  is new that gives some distance past the length a bias that it gives to no distance within it).
* ``total``: their number; ``new``: how many of them have new values past the length. Both are None where that depends
  on learned values that are not given.
* ``first_new``: the first position, or for RoPE and biases the first distance, with a new value; None where no value
  is new.
* ``looked_to``: positions below this number were searched; None where the answer follows from a formula.

``holds``: the encoding is defined past the length, and none of its values there is new. A RoPE scaling that depends on
the length is taken at the length of the spec.

Accuracy: pairs are counted as in `clockhands.measures.ladders.turning`; buckets are exact; channels are compared in
float64 up to twice the length, with an allowance of 1e-9 of the largest value.

Source: arithmetic. That new angles hurt: Chen et al. 2023, arXiv:2306.15595, section 2; Liu et al. 2023,
arXiv:2310.05209, section 4.
"""

from typing import Any

import numpy as np

from clockhands.encodings.additive import FourierFeatures, Learned, NormalizedCounter, SineOnly
from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, Fire, LogWindow, Window
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.measures.biases._lines import unknown
from clockhands.measures.biases.edges import sides
from clockhands.measures.ladders.turning import completes, rotating_ladders, span
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

_MOST_NUMBERS = 1 << 24
_SAME = 1e-9


@measure
def longer_texts(subject: MeasuredCode) -> Property:
    """Whether the code has values past the length, and which of them did not occur within it; see the module."""
    spec = subject.spec
    if subject.kind == "none":
        return answer("longer_texts.nothing", holds=True, **_numbers("channels", 0, 0, None))
    if subject.kind == "bias":
        return _bias(subject)
    if isinstance(spec, Learned):
        return _rows(subject, spec)
    if subject.ladders or isinstance(spec, FourierFeatures):
        return _pairs(subject)
    return _channels(subject)


def _numbers(
    of: str, total: int | None, new: int | None, first: int | None, last: int | None = None, **more: Any
) -> dict[str, Any]:
    """The figures of the module, for a code that is defined past the length unless told otherwise."""
    return {"defined": True, "last_position": last, "of": of, "total": total, "new": new, "first_new": first} | {
        "looked_to": None,
        **more,
    }


def _pairs(subject: MeasuredCode) -> Property:
    """Angles: of pairs that complete a rotation all occurred; one that does not reaches the next at once."""
    spec, ladders, reach = subject.spec, rotating_ladders(subject), span(subject)
    rates = [rate for ladder in ladders for rate in ladder.rates]
    total, still = len(rates), rates.count(0.0)
    new = sum(rate > 0 and not completes(rate, reach) for rate in rates)
    of = "sines" if isinstance(spec, SineOnly) else "pairs"
    far = subject.length if isinstance(spec, Rotary) else subject.last + 1
    raw = getattr(spec, "raw", None) is not None
    words = {"what": of if of == "sines" else "dimension pairs", "length": subject.length, "far": far, "still": still,
             "raw": raw, "seen": total - new - still, "of": of}  # fmt: skip
    if isinstance(spec, Rotary) and spec.xpos is not None:
        return answer("longer_texts.xpos", holds=False, words=words, **_numbers(of, total, total, far))
    case = "new_angles" if new else "raw" if raw else "angles_seen"
    numbers = _numbers(of, total, new, far if new or raw else None)
    return answer(f"longer_texts.{case}", holds=not new and not raw, words=words, **numbers)


def _rows(subject: MeasuredCode, spec: Learned) -> Property:
    """A learned table: its rows past the length belong to no shorter text, and it has no row past its last."""
    rest, last = spec.usable - subject.length, spec.usable - 1
    if not rest:
        return answer("longer_texts.table_ends", holds=False, **_numbers("rows", 0, 0, None, last, defined=False))
    words = {"length": subject.length}
    return answer(
        "longer_texts.rows_left", holds=False, words=words, **_numbers("rows", rest, rest, subject.length, last)
    )


def _channels(subject: MeasuredCode) -> Property:
    """Channels that leave the interval of their values, looked for in a text twice as long."""
    if subject.missing is not None:
        return not_computed(subject.missing)
    length, total = subject.length, subject.spec.width  # type: ignore[union-attr]
    if isinstance(subject.spec, NormalizedCounter):
        return answer("longer_texts.other_steps", holds=False, **_numbers("channels", total, total, 1))
    if 2 * length * total > _MOST_NUMBERS:
        return not_computed(sentence("longer_texts.too_long", numbers=2 * length * total, most=_MOST_NUMBERS))
    words = {"length": length, "twice": 2 * length}
    try:
        before, after = (subject.rows(*part, dtype="float64") for part in ((0, length), (length, 2 * length)))
    except InvalidValue as refused:
        numbers = _numbers("channels", total, None, None, defined=False, looked_to=2 * length)
        return answer("longer_texts.undefined", holds=False, words=words | {"why": refused.message}, **numbers)
    allowed = _SAME * float(np.abs(before).max(initial=1e-300))
    out = (after > before.max(axis=0) + allowed) | (after < before.min(axis=0) - allowed)
    new, places = int(out.any(axis=0).sum()), np.flatnonzero(out.any(axis=1))
    first = subject.first + length + int(places[0]) if len(places) else None
    numbers = _numbers("channels", total, new, first, looked_to=2 * length)
    case = "values_seen" if first is None else "new_values"
    return answer(f"longer_texts.{case}", holds=first is None, words=words, **numbers)


def _bias(subject: MeasuredCode) -> Property:
    spec, length = subject.spec, subject.length
    heads = spec.heads  # type: ignore[union-attr]
    if isinstance(spec, Window | LogWindow):
        numbers = _numbers("heads", heads, 0, None, spec.tokens - 1, defined=False)
        return answer("longer_texts.window", holds=False, words={"tokens": spec.tokens}, **numbers)
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        return _buckets(subject, heads)
    if isinstance(spec, Fire):
        return _shares(subject, spec)
    numbers = _numbers("heads", heads, heads, length)
    return answer("longer_texts.new_distances", holds=False, words={"length": length}, **numbers)


def _buckets(subject: MeasuredCode, heads: int) -> Property:
    """Buckets of keys before the query: those past the length that no distance within it reaches."""
    before = sides(subject.spec)[0]  # type: ignore[arg-type]
    used = set(before.within(subject.length).rows)
    first = next(
        (first for first, row in zip(before.firsts, before.rows, strict=True) if row not in used), None
    )  # that bucket begins past the length, since those within it are used
    case = "buckets_seen" if first is None else "new_buckets"
    numbers = _numbers("heads", heads, 0 if first is None else heads, first)
    return answer(f"longer_texts.{case}", holds=first is None, words={"length": subject.length}, **numbers)


def _shares(subject: MeasuredCode, spec: Fire) -> Property:
    """FIRE's network sees shares from 0 to 1, and 1 only where a query stands at the threshold or past it."""
    missing = unknown(subject)
    if missing:
        return missing
    threshold = float(subject.values["threshold"])
    seen = subject.last >= threshold
    new, first = (0, None) if seen else (spec.heads, subject.length)
    numbers = _numbers("heads", spec.heads, new, first)
    words = {"length": subject.length, "threshold": threshold}
    return answer(f"longer_texts.{'shares_seen' if seen else 'new_shares'}", holds=seen, words=words, **numbers)
