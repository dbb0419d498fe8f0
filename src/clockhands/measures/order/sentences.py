"""The weights of one small attention layer over a few words, with a position code and without.

The random numbers are the same as in the explorer's page, so that both show the same: the generator takes a few lines
in any language, and a word's numbers depend on its letters only, not on its place.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.biases import Alibi, bias
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.measures.order.attention import Layer

SentenceCode = Literal["none", "sinusoidal", "rotary", "alibi"]

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

    >>> draw = SeededDraw(0)
    >>> last = [draw.uniform() for _ in range(9_992)][-1]  # eight are skipped
    >>> round(last * (2**31 - 1))  # the number that the C++ standard tells of minstd_rand
    399268537
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


def sentence_weights(words: Sequence[str], code: SentenceCode = "none", seed: int = 0) -> NDArray[np.float64]:
    """The attention weights of a sentence, first head: ``softmax(q k^T / sqrt(head width) + bias)``.

    Two heads of 16 channels, no mask. ALiBi is the symmetric form: the published one favours later keys, so it needs a
    mask.

    Args:
        words: The sentence; a word has the same vector at every place.
        code: Sines and cosines added to the words, queries and keys rotated, a bias added to the scores, or nothing.
        seed: The seed of words and weights.

    Returns:
        float64 [query, key] in the order of the sentence; each row adds up to 1 within a few 2**-53.

    >>> dog, man = (sentence_weights(words.split()) for words in ("dog bites man", "man bites dog"))
    >>> bool(abs(dog - man[::-1, ::-1]).max() < 1e-15)
    True
    """
    tokens = np.stack([word_vector(word, _WIDTH, seed) for word in words])
    layer, size = sentence_layer(seed), _WIDTH // _HEADS
    if code == "sinusoidal":
        tokens = tokens + table(Sinusoidal(width=_WIDTH), len(words), dtype="float64")
    query, key = tokens @ layer.query[0], tokens @ layer.key[0]
    if code == "rotary":
        query, key = (np.asarray(rotate(each, Rotary(head_width=size))) for each in (query, key))
    scores = query @ key.T / math.sqrt(size)
    if code == "alibi":
        scores = scores + np.asarray(bias(Alibi(_HEADS, "symmetric"), len(words), len(words), dtype="float64"))[0]
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
