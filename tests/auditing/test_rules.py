"""The table of findings: severity, text and hint of every row, as people read them."""

import re
from pathlib import Path

import pytest

import clockhands.sources
from auditing.config_sentences import CONFIGS
from auditing.module_sentences import MODULES
from auditing.reader_sentences import READERS
from auditing.sentences import SENTENCES
from auditing.value_sentences import VALUES
from clockhands.auditing.findings import CODES, SEVERITIES, judge

CASES = [*VALUES, *CONFIGS, *READERS, *SENTENCES, *MODULES]


@pytest.mark.parametrize(("code", "evidence", "severity", "message"), CASES)
def test_the_sentence_of_every_finding(code, evidence, severity, message):
    found = judge(code, evidence, "0-3")
    assert (found.message, found.severity, found.layers) == (message, severity, "0-3")
    assert found.evidence == evidence


def test_every_row_is_tested():
    assert {code for code, *_ in CASES} == set(CODES)


@pytest.mark.parametrize(("code", "evidence"), [case[:2] for case in CASES])
def test_every_hint_says_what_to_do(code, evidence):
    hint = judge(code, evidence).hint
    assert re.fullmatch(r"[A-Z].*\.", hint)
    assert len(hint.split()) > 4


def test_the_grave_findings_come_first_in_the_table():
    gravest = {code: min(SEVERITIES.index(case[2]) for case in CASES if case[0] == code) for code in CODES}
    fixed = [rank for code, rank in gravest.items() if isinstance(CODES[code].severity, str)]
    assert fixed == sorted(fixed)


def test_every_fact_that_the_readers_note_has_a_row():
    noted = set()
    for path in Path(clockhands.sources.__file__).parent.rglob("*.py"):
        noted |= set(re.findall(r"""(?:\bFact|\bnote)\(\s*"([a-z0-9-]+)\"""", path.read_text(encoding="utf-8")))
    assert len(noted) >= 5, "the pattern no longer finds what the readers note"
    assert noted <= set(CODES)


# Nobody is wrong where the caller asks for more than the file promises.
NOBODY = {"beyond-context"}


@pytest.mark.parametrize("code", CODES)
def test_every_row_is_explained(code):
    rule = CODES[code]
    assert not rule.title.endswith(".")
    assert 3 <= len(rule.title.split()) <= 15
    assert 2 <= len(re.findall(r"[.!?](?= [A-Z]|$)", rule.means)) <= 5, "two to five sentences"
    assert rule.means.endswith(".")


@pytest.mark.parametrize("code", [code for code in CODES if CODES[code].severity != "note" and code not in NOBODY])
def test_what_may_fire_says_whom_it_blames_and_how_it_is_mended_or_why_not(code):
    rule = CODES[code]
    assert callable(rule.blames) or rule.blames in ("file", "reader", "ambiguous", "module")
    assert rule.edit is not None or rule.unmended.endswith(".")


@pytest.mark.parametrize(("code", "evidence", "severity"), [case[:3] for case in CASES])
def test_a_case_that_fires_blames_somebody(code, evidence, severity):
    found = judge(code, evidence)
    assert found.blames in (None, "file", "reader", "ambiguous", "module")
    assert severity == "note" or code in NOBODY or found.blames is not None


@pytest.mark.parametrize("code", CODES)
def test_every_row_has_advice_without_a_case(code):
    assert re.fullmatch(r"[A-Z].*\.", CODES[code].advice())


@pytest.mark.parametrize("code", CODES)
def test_public_cases_name_a_thread_or_a_place(code):
    for case in CODES[code].cases:
        assert re.search(r"#\d+|Hub", case), case
