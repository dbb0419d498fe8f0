"""Diagnosis of stored RoPE frequencies (rates).

`of_rates` compares rates with the exact ones of a rotary code. Implementations compute rates in float32 in a few
operations; the error bound is derived in `slack_of`. Rates outside of it are compared with every known error: another
base, another factor, another scaling, no scaling, the scaling twice, another order of pairs, combinations of these that
occur, and each rounded to bfloat16 or float16. The first one that gives the same numbers is returned.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import NAMES, SMALLEST, UNIT_ROUNDOFF, output_dtype, rounded
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import SIMPLE_FIRST, KnownScaling, Scaling
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.recognition import fit_ladder
from clockhands.recognition.faults import MODULE

# The types that rates lose digits in, with the relative error of one rounding.
ROUNDED = {dtype: UNIT_ROUNDOFF[dtype] for dtype in ("bfloat16", "float16")}

# The highest frequency of every published ladder is between 0.01 and 100 rad per token.
_FASTEST = (0.01, 100.0)
_SLOWEST = 1e-12
_ROUNDS = 12
_LARGEST = 50.0  # above the logarithm of every known base
_FEWEST = 4  # rates by which a ladder can be recognised
_NOT_RATES = {"slopes-differ": "slopes", "attention-factor-differs": "attention factor"}
_EVER = 1e5  # coordinates between 0 and 1 are rotated by thousands of radians


@dataclass(frozen=True)
class Reference:
    """The correct rates.

    Attributes:
        spec: The rotary code of the rates; None where only the rates are known.
        ladders: Descriptions to rates: one ladder, or several if they depend on the length in use.
        plain: The rates without the scaling; None if there is no scaling, or it is not known.
        slack: The relative error bound of a rate computed in float32.
        base: The base of the plain rates, or None.
        factor: The factor of the scaling, or None.
        sure: Whether these rates are known to be required; if not, only numbers that no ladder has are reported.
    """

    spec: Rotary | None
    ladders: Mapping[str, np.ndarray]
    plain: np.ndarray | None
    slack: float
    base: float | None = None
    factor: float | None = None
    sure: bool = True

    @property
    def rates(self) -> np.ndarray:
        """The first of the ladders."""
        return next(iter(self.ladders.values()))


@dataclass(frozen=True)
class Verdict:
    """The diagnosis of some numbers.

    Attributes:
        code: The error, such as ``buffer-unscaled``; None if the numbers are correct.
        evidence: The numbers that show it.
        explained: The share of the numbers that this explains.
        left: The largest relative error that remains unexplained.
    """

    code: str | None
    evidence: Mapping[str, Any]
    explained: float = 1.0
    left: float = 0.0

    @property
    def cause(self) -> str | None:
        """The code without its prefix: ``unscaled``, ``of-another-base``."""
        return None if self.code is None else self.code.removeprefix("buffer-")

    @property
    def hint(self) -> str:
        """What to do about it: the hint of the fault."""
        return "" if self.code is None else hint_of(self.code)


def hint_of(code: str) -> str:
    """What to do about a code of this engine; what is no fault by itself is one way for numbers to differ."""
    return (
        MODULE[code].hint if code in MODULE else MODULE["buffer-differs"].hint.replace("frequencies", _NOT_RATES[code])
    )


def of_rates(
    numbers: Any, spec: Rotary, dtype: str = "float32", *, length: int | None = None, context: int | None = None
) -> Verdict:
    """Diagnose rates by comparison with those of a rotary code.

    Args:
        numbers: The stored rates, rad/token, one for each pair.
        spec: The declared rotary code.
        dtype: The type in which they are stored.
        length: The longest length in use, for scalings that depend on it.
        context: The context length of the model; rounding is reported as an angle at its end.

    Returns:
        A verdict with one of the codes ``buffer-uninitialised``, ``-zero``, ``-rounded``, ``-unscaled``,
        ``-scaled-twice``, ``-reread``, ``-of-another-factor``, ``-of-another-base``, ``-of-another-scaling``,
        ``-of-another-width`` or ``-differs``; None where they are right.

    Raises:
        ClockhandsError: The spec has no rates at this length.

    >>> import clockhands as ch
    >>> llama3 = ch.Rotary(128, base=500_000, scaling=ch.scaling.Llama3(8, 8192))
    >>> of_rates(ch.Rotary(128, base=500_000).rates, llama3).code
    'buffer-unscaled'
    >>> of_rates(llama3.rates, llama3).code is None
    True
    """
    values = np.real(np.asarray(numbers)).astype(np.float64).reshape(-1)
    return judged(values, dtype, reference_of(spec, reach=length), context)


def reference_of(spec: Rotary, which: str | None = None, reach: int | None = None, *, sure: bool = True) -> Reference:
    """The rates of a rotary code.

    Args:
        spec: The code.
        which: ``"original"``, ``"short"`` or ``"long"`` where only one of a scaling's ladders is meant.
        reach: The longest length in use, for a dynamic scaling.
        sure: As in `Reference`.
    """
    plain = None if spec.scaling is None else _unscaled(spec)
    factor = getattr(spec.scaling, "factor", None)
    ladders = dict(_ladders(spec, which, reach))
    return Reference(spec, ladders, plain, slack_of(spec.rates, factor), spec.base, factor, sure)


def reference_of_rates(rates: np.ndarray) -> Reference:
    """Rates of which nothing else is known."""
    return Reference(None, {"as declared": rates}, None, slack_of(rates.tolist(), None))


def _unscaled(spec: Rotary) -> np.ndarray:
    """The rates without the scaling."""
    return np.array(replace(spec, scaling=None).rates)


def _ladders(spec: Rotary, which: str | None, reach: int | None) -> Iterator[tuple[str, np.ndarray]]:
    scaling = spec.scaling
    regimes = scaling.regimes(which, reach) if isinstance(scaling, KnownScaling) else (("as declared", None),)
    for words, length in regimes:
        yield words, np.array((spec if length is None else replace(spec, length=length)).rates)


def slack_of(rates: Sequence[float], factor: float | None) -> float:
    """The relative error bound of a rate computed in float32.

    The relative error of ``base ** -x`` and ``exp(-x ln(base))`` is the absolute error of the exponent: three roundings
    of its size, which is at most the logarithm of the highest rate over the lowest. The power, a quotient and a few
    other operations add eight roundings. If a scaling blends two rates, the weight of the higher one, which is
    ``factor`` times the other, has the error of one rounding.
    """
    turning = [rate for rate in rates if rate > 0]
    spread = math.log(max(turning) / min(turning)) if turning else 0.0
    return 2.0**-24 * (8 + 3 * spread + 2 * (factor or 0.0))


def judged(numbers: np.ndarray, dtype: str, reference: Reference, context: int | None) -> Verdict:
    """Diagnose the numbers of one ladder.

    Args:
        numbers: The stored rates, float64 [pairs].
        dtype: The type in which they are stored.
        reference: The correct rates.
        context: The context length of the model; rounding is reported as an angle at its end.
    """
    verdict = _judged(numbers, dtype, reference, context)
    if verdict.code is None or verdict.code == "buffer-rounded":
        return verdict
    return _reread(numbers, dtype, reference) or verdict


def _judged(numbers: np.ndarray, dtype: str, reference: Reference, context: int | None) -> Verdict:
    ladders = {words: _as_many(rates, numbers) for words, rates in reference.ladders.items()}
    rates = next(iter(ladders.values()))
    with np.errstate(all="ignore"):
        wrong = _no_numbers(numbers, rates)
        if wrong is not None:
            return wrong
        if all(len(one) != len(numbers) for one in ladders.values()):
            return _of_another_width(numbers, reference) if reference.sure else unlike_any(numbers)
        for one in ladders.values():
            how = fits(numbers, one, reference.slack, dtype)
            if how == "exact":
                return Verdict(None, {}, left=left(numbers, one))
            if how is not None:
                return Verdict("buffer-rounded", _rounding(numbers, one, how, context), left=left(numbers, one))
        if not reference.sure:
            plain = reference.plain is not None and fits(
                numbers, _as_many(reference.plain, numbers), reference.slack, dtype
            )
            return _another(numbers, dtype, rates, reference) if plain else unlike_any(numbers)
        return _another(numbers, dtype, rates, reference)


def _reread(numbers: np.ndarray, dtype: str, reference: Reference) -> Verdict | None:
    """The correct rates with bytes read as another type or in another order: a view instead of a cast.

    Numbers read as NaN have lost their bytes; all others must be correct, and be at least half.
    """
    for held_as, raw in _bytes_of(numbers, dtype):
        for name, swapped in itertools.product(NAMES, (False, True)):
            kind = output_dtype(name)
            if raw.nbytes % kind.itemsize or (name == held_as and not swapped):
                continue
            with np.errstate(all="ignore"):
                whole = raw.view(np.uint8).reshape(-1, kind.itemsize)
                one = (whole[:, ::-1] if swapped else whole).copy().view(kind).ravel().astype(np.float64)
            # Which of the numbers each byte belongs to.
            lost = np.repeat(np.isnan(numbers), raw.itemsize).reshape(-1, kind.itemsize).any(axis=1)
            off = reference.slack + UNIT_ROUNDOFF[name] * (name in ROUNDED) + 2.0**-15 * (held_as == "int32")
            least = SMALLEST[name] * (name in ROUNDED)
            for ladder in reference.ladders.values():
                near = np.abs(one - ladder) <= off * ladder + least if len(one) == len(ladder) else np.zeros(1, bool)
                if (near | lost).all() and near.sum() >= max(_FEWEST, len(ladder) / 2):
                    order = f"{name} in another byte order" if swapped else name
                    return Verdict("buffer-reread", {"bytes of": order, "read as": held_as, "pairs": len(numbers)})
    return None


def _bytes_of(numbers: np.ndarray, dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """The bytes of numbers, in each type that represents them exactly, or as integers that were converted to floats."""
    with np.errstate(all="ignore"):
        for name in dict.fromkeys((dtype, *NAMES)):
            raw = numbers.astype(output_dtype(name)) if name in NAMES else numbers[:0]
            if np.array_equal(raw.astype(np.float64), numbers, equal_nan=True):
                yield name, raw
        if np.isfinite(numbers).all() and (np.abs(numbers) < 2**31).all() and (numbers == np.round(numbers)).all():
            yield "int32", numbers.astype(np.int32)


def left(numbers: np.ndarray, ladder: np.ndarray) -> float:
    """The largest relative error."""
    return float((np.abs(numbers - ladder) / np.where(ladder == 0, 1, ladder)).max(initial=0.0))


def unlike_any(numbers: np.ndarray) -> Verdict:
    """Diagnose rates without a reference: whether they can be the result of any known computation."""
    wrong = ~np.isfinite(numbers) | (numbers < 0) | (numbers > _EVER) | ((numbers > 0) & (numbers < _SLOWEST))
    if wrong.any():
        return _uninitialised(numbers, wrong)
    return Verdict(None if numbers.any() else "buffer-zero", {"pairs": len(numbers)})


def _another(numbers: np.ndarray, dtype: str, rates: np.ndarray, reference: Reference) -> Verdict:
    """The first known error that gives these numbers."""
    evidence = worst(numbers, rates)
    for code, made, more in ways(numbers, dtype, reference):
        ladder = _as_many(made, numbers)
        how = fits(numbers, ladder, reference.slack, dtype)
        if how is not None:
            held_in = {} if how == "exact" else {"rounded to": how}
            return Verdict(code, evidence | more | held_in, left=left(numbers, ladder))
    off = np.abs(numbers - rates) > 2.0**-6 * rates
    explained, most = 1 - float(np.mean(off)), left(numbers, rates)
    described = _described(numbers, reference)
    ruled = described and len(numbers) >= _FEWEST  # two numbers fit any formula
    if not ruled and not _is_ladder(numbers, rates):
        found = {"wrong": int(np.count_nonzero(off)), "pairs": len(numbers)}
        return Verdict("buffer-uninitialised", evidence | found, explained, most)
    return Verdict("buffer-differs", evidence | described, explained, most)


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
        nearest = rounded(ladder, name)
        near = off <= 2 * unit * ladder + SMALLEST[name]
        if bool(near.all()) and np.count_nonzero(numbers == nearest) >= 0.9 * len(ladder):
            return name
    if dtype in ROUNDED:
        # Made in that type, each of a few operations rounded by itself.
        lost = ROUNDED[dtype] * (4 + math.log(max(ladder.max() / max(ladder.min(), 1e-300), 1.0)))
        if bool((off <= lost * ladder + SMALLEST[dtype]).all()):
            return dtype
    return None


def _uninitialised(numbers: np.ndarray, wrong: np.ndarray, rates: Sequence[float] | np.ndarray = ()) -> Verdict:
    """The diagnosis of numbers of which some are no rates, with the first one."""
    pair = int(np.flatnonzero(wrong)[0])
    evidence = {"pair": pair, "stored": float(numbers[pair]), "wrong": int(wrong.sum()), "pairs": len(numbers)}
    declared = {"declared": float(rates[pair])} if pair < len(rates) else {}
    return Verdict("buffer-uninitialised", evidence | declared)


def _no_numbers(numbers: np.ndarray, rates: np.ndarray) -> Verdict | None:
    bad = ~np.isfinite(numbers)
    if bad.any():
        return _uninitialised(numbers, bad, rates)
    if len(numbers) and not numbers.any() and rates.any():
        return Verdict("buffer-zero", {"pairs": len(numbers)})
    return None


def _of_another_width(numbers: np.ndarray, reference: Reference) -> Verdict:
    evidence: dict[str, Any] = {"pairs": len(numbers), "declared pairs": len(reference.rates)}
    ruled = len(numbers) >= _FEWEST and _described(numbers, reference)
    if not ruled and not _is_ladder(numbers, np.sort(np.abs(numbers))[::-1]):
        return Verdict(
            "buffer-uninitialised",
            evidence | {"pair": 0, "stored": float(numbers[0]), "wrong": len(numbers), "declared": 1.0},
        )
    return Verdict("buffer-of-another-width", evidence | _described(numbers, reference))


def _as_many(rates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The rates padded with zeros for stored pairs of rate 0 (Gemma 4), if that makes the numbers of pairs equal."""
    more = len(numbers) - len(rates)
    return np.concatenate([rates, np.zeros(more)]) if more > 0 and not numbers[len(rates) :].any() else rates


