"""Phases against real numbers: every bound that `phases` derives, measured, and shown to be able to fail."""

import os
import re
import subprocess
import sys
import threading
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from clockhands.encodings import phases
from clockhands.encodings.ladders import EvenSteps, Geometric, Ladder, explicit, geometric
from clockhands.encodings.phases import (
    DIRECT_FINE,
    DIRECT_PLAIN,
    FINE,
    FRACTION,
    PRODUCT_FINE,
    PRODUCT_PLAIN,
    fill,
    thread_count,
    units,
)
from clockhands.encodings.positions import Positions, Sizes, positions_of
from clockhands.errors import InvalidType, InvalidValue
from oracles import real_numbers, sentences
from oracles.rows import every

FAST = (7.0, 65.3, 1_000.0)
NANOSECONDS = 1_790_000_000_123_456_789  # Unix time, September 2026
LADDERS = {
    "paper": (geometric(4), real_numbers.geometric(4)),
    "closed": (geometric(3, 500_000.0, "closed"), real_numbers.geometric(3, 500_000.0, 2)),
    "fast": (explicit(FAST), [mpf(rate) for rate in FAST]),
    "fastest": (explicit([9.2e18, 2.0**62 + 2.0**20, 0.0]), [mpf(9.2e18), mpf(2.0**62 + 2.0**20), mpf(0)]),
    "tiny": (explicit([5e-324, 1e-30, 2.0**-61]), [mpf(5e-324), mpf(1e-30), mpf(2.0**-61)]),
}
ladders = pytest.mark.parametrize("name", LADDERS)
INTEGERS = st.integers(-(2**63), 2**63)
REALS = st.floats(-(2.0**63), 2.0**63, allow_nan=False)


def filled(ladder: Ladder, at: Positions, *, swapped=False, fine=True, threads=1):
    """What `fill` writes, as ``cos + i sin``, after a look that everything is written once."""
    out = np.full((at.size, ladder.pairs), np.nan, complex)
    times = np.zeros(out.shape, int)
    lock = threading.Lock()

    def write(rows, pairs, block):
        with lock:
            assert block.dtype == np.complex128
            assert block.shape == out[rows, pairs].shape
            out[rows, pairs] = block
            times[rows, pairs] += 1

    fill(write, ladder, at, swapped=swapped, fine=fine, threads=threads)
    assert (times == 1).all()
    return out.imag + 1j * out.real if swapped else out


def spread(size: int, number: int) -> np.ndarray:
    """Indices from all over a range, both ends included."""
    return np.unique(np.linspace(0, size - 1, number).astype(int))


# --- the machine's sine and cosine -----------------------------------------------------------------------------


def test_sine_and_cosine_of_numpy_are_as_good_as_the_bounds_take_them_to_be():
    random = np.random.default_rng(4)
    x = np.concatenate(
        [random.uniform(-np.pi / 4, np.pi / 4, 3_000), np.pi / 4 * 0.5 ** random.uniform(0, 60, 500), [0.0, np.pi / 4]]
    )
    worst = max(
        max(abs(mpf(float(s)) - mp.sin(mpf(float(a)))), abs(mpf(float(c)) - mp.cos(mpf(float(a)))))
        for a, s, c in zip(x, np.sin(x), np.cos(x), strict=True)
    )
    assert worst <= 2.0**-53
    # Inside complex numbers, where they are written, NumPy takes another loop.
    out = np.empty(len(x), complex)
    np.sin(x, out=out.imag)
    np.cos(x, out=out.real)
    assert max(abs(mpf(float(s)) - mp.sin(mpf(float(a)))) for a, s in zip(x, out.imag, strict=True)) <= 2.0**-53
    assert max(abs(mpf(float(c)) - mp.cos(mpf(float(a)))) for a, c in zip(x, out.real, strict=True)) <= 2.0**-53


def test_the_two_parts_of_the_unit_make_it_up():
    unit = 2 * mp.pi / mpf(2) ** 64
    assert abs(mpf(phases._UNIT) - unit) <= mpf(2) ** -53 * mpf(2) ** -61
    assert abs(mpf(phases._UNIT_HIGH) + mpf(phases._UNIT_LOW) - unit) <= mpf(2) ** -140
    # 25 bits times the 26 of what is left of the fraction make an exact product.
    assert (phases._UNIT_HIGH * 2.0**86).is_integer()
    assert phases._UNIT_HIGH * 2.0**86 < 2**25


