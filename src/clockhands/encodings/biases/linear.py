"""Linear biases: ALiBi, slopes of one's own and the decay of retention, a slope per head times a number of tokens."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from clockhands.arguments import count, not_negative, positive, set_fields
from clockhands.encodings.biases.codes import After, BiasCode, Reads, one_of
from clockhands.encodings.biases.distances import QueryKeyPairs
from clockhands.encodings.biases.values import Values
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.ladders import working
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Form = Literal["distance", "past", "symmetric", "key", "last-key"]

_SINGLE = UNIT_ROUNDOFF["float32"]
_FORMS = ("distance", "past", "symmetric", "key", "last-key")


class LinearCode(BiasCode):
    """A bias that is a slope for each head, times the number of tokens that its form defines."""

    form: Form

    @cached_property
    @abstractmethod
    def slopes(self) -> tuple[float, ...]:  # type: ignore[override]
        """The slope of each head, in bias per token, nearest float64."""

    @property
    @abstractmethod
    def slope_errors(self) -> np.ndarray:
        """How far slopes may be off that are made in float32, relative, [heads]."""

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The slope's error times the distance, plus the roundings of the product and of the result.

        A constant per row does not change the softmax, so a function may compute any of the forms (distance, key, key
        minus last key). Each is the slope times a number of tokens of at most ``t``, the largest of ``|q - k|``,
        ``|k|`` and ``|last - k|``, rounded twice in float32: ``2**-23 slope t``.
        """
        apart = np.abs(queries[:, None] - keys[None, :])
        last = max(keys.max(initial=0), queries.max(initial=0))
        tokens = np.maximum(apart, np.maximum(np.abs(keys), np.abs(last - keys))[None, :])
        slopes = np.array(self.slopes)[:, None, None]
        return 2 * _SINGLE * slopes * tokens + 2 * unit * sizes, self.slope_errors[:, None, None]

    @property
    def reads(self) -> Reads:
        """A number depends on the distance, or on the key only."""
        return "key" if self.form in ("key", "last-key") else "distance"

    @property
    def keys_after(self) -> After:
        """The bias of keys after the query; see `After`."""
        return "as before" if self.form == "symmetric" else "as itself" if self.form == "past" else "more"

    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs."""
        if self.form == "key":
            tokens = pairs.key_tokens
        elif self.form == "last-key":
            tokens = pairs.past_last
        elif self.form == "past":
            tokens = -pairs.distances.past
        else:
            tokens = -(pairs.xp.abs(pairs.distances.reals) if self.form == "symmetric" else pairs.distances.reals)
        slopes = pairs.xp.reshape(values.known(self, "slopes"), (self.heads, *(1,) * tokens.ndim))
        # Avoids negative zeros; adding 0.0 would do so too, but compilers remove it.
        return slopes * pairs.xp.where(tokens == 0, pairs.xp.zeros_like(tokens), tokens)


@dataclass(frozen=True)
class SomeHeads(LinearCode):
    """Some heads of a linear bias, with the slopes that they have in the whole bias."""

    whole: LinearCode
    which: range

    @property
    def heads(self) -> int:  # type: ignore[override]
        """Number of these heads."""
        return len(self.which)

    @property
    def form(self) -> Form:  # type: ignore[override]
        """The form of the whole bias."""
        return self.whole.form

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """The slope of each of these heads, in bias per token."""
        return tuple(self.whole.slopes[head] for head in self.which)

    @property
    def slope_errors(self) -> np.ndarray:
        """The slope errors of these heads."""
        return self.whole.slope_errors[list(self.which)]


def some_heads(spec: BiasCode, heads: Any) -> BiasCode:
    """The bias restricted to some heads, such as those of one rank; unchanged for None or all heads.

    Learned numbers of the result are those of these heads only.

    Raises:
        InvalidType: ``heads`` is not a range.
        InvalidValue: The range is empty, not ascending, or contains heads that the bias does not have.
    """
    if heads is None:
        return spec
    hint = "Write range(4, 8) for heads 4 to 7."
    if not isinstance(heads, range):
        raise InvalidType(f"`heads` must be a range, got {type(heads).__name__} {shown(heads)}.", hint)
    if not heads or heads.step < 1 or heads[0] < 0 or heads[-1] >= spec.heads:
        raise InvalidValue(
            f"`heads` must be a range of heads from 0 to {spec.heads - 1} in increasing order, got {heads}.", hint
        )
    if len(heads) == spec.heads:
        return spec
    return _made_for(spec, heads)


@lru_cache(maxsize=256)
def _made_for(spec: Any, heads: range) -> BiasCode:
    """The restricted bias, cached so that layers that share it are compiled once."""
    # Learned numbers of a head do not depend on the number of heads; a slope does.
    return SomeHeads(spec, heads) if isinstance(spec, LinearCode) else replace(spec, heads=len(heads))


@dataclass(frozen=True)
class Alibi(LinearCode):
    """Attention with linear biases: ``-slope_h (q - k)``, a penalty that grows with the distance.

    For ``n`` heads, a power of two, ``slope_h = 2 ** (-8 (h + 1) / n)``. For any other number the paper's text and
    its code differ, see ``series``. MPT's code truncates the slopes of the next power of two, the odd ones first, then
    the even ones; the result is the same for every head.

    Attributes:
        heads: Number of heads, any.
        form: The bias of the query at ``q`` and the key at ``k``. ``"distance"``, ``"key"`` and ``"last-key"`` differ
            by a constant in each row, which does not change the softmax; with a causal mask this holds for all forms.
            ``"distance"``: ``-slope (q - k)``, as in the paper; it is positive for keys after the query, so mask them.
            ``"past"``: ``-slope max(q - k, 0)`` (GPT-NeoX). ``"symmetric"``: ``-slope |q - k|``, for encoders
            (x-transformers, OpenNMT, llm-foundry). ``"key"``: ``+slope k``, the same in each row (the paper's code,
            Bloom, Falcon, Baichuan). ``"last-key"``: ``slope (k - last key)``, at most 0 (MPT, keras-hub).
        series: Matters only if the number of heads is not a power of two. ``"powers"``: all slopes of the next lower
            power of two, then every other slope of the next higher one, as in all published models (Bloom, MPT,
            Falcon, Baichuan). ``"plain"``: one geometric series through all heads, as in the paper's text.
        octaves: The last head's slope is ``2 ** -octaves``; 8 in the paper (``alibi_bias_max``).

    Accuracy: each slope is the nearest float64, exact where its exponent is an integer; each number is within a
    relative ``3 * 2**-53`` of the real one, and rounded once to the requested dtype.

    Raises:
        InvalidValue, InvalidType: A number is not allowed, or there is no such form or series.

    Source: Press et al. 2022, arXiv:2108.12409, section 3; ofirpress/attention_with_linear_biases at 4b92f28,
    get_slopes; mosaicml/llm-foundry at 8c8dd48f7, gen_slopes.

    >>> Alibi(heads=8).slopes
    (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625)
    >>> Alibi(heads=3).slopes
    (0.0625, 0.00390625, 0.25)
    """

    heads: int
    form: Form = "distance"
    series: Literal["powers", "plain"] = "powers"
    octaves: float = 8.0

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            heads=count("heads", self.heads),
            form=one_of("form", self.form, _FORMS, "It says what the slope is multiplied by."),
            series=one_of("series", self.series, ("powers", "plain"), "They differ where `heads` is no power of two."),
            octaves=positive("octaves", self.octaves),
        )

    @property
    def exponents(self) -> tuple[Fraction, ...]:
        """The exponent of each slope: the slope is ``2 ** exponent``."""
        below = 2 ** (self.heads.bit_length() - 1)
        if below == self.heads or self.series == "plain":
            return self._geometric(self.heads)
        return (*self._geometric(below), *self._geometric(2 * below)[0::2][: self.heads - below])

    def _geometric(self, heads: int) -> tuple[Fraction, ...]:
        octaves = Fraction(self.octaves)
        return tuple(-octaves * (head + 1) / heads for head in range(heads))

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """The slope of each head, in bias per token, nearest float64."""
        with localcontext(working()):
            powers = (Decimal(2) ** (Decimal(each.numerator) / each.denominator) for each in self.exponents)
            return tuple(map(float, powers))

    @property
    def slope_errors(self) -> np.ndarray:
        """How far slopes may be off that are made in float32, relative, [heads].

        With ``e = 2**-24``: ``2 ** -x`` with an exponent ``x`` of at most three roundings is off by ``3 e x ln 2``,
        plus ``2 e`` of the power. Code that raises the ratio of the series to the power ``m``, or multiplies it ``m``
        times, repeats the ratio's rounding ``m`` times and adds as many: ``2 m e``. Together ``e (2 m + 3 x ln 2 +
        3)``.
        """
        below = 2 ** (self.heads.bit_length() - 1)
        whole = self.heads if self.series == "plain" else below
        powers = [head + 1 if head < whole else 2 * (head - whole) + 1 for head in range(self.heads)]
        exponents = -np.array([float(each) for each in self.exponents])
        return _SINGLE * (2 * np.array(powers, float) + 3 * exponents * math.log(2) + 3)


@dataclass(frozen=True)
class Decay(LinearCode):
    """The logarithm of the decay of retention: ``ln(gamma_h) (q - k)`` with ``gamma_h = 1 - 2 ** (-first - h)``.

    Retention (RetNet) has no softmax: it multiplies the scores by ``gamma ** (q - k)``, and by 0 where the key is after
    the query. That factor is ``exp(bias(…, causal=True))``; torchscale divides each of its rows by the square root of
    the row's sum. As a bias before a softmax it is ALiBi with other slopes.

    Attributes:
        heads: Number of heads.
        first: The first head's ``gamma`` is ``1 - 2 ** -first``.

    Accuracy: as `Alibi`.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Sun et al. 2023, arXiv:2307.08621, section 2.2; torchscale 0.3.0, architecture/retnet.py, RetNetRelPos.

    >>> from math import exp
    >>> round(exp(-Decay(heads=4).slopes[0]), 12)
    0.96875
    """

    heads: int
    first: int = 5

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, heads=count("heads", self.heads), first=count("first", self.first))

    @property
    def form(self) -> Form:  # type: ignore[override]
        """``"distance"``: later keys are masked."""
        return "distance"

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """The slope of each head, ``-ln(gamma_h)`` per token, nearest float64."""
        with localcontext(working()) as context:
            context.prec += self.first + self.heads  # 1 - 2**-n has n digits
            return tuple(float(-(1 - Decimal(2) ** (-self.first - head)).ln()) for head in range(self.heads))

    @property
    def slope_errors(self) -> np.ndarray:
        """Relative errors of slopes made in float32: ``1 - 2**-n`` is exact, its logarithm within ``4 x 2**-24``."""
        return np.full(self.heads, 4 * _SINGLE)


@dataclass(frozen=True)
class Slopes(LinearCode):
    """A linear bias with slopes of one's own: ALiBi's penalty, ``-slope_h (q - k)``, with any slope for each head.

    Attributes:
        slopes: The slope of each head, in bias per token: at least 0, and 0 for a head without a bias.
        form: What the slopes are multiplied by, as in `Alibi`.

    Accuracy: each slope is its float64; each number is rounded once in float64, and once to the requested dtype.

    Raises:
        InvalidValue, InvalidType: There is no slope, one is negative or not finite, or there is no such form.

    Source: Press et al. 2022, arXiv:2108.12409, section 3, on slopes that are set or trained.

    >>> import clockhands as ch
    >>> ch.bias(Slopes((0.5, 0.0)), 1, 3).tolist()
    [[[-1.0, -0.5, 0.0]], [[0.0, 0.0, 0.0]]]
    """

    slopes: tuple[float, ...] = field()  # type: ignore[assignment] # not the property of the base class
    form: Form = "distance"

    def __post_init__(self) -> None:
        """Check the values."""
        if isinstance(self.slopes, str | bytes) or not hasattr(self.slopes, "__iter__"):
            raise InvalidType(
                f"`slopes` must be a list of numbers, got {shown(self.slopes)}.", "Give one slope for each head."
            )
        set_fields(
            self,
            slopes=tuple(not_negative("slopes", slope) for slope in self.slopes),
            form=one_of("form", self.form, _FORMS, "It says what the slope is multiplied by."),
        )
        if not self.slopes:
            raise InvalidValue("`slopes` must hold at least one slope, got none.", "Give one for each head.")

    @property
    def heads(self) -> int:  # type: ignore[override]
        """Number of heads."""
        return len(self.slopes)

    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs, without negative zeros in a head without a bias."""
        made = super().numbers(pairs, values)
        return pairs.xp.where(made == 0, pairs.xp.zeros_like(made), made)

    @property
    def slope_errors(self) -> np.ndarray:
        """How far slopes may be off that are kept in float32: one rounding."""
        return np.full(self.heads, _SINGLE)
