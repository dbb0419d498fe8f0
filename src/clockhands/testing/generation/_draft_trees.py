"""Experiments with trees of drafted tokens, as speculative decoding verifies them: two branches after one text.

A token of a tree has the position of its depth and sees the text and its own ancestors, so each branch gets the logits
of a text of its own. A cache with one row for each position cannot hold two branches, and a model that is never given a
tree may have one: what no known fault of trees gives is not judged.
"""

from typing import Any

import numpy as np

from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.generation._cache_arrays import Path, copied
from clockhands.testing.generation._changed_caches import needs_positions, without_rejected
from clockhands.testing.generation._key_places import grown_cache
from clockhands.testing.generation.texts import GenerationSubject

_DEPTH = 3
VERIFIED, ACCEPTED = "a tree of drafts", "an accepted branch"
NOT_JUDGED = (
    "two branches in one call, at positions by depth and with a mask of their ancestors, get other logits than each "
    "alone; a cache that has one row for each position cannot hold them, so this was not judged"
)


def _verified(it: GenerationSubject) -> list[Answer]:
    """Two branches of drafts after one text, verified in one call."""
    branches, logits, *_ = _tree(it)
    half = len(it.texts[0]) // 2
    return [
        it.reply(
            f"branch {number + 1} of a tree of 2, of {_DEPTH} tokens each",
            logits[number::2],
            it.alone(np.concatenate([it.texts[0][:half], branch]))[half:],
            half,
        )
        for number, branch in enumerate(branches)
    ]


def _accepted(it: GenerationSubject) -> list[Answer]:
    """The rows of one branch are kept, and the text goes on after it."""
    _, _, before, cache, axes = _tree(it)
    text, half = it.texts[0], len(it.texts[0]) // 2
    begun = half + _DEPTH
    kept = np.array([*range(half), *range(half, half + 2 * _DEPTH, 2)])
    cache = without_rejected(it, before, cache, kept, axes)
    logits, _ = it.model(text[None, begun:], np.arange(begun, len(text))[None], None, cache)
    asked = f"the first branch of a tree of 2 is kept, then {len(text) - begun} tokens"
    return [it.reply(asked, logits[0], it.wanted[0][begun:], begun)]


def _tree(it: GenerationSubject) -> tuple[list[np.ndarray], np.ndarray, Any, Any, dict[Path, int]]:
    """Two branches after half of the longest text: tokens, logits, the cache before and after, axes of rows."""
    needs_positions(it)
    text, half = it.texts[0], len(it.texts[0]) // 2
    if not it.slip:
        raise Unasked("the positions passed in have no effect")
    if it.model.window is not None:
        raise Unasked(f"a mask of queries and keys would replace its window of {it.model.window:,} tokens")
    if len(text) <= half + _DEPTH:
        raise Unasked("its texts are too short")
    own = text[half : half + _DEPTH]
    branches = [own, (own + 1) % it.model.vocabulary]
    cache, axes = grown_cache(it.model, text[:half], [half - 1])
    branch, depth = np.tile([0, 1], _DEPTH), np.repeat(np.arange(_DEPTH), 2)
    sees = (branch[:, None] == branch) & (depth[:, None] >= depth)
    mask = np.concatenate([np.ones((2 * _DEPTH, half), bool), sees], axis=1)
    logits, after = it.model(np.stack(branches, 1).reshape(1, -1), half + depth[None], mask[None], copied(cache))
    return branches, logits[0], cache, after, axes


TREES = (
    (VERIFIED, "Branches of a tree of drafts get the logits of texts of their own.", _verified),
    (ACCEPTED, "A text continues after the branch of a tree that is kept.", _accepted),
)
"""Name, question and experiment."""
