"""Pages that were made, in a browser: they fit every window, print on paper, and hostile names do nothing."""

import json
from pathlib import Path

import pytest

from browsing import expect, settled
from clockhands.auditing import audit
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.lab.results import Results
from clockhands.show.lab_report import report as lab_report
from clockhands.show.report import report
from clockhands.show.survey_page import gallery
from show.audited import GEMMA3, LLAMA, TWO_SHAPES
from show.lab_studies import DROP, LENGTHS, LOSSES, MANY, hostile, made
from show.pages import HOSTILE, written
from show.surveyed import ROWS, many

pytestmark = pytest.mark.slow

# What is wider than the window; in a box that scrolls by itself it may be.
OUTSIDE = (
    "() => [...document.querySelectorAll('main *:not(.scrolled *)')].filter((each) => each.checkVisibility()"
    " && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 99))"
)
PAPER = "getComputedStyle(document.body).backgroundColor"
HOSTILE_CONFIG = LLAMA | {"model_type": HOSTILE, "rope_scaling": {"rope_type": HOSTILE, "factor": 2.0}}
HOSTILE_ROW = SurveyRow(f"/{HOSTILE}", "r", "1", "failed", message=HOSTILE, model_type=HOSTILE, kinds=HOSTILE)


def audited(folder: Path, *configs: dict) -> str:
    """The report on models of these configs."""
    targets = []
    for number, config in enumerate(configs):
        (folder / f"{number}").mkdir(exist_ok=True)
        targets.append(folder / f"{number}" / "config.json")
        targets[-1].write_text(json.dumps(config), encoding="utf-8")
    return report([audit(str(target)) for target in targets])


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1440, "light")])
def test_they_fit_the_window(quiet_page, tmp_path, width, scheme):
    studies: list[Results] = [made(LENGTHS, LOSSES), made(MANY), made(DROP)]
    pages = [audited(tmp_path, TWO_SHAPES, GEMMA3), *(lab_report([each]) for each in studies)]
    # A survey is asked on a phone and on a wide screen only: at 768 pixels its table is wider than the window.
    for made_page in pages if width == 768 else [*pages, gallery(ROWS)]:
        with quiet_page(written(made_page, tmp_path), width, scheme) as page:
            page.evaluate("() => document.querySelectorAll('article details').forEach((each) => { each.open = true; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(OUTSIDE) == []
            ladders = page.locator("svg.report-ladder[role=img]:visible").count()
            assert ladders == (2 if page.locator("svg.report-ladder").count() else 0)
            figures = page.locator(".figure").count() if page.locator(".lab-wide").count() else 0
            assert page.locator(".lab-wide svg:visible").count() == (0 if width < 768 else figures)
            assert page.locator(".lab-narrow svg:visible").count() == (figures if width < 768 else 0)
            if page.locator("#survey-rows").count():
                assert page.locator("#survey-rows tr").count() == 4
                assert page.locator("#survey-rows td[data-label=findings]").first.inner_text().endswith("default-base")
                assert page.locator("#survey-type").bounding_box()["height"] < 60
                assert page.locator("#survey-sort").is_visible() == (width < 700)


def test_hostile_names_do_nothing(quiet_page, tmp_path):
    with quiet_page(written(lab_report([hostile()]), tmp_path)) as page:
        assert page.locator("img").count() == 0
    with quiet_page(written(gallery([HOSTILE_ROW, *ROWS]), tmp_path)) as page:
        assert page.locator("img").count() == 0
        assert page.locator("#survey-rows tr").count() == 5
    with quiet_page(written(audited(tmp_path, HOSTILE_CONFIG), tmp_path)) as page:
        assert page.locator("#explorer section").count() == 0
        page.locator("#turn summary").click()
        page.wait_for_selector("#explorer section")
        settled(page)
        assert page.locator("img").count() == 0


def test_they_print_on_paper_in_the_colours_of_paper(quiet_page, tmp_path):
    for made_page, pages in ((audited(tmp_path, LLAMA), 6), (lab_report([made(LENGTHS, LOSSES)]), 14)):
        with quiet_page(written(made_page, tmp_path), 688, "dark") as page:
            page.emulate_media(media="print", color_scheme="dark")
            assert page.evaluate(PAPER) == "rgb(255, 255, 255)"
            assert page.evaluate("document.documentElement.scrollWidth") <= 688
            assert not page.locator("#turn").is_visible()
            ladders = page.locator("svg.report-ladder[role=img]:visible").count()
            assert ladders == page.locator("#turn").count()
            assert 1 <= page.pdf(format="A4").count(b"/Type /Page\n") <= pages


def test_ten_thousand_rows_are_sorted_and_filtered(quiet_page, tmp_path):
    with quiet_page(written(gallery(many(10_000)), tmp_path), 1440) as page:
        rows, count = page.locator("#survey-rows tr"), page.locator("#survey-count")
        assert rows.count() == 200
        page.locator("th[data-column=base] button").click()
        assert "10,000" in rows.first.inner_text()
        page.locator("th[data-column=base] button").click()
        assert "100,000,000" in rows.first.inner_text()
        assert page.locator("th[data-column=base]").get_attribute("aria-sort") == "descending"
        page.locator("#survey-on").click()
        assert "10,000 of 10,000 models, 201 to 400 below." in count.inner_text()
        page.locator("button[data-value='problems default-base']").click()
        assert "1,000 of 10,000 models, 1 to 200 below." in count.inner_text()
        page.locator("#survey-type").select_option("type0")
        page.locator("#survey-base-to").fill("5000000")
        assert 0 < int(count.inner_text().split()[0]) < 50
        page.locator("#survey-text").fill("no-such-model")
        assert rows.count() == 0
        assert "text=no-such-model" in page.url, "the way back from a model leads to the same rows"
        page.evaluate("location.hash = '#type=type1&sort=base&down=1'")
        expect(count).to_contain_text("200 of 10,000 models, 1 to 200")
        assert page.locator("#survey-type").input_value() == "type1"
        page.locator("#survey-clear").click()
        assert count.inner_text().startswith("10,000 of 10,000")
