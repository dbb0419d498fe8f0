"""What cannot be used is refused in words: the message says what was given and allowed, the hint what to do."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.biases import (
    Alibi,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Window,
    row_numbers,
)
from clockhands.errors import InvalidType, InvalidValue

P = np.array([1.0, 2.0])

REFUSED = [
    (lambda: Alibi(0), "`heads` must be at least 1, got 0."),
    (lambda: Alibi(2.5), "`heads` must be a whole number, got 2.5."),
    (
        lambda: Alibi(8, "keys"),
        '`form` must be one of "distance", "past", "symmetric", "key", "last-key", got \'keys\'.\n'
        "hint: It says what the slope is multiplied by.",
    ),
    (
        lambda: Alibi(8, series="paper"),
        '`series` must be one of "powers", "plain", got \'paper\'.\n'
        "hint: They differ where `heads` is no power of two.",
    ),
    (lambda: Alibi(8, octaves=0), "`octaves` must be finite and positive, got 0."),
    (lambda: Decay(4, first=0), "`first` must be at least 1, got 0."),
    (lambda: Buckets(8, 2), "`buckets` must be at least 4, got 2."),
    (
        lambda: Buckets(8, 33),
        "`buckets` must be even, because half of them are for each direction, got 33.\nhint: Use an even number.",
    ),
    (
        lambda: Buckets(8, 32, 8),
        "`max_distance` must be above 8, the number of distances with a bucket each, got 8.\n"
        "hint: Use fewer buckets or a larger distance.",
    ),
    (
        lambda: Buckets(8, bidirectional=1),
        "`bidirectional` must be True or False, got 1.\nhint: It selects whether keys after the query have separate "
        "buckets.",
    ),
    (lambda: Buckets(8, epsilon=-1.0), "`epsilon` must be finite and not negative, got -1."),
    (lambda: Buckets(8, scale=float("nan")), "`scale` must be finite and positive, got nan."),
    (
        lambda: CeilingBuckets(8, 8, 5),
        "`max_distance` must be above 5, got 5.\nhint: Use a smaller `span` or a larger `max_distance`: "
        "half of `span` is for distances with a bucket each.",
    ),
    (lambda: Clipped(8, 0), "`span` must be at least 1, got 0."),
    (lambda: Kerple(8, "exponential"), '`kernel` must be one of "log", "power", got \'exponential\'.'),
    (lambda: Kerple(8, symmetric="yes"), "`symmetric` must be True or False, got 'yes'."),
    (lambda: Fire(8, hidden=0), "`hidden` must be at least 1, got 0."),
    (lambda: Fire(8, epsilon=0), "`epsilon` must be finite and positive, got 0."),
    (lambda: Window(3, 0, 7), "`height` must be at least 1, got 0."),
    (lambda: Window(3, 7, 7, class_token=None), "`class_token` must be True or False, got None."),
    (
        lambda: LogWindow(3, 8, 8, 12),
        "`trained` must be (height, width) or None, got 12.\n"
        "hint: It is the window size that the model was trained with.",
    ),
    (lambda: LogWindow(3, 8, 8, (1, 8)), "`trained` must be at least 2, got 1."),
    # --- the call ---
    (
        lambda: ch.bias("bloom", 1, 2),
        "`bias` takes a bias, got the string 'bloom'.\nhint: Write clockhands.preset('bloom').",
    ),
    (
        lambda: ch.bias(ch.Sinusoidal(8), 1, 2),
        "`bias` takes a bias, got Sinusoidal.\nhint: Biases are Alibi, Buckets and those of clockhands.biases.",
    ),
    (
        lambda: row_numbers(Alibi(8), 1, 2),
        "`row_numbers` takes a bias with a learned table, got Alibi.\n"
        "hint: These are Buckets, CeilingBuckets, Clipped, Window and LogWindow.",
    ),
    (
        lambda: ch.bias(Alibi(8), 5, 3),
        "A count of `queries` means the last key positions, so it must be 0 to 3; got 5.\n"
        "hint: Give the positions of the queries as a range or an array.",
    ),
    (lambda: ch.bias(Alibi(8), -1, 3), "`queries` must be at least 0, got -1."),
    (lambda: ch.bias(Alibi(8), 1, True), "`keys` must be numbers, got the boolean True."),
    (lambda: ch.bias(Alibi(8), [2**63 + 1], 3), "`queries` must be from -2**63 to 2**63, got 9223372036854775809."),
    (
        lambda: ch.bias(Alibi(8), np.zeros((2, 2, 2)), 3),
        "`queries` must be of shape [queries] or [batch, queries], got [2, 2, 2].\n"
        "hint: Give a count, a range, or an array of one or two axes.",
    ),
    (
        lambda: ch.bias(Alibi(8), np.zeros((2, 3)), np.zeros((4, 3))),
        "`queries` and `keys` must have the same batch size, got 2 and 4.\n"
        "hint: Give both as [seq], or as [batch, seq] with the same batch size.",
    ),
    (lambda: ch.bias(Alibi(8), 1, 2, dtype="int32"), "`dtype` must be one of float64, float32, float16, bfloat16"),
    (
        lambda: ch.bias(Alibi(8), 1, 2, causal="no"),
        "`causal` must be True or False, got 'no'.\nhint: It says whether keys after the query get minus infinity.",
    ),
    (
        lambda: ch.bias(Window(3, 7, 7), 49, 49, values=np.zeros((169, 3)), causal=True),
        "Window is for tokens on a plane, where no token comes before another, so it has no causal form.\n"
        "hint: Leave `causal` out.",
    ),
    (
        lambda: ch.bias(Alibi(8, "key"), 1, 10**6, dtype="float16"),
        "A bias with the absolute value 5e+05 is too large for float16.\nhint: Use float32, or bfloat16.",
    ),
    # --- learned numbers ---
    (
        lambda: ch.bias(Alibi(8), 1, 2, values=P),
        "Alibi is computed by a formula, so it takes no values.\nhint: Leave `values` out.",
    ),
    (
        lambda: ch.bias(Buckets(8), 1, 2),
        "Buckets has learned numbers, but they were not given.\nhint: Pass them as values=: table [32, 8].",
    ),
    (
        lambda: ch.bias(Buckets(8), 1, 2, values=np.zeros((8, 32))),
        "`table` of `values` must be of shape [32, 8], got [8, 32].\nhint: Buckets takes table [32, 8].",
    ),
    (
        lambda: ch.bias(Kerple(2), 1, 2, values=P),
        "`values` of Kerple must be a dict of arrays, got ndarray.\nhint: Pass p [2]; a [2].",
    ),
    (
        lambda: ch.bias(Kerple(2), 1, 2, values={"p": P, "b": P}),
        "`values` of Kerple must contain p [2]; a [2], and nothing else; got ['p', 'b'].\n"
        "hint: Pass a dict with these names.",
    ),
    (
        lambda: ch.bias(Kerple(2), 1, 2, values={"p": P, "a": np.array(["x", "y"])}),
        "`values` must be numbers, got `a` of dtype <U1.\nhint: Pass float arrays.",
    ),
    (
        lambda: ch.bias(Kerple(2), 1, 2, values={"p": P, "a": [0.0, 1.0]}),
        "`a` of a log kernel must be finite and above 0, got 0.\nhint: Clamp the learned values before you pass them; "
        "implementations clamp them before each use.",
    ),
    (
        lambda: ch.bias(Kerple(2, "power"), 1, 2, values={"p": P + 0.5, "a": P}),
        "`p` of a power kernel must be above 0 and at most 2, got 2.5.",
    ),
    # --- positions that have no number ---
    (
        lambda: row_numbers(Buckets(8), [0.5], 3),
        "Buckets has rows for whole distances only, got 0.5.\nhint: Give positions as whole numbers.",
    ),
    (lambda: row_numbers(Clipped(8), [0.5], [0.5]), "Clipped has rows for whole distances only, got real positions."),
    (
        lambda: row_numbers(Window(3, 4, 5), 20, 21),
        "A window of 4 x 5 has the positions 0 to 19, got 20.\nhint: They are token numbers, row by row.",
    ),
    (
        lambda: row_numbers(Window(3, 4, 5, True), 1, [-1, 3]),
        "A window of 4 x 5 has the positions 0 to 20, got -1.\n"
        "hint: They are token numbers, row by row after the class token.",
    ),
    (lambda: row_numbers(Window(3, 4, 5), [1.5], 3), "0 to 19, got 1 and a fraction."),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_refused_in_words(call, message):
    with pytest.raises((InvalidValue, InvalidType)) as refusal:
        call()
    assert message in str(refusal.value)
    assert refusal.value.hint


def test_mixed_libraries_are_refused():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    with pytest.raises(InvalidType, match=r"`values` must be arrays of one library, got .*jax.*, torch.Tensor"):
        ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2), "a": jnp.ones(2)})
    # NumPy's go with either.
    made = ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2), "a": np.ones(2)})
    assert isinstance(made, torch.Tensor)


def test_whole_numbers_of_torch_are_numbers_and_booleans_are_not():
    torch = pytest.importorskip("torch")
    assert ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2, dtype=torch.int64), "a": torch.ones(2)}).shape == (
        2,
        1,
        2,
    )
    with pytest.raises(InvalidType, match="got `p` of dtype bool"):
        ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2, dtype=torch.bool), "a": torch.ones(2)})


def test_a_library_without_a_dtype_says_so():
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(InvalidValue, match=r"computed array_api_strict.float64, but bfloat16 was requested"):
        ch.bias(Kerple(2), 1, 2, values={"p": strict.ones(2), "a": strict.ones(2)}, dtype="bfloat16")


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_jax_without_64_bits_says_so():
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(InvalidValue, match="computed float32, but float64 was requested"):
        ch.bias(Kerple(2), 1, 2, values={"p": jnp.ones(2), "a": jnp.ones(2)}, dtype="float64")


def test_row_numbers_inside_a_trace_are_refused():
    jax = pytest.importorskip("jax")
    with pytest.raises(InvalidType, match="`queries` must be concrete numbers"):
        jax.jit(lambda at: row_numbers(Buckets(2), at, 9))(jax.numpy.arange(3))
