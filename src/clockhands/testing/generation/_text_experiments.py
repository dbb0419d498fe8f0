"""Experiments with a model with a KV cache: the same text, passed in different ways that should give equal logits."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.phrases import number_of
from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Answer, Experiment, Unasked
from clockhands.testing.generation._cache_arrays import copied, pickled
from clockhands.testing.generation._causal_models import CausalModel, held
from clockhands.testing.generation._changed_caches import CHANGED
from clockhands.testing.generation._draft_trees import TREES
from clockhands.testing.generation._image_requests import image_requests, takes_images
from clockhands.testing.generation._long_texts import LONG, long_texts, longer_sizes
from clockhands.testing.generation._measured_attention import pieces_of_a_chat
from clockhands.testing.generation.texts import GenerationSubject


def _longer(it: GenerationSubject) -> list[Answer]:
    """A token's logits do not depend on what comes after it, nor on how long the text becomes."""
    text, wanted = it.texts[0], it.wanted[0]
    sizes = sorted({1, 2, len(text) // 3, len(text) // 2, len(text) - 1})
    return [
        it.reply(f"the first {size} of {len(text)} tokens alone", it.alone(text[:size]), wanted[:size])
        for size in sizes
        if size
    ]


def _beside(it: GenerationSubject) -> list[Answer]:
    short = min(map(len, it.texts))
    logits, _ = it.model(np.stack([text[:short] for text in it.texts]))
    return [
        it.reply(f"text {row + 1} of a batch of {len(logits)}", logits[row], it.wanted[row][:short])
        for row in range(len(logits))
    ]


def _left_padded(it: GenerationSubject, itself: bool) -> list[Answer]:
    tokens, mask, positions, pads = _padded(it)
    logits, _ = it.model(tokens, None if itself else positions, mask)
    return [
        it.reply(
            f"text {row + 1} of a batch, after {number_of(pad, 'pad')}",
            logits[row, pad:],
            it.wanted[row],
        )
        for row, pad in enumerate(pads)
    ]


PADDED_DECODING = "left padding and decoding"

NO_KEYS = "a query without keys"


def _without_keys(it: GenerationSubject) -> list[Answer]:
    """What a pad on the left is given is of no use, but it must be a number: other rows are made with it."""
    tokens, mask, positions, pads = _padded(it)
    if not any(pads):
        raise Unasked("its texts have one length")
    logits, _ = it.model(tokens, it.model.given(positions), mask)
    return [
        Answer(
            f"the pads of text {row + 1} of a batch, which see no key",
            np.where(np.isfinite(logits[row, :pad]), 0.0, np.nan),
            np.zeros(logits[row, :pad].shape),
            np.zeros(1),
            np.arange(pad),
        )
        for row, pad in enumerate(pads)
        if pad
    ]


def _right_padded(it: GenerationSubject) -> list[Answer]:
    most = len(it.texts[0])
    tokens, mask = _batch(it, it.texts, left=False)
    at = np.broadcast_to(np.arange(most), tokens.shape)
    logits, _ = it.model(tokens, it.model.given(at), mask)
    return [
        it.reply(
            f"text {row + 1} of a batch, before {number_of(most - len(text), 'pad')}",
            logits[row, : len(text)],
            it.wanted[row],
        )
        for row, text in enumerate(it.texts)
    ]


def _padded_decoding(it: GenerationSubject) -> list[Answer]:
    """A batch of texts of several lengths, padded on the left, goes on one token at a time."""
    order = (1, 0, 2)
    steps = min(4, min(map(len, it.texts)) - 1)
    starts = [len(it.texts[row]) - steps for row in order]
    most = max(starts)
    tokens, mask = _batch(it, [it.texts[row][:start] for row, start in zip(order, starts, strict=True)])
    _, cache = it.model(tokens, it.model.given(np.maximum(mask.cumsum(-1) - 1, 0)), mask)
    said = []
    for step in range(steps):
        latest = np.array([[it.texts[row][start + step]] for row, start in zip(order, starts, strict=True)])
        mask = np.concatenate([mask, np.ones((len(order), 1), bool)], axis=1)
        logits, cache = it.model(latest, it.model.given(np.array(starts)[:, None] + step), mask, held(cache))
        said.append(logits[:, 0])
    got = np.stack(said, axis=1)
    return [
        it.reply(
            f"text {row + 1} of a batch, after {number_of(most - start, 'pad')}, {steps} tokens one at a time",
            got[place],
            it.wanted[row][start:],
            start,
        )
        for place, (row, start) in enumerate(zip(order, starts, strict=True))
    ]


def _packed(it: GenerationSubject, by_mask: bool) -> list[Answer]:
    """Two documents in one row, each from position 0, the second one not seeing the first."""
    # No longer together than the longest text: rates that follow the length are another experiment's.
    most = len(it.texts[0])
    parts = [it.texts[0][: most // 2], it.texts[1][: most - most // 2]]
    wanted = [logits[: len(part)] for logits, part in zip(it.wanted, parts, strict=False)]
    first, size = len(parts[0]), sum(map(len, parts))
    row, at = np.concatenate(parts), np.concatenate([np.arange(len(part)) for part in parts])
    document = np.repeat([0, 1], [len(part) for part in parts])
    mask = (document[:, None] == document) & np.tri(size, dtype=bool)
    if by_mask and it.model.window is not None and it.model.window < size:
        raise Unasked(f"a mask of queries and keys would replace its window of {it.model.window:,} tokens")
    logits, _ = it.model(row[None], at[None], mask[None] if by_mask else None, keep=by_mask)
    return [
        it.reply("the first document of a packed row", logits[0, :first], wanted[0]),
        it.reply("the second document of a packed row", logits[0, first:], wanted[1]),
    ]


def _chunked(it: GenerationSubject, itself: bool) -> list[Answer]:
    size = len(it.texts[0])
    ways = {
        "chunks of 5 tokens": list(range(5, size, 5)),
        "chunks of 3, then 8 tokens": [3, *range(11, size, 8)],
        "one token, then the rest": [1],
        "all but 2 tokens, then 2": [size - 2],
    }
    return [
        _pieces_reply(it, name, 0, [cut for cut in cuts if cut < size], itself=itself) for name, cuts in ways.items()
    ]


def _pieces_reply(it: GenerationSubject, asked: str, text: int, cuts: list[int], **how: Any) -> Answer:
    """What follows the first piece of a text that is given piece by piece."""
    _, *said = it.model.in_pieces(it.texts[text][None], cuts, **how)
    return it.reply(asked, np.concatenate([logits[0] for logits, _ in said]), it.wanted[text][cuts[0] :], cuts[0])


def _decoded(it: GenerationSubject, itself: bool) -> list[Answer]:
    size, short = len(it.texts[0]), len(it.texts[2])
    half = size // 2
    return [
        _pieces_reply(it, f"{half} tokens, then one at a time", 0, list(range(half, size)), itself=itself),
        _pieces_reply(it, "one token at a time from the first", 2, list(range(1, short)), itself=itself),
    ]


def _in_a_chat(it: GenerationSubject, itself: bool) -> list[Answer]:
    size = len(it.texts[0])
    prompt, *_, turn = pieces_of_a_chat(size)
    asked = f"{prompt} tokens, then one at a time, then {turn} together"
    return [_pieces_reply(it, asked, 0, list(range(prompt, size - turn + 1)), itself=itself)]


def _resumed(it: GenerationSubject, turn: Callable) -> list[Answer]:
    size = len(it.texts[0])
    cuts = [size // 2, size // 2 + 1, size - 2]
    return [_pieces_reply(it, "the cache is reused three times", 0, cuts, turn=turn)]


def _forked(it: GenerationSubject) -> list[Answer]:
    """One beginning, two ends: the second one is not moved by the first."""
    text, half = it.texts[0], len(it.texts[0]) // 2

    def continued_differently(cache: Any) -> Any:
        # What is copied goes on first: what is kept outside of the cache is then that of the other end.
        it.model(text[None, half:][:, ::-1], it.model.given(np.arange(half, len(text))[None]), None, copied(cache))
        return cache

    asked = "a text continued after a copy of its cache was continued differently"
    return [_pieces_reply(it, asked, 0, [half], turn=continued_differently)]


_DEEP = 12  # layers: each text costs four calls, which take a tenth of a second each in deeper models


def _alternating(it: GenerationSubject) -> list[Answer]:
    """Texts of several lengths and first tokens, each with its own cache, given alternately."""
    further = (1, 2, 3) if (it.model.layers or 0) <= _DEEP else (1,)
    texts = [*it.texts[:2], *(it.texts[0][first:] for first in further)]
    wanted = [*it.wanted[:2], *map(it.alone, texts[2:])]
    said = _interleaved([(it.model, text[None], len(text) // 2) for text in texts])
    return [
        _last(it, f"text {row + 1} of {len(texts)} texts given alternately", got[0], right)
        for row, (got, right) in enumerate(zip(said, wanted, strict=True))
    ]


def _beside_batch(it: GenerationSubject) -> list[Answer]:
    """A text and a batch of others, given alternately."""
    text, other = it.texts[:2]
    batch = np.stack([other, text[-len(other) :]])
    wanted = it.wanted[0], it.wanted[1], it.alone(batch[1])
    try:
        said = _interleaved([(it.model, each, len(other) // 2) for each in (text[None], batch)])
    except Refused:
        # What works by itself, and not by turns, is wrong.
        apart = (_interleaved([(it.model.fresh(), each, len(other) // 2)])[0] for each in (text[None], batch))
        said = [np.full_like(each, np.nan) for each in apart]
    return [
        _last(it, f"{name}, given alternately", got, right)
        for name, got, right in zip(
            ("a text beside a batch", "text 1 of a batch beside a text", "text 2 of a batch beside a text"),
            (row for each in said for row in each),
            wanted,
            strict=True,
        )
    ]


def _images(it: GenerationSubject) -> list[Answer]:
    """Texts with images of two sizes, and one without, given alternately."""
    text = it.texts[2]
    requests = [(each.model, each.tokens, each.start) for each in image_requests(it)]
    runs: list[tuple[CausalModel, np.ndarray, int]] = [*requests, (it.model, text[None], len(text) // 2)]
    wholes = [next(model.fresh().in_pieces(tokens, []))[0][0] for model, tokens, _ in runs]
    names = "a text with a small image", "a text with a larger image", "a text without an image"
    return [
        _last(it, f"{name}, given alternately", got[0], whole)
        for name, got, whole in zip(names, _interleaved(runs), wholes, strict=True)
    ]


def _last(it: GenerationSubject, asked: str, got: np.ndarray, whole: np.ndarray) -> Answer:
    """The logits of the last tokens of a text, beside those of the whole text."""
    first = len(whole) - len(got)
    return it.reply(asked, got, whole[first:], first)


def _interleaved(runs: Sequence[tuple[CausalModel, np.ndarray, int]]) -> list[np.ndarray]:
    """What is answered to each request after its first call, each with its own cache.

    Args:
        runs: Model, tokens [batch, seq], and those of the first call.
    """
    pieces = (model.in_pieces(tokens, [first, tokens.shape[1] - 1]) for model, tokens, first in runs)
    _, *later = [[logits for logits, _ in turn] for turn in zip(*pieces, strict=True)]
    return [np.concatenate(parts, axis=1) for parts in zip(*later, strict=True)]


ONE_TOKEN = "a token at each position"

_TELLING = 64  # times what two positions may differ by: by less than that share of the largest difference


def _steps(it: GenerationSubject) -> np.ndarray:
    """How far the logits of a token alone move from each position to the next one, in a text of the longest length."""
    at = np.arange(len(it.texts[0]))[:, None]
    logits, _ = it.model(np.full(at.shape, it.texts[0][0]), at)
    return np.abs(np.diff(logits[:, 0], axis=0)).max(axis=-1)


def _is_absolute(it: GenerationSubject) -> bool:
    """Whether a token that sees no other one depends on its position, by more than rounding."""
    if it.model.chooses:
        return False  # one token may be the most likely one after several positions
    try:
        return "positions" in it.model.takes and bool(_steps(it.fresh()).max() > _TELLING * it.allowed)
    except (Refused, Unasked):
        return False


def _at_each_position(it: GenerationSubject) -> list[Answer]:
    """Two positions that are added to a token are two vectors, so its logits differ."""
    steps = _steps(it)
    same = steps <= min(it.allowed, steps.max() / _TELLING)
    asked = f"one token alone at positions 0 to {len(steps)}"
    return [
        Answer(asked, same[:, None].astype(float), np.zeros((len(steps), 1)), np.zeros(1), 1 + np.arange(len(steps)))
    ]


def _after_padding(it: GenerationSubject) -> list[Answer]:
    """A padded batch, then a text in two pieces: nothing of the padding is left behind."""
    tokens, mask = _batch(it, [it.texts[1], it.texts[0]])
    it.model(tokens, it.model.given(np.maximum(mask.cumsum(-1) - 1, 0)), mask)
    asked = "after a padded batch, a text in two pieces"
    return [_pieces_reply(it, asked, 0, [len(it.texts[0]) // 2], itself=it.model.counting)]


def _again(it: GenerationSubject) -> list[Answer]:
    """Short, long, short again: nothing is left behind."""
    found = []
    for text in (2, 1, 0, 1, 2, 0):
        logits, _ = it.model(it.texts[text][None], None)
        found.append(it.reply(f"text {text + 1} once more", logits[0], it.wanted[text]))
    return found


def _padded(it: GenerationSubject) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    tokens, mask = _batch(it, it.texts)
    most = tokens.shape[1]
    return tokens, mask, np.maximum(mask.cumsum(-1) - 1, 0), [most - len(text) for text in it.texts]


def _batch(it: GenerationSubject, texts: list[np.ndarray], *, left: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Texts as rows of one length, padded on the left or on the right, and which tokens are none of padding."""
    most = max(map(len, texts))
    tokens = np.full((len(texts), most), it.model.pad)
    mask = np.zeros(tokens.shape, bool)
    for row, text in enumerate(texts):
        there = slice(most - len(text), most) if left else slice(len(text))
        tokens[row, there], mask[row, there] = text, True
    return tokens, mask


@dataclass(frozen=True)
class GenerationExperiment(Experiment):
    """An experiment, and what it means where it fails.

    Attributes:
        note: Why a failure is none of the model's own; empty where it is.
        codes: What explains a failure that is only noted.
    """

    note: str = ""
    codes: frozenset[str] = frozenset()


_BY_DESIGN = (
    "by design of the class, whose positions are absolute: it takes no position_ids and counts padding on the left; "
    "pad on the right"
)


def experiments(it: GenerationSubject) -> Iterator[GenerationExperiment]:
    """Those that a model can be asked, in order."""
    # Masked pads change only what counts them: a class that takes no positions cannot be told where a text begins.
    without = it.model.counting and "positions" not in it.model.takes
    by_design: dict[str, Any] = {"note": _BY_DESIGN, "codes": frozenset({"padding-shifts"})} if without else {}
    yield GenerationExperiment("a longer text", "A token's logits do not change as the text grows.", _longer)
    if _is_absolute(it):
        yield GenerationExperiment(ONE_TOKEN, "A token has other logits at another position.", _at_each_position)
    yield GenerationExperiment("with other texts", "The texts of a batch do not affect each other.", _beside)
    named = "positions" in it.model.takes
    yield GenerationExperiment(
        "left padding", "Left padding does not change a text.", lambda it: _left_padded(it, not named), **by_design
    )
    if it.model.counting and named:
        yield GenerationExperiment(
            "left padding without positions",
            "Left padding does not change a text if only the mask marks the padding.",
            lambda it: _left_padded(it, True),
            note="it counts padding as positions unless position_ids are passed, as generate does",
            codes=frozenset({"padding-shifts"}),
        )
    yield GenerationExperiment(NO_KEYS, "A query whose keys are all masked gets finite logits.", _without_keys)
    yield GenerationExperiment("right padding", "Right padding does not change a text.", _right_padded)
    yield GenerationExperiment(
        PADDED_DECODING, "Padded texts continue as they do alone.", _padded_decoding, **by_design
    )
    yield GenerationExperiment("packing", "Packed documents do not affect each other.", lambda it: _packed(it, True))
    if it.model.counting and named:
        yield GenerationExperiment(
            "packing by positions alone",
            "Restarting positions alone separate packed documents.",
            lambda it: _packed(it, False),
            note="restarting positions do not separate its documents; pass a mask of queries and keys",
            codes=frozenset({"packing-ignored"}),
        )
    for itself in (False, True) if it.model.counting and named else (not named and it.model.counting,):
        also = " without positions" if itself and named else ""
        yield GenerationExperiment(
            f"chunks{also}",
            "A prompt in chunks gives the same result as the whole prompt.",
            functools.partial(_chunked, itself=itself),
        )
        yield GenerationExperiment(
            f"one token at a time{also}",
            "Decoding gives the same result as one pass.",
            functools.partial(_decoded, itself=itself),
        )
        yield GenerationExperiment(
            f"chunks after single tokens{also}",
            "A further prompt after an answer gives the same result as the whole text.",
            functools.partial(_in_a_chat, itself=itself),
        )
    yield GenerationExperiment(
        "a copied cache", "A copied cache continues like the original.", lambda it: _resumed(it, copied)
    )
    yield GenerationExperiment(
        "a pickled cache", "A stored cache continues like the original.", lambda it: _resumed(it, pickled)
    )
    yield GenerationExperiment(
        "two continuations of one text", "Continuing a copy does not change the original cache.", _forked
    )
    yield GenerationExperiment("two alternating texts", "A text stays in its own cache.", _alternating)
    yield GenerationExperiment("a text beside a batch", "A text and a batch stay in their own caches.", _beside_batch)
    if takes_images(it.model):
        yield GenerationExperiment("alternating images", "An image has no effect on other texts.", _images)
    yield from (GenerationExperiment(*one) for one in (*CHANGED, *TREES))
    if longer_sizes(it):
        yield GenerationExperiment(LONG, "Nothing changes behind a window, a chunk or a block.", long_texts)
    yield GenerationExperiment("a text after padding", "Padding of an earlier batch has no effect.", _after_padding)
    yield GenerationExperiment("repeated call", "Longer and shorter texts leave no state behind.", _again)
