"""Problems of published suites as tasks: algorithms on symbols, retrieval from pairs, and cells of an image.

Each is a table of generators, so that another problem is one function and one row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt, lgamma, log, log1p
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clockhands.arguments import count, one_of, set_fields, truth
from clockhands.errors import InvalidValue
from clockhands.lab.task import IGNORED, MOST_DRAWS, Batch, Task, different, most_common_share

Rng = np.random.Generator


class Problem(NamedTuple):
    """An algorithm on symbols.

    Attributes:
        draw: Makes the question and the answer from a generator, the size and the number of symbols.
        tokens: Tokens of a question and its answer: so many for each of the size, and so many more.
        chance: Best accuracy without the question, from the size and the number of symbols.
        of_bag: Whether the answer does not depend on the order of the question.
    """

    draw: Callable[[Rng, int, int], tuple[np.ndarray, Any]]
    tokens: tuple[int, int]
    chance: Callable[[int, int], float]
    of_bag: bool = False


def _symbols(rng: Rng, size: int, symbols: int) -> np.ndarray:
    return rng.integers(symbols, size=size)


def _copy(rng: Rng, size: int, symbols: int) -> tuple[np.ndarray, Any]:
    drawn = _symbols(rng, size, symbols)
    return drawn, drawn


def _reversal(rng: Rng, size: int, symbols: int) -> tuple[np.ndarray, Any]:
    drawn = _symbols(rng, size, symbols)
    return drawn, drawn[::-1]


def _sorting(rng: Rng, size: int, symbols: int) -> tuple[np.ndarray, Any]:
    drawn = _symbols(rng, size, symbols)
    return drawn, np.sort(drawn)


def _parity(rng: Rng, size: int, _: int) -> tuple[np.ndarray, Any]:
    drawn = _symbols(rng, size, 2)
    return drawn, [drawn.sum() % 2]


def _counting(rng: Rng, size: int, symbols: int) -> tuple[np.ndarray, Any]:
    drawn = _symbols(rng, size, symbols)
    return drawn, [(drawn == 0).sum() % symbols]


def _addition(rng: Rng, size: int, symbols: int) -> tuple[np.ndarray, Any]:
    """Two numbers in the base ``symbols``, with a plus between them; all three begin with their last digit."""
    one, other = _symbols(rng, size, symbols), _symbols(rng, size, symbols)
    answer, carry = np.zeros(size + 1, int), 0
    for digit in range(size):
        carry, answer[digit] = divmod(one[digit] + other[digit] + carry, symbols)
    answer[size] = carry
    return np.concatenate([one, [symbols + 1], other]), answer


def _uniform(_: int, symbols: int) -> float:
    return 1 / symbols


def _even(_size: int, _symbols: int) -> float:
    return 0.5


def _binomial(size: int, share: float) -> np.ndarray:
    """The probability of each number of successes, 0 to ``size``."""
    logarithms = [
        lgamma(size + 1) - lgamma(k + 1) - lgamma(size - k + 1) + k * log(share) + (size - k) * log1p(-share)
        for k in range(size + 1)
    ]
    return np.exp(logarithms)


def _chance_of_sorting(size: int, symbols: int) -> float:
    """The commonest symbol at each place: the k-th smallest is at most v where k or more symbols are."""
    below = [_binomial(size, (v + 1) / symbols)[:0:-1].cumsum()[::-1] for v in range(symbols - 1)]
    return float(np.diff([*below, np.ones(size)], axis=0, prepend=0.0).max(0).mean())


def _chance_of_counting(size: int, symbols: int) -> float:
    return float(np.bincount(np.arange(size + 1) % symbols, _binomial(size, 1 / symbols)).max())


def _chance_of_addition(size: int, symbols: int) -> float:
    """Each digit is any symbol alike, but the last: it is the carry, which is 0 in ``(b^n + 1) / (2 b^n)`` of cases."""
    return (size / symbols + (1 + symbols**-size) / 2) / (size + 1)


PROBLEMS: Mapping[str, Problem] = MappingProxyType(
    {
        "copy": Problem(_copy, (2, 0), _uniform),
        "reversal": Problem(_reversal, (2, 0), _uniform),
        "sorting": Problem(_sorting, (2, 0), _chance_of_sorting, of_bag=True),
        "addition": Problem(_addition, (3, 2), _chance_of_addition),
        "parity": Problem(_parity, (1, 1), _even, of_bag=True),
        "counting": Problem(_counting, (1, 1), _chance_of_counting, of_bag=True),
    }
)


_VARIED = "true: sizes up to the largest; false: the largest alone."


@dataclass(frozen=True)
class Algorithm(Task):
    """An algorithm on symbols: a question, a separator, and the answer, token by token, after its own first tokens.

    ``copy``, ``reversal`` and ``sorting`` answer with as many symbols as the question has. ``parity`` (of bits) and
    ``counting`` (of symbol 0, modulo ``symbols``) answer with one. ``addition`` is of two numbers whose digits begin
    with the last. In training sizes are drawn from 1 to the largest that the length takes, with padding after the
    answer; evaluation has the largest. So training at 64 tokens and evaluation at 256 is training on short questions
    and a test on long ones, as in Kazemnejad et al. 2023, arXiv:2305.19466, and Delétang et al. 2022, arXiv:2207.02098.

    Attributes:
        problem: One of `PROBLEMS`.
        symbols: Different symbols, all equally likely; the base of ``addition``.
        varied: Whether sizes vary in training.
    """

    problem: str = "reversal"
    symbols: int = 10
    varied: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, symbols=count("symbols", self.symbols, 2), varied=truth("varied", self.varied, _VARIED))
        one_of("problem", self.problem, PROBLEMS, "Each is described with the task.")

    @property
    def vocabulary(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The symbols, the separator, a plus, and the padding."""
        return self.symbols + 3

    @property
    def least_length(self) -> int:
        """A question of size 1."""
        return sum(PROBLEMS[self.problem].tokens)

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, of an answer that knows neither the question nor its own first tokens; and the bag, where it is 1."""
        problem = PROBLEMS[self.problem]
        found = {"chance_accuracy": problem.chance(self._size(self.check(length)), self.symbols), "best_accuracy": 1.0}
        return found | ({"bag_accuracy": 1.0} if problem.of_bag else {})

    def _size(self, length: int) -> int:
        each, more = PROBLEMS[self.problem].tokens
        return (length - more) // each

    def _batch(self, rng: Rng, sequences: int, length: int, *, even: bool) -> Batch:
        most = self._size(length)
        sizes = rng.integers(1, most + 1, size=sequences) if self.varied and not even else np.full(sequences, most)
        tokens = np.full((sequences, length), self.symbols + 2)
        targets = np.full_like(tokens, IGNORED)
        for row, size in enumerate(sizes):
            question, answer = PROBLEMS[self.problem].draw(rng, int(size), self.symbols)
            start, end = len(question), len(question) + len(answer)
            tokens[row, :end] = [*question, self.symbols, *answer[:-1]]
            targets[row, start:end] = answer
        return Batch(tokens, targets)


class RetrievalDraw(NamedTuple):
    """What a retrieval problem draws for each sequence.

    Attributes:
        statements: Tokens of the statements, [sequences, statements, tokens of one].
        at: Where each begins, [sequences, statements].
        questions: Where a token asks, and which it is, [2, sequences, questions].
        answers: The tokens to say there, [sequences, questions].
        values_at: Where the value of each answer is, [sequences, questions].
    """

    statements: np.ndarray
    at: np.ndarray
    questions: np.ndarray
    answers: np.ndarray
    values_at: np.ndarray


def _mqar(task: "Retrieval", rng: Rng, rows: int, length: int) -> RetrievalDraw:
    """All pairs first; then each key once more, near places more often: with probability ~ 1 / place^0.99."""
    keys, values = task.drawn_keys(rng, rows, task.pairs), task.drawn_values(rng, rows, task.pairs)
    start = 2 * task.pairs
    weights = np.arange(1, length - start + 1) ** -0.99
    # The smallest of exponential times over their weights are a draw without replacement.
    later = start + np.argsort(rng.exponential(size=(rows, length - start)) / weights, 1)[:, : task.pairs]
    at = np.broadcast_to(2 * np.arange(task.pairs), keys.shape)
    return RetrievalDraw(np.stack([keys, values], -1), at, np.stack([later, keys]), values, at + 1)


def _needle(task: "Retrieval", rng: Rng, rows: int, length: int) -> RetrievalDraw:
    """Needles anywhere: a key and ``steps`` values. At the end one key, to be answered with its values."""
    keys = task.drawn_keys(rng, rows, task.pairs)
    values = task.drawn_values(rng, rows, task.pairs, task.steps)
    at = _places(rng, rows, task.pairs, 1 + task.steps, length - task.steps)
    asked = np.concatenate([keys[:, :1], values[:, 0, :-1]], 1)
    where = np.broadcast_to(np.arange(length - task.steps, length), asked.shape)
    values_at = at[:, :1] + 1 + np.arange(task.steps)
    needles = np.concatenate([keys[..., None], values], -1)
    return RetrievalDraw(needles, at, np.stack([where, asked]), values[:, 0], values_at)


def _tracking(task: "Retrieval", rng: Rng, rows: int, length: int) -> RetrievalDraw:
    """Chains: a name with a value, then ``steps`` names, each with the name before. At the end the last name of one."""
    names = task.drawn_keys(rng, rows, task.pairs * (1 + task.steps)).reshape(rows, task.pairs, -1)
    values = task.drawn_values(rng, rows, task.pairs, 1)
    at = _places(rng, rows, names[0].size, 2, length - 1).reshape(names.shape)
    at = np.sort(at, -1)  # a name is defined before it is used
    sources = np.concatenate([values, names[..., :-1]], -1)
    statements = np.stack([names, sources], -1).reshape(rows, -1, 2)
    asked = np.stack([np.full((rows, 1), length - 1), names[:, 0, -1:]])
    return RetrievalDraw(statements, at.reshape(rows, -1), asked, values[:, 0], at[:, 0, :1] + 1)


def _places(rng: Rng, rows: int, number: int, width: int, body: int) -> np.ndarray:
    """Where ``number`` statements of ``width`` tokens begin, in random order, none over another."""
    slots = body // width
    return rng.integers(body - width * slots + 1, size=(rows, 1)) + width * different(rng, rows, number, slots)


RETRIEVALS: Mapping[str, Callable[["Retrieval", Rng, int, int], RetrievalDraw]] = MappingProxyType(
    {"mqar": _mqar, "needle": _needle, "tracking": _tracking}
)


@dataclass(frozen=True)
class Retrieval(Task):
    """Retrieval from the pairs of a sequence, as in three published suites.

    - ``mqar``: pairs of a key and a value, then every key once more among fillers, to be answered with its value
      (Arora et al. 2023, arXiv:2312.04927).
    - ``needle``: needles of a key and ``steps`` values among fillers; one key at the end is answered with its values,
      and the other needles distract (the multi-key needle of RULER, arXiv:2404.06654).
    - ``tracking``: chains of names among fillers, the first with a value, each further one with the name before it, in
      ``steps`` steps; the last name of one chain is answered with its value (the variable tracking of RULER).

    Keys (or names), values and fillers are different tokens, in this order. `places` is the distance from the question
    back to the value.

    Attributes:
        problem: One of `RETRIEVALS`.
        pairs: Pairs, needles or chains in a sequence.
        keys: Different keys, or names.
        values: Different values, all equally likely.
        fillers: Different fillers, all equally likely.
        steps: Values of a needle, or steps of a chain.
    """

    place: ClassVar[str] = "distance (token)"

    problem: str = "mqar"
    pairs: int = 4
    keys: int = 32
    values: int = 16
    fillers: int = 4
    steps: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        least = {"pairs": 1, "keys": 1, "values": 2, "fillers": 1, "steps": 1}
        set_fields(self, **{name: count(name, getattr(self, name), number) for name, number in least.items()})
        one_of("problem", self.problem, RETRIEVALS, "Each is described with the task.")
        needed = self.pairs * (1 + self.steps if self.problem == "tracking" else 1)
        if needed > self.keys:
            raise InvalidValue(
                f"`keys` must be at least {needed}, got {self.keys}.", "No key, or name, comes twice in a sequence."
            )

    @property
    def vocabulary(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Keys, values and fillers."""
        return self.keys + self.values + self.fillers

    @property
    def least_length(self) -> int:
        """The statements and the questions."""
        stated = {"mqar": 3, "needle": 1 + self.steps, "tracking": 2 * (1 + self.steps)}[self.problem] * self.pairs
        return stated + {"mqar": 0, "needle": self.steps, "tracking": 1}[self.problem]

    def bounds(self, length: int) -> dict[str, float]:
        """Chance; and the bag, where one value is asked for: the most common of the sequence."""
        self.check(length)
        found = {"chance_accuracy": 1 / self.values, "chance_loss": log(self.values), "best_accuracy": 1.0}
        if (self.problem == "needle" and self.steps > 1) or self.pairs > MOST_DRAWS:
            return found
        return found | {"bag_accuracy": float(most_common_share(self.pairs, self.values)[-1])}

    def drawn_keys(self, rng: Rng, rows: int, number: int) -> np.ndarray:
        """Different keys, [rows, number]."""
        return different(rng, rows, number, self.keys)

    def drawn_values(self, rng: Rng, *shape: int) -> np.ndarray:
        """Values of any shape."""
        return self.keys + rng.integers(self.values, size=shape)

    def _batch(self, rng: Rng, sequences: int, length: int, *, even: bool) -> Batch:
        drawn = RETRIEVALS[self.problem](self, rng, sequences, length)
        tokens = rng.integers(self.keys + self.values, self.vocabulary, size=(sequences, length))
        for token in range(drawn.statements.shape[-1]):
            np.put_along_axis(tokens, drawn.at + token, drawn.statements[..., token], 1)
        where, asked = drawn.questions
        np.put_along_axis(tokens, where, asked, 1)
        targets, places = np.full_like(tokens, IGNORED), np.full_like(tokens, IGNORED)
        np.put_along_axis(targets, where, drawn.answers, 1)
        np.put_along_axis(places, where, where - drawn.values_at, 1)
        return Batch(tokens, targets, places)


