"""Every module of PyTorch in every circumstance: one table, and a module of the usual kind that fails in it."""

import copy
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, FourierFeatures
from clockhands.encodings.biases import Fire, Kerple, Window
from clockhands.encodings.rotary import XPos, chunked
from late import Late
from oracles import sentences

torch, held, written = Late("torch"), Late("clockhands.torch"), Late("torch_and_jax.written_models")

ROWS = np.random.default_rng(11).standard_normal((24, 8))
SEQ = 6


@dataclass(frozen=True)
class Row:
    """A module, another one of the same family, the shape of its input, and the names of what it has learned."""

    name: str
    make: Callable[..., Any]
    other: Callable[..., Any]
    shape: tuple[int, ...]
    keys: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    positions: bool = True  # whether it takes positions that may be tensors
    slack: float = 0.0  # beside one rounding, of the largest number: for sums that come in another order

    def input(self, dtype: str = "float32", seed: int = 5) -> Any:
        values = np.random.default_rng(seed).standard_normal(self.shape)
        return torch.from_numpy(values).to(getattr(torch, dtype))


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    return make()


HEADS, TOKENS, SCORES = (2, 3, SEQ, 16), (2, SEQ, 8), (2, 4, SEQ, 9)
PLACES = np.stack([np.arange(SEQ) // 3, np.arange(SEQ) % 3, np.arange(SEQ)], axis=-1)
TABLE = ch.Learned(width=8, rows=24, offset=2)


def rotary(name: str, one: dict[str, Any], other: dict[str, Any], **arguments: Any) -> Row:
    specs = [ch.Rotary(**{"head_width": 16, **fields}) for fields in (one, other)]
    return Row(name, *(lambda spec=spec: held.Rotary(spec) for spec in specs), HEADS, arguments=arguments)


def additive(name: str, one: Any, other: Any, keys: tuple[str, ...] = (), **arguments: Any) -> Row:
    """Of two specs, each alone or with its values."""
    pairs = [each if isinstance(each, tuple) else (each, None) for each in (one, other)]
    makers = (lambda spec=spec, values=values, **where: held.Additive(spec, values, **where) for spec, values in pairs)
    return Row(name, *makers, TOKENS, keys, arguments)


def bias(name: str, one: Any, other: Any, keys: Any = (), *, shape: Any = SCORES, slack: float = 0.0) -> Row:
    makers = (lambda spec=spec, **where: seeded(lambda: held.Bias(spec, **where)) for spec in (one, other))
    return Row(name, *makers, shape, keys, positions=False, slack=slack)


AXIAL, FEATURES, SCALED = AxialSinusoidal(8), FourierFeatures(8), ch.Sinusoidal(8, scaled=True)
YARN, INTERLEAVED = ch.scaling.Yarn(factor=8.0, original=64), {"layout": "interleaved"}
MODULES = (
    rotary("rotary", {}, {"base": 5e5}),
    rotary("rotary interleaved", INTERLEAVED, {}),
    rotary("rotary in part", {"rotated": 8, "part": "last", "direction": "backward"}, {"rotated": 8}),
    rotary("rotary reordered", INTERLEAVED | {"reordered": True}, INTERLEAVED),
    rotary("rotary scaled", {"scaling": YARN}, {"scaling": ch.scaling.Linear(8.0)}),
    rotary("xpos", {"xpos": XPos()}, {"xpos": XPos(scale=64)}, role="key"),
    rotary("rotary of axes", {"axes": chunked([2, 3, 3])}, {"axes": chunked([3, 3, 2])}, positions=PLACES),
    additive("sinusoid", ch.Sinusoidal(8), ch.Sinusoidal(8, layout="halves")),
    additive("scaled sinusoid", (SCALED, 0.375), (SCALED, 0.5), ("scale",)),
    additive("learned table", (TABLE, ROWS), (TABLE, 2 * ROWS), ("weight",)),
    additive("axial", AXIAL, AxialSinusoidal(8, channels="axis-rate-wave"), positions=PLACES[:, :2]),
    additive(
        "fourier", (FEATURES, ROWS[:2, :4]), (FEATURES, 2 * ROWS[:2, :4]), ("weight",), positions=PLACES[:, :2] / 4
    ),
    additive("no position", ch.NoPosition(8), ch.Sinusoidal(8)),
    bias("alibi", ch.Alibi(heads=4), ch.Alibi(heads=4, form="key")),
    bias("buckets", ch.Buckets(heads=4), ch.Buckets(heads=4, bidirectional=False), ("table",)),
    bias("kerple", Kerple(heads=4), Kerple(heads=4, kernel="power"), ("a", "p")),
    bias(
        "fire",
        Fire(heads=4, hidden=5),
        Fire(heads=4, hidden=6),
        ("b1", "b2", "c", "threshold", "w1", "w2"),
        slack=2.0**-18,
    ),
    bias("window", Window(4, 3, 2), Window(4, 2, 3), ("table",), shape=(2, 4, SEQ, SEQ)),
)


def call(row: Row, module: Any, x: Any) -> Any:
    return module(x, **row.arguments)


def fixed(row: Row, make: Callable[..., Any] | None = None) -> Any:
    return seeded(make or row.make)


def narrow(row: Row, dtype: str) -> None:
    """Cast to a narrow dtype, it gives what it gives in float32, rounded once."""
    kind = getattr(torch, dtype)
    module = fixed(row).to(kind)
    wide = fixed(row)
    with torch.no_grad():  # learned numbers are the caller's, and were rounded by the cast
        for name, number in wide.named_parameters():
            number.copy_(module.get_parameter(name).float())
    x = row.input(dtype)
    given, wanted = call(row, module, x), call(row, wide, x.float())
    assert given.dtype == kind
    info = torch.finfo(kind)
    off = (given.double() - wanted.double()).abs()
    allowed = wanted.double().abs() * info.eps / 2 + info.tiny + row.slack * wanted.abs().max()
    assert bool((off <= allowed).all())


def bfloat16(row: Row) -> None:
    narrow(row, "bfloat16")


def half(row: Row) -> None:
    narrow(row, "float16")


def to_empty(row: Row) -> None:
    """Made without memory and given some: all that is computed is there, whatever that memory holds."""
    wanted = call(row, fixed(row), row.input())
    state = fixed(row).state_dict()
    with torch.device("meta"):
        module = fixed(row)
    module.to("meta")  # numbers that were given stay where they are
    module.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.fill_(99)
    module.load_state_dict(state)
    assert torch.equal(call(row, module, row.input()), wanted)


def deepcopy(row: Row) -> None:
    """A copy gives the same, and shares nothing that is learned."""
    module = fixed(row)
    wanted = call(row, module, row.input())
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for number in module.parameters():
            number.fill_(99)
    assert torch.equal(call(row, copied, row.input()), wanted)


def pickled(row: Row) -> None:
    """Pickled, or saved whole, it comes back the same."""
    module = fixed(row)
    wanted = call(row, module, row.input())
    assert torch.equal(call(row, pickle.loads(pickle.dumps(module)), row.input()), wanted)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert torch.equal(call(row, torch.load(file, weights_only=False), row.input()), wanted)


def state_dict(row: Row) -> None:
    """The state dict has what is learned, and nothing about positions; there are no buffers at all."""
    module = fixed(row)
    assert sorted(module.state_dict()) == sorted(row.keys)
    assert list(module.buffers()) == []
    fresh = fixed(row)
    with torch.no_grad():
        for number in fresh.parameters():
            number.zero_()
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(call(row, fresh, row.input()), call(row, module, row.input()))


def vmap(row: Row) -> None:
    """Mapped over an axis, it gives what a loop gives."""
    module = fixed(row)
    batch = torch.stack([row.input(seed=seed) for seed in (1, 2, 3)])
    mapped = torch.func.vmap(lambda x: call(row, module, x))(batch)
    looped = torch.stack([call(row, module, x) for x in batch])
    assert torch.allclose(mapped, looped, rtol=0, atol=2.0**-21)
    if not row.positions or row.arguments:
        return
    places = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 5, 3, 20, 1, 0], [2, 2, 2, 2, 2, 2]])
    mapped = torch.func.vmap(module)(batch, places)
    looped = torch.stack([module(x, at) for x, at in zip(batch, places, strict=True)])
    assert torch.allclose(mapped, looped, rtol=0, atol=2.0**-20)


