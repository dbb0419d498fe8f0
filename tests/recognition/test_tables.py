"""`clockhands.identify` of bare tables."""

import numpy as np
import pytest

import clockhands as ch


@pytest.mark.parametrize(
    ("name", "width"),
    [("vaswani2017", 64), ("marian", 32), ("marian", 33), ("dit", 33), ("pegasus-x", 32), ("tensor2tensor", 33), ("fairseq", 32)],
)
def test_a_preset_is_known_by_its_table(name, width):
    spec = ch.preset(name, width=width)
    (match,) = ch.identify(ch.table(spec, 40))
    assert match.positions == range(40)
    assert match.spec.rates == spec.rates
    assert name in (match.name, *match.equivalents)
    assert match.residual is None
    assert match.error <= 2**-24
