"""Readings and differences as text and as JSON values."""

import math
from collections.abc import Iterable
from typing import Any

from clockhands.configs.resolved import MTP, Code
from clockhands.measures import LadderDifference, distances
from clockhands.runtimes._comparing import Parted, kind_in_words
from clockhands.runtimes._reading import Reading

FAR_OFF = (0.1, 1.0)
"""Radians from which a pair counts as off, and as lost."""


def reach_of(codes: Iterable[Code], context: int | None, length: int | None) -> int | None:
    """The length up to which two readings are compared: the context, or the only length at which frequencies hold."""
    regimes = any(code.by_length for code in codes)
    return length if regimes and length is not None else context


def reading_to_dict(reading: Reading, context: int | None) -> dict[str, Any]:
    """One element of `readers` in the JSON of an audit."""
    names = ("reader", "title", "version", "verdict", "because", "not_read", "longest", "says", "not_compared")
    made = {name: getattr(reading, name) for name in names}
    lists = {name: list(made[name]) for name in ("not_read", "says", "not_compared")}
    return {**made, **lists, "differs": [parted_to_dict(group, context) for group in reading.parted]}


def parted_to_dict(group: Parted, context: int | None, length: int | None = None) -> dict[str, Any]:
    """How two readings of some layers differ; ``context`` and ``length`` say which distances are of interest."""
    return {
        "part": group.part,
        "layers": group.layers,
        "says": list(group.says),
        "first": _code_to_dict(group.ours),
        "second": _code_to_dict(group.theirs),
        "rates": None if group.ladder is None else _ladder_to_dict(group.ladder, context, length) | _cause(group),
    }


def _cause(group: Parted) -> dict[str, Any]:
    """The probable cause of the second reading's frequencies, beside the first's; None if they were not compared."""
    return {"cause": None if group.verdict is None else group.verdict.cause}


def _code_to_dict(code: Code | None) -> dict[str, Any] | None:
    if code is None:
        return None
    names = ("kind", "layout", "width", "rotated", "base", "attention_factor", "scaling", "window")
    return {name: getattr(code, name) for name in names}


def _ladder_to_dict(ladder: LadderDifference, context: int | None, length: int | None) -> dict[str, Any]:
    return {
        "pairs": ladder.pairs,
        "first_pair": ladder.first,
        "last_pair": ladder.last,
        "largest_ratio": ladder.ratio,
        "largest_ratio_pair": ladder.ratio_pair,
        "radians_per_token": ladder.drift,
        "fastest_drift_pair": ladder.drift_pair,
        "attention_factor_ratio": ladder.factor_ratio,
        "off_from": {str(radians): ladder.reaches(radians) for radians in FAR_OFF},
        "at": [
            {"distance": distance, "radians": ladder.angle_error(distance), "mean_cosine": ladder.mean_cosine(distance)}
            for distance in distances(context, length)
        ],
    }


def parted_in_words(group: Parted, context: int | None) -> str:
    """How a reading differs from the audit in some layers, in one line.

    It names base and scaling where they differ, other differences, the differing pairs and their largest ratio, the
    position from which one pair is off by more than a radian, and the mean cosine at the context length. Distances
    outside both windows are left out.
    """
    ours, theirs, ladder = group.ours, group.theirs, group.ladder
    words = [code_in_words(theirs)] if code_in_words(theirs) != code_in_words(ours) else []
    words += [in_its_place(says) for says in group.says]
    windows = [code.farthest for code in (ours, theirs) if code is not None]
    farthest = None if None in windows else max(filter(None, windows), default=None)
    if ladder is not None and not ladder.same_rates:
        cause = _cause(group)["cause"]
        words.append(f"{pairs_in_words(ladder)}, {ratio_in_words(ladder)}{f' ({cause})' if cause else ''}")
        lost = ladder.reaches(1.0)
        if lost is not None and (farthest is None or lost < farthest):
            words.append(f"off by 1 rad from distance {lost:,}")
        at = context if farthest is None or context is None else min(context, farthest - 1)
        if at is not None:
            words.append(f"mean cosine {cosine_in_words(ladder.mean_cosine(at))} at {at:,}")
    if ladder is not None and not ladder.same_factor and ours is not None and theirs is not None:
        words.append(f"attention factor {_factor(theirs)} instead of {_factor(ours)}")
    return "; ".join(dict.fromkeys(words))