def _is_ladder(numbers: np.ndarray, rates: np.ndarray) -> bool:
    """Whether numbers can be rates: they decrease like the declared ones, from about one radian per token."""
    turning = numbers[rates > 0] if len(rates) == len(numbers) else numbers
    if not turning.size or (turning < _SLOWEST).any():
        return False
    falls = (np.diff(turning) <= 1e-6 * turning[:-1]).all()
    like_declared = len(rates) != len(numbers) or bool((np.diff(rates) <= 0).all())
    return bool(_FASTEST[0] <= turning.max() <= _FASTEST[1] and (falls or not like_declared))


def worst(numbers: np.ndarray, rates: np.ndarray) -> dict[str, Any]:
    """The pair with the largest relative error."""
    off = np.abs(numbers - rates) / np.where(rates == 0, 1, rates)
    pair = int(np.argmax(off))
    return {"pair": pair, "stored": float(numbers[pair]), "declared": float(rates[pair])}


def _rounding(numbers: np.ndarray, rates: np.ndarray, dtype: str, context: int | None) -> dict[str, Any]:
    evidence = worst(numbers, rates) | {"rounded to": dtype}
    if context:
        evidence |= {"phase error": float(np.abs(numbers - rates).max()) * context, "context": context}
    return evidence


Way = tuple[str, np.ndarray, dict[str, Any]]


