"""A limit on positions raises where numbers are known, and where they will be."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidType, InvalidValue
from clockhands.rotary import rotate, within

SPEC = ch.Rotary(8)


@pytest.mark.parametrize(
    ("given", "beyond"),
    [
        (9, "8"),
        (range(4, 12), "11"),
        (range(12, 4, -1), "12"),
        ([0, 7, 8, 9], "8"),
        ([0.5, 8.5], "8.5"),
        (np.array([[0, 1], [2, 2**40]]), "1,099,511,627,776"),
        (np.uint64([2**63]), "9,223,372,036,854,775,808"),
    ],
    ids=str,
)
def test_a_known_position_beyond_the_limit_is_refused(given, beyond):
    with pytest.raises(InvalidValue) as caught:
        within(given, 8)
    assert caught.value.message == f"`positions` must be below the limit of 8, got {beyond}."
    assert caught.value.hint == "Shorten the text, or use a model or a RoPE scaling made for this length."


@pytest.mark.parametrize("given", [8, 0, range(8), range(0), [], [7.99, -3.0], [[-(2**63), 7]], np.arange(8)], ids=str)
def test_positions_below_the_limit_come_back_as_they_are(given):
    assert within(given, 8) is given


def test_arrays_of_every_library(any_backend):
    at = any_backend.asarray(np.array([0, 5, 2]))
    assert within(at, 6) is at
    with pytest.raises(InvalidValue, match="below the limit of 5, got 5"):
        within(at, 5)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_a_limit_is_a_count(limit):
    with pytest.raises((InvalidType, InvalidValue), match="`limit` must be"):
        within([0], limit)


@pytest.mark.parametrize("way", ["compile", "export"])
def test_a_graph_of_pytorch_holds_the_check(way):
    torch = pytest.importorskip("torch")
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
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    run = torch.compile(lambda x: x + within(x.shape[0], 8), fullgraph=True, backend="eager", dynamic=True)
    assert run(torch.zeros(6))[0] == 6
    with pytest.raises(RuntimeError, match="must be below the limit of 8"):
        run(torch.zeros(9))
    torch._dynamo.reset()


def test_a_transform_of_pytorch_refuses():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidType, match=r"inside a transform of torch\.func"):
        torch.func.vmap(lambda at: within(at, 8))(torch.zeros(2, 3, dtype=torch.int64))


def test_a_trace_of_jax_holds_the_check_or_refuses():
    jax = pytest.importorskip("jax")
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
