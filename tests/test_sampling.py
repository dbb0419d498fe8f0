"""Positions drawn for training: exact, each set alike, and nothing random but the generator."""

import numpy as np
import pytest

from clockhands.encodings import memory
from clockhands.encodings.sampling import randomised, shifted
from clockhands.errors import TooLarge
from oracles import sentences
from oracles.rows import every


@every("length", [5, 8, 50, 2_000, 10**6, 2**40, 2**63 - 1])
def test_randomised_positions_ascend_below_the_length(length):
    drawn = randomised(5, length, 3, batch=40)
    assert drawn.dtype == np.int64
    assert drawn.shape == (40, 5)
    assert (np.diff(drawn) > 0).all()
    assert drawn.min() >= 0
    assert drawn.max() < length
    assert randomised(5, length, 3).shape == (5,)


def test_every_set_is_as_likely_and_each_sequence_has_its_own():
    sets, counts = np.unique(randomised(2, 5, 11, batch=20_000), axis=0, return_counts=True)
    assert len(sets) == 10
    # Each comes 2,000 times; five deviations of a binomial count.
    assert np.abs(counts - 2_000).max() < 5 * np.sqrt(20_000 * 0.1 * 0.9)
    assert len(np.unique(randomised(4, 100, 1, batch=50), axis=0)) > 45
    assert len(np.unique(shifted(4, 10_000, 1, batch=50), axis=0)) > 45


@every("largest", [0, 1, 500, 2**40, 2**63 - 5])
def test_shifted_positions_are_consecutive(largest):
    drawn = shifted(4, largest, 3, batch=300)
    assert drawn.dtype == np.int64
    assert (np.diff(drawn) == 1).all()
    assert drawn[:, 0].min() >= 0
    assert drawn[:, 0].max() <= largest
    assert shifted(4, largest, 3).shape == (4,)
    if largest < 100:
        assert set(drawn[:, 0]) == set(range(largest + 1))  # both ends are drawn


def test_only_the_generator_is_random():
    for draw in (randomised, shifted):
        np.random.seed(0)  # noqa: NPY002 - the global state is what must not matter
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        first = draw(8, 1_000, 5, batch=2)
        assert np.array_equal(first, draw(8, 1_000, 5, batch=2))
        assert np.array_equal(first, draw(8, 1_000, np.random.default_rng(5), batch=2))
        assert not np.array_equal(first, draw(8, 1_000, 6, batch=2))
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
        generator = np.random.default_rng(5)
        draw(8, 1_000, generator)
        assert not np.array_equal(draw(8, 1_000, generator), draw(8, 1_000, 5))


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("sampling", cases)


def test_what_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    for draw in (randomised, shifted):
        with pytest.raises(TooLarge, match=r"Positions of shape \[1000000, 1000000\] would take 7.28 TiB"):
            draw(10**6, 10**7, 0, batch=10**6)