def ways(numbers: np.ndarray, dtype: str, reference: Reference) -> Iterator[Way]:
    """Known errors: finding, the ladder that it gives, and evidence; single errors before combinations."""
    spec, factor = reference.spec, reference.factor
    told = {} if factor is None else {"declared factor": factor}
    if reference.plain is not None:
        yield "buffer-unscaled", reference.plain, {"effective factor": 1.0, **told, "base": reference.base}
    if spec is None or len(numbers) != len(reference.rates):
        return
    yield from _twice(spec, told)
    yield from _of_other_factors(numbers, spec, told)
    yield from _of_other_scalings(numbers, spec, told)
    yield from _of_other_bases(numbers, spec, told)
    yield from _in_another_order(numbers, reference)
    yield from _recognised(numbers, dtype, spec, reference.slack)


def _twice(spec: Rotary, told: dict[str, Any]) -> Iterator[Way]:
    """The scaling applied twice; a scaling by pair index uses the same indices both times."""
    if spec.scaling is None:
        return
    plain, once = _unscaled(spec), np.array(spec.rates)
    with np.errstate(over="ignore"):
        told = {**told, "effective factor": float(np.square(plain[-1] / once[-1]))}
    yield "buffer-scaled-twice", once * once / np.where(plain == 0, 1, plain), told
    try:
        yield "buffer-scaled-twice", np.array(spec.scaling(spec.ladder, spec.length).rates), told
    except (ClockhandsError, TypeError):
        return


