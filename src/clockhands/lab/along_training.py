"""What a probe measures of kept models along a training: the groups of its numbers, and which are drawn together."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class MeasureGroup(NamedTuple):
    """Numbers of one unit.

    Attributes:
        unit: Their unit.
        chart: The chart of each arm in which they are lines; "" where each number is a chart whose lines are the arms.
        line: Before the name of a number in that chart.
    """

    unit: str
    chart: str = ""
    line: str = ""

    @property
    def short_unit(self) -> str:
        """The unit on the axis of a chart."""
        return self.unit.partition(" ")[0]


_READ = "position read out of hidden states"
_SHIFTED = "position left of a shift by 1 token"
_SHARE = "share of the variance"

GROUPS = {
    "loss": MeasureGroup("nats per answer"),
    "rise of the loss": MeasureGroup("nats per answer"),
    "heads at one distance": MeasureGroup("number"),
    "rise of the loss with a fault": MeasureGroup("nats per answer", "rise of the loss with each fault"),
    "position read after layer": MeasureGroup("R2", _READ, "layer "),
    "position read with all tokens at position 0, after layer": MeasureGroup("R2", _READ, "at 0, layer "),
    "position part left by R_k after layer": MeasureGroup(_SHARE, _SHIFTED, "R_k, layer "),
    "position part left by the best matrix after layer": MeasureGroup(_SHARE, _SHIFTED, "best, layer "),
    "terms of the scores of layer 0": MeasureGroup(_SHARE, "terms of the scores of layer 0"),
    "part of the distance in the position-position term": MeasureGroup(_SHARE, "distance in position-position"),
}
"""In the order in which they are shown. A fault has 0 where it changes no loss by more than rounding."""


def measure_name(group: str, name: str) -> str:
    """What a number is called in a store and in JSON.

    >>> measure_name("rise of the loss", "mean-row"), split_measure("rise of the loss: mean-row")
    ('rise of the loss: mean-row', ('rise of the loss', 'mean-row'))
    """
    return f"{group}: {name}"


def split_measure(measure: str) -> tuple[str, str]:
    """The group of a number, and its name in the group."""
    group, _, name = measure.partition(": ")
    return group, name


def in_order(measures: Iterable[str]) -> list[str]:
    """Measures as they are shown: by group, then layers by number and others by name."""

    def place(measure: str) -> tuple[int, int, str]:
        group, name = split_measure(measure)
        return list(GROUPS).index(group), int(name) if name.isdigit() else -1, name

    return sorted((each for each in measures if split_measure(each)[0] in GROUPS), key=place)


def charts_of_arm(measures: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The charts of one arm: title, and the measure and label of each line."""
    charts: dict[str, list[tuple[str, str]]] = {}
    for measure in in_order(measures):
        group, name = split_measure(measure)
        if GROUPS[group].chart:
            charts.setdefault(GROUPS[group].chart, []).append((measure, f"{GROUPS[group].line}{name}"))
    for title, lines in charts.items():
        yield f"{title} ({GROUPS[split_measure(lines[0][0])[0]].short_unit})", lines
