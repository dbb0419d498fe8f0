"""What a ladder that a module holds is, beside the one that its config declares.

Rates are compared with the exact ones. Code makes them in float32, in a few operations, and the bound that this leaves
is derived here; what is outside it is held to each of the ways in which a ladder goes wrong, until one makes the same
numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError
from clockhands.ladders import Geometric
from clockhands.recognition.fitting import fit_ladder
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, LongRope
from clockhands.sources.resolved import Code
from clockhands.specs import describe

# Relative error of one rounding to each type, and the smallest step that it has.
ROUNDED = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_STEP = {"bfloat16": 2.0**-133, "float16": 2.0**-24}

# A ladder's fastest hand makes between a hundredth of a radian and a hundred a token, wherever anybody wrote one down.
_FASTEST = (0.01, 100.0)
_SLOWEST = 1e-12
_ROUNDS = 12
_LARGEST = 50.0  # the logarithm of a base that nobody has
_EVER = 1e5  # coordinates between 0 and 1 are turned by thousands of radians


@dataclass(frozen=True)
class Expected:
    """The rates that a module should hold.

    Attributes:
        code: The position code that declares them.
        layers: The layers that turn by them.
        ladders: Words to rates: one ladder, or several where it depends on the length in use.
        plain: The rates without the scaling; None where there is none, or it is not known.
        slack: How far a rate made in float32 may be from the exact one, in parts of it.
        sure: Whether what is declared is known to be for this part, by a type whose class was read; else only what no
            ladder has is told.
    """

    code: Code
    layers: str | None
    ladders: Mapping[str, np.ndarray]
    plain: np.ndarray | None
    slack: float
    sure: bool = True

    @property
    def rates(self) -> np.ndarray:
        """The first of the ladders."""
        return next(iter(self.ladders.values()))

    @property
    def factor(self) -> float | None:
        """The factor of the declared scaling."""
        return None if self.code.scaling is None else self.code.scaling.get("factor")


@dataclass(frozen=True)
class Verdict:
    """What a ladder is.

    Attributes:
        code: The finding, or None for one that is right.
        evidence: Its numbers.
    """

    code: str | None
    evidence: Mapping[str, Any]


def expected_of(
    code: Code, layers: str | None, which: str | None = None, reach: int | None = None, *, sure: bool = True
) -> Expected | None:
    """What a module that serves a code should hold; ``which`` of its ladders, and how far it has been asked."""
    if not code.rates:
        return None
    spec = code.spec if isinstance(code.spec, Rotary) else None
    ladders = dict(_ladders(code, spec, which, reach))
    plain = None
    if spec is not None and spec.scaling is not None:
        plain = np.array(replace(spec, scaling=None).rates)
    elif spec is None and code.scaling and code.base:
        plain = code.base ** (-np.arange(len(code.rates)) / len(code.rates))
    # Of a type whose class was not read the layout is not known, and the rest is guessed from common keys.
    return Expected(code, layers, ladders, plain, _slack(code), sure and code.layout is not None)


def _ladders(code: Code, spec: Rotary | None, which: str | None, reach: int | None) -> Iterator[tuple[str, np.ndarray]]:
    scaling = None if spec is None else spec.scaling
    if spec is not None and isinstance(scaling, LongRope):
        short, long = (np.array(replace(spec, length=length).rates) for length in (1, scaling.original + 1))
        if which != "long":
            yield f"up to {scaling.original:,} tokens", short
        if which not in ("original", "short"):
            yield f"beyond {scaling.original:,} tokens", long
    elif spec is not None and isinstance(scaling, Dynamic):
        if reach is not None and reach > scaling.original and which != "original":
            yield f"at {reach:,} tokens", np.array(replace(spec, length=reach).rates)
        else:
            yield f"up to {scaling.original:,} tokens", np.array(replace(spec, length=scaling.original).rates)
    else:
        yield "as declared", np.array(code.rates)


def _slack(code: Code) -> float:
    """How far float32 may put a rate from the exact one, in parts of it.

    ``base ** -x`` and ``exp(-x ln(base))`` are off by what the exponent is off by: it is a product of three numbers,
    each rounded, or of two and a rounding of its own, so three roundings of its size, which is at most the logarithm of
    what lies between the fastest rate and the slowest. The power, a quotient and a few more add eight. Where a scaling
    blends two rates, the share of the fast one is lost to a unit, and it is ``factor`` times the other.
    """
    assert code.rates
    turning = [rate for rate in code.rates if rate > 0]
    spread = math.log(max(turning) / min(turning)) if turning else 0.0
    factor = (code.scaling or {}).get("factor") or 0.0
    return 2.0**-24 * (8 + 3 * spread + 2 * factor)


def judged(numbers: np.ndarray, dtype: str, expected: Expected, context: int | None) -> Verdict:
    """What the numbers of one ladder are.

    Args:
        numbers: What a module holds, float64 [pairs].
        dtype: The type that it holds them in.
        expected: What it should hold.
        context: Positions that the model is for; rounding is told as an angle at their end.
    """
    ladders = {words: _as_many(rates, numbers) for words, rates in expected.ladders.items()}
    rates = next(iter(ladders.values()))
    with np.errstate(all="ignore"):
        wrong = _no_numbers(numbers, rates)
        if wrong is not None:
            return wrong
        if all(len(one) != len(numbers) for one in ladders.values()):
            return _of_another_width(numbers, expected) if expected.sure else unlike_any(numbers)
        for one in ladders.values():
            how = fits(numbers, one, expected.slack, dtype)
            if how == "exact":
                return Verdict(None, {})
            if how is not None:
                return Verdict("buffer-rounded", _rounding(numbers, one, how, context))
        if not expected.sure:
            plain = expected.plain is not None and fits(
                numbers, _as_many(expected.plain, numbers), expected.slack, dtype
            )
            return _another(numbers, dtype, rates, expected) if plain else unlike_any(numbers)
        return _another(numbers, dtype, rates, expected)


def unlike_any(numbers: np.ndarray) -> Verdict:
    """What can be said of rates that nothing is known of: whether anybody could have computed them."""
    wrong = ~np.isfinite(numbers) | (numbers < 0) | (numbers > _EVER) | ((numbers > 0) & (numbers < _SLOWEST))
    if wrong.any():
        pair = int(np.flatnonzero(wrong)[0])
        evidence = {"pair": pair, "stored": float(numbers[pair]), "wrong": int(wrong.sum()), "pairs": len(numbers)}
        return Verdict("buffer-uninitialised", evidence)
    return Verdict(None if numbers.any() else "buffer-zero", {"pairs": len(numbers)})


def _another(numbers: np.ndarray, dtype: str, rates: np.ndarray, expected: Expected) -> Verdict:
    """The first way to go wrong that makes these numbers."""
    evidence = worst(numbers, rates)
    for code, ladder, more in _ways(numbers, expected):
        how = fits(numbers, _as_many(ladder, numbers), expected.slack, dtype)
        if how is not None:
            rounded = {} if how == "exact" else {"rounded to": how}
            return Verdict(code, evidence | more | rounded)
    if not _is_ladder(numbers, rates):
        off = int(np.count_nonzero(np.abs(numbers - rates) > 2.0**-6 * rates))
        return Verdict("buffer-uninitialised", evidence | {"wrong": off, "pairs": len(numbers)})
    return Verdict("buffer-differs", evidence | _described(numbers, expected))


def fits(numbers: np.ndarray, ladder: np.ndarray, slack: float, dtype: str = "float32") -> str | None:
    """Whether numbers are a ladder: ``exact``, the type that they were rounded to, or None.

    A rate that was in float32 before it was rounded may lie on the other side of a midpoint, so not every number has
    to be the nearest one.
    """
    if len(numbers) != len(ladder):
        return None
    off = np.abs(numbers - ladder)
    if bool((off <= slack * ladder).all()):
        return "exact"
    for name, unit in ROUNDED.items():
        nearest = ladder.astype(output_dtype(name)).astype(np.float64)
        near = off <= 2 * unit * ladder + _STEP[name]
        if bool(near.all()) and np.count_nonzero(numbers == nearest) >= 0.9 * len(ladder):
            return name
    if dtype in ROUNDED:
        # Made in that type, each of a few operations rounded by itself.
        lost = ROUNDED[dtype] * (4 + math.log(max(ladder.max() / max(ladder.min(), 1e-300), 1.0)))
        if bool((off <= lost * ladder + _STEP[dtype]).all()):
            return dtype
    return None


def _no_numbers(numbers: np.ndarray, rates: np.ndarray) -> Verdict | None:
    bad = ~np.isfinite(numbers)
    if bad.any():
        pair = int(np.flatnonzero(bad)[0])
        evidence = {"pair": pair, "stored": float(numbers[pair]), "wrong": int(bad.sum()), "pairs": len(numbers)}
        if pair < len(rates):
            evidence["declared"] = float(rates[pair])
        return Verdict("buffer-uninitialised", evidence)
    if len(numbers) and not numbers.any() and rates.any():
        return Verdict("buffer-zero", {"pairs": len(numbers)})
    return None


def _of_another_width(numbers: np.ndarray, expected: Expected) -> Verdict:
    evidence: dict[str, Any] = {"pairs": len(numbers), "declared pairs": len(expected.rates)}
    if not _is_ladder(numbers, np.sort(np.abs(numbers))[::-1]):
        return Verdict(
            "buffer-uninitialised",
            evidence | {"pair": 0, "stored": float(numbers[0]), "wrong": len(numbers), "declared": 1.0},
        )
    return Verdict("buffer-of-another-width", evidence | _described(numbers, expected))


def _as_many(rates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The rates with one of 0 for each pair that is held and stands still (Gemma 4), where that makes them as many."""
    more = len(numbers) - len(rates)
    return np.concatenate([rates, np.zeros(more)]) if more > 0 and not numbers[len(rates) :].any() else rates


