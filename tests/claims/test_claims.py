"""Every claim is what it says; a number that moves is seen."""

from dataclasses import replace
from pathlib import Path

import pytest

import clockhands.claims
from clockhands.claims import CLAIMS, SUBJECTS, Claim, recompute
from clockhands.claims.claim import at_most, data_of, exactly, near

FOLDER = Path(clockhands.claims.__file__).parent


def test_the_numbers_are_what_is_stated(cases):
    for name, told in CLAIMS.items():
        with cases(name):
            found = recompute(told)
            assert found.moved == (), found.numbers
            assert found.holds


def moved(stated):
    """A number just far enough away to be another one."""
    if isinstance(stated.value, bool):
        return not stated.value
    if stated.limit:
        return 1.01 * stated.value
    return stated.value + (1 if stated.within == 0 else 1.01 * float(stated.within))


def test_a_number_that_moves_is_named(cases):
    for name, told in CLAIMS.items():
        true = {each: stated.value for each, stated in told.numbers.items()}
        for number, stated in told.numbers.items():
            with cases(name, number):
                assert recompute(replace(told, compute=lambda true=true: true)).holds
                for wrong in [moved(stated)] + [float("nan")] * (not isinstance(stated.value, bool)):
                    other = true | {number: wrong}
                    assert recompute(replace(told, compute=lambda other=other: other)).moved == (number,)


def test_a_claim_says_all_that_it_must(cases):
    for name, told in CLAIMS.items():
        with cases(name):
            assert told.id == told.id.lower().replace(" ", "-").replace("_", "-")
            for sentence in (told.statement, told.argument, *filter(None, (told.condition, told.waits_for))):
                assert sentence[-1] in ".!?", sentence
            assert told.source
            assert 60 <= len(told.argument) <= 580, f"a few sentences, not {len(told.argument)} characters"
            assert (told.verdict == "only if") == bool(told.condition)


def test_every_file_is_a_subject_and_every_claim_is_stated_and_computed_once():
    assert len(CLAIMS) == sum(map(len, SUBJECTS.values()))
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "claim", "studies"}
    assert {each.compute.__module__.rpartition(".")[2] for each in CLAIMS.values()} <= files
    assert len(SUBJECTS) == len(files)
    subjects = {path.stem for path in FOLDER.glob("*.toml")}
    assert sorted(name for subject in subjects for name in data_of(subject)) == sorted(CLAIMS)
    known = {"statement", "verdict", "condition", "argument", "source", "numbers", "waits_for", "measured"}
    assert {field for subject in subjects for each in data_of(subject).values() for field in each} == known
    assert {each.verdict for each in CLAIMS.values()} == {"true", "false", "only if"}


@pytest.mark.parametrize(
    ("stated", "right", "wrong"),
    [
        (near("3.714"), 3.71351, 3.71451),
        (near("60,611.5"), 60611.549, 60611.551),
        (near("2.8e-3"), 2.75e-3 + 1e-12, 2.74e-3),
        (exactly(769), 769, 770),
        (exactly(True), True, 1),
        (exactly(1), 1, True),
        (at_most("1e-12"), 0.0, 2e-12),
        (at_most("1e-12"), -1e-12, -2e-12),
    ],
)
def test_digits_say_how_far_a_number_may_be(stated, right, wrong):
    assert stated.holds(right)
    assert not stated.holds(wrong)


def test_a_number_whose_digits_are_unknown_is_refused():
    for make in (near, exactly):
        with pytest.raises(TypeError, match=r"digits"):
            make(3.714)


def test_a_claim_that_computes_something_else_is_a_fault_of_ours():
    other = Claim("any", "Any.", "true", "", {"one": exactly(1)}, "Because.", "Nobody.", lambda: {"two": 2})
    with pytest.raises(AssertionError, match="any states"):
        recompute(other)
