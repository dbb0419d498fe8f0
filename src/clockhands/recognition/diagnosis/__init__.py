"""What is wrong with stored frequencies, slopes, cosines and sines: one engine for every entry point.

`of_rates` compares rates with the exact ones of a rotary code, `of_slopes` slopes with those of ALiBi, and `of_table`
cosines and sines with those that rates make; `of_array` asks them of an array by what its name says that it is. Each
gives a `Verdict`: a code, its evidence, how much it explains, and what to do.
"""

from clockhands.recognition.diagnosis._computed import SLOPES, Computed, of_array, of_slopes
from clockhands.recognition.diagnosis._cosines import Cosines, cosines_of, measured_rates, of_table, one_of_each
from clockhands.recognition.diagnosis._rates import (
    ROUNDED,
    Reference,
    Verdict,
    fits,
    hint_of,
    judged,
    of_rates,
    recognised_spec,
    reference_of,
    reference_of_rates,
    rounded_to,
    slack_of,
    unlike_any,
)
