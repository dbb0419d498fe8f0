"""What reaches attention in calls with a cache, measured inside a model of PyTorch or JAX.

The text is one token, repeated. Its values are all alike, so attention gives each position the same, whatever the
scores: in each layer a query or key then depends on its position alone, and is looked up among those of one pass.
Only where positions are added to tokens, layers behind a wrong one differ in more than that: there a row that is
found nowhere says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Unasked
from clockhands.testing.bounds import UNIT
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._started_caches import modules_of, owners_of
from clockhands.testing.generation.texts import GenerationSubject

HIDDEN_BELOW = -5_000.0  # a score below is that of a key that is not seen
LEAST = 1e-3  # of the largest number of a row: what several layers may round to
_LONGER = (4, 3, 2, 1)  # times the tokens of the longest text that the pass of reference may have

NOTHING_ADDED = "nothing is added to the scores"
FROM_ZERO = "what is added to the scores is that of queries that count from 0"
"""Relations of scores."""

UNROTATED = "differ from those of one pass, which are the same at every position"
"""A note on a row that is found nowhere."""

_LAYOUTS: tuple[Layout, ...] = ("halves", "interleaved")
_MOST = 256  # tokens of that pass, if a text is not longer

Side = Literal["queries", "new keys", "cached keys"]


@dataclass(frozen=True)
class PlacedRow:
    """Where a query or key is, by the rows of one pass.

    Attributes:
        layer: The number of its attention.
        side: Which row it is.
        size, start: The tokens of its call, and the position of the first of them.
        got: Its place in one pass; None if it is found nowhere there.
        right: Its position.
        note: How it differs from all rows of one pass, if it is found nowhere.
    """

    layer: int
    side: Side
    size: int
    start: int
    got: int | None
    right: int
    note: str = ""


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one query beside those of one pass.

    Attributes:
        layer, size, start, right: As of a `PlacedRow`.
        seen: How many keys it sees, and how many in one pass.
        missed: The first position whose key it does not see, though one pass does, or the other way round; None if
            that is not known.
        relation: How the scores of keys that it sees rightly differ: "" if they do not.
    """

    layer: int
    size: int
    start: int
    right: int
    seen: tuple[int, int]
    missed: int | None
    relation: str


@dataclass(frozen=True)
class ReadTable:
    """A table of which one pass reads a row for each token.

    Attributes:
        name: What the model calls it, or its shape.
        size, start: As of a `PlacedRow`.
        got: The rows that a call read; empty if it read none.
        right: Those of its tokens in one pass.
    """

    name: str
    size: int
    start: int
    got: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ReferencePass:
    """One pass over the repeated token, longer than any text.

    Attributes:
        call: What it computed.
        size: Its tokens.
        allowed: How far numbers may be off, of the largest one of a row.
        before: Which products of the call are those of the text with itself, and how many keys stand before the text.
    """

    call: Any
    size: int
    allowed: float
    before: Mapping[int, int]

    def attentions(self, call: Any) -> list[Any]:
        """The products of a text with itself in any call of the model: those with other keys are left out."""
        chosen = ((call.products[number], keys) for number, keys in self.before.items())
        return [replace(each, keys=each.keys[:, keys:], scores=each.scores[:, :, keys:]) for each, keys in chosen]

    def with_room(self, call: Any) -> Iterator[tuple[Any, bool]]:
        """The same, and whether the keys before the text are the room of a cache, where later calls have keys too.

        All of them are hidden in one pass. In which order they come is not known.
        """
        for each, (number, keys) in zip(self.attentions(call), self.before.items(), strict=True):
            room = keys > 0 and bool((self.call.products[number].scores[:, :, :keys] <= HIDDEN_BELOW).all())
            yield (call.products[number] if room else each), room

    @cached_property
    def own(self) -> list[Any]:
        """The attentions of this pass."""
        return self.attentions(self.call)

    @cached_property
    def queries(self) -> list["RowPlaces"]:
        """Of each attention."""
        return [RowPlaces(each.queries, self.allowed) for each in self.own]

    @cached_property
    def keys(self) -> list["RowPlaces"]:
        """Of each attention."""
        return [RowPlaces(each.keys, self.allowed) for each in self.own]


