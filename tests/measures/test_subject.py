"""What is asked to be measured, before anything is: learned numbers that are none are refused, whoever made them."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.additive import Learned
from clockhands.biases import Buckets, Clipped
from clockhands.errors import InvalidValue


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_row_with_no_number_is_refused_and_named(bad, dtype):
    rows = np.random.default_rng(0).normal(size=(10, 4))
    assert ch.properties(Learned(4, rows=10), 10, dtype, values=rows).unique.holds
    rows[3, 1] = rows[7, 0] = bad
    for given in (rows, rows.astype(np.float32), rows.tolist()):
        with pytest.raises(InvalidValue, match=rf"`values` must be finite, got {bad} at \[3, 1\], the first of 2"):
            ch.properties(Learned(4, rows=10), 10, dtype, values=given)


def test_a_tensor_of_a_model_in_training_is_looked_at_too():
    torch = pytest.importorskip("torch")
    rows = torch.full((10, 4), float("nan"), dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(InvalidValue, match=r"got nan at \[0, 0\], the first of 40"):
        ch.properties(Learned(4, rows=10), 10, values=rows)


@pytest.mark.parametrize("spec", [Buckets(2), Clipped(2, 8)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bias_with_no_number_is_refused(spec, bad):
    ((name, shape),) = spec.shapes.items()
    numbers = np.zeros(shape)
    assert ch.properties(spec, 16, values=numbers).shift.holds
    numbers[2, 1] = bad
    with pytest.raises(InvalidValue, match=rf"`{name}` must be finite, got {bad} at \[2, 1\], the first of 1"):
        ch.properties(spec, 16, values=numbers)
