"""How wrong angles are that are computed in a dtype."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def precision(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
