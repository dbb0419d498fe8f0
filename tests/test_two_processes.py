"""Two processes that send tensors to each other, and two devices of JAX: the same as in one process.

The processes are started once for all tests of this file, and do everything that is looked at.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROCESS = '''
import json, os, sys, traceback
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor, init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.parallel import DistributedDataParallel

import clockhands as ch
import clockhands.torch as cht
from clockhands.encodings.rotary import cos_sin, rotate_both
from clockhands.encodings.sharding import rank_positions

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
found = {}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(made, expected):
    return bool(torch.equal(made.full_tensor(), expected))


def dtensors():
    spec, told = ch.Rotary(8), {}
    queries, keys, weight = draw(2, 4, 7, 8), draw(2, 2, 7, 8, seed=1), draw(2, 4, 7, 8, seed=2)
    whole = queries.clone().requires_grad_()
    expected = ch.rotate(whole, spec)
    expected.backward(weight)
    both = rotate_both(queries, keys, spec)
    for name, axis in (("batch", 0), ("heads", 1), ("sequence", 2)):
        x, other = (distribute_tensor(each, mesh, [Shard(axis)]) for each in (queries, keys))
        x.requires_grad_()
        made = ch.rotate(x, spec)
        made.backward(distribute_tensor(weight, mesh, [Shard(axis)]))
        pair = cos_sin(spec, 7, like=x)
        told[name] = [
            made.placements == x.placements == x.grad.placements,
            same(made.detach(), expected.detach()),
            same(x.grad, whole.grad),
            *(same(one.detach(), all_) for one, all_ in zip(rotate_both(x, other, spec), both)),
            same(ch.rotate(x.detach(), spec, cos_sin=pair), expected.detach()),
        ]
        with torch.no_grad():  # what is sent may be under way still when it is asked for
            moved = x.redistribute(placements=[Replicate()], async_op=True)
            told[name].append(same(ch.rotate(moved, spec), expected.detach()))
        step = torch.compile(lambda x, at: ch.rotate(x, spec, at), backend="aot_eager", fullgraph=True)
        off = step(x.detach(), torch.arange(7)).full_tensor() - expected.detach()
        told[name].append(bool(off.abs().max() <= 3 * 2**-22 * queries.abs().max()))
    return told


def added():
    """Whole numbers, whose sums are the same in any order."""
    table, told = torch.arange(72.0).reshape(9, 8), {}
    tokens, weight = torch.arange(112.0).reshape(2, 7, 8), torch.arange(112.0).reshape(2, 7, 8) % 5
    for spec, values in ((ch.Learned(width=8, rows=9), table), (ch.Sinusoidal(8, scaled=True), torch.tensor(2.0))):
        one = cht.Additive(spec, values)
        expected = one(tokens)
        expected.backward(weight)
        for name, axis in (("batch", 0), ("sequence", 1)):
            two = distribute_module(cht.Additive(spec, values), mesh)
            made = two(distribute_tensor(tokens, mesh, [Shard(axis)]))
            made.backward(distribute_tensor(weight, mesh, [Shard(axis)]))
            (number,), (own,) = two.parameters(), one.parameters()
            gradient = number.grad.full_tensor()
            told[f"{type(spec).__name__}, {name}"] = [
                same(made.detach(), expected.detach()),
                bool(torch.equal(gradient, own.grad) if number.dim() else torch.allclose(gradient, own.grad)),
            ]
    return told


class Small(torch.nn.Module):
    """A layer with a learned table, a rotation and a learned bias."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.positions, self.rotary = cht.Additive(ch.Learned(width=16, rows=8)), cht.Rotary(ch.Rotary(4))
        self.bias = cht.Bias(ch.Buckets(heads=4, buckets=8, bidirectional=False))
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x):
        x = self.positions.embed(x)
        ready = self.bias.prepare(x.shape[1], like=x)
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        q, k = self.rotary.both(q, k)
        return self.out(ready.attend(q, k, v).transpose(1, 2).flatten(-2))


DATA = draw(4, 8, 16, seed=3)


