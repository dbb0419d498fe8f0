"""Adding codes to tokens of any library: shapes, dtypes, gradients, tracing."""

import re

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidType, InvalidValue
from late import Late, jax_with_64_bits
from oracles import sentences
from oracles.rows import every

jax, jnp, torch = Late("jax"), Late("jax.numpy"), Late("torch")

SPEC = ch.Sinusoidal(6)
DTYPES = ("float64", "float32", "float16", "bfloat16")
VALUES = np.random.default_rng(8).standard_normal((9, 6))


def tokens(*shape):
    return np.random.default_rng(7).standard_normal(shape)


def has(backend, dtype):
    """Whether the library has this dtype here: JAX has no float64 unless told so."""
    return backend.name != "jax" or dtype != "float64"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_rounded_once_to_the_dtype_of_x(backend, dtype):
    if not has(backend, dtype):
        with pytest.warns(UserWarning, match="float64"):
            assert backend.asarray([1.0], dtype).dtype == backend.dtype("float32")
        return
    x = tokens(3, 5, 6).astype(dtype)
    work = np.float64 if dtype == "float64" else np.float32
    code = ch.table(SPEC, range(10**15, 10**15 + 5), work)
    wanted = (x.astype(work) + code).astype(x.dtype)
    given = backend.asarray(x if dtype != "bfloat16" else x.astype(np.float32), dtype)
    got = ch.add(given, SPEC, range(10**15, 10**15 + 5))
    assert type(got) is type(given)
    assert got.dtype == given.dtype
    assert np.array_equal(np.asarray(backend.to_numpy(got), np.float64), wanted.astype(np.float64))


SHAPES = [(1, 5, 6), (3, 5, 6), (5, 5, 6), (3, 2, 5, 6), (5, 5, 5, 6), (2, 1, 3, 5, 6)]


@every("shape", [(5, 6), *SHAPES], drawn={"jax": 2})
def test_positions_of_a_sequence_are_broadcast_over_every_other_axis(backend, shape):
    x = tokens(*shape).astype(np.float32)
    at = [7, 0, -3, 2.5, 10**12]
    got = backend.to_numpy(ch.add(backend.asarray(x), SPEC, at))
    assert np.array_equal(got, x + ch.table(SPEC, at))
    assert np.array_equal(backend.to_numpy(ch.add(backend.asarray(x), SPEC)), x + ch.table(SPEC, 5))


@every("shape", SHAPES, drawn={"jax": 2})
@every("one", [False, True])
def test_positions_of_a_batch_belong_to_axis_0(backend, shape, one):
    x = tokens(*shape).astype(np.float32)
    at = np.arange(5 * (1 if one else shape[0])).reshape(-1, 5) ** 2
    got = backend.to_numpy(ch.add(backend.asarray(x), SPEC, at))
    for batch in range(shape[0]):
        assert np.array_equal(got[batch], x[batch] + ch.table(SPEC, at[0 if one else batch]))


def test_positions_come_in_anything(backend):
    x = backend.asarray(tokens(2, 5, 6).astype(np.float32))
    wanted = backend.to_numpy(ch.add(x, SPEC))
    for at in (range(5), [0, 1, 2, 3, 4], np.arange(5), backend.asarray(np.arange(5), "int32"), [[0, 1, 2, 3, 4]]):
        assert np.array_equal(backend.to_numpy(ch.add(x, SPEC, at)), wanted)


def test_empty_tokens(backend):
    for shape in ((0, 6), (0, 5, 6), (2, 0, 6)):
        x = backend.asarray(np.zeros(shape, np.float32))
        assert tuple(ch.add(x, SPEC).shape) == shape
    x = backend.asarray(np.zeros((0, 5, 6), np.float32))
    assert tuple(ch.add(x, SPEC, np.zeros((1, 5))).shape) == (0, 5, 6)
    assert tuple(ch.add(x, SPEC, np.zeros((0, 5))).shape) == (0, 5, 6)


def test_x_stays_as_it_is(backend):
    x = tokens(2, 5, 6).astype(np.float32)
    given = backend.asarray(x)
    got = ch.add(given, SPEC)
    assert np.array_equal(backend.to_numpy(given), x)
    assert got is not given
    if backend.name != "jax":
        got[...] = 0
        assert np.array_equal(backend.to_numpy(given), x)
    nothing = ch.add(given, ch.NoPosition(6))
    assert nothing is not given


def test_x_may_be_a_view_or_read_only():
    x = np.asfortranarray(tokens(5, 6))
    x.flags.writeable = False
    assert np.array_equal(ch.add(x, SPEC), x + ch.table(SPEC, 5, "float64"))
    wide = tokens(5, 12)[:, ::2]
    assert np.array_equal(ch.add(wide, SPEC), wide + ch.table(SPEC, 5, "float64"))


# --- learned values --------------------------------------------------------------------------------------------


