"""What cannot be used is refused in words: the message says what was given and allowed, the hint what to do."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Buckets, Kerple, row_numbers
from clockhands.errors import InvalidType, InvalidValue
from late import Late
from oracles import sentences

jax, jnp, torch = Late("jax"), Late("jax.numpy"), Late("torch")


def test_refused_in_words(cases):
    sentences.hold("biases", cases)


def test_mixed_libraries_are_refused():
    with pytest.raises(InvalidType, match=r"`values` must be arrays of one library, got .*jax.*, torch.Tensor"):
        ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2), "a": jnp.ones(2)})
    # NumPy's go with either.
    made = ch.bias(Kerple(2), 1, 2, values={"p": torch.ones(2), "a": np.ones(2)})
    assert isinstance(made, torch.Tensor)


def test_whole_numbers_of_torch_are_numbers_and_booleans_are_not():
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
    with pytest.raises(InvalidValue, match="computed float32, but float64 was requested"):
        ch.bias(Kerple(2), 1, 2, values={"p": jnp.ones(2), "a": jnp.ones(2)}, dtype="float64")


def test_row_numbers_inside_a_trace_are_refused():
    with pytest.raises(InvalidType, match="`queries` must be concrete numbers"):
        jax.jit(lambda at: row_numbers(Buckets(2), at, 9))(jax.numpy.arange(3))
