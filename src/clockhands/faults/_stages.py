"""Implementations in stages, and what a fault puts in the place of one: what the kinds of codes share.

Positions are read, multiplied by rates, and turned into waves: ``places -> phases -> waves``. What follows is each
kind's own. All of it is float64, so what a fault does is not hidden by rounding; positions are as large as models use,
not as large as the library takes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.faults._fault import Parts, Suspect

COARSE = {"bfloat16": 257, "float16": 2049}
"""Coarse dtypes, and the first whole number that each does not hold."""

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
"""What of a phase may be rounded, for `rounded_phases`, and the faults that it is."""


@dataclass(frozen=True, eq=False)
class Call:
    """What a stage may know of the call that it serves.

    Attributes:
        of: The implementation whose stage it is.
        x: The tokens, [batch, heads, seq, width].
        positions: Where they stand, as they were passed in.
        dtype: The dtype of the tokens.
        role: ``"query"`` or ``"key"``, where the code depends on it.
    """

    of: Any
    x: np.ndarray
    positions: np.ndarray
    dtype: str
    role: str | None

    @staticmethod
    def aligned(numbers: np.ndarray) -> np.ndarray:
        """Numbers [seq, columns] or [batch, seq, columns] that broadcast over heads."""
        return numbers[:, None] if numbers.ndim == 3 else numbers


Phases = Callable[[np.ndarray, Call], np.ndarray]
"""A stage that makes positions or phases of positions."""


class SuspectMaker:
    """What was measured of an implementation, as what makes suspects of it."""

    def right(self, spec: Any, **stages: Any) -> Apply:
        """A right implementation of a spec but for some stages."""
        raise NotImplementedError

    def built(
        self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], build: Callable[[Any], Apply]
    ) -> Suspect:
        """An implementation that is built for a spec, in a process in which nothing is shared."""
        return Suspect((codes,) if isinstance(codes, str) else codes, parameters, lambda: build)

    def suspect(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], **stages: Any) -> Suspect:
        """An implementation of the right code with stages of another kind."""
        return self.of_parts(codes, parameters, lambda spec: (spec, stages))

    def of_parts(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], parts: Parts) -> Suspect:
        """An implementation of another spec, with stages of another kind that follow from the right one."""

        def build(spec: Any) -> Apply:
            other, stages = parts(spec)
            return self.right(other, **stages)

        return replace(self.built(codes, parameters, build), parts=parts)

    def another(
        self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], change: Callable[[Any], Any]
    ) -> Suspect:
        """An implementation of another spec; of other models it gets the same field wrong."""

        def build(spec: Any) -> Apply:
            try:
                return self.right(change(spec))
            except ClockhandsError:
                return self.right(spec)

        return replace(self.built(codes, parameters, build), parts=lambda spec: (change(spec), {}))

    def together(self, one: Suspect, other: Suspect) -> Suspect | None:
        """An implementation with two faults, the second one a fault of the first one's spec; None where they clash."""
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
    """From a spec to the same one with other fields of its spacing."""
    return lambda spec: replace(spec, spacing=replace(spec.spacing, **changed))


def of_sources(spec: Any, seen: Any, *sources: Callable[[Any, Any], Iterator[Suspect]]) -> Iterator[Suspect]:
    """The suspects of all sources, one after another."""
    for source in sources:
        try:
            yield from source(spec, seen)
        except ClockhandsError:  # a spec that does not exist is no suspect
            continue


def rounded(numbers: Any, dtype: str) -> np.ndarray:
    """Numbers as this dtype holds them, float64 again."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float64).astype(output_dtype(dtype)).astype(np.float64)


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles within half a turn of 0."""
    return (angles + np.pi) % (2 * np.pi) - np.pi


