"""Standard attention in float64, with random weights instead of trained ones; each result has an error bound.

A layer has several heads: queries, keys and values are projections of the tokens; scores are divided by the square root
of the head's width; a position code may rotate queries and keys or add a bias; the softmax of the scores weights the
values; the heads are projected back and added to the tokens. An optional feed-forward network of two layers with a ReLU
then acts on each token separately. There is no normalisation: it also acts on each token separately, so it does not
change whether orders can be distinguished.

**Errors.** The question is whether two results are equal, and rounding makes equal results differ. So every token
carries a bound ``d`` on the norm of its error, the difference to the vector that exact arithmetic would give (running
error analysis: Higham 2002, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 3.3). With ``u =
2**-53``, ``gamma(n) = n u / (1 - n u)`` and ``|.|`` the norm of a vector or the spectral norm of a matrix:

- a projection ``x W`` of ``n`` channels: ``|W| d``, and ``gamma(n)`` times the norm of ``abs(x) abs(W)``;
- a rotation: its spectral norm times ``d``, and ``gamma(4)`` in the same way;
- a score: ``|q| d_k + d_q |k| + d_q d_k``, and ``gamma`` times ``abs(q) . abs(k)`` for its rounding;
- a weight ``w`` of the softmax of ``n`` scores that are off by ``e_k``, ``E`` the largest of them: the odds
  ``w / (1 - w)`` move by a factor of at most ``exp(t)``, ``t = e_k + E``, so the weight by at most
  ``w (1 - w) (exp(t) - 1)``; and by ``(n + 24) u w`` for its own rounding, with the exponential within 4 ulp;
- a weighted sum of values: ``sum dw_k |v_k| + sum (w_k + dw_k) d_k``, and ``gamma(n) sum w_k |v_k|``;
- the ReLU never makes an error longer.

Two results that are equal in exact arithmetic differ by at most the sum of their bounds: this is what "to rounding"
means in `clockhands.measures.order.permuting`. Every step assumes the worst case, so a bound grows about a hundredfold
with each layer, while the error itself grows twofold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.errors import InvalidValue

UNIT = UNIT_ROUNDOFF["float64"]

Role = Literal["query", "key"]
Turn = Callable[[np.ndarray, Role], np.ndarray]


class Rounded(NamedTuple):
    """Vectors, each with a bound on its difference from exact arithmetic.

    Attributes:
        numbers: The vectors, float64 [..., tokens, channels].
        error: A bound on the norm of the error of each vector, [..., tokens].
    """

    numbers: np.ndarray
    error: np.ndarray


def exactly(numbers: Any) -> Rounded:
    """Vectors that are exact by definition."""
    numbers = np.asarray(numbers, np.float64)
    return Rounded(numbers, np.zeros(numbers.shape[:-1]))


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer, float64; axes before the named ones hold several networks.

    Attributes:
        query, key, value: Projections of a token, [..., heads, width, head_width].
        output: Projection of each head back to the token, [..., heads, head_width, width].
        up, down: The feed-forward network, [..., width, hidden] and [..., hidden, width]; None without one.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    up: np.ndarray | None = None
    down: np.ndarray | None = None

    @cached_property
    def projections(self) -> "dict[str, StretchedWeights]":
        """All weights by name, each with its spectral norm; the output's heads are joined."""
        joined = self.output.reshape(*self.output.shape[:-3], -1, self.output.shape[-1])
        named = {"query": self.query, "key": self.key, "value": self.value, "output": joined}
        named |= {} if self.up is None or self.down is None else {"up": self.up, "down": self.down}
        return {name: StretchedWeights(weights, _norm_bound(weights)) for name, weights in named.items()}


class StretchedWeights(NamedTuple):
    """Weights, and an upper bound of their spectral norm, [..., 1]."""

    weights: np.ndarray
    stretch: np.ndarray


