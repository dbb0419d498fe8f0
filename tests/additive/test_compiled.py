"""Codes of several axes inside PyTorch's compiler: whole positions of the graph, and grids that are known before it."""

from fractions import Fraction

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, FourierFeatures
from clockhands.encodings.grids import Grid
from clockhands.encodings.rotary import chunked
from clockhands.encodings.traces import BOUND
from late import Late
from oracles.rows import every

torch = Late("torch")

RATES = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def compiled(call):
    torch.compiler.reset()
    return torch.compile(call, fullgraph=True, backend="eager")


CODES = {
    "blocks": AxialSinusoidal(24, (1, 2)),
    "octaves": AxialSinusoidal(26, (1, 2), 0.5, channels="rate-wave-axis", raw="before", scale=0.5),
    "cut": AxialSinusoidal(23, (1, 2), channels="axis-rate-wave", uneven="cut"),
    "zeros": AxialSinusoidal(25, (1, 2), uneven="zero", order="-sin-cos"),
}


def test_places_of_the_graph_and_known_grids(draw, cases):
    """Two of the codes in each run, as compiling takes a second; NumPy has them all."""
    places = np.array([[0, 1], [2**20 + 1, -7], [5, 2**31 - 1]])
    grids = Grid((2, 3), step=Fraction(1, 3), prefix=1), Grid((3, 2), start=10**15, order=(1, 0), prefix=1)
    for name in draw(CODES, 2):
        spec = CODES[name]
        exact = ch.table(spec, places, "float64")
        x = torch.randn(2, 7, spec.width, generator=torch.Generator().manual_seed(1))

        def added(x, at, spec=spec):
            known = [ch.add(x, spec, grid) for grid in grids]
            return ch.add(torch.zeros(2, 3, spec.width), spec, at), [*known, ch.add(x.double(), spec, grids[1])]

        given, known = compiled(added)(x, torch.from_numpy(places))
        with cases(name):
            assert np.abs(given.numpy() - exact).max() <= BOUND * np.abs(exact).max()
            assert all(torch.equal(*pair) for pair in zip(known, added(x, places)[1], strict=True))


@every("fields", [{"scale": 0.5}, {"standardised": 64, "scale": 0.1}, {"order": "-sin-cos"}])
def test_other_sinusoids_of_one_axis(fields):
    spec, at = ch.Sinusoidal(8, layout="halves", **fields), torch.tensor([0, 5, 2**20 + 1, -3])
    given, known = compiled(lambda x, at: (ch.add(x, spec, at), ch.add(x, spec, range(4))))(torch.zeros(4, 8), at)
    assert np.abs(given.numpy() - ch.table(spec, at.numpy(), "float64")).max() <= BOUND
    assert np.abs(known.numpy() - ch.table(spec, 4, "float64")).max() <= BOUND


def test_known_grids_of_one_axis():
    spec, grid = ch.Sinusoidal(8, zero_rows=(1,)), Grid(5, start=-2, prefix=2)
    x = torch.randn(7, 8)
    assert torch.equal(compiled(lambda x: ch.add(x, spec, grid))(x), ch.add(x, spec, grid))


def test_rates_that_are_parameters():
    spec, grid = FourierFeatures(8), Grid.centres((2, 3), -1, 1, prefix=1)
    values = torch.tensor(RATES, requires_grad=True)
    add = compiled(lambda x, values: ch.add(x, spec, grid, values=values))
    given, wanted = add(torch.zeros(7, 8), values), ch.add(torch.zeros(7, 8), spec, grid, values=values)
    assert not given[:1].any()
    assert (given - wanted).abs().max() < 4 * np.pi * 2.0**-20
    made = [torch.autograd.grad((table**3).sum(), values)[0] for table in (given, wanted)]
    assert (made[0] - made[1]).abs().max() < 1e-4


def test_rotations_of_known_grids():
    spec, x = ch.Rotary(16, axes=chunked([4, 4])), torch.randn(2, 7, 16)
    grid = Grid((2, 3), order=(1, 0), prefix=1)
    given = compiled(lambda x: ch.rotate(x, spec, grid))(x)
    assert (given - ch.rotate(x, spec, grid)).abs().max() < 8 * BOUND


def test_a_grid_of_another_size_is_refused_there_too():
    spec, grid = AxialSinusoidal(8), Grid((2, 3))
    with pytest.raises(
        torch._dynamo.exc.InternalTorchDynamoError,
        match=r"`positions` must be of shape \[5\] for x of shape \[5, 8\], got \[6\]",
    ):
        compiled(lambda x: ch.add(x, spec, grid))(torch.zeros(5, 8))