def _of_other_factors(numbers: np.ndarray, spec: Rotary, told: dict[str, Any]) -> Iterator[Way]:
    """The same scaling with the factor measured from the lowest rate."""
    scaling: Any = spec.scaling
    if not getattr(scaling, "BY_FACTOR", hasattr(scaling, "factor")):
        return
    plain = _unscaled(spec)
    for factor in _written(plain[-1] / numbers[-1], scaling.factor):
        ladder = _scaled(spec, lambda factor=factor: replace(scaling, factor=factor))
        if ladder is not None:
            yield "buffer-of-another-factor", ladder, {**told, "effective factor": factor}


def _of_other_scalings(numbers: np.ndarray, spec: Rotary, told: dict[str, Any]) -> Iterator[Way]:
    """Scalings of another type, with the declared factor or the one measured from the lowest rate."""
    plain = _unscaled(spec)
    declared, original = (getattr(spec.scaling, name, None) for name in ("factor", "original"))
    # With all its digits, an NTK-aware scaling is any other base.
    fitted = [one for one in _written(plain[-1] / numbers[-1], None) if one == float(f"{one:.3g}")]
    for kind in SIMPLE_FIRST:
        if kind.BY_LENGTH or isinstance(spec.scaling, kind):
            continue
        factors: list[float] = [*([] if declared is None else [declared]), *fitted]
        for factor in dict.fromkeys(factors):
            ladder = _scaled(spec, lambda kind=kind, factor=factor: next(iter(kind.usual(factor, original)), None))
            if ladder is not None and factor > 1:
                more = {"scaling in effect": kind.__name__, "effective factor": factor}
                yield "buffer-of-another-scaling", ladder, {**told, **_declared_scaling(spec), **more}


