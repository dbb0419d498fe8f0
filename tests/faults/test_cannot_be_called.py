"""What cannot be called as a check calls it gets one sentence: what was tried, and what came back."""

import threading
import time

import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.calling import within
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from clockhands.testing import CannotCheck, check_additive, check_rotary
from faults.right_functions import fly
from faults.rows import arrays_of
from faults.wrong_biases import alibi

SPEC = ch.Rotary(16)
RIGHT = fly(SPEC, np)


def takes_one(x):
    return x


def takes_four(x, _cos, _sin, _unsqueeze_dim):
    return x


def raises(_x, _positions):
    raise RuntimeError("the size of tensor a (64) must match the size of tensor b (32)")


def of_another_shape(x, positions):
    return RIGHT(x, positions)[..., :8]


def transposed(x, positions):
    return RIGHT(x, positions).T


def sleeps(x, _positions):
    time.sleep(8)
    return x


def gives_a_tuple(x, positions):
    return RIGHT(x, positions), x


def gives_none(x, _positions):
    x + 0


def gives_a_string(_x, _positions):
    return "rotated"


def gives_a_generator(x, positions):
    yield RIGHT(x, positions)


def gives_complex(x, positions):
    return RIGHT(x, positions) + 0j


CANNOT = {
    takes_one: "argument",
    takes_four: "argument",
    raises: "must match the size",
    of_another_shape: "8",
    transposed: "shape",
    sleeps: "1",
    gives_a_tuple: "tuple",
    gives_none: "nothing",
    gives_a_string: "str",
    gives_a_generator: "generator",
    gives_complex: "complex",
}


@pytest.mark.parametrize("function", CANNOT, ids=lambda function: function.__name__)
def test_one_sentence_says_what_came_back(function):
    with pytest.raises(CannotCheck) as caught:
        check_rotary(function, SPEC, backend="numpy", timeout=1, length=100)
    assert CANNOT[function] in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("function", [None, 3, "rotate", object()], ids=["None", "number", "text", "object"])
def test_what_is_no_function_is_refused(function):
    with pytest.raises((CannotCheck, TypeError, ValueError)) as caught:
        check_rotary(function, SPEC)
    assert str(caught.value)


def test_a_class_or_a_module_of_another_signature_is_refused():
    class Rope:
        def __call__(self, queries, keys, values, mask):
            return queries

    with pytest.raises(CannotCheck):
        check_rotary(Rope(), SPEC, backend="numpy", length=100)


def test_numbers_that_are_nan_are_a_failure():
    def nan(x, positions):
        out = RIGHT(x, positions)
        out[..., 3] = np.nan
        return out

    report = check_rotary(nan, SPEC, backend="numpy", raises=False, length=100)
    assert not report.sound
    assert "nan" in str(report).lower()


def test_infinite_numbers_at_one_place_are_a_failure():
    def infinite(x, positions):
        out = RIGHT(x, positions)
        out[..., 2] = np.where(np.asarray(positions) == 57, np.inf, out[..., 2])
        return out

    report = check_rotary(infinite, SPEC, backend="numpy", raises=False, length=100)
    assert not report.sound


def test_changed_arguments_are_a_failure():
    def in_place(x, positions):
        x[...] = RIGHT(x, positions)
        return x

    report = check_rotary(in_place, SPEC, backend="numpy", raises=False, length=100)
    assert not report.sound
    assert "changes-its-arguments" in report.codes


def test_changed_positions_are_a_failure():
    def counts_on(x, positions):
        out = RIGHT(x, positions)
        positions += 1
        return out

    report = check_rotary(counts_on, SPEC, backend="numpy", raises=False, length=100)
    assert not report.sound
    assert "changes-its-arguments" in report.codes


def test_an_array_of_another_library_is_told():
    torch = pytest.importorskip("torch")

    def of_torch(x, positions):
        return torch.from_numpy(RIGHT(np.asarray(x), np.asarray(positions)))

    def of_numpy(x, positions):
        return RIGHT(x.numpy(), positions.numpy())

    for function, backend in ((of_torch, "numpy"), (of_numpy, "torch")):
        with pytest.raises(CannotCheck, match=r"(?i)torch|numpy"):
            check_rotary(function, SPEC, backend=backend, length=100, raises=False)


def test_a_builder_that_raises_is_told():
    def build(_spec):
        raise KeyError("rope_theta")

    with pytest.raises(CannotCheck, match="rope_theta"):
        check_rotary(make=build, like=SPEC, backend="numpy", length=100)


