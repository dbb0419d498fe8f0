"""The drawn weights of one small attention layer, and the vectors of its words.

The random numbers are the same as in the explorer's page, so that both show the same: the generator takes a few lines
in any language, and a word's numbers depend on its letters only, not on its place.
"""

import math

import numpy as np
from numpy.typing import NDArray

from clockhands.measures.order.attention import Layer

_MODULUS, _MULTIPLIER = 2**31 - 1, 48271
_SKIPPED = 8  # neighbouring seeds start similarly
_WIDTH, _HEADS = 32, 2


class SeededDraw:
    """Random numbers from a seed, the same in every programming language.

    The generator is Park and Miller's with the multiplier 48271, ``s <- 48271 s mod (2**31 - 1)``, and a normal number
    is computed from two uniform ones by the Box-Muller method.

    Args:
        seed: The seed.

    Source: Park and Miller 1988, Communications of the ACM 31, 1192-1201; the multiplier is that of their note of 1993
    (ibid. 36, 108-110).
    """

    def __init__(self, seed: int) -> None:
        self._state = abs(seed) % (_MODULUS - 1) + 1
        for _ in range(_SKIPPED):
            self.uniform()

    def uniform(self) -> float:
        """A number between 0 and 1."""
        self._state = self._state * _MULTIPLIER % _MODULUS
        return self._state / _MODULUS

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Normal numbers of mean 0 and variance 1, float64, in the order of the axes."""
        pairs = [(self.uniform(), self.uniform()) for _ in range(math.prod(shape))]
        numbers = [math.sqrt(-2 * math.log(a)) * math.cos(2 * math.pi * b) for a, b in pairs]
        return np.array(numbers).reshape(shape)


def word_vector(word: str, width: int, seed: int) -> NDArray[np.float64]:
    """A vector of normal numbers for a word, float64 [width], by its letters and a seed."""
    for letter in word:
        seed = (seed * 31 + ord(letter)) % (_MODULUS - 1)
    return SeededDraw(seed).normal(width)


def sentence_layer(seed: int, width: int = _WIDTH, heads: int = _HEADS) -> Layer:
    """A layer of random weights of mean 0 and variance 1 / width, without a feed-forward network.

    Args:
        seed: The seed.
        width: Channels of a token, a multiple of ``heads``.
        heads: Heads, of ``width / heads`` channels each.
    """
    draw, size = SeededDraw(seed), width // heads
    query, key, value = (draw.normal(heads, width, size) / math.sqrt(width) for _ in range(3))
    return Layer(query, key, value, draw.normal(heads, size, width) / math.sqrt(width))