def test_learned_rows_are_added(backend):
    x, spec = tokens(2, 5, 6).astype(np.float32), ch.Learned(6, rows=9, offset=2)
    values = VALUES.astype(np.float32)
    at = [[0, 1, 2, 3, 4], [6, 5, 4, 3, 2]]
    for given in (values, values.tolist(), backend.asarray(values)):
        got = ch.add(backend.asarray(x), spec, at, values=given)
        assert np.array_equal(backend.to_numpy(got), x + values[np.array(at) + 2])
    assert np.array_equal(backend.to_numpy(ch.add(backend.asarray(x), spec, values=values)), x + values[2:7])


def test_learned_rows_of_another_dtype(backend):
    x, values = tokens(5, 6).astype(np.float32), VALUES.astype(np.float16)
    got = ch.add(backend.asarray(x), ch.Learned(6, 9), values=backend.asarray(values))
    assert got.dtype == backend.dtype("float32")
    assert np.array_equal(backend.to_numpy(got), x + values[:5].astype(np.float32))


# --- gradients and tracing -------------------------------------------------------------------------------------


def test_gradients_reach_torch_tokens_and_values():
    x = torch.zeros(2, 3, 6, requires_grad=True)
    values = torch.zeros(9, 6, requires_grad=True)
    ch.add(x, SPEC).sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 3, 6))
    weights = torch.arange(36.0).reshape(2, 3, 6)
    x.grad = None
    (ch.add(x, ch.Learned(6, 9, 2), [0, 4, 0], values=values) * weights).sum().backward()
    assert torch.equal(x.grad, weights)
    wanted = torch.zeros(9, 6)
    wanted[2], wanted[6] = (weights[:, 0] + weights[:, 2]).sum(0), weights[:, 1].sum(0)
    assert torch.equal(values.grad, wanted)
    # Tokens that need no gradient, in a dtype of fewer bits.
    half = ch.add(torch.zeros(3, 6, dtype=torch.bfloat16), ch.Learned(6, 9), values=values)
    assert half.requires_grad
    assert half.dtype == torch.bfloat16


def test_jax_traces_tokens_where_positions_are_known():
    x = tokens(2, 5, 6).astype(np.float32)
    at = range(2**40, 2**40 + 5)  # integers that JAX without 64 bits cannot hold never reach it
    assert not jax.config.jax_enable_x64
    wanted = x + ch.table(SPEC, at)
    assert np.array_equal(jax.jit(lambda x: ch.add(x, SPEC, at))(x), wanted)
    assert np.array_equal(jax.vmap(lambda x: ch.add(x, SPEC, at))(jnp.asarray(x)), wanted)
    static = jax.jit(ch.add, static_argnums=1)
    assert np.array_equal(static(x, SPEC), x + ch.table(SPEC, 5))
    other = ch.Sinusoidal(6, base=50.0)
    assert np.array_equal(static(x, other), x + ch.table(other, 5))


def test_jax_with_64_bits():
    with jax_with_64_bits(True):
        x = jnp.asarray(tokens(5, 6))
        assert x.dtype == jnp.float64
        got = ch.add(x, SPEC, range(2**40, 2**40 + 5))
        assert got.dtype == jnp.float64
        assert np.array_equal(got, np.asarray(x) + ch.table(SPEC, range(2**40, 2**40 + 5), "float64"))


def test_torch_devices_are_kept():
    got = ch.add(torch.zeros(2, 5, 6, device="meta", dtype=torch.float16), SPEC)
    assert got.device.type == "meta"
    assert got.dtype == torch.float16
    assert tuple(got.shape) == (2, 5, 6)
    values = torch.zeros(9, 6, device="meta")
    got = ch.add(torch.zeros(5, 6, device="meta"), ch.Learned(6, 9), values=values)
    assert got.device.type == "meta"


# --- errors ----------------------------------------------------------------------------------------------------

X = np.zeros((3, 5, 6), np.float32)
LEARNED = ch.Learned(6, 9)


def positions_of_shape(at, x):
    allowed = f"[{x[-2]}]" if len(x) < 3 else f"[{x[-2]}] or [{x[0]}, {x[-2]}]"
    return f"`positions` must be of shape {allowed} for x of shape {list(x)}, got {list(at)}."


def test_what_cannot_be_added_is_refused_in_words(cases):
    sentences.hold("add", cases)


def test_shapes_are_refused_alike_everywhere(backend):
    with pytest.raises(InvalidValue, match=re.escape(positions_of_shape((2, 5), (3, 2, 5, 6)))):
        ch.add(backend.asarray(np.zeros((3, 2, 5, 6), np.float32)), SPEC, np.zeros((2, 5)))
    with pytest.raises(InvalidType, match=r"^`x` must be of a float dtype, got int32\."):
        ch.add(backend.asarray(np.zeros((5, 6)), "int32"), SPEC)
    if backend.name != "numpy":
        with pytest.raises(InvalidValue, match=r"^`values` must be of shape \[9, 6\], got \[5, 6\]"):
            ch.add(backend.asarray(X), LEARNED, values=backend.asarray(VALUES[:5].astype(np.float32)))
        with pytest.raises(
            InvalidType, match=r"^`values` must be a NumPy array or of the same library as `x`, got "
        ) as caught:
            ch.add(X, LEARNED, values=backend.asarray(VALUES.astype(np.float32)))
        assert caught.value.hint == "Convert them first, such as with numpy.asarray."
