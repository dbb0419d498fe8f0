"""Numbers that say what a position code does, and how two of them differ."""

from clockhands.measures.differences import LadderDifference, difference, distances

__all__ = ["LadderDifference", "difference", "distances"]
