"""What is wrong with stored frequencies, slopes, cosines and sines: one engine for every entry point.

`of_rates` compares rates with the exact ones of a rotary code, `of_slopes` slopes with those of ALiBi, and `of_table`
cosines and sines with those that rates make. Each gives a `Verdict`: a code, its evidence, how much it explains.
"""

from clockhands.diagnosis._cosines import Cosines, cosines_of, of_table, one_of_each
from clockhands.diagnosis._rates import (
    ROUNDED,
    SLOPES,
    Reference,
    Verdict,
    fits,
    judged,
    of_rates,
    of_slopes,
    recognised_spec,
    reference_of,
    slack_of,
    unlike_any,
)

__all__ = [
    "ROUNDED",
    "SLOPES",
    "Cosines",
    "Reference",
    "Verdict",
    "cosines_of",
    "fits",
    "judged",
    "of_rates",
    "of_slopes",
    "of_table",
    "one_of_each",
    "recognised_spec",
    "reference_of",
    "slack_of",
    "unlike_any",
]
