"""Every page of the course has its parts, its cells run, and together the pages answer every claim."""

import ast
import contextlib
import re
import runpy
import warnings
from pathlib import Path

import pytest

from clockhands.measures.claims import CLAIMS, recompute
from clockhands.show import explorer

COURSE = Path(__file__).resolve().parents[1] / "docs" / "course"
VIEWS = Path(explorer.__file__).parent / "js" / "views"
CELL = re.compile(r"^```\{code-cell\} python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def course():
    pytest.importorskip("IPython")
    pytest.importorskip("yaml")
    return runpy.run_path(str(COURSE / "settled.py"))


@pytest.fixture(scope="module")
def views():
    """The views that the explorer's own files declare."""
    found = {
        name
        for path in VIEWS.glob("*.js")
        for name in re.findall(r'^  id: "(\w+)",$', path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(found) > 10
    return found


PAGES = sorted(path.stem for path in COURSE.glob("*.md") if path.stem != "index")


def test_the_contents_list_every_page(course):
    assert sorted(course["chapters"]()) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_its_parts(course, views, name):
    page = (COURSE / f"{name}.md").read_text(encoding="utf-8")
    head = course["header"](page)
    assert (head["file_format"], head["kernelspec"]) == ("mystnb", {"name": "python3"})
    assert course["title"](page).endswith("?")
    shown = [found["view"] for found in course["VIEW"].finditer(page)]
    assert shown
    assert page.count("<iframe") == len(shown)
    assert set(shown) <= views
    assert CELL.search(page)
    if name != "answers":
        assert f'settled("{name}")' in page
        assert page.count("<details>") == page.count("</details>") >= 2


def test_every_claim_is_in_a_chapter_and_every_listed_one_exists(course):
    listed = course["listed"]()
    assert set(listed) == set(CLAIMS)
    for name, page in course["chapters"]().items():
        claims = course["header"](page).get("claims", [])
        assert len(claims) == len(set(claims)), name


def test_statements_lead_to_what_exists(course, views):
    for each in course["statements"]():
        assert set(each) <= {"says", "claims", "views", "chapters"}, each
        assert set(each.get("claims", [])) <= set(CLAIMS), each
        assert set(each.get("views", [])) <= views, each
        assert set(each.get("chapters", [])) <= set(PAGES), each
        assert any(each.get(part) for part in ("claims", "views", "chapters")), each


def test_a_verdict_is_the_one_of_the_claim(course):
    text = course["settled"]("counters").data
    for claim in course["header"]((COURSE / "counters.md").read_text(encoding="utf-8"))["claims"]:
        told = recompute(CLAIMS[claim]).claim
        line = next(line for line in text.splitlines() if f"[{claim}]" in line)
        assert f"**{told.verdict.capitalize()}**" in line
    assert course["every_claim"]().data.count("\n") == len(CLAIMS) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_cells_run_without_a_warning(name, monkeypatch):
    pytest.importorskip("ml_dtypes")
    monkeypatch.syspath_prepend(str(COURSE))
    names: dict[str, object] = {"__name__": "page"}
    page = (COURSE / f"{name}.md").read_text(encoding="utf-8")
    with contextlib.chdir(COURSE), warnings.catch_warnings():
        warnings.simplefilter("error")
        for found in CELL.finditer(page):
            line = page.count("\n", 0, found.start("code"))
            exec(compile(ast.parse("\n" * line + found["code"]), f"{name}.md", "exec"), names)
