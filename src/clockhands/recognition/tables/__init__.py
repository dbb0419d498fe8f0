"""Which code a bare table of numbers is."""

from clockhands.recognition.tables._recognising import identify_array, identify_rows

__all__ = ["identify_array", "identify_rows"]
