"""A factor on all that turns is measured and told, however near to 1 it is."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.scaling import Yarn
from clockhands.testing import check_rotary

SPECS = {"plain": ch.Rotary(32), "YaRN": ch.Rotary(32, scaling=Yarn(4.0, original=128))}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("factor", [0.5, 0.9995, 1.0001, 1.001, 1.5])
def test_a_factor_is_called_what_it_is(factor, spec):
    def too_long(x, positions):
        return ch.rotate(x, spec, positions) * np.float32(factor)

    report = check_rotary(too_long, spec, length=600, raises=False)
    assert report.codes == {"attention-factor"}
    assert report.explanations[0].evidence["factor"] == pytest.approx(factor * spec.attention_factor, rel=1e-5)
