"""What a function does beside turning, and functions that are no code of positions: said in words."""

import functools
import itertools
import sys

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.ladders import Explicit, Geometric, Joined
from clockhands.encodings.rotary import rotate
from clockhands.encodings.scaling import Dynamic, Linear, LongRope
from clockhands.encodings.traces import library_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.recognition import calling
from clockhands.recognition.functions import identify_function

WIDTH = 32
SPEC = ch.Rotary(WIDTH)
TURNS = ch.Rotary(WIDTH, spacing=Geometric(100.0, multiplier=2 * np.pi))


def turned(x, positions, spec=SPEC):
    return rotate(x, spec, positions)


def by_float_waves(x, phases, dtype=np.float32):
    """Halves turned by cosines and sines that are rounded to a dtype."""
    cosine, sine = (wave(phases).astype(dtype).astype(np.float32) for wave in (np.cos, np.sin))
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)


def one_pair_backward(x, positions):
    y, other = turned(x, positions).copy(), turned(x, -positions)
    y[:, [3, 19]] = other[:, [3, 19]]
    return y


def middle(x, positions):
    return np.concatenate([x[:, :8], turned(x[:, 8:24], positions, ch.Rotary(16)), x[:, 24:]], axis=1)


def changing_x(x, positions):
    x[:] = turned(x, positions)
    return x


def changing_positions(x, positions):
    y = turned(x, positions)
    positions += 1
    return y


def shifted(x, positions):
    y = turned(x, positions).copy()
    y[1:] += 0.25 * x[:-1]
    return y


def growing():
    """Dynamic scaling that never comes back from the longest call."""
    longest = [0]

    def function(x, positions):
        longest[0] = max(longest[0], int(positions.max()) + 1)
        return turned(x, positions, ch.Rotary(WIDTH, scaling=Dynamic(2.0, 1_024), length=longest[0]))

    return function


def counting_calls():
    calls = iter(range(1_000))
    return lambda x, positions: turned(x, positions + next(calls))


def whole_only(x, positions):
    if positions.dtype.kind == "f":
        raise TypeError("positions must be whole")
    return turned(x, positions, TURNS)


