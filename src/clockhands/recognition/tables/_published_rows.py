"""Presets of one axis whose rows are compared as they are, for codes that no measurement of pairs finds.

The position of row 0 is looked up among the preset's first positions, and that of row 1 gives the step. So a counter,
binary digits, sines without cosines and a sinusoid of the squared position are found, and so are frequencies that
turn by more than half a rotation from row to row, which pairs of rows show only modulo a rotation.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import cast

import numpy as np

from clockhands.encodings.additive import (
    AdditiveCode,
    AxialSinusoidal,
    FourierFeatures,
    Learned,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.specs import with_fields
from clockhands.errors import ClockhandsError
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Matches
from clockhands.recognition._preset_names import of_kind
from clockhands.recognition.tables._verifying import Candidate, ExpectedTable, in_words, verified

FARTHEST = 2048  # row 0 is looked up among the first so many positions, fewer in wide tables
_NUMBERS = 1 << 18  # the most numbers of a preset that are computed for this
_TRIED = 8  # the most positions of row 0 that are tried
_MOST = 0.02  # the largest error of a number; phases of thousands of radians in float32 have no other bound
_LENGTHS = ("length", "standardised")  # fields that are the number of rows of the whole table


def identify_published(given: GivenTable, prefix: int) -> Matches | None:
    """The match of a preset of one axis at equal steps of whole positions, or None; behind ``prefix`` rows of zeros."""
    for name, spec in _resized(given, prefix):
        match = _at_whole_positions(given, spec, name, prefix)
        if match is not None:
            where = f", from position {match.positions[0]} in steps of {match.positions.step}"
            return Matches([match], in_words(match, where, error=match.error))
    return None


def _resized(given: GivenTable, prefix: int) -> Iterator[tuple[str, AdditiveCode]]:
    """Name and spec of each computed preset of one axis at this width and number of rows."""
    for name, spec in of_kind(AdditiveCode):
        if isinstance(spec, Learned | FourierFeatures | AxialSinusoidal):
            continue
        if isinstance(spec, Sinusoidal) and max(spec.rates) <= math.pi:  # found by the rotation of its pairs
            continue
        lengths = {field: given.rows + prefix for field in _LENGTHS if getattr(spec, field, None) is not None}
        for changed in (lengths, {}) if lengths else ({},):
            with contextlib.suppress(ClockhandsError):  # an odd width, or numbers for one width only
                yield name, cast(AdditiveCode, with_fields(spec, width=given.width, **changed))


def _at_whole_positions(given: GivenTable, spec: AdditiveCode, name: str, prefix: int) -> Match | None:
    first, second = given.at(slice(0, 2))
    near = 4 * given.rounding * max(1.0, float(np.abs(first).max()), float(np.abs(second).max()))
    try:
        reach = max(64, min(FARTHEST, _NUMBERS // given.width))
        made = table(spec, reach, "float64")
    except ClockhandsError:
        return None
    # Rows that were computed in float32 have errors that grow with the phase.
    allowed = np.minimum(near + 2.0**-21 * _fastest(spec) * np.arange(reach)[:, None], max(near, _MOST))
    starts = np.flatnonzero((np.abs(made - first) <= allowed).all(axis=1))[:_TRIED]
    nexts = np.flatnonzero((np.abs(made - second) <= allowed).all(axis=1))[:_TRIED]
    for start in map(int, starts):
        for step in sorted({int(place) - start for place in nexts} - {0}, key=lambda step: (abs(step), step < 0)):
            before, end = start - step * prefix, start + step * given.rows
            if min(start, end - step) < 0 or (prefix and not _zero(spec, range(before, start, step))):
                continue
            seen = {"start": before, "step": step}
            candidate = Candidate(_expected(spec, start, step), range(before, end, step), seen, [name])
            match = verified(given, candidate)
            if match is not None and match.error <= max(near, _MOST):
                return match
    return None


def _zero(spec: AdditiveCode, positions: range) -> bool:
    """Whether the code's own rows at these positions are zeros."""
    return min(positions) >= 0 and not table(spec, positions, "float64").any()


def _expected(spec: AdditiveCode, start: int, step: int) -> ExpectedTable:
    return ExpectedTable(
        spec,
        lambda begin, end: range(start + step * begin, start + step * end, step),
        None,
        max(1.0, float(np.abs(table(spec, [max(0, start), start + step], "float64")).max())),
        np.full((1, spec.width), _fastest(spec)),
        power=2 if isinstance(spec, WarpedPosition) else 1,
    )


def _fastest(spec: AdditiveCode) -> float:
    """The highest rate of a code in rad/token; 0 for one without sinusoids."""
    ladder = getattr(spec, "ladder", None)
    return 0.0 if ladder is None else float(max(ladder.rates))
