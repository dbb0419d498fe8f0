"""Tables from one convention to another: every pair of one ladder, there and back; everything else is refused."""

import itertools

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, EvenlySpaced, SineOnly
from clockhands.encodings.ladders import Explicit, Geometric, Repeated
from clockhands.errors import InvalidType, InvalidValue
from oracles import sentences
from written_files import refusal

WIDTH = 16
RATIO = 10_000 ** (-1 / 8)
ROWS = [0, 1, 2, 3, 5, 100, 1023]


def sinusoid(**fields):
    return ch.Sinusoidal(**({"width": WIDTH} | fields))


# Pure orders of channels and signs: what changes hands is the same numbers, bit for bit.
PURE = {
    "paper": sinusoid(),
    "halves": sinusoid(layout="halves"),
    "cosine first": sinusoid(order="cos-sin"),
    "halves, cosine first": sinusoid(layout="halves", order="cos-sin"),
    "minus sine": sinusoid(order="-sin-cos"),
    "cosine, minus sine": sinusoid(layout="halves", order="cos--sin"),
    "slowest first": sinusoid(spacing=Geometric(1e-4, multiplier=RATIO**7)),
    "closed": sinusoid(spacing=Geometric(10_000 ** (7 / 8), span="closed"), layout="halves"),
    "explicit": sinusoid(spacing=Explicit(sinusoid().rates)),
    "last column of zeros": sinusoid(width=WIDTH + 1, odd="zero"),
    "zeros in halves": sinusoid(width=WIDTH + 1, odd="zero", layout="halves", order="cos-sin"),
    "one axis": AxialSinusoidal(WIDTH, (1,), channels="rate-wave-axis"),
    "one axis, zeros": AxialSinusoidal(WIDTH + 1, (1,), uneven="zero"),
}
OTHERS = {
    "halved": sinusoid(scale=0.5),
    "scaled": sinusoid(scale=WIDTH**-0.5, layout="halves"),
    "standardised": sinusoid(scale=0.1, standardised=64),
    "standardised by more": sinusoid(scale=0.1, standardised=512, order="-sin-cos"),
    "a row of zeros": sinusoid(zero_rows=(1,), layout="halves"),
}
ALL = PURE | OTHERS


# Half a unit in the last place of numbers below 2; a float64 table is itself within 4 units.
UNITS = {"float64": 2.0**-50, "float32": 2.0**-24, "float16": 2.0**-11}


def affine(spec):
    return getattr(spec, "affine", (0.0, 1.0))


def bound(from_, to, dtype):
    """The rounding of what is given, scaled as it is; a product and a sum in the working dtype; and the result's."""
    scale = affine(to)[1] / affine(from_)[1]
    given, made = ((1 + abs(mean)) * factor for mean, factor in (affine(from_), affine(to)))
    working = 2.0**-53 if dtype == "float64" else 2.0**-24
    # Rates that were multiplied together differ in their last place, which 1,023 tokens make a part of a turn.
    drift = 1023 * 2.0**-52 * made
    return (UNITS[dtype] + 3 * working) * (given * scale + made) + drift


def pairs(draw):
    """Each convention to and from the paper's, those that scale among themselves, and some of all the others."""
    known = list(itertools.permutations(ALL, 2))
    asked = [pair for pair in known if "paper" in pair or OTHERS.keys() >= set(pair)]
    return asked + draw((pair for pair in known if pair not in asked), 20)


def test_tables_of_one_ladder_there_and_back(cases, draw):
    for (first, second), dtype in itertools.product(pairs(draw), UNITS):
        with cases(first, second, dtype):
            from_, to = ALL[first], ALL[second]
            given = ch.table(from_, ROWS, dtype=dtype)
            kept = given.copy()
            made = ch.convert_table(given, from_, to)
            assert np.array_equal(given, kept)
            assert made.dtype == given.dtype
            limit = bound(from_, to, dtype)
            assert np.abs(made.astype(float) - ch.table(to, ROWS, dtype="float64")).max() <= limit
            back = ch.convert_table(made, to, from_)
            if first in PURE and second in PURE:
                assert np.array_equal(back, given)
            limit = limit * affine(from_)[1] / affine(to)[1] + bound(to, from_, dtype)
            assert np.abs(back.astype(float) - given.astype(float)).max() <= limit


def test_the_comparison_can_fail():
    given, to = ch.table(PURE["paper"], ROWS), PURE["halves"]
    assert np.abs(given - ch.table(to, ROWS, dtype="float64")).max() > 1
    near = ch.convert_table(given, PURE["paper"], to) * np.float32(1 + 2.0**-20)
    assert np.abs(near - ch.table(to, ROWS, dtype="float64")).max() > bound(PURE["paper"], to, "float32")


