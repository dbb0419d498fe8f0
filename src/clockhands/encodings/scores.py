r"""Scales of attention scores by query position: attention temperature (Llama 4, Ministral 3) and log-n attention.

Some models sharpen the attention of later queries, so that it does not spread over ever more keys: the *temperature*
of the softmax falls as the position grows. A scale is one number for each position ``p`` of a query,

    score(p, k) = scale(p) (q . k) / sqrt(head width),

the same in every head and for every key ``k``. Multiplying the query by it has the same effect. A scale is not a
position encoding: it is used together with one, or in layers that have none.

**Accuracy.** Below, ``u = 2**-53`` and ``e`` is the relative error of a result. NumPy's logarithm of a float64 is
assumed to be within one unit in the last place, ``2 u`` (a test measures it on each machine).

* `FloorLogScale`: the number of steps ``s`` is a quotient of integers, exact up to 2**63. ``1 + s`` is exact in
  float64 up to 2**53; beyond, rounding adds at most ``u`` to a logarithm of at least 36. Logarithm, product, sum and
  the product with ``factor``: ``e <= (2 + 1/36 + 1 + 1 + 1) u < 6 u``, since no term is above the result.
* `LogScale`: beyond ``original``, ``p + first`` is above 2 and rounded at most once, which adds ``u / ln 2 < 1.5 u`` to
  the logarithm; the two logarithms and the quotient: ``e <= (1.5 + 2 + 2 + 1) u < 7 u``. Up to ``original`` the scale
  is exactly 1, which is decided by comparing integers.

Together ``BOUND = 8 u``, then one rounding to the dtype. Inside a trace (``jit``, ``vmap``, ``compile``) the steps are
integers as well and the rest is float32: with ``v = 2**-24`` and a logarithm within two units in the last place the
same sums are below ``(4 + 1 + 1 + 1 + 1 + 2) v`` and ``(3 + 4 + 1 + 1) v``: ``TRACED_BOUND = 16 v``.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count, not_negative, positive, set_fields
from clockhands.encodings import traces
from clockhands.encodings.dtypes import float_of
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import Sizes, positions_of, refuse_no_array
from clockhands.encodings.spec_fields import KnowsItsNames
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

BOUND = 8 * 2.0**-53
TRACED_BOUND = 16 * 2.0**-24

_NARROW = 2**31  # positions inside a trace may be of 32 bits


class ScoreScale(KnowsItsNames, ABC):
    """The factor on a query's attention scores, as a function of its position."""

    @property
    @abstractmethod
    def formula(self) -> str:
        """The scale as a formula in text, with ``p`` for the position."""

    @property
    def words(self) -> str:
        """A phrase that says what happens to the scores."""
        return f"multiplied by {self.formula}{'' if self.grows_from is None else ' at position p'}"

    @property
    @abstractmethod
    def grows_from(self) -> int | None:
        """The first position at which the scale differs from that at position 0; None where it is constant."""

    @abstractmethod
    def numbers(self, sizes: Sizes) -> np.ndarray:
        """The scale at known positions of at least 0, float64."""

    @abstractmethod
    def traced(self, positions: Any, xp: Any, dtype: Any) -> Any:
        """The scale at integer positions that exist only inside a trace; those below 0 count as 0."""


