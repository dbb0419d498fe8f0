"""Code of one rank: of a sequence that is split in two orders, of packed documents, and of heads."""

import itertools

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.sharding import rank_positions
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import check_additive, check_bias, check_rotary
from testing.written_shapes import Rank, rotated

SPEC, SINUSOIDS, ALIBI = ch.Rotary(16), ch.Sinusoidal(32), ch.Alibi(16)
RANKS = [(0, 2), (1, 2), (1, 4), (3, 4), (2, 8)]


def test_sound_parts_pass(cases):
    for (rank, ranks), zigzag in itertools.product(RANKS, (False, True)):
        one = Rank(rank, ranks)
        one.taken = one.zigzag if zigzag else one.contiguous
        packed = one.packed_zigzag if zigzag else one.packed
        for function in (one.counted, one.of_whole_table, packed):
            with cases(rank, ranks, zigzag, function):
                assert check_rotary(function, SPEC, rank=rank, ranks=ranks, zigzag=zigzag, length=2000).sound


def test_packed_documents_pass_without_a_rank():
    assert check_rotary(Rank(0, 1).packed, SPEC, length=2000).sound


def striped(rank, ranks):
    return lambda rows: np.arange(rank, rows * ranks, ranks)


def test_positions_of_another_part_are_named(cases):
    right, other = Rank(1, 4), Rank(2, 4)
    wrong = [
        (np.arange, "part-starts-at-zero", "counts the tokens of rank 1 from 0", (False, True)),
        (right.zigzag, "parts-in-another-order", "chunks 1 and 6 of 8 (zig-zag) instead of part 1", (False,)),
        (right.contiguous, "parts-in-another-order", "instead of chunks 1 and 6 of 8 (zig-zag)", (True,)),
        (striped(1, 4), "parts-in-another-order", "every token number 1 of 4", (False, True)),
        (other.contiguous, "part-of-another-rank", "positions of rank 2 of 4", (False,)),
        (other.zigzag, "part-of-another-rank", "positions of rank 2 of 4", (True,)),
    ]
    for taken, code, said, orders in wrong:
        one = Rank(1, 4, taken)
        for function, zigzag in itertools.product((one.counted, one.of_whole_table), orders):
            with cases(code, function, zigzag):
                report = check_rotary(function, SPEC, rank=1, ranks=4, zigzag=zigzag, length=2000, raises=False)
                assert report.codes == {code}
                assert said in report.explanations[0].message


def test_faults_of_packed_documents_are_named(cases):
    one = Rank(1, 4)
    for function, zigzag, code in (
        (one.packed_without_offset, False, "document-offset-lost"),
        (one.packed_zigzag_without_offset, True, "document-offset-lost"),
        (one.packed_without_restart, False, "documents-not-restarted"),
        (one.packed, True, "parts-in-another-order"),
        (one.packed_zigzag, False, "parts-in-another-order"),
    ):
        with cases(code, function):
            report = check_rotary(function, SPEC, rank=1, ranks=4, zigzag=zigzag, length=2000, raises=False)
            assert report.codes == {code}
    report = check_rotary(Rank(0, 1).packed_without_restart, SPEC, length=2000, raises=False)
    assert report.codes == {"documents-not-restarted"}


