"""Caches that are changed between two calls: rows are taken out, all is shifted, two are joined.

What is right is asked of the model without any change: the rows that were taken out are hidden by a mask instead; the
text stands at shifted positions from the start; two texts that do not see each other stand one after the other in one
row. A shift is right only within the rounding of phases, so the answer may be off by what a slip of so much of a
position does: a phase ``p r`` made in float32 is off by at most ``e p r (3 |ln r| + 5)`` (`testing.bounds`), which is a
slip of ``e p (3 |ln r| + 5)`` positions, at most ``51 e p`` for rates of ladders with a base up to 5 million; on the
side of the text and of its twin, so twice. Cosine and sine are other numbers there, rounded otherwise: what
rounding explains counts twice as well.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.rotary import rerotate
from clockhands.testing.experiments import Answer, Unasked, shares
from clockhands.testing.generation_caches import copied, first_rows, key_axes, with_rows
from clockhands.testing.generation_subject import Instead, Reply, Subject

_SLIP = 2 * 51 * 2.0**-24


def _evicted(it: Subject) -> list[Answer]:
    """Old rows are taken out of the cache, and the text goes on where it was."""
    _needs_positions(it)
    if it.model.window is not None:
        raise Unasked(f"its layers keep no more than their window of {it.model.window:,} tokens")
    text = it.texts[0]
    steps = min(4, len(text) // 3)
    begun = len(text) - steps
    kept = np.array([0, 1, *range(begun - begun // 2, begun)])
    cache, axes = _prefilled(it, begun)
    if it.evict is None and not axes:
        raise Unasked("the rows of its cache cannot be seen: say evict=, a function(cache, rows) of the rows to keep")
    if it.evict is None and not holds_positions(it):
        raise Unasked("its cache does not hold positions: what stands in it counts from the row, as a bias does")
    fewer = with_rows(cache, kept, axes) if it.evict is None else it.evict(copied(cache), kept)

    def hidden(cache: Any, start: int) -> np.ndarray:
        seen = np.isin(np.arange(len(text)), kept) | (np.arange(len(text)) >= begun)
        said = []
        for step in range(steps):
            here, at = text[None, begun + step : begun + step + 1], np.array([[start + step]])
            logits, cache = it.model(here, at, seen[None, : begun + step + 1], cache)
            said.append(logits[0, 0])
        return np.stack(said)

    wanted = hidden(copied(cache), begun)
    said = []
    for step in range(steps):
        logits, fewer = it.model(text[None, begun + step : begun + step + 1], np.array([[begun + step]]), None, fewer)
        said.append(logits[0, 0])
    at = np.arange(len(text))
    pairs = np.tri(len(text), dtype=bool) & (np.isin(at, kept) | (at >= begun) | (at[:, None] < begun))
    where = np.where(at >= begun, at - begun + len(kept), at)
    told = {"kept": len(kept), "begun": begun}
    return [
        it.reply(
            f"{len(kept)} of {begun} rows are kept, then {steps} tokens one at a time",
            np.stack(said),
            wanted,
            begun,
            (
                Instead("eviction-stops-positions", told, lambda: hidden(copied(cache), len(kept))),
                Instead("eviction-stops-positions", told, lambda: it.alone(text, where, pairs)[begun:]),
                Instead("eviction-stops-positions", told, lambda: _still(it, text, begun, len(kept), pairs)),
            ),
        )
    ]


def _still(it: Subject, text: np.ndarray, begun: int, kept: int, pairs: np.ndarray) -> np.ndarray:
    at = np.arange(len(text))
    return it.alone(text, np.where(at >= begun, kept, at), pairs)[begun:]


def _shifted_text(it: Subject) -> list[Answer]:
    """All positions further by as many, which a rotary code does not see."""
    _needs_positions(it)
    if it.spec is None:
        raise Unasked("whether its code is relative is not known: say like=, its rotary code")
    return [
        _near(it, it.reply(f"all positions further by {by}", it.alone(text, by + np.arange(len(text))), wanted), by)
        for text, wanted, by in zip(it.texts[:2], it.wanted, (_by(it), 1), strict=False)
    ]


def _shifted_cache(it: Subject) -> list[Answer]:
    """The keys of the cache are turned on, and the text goes on at shifted positions."""
    _needs_positions(it)
    text, half, by = it.texts[0], len(it.texts[0]) // 2, _by(it)
    at = np.arange(len(text))
    cache, _ = _prefilled(it, half)
    cache = it.shift(cache, by) if it.shift is not None else _turned(it, cache, half, by)
    logits, _ = it.model(text[None, half:], by + at[None, half:], None, cache)
    wanted = it.alone(text, by + at)[half:]
    told = {"moved": f"shifted by {by} positions"}
    asked = f"the cache of {half} tokens shifted by {by}, then the rest"
    if it.shift is None:
        # The keys were turned on here, by the rates of the spec: the model has no code that could have left them.
        asked = f"the cache of {half} tokens turned on by {by} at the rates of its spec, then the rest"
        return [_near(it, it.reply(asked, logits[0], wanted, half), by)]
    faults = (
        Instead("cached-keys-keep-positions", told, lambda: it.alone(text, np.where(at < half, at, by + at))[half:]),
        Instead(
            "cached-keys-keep-positions", told, lambda: it.alone(text, np.where(at < half, 2 * by + at, by + at))[half:]
        ),
    )
    return [_near(it, it.reply(asked, logits[0], wanted, half, faults), by)]


def _joined(it: Subject) -> list[Answer]:
    """Two caches, each made from position 0, joined to one, and a text goes on after both."""
    _needs_positions(it)
    if it.join is None:
        raise Unasked("say join=, a function(cache, cache) that puts two caches of texts from position 0 into one")
    first, second, rest = it.texts[0][: len(it.texts[0]) // 2], it.texts[1][: len(it.texts[1]) // 2], it.texts[2]
    row, sizes = np.concatenate([first, second, rest]), [len(first), len(second), len(rest)]
    at, begun = np.arange(len(row)), len(first) + len(second)
    part = np.repeat([0, 1, 2], sizes)
    mask = np.tri(len(row), dtype=bool) & ((part[:, None] == part) | (part[:, None] == 2))

    def one_pass(where: np.ndarray) -> np.ndarray:
        return it.alone(row, where, mask)[begun:]

    wanted = one_pass(at)
    caches = [it.model(text[None], np.arange(len(text))[None])[1] for text in (first, second)]
    logits, _ = it.model(rest[None], at[None, begun:], None, it.join(*caches))
    told = {"moved": "joined to another"}
    own = np.where(part == 1, at - len(first), at)
    faults = tuple(
        Instead("cached-keys-keep-positions", told, lambda where=where: one_pass(where))
        for where in (own, np.where(part == 2, at - begun + len(second), own), np.where(part == 2, at - begun, own))
    )
    asked = f"caches of {len(first)} and {len(second)} tokens in one, then {len(rest)} tokens"
    return [_near(it, it.reply(asked, logits[0], wanted, begun, faults), begun)]


def _prefilled(it: Subject, size: int) -> tuple[Any, dict]:
    """The cache of the first tokens of the longest text, and the axes of its keys."""
    text, at = it.texts[0], np.arange(size)[None]
    _, cache = it.model(text[None, : size - 1], at[:, :-1])
    if cache is None:
        raise Unasked("it gives back no cache")
    before = copied(cache)
    _, cache = it.model(text[None, size - 1 : size], at[:, -1:], None, cache)
    return cache, key_axes(before, cache, 1)


def holds_positions(it: Subject) -> bool:
    """Whether the rows of one token differ from position to position in its cache."""
    model = it.model.fresh()
    text = np.full((1, 6), it.texts[0][0])
    _, cache = model(text[:, :5], np.arange(5)[None])
    before = copied(cache)
    _, cache = model(text[:, 5:], np.array([[5]]), None, cache)
    axes = key_axes(before, cache, 1, floats=True)
    for path, axis in axes.items():
        rows = first_rows(cache, {path: axis})
        if (shares(rows, np.broadcast_to(rows[0], rows.shape), np.abs(rows).max() * 2.0**-12) > 1).any():
            return True
    return False


def _turned(it: Subject, cache: Any, size: int, by: int) -> Any:
    """A cache of Transformers with its keys turned on by so many positions."""
    layers = getattr(cache, "layers", None)
    if it.spec is None or not layers or not all(hasattr(layer, "keys") for layer in layers):
        raise Unasked("say shift=, a function(cache, positions) that moves a cache")
    if it.model.window is not None:
        raise Unasked(f"its layers keep no more than their window of {it.model.window:,} tokens")
    for layer in layers:
        layer.keys = rerotate(layer.keys, it.spec, np.arange(size), by + np.arange(size))
    return cache


def _by(it: Subject) -> int:
    return len(it.texts[0]) // 2 + 3


def _needs_positions(it: Subject) -> None:
    if "positions" not in it.model.takes:
        raise Unasked("it takes no positions")


def _near(it: Subject, reply: Reply, by: int) -> Answer:
    """An answer that the rounding of phases may move as well, at positions that are further by so many."""
    most = by + reply.first + len(reply.got)
    return replace(reply, allowed=np.asarray(2 * it.allowed + _SLIP * most * it.slip))


CHANGED: tuple[tuple[str, str, Callable[[Any], list[Answer]]], ...] = (
    ("rows taken out of the cache", "Whether a text goes on where it was when old keys are gone.", _evicted),
    ("a shifted text", "Whether only distances matter to a code that is relative.", _shifted_text),
    ("a shifted cache", "Whether keys that are turned on stand where they were moved to.", _shifted_cache),
    ("joined caches", "Whether keys of two caches stand one after the other.", _joined),
)
"""Name, question and experiment."""
