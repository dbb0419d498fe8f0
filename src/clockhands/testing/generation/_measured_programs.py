"""What reaches attention inside a program that is made of PyTorch, beside one pass over the same text.

A text is a prompt with the tokens that the program chose. Given as one prompt, it shows the query and the key of each
of its tokens in each attention; in the calls of the program the same tokens should have the same ones. In the first
attention a query or key depends on its token and its position alone, so a wrong one is looked up among those of the
same token, repeated.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Unasked
from clockhands.testing.generation._measured_attention import (
    LEAST,
    Measured,
    PlacedRow,
    RowPlaces,
    ScoreRow,
    Side,
    is_rotated,
    near,
    products_of,
    score_row,
)
from clockhands.testing.generation._measured_faults import Told, faults_of_calls
from clockhands.testing.generation._passed_positions import PlacedToken, placed_tokens

_MORE = 8  # positions behind the text at which a token is looked up
_MOST_TOKENS = 48  # that are looked up
_LONGEST = 512  # tokens of a text


@dataclass(frozen=True, eq=False)
class InnerCall:
    """A call of a model inside a program.

    Attributes:
        tokens: Which of its tokens are known, and of which place in which text; ``position`` is the place in the call.
        shape: Texts and tokens of the call.
        products: Of queries and keys, one for each attention.
        appends: Whether its own keys are the last ones, as they are not in a cache of one size.
    """

    tokens: Sequence[PlacedToken]
    shape: tuple[int, int]
    products: Sequence[Any]
    appends: bool


Inner = list[InnerCall]
"""All calls of one model."""


@dataclass(frozen=True, eq=False)
class InnerRow:
    """What one token of a text has in one attention of a call.

    Attributes:
        query: [heads, channels].
        key: Likewise; None where it is not known which one of the keys it is.
        scores: [heads, keys].
        keys: Those of its text in this call, [heads, keys, channels].
    """

    query: np.ndarray
    key: np.ndarray | None
    scores: np.ndarray
    keys: np.ndarray


def inner_calls(program: Any, prompts: list[list[int]], count: int, **how: Any) -> tuple[list[Inner], list[list[int]]]:
    """The calls that a program makes for some prompts, of each model that reads their tokens, and what follows them.

    A model is known by its table of tokens: one of which rows are read in the order of the texts.

    Raises:
        Refused, Unasked: It cannot be called like that.
    """
    from clockhands.models.recorded_calls import recorded_into

    recorded: list[Any] = []
    new = replace(program, watch=partial(recorded_into, recorded)).new_tokens(prompts, count, **how)
    texts = whole_texts(prompts, new)
    sizes = [len(prompt) for prompt in prompts]
    found = []
    for record in recorded:
        reads = {id(read.table): _read_tokens(record, read.table, texts, sizes) for read in record.reads}
        models = [each for each in reads.values() if {one.place for _, _, own in each for one in own if not one.text}
                  >= set(range(sizes[0]))]  # fmt: skip
        begins = sorted(begin for each in models for begin, _, _ in each)
        for each in models:
            calls, before = [], 0
            for begin, shape, tokens in each:
                end = next((other for other in begins if other > begin), len(record.reads))
                products = [one for one in record.products if begin < one.reads <= end]
                if any(one.dtype not in {"float32", "float64"} for one in products):
                    raise Unasked(f"its attention computes in {products[0].dtype}, in which rows are rounded too far")
                if products:
                    keys = products[0].keys.shape[1]
                    calls.append(InnerCall(tokens, shape, products, keys in {shape[1], before + shape[1]}))
                    before = keys
            found.append(calls)
    return found, new


def whole_texts(prompts: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each prompt with the tokens that follow it, up to the end of its text."""
    return [[*prompt, *(one for one in after if one >= 0)] for prompt, after in zip(prompts, new, strict=True)]


def _read_tokens(
    record: Any, table: Any, texts: Sequence[Sequence[int]], sizes: Sequence[int]
) -> list[tuple[int, tuple[int, int], list[PlacedToken]]]:
    """The reads of a table: which one it is, how many texts and tokens it is of, and the tokens of texts that it reads.

    Their ``position`` is the place in the read.
    """
    begins = [number for number, read in enumerate(record.reads) if read.table is table]
    arrays, numbers, offset = [], [], 0
    for number in begins:
        rows = np.array(record.reads[number].rows).reshape(record.reads[number].shape)
        each_text = rows.ndim == 1 and rows.size == len(texts) > 1  # a token of each, not several of one
        rows = rows.reshape(-1, rows.shape[-1]) if rows.ndim and rows.size and not each_text else rows.reshape(-1, 1)
        arrays.append((rows, offset + np.arange(rows.size).reshape(rows.shape)))
        numbers.append(offset)
        offset += rows.size
    known: list[list[PlacedToken]] = [[] for _ in begins]
    for token in placed_tokens(arrays, texts, sizes):
        call = int(np.searchsorted(numbers, token.position, side="right")) - 1
        known[call].append(replace(token, position=token.position - numbers[call]))
    return [(begin, rows.shape, own) for begin, (rows, _), own in zip(begins, arrays, known, strict=True)]


