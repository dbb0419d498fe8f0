"""Faults that one pass of a model shows inside, though it agrees with itself however a text is passed.

Texts of one repeated token each have the same hidden states at every position, but for positions that are added to
them. So a query or key that differs from position to position is rotated, and each pair of its channels shows by which
angle. Nothing is said of a model that has positions nowhere by design, and of one whose pairs cannot be told.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from clockhands.configs.resolved import layer_ranges
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.models.fitted_rotations import fitted, growth
from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Unasked
from clockhands.testing.bounds import UNIT
from clockhands.testing.generation._measured_attention import HIDDEN_BELOW, LEAST, RowPlaces, recorded_calls, table_name
from clockhands.testing.generation._measured_faults import Told
from clockhands.testing.generation.texts import GenerationSubject

IN_ONE_PASS = "positions in one pass"
"""The name of the experiment in a report."""

_TEXTS, _SIZES = (6, 5), (33, 17, 16)  # two numbers that no model has heads
_RATIOS = (1.0, 0.0, 2.0, 0.5, -1.0, 3.0)
_LAYOUTS: tuple[Layout, ...] = ("halves", "interleaved")
_LEAST_ROWS = 3  # of one position: two give any matrix of two channels


def faults_of_pass(it: GenerationSubject) -> list[Told] | None:
    """What is wrong in one pass over texts of one repeated token; None where no attention over a text is seen."""
    allowed = max(LEAST, 64 * UNIT[it.model.counts.dtype])
    for size in _SIZES:
        for texts in _TEXTS:
            tokens = np.arange(texts) * (it.model.vocabulary // texts) if it.model.vocabulary > texts else np.arange(1)
            with suppress(Refused, Unasked):
                (call,) = recorded_calls(it, np.repeat(tokens[:, None], size, axis=1))
                whole = [one for one in call.products if one.queries.shape[1] == one.keys.shape[1] == size]
                if not whole:
                    return None
                if len(whole[0].queries) == texts * texts:
                    continue  # heads and texts would not be told apart
                # Beside other attentions it is not known whose the code for positions is.
                alone = len(whole) == len(call.products)
                without = [*_without_effect(it, call, texts, size, allowed)] if alone else []
                return [*without, *_rotated_apart(whole, allowed)]
    return None


def _without_effect(it: GenerationSubject, call: Any, texts: int, size: int, allowed: float) -> Iterator[Told]:
    """No query, key or score depends on the token, although code for positions ran."""
    rows = [RowPlaces(each, allowed) for one in call.products for each in (one.queries, one.keys)]
    if any(each.depends for each in rows) or any(_by_distance(one.scores, allowed) for one in call.products):
        return
    heads = len(call.products[0].queries) // texts
    if call.waves:
        counts = {length for shape in call.waves for length in shape[:-1]}
        if size not in counts:
            what = "head" if heads in counts else "text in its batch" if texts in counts else ""
            number = listed_numbers(sorted(counts))
            how = f"its cosines and sines have {number} rows, and a text has {size} tokens"
            how += f": they follow the number of the {what}" if what else ""
        else:
            how = f"cosines and sines of {size} rows are computed, and rotate no query and no key from token to token"
        yield "positions-without-effect", {"how": how}
        return
    for read in call.reads:
        if len(read.rows) in {size, texts * size} and len(set(read.rows)) == 1 and read.table.shape[0] >= size:
            how = f"the table {table_name(it.model, read.table)} is read at row {read.rows[0]} for every token"
            yield "positions-without-effect", {"how": how}
            return


def listed_numbers(numbers: Sequence[int]) -> str:
    """Numbers as words of a sentence."""
    return " or ".join(map(str, numbers)) or "no"


def _by_distance(scores: np.ndarray, allowed: float) -> bool:
    """Whether the scores of a query for keys of one token differ from key to key."""
    last = scores[:, -1]
    seen = (last > HIDDEN_BELOW).any(axis=0)
    own = last[:, seen]
    return bool((own.max(axis=1) - own.min(axis=1)).max(initial=0) > allowed * max(float(np.abs(own).max()), 1e-30))


def _rotated_apart(products: Sequence[Any], allowed: float) -> Iterator[Told]:
    """Keys that are rotated by other angles than queries of the same tokens, by one factor."""
    found: dict[float, list[int]] = {}
    for layer, product in enumerate(products):
        ratio = _ratio(product, allowed)
        if ratio is not None and ratio != 1:
            found.setdefault(ratio, []).append(layer)
    for ratio, layers in found.items():
        where = "" if len(layers) == len(products) else f", in attention {layer_ranges(layers)} of {len(products)}"
        twice = ": they are rotated twice" if ratio == 2 else ": in the other direction" if ratio == -1 else ""
        how = f"at each position the angle of a key is {ratio:g} times that of a query{twice}{where}"
        how = f"keys are not rotated, and queries are{where}" if ratio == 0 else how
        yield "keys-rotated-apart", {"how": how}


def _ratio(product: Any, allowed: float) -> float | None:
    """The angle of a key by that of the query of the same token; None where that is not one number, or not known."""
    queries, keys = (each.transpose(1, 0, 2) for each in (product.queries, product.keys))
    queries, keys = (each / growth(each, allowed)[:, None, None] for each in (queries, keys))
    if queries.shape[2] != keys.shape[2] or min(queries.shape[1], keys.shape[1]) < _LEAST_ROWS:
        return None
    moved = np.abs(queries - queries[:1]).max(axis=(0, 1)) > allowed * np.abs(queries).max()
    places = np.flatnonzero(moved)
    if len(places) < 2:
        return None
    first, last = int(places[0]), int(places[-1]) + 1
    for width in range(last - first, queries.shape[2] - first + 1):
        for layout in _LAYOUTS if width % 2 == 0 else ():
            pairs = first + pair_channels(width // 2, layout)
            cosine, sine, left = fitted(queries, pairs)
            of_keys = fitted(keys, pairs)
            if max(left, of_keys[2]) > 4 * allowed:
                continue
            if not _is_rotation(cosine, sine) or not _is_rotation(*of_keys[:2]):
                return None
            return _factor(np.angle(cosine[1] + 1j * sine[1]), of_keys[0] + 1j * of_keys[1])
    return None


def _is_rotation(cosine: np.ndarray, sine: np.ndarray) -> bool:
    return bool(np.abs(np.hypot(cosine, sine) - 1).max() < 0.05)


def _factor(rates: np.ndarray, keys: np.ndarray) -> float | None:
    """The number by which rates (rad per token) give the rotation of keys [positions, pairs]."""
    positions = np.arange(len(keys))[:, None]
    for ratio in _RATIOS:
        if np.abs(np.exp(1j * ratio * positions * rates) - keys).max() < 0.05:
            return ratio
    return None