def _of_table(positions):
    def rotate(t, cu_seqlens, freqs, rank, ranks):
        angles = freqs[positions(t.shape[0], np.diff(cu_seqlens), rank, ranks)][:, None]
        first, second = np.split(t, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return rotate


def _of_row(zigzag):
    def positions(rows, sizes, rank, ranks):
        whole = np.concatenate([np.arange(size) for size in sizes])
        return whole[rank_positions(rows * ranks, rank, ranks, zigzag=zigzag)]

    return positions


def _of_documents(zigzag):
    def positions(_, sizes, rank, ranks):
        return np.concatenate([rank_positions(int(size), rank, ranks, zigzag=zigzag) for size in sizes])

    return positions


def test_every_order_of_parts_of_packed_documents_with_a_table_is_named(cases):
    orders = [
        (_of_row(zigzag=False), "contiguous ones of the whole row", False),
        (_of_documents(zigzag=True), "(zig-zag) of each document", True),
        (_of_row(zigzag=True), "(zig-zag) of the whole row", None),
        (_of_documents(zigzag=False), "contiguous ones of each document", None),
    ]
    for (order, said, own), zigzag, rank in itertools.product(orders, (False, True), (0, 1)):
        with cases(said, zigzag, rank):
            report = check_rotary(_of_table(order), SPEC, rank=rank, ranks=2, zigzag=zigzag, length=300, raises=False)
            if own is zigzag:
                assert report.sound
                assert (
                    said
                    in str(report).replace("\n", " ").partition("It has the positions of ")[2].partition(", not")[0]
                )
            else:
                assert "parts-in-another-order" in report.codes
                assert said in report.explanations[0].message.partition(" instead of ")[0]
                # Of rank 0 alone, some orders give the positions of another mistake.
                assert rank == 0 or report.codes == {"parts-in-another-order"}


def test_another_base_on_a_rank_is_that():
    def on_another_base(x):
        return rotated(x, Rank(1, 4).contiguous(x.shape[-2]), 5e5)

    assert check_rotary(on_another_base, SPEC, rank=1, ranks=4, raises=False).codes == {"another-base"}


def test_keys_of_another_part_are_told_from_queries():
    def wrong(q, k, cos, sin):
        return Rank(1, 4).of_whole_table(q, k, cos, sin)[0], Rank(0, 4).of_whole_table(q, k, cos, sin)[1]

    (explanation,) = check_rotary(wrong, SPEC, rank=1, ranks=4, raises=False).explanations
    assert explanation.codes == ("part-starts-at-zero",)
    assert "for keys only" in explanation.message


def parts_of(one):
    """The positions that a rank takes, whether they shall be zig-zag, and the faults: of sequences, not of heads."""
    return (
        (one.contiguous, False, set()),
        (one.zigzag, True, set()),
        (np.arange, False, {"part-starts-at-zero"}),
        (np.arange, True, {"part-starts-at-zero"}),
        (one.contiguous, True, {"parts-in-another-order"}),
        (one.zigzag, False, {"parts-in-another-order"}),
    )


def added(taken):
    return lambda x: x + ch.table(SINUSOIDS, taken(x.shape[-2]))


def test_added_encodings_of_a_part(cases):
    one = Rank(1, 4)
    for taken, zigzag, codes in parts_of(one):
        with cases(taken, zigzag):
            given = {"rank": 1, "ranks": 4, "zigzag": zigzag, "length": 2000, "raises": False}
            assert check_additive(added(taken), SINUSOIDS, **given).codes == codes


def slopes(heads):
    return 2.0 ** (-8 * (1 + np.arange(heads)) / heads)


def linear(own):
    return lambda queries, keys: -own[:, None, None] * (queries[:, None] - keys)


def test_heads_of_a_rank(cases):
    every = slopes(16)
    for own, codes in (
        (every[4:8], set()),
        (slopes(4), {"local-slopes"}),
        (every[:4], {"heads-of-another-rank"}),
        (every[8:12], {"heads-of-another-rank"}),
        (every[4:8][::-1], {"slopes-rule"}),
    ):
        with cases(codes):
            report = check_bias(linear(own), ALIBI, heads="4:8", raises=False)
            assert report.codes == codes
            assert report.sound == (not codes)


def test_heads_of_a_rank_of_learned_buckets():
    spec = ch.preset("t5", heads=8)
    values = np.random.default_rng(2).standard_normal((32, 8)).astype(np.float32)

    def some(start):
        return lambda queries, keys: ch.bias(spec, queries, keys, values=values)[start : start + 4]

    assert check_bias(some(4), spec, heads="4:8", values=values).sound
    report = check_bias(some(0), spec, heads="4:8", values=values, raises=False)
    assert report.codes == {"heads-of-another-rank"}
    with pytest.raises(InvalidValue, match="learned numbers of all heads are needed"):
        check_bias(some(4), spec, heads="4:8")


def test_queries_of_a_rank(cases):
    one, every = Rank(1, 4), slopes(16)

    def counted(taken):
        return lambda queries, keys: linear(every)(taken(queries), np.arange(keys))

    given = {"rank": 1, "ranks": 4, "call": "counts", "raises": False}
    for taken, zigzag, codes in parts_of(one):
        with cases(codes, zigzag):
            assert check_bias(counted(taken), ALIBI, exact=True, zigzag=zigzag, **given).codes == codes
    # Without the mask a softmax does not see by which number a whole row differs.
    assert check_bias(counted(np.arange), ALIBI, **given).sound


def test_a_fixed_number_of_heads_is_in_every_call():
    def of_four(x, positions):
        heads = np.swapaxes(x.reshape(len(positions), 4, 16), 0, 1)
        return np.swapaxes(rotated(heads, positions), 0, 1).reshape(x.shape)

    assert check_rotary(of_four, SPEC, heads="4:8", axes="seq heads*width", length=500).sound


REFUSED = [
    ({"rank": 1}, InvalidValue, "belong together"),
    ({"zigzag": True}, InvalidValue, "`zigzag` is for a rank's part"),
    ({"rank": 4, "ranks": 4}, InvalidValue, "`rank` must be from 0 to 3"),
    ({"rank": 1, "ranks": 4, "call": "x, positions"}, InvalidValue, "this one is given positions"),
    ({"heads": "8:4"}, InvalidValue, "`heads` must name heads, got '8:4'"),
    ({"heads": 4}, InvalidType, "`heads` must be text"),
]


def test_parts_that_cannot_be_are_refused(cases):
    for options, error, words in REFUSED:
        with cases(words), pytest.raises(error, match=words):
            check_rotary(lambda x: x, SPEC, **options)
    with pytest.raises(InvalidValue, match="of 16, got '12:20'"):
        check_bias(linear(slopes(8)), ALIBI, heads="12:20")
    with pytest.raises(InvalidValue, match="functions that count their queries"):
        check_bias(linear(slopes(16)), ALIBI, rank=0, ranks=2)


def test_the_order_of_a_part_is_that_of_the_core():
    assert rank_positions(16, 1, 2, zigzag=True).tolist() == Rank(1, 2).zigzag(8).tolist()
