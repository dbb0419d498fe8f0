"""What cannot be called as a check calls it gets one sentence: what was tried, and what came back."""

import functools
import os
import threading
import time

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from clockhands.recognition.calling import within
from clockhands.testing import CannotCheck, check_additive, check_bias, check_rotary
from recognition.faults.written import rotated
from testing.written_biases import linear

SPEC = ch.Rotary(16)
RIGHT = functools.partial(rotated, spec=SPEC, xp=np)
BIAS = linear(8)


def raises(*_):
    raise RuntimeError("no kernel for this")


def sleeps(*_):
    time.sleep(5)


def generates(x, positions):
    yield RIGHT(x, positions)


CHECKS = {
    "rotary": functools.partial(check_rotary, like=SPEC, length=100),
    "additive": functools.partial(check_additive, like=ch.Sinusoidal(32), length=100),
    "bias": functools.partial(check_bias, like=ch.Alibi(8)),
}
CANNOT = {
    "rotary": [
        (lambda x, _at, _more: x, "argument"),
        (lambda x, _cos, _sin, _unsqueeze_dim: x, "argument"),
        (raises, "it raised RuntimeError: no kernel for this"),
        (lambda x, at: RIGHT(x, at)[..., :8], "8"),
        (lambda x, at: RIGHT(x, at).T, "shape"),
        (sleeps, "did not return within 0.2 seconds"),
        (lambda x, at: (RIGHT(x, at), x), "tuple"),
        (lambda *_: None, "nothing"),
        (lambda *_: "rotated", "str"),
        (generates, "generator"),
        (lambda x, at: RIGHT(x, at) + 0j, "complex"),
    ],
    "additive": [
        (lambda x, _at, _more: x, "it raised TypeError"),
        (lambda x, _: x[:1], "it returned shape [1, 32] for x of shape [4, 32]"),
        (lambda *_: None, "it returned nothing, not an array"),
        (lambda x, _: x.astype(int), "not real numbers"),
        (lambda *_: 1 / 0, "it raised ZeroDivisionError: division by zero"),
    ],
    "bias": [
        (lambda queries, keys: BIAS(queries, keys)[0], "returned shape [7, 12], expected [8, 7, 12]"),
        (lambda queries, keys: np.swapaxes(BIAS(queries, keys), -1, -2), "returned shape [8, 12, 7]"),
        (lambda *_: np.zeros((8, 7, 12), np.int64), "returned int64, not real numbers"),
        (lambda *_: np.full((8, 7, 12), np.nan), "it returned no finite number"),
        (lambda *_: None, "returned nothing"),
        (sleeps, "did not return within 0.2 seconds"),
        (lambda *_: np.ma.masked_all((8, 7, 12)), "a masked array with 672 of its 672 numbers masked"),
        (lambda *_: os._exit(0), "it called os._exit(0), which ends the process"),
        (raises, "it raised RuntimeError: no kernel for this"),
    ],
}


@pytest.mark.parametrize("kind", CHECKS)
def test_one_sentence_says_what_came_back(kind, cases):
    for function, said in CANNOT[kind]:
        with cases(said):
            with pytest.raises(CannotCheck) as caught:
                CHECKS[kind](function, backend="numpy", timeout=0.2 if function is sleeps else 60)
            assert said in caught.value.message
            assert "was called as " in caught.value.message
            assert "\n" not in caught.value.message
            assert caught.value.hint


def test_what_is_no_function_is_refused(cases):
    for function in (None, 3, "rotate", object()):
        with cases(function), pytest.raises((CannotCheck, TypeError, ValueError), match=r"function|call"):
            check_rotary(function, SPEC)


def test_an_infinite_number_and_changed_positions_are_failures():
    def infinite(x, positions):
        out = RIGHT(x, positions)
        out[..., 2] = np.where(positions == 57, np.inf, out[..., 2])
        return out

    def counts_on(x, positions):
        out = RIGHT(x, positions)
        positions += 1
        return out

    assert not check_rotary(infinite, SPEC, backend="numpy", raises=False, length=100).sound
    assert "changes-its-arguments" in check_rotary(counts_on, SPEC, backend="numpy", raises=False, length=100).codes


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


def test_words_that_are_not_known_are_refused(cases):
    given = [{"call": words} for words in ("x, speed", "positions, x", "", 3)]
    given += [{"axes": words} for words in ("seq", "width seq time", "seq seq width", "", 3)]
    for options in given:
        with cases(options), pytest.raises((ValueError, TypeError), match=next(iter(options))):
            check_rotary(RIGHT, SPEC, length=100, **options)


def test_a_spec_of_another_kind_is_refused():
    for check, like in ((check_rotary, ch.Alibi(4)), (check_additive, SPEC), (check_bias, SPEC)):
        with pytest.raises((ValueError, TypeError), match=type(like).__name__):
            check(RIGHT, like)


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


def test_a_dtype_is_a_name_or_a_librarys_own():
    torch = pytest.importorskip("torch")
    for dtype in (np.float64, np.dtype("float64"), "float64", torch.float64):
        assert check_rotary(RIGHT, SPEC, dtype=dtype, length=100, backend="numpy").called["dtype"] == "float64"


def test_words_that_have_commas_are_listed_in_quotes_and_need_no_spaces():
    assert check_rotary(RIGHT, SPEC, call="x,positions", length=100).sound
    with pytest.raises(InvalidValue, match=r'one of "x, positions", "x", "x, offset", "q, k, positions"'):
        check_rotary(RIGHT, SPEC, call="q, v")


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(InvalidType, match="`backend` must be numpy, torch, jax or a module"):
        check_rotary(RIGHT, SPEC, backend="cupy")


def test_a_length_that_cannot_fit_is_refused_before_anything_is_asked():
    def never(*_):
        raise AssertionError

    for check, like in ((check_rotary, ch.Rotary(64)), (check_additive, ch.Sinusoidal(64))):
        with pytest.raises(TooLarge, match="The array for all positions"):
            check(never, like, length=10**12)


def test_a_call_is_advised_only_if_its_numbers_are_right(cases):
    def of_tokens(x, past=0):  # [batch, seq, heads, width]
        return np.swapaxes(ch.rotate(np.swapaxes(x, 1, 2), SPEC, past + np.arange(x.shape[1])), 1, 2)

    for function, said in ((of_tokens, 'axes="batch seq heads width" and call="x": pass these.'), (np.copy, "Wrap it")):
        with cases(said), pytest.raises(CannotCheck) as caught:
            CHECKS["rotary"](lambda x, past=0, function=function: function(x) if past == 0 else None)
        assert said in caught.value.hint