def in_its_place(says: str) -> str:
    """A comparison rewritten as "second instead of first".

    >>> in_its_place("the last 512 positions against all positions")
    'all positions instead of the last 512 positions'
    """
    first, _, second = says.partition(" against ")
    return f"{second} instead of {first}" if second else says


def pairs_in_words(ladder: LadderDifference) -> str:
    """Which pairs differ.

    >>> from clockhands.measures import difference
    >>> pairs_in_words(difference((1.0, 0.1, 0.01), (1.0, 0.2, 0.02)))
    'pairs 1-2 of 3'
    """
    if ladder.first == ladder.last:
        return f"pair {ladder.first} of {ladder.pairs}"
    return f"pairs {ladder.first}-{ladder.last} of {ladder.pairs}"


def ratio_in_words(ladder: LadderDifference) -> str:
    """The largest ratio of two frequencies.

    >>> from clockhands.measures import difference
    >>> ratio_in_words(difference((1.0, 0.1), (1.0, 0.2)))
    'RoPE frequencies up to 2 times apart'
    """
    if math.isinf(ladder.ratio):
        return "where one of the two is 0"
    if ladder.ratio < 1.001:
        return f"RoPE frequencies up to {100 * (ladder.ratio - 1):.2g} % apart"
    return f"RoPE frequencies up to {ladder.ratio:,.4g} times apart"


def cosine_in_words(cosine: float) -> str:
    """A cosine with three digits, without a minus sign before zero.

    >>> cosine_in_words(0.76894), cosine_in_words(-0.0001)
    ('0.769', '0.000')
    """
    return f"{cosine:.3f}".replace("-0.000", "0.000")


def code_in_words(code: Code | None) -> str:
    """Base, scaling, rotated share and attention factor of a rotary code, as a short text.

    >>> code_in_words(Code("text", None, "rotary", base=1e4, width=64, rotated=64, attention_factor=1.0))
    'base 10,000, no scaling'
    """
    if code is None:
        return "no such layers"
    if code.kind != "rotary":
        return kind_in_words(code)
    words = ["base not known" if code.base is None else f"base {_number_as_text(code.base)}"]
    words.append(scaling_in_words(code))
    if code.rotated is not None and code.width is not None and code.rotated != code.width:
        words.append(f"{code.rotated} of {code.width} dimensions rotate")
    if code.attention_factor not in (None, 1.0):
        words.append(f"attention factor {_factor(code)}")
    return ", ".join(words)


def scaling_in_words(code: Code) -> str:
    """The scaling and its factor."""
    scaling = code.scaling or {}
    if not scaling:
        return "no scaling"
    factor = scaling.get("factor")
    return f"{scaling.get('type')} by {_number_as_text(factor)}" if factor is not None else str(scaling.get("type"))


def part_in_words(part: str) -> str:
    """The name of a part of a model, for people.

    >>> part_in_words("mtp"), part_in_words("vision")
    ('multi-token prediction', 'vision')
    """
    return "multi-token prediction" if part == MTP else part


def lengths_differ(first: int | None, second: int | None) -> bool:
    """Whether two lengths are both declared and differ."""
    return first is not None and second is not None and first != second


def release(reading: Reading) -> str:
    """The reader with its release: ``Transformers 4.57.1``."""
    name = reading.title.rsplit(" ", 1)[0] if reading.title[-1].isdigit() else reading.title
    return f"{name} {reading.version}" if reading.version[0].isdigit() else name


def _factor(code: Code) -> str:
    return f"{code.attention_factor:.4f}" if code.attention_factor is not None else "not known"


def _number_as_text(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:,.0f}"
