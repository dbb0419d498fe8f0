"""What cannot be rotated is refused in words: the argument, the value, what is allowed, what to do."""

import importlib
import re

import numpy as np
import pytest
from scipy.sparse import csr_array as sparse_array

import clockhands as ch
from clockhands.encodings import rotary
from clockhands.encodings.rotary import XPos, grid, rerotate, rotate
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from late import Late
from oracles import sentences

jax, jnp, torch, held = Late("jax"), Late("jax.numpy"), Late("torch"), Late("clockhands.torch")

SPEC = ch.Rotary(8)
X = np.zeros((2, 5, 8), np.float32)
FLAT = np.zeros((5, 8), np.float32)


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("rotary", cases)


def test_libraries_are_not_mixed(any_backend):
    """A query of one library with positions of another is a slip; NumPy's numbers go with all."""
    if any_backend.name == "torch":
        x, positions, words = torch.zeros(5, 8), jnp.arange(5), "an array of jax, but `x` is an array of torch"
    else:
        x = any_backend.asarray(FLAT)
        positions, words = torch.arange(5), f"an array of torch, but `x` is an array of {any_backend.name}"
    for call, name in (
        (lambda: rotate(x, SPEC, positions), "positions"),
        (lambda: rerotate(x, SPEC, positions, np.arange(5)), "from_"),
        (lambda: rerotate(x, SPEC, np.arange(5), positions), "to"),
    ):
        with pytest.raises(InvalidType, match=re.escape(f"`{name}` are {words}.")):
            call()
    rotate(x, SPEC, np.arange(5))


def test_one_number_of_a_framework_is_refused_too_traced_or_not():
    words = "must be a position for each token, got an array of no axes"
    for one in (torch.tensor(1), jax.numpy.int32(1)):
        x = torch.ones(1, 8) if isinstance(one, torch.Tensor) else jax.numpy.ones((1, 8))
        for call in (lambda x, one: rotate(x, SPEC, one), lambda x, one: ch.add(x, ch.Sinusoidal(8), one)):
            with pytest.raises(InvalidType, match=words):
                call(x, one)
            with pytest.raises(InvalidType, match=words):
                (torch.func.vmap(call)(x[None], one[None]) if isinstance(x, torch.Tensor) else jax.jit(call)(x, one))


def test_a_scaling_of_ones_own_that_scales_nothing_is_refused_at_once():
    for scaling, message in (
        (lambda: 3, "`scaling` must accept scaling(ladder, length), but "),
        (lambda ladder: ladder, "`scaling` must accept scaling(ladder, length), but "),
        (lambda ladder, _: ladder * 2, "unsupported operand type(s) for *: 'Ladder' and 'int'."),
    ):
        with pytest.raises(InvalidType, match=f"{re.escape(message)}(.|\n)*hint: "):
            ch.Rotary(8, scaling=scaling)


def test_queries_and_keys_of_two_lengths_do_not_stand_at_the_same_positions():
    words = "Queries and keys must have the same length to have the same positions, got 1 and 5."
    calls = [lambda: rotary.rotate_both(FLAT[:1], FLAT, SPEC), lambda: rotary.rotate_both(FLAT[:1], FLAT, SPEC, [4])]
    held, x = pytest.importorskip("clockhands.torch"), torch.zeros(5, 8)
    calls.append(lambda: held.Rotary(SPEC).both(x[:1], x))
    jnp, pytrees = pytest.importorskip("jax.numpy"), pytest.importorskip("clockhands.jax")
    calls.append(lambda: pytrees.Rotary(SPEC).both(jnp.zeros((1, 8)), jnp.zeros((5, 8))))
    for call in calls:
        with pytest.raises(InvalidValue, match=re.escape(words)) as caught:
            call()
        assert "Rotate queries and keys separately" in caught.value.hint


def test_a_decay_is_refused_where_it_leaves_the_range_of_the_heads():
    spec, x = ch.Rotary(8, xpos=XPos()), np.ones((1, 8))
    for dtype, last in ((np.float16, 4_100), (np.float32, 34_000), (np.float64, 34_000)):
        held = x.astype(dtype)
        for role in ("query", "key"):
            assert np.isfinite(rotate((1 if dtype == np.float16 else 28) * held, spec, [last], role=role)).all()
            with pytest.raises(InvalidValue, match=r"tokens from the centre exceed the range of float(16|32)\."):
                rotate(held, spec, [last + 1000], role=role)
        with pytest.raises(InvalidValue, match="exceed the range of"):
            rerotate(held, spec, [last + 1000], [0])


def test_what_would_not_fit_is_refused_before_it_is_made():
    for axes in ((2**20, 2**20), (2**62, 2**62)):
        with pytest.raises(TooLarge, match="A grid of shape"):
            grid(*axes)
    with pytest.raises(TooLarge, match="Rotating heads of shape"):
        rotate(np.broadcast_to(np.float32(1), (10**6, 10**4, 64)), ch.Rotary(64))


