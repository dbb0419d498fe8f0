"""Numbers that say what a position code does, and how two of them differ."""

from clockhands.measures.differences import LadderDifference, difference, distances
from clockhands.measures.measuring import QUESTIONS, Properties, properties
from clockhands.measures.property import Property

__all__ = ["QUESTIONS", "LadderDifference", "Properties", "Property", "difference", "distances", "properties"]
