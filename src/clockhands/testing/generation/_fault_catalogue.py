"""The known faults of a whole model with a cache, each as what it does to positions, visible keys or cached rows."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from clockhands.testing.generation._imposed_faults import ExpectedCall, ImposedFault, Places, Sight
from clockhands.testing.generation.texts import GenerationSubject

_HIGH, _LOW = ("every later {} gets a position that is 1 too " + how for how in ("high", "low"))

_ALONE = "every later token gets position 0 if it comes alone"


def _later(change: Places) -> Places:
    """Positions that differ from the right ones once there is a cache."""
    return lambda call: change(call) if call.past else call.right


def _padded(change: Places) -> Places:
    return lambda call: change(call) if call.padded else call.right


def _packed(change: Places) -> Places:
    return lambda call: change(call) if call.packed else call.right


def _removed(change: Places) -> Places:
    """Positions that differ from the right ones once rows of the cache were removed."""
    return lambda call: change(call) if call.kept < call.past else call.right


def _decoding(how: str, change: Places, code: str = "decode-positions") -> ImposedFault:
    return ImposedFault(code, {"how": how}, _later(lambda call: call.origin + change(call)))


def _apart(side: str, other: str, by: int) -> ImposedFault:
    """Later calls rotate their queries or their keys by one token more or less than the other side."""
    how = f"the {side} of later calls are rotated 1 token {'later' if by > 0 else 'earlier'} than their {other}"
    moved = _later(lambda call: call.right + by)
    if side == "queries":
        return ImposedFault("decode-positions", {"how": how}, queries=moved)
    return ImposedFault("decode-positions", {"how": how}, keys=moved, queries=lambda call: call.right)


def _padding(how: str, keys: Places) -> ImposedFault:
    return ImposedFault("padding-shifts", {"how": f"after {{pads}}, {how}"}, keys)


def _slots(call: ExpectedCall) -> np.ndarray:
    return call.slots


def _counted_in_one_place(call: ExpectedCall) -> np.ndarray:
    start = call.memory.get("count", 0) if call.past else 0
    call.memory["count"] = start + call.size
    return start + call.inside if call.past else call.right


def _offset_of_first_text(call: ExpectedCall) -> np.ndarray:
    """Later calls of other texts are where the padding of the first text of the model would put them."""
    call.memory["texts"] = call.memory.get("texts", 0) + (not call.past)
    offset = call.memory.setdefault("offset", call.origin[:1, -1:])
    return call.slots + offset if call.past and call.memory["texts"] > 1 else call.right


def _rows_and_offset(kept: bool) -> Places:
    """Later calls count the rows of the cache, plus the offset of the text, or one kept from the model's first text."""

    def keys(call: ExpectedCall) -> np.ndarray:
        if not call.past and not (kept and "own" in call.memory):
            call.memory["own"] = call.origin[:, -1:]
        offset = call.memory.get("own", call.origin[:, -1:])
        offset = offset if len(offset) == len(call.right) else offset[:1]
        return call.kept + call.inside + offset if call.past and not call.tree else call.right

    return keys


def _everything_before(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.tri(sees.shape[2], dtype=bool)[call.past :], sees.shape).copy()


