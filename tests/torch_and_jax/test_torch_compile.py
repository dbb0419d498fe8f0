"""Inside PyTorch's compiler: one graph, exact at every position, the numbers of the spec at hand."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Window
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import XPos, chunked
from clockhands.encodings.traces import BOUND
from late import Late

torch, held = Late("torch"), Late("clockhands.torch")

# "eager" only traces and then runs the graph; "inductor" compiles it, which takes a compiler and a while.
BACKENDS = ["eager", pytest.param("inductor", marks=pytest.mark.slow)]
# Far apart, negative, and the last that an int32 holds.
FAR = [0, 1, 255, 256, 257, 65_537, 131_071, 16_777_217, 2**30 + 3, 2**31 - 1, -1, -(2**31) + 1]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    pytest.importorskip("torch._dynamo.testing")
    torch.compiler.reset()


def exact(spec: Any, positions: Any) -> tuple[np.ndarray, np.ndarray]:
    turn = spec.attention_factor * units(spec.ladder, positions_of(positions))
    return np.real(turn), np.imag(turn)


def turned_ones(spec: Any, rotate: Callable[..., Any], positions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine, as the rotation of (1, 0) in every pair shows them."""
    first, second = spec.channels.T.tolist()
    x = torch.zeros(len(positions), spec.head_width)
    x[:, first] = 1
    out = rotate(x, torch.tensor(positions)).double().numpy()
    return out[:, first], out[:, second]


# What stands first is tried by `make test` too, without a compiler.
SPECS = {
    "halves": ch.Rotary(head_width=128, base=5e5),
    "interleaved": ch.Rotary(head_width=64, layout="interleaved"),
    "scaled": ch.Rotary(head_width=64, scaling=ch.scaling.Yarn(factor=8.0, original=64)),
    "in part": ch.Rotary(head_width=64, rotated=32, part="last"),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [("halves", "eager"), *(pytest.param(name, "inductor", marks=pytest.mark.slow) for name in SPECS)],
)
def test_a_compiled_rotation_is_exact_at_every_position(name: str, backend: str):
    spec = SPECS[name]
    rotate = torch.compile(held.Rotary(spec), fullgraph=True, backend=backend)
    given, wanted = turned_ones(spec, rotate, FAR), exact(spec, FAR)
    for one, other in zip(given, wanted, strict=True):
        assert np.abs(one - other).max() <= BOUND * spec.attention_factor


