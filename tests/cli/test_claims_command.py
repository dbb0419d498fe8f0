"""`clockhands claims`: what it prints, and what becomes of a number that moves."""

import copy
import json
from dataclasses import replace
from io import StringIO
from types import MappingProxyType

import pytest

import clockhands.measures.claims
from clockhands.measures.claims import CLAIMS, SUBJECTS, Recomputed, recompute
from clockhands.show.claims import print_claims
from oracles import sentences


@pytest.fixture
def as_stated(monkeypatch):
    """Every number is the one that is stated; that each is so is asked in tests/measures/claims, and takes seconds."""

    def stated(claim):
        return Recomputed(claim, {name: number.value for name, number in claim.numbers.items()}, ())

    monkeypatch.setattr(clockhands.claims, "recompute", stated)
    return [stated(claim) for claim in CLAIMS.values()]


@pytest.mark.usefixtures("as_stated")
def test_all_claims_are_told_and_hold(run):
    done = run("claims", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["schema"] == 1
    assert [each["id"] for each in document["claims"]] == list(CLAIMS)
    assert len(document["claims"]) >= 40
    for each in document["claims"]:
        assert set(each) == {
            "id", "statement", "verdict", "condition", "numbers", "expected", "argument", "source", "waits_for",
            "measured", "holds",
        }  # fmt: skip
        assert each["holds"] is True
        assert each["verdict"] in {"true", "false", "only if", "not known"}
        assert list(each["numbers"]) == list(each["expected"])


def test_the_text_groups_them_by_subject_and_counts_them(as_stated):
    out = StringIO()
    print_claims(as_stated, file=out, width=80)
    lines = out.getvalue().splitlines()
    assert [line for line in lines if line in SUBJECTS] == list(SUBJECTS)
    assert max(map(len, lines)) <= 80
    for name in CLAIMS:
        assert f"           ID: {name}" in lines
    told = " ".join(lines[-2:]).split(". ")
    assert told[-2].split(": ")[0].endswith(f"{len(CLAIMS)} claims")
    assert told[-1].endswith("numbers were recomputed, and none moved.")


@pytest.mark.usefixtures("as_stated")
def test_several_are_told_once_and_in_the_order_of_reports(run):
    chosen = ["monotone-decay", "ratio-1.036", "monotone-decay"]
    document = json.loads(run("claims", *chosen, "--json").out)
    assert [each["id"] for each in document["claims"]] == ["ratio-1.036", "monotone-decay"]


@pytest.mark.usefixtures("as_stated")
def test_claims_are_found_by_a_number_or_a_word(run, cases):
    for words, found in (
        ("9956 9,956", "divisor-9956"),
        ("62832 62,832", "slowest-wavelength-62832"),
        ("1.036", "ratio-1.036"),
        ("6.28M", "base-a-million"),
        ("8192 8,192", "8192-instead-of-10000"),
        ("100000 100,000", "log-form-with-100000"),
        # In no statement, but among the numbers or in the argument.
        ("95602.4 95,602.4", "log-form-with-100000"),
        ("124439808 124,439,808", "sinusoids-are-cheaper"),
        ("169646 169,646", "far-positions-look-alike"),
        ("Lambert", "unique-for-every-position"),
        # A word of statements is not searched in arguments.
        ("62000 62,000", "unique-up-to-62000 pairs-cover-62000"),
    ):
        for word in words.split():
            with cases(word):
                done = run("claims", word, "--json")
                assert {each["id"] for each in json.loads(done.out)["claims"]} == {*found.split()}


def test_a_number_that_moved_is_named_and_the_exit_code_is_1(run, monkeypatch):
    """The library computes another ladder: its last rates are off by a thousandth."""
    from clockhands.measures.claims import quantities

    right = quantities.geometric

    def wrong(*arguments, **named):
        return right(*arguments, **named).mapped(
            lambda pair, rate: rate * 1001 / 1000 if pair else rate, "a wrong power"
        )

    monkeypatch.setattr(quantities, "geometric", wrong)
    done = run("claims", "divisor-9956", "monotone-decay")
    told = " ".join(done.out.split())
    assert done.code == 1
    for said in ("3 moved.", "divisor-9956: divisor by the paper is 9636.97", "stated is 9,646.62."):
        assert said in told
    assert "monotone-decay:" not in told, "its ladder was not touched"
    done = run("claims", "--json", "divisor-9956", "monotone-decay")
    assert done.code == 1
    moved, other = ({each["id"]: each for each in json.loads(done.out)["claims"]}[name]
                    for name in ("divisor-9956", "monotone-decay"))  # fmt: skip
    assert (moved["holds"], other["holds"]) == (False, True)
    assert moved["numbers"]["divisor_by_the_paper"] == pytest.approx(9636.98, abs=0.01)
    assert moved["expected"]["divisor_by_the_paper"] == {"value": 9646.62, "tolerance": 0.005}


def test_a_number_that_is_not_finite_is_null_in_json_and_named(run, monkeypatch):
    broken = replace(CLAIMS["ratio-1.036"], compute=lambda: dict.fromkeys(CLAIMS["ratio-1.036"].numbers, float("nan")))
    monkeypatch.setattr(clockhands.claims, "CLAIMS", MappingProxyType({**CLAIMS, broken.id: broken}))
    done = run("claims", "ratio-1.036", "--json")
    assert done.code == 1
    assert json.loads(done.out)["claims"][0]["numbers"]["ratio_by_the_paper"] is None
    assert run("claims", "ratio-1.036").code == 1


def test_numbers_are_written_with_the_digits_that_are_stated(cases):
    sentences.hold("claim_numbers", cases)


def test_nothing_moves_the_cursor_and_a_wide_page_is_not_filled(capsys):
    print_claims([recompute(CLAIMS["ratio-1.036"])], width=200)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_how_a_claim_was_measured_is_said(run):
    name = "sinusoids-extrapolate"
    text = " ".join(run("claims", name).out.split())
    told = json.loads(run("claims", name, "--json").out)["claims"][0]
    assert [each["study"] for each in told["measured"]] == list(CLAIMS[name].measured) != []
    for each in told["measured"]:
        own = {"study", "command", "commit", "created", "seconds", "seeds", "changed", "settings", "tests"}
        assert set(each) == own
        assert f"Measured by `{each['command']}`, commit {each['commit']}, in" in text
        assert f"{len(each['seeds'])} seeds, " in text
    assert "whose range holds the median of such models in 75 % of cases" in text
    assert "Run the study again with this command." in text
    assert json.loads(run("claims", "ratio-1.036", "--json").out)["claims"][0]["measured"] == []


def test_other_results_of_a_study_end_with_exit_code_1(run, monkeypatch):
    from clockhands.measures.claims import studies as held

    studies = {name: held.MeasuredStudy(name, copy.deepcopy(held.measured(name).data)) for name in held.stored()}
    monkeypatch.setattr(held, "_studies", lambda: studies)
    assert run("claims", "sinusoids-extrapolate").code == 0
    by_length = studies["quick"].data["tasks"]["copy"]["cells"]["sinusoidal"]["as trained"]["whole"]["accuracy"]
    by_length["256"][0] += 0.01
    done = run("claims", "sinusoids-extrapolate")
    assert done.code == 1
    text = " ".join(done.out.split())
    assert "sinusoids-extrapolate: measured share of right copies at 256 tokens is 0.34" in text
    assert "stated is 0.336." in text