def _is_ladder(numbers: np.ndarray, rates: np.ndarray) -> bool:
    """Whether numbers could be rates at all: they fall as the declared ones do, from about one radian a token."""
    turning = numbers[rates > 0] if len(rates) == len(numbers) else numbers
    if not turning.size or (turning < _SLOWEST).any():
        return False
    falls = (np.diff(turning) <= 1e-6 * turning[:-1]).all()
    like_declared = len(rates) != len(numbers) or bool((np.diff(rates) <= 0).all())
    return bool(_FASTEST[0] <= turning.max() <= _FASTEST[1] and (falls or not like_declared))


def worst(numbers: np.ndarray, rates: np.ndarray) -> dict[str, Any]:
    """The pair that is furthest off, in parts of its rate."""
    off = np.abs(numbers - rates) / np.where(rates == 0, 1, rates)
    pair = int(np.argmax(off))
    return {"pair": pair, "stored": float(numbers[pair]), "declared": float(rates[pair])}


def _rounding(numbers: np.ndarray, rates: np.ndarray, dtype: str, context: int | None) -> dict[str, Any]:
    evidence = worst(numbers, rates) | {"rounded to": dtype}
    if context:
        evidence |= {"phase error": float(np.abs(numbers - rates).max()) * context, "context": context}
    return evidence