def _declared_scaling(spec: Rotary) -> dict[str, Any]:
    return {"declared scaling": "none" if spec.scaling is None else type(spec.scaling).__name__}


def _scaled(spec: Rotary, make: Callable[[], Scaling | None]) -> np.ndarray | None:
    """The rates with another scaling; None where there is none."""
    try:
        scaling = make()
        return None if scaling is None else np.array(replace(spec, scaling=scaling).rates)
    except ClockhandsError:
        return None


def _of_other_bases(numbers: np.ndarray, spec: Rotary, told: dict[str, Any]) -> Iterator[Way]:
    """The same code with the base measured from the high frequencies or all: scaled, unscaled, or scaled twice."""
    if not isinstance(spec.spacing, Geometric) or len(numbers) < 2 or (numbers <= 0).any():
        return
    for exponent in _exponents(numbers, spec):
        for base in _written(math.exp(exponent), spec.base):
            evidence = {"base in effect": base, "declared base": spec.base}
            other = _with_base(spec, base, spec.scaling)
            if other is not None:
                yield "buffer-of-another-base", np.array(other.rates), evidence
            if spec.scaling is None:
                continue
            plain = _with_base(spec, base, None)
            if plain is not None:
                yield "buffer-of-another-base", np.array(plain.rates), {**evidence, "scaling dropped": True}
            if other is None:
                continue
            for _, ladder, _ in _twice(other, told):
                yield "buffer-of-another-base", ladder, {**evidence, "scaled twice": True}
            for _, ladder, more in _of_other_factors(numbers, other, told):
                yield "buffer-of-another-base", ladder, {**evidence, **more}


