"""The value that says which rotary code it is."""

import numpy as np

import clockhands as ch
from oracles import sentences


def test_shift_turns_the_rotated_channels_only():
    spec = ch.Rotary(6, "interleaved", rotated=4)
    matrix = ch.shift(spec, 2)
    cosine, sine = np.cos([2, 0.02]), np.sin([2, 0.02])
    wanted = np.eye(6)
    for pair in range(2):
        a, b = 2 * pair, 2 * pair + 1
        wanted[a, a] = wanted[b, b] = cosine[pair]
        # A query (x, y) at position 2 is turned to (x cos - y sin, x sin + y cos).
        wanted[a, b], wanted[b, a] = -sine[pair], sine[pair]
    assert np.abs(matrix - wanted).max() < 1e-15
    halves = ch.shift(ch.Rotary(4), 2)
    assert np.abs(halves[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])] - wanted[:4, :4]).max() < 1e-15


def test_impossible_rotary_codes_are_refused_in_words(cases):
    sentences.hold("rotary_codes", cases)
