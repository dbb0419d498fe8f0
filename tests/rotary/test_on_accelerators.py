"""Positions on a GPU stay there: phases are made by integer arithmetic where the positions are.

Without a GPU the same arithmetic runs on the CPU: the rule that sends whole numbers on an accelerator that way is
replaced, and whatever would read the numbers of a tensor raises an error.
"""

import shutil
import warnings
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import traces
from clockhands.encodings.rotary import XPos, chunked, cos_sin, rerotate, rotate, rotate_both
from clockhands.encodings.scaling import Linear, Yarn
from clockhands.encodings.traces import BOUND
from clockhands.errors import InvalidValue
from late import Late
from oracles.rows import every

torch = Late("torch")

FAR = [0, 1, 17, 4096, 123_457, 10**9, 2**31 - 1, 2**40 + 3, 2**63 - 1, -5, -(2**62)]
GRID = np.stack([np.arange(11), np.arange(11) // 3, np.arange(11)[::-1] * 1000], axis=-1)
CASES = {
    "plain": (ch.Rotary(16), FAR),
    "interleaved": (ch.Rotary(16, layout="interleaved"), FAR),
    "in part, backward": (ch.Rotary(16, rotated=8, part="last", direction="backward"), FAR),
    "scaled": (ch.Rotary(16, scaling=Yarn(factor=8.0, original=64)), FAR),
    "batched": (ch.Rotary(16), [FAR, FAR[::-1]]),
    "axes": (ch.Rotary(16, axes=chunked([2, 3, 3])), GRID),
}
DTYPES = ("int64", "int32", "uint8")


def to_numbers(*_args: Any, **_named: Any) -> Any:
    raise AssertionError("the numbers of a tensor were asked for")


@pytest.fixture
def on_an_accelerator(monkeypatch):
    """Whole numbers of PyTorch are taken for ones on an accelerator, and their numbers must not be asked for."""
    pytest.importorskip("torch")

    def stay(positions: Any) -> bool:
        return isinstance(positions, torch.Tensor) and not positions.is_floating_point()

    monkeypatch.setattr(traces, "stay", stay)
    monkeypatch.setattr(
        "clockhands.rotary._torch_steps._plain", lambda _: False
    )  # steps are remembered for heads on the CPU

    def seal():
        for name in ("__array__", "numpy", "cpu", "item", "tolist", "__bool__", "__int__", "__index__"):
            monkeypatch.setattr(torch.Tensor, name, to_numbers)

    return seal


def exact(x: Any, spec: ch.Rotary, positions: Any, **named: Any) -> np.ndarray:
    return rotate(x.double().numpy(), spec, np.asarray(positions), **named)


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_near_the_exact_one_and_no_number_is_asked_for(case, on_an_accelerator, monkeypatch):
    spec, positions = CASES[case]
    x, at = torch.randn(2, 3, 11, 16, generator=torch.Generator().manual_seed(1)), torch.tensor(positions)
    expected = exact(x, spec, positions)
    rotate(x, spec, at)  # the first call keeps what follows from the spec
    on_an_accelerator()
    rotated = rotate(x, spec, at)
    queries, keys = rotate_both(x, x[:, :1], spec, at)
    pair = cos_sin(spec, at, like=x)
    shared = rotate(x, spec, cos_sin=pair)
    monkeypatch.undo()
    # The sum of two products with a cosine and a sine that are each within BOUND, and the rounding of float32.
    assert np.abs(rotated.numpy() - expected).max() <= 3 * BOUND * spec.attention_factor * float(x.abs().max())
    assert torch.equal(rotated, queries)
    assert torch.equal(rotated[:, :1], keys)
    assert torch.equal(rotated, shared)
    assert pair.cosine.shape == (*at.shape[: at.ndim - (spec.axes is not None)], spec.rotated // 2)


@pytest.mark.usefixtures("on_an_accelerator")
@every("dtype", DTYPES)
def test_every_dtype_of_whole_numbers(dtype):
    spec, x = ch.Rotary(16), torch.randn(4, 16)
    at = torch.tensor([0, 3, 100, 127]).to(getattr(torch, dtype))
    expected = exact(x, spec, [0, 3, 100, 127])
    assert np.abs(rotate(x, spec, at).numpy() - expected).max() <= 3 * BOUND * float(x.abs().max())


@pytest.mark.usefixtures("on_an_accelerator")
def test_xpos_in_both_roles():
    spec, x = ch.Rotary(16, xpos=XPos(scale=512.0)), torch.randn(5, 16)
    at = torch.tensor([0, 1, 5, 100, 700])
    for role in ("query", "key"):
        expected = exact(x, spec, at, role=role)
        found = rotate(x, spec, at, role=role).numpy()
        # The growth is made in float32 too: its exponent is rounded once, and the power is off by a few units.
        assert np.abs(found - expected).max() <= 16 * BOUND * float(np.abs(expected).max())


@pytest.mark.usefixtures("on_an_accelerator")
def test_keys_of_a_cache_are_moved():
    spec, x = ch.Rotary(16), torch.randn(2, 4, 16)
    old, new = torch.tensor([5, 6, 7, 8]), torch.tensor([1, 2, 3, 4])
    expected = exact(x, spec, new)
    for from_, to in ((old, new), (old, [1, 2, 3, 4]), ([5, 6, 7, 8], new)):
        moved = rerotate(rotate(x, spec, [5, 6, 7, 8]), spec, from_, to)
        assert np.abs(moved.numpy() - expected).max() <= 16 * BOUND * float(x.abs().max())


@pytest.mark.usefixtures("on_an_accelerator")
def test_float64_heads_are_rotated_exactly_and_fractions_too():
    spec, x = ch.Rotary(16), torch.randn(3, 16, dtype=torch.float64)
    assert torch.equal(rotate(x, spec, torch.tensor([1, 2, 10**12])), rotate(x, spec, [1, 2, 10**12]))
    halves = rotate(x.float(), spec, torch.tensor([0.5, 1.5, 2.5]))
    assert torch.equal(halves, rotate(x.float(), spec, [0.5, 1.5, 2.5]))


@pytest.mark.usefixtures("on_an_accelerator")
def test_a_wrong_shape_is_refused():
    with pytest.raises(InvalidValue, match=r"must be of shape \[3\]"):
        rotate(torch.randn(3, 16), ch.Rotary(16), torch.arange(4))


def test_on_the_cpu_positions_are_made_exact_as_before():
    spec, x = ch.Rotary(16), torch.randn(1, 11, 16)
    assert torch.equal(rotate(x, spec, torch.tensor(FAR)), rotate(x, spec, FAR))


if shutil.which("nvidia-smi"):

    @pytest.mark.parametrize("case", CASES)
    def test_on_a_gpu_nothing_waits_and_a_graph_captures_it(case):
        spec, positions = CASES[case]
        x = torch.randn(2, 3, 11, 16, device="cuda")
        at = torch.tensor(positions, device="cuda")
        expected = exact(x.cpu(), spec, positions)
        queries, keys = rotate_both(x, x[:, :1], spec, at)
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch calls the mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            queries, keys = rotate_both(x, x[:, :1], spec, at)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        bound = 3 * BOUND * spec.attention_factor * float(x.abs().max())
        assert np.abs(queries.cpu().numpy() - expected).max() <= bound
        assert np.abs(keys.cpu().numpy() - expected[:, :1]).max() <= bound
        moved = at.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = rotate(x, spec, moved)
        moved.copy_(at.flip(0) if at.ndim == 1 else at)
        graph.replay()
        assert torch.equal(captured, rotate(x, spec, moved))

    @pytest.mark.parametrize("layout", ["halves", "interleaved"])
    @pytest.mark.parametrize("axis", [1, 2])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
    def test_one_kernel_gives_what_the_formula_gives_and_so_does_its_backward(layout, axis, dtype):
        spec, dtype = ch.Rotary(48, layout=layout, rotated=24, scaling=Linear(2.0)), getattr(torch, dtype)
        shape = (2, 5, 37, 48) if axis == 2 else (2, 37, 5, 48)
        at = torch.randint(-1000, 10**9, (2, 37), device="cuda")
        x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
        rotated = rotate(x, spec, at, seq_axis=axis)
        assert torch.equal(rotated, rotate(x, spec, seq_axis=axis, cos_sin=cos_sin(spec, at, like=x)))
        known = x.detach().cpu().requires_grad_()
        expected = rotate(known, spec, at.cpu(), seq_axis=axis)
        gradient = torch.randn(shape, device="cuda", dtype=dtype)
        (ours,) = torch.autograd.grad(rotated, x, gradient)
        (theirs,) = torch.autograd.grad(expected, known, gradient.cpu())
        unit = {torch.float32: 3 * BOUND, torch.float64: 1e-14, torch.bfloat16: 2**-7, torch.float16: 2**-9}[dtype]
        for found, wanted in ((rotated, expected), (ours, theirs)):
            assert (found.cpu() - wanted).detach().abs().max() <= 2 * unit * float(wanted.detach().abs().max())
