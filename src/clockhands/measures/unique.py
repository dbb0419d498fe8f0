"""Whether every position has numbers of its own: the first two that do not, and the nearest pair."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def unique(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