def _ways(numbers: np.ndarray, expected: Expected) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """The ways to go wrong: finding, the ladder that it makes, and what there is to say of it."""
    spec = expected.code.spec if isinstance(expected.code.spec, Rotary) else None
    factor = expected.factor
    told = {} if factor is None else {"declared factor": factor}
    if expected.plain is not None:
        yield "buffer-unscaled", expected.plain, {"effective factor": 1.0, **told, "base": expected.code.base}
    if spec is None or len(numbers) != len(expected.rates):
        return
    yield from _twice(spec, told)
    yield from _of_other_factors(numbers, spec, told)
    yield from _of_other_bases(numbers, spec)


def _twice(spec: Rotary, told: dict[str, Any]) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """The scaling applied to what it has made already; a scaling by index does so on the ladder's own terms."""
    if spec.scaling is None:
        return
    plain, once = np.array(replace(spec, scaling=None).rates), np.array(spec.rates)
    told = {**told, "effective factor": float(plain[-1] / once[-1]) ** 2}
    yield "buffer-scaled-twice", once * once / np.where(plain == 0, 1, plain), told
    try:
        yield "buffer-scaled-twice", np.array(spec.scaling(spec.ladder, spec.length).rates), told
    except (ClockhandsError, TypeError):
        return


def _of_other_factors(
    numbers: np.ndarray, spec: Rotary, told: dict[str, Any]
) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """The same scaling by the factor that the slowest pair has."""
    if spec.scaling is None or not hasattr(spec.scaling, "factor") or isinstance(spec.scaling, LongRope):
        return
    plain = np.array(replace(spec, scaling=None).rates)
    for factor in _written(plain[-1] / numbers[-1]):
        try:
            scaling = replace(spec.scaling, factor=factor)  # type: ignore[type-var]
            ladder = np.array(replace(spec, scaling=scaling).rates)
        except ClockhandsError:
            continue
        yield "buffer-of-another-factor", ladder, {**told, "effective factor": factor}