# --- the fraction of a turn ------------------------------------------------------------------------------------


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@example(2**64 - 1, 2**64 - 1)
@example(2**32 - 1, 2**64 - 1)
@example(2**32, 2**32)
def test_the_upper_half_of_a_product_is_low_by_less_than_3(a, b):
    got = int(phases._upper(np.array([a], np.uint64), np.array([b], np.uint64))[0])
    assert 0 <= (a * b >> 64) - got < 3


def fraction_error(ladder: Ladder, rates, sizes: Sizes, position) -> float:
    """How far the fractions are from the real ones, in units of 2**-64 turns, the short way round."""
    got = phases._fractions(ladder.turns, sizes)[0]
    worst = mpf(0)
    for fraction, rate in zip(got, rates, strict=True):
        away = (mpf(int(fraction)) - mpf(position) * rate / (2 * mp.pi) * mpf(2) ** 64) / mpf(2) ** 64
        worst = max(worst, abs(away - mp.nint(away)) * mpf(2) ** 64)
    return float(worst)


@ladders
@given(position=INTEGERS | REALS)
@example(position=2**63)
@example(position=-(2**63))
@example(position=2**32)
@example(position=2**32 - 1)
@example(position=0.25)
@example(position=1_000_000.5)
@example(position=5e-324)
@example(position=2.0**-75)
@example(position=-(1 - 2.0**-53))
@example(position=2.0**52 + 0.5)
def test_fractions_of_turns(name, position):
    ladder, rates = LADDERS[name]
    assert FRACTION == 13 * 2.0**-64
    bound = 3.25 if isinstance(position, int) else 13
    assert fraction_error(ladder, rates, positions_of([position]).sizes(0, 1), position) < bound


def test_fractions_check_can_fail():
    # A rate that is only its float64: off by a tenth of a turn at 10**15.
    ladder, _ = LADDERS["paper"]
    sizes = positions_of([10**15]).sizes(0, 1)
    assert fraction_error(explicit(ladder.rates), real_numbers.geometric(4), sizes, 10**15) > 2.0**40


# --- direct ----------------------------------------------------------------------------------------------------


@ladders
@given(position=INTEGERS | REALS)
@example(position=NANOSECONDS)
@example(position=0)
@example(position=0.5)
@example(position=0.25)
@example(position=1_000_000.5)
@example(position=-(2**63))
def test_units_are_within_their_bound(name, position):
    ladder, rates = LADDERS[name]
    assert real_numbers.worst_unit(units(ladder, positions_of([position])), rates, [position]) <= DIRECT_FINE


@every("name", LADDERS)
@every("fine, bound", [(True, DIRECT_FINE), (False, DIRECT_PLAIN)])
@every("swapped", [False, True])
@every("kind", ["integers", "reals"])
def test_arbitrary_positions_are_within_their_bound(name, fine, bound, swapped, kind):
    ladder, rates = LADDERS[name]
    random = np.random.default_rng(11)
    if kind == "integers":
        at = random.integers(-(2**63), 2**63 - 1, 150).tolist()
    else:
        at = [*random.normal(0, 1e4, 100), *FAST, 0.25, 0.5, 1_000_000.5, -0.0]
    got = filled(ladder, positions_of(at), swapped=swapped, fine=fine)
    assert real_numbers.worst_unit(got, rates, at) <= bound


def test_angles_all_around_the_circle_are_within_their_bound():
    # One turn in 1024 steps: every border of the reduction to an eighth of a turn, and both sides of it.
    at = [eighth * 128 + beside for eighth in range(-8, 9) for beside in (-1, 0, 1)]
    ladder = Geometric(2.0, multiplier=2 * np.pi / 1024).ladder(1, 2)
    rates = [mpf(2 * np.pi / 1024)]
    for fine, bound in ((True, DIRECT_FINE), (False, DIRECT_PLAIN)):
        assert real_numbers.worst_unit(filled(ladder, positions_of(at), fine=fine), rates, at) <= bound


def test_exact_values_are_exact():
    for fine, swapped in product((True, False), (True, False)):
        got = filled(geometric(3), positions_of([0]), fine=fine, swapped=swapped)
        assert (got == 1).all()
        assert (filled(explicit([0.0]), positions_of([5, -7, 2**63]), fine=fine, swapped=swapped) == 1).all()


