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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.calling import Refused
from clockhands.testing.bounds import UNIT
from clockhands.testing.experiments import Answer, Unasked
from clockhands.testing.generation_calling import Model


@dataclass(frozen=True)
class Instead:
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
        instead: The faults.
        first: Where the first token stands.
    """

    instead: tuple[Instead, ...] = ()
    first: int = 0


@dataclass
class Subject:
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

    model: Model
    texts: list[np.ndarray]
    allowed: float = 0.0
    slip: float = 0.0
    spec: Any = None
    shift: Callable[..., Any] | None = None
    join: Callable[..., Any] | None = None
    evict: Callable[..., Any] | None = None
    wanted: list[np.ndarray] = field(default_factory=list)

    def fresh(self) -> "Subject":
        """The same with a model that was not asked anything, where it can be copied."""
        return replace(self, model=self.model.fresh())

    def shortened(self, length: int) -> "Subject":
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
        self, asked: str, got: np.ndarray, wanted: np.ndarray, first: int = 0, instead: tuple[Instead, ...] = ()
    ) -> Reply:
        """An answer: logits of tokens from the ``first`` on."""
        return Reply(asked, got, wanted, np.asarray(self.allowed), first + np.arange(len(got)), instead, first)


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


def measured(subject: Subject) -> Subject:
    """The subject with what each text alone says, what rounding does to it, and what a slip of one position does.

    Raises:
        Refused, Unasked: It cannot be asked about the texts alone.
    """
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


def _slip(subject: Subject) -> float:
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
