"""Sequences and heads that are split over machines, seen by one rank of several: DTensors, heads of a bias, positions.

The process group is PyTorch's fake one, which sends nothing: that everything here works shows that nothing is sent. Two
real processes are in test_two_processes.py.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.biases import CODES, CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Slopes, Window
from clockhands.encodings.grids import Grid
from clockhands.encodings.rotary import XPos, cos_sin, rerotate, rotate_both
from clockhands.encodings.sharding import rank_positions
from clockhands.errors import ClockhandsError
from late import Late
from oracles import sentences
from oracles.rows import every

jax = Late("jax")

torch, dtensor, cht = Late("torch"), Late("torch.distributed.tensor"), Late("clockhands.torch")
fake, dynamo = Late("torch.testing._internal.distributed.fake_pg"), Late("torch._dynamo.testing")

# Ranks and one of them: no other rank of as many, since PyTorch keeps for a mesh what it found for this process. Even
# parts; uneven ones; and a last rank with one token, one head, and nothing of a batch of 2.
GROUPS = ((2, 1), (3, 1), (4, 3))
SHAPE = (2, 4, 7, 8)  # batch, heads, seq, head_width
AXES = {"batch": 0, "heads": 1, "sequence": 2, "nothing": None}
EXACT = lambda: [  # noqa: E731 - tensors are made when they are needed
    None,
    range(5, 26, 3),
    [0, 0.5, 1.25, 2, -3, 10**6, 2**53 + 1],
    np.array([[7, 1, 2, 9, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3]]),
    torch.arange(7) + 2**40,
    torch.arange(7)[None],
    Grid(7, start=0.5),
]


@pytest.fixture(params=GROUPS, ids=lambda group: f"{group[0]} ranks")
def mesh(request: pytest.FixtureRequest) -> Iterator[Any]:
    ranks, rank = request.param
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=rank, world_size=ranks)
    yield dtensor.init_device_mesh("cpu", (ranks,))
    torch.distributed.destroy_process_group()


def spread(whole: Any, mesh: Any, axis: int | None) -> Any:
    """A tensor that all ranks know as a DTensor that is split along one axis."""
    placement = dtensor.Replicate() if axis is None else dtensor.Shard(axis)
    known = dtensor.DTensor.from_local(whole, mesh, [dtensor.Replicate()], run_check=False)
    return known.redistribute(placements=[placement]).detach()


def tensor(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def is_part(found: Any, whole: Any, mesh: Any, axis: int | None) -> None:
    """Whether a DTensor is this rank's part of what one process computes, bit for bit."""
    expected = spread(whole, mesh, axis)
    assert isinstance(found, dtensor.DTensor)
    assert found.placements == expected.placements
    assert found.shape == expected.shape
    assert found.stride() == expected.stride()
    assert torch.equal(found.to_local(), expected.to_local())


@every("positions", EXACT)
@every("axis", AXES.values())
def test_a_rank_rotates_its_part_as_one_process_rotates_the_whole(mesh: Any, axis: int | None, positions: Any):
    spec, whole, weight = ch.Rotary(8, layout="halves"), tensor(*SHAPE).requires_grad_(), tensor(*SHAPE, seed=1)
    x = spread(whole, mesh, axis).requires_grad_()
    made, expected = ch.rotate(x, spec, positions), ch.rotate(whole, spec, positions)
    is_part(made, expected.detach(), mesh, axis)
    expected.backward(weight)
    made.backward(spread(weight, mesh, axis))
    # PyTorch 2.5 to 2.11 may keep a gradient whole on every rank.
    is_part(x.grad.redistribute(mesh, x.placements), whole.grad, mesh, axis)