def test_blocks_of_arbitrary_positions_meet(monkeypatch):
    at = positions_of(np.random.default_rng(5).integers(0, 2**40, 1_000).tolist())
    ladder = geometric(7)
    whole = filled(ladder, at)
    monkeypatch.setattr(phases, "_DIRECT", 64)
    monkeypatch.setattr(phases, "_COLUMNS", 3)
    assert np.array_equal(filled(ladder, at), whole)
    monkeypatch.setattr(phases, "_DIRECT", 1)
    assert np.array_equal(filled(ladder, at), whole)


def test_units_in_words(cases):
    sentences.hold("phases", cases)


# --- consecutive -----------------------------------------------------------------------------------------------

RUNS = {
    "from 0": range(700),
    "from elsewhere": range(4_000, 9_000),
    "negative": range(-5_000, 300),
    "sevens": range(3, 7 * 700, 7),
    "downwards": range(900, -900, -3),
    "minus ones": range(100, -300, -1),
    "huge steps": range(-(2**60), 2**60, 2**52 + 1),
    "to the end": range(2**63 - 300, 2**63 + 1),
    "from the beginning": range(-(2**63), -(2**63) + 300),
    "today": range(NANOSECONDS, NANOSECONDS + 4_097),
}


def samples(run: range) -> list[int]:
    size = len(run)
    near = [0, 1, FINE - 1, FINE, FINE + 1, 4_095, 4_096, size // 2, size - 2, size - 1]
    # Where blocks and groups of positions begin.
    near += [place - run.start for place in (-(-run.start // 4_096) * 4_096,) if run.step == 1]
    return sorted({place for place in near if 0 <= place < size})


@every("run", RUNS)
@every("fine, bound", [(True, PRODUCT_FINE), (False, PRODUCT_PLAIN)])
@every("swapped", [False, True])
def test_consecutive_positions_are_within_their_bound(run, fine, bound, swapped):
    ladder, rates = LADDERS["paper"]
    got = filled(ladder, positions_of(RUNS[run]), swapped=swapped, fine=fine)
    chosen = samples(RUNS[run])
    assert real_numbers.worst_unit(got[chosen], rates, [RUNS[run][i] for i in chosen]) <= bound


@every("name", ["closed", "fast", "fastest", "tiny"])
@every("fine, bound", [(True, PRODUCT_FINE), (False, PRODUCT_PLAIN)])
def test_consecutive_positions_of_other_ladders(name, fine, bound):
    ladder, rates = LADDERS[name]
    run = range(-5_000, 5_000)
    got = filled(ladder, positions_of(run), fine=fine)
    chosen = spread(len(run), 40)
    assert real_numbers.worst_unit(got[chosen], rates, [run[i] for i in chosen]) <= bound


@every("run", RUNS)
@every("swapped", [False, True])
def test_consecutive_positions_are_those_one_by_one(run, swapped):
    # Every row, against the direct path, whose bound is tested above.
    ladder = geometric(3, 50.0)
    at = positions_of(RUNS[run])
    one_by_one = units(ladder, at)
    for fine, bound in ((True, PRODUCT_FINE), (False, PRODUCT_PLAIN)):
        got = filled(ladder, at, swapped=swapped, fine=fine)
        for part in ("real", "imag"):
            assert np.abs(getattr(got, part) - getattr(one_by_one, part)).max() <= bound + DIRECT_FINE


def test_more_pairs_than_a_block_is_wide():
    ladder = EvenSteps(0.0, 1.0).ladder(2_500, 5_000)
    at = positions_of(range(-70, 130))
    assert at.size > 2 * FINE
    one_by_one = units(ladder, at)
    for swapped in (False, True):
        assert np.abs(filled(ladder, at, fine=True, swapped=swapped) - one_by_one).max() < 2**0.5 * 2 * PRODUCT_FINE
        assert np.abs(filled(ladder, at, fine=False, swapped=swapped) - one_by_one).max() < 2 * PRODUCT_PLAIN


@every("length", [0, 1, 2, FINE, 2 * FINE, 2 * FINE + 1, 3 * FINE, 4_096, 4_097])
@every("start", [0, 1, 63, 4_095, -1, -4_097])
def test_any_length_from_anywhere(start, length):
    ladder = geometric(2)
    run = range(start, start + length)
    got = filled(ladder, positions_of(run), fine=False)
    direct = filled(ladder, positions_of(list(run)), fine=True)
    assert got.shape == direct.shape == (length, 2)
    assert np.abs(got - direct).max(initial=0) <= 2 * PRODUCT_PLAIN


def test_both_ways_are_taken(monkeypatch):
    taken = []
    original = phases._Progression
    monkeypatch.setattr(phases, "_Progression", lambda *a, **k: taken.append("stepping") or original(*a, **k))
    direct = phases._fill_directly
    monkeypatch.setattr(phases, "_fill_directly", lambda *a, **k: taken.append("direct") or direct(*a, **k))

    def way(positions):
        taken.clear()
        filled(geometric(2), positions_of(positions))
        return taken

    assert way(range(2 * FINE)) == ["direct"]
    assert way(range(2 * FINE + 1)) == ["stepping"]
    assert way(list(range(2 * FINE + 1))) == ["direct"]
    assert way(np.arange(2 * FINE + 1)) == ["stepping"]
    assert way(range(0, 2**62, 2**54)) == ["direct"], "steps whose rows would leave 64 bits"
    assert way(range(0, -(2**62), -(2**54))) == ["direct"]
    assert way(range(0, 2**50, 2**40)) == ["stepping"]
    assert way([]) == []


@pytest.mark.parametrize("fine", [True, False])
def test_every_factor_is_made_as_finely_as_was_asked(monkeypatch, fine):
    # The measured errors of both are below the bound of the finer one, so the bounds alone would not tell.
    asked = []
    evaluate = phases._evaluate

    def spy(turns, at, *, fine, swapped=False):
        asked.append(fine)
        return evaluate(turns, at, fine=fine, swapped=swapped)

    monkeypatch.setattr(phases, "_evaluate", spy)
    ladder = geometric(3)
    for swapped in (False, True):
        filled(ladder, positions_of(range(5_000)), fine=fine, swapped=swapped)
        filled(ladder, positions_of([1, 5, 7]), fine=fine, swapped=swapped)
    assert len(asked) > 3
    assert all(each is fine for each in asked)
    asked.clear()
    units(ladder, positions_of([1]))
    assert asked == [True]


def test_a_row_of_a_range_does_not_depend_on_its_cut():
    # For step 1 the same product of the same factors, wherever the range starts: the same bits.
    ladder = geometric(5)
    whole = range(-9_000, 9_000)
    for fine in (True, False):
        table = filled(ladder, positions_of(whole), fine=fine)
        for a, b in ((-9_000, -8_800), (-4_097, 4_097), (-1, 200), (63, 8_999), (4_095, 4_300), (-200, 0)):
            part = filled(ladder, positions_of(range(a, b)), fine=fine)
            assert np.array_equal(part, table[a + 9_000 : b + 9_000]), (a, b, fine)


@pytest.mark.parametrize("fine", [True, False])
def test_threads_write_the_same_bits(monkeypatch, fine):
    monkeypatch.setattr(phases, "_THREADED", 1)
    for given_ in (range(-3_000, 3_000), range(0, 900, 3), np.arange(700) ** 2):
        at = positions_of(given_)
        one, *more = (filled(geometric(3), at, fine=fine, threads=threads) for threads in (1, 2, 3, 50))
        assert all(np.array_equal(one, other) for other in more)


def test_threads_are_used_where_they_pay(monkeypatch):
    seen = []

    def write(*_):
        seen.append(threading.get_ident())

    def threads_of(number, threads):
        seen.clear()
        fill(write, geometric(64), positions_of(range(number)), swapped=False, fine=False, threads=threads)
        return len(set(seen))

    assert threads_of(4_096, 1) == 1
    assert threads_of(4_095, 2) == 1
    assert threads_of(4_096, 2) == 2
    monkeypatch.setenv("CLOCKHANDS_THREADS", "2")
    assert threads_of(4_096, None) == 2


@every("run", RUNS)
def test_rows_rounded_into_the_output_are_those_of_the_blocks(run):
    ladder, at = geometric(5), positions_of(RUNS[run])
    for wide, fine in ((np.complex64, False), (np.complex128, True)):
        blocks, direct = (np.full((at.size, 5), np.nan, wide) for _ in range(2))
        written = []

        def write(rows, pairs, block, out=blocks):
            out[rows, pairs] = block

        def write_rest(rows, pairs, block, out=direct, written=written):
            assert np.isnan(out[rows, pairs]).all()
            out[rows, pairs] = block
            written.append(len(block))

        fill(write, ladder, at, swapped=True, fine=fine, threads=1)
        fill(write_rest, ladder, at, swapped=True, fine=fine, threads=1, into=direct)
        assert np.array_equal(blocks, direct)
        if at.size > 2 * FINE and abs(at.step) < 2**40:  # else each phase is computed for itself
            assert sum(written) < 2 * FINE  # the runs that the two ends cut


def test_a_forked_process_has_threads_of_its_own():
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=60, check=False)
    assert done.returncode == 0


FORKED = """
import os, sys
import numpy as np
import clockhands as ch
spec = ch.preset("vaswani2017", width=512)
before = ch.table(spec, 5_000, threads=2)
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(ch.table(spec, 5_000, threads=2), before) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_what_a_thread_cannot_do_is_raised(monkeypatch):
    monkeypatch.setattr(phases, "_THREADED", 1)

    def write(rows, *_):
        if rows.start >= 500:
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fill(write, geometric(2), positions_of(range(1_000)), swapped=False, fine=False, threads=2)


# --- how work is shared ----------------------------------------------------------------------------------------


@given(st.integers(1, 5_000), st.integers(1, 20), st.sampled_from([1, 7, 64]))
def test_shares_are_all_of_it_once_and_nearly_equal(number, workers, grain):
    parts = phases._shares(number, workers, grain)
    assert [i for part in parts for i in part] == list(range(number))
    assert len(parts) == min(workers, -(-number // grain))
    assert all(part.start % grain == 0 and len(part) for part in parts)
    sizes = [-(-len(part) // grain) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_the_number_of_threads(monkeypatch):
    monkeypatch.delenv("CLOCKHANDS_THREADS", raising=False)
    system = SimpleNamespace(
        environ=os.environ, cpu_count=lambda: 9, sched_getaffinity=lambda process: {0: range(7)}[process]
    )
    monkeypatch.setattr(phases, "os", system)
    assert thread_count() == 7
    assert thread_count(3) == 3
    monkeypatch.setenv("CLOCKHANDS_THREADS", " 5 ")
    assert thread_count() == 5
    assert thread_count(2) == 2
    monkeypatch.setenv("CLOCKHANDS_THREADS", "")
    assert thread_count() == 7
    del system.sched_getaffinity
    assert thread_count() == 9
    system.cpu_count = lambda: None
    assert thread_count() == 1


def test_impossible_numbers_of_threads(monkeypatch):
    for said in ("many", "-1", "1.5", "²"):
        monkeypatch.setenv("CLOCKHANDS_THREADS", said)
        expected = f"`CLOCKHANDS_THREADS` must be a whole number of at least 1, got {said!r}."
        with pytest.raises(InvalidValue, match=f"^{re.escape(expected)}\nhint: Unset it to use all cores, or set it"):
            thread_count()
    monkeypatch.setenv("CLOCKHANDS_THREADS", "0")
    with pytest.raises(InvalidValue, match=r"^`threads` must be at least 1, got 0\.\nhint: Give `threads` as an int"):
        thread_count()
    with pytest.raises(InvalidType, match=r"^`threads` must be a whole number, got 2\."):
        thread_count(2.0)


# --- the oracle can fail ---------------------------------------------------------------------------------------


def test_the_bounds_can_fail():
    ladder, rates = LADDERS["paper"]
    at = [3, 1_000, NANOSECONDS]
    right = units(ladder, positions_of(at))
    assert real_numbers.worst_unit(right, rates, at) <= DIRECT_FINE
    for wrong in (right.conj(), right * (1 + 2.0**-51), right[::-1], np.sqrt(right * right)):
        assert real_numbers.worst_unit(wrong, rates, at) > DIRECT_FINE
    doubles = np.exp(1j * np.multiply.outer(np.array(at, np.float64), ladder.rates))
    assert real_numbers.worst_unit(doubles, rates, at) > 0.1


def test_the_bounds_are_those_of_the_docstring():
    assert pytest.approx((2.36 + 1 + 0.05) * 2.0**-53) == DIRECT_PLAIN
    assert pytest.approx((1 + 0.5 + 0.05) * 2.0**-53) == DIRECT_FINE
    assert PRODUCT_FINE >= (2 * 2**0.5 * 1.55 + 2) * 2.0**-53
    assert FRACTION * 2 * np.pi < 2.0**-57.6
    assert max(DIRECT_FINE, PRODUCT_FINE) < 4 * phases.ULP == real_numbers.FLOAT64
    # Five products of six plain factors.
    grown = DIRECT_PLAIN
    for _ in range(5):
        grown = 2**0.5 * (grown + DIRECT_PLAIN) + 2 * 2.0**-53
    assert grown <= PRODUCT_PLAIN
    assert 2.0**-25 + PRODUCT_PLAIN < real_numbers.FLOAT32
