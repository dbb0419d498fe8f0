"""The explorer as one HTML page that opens from disk and asks for nothing from anywhere."""

from typing import Any

from clockhands.show.explorer.bundle import module, source
from clockhands.show.markup import document, element

_START = """
const data = JSON.parse(document.getElementById("data").textContent);
const page = explore(document.getElementById("explorer"), data, {
  fragment: location.hash,
  onfragment: (text) => history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search),
});
// The address as it was typed: by now the page may have told its own.
addEventListener("hashchange", (event) => page.follow(new URL(event.newURL).hash));
addEventListener("resize", () => requestAnimationFrame(page.redraw));
"""


def page(data: dict[str, Any], title: str = "clockhands") -> str:
    """The page: style, module and data in one text; only this script may run, and nothing may be fetched.

    Args:
        data: What `clockhands.show.explorer.data` put together: plain JSON values.
        title: What stands in the window's title.
    """
    shown = element(
        "main",
        element("h1", title),
        element("noscript", element("p", "This page computes what it shows, and needs JavaScript for it.")),
        element("div", id="explorer"),
        class_="clockhands",
    )
    return document(title, source("style.css"), f"{module()}\n{_START}", {"data": data}, shown)
