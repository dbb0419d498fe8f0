"""Additive suspects that apply the right code wrongly: positions are read otherwise, numbers rounded, sums changed."""

from collections.abc import Callable, Iterator

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.faults.adding import Call, rounded
from clockhands.faults.additive_seen import Seen
from clockhands.faults.fault import Suspect

COARSE = {"bfloat16": 257, "float16": 2049}
"""Coarse dtypes, and the first whole number that each does not hold."""


def wrong_sums(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Tokens and code meet otherwise."""
    what = "its table is zeros" if seen.call == "positions" else "tokens come back as they were"
    yield seen.suspect("not-added", {"what": what}, add=lambda x, _, scale: scale * x)
    if seen.token_scale != 1:
        yield seen.suspect(
            ("not-added", "tokens-scaled"),
            {"what": "tokens come back as they were", "factor": 1.0, "declared": seen.token_scale},
            add=lambda x, *_: x,
        )
    yield seen.suspect("added-twice", {}, table=lambda rows, _: 2 * rows)
    declared = seen.adding(spec).scale
    if declared not in (0.0, 1.0):
        yield seen.suspect("scale-forgotten", {"declared": declared}, table=lambda rows, _: rows / declared)
    if seen.call != "positions":
        yield seen.suspect("code-multiplied", {}, add=lambda x, rows, scale: scale * x * rows)


def wrong_places(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Positions are read otherwise."""
    several = spec.number_of_axes > 1

    def counted(at: np.ndarray, start: int) -> np.ndarray:
        rows = start + np.arange(at.shape[-2 if several else -1], dtype=np.float64)
        return np.broadcast_to(rows[:, None] if several else rows, at.shape)

    def from_first(at: np.ndarray, _: Call) -> np.ndarray:
        return at - np.take(at, [0], axis=-2 if several else -1) if at.size else at

    def of_first(at: np.ndarray, _: Call) -> np.ndarray:
        return np.broadcast_to(at[:1], at.shape) if at.ndim > 1 + several else at

    # Where it counts its rows itself, it has no positions to ignore.
    for start in dict.fromkeys((0, spec.first, 1, 2)) if seen.call != "x" else ():
        yield seen.suspect("positions-ignored", {"start": start}, places=lambda at, _, start=start: counted(at, start))
    if seen.call != "x":
        yield seen.suspect("positions-from-first", {}, places=from_first)
    yield seen.suspect("positions-of-first-sequence", {}, places=of_first)
    yield seen.suspect("sign-for-negative-positions", {}, places=lambda at, _: np.abs(at))
    yield from _ends(spec, seen)
    if several:

        def first_of_all(at: np.ndarray, _: Call) -> np.ndarray:
            return np.repeat(at[..., :1], at.shape[-1], axis=-1)

        yield seen.suspect("axis-dropped", {"which": "all coordinates but the first"}, places=first_of_all)


def _ends(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """A table that ends, or is built again, where the first wrong row is."""
    if not seen.first_wrong or spec.number_of_axes > 1:
        return
    rows = int(seen.first_wrong)
    ways: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
        ("repeats the last one", lambda at: np.minimum(at, rows - 1)),
        ("begins again", lambda at: at % rows),
    )
    for how, places in ways:
        yield seen.suspect("table-ends", {"rows": rows, "how": how}, places=lambda at, _, places=places: places(at))
    yield seen.suspect(
        "table-ends",
        {"rows": rows, "how": "adds nothing"},
        table=lambda table, call: np.where(call.positions[..., None] < rows, table, 0.0),
    )
    if seen.adding(spec).hands is None:
        return
    for dtype in COARSE:
        # What is rounded is not always wrong: the table may have been built again a little before.
        for near in {rows, 1 << (rows.bit_length() - 1)}:

            def phases(at: np.ndarray, call: Call, near: int = near, dtype: str = dtype) -> np.ndarray:
                fine = call.adding.phases(at)
                if not at.size or at.max() < near:
                    return fine
                assert call.adding.hands is not None
                coarse = call.adding.phases(rounded(at, dtype), rounded(call.adding.hands.rates, dtype))
                return np.where((at >= near)[..., None], rounded(coarse, dtype), fine)

            yield seen.suspect("table-rebuilt-rounded", {"rows": near, "dtype": dtype}, phases=phases)


def wrong_arithmetic(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Numbers are rounded on the way, always or for coarse tokens only."""
    waves = seen.adding(spec).hands is not None
    for dtype, first in COARSE.items():
        parameters = {"dtype": dtype, "first": first}
        # Coarse tokens may meet another code than float32 ones.
        only = (False, True) if seen.coarse == dtype != seen.dtype else (False,)
        for coarse_only in only:
            for codes, parts in _PARTS if waves else ():

                def phases(
                    at: np.ndarray,
                    call: Call,
                    parts: str = parts,
                    dtype: str = dtype,
                    coarse_only: bool = coarse_only,
                ) -> np.ndarray:
                    if coarse_only and call.dtype != dtype:
                        return call.adding.phases(at)
                    return rounded_phases(at, call, parts, dtype)

                yield seen.suspect(codes, parameters, phases=phases)
            if not waves:
                yield seen.suspect(
                    "positions-rounded",
                    parameters,
                    places=lambda at, call, dtype=dtype, coarse_only=coarse_only: (
                        at if coarse_only and call.dtype != dtype else rounded(at, dtype)
                    ),
                )

        def table(rows: np.ndarray, _: Call, dtype: str = dtype) -> np.ndarray:
            return rounded(rows, dtype)

        yield seen.suspect("table-rounded", {"dtype": dtype}, table=table)
        if waves:
            yield seen.suspect("table-rounded", {"dtype": dtype}, waves=table)


_PARTS = (
    (("positions-rounded",), "p"),
    (("rates-rounded",), "r"),
    (("phases-rounded",), "f"),
    (("phases-rounded", "rates-rounded"), "rf"),
    (("positions-rounded", "rates-rounded", "phases-rounded"), "prf"),
    (("positions-rounded", "rates-rounded"), "pr"),
    (("positions-rounded", "phases-rounded"), "pf"),
)


def rounded_phases(at: np.ndarray, call: Call, parts: str, dtype: str) -> np.ndarray:
    """Phases with positions (p), rates (r) and their product (f) rounded, as far as these are named."""
    assert call.adding.hands is not None
    rates = call.adding.hands.rates
    at = rounded(at, dtype) if "p" in parts else at
    phases = call.adding.phases(at, rounded(rates, dtype) if "r" in parts else rates)
    return rounded(phases, dtype) if "f" in parts else phases