ROWS = np.random.default_rng(2).standard_normal((40, 8)).astype(np.float32)
HEADS = (2, 3, 5, 16)
CODES = {
    "rotary": (lambda: held.Rotary(ch.Rotary(head_width=16)), HEADS, {}),
    "reordered": (lambda: held.Rotary(ch.Rotary(16, "interleaved", reordered=True)), HEADS, {}),
    "xpos": (lambda: held.Rotary(ch.Rotary(16, xpos=XPos())), HEADS, {"role": "query"}),
    "sinusoid": (lambda: held.Additive(ch.Sinusoidal(8, layout="halves", zero_rows=(1,))), (2, 5, 8), {}),
    "odd": (lambda: held.Additive(ch.Sinusoidal(7, odd="extra")), (2, 5, 7), {}),
    "scaled": (lambda: held.Additive(ch.Sinusoidal(8, scaled=True), 0.5), (2, 5, 8), {}),
    "learned": (lambda: held.Additive(ch.Learned(width=8, rows=40, offset=2), ROWS), (2, 5, 8), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CODES)
def test_compiled_modules_give_what_they_give(name: str, dtype: str, backend: str):
    make, shape, further = CODES[name]
    kind = getattr(torch, dtype)
    module = make().to(kind)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(kind)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    eps = torch.finfo(kind).eps
    choices = [None, torch.tensor([[0, 1, 2, 3, 4], [9, 30, 0, 0, 7]]), torch.arange(3, 8, dtype=torch.int32)]
    for positions in choices if backend == "eager" else choices[1:2]:
        given = compiled(x, positions, **further).double()
        wanted = module(x, positions, **further).double()
        assert float((given - wanted).detach().abs().max()) <= 6 * BOUND + eps * float(wanted.detach().abs().max())


def test_a_sinusoid_that_has_computed_nothing_yet_is_one_graph():
    """In the quick run too: what a spec remembers of itself is made where the compiler does not look."""
    x, at = torch.zeros(5, 8), torch.tensor([0, 1, 900, 3, 2**30])
    for spec in (ch.Sinusoidal(8), ch.Sinusoidal(8, standardised=16)):
        compiled = torch.compile(held.Additive(spec), fullgraph=True, backend="eager")
        assert torch.allclose(compiled(x, at), held.Additive(spec)(x, at), rtol=0, atol=8 * BOUND)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decoding_loop_is_compiled_once(backend: str):
    module = held.Rotary(ch.Rotary(head_width=16))
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    x = torch.randn(1, 2, 1, 16)
    for position in (0, 1, 2**20 + 1, 2**31 - 1):
        given = compiled(x, torch.tensor([[position]]))
        assert torch.allclose(given, module(x, [[position]]), rtol=0, atol=8 * BOUND)
    assert counter.frame_count == 1


def test_copied_layers_of_ones_own_are_compiled_once():
    """A copied spec is the spec, also in modules that are not this library's."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turning, self.slopes = ch.Rotary(head_width=16), ch.Alibi(heads=2)

        def forward(self, x: Any, at: Any) -> Any:
            x = ch.rotary.rotate(x, self.turning, at)
            return x @ x.transpose(-1, -2) + ch.bias(self.slopes, at, at)

    def step(layer: Any, x: Any, at: Any) -> Any:
        return layer(x, at)

    layer, x, at = Layer(), torch.randn(2, 3, 16), torch.arange(3)
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for each in (layer, *(copy.deepcopy(layer) for _ in range(10)), copy.copy(layer)):
        assert each.turning is layer.turning
        assert each.slopes is layer.slopes
        assert torch.equal(compiled(each, x, at), compiled(layer, x, at))
    assert counter.frame_count == 1


def test_two_specs_are_two_compilations():
    """The words of the rates are constants of the graph: another spec must not be given the first one's."""

    def rotate(module: Any, x: Any, positions: Any) -> Any:
        return module(x, positions)

    compiled = torch.compile(rotate, fullgraph=True, backend="eager")
    x, positions = torch.randn(5, 16), torch.tensor([0, 3, 50, 700, 11_000])
    modules = [held.Rotary(ch.Rotary(head_width=16, base=base)) for base in (1e4, 5e5, 1e4)]
    for module in (*modules, *modules):
        assert torch.allclose(compiled(module, x, positions), module(x, positions), rtol=0, atol=8 * BOUND)
    modules[0].spec = modules[1].spec
    assert torch.allclose(compiled(modules[0], x, positions), modules[1](x, positions), rtol=0, atol=8 * BOUND)


def test_a_spec_that_has_computed_nothing_yet_compiles():
    spec = pickle.loads(pickle.dumps(ch.Rotary(head_width=16, axes=chunked([2, 3, 3]))))
    x, places = torch.randn(4, 16), torch.tensor([[0, 1, 2], [3, 4, 5], [9, 9, 9], [700, 1, 0]])
    compiled = torch.compile(lambda x, at: ch.rotary.rotate(x, spec, at), fullgraph=True, backend="eager")
    given = compiled(x, places)
    assert torch.allclose(given, ch.rotary.rotate(x, spec, places), rtol=0, atol=8 * BOUND)


@pytest.mark.slow
def test_another_length_is_one_graph_more_and_no_further():
    module = held.Rotary(ch.Rotary(head_width=16))
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for length in range(4, 30, 3):
        x = torch.randn(2, length, 16)
        assert torch.allclose(compiled(x), module(x), rtol=0, atol=8 * BOUND)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_pass_through_a_compiled_module(backend: str):
    module = held.Rotary(ch.Rotary(head_width=16))
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    x, weight, at = torch.randn(5, 16, requires_grad=True), torch.randn(5, 16), torch.tensor([9, 3, 7, 1, 0])
    (compiled(x, at) * weight).sum().backward()
    given, x.grad = x.grad, None
    (module(x, at) * weight).sum().backward()
    assert torch.allclose(given, x.grad, rtol=0, atol=8 * BOUND)


# The first is tried by `make test` too.
BIASES = [
    ch.Buckets(heads=4),
    *(
        pytest.param(spec, marks=pytest.mark.slow)
        for spec in (
            ch.Alibi(heads=4),
            ch.Alibi(3, "key"),
            ch.Alibi(4, "last-key"),
            Decay(heads=4),
            ch.Buckets(heads=4, bidirectional=False),
            CeilingBuckets(heads=4, span=8, max_distance=40),
            Clipped(heads=4, span=3),
            Kerple(heads=4),
            Kerple(heads=4, kernel="power"),
            Fire(heads=4, hidden=3),
        )
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spec", BIASES, ids=str)
def test_a_compiled_bias_is_one_graph(spec: Any, backend: str):
    module, scores = held.Bias(spec), torch.randn(2, 4 if spec.heads == 4 else 3, 3, 7)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    close = {"rtol": 2.0**-21, "atol": 2.0**-20}  # the sum with a score is rounded too: to 2⁻²⁴ of its size
    assert torch.allclose(compiled(scores), module(scores), **close)
    queries, keys = torch.tensor([[2, 3, 9], [4, 5, 6]]), torch.tensor([[1, 2, 3, 4, 5, 6, 9]])
    given, wanted = (each(scores, queries, keys, causal=True) for each in (compiled, module))
    assert torch.allclose(given, wanted, **close)
    given, wanted = (each.matrix(range(4, 6), 6, dtype=torch.float64) for each in (compiled, module))
    assert torch.allclose(given, wanted, **close)


@pytest.mark.parametrize(
    "spec",
    [Window(3, 2, 3, class_token=True), pytest.param(LogWindow(3, 2, 3, hidden=4), marks=pytest.mark.slow)],
    ids=str,
)
def test_a_compiled_window_is_one_graph(spec: Any):
    module, tokens = held.Bias(spec), spec.tokens
    scores = torch.randn(3, tokens, tokens)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(scores), module(scores), rtol=0, atol=2.0**-20)


def test_a_decoding_loop_of_biases_is_compiled_once():
    module = held.Bias(ch.Buckets(heads=2, bidirectional=False))
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    scores, keys = torch.randn(2, 1, 9), torch.arange(9)
    for position in (0, 4, 8, 2**31 - 1, 2**40):
        at = torch.tensor([position])
        assert torch.equal(compiled(scores, at, keys), module(scores, at, keys))
    assert counter.frame_count == 1


def test_gradients_reach_the_numbers_of_a_compiled_bias():
    module, scores = held.Bias(ch.Buckets(heads=2)), torch.randn(2, 5, 9)
    torch.compile(module, fullgraph=True, backend="eager")(scores).square().sum().backward()
    given, module.table.grad = module.table.grad, None
    module(scores).square().sum().backward()
    assert torch.allclose(given, module.table.grad, rtol=1e-6, atol=0)


def test_a_code_without_a_form_inside_says_so():
    compiled = torch.compile(held.Additive(ch.additive.Counter(8)), backend="eager")
    with pytest.raises(
        ch.errors.InvalidType, match="Counter cannot be computed for positions that exist only inside a trace"
    ):
        compiled(torch.zeros(3, 8), torch.arange(3))


def test_a_position_without_a_row_is_seen():
    module = held.Additive(ch.Learned(width=8, rows=40, offset=2), ROWS)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    given = compiled(torch.zeros(4, 8), torch.tensor([0, 37, 38, -1])).detach()
    assert given.isnan().all(dim=1).tolist() == [False, False, True, True]


def frames(function: Callable[..., Any], calls: Any, **options: Any) -> int:
    """How many graphs a function became in these calls, each of which is checked against the function itself."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True, **options)
    for given in calls:
        assert torch.allclose(compiled(*given), torch.as_tensor(function(*given)), rtol=0, atol=2.0**-18)
    return counter.frame_count


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        (ch.Alibi(3), 1),
        pytest.param(ch.Alibi(3), None, marks=pytest.mark.slow),
        *(
            pytest.param(spec, rows, marks=pytest.mark.slow)
            for spec in (ch.Buckets(3), Fire(3, hidden=3))
            for rows in (1, None)
        ),
    ],
    ids=str,
)
def test_a_bias_of_another_length_is_one_graph_more_and_no_further(spec: Any, rows: int | None):
    calls = [(torch.randn(2, 3, rows or length, length),) for length in (5, 7, 9, 30)]
    assert frames(held.Bias(spec), calls) == 2
    torch.compiler.reset()
    assert frames(held.Bias(spec), calls[:2], dynamic=True) == 1


def test_counts_in_a_compiled_function_of_ones_own_are_not_made_known(draw, cases):
    slopes, buckets, table = ch.Alibi(3), ch.Buckets(3), {"table": torch.randn(32, 3)}
    calls = [(torch.tensor([length]), torch.randn(3, 1, length)) for length in (5, 7, 9, 30)]
    added = {
        "keys": lambda at, scores: scores + torch.as_tensor(ch.bias(slopes, at, scores.shape[-1])),
        "both": lambda _, scores: scores + torch.as_tensor(ch.bias(slopes, *scores.shape[-2:])),
        "keys and a table": lambda at, scores: scores + ch.bias(buckets, at, scores.shape[-1], values=table),
        "its rows": lambda at, scores: scores + ch.bias(buckets, at, scores.shape[-1], values=table["table"]),
    }
    for name in draw(added, 2):
        torch.compiler.reset()
        with cases(name):
            assert frames(added[name], calls) == 2


@pytest.mark.parametrize(
    "step",
    [
        lambda x, at: x + torch.as_tensor(ch.bias(ch.Alibi(3), at, at)),
        lambda x, at: ch.rotate(x, ch.Rotary(8), at),
        lambda x, at: ch.add(x, ch.Sinusoidal(8), at),
    ],
)
def test_a_spec_made_inside_a_compiled_function_ends_the_graph_or_says_why_it_cannot(step: Callable[..., Any]):
    x, at = torch.randn(3, 8, 8), torch.arange(8)
    assert torch.allclose(torch.compile(step, backend="eager")(x, at), step(x, at), rtol=0, atol=2.0**-18)
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="is a value, not a computation: make it once, outside"):
        torch.compile(step, backend="eager", fullgraph=True)(x, at)
