"""A task of the lab: batches of tokens and targets, and bounds of the scores."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log
from typing import Any, ClassVar

import numpy as np

from clockhands.arguments import count, one_of
from clockhands.encodings.memory import refuse_larger
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# A target without an answer, which `torch.nn.functional.cross_entropy` ignores.
IGNORED = -100

# Exact bounds by the bag of words are computed up to this number of draws; it takes a fraction of a second.
MOST_DRAWS = 1024


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of tokens, and what a model must answer.

    Attributes:
        tokens: int64 [sequences, length].
        targets: int64 [sequences, length]. The token to say at this position (for language, the next one): nothing
            is left to shift. `IGNORED` where no answer is asked.
        places: int64 [sequences, length], or None. By what the score is reported (the task's `place` says what it
            is); `IGNORED` where no answer is asked. None: by absolute position.
    """

    tokens: np.ndarray
    targets: np.ndarray
    places: np.ndarray | None = None


class Task(ABC):
    """A source of training batches and held-out batches of any length.

    Attributes:
        causal: Whether a position may see only itself and what is before it. False: a bidirectional encoder.
        protocols: The ways to evaluate, the usual one first.
        place: What `Batch.places` counts, with its unit.
        axes: Coordinates of a token: 1 of a text; 2 of a square image, whose tokens are its cells, row by row.
    """

    causal: ClassVar[bool] = True
    protocols: ClassVar[tuple[str, ...]] = ("whole",)
    place: ClassVar[str] = "position (token)"
    axes: ClassVar[int] = 1

    vocabulary: Any  # a field of some tasks, computed by others

    @property
    @abstractmethod
    def least_length(self) -> int:
        """The shortest length that has an answer to ask for (token)."""

    @property
    def most_length(self) -> int | None:
        """The greatest length (token); None where there is none."""
        return None

    @property
    def for_tuning(self) -> "Task":
        """The task that rates are chosen by: its sequences, drawn with other seeds, are not those of a report."""
        return self

    def check(self, length: int) -> int:
        """`length` as an int, if the task has sequences of this length.

        Raises:
            InvalidType, InvalidValue: It is not a whole number, too short or too long.
            ClockhandsError: The text of a language task cannot be used.
        """
        length = count("length", length)
        name = type(self).__name__.lower()
        if length < self.least_length:
            raise InvalidValue(
                f"`length` must be at least {self.least_length} tokens for this {name} task, got {length}.",
                "Use a greater length, or change the fields of the task.",
            )
        if self.most_length is not None and length > self.most_length:
            raise InvalidValue(
                f"`length` must be at most {self.most_length} tokens for this {name} task, got {length}.",
                self._longer(),
            )
        return length

    def batch(self, rng: np.random.Generator, sequences: int, length: int) -> Batch:
        """Sequences to train on.

        Raises:
            InvalidType, InvalidValue: An argument cannot be used, or the length is too short or too long.
            TooLarge: The batch would not fit in memory.
        """
        return self._batch(rng, *self._checked(rng, sequences, length), even=False)

    def evaluation(
        self, rng: np.random.Generator, sequences: int, length: int, protocol: str = "whole"
    ) -> Iterator[Batch]:
        """Held-out batches.

        A synthetic task gives one batch of `sequences` new sequences. Language gives batches of at most `sequences`
        windows until all tokens to be scored were scored, each once.

        Args:
            rng: All that is random comes from here; language needs nothing of it.
            sequences: Sequences of a batch.
            length: Tokens of a sequence.
            protocol: One of `protocols`.

        Raises:
            InvalidType, InvalidValue: An argument cannot be used, or the length is too short or too long.
            TooLarge: The batch would not fit in memory.
        """
        sequences, length = self._checked(rng, sequences, length)
        one_of("protocol", protocol, self.protocols, "The task's `protocols` lists them.")
        return self._evaluation(rng, sequences, length, protocol)

    @abstractmethod
    def bounds(self, length: int) -> dict[str, float]:
        """The exactly derived bounds of the scores at this length.

        Keys end in their unit: `_accuracy` (0 to 1, mean over the positions asked for) or `_loss` (nat per token).
        `chance` is the best that can be done without the input; `bag` is the best with all tokens that the position
        may see, but not their order. No model without a position code beats `bag` where it is bidirectional, or
        causal with one layer; several causal layers can.
        """

    @abstractmethod
    def _batch(self, rng: np.random.Generator, sequences: int, length: int, *, even: bool) -> Batch:
        """A batch; `even` spreads what is asked for evenly over the places."""

    def _evaluation(self, rng: np.random.Generator, sequences: int, length: int, protocol: str) -> Iterator[Batch]:
        return iter((self._batch(rng, sequences, length, even=True),))

    def _longer(self) -> str:
        return "Use a smaller length."

    def _checked(self, rng: object, sequences: int, length: int) -> tuple[int, int]:
        if not isinstance(rng, np.random.Generator):
            raise InvalidType(
                f"`rng` must be a numpy.random.Generator, got {shown(rng)}.",
                "Write rng=numpy.random.default_rng(seed) once, and pass it on.",
            )
        sequences, length = count("sequences", sequences), self.check(length)
        refuse_larger((3, sequences, length), 8, "A batch", "Use fewer sequences or a smaller length.")
        return sequences, length


