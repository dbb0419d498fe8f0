"""Whole-model faults, imposed from outside: what a model would give under each, computed with its own single passes.

`FaultyModel` takes the calls of an experiment, keeps the position and the visible keys that each token of the text
should have, changes them by one fault, and answers with one pass of the sound path over the whole text. Experiments run
on it as they do on the model itself, so a fault, which is one function, predicts the answers of all of them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from clockhands.phrases import number_of
from clockhands.testing._experiments import Unasked, shares
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation.texts import GenerationSubject


class Excluded(Exception):
    """An answer of the model is not what the fault would give."""


@dataclass(frozen=True)
class ExpectedCall:
    """One call, as it should be understood.

    Attributes:
        right: The right positions of its tokens, [batch, seq].
        past: Tokens of earlier calls.
        kept: How many of them are still in the cache.
        first: Tokens of the first call of the text.
        number: How many calls came before.
        memory: What the model keeps outside of its caches.
        padded: Whether the mask hides some tokens of a row.
        packed: Whether its rows hold several documents.
        masked: Whether a mask is given.
        unmasked: How many tokens of each row its mask leaves, [batch, 1]; None without a mask of keys.
        given: Whether positions are given.
        joined: Rows of the first of two joined caches; 0 where none were joined.
        answered: Whether the model under test answered this call as it would with its tokens at other positions.
        tree: Whether its tokens are a tree of drafts.
    """

    right: np.ndarray
    past: int
    kept: int
    first: int
    number: int
    memory: dict[str, Any]
    padded: bool = False
    packed: bool = False
    masked: bool = False
    unmasked: np.ndarray | None = None
    given: bool = False
    joined: int = 0
    answered: Callable[[np.ndarray], bool] = bool
    tree: bool = False

    @property
    def size(self) -> int:
        """Its tokens."""
        return self.right.shape[1]

    @property
    def inside(self) -> np.ndarray:
        """The place of each token in the call."""
        return np.broadcast_to(np.arange(self.size), self.right.shape)

    @property
    def slots(self) -> np.ndarray:
        """The place of each token in its row, with all padding, [batch, seq]."""
        return self.past + self.inside

    @property
    def origin(self) -> np.ndarray:
        """How far the right positions are from the places: negative after padding."""
        return self.right - self.slots


Places = Callable[[ExpectedCall], np.ndarray]
Sight = Callable[[ExpectedCall, np.ndarray], np.ndarray]


def _right(call: ExpectedCall) -> np.ndarray:
    return call.right


@dataclass(frozen=True, eq=False)
class ImposedFault:
    """A fault of a whole model.

    Attributes:
        code: Its row among the faults.
        told: What its sentence names; may refer to `facts_of` a subject.
        keys: Positions that it gives the keys of a call, [batch, seq].
        queries: Those of the queries, where they differ.
        sees: From the keys that each query should see, [batch, seq, keys], to those that it sees.
        moved: How far cached keys go that should be moved by so many positions.
        first_alone: Whether only those of the first text of a batch are moved.
        removed: From the rows of a cache that shall be kept, and all its rows, to those that are.
    """

    code: str
    told: Mapping[str, str] = field(default_factory=dict)
    keys: Places = _right
    queries: Places | None = None
    sees: Sight | None = None
    moved: Callable[[int], int] | None = None
    removed: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    first_alone: bool = False

    def parameters(self, it: GenerationSubject) -> dict[str, str]:
        """What its sentence names."""
        return {name: text.format(**facts_of(it)) for name, text in self.told.items()}


def facts_of(it: GenerationSubject) -> dict[str, Any]:
    """Numbers of the texts that sentences refer to."""
    pads = len(it.texts[0]) - len(it.texts[1])
    steps = min(4, len(it.texts[0]) // 3)
    begun = len(it.texts[0]) - steps
    return {"pads": number_of(pads, "pad"), "start": pads, "kept": 2 + begun // 2, "begun": begun}


def both_faults(one: ImposedFault, other: ImposedFault) -> ImposedFault:
    """Two faults at once: the second gets the positions and the visible keys that the first one makes."""

    def keys(call: ExpectedCall) -> np.ndarray:
        return other.keys(replace(call, right=one.keys(call)))

    def sees(call: ExpectedCall, right: np.ndarray) -> np.ndarray:
        for fault in (one, other):
            right = right if fault.sees is None else fault.sees(call, right)
        return right

    queries = one.queries or other.queries
    moved, removed = one.moved or other.moved, one.removed or other.removed
    alone = one.first_alone or other.first_alone
    return replace(one, keys=keys, queries=queries, sees=sees, moved=moved, removed=removed, first_alone=alone)


def places_under(fault: ImposedFault, starts: Sequence[int], size: int) -> np.ndarray:
    """The positions of the keys of a text, [tokens], whose calls start at these tokens."""
    memory: dict[str, Any] = {}
    found = []
    for number, (start, stop) in enumerate(itertools.pairwise([*starts, size])):
        first = starts[1] if number else stop
        call = ExpectedCall(np.arange(start, stop)[None], start, start, first, number, memory)
        found.append(fault.keys(call)[0])
    return np.concatenate(found)


@dataclass
class FaultyModel(CausalModel):
    """A model under a fault.

    Attributes:
        sound: The model whose single passes are right.
        fault: The fault.
        passes: Single passes that were made, by what was passed; shared by all faults.
        heard: What the model under test answered to each call of the same experiment: the first difference ends it.
        room: How far an answer may be from that.
        memory: What is kept outside of caches.
    """

    sound: CausalModel = None  # type: ignore[assignment]
    fault: ImposedFault = ImposedFault("")
    passes: dict[bytes, np.ndarray] = field(default_factory=dict)
    heard: list[np.ndarray] | None = None
    room: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)

    def fresh(self) -> "FaultyModel":
        """The same that was not asked anything."""
        return replace(self, heard=None, memory={})

    def __call__(
        self,
        tokens: np.ndarray,
        positions: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        cache: dict[str, Any] | None = None,
        *,
        keep: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """See `CausalModel`."""
        held = _empty_cache(len(tokens)) if cache is None else cache
        batch, size = tokens.shape
        past = held["tokens"].shape[1]
        right = _right_positions(tokens, positions, mask, past)
        sees = np.broadcast_to(np.tri(past + size, dtype=bool)[past:], (batch, size, past + size)).copy()
        causal = sees
        if mask is not None:
            sees = sees & mask[:, None] if mask.ndim == 2 else mask.copy()
        elif not keep and positions is not None:
            # Without a cache, positions that start again tell documents apart.
            document = np.cumsum(positions == 0, axis=1)
            sees = sees & (document[:, :, None] == document[:, None, :])
        sees[:, :, :past] &= held["present"][:, None]
        padded = mask is not None and mask.ndim == 2 and not mask.all()
        right_sees = sees

        def kept(keys: np.ndarray, queries: np.ndarray, sees: np.ndarray) -> dict[str, Any]:
            # A query of padding sees itself, so that it is a number.
            own = np.arange(past + size) == past + np.arange(size)[:, None]
            sees = sees | (own & ~sees.any(axis=-1, keepdims=True))
            return {
                "tokens": np.concatenate([held["tokens"], tokens], 1),
                "keys": np.concatenate([held["keys"], keys], 1),
                "queries": np.concatenate([held["queries"], queries], 1),
                "sees": np.concatenate([np.pad(held["sees"], ((0, 0), (0, 0), (0, size))), sees], 1),
                "present": np.concatenate([held["present"], np.ones((batch, size), bool)], 1),
                "first": held["first"] if past else size,
                "calls": held["calls"] + 1,
                "joined": held["joined"],
            }

        def answered(keys: np.ndarray) -> bool:
            return self._agrees(self._one_pass(kept(keys, keys, right_sees))[:, past:], mask)

        call = ExpectedCall(
            right,
            past,
            int(held["present"][0].sum()),
            held["first"] if past else size,
            held["calls"],
            self.memory,
            padded,
            not past and ((mask is not None and mask.ndim == 3) or bool((sees != causal).any() and mask is None)),
            mask is not None,
            mask.sum(-1, keepdims=True) if mask is not None and mask.ndim == 2 else None,
            positions is not None,
            held["joined"],
            answered,
            bool(past) and mask is not None and mask.ndim == 3,
        )
        keys = self.fault.keys(call)
        queries = keys if self.fault.queries is None else self.fault.queries(call)
        visible = sees if self.fault.sees is None else self.fault.sees(call, sees)
        text = mask[:, -size:] if mask is not None and mask.ndim == 2 else np.ones((batch, size), bool)
        if (text & ~visible.any(axis=-1)).any():
            raise Unasked("what a token that sees no key gets is not known")
        after = kept(keys, queries, visible)
        logits = self._one_pass(after)[:, past:]
        if not self._agrees(logits, mask):
            raise Excluded
        if self.heard:
            self.heard.pop(0)
        return logits, after

    def _agrees(self, logits: np.ndarray, mask: np.ndarray | None) -> bool:
        """Whether the model under test answered so, which is not known where nothing was recorded."""
        if not self.heard:
            return True
        got = self.heard[0]
        if got.shape[:2] != logits.shape[:2]:
            raise Unasked("it asks of a model with a fault what it does not ask of this one")
        if mask is not None and mask.ndim == 2:
            text = mask[:, -logits.shape[1] :]
            got, logits = got[text], logits[text]
        return bool((shares(got, logits, self.room) <= 1).all())

    def _one_pass(self, kept: dict[str, Any]) -> np.ndarray:
        """The logits of all rows: each of their blocks, which see nothing of each other, is a text of its own."""
        logits = np.zeros((*kept["tokens"].shape, 1))
        for row, sees in enumerate(kept["sees"]):
            for block in _blocks(sees):
                tokens, keys, queries = (kept[name][row, block] for name in ("tokens", "keys", "queries"))
                visible = sees[block, block]
                known = b"".join(np.ascontiguousarray(each).tobytes() for each in (tokens, keys, queries, visible))
                if known not in self.passes:
                    self.passes[known] = single_pass(self.sound, tokens, keys, queries, visible)
                said = self.passes[known]
                if logits.shape[-1] != said.shape[-1]:
                    logits = np.zeros((*kept["tokens"].shape, said.shape[-1]))
                logits[row, block] = said
        return logits


def _blocks(sees: np.ndarray) -> list[slice]:
    """The parts of a row whose queries see no key of another part, [queries, keys]."""
    size = len(sees)
    first = np.argmax(sees, axis=1)
    last = size - 1 - np.argmax(sees[:, ::-1], axis=1)
    cuts = [cut for cut in range(1, size) if (first[cut:] >= cut).all() and (last[:cut] < cut).all()]
    return [slice(start, stop) for start, stop in itertools.pairwise([0, *cuts, size])]


def _empty_cache(batch: int) -> dict[str, Any]:
    none = np.zeros((batch, 0), np.int64)
    return {
        "tokens": none,
        "keys": none,
        "queries": none,
        "sees": np.zeros((batch, 0, 0), bool),
        "present": none.astype(bool),
        "first": 0,
        "calls": 0,
        "joined": 0,
    }


def _right_positions(
    tokens: np.ndarray, positions: np.ndarray | None, mask: np.ndarray | None, past: int
) -> np.ndarray:
    size = tokens.shape[1]
    if positions is not None:
        return np.broadcast_to(positions, tokens.shape)
    if mask is not None and mask.ndim == 2:
        return np.maximum(mask.cumsum(-1) - 1, 0)[:, -size:]
    return np.broadcast_to(past + np.arange(size), tokens.shape)


def single_pass(
    model: CausalModel, tokens: np.ndarray, keys: np.ndarray, queries: np.ndarray, sees: np.ndarray
) -> np.ndarray:
    """One pass of a fresh model over a text: logits [tokens, vocabulary].

    Args:
        model: The model.
        tokens: [tokens].
        keys: Positions of the keys, [tokens].
        queries: Those of the queries, [tokens].
        sees: Which keys each query sees, [tokens, tokens].
    """
    if (queries != keys).any():
        return _apart(model, tokens, keys, keys - queries, sees)
    size = len(tokens)
    mask: np.ndarray | None = None
    if (sees != np.tri(size, dtype=bool)).any():
        mask = sees[None]
        if model.window is not None and model.window < size:
            raise Unasked("a mask of queries and keys would replace its window")
    where: np.ndarray | None = keys[None]
    if "positions" not in model.takes:
        if (keys != np.arange(size)).any():
            raise Unasked("it takes no positions")
        where = None
    return model.fresh()(tokens[None], where, mask)[0][0]


_LAYERS, _MOST_ROWS = 4, 4096


def _apart(model: CausalModel, tokens: np.ndarray, keys: np.ndarray, early: np.ndarray, sees: np.ndarray) -> np.ndarray:
    """A pass in which queries are at other positions than the keys of their tokens, for codes of distances.

    No pass has a query and its key at two positions. A query that is ``early`` by ``s`` sees what one at its key's
    position sees of keys that are ``s`` later: so the row holds the text once more, ``s`` tokens later (earlier where
    it is below 0), for its keys, and each of these copies another for its own, one for each layer below.
    """
    size, depth = len(tokens), model.layers or _LAYERS
    later, newest = {0}, {0}
    for _ in range(depth):
        newest = {one + start for one in newest for start in set(early.tolist())} - later
        later |= newest
        if len(later) * size > _MOST_ROWS:
            raise Unasked("the row would be too long")
    if model.window is not None:
        raise Unasked("a mask of queries and keys would replace its window")
    if min(later) < 0 < max(later):
        raise Unasked("a query would see keys on both sides of its row")
    # The copies that are furthest away stand first, so that every key comes before its query.
    copies = sorted(later, key=abs, reverse=True)
    place = {one: number for number, one in enumerate(copies)}
    mask = np.zeros((len(copies) * size,) * 2, bool)
    for one, token in itertools.product(copies, range(size)):
        # The last copies are only asked for what stands below every layer: which keys they see is all the same.
        seen = place.get(one + int(early[token]), place[one])
        mask[place[one] * size + token, seen * size : (seen + 1) * size] = sees[token]
    at = np.concatenate([keys + one - min(later) for one in copies])
    return model.fresh()(np.tile(tokens, len(copies))[None], at[None], mask[None])[0][0, -size:]


def imposed(
    it: GenerationSubject, sound: CausalModel, fault: ImposedFault, passes: dict[bytes, np.ndarray]
) -> GenerationSubject:
    """The subject under a fault."""
    own = {each.name: getattr(it.model, each.name) for each in fields(CausalModel)}
    model = FaultyModel(**own, sound=sound, fault=fault, passes=passes)
    moved = fault.moved or (lambda by: by)

    def shift(cache: dict[str, Any], by: int) -> dict[str, Any]:
        to = np.full((len(cache["keys"]), 1), moved(by))
        to[1:] *= not fault.first_alone
        return {**cache, **{name: cache[name] + to for name in ("keys", "queries")}}

    def join(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        begun = first["tokens"].shape[1]
        second = shift(second, begun)
        made = {
            name: np.concatenate([first[name], second[name]], 1) for name in ("tokens", "keys", "queries", "present")
        }
        after = second["tokens"].shape[1]
        sees = [
            np.pad(first["sees"], ((0, 0), (0, 0), (0, after))),
            np.pad(second["sees"], ((0, 0), (0, 0), (begun, 0))),
        ]
        return {**first, **made, "sees": np.concatenate(sees, 1), "calls": 2, "joined": begun}

    def evict(cache: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
        every = np.arange(cache["tokens"].shape[1])
        kept = rows if fault.removed is None else fault.removed(rows, every)
        return {**cache, "present": np.broadcast_to(np.isin(every, kept), cache["present"].shape)}

    return replace(it, model=model, shift=shift, join=join, evict=evict)
