"""Functions that are checked without an encoding: the names of their arguments say what they compute."""

import pytest
from tests.testing.written_by_names import FAULTY, NOT_KNOWN, RIGHT, video

from clockhands.testing import CannotCheck
from clockhands.testing.kinds import by_names


def test_right_functions_are_right(cases):
    for function in RIGHT:
        with cases(function.__name__):
            report = by_names(function)
            assert report is not None
            assert report.sound


def test_each_fault_is_named(cases):
    for function, code in FAULTY.items():
        with cases(function.__name__):
            report = by_names(function)
            assert report is not None
            assert code in report.codes


def test_what_is_not_known_is_no_fault(cases):
    for function in NOT_KNOWN:
        with cases(function.__name__), pytest.raises(CannotCheck):
            by_names(function)


def test_functions_with_other_arguments_are_left_to_the_other_checks():
    def of_positions(x, positions):
        return x + positions[:, None]

    def of_waves(q, k, cos, sin):
        return q * cos, k * sin

    assert by_names(of_positions) is None
    assert by_names(of_waves) is None


def test_what_no_reference_decides_is_in_the_verdict_on_a_table_of_a_grid():
    said = " ".join(str(by_names(video)).split())
    assert "Not checked: frequencies, and which columns each coordinate has (no expected encoding is named)." in said
