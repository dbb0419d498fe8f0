"""Biases with the parameters of published libraries are checked by the first command; constants of rows have a name."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.testing import CannotCheck, check_bias
from testing.written_biases import paper_slopes


def other_slopes(heads):
    return 2.0 ** (-8 * (1 + np.arange(heads)) / heads)


def bloom(slopes=paper_slopes, sign=1):
    def build_alibi_tensor(attention_mask, num_heads, dtype):
        batch, seq = attention_mask.shape
        at = sign * ((attention_mask.cumsum(-1) - 1) * attention_mask)[:, None]
        return (np.array(slopes(num_heads))[:, None] * at).reshape(batch * num_heads, 1, seq).astype(dtype)

    return build_alibi_tensor


def mpt(slopes=paper_slopes, sign=1):
    def build_alibi_bias(n_heads, seq_len, full=False, alibi_bias_max=8, device=None, dtype=None):  # noqa: ARG001, PLR0917
        at = sign * np.arange(1 - seq_len, 1)
        return np.array(slopes(n_heads), np.float32)[None, :, None, None] * at[None, None, None]

    return build_alibi_bias


def by_lengths(slopes=paper_slopes, sign=1):
    def alibi(q_len, k_len, n_heads=8):
        apart = (np.arange(q_len)[:, None] + k_len - q_len) - np.arange(k_len)
        return -sign * np.array(slopes(n_heads), np.float32)[:, None, None] * apart

    return alibi


def test_builders_of_biases_are_called_by_the_names_of_their_parameters(cases):
    for make in (bloom, mpt, by_lengths):
        with cases(make.__name__):
            assert check_bias(make(), ch.Alibi(12)).sound
            assert check_bias(make(other_slopes), ch.Alibi(12), raises=False).codes == {"slopes-rule"}
            assert "slope-sign" in check_bias(make(sign=-1), ch.Alibi(12), raises=False).codes


def test_parameters_of_other_names_are_not_guessed():
    with pytest.raises(CannotCheck, match=r"was called as function\(queries \[7\], keys \[12\]\)"):
        check_bias(lambda heads, rows, offset: (heads, rows, offset), ch.Alibi(12))


def of_first(slopes, queries, keys, first_query, first_key):
    apart = (queries - first_query)[:, None] - (keys - first_key)
    return -np.array(slopes(8))[:, None, None] * apart.astype(np.float32)


def test_a_constant_for_each_row_has_a_name_where_it_matters(cases):
    """Positions that are counted from the first one of each call."""
    for function in (
        lambda queries, keys: of_first(paper_slopes, queries, keys, queries[0], keys[0]),
        lambda queries, keys: of_first(paper_slopes, queries, keys, queries[0], 0),
        lambda queries, keys: of_first(paper_slopes, 0 * queries, keys, 0, keys[0]),
    ):
        with cases(function):
            assert check_bias(function, ch.Alibi(8)).sound
            report = check_bias(function, ch.Alibi(8), exact=True, raises=False)
            assert report.codes == {"constant-for-each-row"}
            assert "softmax ignores it" in report.explanations[0].message


def test_other_slopes_are_no_constant():
    def function(queries, keys):
        return of_first(other_slopes, queries, keys, queries[0] / 2, 0) * 1.5

    assert "constant-for-each-row" not in check_bias(function, ch.Alibi(8), exact=True, raises=False).codes


def test_slopes_alone_are_checked_by_the_bias_that_they_give(cases):
    def get_slopes(n):
        return paper_slopes(n)

    def get_alibi_slopes(num_heads):
        return np.array(paper_slopes(num_heads), np.float32)[:, None, None]

    for function in (get_slopes, get_alibi_slopes):
        with cases(function):
            assert check_bias(function, ch.Alibi(12)).sound
            assert check_bias(function, ch.Alibi(8, "symmetric")).sound
            assert check_bias(function, ch.preset("alibi", heads=16), raises=False, heads="4:8").codes == {
                "local-slopes"
            }
    assert check_bias(other_slopes, ch.Alibi(12), raises=False).codes == {"slopes-rule"}
    with pytest.raises(CannotCheck, match="this bias has no slopes"):
        check_bias(get_slopes, "t5:heads=8", values=np.zeros((32, 8)))


def test_slopes_that_each_rank_makes_of_its_own_heads_are_named(cases):
    for ranks in (2, 4):
        with cases(ranks):
            made = np.tile(paper_slopes(16 // ranks), ranks)
            report = check_bias(lambda heads, made=made: made[:heads], ch.Alibi(16), raises=False)
            assert report.codes == {"slopes-rule"}
            assert f"each of {ranks} ranks" in report.explanations[0].message