class RowPlaces:
    """Rows by position: where another row is the same.

    Attributes:
        rows: [heads, positions, channels].
    """

    def __init__(self, rows: np.ndarray, allowed: float) -> None:
        self.rows = rows
        self._allowed = allowed * max(float(np.abs(rows).max()), 1e-30)

    @cached_property
    def depends(self) -> bool:
        """Whether rows differ from position to position."""
        return bool(np.abs(self.rows - self.rows[:, :1]).max() > self._allowed)

    def alike(self, row: np.ndarray) -> np.ndarray | None:
        """A row with as many heads as these: keys stand once for all their queries, or are repeated.

        None where channels differ, as where a later call multiplies other arrays.
        """
        heads, own = len(row), len(self.rows)
        if row.shape[1] != self.rows.shape[2] or max(heads, own) % min(heads, own):
            return None
        return np.repeat(row, own // heads, axis=0) if heads <= own else row[:: heads // own]

    def place(self, row: np.ndarray, right: int) -> int | None:
        """The position of a row [heads, channels]: the right one if that fits, else the nearest one that does."""
        fits = np.flatnonzero(np.abs(self.rows - row[:, None]).max(axis=(0, 2)) <= self._allowed)
        return int(fits[np.abs(fits - right).argmin()]) if len(fits) else None

    def note(self, row: np.ndarray, right: int) -> str:
        """How a row that has no place differs from all of them."""
        own = self.rows[:, right]
        size = float((row * own).sum() / max(float((own**2).sum()), 1e-30))
        if np.abs(row - size * own).max() <= self._allowed * max(abs(size), 1.0):
            return "have the right position and another size than in one pass"
        if not self.depends:
            return UNROTATED
        lengths, of_one_pass = (np.linalg.norm(each, axis=-1) for each in (row, own))
        if np.abs(lengths - of_one_pass).max() <= self._allowed:
            return "have the right size, and an angle that no position of one pass gives"
        return "are those of no position of one pass"


@dataclass(frozen=True)
class Measured:
    """All that was measured of the calls of a text in pieces."""

    rows: Sequence[PlacedRow]
    scores: Sequence[ScoreRow]
    tables: Sequence[ReadTable]
    layers: int


def recorded_calls(it: GenerationSubject, tokens: np.ndarray, cuts: Sequence[int] = ()) -> list[Any]:
    """What a fresh model computes in the calls of some texts [texts, tokens], from one cut to the next.

    Raises:
        Refused, Unasked: It cannot be called like that.
    """
    recorded_into = recorder_of(it.model)
    calls: list[Any] = []
    list(replace(it.model.fresh().once(), watch=partial(recorded_into, calls)).in_pieces(tokens, cuts))
    ends = [*cuts, tokens.shape[1]]
    if len(tokens) == 1 and len(calls) == len(ends):
        from clockhands.models.recorded_products import joined_parts

        for call, size, end in zip(calls, np.diff([0, *ends]).tolist(), ends, strict=True):
            call.products = [_without_room(each, end) for each in joined_parts(call.products, size)]
    return calls


def _without_room(product: Any, end: int) -> Any:
    """A product without the keys behind a text, as a cache of one size has them, if all are hidden."""
    if product.scores.shape[2] > end and (product.scores[:, :, end:] <= HIDDEN_BELOW).all():
        return replace(product, keys=product.keys[:, :end], scores=product.scores[:, :, :end])
    return product


def known_tokens(model: CausalModel) -> int:
    """The rows of the table that a model reads by the ids of tokens: logits may have more numbers, for a round width.

    Raises:
        Refused: It cannot be called.
    """
    recorded_into = recorder_of(model)
    calls: list[Any] = []
    replace(model.once(), watch=partial(recorded_into, calls))(np.array([[1, 0, 1]]))
    rows = [read.table.shape[0] for read in calls[0].reads if read.rows == (1, 0, 1)]
    return min([model.vocabulary, *rows])


def is_measurable(model: CausalModel) -> bool:
    """Whether the model is made of PyTorch or of JAX."""
    return model.library.name in {"torch", "jax"}


def recorder_of(model: CausalModel) -> Any:
    """What records a call in the library of a model."""
    if model.library.name == "jax":
        from clockhands.models import recorded_jax_calls

        return recorded_jax_calls.recorded_into
    from clockhands.models import recorded_calls

    return recorded_calls.recorded_into


def reference_of(it: GenerationSubject) -> ReferencePass | None:
    """One pass over a repeated token, as long as the model takes; None where no attention is seen."""
    allowed = max(LEAST, 64 * UNIT[it.model.counts.dtype])
    for times in _LONGER:
        size = times * len(it.texts[0])
        if size > _MOST and times > 1:
            continue
        with suppress(Refused, Unasked):
            (call,), (shorter,) = (recorded_calls(it, np.full((1, size - less), it.texts[0][0])) for less in (0, 1))
            before = _keys_before(call.products, shorter.products)
            return ReferencePass(call, size, allowed, before) if before else None
    return None


def _keys_before(products: Sequence[Any], shorter: Sequence[Any]) -> dict[int, int]:
    """The products of a text with itself, by number, each with the keys that stand before the text, as learned ones do.

    With one token less there is one key less: the keys of another text, as of a cross attention, stay.
    """
    found = {}
    for number, (one, other) in enumerate(zip(products, shorter, strict=False)):
        keys, fewer = (each.keys.shape[1] - each.queries.shape[1] for each in (one, other))
        if one.queries.shape[1] == other.queries.shape[1] or keys != fewer or keys < 0:
            continue
        if np.array_equal(one.keys[:, :keys], other.keys[:, :keys]):
            found[number] = keys
    return found


@dataclass(frozen=True)
class LengthShift:
    """Queries or keys of one attention that stand further on in a longer call.

    Attributes:
        layer: The number of the attention.
        side: Which rows.
        by: Positions for each token more of the call.
        layers: How many attentions there are.
    """

    layer: int
    side: Side
    by: float
    layers: int


def shifts_by_length(it: GenerationSubject) -> list[LengthShift]:
    """What stands elsewhere in one pass over more tokens; empty where that is nothing, or not one number."""
    size = len(it.texts[0])
    more = size // 4
    allowed = max(LEAST, 64 * UNIT[it.model.counts.dtype])
    found: list[LengthShift] = []
    with suppress(Refused, Unasked):
        ((short,), (long,)) = (recorded_calls(it, np.full((1, each), it.texts[0][0])) for each in (size - more, size))
        for layer, (one, other) in enumerate(zip(short.products, long.products, strict=False)):
            sides: list[tuple[Side, Any, Any]] = [
                ("queries", one.queries, other.queries),
                ("new keys", one.keys, other.keys),
            ]
            for side, rows, longer in sides:
                places = RowPlaces(rows, allowed)
                if rows.shape[1:] != (size - more, longer.shape[2]) or len(rows) != len(longer) or not places.depends:
                    continue
                moved = [(places.place(longer[:, at], at), at) for at in range(more, size - 2 * more)]
                by = {got - at for got, at in moved if got is not None}
                if len(by) == 1 and by != {0} and all(got is not None for got, _ in moved):
                    found.append(LengthShift(layer, side, by.pop() / more, len(long.products)))
    return found


def near(one: np.ndarray | None, other: np.ndarray | None, most: float) -> bool:
    """Whether two arrays are the same but for rounding, beside numbers as large as ``most``; true of none."""
    return one is None or other is None or bool(np.abs(one - other).max(initial=0) <= LEAST * max(most, 1e-30))


def is_rotated(row: np.ndarray, right: np.ndarray, most: float) -> bool:
    """Whether pairs of channels of both have the same sizes, so that an angle is all that differs."""
    channels = row.shape[1]
    for rotated in {channels, channels // 2, channels // 4}:
        for layout in _LAYOUTS if rotated and rotated % 2 == 0 else ():
            pairs = pair_channels(rotated // 2, layout)
            sizes, wanted = (np.linalg.norm(each[:, pairs], axis=-1) for each in (row, right))
            if near(sizes, wanted, most) and near(row[:, rotated:], right[:, rotated:], most):
                return True
    return False


def rotates_by_length(it: GenerationSubject, short: int) -> bool:
    """Whether keys of one pass over more tokens than ``short`` have other angles than at the same positions of that."""
    with suppress(Refused, Unasked):
        ((one,), (other,)) = (recorded_calls(it, np.full((1, size), it.texts[0][0])) for size in (short, short + 2))
        for before, after in zip(one.products, other.products, strict=False):
            rows, longer = before.keys, after.keys[:, : before.keys.shape[1]]
            most = float(np.abs(rows).max())
            if rows.shape == longer.shape and not near(rows, longer, most):
                return all(is_rotated(rows[:, at], longer[:, at], most) for at in range(rows.shape[1]))
    return False


def changed_by_length(it: GenerationSubject, short: int) -> str:
    """The frequencies of a module that a pass over more tokens than ``short`` changes, in words; empty if none."""
    with suppress(Refused, Unasked):
        model = it.model.fresh()
        modules, kept = modules_of(model), []
        for size in (short // 2, short + 2):  # what an earlier text left may stay up to the length
            model(it.texts[0][None, :size])
            kept.append({name: array for module in modules for name, array in _kept_frequencies(module)})
        for name, before in kept[0].items():
            after = kept[1].get(name)
            if (
                after is None
                or after.shape != before.shape
                or near(before, after, float(np.abs(before).max(initial=0)))
            ):
                continue
            at = int(np.abs(after - before).argmax())
            return f"{name} changes, number {at} of it from {before.flat[at]:.4g} to {after.flat[at]:.4g}"
    return ""


def _kept_frequencies(module: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Arrays that the parts of a module keep and do not train, and that fall as frequencies do."""
    for path, part in module.named_modules():
        for name, value in {**vars(part), **dict(part.named_buffers(recurse=False))}.items():
            if hasattr(value, "detach") and value.is_floating_point() and value.ndim == 1 and 1 < len(value) <= _MOST:
                rates = value.detach().double().cpu().numpy().copy()
                if rates.min() > 0 and (np.diff(rates) < 0).all():
                    yield f"{path}.{name}".lstrip("."), rates


def pieces_of_a_chat(size: int) -> list[int]:
    """The pieces of a chat: a prompt, an answer a token at a time, and three tokens together of another turn."""
    return [size // 3, *[1] * (size - size // 3 - 3), 3]


def measured_calls(it: GenerationSubject, reference: ReferencePass) -> Measured | None:
    """Everything that the calls of four ways to cut a text show; None where they have other attentions than one pass.

    One token at a time after half of the text, pieces of five tokens, one token at a time from the first, and a chat.
    """
    size = len(it.texts[0])
    half = size // 2
    ways = ([half, *[1] * (size - half)], [5] * (size // 5), [1] * (size // 3), pieces_of_a_chat(size))
    rows: list[PlacedRow] = []
    scores: list[ScoreRow] = []
    tables: list[ReadTable] = []
    for way in ways:
        starts = np.cumsum([0, *way[:-1]]).tolist()
        try:
            calls = recorded_calls(it, np.full((1, sum(way)), it.texts[0][0]), starts[1:])
        except (Refused, Unasked):
            continue
        if any(len(call.products) != len(reference.call.products) for call in calls):
            if max(way[1:]) > 1:  # an engine may decode a piece of several tokens one by one
                continue
            return None
        for call, start, length in zip(calls, starts, way, strict=True):
            rows += _placed(reference, call, start, length)
            scores += _scored(reference, call, start, length)
        tables += _read(it, reference, calls, starts, way)
    return Measured(rows, scores, tables, len(reference.before)) if rows else None


def _placed(reference: ReferencePass, call: Any, start: int, size: int) -> Iterator[PlacedRow]:
    for layer, product in enumerate(reference.attentions(call)):
        queries, keys = reference.queries[layer], reference.keys[layer]
        new = range(start, start + size)
        sides: list[tuple[Side, RowPlaces, np.ndarray, range]] = [("queries", queries, product.queries, new)]
        if product.keys.shape[1] >= start + size:  # a cache that drops rows has them in an order of its own
            sides.append(("new keys", keys, product.keys[:, start:], new))
            sides.append(("cached keys", keys, product.keys, range(start)))
        for side, places, rows, positions in sides:
            for number, right in enumerate(positions):
                row = places.alike(rows[:, number])
                # Queries of another number of heads are those of another product.
                if row is not None and (side != "queries" or len(row) == len(rows)):
                    got = places.place(row, right)
                    note = places.note(row, right) if got is None else ""
                    yield PlacedRow(layer, side, size, start, got, right, note)


def _scored(reference: ReferencePass, call: Any, start: int, size: int) -> Iterator[ScoreRow]:
    for layer, (product, room) in enumerate(reference.with_room(call)):
        of_one_pass = reference.own[layer].scores
        in_order = not room and product.scores.shape[2] >= start + size
        for inside in range(size):
            place, got = (layer, size, start, start + inside), product.scores[:, inside]
            products, wanted = products_of(product.queries[:, inside], product.keys), of_one_pass[:, start + inside]
            how = {"in_order": in_order, "of_one_pass": of_one_pass, "allowed": reference.allowed}
            yield score_row(place, got, products, wanted, **how)


def score_row(
    place: tuple[int, int, int, int],
    got: np.ndarray,
    products: np.ndarray,
    wanted: np.ndarray,
    *,
    in_order: bool,
    of_one_pass: np.ndarray | None,
    allowed: float = LEAST,
) -> ScoreRow:
    """The scores of one query beside those of one pass.

    Args:
        place: The layer, the size of the call and its start, and the token's place.
        got: Its scores [heads, keys].
        products: Its products with these keys, likewise.
        wanted: The scores that it should have, likewise.
        in_order: Whether its keys are those of the text, in order.
        of_one_pass: The scores of all tokens in one pass [heads, tokens, keys], if they are known.
        allowed: How far scores may differ, in parts of the largest.
    """
    layer, size, start, at = place
    seen, meant = (np.flatnonzero((each > HIDDEN_BELOW).any(axis=0)) for each in (got, wanted))
    missed, relation = None, ""
    if in_order and not np.array_equal(seen, meant):
        missed = int(np.setxor1d(seen, meant)[0])
    elif in_order and of_one_pass is not None and len(got) == len(of_one_pass):
        relation = QueryScores(of_one_pass, got[:, seen], seen, at, at - start, allowed).relation(products[:, seen])
    return ScoreRow(layer, size, start, at, (len(seen), len(meant)), missed, relation)


def _step(scores: np.ndarray) -> float | None:
    """By how much the scores [heads, keys] of the first head grow from key to key, if that is one number."""
    steps = np.diff(scores[0])
    return float(steps[0]) if len(steps) > 1 and np.ptp(steps) <= LEAST * np.abs(scores[0]).max() else None


def products_of(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The products of one query [heads, channels] with all keys, [heads, keys]."""
    keys = np.repeat(keys, len(queries) // len(keys), axis=0) if len(queries) % len(keys) == 0 else keys
    if len(keys) != len(queries):
        return np.zeros((len(queries), keys.shape[1]))
    return np.einsum("hc,hkc->hk", queries, keys)


def _beside_mean(scores: np.ndarray) -> np.ndarray:
    """A softmax does not see what all scores of a query have in common."""
    return scores - scores.mean(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The scores of one query, [heads, seen keys], beside those of one pass, [heads, tokens, keys].

    Attributes:
        of_one_pass: Those of one pass.
        got: Its own.
        seen: The positions of the keys.
        right: Its position.
        inside: Its place in its call.
        allowed: As of a `ReferencePass`.
    """

    of_one_pass: np.ndarray
    got: np.ndarray
    seen: np.ndarray
    right: int
    inside: int
    allowed: float

    def relation(self, products: np.ndarray) -> str:
        """How they differ; ``products`` are those of the query and the keys alone. Empty where they do not."""
        wanted, got, products = self._wanted_at(self.right), _beside_mean(self.got), _beside_mean(products)
        if len(self.seen) < 2 or self._same(got, wanted):
            return ""
        if self._counts_from_zero():
            return FROM_ZERO
        factor = float((products * got).sum() / max(float((products**2).sum()), 1e-30))
        if self._same(got, factor * products) and not self._same(wanted, factor * products):
            return NOTHING_ADDED
        for other in range(self.of_one_pass.shape[1]):
            first = int(self.seen.min()) + other - self.right
            if other != self.right and first >= 0 and self._same(got, self._wanted_at(other)):
                return f"what is added to the scores is that of a query at position {other}"
        ratio = float((wanted * got).sum() / max(float((wanted**2).sum()), 1e-30))
        if ratio > 0 and self._same(got, ratio * wanted):
            if self._same(products, 0 * products):
                return f"what is added to the scores is {ratio:.4g} times that of one pass"
            return f"the scores are {ratio:.4g} times those of one pass"
        steps = [_step(each) for each in (got, wanted)]
        if None not in steps:
            return f"other numbers are added to the scores: {steps[0]:.3g} from key to key instead of {steps[1]:.3g}"
        return "other numbers are added to the scores"

    def _counts_from_zero(self) -> bool:
        """Whether keys up to its place in the call have the scores that a query at this position has for them."""
        keys = self.seen[self.seen <= self.inside]
        if len(keys) < 2 or self.inside == self.right:
            return False
        right, counted = (_beside_mean(self.of_one_pass[:, at, keys]) for at in (self.right, self.inside))
        got = _beside_mean(self.got[:, : len(keys)])
        return self._same(got, counted) and not self._same(got, right)

    def _wanted_at(self, position: int) -> np.ndarray:
        return _beside_mean(self.of_one_pass[:, position, self.seen])

    def _same(self, one: np.ndarray, other: np.ndarray) -> bool:
        largest = np.abs(self.of_one_pass[:, self.right, self.seen]).max()
        room = self.allowed * max(float(largest), float(np.abs(self.got).max()), 1e-30)
        return bool(np.abs(one - other).max(initial=0) <= room)


def _read(
    it: GenerationSubject, reference: ReferencePass, calls: Sequence[Any], starts: Sequence[int], sizes: Sequence[int]
) -> Iterator[ReadTable]:
    """What each call reads of the tables of which one pass reads a row for each token."""
    rows_of_tokens: dict[int, tuple[Any, tuple[int, ...]]] = {}
    for read in reference.call.reads:
        if len(read.rows) == reference.size and len(set(read.rows)) == reference.size:
            rows_of_tokens.setdefault(id(read.table), (read.table, read.rows))
    for identity, (table, rows) in rows_of_tokens.items():
        if any(sum(id(read.table) == identity for read in call.reads) for call in calls):
            for call, start, size in zip(calls, starts, sizes, strict=True):
                own = [read.rows for read in call.reads if id(read.table) == identity]
                right = rows[start : start + size]
                fits = [each for each in own if len(each) == size]
                if right not in own and (fits or not own):
                    yield ReadTable(table_name(it.model, table), size, start, fits[0] if fits else (), right)


def table_name(model: CausalModel, table: Any) -> str:
    """What a model calls a tensor that it holds; else its shape."""
    owners = [getattr(model, "model", None), *owners_of(model.forward)]
    for owner in owners:
        for path, module in owner.named_modules() if owner is not None else ():
            own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False), *vars(module).items())
            for name, each in own:
                if each is table:
                    return ".".join(filter(None, [path, name]))
    return f"of {' x '.join(map(str, table.shape))} numbers"
