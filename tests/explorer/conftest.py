"""Pages are opened in one headless Chromium; the page without a model is opened once for each file of tests."""

import pytest

from browsing import chromium, quiet_page, settled, watched
from exploring import explorer, follow, resize

__all__ = ["chromium", "explorer", "quiet_page"]


@pytest.fixture(scope="module")
def lasting(chromium, explorer):
    """The page without a model, and what it asked for or complained of."""
    page, heard = watched(chromium.new_page(viewport={"width": 1024, "height": 900})), []
    page.on("request", lambda request: heard.append(request.url))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda message: heard.append(message.text) if message.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.goto(explorer.as_uri())
    settled(page)
    yield page, heard
    page.close()


@pytest.fixture
def tab(lasting, explorer):
    """The page as it opens: whatever a test before this one changed, `test_redrawn_in_place.py` holds it to that."""
    page, heard = lasting
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    settled(page)
    if page.viewport_size != {"width": 1024, "height": 900}:
        resize(page, 1024, 900)
    follow(page, "")
    page.evaluate("scrollTo(0, 0)")
    settled(page)
    yield page
    asked = [each for each in heard if not each.startswith(("blob:", "data:"))]
    heard.clear()
    assert set(asked) <= {explorer.as_uri()}
