"""Readings and differences as text and as JSON values."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clockhands.configs.resolved import MTP, TEXT, LayerEncoding
from clockhands.measures import LadderDifference, distances
from clockhands.phrases import listed
from clockhands.runtimes._comparing import LayerDifference, kind_in_words
from clockhands.runtimes._reading import Reading

FAR_OFF = (0.1, 1.0)
"""Radians from which a pair counts as off, and as lost."""


def reach_of(codes: Iterable[LayerEncoding], context: int | None, length: int | None) -> int | None:
    """The length up to which two readings are compared: the context, or the only length at which frequencies hold."""
    regimes = any(code.by_length for code in codes)
    return length if regimes and length is not None else context


def reading_to_dict(reading: Reading, context: int | None) -> dict[str, Any]:
    """One element of `readers` in the JSON of an audit."""
    names = ("reader", "title", "version", "verdict", "because", "not_read", "longest", "says", "not_compared")
    made = {name: getattr(reading, name) for name in names}
    lists = {name: list(made[name]) for name in ("not_read", "says", "not_compared")}
    return {**made, **lists, "differs": [parted_to_dict(group, context) for group in reading.parted]}


def parted_to_dict(group: LayerDifference, context: int | None, length: int | None = None) -> dict[str, Any]:
    """How two readings of some layers differ; ``context`` and ``length`` say which distances are of interest."""
    return {
        "part": group.part,
        "layers": group.layers,
        "says": list(group.says),
        "first": _code_to_dict(group.ours),
        "second": _code_to_dict(group.theirs),
        "rates": None if group.ladder is None else _ladder_to_dict(group.ladder, context, length) | _cause(group),
    }


def _cause(group: LayerDifference) -> dict[str, Any]:
    """The probable cause of the second reading's frequencies, beside the first's; None if they were not compared."""
    return {"cause": None if group.verdict is None else group.verdict.cause}


def _code_to_dict(code: LayerEncoding | None) -> dict[str, Any] | None:
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


def parted_in_words(group: LayerDifference, context: int | None) -> str:
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


def code_in_words(code: LayerEncoding | None) -> str:
    """Base, scaling, rotated share and attention factor of a rotary code, as a short text.

    >>> code_in_words(LayerEncoding("text", None, "rotary", base=1e4, width=64, rotated=64, attention_factor=1.0))
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


def scaling_in_words(code: LayerEncoding) -> str:
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


def _factor(code: LayerEncoding) -> str:
    return f"{code.attention_factor:.4f}" if code.attention_factor is not None else "not known"


def _number_as_text(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:,.0f}"


def layers_in_words(layers: str | None, most: int | None = None) -> str:
    """Which layers, in a sentence; with ``most``, a long list is shortened to about so many characters.

    >>> layers_in_words("5"), layers_in_words("0-4,6"), layers_in_words("0,2,4,6,8,10", most=15)
    ('layer 5', 'layers 0-4, 6', 'layers 0, 2, ..., 10')
    """
    if layers is None:
        return "some layers"
    if layers == "input":
        return "input"
    spans = layers.split(",")
    words, kept = ", ".join(spans), len(spans)
    while most is not None and kept > 2 and len(words) > most:
        kept -= 1
        words = ", ".join([*spans[: kept - 1], "...", spans[-1]])
    return f"layer{'s' if len(spans) > 1 or '-' in layers else ''} {words}"


_PORT = "an implementation without RoPE scaling"


def runtimes_in_short(readings: Iterable[Reading]) -> str:
    """How many runtimes compute the same, and which do not; empty if none can be compared."""
    held = [each for each in readings if each.of_program]
    words = []
    reasons = {each.because for each in held if each.verdict == "unknown"}
    if all(each.verdict == "unknown" for each in held):
        return ""
    same = [release(each) for each in held if each.verdict == "same"]
    if same:
        every = "all " if len(same) == len(held) else ""
        known = f"{every}{len(same)} runtimes whose code was read compute these values"
        left = dict.fromkeys(name for each in held if each.verdict == "same" for name in each.not_compared)
        but = f" ({listed(left)} not compared)" if left else ""
        words.append(f"{known if len(same) > 3 else f'{listed(same)}: these values'}{but}")
    words += [f"{release(each)} differs" for each in held if each.verdict == "differs"]
    words += [f"{release(each)} refuses it" for each in held if each.verdict == "refuses" and each.has_type]
    # A runtime without the type refuses every file of it, which says nothing about this one.
    if without := [release(each) for each in held if each.verdict == "refuses" and not each.has_type]:
        words.append(f"without this model type: {listed(without)}")
    if unknown := [release(each) for each in held if each.verdict == "unknown"]:
        alone = len(reasons) == 1 and len(unknown) == len(held) - 1
        words.append("others not compared" if alone else f"not compared (--verbose says why): {listed(unknown)}")
    return "; ".join(words)


