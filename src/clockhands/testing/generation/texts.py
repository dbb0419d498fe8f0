r"""A model under experiment: its texts, what it says of each alone, and how far rounding may move an answer.

How far is measured, not assumed: the same passes are made in shapes in which sums come in another order (a text beside
others, a text before it grew longer), and the largest difference ``d`` of a logit is what rounding does to one pass
beside another. Two passes of other shapes may each be as far off, on either side, and there are dozens of answers of
which the worst one counts: ``8 d`` is allowed. Where all these shapes happen to sum in one order, ``d`` says nothing of
a single token, which other kernels answer: never less is allowed than 64 roundings of the largest logit, what roundings
at random come to in sums of 4,096 terms, as wide as layers are, in float32 also where the answers are float64, behind
which float32 may stand. A difference above ``2**11`` roundings, or a quarter of
the largest logit, is not taken for rounding: it is an answer that depends on how the text is given, and an experiment
says so. Most roundings of two passes may be the same ones, as in bfloat16 and float16, or where all texts are padded
to one chunk of a recurrence, and ``d`` says too little: where a model can be copied, what its copy in higher precision
says is ``e`` away (in float64 of float32, where that is rounding, too; else in float32), and each of two passes may be
that far off, the worst of dozens twice as far, so ``4 e`` is allowed.

Deep layers with large weights amplify roundings thousands of times, and some tokens' far more than others', so a few
shapes may miss the worst. Of a PyTorch model ``m`` is measured as well: the largest change of a logit when all products
of matrices are rounded otherwise (`clockhands.models.product_roundings`), in one pass over each text, of the same shape
and positions. No fault of positions can enlarge it, so it has no upper limit. It is a draw at every token, and of sound
models of 2 to 30 layers the worst answer was 0.2 to 4.6 times as far off: ``8 m`` is allowed.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.bounds import UNIT
from clockhands.testing.generation._causal_models import CausalModel


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
        long_sizes: Behind which sizes a long text is tried; none where somebody said how long texts shall be.
        shifts: Whether ``shift`` was given or found: a fault that is imposed always has one.
        drops: Whether ``shift`` drops the first rows, and moves the others back.
        wanted: The logits of each text alone, [tokens, vocabulary] each.
        sizes: Windows, chunks and blocks behind which something is wrong.
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
    sizes: tuple[int, ...] = ()
    drops: bool = False
    long_sizes: tuple[int, ...] = ()
    shifts: bool = False

    def fresh(self) -> "GenerationSubject":
        """The same with a model that was not asked anything, where it can be copied."""
        return replace(self, model=self.model.fresh())

    def recorded(self) -> "GenerationSubject":
        """The same with such a model, whose answers are kept."""
        return replace(self, model=replace(self.model.fresh(), answers=[]))

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

    def reply(self, asked: str, got: np.ndarray, wanted: np.ndarray, first: int = 0) -> Answer:
        """An answer: logits of tokens from the ``first`` on."""
        return Answer(asked, got, wanted, np.asarray(self.allowed), first + np.arange(len(got)))


def lengths(longest: int) -> tuple[int, int, int]:
    """Tokens of the three texts."""
    return longest, max(2 * longest // 3, 3), max(longest // 3 + 1, 2)


def texts_of(vocabulary: int, longest: int, without: int | None = None) -> list[np.ndarray]:
    """Three texts of tokens drawn at random, without one of them; in each some token comes twice."""
    draw = np.random.default_rng(14)
    made = [draw.integers(0, vocabulary, size) for size in lengths(longest)]
    for text in made:
        if without is not None:
            text[text == without] = (without + 1) % vocabulary
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
    finer = made.model.finer() if unit >= UNIT["float32"] else None
    with suppress(Refused):  # code of a class may not run in float64
        if finer is not None:
            exact = [finer(each[None])[0][0] for each in made.texts]
            own = max(float(np.abs(one - each).max()) for one, each in zip(exact, made.wanted, strict=True))
            floor = 0.0 if unit > UNIT["float32"] else floor
            own = own if unit > UNIT["float32"] or own <= most else 0.0
    made.allowed = max(8 * max(noise, _amplified(made)), 4 * own, floor) or float(np.finfo(float).tiny)
    made.slip = _slip(made)
    if made.model.window is None and "mask" in made.model.takes:
        made.model = replace(made.model, window=_window(made))
    return made


def _amplified(subject: GenerationSubject) -> float:
    """The largest change of a logit when products of matrices are rounded otherwise; 0 where that cannot be done."""
    if subject.model.library.name != "torch":
        return 0.0
    from clockhands.models.product_roundings import other_roundings

    moved = [0.0]
    with suppress(Refused):  # code that was compiled, or kernels of its own
        for seed, (text, wanted) in enumerate(zip(subject.texts, subject.wanted, strict=True)):
            logits, _ = replace(subject.model.fresh(), watch=partial(other_roundings, seed))(text[None])
            moved.append(float(np.abs(logits[0] - wanted).max()))
    return max(each for each in moved if np.isfinite(each))


def _window(subject: GenerationSubject) -> int | None:
    """The keys that a query sees at most, where the last token of the longest text does not see the first.

    All keys are masked but that of the last token and one other: where the other makes no difference, it is not seen.
    The other is another token, as one with the same value would make none either.
    """
    text = np.full(len(subject.texts[0]), subject.texts[0][-1])
    text[:-1] = (text[:-1] + 1) % subject.model.vocabulary
    masks = np.eye(len(text), dtype=bool)
    masks[:, -1] = True
    try:
        logits, _ = subject.fresh().model(np.tile(text, (len(text), 1)), None, masks)
    except (Refused, Unasked):
        return None
    seen = np.abs(logits[:-1, -1] - logits[-1, -1]).max(axis=-1) > subject.allowed
    first = int(np.argmax(seen))
    return len(text) - first if seen[first:].all() and first else None


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
