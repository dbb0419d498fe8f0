"""The page of a survey: the answer first, every row in it, nothing from elsewhere, and quick for 10,000 rows."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from browsing import expect
from clockhands.show._survey_charts import histogram
from clockhands.show.stored_report import stored_report
from clockhands.show.survey_page import file_name, gallery
from clockhands.survey.rows import SurveyRow
from clockhands.survey.worker import failed, surveyed

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"

ROWS = [
    SurveyRow("/m/a", "r", "1", "done", verdict="All correct.", model_type="llama", kinds="rotary", base=1e4,
              context=4096, head_width=128, notes="never-turning"),
    SurveyRow("/m/b", "r", "1", "done", verdict="1 problem: lost.", severity="warning", model_type="qwen2",
              warnings="default-base", kinds="rotary learned", base=1e6, scaling="yarn", factor=4.0, context=131072,
              differs_in="vllm transformers-4", refused_by="mlx-lm"),
    SurveyRow("/m/c", "r", "1", "done", verdict="1 problem: wrong.", severity="error", errors="default-base"),
    failed("/m/deep/d", "r", "1", "/m/deep/d/config.json cannot be read.", "Download it again."),
]  # fmt: skip


def held(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="survey">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def text(page: str) -> str:
    body = re.sub(r"<script.*?</script>|<style>.*?</style>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_the_answer_comes_first_and_findings_are_counted():
    shown = text(gallery(ROWS))
    start = "Survey of 4 models 4 models: 1 with errors, 1 with warnings, 1 not audited, 1 correct. What is wrong?"
    assert start in shown
    assert "2 of 4 models have a problem. 1 could not be audited" in shown
    assert "default-base The RoPE base is not in the file 2" in shown
    assert "1 model would be computed with other frequencies in at least one runtime" in shown
    assert "The RoPE base is 10,000 in 1 of 2 models that have one; the smallest is 10,000, the largest 1,000,000." in (
        shown
    )


def test_every_row_is_in_it():
    data = held(gallery(ROWS, {"/m/b": "pages/b.html"}))
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    assert [row["name"] for row in rows] == ["a", "b", "c", "deep/d"]
    assert [row["grade"] for row in rows] == ["correct", "warning", "error", "failed"]
    assert [row["page"] for row in rows] == ["", "pages/b.html", "", ""]
    assert rows[1]["problems"] == rows[2]["problems"] == "default-base"
    assert (rows[1]["base"], rows[1]["factor"], rows[1]["context"]) == (1e6, 4.0, 131072)
    assert rows[3]["verdict"] == "deep/d/config.json cannot be read."


def test_nothing_comes_from_elsewhere_and_hostile_names_stay_text():
    row = SurveyRow(f"/{HOSTILE}", "r", "1", "done", verdict=HOSTILE, model_type=HOSTILE, kinds=HOSTILE)
    page = gallery([*ROWS, row])
    assert "<img" not in page
    assert "\u202e" not in "".join(str(cell) for cells in held(page)["rows"] for cell in cells)
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert script is not None
    assert style is not None
    for made, kind in ((script[1], "script-src"), (style[1], "style-src")):
        digest = base64.b64encode(hashlib.sha256(made.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in html.unescape(page)
    assert "default-src 'none';" in html.unescape(page)
    body = re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(r'\sstyle="|\son\w+="|\ssrc="|\shref="', body)


def test_no_row_and_one_row_are_pages_too():
    assert "0 models: nothing is stored." in text(gallery([]))
    assert "1 model: 1 correct." in text(gallery(ROWS[:1]))
    assert held(gallery([]))["rows"] == []


def test_names_are_paths_from_the_folder_that_holds_all():
    rows = [SurveyRow(target, "", "1", "done") for target in ("/x/y/a", "/x/z/b", "vaswani2017")]
    page = gallery(rows)
    assert [row[0] for row in held(page)["rows"]] == ["y/a", "z/b", "vaswani2017"]
    assert "Names are paths in /x." in text(page)


def bars(svg: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", svg)


def test_bars_count_values_between_powers():
    assert bars(histogram([1e4, 1e4, 2e4, 1e5, 1e6], 10.0, "base")) == [
        "10k to 100k: 3",
        "100k to 1M: 1",
        "1M to 10M: 1",
    ]
    assert bars(histogram([4096.0, 8191.0, 8192.0], 2.0, "length")) == ["4,096 to 8,192: 2", "8,192 to 16.4k: 1"]
    assert bars(histogram([1.0], 2.0, "factor")) == ["1 to 2: 1"]


def test_values_far_apart_get_few_wide_bars():
    found = bars(histogram([1e-300, 1e300], 2.0, "base"))
    assert len(found) == 2
    assert len(histogram([1e-300, 1e300], 2.0, "base")) < 10_000


def test_files_of_reports_have_names_of_their_own():
    names = [file_name(SurveyRow(target, "", "1", "done")) for target in ("/a/x", "/b/x", "org/x", "/a/..", "/?<>")]
    assert len({*names}) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+-[0-9a-f]{12}\.html", name) for name in names)


def test_a_stored_report_says_what_was_found_then(tmp_path: Path):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
              "max_position_embeddings": 4096, "rope_scaling": {"rope_type": "nonsense"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    row, report = surveyed(str(tmp_path), "1")
    told = json.loads(report)
    shown = text(stored_report(row, told))
    assert row.verdict in shown
    assert f"Found at {row.audited_at} by clockhands 1. The files have changed since" in shown
    assert row.problems
    for finding in told["findings"]:
        assert finding["code"] in shown


def many(count: int) -> Sequence[SurveyRow]:
    return [
        SurveyRow(f"/m/model-{number:05d}", "r", "1", "done", verdict="Correct.", model_type=f"type{number % 50}",
                  kinds="rotary", base=1e4 * (1 + number * 7919 % count), context=4096, severity="note",
                  warnings="default-base" if number % 10 == 0 else "")
        for number in range(count)
    ]  # fmt: skip


def written(page: str, tmp_path: Path) -> Path:
    file = tmp_path / "survey.html"
    file.write_text(page, encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1440, "light")])
def test_it_fits_the_window(quiet_page, tmp_path: Path, width: int, scheme: str):
    with quiet_page(written(gallery(ROWS), tmp_path), width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#survey-rows tr").count() == 4
        assert page.locator("#survey-sort").is_visible() == (width < 700)


@pytest.mark.slow
def test_ten_thousand_rows_are_sorted_and_filtered(quiet_page, tmp_path: Path):
    with quiet_page(written(gallery(many(10_000)), tmp_path), 1440) as page:
        rows = page.locator("#survey-rows tr")
        assert rows.count() == 200
        page.locator("th[data-column=base] button").click()
        assert "10,000" in rows.first.inner_text()
        page.locator("th[data-column=base] button").click()
        assert "100,000,000" in rows.first.inner_text()
        assert page.locator("th[data-column=base]").get_attribute("aria-sort") == "descending"
        page.locator("#survey-on").click()
        assert "10,000 of 10,000 models, 201 to 400 below." in page.locator("#survey-count").inner_text()
        page.locator("button[data-value='problems default-base']").click()
        assert "1,000 of 10,000 models, 1 to 200 below." in page.locator("#survey-count").inner_text()
        page.locator("#survey-type").select_option("type0")
        page.locator("#survey-base-to").fill("5000000")
        found = int(page.locator("#survey-count").inner_text().split()[0])
        assert 0 < found < 50
        page.locator("#survey-text").fill("no-such-model")
        assert rows.count() == 0
        assert "text=no-such-model" in page.url, "the way back from a model leads to the same rows"
        page.evaluate("location.hash = '#type=type1&sort=base&down=1'")
        expect(page.locator("#survey-count")).to_contain_text("200 of 10,000 models, 1 to 200")
        assert page.locator("#survey-type").input_value() == "type1"
        page.locator("#survey-clear").click()
        assert page.locator("#survey-count").inner_text().startswith("10,000 of 10,000")


@pytest.mark.slow
def test_hostile_rows_do_nothing_in_a_browser(quiet_page, tmp_path: Path):
    row = SurveyRow(f"/{HOSTILE}", "r", "1", "failed", message=HOSTILE, model_type=HOSTILE, kinds=HOSTILE)
    with quiet_page(written(gallery([row, *ROWS]), tmp_path)) as page:
        assert page.locator("img").count() == 0
        assert page.locator("#survey-rows tr").count() == 5
