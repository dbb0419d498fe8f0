"""A limit on positions raises where numbers are known, and where they will be."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import rotate, within
from clockhands.errors import InvalidType, InvalidValue
from late import Late
from oracles import sentences

jax, torch = Late("jax"), Late("torch")

SPEC = ch.Rotary(8)


def test_limits_of_known_positions_in_words(cases):
    sentences.hold("limits", cases)


def test_arrays_of_every_library(any_backend):
    at = any_backend.asarray(np.array([0, 5, 2]))
    assert within(at, 6) is at
    with pytest.raises(InvalidValue, match="below the limit of 5, got 5"):
        within(at, 5)


@pytest.mark.filterwarnings("ignore:(Attempted to insert a get_attr )?Node:UserWarning")  # PyTorch 2.5, of itself
@pytest.mark.parametrize("way", ["compile", "export"])
def test_a_graph_of_pytorch_holds_the_check(way):
    torch._dynamo.reset()

    class Model(torch.nn.Module):
        def forward(self, x, at):
            return rotate(x, SPEC, within(at, 8))

    x, near, far = torch.ones(3, 8), torch.arange(3), torch.arange(3) + 6
    if way == "compile":
        run = torch.compile(Model(), fullgraph=True, backend="eager")
    else:
        run = torch.export.export(Model(), (x, near)).module()
    assert float((run(x, near) - rotate(x, SPEC, near)).abs().max()) < 2e-6
    with pytest.raises(RuntimeError, match="`positions` must be below the limit of 8"):
        run(x, far)
    torch._dynamo.reset()


def test_a_count_in_a_graph_of_pytorch():
    torch._dynamo.reset()
    run = torch.compile(lambda x: x + within(x.shape[0], 8), fullgraph=True, backend="eager", dynamic=True)
    assert run(torch.zeros(6))[0] == 6
    with pytest.raises(RuntimeError, match="must be below the limit of 8"):
        run(torch.zeros(9))
    torch._dynamo.reset()


def test_a_transform_of_pytorch_refuses():
    with pytest.raises(InvalidType, match=r"inside a transform of torch\.func"):
        torch.func.vmap(lambda at: within(at, 8))(torch.zeros(2, 3, dtype=torch.int64))


def test_a_trace_of_jax_holds_the_check_or_refuses():
    from jax.experimental import checkify

    x = np.ones((3, 8), np.float32)
    step = jax.jit(lambda x, at: rotate(x, SPEC, within(at, 8)))
    with pytest.raises(ValueError, match="checkify"):
        step(x, np.arange(3))
    error, found = checkify.checkify(step)(x, np.arange(3))
    assert error.get() is None
    assert np.abs(np.asarray(found) - rotate(x, SPEC)).max() < 2e-6
    error, _ = checkify.checkify(step)(x, np.arange(3) + 6)
    assert "`positions` must be below the limit of 8. Got 8." in error.get()
