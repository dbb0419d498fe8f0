"""Writes the result of `identify --json` as JSON, and reads it back for `table`."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.auditing.findings import json_value
from clockhands.configs.targets import open_target
from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.grids import Grid
from clockhands.encodings.specs import SPECS, describe, from_dict, to_dict
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.formats import documents
from clockhands.recognition import Match, Matches

# Characters that a shell leaves unchanged.
_PLAIN = re.compile(r"[\w.,:=@%+/-]+")
_SHORT = 16  # the most positions that are written singly into a command
_FEW = 4096  # the most numbers of `values` in JSON


def result_to_dict(what: str, shape: Iterable[int] | None, dtype: str | None, matches: Matches) -> dict[str, Any]:
    """One element of `results`: name, reason, matches, best first, and what was measured of a table without a match."""
    return {
        "what": what,
        "shape": None if shape is None else list(shape),
        "dtype": dtype,
        "reason": matches.reason,
        "matches": [match_to_dict(match) for match in matches],
        "evidence": {name: json_value(value) for name, value in matches.evidence},
    }


def match_to_dict(match: Match) -> dict[str, Any]:
    """One match as JSON values."""
    return {
        "name": match.name,
        "says": describe(match.spec),
        "spec": to_dict(match.spec),
        "positions": positions_to_json(match.positions),
        "values": values_to_json(match.values),
        "error": json_value(match.error),
        "confidence": json_value(match.confidence),
        "equivalents": [to_dict(other) if isinstance(other, SPECS) else str(other) for other in match.equivalents],
        "computed_in": match.computed_in,
        "rows": asdict(match.rows),
        "residual": None if match.residual is None else json_value(asdict(match.residual)),
        "evidence": {name: json_value(value) for name, value in match.evidence},
        "command": command_of(match),
    }


def positions_to_json(positions: Any) -> Any:
    """Positions in short form: a range, a grid, equal steps; else each of them."""
    if positions is None:
        return None
    if isinstance(positions, range):
        return {"start": positions.start, "stop": positions.stop, "step": positions.step}
    if isinstance(positions, Grid):
        start, step = ([str(number) for number in numbers] for numbers in (positions.start, positions.step))
        return {
            "sizes": list(positions.sizes),
            "start": start,
            "step": step,
            "order": list(positions.order),
            "prefix": positions.prefix,
        }
    each = np.asarray(positions)
    if each.ndim == 0:
        return int(each)
    steps = equal_steps(each)
    if steps is not None:
        return {"first": steps[0], "step": steps[1], "count": len(each)}
    return each.tolist()


def positions_from_json(told: Any) -> Any:
    """The positions from the form that `positions_to_json` writes.

    Raises:
        InvalidValue: The value does not describe positions.
    """
    try:
        if not isinstance(told, dict):
            return told
        if "stop" in told:
            return range(told["start"], told["stop"], told["step"])
        if "sizes" in told:
            start, step = ([Fraction(number) for number in told[name]] for name in ("start", "step"))
            return Grid(told["sizes"], start=start, step=step, order=told["order"], prefix=told["prefix"])
        return told["first"] + told["step"] * np.arange(told["count"])
    except ClockhandsError:
        raise
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise InvalidValue(
            "The positions in the file cannot be understood.", "Write the file with `clockhands identify --json`."
        ) from None


def equal_steps(each: np.ndarray) -> tuple[float, float] | None:
    """First and step of positions that are ``first + step * row`` in float64, bit for bit; None for others."""
    if each.ndim != 1 or len(each) < 3 or each.dtype.kind != "f":
        return None
    first, rows = float(each[0]), np.arange(len(each))
    for step in dict.fromkeys((float((each[-1] - each[0]) / (len(each) - 1)), float(each[1] - each[0]))):
        for tried in (step, float(f"{step:.12g}")):
            if np.array_equal(first + tried * rows, each):
                return first, tried
    return None


def values_to_json(values: Any) -> Any:
    """Learned numbers, if they are few; those of a table stay in the file that they came from."""
    if values is None:
        return None
    each = np.asarray(values, dtype=np.float64)
    return each.tolist() if each.size <= _FEW else None


def command_of(match: Match) -> str | None:
    """The command that prints this table again; None if a command line cannot express it."""
    positions, spec = _positions_word(match.positions), match.spec
    if positions is None:
        return None
    if match.values is not None:
        if not isinstance(spec, Sinusoidal) or not spec.scaled:
            return None
        # On a command line, a trained scale is given as a fixed one.
        spec = replace(spec, scaled=False, scale=spec.scale * float(np.reshape(match.values, ())))
    for name in dict.fromkeys(filter(None, (match.name, "vaswani2017"))):
        target = _preset_word(name, spec)
        if target is not None:
            words = [target, "--positions", positions]
            return " ".join(["clockhands table", *(word if _PLAIN.fullmatch(word) else f"'{word}'" for word in words)])
    return None


def _preset_word(name: str, spec: Any) -> str | None:
    """``preset:field=value,…`` for a spec, if that form can express it."""
    try:
        known = to_dict(open_target(f"preset:{name}").spec)  # type: ignore[arg-type]
    except ClockhandsError:
        return None
    wanted = to_dict(spec)
    if known["type"] != wanted["type"]:
        return None
    fields = {}
    for field, value in wanted.items():
        if field in _silent(spec):
            continue
        if field == "spacing" and value != known[field]:
            inner = known[field] if isinstance(known[field], dict) else {}
            if not isinstance(value, dict) or value["type"] != inner.get("type"):
                return None
            fields |= {part: each for part, each in value.items() if each != inner.get(part)}
        elif value != known[field]:
            fields[field] = value
    words = [f"{field}={value if isinstance(value, str) else json.dumps(value)}" for field, value in fields.items()]
    text = f"{name}:{','.join(words)}" if words else name
    try:
        made = to_dict(open_target(f"preset:{text}").spec)  # type: ignore[arg-type]
    except ClockhandsError:
        return None
    return text if all(made[field] == value for field, value in wanted.items() if field not in _silent(spec)) else None


def _silent(spec: Any) -> tuple[str, ...]:
    """Fields on which no number of a table depends."""
    if not isinstance(spec, Sinusoidal):
        return ()
    return ("first",) if spec.width % 2 else ("first", "odd")


def _positions_word(positions: Any) -> str | None:
    """The value of ``--positions`` for these positions, if there is one."""
    if isinstance(positions, range):
        step = "" if positions.step == 1 else f":{positions.step}"
        return f"{positions.start}:{positions.stop}{step}"
    if isinstance(positions, Grid):
        return _grid_word(positions)
    if positions is None:
        return None
    each = np.asarray(positions)
    even = equal_steps(each)
    if even is not None and all(float(number).is_integer() for number in even) and even[1] > 0:
        first, step = map(int, even)
        return _positions_word(range(first, first + step * len(each), step))
    if each.ndim != 1 or not 0 < len(each) <= _SHORT:
        return None
    return ",".join(map(repr, each.tolist())) + ("," if len(each) == 1 else "")


def _grid_word(grid: Grid) -> str | None:
    """A grid from 0 in steps of 1.

    >>> _grid_word(Grid((14, 16), order=(1, 0), prefix=1)), _grid_word(Grid((2, 3), start=0.5))
    ('1+14x16/1,0', None)
    """
    if any(grid.start) or any(step != 1 for step in grid.step) or (grid.axes == 1 and not grid.prefix):
        return None
    prefix = f"{grid.prefix}+" if grid.prefix else ""
    order = "" if grid.order == tuple(range(grid.axes)) else f"/{','.join(map(str, grid.order))}"
    return f"{prefix}{'x'.join(map(str, grid.sizes))}{order}"


def read_found(path: Path) -> tuple[Any, Any, Any]:
    """Spec, positions (None where the file has none) and values of a file that `identify --json` or `to_json` wrote.

    Raises:
        Unreadable: It is not JSON.
        InvalidValue: It is not such a file, or recognised nothing, or has several tables.
    """
    fields = documents.read(path).fields
    if "type" in fields:
        return from_dict(fields), None, None
    results = fields.get("results")
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise InvalidValue(
            f"{path} holds neither a spec nor the output of `clockhands identify`.",
            "Write it with `clockhands identify --json` or clockhands.to_json.",
        )
    made = [each for each in results if each.get("matches")]
    if len(made) != 1:
        what = f"{len(made)} tables were recognised" if made else "nothing was recognised"
        raise InvalidValue(
            f"{path} must hold exactly one recognised table, but {what}.",
            "Write it for one table: `clockhands identify FILE:NAME --json`.",
        )
    try:
        match = made[0]["matches"][0]
        spec, positions, values = (match[name] for name in ("spec", "positions", "values"))
    except (KeyError, TypeError, IndexError):
        raise InvalidValue(
            f"{path} lacks fields that `clockhands identify --json` writes.", "Write the file again."
        ) from None
    return from_dict(spec), positions_from_json(positions), values
