"""How far a base reaches: the bound of Men et al. 2024 and the critical dimension of Liu et al. 2023."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def base_bound(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")


def critical_dimension(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