def test_bytes_in_another_order_are_the_same_numbers():
    for dtype in (">f4", ">f8", ">f2"):
        x = X.astype(dtype)
        for made in (
            rotate(x, SPEC, np.arange(5, dtype=">i8")),
            ch.add(x, ch.Sinusoidal(8), np.arange(5, dtype=">i4")),
        ):
            assert made.dtype == np.dtype(dtype)
        assert np.array_equal(rotate(x, SPEC), rotate(X.astype(dtype[1:]), SPEC))
        assert np.array_equal(ch.add(x, ch.Sinusoidal(8)), ch.add(X.astype(dtype[1:]), ch.Sinusoidal(8)))
        table = np.arange(64.0).reshape(32, 2)
        assert np.array_equal(
            ch.bias(ch.Buckets(2), 3, 3, values=table.astype(dtype)), ch.bias(ch.Buckets(2), 3, 3, values=table)
        )
        assert np.array_equal(
            ch.additive.resize(table.astype(dtype), 8), ch.additive.resize(table.astype(dtype[1:]), 8)
        )


def test_tensors_without_numbers_are_refused_in_words():
    with pytest.raises(InvalidValue, match="`positions` are on the meta device and have no numbers"):
        rotate(torch.zeros(5, 8), SPEC, torch.arange(5, device="meta"))


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested tensors")
def test_what_is_not_dense_is_refused_in_words(cases):
    heads, scores, table = torch.ones(2, 8), torch.ones(2, 2, 2), torch.ones(32, 2)
    nested = [torch.nested.nested_tensor([heads, heads[:1]], layout=layout) for layout in (torch.jagged, torch.strided)]
    places = [torch.nested.nested_tensor([torch.arange(2), torch.arange(1)], layout=torch.strided)]
    sparse, many = (heads.to_sparse(), heads.to_sparse_csr()), torch.arange(2).to_sparse()
    bcoo = importlib.import_module("jax.experimental.sparse").BCOO.fromdense(jnp.ones((2, 8)))
    for x in (*nested, *sparse, bcoo, sparse_array(np.ones((2, 8)))):
        says = "`x` must (not be a nested tensor|be a dense)"
        for name, call in (("rotate", lambda x: rotate(x, SPEC)), ("add", lambda x: ch.add(x, ch.Sinusoidal(8)))):
            with cases(name, type(x), getattr(x, "layout", "")), pytest.raises(InvalidType, match=says):
                call(x)
    for at in (*places, many):
        says = "`(positions|queries)` must (not be a nested|be a dense) tensor"
        for name, call in (
            ("rotate", lambda at: rotate(heads, SPEC, at)),
            ("cos_sin", lambda at: rotary.cos_sin(SPEC, at, heads)),
            ("table", lambda at: ch.table(ch.Sinusoidal(8), at)),
            ("bias", lambda at: ch.bias(ch.Alibi(2), at, at)),
        ):
            with cases(name, at.layout), pytest.raises(InvalidType, match=says):
                call(at)
    for name, call in (
        ("scores", lambda: held.Bias(ch.Alibi(2))(scores.to_sparse())),
        ("table", lambda: ch.bias(ch.Buckets(2), 2, 2, values=table.to_sparse())),
        ("values", lambda: ch.add(torch.ones(2, 2), ch.Learned(2, 32), values=table.to_sparse())),
        ("cos_sin", lambda: rotate(heads, SPEC, cos_sin=rotary.CosSin(table.to_sparse(), table, SPEC))),
        ("like", lambda: rotary.cos_sin(SPEC, 3, nested[1])),
    ):
        with cases(name), pytest.raises(InvalidType, match=f"`{name}` must (not be a nested|be a dense) tensor"):
            call()


def test_heads_before_tokens_are_not_taken_for_tokens(backend, cases):
    """[batch, seq, heads, head_width], where the shapes show it: the hint names the axis."""
    x, at = backend.asarray(np.ones((2, 5, 3, 8), np.float32)), np.arange(10).reshape(2, 5)
    keys, pair = x[:, :, :1], rotary.cos_sin(SPEC, at, x)
    for name, call in (
        ("positions", lambda axis: rotate(x, SPEC, at, axis)),
        ("positions of all", lambda axis: rotate(x, SPEC, at[0], axis)),
        ("cos_sin", lambda axis: rotate(x, SPEC, None, axis, cos_sin=pair)),
        ("fewer keys", lambda axis: rotary.rotate_both(x, keys, SPEC, None, axis)),
    ):
        with cases(name), pytest.raises(InvalidValue) as caught:
            call(-2)
        assert caught.value.hint.startswith("If x is [batch, seq, heads, head_width], pass seq_axis=1.")
        call(1)
