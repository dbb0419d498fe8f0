"""Recognition of the code that a function applies, by calling it."""

from clockhands.recognition.functions._recognising import identify_function

__all__ = ["identify_function"]