def gradcheck(row: Row) -> None:
    """The gradients are those of the function, of the input and of what is learned."""
    module = fixed(row).double()
    names = [name for name, _ in module.named_parameters()]
    x = row.input("float64").requires_grad_()

    def function(x: Any, *numbers: Any) -> Any:
        parameters = dict(zip(names, numbers, strict=True))
        return torch.func.functional_call(module, parameters, (x,), row.arguments)

    numbers = [number.detach().clone().requires_grad_() for number in module.parameters()]
    assert torch.autograd.gradcheck(function, (x, *numbers), fast_mode=True, check_forward_ad=True)


def functional_gradient(row: Row) -> None:
    """`torch.func.grad`, mapped as well, gives what the backward gives."""
    module = fixed(row)
    x, weight = row.input(), row.input(seed=6)
    wanted = x.clone().requires_grad_()
    (call(row, module, wanted) * weight).sum().backward()
    given = torch.func.grad(lambda x: (call(row, module, x) * weight).sum())(x)
    assert torch.allclose(given, wanted.grad, rtol=0, atol=2.0**-21)
    both = torch.func.vmap(torch.func.grad(lambda x: (call(row, module, x) * weight).sum()))(torch.stack([x, x]))
    assert torch.allclose(both[1], wanted.grad, rtol=0, atol=2.0**-21)


def two_models(row: Row) -> None:
    """Two modules with other specs in one process give other numbers, each its own, in either order."""
    first, second = fixed(row), fixed(row, row.other)
    alone = call(row, first, row.input())
    beside = call(row, second, row.input())
    assert not torch.equal(alone, beside)
    assert torch.equal(call(row, fixed(row), row.input()), alone)
    assert torch.equal(call(row, fixed(row, row.other), row.input()), beside)


