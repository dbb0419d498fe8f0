r"""An attention head constructed from one matrix that attends to the token ``back`` positions before.

A shift by ``back`` tokens is the same rotation at every position ``t``: ``PE(t - back) = R_(-back) PE(t)``. A head
whose queries are multiplied by that matrix and whose keys are not changed gives the score of query ``t`` and key ``s``

    (R_(-back) PE(t)) . PE(s) = PE(t - back) . PE(s) = kernel(t - back - s),

which is largest at ``s = t - back``. With a rotary code the same works for a constant vector ``c``: the rotated query
``R_(-back) c`` and the rotated key ``c`` have the score ``(R_t R_(-back) c) . (R_s c)``. If every dimension pair of
``c`` has length 1, that is again ``kernel(t - back - s)``.

**The margin** is the score of the right token minus the highest score of any other:
``margin = kernel(0) - max of kernel(k) over 0 < |k| < length``. The kernel is even, ``kernel(0) = n`` for ``n`` pairs,
and

    gap(k) = n - kernel(k) = sum_i (1 - cos(k rate_i)).

*Why the adjacent token has the second highest score.* Let the rates be ``r**-i``, ``i = 0 … n - 1``, with ``r = base **
(1 / n)`` (or ``base ** (1 / (n - 1))`` where the span is closed), ``r <= 5``, and ``length <= base``. Put ``w = 2 pi /
(1 + r) > 1``.

1. For ``1 <= k <= w`` every phase ``k r**-i`` is at most pi and grows with ``k``: ``gap(k) >= gap(1)``.
2. For ``k > w`` the phases ``k, k / r, k / r**2, …`` pass the window from ``w`` to ``r w = 2 pi - w`` in steps of
   ``r``, so one of them, of pair ``i``, falls into it. There ``1 - cos`` is at least ``1 - cos w``. Slower pairs have
   phases in ``w / r**j`` to pi, so together ``gap(k) >= sum_(j < n - i) (1 - cos(w / r**j))``.
3. ``gap(1) = sum_(j < n) (1 - cos(r**-j))``. As ``w > 1``, term by term 2. is above 3. as far as it goes; what is left
   of 3. is a tail of at most ``r**(-2 m) / (2 (1 - r**-2))``, ``m = n - i``. From ``k < base`` follows
   ``m >= 1 + floor(ln w / ln r)``, and with that many terms ``sum_(j < m) (cos(r**-j) - cos(w / r**j))`` is larger than
   the tail for all ``1 < r <= 5``.

So ``margin = gap(1) = sum_i (1 - cos(rate_i))`` for every length up to the base. With the integral in place of the sum
(Euler and Maclaurin; ``Cin(1) = 0.23981`` the integral of ``(1 - cos x) / x``) an open span has

    margin = 0.23981 n / ln(base) + 0.22985 + 0.0701 ln(base) / n,

which grows with the width and shrinks, slowly, with the base: 0.515 at 16 channels, 1.083 at 64, 6.898 at 512 and
base 10,000 (the estimate is within 0.005 there, and nearer the wider the code). ``r <= 5`` takes ``ln(base) / ln(5)``
pairs: 12 channels at base 10,000.

*Where it fails.* With fewer pairs (8 channels: ``r = 10``) a distance can be nearly a whole number of rotations of the
fast pairs while the slow pairs have hardly rotated. Beyond a distance of about the base this happens to all pairs: if
the rates have a common period, several tokens get exactly the same score. Scores are also rounded: the right token
certainly wins only while the margin is above twice the error of a score, in float32 about ``n width 2**-24``. Two
channels fail at 710 tokens, which is 113 full rotations to within 6e-5: a margin of 2e-9.

*How sharp.* Scores are divided by the temperature before the softmax. The attention weight of the right token is at
least ``1 / (1 + (length - 1) exp(-margin / temperature))``, so ``1 - e`` of it for ``temperature <= margin / ln((length
- 1) / e)``.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clockhands.arguments import count, positive, real
from clockhands.encodings.clocks import Clock, kernel, shift
from clockhands.encodings.layouts import pair_channels
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_CHUNK = 1 << 16


class RelativeHead(NamedTuple):
    """The matrices of an attention head and its constant input; float64.

    Attributes:
        query: The query matrix: ``q = x @ query.T``, [width, width].
        key: The key matrix, the identity.
        constant: For a rotary code the vector that every token holds, [head_width]: queries and keys are computed from
            it before they are rotated by position. None for an additive code, whose table rows are the input.
    """

    query: np.ndarray
    key: np.ndarray
    constant: np.ndarray | None


def relative_head(spec: Any, back: int | float, temperature: float = 1.0) -> RelativeHead:
    """The head that attends to the token ``back`` tokens before: ``q . k = kernel(t - back - s) / temperature``.

    ``query = shift(spec, -back) / temperature`` and ``key`` is the identity. Scores are ``q . k`` as they are: where
    a model divides them by ``sqrt(head_width)``, give ``temperature / sqrt(head_width)``. With a rotary code, queries
    and keys are rotated by `rotate` afterwards, whose attention factor is divided out here. If the tokens also hold
    content of norm at most ``e``, a score changes by at most ``(2 e sqrt(pairs) + e**2) / temperature``. For the first
    ``back`` tokens there is no token that far back; they attend to the first token.

    Args:
        spec: `Sinusoidal`, `Rotary`, or another code that has a shift matrix.
        back: Number of tokens to look back; negative looks ahead.
        temperature: Divisor of the scores.

    Accuracy: each entry of ``query`` within 2 ulp of the largest.

    Raises:
        InvalidValue: The code has no shift matrix; the message says why. Or an argument cannot be used.
        InvalidType: ``spec`` is not a position code.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5, which conjectures that such heads are easy to learn.

    >>> from clockhands.encodings.additive import Sinusoidal, table
    >>> spec = Sinusoidal(width=16)
    >>> head, rows = relative_head(spec, back=3), table(spec, 8, "float64")
    >>> scores = (rows @ head.query.T) @ (rows @ head.key.T).T
    >>> scores.argmax(axis=1).tolist()[3:]
    [0, 1, 2, 3, 4]
    """
    if isinstance(back, Sequence | np.ndarray) and not isinstance(back, str):
        raise InvalidType(
            f"`back` must be one number of tokens, got {shown(back)}.",
            "To look back by several distances, make one head for each.",
        )
    number = real("back", back)
    distance = back if isinstance(back, int) else number
    if not math.isfinite(number):
        raise InvalidValue(f"`back` must be finite, got {shown(back)}.", "Give a number of tokens.")
    matrix = shift(spec, -distance) / positive("temperature", temperature)
    clock: Clock = spec.clock()
    key = np.eye(len(matrix))
    if hasattr(spec, "width"):
        return RelativeHead(matrix, key, None)
    channels = pair_channels(clock.ladder.pairs, clock.layout) if clock.channels is None else clock.channels
    constant = np.zeros(len(matrix))
    constant[channels[:, 0]] = 1
    return RelativeHead(matrix / clock.ladder.attention_factor**2, key, constant)


def margin(spec: Any, length: int) -> float:
    """The right token's score minus the highest other score: ``kernel(0) - max of kernel(k), 0 < |k| < length``.

    Computed at every distance. For a geometric ladder, lengths up to its base and a ratio of neighbouring rates of at
    most 5 it is ``sum_i (1 - cos(rate_i))``, as the module derives. About 0 means that another position has nearly the
    same code.

    Args:
        spec: A code with a kernel, such as `Sinusoidal` or `Rotary`.
        length: Tokens of the sequence, at least 2.

    Accuracy: within ``pairs`` ulp of ``pairs``, the rounding of two kernels.

    Raises:
        InvalidValue: The code has no kernel; the message says why. Or the length is below 2.
        InvalidType: ``spec`` is not a position code.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> [round(margin(Sinusoidal(width), 4096), 3) for width in (16, 64, 512)]
    [0.515, 1.083, 6.898]
    """
    length = count("length", length, least=2)
    nearest = -np.inf
    for begin in range(1, length, _CHUNK):
        nearest = max(nearest, float(kernel(spec, range(begin, min(begin + _CHUNK, length))).max()))
    return float(kernel(spec, [0])[0]) - nearest
