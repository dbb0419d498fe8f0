"""One headless Chromium for the tests of a module, what a page must not do, and patience until it has done its work."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE = 60.0  # seconds until a page that does not come to what is wanted fails; no machine is to be slower

_WATCH = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def watched(page: Any) -> Any:
    """A page before it is opened on something: from then on `settled` can be asked of it."""
    page.add_init_script(_WATCH)
    page.set_default_timeout(1000 * PATIENCE)
    return page


def eventually(page: Any, check: Callable[[], Any]) -> Any:
    """What a check returns as soon as it no longer fails."""
    end = monotonic() + PATIENCE
    while True:
        try:
            return check()
        except AssertionError:
            if monotonic() > end:
                raise
        page.wait_for_timeout(50)


def settled(page: Any) -> None:
    """Wait until a page has nothing more to do: only then is what is read at once what stays there."""

    def check() -> None:
        left = page.evaluate("underWay()")
        assert left == [], "the page does not come to rest"

    eventually(page, check)


def expect(held: Any) -> Any:
    """Playwright's patient assertions on a page or an element."""
    # Imported when a test runs: what only the slow tests install is not looked for when all are collected.
    from playwright.sync_api import expect as patient

    patient.set_options(timeout=1000 * PATIENCE)
    return patient(held)


@pytest.fixture(scope="module")
def chromium():
    """Debian's Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=binary, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def quiet_page(chromium):
    """Open a file; afterwards nothing else was asked for, and nothing was complained of."""

    @contextmanager
    def opened(file: Path, width: int = 1024, scheme: str = "light") -> Iterator:
        page = watched(chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        try:
            page.goto(file.as_uri())
            settled(page)
            yield page
            assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [file.as_uri()]
            assert said == []
        finally:
            page.close()

    return opened