def test_orders_and_signs_are_bit_equal(cases, draw):
    """Any numbers, also those that are no sinusoid: each is somewhere in the result, untouched but for its sign."""
    for first, second in pairs(draw):
        if not PURE.keys() >= {first, second}:
            continue
        with cases(first, second):
            numbers = np.random.default_rng(0).normal(size=(3, 5, PURE[first].width))
            if PURE[first].width > WIDTH:
                numbers[..., -1] = 0
            made = ch.convert_table(numbers, PURE[first], PURE[second])
            filled = np.sort(np.abs(made[..., :WIDTH]), axis=-1)
            assert np.array_equal(filled, np.sort(np.abs(numbers[..., :WIDTH]), axis=-1))
            assert made.shape == (3, 5, PURE[second].width)
            assert np.array_equal(ch.convert_table(made, PURE[second], PURE[first]), numbers)


def test_published_conventions_by_name():
    paper = ch.table(ch.preset("vaswani2017", width=64), 50)
    assert np.array_equal(ch.convert_table(paper, "vaswani2017", "ctrl"), ch.table(ch.preset("ctrl", width=64), 50))
    whisper = ch.table(ch.preset("whisper", width=64), 50)
    fairseq = ch.convert_table(whisper, "whisper", "fairseq")
    assert np.array_equal(fairseq, ch.table(ch.preset("fairseq", width=64), 50))
    assert not fairseq[1].any()
    assert np.array_equal(ch.convert_table(fairseq, "fairseq", "whisper"), whisper)
    odd = ch.convert_table(paper[:, :64], "vaswani2017", ch.preset("vaswani2017", width=65, odd="zero"))
    assert odd.shape == (50, 65)


def test_the_bases_of_both_spans_at_width_512():
    """Base 10,000 open is base 9,646.62 closed, to the six digits of the number."""
    open_, closed = ch.Sinusoidal(512), ch.Sinusoidal(512, spacing=Geometric(9646.62, span="closed"))
    table = ch.table(open_, 2048)
    assert np.array_equal(ch.convert_table(table, open_, closed), table)
    assert np.abs(table - ch.table(closed, 2048)).max() < 2048 * 2e-8
    with pytest.raises(InvalidValue, match="different frequencies"):
        ch.convert_table(table, open_, ch.Sinusoidal(512, spacing=Geometric(9647, span="closed")))


def test_every_array_library(any_backend):
    for first, second in (("paper", "minus sine"), ("zeros in halves", "a row of zeros")):
        from_, to = ALL[first], ALL[second]
        given = ch.table(from_, ROWS)
        made = ch.convert_table(any_backend.asarray(given[None]), from_, to)
        assert type(made) is type(any_backend.asarray(given))
        assert np.array_equal(any_backend.to_numpy(made), ch.convert_table(given, from_, to)[None])


def test_bfloat16_keeps_its_bits_and_gradients_pass():
    torch = pytest.importorskip("torch")
    given = torch.randn(4, WIDTH, dtype=torch.bfloat16)
    made = ch.convert_table(given, PURE["paper"], PURE["halves"])
    assert made.dtype == torch.bfloat16
    assert torch.equal(made[:, :8], given[:, ::2])
    made = ch.convert_table(given, PURE["paper"], OTHERS["halved"])
    assert torch.equal(made, given / 2)
    given = torch.zeros(4, WIDTH, requires_grad=True)
    ch.convert_table(given, PURE["paper"], OTHERS["halved"]).sum().backward()
    assert torch.equal(given.grad, torch.full((4, WIDTH), 0.5))


def test_inside_a_trace():
    jax = pytest.importorskip("jax")
    given = ch.table(PURE["paper"], ROWS)
    made = jax.jit(lambda x: ch.convert_table(x, PURE["paper"], PURE["cosine, minus sine"]))(given)
    assert np.array_equal(made, ch.convert_table(given, PURE["paper"], PURE["cosine, minus sine"]))
    with pytest.raises(InvalidType, match="cannot be found inside a trace"):
        jax.jit(lambda x: ch.convert_table(x, PURE["paper"], OTHERS["a row of zeros"]))(given)


CELLS = [[row, column] for row in range(3) for column in range(4)]
AXIAL = {
    "axis by axis": AxialSinusoidal(WIDTH, (1, 1)),
    "interleaved": AxialSinusoidal(WIDTH, (1, 1), channels="axis-rate-wave", order="cos-sin"),
    "wave outermost": AxialSinusoidal(WIDTH, (1, 1), channels="wave-axis-rate"),
    "rate outermost": AxialSinusoidal(WIDTH + 2, (1, 1), channels="rate-wave-axis", uneven="zero"),
}


def test_two_axes_there_and_back(cases):
    for first, second in itertools.permutations(AXIAL, 2):
        with cases(first, second):
            from_, to = AXIAL[first], AXIAL[second]
            given = ch.table(from_, CELLS)
            made = ch.convert_table(given, from_, to)
            assert np.array_equal(made, ch.table(to, CELLS))
            assert np.array_equal(ch.convert_table(made, to, from_), given)