def runtime_rows(readings: Iterable[Reading], context: int | None) -> Iterator[tuple[str, str]]:
    """Label and text of each line: runtimes that compute the same, that differ and by how much, that refuse the file.

    The last lines are the runtimes that cannot be compared, with the reason.
    """
    held = list(readings)
    if held and all(each.verdict == "unknown" for each in held) and len({each.because for each in held}) == 1:
        yield "not compared", str(held[0].because)
        return
    programs = [each for each in held if each.of_program]
    same = [release(each) for each in programs if each.verdict == "same"]
    if same:
        yield "same", listed(same)
    differing: dict[str, list[str]] = {}
    for each in held:
        if each.verdict == "differs":
            for text in _readings_that_differ(each, context):
                differing.setdefault(text, []).append(_runtimes_of(each))
    # A pattern that no named runtime follows comes last, unless another reading differs in the same way.
    for text, names in sorted(differing.items(), key=lambda entry: entry[1] == [_PORT]):
        yield "differs", f"{listed(name for name in names if names == [_PORT] or name != _PORT)}: {text}"
    for verdict, label in (("refuses", "refuses"), ("unknown", "not compared")):
        reasons: dict[str | None, list[str]] = {}
        for each in programs:
            if each.verdict == verdict:
                reasons.setdefault(each.because, []).append(release(each))
        for because, names in reasons.items():
            yield label, f"{listed(names)} ({because})" if verdict == "unknown" else f"{listed(names)}: {because}"
    for what in dict.fromkeys(what for each in programs for what in each.not_compared):
        who = [release(each) for each in programs if what in each.not_compared and each.verdict in ("same", "differs")]
        if who:
            yield (
                "not compared",
                f"{what} of {listed(who)} (what it does with those of such a file is not known to clockhands)",
            )
    for each in programs:
        if each.longest is not None and each.verdict != "refuses":
            yield "longest", f"{release(each)} serves up to {each.longest:,} positions"


def _runtimes_of(reading: Reading) -> str:
    return release(reading) if reading.of_program else _PORT


def _readings_that_differ(reading: Reading, context: int | None) -> Iterator[str]:
    """One text for each kind of difference, with its layers if they do not all differ in the same way."""
    texts: dict[str, list[str | None]] = {}
    for group in reading.parted:
        texts.setdefault(parted_in_words(group, context), []).append(group.layers)
    turned = [code for code in reading.codes if code.kind == "rotary" and code.part in TEXT]
    everywhere = len(texts) == 1 and len(reading.parted) >= len(turned)
    for text, layers in texts.items():
        known = [each for each in layers if each is not None]
        yield f"layers {','.join(known)}: {text}" if known and not everywhere else text


def expected_differences(groups: Sequence[LayerDifference]) -> str:
    """The expected differences, as text."""
    words = []
    if any(group.layout_changed for group in groups):
        words.append("another layout, as GGUF converters reorder the weights")
    if any(group.ladder is not None and not group.ladder.same_rates for group in groups):
        words.append("frequencies within float32 rounding")
    return f" ({'; '.join(words)})" if words else ""


def first_difference(
    groups: Sequence[LayerDifference], contexts: tuple[int | None, int | None], names: tuple[str, str], *, exact: bool
) -> str:
    """The first difference in a sentence: of encodings, else of lengths."""
    for group in groups:
        if group.alike(exact=exact):
            continue
        where = f"{layers_in_words(group.layers)}: " if group.layers and " of every " not in group.layers else ""
        sides = [code_in_words(code) for code in (group.ours, group.theirs)]
        if sides[0] == sides[1]:
            pairs = "" if group.ladder is None else f"{pairs_in_words(group.ladder)}, {ratio_in_words(group.ladder)}"
            return f"Different: {where}{group.says[0] if group.says else pairs}."
        return f"Different: {where}{sides[0]} in the {names[0]}; {sides[1]} in the {names[1]}."
    return f"Different context length: {contexts[0]:,} in the {names[0]}, {contexts[1]:,} in the {names[1]}."