@every("spec", [ch.Rotary(8), ch.Rotary(8, xpos=XPos())])
@every("axis", AXES.values())
def test_queries_and_keys_by_positions_that_are_split_alike(mesh: Any, axis: int | None, spec: ch.Rotary):
    queries, keys = tensor(*SHAPE), tensor(2, 2, 7, 8, seed=1)  # grouped keys: some ranks have none
    places = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [5, 6, 7, 8, 9, 9, 9]])
    expected = rotate_both(queries, keys, spec, places)
    along = {0: 0, 2: 1}.get(axis)  # type: ignore[call-overload]
    given = [places, spread(places, mesh, along), spread(places, mesh, None)]
    for positions in given:
        both = cht.Rotary(spec).both(spread(queries, mesh, axis), spread(keys, mesh, axis), positions)
        for made, whole in zip(both, expected, strict=True):
            is_part(made, whole, mesh, axis)
        roles = (None, None) if spec.xpos is None else ("query", "key")
        pairs = tuple(cos_sin(spec, positions, like=spread(queries, mesh, axis), role=role) for role in roles)
        both = rotate_both(spread(queries, mesh, axis), spread(keys, mesh, axis), spec, cos_sin=pairs)
        for made, whole in zip(both, expected, strict=True):
            is_part(made, whole, mesh, axis)


def test_the_sequence_may_be_another_axis_and_tokens_may_have_coordinates(mesh: Any):
    spec, whole = ch.Rotary(8, axes=(0, 1, 0, 1)), tensor(2, 7, 4, 8)
    places = np.arange(28).reshape(2, 7, 2) / 4
    for axis in (0, 1, 2):
        x = spread(whole, mesh, axis)
        is_part(ch.rotate(x, spec, places, 1), ch.rotate(whole, spec, places, 1), mesh, axis)
        pair = cos_sin(spec, spread(torch.from_numpy(places), mesh, axis if axis < 2 else None), like=x)
        is_part(ch.rotate(x, spec, seq_axis=1, cos_sin=pair), ch.rotate(whole, spec, places, 1), mesh, axis)


def test_prepared_cosines_and_keys_that_move(mesh: Any):
    spec, whole = ch.Rotary(8), tensor(*SHAPE)
    x = spread(whole, mesh, 2)
    turned, _ = cht.Rotary(spec).prepare(7, like=x).turn(x, x)
    is_part(turned, ch.rotate(whole, spec), mesh, 2)
    is_part(
        rerotate(turned, spec, range(7), range(9, 16)),
        rerotate(ch.rotate(whole, spec), spec, range(7), range(9, 16)),
        mesh,
        2,
    )


def test_a_mesh_of_two_axes(mesh: Any):
    """Batch and sequence, and a sequence that is split twice."""
    square = dtensor.init_device_mesh("cpu", (mesh.size(), 1))
    spec, whole = ch.Rotary(8), tensor(*SHAPE)
    known = dtensor.DTensor.from_local(whole, square, [dtensor.Replicate(), dtensor.Replicate()], run_check=False)
    answer = dtensor.DTensor.from_local(
        ch.rotate(whole, spec), square, [dtensor.Replicate(), dtensor.Replicate()], run_check=False
    )
    for placements in (
        [dtensor.Shard(2), dtensor.Shard(0)],
        [dtensor.Shard(2), dtensor.Shard(2)],
        [dtensor.Shard(1), dtensor.Shard(2)],
    ):
        made = ch.rotate(known.redistribute(placements=placements), spec)
        assert made.placements == tuple(placements)
        assert torch.equal(made.to_local(), answer.redistribute(placements=placements).to_local())


CODES_ADDED = lambda: [  # noqa: E731 - tensors are made when they are needed
    (ch.Sinusoidal(8), None),
    (ch.Sinusoidal(8), np.array([[7, 1, 2, 9, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3]])),
    (ch.Sinusoidal(8), Grid(5, prefix=2)),
    (ch.Sinusoidal(8), [0, 0.5, 1.25, 2, -3, 10**6, 2**53 + 1]),
    (ch.Learned(width=8, rows=9), None),
    (ch.Learned(width=8, rows=9), torch.tensor([[0, 1, 2, 3, 4, 5, 6], [5, 5, 7, 8, 0, 1, 1]])),
    (ch.Sinusoidal(8, scaled=True), None),
    (FourierFeatures(8, axes=2), np.arange(14).reshape(7, 2) / 8),
]


