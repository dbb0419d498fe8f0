"""A report belongs to whoever asked for it: what is changed in one changes no other."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.biases import Buckets


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        (ch.Rotary(head_width=16), None),
        (ch.Sinusoidal(width=16), None),
        (ch.Alibi(heads=4), None),
        (Buckets(heads=2), np.random.default_rng(0).normal(size=(32, 2))),
    ],
    ids=["rotary", "sinusoidal", "alibi", "buckets"],
)
def test_what_is_changed_in_a_report_changes_no_other(spec, values):
    told = str(ch.properties(spec, 64, values=values).to_dict())
    changed = [
        figure.clear()
        for _, each in ch.properties(spec, 64, values=values)
        for figure in each.numbers.values()
        if isinstance(figure, list) and figure
    ]
    assert changed, "there was something to change"
    assert str(ch.properties(spec, 64, values=values).to_dict()) == told
