"""Pairs that complete a turn within a length, and those that never do."""

from clockhands.measures.turning import turned_through


def test_pairs_that_turn_through():
    assert turned_through((1.0, 0.5, 0.0), 12) == 1
    assert turned_through((1.0, 0.5, 0.0), 13) == 2