@pytest.mark.filterwarnings("ignore:DTensor random operators may not")  # PyTorch 2.5, of itself
@every("spec, positions", CODES_ADDED)
@every("axis", [0, 1, None])
def test_a_rank_adds_the_code_of_its_own_tokens(mesh: Any, axis: int | None, spec: Any, positions: Any):
    whole, weight = tensor(2, 7, 8).requires_grad_(), tensor(2, 7, 8, seed=1)
    module = cht.Additive(spec)
    expected = module(whole, positions)
    expected.backward(weight)
    over_ranks = dtensor.distribute_module(cht.Additive(spec, values=module.values), mesh)
    x = spread(whole.detach(), mesh, axis).requires_grad_()
    made = over_ranks(x, positions)
    is_part(made, expected.detach(), mesh, axis)
    made.backward(spread(weight, mesh, axis))
    # PyTorch 2.5 to 2.11 may keep a gradient whole on every rank.
    is_part(x.grad.redistribute(mesh, x.placements), whole.grad, mesh, axis)
    for number in over_ranks.parameters():
        assert number.grad.placements == (
            dtensor.Replicate(),
        )  # summed over the ranks, which is seen in test_two_processes.py


def refused(call: Any) -> str:
    with pytest.raises(ClockhandsError) as caught:
        call()
    assert "hint: " in str(caught.value)
    return str(caught.value).partition("\n")[0]


def test_what_cannot_work_is_refused(mesh: Any):
    spec, whole, places = ch.Rotary(8), tensor(*SHAPE), torch.arange(7)
    x, unsummed = spread(whole, mesh, 1), dtensor.DTensor.from_local(whole, mesh, [dtensor.Partial()], run_check=False)
    cases = {
        "`x` is a DTensor with the placement": lambda: ch.rotate(unsummed, spec),
        "`x` is a DTensor that is split along its last axis": lambda: ch.rotate(spread(whole, mesh, 3), spec),
        "`queries` is a plain tensor, but": lambda: rotate_both(whole, x, spec),
        "`keys` is a plain tensor, but": lambda: rotate_both(x, whole, spec),
        "`x` is a plain tensor, but": lambda: ch.rotate(whole, spec, spread(places, mesh, 0)),
        "`positions` has the placements": lambda: ch.rotate(x, spec, spread(places, mesh, 0)),
        "`positions` must be of shape [7] or [2, 7]": lambda: ch.rotate(x, spec, places[:3]),
        "`positions` is a DTensor with the placement": lambda: cos_sin(
            spec, dtensor.DTensor.from_local(places, mesh, [dtensor.Partial()], run_check=False), like=x
        ),
        "`values` is a plain tensor that is trained": lambda: cht.Additive(ch.Learned(width=8, rows=9))(
            spread(tensor(2, 7, 8), mesh, 1)
        ),
        "`values` must be replicated": lambda: ch.add(
            spread(tensor(2, 7, 8), mesh, 1), ch.Learned(width=8, rows=9), values=spread(tensor(9, 8), mesh, 0)
        ),
        "`scores` must be the tensor of this rank": lambda: cht.Bias(ch.Alibi(4))(spread(tensor(4, 7, 7), mesh, 0)),
        "`queries` must be the tensor of this rank": lambda: ch.bias(ch.Alibi(4), spread(places, mesh, 0), 7),
        "`values` must be the tensor of this rank": lambda: cht.score_mod(
            ch.Buckets(4), 7, 7, values=spread(tensor(32, 4), mesh, 1)
        ),
    }
    both = dtensor.init_device_mesh("cpu", (mesh.size(), 1)), [dtensor.Replicate(), dtensor.Replicate()]
    elsewhere = dtensor.DTensor.from_local(places, *both, run_check=False)
    cases["`positions` and `x` are DTensors of two device meshes"] = lambda: ch.rotate(x, spec, elsewhere)
    for sentence, call in cases.items():
        assert refused(call).startswith(sentence)


# Some heads of a bias.

