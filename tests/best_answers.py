"""The best accuracy that some knowledge allows, by counting all equal cases."""

from collections import Counter
from collections.abc import Iterable


def best_by_bag(cases: Iterable[tuple[object, object]]) -> float:
    """Best accuracy of an answer that depends on the bag (and on what else is in its key), over equal cases."""
    answers: dict[object, Counter] = {}
    for seen, answer in cases:
        answers.setdefault(seen, Counter())[answer] += 1
    total = sum(sum(each.values()) for each in answers.values())
    return sum(each.most_common(1)[0][1] for each in answers.values()) / total
