"""What PyTorch's compiler is handed, in every release that pyproject.toml allows, and what replaces private names."""

import gc
import importlib.util
import pickle
import weakref

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import constants
from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.grids import Grid
from clockhands.encodings.rotary import rotate
from late import Late

torch, compiling = Late("torch"), Late("clockhands.encodings.compiling")


def test_the_compiler_is_handed_plain_values(monkeypatch: pytest.MonkeyPatch):
    """The compilers of PyTorch 2.5 to 2.11 can hand no frozen dataclass to a function that they run."""
    functions = pytest.importorskip("torch._dynamo.variables.functions")
    handed, run = [], functions.invoke_and_store_as_constant

    def noted(tx, function, name, given, named):
        handed.extend((name, each, each.is_python_constant()) for each in (*given, *named.values()))
        return run(tx, function, name, given, named)

    monkeypatch.setattr(functions, "invoke_and_store_as_constant", noted)
    turning, waves, buckets = ch.Rotary(8, axes=(0, 1, 0, 1)), AxialSinusoidal(8), ch.Buckets(2)
    grid, table = Grid((2, 3), start=7), {"table": torch.randn(32, 2)}

    def step(x, at):
        return rotate(x, turning, grid), ch.add(x, waves, grid), ch.bias(buckets, at, 6, values=table)

    torch.compiler.reset()
    torch.compile(step, fullgraph=True, backend="eager")(torch.randn(6, 8), torch.arange(6))
    assert len(handed) > 5
    assert [each for each in handed if not each[2]] == []


def test_a_constant_is_of_its_own_object():
    """An object of equal value is another, and one that is gone is not found: its number may be another's by then."""
    specs = [ch.Rotary(8), pickle.loads(pickle.dumps(ch.Rotary(8))), ch.Alibi(2), ch.Sinusoidal(8), Grid(3)]
    assert all(each._enrol() and constants.enrolled(id(each)) is each for each in specs)
    number, gone = id(specs[0]), weakref.ref(specs[0])
    del specs[0]
    gc.collect()
    assert gone() is None
    with pytest.raises(KeyError):
        constants.enrolled(number)


def test_a_release_without_the_private_names_takes_the_general_way(monkeypatch: pytest.MonkeyPatch):
    x, spec = torch.randn(2, 1, 8), ch.Rotary(8, base=771.0)
    wanted = rotate(x.numpy(), spec, [5])
    with monkeypatch.context() as without:
        for name in ("_len_torch_dispatch_stack", "_are_functorch_transforms_active", "_get_dispatch_mode"):
            without.delattr(torch._C, name)
        for name in ("is_functorch_wrapped_tensor", "is_legacy_batchedtensor"):
            without.delattr(torch._C._functorch, name)
        without.delattr(torch, "_assert_async")
        found = importlib.util.find_spec("clockhands.encodings.compiling")
        other = importlib.util.module_from_spec(found)
        found.loader.exec_module(other)
    assert other.intercepted()
    assert other.transforms_active()
    assert not other.is_gradient_batch(x)
    with pytest.raises(ch.errors.InvalidType, match="has no check that a graph can hold"):
        other.assert_later(x, "")
    # No step is remembered, and the numbers are the same.
    monkeypatch.setattr("clockhands.rotary._torch_steps.intercepted", other.intercepted)
    monkeypatch.setattr("clockhands.rotary._torch_way.transforms_active", other.transforms_active)
    monkeypatch.setattr("clockhands.rotary._torch_way.is_gradient_batch", other.is_gradient_batch)
    for _ in range(2):
        assert np.abs(rotate(x, spec, [5]).numpy() - wanted).max() <= 2.0**-22
    assert ("torch", None) not in spec._latest
