"""What can be said of a failure that no suspect explains: how far it goes, and what is right beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.faults import ROTARY, Fault
from clockhands.testing.experiments import Answer
from clockhands.testing.explaining import Asked, failed_of, told_of
from clockhands.testing.reports import Explanation

# What asks of coarser tokens leave behind.
AFTER_COARSER = {"coarser tokens before", "a model of coarser tokens first"}


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common, by rules."""
    if told := of_any_code(it, asked, ROTARY):
        return told
    failed = failed_of(asked)
    still = np.setdiff1d(np.arange(it.spec.head_width), it.spec.channels.reshape(-1))
    wrong_channels = np.unique(
        np.concatenate(
            [
                np.flatnonzero((each.shares > 1).reshape(-1, each.shares.shape[-1]).any(axis=0))
                for one in failed.values()
                for each in one.answers
                if each.shares.shape[-1] == it.spec.head_width
            ]
            or [np.empty(0, int)]
        )
    )
    if len(still) and len(wrong_channels) and np.isin(wrong_channels, still).all():
        some = ", ".join(map(str, wrong_channels[:4])) + (
            f" and {len(wrong_channels) - 4} more" if len(wrong_channels) > 4 else ""
        )
        return (told_of(ROTARY["unrotated-channels-turned"], {"channels": some}),)
    every = failed.get("every position")
    few = "" if every is None else few_numbers(every.answers[0])
    return (told_of(ROTARY["one-number-wrong"], {"which": few}),) if few else ()


def of_any_code(it: Any, asked: Sequence[Asked], faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """What is told of a code of any kind by which experiments failed, in the words of its faults."""
    failed = failed_of(asked)
    if told := not_finite(asked):
        return told
    if it.called.changed:
        return (told_of(faults["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    after, coarse = AFTER_COARSER & failed.keys(), {"dtype": it.coarse}
    if not failed or not failed.keys() <= {*after, "coarser tokens"}:
        return ()
    # Right before coarser tokens came, wrong after them.
    codes = ["cache-keeps-first-dtype"] * bool(after) + ["coarse-path-differs"] * ("coarser tokens" in failed)
    return tuple(told_of(faults[code], coarse) for code in codes)


def not_finite(asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """Whether it gives back NaN or infinite numbers for tokens that are finite."""
    bad = [each for one in asked for each in one.answers if not np.isfinite(each.got).all()]
    if not bad:
        return ()
    longest = max(bad, key=lambda each: each.got.size)  # which says best where it begins
    what = "NaN" if np.isnan(longest.got).any() else "infinite numbers"
    where = _from_where(np.asarray(~np.isfinite(longest.got)).any(axis=-1), longest.positions)
    return (told_of(ROTARY["not-finite"], {"what": what, "where": where}),)


def _from_where(rows: Any, positions: np.ndarray | None) -> str:
    """Where bad rows begin, or which they are, in words; nothing where all are bad."""
    if positions is None or rows.all():
        return ""
    at = np.broadcast_to(positions, rows.shape)
    first = int(at[rows].min())
    if at[rows].size == 1 or not rows[at >= first].all():
        return f" at position {first:,}" if np.ptp(at[rows]) == 0 else f" at positions {first:,} and others"
    return f" from position {first:,} on"


def remembers(asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What was right at first, and is not once something longer was asked."""
    failed = failed_of(asked)
    sound = {one.experiment.name for one in asked} - failed.keys()
    if "a short sequence" in sound and {"asked again", "after a longer sequence"} & failed.keys():
        return (told_of(ROTARY["remembers-longest"], {}),)
    return ()


def only_coarse(told: tuple[Explanation, ...], asked: Sequence[Asked], dtype: str | None) -> tuple[Explanation, ...]:
    """What was told, with the word that it is so for coarser tokens only, where it is."""
    failed = failed_of(asked)
    if not told or failed.keys() - {"coarser tokens"} or "coarse-path-differs" in told[0].codes:
        return told
    first = told[0]
    message = f"{first.message[:-1]}, for {dtype} tokens only: float32 ones are right."
    return (replace(first, codes=(*first.codes, "coarse-path-differs"), message=message), *told[1:])


def one_sided(told: tuple[Explanation, ...], side: str | None) -> tuple[Explanation, ...]:
    """What was told, with the word that it is so for keys or for queries only, where it is."""
    if side is None or not told:
        return told
    one, others = ("keys", "queries") if side == "key" else ("queries", "keys")
    message = f"{told[0].message.removesuffix('.')}, for {one} only: {others} are right."
    return (replace(told[0], message=message), *told[1:])


def few_numbers(answer: Answer) -> str:
    """The few positions at which a code is wrong that is right elsewhere, in words."""
    wrong = answer.shares[0, 0] > 1
    rows = np.flatnonzero(wrong.any(axis=-1))
    if not len(rows) or len(rows) > max(8, len(wrong) // 200):
        return ""
    places = rows if answer.positions is None else np.broadcast_to(answer.positions, (1, 1, len(wrong)))[0, 0, rows]
    where = f"position {places[0]:,}" if len(rows) == 1 else f"{len(rows)} positions (the first is {places[0]:,})"
    channels = np.flatnonzero(wrong.any(axis=0))
    return f"{where}, in channel{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels[:6]))}"