def _in_another_order(numbers: np.ndarray, reference: Reference) -> Iterator[Way]:
    """The declared or the plain ladder with its pairs in another order; or the declared one times a number."""
    place = np.argsort(np.argsort(-numbers, kind="stable"), kind="stable")
    for ladder, code in ((reference.rates, "buffer-differs"), (reference.plain, "buffer-unscaled")):
        if ladder is None or len(ladder) != len(numbers):
            continue
        words = "the declared frequencies" if code == "buffer-differs" else "the unscaled frequencies"
        more = {} if code == "buffer-differs" else {"effective factor": 1.0, "base": reference.base}
        yield code, np.sort(ladder)[::-1][place], {**more, "it is": f"{words} in another order of pairs"}
    for times in _written(float(np.median(numbers / reference.rates)), 1.0):
        yield "buffer-differs", times * reference.rates, {"it is": f"the declared frequencies times {times:g}"}


def _recognised(numbers: np.ndarray, dtype: str, spec: Rotary, slack: float) -> Iterator[Way]:
    """A recognised ladder that was not declared, reported by the difference: base, scaling, or factor."""
    if not getattr(spec.scaling, "BY_FACTOR", True) or len(numbers) < _FEWEST:
        return
    found = recognised_spec(numbers, max(slack, _unit(numbers, dtype)))
    if found is None or not isinstance(found.spacing, Geometric):
        return
    evidence: dict[str, Any] = {"it is": describe(found)}
    ladder = np.array(found.rates)
    if spec.base is not None and found.base is not None and not _alike(found.base, spec.base):
        dropped = {"scaling dropped": True} if spec.scaling is not None and found.scaling is None else {}
        evidence |= {"base in effect": found.base, "declared base": spec.base, **dropped}
        yield "buffer-of-another-base", ladder, evidence
    elif type(found.scaling) is not type(spec.scaling) and found.scaling is not None:
        factor = getattr(found.scaling, "factor", None)
        evidence |= {**_declared_scaling(spec), "scaling in effect": type(found.scaling).__name__}
        evidence |= {} if factor is None else {"effective factor": factor}
        yield "buffer-of-another-scaling", ladder, evidence


def rounded_to(numbers: np.ndarray) -> str | None:
    """The coarser type that represents all numbers exactly, as chance does not; None where there is none."""
    fine = numbers[np.frexp(numbers)[0] != 0.5]  # powers of two are in every type
    for name in ROUNDED:
        if len(fine) >= _FEWEST and np.array_equal(rounded(fine, name), fine):
            return name
    return None


