"""Rotation on a GPU beside copying queries and keys, torch.compile and other libraries: `python benchmarks/gpu.py`.

Each contestant gets queries [batch, heads, seq, 128] and a quarter as many keys, and positions that lie on the GPU.
Times are medians of CUDA events, in one process; the share is the time of the copy divided by that of the contestant,
so that 1 is the bandwidth of the copy. A step of decoding is 30 layers of one token, phases made once, as wall time.
"""

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import clockhands as ch
import clockhands.torch as cht
from clockhands.encodings.rotary import cos_sin, rotate_both

LAYERS, WIDTH = 30, 128
SHAPES = {"prefill": (1, 32, 8192), "batch": (8, 32, 1024), "decode": (64, 32, 1)}


def median(call: Callable[[], object], repetitions: int = 30) -> float:
    """Milliseconds of a call on the GPU.

    A gigabyte is written before each: the cache holds nothing of the heads, and while it is written the CPU launches
    the kernels, which are then waiting. What the CPU takes is measured as decoding.
    """
    cold = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    for _ in range(5):
        call()
    times = []
    for _ in range(repetitions):
        cold.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def contestants(q: torch.Tensor, k: torch.Tensor, at: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Every way to rotate these queries and keys, and the copy."""
    into, beside = torch.empty_like(q), torch.empty_like(k)
    spec = ch.Rotary(WIDTH)
    pairs = ch.Rotary(WIDTH, layout="interleaved")
    compiled = torch.compile(cht.Rotary(spec).both, dynamic=False)
    shared = cos_sin(spec, at, like=q)
    watched = [x.detach().requires_grad_() for x in (q, k)]  # as in training; `q` and `k` themselves need no gradient
    found: dict[str, Callable[[], object]] = {
        "copy": lambda: (into.copy_(q), beside.copy_(k)),
        "clockhands halves": lambda: rotate_both(q, k, spec, at),
        "clockhands interleaved": lambda: rotate_both(q, k, pairs, at),
        "clockhands halves, cos_sin given": lambda: rotate_both(q, k, spec, cos_sin=shared),
        "clockhands halves, with gradients": lambda: rotate_both(*watched, spec, at),
        "clockhands halves, cos_sin given, with gradients": lambda: rotate_both(*watched, spec, cos_sin=shared),
        "clockhands halves, torch.compile": lambda: compiled(q, k, at),
    }
    theirs = transformers_way(q, at)
    if theirs is not None:
        apply, cos, sin = theirs
        fused = torch.compile(apply, dynamic=False)
        found["transformers"] = lambda: apply(q, k, cos, sin)
        found["transformers, torch.compile"] = lambda: fused(q, k, cos, sin)
    try:
        liger: Any = importlib.import_module("liger_kernel.transformers.rope")
    except ImportError:
        return found
    if theirs is not None:
        ours_q, ours_k = q.clone(), k.clone()  # it writes over what it is given
        found["liger (in place)"] = lambda: liger.liger_rotary_pos_emb(ours_q, ours_k, *theirs[1:])
    return found


def transformers_way(q: torch.Tensor, at: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor] | None:
    """Llama's function of Transformers with its cosines and sines, made before the clock starts."""
    try:
        llama: Any = importlib.import_module("transformers.models.llama.modeling_llama")
        config: Any = importlib.import_module("transformers").LlamaConfig(head_dim=WIDTH)
    except ImportError:
        return None
    where = at[None] if at.ndim == 1 else at
    cos, sin = llama.LlamaRotaryEmbedding(config, device=q.device)(q, where)
    return llama.apply_rotary_pos_emb, cos, sin


def decoding(batch: int) -> dict[str, float]:
    """Microseconds a layer of one token through 30 layers, eager, phases made once a step."""
    q = torch.randn(batch, 32, 1, WIDTH, device="cuda", dtype=torch.bfloat16)
    k, at, spec = q[:, :8].clone(), torch.tensor([4097], device="cuda"), ch.Rotary(WIDTH)
    llama: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    config: Any = importlib.import_module("transformers").LlamaConfig(head_dim=WIDTH)
    embedding = llama.LlamaRotaryEmbedding(config, device=q.device)

    def ours() -> None:
        pair = cos_sin(spec, at, like=q)
        for _ in range(LAYERS):
            rotate_both(q, k, spec, cos_sin=pair)

    def alone() -> None:
        for _ in range(LAYERS):
            rotate_both(q, k, spec, at)

    def theirs() -> None:
        cos, sin = embedding(q, at[None])
        for _ in range(LAYERS):
            llama.apply_rotary_pos_emb(q, k, cos, sin)

    def once(call: Callable[[], None]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / LAYERS * 1e6

    ways = {"clockhands, shared": ours, "clockhands, each layer alone": alone, "transformers": theirs}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(25):
        for name, call in ways.items():
            if repetition >= 5:
                times[name].append(once(call))
            else:
                call()
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Print a table and, with a path, write it as JSON."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a GPU that PyTorch can use.")
    rows = []
    for name, (batch, heads, seq) in SHAPES.items():
        for dtype in (torch.bfloat16, torch.float32):
            q = torch.randn(batch, heads, seq, WIDTH, device="cuda", dtype=dtype)
            k, at = q[:, : heads // 4].clone(), torch.arange(4096, 4096 + seq, device="cuda")
            times = {}
            for who, call in contestants(q, k, at).items():
                try:
                    times[who] = median(call)
                except Exception as error:  # noqa: BLE001 - what a release of PyTorch cannot compile is left out
                    print(f"{name:8} {str(dtype)[6:]:9} {who:36} fails: {type(error).__name__}")
            for who, milliseconds in times.items():
                share = times["copy"] / milliseconds
                rows.append({"shape": name, "dtype": str(dtype), "name": who, "ms": milliseconds, "of the copy": share})
                print(f"{name:8} {str(dtype)[6:]:9} {who:36} {milliseconds:8.4f} ms  {share:5.2f} of the copy")
    steps = decoding(1)
    for who, microseconds in steps.items():
        print(f"decoding {who:36} {microseconds:8.1f} microseconds a layer")
    packages = {}
    for name in ("clockhands", "torch", "triton", "transformers", "liger-kernel"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    print(torch.cuda.get_device_name(), packages)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(
                {"gpu": torch.cuda.get_device_name(), "versions": packages, "rows": rows, "decoding": steps}, file
            )


if __name__ == "__main__":
    main()
