"""What is said about position codes, recomputed: sentence, verdict, condition, numbers, argument and source.

A claim is a function with its data beside it (`claim.py`), in the file of its subject; every one that stands in such a
file is found here by itself.
"""

from types import MappingProxyType, ModuleType

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
    trained,
)
from clockhands.claims.claim import Claim, Recomputed, recompute


def _claims_in(module: ModuleType) -> tuple[Claim, ...]:
    return tuple(each for each in vars(module).values() if isinstance(each, Claim))


SUBJECTS = MappingProxyType(
    {
        "Frequencies and wavelengths": _claims_in(frequencies),
        "The numbers of a table": _claims_in(tables),
        "Other functions of the position": _claims_in(functions),
        "Dot products and shifts": _claims_in(kernels),
        "What adding and projecting do": _claims_in(projections),
        "Rotary codes": _claims_in(rotary),
        "Biases of the scores": _claims_in(biases),
        "Attention and order": _claims_in(attention),
        "Longer texts": _claims_in(stretching),
        "Trained models": _claims_in(trained),
        "Rounding": _claims_in(precision),
    }
)
"""The claims of each subject, in the order of reports."""

CLAIMS = MappingProxyType({each.id: each for claims in SUBJECTS.values() for each in claims})
"""Every claim by its ID, in the order of reports."""

__all__ = ["CLAIMS", "SUBJECTS", "Claim", "Recomputed", "recompute"]