class ReferenceText:
    """What the tokens of a text have in each attention, where the text is one prompt.

    Args:
        program: The program.
        text: The text.
        number: Which of its models.
    """

    def __init__(self, program: Any, text: list[int], number: int) -> None:
        """Ask the program."""
        models, _ = inner_calls(program, [text], 1)
        calls = models[number] if number < len(models) else []
        self.layers = len(calls[0].products) if calls else 0
        texts = calls[0].shape[0] if calls else 1
        self.heads = [(len(one.queries) // texts, len(one.keys) // texts) for one in calls[0].products] if calls else []
        self.whole = calls[0].products if calls and calls[0].shape == (1, len(text)) else None
        self.calls = calls
        self.rows: list[dict[int, InnerRow]] = [{} for _ in range(self.layers)]
        for call in calls:
            for layer in range(self.layers if len(call.products) == self.layers else 0):
                for token in call.tokens:
                    self.rows[layer].setdefault(token.place, row_of(call, token, layer, self.heads[layer]))

    def beside(
        self, call: InnerCall, tokens: Sequence[PlacedToken], layer: int
    ) -> Iterator[tuple[PlacedToken, InnerRow, InnerRow]]:
        """Tokens of a call, what they have in one of its attentions, and what they have here."""
        for token in tokens:
            if token.place in self.rows[layer]:
                yield token, row_of(call, token, layer, self.heads[layer]), self.rows[layer][token.place]

    def restarts(self) -> bool:
        """Whether each later call of several tokens has the rows of the one before, where all tokens are the same."""
        pairs = []
        for before, call in itertools.pairwise(self.calls):
            columns = {token.position: token for token in before.tokens} if call.shape[1] > 1 else {}
            found = [(token.place, columns[token.position].place) for token in call.tokens if token.position in columns]
            # A text that is read twice has the same places; calls with other attentions are not known.
            pairs += [(one, other) for one, other in found if one != other and {one, other} <= self.rows[0].keys()]
        return bool(pairs) and self._depends() and all(self._alike(one, other) for one, other in pairs)

    def _depends(self) -> bool:
        """Whether rows differ from position to position."""
        return any(not self._alike(place, place + 1) for place in self.rows[0] if place + 1 in self.rows[0])

    def _alike(self, one: int, other: int) -> bool:
        return all(
            near(getattr(self.rows[0][one], side), getattr(self.rows[0][other], side), most)
            for side, most in zip(("query", "key"), self.largest(0), strict=True)
        )

    def largest(self, layer: int) -> tuple[float, float]:
        """The largest number of its queries, and of its keys."""
        query, key = (
            max(
                (
                    float(np.abs(each).max())
                    for one in self.rows[layer].values()
                    if (each := getattr(one, name)) is not None
                ),
                default=0.0,
            )
            for name in ("query", "key")
        )
        return query, key


def row_of(call: InnerCall, token: PlacedToken, layer: int, heads: tuple[int, int]) -> InnerRow:
    """The query, key and scores of a token of a call.

    Raises:
        Unasked: It has another number of heads.
    """
    product = call.products[layer]
    text, column = divmod(token.position, call.shape[1])
    of_queries, of_keys = heads
    if 0 in heads or len(product.queries) < (text + 1) * of_queries or product.queries.shape[1] != call.shape[1]:
        raise Unasked("its attention has other axes in later calls")
    own = slice(text * of_queries, (text + 1) * of_queries)
    # Keys stand once for all their queries in one call, and are repeated in another.
    each = len(product.keys) // max(len(product.queries) // of_queries, 1)
    keys = product.keys[text * each : (text + 1) * each]
    keys = keys if each == of_keys else keys[:: each // of_keys] if each > of_keys else keys
    key = keys[:, keys.shape[1] - call.shape[1] + column] if call.appends else None
    return InnerRow(product.queries[own, column], key, product.scores[own, column], keys)


def faults_of_program(program: Any, prompts: list[list[int]], count: int, **how: Any) -> dict[int, list[Told]]:
    """What is wrong in the calls in which a program continues some prompts, for each of its models, by its number.

    Models are numbered in the order in which they read the first tokens; those of whose later calls nothing could be
    compared are left out.

    Raises:
        Refused, Unasked: It cannot be called like that.
    """
    models, new = inner_calls(program, prompts, count, **how)
    texts = whole_texts(prompts, new)
    longest = max(map(len, texts))
    found: dict[int, list[Told]] = {}
    for number, calls in enumerate(models if longest <= _LONGEST else ()):
        if ReferenceText(program, texts[0][:1] * (longest + _MORE), number).restarts():
            found[number] = [("chunk-restarts", {})]
            continue
        measured = _measured(program, texts, calls, number, [*map(len, prompts)])
        if any(one.start for one in measured.rows):
            found[number] = faults_of_calls(measured)
    return found


def _measured(program: Any, texts: list[list[int]], calls: Inner, number: int, sizes: Sequence[int]) -> Measured:
    """Where the tokens of texts are, and what their scores are, in the calls of one model.

    A text is left out whose prompt, of so many tokens, was not followed whole. Tokens of a text that are all further by
    one number are at their places: what is relative does not see that.
    """
    rows: list[PlacedRow] = []
    scores: list[ScoreRow] = []
    layers = 0
    lookup = _Lookup(program, number, max(map(len, texts)) + _MORE)
    for place, text in enumerate(texts):
        followed = {one.place for call in calls for one in call.tokens if one.text == place}
        if not followed >= {*range(sizes[place])}:
            continue
        reference = ReferenceText(program, text, number)
        layers = max(layers, reference.layers)
        own = [(one, [each for each in one.tokens if each.text == place]) for one in calls]
        own = [(one, tokens) for one, tokens in own if tokens and len(one.products) == reference.layers]
        for layer in range(reference.layers):
            found = [*_placed(reference, text, own, layer, lookup)]
            moved = {one.got - one.right for one in found if one.got is not None}
            by = moved.pop() if len(moved) == 1 else 0
            # Behind the positions at which tokens are looked up it is not known where one is.
            further = by != 0 and all(one.got is not None or one.right + by >= lookup.size for one in found)
            found = [replace(one, got=one.right) for one in found] if further else found
            rows += found
            if any(one.got != one.right for one in found):
                break
            scores += _scored(reference, own, layer)
            if further:
                break  # in attentions behind it such rows have other angles than in one pass, as they should
    return Measured(rows, scores, (), layers)


class _Lookup:
    """The queries and keys of a token in the first attention, by position."""

    def __init__(self, program: Any, number: int, size: int) -> None:
        self.program, self.number, self.size = program, number, size
        self.known: dict[int, tuple[RowPlaces | None, RowPlaces | None]] = {}

    def __call__(self, token: int) -> tuple[RowPlaces | None, RowPlaces | None]:
        if token not in self.known:
            self.known[token] = self._of(token) if len(self.known) < _MOST_TOKENS else (None, None)
        return self.known[token]

    def _of(self, token: int) -> tuple[RowPlaces | None, RowPlaces | None]:
        with suppress(Refused, Unasked, IndexError, KeyError):
            rows = ReferenceText(self.program, [token] * self.size, self.number).rows[0]
            every = [rows[at] for at in range(len(rows))]
            keys = [one.key for one in every if one.key is not None]
            places = [[one.query for one in every], keys if len(keys) == len(every) else []]
            queries, of_keys = (RowPlaces(np.stack(each, 1), LEAST) if each else None for each in places)
            return queries, of_keys
        return None, None


def _placed(
    reference: ReferenceText, text: Sequence[int], calls: Sequence[tuple[InnerCall, list[PlacedToken]]], layer: int,
    lookup: _Lookup,
) -> Iterator[PlacedRow]:  # fmt: skip
    largest = reference.largest(layer)
    for call, tokens in calls:
        size, start = call.shape[1], tokens[0].place
        for token, own, wanted in reference.beside(call, tokens, layer):
            pairs: list[tuple[Side, Any, Any, float, int]] = [
                ("queries", own.query, wanted.query, largest[0], token.place),
                ("new keys", own.key, wanted.key, largest[1], token.place),
            ]
            if token is tokens[0] and call.appends and own.keys.shape[1] == start + call.shape[1]:
                known = {at: reference.rows[layer][at].key for at in range(start) if at in reference.rows[layer]}
                pairs.extend(("cached keys", own.keys[:, at], key, largest[1], at) for at, key in known.items())
            for side, row, right, most, place in pairs:
                if row is not None and right is not None and row.shape == right.shape:
                    same = near(row, right, most)
                    got, note = (place, "") if same else _place(lookup(text[place]), side, row, place, layer)
                    if got is None and not is_rotated(row, right, most):
                        raise Unasked("a query or key depends on more than its token and its position")
                    yield PlacedRow(layer, side, size, start, got, place, note)


def _place(
    places: tuple[RowPlaces | None, RowPlaces | None], side: Side, row: np.ndarray, right: int, layer: int
) -> tuple[int | None, str]:
    """Where a row of the first attention is, and how one is that is nowhere, or of another attention."""
    of = None if layer else places[side != "queries"]
    alike = None if of is None else of.alike(row)
    if of is None or alike is None or right >= of.rows.shape[1]:
        return None, "have the right size, and another angle than in one pass"
    got = of.place(alike, right)
    return got, "" if got is not None else "have the right size, and an angle that no position of one pass gives"


def _scored(
    reference: ReferenceText, calls: Sequence[tuple[InnerCall, list[PlacedToken]]], layer: int
) -> Iterator[ScoreRow]:
    of_one_pass = None if reference.whole is None else reference.whole[layer].scores
    for call, tokens in calls:
        size, start = call.shape[1], tokens[0].place
        for token, own, wanted in reference.beside(call, tokens, layer):
            place, products = (layer, size, start, token.place), products_of(own.query, own.keys)
            in_order = call.shape[0] == 1 and own.scores.shape[1] == start + size
            yield score_row(place, own.scores, products, wanted.scores, in_order=in_order, of_one_pass=of_one_pass)
