"""Experiments that change a cache between two calls: rows removed, keys moved on, two caches joined."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.layouts import Layout
from clockhands.encodings.rotary import Rotary, rerotate
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.generation._cache_arrays import (
    Path,
    arrays_of,
    copied,
    mapped,
    token_counts,
    with_counts,
    with_rows,
)
from clockhands.testing.generation._cache_shifts import CacheShift
from clockhands.testing.generation._causal_models import held
from clockhands.testing.generation._kept_states import states_of
from clockhands.testing.generation._key_places import grown_cache, holds_positions, one_value, placed_arrays
from clockhands.testing.generation.texts import GenerationSubject

_SLIP = 2 * 51 * 2.0**-24


def _evicted(it: GenerationSubject) -> list[Answer]:
    """Old rows are taken out of the cache, and the text goes on where it was."""
    needs_positions(it)
    if it.model.window is not None:
        raise Unasked(f"its window of {it.model.window:,} tokens may count the rows that are kept")
    text = it.texts[0]
    steps = min(4, len(text) // 3)
    begun = len(text) - steps
    kept = np.array([0, 1, *range(begun - begun // 2, begun)])
    cache, axes = grown_cache(it.model, text[:begun], [begun - 1])
    if it.evict is None and axes and not holds_positions(it):
        raise Unasked("its cache does not hold positions: its encoding counts the rows, as a bias does")
    fewer = with_only(it, cache, kept, axes)

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
    return [
        it.reply(
            f"{len(kept)} of {begun} rows are kept, then {steps} tokens one at a time", np.stack(said), wanted, begun
        )
    ]


def _rejected(it: GenerationSubject) -> list[Answer]:
    """Two of four drafted tokens are wrong: their rows are removed, and the text goes on where the first one was."""
    needs_positions(it)
    if it.model.window is not None:
        raise Unasked(f"its window of {it.model.window:,} tokens may count the rows that are kept")
    text, half = it.texts[0], len(it.texts[0]) // 2
    begun = half + 2
    drafted = np.concatenate([text[:begun], (text[begun : begun + 2] + 1) % it.model.vocabulary])
    at = np.arange(len(text))[None]
    cache, axes = grown_cache(it.model, text[:half], [half - 1])
    before = copied(cache)
    _, cache = it.model(drafted[None, half:], at[:, half : len(drafted)], None, cache)
    cache = without_rejected(it, before, cache, np.arange(begun), axes)
    logits, _ = it.model(text[None, begun:], at[:, begun:], None, cache)
    return [it.reply("two rejected tokens are removed, then the right ones", logits[0], it.wanted[0][begun:], begun)]


def with_only(it: GenerationSubject, cache: Any, rows: np.ndarray, axes: dict[Path, int]) -> Any:
    """A copy of the cache with these rows alone, by the caller's function where there is one."""
    if it.evict is not None:
        return it.evict(copied(cache), rows)
    if not axes:
        raise Unasked(
            "the rows of its cache are not accessible: pass evict=, a function(cache, rows) that keeps these rows"
        )
    return with_rows(cache, lambda _: rows, axes)


def without_rejected(it: GenerationSubject, before: Any, after: Any, kept: np.ndarray, axes: dict[Path, int]) -> Any:
    """A copy of the cache after a draft with the kept rows alone, which counts the other tokens no longer."""
    cache = with_only(it, after, kept, axes)
    if it.evict is not None:
        return cache
    ((path, axis),) = [*axes.items()][:1]
    size = dict(arrays_of(after))[path].shape[axis]
    drafted = size - dict(arrays_of(before))[path].shape[axis]
    return with_counts(cache, size - len(kept), token_counts(before, after, drafted))


def _shifted_text(it: GenerationSubject) -> list[Answer]:
    """All positions further by as many, which a rotary code does not see."""
    needs_positions(it)
    if it.spec is None:
        raise Unasked("whether its encoding is relative is not known: pass like=, its RoPE spec")
    return [
        _near(it, it.reply(f"all positions further by {by}", it.alone(text, by + np.arange(len(text))), wanted), by)
        for text, wanted, by in zip(it.texts[:2], it.wanted, (_by(it), 1), strict=False)
    ]


