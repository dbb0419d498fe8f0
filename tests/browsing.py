"""One headless Chromium for the tests of a module, and what a page must not do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def drawn(page) -> None:
    """Wait until nothing on a page says that it is still being drawn; what is out of sight may follow later."""
    page.locator("[aria-busy]").first.wait_for(state="detached")


def expect(held: Any) -> Any:
    """Playwright's patient assertions on a page or an element."""
    # Imported when a test runs: what only the slow tests install is not looked for when all are collected.
    from playwright.sync_api import expect as patient

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
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        try:
            page.goto(file.as_uri())
            drawn(page)
            yield page
            assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [file.as_uri()]
            assert said == []
        finally:
            page.close()

    return opened
