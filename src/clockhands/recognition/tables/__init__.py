"""Recognition of the code of a table of numbers."""

from clockhands.recognition.tables._recognising import identify_array, identify_rows

__all__ = ["identify_array", "identify_rows"]