def _shifted_cache(it: GenerationSubject) -> list[Answer]:
    """The keys of the cache are turned on, and the text goes on at shifted positions."""
    needs_positions(it)
    if it.drops:
        return _after_drop(it)
    text, half, by = it.texts[0], len(it.texts[0]) // 2, _by(it)
    at = np.arange(len(text))
    cache, _ = grown_cache(it.model, text[:half], [half - 1])
    cache = it.shift(cache, by) if it.shift is not None else _rotated_cache(it, cache, half, by)
    logits, _ = it.model(text[None, half:], by + at[None, half:], None, cache)
    wanted = it.alone(text, by + at)[half:]
    asked = f"the cache of {half} tokens shifted by {by}, then the rest"
    if it.shift is None:
        # The keys were turned on here, by the rates of the spec: the model has no code that could have left them.
        asked = f"the cache of {half} tokens rotated by {by} positions with the frequencies of its spec, then the rest"
    single = _near(it, it.reply(asked, logits[0], wanted, half), by)
    return [single, *(_shifted_batch(it, by) if it.shifts else ())]


def _shifted_batch(it: GenerationSubject, by: int) -> list[Answer]:
    """The cache of several texts is moved, and each goes on at shifted positions."""
    assert it.shift is not None
    size = len(it.texts[0]) // 2
    half, first = size // 2, it.texts[0]
    rows = np.stack([first[:size], it.texts[1][:size], first[-size:]])
    at = np.broadcast_to(np.arange(size), rows.shape)
    try:
        _, cache = it.model(rows[:, :half], at[:, :half])
    except Refused:
        return []  # one text at a time
    logits, _ = it.model(rows[:, half:], by + at[:, half:], None, it.shift(held(cache), by))
    return [
        _near(it, it.reply(f"text {row + 1} of 3 in a cache shifted by {by}", logits[row], wanted[half:], half), by)
        for row, wanted in enumerate(it.alone(text, by + np.arange(size)) for text in rows)
    ]


def _after_drop(it: GenerationSubject) -> list[Answer]:
    """The first rows of a cache are dropped and the others moved back, and the texts go on behind them."""
    size = len(it.texts[1])
    batch = np.stack([it.texts[0][:size], it.texts[1], it.texts[0][-size:]])
    try:
        return _rows_after_drop(it, batch)
    except Refused:  # one text at a time
        return _rows_after_drop(it, it.texts[0][None])


def _rows_after_drop(it: GenerationSubject, rows: np.ndarray) -> list[Answer]:
    size = rows.shape[1]
    half, dropped = size // 2, size // 5
    at = np.broadcast_to(np.arange(size), rows.shape)
    _, cache = it.model(rows[:, :half], at[:, :half])
    wanted, _ = it.model(rows[:, half:], at[:, half:], at >= dropped, copied(held(cache)))
    assert it.shift is not None
    if isinstance(it.shift, CacheShift):
        cache = it.shift(cache, dropped)
    else:  # under a fault
        assert it.evict is not None
        cache = it.shift(it.evict(cache, np.arange(dropped, half)), -dropped)
    logits, _ = it.model(rows[:, half:], at[:, half:] - dropped, None, cache)
    said = f"of {len(rows)}: the first {dropped} of {half} cached tokens are dropped, the others moved back"
    replies = (
        it.reply(f"text {row + 1} {said}", got, right, half)
        for row, (got, right) in enumerate(zip(logits, wanted, strict=True))
    )
    return [_near(it, reply, dropped) for reply in replies]


def _joined(it: GenerationSubject) -> list[Answer]:
    """Two caches, each made from position 0, joined to one, and a text goes on after both."""
    needs_positions(it)
    if it.join is None:
        raise Unasked("pass join=, a function(cache, cache) that joins two caches of texts from position 0")
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
    asked = f"caches of {len(first)} and {len(second)} tokens in one, then {len(rest)} tokens"
    return [_near(it, it.reply(asked, logits[0], wanted, begun), begun)]


def _rotated_cache(it: GenerationSubject, cache: Any, size: int, by: int) -> Any:
    """A cache of Transformers with its rotated rows turned on by so many positions.

    Which of its arrays are rotated is measured: in multi-head latent attention it is not the one that is called keys.
    """
    if it.spec is None or not getattr(cache, "layers", None):
        raise Unasked("pass shift=, a function(cache, positions) that moves a cache")
    if it.model.window is not None:
        raise Unasked(f"its window of {it.model.window:,} tokens may count the rows that are kept")
    if states_of(it):
        raise Unasked("values of one token differ by position, as its keys do, since it keeps a state: pass shift=")
    placed = placed_arrays(it)
    specs = {path: _spec_of_rows(it.spec, alike) for path, (axis, alike) in placed.items() if axis == alike.ndim - 2}
    if not placed or specs.keys() != placed.keys() or None in specs.values():
        raise Unasked("its cache holds no rows of the width of its spec: pass shift=, a function(cache, positions)")

    def rotated_rows(path: Path, array: Any) -> Any:
        own = specs.get(path)
        return array if own is None else rerotate(array, own, _places(own, 0, size), _places(own, by, size))

    return mapped(cache, rotated_rows)


