"""Adding a bias to scores: nothing is made up by broadcasting, in PyTorch and in JAX, and autocast takes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import resize
from clockhands.encodings.biases import Fire, LogWindow
from late import Late
from oracles import sentences

torch, in_torch, jnp, in_jax = Late("torch"), Late("clockhands.torch"), Late("jax.numpy"), Late("clockhands.jax")

FRAMEWORKS = pytest.mark.parametrize("held", ["torch", "jax"])


def scored(held: str, spec: Any, scores: np.ndarray, *places: Any, **more: Any) -> np.ndarray:
    """Scores with their bias, in a framework."""
    if held == "torch":
        return in_torch.Bias(spec)(torch.from_numpy(scores), *places, **more).numpy()
    return np.asarray(in_jax.Bias(spec)(jnp.asarray(scores), *places, **more))


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


SPEC = ch.Alibi(heads=3)


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("scores", cases)


@FRAMEWORKS
def test_a_batch_of_positions_is_axis_0_of_any_scores(held: str):
    at, keys = [[3, 4], [9, 1]], [[0, 1, 2], [5, 6, 7]]
    wanted = ch.bias(SPEC, at, keys)
    assert np.array_equal(scored(held, SPEC, zeros(2, 3, 2, 3), at, keys), wanted)
    deep = scored(held, SPEC, zeros(2, 4, 3, 2, 3), at, keys)
    assert np.array_equal(deep, np.broadcast_to(wanted[:, None], deep.shape))
    one = scored(held, SPEC, zeros(5, 3, 2, 3), at[:1], keys[:1])
    assert np.array_equal(one, np.broadcast_to(wanted[:1], one.shape))
    assert np.array_equal(scored(held, SPEC, zeros(3, 2, 3), 2, 3), ch.bias(SPEC, 2, 3))


WINDOW, NETWORK = LogWindow(2, 3, 3, hidden=16), Fire(2)
TABLE = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda learned: in_torch.Bias(WINDOW, learned(WINDOW))(torch.zeros(2, 9, 9)),
        lambda learned: in_torch.Bias(NETWORK, learned(NETWORK))(torch.zeros(2, 9, 9)),
        lambda learned: ch.bias(WINDOW, 9, 9, values=learned(WINDOW)),
        lambda learned: in_torch.score_mod(WINDOW, 9, 9, values=learned(WINDOW))(
            torch.tensor(0.0), 0, 0, torch.arange(9), torch.arange(9)
        ),
        lambda learned: torch.func.vmap(lambda at: ch.bias(NETWORK, at, torch.arange(9), values=learned(NETWORK)))(
            torch.arange(9)[None]
        ),
        lambda _: resize(torch.from_numpy(TABLE), 20),
        lambda _: resize(torch.from_numpy(TABLE), (5, 5), "cubic"),
    ],
)
def test_autocast_takes_no_precision(make: Callable[[Any], Any]):
    """What is made in float32 by its word is not made in bfloat16 where a model's products are."""

    def learned(spec: Any) -> Any:
        rng = np.random.default_rng(1)
        return {name: torch.from_numpy(rng.standard_normal(shape, np.float32)) for name, shape in spec.shapes.items()}

    wanted, table = make(learned), torch.from_numpy(TABLE)
    with torch.autocast("cpu", torch.bfloat16):
        assert (table @ table.T).dtype == torch.bfloat16
        assert torch.equal(make(learned), wanted)


def test_parameters_that_are_made_of_others_are_used_as_they_are_made():
    from torch.nn.utils import parametrizations, prune

    for change in (
        lambda module: parametrizations.weight_norm(module, "table"),
        lambda module: prune.random_unstructured(module, "table", 0.5),
    ):
        module = in_torch.Bias(ch.Buckets(heads=2))
        change(module)
        used = module.table.detach()
        assert np.array_equal(
            module(torch.zeros(2, 3, 3)).detach().numpy(), ch.bias(module.spec, 3, 3, values=used.numpy())
        )
        module.load_state_dict(module.state_dict())
        assert torch.equal(module.table, used)
