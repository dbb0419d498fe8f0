"""The page of a survey: the answer first, every row in it, nothing from elsewhere, and quick for 10,000 rows."""

import json
import re
from pathlib import Path

from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.worker import surveyed
from clockhands.show._survey_charts import histogram
from clockhands.show.stored_report import stored_report
from clockhands.show.survey_page import file_name, gallery
from show.pages import HOSTILE, Parts, check_nothing_comes_from_elsewhere
from show.surveyed import ROWS


def held(page: str) -> dict:
    return json.loads(Parts(page).scripts["survey"])


def text(page: str) -> str:
    return " ".join(" ".join(Parts(page).texts).split())


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


def test_a_code_of_a_finding_is_not_replaced_by_the_name_of_a_runtime():
    words = held(gallery(ROWS))["words"]  # `default-base` is a finding, and a way in which runtimes misread
    assert words["differs"]["default-base"] == "base 10,000 instead of the base in the file"
    assert words.keys() == {"kinds", "differs", "refused"}


def test_nothing_comes_from_elsewhere_and_hostile_names_stay_text():
    row = SurveyRow(f"/{HOSTILE}", "r", "1", "done", verdict=HOSTILE, model_type=HOSTILE, kinds=HOSTILE)
    page = gallery([*ROWS, row])
    assert Parts(page).of("img") == []
    assert "\u202e" not in "".join(str(cell) for cells in held(page)["rows"] for cell in cells)
    check_nothing_comes_from_elsewhere(page)


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
    found = bars(histogram([1e4, 1e4, 2e4, 1e5, 1e6], 10.0, "base"))
    assert found == ["10k to 100k: 3", "100k to 1M: 1", "1M to 10M: 1"]
    assert bars(histogram([4096.0, 8191.0, 8192.0], 2.0, "length")) == ["4,096 to 8,192: 2", "8,192 to 16.4k: 1"]
    assert bars(histogram([1.0], 2.0, "factor")) == ["1 to 2: 1"]
    far_apart = histogram([1e-300, 1e300], 2.0, "base")
    assert len(bars(far_apart)) == 2
    assert len(far_apart) < 10_000


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
