"""Products in pieces are products."""

import numpy as np
import pytest

from clockhands.measures.ladders.sound_bases import product


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((1000, 128), (128, 1024)), ((2, 70, 300), (2, 300, 900)), ((0, 3), (3, 2))]
)
def test_a_product_in_pieces_is_the_product(shapes):
    draw = np.random.default_rng(7)
    left, right = (draw.normal(size=shape) for shape in shapes)
    found = product(left, right)
    np.testing.assert_allclose(found, left @ right, rtol=0, atol=1e-11)
    assert found.shape == (left @ right).shape


def test_a_wide_product_is_cut():
    """One row at a time where a row alone is larger than a piece."""
    left, right = np.ones((3, 1)), np.ones((1, 2**19))
    assert (product(left, right) == 1).all()
