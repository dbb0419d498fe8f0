"""Rates as models compute them: plain arithmetic over a spec's fields, in a dtype of one's choice.

Nothing here asks clockhands for a number, so that what is checked and what checks it share only the fields.
"""

import math

import numpy as np


def plain(base, width, dtype=np.float32):
    """``1 / base ** (2 i / width)`` as everybody writes it."""
    steps = np.arange(0, width, 2).astype(dtype) / dtype(width)
    return (dtype(1) / dtype(base) ** steps).astype(dtype)


def geometric(width, base, span):
    """``exp(-ln(base) 2 i / span)``, in float32, as everybody writes it for sinusoids."""
    return np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(base) / span))


def rates_of(spec, dtype=np.float32):
    """The rates that a rotary spec declares, scaled."""
    kind = type(spec.scaling).__name__
    rates = plain(spec.base, spec.rotated, dtype)
    if spec.scaling is None:
        return rates
    return {"Linear": linear, "Ntk": ntk, "Llama3": llama3, "Yarn": yarn, "LongRope": longrope}[kind](
        rates, spec, dtype
    ).astype(dtype)


def factor_of(spec):
    """What cosine and sine are multiplied by."""
    scaling = spec.scaling
    kind = type(scaling).__name__
    if kind == "Yarn":
        return scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1
    if kind == "LongRope":
        return scaling.attention_factor or math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original))
    return 1.0


def linear(rates, spec, dtype):
    return rates / dtype(spec.scaling.factor)


def ntk(_, spec, dtype):
    width = spec.rotated
    return plain(spec.base * spec.scaling.factor ** (width / (width - 2)), width, dtype)


def llama3(rates, spec, dtype):
    scaling = spec.scaling
    wavelengths = 2 * math.pi / rates
    low = scaling.original / scaling.low_freq_factor
    high = scaling.original / scaling.high_freq_factor
    smooth = (scaling.original / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * rates / dtype(scaling.factor) + smooth * rates
    return np.where(wavelengths > low, rates / dtype(scaling.factor), np.where(wavelengths < high, rates, blended))


def yarn(rates, spec, dtype):
    scaling, width, base = spec.scaling, spec.rotated, spec.base

    def pair_that_makes(turns):
        return width * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(base))

    begin = max(math.floor(pair_that_makes(scaling.beta_fast)), 0)
    end = min(math.ceil(pair_that_makes(scaling.beta_slow)), width - 1)
    end = end + 0.001 if begin == end else end
    ramp = np.clip((np.arange(width // 2, dtype=dtype) - begin) / (end - begin), 0, 1)
    return rates / dtype(scaling.factor) * ramp + rates * (1 - ramp)


def longrope(rates, spec, dtype):
    scaling = spec.scaling
    long = (spec.length or scaling.original) > scaling.original
    return rates / np.asarray(scaling.long if long else scaling.short, dtype)
