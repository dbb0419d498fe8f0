"""Additive position encodings: one vector for each position, added to the token embeddings."""

from clockhands.encodings.additive._fourier import FourierFeatures
from clockhands.encodings.additive._learned import Learned, NoPosition
from clockhands.encodings.additive._naive import (
    Binary,
    Counter,
    EvenlySpaced,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.encodings.additive._resizing import resize, resize_matrix, standardised
from clockhands.encodings.additive._tables import add, table
from clockhands.encodings.additive.axial import AxialSinusoidal
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.additive.numbering import token_positions, token_rows
from clockhands.encodings.additive.sinusoidal import Sinusoidal

CODES = (
    Sinusoidal,
    AxialSinusoidal,
    FourierFeatures,
    Learned,
    NoPosition,
    Counter,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    EvenlySpaced,
    Binary,
    WarpedPosition,
)
"""All additive codes, in the order in which messages list them."""

__all__ = [
    "CODES",
    "AdditiveCode",
    "AxialSinusoidal",
    "Binary",
    "Counter",
    "EvenlySpaced",
    "FourierFeatures",
    "Learned",
    "NoPosition",
    "NormalizedCounter",
    "SineOnly",
    "SingleFrequency",
    "Sinusoidal",
    "WarpedPosition",
    "add",
    "resize",
    "resize_matrix",
    "standardised",
    "table",
    "token_positions",
    "token_rows",
]