@dataclass(frozen=True)
class FloorLogScale(ScoreScale):
    """Attention temperature in steps: ``factor (1 + beta ln(1 + floor((p + first) / original)))``.

    It is ``factor`` for the first ``original`` tokens and then grows with the logarithm of the length in units of
    ``original``. Known as attention temperature tuning, and as ``llama_4_scaling``.

    Attributes:
        original: Tokens per step: the trained (original) context length.
        beta: Strength of the growth; 0 means none.
        first: The number of the first token: 1 in Llama 4, which steps at position ``original - 1``; 0 in Ministral 3
            and Mistral Large 3, which step at ``original``.
        factor: A further constant factor on the scores (YaRN's magnitude in multi-head latent attention).

    Accuracy: within a relative `BOUND`, 8 x 2**-53; see the module.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Nakanishi 2025, arXiv:2501.19399 (the idea); llama-models 0.3.0, llama4/model.py; transformers 5.23.0,
    Llama4TextAttention and Ministral3Attention.

    >>> FloorLogScale(original=8192, first=1).formula
    '1 + 0.1 ln(1 + floor((p + 1) / 8,192))'
    """

    original: int
    beta: float = 0.1
    first: int = 0
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            original=count("original", self.original),
            beta=not_negative("beta", self.beta),
            first=_first(self.first),
            factor=positive("factor", self.factor),
        )

    @property
    def formula(self) -> str:
        """The scale as people write it."""
        place = f"(p + {self.first})" if self.first else "p"
        grows = f"1 + {self.beta:g} ln(1 + floor({place} / {self.original:,}))"
        return grows if self.factor == 1 else f"{self.factor:g} ({grows})"

    @property
    def grows_from(self) -> int | None:
        """The position of the first step."""
        return self.original - self.first if self.beta else None

    def numbers(self, sizes: Sizes) -> np.ndarray:
        """The scale at known positions; only the whole part of a position counts."""
        steps = (sizes.whole + np.uint64(self.first)) // np.uint64(self.original)
        return self.factor * (1.0 + self.beta * np.log((steps + np.uint64(1)).astype(np.float64)))

    def traced(self, positions: Any, xp: Any, dtype: Any) -> Any:
        """The scale at traced positions; ``first`` is not added to the position, because the sum could overflow."""
        positions = xp.where(positions < 0, xp.zeros_like(positions), positions)
        steps = positions // self.original
        if self.first:
            last = positions - steps * self.original == self.original - 1
            steps = steps + xp.astype(last, positions.dtype)
        return self.factor * (1.0 + self.beta * xp.log1p(xp.astype(steps, dtype)))


@dataclass(frozen=True)
class LogScale(ScoreScale):
    """Log-n attention: ``max(1, ln(p + first) / ln(original))``, the logarithm of the position to base ``original``.

    It is 1 within the trained context length and keeps the entropy of attention about the same beyond it.

    Attributes:
        original: The trained context length, at least 2.
        first: The number of the first token: 1 in Qwen.

    Accuracy: within a relative `BOUND`, 8 x 2**-53; see the module.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Chiang and Cholak 2022, arXiv:2202.12172; modeling_qwen.py as published with Qwen-7B
    (``use_logn_attn``), which applies it at inference only and has positions up to 32,766.

    >>> LogScale(original=8192).formula
    'max(1, ln(p + 1) / ln(8,192))'
    """

    original: int
    first: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, original=count("original", self.original, least=2), first=_first(self.first))

    @property
    def formula(self) -> str:
        """The scale as people write it."""
        return f"max(1, ln({'p + 1' if self.first else 'p'}) / ln({self.original:,}))"

    @property
    def grows_from(self) -> int | None:
        """The first position beyond the trained length."""
        return self.original - self.first + 1

    def numbers(self, sizes: Sizes) -> np.ndarray:
        """The scale at known positions."""
        counted, original = sizes.whole + np.uint64(self.first), np.uint64(self.original)
        reals, beyond = counted.astype(np.float64), counted > original
        if sizes.part is not None:
            reals, beyond = reals + sizes.part, beyond | ((counted == original) & (sizes.part > 0))
        return np.where(beyond, np.log(np.where(beyond, reals, 1.0)) / np.log(np.float64(self.original)), 1.0)

    def traced(self, positions: Any, xp: Any, dtype: Any) -> Any:
        """The scale at traced positions."""
        beyond = positions > self.original - self.first
        reals = xp.astype(xp.where(beyond, positions, xp.ones_like(positions)), dtype) + float(self.first)
        return xp.where(beyond, xp.log(reals) * (1 / math.log(self.original)), xp.ones_like(reals))


@dataclass(frozen=True)
class ConstantScale(ScoreScale):
    """The same factor at every position, for models whose position settings scale all scores.

    DeepSeek's YaRN multiplies the scores by its squared magnitude, ``factor = (0.1 mscale_all_dim ln f + 1)**2``,
    instead of multiplying cosine and sine, which in multi-head latent attention act on only a part of each head.

    Attributes:
        factor: The factor, above 0.

    Accuracy: exact.

    Raises:
        InvalidValue, InvalidType: The number is not allowed.

    Source: DeepSeek-AI 2024, arXiv:2405.04434; transformers 5.23.0, deepseek_v3, yarn_apply_mscale.

    >>> ConstantScale(1.874).formula
    '1.874'
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the value."""
        set_fields(self, factor=positive("factor", self.factor))

    @property
    def formula(self) -> str:
        """The factor."""
        return f"{self.factor:g}"

    @property
    def grows_from(self) -> int | None:
        """None: the scale is constant."""
        return None

    def numbers(self, sizes: Sizes) -> np.ndarray:
        """The factor, once for each position."""
        return np.full(sizes.whole.shape, self.factor)

    def traced(self, positions: Any, xp: Any, dtype: Any) -> Any:
        """The factor, once for each position."""
        return xp.full_like(positions, self.factor, dtype=dtype)


