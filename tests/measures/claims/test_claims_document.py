"""docs/claims.md and the pages of its subjects are made of the claims, word for word."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.measures.claims import CLAIMS
from clockhands.measures.claims.claim import exactly

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def maker():
    import claims_document

    return claims_document


def test_the_pages_are_made_of_the_claims(maker):
    written = {path: path.read_text(encoding="utf-8") for path in (maker.DOCUMENT, *maker.FOLDER.glob("*.md"))}
    assert written == maker.documents(), "run tools/claims_document.py"


def test_another_number_makes_another_page(maker):
    told = CLAIMS["positions-in-bfloat16"]
    other = replace(told, numbers={**told.numbers, "distinct_of_4096_in_bfloat16": exactly(770)})
    pages = "".join(maker.documents().values())
    assert maker.section(told) in pages
    assert maker.section(other) not in pages


def test_every_link_leads_to_a_claim(maker):
    pages = maker.documents()
    index = pages[maker.DOCUMENT]
    links = re.findall(r"\]\(claims/([^)#]+)#([^)]+)\)", index)
    assert [anchor for _, anchor in links] == re.findall(r'<a id="([^"]+)"></a>', index)
    assert len(set(links)) == len(CLAIMS)
    for page, anchor in links:
        headings = re.findall(r"^## (.+)$", pages[maker.FOLDER / page], re.MULTILINE)
        # As GitHub makes anchors: lower case, without dots.
        assert anchor in [heading.lower().replace(".", "") for heading in headings]


def test_the_page_of_probes_shows_the_stored_measurements():
    import probing_document

    text = probing_document.DOCUMENT.read_text(encoding="utf-8")
    assert probing_document.document(text) == text, "run tools/probing_document.py"
    other = text.replace("| 0.971 |", "| 0.972 |")
    assert other != text
    assert probing_document.document(other) == text
