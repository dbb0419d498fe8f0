"""What a model would say of a text under each fault: one pass at other positions, or seeing other keys."""

from collections.abc import Callable

import numpy as np

from clockhands.testing.experiments import Unasked
from clockhands.testing.generation_subject import Instead, Subject


def padding_faults(it: Subject, row: np.ndarray, text: int, pad: int) -> tuple[Instead, ...]:
    """What a text after pads would be, where the pads count or are seen."""
    if not pad:
        return ()
    at = np.arange(len(row) - pad)
    told = {"pads": number_of(pad, "pad"), "start": pad}
    return (
        Instead("padding-shifts", told, lambda: it.alone(it.texts[text], at + pad)),
        Instead("padding-seen", told, lambda: it.alone(row)[pad:]),
        Instead("padding-seen", told, lambda: it.alone(row, np.maximum(np.arange(len(row)) - pad, 0))[pad:]),
    )


def padded_decoding_faults(it: Subject, text: int, start: int, pad: int, first: int) -> tuple[Instead, ...]:
    """What a text that goes on after pads would be: the pads count before, or after, or all texts stand alike."""

    def at(begin: int, then: int) -> Callable[[], np.ndarray]:
        size = len(it.texts[text])
        where = np.concatenate([begin + np.arange(start), then + np.arange(size - start)])
        return lambda: it.alone(it.texts[text], where)[start:]

    told = {"pads": number_of(pad, "pad"), "start": pad}
    found = [
        Instead("padding-shifts", told, at(begin, then))
        for begin, then in ((pad, start + pad), (0, start + pad), (pad, start))
        if pad
    ]
    if first != start:
        found.append(
            Instead("decode-positions", {"how": "those of the batch's first text in every text"}, at(0, first))
        )
    return (*found, *decoding_faults(it, text, [start, *range(start + 1, len(it.texts[text]))]))


def decoding_faults(it: Subject, text: int, cuts: list[int]) -> tuple[Instead, ...]:
    """What tokens from the first cut on would be with other positions, or seeing other keys."""
    tokens = it.texts[text]
    size, first = len(tokens), cuts[0]
    at = np.arange(size)
    starts = np.array([0, *cuts])
    piece = np.searchsorted(starts, at, side="right") - 1
    inside = at - starts[piece]
    later = at >= first
    alone = np.isin(piece, np.flatnonzero(np.bincount(piece) == 1))
    causal = np.tri(size, dtype=bool)

    def placed(code: str, how: str, where: np.ndarray) -> Instead:
        return Instead(code, {"how": how}, lambda: it.alone(tokens, where)[first:])

    def seeing(code: str, mask: np.ndarray, where: np.ndarray) -> Instead:
        return Instead(code, {}, lambda: it.alone(tokens, where, mask & causal)[first:])

    single = bool((np.diff([*cuts, size]) == 1).all())
    chunk = "token" if single else "piece"
    found = [
        placed(
            "decode-positions",
            f"{first} for every later token" if single else f"{first} at the start of every later piece",
            np.where(later, first + inside, at),
        ),
        placed("decode-positions", f"one position further for every later {chunk}", at + later),
        placed("decode-positions", f"one more position further with every {chunk}", at + piece),
        placed("decode-positions", "one position further for every token that comes alone", at + (later & alone)),
        placed("decode-positions", f"one position back for every later {chunk}", at - later),
        placed(
            "decode-positions",
            f"{first - 1} for every later token" if single else f"{first - 1} at the start of every later piece",
            np.where(later, first - 1 + inside, at),
        ),
        placed("chunk-restarts", "", np.where(later, at - first, at)),
        placed("chunk-restarts", "", inside),
        placed("decode-positions", f"the number of the {chunk}", np.where(later, piece + inside, at)),
        seeing("cache-not-read", piece[:, None] == piece, at),
        seeing("cache-not-read", piece[:, None] == piece, inside),
        seeing("first-keys-seen", at <= inside[:, None], at),
    ]
    return tuple(found)


def placed_faults(it: Subject, text: int, cuts: list[int], got: np.ndarray) -> tuple[Instead, ...]:
    """Where tokens that come one at a time stand, found by trying all positions for the first two of them."""
    tokens, first = it.texts[text], cuts[0]
    size = len(tokens)
    if len(cuts) < 2 or cuts[1] != first + 1:
        return ()
    at = np.arange(size)

    def found() -> np.ndarray:
        places: list[int] = []
        for step in range(2):
            tried = np.arange(size + 8)
            where = np.tile(at[: first + step + 1], (len(tried), 1))
            where[:, first : first + step] = places
            where[:, -1] = tried
            logits, _ = it.model.fresh()(np.tile(tokens[: first + step + 1], (len(tried), 1)), where)
            off = np.abs(logits[:, -1] - got[step]).max(axis=-1)
            if not np.nanmin(off) <= 2 * it.allowed:
                raise Unasked("it stands nowhere")
            places.append(int(np.nanargmin(off)))
        where = np.where(at >= first, places[0] + (places[1] - places[0]) * (at - first), at)
        told["how"] = f"{', '.join(map(str, where[first : first + 3]))} where {first}, {first + 1}, {first + 2} belong"
        return where

    told = {"how": ""}
    return (Instead("decode-positions", told, lambda: it.alone(tokens, found())[first:]),)


def counted_together(it: Subject, text: int, where: np.ndarray, first: int) -> Instead:
    """A text that stands where a count of both texts is."""
    how = "where both texts together have come to, as one count serves two caches"
    return Instead("decode-positions", {"how": how}, lambda: it.alone(it.texts[text], where)[first:])


def number_of(number: int, what: str) -> str:
    """A number of things in words."""
    return f"{number} {what}{'' if number == 1 else 's'}"
