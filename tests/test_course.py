"""Every page of the course has its parts, its cells run, and together the pages answer every claim."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from clockhands.measures.claims import CLAIMS, recompute
from clockhands.show import explorer
from clockhands.show.explorer import page as explorer_page

COURSE = Path(__file__).resolve().parents[1] / "docs" / "course"
VIEWS = Path(explorer.__file__).parent / "js" / "views"
PATH = ["order", "clocks", "shift", "rotary", "length", "scalings"]
WORDS_A_MINUTE = 220  # that people read, code and frames not counted
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
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


def test_the_short_path_is_read_in_20_minutes(course):
    index = (COURSE / "index.md").read_text(encoding="utf-8")
    path = re.findall(r"^1\. \[\]\((\w+)\.md\)$", index, re.MULTILINE)
    assert path == PATH
    pages = (course["chapters"]()[name].split("---\n", 2)[2] for name in path)
    words = sum(len(FENCED.sub("", page).split()) for page in pages)
    assert words <= 20 * WORDS_A_MINUTE


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_cells_run_without_a_warning_and_the_page_of_the_wheel_shows_what_they_print(name, monkeypatch):
    pytest.importorskip("ml_dtypes")
    monkeypatch.syspath_prepend(str(COURSE))
    # It needs IPython.
    import course_page

    shown = " ".join(course_page.chapter(name).split())
    held = " ".join(course_page.PAGE.read_text(encoding="utf-8").split())
    found = re.search(rf'<section id="{name}">.*?</section>', held)
    assert (found is not None) == (name in course_page.names())
    if found is not None:
        # The last digits of rounding are those of the machine.
        assert NUMBER.split(shown) == NUMBER.split(found[0]), "run tools/course_page.py"
        numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (shown, found[0])]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=1e-9)


def test_the_page_of_the_wheel_has_the_chapters_of_the_path_and_asks_for_nothing():
    page = explorer_page.source("course.html")
    for name in PAGES:
        assert (f'<section id="{name}">' in page) == (name in PATH)
    ids = set(re.findall(r' id="([\w-]+)"', page))
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(links) > 15
    assert {each for each in links if not each.startswith("explorer.html")} <= {f"#{name}" for name in ids}
    assert "<script" not in page
    assert "http-equiv" in page


def test_a_curve_is_drawn_where_its_numbers_are():
    drawn = runpy.run_path(str(COURSE / "drawn.py"))
    picture = drawn["curves"]([1, 10, 100], {"a": [1, 2, 3], "b": [3, 3, 3]}, "across", "up", log="x").data
    root = ET.fromstring(picture)
    paths = [each.get("d") for each in root.iter("{http://www.w3.org/2000/svg}path")][1:]
    corners = [[tuple(map(float, each.split(","))) for each in path[1:].split("L")] for path in paths]
    (rising,) = [each for each in corners if each[0][1] != each[1][1]]
    left, right, top, bottom = (
        drawn["LEFT"],
        drawn["WIDE"] - drawn["RIGHT"],
        drawn["TOP"],
        drawn["TALL"] - drawn["BOTTOM"],
    )
    assert rising == [(left, bottom), ((left + right) / 2, (top + bottom) / 2), (right, top)]
    # Names of lines that end at one height stand below one another.
    texts = {each.text: float(each.get("y")) for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert abs(texts["a"] - texts["b"]) == drawn["LETTERS"]
    assert {"1", "10", "100", "across", "up"} <= texts.keys()