def moved_keys(it: GenerationSubject) -> dict[str, str | None]:
    """The arrays of a cache whose keys a caller's ``shift`` puts elsewhere than the model itself does.

    The model itself gives the keys at the positions to which they should go. Which of its rotations was applied is a
    linear map of channels, taken from the keys of another layer before and after.

    Returns:
        For each such array the array whose rotation was applied to it, "" if it is none of these, None if it was not
        moved.
    """
    text, by = it.texts[0], _by(it)
    at = np.arange(len(text))[None]
    axes = {path: axis for path, (axis, _) in placed_arrays(it).items()}
    caches = [it.model.fresh()(text[None], at + further)[1] for further in (0, by)]
    caches.append(it.shift(copied(caches[0]), by) if it.shift is not None else caches[0])
    held = {path: [_channels(cache, path) for cache in caches] for path, axis in axes.items()}
    wrong: dict[str, str | None] = {}
    for path, (before, right, got) in held.items():
        if _same_rows(got, right) or _same_rows(right, before):
            continue
        name = _array_name(path)
        wrong[name] = None if _same_rows(got, before) else ""
        for other, (one, two, _) in held.items():
            turn, _, rank, _ = np.linalg.lstsq(one, two, rcond=None)
            if wrong[name] == "" and other != path and rank == before.shape[-1] and _same_rows(before @ turn, got):
                wrong[name] = _array_name(other)
    return wrong


def _channels(cache: Any, path: Path) -> np.ndarray:
    """The rows of one array of a cache and its heads, [rows, channels]."""
    array = as_numpy(dict(arrays_of(cache))[path]).astype(np.float64)
    return array.reshape(-1, array.shape[-1])


def _same_rows(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((np.abs(one - other) <= 8 * one_value(other)).all())


def _array_name(path: Path) -> str:
    number = next((part for part in reversed(path) if isinstance(part, int)), None)
    return f"layer {number}" if number is not None else ".".join(map(str, path))


def _spec_of_rows(spec: Rotary, alike: Any) -> Rotary | None:
    """The spec of cached rows [..., tokens, channels] of one token, whole heads or their rotated part; None of others.

    The pairs are those of the layout that fits the rows better: channels of a part may be kept in another order.
    """
    width, tokens = alike.shape[-1], alike.shape[-2]
    if width not in {spec.head_width, spec.rotated}:
        return None
    whole = {} if width == spec.head_width else {"head_width": width, "part": "first"}
    layouts: tuple[Layout, ...] = ("halves", "interleaved")
    own = [replace(spec.at_original, layout=each, reordered=False, blocks=(), **whole) for each in layouts]
    rows = as_numpy(alike).astype(np.float64)
    first = np.repeat(rows[..., :1, :], tokens, axis=-2)
    start, places = 0 * _places(spec, 0, tokens), _places(spec, 0, tokens)
    off = [np.abs(rerotate(first, each, start, places) - rows).max() for each in own]
    return (
        own[int(np.argmin(off))] if min(off) < 0.5 * max(off) else replace(spec.at_original, reordered=False, **whole)
    )


def _places(spec: Rotary, start: int, size: int) -> np.ndarray:
    """The positions of a text, the same on every axis."""
    at = start + np.arange(size)
    return at if spec.number_of_axes == 1 else np.repeat(at[:, None], spec.number_of_axes, axis=1)


def _by(it: GenerationSubject) -> int:
    return len(it.texts[0]) // 2 + 3


def needs_positions(it: GenerationSubject) -> None:
    """Raise `Unasked` for a model that takes no positions."""
    if "positions" not in it.model.takes:
        raise Unasked("it takes no positions")


def _near(it: GenerationSubject, reply: Answer, by: int) -> Answer:
    """An answer that the rounding of phases may move as well, at positions that are further by so many."""
    assert reply.positions is not None
    most = by + int(np.max(reply.positions)) + 1
    return replace(reply, allowed=np.asarray(2 * it.allowed + _SLIP * most * it.slip))


CHANGED: tuple[tuple[str, str, Callable[[Any], list[Answer]]], ...] = (
    ("rows removed from the cache", "Positions continue after old keys are removed.", _evicted),
    ("rejected tokens", "Rejected tokens of a draft leave nothing behind.", _rejected),
    ("a shifted text", "A relative encoding depends on distances only.", _shifted_text),
    ("a shifted cache", "Rotated keys have the positions to which they were moved.", _shifted_cache),
    ("joined caches", "Keys of two joined caches have consecutive positions.", _joined),
)
"""Name, question and experiment."""