def call_order(row: Row) -> None:
    """What was asked before, longer or in another dtype, changes nothing."""
    wanted = call(row, fixed(row), row.input())
    module = fixed(row)
    call(row, module, row.input("bfloat16"))
    call(row, module, row.input("float64"))
    if row.positions and not row.arguments:
        call(row, module, row.input()[..., :2, :])
        call(row, module, torch.cat([row.input()] * 3, dim=-2))
        module(row.input(), range(7, 7 + SEQ))
    assert torch.equal(call(row, module, row.input()), wanted)


def moved(row: Row) -> None:
    """On the meta device it has shapes; back from there and loaded, it has its numbers."""
    module = fixed(row)
    wanted, state = call(row, module, row.input()), copy.deepcopy(module.state_dict())
    module.to("meta")
    assert call(row, module, row.input().to("meta")).shape == row.shape
    module.to_empty(device="cpu").load_state_dict(state)
    assert torch.equal(call(row, module, row.input()), wanted)


CHECKS = {
    check.__name__: check
    for check in (
        bfloat16,
        half,
        to_empty,
        moved,
        deepcopy,
        pickled,
        state_dict,
        vmap,
        gradcheck,
        functional_gradient,
        two_models,
        call_order,
    )
}


# PyTorch's own forward derivatives are compiled by what PyTorch has since deprecated.
@pytest.mark.parametrize("check", CHECKS)
def test_modules(check: str, cases):
    for row in MODULES:
        with cases(row.name):
            CHECKS[check](row)


@pytest.mark.parametrize("check", ["bfloat16", "half", "to_empty", "state_dict", "two_models", "call_order"])
def test_the_usual_module_is_found_out(check: str):
    def make() -> Any:
        if check != "two_models":  # where the tables are those of the first
            written.Usual.tables = {}
        return written.Usual()

    row = Row("usual", make, lambda: written.Usual(5e5), HEADS, positions=False)
    with pytest.raises(AssertionError):
        CHECKS[check](row)


def test_layers_that_are_copied_keep_one_spec():
    """The compiler knows a spec again by its identity."""
    layer = torch.nn.Sequential(held.Rotary(ch.Rotary(head_width=16)))
    assert copy.deepcopy(layer)[0].spec is layer[0].spec


def test_values_are_copied_in():
    rows = torch.from_numpy(ROWS).float()
    module = held.Additive(TABLE, rows)
    rows.zero_()
    assert torch.equal(module.weight, torch.from_numpy(ROWS).float())
    assert held.Additive(TABLE, ROWS, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    assert held.Bias(ch.Buckets(heads=2), np.zeros((32, 2), np.float32)).table.dtype == torch.float32


def test_what_is_learned_is_drawn_once_the_memory_is_there():
    with torch.device("meta"):
        modules = [held.Additive(TABLE), held.Bias(Fire(heads=4)), held.Bias(Kerple(heads=4))]
    for module in modules:
        module.to_empty(device="cpu")
        for number in module.parameters():
            number.data.fill_(torch.nan)
        module.reset_parameters()
        assert all(bool(number.isfinite().all()) for number in module.parameters())
    assert 0.01 < modules[0].weight.std().item() < 0.03
    assert modules[1].threshold.item() == 512


def test_kerple_stays_a_kernel():
    module = held.Bias(Kerple(heads=2, kernel="power"), {"p": np.array([3.0, -1.0]), "a": np.array([-1.0, 1.0])})
    allowed = held.Bias(Kerple(heads=2, kernel="power"), {"p": np.array([2.0, 0.01]), "a": np.array([0.01, 1.0])})
    assert torch.equal(module.matrix(4, 4), allowed.matrix(4, 4))


def test_a_bias_is_masked_when_asked_and_stands_where_it_is_told():
    module, scores = held.Bias(ch.Alibi(heads=2)), torch.zeros(2, 1, 4)
    assert torch.equal(module(scores), torch.from_numpy(ch.bias(ch.Alibi(heads=2), 1, 4)))
    causal = module(torch.zeros(2, 4, 4), causal=True)
    assert bool(causal.isneginf().triu(1).sum() == 12)
    moved = module(scores, [2**40], range(2**40 - 3, 2**40 + 1))
    assert torch.equal(moved, module(scores))
    narrow = module.matrix(4, 4, dtype=torch.bfloat16)
    assert torch.equal(narrow, module.matrix(4, 4, dtype=torch.float64).to(torch.bfloat16))


def test_the_score_mod_of_a_module_adds_its_matrix():
    module = seeded(lambda: held.Bias(ch.Buckets(heads=2)))
    mod, matrix = module.score_mod(3, 3), module.matrix(3, 3).detach()
    for head, query, key in np.ndindex(2, 3, 3):
        given = mod(torch.tensor(1.0), 0, torch.tensor(head), torch.tensor(query), torch.tensor(key))
        assert abs(given.detach().item() - 1 - matrix[head, query, key].item()) < 1e-6


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("torch_modules", cases)
