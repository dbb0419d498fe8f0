"""Every claim is what it says; a number that moves is seen."""

from dataclasses import replace
from pathlib import Path

import pytest

import clockhands.measures.claims
from clockhands.measures.claims import CLAIMS, SUBJECTS, Claim, recompute
from clockhands.measures.claims.claim import at_most, data_of, exactly, near

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
            assert told.waits_for or told.verdict != "not known"


def test_every_file_is_a_subject_and_every_claim_is_stated_and_computed_once():
    assert len(CLAIMS) == sum(map(len, SUBJECTS.values()))
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "claim", "quantities", "sentences", "studies"}
    subjects = {path.stem for path in FOLDER.glob("*.toml")}
    assert subjects == files
    assert len(SUBJECTS) == len(subjects)
    assert sorted(name for subject in subjects for name in data_of(subject)) == sorted(CLAIMS)
    known = {"statement", "verdict", "condition", "argument", "source", "numbers", "waits_for", "measured"}
    assert {field for subject in subjects for each in data_of(subject).values() for field in each} == known
    assert {each.verdict for each in CLAIMS.values()} == {"true", "false", "only if", "not known"}


# Sentences of five introductions to sinusoidal embeddings, by a few of their words, and the claims that answer them.
INTRODUCTIONS = {
    "words, phrases, sentences, paragraphs and documents": "scales-of-language",
    "bank is told apart by its position": "position-tells-meanings-apart",
    "patterns learned on short sequences transfer": "short-patterns-transfer",
    "extrapolation fails because the code is added": "added-codes-fail-because-they-are-added",
    "no scale is starved by logarithmic spacing": "no-scale-is-starved",
    "the simplest function with five properties": "simplest-function-with-all-properties",
    "it is not known how models learn positions": "how-positions-are-learned",
    "positions are distorted by the layers": "positions-fade-with-depth",
    "dropping RoPE gives an unlimited context": "dropped-rotary-has-no-limit",
    "the shift is why the code was chosen": "chosen-for-its-shifts",
    "rare today, the default of early models": "sinusoids-were-the-default",
    "all schemes are about relative offsets": "all-schemes-are-about-offsets",
    "a fixed formula cannot be fine-tuned": "a-formula-cannot-be-tuned",
    "modern models prefer RoPE or ALiBi": "modern-models-prefer-rotary-or-alibi",
    "learned positions cost more": "learned-was-refused-for-its-cost",
    "corpora are huge because of positions": "corpora-are-huge-because-of-positions",
}


def test_every_sentence_of_the_introductions_has_a_verdict():
    answers = set(INTRODUCTIONS.values())
    assert len(answers) == len(INTRODUCTIONS) == 16
    assert answers == {each.id for each in SUBJECTS["What introductions say"]}


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