def test_axes_in_another_order():
    from_ = AxialSinusoidal(WIDTH, (1, 3), spacing=(Geometric(100.0), Geometric(10_000.0)))
    to = AxialSinusoidal(WIDTH, (3, 1), spacing=(Geometric(10_000.0), Geometric(100.0)), channels="axis-rate-wave")
    made = ch.convert_table(ch.table(from_, CELLS), from_, to, axes=(1, 0))
    assert np.array_equal(made, ch.table(to, [cell[::-1] for cell in CELLS]))
    with pytest.raises(
        InvalidValue, match="different frequencies: the first has 2 frequencies along axis 0, the second 6"
    ):
        ch.convert_table(ch.table(from_, CELLS), from_, to)


def test_a_pair_that_stands_still_belongs_to_its_axis():
    from_ = AxialSinusoidal(8, (1, 1), spacing=(Explicit((1.0, 0.0)), Explicit((0.5, 0.0))))
    to = AxialSinusoidal(8, (1, 1), spacing=(Explicit((0.5, 0.0)), Explicit((1.0, 0.0))), channels="wave-axis-rate")
    made = ch.convert_table(ch.table(from_, CELLS), from_, to, axes=(1, 0))
    assert np.array_equal(made, ch.table(to, [cell[::-1] for cell in CELLS]))


def test_raw_coordinates_go_along_and_are_not_lost():
    with_raw = AxialSinusoidal(WIDTH + 2, (1, 1), raw="before")
    after = AxialSinusoidal(WIDTH + 2, (1, 1), raw="after", channels="wave-axis-rate")
    given = ch.table(with_raw, CELLS)
    assert np.array_equal(ch.convert_table(given, with_raw, after), ch.table(after, CELLS))


def test_rates_that_stand_twice_are_one_hand():
    once = ch.Sinusoidal(8, spacing=Geometric(10_000.0, span=4.0))
    twice = ch.Sinusoidal(16, spacing=Repeated(Geometric(10_000.0, span=4.0)), layout="halves")
    made = ch.convert_table(ch.table(once, ROWS), once, twice)
    assert np.array_equal(made, ch.table(twice, ROWS))
    assert np.array_equal(ch.convert_table(made, twice, once), ch.table(once, ROWS))


EXTRA = ch.Sinusoidal(WIDTH + 1, odd="extra", layout="halves")


def test_what_is_refused_and_small_answers(cases):
    sentences.hold("conversion", cases)


def test_extra_hands_stay_where_both_have_them():
    interleaved = ch.Sinusoidal(WIDTH + 1, odd="extra")
    given = ch.table(interleaved, ROWS)
    made = ch.convert_table(given, interleaved, EXTRA)
    assert np.array_equal(made, ch.table(EXTRA, ROWS))
    only = SineOnly(WIDTH)
    for spec in (only, EvenlySpaced(WIDTH)):  # each its own convention
        assert np.array_equal(ch.convert_table(ch.table(spec, 5), spec, spec), ch.table(spec, 5))


def test_a_column_of_zeros_that_is_none():
    given = ch.table(PURE["last column of zeros"], 5)
    given[3, -1] = 1e-9
    message, hint = refusal(ch.convert_table, given, PURE["last column of zeros"], PURE["paper"], error=InvalidValue)
    assert message.startswith("Column 16 of `x` is not zero, but in sinusoidal, width 17")
    assert hint == "Check that `x` is a table of `from_`."


def test_rows_of_zeros_are_made_anew_only_where_their_position_is_known():
    several = sinusoid(zero_rows=(1, 5))
    given = ch.table(several, ROWS)
    message, _ = refusal(ch.convert_table, given, several, PURE["paper"], error=InvalidValue)
    assert message == "`x` has rows of zeros, but it is not known which of the positions [1, 5] they have."
    made = ch.convert_table(ch.table(PURE["paper"], ROWS), PURE["paper"], several)
    assert np.array_equal(made, given)
    moved = ch.table(PURE["paper"], range(10, 20))  # position 1 is not among them
    assert np.array_equal(ch.convert_table(moved, PURE["paper"], several), moved)


def test_bytes_in_another_order_are_numbers_all_the_same(cases):
    for dtype in UNITS:
        with cases(dtype):
            table = ch.table(PURE["paper"], 7, dtype)
            swapped = table.astype(np.dtype(dtype).newbyteorder(">"))
            made = ch.convert_table(swapped, PURE["paper"], PURE["halves"])
            assert made.dtype == np.dtype(dtype)
            assert (made == ch.table(PURE["halves"], 7, dtype)).all()
            assert swapped.dtype.byteorder == ">"
