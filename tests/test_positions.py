"""Positions: whatever they come in, the exact numbers that they are."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import clockhands
from clockhands.encodings import additive, rotary
from clockhands.encodings.positions import LARGEST, Positions, positions_of
from clockhands.errors import InvalidType, InvalidValue
from late import Late
from oracles import sentences
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

INTEGERS = st.integers(-LARGEST, LARGEST)
REALS = st.floats(-(2.0**63), 2.0**63, allow_nan=False)


def numbers(at: Positions) -> list[Fraction]:
    """The positions as exact fractions, read from the parts that the arithmetic uses."""
    sizes = at.sizes(0, at.size)
    assert sizes.whole.dtype == np.uint64
    exact = []
    for i, whole in enumerate(sizes.whole):
        part = Fraction(float(sizes.part[i])) if sizes.part is not None else Fraction(0)
        assert 0 <= part < 1
        size = int(whole) + part
        exact.append(-size if sizes.negative is not None and sizes.negative[i] else size)
    assert [Fraction(at.element(i)) for i in range(at.size)] == exact
    return exact


def exactly(given_, wanted=None) -> Positions:
    """The positions, after a look that they are these numbers."""
    at = positions_of(given_)
    flat = list(given_) if wanted is None else wanted
    assert numbers(at) == [Fraction(number) for number in flat]
    return at


# --- lists -----------------------------------------------------------------------------------------------------


@given(st.lists(INTEGERS | REALS))
@example([-1, 2**63])
@example([2**63, 0.5])
@example([2**53 + 1, 1.5])
@example([-(2**63), 2**63, -0.0, 5e-324])
@example([])
def test_a_list_is_its_numbers(given_):
    assert exactly(given_).shape == (len(given_),)
    exactly(tuple(given_))


def test_lists_hold_numbers_of_any_library(backend):
    at = positions_of([backend.asarray(3), backend.asarray(2.5, "float32"), np.int8(-4), np.float32(0.5), 7])
    assert numbers(at) == [3, Fraction(5, 2), -4, Fraction(1, 2), 7]


def test_nested_lists_keep_their_shape():
    assert positions_of([[1, 2, 3], [4, 5, 6]]).shape == (2, 3)
    assert positions_of([[], []]).shape == (2, 0)
    assert positions_of([range(3), (4, 5, 6)]).shape == (2, 3)
    assert positions_of([np.arange(3), [4, 5, 6]]).shape == (2, 3)
    exactly([[1, 2.5], [-3, 2**63]], [1, 2.5, -3, 2**63])
    assert positions_of([[[1]]]).shape == (1, 1, 1)


def test_other_sequences_are_lists():
    from collections import UserList, deque

    exactly(UserList([3, 1]), [3, 1])
    exactly(deque([3, 1]), [3, 1])


# --- ranges and counts -----------------------------------------------------------------------------------------


@st.composite
def ranges(draw):
    start, stop = draw(INTEGERS), draw(INTEGERS)
    least = abs(stop - start) // 50 + 1
    step = draw(st.integers(least, 2**64)) * draw(st.sampled_from([1, -1]))
    return range(start, stop, step)


@given(ranges())
@example(range(5))
@example(range(-3, 4))
@example(range(3, -4, -1))
@example(range(5, 5))
@example(range(5, 6, 10**30))
@example(range(-5, -6, -(10**30)))
@example(range(2**63, 2**63 + 1))
@example(range(-(2**63), 2**63 + 1, 2**63))
@example(range(2**63, -(2**63) - 1, -(2**62)))
@example(range(-6, 7, 3))
@example(range(6, -7, -3))
@example(range(-7, 7, 3))
def test_a_range_is_itself(given_):
    at = exactly(given_)
    assert at.progression
    assert at.shape == (len(given_),)
    for begin, end in ((0, 0), (1, 3), (2, len(given_))):
        if begin <= end <= len(given_):
            part = Positions((end - begin,), *at.sizes(begin, end))
            assert numbers(part) == [Fraction(number) for number in given_[begin:end]]


def test_a_count_is_the_positions_from_0(backend):
    exactly(4, range(4))
    exactly(0, [])
    exactly(np.int8(3), range(3))
    exactly(backend.asarray(3), range(3))
    assert positions_of(2**63).size == 2**63


# --- arrays ----------------------------------------------------------------------------------------------------


@given(arrays.arrays(arrays.integer_dtypes() | arrays.unsigned_integer_dtypes(), st.integers(0, 6)))
def test_an_array_of_integers_is_its_numbers(array):
    if array.dtype.kind == "u" and array.size and int(array.max()) > LARGEST:
        with pytest.raises(InvalidValue, match="must be from -2\\*\\*63 to 2\\*\\*63"):
            positions_of(array)
        return
    before = array.copy()
    exactly(array, array.tolist())
    assert np.array_equal(array, before)


@given(
    arrays.arrays(
        arrays.floating_dtypes(sizes=(32, 64)), st.integers(0, 6), elements=st.floats(-(2.0**15), 2.0**15, width=16)
    )
    | arrays.arrays(np.float64, st.integers(0, 6), elements=REALS)
)
def test_an_array_of_floats_is_its_numbers(array):
    exactly(array, array.tolist())


def test_arrays_of_any_library_are_their_numbers(backend):
    for dtype in ("int32", "uint8", "float32"):
        at = positions_of(backend.asarray([[0, 1, 3], [7, 5, 100]], dtype))
        assert at.shape == (2, 3)
        assert numbers(at) == [0, 1, 3, 7, 5, 100]


def test_arrays_of_objects_are_lists():
    exactly(np.array([1, 2**63, 0.5], object), [1, 2**63, 0.5])
    assert positions_of(np.array([[1, 2]], object)).shape == (1, 2)


# --- progressions ----------------------------------------------------------------------------------------------

PROGRESSIONS = [
    np.arange(5),
    np.arange(5, dtype=np.uint8),
    np.arange(5, dtype=np.uint64),
    np.array([9, 6, 3, 0, -3]),
    np.array([-128, -64, 0, 64], np.int8),
    np.array([0, 127, 254], np.uint8),
    np.array([2**61, 2**61 + 5, 2**61 + 10]),
    np.array([2**61, 2**61 + 5, 2**61 + 10], np.uint64),
]
OTHERS = [
    np.array([0, 1]),
    np.array([], int),
    np.array([4]),
    np.array([0, 0, 0]),
    np.array([0, 1, 3]),
    np.array([0, 1, 1, 3]),
    np.array([0, 2, 1, 3, 4]),
    # Equal steps only with wrap-around.
    np.array([0, 100, -56], np.int8),
    np.array([0, 200, 144], np.uint8),
    np.array([2, 1, 0, 255, 254], np.uint8),
    np.array([-128, 127, -128], np.int8),
    np.array([2**62, -(2**62), 2**62]),
    np.array([0, 2**62, -(2**63)]),
    np.array([-(2**63), 0, -(2**63)]),
    np.array([2**63 - 1, -(2**63), -(2**63) + 1]),
    np.array([2**63, 2**63 - 2**62, 2**63 - 2**63], np.uint64),
    np.array([[0, 1, 2]]),
    np.array([0.0, 1.0, 2.0]),
]


@every("array", PROGRESSIONS)
def test_equal_steps_are_seen(array):
    at = exactly(array, array.tolist())
    assert at.progression or array.dtype == np.uint8
    if at.progression:
        assert (at.start, at.step) == (array.tolist()[0], array.tolist()[1] - array.tolist()[0])


@every("array", OTHERS)
def test_other_steps_are_not_taken_for_equal(array):
    at = exactly(array, array.reshape(-1).tolist())
    assert not at.progression
    assert at.shape == array.shape


@given(INTEGERS, st.integers(-(2**61), 2**61), st.integers(3, 6), st.sampled_from([np.int64, np.int32, np.uint64]))
def test_any_equal_steps_are_right_however_they_are_seen(start, step, number, dtype):
    values = [start + step * i for i in range(number)]
    limits = np.iinfo(dtype)
    if all(limits.min <= value <= min(limits.max, LARGEST) for value in values):
        exactly(np.array(values, dtype), values)


# --- what is no position ---------------------------------------------------------------------------------------

NAN, INFINITY = float("nan"), float("inf")


def test_what_is_no_position_is_refused_in_words(cases):
    sentences.hold("positions", cases)
    wide = np.dtype(np.longdouble)  # its name is that of the machine
    for given_ in (np.array([1], wide), [np.longdouble(1)]):
        with pytest.raises(
            (InvalidValue, InvalidType), match=f"^`positions` must be at most float64, got {wide}\\.\nhint: Give a"
        ):
            positions_of(given_)


def test_positions_that_exist_only_inside_a_trace_are_refused():

    hint = "Give `positions` as NumPy values or Python numbers, outside of jit, vmap and compile."
    with pytest.raises(InvalidType, match=r"^`positions` must be concrete numbers, got .*Tracer") as caught:
        jax.jit(lambda at: positions_of(at).whole)(np.arange(4))
    assert caught.value.hint == hint


def test_the_deepest_list_and_the_largest_positions_are_taken():
    assert positions_of([[[[[[[[1]]]]]]]]).shape == (1,) * 8
    for value in (2**63, -(2**63), 2.0**63, -(2.0**63)):
        exactly([value])
        exactly(np.array([value], np.float64), [value])


# --- what was rounded before it came -----------------------------------------------------------------------------


def test_positions_in_a_narrow_dtype_are_refused_by_the_first_that_is_lost(backend, cases):
    for dtype, least, lost in (("bfloat16", 256, "257 is 256"), ("float16", 2048, "2049 is 2048")):
        says = f"`positions` must not be {dtype}, in which {lost}"
        for given_, end in (
            (np.arange(3), "."),  # always: the next ones would be lost
            (np.arange(3 * least), f"; the first position so large is {least} at index {least}."),
            (np.full((2, 3), -least), f"; the first position so large is {-least} at index [0, 0]."),
        ):
            with cases(backend.name, dtype, end), pytest.raises(InvalidType) as caught:
                positions_of(backend.asarray(given_, dtype))
            assert str(caught.value).split("\n")[0] == says + end
        with cases(backend.name, dtype, "in a list"), pytest.raises(InvalidType, match=f"must not be {dtype}"):
            positions_of([0, backend.asarray(0.5, dtype)])
    with cases("float8"), pytest.raises(InvalidType, match="must not be float8_e4m3fn"):
        positions_of(np.array([0.5], ml_dtypes.float8_e4m3fn))


def test_whole_numbers_in_float32_are_refused_where_the_next_is_the_same(any_backend, cases):
    whole = "`positions` are whole numbers in float32, in which "
    for given_, says in (
        ([2**24 - 1, 2**24 + 1], whole + "16777217 is 16777216; the first position so large is 16777216 at index 1."),
        ([-(2**24) - 2], whole + "16777219 is 16777220; the first position so large is -16777218 at index 0."),
        ([[3e7]], whole + "30000001 is 30000000; the first position so large is 30000000 at index [0, 0]."),
    ):
        with cases(any_backend.name, given_), pytest.raises(InvalidValue) as caught:
            positions_of(any_backend.asarray(given_, "float32"))
        assert str(caught.value).split("\n")[0] == says
    with pytest.raises(InvalidValue, match="in which 30000001 is 30000000"):
        positions_of([0, np.float32(3e7)])
    for given_ in ([2**24 - 1], [0.5, 3e7]):  # exact, and real ones
        exactly(any_backend.asarray(given_, "float32"), given_)
    exactly(np.array([3e7 + 1]))


FOURIER = additive.FourierFeatures(4, axes=1)
SPEC, HEADS = clockhands.Rotary(4), np.ones((3, 4), np.float32)
DOORS = {
    "rotate": lambda x, at: clockhands.rotate(x, SPEC, at),
    "rotate_both": lambda x, at: rotary.rotate_both(x, x, SPEC, at),
    "rerotate": lambda x, at: rotary.rerotate(x, SPEC, at, at),
    "cos_sin": lambda x, at: rotary.cos_sin(SPEC, at, x),
    "within": lambda _x, at: rotary.within(at, 8),
    "add": lambda x, at: clockhands.add(x, clockhands.Sinusoidal(4), at),
    "add Fourier": lambda x, at: clockhands.add(x, FOURIER, at, values=np.ones((1, 2), np.float32)),
    "add nothing": lambda x, at: clockhands.add(x, clockhands.NoPosition(4), at),
    "bias": lambda _x, at: clockhands.bias(clockhands.Alibi(2), at, at),
}


def test_every_door_refuses_narrow_positions_and_in_a_trace_by_their_dtype(backend, cases):
    x, narrow = backend.asarray(HEADS), backend.asarray(np.arange(3), "bfloat16")
    for name, door in DOORS.items():
        with cases(backend.name, name), pytest.raises(InvalidType, match=r"(must not be|integers, got) bfloat16"):
            door(x, narrow)
        if backend.name == "numpy":
            continue
        with cases(backend.name, name, "inside"), pytest.raises(InvalidType, match=r"(must not be|got) bfloat16"):
            jax.jit(door)(x, narrow) if backend.name == "jax" else torch.func.vmap(door)(x[None], narrow[None])


def test_a_compiled_function_refuses_narrow_positions():
    rotate = torch.compile(lambda at: clockhands.rotate(torch.ones(3, 4), SPEC, at), backend="eager")
    with pytest.raises(InvalidType, match="got bfloat16"):
        rotate(torch.arange(3, dtype=torch.bfloat16))


def test_modules_refuse_narrow_positions(cases):
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    from clockhands.jax import Rotary as JaxRotary
    from clockhands.torch import module

    narrow = torch.arange(3, dtype=torch.bfloat16)
    x, scores = torch.ones(3, 4), torch.ones(2, 3, 3)
    for name, call in (
        ("Rotary", lambda: module(SPEC)(x, narrow)),
        ("Additive", lambda: module(clockhands.Sinusoidal(4)).embed(x, narrow)),
        ("Bias", lambda: module(clockhands.Alibi(2))(scores, narrow, narrow)),
        ("prepare", lambda: module(SPEC).prepare(narrow, like=x)),
        (
            "Rotary of JAX",
            lambda: JaxRotary(SPEC)(jax.numpy.ones((3, 4)), jax.numpy.arange(3, dtype="bfloat16")),
        ),
        ("table", lambda: clockhands.table(clockhands.Sinusoidal(4), narrow)),
    ):
        with cases(name), pytest.raises(InvalidType, match="must not be bfloat16, in which 257 is 256"):
            call()