def different(
    rng: np.random.Generator, rows: int, number: int, out_of: int, without: np.ndarray | None = None
) -> np.ndarray:
    """`number` different whole numbers below `out_of`, in random order, in each row; int64 [rows, number].

    Args:
        rng: All that is random comes from here.
        rows: Rows, each with its own numbers.
        number: Numbers in a row.
        out_of: The numbers are 0 to `out_of` - 1.
        without: Numbers that a row may not have, int64 [rows, any].
    """
    scores = rng.random((rows, out_of))
    if without is not None:
        np.put_along_axis(scores, without, 2.0, 1)
    chosen = np.argpartition(scores, number, 1)[:, :number] if number < out_of else np.argsort(scores, 1)
    # A partition is no random order: sort what it chose.
    order = np.take_along_axis(scores, chosen, 1).argsort(1)
    return np.take_along_axis(chosen, order, 1)


@lru_cache(maxsize=16)
def most_common_share(most: int, symbols: int) -> np.ndarray:
    """Expected share of the most common of t random symbols, for t = 1 to `most`; float64 [most].

    It is the sum over m of P(some symbol comes more than m times), over t. Given Poisson counts instead of a fixed
    number of draws, the symbols are independent, and P(none comes more than m times) is a coefficient of the power of
    a polynomial; dividing by the probability of t draws gives the answer for exactly t.
    """
    mean = min(most, 600) / symbols
    log_poisson = np.array([j * log(mean) - mean - lgamma(j + 1) for j in range(most + 1)])
    total = mean * symbols
    of_draws = np.array([exp(t * log(total) - total - lgamma(t + 1)) for t in range(1, most + 1)])
    expected = np.ones(most)  # m = 0: some symbol always comes
    for m in range(1, most):
        one = np.exp(log_poisson[: m + 1])
        none_more = _power(one, symbols, most)[1:] / of_draws
        expected += np.maximum(0, 1 - none_more)
        if none_more.min() > 1 - 1e-13:
            break
    return expected / np.arange(1, most + 1)


def _power(polynomial: np.ndarray, exponent: int, degree: int) -> np.ndarray:
    """The power of a polynomial, coefficients up to a degree, by repeated squaring."""
    result, square = np.ones(1), polynomial
    while exponent:
        if exponent & 1:
            result = np.convolve(result, square)[: degree + 1]
        exponent >>= 1
        if exponent:
            square = np.convolve(square, square)[: degree + 1]
    return np.pad(result, (0, degree + 1 - len(result)))
