"""The numbers of claims about rates, wavelengths and longer texts, from mpmath and plain Python."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
from mpmath import mp, mpf

from clockhands.measures.claims import longer_texts


def rates(width, base=10_000, last=None):
    """The ladder of the paper, or with another denominator than d/2."""
    return [mpmath.power(base, -mpf(pair) / (last or width // 2)) for pair in range(width // 2)]


def waves(*arguments):
    return [2 * mp.pi / rate for rate in rates(*arguments)]


def alike(width, base, offsets):
    """Σ cos(rate k) in double precision, term by term."""
    turning = base ** (-np.arange(width // 2) / (width // 2))
    return np.concatenate([np.cos(np.outer(part, turning)).sum(1) for part in np.array_split(offsets, 40)])


def apart(width, base, offsets):
    return np.sqrt(np.maximum(width - 2 * alike(width, base, np.asarray(offsets)), 0))


MEASURED = json.loads((Path(longer_texts.__file__).with_name("real_models.json")).read_text(encoding="utf-8"))
SMOLLM2, LONGER = MEASURED["smollm2"], MEASURED["smollm2_in_twice_its_context"]["recall"]
WITHIN = MEASURED["smollm2_in_its_context"]["recall"]


def of_key(depth, scaling):
    (found,) = (each for each in LONGER if (each["depth"], each["scaling"]) == (depth, scaling))
    return found


LARGE = {"100": 100, "ten_to_4": 10**4, "ten_to_6": 10**6, "ten_to_8": 10**8}


def fails_at(base, pairs=64):
    """The first distance with a negative sum over the pairs, each hand turned on token by token."""
    hands, turn = np.ones(pairs, complex), np.exp(1j * float(base) ** (-np.arange(pairs) / pairs))
    for distance in range(20_000):
        if hands.real.sum() < 0:
            return distance
        hands *= turn
    raise AssertionError("no sum is negative")


def smallest_sound(length):
    """By trying bases from 20,000 on in steps of 1/1000, which step over no sound stretch before the first of them."""

    def sound(base):
        return np.cos(np.outer(np.arange(1, length), base ** (-np.arange(64) / 64))).sum(1).min() >= 0

    base = 20_000.0
    while not sound(base):
        base *= 1.001
    low, high = base / 1.001, base
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if sound(middle) else (middle, high)
    return high


def different_hands(number):
    """How many positions the first pair alone tells apart in float32."""
    return len({(np.float32(math.sin(place)), np.float32(math.cos(place))) for place in range(number)})


def exact_distance(width, base, offset):
    return mpmath.sqrt(2 * sum(1 - mpmath.cos(rate * offset) for rate in rates(width, base)))


def yarn_slowing(pair):
    """By 4 from 4,096 at head width 128: ramp from floor(c(32)) = 20 to ceil(c(1)) = 46, worked out by hand."""
    begin = math.floor(64 * math.log(4096 / (32 * 2 * math.pi)) / math.log(10_000))
    end = math.ceil(64 * math.log(4096 / (2 * math.pi)) / math.log(10_000))
    assert (begin, end) == (20, 46)
    ramp = min(max(mpf(pair - begin) / (end - begin), 0), 1)
    return 1 / (ramp / 4 + 1 - ramp)


def llama_slowing(turns):
    kept = min(max((turns - 1) / (4 - 1), 0), 1)
    return 1 / ((1 - kept) / 8 + kept)


def split(slowing, factor):
    kept, divided = sum(each == 1 for each in slowing), sum(each == factor for each in slowing)
    return {"pairs_kept": kept, "pairs_blended": len(slowing) - kept - divided, f"pairs_divided_by_{factor}": divided}