SCALES: tuple[type[ScoreScale], ...] = (FloorLogScale, LogScale, ConstantScale)
"""All score scales, in the order in which messages list them."""


def score_scale(spec: ScoreScale, positions: Any, like: Any = None) -> Any:
    """The factor on the attention scores of queries at these positions, one number for each position.

    Apply it to the queries as ``q * score_scale(spec, positions, like=q)[..., None]``, rounded to their dtype, before
    or after they are rotated.

    Args:
        spec: A scale of scores.
        positions: A range, a list or an array of integers or reals of at least 0; or a count n for 0 to n - 1.
        like: An array of a float dtype: the numbers are of its library and on its device, float64 if ``like`` is, else
            float32. None gives NumPy's float64.

    Returns:
        The scale, of the shape of the positions, without a unit.

    Accuracy: within a relative `BOUND` of the real number, 8 x 2**-53, at every position up to 2**63, then rounded
    once; inside a trace within `TRACED_BOUND`, 2**-20. There positions are integers up to 2**31 - 1 (2**63 - 1 in
    PyTorch), and one below 0 counts as 0.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The numbers would not fit in memory.

    >>> score_scale(FloorLogScale(original=8192, first=1), [0, 8190, 8191]).round(4).tolist()
    [1.0, 1.0, 1.0693]
    """
    if not isinstance(spec, ScoreScale):
        names = ", ".join(kind.__name__ for kind in SCALES)
        raise InvalidType(f"`score_scale` takes a scale of scores, got {shown(spec)}.", f"These are {names}.")
    kind = "float64"
    if like is not None:
        refuse_no_array(like, "like", "Give the queries.")
        kind = float_of(like, "like", "Give the queries.")
        traces.refuse_recording(like, positions)
        positions = traces.beside(positions, like, "positions", "like")
    if traces.is_traced(positions):
        return _inside(spec, positions, kind if like is not None else "float32")
    at = positions_of(positions)
    refuse_larger(at.shape, 8, "Score scales", "Ask for fewer positions at once: score_scale(spec, range(a, b)).")
    sizes = at.sizes(0, at.size)
    if sizes.negative is not None and bool((sizes.negative & ((sizes.whole > 0) | (_part(sizes) > 0))).any()):
        raise InvalidValue(
            "`positions` must be at least 0 for a scale of scores, but one is below.",
            "Give padding position 0: its scale has no effect.",
        )
    numbers = spec.numbers(sizes).reshape(at.shape)
    if like is None:
        return numbers
    xp = traces.library(like)
    where = {"device": like.device} if traces.library_of(like) == "torch" else {}
    return xp.asarray(numbers.astype(np.float64 if kind == "float64" else np.float32), **where)


def _part(sizes: Sizes) -> Any:
    return 0 if sizes.part is None else sizes.part


def _inside(spec: ScoreScale, positions: Any, kind: str) -> Any:
    """The scale at positions inside a trace, in their own library."""
    dtype = traces.integer_of(positions, "Give fractional positions as NumPy values, outside of the trace.")
    original = getattr(spec, "original", 1)
    if original >= _NARROW:
        raise InvalidValue(
            f"`original` must be below 2**31 inside a trace, got {original}.", "Make the scale outside of the trace."
        )
    xp = traces.library(positions)
    # Smaller integers may not hold the length that they are divided by.
    wide = "int64" if dtype in ("int64", "uint64") or "torch" in xp.__name__ else "int32"
    return spec.traced(
        xp.astype(positions, getattr(xp, wide)), xp, getattr(xp, "float64" if kind == "float64" else "float32")
    )


def _first(first: object) -> int:
    number = count("first", first, least=0)
    if number > 1:
        raise InvalidValue(f"`first` must be 0 or 1, got {number}.", "It says what the first token is counted as.")
    return number
