"""The order of rows, held to the rotation itself: q and k moved alike score the same where pairs are read anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.conversion import convert_rows, row_order
from clockhands.errors import InvalidType, InvalidValue
from clockhands.sources.tensor_names import slots_of
from written_files import refusal

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


def test_only_rotated_channels_of_queries_and_keys_move():
    order = row_order([True, False], 6, 4, "last", from_="halves", to="interleaved")
    assert order.tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 11]


def test_torch_tensors_stay_torch_tensors(cases):
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn"):
        with cases(dtype):
            x = torch.arange(24).reshape(8, 3).to(getattr(torch, dtype))
            moved = convert_rows(x, 2, 4, None, "first", "interleaved", "halves")
            assert moved.dtype == x.dtype
            assert moved.view(torch.uint8).tolist() == x[[0, 2, 1, 3, 4, 6, 5, 7]].view(torch.uint8).tolist()


def test_how_slots_follow_one_another(cases):
    for arrangement, slots, heads, expected in (
        ("heads", 3, None, "111"),
        ("head", 1, None, "1"),
        ("head", 2, None, None),
        ("groups", 6, 2, "110110"),  # as many keys as queries
        ("groups", 8, 4, "11101110"),  # two groups
        ("groups", 6, 4, "111110"),  # one
        ("groups", 7, 4, None),
        ("groups", 4, 4, None),
        ("groups", 10, 4, None),  # three keys for four queries
        ("stacked", 8, 4, "11111100"),
        ("stacked", 8, None, None),
        ("quarters", 12, 4, "101" * 4),
        ("quarters", 24, 8, "110011" * 4),
        ("quarters", 18, 6, None),
        ("quarters", 8, 4, None),
    ):
        with cases(arrangement, slots, heads):
            made = slots_of(arrangement, slots, heads)
            turns = None if made is None else "".join("0" if slot == "v" else "1" for slot in made)
            assert turns == expected


EVEN = "`rotated` must be even and at most the head's width 4, got {}."
PAIRS = "It is the number of RoPE dimensions per head, two for each pair."
REFUSED = [
    ("tensor", np.zeros((7, 2)), InvalidValue, "`tensor` has 7 rows, but 2 heads of width 4 have 8.",
     "Rows are output dimensions: for a key projection, pass the number of key heads; "
     "transpose a Conv1D weight first."),
    ("tensor", [1, 2], InvalidType, "`tensor` must be an array with rows, got list.", "Pass a NumPy or PyTorch array."),
    ("tensor", np.float32(1), InvalidType, "`tensor` must be an array with rows, got float32.",
     "Pass a NumPy or PyTorch array."),
    ("rotated", 3, InvalidValue, EVEN.format(3), PAIRS),
    ("rotated", 6, InvalidValue, EVEN.format(6), PAIRS),
    ("part", "middle", InvalidValue, '`part` must be "first" or "last", got \'middle\'.',
     "It selects which dimensions of a head are rotated."),
    ("from_", "neox", InvalidValue, '`layout` must be "interleaved" or "halves", got \'neox\'.',
     'Use "interleaved" for pairs (2i, 2i + 1), "halves" for (i, i + d/2).'),
    ("heads", 0, InvalidValue, "`heads` must be at least 1, got 0.", "Give `heads` as an int of at least 1."),
]  # fmt: skip


def test_what_cannot_be_is_refused(cases):
    sound = {"tensor": np.zeros((8, 2)), "heads": 2, "head_width": 4, "rotated": None, "part": "first"}
    for name, value, error, message, hint in REFUSED:
        with cases(message):
            asked = sound | {"from_": "halves", "to": "interleaved", name: value}
            assert refusal(convert_rows, **asked, error=error) == (message, hint)
