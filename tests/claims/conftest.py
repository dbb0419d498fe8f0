"""Comparing a claim with its numbers computed another way."""

from collections.abc import Callable

import pytest

from clockhands.claims import CLAIMS


@pytest.fixture
def agrees() -> Callable[[str, dict], None]:
    """Asserts that numbers computed without clockhands are those that a claim states.

    What is zero but for rounding has no other way to be computed, and is left out; what was measured has its own test.
    """

    def compare(name: str, numbers: dict) -> None:
        stated = {
            each: number
            for each, number in CLAIMS[name].numbers.items()
            if not number.limit and not each.startswith("measured_")
        }
        assert set(numbers) == set(stated)
        found = {each: plain(number) for each, number in numbers.items()}
        assert {each: (found[each], stated[each].text) for each in found if not stated[each].holds(found[each])} == {}

    return compare


def plain(number):
    """A bool, an int or a float, of NumPy's numbers and mpmath's."""
    if isinstance(number, bool | int):
        return number
    return number.item() if type(number).__module__ == "numpy" else float(number)
