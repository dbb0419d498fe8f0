"""Find the position encoding that gives some numbers: frequencies, a table, or the outputs of a function."""

from clockhands.recognition._fitting import Fit, fit_ladder
from clockhands.recognition._given import LOW_PRECISION
from clockhands.recognition._identifying import identify
from clockhands.recognition._matches import Match, Matches, Residual, Rows
from clockhands.recognition.pairing import LAYOUTS, MODEL_LEAD, MODEL_Z, Score, score, together

__all__ = [
    "LAYOUTS",
    "LOW_PRECISION",
    "MODEL_LEAD",
    "MODEL_Z",
    "Fit",
    "Match",
    "Matches",
    "Residual",
    "Rows",
    "Score",
    "fit_ladder",
    "identify",
    "score",
    "together",
]
