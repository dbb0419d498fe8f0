"""Recognition of an attention bias [heads, queries, keys]: computed presets, and presets of a table that is looked up.

A computed bias is compared number by number. In a bias that is looked up, all pairs of a query and a key with the same
row of the table have one number in each head; the rows are then the values. This says something only if there are
fewer rows than distances between the pairs, and of a window only if the numbers depend on more than the distance. Of
two such codes the one with fewer rows says more, and the other is not named.
"""

import contextlib
from typing import cast

import numpy as np

from clockhands.encodings.biases import BiasCode, bias
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.specs import describe, with_fields
from clockhands.errors import ClockhandsError
from clockhands.recognition._matches import Match, Matches
from clockhands.recognition._preset_names import of_kind, ranked

# The original conventions; of several presets with the same numbers, these come first.
_KNOWN = ("alibi", "bloom", "t5", "t5-decoder")
_LEAST = 4  # queries and keys
_LARGEST = 1 << 26  # numbers


def identify_bias(array: np.ndarray, dtype: str) -> Matches:
    """The presets that give this bias [heads, queries, keys], whose keys may be masked by minus infinity, as one match.

    Queries are at the positions of the last keys, as in `clockhands.bias`.
    """
    heads, queries, keys = array.shape
    if dtype not in UNIT_ROUNDOFF or not heads or not _LEAST <= queries <= keys or array.size > _LARGEST:
        return Matches()
    given = array.astype(np.float64)
    seen = np.isfinite(given)
    # What is masked is minus infinity, and every query sees a key; a bias of zeros alone is none.
    if not np.all(seen | (given == -np.inf)) or not seen.any(axis=2).all() or not given[seen].any():
        return Matches()
    found: dict[str, tuple[BiasCode, np.ndarray | None, float, int]] = {}
    for name, spec in of_kind(BiasCode):
        with contextlib.suppress(ClockhandsError):  # other numbers of heads, or a window of another size
            own = cast(BiasCode, with_fields(spec, heads=heads))
            computed = None if own.learned else (bias(own, queries, keys, dtype="float64"), None)
            made, values = computed or _looked_up(own, given, seen)
            if made is None:
                continue
            error = float(np.abs(made - given)[seen].max())
            if error <= 4 * UNIT_ROUNDOFF[dtype] * float(np.abs(made[seen]).max()):
                used = 0 if values is None else int((values != 0).any(axis=1).sum())
                found[name] = own, values, error, used
    if not found:
        return Matches()
    fewest = min(used for *_, used in found.values())
    name, *others = ranked([name for name, (*_, used) in found.items() if used == fewest], _KNOWN)
    own, values, error, _ = found[name]
    masked = () if seen.all() else (("masked", float(1 - seen.mean())),)
    match = Match(
        own,
        values=values,
        error=error,
        name=name,
        equivalents=tuple(others),
        evidence=(("dtype", dtype), ("heads", heads), ("queries", queries), ("keys", keys), *masked),
    )
    return Matches(
        [match], f"Every number of a query and a key that it sees is that of {describe(own)}, within {error:.2g}."
    )


def _looked_up(spec: BiasCode, given: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The bias of the table that these numbers are looked up in, and the table [rows, heads]; or None twice."""
    heads, queries, keys = given.shape
    shapes = list(spec.shapes.items())
    if not spec.looked_up or len(shapes) != 1 or shapes[0][1][1:] != (heads,):
        return None, None
    (field, (number, _)) = shapes[0]
    one = cast(BiasCode, with_fields(spec, heads=1))
    scale = getattr(spec, "scale", 1.0)
    index = bias(one, queries, keys, values={field: np.arange(number)[:, None]}, dtype="float64")[0] / scale
    index = np.rint(index).astype(np.int64)
    table = np.zeros((number, heads))
    table[index[seen[0]]] = given[:, seen[0]].T
    distances = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    told = len(np.unique(index[seen[0]])) < len(np.unique(distances[seen[0]]))
    if spec.reads == "both":  # a window: numbers of its distances alone would fit a part of it
        told = queries == keys and not (given[:, 1:, 1:] == given[:, :-1, :-1]).all()
    made = table[index].transpose(2, 0, 1)
    return (made, table / scale) if told and (seen == seen[0]).all() else (None, None)