def drawn_layers(
    draw: np.random.Generator, layers: int, width: int, heads: int, hidden: int | None = None
) -> tuple[Layer, ...]:
    """Layers with weights from a normal distribution of mean 0 and variance 1 / inputs, a usual initialisation.

    Args:
        draw: The random generator.
        layers: Number of layers.
        width: Channels of a token, a multiple of ``heads``.
        heads: Heads, of ``width / heads`` channels each.
        hidden: Hidden width of the feed-forward network; None without one.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    >>> [layer.query.shape for layer in drawn_layers(np.random.default_rng(0), 2, width=8, heads=2)]
    [(2, 8, 4), (2, 8, 4)]
    """
    width, heads = count("width", width), count("heads", heads)
    if width % heads:
        raise InvalidValue(
            f"`width` must be a multiple of the {heads} heads, got {width}.",
            "The width is divided equally among the heads.",
        )

    def weights(*shape: int, inputs: int) -> np.ndarray:
        return draw.standard_normal(shape) / np.sqrt(inputs)

    made = []
    for _ in range(count("layers", layers)):
        query, key, value = (weights(heads, width, width // heads, inputs=width) for _ in range(3))
        output = weights(heads, width // heads, width, inputs=width)
        up = None if hidden is None else weights(width, hidden, inputs=width)
        down = None if hidden is None else weights(hidden, width, inputs=hidden)
        made.append(Layer(query, key, value, output, up, down))
    return tuple(made)


def attend(
    x: Any, layer: Layer, *, causal: bool = False, bias: np.ndarray | None = None, rotation: Turn | None = None
) -> Rounded:
    """Apply one layer to tokens; the bound of each token's error is derived in the module.

    ``y = x + concat_h(softmax(q_h k_h / sqrt(head_width) + bias_h) v_h) output``, then ``y + relu(y up) down``.

    Args:
        x: Tokens, [..., tokens, width]: an array, or the result of another layer.
        layer: The weights.
        causal: Whether a token sees only itself and those before it.
        bias: What is added to the scores, [..., heads, tokens, tokens].
        rotation: The rotation that a rotary code applies to queries and keys [..., tokens, head_width]: a linear map of
            each token's channels, the same in every head.

    Source: Vaswani et al. 2017, arXiv:1706.03762, sections 3.2 and 3.3.

    >>> layer = drawn_layers(np.random.default_rng(0), 1, width=4, heads=2)[0]
    >>> same = attend(np.ones((3, 4)), layer)
    >>> bool((np.linalg.norm(same.numbers - same.numbers[0], axis=-1) <= same.error + same.error[0]).all())
    True
    """
    given = x if isinstance(x, Rounded) else exactly(x)
    x = Rounded(given.numbers[..., None, :, :], given.error[..., None, :])
    made = layer.projections
    query, key, value = (_projected(x, made[name]) for name in ("query", "key", "value"))
    if rotation is not None:
        query, key = _rotated(query, rotation, "query"), _rotated(key, rotation, "key")
    heads = _weighted(*_weights(query, key, causal, bias), value)
    # The heads joined, [..., tokens, heads * head_width].
    *before, count_of_heads, tokens, channels = heads.numbers.shape
    beside = np.swapaxes(heads.numbers, -2, -3).reshape(*before, tokens, count_of_heads * channels)
    y = plus(given, _projected(Rounded(beside, _length(heads.error, axis=-2)), made["output"]))
    if "up" not in made:
        return y
    inner = _projected(y, made["up"])
    return plus(y, _projected(Rounded(np.maximum(inner.numbers, 0), inner.error), made["down"]))


def plus(a: Rounded, b: Rounded) -> Rounded:
    """The sum of two, rounded once."""
    total = a.numbers + b.numbers
    return Rounded(total, a.error + b.error + UNIT * _length(total))


def mean(x: Rounded) -> Rounded:
    """The mean of the tokens (a pooled output): one vector, [..., 1, width]."""
    rounding = _gamma(x.numbers.shape[-2] + 1) * _length(x.numbers)
    return Rounded(x.numbers.mean(axis=-2, keepdims=True), (x.error + rounding).mean(axis=-1, keepdims=True))


def _gamma(terms: int) -> float:
    return terms * UNIT / (1 - terms * UNIT)


def _length(vectors: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.sqrt((vectors * vectors).sum(axis=axis))


def _norm_bound(matrices: np.ndarray) -> np.ndarray:
    """An upper bound of the spectral norm of each matrix, with a margin for the rounding of the bounds."""
    return np.linalg.norm(matrices, 2, axis=(-2, -1))[..., None] * (1 + 2.0**-30)


def _projected(x: Rounded, by: StretchedWeights) -> Rounded:
    """``x @ weights``."""
    rounded = _gamma(by.weights.shape[-2]) * _length(np.abs(x.numbers) @ np.abs(by.weights))
    return Rounded(x.numbers @ by.weights, by.stretch * x.error + rounded)


def _rotated(x: Rounded, rotation: Turn, role: Role) -> Rounded:
    """Queries or keys rotated by a rotary code: at most two products and a sum for each channel, and a factor."""
    tokens, width = x.numbers.shape[-2:]
    each = np.ascontiguousarray(np.broadcast_to(np.eye(width)[:, None, :], (width, tokens, width)))
    matrices = rotation(each, role).transpose(1, 0, 2)  # [tokens, channel in, channel out]
    rounded = _gamma(4) * _length((np.abs(x.numbers)[..., None, :] @ np.abs(matrices))[..., 0, :])
    return Rounded(rotation(x.numbers, role), _norm_bound(matrices)[..., 0] * x.error + rounded)


def _weights(query: Rounded, key: Rounded, causal: bool, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The attention weights of the keys, the softmax of their scores, and a bound on the error of each weight."""
    tokens, channels = query.numbers.shape[-2:]
    shrink = 1 / np.sqrt(channels)
    across = np.swapaxes(key.numbers, -1, -2)
    length, other = _length(query.numbers)[..., :, None], _length(key.numbers)[..., None, :]
    off, other_off = query.error[..., :, None], key.error[..., None, :]
    numbers = query.numbers @ across * shrink
    rounded = _gamma(channels + 3) * (np.abs(query.numbers) @ np.abs(across))
    error = (length * other_off + off * other + off * other_off + rounded) * shrink
    if bias is not None:
        numbers = numbers + bias
        error = error + UNIT * np.abs(numbers)
    seen = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), bool)
    # Softmax does not change when a constant is subtracted from a row.
    below = numbers - np.where(seen, numbers, -np.inf).max(axis=-1, keepdims=True)
    error = np.where(seen, error + UNIT * np.abs(below), 0)
    raised = np.where(seen, np.exp(np.where(seen, below, 0)), 0)
    weights = raised / raised.sum(axis=-1, keepdims=True)
    exponent = error + error.max(axis=-1, keepdims=True)
    # Above an exponent of 1 the bound is too large to be useful, and two weights never differ by more than 1.
    moved = weights * (1 - weights) * np.expm1(np.minimum(exponent, 1))
    off = np.where(exponent < 1, moved + (tokens + 24) * UNIT * weights, 1)
    return weights, np.where(seen, off, 0)


def _weighted(weights: np.ndarray, off: np.ndarray, value: Rounded) -> Rounded:
    """The weighted sum of the values."""
    length = _length(value.numbers)[..., None]
    carried = off @ length + (weights + off) @ value.error[..., None]
    rounded = _gamma(weights.shape[-1]) * (weights @ length)
    return Rounded(weights @ value.numbers, (carried + rounded)[..., 0])
