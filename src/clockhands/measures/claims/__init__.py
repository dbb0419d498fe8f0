"""Common statements about position encodings, with a verdict, numbers that are recomputed, an argument and a source.

A subject is a TOML file with the statements (see `claim.py`). The Python file of the same name has the functions that
compute their numbers; claims whose numbers are all taken from stored results have none.
"""

from types import MappingProxyType

from clockhands.measures.claims import (  # noqa: F401 - their functions compute the claims
    attention,
    dot_products,
    frequencies,
    functions,
    introductions,
    longer_texts,
    precision,
    projections,
    rotations,
    score_biases,
    table_rows,
    trained,
)
from clockhands.measures.claims.claim import Claim, Number, Recomputed, Stated, claims_of, recompute
from clockhands.measures.claims.studies import (
    AS_TRAINED,
    OF_TRAINING,
    SEEDS,
    Estimate,
    MeasuredStudy,
    coverage,
    estimate_of,
    estimated,
    measured,
    stored,
)

SUBJECTS = MappingProxyType(
    {
        title: claims_of(subject)
        for title, subject in (
            ("Frequencies and wavelengths", "frequencies"),
            ("Rows of a table", "table_rows"),
            ("Other functions of the position", "functions"),
            ("Dot products and shifts", "dot_products"),
            ("Adding and projecting", "projections"),
            ("RoPE", "rotations"),
            ("Score biases", "score_biases"),
            ("Attention and order", "attention"),
            ("Longer texts", "longer_texts"),
            ("Trained models", "trained"),
            ("What introductions say", "introductions"),
            ("Rounding", "precision"),
        )
    }
)
"""The claims of each subject, in the order of reports."""

CLAIMS = MappingProxyType({each.id: each for claims in SUBJECTS.values() for each in claims})
"""Every claim by its ID, in the order of reports."""

__all__ = [
    "AS_TRAINED",
    "CLAIMS",
    "OF_TRAINING",
    "SEEDS",
    "SUBJECTS",
    "Claim",
    "Estimate",
    "MeasuredStudy",
    "Number",
    "Recomputed",
    "Stated",
    "coverage",
    "estimate_of",
    "estimated",
    "measured",
    "recompute",
    "stored",
]
