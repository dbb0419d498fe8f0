"""Biases that are learned functions of the distance: KERPLE, a kernel of two parameters, and FIRE, a network."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clockhands.arguments import count, positive, set_fields, truth
from clockhands.encodings.biases.codes import After, BiasCode, Reads, one_of
from clockhands.encodings.biases.distances import QueryKeyPairs
from clockhands.encodings.biases.values import Values
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.phrases import shown

_SINGLE = UNIT_ROUNDOFF["float32"]


@dataclass(frozen=True)
class Kerple(BiasCode):
    """KERPLE's kernels: ``-p_h ln(1 + a_h d)`` (``"log"``) or ``-a_h d ** p_h`` (``"power"``), p and a learned.

    Attributes:
        heads: Number of heads.
        kernel: ``"log"`` or ``"power"``.
        symmetric: If True, ``d`` is ``|q - k|``, as in the paper; else ``max(q - k, 0)``, as in its code. With a causal
            mask they are the same.

    Values: ``p`` and ``a``, each [heads], above 0; ``p`` of the power kernel is at most 2, above which it is not a
    valid kernel. The paper's code clips both to at least 0.01 (and that ``p`` to at most 2) before every use. Here
    NumPy values out of range are refused. Values of other libraries are not checked, because they may be traced: clip
    them in training.

    Accuracy: NumPy within a relative ``(4 + 2 |p ln d|) 2**-53``, rounded once; in other libraries as accurate as
    their logarithm and power.

    Raises:
        InvalidValue, InvalidType: A number is not allowed, or there is no such kernel.

    Source: Chi et al. 2022, arXiv:2205.09921, section 4; chijames/KERPLE at 25be3d7, megatron/mpu/layers.py,
    ParallelKerpleLog and ParallelKerplePower.
    """

    heads: int
    kernel: Literal["log", "power"] = "log"
    symmetric: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        truth("symmetric", self.symmetric, "It says whether keys after the query count as far as those before.")
        set_fields(
            self,
            heads=count("heads", self.heads),
            kernel=one_of("kernel", self.kernel, ("log", "power"), "These are the two of the paper."),
        )

    @property
    def keys_after(self) -> After:
        """The bias of keys after the query; see `After`."""
        return "as before" if self.symmetric else "as itself"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """``p`` and ``a``, one number per head each."""
        return {"p": (self.heads,), "a": (self.heads,)}

    def refuse(self, values: dict[str, np.ndarray]) -> str | None:
        """The problem with known learned numbers that give no valid kernel, or None."""
        for name, numbers in values.items():
            most = 2.0 if (name, self.kernel) == ("p", "power") else np.inf
            for number in numbers[~((numbers > 0) & (numbers <= most) & np.isfinite(numbers))].tolist():
                allowed = "above 0 and at most 2" if most == 2 else "finite and above 0"
                return f"`{name}` of a {self.kernel} kernel must be {allowed}, got {shown(number)}."
        return None

    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs."""
        xp, distances = values.xp, pairs.distances
        apart = values.reals(pairs.xp.abs(distances.reals) if self.symmetric else distances.past)
        column = (self.heads, *(1,) * len(pairs.shape))
        p, a = (xp.reshape(values.arrays[name], column) for name in ("p", "a"))
        if self.kernel == "log":
            return -p * xp.log1p(a * apart)
        return -a * apart**p

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The error of the logarithm or of the power.

        With ``e = 2**-24``: in ``p ln(1 + a d)`` the sum has a relative error of ``3 e``, which is an absolute error of
        the logarithm, and the rest adds ``6 e`` of the result. In ``a d ** p`` the power is off by
        ``2 e p ln d + 2 e``, the product by ``3 e``. The result is rounded once more.
        """
        p = np.abs(np.asarray(values["p"], np.float64))[:, None, None]
        if self.kernel == "log":
            own = 3 * p + 6 * sizes
        else:
            own = sizes * (6 + 2 * p * np.log(np.maximum(np.abs(queries[:, None] - keys[None, :]), 1)))
        return _SINGLE * own + unit * sizes, np.zeros((1, 1, 1))


@dataclass(frozen=True)
class Fire(BiasCode):
    """FIRE: a small network of the distance to the key, normalised by the position of the query.

    ``x = ln(1 + |c| d) / (ln(1 + |c| max(q, threshold)) + epsilon)`` with ``d = max(q - k, 0)``, and then
    ``w2 relu(w1 x + b1) + b2``, one output per head. The normalisation keeps ``x`` in the range seen in training at
    every length. It depends on the query position, so the matrix is not constant along its diagonals.

    Attributes:
        heads: Number of heads.
        hidden: Channels of the hidden layer.
        epsilon: Added to the denominator.

    Values: ``c`` [], ``threshold`` [] (the product of the code's ``init_L`` and its learned multiplier), ``w1``
    [hidden, 1], ``b1`` [hidden], ``w2`` [heads, hidden], ``b2`` [heads].

    Accuracy: float64 in NumPy, rounded once; in other libraries as accurate as their logarithm and products.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Li et al. 2024, arXiv:2310.04418, section 3; chuanyang-Zheng/DAPE at bde344a, DAPE.py, FIRE.
    """

    heads: int
    hidden: int = 32
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            heads=count("heads", self.heads),
            hidden=count("hidden", self.hidden),
            epsilon=positive("epsilon", self.epsilon),
        )

    @property
    def keys_after(self) -> After:
        """The bias of keys after the query; see `After`."""
        return "as itself"

    @property
    def reads(self) -> Reads:
        """A number depends on the query position as well as on the distance."""
        return "both"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The factor inside the logarithm, the threshold, and the network."""
        return {
            "c": (),
            "threshold": (),
            "w1": (self.hidden, 1),
            "b1": (self.hidden,),
            "w2": (self.heads, self.hidden),
            "b2": (self.heads,),
        }

    def numerator(self, past: np.ndarray, values: Values) -> Any:
        """``ln(1 + |c| d)`` for distances to earlier keys."""
        xp = values.xp
        return xp.log1p(xp.abs(values.arrays["c"]) * values.reals(past))

    def denominator(self, queries: np.ndarray, values: Values) -> Any:
        """``ln(1 + |c| max(q, threshold)) + epsilon`` for query positions."""
        xp, threshold = values.xp, values.arrays["threshold"]
        at = values.reals(queries)
        return xp.log1p(xp.abs(values.arrays["c"]) * xp.where(at > threshold, at, threshold)) + self.epsilon

    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs."""
        xp, arrays = values.xp, values.arrays
        shares = self.numerator(pairs.distances.past, values) / self.denominator(pairs.query_tokens, values)
        hidden = xp.reshape(shares, (1, -1)) * arrays["w1"] + xp.reshape(arrays["b1"], (-1, 1))
        heads = xp.matmul(arrays["w2"], xp.where(hidden > 0, hidden, xp.zeros_like(hidden)))
        return xp.reshape(heads + xp.reshape(arrays["b2"], (-1, 1)), (self.heads, *pairs.shape))

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The error is propagated through the network layer by layer.

        Each layer of ``n`` inputs adds ``n + 3`` times ``2**-24`` of the sum of the sizes of its terms. Each logarithm
        has an absolute and a relative error of ``3 x 2**-24``; the result is rounded once more.
        """
        arrays = {name: np.asarray(array, np.float64) for name, array in values.items()}
        rate = abs(float(arrays["c"]))
        above = np.log1p(rate * np.maximum(queries[:, None] - keys[None, :], 0))
        below = np.log1p(rate * np.maximum(queries, float(arrays["threshold"])))[:, None] + self.epsilon
        share = above / below
        moved = _SINGLE * ((3 + 3 * above) / below + share * (3 + 3 * below) / below + 2 * share)
        first, offset = (np.abs(arrays[name]).reshape(-1, 1, 1) for name in ("w1", "b1"))
        hidden = first * share + offset
        error = first * moved + 4 * _SINGLE * hidden
        second = np.abs(arrays["w2"])
        total = np.tensordot(second, hidden, 1) + np.abs(arrays["b2"])[:, None, None]
        own = np.tensordot(second, error, 1) + _SINGLE * (self.hidden + 3) * total
        return own + unit * sizes, np.zeros((1, 1, 1))
