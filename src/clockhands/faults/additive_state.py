"""Additive suspects that keep state: caches without their key, tables in the first dtype."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.faults.adding import Adding, Apply, Call, Hands, rounded
from clockhands.faults.additive_code import COARSE, rounded_phases
from clockhands.faults.additive_seen import Seen
from clockhands.faults.fault import Suspect

_FIELDS = {
    ("cache-without-base",): ("spacing", "base"),
    ("cache-without-width",): ("width",),
    ("cache-without-order",): ("order",),
    # Kept by its width alone, or by nothing but its name.
    ("cache-without-base", "cache-without-order"): ("spacing", "base", "order", "layout"),
    ("cache-without-base", "cache-without-width", "cache-without-order"): ("spacing", "base", "order", "width"),
}


def stateful(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Suspects whose answers depend on what was asked before."""
    waves = seen.adding(spec).hands is not None
    if waves:
        for codes, without in _FIELDS.items():
            yield Suspect(codes, {}, lambda without=without: _shared(seen, without))
    for dtype in COARSE:
        ways: tuple[Callable[[AdditiveCode, Seen, str], Apply], ...] = (_kept_table,)
        for kept in (*ways, *((_kept_positions, _kept_phases) if waves else ())):
            yield seen.built(
                "cache-keeps-first-dtype",
                {"dtype": dtype},
                lambda it, kept=kept, dtype=dtype: kept(it, seen, dtype),
            )
    yield seen.built("cache-keeps-offset", {}, lambda it: _first_of_each_length(it, seen))
    for when, always in (("", True), (" where each has one token", False)):
        yield seen.built(
            "first-sequence-only", {"when": when}, lambda it, always=always: _first_only(it, seen, always=always)
        )


def _shared(seen: Seen, without: tuple[str, ...]) -> Callable[[AdditiveCode], Apply]:
    """A process whose models share what the first one of a key made."""
    models: dict[Any, Adding] = {}

    def key(spec: Any) -> Any:
        assert is_dataclass(spec)
        return tuple(getattr(spec, field.name) for field in fields(spec) if field.name not in without)

    def build(spec: AdditiveCode) -> Apply:
        def apply(x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
            # As caches do, it is filled by the first call, not when the model is built.
            held = models.setdefault(key(spec), seen.adding(spec))
            assert held.hands is not None
            return seen.adding(spec, hands=_cut(held.hands, spec.width), scale=held.scale)(x, *arguments, **more)

        return apply

    return build


def _cut(hands: Hands, width: int) -> Hands:
    """The first columns of a table."""
    columns = np.resize(np.arange(hands.rates.shape[1]), width)
    names = ("rates", "offsets", "quarters", "raw")
    return replace(hands, **{name: getattr(hands, name)[..., columns] for name in names})


class _Coarse:
    """Whether tokens of a coarse dtype have come."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.came = dtype, False

    def __call__(self, call: Call) -> bool:
        self.came = self.came or call.dtype == self.dtype
        return self.came


def _kept_table(spec: AdditiveCode, seen: Seen, dtype: str) -> Apply:
    coarse = _Coarse(dtype)
    return seen.adding(spec, table=lambda rows, call: rounded(rows, dtype) if coarse(call) else rows)


def _kept_positions(spec: AdditiveCode, seen: Seen, dtype: str) -> Apply:
    coarse = _Coarse(dtype)
    return seen.adding(spec, places=lambda at, call: rounded(at, dtype) if coarse(call) else at)


def _kept_phases(spec: AdditiveCode, seen: Seen, dtype: str) -> Apply:
    coarse = _Coarse(dtype)

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        return rounded_phases(at, call, "prf" if coarse(call) else "", dtype)

    return seen.adding(spec, phases=phases)


def _first_of_each_length(spec: AdditiveCode, seen: Seen) -> Apply:
    kept: dict[tuple[int, ...], np.ndarray] = {}
    return seen.adding(spec, places=lambda at, _: kept.setdefault(at.shape, at))


def _first_only(spec: AdditiveCode, seen: Seen, *, always: bool) -> Apply:
    def apply(x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        y = seen.adding(spec)(x, *arguments, **more)
        if always or x.shape[-2] == 1:
            y = np.concatenate([y[:1], seen.token_scale * x[1:]])
        return y

    return apply
