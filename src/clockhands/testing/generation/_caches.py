"""KV caches of any model, as nested arrays: copying, pickling, and selecting rows.

No format of a cache is assumed: the axis of the keys is the one that grows with the number of tokens.
"""

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.layouts import Layout
from clockhands.encodings.rotary import Rotary, rerotate
from clockhands.recognition.calling import FLOATS, Refused, as_numpy, dtype_of
from clockhands.testing._experiments import Answer, Unasked, shares
from clockhands.testing.generation.texts import GenerationSubject

Path = tuple[Any, ...]


def copied(cache: Any) -> Any:
    """A copy that shares nothing."""
    try:
        return copy.deepcopy(cache)
    except Exception as error:
        raise Unasked(f"its cache cannot be copied: {type(error).__name__}: {error}") from error


def pickled(cache: Any) -> Any:
    """What comes back of a pickled cache."""
    try:
        return pickle.loads(pickle.dumps(cache))
    except Exception as error:
        raise Unasked(f"its cache cannot be pickled: {type(error).__name__}: {error}") from error


def key_axes(before: Any, after: Any, grown: int, *, floats: bool = False) -> dict[Path, int]:
    """For each array of a cache the axis that grew by this many rows; empty where none did."""
    first, second = dict(_arrays(before)), dict(_arrays(after))
    axes = {}
    for path, array in second.items():
        older = first.get(path)
        if older is None or older.ndim != array.ndim or (floats and dtype_of(array) not in FLOATS):
            continue
        more = [axis for axis in range(array.ndim) if array.shape[axis] != older.shape[axis]]
        if len(more) == 1 and array.shape[more[0]] - older.shape[more[0]] == grown:
            axes[path] = more[0]
    return axes


def with_rows(cache: Any, rows: np.ndarray, axes: dict[Path, int]) -> Any:
    """A copy of the cache with these rows of its keys and values, in this order; what it counts stays as it is."""
    rows = np.ascontiguousarray(rows)

    def taken(path: Path, array: Any) -> Any:
        axis = axes.get(path)
        return array if axis is None else array[(slice(None),) * axis + (rows,)]

    return mapped(copied(cache), taken)


def reversed_rows(cache: Any, axes: dict[Path, int]) -> Any:
    """A copy of the cache with the rows of its keys and values in the reverse order."""

    def reversed_array(path: Path, array: Any) -> Any:
        axis = axes.get(path)
        return array if axis is None else array[(slice(None),) * axis + (np.arange(array.shape[axis] - 1, -1, -1),)]

    return mapped(copied(cache), reversed_array)


def rows_of(cache: Any, path: Path, axis: int, text: int | None = None) -> np.ndarray:
    """The rows of one array of a cache, [rows, numbers], of all texts of the batch or of one."""
    array = as_numpy(dict(_arrays(cache))[path]).astype(np.float64)
    if text is not None and axis > 0:
        array = array[text : text + 1]
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def mapped(cache: Any, change: Callable[[Path, Any], Any], path: Path = (), seen: frozenset[int] = frozenset()) -> Any:
    """The same nest with every array changed; objects are written to, and only where something in them changed."""
    if _is_array(cache):
        return change(path, cache)
    if id(cache) in seen:
        return cache
    seen |= {id(cache)}
    if isinstance(cache, dict):
        made = {key: mapped(value, change, (*path, key), seen) for key, value in cache.items()}
        return cache if all(made[key] is cache[key] for key in made) else type(cache)(made)
    if isinstance(cache, tuple | list):
        values = [mapped(value, change, (*path, place), seen) for place, value in enumerate(cache)]
        if all(new is old for new, old in zip(values, cache, strict=True)):
            return cache
        return type(cache)(*values) if hasattr(cache, "_fields") else type(cache)(values)
    if hasattr(cache, "__dict__") and not isinstance(cache, type) and not callable(cache):
        for name, value in list(vars(cache).items()):
            changed = mapped(value, change, (*path, name), seen)
            if changed is not value:
                object.__setattr__(cache, name, changed)
    return cache


