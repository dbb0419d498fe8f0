"""JAX: the same numbers under jit, grad, vmap and scan, in 32 bits and in 64, with specs as static arguments."""

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Fire, Kerple, Window
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import XPos
from clockhands.encodings.traces import BOUND
from late import Late, jax_with_64_bits
from oracles import sentences

jax, jnp, held = Late("jax"), Late("jax.numpy"), Late("clockhands.jax")

KNOWN = [0, 5, 2**31, 2**40 + 5, 2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63)]
ROWS = np.random.default_rng(2).standard_normal((40, 8)).astype(np.float32)
BITS = pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])


def key() -> Any:
    """Made in a test: a key starts JAX, whose threads no fork survives."""
    return jax.random.key(0)


# A spec, what is learned of it, the shape of its input, and its role.
CODES: dict[str, tuple[Any, Any, tuple[int, ...], dict[str, Any]]] = {
    "rotary": (ch.Rotary(16), None, (2, 3, 5, 16), {}),
    "interleaved": (ch.Rotary(16, "interleaved", rotated=8), None, (2, 3, 5, 16), {}),
    "xpos": (ch.Rotary(16, xpos=XPos()), None, (2, 3, 5, 16), {"role": "query"}),
    "sinusoid": (ch.Sinusoidal(8, zero_rows=(1,)), None, (2, 5, 8), {}),
    "scaled": (ch.Sinusoidal(8, scaled=True), np.float32(0.5), (2, 5, 8), {}),
    "learned": (ch.Learned(width=8, rows=40, offset=2), ROWS, (2, 5, 8), {}),
}
PLACES = np.array([[0, 1, 2, 3, 4], [9, 30, 0, 0, 7]])
BIASES = (ch.Alibi(heads=4), ch.Buckets(heads=4), Kerple(heads=4), Fire(heads=4, hidden=3), Window(4, 2, 3))


def prepared(name: str) -> tuple[Any, np.ndarray, dict[str, Any], np.ndarray]:
    """A code, its input, its role, and what NumPy makes of them at `PLACES`."""
    spec, values, shape, further = CODES[name]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    if isinstance(spec, ch.Rotary):
        return held.Rotary(spec), x, further, ch.rotate(x, spec, PLACES, **further)
    return held.Additive(spec, values), x, further, ch.add(x, spec, PLACES, values=values)


@pytest.fixture
def _bits(wide: bool):
    with jax_with_64_bits(wide):
        yield


@BITS
@pytest.mark.usefixtures("_bits")
def test_known_positions_are_exact_up_to_the_last():
    code = held.Rotary(ch.Rotary(head_width=64))
    x = jnp.zeros((len(KNOWN), 64)).at[:, :32].set(1)

    def rotated(x: Any) -> Any:
        return code(x, KNOWN), code(x, np.array(KNOWN))

    turn = units(code.spec.ladder, positions_of(KNOWN))
    for made in (*rotated(x), *jax.jit(rotated)(x)):
        out = np.asarray(made, np.float64)
        assert max(np.abs(out[:, :32] - turn.real).max(), np.abs(out[:, 32:] - turn.imag).max()) <= 2.0**-24


