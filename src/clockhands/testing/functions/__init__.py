"""Checks of functions that apply a position encoding: rotary, additive, and biases."""

from clockhands.testing.functions._additive import check_additive
from clockhands.testing.functions._biases import check_bias
from clockhands.testing.functions._content_scores import check_scores, scores_taken
from clockhands.testing.functions._grid_tables import check_grid, grid_taken, rows_at_positions
from clockhands.testing.functions._recognised_functions import computed_encoding
from clockhands.testing.functions._resized_grids import check_resizing, resizing_taken
from clockhands.testing.functions._rotary import check_rotary
from clockhands.testing.functions._table_functions import check_length, length_taken

BY_NAMES = (
    (resizing_taken, check_resizing),
    (scores_taken, check_scores),
    (grid_taken, check_grid),
    (length_taken, check_length),
)
"""The checks that need no encoding: what tells by the names of parameters that one fits, and the check."""

__all__ = [
    "BY_NAMES",
    "check_additive",
    "check_bias",
    "check_rotary",
    "computed_encoding",
    "grid_taken",
    "rows_at_positions",
]
