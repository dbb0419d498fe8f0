"""The common part of implementations in stages, and the replacements of stages by faults.

Positions are read, multiplied by rates, and converted to cosines and sines: ``places -> phases -> waves``. The later
stages depend on the kind of code. Everything is float64, so that rounding does not hide the effect of a fault;
positions are limited to those that models use.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import rounded
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.recognition.suspects._fault_model import FaultModel, Parts

COARSE = {"bfloat16": 257, "float16": 2049}
"""Low-precision dtypes, and the first integer that each cannot represent."""

Apply = Callable[..., np.ndarray]
"""``apply(x [batch, heads, seq, width], positions [seq] or [batch, seq], dtype, role) -> x with the code``, float64."""

PARTS = (
    (("rates-rounded",), "r"),
    (("phases-rounded",), "f"),
    (("phases-rounded", "rates-rounded"), "rf"),
    (("positions-rounded", "rates-rounded", "phases-rounded"), "prf"),
    (("positions-rounded", "rates-rounded"), "pr"),
    (("positions-rounded", "phases-rounded"), "pf"),
)
"""The parts of a phase that may be rounded, for `phase_rounding`, and the corresponding faults."""


@dataclass(frozen=True, eq=False)
class Call:
    """The information of a call that its stages can use.

    Attributes:
        of: The implementation of the stage.
        x: The tokens, [batch, heads, seq, width].
        positions: Their positions, as passed in.
        dtype: The dtype of the tokens.
        role: ``"query"`` or ``"key"``, where the code depends on it.
    """

    of: Any
    x: np.ndarray
    positions: np.ndarray
    dtype: str
    role: str | None


Stage = Callable[[np.ndarray, Call], np.ndarray]
"""A stage: it maps the numbers of the stage before, or positions to phases."""


@dataclass(frozen=True)
class FieldFault:
    """A fault in one field of the spec: its code, the parameters of its sentence, and the change of a spec."""

    code: str
    parameters: Mapping[str, Any]
    change: Callable[[Any], Any]


def exchanged(
    spec: Any, code: str, field: str, opposite: Mapping[str, str], words: Mapping[str, str] | None = None
) -> FieldFault:
    """The fault of the opposite value of a field."""
    declared = getattr(spec, field)
    used = opposite[declared]
    named = {value: value for value in opposite} if words is None else words
    return FieldFault(
        code,
        {"declared": named[declared], "used": named[used]},
        lambda it: replace(it, **{field: opposite[getattr(it, field)]}),
    )


class SuspectMaker:
    """Base of the measurements of an implementation, from which suspects are made."""

    def right(self, spec: Any, **stages: Any) -> Apply:
        """A correct implementation of a spec with some stages replaced."""
        raise NotImplementedError

    def built(
        self,
        codes: str | tuple[str, ...],
        parameters: Mapping[str, Any],
        build: Callable[[Any], Apply],
        parts: Parts | None = None,
    ) -> FaultModel:
        """A suspect built by ``build`` for each spec, without state shared between models."""
        return FaultModel((codes,) if isinstance(codes, str) else codes, parameters, lambda: build, parts)

    def suspect(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], **stages: Any) -> FaultModel:
        """A suspect with the correct spec and some stages replaced."""
        return self.of_parts(codes, parameters, lambda spec: (spec, stages))

    def of_parts(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], parts: Parts) -> FaultModel:
        """A suspect with another spec and replaced stages, both computed from the correct spec."""

        def build(spec: Any) -> Apply:
            other, stages = parts(spec)
            return self.right(other, **stages)

        return self.built(codes, parameters, build, parts)

    def another(
        self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], change: Callable[[Any], Any]
    ) -> FaultModel:
        """A suspect with another spec; it makes the same change to the spec of every model."""

        def build(spec: Any) -> Apply:
            try:
                return self.right(change(spec))
            except ClockhandsError:
                return self.right(spec)

        return self.built(codes, parameters, build, lambda spec: (change(spec), {}))

    def faulty(self, fault: FieldFault) -> FaultModel:
        """A suspect with a fault in one field of the spec."""
        return self.another(fault.code, fault.parameters, fault.change)

    def changed(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], **fields: Any) -> FaultModel:
        """A suspect with another value in some fields of the spec, the same for every model."""
        return self.another(codes, parameters, lambda spec: replace(spec, **fields))

    def scaled(self, factor: float) -> FaultModel:
        """A suspect whose positions are multiplied by a factor."""
        return self.suspect("positions-scaled", {"factor": factor}, places=lambda at, _: at * factor)

    def moved(self, offset: int) -> FaultModel:
        """A suspect whose positions are shifted."""
        return self.suspect("positions-offset", {"offset": offset}, places=lambda at, _: at + offset)

    def together(self, one: FaultModel, other: FaultModel) -> FaultModel | None:
        """A suspect with two faults, the second applied to the first one's spec; None if they conflict."""
        if one.parts is None or other.parts is None or one.codes[0] == other.codes[0]:
            return None
        first, second = one.parts, other.parts

        def parts(spec: Any) -> tuple[Any, Mapping[str, Any]]:
            between, stages = first(spec)
            changed, more = second(between)
            clash = stages.keys() & more.keys()
            if clash - {"places"}:
                raise InvalidValue("Two faults change one stage.", "Try another pair.")
            both = {**stages, **more}
            if clash:  # positions are read twice
                here, there = stages["places"], more["places"]
                both["places"] = lambda at, call: there(here(at, call), call)
            return changed, both

        made = self.of_parts((*one.codes, *other.codes), one.parameters, parts)
        return replace(made, beside=other)


