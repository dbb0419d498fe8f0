"""Claims about rates and wavelengths: how fast each pair turns, and in how many tokens it comes round."""

import math

from clockhands.claims.claim import Numbers, claim, near
from clockhands.ladders import geometric


@claim(
    "slowest-wavelength-62832",
    "At width 512 the slowest pair has a wavelength of 62,832 tokens.",
    "only if",
    condition="the rates span the base from end to end, divided by d/2 − 1, as tensor2tensor and fairseq compute them.",
    numbers={"paper": near("60,611.5"), "closed_span": near("62,831.9")},
    argument=(
        "The paper's last pair is i = 255: its divisor is 10000^(510/512), not 10,000, so it turns in 2π × 9,646.62 "
        "tokens. 62,832 is 2π × 10,000, which only a ladder with a pair at its very end reaches."
    ),
    source="Vaswani et al. 2017, section 3.5; fairseq, sinusoidal_positional_embedding.py",
)
def slowest_wavelength_62832() -> Numbers:
    """2π over the last rate of both ladders of 256 pairs."""
    return {
        "paper": 2 * math.pi / geometric(256).rates[-1],
        "closed_span": 2 * math.pi / geometric(256, span="closed").rates[-1],
    }
