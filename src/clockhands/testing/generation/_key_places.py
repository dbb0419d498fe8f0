"""Where the keys of a cache are, read from their numbers: for models of any library that keep rotated keys."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from clockhands.recognition.calling import FLOATS, Refused, dtype_of
from clockhands.testing._experiments import Unasked, shares
from clockhands.testing.generation._cache_arrays import Path, arrays_of, copied, key_axes, rows_of, with_rows
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._measured_attention import is_measurable, recorded_calls
from clockhands.testing.generation.texts import GenerationSubject

NOWHERE = -1
"""The place of a key that is zero wherever the keys of its token differ from position to position."""


def grown_cache(model: CausalModel, text: np.ndarray, cuts: list[int]) -> tuple[Any, dict[Path, int]]:
    """The cache of a text in pieces, and the axes that grew with the last piece."""
    before = None

    def noted(kept: Any) -> Any:
        nonlocal before
        before = copied(kept)
        return kept

    *_, (_, cache) = model.in_pieces(text[None], cuts, turn=noted)
    return cache, key_axes(before, cache, len(text) - cuts[-1])


def holds_positions(it: GenerationSubject) -> bool:
    """Whether the rows of one token differ from position to position in its cache."""
    return bool(placed_arrays(it))


def placed_arrays(it: GenerationSubject) -> dict[Path, tuple[int, Any]]:
    """The arrays of the cache of one repeated token whose rows differ from position to position, with their axes."""
    cache, axes = grown_cache(it.model.fresh(), np.full(6, it.texts[0][0]), [5])
    found = {}
    for path, array in arrays_of(cache):
        if path not in axes or dtype_of(array) not in FLOATS:
            continue
        axis = axes[path]
        rows = rows_of(cache, path, axis)
        if (shares(rows, np.broadcast_to(rows[0], rows.shape), one_value(rows)) > 1).any():
            found[path] = axis, array
    return found


def one_value(rows: np.ndarray) -> np.ndarray:
    """By how much numbers of an array of this size may differ that are the same but for rounding."""
    return np.abs(rows).max(initial=0) * 2.0**-12


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
        self.path, (self._axis, _) = next(iter(placed_arrays(it).items()), (None, (0, None)))

    def _rows_of_token(self, token: int) -> np.ndarray:
        if token not in self._known:
            size = len(self._it.texts[0])
            ((_, cache),) = self._it.model.fresh().in_pieces(np.full((1, size), token), [])
            assert self.path is not None
            self._known[token] = rows_of(cache, self.path, self._axis)
        return self._known[token]

    def shows(self, token: int) -> bool:
        """Whether the keys of a token differ from place to place: the embedding of padding is zero in many models."""
        own = self._rows_of_token(token)
        return bool((np.ptp(own, axis=0) > one_value(own)).any())

    def of_last(self, cache: Any, tokens: Sequence[int], text: int | None = None) -> np.ndarray | None:
        """The places of the last rows of a cache, of these tokens of one text; None where one has no place."""
        if self.path is None or self.path not in dict(arrays_of(cache)):
            return None
        rows, places = rows_of(cache, self.path, self._axis, text)[-len(tokens) :], []
        for row, token in zip(rows, tokens, strict=True):
            own = self._rows_of_token(token)
            off = np.abs(own - row).max(axis=-1)
            placed = np.ptp(own, axis=0) > one_value(own)
            if placed.any() and not row[placed].any():
                places.append(NOWHERE)
            elif placed.any() and off.min() <= one_value(own):
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
    cache, axes = grown_cache(it.model.fresh(), text, cuts)
    if found.path not in axes or len(rows_of(cache, found.path, axes[found.path])) != len(text):
        return None
    return found.of_last(cache, text.tolist())


def rows_that_are_written(it: GenerationSubject) -> int:
    """The number of the first tokens of one call after which keys are zero; all tokens where none are.

    Keys are those of the cache, or those that attention gets in a model of PyTorch, whose cache may have one size.
    """
    size = len(it.texts[0])
    repeated = np.full((1, size), it.texts[0][0])
    if is_measurable(it.model):
        for product in recorded_calls(it, repeated)[0].products:
            rows = product.keys.any(axis=(0, 2))
            if len(rows) >= size and rows[0] and not rows[:size].all():
                return int(np.flatnonzero(~rows)[0])
    _, cache = it.model.fresh()(repeated, np.arange(size)[None])
    for path, (axis, _) in placed_arrays(it).items():
        rows = rows_of(cache, path, axis)
        if len(rows) == size and rows[0].any():
            return int(np.flatnonzero(rows.any(axis=1))[-1]) + 1
    return size


def rotated_alike(it: GenerationSubject, cut: int) -> bool:
    """Whether queries of a later piece stand where its keys do: without cached keys, it is then a text of its own."""
    text, rest = it.texts[0], it.texts[0][cut:]
    with suppress(Refused, Unasked):
        model = it.model.fresh()
        cache, axes = grown_cache(model, text[:cut], [cut - 1])
        mask = None
        if it.model.window is None:
            cache = with_rows(cache, lambda _: np.arange(0), axes)
        else:  # such layers count their rows apart from the rows themselves
            mask = np.arange(len(text))[None] >= cut
        logits, _ = model(rest[None], cut + np.arange(len(rest))[None], mask, cache)
        return bool((shares(logits[0], it.alone(rest), 2 * it.allowed) <= 1).all())
    return False
