"""Pairs that never complete a turn within a length."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def turning(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
