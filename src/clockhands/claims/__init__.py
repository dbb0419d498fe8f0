"""What is said about position codes, recomputed: sentence, verdict, condition, numbers, argument and source.

A claim is a function with its data beside it (`claim.py`), in the file of its subject; every one that stands in such a
file is found here by itself.
"""

from types import MappingProxyType

from clockhands.claims import (
    attention,
    biases,
    frequencies,
    functions,
    kernels,
    precision,
    projections,
    rotary,
    stretching,
    tables,
)
from clockhands.claims.claim import Claim, Recomputed, recompute

SUBJECTS = MappingProxyType(
    {
        "Frequencies and wavelengths": frequencies,
        "The numbers of a table": tables,
        "Other functions of the position": functions,
        "Dot products and shifts": kernels,
        "What adding and projecting do": projections,
        "Rotary codes": rotary,
        "Biases of the scores": biases,
        "Attention and order": attention,
        "Longer texts": stretching,
        "Rounding": precision,
    }
)
"""Each subject with the file that holds its claims, in the order of reports."""


def _claims_in(module: object) -> list[Claim]:
    return [each for each in vars(module).values() if isinstance(each, Claim)]


CLAIMS: dict[str, Claim] = {each.id: each for module in SUBJECTS.values() for each in _claims_in(module)}
"""Every claim by its ID, in the order of reports."""

__all__ = ["CLAIMS", "SUBJECTS", "Claim", "Recomputed", "recompute"]
