"""Modules that leave PyTorch: in ONNX Runtime at positions that the export did not see, and by AOTInductor."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, EvenlySpaced, FourierFeatures, SineOnly, SingleFrequency
from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Window
from clockhands.encodings.rotary import XPos, chunked
from clockhands.encodings.traces import BOUND
from late import Late

torch, held, written = Late("torch"), Late("clockhands.torch"), Late("torch_and_jax.written_models")

WIDTH = 16
CLOSE = {"rtol": 2.0**-21, "atol": 2.0**-19}


BIASES = [
    Alibi(heads=2),
    Alibi(2, "key"),
    Alibi(2, "last-key"),
    Decay(heads=2),
    Buckets(heads=2),
    Buckets(heads=2, bidirectional=False),
    Buckets(heads=2, max_distance=2**40),
    CeilingBuckets(heads=2),
    CeilingBuckets(heads=2, span=8, max_distance=40),
    Clipped(heads=2, span=3),
    Kerple(heads=2),
    Fire(heads=2, hidden=3),
]
ON_A_PLANE = [Window(2, 2, 3, class_token=True), LogWindow(2, 1, 7, hidden=4)]
ADDED = [
    ch.Sinusoidal(WIDTH, layout="halves", zero_rows=(1,)),
    ch.Sinusoidal(WIDTH, standardised=32, scaled=True),
    ch.Learned(WIDTH, rows=90_000, offset=2),
    EvenlySpaced(WIDTH),
    SineOnly(WIDTH),
    SingleFrequency(WIDTH),
]
TURNED = [
    ch.Rotary(WIDTH, scaling=ch.scaling.Yarn(factor=8.0, original=64)),
    ch.Rotary(WIDTH, "interleaved", rotated=8),
]


def opened(*axes: tuple[int, ...]) -> Any:
    """The shapes of an export in which these axes of each argument may have any size."""
    return (tuple(dict.fromkeys(each, torch.export.Dim.DYNAMIC) for each in axes),)


def by_onnx(
    module: Any, example: tuple[Any, ...], shapes: Any, given: tuple[Any, ...], folder: Path
) -> list[np.ndarray]:
    """What ONNX Runtime computes for ``given`` from a file that was exported with ``example``."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch and onnxscript, about themselves
        torch.onnx.export(module, example, folder / "model.onnx", dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return session.run(None, {name: array.numpy() for name, array in zip(names, given, strict=True)})


def differ(modules: list[Any], outputs: list[np.ndarray], given: tuple[Any, ...], **close: float) -> list[str]:
    """The modules whose numbers are not those that PyTorch computes."""
    with torch.no_grad():
        pairs = [(module, output, module(*given).numpy()) for module, output in zip(modules, outputs, strict=True)]
    return [str(module) for module, output, wanted in pairs if not np.allclose(output, wanted, **(close or CLOSE))]


@pytest.mark.slow
def test_biases_in_onnx(tmp_path: Path):
    modules = [held.Bias(spec) for spec in BIASES]
    example = (torch.randn(2, 2, 5, 6), torch.arange(5), torch.arange(6))
    shapes = opened((0, 2, 3), (0,), (0,))
    queries = torch.tensor([0, 5, 700, 100_000, 2**31 + 5, 2**40 + 3, 3])
    given = (torch.randn(3, 2, 7, 9), queries, torch.arange(9) * 11)
    assert differ(modules, by_onnx(written.Several(modules), example, shapes, given, tmp_path), given) == []


@pytest.mark.slow
def test_biases_of_a_decoder_in_onnx(tmp_path: Path):
    """Positions that nobody gives: the last queries, as many keys as there are, and no key after a query."""
    modules = [held.Bias(spec) for spec in (Alibi(2, "last-key"), Buckets(2), CeilingBuckets(2), Fire(2, hidden=3))]
    example, shapes = (torch.randn(2, 2, 5, 6),), opened((0, 2, 3))
    whole = written.Several(modules, lambda part, scores: part(scores, causal=True))
    given = (torch.randn(1, 2, 3, 700),)
    outputs = by_onnx(whole, example, shapes, given, tmp_path)
    with torch.no_grad():
        wanted = [module(*given, causal=True).numpy() for module in modules]
    for module, one, other in zip(modules, outputs, wanted, strict=True):
        assert np.allclose(one, other, **CLOSE), module


@pytest.mark.slow
def test_biases_of_tokens_on_a_plane_in_onnx(tmp_path: Path):
    modules = [held.Bias(spec) for spec in ON_A_PLANE]
    given = (torch.randn(3, 2, 7, 7),)
    outputs = by_onnx(written.Several(modules), (torch.randn(2, 2, 7, 7),), opened((0,)), given, tmp_path)
    assert differ(modules, outputs, given) == []


@pytest.mark.slow
def test_added_and_turned_codes_in_onnx(tmp_path: Path):
    modules = [*map(held.module, (*ADDED, *TURNED)), written.TurnedKeys(ch.Rotary(WIDTH, xpos=XPos(scale=2**20)))]
    example, shapes = (torch.randn(2, 5, WIDTH), torch.arange(5)), opened((0, 1), (0,))
    given = (torch.randn(3, 7, WIDTH), torch.tensor([0, 1, 131, 70_000, 65_537, 80_000, 3]))
    outputs = by_onnx(written.Several(modules), example, shapes, given, tmp_path)
    assert differ(modules, outputs, given, rtol=0, atol=12 * BOUND) == []
    # A row further, all differ, and so would an export that kept the positions of its example.
    assert len(differ(modules, outputs, (given[0], given[1] + 1), rtol=0, atol=12 * BOUND)) == len(modules)


@pytest.mark.slow
def test_codes_of_two_axes_in_onnx(tmp_path: Path):
    rates = np.random.default_rng(21).standard_normal((2, WIDTH // 2)).astype(np.float32) / 16
    turned = ch.Rotary(WIDTH, axes=chunked([4, 4]))
    modules = [*map(held.module, (AxialSinusoidal(WIDTH), turned)), held.module(FourierFeatures(WIDTH), rates)]
    example, shapes = (torch.randn(2, 5, WIDTH), torch.ones(5, 2, dtype=torch.int64)), opened((0, 1), (0,))
    places = torch.tensor([[0, 0], [3, 9], [9, 3], [15, 15], [0, 12], [7, 7], [1, 14]])
    given = (torch.randn(3, 7, WIDTH), places)
    outputs = by_onnx(written.Several(modules), example, shapes, given, tmp_path)
    # Fourier features are computed in float32: an angle of up to 60 is rounded to 2**-18.
    assert differ(modules, outputs, given, rtol=0, atol=2.0**-16) == []


def test_buckets_inside_a_graph_are_looked_up():
    """In the quick run too: ONNX has no search, and a table and comparisons give the bucket of every distance."""
    recorded = pytest.importorskip("torch._dynamo.testing").EagerAndRecordGraphs()
    torch.compiler.reset()
    module, scores, keys = held.Bias(Buckets(heads=2, max_distance=2**40)), torch.randn(2, 6, 300), torch.arange(300)
    queries = torch.tensor([0, 5, 2**17, 2**31 + 5, 2**40 + 3, 3])
    given = torch.compile(module, fullgraph=True, backend=recorded)(scores, queries, keys)
    assert torch.equal(given, module(scores, queries, keys))
    names = {str(node.target) for graph in recorded.graphs for node in graph.graph.nodes}
    assert not any("search" in name for name in names)


@pytest.mark.slow
def test_ahead_of_time_inductor(tmp_path: Path):
    """`torch._inductor.aoti_compile_and_package`: a library without Python, at another length than it was made with."""
    inductor = pytest.importorskip("torch._inductor")
    model = written.Several([held.Rotary(ch.Rotary(WIDTH)), held.Bias(Buckets(heads=2))], _as_attention)
    dynamic = ({2: torch.export.Dim("seq", min=2, max=4096)}, {0: torch.export.Dim("seq", min=2, max=4096)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about itself
        program = torch.export.export(model, (torch.randn(1, 2, 5, WIDTH), torch.arange(5)), dynamic_shapes=(dynamic,))
        path = inductor.aoti_compile_and_package(
            program,
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"},
        )
        loaded = inductor.aoti_load_package(path)
    given = (torch.randn(1, 2, 9, WIDTH), torch.tensor([0, 1, 2, 500, 501, 80_000, 2**31 + 5, 2**31 + 6, 2**40]))
    with torch.no_grad():
        for one, other in zip(loaded(*given), model(*given), strict=True):
            assert torch.allclose(one, other, rtol=2.0**-20, atol=2.0**-18)


def _as_attention(part: Any, x: Any, at: Any) -> Any:
    return part(x, at) if isinstance(part, held.Rotary) else part(x @ x.mT, at, at)