def _unit(numbers: np.ndarray, dtype: str) -> float:
    """The unit roundoff of the numbers: that of their type, or of a coarser type that represents them all."""
    for name, unit in ROUNDED.items():
        if dtype == name or np.array_equal(rounded(numbers, name), numbers):
            return unit
    return 0.0


def _with_base(spec: Rotary, base: float, scaling: Any) -> Rotary | None:
    assert isinstance(spec.spacing, Geometric)
    try:
        return replace(spec, spacing=replace(spec.spacing, base=base), scaling=scaling)
    except ClockhandsError:
        return None


def _exponents(numbers: np.ndarray, spec: Rotary) -> Iterator[float]:
    """Logarithms of candidate bases: from all pairs, from the high frequencies, and with the scaling removed.

    The effect of a scaling on a pair depends on its rate, so it is removed by its effect at the base found before.
    """
    assert isinstance(spec.spacing, Geometric)
    steps = float(spec.spacing.denominator(spec.rotated))

    def of(rates: np.ndarray) -> float:
        return steps * math.log(rates[0] / rates[-1]) / (len(rates) - 1)

    # The slope of all logarithms is the best of them where numbers are rounded.
    slope = -float(np.polyfit(np.arange(len(numbers)), np.log(numbers), 1)[0])
    found = [steps * slope, of(numbers), steps * math.log(numbers[0] / numbers[1])]
    for times in (1, 2) if spec.scaling is not None else ():  # scaled once, or twice
        exponent = math.log(spec.spacing.base)
        for _ in range(_ROUNDS):
            scaled, plain = (_with_base(spec, math.exp(exponent), scaling) for scaling in (spec.scaling, None))
            if scaled is None or plain is None or not all(scaled.rates):
                break
            last, exponent = exponent, of(numbers * (np.array(plain.rates) / np.array(scaled.rates)) ** times)
            if not 0 < exponent < _LARGEST:
                break
            if abs(exponent - last) < 1e-7:
                found.append(exponent)
                break
    for each in dict.fromkeys(found):
        if 0 < each < _LARGEST:
            yield each


def _alike(value: float, declared: float) -> bool:
    """Whether a number equals the declared one up to rounding: nobody declares a base that is 0.1 % off."""
    return abs(value - declared) <= 1e-3 * abs(declared)


def _written(value: float, declared: float | None) -> Sequence[float]:
    """The number rounded to few digits, then to more, up to all; without the declared one."""
    if not math.isfinite(value) or value <= 0:
        return ()
    found = dict.fromkeys([*(float(f"{value:.{digits}g}") for digits in (1, 2, 3, 4, 5, 6)), value])
    return tuple(one for one in found if declared is None or not _alike(one, declared))


def _described(numbers: np.ndarray, reference: Reference) -> dict[str, Any]:
    """A description of the ladder as evidence, if it is recognised, also with the other sign."""
    negative = bool((numbers < 0).all())
    spec = recognised_spec(-numbers if negative else numbers, reference.slack)
    return {} if spec is None else {"it is": f"{describe(spec)}{', with a minus sign' if negative else ''}"}


def recognised_spec(numbers: np.ndarray, slack: float) -> Rotary | None:
    """The rotary code of these rates, if they are recognised; rates do not determine its layout."""
    return _fitted(numbers.astype(np.float64).tobytes(), slack)


@lru_cache(512)  # layers mostly hold the same numbers, and wrong ones are held to many ladders
def _fitted(held: bytes, slack: float) -> Rotary | None:
    numbers = np.frombuffer(held)
    try:
        fit = fit_ladder(numbers, np.maximum(slack * numbers, 1e-12))[0]
        if type(fit.spacing).__name__ == "Explicit":
            return None
        return Rotary(2 * len(numbers), spacing=fit.spacing, scaling=fit.scaling)
    except ClockhandsError:
        return None
