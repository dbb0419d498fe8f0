"""The charts of a study as one figure for a paper: SVG, PDF or PNG, drawn by matplotlib (the extra ``figures``).

They are the charts of the report: the measure by length, what each change at test time does, and along the training,
each mean with what the lab writes in brackets.
"""

import io
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from clockhands.errors import InvalidValue
from clockhands.lab.result_words import brackets
from clockhands.lab.results import Results
from clockhands.show._lab_charts import Chart, DotChart, Point, Series
from clockhands.show._lab_tasks import charts_of, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMS = (".svg", ".pdf", ".png")

_WIDTH, _LINES, _FRAME, _ROW = 7.0, 2.6, 0.9, 0.2  # inches: of all, of a line chart, around rows of dots, of a row
_LETTERS = 38  # of the name of the vertical axis in one line
_MARKERS = "os^Dv<>P"
_STYLES = ("-", "--", "-.", ":")
_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def figure_of(results: Results, file: Path) -> bytes:
    """The figure in the form that the name of the file ends in; the same bytes for the same results.

    Raises:
        InvalidValue: It ends otherwise, or nothing was measured yet.
    """
    if file.suffix not in FORMS:
        raise InvalidValue(f"The figure {file} has no known form.", f"End its name in one of: {', '.join(FORMS)}.")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = looks(results)
    charts = [(task, each) for task in results.study.own_tasks for each in charts_of(results, task, shown)]
    charts = [(task, each) for task, each in charts if _holds_something(each)]
    if not charts:
        raise InvalidValue("Nothing of this study was measured yet, so there is no figure.", "Run the study first.")
    heights = [_FRAME + _ROW * len(each.rows) if isinstance(each, DotChart) else _LINES for _, each in charts]
    with rc_context({"svg.hashsalt": results.study.hash, "svg.fonttype": "none", "font.size": 8}):
        figure = Figure((_WIDTH, math.fsum(heights) + 0.5), layout="constrained")
        below = figure.subplots(len(charts), 1, height_ratios=heights, squeeze=False)[:, 0]
        for (task, each), axes in zip(charts, below, strict=True):
            axes.set_title(task, loc="left")
            if isinstance(each, DotChart):
                _draw_rows(each, axes)
            else:
                _draw_lines(each, axes)
        says = f"{results.study.name}: means over seeds; {brackets(results, 'bars')}. Study {results.study.hash[:12]}."
        figure.supxlabel(says, fontsize=7)
        written = io.BytesIO()
        figure.savefig(written, format=file.suffix[1:], metadata=_UNDATED[file.suffix], dpi=200)
    return written.getvalue()


def _holds_something(chart: Chart | DotChart) -> bool:
    return (
        bool(chart.rows) if isinstance(chart, DotChart) else any(each.shown and not each.bound for each in chart.series)
    )


def _draw_lines(chart: Chart, axes: "Axes") -> None:
    for place, each in enumerate(chart.series):
        if each.shown:
            _draw_line(each, place, axes)
    for at, says in chart.marks:
        axes.axvline(at, color="0.6", linewidth=0.8, linestyle=":")
        axes.annotate(f" {says}", (at, 0.98), xycoords=("data", "axes fraction"), fontsize=7, va="top")
    axes.set_xlabel(chart.x.name)
    axes.set_ylabel(textwrap.fill(chart.y.name, _LETTERS))
    if chart.x.log:
        axes.set_xscale("log")
    if chart.y.log:
        axes.set_yscale("log")
    if chart.x.ticks is not None:
        axes.set_xticks(chart.x.ticks, [f"{each:,.0f}" for each in chart.x.ticks])
        axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _draw_line(series: Series, place: int, axes: "Axes") -> None:
    x, y = [each.x for each in series.points], [each.y for each in series.points]
    if series.bound:
        axes.plot(x, y, color="0.5", linewidth=0.8, label=series.name)
        return
    marker, style = _MARKERS[place % len(_MARKERS)], _STYLES[place // 10 % len(_STYLES)]
    reach = [_reach(each, each.y) for each in series.points]
    axes.errorbar(
        x, y, list(zip(*reach, strict=True)), color=f"C{place % 10}", marker=marker, linestyle=style, label=series.name,
        markersize=4, linewidth=1, capsize=2,
    )  # fmt: skip


def _draw_rows(chart: DotChart, axes: "Axes") -> None:
    """Bars from 0 where the axis must show it, else dots; the first row is above."""
    conditions = chart.conditions or ("",)
    from_zero, thick = 0.0 in chart.axis.holds, 0.8 / len(conditions)
    for number, says in enumerate(conditions):
        found = [(at, row.dots[number]) for at, row in enumerate(chart.rows) if number < len(row.dots)]
        dots = [(at + (number - (len(conditions) - 1) / 2) * thick, dot) for at, dot in found if dot is not None]
        places, values = [at for at, _ in dots], [dot.x for _, dot in dots]
        reach = list(zip(*(_reach(dot, dot.x) for _, dot in dots), strict=True)) or None
        if from_zero:
            axes.barh(places, values, thick, xerr=reach, color=f"C{number}", label=says, error_kw={"linewidth": 0.8})
        else:
            axes.errorbar(
                values, places, xerr=reach, color=f"C{number}", marker=_MARKERS[number], linestyle="", label=says
            )
    axes.set_yticks(range(len(chart.rows)), [row.name for row in chart.rows])
    axes.invert_yaxis()
    axes.set_xlabel(chart.axis.name)
    if chart.axis.log:
        axes.set_xscale("log")
    if len(conditions) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _reach(point: Point, value: float) -> tuple[float, float]:
    """How far the interval of a point reaches below and above its value."""
    if point.low is None or point.high is None:
        return 0.0, 0.0
    return max(0.0, value - point.low), max(0.0, point.high - value)
