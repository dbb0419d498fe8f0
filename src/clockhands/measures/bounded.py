"""Whether the numbers of a code stay within a bound."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def bounded(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