def _arrays(cache: Any) -> Iterator[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []

    def noted(path: Path, array: Any) -> Any:
        found.append((path, array))
        return array

    # An object is given back itself, and written to only where something in it changed.
    mapped(cache, noted)
    yield from found


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim") and value.ndim > 0  # type: ignore[attr-defined]


_SLIP = 2 * 51 * 2.0**-24


def _evicted(it: GenerationSubject) -> list[Answer]:
    """Old rows are taken out of the cache, and the text goes on where it was."""
    _needs_positions(it)
    if it.model.window is not None:
        raise Unasked(f"its layers keep no more than their window of {it.model.window:,} tokens")
    text = it.texts[0]
    steps = min(4, len(text) // 3)
    begun = len(text) - steps
    kept = np.array([0, 1, *range(begun - begun // 2, begun)])
    cache, axes = prefilled(it, begun)
    if it.evict is None and axes and not holds_positions(it):
        raise Unasked("its cache does not hold positions: its encoding counts the rows, as a bias does")
    fewer = _with_only(it, cache, kept, axes)

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
    _needs_positions(it)
    if it.model.window is not None:
        raise Unasked(f"its layers keep no more than their window of {it.model.window:,} tokens")
    text, half = it.texts[0], len(it.texts[0]) // 2
    begun = half + 2
    drafted = np.concatenate([text[:begun], (text[begun : begun + 2] + 1) % it.model.vocabulary])
    at = np.arange(len(text))[None]
    cache, axes = prefilled(it, half)
    _, cache = it.model(drafted[None, half:], at[:, half : len(drafted)], None, cache)
    cache = _with_only(it, cache, np.arange(begun), axes)
    logits, _ = it.model(text[None, begun:], at[:, begun:], None, cache)
    return [it.reply("two rejected tokens are removed, then the right ones", logits[0], it.wanted[0][begun:], begun)]


def _with_only(it: GenerationSubject, cache: Any, rows: np.ndarray, axes: dict[Path, int]) -> Any:
    """A copy of the cache with these rows alone, by the caller's function where there is one."""
    if it.evict is not None:
        return it.evict(copied(cache), rows)
    if not axes:
        raise Unasked(
            "the rows of its cache are not accessible: pass evict=, a function(cache, rows) that keeps these rows"
        )
    return with_rows(cache, rows, axes)


def _shifted_text(it: GenerationSubject) -> list[Answer]:
    """All positions further by as many, which a rotary code does not see."""
    _needs_positions(it)
    if it.spec is None:
        raise Unasked("whether its encoding is relative is not known: pass like=, its RoPE spec")
    return [
        _near(it, it.reply(f"all positions further by {by}", it.alone(text, by + np.arange(len(text))), wanted), by)
        for text, wanted, by in zip(it.texts[:2], it.wanted, (_by(it), 1), strict=False)
    ]


def _shifted_cache(it: GenerationSubject) -> list[Answer]:
    """The keys of the cache are turned on, and the text goes on at shifted positions."""
    _needs_positions(it)
    text, half, by = it.texts[0], len(it.texts[0]) // 2, _by(it)
    at = np.arange(len(text))
    cache, _ = prefilled(it, half)
    cache = it.shift(cache, by) if it.shift is not None else _rotated_cache(it, cache, half, by)
    logits, _ = it.model(text[None, half:], by + at[None, half:], None, cache)
    wanted = it.alone(text, by + at)[half:]
    asked = f"the cache of {half} tokens shifted by {by}, then the rest"
    if it.shift is None:
        # The keys were turned on here, by the rates of the spec: the model has no code that could have left them.
        asked = f"the cache of {half} tokens rotated by {by} positions with the frequencies of its spec, then the rest"
    return [_near(it, it.reply(asked, logits[0], wanted, half), by)]


def _joined(it: GenerationSubject) -> list[Answer]:
    """Two caches, each made from position 0, joined to one, and a text goes on after both."""
    _needs_positions(it)
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


def prefilled(it: GenerationSubject, size: int) -> tuple[Any, dict]:
    """The cache of the first tokens of the longest text, and the axes of its keys."""
    text, at = it.texts[0], np.arange(size)[None]
    _, cache = it.model(text[None, : size - 1], at[:, :-1])
    if cache is None:
        raise Unasked("it returns no cache")
    before = copied(cache)
    _, cache = it.model(text[None, size - 1 : size], at[:, -1:], None, cache)
    return cache, key_axes(before, cache, 1)


def states_of(it: GenerationSubject) -> frozenset[Path]:
    """The arrays, of its cache or its modules, of all earlier tokens together, as recurrences keep them.

    Such an array keeps its shape and changes with each token, not in the row of that token alone.
    """
    size = len(it.texts[0]) // 2
    if it.model.window is not None and it.model.window <= size:
        return frozenset()  # full windows keep their shape, too
    found: set[Path] = set()
    kept: list[dict[Path, Any]] = []
    for tokens in (size - 1, size):
        model = it.model.fresh()
        _, cache = model(it.texts[0][None, :tokens])
        kept.append({path: as_numpy(array) for path, array in (*_arrays(cache), *_arrays(model.kept_arrays()))})
    before, after = kept
    for path, array in after.items():
        older = before.get(path)
        if older is None or older.shape != array.shape or dtype_of(array) not in FLOATS:
            continue
        changed = np.argwhere(np.abs(array - older) > _like(older)).T
        axes = [len(np.unique(places)) for places, length in zip(changed, array.shape, strict=True) if length > 1]
        if axes and min(axes) > 1:
            found.add(path)
    return frozenset(found)


def reads_states_of_pieces(it: GenerationSubject, states: frozenset[Path]) -> bool:
    """Whether each state of its cache changes something of a piece of several tokens that goes on from it."""
    text, half = it.texts[0], len(it.texts[0]) // 2
    at = np.arange(len(text))[None] if "positions" in it.model.takes else None

    def rest(of: Path | None) -> np.ndarray:
        model = it.model.fresh()
        _, cache = model(text[None, :half], None if at is None else at[:, :half])
        cache = mapped(copied(cache), lambda path, array: array * 0 if path == of else array)
        return model(text[None, half:], None if at is None else at[:, half:], None, cache)[0]

    return not any(np.array_equal(rest(None), rest(path)) for path in states)


def holds_positions(it: GenerationSubject) -> bool:
    """Whether the rows of one token differ from position to position in its cache."""
    return bool(_placed_arrays(it))


def _placed_arrays(it: GenerationSubject) -> dict[Path, tuple[int, Any]]:
    """The arrays of the cache of one repeated token whose rows differ from position to position, with their axes."""
    cache, axes = _in_pieces(it, np.full(6, it.texts[0][0]), [5])
    found = {}
    for path, axis in axes.items():
        rows = rows_of(cache, path, axis)
        if (shares(rows, np.broadcast_to(rows[0], rows.shape), _like(rows)) > 1).any():
            found[path] = axis, dict(_arrays(cache))[path]
    return found


def _like(rows: np.ndarray) -> np.ndarray:
    return np.abs(rows).max() * 2.0**-12


def _in_pieces(it: GenerationSubject, text: np.ndarray, cuts: list[int]) -> tuple[Any, dict[Path, int]]:
    """The cache of a text that a fresh model gets in pieces, and the axes that grew with the last piece."""
    model, cache, before = it.model.fresh(), None, None
    for start, stop in itertools.pairwise([0, *cuts, len(text)]):
        before = copied(cache)
        at = np.arange(start, stop)[None] if "positions" in model.takes else None
        _, cache = model(text[None, start:stop], at, None, cache)
    return cache, key_axes(before, cache, len(text) - cuts[-1], floats=True)


class KeyPlaces:
    """Where the keys of a cache stand, for which no position need be passed in.

    In the first layer a row is made of its token and its position alone: each row is looked up among those of the same
    token at every position of one pass.

    Attributes:
        path: The array of the cache that shows it; None where none does.
    """

    def __init__(self, it: GenerationSubject) -> None:
        self._it = it
        self._known: dict[int, np.ndarray] = {}
        self.path, (self._axis, _) = next(iter(_placed_arrays(it).items()), (None, (0, None)))

    def _rows_of_token(self, token: int) -> np.ndarray:
        if token not in self._known:
            size = len(self._it.texts[0])
            at = np.arange(size)[None] if "positions" in self._it.model.takes else None
            _, cache = self._it.model.fresh()(np.full((1, size), token), at)
            assert self.path is not None
            self._known[token] = rows_of(cache, self.path, self._axis)
        return self._known[token]

    def shows(self, token: int) -> bool:
        """Whether the keys of a token differ from place to place: the embedding of padding is zero in many models."""
        own = self._rows_of_token(token)
        return bool((np.ptp(own, axis=0) > _like(own)).any())

    def of_last(self, cache: Any, tokens: Sequence[int], text: int | None = None) -> np.ndarray | None:
        """The places of the last rows of a cache, of these tokens of one text; None where one has no place."""
        if self.path is None or self.path not in dict(_arrays(cache)):
            return None
        rows, places = rows_of(cache, self.path, self._axis, text)[-len(tokens) :], []
        for row, token in zip(rows, tokens, strict=True):
            own = self._rows_of_token(token)
            off = np.abs(own - row).max(axis=-1)
            placed = np.ptp(own, axis=0) > _like(own)
            if placed.any() and not row[placed].any():
                places.append(NOWHERE)
            elif placed.any() and off.min() <= _like(own):
                places.append(int(np.argmin(off)))
            else:
                return None
        return np.array(places)


def places_of_keys(it: GenerationSubject, cuts: list[int]) -> np.ndarray | None:
    """Where the keys of the longest text stand that is given in pieces, [tokens]; None if they do not show it."""
    found, text = KeyPlaces(it), it.texts[0]
    if found.path is None:
        return None
    shown = [token for token in set(text.tolist()) if found.shows(token)]
    if not shown:
        return None
    text = np.where(np.isin(text, shown), text, shown[0])
    cache, axes = _in_pieces(it, text, cuts)
    if found.path not in axes or len(rows_of(cache, found.path, axes[found.path])) != len(text):
        return None
    return found.of_last(cache, text.tolist())


def rows_that_are_written(it: GenerationSubject) -> int:
    """The number of the first tokens of one call after which all its keys are zero; all tokens where none are."""
    size = len(it.texts[0])
    _, cache = it.model.fresh()(np.full((1, size), it.texts[0][0]), np.arange(size)[None])
    for path, (axis, _) in _placed_arrays(it).items():
        rows = rows_of(cache, path, axis)
        if len(rows) == size and rows[0].any():
            return int(np.flatnonzero(rows.any(axis=1))[-1]) + 1
    return size


NOWHERE = -1
"""The place of a key that is zero wherever the keys of its token differ from position to position."""


def rotated_alike(it: GenerationSubject, cut: int) -> bool:
    """Whether queries of a later piece stand where its keys do: without cached keys, it is then a text of its own."""
    text, rest = it.texts[0], it.texts[0][cut:]
    with suppress(Refused, Unasked):
        model = it.model.fresh()
        cache, axes = _in_pieces(it, text[:cut], [cut - 1])
        mask = None
        if it.model.window is None:
            cache = with_rows(cache, np.arange(0), axes)
        else:  # such layers count their rows apart from the rows themselves
            mask = np.arange(len(text))[None] >= cut
        logits, _ = model(rest[None], cut + np.arange(len(rest))[None], mask, cache)
        return bool((shares(logits[0], it.alone(rest), 2 * it.allowed) <= 1).all())
    return False


def _rotated_cache(it: GenerationSubject, cache: Any, size: int, by: int) -> Any:
    """A cache of Transformers with its rotated rows turned on by so many positions.

    Which of its arrays are rotated is measured: in multi-head latent attention it is not the one that is called keys.
    """
    if it.spec is None or not getattr(cache, "layers", None):
        raise Unasked("pass shift=, a function(cache, positions) that moves a cache")
    if it.model.window is not None:
        raise Unasked(f"its layers keep no more than their window of {it.model.window:,} tokens")
    if states_of(it):
        raise Unasked("values of one token differ by position, as its keys do, since it keeps a state: pass shift=")
    placed = _placed_arrays(it)
    specs = {path: _spec_of_rows(it.spec, alike) for path, (axis, alike) in placed.items() if axis == alike.ndim - 2}
    if not placed or specs.keys() != placed.keys() or None in specs.values():
        raise Unasked("its cache holds no rows of the width of its spec: pass shift=, a function(cache, positions)")

    def rotated_rows(path: Path, array: Any) -> Any:
        own = specs.get(path)
        return array if own is None else rerotate(array, own, np.arange(size), by + np.arange(size))

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
    axes = {path: axis for path, (axis, _) in _placed_arrays(it).items()}
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
    array = as_numpy(dict(_arrays(cache))[path]).astype(np.float64)
    return array.reshape(-1, array.shape[-1])


def _same_rows(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((np.abs(one - other) <= 8 * _like(other)).all())


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
    off = [np.abs(rerotate(first, each, np.zeros(tokens), np.arange(tokens)) - rows).max() for each in own]
    return (
        own[int(np.argmin(off))] if min(off) < 0.5 * max(off) else replace(spec.at_original, reordered=False, **whole)
    )


def _by(it: GenerationSubject) -> int:
    return len(it.texts[0]) // 2 + 3


def _needs_positions(it: GenerationSubject) -> None:
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
