"""Every claim is what it says; a number that moves is seen."""

from dataclasses import replace
from pathlib import Path

import pytest

import clockhands.claims
from clockhands.claims import CLAIMS, SUBJECTS, Claim, recompute
from clockhands.claims.claim import at_most, data_of, exactly, near


@pytest.mark.parametrize("name", CLAIMS)
def test_the_numbers_are_what_is_stated(name):
    found = recompute(CLAIMS[name])
    assert found.moved == (), found.numbers
    assert found.holds


def moved(number):
    """A number just far enough away to be another one."""

    def other(stated):
        if isinstance(stated.value, bool):
            return not stated.value
        if stated.limit:
            return 1.01 * stated.value
        return stated.value + (1 if stated.within == 0 else 1.01 * float(stated.within))

    return other(number)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, each in CLAIMS.items() for number in each.numbers]
)
def test_a_number_that_moves_is_named(name, number):
    told = CLAIMS[name]
    true = {each: stated.value for each, stated in told.numbers.items()}
    assert recompute(replace(told, compute=lambda: true)).holds
    wrong = true | {number: moved(told.numbers[number])}
    assert recompute(replace(told, compute=lambda: wrong)).moved == (number,)
    if not isinstance(true[number], bool):
        assert recompute(replace(told, compute=lambda: true | {number: float("nan")})).moved == (number,)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_says_all_that_it_must(name):
    told = CLAIMS[name]
    assert told.id == told.id.lower().replace(" ", "-").replace("_", "-")
    for sentence in (told.statement, told.argument, *filter(None, (told.condition, told.waits_for))):
        assert sentence[-1] in ".!?", sentence
    assert told.source
    assert 60 <= len(told.argument) <= 580, f"a few sentences, not {len(told.argument)} characters"
    assert (told.verdict == "only if") == bool(told.condition)


def test_no_id_is_given_twice():
    assert len(CLAIMS) == sum(map(len, SUBJECTS.values()))


def test_every_subject_has_claims_and_every_file_is_a_subject():
    folder = Path(clockhands.claims.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "claim", "studies"}
    assert {each.compute.__module__.rpartition(".")[2] for each in CLAIMS.values()} <= files
    assert len(SUBJECTS) == len(files)


def test_what_is_stated_is_computed_and_known():
    files = {path.stem for path in Path(clockhands.claims.__file__).parent.glob("*.toml")}
    stated = [name for subject in files for name in data_of(subject)]
    assert sorted(stated) == sorted(CLAIMS)
    known = {"statement", "verdict", "condition", "argument", "source", "numbers", "waits_for", "measured"}
    assert {field for subject in files for each in data_of(subject).values() for field in each} == known
    assert {each.verdict for each in CLAIMS.values()} == {"true", "false", "only if"}


def test_digits_say_how_far_a_number_may_be():
    assert near("3.714").holds(3.71351)
    assert not near("3.714").holds(3.71451)
    assert near("60,611.5").holds(60611.549)
    assert near("2.8e-3").holds(2.75e-3 + 1e-12)
    assert not near("2.8e-3").holds(2.74e-3)
    assert exactly(769).holds(769)
    assert not exactly(769).holds(770)
    assert exactly(True).holds(True)
    assert not exactly(True).holds(1)
    assert not exactly(1).holds(True)
    assert at_most("1e-12").holds(0.0)
    assert at_most("1e-12").holds(-1e-12)
    assert not at_most("1e-12").holds(-2e-12)


@pytest.mark.parametrize(("make", "given"), [(near, 3.714), (exactly, 3.714)])
def test_a_number_whose_digits_are_unknown_is_refused(make, given):
    with pytest.raises(TypeError, match=r"digits"):
        make(given)


def test_a_claim_that_computes_something_else_is_a_fault_of_ours():
    other = Claim("any", "Any.", "true", "", {"one": exactly(1)}, "Because.", "Nobody.", lambda: {"two": 2})
    with pytest.raises(AssertionError, match="any states"):
        recompute(other)
