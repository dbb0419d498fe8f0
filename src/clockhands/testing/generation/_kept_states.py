"""Models that keep a state of all earlier tokens, as recurrent layers do, and what such a state accounts for."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from clockhands.recognition.calling import FLOATS, as_numpy, dtype_of
from clockhands.testing.generation._cache_arrays import Path, arrays_of, copied, mapped
from clockhands.testing.generation._key_places import one_value
from clockhands.testing.generation.texts import GenerationSubject

_OF_STATES = frozenset({
    "packing", "packing by positions alone", "rejected tokens", "a tree of drafts", "an accepted branch",
})  # fmt: skip
_BY_STATES = (
    "by design of the class, which keeps a state of all earlier tokens, as recurrent layers and convolutions do: no "
    "document is kept apart and no token taken out"
)
_OF_PADS = "left padding without positions"
"""Its pads are tokens like others, and a state keeps them."""
_IN_PIECES = frozenset({
    "chunks", "chunks without positions", "chunks after single tokens", "chunks after single tokens without positions",
    "a copied cache", "a pickled cache", "two continuations of one text", "two alternating texts",
    "a text beside a batch", "a text after padding", "a long text",
})  # fmt: skip
"""Experiments in which several tokens go on from a cache at once."""
_BY_SINGLE_TOKENS = (
    "by design of the class, whose layers that keep a state read it for a single token alone, and begin from zero with "
    "a piece of several tokens: pass what follows a cache one token at a time"
)


def accounted_by_states(subject: GenerationSubject, failed: Sequence[str], asked: Collection[str]) -> dict[str, str]:
    """Why states of earlier tokens account for all failures that nothing else explains; empty where they do not."""
    left = set(failed) - _OF_STATES
    if "left padding" in asked and "left padding" not in failed:
        left -= {_OF_PADS}
    if not failed or left - _IN_PIECES or not (states := states_of(subject)):
        return {}
    if left and _reads_states_of_pieces(subject, states):
        return {}
    return {name: _BY_SINGLE_TOKENS if name in left else _BY_STATES for name in failed}


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
        logits, cache = model(it.texts[0][None, :tokens])
        arrays = {path: as_numpy(array) for path, array in (*arrays_of(cache), *arrays_of(model.kept_arrays()))}
        kept.append({path: array for path, array in arrays.items() if not _is_answer(array, logits[0, -1])})
    before, after = kept
    for path, array in after.items():
        older = before.get(path)
        if older is None or older.shape != array.shape or dtype_of(array) not in FLOATS:
            continue
        changed = np.argwhere(np.abs(array - older) > one_value(older)).T
        axes = [len(np.unique(places)) for places, length in zip(changed, array.shape, strict=True) if length > 1]
        if axes and min(axes) > 1:
            found.add(path)
    return frozenset(found)


def states_with_pads(it: GenerationSubject) -> list[str]:
    """The states that padding in front of a text changes, if the text goes on rightly with those that it has alone.

    Empty where states do not account for what is wrong after padding.
    """
    states = states_of(it)
    text, pads = it.texts[1], len(it.texts[0]) - len(it.texts[1])
    begun = len(text) - min(4, len(text) // 2)
    row = np.concatenate([np.full(pads, it.model.pad), text])[None]
    mask = np.arange(row.shape[1])[None] >= pads
    at = np.maximum(np.arange(row.shape[1]) - pads, 0)[None]
    model = it.model.fresh()
    _, alone = it.model.fresh()(text[None, :begun], it.model.given(np.arange(begun)[None]))
    _, padded = model(row[:, : pads + begun], it.model.given(at[:, : pads + begun]), mask[:, : pads + begun])
    right, changed = dict(arrays_of(alone)), dict[Path, Any]()

    def with_right_states(path: Path, array: Any) -> Any:
        own = right.get(path) if path in states else None
        if own is None or own.shape != array.shape:
            return array
        if (np.abs(as_numpy(own) - as_numpy(array)) > one_value(as_numpy(own))).any():
            changed[path] = own
        return own

    cache = mapped(copied(padded), with_right_states)
    for place in range(pads + begun, row.shape[1]):
        logits, cache = model(
            row[:, place : place + 1], it.model.given(at[:, place : place + 1]), mask[:, : place + 1], cache
        )
        if (np.abs(logits[0, 0] - it.wanted[1][place - pads]) > 2 * it.allowed).any():
            return []
    return [".".join(map(str, path)) for path in changed]


def _is_answer(array: np.ndarray, logits: np.ndarray) -> bool:
    """Whether an array holds what the model said of the last token."""
    return array.size >= logits.size and np.array_equal(array.reshape(-1)[-logits.size :], logits.astype(array.dtype))


def _reads_states_of_pieces(it: GenerationSubject, states: frozenset[Path]) -> bool:
    """Whether each state of its cache changes something of a piece of several tokens that goes on from it."""
    text, half = it.texts[0], len(it.texts[0]) // 2

    def rest(of: Path | None) -> np.ndarray:
        def without(cache: Any) -> Any:
            return mapped(copied(cache), lambda path, array: array * 0 if path == of else array)

        _, (logits, _) = it.model.fresh().in_pieces(text[None], [half], turn=without)
        return logits

    return not any(np.array_equal(rest(None), rest(path)) for path in states)