@dataclass(frozen=True)
class Neighbour(Task):
    """Cells of a square image: say the cell that is ``down`` rows above and ``right`` columns to the left.

    The tokens are the cells, row by row, and each sees all. In a wider image the same neighbour is further back in the
    sequence, so that an encoding of one axis has the answer at the trained side only, and one of two axes at any: a
    study trains at 64 tokens (8 x 8), say, and evaluates at 256 (16 x 16). Encodings of two axes, such as
    ``{ type = "Rotary", axes = [0, 0, 1, 1], spacing = "per-axis" }``, get (row, column).

    Attributes:
        vocabulary: Different cells; all are equally likely.
        down: Rows between a cell and the one that is asked for.
        right: Columns between them.
    """

    causal: ClassVar[bool] = False
    axes: ClassVar[int] = 2

    vocabulary: int = 16
    down: int = 1
    right: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            vocabulary=count("vocabulary", self.vocabulary, 2),
            down=count("down", self.down, 0),
            right=count("right", self.right, 0),
        )
        if not self.down + self.right:
            raise InvalidValue("`down` and `right` must not both be 0.", "A cell would be its own answer.")

    @property
    def least_length(self) -> int:
        """The smallest square in which a cell has the neighbour."""
        return (max(self.down, self.right) + 1) ** 2

    def check(self, length: int) -> int:
        """`length` as an int, if it is a square that is large enough."""
        length = super().check(length)
        side = isqrt(length)
        if side**2 != length:
            raise InvalidValue(
                f"`length` must be the cells of a square image, got {length}.", f"Use {side**2} or {(side + 1) ** 2}."
            )
        return length

    def bounds(self, length: int) -> dict[str, float]:
        """Chance, and the bag (up to a length of 1,025): the most common of the other cells."""
        others = self.check(length) - 1
        found = {"chance_accuracy": 1 / self.vocabulary, "chance_loss": log(self.vocabulary), "best_accuracy": 1.0}
        if others > MOST_DRAWS:
            return found
        return found | {"bag_accuracy": float(most_common_share(others, self.vocabulary)[-1])}

    def _batch(self, rng: Rng, sequences: int, length: int, *, even: bool) -> Batch:
        side = isqrt(length)
        cells = rng.integers(self.vocabulary, size=(sequences, side, side))
        targets = np.full_like(cells, IGNORED)
        targets[:, self.down :, self.right :] = cells[:, : side - self.down, : side - self.right]
        return Batch(cells.reshape(sequences, length), targets.reshape(sequences, length))