@BITS
@pytest.mark.usefixtures("_bits")
def test_transformed_functions_give_the_same_numbers_and_gradients(wide: bool, cases, draw):
    """Every encoding with 32 bits, two drawn ones with 64; all in one function, as compiling takes the time."""
    for name in draw(CODES, 2) if wide else CODES:
        code, x, further, wanted = prepared(name)
        weight = np.random.default_rng(3).standard_normal(x.shape).astype(np.float32)

        def loss(code: Any, x: Any, at: Any, weight: Any = weight, more: Any = further) -> Any:
            return (code(x, at, **more) * weight).sum()

        @jax.jit
        def transformed(code: Any, x: Any, at: Any, more: Any = further, loss: Any = loss) -> Any:
            numbers = {
                "jit": code(x, at, **more),
                "jit, known": code(x, PLACES, **more),
                "vmap of jit": jax.vmap(jax.jit(partial(code, **more)))(x, at),
                "scan": jax.lax.scan(lambda held, step: (held, held(*step, **more)), code, (x, at))[1],
            }
            return numbers, [jax.grad(loss, argnums=(0, 1))(code, x, places) for places in (PLACES, at)]

        given, (known, traced) = transformed(code, x, jnp.asarray(PLACES, jnp.int32))
        for how, numbers in given.items():
            with cases(name, how):
                assert np.abs(np.asarray(numbers) - wanted).max() <= 6 * BOUND * np.abs(wanted).max()
        with cases(name, "gradients"):
            for one, other in zip(jax.tree.leaves(known), jax.tree.leaves(traced), strict=True):
                assert np.abs(one - other).max() <= 8 * BOUND * max(1, np.abs(one).max())
            assert len(jax.tree.leaves(known[0])) == len(jax.tree.leaves(code))
            assert all(float(np.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(known[0]))


def test_equal_specs_are_compiled_once_and_others_again():
    traced = []

    @jax.jit
    def rotate(code: Any, x: Any) -> Any:
        traced.append(code.spec)
        return code(x)

    x = jnp.ones((5, 16))
    outs = [rotate(held.Rotary(ch.Rotary(16, base=base)), x) for base in (1e4, 5e5, 1e4, 5e5)]
    assert len(traced) == 2
    assert np.abs(outs[0] - outs[1]).max() > 0.1
    assert (outs[0] == outs[2]).all()


def test_specs_are_static_arguments():
    both = jax.jit(lambda x, spec, code, at: (ch.rotate(x, spec, at), ch.add(x, code, at)), static_argnums=(1, 2))
    x = np.ones((5, 16), np.float32)
    for base in (1e4, 5e5):
        spec, code = ch.Rotary(16, base=base), ch.Sinusoidal(16, base=base)
        turned, added = both(x, spec, code, jnp.arange(5))
        assert np.abs(turned - ch.rotate(x, spec)).max() <= 4 * BOUND
        assert np.abs(added - ch.add(x, code)).max() <= 4 * BOUND


@pytest.mark.parametrize("spec", BIASES, ids=lambda spec: type(spec).__name__)
def test_biases(spec: Any):
    code = held.Bias.drawn(spec, key())
    tokens = getattr(spec, "tokens", 6)
    rng = np.random.default_rng(1)
    scores, weight = (rng.standard_normal((2, 4, tokens, tokens)).astype(np.float32) for _ in range(2))

    @jax.jit
    def transformed(code: Any, scores: Any) -> Any:
        narrow = scores.astype(jnp.bfloat16)
        gradients = jax.grad(lambda code: (code(scores) * weight).sum())(code)
        return code(scores), jax.vmap(code)(scores), code(narrow), code(narrow.astype(jnp.float32)), gradients

    given, mapped, narrow, wide, gradients = transformed(code, scores)
    values = None if code.values is None else {name: np.asarray(number) for name, number in code.values.items()}
    wanted = scores.astype(np.float64) + ch.bias(spec, tokens, tokens, values=values, dtype="float64")
    for made in (given, mapped):
        assert np.abs(made - wanted).max() <= 2.0**-20 * np.abs(wanted).max()
    assert [leaf.shape for leaf in jax.tree.leaves(gradients)] == [leaf.shape for leaf in jax.tree.leaves(code)]
    assert narrow.dtype == jnp.bfloat16
    off = np.abs(np.asarray(narrow, np.float64) - np.asarray(wide))
    assert (off <= np.abs(np.asarray(narrow, np.float64)) * 2.0**-8).all()


def test_a_bias_is_masked_when_asked_and_stands_where_it_is_told():
    code = held.Bias(ch.Alibi(heads=2))
    assert int(np.isneginf(code(jnp.zeros((2, 4, 4)), causal=True)).sum()) == 12
    assert (code(jnp.zeros((2, 1, 4)), [2**40], range(2**40 - 3, 2**40 + 1)) == code(jnp.zeros((2, 1, 4)))).all()


def test_what_is_drawn_of_kerple_fills_its_ranges_and_stays_within_them():
    drawn = [held.Bias.drawn(Kerple(heads=4), jax.random.key(seed)).values for seed in range(10)]
    for name, most in (("p", 2.0), ("a", 1.0)):
        values = np.array([each[name] for each in drawn])
        assert values.min() >= np.float32(0.01)
        assert 0.9 * most < values.max() <= most


def test_kerple_stays_a_kernel():
    spec = Kerple(heads=2, kernel="power")
    code = held.Bias(spec, {"p": jnp.array([3.0, -1.0]), "a": jnp.array([-1.0, 1.0])})
    allowed = held.Bias(spec, {"p": jnp.array([2.0, 0.01]), "a": jnp.array([0.01, 1.0])})
    assert (code.matrix(4, 4) == allowed.matrix(4, 4)).all()


def test_what_is_learned_are_leaves():
    learned = held.Additive.drawn(ch.Learned(width=8, rows=40), key())
    assert [leaf.shape for leaf in jax.tree.leaves(learned)] == [(40, 8)]
    assert 0.01 < float(jnp.std(learned.values)) < 0.03
    assert float(held.Additive.drawn(ch.Sinusoidal(8, scaled=True), key()).values) == 1
    assert jax.tree.leaves(held.Rotary(ch.Rotary(16))) == []
    assert jax.tree.leaves(held.Additive.drawn(ch.Sinusoidal(8), key())) == []
    assert [leaf.shape for leaf in jax.tree.leaves(held.Bias.drawn(ch.Buckets(heads=3), key()))] == [(32, 3)]
    doubled = jax.tree.map(lambda leaf: 2 * leaf, learned)
    assert doubled.spec == learned.spec
    assert (doubled.values == 2 * learned.values).all()
    again = pickle.loads(pickle.dumps(learned))
    assert again.spec == learned.spec
    assert (again.values == learned.values).all()
    table = jnp.ones((32, 2))
    assert (held.Bias(ch.Buckets(heads=2), table).values["table"] == table).all()


def test_a_position_without_a_row_is_seen():
    code = held.Additive(ch.Learned(width=8, rows=40, offset=2), jnp.asarray(ROWS))
    given = jax.jit(code)(jnp.zeros((5, 8)), jnp.array([0, 37, 38, -1, 2**31 - 1], jnp.int32))
    assert np.isnan(given).all(axis=1).tolist() == [False, False, True, True, True]


def test_queries_and_keys_are_turned_in_their_roles():
    spec = ch.Rotary(16, xpos=XPos())
    queries, keys = jnp.ones((2, 4, 5, 16)), 2 * jnp.ones((2, 1, 5, 16))
    turned = held.Rotary(spec).both(queries, keys, jnp.arange(7, 12))
    assert np.abs(turned[0] - ch.rotary.rotate(queries, spec, range(7, 12), role="query")).max() <= 4 * BOUND
    assert np.abs(turned[1] - ch.rotary.rotate(keys, spec, range(7, 12), role="key")).max() <= 4 * BOUND
    assert np.abs(2 * turned[0][:, :1] - turned[1]).max() > 1e-4


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("jax_pytrees", cases)
