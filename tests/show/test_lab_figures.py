"""The charts of the lab's report as a figure: in three forms, the same each time, with every arm and its interval."""

import re
from pathlib import Path

import pytest

from clockhands.errors import InvalidValue
from late import Late

pytest.importorskip("scipy")
figures = Late("clockhands.show.lab_figures")
shipped = Late("clockhands.lab.shipped_results")

BEGINS = {".svg": b"<?xml", ".pdf": b"%PDF-", ".png": b"\x89PNG"}


def test_a_figure_has_every_form_and_the_same_bytes_each_time(cases):
    pytest.importorskip("matplotlib")
    results = shipped.shipped_results("spacing")
    for form, begins in BEGINS.items():
        with cases(form):
            drawn = figures.figure_of(results, Path(f"it{form}"))
            assert drawn.startswith(begins)
            assert drawn == figures.figure_of(results, Path(f"it{form}"))
    with pytest.raises(InvalidValue, match=r"The figure it\.jpg has no known form\."):
        figures.figure_of(results, Path("it.jpg"))


def test_arms_changes_and_intervals_are_drawn():
    pytest.importorskip("matplotlib")
    drawn = figures.figure_of(shipped.shipped_results("scaling"), Path("it.svg")).decode()
    for text in (
        "rotary + yarn",
        "trained 64",
        "256 tokens",
        "the bars hold the range of the seeds. Study fecbbca797ec",
    ):
        assert text in drawn
    assert "change: loss (nats per token), sliding" in drawn
    assert len(set(re.findall(r'id="axes_\d+"', drawn))) == 7
    assert drawn.count('id="LineCollection') >= 7 * 4  # of each line, and of each group of bars, the intervals


def test_what_was_not_measured_yet_has_no_figure():
    pytest.importorskip("matplotlib")
    results = shipped.shipped_results("spacing")
    empty = type(results)(results.study, results.stored, (), ())
    with pytest.raises(InvalidValue, match="Nothing of this study was measured yet"):
        figures.figure_of(empty, Path("it.svg"))
