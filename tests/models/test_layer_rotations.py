"""Cosines and sines read from what layers of a running model do to their queries."""

import numpy as np
import pytest

from clockhands.encodings.layouts import pair_channels


def test_cosine_and_sine_are_read_behind_a_norm_with_weights():
    """A norm behind the rotation multiplies each channel; another pairing leaves something over."""
    drawn = np.random.default_rng(0)
    rows, weights, angles = drawn.normal(size=(10, 4)), drawn.uniform(0.5, 2, 4), np.array([[0.0, 0.0], [0.3, 2.0]])
    pairs = pair_channels(2, "halves")
    first, second = pairs.T
    turned = np.stack([np.empty_like(rows)] * 2)
    for place, angle in enumerate(angles):
        turned[place][:, first] = rows[:, first] * np.cos(angle) - rows[:, second] * np.sin(angle)
        turned[place][:, second] = rows[:, first] * np.sin(angle) + rows[:, second] * np.cos(angle)
    pytest.importorskip("torch")
    from clockhands.models.fitted_rotations import fitted

    cosine, sine, left = fitted(turned * weights, pairs)
    np.testing.assert_allclose(cosine, np.cos(angles), atol=1e-12)
    np.testing.assert_allclose(sine, np.sin(angles), atol=1e-7)
    assert left < 1e-12
    assert fitted(turned * weights, pair_channels(2, "interleaved"))[2] > 0.1
