"""Faults that what was measured inside a model shows by itself, where no fault of the catalogue gives its answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clockhands.configs.resolved import layer_ranges
from clockhands.phrases import listed, number_of
from clockhands.testing.generation._measured_attention import (
    FROM_ZERO,
    NOTHING_ADDED,
    UNROTATED,
    LengthShift,
    Measured,
    PlacedRow,
    ReadTable,
    ScoreRow,
)

Told = tuple[str, Mapping[str, Any]]
"""A fault of the catalogue and the parameters of its sentence."""

_SHOWN = 3


def faults_of_calls(measured: Measured) -> list[Told]:
    """What is wrong in calls with a cache: by tables and by the places of queries and keys, or by scores."""
    unread = [*_unread_tables(measured.tables)]
    if unread:
        return unread  # what tokens without a row give is found at no position
    wrong = [one for one in measured.rows if one.got != one.right]
    of_scores = [*_of_scores(measured, wrong)]
    if of_scores:
        return of_scores
    told = [*_of_rows(measured, wrong)]
    read = [*_other_rows(measured.tables)]
    hows = [how["how"] for code, how in told if code == "decode-positions"] + read
    others = [each for each in told if each[0] != "decode-positions"]
    return [*([("decode-positions", {"how": "; ".join(hows)})] if hows else []), *others]


def shifted_by_length(shifts: Sequence[LengthShift]) -> str:
    """What stands further on for each token more of a call, in words."""
    said = []
    for side, by in dict.fromkeys((one.side, one.by) for one in shifts):
        layers = {one.layer for one in shifts if (one.side, one.by) == (side, by)}
        others = {one.layer for one in shifts if one.side != side}
        where = (
            "" if len(layers) == shifts[0].layers else f", in attention {layer_ranges(layers)} of {shifts[0].layers}"
        )
        name, other = ("queries", "keys") if side == "queries" else ("keys", "queries")
        apart = f", and its {other} are not" if not layers & others else ""
        far = f"{abs(by):g} position{'' if abs(by) == 1 else 's'} {'later' if by > 0 else 'earlier'}"
        said.append(f"with each token more of a call its {name} are {far}{apart}{where}")
    return "; ".join(said)


def _unread_tables(reads: Sequence[ReadTable]) -> Iterator[Told]:
    for name in dict.fromkeys(one.name for one in reads if not one.got):
        own = [one for one in reads if one.name == name and not one.got]
        yield "table-not-read", {"table": name, "calls": _calls(own)}


def _other_rows(reads: Sequence[ReadTable]) -> Iterator[str]:
    for name in dict.fromkeys(one.name for one in reads):
        own = [one for one in reads if one.name == name]
        got, right = (_few([row for one in own for row in getattr(one, side)]) for side in ("got", "right"))
        yield f"{_calls(own)} read the rows {got} of the table {name} instead of {right}"


def _of_rows(measured: Measured, wrong: Sequence[PlacedRow]) -> Iterator[Told]:
    """Of layers in which wrong rows are found at other positions; what is found nowhere may be the fault of another."""
    lost = {one.layer for one in wrong if one.got is None}
    first = min((one.layer for one in wrong), default=0)
    told = [one for one in wrong if one.got is not None and one.layer not in lost - {first}]
    sides = {side: [one for one in told if one.side == side] for side in ("queries", "new keys", "cached keys")}
    queries, new, cached = sides.values()
    if _same_places(queries, new):
        yield "decode-positions", {"how": _places("queries and keys", queries, measured)}
    elif queries and not new and not cached and _all_restart(queries, measured):
        yield "queries-restart", {}
    else:
        for name, rows in (("queries", queries), ("keys", new)):
            if rows:
                yield "decode-positions", {"how": _places(name, rows, measured)}
        if cached and not new:
            nowhere = [one for one in wrong if one.side == "cached keys" and one.got is None and one.layer == first]
            how = _places("cached keys", cached, measured)
            if nowhere:  # of rotated keys none is lost: the cache has moved its rows
                yield "decode-positions", {"how": f"{how}, and {number_of(len(nowhere), 'other')} at none"}
            else:
                yield "cached-keys-rotated-again", {"how": how}
    if not told and lost:
        nowhere = [one for one in wrong if one.layer == first]
        names = listed(list(dict.fromkeys(one.side.removeprefix("new ") for one in nowhere if one.side in sides)))
        notes = list(dict.fromkeys(one.note for one in nowhere))
        if notes == [UNROTATED] and {one.side for one in nowhere} <= {"new keys", "cached keys"}:
            how = "in one pass keys are the same at every position, as if not rotated, and those of "
            yield "keys-rotated-apart", {"how": f"{how}{_calls(nowhere)} are not{_where(nowhere, measured)}"}
            return
        how = f"the {names} of {_calls(nowhere)} {listed(notes)}{_where(nowhere, measured)}"
        yield "decode-positions", {"how": how}


def _same_places(queries: Sequence[PlacedRow], keys: Sequence[PlacedRow]) -> bool:
    """Whether queries and keys of the same tokens are at the same wrong positions, or by the same rule."""
    of_queries, of_keys = ({(one.layer, one.size, one.right, one.got) for one in rows} for rows in (queries, keys))
    if not queries or not keys:
        return False
    return of_queries == of_keys or (_rule(queries) != "" and _rule(queries) == _rule(keys))


def _all_restart(queries: Sequence[PlacedRow], measured: Measured) -> bool:
    """Whether the queries of all later calls count from 0."""
    later = [one for one in measured.rows if one.side == "queries" and one.start and one.layer in _layers(queries)]
    return len(later) == len(queries) and all(one.got == one.right - one.start for one in queries)


def _places(name: str, rows: Sequence[PlacedRow], measured: Measured) -> str:
    """Where some rows are, with the rule that gives their places, if a simple one does."""
    places = list(dict.fromkeys((one.start, one.got, one.right) for one in rows))
    got, right = _few([each for _, each, _ in places]), _few([each for _, _, each in places])
    rule = _rule(rows)
    said = f"the {name} of {_calls(rows)} are at positions {got} instead of {right}"
    return f"{said}{f' ({rule})' if rule else ''}{_where(rows, measured)}"


def _rule(rows: Sequence[PlacedRow]) -> str:
    """The simple rule that gives all places, in words; empty if there is none."""
    rule = next((words for words, fits in _RULES if all(map(fits, rows))), "")
    apart = {one.got - one.right for one in rows if one.got is not None}
    if not rule and len({one.got for one in rows}) == 1 and len({one.right for one in rows}) > 2:
        return "all at one, which does not move on"
    if not rule and len(apart) == 1:
        (by,) = apart
        rule = f"{abs(by)} too {'high' if by > 0 else 'low'}"
    return rule


_RULES: tuple[tuple[str, Callable[[PlacedRow], bool]], ...] = (
    ("each call counts from 0", lambda one: one.got == one.right - one.start),
    ("all tokens of a call have the position of its first", lambda one: one.size > 1 and one.got == one.start),
    ("twice the right one", lambda one: one.got == 2 * one.right),
    ("the position of the call is added", lambda one: one.got == one.right + one.start),
    ("the tokens of the call are counted as well", lambda one: one.got == one.right + one.size),
    ("half the right one", lambda one: one.got == one.right // 2),
)


def _of_scores(measured: Measured, wrong: Sequence[PlacedRow]) -> Iterator[Told]:
    """Other keys, or other numbers added to scores, of queries that are right and whose keys are.

    Nothing is said of layers behind one whose queries or keys are wrong.
    """
    calls = {(one.layer, one.size, one.start) for one in wrong}
    first = min((one.layer for one in wrong), default=measured.layers)
    sound = [one for one in measured.scores if (one.layer, one.size, one.start) not in calls and one.layer < first]
    others = [one for one in sound if one.missed is not None or one.seen[0] != one.seen[1]]
    if others:
        what = f"sees {others[0].seen[0]} keys instead of {others[0].seen[1]}"
        if others[0].missed is not None:
            what += f"; the first key that differs is that of position {others[0].missed}"
        how = f"in {_calls(others)} the query at position {others[0].right} {what}{_where(others, measured)}"
        yield "other-keys-seen", {"how": how}
        return
    related = [one for one in sound if one.relation]
    later = [one for one in sound if one.start and one.layer in _layers(related)]
    if related and all(one.relation == NOTHING_ADDED for one in later):
        yield "bias-lost-in-decode", {}
        return
    from_zero = [one for one in related if one.relation == FROM_ZERO]
    if from_zero and all(one in from_zero or one.right - one.start < 2 for one in related):
        related = from_zero  # the first tokens of a call have too few keys to show it
    said = []
    for relation in dict.fromkeys(one.relation.split(":")[0] for one in related):
        own = [one for one in related if one.relation.startswith(relation)]
        said.append(f"in {_calls(own)} {own[0].relation}, at position {own[0].right}{_where(own, measured)}")
    if said:
        yield "decode-bias", {"how": "; ".join(said)}


def _layers(rows: Sequence[PlacedRow | ScoreRow]) -> set[int]:
    return {one.layer for one in rows}


def _where(rows: Sequence[PlacedRow | ScoreRow], measured: Measured) -> str:
    layers = _layers(rows)
    return "" if len(layers) == measured.layers else f", in attention {layer_ranges(layers)} of {measured.layers}"


def _calls(rows: Sequence[PlacedRow | ScoreRow | ReadTable]) -> str:
    """Which calls some rows are of."""
    sizes, later = {one.size > 1 for one in rows}, all(one.start for one in rows)
    if len(sizes) == 2:
        return "later calls" if later else "calls"
    return f"{'later ' if later else ''}calls of {'several tokens' if True in sizes else 'one token'}"


def _few(numbers: Sequence[Any]) -> str:
    more = ", …" if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more
