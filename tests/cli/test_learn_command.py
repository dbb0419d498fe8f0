"""`clockhands learn`: two pages, in a folder or in a browser, that ask for nothing."""

import tempfile
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from browsing import chromium, watched

__all__ = ["chromium"]


def test_a_folder_gets_both_pages_and_keeps_what_it_has(run, tmp_path):
    out = tmp_path / "course"
    done = run("learn", "--out", out)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"note: {out / 'index.html'} is the course; it leads to the lesson.\n"
    assert sorted(each.name for each in out.iterdir()) == ["explorer.html", "index.html"]
    assert "How transformers know where words are" in (out / "explorer.html").read_text(encoding="utf-8")
    (out / "explorer.html").unlink()
    (out / "index.html").write_text("mine")
    again = run("learn", "--out", out)
    assert again.code == 2
    assert "index.html" in again.err
    assert [each.read_text() for each in out.iterdir()] == ["mine"]
    assert run("learn", "--out", out, "--force").code == 0
    assert (out / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("learn", "--force").code == 2


@pytest.mark.parametrize("can", [True, False])
def test_without_a_folder_a_browser_opens_the_course(run, monkeypatch, tmp_path, can):
    opened = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda url, *_: opened.append(url) or can)
    done = run("learn")
    path = Path(unquote(urlparse(opened[0]).path))
    assert path.name == "index.html"
    assert path.with_name("explorer.html").exists()
    assert done.code == (0 if can else 2)
    assert str(path) in done.err


@pytest.mark.slow
def test_the_course_shows_its_views_from_disk_and_asks_for_nothing_else(run, chromium, tmp_path):
    run("learn", "--out", tmp_path / "course")
    tab, heard = watched(chromium.new_page(viewport={"width": 390, "height": 844})), []
    tab.on("request", lambda request: heard.append(request.url.partition("#")[0]))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("console", lambda message: heard.append(message.text) if message.type in ("error", "warning") else None)
    tab.goto((tmp_path / "course" / "index.html").as_uri())
    tab.locator("#scalings iframe").scroll_into_view_if_needed()
    tab.frame_locator("#scalings iframe").locator("#ladder .band").first.wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    tab.locator("a[href='explorer.html']").click()
    tab.locator("#lesson-opening h1").wait_for()
    tab.close()
    assert set(heard) <= {(tmp_path / "course" / name).as_uri() for name in ("index.html", "explorer.html")} | {"blob:"}