def trained(model, data, around=lambda model: model):
    """Three steps; the loss is a mean, so that the mean of the gradients of two halves is the gradient."""
    wrapped = around(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        wrapped(data).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return model


def near(state, expected):
    return state.keys() == expected.keys() and all(
        bool(torch.allclose(state[name], number, rtol=1e-4, atol=1e-5)) for name, number in expected.items()
    )


def models():
    one, told = trained(Small(), DATA).state_dict(), {}
    told["trained"] = not near(Small().state_dict(), one)
    mine = DATA[2 * rank : 2 * rank + 2]
    told["DDP"] = near(trained(Small(), mine, DistributedDataParallel).state_dict(), one)

    def alone(model):
        for each in (model.positions, model.bias):
            fully_shard(each, mesh=mesh)
        register_fsdp_forward_method(model.bias, "prepare")
        return fully_shard(model, mesh=mesh)

    for name, around in (("FSDP, the model", lambda model: fully_shard(model, mesh=mesh)), ("FSDP, each", alone)):
        model = trained(around(Small()), mine)
        split = [model.positions.weight, model.bias.table]
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False))
        told[name] = all(isinstance(each, DTensor) and each.placements == (Shard(0),) for each in split)
        told[f"{name}, state"] = near(state, one) if rank == 0 else True
        place = folder / name
        dcp.save(get_model_state_dict(model), checkpoint_id=place)
        again = around(Small())
        empty = get_model_state_dict(again)
        dcp.load(empty, checkpoint_id=place)
        set_model_state_dict(again, empty)
        told[f"{name}, loaded"] = near({key: each.full_tensor() for key, each in again.state_dict().items()}, one)
    # The whole state dict of one process into FSDP, as one loads a published model.
    model = fully_shard(Small(), mesh=mesh)
    set_model_state_dict(model, dict(one), options=StateDictOptions(full_state_dict=True))
    told["published"] = near({key: each.full_tensor() for key, each in model.state_dict().items()}, one)
    return told


def context():
    """What PyTorch's context parallelism gives to a rank, and all ranks together."""
    spec, whole, positions = ch.Rotary(8), draw(1, 2, 8, 8), torch.arange(8)
    mine = rank_positions(8, rank, 2, zigzag=True)
    x = whole.clone()
    with context_parallel(mesh, buffers=[x, positions], buffer_seq_dims=[2, 0]):
        told = [positions.tolist() == mine.tolist()]
        part = ch.rotate(x, spec, positions)
    told.append(bool(torch.equal(part, ch.rotate(whole, spec)[:, :, mine])))
    return told


for work in (dtensors, added, models, context):
    try:
        found[work.__name__] = work()
    except Exception:
        found[work.__name__] = traceback.format_exc()[-1500:]
    torch.distributed.barrier()
