"""Wrong functions, drawn at random: a spec over what models use and somewhat beyond, and one slip."""

import math

import clockhands as ch
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.scaling import Linear, Llama3, LongRope, Ntk, Yarn
from recognition.faults import wrong_additive, wrong_biases, wrong_rotary
from recognition.faults.rates import factor_of

FAMILIES = {"rotary": wrong_rotary.ROWS, "additive": wrong_additive.ROWS, "bias": wrong_biases.ROWS}
LAYOUTS = ("halves", "interleaved")


def rotary(draw, framework, scaled=False, partial=None):
    """Any width, base, share of channels, scaling and layout; JAX compiles for every shape, so it gets few."""
    width = draw.choice((16, 64) if framework == "jax" else (8, 16, 24, 32, 40, 64, 80, 96, 128))
    base = round(math.exp(draw.uniform(math.log(1e2), math.log(5e6))), 3)
    rotated = width
    if draw.random() < 0.25 if partial is None else partial:
        rotated = width // 2 if framework == "jax" or width < 16 else 4 * draw.randrange(1, width // 4)
    scaled = draw.random() < 0.6 if scaled is None else scaled
    made = scaling(draw, rotated, scaled) if scaled else None
    return ch.Rotary(width, draw.choice(LAYOUTS), base, rotated=rotated, scaling=made)


def scaling(draw, rotated, kind):
    if kind is True:  # an NTK or YaRN ladder needs more than two pairs to have something between its ends
        kind = draw.choice(("linear", "yarn", "llama3", "ntk", "longrope") if rotated >= 8 else ("linear",))
    factor = draw.choice((2.0, 4.0, 8.0, 16.0, 32.0, 2.5, 40.0))
    original = draw.choice((512, 1024, 2048, 4096, 8192, 32768))
    if kind == "longrope":
        short = tuple(round(1 + draw.random(), 4) for _ in range(rotated // 2))
        long = tuple(round(2 + pair * draw.uniform(0.5, 1.5), 4) for pair in range(rotated // 2))
        return LongRope(short, long, original, factor)
    if kind in ("linear", "ntk"):
        return {"linear": Linear, "ntk": Ntk}[kind](factor)
    return {"llama3": Llama3, "yarn": Yarn}[kind](factor, original)


def additive(draw, framework, span=None):
    base = draw.choice((1e4, 1e4, 1e3, 100.0, round(math.exp(draw.uniform(math.log(1e2), math.log(1e6))), 2)))
    return ch.Sinusoidal(
        draw.choice((16, 64) if framework == "jax" else (8, 16, 32, 64, 96, 128, 256)),
        spacing=Geometric(base, span=span or draw.choice(("open", "open", "closed"))),
        layout=draw.choice(LAYOUTS),
        order=draw.choice(("sin-cos", "cos-sin")),
        scale=draw.choice((1.0, 1.0, 0.5, 0.1)),
    )


def alibi(draw, _, heads=(1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 20, 24, 25, 32, 40), form="distance"):
    return ch.Alibi(draw.choice(heads), form=form)


def buckets(draw, _, bidirectional=None):
    both = draw.random() < 0.5 if bidirectional is None else bidirectional
    sizes = draw.choice((1, 4, 6, 8)), draw.choice((16, 32, 64)), draw.choice((64, 128, 256))
    return ch.Buckets(*sizes, bidirectional=both)


def fault(draw, framework):
    """A row, and what its report is asked with: a spec, a slip and perhaps a coarse dtype."""
    while True:
        kind = draw.choices(tuple(FAMILIES), (6, 2, 2))[0]
        row = draw.choice([row for row in FAMILIES[kind] if row.drawn])
        made = {ch.Alibi: alibi, ch.Buckets: buckets}.get(type(row.spec("halves")), globals().get(kind))
        spec = made(draw, framework, **row.limits)
        if kind == "rotary" and (spec.rotated < 8 or ("attention-factor" in row.codes and factor_of(spec) < 1.05)):
            continue
        slip = row.slip if row.drawn == "spec" else row.drawn(draw, spec)
        if slip is None:
            continue
        coarse = kind == "rotary" and not row.codes & wrong_rotary.FINE and draw.random() < 0.2
        return row, {"spec": spec, "slip": slip, **({"dtype": "bfloat16"} if coarse else {})}
