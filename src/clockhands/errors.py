"""The exceptions of this library. Each says what was given, what is allowed, and what to do.

Every one is a ``ClockhandsError`` with a ``message`` (the problem) and a ``hint`` (what to do), and also the built-in
type that a caller expects to catch, such as ValueError.
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
    """An argument has a value that is not allowed."""


class InvalidType(ClockhandsError, TypeError):
    """An argument has a type that is not allowed."""


class TooLarge(ClockhandsError, ValueError):
    """The result would not fit in memory; refused before anything is allocated."""


class Unreadable(ClockhandsError, ValueError):
    """A file or a target cannot be read in the format that it claims to have."""
