"""The charts of the lab's report: values where they belong, labels that can be read, any number drawn."""

import math
import re
from itertools import pairwise, product
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from clockhands.show import _lab_charts as charts
from clockhands.show._lab_charts import LOOKS, Axis, Chart, Point, Series


def numbers(path: str) -> list[tuple[float, float]]:
    return [tuple(map(float, point.split(","))) for point in re.findall(r"[ML]([\d.]+,[\d.]+)", path)]


def drawn(chart: Chart, kind: str) -> list[dict[str, str]]:
    """The attributes of the elements of a class."""
    page = ET.fromstring(charts.line_chart(chart, 400, 250))
    return [each.attrib for each in page.iter() if kind in each.attrib.get("class", "").split()]


def a_line(name: str, *ys: float, look: int | None = 0) -> Series:
    return Series(name, tuple(Point(float(x), y) for x, y in enumerate(ys)), look)


@pytest.mark.parametrize("log", [False, True])
def test_points_are_where_their_values_are(log):
    values = (1.0, 10.0, 1000.0)
    (path,) = drawn(Chart(Axis("x"), Axis("y", log=log), (a_line("a", *values),)), "line")
    ys = [y for _, y in numbers(path["d"])]
    shares = [(y - ys[0]) / (ys[-1] - ys[0]) for y in ys]
    wanted = [math.log10(v) / 3 for v in values] if log else [(v - 1) / 999 for v in values]
    assert shares == pytest.approx(wanted, abs=0.005)
    assert ys[0] > ys[-1]


def test_labels_do_not_overlap_and_stay_in_the_picture():
    rng = np.random.default_rng(0)
    for _ in range(20):
        many = tuple(a_line(f"arm {n}", 0.0, float(rng.choice([0.1, 0.1, rng.random()])), look=n) for n in range(LOOKS))
        chart = Chart(Axis("x"), Axis("y"), many)
        ys = sorted(float(each["y"]) for each in drawn(chart, "label"))
        assert len(ys) == LOOKS
        assert min(b - a for a, b in pairwise(ys)) >= 14.5
        assert ys[0] > 0
        assert ys[-1] < 250


def test_labels_are_in_the_order_of_the_lines():
    chart = Chart(
        Axis("x"), Axis("y"), (a_line("low", 0, 0.1), a_line("high", 0, 0.9, look=1), a_line("mid", 0, 0.11, look=2))
    )
    found = re.findall(r'<text class="label[^>]*>(\w+)<', charts.line_chart(chart, 400, 250))
    assert found == ["high", "mid", "low"]


def test_a_line_is_broken_where_a_number_is_missing():
    chart = Chart(Axis("x"), Axis("y"), (a_line("a", 1.0, 2.0, math.nan, 3.0),))
    (path,) = drawn(chart, "line")
    assert path["d"].count("M") == 2
    assert "nan" not in path["d"]


def test_words_at_marks_stand_between_the_name_of_the_axis_and_their_lines():
    chart = Chart(Axis("x"), Axis("y"), (a_line("a", 1.0, 2.0, 3.0),), ((1, "trained"), (2, "served")))
    page = ET.fromstring(charts.line_chart(chart, 400, 250))
    (name,) = [float(each.attrib["y"]) for each in page.iter() if each.text == "y"]
    heights = [float(each.get("y", "0")) for each in page.iter() if each.text in ("trained", "served")]
    assert len(heights) == 2
    assert all(name < height < float(edge["y1"]) for height in heights for edge in drawn(chart, "edge"))


def test_any_values_can_be_drawn(cases):
    many = [(2.0,), (2.0, 2.0), (0.0, 0.0), (-1.0, 1.0), (1e-9, 1e9), (math.inf, 1.0), (math.nan,)]
    for values, log in product(many, (False, True)):
        x, y = Axis("x", log=log), Axis("y", log=log)
        row = charts.DotRow("a", tuple(Point(value, 0.0, value, value) for value in values))
        with cases(values, log):
            chart = Chart(x, y, (a_line("a", *values), a_line("b", *values, look=None)), ((3, "m"),))
            page = charts.line_chart(chart, 320, 200)
            assert "nan" not in page
            assert "inf" not in page
            assert "nan" not in charts.dot_rows(charts.DotChart(y, (row, charts.DotRow("b", (None,)))), 320)
            assert charts.dot_rows(charts.DotChart(y, ()), 320)
