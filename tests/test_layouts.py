"""Layouts: which two channels form a pair, and numbers written into them."""

import itertools

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clockhands.encodings.layouts import pair_channels, permutation, place
from oracles import sentences
from oracles.rows import every

LAYOUTS = ("interleaved", "halves")


def test_pairs_of_channels():
    assert pair_channels(3, "interleaved").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert pair_channels(3, "halves").tolist() == [[0, 3], [1, 4], [2, 5]]
    for layout in LAYOUTS:
        channels = pair_channels(4, layout)
        assert channels.dtype == np.int64
        assert channels.flags.c_contiguous
        assert channels.flags.writeable


@given(st.integers(1, 100), st.sampled_from(LAYOUTS))
def test_every_channel_is_in_one_pair(pairs, layout):
    channels = pair_channels(pairs, layout)
    assert channels.shape == (pairs, 2)
    assert sorted(channels.reshape(-1).tolist()) == list(range(2 * pairs))


@given(st.integers(1, 100))
def test_permutations(pairs):
    there, back = permutation(pairs, "interleaved", "halves"), permutation(pairs, "halves", "interleaved")
    assert there.dtype == np.int64
    assert np.array_equal(there[back], np.arange(2 * pairs))
    assert np.array_equal(back[there], np.arange(2 * pairs))
    for layout in LAYOUTS:
        assert np.array_equal(permutation(pairs, layout, layout), np.arange(2 * pairs))
    # The channels of a pair stay a pair.
    x = np.arange(2 * pairs)
    assert np.array_equal(x[there][pair_channels(pairs, "halves")], x[pair_channels(pairs, "interleaved")])


def by_hand(block, width, layout):
    """Where each number goes, channel by channel."""
    out = np.full((len(block), width), -1.0)
    half = (width + 1) // 2
    for row, pair in itertools.product(range(len(block)), range(block.shape[1])):
        first, second = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, half + pair)
        out[row, first] = block[row, pair].real
        if pair < width // 2:
            out[row, second] = block[row, pair].imag
    return out


@every("layout", LAYOUTS)
@every("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, ">f4"])
@every("width", [2, 8, 9, 1])
@every("rows", [1, 3])
def test_numbers_are_put_where_they_belong(layout, dtype, width, rows):
    pairs = (width + 1) // 2
    random = np.random.default_rng(9)
    block = random.integers(-100, 100, (rows, pairs)) + 1j * random.integers(-100, 100, (rows, pairs))
    wanted = by_hand(block, width, layout)
    for cuts in ([0, pairs], [0, pairs // 2, pairs]):
        out = np.full((rows, width), -1, dtype)
        for a, b in itertools.pairwise(cuts):
            place(out, block[:, a:b], slice(a, b), layout)
        assert np.array_equal(out.astype(float), wanted)


@every("layout", LAYOUTS)
@every("dtype", ["float32", "float64", "float16"])
def test_numbers_are_put_into_parts_of_arrays(layout, dtype):
    # Not contiguous: the first channels of wider rows, every second row, columns in Fortran order.
    block = np.arange(6).reshape(2, 3) + 10j
    wanted = by_hand(block, 6, layout)
    wide = np.full((2, 9), -1, dtype)
    place(wide[:, :6], block, slice(0, 3), layout)
    assert np.array_equal(wide[:, :6], wanted)
    assert (wide[:, 6:] == -1).all()
    tall = np.full((4, 6), -1, dtype)
    place(tall[::2], block, slice(0, 3), layout)
    assert np.array_equal(tall[::2], wanted)
    assert (tall[1::2] == -1).all()
    turned = np.full((6, 2), -1, dtype).T
    place(turned, block, slice(0, 3), layout)
    assert np.array_equal(turned, wanted)


def test_what_is_no_layout_is_refused_in_words(cases):
    sentences.hold("layouts", cases)