def _padding_seen(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    return _everything_before(call, sees) if call.padded else sees


def _documents_seen(masked: Collection[bool]) -> Sight:
    """Earlier documents too, where a mask should separate them, where positions alone should, or in both cases."""
    return lambda call, sees: _everything_before(call, sees) if call.packed and call.masked in masked else sees


def _this_call(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    return sees & (np.arange(sees.shape[2]) >= call.past)


def _present(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    """Which keys count: rows that were removed do no more."""
    return np.asarray(sees.any(axis=(0, 1))) if call.kept < call.past else np.ones(sees.shape[2], bool)


def _first_keys(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    return sees & (np.cumsum(_present(call, sees)) <= 1 + np.arange(call.size)[:, None])


def _of_tree(change: Places) -> Places:
    return lambda call: change(call) if call.tree else call.right


def _tree_seen(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
    return _everything_before(call, sees) if call.tree else sees


def _later_documents(call: ExpectedCall) -> np.ndarray:
    return np.cumsum(call.right == 0, axis=1) > 1


def _clamped(limit: int) -> ImposedFault:
    how = f"no position is larger than {limit}"
    return ImposedFault("decode-positions", {"how": how}, _later(lambda call: np.minimum(call.right, limit)))


def _only(fault: ImposedFault, *, given: bool) -> ImposedFault:
    """A fault of later calls that are given positions, or of those that are not."""

    def keys(call: ExpectedCall) -> np.ndarray:
        return fault.keys(call) if call.given is given else call.right

    when = ", only if positions are passed" if given else ", only if no positions are passed"
    return replace(fault, keys=keys, told={**fault.told, "when": when})


def _behind(size: int) -> Iterator[ImposedFault]:
    """Faults that begin behind a window, a chunk or a block of this size."""
    yield _decoding(f"they begin at 0 again after every {size} tokens", lambda call: call.right % size)
    yield _clamped(size - 1)

    def places(call: ExpectedCall, sees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return call.kept + np.arange(call.size)[:, None], np.cumsum(_present(call, sees)) - 1

    def of_window(call: ExpectedCall, sees: np.ndarray, window: int) -> np.ndarray:
        query, key = places(call, sees)
        return sees & (key > query - window) if call.past else sees

    def of_block(call: ExpectedCall, sees: np.ndarray) -> np.ndarray:
        query, key = places(call, sees)
        return sees & (key >= query // size * size) if call.past else sees

    for window in (size, size - 1, size + 1):
        how = f"a query attends to the last {window} keys, in one pass to all"
        yield ImposedFault("other-keys-seen", {"how": how}, sees=partial(of_window, window=window))
    how = f"a query attends to the keys of its block of {size} tokens, in one pass to all"
    yield ImposedFault("other-keys-seen", {"how": how}, sees=of_block)


def faults_of(it: GenerationSubject) -> tuple[ImposedFault, ...]:
    """The catalogue, with the faults that depend on how long the texts are and on what the model takes."""
    every = (*CATALOGUE, *(_clamped(limit) for limit in range(1, 2 * len(it.texts[0]))))
    every += tuple(fault for size in it.sizes for fault in _behind(size))
    if not it.model.counting or "positions" not in it.model.takes:
        return every
    decoding = [fault for fault in every if fault.code in {"decode-positions", "chunk-restarts"}]
    return (*every, *(_only(fault, given=given) for fault in decoding for given in (True, False)))


CATALOGUE: tuple[ImposedFault, ...] = (
    _padding("a text starts at position {start} instead of 0", _padded(_slots)),
    _padding(
        "a text starts at position {start} instead of 0", _padded(lambda call: call.right if call.given else call.slots)
    ),
    _padding("later calls get positions that are {start} too high", _padded(_later(_slots))),
    _padding(
        "the first call gets positions that are {start} too high, later calls do not",
        _padded(lambda call: call.right if call.past else call.slots),
    ),
    _padding(
        "the first call starts at position -{start} instead of 0, later calls are right",
        _padded(lambda call: call.right if call.past else call.right + call.origin),
    ),
    _padding(
        "every text of a batch gets the positions of its first text",
        _padded(lambda call: np.broadcast_to(call.right[:1], call.right.shape)),
    ),
    ImposedFault("padding-seen", {"pads": "{pads}"}, sees=_padding_seen),
    ImposedFault("padding-seen", {"pads": "{pads}"}, _padded(_slots), sees=_padding_seen),
    _decoding(_HIGH.format("token") + " if it comes alone", lambda call: call.slots + (call.size == 1)),
    _decoding(_HIGH.format("call"), lambda call: call.slots + 1),
    _decoding(_HIGH.format("call of several tokens"), lambda call: call.slots + (call.size > 1)),
    _decoding("the error of the position grows by 1 with every call", lambda call: call.slots + call.number),
    _decoding(_LOW.format("call"), lambda call: call.slots - 1),
    _decoding(_LOW.format("token") + " if it comes alone", lambda call: call.slots - (call.size == 1)),
    _decoding(_LOW.format("call of several tokens"), lambda call: call.slots - (call.size > 1)),
    _decoding("every later call starts at the position after the first call", lambda call: call.first + call.inside),
    _decoding(
        "every later call starts at the last position of the first call", lambda call: call.first - 1 + call.inside
    ),
    _decoding("the tokens before every later call counted twice", lambda call: call.slots + call.kept + call.origin),
    _decoding(
        "the tokens before every later call of several tokens counted twice",
        lambda call: call.slots + call.kept * (call.size > 1),
    ),
    _decoding(
        "every token of a later call gets the position of its first token", lambda call: call.past + 0 * call.slots
    ),
    _decoding("the number of the call", lambda call: call.number + call.inside),
    *(
        _decoding("every token after the first call counts twice", change)
        for change in (
            lambda call: call.slots + call.past - call.first,
            lambda call: call.slots + call.kept - call.first,
        )
    ),
    *(
        _decoding(
            "every earlier token counts once for each text of the batch",
            lambda call, start=start: call.slots + (len(call.right) - 1) * (call.past - start * call.first),
        )
        for start in (0, 1)
    ),
    ImposedFault(
        "decode-positions",
        {"how": "every text of the batch gets the positions of the first text"},
        _later(lambda call: np.broadcast_to(call.right[:1], call.right.shape)),
    ),
    ImposedFault("chunk-restarts", keys=_later(lambda call: call.inside)),
    _decoding("", lambda call: call.slots - call.first, "chunk-restarts"),
    ImposedFault("chunk-restarts", keys=_later(lambda call: call.right if call.size == 1 else call.inside)),
    ImposedFault(
        "decode-positions", {"how": _ALONE}, _later(lambda call: call.inside if call.size == 1 else call.right)
    ),
    _decoding(_ALONE, lambda call: call.inside if call.size == 1 else call.slots),
    ImposedFault(
        "decode-positions",
        {"how": "every later token that comes alone gets the sum of its mask, which counts the token itself"},
        _later(lambda call: call.right if call.size > 1 or call.unmasked is None else call.unmasked),
    ),
    ImposedFault("queries-restart", queries=_later(lambda call: call.inside)),
    *(_apart("queries", "keys", by) for by in (1, -1)),
    *(_apart("keys", "queries", by) for by in (1, -1)),
    ImposedFault("cache-not-read", sees=_this_call),
    ImposedFault("cache-not-read", keys=_later(lambda call: call.inside), sees=_this_call),
    ImposedFault("first-keys-seen", sees=_first_keys),
    *(
        ImposedFault("packing-ignored", keys=keys, sees=_documents_seen(when))
        for when in ((True, False), (True,), (False,))
        for keys in (lambda call: call.right, _packed(_slots))
    ),
    ImposedFault("packing-ignored", keys=_packed(_slots)),
    ImposedFault("documents-restart-twice", keys=_packed(lambda call: call.right + call.origin)),
    *(
        ImposedFault("documents-restart-at-one", {"which": which}, _packed(keys))
        for which, keys in (
            ("every document after the first", lambda call: call.right + _later_documents(call)),
            ("every document", lambda call: call.right + 1),
        )
    ),
    ImposedFault("model-keeps-state", keys=_counted_in_one_place),
    ImposedFault("offset-of-earlier-text", keys=_offset_of_first_text),
    ImposedFault("offset-of-earlier-text", keys=_rows_and_offset(kept=True)),
    ImposedFault(
        "eviction-stops-positions",
        {"kept": "{kept}", "begun": "{begun}"},
        _removed(lambda call: call.kept + call.inside),
    ),
    ImposedFault(
        "eviction-stops-positions",
        {"kept": "{kept}", "begun": "{begun}"},
        _removed(lambda call: call.memory.setdefault("kept", call.kept) + call.inside),
    ),
    ImposedFault("eviction-stops-positions", {"kept": "{kept}", "begun": "{begun}"}, keys=_rows_and_offset(kept=False)),
    ImposedFault("removed-rows-count", keys=_removed(_slots)),
    ImposedFault("removed-rows-seen", {"how": "all of them"}, removed=lambda _, every: every),
    ImposedFault(
        "removed-rows-seen",
        {"how": "the first one after those that are kept"},
        removed=lambda rows, _: np.append(rows, rows[-1] + 1),
    ),
    *(
        ImposedFault("tree-positions", {"how": how}, _of_tree(change))
        for how, change in (
            ("the place of the token in the tree counts, not its depth", _slots),
            ("every token has a position that is 1 too high", lambda call: call.right + 1),
            ("every token has a position that is 1 too low", lambda call: call.right - 1),
            ("the depth alone counts, without the tokens before the tree", lambda call: call.right - call.past),
            ("every token has the position of the first one", lambda call: call.past + 0 * call.slots),
        )
    ),
    *(
        ImposedFault("tree-siblings-seen", keys=_of_tree(keys), sees=_tree_seen)
        for keys in (lambda call: call.right, _slots)
    ),
    ImposedFault("cached-keys-keep-positions", {"moved": "shifted"}, moved=lambda _: 0),
    ImposedFault(
        "cached-keys-keep-positions",
        {"moved": "shifted, in all texts of a batch but the first"},
        moved=lambda by: by,
        first_alone=True,
    ),
    *(
        ImposedFault("cached-keys-moved-wrongly", {"how": how}, moved=moved)
        for how, moved in (
            ("by twice as many positions", lambda by: 2 * by),
            ("by as many positions in the other direction", lambda by: -by),
            ("by 1 position more", lambda by: by + 1),
            ("by 1 position less", lambda by: by - 1),
        )
    ),
    *(
        ImposedFault("cached-keys-keep-positions", {"moved": "joined to another"}, keys, moved=lambda _: 0)
        for keys in (
            lambda call: call.right - call.joined,
            lambda call: call.right - call.past if call.joined else call.right,
        )
    ),
)
"""In the order in which they are preferred where several fit alike."""
