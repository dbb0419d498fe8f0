"""Learned position codes in the neural network libraries of JAX: the libraries' own parameters, and they train."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.biases import Clipped, Fire, Kerple
from late import Late

jax, jnp, held = Late("jax"), Late("jax.numpy"), Late("clockhands.jax")
pytestmark = pytest.mark.slow

DRAWN = np.random.default_rng(1)
X, WEIGHT = (DRAWN.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (2, 5, 5)))
LEARNED, BUCKETS = ch.Learned(8, rows=16), ch.Buckets(heads=2)
TABLE, ROWS = (
    DRAWN.normal(scale=0.1, size=shape).astype(np.float32) for shape in (LEARNED.values_shape, BUCKETS.shapes["table"])
)


def learned() -> tuple[Any, Any]:
    return jnp.asarray(TABLE), jnp.asarray(ROWS)


def scores(table: Any, rows: Any, x: Any = X) -> Any:
    """A learned table added, a rotation, scores and a learned bias, with these numbers."""
    x = ch.rotate(ch.add(jnp.asarray(x), LEARNED, values=table), ch.Rotary(8))
    return jnp.stack([x @ x.T] * 2) + ch.bias(BUCKETS, 5, 5, values=rows)


def loss(made: Any) -> Any:
    return (made * WEIGHT).sum()


def wanted() -> tuple[np.ndarray, np.ndarray]:
    """The gradients by JAX alone."""
    table, rows = jax.grad(lambda table, rows: loss(scores(table, rows)), argnums=(0, 1))(*learned())
    assert np.abs(table).max() > 0
    assert np.abs(rows).max() > 0
    return np.asarray(table), np.asarray(rows)


def same(*given: Any) -> bool:
    return all(np.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(given, wanted(), strict=True))


def test_variables_of_nnx_are_values():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.table, self.rows = map(nnx.Param, learned())

        def __call__(self) -> Any:
            return scores(self.table, self.rows)

    gradients = nnx.grad(lambda model: loss(model()))(Model())
    assert same(gradients["table"][...], gradients["rows"][...])
    gradients = nnx.jit(nnx.grad(lambda model: loss(model())))(Model())
    assert same(gradients["table"][...], gradients["rows"][...])


CODES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "learned": (lambda key: held.Additive.drawn(LEARNED, key), (5, 8)),
    "scale": (lambda key: held.Additive.drawn(ch.Sinusoidal(8, scaled=True), key), (5, 8)),
    "Fourier": (lambda key: held.Additive.drawn(FourierFeatures(8, axes=1), key), (5, 8)),
    **{
        type(spec).__name__: (lambda key, spec=spec: held.Bias.drawn(spec, key), (2, 5, 5))
        for spec in (BUCKETS, Clipped(2, span=3), Kerple(2), Fire(2, hidden=3))
    },
}


@pytest.mark.parametrize("name", CODES)
def test_what_is_learned_trains_as_parameters_of_nnx(name: str):
    """``drawn(spec, rngs)`` is all that it takes."""
    nnx, optax = pytest.importorskip("flax.nnx"), pytest.importorskip("optax")
    make, shape = CODES[name]
    x = jnp.asarray(np.random.default_rng(1).standard_normal(shape), jnp.float32)

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.code = make(nnx.Rngs(0))

        def __call__(self, x: Any, *positions: Any) -> Any:
            return self.code(x, *positions)

    model = Model()
    plain = make(nnx.Rngs(0).params())
    kinds = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert [leaf.shape for leaf in kinds] == [leaf.shape for leaf in jax.tree.leaves(plain)]
    at = (jnp.arange(5),) * (2 if len(shape) == 3 else 1)

    def far(model: Any, *positions: Any) -> Any:
        return (model(x, *positions) ** 2).mean()

    for positions in ((), at) if name != "Fourier" else ((),):
        gradients = nnx.jit(nnx.grad(far))(model, *positions)
        others = jax.grad(lambda code, positions=positions: far(code, *positions))(plain)
        for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True):
            assert np.allclose(one, other, rtol=1e-4, atol=1e-6)
    optimizer, before = nnx.Optimizer(model, optax.sgd(0.05), wrt=nnx.Param), float(far(model))
    for _ in range(5):
        optimizer.update(model, nnx.grad(far)(model))
    assert float(far(model)) < before


def test_given_numbers_are_parameters_of_nnx_too_and_plain_arrays_are_kept():
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, code: Any) -> None:
            self.code = code

    code = held.Bias(BUCKETS, learned()[1])
    trained = nnx.state(Model(jax.tree.map(nnx.Param, code)), nnx.Param)
    assert np.array_equal(jax.tree.leaves(trained)[0], ROWS)
    assert np.array_equal(Model(code).code.matrix(5, 5), ch.bias(BUCKETS, 5, 5, values=ROWS))
    assert not jax.tree.leaves(nnx.state(Model(code), nnx.Param))


def test_parameters_of_linen():
    linen = pytest.importorskip("flax.linen")

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            table = self.param("table", lambda _: learned()[0])
            rows = self.param("rows", lambda _: learned()[1])
            return scores(table, rows, x)

    model = Model()
    parameters = model.init(jax.random.key(0), X)
    gradients = jax.jit(jax.grad(lambda parameters: loss(model.apply(parameters, X))))(parameters)["params"]
    assert same(gradients["table"], gradients["rows"])


def test_parameters_of_haiku():
    haiku = pytest.importorskip("haiku")

    def model(x: Any) -> Any:
        table = haiku.get_parameter("table", TABLE.shape, init=lambda *_: learned()[0])
        return scores(table, haiku.get_parameter("rows", ROWS.shape, init=lambda *_: learned()[1]), x)

    model = haiku.without_apply_rng(haiku.transform(model))
    parameters = model.init(jax.random.key(0), X)
    gradients = jax.jit(jax.grad(lambda parameters: loss(model.apply(parameters, X))))(parameters)["~"]
    assert same(gradients["table"], gradients["rows"])


def test_modules_of_equinox():
    equinox = pytest.importorskip("equinox")

    class Model(equinox.Module):
        added: Any
        bias: Any
        turning: Any

        def __call__(self, x: Any) -> Any:
            x = self.turning(self.added(x))
            return self.bias(jnp.stack([x @ x.T] * 2))

    table, rows = learned()
    model = Model(held.Additive(LEARNED, table), held.Bias(BUCKETS, rows), held.Rotary(ch.Rotary(8)))
    gradients = equinox.filter_jit(equinox.filter_grad(lambda model: loss(model(jnp.asarray(X)))))(model)
    assert same(gradients.added.values, gradients.bias.values["table"])
