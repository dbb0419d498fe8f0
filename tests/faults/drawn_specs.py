"""Specs drawn at random, over what models use and somewhat beyond."""

import math

import clockhands as ch
from clockhands.ladders import Geometric
from clockhands.scaling import Linear, Llama3, LongRope, Ntk, Yarn

WIDTHS = (8, 16, 24, 32, 40, 64, 80, 96, 128)
# JAX compiles for every shape, so its functions have one of few.
FEW_WIDTHS = (16, 64)


def rotary(draw, framework="numpy", scaled=None, partial=None, base=None):
    """A rotary spec: any width, base, share of channels, scaling and layout."""
    width = draw.choice(FEW_WIDTHS if framework == "jax" else WIDTHS)
    base = base or round(math.exp(draw.uniform(math.log(1e2), math.log(5e6))), 3)
    partial = draw.random() < 0.25 if partial is None else partial
    rotated = width
    if partial:
        rotated = width // 2 if framework == "jax" or width < 16 else 4 * draw.randrange(1, width // 4)
    layout = draw.choice(("halves", "interleaved"))
    scaled = draw.random() < 0.6 if scaled is None else scaled
    scaling = drawn_scaling(draw, rotated, scaled) if scaled else None
    # An NTK or YaRN ladder needs more than two pairs to have something between its ends.
    return ch.Rotary(width, layout, base, rotated=rotated, scaling=scaling)


def drawn_scaling(draw, rotated, kind=True):
    kinds = ("linear", "yarn", "llama3", "ntk", "longrope") if rotated >= 8 else ("linear",)
    kind = draw.choice(kinds) if kind is True else kind
    factor = draw.choice((2.0, 4.0, 8.0, 16.0, 32.0, 2.5, 40.0))
    original = draw.choice((512, 1024, 2048, 4096, 8192, 32768))
    if kind == "linear":
        return Linear(factor)
    if kind == "ntk":
        return Ntk(factor)
    if kind == "llama3":
        return Llama3(factor, original)
    if kind == "longrope":
        short = tuple(round(1 + draw.random(), 4) for _ in range(rotated // 2))
        long = tuple(round(2 + pair * draw.uniform(0.5, 1.5), 4) for pair in range(rotated // 2))
        return LongRope(short, long, original, factor)
    return Yarn(factor, original)


def sinusoidal(draw, framework="numpy"):
    width = draw.choice((16, 64) if framework == "jax" else (8, 16, 32, 64, 96, 128, 256))
    base = draw.choice(
        (10000.0, 10000.0, 1000.0, 100.0, round(math.exp(draw.uniform(math.log(1e2), math.log(1e6))), 2))
    )
    return ch.Sinusoidal(
        width,
        spacing=Geometric(base, span=draw.choice(("open", "open", "closed"))),
        layout=draw.choice(("halves", "interleaved")),
        order=draw.choice(("sin-cos", "cos-sin")),
        scale=draw.choice((1.0, 1.0, 0.5, 0.1)),
    )


def alibi(draw, heads=None):
    heads = heads or draw.choice((1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 20, 24, 25, 32, 40))
    return ch.Alibi(heads, form=draw.choice(("distance", "symmetric", "past")))


def buckets(draw):
    bidirectional = draw.random() < 0.5
    return ch.Buckets(
        heads=draw.choice((1, 4, 6, 8)),
        buckets=draw.choice((16, 32, 64)),
        max_distance=draw.choice((64, 128, 256)),
        bidirectional=bidirectional,
    )
