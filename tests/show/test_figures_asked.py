"""Whatever a figure is asked for, it is drawn or refused with a reason, and large figures cost what small ones do."""

import io
from itertools import product

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import ClockhandsError
from clockhands.show import _figures as figures
from clockhands.show._asked import MOST_POINTS, every, extremes
from memory_peaks import traced


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


PAPER = ch.Sinusoidal(width=16)
ODD = [
    *("x", "", "float32", b"x", None, float("nan"), float("inf"), -1, -2.5, 1.5, True, 2**63, 2**70, -(2**70), 1 + 2j),
    *([1], [], (), {}, {1, 2}, range(0), ("one",), ("a b", 5), object(), np.float32(3), np.int8(5)),
    *(np.ones((3, 4)), np.ones(0), np.array([5])),
]
ARGUMENTS = {
    "heatmap": ({"spec": PAPER, "rows": 8}, ["spec", "rows", "values", "trained", "theme"]),
    "clock": ({"spec": PAPER}, ["spec", "position", "theme"]),
    "pair": ({"spec": PAPER}, ["spec", "pair", "position", "theme"]),
    "shift": ({"spec": PAPER}, ["spec", "k", "starts", "theme"]),
    "kernel": ({"spec": PAPER, "length": 16}, ["spec", "other", "length", "theme"]),
    "ladder": ({"spec": PAPER}, ["spec", "length", "served", "theme"]),
    "precision": ({"spec": PAPER, "dtypes": ("float32",)}, ["spec", "dtypes", "way", "theme"]),
    "bias": ({"spec": ch.Alibi(heads=2), "length": 8}, ["spec", "length", "values", "theme"]),
    "attention": ({}, ["code", "sentences", "seed", "theme"]),
}


@pytest.mark.filterwarnings("error")
def test_an_argument_is_used_or_refused_with_a_reason(cases, draw):
    for name, (given, arguments) in ARGUMENTS.items():
        for argument, value in product(arguments, draw(ODD, 8)):
            with cases(name, argument, value):
                try:
                    found = getattr(figures, name)(**given | {argument: value})
                except ClockhandsError as error:
                    found = error
                assert found.hint and len(found.message) < 300 if isinstance(found, ClockhandsError) else found.axes


REFUSED = [
    lambda: figures.heatmap(ch.Alibi(heads=8)),
    lambda: figures.clock(ch.Alibi(heads=8)),
    lambda: figures.clock(ch.preset("qwen2-vl")),
    lambda: figures.clock(PAPER, [1]),
    lambda: figures.clock(PAPER, np.ones(1)),
    lambda: figures.pair(PAPER, 8),
    lambda: figures.shift(PAPER, starts=5),
    lambda: figures.shift(PAPER, starts=()),
    lambda: figures.shift(PAPER, starts=range(10**9)),
    lambda: figures.shift(PAPER, 2**63),
    lambda: figures.kernel(PAPER, length=0),
    lambda: figures.kernel(PAPER, theme=[]),
    lambda: figures.bias(PAPER),
    lambda: figures.precision(PAPER, 5),
    lambda: figures.precision(PAPER, "float32"),
    lambda: figures.precision(PAPER, ["float8"]),
    lambda: figures.attention("learned"),
    lambda: figures.attention(np.ones((3, 4))),
    lambda: figures.attention(sentences=("a b", "a c")),
    lambda: figures.attention(sentences=5),
    lambda: figures.attention(sentences=("one",)),
    lambda: figures.attention(sentences=("a " + "x" * 400, "x" * 400 + " a")),
    lambda: figures.attention(seed=1.5),
    lambda: figures.attention(seed=-1),
]


def test_what_was_given_and_what_is_allowed_is_said(snapshot, cases):
    told = []
    for number, call in enumerate(REFUSED):
        with cases(number), pytest.raises(ClockhandsError) as refused:
            call()
        told.append((type(refused.value).__name__, refused.value.message, refused.value.hint))
    assert told == snapshot


@pytest.mark.parametrize(("spec", "rows"), [(PAPER, 100_000), (PAPER, 2**24), (ch.Rotary(head_width=16), 2**24)])
def test_of_many_rows_those_are_computed_that_are_drawn(spec, rows):
    with traced() as peak:
        figure = figures.heatmap(spec, rows)
        assert peak() < 64e6
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    step = -(-rows // MOST_POINTS)
    assert MOST_POINTS / 2 < len(drawn) == len(range(0, rows, step)) <= MOST_POINTS
    if spec is PAPER:
        assert np.array_equal(drawn, ch.table(PAPER, range(0, rows, step), dtype="float64"))
    said = figure.texts[1].get_text().replace("\n", " ")
    assert f"{rows:,} positions, 16 dimensions. {every(step).capitalize()} position is shown." in said
    # The rows stand at their own positions.
    low, high = figure.axes[0].images[0].get_extent()[2:]
    assert (low, high) == (len(drawn) * step - 0.5, -0.5)
    assert figure.axes[0].get_ylim() == (rows - 0.5, -0.5)


def test_of_few_rows_all_are_drawn_and_nothing_is_said_of_it():
    figure = figures.heatmap(PAPER, MOST_POINTS)
    assert len(figure.axes[0].images[0].get_array()) == MOST_POINTS
    assert "is shown" not in figure.texts[1].get_text()


def test_a_long_curve_keeps_its_least_and_largest_values_and_its_ends():
    length = 2_000_000
    axes = figures.kernel(PAPER, length=length).axes[0]
    across, up = max((line.get_data() for line in axes.lines), key=lambda data: len(data[0]))
    values = ch.kernel(PAPER, range(length)) / 8
    assert len(across) <= MOST_POINTS + 2
    assert np.asarray(up) == pytest.approx(values[np.asarray(across)], abs=1e-11)
    assert (min(up), max(up)) == pytest.approx((values.min(), values.max()), abs=1e-11)
    assert (across[0], across[-1]) == (0, length - 1)
    # No factor of ten stands apart, where it would lie on the axis's name.
    axes.figure.savefig(io.BytesIO(), format="svg")
    assert not axes.xaxis.get_offset_text().get_text()
    for stretch in np.array_split(np.arange(length), 500):
        inside = (across >= stretch[0]) & (across <= stretch[-1])
        assert np.asarray(up)[inside].max() > values[stretch].max() - 0.35
    # The largest may stand in a last stretch that is shorter than the others.
    assert 9 in extremes(np.array([0.0, 3, 1, 2, 5, 4, 8, 9, 8]), 4)[1]
    short = np.array([3.0, 1, 2])
    assert extremes(short)[1] is short


def test_a_bias_over_many_tokens_is_drawn_at_some_distances_and_the_last():
    line = figures.bias(ch.Alibi(heads=2), 2**24).axes[0].lines[0]
    assert len(line.get_xdata()) <= MOST_POINTS + 1
    assert line.get_xdata()[-1] == 2**24 - 1
    assert np.asarray(line.get_ydata()) == pytest.approx(-np.asarray(line.get_xdata()) / 16)