def with_spacing(**changed: Any) -> Callable[[Any], Any]:
    """A function that changes fields of a spec's spacing."""
    return lambda spec: replace(spec, spacing=replace(spec.spacing, **changed))


def of_sources(spec: Any, seen: Any, *sources: Callable[[Any, Any], Iterator[FaultModel]]) -> Iterator[FaultModel]:
    """The suspects of all sources, one after another."""
    for source in sources:
        try:
            yield from source(spec, seen)
        except ClockhandsError:  # a spec that does not exist is no suspect
            continue


When = Callable[[Call], bool]
Held = Callable[[np.ndarray, str], np.ndarray]


def always(_: Call) -> bool:
    """In all calls."""
    return True


def for_tokens_of(dtype: str) -> When:
    """Whether the tokens of a call have this dtype."""
    return lambda call: call.dtype == dtype


def rounding(dtype: str, when: When = always, held: Held = rounded) -> Stage:
    """A stage that rounds the numbers of the stage before, in all calls or in some."""
    return lambda numbers, call: held(numbers, dtype) if when(call) else numbers


def phase_rounding(dtype: str, parts: str, when: When = always, held: Held = rounded) -> Stage:
    """Phases with positions (p), rates (r) and their product (f) rounded, as far as these are named."""

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        if not when(call):
            return call.of.phases(at)
        at = held(at, dtype) if "p" in parts else at
        made = call.of.phases(at, rounded(call.of.rates, dtype) if "r" in parts else call.of.rates)
        return rounded(made, dtype) if "f" in parts else made

    return phases


def bases_of(rates: np.ndarray, exponents: np.ndarray, digits: tuple[int, ...]) -> Iterator[float]:
    """Bases of rates ``base**-exponent``: of the first, the median and the last rate, each with these decimals."""
    logarithms = -np.log(rates) / exponents
    for logarithm in (logarithms[0], np.median(logarithms), logarithms[-1]) if len(logarithms) else ():
        if abs(logarithm) < _LARGEST_LOGARITHM:
            yield from (float(f"{np.exp(logarithm):.{after}e}") for after in digits)


_LARGEST_LOGARITHM = 70  # of a base


class Places:
    """Wrong positions, [..., seq] or, for several axes, [..., seq, axes]."""

    def __init__(self, several: bool) -> None:
        self.several, self.tokens = several, -2 if several else -1

    def counted(self, at: np.ndarray, start: int = 0) -> np.ndarray:
        """The row numbers instead of the positions."""
        rows = start + np.arange(at.shape[self.tokens], dtype=np.float64)
        return np.broadcast_to(rows[:, None] if self.several else rows, at.shape)

    def from_first(self, at: np.ndarray, _: Call) -> np.ndarray:
        """Positions relative to the first one."""
        return at - np.take(at, [0], axis=self.tokens) if at.size else at

    def on_from_first(self, at: np.ndarray, _: Call) -> np.ndarray:
        """The first position plus the row numbers."""
        return np.take(at, [0], axis=self.tokens) + self.counted(at) if at.size else at

    def first(self, at: np.ndarray, _: Call) -> np.ndarray:
        """The first position for all tokens."""
        return np.broadcast_to(np.take(at, [0], axis=self.tokens), at.shape) if at.size else at

    def of_first_sequence(self, at: np.ndarray, _: Call) -> np.ndarray:
        """The positions of the first sequence of the batch for all sequences."""
        return np.broadcast_to(at[:1], at.shape) if at.ndim > 1 + self.several else at


def first_axis(at: np.ndarray, _: Call) -> np.ndarray:
    """The first coordinate in place of all coordinates."""
    return np.repeat(at[..., :1], at.shape[-1], axis=-1)


