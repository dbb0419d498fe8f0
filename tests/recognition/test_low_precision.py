"""Tables made in bfloat16 and float16, by every part that can be rounded, and everything else that is none."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.recognition.tables._low_precision import identify_low_precision, low_precision
from oracles import published

WIDTH = 32
NAMES = {
    ("interleaved", "sin-cos"): "vaswani2017",
    ("halves", "sin-cos"): "transformer-xl",
    ("halves", "cos-sin"): "dit",
    ("interleaved", "cos-sin"): None,
}
BFLOAT16, FLOAT16 = ml_dtypes.bfloat16, np.float16
KINDS = {"bfloat16": BFLOAT16, "float16": FLOAT16, "float32": np.float32}


def made(rows, kind, parts, *, layout="interleaved", order="sin-cos", base=10_000.0, stored=np.float32):
    """A table made as code makes it that rounds some parts to a dtype."""

    def rounded(numbers, part):
        return numbers.astype(KINDS[kind] if part in parts else np.float32).astype(np.float32)

    at = rounded(np.arange(rows), "positions")
    rates = rounded(base ** (-np.arange(0, WIDTH, 2) / WIDTH), "rates")
    phases = rounded(at[:, None] * rates, "phases").astype(np.float64)
    pair = (np.sin(phases), np.cos(phases)) if order == "sin-cos" else (np.cos(phases), np.sin(phases))
    table = np.stack(pair, -1).reshape(rows, -1) if layout == "interleaved" else np.concatenate(pair, -1)
    return table.astype(stored)


PARTS = [parts for count in (1, 2, 3) for parts in itertools.combinations(("positions", "rates", "phases"), count)]


MADE = list(
    itertools.product((("bfloat16", 600), ("float16", 3000)), PARTS, (np.float64, np.float32, np.float16, BFLOAT16))
)


@pytest.mark.parametrize("number", [len(MADE) // 3, pytest.param(len(MADE), marks=pytest.mark.slow)])
def test_every_part_that_is_rounded_is_told(number, cases, draw):
    for (kind, rows), parts, dtype in draw(MADE, number):
        with cases(kind, parts, dtype):
            table = made(rows, kind, parts, stored=dtype)
            found = low_precision(table)
            assert found is not None
            # A phase rounded at position 1 is a rate rounded: of the two, either says the same there.
            assert (found.dtype, found.rounded, found.name) == (kind, parts, "vaswani2017")
            assert found.spec == ch.Sinusoidal(WIDTH)
            (match,) = matches = identify_low_precision(table)
            off = np.abs(table.astype(np.float64) - ch.table(match.spec, match.positions, "float64"))
            assert match.error == match.residual.largest == pytest.approx(off.max())
            assert match.residual.root_mean_square == pytest.approx(np.sqrt((off * off).mean()))
            assert match.residual.rows[0] == int(off.max(axis=1).argmax())
            assert match.residual.channels[0] == int(off.max(axis=0).argmax())
            assert (match.name, match.computed_in) == ("vaswani2017", kind)
            assert f"made in {kind}: its {parts[0]}" in matches.reason


def test_every_layout_and_order(cases):
    for (layout, order), name in NAMES.items():
        with cases(layout, order):
            found = low_precision(made(400, "bfloat16", ("rates", "phases"), layout=layout, order=order))
            assert (found.dtype, found.rounded, found.name) == ("bfloat16", ("rates", "phases"), name)
            if found.spec is not None:
                assert (found.spec.layout, found.spec.order) == (layout, order)


def test_a_base_that_nobody_has_published():
    found = low_precision(made(400, "bfloat16", ("rates", "phases"), base=321.0))
    assert (found.dtype, found.rounded) == ("bfloat16", ("rates", "phases"))
    assert found.spec is found.name is None


def test_positions_that_the_dtype_holds_are_not_rounded():
    assert low_precision(made(200, "bfloat16", ("positions",))) is None
    assert low_precision(made(2000, "float16", ("positions",))) is None
    found = low_precision(made(200, "bfloat16", ("positions", "rates")))
    assert found.rounded == ("rates",)


EXACT = list(
    itertools.product(("float64", *KINDS), (10_000.0, 20.0, 65_536.0), ("interleaved", "halves"), (8, 32, 256))
)


@pytest.mark.parametrize("number", [len(EXACT) // 3, pytest.param(len(EXACT), marks=pytest.mark.slow)])
def test_exact_tables_are_none(number, cases, draw):
    for dtype, base, layout, width in draw(EXACT, number):
        with cases(dtype, base, layout, width):
            assert low_precision(ch.table(ch.Sinusoidal(width, base, layout=layout), 500, dtype)) is None
    for rows in (100, 5000, 60_000):
        assert low_precision(made(rows, "float32", ())) is None


def test_other_numbers_are_none(cases):
    random, table = np.random.default_rng(1), ch.table(ch.Sinusoidal(WIDTH), 500)
    moved = table + random.normal(scale=0.01, size=table.shape).astype(np.float32)
    moved[0] = table[0]
    plain = (
        np.zeros((100, WIDTH)),
        np.ones((100, WIDTH)),
        np.arange(3200).reshape(100, WIDTH),
        np.full((100, WIDTH), np.nan),
    )
    drawn = random.normal(size=(100, WIDTH)), random.normal(size=(10, 3, 4)), moved
    parts = table[1:], table[:, :-1], table[:4], ch.table(ch.preset("fairseq", width=WIDTH), 500)
    for number, each in enumerate((*plain, *drawn, *parts)):
        with cases(number):
            assert low_precision(each) is None


def test_identify_says_so_and_looks_for_no_training():
    table = made(600, "bfloat16", PARTS[-1])
    (match,) = ch.identify(table)
    assert (match.name, match.computed_in, match.rows.zeroed) == ("vaswani2017", "bfloat16", ())
    assert match.residual is not None
    assert dict(match.evidence)["rounded"] == list(PARTS[-1])
    (exact,) = ch.identify(made(600, "float32", ()))
    assert (exact.computed_in, exact.residual) == ("float32", None)


def test_the_published_table_in_bfloat16():
    """Pegasus-X makes its table in the dtype of its input."""
    found = low_precision(published.arrays("sin_hf_pegasus_x_bf16")["table"])
    assert found is not None
    assert (found.dtype, found.rounded) == ("bfloat16", ("positions", "rates", "phases"))
    assert found.spec == ch.Sinusoidal(64, spacing=ch.preset("pegasus-x").spacing, layout="halves")
