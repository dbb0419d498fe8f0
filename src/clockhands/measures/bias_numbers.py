"""Biases: how far each head looks, where buckets begin, what is told apart."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def reach(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")


def edges(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")


def told_apart(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