def unwrapped_rates(angles: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """Rates, rad/token, from angles at positions 0, 1, 2, 4, ...; None where the first two are missing."""
    if 0 not in angles or 1 not in angles:
        return None
    rates, known = wrapped(angles[1] - angles[0]), 1
    for place in sorted(angles):
        if known < place <= 4 * known:
            rates = rates + wrapped(angles[place] - angles[0] - place * rates) / place
            known = place
    return rates


def rounded_phases(
    at: np.ndarray, call: Call, parts: str, dtype: str, held: Callable[[np.ndarray, str], np.ndarray] = rounded
) -> np.ndarray:
    """Phases with positions (p), rates (r) and their product (f) rounded, as far as these are named."""
    rates = call.of.rates
    at = held(at, dtype) if "p" in parts else at
    phases = call.of.phases(at, rounded(rates, dtype) if "r" in parts else rates)
    return rounded(phases, dtype) if "f" in parts else phases


class Places:
    """Positions that are read otherwise, [..., seq] or, of several axes, [..., seq, axes]."""

    def __init__(self, several: bool) -> None:
        self.several, self.tokens = several, -2 if several else -1

    def counted(self, at: np.ndarray, start: int = 0) -> np.ndarray:
        """The numbers of the rows."""
        rows = start + np.arange(at.shape[self.tokens], dtype=np.float64)
        return np.broadcast_to(rows[:, None] if self.several else rows, at.shape)

    def from_first(self, at: np.ndarray, _: Call) -> np.ndarray:
        """How far they are from the first."""
        return at - np.take(at, [0], axis=self.tokens) if at.size else at

    def on_from_first(self, at: np.ndarray, _: Call) -> np.ndarray:
        """The first, and numbers of rows on from it."""
        return np.take(at, [0], axis=self.tokens) + self.counted(at) if at.size else at

    def of_first_sequence(self, at: np.ndarray, _: Call) -> np.ndarray:
        """Those of the first sequence of the batch."""
        return np.broadcast_to(at[:1], at.shape) if at.ndim > 1 + self.several else at


def first_axis(at: np.ndarray, _: Call) -> np.ndarray:
    """The first coordinate in the place of all."""
    return np.repeat(at[..., :1], at.shape[-1], axis=-1)


def with_axes(sources: Mapping[int, int]) -> Phases:
    """Some coordinates read from others."""

    def moved(at: np.ndarray, _: Call) -> np.ndarray:
        order = [sources.get(axis, axis) for axis in range(at.shape[-1])]
        return at[..., order]

    return moved


class CoarseCache:
    """Whether a cache was made for tokens of a coarse dtype: for any of them, or by the first call for all."""

    def __init__(self, dtype: str, first: bool = False) -> None:
        self.dtype, self.first, self.kept = dtype, first, None

    def __call__(self, call: Call) -> bool:
        """Whether it is one at this call."""
        if self.kept is None or not (self.first or self.kept):
            self.kept = call.dtype == self.dtype
        return self.kept

    def places(self, at: np.ndarray, call: Call) -> np.ndarray:
        """Positions that are kept in the coarse dtype."""
        return rounded(at, self.dtype) if self(call) else at

    def phases(self, at: np.ndarray, call: Call) -> np.ndarray:
        """Phases that are kept in it, and all that they are made of."""
        return rounded_phases(at, call, "prf" if self(call) else "", self.dtype)


def kept_by_length() -> Phases:
    """Positions of the first call with so many, kept for the later ones."""
    kept: dict[tuple[int, ...], np.ndarray] = {}
    return lambda at, _: kept.setdefault(at.shape, at)


def first_sequence_only(right: Apply, always: bool, rest: Callable[[np.ndarray], np.ndarray]) -> Apply:
    """The code in the first sequence of a batch only, always or where each has one token; ``rest`` of the others."""

    def apply(x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        y = right(x, *arguments, **more)
        return np.concatenate([y[:1], rest(x[1:])]) if always or x.shape[-2] == 1 else y

    return apply


FIRST_ONLY = (("", True), (" if each has one token", False))
"""When `first_sequence_only` leaves sequences out, in words, and its ``always``."""


def shared(
    without: tuple[str, ...] | None, make: Callable[[Any], Any], use: Callable[[Any, Any], Apply]
) -> Callable[[Any], Apply]:
    """A process whose models share what the first one of a key made.

    Args:
        without: The fields of a spec that are no part of the key; None where nothing is.
        make: From a spec to what is kept.
        use: From what is kept and a model's own spec to its implementation.
    """
    models: dict[Any, Any] = {}

    def build(spec: Any) -> Apply:
        names = () if without is None else (field.name for field in fields(spec) if field.name not in without)
        key = tuple(getattr(spec, name) for name in names)

        def apply(*arguments: Any, **more: Any) -> np.ndarray:
            # As caches do, it is filled by the first call, not when the model is built.
            if key not in models:
                models[key] = make(spec)
            return use(models[key], spec)(*arguments, **more)

        return apply

    return build
