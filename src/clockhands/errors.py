"""Errors that say what was given, what is allowed and what to do.

Every error of this library is a ``ClockhandsError`` with a ``message`` (the fact) and a ``hint``
(the way out), and at the same time the built-in type that a caller would expect to catch.
"""


class ClockhandsError(Exception):
    """What went wrong, and what to do about it.

    Attributes:
        message: What was given and what is allowed, one sentence or two.
        hint: What to do.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class InvalidValue(ClockhandsError, ValueError):
    """A value that the caller gave cannot be used."""


class InvalidType(ClockhandsError, TypeError):
    """A value that the caller gave is of a kind that cannot be used."""


class TooLarge(ClockhandsError, ValueError):
    """The result would not fit in memory; refused before anything is allocated."""


class Unreadable(ClockhandsError, ValueError):
    """A file or a target that cannot be read as what it claims to be."""
