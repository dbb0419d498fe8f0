"""Random rotations, in an arithmetic of their own, are identified: all of them.

Each is written here in a few lines of NumPy, apart from the library: rates by the definition, phases in the drawn
precision, pairs turned by hand.
"""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import rotate
from clockhands.recognition.functions import identify_function

KINDS = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# What stays of a phase's rate in each: a unit of the last bit of a rate, and of the powers it was made by.
UNITS = {"float64": 2.0**-52, "float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Drawn:
    """A rotation: everything that says what it does."""

    width: int
    rotated: int
    last: bool
    layout: str
    backward: bool
    reordered: bool
    base: float
    over_whole: bool
    scaling: str
    numbers: dict[str, float]
    dtype: str

    @property
    def rates(self) -> np.ndarray:
        """By the definitions, in double precision."""
        pairs = self.rotated // 2
        index = np.arange(pairs)
        rates = self.base ** (-2 * index / (self.width if self.over_whole else self.rotated))
        factor = self.numbers.get("factor", 1.0)
        if self.scaling == "linear":
            return rates / factor
        if self.scaling == "ntk":
            return rates * factor ** (-index / (pairs - 1))
        if self.scaling == "proportional":
            return np.where(index < int(self.numbers["fraction"] * pairs), rates, 0)
        if self.scaling == "longrope":
            return rates / np.round(1 + self.numbers["steep"] * index**1.5, 2)
        original = self.numbers.get("original", 0.0)
        turns = original * rates / (2 * math.pi)
        if self.scaling == "llama3":
            kept = np.clip((turns - 1) / 3, 0, 1)
            return kept * rates + (1 - kept) * rates / factor
        if self.scaling == "yarn":
            per_pair = math.log(rates[0] / rates[1])
            begin, end = (math.log(original / (2 * math.pi * turn)) / per_pair for turn in (32, 1))
            begin, end = max(math.floor(begin), 0), min(math.ceil(end), 2 * pairs - 1)
            slowed = np.clip((index - begin) / (end - begin), 0, 1)
            return rates * (1 - slowed) + rates / factor * slowed
        return rates

    @property
    def attention_factor(self) -> float:
        return 0.1 * math.log(self.numbers["factor"]) + 1 if self.scaling == "yarn" else 1.0

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The rotation in its precision: rates and product in it, cosine and sine of what came out, in float32."""
        kind = KINDS[self.dtype]
        places = positions.astype(np.float64 if self.dtype == "float64" else np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            places = places.astype(kind)
            phases = (places[:, None] * self.rates.astype(kind)).astype(kind).astype(np.float64)
            cosine, sine = (self.attention_factor * wave(phases).astype(np.float32) for wave in (np.cos, np.sin))
        sine = -sine if self.backward else sine
        start = self.width - self.rotated if self.last else 0
        turned = x.astype(np.float32).copy()
        part = x[:, start : start + self.rotated].astype(np.float32)
        pairs = self.rotated // 2
        a, b = (part[:, :pairs], part[:, pairs:]) if self.layout == "halves" else (part[:, ::2], part[:, 1::2])
        a, b = a * cosine - b * sine, a * sine + b * cosine
        if self.layout == "halves" or self.reordered:
            turned[:, start : start + self.rotated] = np.concatenate([a, b], axis=-1)
        else:
            turned[:, start : start + self.rotated] = np.stack([a, b], axis=-1).reshape(len(x), -1)
        return turned


def drawn(seed: int) -> Drawn:
    draw = np.random.default_rng(20_000 + seed)
    scaling = ["none", "linear", "ntk", "yarn", "llama3", "longrope", "proportional", "none"][seed % 8]
    width = int(draw.choice([32, 64, 80, 96, 128]))
    partial = scaling != "longrope" and draw.integers(3) == 0
    rotated = int(width // draw.choice([2, 4]) // 2 * 2) if partial else width
    rotated = max(rotated, 16 if scaling == "proportional" else 8)
    dtypes = ["float64", "float32", "bfloat16", "float16"]
    dtype = "float64" if scaling == "longrope" else str(draw.choice(dtypes))
    dtype = "float32" if scaling in ("yarn", "llama3", "ntk") and dtype.endswith("16") else dtype
    layout = str(draw.choice(["halves", "interleaved"]))
    bases = [1e4, 5e5, 1e6, 1.5e5, float(round(10 ** draw.uniform(3, 7)))]
    return Drawn(
        width=width,
        rotated=rotated,
        last=bool(partial and draw.integers(2)),
        layout=layout,
        backward=bool(draw.integers(4) == 0),
        reordered=bool(layout == "interleaved" and draw.integers(4) == 0),
        base=float(draw.choice(bases[:4] if scaling == "longrope" else bases)),
        over_whole=bool(partial and draw.integers(3) == 0),
        scaling=scaling,
        numbers={
            "factor": float(draw.choice([2, 3, 4, 8, 16, 32, 40])),
            "original": float(2 ** draw.integers(11, 16)),
            "fraction": float(draw.choice([0.25, 0.5, 0.75])),
            "steep": float(draw.choice([0.01, 0.03, 0.1])),
        },
        dtype=dtype,
    )


def identify_drawn(seed):
    truth = drawn(seed)
    found = identify_function(truth, truth.width)
    assert found, found.reason
    match = found[0]
    spec: Any = match.spec
    evidence = dict(match.evidence)
    turning = truth.rotated
    if truth.scaling == "proportional" and truth.layout == "interleaved" and not (truth.last or truth.reordered):
        # The first channels turn, with an exponent over more than they are: the same code in fewer words.
        turning = spec.rotated
    assert (spec.head_width, spec.rotated, spec.layout) == (truth.width, turning, truth.layout)
    assert spec.part == ("last" if truth.last else "first")
    assert spec.direction == ("backward" if truth.backward else "forward")
    assert spec.reordered == truth.reordered
    assert spec.attention_factor == pytest.approx(truth.attention_factor, abs=1e-6)
    rates = truth.rates[: turning // 2]
    # What the numbers of the function can tell: its rates, rounded as it holds them, over the positions asked.
    slack = UNITS[truth.dtype] * rates + 2.0**-21 / evidence["longest_position"]
    slack += 2.0**-24 if truth.dtype == "float16" else 0  # its smallest number
    assert (np.abs(np.array(spec.rates) - rates) <= slack).all()
    assert not hasattr(spec.spacing, "rates"), "explicit rates where there is a rule"
    # Its arithmetic, in words.
    assert match.computed_in == evidence["phases_in"] == truth.dtype
    assert evidence["rates_in"] in (truth.dtype, None)
    assert match.confidence > 0.99
    if truth.dtype.endswith("16"):
        assert evidence["first_wrong_position"] is not None


@pytest.mark.parametrize("number", [11, pytest.param(450, marks=pytest.mark.slow)])
def test_random_rotations_are_identified(number, cases, draw):
    for seed in draw(range(450), number):
        with cases(seed):
            identify_drawn(seed)


def test_a_wrong_answer_would_be_seen(cases):
    """The rotation by the spec found is the function; by one with another base it is not."""
    for seed in range(0, 50, 7):
        with cases(seed):
            truth = drawn(seed)
            spec: Any = identify_function(truth, truth.width)[0].spec
            draw = np.random.default_rng(seed)
            x = draw.integers(-64, 65, (64, truth.width)).astype(np.float32) / 64
            at = draw.integers(0, 64, 64)
            bound = {"bfloat16": 0.8, "float16": 0.2}.get(truth.dtype, 1e-4)
            assert np.abs(rotate(x, spec, at) - truth(x, at)).max() < bound
            other = ch.specs.with_fields(spec, direction="forward" if truth.backward else "backward")
            assert np.abs(rotate(x, other, at) - truth(x, at)).max() > bound
