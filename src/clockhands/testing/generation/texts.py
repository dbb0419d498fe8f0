r"""A model under experiment: its texts, what it says of each alone, and how far rounding may move an answer.

How far is measured, not assumed: the same passes are made in shapes in which sums come in another order (a text beside
others, a text before it grew longer), and the largest difference ``d`` of a logit is what rounding does to one pass
beside another. Two passes of other shapes may each be as far off, on either side, and there are dozens of answers of
which the worst one counts: ``8 d`` is allowed. Where all these shapes happen to sum in one order, ``d`` says nothing of
a single token, which other kernels answer: never less is allowed than 64 roundings of the largest logit, what roundings
at random come to in sums of 4,096 terms, as wide as layers are, in float32 also where the answers are float64, behind
which float32 may stand. A difference above ``2**11`` roundings, or a quarter of
the largest logit, is not taken for rounding: it is an answer that depends on how the text is given, and an experiment
says so. In bfloat16 and float16 most roundings of two passes are the same ones, and ``d`` says too little: where a
model can be copied, what its float32 copy says is ``e`` away, and each of two passes may be that far off, the worst of
dozens twice as far, so ``4 e`` is allowed.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.phrases import number_of
from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.bounds import UNIT
from clockhands.testing.generation._causal_models import CausalModel


@dataclass(frozen=True)
class FaultyAnswer:
    """What an answer would be under a fault.

    Attributes:
        code: The fault.
        parameters: What its sentence names; known once it was asked.
        ask: The logits that it would give, asked of the model itself.
    """

    code: str
    parameters: dict[str, Any]
    ask: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Reply(Answer):
    """Logits [tokens, vocabulary], and what they would be under known faults.

    Attributes:
        faulty: The faults.
        first: Where the first token stands.
    """

    faulty: tuple[FaultyAnswer, ...] = ()
    first: int = 0


@dataclass
class GenerationSubject:
    """A model, three texts, and what it says of each alone in one pass.

    Attributes:
        model: The model; each experiment may have a fresh one.
        texts: Three texts, the longest first, [tokens] each.
        allowed: How far rounding may move a logit.
        slip: How far a logit moves when tokens stand one position further; 0 where that changes nothing.
        spec: The rotary code that its keys are turned by, where it is known.
        shift, join, evict: Somebody's own ways to change a cache.
        wanted: The logits of each text alone, [tokens, vocabulary] each.
    """

    model: CausalModel
    texts: list[np.ndarray]
    allowed: float = 0.0
    slip: float = 0.0
    spec: Any = None
    shift: Callable[..., Any] | None = None
    join: Callable[..., Any] | None = None
    evict: Callable[..., Any] | None = None
    wanted: list[np.ndarray] = field(default_factory=list)

    def fresh(self) -> "GenerationSubject":
        """The same with a model that was not asked anything, where it can be copied."""
        return replace(self, model=self.model.fresh())

    def shortened(self, length: int) -> "GenerationSubject":
        """The same with texts of at most so many tokens."""
        sizes = lengths(length)
        made = replace(self, texts=[text[:size] for text, size in zip(self.texts, sizes, strict=True)], wanted=[])
        made.wanted = [made.alone(text) for text in reversed(made.texts)][::-1]
        return made

    def alone(
        self, text: np.ndarray, positions: np.ndarray | None = None, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """One pass over one text, in a fresh model: its logits [tokens, vocabulary].

        Args:
            text: [tokens].
            positions: Where they stand, [tokens]; from 0 unless given.
            mask: The keys that each of them sees, [tokens, tokens], or those that all see, [tokens].
        """
        where = None if positions is None else np.asarray(positions)[None]
        logits, _ = self.model.fresh()(text[None], where, None if mask is None else mask[None])
        return logits[0]

    def reply(
        self, asked: str, got: np.ndarray, wanted: np.ndarray, first: int = 0, faulty: tuple[FaultyAnswer, ...] = ()
    ) -> Reply:
        """An answer: logits of tokens from the ``first`` on."""
        return Reply(asked, got, wanted, np.asarray(self.allowed), first + np.arange(len(got)), faulty, first)


def lengths(longest: int) -> tuple[int, int, int]:
    """Tokens of the three texts."""
    return longest, max(2 * longest // 3, 3), max(longest // 3 + 1, 2)


def texts_of(vocabulary: int, longest: int) -> list[np.ndarray]:
    """Three texts of tokens drawn at random; in each some token comes twice."""
    draw = np.random.default_rng(14)
    made = [draw.integers(0, vocabulary, size) for size in lengths(longest)]
    for text in made:
        text[-1] = text[0]
    return made


def measured(subject: GenerationSubject) -> GenerationSubject:
    """The subject with what each text alone says, what rounding does to it, and what a slip of one position does."""
    # The shortest first: what stays behind of a longer text is then seen when they are asked again.
    made = replace(subject, wanted=[subject.alone(text) for text in reversed(subject.texts)][::-1])
    unit = UNIT[made.model.counts.dtype]
    scale = max(float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) for wanted in made.wanted)
    most = min(2.0**11 * max(unit, UNIT["float32"]), 0.25) * scale
    text, wanted = made.texts[0], made.wanted[0]
    found = [made.alone(text[:size]) - wanted[:size] for size in {len(text) // 2, len(text) - 1, len(text) - 2}]
    short = min(map(len, made.texts))
    try:
        together, _ = made.fresh().model(np.stack([one[:short] for one in made.texts]))
        found += [logits - wanted[:short] for logits, wanted in zip(together, made.wanted, strict=True)]
    except Refused:  # it takes one text at a time: experiments say so
        pass
    moved = [float(np.abs(each).max()) for each in found if np.isfinite(each).all()]
    noise = max([0.0, *(each for each in moved if each <= most)])
    own = 0.0
    floor = 64 * max(unit, UNIT["float32"]) * scale
    finer = made.model.finer() if unit > UNIT["float32"] else None
    if finer is not None:
        floor, own = 0.0, float(np.abs(finer(text[None])[0][0] - wanted).max())
    made.allowed = max(8 * noise, 4 * own, floor) or float(np.finfo(float).tiny)
    made.slip = _slip(made)
    return made


def _slip(subject: GenerationSubject) -> float:
    """The largest change of a logit when some tokens stand one position further."""
    text, wanted = subject.texts[1], subject.wanted[1]
    at = np.arange(len(text))
    moved = [0.0]
    for shift in (at >= len(at) // 2, at % 2 == 1, at == len(at) - 1):
        try:
            moved.append(float(np.abs(subject.alone(text, at + shift) - wanted).max()))
        except (Refused, Unasked):
            continue
    return max(moved)


def padding_faults(it: GenerationSubject, row: np.ndarray, text: int, pad: int) -> tuple[FaultyAnswer, ...]:
    """What a text after pads would be, where the pads count or are seen."""
    if not pad:
        return ()
    at = np.arange(len(row) - pad)
    told = {"pads": number_of(pad, "pad"), "start": pad}
    return (
        FaultyAnswer("padding-shifts", told, lambda: it.alone(it.texts[text], at + pad)),
        FaultyAnswer("padding-seen", told, lambda: it.alone(row)[pad:]),
        FaultyAnswer("padding-seen", told, lambda: it.alone(row, np.maximum(np.arange(len(row)) - pad, 0))[pad:]),
    )


def padded_decoding_faults(
    it: GenerationSubject, text: int, start: int, pad: int, first: int
) -> tuple[FaultyAnswer, ...]:
    """What a text that goes on after pads would be: the pads count before, or after, or all texts stand alike."""

    def at(begin: int, then: int) -> Callable[[], np.ndarray]:
        size = len(it.texts[text])
        where = np.concatenate([begin + np.arange(start), then + np.arange(size - start)])
        return lambda: it.alone(it.texts[text], where)[start:]

    told = {"pads": number_of(pad, "pad"), "start": pad}
    found = [
        FaultyAnswer("padding-shifts", told, at(begin, then))
        for begin, then in ((pad, start + pad), (0, start + pad), (pad, start))
        if pad
    ]
    if first != start:
        found.append(
            FaultyAnswer(
                "decode-positions",
                {"how": "every text of the batch gets the positions of the first text"},
                at(0, first),
            )
        )
    return (*found, *decoding_faults(it, text, [start, *range(start + 1, len(it.texts[text]))]))


def pieces_of(size: int, cuts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """For each token of a text the number of its piece, and where that piece starts."""
    starts = np.array([0, *cuts])
    piece = np.searchsorted(starts, np.arange(size), side="right") - 1
    return piece, starts[piece]


def places_in_pieces(size: int, cuts: list[int]) -> list[tuple[str, str, np.ndarray]]:
    """Wrong positions of a text that is given in pieces: the fault, how its sentence says it, and the positions."""
    at, first = np.arange(size), cuts[0]
    piece, start = pieces_of(size, cuts)
    inside, later = at - start, at >= first
    alone = np.isin(piece, np.flatnonzero(np.bincount(piece) == 1))
    single = bool((np.diff([*cuts, size]) == 1).all())
    chunk = "token" if single else "piece"

    def all_at(position: int) -> str:
        return f"every later {'token gets' if single else 'chunk starts at'} position {position}"

    found = [
        (all_at(first), np.where(later, first + inside, at)),
        (f"every later {chunk} gets a position that is 1 too high", at + later),
        (f"the error of the position grows by 1 with every {chunk}", at + piece),
        ("every token that comes alone gets a position that is 1 too high", at + (later & alone)),
        (f"every later {chunk} gets a position that is 1 too low", at - later),
        (all_at(first - 1), np.where(later, first - 1 + inside, at)),
        (f"the tokens before every later {chunk} counted twice", at + start),
        ("the tokens before every later piece counted twice", at + start * ~alone),
        ("every token of a later piece gets the position of its first token", np.where(later, start, at)),
    ]
    restarted = (np.where(later, at - first, at), inside, np.where(alone, at, inside))
    return [
        *(("decode-positions", *one) for one in found),
        *(("chunk-restarts", "", where) for where in restarted),
        ("decode-positions", f"the number of the {chunk}", np.where(later, piece + inside, at)),
    ]


def decoding_faults(it: GenerationSubject, text: int, cuts: list[int]) -> tuple[FaultyAnswer, ...]:
    """What tokens from the first cut on would be with other positions, or seeing other keys."""
    tokens, first = it.texts[text], cuts[0]
    size = len(tokens)
    at = np.arange(size)
    piece, start = pieces_of(size, cuts)
    inside = at - start
    causal = np.tri(size, dtype=bool)

    def placed(code: str, how: str, where: np.ndarray) -> FaultyAnswer:
        return FaultyAnswer(code, {"how": how}, lambda: it.alone(tokens, where)[first:])

    def seeing(code: str, mask: np.ndarray, where: np.ndarray) -> FaultyAnswer:
        return FaultyAnswer(code, {}, lambda: it.alone(tokens, where, mask & causal)[first:])

    return (
        *(placed(*one) for one in places_in_pieces(size, cuts)),
        FaultyAnswer("queries-restart", {}, lambda: _queries_restarted(it, tokens, start)[first:]),
        seeing("cache-not-read", piece[:, None] == piece, at),
        seeing("cache-not-read", piece[:, None] == piece, inside),
        seeing("first-keys-seen", at <= inside[:, None], at),
    )


_LAYERS, _MOST_ROWS = 4, 4096


def _queries_restarted(it: GenerationSubject, tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A text whose queries count from the start of their chunk, while keys stand where they are.

    No pass has a query and its key at two positions. A query that is ``s`` tokens too early sees what one at its place
    sees of keys that are ``s`` tokens later: so the row holds the text once more, ``s`` tokens later, for its keys, and
    each of these copies another for its own, one for each layer below. That holds for codes of distances only.

    Args:
        it: The model.
        tokens: The text.
        starts: Where the chunk of each token starts.
    """
    size, depth = len(tokens), it.model.layers or _LAYERS
    later, newest = {0}, {0}
    for _ in range(depth):
        newest = {one + int(start) for one in newest for start in starts} - later
        later |= newest
        if len(later) * size > _MOST_ROWS:
            raise Unasked("the row would be too long")
    if it.model.window is not None:
        raise Unasked("a mask of queries and keys would replace its window")
    # The copies that are further on stand first, so that every key comes before its query.
    copies = sorted(later, reverse=True)
    place = {one: number for number, one in enumerate(copies)}
    mask = np.zeros((len(copies) * size,) * 2, bool)
    for one, token in itertools.product(copies, range(size)):
        # The last copies are only asked for what stands below every layer: which keys they see is all the same.
        keys = place.get(one + int(starts[token]), place[one])
        mask[place[one] * size + token, keys * size : keys * size + token + 1] = True
    at = np.add.outer(copies, np.arange(size)).reshape(-1)
    return it.alone(np.tile(tokens, len(copies)), at, mask)[-size:]


