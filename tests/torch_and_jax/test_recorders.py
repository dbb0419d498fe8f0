"""What records PyTorch programs without knowing positions is refused in words: TorchScript and torch.fx."""

from typing import Any

import pytest

import clockhands as ch
from late import Late

torch, held, written = Late("torch"), Late("clockhands.torch"), Late("torch_and_jax.written_models")

X, SCORES = (5, 8), (2, 5, 5)
MODULES = {
    "Rotary": (lambda: held.Rotary(ch.Rotary(8)), X),
    "Additive": (lambda: held.Additive(ch.Learned(8, rows=9)), X),
    "Bias": (lambda: held.Bias(ch.Buckets(heads=2)), SCORES),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_torchscript_is_refused(name: str, alone: bool):
    code = MODULES[name][0]()
    with pytest.raises(ch.errors.InvalidType) as caught:
        torch.jit.script(code if alone else written.Holding(code))
    assert str(caught.value) == (
        f"torch.jit.script cannot compile {name} of clockhands.torch, which computes from a spec.\n"
        "hint: Use torch.compile or torch.export, which accept new positions."
    )


RECORDED = {
    "rotate": lambda x: ch.rotate(x, ch.Rotary(8)),
    "both": lambda x: held.Rotary(ch.Rotary(8)).both(x, x),
    "add": lambda x: ch.add(x, ch.Sinusoidal(8)),
    "bias": lambda at: ch.bias(ch.Alibi(heads=2), at, at),
}


@pytest.mark.parametrize("name", [*RECORDED, *MODULES])
def test_symbolic_traces_are_refused(name: str):
    with pytest.raises(ch.errors.InvalidValue) as caught:
        torch.fx.symbolic_trace(RECORDED.get(name) or written.Holding(MODULES[name][0]()))
    assert str(caught.value) == (
        "torch.fx.symbolic_trace cannot record positions: it knows neither their numbers nor a shape.\n"
        "hint: Use torch.compile or torch.export; or make the module a leaf, by is_leaf_module of a torch.fx.Tracer."
    )


@pytest.mark.parametrize("name", MODULES)
def test_a_leaf_is_recorded_as_a_call(name: str):
    """What the hint says."""

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, qualname: str) -> bool:
            return isinstance(m, held.PositionModule) or super().is_leaf_module(m, qualname)

    make, shape = MODULES[name]
    model, x = written.Holding(make()), torch.zeros(shape)
    recorded = torch.fx.GraphModule(model, Tracer().trace(model))
    assert torch.equal(recorded(x), model(x))