def _of_other_bases(numbers: np.ndarray, spec: Rotary) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """The same code by the base that the fast pairs, or all of them, have."""
    if not isinstance(spec.spacing, Geometric) or len(numbers) < 2 or (numbers <= 0).any():
        return
    for exponent in _exponents(numbers, spec):
        for base in _written(math.exp(exponent)):
            for scaling in dict.fromkeys((spec.scaling, None)):
                other = _with_base(spec, base, scaling)
                if other is None:
                    continue
                dropped = {"scaling dropped": True} if spec.scaling is not None and scaling is None else {}
                evidence = {"base in effect": base, "declared base": spec.base, **dropped}
                yield "buffer-of-another-base", np.array(other.rates), evidence


def _with_base(spec: Rotary, base: float, scaling: Any) -> Rotary | None:
    assert isinstance(spec.spacing, Geometric)
    try:
        return replace(spec, spacing=replace(spec.spacing, base=base), scaling=scaling)
    except ClockhandsError:
        return None


def _exponents(numbers: np.ndarray, spec: Rotary) -> Iterator[float]:
    """Logarithms of bases that these rates may have: of all pairs, of the fast ones, and with the scaling taken off.

    What a scaling does to a pair depends on its rate, so it is taken off by what it does at the base found before.
    """
    assert isinstance(spec.spacing, Geometric)
    steps = float(spec.spacing.denominator(spec.rotated))

    def of(rates: np.ndarray) -> float:
        return steps * math.log(rates[0] / rates[-1]) / (len(rates) - 1)

    found = [of(numbers), steps * math.log(numbers[0] / numbers[1])]
    exponent = math.log(spec.spacing.base)
    for _ in range(_ROUNDS if spec.scaling is not None else 0):
        scaled, plain = (_with_base(spec, math.exp(exponent), scaling) for scaling in (spec.scaling, None))
        if scaled is None or plain is None or not all(scaled.rates):
            break
        last, exponent = exponent, of(numbers * np.array(plain.rates) / np.array(scaled.rates))
        if not 0 < exponent < _LARGEST:
            break
        if abs(exponent - last) < 1e-7:
            found.append(exponent)
            break
    for each in dict.fromkeys(found):
        if 0 < each < _LARGEST:
            yield each


def _written(value: float) -> Sequence[float]:
    """A number as people may have written it down, from few digits to all."""
    return tuple(dict.fromkeys([*(float(f"{value:.{digits}g}") for digits in (2, 3, 4, 5, 6)), value]))


def _described(numbers: np.ndarray, expected: Expected) -> dict[str, Any]:
    """What the ladder is in words, if it is one that is known."""
    recognised = recognise(numbers, expected.slack)
    return {} if recognised is None else {"it is": recognised}


def recognise(numbers: np.ndarray, slack: float) -> str | None:
    """The ladder in words; None where no rule makes it."""
    spec = recognised_spec(numbers, slack)
    return None if spec is None else describe(spec)


def recognised_spec(numbers: np.ndarray, slack: float) -> Rotary | None:
    """The rotary code of these rates, if a rule makes them; its layout is not known from them."""
    try:
        fit = fit_ladder(numbers, np.maximum(slack * numbers, 1e-12))[0]
        if type(fit.spacing).__name__ == "Explicit":
            return None
        return Rotary(2 * len(numbers), spacing=fit.spacing, scaling=fit.scaling)
    except ClockhandsError:
        return None
