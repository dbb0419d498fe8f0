"""The four terms of a score and the offset: sums over all pairs, cases by hand, and drawn projections."""

from itertools import product

import numpy as np
import pytest

from clockhands import table
from clockhands.encodings.additive import Sinusoidal
from clockhands.errors import InvalidValue
from clockhands.measures import (
    commuting_form,
    expected_offset_share,
    expected_terms,
    four_terms,
    offset_share,
)
from clockhands.measures.adding._score_terms import MOST_ROWS


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


def test_expected_shares_follow_from_three_lengths(cases):
    for deviation in (1 / 8, 1.0, 8.0):
        with cases(deviation):
            p = rows_of(64, 256)
            content, mean = 64 * deviation**2, np.linalg.norm(p.mean(0))
            variances = np.array([content**2, content * 32, content * 32, 32**2 - mean**4])
            found = expected_terms(p, deviation)
            assert list(found.to_dict().values()) == pytest.approx(variances / variances.sum(), rel=1e-12)


# --------------------------------------------------------------------------------------------- a function of the offset


def test_the_share_is_that_of_the_definition(cases):
    """Blocks are 256 rows: the numbers beside it too."""
    for number in (1, 2, 3, 255, 256, 257, 600):
        with cases(number):
            rows, form = 1 + drawn(number, number, 5), drawn(9, 5, 5)
            expected = 1.0 if number == 1 else direct_offset_share(rows @ form @ rows.T)
            assert offset_share(form, rows) == pytest.approx(expected, abs=1e-12)
            query, key = drawn(1, 5, 2), drawn(2, 5, 2)
            assert offset_share((query, key), rows) == pytest.approx(offset_share(query @ key.T, rows), abs=1e-12)


def test_blocks_that_commute_with_the_rotations_leave_a_function_of_the_offset(cases):
    for start, order, layout in product((0, 10**6), ("sin-cos", "cos-sin"), ("interleaved", "halves")):
        with cases(start, order, layout):
            rows = table(Sinusoidal(width=64, layout=layout, order=order), range(start, start + 300), "float64")
            form = commuting_form(32, layout, drawn(1, 32), drawn(2, 32))
            assert offset_share(form, rows) == pytest.approx(1, abs=1e-12)


def test_blocks_that_do_not_commute_leave_less():
    rows, a, b = rows_of(64, 300), drawn(1, 32), drawn(2, 32)
    form = commuting_form(32, "interleaved", a, b)
    assert offset_share(commuting_form(32, "halves", a, b), rows) < 0.5, "the other layout's pairs"
    assert offset_share(np.triu(form) + np.triu(form, 1).T, rows) < 0.9, "blocks [[a, b], [b, a]]"


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


def test_what_does_not_fit_is_refused(cases):
    for call, sentence in (
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
    ):
        with cases(call, sentence):
            with pytest.raises(InvalidValue) as refused:
                call()
            assert sentence in refused.value.message
            assert refused.value.hint
