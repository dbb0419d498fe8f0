"""docs/claims.md is made of the claims, word for word."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.claims import CLAIMS
from clockhands.claims.claim import exactly

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def maker():
    import claims_document

    return claims_document


def test_the_document_is_made_of_the_claims(maker):
    assert maker.DOCUMENT.read_text(encoding="utf-8") == maker.document(), "run tools/claims_document.py"


def test_another_number_makes_another_document(maker):
    told = CLAIMS["positions-in-bfloat16"]
    other = replace(told, numbers={**told.numbers, "distinct_of_4096_in_bfloat16": exactly(770)})
    assert maker.section(told) in maker.document()
    assert maker.section(other) not in maker.document()


def test_every_link_leads_to_a_claim(maker):
    text = maker.document()
    links = re.findall(r"\]\(#([^)]+)\)", text)
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    # As GitHub makes anchors: lower case, without dots.
    assert links == [heading.lower().replace(".", "") for heading in headings]
    assert len(set(links)) == len(CLAIMS)


def test_the_page_of_probes_shows_the_stored_measurements():
    import probing_document

    text = probing_document.DOCUMENT.read_text(encoding="utf-8")
    assert probing_document.document(text) == text, "run tools/probing_document.py"
    other = text.replace("| 0.971 |", "| 0.972 |")
    assert other != text
    assert probing_document.document(other) == text
