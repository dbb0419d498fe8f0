"""The document about published configs is what the audit finds in them now, each firing with a reason."""

import dataclasses
import json

import pytest

import published_findings as tool
from auditing.published_audits import audits


@pytest.fixture(scope="module")
def audited(published):
    return audits(published)


@pytest.fixture(scope="module")
def reasons():
    return json.loads(tool.REASONS.read_text(encoding="utf-8"))


def test_the_document_is_what_the_code_makes_now(audited, reasons):
    written = tool.DOCUMENT.read_text(encoding="utf-8")
    assert written == tool.rendered(audited, reasons), "run `python tools/published_findings.py`"


def test_each_firing_has_its_own_sentence(audited, reasons):
    assert tool.reasons_astray(audited, reasons) == []
    sentences = [sentence for codes in reasons.values() for sentence in codes.values()]
    assert all(sentence.endswith(".") and len(sentence.split()) > 5 for sentence in sentences)


def test_a_missing_and_a_superfluous_sentence_are_refused(audited, reasons):
    name, codes = next(iter(reasons.items()))
    code = next(iter(codes))
    less = {other: {**told} for other, told in reasons.items()}
    del less[name][code]
    with pytest.raises(ValueError, match=f"{name}: {code} fires, and .* does not say why"):
        tool.rendered(audited, less)
    more = {**reasons, name: {**codes, "zero-table": "It is not there."}}
    with pytest.raises(ValueError, match=f"{name}: .* says why zero-table fires, but it does not"):
        tool.rendered(audited, more)


def test_a_firing_that_is_lost_is_noticed(audited, reasons):
    place = next(place for place, each in enumerate(audited) if each.firing)
    lost = audited[place]._replace(audit=dataclasses.replace(audited[place].audit, findings=()))
    with pytest.raises(ValueError, match=f"{lost.name}: .* says why"):
        tool.rendered([*audited[:place], lost, *audited[place + 1 :]], reasons)