BIASES = {
    "alibi of 12": ch.Alibi(heads=12),
    "alibi by key": ch.Alibi(heads=8, form="key"),
    "retnet": Decay(8),
    "slopes": Slopes(ch.Alibi(heads=8).slopes),
    "t5": ch.Buckets(heads=8),
    "deberta": CeilingBuckets(8, span=4, max_distance=9),
    "deberta without buckets": Clipped(8, span=4),
    "kerple": Kerple(8),
    "fire": Fire(8, hidden=4),
    "swin": Window(8, 3, 3),
    "swin v2": LogWindow(8, 3, 3, hidden=4),
}
# Networks' products of matrices round in another order when there are fewer heads; modules compute these in float32.
ROUNDED = (Fire, LogWindow, Kerple)


def alike(found: Any, expected: Any, spec: Any) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    if isinstance(spec, ROUNDED):
        return found.shape == expected.shape and np.allclose(found, expected, rtol=3e-6, atol=3e-6)
    return np.array_equal(found, expected)


def learned(spec: Any) -> dict[str, np.ndarray] | None:
    """Learned numbers of all heads."""
    draw = np.random.default_rng(0)
    return {name: np.asarray(draw.random(shape) + 0.1, np.float32) for name, shape in spec.shapes.items()} or None


def those_of(values: Any, heads: range) -> Any:
    """Learned numbers of some heads, cut by hand."""
    where = {"table": 1, "p": 0, "a": 0, "w2": 0, "b2": 0}
    return values and {
        name: array.take(list(heads), where[name]) if name in where else array for name, array in values.items()
    }


@every("heads", [range(4, 8), range(1, 8, 3), range(8)])
@every("spec", BIASES.values())
def test_some_heads_have_the_numbers_that_they_have_among_all(spec: Any, heads: range):
    values = learned(spec)
    mine = those_of(values, heads)
    whole = ch.bias(spec, 5, 9, values=values)[list(heads)]
    assert alike(ch.bias(spec, 5, 9, values=mine, heads=heads), whole, spec)
    module = cht.Bias(spec, mine, heads=heads)
    assert alike(module(torch.zeros(1, len(heads), 5, 9)).detach()[0], whole, spec)
    prepared = module.prepare(5, 9, like=torch.zeros(1), causal=False)
    assert alike(prepared.mask.detach()[0], whole, spec)
    tensors = mine and {name: torch.from_numpy(array) for name, array in mine.items()}
    for mod in (module.score_mod(5, 9), cht.score_mod(spec, 5, 9, values=tensors, heads=heads)):
        zero, at = torch.zeros(()), [torch.tensor(place) for place in (0, 1, 4, 2)]
        assert np.allclose(mod(zero, *at).detach(), whole[1, 4, 2], rtol=3e-6, atol=3e-6)


@every("spec", [ch.Alibi(heads=12), ch.Buckets(heads=8)])
def test_some_heads_in_jax(spec: Any):
    held, heads, values = pytest.importorskip("clockhands.jax"), range(4, 8), learned(spec)
    whole = ch.bias(spec, 9, 9, values=values)[4:8]
    mine = those_of(values, heads)
    code = held.Bias(spec, mine and {name: jax.numpy.asarray(array) for name, array in mine.items()}, heads)
    assert np.allclose(code(jax.numpy.zeros((4, 9, 9))), whole, rtol=3e-6, atol=3e-6)
    step = jax.jit(lambda code, at: code.matrix(at, 9))
    assert np.allclose(step(code, jax.numpy.arange(9)), whole, rtol=3e-6, atol=3e-6)
    drawn = held.Bias.drawn(spec, jax.random.key(0), heads=heads)
    assert drawn.matrix(9, 9).shape == (4, 9, 9)