NOT = {
    "nothing": (lambda x, _: x, "It ignores positions"),
    "one angle for all": (lambda x, p: turned(x, np.full(len(p), 5)), "It ignores positions"),
    "sum of rows": (lambda x, p: np.cumsum(turned(x, p), axis=0), "depends on the values of other rows"),
    "a row into the next": (shifted, "depends on the values of other rows"),
    "the mean taken away": (lambda x, p: turned(x, p) - x.mean(axis=0), "depends on the values of other rows"),
    "sorted positions": (lambda x, p: turned(x, np.sort(p)), "depends on the order of the rows"),
    "positions backward": (lambda x, p: turned(x, p[::-1]), "depends on the order of the rows"),
    "state that each call changes": (counting_calls(), "A repeated call returns a different result"),
    "not a number": (lambda x, p: turned(x, p) * np.nan, "not finite"),
    "normalised": (
        lambda x, p: turned(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6), p),
        "not linear in x",
    ),
    "decay": (lambda x, p: x * np.exp(-0.01 * p)[:, None].astype(x.dtype), "each is multiplied by a separate factor"),
    "signs changed": (lambda x, p: -turned(x, p), "changes signs"),
    "channels backward": (lambda x, p: turned(x, p)[:, ::-1], "dimension 0 of its output is dimension 31 of its input"),
    "one pair backward": (one_pair_backward, r"some backward: pair (3, 19) rotates against the others"),
    "the middle of a head": (middle, "8 pairs of the dimensions 8 to 23"),
    "half of the positions": (lambda x, p: turned(x, p // 2), "already at position 2 not as RoPE"),
    "groups of positions": (lambda x, p: turned(x, p // 4 * 4), "already at position 4 not"),
    "a table added as well": (lambda x, p: ch.add(turned(x, p), ch.Sinusoidal(WIDTH), p), "two encodings in one"),
    "random matrices": (
        lambda x, p: np.stack([row @ np.random.default_rng(at).standard_normal((WIDTH, WIDTH)) for row, at in
                               zip(x, p, strict=True)]),
        "dimension 0 is mixed with 31 others",
    ),
    "the largest of the call": (lambda x, p: turned(x, p / (p.max() + 1)), "other positions of its call (the largest)"),
    "from the last of the call": (lambda x, p: turned(x, p - p[-1]), "other positions of its call (the last)"),
    "from the middle of the call": (lambda x, p: turned(x, p - p.mean()), "other positions of its call (the others)"),
    "squares": (lambda x, p: turned(x * np.abs(x), p), "not linear in x"),
    "lengths that grow": (
        lambda x, p: turned(x, p) * (1 + 0.001 * p[:, None]),
        "changes their lengths with the position",
    ),
}  # fmt: skip


def test_what_is_no_code_of_positions_is_said_to_be_none(cases):
    for name, (function, words) in NOT.items():
        with cases(name):
            found = identify_function(function, WIDTH)
            assert not found
            assert words in found.reason
            by_others = "other positions of its call" in words
            assert found.reason.endswith("With the same positions in a call it is linear in x." if by_others else ".")


STILL = {
    "from the first of the call": (lambda x, p: turned(x, p - p[0]), "counts positions from the first of each call"),
    "from the smallest of the call": (lambda x, p: turned(x, p - p.min()), "from the smallest of each call"),
    "its rows": (lambda x, _: turned(x, np.arange(len(x))), "counts its rows from 0"),
    "its rows, from one": (lambda x, _: turned(x, np.arange(1, len(x) + 1)), "Position p is rotated as p + 1"),
    "from one": (lambda x, p: turned(x, p + 1), "Position p is rotated as p + 1"),
    "from minus 7.5": (lambda x, p: turned(x, p - 7.5), "Position p is rotated as p - 7.5"),
    "a table that ends": (lambda x, p: turned(x, np.arange(100)[p]), "positions up to 99 only"),
    "a table whose last row stays": (
        lambda x, p: turned(x, np.minimum(p, 2_047)),
        "positions beyond 2,047 are treated as that one",
    ),
    "a table that starts again": (lambda x, p: turned(x, p % 3_000), "From position 3,000 on it is off"),
    "changing x": (changing_x, "It changes its own arguments: x."),
    "changing positions": (changing_positions, "It changes its own arguments: positions."),
    "few rows in a call": (lambda x, p: turned(x, p) if len(x) <= 64 else x[:, None], "It is a rotation"),
    "in double precision": (lambda x, p: turned(x.astype(np.float64), p), "It is a rotation"),
}


def test_a_rotation_with_ways_of_its_own_is_still_identified(cases):
    for name, (function, words) in STILL.items():
        with cases(name):
            found = identify_function(function, WIDTH)
            assert found[0].spec == SPEC
            assert words in found.reason


LENGTHS = {
    64: lambda x, p: turned(x, p if len(p) <= 64 else p / 2),
    1_500: lambda x, p: turned(x, np.arange(len(p)) * (1_500 / max(1_500, len(p)))),
    2_048: lambda x, p: turned(x, p * (2_048 / max(2_048, len(p)))),
    3_000: lambda x, p: ch.add(x, ch.Sinusoidal(WIDTH), p * (3_000 / max(3_000, len(p)))),
}


def test_long_calls_that_are_another_code_are_seen(cases):
    for rows, function in LENGTHS.items():
        with cases(rows):
            found = identify_function(function, WIDTH)
            assert found[0].name in ("llama2", "vaswani2017")
            assert f"how many rows its call has: up to {rows:,} it is one code" in found.reason
            assert dict(found[0].evidence)["last_length_alike"] == rows
            assert found[0].confidence <= 0.51
            assert found[0].error > 1


def changing_after(calls, then):
    asked = iter(range(10_000))
    return lambda x, p: turned(x, p) if next(asked) < calls else then(x, p)


FASTER, REVERSED, ONE_ON = "faster", "reversed", "one on"
CHANGES = {
    FASTER: lambda x, p: turned(x, 2 * p),
    REVERSED: lambda x, p: turned(x[:, ::-1], p),
    ONE_ON: lambda x, p: turned(x, p + 1),
}
WHEN = list(itertools.product(range(2, 36), (FASTER, REVERSED)))


@pytest.mark.parametrize("number", [22, pytest.param(len(WHEN), marks=pytest.mark.slow)])
def test_state_that_changes_on_the_way_is_said_to_be_state(number, cases, draw):
    """Whenever it changes: what is said of positions beyond a table is not looked for before position 0."""
    for calls, name in [(30, ONE_ON), *draw(WHEN, number)]:
        then = CHANGES[name]
        with cases(calls, name):
            reason = identify_function(changing_after(calls, then), WIDTH).reason
            assert "It is stateful" in reason or "A repeated call returns a different result" in reason
    # So is a ladder that stays at the longest call.
    assert "It is stateful" in identify_function(growing(), WIDTH).reason


def test_a_function_that_ends_python_is_one_that_raises(cases):
    """SystemExit is not an Exception, and no more is what a panic of Rust raises."""
    for error in (SystemExit(3), BaseException("panic"), RuntimeError("no such thing")):

        def function(x, positions, error=error):
            if 97 in positions:
                raise error
            return turned(x, positions)

        sentence = rf"failed for other rows or positions: {type(error).__name__}: {error}"
        with cases(error), pytest.raises(InvalidValue, match=sentence):
            identify_function(function, WIDTH)

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        identify_function(interrupted, WIDTH)


@pytest.mark.parametrize("last", [5_000, 65_537, 100_001])
def test_the_first_position_that_is_wrong_is_found_between_those_asked(last):
    """A table that ends far away; of the positions there only some are asked."""
    for function in (
        lambda x, p: turned(x, np.where(p > last, p + 1, p)),
        lambda x, p: ch.add(x, ch.Sinusoidal(WIDTH), np.where(p > last, p + 1, p)),
    ):
        found = identify_function(function, WIDTH)
        evidence = dict(found[0].evidence)
        assert evidence["first_wrong_position"] == last + 1
        assert f"{last + 1:,}" in found.reason
        assert evidence["calls"] < 60


def test_scaling_by_the_largest_position_is_told():
    """Also of a function that keeps the ladder of the first long call until a short one comes."""
    kept = []

    def function(x, positions):
        length = int(positions.max()) + 1
        kept[:] = [*kept, length][:1] if length > 2_000 else []
        return turned(x, positions, ch.Rotary(WIDTH, scaling=Dynamic(4.0, 2_000), length=[length, *kept][-1]))

    found = identify_function(function, WIDTH)
    assert found[0].spec == ch.Rotary(WIDTH, scaling=Dynamic(4.0, 2_000))
    assert found[0].error < 1e-6
    assert "Up to position 1,999 of a call" in found.reason


def test_scaling_by_the_largest_position_is_told_of_rates_in_float32():
    """The rates beyond are off by what float32 rounds, and are those of the scaling all the same."""

    def function(x, positions):
        grown = np.float32(max(1.0, 4.0 * (positions.max() + 1) / 2_000 - 3.0))
        base = np.float32(10_000) * grown ** np.float32(WIDTH / (WIDTH - 2))
        rates = 1 / base ** (np.arange(0, WIDTH, 2, dtype=np.float32) / np.float32(WIDTH))
        return by_float_waves(x, positions.astype(np.float32)[:, None] * rates)

    found = identify_function(function, WIDTH)
    assert dict(found[0].evidence)["rates_in"] == "float32"
    assert found[0].spec == ch.Rotary(WIDTH, scaling=Dynamic(4.0, 2_000))


def test_two_lists_of_divisors_are_told():
    short = tuple(1 + 0.01 * pair for pair in range(16))
    long = tuple(1 + 0.75 * pair for pair in range(16))
    spec = ch.Rotary(WIDTH, scaling=LongRope(short, long, 4_096, 32.0))

    def function(x, positions):
        return turned(x, positions, ch.specs.with_fields(spec, length=int(positions.max()) + 1))

    found = identify_function(function, WIDTH)
    scaling = found[0].spec.scaling
    assert scaling.short == pytest.approx(short, rel=1e-9)
    assert scaling.long == pytest.approx(long, rel=1e-9)
    assert (scaling.original, scaling.factor) == (4_096, 32.0)
    assert found[0].error < 1e-6


def test_whole_turns_per_token_follow_from_the_slow_hands(cases):
    for function in (whole_only, lambda x, p: turned(x, p.astype(int), TURNS)):
        with cases(function):
            found = identify_function(function, WIDTH)
            assert found[0].spec == TURNS
            assert "cannot show whole rotations per token" in found.reason


def test_a_table_of_few_bits_is_seen(cases):
    for dtype, unit in ((ml_dtypes.bfloat16, 2.0**-9), (np.float16, 2.0**-12)):
        with cases(dtype, unit):
            found = identify_function(
                lambda x, p, dtype=dtype: by_float_waves(x, p[:, None] * np.array(SPEC.rates), dtype), WIDTH
            )
            name = np.dtype(dtype).name
            assert found[0].spec == SPEC
            assert dict(found[0].evidence)["table_in"] == name
            assert f"Cosine and sine are rounded to {name}." in found.reason
            assert unit / 2 < found[0].error < 8 * unit


def test_blocks_have_ladders_of_their_own():
    spec = ch.Rotary(WIDTH, spacing=Joined(((8, Geometric(100.0)), (8, Geometric(1_000.0)))), blocks=(8, 8))
    assert identify_function(functools.partial(turned, spec=spec), WIDTH)[0].spec == spec


def test_rates_of_no_rule_and_few_pairs():
    rates = tuple(float(rate) for rate in np.sort(np.random.default_rng(1).uniform(0, 1, 16)))
    match = identify_function(functools.partial(turned, spec=ch.Rotary(WIDTH, spacing=Explicit(rates))), WIDTH)[0]
    assert isinstance(match.spec.spacing, Explicit)
    assert match.spec.rates == pytest.approx(rates, abs=1e-11)
    for rotated in (2, 4):
        spec = ch.Rotary(WIDTH, rotated=rotated)
        assert identify_function(functools.partial(turned, spec=spec), WIDTH)[0].spec.rates == spec.rates


def test_what_several_specs_say_is_listed():
    """Base 100 over a rotated half is base 10,000 over the head."""
    spec = ch.Rotary(WIDTH, rotated=16, spacing=Geometric(span=16.0))
    match = identify_function(functools.partial(turned, spec=spec), WIDTH)[0]
    assert match.spec == spec
    assert ch.Rotary(WIDTH, rotated=16, base=100.0) in match.equivalents


def test_a_factor_on_the_result_is_an_attention_factor():
    match = identify_function(lambda x, p: 2 * turned(x, p), WIDTH)[0]
    assert match.spec.attention_factor == 2
    assert match.spec.rates == SPEC.rates


# --- calling ---------------------------------------------------------------------------------------------------

MISUSED = {
    "another shape": (lambda x, p: turned(x, p)[None], r"shape \[1, 3, 32\] for x of shape \[3, 32\]"),
    "a list": (lambda x, p: turned(x, p).tolist(), "it returned list, not an array"),
    "a pair": (lambda x, p: (turned(x, p), x), "it returned tuple"),
    "whole numbers": (lambda x, p: turned(x, p).astype(int), "it returned int64, not floats"),
    "three arguments": (lambda x, p, mask: x + p + mask, "missing 1 required positional argument: 'mask'"),
    "an error": (lambda *_: {}[0], "KeyError: 0"),
    "sixteen rows only": (lambda x, _: x if len(x) == 16 else x[:0], r"shape \[0, 32\]"),
}


def test_what_cannot_be_called_is_refused_with_what_it_said(cases):
    for name, (function, words) in MISUSED.items():
        with cases(name):
            with pytest.raises(InvalidValue, match=words) as caught:
                identify_function(function, WIDTH, backend="numpy")
            assert "Wrap it" in caught.value.hint


def test_what_every_library_hears_is_told_once():
    def function(*_):
        raise RuntimeError("no luck")

    libraries = calling.likely_libraries(function)  # those that are there
    with pytest.raises(InvalidValue, match="RuntimeError: no luck") as caught:
        identify_function(function, WIDTH)
    assert caught.value.message.count("no luck") == 1
    assert f"with arrays of {' and '.join(libraries)}: RuntimeError" in caught.value.message


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_dtype_that_is_taken_is_named(dtype):
    def function(x, positions):
        if str(x.dtype).removeprefix("torch.") != dtype:
            raise TypeError(f"only {dtype}")
        return turned(x, positions)

    with pytest.raises(InvalidValue, match=f"TypeError: only {dtype}") as caught:
        identify_function(function, WIDTH)
    assert f'say dtype="{dtype}"' in caught.value.hint
    assert identify_function(function, WIDTH, dtype=dtype)[0].name == "llama2"


def test_arguments_are_checked(cases):
    for arguments, options, error, sentence in (
        ((turned,), {}, InvalidValue, "`width` must be given"),
        ((turned, WIDTH), {"backend": "tensorflow"}, InvalidValue, "`backend` must be one of numpy, torch, jax"),
        ((turned, WIDTH), {"dtype": "int8"}, InvalidValue, "`dtype` must be one of float32"),
        ((turned, WIDTH), {"longest": 1}, InvalidValue, "`longest` must be at least 4"),
        ((3, WIDTH), {}, InvalidType, "Expected a function"),
    ):
        with cases(sentence), pytest.raises(error, match=sentence):
            identify_function(*arguments, **options)


def test_longest_is_kept_to_and_calls_and_rows_are_counted():
    seen = []

    def function(x, positions):
        seen.append((len(x), positions.max()))
        return turned(x, positions)

    assert identify_function(function, WIDTH, longest=1_000)[0].spec == SPEC
    assert 900 < max(last for _, last in seen) <= 1_023
    seen.clear()
    evidence = dict(identify_function(function, WIDTH)[0].evidence)
    assert (evidence["calls"], evidence["rows"]) == (len(seen), sum(rows for rows, _ in seen))
    assert evidence["calls"] < 80
    assert evidence["rows"] < 12_000


def test_nothing_global_changes():
    settings, shown = np.geterr(), np.get_printoptions()
    libraries = set(sys.modules) & {"torch", "jax"}
    identify_function(turned, WIDTH)
    assert (np.geterr(), np.get_printoptions()) == (settings, shown)
    assert set(sys.modules) & {"torch", "jax"} == libraries


def test_functions_of_every_library(backend):
    """In the arrays of each, found without being told; positions come as whole numbers of the library's own."""
    spec = ch.Rotary(WIDTH, "interleaved", base=500_000.0, scaling=Linear(4.0))
    kinds = set()

    def function(x, positions):
        kinds.add((type(x).__module__.partition(".")[0], str(positions.dtype).removeprefix("torch.")))
        if library_of(x) not in (backend.name, "jaxlib" if backend.name == "jax" else None):
            raise TypeError(f"not an array of {backend.name}")
        return rotate(x, spec, positions)

    match = identify_function(function, WIDTH)[0]
    assert match.spec == spec
    assert dict(match.evidence)["library"] == backend.name
    assert {"numpy": "int64", "torch": "int64", "jax": "int32"}[backend.name] in {dtype for _, dtype in kinds}
    other = "numpy" if backend.name == "torch" else "torch"
    pytest.importorskip(other)
    with pytest.raises(InvalidValue, match=f"with arrays of {other}: TypeError: not an array of {backend.name}"):
        identify_function(function, WIDTH, backend=other)


def test_a_library_that_is_not_installed_is_refused_in_words(monkeypatch):
    monkeypatch.setattr("clockhands.recognition._functions_calling.find_spec", lambda _name: None)
    with pytest.raises(InvalidValue, match="`backend` is torch, which is not installed"):
        identify_function(lambda x, _positions: x, WIDTH, backend="torch")


class Turner:
    def turn(self, x, positions):
        return turned(x, positions)

    __call__ = turn


def by_hand(library, x, positions, rates):
    """Halves turned by the functions of a library of arrays."""
    phases, half = positions[:, None] * rates, x.shape[-1] // 2
    a, b, cosine, sine = x[:, :half], x[:, half:], library.cos(phases), library.sin(phases)
    return library.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)


def test_objects_methods_and_partial_functions():
    for function in (Turner(), Turner().turn, functools.partial(turned, spec=SPEC)):
        assert identify_function(function, WIDTH)[0].spec == SPEC


@pytest.mark.slow
def test_a_function_that_jax_compiles():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    function = jax.jit(lambda x, p: by_hand(jax.numpy, x, p, jax.numpy.asarray(SPEC.rates)))
    match = identify_function(function, WIDTH, longest=4_096)[0]
    assert (match.spec, dict(match.evidence)["library"]) == (SPEC, "jax")
    assert jax.config.jax_enable_x64 == before
    with pytest.raises(InvalidValue, match="it returned an array of jax"):
        identify_function(function, WIDTH, backend="numpy")