print(json.dumps(found), flush=True)
torch.distributed.barrier()
# PyTorch's own threads sometimes abort the process when they are taken down at its end; all that is tested was done.
os._exit(0)
'''

DEVICES = """
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import clockhands as ch
import clockhands.jax as chj
from clockhands.encodings.sharding import rank_positions

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

mesh, found = Mesh(np.array(jax.devices()), ("ranks",)), {"devices": len(jax.devices())}
draw = np.random.default_rng(0)
x = jnp.asarray(draw.standard_normal((2, 4, 8, 8)), jnp.float32)
tokens = jnp.asarray(draw.standard_normal((2, 8, 8)), jnp.float32)
table = jnp.asarray(draw.standard_normal((32, 4)), jnp.float32)
spec, sinusoid, alibi, t5 = ch.Rotary(8), ch.Sinusoidal(8), ch.Alibi(heads=4), ch.Buckets(heads=4)
zigzag = np.concatenate([rank_positions(8, rank, 2, zigzag=True) for rank in range(2)])
at = jnp.asarray(zigzag, jnp.int32)


def same(made, expected, placement=None):
    kept = placement is None or made.sharding.is_equivalent_to(NamedSharding(mesh, placement), made.ndim)
    return bool(np.array_equal(np.asarray(made), np.asarray(expected))) and kept


def near(made, expected):
    return bool(np.allclose(np.asarray(made), np.asarray(expected), rtol=0, atol=3 * 2.0**-22 * 8))


over = partial(shard_map, mesh=mesh)
rotate, add = (lambda x, at: ch.rotate(x, spec, at)), (lambda x, at: ch.add(x, sinusoid, at))
bias = lambda at: ch.bias(alibi, at, 8)
learned = lambda table, at: ch.bias(t5, at, 8, values=table)
of_heads = lambda table: ch.bias(t5, 8, 8, values=table, heads=range(table.shape[1]))
sequence = P(None, None, "ranks")

# Each device has some tokens and their positions, in any order.
made = jax.jit(over(rotate, in_specs=(sequence, P("ranks")), out_specs=sequence))(x[:, :, zigzag], at)
whole = ch.rotate(x, spec)
found["shard_map, rotate"] = same(made, jax.jit(rotate)(x[:, :, zigzag], at)) and near(made, whole[:, :, zigzag])
counted = lambda x: ch.rotate(x, spec, jax.lax.axis_index("ranks") * x.shape[-2] + jnp.arange(x.shape[-2]))
found["shard_map, axis_index"] = near(jax.jit(over(counted, in_specs=sequence, out_specs=sequence))(x), whole)
heads = over(lambda x: ch.rotate(x, spec), in_specs=P(None, "ranks"), out_specs=P(None, "ranks"))
found["shard_map, heads"] = same(heads(x), whole)
made = jax.jit(over(add, in_specs=(P(None, "ranks"), P("ranks")), out_specs=P(None, "ranks")))(tokens[:, zigzag], at)
whole = ch.add(tokens, sinusoid)[:, zigzag]
found["shard_map, add"] = same(made, jax.jit(add)(tokens[:, zigzag], at)) and near(made, whole)
made = jax.jit(over(bias, in_specs=P("ranks"), out_specs=P(None, "ranks")))(at)
found["shard_map, bias"] = same(made, jax.jit(bias)(at)) and near(made, ch.bias(alibi, 8, 8)[:, zigzag])
made = jax.jit(over(learned, in_specs=(P(), P("ranks")), out_specs=P(None, "ranks")))(table, at)
found["shard_map, learned"] = same(made, ch.bias(t5, 8, 8, values=table)[:, zigzag])
made = jax.jit(over(of_heads, in_specs=P(None, "ranks"), out_specs=P("ranks")))(table)
found["shard_map, heads of a table"] = same(made, ch.bias(t5, 8, 8, values=table))

# Gradients.
loss = lambda x: (over(rotate, in_specs=(sequence, P("ranks")), out_specs=sequence)(x, at) * weight).sum()
weight = jnp.asarray(draw.standard_normal(x.shape), jnp.float32)
found["shard_map, gradient"] = near(jax.grad(loss)(x), jax.grad(lambda x: (rotate(x, at) * weight).sum())(x))

# jit, which splits the work by the arrays that it is given.
for name, placement in (("batch", P("ranks")), ("heads", P(None, "ranks")), ("sequence", sequence)):
    split = jax.device_put(x, NamedSharding(mesh, placement))
    known, traced = jax.jit(lambda x: ch.rotate(x, spec)), jax.jit(chj.Rotary(spec).both)
    found[f"jit, {name}"] = same(known(split), known(x), placement)
    found[f"jit, {name}, traced"] = same(traced(split, split, at)[0], traced(x, x, at)[0], placement)
    found[f"outside of jit, {name}"] = same(ch.rotate(split, spec), ch.rotate(x, spec), placement)
split = jax.device_put(tokens, NamedSharding(mesh, P(None, "ranks")))
added = jax.jit(lambda x: ch.add(x, sinusoid))
found["jit, add"] = same(added(split), added(tokens), P(None, "ranks"))
of_alibi = lambda scores: chj.Bias(alibi)(scores, causal=True)
scores = jax.device_put(x, NamedSharding(mesh, P(None, "ranks")))
found["jit, bias"] = same(jax.jit(of_alibi)(scores), jax.jit(of_alibi)(x), P(None, "ranks"))
columns = jax.device_put(table, NamedSharding(mesh, P(None, "ranks")))
all_heads = lambda table: ch.bias(t5, 8, 8, values=table)
found["jit, heads of a table"] = same(jax.jit(all_heads)(columns), all_heads(table))
print(json.dumps(found))
"""


def environment(**more: str) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[1] / "src")
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("meeting")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for rank in range(2)
    ]
    try:
        told = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], told
    return [json.loads(out) for out, _ in told]


@pytest.fixture(scope="module")
def devices() -> dict[str, Any]:
    """What two devices of JAX found."""
    pytest.importorskip("jax")
    flags = environment(XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    done = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True, env=flags, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_processes_make_and_train_what_one_does(processes: list[dict[str, Any]]):
    """DTensors, learned numbers' gradients, DDP and FSDP2 with their files, and PyTorch's context parallelism."""
    for found in processes:
        assert not [told for told in found.values() if isinstance(told, str)], "what was raised"
        assert found["dtensors"] == dict.fromkeys(("batch", "heads", "sequence"), [True] * 8)
        assert len(found["added"]) == 4
        assert all(each == [True, True] for each in found["added"].values()), found["added"]
        assert len(found["models"]) == 9
        assert all(found["models"].values()), found["models"]
        assert found["context"] == [True, True]


def test_two_devices_of_jax_make_what_one_makes(devices: dict[str, Any]):
    assert devices.pop("devices") == 2
    assert len(devices) >= 18
    assert [name for name, held in devices.items() if held is not True] == []