@every("spec", [ch.Buckets(heads=8), Kerple(8), Fire(8, hidden=4)])
def test_a_shard_loads_a_state_dict_of_the_whole_and_its_own(spec: Any):
    whole, parts = cht.Bias(spec), [cht.Bias(spec, heads=range(first, first + 4)) for first in (0, 4)]
    model = torch.nn.ModuleDict({"bias": whole})
    for part in parts:
        given = dict(model.state_dict())
        torch.nn.ModuleDict({"bias": part}).load_state_dict(given)
        assert given.keys() == model.state_dict().keys()
        assert all(given[f"bias.{name}"] is not None for name in spec.shapes)
    joined = torch.cat([part.matrix(9, 9) for part in parts])
    assert alike(joined.detach(), whole.matrix(9, 9).detach(), spec)
    again = cht.Bias(spec, heads=range(4, 8))
    again.load_state_dict(parts[1].state_dict())
    assert torch.equal(again.matrix(9, 9), parts[1].matrix(9, 9))
    with pytest.raises(RuntimeError, match="size mismatch"):
        again.load_state_dict(cht.Bias(spec, heads=range(2, 4)).state_dict())


def test_slopes_that_a_rank_made_for_its_own_number_of_heads_are_found():
    part, slopes = cht.Bias(ch.Alibi(heads=8), heads=range(4, 8)), torch.tensor(ch.Alibi(heads=8).slopes)
    part.load_state_dict({"slopes": slopes})
    part.load_state_dict({"slopes": slopes[4:]})
    with pytest.raises(RuntimeError, match="slopes that this code does not make"):
        part.load_state_dict({"slopes": torch.tensor(ch.Alibi(heads=4).slopes)})
    assert "heads=range(4, 8)" in repr(part)


def test_some_heads_compile_once_for_all_layers():
    torch._dynamo.reset()
    layers = [cht.Bias(ch.Alibi(heads=12), heads=range(4, 8)) for _ in range(2)]
    counter = dynamo.CompileCounter()
    for layer in layers:
        step = torch.compile(layer, backend=counter, fullgraph=True)
        off = step(torch.zeros(1, 4, 9, 9)) - layer(torch.zeros(1, 4, 9, 9))
        assert off.abs().max() <= 2**-20
    assert counter.frame_count == 1


def test_heads_and_ranks_that_there_are_not_are_refused_in_words(cases):
    sentences.hold("sharding", cases)


def test_every_bias_is_tried():
    assert {type(spec) for spec in BIASES.values()} == set(CODES)


# Positions of a rank.


@every("backend, zigzag", [("numpy", False), ("numpy", True), ("torch", False), ("torch", True), ("jax", True)])
def test_what_ranks_make_of_their_positions_joins_to_what_one_process_makes(zigzag: bool, backend: str):
    ranks, tokens = 3, 24
    rows = [rank_positions(tokens, rank, ranks, zigzag=zigzag) for rank in range(ranks)]
    order = np.concatenate(rows)
    assert sorted(order) == list(range(tokens))
    whole = np.random.default_rng(0).standard_normal((2, tokens, 8)).astype(np.float32)
    library = {"numpy": lambda: np, "torch": lambda: torch, "jax": lambda: pytest.importorskip("jax").numpy}[backend]()
    rotary, sinusoid = ch.Rotary(8), ch.Sinusoidal(8)
    for call in (lambda x, at: ch.rotate(x, rotary, at), lambda x, at: ch.add(x, sinusoid, at)):
        parts = [np.asarray(call(library.asarray(whole[:, mine]), mine)) for mine in rows]
        expected = np.asarray(call(library.asarray(whole), None))
        assert np.array_equal(np.concatenate(parts, axis=1), expected[:, order])
    for spec in (ch.Alibi(heads=4), ch.Buckets(heads=4)):
        values = learned(spec)
        given = values and {name: library.asarray(array) for name, array in values.items()}
        parts = [np.asarray(ch.bias(spec, mine, order, values=given, causal=True)) for mine in rows]
        expected = np.asarray(ch.bias(spec, tokens, tokens, values=given, causal=True))
        assert np.array_equal(np.concatenate(parts, axis=1), expected[:, order][:, :, order])


@every("ranks", [1, 2, 4])
def test_the_zigzag_is_the_order_of_pytorchs_context_parallelism(ranks: int):
    experimental = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._load_balancer")
    theirs = experimental._HeadTailLoadBalancer(16, ranks, "cpu")._generate_indices()
    ours = np.concatenate([rank_positions(16, rank, ranks, zigzag=True) for rank in range(ranks)])
    assert theirs.reshape(-1).tolist() == ours.tolist()
