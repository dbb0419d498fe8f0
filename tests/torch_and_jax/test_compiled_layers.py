"""Layers that are compiled one by one, each with a spec of its own: equal specs are one compilation."""

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import clockhands as ch
from clockhands.encodings.scaling import Yarn
from late import Late

torch, held = Late("torch"), Late("clockhands.torch")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    pytest.importorskip("torch._dynamo.testing")
    torch.compiler.reset()


MAKERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "rotary": (lambda: held.Rotary(ch.Rotary(head_width=64, scaling=Yarn(factor=8.0, original=64))), (2, 5, 64)),
    "sinusoid": (lambda: held.Additive(ch.Sinusoidal(8)), (2, 5, 8)),
    "learned": (lambda: held.Additive(ch.Learned(width=8, rows=9)), (2, 5, 8)),
    "ALiBi": (lambda: held.Bias(ch.Alibi(heads=2)), (2, 5, 5)),
    "buckets": (lambda: held.Bias(ch.Buckets(heads=2)), (2, 5, 5)),
}


@pytest.mark.parametrize(
    "name",
    ["rotary", "buckets", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sinusoid", "learned", "ALiBi"))],
)
def test_twelve_layers_with_specs_of_their_own_are_compiled_once(name: str):
    make, shape = MAKERS[name]
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")

    def step(layer: Any, x: Any) -> Any:
        return layer(x)

    compiled, x = torch.compile(step, fullgraph=True, backend=counter), torch.randn(shape)
    layers = [make() for _ in range(11)]
    for layer in (*layers, pickle.loads(pickle.dumps(layers[0]))):
        assert torch.allclose(compiled(layer, x), layer(x), rtol=0, atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.slow
def test_blocks_of_one_model_are_compiled_once():
    class Block(torch.nn.Module):
        def __init__(self, spec: Any) -> None:
            super().__init__()
            self.turning, self.bias = held.Rotary(spec), held.Bias(ch.Buckets(heads=2))

        def forward(self, x: Any) -> Any:
            x = self.turning(x)
            return torch.softmax(self.bias(x @ x.mT), -1) @ x

    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    blocks = [Block(ch.Rotary(8)) for _ in range(4)]
    for block in blocks:
        block.compile(fullgraph=True, backend=counter)
    x = torch.randn(1, 2, 5, 8)
    for block in blocks:
        block(x)
    assert counter.frame_count == 1
    other = Block(ch.Rotary(8, base=5e5))
    wanted = other(x)
    other.compile(fullgraph=True, backend=counter)
    assert torch.allclose(other(x), wanted, rtol=0, atol=1e-5)
    assert counter.frame_count == 2


def test_modules_with_equal_specs_hold_one_object():
    first, second = held.Rotary(ch.Rotary(8)), held.Rotary(ch.Rotary(8))
    assert second.spec is first.spec
    second.spec = ch.Rotary(8, base=5e5)
    assert second.spec is not first.spec
    second.spec = ch.Rotary(8)
    assert second.spec is first.spec
    assert pickle.loads(pickle.dumps(second)).spec is first.spec
    assert held.Rotary(ch.Rotary(8, "interleaved")).spec != first.spec


def test_a_spec_is_not_kept_alive():
    module = held.Rotary(ch.Rotary(head_width=34, base=777.0))
    gone = weakref.ref(module.spec)
    del module
    gc.collect()
    assert gone() is None
    assert held.Rotary(ch.Rotary(head_width=34, base=777.0)).spec.base == 777.0


def test_a_spec_without_a_hash_is_held_as_it_is():
    class Same:
        __hash__ = None

        def __call__(self, ladder: Any, length: int | None) -> Any:
            return ladder

    spec = ch.Rotary(8, scaling=Same())
    assert held.Rotary(spec).spec is spec
