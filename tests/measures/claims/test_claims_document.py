"""docs/claims.md and the pages of its subjects are made of the claims, word for word."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.measures.claims import CLAIMS
from clockhands.measures.claims.claim import exactly
from clockhands.measures.claims.studies import real_model

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


def test_what_the_page_of_probes_says_of_kept_models_is_what_was_stored():
    models = {int(arm.removeprefix("width_")): each for arm, each in real_model("lab_steps")["models"].items()}
    steps = ["0", "20", "40", "80", "160", "300"]
    assert {width: list(each) for width, each in models.items()} == {64: steps, 32: steps}

    def of_all(name: str, step: int) -> list[float]:
        return [number for each in models.values() for number in each[str(step)][name]]

    removed, read = "rise of the loss: encoding-removed", "position read after layer"
    guess = math.log(32)
    without = zip(of_all("loss: of the task", 300), of_all(removed, 300), strict=True)
    assert min(loss + rise for loss, rise in without) > guess
    assert max(of_all("loss: of the task", 300)) < 0.001
    assert max(of_all(removed, 20)) < 0.05
    assert max(models[32]["40"][removed]) < min(models[64]["40"][removed])
    use = "terms of the scores of layer 0: position-position"
    assert max(of_all(use, 0)) <= 0.033
    assert min(of_all(use, 300)) >= 0.939
    explained = of_all("part of the distance in the position-position term: heads of layer 0, mean", 300)
    assert (round(min(explained), 2), round(max(explained), 2)) == (0.56, 0.73)
    heads = "heads at one distance: at least half of the attention"
    assert [set(of_all(heads, step)) for step in (80, 160, 300)] == [{0}, {4}, {4}]
    assert round(max(of_all("position read with all tokens at position 0, after layer: 2", 300)), 2) == 0.41
    for before, after in (
        (of_all(f"{read}: 0", 300), of_all(f"{read}: 2", 300)),
        (of_all(f"{read}: 2", 0), of_all(f"{read}: 2", 300)),
    ):
        assert all(one > other for one, other in zip(before, after, strict=True))
    left = "position part left by R_k after layer"
    noise = max(abs(each) for step in (0, 300) for each in of_all(f"{left}: 0", step))
    assert round(noise, 2) == 0.06
    for each in models.values():
        assert sum(number > 0.19 for number in each["300"][f"{left}: 2"]) == 2
        assert sum(number <= 0.06 for number in each["300"][f"{left}: 2"]) == 1
    assert max(of_all(f"{left}: 2", 300)) < 0.405
