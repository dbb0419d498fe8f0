"""The order of rows, held to the rotation itself: q and k moved alike score the same where pairs are read anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.conversion import convert_rows

LAYOUTS = ("halves", "interleaved")


def turned(x, position, layout, rotated, part):
    """x [heads, width] with the rotated channels of each head turned at a position, written out pair by pair."""
    start = 0 if part == "first" else x.shape[1] - rotated
    made = x.copy()
    for pair in range(rotated // 2):
        first, second = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pair + rotated // 2)
        cosine, sine = np.cos(position * 0.7**pair), np.sin(position * 0.7**pair)
        a, b = x[:, start + first], x[:, start + second]
        made[:, start + first], made[:, start + second] = a * cosine - b * sine, a * sine + b * cosine
    return made


@given(
    heads=st.integers(1, 3),
    pairs=st.integers(1, 4),
    still=st.integers(0, 3),
    part=st.sampled_from(["first", "last"]),
    from_=st.sampled_from(LAYOUTS),
)
def test_scores_are_the_same_where_the_pairs_are_read_the_other_way(heads, pairs, still, part, from_):
    width, rotated = 2 * pairs + still, 2 * pairs
    to = LAYOUTS[1 - LAYOUTS.index(from_)]
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(2, heads * width, 5)), rng.normal(size=5)

    def score(weights, layout):
        q, k = ((each @ x).reshape(heads, width) for each in weights)
        return (turned(q, 11, layout, rotated, part) * turned(k, 4, layout, rotated, part)).sum(-1)

    moved = [convert_rows(each, heads, width, rotated, part, from_, to) for each in weights]
    np.testing.assert_allclose(score(moved, to), score(weights, from_), rtol=0, atol=1e-12)
    back = [convert_rows(each, heads, width, rotated, part, to, from_) for each in moved]
    assert np.array_equal(back, weights)
    if pairs > 1:
        assert not np.allclose(score(weights, to), score(weights, from_)), "the oracle must see what was not moved"


def test_the_same_layout_is_the_identity_and_the_argument_is_not_changed():
    x = np.arange(12.0)
    before = x.copy()
    assert np.array_equal(convert_rows(x, 2, 6, 4, "first", "halves", "halves"), x)
    moved = convert_rows(x, 2, 6, None, "first", "halves", "interleaved")
    moved[:] = -1
    assert np.array_equal(x, before)


def test_torch_tensors_stay_torch_tensors(cases):
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn"):
        with cases(dtype):
            x = torch.arange(24).reshape(8, 3).to(getattr(torch, dtype))
            moved = convert_rows(x, 2, 4, None, "first", "interleaved", "halves")
            assert moved.dtype == x.dtype
            assert moved.view(torch.uint8).tolist() == x[[0, 2, 1, 3, 4, 6, 5, 7]].view(torch.uint8).tolist()
