"""A text that is longer than the others: faults that begin behind a window, a chunk or a block of a cache.

The sizes that a model declares are whole numbers with such a name: of its config, of its modules, of an object that is
called, or beside its function. Where it declares none, the text leaves four blocks of 16 tokens, and one of 64.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.generation._causal_models import CausalModel, TransformersModel
from clockhands.testing.generation._key_places import grown_cache
from clockhands.testing.generation._predictions import RecordedRun
from clockhands.testing.generation._started_caches import modules_of, object_of
from clockhands.testing.generation.texts import GenerationSubject, texts_of

LONG = "a long text"
MOST = 504
"""The largest size behind which a text is tried."""

BLOCKS = (16, 32, 64)
"""Usual sizes of the blocks of a cache."""

_CONFIGS = ("config", "cfg", "hparams", "args", "params")
_ROOM = frozenset(
    {"max_seq_len", "max_seqlen", "max_seq_length", "max_position_embeddings", "n_ctx", "n_positions", "context_length"}
)
_LENGTHS = frozenset({"max_len", "max_length", "max_tokens", "max_context", "capacity", "max_ctx"})
_ALONE = "alone"
_USUAL, _BEHIND, _BLOCK = 64, 8, 16
_MOST_SIZES = 3
_SIZE = re.compile(
    r"(?!(n|num|no)_)\w*(window|chunk|block|page)(_?(size|len|length|tokens))?|original_max\w*|orig_max\w*"
)


def declared_sizes(model: CausalModel) -> dict[str, int]:
    """The sizes of windows, chunks and blocks that a model declares, by name."""
    found: dict[str, int] = {}
    for held in _places(model):
        for name, value in held.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 1 and _SIZE.fullmatch(name.lower()):
                found.setdefault(name, value)
    return found


def declared_room(model: CausalModel) -> int | None:
    """How many tokens a model declares that it takes; None if it declares none, or several numbers.

    The size that its object has by default counts only where an array that it holds has as many rows.
    """
    if (rows := _rows_by_default(object_of(model.forward))) is not None:
        return rows
    found = {held[name] for held in _places(model) for name in _ROOM.intersection(held) if isinstance(held[name], int)}
    return found.pop() if len(found) == 1 else None


def _rows_by_default(owner: Any) -> int | None:
    with suppress(TypeError, ValueError):
        defaults = {name: one.default for name, one in inspect.signature(type(owner)).parameters.items()}
        held = [each for value in vars(owner).values() for each in (value if isinstance(value, list) else [value])]
        sizes = {size for each in held for size in getattr(each, "shape", ())}
        found = {defaults[name] for name in (_ROOM | _LENGTHS).intersection(defaults)} & sizes
        return min(found, default=None)
    return None


def _places(model: CausalModel) -> Iterator[Mapping[str, Any]]:
    fn = model.forward
    for owner in modules_of(model):
        for config in (getattr(owner, name, None) for name in _CONFIGS):
            yield from map(_values_of, (config, getattr(config, "text_config", None)))
        if not isinstance(model, TransformersModel):
            yield from (vars(module) for module in owner.modules())
    if isinstance(model, TransformersModel):
        return
    for each in (fn, object_of(fn)):
        yield getattr(each, "__dict__", {})
    code = fn if inspect.isroutine(fn) else vars(type(fn)).get("__call__")
    yield getattr(getattr(code, "__func__", code), "__globals__", {})


def _values_of(config: Any) -> Mapping[str, Any]:
    return config if isinstance(config, Mapping) else getattr(config, "__dict__", {})


def sizes_of(model: CausalModel) -> tuple[int, ...]:
    """Behind which sizes texts are tried, the smallest first: of chunks behind the second one, as long as the first."""
    sizes = declared_sizes(model)
    every = {*sizes.values(), *(2 * size for name, size in sizes.items() if "chunk" in name.lower())}
    declared = {size for size in every if _BLOCK <= size <= MOST}
    return tuple(sorted(declared)[:_MOST_SIZES]) or (_USUAL,)


def length_that_matters(asked: Sequence[RecordedRun]) -> int:
    """The tokens of a long text whose single passes depend on how many they are; 0 if there is none."""
    runs = (one for one in asked if one.experiment.name == LONG)
    wrong = [each for one in runs for each in one.answers if each.asked.endswith(_ALONE) and each.wrong.any()]
    return int(wrong[0].asked.split()[4]) if wrong else 0


def longest_of(failed: Sequence[RecordedRun]) -> int:
    """The tokens of the first long text of which something is wrong."""
    return next(
        int(each.positions[-1]) + 1
        for one in failed
        for each in one.answers
        if each.wrong.any() and each.positions is not None
    )


def longer_sizes(it: GenerationSubject) -> list[int]:
    """Those of them that the other texts do not leave."""
    return [size for size in it.long_sizes if size + _BEHIND > len(it.texts[0])]


def long_texts(it: GenerationSubject) -> list[Answer]:
    """A text that goes on behind each size, with the cache, and in one pass that is a token shorter."""
    half, sizes = len(it.texts[0]) // 2, longer_sizes(it)
    if not isinstance(it.model, TransformersModel):
        _, axes = grown_cache(it.model.fresh(), it.texts[0][:half], [half - 1])
        if not axes:
            room = declared_room(it.model) or 0
            sizes = [size for size in sizes if size + _BEHIND <= room]
        if not sizes:
            raise Unasked("pass length= for longer texts: its cache has one size, which may be too small for them")
    return [answer for size in sizes for answer in _behind(it, size)]


def _behind(it: GenerationSubject, size: int) -> Iterator[Answer]:
    length = size + _BEHIND
    text = texts_of(it.model.vocabulary, length, without=it.model.pad)[0]
    try:
        wanted, shorter = it.alone(text), it.alone(text[:-1])
    except Refused as error:
        raise Unasked(f"a text of {length} tokens fails: {error}") from error
    # Sums of more keys round more.
    allowed = np.asarray(max(2 * it.allowed, 8 * float(np.abs(shorter - wanted[:-1]).max())))
    for said in (shorter, it.alone(text[: len(it.texts[0])])):
        asked = f"the first {len(said)} of {length} tokens {_ALONE}"
        yield Answer(asked, said, wanted[: len(said)], np.asarray(2 * it.allowed), np.arange(len(said)))
    blocks = [*range(_BLOCK, size, _BLOCK), size]
    ways = {
        f"{size - 2} tokens, then one at a time": [*range(size - 2, size + 3)],
        f"chunks of {_BLOCK} tokens": blocks,
    }
    for asked, cuts in ways.items():
        _, *said = it.model.in_pieces(text[None], cuts)
        got = np.concatenate([logits[0] for logits, _ in said])
        yield Answer(asked, got, wanted[cuts[0] :], allowed, cuts[0] + np.arange(len(got)))