def with_axes(sources: Mapping[int, int]) -> Stage:
    """Some coordinates read from others."""

    def moved(at: np.ndarray, _: Call) -> np.ndarray:
        order = [sources.get(axis, axis) for axis in range(at.shape[-1])]
        return at[..., order]

    return moved


def other_ends(rows: int) -> tuple[tuple[str, Stage], ...]:
    """What a table of so many rows does beyond its end, and the positions that this gives."""
    return (
        ("repeats the last row", lambda at, _: np.minimum(at, rows - 1)),
        ("starts again at row 0", lambda at, _: at % rows),
    )


def rebuilt_tables(seen: Any, rows: int) -> Iterator[FaultModel]:
    """Suspects with rows that are those of a table which was rebuilt in the dtype of a longer call.

    Rounding does not change every row, so the table may have been rebuilt before the first wrong row.
    """
    for dtype, near in itertools.product(COARSE, {rows, 1 << (rows.bit_length() - 1)}):
        coarse = phase_rounding(dtype, "prf")

        def phases(at: np.ndarray, call: Call, near: int = near, coarse: Stage = coarse) -> np.ndarray:
            fine = call.of.phases(at)
            if not at.size or at.max() < near:
                return fine
            axes = getattr(call.of.spec, "axes", None)
            late = (at >= near)[..., list(axes)] if isinstance(axes, tuple) else (at >= near)[..., None]
            return np.where(late, coarse(at, call), fine)

        yield seen.suspect("table-rebuilt-rounded", {"rows": near, "dtype": dtype}, phases=phases)


class CoarseCache:
    """Whether a cache is low-precision: from the first such tokens on, or only if the first call has such tokens."""

    def __init__(self, dtype: str, first: bool) -> None:
        self.dtype, self.first, self.kept = dtype, first, None

    def __call__(self, call: Call) -> bool:
        """Whether the cache is low-precision in this call."""
        if self.kept is None or not (self.first or self.kept):
            self.kept = call.dtype == self.dtype
        return self.kept


def coarse_caches(seen: Any, dtype: str, stages: Iterable[str], firsts: tuple[bool, ...]) -> Iterator[FaultModel]:
    """Suspects that cache the numbers of one of these stages in this dtype; ``firsts`` as in `CoarseCache`."""
    for stage, first in itertools.product(stages, firsts):

        def build(it: Any, stage: str = stage, first: bool = first) -> Apply:
            cache = CoarseCache(dtype, first)
            made = phase_rounding(dtype, "prf", cache) if stage == "phases" else rounding(dtype, cache)
            return seen.right(it, **{stage: made})

        yield seen.built("cache-keeps-first-dtype", {"dtype": dtype}, build)


def kept_by_length() -> Stage:
    """Positions cached by their number: those of the first call are reused."""
    kept: dict[tuple[int, ...], np.ndarray] = {}
    return lambda at, _: kept.setdefault(at.shape, at)


def first_sequence_only(seen: Any, rest: Callable[[np.ndarray], np.ndarray]) -> Iterator[FaultModel]:
    """Suspects that apply the code to the first sequence of a batch only; the others get ``rest``, or zeros."""
    every_call, others = (
        (("", True), (" if each has one token", False)),
        (("", rest), (": the others are zeros", np.zeros_like)),
    )
    for (when, always), (said, made) in itertools.product(every_call, others):

        def build(it: Any, always: bool = always, made: Callable[[np.ndarray], np.ndarray] = made) -> Apply:
            right = seen.right(it)

            def apply(x: np.ndarray, *arguments: Any) -> np.ndarray:
                y = right(x, *arguments)
                return np.concatenate([y[:1], made(x[1:])]) if always or x.shape[-2] == 1 else y

            return apply

        yield seen.built("first-sequence-only", {"when": when + said}, build)


def shared(
    without: tuple[str, ...] | None, make: Callable[[Any], Any], use: Callable[[Any, Any], Apply]
) -> Callable[[Any], Apply]:
    """A process whose models share a cache with an incomplete key.

    Args:
        without: The fields of a spec that are not part of the key; None means that no field is.
        make: Computes the cached value from a spec.
        use: Builds the implementation from the cached value and the model's spec.
    """
    models: dict[Any, Any] = {}

    def build(spec: Any) -> Apply:
        names = () if without is None else (field.name for field in fields(spec) if field.name not in without)
        key = tuple(getattr(spec, name) for name in names)

        def apply(*arguments: Any, **more: Any) -> np.ndarray:
            # Like a real cache, it is filled by the first call, not when the model is built.
            if key not in models:
                models[key] = make(spec)
            return use(models[key], spec)(*arguments, **more)

        return apply

    return build
