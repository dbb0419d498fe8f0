"""Whether a shift is one rotation, the same everywhere, and the best linear map where it is none."""

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject


def shift(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