def placed_faults(it: GenerationSubject, text: int, cuts: list[int], got: np.ndarray) -> tuple[FaultyAnswer, ...]:
    """Where tokens that come one at a time stand, found by trying all positions for the first two of them."""
    tokens, first = it.texts[text], cuts[0]
    size = len(tokens)
    if len(cuts) < 2 or cuts[1] != first + 1:
        return ()
    at = np.arange(size)

    def found() -> np.ndarray:
        places: list[int] = []
        for step in range(2):
            tried = np.arange(size + 8)
            where = np.tile(at[: first + step + 1], (len(tried), 1))
            where[:, first : first + step] = places
            where[:, -1] = tried
            logits, _ = it.model.fresh()(np.tile(tokens[: first + step + 1], (len(tried), 1)), where)
            off = np.abs(logits[:, -1] - got[step]).max(axis=-1)
            if not np.nanmin(off) <= 2 * it.allowed:
                raise Unasked("it has no position")
            places.append(int(np.nanargmin(off)))
        where = np.where(at >= first, places[0] + (places[1] - places[0]) * (at - first), at)
        told["how"] = (
            f"positions {', '.join(map(str, where[first : first + 3]))} instead of {first}, {first + 1}, {first + 2}"
        )
        return where

    told = {"how": ""}
    return (FaultyAnswer("decode-positions", told, lambda: it.alone(tokens, found())[first:]),)


def counted_together(it: GenerationSubject, text: int, where: np.ndarray, first: int) -> FaultyAnswer:
    """A text that stands where a count of both texts is."""
    how = "it counts the tokens of both texts together, because two caches share one count"
    return FaultyAnswer("decode-positions", {"how": how}, lambda: it.alone(it.texts[text], where)[first:])
