"""From numbers to the code that makes them."""

from clockhands.recognition.identifying import identify
from clockhands.recognition.matches import Match, Matches, Residual, Rows

__all__ = ["Match", "Matches", "Residual", "Rows", "identify"]