@pytest.mark.parametrize("words", ["x, speed", "positions, x", "", 3])
def test_a_call_that_is_not_known_is_refused(words):
    with pytest.raises((ValueError, TypeError)) as caught:
        check_rotary(RIGHT, SPEC, call=words, length=100)
    assert "call" in str(caught.value)


@pytest.mark.parametrize("words", ["seq", "width seq time", "seq seq width", "", 3])
def test_axes_that_are_not_known_are_refused(words):
    with pytest.raises((ValueError, TypeError)) as caught:
        check_rotary(RIGHT, SPEC, axes=words, length=100)
    assert "axes" in str(caught.value)


def test_the_other_kinds_say_it_too():
    with pytest.raises(CannotCheck):
        testing.check_additive(takes_four, ch.Sinusoidal(16), backend="numpy", length=100)
    with pytest.raises(CannotCheck):
        testing.check_additive(of_another_shape, ch.Sinusoidal(16), backend="numpy", length=100)
    right = alibi(ch.Alibi(4), wrong=False)
    with pytest.raises(CannotCheck):
        testing.check_bias(lambda queries, keys: right(queries, keys)[0], ch.Alibi(4), backend="numpy")
    with pytest.raises(CannotCheck):
        testing.check_bias(raises, ch.Alibi(4), backend="numpy")


def test_a_spec_of_another_kind_is_refused():
    for check, like in ((check_rotary, ch.Alibi(4)), (testing.check_additive, SPEC), (testing.check_bias, SPEC)):
        with pytest.raises((ValueError, TypeError)) as caught:
            check(RIGHT, like)
        assert type(like).__name__ in str(caught.value)


def test_a_function_that_hangs_in_jax_or_torch_is_told():
    arrays_of("torch")
    with pytest.raises(CannotCheck, match="1"):
        check_rotary(sleeps, SPEC, backend="torch", timeout=1, length=100)


def test_its_own_timeout_error_is_told_as_what_it_raised():
    def asks_a_server(_x, _positions):
        raise TimeoutError("no answer from the server")

    with pytest.raises(CannotCheck, match="it raised TimeoutError: no answer from the server"):
        check_rotary(asks_a_server, SPEC, backend="numpy", length=100)


def test_a_call_does_not_wait_for_that_of_another_thread():
    started, go_on, told = threading.Event(), threading.Event(), []

    def waits():
        started.set()
        return go_on.wait(60)

    other = threading.Thread(target=lambda: told.append(within(60, waits)))
    other.start()
    try:
        assert started.wait(60)
        assert within(30, lambda: "mine") == "mine"
    finally:
        go_on.set()
        other.join()
    assert told == [True]


def test_a_function_that_is_checked_may_check_another():
    def checked(x, positions):
        return within(30, lambda: RIGHT(x, positions))

    assert check_rotary(checked, SPEC, backend="numpy", length=100, timeout=60).sound


def _turned(x, positions):
    return ch.rotate(x, ch.Rotary(8), positions)


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64"), "float64"])
def test_a_dtype_is_a_name_or_a_librarys_own(dtype):
    assert check_rotary(_turned, ch.Rotary(8), dtype=dtype, length=100).called["dtype"] == "float64"


def test_a_dtype_of_pytorch_is_one():
    torch = pytest.importorskip("torch")
    assert check_rotary(_turned, ch.Rotary(8), dtype=torch.float64, length=100).called["dtype"] == "float64"


def test_words_that_have_commas_are_listed_in_quotes_and_need_no_spaces():
    assert check_rotary(_turned, ch.Rotary(8), call="x,positions", length=100).sound
    with pytest.raises(InvalidValue, match=r'one of "x, positions", "x", "x, offset", "q, k, positions"'):
        check_rotary(_turned, ch.Rotary(8), call="q, k")


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(InvalidType, match="`backend` must be numpy, torch, jax or a module"):
        check_rotary(_turned, ch.Rotary(8), backend="cupy")


def test_a_length_that_cannot_fit_is_refused_before_anything_is_asked():
    def never(_x, _positions):
        raise AssertionError

    with pytest.raises(TooLarge, match="The array for all positions"):
        check_rotary(never, ch.Rotary(64), length=10**12)
    with pytest.raises(TooLarge, match="The array for all positions"):
        check_additive(never, ch.Sinusoidal(64), length=10**12)
