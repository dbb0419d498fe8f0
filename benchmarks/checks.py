"""What a check costs: right and wrong functions of three libraries, at 10,000 positions and 128 channels."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from timing import Target

import clockhands as ch
from clockhands.encodings.scaling import Yarn
from clockhands.testing import check_additive, check_bias, check_rotary

WIDTH, MOST = 128, 1.0
ROTARY = ch.Rotary(WIDTH)
SCALED = ch.Rotary(WIDTH, base=1e6, scaling=Yarn(4.0, 32_768))
SINUSOIDAL = ch.Sinusoidal(512)
ALIBI = ch.Alibi(heads=12)


def rotary(library: Any, rates: Any, positions_in: Callable[[Any], Any] = lambda at: at) -> Callable[[Any, Any], Any]:
    """A rotation of halves, as libraries write it."""
    join = library.cat if library is torch else library.concatenate

    def turned(x: Any, positions: Any) -> Any:
        phases = positions_in(positions)[:, None] * rates
        cosine, sine = library.cos(phases), library.sin(phases)
        half = x.shape[-1] // 2
        a, b = x[:, :half], x[:, half:]
        made = join([a * cosine - b * sine, a * sine + b * cosine], -1)
        return made.to(x.dtype) if library is torch else made.astype(x.dtype)

    return turned


def plain(spec: ch.Rotary) -> np.ndarray:
    return np.array(spec.rates, np.float32)


def sinusoids(x: Any, positions: Any) -> Any:
    phases = positions[:, None] * torch.tensor(SINUSOIDAL.ladder.rates)
    return x + torch.stack([phases.sin(), phases.cos()], -1).flatten(-2).to(x.dtype)


def alibi(queries: Any, keys: Any, slopes: np.ndarray) -> np.ndarray:
    return -slopes[:, None, None] * np.abs(queries[:, None] - keys).astype(np.float32)


def checks(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """Median seconds of each check, and what they have to reach; of JAX the first too, which compiles."""
    slopes = np.array(ALIBI.slopes, np.float32)
    rates = {library: library.asarray(plain(ROTARY)) for library in (np, torch, jnp)}
    rows: list[tuple[str, Callable[[], Any]]] = [
        *(
            (
                f"right rotary, {library.__name__}",
                lambda library=library: check_rotary(rotary(library, rates[library]), ROTARY),
            )
            for library in (np, torch, jnp)
        ),
        (
            "rotary, positions in bfloat16",
            lambda: check_rotary(rotary(torch, rates[torch], lambda at: at.bfloat16().float()), ROTARY, raises=False),
        ),
        (
            "rotary, scaling dropped",
            lambda: check_rotary(rotary(np, plain(ch.Rotary(WIDTH, base=1e6))), SCALED, raises=False),
        ),
        ("rotary, nothing known", lambda: check_rotary(lambda x, _: x[:, ::-1].copy(), SCALED, raises=False)),
        ("right sinusoids", lambda: check_additive(sinusoids, SINUSOIDAL)),
        ("right ALiBi", lambda: check_bias(lambda queries, keys: alibi(queries, keys, slopes), ALIBI)),
        (
            "ALiBi, slopes reversed",
            lambda: check_bias(lambda queries, keys: alibi(queries, keys, slopes[::-1]), ALIBI, raises=False),
        ),
    ]
    figures: dict[str, float] = {}
    targets = []
    for what, check in rows:
        first, *others = [_seconds(check) for _ in range(1 + repetitions)]
        median = statistics.median(others)
        figures |= {f"{what}, first": first, what: median}
        targets.append(Target(f"check of {what}, first time", first, MOST, "s"))
        targets.append(Target(f"check of {what}", median, MOST, "s"))
    return figures, targets


def _seconds(check: Callable[[], Any]) -> float:
    start = time.perf_counter()
    check()
    return time.perf_counter() - start
